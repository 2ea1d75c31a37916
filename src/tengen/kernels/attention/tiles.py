"""What the kernels of attention are made of: blocks that lie in the lanes, rows, and the register tiles between both.

A piece holds some queries (or keys), transposed, in the lanes, and goes through chunks of keys (or queries), the rows:

    product:          numbers[row, lane] = the sum over d of rows[row, d] * block[d, lane]     # vectors of lanes
    accumulate:       result[lane, e] += the sum over rows of numbers[row, lane] * rows[row, e]  # vectors of e
    accumulate_rows:  sums[row, e] += the sum over lanes of numbers[row, lane] * keys[lane, e]   # vectors of e

Each of them is a register tile; each sum is one chain of fma in order. A tile is `rows` rows by `vectors` vectors of lanes.
With a causal mask, rows that none of a group of lanes sees (`numerics.GROUP_LANES`) are skipped, whatever the size of tiles.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import gcd, prod
from typing import ClassVar

from tengen.base.dtype import DType, bool_
from tengen.kernels import numerics
from tengen.kernels.axes import unflatten
from tengen.kernels.contraction.problem import multiply_add
from tengen.kernels.lowering import Array, KernelBuilder, Lowering, product
from tengen.kernels.machine import ENOUGH_PIECES, L1_SET_BYTES, THREAD_COUNTS, Machine, machine, registers_of, too_large
from tengen.kernels.schedule import Schedule, outside
from tengen.kernels.source import At
from tengen.loops.builder import Variable, as_expr
from tengen.loops.exponential import reduce_exponent
from tengen.loops.floats import format_of, polynomial, power_of_two
from tengen.loops.lang import LANES, Buffer, Expr, Index, as_int, cast, cdiv, const, fma, maximum, minimum, ramp, select, splat

LANE_BLOCK_BYTES = 64 << 10  # bytes of what a piece holds in the lanes, by rule
MOST_LANE_BLOCK_BYTES = 256 << 10  # bytes of the same, at most, where one tile has more
MOST_LANES = 8 * LANES  # lanes of a piece, at most
MOST_SCORE_TILE_ROWS = 16  # rows of a register tile, at most
TWO_PASS_PRODUCTS = 7 / 5  # products of two kernels for each product of one that makes all gradients
MOST_FEATURE_VECTORS = 4  # vectors of features of a tile of results, at most


@dataclass(frozen=True)
class Sizes(Schedule, kind="attention"):
    """rows, vectors: the register tile has `rows` rows by `vectors` vectors of lanes. tiles: tiles of lanes of a piece."""

    rows: int
    vectors: int
    tiles: int

    steps: ClassVar = {"vectors": (1, 2), "rows": (1, 2, 4, 8, 16), "tiles": (1, 2, 3, 4, 6, 8)}

    @property
    def lanes(self) -> int:
        """How many lanes (queries or keys) a piece has."""
        return self.tiles * self.wide

    @property
    def wide(self) -> int:
        """How many lanes (queries or keys) a tile has."""
        return self.vectors * LANES


def fits(s: Sizes, features: int, size: int, target: Machine | None) -> str:
    """Why a schedule cannot be on this target; empty if it can. Rows divide a chunk, and skipped lanes are whole tiles of a
    group."""
    why = outside(s, rows=(1, 16), vectors=(1, 2), tiles=(1, MOST_LANES // LANES))
    if why or numerics.CHUNK_ROWS % s.rows:
        return why or f"{s.rows} rows do not divide {numerics.CHUNK_ROWS}"
    if why := too_large(s.rows, s.vectors, size, target):
        return why
    held = s.lanes * features * size
    if s.lanes > LANES and held > MOST_LANE_BLOCK_BYTES:
        return f"{s.lanes} lanes need {held} bytes of scratch memory, more than {MOST_LANE_BLOCK_BYTES}"
    return ""


def choose(lo: Lowering, name: str, lanes: Array, rows: Array, features: int, size: int) -> Sizes:
    """The sizes of the kernel `name`, whose pieces are groups (..., lane, feature) of `lanes`: tuned, or by rule.

    Args: rows: (..., row, feature). features: how many numbers of `size` bytes there are for each lane.
    """
    groups = [as_int(d) for d in lanes.shape[:-2]]
    count = None if None in groups else prod(groups)  # type: ignore[arg-type]
    by_rule = rule(as_int(lanes.shape[-2]), count, features, size, lo.target)

    def problem_key() -> str:
        arrays = "; ".join(f"{a.dtype} {list(a.shape)} by {list(a.strides)}" for a in (lanes, rows))
        return f"{name} of {arrays}, {features} features of {size} bytes"

    return lo.choose(problem_key, by_rule, lambda s: fits(s, features, size, lo.target))


def features_of(*arrays: Array) -> int:
    """The extents of the arrays' last axes, added up."""
    return sum(as_int(a.shape[-1]) or 0 for a in arrays)


