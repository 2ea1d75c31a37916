"""Rows times a matrix of integers of 8, 4 or 2 bits with a scale for each group of terms: bound by reading the integers.

    packed[tile][word of k][column of the tile]           # given, or once: COLUMNS columns, whose words of 4 bytes are 4 cache lines
    for each piece = (some rows, tile of columns):
        for chunk of k, group of the chunk:                   # for some of the tile's vectors at a time, all if registers hold their sums
            for word of the group, k of the word:
                w[v] = float32(integer[k, vector v]) scale[group, vector v]       # in registers
                acc[row][v] = fma(x[row, k], w[v], acc[row][v])
        out[row, v] = the chunks' sums, added in order

The sum has the order of `chunks.Chunks`, so its bits are those of dequantising the matrix and multiplying it.

Read next: `grouped_integers.py`, for rows that become integers too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tengen.base.dtype import float32, int32, uint32
from tengen.kernels import numerics
from tengen.kernels.axes import store_at, unflatten
from tengen.kernels.lowering import Array, KernelBuilder, Lowering, product
from tengen.kernels.machine import machine, registers_of
from tengen.kernels.pointwise import dense
from tengen.kernels.source import At
from tengen.kernels.squares import transpose_square
from tengen.loops.builder import as_expr
from tengen.loops.lang import LANES, Expr, Index, as_int, bitcast, cast, cdiv, const, equal, fma, maximum, minimum, ramp, splat

VECTORS = 4  # of a tile: as many sums as hide an fma's latency
COLUMNS = VECTORS * LANES
WORD = 4  # bytes of a column that lie together: those that one lane of a vector holds
MANTISSA_BITS = 23  # of a float32
MOST_ROWS = 4  # of a tile, and as many where their number is open: for each of them a weight is decoded once


def fits(group: int) -> bool:
    """Whether groups lie within chunks, and in whole vectors, which whole words of each number of bits are, too."""
    return group % LANES == 0 and numerics.CHUNK_TERMS % group == 0


def _packed(lo: Lowering, src: Array, name: str) -> Array:
    """A matrix (columns, bytes) of integers as words (tiles, bytes / WORD, COLUMNS), and one of scales (columns, groups) as
    (tiles, groups, COLUMNS), in float32. What lies past the last column is not used. What lies in tiles is as it should be."""
    if src.ndim > 2:
        return dense(lo, src)
    words = not src.dtype.is_float
    n, depth = src.shape[0], src.shape[1] // WORD if words else src.shape[1]

    def make() -> Array:
        t = lo.temp(uint32 if words else float32, (cdiv(n, COLUMNS), depth, COLUMNS))
        k = lo.kernel(name)
        first = k.let(k.split(t.shape[0] * VECTORS) * LANES)
        a, b = k.read(src), k.write(t)
        to = k.let(as_expr(t.index((first // COLUMNS, 0, first % COLUMNS))))
        row = lambda r: minimum(first + r, as_expr(n - 1))

        def across(i: Expr) -> Expr:
            """Position `i` of LANES columns."""
            at = lambda j: row(ramp()) * src.strides[0] + as_expr(src.index((0, i * WORD + j if words else i)))
            if not words:
                return cast(k.load(a, at(0)), float32)
            byte = lambda j: cast(bitcast(k.load(a, at(j)), "uint8"), uint32) << const(8 * j, uint32, LANES)
            return byte(0) | byte(1) | byte(2) | byte(3)

        def along(i: Expr) -> Callable[[Index], Expr]:
            """LANES positions from `i` on of a column."""
            at = lambda r: as_expr(src.index((row(r), i * WORD if words else i)))
            return lambda r: k.load_group(a, at(r), LANES) if words else cast(k.load(a, at(r), LANES), float32)

        whole = k.let(as_expr(depth // LANES * LANES if as_int(src.strides[1]) == 1 else 0))
        with k.loop(0, whole, LANES, name="square") as i:
            transpose_square(k, t.dtype, along(i), lambda r, x, i=i: k.store(b, to + (i + r) * COLUMNS, x))
        with k.loop(whole, as_expr(depth), name="i") as i:
            k.store(b, to + i * COLUMNS, across(i))
        lo.launch(k)
        return t

    return lo.once(src, name, make)


def grouped_weights(
    lo: Lowering, x: Array, codes: Array, scale: Array, out: Array, bits: int, group: int, epilogue=None
) -> None:
    """out[..., o] = the sum over k of x[..., k] * (codes[o, k] scale[o, k // group]).

    Shapes: x (..., K) and out (..., O) of float32; codes int8 (O, at least K) or, of fewer bits, uint8 (O, at least K bits / 8),
    each with 8 / bits integers, the first in its lowest bits, with half of their number added; scale float32 or float16 (O, groups). Or
    both in tiles, (tiles, bytes / WORD, COLUMNS, WORD) and (tiles, groups, COLUMNS)
    """
    if any(as_int(d) == 0 for d in out.shape):
        return
    _Floats(lo, x, codes, scale, out, bits, group, epilogue).launch()


class Product:
    """A kernel of rows times integers in tiles: what those of float32 and of integers share."""

    name: str

    def __init__(self, lo: Lowering, x: Array, codes: Array, scale: Array, out: Array, bits: int, group: int, epilogue):
        self.lo, self.x, self.out, self.bits, self.group, self.epilogue = lo, x, out, bits, group, epilogue
        self.codes, self.scale = _packed(lo, codes, "grouped_pack"), _packed(lo, scale, "grouped_scales")
        self.lead, self.terms = out.shape[:-1], x.shape[-1]
        rows = as_int(product(self.lead))
        self.high = MOST_ROWS if rows is None else min(rows, MOST_ROWS)
        self.in_a_word = 8 * WORD // bits
        each = self.high * registers_of(float32.size, lo.target)  # registers of a vector's sums
        self.wide = next((n for n in (VECTORS, VECTORS // 2) if n * each <= machine(lo.target)[1] // 2), 1)  # vectors at a time

    def launch(self) -> None:
        """Writes and launches the kernel."""
        self.k: KernelBuilder = self.lo.kernel(self.name)
        k = self.k
        rows, columns = as_expr(product(self.lead)), as_expr(self.out.shape[-1])
        tiles, blocks = as_expr(self.codes.shape[0]), as_expr(cdiv(rows, self.high))
        piece = k.split(tiles * blocks)
        self.tile, block = k.let(piece // blocks), piece % blocks
        # Rows past the last are the last.
        self.rows = [k.let(minimum(block * self.high + j, rows - 1)) for j in range(self.high)]
        coords = [unflatten(k, row, self.lead) if self.lead else [] for row in self.rows]
        with k.loop(0, VECTORS, self.wide, name="part") as part:
            self.first = k.let(part * LANES)
            totals = self.totals(coords)
            for v in range(self.wide):
                first = k.let(self.tile * COLUMNS + self.first + v * LANES)
                with k.if_(first < columns):
                    for c, line in zip(coords, totals):
                        at = At((*c, first), len(c), None if as_int(columns % COLUMNS) == 0 else k.let(columns - first))
                        value = line[v].value
                        store_at(k, self.out, at, cast(value, self.out.dtype) if self.epilogue is None else self.epilogue(k, value, at))
        self.lo.launch(k)

    def totals(self, coords: list) -> list:
        """The sums of each row, a variable for each of `wide` vectors of the tile from column `first` on."""
        raise NotImplementedError

    def zeros(self) -> list:
        """Variables for the sums of each row."""
        return [[self.k.var(const(0.0, float32, LANES), name="acc") for _ in range(self.wide)] for _ in self.rows]

    def scales(self, group: Expr) -> list[Expr]:
        """Of these vectors."""
        k, base = self.k, self.k.let(as_expr(self.scale.index((self.tile, group, self.first))))
        return [cast(k.load(k.read(self.scale), base + v * LANES, LANES), float32) for v in range(self.wide)]

    def words(self, i: Index) -> list[Expr]:
        """Words number `i` of these vectors."""
        k, codes, lies = self.k, self.k.read(self.codes), self.codes.dtype is uint32
        base = k.let(as_expr(self.codes.index((self.tile, i, self.first) if lies else (self.tile, i, self.first, 0))))
        if lies:
            return [k.load(codes, base + v * LANES, LANES) for v in range(self.wide)]
        return [k.load_group(codes, base + v * LANES * WORD, LANES) for v in range(self.wide)]


class _Floats(Product):
    name = "linear_grouped"

    def totals(self, coords: list) -> list:
        """See `Product.totals`."""
        k = self.k
        # AVX-512 masks and joins in one instruction, which others do in two.
        self.in_mantissa = machine(self.lo.target)[0] == LANES * float32.size
        self.at = [k.let(as_expr(self.x.index((*c, 0)))) for c in coords]
        totals = self.zeros()
        with k.loop(0, k.let(maximum(as_expr(cdiv(self.terms, numerics.CHUNK_TERMS)), 1)), name="chunk") as chunk:
            sums = self.chunk(k.let(chunk * numerics.CHUNK_TERMS))
            with k.if_(equal(chunk, 0)):
                for line, more in zip(totals, sums):
                    for total, s in zip(line, more):
                        total.set(s.value)
            with k.else_():
                for line, more in zip(totals, sums):
                    for total, s in zip(line, more):
                        total.set(total.value + s.value)
        return totals

    def chunk(self, start: Expr) -> list:
        """The sums of the chunk from position `start` on."""
        k, acc, each = self.k, self.zeros(), self.in_a_word
        stop = k.let(minimum(as_expr(self.terms), start + numerics.CHUNK_TERMS))
        with k.loop(start, stop, self.group, name="group") as first:
            scale = self.scales(first // self.group)
            last = k.let(minimum(stop, first + self.group))
            whole = k.let(last // each * each)
            with k.loop(first, whole, each, name="k") as i:
                self.word(i, range(each), scale, acc)
            if as_int(self.terms % each) != 0:
                for j in range(each - 1):
                    with k.if_(whole + j < last):
                        self.word(whole, (j,), scale, acc)
        return acc

    def word(self, i: Expr, there: Sequence[int], scale: list[Expr], acc: list) -> None:
        """Adds the terms of positions i + j for each j of `there`, whose integers lie in the words of position `i`."""
        k, x, words = self.k, self.k.read(self.x), [self.signed(w) for w in self.words(i // self.in_a_word)]
        for j in there:
            weights = [k.let(self.integer(w, j) * s) for w, s in zip(words, scale)]
            for at, line in zip(self.at, acc):
                value = splat(cast(k.load(x, at + (i + j) * self.x.strides[-1]), float32))
                for w, a in zip(weights, line):
                    a.set(fma(value, w, a.value))  # acc[row][v] += x[row, k i + j] * w[k i + j, vector v]

    def signed(self, word: Expr) -> Expr:
        """A word as `integer` takes it: integers with half of their number added, in a mantissa; else with a sign."""
        if self.in_mantissa == (self.bits < 8):
            return word
        top = sum(1 << at for at in range(self.bits - 1, 32, self.bits))
        return self.k.let(word ^ const(top, uint32, LANES))

    def integer(self, word: Expr, which: int) -> Expr:
        """An integer of a word, as float32."""
        at, half, number = which * self.bits, 1 << self.bits - 1, lambda n: const(n, uint32, LANES)
        if self.in_mantissa:
            if at + self.bits > MANTISSA_BITS:
                at, word = at - 16, word >> number(16)
            power = const(2.0 ** (MANTISSA_BITS - at), float32, LANES)  # whose last digits are these bits: it and half are taken off exactly
            inside = word & number((1 << self.bits) - 1 << at) | bitcast(power, uint32)
            return bitcast(inside, float32) - const(2.0 ** (MANTISSA_BITS - at) + half, float32, LANES)
        up, down = 32 - self.bits - at, const(32 - self.bits, int32, LANES)
        return cast(bitcast(word << number(up) if up else word, int32) >> down, float32)
