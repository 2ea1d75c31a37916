"""From coordinates to taps: along each axis of an image, the pixels that a coordinate lies between, and their weights.

In: coordinates in pixels (0 is the middle of the first pixel), or numbers of rows and columns. Out: for each axis an index and a
weight of each tap, as tensors in which taps are an axis; `grid` multiplies the axes out for `tap_sum`. All of it is written in
ops, so gradients with respect to coordinates are those of the weights.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tengen.base.dtype import DType, float32, int32, int64, promote
from tengen.base.errors import DTypeError
from tengen.ir.types import Dim
from tengen.loops.lang import as_int
from tengen.ops.creation import arange, ones_like
from tengen.ops.division import floor_div, mod
from tengen.ops.elementwise import add, astype, div, floor, fma, maximum, minimum, mul, round, sub, where
from tengen.ops.joining import concat, stack
from tengen.ops.logic import equal, greater_equal, less, logical_or
from tengen.ops.reduce import extent
from tengen.ops.shape import reshape
from tengen.ops.widths import widened

if TYPE_CHECKING:
    from tengen.tensor import Tensor

CUBIC_GAIN = -0.75  # Keys' parameter a, as in MegEngine and PyTorch


def computed_in(*dtypes: DType) -> DType:
    """The dtype of coordinates and weights beside images of these dtypes: float32, or float64 where one of them is."""
    d = float32
    for other in dtypes:
        d = promote(d, other) if other.is_float else d
    return d


def as_pixels_read(x: Tensor) -> Tensor:
    """An image that `tap_sum` reads: integers of up to 16 bits as they are, float16 and bfloat16 as float32, which holds them exactly."""
    if x.dtype.is_float:
        return widened(x)
    if not x.dtype.is_int or x.dtype.bits > 16:
        raise DTypeError(f"takes images of floats or of integers of up to 16 bits, got {x.dtype}; help: cast it to 'float32'")
    return x


def weights_for(x: Tensor, weight: Tensor) -> Tensor:
    """Weights in the dtype in which an image that `as_pixels_read` gave is weighed: its own, or float32 for integers."""
    d = x.dtype if x.dtype.is_float else float32
    return weight if weight.dtype is d else astype(weight, d)


def as_pixels(x: Tensor, d: DType) -> Tensor:
    """What was computed for an image of dtype `d`: rounded to `d`; integers are the nearest ones in their range."""
    if d.is_float:
        return x if d.compute is d else astype(x, d)
    return astype(round(x), d)


def border(i: Tensor, n: Dim, mode: str) -> Tensor:
    """Pixel numbers brought into [0, n) as the border mode says; "constant": -1, a tap that counts as 0."""
    size, top = extent(n, i.dtype), extent(n - 1, i.dtype)
    if mode == "constant":
        return where(logical_or(less(i, 0), greater_equal(i, size)), -1, i)
    if mode == "wrap":
        return mod(i, size)
    if mode == "replicate":
        return minimum(maximum(i, 0), top)
    period = mul(size, 2) if mode == "reflect" else maximum(mul(top, 2), 1)
    turn = sub(period, 1) if mode == "reflect" else period
    folded = mod(i, period)
    return where(less(folded, size), folded, sub(turn, folded))


def cubic_weights(f: Tensor) -> list[Tensor]:
    """The weights of the pixels at -1, 0, 1, 2 for a coordinate f in [0, 1): Keys' cubic convolution.

    Source: Keys, "Cubic convolution interpolation for digital image processing", 1981
    """
    a = CUBIC_GAIN
    near = lambda x: fma(mul(x, x), sub(mul(x, a + 2), a + 3), 1.0)  # |x| <= 1: ((a + 2) x - (a + 3)) x^2 + 1
    far = lambda x: mul(sub(mul(add(mul(sub(x, 5.0), x), 8.0), x), 4.0), a)  # 1 < |x| < 2: a (((x - 5) x + 8) x - 4)
    g = sub(1.0, f)
    return [far(add(f, 1.0)), near(f), near(g), far(add(g, 1.0))]


def taps_at(c: Tensor, n: Dim, mode: str, interp: str) -> tuple[list[Tensor], list[Tensor]]:
    """The taps along an axis of n pixels at coordinates c, by a border mode and "nearest" (halves to even), "linear" or "cubic".

    A coordinate that is NaN (or infinite, where the border mode repeats the image) makes its weights NaN.
    """
    if mode == "replicate" and interp != "cubic":
        c = minimum(maximum(c, 0.0), astype(extent(n - 1, int64), c.dtype))
    elif mode in ("constant", "replicate"):  # beyond this everything is border
        c = minimum(maximum(c, -3.0), astype(extent(n + 2, int64), c.dtype))
    first = round(c) if interp == "nearest" else floor(c)
    bounded = mode in ("constant", "replicate") and small(n)  # else a coordinate may be any float
    i, f = astype(first, int32 if bounded else int64), sub(c, first)
    if interp == "nearest":
        return [border(i, n, mode)], [add(sub(first, first), 1.0)]
    if interp == "linear":
        return [border(i, n, mode), border(add(i, 1), n, mode)], [sub(1.0, f), f]
    return [border(add(i, o), n, mode) for o in (-1, 0, 1, 2)], cubic_weights(f)


def taps_between(n: Dim, out: Dim, mode: str, align_corners: bool, d: DType) -> tuple[list[Tensor], list[Tensor]]:
    """The taps along an axis of n pixels for `out` pixels that are spread over it evenly. Where a pixel lies is a fraction of integers,
    which is exact; it is rounded once, to a weight of dtype d."""
    step, many = iota(out), extent(out, int64)
    if mode == "nearest":
        return [floor_div(mul(step, extent(n, int64)), many)], [ones_like(step, d)]
    if mode == "nearest-exact":
        return [floor_div(mul(add(mul(step, 2), 1), extent(n, int64)), mul(many, 2))], [ones_like(step, d)]
    first, weights = window_between(n, out, mode, align_corners, d)
    places = [border(add(first, o), n, "replicate") for o in range(len(weights))]
    return [where(equal(w, 0.0), -1, p) for p, w in zip(places, weights)], weights  # a NaN beside a pixel is none of its own


def window_between(n: Dim, out: Dim, mode: str, align_corners: bool, d: DType) -> tuple[Tensor, list[Tensor]]:
    """The same for "linear" and "cubic" modes, whose taps lie beside each other: the first one, which may be before the image, and the
    weights of all."""
    step, many = iota(out), extent(out, int64)
    if align_corners:
        upper, lower = mul(step, extent(n - 1, int64)), maximum(sub(many, 1), 1)
    else:
        upper, lower = sub(mul(add(mul(step, 2), 1), extent(n, int64)), many), mul(many, 2)
    if mode != "bicubic":  # what lies beyond the middle of a last pixel has its value
        upper = minimum(maximum(upper, 0), mul(lower, extent(n - 1, int64)))
    i = floor_div(upper, lower)
    f = div(astype(sub(upper, mul(i, lower)), d), astype(lower, d))
    return (sub(i, 1), cubic_weights(f)) if mode == "bicubic" else (i, [sub(1.0, f), f])


def small(n: Dim) -> bool:
    """Whether numbers of so many pixels are known to be far within int32, in which twice as many are computed at a time as in int64."""
    return 0 <= (as_int(n) or -1) < 1 << 30


def iota(n: Dim) -> Tensor:
    """0, 1, ... n - 1."""
    return arange(0, n, 1, int64)


def grid(taps: Sequence[tuple[list[Tensor], list[Tensor]]], sizes: Sequence[Dim]) -> tuple[Tensor, Tensor]:
    """The taps of all axes multiplied out: (index, weight), both (M, T, *Q), for images whose pixels are flattened.

    Args:
        taps: of each axis, outermost first, with shapes (M, *Q) that are broadcast together. sizes: the image's extents along them.
    """
    index = weight = outside = None
    d = int32 if small(math.prod(sizes)) and all(i.dtype is int32 for indices, _ in taps for i in indices) else int64
    for axis, ((indices, weights), n) in enumerate(zip(taps, sizes)):
        many, own = [1] * len(taps), indices[0].shape
        many[axis] = len(indices)
        i, w = (reshape(stack(list(s), 1), (own[0], *many, *own[1:])) for s in (indices, weights))
        out = less(i, 0)
        outside = out if outside is None else logical_or(outside, out)
        i = i if i.dtype is d else astype(i, d)
        index = i if index is None else add(mul(index, extent(n, d)), i)
        weight = w if weight is None else mul(weight, w)
    shape = weight.shape
    flat = [shape[0], math.prod(len(indices) for indices, _ in taps), *shape[1 + len(taps) :]]
    return reshape(where(outside, -1, index), flat), reshape(weight, flat)


def tap_by_tap(taps: Sequence[tuple[list[Tensor], list[Tensor]]], sizes: Sequence[Dim], inside: bool) -> tuple[Tensor, Tensor]:
    """What `grid` gives for taps that have an axis for their number, (M, 1, *Q), and differ in all of Q along each axis: the places and
    weights of few taps are then computed from the coordinates by one kernel each.

    Args:
        inside: whether no tap is outside of the image.
    """
    places, parts = [], []
    d = int32 if small(math.prod(sizes)) and all(i.dtype is int32 for indices, _ in taps for i in indices) else int64
    for tap in itertools.product(*(list(zip(indices, weights)) for indices, weights in taps)):
        (index, part), *others = tap
        outside = less(index, 0)
        index = index if index.dtype is d else astype(index, d)
        for (i, w), n in zip(others, sizes[1:]):
            outside = logical_or(outside, less(i, 0))
            index, part = add(mul(index, extent(n, d)), i if i.dtype is d else astype(i, d)), mul(part, w)
        places.append(index if inside else where(outside, -1, index))
        parts.append(part)
    return concat(places, 1), concat(parts, 1)
