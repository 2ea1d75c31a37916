"""Joining, cutting, turning and placing elements as PyTorch and NumPy do and MegEngine does not, put together from ops: they are
differentiated, traced, mapped over examples and written to files as those are. Arguments are in PyTorch's order.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from tengen.base.errors import AxisError, DTypeError, ShapeError
from tengen.ops.attributes import Offset
from tengen.ops.calls import all_with_line
from tengen.ops.define import REGISTRY, broadcast_shapes
from tengen.ops.joining import even_parts
from tengen.tensor import Tensor
from tengen.tensor import pytorch_names as _methods

op = REGISTRY


def axis_of(name: str, x: Tensor, axis: int, ndim: int | None = None) -> int:
    n = x.ndim if ndim is None else ndim
    if not -n <= axis < n:
        raise AxisError(f"{name}: axis {axis} of a tensor of shape {x.shape}")
    return axis % n


# ---- joining and cutting ---------------------------------------------------------------------------------------------------


def atleast_1d(inp: Tensor) -> Tensor:
    """The tensor with at least one axis."""
    return inp if inp.ndim else op["reshape"](inp, (1,))


def atleast_2d(inp: Tensor) -> Tensor:
    """The tensor with at least two axes: those that it lacks are its first."""
    return inp if inp.ndim > 1 else op["reshape"](inp, (1, inp.size))


def atleast_3d(inp: Tensor) -> Tensor:
    """The tensor with at least three axes, as NumPy has it: (N,) becomes (1, N, 1), and (M, N) becomes (M, N, 1)."""
    return op["expand_dims"](atleast_2d(inp), 2) if inp.ndim < 3 else inp


def hstack(inps: Sequence[Tensor]) -> Tensor:
    """Joins tensors along axis 1, and vectors along axis 0.

    >>> from tengen import Tensor, functional as F
    >>> F.hstack([Tensor([1, 2]), Tensor([3])]).tolist()
    [1, 2, 3]
    """
    some = [atleast_1d(x) for x in inps]
    return op["concat"](some, 0 if some and some[0].ndim == 1 else 1)


def vstack(inps: Sequence[Tensor]) -> Tensor:
    """Joins tensors along axis 0; a vector is a row.

    >>> from tengen import Tensor, functional as F
    >>> F.vstack([Tensor([1, 2]), Tensor([3, 4])]).tolist()
    [[1, 2], [3, 4]]
    """
    return op["concat"]([atleast_2d(x) for x in inps], 0)


def dstack(inps: Sequence[Tensor]) -> Tensor:
    """Joins tensors along axis 2, after `atleast_3d`."""
    return op["concat"]([atleast_3d(x) for x in inps], 2)


def column_stack(inps: Sequence[Tensor]) -> Tensor:
    """Joins tensors along axis 1; a vector is a column.

    >>> from tengen import Tensor, functional as F
    >>> F.column_stack([Tensor([1, 2]), Tensor([3, 4])]).tolist()
    [[1, 3], [2, 4]]
    """
    return op["concat"]([x if x.ndim > 1 else op["reshape"](x, (x.size, 1)) for x in inps], 1)


def chunk(inp: Tensor, chunks: int, axis: int = 0) -> list[Tensor]:
    """At most so many parts along an axis, all but the last of equal extent. `split` wants equal parts.

    Errors: AxisError for an axis that is not there, ShapeError for fewer than one part

    >>> from tengen import functional as F
    >>> [part.tolist() for part in F.chunk(F.arange(5), 2)]
    [[0.0, 1.0, 2.0], [3.0, 4.0]]
    """
    return _methods.chunk(inp, chunks, axis)


def tensor_split(inp: Tensor, indices_or_sections: int | Sequence[Offset], axis: int = 0) -> list[Tensor]:
    """So many parts along an axis, whose extents differ by at most 1, the longer ones first; or the parts between these positions.

    Errors: AxisError for an axis that is not there, ShapeError for fewer than one part

    >>> from tengen import functional as F
    >>> [part.tolist() for part in F.tensor_split(F.arange(5), 2)]
    [[0.0, 1.0, 2.0], [3.0, 4.0]]
    """
    axis = axis_of("tensor_split", inp, axis)
    if isinstance(indices_or_sections, int):
        n, k = inp.shape[axis], indices_or_sections
        if k < 1:
            raise ShapeError(f"tensor_split({inp.shape}, {k}): there must be at least 1 part")
        indices_or_sections = list(itertools.accumulate(even_parts(n, k)))[:-1]
    key = (slice(None),) * axis
    ends = [0, *indices_or_sections, inp.shape[axis]]
    return [inp[(*key, slice(a, b))] for a, b in zip(ends, ends[1:])]


def unbind(inp: Tensor, axis: int = 0) -> tuple[Tensor, ...]:
    """The elements at each index of an axis, which is gone: views.

    Errors: AxisError for an axis that is not there

    >>> from tengen import Tensor, functional as F
    >>> [x.tolist() for x in F.unbind(Tensor([[1, 2], [3, 4]]), 1)]
    [[1, 3], [2, 4]]
    """
    return _methods.unbind(inp, axis)


def broadcast_tensors(*inps: Tensor) -> list[Tensor]:
    """The tensors with the shape to which they broadcast together. Errors: ShapeError where there is none."""
    shape = broadcast_shapes(*(x.shape for x in inps))
    return [op["broadcast_to"](x, shape) for x in inps]


def block_diag(*inps: Tensor) -> Tensor:
    """One matrix with the given ones along its diagonal, and zeros elsewhere; a vector is a row.

    Errors: ShapeError for more than two axes

    >>> from tengen import Tensor, functional as F
    >>> F.block_diag(Tensor([[1]]), Tensor([[2, 3]])).tolist()
    [[1, 0, 0], [0, 2, 3]]
    """
    if bad := [x.shape for x in inps if x.ndim > 2]:
        raise ShapeError(f"block_diag: shapes {bad}: at most two axes each")
    some, width, rows, left = [atleast_2d(x) for x in inps], sum(atleast_2d(x).shape[1] for x in inps), [], 0
    for x in some:
        rows.append(op["pad"](x, ((0, 0), (left, width - left - x.shape[1]))))
        left += x.shape[1]
    return op["concat"](rows, 0)


def cartesian_prod(*inps: Tensor) -> Tensor:
    """Every choice of an element of each vector, a row each, as of `itertools.product`; of one vector the vector.

    Errors: ShapeError for what are no vectors

    >>> from tengen import Tensor, functional as F
    >>> F.cartesian_prod(Tensor([1, 2]), Tensor([3, 4])).tolist()
    [[1, 3], [1, 4], [2, 3], [2, 4]]
    """
    if bad := [x.shape for x in inps if x.ndim != 1]:
        raise ShapeError(f"cartesian_prod: shapes {bad}: each must have one axis")
    if len(inps) == 1:
        return inps[0]
    shape = tuple(x.shape[0] for x in inps)
    put = [(1,) * i + (n,) + (1,) * (len(shape) - i - 1) for i, n in enumerate(shape)]
    return op["stack"]([op["reshape"](op["broadcast_to"](op["reshape"](x, p), shape), (-1,)) for x, p in zip(inps, put)], 1)


def combinations(inp: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """Every choice of r elements of a vector, a row each, as of `itertools.combinations`.

    Errors: ShapeError for what is no vector

    >>> from tengen import Tensor, functional as F
    >>> F.combinations(Tensor([1, 2, 3])).tolist()
    [[1, 2], [1, 3], [2, 3]]
    """
    if inp.ndim != 1:
        raise ShapeError(f"combinations of a tensor of shape {inp.shape}: it must have one axis")
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = list(choose(range(inp.shape[0]), r))
    return inp[Tensor(rows, "int64")] if rows else op["zeros"]((0, r), inp.dtype)


# ---- turning and placing -----------------------------------------------------------------------------------------------------


def movedim(inp: Tensor, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
    """`moveaxis` under PyTorch's name."""
    return op["moveaxis"](inp, source, destination)


