"""The plans of a register tile, and the choice among them: which operand is packed by whom, and how many tiles make a block.

    plan                 a, rows of results                  b, columns
    panel by panel       along k, read where it lies         packed by each piece, one panel at a time
    waves                along m, packed for one chunk       read where it lies, from L2
    rows side by side    along m, read where it lies         read where it lies, or packed by each piece
    columns by piece     along m, packed by each piece       packed by each piece
    windows              of an image, along m, packed        packed by a launch
    both packed          along m, packed tile by tile        packed by a launch
    transposed panels    either way                          dense along k: transposed by each piece
    b packed             either way                          packed by a launch
    own columns          either way                          packed by each piece, or read where it lies

Each plan says whether the operands allow it (`fits`) and whether it is worth while (`pays`), both as a reason why not; the
sizes it would have (`schedule`); and what it costs in counted operations and bytes (`cost`). The choice is the first in the
order of `PLANS` that fits and pays: the special ones first, since each of them saves a copy that those below it make. Where a
plan begins to pay was measured. Costs decide about the sizes within a plan (`sharing.py`), not between plans: they count what is
moved, and not how much of it hides behind arithmetic, and would take another plan in two of five problems of a wide grid. `table`
shows all plans of a problem, for whoever tunes; TENGEN_DEBUG=3 prints it. No plan changes a bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from tengen.base.config import config
from tengen.base.record import record
from tengen.kernels.contraction.matching import ROOM_OF_PANELS
from tengen.kernels.contraction.operands import (
    along_k,
    dense_columns,
    known,
    readable_along_k,
    readable_along_m,
    side_by_side,
    transposable,
)
from tengen.kernels.contraction.problem import Problem
from tengen.kernels.contraction.sharing import PACKED_COST, Sharing
from tengen.kernels.contraction.tile import (
    BRIEF_TILE_ROWS,
    MOST_BLOCK_TILES,
    MOST_TILE_ROWS,
    PITCH_PAD_ELEMENTS,
    Register,
    Tile,
    chunk_depth,
    fits,
    leaves_half,
    readable_columns,
    register_rows,
    sized,
    unrolled,
    vectors_of,
    vectors_of_few_rows,
)
from tengen.kernels.lowering import Lowering
from tengen.kernels.machine import ENOUGH_PIECES, Machine, machine
from tengen.loops.lang import LANES, as_int

ROWS_BYTES = 54 << 10  # bytes of scratch memory of a piece's rows, and of the panels it packs, beside tables of its rows
MOST_BLOCK_ROWS = 96  # rows of a block
MOST_ROWS_ALONG_M = 12  # rows of a tile, at most, where rows are packed along m: four tiles are whole vectors
ALIGNED_ROWS = 8  # rows of a tile that reads rows packed along m in runs: no cache line is shared unevenly between two tiles
ALIGNED_BLOCK_TILES = 16  # tiles of a block of ALIGNED_ROWS rows each, whose rows are packed along m: long runs copy well
WAVE_BLOCK_TILES = 4  # tiles of a block in waves, which is packed for one chunk: it stays in L1, beside a panel
TILED_BLOCK_BYTES = 128 << 10  # bytes of a block, at most, whose rows are packed tile by tile
WAVE_MULTIPLY_ADDS = 1 << 22  # of a chunk, at least, for which threads may wait for each other

# Rows of results, at most or at least, by what was measured; each is a number of the highest tiles.
FEW_PANEL_ROWS, MOST_PANEL_ROWS = 8 * MOST_TILE_ROWS, 32 * MOST_TILE_ROWS  # whose pieces pack b panel by panel
MOST_COPIED_ROWS, MOST_DIRECT_COPIED_ROWS = 2048, MOST_BLOCK_TILES * ALIGNED_ROWS  # whose pieces pack their columns of b
MOST_TRANSPOSED_ROWS = 4 * MOST_TILE_ROWS  # whose pieces transpose their columns of b: for more a launch is quicker
FEW_OWN_ROWS, FEW_DIRECT_ROWS = 8 * MOST_TILE_ROWS, 16 * MOST_TILE_ROWS  # for which no launch packs b
WIDE_MATCHED_TERMS = 512  # of a chunk, from which on pairs are matched for panels of two vectors: rows are turned half as often
MOST_ROWS_BY_PARTS = 5  # of bytes that several instructions multiply and add: products need registers beside the totals
FEW_TILED_ROWS = 10 * MOST_TILE_ROWS  # that are read where they lie because they are few
LOW_TILE_ROWS = MOST_TILE_ROWS // 2  # of a tile of one vector, at most, for which b is read so often that it has to lie in L1 densely
FEW_LOW_ROWS, FEW_LOW_COLUMNS = 2 * MOST_TILE_ROWS, 4 * LANES  # for which such tiles read b where it lies nevertheless


class Facts:
    """What plans ask of a problem on a target.

    Attributes:
        p: the problem. target: the machine. invariant: the problem is solved in every iteration of a loop with the same b,
            which is then packed once. waves: the pieces may go through the chunks in waves, and it pays (`in_waves`).
        m, n, k: rows, columns and terms, where they are known.
        vectors, most: the tile's vectors, and how many rows of them registers hold. tiles: of rows. rows: of a tile, so that
            tiles are about equal.
    """

    def __init__(self, p: Problem, target: Machine | None, invariant: bool = False, waves: bool = False):
        self.p, self.target, self.invariant, self.waves = p, target, invariant, waves
        self.m, self.n, self.k = (as_int(x) for x in (p.rows, p.columns, p.chunks.positions))
        self.known, self.l2 = known(p), machine(target)[2]
        self.along_k, self.side_by_side = along_k(p), side_by_side(p)
        # Where a vector takes several registers, a panel of one and a half is better than two of one, if there are registers for two rows.
        two = leaves_half(p, 2, target) and register_rows(2, target, p.compute, half=True) > 1
        self.vectors = 2 if two else vectors_of(self.n, target, p.compute)
        if p.format.matched:
            self.vectors = 2 if p.chunks.longest >= WIDE_MATCHED_TERMS and (self.n or LANES) > LANES else 1
        if p.b.constant and p.format.group == 1 and self.m and self.n:  # such a b is packed once, as wide as it may be
            self.vectors = max(self.vectors, vectors_of_few_rows(self.m, self.n, target, p.compute))
        tall = MOST_TILE_ROWS if self.along_k or self.side_by_side else MOST_ROWS_ALONG_M
        if self.n is None:
            tall = BRIEF_TILE_ROWS
        if p.format.matched or (p.format.group == 4 and target is not None and not target.computes(p.format.op, at_once=True)):
            tall = min(tall, MOST_ROWS_BY_PARTS)
        self.most = register_rows(self.vectors, target, p.compute, tall, leaves_half(p, self.vectors, target))
        self.tiles = 1 if self.m is None else max(1, -(-self.m // self.most))
        self.rows = self.most if self.m is None else max(1, -(-self.m // self.tiles))
        if p.format.quads:  # of pairs of rows, half of one is for nothing
            self.rows = min(self.rows + self.rows % 2, self.most)

    @cached_property
    def direct_b(self) -> bool:
        """Whether b can be read where it lies."""
        return readable_columns(self.p, self.vectors)

    @cached_property
    def dense_b(self) -> bool:
        """Whether b is dense along its columns."""
        return dense_columns(self.p)

    @property
    def low(self) -> bool:
        """Whether tiles are low (16 registers of 32 bytes hold 6 rows of one vector), and pay the packing of a b that they could read where
        it lies: a vector of b is read for few multiply-adds, and each position of k is another cache line, often on another page."""
        few = (self.m or 0) <= FEW_LOW_ROWS or (self.n or 0) <= FEW_LOW_COLUMNS
        return self.vectors == 1 and self.most <= LOW_TILE_ROWS and self.direct_b and not few

    @property
    def aligned(self) -> bool:
        """Whether tiles of ALIGNED_ROWS rows are all rows."""
        return self.m is not None and self.m % ALIGNED_ROWS == 0 and self.most >= ALIGNED_ROWS

    @property
    def out_of_l2(self) -> bool:
        """Whether both operands, where rows of `a` lie side by side, are used often and are larger than L2: each cache line
        that a tile reads of them is on a page of its own, while packed ones are two streams that stay in L1."""
        m, n, k = self.m or 0, self.n or 0, self.k or 0
        often = m > FEW_TILED_ROWS and 2 * n > FEW_TILED_ROWS
        return self.side_by_side and often and (m + n) * k * self.p.compute.size > self.l2

    @property
    def b_in_l2(self) -> bool:
        """Whether all of b takes at most half of L2: then many rows of results can read it where it lies in less time than a
        launch takes to pack it."""
        return self.n is not None and self.k is not None and 2 * self.k * self.n * self.p.compute.size <= self.l2

    def tiled_high(self) -> int:
        """Tiles of a block whose rows are packed tile by tile."""
        return max(1, min(MOST_BLOCK_TILES, TILED_BLOCK_BYTES // (self.rows * chunk_depth(self.p) * self.p.compute.size)))

    def high(self, own_columns: bool = False) -> int:
        """Tiles of a block whose rows are packed to scratch memory: as many as there is room for. own_columns: beside a panel
        of b, unless that is read where it lies."""
        p, depth = self.p, chunk_depth(self.p)
        panel = depth * self.vectors * LANES * p.bytes if own_columns and not self.direct_b else 0
        panel += ROOM_OF_PANELS * depth * self.rows if p.format.matched else 0  # rows of a tile once more, turned
        room = (ROWS_BYTES - self.rows * self.vectors * LANES * p.compute.size - panel) // p.bytes
        most = room // (depth + PITCH_PAD_ELEMENTS) if self.along_k else room // depth // LANES * LANES
        return max(1, min(most, MOST_BLOCK_ROWS) // self.rows)

    def even(self, high: int) -> int:
        """Tiles of a block, at most `high`, so that blocks are about equal, and so many that there are pieces enough."""
        if self.m is None:
            return high
        fewest = 1 if self.along_k else max(1, 3 * LANES // self.rows)  # long runs of rows copy well
        n, g = as_int(self.p.columns), as_int(self.p.groups)
        others = 1 if n is None or g is None else max(1, g * (n // (2 * self.vectors * LANES)))  # pieces by columns and groups
        blocks = max(-(-self.tiles // high), min(-(-self.tiles // fewest), -(-ENOUGH_PIECES // others)))
        return -(-self.tiles // blocks)


@record(frozen=True)
class Cost:
    """What a schedule costs, counted for all groups.

    Attributes:
        multiply_adds: of vectors, with those of rows and columns past the last. copied: elements that are packed, by launches
            and by pieces. moved: bytes that are read from the operands and written to packed ones. weighed: all of it in
            multiply-adds of one lane, with what uneven shares of threads cost (`Sharing.cost`).
    """

    multiply_adds: int
    copied: int
    moved: int
    weighed: float

    def __str__(self) -> str:
        counts = f"{self.multiply_adds:.3g} vector multiply-adds, {self.copied:.3g} elements packed, {self.moved:.3g} bytes moved"
        return f"{counts}, weighed {self.weighed:.3g}"


class Plan:
    """One way to compute a problem with a register tile."""

    name = ""

    def fits(self, f: Facts) -> str:
        """Why the operands do not allow it; "" if they do."""
        raise NotImplementedError(f"{type(self).__name__} needs fits()")

    def pays(self, f: Facts) -> str:
        """Why it is not worth while, for a problem that it fits; "" if it is."""
        raise NotImplementedError(f"{type(self).__name__} needs pays()")

    def schedule(self, f: Facts) -> Register:
        """Its sizes."""
        raise NotImplementedError(f"{type(self).__name__} needs schedule()")

    def why_not(self, f: Facts) -> str:
        """Why it is not taken; "" if it fits and pays."""
        return self.fits(f) or self.pays(f)

    def cost(self, f: Facts) -> Cost | None:
        """What it costs; None where extents are open or 0."""
        return cost(f, self.schedule(f))


def _unless(*conditions: tuple[bool, str]) -> str:
    """The reason of the first condition that does not hold; "" if all do."""
    return next((why for holds, why in conditions if not holds), "")


class PanelByPanel(Plan):
    """Pieces pack their columns of b one panel at a time, which stays in L1, and read rows of `a` along k where they lie. A
    launch that packs b moves all of it through memory three times; with few rows of results, few pieces need the same columns.
    From MOST_PANEL_ROWS on a chunk of the rows does not stay in L2; a constant is packed but once."""

    name = "panel by panel"

    def fits(self, f: Facts) -> str:
        p = f.p
        whole = f.n is not None and f.n % (f.vectors * LANES) == 0 and p.format.group == 1
        return _unless(
            (f.known and p.border is None, "extents are open, or windows reach over a border"),
            (readable_along_k(p), "rows of a cannot be read along k where they lie"),
            (f.dense_b or whole, "columns of b are neither dense nor whole tiles"),
        )

    def pays(self, f: Facts) -> str:
        m, n, most = f.m or 0, f.n or 0, MOST_PANEL_ROWS * f.p.format.group
        return _unless(
            (not f.invariant and not f.p.b.constant, "b is packed once for many runs"),
            (not f.low, "tiles are low, and b would be read where it lies"),
            (FEW_PANEL_ROWS < m <= most, f"{m} rows are not in {FEW_PANEL_ROWS + 1}..{most}"),
            (n >= 2 * m, f"{n} columns are less than twice {m} rows"),
        )

    def schedule(self, f: Facts) -> Register:
        return Register(f.rows, f.vectors, _divisor(f.tiles, MOST_BLOCK_TILES), 1, 0, across=1)


class Waves(Plan):
    """All pieces compute one chunk of a long sum before any begins with the next: operands are read from memory once, and a
    chunk of b, which several pieces use, from L2."""

    name = "waves"

    def fits(self, f: Facts) -> str:
        return _unless(
            (not f.along_k and f.direct_b, "a is not dense along m, or b cannot be read where it lies"),
            (f.aligned, f"rows are not tiles of {ALIGNED_ROWS}"),
        )

    def pays(self, f: Facts) -> str:
        return "" if f.waves else "operands are not larger than caches, or a chunk has too little work, or is of a loop"

    def schedule(self, f: Facts) -> Register:
        return Register(ALIGNED_ROWS, f.vectors, _divisor((f.m or 0) // ALIGNED_ROWS, WAVE_BLOCK_TILES), 0, 0, across=1)


class RowsSideBySide(Plan):
    """Rows of `a` lie side by side: tiles read them where they lie, or packed tile by tile where their stride or dtype forbids
    it; b is read where it lies, or its columns are packed by pieces."""

    name = "rows side by side"

    def fits(self, f: Facts) -> str:
        return _unless(
            (f.side_by_side, "rows of a do not lie side by side"),
            (f.direct_b or (f.known and f.dense_b), "columns of b are not dense, or extents are open"),
        )

    def pays(self, f: Facts) -> str:
        return _unless(
            (not f.invariant, "b is packed once for many runs"),
            (not f.out_of_l2, "both operands are used often and larger than L2"),
            (not f.low, "tiles are low"),
            (f.direct_b or (f.m or 0) <= MOST_PANEL_ROWS, f"{f.m} rows use each packed column of b too seldom"),
        )

    def schedule(self, f: Facts) -> Register:
        high = MOST_BLOCK_TILES if readable_along_m(f.p) else f.tiled_high()
        return Register(f.rows, f.vectors, -(-f.tiles // -(-f.tiles // high)), 0, 0, across=1)


class ColumnsByPiece(Plan):
    """`a` is dense along m, which is several axes (pixels of an image): its rows are packed by pieces, and so are columns of b,
    since there are so few rows of results that few pieces need the same columns."""

    name = "columns by piece"

    def fits(self, f: Facts) -> str:
        return _unless(
            (f.known and f.p.border is None and f.p.format.group == 1, "extents are open, a border, or groups of terms"),
            (not f.along_k and not f.side_by_side, "rows of a are read along k, or lie side by side"),
            (f.dense_b, "columns of b are not dense"),
        )

    def pays(self, f: Facts) -> str:
        most = MOST_DIRECT_COPIED_ROWS if f.direct_b else MOST_COPIED_ROWS
        return _unless(
            (not f.invariant, "b is packed once for many runs"),
            ((f.m or 0) <= most, f"{f.m} rows are more than {most}"),
        )

    def schedule(self, f: Facts) -> Register:
        if f.aligned:
            return Register(ALIGNED_ROWS, f.vectors, _divisor((f.m or 0) // ALIGNED_ROWS, ALIGNED_BLOCK_TILES), 0, 0, across=1)
        return Register(f.rows, f.vectors, f.even(f.high()), 0, 0, across=1)


class Windows(Plan):
    """Windows of an image that reach over its border, dense along m: their rows are packed in long runs, b by a launch."""

    name = "windows"

    def fits(self, f: Facts) -> str:
        return _unless(
            (f.p.border is not None and not f.along_k, "no windows over a border that are dense along m"),
            (f.aligned, f"rows are not tiles of {ALIGNED_ROWS}"),
        )

    def pays(self, f: Facts) -> str:
        return ""

    def schedule(self, f: Facts) -> Register:
        return Register(ALIGNED_ROWS, f.vectors, _divisor((f.m or 0) // ALIGNED_ROWS, ALIGNED_BLOCK_TILES), 0, 1)


class BothPacked(Plan):
    """Rows of `a` lie side by side, and both operands are used often and larger than L2: pieces pack rows tile by tile, and a
    launch packs b."""

    name = "both packed"

    def fits(self, f: Facts) -> str:
        return "" if f.side_by_side else "rows of a do not lie side by side"

    def pays(self, f: Facts) -> str:
        return "" if f.out_of_l2 else "operands are few, or stay in L2"

    def schedule(self, f: Facts) -> Register:
        return Register(f.rows, f.vectors, f.even(f.tiled_high()), 0, 1)


class TransposedPanels(Plan):
    """b is dense along k, and the few rows of results are one block, so that no other piece needs a piece's columns: it
    transposes them itself. A constant is transposed once, by a launch."""

    name = "transposed panels"

    def fits(self, f: Facts) -> str:
        fits = f.known and f.p.border is None and transposable(f.p)
        return "" if fits else "b is not dense along k, extents are open, or windows reach over a border"

    def pays(self, f: Facts) -> str:
        return _unless(
            (not f.invariant and not f.p.b.constant, "b is packed once for many runs"),
            ((f.m or 0) <= MOST_TRANSPOSED_ROWS, f"{f.m} rows are more than {MOST_TRANSPOSED_ROWS}"),
        )

    def schedule(self, f: Facts) -> Register:
        return Register(f.rows, f.vectors, f.even(f.high(own_columns=True)), int(f.along_k), 0)


class PackedB(Plan):
    """A launch packs b. It pays where b is used by many rows, or again and again, or cannot be read along its columns, and soon where tiles
    are low. A constant is packed once, before the first run, and pays where more than one tile of rows reads it."""

    name = "b packed"

    def fits(self, f: Facts) -> str:
        return ""

    def pays(self, f: Facts) -> str:
        few = FEW_DIRECT_ROWS if f.direct_b else FEW_OWN_ROWS
        needed = f.invariant or f.low or as_int(f.p.walk("n", "b").step) != 1 or f.m is None or (f.p.b.constant and f.tiles > 1)
        if needed or (f.m > few and not (f.direct_b and f.b_in_l2)):
            return ""
        return f"{f.m} rows use each column of b too seldom, or b stays in L2"

    def schedule(self, f: Facts) -> Register:
        return Register(f.rows, f.vectors, f.even(f.tiled_high() if f.side_by_side else f.high()), int(f.along_k or f.p.format.matched), 1)


class OwnColumns(Plan):
    """Pieces pack their columns of b, or read them where they lie: what is left for few rows."""

    name = "own columns"

    def fits(self, f: Facts) -> str:
        return ""

    def pays(self, f: Facts) -> str:
        return ""

    def schedule(self, f: Facts) -> Register:
        return Register(f.rows, f.vectors, f.even(f.high(own_columns=True)), int(f.along_k), 0)


PLANS: Sequence[Plan] = (
    PanelByPanel(), Waves(), RowsSideBySide(), ColumnsByPiece(), Windows(), BothPacked(), TransposedPanels(), PackedB(),
    OwnColumns(),
)  # fmt: skip


def _divisor(n: int, most: int) -> int:
    """The largest divisor of n that is at most so large."""
    return next(x for x in range(min(n, most), 0, -1) if n % x == 0)


def in_waves(p: Problem, target: Machine | None) -> bool:
    """Whether pieces should go through the chunks of a long sum in waves, all of them one chunk before any begins the next. It
    pays where the operands are larger than twice L2, a chunk of b is at most a quarter of it, and a chunk has work enough."""
    m, n, k = as_int(p.rows), as_int(p.columns), as_int(p.chunks.positions)
    if m is None or n is None or k is None or p.g or p.border is not None or along_k(p):
        return False
    chunk, l2 = p.chunks.longest, machine(target)[2]
    if not readable_columns(p, vectors_of(n, target, p.compute)):
        return False
    large, stays = (m + n) * k * p.bytes > 2 * l2, n * chunk * p.bytes <= l2 // 4
    return large and stays and m * n * chunk >= WAVE_MULTIPLY_ADDS


def plan(f: Facts) -> Plan:
    """The plan that is taken: the first that fits and pays."""
    if f.p.format.group == 4:
        return next(x for x in PLANS if isinstance(x, PackedB))
    return next(x for x in PLANS if not x.why_not(f))


def rule(p: Problem, target: Machine | None, invariant: bool = False, waves: bool = False) -> Register:
    """The schedule of a problem by rule; arguments as of `Facts`."""
    f = Facts(p, target, invariant, waves)
    return _unrolled(f, plan(f))


def _unrolled(f: Facts, x: Plan) -> Register:
    """The sizes of a plan, with as many positions of k in a loop's body as pays."""
    s = x.schedule(f)
    return replace(s, unroll=unrolled(f.p, s, f.target))


