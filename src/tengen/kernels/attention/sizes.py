"""How large the register tiles of attention's kernels are, and how many lanes a piece has: the schedule, and the rule for it.

In: extents of queries and keys, features, the target's registers. Out: `Sizes`. None of it changes a bit; the chunks and
groups of `numerics.py` do, and are the same for all sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import ClassVar

from tengen.base.record import record
from tengen.kernels.lowering import Array, Lowering
from tengen.kernels.machine import ENOUGH_PIECES, THREAD_COUNTS, Machine, machine, registers_of, too_large
from tengen.kernels.schedule import Schedule, outside
from tengen.loops.lang import LANES, Index, as_int

LANE_BLOCK_BYTES = 64 << 10  # bytes of what a piece holds in the lanes, by rule
MOST_LANE_BLOCK_BYTES = 256 << 10  # bytes of the same, at most, where one tile has more
MOST_LANES = 8 * LANES  # lanes of a piece, at most
MOST_RULE_ROWS = 8  # rows of a tile of scores, at most, by rule
TWO_PASS_PRODUCTS = 7 / 5  # products of two kernels for each product of one that makes all gradients


@record(frozen=True)
class Sizes(Schedule, kind="attention"):
    """The tile of scores that is kept in registers has at most `rows` rows by `vectors` vectors of lanes (`Tiles` cuts LANES rows into
    tiles of about equal heights); the lanes of a piece are `tiles` such tiles wide."""

    rows: int
    vectors: int
    tiles: int

    steps: ClassVar = {"vectors": (1, 2), "rows": (1, 2, 3, 4, 6, 8, 16), "tiles": (1, 2, 3, 4, 6, 8)}

    @property
    def lanes(self) -> int:
        """How many lanes (queries or keys) a piece has."""
        return self.tiles * self.wide

    @property
    def wide(self) -> int:
        """How many lanes (queries or keys) a tile has."""
        return self.vectors * LANES


def fits(s: Sizes, features: int, size: int, target: Machine | None) -> str:
    """Why a schedule cannot be used on this target; empty if it can. Its tile has to fit the registers, and what a piece holds for
    its lanes (`features` numbers of `size` bytes each) a thread's stack."""
    why = outside(s, rows=(1, 16), vectors=(1, 2), tiles=(1, MOST_LANES // LANES))
    if why := why or too_large(s.rows, s.vectors, size, target):
        return why
    held = s.lanes * features * size
    if s.lanes > LANES and held > MOST_LANE_BLOCK_BYTES:
        return f"{s.lanes} lanes need {held} bytes of scratch memory, more than {MOST_LANE_BLOCK_BYTES}"
    return ""


def choose(lo: Lowering, name: str, lanes: Array, rows: Array, features: int, size: int) -> Sizes:
    """The sizes of the kernel `name`: those that tuning found, or those of the rule.

    Args:
        lanes: (..., lane, feature), what lies in the lanes. rows: (..., row, feature), what lies in the rows.
        features: how many numbers, of `size` bytes each, a piece holds for each lane.
    """
    groups, target = [as_int(d) for d in lanes.shape[:-2]], lo.target
    count = None if None in groups else prod(groups)
    by_rule = rule(as_int(lanes.shape[-2]), count, features, size, target)

    def problem_key() -> str:
        arrays = "; ".join(f"{a.dtype} {list(a.shape)} by {list(a.strides)}" for a in (lanes, rows))
        return f"{name} of {arrays}, {features} features of {size} bytes"

    return lo.choose(problem_key, by_rule, lambda s: fits(s, features, size, target))


def features_of(*arrays: Array) -> int:
    """The extents of the arrays' last axes, added up."""
    return sum(as_int(a.shape[-1]) or 0 for a in arrays)


def rule(lanes: int | None, groups: int | None, features: int, size: int, target: Machine | None) -> Sizes:
    """The sizes for this many lanes and groups (None: not known), with `features` numbers of `size` bytes for each lane: as
    many rows as registers hold, lanes up to LANE_BLOCK_BYTES, but at least ENOUGH_PIECES pieces where there are lanes enough
    for that."""
    _, registers, _ = machine(target)
    each = registers_of(size, target)
    narrow = each > 1 or (lanes is not None and lanes <= LANES) or 2 * LANES * features * size > MOST_LANE_BLOCK_BYTES
    vectors = 1 if narrow else 2
    most = (registers - vectors * each - 1) // (vectors * each)
    rows = -(-LANES // -(-LANES // max(1, min(most, MOST_RULE_ROWS))))  # LANES rows are as few tiles as can be, of about equal heights
    wide = vectors * LANES
    tiles = max(1, min(MOST_LANES, LANE_BLOCK_BYTES // (size * max(features, 1))) // wide)
    if lanes is not None:
        there = -(-lanes // wide)
        blocks = max(-(-there // tiles), min(there, 1 if groups is None else -(-ENOUGH_PIECES // max(groups, 1))), 1)
        tiles = -(-there // blocks)
    return Sizes(rows, vectors, max(1, tiles))


def in_one_pass(groups: Sequence[Index]) -> bool:
    """Whether one kernel should compute all gradients, with whole groups as pieces. It needs five products where two kernels
    need seven, so it pays where threads can share the groups so evenly that the last one is done sooner."""
    known = [n for d in groups if (n := as_int(d)) is not None]
    n = prod(known)
    return len(known) == len(groups) and n > 0 and all(-(-n // x) * x <= TWO_PASS_PRODUCTS * n for x in THREAD_COUNTS)
