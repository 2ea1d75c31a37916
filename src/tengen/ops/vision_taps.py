"""Weighted sums of taps: what interpolation, warping, aligned regions and deformable convolutions share.

In: images as (N, C, P), the pixels in one axis; for each result the places of its taps in that axis, and their weights. Ops that
compute these are in `vision_resize.py`, `vision_warp.py` and `vision_regions.py`; the kernels in `kernels/indexing/taps.py`, and for taps
that are windows of a picture (`window_sums`) in `kernels/indexing/windows.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from tengen import kernels
from tengen.base.dtype import DType, int64
from tengen.base.errors import DTypeError, ShapeError
from tengen.ir.types import Dim, TensorType
from tengen.kernels.axes import memory_order
from tengen.kernels.lowering import Array
from tengen.kernels.source import Leaf
from tengen.loops.lang import as_int
from tengen.ops.attributes import Extent
from tengen.ops.define import Case, Violation, broadcast_shapes, check_floats, composite, differ, primitive
from tengen.ops.elementwise import add, astype, mul, where
from tengen.ops.indexing import outside_range
from tengen.ops.logic import equal, less, logical_or
from tengen.ops.reduce import extent, sum_
from tengen.ops.shape import permute, reshape
from tengen.ops.vision_coords import border, iota
from tengen.ops.widths import rounded_once

if TYPE_CHECKING:
    from tengen.tensor import Tensor


def images_of(x: TensorType, image: TensorType | None, index: TensorType, coordinates: bool = False) -> Dim:
    """How many results there are: one for each image, or for each element of `image`. coordinates: whether places are floats. ShapeError
    where operands do not fit."""
    if coordinates and image is not None and not image.dtype.is_int:
        raise DTypeError(f"numbers of images must be integers, got {image}")
    if not coordinates and (not index.dtype.is_int or (image is not None and not image.dtype.is_int)):
        raise DTypeError(f"places and numbers of images must be integers, got {index}" + ("" if image is None else f" and {image}"))
    if x.ndim != 3 or index.ndim < 2 or (image is not None and image.ndim != 1):
        raise ShapeError(f"takes images (N, C, P) and places (M, T, ...), got {x} and {index}")
    images = x.shape[0] if image is None else image.shape[0]
    one_or_all(index, images, "places")
    if as_int(index.shape[1]) == 0:
        raise ShapeError(f"places without taps: {index}")
    return images


def counts(d: DType) -> bool:
    """Whether an image's elements are integers that float32 holds exactly: they are read as they are, and weighed as floats."""
    return d.is_int and d.bits <= 16


def one_or_all(t: TensorType, images: Dim, what: str) -> None:
    if as_int(t.shape[0]) != 1 and broadcast_shapes((images,), (t.shape[0],)) != (images,):
        raise ShapeError(f"{what} {t} for {images} images")


def _tap_type(x: TensorType, image: TensorType | None, index: TensorType, weight: TensorType) -> TensorType:
    d = check_floats(weight) if counts(x.dtype) else check_floats(x, weight)
    images = images_of(x, image, index)
    if weight.ndim != index.ndim or weight.shape[1:] != index.shape[1:]:
        raise ShapeError(f"weights {weight} for places {index}")
    one_or_all(weight, images, "weights")
    out = TensorType((images, x.shape[1], *index.shape[2:]), d)
    if as_int(x.shape[2]) == 0 or (image is not None and as_int(x.shape[0]) == 0):
        if all(as_int(n) != 0 for n in out.shape):
            raise ShapeError(f"nothing can be read from {x}, which has no elements")
    return out


def bad_images(op: str, image: Tensor | None, count: Any) -> Iterable[Violation]:
    return outside_range(op, image, count, 0) if image is not None else ()


@primitive(own=(1, 2))
def tap_sum(x: Tensor, image: Tensor | None, index: Tensor, weight: Tensor) -> Tensor:
    """out[m, c, *q] = sum over t of weight[m, t, *q] * x[image[m], c, index[m, t, *q]].

    Shapes: x (N, C, P); image (M), or None: m itself; index and weight (M, T, *Q), each also (1, T, *Q): the same for all. Result
        (M, C, *Q).
    Dtypes: x and weight have one float dtype; or x has integers of up to 16 bits, and the result the weights' dtype.
    An index below 0 is a tap outside of the image, which counts as 0.
    Numerics: a product, then T - 1 fma in order of t; float16 and bfloat16 are computed in float32 and rounded once.
    """


