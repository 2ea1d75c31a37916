"""The register tile: acc[m][n] += a(m, k) * b(k, n), and the loops around it.

A piece is some rows by some columns of one group. It goes through the chunks of k; for each it packs its rows of `a` into scratch
memory, where they have constant strides whatever `a` looks like, and runs tiles over panels of b's columns. Panels of b
are packed once, by a launch of their own, or by each piece just before they are used. Nothing of this changes a bit: each element of
out has one accumulator a chunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tengen.kernels.chunks import Walk, runs
from tengen.kernels.lowering import Array, KernelBuilder, Lowering, product
from tengen.kernels.pointwise import unflatten
from tengen.kernels.problem import Axis, Problem, extents, multiply_add, partial_sums
from tengen.loops.builder import as_expr

from tengen.loops.lang import (  # isort: skip
    LANES, Buffer, Expr, Index, as_int, cast, cdiv, const, equal, lane, maximum, minimum, ramp, select, splat,
)  # fmt: skip

SCRATCH_BYTES = 62 << 10  # of a piece, on the stack
FEW_ROWS = 4  # rows of the small tile, for what is left over
PIECES = 16  # as many as this are enough to share


@dataclass(frozen=True)
class Tile:
    """The sizes of a register tile problem; all bit-neutral.

    Attributes:
        rows: rows of the register tile. vectors: of LANES columns. block: rows of a piece. small: rows of the second tile, or 0.
        along_k: whether packed rows of `a` are dense along k, or along m. pitch: from row to row (or position to position).
        packed: whether b is packed by a launch of its own.
    """

    rows: int
    vectors: int
    block: int
    small: int
    along_k: bool
    pitch: int
    packed: bool

    @property
    def columns(self) -> int:
        """Columns of a panel."""
        return self.vectors * LANES


def choose(p: Problem, target) -> Tile:
    """Sizes by rule from the target's registers and caches and from the extents that are known."""
    size, longest = p.compute.size, p.chunks.longest
    bytes_, registers = (16, 32) if target is None else (target.vector_bytes, target.vector_registers)
    each = max(1, LANES * size // bytes_)  # registers of a vector of LANES
    m, n = as_int(p.rows), as_int(p.columns)
    vectors = 1 if each > 1 else 2 if n is None else min(-(-n // LANES), 3)
    if vectors == 3 and n > 3 * LANES:
        vectors = 2
    most = max(1, min(14, (registers - vectors * each - 1) // (vectors * each)))
    tiles = 1 if m is None else max(1, -(-m // most))
    rows = most if m is None else max(1, -(-m // tiles))
    along_k = _along_k(p)
    depth = -(-longest // LANES) * LANES
    packed = not (as_int(p.walk("n", "b").step) == 1 and (m is not None and m <= 8 * most))
    room = SCRATCH_BYTES - rows * vectors * LANES * size - (0 if packed else depth * vectors * LANES * size)
    high = max(1, (room // size - LANES * depth if not along_k else room // size) // (depth + LANES) // rows)
    blocks = 1 if m is None else max(1, -(-tiles // high))
    block = rows * (min(high, 4) if m is None else -(-tiles // blocks))
    pitch = depth + LANES if along_k else -(-block // LANES) * LANES + LANES
    return Tile(rows, vectors, block, FEW_ROWS if m is None and most > FEW_ROWS else 0, along_k, pitch, packed)


def _along_k(p: Problem) -> bool:
    """Whether `a` is read along k: where it is dense along k, or not along m either."""
    k, m = p.walk("k", "a"), p.walk("m", "a")
    if as_int(m.step) != 1 or not m.extents:
        return True
    if as_int(k.step) != 1 or not k.extents:
        return False
    run_k, run_m = as_int(k.run), as_int(m.run)
    return run_k is None or run_m is None or run_k >= min(run_m, LANES)


def register_tile(lo: Lowering, p: Problem) -> None:
    """Launches what computes `p`: packing of b if that pays, then the contraction."""
    t = choose(p, lo.target)
    packed = pack_b(lo, p, t) if t.packed else None
    axes = (*p.g, *p.m, *p.n)
    partial = partial_sums(lo, p, axes)
    _Kernel(lo, p, t, packed, partial).launch()


def panel_width(p: Problem, t: Tile, target, blocks: Expr) -> Expr:
    """Columns of a piece: as many as a chunk of b for them half fills L2, fewer if there would be too few pieces."""
    l2 = 512 << 10 if target is None else target.l2_bytes
    most = max(1, l2 // 2 // (p.chunks.longest * p.compute.size * t.columns))
    panels = as_expr(cdiv(p.columns, t.columns))
    wanted = cdiv(as_expr(PIECES), maximum(blocks, 1))  # column blocks
    few = maximum(as_expr(panels // wanted), 1)
    return minimum(few, most) * t.columns


# ---- packing ---------------------------------------------------------------------------------------------------------


def packed_axes(p: Problem) -> list[Axis]:
    """The axes of g along which b differs."""
    return [x for x in p.g if as_int(x.b) != 0]


def pack_b(lo: Lowering, p: Problem, t: Tile) -> Array:
    """b as [g, panel, k, column], zeros past the last column, in the dtype that is computed in."""
    axes = packed_axes(p)
    panels = as_expr(cdiv(p.columns, t.columns))
    out = lo.temp(p.compute, (*extents(axes), panels, p.chunks.positions, t.columns))
    k = lo.kernel(f"{p.name}_pack")
    depth = 256
    blocks = as_expr(cdiv(p.chunks.positions, depth))
    piece = k.split(product(extents(axes)) * panels * blocks)
    outer = unflatten(k, k.let(piece // blocks), (*extents(axes), panels))
    start = k.let(piece % blocks * depth)
    stop = k.let(minimum(p.chunks.positions, start + depth))
    base = p.b.offset
    for c, x in zip(outer, axes):
        base = base + c * x.b
    dst = k.write(out)
    copy_panel(k, p, t, k.let(as_expr(base)), outer[-1] * t.columns, (start, stop), dst, out.index((*outer, start, 0)))
    lo.launch(k)
    return out


def copy_panel(
    k: KernelBuilder, p: Problem, t: Tile, base: Expr, column: Index, ks: tuple[Expr, Expr], dst: Buffer, to: Index
) -> None:
    """One panel of b, the positions `ks` of k, from `column` on, to `dst` from `to` on."""
    columns, walk = p.walk("n", "b"), p.walk("k", "b")
    step, left = columns.step, k.let(as_expr(p.columns - column))
    src = k.read(p.b)
    start = k.let(as_expr(base + column * step))
    to = k.let(as_expr(to))
    whole = as_int(p.columns) is not None and as_int(p.columns) % t.columns == 0
    if as_int(step) != 1 and as_int(walk.step) == 1:
        _transpose_panel(k, p, t, walk, ks, (src, start, step), (dst, to), None if whole else left)
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


def _transpose_panel(k: KernelBuilder, p: Problem, t: Tile, walk: Walk, ks, source, dest, left: Expr | None) -> None:
    """The panel where b is dense along k: column by column, vectors along k, scattered."""
    (src, start, step), (dst, to) = source, dest
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


def copy_rows(k: KernelBuilder, p: Problem, t: Tile, base: Expr, ms, ks, dst: Buffer) -> None:
    """Rows `ms` of a, positions `ks` of k, to scratch memory with the tile's pitch. Vectors may write past the end of a row: what
    lies there is written later, or not used."""
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
                k.store(dst, there + i, cast(x, p.compute))


# ---- the contraction -------------------------------------------------------------------------------------------------


class _Kernel:
    """Writes the kernel of one problem."""

    def __init__(self, lo: Lowering, p: Problem, t: Tile, packed: Array | None, partial: Array | None):
        self.lo, self.p, self.t, self.packed, self.partial = lo, p, t, packed, partial
        self.k = lo.kernel(p.name)
        size = t.block * t.pitch if t.along_k else p.chunks.longest * t.pitch
        self.rows = self.k.scratch("rows", p.compute, size + LANES)
        self.sums = self.k.scratch("sums", p.compute, t.rows * t.columns)
        self.panel = None if packed else self.k.scratch("panel", p.compute, p.chunks.longest * t.columns)
        self.places: list[Buffer] = []  # coordinates of the piece's rows, where m is more than one axis

    def launch(self) -> None:
        p, t, k = self.p, self.t, self.k
        blocks = as_expr(cdiv(p.rows, t.block))
        width = panel_width(p, t, self.lo.target, k_free(blocks * p.groups))
        parts = as_expr(cdiv(p.columns, width))
        piece = k.split(p.groups * parts * blocks)
        self.g = unflatten(k, k.let(piece // (parts * blocks)), extents(p.g))
        self.first = k.let(piece % blocks * t.block)
        self.stop = k.let(minimum(p.rows, self.first + t.block))
        self.column = k.let(piece // blocks % parts * width)
        self.column_stop = k.let(minimum(p.columns, self.column + width))
        self.a_base, self.b_base = (k.let(as_expr(p.base(x, self.g))) for x in "ab")
        self._place_rows()
        count = p.chunks.count
        if as_int(count) == 1:
            self.chunk(const(0))
        else:
            with k.loop(0, count, name="chunk") as c:
                self.chunk(c)
        self.lo.launch(k)

    def _place_rows(self) -> None:
        """Fills the tables of the rows' coordinates."""
        k, m = self.k, self.p.m
        if len(m) < 2:
            return
        self.places = [k.scratch("place", as_expr(0).dtype, self.t.block) for _ in m]
        n = extents(m)
        now = [k.var(c) for c in unflatten(k, self.first, n)]
        with k.loop(self.first, self.stop) as r:
            for table, c in zip(self.places, now):
                k.store(table, r - self.first, c.value)
            carry: Expr = const(1)
            for c, d in reversed(list(zip(now, n))):
                up = k.let(c.value + carry)
                over = k.let(up >= d)
                c.set(select(over, const(0), up))
                carry = k.let(select(over, const(1), const(0)))

    def chunk(self, c: Expr) -> None:
        """One chunk of k: pack the rows, then panel after panel."""
        p, t, k = self.p, self.t, self.k
        start, stop = (k.let(x) for x in p.chunks.bounds(c))
        copy_rows(k, p, t, self.a_base, (self.first, self.stop), (start, stop), self.rows)
        with k.loop(self.column, self.column_stop, t.columns, name="column") as column:
            if self.packed is None:
                copy_panel(k, p, t, self.b_base, column, (start, stop), self.panel, 0)
                source, at = self.panel, const(0)
            else:
                source = k.read(self.packed)
                g = [x for x, axis in zip(self.g, p.g) if axis in packed_axes(p)]
                at = k.let(self.packed.index((*g, column // t.columns, start, 0)))
            last = const(True, equal(c, 0).dtype) if as_int(p.chunks.count) == 1 else k.let(equal(c, p.chunks.count - 1))
            panel = (source, at, k.let(stop - start))
            self.tiles(column, panel, (equal(c, 0), last))

    def tiles(self, column: Expr, panel, ends) -> None:
        """All tiles of the piece's rows on one panel."""
        t, k = self.t, self.k
        n = k.let(self.stop - self.first)
        with k.loop(0, n, t.rows, name="tile") as r:
            left = k.let(minimum(n - r, t.rows))
            if not t.small:
                self.multiply(t.rows, r, panel)
            else:
                with k.if_(left > t.small):
                    self.multiply(t.rows, r, panel)
                with k.else_():
                    self.multiply(t.small, r, panel)
            self.write(r, left, column, ends)

    def multiply(self, rows: int, r: Expr, panel) -> None:
        """The register tile from row `r` of the piece, left in `sums`."""
        p, t, k = self.p, self.t, self.k
        source, at, depth = panel
        acc = [[k.var(const(0, p.compute, LANES), name="acc") for _ in range(t.vectors)] for _ in range(rows)]
        by_row, by_k = (t.pitch, 1) if t.along_k else (1, t.pitch)
        base = k.let(r * by_row)
        with k.loop(0, depth, name="k") as i:
            here, there = k.let(base + i * by_k), k.let(at + i * t.columns)
            bs = [k.load(source, there + v * LANES, LANES) for v in range(t.vectors)]
            for j in range(rows):
                x = splat(k.load(self.rows, here + j * by_row))
                for v in range(t.vectors):
                    acc[j][v].set(multiply_add(x, bs[v], acc[j][v].value))
        for j in range(rows):
            for v in range(t.vectors):
                k.store(self.sums, j * t.columns + v * LANES, acc[j][v].value)

    def write(self, r: Expr, left: Expr, column: Expr, ends) -> None:
        """Adds the tile to what earlier chunks gave, and stores it."""
        p, t, k = self.p, self.t, self.k
        n = as_int(p.columns)
        first, last = ends

        def rows(full: bool) -> None:
            with k.loop(0, left, name="row") as j:
                row = self.coordinates(r + j)
                for v in range(t.vectors):
                    self.write_vector(k.load(self.sums, j * t.columns + v * LANES, LANES), row, column + v * LANES, full, first, last)

        if n is not None and n % t.columns == 0:
            rows(True)
        elif n is not None and n < t.columns:
            rows(False)
        else:
            with k.if_(column + t.columns <= p.columns):
                rows(True)
            with k.else_():
                rows(False)

    def coordinates(self, r: Expr) -> list[Index]:
        """The coordinates of row `r` of the piece."""
        k = self.k
        if not self.places:
            return [k.let(self.first + r)] * len(self.p.m)
        return [k.load(table, r) for table in self.places]

    def write_vector(self, value: Expr, row: Sequence[Index], column: Expr, full: bool, first: Expr, last: Expr) -> None:
        p, k = self.p, self.k
        count = None if full else p.columns - column
        vec = p.n[0] if p.n else None
        axes = (*p.g, *p.m, *p.n)
        if vec is None:
            value = lane(value, 0)
        coords = [*self.g, *row, *([column] if p.n else [])]
        where = p.where(axes, coords, vec, count)
        if as_int(p.chunks.count) == 1:
            return where.finish(k, value)
        total = k.var(value)
        with k.if_(~first):
            total.set(where.load(k, self.partial) + value)
        with k.if_(last):
            p.where(axes, coords, vec, count).finish(k, total.value)
        with k.else_():
            where.store(k, total.value, self.partial)


def k_free(e: Index) -> Expr:
    """An expression over the parameters alone."""
    return as_expr(e)


_ = replace
