"""The sizes of a register tile, and of the blocks around it.

`rule` makes a schedule from the problem and the target, or tuning has found one (`choose`); `sized` derives the other sizes
from it; `pieces` shares the work among threads. In this order. None of them changes a bit. Nothing here looks at a processor's
name: the number and width of registers and the sizes of caches decide.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import ClassVar

from tengen.base.dtype import DType
from tengen.kernels.contraction.problem import Problem
from tengen.kernels.lowering import Lowering
from tengen.kernels.machine import SAME_SETS, THREADS, Machine, machine, registers_of, too_large
from tengen.kernels.schedule import Schedule, outside
from tengen.loops.builder import as_expr
from tengen.loops.lang import LANES, Expr, Index, as_int, cdiv, const, maximum, minimum, select

SCRATCH_BYTES = 54 << 10  # of a piece, on the stack, beside tables of its rows
MOST_SCRATCH = 256 << 10  # of rows at most
HEIGHT = 14  # rows of a tile at most
ALIGNED = 8  # rows of a tile that is read along m where it lies: no cache line is shared unevenly between two tiles
HEIGHT_ALONG_M = 12  # rows of a tile at most where rows are packed along m: four tiles are whole vectors
FEW_ROWS = (4, 8)  # heights of smaller tiles for the last rows, where the number of rows is open
PIECES = 6  # as many as this are enough to share
MOST_ROWS = 96  # rows of a block
MOST_TRANSPOSED = 4 * HEIGHT  # rows of results, at most, where pieces transpose columns of b: for more a launch is quicker
MOST_PACKED, FEW_PACKED = 2048, 32 * HEIGHT  # rows of results, at most, where pieces pack their columns of b
MOST_HIGH = 64  # tiles of a block at most
WAVE_HIGH = 4  # tiles of a block in waves, which is packed for one chunk: it stays in L1, beside a panel
COPIED_BYTES = 128 << 10  # bytes of a block, at most, whose rows are packed tile by tile
FEW_COPIED = 10 * HEIGHT  # rows of results, at most, that are read where they lie because they are few
COPIED_HIGH = 16  # tiles of a block, of ALIGNED rows each, whose rows are packed along m: long runs copy well
MOST_BLOCKS = 4  # blocks of rows of a piece, at most
DEPTH_PAD = LANES  # elements between two packed rows of `a`, so that rows begin in different cache sets
COPY, READ, NEAR = 10, 4, 1.5  # the cost of packing an element, of reading it from memory, from L2, in vector multiply-adds
ACROSS = 40  # the cost of packing an element where positions of k are far apart
MANY_PIECES = 4  # pieces for each thread from which on shares count as even
WAVE = 1 << 22  # multiply-adds of a chunk, at least, for which threads may wait for each other
PIECE = 1 << 14  # the cost of beginning a piece, in multiply-adds


@dataclass(frozen=True)
class Register(Schedule, kind="register"):
    """How a register tile problem is computed.

    Attributes:
        rows: rows of the register tile. vectors: its vectors of LANES columns. high: tiles of a block, whose rows are packed at
            a time. along_k: 1: packed rows of `a` are dense along k; 0: along m. packed: 1: a launch of its own packs b;
            0: each piece packs its columns, or reads them where they lie. panels: panels of a piece at most; 0: by rule.
            blocks: blocks of rows of a piece; 0: by rule. across: 1: pieces with consecutive numbers share rows; 0: columns.
            unroll: positions of k in a loop's body.
    """

    rows: int
    vectors: int
    high: int
    along_k: int
    packed: int
    panels: int = 0
    blocks: int = 0
    across: int = 0
    unroll: int = 1

    steps: ClassVar = {
        "unroll": (1, 2, 4), "rows": tuple(range(1, HEIGHT + 1)), "vectors": (1, 2, 3, 4), "panels": (0, 1, 2, 4, 8, 16, 32),
        "high": (1, 2, 3, 4, 6, 8, 12, 16, 24), "packed": (0, 1), "across": (0, 1), "blocks": (0, 1, 2, 4), "along_k": (0, 1),
    }  # fmt: skip


@dataclass(frozen=True)
class Tile:
    """The sizes of a register tile problem.

    Attributes:
        schedule: what was chosen. block: rows packed at a time. small: heights of smaller tiles, ascending. narrow: whether
            the last columns have a tile that is one vector wide. pitch: elements from one packed row of `a` to the next, or
            from one position of k to the next where rows are packed along m.
        tall: the first `tall` tiles have `rows` rows, the others one less, so that together they have exactly the rows there
            are. None: all have `rows`, and the last one what is left.
        exact: whether no tile has rows past the last one. direct, direct_b: whether `a`, and b, are read where they lie.
        tiled: whether rows that are packed along m lie tile by tile: a tile then reads one stream of memory.
        waves: whether all pieces compute a chunk before any begins with the next.
    """

    schedule: Register
    block: int
    small: tuple[int, ...]
    narrow: bool
    pitch: int
    tall: int | None = None
    exact: bool = False
    direct: bool = False
    direct_b: bool = False
    tiled: bool = False
    waves: bool = False

    @property
    def rows(self) -> int:
        """Rows of the tile."""
        return self.schedule.rows

    @property
    def vectors(self) -> int:
        """Vectors of columns of the tile."""
        return self.schedule.vectors

    @property
    def along_k(self) -> bool:
        """Whether packed rows of `a` are dense along k."""
        return bool(self.schedule.along_k)

    @property
    def columns(self) -> int:
        """Columns of a panel."""
        return self.vectors * LANES

    def apart(self, depth: int) -> int:
        """Elements from one tile to the next where rows are packed tile by tile: the last vector of a tile ends past it."""
        return depth * self.pitch + LANES

    def row(self, tile: Index) -> Expr:
        """The first row of a tile."""
        if self.tall is None:
            return as_expr(tile * self.rows)
        return tile * (self.rows - 1) + minimum(as_expr(tile), self.tall)


def rule(p: Problem, target: Machine | None, invariant: bool = False, waves: bool = False) -> Register:
    """The schedule of a problem by rule. invariant: the problem is solved in every iteration of a loop with the same b, which
    is then packed once. waves: see `_in_waves`."""
    m, n = as_int(p.rows), as_int(p.columns)
    vectors = vectors_of(n, target, p.compute)
    along_k, tiled = _along_k(p), _side_by_side(p)
    most = register_rows(vectors, target, p.compute, HEIGHT if along_k or tiled else HEIGHT_ALONG_M)
    tiles = 1 if m is None else max(1, -(-m // most))
    rows = most if m is None else max(1, -(-m // tiles))
    direct_b, by_piece = _direct_b(p, vectors), not invariant and _by_piece(p, vectors, target)
    if by_piece and along_k:
        return Register(rows, vectors, _divisor(tiles, MOST_HIGH), 1, 0, across=1)
    if waves and m is not None and m % ALIGNED == 0 and most >= ALIGNED:
        return Register(ALIGNED, vectors, _divisor(m // ALIGNED, WAVE_HIGH), 0, 0, across=1)
    if tiled and (direct_b or by_piece) and not invariant and not _copied(p, target):
        high = MOST_HIGH if _dense_along_m(p) else _copied_high(p, rows)
        return Register(rows, vectors, -(-tiles // -(-tiles // high)), 0, 0, across=1)
    if by_piece and m is not None and m % ALIGNED == 0 and most >= ALIGNED:
        return Register(ALIGNED, vectors, _divisor(m // ALIGNED, COPIED_HIGH), 0, 0, across=1)
    if p.border is not None and not along_k and m is not None and m % ALIGNED == 0 and most >= ALIGNED:
        return Register(ALIGNED, vectors, _divisor(m // ALIGNED, COPIED_HIGH), 0, 1)
    few = 16 * HEIGHT if direct_b else 8 * HEIGHT
    packed = invariant or as_int(p.walk("n", "b").step) != 1 or m is None or (m > few and not (direct_b and _near(p, target)))
    packed = packed and not by_piece or (tiled and _copied(p, target))
    packed = packed and (invariant or not _transposed_by_piece(p))
    high = max(1, min(_room(p, rows, vectors, along_k, packed or by_piece), MOST_ROWS) // rows)  # tiles of a block
    high = _copied_high(p, rows) if tiled and packed else high
    if m is not None:
        fewest = 1 if along_k else max(1, 3 * LANES // rows)  # long runs of rows copy well
        blocks = max(-(-tiles // high), min(-(-tiles // fewest), -(-PIECES // _others(p, vectors))))
        high = -(-tiles // blocks)
    return Register(rows, vectors, high, int(along_k), int(packed), across=int(by_piece))


def _copied(p: Problem, target: Machine | None) -> bool:
    """Whether both operands are packed where rows of `a` lie side by side: `a` by each piece, b by a launch. A tile then reads
    two streams that stay in L1; in the operands themselves each cache line is on a page of its own. It pays where both are used
    often and are larger than L2."""
    m, n, k = (as_int(x) or 0 for x in (p.rows, p.columns, p.chunks.positions))
    return m > FEW_COPIED and 2 * n > FEW_COPIED and (m + n) * k * p.compute.size > machine(target)[2]


def _copied_high(p: Problem, rows: int) -> int:
    """Tiles of a block whose rows are copied tile by tile."""
    return max(1, min(MOST_HIGH, COPIED_BYTES // (rows * _depth(p) * p.compute.size)))


def _divisor(n: int, most: int) -> int:
    """The largest divisor of n that is at most so large."""
    return next(x for x in range(min(n, most), 0, -1) if n % x == 0)


def _by_piece(p: Problem, vectors: int, target: Machine | None) -> bool:
    """Whether each piece should pack its columns of b, since there are so few rows of results that few pieces need the same
    columns. A launch that packs them would move all of b through memory three times, which many rows are worth only where one
    operand can be read where it lies; and a constant is packed but once."""
    m, n = as_int(p.rows), as_int(p.columns)
    if not _known(p) or m is None or n is None or p.border is not None:
        return False
    dense = len(p.walk("n", "b").extents) == 1 and as_int(p.walk("n", "b").step) == 1
    if _along_k(p):
        few = 8 * HEIGHT < m <= FEW_PACKED * p.format.group  # a chunk of their rows stays in L2
        whole = dense or (n % (vectors * LANES) == 0 and p.format.group == 1)
        return whole and not p.b.constant and few and n >= 2 * m and _dense_along_k(p)
    if p.format.group > 1:
        return False
    if _side_by_side(p):
        return dense and m <= FEW_PACKED and not _copied(p, target)
    if m > (MOST_HIGH * ALIGNED if _direct_b(p, vectors) else MOST_PACKED):
        return False
    return dense


def _transposed_by_piece(p: Problem) -> bool:
    """Whether each piece should transpose its columns of b, which is dense along k, itself: the few rows of results are one
    block, so no other piece needs these columns. A constant is transposed once, by a launch."""
    m = as_int(p.rows)
    return _known(p) and along_sum(p) and not p.b.constant and p.border is None and m is not None and m <= MOST_TRANSPOSED


def along_sum(p: Problem) -> bool:
    """Whether b is dense along k, and its columns have one other stride."""
    k, n = p.walk("k", "b"), p.walk("n", "b")
    return len(k.extents) == len(n.extents) == 1 and as_int(k.step) == 1 and as_int(n.step) != 1 and p.format.group == 1


def _room(p: Problem, rows: int, vectors: int, along_k: bool, packed: bool) -> int:
    """How many rows of `a` fit a piece's scratch memory."""
    depth = _depth(p)
    copied = not packed and not _direct_b(p, vectors)
    sums, panel = rows * vectors * LANES * p.compute.size, depth * vectors * LANES * p.bytes * copied
    room = (SCRATCH_BYTES - sums - panel) // p.bytes
    return room // (depth + DEPTH_PAD) if along_k else room // depth // LANES * LANES


