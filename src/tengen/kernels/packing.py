"""Copies of a contraction's operands into the shape that the register tile reads: constant strides, the dtype computed in.

b becomes panels of columns, one after another in k; a piece's rows of `a` become rows of constant pitch. Copies run along
whatever is dense; where nothing is, element by element.
"""

from __future__ import annotations

from tengen.kernels.axes import unflatten
from tengen.kernels.chunks import RUN, runs
from tengen.kernels.lowering import Array, KernelBuilder, Lowering, product
from tengen.kernels.problem import Axis, Problem, extents
from tengen.kernels.tile import Tile
from tengen.loops.builder import as_expr
from tengen.loops.lang import LANES, Buffer, Expr, Index, as_int, cast, cdiv, const, minimum, ramp

Range = tuple[Expr, Expr]  # flat positions: the first, and one past the last



def packed_axes(p: Problem) -> list[Axis]:
    """The axes of g along which b differs."""
    return [x for x in p.g if as_int(x.b) != 0]


def pack_b(lo: Lowering, p: Problem, t: Tile) -> Array:
    """b as [g, panel, k, column], zeros past the last column, in the dtype that is computed in."""
    axes = packed_axes(p)
    walks = tuple((x.extent, x.b) for x in (*axes, *p.n, *p.k))
    how = ("pack", len(axes), len(p.n), walks, p.chunks, t.columns, p.compute)
    return lo.once(p.b, how, lambda: _pack(lo, p, t, axes))


