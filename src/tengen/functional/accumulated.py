"""Running extremes, runs of equal elements and reductions at indices, as PyTorch and NumPy have them and MegEngine does not, put together
from ops. Arguments are in PyTorch's order; `dim` and `keepdim` are understood.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

from tengen.base.errors import ArgumentError, ShapeError, TraceError
from tengen.functional.arranged import axis_of, rows_of
from tengen.functional.composed import cdist
from tengen.ops.calls import all_with_line
from tengen.ops.define import REGISTRY
from tengen.ops.masks import is_concrete, true_positions
from tengen.ops.widths import rounded_once
from tengen.tensor import Tensor

op = REGISTRY
Reduce = Literal["sum", "prod", "mean", "amax", "amin"]


# ---- along an axis ----------------------------------------------------------------------------------------------------------


def _along(x: Tensor, axis: int) -> tuple[int, ...]:
    return tuple(-1 if i == axis else 1 for i in range(x.ndim))


def _places(x: Tensor, axis: int) -> Tensor:
    """The index along an axis of each element, (1, ..., N, ..., 1)."""
    return op["reshape"](op["arange"](0, x.shape[axis], 1, "int64"), _along(x, axis))


def _cumulative(name: str, scan: str, inp: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    axis = axis_of(name, inp, axis, max(inp.ndim, 1))
    if not inp.ndim:
        return op["copy"](inp), op["zeros"]((), "int64")
    best = op[scan](inp.detach(), axis)
    hit = op["equal"](inp, best)
    if inp.dtype.is_float:
        hit = op["logical_or"](hit, op["isnan"](inp))
    index = op["running_max"](op["where"](hit, _places(inp, axis), 0), axis)
    return op["gather"](inp, axis, index), index


def cummax(inp: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """The largest of the elements so far along an axis, and the index of its last occurrence among them; NaN is the largest.

    Errors: AxisError for an axis that is not there, DTypeError for bools and complex numbers
    Gradient: to the elements that were taken

    >>> from tengen import Tensor, functional as F
    >>> [x.tolist() for x in F.cummax(Tensor([1.0, 3.0, 2.0, 3.0]), 0)]
    [[1.0, 3.0, 3.0, 3.0], [0, 1, 1, 3]]
    """
    return _cumulative("cummax", "running_max", inp, axis)


def cummin(inp: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """The least of the elements so far along an axis, and the index of its last occurrence among them; NaN is the least. See `cummax`.

    Errors: AxisError for an axis that is not there, DTypeError for bools and complex numbers
    """
    return _cumulative("cummin", "running_min", inp, axis)


@rounded_once
def logcumsumexp(inp: Tensor, axis: int) -> Tensor:
    """log(exp(x[0]) + ... + exp(x[i])) along an axis, without overflow.

    Errors: AxisError for an axis that is not there
    Numerics: by log2(N) steps of `logaddexp`, so that small elements before large ones keep their digits

    >>> from tengen import Tensor, functional as F
    >>> [round(v, 4) for v in F.logcumsumexp(Tensor([0.0, 0.0]), 0).tolist()]
    [0.0, 0.6931]
    """
    axis = axis_of("logcumsumexp", inp, axis, max(inp.ndim, 1))
    if not inp.ndim:
        return op["copy"](inp)
    n, key, s = inp.shape[axis], (slice(None),) * axis, 1
    while s < n:
        joined = op["logaddexp"](inp[(*key, slice(s, None))], inp[(*key, slice(None, n - s))])
        inp, s = op["concat"]([inp[(*key, slice(None, s))], joined], axis), 2 * s
    return inp


def mode(inp: Tensor, axis: int = -1, keepdims: bool = False) -> tuple[Tensor, Tensor]:
    """The element that occurs most often along an axis, the least of several, and the index of its last occurrence.

    Errors: AxisError for an axis that is not there, ShapeError where there are no elements

    >>> from tengen import Tensor, functional as F
    >>> [x.item() for x in F.mode(Tensor([3, 1, 3, 1, 2]))]
    [1, 3]
    """
    axis = axis_of("mode", inp, axis)
    if not inp.shape[axis]:
        raise ShapeError(f"the mode of no elements is not defined: {inp.shape} along {axis}")
    values, places = op["sort"](inp, False, axis)
    key, at = (slice(None),) * axis, _places(inp, axis)
    changed = op["not_equal"](values[(*key, slice(1, None))], values[(*key, slice(None, -1))])
    head = values[(*key, slice(None, 1))]
    begins = op["concat"]([op["not_equal"](head, head), changed], axis)  # the first run begins at 0 in any case
    length = at - op["running_max"](op["where"](begins, at, 0), axis)
    best = op["argmax"](length, axis, True)
    found = op["gather"](values, axis, best), op["gather"](places, axis, best)
    return found if keepdims else (op["squeeze"](found[0], axis), op["squeeze"](found[1], axis))


@rounded_once
def cumulative_trapezoid(y: Tensor, x: Tensor | None = None, dx: float = 1.0, axis: int = -1) -> Tensor:
    """Running integrals along an axis by the trapezoidal rule, one fewer than there are elements. See `trapezoid`.

    Errors: AxisError for an axis that is not there

    >>> from tengen import Tensor, functional as F
    >>> F.cumulative_trapezoid(Tensor([1.0, 2.0, 3.0])).tolist()
    [1.5, 4.0]
    """
    axis = axis_of("cumulative_trapezoid", y, axis)
    key = (slice(None),) * axis
    pairs = y[(*key, slice(1, None))] + y[(*key, slice(None, -1))]
    steps: Any = 0.5 * dx
    if x is not None:
        steps = op["diff"](x, 1, 0 if x.ndim == 1 else axis) * 0.5
        steps = op["reshape"](steps, _along(y, axis)) if x.ndim == 1 else steps
    return op["cumsum"](pairs * steps, axis)


_PLACED = {"linear": None, "lower": "floor", "higher": "ceil", "nearest": "round", "midpoint": None}


def _nanquantiles(inp: Tensor, shares: Sequence[float], axis: int | None, keepdims: bool, interpolation: str) -> list[Tensor]:
    x = inp if inp.dtype.is_float else op["astype"](inp, "float32")
    x = op["reshape"](x, (-1,)) if axis is None else x
    a = 0 if axis is None else axis_of("nanquantile", x, axis)
    ordered = op["sort"](x, False, a)[0]
    last = op["sum"](op["logical_not"](op["isnan"](x)), a, True) - 1
    made = []
    for share in shares:
        at = op["astype"](last, "float64") * share
        at = at if _PLACED[interpolation] is None else op[_PLACED[interpolation]](at)
        low = op["floor"](at)
        at = (low + op["ceil"](at)) * 0.5 if interpolation == "midpoint" else at
        first, second = (
            op["gather"](ordered, a, op["clip"](op["astype"](i, "int64"), 0, x.shape[a] - 1)) for i in (low, op["ceil"](at))
        )
        y = first + (second - first) * op["astype"](at - low, x.dtype)
        made.append(y if keepdims and axis is not None else op["reshape"](y, (1,) * inp.ndim) if keepdims else op["squeeze"](y, a))
    return made


def nanquantile(
    inp: Tensor, q: float | Sequence[float], axis: int | None = None, keepdims: bool = False,
    interpolation: Literal["linear", "lower", "higher", "nearest", "midpoint"] = "linear",
) -> Tensor:  # fmt: skip
    """`quantile` of the elements that are no NaN, along an axis or of all; NaN where all are.

    Errors: ArgumentError for a share outside of 0 to 1 and for another interpolation, ShapeError where there are no elements

    >>> from tengen import Tensor, functional as F
    >>> F.nanquantile(Tensor([1.0, float("nan"), 2.0]), 0.5).item()
    1.5
    """
    shares = [float(q)] if isinstance(q, (int, float)) else [float(v) for v in q]
    if not all(0 <= s <= 1 for s in shares):
        raise ArgumentError(f"nanquantile: q={q!r} must be numbers from 0 to 1")
    if interpolation not in _PLACED:
        raise ArgumentError(f"nanquantile: interpolation={interpolation!r} must be one of {', '.join(_PLACED)}")
    if not inp.size:
        raise ShapeError(f"the quantile of no elements is not defined: {inp.shape} along {axis}")
    made = _nanquantiles(inp, shares, axis, keepdims, interpolation)
    return made[0] if isinstance(q, (int, float)) else op["stack"](made, 0)


def nanmedian(inp: Tensor, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """`median` of the elements that are no NaN; of an even number the mean of both in the middle, as in NumPy."""
    return nanquantile(inp, 0.5, axis, keepdims)


@rounded_once
def pdist(inp: Tensor, p: float = 2.0) -> Tensor:
    """The p-norms of the differences of all pairs of rows: (N, D) -> (N (N - 1) / 2,). Errors: ShapeError for what is no matrix.

    >>> from tengen import Tensor, functional as F
    >>> F.pdist(Tensor([[0.0, 0.0], [3.0, 4.0], [3.0, 0.0]])).tolist()
    [5.0, 3.0, 4.0]
    """
    if inp.ndim != 2:
        raise ShapeError(f"pdist of a tensor of shape {inp.shape}: it takes rows (N, D)")
    n = inp.shape[0]
    pairs = [i * n + j for i in range(n) for j in range(i + 1, n)]
    return op["take"](op["reshape"](cdist(inp, inp, p), (-1,)), Tensor(pairs, "int64")) if pairs else op["zeros"]((0,), inp.dtype)


# ---- runs of equal elements ---------------------------------------------------------------------------------------------------


def unique_consecutive(
    inp: Tensor, return_inverse: bool = False, return_counts: bool = False, axis: int | None = None
) -> Tensor | tuple[Tensor, ...]:
    """The elements, or with an axis the rows along it, without those that equal the one before. Not inside a trace.

    Args: return_inverse: also which of them each element is, in inp's shape (a vector with an axis); return_counts: also how long each
        run is. Both int64.
    Errors: AxisError for an axis that is not there, TraceError inside of a trace

    >>> from tengen import Tensor, functional as F
    >>> [x.tolist() for x in F.unique_consecutive(Tensor([1, 1, 2, 1]), return_counts=True)]
    [[1, 2, 1], [2, 1, 1]]
    """
    if not is_concrete(inp):
        raise TraceError("unique_consecutive inside a trace: how long its result is is known only when the program runs")
    x = op["reshape"](inp, (-1,)) if axis is None else inp
    a = 0 if axis is None else axis_of("unique_consecutive", inp, axis)
    n, key = x.shape[a], (slice(None),) * a
    others = tuple(i for i in range(x.ndim) if i != a)
    first = op["ones"]((min(n, 1),), "bool")
    if n > 1:
        differ = op["not_equal"](x[(*key, slice(1, None))], x[(*key, slice(None, -1))])
        first = op["concat"]([first, op["any"](differ, others) if others else differ], 0)
    at = true_positions(first)
    out = [op["take"](x, at, a)]
    if return_inverse:
        ranks = op["cumsum"](op["astype"](first, "int64"), 0) - 1
        out.append(op["reshape"](ranks, inp.shape) if axis is None else ranks)
    if return_counts:
        out.append(op["concat"]([at[1:], op["full"]((min(n, 1),), n, "int64")], 0) - at)
    return out[0] if len(out) == 1 else tuple(out)


# ---- reductions at indices ------------------------------------------------------------------------------------------------------

_MODES = {"sum": "add", "mean": "add", "prod": "mul", "amax": "max", "amin": "min"}


def _neutral(reduce: str, x: Tensor) -> float | int:
    """What changes no result of a reduction."""
    if reduce in ("sum", "mean", "prod"):
        return int(reduce == "prod")
    bounds = (-math.inf, math.inf) if x.dtype.is_float else (-(1 << 8 * x.dtype.size - 1), (1 << 8 * x.dtype.size - 1) - 1)
    if x.dtype.kind == "u":
        bounds = (0, (1 << 8 * x.dtype.size) - 1)
    return bounds[reduce == "amin"]


def scatter_reduce(inp: Tensor, axis: int, index: Tensor, src: Tensor, reduce: Reduce, include_self: bool = True) -> Tensor:
    """inp whose element [..., index[..., i, ...], ...] along an axis is reduced with src[..., i, ...]: as `scatter`, where several meet.

    Args: reduce: "sum", "prod", "mean", "amax" or "amin"; bools count as 0 and 1, and numbers other than 0 are true. include_self: whether
        the element of inp counts, too; one that no index names stays in any case.
    Errors: ArgumentError for another reduction; those of `scatter`; GradientError for a gradient of "prod"

    >>> from tengen import Tensor, functional as F
    >>> F.scatter_reduce(Tensor([1.0, 2.0]), 0, Tensor([0, 0]), Tensor([4.0, 7.0]), "mean").tolist()
    [4.0, 2.0]
    """
    if reduce not in _MODES:
        raise ArgumentError(f"scatter_reduce: reduce={reduce!r} must be {', '.join(map(repr, _MODES))}")
    src = src if index.shape == src.shape else src[tuple(slice(0, n) for n in index.shape)]
    if inp.dtype.kind == "b":
        inp, src = op["astype"](inp, "int32"), op["astype"](src, "int32")
        return op["not_equal"](scatter_reduce(inp, axis, index, src, reduce, include_self), 0)
    start = inp if include_self else op["scatter"](inp, axis, index, op["full_like"](src, _neutral(reduce, inp)))
    out = op["scatter"](start, axis, index, src, _MODES[reduce])
    if reduce != "mean":
        return out
    met = op["scatter"](op["zeros"](inp.shape, "int64"), axis, index, op["ones"](src.shape, "int64"), "add")
    count = met + 1 if include_self else op["maximum"](met, 1)
    return op["floor_div"](out, op["astype"](count, inp.dtype)) if inp.dtype.is_int else out / op["astype"](count, inp.dtype)


def index_reduce(inp: Tensor, axis: int, index: Tensor, source: Tensor, reduce: Reduce, include_self: bool = True) -> Tensor:
    """`scatter_reduce` of whole rows: those of source reduced with the rows of inp that index names along an axis. See `index_add`.

    Errors: ArgumentError for another reduction; AxisError, ShapeError for what does not fit

    >>> from tengen import Tensor, functional as F
    >>> F.index_reduce(Tensor([1.0, 2.0]), 0, Tensor([1, 1]), Tensor([3.0, 4.0]), "prod").tolist()
    [1.0, 24.0]
    """
    axis, index, rows = rows_of("index_reduce", inp, axis, index, source)
    return scatter_reduce(inp, axis, index, rows, reduce, include_self)


__all__ = [
    "cummax", "cummin", "cumulative_trapezoid", "index_reduce", "logcumsumexp", "mode", "nanmedian", "nanquantile", "pdist",
    "scatter_reduce", "unique_consecutive",
]  # fmt: skip
all_with_line(globals(), __all__)
