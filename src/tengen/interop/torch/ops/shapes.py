"""Views, parts, joins and paddings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import tengen.functional as F
from tengen.base.errors import ArgumentError
from tengen.interop.torch.dtypes import of, result_type, tensor
from tengen.interop.torch.registry import op
from tengen.loops.lang import as_int, cdiv
from tengen.tensor import Tensor

op("alias", "clone", "lift_fresh_copy", "lift_fresh", "lift", "contiguous", "view_of")(lambda x, *_: x)
op("detach", "detach_")(lambda x: x.detach())


@op("view", "reshape", "_unsafe_view", "view_copy", "_reshape_copy", "_reshape_alias")
def view(x: Tensor, size: Sequence[Any], stride: Any = None) -> Tensor:
    """Another shape; one extent may be -1."""
    return F.reshape(x, tuple(size))


@op("view.dtype")
def view_dtype(x: Tensor, dtype: str) -> Tensor:
    """The same bits as another dtype. Errors: ArgumentError where it is another dtype."""
    if x.dtype.name != dtype:
        raise ArgumentError(f"a view of {x.dtype} as {dtype}, the same bits read otherwise, has no meaning here")
    return x


@op("expand", "expand_copy")
def expand(x: Tensor, size: Sequence[Any]) -> Tensor:
    """Unit axes and new ones repeated; -1 keeps an extent."""
    lead = len(size) - x.ndim
    return F.broadcast_to(x, tuple(x.shape[i - lead] if as_int(d) == -1 else d for i, d in enumerate(size)))


@op("expand_as")
def expand_as(x: Tensor, like: Tensor) -> Tensor:
    """In the shape of another tensor."""
    return F.broadcast_to(x, like.shape)


@op("permute", "permute_copy")
def permute(x: Tensor, dims: Sequence[int]) -> Tensor:
    """Axes in another order."""
    return F.permute(x, tuple(d % x.ndim for d in dims)) if x.ndim else x


@op("transpose.int", "swapaxes")
def transpose(x: Tensor, a: int, b: int) -> Tensor:
    """Two axes exchanged."""
    return F.swapaxes(x, a, b) if x.ndim else x


@op("t")
def t(x: Tensor) -> Tensor:
    """A matrix transposed."""
    return F.swapaxes(x, 0, 1) if x.ndim == 2 else x


@op("unsqueeze")
def unsqueeze(x: Tensor, dim: int) -> Tensor:
    """A new unit axis."""
    return F.expand_dims(x, dim)


@op("squeeze.dim", "squeeze.dims")
def squeeze(x: Tensor, dim: Any) -> Tensor:
    """Without those of the axes that have the extent 1."""
    dims = [dim] if isinstance(dim, int) else dim
    ones = tuple(d % x.ndim for d in dims if x.ndim and as_int(x.shape[d]) == 1)
    return F.squeeze(x, ones) if ones else x


@op("squeeze")
def squeeze_all(x: Tensor) -> Tensor:
    """Without all axes of the extent 1."""
    return squeeze(x, list(range(x.ndim)))


@op("flatten.using_ints")
def flatten(x: Tensor, start: int = 0, end: int = -1) -> Tensor:
    """Axes as one."""
    return F.flatten(x, start, end)


def along(x: Tensor, dim: int, key: Any) -> tuple:
    """A key that names a part of one axis."""
    return (slice(None),) * (dim % x.ndim) + (key,)


@op("select.int", "select_copy.int")
def select(x: Tensor, dim: int, index: Any) -> Tensor:
    """One place of an axis."""
    return x[along(x, dim, index)]


def part(x: Tensor, dim: int, start: Any, end: Any, step: int) -> slice:
    """A slice of an axis. An end behind everything is none."""
    n = x.shape[dim]
    last = as_int(end) if end is not None else None
    end = None if last is not None and last >= np.iinfo(np.int64).max // 2 else end
    start = None if start is not None and as_int(start) == 0 else start
    if end is not None and end is n:
        end = None
    return slice(start, end, step)


@op("slice.Tensor", "slice_copy.Tensor")
def slice_(x: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Tensor:
    """Places of an axis in steps."""
    key = part(x, dim, start, end, step)
    return x if key == slice(None, None, 1) else x[along(x, dim, key)]


@op("narrow", "narrow_copy")
def narrow(x: Tensor, dim: int, start: Any, length: Any) -> Tensor:
    """`length` places of an axis."""
    return x[along(x, dim, slice(start, start + length))]


@op("select_scatter")
def select_scatter(x: Tensor, source: Tensor, dim: int, index: Any) -> Tensor:
    """A copy in which one place of an axis is another tensor."""
    y = F.copy(x)
    y[along(x, dim, index)] = of(source, x.dtype)
    return y


@op("slice_scatter")
def slice_scatter(x: Tensor, source: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Tensor:
    """A copy in which places of an axis are another tensor."""
    key = part(x, dim, start, end, step)
    if key == slice(None, None, 1):
        return F.broadcast_to(of(source, x.dtype), x.shape)
    y = F.copy(x)
    y[along(x, dim, key)] = of(source, x.dtype)
    return y


@op("split_with_sizes", "split_with_sizes_copy", "split.sizes")
def split_with_sizes(x: Tensor, sizes: Sequence[Any], dim: int = 0) -> tuple[Tensor, ...]:
    """Parts of these extents."""
    found, at = [], 0
    for n in sizes:
        found.append(x[along(x, dim, slice(at, at + n))])
        at = at + n
    return tuple(found)


@op("split.Tensor", "split_copy.Tensor")
def split(x: Tensor, size: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Parts of one extent; the last one may be smaller."""
    n = x.shape[dim]
    return tuple(x[along(x, dim, slice(i, min(i + size, n)))] for i in range(0, n, size)) if n else (x,)