def choose(lo: Lowering, p: Problem) -> Tile:
    """The sizes for a problem: as tuning found them, or by rule."""
    target, waves, invariant = lo.target, not lo.in_loop and in_waves(p, lo.target), lo.invariant(p.b)
    by_rule = rule(p, target, invariant, waves)

    def why_not(s: Register) -> str:
        # A state is packed in every run, but only once where a file has made it a constant: what is best differs.
        if s.packed != by_rule.packed and isinstance(p.b.id, tuple) and p.b.id[:1] == ("state",):
            return "b is a state, whose packing is by rule"
        return fits(p, s, target)

    if config.debug >= 3:
        print(table(p, target, invariant, waves))
    return sized(p, lo.choose(p.problem_key, by_rule, why_not), target, waves)


# ---- costs -------------------------------------------------------------------------------------------------------------------


def cost(f: Facts, s: Register) -> Cost | None:
    """What a schedule costs in counted operations and bytes; None where extents are open or 0."""
    p, groups = f.p, as_int(f.p.groups)
    if not (f.m and f.n and f.k and groups):
        return None
    t = sized(p, s, f.target, f.waves)
    sharing = Sharing.of(p, t, f.target)
    blocks, parts = sharing.cheapest()
    a, b = groups * f.m * f.k, groups * f.n * f.k
    launch = b if s.packed and not (f.invariant or p.b.constant) else 0  # elements that a launch reads, writes, and pieces read
    by_piece = (0 if t.direct else parts * a) + (0 if s.packed or t.direct_b else blocks * b)
    columns = sharing.panels * t.vectors if not t.narrow else -(-f.n // LANES)
    rows = f.m if t.exact else sharing.tiles * t.rows
    multiply_adds = groups * f.k * (columns * rows - (rows // 2 if t.half or t.narrow == LANES // 2 else 0))
    moved = parts * a + blocks * b + 2 * launch
    weighed = sharing.cost(blocks, parts) * f.m * f.n * f.k * groups + PACKED_COST * launch
    return Cost(multiply_adds, launch + by_piece, moved * p.bytes, weighed)


def table(p: Problem, target: Machine | None, invariant: bool = False, waves: bool = False) -> str:
    """All plans of a problem as lines of text: the one that is taken is marked, others say what they would cost, and why they
    are not taken."""
    f = Facts(p, target, invariant, waves)
    taken, lines = plan(f), [f"plans of {p.name}: {p.problem_key()}"]
    for x in PLANS:
        if why := x.fits(f):
            lines.append(f"  {x.name:18} does not fit: {why}")
            continue
        counted, why = x.cost(f), x.pays(f)
        end = "" if x is taken else f"; does not pay: {why}" if why else "; comes after"
        lines.append(f"{'*' if x is taken else ' '} {x.name:18} {_unrolled(f, x)}: {counted or 'extents are open'}{end}")
    return "\n".join(lines)
