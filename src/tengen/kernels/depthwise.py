"""Depthwise convolutions in two dimensions: one filter to a channel, sixteen channels to a vector, no copy of the image.

A `stencil` computes pixels of a lattice as sums of taps: a convolution has one lattice, its transpose one for each phase of the
stride. Rows of outputs share the loads of neighbouring pixels; where the image ends, masked loads give the padding's zeros.
`stencil_weights` sums over pixels instead, for the filter's gradient. The sums have the order of `chunks.Chunks`, so the bits
are those of every other contraction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from tengen.base.dtype import DType, bool_
from tengen.kernels.axes import store_at, unflatten
from tengen.kernels.chunks import Chunks
from tengen.kernels.lowering import Array, KernelBuilder, Lowering, product
from tengen.kernels.pointwise import copy
from tengen.kernels.problem import multiply_add
from tengen.kernels.schedule import Schedule, outside
from tengen.kernels.source import At
from tengen.kernels.tile import machine
from tengen.loops.builder import as_expr
from tengen.loops.lang import LANES, Buffer, Expr, Index, as_int, cast, cdiv, const, equal, maximum, minimum, select, splat

GRAIN = 1 << 13  # values of a piece, about, by rule
MOST_TAPS = 64
LOW = 32  # rows; in lower images, tiles may hang over the border

Epilogue = Callable[[KernelBuilder, Expr, At], Expr]


@dataclass(frozen=True)
class Tap:
    """One term: the pixel at (y, x) from the place of the lattice's point in the image, times weight number `weight`."""

    y: int
    x: int
    weight: int


@dataclass(frozen=True)
class Phase:
    """A lattice of output pixels, first + step * (Y, X) for Y, X below `count`, and their terms in order."""

    first: tuple[int, int]
    count: tuple[Index, Index]
    taps: tuple[Tap, ...]


@dataclass(frozen=True)
class Stencil(Schedule, kind="stencil"):
    """wide: pixels of a row that are computed side by side, at most. elements: of a piece, about."""

    wide: int
    elements: int = GRAIN

    steps: ClassVar = {"wide": (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14), "elements": tuple(1 << i for i in range(11, 20))}

    def fits(self) -> str:
        """Why it cannot be; empty if it can."""
        return outside(self, wide=(1, 14), elements=(1, 1 << 24))


def convolution(kernel: Sequence[int], padding, dilation, out: tuple[Index, Index]) -> list[Phase]:
    """The one lattice of a convolution."""
    taps = [
        Tap(i * dilation[0] - padding[0], j * dilation[1] - padding[1], i * kernel[1] + j)
        for i in range(kernel[0])
        for j in range(kernel[1])
    ]
    return [Phase((0, 0), out, tuple(taps))]


def transpose(kernel: Sequence[int], stride, padding, dilation, out: tuple[Index, Index]) -> list[Phase]:
    """The lattices of the transpose: pixels that the same taps of the reversed filter reach. Some have none: they are zero."""
    along = lambda i, phase: reached(kernel[i], stride[i], padding[i], dilation[i], phase)
    phases = []
    for a in range(stride[0]):
        for b in range(stride[1]):
            taps = tuple(Tap(y, x, i * kernel[1] + j) for y, i in along(0, a) for x, j in along(1, b))
            count = (cdiv(maximum(as_expr(out[0] - a), 0), stride[0]), cdiv(maximum(as_expr(out[1] - b), 0), stride[1]))
            phases.append(Phase((a, b), tuple(n if as_int(n) is None else as_int(n) for n in count), taps))  # type: ignore[arg-type]
    return phases


def fits(w: Array, groups: int) -> bool:
    """Whether a filter (G, 1, 1, *K) or (G, 1, *K) is one of each channel, in two dimensions, and not too large to write out."""
    space = [as_int(d) for d in w.shape[-2:]]
    if groups == 1 or None in space or not 0 < space[0] * space[1] <= MOST_TAPS:  # type: ignore[operator]
        return False
    ones = w.shape[1:3] if w.ndim == 5 else w.shape[1:2] if w.ndim == 4 and as_int(w.shape[0]) == groups else (0,)
    return all(as_int(d) == 1 for d in ones)


