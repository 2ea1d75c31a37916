"""Convolutions with few channels of results: pixels of a row fill the lanes, which channels would leave half empty.

    for each piece = (image, some rows of results):
        planes[c, row, pixel] = the image's rows that these results read, with zeros around
        for tile of some vectors of results:
            for chunk of (tap, c):
                for tap, c:
                    acc[vector][o] += planes[c, pixels of the vector at the tap] * w[tap, c, o]
                sums[vector][o] = acc, or sums + acc after the first chunk
            out[o, pixels] = sums

In: an image, filters, how many pixels of zeros come before the image. Out: one launch, after one that makes the filters dense.
The order of sums is that of every contraction (`Chunks`).
"""

from __future__ import annotations

from collections.abc import Sequence

from tengen.base.record import record
from tengen.kernels import numerics
from tengen.kernels.axes import store_at
from tengen.kernels.contraction.chunks import Chunks
from tengen.kernels.contraction.problem import Epilogue, multiply_add
from tengen.kernels.lowering import Array, KernelBuilder, Lowering
from tengen.kernels.machine import machine, registers_of
from tengen.kernels.pointwise import copy
from tengen.kernels.source import At
from tengen.loops.builder import as_expr
from tengen.loops.lang import LANES, Expr, as_int, cast, const, equal, maximum, minimum, ramp, splat

PLANES_BYTES = 40 << 10  # bytes of the planes of a piece, at most; or those of L2, where so few rows are too few for what is copied
COPIED_PRODUCTS = 6  # products for each element that is copied, at least
LEAST_GAIN = 1.5  # by which vectors of pixels are fewer than those of channels, at least
LEAST_TAPS = 9  # of a filter: with fewer, too much is copied for what is multiplied
MOST_PLANE_VECTORS = 8  # vectors of pixels of a tile, at most


@record(frozen=True)
class Sizes:
    """vectors: of pixels in a tile. rows: rows of results of a piece. across: vectors of a row of results. pitch: pixels of a
    row of a plane. deep: rows of a plane."""

    vectors: int
    rows: int
    across: int
    pitch: int
    deep: int


@record(frozen=True)
class Filter:
    """rows, columns: of taps. channels: of the image. outputs: channels of results. before: pixels of zeros before the image,
    and dilation: pixels from one tap to the next, both along rows and columns of the image."""

    rows: int
    columns: int
    channels: int
    outputs: int
    before: tuple[int, ...]
    dilation: tuple[int, ...]


