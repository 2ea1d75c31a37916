"""Order: sorting, the largest, places in sorted tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import tengen.functional as F
from tengen.base.dtype import bool_, int32, uint8
from tengen.interop.torch.dtypes import alike, of, tensor
from tengen.interop.torch.ops.indexing import index_add
from tengen.interop.torch.registry import op
from tengen.tensor import Tensor


@op("sort", "sort.stable")
def sort(x: Tensor, *args: Any, stable: Any = None, dim: int = -1, descending: bool = False) -> tuple[Tensor, Tensor]:
    """(Elements in order, their positions); equal ones stay in order."""
    args = args[1:] if args and (args[0] is None or isinstance(args[0], bool)) and len(args) == 3 else args
    dim, descending = (args[0] if args else dim), (args[1] if len(args) > 1 else descending)
    if not x.ndim:
        return x, F.zeros((), "int64")
    if x.dtype is bool_:
        values, places = F.sort(x.astype(uint8), bool(descending), dim)
        return values.astype(bool_), places
    return F.sort(x, bool(descending), dim)


@op("argsort", "argsort.stable")
def argsort(x: Tensor, dim: int = -1, descending: bool = False, stable: Any = None) -> Tensor:
    """Positions in order."""
    return sort(x, dim, descending)[1]


@op("topk")
def topk(x: Tensor, k: Any, dim: int = -1, largest: bool = True, in_order: bool = True) -> tuple[Tensor, Tensor]:
    """(The k largest or smallest in order, their positions)."""
    if not x.ndim:
        return x, F.zeros((), "int64")
    return F.topk(x, k, bool(largest), axis=dim)


@op("kthvalue")
def kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """(The k-th smallest along an axis, its position)."""
    return F.kthvalue(x, k, dim, bool(keepdim)) if x.ndim else (x, F.zeros((), "int64"))


@op("median.dim")
def median_along(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """(The lower one of both elements in the middle, its position); a NaN, the first one, where there is one."""
    if not x.ndim:
        return x, F.zeros((), "int64")
    places = kthvalue(x.detach(), (x.shape[dim] + 1) // 2, dim, True)[1]
    if x.dtype.is_float:
        missing = F.isnan(x)
        first = F.argmax(missing.astype(uint8), dim, keepdims=True).astype("int64")
        places = F.where(F.any(missing, dim, True), first, places)
    values = F.gather(x, dim % x.ndim, places)
    return (values, places) if keepdim else (F.squeeze(values, dim), F.squeeze(places, dim))


@op("median")
def median(x: Tensor) -> Tensor:
    """Of all elements; its gradient is shared out among those that are equal to it."""
    value = median_along(x.detach().reshape(-1), 0)[0]
    if not x.dtype.is_float:
        return value
    equal = F.where(F.isnan(value), F.isnan(x), x == value).astype(x.dtype)
    return F.straight_through(value, F.sum(F.where(equal > 0, x, 0.0)) / F.sum(equal))


@op("searchsorted.Tensor", "searchsorted.Scalar")
def searchsorted(
    table: Tensor, x: Any, *, out_int32: bool = False, right: bool = False, side: str | None = None, sorter: Any = None
) -> Tensor:
    """The first place that keeps the table sorted."""
    table, x = alike(table, x)
    found = F.searchsorted(table, x, right or side == "right")
    return of(found, int32) if out_int32 else found


@op("bucketize.Tensor", "bucketize.Scalar")
def bucketize(x: Any, table: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    """The number of the part of a table that each element lies in."""
    return searchsorted(table, x, out_int32=out_int32, right=right)


@op("mode")
def mode(x: Tensor, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """(The element that is there most often along an axis, a place of it)."""
    return F.mode(x, dim, bool(keepdim)) if x.ndim else (x, F.zeros((), "int64"))


@op("nanmedian.dim")
def nanmedian_along(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """(The lower middle element of what is no NaN, its position); a NaN where there is nothing else."""
    if not x.dtype.is_float:
        return median_along(x, dim, keepdim)
    if not x.ndim:
        return x, F.zeros((), "int64")
    order = F.argsort(x.detach(), axis=dim)  # NaNs are the last
    count = F.sum(F.logical_not(F.isnan(x)).astype("int64"), dim, True)
    places = F.gather(order, dim % x.ndim, F.maximum(count - 1, 0) // 2)
    values = F.gather(x, dim % x.ndim, places)
    return (values, places) if keepdim else (F.squeeze(values, dim), F.squeeze(places, dim))


@op("nanmedian")
def nanmedian(x: Tensor) -> Tensor:
    """Of all elements that are no NaN."""
    return nanmedian_along(x.reshape(-1), 0)[0]


def _distinct(x: Tensor, groups: np.ndarray, first: np.ndarray, dim: int | None) -> tuple[Tensor, Tensor, Tensor]:
    """(Elements or slices, which of them each is, how often each occurs): groups: the number of each; first: a place of each."""
    flat = F.moveaxis(x, dim, 0) if dim is not None else x.reshape(-1)
    found = flat[Tensor(first.astype(np.int64))]
    counts = np.bincount(groups, minlength=len(first)).astype(np.int64)
    at = Tensor(groups.astype(np.int64))
    return (found, at.reshape(x.shape), Tensor(counts)) if dim is None else (F.moveaxis(found, 0, dim), at, Tensor(counts))


@op("_unique2")
def unique(x: Tensor, in_order: bool = True, inverse: bool = False, counts: bool = False) -> tuple[Tensor, ...]:
    """(The distinct elements in order, which of them each element is, how often each occurs): how many there are is asked for. Each NaN is
    an element of its own."""
    _, first, groups = np.unique(x.numpy().reshape(-1), return_index=True, return_inverse=True, equal_nan=False)
    return _distinct(x, groups.reshape(-1), first, None)


@op("_unique")
def unique_without_counts(x: Tensor, in_order: bool = True, inverse: bool = False) -> tuple[Tensor, Tensor]:
    """As `unique`, without how often."""
    return unique(x)[:2]


@op("unique_dim")
def unique_along(x: Tensor, dim: int, in_order: bool = True, inverse: bool = False, counts: bool = False) -> tuple[Tensor, ...]:
    """As `unique`, of slices along an axis, in the order of their first differing elements."""
    dim %= x.ndim
    rows = np.moveaxis(x.numpy(), dim, 0).reshape(x.shape[dim], -1)
    _, first, groups = np.unique(rows, return_index=True, return_inverse=True, axis=0, equal_nan=False)
    return _distinct(x, groups.reshape(-1), first, dim)


@op("unique_consecutive")
def unique_consecutive(x: Tensor, inverse: bool = False, counts: bool = False, dim: int | None = None) -> tuple[Tensor, ...]:
    """(Elements, or slices along an axis, that differ from the one before, which of them each is, how many equal ones follow each)."""
    dim = dim if dim is None else dim % x.ndim
    rows = x.numpy().reshape(-1, 1) if dim is None else np.moveaxis(x.numpy(), dim, 0).reshape(x.shape[dim], -1)
    new = np.concatenate([np.ones(min(len(rows), 1), bool), (rows[1:] != rows[:-1]).any(1)])
    return _distinct(x, np.cumsum(new) - 1, np.flatnonzero(new), dim)


@op("unique_dim_consecutive")
def unique_along_consecutive(x: Tensor, dim: int, inverse: bool = False, counts: bool = False) -> tuple[Tensor, ...]:
    """`unique_consecutive` of slices along an axis."""
    return unique_consecutive(x, inverse, counts, dim)


def _counted(columns: Sequence[Tensor], edges: Sequence[Tensor], weight: Tensor | None, density: bool) -> Tensor:
    """How many points lie in each box of a grid, or the sum of their weights. columns: the points' coordinates, (N,) each. The last part
    of an axis has both of its ends."""
    count, size = columns[0].shape[0], tuple(e.shape[0] - 1 for e in edges)
    at, inside = F.zeros((count,), "int64"), F.ones((count,), "bool")
    for x, e, parts in zip(columns, edges, size):
        at = at * parts + F.minimum(F.searchsorted(e, x, True) - 1, parts - 1)
        inside = F.logical_and(inside, F.logical_and(F.greater_equal(x, e[0]), F.less_equal(x, e[-1])))
    one = F.ones_like(columns[0]) if weight is None else weight.reshape(-1)
    none = F.zeros((math.prod(size),), columns[0].dtype)
    found = index_add(none, 0, F.where(inside, at, 0), F.where(inside, one, 0)).reshape(size)
    if density:
        found = found / F.sum(found)
        for axis, e in enumerate(edges):
            found = found / (e[1:] - e[:-1]).reshape(-1, *[1] * (len(size) - 1 - axis))
    return found


def _edges(x: Tensor, bins: int, limits: Sequence[float] | None) -> Tensor:
    """The ends of parts of equal width, of the limits or from the least element to the largest."""
    limits = (0.0, 1.0) if limits is None and not x.shape[0] else limits
    ends = [F.min(x), F.max(x)] if limits is None else [tensor(e, x.dtype) for e in limits]
    flat = F.equal(ends[0], ends[1])
    low, high = F.where(flat, ends[0] - 0.5, ends[0]), F.where(flat, ends[1] + 0.5, ends[1])
    step = (high - low) / bins
    at = F.arange(bins + 1, dtype="int64").astype(x.dtype)
    return F.where(F.less(at, (bins + 1) // 2), low + step * at, high - step * (bins - at))  # from both ends, as torch.linspace


@op("histogram.bins_tensor")
def histogram(x: Tensor, edges: Tensor, *, weight: Tensor | None = None, density: bool = False) -> tuple[Tensor, Tensor]:
    """(How many elements, or the sum of the weights of those, that lie from one edge to the next, the edges)."""
    return _counted([x.reshape(-1)], [edges], weight, density), edges


@op("histogram.bin_ct")
def histogram_of_range(
    x: Tensor, bins: int = 100, *, range: Sequence[float] | None = None, weight: Tensor | None = None, density: bool = False
) -> tuple[Tensor, Tensor]:
    """The same for parts of equal width."""
    return histogram(x, _edges(x.reshape(-1), bins, range), weight=weight, density=density)


def _columns(x: Tensor) -> list[Tensor]:
    """The coordinates of points, (..., D)."""
    x = x.reshape(-1, x.shape[-1])
    return [x[:, i] for i in range(x.shape[1])]


@op("_histogramdd_bin_edges")
def histogramdd_edges(
    x: Tensor, bins: Sequence[int], *, range: Sequence[float] | None = None, weight: Tensor | None = None, density: bool = False
) -> tuple[Tensor, ...]:
    """The ends of the parts of each axis, of equal width."""
    limits = [None] * len(bins) if range is None else list(zip(range[::2], range[1::2]))
    return tuple(map(_edges, _columns(x), bins, limits))


@op("_histogramdd_from_bin_cts")
def histogramdd_of_range(x: Tensor, bins: Sequence[int], *, weight: Tensor | None = None, density: bool = False, **more: Any) -> Tensor:
    """How many points, or the sum of their weights, in each box of that grid."""
    return _counted(_columns(x), histogramdd_edges(x, bins, **more), weight, density)


@op("_histogramdd_from_bin_tensors")
def histogramdd(x: Tensor, edges: Sequence[Tensor], *, weight: Tensor | None = None, density: bool = False) -> Tensor:
    """The same for the edges of each axis."""
    return _counted(_columns(x), edges, weight, density)
