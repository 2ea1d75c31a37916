"""Packing: copies of a contraction's operands into the shape that the register tile reads, in the dtype that is computed in.

    packed b[g, panel, k, column of the panel]     # by a launch (`pack_b`), or by each piece for its columns (`copy_panels`)
    packed a[row][k]  or  a[k][row]                # by each piece, for a chunk of a block of rows (`copy_rows`)
    packed a[tile][k][row of the tile]             # the same where rows of `a` lie side by side (`copy_tiles`)

Copies are vectors along the side of the operand that is dense in memory. Where the packed side is another one, squares of LANES
by LANES elements are transposed in registers; where neither side is dense, elements are gathered one by one.
"""

from __future__ import annotations

import contextlib

from tengen.base.dtype import int64
from tengen.kernels import numerics
from tengen.kernels.axes import unflatten
from tengen.kernels.contraction.chunks import Walk, runs
from tengen.kernels.contraction.formats import BIAS_IN_BYTES
from tengen.kernels.contraction.groups import Put, by_position, pad_rows
from tengen.kernels.contraction.prefetch import line_vectors
from tengen.kernels.contraction.problem import Axis, Problem, extents
from tengen.kernels.contraction.quads import complete, line, place
from tengen.kernels.contraction.tile import Tile
from tengen.kernels.lowering import Array, KernelBuilder, Lowering, product
from tengen.kernels.squares import transpose_square
from tengen.loops.builder import as_expr
from tengen.loops.lang import LANES, Expr, Index, as_int, bitcast, cast, cdiv, const, maximum, minimum, ramp, select
from tengen.loops.statements import Buffer

Range = tuple[Expr, Expr]  # flat positions: the first, and one past the last
COPIED_AHEAD_POSITIONS = 8  # positions of k, whose cache lines are far apart, that are prefetched before a copy of tiles reaches them
PACKING_PIECES = 16  # pieces of a packing launch: enough to share among threads
MOST_PIECE_PANELS = 8  # panels of a piece of it, at most: rows of more would lie in one cache set


def packed_axes(p: Problem) -> list[Axis]:
    """The axes of g along which b has a stride: groups that share b share its packed copy."""
    return [x for x in p.g if as_int(x.b) != 0]


def pack_b(lo: Lowering, p: Problem, t: Tile) -> Array:
    """b packed by a launch, as [g, panel, k, column], with zeros past the last column; packed once where it is used again."""
    axes = packed_axes(p)
    walks = tuple((x.extent, x.b) for x in (*axes, *p.n, *p.k))
    how = ("pack", len(axes), len(p.n), walks, p.chunks, t.columns, p.format, p.biased)
    return lo.once(p.b, how, lambda: _pack(lo, p, t, axes))


def _as_stored(p: Problem) -> list[Axis] | None:
    """The axes of k in the order in which they lie in the memory of b, where b is dense along all of them in that order, but
    neither along k in logical order nor along n: a filter whose channels lie outside of its window. Else None."""
    strides = [as_int(x.b) for x in p.k]
    if p.format.group > 1 or None in strides or as_int(p.walk("n", "b").step) == 1 or as_int(p.walk("k", "b").step) == 1:
        return None
    axes = sorted(p.k, key=lambda x: -as_int(x.b))
    walk = Walk.of(extents(axes), [x.b for x in axes])
    return axes if len(walk.extents) == 1 and as_int(walk.step) == 1 else None


