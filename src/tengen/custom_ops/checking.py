"""`check_op`: an operator of a user's, called in every way that it can be, and compared.

In: an operator and sample arguments. Out: what was compared, or an error that says what differs.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from tengen.autodiff import vjp
from tengen.autodiff.vmap import vmap
from tengen.base.dtype import float64
from tengen.base.errors import CustomOpError, DTypeError, GradientError
from tengen.base.record import record
from tengen.custom_ops.definitions import CustomOp, interpreted
from tengen.deploy.loader import load_graph
from tengen.jit.trace import trace
from tengen.ops.op import Op
from tengen.tensor import Tensor


@record
class Checked:
    """What `check_op` compared, as sentences, and what it could not, with the reason."""

    passed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join([*self.passed, *(f"skipped: {s}" for s in self.skipped)])


def check_op(
    op: Op, samples: Sequence[Sequence[Any]], attrs: Mapping[str, Any] | None = None, *, rtol: float = 1e-5, atol: float = 1e-6,
    gradient_rtol: float = 1e-4, step: float = 1e-5,
) -> Checked:  # fmt: skip
    """Checks an operator: that a kernel accesses nothing outside of its tensors; that a traced program, a dumped file and `vmap` give the
    bits of the eager call, that the result is its reference's (`.reference`), and its gradient that of central differences in float64.

    Args:
        op: the operator. samples: for each a sequence of arrays, one for each tensor. attrs: the attributes, for all samples.
        rtol, atol: how far results may lie from the reference. gradient_rtol: how far a gradient may lie from differences, as a part
            of its largest number. step: of the differences.

    Returns what was compared. Gradients are compared where there is one and the operator takes float64.

    Errors: CustomOpError that says what differs.
    """
    found, given = Checked(), dict(attrs or {})
    for i, sample in enumerate(samples):
        xs = [x if isinstance(x, Tensor) else Tensor(x) for x in sample]
        if isinstance(op, CustomOp) and op.signatures and not op.returns_code:  # first: it checks every access to memory
            meant = interpreted(op, [x.numpy() for x in xs], given)
            for r, w in zip(_tuple(op(*xs, **given)), meant):
                if r.numpy().tobytes() != w.tobytes():
                    raise CustomOpError(f"{op.name}, sample {i}: the interpreter gives other bits than the compiled kernel: {w!r}, {r!r}")
            found.passed.append(f"sample {i}: no access lies outside of a tensor, and the interpreter gives the same bits")
        _check_ways(op, xs, given, f"sample {i}", found)
        if op.rules.reference is not None:
            wanted = op.rules.reference(*(x.numpy() for x in xs), **given)
            for r, w in zip(_tuple(op(*xs, **given)), _tuple(wanted)):
                _close(r.numpy(), np.asarray(w), rtol, atol, f"{op.name}, sample {i}: the reference gives another result")
            found.passed.append(f"sample {i}: the result is the reference's")
        else:
            found.skipped.append(f"sample {i}: there is no reference")
        _check_gradient(op, xs, given, f"sample {i}", gradient_rtol, step, found)
    return found


def _tuple(x: Any) -> tuple:
    return tuple(x) if isinstance(x, (tuple, list)) else (x,)


def _same(a: Any, b: Any, what: str) -> None:
    for i, (x, y) in enumerate(zip(_tuple(a), _tuple(b), strict=True)):
        if x.dtype is not y.dtype or x.shape != y.shape or x.numpy().tobytes() != y.numpy().tobytes():
            raise CustomOpError(f"{what}: result {i} is {x!r} and {y!r}")


def _close(got: np.ndarray, wanted: np.ndarray, rtol: float, atol: float, what: str) -> None:
    if got.shape != wanted.shape or not np.allclose(got.astype("float64"), wanted.astype("float64"), rtol, atol, equal_nan=True):
        raise CustomOpError(f"{what}: {got!r}, and it is {wanted!r}")


def _check_ways(op: Op, xs: list[Tensor], attrs: dict, where: str, found: Checked) -> None:
    eager = op(*xs, **attrs)
    run = trace(lambda *some: op(*some, **attrs), dynamic_axes=None)
    _same(eager, run(*xs), f"{op.name}, {where}: a traced program gives other bits than the eager call")
    file = io.BytesIO()
    run.dump(file)
    file.seek(0)
    _same(eager, load_graph(file)(*xs), f"{op.name}, {where}: a dumped file gives other bits than the eager call")
    both = [Tensor(np.stack([x.numpy(), x.numpy()])) for x in xs]
    for r, b in zip(_tuple(eager), _tuple(vmap(lambda *some: op(*some, **attrs))(*both))):
        _same((r, r), (b[0], b[1]), f"{op.name}, {where}: vmap gives other bits than the call for one example")
    found.passed.append(f"{where}: eager, traced, dumped and vmapped calls have the same bits")


def _check_gradient(op: Op, xs: list[Tensor], attrs: dict, where: str, rtol: float, step: float, found: Checked) -> None:
    if op.why_no_vjp is not None:
        return found.skipped.append(f"{where}: no gradient: {op.why_no_vjp}")
    floats = [i for i, x in enumerate(xs) if x.dtype.is_float]
    wide = [x.astype(float64) if i in floats else x for i, x in enumerate(xs)]
    try:
        first = _tuple(op(*wide, **attrs))
    except DTypeError:
        return found.skipped.append(f"{where}: the gradient is not compared: the operator takes no float64")
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal(r.shape) if r.dtype.is_float else None for r in first]

    def function(*some: Any) -> Any:
        given = list(wide)
        for i, x in zip(floats, some):
            given[i] = x
        return tuple(r for r, w in zip(_tuple(op(*given, **attrs)), weights) if w is not None)

    def total(arrays: Sequence[np.ndarray]) -> float:
        return sum(float((r.numpy() * w).sum()) for r, w in zip(function(*map(Tensor, arrays)), [w for w in weights if w is not None]))

    at = [wide[i].numpy() for i in floats]
    if not at or all(w is None for w in weights):
        return found.skipped.append(f"{where}: no gradient: no float among operands or results")
    try:
        _, pull = vjp(function, *(wide[i] for i in floats))
        made = _tuple(pull(tuple(Tensor(w) for w in weights if w is not None)))
    except GradientError as e:
        return found.skipped.append(f"{where}: no gradient: {e}") if op.rules.vjp is None and op.kind == "primitive" else _raise(e)
    for k, (i, g) in enumerate(zip(floats, made)):
        wanted = _differences(total, at, k, step)
        got = np.zeros_like(wanted) if g is None else g.numpy()
        scale = max(float(np.abs(wanted).max(initial=0)), 1e-3)
        _close(got, wanted, 0.0, rtol * scale, f"{op.name}, {where}: the gradient of {op.tensors[i]} differs from finite differences")
    found.passed.append(f"{where}: the gradient is that of finite differences")


def _raise(e: Exception) -> None:
    raise e


def _differences(total: Callable, at: list[np.ndarray], k: int, step: float) -> np.ndarray:
    """Central differences by each element of operand k."""
    out = np.zeros(at[k].shape)
    for j in np.ndindex(at[k].shape):
        values = []
        for sign in (1, -1):
            some = [a.copy() for a in at]
            some[k][j] += sign * step
            values.append(total(some))
        out[j] = (values[0] - values[1]) / (2 * step)
    return out
