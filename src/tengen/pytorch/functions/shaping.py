"""Tensors joined, cut, turned and indexed, with PyTorch's arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tengen import functional as F
from tengen.base.errors import ArgumentError, AxisError, ShapeError
from tengen.functional import (
    block_diag,
    cartesian_prod,
    column_stack,
    diagflat,
    dstack,
    flatten,
    fliplr,
    flipud,
    hstack,
    masked_fill,
    rot90,
    stack,
    tile,
    vander,
    vstack,
)
from tengen.ops.attributes import Offset
from tengen.ops.define import broadcast_shapes as shape_of_all
from tengen.pytorch.functions import in_words
from tengen.pytorch.functions.elementwise import times
from tengen.tensor import Tensor
from tengen.tensor.dialect_views import in_memory, views_of_each
from tengen.tensor.in_place import of_one_axis
from tengen.tensor.sizes import Extents

row_stack = vstack


def _each(f: Any, tensors: Any) -> Any:
    """f of one tensor, or of each of several, given one by one or as a list."""
    given = tensors[0] if len(tensors) == 1 else tensors
    return f(given) if isinstance(given, Tensor) else tuple(f(t) for t in given)


def atleast_1d(*tensors: Any) -> Any:
    """The tensor, or each of several, with at least one axis."""
    return _each(F.atleast_1d, tensors)


def atleast_2d(*tensors: Any) -> Any:
    """The tensor, or each of several, with at least two axes; new ones come in front."""
    return _each(F.atleast_2d, tensors)


def atleast_3d(*tensors: Any) -> Any:
    """The tensor, or each of several, with at least three axes: (N,) becomes (1, N, 1), (M, N) becomes (M, N, 1)."""
    return _each(F.atleast_3d, tensors)


def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Tensors one behind the other along an axis. An empty tensor of one axis, (0,), is left out, as in PyTorch.

    Errors: TypeError for what is no list of tensors
    """
    given = [] if isinstance(tensors, Tensor) else list(tensors)
    if isinstance(tensors, Tensor) or (odd := [t for t in given if not isinstance(t, Tensor)]):
        found = "tensor" if isinstance(tensors, Tensor) else f"{type(odd[0]).__name__} in it"
        raise TypeError(f"cat takes a list or a tuple of tensors, got a {found}")
    return F.concat([t for t in given if t.shape != (0,)] or given, dim)


concat = concatenate = cat


def split(tensor: Tensor, split_size_or_sections: Offset | Sequence[Offset], dim: int = 0) -> tuple[Tensor, ...]:
    """Parts of so many elements along an axis, the last of what is left; or of these extents.

    >>> [part.shape for part in split(F.zeros((5, 2)), 2)]
    [(2, 2), (2, 2), (1, 2)]
    """
    return tuple(tensor.split(split_size_or_sections, dim))


split.aliases = {"split_size": "split_size_or_sections", "split_sizes": "split_size_or_sections"}
split_with_sizes = split


def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most so many parts along an axis, all but the last of equal extent."""
    return tuple(input.chunk(chunks, dim))


unsafe_chunk, unsafe_split, unsafe_split_with_sizes = chunk, split, split


def tensor_split(input: Tensor, indices_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """So many parts, or parts that end at these places."""
    given = indices_or_sections.tolist() if isinstance(indices_or_sections, Tensor) else indices_or_sections
    return tuple(F.tensor_split(input, given, dim))


def hsplit(input: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """`tensor_split` along the second axis, or the only one."""
    return tensor_split(input, indices_or_sections, 0 if input.ndim == 1 else 1)


def vsplit(input: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """`tensor_split` along the first axis."""
    return tensor_split(input, indices_or_sections, 0)


def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """The elements at each index of an axis, which is gone."""
    return input.unbind(dim)


def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Two axes exchanged.

    >>> transpose(F.zeros((2, 3, 4)), 1, 2).shape
    (2, 4, 3)
    """
    return F.swapaxes(input, dim0, dim1) if input.ndim else input


