"""Functions of arrays that PyTorch and NumPy have and MegEngine lacks, put together from ops: they are differentiated, traced, mapped over
examples and written to files as those are. Arguments are in PyTorch's order; `dim` and `keepdim` are understood.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from tengen.base.errors import ArgumentError, AxisError, DTypeError, ShapeError
from tengen.linalg.products import tensordot as _tensordot
from tengen.linalg.products import vector_norm
from tengen.ops.calls import all_with_line
from tengen.ops.contract import matmul as _matmul
from tengen.ops.define import REGISTRY, broadcast_shapes
from tengen.ops.reduce import max_, mean, min_, sum_
from tengen.tensor import Tensor
from tengen.tensor import pytorch_names as _methods

op = REGISTRY


def _at(name: str, x: Tensor, axis: int, ndim: int | None = None) -> int:
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


def tensor_split(inp: Tensor, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[Tensor]:
    """So many parts along an axis, whose extents differ by at most 1, the longer ones first; or the parts between these positions.

    Errors: AxisError for an axis that is not there, ShapeError for fewer than one part

    >>> from tengen import functional as F
    >>> [part.tolist() for part in F.tensor_split(F.arange(5), 2)]
    [[0.0, 1.0, 2.0], [3.0, 4.0]]
    """
    axis = _at("tensor_split", inp, axis)
    if isinstance(indices_or_sections, int):
        n, k = inp.shape[axis], indices_or_sections
        if k < 1:
            raise ShapeError(f"tensor_split({inp.shape}, {k}): there must be at least 1 part")
        extents = [n // k + (i < n % k) for i in range(k)]
        indices_or_sections = list(itertools.accumulate(extents))[:-1]
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
    return op["flip"](inp, _at("fliplr", inp, 1))


def flipud(inp: Tensor) -> Tensor:
    """The rows (axis 0) in reversed order. Errors: AxisError for a tensor without axes."""
    return op["flip"](inp, _at("flipud", inp, 0))


def rot90(inp: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    """The tensor turned k times by 90 degrees, from the first of two axes towards the second. `vision.rot90` is MegEngine's, of images.

    Errors: AxisError for axes that are not there or equal

    >>> from tengen import Tensor, functional as F
    >>> F.rot90(Tensor([[1, 2], [3, 4]])).tolist()
    [[2, 4], [1, 3]]
    """
    if len(dims) != 2 or (a := _at("rot90", inp, dims[0])) == (b := _at("rot90", inp, dims[1])):
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
    _at("diag_embed", inp, -1)
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


def _rows(name: str, inp: Tensor, axis: int, index: Tensor, source: Tensor | None = None) -> tuple[int, Tensor, Tensor | None]:
    axis = _at(name, inp, axis)
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
    axis, index, rows = _rows("index_add", inp, axis, index, source)
    return op["scatter_add"](inp, axis, index, rows if alpha == 1 else rows * alpha)


def index_copy(inp: Tensor, axis: int, index: Tensor, source: Tensor) -> Tensor:
    """inp with the rows that index names along an axis replaced by those of source. See `index_add`.

    Errors: AxisError, ShapeError for what does not fit

    >>> from tengen import Tensor, functional as F
    >>> F.index_copy(F.zeros(3), 0, Tensor([0, 2]), Tensor([1.0, 2.0])).tolist()
    [1.0, 0.0, 2.0]
    """
    axis, index, rows = _rows("index_copy", inp, axis, index, source)
    return op["scatter"](inp, axis, index, rows)


def index_fill(inp: Tensor, axis: int, index: Tensor, value: float) -> Tensor:
    """inp with the rows that index names along an axis set to a number. See `index_add`.

    Errors: AxisError, ShapeError for what does not fit
    """
    axis, index, _ = _rows("index_fill", inp, axis, index)
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


# ---- element by element --------------------------------------------------------------------------------------------------------


def fmod(inp: Tensor, other: Tensor) -> Tensor:
    """The remainder of a division that rounds towards zero: it has the sign of `inp`. `mod` has that of `other`.

    >>> from tengen import Tensor, functional as F
    >>> F.fmod(Tensor([-5.0, 5.0]), 3.0).tolist()
    [-2.0, 2.0]
    """
    size = op["mod"](op["abs"](inp), op["abs"](other) if isinstance(other, Tensor) else abs(other))
    return op["where"](op["less"](inp, 0), op["neg"](size), size)


def frac(inp: Tensor) -> Tensor:
    """What is left of a number without its whole part, with its sign."""
    return inp - op["trunc"](inp)


def heaviside(inp: Tensor, values: Tensor) -> Tensor:
    """0 below zero, 1 above, `values` at zero.

    >>> from tengen import Tensor, functional as F
    >>> F.heaviside(Tensor([-1.0, 0.0, 2.0]), Tensor(0.5)).tolist()
    [0.0, 0.5, 1.0]
    """
    step = op["astype"](op["greater"](inp, 0), inp.dtype)
    return op["where"](op["equal"](inp, 0), values, op["where"](op["isnan"](inp), inp, step)) if inp.dtype.is_float else op["where"](
        op["equal"](inp, 0), values, step
    )


def logit(inp: Tensor, eps: float | None = None) -> Tensor:
    """log(x / (1 - x)), the inverse of `sigmoid`. Args: eps: x is taken to lie in [eps, 1 - eps]; None: as it is.

    >>> from tengen import Tensor, functional as F
    >>> F.logit(Tensor([0.5])).tolist()
    [0.0]
    """
    x = inp if eps is None else op["clip"](inp, eps, 1 - eps)
    return op["log"](x) - op["log1p"](-x)


def xlogy(x: Tensor, y: Tensor) -> Tensor:
    """x log(y), and 0 where x is 0, whatever y is but NaN.

    >>> from tengen import Tensor, functional as F
    >>> F.xlogy(Tensor([0.0, 2.0]), Tensor([0.0, 1.0])).tolist()
    [0.0, 0.0]
    """
    none = op["logical_and"](op["equal"](x, 0), op["logical_not"](op["isnan"](y)))
    return op["where"](none, 0.0, x * op["log"](op["where"](none, 1.0, y)))


def sinc(inp: Tensor) -> Tensor:
    """sin(pi x) / (pi x), and 1 at 0.

    >>> from tengen import Tensor, functional as F
    >>> F.sinc(Tensor([0.0])).tolist()
    [1.0]
    """
    zero = op["equal"](inp, 0)
    x = op["where"](zero, 1.0, inp) * math.pi
    return op["where"](zero, 1.0 - inp * inp * (math.pi**2 / 6), op["sin"](x) / x)


def deg2rad(inp: Tensor) -> Tensor:
    """Degrees in radians."""
    return inp * (math.pi / 180)


def rad2deg(inp: Tensor) -> Tensor:
    """Radians in degrees."""
    return inp * (180 / math.pi)


def logaddexp2(x: Tensor, y: Tensor) -> Tensor:
    """log2(2^x + 2^y), without overflow."""
    return op["logaddexp"](x * math.log(2), y * math.log(2)) / math.log(2)


def isposinf(inp: Tensor) -> Tensor:
    """Whether each element is plus infinity."""
    return op["equal"](inp, math.inf) if inp.dtype.is_float else op["zeros"](inp.shape, "bool")


def isneginf(inp: Tensor) -> Tensor:
    """Whether each element is minus infinity."""
    return op["equal"](inp, -math.inf) if inp.dtype.is_float else op["zeros"](inp.shape, "bool")


def fmax(x: Tensor, y: Tensor) -> Tensor:
    """The larger one; of a number and NaN the number. `maximum` gives NaN.

    >>> from tengen import Tensor, functional as F
    >>> F.fmax(Tensor([1.0, float("nan")]), Tensor([float("nan"), 2.0])).tolist()
    [1.0, 2.0]
    """
    return op["where"](op["isnan"](x), y, op["where"](op["isnan"](y), x, op["maximum"](x, y)))


def fmin(x: Tensor, y: Tensor) -> Tensor:
    """The smaller one; of a number and NaN the number. `minimum` gives NaN."""
    return op["where"](op["isnan"](x), y, op["where"](op["isnan"](y), x, op["minimum"](x, y)))


def addcmul(inp: Tensor, tensor1: Tensor, tensor2: Tensor, value: float = 1) -> Tensor:
    """inp + value tensor1 tensor2, element by element."""
    return inp + (tensor1 if value == 1 else value * tensor1) * tensor2


def addcdiv(inp: Tensor, tensor1: Tensor, tensor2: Tensor, value: float = 1) -> Tensor:
    """inp + value tensor1 / tensor2, element by element."""
    return inp + (tensor1 if value == 1 else value * tensor1) / tensor2


def logspace(start: float, end: float, steps: int, base: float = 10.0, dtype: Any = "float32") -> Tensor:
    """base to the power of `steps` numbers from start to end at equal distances.

    >>> from tengen import functional as F
    >>> F.logspace(0, 2, 3).tolist()
    [1.0, 10.0, 100.0]
    """
    return op["pow"](base, op["linspace"](start, end, steps, dtype))


# ---- over axes ---------------------------------------------------------------------------------------------------------------------


def amax(inp: Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """`max`: the largest element along axes."""
    return max_(inp, axis, keepdims)


def amin(inp: Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """`min`: the smallest element along axes."""
    return min_(inp, axis, keepdims)


def aminmax(inp: Tensor, axis: int | None = None, keepdims: bool = False) -> tuple[Tensor, Tensor]:
    """The smallest and the largest element along an axis, or of all."""
    return min_(inp, axis, keepdims), max_(inp, axis, keepdims)


def var_mean(inp: Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = False, correction: int = 1) -> tuple[Tensor, Tensor]:
    """The variance and the mean along axes. As in PyTorch the sum of squares is divided by the number of elements less `correction`; `var`
    divides by the number, as NumPy does.

    >>> from tengen import Tensor, functional as F
    >>> [x.item() for x in F.var_mean(Tensor([1.0, 2.0, 3.0]))]
    [1.0, 2.0]
    """
    middle = mean(inp, axis, True)
    d = inp - middle
    squares = sum_(op["square"](op["abs"](d)) if inp.dtype.is_complex else d * d, axis, keepdims)
    counted = inp.size // max(middle.size, 1) if middle.size else 0
    over = op["full"]((), max(counted - correction, 0), squares.dtype)
    return squares / over, mean(inp, axis, keepdims)


def std_mean(inp: Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = False, correction: int = 1) -> tuple[Tensor, Tensor]:
    """The standard deviation and the mean along axes. See `var_mean`."""
    v, m = var_mean(inp, axis, keepdims, correction)
    return op["sqrt"](v), m


def nansum(inp: Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """The sum along axes, without the NaNs.

    >>> from tengen import Tensor, functional as F
    >>> F.nansum(Tensor([1.0, float("nan"), 2.0])).item()
    3.0
    """
    return sum_(op["where"](op["isnan"](inp), 0, inp), axis, keepdims)


def nanmean(inp: Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """The mean along axes of what is not NaN; NaN where nothing is."""
    there = op["astype"](op["logical_not"](op["isnan"](inp)), inp.dtype)
    return nansum(inp, axis, keepdims) / sum_(there, axis, keepdims)


def kthvalue(inp: Tensor, k: int, axis: int = -1, keepdims: bool = False) -> tuple[Tensor, Tensor]:
    """The k-th smallest element along an axis, counted from 1, and its index.

    Errors: AxisError for an axis that is not there, ArgumentError for a k that is not in 1 .. N

    >>> from tengen import Tensor, functional as F
    >>> [x.item() for x in F.kthvalue(Tensor([5.0, 1.0, 3.0]), 2)]
    [3.0, 2]
    """
    axis = _at("kthvalue", inp, axis)
    if not 1 <= k <= inp.shape[axis]:
        raise ArgumentError(f"kthvalue: k={k} is not in 1 .. {inp.shape[axis]}, the extent of axis {axis} of {inp.shape}")
    key = (*(slice(None),) * axis, slice(k - 1, k))
    values, indices = (t[key] for t in op["sort"](inp, False, axis))
    return (values, indices) if keepdims else (op["squeeze"](values, axis), op["squeeze"](indices, axis))


def msort(inp: Tensor) -> Tensor:
    """The elements sorted along axis 0."""
    return op["sort"](inp, False, _at("msort", inp, 0))[0]


def histc(inp: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """How many elements fall into each of equal bins between two numbers, in the dtype of the tensor; others are not counted.

    Args: min, max: where the bins begin and end; both 0: the least and the largest element.
    """
    limits = None if min == max == 0 else (min, max)
    return op["astype"](op["histogram"](inp, bins, limits)[0], inp.dtype)


def bucketize(inp: Tensor, boundaries: Tensor, right: bool = False) -> Tensor:
    """The number of the bucket of each element: buckets lie between sorted boundaries, and hold their upper one (their lower one with
    right=True).

    >>> from tengen import Tensor, functional as F
    >>> F.bucketize(Tensor([0.5, 1.0, 9.0]), Tensor([1.0, 2.0])).tolist()
    [0, 0, 2]
    """
    return op["searchsorted"](boundaries, inp, right)


def trapezoid(y: Tensor, x: Tensor | None = None, dx: float = 1.0, axis: int = -1) -> Tensor:
    """The integral along an axis by the trapezoidal rule, at places x (default: at distances dx).

    Errors: AxisError for an axis that is not there

    >>> from tengen import Tensor, functional as F
    >>> F.trapezoid(Tensor([1.0, 2.0, 3.0])).item()
    4.0
    """
    axis = _at("trapezoid", y, axis)
    key = (slice(None),) * axis
    pairs = y[(*key, slice(1, None))] + y[(*key, slice(None, -1))]
    if x is None:
        return sum_(pairs * (0.5 * dx), axis)
    steps = op["diff"](x, 1, x.ndim - 1 if x.ndim == 1 else axis)
    if x.ndim == 1:
        steps = op["reshape"](steps, tuple(-1 if i == axis else 1 for i in range(y.ndim)))
    return sum_(pairs * steps * 0.5, axis)


def cov(inp: Tensor, correction: int = 1) -> Tensor:
    """The covariances of variables, a row each, whose columns are observations: (M, N) -> (M, M); (N,) -> a number.

    Errors: ShapeError for more than two axes

    >>> from tengen import Tensor, functional as F
    >>> F.cov(Tensor([[1.0, 3.0], [3.0, 1.0]])).tolist()
    [[2.0, -2.0], [-2.0, 2.0]]
    """
    if inp.ndim > 2:
        raise ShapeError(f"cov of a tensor of shape {inp.shape}: it takes (variables, observations)")
    x = atleast_2d(inp)
    d = x - mean(x, 1, True)
    c = _matmul(d, op["conj"](op["swapaxes"](d, 0, 1))) / float(max(x.shape[1] - correction, 0) or math.nan)
    return c if inp.ndim == 2 else op["reshape"](c, ())


def corrcoef(inp: Tensor) -> Tensor:
    """Pearson's correlations of variables, a row each: (M, N) -> (M, M). Errors: ShapeError for more than two axes."""
    c = cov(inp)
    if c.ndim == 0:
        return c / c
    size = op["sqrt"](op["real"](op["diagonal"](c)))
    return c / op["expand_dims"](size, 1) / op["expand_dims"](size, 0)


