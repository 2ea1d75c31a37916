"""Images of another size by a filter along each axis: `resample`. As wide as what a pixel covers, it leaves nothing out, so nothing is
aliased.

Rows first, then columns: each pass is a weighted sum of taps (`tap_sum`), whose places are integers and whose weights are fractions of
integers, computed in float64 and rounded once.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from tengen import kernels
from tengen.base.dtype import DType, float32, float64, int16, int64
from tengen.base.errors import ArgumentError, ShapeError
from tengen.ir.types import Dim
from tengen.kernels.pixels import MOST_CHANNELS
from tengen.loops import lang
from tengen.loops.lang import LANES, as_int, cdiv
from tengen.ops.attributes import Shape
from tengen.ops.define import Case, composite
from tengen.ops.division import floor_div
from tengen.ops.elementwise import abs as abs_
from tengen.ops.elementwise import add, astype, div, fma, maximum, minimum, mul, sub, where
from tengen.ops.joining import stack
from tengen.ops.logic import bitwise_and, equal, less, right_shift
from tengen.ops.reduce import extent, sum_
from tengen.ops.shape import permute, reshape, strided_slice
from tengen.ops.vision_coords import (
    CUBIC_GAIN,
    as_pixels,
    as_pixels_read,
    computed_in,
    iota,
    taps_between,
    weights_for,
    window_between,
)
from tengen.ops.vision_taps import tap_sum, window_sums

if TYPE_CHECKING:
    from tengen.tensor import Tensor

REACH_PIXELS = {"linear": 1, "cubic": 2}  # pixels on each side that a filter reaches where an image keeps its size
MOST_BLOCK_TAPS = 9  # pixels of a block that are read as views
SHARPNESS = -0.5  # Keys' parameter a of the antialiased "cubic", as in PyTorch and Pillow


@composite(functional="vision")
def resample(
    inp: Tensor, size: Shape, filter: Literal["area", "linear", "cubic"] = "linear", format: Literal["NCHW", "NHWC"] = "NCHW",
    antialias: bool = True,
) -> Tensor:  # fmt: skip
    """An image of another size, in which each pixel is a mean of all that it covers.

    Shapes:   (N, C, H, W) -> (N, C, *size); with format="NHWC" (N, H, W, C) -> (N, *size, C)
    Args:     filter: "linear" and "cubic": a triangle, or Keys' cubic with a = -0.5, as wide as the step between pixels, which is PyTorch's
        antialias=True. "area": the mean over the rectangle that a pixel covers, OpenCV's INTER_AREA, for images that become smaller.
        antialias: False: "linear" and "cubic" (then with a = -0.75) reach one or two pixels to each side, as those of `interpolate`.
    Returns:  inp's dtype; integers of up to 16 bits are computed in float32 and rounded once, at the end, halves to even
    Numerics: weights are rounded once; then a product and an fma for each further pixel: down the columns first, then along the rows.
        PyTorch and OpenCV round integers in between, and differ by 1 at most
    Errors:   ShapeError for other ranks, ArgumentError for "area" with a larger size

    >>> from tengen import Tensor, functional as F
    >>> F.vision.resample(Tensor([[[[1.0, 3.0, 5.0, 7.0]]]]), (1, 2), "area").tolist()
    [[[[2.0, 6.0]]]]
    """
    x, (h, w) = as_pixels_read(inp), size
    if (blocks := _in_blocks(x, (h, w), filter, format, antialias)) is not None:
        return blocks
    if format == "NHWC":
        n, rows, columns, c = x.shape
        if filter == "linear" and not antialias and few_beside_each_other(x, (h, w)):
            return as_pixels(in_windows(x, (h, w), "linear", False), inp.dtype)
        down = _along(reshape(x, (n, rows, columns * c)), h, filter, antialias)  # rows as long as they lie in memory
        return reshape(_along(reshape(down, (n * h, columns, c)), w, filter, antialias, inp.dtype), (n, h, w, c))
    n, c, rows, columns = x.shape
    down = _along(reshape(x, (n * c, rows, columns)), h, filter, antialias)
    return reshape(_along(reshape(down, (n * c * h, columns, 1)), w, filter, antialias, inp.dtype), (n, c, h, w))


def _in_blocks(x: Tensor, size: Sequence[Dim], filter: str, format: str, antialias: bool) -> Tensor | None:
    """`resample` of integers, where each pixel is one of few pixels of a block of its own, of whole steps: they are read as so
    many views of the image. None elsewhere, and where channels that lie beside each other are neither few nor many. (Floats have
    gradients, whose zeros would have other signs.)"""
    if x.dtype.is_float:
        return None
    first = 1 if format == "NHWC" else 2
    steps = [whole_step(n, out) for n, out in zip(x.shape[first : first + 2], size)]
    rows, columns = (_block_taps(step, filter, antialias) for step in steps)
    beside = as_int(x.shape[3]) if format == "NHWC" else 1
    if not rows or not columns or len(rows) * len(columns) > MOST_BLOCK_TAPS or beside is None:
        return None
    if LANES > beside and beside * (steps[1] or 0) > MOST_CHANNELS:
        return None
    shape: list[Dim] = [*x.shape[:first], size[0], steps[0] or 1, size[1], steps[1] or 1, *x.shape[first + 2 :]]
    blocks, result = reshape(x, shape), (*x.shape[:first], *size, *x.shape[first + 2 :])

    def pixels(row: int, column: int, d: DType) -> Tensor:
        starts, sizes = [0] * 6, list(shape)
        starts[first + 1], starts[first + 3], sizes[first + 1], sizes[first + 3] = row, column, 1, 1
        return astype(reshape(strided_slice(blocks, starts, sizes, (1,) * 6), result), d)

    taps = len(rows) * len(columns)
    if x.dtype.bits == 8 and taps & taps - 1 == 0:  # float32 holds such a mean exactly, and so do 16 bits its sum
        return astype(_mean([pixels(i, j, int16) for j, _ in columns for i, _ in rows]), x.dtype)
    return as_pixels(_weighted([(_weighted([(pixels(i, j, float32), u) for i, u in rows]), v) for j, v in columns]), x.dtype)


def _mean(terms: Sequence[Tensor]) -> Tensor:
    """The mean of 2^m integers as an integer, halves to even."""
    total, m = functools.reduce(add, terms), len(terms).bit_length() - 1
    if m == 0:
        return total
    odd = bitwise_and(right_shift(total, m), 1)
    return right_shift(add(add(total, odd), (1 << m - 1) - 1), m)


def _weighted(terms: Sequence[tuple[Tensor, float]]) -> Tensor:
    """The sum of terms, each times its weight, as `tap_sum` computes it."""
    (x, w), *others = terms
    total = mul(x, w)
    for x, w in others:
        total = fma(x, w, total)
    return total


def whole_step(n: Dim, out: Dim) -> int | None:
    """How many of n pixels each of `out` stands for, if that is known and whole."""
    return n // out if isinstance(n, int) and isinstance(out, int) and out and n % out == 0 else None


def _block_taps(step: int | None, filter: str, antialias: bool) -> list[tuple[int, float]]:
    """(place in a block of `step` pixels, weight) of the taps along an axis, if they are the same in each block and lie inside; else none."""
    if step is None:
        return []
    if filter == "area":
        return [(i, 1 / step) for i in range(step)]
    if filter == "linear" and not antialias and step % 2 == 0:  # half-way between two pixels
        return [(step // 2 - 1, 0.5), (step // 2, 0.5)]
    return []


def few_beside_each_other(x: Tensor, size: Sequence[Dim]) -> bool:
    """Whether a picture (N, H, W, C) of few channels gets a size that is known: the kernel of `window_sums` is for these."""
    known = all(isinstance(n, int) for n in (*x.shape[1:], *size))
    return known and 0 < (as_int(x.shape[3]) or 0) <= kernels.indexing.window_kernels.MOST_WINDOW_CHANNELS


def in_windows(x: Tensor, size: Sequence[Dim], filter: str, joint: bool, align_corners: bool = False) -> Tensor:
    """(N, H, W, C) -> (N, *size, C) by filters that reach one or two pixels. joint: see `window_sums`."""
    d, windows = computed_in(x.dtype), []
    for n, out in zip(x.shape[1:3], size):
        first, weights = window_between(n, out, filter, align_corners, d)
        windows += [first, weights_for(x, stack(weights, 0))]
    return window_sums(x, *windows, joint=joint)


def _along(x: Tensor, out: Dim, filter: str, antialias: bool, result: DType | None = None) -> Tensor:
    """(M, N, C) -> (M, out, C), as pixels of the dtype `result` where it is given."""
    d = computed_in(x.dtype)
    if antialias:
        index, weight = _taps(x.shape[1], out, filter, d)
    else:
        taps = taps_between(x.shape[1], out, "bicubic" if filter == "cubic" else filter, False, d)
        index, weight = (reshape(stack(list(t), 0), (1, len(t), out)) for t in taps)
    y = tap_sum(permute(x, (0, 2, 1)), None, index, weights_for(x, weight))
    return permute(y if result is None else as_pixels(y, result), (0, 2, 1))


def _span(n: Dim, out: Dim, filter: str) -> tuple[Dim, Dim, Dim, Dim]:
    """(first, step, below, wide): the first pixel that a result i may need is (first + i step) // below, which may lie before the image.
    It needs `wide` pixels from there on at most."""
    least = 1 if as_int(out) == 0 else out
    if filter == "area":
        whole = isinstance(n, int) and isinstance(least, int) and n % least == 0  # then no result shares a pixel with the next
        return 0, n, least, cdiv(n, least) + (0 if whole else 1)
    reach = REACH_PIXELS[filter] * _larger(n, out)
    return n - 2 * reach + out, 2 * n, 2 * least, 4 * reach // (2 * least) + 1


def _taps(n: Dim, out: Dim, filter: str, d: DType) -> tuple[Tensor, Tensor]:
    """The taps along an axis: (index, weight), both (1, T, out). Places are integers, weights fractions of them."""
    first, step, below, wide = _span(n, out, filter)
    many = _larger(_smaller(wide, n), 1)
    i = reshape(iota(out), (1, out))
    start = floor_div(add(mul(i, extent(step, int64)), extent(first, int64)), extent(below, int64))
    j = add(maximum(start, 0), reshape(iota(many), (many, 1)))
    weight = where(less(j, extent(n, int64)), _weight(j, i, n, out, filter), 0.0)
    index = where(equal(weight, 0.0), -1, j)  # a NaN beside a pixel is none of its own
    weight = astype(div(weight, sum_(weight, 0, True)), d)
    return reshape(index, (1, many, out)), reshape(weight, (1, many, out))


def _weight(j: Tensor, i: Tensor, n: Dim, out: Dim, filter: str) -> Tensor:
    """The weight of pixel j for the result i, before it is divided by the sum of all."""
    pixels, results = extent(n, int64), extent(out, int64)
    if filter == "area":  # what they share, in parts of a pixel of which there are `out` in one
        end, begin = minimum(mul(add(j, 1), results), mul(add(i, 1), pixels)), maximum(mul(j, results), mul(i, pixels))
        return astype(maximum(sub(end, begin), 0), float64)
    apart = sub(mul(add(mul(j, 2), 1), results), mul(add(mul(i, 2), 1), pixels))
    x = abs_(div(astype(apart, float64), extent(2 * _larger(n, out), float64)))
    if filter == "linear":
        return maximum(sub(1.0, x), 0.0)
    a = SHARPNESS
    near = fma(mul(x, x), sub(mul(x, a + 2), a + 3), 1.0)
    far = mul(sub(mul(add(mul(sub(x, 5.0), x), 8.0), x), 4.0), a)
    return where(less(x, 1.0), near, where(less(x, 2.0), far, 0.0))


def _larger(a: Dim, b: Dim) -> Dim:
    return max(a, b) if isinstance(a, int) and isinstance(b, int) else lang.maximum(a, b)


def _smaller(a: Dim, b: Dim) -> Dim:
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else lang.minimum(a, b)


@resample.canon
def _(types, size, filter, format, antialias):
    x = types[0]
    if x.ndim != 4:
        raise ShapeError(f"takes images ({', '.join(format)}), got {x}")
    size = tuple(size) * 2 if len(size) == 1 else tuple(size)
    space = x.shape[2:] if format == "NCHW" else x.shape[1:3]
    if len(size) != 2:
        raise ShapeError(f"size={size} must be one or two extents, for {x}")
    if any(as_int(a) == 0 and as_int(b) != 0 for a, b in zip(space, size)):
        raise ShapeError(f"an image without pixels, {x}, cannot be enlarged to {size}")
    if filter == "area" and any(b > a for a, b in zip(space, size)):
        raise ArgumentError(f"filter='area' makes images smaller, not {x} to {size}; help: 'linear'")
    if filter == "area" and not antialias:
        raise ArgumentError("antialias=False has no meaning for filter='area', the mean of all that a pixel covers; help: leave it out")
    return {"size": size, "filter": filter, "format": format, "antialias": antialias}


# ---- reference and samples -------------------------------------------------------------------------------------------


def _np_weights(n, out, filter, antialias):
    """The (out, n) matrix of one axis, from the filters' definitions."""
    m = np.zeros((out, n))
    scale = n / out
    if not antialias:
        return _np_narrow(m, scale, filter)
    for o in range(out):
        for j in range(n):
            if filter == "area":
                m[o, j] = max(0.0, min(j + 1, (o + 1) * scale) - max(j, o * scale))
                continue
            x = abs(j + 0.5 - (o + 0.5) * scale) / max(scale, 1.0)
            if filter == "linear":
                m[o, j] = max(0.0, 1 - x)
            else:
                a = SHARPNESS
                m[o, j] = (a + 2) * x**3 - (a + 3) * x**2 + 1 if x < 1 else a * (x**3 - 5 * x**2 + 8 * x - 4) if x < 2 else 0.0
    return m / m.sum(1, keepdims=True) if n else m