def packed_filter(lo: Lowering, w: Array) -> Array:
    """The filter as (T, C), dense along C."""
    kernel = w.shape[-2:]
    src = Array(w.id, w.dtype, (*kernel, w.shape[0]), (*w.strides[-2:], w.strides[0]), w.offset)
    t = lo.temp(w.dtype, src.shape)
    copy(lo, src, t, "depthwise_pack")
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
    """Pixels of a row that are computed side by side."""
    bytes_, registers, _ = machine(target)
    return 8 if bytes_ * registers // (LANES * d.size) >= 32 else 4


def best_width(columns: int | None, most: int) -> int:
    """How many pixels a tile has, so that tiles cover most of a row cheaply; what they leave costs twice as much."""
    if not columns:
        return most
    cost = lambda n: columns // n * (n + 1.5) + columns % n * 2
    return min(range(most, min(most, 4) - 1, -1), key=cost)


def schedule(lo: Lowering, name: str, src: Array, out: Array, taps: Sequence[Tap], step: tuple[int, int], wide: int) -> Stencil:
    """How it is computed: tuned, or by rule with tiles of `wide` pixels."""

    def meaning() -> str:
        arrays = "; ".join(f"{a.dtype} {list(a.shape)} by {list(a.strides)}" for a in (src, out))
        return f"{name} of {arrays} taps {[(t.y, t.x) for t in taps]} step {list(step)}"

    return lo.choose(meaning, Stencil(wide), Stencil.fits)


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
) -> None:
    """out[n, c, first + step_out * Y] = the sum over taps of src[n, c, step_in * Y + tap] * weights[tap.weight, c].

    Shapes: src (N, C, H, W), out (N, C, P, Q), both dense along C; weights (T, C), dense. What lies outside of src is zero.
    """
    if any(as_int(d) == 0 for d in out.shape):
        return
    _Stencil(lo, src, weights, out, epilogue, step_in, step_out, name).write(phases)