transpose.aliases = {"axis0": "dim0", "axis1": "dim1"}
swapaxes = swapdims = transpose


def t(input: Tensor) -> Tensor:
    """A matrix with its axes exchanged."""
    return input.t()


def adjoint(input: Tensor) -> Tensor:
    """Matrices transposed and conjugated."""
    return input.mH


def permute(input: Tensor, dims: Sequence[int]) -> Tensor:
    """The axes in another order."""
    return F.permute(input, tuple(dims))


def movedim(input: Tensor, source: Any, destination: Any) -> Tensor:
    """Axes moved to other places."""
    return F.moveaxis(input, source, destination)


moveaxis = movedim


def reshape(input: Tensor, shape: Any) -> Tensor:
    """The same elements with another shape; one extent may be -1."""
    return F.reshape(input, tuple(shape))


def ravel(input: Tensor) -> Tensor:
    """All elements along one axis."""
    return F.reshape(input, (-1,))


def repeat(self: Tensor, *sizes: Any) -> Tensor:
    """The method ``x.repeat(2, 1)``: the whole tensor so many times along each axis; further axes come in front.

    Errors: ShapeError for fewer numbers than axes

    >>> repeat(Tensor([1, 2]), 2, 2).tolist()
    [[1, 2, 1, 2], [1, 2, 1, 2]]
    """
    given = tuple(sizes[0]) if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes
    if len(given) < self.ndim:
        raise ShapeError(f"repeat{given} of a tensor of shape {self.shape}: a number for each axis; help: for each element repeat_interleave")
    return F.tile(self, tuple(int(n) for n in given))


def squeeze(input: Tensor, dim: Any = None) -> Tensor:
    """Without the axes of extent 1, or without these; of an axis of another extent the tensor itself.

    Errors: AxisError for an axis that is not there
    """
    if dim is None:
        return F.squeeze(input)
    axes = [dim] if isinstance(dim, int) else list(dim)
    if odd := [a for a in axes if not -max(input.ndim, 1) <= a < max(input.ndim, 1)]:
        raise AxisError(f"squeeze(dim={odd[0]}): a tensor of shape {input.shape} has {input.ndim} axes")
    gone = [a for a in axes if input.ndim and input.shape[a] == 1]
    return F.squeeze(input, gone) if gone else input


def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """An axis of extent 1 at a position."""
    return F.expand_dims(input, dim)