def _depth(p: Problem) -> int:
    """Positions of the longest chunk, rounded up to whole vectors."""
    return -(-p.chunks.longest // LANES) * LANES


def fits(p: Problem, s: Register, target: Machine | None) -> str:
    """Why the problem cannot have the schedule on this target; "" if it can."""
    limits = {name: (0, 1) for name in ("along_k", "packed", "across")} | {"panels": (0, 1 << 12), "blocks": (0, MOST_BLOCKS)}
    why = outside(s, rows=(1, HEIGHT), vectors=(1, 4), high=(1, MOST_HIGH), unroll=(1, 4), **limits)
    if why := why or too_large(s.rows, s.vectors, p.compute.size, target):
        return why
    l2 = machine(target)[2]
    t = sized(p, s)
    rows = s.high * t.apart(_depth(p)) if t.tiled else (t.block if t.along_k else _depth(p)) * t.pitch
    rows *= p.bytes
    if rows > MOST_SCRATCH:
        return f"{t.block} rows of a block need {rows} bytes of scratch memory, more than {MOST_SCRATCH}"
    if not s.packed and s.panels > most_columns(p, t, target) // t.columns:
        return f"{s.panels} panels of b do not fit half of an L2 of {l2} bytes"
    return ""


def choose(lo: Lowering, p: Problem) -> Tile:
    """The sizes for a problem: as tuning found them, or by rule."""
    waves = not lo.in_loop and _in_waves(p, lo.target)
    by_rule = rule(p, lo.target, lo.invariant(p.b), waves)

    def why_not(s: Register) -> str:
        # A state is packed in every run, but only once where a file has made it a constant: what is best differs.
        if s.packed != by_rule.packed and isinstance(p.b.id, tuple) and p.b.id[:1] == ("state",):
            return "b is a state, whose packing is by rule"
        return fits(p, s, lo.target)

    return sized(p, lo.choose(p.problem_key, by_rule, why_not), waves)


def sized(p: Problem, s: Register, waves: bool = False) -> Tile:
    """The sizes that follow from a schedule. waves: whether pieces may go through the chunks in waves."""
    m, n = as_int(p.rows), as_int(p.columns)
    block = s.rows * s.high
    pitch = _depth(p) + DEPTH_PAD if s.along_k else -(-block // LANES) * LANES
    small = tuple(n for n in FEW_ROWS if m is None and n < s.rows)
    narrow = _narrow(n, s.vectors)
    tiles = 1 if m is None else -(-m // s.rows)
    tall = None if m is None or m == tiles * s.rows or m < tiles * (s.rows - 1) else m - tiles * (s.rows - 1)
    exact = m == tiles * s.rows or tall is not None
    direct_b = not s.packed and _direct_b(p, s.vectors)
    tiled = not s.along_k and _side_by_side(p)
    waves = waves and direct_b and exact and not s.along_k
    direct = exact and p.border is None and not waves and _readable(p, s, narrow) and not (tiled and s.packed)
    tiled = tiled and not direct and not waves
    return Tile(s, block, small, narrow, s.rows if tiled else pitch, tall, exact, direct, direct_b, tiled, waves)


def _narrow(n: int | None, vectors: int) -> bool:
    """Whether the last columns have a tile that is one vector wide."""
    columns = vectors * LANES
    return vectors > 1 and (n is None or (n < 8 * columns and 0 < n % columns <= LANES))


def _direct_b(p: Problem, vectors: int) -> bool:
    """Whether b can be read where it lies: its columns are dense and whole vectors, so that nothing is read past the last one,
    and its rows have one stride."""
    n = as_int(p.columns)
    if not _known(p) or n is None or n % LANES or not (n % (vectors * LANES) == 0 or _narrow(n, vectors)):
        return False
    return p.b.dtype is p.compute and p.format.group == 1 and _at_one_distance(p, "n", "b")


def _in_waves(p: Problem, target: Machine | None) -> bool:
    """Whether pieces should go through the chunks of a long sum in waves, all of them one chunk before any begins the next:
    operands are then read from memory once, and a chunk of b, which several pieces use, from L2. It pays where the operands are
    larger than caches and a chunk has work enough."""
    m, n, k = as_int(p.rows), as_int(p.columns), as_int(p.chunks.positions)
    if m is None or n is None or k is None or p.g or p.border is not None or _along_k(p):
        return False
    chunk, l2 = p.chunks.longest, machine(target)[2]
    if not _direct_b(p, vectors_of(n, target, p.compute)):
        return False
    return (m + n) * k * p.bytes > 2 * l2 and m * n * chunk >= WAVE and n * chunk * p.bytes <= l2 // 4


def _near(p: Problem, target: Machine | None) -> bool:
    """Whether all of b takes at most half of L2: then many rows of results can read it where it lies in less time than a launch
    takes to pack it."""
    n, k = as_int(p.columns), as_int(p.chunks.positions)
    return n is not None and k is not None and 2 * k * n * p.compute.size <= machine(target)[2]


def _readable(p: Problem, s: Register, narrow: bool) -> bool:
    """Whether rows of `a` can be read where they lie: they have one stride, are dense along one side, and do not all fall into
    the same cache sets. Tiles must have exactly the rows there are, as nothing may be read past the last one."""
    if p.prologue is not None or (not s.along_k and not _known(p)):
        return False
    if p.a.dtype is not p.format.storage or (p.format.group > 1 and not (p.whole_groups and s.along_k)):
        return False
    return _at_one_distance(p, "k" if s.along_k else "m", "a") and not (s.along_k and narrow)


def _side_by_side(p: Problem) -> bool:
    """Whether `a` is dense along m, which is one axis of a known extent."""
    m = p.walk("m", "a")
    one = len(m.extents) == 1 and as_int(m.step) == 1 and as_int(p.rows) is not None
    return one and not _along_k(p) and p.format.group == 1 and p.border is None


def _dense_along_m(p: Problem) -> bool:
    """Whether rows of `a` can be read along m where they lie."""
    if p.prologue is not None:
        return False
    dense = p.a.dtype is p.compute and p.format.group == 1 and _at_one_distance(p, "m", "a")
    return dense and not _along_k(p) and p.border is None


def _dense_along_k(p: Problem) -> bool:
    """Whether rows of `a` can be read along k where they lie."""
    if p.prologue is not None or p.a.dtype is not p.format.storage or not p.whole_groups:
        return False
    return _along_k(p) and p.border is None and _at_one_distance(p, "k", "a")


def _known(p: Problem) -> bool:
    """Whether all extents are."""
    return None not in (as_int(p.rows), as_int(p.columns), as_int(p.chunks.positions))


def _at_one_distance(p: Problem, dense: str, operand: str) -> bool:
    """Whether an operand is dense along one role, and has one stride along the other, which spreads its rows over cache
    sets."""
    inner, outer = p.walk(dense, operand), p.walk(({"n", "m", "k"} - {dense, "n" if operand == "a" else "m"}).pop(), operand)
    distance = as_int(outer.step)
    if len(inner.extents) != 1 or len(outer.extents) != 1 or as_int(inner.step) != 1 or distance is None:
        return False
    return distance * getattr(p, operand).dtype.size % SAME_SETS != 0


def vectors_of(n: int | None, target: Machine | None, d: DType) -> int:
    """Vectors of LANES columns of a tile, of n columns."""
    if LANES * d.size > machine(target)[0]:
        return 1
    if n is None:
        return 2
    vectors = -(-n // LANES)
    return vectors if vectors < 3 else 3 if vectors % 3 == 0 and vectors % 2 else 2


def register_rows(vectors: int, target: Machine | None, d: DType, most: int = HEIGHT) -> int:
    """Rows of a tile of so many vectors for which there are registers, at most `most`."""
    _, registers, _ = machine(target)
    each = vectors * registers_of(d.size, target)  # registers of a row
    return max(1, min(most, (registers - each - 1) // each))


def _others(p: Problem, vectors: int) -> int:
    """How many pieces there are for each block of rows, if that is known: by columns and groups."""
    n, g = as_int(p.columns), as_int(p.groups)
    return 1 if n is None or g is None else max(1, g * (n // (2 * vectors * LANES)))


def _along_k(p: Problem) -> bool:
    """Whether `a` is read along k: where it is dense along k, or along neither k nor m."""
    k, m = p.walk("k", "a"), p.walk("m", "a")
    if as_int(m.step) != 1 or not m.extents:
        return True
    if as_int(k.step) != 1 or not k.extents:
        return False
    run_k, run_m = as_int(k.run), as_int(m.run)
    return run_k is None or run_m is None or run_k >= min(run_m, LANES)


def most_columns(p: Problem, t: Tile, target: Machine | None) -> int:
    """The most columns of a piece: for them a chunk of b takes half of L2."""
    chunk = (as_int(p.depth(p.chunks.longest)) or 1) * p.packed.size * t.columns  # of a panel
    return max(1, machine(target)[2] // 2 // chunk) * t.columns


def pieces(p: Problem, t: Tile, target: Machine | None) -> tuple[Expr, Expr]:
    """(parts of the panels, blocks of the tiles): a piece is one part by one block, and all are about equal.

    A chunk of b for a piece's columns takes at most half of L2. Where extents are known, `_shared` weighs what each piece
    packs and reads against how evenly threads share the pieces. Where they are open, a piece has as many columns as L2 allows,
    fewer if there would be too few pieces; and all rows, or several blocks of them where all of b for its columns does not
    stay in L2: then a chunk of b is used more often while it is there.
    """
    chosen = t.schedule
    m, n, g, k = (as_int(x) for x in (p.rows, p.columns, p.groups, p.chunks.positions))
    panels, rows = as_expr(cdiv(p.columns, t.columns)), p.rows
    if m and n and g and k and not (chosen.panels and chosen.blocks):
        blocks, parts = _shared(p, t, target, m, n, k)
        parts = cdiv(panels, chosen.panels) if chosen.panels else parts
        return as_expr(parts), as_expr(cdiv(rows, chosen.blocks * t.block) if chosen.blocks else blocks)
    size, l2 = p.bytes, machine(target)[2]
    most = most_columns(p, t, target) // t.columns
    high = as_expr(cdiv(rows, t.block)) * p.groups
    wanted = cdiv(as_expr(PIECES), maximum(high, 1))  # parts that the columns should be cut into
    wide = const(chosen.panels) if chosen.panels else minimum(maximum(as_expr(panels // wanted), 1), most)
    parts = as_expr(cdiv(panels, wide))
    if chosen.blocks:
        return parts, as_expr(cdiv(rows, chosen.blocks * t.block))
    several: Expr = minimum(maximum(as_expr(high * parts // PIECES), 1), MOST_BLOCKS)
    stays = p.chunks.positions * wide * t.columns * size <= l2 // 2
    blocks = as_expr(cdiv(rows, select(stays, const(1), several) * t.block))
    even = minimum(cdiv(blocks, THREADS[-1]) * THREADS[-1], as_expr(cdiv(rows, t.rows)))  # as many for each thread
    return parts, select(blocks >= PIECES, even, blocks)


def _shared(p: Problem, t: Tile, target: Machine | None, m: int, n: int, terms: int) -> tuple[int, int]:
    """(blocks, parts) for which the last of several threads is done soonest, on average over `THREADS`. terms: of a sum.

    The cost of a choice, relative to the multiply-adds themselves: how uneven the threads' shares are, times one and what is
    moved for each multiply-add (packing a row costs `copy` for each part, reading b again costs `again` for each block); and
    `PIECE` for each piece.
    """
    terms = p.chunks.longest if t.waves else terms
    tiles, panels, groups = -(-m // t.rows), -(-n // t.columns), as_int(p.groups) or 1
    copy = ACROSS if t.tiled else COPY if p.border is None else 2 * COPY
    copy = 2 * READ if t.direct else copy
    most = most_columns(p, t, target) // t.columns

    def cost(blocks: int, parts: int) -> float:
        last = (_last(blocks, tiles, parts, panels, groups, x) * x for x in THREADS)
        uneven = sum(last) / (len(THREADS) * groups * panels * tiles)
        short = 1 if t.along_k or t.tiled else max(1.0, 3 * LANES * blocks / m)  # long runs of rows copy well
        again = NEAR if t.schedule.packed or t.waves else READ if t.direct_b and t.along_k else COPY
        moved = copy * short * parts / n + again * blocks / m
        return uneven * (1 + moved) + blocks * parts * PIECE / (m * n * terms)

    blocks = {-(-tiles // x) for x in range(1, min(tiles, t.schedule.high * MOST_BLOCKS) + 1)}
    blocks |= {x for x in (-(-b // THREADS[-1]) * THREADS[-1] for b in blocks) if x <= tiles}  # as many for each thread
    parts = {-(-panels // x) for x in range(1, min(panels, most) + 1)}
    return min(((b, c) for b in sorted(blocks, reverse=True) for c in sorted(parts, reverse=True)), key=lambda at: cost(*at))


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
