"""Functions of the array API namespace that move elements: shapes, joining, repeating, taking."""

from __future__ import annotations

from collections.abc import Sequence

from tengen.arrays.rules import array, check_axes, common
from tengen.base.errors import ShapeError
from tengen.ops.define import REGISTRY
from tengen.ops.shape import normalize_axis
from tengen.tensor import Tensor


def concat(arrays: Sequence[Tensor], /, *, axis: int | None = 0) -> Tensor:
    """Arrays one after another along an axis; flattened where it is None. Their dtypes promote by the standard's tables."""
    common("concat", *(array("concat", x).dtype for x in arrays))
    if axis is None:
        return REGISTRY["concat"]([REGISTRY["reshape"](x, (-1,)) for x in arrays], 0)
    return REGISTRY["concat"](list(arrays), axis)


def expand_dims(x: Tensor, /, axis: int = 0) -> Tensor:
    """A view with a unit axis at a place."""
    return REGISTRY["expand_dims"](array("expand_dims", x), axis)


def flip(x: Tensor, /, *, axis: int | tuple[int, ...] | None = None) -> Tensor:
    """The order of elements turned round along axes (all by default)."""
    check_axes("flip", array("flip", x), axis)
    return REGISTRY["flip"](x, axis)


def moveaxis(x: Tensor, source: int | tuple[int, ...], destination: int | tuple[int, ...], /) -> Tensor:
    """A view with axes moved to other places."""
    return REGISTRY["moveaxis"](array("moveaxis", x), source, destination)


def permute_dims(x: Tensor, /, axes: tuple[int, ...]) -> Tensor:
    """A view with the axes in another order."""
    return REGISTRY["permute"](array("permute_dims", x), axes)


def repeat(x: Tensor, repeats: int | Tensor, /, *, axis: int | None = None) -> Tensor:
    """Each element repeated, so often for all or for each position of an axis; flattened without one."""
    array("repeat", x)
    if isinstance(repeats, Tensor):
        repeats = array("repeat", repeats, "integer").tolist()
    return REGISTRY["repeat"](x, repeats, axis)


def reshape(x: Tensor, /, shape: tuple[int, ...], *, copy: bool | None = None) -> Tensor:
    """The same elements with another shape; one extent may be -1.

    Args: copy: True copies; False raises ValueError where strides do not allow a view; None copies where that is needed.
    """
    y = REGISTRY["reshape"](array("reshape", x), shape)
    if copy:
        return REGISTRY["copy"](y)
    if copy is False and x.size and not _shared(x, y):
        raise ValueError(
            f"reshape(copy=False): a tensor of shape {x.shape} and strides {x.strides} has no view of shape {y.shape}"
        )
    return y


def _shared(x: Tensor, y: Tensor) -> bool:
    return x.__array__().__array_interface__["data"][0] == y.__array__().__array_interface__["data"][0]


def roll(x: Tensor, /, shift: int | tuple[int, ...], *, axis: int | tuple[int, ...] | None = None) -> Tensor:
    """Elements moved along axes; what leaves at the end comes back at the front. Flattened without an axis."""
    return REGISTRY["roll"](array("roll", x), shift, axis)


def squeeze(x: Tensor, /, axis: int | tuple[int, ...]) -> Tensor:
    """A view without these unit axes."""
    return REGISTRY["squeeze"](array("squeeze", x), axis)


def stack(arrays: Sequence[Tensor], /, *, axis: int = 0) -> Tensor:
    """Arrays of one shape along a new axis."""
    common("stack", *(array("stack", x).dtype for x in arrays))
    return REGISTRY["stack"](list(arrays), axis)


def tile(x: Tensor, repetitions: tuple[int, ...], /) -> Tensor:
    """The whole array repeated along each axis."""
    return REGISTRY["tile"](array("tile", x), repetitions)


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """The parts along an axis, each without it, as views.

    >>> import tengen.array_api as xp
    >>> [v.tolist() for v in xp.unstack(xp.asarray([[1, 2], [3, 4]]), axis=1)]
    [[1, 3], [2, 4]]
    """
    a = normalize_axis(axis, array("unstack", x).ndim)
    if not x.ndim:
        raise ShapeError("unstack: a 0-d array has no axis")
    return tuple(x[(slice(None),) * a + (i,)] for i in range(x.shape[a]))


def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """The parts of x at a vector of integer positions of an axis, which only a vector may leave out."""
    array("take", indices, "integer")
    if axis is None and array("take", x).ndim != 1:
        raise ShapeError(f"take: an array of shape {x.shape} needs an axis")
    if indices.ndim != 1:
        raise ShapeError(f"take: the positions are a vector, got shape {indices.shape}")
    return REGISTRY["take"](x, indices, 0 if axis is None else axis)


