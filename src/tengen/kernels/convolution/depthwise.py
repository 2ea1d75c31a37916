"""Depthwise convolutions in two dimensions: one filter for each channel, 16 channels in a vector, no copy of the image.

    for each piece = (image, block of channels, some rows of results):
        for row y of results, phase:                                 # one phase for a convolution, more for its transpose
            for tile of neighbouring results x .. x + wide - 1:
                for LANES channels c:
                    for tap (ty, tx) of the filter:
                        acc[i] += image[c, y * sy + ty, (x + i) * sx + tx] * weights[tap, c]      # i = 0 .. wide - 1
                    out[c, y, x + i] = acc[i]

Results of a tile share the loads of neighbouring pixels, and all channels of a tile are computed before the next tile, so that
memory is read in the order in which it lies. Pixels outside of the image are zeros, and multiplied like all others.
`stencil_weights` is the filter's gradient: acc[tap] += image[c, pixel + tap] * gradient[c, pixel] for all pixels of a chunk.
The sums have the order of `chunks.Chunks`, so the bits are those of every other contraction.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

from tengen.base.dtype import DType, bool_
from tengen.base.record import record
from tengen.kernels.axes import store_at, streams, unflatten
from tengen.kernels.contraction.chunks import Chunks
from tengen.kernels.contraction.problem import multiply_add
from tengen.kernels.lowering import Array, KernelBuilder, Lowering, product
from tengen.kernels.machine import machine
from tengen.kernels.pointwise import copy
from tengen.kernels.schedule import Schedule, outside
from tengen.kernels.source import At
from tengen.loops.builder import as_expr
from tengen.loops.lang import LANES, Expr, Index, as_int, cast, cdiv, const, equal, maximum, minimum, select
from tengen.loops.statements import Buffer

PIECE_RESULTS = 1 << 16  # results of a piece, about, at most, by rule: neighbouring pieces both read the rows at their border
PIECE_GRADIENTS = 1 << 13  # elements of the gradient that a piece of the filter's gradient reads, about
STENCIL_PIECES = 16  # pieces that are enough to share among threads
STENCIL_GRADIENT_PIECES = 8  # the same for the filter's gradient: where there are fewer chunks, channels are shared too
L1_WEIGHTS_BYTES = 12 << 10  # bytes of weights of a piece, about, at most: they stay in L1
MOST_NEAR_BYTES = 8 << 20  # of an image that was just made: a cache that several cores share has it
MOST_TAPS = 64  # positions of a filter, at most: each is written out in the kernel

Epilogue = Callable[[KernelBuilder, Expr, At], Expr]


@record(frozen=True)
class Tap:
    """One term of a sum: the pixel at offset (y, x) from the point that belongs to the result, times weight number `weight`."""

    y: int
    x: int
    weight: int


@record(frozen=True)
class Phase:
    """The results at first + step * (Y, X), for Y, X below `count`, which have the same taps; and these in the order of the
    sum."""

    first: tuple[int, int]
    count: tuple[Index, Index]
    taps: tuple[Tap, ...]


@record(frozen=True)
class Stencil(Schedule, kind="stencil"):
    """wide: neighbouring results of a row in a tile, at most. elements: results of a piece, about."""

    wide: int
    elements: int = PIECE_RESULTS

    steps: ClassVar = {"wide": (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14), "elements": tuple(1 << i for i in range(11, 20))}

    def fits(self) -> str:
        """Why it cannot be; empty if it can."""
        return outside(self, wide=(1, 14), elements=(1, 1 << 24))


def convolution(kernel: Sequence[int], padding, dilation, out: tuple[Index, Index]) -> list[Phase]:
    """The one phase of a convolution: all results have the same taps."""
    taps = [
        Tap(i * dilation[0] - padding[0], j * dilation[1] - padding[1], i * kernel[1] + j)
        for i in range(kernel[0])
        for j in range(kernel[1])
    ]
    return [Phase((0, 0), out, tuple(taps))]


def transpose(kernel: Sequence[int], stride, padding, dilation, out: tuple[Index, Index]) -> list[Phase]:
    """The phases of a transposed convolution: results that the same positions of the filter reach. A phase without taps is
    zero."""
    along = lambda i, phase: reached(kernel[i], stride[i], padding[i], dilation[i], phase)
    phases = []
    for a in range(stride[0]):
        for b in range(stride[1]):
            taps = tuple(Tap(y, x, i * kernel[1] + j) for y, i in along(0, a) for x, j in along(1, b))
            count = (cdiv(maximum(as_expr(out[0] - a), 0), stride[0]), cdiv(maximum(as_expr(out[1] - b), 0), stride[1]))
            known = tuple(n if as_int(n) is None else as_int(n) for n in count)
            phases.append(Phase((a, b), known, taps))
    return phases


def fits(w: Array, groups: Index) -> bool:
    """Whether a filter (G, 1, 1, *K) or (G, 1, *K) has one filter for each channel, two dimensions and few enough positions."""
    space = [as_int(d) for d in w.shape[-2:]]
    if as_int(groups) == 1 or None in space or not 0 < space[0] * space[1] <= MOST_TAPS:
        return False
    each = w.shape[0] is groups or (as_int(groups) is not None and as_int(w.shape[0]) == as_int(groups))
    ones = w.shape[1:3] if w.ndim == 5 else w.shape[1:2] if w.ndim == 4 and each else (0,)
    return all(as_int(d) == 1 for d in ones)


def packed_filter(lo: Lowering, w: Array) -> Array:
    """The filter as (T, C), dense along C."""
    kernel = w.shape[-2:]
    src = Array(w.id, w.dtype, (*kernel, w.shape[0]), (*w.strides[-2:], w.strides[0]), w.offset)

    def make() -> Array:
        t = lo.temp(w.dtype, src.shape)
        copy(lo, src, t, "depthwise_pack")
        return t

    t = lo.once(src, "depthwise_pack", make)
    return Array(t.id, t.dtype, (product(kernel), w.shape[0]), t.strides[1:], t.offset)


def reached(kernel: int, stride: int, padding: int, dilation: int, phase: int) -> list[tuple[int, int]]:
    """Along one axis of a transposed convolution, the taps of output pixels phase + stride * Y: (which pixel from Y on, which
    position of the filter), in the order of the reversed filter. Positions that meet no pixel have no term."""
    found = []
    for i in range(kernel):
        at = phase + i * dilation - (dilation * (kernel - 1) - padding)
        if at % stride == 0:
            found.append((at // stride, kernel - 1 - i))
    return found


def width(target, d: DType) -> int:
    """The most neighbouring results of a tile, by rule: as many as there are registers for."""
    bytes_, registers, _ = machine(target)
    vectors = bytes_ * registers // (LANES * d.size)
    return 8 if vectors >= 32 else 4 if vectors >= 4 else 1  # without vector registers, wide tiles are but long code


def best_width(columns: int, most: int) -> int:
    """How many results a tile has, at most `most`: so that a row of `columns` has as few tiles as possible, of equal size where
    more than half of `most` divides it."""
    tiles = cdiv(max(columns, 1), most)
    even = [n for n in range(most, most // 2, -1) if columns % n == 0]
    return even[0] if even else cdiv(max(columns, 1), tiles)


def channel_block(taps: Index, channels: Index, d: DType) -> tuple[Index, Index]:
    """(channels of a piece, pieces for all channels): the weights of a piece stay in L1 beside the image."""
    most = max(1, L1_WEIGHTS_BYTES // (as_int(taps) or 1) // (LANES * d.size)) * LANES
    parts = cdiv(channels, most)
    return cdiv(cdiv(channels, LANES), parts) * LANES, parts


def schedule(
    lo: Lowering, name: str, src: Array, out: Array, taps: Sequence[Tap], step, wide: int, elements: int = PIECE_RESULTS
) -> Stencil:  # fmt: skip
    """How it is computed: tuned, or by rule with tiles of `wide` pixels and pieces of `elements`."""

    def problem_key() -> str:
        arrays = "; ".join(f"{a.dtype} {list(a.shape)} by {list(a.strides)}" for a in (src, out))
        return f"{name} of {arrays} taps {[(t.y, t.x) for t in taps]} step {list(step)}"

    return lo.choose(problem_key, Stencil(wide, elements), Stencil.fits)


def stencil(
    lo: Lowering,
    src: Array,
    weights: Array,
    out: Array,
    phases: Sequence[Phase],
    step_in: tuple[int, int],
    step_out: tuple[int, int],
    epilogue: Epilogue | None = None,
    name: str = "depthwise",
    compute: DType | None = None,
) -> None:
    """out[n, c, first + step_out * Y] = the sum over taps of src[n, c, step_in * Y + tap] * weights[tap.weight, c].

    Shapes: src (N, C, H, W), out (N, C, P, Q), both dense along C; weights (T, C), dense. What lies outside of src is zero;
        src may have a prologue (`Array.prologue`).
    Args: compute: the dtype that is computed in; None: that of src and weights.
    """
    if any(as_int(d) == 0 for d in out.shape):
        return
    StencilKernel(lo, src, weights, out, epilogue, step_in, step_out, name, compute).write(phases)


class StencilKernel:
    """Writes the kernel of one stencil. `compute`: the dtype that is computed in; None: that of src."""

    def __init__(
        self, lo: Lowering, src: Array, weights: Array, out: Array, epilogue, step_in, step_out, name: str,
        compute: DType | None = None,
    ):  # fmt: skip
        self.lo, self.src, self.weights, self.out = lo, replace(src, prologue=None), weights, out
        self.prologue, self.make = src.prologue, None
        self.epilogue, self.step_in, self.step_out = epilogue, step_in, step_out
        self.k = lo.kernel(name)
        self.compute, self.stream = compute or src.dtype.compute, streams([out])

    def write(self, phases: Sequence[Phase]) -> None:
        """Writes and launches the kernel: a piece is some rows of one image, and as many channels as weights stay close by."""
        k = self.k
        taps = [t for p in phases for t in p.taps]
        by_rule = width(self.lo.target, self.compute)
        self.s = schedule(self.lo, "stencil", self.src, self.out, taps, self.step_in, by_rule)
        self.wide = self.s.wide
        n, channels = self.out.shape[:2]
        some, parts = channel_block(self.weights.shape[0], channels, self.weights.dtype)
        high, row = as_expr(phases[0].count[0]), maximum(as_expr(phases[0].count[1] * some), 1)
        shared = cdiv(as_expr(n * parts) * high, STENCIL_PIECES)
        rows = maximum(const(1), minimum(self.s.elements // row, shared))
        blocks = as_expr(cdiv(high, rows))
        piece = k.split(n * parts * blocks)
        self.n = k.let(piece // (blocks * parts))
        first, start = k.let(piece // blocks % parts * some), k.let(piece % blocks * rows)
        self.channels = first, minimum(as_expr(channels), first + some)
        with k.loop(start, minimum(high, start + rows), name="row") as y:
            for p in phases:
                with k.if_(y < p.count[0] if p is not phases[0] else const(True, bool_)):
                    self.row(p, y)
        self.lo.launch(k)

    def row(self, p: Phase, y: Expr) -> None:
        """One row of results of a phase. Where its length is known, all of it is computed in tiles; those at the sides know
        which of their columns lie outside of the image. Else tiles are used where all columns lie inside, and the rest is
        computed one result at a time."""
        k, sx = self.k, self.step_in[1]
        left, right = min((t.x for t in p.taps), default=0), max((t.x for t in p.taps), default=0)
        columns, wide = as_int(p.count[1]), as_int(self.src.shape[3])
        if columns is not None and wide is not None:
            n = best_width(columns, self.wide)
            first = min(max(0, cdiv(-left, sx * n)), columns // n)  # the first tile that lies inside of the image
            last = max(first, min(columns // n, ((wide - 1 - right) // sx + 1) // n))
            for x in range(0, first * n, n):
                self.tile(p, y, const(x), n, x)
            with k.loop(first * n, last * n, n, name="x") as x:
                self.tile(p, y, x, n)
            for x in range(last * n, columns, n):
                self.tile(p, y, const(x), min(n, columns - x), x)
            return
        n, first = self.wide, max(0, -(left // sx))
        last = minimum(as_expr(p.count[1]), cdiv(maximum(as_expr(self.src.shape[3] - right), 0), sx))
        tiles = k.let(maximum(last - first, 0) // n * n)
        side = k.let(select(tiles > 0, const(first), as_expr(p.count[1])))  # all of the row where there is no tile
        with k.loop(first, first + tiles, n, name="x") as x:
            self.tile(p, y, x, n)
        behind = k.let(minimum(side + tiles, as_expr(p.count[1])))
        with k.loop(0, 2, name="side") as number:  # the left one, the right one
            leftmost, stop = k.let(equal(number, 0)), as_expr(p.count[1])
            with k.loop(k.let(select(leftmost, const(0), behind)), k.let(select(leftmost, side, stop)), name="x") as x:
                for c, count in self.each_channel():
                    self.pixel(p, y, x, c, count)

    def each_channel(self) -> Iterator[tuple[Expr, Expr | None]]:
        """Vectors of the piece's channels: whole ones, then the rest."""
        start, stop = self.channels
        n = as_int(self.out.shape[1])
        if n is not None and n % LANES == 0:
            with self.k.loop(start, stop, LANES, name="channel") as c:
                yield c, None
        else:
            yield from self.k.vector_loop(start, stop, "channel")

    def at(self, y: Index, x: Index, c: Expr) -> Expr:
        """The element of the image where the channels from `c` on of pixel (y, x) lie."""
        return as_expr(self.src.index((self.n, c, y, x)))

    def weight(self, tap: Tap, c: Expr, count: Expr | None) -> Expr:
        """The weights of a tap for LANES channels."""
        w = self.k.load(self.k.read(self.weights), self.weights.index((tap.weight, c)), LANES, count)
        return cast(w, self.compute)

    def tile(self, p: Phase, y: Expr, x: Expr, n: int, known: int | None = None) -> None:
        """`n` neighbouring results of a row from x on, for all channels of the piece. known: x, where it is a known number;
        then some columns may lie outside of the image, otherwise none does."""
        wide = as_int(self.src.shape[3])
        start = None if known is None else known * self.step_in[1]
        outside = lambda column: start is not None and wide is not None and not 0 <= start + column < wide
        for c, count in self.each_channel():
            if p.first == (0, 0):
                self.prefetch(p, y, x, n, c)
            self.read_prologue(c, count)
            acc = [self.k.var(const(0, self.compute, LANES), name="acc") for _ in range(n)]
            for line in dict.fromkeys(t.y for t in p.taps):
                self.line(p, line, acc, y, x, c, count, outside)
            for i, v in enumerate(acc):
                self.store(p, v.value, y, x + i, c, count)

    def line(self, p: Phase, line: int, acc: list, y: Expr, x: Expr, c: Expr, count: Expr | None, outside) -> None:
        """Adds the taps that read one row of the image to a tile; where the image has no such row, zeros times weights. Weights are
        loaded one after the other: where there are 16 registers, those of a row would be put aside on the stack."""
        k, src, (sy, sx) = self.k, self.k.read(self.src), self.step_in
        taps = [t for t in p.taps if t.y == line]
        zero = const(0, self.compute, LANES)
        row = k.let(y * sy + line)
        with k.if_(k.let(self.has_row(p, line, row))):
            base = k.let(self.at(row, x * sx, c))
            seen: dict[int, Expr] = {}
            sums = [a.value for a in acc]
            for tap in taps:
                w = self.weight(tap, c, count)
                for i in range(len(acc)):
                    column = i * sx + tap.x
                    if column not in seen:
                        v = None if outside(column) else k.load(src, base + column * self.src.strides[3], LANES, count)
                        seen[column] = zero if v is None else k.let(self.made(v))
                    sums[i] = k.let(multiply_add(seen[column], w, sums[i]))  # acc[i] += image[column] * weights[tap]
            for a, v in zip(acc, sums):
                a.set(v)
        with k.else_():
            for tap in taps:
                w = self.weight(tap, c, count)
                for a in acc:
                    a.set(multiply_add(zero, w, a.value))

    def prefetch(self, p: Phase, y: Expr, x: Expr, n: int, c: Expr) -> None:
        """Prefetches the rows that the tile below reads and this one does not: the processor's own prefetcher does not follow
        channels across pixels. With strides these are several for each result, as many as a fifth of the loads: where the image is
        near they cost more than they save."""
        (sy, sx), line = self.step_in, max((t.y for t in p.taps), default=0)
        size = product(self.src.shape)
        if sy * sx > 1 and isinstance(size, int) and size * self.src.dtype.size <= MOST_NEAR_BYTES:
            return
        base = self.k.let(self.at(y * sy + line + 1, x * sx, c))
        for i, j in itertools.product(range(sy), range(n * sx)):
            self.k.prefetch(self.k.read(self.src), base + i * self.src.strides[2] + j * self.src.strides[3])

    def has_row(self, p: Phase, line: int, row: Expr) -> Expr:
        """Whether the image has row number `row`, which is `line` below the result's point; a constant where extents decide
        it."""
        count, height = as_int(p.count[0]), as_int(self.src.shape[2])
        if line >= 0 and count is not None and height is not None and (count - 1) * self.step_in[0] + line < height:
            return const(True, bool_)
        return self.within(row, 2)

    def pixel(self, p: Phase, y: Expr, x: Expr, c: Expr, count: Expr | None) -> None:
        """One result, wherever its pixels lie."""
        k = self.k
        acc: Expr = const(0, self.compute, LANES)
        self.read_prologue(c, count)
        for tap in p.taps:
            v = self.masked(y * self.step_in[0] + tap.y, x * self.step_in[1] + tap.x, c, count)
            acc = k.let(multiply_add(v, self.weight(tap, c, count), acc))
        self.store(p, acc, y, x, c, count)

    def masked(self, y: Expr, x: Expr, c: Expr, count: Expr | None) -> Expr:
        """The channels of a pixel; zeros outside of the image."""
        k, v = self.k, self.k.var(const(0, self.compute, LANES), name="pixel")
        with k.if_(k.let(self.within(y, 2) & self.within(x, 3))):
            v.set(self.made(k.load(k.read(self.src), self.at(y, x, c), LANES, count)))
        return v.value

    def read_prologue(self, c: Expr, count: Expr | None) -> None:
        """Loads what the prologue needs beside the pixels, for LANES channels from `c` on; nothing where there is no
        prologue."""
        self.make = None if self.prologue is None else self.prologue.beside(self.k, c, count)

    def made(self, pixel: Expr) -> Expr:
        """The channels of a pixel after the prologue, in the dtype that is computed in."""
        return cast(pixel if self.make is None else self.make(pixel), self.compute)

    def within(self, i: Expr, axis: int) -> Expr:
        """Whether coordinate i along `axis` lies inside of the image."""
        return (i >= 0) & (i < self.src.shape[axis])

    def store(self, p: Phase, v: Expr, y: Expr, x: Expr, c: Expr, count: Expr | None) -> None:
        k = self.k
        place = (p.first[0] + y * self.step_out[0], p.first[1] + x * self.step_out[1])
        at = At((self.n, c, *place), 1, count)
        v = cast(v, self.out.dtype) if self.epilogue is None else self.epilogue(k, v, at)
        store_at(k, self.out, at, v, self.stream)