@op("chunk")
def chunk(x: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most so many parts."""
    return split(x, cdiv(x.shape[dim], chunks), dim)


@op("unbind.int", "unbind_copy.int")
def unbind(x: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """All places of an axis."""
    return tuple(x[along(x, dim, i)] for i in range(int(x.shape[dim])))


@op("cat", "concat")
def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """One after another; empty vectors count as nothing."""
    d = result_type(*tensors)
    some = [of(x, d) for x in tensors if not (x.ndim == 1 and as_int(x.shape[0]) == 0)]
    if not some:
        return of(tensors[0], d)
    return some[0] if len(some) == 1 else F.concat(some, dim)


@op("stack")
def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Along a new axis."""
    d = result_type(*tensors)
    return F.stack([of(x, d) for x in tensors], dim)


@op("flip")
def flip(x: Tensor, dims: Sequence[int]) -> Tensor:
    """Axes turned round."""
    return F.flip(x, tuple(dims)) if dims and x.ndim else x


@op("roll")
def roll(x: Tensor, shifts: Any, dims: Any = ()) -> Tensor:
    """Elements moved along axes."""
    return F.roll(x, shifts[0] if not dims else tuple(shifts), tuple(dims) or None)


@op("repeat")
def repeat(x: Tensor, repeats: Sequence[int]) -> Tensor:
    """The whole tensor repeated along each axis."""
    return F.tile(x, tuple(repeats)) if repeats else x


@op("diagonal", "diagonal_copy")
def diagonal(x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The elements (i, i + offset) of two axes, as a new last axis."""
    return F.diagonal(x, offset, dim1, dim2)


@op("tril")
def tril(x: Tensor, k: int = 0) -> Tensor:
    """The lower triangle."""
    return F.tril(x, k)


@op("triu")
def triu(x: Tensor, k: int = 0) -> Tensor:
    """The upper triangle."""
    return F.triu(x, k)


@op("as_strided", "as_strided_copy")
def as_strided(x: Tensor, size: Sequence[int], stride: Sequence[int], offset: int | None = None) -> Tensor:
    """Elements of the dense tensor at places that strides name. Errors: ShapeError for a place outside of it."""
    return F.as_strided(x, tuple(size), tuple(stride), offset)


@op("unfold")
def unfold(x: Tensor, dim: int, size: int, step: int) -> Tensor:
    """Windows of an axis, as a new last axis."""
    if not x.ndim:
        return x.reshape(1)[:size]
    dim %= x.ndim
    places = np.arange((x.shape[dim] - size) // step + 1)[:, None] * step + np.arange(size)
    return F.moveaxis(F.take(x, Tensor(places), dim), dim + 1, -1)


def sides(x: Tensor, pad: Sequence[Any]) -> list[tuple[Any, Any]]:
    """(Before, after) of each axis, of PyTorch's list, which begins with the last axis."""
    pairs = [(pad[2 * i], pad[2 * i + 1]) for i in range(len(pad) // 2)]
    return [(0, 0)] * (x.ndim - len(pairs)) + pairs[::-1]


@op("constant_pad_nd")
def constant_pad(x: Tensor, pad: Sequence[Any], value: Any = 0) -> Tensor:
    """More elements around it, or with negative numbers fewer."""
    return _padded(x, pad, "constant", bool(value) if x.dtype.kind == "b" else value)


def _padded(x: Tensor, pad: Sequence[Any], mode: str, value: Any = 0) -> Tensor:
    """What has negative numbers is cut after the padding, since mirrored elements may be some that are cut."""
    around = sides(x, pad)
    more = [(0 if _below(a) else a, 0 if _below(b) else b) for a, b in around]
    if any(as_int(n) != 0 for pair in more for n in pair):
        x = F.pad(x, more, mode, value)
    cut = tuple(slice(-a if _below(a) else None, b if _below(b) else None) for a, b in around)
    return x[cut] if any(s != slice(None) for s in cut) else x


def _below(n: Any) -> bool:
    return (as_int(n) or 0) < 0


@op("reflection_pad1d", "reflection_pad2d", "reflection_pad3d")
def reflection_pad(x: Tensor, pad: Sequence[Any]) -> Tensor:
    """Mirrored at the outer elements."""
    return _padded(x, pad, "reflect")


@op("replication_pad1d", "replication_pad2d", "replication_pad3d")
def replication_pad(x: Tensor, pad: Sequence[Any]) -> Tensor:
    """The outer elements repeated."""
    return _padded(x, pad, "edge")


@op("copy")
def copy(x: Tensor, source: Tensor, *_: Any) -> Tensor:
    """Another tensor in the shape and dtype of x."""
    return F.broadcast_to(of(source, x.dtype), x.shape)


@op("resize_", "resize")
def resize(x: Tensor, size: Sequence[int]) -> Tensor:
    """The first elements in another shape; what is more is 0."""
    n = math.prod(size)
    flat = x.reshape(-1)
    flat = flat[:n] if n <= x.size else F.pad(flat, [(0, n - x.size)])
    return flat.reshape(*size)


@op("pixel_shuffle")
def pixel_shuffle(x: Tensor, factor: int) -> Tensor:
    """(*, C r r, H, W) -> (*, C, H r, W r)."""
    lead = x.shape[:-3]
    y = F.pixel_shuffle(x.reshape(math.prod(lead), *x.shape[-3:]), factor)
    return y.reshape(*lead, *y.shape[1:])


@op("repeat_interleave.self_int")
def repeat_interleave(x: Tensor, repeats: int, dim: int | None = None, *, output_size: Any = None) -> Tensor:
    """Each element repeated."""
    return F.repeat(x, repeats, dim)


@op("repeat_interleave.Tensor")
def repeat_interleave_places(repeats: Tensor, *, output_size: Any = None) -> Tensor:
    """The number i repeats[i] times; the length depends on the values."""
    return Tensor(np.repeat(np.arange(repeats.size, dtype=np.int64), repeats.numpy()))


@op("fill.Scalar", "fill.Tensor")
def fill(x: Tensor, value: Any) -> Tensor:
    """A tensor like x with one value."""
    return F.broadcast_to(tensor(value, x.dtype), x.shape)
