"""A matrix times few vectors, where the matrix is dense along k: squares of it are transposed in registers.

    for each piece = (group, some rows of the matrix):
        for LANES rows:                                              # one vector of results for each column
            for chunk of k:
                for LANES positions of k:
                    square[k][row] = transpose of matrix[row][k]     # LANES vectors of LANES rows each
                    for k of the square:
                        acc[column][rows] += square[k][rows] * vector[column][k]
                sum[column] = acc, or sum + acc after the first chunk

Each row's sum is one chain of fma, so the lanes of a vector must be rows, although memory runs along k. It is bound by how fast
the matrix can be read: while a chunk is computed, the next chunk of the same rows is prefetched.
"""

from __future__ import annotations

from typing import ClassVar

from tengen.base.record import record
from tengen.kernels.axes import unflatten
from tengen.kernels.contraction.prefetch import CACHE_LINE_BYTES
from tengen.kernels.contraction.problem import Problem, extents, multiply_add
from tengen.kernels.lowering import KernelBuilder, Lowering
from tengen.kernels.machine import Machine, machine
from tengen.kernels.schedule import Schedule, outside
from tengen.loops.builder import as_expr
from tengen.loops.lang import LANES, Expr, Index, as_int, cast, cdiv, const, equal, minimum, select, splat
from tengen.loops.statements import Buffer

PIECE_ROW_TILES = 4  # tiles of LANES rows of a piece, by rule
MOST_COLUMNS = 12  # columns at most: each has an accumulator in registers beside a square
LEAST_ROW_PIECES = 8  # pieces to share among threads at least, where there are rows enough


@record(frozen=True)
class TransposedOperand(Schedule, kind="turned"):
    """tiles: of LANES rows of a piece, one below the other."""

    tiles: int

    steps: ClassVar = {"tiles": (1, 2, 4, 8, 16)}

    def fits(self) -> str:
        """Why it cannot be; empty if it can."""
        return outside(self, tiles=(1, 1 << 10))


def fits_transposed_operand(p: Problem, target: Machine | None, invariant: bool = False) -> bool:
    """Whether there is one column, or few rows, times a matrix that is dense along k and has at least LANES rows, and registers
    hold two squares. invariant: few rows are multiplied again and again by the same matrix, which is then packed once
    instead."""
    q, (width, registers, _) = _matrix_first(p), machine(target)
    rows, few = as_int(q.rows), as_int(q.columns)
    if len(q.m) != 1 or q.format.group > 1 or q.border is not None or (rows is not None and rows < LANES):
        return False
    if 2 * LANES * LANES * q.compute.size > width * registers:
        return False
    if p.n and (few is None or few > MOST_COLUMNS or invariant or q.a.constant):
        return False
    a, b = q.walk("k", "a"), q.walk("k", "b")
    return len(a.extents) == 1 and as_int(a.step) == 1 and len(b.extents) <= 1


def _matrix_first(p: Problem) -> Problem:
    """The problem with the matrix as operand `a`: where there are columns, a and b change places, and its rows are out's
    columns."""
    return p.swapped() if p.n else p


def transposed_operand(lo: Lowering, p: Problem) -> None:
    """Launches what computes `p`, for which `fits_transposed_operand` holds."""
    k, p = lo.kernel(p.name), _matrix_first(p)
    rows = as_int(p.rows)
    tiles = PIECE_ROW_TILES if rows is None else max(1, min(PIECE_ROW_TILES, rows // (LANES * LEAST_ROW_PIECES)))
    by_rule = TransposedOperand(tiles)
    high = LANES * lo.choose(p.problem_key, by_rule, TransposedOperand.fits).tiles
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
    """The sums of LANES rows from `r` on, a vector for each column; past the last row, that row is read again."""
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
    """The sums of one chunk: of LANES rows, which begin at `rows`, times each of the `vectors`. following(j): where row j goes
    on after the chunk."""
    src, vector, step = k.read(p.a), k.read(p.b), p.walk("k", "b").step
    start, length = ks[0], k.let(ks[1] - ks[0])
    whole = k.let(length // LANES * LANES)
    sums = [k.var(splat(const(0, p.compute)), name="acc") for _ in vectors]

    def square(i: Expr, count: Expr | None) -> list[Expr]:
        # LANES vectors matrix[row, k i ..] become LANES vectors square[k i + j][rows].
        return k.transpose([cast(k.load(src, x + start + i, LANES, count), p.compute) for x in rows])

    def add(column: Expr, i: Index) -> None:
        for acc, b in zip(sums, vectors):
            y = cast(k.load(vector, b + (start + i) * step), p.compute)
            acc.set(multiply_add(column, splat(y), acc.value))  # acc[rows] += matrix[rows, k i] * vector[k i]

    each = -(-LANES * LANES // p.chunks.longest)  # rows whose next chunk is prefetched during one square
    with k.loop(0, whole, LANES, name="k") as i:
        with k.loop(0, each, name="line") as j:
            _prefetch(k, p, src, following(i // LANES * each + j))
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


def _prefetch(k: KernelBuilder, p: Problem, src: Buffer, at: Expr) -> None:
    """Prefetches one chunk of a row, from element `at` on."""
    each = CACHE_LINE_BYTES // p.a.dtype.size
    for i in range(-(-p.chunks.longest // each)):
        k.prefetch(src, at + i * each)
