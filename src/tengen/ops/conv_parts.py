"""Images, filters and windows as operands of a contraction: which axes, at what distances, play which role.

In: arrays of a convolution. Out: the same memory with the axes that a contraction asks for, parts of which are put together.
N batch, C channels, O output channels, G groups, P spatial extents of the output, K of the filter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

from tengen.base.errors import ShapeError
from tengen.ir.types import Dim, TensorType
from tengen.kernels import contraction, convolution, numerics, pointwise
from tengen.kernels.lowering import Array, Lowering
from tengen.loops.lang import LANES, as_int

if TYPE_CHECKING:
    from tengen.kernels.contraction.problem import Border

STREAMED_ZERO_BYTES = 4 << 20  # bytes of a gradient at least whose zeros are written past the caches, beside what is computed

Part = tuple[list, list, list]  # axes of an operand: extents, strides, and what `Border` calls steps


def grouped(groups: Dim) -> bool:
    """Whether there are several groups, as there are where their number is open."""
    return as_int(groups) != 1


def of_group(channels: Dim, groups: Dim) -> Dim:
    """Channels of a group."""
    return 1 if channels is groups else channels // groups


def filter_extents(w: TensorType | Array, n: int, groups: Dim) -> tuple[Dim, Dim, tuple[Dim, ...]]:
    """(O / G, C / G, K) of a filter (O, C, *K), grouped (G, O/G, C/G, *K) or, as PyTorch has it, (O, C/G, *K)."""
    s = w.shape
    if any(as_int(d) == 0 for d in s[len(s) - n :]):
        raise ShapeError(f"the filter {tuple(s)} has no elements along an axis of space; help: an extent of at least 1")
    if len(s) == n + 3:
        if as_int(s[0]) is not None and as_int(s[0]) != groups:
            raise ShapeError(f"the filter has {s[0]} groups, groups={groups}")
        return s[1], s[2], tuple(s[3:])
    if len(s) != n + 2:
        raise ShapeError(
            f"a filter of {len(s)} axes for an image of {n + 2}; help: (O, C, *K), or (G, O/G, C/G, *K) with groups"
        )
    if isinstance(s[0], int) and isinstance(groups, int) and s[0] % groups:
        raise ShapeError(f"{s[0]} output channels cannot be shared out to {groups} groups")
    return of_group(s[0], groups), s[1], tuple(s[2:])


def per_axis(value: Any, n: int, name: str) -> tuple:
    """One number for each of n spatial axes, from such numbers, or one for all."""
    t = value if isinstance(value, tuple) else (value,) * n
    if len(t) != n:
        raise ShapeError(f"{name}={value!r} must be an int or {n} ints")
    return t


def out_extent(s: Dim, k: Dim, stride: Dim, padding: int, dilation: int) -> Dim:
    """How many windows fit."""
    if s is k and stride is k and not padding and dilation == 1:
        return 1  # the whole axis, also where its extent is open
    span = s + 2 * padding - dilation * (k - 1) - 1
    if isinstance(span, int) and span < 0:
        raise ShapeError(
            f"a filter of extent {k} (dilation {dilation}) does not fit an image of extent {s} with padding {padding}"
        )
    return span // stride + 1


def part(extents=(), strides=(), steps=None) -> Part:
    """Axes by extents and strides; steps: none of them moves through space, unless given."""
    return list(extents), list(strides), list(steps or [None] * len(extents))


def array(a: Array, parts: list[Part], offset: Dim | None = None) -> Array:
    """The memory of `a` with the axes of these parts, in order; it begins at `offset`, or where `a` does."""
    shape = [d for part in parts for d in part[0]]
    strides = [s for part in parts for s in part[1]]
    return replace(a, shape=tuple(shape), strides=tuple(strides), offset=a.offset if offset is None else offset)


def windows(x: Array, parts: list[Part], first: Sequence[Dim], inside: bool = False) -> tuple[Array, Border | None]:
    """Windows of an image whose first one begins at pixel `first`, and the border that they reach over, if they do; `inside`:
    they are known not to."""
    offset = x.offset
    for f, st in zip(first, x.strides[2:]):
        offset = offset + f * st
    steps = tuple(step for part in parts for step in part[2])
    a = array(x, parts, offset)
    border = contraction.problem.Border(steps, tuple(first), tuple(x.shape[2:]))
    return a, border if not inside and border.reached(a.shape) else None


def by_role(x: Array, out: Sequence[Dim], k: Sequence[Dim], stride, dilation, groups: Dim) -> tuple[Part, Part, Part]:
    """x by windows: the axes [G], [N, *P] and [*K, C/G]."""
    c, n = of_group(x.shape[1], groups), len(stride)
    space = x.strides[2:]
    g = part([groups], [c * x.strides[1]]) if grouped(groups) else part()
    m = part([x.shape[0], *out], [x.strides[0], *(s * st for s, st in zip(space, stride))], [None, *zip(range(n), stride)])
    kk = part([*k, c], [*(s * d for s, d in zip(space, dilation)), x.strides[1]], [*zip(range(n), dilation), None])
    return g, m, kk


def dense_image(lo: Lowering, x: Array, padding: Sequence[int], w: Array, groups: Dim) -> tuple[Array, tuple[int, ...]]:
    """The image and the pixel at which the first window begins. One filter of each channel in other than two dimensions reads a
    padded copy: its products are made lane by lane."""
    if grouped(groups) and any(padding) and as_int(filter_extents(w, len(padding), groups)[0]) == 1:
        extents = tuple(s + 2 * p for s, p in zip(x.shape[2:], padding))
        return convolution.halo.padded(lo, x, tuple(padding), extents, (1,) * len(padding)), (0,) * len(padding)
    return convolution.halo.image(lo, x), tuple(-p for p in padding)


def filter_parts(w: Array, n: int, groups: Dim) -> dict[str, Part]:
    """The filter's axes by role: g groups, o output channels of a group, c input channels of a group, k space."""
    o, c, k = filter_extents(w, n, groups)
    st = w.strides
    if w.ndim == n + 3:
        parts = {"g": part([groups], st[:1]), "o": part([o], st[1:2]), "c": part([c], st[2:3]), "k": part(k, st[3:])}
    else:
        parts = {"g": part([groups], [o * st[0]]), "o": part([o], st[:1]), "c": part([c], st[1:2]), "k": part(k, st[2:])}
    if not grouped(groups):
        parts["g"] = part()
    return parts


