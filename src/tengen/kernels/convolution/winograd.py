"""Winograd convolutions: 3x3 filters, stride 1, computed tile by tile with fewer multiplications.

    launch 1: filter[panel, point, c, column] = transform of w[o, c, 3, 3]          # or only packed, see `depth`
    launch 2: for each piece = (some tiles of the image, some panels of output channels):
        image[point, tile, c] = transform of the tile's pixels                      # m + 2 by m + 2 pixels give as many points
        for panel of output channels:
            for point:
                products[point, tile, column] = the sum over c of image[point, tile, c] * filter[panel, point, c, column]
            out[tile, column] = transform of products[:, tile, column]              # m x m results

In: an image with dense channels, a filter, where the result goes. Everything between is scratch memory of a piece, which stays
in L2. A filter that one piece alone uses is transformed by it, a block of channels and a row of points at a time
(`multiply_here`).

The transforms are fixed expressions, the sums over channels follow `chunks.Chunks`, so the bits of a result depend on the
tile's size (F(2x2, 3x3) or F(4x4, 3x3)) alone, which is an attribute of the op. Integers of 8 bits have F(3x3, 3x3) and F(4x4, 3x3), which
are exact, so there they are no more than ways to compute `conv_int`. Source: Lavin and Gray, arXiv 1509.09308.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial

from tengen.base.dtype import bool_, uint8
from tengen.base.errors import Undecided
from tengen.base.record import record
from tengen.kernels import numerics
from tengen.kernels.axes import store_at, unflatten
from tengen.kernels.contraction.chunks import Chunks, unrolled_loop
from tengen.kernels.contraction.formats import DotFormat, dot_format
from tengen.kernels.convolution.winograd_filter import Filter
from tengen.kernels.convolution.winograd_sizes import MOST_IMAGE_BYTES, Blocks, fits, pitch_of, rule
from tengen.kernels.convolution.winograd_transforms import (
    FILTER_TAPS,
    INTEGER_TRANSFORMS,
    MOST_CHANNELS_OF_UINT8,
    MOST_INTEGER_CHANNELS,
    TRANSFORMS,
    TileTransform,
    Transform,
)
from tengen.kernels.lowering import Array, KernelBuilder, Lowering
from tengen.kernels.machine import ENOUGH_PIECES, registers_of
from tengen.kernels.source import At, Ending, costs
from tengen.loops.builder import as_expr
from tengen.loops.lang import LANES, Expr, Index, as_int, cast, cdiv, const, equal, maximum, minimum, select, splat
from tengen.loops.statements import Buffer

Epilogue = Callable[[KernelBuilder, Expr, At], Expr]

L1_FILTER_BYTES = 12 << 10  # bytes of the filter's points that a piece transforms at a time: they stay in L1
# Of `pays_in_integers`: multiplications that a transformed value costs, and reading a transformed weight; the least gain.
INTEGER_VALUE_COST, INTEGER_WEIGHT_COST, INTEGER_LEAST_GAIN = 4, 3, 1.05
OPEN_IMAGE_BYTES = 800 << 10  # of a piece's transformed tiles where the number of channels is open: as many as there is room for


# ---- the rule ------------------------------------------------------------------------------------------------------------


def pays(c: Index, o: Index, h: Index, w: Index) -> int:
    """How a convolution of c to o channels with h x w results is computed in the fewest operations: 2 or 4, the results of a
    tile along an axis, or 0 for a direct convolution.

    The cost is counted in multiplications. Reading a weight costs `WEIGHT_MULTIPLICATIONS` of them, computing a transformed
    value `VALUE_MULTIPLICATIONS`; with tiles of m there are (m + 2)^2 weights for each pair of channels, and as many values for
    each channel and tile. Winograd must be better by a factor of `WINOGRAD_LEAST_GAIN`. These constants, and nothing else,
    decide which bits a convolution has: they stand in `kernels/numerics.py`.
    """

    if c > numerics.WINOGRAD_MOST_CHANNELS or o > numerics.WINOGRAD_MOST_CHANNELS:
        return 0
    costs = {m: each * cdiv(h, m) * cdiv(w, m) + once for m, (each, once) in _costs(c, o).items()}
    best = 2 if costs[2] < costs[4] else 4
    gain = _gain()
    return best if costs[best] * gain.numerator < costs[1] * gain.denominator else 0


def _gain() -> Fraction:
    """`WINOGRAD_LEAST_GAIN` for costs in integers, which open extents are too."""
    return Fraction(numerics.WINOGRAD_LEAST_GAIN).limit_denominator(1000)


def _costs(c: Index, o: Index) -> dict[int, tuple[Index, Index]]:
    """What computing with tiles of m results along an axis costs: for each tile, and once; 1: a direct convolution."""
    pairs, across = c * o, sum(cdiv(n, LANES) * LANES for n in (c, o))
    direct = FILTER_TAPS * FILTER_TAPS * pairs
    costs = {1: (direct, direct * numerics.WEIGHT_MULTIPLICATIONS)}
    for m, t in TRANSFORMS.items():
        points = t.points**2
        costs[m] = points * (pairs + numerics.VALUE_MULTIPLICATIONS * across), points * pairs * numerics.WEIGHT_MULTIPLICATIONS
    return costs


def pays_for_any(c: int, o: int, h: Index, w: Index, values: tuple[int, int, int]) -> Index:
    """What `pays` says, as an expression of the results' extents: the first of three values where it says 0, the second where 2,
    the third where 4. What no extents make it say is not in it."""
    costs, gain = _costs(c, o), _gain()
    whole = {m: as_expr(each * cdiv(h, m) * cdiv(w, m) + once) for m, (each, once) in costs.items()}
    # An image has at least h w / m^2 tiles, and reading the weights alone costs more than for a direct convolution.
    may = [m for m, (each, _) in costs.items() if m > 1 and each * gain.numerator < costs[1][0] * m * m * gain.denominator]
    if not may or max(c, o) > numerics.WINOGRAD_MOST_CHANNELS:
        return values[0]
    least = minimum(whole[2], whole[4]) if len(may) == 2 else whole[may[0]]
    best = select(whole[2] < whole[4], const(values[1]), const(values[2])) if len(may) == 2 else const(values[1 + (may == [4])])
    return select(least * gain.numerator < whole[1] * gain.denominator, best, const(values[0]))


def pays_in_integers(c: Index, o: Index, h: Index, w: Index, terms: int) -> int:
    """How a convolution of an image of 8 bits by a filter of int8, of c to o channels with h x w results, takes the least time: 3 or 4, the
    results of a tile along an axis, or 0 for a direct one. That multiplies `terms` of a sum at a time, and tiles 2. Bits are the
    same. All extents have to be known."""
    c, o, h, w = [as_int(n) or 0 for n in (c, o, h, w)]
    if 0 in (c, o, h, w):
        return 0
    pairs, across = c * o, sum(-(-n // LANES) * LANES for n in (c, o))
    costs = {0: FILTER_TAPS * FILTER_TAPS * pairs * (h * w) / terms / INTEGER_LEAST_GAIN}
    for m, t in INTEGER_TRANSFORMS.items():
        if c <= MOST_INTEGER_CHANNELS[m]:
            each = pairs / 2 + INTEGER_VALUE_COST * across
            costs[m] = t.points**2 * (-(-h // m) * -(-w // m) * each + pairs * INTEGER_WEIGHT_COST)
    return min(costs, key=lambda m: costs[m])


# ---- the kernels -----------------------------------------------------------------------------------------------------------


def winograd(
    lo: Lowering, x: Array, w: Array, out: Array, outputs: int, padding: tuple[Index, Index], epilogue: Epilogue | None = None,
    name: str = "conv", format: DotFormat | None = None,
) -> None:  # fmt: skip
    """out[n, o, y, x] = the sum over i, j, c of x[n, c, y + i - padding, x + j - padding] * w[o, c, i, j], with zeros around.

    Shapes:   x (N, C, H, W), w (O, C, 3, 3) of any strides, out (N, O, *any); C is known, or there are at most
              `numerics.WINOGRAD_MOST_CHANNELS` of at most 4 bytes
    Args:
        outputs: 2 or 4 (of integers 3 or 4), of a tile along an axis: changes bits of floats. padding: may be negative, which crops.
        epilogue: makes what is stored from the value (in the dtype computed in) at coordinates of out; default: a cast.
        name: of the kernels. format: of the products; default: one by one, in x's dtype. "pairs of int16" is for images of 8 bits,
            filters of int8 and at most `MOST_INTEGER_CHANNELS[outputs]` channels, and exact: what stands there says why.
    Numerics: the filter is transformed along y, then along x, the image along x, then along y, products along y, then along x;
        sums over c by `Chunks((C,))`; float16 and bfloat16 in float32
    """
    if any(as_int(d) == 0 for d in out.shape):
        return
    format = format or dot_format(x.dtype)
    t = (TRANSFORMS if format.total.is_float else INTEGER_TRANSFORMS)[outputs]
    _Winograd(lo, x, w, out, t, padding, epilogue, name, format).launch()


@record(frozen=True)
class _Scratch:
    """Scratch memory of a piece: the transformed tiles, the sums of products, and results: a row of a tile's, or all of LANES channels."""

    image: Buffer
    products: Buffer
    results: Buffer


