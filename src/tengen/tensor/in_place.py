"""PyTorch's methods that write a tensor: `x.add_(y)`, `x.zero_()`, `x.normal_()`.

Each gives the tensor another value, as ``x += y`` and ``x[...] = y`` do: what was computed before keeps its own, and views made before keep
the old one. In PyTorch a view is written through to the tensor that it is of. Here that would be lost, and so it is an error, but for
tensors whose writes go on to another one (`parts.py`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from tengen.base.errors import ArgumentError, DTypeError, GradientError, ShapeError, UsageWarning, tell, warn_once
from tengen.ops.define import REGISTRY
from tengen.ops.widths import rounded_once
from tengen.runtime import native
from tengen.tensor.nodes import node_of
from tengen.tensor.parts import is_known_as_own, is_part, written
from tengen.tensor.tensor import Buffer, Tensor, assign

Compute = Callable[..., Tensor]


def _nameless() -> int:
    """How many references a method counts of its object when nothing else holds it; 0, which none has, where Python counts as many of one
    that a variable holds (3.14)."""

    class Probe:
        def count(self) -> int:
            return sys.getrefcount(self)

    held = Probe()
    loose = Probe().count()
    return loose if loose < held.count() else 0


_NAMELESS = _nameless()


def _refuse_lost(x: Tensor, name: str, references: int) -> None:
    """ArgumentError for a tensor whose memory is another's, where the write would be lost."""
    if type(x._data) is not Buffer or is_known_as_own(x):
        return
    node = node_of(x)[0]  # the tape keeps results that gradients need, which are no views for that
    a_view = node is None or getattr(getattr(node, "op", None), "kind", "view") == "view"
    shared = sys.getrefcount(x._data) > 2 and references == _NAMELESS and a_view
    if shared or native.borrowed(x._data):
        raise ArgumentError(
            f"{name}() of {x._layout.type!r}, which is a view of another tensor or of foreign memory: the write would be lost, for views have "
            f"values of their own; help: write the tensor itself, as x[index] = value; or copy it before: x.clone().{name}(...)"
        )


def _fitting(x: Tensor, name: str, value: Tensor) -> Tensor:
    """The value in the dtype of x, as PyTorch casts it, and in memory of its own. Errors: ShapeError, DTypeError where x cannot hold it."""
    if value.shape != x.shape:
        raise ShapeError(f"{name}() of {x._layout.type!r} would give the shape {value.shape}; help: a method without the underscore")
    if value.dtype is x.dtype:
        of_another = type(value._data) is Buffer and value._data is not x._data and native.borrowed(value._data)
        return REGISTRY["copy"](value) if of_another else value  # a view's memory would make x a view, which is not written in place
    order = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}
    if order.get(value.dtype.kind, 2) > order.get(x.dtype.kind, 2):
        raise DTypeError(f"{name}() of {x._layout.type!r} would give {value.dtype}, which it cannot hold; help: x.astype({value.dtype.name!r})")
    return REGISTRY["astype"](value, x.dtype)


def written_to(made: Any, out: Any, name: str) -> Any:
    """PyTorch's ``out=``: the result of the function `name`, or each of several, written to a tensor, which is returned. A tensor of another
    shape takes the result's, as in PyTorch, with a `UsageWarning` unless it is empty.

    Errors: DTypeError where it cannot hold the dtype; ShapeError for a view of another shape; GradientError where a gradient flows through
    the result; ArgumentError for what is no tensor.
    """
    if isinstance(made, (tuple, list)):
        if not isinstance(out, (tuple, list)) or len(out) != len(made):
            raise ArgumentError(f"{name}: out= must be a tuple of {len(made)} tensors")
        parts = [written_to(m, o, name) for m, o in zip(made, out)]
        return type(made)(*parts) if hasattr(made, "_fields") else type(made)(parts)
    if not isinstance(out, Tensor) or not isinstance(made, Tensor):
        raise ArgumentError(f"{name}: out= takes a tensor, got a {type(out).__name__}, for a result that is a {type(made).__name__}")
    if made.requires_grad:
        raise GradientError(f"{name}(out=...): no gradient flows through out=; help: out = {name}(...), or call it under no_grad()")
    if is_part(out):
        written(out, lambda: assign(out, _fitting(out, name, made)))
    elif made.shape == out.shape:
        assign(out, _fitting(out, name, made))
    else:
        if out.size:
            of = f"{name}(out=...): out {out._layout.type!r} takes the shape of the result, {made._layout.type!r}"
            warn_once(f"{of}; help: out=torch.empty(0), or an out of that shape", UsageWarning)
        out._reset(_fitting(REGISTRY["zeros"](made.shape, out.dtype), name, made))
    return out


def writing(name: str, compute: Compute, says: str) -> Callable[..., Tensor]:
    """The method `name`: gives the tensor the value that compute(tensor, ...) has, and returns the tensor."""

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        references = sys.getrefcount(self)
        try:
            if is_part(self):
                written(self, lambda: assign(self, _fitting(self, name, compute(self, *args, **kwargs))))
                return self
            _refuse_lost(self, name, references)
            assign(self, _fitting(self, name, compute(self, *args, **kwargs)))
        except Exception as e:
            tell(e)
            raise
        return self

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"{says}; the tensor itself takes the value. Errors: ArgumentError for a view, whose write would be lost."
    return method


def _full(x: Tensor, value: Any) -> Tensor:
    return REGISTRY["full_like"](x, value) if not isinstance(value, Tensor) else REGISTRY["broadcast_to"](value, x.shape)


def _scaled(op: str) -> Compute:
    return lambda x, other, alpha=1: REGISTRY[op](x, other if alpha == 1 else other * alpha)


