"""Products without columns, with groups in the lanes: depthwise convolutions of other than two dimensions, and their gradients.

    for each piece = (outer group, block of rows, some vectors of groups):
        for LANES groups:
            for a few rows:
                for chunk of k:
                    for k of the chunk:
                        acc[row][groups] += a[groups, row, k] * b[groups, k]
                    sum[row] = acc, or sum + acc after the first chunk
                out[groups, row] = sum

It needs an innermost axis of g that is dense in `a`, and no n. b is copied so that it is dense along these groups too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from tengen.base.dtype import int64
from tengen.base.record import record
from tengen.kernels.axes import unflatten
from tengen.kernels.contraction.chunks import runs
from tengen.kernels.contraction.problem import Problem, extents, multiply_add
from tengen.kernels.lowering import Array, Lowering, product
from tengen.kernels.machine import Machine, machine, registers_of
from tengen.kernels.pointwise import copy
from tengen.kernels.schedule import Schedule, outside
from tengen.loops.builder import Variable, as_expr
from tengen.loops.lang import LANES, Expr, Index, as_int, cast, cdiv, const, equal, minimum

PIECE_ROWS = 64  # rows of a piece, by rule
MOST_PIECE_ROWS = 1 << 10
PIECE_VECTORS = 4  # vectors of groups of a piece, by rule
MOST_ABREAST_ROWS = 8  # rows at a time at most


@record(frozen=True)
class Channels(Schedule, kind="channels"):
    """height: rows of a tile. block: rows of a piece. vectors: of channels of a piece."""

    height: int
    block: int = PIECE_ROWS
    vectors: int = PIECE_VECTORS

    steps: ClassVar = {
        "height": tuple(range(1, MOST_ABREAST_ROWS + 5)), "vectors": (1, 2, 4, 8, 16), "block": (8, 16, 32, 64, 128, 256)
    }  # fmt: skip

    def fits(self) -> str:
        """Why it cannot be; empty if it can."""
        return outside(self, height=(1, MOST_ABREAST_ROWS + 4), block=(1, MOST_PIECE_ROWS), vectors=(1, MOST_PIECE_ROWS))


def rule(p: Problem, target: Machine | None) -> Channels:
    """As many rows as registers hold, one accumulator each, and a sum of chunks where there are several."""
    _, registers, _ = machine(target)
    each = registers_of(p.compute.size, target)
    fits_in = (registers - 2 * each) // each // (1 if as_int(p.chunks.count) == 1 else 2)
    rows = as_int(p.rows)
    return Channels(max(1, min(MOST_ABREAST_ROWS, fits_in, MOST_ABREAST_ROWS if rows is None else rows)))


def fits(p: Problem) -> bool:
    """Whether there is a last axis of g that is dense in `a`, and nothing else to vectorise over."""
    return not p.n and bool(p.g) and as_int(p.g[-1].a) == 1 and as_int(p.g[-1].b) != 0


def channelwise(lo: Lowering, p: Problem) -> None:
    """Launches what computes `p`, for which `fits` holds."""
    _Channelwise(lo, p, _dense_along_groups(lo, p)).launch()


def _dense_along_groups(lo: Lowering, p: Problem) -> Array:
    """b as ([outer g], k, channel), dense along the channel."""
    axes = (*p.g[:-1], *p.k, p.g[-1])
    source = Array(p.b.id, p.b.dtype, extents(axes), tuple(x.b for x in axes), p.b.offset)
    flat, n = (*extents(p.g[:-1]), p.chunks.positions, p.g[-1].extent), len(p.g) - 1
    walk = p.walk("k", "b")
    if as_int(p.g[-1].b) == 1 and len(walk.extents) <= 1:
        return Array(p.b.id, p.b.dtype, flat, (*source.strides[:n], walk.step, 1), p.b.offset)

    def make() -> Array:
        t = lo.temp(source.dtype, source.shape)
        copy(lo, source, t, f"{p.name}_pack")
        return t

    t = lo.once(source, "channelwise", make)
    return Array(t.id, t.dtype, flat, (*t.strides[:n], p.g[-1].extent, 1))


class _Channelwise:
    """Writes the kernel of one problem."""

    def __init__(self, lo: Lowering, p: Problem, b: Array):
        self.lo, self.p, self.b = lo, p, b
        self.one_chunk = as_int(p.chunks.count) == 1
        self.k = lo.kernel(p.name)
        self.s = lo.choose(p.problem_key, rule(p, lo.target), Channels.fits)
        self.height = self.s.height
        self.offsets = self.k.scratch("rows", int64, self.s.block)  # where the piece's rows begin in `a`

    def launch(self) -> None:
        """Writes and launches it."""
        p, k = self.p, self.k
        channels, outer, width = as_expr(p.g[-1].extent), p.g[:-1], LANES * self.s.vectors
        blocks, parts = as_expr(cdiv(p.rows, self.s.block)), as_expr(cdiv(channels, width))
        piece = k.split(product(extents(outer)) * blocks * parts)
        self.g = unflatten(k, k.let(piece // (blocks * parts)), extents(outer))
        self.first = k.let(piece // parts % blocks * self.s.block)
        self.count = k.let(minimum(p.rows - self.first, self.s.block))
        start = k.let(piece % parts * width)
        at_a, self.at_b = k.let(as_expr(p.base("a", self.g))), k.let(as_expr(self.b.index((*self.g, 0, 0))))
        walk = p.walk("m", "a")
        with runs(k, walk, self.first, self.first + self.count) as (r0, r1, at), k.loop(r0, r1) as r:
            k.store(self.offsets, r - self.first, at_a + at + (r - r0) * walk.step)
        for c, count in k.vector_loop(start, k.let(minimum(channels, start + width)), name="channel"):
            with k.loop(0, self.count, self.height, name="row") as r:
                self.tile(r, c, count)
        self.lo.launch(k)

    def zeros(self, name: str) -> list[Variable]:
        """An accumulator for each row of a tile."""
        return [self.k.var(const(0, self.p.compute, LANES), name=name) for _ in range(self.height)]

    def tile(self, r: Expr, c: Expr, count: Expr | None) -> None:
        """A few rows of one vector of channels: all of k, and the store."""
        p, k = self.p, self.k
        rows = [k.load(self.offsets, minimum(r + j, self.count - 1)) for j in range(self.height)]
        if self.one_chunk:
            sums = self.chunk(const(0), rows, c, count)
        else:
            sums = self.zeros("sum")
            with k.loop(0, p.chunks.count, name="chunk") as i:
                acc = self.chunk(i, rows, c, count)
                with k.if_(equal(i, 0)):
                    for s, a in zip(sums, acc):
                        s.set(a.value)
                with k.else_():
                    for s, a in zip(sums, acc):
                        s.set(s.value + a.value)
        for j, s in enumerate(sums):
            with k.if_(r + j < self.count):
                row = unflatten(k, k.let(self.first + r + j), extents(p.stored_rows))
                p.where((*p.g, *p.stored_rows), [*self.g, c, *row], p.g[-1], count).finish(k, s.value)

    def chunk(self, i: Expr, rows: Sequence[Expr], c: Index, count: Expr | None) -> list[Variable]:
        """Accumulates chunk `i`."""
        p, k, walk = self.p, self.k, self.p.walk("k", "a")
        acc = self.zeros("acc")
        start, stop = (k.let(x) for x in p.chunks.bounds(i))
        a, b = k.read(p.a), k.read(self.b)
        with runs(k, walk, start, stop) as (k0, k1, at), k.loop(k0, k1, name="k") as kk:
            here = k.let(at + (kk - k0) * walk.step + c)
            w = cast(k.load(b, self.at_b + kk * self.b.strides[-2] + c, LANES, count), p.compute)
            for row, v in zip(rows, acc):
                x = cast(k.load(a, row + here, LANES, count), p.compute)
                v.set(multiply_add(x, w, v.value))  # acc[row] += a[groups c.., row, kk] * b[groups c.., kk]
        return acc
