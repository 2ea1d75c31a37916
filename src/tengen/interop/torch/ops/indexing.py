"""Reading and writing at indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import tengen.functional as F
from tengen.base.dtype import bool_, int64, uint8
from tengen.interop.torch.dtypes import of, tensor
from tengen.interop.torch.registry import op
from tengen.ops.define import REGISTRY
from tengen.tensor import Tensor


@op("embedding")
def embedding(
    weight: Tensor, index: Tensor, padding: int = -1, scale_by_frequency: bool = False, sparse: bool = False
) -> Tensor:
    """Rows of a table. The row `padding` has no gradient; with `scale_by_frequency` a row's is divided by how often it is taken."""
    rows = F.take(weight, index, 0)
    if scale_by_frequency and weight.dtype.is_inexact:
        ones = F.ones(tuple(index.shape), weight.dtype).reshape(-1)
        times = index_put(F.zeros((weight.shape[0],), weight.dtype), [index.reshape(-1)], ones, True)
        rows = F.straight_through(rows.detach(), rows / F.expand_dims(F.take(times, index, 0), -1))
    if padding < 0:
        return rows
    return F.where(F.expand_dims(F.equal(index, padding), -1), rows.detach(), rows)


@op("embedding_renorm")
def embedding_renorm(weight: Tensor, index: Tensor, most: float, order: float) -> Tensor:
    """A table in which the rows at indices have norms of at most `most`."""
    x = weight.detach()
    norms = F.norm(x, float(order), 1, True)
    named = index_put(F.zeros((x.shape[0],), bool_), [index.reshape(-1)], F.full((), True, bool_)).reshape(-1, 1)
    return F.where(F.logical_and(named, norms > most), x * (most / (norms + 1e-7)), x)


@op("gather")
def gather(x: Tensor, dim: int, index: Tensor) -> Tensor:
    """out[..., i, ...] = x[..., index[..., i, ...], ...]."""
    if not x.ndim or not index.ndim:
        return F.take(x.reshape(-1), index.reshape(-1), 0).reshape(index.shape)
    return F.gather(x, dim % x.ndim, index)


@op("take_along_dim")
def take_along_dim(x: Tensor, index: Tensor, dim: int | None = None) -> Tensor:
    """`gather`, where the other axes broadcast."""
    if dim is None:
        return F.take(x.reshape(-1), index.reshape(-1), 0)
    shape = [index.shape[i] if i == dim % x.ndim else max(a, b) for i, (a, b) in enumerate(zip(x.shape, index.shape))]
    return F.gather(x, dim % x.ndim, F.broadcast_to(index, tuple(shape)))


@op("index_select")
def index_select(x: Tensor, dim: int, index: Tensor) -> Tensor:
    """Places of an axis."""
    if not x.ndim:
        return F.take(x.reshape(1), index.reshape(-1), 0).reshape(())
    return F.take(x, index.reshape(-1), dim % x.ndim)


def key_of(indices: Sequence[Tensor | None]) -> tuple:
    """PyTorch's list of indices as a key of NumPy's kind. Bytes are truth values."""
    return tuple(slice(None) if i is None else i.astype(bool_) if i.dtype is uint8 else i for i in indices)


