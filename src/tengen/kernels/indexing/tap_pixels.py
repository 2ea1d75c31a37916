"""Sums of taps (`taps.py`) for pixels of few channels that lie beside each other: results of pixels in a row are computed together.

    for each piece = some rows of results or a part of one, block of a row:
        for vector of pixels q of the block, tap t:
            places[t, q], weights[t, q] = where tap t of pixel q lies, what it weighs
        for pixel q of the block, tap t: moved[t, q] = the channels from places[t, q] on
        for vector of pixels q: out[q] = final of the sum over t of weights[t, q] * moved[t, q]

The one loop over single pixels moves them, and computes nothing. A pixel of bytes is moved as one word, of which each channel is then a
vector of pixels (`_Bytes`). A pixel of floats is moved as four, and four of them fill a vector (`_Floats`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tengen.base.dtype import bool_, float32, int32, int64, uint32
from tengen.kernels.axes import store_at, unflatten
from tengen.kernels.lowering import Array, Lowering, product
from tengen.kernels.source import At, Source
from tengen.loops.builder import as_expr
from tengen.loops.lang import (
    LANES,
    QUAD,
    Expr,
    Index,
    as_int,
    bitcast,
    cast,
    cdiv,
    const,
    fma,
    fold,
    maximum,
    minimum,
    select,
    shuffle,
    splat,
)

if TYPE_CHECKING:
    from tengen.kernels.indexing.taps import TapSum

WORD_BYTES = 4  # channels at most of a pixel of bytes, which is read as one word
BLOCK_PIXELS = 4 * LANES  # that are moved, one after the other, before they are weighed
PIECE_PIXELS = 1 << 12  # results of a piece where pixels are in the lanes
MOST_MOVED_TAPS = 16  # of a result


def launch_pixels(lo: Lowering, s: TapSum, x: Array, final: Source, out: Array, name: str) -> bool:
    """Launches out = `final`, a function of the sums `s` of the image `x`, if one of these kernels is for it. Returns whether it is."""
    channels, pixels, taps = (as_int(n) for n in (x.shape[1], x.shape[2], s.taps))
    if lo.target is None or not lo.target.hosts or channels is None or pixels is None or taps is None:
        return False
    dense = all(as_int(a.strides[1]) == 1 and as_int(a.strides[-1]) == channels for a in (x, out))
    kind = next((k for k in (_Bytes, _Floats) if k.takes(x, channels, out)), None)
    if kind is None or not dense or taps > MOST_MOVED_TAPS or (as_int(out.shape[-1]) or 0) < LANES:
        return False
    if not kind.moved <= pixels * channels < 1 << 31:
        return False
    kind(lo, s, x, final, out, name).write()
    return True


class _Pixels:
    """What both kernels share. moved: elements of an image that are moved together, at most."""

    moved: int

    def __init__(self, lo: Lowering, s: TapSum, x: Array, final: Source, out: Array, name: str):
        self.lo, self.s, self.x, self.final, self.out = lo, s, x, final, out
        self.channels, self.taps, self.pixels = (as_int(n) or 0 for n in (x.shape[1], s.taps, x.shape[2]))
        self.k = k = lo.kernel(name)
        self.last = self.pixels * self.channels - self.moved  # the last place of an image from which so many elements are there
        self.places = k.scratch("places", int32, self.taps * BLOCK_PIXELS)
        self.weights = k.scratch("weights", s.tap.dtype, self.taps * BLOCK_PIXELS)

    @staticmethod
    def takes(x: Array, channels: int, out: Array) -> bool:
        """Whether it is for images of this dtype and so many channels."""
        raise NotImplementedError

    def write(self) -> None:
        """Writes and launches the kernel."""
        k, shape = self.k, self.out.shape
        n, outer = as_int(shape[-1]) or 0, [shape[0], *shape[2:-1]]
        lines, rows, parts = as_expr(product(outer)), max(PIECE_PIXELS // n, 1), cdiv(n, PIECE_PIXELS)
        piece = k.split(cdiv(lines, rows) * parts)
        first, left = k.let(piece // parts * rows), k.let(piece % parts * PIECE_PIXELS)
        right = k.let(minimum(left + PIECE_PIXELS, n))
        with k.loop(first, minimum(lines, first + rows), name="row") as row:
            m, *lead = unflatten(k, row, outer)
            start = k.let(as_expr(m) * self.x.strides[0] + self.x.offset)
            with k.loop(left, right, BLOCK_PIXELS, name="block") as begin:
                self.block(start, (m, 0, *lead), begin, k.let(minimum(begin + BLOCK_PIXELS, right)))
        self.lo.launch(k)

    def block(self, start: Expr, lead: tuple[Index, ...], begin: Expr, end: Expr) -> None:
        """Writes the results from `begin` to `end` of a row. start: where its image begins."""
        self.each(lead, begin, end, self.locate)
        self.move(start, self.k.let(end - begin))
        self.each(lead, begin, end, self.sum)

    def each(self, lead: tuple[Index, ...], begin: Expr, end: Expr, body: Callable[[At, Expr], None]) -> None:
        """Writes `body` for each vector of pixels, and for the single ones behind them, with their number in the block."""
        k = self.k
        whole = k.let(begin + (end - begin) // LANES * LANES)
        with k.loop(begin, whole, LANES, name="q") as q:
            body(At((*lead, q), len(lead)), k.let(q - begin))
        if as_int(self.out.shape[-1] % LANES) != 0:
            with k.loop(whole, end, name="q") as q:
                body(At((*lead, q)), k.let(q - begin))

    def locate(self, at: At, j: Expr) -> None:
        """Writes where the taps of the results at `at` lie, and their weights. j: their number in the block."""
        for t, (i, w) in enumerate(self.s.each_tap(self.k, at)):
            i = self.k.let(i if i.dtype.bits >= int32.bits else cast(i, int32))  # which holds the number of any pixel
            place = cast(maximum(minimum(i, self.pixels - 1), 0), int32) * self.channels
            self.locate_tap(self.k.let(place), i < 0, j + t * BLOCK_PIXELS)
            self.k.store(self.weights, j + t * BLOCK_PIXELS, w)

    def locate_tap(self, place: Expr, outside: Expr, j: Expr) -> None:
        """Writes what `move` and `sum` need to know of a tap. place: where its pixel begins in its image."""
        raise NotImplementedError

    def move(self, start: Expr, n: Expr) -> None:
        """Writes the moves of the taps of the block's n results."""
        raise NotImplementedError

    def sum(self, at: At, j: Expr) -> None:
        """Writes the results at `at`."""
        k, totals = self.k, list[Expr]()
        for t in range(self.taps):
            w, values = k.load(self.weights, j + t * BLOCK_PIXELS, at.lanes), self.channels_of(j + t * BLOCK_PIXELS, at.lanes)
            totals = [k.let(fma(w, v, total)) for v, total in zip(values, totals)] if t else [k.let(w * v) for v in values]
        places = [At((at.coords[0], c, *at.coords[2:]), at.vec) for c in range(self.channels)]
        for there, total in zip(places, totals):
            there.memo[self.s] = k.let(cast(total, self.s.dtype))
        for there, v in zip(places, [self.final.at(k, there) for there in places]):
            store_at(k, self.out, there, v)

    def channels_of(self, j: Expr, lanes: int) -> list[Expr]:
        """Each channel of the pixels that were moved to j, and to those behind it."""
        raise NotImplementedError