def unflatten(input: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    """An axis as several."""
    return input.unflatten(dim, tuple(sizes))


def broadcast_to(input: Tensor, size: Sequence[int]) -> Tensor:
    """Repeated along axes of extent 1, without a copy; -1 stands for the tensor's own extent."""
    return input.expand(*size)


def broadcast_tensors(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Tensors in the shape that they have together."""
    return tuple(F.broadcast_tensors(*tensors))


def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
    """The shape that tensors of these shapes have together."""
    return Extents(F.broadcast_tensors(*(F.broadcast_to(Tensor(0.0), tuple(s) if not isinstance(s, int) else (s,)) for s in shapes))[0].shape)


def flip(input: Tensor, dims: Any) -> Tensor:
    """The elements along axes in reverse order."""
    return F.flip(input, dims if isinstance(dims, int) else list(dims))


def flip_of_axes(self: Tensor, *dims: int) -> Tensor:
    """The method ``x.flip(0, 1)``."""
    return F.flip(self, dims)


def tile_of_axes(self: Tensor, *reps: int, dims: Sequence[int] | None = None) -> Tensor:
    """The methods ``x.tile(2, 1)`` and ``x.tile(dims=(2, 1))``."""
    return F.tile(self, reps if dims is None else dims)


def expand_to(self: Tensor, size: Sequence[int]) -> Tensor:
    """The method ``x.expand(size=(2, 3))``."""
    return self.expand(*size)


def roll(input: Tensor, shifts: Any, dims: Any = None) -> Tensor:
    """The elements along axes moved on, those at the end to the front. Errors: ArgumentError for no shifts"""
    if isinstance(shifts, (tuple, list)) and not shifts:
        raise ArgumentError("roll: there are no shifts")
    return F.roll(input, shifts, dims)


def repeat_interleave(input: Tensor, repeats: Any, dim: int | None = None, *, output_size: int | None = None) -> Tensor:
    """Each element so many times, one behind the other."""
    many = repeats.tolist() if isinstance(repeats, Tensor) else repeats
    return F.repeat(input, many, dim)


def gather(input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    """out[i][j] = input[i][index[i][j]] for dim=1, and so on; of no index no element."""
    if not index.size:
        return F.zeros(index.shape, input.dtype)
    return _with_axis(F.gather, input, dim, index, shape=index.shape)


def _with_axis(f: Any, input: Tensor, dim: int, index: Tensor, *more: Any, shape: Sequence[int] = ()) -> Tensor:
    """f(input, dim, index, ...); a tensor without axes is taken for one of one element along one axis, as in PyTorch, and the result gets
    this shape."""
    if input.ndim:
        return f(input, dim, index, *more)
    return of_one_axis(f, input, dim, index, *more).reshape(shape)


def take(input: Tensor, index: Tensor) -> Tensor:
    """Elements by their number among all."""
    return F.take(input.reshape(-1), index)


def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """Elements along an axis, broadcast; of all elements without one."""
    if dim is None:
        return F.take_along_axis(input.reshape(-1), indices.reshape(-1), 0)
    if input.ndim != indices.ndim or not input.ndim:
        raise ShapeError(f"take_along_dim: indices of shape {indices.shape} for a tensor of shape {input.shape}; help: as many axes")
    axis = dim % input.ndim
    both = shape_of_all(*((*t.shape[:axis], 1, *t.shape[axis + 1 :]) for t in (input, indices)))
    x, i = (F.broadcast_to(t, (*both[:axis], t.shape[axis], *both[axis + 1 :])) for t in (input, indices))
    return F.take_along_axis(x, i, dim)


def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """The elements at these indices of an axis."""
    return _with_axis(F.index_select, input, dim, index)


def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """The elements where the mask is true, along one axis."""
    return input.masked_select(mask)


def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """Elements of `source` in their order where the mask is true, and those of the input elsewhere; both are broadcast."""
    x, where = F.broadcast_tensors(input, mask)
    return F.masked_scatter(x, where, source)


def unravel_index(indices: Tensor, shape: Any) -> tuple[Tensor, ...]:
    """The places, one int64 tensor for each axis, of numbers among the elements of a tensor of this shape."""
    return tuple(F.unravel_index(indices.astype("int64"), shape))


def select(input: Tensor, dim: int, index: int) -> Tensor:
    """The elements at an index of an axis, which is gone."""
    return input.select(dim, index)


def narrow(input: Tensor, dim: int, start: int, length: int) -> Tensor:
    """`length` elements along an axis from `start` on."""
    return input.narrow(dim, start, length)


def _source(src: Any, value: Any, index: Tensor, like: Tensor) -> Tensor:
    given = value if src is None else src
    return _within(given, index) if isinstance(given, Tensor) else F.full(index.shape, given, like.dtype)


def _within(src: Tensor, index: Tensor) -> Tensor:
    """The part of a source that an index asks for; PyTorch's may be larger than the index."""
    return src if src.shape == index.shape or src.ndim != index.ndim else src[tuple(slice(0, n) for n in index.shape)]


def scatter(input: Tensor, dim: int, index: Tensor, src: Any = None, *, value: Any = None, reduce: str | None = None) -> Tensor:
    """Elements of `src`, or a number, written to the places of `index` along an axis; added or multiplied with reduce="add", "multiply"."""
    modes: dict[Any, Any] = {None: "set", "add": "add", "multiply": "mul"}
    if reduce not in modes:
        raise ArgumentError(f"scatter: reduce={reduce!r} must be 'add' or 'multiply'; help: torch.scatter_reduce")
    return _with_axis(F.scatter, input, dim, index, _source(src, value, index, input), modes[reduce])


def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """Elements of `src` added to the places of `index` along an axis."""
    return _with_axis(F.scatter_add, input, dim, index, _within(src, index))


def scatter_reduce(input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: Any, *, include_self: bool = True) -> Tensor:
    """Elements of `src` reduced at the places of `index`: "sum", "prod", "mean", "amax" or "amin"."""
    return _with_axis(F.scatter_reduce, input, dim, index, _within(src, index), reduce, include_self)


def index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
    """alpha * source added at the indices of an axis."""
    return _with_axis(F.index_add, input, dim, index, times(source, alpha))


def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """source written at the indices of an axis."""
    return _with_axis(F.index_copy, input, dim, index, source)


def index_fill(input: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """A number written at the indices of an axis."""
    return _with_axis(F.index_fill, input, dim, index, value)


def index_reduce(input: Tensor, dim: int, index: Tensor, source: Tensor, reduce: Any, *, include_self: bool = True) -> Tensor:
    """source reduced at the indices of an axis."""
    return _with_axis(F.index_reduce, input, dim, index, source, reduce, include_self)


def diag(input: Tensor, diagonal: int = 0) -> Tensor:
    """A matrix of a diagonal, or the diagonal of a matrix."""
    return F.diag(input, diagonal)


def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The diagonals of matrices, as the last axis."""
    return F.diagonal(input, offset, dim1, dim2)


def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Matrices whose diagonals the last axis gives."""
    made = F.diag_embed(input, offset)
    return made if (dim1, dim2) == (-2, -1) else F.moveaxis(made, (-2, -1), (dim1, dim2))


def tril(input: Tensor, diagonal: int = 0) -> Tensor:
    """The lower triangles of matrices, 0 above."""
    return F.tril(input, diagonal)


def triu(input: Tensor, diagonal: int = 0) -> Tensor:
    """The upper triangles of matrices, 0 below."""
    return F.triu(input, diagonal)


def as_strided(input: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> Tensor:
    """Elements at places that strides name: `functional.as_strided`. Of a view the places are those in the memory of what it is a view of,
    and they begin at its first element unless `storage_offset` is given.

    Errors: ArgumentError for a tensor whose elements lie in another order in memory than in its shape

    >>> as_strided(Tensor([1, 2, 3, 4, 5, 6]), (2, 2), (3, 1), 1).tolist()
    [[2, 3], [5, 6]]
    """
    whole, first = in_memory(input, storage_offset)
    return F.as_strided(whole, size, stride, first)


__all__ = [
    "adjoint", "as_strided", "atleast_1d", "atleast_2d", "atleast_3d", "block_diag", "broadcast_shapes", "broadcast_tensors", "broadcast_to",
    "cartesian_prod", "cat", "chunk", "column_stack", "concat", "concatenate", "diag", "diag_embed", "diagflat", "diagonal", "dstack",
    "flatten", "flip", "fliplr", "flipud", "gather", "hsplit", "hstack", "index_add", "index_copy", "index_fill", "index_reduce",
    "index_select", "masked_fill", "masked_scatter", "masked_select", "moveaxis", "movedim", "narrow", "permute", "ravel",
    "repeat_interleave", "reshape", "roll", "rot90", "row_stack", "scatter", "scatter_add", "scatter_reduce", "select", "split",
    "split_with_sizes", "squeeze", "stack", "swapaxes", "swapdims", "t", "take", "take_along_dim", "tensor_split", "tile", "transpose", "tril",
    "triu", "unbind", "unflatten", "unravel_index",
    "unsafe_chunk", "unsafe_split", "unsafe_split_with_sizes", "unsqueeze", "vander", "vsplit", "vstack",
]  # fmt: skip
broadcast_tensors = views_of_each(broadcast_tensors)
in_words(globals(), __all__)
