"""Loops and branches over tensors, which stay loops and branches in a trace, in a file and in an artifact.

Each body is called once, to record it, and compiled once, whatever the number of iterations; no Python runs between them. Called
eagerly, these functions record and run the same bodies, so that the bits are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tengen.base.arguments import flags
from tengen.base.errors import ArgumentError, ShapeError, user_line
from tengen.loops.lang import Expr
from tengen.ops.define import REGISTRY, differ
from tengen.tensor import Tensor
from tengen.tensor.control import run_cond, run_scan, run_while
from tengen.tensor.structure import flatten, objects_of, over_fields, unflatten
from tengen.tensor.tensor import as_tensor

Nest = Any  # a tensor, a number, None, or tuples, lists and dicts of these


def cond(pred: Tensor | bool, then: Callable[..., Nest], else_: Callable[..., Nest], *operands: Nest) -> Nest:
    """``then(*operands)`` where `pred` is true, else ``else_(*operands)``; one of the two is computed.

    Args:
        pred: one bool, or one number, of which 0 is false. A Python bool decides at once; a comparison of open extents
            (``x.shape[0] > 4`` with `dynamic_axes`) is decided in each run.
        then, else_: functions of the operands. They return the same structure of tensors of the same shapes and dtypes. They may use
            tensors from outside, and draw random numbers; what they change in place keeps the change where the branch ran.
        operands: tensors, or tuples, lists and dicts of them.

    Returns: what the function returned.

    Errors: ShapeError for a condition of several elements, ShapeError or DTypeError for branches whose results differ.

    Numerics: the bits of the branch that runs. The gradient is that of this branch; it computes the branch once more.
    Errors: ArgumentError for branches that are no functions, or whose results have different structures

    >>> from tengen import Tensor, functional as F
    >>> root = lambda x: F.cond(x > 0, F.sqrt, lambda x: x * 0, x)
    >>> root(Tensor(9.0)).item(), root(Tensor(-9.0)).item()
    (3.0, -0.0)
    """
    _check_function("cond", then=then, else_=else_)
    if isinstance(pred, bool):
        return (then if pred else else_)(*operands)
    given, key = _opened(operands, "an operand")
    kinds: list[Any] = []

    def branch(f: Callable[..., Nest]) -> Callable[[list[Tensor]], list[Tensor]]:
        def body(xs: list[Tensor]) -> list[Tensor]:
            leaves, kind = _opened(f(*unflatten(key, xs)), "a result")
            kinds.append(kind)
            if kind != kinds[0]:
                raise ArgumentError(f"{user_line()}: the branches of cond return different structures; help: both return the same one")
            return leaves

        return body

    out = run_cond(pred, branch(then), branch(else_), given)
    return unflatten(kinds[0], out)


def while_loop(
    cond: Callable[..., Tensor], body: Callable[..., Nest], *state: Nest, max_iterations: int | None = None
) -> Nest:
    """Runs ``state = body(*state)`` as long as ``cond(*state)`` is true.

    Args:
        cond: of the state, gives one bool. body: of the state, gives the next one, with the same structure, shapes and dtypes: a
            tuple where the state has several parts.
        state: tensors, numbers, or tuples, lists and dicts of them.
        max_iterations: ends after so many at the latest. A gradient then keeps the state of each iteration, in memory for
            `max_iterations` of them; without it, it keeps 12 to 64 states, and runs the loop again from these.

    Returns: the last state: a tuple, or what it is if it has one part.

    Errors: ShapeError for a condition of several elements; ShapeError or DTypeError for a body that changes the state's types.

    Numerics: the bits of the same ops called one after another. A gradient has the same bits with and without `max_iterations`.
    Errors: ArgumentError without a state, for a condition that is no bool, and for a max_iterations that is no count

    >>> from tengen import Tensor, functional as F
    >>> F.while_loop(lambda n, steps: n != 1, lambda n, steps: (F.where(n % 2 == 0, n // 2, 3 * n + 1), steps + 1), Tensor(27), 0)[1].item()
    111
    """
    if not state:
        raise ArgumentError(f"{user_line()}: while_loop has no state; help: while_loop(cond, body, *state)")
    _check_function("while_loop", cond=cond, body=body)
    if max_iterations is not None:
        _check_count("while_loop", "max_iterations", max_iterations)
    given, key = _opened(state, "a part of the state")

    def step(xs: list[Tensor]) -> list[Tensor]:
        new = body(*unflatten(key, xs))
        return _same("while_loop", key, (new,) if len(state) == 1 else new)

    out = unflatten(key, run_while(lambda xs: cond(*unflatten(key, xs)), step, given, max_iterations))
    return out[0] if len(state) == 1 else out


@flags
def scan(
    body: Callable[[Nest, Nest], tuple[Nest, Nest]], init: Nest, xs: Nest = None, length: int | None = None, reverse: bool = False
) -> tuple[Nest, Nest]:
    """Goes over the slices of `xs` along axis 0: ``state, y = body(state, x)`` for each.

    Args:
        body: of the state and a slice, gives the next state, with the same structure, shapes and dtypes, and something to stack, or
            None. init: the first state: tensors, numbers, or tuples, lists and dicts of them.
        xs: tensors with the same extent along axis 0, nested in any way; None: `body` gets None, `length` times.
        length: how many iterations; default: the extent of `xs` along axis 0. reverse: whether the last slice is the first one.

    Returns: (the last state, what `body` gave to stack, each with a new axis 0, in the order of `xs`).

    Errors: ShapeError for extents that differ; ShapeError or DTypeError for a body that changes the state's types.

    Numerics: the bits of the same ops called one after another. The gradient goes over the slices in the other order; it keeps the
    state of each iteration, and computes the body once more.

    Errors: ArgumentError for a body that does not return a pair

    >>> from tengen import Tensor, functional as F
    >>> total, sums = F.scan(lambda s, x: (s + x, s + x), 0.0, Tensor([1.0, 2.0, 3.0]))
    >>> total.item(), sums.tolist()
    (6.0, [1.0, 3.0, 6.0])
    """
    _check_function("scan", body=body)
    state, key = _opened(init, "a part of the state")
    sliced, slices = _opened(xs, "what is scanned")
    n = len(state)
    made: list[Any] = []

    def step(leaves: list[Tensor]) -> list[Tensor]:
        given = unflatten(key, leaves[:n]), unflatten(slices, leaves[n:])
        out = body(*given)
        if not isinstance(out, tuple) or len(out) != 2:
            raise ArgumentError(f"{user_line()}: the body of scan returns (state, what to stack), got {type(out).__name__}")
        stacked, kind = _opened(out[1], "what is stacked")
        made.append(kind)
        return [*_same("scan", key, out[0]), *stacked]

    last, out = run_scan(step, state, sliced, _length(sliced, length), reverse)
    return unflatten(key, last), unflatten(made[0], out)


def fori_loop(start: int | Tensor, stop: int | Tensor, body: Callable[[Tensor, Nest], Nest], init: Nest) -> Nest:
    """Runs ``state = body(i, state)`` for i = start, ..., stop - 1.

    Args:
        start, stop: ints, extents, or int tensors []. With tensors it is a `while_loop`, else a `scan`.
        body: of the number of the iteration, an int64 tensor [], and the state; gives the next state, with the same structure,
            shapes and dtypes. init: the first state: tensors, numbers, or tuples, lists and dicts of them.

    Returns: the last state. Numerics, and what else may fail: see `scan` and `while_loop`.

    Errors: ArgumentError for a bound that is none of these.

    >>> from tengen import Tensor, functional as F
    >>> F.fori_loop(1, 6, lambda i, product: product * i, Tensor(1)).item()
    120
    """
    _check_function("fori_loop", body=body)
    for name, bound in (("start", start), ("stop", stop)):
        whole = bound.ndim == 0 and bound.dtype.is_int if isinstance(bound, Tensor) else _is_whole(bound)
        if not whole:
            told = repr(bound._layout.type) if isinstance(bound, Tensor) else repr(bound)
            raise ArgumentError(f"{user_line()}: fori_loop: {name} is {told}; help: an int, an extent, or an int tensor []")
    if isinstance(start, int) and isinstance(stop, int):
        numbers = Tensor(np.arange(start, stop, dtype=np.int64))
        return scan(lambda state, i: (body(i, state), None), init, numbers)[0]
    if isinstance(start, (int, Expr)) and isinstance(stop, (int, Expr)):
        return scan(lambda state, i: (body(i, state), None), init, REGISTRY["arange"].call(start, stop, dtype="int64"))[0]
    last = as_tensor(stop).astype("int64")
    step = lambda i, state: (i + 1, body(i, state))
    return while_loop(lambda i, state: i < last, step, as_tensor(start).astype("int64"), init)[1]


def _is_whole(n: Any) -> bool:
    return isinstance(n, (int, Expr, np.integer)) and not isinstance(n, bool)


def _check_function(what: str, **functions: Any) -> None:
    """ArgumentError for a branch or a body that is no function."""
    for name, f in functions.items():
        if not callable(f):
            raise ArgumentError(f"{user_line()}: {what}: {name} is a {type(f).__name__}; help: a function that returns the result")


def _check_count(what: str, name: str, n: Any) -> None:
    """ArgumentError unless a number of iterations is one."""
    if not (_is_whole(n) or isinstance(n, Tensor)) or (not isinstance(n, (Expr, Tensor)) and n < 0):
        raise ArgumentError(f"{user_line()}: {what}: {name}={n!r}; help: an int of at least 0")


def _opened(x: Nest, what: str) -> tuple[list[Tensor], Any]:
    """(The tensors of a nest, numbers as tensors too; its structure.)"""
    leaves: list[Tensor] = []
    key = flatten(_numbers_as_tensors(x), leaves)
    if odd := objects_of(key):
        raise ArgumentError(
            f"{user_line()}: {what} is a {type(odd[0]).__name__}; help: tensors, numbers, and tuples, lists, dicts and dataclasses of them"
        )
    return leaves, key


def _numbers_as_tensors(x: Nest) -> Nest:
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*map(_numbers_as_tensors, x))
    if isinstance(x, (tuple, list)):
        return type(x)(map(_numbers_as_tensors, x))
    if isinstance(x, dict):
        return {k: _numbers_as_tensors(v) for k, v in x.items()}
    return as_tensor(x) if isinstance(x, (bool, int, float)) else over_fields(x, _numbers_as_tensors, frozen=False)


def _same(what: str, key: Any, new: Nest) -> list[Tensor]:
    """The tensors of the next state, which has the structure of the last one."""
    leaves, kind = _opened(new, "a part of the state")
    if kind != key:
        told = "nothing; help: it returns the next state" if not leaves else f"{type(new).__name__} of {len(leaves)} tensors in all"
        raise ArgumentError(f"{user_line()}: the body of {what} returns a state of another structure than it was given: {told}")
    return leaves


def _length(sliced: Sequence[Tensor], length: int | None) -> Any:
    """How many iterations a scan has."""
    if length is not None:
        _check_count("scan", "length", length)
    extents = [x.shape[0] if x.ndim else None for x in sliced]
    if None in extents:
        raise ShapeError(f"{user_line()}: scan goes along axis 0, and {sliced[extents.index(None)]._layout.type!r} has none")
    if not extents and length is None:
        raise ArgumentError(f"{user_line()}: scan has neither xs nor a length; help: length=n")
    n = extents[0] if extents else length
    for d in (*extents, n if length is None else length):
        if differ(d, n):
            raise ShapeError(f"{user_line()}: scan goes over {n} slices and over {d}; help: all of xs have one extent along axis 0")
    return n


__all__ = ["cond", "fori_loop", "scan", "while_loop"]