tap_sum.infer(_tap_type)


@tap_sum.source
def _(ins, out):
    return kernels.indexing.taps.TapSum(*ins, out.shape[0])


@tap_sum.check
def _(inputs):
    return bad_images("tap_sum", inputs[1], inputs[0].shape[0])


def channels_where_read(x: Array, out: TensorType) -> list[int]:
    """The order of the axes of a result (M, C, *Q) whose channels lie where they are in x (N, C, P)."""
    order = memory_order(x)
    n = len(out.shape)
    return [0, *range(2, n), 1] if order.index(1) > order.index(2) else list(range(n))


tap_sum.layout(lambda arrays, out: channels_where_read(arrays[0], out))


@tap_sum.vjp
def _(g, x, image, index, weight):
    n, _, p = x.shape
    return (
        (lambda: tap_scatter(image, index, weight, g, n, p)),
        None,
        None,
        (lambda: _weights(tap_products(x if x.dtype.is_float else astype(x, g.dtype), image, index, g), weight)),
    )


def _weights(products: Tensor, weight: Tensor) -> Tensor:
    """The gradient of weights that are the same for all images is a sum over these."""
    shared = as_int(weight.shape[0]) == 1 and as_int(products.shape[0]) != 1
    return sum_(products, 0, True) if shared else products


@primitive(own=(0, 1))
def tap_scatter(image: Tensor | None, index: Tensor, weight: Tensor, grad: Tensor, images: Extent, pixels: Extent) -> Tensor:
    """The gradient of `tap_sum` with respect to x: zeros (images, C, pixels), to which weight[m, t, *q] * grad[m, c, *q] is added at
    [image[m], c, index[m, t, *q]] in order of (m, *q, t), each by one fma."""


@tap_scatter.infer
def _(image, index, weight, grad, images, pixels):
    if grad.ndim != index.ndim:
        raise ShapeError(f"a gradient {grad} for places {index}")
    x = TensorType((images, grad.shape[1], pixels), grad.dtype)
    want = _tap_type(x, image, index, weight).shape
    if broadcast_shapes(want, grad.shape) != tuple(want) or tuple(grad.shape) != tuple(want):
        raise ShapeError(f"a gradient {grad}, where {want} is expected")
    return TensorType(x.shape, check_floats(grad, weight))


@tap_scatter.lower
def _(lo, ins, outs, images, pixels):
    kernels.indexing.taps.scatter_taps(lo, *(None if a is None else Leaf(a) for a in ins), outs[0])


@tap_scatter.check
def _(inputs, images, pixels):
    return bad_images("tap_scatter", inputs[0], images)


@tap_scatter.layout
def _(arrays, out, images, pixels):
    """The channels where they are in the gradient."""
    order = memory_order(arrays[3])
    return [0, 2, 1] if order[-1] == 1 and len(order) > 2 else [0, 1, 2]


@tap_scatter.vjp
def _(g, image, index, weight, grad, images, pixels):
    return (
        None,
        None,
        (lambda: _weights(tap_products(g, image, index, grad), weight)),
        (lambda: tap_sum(g, image, index, weight)),
    )


@primitive(own=(1, 2))
def tap_products(x: Tensor, image: Tensor | None, index: Tensor, grad: Tensor) -> Tensor:
    """The gradient of `tap_sum` with respect to weights: out[m, t, *q] = sum over c of grad[m, c, *q] * x[image[m], c, index[m, t, *q]]."""


@tap_products.infer
def _(x, image, index, grad):
    images = images_of(x, image, index)
    if tuple(grad.shape) != (images, x.shape[1], *index.shape[2:]):
        raise ShapeError(f"a gradient {grad} of {x} read at {index}")
    out = TensorType((images, *index.shape[1:]), check_floats(x, grad))
    if as_int(x.shape[2]) == 0 and all(as_int(n) != 0 for n in (*out.shape, x.shape[1])):
        raise ShapeError(f"nothing can be read from {x}, which has no elements")
    return out


@tap_products.lower
def _(lo, ins, outs):
    x, image, index, g = (None if a is None else Leaf(a) for a in ins)
    source = kernels.indexing.taps.TapProducts(x, image, index, g, outs[0].shape[0])
    kernels.reduction.reduce.reduce(lo, "add", source, outs[0], (1,), name="tap_products")


@tap_products.check
def _(inputs):
    return bad_images("tap_products", inputs[1], inputs[0].shape[0])


