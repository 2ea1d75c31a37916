"""Functions of the array API namespace that look at many elements: sums, extrema, orders, searches, distinct values."""

from __future__ import annotations

from typing import Any, Literal

from tengen.arrays.rules import array, check_axes, common
from tengen.base.dtype import DType, int64
from tengen.base.errors import ArgumentError, ShapeError
from tengen.base.record import NamedTuple
from tengen.functional import unique
from tengen.ops.define import REGISTRY, dispatch
from tengen.ops.shape import normalize_axes, normalize_axis
from tengen.tensor import Tensor

Axis = int | tuple[int, ...] | None


def _along(name: str, x: Any, axis: Axis, category: str = "all") -> Tensor:
    """x, whose dtype is of a category, and which has the axes."""
    check_axes(name, array(name, x, category), axis)
    return x


def _as(x: Tensor, dtype: DType | None) -> Tensor:
    return x if dtype is None or x.dtype is dtype else REGISTRY["astype"](x, dtype)


def all(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Whether every element along axes is true (not zero)."""
    return REGISTRY["all"](_along("all", x, axis), axis, keepdims)


def any(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Whether an element along axes is true (not zero)."""
    return REGISTRY["any"](_along("any", x, axis), axis, keepdims)


def max(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The largest element; a NaN wins. Errors: ShapeError where there is none."""
    return REGISTRY["max"](_along("max", x, axis, "real numeric"), axis, keepdims)


def min(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The smallest element; a NaN wins. Errors: ShapeError where there is none."""
    return REGISTRY["min"](_along("min", x, axis, "real numeric"), axis, keepdims)


def mean(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The mean of floats; NaN where there are none."""
    return REGISTRY["mean"](_along("mean", x, axis, "floating-point"), axis, keepdims)


def prod(x: Tensor, /, *, axis: Axis = None, dtype: DType | None = None, keepdims: bool = False) -> Tensor:
    """The product: of integers as int64 or uint64, of floats in their dtype, or in `dtype`."""
    return _as(REGISTRY["prod"](_as(_along("prod", x, axis, "numeric"), dtype), axis, keepdims), dtype)


def sum(x: Tensor, /, *, axis: Axis = None, dtype: DType | None = None, keepdims: bool = False) -> Tensor:
    """The sum: of integers as int64 or uint64, of floats in their dtype, or in `dtype`."""
    return _as(REGISTRY["sum"](_as(_along("sum", x, axis, "numeric"), dtype), axis, keepdims), dtype)


def var(x: Tensor, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """The variance: the sum of squared distances from the mean, divided by n - correction (by 0 where that is negative)."""
    _along("var", x, axis, "real floating-point")
    n = 1
    for a in normalize_axes(axis, x.ndim):
        n *= x.shape[a]
    d = x - REGISTRY["mean"](x, axis, True)
    total = REGISTRY["sum"](d * d, axis, keepdims)
    return total / dispatch.scalar(float(n - correction if n > correction else 0), x.dtype)


def std(x: Tensor, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """The square root of `var`."""
    return REGISTRY["sqrt"](var(array("std", x, "real floating-point"), axis=axis, correction=correction, keepdims=keepdims))


def _running(name: str, x: Tensor, axis: int | None, dtype: DType | None, initial: bool, first: int) -> Tensor:
    if not array(name, x, "numeric").ndim or (axis is None and x.ndim != 1):
        raise ShapeError(f"{name}: an array of shape {x.shape} needs an axis; a 0-d one has none")
    a = normalize_axis(0 if axis is None else axis, x.ndim)
    made = _as(REGISTRY["cumsum" if first == 0 else "cumprod"](_as(x, dtype), a), dtype)
    if not initial:
        return made
    before = REGISTRY["full"]((*x.shape[:a], 1, *x.shape[a + 1 :]), first, made.dtype)
    return REGISTRY["concat"]([before, made], a)


def cumulative_sum(
    x: Tensor, /, *, axis: int | None = None, dtype: DType | None = None, include_initial: bool = False
) -> Tensor:
    """Running sums along an axis (which only a vector may leave out); with include_initial a 0 comes first.

    >>> import tengen.array_api as xp
    >>> xp.cumulative_sum(xp.asarray([1, 2, 3]), include_initial=True).tolist()
    [0, 1, 3, 6]
    """
    return _running("cumulative_sum", x, axis, dtype, include_initial, 0)


def cumulative_prod(
    x: Tensor, /, *, axis: int | None = None, dtype: DType | None = None, include_initial: bool = False
) -> Tensor:
    """Running products along an axis (which only a vector may leave out); with include_initial a 1 comes first."""
    return _running("cumulative_prod", x, axis, dtype, include_initial, 1)


def diff(x: Tensor, /, *, axis: int = -1, n: int = 1, prepend: Tensor | None = None, append: Tensor | None = None) -> Tensor:
    """Differences of neighbours along an axis, n times over, of x with other arrays before and behind it."""
    parts = [array("diff", p, "numeric") for p in (prepend, array("diff", x, "numeric"), append) if p is not None]
    common("diff", *(p.dtype for p in parts))
    if n < 0:
        raise ArgumentError(f"diff: n={n} must not be negative")
    a = normalize_axis(axis, x.ndim)
    whole = REGISTRY["concat"](parts, a) if len(parts) > 1 else x
    front = (slice(None),) * a
    for _ in range(n if n <= whole.shape[a] else whole.shape[a]):
        whole = whole[(*front, slice(1, None))] - whole[(*front, slice(None, -1))]
    return whole


def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The position of the first largest element along an axis, or in the flattened array."""
    return REGISTRY["argmax"](_along("argmax", x, axis, "real numeric"), axis, keepdims)


def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The position of the first smallest element along an axis, or in the flattened array."""
    return REGISTRY["argmin"](_along("argmin", x, axis, "real numeric"), axis, keepdims)


def count_nonzero(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """How many elements along axes are not zero, as int64."""
    _along("count_nonzero", x, axis)
    true = x if x.dtype.kind == "b" else REGISTRY["not_equal"](x, dispatch.scalar(0, x.dtype))
    return REGISTRY["sum"](true, axis, keepdims)


def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """The positions of elements that are not zero, a vector for each axis. Not inside a trace."""
    return REGISTRY["nonzero"](array("nonzero", x))


def searchsorted(x1: Tensor, x2: Tensor, /, *, side: Literal["left", "right"] = "left", sorter: Tensor | None = None) -> Tensor:
    """For each element of x2 where the ascending vector x1 takes it in: before equal elements ("left") or behind them.

    Args: sorter: positions that sort x1.

    >>> import tengen.array_api as xp
    >>> xp.searchsorted(xp.asarray([1, 3, 5]), xp.asarray([3, 4]), side="right").tolist()
    [2, 2]
    """
    d = common("searchsorted", array("searchsorted", x1, "real numeric").dtype, array("searchsorted", x2, "real numeric").dtype)
    if x1.ndim != 1:
        raise ShapeError(f"searchsorted: x1 is a vector, got shape {x1.shape}")
    if side not in ("left", "right"):
        raise ArgumentError(f"searchsorted: side={side!r} must be 'left' or 'right'")
    table = x1 if sorter is None else REGISTRY["take"](x1, array("searchsorted", sorter, "integer"), 0)
    if not x1.size:
        return REGISTRY["zeros"](x2.shape, int64)
    return REGISTRY["searchsorted"](_as(table, d), _as(x2, d), side == "right")


def argsort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The positions that sort along an axis; equal elements keep their order, with stable=False too. NaNs count as largest."""
    return REGISTRY["argsort"](_along("argsort", x, axis, "real numeric"), descending, axis)


def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The elements in order along an axis; equal elements keep their order, with stable=False too. NaNs count as largest."""
    return REGISTRY["sort"](_along("sort", x, axis, "real numeric"), descending, axis)[0]


class UniqueAll(NamedTuple):
    """What `unique_all` gives."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """What `unique_counts` gives."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """What `unique_inverse` gives."""

    values: Tensor
    inverse_indices: Tensor


def _unique(name: str, x: Any, *wanted: bool) -> Any:
    return unique(array(name, x), *wanted, equal_nan=False)


def unique_all(x: Tensor, /) -> UniqueAll:
    """The distinct elements in ascending order, where each first occurs in the flattened array, which of them each element is, and how
    often each occurs. No NaN equals another one. Not inside a trace.

    >>> import tengen.array_api as xp
    >>> xp.unique_all(xp.asarray([3, 1, 3])).counts.tolist()
    [1, 2]
    """
    return UniqueAll(*_unique("unique_all", x, True, True, True))


def unique_counts(x: Tensor, /) -> UniqueCounts:
    """The distinct elements in ascending order, and how often each occurs. No NaN equals another one."""
    return UniqueCounts(*_unique("unique_counts", x, False, False, True))


def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """The distinct elements in ascending order, and which of them each element is. No NaN equals another one."""
    return UniqueInverse(*_unique("unique_inverse", x, False, True, False))


def unique_values(x: Tensor, /) -> Tensor:
    """The distinct elements in ascending order. No NaN equals another one."""
    return _unique("unique_values", x, False, False, False)


__all__ = [
    "all", "any", "argmax", "argmin", "argsort", "count_nonzero", "cumulative_prod", "cumulative_sum", "diff", "max", "mean", "min",
    "nonzero", "prod", "searchsorted", "sort", "std", "sum", "unique_all", "unique_counts", "unique_inverse", "unique_values", "var",
]  # fmt: skip
