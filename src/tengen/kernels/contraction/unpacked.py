"""Products that use each element of a matrix a few times at most: nothing is packed, both operands are read where they lie.

    for each piece = (group, rows, part of the columns):
        for tile = rows by vectors of columns:                  # without columns: rows of scalars
            for chunk of k:
                for k of the chunk:
                    acc[row][v] += a[row, k] * b[k, vector v]   # without columns: acc[row] += a[row, k] * b[k]
                sum[row][v] = acc, or sum + acc after the first chunk
            out[tile] = sum

It is for few rows times a matrix that is dense along its columns, and for a matrix times one column. Both are bound by how
fast the matrix can be read.
"""

from __future__ import annotations

from typing import ClassVar

from tengen.base.dtype import bool_
from tengen.base.record import record
from tengen.kernels.axes import unflatten
from tengen.kernels.contraction.chunks import runs
from tengen.kernels.contraction.prefetch import CACHE_LINE_BYTES
from tengen.kernels.contraction.problem import Problem, extents, multiply_add
from tengen.kernels.contraction.tile import MOST_TILE_ROWS
from tengen.kernels.lowering import Lowering
from tengen.kernels.machine import PAGE_BYTES, Machine, machine, registers_of
from tengen.kernels.schedule import Schedule, outside
from tengen.loops.builder import Variable, as_expr
from tengen.loops.lang import LANES, Expr, Index, as_int, cast, cdiv, const, equal, minimum, splat

FEW_ROWS = 4  # rows, at most, with vectors of columns; plain matrices may have as many rows as registers hold
TILE_VECTORS = 4  # vectors of columns of a tile, by rule
LONG_TILE_VECTORS = 8  # the same for LOW_ROWS rows, where each row of b begins on another page: processors fetch ahead within a page alone
LOW_ROWS = 2
PREFETCHED_B_ROWS = 16  # rows of b that are prefetched ahead, where each is multiplied with more than FEW_ROWS rows
MOST_SCALAR_ROWS = 12  # rows of a tile of scalars at most
PIECE_SCALAR_TILES = 4  # tiles of scalars of a piece


@record(frozen=True)
class Unpacked(Schedule, kind="in_place"):
    """rows: of a tile of scalars; of vectors of columns a tile has all rows. vectors: of columns. tiles: of a piece, one below
    the other."""

    rows: int
    vectors: int
    tiles: int = 1

    steps: ClassVar = {
        "rows": tuple(range(1, MOST_SCALAR_ROWS + 1)), "vectors": (1, 2, 3, 4, 6, 8), "tiles": (1, 2, 4, 8, 16, 32)
    }  # fmt: skip


