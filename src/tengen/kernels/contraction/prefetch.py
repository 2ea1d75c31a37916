"""Prefetching the operands of a contraction: what the next chunk reads is requested a few cache lines at a time while the
current chunk is computed, so that memory and arithmetic work at the same time.

    in each part of a tile's loop over k:              # so many lines that all of them are prefetched until the chunk ends
        for some lines:
            prefetch the cache line at (position, line)
            the next one is beside it, after the last of a position the first one of the next position

Lines that lie beside each other follow each other: positions of k may be far apart, each on a page of its own, whose address is then
looked up once.

In: where an operand lies, and which columns of which chunk. Out: prefetches in a kernel, which change no value.
"""

from __future__ import annotations

from tengen.base.dtype import DType
from tengen.base.record import record
from tengen.kernels.contraction.chunks import Walk
from tengen.kernels.lowering import Array, KernelBuilder
from tengen.loops.builder import Variable, as_expr
from tengen.loops.lang import LANES, Expr, Index, as_int, cdiv, const, maximum, select

CACHE_LINE_BYTES = 64  # bytes of a cache line


def line_vectors(d: DType) -> int:
    """How many vectors of elements a cache line holds, at least one."""
    return max(1, CACHE_LINE_BYTES // (LANES * d.size))


@record(frozen=True)
class Prefetch:
    """A block of an operand to prefetch: `depth` rows of cache lines that are dense in memory, one for each position of k.

    Attributes:
        array: the operand. base: the element where the group's part begins. across: the walk along which it is dense.
        first: the position along `across` where the block begins. walk: the walk along k. start: the first position of k.
        each: elements of a cache line. lines: of a row. depth: rows. count: lines that are prefetched at a time.
        line, row: of the block, which are prefetched next.
    """

    array: Array
    base: Expr
    across: Walk
    first: Expr
    walk: Walk
    start: Expr
    each: int
    lines: Expr
    depth: int
    count: Expr
    line: Variable
    row: Variable

    @staticmethod
    def of(
        k: KernelBuilder, array: Array, base: Expr, across: Walk, span: tuple[Expr, Expr], walk: Walk, start: Index, depth: int,
        whole: Index, times: Expr,
    ) -> Prefetch:  # fmt: skip
        """The block of elements `span` along `across`, for `depth` positions of k from `start` on, to be prefetched in `times`
        shares. whole: a number that the ends of the span are multiples of."""
        each, width = CACHE_LINE_BYTES // array.dtype.size, span[1] - span[0]
        aligned = all(_whole(as_expr(x), each) for x in (array.offset, whole, *across.strides[:-1], *walk.strides))
        lines = k.let(cdiv(width, each) + (0 if aligned else 1))
        count = k.let(cdiv(lines * depth, maximum(times, 1)))
        line, row = k.var(const(0), name="line"), k.var(const(0), name="row")
        return Prefetch(array, base, across, span[0], walk, k.let(as_expr(start)), each, lines, depth, count, line, row)

    def issue(self, k: KernelBuilder) -> None:
        """Writes the prefetches of the next share; none after the last one."""
        with k.loop(0, k.let(select(self.row.value < self.depth, self.count, const(0))), name="line"):
            line, row = k.let(self.line.value), k.let(self.row.value)
            at = self.across.at(k, self.first + line * self.each) + self.walk.at(k, self.start + row)
            k.prefetch(k.read(self.array), self.base + at)
            last = k.let(line + 1 >= self.lines)
            self.line.set(select(last, const(0), line + 1))
            self.row.set(select(last, row + 1, row))


def _whole(x: Expr, n: int) -> bool:
    """Whether x is known to be a multiple of n."""
    if x.op == "mul":
        return any(_whole(y, n) for y in x.args)
    if x.op in ("add", "sub"):
        return all(_whole(y, n) for y in x.args)
    return (known := as_int(x)) is not None and known % n == 0
