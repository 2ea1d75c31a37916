"""A matrix times few vectors, where the matrix is dense along the sum: squares of it are turned in registers.

Each row's sum is one chain, so vectors must run across rows, though memory runs along them. LANES rows are read LANES positions
at a time, turned, and multiplied by one element of each vector after another. What bounds it is how fast the matrix can be
read: while a chunk is computed, the same rows' next one is fetched, row by row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tengen.kernels.ahead import LINE
from tengen.kernels.axes import unflatten
from tengen.kernels.lowering import KernelBuilder, Lowering
from tengen.kernels.problem import Problem, extents, multiply_add
from tengen.kernels.schedule import Schedule, outside
from tengen.kernels.tile import Machine, machine
from tengen.loops.builder import as_expr
from tengen.loops.lang import LANES, Buffer, Expr, Index, as_int, cast, cdiv, const, equal, minimum, select, splat

TILES = 4  # of LANES rows of a piece
MOST_COLUMNS = 12  # of few rows times a matrix: each has an accumulator beside a square
SHARES = 8  # pieces at least, where there are rows enough


@dataclass(frozen=True)
class Turned(Schedule, kind="turned"):
    """tiles: of LANES rows of a piece, one below the other."""

    tiles: int

    steps: ClassVar = {"tiles": (1, 2, 4, 8, 16)}

    def fits(self) -> str:
        """Why it cannot be; empty if it can."""
        return outside(self, tiles=(1, 1 << 10))


def fits_turned(p: Problem, target: Machine | None, steady: bool = False) -> bool:
    """Whether there is one column, or few rows, a matrix that is dense along the sum, with a vector of rows of its own at least, and
    registers that hold a square and as much again. steady: few rows are multiplied again and again by the same matrix."""
    q, (width, registers, _) = _matrix_first(p), machine(target)
    rows, few = as_int(q.rows), as_int(q.columns)
    if len(q.m) != 1 or q.pairs or q.border is not None or (rows is not None and rows < LANES):
        return False
    if 2 * LANES * LANES * q.compute.size > width * registers:
        return False
    if p.n and (few is None or few > MOST_COLUMNS or steady or q.a.constant):
        return False
    a, b = q.walk("k", "a"), q.walk("k", "b")
    return len(a.extents) == 1 and as_int(a.step) == 1 and len(b.extents) <= 1


def _matrix_first(p: Problem) -> Problem:
    """The problem with the matrix as its first operand: its rows are results' columns where there are some."""
    return p.swapped() if p.n else p


def turned(lo: Lowering, p: Problem) -> None:
    """Launches what computes `p`, for which `fits_turned` holds."""
    k, p = lo.kernel(p.name), _matrix_first(p)
    rows = as_int(p.rows)
    by_rule = Turned(TILES if rows is None else max(1, min(TILES, rows // (LANES * SHARES))))
    high = LANES * lo.choose(p.meaning, by_rule, Turned.fits).tiles
    blocks = as_expr(cdiv(p.rows, high))
    piece = k.split(p.groups * blocks)
    g = unflatten(k, k.let(piece // blocks), extents(p.g))
    bases = tuple(k.let(as_expr(p.base(x, g))) for x in "ab")
    columns = [unflatten(k, c, extents(p.n)) for c in range(as_int(p.columns) or 1)]
    first = k.let(piece % blocks * high)
    with k.loop(first, k.let(minimum(p.rows, first + high)), LANES, name="row") as r:
        whole = rows is not None and rows % LANES == 0
        axes, count = (*p.g, *p.n, *p.m), None if whole else p.rows - r
        for column, total in zip(columns, _tile(k, p, bases, columns, r)):
            p.where(axes, (*g, *column, r), axes[-1], count).finish(k, total)
    lo.launch(k)


def _tile(k: KernelBuilder, p: Problem, bases: tuple[Expr, Expr], columns: list[list[Index]], r: Expr) -> list[Expr]:
    """The sums of LANES rows, for each column; rows past the last are the last."""
    row = lambda r, j: as_expr(bases[0] + minimum(as_expr(r + j), p.rows - 1) * p.m[0].a)
    rows = [k.let(row(r, j)) for j in range(LANES)]
    vectors = [as_expr(sum((c * x.b for c, x in zip(column, p.n)), bases[1])) for column in columns]

    def chunk(c: Expr) -> list[Expr]:
        start, stop = (k.let(x) for x in p.chunks.bounds(c))
        ended = k.let(stop >= p.chunks.positions)
        below, later = k.let(select(ended, r + LANES, r)), k.let(select(ended, const(0), stop))
        return _chunk(k, p, rows, vectors, (start, stop), lambda j: k.let(row(below, j) + later))

    if as_int(p.chunks.count) == 1:
        return chunk(const(0))
    totals = [k.var(splat(const(0, p.compute)), name="sum") for _ in columns]
    with k.loop(0, p.chunks.count, name="chunk") as c:
        sums = chunk(c)
        with k.if_(equal(c, 0)):
            for total, acc in zip(totals, sums):
                total.set(acc)
        with k.else_():
            for total, acc in zip(totals, sums):
                total.set(total.value + acc)
    return [total.value for total in totals]


def _chunk(k: KernelBuilder, p: Problem, rows: list[Expr], vectors: list[Expr], ks: tuple[Expr, Expr], following) -> list[Expr]:
    """One chunk of the rows at `rows`, times each vector. following(j): where row j goes on after the chunk."""
    src, vector, step = k.read(p.a), k.read(p.b), p.walk("k", "b").step
    start, length = ks[0], k.let(ks[1] - ks[0])
    whole = k.let(length // LANES * LANES)
    sums = [k.var(splat(const(0, p.compute)), name="acc") for _ in vectors]

    def square(i: Expr, count: Expr | None) -> list[Expr]:
        return k.transpose([cast(k.load(src, x + start + i, LANES, count), p.compute) for x in rows])

    def add(column: Expr, i: Index) -> None:
        for acc, b in zip(sums, vectors):
            y = cast(k.load(vector, b + (start + i) * step), p.compute)
            acc.set(multiply_add(column, splat(y), acc.value))

    each = -(-LANES * LANES // p.chunks.longest)  # rows that are fetched while a square is computed
    with k.loop(0, whole, LANES, name="k") as i:
        with k.loop(0, each, name="line") as j:
            _fetch(k, p, src, following(i // LANES * each + j))
        for j, x in enumerate(square(i, None)):
            add(x, i + j)
    if (as_int(p.chunks.last) or 1) % LANES:
        left = k.scratch("left", p.compute, LANES * LANES)
        with k.if_(whole < length):
            for j, x in enumerate(square(whole, length - whole)):
                k.store(left, j * LANES, x)
            with k.loop(whole, length, name="k") as i:
                add(k.load(left, (i - whole) * LANES, LANES), i)
    return [acc.value for acc in sums]


def _fetch(k: KernelBuilder, p: Problem, src: Buffer, at: Expr) -> None:
    """Fetches a chunk of a row early."""
    each = LINE // p.a.dtype.size
    for i in range(-(-p.chunks.longest // each)):
        k.prefetch(src, at + i * each)
