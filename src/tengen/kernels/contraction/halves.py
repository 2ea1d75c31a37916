"""A register tile whose last vector has columns for one half of its lanes, on targets where half a vector is whole registers: the tile
of all columns, or a tile of the last ones alone, behind others of whole vectors.

    shared[pair of rows] = the last columns of the first row | those of the second row     # in registers
        shared[pair] += (a[first row, k] | a[second row, k]) * (last columns of b | the same again)

So 24 columns take the multiply-adds of 24, where two vectors of 16 for each row would take those of 32, and 40 those of 40, not of 48. A
row's sums are taken apart once, behind the last term.
"""

from __future__ import annotations

from tengen.kernels.contraction.problem import Problem
from tengen.kernels.contraction.register_parts import Rows
from tengen.kernels.lowering import KernelBuilder
from tengen.loops.builder import Variable
from tengen.loops.lang import LANES, Expr, const, shuffle, splat
from tengen.loops.statements import Buffer


class Halves:
    """The sums of a tile of some rows by some vectors of columns, the last one half, and what adds to them."""

    def __init__(self, k: KernelBuilder, p: Problem, a: Rows, rows: int, vectors: int):
        self.k, self.p, self.a, self.vectors = k, p, a, range(vectors)
        zero = lambda: k.var(const(0, p.compute, LANES), name="acc")
        self.whole = [[zero() for _ in range(vectors - 1)] for _ in range(rows)]
        self.shared = [zero() for _ in range(0, rows, 2)]

    def add(self, here: Expr, panel: Buffer, there: Expr) -> None:
        """Adds the products of a position of k: of rows from element `here` on, and of columns from element `there` of a panel on.

        A pair's shared vector goes between its rows' own: then one register holds first the one row's element and then the other's. In
        another order LLVM keeps both, and of 4 rows by 24 columns a sum lies in memory: 1.04 of the time of whole vectors."""
        k, multiply_add = self.k, self.p.format.multiply_add
        *bs, last = (k.load(panel, there + v * LANES, LANES) for v in self.vectors)
        twice = shuffle("first_halves", last, last)

        def add_whole(x: Expr, line: list[Variable]) -> None:
            for y, acc in zip(bs, line):
                acc.set(multiply_add(x, y, acc.value))

        for i, pair in enumerate(self.shared):
            lines = self.whole[2 * i : 2 * i + 2]
            xs = [splat(k.load(self.a.buffer, here + (2 * i + j) * self.a.by_row)) for j in range(len(lines))]
            if len(lines) == 2:
                add_whole(xs[0], lines[0])
            pair.set(multiply_add(shuffle("first_halves", xs[0], xs[-1]), twice, pair.value))
            add_whole(xs[-1], lines[-1])

    def sums(self) -> list[list[Expr]]:
        """The vectors of each row. Past a row's columns, the last one has sums of the other row of its pair."""
        last = [self.k.let(shuffle(half, x.value, x.value)) for x in self.shared for half in ("first_halves", "second_halves")]
        return [[*(x.value for x in line), y] for line, y in zip(self.whole, last)]