@tap_products.vjp
def _(g, x, image, index, grad):
    n, _, p = x.shape
    return (lambda: tap_scatter(image, index, g, grad, n, p)), None, None, (lambda: tap_sum(x, image, index, g))


# ---- windows -----------------------------------------------------------------------------------------------------------


@primitive(own=(1, 3))
def window_sums(x: Tensor, row: Tensor, row_weight: Tensor, column: Tensor, column_weight: Tensor, joint: bool) -> Tensor:
    """out[n, i, j, c] = sum over t, s of row_weight[t, i] * column_weight[s, j] * x[n, row[i] + t, column[j] + s, c].

    Shapes: x (N, H, W, C), row (PH), row_weight (T, PH), column (PW), column_weight (S, PW). Result (N, PH, PW, C).
    Dtypes: as in `tap_sum`.
    A place outside of the picture is that of the nearest pixel. A float whose weight along an axis is 0 counts as 0, even if it is a NaN.
    Numerics: a product, then an fma for each further pixel. joint: the weights are multiplied first, and the sum goes along the window's rows,
        one after the other. Otherwise its columns are summed down first, and then these sums, each with one weight.
    """


@window_sums.infer
def _(x, row, row_weight, column, column_weight, joint):
    d = check_floats(row_weight, column_weight) if counts(x.dtype) else check_floats(x, row_weight, column_weight)
    if not row.dtype.is_int or not column.dtype.is_int:
        raise DTypeError(f"places must be integers, got {row} and {column}")
    if x.ndim != 4 or row.ndim != 1 or column.ndim != 1:
        raise ShapeError(f"takes pictures (N, H, W, C) and places (PH), (PW), got {x}, {row} and {column}")
    for first, weight in ((row, row_weight), (column, column_weight)):
        if weight.ndim != 2 or not as_int(weight.shape[0]) or differ(weight.shape[1], first.shape[0]):
            raise ShapeError(f"weights {weight} for places {first}, must have a known number of taps for each")
    out = TensorType((x.shape[0], row.shape[0], column.shape[0], x.shape[3]), d)
    if any(as_int(n) == 0 for n in x.shape[1:3]) and all(as_int(n) != 0 for n in out.shape):
        raise ShapeError(f"nothing can be read from {x}, which has no pixels")
    return out


def _known(arrays, joint):
    """The taps of each axis, loops over which are unrolled."""
    return {arrays[2].shape[0], arrays[4].shape[0]}


window_sums.known(_known)


@window_sums.source
def _(ins, out, joint):
    return kernels.indexing.windows.Windows(*ins, joint)


@composite
@rounded_once
def window_sums_of_taps(x: Tensor, row: Tensor, row_weight: Tensor, column: Tensor, column_weight: Tensor, joint: bool) -> Tensor:
    """What `window_sums` gives, as sums of taps: its gradients are those of this."""
    n, h, w, c = x.shape
    floats = x.dtype.is_float
    (i, u), (j, v) = _window(row, row_weight, h, floats), _window(column, column_weight, w, floats)
    if joint:
        (t, high), (s, wide) = u.shape, v.shape
        i, j, u, v = reshape(i, (t, 1, high, 1)), reshape(j, (s, 1, wide)), reshape(u, (t, 1, high, 1)), reshape(v, (s, 1, wide))
        index = where(logical_or(less(i, 0), less(j, 0)), -1, add(mul(i, extent(w, int64)), j))
        flat = (1, as_int(t) * as_int(s), high, wide)
        y = tap_sum(reshape(permute(x, (0, 3, 1, 2)), (n, c, h * w)), None, reshape(index, flat), reshape(mul(u, v), flat))
        return permute(y, (0, 2, 3, 1))
    high, wide = row.shape[0], column.shape[0]
    down = _one_axis(reshape(x, (n, h, w * c)), i, u)
    return reshape(_one_axis(reshape(down, (n * high, w, c)), j, v), (n, high, wide, c))


def _one_axis(x: Tensor, index: Tensor, weight: Tensor) -> Tensor:
    """(M, N, C) -> (M, P, C), by taps (T, P)."""
    index, weight = (reshape(a, (1, *a.shape)) for a in (index, weight))
    return permute(tap_sum(permute(x, (0, 2, 1)), None, index, weight), (0, 2, 1))


