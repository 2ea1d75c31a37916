"""What a contraction fetches early of its operands: rows that are wanted a chunk later, a little at a time while a chunk is
computed, so that memory and arithmetic go on together.

In: where an operand lies, and which columns of which chunk. Out: prefetches in a kernel, which change no value.
"""

from __future__ import annotations

from dataclasses import dataclass

from tengen.kernels.chunks import Walk
from tengen.kernels.lowering import Array, KernelBuilder
from tengen.loops.builder import as_expr
from tengen.loops.lang import Expr, Index, as_int, cdiv, const, maximum, select

LINE = 64  # bytes of a cache line


@dataclass(frozen=True)
class Ahead:
    """Rows of an operand, dense, one for each position of k: lines below each other are fetched in some shares, then those beside.

    Attributes:
        array: the operand. base: where it begins. across: the walk along which it is dense, first: the element there of the first
        line. walk: of positions. start: the first position. each: elements of a line. columns: lines beside each other.
        shares: of a column of lines. count: lines of a share.
    """

    array: Array
    base: Expr
    across: Walk
    first: Expr
    walk: Walk
    start: Expr
    each: int
    columns: Expr
    shares: Expr
    count: Expr

    @staticmethod
    def of(
        k: KernelBuilder, array: Array, base: Expr, across: Walk, span: tuple[Expr, Expr], walk: Walk, start: Index, depth: int,
        whole: Index, times: Expr,
    ) -> Ahead:  # fmt: skip
        """The elements `span` across of `depth` positions from `start` on, a share of them each of so many times. whole: what the
        span's ends are multiples of."""
        each, width = LINE // array.dtype.size, span[1] - span[0]
        aligned = all(_whole(as_expr(x), each) for x in (array.offset, whole, *across.strides[:-1], *walk.strides))
        columns = k.let(cdiv(width, each) + (0 if aligned else 1))
        shares = k.let(maximum(as_expr(times // maximum(columns, 1)), 1))
        count = k.let(as_expr(cdiv(const(depth), shares)))
        return Ahead(array, base, across, span[0], walk, k.let(as_expr(start)), each, columns, shares, count)

    def fetch(self, k: KernelBuilder, time: Expr) -> None:
        """The share of this time."""
        column = k.let(time // self.shares)
        first = k.let(self.start + (time - column * self.shares) * self.count)
        at = k.let(self.base + self.across.at(k, self.first + column * self.each))
        with k.loop(0, k.let(select(column < self.columns, self.count, const(0))), name="line") as j:
            k.prefetch(k.read(self.array), at + self.walk.at(k, first + j))


def _whole(x: Expr, n: int) -> bool:
    """Whether a number is known to be a multiple of n."""
    if x.op == "mul":
        return any(_whole(y, n) for y in x.args)
    if x.op in ("add", "sub"):
        return all(_whole(y, n) for y in x.args)
    return (known := as_int(x)) is not None and known % n == 0