class _Bytes(_Pixels):
    """Pixels of two to four bytes. A word that would end behind its image begins before its pixel, which is the image's last one: it is then
    shifted; that of a tap outside of the image so far that nothing is left of it."""

    moved = WORD_BYTES

    def __init__(self, *args):
        super().__init__(*args)
        self.words = self.k.scratch("words", uint32, self.taps * BLOCK_PIXELS)
        self.shifts = self.k.scratch("shifts", uint32, self.taps * BLOCK_PIXELS)

    @staticmethod
    def takes(x, channels, out):
        return x.dtype.is_int and x.dtype.size == 1 and 2 <= channels <= WORD_BYTES

    def locate_tap(self, place, outside, j):
        self.k.store(self.places, j, minimum(place, self.last))
        bits = select(outside, const(8 * WORD_BYTES, int32, place.lanes), maximum(place - self.last, 0) * 8)
        self.k.store(self.shifts, j, bitcast(bits, uint32))

    def move(self, start, n):
        k, src = self.k, self.k.read(self.x)
        with k.loop(0, n, name="pixel") as j:
            for t in range(self.taps):
                at = cast(k.load(self.places, j + t * BLOCK_PIXELS), int64)
                k.store(self.words, j + t * BLOCK_PIXELS, k.load_group(src, k.let(start + at)))

    def channels_of(self, j, lanes):
        k, d = self.k, self.s.tap.dtype
        word = k.let(k.load(self.words, j, lanes) >> k.load(self.shifts, j, lanes))
        if self.x.dtype.kind == "u":
            return [cast(bitcast(word >> 8 * c & 255, int32), d) for c in range(self.channels)]
        return [cast(bitcast(word << 24 - 8 * c, int32) >> 24, d) for c in range(self.channels)]


