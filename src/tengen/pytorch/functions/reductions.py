"""Sums, extremes, orders and searches along axes, with PyTorch's arguments, defaults and named results."""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from typing import Any

from tengen import functional as F
from tengen import linalg as _linalg
from tengen.base.errors import ArgumentError, AxisError, DTypeError, GradientError, ShapeError
from tengen.base.record import NamedTuple
from tengen.functional import combinations, trapezoid
from tengen.ops.shape import normalize_axes
from tengen.ops.widths import narrowed, rounded_once, widened
from tengen.pytorch.functions import in_words
from tengen.tensor import Tensor

Dims = int | Sequence[int] | None


class ValuesAndIndices(NamedTuple):
    """What `max`, `min`, `median`, `mode`, `sort`, `topk`, `kthvalue`, `cummax` and `cummin` along an axis give."""

    values: Tensor
    indices: Tensor


def _in(input: Tensor, dtype: Any) -> Tensor:
    return input if dtype is None else input.astype(dtype)


def _axes(dim: Dims) -> Dims:
    return None if dim is not None and not isinstance(dim, int) and not len(dim) else dim


def sum(input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The sum along axes, or of all elements; of integers and bools int64."""
    return _summed(F.sum(_in(input, dtype), _axes(dim), keepdim), dtype)


def _summed(made: Tensor, dtype: Any) -> Tensor:
    """A sum in the dtype that is asked for; of integers, also of unsigned ones, in int64."""
    return _in(made, "int64" if dtype is None and made.dtype == "uint64" else dtype)


def prod(input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The product along an axis, or of all elements."""
    return _summed(F.prod(_in(input, dtype), dim, keepdim), dtype)


def mean(input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The mean along axes, or of all elements. Errors: DTypeError for integers, as in PyTorch."""
    x = _in(input, dtype)
    if not x.dtype.is_inexact:
        raise DTypeError(f"mean of {x.dtype}: it takes floats or complex numbers; help: torch.mean(x, dtype=torch.float32), or x.float()")
    return F.mean(x, _axes(dim), keepdim)


def nansum(input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """`sum` of what is no NaN."""
    return _summed(F.nansum(_in(input, dtype), _axes(dim), keepdim), dtype)


def nanmean(input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """`mean` of what is no NaN."""
    return F.nanmean(_in(input, dtype), _axes(dim), keepdim)


def _spread(input: Tensor, dim: Any, unbiased: Any, correction: Any, keepdim: bool) -> tuple[Tensor, Any]:
    """(The variance, its axes). PyTorch's older form has `unbiased` in the place of the axes."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    axes, less = _axes(dim), (1 if correction is None else correction) if unbiased is None else int(unbiased)
    if less == int(less) >= 0:
        return F.var(input, axes, keepdim, int(less)), axes
    plain = F.var(input, axes, keepdim, 0)
    n = input.size / builtins.max(plain.size, 1)
    return plain * (n / (n - less) if n > less else math.inf), axes


def var(input: Tensor, dim: Any = None, unbiased: bool | None = None, keepdim: bool = False, *, correction: float | None = None) -> Tensor:
    """The variance along axes, or of all elements, divided by n - correction; by n - 1 unless something else is said.

    >>> var(Tensor([1.0, 2.0, 3.0])).item()
    1.0
    """
    return _spread(input, dim, unbiased, correction, keepdim)[0]


def std(input: Tensor, dim: Any = None, unbiased: bool | None = None, keepdim: bool = False, *, correction: float | None = None) -> Tensor:
    """The root of `var`."""
    return narrowed(F.sqrt(_spread(widened(input), dim, unbiased, correction, keepdim)[0]), input)


def var_mean(
    input: Tensor, dim: Any = None, unbiased: bool | None = None, keepdim: bool = False, *, correction: float | None = None
) -> tuple[Tensor, Tensor]:
    """(`var`, `mean`)."""
    found, axes = _spread(input, dim, unbiased, correction, keepdim)
    return found, F.mean(input, axes, keepdim)


def std_mean(
    input: Tensor, dim: Any = None, unbiased: bool | None = None, keepdim: bool = False, *, correction: float | None = None
) -> tuple[Tensor, Tensor]:
    """(`std`, `mean`)."""
    found, axes = _spread(widened(input), dim, unbiased, correction, keepdim)
    return narrowed(F.sqrt(found), input), F.mean(input, axes, keepdim)


def _extreme(pick: Any, best: Any, input: Tensor, dim: int, keepdim: bool) -> ValuesAndIndices:
    at = pick(input, dim, True) if input.ndim else F.zeros((), "int64")
    values = F.take_along_axis(input, at, dim) if input.ndim else input
    if not keepdim and input.ndim:
        values, at = F.squeeze(values, dim), F.squeeze(at, dim)
    return ValuesAndIndices(values, at)


def max(input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Any = None) -> Any:
    """Of all elements the largest; along an axis (values, indices); of two tensors the larger elements.

    >>> max(Tensor([[1.0, 3.0], [5.0, 2.0]]), 1).indices.tolist()
    [1, 0]
    """
    other = dim if isinstance(dim, Tensor) else other
    if other is not None:
        return F.maximum(input, other)
    return F.max(input) if dim is None else _extreme(F.argmax, F.max, input, dim, keepdim)


def min(input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Any = None) -> Any:
    """Of all elements the smallest; along an axis (values, indices); of two tensors the smaller elements."""
    other = dim if isinstance(dim, Tensor) else other
    if other is not None:
        return F.minimum(input, other)
    return F.min(input) if dim is None else _extreme(F.argmin, F.min, input, dim, keepdim)


def _not_empty(name: str, input: Tensor, dim: Dims) -> None:
    for d in () if dim is None else (dim,) if isinstance(dim, int) else dim:
        if -input.ndim <= d < input.ndim and isinstance(n := input.shape[d], int) and not n:
            raise AxisError(f"{name}(dim={dim}) of a tensor of shape {input.shape}: axis {d} has no elements")


def amax(input: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """The largest elements along axes, without their indices. Errors: AxisError for an axis without elements"""
    _not_empty("amax", input, dim)
    return F.amax(input, _axes(dim), keepdim)


def amin(input: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """The smallest elements along axes, without their indices. Errors: AxisError for an axis without elements"""
    _not_empty("amin", input, dim)
    return F.amin(input, _axes(dim), keepdim)


class MinAndMax(NamedTuple):
    """What `aminmax` gives."""

    min: Tensor
    max: Tensor


def aminmax(input: Tensor, *, dim: int | None = None, keepdim: bool = False) -> MinAndMax:
    """(`amin`, `amax`). Errors: AxisError for an axis without elements"""
    _not_empty("aminmax", input, dim)
    return MinAndMax(*F.aminmax(input, dim, keepdim))


def argmax(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The place of the largest element along an axis, or of all."""
    return F.argmax(input, dim, keepdim)


def argmin(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The place of the smallest element along an axis, or of all."""
    return F.argmin(input, dim, keepdim)


def all(input: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Whether all elements along axes are true; of uint8 a uint8, as in PyTorch."""
    return _flags(F.all(_bools(input), dim, keepdim), input)


def any(input: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Whether some element along axes is true; of uint8 a uint8, as in PyTorch."""
    return _flags(F.any(_bools(input), dim, keepdim), input)


def _flags(made: Tensor, input: Tensor) -> Tensor:
    return made.astype("uint8") if input.dtype == "uint8" else made


def _bools(x: Tensor) -> Tensor:
    return x if x.dtype.kind == "b" else F.not_equal(x, 0)


def count_nonzero(input: Tensor, dim: Dims = None) -> Tensor:
    """How many elements are not 0."""
    return F.count_nonzero(input, dim)


def median(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower middle element; along an axis (values, indices)."""
    if dim is None:
        return F.kthvalue(input.reshape(-1), (input.size + 1) // 2)[0]
    return kthvalue(input, ((input.shape[dim] if input.ndim else 1) + 1) // 2, dim, keepdim)


def mode(input: Tensor, dim: int = -1, keepdim: bool = False) -> ValuesAndIndices:
    """The element that is there most often along an axis, and a place of it."""
    return ValuesAndIndices(*F.mode(input, dim, keepdim)) if input.ndim else _of_one(F.mode, input, dim)


def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> ValuesAndIndices:
    """The k-th smallest element along an axis, k from 1 on, and its place."""
    return ValuesAndIndices(*F.kthvalue(input, k, dim, keepdim)) if input.ndim else _of_one(F.kthvalue, input, k, dim)


def _of_one(f: Any, input: Tensor, *args: Any) -> ValuesAndIndices:
    """The function of a tensor without axes, as PyTorch takes it: of its one element along an axis, which is gone then."""
    return ValuesAndIndices(*(found.reshape(()) for found in f(input.reshape(1), *args)))


def sort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> ValuesAndIndices:
    """The elements along an axis in order, and where they were. Equal ones keep their order, also without `stable`."""
    return ValuesAndIndices(*F.sort(input, descending, dim))


def argsort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
    """The indices of `sort`."""
    return F.argsort(input, descending, dim)


def msort(input: Tensor) -> Tensor:
    """The elements in order along the first axis."""
    return F.msort(input)


def topk(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> ValuesAndIndices:
    """The k largest (or smallest) elements along an axis and their places, the best first."""
    return ValuesAndIndices(*F.topk(input, k, descending=largest, axis=dim))


def quantile(input: Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: Any = "linear") -> Tensor:
    """Quantiles along an axis, or of all elements."""
    return F.quantile(input, _shares(q), dim if input.ndim else None, keepdim, interpolation)


def _shares(q: Any) -> Any:
    """The shares as numbers. Errors: GradientError where a gradient would have to flow to them"""
    if not isinstance(q, Tensor):
        return q
    if q.requires_grad:
        raise GradientError("quantile: no gradient flows to q; help: q.detach()")
    return q.tolist()


def nanquantile(input: Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: Any = "linear") -> Tensor:
    """`quantile` of what is no NaN."""
    return F.nanquantile(input, _shares(q), dim if input.ndim else None, keepdim, interpolation)


def nanmedian(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower middle element of what is no NaN; along an axis (values, indices). A NaN where there is nothing else.

    >>> nanmedian(Tensor([[1.0, float("nan"), 3.0], [4.0, 5.0, 6.0]]), 1).values.tolist()
    [1.0, 5.0]
    """
    if dim is None:
        return _middle(input.reshape(-1), 0, False).values
    return _middle(input, dim, keepdim) if input.ndim else _of_one(_middle, input, dim, False)


def _middle(input: Tensor, dim: int, keepdim: bool) -> ValuesAndIndices:
    """The lower middle elements of what is no NaN along an axis: sorted, NaNs are the last."""
    values, places = F.sort(input, False, dim)
    count = F.sum(F.logical_not(F.isnan(input)).astype("int64"), dim, True) if input.dtype.is_float else input.shape[dim]
    at = F.maximum((count - 1) // 2, 0) if isinstance(count, Tensor) else F.full(values.narrow(dim, 0, 1).shape, (count - 1) // 2, "int64")
    value, place = F.gather(values, dim, at), F.gather(places, dim, at).astype("int64")
    return ValuesAndIndices(*((value, place) if keepdim else (F.squeeze(value, dim), F.squeeze(place, dim))))


def logsumexp(input: Tensor, dim: Dims, keepdim: bool = False) -> Tensor:
    """log(sum(exp(x))) along axes, without overflow."""
    return F.logsumexp(input, dim, keepdim)


def cumsum(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """Running sums along an axis; of integers and bools int64."""
    x = _in(input, dtype)
    return _summed(F.cumsum(x.astype("int64") if dtype is None and x.dtype.kind in "biu" else x, dim), dtype)


def cumprod(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """Running products along an axis; of integers and bools int64."""
    x = _in(input, dtype)
    if not x.ndim:  # one element along an axis
        return cumprod(x.reshape(1), dim).reshape(())
    return _summed(F.cumprod(x.astype("int64") if dtype is None and x.dtype.kind in "biu" else x, dim), dtype)


def cummax(input: Tensor, dim: int) -> ValuesAndIndices:
    """Running maxima and their places."""
    return _running(F.cummax, input, dim)


def _running(f: Any, input: Tensor, dim: int) -> ValuesAndIndices:
    if input.dtype.kind != "b":
        return ValuesAndIndices(*f(input, dim))
    values, places = f(input.astype("uint8"), dim)
    return ValuesAndIndices(values.astype("bool"), places)


def cummin(input: Tensor, dim: int) -> ValuesAndIndices:
    """Running minima and their places."""
    return _running(F.cummin, input, dim)


def logcumsumexp(input: Tensor, dim: int) -> Tensor:
    """Running `logsumexp`."""
    return F.logcumsumexp(input, dim)


def norm(input: Tensor, p: Any = "fro", dim: Dims = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    """The p-norm of vectors along axes, or of all elements ("fro" is 2); "nuc" of matrices."""
    x = _in(input, dtype)
    if p == "nuc":
        if dim is None:
            return _linalg.matrix_norm(x, ord="nuc", keepdims=keepdim)
        found = _linalg.matrix_norm(F.moveaxis(x, tuple(dim), (-2, -1)), ord="nuc")
        return F.expand_dims(found, normalize_axes(dim, x.ndim)) if keepdim else found
    return _linalg.vector_norm(x, axis=_axes(dim), keepdims=keepdim, ord=2 if p in ("fro", None) else p)


def dist(input: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """The p-norm of the difference."""
    return norm(input - other, p)


def renorm(input: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """Slices along an axis, made shorter where their p-norm is greater than `maxnorm`."""
    if input.ndim < 2:
        raise ShapeError(f"renorm of a tensor of shape {input.shape}; help: at least two axes")
    others = tuple(i for i in builtins.range(input.ndim) if i != dim % input.ndim)
    n = _linalg.vector_norm(input, axis=others, keepdims=True, ord=p)
    return input * F.where(F.greater(n, maxnorm), maxnorm / (n + 1e-7), 1.0)


def unique(input: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None) -> Any:
    """The different elements in order, or with `dim` the different slices along it, in the order of their first differing elements.

    With `return_inverse` also where each element or slice is, with `return_counts` how often.

    >>> unique(Tensor([[2, 1], [0, 5], [2, 1]]), dim=0).tolist()
    [[0, 5], [2, 1]]
    """
    if dim is not None:
        return _different_slices(input, dim, _in_order(input, dim), return_inverse, return_counts)
    found = F.unique(input, return_inverse=return_inverse, return_counts=return_counts)
    if return_inverse:
        return (found[0], found[1].reshape(input.shape), *found[2:])
    return found


def unique_consecutive(input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None) -> Any:
    """The elements without those that equal the one before; with `dim` so of slices along it."""
    if dim is not None:
        return _different_slices(input, dim, F.arange(input.shape[dim], dtype="int64"), return_inverse, return_counts)
    return F.unique_consecutive(input, return_inverse, return_counts)


def _in_order(input: Tensor, dim: int) -> Tensor:
    """The indices that bring the slices along an axis into order: sorted by the last element first, as sorting keeps the order of equals."""
    rows = _flat_slices(F.moveaxis(input.detach(), dim, 0))
    order = F.arange(rows.shape[0], dtype="int64")
    for column in builtins.range(rows.shape[1] - 1, -1, -1):
        order = order[F.argsort(rows[:, column][order])]
    return order


def _flat_slices(rows: Tensor) -> Tensor:
    """A row for each element of the first axis."""
    return rows.reshape((rows.shape[0], math.prod(rows.shape[1:])))


def _different_slices(input: Tensor, dim: int, order: Tensor, return_inverse: bool, return_counts: bool) -> Any:
    """The slices in an order, without those that equal the one before."""
    n = input.shape[dim]
    rows = F.moveaxis(input, dim, 0)[order]
    flat = _flat_slices(rows)
    new = F.any(F.not_equal(flat[1:], flat[:-1]), 1)
    first = F.concat([F.ones((builtins.min(n, 1),), "bool"), new])
    which = F.cumsum(first.astype("int64"), 0) - 1  # the place of each slice's value among the different ones
    found: list[Tensor] = [F.moveaxis(rows[first], 0, dim)]
    if return_inverse:
        found.append(F.scatter(F.zeros((n,), "int64"), 0, order, which))
    if return_counts:
        found.append(F.bincount(which, minlength=found[0].shape[dim]))
    return found[0] if len(found) == 1 else tuple(found)


def searchsorted(sorted_sequence: Tensor, input: Any, *, right: bool = False, side: str | None = None, out_int32: bool = False) -> Tensor:
    """Where values would stand in sorted ones."""
    given = input if isinstance(input, Tensor) else Tensor(input).astype(sorted_sequence.dtype)
    found = F.searchsorted(sorted_sequence, given, right or side == "right")
    return found.astype("int32" if out_int32 else "int64")


def bucketize(input: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    """The places of values among rising boundaries: of the first that is not below, or with `right` of the first above."""
    return searchsorted(boundaries, input, right=right, out_int32=out_int32)


def histc(input: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """How many elements lie in each of equal parts of [min, max]."""
    return F.histc(input, bins, min, max)


def cumulative_trapezoid(y: Tensor, x: Tensor | None = None, *, dx: float = 1.0, dim: int = -1) -> Tensor:
    """Running integrals by the trapezoidal rule."""
    return F.cumulative_trapezoid(y, x, dx, dim)


trapz = trapezoid


def diff(input: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None) -> Tensor:
    """Differences of neighbours along an axis, n times over. prepend, append: what stands before and behind the elements at first.

    Errors: ArgumentError for a negative n

    >>> diff(Tensor([1, 4, 9]), prepend=Tensor([0])).tolist()
    [1, 3, 5]
    """
    parts = [p for p in (prepend, input, append) if p is not None]
    if n < 0:
        raise ArgumentError(f"diff: n={n} must not be negative")
    if not n:
        return input
    x = F.concat(parts, dim) if len(parts) > 1 else input
    if x.dtype.kind != "b":
        return F.diff(x, n, dim)
    for _ in builtins.range(n):
        x = F.not_equal(x.narrow(dim, 1, x.shape[dim] - 1), x.narrow(dim, 0, x.shape[dim] - 1)) if x.shape[dim] else x
    return x


def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str | None = None) -> Tensor:
    """The p-norms of the differences of all pairs of rows: (..., N, D), (..., M, D) -> (..., N, M). compute_mode: changes nothing here."""
    return F.cdist(x1, x2, p)


@rounded_once
def cov(input: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None) -> Tensor:
    """The covariances of variables, a row each: (M, N) -> (M, M); (N,), or one row, gives a number. Args: fweights: how often each observation
    counts, integers. aweights: how much it weighs.

    Errors: ShapeError for more than two axes and weights that are not (N,); DTypeError for fweights that are not integers

    >>> cov(Tensor([[1.0, 3.0], [3.0, 1.0]])).tolist()
    [[2.0, -2.0], [-2.0, 2.0]]
    """
    if fweights is None and aweights is None:
        made = F.cov(input, correction)
    else:
        made = _weighted_cov(input, correction, fweights, aweights)
    return made.reshape(()) if made.shape == (1, 1) else made


def _weighted_cov(input: Tensor, correction: int, fweights: Tensor | None, aweights: Tensor | None) -> Tensor:
    x = F.atleast_2d(input)
    if input.ndim > 2 or builtins.any(w is not None and w.shape != x.shape[1:] for w in (fweights, aweights)):
        raise ShapeError(f"cov of a tensor of shape {input.shape}: it takes (variables, observations) and a weight for each observation")
    if fweights is not None and not fweights.dtype.is_int:
        raise DTypeError(f"cov: fweights must be integers, not {fweights.dtype}")
    if builtins.any(w is not None and bool(F.any(w < 0).item()) for w in (fweights, aweights)):
        raise ArgumentError("cov: weights must not be negative")
    x = x if x.dtype.is_inexact else x.astype("float32")
    weights: Any = F.ones(x.shape[1:], x.dtype.part if x.dtype.is_complex else x.dtype)
    for w in (fweights, aweights):
        weights = weights if w is None else weights * w.astype(weights.dtype)
    total = F.sum(weights)
    away = x - F.expand_dims(F.sum(x * weights, 1) / total, 1)
    lost = total if aweights is None else F.sum(weights * aweights.astype(weights.dtype))
    over = F.maximum(total - correction * lost / total, 0.0)
    return F.matmul(away * weights, F.conj(away).T) / over


def corrcoef(input: Tensor) -> Tensor:
    """Pearson's correlations of variables, a row each: (M, N) -> (M, M); (N,), or one row, gives a number."""
    made = F.corrcoef(input)
    return made.reshape(()) if made.shape == (1, 1) else made


def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """How often each number from 0 is among integers, or the sum of their weights, float64 unless those are float32."""
    if weights is not None and weights.dtype != "float32":
        weights = weights.astype("float64")
    return F.bincount(input, weights, minlength)


def nonzero(input: Tensor, *, as_tuple: bool = False) -> Any:
    """The indices of what is not 0: (n, ndim), or one tensor for each axis; of a tensor without axes (1, 0) or (0, 0)."""
    if not input.ndim:
        return (nonzero(input.reshape(1))[:, 0],) if as_tuple else F.zeros((int(bool(input.item())), 0), "int64")
    return F.non_zero(input, as_tuple=as_tuple)


def argwhere(input: Tensor) -> Tensor:
    """The indices of what is not 0, (n, ndim)."""
    return nonzero(input)


def trace(input: Tensor) -> Tensor:
    """The sum of a matrix's diagonal. Errors: ShapeError for what is no matrix"""
    if input.ndim != 2:
        raise ShapeError(f"trace takes a matrix, got shape {input.shape}; help: torch.diagonal(x, dim1=-2, dim2=-1).sum(-1)")
    return _summed(_linalg.trace(input), None)


__all__ = [
    "all", "amax", "amin", "aminmax", "any", "argmax", "argmin", "argsort", "argwhere", "bincount", "bucketize", "cdist", "combinations",
    "corrcoef", "count_nonzero", "cov", "cummax", "cummin", "cumprod", "cumsum", "cumulative_trapezoid", "diff", "dist", "histc", "kthvalue",
    "logcumsumexp", "logsumexp", "max", "mean", "median", "min", "mode", "msort", "nanmean", "nanmedian", "nanquantile", "nansum", "nonzero",
    "norm", "prod", "quantile", "renorm", "searchsorted", "sort", "std", "std_mean", "sum", "topk", "trace", "trapezoid", "trapz",
    "unique",
    "unique_consecutive", "var", "var_mean",
]  # fmt: skip
in_words(globals(), __all__)