def _divided(x: Tensor, other: Any, rounding_mode: Any = None) -> Tensor:
    if rounding_mode not in (None, "floor", "trunc"):
        raise ArgumentError(f"div_: rounding_mode={rounding_mode!r} must be None, 'trunc' or 'floor'")
    if rounding_mode == "trunc":  # a rounded quotient may be the next integer
        return rounded_once(lambda x, y: REGISTRY["trunc"](REGISTRY["div"](x, y)))(x, other)
    return REGISTRY["floor_div" if rounding_mode == "floor" else "div"](x, other)


def _filled(x: Tensor, mask: Tensor, value: Any) -> Tensor:
    return REGISTRY["masked_fill"](x, mask, value)


def _scattered(x: Tensor, dim: int, index: Tensor, src: Any = None, value: Any = None, reduce: Any = None) -> Tensor:
    modes: dict[Any, str] = {None: "set", "add": "add", "multiply": "mul"}
    if reduce not in modes:
        raise ArgumentError(f"scatter_: reduce={reduce!r} must be 'add' or 'multiply'; help: scatter_reduce_")
    src = value if src is None else src
    rows = src if isinstance(src, Tensor) else REGISTRY["full"](index.shape, src, x.dtype)
    return REGISTRY["scatter"](x, dim, index, rows if rows.dtype is x.dtype else REGISTRY["astype"](rows, x.dtype), modes[reduce])


def _scatter_added(x: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    return REGISTRY["scatter_add"](x, dim, index, src)


def _lerped(x: Tensor, end: Tensor, weight: Any) -> Tensor:
    return REGISTRY["lerp"](x, end, weight)


def _copied(x: Tensor, source: Any, non_blocking: bool = False) -> Tensor:
    given = source if isinstance(source, Tensor) else Tensor(source)
    given = given if given.dtype is x.dtype else REGISTRY["astype"](given, x.dtype)
    return REGISTRY["broadcast_to"](given, x.shape)


def _signs(x: Tensor) -> Tensor:
    """PyTorch's sign: of NaN 0."""
    if x.dtype.kind == "b":
        return x
    return REGISTRY["where"](REGISTRY["isnan"](x), 0.0, REGISTRY["sign"](x)) if x.dtype.is_float else REGISTRY["sign"](x)


def of_one_axis(compute: Compute, x: Tensor, dim: int, index: Tensor, *more: Any, **named: Any) -> Tensor:
    """compute(x, dim, index, ...) where a tensor without axes counts as one element along an axis, as in PyTorch; the result has one axis."""
    flat = lambda v: v.reshape(-1) if isinstance(v, Tensor) else v
    return compute(x.reshape(1), dim, flat(index), *map(flat, more), **{k: flat(v) for k, v in named.items()})


def _along(compute: Compute) -> Compute:
    """The function of a tensor, an axis and indices, also of a tensor without axes."""

    def computed(x: Tensor, dim: int, index: Tensor, *more: Any, **named: Any) -> Tensor:
        return compute(x, dim, index, *more, **named) if x.ndim else of_one_axis(compute, x, dim, index, *more, **named).reshape(())

    return computed


def _of_op(op: str) -> Compute:
    return lambda x, *args, **kwargs: REGISTRY[op](x, *args, **kwargs)


# the method's name without its underscore -> the op that it is
_OPS: dict[str, str] = {
    **{n: n for n in (
        "abs", "acos", "asin", "atan", "ceil", "clip", "cos", "cosh", "div", "erf", "exp", "expm1", "floor", "log", "log10", "log1p", "log2",
        "maximum", "minimum", "mul", "neg", "pow", "reciprocal", "relu", "rsqrt", "sigmoid", "sin", "sinh", "sqrt", "square",
        "tan", "tanh", "tril", "triu", "trunc", "nan_to_num", "logical_and", "logical_or", "logical_not",
    )},
    "clamp": "clip", "multiply": "mul", "divide": "div", "negative": "neg", "remainder": "mod",
}  # fmt: skip


def methods(function: Callable[[str], Compute]) -> dict[str, Callable[..., Tensor]]:
    """The methods by their names. Args: function: gives functions of `functional` by their names, found when they are called."""
    made = {f"{n}_": writing(f"{n}_", _of_op(op), f"`functional.{op}` of the tensor") for n, op in _OPS.items()}
    special: Sequence[tuple[str, Compute, str]] = (
        ("div_", _divided, "x / y, rounded as rounding_mode says: 'floor', 'trunc' or None"),
        ("add_", _scaled("add"), "x + alpha y"), ("sub_", _scaled("sub"), "x - alpha y"),
        ("zero_", lambda x: REGISTRY["zeros_like"](x), "Zeros"), ("fill_", _full, "One number everywhere"),
        ("copy_", _copied, "The values of another tensor, in this one's shape and dtype"), ("lerp_", _lerped, "x + weight (end - x)"),
        ("masked_fill_", _filled, "A number where the mask is true"), ("sign_", _signs, "-1, 0 or 1; bools stay as they are"),
        ("round_", lambda x, *, decimals=0: x.round(decimals=decimals), "The nearest integers, or numbers of so many decimals; ties to even"),
        ("scatter_", _along(_scattered), "`functional.scatter` of the tensor"),
        ("scatter_add_", _along(_scatter_added), "`functional.scatter_add` of the tensor"),
        *((f"{n}_", _along(function(n)), f"`functional.{n}` of the tensor") for n in (
            "index_add", "index_copy", "index_fill", "index_reduce", "scatter_reduce",
        )),
        *((f"{n}_", function(n), f"`functional.{n}` of the tensor") for n in ("addcdiv", "addcmul", "addmm", "masked_scatter")),
    )  # fmt: skip
    return made | {name: writing(name, compute, says) for name, compute, says in special}
