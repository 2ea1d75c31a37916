"""Transposed convolutions to few channels, as the gradient of a network's image is: pixels of a row in the lanes.

    for each piece = (image, some rows, one tile of columns):
        strip[line, o, pixel] = the gradients' lines, transposed so that neighbouring pixels of a channel are dense
        for row, phase of the stride:                             # results that the same positions of the filter reach
            for tap of the phase, o:
                acc[c][v] += strip[row + tap, o, vector v of pixels] * w[tap, o, c]
            out[c, pixels of the phase] = acc

The sums have the order of `chunks.Chunks` over (*K, O), with the positions of the filter that reach a phase; the bits are those
of the general contraction.

In: an image of gradients, a filter, where the result goes. Out: launches that pack the filter, and compute.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tengen.base.dtype import bool_
from tengen.base.record import record
from tengen.kernels import numerics
from tengen.kernels.axes import unflatten
from tengen.kernels.contraction.problem import multiply_add
from tengen.kernels.convolution.depthwise import MOST_TAPS, Phase, Tap, transpose
from tengen.kernels.lowering import Array, Lowering
from tengen.kernels.machine import machine, registers_of
from tengen.kernels.pointwise import copy
from tengen.loops.builder import Variable, as_expr
from tengen.loops.lang import LANES, Expr, as_int, cast, cdiv, const, maximum, minimum, select, splat

MOST_RESULT_CHANNELS = 4  # channels of results, at most
MOST_PIXEL_VECTORS = 8  # vectors of pixels of a tile, at most
L2_STRIP_BYTES = 1 << 18  # bytes of a strip, about: it stays in L2
MOST_ROW_STRIP_BYTES = 1 << 19  # bytes of a strip for a single row of results, at most: it lies on the stack


def fits(y: Array, w: Array, out: Array, stride, padding, dilation) -> bool:
    """Whether the filter (O, C, *K) has few channels C and at most a chunk of channels O, the gradients lie channels-last, and
    a strip fits a stack, which with a wide dilation it may not."""
    o, c, kh, kw = (as_int(d) or 0 for d in w.shape)
    known = 0 < kh * kw <= MOST_TAPS and 0 < c <= MOST_RESULT_CHANNELS and LANES <= o <= numerics.CHUNK_TERMS
    known = known and out.dtype.is_float
    if not known or as_int(y.strides[1]) != 1 or None in (as_int(d) for d in out.shape[2:]):
        return False
    phases = transpose((kh, kw), stride, padding, dilation, (out.shape[2], out.shape[3]))
    (_, high), (_, wide) = _reach(phases)
    return (1 + high) * _line(o, MOST_PIXEL_VECTORS * LANES + wide) * y.dtype.compute.size <= MOST_ROW_STRIP_BYTES


def _reach(phases: Sequence[Phase]) -> tuple[tuple[int, int], tuple[int, int]]:
    """For rows, then for columns: (the first offset that any tap of any phase reads, how far the last one is from it)."""
    taps = [t for p in phases for t in p.taps] or [Tap(0, 0, 0)]
    ys, xs = [t.y for t in taps], [t.x for t in taps]
    return (min(ys), max(ys) - min(ys)), (min(xs), max(xs) - min(xs))


def _pitch(pixels: int) -> int:
    """Elements from one channel of a line to the next."""
    return cdiv(pixels, LANES) * LANES + LANES


def _line(channels: int, pixels: int) -> int:
    """Elements of a line of a strip."""
    return cdiv(channels, LANES) * LANES * _pitch(pixels)


def transposed(lo: Lowering, y: Array, w: Array, out: Array, stride, padding, dilation, name: str) -> None:
    """out = the transpose of a convolution by w, of y.

    Shapes: y (N, O, P, Q), w (O, C, *K) for which `fits`, out (N, C, H, W)
    """
    if any(as_int(d) == 0 for d in out.shape):
        return
    kernel = [as_int(d) or 0 for d in w.shape[2:]]
    phases = transpose(kernel, stride, padding, dilation, (out.shape[2], out.shape[3]))
    _Transposed(lo, y, w, out, phases, tuple(stride), name).launch()


@record(frozen=True)
class Sizes:
    """Sizes of a strip and its tiles.

    Attributes:
        terms: channels of y, which are summed. channels: of results. vectors: of places of a tile. rows: of results of a strip.
        first: the first line and pixel that any tap reads, from the result's own. reach: how far the last ones are from these.
    """

    terms: int
    channels: int
    vectors: int
    rows: int
    first: tuple[int, int]
    reach: tuple[int, int]

    @property
    def wide(self) -> int:
        """Places of a tile."""
        return self.vectors * LANES

    @property
    def pitch(self) -> int:
        """Elements from one channel of a line to the next."""
        return _pitch(self.wide + self.reach[1])

    @property
    def line(self) -> int:
        """Elements of a line."""
        return _line(self.terms, self.wide + self.reach[1])


def sizes(lo: Lowering, w: Array, phases: Sequence[Phase], size: int) -> Sizes:
    """The sizes for a filter (O, C, *K) and elements of `size` bytes."""
    terms, channels = as_int(w.shape[0]) or 1, as_int(w.shape[1]) or 1
    (top, high), (left, right) = _reach(phases)
    s = Sizes(terms, channels, _vectors(lo, phases, channels, size), 1, (top, left), (high, right))
    return replace(s, rows=max(1, min(4, L2_STRIP_BYTES // (s.line * size) - high)))


def _vectors(lo: Lowering, phases: Sequence[Phase], channels: int, size: int) -> int:
    """Vectors of places of a tile: what registers hold, and as few tiles to a row as can be, of one size."""
    _, registers, _ = machine(lo.target)
    each = registers_of(size, lo.target)
    most = max(1, min(MOST_PIXEL_VECTORS, (registers - channels - 2 * each) // (channels * each)))
    row = cdiv(max(1, as_int(phases[0].count[1]) or 1), LANES)
    return cdiv(row, cdiv(row, most))


class _Transposed:
    """Writes the kernel. w: the filter as (*K, O, C), dense."""

    def __init__(
        self, lo: Lowering, y: Array, w: Array, out: Array, phases: Sequence[Phase], stride: tuple[int, int], name: str
    ):
        self.lo, self.y, self.out, self.phases, self.stride = lo, y, out, phases, stride
        compute = y.dtype.compute
        s = self.s = sizes(lo, w, phases, compute.size)
        self.w = lo.once(w, ("strips transposed", w.shape, w.strides), lambda: self.dense(w, name))
        k = self.k = lo.kernel(name)
        self.strip = k.scratch("strip", compute, (s.rows + s.reach[0]) * s.line + LANES)
        self.sums = k.scratch("sums", compute, stride[1] * s.channels * s.wide)

    def dense(self, w: Array, name: str) -> Array:
        """The filter as (*K, O, C)."""
        out = self.lo.temp(w.dtype, (*w.shape[2:], *w.shape[:2]))
        copy(self.lo, w.permute((2, 3, 0, 1)), out, f"{name}_pack")
        return out

    def launch(self) -> None:
        """Writes and launches it: a piece is some rows of one image, by one tile."""
        k, n = self.k, self.out.shape[0]
        high, wide = (as_int(d) or 0 for d in self.phases[0].count)
        blocks, parts = cdiv(high, self.s.rows), cdiv(wide, self.s.wide)
        piece = k.split(n * blocks * parts)
        image, block, part = unflatten(k, piece, (n, blocks, parts))
        first, left = k.let(block * self.s.rows), k.let(part * self.s.wide)
        stop = k.let(minimum(first + self.s.rows, high))
        self.copy(as_expr(image), first, left, stop)
        with k.loop(first, stop, name="row") as y:
            for lattice in range(self.stride[0]):
                mine = [p for p in self.phases if p.first[0] == lattice]
                with k.if_(y < mine[0].count[0] if lattice else const(True, bool_)):
                    for p in mine:
                        self.phase(p, k.let((y - first) * self.s.line))
                    self.write(mine, as_expr(image), y, left)
        self.lo.launch(k)

    def copy(self, n: Expr, first: Expr, left: Expr, stop: Expr) -> None:
        """Fills the strip with what the results of rows first..stop read: LANES pixels by LANES channels of y at a time,
        transposed, so that pixels fill the lanes. Pixels beyond the image's border are zeros."""
        k, o, (high, wide) = self.k, self.s.terms, self.y.shape[2:]
        with k.loop(0, k.let(stop - first + self.s.reach[0]), name="line") as i:
            y = k.let(first + self.s.first[0] + i)
            has = k.let((y >= 0) & (y < high))
            with k.loop(0, self.s.wide + self.s.reach[1], LANES, name="x") as b, k.loop(0, o, LANES, name="o") as c:
                x = k.let(left + self.s.first[1] + b)
                to = k.let(i * self.s.line + c * self.s.pitch + b)
                here = k.let(as_expr(self.y.index((n, c, y, x))))
                with k.if_(has & (x >= 0) & (x + LANES <= wide)):
                    self.square(here, to, [None if o % LANES == 0 else o - c] * LANES)
                with k.else_():
                    some = k.let(minimum(o - c, LANES))
                    inside = [has & (x + j >= 0) & (x + j < wide) for j in range(LANES)]
                    self.square(here, to, [k.let(select(each, some, const(0))) for each in inside])

    def square(self, here: Expr, to: Expr, counts: Sequence[Expr | None]) -> None:
        """Copies LANES neighbouring pixels, LANES channels of each, from element `here` of y on to element `to` of the strip,
        transposed. counts: how many of the channels each pixel has; the others are zeros, and None stands for all."""
        k, src = self.k, self.k.read(self.y)
        pixels = [k.load(src, here + j * self.y.strides[3], LANES, n) for j, n in enumerate(counts)]
        for j, row in enumerate(k.transpose([cast(p, self.sums.dtype) for p in pixels])):
            k.store(self.strip, to + j * self.s.pitch, row)

    def phase(self, p: Phase, at: Expr) -> None:
        """Computes the results of one phase in a row, from the lines of the strip from element `at` on, and leaves them in
        `sums`."""
        k, size = self.k, numerics.CHUNK_TERMS // self.s.terms  # positions of a chunk
        zero = const(0, self.sums.dtype, LANES)
        acc = [[k.var(zero, name="acc") for _ in range(self.s.vectors)] for _ in range(self.s.channels)]
        base = p.first[1] * self.s.channels * self.s.wide
        for start in range(0, max(1, len(p.taps)), size):
            if start:
                for row in acc:
                    for total in row:
                        total.set(const(0, self.sums.dtype, LANES))
            for tap in p.taps[start : start + size]:
                self.tap(tap, at, acc)
            for c, row in enumerate(acc):
                for v, total in enumerate(row):
                    place = base + c * self.s.wide + v * LANES
                    value = k.load(self.sums, place, LANES) + total.value if start else total.value
                    k.store(self.sums, place, value)

    def tap(self, tap: Tap, at: Expr, acc: list[list[Variable]]) -> None:
        """Adds the products of one position of the filter, summed over the channels of y, to `acc`."""
        k, (_, kw) = self.k, (as_int(d) or 1 for d in self.w.shape[:2])
        where = k.let(at + ((tap.y - self.s.first[0]) * self.s.line + tap.x - self.s.first[1]))
        weights = k.read(self.w)
        with k.loop(0, self.s.terms, name="o") as o:
            mine = self.w.index((tap.weight // kw, tap.weight % kw, o, 0))
            ws = [k.let(splat(cast(k.load(weights, mine + c), self.sums.dtype))) for c in range(self.s.channels)]
            for v in range(self.s.vectors):
                pixels = k.load(self.strip, where + o * self.s.pitch + v * LANES, LANES)
                for w, row in zip(ws, acc):
                    row[v].set(multiply_add(pixels, w, row[v].value))  # acc[c][v] += strip[o, pixels v] * w[tap, o, c]

    def write(self, phases: Sequence[Phase], n: Expr, y: Expr, left: Expr) -> None:
        """Stores what `phase` has left in `sums`: the results of these phases in one row, from column `left` of each on."""
        k, dst = self.k, self.k.write(self.out)
        for p in phases:
            count = k.let(maximum(minimum(as_expr(p.count[1]) - left, self.s.wide), 0))
            with k.loop(0, count, name="x") as x:
                place = (p.first[0] + y * self.stride[0], p.first[1] + (left + x) * self.stride[1])
                for c in range(self.s.channels):
                    value = k.load(self.sums, (p.first[1] * self.s.channels + c) * self.s.wide + x)
                    k.store(dst, self.out.index((n, c, *place)), cast(value, self.out.dtype))