def rule(lanes: int | None, groups: int | None, features: int, size: int, target: Machine | None) -> Sizes:
    """The sizes for so many lanes and groups, where they are known, with `features` numbers of `size` bytes for each lane."""
    _, registers, _ = machine(target)
    each = registers_of(size, target)
    narrow = each > 1 or (lanes is not None and lanes <= LANES) or 2 * LANES * features * size > MOST_LANE_BLOCK_BYTES
    vectors = 1 if narrow else 2
    most = (registers - vectors * each - 1) // (vectors * each)
    rows = next(r for r in (8, 4, 2, 1) if r <= most or r == 1)  # they divide a chunk
    wide = vectors * LANES
    tiles = max(1, min(MOST_LANES, LANE_BLOCK_BYTES // (size * max(features, 1))) // wide)
    if lanes is not None:
        there = -(-lanes // wide)
        blocks = max(-(-there // tiles), min(there, 1 if groups is None else -(-ENOUGH_PIECES // max(groups, 1))), 1)
        tiles = -(-there // blocks)
    return Sizes(rows, vectors, max(1, tiles))


def in_one_pass(groups: Sequence[Index]) -> bool:
    """Whether one kernel, whose pieces are whole groups, should make all gradients: where threads share that many groups so
    evenly that the last one ends before two kernels would."""
    known = [n for d in groups if (n := as_int(d)) is not None]
    n = prod(known)
    return len(known) == len(groups) and n > 0 and all(-(-n // x) * x <= TWO_PASS_PRODUCTS * n for x in THREAD_COUNTS)


@dataclass
class Block:
    """What a piece holds in the lanes: scratch memory, tile after tile as [feature, lane]; or results as [lane, feature], where
    each lane's features are rounded up to whole vectors."""

    buffer: Buffer
    features: int


@dataclass
class Rows:
    """A chunk of rows of an array: copied into scratch memory, or read where they lie.

    Attributes:
        buffer, at, pitch: row i begins at element `at` + i * `pitch` of `buffer`. count: rows, at most. direct: whether they
            are read where they lie. exact: whether their number is always a multiple of a tile's rows.
    """

    array: Array
    buffer: Buffer
    pitch: int
    count: int
    exact: bool = True
    direct: bool = False
    at: Expr = const(0)

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
        whole: whether a piece has all lanes of its group, block after block.
    """

    def __init__(
        self, lo: Lowering, name: str, groups: Sequence[Index], lanes: Index, z: Sizes, dtype: DType, mask: Array | None,
        offset: Index | None, keys: bool, whole: bool = False,
    ):  # fmt: skip
        self.lo, self.groups, self.z, self.compute, self.mask, self.offset, self.keys = lo, groups, z, dtype, mask, offset, keys
        self.lanes = as_expr(lanes)
        k: KernelBuilder = lo.kernel(name)
        self.k, self.whole = k, whole
        if whole:
            self.g = unflatten(k, k.split(product(groups)), groups)
            return
        blocks = as_expr(cdiv(self.lanes, z.lanes))
        piece = k.split(product(groups) * blocks)
        self.g = unflatten(k, k.let(piece // blocks), groups)
        block = piece % blocks
        if offset is not None and not keys:  # the last queries see most keys: who begins with them ends with little
            block = blocks - 1 - block
        self._begin(k.let(block * z.lanes))

    def _begin(self, first: Expr) -> None:
        self.first, self.n = first, self.k.let(minimum(self.lanes - first, self.z.lanes))

    @contextlib.contextmanager
    def blocks(self) -> Iterator[None]:
        """What is written in here is done for each of the piece's blocks of lanes, in order."""
        if not self.whole:
            yield
            return
        with self.k.loop(0, self.lanes, self.z.lanes, name="block") as first:
            self._begin(first)
            yield

    def zero(self) -> Expr:
        """A vector of zeros."""
        return const(0, self.compute, LANES)

    def base(self, a: Array, *coords: Index) -> Expr:
        """Where `a` has these coordinates in this piece's group."""
        return self.k.let(as_expr(a.index([*self.g, *coords])))

    # ---- memory

    def results(self, name: str, features: int) -> Block:
        """Scratch memory for `[lane, feature]`, zeros."""
        n = -(-features // LANES) * LANES * self.z.lanes
        b = Block(self.k.scratch(name, self.compute, max(n, 1)), features)
        with self.k.loop(0, n, LANES) as i:
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
        return self.k.scratch(name, self.compute, numerics.CHUNK_ROWS * self.z.wide)

    def rows(self, name: str, a: Array, count: int = numerics.CHUNK_ROWS) -> Rows:
        """A chunk of rows of `a`."""
        there, features = as_int(a.shape[-2]), as_int(a.shape[-1]) or 0
        if self._direct(a):
            exact = there is not None and there % self.z.rows == 0
            return Rows(a, self.k.read(a), as_int(a.strides[-2]) or 0, count, exact, True)
        pitch = -(-features // LANES) * LANES
        return Rows(a, self.k.scratch(name, self.compute, count * pitch + LANES), pitch, count)

    def _direct(self, a: Array) -> bool:
        """Whether rows of `a` are read where they lie: whole vectors, and not all rows of a chunk in a few sets of a cache."""
        distance, features, size = as_int(a.strides[-2]), as_int(a.shape[-1]) or 0, a.dtype.size
        if a.dtype is not self.compute or as_int(a.strides[-1]) != 1 or distance is None or features % LANES:
            return False
        return gcd(distance * size, L1_SET_BYTES) <= 2 * features * size

    def sums(self, rows: Index, features: int) -> Array:
        """Zeros (..., row, feature), features in whole vectors and rows in whole tiles: in scratch memory if there are few."""
        k, pitch = self.k, -(-features // LANES) * LANES
        rows = as_expr(cdiv(rows, MOST_SCORE_TILE_ROWS) * MOST_SCORE_TILE_ROWS)
        known = as_int(rows)
        if known is not None and known * pitch * self.compute.size <= LANE_BLOCK_BYTES:
            a = Array("sums", self.compute, (*self.groups, rows, pitch), (*[0] * len(self.groups), pitch, 1))
            k.local[a.id] = k.scratch("sums", self.compute, known * pitch)
        else:
            a = self.lo.temp(self.compute, (*self.groups, rows, pitch))
        dst, start = k.write(a), self.base(a, 0, 0)
        with k.loop(0, rows * pitch, LANES) as i:
            k.store(dst, start + i, self.zero())
        return a

    def transposed(self, name: str, a: Array) -> Block:
        """The piece's vectors of `a` (..., lane, feature), as a block of tiles `[feature, lane]`; past the last one, that
        again."""
        k, z, width = self.k, self.z, as_int(a.shape[-1]) or 0
        b, whole = Block(k.scratch(name, self.compute, max(width, 1) * z.lanes), width), width // LANES * LANES
        src, start, last = k.read(a), self.base(a, self.first, 0), k.let(self.n - 1)

        def square(lane: Expr, d: Index, count: int) -> None:
            xs = []
            for i in range(LANES):
                here = start + minimum(lane + i, last) * a.strides[-2]
                xs.append(k.load(src, _vector_index(here, d, a.strides[-1]), LANES, None if count == LANES else const(count)))
            there = k.let(lane // z.wide * (z.wide * width) + lane % z.wide + d * z.wide)
            for i, x in enumerate(k.transpose([cast(x, self.compute) for x in xs])[:count]):
                k.store(b.buffer, there + i * z.wide, x)

        with k.loop(0, cdiv(self.n, z.wide) * z.wide, LANES, name="lane") as lane:
            with k.loop(0, whole, LANES, name="d") as d:
                square(lane, d, LANES)
            if whole < width:
                square(lane, whole, width - whole)
        return b

    def finish(self, b: Block, a: Array, factor: Callable[[Expr], Expr]) -> None:
        """Results, multiplied by factor(lane), into the piece's vectors of `a` (..., lane, feature)."""
        self._finish((b.buffer, const(0)), a, self.first, self.n, factor)

    def finish_sums(self, sums: Array, a: Array, factor: Expr) -> None:
        """The same for `sums`, of which the whole group is there."""
        self._finish((self.k.read(sums), self.base(sums, 0, 0)), a, const(0), as_expr(a.shape[-2]), lambda _: factor)

    def _finish(self, at: tuple[Buffer, Expr], a: Array, first: Expr, n: Expr, factor: Callable[[Expr], Expr]) -> None:
        k, features = self.k, as_int(a.shape[-1]) or 0
        pitch, (src, base) = -(-features // LANES) * LANES, at
        dst, start = k.write(a), self.base(a, first, 0)
        with k.loop(0, n, name="lane") as i:
            here, there, by = k.let(start + i * a.strides[-2]), k.let(base + i * pitch), k.let(splat(factor(i)))
            for d, count in k.vector_loop(0, features, "d"):
                x = k.load(src, there + d, LANES) * by
                k.store(dst, _vector_index(here, d, a.strides[-1]), cast(x, a.dtype), count)

    def copy(self, r: Rows, start: Expr, n: Expr) -> None:
        """Makes `r` the `n` rows from `start` on; where they are copied, with zeros after the last one."""
        k, a = self.k, r.array
        src, base = k.read(a), self.base(a, start, 0)
        if r.direct:
            r.at = base
            return
        with k.loop(0, n, name="row") as i:
            here, there = k.let(base + i * a.strides[-2]), k.let(i * r.pitch)
            for d, count in k.vector_loop(0, r.features, "d"):
                k.store(
                    r.buffer, there + d, cast(k.load(src, _vector_index(here, d, a.strides[-1]), LANES, count), self.compute)
                )
        with k.if_(n < r.count), k.loop(n * r.pitch, r.count * r.pitch, LANES) as i:
            k.store(r.buffer, i, self.zero())

    # ---- products

    def product(
        self, r: Rows, b: Block, tile: tuple[Expr, int], n: Expr, to: Buffer, scale: float | None = None,
        largest: Sequence[Variable] = (),
    ) -> None:  # fmt: skip
        """to[row, lane] = the sum over features of row times lane, for `n` rows and the `tile`: its first lane, and how many
        vectors. `largest`, a vector of each of these, becomes as large as they are."""
        k, z, (at, vectors) = self.k, self.z, tile
        with k.loop(0, n, z.rows, name="row") as j:
            base = [k.let(r.at + (j + i if r.exact else minimum(j + i, n - 1)) * r.pitch) for i in range(z.rows)]
            acc = [[k.var(self.zero(), name="acc") for _ in range(vectors)] for _ in range(z.rows)]
            with k.loop(0, r.features, name="d") as d:
                self._multiply(acc, r.buffer, [b + d for b in base], (b.buffer, d * z.wide + at * b.features))
            values = [[a.value if scale is None else k.let(a.value * scale) for a in row] for row in acc]
            for i, row in enumerate(values):
                for v, x in enumerate(row):
                    k.store(to, (j + i) * z.wide + v * LANES, x)
            if largest:
                with k.if_(j + z.rows <= n):
                    for m, column in zip(largest, zip(*values)):
                        m.set(larger(m.value, _fold(column)))
                with k.else_():
                    self.largest(to, j, n, largest)

    def largest(self, numbers: Buffer, first: Index, n: Expr, largest: Sequence[Variable]) -> None:
        """Makes `largest` as large as the numbers of rows `first` to `n`."""
        with self.k.loop(first, n, name="row") as j:
            for v, m in enumerate(largest):
                m.set(larger(m.value, self.k.load(numbers, j * self.z.wide + v * LANES, LANES)))

    def accumulate(self, b: Block, r: Rows, weights: Buffer, at: Expr, n: Expr, ratios: Buffer | None = None) -> None:
        """Adds to a tile of results, after it is multiplied by `ratios`, one of each of its lanes, the sum over `n` rows of row
        times weight. Here features lie along the vectors, and weights are splat."""
        k, z, pitch = self.k, self.z, -(-b.features // LANES) * LANES
        if not pitch:
            return
        high = self._high(pitch)

        def tile(lane: Expr, e: Expr, across: int) -> None:
            sums = k.let((at + lane) * pitch + e), pitch
            by = None if ratios is None else [splat(k.load(ratios, lane + i)) for i in range(high)]
            terms = (weights, lane, 1, z.wide), (r.buffer, r.at + e, r.pitch)
            self._accumulate(b.buffer, sums, (high, across), n, terms, by)

        with k.loop(0, minimum(self.n - at, z.wide), high, name="lane") as lane:
            self._across(pitch, high, partial(tile, lane))

    def accumulate_rows(self, sums: Array, start: Expr, n: Expr, numbers: Buffer, r: Rows, lanes: tuple[Expr, Expr]) -> None:
        """Adds to `n` rows of `sums`, from `start` on, the sum over a tile's lanes of `r`'s row of that lane times the number
        of row and lane. `lanes`: where the tile begins, in the block and of all; those that a group of rows does not see are
        left out."""
        k, z, (at, first) = self.k, self.z, lanes
        pitch = -(-r.features // LANES) * LANES
        if not pitch:
            return
        high, base, dst = self._high(pitch), self.base(sums, start, 0), k.write(sums)
        with k.loop(0, n, high, name="row") as row:
            count = k.let(minimum(self.n - at, z.wide))
            if self.offset is not None:
                count = k.let(minimum(count, _last(start + row) + 1 + self.offset - first))

            def tile(e: Expr, across: int, row: Expr = row, count: Expr = count) -> None:
                there = k.let(base + row * pitch + e), pitch
                terms = (numbers, row * z.wide, z.wide, 1), (r.buffer, r.at + at * r.pitch + e, r.pitch)
                self._accumulate(dst, there, (high, across), count, terms)

            self._across(pitch, high, tile)

    def _high(self, pitch: int) -> int:
        """How many results, of `pitch` features each, a register tile has; they divide a tile of lanes, and a group."""
        each = self.z.rows * self.z.vectors
        return 1 << ((each // min(pitch // LANES, MOST_FEATURE_VECTORS, each)).bit_length() - 1)

    def _across(self, pitch: int, high: int, tile: Callable[[Expr, int], None]) -> None:
        """Calls tile(feature, vectors) for all features, in steps of at most MOST_FEATURE_VECTORS vectors."""
        whole = pitch // LANES
        most = min(whole, MOST_FEATURE_VECTORS, self.z.rows * self.z.vectors)
        with self.k.loop(0, whole // most * most * LANES, most * LANES, name="e") as e:
            tile(e, most)
        if whole % most:
            tile(const(whole // most * most * LANES), whole % most)

    def _accumulate(
        self, to: Buffer, at: tuple[Expr, int], tile: tuple[int, int], n: Expr, terms: tuple[tuple, tuple],
        ratios: Sequence[Expr] | None = None,
    ) -> None:  # fmt: skip
        """Adds `n` terms to a register tile of results: result[i][v] += the sum over j of number[i, j] * vector[j][v].

        Args:
            to, at: results lie in `to`: at = (the element of the first one, elements from result to result).
            tile: (results, vectors of each). terms: two tuples. For the numbers: (buffer, the first element, elements from
                result to result, elements from term to term); for the vectors: (buffer, the first element, elements from term
                to term).
            ratios: what each result is multiplied by before.
        """
        k, (numbers, first, apart, further), (vectors, begin, pitch) = self.k, *terms
        places = [[k.let(at[0] + i * at[1] + v * LANES) for v in range(tile[1])] for i in range(tile[0])]
        acc = [[k.load(to, p, LANES) for p in row] for row in places]
        if ratios is not None:
            acc = [[x * y for x in row] for row, y in zip(acc, ratios)]
        sums = [[k.var(x, name="acc") for x in row] for row in acc]
        with k.loop(0, n, name="row") as j:
            here = k.let(j * further + first)
            self._multiply(sums, numbers, [here + i * apart for i in range(tile[0])], (vectors, j * pitch + begin))
        for row, values in zip(places, sums):
            for p, a in zip(row, values):
                k.store(to, p, a.value)

    def _multiply(self, acc: list, numbers: Buffer, places: Sequence[Expr], vectors: tuple[Buffer, Expr]) -> None:
        """Adds one term to every sum of a tile. places: the element of `numbers` for each row of the tile. vectors: (buffer,
        the element of the first vector)."""
        k, there = self.k, self.k.let(vectors[1])
        xs = [k.load(vectors[0], there + v * LANES, LANES) for v in range(len(acc[0]))]
        for row, place in zip(acc, places):
            y = splat(k.load(numbers, place))
            for v, a in enumerate(row):
                a.set(multiply_add(y, xs[v], a.value))  # acc[row][v] += number[row] * vector[v]

    # ---- what is seen

    def rows_seen(self, count: Index) -> tuple[Expr, Expr]:
        """The chunks of rows that the piece's lanes see any of: where the first begins, and where no more begin."""
        k, end = self.k, as_expr(count)
        if self.offset is None:
            return const(0), end
        if self.keys:
            group, chunk = numerics.GROUP_LANES, numerics.CHUNK_ROWS
            return k.let(maximum(self.first // group * group - self.offset, 0) // chunk * chunk), end
        return const(0), k.let(minimum(end, maximum(_last(self.first + self.n - 1) + 1 + self.offset, 0)))

    def seen(self, lane: Expr, row: Expr, n: Expr) -> Expr:
        """Whether any of the `n` rows from `row` on is seen together with any lane of the tile from `lane` on, or of the groups
        that these lie in: where a value is not finite, hidden and left out differ, and that must not depend on a tile's
        width."""
        if self.offset is None:
            return const(True, bool_)
        if self.keys:
            return _last(row + n - 1) + self.offset >= lane // numerics.GROUP_LANES * numerics.GROUP_LANES
        return _last(lane + (self.z.wide - 1)) + self.offset >= row

    def rows_of(self, lane: Expr, row: Expr, n: Expr) -> Expr:
        """How many of the `n` rows from `row` on the tile from `lane` on needs: keys after those that its group sees are left
        out."""
        return n if self.offset is None or self.keys else self.k.let(minimum(n, _last(lane) + 1 + self.offset - row))

    def by_width(self, write: Callable[..., None], at: Expr, *more: Expr) -> None:
        """Calls `write((at, vectors), *more)` for the tile from `at` on with as many vectors as it needs."""
        lanes, z = as_int(self.lanes), self.z
        if z.vectors == 1 or (lanes is not None and not 0 < lanes % z.wide <= LANES):
            return write((at, z.vectors), *more)
        with self.k.if_(self.n - at > LANES):
            write((at, z.vectors), *more)
        with self.k.else_():
            write((at, 1), *more)

    def hide(self, scores: Buffer, lane: Expr, vectors: int, row: Expr, n: Expr) -> Expr:
        """Adds the mask, and makes scores of keys that are not seen -inf. Returns whether there was anything to do."""
        k, z, hidden = self.k, self.z, const(float("-inf"), self.compute, LANES)
        if self.mask is not None:
            with k.loop(0, n, name="row") as j:
                for v in range(vectors):
                    at, x = k.let(j * z.wide + v * LANES), self._masked(self.mask, k.let(lane + v * LANES), k.let(row + j))
                    s = k.load(scores, at, LANES)
                    k.store(scores, at, select(x, s, hidden) if self.mask.dtype is bool_ else s + cast(x, self.compute))
        done = const(self.mask is not None, bool_)
        if self.offset is None:
            return done
        some = k.let(row + self.offset < lane + (z.wide - 1) if self.keys else lane + self.offset < row + n - 1)
        with k.if_(some), k.loop(0, n, name="row") as j:
            for v in range(vectors):
                at, lanes, here = k.let(j * z.wide + v * LANES), ramp() + k.let(lane + v * LANES), splat(k.let(row + j))
                query, key = (here, lanes) if self.keys else (lanes, here)
                there = query + splat(as_expr(self.offset)) >= key
                k.store(scores, at, select(there, k.load(scores, at, LANES), hidden))
        return some | done

    def _masked(self, mask: Array, lane: Expr, row: Expr) -> Expr:
        """The mask of a vector of lanes and one row."""
        left = self.k.let(maximum(minimum(self.lanes - lane, LANES), 0))
        coords = (row, lane) if self.keys else (lane, row)
        return splat(At((*self.g, *coords), len(self.g) + self.keys, left).load(self.k, mask))


def _last(lane: Expr) -> Expr:
    """The last lane of a lane's group."""
    return lane // numerics.GROUP_LANES * numerics.GROUP_LANES + (numerics.GROUP_LANES - 1)


def _vector_index(base: Expr, i: Index, stride: Index) -> Expr:
    """The index of LANES elements, from the i-th on."""
    return base + i if as_int(stride) == 1 else ramp() * stride + (base + i * stride)


def larger(x: Expr, y: Expr) -> Expr:
    """The larger one; x where y is a NaN."""
    return select(y > x, y, x)


def _fold(xs: Sequence[Expr]) -> Expr:
    """The largest of some numbers, NaNs apart."""
    while len(xs) > 1:
        xs = [*(larger(x, y) for x, y in zip(xs[::2], xs[1::2])), *xs[len(xs) // 2 * 2 :]]
    return xs[0]


def weight(x: Expr) -> Expr:
    """e^x of a number that is not above 0, and 0 where the rounded logarithm to base 2 is below that of the least normal
    number: `math.exp` without what it does for larger ones and for denormal results."""
    f = format_of(x)
    n, r, _ = reduce_exponent(maximum(x, numerics.LEAST_EXPONENT[f.dtype.size]))
    return (fma(r * r, polynomial("exp", r), r) + 1.0) * power_of_two(n, f)
