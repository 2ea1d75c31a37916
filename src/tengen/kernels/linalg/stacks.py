"""Stacks of matrices in memory: dense, (count, rows, columns), and what every kernel on them needs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

from tengen.base.dtype import DType, int32, int64
from tengen.kernels.lowering import Array, KernelBuilder, Lowering, product
from tengen.kernels.machine import machine, registers_of
from tengen.kernels.pointwise import pointwise
from tengen.kernels.source import At, Elementwise, Leaf, Literal, Source, broadcast
from tengen.loops.builder import Variable
from tengen.loops.lang import Expr, Index, as_int, bitcast, cast, const, fma, maximum, select, splat

STACK_TILE_ROWS = 4  # rows of a tile of results, where the registers hold them


def tile_rows(d: DType, target) -> int:
    """How many rows of LANES results a kernel computes side by side."""
    registers = machine(target)[1] // registers_of(d.size, target)
    return STACK_TILE_ROWS if registers > 2 * STACK_TILE_ROWS + 2 else 2


def stack(a: Array) -> Array:
    """A dense array (..., rows, columns) as (count, rows, columns)."""
    m, n = a.shape[-2:]
    return Array(a.id, a.dtype, (product(a.shape[:-2]), m, n), (m * n, n, 1), a.offset)


def in_dtype(lo: Lowering, a: Array, d: DType) -> Array:
    """The array, or where its dtype is another a temporary with its elements in that one."""
    if a.dtype is d:
        return a
    t = lo.temp(d, a.shape)
    return converted(lo, a, t)


def converted(lo: Lowering, a: Array, out: Array) -> Array:
    """Launches out = a, in out's dtype, with broadcasting; returns `out`."""
    d = out.dtype
    source = Leaf(a) if a.dtype is d else Elementwise(lambda v: cast(cast(v, a.dtype.compute), d), [Leaf(a)], a.shape, d)
    pointwise(lo, [broadcast(source, out.shape)], [out], "linalg_copy")
    return out


@contextlib.contextmanager
def dense(lo: Lowering, *outs: Array) -> Iterator[list[Array]]:
    """Arrays of the shapes of `outs` that lie densely, in the dtypes that those are computed in, which what is launched in this context
    fills: those themselves where they are so, else temporaries, which are copied to them at the end."""
    made = [o if o.is_contiguous() and o.dtype is o.dtype.compute else lo.temp(o.dtype.compute, o.shape) for o in outs]
    yield made
    for a, o in zip(made, outs):
        if a is not o:
            converted(lo, a, o)


def transposed(a: Array) -> Array:
    """The matrices with rows and columns exchanged: a view."""
    return a.permute((*range(a.ndim - 2), a.ndim - 1, a.ndim - 2))


def fill(lo: Lowering, a: Array, value: float, name: str) -> None:
    """Launches a[...] = value."""
    pointwise(lo, [broadcast(Literal(value, a.dtype), a.shape)], [a], name)


class Triangle(Source):
    """The lower (upper) triangle of matrices, and zeros beside it; with `mirrored` the other triangle's elements in their place, which
    makes the matrices symmetric."""

    def __init__(self, source: Source, lower: bool, mirrored: Source | None = None):
        self.source, self.lower, self.mirrored = source, lower, mirrored
        self.shape, self.dtype = source.shape, source.dtype

    def value(self, k, at):
        row, column = at.coord(len(self.shape) - 2), at.coord(len(self.shape) - 1)
        inside = column <= row if self.lower else column >= row
        other = const(0, self.dtype) if self.mirrored is None else self.mirrored.at(k, at)
        return select(inside, self.source.at(k, at), other)


class Identity(Source):
    """Matrices with ones on the diagonal and zeros beside it."""

    def __init__(self, shape: Sequence[Index], dtype: DType):
        self.shape, self.dtype = tuple(shape), dtype

    def value(self, k, at: At):
        row, column = at.coord(len(self.shape) - 2), at.coord(len(self.shape) - 1)
        one, zero = const(1, self.dtype, at.lanes), const(0, self.dtype, at.lanes)
        return select((row <= column) & (column <= row), one, zero)


# ---- parts of kernels ------------------------------------------------------------------------------------------------


def in_tiles(k: KernelBuilder, start: Index, stop: Index, rows: int, write: Callable[[Expr, int], None], name: str = "r") -> None:
    """Calls write(row, how many) in loops over start..stop: for groups of `rows`, then for each that is left."""
    whole = k.let(start + (stop - start) // rows * rows)
    with k.loop(start, whole, rows, name=name) as r:
        write(r, rows)
    if rows > 1:
        with k.loop(whole, stop, name=name) as r:
            write(r, 1)


def subtract_products(
    k: KernelBuilder, sums: Sequence[Variable], terms: tuple[Index, Index], factors: Callable[[Expr], Sequence[Expr]],
    vector: Callable[[Expr], Expr],
) -> None:  # fmt: skip
    """sums[q] -= factors(s)[q] * vector(s) for each s of terms[0]..terms[1], in order."""
    with k.loop(*terms, name="s") as s:
        v = vector(s)
        for total, factor in zip(sums, factors(s)):
            total.set(fma(-splat(factor), v, total.value))


def power_of_two(x: Expr) -> Expr:
    """The largest power of two that is at most x >= 0, a normal number at least; infinity for infinity and NaN."""
    kind, mantissa = (int64, 52) if x.dtype.size == 8 else (int32, 23)
    least = 2.0**-1022 if x.dtype.size == 8 else 2.0**-126
    exponent = const(((1 << (kind.bits - 1 - mantissa)) - 1) << mantissa, kind)
    return bitcast(bitcast(maximum(x, const(least, x.dtype)), kind) & exponent, x.dtype)


def known(*extents: Index) -> bool:
    """Whether none of these extents is known to be 0: there is something to compute."""
    return all(as_int(n) != 0 for n in extents)
