"""Kernels of weighed windows (`windows.py`): pictures of few channels, with the elements of a row of results in the lanes.

    for each piece = some rows of results of a picture:
        for row i of the piece: one of
            `Spread`: for pictures of all kinds, and weights that are multiplied first
                for tap t, if the row of pixels r = row[i] + t is not there yet:
                    for pixel j of the results, tap s: spread[r, s, j] = x[r, column[j] + s]       # moves, which compute nothing
                for vector of elements j: out[i, j] = the sum over t and s of spread[row[i] + t, s, j], weighed
            `Pairs`: for bytes of three or four channels, in pictures that become narrower
                for QUAD pixels j at a time:
                    down[j] = the sum over t of x[row[i] + t, column[j] ..], weighed               # eight bytes of each, which both taps are in
                    out[i, j] = the sum over s of the quads of down[j] that begin at pixel s, weighed
            `DownFirst`: for integers, in pictures that become wider
                for vector of elements e of a row of the picture: summed[e] = the sum over t of x[row[i] + t, e], weighed
                for each block of BLOCK_WINDOW_PIXELS pixels of the results:
                    for pixel j of the block, tap s: spread[s, j] = summed[column[j] + s]
                    for vector of elements j of the block: out[i, j] = the sum over s of spread[s, j], weighed
            `LookedUp`: the same for targets that look up lanes
                for vector of elements e of the results, tap s: v[s] = summed[first of each half ..], looked up
                    out[i, e] = the sum over s of v[s], weighed

The rows that `Spread` spreads out lie in a ring, which a picture that becomes larger reads again for the next row of results.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from tengen.base.dtype import bool_, float32, int32, int64, uint32
from tengen.kernels.lowering import Array, KernelBuilder, Lowering
from tengen.kernels.source import At, Leaf, Source
from tengen.loops.builder import MOST_SCRATCH_BYTES, as_expr
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
    equal,
    fma,
    fold,
    lookup,
    maximum,
    minimum,
    not_equal,
    ramp,
    select,
    shuffle,
    splat,
)

if TYPE_CHECKING:
    from tengen.kernels.indexing.windows import Windows

MOST_WINDOW_CHANNELS = 4  # of a picture, for the kernels of this file
MOST_WINDOW_TAPS = 2  # of an axis, for the same
MOST_RING_BYTES = 256 << 10
UNROLLED_PIXELS = 4  # moves of so many are written out
BLOCK_WINDOW_PIXELS = 64  # of a row of results, for which sums are spread out before they are weighed
PIECE_RESULT_ROWS = 16  # of results: with fewer of them, rows that two pieces read would be spread out twice too often
PAIR_BYTES = 8  # of two pixels beside each other, and of what is behind them
HALF_LANES = LANES // 2  # that are looked up in so many
SUMS_BEFORE = LANES  # of a row: room for another pixel


def clamped(i: Expr, n: Index) -> Expr:
    """The number of the pixel nearest to `i` of n."""
    return maximum(minimum(i, as_expr(n) - 1), 0)


def total_of(k: KernelBuilder, terms: list[tuple[Expr, Expr]]) -> Expr:
    """A product, and an fma for each further one."""
    (w, v), *others = terms
    total = k.let(w * v)
    for w, v in others:
        total = k.let(fma(w, v, total))
    return total


def launch_windows(lo: Lowering, s: Windows, final: Source, out: Array, name: str) -> None:
    """Launches out = `final`, a function of the sums `s`, by the kernel that is for them. They fit one (`fits`)."""
    assert isinstance(s.x, Leaf) and lo.target is not None
    x, pixels, whole = s.x.array, as_int(s.column.shape[0]) or 0, s.x.dtype.is_int and not s.joint
    kind: type[_Elements] = Spread
    if whole and pixels > (as_int(x.shape[2]) or 0):
        kind = LookedUp if lo.target.computes("lookup") and LookedUp.takes(s) else DownFirst
    elif whole and Pairs.takes(s, out):
        kind = Pairs
    kind(lo, s, final, out, name).write()


def fits(lo: Lowering, s: Windows, x: Array, out: Array) -> bool:
    """Whether a kernel of this file takes it: few channels beside each other, rows of known length that fit its memory."""
    channels, pixels = as_int(x.shape[3]), as_int(s.column.shape[0])
    if lo.target is None or not lo.target.hosts or not channels or not pixels:
        return False
    if channels > MOST_WINDOW_CHANNELS or max(s.taps) > MOST_WINDOW_TAPS:
        return False
    dense = all(as_int(a.strides[2]) == channels and (channels == 1 or as_int(a.strides[3]) == 1) for a in (x, out))
    step, wide = as_int(x.strides[1]), as_int(x.shape[2])
    if not dense or step is None or wide is None or step < wide * channels or pixels * channels < LANES:
        return False
    (down, along), line = s.taps, _line(pixels, channels)
    ring, tables = down * along * line * x.dtype.size, along * line * (int32.size + s.dtype.compute.size)
    return ring <= MOST_RING_BYTES and ring + tables < MOST_SCRATCH_BYTES


def _line(pixels: int, channels: int) -> int:
    """Elements from one row that is spread out to the next: the last pixel's move may write some more."""
    return (cdiv(pixels * channels, LANES) + 1) * LANES


