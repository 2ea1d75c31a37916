"""Prefetching the operands of a contraction: what the next chunk reads is requested a few cache lines at a time while the
current chunk is computed, so that memory and arithmetic work at the same time.

    at time t of the current chunk:                    # a time is one part of a tile's loop over k
        column, share = t // shares, t % shares
        for each position k of the share:
            prefetch the cache line of array[k, column]

In: where an operand lies, and which columns of which chunk. Out: prefetches in a kernel, which change no value.
"""

from __future__ import annotations

from dataclasses import dataclass

from tengen.kernels.contraction.chunks import Walk
from tengen.kernels.lowering import Array, KernelBuilder
from tengen.loops.builder import as_expr
from tengen.loops.lang import Expr, Index, as_int, cdiv, const, maximum, select

CACHE_LINE_BYTES = 64  # bytes of a cache line


@dataclass(frozen=True)
class Prefetch:
    """A block of an operand to prefetch: `depth` rows that are dense in memory, one for each position of k. Its cache lines
    form columns; a column is prefetched in several shares, one after the other, then the column beside it.

    Attributes:
        array: the operand. base: the element where the group's part begins. across: the walk along which it is dense.
        first: the position along `across` where the block begins. walk: the walk along k. start: the first position of k.
        each: elements of a cache line. columns: columns of lines. shares: of a column. count: lines of a share.
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
    ) -> Prefetch:  # fmt: skip
        """The block of elements `span` along `across`, for `depth` positions of k from `start` on, to be prefetched in `times`
        shares. whole: a number that the ends of the span are multiples of."""
        each, width = CACHE_LINE_BYTES // array.dtype.size, span[1] - span[0]
        aligned = all(_whole(as_expr(x), each) for x in (array.offset, whole, *across.strides[:-1], *walk.strides))
        columns = k.let(cdiv(width, each) + (0 if aligned else 1))
        shares = k.let(maximum(as_expr(times // maximum(columns, 1)), 1))
        count = k.let(as_expr(cdiv(const(depth), shares)))
        return Prefetch(array, base, across, span[0], walk, k.let(as_expr(start)), each, columns, shares, count)

    def issue(self, k: KernelBuilder, time: Expr) -> None:
        """Writes the prefetches of share number `time`; none after the last share."""
        column = k.let(time // self.shares)
        first = k.let(self.start + (time - column * self.shares) * self.count)
        at = k.let(self.base + self.across.at(k, self.first + column * self.each))
        with k.loop(0, k.let(select(column < self.columns, self.count, const(0))), name="line") as j:
            k.prefetch(k.read(self.array), at + self.walk.at(k, first + j))


def _whole(x: Expr, n: int) -> bool:
    """Whether x is known to be a multiple of n."""
    if x.op == "mul":
        return any(_whole(y, n) for y in x.args)
    if x.op in ("add", "sub"):
        return all(_whole(y, n) for y in x.args)
    return (known := as_int(x)) is not None and known % n == 0
