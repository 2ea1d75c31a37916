"""The sizes of a register tile and of the blocks around it, by rule from a target and from the extents that are known.

All of them are bit-neutral. Nothing here looks at a processor's name: registers, vector width and cache sizes decide.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tengen.kernels.problem import Problem
from tengen.loops.builder import as_expr
from tengen.loops.lang import LANES, Expr, Index, as_int, cdiv, const, maximum, minimum, select

SCRATCH_BYTES = 54 << 10  # of a piece, on the stack, beside tables of its rows
HEIGHT = 14  # rows of a tile at most
HEIGHT_ALONG_M = 12  # where rows are copied along m: four tiles are whole vectors
FEW_ROWS = 4  # rows of the small tile, for what is left over
PIECES = 6  # as many as this are enough to share
MOST_ROWS = 96  # of a block
MOST_BLOCKS = 4  # blocks of rows of a piece at most
DEPTH_PAD = LANES  # rows of packed `a` are this much further apart than they are long: they begin in different cache sets


SAME_SETS = 2048  # bytes; lines that are a multiple of it apart share a few sets of a first cache


class Machine(Protocol):
    """What is asked of a target."""

    vector_bytes: int
    vector_registers: int
    l2_bytes: int


@dataclass(frozen=True)
class Tile:
    """The sizes of a register tile problem.

    Attributes:
        rows: rows of the register tile. vectors: of LANES columns. block: rows packed at a time. small: rows of a second, lower
            tile, or 0. narrow: whether there is a third one, of one vector, for last columns.
        along_k: whether packed rows of `a` are dense along k, or along m. pitch: from one row (position) to the next.
        packed: whether b is packed by a launch of its own, or by each piece.
        tall: how many of the tiles, the first ones, have `rows` rows; the others have one less, so that together they have
            exactly the rows there are. None: all have `rows`, or the last one what is left.
        direct: whether rows of `a` are read where they lie, not packed.
    """

    rows: int
    vectors: int
    block: int
    small: int
    narrow: bool
    along_k: bool
    pitch: int
    packed: bool
    tall: int | None = None
    direct: bool = False

    @property
    def columns(self) -> int:
        """Columns of a panel."""
        return self.vectors * LANES

    def row(self, tile: Index) -> Expr:
        """The first row of a tile."""
        if self.tall is None:
            return as_expr(tile * self.rows)
        return tile * (self.rows - 1) + minimum(as_expr(tile), self.tall)


def machine(target: Machine | None) -> tuple[int, int, int]:
    """(bytes of a vector register, how many there are, bytes of L2); of a small machine if the target is not known."""
    return (16, 32, 512 << 10) if target is None else (target.vector_bytes, target.vector_registers, target.l2_bytes)


def choose(p: Problem, target: Machine | None) -> Tile:
    """The sizes for a problem."""
    size, longest = p.compute.size, p.chunks.longest
    width, registers, _ = machine(target)
    each = max(1, LANES * size // width)  # registers of a vector of LANES
    m, n = as_int(p.rows), as_int(p.columns)
    vectors = _vectors(n, each)
    along_k = _along_k(p)
    most = max(1, min(HEIGHT if along_k else HEIGHT_ALONG_M, (registers - vectors * each - 1) // (vectors * each)))
    tiles = 1 if m is None else max(1, -(-m // most))
    rows = most if m is None else max(1, -(-m // tiles))
    tall = None if m is None or m == tiles * rows else m - tiles * (rows - 1)
    depth = -(-longest // LANES) * LANES
    packed = as_int(p.walk("n", "b").step) != 1 or m is None or m > 8 * HEIGHT
    room = SCRATCH_BYTES // size - rows * vectors * LANES - (0 if packed else depth * vectors * LANES)
    room = room // (depth + DEPTH_PAD) if along_k else room // depth // LANES * LANES  # rows of a block
    high = max(1, min(room, MOST_ROWS) // rows)  # tiles of a block
    if m is not None:
        fewest = 1 if along_k else max(1, 3 * LANES // rows)  # long runs of rows copy well
        blocks = max(-(-tiles // high), min(-(-tiles // fewest), -(-PIECES // _others(p, vectors))))
        high = -(-tiles // blocks)
    block = rows * high
    pitch = depth + DEPTH_PAD if along_k else -(-block // LANES) * LANES
    small = FEW_ROWS if m is None and most > FEW_ROWS else 0
    narrow = vectors > 1 and (n is None or (n < 8 * vectors * LANES and 0 < n % (vectors * LANES) <= LANES))
    return Tile(rows, vectors, block, small, narrow, along_k, pitch, packed, tall, m is not None and not narrow and _readable(p))


def _readable(p: Problem) -> bool:
    """Whether rows of `a` can be read where they lie: at one distance, dense along k, and not all of a tile in the same cache
    sets. Nothing may be read past the last row, so tiles must have exactly as many as there are."""
    m, k = p.walk("m", "a"), p.walk("k", "a")
    distance = as_int(m.step)
    if p.a.dtype is not p.compute or len(m.extents) != 1 or len(k.extents) != 1 or as_int(k.step) != 1 or distance is None:
        return False
    return distance * p.compute.size % SAME_SETS != 0


def _vectors(n: int | None, each: int) -> int:
    """Vectors of LANES columns of a tile, where each takes this many registers."""
    if each > 1:
        return 1
    if n is None or n > 3 * LANES:
        return 2
    return -(-n // LANES)


def _others(p: Problem, vectors: int) -> int:
    """Pieces that there are beside the blocks of rows, if known."""
    n, g = as_int(p.columns), as_int(p.groups)
    return 1 if n is None or g is None else max(1, g * (n // (2 * vectors * LANES)))


def _along_k(p: Problem) -> bool:
    """Whether `a` is read along k: where it is dense along k, or not along m either."""
    k, m = p.walk("k", "a"), p.walk("m", "a")
    if as_int(m.step) != 1 or not m.extents:
        return True
    if as_int(k.step) != 1 or not k.extents:
        return False
    run_k, run_m = as_int(k.run), as_int(m.run)
    return run_k is None or run_m is None or run_k >= min(run_m, LANES)


def most_columns(p: Problem, t: Tile, target: Machine | None) -> int:
    """Columns of a piece at most: a chunk of b for them half fills L2."""
    return max(1, machine(target)[2] // 2 // (p.chunks.longest * p.compute.size * t.columns)) * t.columns


def piece_size(p: Problem, t: Tile, target: Machine | None) -> tuple[Expr, Expr]:
    """Columns and rows of a piece.

    Columns are as many as a chunk of b for them half fills L2, and fewer if there would be too few pieces. Rows are one block;
    where all of b for the columns does not stay in L2, they are several: then a chunk of b that is there is used more often.
    """
    size, l2 = p.compute.size, machine(target)[2]
    blocks = as_expr(cdiv(p.rows, t.block)) * p.groups
    most = most_columns(p, t, target) // t.columns
    panels = as_expr(cdiv(p.columns, t.columns))
    wanted = cdiv(as_expr(PIECES), maximum(blocks, 1))  # pieces that the columns should be shared out to
    panels = minimum(maximum(as_expr(panels // wanted), 1), most)
    columns = panels * t.columns
    pieces = blocks * as_expr(cdiv(p.columns, columns))
    several = minimum(maximum(as_expr(pieces // PIECES), 1), MOST_BLOCKS)
    stays = p.chunks.positions * columns * size <= l2 // 2
    return columns, select(stays, const(1), several) * t.block
