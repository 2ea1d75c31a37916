"""The register tile, and the loops around it: the strategy of every large product.

    for each piece = (group g, block of rows, part of the columns):    # shared among threads
        for chunk of k:                                                # about 256 terms, see `chunks.Chunks`
            for block of as many rows as are packed at a time:
                pack rows of a                                         # unless they are read where they lie
                for panel of columns of b:                             # packed before, by the piece, or read where it lies
                    for tile of rows:                                  # up to 14 rows by 1 to 4 vectors, in registers
                        acc[row][v] += a[row, k] * b[k, vector v]      # for all k of the chunk
                        out[tile] = acc, or out[tile] + acc after the first chunk

Packed rows lie in scratch memory with constant strides, whatever `a` looks like. A tile is stored from registers where all
extents are known; else it goes to the scratch buffer `sums`, from where as many rows and columns as there are go to out. No
choice made here changes a bit: each element of out has one accumulator for each chunk, and chunks are added in order.

Read next: `plans.py` (which operand is packed by whom), `tile.py` (which sizes), `packing.py` (the copies), `prefetch.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from tengen.base.dtype import bool_, int64
from tengen.base.record import record
from tengen.kernels.axes import unflatten
from tengen.kernels.contraction.border import BorderRows
from tengen.kernels.contraction.chunks import unrolled_loop
from tengen.kernels.contraction.formats import other_way
from tengen.kernels.contraction.halves import Halves
from tengen.kernels.contraction.matching import ROOM_OF_PANELS, TurnedRows, matched
from tengen.kernels.contraction.operands import along_k
from tengen.kernels.contraction.packing import Range, copy_panel, copy_panels, copy_rows, copy_tiles, pack_b, packed_axes
from tengen.kernels.contraction.plans import choose
from tengen.kernels.contraction.prefetch import CACHE_LINE_BYTES, Prefetch
from tengen.kernels.contraction.problem import Place, Problem, extents
from tengen.kernels.contraction.quads import Quads
from tengen.kernels.contraction.register_parts import PREFETCH_STRETCHES, Columns, Results, Rows, Work
from tengen.kernels.contraction.tile import MOST_PIECE_BLOCKS, Tile
from tengen.kernels.lowering import Array, KernelBuilder, Lowering
from tengen.loops.builder import as_expr
from tengen.loops.lang import LANES, Expr, Index, as_int, bitcast, cdiv, const, equal, lane, minimum, select, splat
from tengen.loops.statements import Buffer

STORED_ROWS = 4  # rows of a tile whose epilogue is computed side by side before they are stored
WAVE_PREFETCH_SHARES = 4  # of the part of b that all pieces read in the next chunk of waves: each piece prefetches one

Flag = Expr | bool  # a condition that the kernel evaluates, or one that is known while the kernel is written


def register_tile(lo: Lowering, p: Problem) -> None:
    """Launches the kernels of `p`: the packing of b, where that is chosen, then the contraction. With waves, one launch
    computes one chunk of all results, and the program repeats it for each chunk."""
    p = _in_quads_or_not(lo, p)
    t = choose(lo, p)
    if t.waves:
        with lo.loop(as_int(p.chunks.count) or 1) as chunk:
            return _Kernel(lo, p, t, None, wave=chunk).launch()
    if p.format.matched:
        return _Kernel(lo, p, t, *matched(lo, p, t)).launch()
    packed = pack_b(lo, p, t) if t.schedule.packed else None
    _Kernel(lo, p, t, packed).launch()


def _in_quads_or_not(lo: Lowering, p: Problem) -> Problem:
    """The problem in the format that multiplies two rows by two columns, where the target has one, and rows lie as it takes them; else in one
    that does not."""
    other = other_way(p.format)
    fits = along_k(p) and as_int(p.rows) != 1 and not p.biased
    there = p.format.quads or (other is not None and lo.target is not None and lo.target.computes(other.op))
    return replace(p, format=other) if other is not None and (fits and there) != p.format.quads else p


@record(frozen=True)
class _Panel:
    """A panel of b: the columns that a tile is multiplied with, for the positions of one chunk.

    Attributes:
        buffer, at: the panel lies in `buffer` from element `at` on. depth: its rows, positions of k (or groups of them).
        ks: the positions of k. column: its first column. following: where the next panel begins, if that may lie beyond L2 and
            has to be prefetched. turns: where the orders of its positions begin, if it has some.
    """

    buffer: Buffer
    at: Expr
    depth: Expr
    ks: Range
    column: Expr
    following: Expr | None = None
    turns: Expr | None = None


Lines = tuple[Callable[[Expr], Expr], Expr]  # cache lines to prefetch: (number of a line -> its element, how many there are)


class _Lanes:
    """The sums of a tile of some rows by some vectors of columns, one in each lane, and what adds to them."""

    def __init__(self, k: KernelBuilder, p: Problem, t: Tile, a: Rows, panel: _Panel, rows: int, vectors: int):
        self.k, self.p, self.a, self.vectors = k, p, a, range(vectors)
        begin: list[Expr] = [const(0, p.compute, LANES)] * vectors
        if p.biased:
            begin = [bitcast(k.load(panel.buffer, panel.at + (v * LANES - t.columns), LANES), p.compute) for v in self.vectors]
        self.acc = [[k.var(begin[v], name="acc") for v in self.vectors] for _ in range(rows)]

    def add(self, here: Expr, panel: Buffer, there: Expr) -> None:
        """Adds the products of a position of k: of rows from element `here` on, and of columns from element `there` of a panel on."""
        k, p = self.k, self.p
        load, multiply_add = k.load if self.a.buffer.dtype is p.packed else k.load_group, p.format.multiply_add
        bs = [k.load(panel, there + v * LANES, LANES) for v in self.vectors]  # bs[v] = b[k i, vector v], 16 lanes
        for j, line in enumerate(self.acc):
            x = splat(load(self.a.buffer, here + j * self.a.by_row))  # a[row j, k i] in all lanes
            for v in self.vectors:
                line[v].set(multiply_add(x, bs[v], line[v].value))  # acc[j][v] += a[row j, k i] * b[k i, vector v]

    def sums(self) -> list[list[Expr]]:
        """The vectors of each row."""
        return [[x.value for x in line] for line in self.acc]


class _Kernel:
    """Writes the kernel of one problem.

    Attributes:
        wave: the chunk that this launch computes, or None: all of them. work: how the work is cut. a, b: the operands as tiles
            read them. out: where results go. sums: scratch memory for a tile that is not stored from registers.
        border: what copies windows that reach over a border, or None. places: tables of the coordinates of the piece's rows,
            where m is several axes. prefetches: what is prefetched during the current chunk.
        turned: the rows of a tile in the order of a panel's positions; None: they are read as they lie.
    """

    def __init__(
        self, lo: Lowering, p: Problem, t: Tile, packed: Array | None, turns: Array | None = None, wave: Expr | None = None
    ):  # fmt: skip
        self.lo, self.p, self.t, self.wave = lo, p, t, wave
        self.out = Results.of(lo, p, t)
        self.k = lo.kernel(p.name)
        self.a = Rows.of(self.k, p, t)
        self.sums = self.k.scratch("sums", p.compute, t.rows * t.columns)
        self.work = Work.of(p, t, lo.target)
        self.b = Columns.of(self.k, p, t, self.work, packed, lo.target)
        self.border = None if p.border is None else BorderRows(self.k, p, t, p.border)
        self.turned = None if turns is None else TurnedRows(self.k, p, t.rows, turns)
        self.places: list[Buffer] = []
        self.prefetches: list[Prefetch] = []

    def launch(self) -> None:
        """Writes the kernel and launches it."""
        p, k = self.p, self.k
        parts, blocks = self.work.parts, self.work.blocks
        piece = k.split(p.groups * parts * blocks)
        self.group = k.let(piece // (parts * blocks))
        self.g = unflatten(k, self.group, extents(p.g))
        across = self.t.schedule.across
        self.number = k.let((piece // parts if across else piece) % blocks)  # the number of the block of rows
        self.tile, self.tile_stop = self.share(self.number, blocks, cdiv(p.rows, self.t.rows))
        self.first = k.let(self.t.row(self.tile))
        self.stop = k.let(minimum(p.rows, self.t.row(self.tile_stop)))
        panel, stop = self.share(piece if across else piece // blocks, parts, cdiv(p.columns, self.t.columns))
        self.column = k.let(panel * self.t.columns)
        self.column_stop = k.let(minimum(p.columns, stop * self.t.columns))
        self.a_base, self.b_base = (k.let(as_expr(p.base(x, self.g))) for x in "ab")
        self.fill_places()
        if self.border is not None and self.t.along_k:
            self.border.move(self.g, self.a_base, (self.first, self.stop))
        if self.work.one_chunk or self.wave is not None:
            self.chunk(const(0) if self.wave is None else self.wave)
        else:
            with k.loop(0, p.chunks.count, name="chunk") as c:
                self.chunk(c)
        self.lo.launch(k)

    def share(self, number: Expr, count: Expr, things: Index) -> Range:
        """The range of `things` (tiles or panels) that share `number` of `count` has; shares differ by at most one."""
        mine = self.k.let(number % count)
        return self.k.let(mine * things // count), self.k.let((mine + 1) * things // count)

    def fill_places(self) -> None:
        """Fills the tables with the coordinates of the piece's rows. They are counted up like an odometer: a division for each
        row would cost more than the row's store."""
        k, n = self.k, extents(self.out.m)
        if len(n) < 2:
            return
        self.places = [k.scratch("place", int64, self.t.block * MOST_PIECE_BLOCKS) for _ in n]
        now = [k.var(c) for c in unflatten(k, self.first, n)]
        with k.loop(self.first, self.stop) as r:
            for table, c in zip(self.places, now):
                k.store(table, r - self.first, c.value)
            carry: Expr = const(1)
            for c, d in reversed(list(zip(now, n))):
                up = k.let(c.value + carry)
                over = k.let(up >= d)
                c.set(select(over, const(0), up))
                carry = k.let(select(over, const(1), const(0)))

    def chunk(self, c: Expr) -> None:
        """One chunk of k: packs the columns of b if the piece does that at once, then goes through the blocks of rows."""
        p, t, k = self.p, self.t, self.k
        start, stop = (k.let(x) for x in p.chunks.bounds(c))
        if self.b.buffer is not None and not t.direct_b and not self.b.by_panel:
            copy_panels(k, p, t, self.b_base, (self.column, self.column_stop), (start, stop), self.b.buffer, self.work.depth)
        if self.border is not None and not t.along_k:
            self.border.move(self.g, self.a_base, (start, stop))
        if not t.brief:
            self.prefetches = self.next_chunk(stop) if self.wave is None else self.next_piece((start, stop))
        high = t.block // t.rows
        with k.loop(self.tile, self.tile_stop, high, name="block") as first:
            self.block(c, (first, k.let(minimum(self.tile_stop, first + high))), (start, stop))

    def block(self, c: Expr, tiles: Range, ks: Range) -> None:
        """One chunk of one block of tiles: packs their rows, then goes through the panels of columns."""
        p, t, k = self.p, self.t, self.k
        start, stop = ks
        rows = k.let(t.row(tiles[0])), k.let(minimum(self.stop, t.row(tiles[1])))
        begin: tuple[Expr, Expr] = rows[0], const(0)  # a row, and the element of `self.a.buffer` where it begins
        if self.border is not None:
            self.border.copy(rows, ks, self.a.buffer)
        elif t.direct:
            begin = const(0), k.let(self.a_base + start * (1 if t.along_k else self.a.by_k))
        elif t.tiled:
            copy_tiles(k, p, t, self.a_base, tiles, ks, self.a.buffer)
        else:
            copy_rows(k, p, t, self.a_base, rows, ks, self.a.buffer)
        with k.loop(self.column, self.column_stop, t.columns, name="column") as column:
            depth = k.let(p.depth(stop - start))
            if self.b.packed is None:
                assert self.b.buffer is not None
                at = (column - self.column) * self.work.depth
                if t.direct_b:
                    at = self.b_base + column + start * self.b.step
                elif self.b.by_panel:
                    at = const(0)
                    self.next_panel(column, ks)
                panel = _Panel(self.b.buffer, k.let(at), depth, ks, column)
            else:
                mine = packed_axes(p)
                g = [x for x, axis in zip(self.g, p.g) if axis in mine]
                room = 1 if self.turned is None else ROOM_OF_PANELS
                at = lambda column, start: as_expr(self.b.packed.index((*g, column // t.columns, start * room, 0)))
                later = column + t.columns
                turns = None if self.turned is None else k.let(as_expr(self.turned.array.index((*g, column // t.columns, c, 0))))
                here, behind = k.let(p.packed_at(c, start)), p.packed_at(c + 1, stop)
                following = select(later < self.column_stop, at(later, here), at(self.column, behind))
                panel = _Panel(k.read(self.b.packed), k.let(at(column, here)), depth, ks, column, k.let(following), turns)
            self.tiles(panel, tiles, begin, c)

    def next_panel(self, column: Expr, ks: Range) -> None:
        """Packs the panel of columns from `column` on, and plans the prefetch of the next panel, which happens while this one
        is used: the next columns of this chunk, else the first ones of the next chunk, else those of the next piece."""
        p, t, k = self.p, self.t, self.k
        copy_panel(k, p, t, self.b_base, column, ks, self.b.buffer, 0)
        beside = k.let(column + t.columns < self.column_stop)
        below = k.let(~beside & (ks[1] < p.chunks.positions))
        start = k.let(select(beside, ks[0], select(below, ks[1], const(0))))
        first = k.let(select(below, self.column, column + t.columns))
        columns, times = (first, first + t.columns), k.let((self.tile_stop - self.tile) * PREFETCH_STRETCHES)
        at, deep, across, down = self.b_base, p.chunks.longest, p.walk("n", "b"), p.walk("k", "b")
        if self.b.transposes:  # b is dense along k: cache lines run along k, and each column has its own
            ends = start, k.let(minimum(p.chunks.positions, start + deep))
            self.prefetches = [Prefetch.of(k, p.b, at, down, ends, across, first, t.columns, LANES, times)]
        else:
            self.prefetches = [Prefetch.of(k, p.b, at, across, columns, down, start, deep, t.columns, times)]

    def tiles(self, panel: _Panel, tiles: Range, begin: tuple[Expr, Expr], c: Expr) -> None:
        """Multiplies all tiles of a block with one panel. begin: a row, and the element of `self.a.buffer` where it begins."""
        t, k = self.t, self.k
        with k.loop(*tiles, name="tile") as tile:
            row = k.let(t.row(tile))
            left = k.let(minimum(self.stop, t.row(tile + 1)) - row)
            packed = (tile - tiles[0]) * t.tile_pitch(self.work.depth)
            base = k.let(packed if t.tiled else begin[1] + (row - begin[0]) * self.a.by_row)
            next_rows = None if self.a.prefetched or t.brief else self.next_rows(panel, tile, tiles)
            prefetch = partial(self.prefetch, row, panel, next_rows)
            multiply = partial(self.multiply, base=base, panel=panel, number=tile - tiles[0], prefetch=prefetch, row=row, c=c)
            self.lowest(t.small if t.tall is None else (t.rows - t.apart,), left, multiply, panel)
            if not self.out.straight:
                self.write(row, left, panel.column, c)

    def lowest(self, small: Sequence[int], left: Expr, multiply: Callable[[int, int], None], panel: _Panel) -> None:
        """Chooses, when the kernel runs, the lowest tile that holds the `left` rows: `small` heights first, then the full
        one."""
        if small:
            with self.k.if_(left <= small[0]):
                self.narrowest(small[0], self.t.exact, multiply, panel)
            with self.k.else_():
                self.lowest(small[1:], left, multiply, panel)
            return
        self.narrowest(self.t.rows, True, multiply, panel)

    def narrowest(self, rows: int, narrow: bool, multiply: Callable[[int, int], None], panel: _Panel) -> None:
        """The tile of `rows` rows. Where `narrow`, and the narrower tile holds the columns that are left, it is that one."""
        t = self.t
        if not (t.narrow and narrow):
            return multiply(rows, t.columns)
        with self.k.if_(panel.column + t.narrow >= self.p.columns):
            multiply(rows, t.narrow)
        with self.k.else_():
            multiply(rows, t.columns)

    def when(self, flag: Flag):
        """A block that runs where the flag holds; a flag that is known now makes no branch in the kernel."""
        return self.k.if_(flag if isinstance(flag, Expr) else const(flag, bool_))

    def otherwise(self, flag: Flag):
        """The other branch of a `when` just above."""
        return self.k.else_() if isinstance(flag, Expr) else self.when(not flag)

    def multiply(
        self, rows: int, columns: int, base: Expr, panel: _Panel, number: Expr, prefetch: Callable[[Expr, int], None],
        row: Expr, c: Expr,
    ) -> None:  # fmt: skip
        """The register tile: `rows` rows by `columns` columns, vectors of them or half of one, for the positions of one chunk.

        Args:
            base: where the tile's rows begin in `self.a.buffer`. number: of the tile in its block. row: its first row of out.
            c: the chunk. prefetch: (i, vectors) -> the prefetches that go before the i-th part of the loop over k.
        The result is stored to out where `straight` holds, else left in `self.sums` as [row][column].
        """
        p, t, k, each, vectors = self.p, self.t, self.k, 2 if self.p.format.quads else 1, -(-columns // LANES)
        sums: Quads | Halves | _Lanes
        a, whole_depth = self.a, panel.depth
        if self.turned is not None and panel.turns is not None:
            whole_depth = self.turned.fill(rows, a, base, panel.depth, panel.turns)
            a, base = self.turned.rows, const(0)
        if p.format.quads:
            sums = Quads(k, p, a, rows, vectors)
        elif t.half or columns < LANES:
            sums = Halves(k, p, a, rows, vectors)
        else:
            sums = _Lanes(k, p, t, a, panel, rows, vectors)
        # Cache lines of the next panel that this tile prefetches for each position of k; 0 where it prefetches its share between the parts.
        shared = not t.brief and self.work.high > vectors
        lines = 0 if shared or panel.following is None else -(-vectors // max(1, self.work.high))
        if panel.following is not None and lines:  # the first tiles of the block prefetch all of the next panel
            prefetches = k.let(panel.following + minimum(number, vectors // lines - 1) * panel.depth * (LANES * lines))

        def step(i: Expr) -> None:
            for j in range(lines * each):
                k.prefetch(panel.buffer, prefetches + (i * (lines * each) + j) * LANES)
            here, there = k.let(base + i * (a.by_k * each)), k.let(panel.at + i * (self.b.step * each))
            sums.add(here, panel.buffer, there)

        def positions(start: Index, stop: Expr) -> None:
            start, stop = (start, stop) if each == 1 else (k.let(as_expr(start // each)), k.let(stop // each))
            whole = p.format.terms == 1 and (as_int(p.chunks.last) or 1) % t.schedule.unroll == 0
            unrolled_loop(k, start, stop, t.schedule.unroll, step, "k", whole)

        if t.brief:
            positions(0, panel.depth)
        else:
            with k.loop(0, panel.depth, self.work.stretch, name="part") as first:  # some prefetches, then as many positions
                prefetch(k.let(first // self.work.stretch), vectors)
                if shared and panel.following is not None:
                    self.prefetch_share(panel.buffer, k.let(panel.following + first * (vectors * LANES)), number, vectors)
                positions(first, k.let(minimum(panel.depth, first + self.work.stretch)))
        if self.turned is not None:
            positions(panel.depth, whole_depth)
        found = sums.sums()
        if self.out.straight:
            return self.by_chunk(c, partial(self.write_straight, row, panel.column, columns, found))
        for j in range(rows):
            for v in range(vectors):
                k.store(self.sums, j * t.columns + v * LANES, found[j][v])

    # ---- prefetches: a few in each part of a tile's loop over k, so that the tile's own loads do not queue behind them

    def prefetch(self, row: Expr, panel: _Panel, next_rows: Callable[[Expr], Lines] | None, i: Expr, vectors: int) -> None:
        """The prefetches of the i-th part of a tile: some of the rows of out that the tile will add to or store, what the
        epilogue reads there, and a share of the operands that are used next."""
        p, k = self.p, self.k
        share = min(self.t.rows, -(-self.t.rows * self.work.stretch // self.work.depth)) if self.out.straight else 1
        for j in range(share if p.n else 0):
            number = k.let(minimum(row + minimum(i * share + j, self.t.rows - 1), self.stop - 1))
            coordinates = self.coordinates(number)
            for v in range(vectors):
                where = self.place(number, coordinates, panel.column + v * LANES, LANES)
                where.prefetch(k, v, self.out.partial, not self.out.stream)
        if next_rows is not None:
            line, count = next_rows(i)
            with k.loop(0, count, name="line") as j:
                k.prefetch(k.read(p.a), line(j))
        for x in self.prefetches:
            x.issue(k)

    def prefetch_share(self, buffer: Buffer, at: Expr, number: Expr, vectors: int) -> None:
        """The prefetches of tile `number` of a block of many: its share of the next panel's lines that lie from element `at` on, for as many
        positions as a part has. They go between the parts, since each of them takes the place of a load, and every line is fetched once: one
        for each position in the loop's body of each tile took up to a tenth of the time of tiles of six rows by one vector."""
        lines = self.work.stretch * vectors
        each = -(-lines // self.work.high)
        first = self.k.let(at + minimum(number * each, lines - each) * LANES)
        for j in range(each):
            self.k.prefetch(buffer, first + j * LANES)

    def next_chunk(self, stop: Expr) -> list[Prefetch]:
        """What is prefetched while the piece computes the chunk that ends at position `stop`: its part of b in the next chunk,
        if b was not packed before, and its rows of `a` there, if they are read along m. Where each group has one chunk, the
        next chunk is that of the next group."""
        p, t, k = self.p, self.t, self.k
        if self.work.one_chunk and not (p.g and t.direct_b):
            return []
        bases, start = (self.a_base, self.b_base), const(0)
        if self.work.one_chunk:
            g = unflatten(k, k.let(self.group + 1), extents(p.g))
            bases = tuple(k.let(as_expr(p.base(x, g))) for x in "ab")
        else:
            start = k.let(select(stop < p.chunks.positions, stop, const(0)))
        times = k.let((self.tile_stop - self.tile) * cdiv(self.column_stop - self.column, t.columns) * PREFETCH_STRETCHES)
        deep, found = p.chunks.longest, []
        if self.a.prefetched:
            high = t.rows if t.tall is None else 1
            rows = self.first, self.stop
            found.append(Prefetch.of(k, p.a, bases[0], p.walk("m", "a"), rows, p.walk("k", "a"), start, deep, high, times))
        if self.b.prefetched:
            columns = self.column, self.column_stop
            found.append(
                Prefetch.of(k, p.b, bases[1], p.walk("n", "b"), columns, p.walk("k", "b"), start, deep, t.columns, times)
            )
        return found

    def next_piece(self, ks: Range) -> list[Prefetch]:
        """With waves: what is prefetched while a piece computes its one chunk. Of `a`, the rows of the next piece; of b, one of
        `WAVE_PREFETCH_SHARES` shares of the next chunk, which all pieces read."""
        p, t, k = self.p, self.t, self.k
        walk, tiles, deep = p.walk("k", "a"), as_expr(cdiv(p.rows, t.rows)), p.chunks.longest
        times = k.let((self.tile_stop - self.tile) * cdiv(self.column_stop - self.column, t.columns) * PREFETCH_STRETCHES)
        found = []
        if self.a.prefetched:
            last = k.let(self.tile_stop >= tiles)
            tile, start = k.let(select(last, const(0), self.tile_stop)), k.let(select(last, ks[1], ks[0]))
            rows = k.let(t.row(tile)), k.let(t.row(minimum(tile + (self.tile_stop - self.tile), tiles)))
            high = t.rows if t.tall is None else 1
            found.append(Prefetch.of(k, p.a, self.a_base, p.walk("m", "a"), rows, walk, start, deep, high, times))
        part = -(-deep // WAVE_PREFETCH_SHARES)
        columns, start = (self.column, self.column_stop), k.let(ks[1] + self.number % WAVE_PREFETCH_SHARES * part)
        walk = p.walk("k", "b")
        return [*found, Prefetch.of(k, p.b, self.b_base, p.walk("n", "b"), columns, walk, start, part, t.columns, times)]

    def next_rows(self, panel: _Panel, tile: Expr, tiles: Range) -> Callable[[Expr], Lines] | None:
        """Prefetches for the rows of `a` that are packed next: i -> the lines of the i-th part of this tile. Each tile, on each
        panel, prefetches a share. The next rows are those of the next block, after the last block those of the next chunk,
        after the last chunk those of the next piece. None where rows are not dense, or where finding them takes divisions."""
        p, t, k = self.p, self.t, self.k
        m, kk = p.walk("m", "a"), p.walk("k", "a")
        inner = kk if t.along_k else m
        several = m.extents[1:] + kk.extents[1:]
        if as_int(inner.step) != 1 or (several and not t.along_k) or None in map(as_int, several):
            return None
        high, each = t.block // t.rows, CACHE_LINE_BYTES // p.a.dtype.size
        first, start = k.let(tile + high), panel.ks[0]
        if not self.work.one_chunk:
            within, ended = k.let(first < self.tile_stop), k.let(panel.ks[1] >= p.chunks.positions)
            start = select(within, start, select(ended, const(0), panel.ks[1]))
            first = k.let(select(within | ended, first, self.tile + (tile - tiles[0])))
        panels, number = cdiv(self.column_stop - self.column, t.columns), (panel.column - self.column) // t.columns
        if t.along_k:
            share = k.let(as_expr(cdiv(t.rows, panels)))
            row, start = k.let(t.row(first) + number * share), k.let(start)
            lines = -(-p.chunks.longest // each)

            def along_k(i: Expr) -> Lines:
                at = k.let(self.a_base + kk.at(k, start + i * each))
                return lambda j: at + m.at(k, row + j), k.let(select(i < lines, share, const(0)))

            return along_k
        number = k.let(number * high + (tile - tiles[0]))
        at = k.let(self.a_base + t.row(first - (tile - tiles[0])) + number * each + start * kk.step)
        positions = self.work.stretch * p.format.group
        count = k.let(select(number < t.block // each + 1, const(positions), const(0)))
        return lambda i: (lambda j: at + (i * positions + j) * kk.step, count)

    # ---- storing a tile

    def write(self, r: Expr, left: Expr, column: Expr, c: Expr) -> None:
        """Stores the tile that lies in `sums`: as many of its rows as are `left`, and of its columns as there are, added to the
        sums of earlier chunks. The vectors of a row take turns in one loop, so that each way to store one is written once."""
        p, t, k, one = self.p, self.t, self.k, self.work.one_chunk
        n, add, last = as_int(p.columns), False if one else k.let(~equal(c, 0)), True if one else k.let(equal(c, p.chunks.count - 1))
        stop = const(t.columns) if n is not None and n % t.columns == 0 else k.let(minimum(p.columns - column, t.columns))
        with k.loop(0, left, name="row") as j:
            number = k.let(r + j)
            row = self.coordinates(number)
            with k.loop(0, stop, LANES, name="v") as v:
                value = k.load(self.sums, j * t.columns + v, LANES)
                whole: Flag = True if as_int(stop) else False if n is not None and n < LANES else v + LANES <= stop
                with self.when(whole):
                    self.write_vector(value, number, row, column + v, LANES, add, last)
                with self.otherwise(whole):
                    self.write_vector(value, number, row, column + v, stop - v, add, last)

    def by_chunk(self, c: Expr, write: Callable[[Flag, bool], None]) -> None:
        """Calls write(add, last) for chunk `c`, in branches where the kernel has to find out: `add`, whether earlier chunks
        have left sums to add to; `last`, whether this is the last chunk."""
        k, count = self.k, as_int(self.p.chunks.count)
        if self.work.one_chunk:
            return write(False, True)
        first = equal(c, 0)
        with k.if_(equal(c, self.p.chunks.count - 1)):
            write(True if count else ~first, True)
        with k.else_():
            if count == 2:
                return write(False, False)
            with k.if_(first):
                write(False, False)
            with k.else_():
                write(True, False)

    def write_straight(self, r: Expr, column: Expr, wide: int, sums: Sequence[Sequence[Expr]], add: Flag, last: bool) -> None:
        """Stores a whole tile of `wide` columns from registers: sums[row][v] are its vectors. `add`, `last`: see `by_chunk`."""
        p, t, k = self.p, self.t, self.k
        n = as_int(p.columns) or 0
        rest = n % t.columns

        def store(columns: int) -> None:
            for first in range(0, len(sums), STORED_ROWS):
                places, makers = [], []
                for j in range(first, min(len(sums), first + STORED_ROWS)):
                    number = k.let(r + j)
                    row = self.coordinates(number)
                    for v, value in enumerate(sums[j]):
                        if v * LANES < columns:
                            places.append(self.place(number, row, column + v * LANES, columns - v * LANES))
                            makers.append(partial(self.made, places[-1], value, add, last))
                for where, value in zip(places, k.abreast(makers)):
                    if last:
                        where.put(k, value, self.out.stream)
                    else:
                        where.store(k, value, self.out.partial)

        if not rest or (t.narrow and wide == t.columns):
            store(t.columns)
        elif n < t.columns or wide < t.columns:
            store(rest)
        else:
            with k.if_(column + t.columns <= n):
                store(t.columns)
            with k.else_():
                store(rest)

    def made(self, where: Place, value: Expr, add: Flag, last: bool) -> Expr:
        """What is stored for a vector of sums: with those of earlier chunks where `add`, through the epilogue where `last`."""
        value = self.k.let(where.load(self.k, self.out.partial) + value) if add else value
        return where.made(self.k, value) if last else value

    def place(self, number: Expr, row: Sequence[Index], column: Expr, left: Index) -> Place:
        """The place in out of a vector of row `number` that begins at `column`, of which `left` columns exist; a scalar where
        the problem has no n. row: the row's coordinates."""
        p = self.p
        columns = [column] if p.n else []
        whole = as_int(left) is not None and left >= LANES
        vec, count = p.n[0] if p.n else None, None if whole else as_expr(left)
        stored = row if self.out.stored is self.out.m else [number] * len(self.out.stored)
        known_as = (*p.g, *self.out.m, *p.n), (*self.g, *row, *columns)
        return p.where(self.out.axes, (*self.g, *stored, *columns), vec, count, known_as)

    def coordinates(self, r: Expr) -> list[Index]:
        """The coordinates of row `r` along the axes of m."""
        if not self.places:
            return [self.k.let(r)] * len(self.out.m)
        return [self.k.load(table, r - self.first) for table in self.places]

    def write_vector(
        self, value: Expr, number: Expr, row: Sequence[Index], column: Expr, left: Index, add: Flag, last: Flag
    ) -> None:
        """Stores one vector of row `number`, or one scalar; arguments as of `place` and `write_rows`."""
        k = self.k
        if not self.p.n:
            value = lane(value, 0)
        where = self.place(number, row, column, left)
        if add is not False:
            total = k.var(value)
            with self.when(add):
                total.set(where.load(k, self.out.partial) + value)
            value = total.value
        with self.when(last):
            where.finish(k, value, self.out.stream)
        if last is not True:
            with self.otherwise(last):
                where.store(k, value, self.out.partial)
