"""The register tile: acc[m][n] += a(m, k) * b(k, n), and the loops around it.

A piece is some rows by some columns of one group. It goes through the chunks of k; for each it packs its rows of `a` into
scratch memory, where they have constant strides whatever `a` looks like, and runs tiles over panels of b's columns. A tile's
rows are added to what earlier chunks gave, and stored: from registers where extents are known, else from scratch memory. Nothing
of this changes a bit: each element of out has one accumulator a chunk.

Read next: `tile.py` (sizes), `packing.py` (copies).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from tengen.base.dtype import bfloat16, bool_, int64
from tengen.kernels.ahead import LINE, Ahead
from tengen.kernels.axes import streams, unflatten
from tengen.kernels.border import BorderRows
from tengen.kernels.chunks import unrolled_loop
from tengen.kernels.lowering import Array, Lowering
from tengen.kernels.packing import Range, copy_panel, copy_panels, copy_rows, copy_tiles, pack_b, packed_axes
from tengen.kernels.problem import Place, Problem, extents, multiply_add, partial_sums
from tengen.kernels.tile import MOST_BLOCKS, Tile, along_sum, choose, most_columns, pieces
from tengen.loops.builder import as_expr
from tengen.loops.lang import LANES, Buffer, Expr, Index, as_int, cdiv, const, equal, lane, minimum, select, splat

PARTS = 16  # of a tile's time, with something to fetch early in each: not fewer than a tile has rows, or a chunk lines
TOGETHER = 4  # rows of a tile that are made together, and then stored
FEWEST = 4  # positions of k in a part
SHARES = 4  # of what all pieces of a chunk read in the next one: each fetches one of them

Flag = Expr | bool  # decided when the kernel runs, or now


def register_tile(lo: Lowering, p: Problem) -> None:
    """Launches what computes `p`: packing of b if that pays, then the contraction."""
    t = choose(lo, p)
    if t.waves:
        with lo.repeat(as_int(p.chunks.count) or 1) as chunk:
            return _Kernel(lo, p, t, None, chunk).launch()
    packed = pack_b(lo, p, t) if t.schedule.packed else None
    _Kernel(lo, p, t, packed).launch()


@dataclass(frozen=True)
class _Panel:
    """Columns of b ready for the tile: where they are, how deep, which positions of k and which columns they are; where those are
    that come next, if they may have to come from far."""

    buffer: Buffer
    at: Expr
    depth: Expr
    ks: Range
    column: Expr
    following: Expr | None = None


Lines = tuple[Callable[[Expr], Expr], Expr]  # of memory that is fetched early: where each is, and how many there are


class _Kernel:
    """Writes the kernel of one problem."""

    def __init__(self, lo: Lowering, p: Problem, t: Tile, packed: Array | None, wave: Expr | None = None):
        self.lo, self.p, self.t, self.packed, self.wave = lo, p, t, packed, wave
        self.m = p.stored_rows
        flat = replace(p, epilogue=None).stored_rows  # rows at one distance are stored by their number
        self.stored = flat if len(flat) < 2 else self.m
        self.axes = (*p.g, *self.stored, *p.n)
        self.partial = partial_sums(lo, p, self.axes)
        self.one_chunk = as_int(p.chunks.count) == 1
        self.k = lo.kernel(p.name)
        deep = t.block if t.along_k else as_int(p.depth(p.chunks.longest)) or 1
        self.element = bfloat16 if p.pairs and t.along_k else p.packed  # of rows: dense along k, pairs are read where they lie
        size = t.schedule.high * t.apart(deep) if t.tiled else deep * t.pitch + LANES
        self.rows = self.k.read(p.a) if t.direct else self.k.scratch("rows", self.element, size)
        self.by_row, self.by_k = (t.pitch, 1 + p.pairs) if t.along_k else (1, t.pitch)
        if t.direct:
            self.by_row = as_int(p.walk("m", "a").step) or 0
            self.by_k = self.by_k if t.along_k else as_int(p.walk("k", "a").step) or 0
        self.sums = self.k.scratch("sums", p.compute, t.rows * t.columns)
        self.parts, self.blocks = pieces(p, t, lo.target)
        self.high = min(t.schedule.high, as_int(cdiv(cdiv(p.rows, t.rows), self.blocks)) or t.schedule.high)  # tiles of a block
        self.depth = as_int(p.depth(p.chunks.longest)) or 1  # of a panel that the piece packs itself: all of its panels at once
        self.panels = as_int(cdiv(cdiv(p.columns, t.columns), self.parts)) or most_columns(p, t, lo.target) // t.columns
        n = p.walk("n", "b")
        dense_b = len(n.extents) == 1 and as_int(n.step) == 1
        self.turns = packed is None and along_sum(p)
        self.by_panel = packed is None and (dense_b or self.turns) and self._one_block()
        if self.by_panel:
            self.panels = 1
        self.panel = None
        if t.direct_b:
            self.panel = self.k.read(p.b)
        elif packed is None:
            self.panel = self.k.scratch("panel", p.packed, self.depth * t.columns * self.panels)
        self.panel_step = as_int(p.walk("k", "b").step) or 0 if t.direct_b else t.columns  # from one position of k to the next
        m = p.walk("m", "a")
        dense = not t.along_k and None not in map(as_int, m.extents[1:]) and as_int(m.step) == 1
        self.a_ahead = dense and (not self.one_chunk or (t.direct and t.direct_b and len(p.g) > 0))
        several = not self.one_chunk and packed is None and None not in map(as_int, (p.rows, p.columns, p.chunks.positions))
        self.b_ahead = t.direct_b or (several and dense_b and not self.by_panel)
        self.ahead: list[Ahead] = []
        self.border = None if p.border is None else BorderRows(self.k, p, t, p.border)
        self.part = max(FEWEST, -(-self.depth // PARTS))  # positions of a panel between what is fetched early
        self.straight = t.exact and bool(p.n) and as_int(p.columns) is not None and as_int(p.chunks.count) is not None
        self.stream = self.straight and self.one_chunk and (as_int(p.columns) or 0) % LANES == 0 and streams([p.out])
        self.places: list[Buffer] = []  # coordinates of the piece's rows, where they are not simply counted

    def _one_block(self) -> bool:
        """Whether a piece that packs its columns of b has one block of rows, read where they lie, or so few that all are its: then it
        needs one panel at a time, which stays in the first cache."""
        p, t = self.p, self.t
        tiles = as_int(cdiv(cdiv(p.rows, t.rows), self.blocks))
        affine = len(p.walk("k", "b").extents) == 1
        whole = (t.direct and t.along_k) or self.turns
        return whole and not t.direct_b and affine and tiles is not None and tiles <= t.schedule.high

    def launch(self) -> None:
        """Writes and launches it."""
        p, k = self.p, self.k
        parts, blocks = self.parts, self.blocks
        piece = k.split(p.groups * parts * blocks)
        self.group = k.let(piece // (parts * blocks))
        self.g = unflatten(k, self.group, extents(p.g))
        across = self.t.schedule.across
        self.number = k.let((piece // parts if across else piece) % blocks)  # of the block of rows
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
        if self.one_chunk or self.wave is not None:
            self.chunk(const(0) if self.wave is None else self.wave)
        else:
            with k.loop(0, p.chunks.count, name="chunk") as c:
                self.chunk(c)
        self.lo.launch(k)

    def share(self, number: Expr, count: Expr, things: Index) -> Range:
        """Of so many tiles or panels those of a piece: all pieces have as many, or one more."""
        mine = self.k.let(number % count)
        return self.k.let(mine * things // count), self.k.let((mine + 1) * things // count)

    def fill_places(self) -> None:
        """Fills the tables of the rows' coordinates, counting as an odometer does."""
        k, n = self.k, extents(self.m)
        if len(n) < 2:
            return
        self.places = [k.scratch("place", int64, self.t.block * MOST_BLOCKS) for _ in n]
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
        """One chunk of k: pack the rows, then panel after panel."""
        p, t, k = self.p, self.t, self.k
        start, stop = (k.let(x) for x in p.chunks.bounds(c))
        if self.panel is not None and not t.direct_b and not self.by_panel:
            copy_panels(k, p, t, self.b_base, (self.column, self.column_stop), (start, stop), self.panel, self.depth)
        if self.border is not None and not t.along_k:
            self.border.move(self.g, self.a_base, (start, stop))
        self.ahead = self.chunk_to_come(stop) if self.wave is None else self.piece_to_come((start, stop))
        high = t.block // t.rows
        with k.loop(self.tile, self.tile_stop, high, name="block") as first:
            self.block(c, (first, k.let(minimum(self.tile_stop, first + high))), (start, stop))

    def block(self, c: Expr, tiles: Range, ks: Range) -> None:
        """One chunk of as many tiles as are packed at a time."""
        p, t, k = self.p, self.t, self.k
        start, stop = ks
        rows = k.let(t.row(tiles[0])), k.let(minimum(self.stop, t.row(tiles[1])))
        begin: tuple[Expr, Expr] = rows[0], const(0)  # the first row that is read, and where
        if self.border is not None:
            self.border.copy(rows, ks, self.rows)
        elif t.direct:
            begin = const(0), k.let(self.a_base + start * (1 if t.along_k else self.by_k))
        elif t.tiled:
            copy_tiles(k, p, t, self.a_base, tiles, ks, self.rows)
        else:
            copy_rows(k, p, t, self.a_base, rows, ks, self.rows)
        with k.loop(self.column, self.column_stop, t.columns, name="column") as column:
            depth = k.let(p.depth(stop - start))
            if self.packed is None:
                assert self.panel is not None
                at = (column - self.column) * self.depth
                if t.direct_b:
                    at = self.b_base + column + start * self.panel_step
                elif self.by_panel:
                    at = const(0)
                    self.next_panel(column, ks)
                panel = _Panel(self.panel, k.let(at), depth, ks, column)
            else:
                mine = packed_axes(p)
                g = [x for x, axis in zip(self.g, p.g) if axis in mine]
                at = lambda column, start: as_expr(self.packed.index((*g, column // t.columns, start, 0)))
                later = column + t.columns
                here, behind = k.let(p.packed_at(c, start)), p.packed_at(c + 1, stop)
                following = select(later < self.column_stop, at(later, here), at(self.column, behind))
                panel = _Panel(k.read(self.packed), k.let(at(column, here)), depth, ks, column, k.let(following))
            self.tiles(panel, tiles, begin, c)

    def next_panel(self, column: Expr, ks: Range) -> None:
        """Packs the panel of columns from `column` on; that which comes next, of the chunk, of the next one, or of the piece that
        follows, is fetched while this one is used."""
        p, t, k = self.p, self.t, self.k
        copy_panel(k, p, t, self.b_base, column, ks, self.panel, 0)
        beside = k.let(column + t.columns < self.column_stop)
        below = k.let(~beside & (ks[1] < p.chunks.positions))
        start = k.let(select(beside, ks[0], select(below, ks[1], const(0))))
        first = k.let(select(below, self.column, column + t.columns))
        columns, times = (first, first + t.columns), k.let((self.tile_stop - self.tile) * PARTS)
        at, deep, across, down = self.b_base, p.chunks.longest, p.walk("n", "b"), p.walk("k", "b")
        if self.turns:  # lines lie along the sum, one below the other for each column
            ends = start, k.let(minimum(p.chunks.positions, start + deep))
            self.ahead = [Ahead.of(k, p.b, at, down, ends, across, first, t.columns, LANES, times)]
        else:
            self.ahead = [Ahead.of(k, p.b, at, across, columns, down, start, deep, t.columns, times)]

    def tiles(self, panel: _Panel, tiles: Range, begin: tuple[Expr, Expr], c: Expr) -> None:
        """All tiles of a block on one panel. begin: a row, and where it is read from."""
        t, k = self.t, self.k
        with k.loop(*tiles, name="tile") as tile:
            row = k.let(t.row(tile))
            left = k.let(minimum(self.stop, t.row(tile + 1)) - row)
            base = k.let((tile - tiles[0]) * t.apart(self.depth) if t.tiled else begin[1] + (row - begin[0]) * self.by_row)
            early = partial(self.early, row, tile, panel, None if self.a_ahead else self.rows_to_come(panel, tile, tiles))
            multiply = partial(self.multiply, base=base, panel=panel, number=tile - tiles[0], early=early, row=row, c=c)
            self.lowest(t.small if t.tall is None else (t.rows - 1,), left, multiply, panel)
            if not self.straight:
                self.write(row, left, panel.column, c)

    def lowest(self, small: Sequence[int], left: Expr, multiply: Callable[[int, int], None], panel: _Panel) -> None:
        """The lowest of the tiles that holds the rows which are left; the small ones are tried in order."""
        if small:
            with self.k.if_(left <= small[0]):
                self.narrowest(small[0], self.t.exact, multiply, panel)
            with self.k.else_():
                self.lowest(small[1:], left, multiply, panel)
            return
        self.narrowest(self.t.rows, True, multiply, panel)

    def narrowest(self, rows: int, narrow: bool, multiply: Callable[[int, int], None], panel: _Panel) -> None:
        """The tile of so many rows: where `narrow` and one vector holds the columns that are left, of one vector."""
        t = self.t
        last: Flag = panel.column + LANES >= self.p.columns if t.narrow and narrow else False
        with self.when(last):
            multiply(rows, 1)
        with self.otherwise(last):
            multiply(rows, t.vectors)

    def when(self, flag: Flag):
        """Runs the block where the flag holds; what is known now makes no branch."""
        return self.k.if_(flag if isinstance(flag, Expr) else const(flag, bool_))

    def otherwise(self, flag: Flag):
        """The other branch of a `when` just above."""
        return self.k.else_() if isinstance(flag, Expr) else self.when(not flag)

    def multiply(
        self, rows: int, vectors: int, base: Expr, panel: _Panel, number: Expr, early: Callable[[Expr, int], None], row: Expr,
        c: Expr,
    ) -> None:  # fmt: skip
        """The register tile whose rows begin at `base`, tile `number` of the block, of chunk `c`: stored from row `row` of out on, or
        left in `sums`. early(i, vectors) fetches what is wanted later, in the i-th part of the tile's time."""
        p, t, k = self.p, self.t, self.k
        acc = [[k.var(const(0, p.compute, LANES), name="acc") for _ in range(vectors)] for _ in range(rows)]
        lines = -(-vectors // max(1, self.high)) if panel.following is not None else 0  # of what follows, for each position
        if panel.following is not None:  # the first tiles fetch it all
            ahead = k.let(panel.following + minimum(number, vectors // lines - 1) * panel.depth * (LANES * lines))

        load = k.load_pairs if self.rows.dtype is bfloat16 and p.pairs else k.load

        def step(i: Expr) -> None:
            for j in range(lines):
                k.prefetch(panel.buffer, ahead + (i * lines + j) * LANES)
            here, there = k.let(base + i * self.by_k), k.let(panel.at + i * self.panel_step)
            bs = [k.load(panel.buffer, there + v * LANES, LANES) for v in range(vectors)]
            for j in range(rows):
                x = splat(load(self.rows, here + j * self.by_row))
                for v in range(vectors):
                    acc[j][v].set(multiply_add(x, bs[v], acc[j][v].value))

        with k.loop(0, panel.depth, self.part, name="part") as first:
            early(k.let(first // self.part), vectors)
            unrolled_loop(k, first, k.let(minimum(panel.depth, first + self.part)), t.schedule.unroll, step, "k")
        if self.straight:
            return self.by_chunk(c, partial(self.write_straight, row, panel.column, [[x.value for x in line] for line in acc]))
        for j in range(rows):
            for v in range(vectors):
                k.store(self.sums, j * t.columns + v * LANES, acc[j][v].value)

    # ---- what a tile fetches early: a little at a time, so that its own loads need not wait

    def early(
        self, row: Expr, tile: Expr, panel: _Panel, to_come: Callable[[Expr], Lines] | None, i: Expr, vectors: int
    ) -> None:
        """The i-th share of what is fetched while a tile is computed: some of its rows of out, and rows of operands to come."""
        p, k = self.p, self.k
        share = -(-self.t.rows * self.part // self.depth) if self.straight else 1
        for j in range(share if p.n else 0):
            number = k.let(minimum(row + minimum(i * share + j, self.t.rows - 1), self.stop - 1))
            coordinates = self.coordinates(number)
            for v in range(vectors):
                where = self.place(number, coordinates, panel.column + v * LANES, LANES)
                if not self.stream:
                    k.prefetch(*where.place(k, self.partial))
                where.fetch(k)
        if to_come is not None:
            line, count = to_come(i)
            with k.loop(0, count, name="line") as j:
                k.prefetch(k.read(p.a), line(j))
        if self.ahead:
            panels: Index = 1 if self.by_panel else cdiv(self.column_stop - self.column, self.t.columns)
            number = 0 if self.by_panel else (panel.column - self.column) // self.t.columns
            time = k.let(((tile - self.tile) * panels + number) * PARTS + i)
            for x in self.ahead:
                x.fetch(k, time)

    def chunk_to_come(self, stop: Expr) -> list[Ahead]:
        """What is fetched while the piece goes through a chunk that ends at `stop`: of the next one (or of the next group's, where
        each has one) the piece's part of b, if it is not packed before, and of `a`, if it is read along m."""
        p, t, k = self.p, self.t, self.k
        if self.one_chunk and not (p.g and t.direct_b):
            return []
        bases, start = (self.a_base, self.b_base), const(0)
        if self.one_chunk:
            g = unflatten(k, k.let(self.group + 1), extents(p.g))
            bases = tuple(k.let(as_expr(p.base(x, g))) for x in "ab")
        else:
            start = k.let(select(stop < p.chunks.positions, stop, const(0)))
        times = k.let((self.tile_stop - self.tile) * cdiv(self.column_stop - self.column, t.columns) * PARTS)
        deep, found = p.chunks.longest, []
        if self.a_ahead:
            high = t.rows if t.tall is None else 1
            rows = self.first, self.stop
            found.append(Ahead.of(k, p.a, bases[0], p.walk("m", "a"), rows, p.walk("k", "a"), start, deep, high, times))
        if self.b_ahead:
            columns = self.column, self.column_stop
            found.append(Ahead.of(k, p.b, bases[1], p.walk("n", "b"), columns, p.walk("k", "b"), start, deep, t.columns, times))
        return found

    def piece_to_come(self, ks: Range) -> list[Ahead]:
        """What is fetched while a piece of one chunk is computed: rows of `a` of the next piece, and a part of b in the next chunk,
        of which all pieces read all."""
        p, t, k = self.p, self.t, self.k
        walk, tiles, deep = p.walk("k", "a"), as_expr(cdiv(p.rows, t.rows)), p.chunks.longest
        times = k.let((self.tile_stop - self.tile) * cdiv(self.column_stop - self.column, t.columns) * PARTS)
        found = []
        if self.a_ahead:
            last = k.let(self.tile_stop >= tiles)
            tile, start = k.let(select(last, const(0), self.tile_stop)), k.let(select(last, ks[1], ks[0]))
            rows = k.let(t.row(tile)), k.let(t.row(minimum(tile + (self.tile_stop - self.tile), tiles)))
            high = t.rows if t.tall is None else 1
            found.append(Ahead.of(k, p.a, self.a_base, p.walk("m", "a"), rows, walk, start, deep, high, times))
        part = -(-deep // SHARES)
        columns, start = (self.column, self.column_stop), k.let(ks[1] + self.number % SHARES * part)
        walk = p.walk("k", "b")
        return [*found, Ahead.of(k, p.b, self.b_base, p.walk("n", "b"), columns, walk, start, part, t.columns, times)]

    def rows_to_come(self, panel: _Panel, tile: Expr, tiles: Range) -> Callable[[Expr], Lines] | None:
        """What a tile fetches of the rows of `a` in the block that comes next: each tile on each panel a share of them. Of a piece
        they are the next rows, or the first ones in the next chunk; then those of the piece that follows it. None where they
        are not dense, or where they lie takes divisions to find."""
        p, t, k = self.p, self.t, self.k
        m, kk = p.walk("m", "a"), p.walk("k", "a")
        inner = kk if t.along_k else m
        several = m.extents[1:] + kk.extents[1:]
        if as_int(inner.step) != 1 or (several and not t.along_k) or None in map(as_int, several):
            return None
        high, each = t.block // t.rows, LINE // p.a.dtype.size
        first, start = k.let(tile + high), panel.ks[0]
        if not self.one_chunk:
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
        positions = self.part * (1 + p.pairs)
        count = k.let(select(number < t.block // each + 1, const(positions), const(0)))
        return lambda i: (lambda j: at + (i * positions + j) * kk.step, count)

    # ---- from `sums` to out

    def write(self, r: Expr, left: Expr, column: Expr, c: Expr) -> None:
        """Adds the tile to what earlier chunks gave, and stores it."""
        p, t, k = self.p, self.t, self.k
        n, first = as_int(p.columns), equal(c, 0)
        last = equal(c, p.chunks.count - 1)

        def whole() -> None:
            self.by_chunk(c, partial(self.write_rows, r, left, column, True))

        def partly() -> None:
            self.write_rows(r, left, column, False, False if self.one_chunk else ~first, True if self.one_chunk else last)

        if n is not None and n % t.columns == 0:
            whole()
        elif n is not None and n < t.columns:
            partly()
        else:
            with k.if_(column + t.columns <= p.columns):
                whole()
            with k.else_():
                partly()

    def by_chunk(self, c: Expr, write: Callable[[Flag, bool], None]) -> None:
        """Writes chunk `c`: write(whether there are earlier chunks, whether there are no later ones)."""
        k, count = self.k, as_int(self.p.chunks.count)
        if self.one_chunk:
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

    def write_straight(self, r: Expr, column: Expr, sums: Sequence[Sequence[Expr]], add: Flag, last: bool) -> None:
        """Stores a tile, whose rows are all there, from registers. `add` and `last` as in `write_rows`."""
        p, t, k = self.p, self.t, self.k
        n = as_int(p.columns) or 0
        rest = n % t.columns

        def store(columns: int) -> None:
            for first in range(0, len(sums), TOGETHER):
                places, makers = [], []
                for j in range(first, min(len(sums), first + TOGETHER)):
                    number = k.let(r + j)
                    row = self.coordinates(number)
                    for v, value in enumerate(sums[j]):
                        if v * LANES < columns:
                            places.append(self.place(number, row, column + v * LANES, columns - v * LANES))
                            makers.append(partial(self.made, places[-1], value, add, last))
                for where, value in zip(places, k.abreast(makers)):
                    if last:
                        where.put(k, value, self.stream)
                    else:
                        where.store(k, value, self.partial)

        wide = len(sums[0]) == t.vectors
        if not rest or (t.narrow and wide):
            store(t.columns)
        elif n < t.columns or not wide:
            store(rest)
        else:
            with k.if_(column + t.columns <= n):
                store(t.columns)
            with k.else_():
                store(rest)

    def made(self, where: Place, value: Expr, add: Flag, last: bool) -> Expr:
        """What is stored of a sum: `add` and `last` as in `write_rows`."""
        value = self.k.let(where.load(self.k, self.partial) + value) if add else value
        return where.made(self.k, value) if last else value

    def write_rows(self, r: Expr, left: Expr, column: Expr, full: bool, add: Flag, last: Flag) -> None:
        """Every row of the tile. `add`: whether there are earlier chunks; `last`: whether there are no later ones."""
        p, k = self.p, self.k
        with k.loop(0, left, name="row") as j:
            number = k.let(r + j)
            row = self.coordinates(number)
            for v in range(self.t.vectors):
                at = column + v * LANES
                with self.when(True if full or v == 0 else at < p.columns):
                    value = k.load(self.sums, j * self.t.columns + v * LANES, LANES)
                    self.write_vector(value, number, row, at, LANES if full else p.columns - at, add, last)

    def place(self, number: Expr, row: Sequence[Index], column: Expr, left: Index) -> Place:
        """Where a vector of row `number` belongs, whose coordinates are `row`, of which `left` columns are there; a scalar where n is
        no axis."""
        p = self.p
        columns = [column] if p.n else []
        whole = as_int(left) is not None and left >= LANES
        vec, count = p.n[0] if p.n else None, None if whole else as_expr(left)
        stored = row if self.stored is self.m else [number] * len(self.stored)
        known_as = (*p.g, *self.m, *p.n), (*self.g, *row, *columns)
        return p.where(self.axes, (*self.g, *stored, *columns), vec, count, known_as)

    def coordinates(self, r: Expr) -> list[Index]:
        """The coordinates of row `r`."""
        if not self.places:
            return [self.k.let(r)] * len(self.m)
        return [self.k.load(table, r - self.first) for table in self.places]

    def write_vector(
        self, value: Expr, number: Expr, row: Sequence[Index], column: Expr, left: Index, add: Flag, last: Flag
    ) -> None:
        """One vector of row `number`, whose coordinates are `row`, of which `left` columns are there; a scalar where n is no
        axis."""
        k = self.k
        if not self.p.n:
            value = lane(value, 0)
        where = self.place(number, row, column, left)
        if add is not False:
            total = k.var(value)
            with self.when(add):
                total.set(where.load(k, self.partial) + value)
            value = total.value
        with self.when(last):
            where.finish(k, value, self.stream)
        if last is not True:
            with self.otherwise(last):
                where.store(k, value, self.partial)
