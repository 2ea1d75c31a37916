"""Cholesky's factorisation, and LU with partial pivoting: right-looking, by blocks of BLOCK_COLUMNS columns.

    for block of columns, an iteration of the program:
        a kernel factors the block: a piece is a matrix                        # LU: with the search of pivots, which swaps whole rows
        a kernel solves for the block's rows beside it, and subtracts their products from what is right of and below the block:
            a piece is LANES columns                                           # Cholesky: two kernels

Every element gets its products by fma in the order of the columns, whatever the block, so that blocks change no bit:
    u[i, j] = (a[i, j] - sum of l[i, s] * u[s, j] over s < min(i, j)), divided by the pivot below the diagonal
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tengen.base.dtype import int64
from tengen.kernels.axes import unflatten
from tengen.kernels.indexing.gather import TakeAlong
from tengen.kernels.linalg.stacks import (
    Triangle,
    converted,
    dense,
    fill,
    in_tiles,
    known,
    stack,
    subtract_products,
    tile_rows,
    transposed,
)
from tengen.kernels.lowering import Array, KernelBuilder, Lowering, product
from tengen.kernels.pointwise import pointwise
from tengen.kernels.source import Leaf, Source
from tengen.loops.builder import as_expr
from tengen.loops.lang import LANES, Expr, cast, cdiv, const, equal, fma, maximum, minimum, not_equal, select, splat, unary
from tengen.loops.statements import Buffer

BLOCK_COLUMNS = 2 * LANES  # columns that are factored before what is right of them gets their products


class _Count(Source):
    """The coordinate on the last axis: 0, 1, 2 ..."""

    def __init__(self, shape):
        self.shape, self.dtype = tuple(shape), int64

    def value(self, k, at):
        c = at.coord(len(self.shape) - 1)
        return splat(c) if at.lanes > 1 else c


class _Chunk:
    """A piece of the kernels that go over what is right of a block: LANES columns of a matrix, from the block's end on."""

    def __init__(self, k: KernelBuilder, a: Array, step: Expr, most: Expr):
        count, m, n = (as_expr(d) for d in a.shape)
        chunks = cdiv(n, LANES)
        piece = k.split(count * chunks)
        self.k, self.n, self.base = k, n, k.let(piece // chunks * (m * n) + a.offset)
        self.start = k.let(step * BLOCK_COLUMNS)
        self.stop = k.let(minimum(self.start + BLOCK_COLUMNS, most))
        first = piece % chunks * LANES
        self.first = k.let(maximum(first, self.stop))
        self.end = k.let(minimum(first + LANES, n))
        self.count = k.let(self.end - self.first)
        self.buffer = k.write(a)

    def at(self, i: Expr, j: Expr) -> Expr:
        return self.k.load(self.buffer, self.base + i * self.n + j)

    def row(self, i: Expr) -> Expr:
        return self.k.load(self.buffer, self.base + i * self.n + self.first, LANES, self.count)

    def put(self, i: Expr, value: Expr) -> None:
        self.k.store(self.buffer, self.base + i * self.n + self.first, value, self.count)

    def solve(self, factor: Callable[[Expr, Expr], Expr], divided: bool) -> None:
        """Writes the block's rows: each gets the products of those above it, factor(i, s) * row s."""
        with self.k.loop(self.start, self.stop, name="i") as i:
            total = self.k.var(self.row(i), name="u")
            subtract_products(self.k, [total], (self.start, i), lambda s: [factor(i, s)], self.row)
            self.put(i, total.value / splat(self.at(i, i)) if divided else total.value)

    def subtract(self, stop: Expr, rows: int, factor: Callable[[Expr, Expr], Expr]) -> None:
        """Writes the rows below the block, up to `stop`, with the products of the block's rows subtracted."""

        def some(r: Expr, rows: int) -> None:
            sums = [self.k.var(self.row(r + q), name="u") for q in range(rows)]
            subtract_products(self.k, sums, (self.start, self.stop), lambda s: [factor(r + q, s) for q in range(rows)], self.row)
            for q, total in enumerate(sums):
                self.put(r + q, total.value)

        in_tiles(self.k, self.stop, stop, rows, some)


# ---- LU --------------------------------------------------------------------------------------------------------------


def lu(lo: Lowering, a: Array, out: Array, order: Array, sign: Array, info: Array) -> None:
    """Launches the factors of a[order] = L U, where L has ones on its diagonal: both in `out`, L below the diagonal.

    Shapes: a, out (..., m, n), order (..., m) int64: the rows of `a` in the order of those of the product; sign (...): of this
        permutation; info (...) int64: 0, or the number of the first pivot that is 0, from 1 on.
    The pivot of a column is the first element of the largest magnitude.
    """
    with dense(lo, out, order, sign, info) as (factors, rows, parity, failed):
        converted(lo, a, factors)
        pointwise(lo, [_Count(rows.shape)], [rows], "lu_order")
        fill(lo, failed, 0, "lu_info")
        fill(lo, parity, 1, "lu_sign")
        if not known(*factors.shape):
            return
        u = stack(factors)
        m, n = as_expr(u.shape[1]), as_expr(u.shape[2])
        most = minimum(m, n)
        with lo.loop(cdiv(most, BLOCK_COLUMNS)) as step:
            _lu_panel(lo, u, rows, parity, failed, step, most)
            k = lo.kernel("lu_update")
            c = _Chunk(k, u, step, most)
            with k.if_(c.count > 0):
                c.solve(c.at, False)
                c.subtract(m, tile_rows(u.dtype, lo.target), c.at)
            lo.launch(k)


def _lu_panel(lo: Lowering, u: Array, rows: Array, parity: Array, failed: Array, step: Expr, most: Expr) -> None:
    """Launches the factors of a block of columns, with rows swapped over their whole length."""
    k = lo.kernel("lu_panel")
    b = k.split(as_expr(u.shape[0]))
    m, n = as_expr(u.shape[1]), as_expr(u.shape[2])
    a, order, sign, info = k.write(u), k.write(rows), k.write(parity), k.write(failed)
    base, ordered = k.let(b * (m * n) + u.offset), k.let(b * m + rows.offset)
    start = k.let(step * BLOCK_COLUMNS)
    stop = k.let(minimum(start + BLOCK_COLUMNS, most))
    at = lambda i, j: k.load(a, base + i * n + j)
    zero = const(0, u.dtype)
    with k.loop(start, stop, name="j") as j:
        best, where = k.var(abs(at(j, j)), name="best"), k.var(j, name="where")
        with k.loop(j + 1, m, name="i") as i:
            size = k.let(abs(at(i, j)))
            better = k.let(size > best.value)
            best.set(select(better, size, best.value))
            where.set(select(better, i, where.value))
        p = k.let(where.value + 0)
        with k.if_(not_equal(p, j)):
            _swap_rows(k, a, base, n, p, j)
            x, y = k.load(order, ordered + p), k.load(order, ordered + j)
            k.store(order, ordered + p, y)
            k.store(order, ordered + j, x)
            k.store(sign, b + parity.offset, -k.load(sign, b + parity.offset))
        pivot = at(j, j)
        nothing = k.let(equal(pivot, zero))
        with k.if_(nothing):
            first = k.load(info, b + failed.offset)
            k.store(info, b + failed.offset, select(equal(first, 0), j + 1, first))
        with k.loop(j + 1, m, name="i") as i:
            factor = k.let(select(nothing, zero, at(i, j) / pivot))
            k.store(a, base + i * n + j, factor)
            for c, count in k.vector_loop(j + 1, stop, "c"):
                old, upper = k.load(a, base + i * n + c, LANES, count), k.load(a, base + j * n + c, LANES, count)
                k.store(a, base + i * n + c, fma(-splat(factor), upper, old), count)
    lo.launch(k)


def _swap_rows(k: KernelBuilder, a: Buffer, base: Expr, n: Expr, p: Expr, q: Expr) -> None:
    for c, count in k.vector_loop(0, n, "c"):
        x, y = (k.load(a, base + i * n + c, LANES, count) for i in (p, q))
        k.store(a, base + p * n + c, y, count)
        k.store(a, base + q * n + c, x, count)


def order_rows(lo: Lowering, source: Array, order: Array, out: Array, back: bool = False) -> None:
    """Launches out = source[order], row by row; with `back` out[order] = source.

    Shapes: source, out (..., n, k), order (..., n), whose leading axes broadcast.
    """
    rows = order.expand(out.shape[:-1])
    if back:
        placed = lo.temp(order.dtype, rows.shape)
        fill(lo, placed, 0, "lu_no_places")
        if known(*rows.shape):
            k = lo.kernel("lu_places")
            n = as_expr(rows.shape[-1])
            b = k.split(product(rows.shape[:-1]))
            coords = unflatten(k, b, rows.shape[:-1]) if rows.ndim > 1 else []
            x, y = k.read(rows), k.write(placed)
            with k.loop(0, n, name="i") as i:
                place = minimum(maximum(k.load(x, rows.index((*coords, i))), 0), n - 1)  # of no permutation: somewhere inside
                k.store(y, b * n + place, i)
            lo.launch(k)
        rows = placed
    places = Leaf(rows.unsqueeze(rows.ndim).expand(out.shape))
    pointwise(lo, [TakeAlong(Leaf(source.expand(out.shape)), places, out.ndim - 2)], [out], "lu_rows")


# ---- Cholesky --------------------------------------------------------------------------------------------------------


def cholesky(lo: Lowering, a: Array, out: Array, info: Array, upper: bool) -> None:
    """Launches the Cholesky factor of symmetric positive definite matrices: out = L with a = L L^T, or with `upper` U with a = U^T U.

    Only the lower (upper) triangle of `a` is read. info (...) int64: 0, or the number of the first pivot that is not > 0, from 1 on; from
    there on the factor is NaN.
    """
    with dense(lo, info, out) as (failed, factor):
        fill(lo, failed, 0, "cholesky_info")
        work = lo.temp(a.dtype.compute, a.shape)
        converted(lo, a if upper else transposed(a), work)
        if known(*a.shape):
            _cholesky_in_place(lo, stack(work), failed)
        found = work if upper else transposed(work)
        pointwise(lo, [Triangle(Leaf(found), not upper)], [factor], "cholesky_factor")


def _cholesky_in_place(lo: Lowering, u: Array, failed: Array) -> None:
    """u = U with the upper triangle of u = that of U^T U; by rows, which lie densely."""
    n = as_expr(u.shape[1])
    with lo.loop(cdiv(n, BLOCK_COLUMNS)) as step:
        _cholesky_block(lo, u, failed, step)
        k = lo.kernel("cholesky_rows")
        c = _Chunk(k, u, step, n)
        with k.if_(c.count > 0):
            c.solve(lambda i, s: c.at(s, i), True)
        lo.launch(k)
        k = lo.kernel("cholesky_update")
        c = _Chunk(k, u, step, n)
        with k.if_(c.count > 0):
            c.subtract(c.end, tile_rows(u.dtype, lo.target), lambda i, s: c.at(s, i))
        lo.launch(k)


def _cholesky_block(lo: Lowering, u: Array, failed: Array, step: Expr) -> None:
    """Launches the factor of a block on the diagonal."""
    k = lo.kernel("cholesky_block")
    b = k.split(as_expr(u.shape[0]))
    n = as_expr(u.shape[1])
    a, info = k.write(u), k.write(failed)
    base, start = k.let(b * (n * n) + u.offset), k.let(step * BLOCK_COLUMNS)
    stop = k.let(minimum(start + BLOCK_COLUMNS, n))
    with k.loop(start, stop, name="j") as j:
        pivot = k.load(a, base + j * n + j)
        good = k.let(pivot > const(0, u.dtype))
        first = k.load(info, b + failed.offset)
        bad = k.let(1 - cast(good, int64))
        k.store(info, b + failed.offset, select(equal(first, 0), bad * (j + 1), first))
        root = k.let(select(good, unary("sqrt", select(good, pivot, const(1, u.dtype))), const(math.nan, u.dtype)))
        k.store(a, base + j * n + j, root)
        for c, count in k.vector_loop(j + 1, stop, "c"):
            k.store(a, base + j * n + c, k.load(a, base + j * n + c, LANES, count) / splat(root), count)
        with k.loop(j + 1, stop, name="i") as i:
            factor = k.load(a, base + j * n + i)
            for c, count in k.vector_loop(i, stop, "c"):
                old, row = k.load(a, base + i * n + c, LANES, count), k.load(a, base + j * n + c, LANES, count)
                k.store(a, base + i * n + c, fma(-splat(factor), row, old), count)
    lo.launch(k)
