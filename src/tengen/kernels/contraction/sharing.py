"""How the work of a register tile is cut into pieces: parts of the panels of columns, by blocks of the tiles of rows.

In: a problem, its `Tile`, the target. Out: how many parts and blocks. Where extents are known, `Sharing.cost` counts what each
cut costs, and the cheapest is taken; where they are open, the kernel computes the cut when it runs. None of this changes a bit.
"""

from __future__ import annotations

import functools

from tengen.base.record import record
from tengen.kernels.contraction.problem import Problem
from tengen.kernels.contraction.tile import MOST_PIECE_BLOCKS, Tile, most_columns
from tengen.kernels.machine import ENOUGH_PIECES, THREAD_COUNTS, Machine, machine
from tengen.loops.builder import as_expr
from tengen.loops.lang import LANES, Expr, as_int, cdiv, const, maximum, minimum, select

# The unit of costs is one multiply-add of one lane: a vector has LANES of them.
PACKED_COST, READ_COST, L2_COST = 10, 4, 1.5  # of packing an element, of reading it from memory, from L2
SCATTERED_COST = 40  # of packing an element where positions of k are far apart
PIECE_COST = 1 << 14  # of beginning a piece
MANY_PIECES = 4  # pieces for each thread from which on shares count as even


def pieces(p: Problem, t: Tile, target: Machine | None) -> tuple[Expr, Expr]:
    """(parts of the panels, blocks of the tiles): a piece is one part by one block, and all are about equal.

    A chunk of b for a piece's columns takes at most half of L2, unless the piece goes through it once. Where extents are
    known, `Sharing` weighs what each piece packs and reads against how evenly threads share the pieces. Where they are open,
    a piece has as many columns as L2 allows, fewer if there would be too few pieces; and all rows, or several blocks of them
    where all of b for them does not stay in L2: then a chunk of b is used more often while it is there.
    """
    chosen = t.schedule
    m, n, g, k = (as_int(x) for x in (p.rows, p.columns, p.groups, p.chunks.positions))
    panels, rows = as_expr(cdiv(p.columns, t.columns)), p.rows
    if m and n and g and k and not (chosen.panels and chosen.blocks):
        blocks, parts = Sharing.of(p, t, target).cheapest()
        parts = cdiv(panels, chosen.panels) if chosen.panels else parts
        return as_expr(parts), as_expr(cdiv(rows, chosen.blocks * t.block) if chosen.blocks else blocks)
    size, l2 = p.bytes, machine(target)[2]
    most = most_columns(p, t, target) // t.columns
    high = as_expr(cdiv(rows, t.block)) * p.groups
    wanted = cdiv(as_expr(ENOUGH_PIECES), maximum(high, 1))  # parts that the columns should be cut into
    wide = const(chosen.panels) if chosen.panels else minimum(maximum(as_expr(panels // wanted), 1), most)
    parts = as_expr(cdiv(panels, wide))
    if chosen.blocks:
        return parts, as_expr(cdiv(rows, chosen.blocks * t.block))
    several: Expr = minimum(maximum(as_expr(high * parts // ENOUGH_PIECES), 1), MOST_PIECE_BLOCKS)
    stays = p.chunks.positions * wide * t.columns * size <= l2 // 2
    blocks = as_expr(cdiv(rows, select(stays, const(1), several) * t.block))
    even = minimum(cdiv(blocks, THREAD_COUNTS[-1]) * THREAD_COUNTS[-1], as_expr(cdiv(rows, t.rows)))  # as many for each thread
    return parts, select(blocks >= ENOUGH_PIECES, even, blocks)


@record(frozen=True)
class Sharing:
    """The ways to cut a problem with known extents into pieces, and what each of them costs.

    Attributes:
        m, n: rows and columns of a group. groups: how many there are. terms: of a sum, or of a chunk of it where pieces go
            through the chunks in waves. t: the sizes. pack: the cost of packing an element of `a`. again: the cost of an
            element of b for each block of rows, for which it is read, or packed, again. most: panels of a piece, at most.
    """

    m: int
    n: int
    groups: int
    terms: int
    t: Tile
    pack: float
    again: float
    most: int

    @staticmethod
    def of(p: Problem, t: Tile, target: Machine | None) -> Sharing:
        """The ways to cut this problem, whose extents are known and not 0."""
        m, n, groups, terms = (as_int(x) or 1 for x in (p.rows, p.columns, p.groups, p.chunks.positions))
        pack = SCATTERED_COST if t.tiled else PACKED_COST if p.border is None else 2 * PACKED_COST
        pack = 2 * READ_COST if t.direct else pack
        again = L2_COST if t.schedule.packed or t.waves else READ_COST if t.direct_b and t.along_k else PACKED_COST
        most = most_columns(p, t, target) // t.columns
        return Sharing(m, n, groups, p.chunks.longest if t.waves else terms, t, pack, again, most)

    @property
    def tiles(self) -> int:
        """Tiles of rows of a group."""
        return -(-self.m // self.t.rows)

    @property
    def panels(self) -> int:
        """Panels of columns of a group."""
        return -(-self.n // self.t.columns)

    def cheapest(self) -> tuple[int, int]:
        """(blocks of the tiles, parts of the panels) of the cut that costs least."""
        tiles, panels, most = self.tiles, self.panels, THREAD_COUNTS[-1]
        blocks = {-(-tiles // x) for x in range(1, min(tiles, self.t.schedule.high * MOST_PIECE_BLOCKS) + 1)}
        blocks |= {x for x in (-(-b // most) * most for b in blocks) if x <= tiles}  # as many for each thread
        parts = {-(-panels // x) for x in range(1, panels + 1)}
        few = -(-panels // min(panels, self.most))
        once = lambda b: self.t.schedule.packed and -(-tiles // b) <= self.t.schedule.high  # whether a piece goes through its panels once
        cuts = ((b, c) for b in sorted(blocks, reverse=True) for c in sorted(parts, reverse=True) if c >= few or once(b))
        return min(cuts, key=lambda cut: self.cost(*cut))

    def cost(self, blocks: int, parts: int) -> float:
        """When the last thread is done, relative to the multiply-adds alone."""
        work = self.uneven(blocks, parts) * (1 + self.moved(blocks, parts))
        return work + blocks * parts * PIECE_COST / (self.m * self.n * self.terms)

    def uneven(self, blocks: int, parts: int) -> float:
        """How much longer the last of several threads works than all would with equal shares, on average over
        `THREAD_COUNTS`."""
        tiles, panels = self.tiles, self.panels
        last = (_last(blocks, tiles, parts, panels, self.groups, x) * x for x in THREAD_COUNTS)
        return sum(last) / (len(THREAD_COUNTS) * self.groups * panels * tiles)

    def moved(self, blocks: int, parts: int) -> float:
        """The cost of packing and reading for each multiply-add: each row of `a` is packed for every part of the columns, each
        column of b is read or packed for every block of the rows."""
        short = 1 if self.t.along_k or self.t.tiled else max(1.0, 3 * LANES * blocks / self.m)  # long runs of rows copy well
        return self.pack * short * parts / self.n + self.again * blocks / self.m


@functools.lru_cache(1 << 14)
def _last(blocks: int, tiles: int, parts: int, panels: int, groups: int, threads: int) -> float:
    """The time at which the last of some threads is done, in units of one tile by one panel. They share `groups` times so many
    tiles and panels, cut into so many blocks and parts; each thread begins with a run of pieces of its own
    (`runtime/threads.py`), and goes on with those of others."""
    count = blocks * parts * groups
    if count > MANY_PIECES * threads:
        return -(-count // threads) * tiles * panels * groups / count
    shares = lambda things, pieces: [(i + 1) * things // pieces - i * things // pieces for i in range(pieces)]
    work = [x * y for y in shares(panels, parts) for x in shares(tiles, blocks)] * groups
    stop, done = [(r + 1) * count // threads for r in range(threads)], [0] * threads
    now = [0, *stop[:-1]]
    for _ in range(count):
        mine = done.index(min(done))
        run = next(r % threads for r in range(mine, mine + threads) if now[r % threads] < stop[r % threads])
        done[mine] += work[now[run]]
        now[run] += 1
    return max(done)
