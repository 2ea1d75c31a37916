"""Pooling and its gradients: folds over the windows of an image, and over the windows that hold a pixel, without copies of it.

    fold_windows:                                             # pooling
        for image n, channel c, window p:
            state = neutral element
            for offset k in the window:
                state = step(state, image[n, c, p * stride - padding + k])        # outside of the image: `fill`
            out[n, c, p] = finish(state)

    fold_holders:                                             # the gradient of pooling
        for image n, channel c, pixel s:
            state = neutral element
            for window p that holds pixel s:
                state = step(state, give(p, the offset of s in p))
            out[n, c, s] = finish(state)

Windows, pixels and offsets have one coordinate for each spatial axis. In: an image, the geometry of its windows, a fold. Out:
launches. `fill` is a number that changes no result; whether an element lies in the image is only tested for windows that may
reach beyond it. Small windows are folded in registers, their elements written out, in the order of `folding.py`.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from operator import and_

from tengen.base.dtype import DType
from tengen.base.errors import Undecided
from tengen.base.record import record
from tengen.kernels.lowering import Array, KernelBuilder, Lowering, product
from tengen.kernels.pointwise import pointwise
from tengen.kernels.reduction.folding import UNROLLED_ELEMENTS, Fold, in_registers
from tengen.kernels.reduction.frame import LEAST_COLUMNS
from tengen.kernels.reduction.reduce import Finish, drive
from tengen.kernels.source import At, Source
from tengen.loops.builder import as_expr
from tengen.loops.lang import LANES, Expr, Index, as_int, cdiv, const, maximum, minimum, ramp, select, splat

MOST_STEP_ELEMENTS = 4  # from a neighbour to the next, at most, for which vectors are loaded whole and their lanes picked

Give = Callable[[KernelBuilder, At, list[Expr]], Expr]  # (kernel, place of a window, a pixel's offset in it) -> value


@record(frozen=True)
class Geometry:
    """Where windows lie. Along each spatial axis, window p begins at pixel p * stride - padding and has `kernel` pixels.

    Attributes:
        space: extents of the image along the spatial axes. count: how many windows there are along each.
        kernel, stride, padding: in pixels, for each spatial axis.
    """

    space: tuple[Index, ...]
    count: tuple[Index, ...]
    kernel: tuple[Index, ...]
    stride: tuple[Index, ...]
    padding: tuple[int, ...]

    @property
    def open(self) -> bool:
        """Whether the size of windows is known only when the program runs."""
        return None in map(as_int, (*self.kernel, *self.stride))

    def side_by_side(self, image: Array, out: Array) -> int | None:
        """The axis along which neighbouring results, and the pixels that they read, lie beside each other or a few elements apart, if there
        is one: channels, or pixels of a row."""
        steps = {1: as_int(image.strides[1])}
        for axis, (stride, step) in enumerate(zip(image.strides[2:], self.stride), 2):
            steps[axis] = as_int(stride * step)
        near = lambda axis: 1 <= (steps[axis] or 0) <= MOST_STEP_ELEMENTS and 1 <= (as_int(out.strides[axis]) or 0) <= MOST_STEP_ELEMENTS
        wide = lambda axis: (as_int(out.shape[axis]) or LANES) >= LEAST_COLUMNS
        return min((axis for axis in steps if near(axis) and wide(axis)), key=lambda axis: steps[axis] or 0, default=None)


class Windows(Source):
    """The image by windows: the value at (n, c, *p, *k) is the pixel at offset k of window p; outside of the image, `fill`."""

    def __init__(self, x: Array, geometry: Geometry, fill):
        self.x, self.geometry, self.fill = x, geometry, const(fill, x.dtype)
        self.shape, self.dtype = (*x.shape[:2], *geometry.count, *geometry.kernel), x.dtype

    def value(self, k, at):
        n = len(self.geometry.kernel)
        place, checks, ends = self._pixels(at)
        where, inside = _guarded(k, at, place, self.geometry.space, checks)
        if inside is None:
            return where.load(k, self.x)
        if inside.lanes > 1 and at.vec is not None and at.vec < 2 + n:  # along a row: most vectors lie wholly in the image
            v = k.var(splat(self.fill), name="pixels")
            with k.if_(k.let(functools.reduce(and_, ends))):
                v.set(At((*at.coords[:2], *place), None, at.count).load(k, self.x))
            with k.else_():
                v.set(select(inside, where.load(k, self.x), splat(self.fill)))
            return v.value
        if where.vec is not None and where.count is not None:
            step, index = self.x.strides[where.vec], self.x.index(where.coords)
            index = index if as_int(step) == 1 else ramp() * step + index
            return k.load(k.read(self.x), index, LANES, where.count, self.fill)
        return select(inside, where.load(k, self.x), splat(self.fill) if where.lanes > 1 else self.fill)

    def _pixels(self, at: At) -> tuple[list[Expr], list[Expr], list[Expr]]:
        """(spatial coordinates of the pixel at `at`; conditions, one for each lane, that it lies in the image; conditions that
        all lanes of the vector do). An end of the image that no window reaches beyond has no condition."""
        geo, n = self.geometry, len(self.geometry.kernel)
        place, checks, ends = [], [], []
        for axis, (space, count, stride, padding) in enumerate(zip(geo.space, geo.count, geo.stride, geo.padding)):
            window, offset = _coordinate(at, 2 + axis), _coordinate(at, 2 + n + axis)
            pixel = as_expr(window * stride + offset - padding)
            number, pixels, windows = (as_int(d) for d in (offset, space, count))
            first = 0 if number is None else number  # the smallest offset that this one may be, and the largest
            last = as_int(geo.kernel[axis] - 1 if number is None else number)
            begin = as_expr(at.coords[2 + axis] * stride + at.coords[2 + n + axis] - padding)  # the pixel of the first lane
            if first < padding:
                checks.append(pixel >= 0)
                ends.append(begin >= 0)
            whole = count == 1 and geo.kernel[axis] is space and not padding
            step = as_int(stride)
            if whole:
                pass
            elif None in (pixels, windows, last, step) or (windows - 1) * step + last - padding >= pixels:
                checks.append(pixel < space)
                ends.append(begin + (pixel.lanes - 1) * stride < space)
            place.append(pixel)
        return place, checks, ends

    def leaves(self):
        return None


class Holders(Source):
    """What the windows that hold a pixel give back to it: the value at (n, c, *s, *t) is for pixel phase + stride * s, and
    comes from the t-th window that holds it along each axis, counted from the last such window back. In that window the pixel
    has the offset first + stride * t. Where there is no such window the value is 0.

    Args:
        give: (kernel, place of a window, the pixel's offset in it along each axis) -> a value of `dtype`.
        lead: extents N and C. phase: along each axis, a number from 0 to stride - 1.
    """

    def __init__(self, give: Give, lead: Sequence[Index], geometry: Geometry, phase: Sequence[int], dtype: DType):
        self.give, self.geometry, self.dtype = give, geometry, dtype
        self.first = [(a + p) % s for a, p, s in zip(phase, geometry.padding, geometry.stride)]
        self.newest = [(a + p) // s for a, p, s in zip(phase, geometry.padding, geometry.stride)]  # the window of t = 0
        taps = [max(0, -(-(k - f) // s)) for k, f, s in zip(geometry.kernel, self.first, geometry.stride)]
        space = [_quotient(d - a, s) for d, a, s in zip(geometry.space, phase, geometry.stride)]
        self.shape = (*lead, *space, *taps)

    def value(self, k, at):
        geo, n = self.geometry, len(self.geometry.kernel)
        place, offsets, checks = [], [], []
        for axis in range(n):
            pixel, t = _coordinate(at, 2 + axis), _coordinate(at, 2 + n + axis)
            window = as_expr(pixel + self.newest[axis] - t)
            offsets.append(as_expr(self.first[axis] + geo.stride[axis] * t))
            known, count, pixels = as_int(t), as_int(geo.count[axis]), as_int(self.shape[2 + axis])
            if known is None or self.newest[axis] < known:
                checks.append(window >= 0)
            if count is None or pixels is None or pixels - 1 + self.newest[axis] - (known or 0) >= count:
                checks.append(window < geo.count[axis])
            place.append(window)
        where, inside = _guarded(k, at, place, geo.count, checks)
        v = self.give(k, where, offsets)
        return v if inside is None else select(inside, v, const(0, self.dtype, v.lanes))

    def leaves(self):
        return None


class Holder(Source):
    """What the one window that holds a pixel gives back to it, where windows touch and do not overlap, and their size is open: the value
    at (n, c, *s). Where a pixel is in no window it is 0."""

    def __init__(self, give: Give, shape: Sequence[Index], geometry: Geometry, dtype: DType):
        self.give, self.shape, self.geometry, self.dtype = give, tuple(shape), geometry, dtype

    def value(self, k, at):
        geo, place, offsets, checks = self.geometry, [], [], []
        for axis, (size, count, space) in enumerate(zip(geo.kernel, geo.count, geo.space)):
            pixel = as_expr(_coordinate(at, 2 + axis))
            window = const(0) if as_int(count) == 1 else k.let(pixel // size)
            offsets.append(as_expr(pixel - window * size))
            place.append(window)
            if as_int(count) != 1 or size is not space:
                checks.append(pixel < count * size)
        where, inside = _guarded(k, at, place, geo.count, checks)
        v = self.give(k, where, offsets)
        v = splat(v) if at.lanes > 1 else v
        return v if inside is None else select(inside, v, const(0, self.dtype, v.lanes))

    def leaves(self):
        return None


class _Finished(Source):
    """finish(a source)."""

    def __init__(self, source: Source, finish: Finish, dtype: DType):
        self.source, self.finish, self.dtype, self.shape = source, finish, dtype, source.shape

    def value(self, k, at):
        return self.finish(k, self.source.at(k, at), at)

    def leaves(self):
        return None


def _quotient(a: Index, b: int) -> Index:
    """a / b rounded up, at least 0: how many of the numbers 0, b, 2 b, ... are less than a."""
    return max(0, -(-a // b)) if isinstance(a, int) else maximum(cdiv(a, b), 0)


def _coordinate(at: At, axis: int) -> Index:
    """A coordinate of a place: a number, or the coordinates of all 16 lanes along the vector axis."""
    return at.coord(axis) if axis == at.vec else at.coords[axis]


def _guarded(
    k: KernelBuilder, at: At, place: list[Expr], extents: Sequence[Index], checks: list[Expr]
) -> tuple[At, Expr | None]:
    """(where to read for the spatial coordinates `place`, whether that place exists). It exists where all `checks` hold; None:
    always. Where it does not exist the nearest element is read, or of vectors that may be partial no lane, so that no read is out of
    bounds. A whole vector that is read and not used costs less than a mask: many targets have none for bytes."""
    vec = at.vec if at.vec in (0, 1) else None
    inside = None
    for c in checks:
        inside = c if inside is None else inside & c
    count = at.count
    if inside is not None:
        inside = k.let(inside)
        if vec is not None and inside.lanes == 1 and count is not None:
            count = k.let(select(inside, count, const(0)))
        else:
            place = [maximum(minimum(p, as_expr(d) - 1), 0) for p, d in zip(place, extents)]
    where = At((*at.coords[:2], *(k.let(p) if p.lanes == 1 else p for p in place)), vec, None)
    where.count = count if where.lanes > 1 else None
    return where, inside


class _Folded(Source):
    """finish(fold along the last n axes of a source), computed in registers with all elements written out."""

    def __init__(self, f: Fold, source: Source, n: int, finish: Finish, dtype: DType):
        self.f, self.source, self.n, self.finish, self.dtype = f, source, n, finish, dtype
        self.shape = source.shape[: len(source.shape) - n]

    def value(self, k, at):
        element = lambda window: self.source.at(k, At((*at.coords, *window), at.vec, at.count))
        state = in_registers(k, self.f, [as_int(d) or 0 for d in self.source.shape[-self.n :]], element)
        if not product(self.source.shape[-self.n :]) and self.f.empty is not None:
            state = self.f.empty
        state = tuple(splat(e) if at.lanes > 1 else e for e in state)
        v = self.finish(k, state[-1], at)
        return splat(v) if at.lanes > 1 else v

    def leaves(self):
        return None


def fold_windows(lo: Lowering, f: Fold, source: Source, out: Array, finish: Finish, name: str, across: int | None = None) -> None:
    """Launches out = finish(fold of `source` (N, C, *P, *K) along the offsets K in its windows).

    Args:
        across: the axis of `Geometry.side_by_side`, if there is one: vectors of large windows run along it.
        finish: (kernel, the last part of the final state, place in out) -> what is stored there.
    """
    n = out.ndim - 2
    if _unrolled(source, n):
        pointwise(lo, [_Folded(f, source, n, finish, out.dtype)], [out], name)
        return
    value = lambda k, state, at: [finish(k, state[-1], at)]
    drive(lo, f, source, [out], tuple(range(n + 2, 2 * n + 2)), value, False, name, across)


def _unrolled(source: Source, n: int) -> bool:
    """Whether the last n axes of a source have so few elements that a fold along them is written out."""
    taps = as_int(product(source.shape[-n:]))
    return taps is not None and taps <= UNROLLED_ELEMENTS


def fold_holders(
    lo: Lowering, f: Fold, give: Give, geometry: Geometry, dtype: DType, out: Array, finish: Finish, name: str
) -> None:
    """Launches out (N, C, *S) = finish(fold of what the windows that hold each pixel give back), see `Holders`.

    It is done for each phase of the stride: pixels whose coordinates have the same remainders by the stride have the same
    offsets in the windows that hold them. Phases with equally many pixels are one kernel. Where the size of windows is open they
    touch and do not overlap, else it is `Undecided`.
    """
    n = len(geometry.kernel)
    if geometry.open:
        if geometry.stride != geometry.kernel or any(geometry.padding):
            raise Undecided(f"windows of the open size {geometry.kernel} with strides of {geometry.stride}: which of them hold a pixel")
        pointwise(lo, [_Finished(Holder(give, out.shape, geometry, dtype), finish, out.dtype)], [out], name)
        return
    by_shape: dict[tuple, list[tuple[Source, Array, tuple[int, ...]]]] = {}
    for phase in itertools.product(*map(range, geometry.stride)):
        source = Holders(give, out.shape[:2], geometry, phase, dtype)
        strides = (*out.strides[:2], *(st * s for st, s in zip(out.strides[2:], geometry.stride)))
        offset = out.offset
        for a, st in zip(phase, out.strides[2:]):
            offset = offset + a * st
        shape = source.shape[:-n]
        if any(as_int(d) == 0 for d in shape):
            continue
        by_shape.setdefault(shape, []).append((source, Array(out.id, out.dtype, shape, strides, offset), phase))
    for group in by_shape.values():
        if all(_unrolled(s, n) for s, _, _ in group):
            folded: list[Source] = [_Folded(f, s, n, _placed(finish, a, geometry.stride), out.dtype) for s, _, a in group]
            pointwise(lo, folded, [part for _, part, _ in group], name)
            continue
        for source, part, phase in group:
            fold_windows(lo, f, source, part, _placed(finish, phase, geometry.stride), name)


def _placed(finish: Finish, first: Sequence[int], step: Sequence[int]) -> Finish:
    """`finish` for a kernel that knows only every step-th pixel: its coordinate c is pixel first + step * c of the output."""

    def run(k: KernelBuilder, value: Expr, at: At) -> Expr:
        coords, vec = list(at.coords[:2]), at.vec
        for axis, (a, s) in enumerate(zip(first, step), 2):
            stepped = axis == at.vec and s != 1
            coords.append((at.coord(axis) if stepped else at.coords[axis]) * s + a)
            vec = None if stepped else vec
        return finish(k, value, At(tuple(coords), vec, at.count))

    return run
