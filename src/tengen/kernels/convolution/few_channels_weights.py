"""The filter's gradient where the image has few channels: sums over pixels of windows of the image times gradients.

    for each piece = some chunks:                                  # a chunk is some whole rows of gradients
        for chunk:
            strip = the image's rows that its windows read         # `few_channels.Strip`
            for panel of output channels, tile of positions (ky, kx, c) of the filter:
                for row, pixel of the chunk:
                    acc[position][v] += strip[pixel at the position] * gradient[pixel, vector v of channels]
                partial[chunk, tile] = acc
    out = partial[0] + partial[1] + ...

In: an image, gradients, where the result goes. Out: launches. The bits are those of every other contraction, see
`chunks.Chunks`.
"""

from __future__ import annotations

from tengen.base.dtype import DType, bool_, int64
from tengen.base.record import record
from tengen.kernels import numerics
from tengen.kernels.axes import unflatten
from tengen.kernels.contraction.chunks import Chunks
from tengen.kernels.contraction.contract import add_chunks
from tengen.kernels.contraction.problem import multiply_add
from tengen.kernels.contraction.tile import register_rows, vectors_of
from tengen.kernels.convolution.few_channels import L1_STRIP_BYTES, Strip, Window
from tengen.kernels.lowering import Array, Lowering
from tengen.loops.builder import as_expr
from tengen.loops.lang import LANES, Expr, as_int, cast, cdiv, const, equal, maximum, minimum, select, splat

GRADIENT_PIECE_MULTIPLY_ADDS = 1 << 16  # vector multiply-adds of a piece, about
MOST_STRIP_BYTES = 2 * L1_STRIP_BYTES  # bytes of a strip, at most


