"""The register tiles of attention's kernels, and which keys a query sees.

A piece holds some lanes (queries, or keys) and goes through the others, the rows, in chunks (`blocks.py`):

    product:          numbers[row, lane] = sum over d of rows[row, d] * block[d, lane]                # vectors of lanes
    accumulate:       result[lane, e] += sum over rows of numbers[row, lane] * rows[row, e]           # vectors of features e
    accumulate_rows:  sums[row, e] += sum over lanes of numbers[row, lane] * lanes[lane, e]           # vectors of features e

Each of them keeps a tile of its results in registers, and each sum is one chain of fma in order of its terms. In the first a
tile has `rows` rows by `vectors` vectors of lanes, in the others some results by up to MOST_FEATURE_VECTORS vectors of
features.

With a causal mask, query t sees the keys 0 .. t + offset. Whole groups of lanes (`numerics.GROUP_LANES`) skip the rows that
none of them sees. What is skipped shows in the bits where numbers are not finite, so it does not depend on the size of tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from tengen.base.dtype import DType, bool_
from tengen.base.record import record
from tengen.kernels import numerics
from tengen.kernels.attention.blocks import Block, Blocks, Rows
from tengen.kernels.attention.sizes import Sizes
from tengen.kernels.contraction.problem import multiply_add
from tengen.kernels.lowering import Array, Lowering
from tengen.kernels.machine import machine, registers_of
from tengen.kernels.source import At
from tengen.loops.builder import Variable, as_expr
from tengen.loops.exponential import reduce_exponent
from tengen.loops.floats import format_of, polynomial, power_of_two
from tengen.loops.lang import LANES, Expr, Index, as_int, cast, cdiv, const, fma, maximum, minimum, ramp, select, splat
from tengen.loops.statements import Buffer

MOST_FEATURE_VECTORS = 4  # vectors of features of a tile of results, at most


@record(frozen=True)
class Matrix:
    """A matrix in memory, for a register tile: element (i, j) has the index `at` + i * `row` + j * `column` in `buffer`. Where
    it is read or stored by vectors, `column` is 1."""

    buffer: Buffer
    at: Expr
    row: int
    column: int = 1


class Tiles(Blocks):
    """Writes one kernel: the memory of a piece (`Blocks`), products by register tiles, and masks.

    Args:
        mask: (*groups, T, S), added to the scores, or bool and true where a key is seen; None: no mask.
        offset: query t sees the keys 0 .. t + offset; None: all.
        keys: whether lanes are keys (and rows queries). If not, lanes are queries.
        groups, lanes, z, dtype, whole: see `Blocks`.
    """

    def __init__(
        self, lo: Lowering, name: str, groups: Sequence[Index], lanes: Index, z: Sizes, dtype: DType, mask: Array | None,
        offset: Index | None, keys: bool, whole: bool = False,
    ):  # fmt: skip
        self.mask, self.offset, self.keys = mask, offset, keys
        last_first = offset is not None and not keys  # the last queries see most keys: pieces that take longest come first
        super().__init__(lo, name, groups, lanes, z, dtype, last_first, whole)

    # ---- products

    def product(
        self, r: Rows, b: Block, tile: tuple[Expr, int], n: Expr, to: Buffer, scale: float | None = None,
        largest: Sequence[Variable] = (),
    ) -> None:  # fmt: skip
        """to[row, lane] = scale * sum over d of r[row, d] * b[d, lane], for n rows and the lanes of a tile.

        Args:
            tile: (its first lane, counted from the block's first; how many vectors it has).
            largest: variables, one for each vector of the tile: they become the maximum of themselves and of what is stored.
        """
        k, z, (at, vectors) = self.k, self.z, tile

        def rows(j: Expr, high: int) -> None:
            base = [k.let(r.at + (j + i if r.exact else minimum(j + i, n - 1)) * r.pitch) for i in range(high)]
            acc = [[k.var(self.zero(), name="acc") for _ in range(vectors)] for _ in range(high)]
            with k.loop(0, r.features, name="d") as d:  # acc[i][v] += r[row j + i, d] * b[d, vector v of the tile's lanes]
                self._multiply(acc, r.buffer, [b + d for b in base], (b.buffer, d * z.wide + at * b.features))
            values = [[a.value if scale is None else k.let(a.value * scale) for a in row] for row in acc]
            for i, row in enumerate(values):
                for v, x in enumerate(row):
                    k.store(to, (j + i) * z.wide + v * LANES, x)
            if largest:
                with k.if_(j + high <= n):
                    for m, column in zip(largest, zip(*values)):
                        m.set(larger(m.value, _largest_of(column)))
                with k.else_():  # rows past the last one do not count
                    self.largest(to, j, n, largest)

        self._cut(n, z.rows, "row", rows)

    def largest(self, numbers: Buffer, first: Index, n: Expr, largest: Sequence[Variable]) -> None:
        """largest[v] = the maximum of largest[v] and of numbers[row, vector v of lanes] for the rows from `first` to n."""
        with self.k.loop(first, n, name="row") as j:
            for v, m in enumerate(largest):
                m.set(larger(m.value, self.k.load(numbers, j * self.z.wide + v * LANES, LANES)))

    def accumulate(self, b: Block, r: Rows, weights: Buffer, at: Expr, n: Expr, ratios: Buffer | None = None) -> None:
        """b[lane, e] = b[lane, e] * ratios[lane] + sum over n rows of weights[row, lane] * r[row, e], for the lanes of the tile
        that begins with lane `at` of the block."""
        k, z, pitch = self.k, self.z, -(-b.features // LANES) * LANES
        if not pitch:
            return
        most, across = self._results_of_tile(pitch)

        def tile(lane: Expr, high: int, e: Expr, across: int) -> None:
            sums = Matrix(b.buffer, k.let((at + lane) * pitch + e), pitch)
            by = None if ratios is None else [splat(k.load(ratios, lane + i)) for i in range(high)]
            self._accumulate(sums, (high, across), n, Matrix(weights, lane, 1, z.wide), Matrix(r.buffer, r.at + e, r.pitch), by)

        def lanes(lane: Expr, high: int) -> None:
            self._for_features(pitch, across, partial(tile, lane, high))

        self._cut(minimum(self.n - at, z.wide), most, "lane", lanes)

    def accumulate_rows(self, sums: Array, start: Expr, n: Expr, numbers: Buffer, r: Rows, lanes: tuple[Expr, Expr]) -> None:
        """sums[start + row, e] += sum over the lanes of a tile of numbers[row, lane] * r[lane, e], for n rows. Lanes that none
        of a group of rows sees are left out.

        Args:
            r: a row for each lane of the block. lanes: the tile's first lane, counted from the block's and from the group's.
        """
        k, z, (at, first) = self.k, self.z, lanes
        pitch = -(-r.features // LANES) * LANES
        if not pitch:
            return
        (most, across), base, dst = self._results_of_tile(pitch), self.base(sums, start, 0), k.write(sums)

        def rows(row: Expr, high: int) -> None:
            count = k.let(minimum(self.n - at, z.wide))
            if self.offset is not None:
                count = k.let(minimum(count, _last_of_group(start + row) + 1 + self.offset - first))

            def tile(e: Expr, across: int) -> None:
                there = Matrix(dst, k.let(base + row * pitch + e), pitch)
                by_lane = Matrix(r.buffer, r.at + at * r.pitch + e, r.pitch)
                self._accumulate(there, (high, across), count, Matrix(numbers, row * z.wide, z.wide), by_lane)

            self._for_features(pitch, across, tile)

        self._cut(n, most, "row", rows)

    def _results_of_tile(self, pitch: int) -> tuple[int, int]:
        """How many results, of `pitch` features each, a register tile of `_accumulate` has at most, and how many vectors of each: as many
        sums as a tile of scores, so that the fewest registers are loaded for a multiply-add."""
        target, size = self.lo.target, self.compute.size
        each, (_, registers, _) = registers_of(size, target), machine(target)

        def tile(across: int) -> tuple[int, int]:
            return min(LANES, max(1, self.z.rows * self.z.vectors // across)), across

        def loads(tile: tuple[int, int]) -> float:
            high, across = tile
            return (high + across * each) / (high * across * each)

        several = [tile(x) for x in range(min(pitch // LANES, MOST_FEATURE_VECTORS), 0, -1)]
        return min([t for t in several if (t[0] + 1) * t[1] * each < registers] or several[-1:], key=loads)

    def _cut(self, n: Expr, most: int, name: str, write: Callable[[Expr, int], None]) -> None:
        """Writes write(first, height) for tiles of n rows (or lanes), of at most `most` each. LANES of them are as few tiles as can be, with
        heights that differ by 1 at most. So no tile has rows of two groups, and where n is no multiple of LANES, the last tile has rows
        past the last one."""
        k, tiles = self.k, -(-LANES // most)
        low, rest = divmod(LANES, tiles)
        if not rest:
            with k.loop(0, n, low, name=name) as first:
                return write(first, low)
        with k.loop(0, cdiv(n * tiles, LANES), name="tile") as i:
            first = k.let(i * LANES // tiles)
            with k.if_((i + 1) * LANES // tiles - first > low):
                write(first, low + 1)
            with k.else_():
                write(first, low)

    def _for_features(self, pitch: int, most: int, tile: Callable[[Expr, int], None]) -> None:
        """Writes tile(feature, vectors) for all features, at most `most` vectors at a time."""
        whole = pitch // LANES
        with self.k.loop(0, whole // most * most * LANES, most * LANES, name="e") as e:
            tile(e, most)
        if whole % most:
            tile(const(whole // most * most * LANES), whole % most)

    def _accumulate(
        self, sums: Matrix, tile: tuple[int, int], n: Expr, numbers: Matrix, vectors: Matrix,
        ratios: Sequence[Expr] | None = None,
    ) -> None:  # fmt: skip
        """sums[i, v] = sums[i, v] * ratios[i] + sum over j < n of numbers[i, j] * vectors[j, v], for a tile that is kept in
        registers: tile = (results i, vectors v of each). Without `ratios` there is no such product."""
        k = self.k
        places = [[k.let(sums.at + i * sums.row + v * LANES) for v in range(tile[1])] for i in range(tile[0])]
        start = [[k.load(sums.buffer, p, LANES) for p in row] for row in places]
        if ratios is not None:
            start = [[x * y for x in row] for row, y in zip(start, ratios)]
        acc = [[k.var(x, name="acc") for x in row] for row in start]
        with k.loop(0, n, name="row") as j:  # acc[i][v] += numbers[i, j] * vectors[j, vector v]
            here = k.let(j * numbers.column + numbers.at)
            terms = [here + i * numbers.row for i in range(tile[0])]
            self._multiply(acc, numbers.buffer, terms, (vectors.buffer, j * vectors.row + vectors.at))
        for row, values in zip(places, acc):
            for p, a in zip(row, values):
                k.store(sums.buffer, p, a.value)

    def _multiply(self, acc: list, numbers: Buffer, places: Sequence[Expr], vectors: tuple[Buffer, Expr]) -> None:
        """Adds one term to each sum of a tile: acc[i][v] += numbers[places[i]] * vectors[v].

        Args:
            places: an index in `numbers` for each row of the tile. vectors: (buffer, index of the first vector in it).
        """
        k, there = self.k, self.k.let(vectors[1])
        xs = [k.load(vectors[0], there + v * LANES, LANES) for v in range(len(acc[0]))]
        for row, place in zip(acc, places):
            y = splat(k.load(numbers, place))
            for v, a in enumerate(row):
                a.set(multiply_add(y, xs[v], a.value))

    # ---- what is seen

    def rows_seen(self, count: Index) -> tuple[Expr, Expr]:
        """The rows, of `count`, that any lane of the piece sees: the first row of the first chunk, and the row where chunks
        end."""
        k, end = self.k, as_expr(count)
        if self.offset is None:
            return const(0), end
        if self.keys:
            group, chunk = numerics.GROUP_LANES, numerics.CHUNK_ROWS
            return k.let(maximum(self.first // group * group - self.offset, 0) // chunk * chunk), end
        return const(0), k.let(minimum(end, maximum(_last_of_group(self.first + self.n - 1) + 1 + self.offset, 0)))

    def seen(self, lane: Expr, row: Expr, n: Expr) -> Expr:
        """Whether the tile from `lane` on has to be computed for the n rows from `row` on: any lane of the GROUPs that its
        lanes lie in sees any of these rows. Looking at whole GROUPs makes the answer the same for tiles of any width: whether a
        hidden score is skipped or has weight 0 differs where a value is not finite."""
        if self.offset is None:
            return const(True, bool_)
        if self.keys:
            return _last_of_group(row + n - 1) + self.offset >= lane // numerics.GROUP_LANES * numerics.GROUP_LANES
        return _last_of_group(lane + (self.z.wide - 1)) + self.offset >= row

    def rows_of(self, lane: Expr, row: Expr, n: Expr) -> Expr:
        """How many of the n rows from `row` on are computed for the tile from `lane` on: keys after the last one that its
        a group of queries sees are left out."""
        return n if self.offset is None or self.keys else self.k.let(minimum(n, _last_of_group(lane) + 1 + self.offset - row))

    def by_width(self, write: Callable[..., None], at: Expr, *more: Expr) -> None:
        """Writes `write((at, vectors), *more)` for the tile from lane `at` of the block on, with one vector where the lanes
        that are left fit one; but where the number of lanes is not known, all tiles are of one width, which is less code."""
        lanes, z = as_int(self.lanes), self.z
        if z.vectors == 1 or lanes is None or not 0 < lanes % z.wide <= LANES:
            return write((at, z.vectors), *more)
        with self.k.if_(self.n - at > LANES):
            write((at, z.vectors), *more)
        with self.k.else_():
            write((at, 1), *more)

    def hide(self, scores: Buffer, lane: Expr, vectors: int, row: Expr, n: Expr) -> Expr:
        """Applies the masks to scores[row, lane]: adds the mask, and makes scores of keys that a query does not see -inf.
        Returns whether any score may have changed.

        Args:
            lane: the tile's first lane, counted from the group's first. row: the first of n rows, counted likewise.
        """
        k, z, hidden = self.k, self.z, const(float("-inf"), self.compute, LANES)
        if self.mask is not None:
            with k.loop(0, n, name="row") as j:
                for v in range(vectors):  # scores[row j, vector v] += mask[row + j, lanes of v]
                    at, x = k.let(j * z.wide + v * LANES), self._masked(self.mask, k.let(lane + v * LANES), k.let(row + j))
                    s = k.load(scores, at, LANES)
                    k.store(scores, at, select(x, s, hidden) if self.mask.dtype is bool_ else s + cast(x, self.compute))
        done = const(self.mask is not None, bool_)
        if self.offset is None:
            return done
        some = k.let(row + self.offset < lane + (z.wide - 1) if self.keys else lane + self.offset < row + n - 1)
        with k.if_(some), k.loop(0, n, name="row") as j:
            for v in range(vectors):  # scores[row j, vector v] = -inf where query + offset < key
                at, lanes, here = k.let(j * z.wide + v * LANES), ramp() + k.let(lane + v * LANES), splat(k.let(row + j))
                query, key = (here, lanes) if self.keys else (lanes, here)
                there = query + splat(as_expr(self.offset)) >= key
                k.store(scores, at, select(there, k.load(scores, at, LANES), hidden))
        return some | done

    def _masked(self, mask: Array, lane: Expr, row: Expr) -> Expr:
        """The mask of one row for 16 lanes from `lane` on."""
        left = self.k.let(maximum(minimum(self.lanes - lane, LANES), 0))
        coords = (row, lane) if self.keys else (lane, row)
        return splat(At((*self.g, *coords), len(self.g) + self.keys, left).load(self.k, mask))


def _last_of_group(lane: Expr) -> Expr:
    """The last lane of the group that a lane lies in."""
    return lane // numerics.GROUP_LANES * numerics.GROUP_LANES + (numerics.GROUP_LANES - 1)


def larger(x: Expr, y: Expr) -> Expr:
    """The larger of two numbers; x if y is NaN."""
    return select(y > x, y, x)


def _largest_of(xs: Sequence[Expr]) -> Expr:
    """The largest of some numbers, by `larger`."""
    while len(xs) > 1:
        xs = [*(larger(x, y) for x, y in zip(xs[::2], xs[1::2])), *xs[len(xs) // 2 * 2 :]]
    return xs[0]


def weight(x: Expr) -> Expr:
    """e^x for x <= 0, and 0 where the result would be less than the least normal number (that is decided by the rounded
    logarithm to base 2). It is `math.exp` without its steps for larger arguments and denormal results."""
    f = format_of(x)
    n, r, _ = reduce_exponent(maximum(x, numerics.LEAST_EXPONENT[f.dtype.size]))
    return (fma(r * r, polynomial("exp", r), r) + 1.0) * power_of_two(n, f)