# ---- products and distances -----------------------------------------------------------------------------------------------------


def addmm(inp: Tensor, mat1: Tensor, mat2: Tensor, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta inp + alpha (mat1 @ mat2).

    Errors: ShapeError for what are no matrices
    """
    if mat1.ndim != 2 or mat2.ndim != 2:
        raise ShapeError(f"addmm({inp.shape}, {mat1.shape}, {mat2.shape}): two matrices are needed; help: baddbmm, or inp + a @ b")
    return _sum_of(inp, _matmul(mat1, mat2), beta, alpha)


def baddbmm(inp: Tensor, batch1: Tensor, batch2: Tensor, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta inp + alpha (batch1 @ batch2) of batches of matrices (B, M, K) and (B, K, N). Errors: ShapeError for what are none."""
    if batch1.ndim != 3 or batch2.ndim != 3:
        raise ShapeError(f"baddbmm({inp.shape}, {batch1.shape}, {batch2.shape}): two batches of matrices are needed; help: inp + a @ b")
    return _sum_of(inp, _matmul(batch1, batch2), beta, alpha)


def _sum_of(inp: Tensor, product: Tensor, beta: float, alpha: float) -> Tensor:
    product = product if alpha == 1 else product * alpha
    return product if beta == 0 else product + (inp if beta == 1 else inp * beta)


def inner(x: Tensor, y: Tensor) -> Tensor:
    """Sums of products along the last axes of both: (..., N), (..., N) -> (..., ...)."""
    if x.ndim == 0 or y.ndim == 0:
        return x * y
    return tensordot(x, y, ([-1], [-1]))


def tensordot(a: Tensor, b: Tensor, dims: int | Sequence[Sequence[int]] = 2) -> Tensor:
    """Sums of products over several axes.

    Args: dims: how many of the last axes of a go with as many first ones of b; or the axes of a, and those of b.
    >>> from tengen import functional as F
    >>> F.tensordot(F.ones((2, 3, 4)), F.ones((3, 4, 5)), 2).shape
    (2, 5)
    """
    return _tensordot(a, b, axes=dims)


def kron(a: Tensor, b: Tensor) -> Tensor:
    """Kronecker's product: every element of a times the whole of b.

    >>> from tengen import Tensor, functional as F
    >>> F.kron(Tensor([1, 2]), Tensor([1, 10])).tolist()
    [1, 10, 2, 20]
    """
    n = max(a.ndim, b.ndim)
    x, y = ((1,) * (n - t.ndim) + tuple(t.shape) for t in (a, b))
    left = op["reshape"](a, tuple(d for s in x for d in (s, 1)))
    right = op["reshape"](b, tuple(d for s in y for d in (1, s)))
    return op["reshape"](left * right, tuple(s * t for s, t in zip(x, y)))


def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """The powers of the elements of a vector as columns, the highest first unless `increasing`: (M,) -> (M, N).

    Errors: ShapeError for what is no vector

    >>> from tengen import Tensor, functional as F
    >>> F.vander(Tensor([2.0, 3.0]), 3).tolist()
    [[4.0, 2.0, 1.0], [9.0, 3.0, 1.0]]
    """
    if x.ndim != 1:
        raise ShapeError(f"vander of a tensor of shape {x.shape}: it must have one axis")
    n = x.shape[0] if N is None else N
    columns = [op["ones_like"](x)]
    for _ in range(n - 1):
        columns.append(columns[-1] * x)
    return op["stack"](columns if increasing else columns[::-1], 1) if n else op["zeros"]((x.shape[0], 0), x.dtype)


def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdims: bool = False) -> Tensor:
    """The p-norm of x1 - x2 + eps along the last axis.

    >>> from tengen import Tensor, functional as F
    >>> round(F.pairwise_distance(Tensor([[0.0, 3.0]]), Tensor([[4.0, 0.0]])).item(), 4)
    5.0
    """
    return vector_norm(x1 - x2 + eps, axis=-1, keepdims=keepdims, ord=p)