class _Floats(_Pixels):
    """Pixels of three or four float32. Four are moved, the last of which may be that of another pixel, whose sum is not stored; but in a block
    where that would be read behind an image. A tap outside of the image is at -1."""

    moved = QUAD

    def __init__(self, *args):
        super().__init__(*args)
        self.floats = self.k.scratch("floats", float32, self.taps * BLOCK_PIXELS * QUAD)

    @staticmethod
    def takes(x, channels, out):
        return x.dtype is float32 and channels in (QUAD - 1, QUAD) and out.dtype is not bool_

    def block(self, start, lead, begin, end):
        k = self.k
        self.farthest = {lanes: k.var(const(0, int32, lanes), name="far") for lanes in (1, LANES)}
        super().block(start, lead, begin, end)

    def locate_tap(self, place, outside, j):
        far = self.farthest[place.lanes]
        far.set(maximum(far.value, place))
        self.k.store(self.places, j, select(outside, const(-1, int32, place.lanes), place) if self.s.leaves_image else place)

    def move(self, start, n):
        k = self.k
        if self.channels == QUAD:
            return self._moves(start, n, QUAD)
        one, some = (self.farthest[lanes].value for lanes in (1, LANES))
        with k.if_(maximum(one, fold("max", some)) <= self.last):
            self._moves(start, n, QUAD)
        with k.else_():
            self._moves(start, n, self.channels)

    def _moves(self, start: Expr, n: Expr, count: int) -> None:
        k, src = self.k, self.k.read(self.x)
        with k.loop(0, n, name="pixel") as j:
            for t in range(self.taps):
                to = (j + t * BLOCK_PIXELS) * QUAD
                at = k.let(cast(k.load(self.places, j + t * BLOCK_PIXELS), int64))
                if not self.s.leaves_image:
                    k.store(self.floats, to, k.load(src, start + at, LANES, count), count)
                    continue
                with k.if_(at >= 0):
                    k.store(self.floats, to, k.load(src, start + at, LANES, count), count)
                with k.else_():
                    k.store(self.floats, to, const(0, float32, LANES), count)

    def sum(self, at, j):
        if at.lanes == 1:
            return super().sum(at, j)
        k, q = self.k, at.coords[-1]
        weights = [k.load(self.weights, j + t * BLOCK_PIXELS, LANES) for t in range(self.taps)]
        for quad in range(LANES // QUAD):  # four pixels each
            total = const(0, float32, LANES)
            for t, w in enumerate(weights):
                w = shuffle(f"lanes_of_quad_{quad}", w, w)
                v = k.load(self.floats, (j + (t * BLOCK_PIXELS + quad * QUAD)) * QUAD, LANES)
                total = k.let(fma(w, v, total) if t else w * v)
            there = At((*at.coords[:-1], q + quad * QUAD), at.vec)
            there.memo[self.s] = k.let(cast(total, self.s.dtype))
            value = splat(self.final.at(k, there))
            if self.channels < QUAD:
                value = shuffle("first_of_quads", value, value)
            k.store(k.write(self.out), self.out.index(there.coords), value, self.channels * QUAD)

    def channels_of(self, j, lanes):
        return [self.k.load(self.floats, j * QUAD + c) for c in range(self.channels)]