# ---- the filter's gradient --------------------------------------------------------------------------------------------------


def stencil_weights(
    lo: Lowering,
    src: Array,
    grad: Array,
    out: Array,
    taps: Sequence[Tap],
    step: tuple[int, int],
    name: str = "depthwise_weights",
) -> None:
    """out[t, c] = the sum over (n, Y, X) of src[n, c, step * Y + taps[t]] * grad[n, c, Y, X].

    Shapes: src (N, C, H, W), grad (N, C, P, Q), both dense along C, Q known and below 256; out (T, C), any strides
    """
    _Weights(lo, src, grad, out, taps, step, name).write_sums()


class _Weights(StencilKernel):
    def __init__(self, lo: Lowering, src: Array, grad: Array, out: Array, taps: Sequence[Tap], step, name: str):
        super().__init__(lo, src, src, out, None, step, (1, 1), name)
        self.grad, self.taps, self.name = grad, list(taps), name
        n, _, high, columns = grad.shape
        self.columns = as_int(columns) or 0
        self.chunks = Chunks((n, high, columns))

    def write_sums(self) -> None:
        """Launches the kernel of the chunks' sums, and one that adds them in order. A piece is some chunks by some channels."""
        k, channels = self.k, as_expr(self.grad.shape[1])
        self.s = schedule(self.lo, "stencil weights", self.src, self.grad, self.taps, self.step_in, 4, PIECE_GRADIENTS)
        self.wide = self.s.wide
        lines, group, chunks = as_expr(self.chunks.outer), self.chunks.group, self.chunks.count
        some = maximum(const(1), self.s.elements // maximum(const(self.chunks.run) * channels, 1))
        blocks, vectors = as_expr(cdiv(chunks, some)), cdiv(channels, LANES)
        # Parts of the channels, where there are few chunks.
        parts = maximum(minimum(cdiv(const(STENCIL_GRADIENT_PIECES), blocks), vectors), 1)
        piece = k.split(blocks * parts)
        partial = self.lo.temp(self.compute, (chunks, len(self.taps), channels))
        sums = k.write(partial)
        start, part = k.let(piece // parts * some), k.let(piece % parts)
        self.channels = k.let(part * vectors // parts * LANES), k.let(minimum((part + 1) * vectors // parts * LANES, channels))
        with k.loop(start, minimum(chunks, start + some), name="chunk") as chunk:
            first = k.let(chunk * group)
            last = k.let(minimum(lines, first + group))
            for c, count in self.each_channel():
                self.plan(c, group)
                self.read_prologue(c, count)
                acc = [k.var(const(0, self.compute, LANES), name="acc") for _ in self.taps]
                with k.loop(first, last, name="line") as line:
                    self.n, y = unflatten(k, line, (self.grad.shape[0], self.grad.shape[2]))
                    self.pixels(acc, as_expr(y), c, count)
                for t, a in enumerate(acc):
                    k.store(sums, k.let(as_expr(partial.index((chunk, t, c)))), a.value, count)
        self.lo.launch(k)
        self.add(partial, chunks)

    def plan(self, c: Expr, group: Index) -> None:
        """Sets where the elements lie that are prefetched while the channels from `c` on are summed: the next channels of the
        same pixels; after the last channels, the first ones of the next chunk."""
        first, stop = self.channels
        more = self.k.let(c + LANES < stop)
        after = lambda rows, a: self.k.let(select(more, const(LANES), rows * a.strides[2] + first - c))
        self.later = after(as_expr(group), self.grad), after(as_expr(group * self.step_in[0]), self.src)

    def pixels(self, acc: list, y: Expr, c: Expr, count: Expr | None) -> None:
        """Adds one row of the gradient, pixels in order: in tiles where all of their taps lie inside of the image, else one
        pixel at a time."""
        k, (sy, sx) = self.k, self.step_in
        height, wide = self.src.shape[2:]
        ys, xs = [t.y for t in self.taps], [t.x for t in self.taps]
        inside = k.let((y * sy + min(ys) >= 0) & (y * sy + max(ys) < height))
        first = min(max(0, -(min(xs) // sx)), self.columns)
        last = minimum(const(self.columns), cdiv(maximum(as_expr(wide - max(xs)), 0), sx))
        tiles = k.let(select(inside, maximum(last - first, 0) // self.wide * self.wide, 0))
        g = k.read(self.grad)
        at = lambda x: k.let(as_expr(self.grad.index((self.n, c, y, x))))
        with k.loop(0, 2, name="side") as side:
            start = k.let(select(equal(side, 0), const(0), first + tiles))
            with k.loop(start, select(equal(side, 0), const(first), const(self.columns)), name="x") as x:
                gv = cast(k.load(g, at(x), LANES, count), self.compute)
                for a, tap in zip(acc, self.taps):
                    v = self.masked(y * sy + tap.y, x * sx + tap.x, c, count)
                    a.set(multiply_add(v, gv, a.value))
            with k.loop(first, select(equal(side, 0), first + tiles, first), self.wide, name="x") as x:
                self.fast(acc, g, at(x), y, x, c, count)

    def fast(self, acc: list, g: Buffer, at: Expr, y: Expr, x: Expr, c: Expr, count: Expr | None) -> None:
        """Adds `wide` neighbouring pixels of the gradient, whose taps all lie inside of the image."""
        k, (sy, sx) = self.k, self.step_in
        newest = self.at(y * sy + max(t.y for t in self.taps) + 1 - sy, x * sx, c) + self.later[1]
        for i in range(self.wide):
            k.prefetch(g, at + self.later[0] + i * self.grad.strides[3])
        for i, j in itertools.product(range(sy), range(self.wide * sx)):
            k.prefetch(k.read(self.src), newest + i * self.src.strides[2] + j * self.src.strides[3])
        gs = [k.let(cast(k.load(g, at + i * self.grad.strides[3], LANES, count), self.compute)) for i in range(self.wide)]
        for line in dict.fromkeys(t.y for t in self.taps):
            base = k.let(self.at(y * sy + line, x * sx, c))
            seen: dict[int, Expr] = {}
            for i in range(self.wide):
                for a, tap in zip(acc, self.taps):
                    if tap.y != line:
                        continue
                    column = i * sx + tap.x
                    if column not in seen:
                        v = k.load(k.read(self.src), base + column * self.src.strides[3], LANES, count)
                        seen[column] = k.let(self.made(v))
                    a.set(multiply_add(seen[column], gs[i], a.value))  # acc[tap] += image[column] * gradient[i]

    def add(self, partial: Array, chunks: Expr) -> None:
        """Launches out[t, c] = partial[0, t, c] + partial[1, t, c] + ..., in this order."""
        k = self.lo.kernel(f"{self.name}_chunks")
        t = k.split(len(self.taps))
        p = k.read(partial)
        for c, count in k.vector_loop(0, as_expr(self.grad.shape[1]), "channel"):
            total = k.var(k.load(p, as_expr(partial.index((0, t, c))), LANES, count), name="total")
            with k.loop(1, chunks, name="chunk") as i:
                total.set(total.value + k.load(p, as_expr(partial.index((i, t, c))), LANES, count))
            at = At((t, c), 1, count)
            store_at(k, self.out, at, cast(total.value, self.out.dtype))
        self.lo.launch(k)