class _Stencil:
    def __init__(self, lo: Lowering, src: Array, weights: Array, out: Array, epilogue, step_in, step_out, name: str):
        self.lo, self.src, self.weights, self.out = lo, src, weights, out
        self.epilogue, self.step_in, self.step_out = epilogue, step_in, step_out
        self.k = lo.kernel(name)
        self.compute = src.dtype.compute

    def write(self, phases: Sequence[Phase]) -> None:
        """Writes and launches the kernel: a piece is some rows of one image, all channels."""
        k = self.k
        taps = [t for p in phases for t in p.taps]
        by_rule = width(self.lo.target, self.compute)
        self.s = schedule(self.lo, "stencil", self.src, self.out, taps, self.step_in, by_rule)
        self.wide = self.s.wide
        n, channels = self.out.shape[:2]
        high, row = as_expr(phases[0].count[0]), phases[0].count[1] * channels
        rows = maximum(const(1), self.s.elements // maximum(as_expr(row), 1))
        blocks = cdiv(high, rows)
        piece = k.split(n * blocks)
        self.n = k.let(piece // blocks)
        start = k.let(piece % blocks * rows)
        with k.loop(start, minimum(high, start + rows), name="row") as y:
            for p in phases:
                with k.if_(y < p.count[0] if p is not phases[0] else const(True, bool_)):
                    for c, count in k.vector_loop(0, channels, "channel"):
                        self.row(p, y, c, count)
        self.lo.launch(k)

    def row(self, p: Phase, y: Expr, c: Expr, count: Expr | None) -> None:
        """One row of one lattice for one vector of channels: whole tiles inside of the image, the rest pixel by pixel."""
        k, (sy, sx) = self.k, self.step_in
        height, wide = self.src.shape[2:]
        w = k.read(self.weights)
        ws = {t: cast(k.load(w, t * self.weights.strides[0] + c + self.weights.offset, LANES, count), self.compute)
              for t in dict.fromkeys(tap.weight for tap in p.taps)}  # fmt: skip
        top = k.let(y * sy)
        columns = as_expr(p.count[1])
        if p.taps:
            ys, xs = [t.y for t in p.taps], [t.x for t in p.taps]
            masked = (as_int(height) or LOW + 1) <= LOW  # too many of the rows are at a border
            inside = const(True, bool_) if masked else k.let((top + min(ys) >= 0) & (top + max(ys) < height))
            first = max(0, -(min(xs) // sx))
            last = minimum(columns, cdiv(maximum(as_expr(wide - max(xs)), 0), sx))
            n = best_width(as_int(maximum(last - first, 0)), self.wide)
            tiles = k.let(select(inside, maximum(last - first, 0) // n * n, 0))
        else:
            first, tiles, n, masked = 0, const(0), 1, False
        left = k.let(select(tiles > 0, const(first), columns))  # all of the row where there is no tile
        with k.loop(first, first + tiles, n, name="x") as x:
            self.tile(p, ws, y, x, c, count, n, masked)
        with k.loop(0, 2, name="side") as side:
            start = select(equal(side, 0), const(0), minimum(left + tiles, columns))
            with k.loop(start, select(equal(side, 0), left, columns), name="x") as x:
                self.pixel(p, ws, y, x, c, count)

    def at(self, y: Index, x: Index, c: Expr) -> Expr:
        """Where a pixel of the image lies."""
        return as_expr(self.src.index((self.n, c, y, x)))

    def tile(self, p: Phase, ws: dict, y: Expr, x: Expr, c: Expr, count: Expr | None, n: int, masked: bool) -> None:
        """`n` neighbouring pixels of a row, whose columns are inside of the image; with `masked`, rows may be outside."""
        k, src = self.k, self.k.read(self.src)
        acc = [const(0, self.compute, LANES)] * n
        for line in dict.fromkeys(t.y for t in p.taps):
            at = k.let(y * self.step_in[0] + line)
            there = k.let(self.within(at, 2)) if masked else None
            base = k.let(self.at(self.clamped(at, 2) if masked else at, x * self.step_in[1], c))
            seen: dict[int, Expr] = {}
            for tap in (t for t in p.taps if t.y == line):
                for i in range(n):
                    column = i * self.step_in[1] + tap.x
                    if column not in seen:
                        v = k.load(src, base + column * self.src.strides[3], LANES, count)
                        seen[column] = self.or_zero(v, there)
                    acc[i] = k.let(multiply_add(seen[column], ws[tap.weight], acc[i]))
        for i, v in enumerate(acc):
            self.store(p, v, y, x + i, c, count)

    def pixel(self, p: Phase, ws: dict, y: Expr, x: Expr, c: Expr, count: Expr | None) -> None:
        """One pixel, wherever it lies."""
        k = self.k
        acc: Expr = const(0, self.compute, LANES)
        for tap in p.taps:
            v = self.masked(y * self.step_in[0] + tap.y, x * self.step_in[1] + tap.x, c, count)
            acc = k.let(multiply_add(v, ws[tap.weight], acc))
        self.store(p, acc, y, x, c, count)

    def masked(self, y: Expr, x: Expr, c: Expr, count: Expr | None) -> Expr:
        """The channels of a pixel; zeros outside of the image."""
        k, v = self.k, self.k.var(const(0, self.compute, LANES), name="pixel")
        with k.if_(k.let(self.within(y, 2) & self.within(x, 3))):
            v.set(cast(k.load(k.read(self.src), self.at(y, x, c), LANES, count), self.compute))
        return v.value

    def within(self, i: Expr, axis: int) -> Expr:
        """Whether a row or a column is one of the image."""
        return (i >= 0) & (i < self.src.shape[axis])

    def clamped(self, i: Expr, axis: int) -> Expr:
        """The nearest row or column of the image, from where something can be loaded. (A load that is masked away instead waits
        for earlier stores that have the same place in a page: images often lie like that.)"""
        return minimum(maximum(i, 0), self.src.shape[axis] - 1)

    def or_zero(self, v: Expr, there: Expr | None) -> Expr:
        """A loaded vector as what is computed in, or zeros."""
        v = cast(v, self.compute)
        return self.k.let(v if there is None else select(splat(there), v, splat(const(0, self.compute))))

    def store(self, p: Phase, v: Expr, y: Expr, x: Expr, c: Expr, count: Expr | None) -> None:
        k = self.k
        place = (p.first[0] + y * self.step_out[0], p.first[1] + x * self.step_out[1])
        at = At((self.n, c, *place), 1, count)
        v = cast(v, self.out.dtype) if self.epilogue is None else self.epilogue(k, v, at)
        store_at(k, self.out, at, v)


# ---- the filter's gradient --------------------------------------------------------------------------------------------------


def stencil_weights(
    lo: Lowering, src: Array, grad: Array, out: Array, taps: Sequence[Tap], step: tuple[int, int], name: str = "depthwise_weights"
) -> None:
    """out[t, c] = the sum over (n, Y, X) of src[n, c, step * Y + taps[t]] * grad[n, c, Y, X].

    Shapes: src (N, C, H, W), grad (N, C, P, Q), both dense along C, Q known and below 256; out (T, C), any strides
    """
    _Weights(lo, src, grad, out, taps, step, name).write_sums()


class _Weights(_Stencil):
    def __init__(self, lo: Lowering, src: Array, grad: Array, out: Array, taps: Sequence[Tap], step, name: str):
        super().__init__(lo, src, src, out, None, step, (1, 1), name)
        self.grad, self.taps, self.name = grad, list(taps), name
        n, self.channels, high, columns = grad.shape
        self.columns = as_int(columns) or 0
        self.chunks = Chunks((n, high, columns))

    def write_sums(self) -> None:
        """Launches the sums of the chunks, and what adds them. A piece is some chunks by some channels."""
        k, channels = self.k, as_expr(self.channels)
        self.s = schedule(self.lo, "stencil weights", self.src, self.grad, self.taps, self.step_in, 4)
        self.wide = self.s.wide
        lines, group, chunks = as_expr(self.chunks.outer), self.chunks.group, self.chunks.count
        some = maximum(const(1), self.s.elements // maximum(const(self.chunks.run) * channels, 1))
        piece = k.split(cdiv(chunks, some))
        partial = self.lo.temp(self.compute, (chunks, len(self.taps), channels))
        sums = k.write(partial)
        start = k.let(piece * some)
        with k.loop(start, minimum(chunks, start + some), name="chunk") as chunk:
            first = k.let(chunk * group)
            last = k.let(minimum(lines, first + group))
            for c, count in k.vector_loop(0, channels, "channel"):
                acc = [k.var(const(0, self.compute, LANES), name="acc") for _ in self.taps]
                with k.loop(first, last, name="line") as line:
                    self.n, y = unflatten(k, line, (self.grad.shape[0], self.grad.shape[2]))
                    self.line(acc, as_expr(y), c, count)
                for t, a in enumerate(acc):
                    k.store(sums, k.let(as_expr(partial.index((chunk, t, c)))), a.value, count)
        self.lo.launch(k)
        self.add(partial, chunks)

    def line(self, acc: list, y: Expr, c: Expr, count: Expr | None) -> None:
        """One row of the gradient: pixels in order, in tiles where all of their taps are inside of the image."""
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
        """Some neighbouring pixels, inside of the image."""
        k, (sy, sx) = self.k, self.step_in
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
                        seen[column] = k.let(cast(v, self.compute))
                    a.set(multiply_add(seen[column], gs[i], a.value))

    def add(self, partial: Array, chunks: Expr) -> None:
        """The chunks' sums in order."""
        k = self.lo.kernel(f"{self.name}_chunks")
        t = k.split(len(self.taps))
        p = k.read(partial)
        for c, count in k.vector_loop(0, as_expr(self.channels), "channel"):
            total = k.var(k.load(p, as_expr(partial.index((0, t, c))), LANES, count), name="total")
            with k.loop(1, chunks, name="chunk") as i:
                total.set(total.value + k.load(p, as_expr(partial.index((i, t, c))), LANES, count))
            at = At((t, c), 1, count)
            store_at(k, self.out, at, cast(total.value, self.out.dtype))
        self.lo.launch(k)
