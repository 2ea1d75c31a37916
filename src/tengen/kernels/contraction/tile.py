"""The sizes of a register tile, and of the blocks around it.

A schedule (`Register`) says what may be chosen: the tile's rows and vectors, how many tiles make a block, which operands are
packed by whom. `plans.py` makes one from the problem and the target, or tuning has found one; `sized` derives all other sizes
from it (`Tile`); `sharing.py` cuts the work into pieces. None of them changes a bit. Nothing here looks at a processor's name:
the number and width of registers and the sizes of caches decide.
"""

from __future__ import annotations

from typing import ClassVar

from tengen.base.dtype import DType
from tengen.base.record import record
from tengen.kernels.contraction.operands import at_one_distance, known, readable, side_by_side
from tengen.kernels.contraction.problem import Problem
from tengen.kernels.machine import Machine, machine, registers_of, too_large
from tengen.kernels.schedule import Schedule, outside
from tengen.loops.builder import as_expr
from tengen.loops.lang import LANES, Expr, Index, as_int, minimum

MOST_ROWS_BYTES = 256 << 10  # bytes of scratch memory, at most, of a piece's packed rows
MOST_TILE_ROWS, MOST_TILE_VECTORS = 14, 4  # rows and vectors of a tile at most
BUSY_REGISTERS = 8  # registers of sums that keep two units busy, whose multiply-adds take four cycles
UNROLLED_SUM_REGISTERS = 48  # registers of sums that the positions in a loop's body add to, by rule, at most: so many hide the loop
SMALL_TILE_ROWS = (4, 8)  # rows of the smaller tiles for the last rows, where the number of rows is open
BRIEF_TILE_ROWS = 8  # rows of the one tile of a brief kernel, at most: two vectors by 8 rows keep two FMA units busy
MOST_BLOCK_TILES = 64  # tiles of a block at most
MOST_WHOLE_TILES = 8  # whole tiles of columns, below which the last columns may have a narrower one
MOST_PIECE_BLOCKS = 4  # blocks of rows of a piece, at most
PITCH_PAD_ELEMENTS = LANES  # elements between two packed rows of `a`, so that rows begin in different cache sets


@record(frozen=True)
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
        "unroll": (1, 2, 4), "rows": tuple(range(1, MOST_TILE_ROWS + 1)), "vectors": (1, 2, 3, 4),
        "panels": (0, 1, 2, 4, 8, 16, 32), "high": (1, 2, 3, 4, 6, 8, 12, 16, 24), "packed": (0, 1), "across": (0, 1),
        "blocks": (0, 1, 2, 4), "along_k": (0, 1),
    }  # fmt: skip


@record(frozen=True)
class Tile:
    """The sizes of a register tile problem.

    Attributes:
        schedule: what was chosen. block: rows packed at a time. small: heights of smaller tiles, ascending. narrow: columns of the
            tile that the last columns have where it is narrower than the others, LANES or half of them; 0: it is as wide. pitch:
            elements from one packed row of `a` to the next, or from one position of k to the next where rows are packed along m.
        tall: the first `tall` tiles have `rows` rows, the others `apart` less, so that together they have exactly the rows there
            are. None: all have `rows`, and the last one what is left. apart: 1; 2 of rows that are multiplied in pairs, of even numbers.
        exact: whether no tile has rows past the last one. direct, direct_b: whether `a`, and b, are read where they lie.
        tiled: whether rows that are packed along m lie tile by tile: a tile then reads one stream of memory.
        waves: whether all pieces compute a chunk before any begins with the next.
        half: whether columns need one half of a row's last vector, and two rows share a vector of their sums (`leaves_half`).
        brief: whether the kernel is as little code as can be: one tile, and no prefetches but those of a packed panel. It is so where
            the number of columns is open, as in eager programs, which LLVM takes long to make, and whose numbers get a program of
            their own where they are met often.
    """

    schedule: Register
    block: int
    small: tuple[int, ...]
    narrow: int
    pitch: int
    tall: int | None = None
    exact: bool = False
    direct: bool = False
    direct_b: bool = False
    tiled: bool = False
    waves: bool = False
    brief: bool = False
    apart: int = 1
    half: bool = False

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

    def tile_pitch(self, depth: int) -> int:
        """Elements from one tile to the next where rows are packed tile by tile: the last vector of a tile ends past it."""
        return depth * self.pitch + LANES

    def row(self, tile: Index) -> Expr:
        """The first row of a tile."""
        if self.tall is None:
            return as_expr(tile * self.rows)
        taller = minimum(as_expr(tile), self.tall)
        return tile * (self.rows - self.apart) + (taller if self.apart == 1 else taller * self.apart)