def _window(first: Tensor, weight: Tensor, n: Dim, floats: bool) -> tuple[Tensor, Tensor]:
    """The taps along an axis of n pixels, as `tap_sum` takes them: (index, weight), both (T, P)."""
    many = as_int(weight.shape[0]) or 0
    at = border(add(reshape(astype(first, int64), (1, -1)), reshape(iota(many), (many, 1))), n, "replicate")
    return (where(equal(weight, 0.0), -1, at) if floats else at), weight


window_sums.same(window_sums_of_taps)
window_sums_of_taps.known(_known)


# ---- references and samples ------------------------------------------------------------------------------------------


def _np_taps(x, image, index):
    """(which image, places, whether inside) for each (m, c, t, *q), in a form that indexes x."""
    m = np.arange(x.shape[0]) if image is None else image
    index = np.broadcast_to(index, (len(m), *index.shape[1:]))[:, None]
    lead = (slice(None), *(None,) * (index.ndim - 1))
    c = np.arange(x.shape[1]).reshape(1, -1, *(1,) * (index.ndim - 2))
    return (m[lead], c, np.maximum(index, 0)), index >= 0


def _np_tap_sum(x, image, index, weight):
    at, inside = _np_taps(x, image, index)
    return (np.where(inside, x[at], 0) * weight[:, None]).sum(2)


def _np_tap_scatter(image, index, weight, grad, images, pixels):
    out = np.zeros((images, grad.shape[1], pixels))
    at, inside = _np_taps(out, image, index)
    np.add.at(out, at, np.where(inside, weight[:, None] * grad[:, :, None], 0))
    return out


def _np_tap_products(x, image, index, grad):
    at, inside = _np_taps(x, image, index)
    return (np.where(inside, x[at], 0) * grad[:, :, None]).sum(1)


def _np_window_sums(x, row, row_weight, column, column_weight, joint):
    y = x.astype(np.float64)
    for axis, first, weight in ((1, row, row_weight), (2, column, column_weight)):
        y = sum(
            np.moveaxis(w * np.moveaxis(np.take(y, np.clip(first + t, 0, x.shape[axis] - 1), axis), axis, -1), -1, axis)
            for t, w in enumerate(weight)
        )
    return y


tap_sum.reference(_np_tap_sum)
for _op in (window_sums, window_sums_of_taps):
    _op.reference(_np_window_sums)
tap_scatter.reference(_np_tap_scatter)
tap_products.reference(_np_tap_products)


def _sampled(n, c, p, m, t, *q, shared=False, images=False):
    def inputs(r):
        lead = 1 if shared else m
        x, index, weight = r.normal(size=(n, c, p)), r.integers(-1, p, (lead, t, *q)), r.uniform(-1, 1, (lead, t, *q))
        return x, r.integers(0, n, m) if images else None, index, weight, r.normal(size=(m, c, *q))

    return inputs


_SAMPLES = [
    _sampled(2, 3, 20, 2, 4, 3, 5),
    _sampled(2, 17, 6, 2, 2, 18),
    _sampled(3, 2, 9, 3, 1, 4, shared=True),
    _sampled(2, 3, 8, 5, 18, 2, 2, images=True),
    _sampled(2, 3, 8, 4, 2, images=True),
    _sampled(0, 3, 8, 0, 2, 3),
]
tap_sum.cases(*(Case(lambda r, f=f: f(r)[:4]) for f in _SAMPLES))
tap_products.cases(*(Case(lambda r, f=f: (*f(r)[:3], f(r)[4])) for f in _SAMPLES))
tap_scatter.cases(
    *(Case(lambda r, f=f: f(r)[1:], {"images": n, "pixels": p}) for f, n, p in zip(_SAMPLES, (2, 2, 3, 2, 2, 0), (20, 6, 9, 8, 8, 8)))
)


def _pictures(n, h, w, c, high, wide, t, s):
    return Case(
        lambda r: (
            r.normal(size=(n, h, w, c)), r.integers(-t, h + 1, high), r.uniform(0.5, 1, (t, high)),
            r.integers(-s, w + 1, wide), r.uniform(0.5, 1, (s, wide)),
        ),
        {"joint": c == 3},
    )  # fmt: skip


for _op in (window_sums, window_sums_of_taps):
    _op.cases(
        _pictures(2, 5, 7, 3, 4, 6, 2, 2), _pictures(1, 4, 6, 2, 7, 9, 2, 2), _pictures(1, 6, 5, 4, 3, 5, 1, 3),
        _pictures(0, 3, 3, 3, 2, 2, 2, 2),
    )  # fmt: skip