@op("index.Tensor", "_unsafe_index.Tensor")
def index(x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    """Elements at indices, as NumPy reads them."""
    return x[key_of(indices)] if indices else x


@op("index_put", "_unsafe_index_put")
def index_put(x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Tensor:
    """A copy of x with other elements at indices, or with values added there."""
    if not x.ndim and indices:
        return index_put(x.reshape(1), indices, values, accumulate).reshape(())
    key, values = key_of(indices), of(values, x.dtype)
    if not accumulate:
        y = F.copy(x)
        y[key] = values
        return y
    places: list[Tensor] = []
    axes: list[int] = []
    at = 0
    for k in key:
        if isinstance(k, slice):
            at += 1
        elif k.dtype is bool_:
            places += F.nonzero(k)
            axes += range(at, at + k.ndim)
            at += k.ndim
        else:
            places.append(k)
            axes.append(at)
            at += 1
    together = axes == list(range(axes[0], axes[0] + len(axes)))
    if x.dtype is bool_:  # addition of truth values is "or"
        return F.logical_or(x, F.not_equal(index_put(F.zeros(x.shape, "int32"), indices, values.astype("int32"), True), 0))
    return REGISTRY["index_put"](places, x, values, tuple(axes), axes[0] if together else 0, "add")


def _source(index: Tensor, source: Tensor) -> Tensor:
    """The part of a source that an index reads."""
    return source if source.shape == index.shape else source[tuple(slice(0, n) for n in index.shape)]


def _scattered(x: Tensor, dim: int, index: Tensor, source: Any, mode: str) -> Tensor:
    """`functional.scatter`, of tensors without axes too."""
    if not x.ndim:
        flat = index.reshape(-1)
        return _scattered(x.reshape(1), 0, flat, source.reshape(-1) if isinstance(source, Tensor) else source, mode).reshape(())
    if isinstance(source, Tensor):
        source = _source(index, of(source, x.dtype))
    else:
        source = F.broadcast_to(tensor(source, x.dtype), index.shape)
    if index.size == 0:
        return x
    if x.dtype is bool_:
        return _scattered(
            x.astype(uint8), dim, index, source.astype(uint8), {"add": "max", "mul": "min"}.get(mode, mode)
        ).astype(bool_)
    return F.scatter(x, dim % x.ndim, index, source, mode)


@op("scatter.src", "scatter.value")
def scatter(x: Tensor, dim: int, index: Tensor, source: Any) -> Tensor:
    """A copy of x with other elements at places of an axis."""
    return _scattered(x, dim, index, source, "set")


@op("scatter_add")
def scatter_add(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """A copy of x with elements added at places of an axis."""
    return _scattered(x, dim, index, source, "add")


@op("scatter.reduce", "scatter.value_reduce")
def scatter_with(x: Tensor, dim: int, index: Tensor, source: Any, *, reduce: str) -> Tensor:
    """A copy of x with elements added to, or multiplied by, at places of an axis."""
    return _scattered(x, dim, index, source, {"add": "add", "multiply": "mul"}[reduce])


_MODES = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min", "mean": "add"}


def _neutral(x: Tensor, reduce: str) -> Any:
    """What a reduction begins with."""
    if reduce in ("sum", "mean"):
        return 0
    if reduce == "prod":
        return 1
    if x.dtype is bool_:
        return reduce == "amin"
    low, high = (-np.inf, np.inf) if x.dtype.is_inexact else (np.iinfo(x.dtype.numpy).min, np.iinfo(x.dtype.numpy).max)
    return low if reduce == "amax" else high


@op("scatter_reduce.two")
def scatter_reduce(x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True) -> Tensor:
    """A copy of x in which elements at places of an axis are reduced, with those of x (include_self) or among themselves."""
    start = x if include_self else _scattered(x, dim, index, _neutral(x, reduce), "set")
    y = _scattered(start, dim, index, source, _MODES[reduce])
    if reduce != "mean":
        return y
    ones = F.full(x.shape, 1, dtype="int64")
    count = ones if include_self else _scattered(ones, dim, index, 0, "set")
    count = _scattered(count, dim, index, 1, "add")
    return F.floor_div(y, count.astype(y.dtype)) if y.dtype.is_int else y / count.astype(y.dtype)


@op("masked_scatter")
def masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """A copy of x in which the elements where the mask is true are those of the source, in order."""
    shape = np.broadcast_shapes(tuple(x.shape), tuple(mask.shape)) if x.shape != mask.shape else x.shape
    x, mask = F.broadcast_to(x, shape), F.broadcast_to(mask, shape)
    place = F.cumsum(mask.astype(int64).reshape(-1), 0) - 1
    flat = source.reshape(-1)
    found = F.take(flat, F.clip(place, 0, max(flat.size - 1, 0)), 0).reshape(x.shape)
    return F.where(mask, of(found, x.dtype), x)


def _slices(x: Tensor, dim: int, index: Tensor) -> list[Tensor | None]:
    """PyTorch's list of indices that names places of one axis."""
    return [None] * (dim % max(x.ndim, 1)) + [index.reshape(-1)]


@op("index_add")
def index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> Tensor:
    """A copy of x with slices added at places of an axis."""
    return index_put(x, _slices(x, dim, index), source * alpha if alpha != 1 else source, True)


@op("index_copy")
def index_copy(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """A copy of x with other slices at places of an axis."""
    return index_put(x, _slices(x, dim, index), source)


@op("index_fill.int_Scalar")
def index_fill(x: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """A copy of x with one value at places of an axis."""
    return index_put(x, _slices(x, dim, index), tensor(value, x.dtype))


@op("nonzero")
def nonzero(x: Tensor) -> Tensor:
    """The positions of elements that are not 0: a row for each. How many depends on the values."""
    return F.non_zero(x) if x.ndim else F.zeros((int(bool(x.item())), 0), "int64")


@op("nonzero_static")
def nonzero_static(x: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """The positions of the first `size` elements that are not 0, a row for each; rows that are left have the fill value."""
    if not x.size or not size:
        return F.full((size, x.ndim), fill_value, "int64")
    counted = F.cumsum(F.not_equal(x.reshape(-1), 0).astype(int64), 0)
    wanted = F.arange(1, size + 1, dtype="int64")
    place = F.searchsorted(counted, wanted)  # of the k-th
    there, columns = wanted <= counted[-1], []
    for n in reversed(x.shape):
        columns.append(F.where(there, F.mod(place, n), fill_value))
        place = F.floor_div(place, n)
    return F.stack(columns[::-1], 1).astype(int64) if columns else F.zeros((size, 0), "int64")


@op("masked_select")
def masked_select(x: Tensor, mask: Tensor) -> Tensor:
    """The elements where a mask is true. How many depends on the values."""
    shape = np.broadcast_shapes(tuple(x.shape), tuple(mask.shape))
    return F.broadcast_to(x, shape)[F.broadcast_to(mask, shape)]


@op("take")
def take(x: Tensor, index: Tensor) -> Tensor:
    """Elements of the flattened tensor."""
    return F.take(x.reshape(-1), index, 0)


@op("index_reduce")
def index_reduce(x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True) -> Tensor:
    """Slices of a source reduced at indices of an axis."""
    if not x.ndim:
        return F.index_reduce(x.reshape(1), 0, index, source.reshape(-1), reduce, include_self).reshape(())
    return F.index_reduce(x, dim, index, source, reduce, include_self)


@op("put")
def put(x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """Elements of a source at places of the flattened tensor, or added there."""
    return index_put(x.reshape(-1), [index.reshape(-1)], source.reshape(-1), accumulate).reshape(x.shape)


@op("diagonal_scatter")
def diagonal_scatter(x: Tensor, source: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A copy with another diagonal of two axes; the source has it as its last axis."""
    first, second = dim1 % x.ndim, dim2 % x.ndim
    places = F.arange(source.shape[-1], dtype="int64")
    front = F.moveaxis(x, (first, second), (0, 1))
    made = index_put(front, [places + max(-offset, 0), places + max(offset, 0)], F.moveaxis(source, -1, 0))
    return F.moveaxis(made, (0, 1), (first, second))


@op("as_strided_scatter")
def as_strided_scatter(x: Tensor, source: Tensor, size: Sequence[int], stride: Sequence[int], offset: int | None = None) -> Tensor:
    """A copy of x with the source's elements at places that strides name; where some are named twice, the last one counts."""
    places = F.as_strided(F.arange(x.size, dtype="int64").reshape(x.shape), tuple(size), tuple(stride), offset)
    return F.scatter(x.reshape(-1), 0, places.reshape(-1), source.reshape(-1)).reshape(x.shape)


@op("segment_reduce")
def segment_reduce(
    x: Tensor, reduce: str, *, lengths: Tensor | None = None, indices: Tensor | None = None, offsets: Tensor | None = None, axis: int = 0,
    unsafe: bool = False, initial: Any = None,
) -> Tensor:  # fmt: skip
    """Runs of slices along an axis, each reduced to one: as many slices as `lengths` says, or from an offset to the next. The axes before it
    are those of lengths and offsets too. An empty run gives `initial`, or what the reduction begins with; its mean is NaN."""
    if lengths is None:
        assert offsets is not None
        lengths = offsets[..., 1:] - offsets[..., :-1]
    if axis:
        return F.stack([segment_reduce(x[i], reduce, lengths=lengths[i], axis=axis - 1, initial=initial) for i in range(x.shape[0])], 0)
    mode = {"max": "amax", "min": "amin"}.get(reduce, reduce)
    run = F.searchsorted(F.cumsum(lengths, 0), F.arange(x.shape[0], dtype="int64"), True)  # of each slice; past the last, what no run has
    first = _neutral(x, mode) if initial is None else initial
    start = F.full((lengths.shape[0] + 1, *x.shape[1:]), first, dtype=x.dtype)
    made = (index_add(start, 0, run, x) if mode in ("sum", "mean") else F.index_reduce(start, 0, run, x, mode, True))[:-1]
    if mode != "mean":
        return made
    count = lengths.reshape(-1, *[1] * (x.ndim - 1)).astype(x.dtype)
    return F.where(F.equal(count, 0), float("nan") if initial is None else made, made / F.maximum(count, 1))