def fliplr(inp: Tensor) -> Tensor:
    """The columns (axis 1) in reversed order. Errors: AxisError for fewer than two axes."""
    return op["flip"](inp, axis_of("fliplr", inp, 1))


def flipud(inp: Tensor) -> Tensor:
    """The rows (axis 0) in reversed order. Errors: AxisError for a tensor without axes."""
    return op["flip"](inp, axis_of("flipud", inp, 0))


def rot90(inp: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    """The tensor turned k times by 90 degrees, from the first of two axes towards the second. `vision.rot90` is MegEngine's, of images.

    Errors: AxisError for axes that are not there or equal

    >>> from tengen import Tensor, functional as F
    >>> F.rot90(Tensor([[1, 2], [3, 4]])).tolist()
    [[2, 4], [1, 3]]
    """
    if len(dims) != 2 or (a := axis_of("rot90", inp, dims[0])) == (b := axis_of("rot90", inp, dims[1])):
        raise AxisError(f"rot90(dims={tuple(dims)}) of a tensor of shape {inp.shape}: two axes that differ are needed")
    k %= 4
    if k == 2:
        return op["flip"](inp, (a, b))
    turned = op["swapaxes"](op["flip"](inp, b) if k == 1 else inp, a, b) if k else inp
    return op["flip"](turned, b) if k == 3 else turned


def diag_embed(inp: Tensor, offset: int = 0) -> Tensor:
    """Matrices whose diagonals are the last axis: (..., N) -> (..., N + |offset|, N + |offset|).

    >>> from tengen import Tensor, functional as F
    >>> F.diag_embed(Tensor([[1, 2]])).tolist()
    [[[1, 0], [0, 2]]]
    """
    axis_of("diag_embed", inp, -1)
    n = inp.shape[-1]
    at = op["arange"](0, n, 1, "int64")
    hit = op["equal"](op["expand_dims"](at, 1), op["expand_dims"](at, 0))
    square = op["where"](hit, op["expand_dims"](inp, -1), op["zeros"]((), inp.dtype))
    around = ((max(-offset, 0), max(offset, 0)), (max(offset, 0), max(-offset, 0)))
    return op["pad"](square, ((0, 0),) * (inp.ndim - 1) + around) if offset else square


def diagflat(inp: Tensor, offset: int = 0) -> Tensor:
    """A matrix with all elements along a diagonal."""
    return diag_embed(op["reshape"](inp, (-1,)), offset)


def _triangle(name: str, row: int, col: int, keep: Any) -> Tensor:
    if row < 0 or col < 0:
        raise ShapeError(f"{name}({row}, {col}): extents are not negative")
    some = [(i, j) for i in range(row) for j in range(col) if keep(i, j)]
    return Tensor([[i for i, _ in some], [j for _, j in some]], "int64") if some else op["zeros"]((2, 0), "int64")


def tril_indices(row: int, col: int, offset: int = 0) -> Tensor:
    """The row and column numbers of the elements on and below a diagonal, (2, N).

    Errors: ShapeError for a negative extent

    >>> from tengen import functional as F
    >>> F.tril_indices(2, 2).tolist()
    [[0, 1, 1], [0, 0, 1]]
    """
    return _triangle("tril_indices", row, col, lambda i, j: j - i <= offset)


def triu_indices(row: int, col: int, offset: int = 0) -> Tensor:
    """The row and column numbers of the elements on and above a diagonal, (2, N). Errors: ShapeError for a negative extent."""
    return _triangle("triu_indices", row, col, lambda i, j: j - i >= offset)


def rows_of(name: str, inp: Tensor, axis: int, index: Tensor, source: Tensor | None = None) -> tuple[int, Tensor, Tensor | None]:
    axis = axis_of(name, inp, axis)
    if index.ndim > 1:
        raise ShapeError(f"{name}: index has shape {index.shape}; help: it must have one axis")
    index = atleast_1d(index)
    wanted = (*inp.shape[:axis], index.shape[0], *inp.shape[axis + 1 :])
    if source is not None and source.shape != wanted:
        raise ShapeError(f"{name}: source has shape {source.shape}; help: {wanted} is expected, for {inp._layout.type!r} along axis {axis}")
    shape = tuple(-1 if i == axis else 1 for i in range(inp.ndim))
    return axis, op["broadcast_to"](op["reshape"](index, shape), wanted), source


def index_add(inp: Tensor, axis: int, index: Tensor, source: Tensor, alpha: float = 1) -> Tensor:
    """inp with alpha times the rows of source added to those that index names along an axis; a row may be named several times.

    Shapes: inp (..., N, ...), index (K,), source (..., K, ...) -> as inp
    Errors: AxisError, ShapeError for what does not fit; IndexOutOfRange for an index outside of the axis (eager mode)
    Numerics: equal rows are added in the order of index: the same bits each time

    >>> from tengen import Tensor, functional as F
    >>> F.index_add(F.zeros(3), 0, Tensor([0, 2, 0]), Tensor([1.0, 2.0, 3.0])).tolist()
    [4.0, 0.0, 2.0]
    """
    axis, index, rows = rows_of("index_add", inp, axis, index, source)
    return op["scatter_add"](inp, axis, index, rows if alpha == 1 else rows * alpha)


def index_copy(inp: Tensor, axis: int, index: Tensor, source: Tensor) -> Tensor:
    """inp with the rows that index names along an axis replaced by those of source. See `index_add`.

    Errors: AxisError, ShapeError for what does not fit

    >>> from tengen import Tensor, functional as F
    >>> F.index_copy(F.zeros(3), 0, Tensor([0, 2]), Tensor([1.0, 2.0])).tolist()
    [1.0, 0.0, 2.0]
    """
    axis, index, rows = rows_of("index_copy", inp, axis, index, source)
    return op["scatter"](inp, axis, index, rows)


def index_fill(inp: Tensor, axis: int, index: Tensor, value: float) -> Tensor:
    """inp with the rows that index names along an axis set to a number. See `index_add`.

    Errors: AxisError, ShapeError for what does not fit
    """
    axis, index, _ = rows_of("index_fill", inp, axis, index)
    return op["scatter"](inp, axis, index, op["full"](index.shape, value, inp.dtype))


def masked_scatter(inp: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """inp with its elements where the mask is true replaced, in their order, by the first elements of source.

    Errors: DTypeError for a mask that is not bool, ShapeError for a source that has no elements

    >>> from tengen import Tensor, functional as F
    >>> F.masked_scatter(F.zeros(4), Tensor([False, True, False, True]), Tensor([1.0, 2.0, 3.0])).tolist()
    [0.0, 1.0, 0.0, 2.0]
    """
    if mask.dtype != "bool":
        raise DTypeError(f"masked_scatter: the mask must be bool, got {mask._layout.type!r}; help: mask != 0")
    if not source.size:
        raise ShapeError(f"masked_scatter: source has no elements, its shape is {source.shape}")
    mask = op["broadcast_to"](mask, inp.shape)
    place = op["cumsum"](op["astype"](op["reshape"](mask, (-1,)), "int64"), 0) - 1
    taken = op["take"](op["reshape"](source, (-1,)), op["maximum"](place, 0))
    return op["where"](mask, op["reshape"](taken, inp.shape), inp)


def isin(elements: Tensor, test_elements: Tensor, invert: bool = False) -> Tensor:
    """Whether each element is among the others: bool, in the shape of `elements`. It compares all with all.

    >>> from tengen import Tensor, functional as F
    >>> F.isin(Tensor([1, 2, 3]), Tensor([3, 1])).tolist()
    [True, False, True]
    """
    found = op["any"](op["equal"](op["expand_dims"](elements, -1), op["reshape"](test_elements, (-1,))), -1)
    return op["logical_not"](found) if invert else found


def unravel_index(indices: Tensor, shape: Sequence[int]) -> tuple[Tensor, ...]:
    """The indices of each axis for positions in the flattened tensor of a shape.

    >>> from tengen import Tensor, functional as F
    >>> [i.tolist() for i in F.unravel_index(Tensor([0, 5]), (2, 3))]
    [[0, 1], [0, 2]]
    """
    found: list[Tensor] = []
    for n in reversed(tuple(shape)):
        found.append(op["mod"](indices, n))
        indices = op["floor_div"](indices, n)
    return tuple(reversed(found))


__all__ = [
    "atleast_1d", "atleast_2d", "atleast_3d", "block_diag", "broadcast_tensors", "cartesian_prod", "chunk", "column_stack",
    "combinations", "diag_embed", "diagflat", "dstack", "fliplr", "flipud", "hstack", "index_add", "index_copy", "index_fill",
    "isin", "masked_scatter", "movedim", "rot90", "tensor_split", "tril_indices", "triu_indices", "unbind", "unravel_index",
    "vstack",
]  # fmt: skip
all_with_line(globals(), __all__)
