"""Convolutions of few channels, as a network's first layer: short sums, in two dimensions.

    for each piece = (image, some rows of results, the columns of a strip):
        for as many rows of results as a strip has room for:
            strip[line, pixel, c] = the image's lines, with the padding's zeros      # in L1
            for panel of output channels, row, tile of neighbouring results:
                for ky, kx, c:
                    acc[result j][v] += strip[ky, j * stride + kx, c] * filter[panel, ky, kx, c, vector v]
                out[tile] = acc

A window is read where it lies in the strip, so nothing is copied for each of its positions. The sum is one chunk of
`chunks.Chunks`, fma by fma over (*K, C) from zero, so the bits are those of every other contraction.

In: an image, a filter, where the result goes. Out: launches that pack the filter, and compute.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from tengen.base.dtype import bool_
from tengen.base.record import record
from tengen.kernels.axes import store_at, unflatten
from tengen.kernels.contraction.chunks import Chunks
from tengen.kernels.contraction.formats import DotFormat
from tengen.kernels.contraction.problem import Epilogue, multiply_add
from tengen.kernels.contraction.tile import MOST_TILE_ROWS, register_rows, vectors_of
from tengen.kernels.lowering import Array, KernelBuilder, Lowering
from tengen.kernels.schedule import Schedule, outside
from tengen.kernels.source import At
from tengen.loops.builder import as_expr
from tengen.loops.lang import LANES, Expr, Index, as_int, cast, cdiv, const, maximum, minimum, ramp, select, splat

L1_STRIP_BYTES = 28 << 10  # bytes of a strip, at most: it stays in L1
MOST_IMAGE_CHANNELS = 16  # channels of the image, at most
PIECE_MULTIPLY_ADDS = 1 << 17  # vector multiply-adds of a piece, about
STRIP_PIECES = 16  # pieces that are enough to share among threads


@record(frozen=True)
class FewChannels(Schedule, kind="strips"):
    """wide: neighbouring results of a row in a register tile. grain: vector multiply-adds of a piece, about."""

    wide: int
    grain: int = PIECE_MULTIPLY_ADDS

    steps: ClassVar = {"wide": tuple(range(1, MOST_TILE_ROWS + 1)), "grain": tuple(1 << i for i in range(12, 22))}

    def fits(self) -> str:
        """Why it cannot be; empty if it can."""
        return outside(self, wide=(1, MOST_TILE_ROWS), grain=(1, 1 << 24))


@record(frozen=True)
class Window:
    """The windows of a filter: its extents, and how windows lie in the image. Each of the tuples is (along rows, along
    columns)."""

    kernel: tuple[int, int]
    channels: int
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]

    def reach(self, axis: int, places: int) -> int:
        """How many pixels along an axis `places` neighbouring windows read."""
        return (places - 1) * self.stride[axis] + (self.kernel[axis] - 1) * self.dilation[axis] + 1

    @property
    def positions(self) -> int:
        """The number of terms of a sum."""
        return self.kernel[0] * self.kernel[1] * self.channels

    def rows(self, columns: int, size: int) -> int:
        """How many rows of `columns` windows a strip has room for, with elements of `size` bytes; 0 if not even one fits."""
        lines = L1_STRIP_BYTES // size // self.channels // self.reach(1, columns)
        return max(0, (lines - self.reach(0, 1)) // self.stride[0] + 1)


def window(x: Array, kernel: Sequence[Index], channels: Index, stride, padding, dilation) -> Window | None:
    """The windows, where this strategy fits: few channels, a sum of one chunk that has more than one pixel, and a strip of
    image `x` that can be copied in runs. Else None."""
    known = [as_int(d) for d in (*kernel, channels)]
    if len(known) != 3 or None in known or not 0 < known[2] <= MOST_IMAGE_CHANNELS:
        return None
    kh, kw, c = (d or 0 for d in known)
    w = Window((kh, kw), c, tuple(stride), tuple(padding), tuple(dilation))
    one_chunk, room = as_int(Chunks((kh, kw, c)).count) == 1, w.rows(MOST_TILE_ROWS, x.dtype.compute.size)
    if kh * kw < 2 or not one_chunk or not _lines(x, c) or room < 1:
        return None
    return w


def _lines(x: Array, channels: int) -> bool:
    """Whether a row of pixels is a run of memory: with channels inside of pixels, or for each channel."""
    inside = as_int(x.strides[3]) == channels and (channels == 1 or as_int(x.strides[1]) == 1)
    return inside or as_int(x.strides[3]) == 1


class Strip:
    """Some rows of an image in scratch memory, zeros where there is no image, with channels inside of pixels or not as the
    image has them.

    Attributes:
        pixel, channel, row: elements from one pixel, channel or row to the next.
    """

    def __init__(self, k: KernelBuilder, x: Array, w: Window, lines: int, wide: int, format: DotFormat | None = None):
        """A strip of `lines` lines of the image, for rows of `wide` windows. format: elements are stored for it, and a group may begin
        at the last of them; None: in the dtype that is computed in."""
        self.k, self.x, self.w, self.format = k, x, w, format
        self.columns = w.reach(1, wide)
        self.inside = as_int(x.strides[3]) == w.channels  # channels inside of a pixel
        self.pixel, self.channel = (w.channels, 1) if self.inside else (1, self.columns)
        self.row = self.columns * w.channels
        dtype, spare = (x.dtype.compute, 0) if format is None else (format.storage, format.group)
        self.buffer = k.scratch("strip", dtype, lines * self.row + spare)

    def copy(self, n: Index, y: Expr, x: Expr, to: Expr, lines: tuple[Expr, Expr]) -> None:
        """Copies the lines lines[0]..lines[1], counted from the first one that the window at (y, x) of image `n` reads, to the
        strip: line i becomes line `to` + i of it."""
        k, (sy, sx), (py, px) = self.k, self.w.stride, self.w.padding
        first, left = k.let(y * sy - py), k.let(x * sx - px)
        scale, run = (self.w.channels, self.row) if self.inside else (1, self.columns)
        low = k.let(minimum(maximum(0 - left, 0), self.columns) * scale)
        high = k.let(maximum(minimum(self.x.shape[3] - left, self.columns) * scale, low))
        with k.loop(*lines, name="line") as i:
            there = k.let(first + i)
            has = k.let((there >= 0) & (there < self.x.shape[2]))
            start, stop = k.let(select(has, low, const(run))), k.let(select(has, high, const(run)))
            with k.loop(0, 1 if self.inside else self.w.channels, name="plane") as c:
                line = k.let((to + i) * self.row + c * run)
                here = k.let(as_expr(self.x.index((n, c, there, left))))
                self._fill(line, const(0), start, None)
                self._fill(line, start, stop, here)
                self._fill(line, stop, const(run), None)

    def _fill(self, to: Expr, start: Expr, stop: Expr, here: Expr | None) -> None:
        """Elements start..stop of a run: the image's, which begin at `here`, or zeros."""
        k, src = self.k, self.k.read(self.x)
        for i, count in k.vector_loop(start, stop):
            value = const(0, self.x.dtype, LANES) if here is None else k.load(src, here + i, LANES, count)
            value = cast(value, self.buffer.dtype) if self.format is None else self.format.stored(value, self.x.dtype)
            k.store(self.buffer, to + i, value, count)