def _np_narrow(m, scale, filter):
    """The same for filters that reach one or two pixels; what they reach beyond the edge is the last pixel's."""
    reach, a = REACH_PIXELS[filter], CUBIC_GAIN
    for o in range(len(m)):
        middle = (o + 0.5) * scale - 0.5
        for j in range(math.floor(middle) - reach + 1, math.floor(middle) + reach + 1):
            x = abs(j - middle)
            cubic = (a + 2) * x**3 - (a + 3) * x**2 + 1 if x < 1 else a * (x**3 - 5 * x**2 + 8 * x - 4)
            m[o, min(max(j, 0), m.shape[1] - 1)] += cubic if filter == "cubic" else 1 - x
    return m


def np_resample(x, size, filter="linear", format="NCHW", antialias=True):
    """`resample` by the matrices of both axes."""
    first = 2 if format == "NCHW" else 1
    y = x.astype(np.float64)
    for axis, out in zip((first, first + 1), np.broadcast_to(size, 2)):
        y = np.moveaxis(np.tensordot(y, _np_weights(y.shape[axis], int(out), filter, antialias), (axis, 1)), -1, axis)
    return y if x.dtype.kind == "f" else np.clip(np.round(y), np.iinfo(x.dtype).min, np.iinfo(x.dtype).max).astype(x.dtype)


resample.reference(np_resample)
_image = lambda *shape: lambda r: (r.uniform(-1, 1, shape),)
resample.cases(
    Case(_image(2, 3, 9, 7), {"size": (4, 3)}),
    Case(_image(1, 8, 6, 3), {"size": (4, 2), "filter": "area", "format": "NHWC"}),
    Case(_image(1, 2, 7, 11), {"size": (3, 4), "filter": "area"}),
    Case(lambda r: (r.uniform(1, 2, (2, 9, 13, 2)),), {"size": (4, 3), "filter": "cubic", "format": "NHWC"}),
    Case(_image(1, 2, 4, 3), {"size": (7, 5), "filter": "cubic"}),
    Case(_image(1, 1, 1, 1), {"size": (3, 2)}),
    Case(_image(0, 2, 5, 3), {"size": (2, 3)}),
    Case(_image(1, 8, 6, 3), {"size": (4, 9), "format": "NHWC", "antialias": False}),
    Case(_image(2, 3, 5, 4), {"size": (7, 3), "filter": "cubic", "antialias": False}),
)
