"""What the kernels of attention are made of: blocks of vectors turned so that they lie along the lanes, rows beside them, and
the register tiles between both.

A piece holds some queries (or keys) along the lanes and goes through chunks of keys (or queries), the rows. `product` makes a
number of each row and lane, `[row, lane]`; `accumulate` adds rows, weighted by such numbers, to `[feature, lane]`. Both are the
register tile of `microkernel.py`: numbers of rows are splat, lanes are vectors. Each sum is one chain of fma in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from tengen.base.dtype import DType, bool_
from tengen.kernels.axes import unflatten
from tengen.kernels.lowering import Array, KernelBuilder, Lowering, product
from tengen.kernels.problem import multiply_add
from tengen.kernels.schedule import Schedule, outside
from tengen.kernels.source import At
from tengen.kernels.tile import Machine, machine
from tengen.loops.builder import as_expr
from tengen.loops.lang import LANES, Buffer, Expr, Index, as_int, cast, cdiv, const, maximum, minimum, ramp, select, splat

ROWS = 64  # of a chunk. Part of the numerics contract: changing it changes bits.
GROUP = 2 * LANES  # lanes for which chunks are left out together, from the first on. Part of the numerics contract.
BLOCK_BYTES = 64 << 10  # of what lies along the lanes
STACK_BYTES = 256 << 10  # of the same, at most, where one tile is more
MOST_LANES = 8 * LANES  # of a piece
PIECES = 6  # as many as this are enough to share


@dataclass(frozen=True)
class Sizes(Schedule, kind="attention"):
    """rows, vectors: of the register tile: rows or features, by vectors of lanes. tiles: of a piece."""

    rows: int
    vectors: int
    tiles: int

    steps: ClassVar = {"vectors": (1, 2), "rows": (1, 2, 4, 8, 16), "tiles": (1, 2, 3, 4, 6, 8)}

    @property
    def lanes(self) -> int:
        """Lanes of a piece."""
        return self.tiles * self.wide

    @property
    def wide(self) -> int:
        """Lanes of a tile."""
        return self.vectors * LANES


def fits(s: Sizes, features: int, size: int, target: Machine | None) -> str:
    """Why a schedule cannot be on this target; empty if it can. Rows divide ROWS, and skipped lanes are whole tiles of a
    GROUP."""
    why = outside(s, rows=(1, 16), vectors=(1, 2), tiles=(1, MOST_LANES // LANES))
    if why or ROWS % s.rows:
        return why or f"{s.rows} rows do not divide {ROWS}"
    width, registers, _ = machine(target)
    if s.rows * s.vectors * max(1, LANES * size // width) >= registers:
        return f"a tile of {s.rows} rows by {s.vectors} vectors needs more than the {registers} registers of {width} bytes"
    held = s.lanes * features * size
    if s.lanes > LANES and held > STACK_BYTES:
        return f"{s.lanes} lanes need {held} bytes of scratch memory, more than {STACK_BYTES}"
    return ""


def choose(lo: Lowering, name: str, lanes: Array, rows: Array, features: int, size: int) -> Sizes:
    """The sizes of the kernel `name`, whose pieces are groups (..., lane, feature) of `lanes`: tuned, or by rule.

    Args: rows: (..., row, feature). features: how many numbers of `size` bytes there are for each lane.
    """
    groups = [as_int(d) for d in lanes.shape[:-2]]
    count = None if None in groups else prod(groups)  # type: ignore[arg-type]
    by_rule = rule(as_int(lanes.shape[-2]), count, features, size, lo.target)

    def meaning() -> str:
        arrays = "; ".join(f"{a.dtype} {list(a.shape)} by {list(a.strides)}" for a in (lanes, rows))
        return f"{name} of {arrays}, {features} features of {size} bytes"

    return lo.choose(meaning, by_rule, lambda s: fits(s, features, size, lo.target))


def rule(lanes: int | None, groups: int | None, features: int, size: int, target: Machine | None) -> Sizes:
    """The sizes for so many lanes and groups, where they are known, with `features` numbers of `size` bytes for each lane."""
    width, registers, _ = machine(target)
    each = max(1, LANES * size // width)
    narrow = each > 1 or (lanes is not None and lanes <= LANES) or 2 * LANES * features * size > STACK_BYTES
    vectors = 1 if narrow else 2
    most = (registers - vectors * each - 1) // (vectors * each)
    rows = next(r for r in (8, 4, 2, 1) if r <= most or r == 1)  # they divide ROWS
    wide = vectors * LANES
    tiles = max(1, min(MOST_LANES, BLOCK_BYTES // (size * max(features, 1))) // wide)
    if lanes is not None:
        there = -(-lanes // wide)
        blocks = max(-(-there // tiles), min(there, 1 if groups is None else -(-PIECES // max(groups, 1))), 1)
        tiles = -(-there // blocks)
    return Sizes(rows, vectors, max(1, tiles))


@dataclass
class Block:
    """Vectors of numbers along the lanes, `[feature, lane]` in scratch memory; `features` are whole tiles of rows."""

    buffer: Buffer
    features: int


@dataclass
class Rows:
    """Rows of an array in scratch memory, `pitch` apart."""

    array: Array
    buffer: Buffer
    pitch: int

    @property
    def features(self) -> int:
        """Numbers of a row."""
        n = as_int(self.array.shape[-1])
        assert n is not None
        return n


class Tiles:
    """Writes one kernel whose pieces are groups and blocks of lanes.

    Args:
        groups: the leading extents. lanes: how many there are. z: sizes. dtype: computed in. mask: (*groups, T, S) or None.
        offset: query t sees the keys 0..t + offset; None: all. keys: whether keys lie along the lanes, or queries.
    """

    def __init__(
        self, lo: Lowering, name: str, groups: Sequence[Index], lanes: Index, z: Sizes, dtype: DType, mask: Array | None,
        offset: Index | None, keys: bool,
    ):  # fmt: skip
        self.lo, self.groups, self.z, self.compute, self.mask, self.offset, self.keys = lo, groups, z, dtype, mask, offset, keys
        self.lanes = as_expr(lanes)
        k: KernelBuilder = lo.kernel(name)
        self.k = k
        blocks = as_expr(cdiv(self.lanes, z.lanes))
        piece = k.split(product(groups) * blocks)
        self.g = unflatten(k, k.let(piece // blocks), groups)
        self.first = k.let(piece % blocks * z.lanes)
        self.n = k.let(minimum(self.lanes - self.first, z.lanes))

    def zero(self) -> Expr:
        """A vector of zeros."""
        return const(0, self.compute, LANES)

    def base(self, a: Array, *coords: Index) -> Expr:
        """Where `a` has these coordinates in this piece's group."""
        return self.k.let(as_expr(a.index([*self.g, *coords])))

    # ---- memory

    def block(self, name: str, features: int) -> Block:
        """Scratch memory for a block of zeros."""
        n = max(1, -(-features // self.z.rows)) * self.z.rows
        b = Block(self.k.scratch(name, self.compute, n * self.z.lanes), features)
        with self.k.loop(0, n * self.z.lanes, LANES) as i:
            self.k.store(b.buffer, i, self.zero())
        return b

    def line(self, name: str, value: float) -> Buffer:
        """Scratch memory for one number of each lane, filled."""
        b = self.k.scratch(name, self.compute, self.z.lanes)
        with self.k.loop(0, self.z.lanes, LANES) as i:
            self.k.store(b, i, const(value, self.compute, LANES))
        return b

    def numbers(self, name: str) -> Buffer:
        """Scratch memory for a number of each row of a chunk and each lane of a tile."""
        return self.k.scratch(name, self.compute, ROWS * self.z.wide)

    def rows(self, name: str, a: Array) -> Rows:
        """Scratch memory for a chunk of rows of `a`."""
        pitch = -(-(as_int(a.shape[-1]) or 0) // LANES) * LANES
        return Rows(a, self.k.scratch(name, self.compute, ROWS * pitch + LANES), pitch)

    def turned(self, name: str, a: Array) -> Block:
        """The piece's vectors of `a` (..., lane, feature), as a block."""
        k, z, width = self.k, self.z, as_int(a.shape[-1]) or 0
        b = self.block(name, width)
        src, start, step = k.read(a), self.base(a, self.first, 0), a.strides[-1]
        with k.loop(0, self.n, name="lane") as i:
            here = k.let(start + i * a.strides[-2])
            for d, count in k.vector_loop(0, width, "d"):
                if count is None:
                    x = k.load(src, _along(here, d, step), LANES)
                    k.store(b.buffer, ramp() * z.lanes + (d * z.lanes + i), cast(x, self.compute))
                else:
                    with k.loop(d, width, name="d") as e:
                        k.store(b.buffer, e * z.lanes + i, cast(k.load(src, here + e * step), self.compute))
        return b

    def turn_back(self, b: Block, a: Array) -> None:
        """A block into the piece's vectors of `a` (..., lane, feature)."""
        k, z, step = self.k, self.z, a.strides[-1]
        dst, start = k.write(a), self.base(a, self.first, 0)
        with k.loop(0, self.n, name="lane") as i:
            here = k.let(start + i * a.strides[-2])
            for d, count in k.vector_loop(0, b.features, "d"):
                if count is None:
                    x = k.load(b.buffer, ramp() * z.lanes + (d * z.lanes + i), LANES)
                    k.store(dst, _along(here, d, step), cast(x, a.dtype))
                else:
                    with k.loop(d, b.features, name="d") as e:
                        k.store(dst, here + e * step, cast(k.load(b.buffer, e * z.lanes + i), a.dtype))

    def copy(self, r: Rows, start: Expr, n: Expr) -> None:
        """`n` rows from `start` on, zeros after the last one."""
        k, a = self.k, r.array
        src, base = k.read(a), self.base(a, start, 0)
        with k.loop(0, n, name="row") as i:
            here, there = k.let(base + i * a.strides[-2]), k.let(i * r.pitch)
            for d, count in k.vector_loop(0, r.features, "d"):
                k.store(r.buffer, there + d, cast(k.load(src, _along(here, d, a.strides[-1]), LANES, count), self.compute))
        with k.if_(n < ROWS), k.loop(n * r.pitch, ROWS * r.pitch, LANES) as i:
            k.store(r.buffer, i, self.zero())

    # ---- products

    def product(self, r: Rows, b: Block, at: Expr, n: Expr, to: Buffer, scale: float | None = None) -> None:
        """to[row, lane] = the sum over features of row times lane, for `n` rows and the tile of lanes from `at` on."""
        k, z = self.k, self.z
        with k.loop(0, n, z.rows, name="row") as j:
            base = k.let(j * r.pitch)
            acc = [[k.var(self.zero(), name="acc") for _ in range(z.vectors)] for _ in range(z.rows)]
            with k.loop(0, r.features, name="d") as d:
                self._multiply(acc, (r.buffer, base + d, r.pitch), (b.buffer, d * z.lanes + at))
            for i, row in enumerate(acc):
                for v, a in enumerate(row):
                    k.store(to, (j + i) * z.wide + v * LANES, a.value if scale is None else a.value * scale)

    def accumulate(self, b: Block, r: Rows, weights: Buffer, at: Expr, n: Expr, ratios: Sequence[Expr] = ()) -> None:
        """Adds to a tile of the block, after it is multiplied by `ratios`, the sum over `n` rows of row times weight."""
        k, z = self.k, self.z
        with k.loop(0, b.features, z.rows, name="e") as e:
            places = [[k.let((e + i) * z.lanes + at + v * LANES) for v in range(z.vectors)] for i in range(z.rows)]
            acc = []
            for row in places:
                before = [k.load(b.buffer, p, LANES) for p in row]
                acc.append([k.var(x * y, name="acc") for x, y in zip(before, ratios)] if ratios else [k.var(x) for x in before])
            with k.loop(0, n, name="row") as j:
                self._multiply(acc, (r.buffer, j * r.pitch + e, 1), (weights, j * z.wide))
            for row, values in zip(places, acc):
                for p, a in zip(row, values):
                    k.store(b.buffer, p, a.value)

    def _multiply(self, acc: list, rows: tuple[Buffer, Expr, int], vectors: tuple[Buffer, Expr]) -> None:
        """One term of every sum of a tile. `rows`: the buffer, where the first row's number lies, how far apart they are."""
        k, (buffer, at, pitch) = self.k, rows
        at, there = k.let(at), k.let(vectors[1])
        xs = [k.load(vectors[0], there + v * LANES, LANES) for v in range(self.z.vectors)]
        for r, row in enumerate(acc):
            y = splat(k.load(buffer, at + r * pitch))
            for v, a in enumerate(row):
                a.set(multiply_add(y, xs[v], a.value))

    # ---- what is seen

    def rows_seen(self, count: Index) -> tuple[Expr, Expr]:
        """The chunks of rows that the piece's lanes see any of: where the first begins, and where no more begin."""
        k, end = self.k, as_expr(count)
        if self.offset is None:
            return const(0), end
        if self.keys:
            return k.let(maximum(self.first // GROUP * GROUP - self.offset, 0) // ROWS * ROWS), end
        return const(0), k.let(minimum(end, maximum(_last(self.first + self.n - 1) + 1 + self.offset, 0)))

    def seen(self, lane: Expr, row: Expr, n: Expr) -> Expr:
        """Whether any of the `n` rows from `row` on is seen together with any lane of the tile from `lane` on, or of the groups
        that these lie in: where a value is not finite, hidden and left out differ, and that must not depend on a tile's width."""
        if self.offset is None:
            return const(True, bool_)
        if self.keys:
            return row + n - 1 + self.offset >= lane // GROUP * GROUP
        return _last(lane + (self.z.wide - 1)) + self.offset >= row

    def hide(self, scores: Buffer, lane: Expr, row: Expr, n: Expr) -> None:
        """Adds the mask, and makes scores of keys that are not seen -inf."""
        k, z, hidden = self.k, self.z, const(float("-inf"), self.compute, LANES)
        if self.mask is not None:
            with k.loop(0, n, name="row") as j:
                for v in range(z.vectors):
                    at, x = k.let(j * z.wide + v * LANES), self._masked(self.mask, k.let(lane + v * LANES), k.let(row + j))
                    s = k.load(scores, at, LANES)
                    k.store(scores, at, select(x, s, hidden) if self.mask.dtype is bool_ else s + cast(x, self.compute))
        if self.offset is None:
            return
        some = row + self.offset < lane + (z.wide - 1) if self.keys else lane + self.offset < row + n - 1
        with k.if_(k.let(some)), k.loop(0, n, name="row") as j:
            for v in range(z.vectors):
                at, lanes, here = k.let(j * z.wide + v * LANES), ramp() + k.let(lane + v * LANES), splat(k.let(row + j))
                query, key = (here, lanes) if self.keys else (lanes, here)
                there = query + splat(as_expr(self.offset)) >= key
                k.store(scores, at, select(there, k.load(scores, at, LANES), hidden))

    def _masked(self, mask: Array, lane: Expr, row: Expr) -> Expr:
        """The mask of a vector of lanes and one row."""
        left = self.k.let(maximum(minimum(self.lanes - lane, LANES), 0))
        coords = (row, lane) if self.keys else (lane, row)
        return splat(At((*self.g, *coords), len(self.g) + self.keys, left).load(self.k, mask))


def _last(lane: Expr) -> Expr:
    """The last lane of a lane's group."""
    return lane // GROUP * GROUP + (GROUP - 1)


def _along(base: Expr, i: Index, stride: Index) -> Expr:
    """The index of LANES elements, from the i-th on."""
    return base + i if as_int(stride) == 1 else ramp() * stride + (base + i * stride)