def sizes(lo: Lowering, w: Array, out: Array, dilation: Sequence[int]) -> Sizes | None:
    """How a convolution is computed by pixels; None where it is better computed by channels, or extents are not known.

    Shapes: w (KH, KW, C, O), out (N, O, P, Q)
    """
    known = [as_int(d) for d in (*w.shape, *out.shape[2:])]
    if None in known or 0 in known:
        return None
    kh, kw, c, o, p, q = (d or 0 for d in known)
    _, registers, far = machine(lo.target)
    size = w.dtype.compute.size
    each, across = registers_of(size, lo.target), -(-q // LANES)
    vectors = min(MOST_PLANE_VECTORS, (registers - 1) // each // (o + 1))
    if vectors < 1 or kh * kw < LEAST_TAPS or c > numerics.CHUNK_TERMS or 2 * o > LANES or LEAST_GAIN * o * across > q:
        return None
    pitch, more = q + (kw - 1) * dilation[1], (kh - 1) * dilation[0]
    worth = lambda r: r == p or COPIED_PRODUCTS * (r + more) <= r * kh * kw * o
    fits = lambda r, most: c * (r + more) * pitch * size <= most
    rows = [r for r in range(1, p + 1) if p % r == 0 and worth(r) and fits(r, far)]
    if not rows:
        return None
    near = [r for r in rows if fits(r, PLANES_BYTES)]
    r = near[-1] if near else rows[0]
    return Sizes(vectors, r, across, pitch, r + more)


def few_outputs(
    lo: Lowering, s: Sizes, x: Array, w: Array, out: Array, before: Sequence[int], dilation: Sequence[int],
    epilogue: Epilogue | None, name: str,
) -> None:  # fmt: skip
    """out[n, o, p, q] = the sum over (i, j, c) of x[n, c, p + i * dilation - before, ...] * w[i, j, c, o]; outside of the image
    are zeros.

    Args:
        epilogue: makes what is stored from the sum, at coordinates (n, o, p, q), a vector along q; default: a cast.
    """
    rows, columns, channels, outputs = (as_int(d) or 0 for d in w.shape)
    f = Filter(rows, columns, channels, outputs, tuple(before), tuple(dilation))
    _Kernel(lo, s, x, w, out, f, epilogue, name).launch()


class Planes:
    """The rows of the image that a piece reads, with zeros around, in scratch memory: a plane of `deep` rows of `pitch` pixels
    for each channel."""

    def __init__(self, k: KernelBuilder, s: Sizes, x: Array, f: Filter):
        self.k, self.s, self.x, self.f = k, s, x, f
        self.elements = s.deep * s.pitch  # of a plane
        self.buffer = k.scratch("planes", x.dtype.compute, f.channels * self.elements + LANES)

    def fill(self, n: Expr, first: Expr) -> None:
        """Copies what the results from row `first` of image `n` on read."""
        k, x, (above, before), dtype = self.k, self.x, self.f.before, self.buffer.dtype
        height, width = (as_expr(d) for d in x.shape[2:])
        src, step = k.read(x), x.strides[3]
        with k.loop(0, self.f.channels * self.elements, LANES) as i:
            k.store(self.buffer, i, const(0, dtype, LANES))
        top = k.let(first - above)  # the image's row that is the first of a plane
        begin, end = k.let(maximum(0 - top, 0)), k.let(minimum(height - top, self.s.deep))
        left = max(0, before)
        right = k.let(minimum(width + before, self.s.pitch))
        with k.loop(begin, end, name="row") as r, k.loop(0, self.f.channels, name="channel") as c:
            here = k.let(as_expr(x.index((n, c, top + r, 0))) - before * step)
            there = k.let(c * self.elements + r * self.s.pitch)
            for i, count in k.vector_loop(left, right):
                index = here + i if as_int(step) == 1 else ramp() * step + (here + i * step)
                k.store(self.buffer, there + i, cast(k.load(src, index, LANES, count), dtype), count)


class _Kernel:
    """Writes the kernel of one convolution. w: the filter as (KH, KW, C, O), dense."""

    def __init__(self, lo: Lowering, s: Sizes, x: Array, w: Array, out: Array, f: Filter, epilogue: Epilogue | None, name: str):
        self.lo, self.s, self.f, self.out, self.epilogue = lo, s, f, out, epilogue
        self.w = lo.once(w, ("pixels", w.shape, w.strides), lambda: self.dense(w, name))
        self.k = lo.kernel(name)
        self.planes = Planes(self.k, s, x, f)
        self.sums = self.k.scratch("sums", x.dtype.compute, s.vectors * f.outputs * LANES)

    def dense(self, w: Array, name: str) -> Array:
        """The filters as (KH, KW, C, O), dense."""
        out = self.lo.temp(w.dtype, w.shape)
        copy(self.lo, w, out, f"{name}_pack")
        return out

    def launch(self) -> None:
        """Writes and launches it."""
        k, s = self.k, self.s
        blocks = (as_int(self.out.shape[2]) or 0) // s.rows
        piece = k.split(self.out.shape[0] * blocks)
        n, first = k.let(piece // blocks), k.let(piece % blocks * s.rows)
        self.planes.fill(n, first)
        places = s.rows * s.across
        tiles = -(-places // s.vectors)
        high = -(-places // tiles)
        tall = places - tiles * (high - 1)  # the first tiles have one vector more
        for count, (begin, end), at in ((high, (0, tall), 0), (high - 1, (tall, tiles), tall)):
            with k.loop(begin, end, name="tile") as tile:
                place = k.let(tile * count + at)
                if count:
                    self.tile(place, count)
                    self.write(n, first, place, count)
        self.lo.launch(k)

    def tile(self, place: Expr, count: int) -> None:
        """The sums of `count` vectors of results from number `place` on, for all channels of results, left in `sums`."""
        k, s, f, dtype = self.k, self.s, self.f, self.sums.dtype
        places = [k.let(place + j) for j in range(count)]
        starts = [k.let(at // s.across * s.pitch + at % s.across * LANES) for at in places]
        weights, sizes = k.read(self.w), Chunks((f.rows, f.columns, f.channels))
        chunks, group = as_int(sizes.count) or 1, as_int(sizes.group) or 1
        with k.loop(0, chunks, name="chunk") as chunk:
            acc = [[k.var(const(0, dtype, LANES), name="acc") for _ in range(f.outputs)] for _ in places]
            stop = k.let(minimum(chunk * group + group, f.rows * f.columns))
            with k.loop(k.let(chunk * group), stop, name="tap") as tap:
                at = k.let(tap // f.columns * (f.dilation[0] * s.pitch) + tap % f.columns * f.dilation[1])
                here = [k.let(start + at) for start in starts]
                with k.loop(0, f.channels, name="c") as c:
                    xs = [k.load(self.planes.buffer, start + c * self.planes.elements, LANES) for start in here]
                    w = k.let((tap * f.channels + c) * f.outputs)
                    for o in range(f.outputs):
                        y = splat(cast(k.load(weights, w + o), dtype))
                        for x, sums in zip(xs, acc):
                            sums[o].set(multiply_add(x, y, sums[o].value))  # acc[vector][o] += plane[c, pixels] * w[tap, c, o]
            for n, total in enumerate(total for sums in acc for total in sums):
                if chunks == 1:
                    k.store(self.sums, n * LANES, total.value)
                    continue
                with k.if_(equal(chunk, 0)):
                    k.store(self.sums, n * LANES, total.value)
                with k.else_():
                    k.store(self.sums, n * LANES, k.load(self.sums, n * LANES, LANES) + total.value)

    def write(self, n: Expr, first: Expr, place: Expr, count: int) -> None:
        """Stores the results that `tile` has left in `sums`. n, first: the image, and the row of results that the piece begins
        with."""
        k, s, columns = self.k, self.s, as_int(self.out.shape[3]) or 0
        with k.loop(0, count, name="place") as j:
            row, column = k.let(first + (place + j) // s.across), k.let((place + j) % s.across * LANES)
            left = None if columns % LANES == 0 else k.let(columns - column)
            with k.loop(0, self.f.outputs, name="o") as o:
                value = k.load(self.sums, (j * self.f.outputs + o) * LANES, LANES)
                at = At((n, o, row, column), 3, left)
                made = cast(value, self.out.dtype) if self.epilogue is None else self.epilogue(k, value, at)
                store_at(k, self.out, at, made)