def image_parts(y: Array, groups: Dim) -> dict[str, Part]:
    """An image's axes by role: g groups, p batch and space, c channels of a group."""
    c = of_group(y.shape[1], groups)
    g = part([groups], [c * y.strides[1]]) if grouped(groups) else part()
    return {"g": g, "p": part([y.shape[0], *y.shape[2:]], [y.strides[0], *y.strides[2:]]), "c": part([c], y.strides[1:2])}


def beside(out: Array, stride: Sequence[int], taps: list[list[list]]) -> tuple[Dim, ...]:
    """Where one phase of the pixels alone has terms, all have as many pixels, and out is more than stays in a cache: how far from
    it in memory the others begin. Their zeros are stored while it is computed."""
    reached = [[phase for phase, t in enumerate(axis) if t] for axis in taps]
    whole = all(as_int(d % s) == 0 for d, s in zip(out.shape[2:], stride))
    size = as_int(math.prod(out.shape)) or 0
    if not whole or any(len(phases) != 1 for phases in reached) or size * out.dtype.size < STREAMED_ZERO_BYTES:
        return ()
    far = [
        sum((p - only[0]) * st for p, only, st in zip(phases, reached, out.strides[2:]))
        for phases in product(*(range(s) for s in stride))
    ]
    return tuple(d for d in far if as_int(d) != 0)


def add_axis(part: Part, extent: Dim, stride: Dim, step: tuple[int, Dim] | None = None) -> None:
    """One more axis of a part."""
    for column, value in zip(part, (extent, stride, step)):
        column.append(value)


def prologue_operand(types, stride, padding, dilation, groups, precision="highest", **attrs) -> int | None:
    """The rule "prologue" of a convolution and of its filter's gradient: which operand can be computed as it is read. It is the image
    where rows are copied anyway, that is of pointwise filters, and where one filter of each channel reads it by channels."""
    x, w = types[0], types[-1]
    gradient = len(types) > 2
    if len(stride) != 2 or x.dtype is not w.dtype or not x.dtype.is_float or x.dtype.compute is not x.dtype or precision != "highest":
        return None
    if any(not as_int(d) for t in types for d in t.shape):
        return None
    if convolution.depthwise.fits(Array(None, w.dtype, tuple(w.shape), (0,) * w.ndim), groups):
        return 0 if not gradient or types[1].shape[-1] < numerics.CHUNK_TERMS else None
    if grouped(groups) or tuple(w.shape[2:]) != (1, 1) or max(stride) > 1 or any(padding) or min(w.shape[:2]) < LANES:
        return None
    return None if gradient and tall(w.shape[:2], stride) else 0


def readable(lo: Lowering, x: Array, stride: Dim) -> Array:
    """The image; one that is computed as it is read is stored before, unless its channels are dense, and results too: their channels
    are `stride` apart."""
    return x if as_int(x.strides[1]) == as_int(stride) == 1 else pointwise.stored(lo, x)


def tall(sides: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether the gradient of pointwise filters, of so many channels of results and images, has its rows and columns exchanged: tall
    products are faster than wide ones, of whole tiles."""
    return max(stride) == 1 and sides[0] > sides[1] >= 4 * LANES