def rule(p: Problem, target: Machine | None) -> Unpacked:
    """The sizes of a tile by rule: as many rows and vectors as registers hold accumulators of; rows of scalars also need the
    sum of earlier chunks."""
    _, registers, _ = machine(target)
    rows = as_int(p.rows)
    if not p.n:
        copies = 1 if as_int(p.chunks.count) == 1 else 2
        most = max(1, min(MOST_SCALAR_ROWS, (registers - 2) // copies))
        return Unpacked(most if rows is None else max(1, min(most, rows)), 1, PIECE_SCALAR_TILES)
    assert rows is not None
    each = registers_of(p.compute.size, target)
    # Sums of earlier chunks are seldom needed, and may be elsewhere than in registers.
    long = rows <= LOW_ROWS and (as_int(p.columns) or 0) * p.b.dtype.size >= PAGE_BYTES
    most = max(1, min(LONG_TILE_VECTORS if long else TILE_VECTORS, (registers - 2 * each) // (rows * each)))
    wide = cdiv(p.columns, LANES)  # vectors, shared evenly among tiles
    return Unpacked(rows, as_int(cdiv(wide, cdiv(wide, most))) or most)


def fits(p: Problem, s: Unpacked) -> str:
    """Why the problem cannot have the schedule; empty if it can."""
    if not p.n:
        return outside(s, rows=(1, MOST_SCALAR_ROWS), vectors=(1, 1), tiles=(1, 1 << 10))
    rows = as_int(p.rows) or 1
    return outside(s, rows=(rows, rows), vectors=(1, Unpacked.steps["vectors"][-1]), tiles=(1, 1))


def fits_unpacked(p: Problem, target: Machine | None, invariant: bool = False) -> bool:
    """Whether there is one column, or few rows and a b that is dense along its columns. invariant: the product is repeated with
    the same b, which can then be packed once."""
    if not p.n:
        return True
    rows, each = as_int(p.rows), registers_of(p.compute.size, target)
    if rows is None or as_int(p.n[0].b) != 1:
        return False
    plain = all(len(p.walk("k", x).extents) <= 1 for x in "ab") and (as_int(p.columns) or LANES) >= LANES
    most = min(MOST_TILE_ROWS, (machine(target)[1] - 2 * each) // each)
    return rows <= FEW_ROWS or (plain and not invariant and rows <= most)


def unpacked(lo: Lowering, p: Problem) -> None:
    """Launches what computes `p`, for which `fits_unpacked` holds."""
    _Unpacked(lo, p).launch()


class _Unpacked:
    """Writes the kernel of one problem."""

    def __init__(self, lo: Lowering, p: Problem):
        self.lo, self.p = lo, p
        self.one_chunk = as_int(p.chunks.count) == 1
        self.s = lo.choose(p.problem_key, rule(p, lo.target), lambda s: fits(p, s))
        self.rows, self.vectors = self.s.rows, self.s.vectors
        self.lanes = LANES if p.n else 1
        self.k = lo.kernel(p.name)

    def launch(self) -> None:
        """Writes and launches it."""
        p, k = self.p, self.k
        high = self.rows * self.s.tiles
        wide = self.vectors * LANES if p.n else 1
        blocks, parts = as_expr(cdiv(p.rows, high)), as_expr(cdiv(p.columns, wide))
        piece = k.split(p.groups * blocks * parts)
        self.g = unflatten(k, k.let(piece // (blocks * parts)), extents(p.g))
        self.at_a, self.at_b = (k.let(as_expr(p.base(x, self.g))) for x in "ab")
        first, column = k.let(piece // parts % blocks * high), k.let(piece % parts * wide)
        stop = k.let(minimum(p.rows, first + high))
        with k.loop(first, stop, self.rows, name="row") as r:
            n = as_int(p.columns)
            if not p.n or (n is not None and n % wide == 0):
                self.tile(r, column, True)
            else:
                with k.if_(column + wide <= p.columns):
                    self.tile(r, column, True)
                with k.else_():
                    self.tile(r, column, False)
        self.lo.launch(k)

    def row_offsets(self, r: Expr) -> list[Expr]:
        """Where the rows of the tile begin in `a`; rows past the last are the last."""
        k, m = self.k, self.p.m
        offsets = []
        for j in range(self.rows):
            row = r + j if j == 0 else minimum(r + j, self.p.rows - 1)
            at: Index = self.at_a
            for c, x in zip(unflatten(k, k.let(row), extents(m)), m):
                at = at + c * x.a
            offsets.append(k.let(as_expr(at)))
        return offsets

    def tile(self, r: Expr, column: Expr, full: bool) -> None:
        """All of k for one tile, and the store."""
        p, k = self.p, self.k
        rows = self.row_offsets(r)
        zeros = lambda name: [[k.var(const(0, p.compute, self.lanes), name=name) for _ in range(self.vectors)] for _ in rows]
        if self.one_chunk:
            sums = self.chunk(const(0), rows, column, full, zeros("acc"))
        else:
            sums = zeros("sum")
            with k.loop(0, p.chunks.count, name="chunk") as c:
                acc = self.chunk(c, rows, column, full, zeros("acc"))
                with k.if_(equal(c, 0)):
                    self.each(sums, acc, lambda s, a: a)
                with k.else_():
                    self.each(sums, acc, lambda s, a: s + a)
        for j, line in enumerate(sums):
            with k.if_(r + j < p.rows if j else const(True, bool_)):
                coords = unflatten(k, k.let(r + j), extents(p.stored_rows))
                for v, s in enumerate(line):
                    at = column + v * LANES
                    with k.if_(const(True, bool_) if full or v == 0 else at < p.columns):
                        self.store(coords, at, full, s.value)

    def each(self, sums: list[list[Variable]], acc: list[list[Variable]], f) -> None:
        """Every sum becomes f(sum, accumulator)."""
        for line, more in zip(sums, acc):
            for s, a in zip(line, more):
                s.set(f(s.value, a.value))

    def chunk(self, c: Expr, rows: list[Expr], column: Expr, full: bool, acc: list[list[Variable]]) -> list[list[Variable]]:
        """Accumulates one chunk."""
        p, k = self.p, self.k
        start, stop = (k.let(x) for x in p.chunks.bounds(c))
        a_walk, b_walk = p.walk("k", "a"), p.walk("k", "b")
        a, b = k.read(p.a), k.read(p.b)
        with runs(k, a_walk, start, stop) as (a0, a1, a_at), runs(k, b_walk, a0, a1) as (b0, b1, b_at):
            with k.loop(b0, b1, name="k") as i:
                here, there = k.let(a_at + (i - a0) * a_walk.step), k.let(self.at_b + b_at + (i - b0) * b_walk.step)
                bs = []  # bs[v] = b[k i, vector v]
                for v in range(self.vectors):
                    at = column + v * LANES
                    count = None if full or not p.n else p.columns - at
                    bs.append(cast(k.load(b, there + at if p.n else there, self.lanes, count), p.compute))
                if len(rows) > FEW_ROWS and p.chunks.longest > PREFETCHED_B_ROWS:
                    for at in range(0, self.vectors * LANES, CACHE_LINE_BYTES // p.b.dtype.size):
                        k.prefetch(b, there + PREFETCHED_B_ROWS * b_walk.step + (column + at))
                for line, row in zip(acc, rows):
                    x = cast(k.load(a, row + here), p.compute)
                    for v, y in enumerate(bs):
                        # acc[row][v] += a[row, k i] * b[k i, vector v]
                        line[v].set(multiply_add(splat(x) if p.n else x, y, line[v].value))
        return acc

    def store(self, coords: list[Index], column: Expr, full: bool, value: Expr) -> None:
        """Stores one vector, or one scalar."""
        p = self.p
        count = None if full else p.columns - column
        axes, vec = (*p.g, *p.stored_rows, *p.n), p.n[0] if p.n else None
        p.where(axes, [*self.g, *coords, *([column] if p.n else [])], vec, count).finish(self.k, value)
