"""Transposing copies: pointwise kernels with an operand that is dense along another axis than the result's innermost one.

    for each piece = (some strips of TILE_SIDE_ELEMENTS rows; part of the columns):
        for strip of the piece, tile of TILE_SIDE_ELEMENTS rows by TILE_SIDE_ELEMENTS columns:
            for each operand that is dense along rows:
                scratch[row, column] = operand[column, row]     # squares of LANES by LANES elements, transposed in registers
            for row of the tile, vector of its columns:
                out[row, vector] = source[row, vector]          # in which `scratch` stands for the operand

*Columns* are the result's innermost axis; *rows* the axis along which the operand is dense. Both may be several axes that are
walked as one (of a filter, say). Without tiles, each load would touch a cache line of its own for one number.
"""

from __future__ import annotations

from collections.abc import Sequence

from tengen.base.dtype import int64
from tengen.base.record import record
from tengen.kernels.axes import memory_order, merge_axes, store_at, streams, unflatten
from tengen.kernels.lowering import Array, Lowering, product
from tengen.kernels.source import At, Source, leaves_of
from tengen.kernels.squares import fits_registers, transpose_square
from tengen.loops.builder import as_expr
from tengen.loops.lang import LANES, Expr, Index, as_int, cdiv, const, maximum, minimum
from tengen.loops.statements import Buffer

TILE_SIDE_ELEMENTS = 4 * LANES  # rows and columns of a tile: rows of so many elements load well, and a tile stays in L1
FAR_TILE_COLUMNS = 2 * LANES  # the same where no cache holds the result: more rows of the operand would share cache sets
PIECE_WIDTH_ELEMENTS = 4 * TILE_SIDE_ELEMENTS  # elements of a piece along the result's innermost axis
FAR_PIECE_TILES = 32  # one below the other, where no cache holds the result: operands are read along their pages
LEAST_TILED_EXTENT = 8  # an axis shorter than this is not worth a tile


@record(frozen=True)
class TransposingCopy:
    """Which operands are transposed, and how the axes of the result are grouped.

    Attributes:
        arrays: the operands that are transposed.
        dense: the axes along which these are dense, outermost first. They are the rows of a tile.
        last: the axes that end with the result's innermost one, which all other arrays walk as one. They are the columns.
        outer: all other axes.
    """

    outer: tuple[int, ...]
    dense: tuple[int, ...]
    last: tuple[int, ...]
    arrays: tuple[Array, ...]

    @property
    def order(self) -> tuple[int, ...]:
        """The axes in the order of coordinates, in which those of `last` count as one."""
        return (*self.outer, *self.dense, *self.last)


def transposing(sources: Sequence[Source], outs: Sequence[Array]) -> TransposingCopy | None:
    """The operands that are better transposed than gathered, and their axes. None if there are none, or if these axes are too
    short for tiles."""
    if (leaves := leaves_of(sources)) is None:
        return None
    shape = outs[0].shape
    order = [a for a in memory_order(outs[0]) if as_int(shape[a]) != 1]
    if len(order) < 2 or as_int(outs[0].strides[order[-1]]) != 1:
        return None
    first = next((a for a in leaves if _across(a, order)), None)
    if first is None:
        return None
    start = next(i for i in order if as_int(first.strides[i]) == 1)
    straight = [a.permute(order) for a in [*leaves, *outs] if not _across(a, order)]
    last = [order[i] for i in merge_axes([shape[i] for i in order], straight)[-1]]
    last = last[last.index(start) + 1 :] if start in last else last
    dense = _run(first, start, [i for i in order if i not in last])
    if _few(shape, dense) or _few(shape, last):
        return None
    outer = [i for i in order if i not in last and i not in dense]
    arrays = [a for a in dict.fromkeys(leaves) if _across(a, order) and all(a.strides[i] == first.strides[i] for i in dense)]
    rest = [a.permute(last) for a in [*leaves, *outs] if a not in arrays]
    if len(merge_axes([shape[i] for i in last], rest)) > 1:
        return None
    return TransposingCopy(tuple(outer), tuple(dense), tuple(last), tuple(arrays))


def _across(a: Array, order: Sequence[int]) -> bool:
    """Whether `a` is dense along another axis than the last of `order`."""
    return as_int(a.strides[order[-1]]) not in (0, 1) and any(as_int(a.strides[i]) == 1 for i in order[:-1])


def _run(a: Array, start: int, axes: Sequence[int]) -> list[int]:
    """The axes along which `a` is dense from axis `start` on, outermost first."""
    found, step = [start], a.shape[start]
    while (i := next((i for i in axes if i not in found and a.strides[i] == step), None)) is not None:
        found.insert(0, i)
        step = step * a.shape[i]
    return found


def _few(shape: Sequence, axes: Sequence[int]) -> bool:
    """Whether these axes have too few elements for a tile."""
    n = as_int(product([shape[i] for i in axes]))
    return n is not None and n < LEAST_TILED_EXTENT


def transposing_copy(lo: Lowering, c: TransposingCopy, sources: Sequence[Source], outs: Sequence[Array], name: str) -> None:
    """Launches one kernel that stores each source in its output, tile by tile."""
    _Tiles(lo, c, sources, outs, name).launch()


