"""What a contraction fetches early of its operands: rows that are wanted a chunk later, a little at a time while a chunk is
computed, so that memory and arithmetic go on together.

In: where an operand lies, and which columns of which chunk. Out: prefetches in a kernel, which change no value.
"""

from __future__ import annotations

from dataclasses import dataclass

from tengen.kernels.axes import unflatten
from tengen.kernels.chunks import Walk
from tengen.kernels.lowering import Array, KernelBuilder
from tengen.loops.builder import as_expr
from tengen.loops.lang import Expr, Index, as_int, cdiv, const, maximum, select

LINE = 64  # bytes of a cache line


@dataclass(frozen=True)
class Ahead:
    """Rows of an operand, dense, one for each position of k: lines below each other are fetched in some shares, then those beside.

    Attributes:
        array: the operand. at: of it, the element of the first line at position 0. walk: of positions. start: the first position.
        each: elements of a line. columns: lines beside each other. shares: of a column of lines. count: lines of a share.
    """

    array: Array
    at: Expr
    walk: Walk
    start: Expr
    each: int
    columns: Expr
    shares: Expr
    count: Expr

    @staticmethod
    def of(
        k: KernelBuilder, array: Array, at: Index, walk: Walk, start: Index, depth: int, width: Expr, whole: Index, times: Expr
    ) -> Ahead:
        """`width` elements of `depth` positions from `start` on, a share of them each of so many times. whole: what `at` and
        `width` are multiples of, but for the array's offset."""
        each = LINE // array.dtype.size
        aligned = all(_whole(as_expr(x), each) for x in (array.offset, whole, *walk.strides))
        columns = k.let(cdiv(width, each) + (0 if aligned else 1))
        shares = k.let(maximum(as_expr(times // maximum(columns, 1)), 1))
        count = k.let(as_expr(cdiv(const(depth), shares)))
        return Ahead(array, k.let(as_expr(at)), walk, k.let(as_expr(start)), each, columns, shares, count)

    def fetch(self, k: KernelBuilder, time: Expr) -> None:
        """The share of this time."""
        column = k.let(time // self.shares)
        first = k.let(self.start + (time - column * self.shares) * self.count)
        at = k.let(self.at + column * self.each)
        with k.loop(0, k.let(select(column < self.columns, self.count, const(0))), name="line") as j:
            here: Index = at
            for c, step in zip(unflatten(k, k.let(first + j), self.walk.extents), self.walk.strides):
                here = here + c * step
            k.prefetch(k.read(self.array), here)


def _whole(x: Expr, n: int) -> bool:
    """Whether a number is known to be a multiple of n."""
    if x.op == "mul":
        return any(_whole(y, n) for y in x.args)
    if x.op in ("add", "sub"):
        return all(_whole(y, n) for y in x.args)
    return (known := as_int(x)) is not None and known % n == 0
