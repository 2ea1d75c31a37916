"""`as_strided`: elements of a tensor at places that strides name, as a view.

In and out: tensors of any dtype. Places are counted along the elements in the order of the tensor's shape, the last axis innermost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tengen.base.errors import ShapeError, Undecided
from tengen.ir.types import TensorType
from tengen.loops.lang import Expr
from tengen.ops.attributes import Extent, Shape
from tengen.ops.define import Case, dispatch, lookup, primitive, shorthand
from tengen.ops.shape import reshape

if TYPE_CHECKING:
    from tengen.tensor import Tensor


@primitive
def strided(x: Tensor, sizes: Shape, strides: Sequence[int], offset: Extent) -> Tensor:
    """Elements offset + sum(i * stride) of a vector, for all i below `sizes`: a view. Shapes: (n,) -> sizes"""


@strided.infer
def _(x, sizes, strides, offset):
    if x.ndim != 1 or len(sizes) != len(strides):
        raise ShapeError(f"needs a vector, and a stride for each of {len(sizes)} axes, got {len(strides)}")
    if any(isinstance(e, Expr) for e in (*x.shape, *sizes, offset)):
        raise Undecided("which elements strides reach follows from the extents")
    if all(sizes):
        reach = [(n - 1) * s for n, s in zip(sizes, strides)]
        first, last = offset + sum(r for r in reach if r < 0), offset + sum(r for r in reach if r > 0)
        if first < 0 or last >= x.shape[0]:
            raise ShapeError(
                f"{x.shape[0]} elements have no places from {first} to {last}, which the shape {tuple(sizes)} with strides {tuple(strides)} "
                f"from {offset} reads"
            )
    return TensorType(sizes, x.dtype)


@strided.view
def _(a, out, sizes, strides, offset):
    (step,) = a.strides
    some = all(sizes)
    return replace(
        a, shape=tuple(out.shape), strides=tuple([step * s for s in strides]), offset=a.offset + (step * offset if some else 0)
    )


@strided.vjp
def _(g, x, sizes, strides, offset):
    """Each element's gradient is the sum of those of its appearances."""
    arange, add = lookup("arange"), lookup("add")
    places = lookup("full")((1,) * len(sizes), offset, "int64")
    for axis, (n, s) in enumerate(zip(sizes, strides)):
        along = reshape(lookup("mul")(arange(0, n, 1, "int64"), s), (-1, *(1,) * (len(sizes) - axis - 1)))
        places = add(places, along)
    flat = lambda t: reshape(t, (-1,))
    return lookup("scatter_add")(lookup("zeros_like")(x), 0, flat(places), flat(g))


def _np_strided(x, sizes, strides, offset):
    places = np.full(sizes, offset)
    for axis, s in enumerate(strides):
        places = places + s * np.arange(sizes[axis]).reshape(-1, *(1,) * (len(sizes) - axis - 1))
    return x[places]


strided.reference(_np_strided)
strided.cases(
    Case(lambda r: (r.uniform(-1, 1, 12),), {"sizes": (3, 4), "strides": (2, 1), "offset": 1}),
    Case(lambda r: (r.uniform(-1, 1, 12),), {"sizes": (4, 2), "strides": (-3, 0), "offset": 11}),
    Case(lambda r: (r.uniform(-1, 1, 12),), {"sizes": (), "strides": (), "offset": 5}),
    Case(lambda r: (r.uniform(-1, 1, 12),), {"sizes": (0, 3), "strides": (50, 1), "offset": 50}),
)


@shorthand(functional="tensor", methods="as_strided", aliases={"input": "inp"})
def as_strided(inp: Tensor, size: Shape, stride: int | Sequence[int], storage_offset: int | None = None) -> Tensor:
    """Elements at places that strides name, as a view: element (i, j, ...) is number storage_offset + i stride[0] + j stride[1] + ... of
    the tensor's elements, counted with the last axis innermost. Places may be read several times; their gradients are added.

    Args: size: the result's shape. stride: how many elements further the next one of each axis lies; 0 repeats, a negative one goes back.
        storage_offset: where element (0, 0, ...) is; by default at the first.
    Errors: ShapeError for places outside of the tensor, and for another number of strides than of axes
    Numerics: PyTorch counts places in memory, where a view of another tensor (`x.T`, `x[:, 1:]`) has other neighbours: here what a tensor
        is does not depend on how it lies in memory. `x.T` counts as `x.T.contiguous()` does there.

    >>> from tengen import functional as F
    >>> F.as_strided(F.arange(6), (3, 3), (1, 1)).tolist()
    [[0.0, 1.0, 2.0], [1.0, 2.0, 3.0], [2.0, 3.0, 4.0]]
    """
    x = dispatch.tensor(inp)
    sizes = (size,) if isinstance(size, int) else tuple(size)
    return strided(reshape(x, (-1,)), sizes, (stride,) if isinstance(stride, int) else tuple(stride), storage_offset or 0)


as_strided.reference(lambda x, size, stride, storage_offset=0: _np_strided(x.reshape(-1), size, stride, storage_offset))
as_strided.cases(
    Case(lambda r: (r.uniform(-1, 1, (3, 5)),), {"size": (3, 3), "stride": (5, 1), "storage_offset": 1}),
    Case(lambda r: (r.uniform(-1, 1, (3, 5)),), {"size": (7, 3), "stride": (2, 1)}),
)
