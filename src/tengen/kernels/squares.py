"""Squares of LANES by LANES elements, transposed: how a kernel copies an operand that is dense along another axis.

Where the rows of a square fit the vector registers, all of it is transposed in registers. Elsewhere, and where a kernel seldom
comes, four rows at a time are, in loops and through scratch memory: a quarter of the code, and no register is spilled.

    for g in 0 .. 3: square[4 g .. 4 g + 3] = two of the four rounds, of rows g, g + 4, g + 8, g + 12
    for g in 0 .. 3: columns 4 g .. 4 g + 3 = the other two, of square[g], square[g + 4], square[g + 8], square[g + 12]

Read next: `Builder.transpose`, the rounds.
"""

from __future__ import annotations

from collections.abc import Callable

from tengen.base.dtype import DType
from tengen.kernels.lowering import KernelBuilder
from tengen.kernels.machine import machine, registers_of
from tengen.loops.lang import LANES, Expr, Index

TOGETHER_ROWS = 4  # rows that are transposed together where a square does not fit the registers: those that meet in two rounds


def fits_registers(k: KernelBuilder, dt: DType) -> bool:
    """Whether the rows of a square fit the vector registers."""
    return LANES * registers_of(dt.size, k.target) <= machine(k.target)[1]


def transpose_square(
    k: KernelBuilder, dt: DType, read: Callable[[Index], Expr], write: Callable[[Index, Expr], None], seldom: bool = False
) -> None:
    """Writes the transposition of a square: lane j of ``read(i)`` becomes lane i of what ``write(j, column)`` is given.

    Args:
        dt: of the vectors. read, write: called with numbers, or with expressions (in loops). seldom: whether less code is worth
            more than speed.
    """
    if not seldom and fits_registers(k, dt):
        for j, x in enumerate(k.transpose([read(i) for i in range(LANES)])):
            write(j, x)
        return
    square = k.scratch("square", dt, LANES * LANES)
    with k.loop(0, TOGETHER_ROWS, name="g") as g:
        for i, x in enumerate(k.transpose([read(g + i * TOGETHER_ROWS) for i in range(TOGETHER_ROWS)])):
            k.store(square, g * (TOGETHER_ROWS * LANES) + i * LANES, x)
    with k.loop(0, TOGETHER_ROWS, name="g") as g:
        rows = [k.load(square, g * LANES + i * (TOGETHER_ROWS * LANES), LANES) for i in range(TOGETHER_ROWS)]
        for i, x in enumerate(k.transpose(rows)):
            write(k.let(g * TOGETHER_ROWS + i), x)