def sized(p: Problem, s: Register, target: Machine | None, waves: bool = False) -> Tile:
    """The sizes that follow from a schedule. waves: whether pieces may go through the chunks in waves."""
    m, n = as_int(p.rows), as_int(p.columns)
    block = s.rows * s.high
    pitch = chunk_depth(p) + PITCH_PAD_ELEMENTS if s.along_k else -(-block // LANES) * LANES
    brief = n is None
    small = tuple(rows for rows in SMALL_TILE_ROWS if m is None and not brief and rows < s.rows)
    narrow = narrow_columns(p, s.vectors, s.rows, target)
    tiles = 1 if m is None else -(-m // s.rows)
    apart = 2 if p.format.quads and m is not None and (m | s.rows) % 2 == 0 else 1
    even = m is None or brief or m == tiles * s.rows or m < tiles * (s.rows - apart)
    tall = None if even else (m - tiles * (s.rows - apart)) // apart
    exact = m == tiles * s.rows or tall is not None
    direct_b = not s.packed and readable_columns(p, s.vectors)
    tiled = not s.along_k and side_by_side(p)
    waves = waves and direct_b and exact and not s.along_k
    direct = exact and p.border is None and not waves and readable(p, bool(s.along_k), narrow == LANES) and not (tiled and s.packed)
    tiled = tiled and not direct and not waves
    half, pitch = leaves_half(p, s.vectors, target), s.rows if tiled else pitch
    return Tile(s, block, small, narrow, pitch, tall, exact, direct, direct_b, tiled, waves, brief, apart, half)


def fits(p: Problem, s: Register, target: Machine | None) -> str:
    """Why the problem cannot have the schedule on this target; "" if it can."""
    limits = {name: (0, 1) for name in ("along_k", "packed", "across")}
    limits |= {"panels": (0, 1 << 12), "blocks": (0, MOST_PIECE_BLOCKS)}
    why = outside(s, rows=(1, MOST_TILE_ROWS), vectors=(1, MOST_TILE_VECTORS), high=(1, MOST_BLOCK_TILES), unroll=(1, 4), **limits)
    if why := why or too_large(s.rows, s.vectors, p.compute.size, target, leaves_half(p, s.vectors, target)):
        return why
    if p.format.group == 4 and not s.packed:
        return f"b is packed in groups of {p.format.group} by launches alone"
    if p.format.matched and not s.along_k:
        return "rows are brought into the order of matched pairs along k alone"
    if p.format.quads and not s.along_k:
        return "quads have both groups of a row, which lie beside each other along k alone"
    l2 = machine(target)[2]
    t = sized(p, s, target)
    rows = s.high * t.tile_pitch(chunk_depth(p)) if t.tiled else (t.block if t.along_k else chunk_depth(p)) * t.pitch
    rows *= p.bytes
    if rows > MOST_ROWS_BYTES:
        return f"{t.block} rows of a block need {rows} bytes of scratch memory, more than {MOST_ROWS_BYTES}"
    if not s.packed and s.panels > most_columns(p, t, target) // t.columns:
        return f"{s.panels} panels of b do not fit half of an L2 of {l2} bytes"
    return ""


# ---- what registers and caches hold ------------------------------------------------------------------------------------------


def vectors_of(n: int | None, target: Machine | None, d: DType) -> int:
    """Vectors of LANES columns of a tile, of n columns: one where such a vector takes several registers; else two, or three
    where two leave a vector empty."""
    if LANES * d.size > machine(target)[0]:
        return 1
    if n is None:
        return 2
    vectors = -(-n // LANES)
    return vectors if vectors < 3 else 3 if vectors % 3 == 0 and vectors % 2 else 2


def leaves_half(p: Problem, vectors: int, target: Machine | None) -> bool:
    """Whether so many vectors hold all columns, the last one in one half of its lanes, and a vector takes several registers, so that a half
    is whole registers."""
    n, several = as_int(p.columns), registers_of(p.compute.size, target) > 1
    return several and p.format.group == 1 and n is not None and 0 < n - (vectors - 1) * LANES <= LANES // 2


def vectors_of_few_rows(rows: int, n: int, target: Machine | None, d: DType) -> int:
    """Vectors of LANES columns of a tile, of n columns: as many as its sums take BUSY_REGISTERS registers for, at most MOST_TILE_VECTORS; or
    fewer, two or more, of which whole tiles have fewer columns of zeros."""
    vectors = -(-n // LANES)
    most = max(1, min(BUSY_REGISTERS // (rows * registers_of(d.size, target)), vectors, MOST_TILE_VECTORS))
    return min(range(most, min(2, most) - 1, -1), key=lambda v: -(-vectors // v) * v)


def register_rows(vectors: int, target: Machine | None, d: DType, most: int = MOST_TILE_ROWS, half: bool = False) -> int:
    """Rows of a tile of so many vectors, with half of the last one, for which there are registers, at most `most`: beside an accumulator
    for each row and vector, registers hold a row of b and an element of `a`."""
    _, registers, _ = machine(target)
    each = vectors * registers_of(d.size, target) - half * registers_of(d.size, target) // 2  # registers of a row
    return max(1, min(most, (registers - each - 1) // each))


def unrolled(p: Problem, s: Register, target: Machine | None) -> int:
    """Positions of k in a loop's body, by rule: several where one adds to few registers of sums, as where there are but 16. One where n is
    open, whose kernels are to be little code, of groups of terms, and of a tile with half a vector, which leaves no register free."""
    if as_int(p.columns) is None or p.format.group > 1 or leaves_half(p, s.vectors, target):
        return 1
    return unrolled_of(s.rows * s.vectors * registers_of(p.compute.size, target))


def unrolled_of(sums: int) -> int:
    """Positions in a loop's body, by rule, where each adds to so many registers of sums: 4, 2 or 1."""
    return next(x for x in (4, 2, 1) if x == 1 or x * sums <= UNROLLED_SUM_REGISTERS)


def chunk_depth(p: Problem) -> int:
    """Positions of the longest chunk, rounded up to whole vectors."""
    return -(-p.chunks.longest // LANES) * LANES


def has_narrow_tile(n: int | None, vectors: int) -> bool:
    """Whether the last of n columns have a tile that is one vector wide; not where n is open (None)."""
    return vectors > 1 and 0 < _last_columns(n, vectors) <= LANES


def narrow_columns(p: Problem, vectors: int, rows: int, target: Machine | None) -> int:
    """Columns of the tile that the last columns have, where it is narrower than the others; 0 where it is not. Half a vector of them where
    that is whole registers, and the sums of so many rows are more than keep two units busy: else half of them would take as long."""
    n, each = as_int(p.columns), registers_of(p.compute.size, target)
    last = _last_columns(n, vectors)
    if 0 < last <= LANES // 2 and (n or 0) > LANES and each > 1 and p.format.group == 1 and rows * each > BUSY_REGISTERS:
        return LANES // 2
    return LANES if has_narrow_tile(n, vectors) else 0


def _last_columns(n: int | None, vectors: int) -> int:
    """Columns of the last of the tiles of so many vectors that n columns have; 0 where it is whole, where n is open (None), and where there
    are so many tiles that code for another one is not worth while."""
    columns = vectors * LANES
    return n % columns if n is not None and n < MOST_WHOLE_TILES * columns else 0


def readable_columns(p: Problem, vectors: int) -> bool:
    """Whether tiles of so many vectors can read b where it lies: its columns are dense and whole vectors, so that nothing is
    read past the last one, and its rows have one stride."""
    n = as_int(p.columns)
    if not known(p) or n is None or n % LANES or not (n % (vectors * LANES) == 0 or has_narrow_tile(n, vectors)):
        return False
    return p.b.dtype is p.compute and p.format.group == 1 and at_one_distance(p, "n", "b")


def most_columns(p: Problem, t: Tile, target: Machine | None) -> int:
    """The most columns of a piece: for them a chunk of b takes half of L2."""
    chunk = (as_int(p.depth(p.chunks.longest)) or 1) * p.packed.size * t.columns  # of a panel
    return max(1, machine(target)[2] // 2 // chunk) * t.columns
