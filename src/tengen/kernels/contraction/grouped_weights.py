"""A few rows times a matrix of integers of 8, 4 or 2 bits with a scale for each group of terms: bound by reading the integers.

    packed[tile][byte of k][column of the tile]           # given, or once: COLUMNS columns, whose bytes are one cache line
    for each piece = (some rows, tile of columns):
        for chunk of k, group of the chunk:
            for k of the group:
                w[v] = float32(integer[k, vector v]) scale[group, vector v]       # in registers
                acc[row][v] = fma(x[row, k], w[v], acc[row][v])
        out[row, v] = the chunks' sums, added in order

The sum has the order of `chunks.Chunks`, so its bits are those of dequantising the matrix and multiplying it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from tengen.base.dtype import float32, int32
from tengen.kernels import numerics
from tengen.kernels.axes import store_at, unflatten
from tengen.kernels.lowering import Array, KernelBuilder, Lowering, product
from tengen.kernels.machine import machine
from tengen.kernels.pointwise import dense
from tengen.kernels.source import At
from tengen.kernels.squares import transpose_square
from tengen.loops.builder import as_expr
from tengen.loops.lang import LANES, Expr, Index, as_int, bitcast, cast, cdiv, const, equal, fma, maximum, minimum, ramp, splat

VECTORS = 4  # of a tile: as many sums as hide an fma's latency, whose bytes of one position are a cache line
COLUMNS = VECTORS * LANES
MANTISSA_BITS = 23  # of a float32
MOST_ROWS = 4  # of a tile: for each of them a weight is decoded once


def fits(bits: int, group: int) -> bool:
    """Whether groups lie within chunks, and in whole bytes."""
    return group % (8 // bits) == 0 and numerics.CHUNK_TERMS % group == 0


def _packed(lo: Lowering, src: Array, name: str) -> Array:
    """A matrix (columns, K), or (tiles, K, COLUMNS), as the latter: squares of it are transposed in registers. What lies past the last
    column is not used."""
    if src.ndim == 3:
        return dense(lo, src)
    n, depth = src.shape

    def make() -> Array:
        t = lo.temp(src.dtype, (cdiv(n, COLUMNS), depth, COLUMNS))
        k = lo.kernel(name)
        first = k.let(k.split(t.shape[0] * VECTORS) * LANES)
        a, b = k.read(src), k.write(t)
        to = k.let(as_expr(t.index((first // COLUMNS, 0, first % COLUMNS))))

        def square(i: Expr, count: Expr | None) -> None:
            """Some positions from `i` on (None: LANES)."""

            def read(r: Index) -> Expr:
                at = as_expr(src.index((minimum(first + r, as_expr(n - 1)), i)))
                return k.load(a, at if as_int(src.strides[1]) == 1 else ramp() * src.strides[1] + at, LANES, count)

            def write(r: Index, x: Expr) -> None:
                with contextlib.nullcontext() if count is None else k.if_(count > r):
                    k.store(b, to + (i + r) * COLUMNS, x)

            transpose_square(k, src.dtype, read, write, seldom=count is not None)

        for i, count in k.vector_loop(0, depth):
            square(i, count)
        lo.launch(k)
        return t

    return lo.once(src, name, make)


def grouped_weights(
    lo: Lowering, x: Array, codes: Array, scale: Array, out: Array, bits: int, group: int, epilogue=None
) -> None:
    """out[..., o] = the sum over k of x[..., k] * (codes[o, k] scale[o, k // group]).

    Shapes: x (..., K) and out (..., O) of float32; codes int8 (O, at least K) or, of fewer bits, uint8 (O, at least K bits / 8),
    each with 8 / bits integers, the first in its lowest bits, with half of their number added; scale float32 (O, groups). Or both in tiles,
    (tiles, bytes, COLUMNS) and (tiles, groups, COLUMNS)
    """
    if any(as_int(d) == 0 for d in out.shape):
        return
    _Product(lo, x, codes, scale, out, bits, group, epilogue).launch()


class _Product:
    def __init__(self, lo: Lowering, x: Array, codes: Array, scale: Array, out: Array, bits: int, group: int, epilogue):
        self.lo, self.x, self.out, self.bits, self.group, self.epilogue = lo, x, out, bits, group, epilogue
        self.codes, self.scale = _packed(lo, codes, "grouped_pack"), _packed(lo, scale, "grouped_scales")
        self.k: KernelBuilder = lo.kernel("linear_grouped")
        self.lead = out.shape[:-1]
        rows = as_int(product(self.lead))
        self.high = 1 if rows is None else min(rows, MOST_ROWS)
        self.terms = x.shape[-1]
        self.in_mantissa = machine(lo.target)[0] == LANES * float32.size  # AVX-512 masks and joins in one instruction, which others do in two

    def launch(self) -> None:
        """Writes and launches the kernel."""
        k = self.k
        rows, columns = as_expr(product(self.lead)), as_expr(self.out.shape[-1])
        tiles, blocks = as_expr(self.codes.shape[0]), as_expr(cdiv(rows, self.high))
        piece = k.split(tiles * blocks)
        self.tile, block = k.let(piece // blocks), piece % blocks
        # Rows past the last are the last.
        numbers = [k.let(minimum(block * self.high + j, rows - 1)) for j in range(self.high)]
        coords = [unflatten(k, number, self.lead) if self.lead else [] for number in numbers]
        self.at = [k.let(as_expr(self.x.index((*c, 0)))) for c in coords]
        zero = const(0.0, float32, LANES)
        totals = [[k.var(zero, name="total") for _ in range(VECTORS)] for _ in numbers]
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
        for v in range(VECTORS):
            first = k.let(self.tile * COLUMNS + v * LANES)
            with k.if_(first < columns):
                for c, line in zip(coords, totals):
                    at = At((*c, first), len(c), None if as_int(columns % COLUMNS) == 0 else k.let(columns - first))
                    value = line[v].value
                    store_at(k, self.out, at, cast(value, self.out.dtype) if self.epilogue is None else self.epilogue(k, value, at))
        self.lo.launch(k)

    def chunk(self, start: Expr) -> list:
        """The sums of the chunk from position `start` on."""
        k, zero, scales = self.k, const(0.0, float32, LANES), self.k.read(self.scale)
        acc = [[k.var(zero, name="acc") for _ in range(VECTORS)] for _ in self.at]
        stop = k.let(minimum(as_expr(self.terms), start + numerics.CHUNK_TERMS))
        with k.loop(start, stop, self.group, name="group") as first:
            base = k.let(as_expr(self.scale.index((self.tile, first // self.group, 0))))
            scale = [k.load(scales, base + v * LANES, LANES) for v in range(VECTORS)]
            last = k.let(minimum(stop, first + self.group))
            each = 8 // self.bits  # positions in a byte
            whole = k.let(last // each * each)
            with k.loop(first, whole, each, name="k") as i:
                self.byte(i, i // each, range(each), scale, acc)
            for j in range(each - 1):
                with k.if_(whole + j < last):
                    self.byte(whole, whole // each, (j,), scale, acc)
        return acc

    def byte(self, i: Expr, row: Index, there: Sequence[int], scale: list[Expr], acc: list) -> None:
        """Adds the terms of positions i + j for each j of `there`, whose integers lie in the bytes of row `row`."""
        k, codes, x = self.k, self.k.read(self.codes), self.k.read(self.x)
        base = k.let(as_expr(self.codes.index((self.tile, row, 0))))
        bytes_ = [k.let(cast(k.load(codes, base + v * LANES, LANES), int32)) for v in range(VECTORS)]
        for j in there:
            weights = [k.let(self.integer(b, j) * s) for b, s in zip(bytes_, scale)]
            for at, line in zip(self.at, acc):
                value = splat(cast(k.load(x, at + (i + j) * self.x.strides[-1]), float32))
                for w, a in zip(weights, line):
                    a.set(fma(value, w, a.value))  # acc[row][v] += x[row, k i + j] * w[k i + j, vector v]

    def integer(self, byte: Expr, which: int) -> Expr:
        """An integer of a byte, as float32: the byte, or some bits of it."""
        if self.bits == 8:
            return cast(byte, float32)
        at, half, number = which * self.bits, 1 << self.bits - 1, lambda n: const(n, int32, LANES)
        if self.in_mantissa:
            power = const(2.0 ** (MANTISSA_BITS - at), float32, LANES)  # whose last digits are these bits: it and half are taken off exactly
            inside = byte & number((1 << self.bits) - 1 << at) | bitcast(power, int32)
            return bitcast(inside, float32) - const(2.0 ** (MANTISSA_BITS - at) + half, float32, LANES)
        part = byte >> number(at) if at else byte
        part = part & number((1 << self.bits) - 1) if at + self.bits < 8 else part
        return cast(part - number(half), float32)