def cdist(x1: Tensor, x2: Tensor, p: float = 2.0) -> Tensor:
    """The p-norms of all differences of rows: (..., M, D), (..., N, D) -> (..., M, N).

    Errors: ShapeError for rows of different extents
    Numerics: from the differences themselves, so that equal rows have the distance 0

    >>> from tengen import Tensor, functional as F
    >>> F.cdist(Tensor([[0.0, 0.0]]), Tensor([[3.0, 4.0], [0.0, 1.0]])).tolist()
    [[5.0, 1.0]]
    """
    if x1.ndim < 2 or x2.ndim < 2 or x1.shape[-1] != x2.shape[-1]:
        raise ShapeError(f"cdist({x1.shape}, {x2.shape}): rows along the last axis are needed, of one extent")
    return vector_norm(op["expand_dims"](x1, -2) - op["expand_dims"](x2, -3), axis=-1, ord=p)


__all__ = [
    "addcdiv", "addcmul", "addmm", "amax", "amin", "aminmax", "atleast_1d", "atleast_2d", "atleast_3d", "baddbmm", "block_diag",
    "broadcast_tensors", "bucketize", "cartesian_prod", "cdist", "chunk", "column_stack", "combinations", "corrcoef", "cov", "deg2rad",
    "diag_embed", "diagflat", "dstack", "fliplr", "flipud", "fmax", "fmin", "fmod", "frac", "heaviside", "histc", "hstack", "index_add",
    "index_copy", "index_fill", "inner", "isin", "isneginf", "isposinf", "kron", "kthvalue", "logaddexp2", "logit", "logspace",
    "masked_scatter", "movedim", "msort", "nanmean", "nansum", "pairwise_distance", "rad2deg", "rot90", "sinc", "std_mean",
    "tensor_split", "tensordot", "trapezoid", "tril_indices", "triu_indices", "unbind", "unravel_index", "vander", "var_mean", "vstack",
    "xlogy",
]  # fmt: skip
all_with_line(globals(), __all__)
