"""The gate product: a @ b where b's columns are the gates of a recurrent cell, with the cell's arithmetic in the same kernel.

    for each piece = (panel: one or two vectors of units, of every gate; block of rows):
        for group of at most GROUP_TILES tiles of the block's rows:
            for chunk of k:
                for part of the chunk that stays in L1 with the panel:
                    for share of the panel's vectors (gate, v), as many as registers hold the sums of:
                        for tile of the group:                                 # its sums are in registers
                            for k in the part:
                                acc[row][gate, v] += a[row, k] * b[k, gate, vector v of units]
                totals = sums of the first chunk, or totals + sums of a later one
            for row, vector of units:
                finish(totals of gate 0, totals of gate 1, ...)                # stores what the cell makes of them

A *unit* is one number of the cell's state; a *part* of b's columns is one gate, with a column for each unit. A piece has all
gates of its units, so the sums never leave its scratch memory. What `finish` reads and writes is prefetched while tiles are
multiplied. Where L2 holds all panels, consecutive pieces are the panels of one block of rows; else they are the blocks of one
panel. The order of the sums is that of every contraction (`chunks.Chunks`), and so are the bits.

In: a matrix, and one whose columns are several parts of equally many units. Out: launches that pack and compute.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from tengen.base.dtype import bool_
from tengen.kernels import numerics
from tengen.kernels.contraction.chunks import Chunks, unrolled_loop
from tengen.kernels.contraction.problem import multiply_add
from tengen.kernels.contraction.tile import unrolled_of
from tengen.kernels.lowering import Array, KernelBuilder, Lowering
from tengen.kernels.machine import ENOUGH_PIECES, Machine, machine, near_bytes, registers_of
from tengen.kernels.source import At
from tengen.loops.builder import as_expr
from tengen.loops.lang import LANES, Expr, as_int, cast, cdiv, const, equal, maximum, minimum, ramp, select, splat
from tengen.loops.statements import Buffer

Finish = Callable[[KernelBuilder, Sequence[Expr], At], None]  # (kernel, sums of each part, place (row, units)): stores results

LEAST_TILE_ROWS = 4  # rows of a tile, at least: with fewer, too much is loaded for what is multiplied
GROUP_TILES = 8  # tiles of a group: they are multiplied with the part of a panel in L1 before the next part is read
L1_PANEL_BYTES = 32 << 10  # bytes of a panel, at most, that are multiplied at a time: they stay in L1, beside rows
PREFETCH_SHARES = 8  # shares, at most, of the prefetches for a row: many lines at once would delay a tile's own loads
LEAST_BLOCK_ROWS, MOST_L2_BLOCKS = 16, 8  # rows of a block, at least, and blocks, at most, where L2 holds all panels


def tile_of(parts: int, b: Array, target: Machine | None) -> tuple[int, int, int]:
    """(rows, vectors of units of each part in a panel, shares of a panel's vectors) of the tile of sums that registers hold. The rows
    are 0 where a plain contraction is better: the tile would have too few rows, or the units of a part do not fill a vector."""
    _, registers, _ = machine(target)
    depth, columns = (as_int(d) for d in b.shape)
    if depth is None or columns is None or columns < parts * LANES:
        return 0, 0, 0
    several = [(2, 1)] if parts == 1 and columns > LANES else []
    for wide, shares in [*several, *((1, x) for x in range(1, parts + 1) if parts % x == 0)]:
        each = parts * wide // shares * registers_of(b.dtype.compute.size, target)
        rows = (registers - each - 1) // each
        if rows >= LEAST_TILE_ROWS:
            return rows, wide, shares
    return 0, 0, 0


def gate_product(
    lo: Lowering,
    a: Array,
    b: Array,
    parts: int,
    finish: Finish,
    name: str,
    touched: Sequence[Array] = (),
    when: Expr | None = None,
) -> None:
    """Launches kernels that compute a @ b and, for each row and vector of units, run finish(sums of part 0, of part 1, ...).

    Shapes: a (N, K), b (K, parts * H); N may be open
    Args:
        finish: is given the sums, in the dtype that arithmetic is done in, and their place (row, unit), a vector along units.
            What it stores, no other piece may read.
        touched: arrays (N, H) that `finish` reads or writes at its place: they are prefetched.
        when: a condition. Where it is false, `a` is not read, and all sums are 0. None: always true.
    """
    _GateProduct(lo, a, b, parts, finish, name, touched, when).launch()


class _GateProduct:
    """Writes the kernel of one gate product.

    Attributes:
        rows, units, depth: N, H and K. wide: vectors of units of each part in a panel.
        vectors, width: vectors and columns of a panel, which has all parts. shares: of them, each with `together` vectors; a tile
            has one share. panels: how many there are. packed: b as [panel, share, k, vector, unit].
        blocks: how many blocks of rows there are, or None; see `blocks_of`. tiles: how many tiles of rows there are.
        high: rows of the highest tile. heights: how many rows a tile may have, highest first; several where the number of rows
            is open, or is not a multiple of the number of tiles.
        sums, totals: scratch memory [tile of the group, row, vector, lane] for the sums of a chunk, and of all chunks so far.
    """

    def __init__(
        self, lo: Lowering, a: Array, b: Array, parts: int, finish: Finish, name: str, touched: Sequence[Array],
        when: Expr | None,
    ):  # fmt: skip
        self.lo, self.a, self.parts, self.finish, self.touched, self.when = lo, a, parts, finish, touched, when
        self.dtype = a.dtype.compute
        self.high, self.wide, self.shares = tile_of(parts, b, lo.target)
        self.vectors = parts * self.wide
        self.together = self.vectors // self.shares
        self.width = self.vectors * LANES
        self.rows, self.units, self.depth = as_expr(a.shape[0]), (as_int(b.shape[1]) or 0) // parts, as_int(b.shape[0]) or 0
        self.panels = -(-self.units // (self.wide * LANES))
        self.packed = lo.once(b, ("parts", parts, self.shares, b.shape, b.strides, self.dtype), lambda: self.pack(b, name))
        self.blocks = self.blocks_of(lo.target)
        self._divide_into_tiles()
        self.k = lo.kernel(name)
        size = min(as_int(self.tiles) or GROUP_TILES, GROUP_TILES) * self.high * self.width
        self.sums = self.k.scratch("sums", self.dtype, size)
        self.chunks = as_int(Chunks((self.depth,)).count) or 1
        self.totals = self.sums if self.chunks == 1 else self.k.scratch("totals", self.dtype, size)

    def _divide_into_tiles(self) -> None:
        """Divides the rows into as few tiles as registers allow, equally many for each block. Their heights differ by at most
        one row. Where the number of rows is open there are three heights, and the kernel chooses for each tile the least one
        that holds its rows."""
        each = 1 if self.blocks is None else self.blocks
        self.tiles = each * cdiv(self.rows, each * self.high)
        known, tiles = as_int(self.rows), as_int(self.tiles)
        lower = self.high // 4
        self.heights: tuple[int, ...] = (self.high, self.high - lower, self.high - 2 * lower)
        if known and tiles:
            self.high = -(-known // tiles)
            self.heights = (self.high,) if known % tiles == 0 else (self.high, self.high - 1)

    def blocks_of(self, target: Machine | None) -> Expr | None:
        """How many blocks of rows there are, if consecutive pieces are the panels of one block: where half of L2 holds all
        panels. A thread then has the same rows in each launch, and finds in its own cache what it wrote of them in the launch
        before. None if consecutive pieces are the blocks of one panel, so that L2 has to hold only the panels of one thread."""
        if self.panels * self.depth * self.width * self.dtype.size > near_bytes(target) // 2:
            return None
        return maximum(minimum(self.rows // LEAST_BLOCK_ROWS, MOST_L2_BLOCKS), 1)

    def pack(self, b: Array, name: str) -> Array:
        """b copied to [panel, share, k, vector, unit], with zeros past the last unit."""
        out = self.lo.temp(self.dtype, (self.panels, self.shares, self.depth, self.together, LANES))
        k = self.lo.kernel(f"{name}_pack")
        blocks = -(-self.depth // numerics.CHUNK_TERMS)
        piece = k.split(self.panels * blocks)
        panel, start = k.let(piece // blocks), k.let(piece % blocks * numerics.CHUNK_TERMS)
        src, dst, step = k.read(b), k.write(out), b.strides[1]
        whole = self.units % (self.wide * LANES) == 0
        with k.loop(start, minimum(start + numerics.CHUNK_TERMS, self.depth)) as i:
            for v in range(self.vectors):  # out[panel, share of v, i, v, 16 units] = b[i, part of v, 16 units]
                unit = k.let((panel * self.wide + v % self.wide) * LANES)
                here = k.let(as_expr(b.index((i, v // self.wide * self.units + unit))))
                index = here if as_int(step) == 1 else ramp() * step + here
                x = k.load(src, index, LANES, None if whole else k.let(maximum(self.units - unit, 0)))
                k.store(dst, out.index((panel, v // self.together, i, v % self.together, 0)), cast(x, self.dtype))
        self.lo.launch(k)
        return out

    def launch(self) -> None:
        """Writes the kernel and launches it. A piece is one panel by one block of rows."""
        k = self.k
        tiles, along = as_expr(self.tiles), self.blocks is None
        blocks = as_expr(minimum(as_expr(-(-ENOUGH_PIECES // self.panels)), tiles) if self.blocks is None else self.blocks)
        piece = k.split(self.panels * blocks)
        beside = blocks if along else self.panels
        outer, inner = k.let(piece // beside), k.let(piece % beside)
        panel, block = (outer, inner) if along else (inner, outer)
        self.unit = k.let(panel * (self.wide * LANES))
        self.b, self.at = k.read(self.packed), k.let(as_expr(self.packed.index((panel, 0, 0, 0, 0))))
        stop = k.let((block + 1) * tiles // blocks)
        with k.loop(k.let(block * tiles // blocks), stop, GROUP_TILES, name="group") as first:
            self.group(first, k.let(minimum(first + GROUP_TILES, stop)))
        self.lo.launch(k)

    def row(self, tile: Expr) -> Expr:
        """The first row of a tile."""
        return tile * self.high if len(self.heights) == 1 else tile * self.rows // as_expr(self.tiles)

    def group(self, first: Expr, stop: Expr) -> None:
        """Computes the sums of the tiles first..stop, chunk by chunk, and calls `finish` for them."""
        k = self.k
        size = k.let((stop - first) * (self.high * self.width))
        with k.loop(0, self.chunks, name="chunk") as chunk:
            begin = k.let(chunk * numerics.CHUNK_TERMS)
            end = minimum(begin + numerics.CHUNK_TERMS, self.depth)
            end = k.let(end if self.when is None else select(self.when, end, begin))
            with k.loop(0, size, LANES) as i:
                k.store(self.sums, i, const(0, self.dtype, LANES))
            with k.loop(begin, end, self.near(), name="near") as start:
                span = start, k.let(minimum(start + self.near(), end))
                shares = k.loop(0, self.shares, name="share") if self.shares > 1 else contextlib.nullcontext(const(0))
                with shares as share, k.loop(first, stop, name="tile") as tile:
                    sums = k.let((tile - first) * (self.high * self.width) + share * (self.together * LANES))
                    self.tile_of_least_height(self.heights, tile, span, share, sums)
            if self.chunks > 1:
                self.add_to_totals(chunk, size)
        with k.loop(first, stop, name="tile") as tile:
            self.finish_tile(tile, k.let((tile - first) * (self.high * self.width)))

    def near(self) -> int:
        """How many positions of k are multiplied at a time: so many that this part of a share of a panel stays in L1."""
        run = numerics.CHUNK_TERMS
        while run > LANES and run * self.together * LANES * self.dtype.size > L1_PANEL_BYTES:
            run //= 2
        return run

    def tile_of_least_height(
        self, heights: Sequence[int], tile: Expr, span: tuple[Expr, Expr], share: Expr, sums: Expr
    ) -> None:
        """`tile` with the least of these heights (highest first) that holds the tile's rows, decided when the kernel runs."""
        k = self.k
        if len(heights) == 1:
            return self.tile(tile, heights[0], span, share, sums)
        with k.if_(self.row(tile + 1) - self.row(tile) > heights[1]):
            self.tile(tile, heights[0], span, share, sums)
        with k.else_():
            self.tile_of_least_height(heights[1:], tile, span, share, sums)

    def tile(self, tile: Expr, high: int, span: tuple[Expr, Expr], share: Expr, sums: Expr) -> None:
        """Adds the terms of the positions span[0] <= k < span[1] to the sums of one share of a tile of `high` rows, which begin at
        index `sums` of the scratch memory. Rows past the tile's last one read that one again."""
        k, row = self.k, self.k.let(self.row(tile))
        rows: Buffer = k.read(self.a)
        last = None if as_int(self.rows) is not None else k.let(self.row(tile + 1) - row - 1)
        starts = [k.let(as_expr(self.a.index((row + (j if last is None else minimum(last, j)), 0)))) for j in range(high)]
        places = [(j, v) for j in range(high) for v in range(self.together)]
        at = lambda j, v: sums + (j * self.vectors + v) * LANES
        acc = {(j, v): k.var(k.load(self.sums, at(j, v), LANES), name="acc") for j, v in places}
        near, panel = max(1, min(self.near(), self.depth)), k.let(self.at + share * (self.depth * self.together * LANES))

        def step(i: Expr) -> None:
            here = k.let(panel + i * (self.together * LANES))
            bs = [k.load(self.b, here + v * LANES, LANES) for v in range(self.together)]
            for j, start in enumerate(starts):
                x = splat(cast(k.load(rows, start + i * self.a.strides[1]), self.dtype))
                for v, y in enumerate(bs):
                    acc[j, v].set(multiply_add(x, y, acc[j, v].value))  # acc[row j, v] += a[row j, k i] * b[k i, vector v]

        # Positions of k between prefetches: over all shares, two parts of `near` for each row of the tile.
        unroll = 1 if last is not None else unrolled_of(len(places) * registers_of(self.dtype.size, self.lo.target))
        part = -(-near * self.shares // (2 * high))
        part = min(near, part + -part % unroll)
        parts, spans = -(-near // part), -(-self.depth // near)
        each = 2 * spans  # parts, over all spans of `near` positions and all shares, in which one row's elements are prefetched
        with k.loop(*span, part, name="part") as first:
            # number: of this part among all of the tile's
            number = k.let((span[0] // near * self.shares + share) * parts + (first - span[0]) // part)
            for turn, lines in enumerate(self.prefetched(min(each, PREFETCH_SHARES))):
                with k.if_(equal(number % each, turn)):
                    self.prefetch(row + number // each, lines)
            unrolled_loop(k, first, k.let(minimum(span[1], first + part)), unroll, step, "k", self.depth % unroll == 0)
        for j, v in places:
            k.store(self.sums, at(j, v), acc[j, v].value)

    def prefetched(self, shares: int) -> list[list[tuple[Array, int]]]:
        """What `finish` touches at a row, as (array, vector of units), divided into at most `shares` shares."""
        touched = dict.fromkeys(self.touched)  # an array that is read and overwritten is prefetched once
        lines = [(a, v) for a in touched for v in range(self.wide)]
        return [lines[i::shares] for i in range(min(shares, len(lines)))]

    def prefetch(self, row: Expr, lines: Sequence[tuple[Array, int]]) -> None:
        """Prefetches one share of what `finish` touches at a row; for rows past the last one, at the last one."""
        k = self.k
        row = k.let(minimum(row, self.rows - 1))
        for a, v in lines:
            k.prefetch(k.read(a), a.index((row, self.unit + v * LANES)))

    def add_to_totals(self, chunk: Expr, size: Expr) -> None:
        """totals = sums for the first chunk, totals + sums for later ones; `size` numbers."""
        k = self.k
        with k.if_(equal(chunk, 0)), k.loop(0, size, LANES) as i:
            k.store(self.totals, i, k.load(self.sums, i, LANES))
        with k.else_(), k.loop(0, size, LANES) as i:
            k.store(self.totals, i, k.load(self.totals, i, LANES) + k.load(self.sums, i, LANES))

    def finish_tile(self, tile: Expr, sums: Expr) -> None:
        """Calls `finish` for all rows and units of a tile, whose sums begin at index `sums` of the scratch memory."""
        k, row = self.k, self.k.let(self.row(tile))
        stop = self.row(tile + 1)
        whole = self.units % (self.wide * LANES) == 0
        with k.loop(0, stop - row, name="row") as j:
            for v in range(self.wide):
                here = k.let(sums + j * self.width + v * LANES)
                values = [k.load(self.totals, here + part * (self.wide * LANES), LANES) for part in range(self.parts)]
                unit = k.let(self.unit + v * LANES)
                with k.if_(const(True, bool_) if whole or v == 0 else unit < self.units):
                    self.finish(k, values, At((k.let(row + j), unit), 1, None if whole else self.units - unit))