def _pack(lo: Lowering, p: Problem, t: Tile, axes: list[Axis]) -> Array:
    panels = as_expr(cdiv(p.columns, t.columns))
    out = lo.temp(p.compute, (*extents(axes), panels, p.chunks.positions, t.columns))
    k = lo.kernel(f"{p.name}_pack")
    blocks = as_expr(cdiv(p.chunks.positions, RUN))
    piece = k.split(product(extents(axes)) * panels * blocks)
    outer = unflatten(k, k.let(piece // blocks), (*extents(axes), panels))
    start = k.let(piece % blocks * RUN)
    stop = k.let(minimum(p.chunks.positions, start + RUN))
    base = p.b.offset
    for c, x in zip(outer, axes):
        base = base + c * x.b
    dst = k.write(out)
    copy_panel(k, p, t, k.let(as_expr(base)), outer[-1] * t.columns, (start, stop), dst, out.index((*outer, start, 0)))
    lo.launch(k)
    return out


def copy_panel(k: KernelBuilder, p: Problem, t: Tile, base: Expr, column: Index, ks: Range, dst: Buffer, to: Index) -> None:
    """One panel of b, the positions `ks` of k, from `column` on, to `dst` from `to` on."""
    columns, walk = p.walk("n", "b"), p.walk("k", "b")
    step, left = columns.step, k.let(as_expr(p.columns - column))
    src = k.read(p.b)
    start = k.let(as_expr(base + column * step))
    to = k.let(as_expr(to))
    whole = as_int(p.columns) is not None and as_int(p.columns) % t.columns == 0
    if as_int(step) != 1 and as_int(walk.step) == 1:
        _transpose_panel(k, p, t, ks, (src, start, step), (dst, to), None if whole else left)
        return

    def rows(full: bool) -> None:
        with runs(k, walk, *ks) as (first, last, at), k.loop(first, last) as i:
            here = k.let(start + at + (i - first) * walk.step)
            for v in range(t.vectors):
                count = None if full else left - v * LANES
                index = here + v * LANES if as_int(step) == 1 else ramp() * step + (here + v * LANES * step)
                x = k.load(src, index, LANES, count)
                k.store(dst, to + (i - ks[0]) * t.columns + v * LANES, cast(x, p.compute))

    if whole:
        rows(True)
    else:
        with k.if_(left >= t.columns):
            rows(True)
        with k.else_():
            rows(False)


def copy_panels(k: KernelBuilder, p: Problem, t: Tile, base: Expr, columns: Range, ks: Range, dst: Buffer, depth: int) -> None:
    """All panels from columns[0] to columns[1], `depth` positions of k apart. Where b is dense along its columns its rows are
    read whole: panel by panel, memory would be touched in short pieces far apart."""
    walk, step = p.walk("k", "b"), p.walk("n", "b").step
    if as_int(step) != 1:
        with k.loop(*columns, t.columns, name="column") as column:
            copy_panel(k, p, t, base, column, ks, dst, (column - columns[0]) * depth)
        return
    src, width = k.read(p.b), k.let(columns[1] - columns[0])
    whole = k.let(width // t.columns * t.columns)
    with runs(k, walk, *ks) as (first, last, at), k.loop(first, last) as i:
        here = k.let(base + columns[0] + at + (i - first) * walk.step)
        row = k.let((i - ks[0]) * t.columns)

        def panel(column: Expr, full: bool) -> None:
            to = k.let(column * depth + row)
            for v in range(t.vectors):
                count = None if full else width - column - v * LANES
                k.store(dst, to + v * LANES, cast(k.load(src, here + column + v * LANES, LANES, count), p.compute))

        with k.loop(0, whole, t.columns, name="column") as column:
            panel(column, True)
        with k.if_(whole < width):
            panel(whole, False)


def _transpose_panel(k: KernelBuilder, p: Problem, t: Tile, ks: Range, source, dest, left: Expr | None) -> None:
    """The panel where b is dense along k: column by column, vectors along k, scattered. `source`: the buffer, where
    the panel begins, the columns' stride; `dest`: the buffer and where; `left`: how many columns there are, if fewer."""
    (src, start, step), (dst, to), walk = source, dest, p.walk("k", "b")
    n: Index = t.columns
    if left is not None:
        n = k.let(minimum(left, t.columns))
        with k.if_(n < t.columns), k.loop(ks[0], ks[1]) as i:
            for v in range(t.vectors):
                k.store(dst, to + (i - ks[0]) * t.columns + v * LANES, const(0, p.compute, LANES))
    with runs(k, walk, *ks) as (first, last, at), k.loop(0, n, name="column") as c:
        here, there = k.let(start + at + c * step), k.let(to + c + (first - ks[0]) * t.columns)
        for i, count in k.vector_loop(0, last - first):
            if count is None:
                x = k.load(src, here + i, LANES)
                k.store(dst, ramp() * t.columns + (there + i * t.columns), cast(x, p.compute))
            else:
                with k.loop(i, last - first) as j:
                    k.store(dst, there + j * t.columns, cast(k.load(src, here + j), p.compute))


def copy_rows(k: KernelBuilder, p: Problem, t: Tile, base: Expr, ms: Range, ks: Range, dst: Buffer) -> None:
    """Rows `ms` of a, positions `ks` of k, to scratch memory with the tile's pitch. Vectors along k may
    write past the end: what lies there is written later, or not used."""
    m, kk, src = p.walk("m", "a"), p.walk("k", "a"), k.read(p.a)
    inner, outer = (kk, m) if t.along_k else (m, kk)
    (outer_range, inner_range) = (ms, ks) if t.along_k else (ks, ms)
    with runs(k, outer, *outer_range) as (r0, r1, r_at), runs(k, inner, *inner_range) as (c0, c1, c_at):
        with k.loop(r0, r1, name="row") as r:
            here = k.let(base + r_at + c_at + (r - r0) * outer.step)
            there = k.let((r - outer_range[0]) * t.pitch + (c0 - inner_range[0]))
            for i, count in k.vector_loop(0, k.let(c1 - c0)):
                step = inner.step
                index = here + i if as_int(step) == 1 else ramp() * step + (here + i * step)
                x = k.load(src, index, LANES, count)
                k.store(dst, there + i, cast(x, p.compute), None if t.along_k else count)
