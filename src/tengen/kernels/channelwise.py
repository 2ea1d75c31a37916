"""Products without columns, one group to one lane: depthwise convolutions and their gradients.

Where n is one column and the innermost axis of g is dense, LANES groups are computed side by side, a few m at a time, each
with an accumulator of its own. A piece is some rows of m by some vectors of groups.
"""

from __future__ import annotations

from tengen.kernels.chunks import runs
from tengen.kernels.lowering import Array, Lowering, product
from tengen.kernels.pointwise import copy, unflatten
from tengen.kernels.problem import Problem, extents, multiply_add
from tengen.loops.builder import as_expr
from tengen.loops.lang import LANES, Expr, Index, as_int, cast, cdiv, const, equal, minimum

BLOCK = 64  # rows of a piece
VECTORS = 4  # vectors of groups of a piece


def fits(p: Problem) -> bool:
    """Whether there is a last axis of g that is dense in `a`, and nothing else to vectorise over."""
    return not p.n and bool(p.g) and as_int(p.g[-1].a) == 1 and as_int(p.g[-1].b) != 0


def channelwise(lo: Lowering, p: Problem) -> None:
    """Launches what computes `p`, for which `fits` holds."""
    b = _dense_along_groups(lo, p)
    k = lo.kernel(p.name)
    lanes_axis = p.g[-1]
    outer, channels = p.g[:-1], as_expr(lanes_axis.extent)
    bytes_, registers = (16, 32) if lo.target is None else (lo.target.vector_bytes, lo.target.vector_registers)
    each = max(1, LANES * p.compute.size // bytes_)
    many = as_int(p.chunks.count) != 1
    height = max(1, min(8, (_accumulators(registers, each) // (2 if many else 1))))
    known = as_int(p.rows)
    height = height if known is None else max(1, min(height, known))
    width = LANES * VECTORS
    blocks, parts = as_expr(cdiv(p.rows, BLOCK)), as_expr(cdiv(channels, width))
    piece = k.split(product(extents(outer)) * blocks * parts)
    g = unflatten(k, k.let(piece // (blocks * parts)), extents(outer))
    first = k.let(piece // parts % blocks * BLOCK)
    stop = k.let(minimum(p.rows, first + BLOCK))
    start = k.let(piece % parts * width)
    end = k.let(minimum(channels, start + width))
    at_a, at_b = k.let(as_expr(p.base("a", g))), k.let(as_expr(_base_of(b, g)))
    rows = k.scratch("rows", as_expr(0).dtype, BLOCK)
    with runs(k, p.walk("m", "a"), first, stop) as (r0, r1, at), k.loop(r0, r1) as r:
        k.store(rows, r - first, at_a + at + (r - r0) * p.walk("m", "a").step)

    def tile(r: Expr, c: Expr, count: Expr | None) -> None:
        here = [k.load(rows, minimum(r + j, stop - 1 - first)) for j in range(height)]
        totals = [k.var(const(0, p.compute, LANES), name="total") for _ in range(height)] if many else []

        def chunk(i: Expr) -> list[Expr]:
            lo_k, hi_k = (k.let(x) for x in p.chunks.bounds(i))
            acc = [k.var(const(0, p.compute, LANES), name="acc") for _ in range(height)]
            walk = p.walk("k", "a")
            with runs(k, walk, lo_k, hi_k) as (k0, k1, at), k.loop(k0, k1, name="k") as kk:
                offset = k.let(at + (kk - k0) * walk.step + c)
                src, weights = k.read(p.a), k.read(b)
                w = cast(k.load(weights, at_b + kk * b.strides[-2] + c, LANES, count), p.compute)
                for j in range(height):
                    x = cast(k.load(src, here[j] + offset, LANES, count), p.compute)
                    acc[j].set(multiply_add(x, w, acc[j].value))
            return [v.value for v in acc]

        if many:
            with k.loop(0, p.chunks.count, name="chunk") as i:
                sums = chunk(i)
                with k.if_(equal(i, 0)):
                    for t, s in zip(totals, sums):
                        t.set(s)
                with k.else_():
                    for t, s in zip(totals, sums):
                        t.set(t.value + s)
            values = [t.value for t in totals]
        else:
            values = chunk(const(0))
        for j, v in enumerate(values):
            with k.if_(r + j < stop - first):
                row = unflatten(k, k.let(first + r + j), extents(p.m))
                p.where((*p.g, *p.m), [*g, c, *row], lanes_axis, count).finish(k, v)

    for c, count in k.vector_loop(start, end, name="channel"):
        with k.loop(0, stop - first, height, name="row") as r:
            tile(r, c, count)
    lo.launch(k)


def _accumulators(registers: int, each: int) -> int:
    """Accumulators that fit beside one operand of each kind."""
    return (registers - 2 * each) // each


def _base_of(b: Array, g: list[Index]) -> Index:
    return b.index((*g, 0, 0))


def _dense_along_groups(lo: Lowering, p: Problem) -> Array:
    """b as ([outer g], k, channel), dense along the channel."""
    axes = (*p.g[:-1], *p.k, p.g[-1])
    source = Array(p.b.id, p.b.dtype, extents(axes), tuple(x.b for x in axes), p.b.offset)
    positions, n = p.chunks.positions, len(p.g) - 1
    if as_int(p.g[-1].b) == 1 and len(p.walk("k", "b").extents) <= 1:
        shape = (*extents(p.g[:-1]), positions, p.g[-1].extent)
        return Array(p.b.id, p.b.dtype, shape, (*source.strides[:n], p.walk("k", "b").step, 1), p.b.offset)
    t = lo.temp(source.dtype, source.shape)
    copy(lo, source, t, f"{p.name}_pack")
    flat = (*extents(p.g[:-1]), positions, p.g[-1].extent)
    return Array(t.id, t.dtype, flat, (*t.strides[:n], p.g[-1].extent, 1))