class _Tiles:
    """Writes the kernel. outer, dense, last: extents of the axes of these names in `TransposingCopy`. side: columns of a tile.
    low: whether the rows are known to be few, and no whole tiles. scratch: a tile for each transposed operand."""

    def __init__(self, lo: Lowering, c: TransposingCopy, sources: Sequence[Source], outs: Sequence[Array], name: str):
        self.lo, self.c, self.sources, self.outs, self.stream = lo, c, sources, outs, streams(outs)
        self.k, self.side = lo.kernel(name), FAR_TILE_COLUMNS if self.stream else TILE_SIDE_ELEMENTS
        self.outer, self.dense, self.last = ([outs[0].shape[i] for i in axes] for axes in (c.outer, c.dense, c.last))
        high = as_int(product(self.dense))  # few rows: the last ones, fewer than LANES, are a part of the work
        self.low = high is not None and high % TILE_SIDE_ELEMENTS != 0 and high < 4 * TILE_SIDE_ELEMENTS
        self.scratch = [self.k.scratch("tile", a.dtype, TILE_SIDE_ELEMENTS * self.side) for a in c.arrays]

    def launch(self) -> None:
        """Writes and launches it."""
        k = self.k
        n, high = as_expr(product(self.last)), as_expr(product(self.dense))
        grain = FAR_TILE_COLUMNS if self.stream else PIECE_WIDTH_ELEMENTS
        parts, strips = cdiv(n, grain), as_expr(product(self.outer)) * cdiv(high, TILE_SIDE_ELEMENTS)
        # strips of a piece: more where columns are few
        some = const(FAR_PIECE_TILES) if self.stream else maximum(PIECE_WIDTH_ELEMENTS // maximum(n, 1), 1)
        piece = k.split(cdiv(strips, some) * parts)
        start = k.let(piece % parts * grain)
        stop = k.let(minimum(n, start + grain))
        first = k.let(piece // parts * some)
        with k.loop(first, minimum(strips, first + some), name="strip") as strip:
            *lead, block = unflatten(k, strip, [*self.outer, cdiv(high, TILE_SIDE_ELEMENTS)])
            row = k.let(block * TILE_SIDE_ELEMENTS)
            rows = k.let(minimum(high - row, TILE_SIDE_ELEMENTS))
            with k.loop(start, stop, self.side, name="tile") as column:
                self.tile(lead, row, rows, column, k.let(minimum(stop, column + self.side)))
        self.lo.launch(k)

    def tile(self, lead: Sequence[Index], row: Expr, rows: Expr, column: Expr, stop: Expr) -> None:
        """Writes one tile: transposes it into scratch memory for each operand, then stores the outputs.

        Args:
            lead: coordinates on the outer axes. row, rows: the first row, and how many there are.
            column, stop: the first column, and the one after the last.
        """
        k, c = self.k, self.c
        table: dict = {}
        for a, tile in zip(c.arrays, self.scratch):
            with k.loop(column, stop, LANES, name="column") as i:
                starts = []
                for j in range(LANES):  # past the last column the last one is read again; what that stores nobody reads
                    at = a.offset + row
                    for x, axis in zip([*lead, *unflatten(k, k.let(minimum(i + j, stop - 1)), self.last)], [*c.outer, *c.last]):
                        at = at + x * a.strides[axis]
                    starts.append(k.let(at))
                self.squares(a, tile, starts, rows, i - column)
            id = ("tile", tile.name)
            k.local[id] = tile
            strides = (*(0 for _ in c.outer), *(a.strides[i] * self.side for i in c.dense), 1)
            table[a] = Array(id, a.dtype, self.shape, strides, 0 - row * self.side - column)
        for a in [*(x for s in self.sources for x in s.leaves() or ()), *self.outs]:
            if a not in table:
                strides = tuple(a.strides[i] for i in (*c.outer, *c.dense, c.last[-1]))
                table[a] = Array(a.id, a.dtype, self.shape, strides, a.offset)
        sources = [s.rebind(table) for s in self.sources]
        with k.loop(0, rows, name="row") as r:
            place = unflatten(k, k.let(row + r), self.dense)
            for i, count in k.vector_loop(column, stop):  # out[row, vector i] = source[row, vector i]
                here = At((*lead, *place, i), len(self.shape) - 1, count)
                values = [s.at(k, here) for s in sources]
                for o, v in zip(self.outs, values):
                    store_at(k, table[o], here, v, self.stream)

    def squares(self, a: Array, tile: Buffer, starts: Sequence[Expr], rows: Expr, column: Expr) -> None:
        """Writes tile[row j, columns from `column` on] = a[starts of these columns + j] for all rows j."""
        k, src, whole = self.k, self.k.read(a), fits_registers(self.k, a.dtype)
        table = k.scratch("starts", int64, LANES)  # for loops over the columns

        def fill() -> None:
            for j, at in enumerate(starts):
                k.store(table, j, at)

        def start(i: Index) -> Index:
            return starts[i] if isinstance(i, int) else k.load(table, i)

        if not whole:
            fill()
        for r, count in k.vector_loop(0, rows):
            seldom = count is not None and not self.low
            if whole and seldom:
                fill()
            for at in starts if self.stream else ():
                k.prefetch(src, at + r + TILE_SIDE_ELEMENTS)
            read = lambda i, r=r, count=count: k.load(src, start(i) + r, LANES, count)
            transpose_square(k, a.dtype, read, lambda j, x, r=r: k.store(tile, (r + j) * self.side + column, x), seldom)

    @property
    def shape(self) -> tuple[Index, ...]:
        """Extents of the axes in the order of coordinates."""
        return (*self.outer, *self.dense, product(self.last))