def _move(channels: int) -> int:
    """Elements that are moved together: a power of two."""
    return 1 << (channels - 1).bit_length()


class _Elements:
    """What the kernels share. apart: elements from the weights of one pixel of the results to those of the next; None: its channels."""

    def __init__(self, lo: Lowering, s: Windows, final: Source, out: Array, name: str, apart: int | None = None):
        assert isinstance(s.x, Leaf)
        x = s.x.array
        self.lo, self.s, self.x, self.final, self.out = lo, s, x, final, out
        self.channels, self.pixels = as_int(x.shape[3]) or 0, as_int(s.column.shape[0]) or 0
        self.apart = apart or self.channels
        self.line = _line(self.pixels, self.apart)
        (self.down, self.along), self.k = s.taps, lo.kernel(name)
        self.places = self.k.scratch("places", int32, self.along * self.line)
        self.weights = self.k.scratch("weights", s.dtype.compute, self.along * self.line)

    def write(self) -> None:
        """Writes and launches the kernel."""
        k, x, out, rows = self.k, self.x, self.out, as_expr(self.s.shape[1])
        parts = k.let(cdiv(rows, PIECE_RESULT_ROWS))
        piece = k.split(as_expr(x.shape[0]) * cdiv(rows, PIECE_RESULT_ROWS))
        n, first = k.let(piece // parts), k.let(piece % parts * PIECE_RESULT_ROWS)
        picture = k.let(n * x.strides[0] + x.offset)
        self._columns()
        self.begin()
        with k.loop(first, minimum(rows, first + PIECE_RESULT_ROWS), name="row") as i:
            start = k.let(cast(self.s.row.at(k, At((i,))), int64))
            inside = [k.let(clamped(start + t, x.shape[1])) for t in range(self.down)]
            self.row(i, inside, picture, k.let(n * out.strides[0] + i * out.strides[1] + out.offset))
        self.lo.launch(k)

    def begin(self) -> None:
        """Writes what comes before the first row of a piece."""

    def row(self, i: Expr, inside: list[Expr], picture: Expr, to: Expr) -> None:
        """Writes the row i of results, which begins at `to`. inside: the rows of the picture that it is a sum of. picture: where that
        begins."""
        raise NotImplementedError

    def _columns(self) -> None:
        """Where in a row each pixel that is moved begins, and the weight of each element."""
        k, s = self.k, self.s
        for t in range(self.along):
            for j, count in k.vector_loop(0, self.pixels, "column"):
                at = clamped(k.let(cast(s.column.at(k, At((j,), 0, count)), int64)) + t, self.x.shape[2]) * self.channels
                k.store(self.places, j + t * self.line, cast(at, int32), count)
            with k.loop(0, self.pixels, name="column") as j:
                w = k.let(cast(s.column_weight.at(k, At((t, j))), s.dtype.compute))
                k.store(self.weights, j * self.apart + t * self.line, splat(w), _move(self.apart))

    def row_weights(self, i: Expr) -> list[Expr]:
        """The weights of the picture's rows in the row i of results, each in all lanes."""
        return [splat(self.k.let(cast(self.s.row_weight.at(self.k, At((t, i))), self.s.dtype.compute))) for t in range(self.down)]

    def column_weights(self, e: Expr) -> list[Expr]:
        """The weights of the picture's columns in the elements from e on."""
        return [self.k.load(self.weights, e + t * self.line, LANES) for t in range(self.along)]

    def store(self, to: Expr, e: Expr, total: Expr, count: Expr | None) -> None:
        """Writes the sums of the elements from e on of a row of results."""
        at = At((0, 0, 0, e), 3, None)
        at.memo[self.s] = self.k.let(cast(total, self.s.dtype))
        self.k.store(self.k.write(self.out), to + e, self.final.at(self.k, at), count)


class Spread(_Elements):
    """Spreads rows of pixels out: for pictures that become smaller, and where weights are multiplied with each other."""

    def __init__(self, lo: Lowering, s: Windows, final: Source, out: Array, name: str):
        super().__init__(lo, s, final, out, name)
        self.ring = self.k.scratch("ring", self.x.dtype, self.down * self.along * self.line)
        self.held = self.k.scratch("held", int64, self.down)  # the row that lies in each part of the ring

    def begin(self):
        for part in range(self.down):
            self.k.store(self.held, part, const(-1))

    def row(self, i, inside, picture, to):
        k, s, d, lines = self.k, self.s, self.s.dtype.compute, []
        for r in inside:
            part = k.let(r % self.down)
            with k.if_(not_equal(k.load(self.held, part), r)):
                self._spread(r, k.let(picture + r * self.x.strides[1]), k.let(part * (self.along * self.line)))
                k.store(self.held, part, r)
            lines.append(k.let(part * (self.along * self.line)))
        rows = self.row_weights(i)
        for e, count in k.vector_loop(0, self.pixels * self.channels, "element"):
            read: Callable[[Expr], Expr] = lambda at, e=e: k.load(self.ring, at + e, LANES)
            values = [[k.let(cast(read(line + t * self.line), d)) for t in range(self.along)] for line in lines]
            self.store(to, e, s.weighed(k, values, rows, self.column_weights(e)), count)

    def _spread(self, r: Expr, start: Expr, to: Expr) -> None:
        """Writes the moves of the row r, which begins at `start`, into a part of the ring: of as many elements as one move takes, of which
        those behind a pixel are overwritten by the next one. The last row has none behind its last pixel."""
        if (whole := _move(self.channels)) == self.channels:
            return self._moves(start, to, whole)
        with self.k.if_(equal(r, as_expr(self.x.shape[1]) - 1)):
            self._moves(start, to, self.channels)
        with self.k.else_():
            self._moves(start, to, whole)

    def _moves(self, start: Expr, to: Expr, count: int) -> None:
        k, src = self.k, self.k.read(self.x)
        for j, t, i in _pixels_of(k, const(0), self.pixels, self.along):
            at = k.let(start + cast(k.load(self.places, j + (t * self.line + i)), int64))
            pixel = k.load(src, at, LANES, count)
            k.store(self.ring, to + j * self.channels + (t * self.line + i * self.channels), pixel, count)


class Pairs(_Elements):
    """Reads both taps of a pixel at once, with what is behind them: for bytes of pictures that become narrower, whose taps lie apart. Near
    the end of the picture, and where taps do not lie beside each other, they are read one by one."""

    def __init__(self, lo: Lowering, s: Windows, final: Source, out: Array, name: str):
        super().__init__(lo, s, final, out, name, QUAD)

    @staticmethod
    def takes(s: Windows, out: Array) -> bool:
        """Whether it is for these sums, which fit: of bytes, of two pixels of three or four channels each."""
        channels, pixels, wide = (as_int(n) or 0 for n in (s.x.shape[3], s.column.shape[0], s.x.shape[2]))
        tables = s.taps[1] * _line(pixels, QUAD) * (int32.size + s.dtype.compute.size)
        few = s.x.dtype.size == 1 and channels in (QUAD - 1, QUAD) and s.taps[1] == 2 and out.dtype is not bool_
        return few and QUAD <= pixels < wide and tables < MOST_SCRATCH_BYTES

    def begin(self):
        k = self.k
        self.farthest = k.var(const(0), name="far")  # a tap that both can be read from; of taps that lie apart beyond all
        with k.loop(0, self.pixels, name="pixel") as j:
            first, second = (k.let(cast(k.load(self.places, j + t * self.line), int64)) for t in (0, 1))
            far = select(equal(second - first, self.channels), first, const(1 << 62))
            self.farthest.set(maximum(self.farthest.value, far))

    def row(self, i, inside, picture, to):
        k, x = self.k, self.x
        starts, rows = [k.let(picture + r * x.strides[1]) for r in inside], self.row_weights(i)
        behind = (as_expr(x.shape[1]) - 1 - functools.reduce(maximum, inside)) * x.strides[1]  # of the last row: elements of the picture
        with k.if_(self.farthest.value <= behind + ((as_int(x.shape[2]) or 0) * self.channels - PAIR_BYTES)):
            self._quads(to, lambda j: self._both_taps(starts, rows, j))
        with k.else_():
            self._quads(to, lambda j: [self._one_tap(starts, rows, j, t) for t in range(2)])

    def _quads(self, to: Expr, taps: Callable[[Expr], list[Expr]]) -> None:
        """Writes a row of results, QUAD pixels at a time: the last ones begin so early that they are so many. taps: what is summed down the
        columns for these from a number on, of each tap, a pixel in each quad."""
        k = self.k
        with k.loop(0, self.pixels, QUAD, name="pixel") as first:
            j = k.let(minimum(first, self.pixels - QUAD))
            at = At((0, 0, 0, j * self.channels), 3, None)
            at.memo[self.s] = k.let(cast(total_of(k, list(zip(self.column_weights(j * QUAD), taps(j)))), self.s.dtype))
            value = splat(self.final.at(k, at))
            if self.channels < QUAD:
                value = shuffle("first_of_quads", value, value)
            k.store(k.write(self.out), to + j * self.channels, value, None if self.channels == QUAD else self.channels * QUAD)

    def _read(self, at: Expr, count: int) -> Expr:
        """So many elements of the picture."""
        return cast(self.k.load(self.k.read(self.x), at, LANES, count), self.s.dtype.compute)

    def _both_taps(self, starts: list[Expr], rows: list[Expr], j: Expr) -> list[Expr]:
        k, halves = self.k, []
        places = [k.let(cast(k.load(self.places, j + i), int64)) for i in range(QUAD)]
        for two in (places[:2], places[2:]):
            pixels = [k.let(shuffle("first_halves", *(self._read(start + at, PAIR_BYTES) for at in two))) for start in starts]
            halves.append(total_of(k, list(zip(rows, pixels))))
        return [shuffle(name, *halves) for name in ("even_quads", "odd_quads" if self.channels == QUAD else "quads_from_3")]

    def _one_tap(self, starts: list[Expr], rows: list[Expr], j: Expr, t: int) -> Expr:
        k, pixels = self.k, []
        places = [k.let(cast(k.load(self.places, j + (t * self.line + i)), int64)) for i in range(QUAD)]
        for start in starts:
            one = [self._read(start + at, self.channels) for at in places]
            pixels.append(k.let(shuffle("even_quads", *(shuffle("first_halves", *one[i : i + 2]) for i in (0, 2)))))
        return total_of(k, list(zip(rows, pixels)))


class DownFirst(_Elements):
    """Sums down the columns of the picture first, and spreads these sums out."""

    def __init__(self, lo: Lowering, s: Windows, final: Source, out: Array, name: str):
        super().__init__(lo, s, final, out, name)
        self.wide = (as_int(self.x.shape[2]) or 0) * self.channels
        self.block = (BLOCK_WINDOW_PIXELS * self.channels // LANES + 1) * LANES  # with room for what a last move has beside its pixel
        self.summed = self.k.scratch("summed", s.dtype.compute, SUMS_BEFORE + cdiv(self.wide, LANES) * LANES + 2 * LANES)
        self.spread = self.k.scratch("spread", s.dtype.compute, self.along * self.block)

    def row(self, i, inside, picture, to):
        k, d, src = self.k, self.s.dtype.compute, self.k.read(self.x)
        rows, starts = self.row_weights(i), [k.let(picture + r * self.x.strides[1]) for r in inside]
        for e, count in k.vector_loop(0, self.wide, "element"):
            values = [k.let(cast(k.load(src, start + e, LANES, count), d)) for start in starts]
            k.store(self.summed, e + SUMS_BEFORE, total_of(k, list(zip(rows, values))))
        self.across(to)

    def across(self, to: Expr) -> None:
        """Writes the results that begin at `to`, from the sums down the columns."""
        whole = self.pixels // BLOCK_WINDOW_PIXELS * BLOCK_WINDOW_PIXELS
        if whole:
            with self.k.loop(0, whole, BLOCK_WINDOW_PIXELS, name="block") as begin:
                self._block(begin, BLOCK_WINDOW_PIXELS, to)
        if whole < self.pixels:
            self._block(const(whole), self.pixels - whole, to)

    def _block(self, begin: Expr, pixels: int, to: Expr) -> None:
        """Writes the results of so many pixels from `begin` on, of the row that begins at `to`."""
        k, move = self.k, _move(self.channels)
        for j, t, i in _pixels_of(k, begin, pixels, self.along):
            at = cast(k.load(self.places, j + (t * self.line + i)), int64) + SUMS_BEFORE
            there = (j - begin) * self.channels + (t * self.block + i * self.channels)
            k.store(self.spread, there, k.load(self.summed, at, LANES, move), move)
        first = k.let(begin * self.channels)
        for e, count in k.vector_loop(0, pixels * self.channels, "element"):
            down = [k.load(self.spread, e + t * self.block, LANES) for t in range(self.along)]
            self.store(to, first + e, total_of(k, list(zip(self.column_weights(first + e), down))), count)


class LookedUp(DownFirst):
    """Looks sums up in the HALF_LANES that begin at the first one of as many results: where these lie as near as their sums do, which they
    do in a picture that becomes wider. The picture's first and last pixel stand before and behind it once more."""

    def __init__(self, lo: Lowering, s: Windows, final: Source, out: Array, name: str):
        super().__init__(lo, s, final, out, name)
        self.index = self.k.scratch("index", int32, self.line)
        self.firsts = self.k.scratch("firsts", int32, self.line // HALF_LANES)

    @staticmethod
    def takes(s: Windows) -> bool:
        """Whether it is for these sums, which fit: its tables are larger."""
        channels, pixels, wide = (as_int(n) or 0 for n in (s.x.shape[3], s.column.shape[0], s.x.shape[2]))
        tables = (s.taps[1] + 1) * _line(pixels, channels) * (int32.size + float32.size) + (wide * channels + 64 * LANES) * float32.size
        return s.dtype is float32 and tables < MOST_SCRATCH_BYTES

    def begin(self):
        k, end = self.k, self.pixels * self.channels
        with k.loop(0, self.pixels, name="pixel") as j:
            first = maximum(minimum(k.let(cast(self.s.column.at(k, At((j,))), int64)), (as_int(self.x.shape[2]) or 0) - 1), -1)
            places = splat(k.let(cast(first * self.channels + SUMS_BEFORE, int32))) + cast(ramp(), int32)
            k.store(self.index, j * self.channels, places, _move(self.channels))
        k.store(self.index, end, splat(k.load(self.index, end - 1)))  # for the last vector's lanes without results
        farthest = k.var(const(0, uint32, LANES), name="far")
        with k.loop(0, cdiv(end, LANES) * LANES, LANES, name="element") as e:
            firsts = list[Expr]()
            for half in (0, HALF_LANES):
                some = (k.load(self.index, e + (half + c)) for c in range(self.channels))
                firsts.append(k.let(functools.reduce(minimum, some)))
                k.store(self.firsts, e // HALF_LANES + half // HALF_LANES, firsts[-1])
            places = k.let(k.load(self.index, e, LANES) - shuffle("first_halves", *map(splat, firsts)))
            k.store(self.index, e, places)
            farthest.set(maximum(farthest.value, bitcast(places, uint32)))
        self.near = k.let(fold("max", farthest.value) < HALF_LANES)

    def across(self, to):
        with self.k.if_(self.near):
            self._looked_up(to)
        with self.k.else_():
            super().across(to)

    def _looked_up(self, to: Expr) -> None:
        """Writes the results that begin at `to`."""
        k, c = self.k, self.channels
        for more, pixel in ((-c, 0), (self.wide, self.wide - c)):
            for i in range(c):
                k.store(self.summed, const(SUMS_BEFORE + more + i), k.load(self.summed, const(SUMS_BEFORE + pixel + i)))
        for e, count in k.vector_loop(0, self.pixels * c, "element"):
            firsts = [k.let(cast(k.load(self.firsts, e // HALF_LANES + half), int64)) for half in (0, 1)]
            index, values = k.load(self.index, e, LANES), []
            for t in range(self.along):
                table = k.let(shuffle("first_halves", *(k.load(self.summed, first + t * c, LANES) for first in firsts)))
                values.append(k.let(lookup(table, index)))
            self.store(to, e, total_of(k, list(zip(self.column_weights(e), values))), count)


def _pixels_of(k: KernelBuilder, begin: Expr, pixels: int, taps: int) -> Iterator[tuple[Expr, int, int]]:
    """Writes what follows for each of so many pixels from `begin` on and each tap: (pixel j, tap t, i), of the pixel j + i."""
    whole = pixels // UNROLLED_PIXELS * UNROLLED_PIXELS
    for first, stop, some in ((0, whole, UNROLLED_PIXELS), (whole, pixels, 1)):
        if first == stop:
            continue
        with k.loop(begin + first, begin + stop, some, name="pixel") as j:
            for i in range(some):
                for t in range(taps):
                    yield j, t, i