def fits(grad: Array, w: Window, size: int) -> bool:
    """Whether gradients (N, O, P, Q) lie channels-last, and a chunk is as many whole rows of them as a strip of elements of
    `size` bytes has room for."""
    outputs, high, wide = (as_int(d) for d in grad.shape[1:])
    if not outputs or not high or not wide or wide >= numerics.CHUNK_TERMS or as_int(grad.strides[1]) != 1:
        return False
    return _lines(w, numerics.CHUNK_TERMS // wide, high) * w.reach(1, wide) * w.channels * size <= MOST_STRIP_BYTES


def _overlap(w: Window) -> int:
    """Lines of an image that two neighbouring rows of windows share."""
    return max(0, w.reach(0, 1) - w.stride[0])


def _lines(w: Window, group: int, high: int) -> int:
    """Lines of a strip for `group` neighbouring rows of gradients at most, where an image has `high` rows."""
    parts = min(group, cdiv(group - 1, high) + 1)  # of different images
    return group * w.reach(0, 1) - (group - parts) * _overlap(w)


def weights(lo: Lowering, x: Array, grad: Array, out: Array, shape: Window, name: str) -> None:
    """out[*k, c, o] = the sum over (n, y, x) of grad[n, o, y, x] times what position *k, c of the window at (y, x) meets.

    Shapes: x (N, C, H, W) as `few_channels.window` wants it, grad (N, O, P, Q) for which `fits`, out (*K, C, O), any strides
    """
    _Weights(lo, x, grad, out, shape, name).launch()


@record(frozen=True)
class Sizes:
    """outputs, high, wide: extents of the gradients of an image. group: rows of them in a chunk. vectors, positions: of a
    register tile, vectors of output channels and positions of the filter, at most."""

    outputs: int
    high: int
    wide: int
    group: int
    vectors: int
    positions: int


def sizes(lo: Lowering, grad: Array, compute: DType) -> Sizes:
    """The sizes for gradients (N, O, P, Q)."""
    outputs, high, wide = (as_int(d) or 1 for d in grad.shape[1:])
    vectors = vectors_of(outputs, lo.target, compute)
    return Sizes(outputs, high, wide, numerics.CHUNK_TERMS // wide, vectors, register_rows(vectors, lo.target, compute))


class _Weights:
    """Writes the kernel. partial: the sums of the chunks. places: where a chunk's rows begin, in the strip and in grad."""

    def __init__(self, lo: Lowering, x: Array, grad: Array, out: Array, shape: Window, name: str):
        self.lo, self.grad, self.out, self.w, self.name = lo, grad, out, shape, name
        s = self.s = sizes(lo, grad, x.dtype.compute)
        self.chunks = Chunks((grad.shape[0], s.high, s.wide))
        self.partial = lo.temp(x.dtype.compute, (self.chunks.count, *out.shape))
        self.k = lo.kernel(name)
        self.strip = Strip(self.k, x, shape, _lines(shape, s.group, s.high), s.wide)
        self.places = [self.k.scratch("places", int64, s.group) for _ in range(2)]

    def launch(self) -> None:
        """Launches the sums of the chunks, a piece some of them, and what adds them."""
        k, chunks = self.k, self.chunks.count
        some = cdiv(GRADIENT_PIECE_MULTIPLY_ADDS, numerics.CHUNK_TERMS * self.w.positions * cdiv(self.s.outputs, LANES))
        piece = k.split(cdiv(chunks, some))
        with k.loop(piece * some, minimum(chunks, piece * some + some), name="chunk") as chunk:
            start = k.let(chunk * self.s.group)
            stop = k.let(minimum(self.chunks.outer, start + self.s.group))
            self.copy(start, stop)
            with k.loop(0, cdiv(self.s.outputs, self.s.vectors * LANES), name="panel") as panel:
                tiles, first = cdiv(self.w.positions, self.s.positions), 0
                for left in range(tiles, 0, -1):
                    last = first + cdiv(self.w.positions - first, left)
                    self.tile(range(first, last), chunk, panel, k.let(stop - start))
                    first = last
        self.lo.launch(k)
        add_chunks(self.lo, self.partial, chunks, self.out, self.name)

    def copy(self, start: Expr, stop: Expr) -> None:
        """Copies what rows start..stop of gradients meet to the strip, rows of one image one after another."""
        k, s, reach = self.k, self.strip, self.w.reach(0, 1)
        end = k.var(0, name="end")
        with k.loop(start, stop, name="row") as r:
            n, y = unflatten(k, r, (self.grad.shape[0], self.s.high))
            shared = k.let(select(equal(r, start) | equal(as_expr(y), 0), const(0), const(_overlap(self.w))))
            line = k.let(end.value - shared)
            s.copy(n, as_expr(y), const(0), line, (shared, const(reach)))
            end.set(line + reach)
            k.store(self.places[0], r - start, line * s.row)
            k.store(self.places[1], r - start, as_expr(self.grad.index((n, 0, y, 0))))

    def tile(self, positions: range, chunk: Expr, panel: Expr, rows: Expr) -> None:
        """Some positions of the filter by a panel of output channels, summed over the rows of a chunk."""
        k, s, (_, kw), (dy, dx) = self.k, self.strip, self.w.kernel, self.w.dilation
        acc = [[k.var(const(0, self.partial.dtype, LANES), name="acc") for _ in range(self.s.vectors)] for _ in positions]
        at = [(p // (kw * self.w.channels), p // self.w.channels % kw, p % self.w.channels) for p in positions]
        src, step = k.read(self.grad), self.s.vectors * LANES
        columns = [k.let(panel * step + v * LANES) for v in range(self.s.vectors)]
        whole = self.s.outputs % step == 0
        left = [None if whole else k.let(maximum(self.s.outputs - c, 0)) for c in columns]
        with k.loop(0, rows, name="row") as r:
            place, pixels = k.load(self.places[0], r), k.load(self.places[1], r)
            with k.loop(0, self.s.wide, name="x") as x:
                here = k.let(place + x * (self.w.stride[1] * s.pixel))
                there = k.let(pixels + x * self.grad.strides[3])
                gs = [k.let(cast(k.load(src, there + c, LANES, n), self.partial.dtype)) for c, n in zip(columns, left)]
                for (ky, kx, c), row in zip(at, acc):
                    value = splat(k.load(s.buffer, here + (ky * dy * s.row + kx * dx * s.pixel + c * s.channel)))
                    for g, total in zip(gs, row):
                        total.set(multiply_add(value, g, total.value))  # acc[position][v] += strip[pixel] * gradient[v]
        for v, (c, n) in enumerate(zip(columns, left)):
            with k.if_(const(True, bool_) if n is None or v == 0 else n > 0):
                for p, row in zip(at, acc):
                    k.store(k.write(self.partial), self.partial.index((chunk, *p, c)), row[v].value, n)
