"""Images of another size: `interpolate`, in which each pixel is a weighted sum of those that lie around it."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from tengen.base.dtype import DType
from tengen.base.errors import ArgumentError, ShapeError, Undecided
from tengen.loops.lang import as_int
from tengen.ops.attributes import Shape
from tengen.ops.define import Case, composite
from tengen.ops.indexing import index as pixels_at
from tengen.ops.shape import permute, reshape, strided_slice
from tengen.ops.vision_coords import CUBIC_GAIN, as_pixels, as_pixels_read, computed_in, grid, taps_between, weights_for
from tengen.ops.vision_resample import few_beside_each_other, in_windows, np_resample, resample, whole_step
from tengen.ops.vision_taps import tap_sum

if TYPE_CHECKING:
    from tengen.tensor import Tensor

EXACT_PARTS = 1 << 16  # parts of a factor whose product with an extent below 2^37 a float holds exactly
MOST_PIXELS = 1 << 16  # of an open extent that is multiplied with another factor
FILTERS: dict[str, Literal["linear", "cubic"]] = {"bilinear": "linear", "bicubic": "cubic"}  # of `resample`, by mode
SPACE_EXTENT_COUNTS = {"linear": 1, "bilinear": 2, "bicubic": 2, "trilinear": 3}


@composite(functional="vision nn")
def interpolate(
    inp: Tensor,
    size: Shape | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: Literal["nearest", "nearest-exact", "linear", "bilinear", "trilinear", "bicubic"] = "bilinear",
    align_corners: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """An image made larger or smaller.

    Shapes:   (N, C, L), (N, C, H, W) or (N, C, D, H, W) -> (N, C, *size)
    Args:
        size: the extents of the result, a number stands for all of them; or scale_factor: what they are divided by those of `inp`,
            rounded down.
        mode: "nearest" (the pixel at floor(i n / size)), "nearest-exact" (of the pixel's middle), "linear" for one axis of space,
            "bilinear" and "bicubic" (Keys, a = -0.75) for two, "trilinear" for three.
        align_corners: False: pixels are squares, and the images' edges lie on one another. True: the middles of the corner pixels
            do. Not for "nearest".
        antialias: for "bilinear" and "bicubic" with align_corners=False: a filter as wide as the step between pixels (`resample`).
    Returns:  inp's dtype; integers of up to 16 bits, float16 and bfloat16 are computed in float32 and rounded once, halves to even
    Numerics: where a pixel lies is a fraction of integers, so its weights are rounded once; then a product and an fma for each further
        pixel, rows first; "bilinear" and "bicubic" of integers down the columns, then along the rows (`resample`, antialias=False). As in
        MegEngine, and PyTorch's with recompute_scale_factor=True
    Errors:   ShapeError where the mode has another number of axes, ArgumentError unless one of size and scale_factor is given

    >>> from tengen import Tensor, functional as F
    >>> F.vision.interpolate(Tensor([[[[1.0, 2.0], [3.0, 4.0]]]]), (1, 4)).tolist()
    [[[[2.0, 2.25, 2.75, 3.0]]]]
    """
    if antialias or (mode in FILTERS and inp.dtype.is_int and not align_corners):
        return resample(inp, size, FILTERS[mode], antialias=antialias)
    d = computed_in(inp.dtype)
    n, c, *space = inp.shape
    x = as_pixels_read(inp)
    if mode.startswith("nearest") and x.dtype.is_int:
        if (view := _every(x, size, mode)) is not None:
            return view
        return pixels_at([reshape(i[0], i[0].shape[1:]) for i, _ in _taps(space, size, mode, False, d)], x, range(2, inp.ndim), 2)
    if mode == "bilinear" and isinstance(size, tuple) and few_beside_each_other(pixels := permute(x, (0, 2, 3, 1)), size):
        return as_pixels(permute(in_windows(pixels, size, mode, True, bool(align_corners)), (0, 3, 1, 2)), inp.dtype)
    index, weight = grid(_taps(space, size, mode, bool(align_corners), d), space)
    y = tap_sum(reshape(x, (n, c, math.prod(space, start=1))), None, index, weights_for(x, weight))
    return as_pixels(y, inp.dtype)


def _every(x: Tensor, size, mode: str) -> Tensor | None:
    """The pixels that "nearest" and "nearest-exact" take, as a view, where their steps are known and whole; else None."""
    steps = [step for step in map(whole_step, x.shape[2:], size) if step is not None]
    if len(steps) < len(size):
        return None
    first = [step // 2 if mode == "nearest-exact" else 0 for step in steps]
    return strided_slice(x, (0, 0, *first), (*x.shape[:2], *size), (1, 1, *steps))


def _taps(space, size, mode: str, align_corners: bool, d: DType) -> list[tuple[list[Tensor], list[Tensor]]]:
    """The taps of each axis, in shapes that are broadcast together."""
    found = []
    for axis, (n, out) in enumerate(zip(space, size)):
        shape = [1, *(out if i == axis else 1 for i in range(len(size)))]
        indices, weights = taps_between(n, out, mode, align_corners, d)
        found.append(([reshape(i, shape) for i in indices], [reshape(w, shape) for w in weights]))
    return found


@interpolate.canon
def _(types, size, scale_factor, mode, align_corners, antialias):
    x = types[0]
    axes = x.ndim - 2
    if not 1 <= axes <= 3 or SPACE_EXTENT_COUNTS.get(mode, axes) != axes:
        takes = {1: "(N, C, L)", 2: "(N, C, H, W)", 3: "(N, C, D, H, W)"}.get(SPACE_EXTENT_COUNTS.get(mode, 0), "(N, C, ...)")
        raise ShapeError(f"mode {mode!r} takes images {takes}, got {x}")
    if align_corners is not None and mode.startswith("nearest"):
        raise ArgumentError(f"align_corners={align_corners} has no meaning for mode {mode!r}; help: leave it out")
    if antialias and (mode not in ("bilinear", "bicubic") or align_corners):
        raise ArgumentError(f"antialias=True is for 'bilinear' and 'bicubic' with align_corners=False, not {mode!r}, {align_corners}")
    if (size is None) == (scale_factor is None):
        raise ArgumentError("takes one of size and scale_factor")
    if scale_factor is not None:
        factors = (scale_factor,) * axes if isinstance(scale_factor, (int, float)) else tuple(scale_factor)
        if len(factors) != axes or not all(0 <= f < math.inf for f in factors):
            raise ShapeError(f"scale_factor={scale_factor} must be {axes} numbers >= 0, or one for all, for {x}")
        size = tuple(_scaled(a, f) for a, f in zip(x.shape[2:], factors))
    size = tuple(size) * axes if len(size) == 1 else tuple(size)
    if len(size) != axes:
        raise ShapeError(f"size={size} must have {axes} extents, for {x}")
    if any(as_int(a) == 0 and as_int(b) != 0 for a, b in zip(x.shape[2:], size)):
        raise ShapeError(f"an image without pixels, {x}, cannot be enlarged to {size}")
    corners = bool(align_corners) if "nearest" not in mode else None
    return {"size": size, "scale_factor": None, "mode": mode, "align_corners": corners, "antialias": antialias}


def _scaled(n, factor: float):
    """The extent n times the factor, rounded down. Where n is open, it is a quotient of integers: for all n where the factor is a short binary
    fraction, otherwise for those up to a bound, which the program is then recorded for."""
    if as_int(n) is not None:
        return math.floor(n * factor)
    parts, of = float(factor).as_integer_ratio()
    if max(parts, of) > EXACT_PARTS:
        parts, of, most = _fraction(float(factor))
        if not n <= most:
            raise Undecided(
                f"an extent of more than {most} times {factor} depends on how floats are rounded, and has no value before the program runs; "
                "help: size=, by // of the extents"
            )
    return n * parts // of


@functools.lru_cache(256)
def _fraction(factor: float) -> tuple[int, int, int]:
    """(p, q, m): n p // q is n times the factor, as floats are multiplied, rounded down, for all n up to m. Of the convergents of the factor's
    continued fraction it is the one with the largest m."""
    n = np.arange(MOST_PIXELS + 1)
    wanted, found = np.floor(n * factor), (0, 1, 0)
    (a, b), (p, q), (p_before, q_before) = factor.as_integer_ratio(), (1, 0), (0, 1)
    while b:
        whole = a // b
        (p, q), (p_before, q_before), (a, b) = (whole * p + p_before, whole * q + q_before), (p, q), (b, a - whole * b)
        if max(p, q) >= 1 << 46:  # n p has 63 bits
            break
        wrong = np.flatnonzero(n * p // q != wanted)
        found = max(found, (p, q, int(wrong[0]) - 1 if wrong.size else MOST_PIXELS), key=lambda x: x[2])
    return found


# ---- reference and samples -------------------------------------------------------------------------------------------


def np_cubic(x):
    """Keys' cubic kernel, written as in the paper."""
    x, a = np.abs(x), CUBIC_GAIN
    return np.where(
        x <= 1, (a + 2) * x**3 - (a + 3) * x**2 + 1, np.where(x < 2, a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a, 0.0)
    )


def _np_matrix(n, out, mode, align):
    """The (out, n) matrix of one axis."""
    m = np.zeros((out, n))
    for o in range(out):
        if mode == "nearest":
            m[o, min(o * n // out, n - 1)] = 1
            continue
        c = o * (n - 1) / max(out - 1, 1) if align else (o + 0.5) * n / out - 0.5
        if mode == "nearest-exact":
            m[o, min(int((2 * o + 1) * n // (2 * out)), n - 1)] = 1
            continue
        first = math.floor(c)
        for i in range(first - 1, first + 3):
            w = np_cubic(c - i) if mode == "bicubic" else max(0.0, 1 - abs(c - i))
            m[o, min(max(i, 0), n - 1)] += w
    return m


def _np_interpolate(x, size=None, scale_factor=None, mode="bilinear", align_corners=None, antialias=False):
    axes = x.ndim - 2
    if size is None:
        size = [math.floor(n * f) for n, f in zip(x.shape[2:], np.broadcast_to(scale_factor, axes))]
    if antialias:
        return np_resample(x, size, {"bilinear": "linear", "bicubic": "cubic"}[mode])
    y = x
    for axis, out in enumerate(np.broadcast_to(size, axes)):
        m = _np_matrix(x.shape[axis + 2], int(out), mode, align_corners)
        y = np.moveaxis(np.tensordot(y, m, (axis + 2, 1)), -1, axis + 2)
    return y if x.dtype.kind == "f" else np.round(y).astype(x.dtype)


interpolate.reference(_np_interpolate)
_image = lambda *shape: lambda r: (r.uniform(-1, 1, shape),)
interpolate.cases(
    # weights are multiples of powers of two: integers are then rounded as in the reference, whose ties are the same
    Case(_image(2, 3, 4, 5), {"size": (8, 4)}),
    Case(_image(1, 2, 3, 4), {"scale_factor": 2.0, "mode": "bilinear", "align_corners": True}),
    Case(lambda r: (r.uniform(1, 2, (2, 1, 5, 4)),), {"size": 8, "mode": "bicubic"}),  # far from 0, which uint8 ends at
    Case(_image(1, 2, 4, 3), {"size": (2, 17), "mode": "bicubic", "align_corners": True}),
    Case(_image(2, 3, 5), {"size": 8, "mode": "linear"}),
    Case(_image(1, 2, 3, 2, 4), {"size": (2, 4, 8), "mode": "trilinear"}),
    Case(_image(2, 2, 5, 3), {"scale_factor": (1.5, 2.0), "mode": "nearest"}),
    Case(_image(2, 2, 5, 3), {"size": (4, 7), "mode": "nearest-exact"}),
    Case(_image(1, 2, 7, 9), {"size": (3, 4), "antialias": True}),
    Case(_image(0, 2, 5, 3), {"size": (4, 7)}),
    Case(_image(1, 1, 1, 1), {"size": (3, 2), "align_corners": True}),
)