def packed_filter(lo: Lowering, w: Array, channels: int, columns: int) -> Array:
    """A filter (O, C, *K) as [panel, *K, C, column], zeros past the last column, in the dtype that is computed in."""
    o, _, kh, kw = w.shape
    panels = as_expr(cdiv(o, columns))

    def make() -> Array:
        out = lo.temp(w.dtype.compute, (panels, kh, kw, channels, columns))
        k = lo.kernel("conv_pack")
        panel = k.split(panels)
        src, dst = k.read(w), k.write(out)
        for v in range(columns // LANES):
            first = k.let(panel * columns + v * LANES)
            left = k.let(maximum(minimum(as_expr(o) - first, LANES), 0))
            with k.loop(0, kh, name="y") as y, k.loop(0, kw, name="x") as x, k.loop(0, channels, name="c") as c:
                here = k.let(as_expr(w.index((first, c, y, x))))
                value = k.load(src, ramp() * w.strides[0] + here, LANES, left)
                k.store(dst, out.index((panel, y, x, c, v * LANES)), cast(value, out.dtype))
        lo.launch(k)
        return out

    return lo.once(w, ("strips", w.shape, w.strides, columns), make)


def convolve(lo: Lowering, x: Array, w: Array, out: Array, shape: Window, epilogue: Epilogue | None = None) -> None:
    """out[n, o, y, x] = the sum over (*K, C) of windows of the image times the filter.

    Shapes: x (N, C, H, W) as `window` wants it, w (O, C, *K), out (N, O, P, Q)
    Args:
        epilogue: makes what is stored from the sum, at coordinates of out, a vector of channels.
    """
    if any(as_int(d) == 0 for d in out.shape):
        return
    StripConvolution(lo, x, w, out, shape, epilogue).launch()


@record(frozen=True)
class Sizes:
    """vectors, wide: of a register tile, vectors of channels and neighbouring results of a row. span, high: of a strip, columns
    (whole tiles) and rows of results. grain: vector multiply-adds of a piece, about."""

    vectors: int
    wide: int
    span: int
    high: int
    grain: int


def sizes(lo: Lowering, x: Array, out: Array, shape: Window, format: DotFormat | None = None) -> Sizes:
    """What is chosen for a convolution, and what follows from it; format: as of `Strip`."""
    compute, stored = (x.dtype.compute,) * 2 if format is None else (format.total, format.storage)
    channels, columns = as_int(out.shape[1]), as_int(out.shape[3])
    vectors = vectors_of(channels, lo.target, compute)
    most = register_rows(vectors, lo.target, compute)
    how = "" if format is None else f" in {format.name}"
    problem_key = lambda: f"convolve {x.dtype} {list(x.shape)} by {list(x.strides)} {shape} to {out.dtype} {list(out.shape)}{how}"
    s = lo.choose(problem_key, FewChannels(most if columns is None else tile_width(columns, most)), FewChannels.fits)
    span = _span(shape, columns, s.wide, stored.size)
    high = min(max(1, shape.rows(span, stored.size)), as_int(out.shape[2]) or MOST_TILE_ROWS)
    return Sizes(vectors, s.wide, span, high, s.grain)


def tile_width(columns: int, most: int) -> int:
    """How many neighbouring results a tile has, at most `most`, so that a row of `columns` takes least, the last tile in full. A tile
    takes as long as its results and one more: filters are loaded for it, and few sums wait for one another.
    """
    return min(range(most, 0, -1), key=lambda n: cdiv(columns, n) * (n + 1))


def _span(shape: Window, columns: int | None, wide: int, size: int) -> int:
    """The columns of results of a strip: whole tiles of `wide`, and equally many in each strip where their number is known."""
    most = wide
    while (columns is None or most < columns) and shape.rows(most + wide, size):
        most += wide
    if columns is None:
        return most
    tiles = cdiv(columns, wide)
    return cdiv(tiles, cdiv(tiles * wide, most)) * wide


class StripConvolution:
    """Writes the kernel. format: as of `Strip`."""

    def __init__(
        self, lo: Lowering, x: Array, w: Array, out: Array, shape: Window, epilogue: Epilogue | None, format: DotFormat | None = None
    ):
        self.lo, self.out, self.w, self.epilogue, self.format = lo, out, shape, epilogue, format
        s = self.s = sizes(lo, x, out, shape, format)
        self.packed = self.pack(x, w)
        self.k = lo.kernel("conv")
        self.strip = Strip(self.k, x, shape, shape.reach(0, s.high), s.span, format)
        self.sums = self.k.scratch("sums", x.dtype.compute if format is None else format.total, s.wide * s.vectors * LANES)

    def pack(self, x: Array, w: Array) -> Array:
        """The filter as tiles read it."""
        return packed_filter(self.lo, w, self.w.channels, self.s.vectors * LANES)

    def launch(self) -> None:
        """Writes the kernel and launches it: a piece is some rows of results of one image, by the columns of a strip."""
        k, s, (images, o, height, width) = self.k, self.s, self.out.shape
        parts = as_expr(cdiv(width, s.span))
        work = maximum(minimum(as_expr(width), s.span) * cdiv(o, LANES) * self.w.positions, 1)  # of a row
        shared = cdiv(as_expr(images * height) * parts, STRIP_PIECES)
        rows = maximum(const(1), minimum(minimum(s.grain // work, shared), as_expr(height)))
        blocks = as_expr(cdiv(height, rows))
        piece = k.split(images * blocks * parts)
        n, block, part = unflatten(k, piece, (images, blocks, parts))
        first, left = k.let(block * rows), k.let(part * s.span)
        stop, right = k.let(minimum(first + rows, as_expr(height))), k.let(minimum(left + s.span, as_expr(width)))
        with k.loop(first, stop, s.high, name="block") as y:
            lines = k.let(minimum(stop - y, s.high))
            last = k.let((lines - 1) * self.w.stride[0] + self.w.reach(0, 1))
            self.strip.copy(n, y, left, const(0), (const(0), last))
            with k.loop(0, cdiv(o, s.vectors * LANES), name="panel") as panel:
                with k.loop(0, lines, name="row") as i, k.loop(left, right, s.wide, name="tile") as x:
                    at = i * (self.w.stride[0] * self.strip.row) + (x - left) * (self.w.stride[1] * self.strip.pixel)
                    whole = as_int(width) is not None and as_int(width) % s.wide == 0
                    count = const(s.wide) if whole else k.let(minimum(right - x, s.wide))
                    self.tile(panel, (n, k.let(y + i), x), k.let(at), count)
        self.lo.launch(k)

    def tile(self, panel: Expr, place: tuple[Index, Expr, Expr], at: Expr, count: Expr) -> None:
        """A register tile: `count` neighbouring results from `place`, (image, row, column), on, whose windows begin at
        element `at` of the strip."""
        k, (n, y, x), step, vectors = self.k, place, self.s.vectors * LANES, range(self.s.vectors)
        begin = self.begin(panel)
        acc = [[k.var(begin[v], name="acc") for v in vectors] for _ in range(self.s.wide)]
        self.add(panel, at, acc)
        if self.epilogue is None and as_int(count) is not None:  # short enough to be written out for each result
            for j, row in enumerate(acc):
                self.write(panel, (n, y, x + j), [total.value for total in row])
            return
        for j, row in enumerate(acc):
            for v, total in enumerate(row):
                k.store(self.sums, j * step + v * LANES, total.value)
        with k.loop(0, count, name="place") as j:
            self.write(panel, (n, y, x + j), [k.load(self.sums, j * step + v * LANES, LANES) for v in vectors])

    def begin(self, panel: Expr) -> list[Expr]:
        """What the sums of a panel begin with."""
        return [const(0, self.sums.dtype, LANES)] * self.s.vectors

    def add(self, panel: Expr, at: Expr, acc: list[list]) -> None:
        """Adds all products to the sums [result][vector] of a tile, whose windows begin at element `at` of the strip."""
        k, s, (kh, kw), (dy, dx), vectors = self.k, self.strip, self.w.kernel, self.w.dilation, range(self.s.vectors)
        filters, step = k.read(self.packed), self.s.vectors * LANES
        with k.loop(0, kh, name="ky") as ky, k.loop(0, kw, name="kx") as kx:
            here = k.let(at + ky * (dy * s.row) + kx * (dx * s.pixel))
            there = k.let(as_expr(self.packed.index((panel, ky, kx, 0, 0))))
            for c in range(self.w.channels):
                bs = [k.load(filters, there + c * step + v * LANES, LANES) for v in vectors]
                for j, row in enumerate(acc):
                    a = splat(k.load(s.buffer, here + c * s.channel + j * self.w.stride[1] * s.pixel))
                    for b, total in zip(bs, row):
                        total.set(multiply_add(a, b, total.value))  # acc[j][v] += strip[pixel of j, c] * filter[ky, kx, c, v]

    def write(self, panel: Expr, place: tuple[Index, Expr, Expr], values: Sequence[Expr]) -> None:
        """Stores the output channels of the result at `place`, (image, row, column), through the epilogue."""
        k, o, step, (n, y, x) = self.k, self.out.shape[1], self.s.vectors * LANES, place
        whole = as_int(o) is not None and as_int(o) % step == 0
        for v, value in enumerate(values):
            channel = k.let(panel * step + v * LANES)
            with k.if_(const(True, bool_) if whole or v == 0 else channel < o):
                at = At((n, channel, y, x), 1, None if whole else as_expr(o) - channel)
                value = cast(value, self.out.dtype) if self.epilogue is None else self.epilogue(k, value, at)
                store_at(k, self.out, at, value)