def _pack(lo: Lowering, p: Problem, t: Tile, axes: list[Axis]) -> Array:
    panels = as_expr(cdiv(p.columns, t.columns))
    count = p.chunks.count
    out = lo.temp(p.packed, (*extents(axes), panels, p.packed_at(count, p.chunks.positions), t.columns))
    k = lo.kernel(f"{p.name}_pack")
    blocks = count if p.format.group > 1 else as_expr(cdiv(p.chunks.positions, numerics.CHUNK_TERMS))
    wide = _panels_of_piece(p, panels * blocks * product(extents(axes)))
    groups = as_expr(cdiv(panels, wide))
    piece = k.split(product(extents(axes)) * groups * blocks)
    *outer, group = unflatten(k, k.let(piece // blocks), (*extents(axes), groups))
    block, panel = k.let(piece % blocks), k.let(group * wide)
    if p.format.group > 1:
        start, stop = (k.let(x) for x in p.chunks.bounds(block))
    else:
        start = k.let(block * numerics.CHUNK_TERMS)
        stop = k.let(minimum(p.chunks.positions, start + numerics.CHUNK_TERMS))
    base = p.b.offset
    for c, x in zip(outer, axes):
        base = base + c * x.b
    columns = k.let(panel * t.columns), k.let(minimum(p.columns, (panel + wide) * t.columns))
    dst, at = k.write(out), k.let(as_expr(base))
    if (stored := _as_stored(p)) is not None:
        _transpose_as_stored(k, p, t, at, columns[0], (start, stop), stored, dst, out.index((*outer, panel, 0, 0)))
    else:
        to = k.let(as_expr(out.index((*outer, panel, p.packed_at(block, start), 0))))
        copy_panels(k, p, t, at, columns, (start, stop), dst, out.shape[-2], to)
        if p.format.quads and not p.whole_groups:
            complete(k, p, t.columns, columns, k.let(stop - start), dst, out.shape[-2], to)
        if p.biased:
            _begin_sums(k, p, t, columns, k.let(p.depth(stop - start)), dst, out.shape[-2], to)
    lo.launch(k)
    return out


def _begin_sums(k: KernelBuilder, p: Problem, t: Tile, columns: Range, rows: Expr, dst: Buffer, depth: Index, to: Expr) -> None:
    """Stores, in the row before each packed panel, what sums of its `rows` begin with (`Problem.biased`)."""
    bias = const(BIAS_IN_BYTES, p.packed, LANES)
    with k.loop(*columns, t.columns, name="column") as column:
        at = k.let(to + (column - columns[0]) * depth)
        totals = [k.var(const(0, p.compute, LANES), name="total") for _ in range(t.vectors)]
        with k.loop(0, rows) as i:
            for v, total in enumerate(totals):
                total.set(p.format.multiply_add(bias, k.load(dst, at + i * t.columns + v * LANES, LANES), total.value))
        for v, total in enumerate(totals):
            k.store(dst, at + (v * LANES - t.columns), bitcast(const(0, p.compute, LANES) - total.value, p.packed))


def _transpose_as_stored(
    k: KernelBuilder, p: Problem, t: Tile, base: Expr, column: Expr, fs: Range, stored: list[Axis], dst: Buffer, to: Index
) -> None:
    """Packs the positions `fs` of k, counted in the order of b's memory, of the panel from `column` on: in squares of LANES by
    LANES, transposed in registers, to the rows of the packed panel (which begins at `to`) where they belong in logical order.
    Lanes past the last column are zeros."""
    step, src = p.walk("n", "b").step, k.read(p.b)
    start, to, left = k.let(as_expr(base + column * step)), k.let(as_expr(to)), k.let(as_expr(p.columns - column))
    apart = [product(extents(p.k[p.k.index(x) + 1 :])) for x in stored]  # positions from one step along an axis to the next

    places = k.scratch("places", int64, LANES)

    def square(f: Expr, count: Expr | None) -> None:
        """Some positions from `f` on (None: all of a square, and there are all of the columns)."""
        with k.loop(0, LANES, name="r") as r:
            coords = unflatten(k, k.let(f + r), extents(stored))
            k.store(places, r, to + sum((c * d for c, d in zip(coords, apart)), const(0)) * t.columns)
        with k.loop(0, t.columns, LANES, name="v") as v:

            def read(r: Index) -> Expr:
                some = None if count is None else k.let(select(left > v + r, count, const(0)))
                return cast(k.load(src, start + (v + r) * step + f, LANES, some), p.compute)

            def write(r: Index, x: Expr) -> None:
                with contextlib.nullcontext() if count is None else k.if_(count > r):
                    k.store(dst, k.load(places, r) + v, x)

            transpose_square(k, p.compute, read, write, seldom=count is not None)

    whole = k.let(select(left >= t.columns, fs[0] + (fs[1] - fs[0]) // LANES * LANES, fs[0]))
    with k.loop(fs[0], whole, LANES, name="square") as f:
        square(f, None)
    with k.loop(whole, fs[1], LANES, name="square") as f:
        square(f, k.let(minimum(fs[1] - f, LANES)))


def _panels_of_piece(p: Problem, count: Expr) -> Expr:
    """How many panels a piece of the packing has, where there are `count` (panel, block of k): several where b is dense along
    its columns, so that long runs are read."""
    if as_int(p.walk("n", "b").step) != 1:
        return const(1)
    return minimum(maximum(as_expr(count // PACKING_PIECES), 1), MOST_PIECE_PANELS)


def copy_panel(k: KernelBuilder, p: Problem, t: Tile, base: Expr, column: Index, ks: Range, dst: Buffer, to: Index) -> None:
    """Packs one panel of b, the positions `ks` of k and the columns from `column` on, into `dst` from element `to` on."""
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
        with runs(k, walk, *ks) as (first, last, at):

            def row(i: Expr, number: Expr, put: Put) -> None:
                here, there = k.let(start + at + (i - first) * walk.step), line(k, p, t.columns, to, number)
                # packed[k i][vector v] = b[k i, vector v]
                for v in range(t.vectors):
                    put(there(v * LANES), here + v * LANES * step, None if full else left - v * LANES)

            by_position(k, p, (first, last), ks[0], (src, walk.step, step), dst, row)

    if whole:
        rows(True)
    else:
        with k.if_(left >= t.columns):
            rows(True)
        with k.else_():
            rows(False)


def copy_panels(
    k: KernelBuilder, p: Problem, t: Tile, base: Expr, columns: Range, ks: Range, dst: Buffer, depth: Index, to: Index = 0
) -> None:
    """Packs all panels from columns[0] to columns[1] into `dst` from `to` on; each has room for `depth` positions of k. Where
    b is dense along its columns, whole rows are read: panel by panel, memory would be read in short, distant runs."""
    walk, step = p.walk("k", "b"), p.walk("n", "b").step
    if as_int(step) != 1:
        with k.loop(*columns, t.columns, name="column") as column:
            copy_panel(k, p, t, base, column, ks, dst, to + (column - columns[0]) * depth)
        return
    src, width = k.read(p.b), k.let(columns[1] - columns[0])
    whole = k.let(width // t.columns * t.columns)
    with runs(k, walk, *ks) as (first, last, at):

        def row(i: Expr, number: Expr, put: Put) -> None:
            here, there = k.let(base + columns[0] + at + (i - first) * walk.step), line(k, p, t.columns, to, number)

            def panel(column: Expr, full: bool) -> None:
                at = k.let(column * depth)
                # packed[panel of the column][k i][vector v] = b[k i, vector v]
                for v in range(t.vectors):
                    put(there(v * LANES) + at, here + column + v * LANES, None if full else width - column - v * LANES)

            with k.loop(0, whole, t.columns, name="column") as column:
                panel(column, True)
            with k.if_(whole < width):
                panel(whole, False)

        by_position(k, p, (first, last), ks[0], (src, walk.step, 1), dst, row)


def _transpose_panel(k: KernelBuilder, p: Problem, t: Tile, ks: Range, source, dest, left: Expr | None) -> None:
    """Packs a panel where b is dense along k: squares of LANES by LANES are transposed in registers; the last columns are read
    in vectors along k and scattered.

    Args:
        source: (buffer, the element where the panel begins, the columns' stride). dest: (buffer, element). left: the number of
            columns that exist, where it may be less than the panel's.
    """
    (src, start, step), (dst, to), walk = source, dest, p.walk("k", "b")
    n: Index = t.columns
    if left is not None:
        n = k.let(minimum(left, t.columns))
        with k.if_(n < t.columns), k.loop(0, k.let(p.depth(ks[1] - ks[0]))) as i:
            for v in range(t.vectors):
                k.store(dst, to + i * t.columns + v * LANES, const(0, p.packed, LANES))
    if p.format.group > 1:
        return _transpose_groups(k, p, t, ks, source, dest, n)
    with runs(k, walk, *ks) as (first, last, at):
        here, there = k.let(start + at), k.let(to + (first - ks[0]) * t.columns)
        whole, length = k.let(as_expr(n) // LANES * LANES), k.let(last - first)
        squares = k.let(select(length >= LANES, whole, const(0)))
        with k.loop(0, squares, LANES, name="column") as c, k.loop(0, length, LANES, name="square") as i:
            j = k.let(minimum(i, length - LANES))  # the last square overlaps the one before
            read = lambda r, c=c, j=j: cast(k.load(src, here + (c + r) * step + j, LANES), p.compute)
            # packed[k j + r][column c ..] = b[k j + r, column c ..]
            put = lambda r, x, c=c, j=j: k.store(dst, there + (j + r) * t.columns + c, x)
            transpose_square(k, p.compute, read, put, seldom=t.brief)
        with k.loop(squares, n, name="column") as c:
            mine, theirs = k.let(here + c * step), k.let(there + c)
            for i, count in k.vector_loop(0, length):
                if count is None:
                    x = k.load(src, mine + i, LANES)
                    k.store(dst, ramp() * t.columns + (theirs + i * t.columns), cast(x, p.compute))
                else:
                    with k.loop(i, length) as j:
                        k.store(dst, theirs + j * t.columns, cast(k.load(src, mine + j), p.compute))


def _transpose_groups(k: KernelBuilder, p: Problem, t: Tile, ks: Range, source, dest, n: Index) -> None:
    """`_transpose_panel` for `n` columns of groups: each column is copied to a line as it is stored, and loaded from it as groups."""
    (src, start, step), (dst, to), walk = source, dest, p.walk("k", "b")
    pitch = p.chunks.longest + 2 * LANES
    lines, group = k.scratch("lines", p.format.second, LANES * pitch), p.format.group
    depth, zero = k.let(p.depth(ks[1] - ks[0])), const(0, p.format.second)

    def copy(column: Expr, line: Expr) -> None:
        with runs(k, walk, *ks) as (first, last, at):
            here, there = k.let(start + at + column * step), k.let(line + (first - ks[0]))
            for i, count in k.vector_loop(0, k.let(last - first)):
                k.store(lines, there + i, p.stored(k.load(src, here + i, LANES, count), "b"))
        for more in range(0 if p.whole_groups else p.format.terms - 1):
            k.store(lines, line + (ks[1] - ks[0]) + more, zero)

    squares = k.let(select(depth >= LANES, as_expr(n) // LANES * LANES, const(0)))
    with k.loop(0, squares, LANES, name="column") as c:
        with k.loop(0, LANES, name="line") as r:
            copy(c + r, k.let(r * pitch))
        with k.loop(0, depth, LANES, name="square") as i:
            j = k.let(minimum(i, depth - LANES))  # the last square overlaps the one before
            read = lambda r, j=j: k.load_group(lines, r * pitch + j * group, LANES)
            put = lambda r, x, c=c, j=j: k.store(dst, line(k, p, t.columns, to, j + r)(c), x)
            transpose_square(k, p.packed, read, put, seldom=t.brief)
    with k.loop(squares, n, name="column") as c:
        copy(c, const(0))
        with k.loop(0, depth) as j:
            k.store(dst, place(p, t.columns, to, j, c), k.load_group(lines, j * group))


def copy_rows(k: KernelBuilder, p: Problem, t: Tile, base: Expr, ms: Range, ks: Range, dst: Buffer) -> None:
    """Packs the rows `ms` of `a`, for the positions `ks` of k, into scratch memory with the tile's pitch. Vectors along k may
    write past the end of a row: what lies there is written later, or not used."""
    m, kk, src = p.walk("m", "a"), p.walk("k", "a"), k.read(p.a)
    if p.format.group > 1 and not t.along_k:
        return _copy_groups_along_m(k, p, t, base, ms, ks, dst)
    inner, outer = (kk, m) if t.along_k else (m, kk)
    (outer_range, inner_range) = (ms, ks) if t.along_k else (ks, ms)
    with runs(k, outer, *outer_range) as (r0, r1, r_at), runs(k, inner, *inner_range) as (c0, c1, c_at):
        with k.loop(r0, r1, name="row") as r:
            here = k.let(base + r_at + c_at + (r - r0) * outer.step)
            there = k.let((r - outer_range[0]) * t.pitch + (c0 - inner_range[0]))
            for i, count in k.vector_loop(0, k.let(c1 - c0), several=line_vectors(dst.dtype) if t.along_k else 1):
                step = inner.step
                index = here + i if as_int(step) == 1 else ramp() * step + (here + i * step)
                x = k.load(src, index, LANES, count)
                if p.prologue is not None:
                    x = p.prologue.beside(k, k.let(c0 + i), count)(x)
                # along k: packed[row][k i ..] = a[row, k i ..]; along m: packed[k][row i ..] = a[row i .., k]
                k.store(dst, there + i, p.stored(x, "a") if p.biased else cast(x, dst.dtype), None if t.along_k else count)
    if t.along_k:
        pad_rows(k, p, t, ms, ks, dst)


def copy_tiles(k: KernelBuilder, p: Problem, t: Tile, base: Expr, tiles: Range, ks: Range, dst: Buffer) -> None:
    """Packs the rows of some tiles, which are dense along m, for the positions `ks` of k: as [tile][k][row]. A vector holds the
    rows of a tile and some more: the next position overwrites what it stores past them. Of low tiles it is half a vector."""
    kk, src, pitch = p.walk("k", "a"), k.read(p.a), t.tile_pitch(as_int(p.depth(p.chunks.longest)) or 1)
    lanes = LANES // 2 if t.rows <= LANES // 2 else LANES
    whole, rows = None if lanes == LANES else const(lanes), (k.let(t.row(tiles[0])), k.let(minimum(p.rows, t.row(tiles[1]))))
    # Tiles before this one are of full height, and their vectors end inside of the rows.
    simple: Expr = maximum(p.rows + (t.rows - lanes), const(0)) // t.rows
    simple = k.let(maximum(minimum(simple if t.tall is None else minimum(simple, t.tall), tiles[1]), tiles[0]))
    with runs(k, kk, *ks) as (first, last, at), k.loop(first, last, name="k") as i:
        here = k.let(base + at + (i - first) * kk.step)
        there = k.let((i - ks[0]) * t.pitch)

        def tile(number: Expr, row: Expr, count: Expr | None) -> None:
            x = k.load(src, here + row, LANES, count)
            if p.prologue is not None:
                x = p.prologue.beside(k, row, count)(x)
            # packed[tile][k i][row] = a[row, k i]
            k.store(dst, there + (number - tiles[0]) * pitch, cast(x, dst.dtype), whole)

        with k.loop(*rows, LANES, name="line") as row:
            k.prefetch(src, here + row + COPIED_AHEAD_POSITIONS * kk.step)
        with k.loop(tiles[0], simple, name="tile") as number:
            tile(number, k.let(number * t.rows), whole)
        with k.loop(simple, tiles[1], name="tile") as number:
            row = k.let(t.row(number))
            left = k.let(p.rows - row)
            with k.if_(left >= lanes):
                tile(number, row, whole)
            with k.else_():
                tile(number, row, left)


def _copy_groups_along_m(k: KernelBuilder, p: Problem, t: Tile, base: Expr, ms: Range, ks: Range, dst: Buffer) -> None:
    """`copy_rows` in groups, along m: positions of k are joined."""
    m, kk, src = p.walk("m", "a"), p.walk("k", "a"), k.read(p.a)
    with runs(k, kk, *ks) as (r0, r1, r_at), runs(k, m, *ms) as (c0, c1, c_at):
        width = k.let(c1 - c0)

        def row(r: Expr, number: Expr, put: Put) -> None:
            here = k.let(base + r_at + c_at + (r - r0) * kk.step)
            there = k.let(number * t.pitch + (c0 - ms[0]))
            for i, count in k.vector_loop(0, width):
                put(there + i, here + i * m.step, count)

        by_position(k, p, (r0, r1), ks[0], (src, kk.step, m.step), dst, row, partly=True)