class _Winograd:
    """Writes the kernels of one convolution."""

    def __init__(
        self, lo, x: Array, w: Array, out: Array, t: Transform, padding, epilogue: Epilogue | None, name: str, format: DotFormat
    ):  # fmt: skip
        self.lo, self.x, self.out, self.t, self.padding, self.epilogue, self.format = lo, x, out, t, padding, epilogue, format
        self.grid = (out.shape[0], *(cdiv(d, t.outputs) for d in out.shape[2:]))  # image, row and column of a tile
        c, o, size, target = as_int(w.shape[1]), as_int(w.shape[0]), format.total.size, lo.target
        by_rule = rule(t.points, c, o, as_int(self.tiles), size, target)
        chosen = lo.choose(lambda: self.problem_key(w), by_rule, lambda s: fits(s, t.points, c, size, target))
        if c is None and size > 4:
            raise Undecided(f"{name}: tiles of an open number of channels in {out.dtype} may be too large for scratch memory")
        self.b = Blocks(chosen, pitch_of(w.shape[1]), OPEN_IMAGE_BYTES // (size * t.points**2))
        self.chunks = Chunks((w.shape[1],))
        self.f = Filter(lo, w, t, self.b.columns, format, f"{name}_filter")
        self.filter = self.f.made(not self.depth)
        centred = t is INTEGER_TRANSFORMS[4] and x.dtype is uint8 and (c is None or c > MOST_CHANNELS_OF_UINT8)
        self.middles = self.f.middles() if centred else None
        short = registers_of(size, target) == 1 and not (isinstance(epilogue, Ending) and costs(epilogue.final))
        self.in_registers = short and None not in map(as_int, out.shape[2:])  # whether a tile's results are, and are written out one by one
        self.k = lo.kernel(name)
        self.scratch = self._scratch()

    def problem_key(self, w: Array) -> str:
        """What is computed, as a text: the key under which tuning finds a schedule."""
        arrays = "; ".join(f"{a.dtype} {list(a.shape)} by {list(a.strides)}" for a in (self.x, w, self.out))
        how = f" in {self.format.name}" if self.format.group > 1 else ""
        return f"winograd F({self.t.outputs}, {FILTER_TAPS}) of {arrays} padding {list(self.padding)}{how}"

    @property
    def tiles(self) -> Expr:
        """Tiles of all images."""
        return as_expr(self.grid[0] * self.grid[1] * self.grid[2])

    @property
    def even(self) -> int | None:
        """Tiles of all images, where their number and that of a piece are known: then pieces have about as many."""
        return None if as_int(self.b.tiles) is None else as_int(self.tiles)

    @property
    def results(self) -> int:
        """Elements of scratch memory for results."""
        return self.t.outputs * max(self.b.columns, self.t.outputs * LANES)

    @property
    def depth(self) -> int:
        """How many channels of the filter a piece transforms at a time; 0 where a launch transforms the whole filter before.

        A piece does it where it has all the tiles: then the filter is transformed once either way, and what is stored between
        the launches are 9 taps for each pair of channels instead of 16 or 36 points. It needs scratch memory for a block of
        channels, one row of points at a time; where that does not fit, a launch does it."""
        tiles, b, n, inputs = as_int(self.tiles), self.b, self.t.points, as_int(self.f.inputs)
        if tiles is None or inputs is None or tiles > b.most_tiles or self.format.group > 1:
            return 0
        most = max(LANES, L1_FILTER_BYTES // (n * b.columns * self.f.compute.size))
        depth = min(1 << most.bit_length() - 1, self.chunks.run)  # whole blocks are a chunk of c
        sums = 2 if self.f.several else 1
        values = n * n * ((as_int(b.image) or 0) + sums * b.products) + n * (depth * b.columns + LANES) + self.results
        return depth if values * self.f.compute.size <= MOST_IMAGE_BYTES else 0

    def launch(self) -> None:
        """Writes the kernel and launches it."""
        k, b, scratch, panels = self.k, self.b, self.scratch, self.f.panels
        blocks = as_expr(cdiv(self.tiles, b.tiles))
        parts = self.parts(blocks)
        piece = k.split(blocks * parts)
        part = k.let(piece // blocks)
        panel, stop = k.let(part * panels // parts), k.let((part + 1) * panels // parts)
        if self.even is None:
            first = k.let(piece % blocks * b.tiles)
            count = k.let(minimum(self.tiles - first, b.tiles))
        else:
            first = k.let(piece % blocks * self.tiles // blocks)
            count = k.let((piece % blocks + 1) * self.tiles // blocks - first)
        tiles = TileTransform(k, self.x, self.t, self.format.storage, self.padding)
        with k.loop(0, count, name="tile") as i:
            tile = unflatten(k, k.let(first + i), self.grid)
            tiles.write(tile, (0, self.f.inputs), scratch.image, k.let(i * b.pitch), b.image)
        multiply = self.multiply_here if self.depth else self.multiply
        with k.loop(panel, stop, name="panel") as p:
            multiply(p, count)
            if self.in_registers:
                with k.loop(0, count, name="tile") as i:
                    self.store_results(p, i, unflatten(k, k.let(first + i), self.grid))
            else:
                self.transform_products(count)
                with k.loop(0, self.t.outputs, name="a") as a, k.loop(0, count, name="tile") as i:
                    self.store_row(p, a, i, unflatten(k, k.let(first + i), self.grid))
        self.lo.launch(k)

    def _scratch(self) -> _Scratch:
        """The scratch memory of a piece."""
        k, b, n, dt, total = self.k, self.b, self.t.points, self.format.storage, self.format.total
        size = as_int(b.image)
        if size is None:  # a register tile reads rows past the last tile, whose sums are not stored
            largest = as_int(pitch_of(numerics.WINOGRAD_MOST_CHANNELS)) or 0
            image = k.scratch("image", dt, n * n * b.room + b.most_tiles * largest)
        else:
            image = k.scratch("image", dt, n * n * size)
        sums = 2 if self.depth and self.f.several else 1  # of the first chunk, and of the one that is added up
        products = k.scratch("products", total, sums * n * n * b.products)
        return _Scratch(image, products, k.scratch("results", total, self.results))

    def parts(self, blocks: Expr) -> Expr:
        """How many parts the panels are cut into. Each part transforms the tiles anew, so there are only as many as threads
        need; where the number of blocks is known a power of two, as numbers of threads usually are."""
        if self.b.schedule.panels:
            return as_expr(cdiv(self.f.panels, self.b.schedule.panels))
        number = as_int(blocks)
        if number is None:
            return minimum(cdiv(as_expr(ENOUGH_PIECES), maximum(blocks, 1)), self.f.panels)
        return minimum(const(1 << (-(-ENOUGH_PIECES // max(1, number))).bit_length() - 1), self.f.panels)

    @property
    def pitch(self) -> int:
        """Elements from one point's weights to the next one's, where a piece transforms the filter; see `Blocks.image`."""
        return self.depth * self.b.columns + LANES

    # ---- products

    def multiply(self, panel: Expr, count: Expr) -> None:
        """products[point, tile, column] = the sum over c of image[point, tile, c] * filter[panel, point, c, column]."""
        k, b, n, run, groups = self.k, self.b, self.t.points, self.chunks.run, self.f.groups
        weights = k.read(self.filter)
        each = -(-b.vectors * b.rows // b.most_tiles)  # cache lines of the next point's weights that a tile prefetches for each c

        def tile(z: Expr, number: Expr, r: Expr, rows: int) -> None:
            image, to = k.let(z * b.image + r * b.pitch), k.let(z * b.products + r * b.columns)
            here = k.let(as_expr(self.filter.index((panel, z, 0, 0))))
            share = minimum(number * each, b.vectors - each)
            ahead = k.let(here + (groups + 1) * b.columns + (share * groups) * LANES)

            def prefetch(c: Expr) -> None:
                for line in range(each):
                    k.prefetch(weights, ahead + (c * each + line) * LANES)

            sums = lambda *cs: self.register_tile(rows, weights, here, image, cs, prefetch)
            if not self.f.several:
                return self.store_tile(sums(0, groups), to)
            with k.loop(0, self.f.inputs, run, name="chunk") as start:
                acc = sums(start, k.let(minimum(start + run, self.f.inputs)))
                with k.if_(equal(start, 0)):
                    self.store_tile(acc, to)
                with k.else_():
                    self.store_tile(acc, to, add=True)

        with k.loop(0, n * n, name="point") as z:
            self.each_register_tile(count, partial(tile, z))

    def each_register_tile(self, count: Expr, write: Callable[[Expr, Expr, int], None]) -> None:
        """Calls write(number, first row, rows) for the register tiles that the `count` image tiles of a piece are cut into: of `rows` each, the
        last one with rows past them; where all counts are known of about equal heights, which are one row apart, with exactly the rows there
        are."""
        k, b = self.k, self.b
        if self.even is None:
            with k.loop(0, count, b.rows, name="r") as r:
                write(r // b.rows, r, b.rows)
            return
        high, low, parts = b.heights(self.even)
        with k.loop(0, parts, name="r") as number:
            r = k.let(number * count // parts)
            if high == low:
                return write(number, r, high)
            rows = k.let((number + 1) * count // parts - r)
            with k.if_(equal(rows, high)):
                write(number, r, high)
            if low > 0:
                with k.else_():
                    write(number, r, low)

    def multiply_here(self, panel: Expr, count: Expr) -> None:
        """The same by a filter that the piece transforms itself, for a block of channels and a row of points at a time, which
        stay in L1. A chunk's sums are stored between blocks and taken up again, so they have the bits of sums without a
        break."""
        k, b, n, run = self.k, self.b, self.t.points, self.chunks.run
        raw, weights = k.read(self.filter), k.scratch("weights", self.f.compute, n * self.pitch)
        size = n * n * b.products
        lines = FILTER_TAPS * FILTER_TAPS * b.vectors  # cache lines of the next block, for each channel of this one
        pair = 2 if n * n * b.schedule.high > lines and as_int(self.f.inputs % 2) == 0 else 1  # channels for each prefetch of a tile
        with k.loop(0, self.f.inputs, self.depth, name="block") as start:
            stop = k.let(minimum(start + self.depth, self.f.inputs))
            goes_on, later = k.let(start % run > 0), k.let(start >= run)
            last = k.let(equal(stop % run, 0) | equal(stop, self.f.inputs))
            following = k.let(as_expr(self.filter.index((panel, stop, 0, 0))))
            with k.loop(0, n, name="a") as a:
                self.transform_row(raw, panel, a, (start, stop), weights)

                def tile(a: Expr, e: Expr, number: Expr, r: Expr, rows: int) -> None:
                    z = k.let(a * n + e)
                    image, to = k.let(z * b.image + r * b.pitch + start), k.let(z * b.products + r * b.columns)
                    sums = to if not self.f.several else k.let(to + select(later, const(size), const(0)))
                    line = minimum(z * b.schedule.high + number, lines * pair - 1)
                    ahead, here = k.let(following + line * (self.depth // pair * LANES)), k.let(e * self.pitch)
                    prefetch = lambda c: k.prefetch(raw, ahead + c * LANES)
                    acc = self.register_tile(rows, weights, here, image, (0, k.let(stop - start)), prefetch, (goes_on, sums), pair)
                    closes = const(False, bool_) if not self.f.several else k.let(later & last)
                    with k.if_(closes):
                        self.store_tile(acc, to, add=True)
                    with k.else_():
                        self.store_tile(acc, sums)

                with k.loop(0, n, name="e") as e:
                    self.each_register_tile(count, partial(tile, a, e))

    def transform_row(self, raw: Buffer, panel: Expr, row: Expr, cs: tuple[Expr, Expr], dst: Buffer) -> None:
        """Row `row` of the transformed filter's points for the channels `cs`, as [point, c, column] in `dst`. Rows 0 and the
        last depend on one row of taps only; the values of the other loads are then unused."""
        k, b, t = self.k, self.b, self.t
        for a in range(t.points):
            with k.if_(k.let(equal(row, a))), k.loop(*cs, name="c") as c, k.loop(0, b.columns, LANES, name="column") as v:
                at = k.let(as_expr(self.filter.index((panel, c, 0, v))))
                taps = [k.load(raw, at + i * b.columns, LANES) for i in range(FILTER_TAPS * FILTER_TAPS)]
                down = [t.weight(taps[j::FILTER_TAPS])[a] for j in range(FILTER_TAPS)]
                to = k.let((c - cs[0]) * b.columns + v)
                for e, value in enumerate(t.weight(down)):
                    k.store(dst, to + e * self.pitch, value)

    def register_tile(
        self, rows: int, weights: Buffer, at: Expr, image: Expr, cs: tuple[Index, Index], prefetch: Callable[[Expr], None],
        sums: tuple[Expr, Expr] | None = None, each: int = 1,
    ) -> list[list[Expr]]:  # fmt: skip
        """One point of `rows` image tiles, from `image` on, times a panel of the filter, from `at` on: sums over the channels
        `cs`.

        Args:
            prefetch: called once for each `each` channels, whose number is a multiple of it. sums: (whether, where): the sums
                begin with what lies there in `products`, if the condition holds; default: with zeros.
        """
        k, b, format = self.k, self.b, self.format
        acc = [[k.var(const(0, format.total, LANES), name="acc") for _ in range(b.vectors)] for _ in range(rows)]
        read = k.load if format.group == 1 else k.load_group
        if sums is not None:
            with k.if_(sums[0]):
                for r in range(rows):
                    for v in range(b.vectors):
                        acc[r][v].set(k.load(self.scratch.products, sums[1] + (r * b.columns + v * LANES), LANES))

        def step(c: Expr) -> None:
            here = k.let(at + c * b.columns)
            if each == 1:
                prefetch(c)
            ws = [k.load(weights, here + v * LANES, LANES) for v in range(b.vectors)]  # ws[v] = filter[point, c, vector v]
            for r in range(rows):
                pixel = splat(read(self.scratch.image, image + r * b.pitch + c * format.group))  # image[point, tile r, c] in all lanes
                for v in range(b.vectors):
                    acc[r][v].set(format.multiply_add(pixel, ws[v], acc[r][v].value))  # acc[tile r][v] += pixel * ws[v]

        if each == 1:
            whole = as_int(self.f.groups % b.schedule.unroll) == 0 == self.chunks.run % b.schedule.unroll
            unrolled_loop(k, *cs, b.schedule.unroll, step, "c", whole)
        else:
            with k.loop(*cs, each, name="c") as c:
                prefetch(k.let(c // each))
                for i in range(each):
                    step(k.let(c + i))
        return [[x.value for x in row] for row in acc]

    def store_tile(self, acc: list[list[Expr]], to: Expr, add: bool = False) -> None:
        """Stores a register tile to `products` from `to` on, or adds it to what is there."""
        k, b = self.k, self.b
        for r in range(len(acc)):
            for v in range(b.vectors):
                at, value = to + (r * b.columns + v * LANES), acc[r][v]
                k.store(self.scratch.products, at, k.load(self.scratch.products, at, LANES) + value if add else value)

    # ---- the result

    def transform_products(self, count: Expr) -> None:
        """Transforms the products back along y, in place: point (a, e) becomes (row a of the tile's results, point e of x)."""
        k, b, t, n = self.k, self.b, self.t, self.t.points
        with k.loop(0, n, name="e") as e, k.loop(0, k.let(count * b.columns), LANES, name="at") as i:
            at = k.let(e * b.products + i)
            products = [k.load(self.scratch.products, at + a * (n * b.products), LANES) for a in range(n)]
            for a, value in enumerate(t.result(products)):  # row[a, e][tile, column ..] = R[a, :] products[:, e]
                k.store(self.scratch.products, at + a * (n * b.products), value)

    def store_row(self, panel: Expr, a: Expr, i: Expr, tile: Sequence[Index]) -> None:
        """Transforms row `a` of tile number `i` back along x, and stores its results, which exist inside of the image only."""
        k, b, t, n, m, out = self.k, self.b, self.t, self.t.points, self.t.outputs, self.out
        y, x = k.let(tile[1] * m + a), k.let(as_expr(tile[2] * m))
        channels = k.let(minimum(self.f.outputs - panel * b.columns, b.columns))
        with k.if_(y < out.shape[2]):
            with k.loop(0, channels, LANES, name="v") as v:
                at = k.let(a * (n * b.products) + i * b.columns + v)
                products = [k.load(self.scratch.products, at + e * b.products, LANES) for e in range(n)]
                for j, value in enumerate(t.result(products)):
                    k.store(self.scratch.results, v + j * b.columns, value)
            with k.loop(0, minimum(as_expr(out.shape[3] - x), m), name="j") as j, k.loop(0, channels, LANES, name="v") as v:
                channel = k.let(panel * b.columns + v)
                place = self.place(tile[0], channel, y, k.let(x + j))
                store_at(k, out, place, self.made(k.load(self.scratch.results, v + j * b.columns, LANES), place))

    def store_results(self, panel: Expr, i: Expr, tile: Sequence[Index]) -> None:
        """The same for tile number `i` in registers, all of its results at once."""
        k, b, n, m, (high, wide) = self.k, self.b, self.t.points, self.t.outputs, self.out.shape[2:]
        y, x = k.let(as_expr(tile[1] * m)), k.let(as_expr(tile[2] * m))
        even = as_int(high % m) == 0 == as_int(wide % m)
        whole = const(True, bool_) if even else k.let((y + m <= high) & (x + m <= wide))
        with k.loop(0, k.let(minimum(self.f.outputs - panel * b.columns, b.columns)), LANES, name="v") as v:
            first, channel = k.let(i * b.columns + v), k.let(panel * b.columns + v)
            product = lambda a, e, first=first: k.load(self.scratch.products, first + (a * n + e) * b.products, LANES)
            # columns[e][a] = R[a, :] products[:, e]; results[a m + j] = R[j, :] columns[:][a]
            columns = [[k.let(value) for value in self.t.result([product(a, e) for a in range(n)])] for e in range(n)]
            results = [k.let(value) for a in range(m) for value in self.t.result([column[a] for column in columns])]
            place = lambda a, j, channel=channel: self.place(tile[0], channel, k.let(y + a), k.let(x + j))
            with k.if_(whole):
                for a in range(m):
                    places = [place(a, j) for j in range(m)]
                    made = [partial(self.made, value, at) for value, at in zip(results[a * m :], places)]
                    for at, value in zip(places, k.abreast(made)):
                        store_at(k, self.out, at, value)
            with k.else_():
                for j, value in enumerate(results):
                    k.store(self.scratch.results, j * LANES, value)
                with k.loop(0, minimum(as_expr(high - y), m), name="a") as a, k.loop(0, minimum(as_expr(wide - x), m), name="j") as j:
                    at = place(a, j)
                    store_at(k, self.out, at, self.made(k.load(self.scratch.results, (a * m + j) * LANES, LANES), at))

    def place(self, image: Index, channel: Expr, y: Expr, x: Expr) -> At:
        """The place in out of LANES channels of a pixel."""
        count = None if as_int(self.f.outputs % LANES) == 0 else self.k.let(self.f.outputs - channel)
        return At((image, channel, y, x), 1, count)

    def made(self, value: Expr, at: At) -> Expr:
        """What is stored for a result."""
        k = self.k
        middle = None if self.middles is None else k.load(k.read(self.middles), at.coords[1], LANES)
        value = k.let(self.t.scaled(value, middle))
        return cast(value, self.out.dtype) if self.epilogue is None else self.epilogue(k, value, at)
