"""Pictures of another size: each result is a weighted sum over a small window of pixels, whose rows and columns are weighed apart.

`Windows` is a source, so that any loop nest can ask for its values. For pictures of few channels, which lie beside each other, it has a
kernel of its own, with the elements of a row of results in the lanes, whatever their channels are:

    for each piece = some rows of results of a picture:
        for row i of the piece:
            for tap t, if the row of pixels r = row[i] + t is not there yet:
                for pixel j of the results, tap s: spread[r, s, j] = x[r, column[j] + s]       # moves, which compute nothing
            for vector of elements j: out[i, j] = the sum over t and s of spread[row[i] + t, s, j], weighed

The rows that are spread out lie in a ring, which a picture that becomes larger reads again for the next row of results. If results have more
columns than the picture, fewer numbers are summed down its columns before they are spread out (`_DownFirst`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tengen.base.dtype import int32, int64
from tengen.kernels.indexing.gather import place
from tengen.kernels.lowering import Array, KernelBuilder, Lowering
from tengen.kernels.source import At, Leaf, Source
from tengen.loops.builder import MOST_SCRATCH_BYTES, as_expr
from tengen.loops.lang import (
    LANES,
    Expr,
    Index,
    as_int,
    cast,
    cdiv,
    const,
    equal,
    fma,
    maximum,
    minimum,
    not_equal,
    select,
    splat,
)

MOST_WINDOW_CHANNELS = 4  # of a picture, for the kernel of this file
MOST_WINDOW_TAPS = 2  # of an axis, for the same
MOST_RING_BYTES = 256 << 10
UNROLLED_PIXELS = 4  # moves of so many are written out
BLOCK_WINDOW_PIXELS = 64  # of a row of results, for which sums are spread out before they are weighed
PIECE_RESULT_ROWS = 16  # of results: with fewer of them, rows that two pieces read would be spread out twice too often


class Windows(Source):
    """out[n, i, j, c] = the sum over t and s of row_weight[t, i] * column_weight[s, j] * x[n, row[i] + t, column[j] + s, c].

    Shapes: x (N, H, W, C), row (PH), row_weight (T, PH), column (PW), column_weight (S, PW). Result: (N, PH, PW, C) of the weights' dtype.
    joint: the weights are multiplied with each other first; otherwise down the columns (t) is summed first, and then along the rows (s).
    """

    def __init__(self, x: Source, row: Source, row_weight: Source, column: Source, column_weight: Source, joint: bool):
        self.x, self.row, self.row_weight, self.column, self.column_weight = x, row, row_weight, column, column_weight
        self.joint, self.dtype = joint, row_weight.dtype
        self.taps = as_int(row_weight.shape[0]) or 1, as_int(column_weight.shape[0]) or 1
        self.shape = (x.shape[0], row.shape[0], column.shape[0], x.shape[3])

    def value(self, k, at):
        n, _, _, c = at.coords
        wide = (lambda e: splat(e)) if at.lanes > 1 else (lambda e: e)

        def along(axis: int, first: Source, weight: Source) -> list[tuple[Expr, Expr]]:
            """(place, weight) of each tap along an axis."""
            one = lambda s, *lead: s.at(k, place((*lead, at.coords[axis]), len(lead) if at.vec == axis else None, at.count))
            start, taps = k.let(cast(one(first), int64)), self.taps[axis - 1]
            inside = [k.let(clamped(start + t, self.x.shape[axis])) for t in range(taps)]
            return [(i, k.let(cast(one(weight, t), self.dtype.compute))) for t, i in enumerate(inside)]

        def pixel(i: Expr, j: Expr) -> Expr:
            there = place((at.coord(0) if at.vec == 0 else n, i, j, c), 3 if at.vec == 3 else None, at.count)
            return wide(cast(self.x.at(k, there), self.dtype.compute))

        rows, columns = along(1, self.row, self.row_weight), along(2, self.column, self.column_weight)
        values = [[pixel(i, j) for j, _ in columns] for i, _ in rows]
        return cast(self.weighed(k, values, [wide(w) for _, w in rows], [wide(w) for _, w in columns]), self.dtype)

    def weighed(self, k: KernelBuilder, values: list[list[Expr]], rows: list[Expr], columns: list[Expr]) -> Expr:
        """The sum of values[t][s], by the weights of both axes. What has no weight along an axis counts as 0, even if it is a NaN."""
        if self.x.dtype.is_float:
            there = lambda t, s: k.let(not_equal(rows[t], 0.0) & not_equal(columns[s], 0.0))
            zero = const(0, self.dtype.compute, columns[0].lanes)
            values = [[select(there(t, s), v, zero) for s, v in enumerate(line)] for t, line in enumerate(values)]
        if self.joint:
            terms = [(k.let(u * w), v) for u, line in zip(rows, values) for w, v in zip(columns, line)]
            return _total(k, terms)
        down = [_total(k, [(u, line[s]) for u, line in zip(rows, values)]) for s in range(len(columns))]
        return _total(k, list(zip(columns, down)))

    def launch(self, lo, final, out, name):
        if not self.apart(lo, out):
            return False
        wider = (as_int(self.column.shape[0]) or 0) > (as_int(self.x.shape[2]) or 0)
        kind = _DownFirst if wider and not self.joint and self.x.dtype.is_int else _Spread
        kind(lo, self, final, out, name).write()
        return True

    def apart(self, lo, out):
        return isinstance(self.x, Leaf) and _fit(lo, self, self.x.array, out)


def clamped(i: Expr, n: Index) -> Expr:
    """The number of the pixel nearest to `i` of n."""
    return maximum(minimum(i, as_expr(n) - 1), 0)


def _total(k: KernelBuilder, terms: list[tuple[Expr, Expr]]) -> Expr:
    """A product, and an fma for each further one."""
    (w, v), *others = terms
    total = k.let(w * v)
    for w, v in others:
        total = k.let(fma(w, v, total))
    return total


def _fit(lo: Lowering, s: Windows, x: Array, out: Array) -> bool:
    """Whether the kernel of this file takes it: few channels beside each other, rows of known length that fit its memory."""
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
    """What both kernels share."""

    def __init__(self, lo: Lowering, s: Windows, final: Source, out: Array, name: str):
        assert isinstance(s.x, Leaf)
        x = s.x.array
        self.lo, self.s, self.x, self.final, self.out = lo, s, x, final, out
        self.channels, self.pixels = as_int(x.shape[3]) or 0, as_int(s.column.shape[0]) or 0
        self.line = _line(self.pixels, self.channels)
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
                k.store(self.weights, j * self.channels + t * self.line, splat(w), _move(self.channels))

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


class _Spread(_Elements):
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


class _DownFirst(_Elements):
    """Sums down the columns of the picture first, and spreads these sums out: for integers, where results have more columns than the picture.

        for row i of the piece:
            for vector of elements e of a row of the picture: summed[e] = the sum over t of x[row[i] + t, e], weighed
            for each block of BLOCK_WINDOW_PIXELS pixels of the results:
                for pixel j of the block, tap s: spread[s, j] = summed[column[j] + s]
                for vector of elements j of the block: out[i, j] = the sum over s of spread[s, j], weighed
    """

    def __init__(self, lo: Lowering, s: Windows, final: Source, out: Array, name: str):
        super().__init__(lo, s, final, out, name)
        self.wide = (as_int(self.x.shape[2]) or 0) * self.channels
        self.block = (BLOCK_WINDOW_PIXELS * self.channels // LANES + 1) * LANES  # with room for what a last move has beside its pixel
        self.summed = self.k.scratch("summed", s.dtype.compute, cdiv(self.wide, LANES) * LANES + LANES)
        self.spread = self.k.scratch("spread", s.dtype.compute, self.along * self.block)

    def row(self, i, inside, picture, to):
        k, d, src = self.k, self.s.dtype.compute, self.k.read(self.x)
        rows, starts = self.row_weights(i), [k.let(picture + r * self.x.strides[1]) for r in inside]
        for e, count in k.vector_loop(0, self.wide, "element"):
            values = [k.let(cast(k.load(src, start + e, LANES, count), d)) for start in starts]
            k.store(self.summed, e, _total(k, list(zip(rows, values))))
        whole = self.pixels // BLOCK_WINDOW_PIXELS * BLOCK_WINDOW_PIXELS
        if whole:
            with k.loop(0, whole, BLOCK_WINDOW_PIXELS, name="block") as begin:
                self._block(begin, BLOCK_WINDOW_PIXELS, to)
        if whole < self.pixels:
            self._block(const(whole), self.pixels - whole, to)

    def _block(self, begin: Expr, pixels: int, to: Expr) -> None:
        """Writes the results of so many pixels from `begin` on, of the row that begins at `to`."""
        k, move = self.k, _move(self.channels)
        for j, t, i in _pixels_of(k, begin, pixels, self.along):
            at = cast(k.load(self.places, j + (t * self.line + i)), int64)
            there = (j - begin) * self.channels + (t * self.block + i * self.channels)
            k.store(self.spread, there, k.load(self.summed, at, LANES, move), move)
        first = k.let(begin * self.channels)
        for e, count in k.vector_loop(0, pixels * self.channels, "element"):
            down = [k.load(self.spread, e + t * self.block, LANES) for t in range(self.along)]
            self.store(to, first + e, _total(k, list(zip(self.column_weights(first + e), down))), count)


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
