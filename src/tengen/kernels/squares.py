"""Squares of LANES by LANES elements, transposed: how a kernel copies an operand that is dense along another axis.

Where the rows of a square fit the vector registers, all of it is transposed in registers. Elsewhere, and where a kernel seldom
comes, four rows at a time are, in loops and through scratch memory: a quarter of the code, and no register is spilled.

    for i in 0 .. 3: square[i], square[i + 4], square[i + 8], square[i + 12] = rows i, i + 4, i + 8, i + 12, their quads transposed
    for q in 0 .. 3: columns 4 q .. 4 q + 3 = square[4 q .. 4 q + 3], each quad of four lanes transposed

Read next: `Builder.transpose`.
"""

from __future__ import annotations

from collections.abc import Callable

from tengen.base.dtype import DType
from tengen.kernels.lowering import KernelBuilder
from tengen.kernels.machine import machine, registers_of
from tengen.loops.lang import LANES, QUAD, Expr, Index


def fits_registers(k: KernelBuilder, dt: DType) -> bool:
    """Whether the rows of a square fit the vector registers."""
    return LANES * registers_of(dt.size, k.target) <= machine(k.target)[1]


def transpose_square(
    k: KernelBuilder, dt: DType, read: Callable[[Index], Expr], write: Callable[[Index, Expr], None], seldom: bool = False
) -> None:
    """Writes the transposition of a square: lane j of ``read(i)`` becomes lane i of what ``write(j, column)`` is given.

    Args:
        dt: of the vectors. read, write: called with numbers, or with expressions (in loops); columns are written in order.
        seldom: whether less code is worth more than speed.
    """
    if not seldom and fits_registers(k, dt):
        for j, x in enumerate(k.transpose([read(i) for i in range(LANES)])):
            write(j, x)
        return
    square = k.scratch("square", dt, LANES * LANES)
    with k.loop(0, QUAD, name="i") as i:
        for q, x in enumerate(k.transpose_quads([read(i + g * QUAD) for g in range(QUAD)])):
            k.store(square, i * LANES + q * (QUAD * LANES), x)
    with k.loop(0, QUAD, name="q") as q:
        rows = [k.load(square, q * (QUAD * LANES) + i * LANES, LANES) for i in range(QUAD)]
        for j, x in enumerate(k.transpose_within_quads(rows)):
            write(k.let(q * QUAD + j), x)