def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """x[..., indices[..., i, ...], ...] along an axis; the other axes broadcast."""
    array("take_along_axis", indices, "integer")
    a = normalize_axis(axis, array("take_along_axis", x).ndim)
    if x.ndim != indices.ndim:
        raise ShapeError(f"take_along_axis: an array of shape {x.shape} and positions of shape {indices.shape} differ in axes")
    wide = [n if i == a else max(n, m) if min(n, m) else 0 for i, (n, m) in enumerate(zip(x.shape, indices.shape))]
    far = tuple(m if i == a else n for i, (n, m) in enumerate(zip(wide, indices.shape)))
    return REGISTRY["gather"](REGISTRY["broadcast_to"](x, tuple(wide)), a, REGISTRY["broadcast_to"](indices, far))


def matrix_transpose(x: Tensor, /) -> Tensor:
    """The last two axes exchanged, as a view."""
    if array("matrix_transpose", x).ndim < 2:
        raise ShapeError(f"matrix_transpose: needs two axes, got shape {x.shape}")
    return REGISTRY["swapaxes"](x, -1, -2)


def matmul(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The matrix product over the last two axes; leading axes broadcast, vectors are rows or columns."""
    common("matmul", array("matmul", x1, "numeric").dtype, array("matmul", x2, "numeric").dtype)
    return REGISTRY["matmul"](x1, x2)


def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The sums of conj(x1) x2 along an axis, counted from the last one, of arrays that broadcast."""
    common("vecdot", array("vecdot", x1, "numeric").dtype, array("vecdot", x2, "numeric").dtype)
    if not -min(x1.ndim, x2.ndim) <= axis < 0:
        raise ShapeError(f"vecdot: axis={axis} must be negative and an axis of both, of shapes {x1.shape} and {x2.shape}")
    if x1.shape[axis] != x2.shape[axis]:
        raise ShapeError(f"vecdot: shapes {x1.shape} and {x2.shape} differ along axis {axis}")
    left, right = (REGISTRY["moveaxis"](x, axis, -1) for x in (x1, x2))
    left = REGISTRY["conj"](left) if left.dtype.kind == "c" else left
    product = REGISTRY["matmul"](REGISTRY["expand_dims"](left, -2), REGISTRY["expand_dims"](right, -1))
    return REGISTRY["squeeze"](product, (-2, -1))


def tensordot(x1: Tensor, x2: Tensor, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Tensor:
    """The sums over some axes of both: the last ones of x1 and the first ones of x2 for a number, or those that a pair names.

    >>> import tengen.array_api as xp
    >>> xp.tensordot(xp.ones((2, 3)), xp.ones((3, 2)), axes=1).tolist()
    [[3.0, 3.0], [3.0, 3.0]]
    """
    common("tensordot", array("tensordot", x1, "numeric").dtype, array("tensordot", x2, "numeric").dtype)
    if isinstance(axes, int):
        if not 0 <= axes <= min(x1.ndim, x2.ndim):
            raise ShapeError(f"tensordot: shapes {x1.shape} and {x2.shape} do not have {axes} axes both")
        axes = (range(x1.ndim - axes, x1.ndim), range(axes))
    left, right = (tuple(normalize_axis(a, x.ndim) for a in some) for some, x in zip(axes, (x1, x2)))
    if len(left) != len(right) or any(x1.shape[a] != x2.shape[b] for a, b in zip(left, right)):
        raise ShapeError(f"tensordot: axes {left} of {x1.shape} and {right} of {x2.shape} do not fit")
    rows, columns = ([a for a in range(x.ndim) if a not in some] for x, some in ((x1, left), (x2, right)))
    inner = 1
    for a in left:
        inner *= x1.shape[a]
    sizes = [1, 1]
    for i, (x, kept) in enumerate(((x1, rows), (x2, columns))):
        for a in kept:
            sizes[i] *= x.shape[a]
    a = REGISTRY["reshape"](REGISTRY["permute"](x1, (*rows, *left)), (sizes[0], inner))
    b = REGISTRY["reshape"](REGISTRY["permute"](x2, (*right, *columns)), (inner, sizes[1]))
    shape = (*(x1.shape[i] for i in rows), *(x2.shape[i] for i in columns))
    return REGISTRY["reshape"](REGISTRY["matmul"](a, b), shape)


__all__ = [
    "concat", "expand_dims", "flip", "matmul", "matrix_transpose", "moveaxis", "permute_dims", "repeat", "reshape", "roll", "squeeze",
    "stack", "take", "take_along_axis", "tensordot", "tile", "unstack", "vecdot",
]  # fmt: skip
