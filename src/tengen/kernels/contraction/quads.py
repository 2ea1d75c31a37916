"""A register tile of integers of 8 bits that one operation multiplies two rows by two columns of (`DotFormat.quads`).

    packed b[panel][pair of groups][column][group of the pair]
    quads[pair of rows][half of a vector] = 4 quads: 2 rows by 2 columns each             # in registers
        quads[pair][half] += (both groups of both rows, in each quad) by (both groups of 8 columns)

A row's sums are taken out of the quads once, behind the last term; an odd row is its own pair.
"""

from __future__ import annotations

from collections.abc import Callable

from tengen.base.dtype import uint32
from tengen.kernels.contraction.problem import Problem
from tengen.kernels.contraction.register_parts import Rows
from tengen.kernels.lowering import KernelBuilder
from tengen.loops.lang import LANES, Expr, Index, const, ramp, shuffle, splat
from tengen.loops.statements import Buffer

HALVES = ("low_halves", "high_halves")  # of quads: the sums of the first row, and of the second


class Quads:
    """The sums of a tile of some rows by some vectors of columns, and what adds to them."""

    def __init__(self, k: KernelBuilder, p: Problem, a: Rows, rows: int, vectors: int):
        self.k, self.p, self.a, self.rows, self.vectors = k, p, a, rows, vectors
        pairs = range(0, rows, 2)
        self.acc = [[k.var(const(0, p.compute, LANES), name="acc") for _ in range(2 * vectors)] for _ in pairs]

    def add(self, here: Expr, panel: Buffer, there: Expr) -> None:
        """Adds the products of two groups: of rows from element `here` on, and of columns from element `there` of a panel on."""
        k = self.k
        xs = [self._pair(*(here + min(j, self.rows - 1) * self.a.by_row for j in (2 * i, 2 * i + 1))) for i in range(len(self.acc))]
        for j in range(2 * self.vectors):
            columns = k.load(panel, there + j * LANES, LANES)
            for x, line in zip(xs, self.acc):
                line[j].set(self.p.format.multiply_add(x, columns, line[j].value))

    def _pair(self, *rows: Expr) -> Expr:
        """Two groups of each of two rows, in every quad."""
        k, each = self.k, self.p.format.group
        groups = [[splat(k.load_group(self.a.buffer, at + j * each)) for j in (0, 1)] for at in rows]
        firsts, seconds = (shuffle("low_of_quads", *both) for both in zip(*groups))
        return k.let(shuffle("low_of_quads", firsts, seconds))

    def sums(self) -> list[list[Expr]]:
        """The vectors of each row."""
        found = [
            [self.k.let(shuffle(half, line[2 * v].value, line[2 * v + 1].value)) for v in range(self.vectors)]
            for line in self.acc
            for half in HALVES
        ]
        return found[: self.rows]


def line(k: KernelBuilder, p: Problem, columns: int, panel: Index, number: Index) -> Callable[[Index], Expr]:
    """Row `number` of a packed panel of so many columns that begins at element `panel`: from a column on, where LANES columns lie."""
    if not p.format.quads:
        there = k.let(panel + number * columns)
        return lambda column: there + column
    there = k.let(place(p, columns, panel, number, 0))
    return lambda column: ramp() * 2 + (there + column * 2)


def place(p: Problem, columns: int, panel: Index, number: Index, column: Index) -> Index:
    """Where a group lies: that of one column of row `number` of such a panel."""
    if not p.format.quads:
        return panel + column + number * columns
    return panel + number // 2 * (2 * columns) + number % 2 + column * 2


def complete(
    k: KernelBuilder, p: Problem, columns: int, panels: tuple[Expr, Expr], positions: Expr, dst: Buffer, depth: Index, to: Expr
) -> None:  # fmt: skip
    """Zeros for the second of the last two groups of packed panels, where `positions` have an odd number of groups. panels: their first column,
    and the one behind their last."""
    groups = k.let((positions + (p.format.group - 1)) // p.format.group)
    with k.if_(groups < p.depth(positions)), k.loop(*panels, columns, name="column") as column:
        there = line(k, p, columns, to + (column - panels[0]) * depth, groups)
        for v in range(0, columns, LANES):
            k.store(dst, there(v), const(0, uint32, LANES))
