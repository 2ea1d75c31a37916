"""Singular values and vectors: Householder's bidiagonal form, then implicit QR sweeps.

    a kernel makes the bidiagonal form of matrices with at least as many rows as columns: a piece is a matrix
        for column k: u, tau = the reflector of what is on and below the diagonal
            z = tau * u^T (the columns right of it)
            v, tau' = the reflector of row k right of the diagonal, with u's part subtracted
            for row i below: row i -= u[i] z;  row i -= tau' (row i . v) v
    the products of the reflectors, transposed: rows that become singular vectors      (`reflectors.py`)
    sweeps, their rotations applied to those rows                                      (`sweeps.py`)

Matrices are scaled by a power of two first. Errors of singular values are of the order of eps times the largest one.
Source: Golub and Reinsch, "Singular value decomposition and least squares solutions", 1970; the shift and the test for a shift of 0 as
Demmel and Kahan, "Accurate singular values of bidiagonal matrices", 1990.
"""

from __future__ import annotations

import math

from tengen.base.dtype import float64
from tengen.kernels import numerics
from tengen.kernels.linalg.reflectors import Reflectors, form, make_factors, make_reflector, zero
from tengen.kernels.linalg.stacks import converted, dense, in_tiles, known, stack, tile_rows, transposed
from tengen.kernels.linalg.sweeps import (
    TINY,
    UNFINISHED,
    Band,
    Panels,
    Sweeper,
    band,
    finish,
    hypot,
    iterate,
    order_vectors,
    scale_down,
    signed,
)
from tengen.kernels.lowering import Array, Lowering
from tengen.loops.builder import as_expr
from tengen.loops.lang import LANES, Expr, cast, const, equal, fma, fold, maximum, minimum, ramp, select, splat, unary


def svd(lo: Lowering, a: Array, u: Array | None, values: Array, v: Array | None) -> None:
    """Launches the singular value decomposition a = u diag(values) v, with values in descending order.

    Shapes: a (..., m, n) with m >= n; values (..., n), u (..., m, p) with p = n or m, v (..., n, n); u and v may be None together
    """
    wanted = [values] if u is None or v is None else [values, u, v]
    with dense(lo, *wanted) as made:
        d = made[0].dtype
        if not known(*a.shape[:-2], a.shape[-2]):
            return
        work = stack(converted(lo, a, lo.temp(d, a.shape)))
        count, m, n = work.shape
        left, right = Reflectors(lo, count, n, m, d), Reflectors(lo, count, n, n, d)
        if not known(n):
            return form(lo, left, stack(made[1])) if len(made) > 1 else None
        of = band(lo, count, n, d, len(made) - 1)
        _bidiagonal(lo, work, left, right, of)
        rows = []
        for r, out in zip((left, right), made[1:]):
            make_factors(lo, r)
            product = lo.temp(d, (count, *out.shape[-2:]))
            form(lo, r, product)
            rows.append(Panels(lo, product))
        iterate(lo, of, lambda: _sweeps(lo, of), rows[::-1])
        order = finish(lo, of, Array(made[0].id, d, (count, n), (n, 1), made[0].offset), True)
        if rows:
            ordered = lo.temp(d, (count, rows[0].rows, rows[0].columns))
            order_vectors(lo, of, order, rows, [ordered, stack(made[2])])
            converted(lo, transposed(ordered), stack(made[1]))


def _bidiagonal(lo: Lowering, a: Array, left: Reflectors, right: Reflectors, of: Band) -> None:
    """Launches the bidiagonal form: reflectors, and the band. What is left in `a` means nothing."""
    n, d = of.n, a.dtype
    m = as_expr(a.shape[1])
    sums = lo.temp(d, (of.count, n))
    k = lo.kernel("bidiagonal")
    b = k.split(of.count)
    y, z = k.write(a), k.write(sums)
    x, taus, v, more_taus = k.write(left.vectors), k.write(left.tau), k.write(right.vectors), k.write(right.tau)
    diagonal, beside, scale, state = k.write(of.d), k.write(of.e), k.write(of.scale), k.write(of.state)
    base, row = k.let(b * m * n), k.let(b * n)
    unit, finite = scale_down(k, y, base, k.let(m * n))
    k.store(scale, b, select(finite, cast(unit, float64), const(math.nan, float64)))
    k.store(state, b * 2 + UNFINISHED, select(finite, n - 1, const(0)))
    padded = k.let(left.blocks * numerics.REFLECTOR_BLOCK)
    for r, vectors, factors in ((left, x, taus), (right, v, more_taus)):
        zero(k, vectors, r.row(b, const(0)), r.row(b, const(0)) + padded * r.length)
        zero(k, factors, r.scale(b, const(0)), r.scale(b, const(0)) + padded)
    for memory in (diagonal, beside):
        zero(k, memory, row, row + n)
    rows = tile_rows(d, lo.target)
    with k.if_(finite), k.loop(0, n, name="step") as step:
        column = k.let(left.row(b, step))
        for i, count in k.vector_loop(step, m, "i"):
            k.store(x, column + i, k.load(y, (ramp() + i) * n + (base + step), LANES, count), count)
        beta, tau = make_reflector(k, x, column + step, m - step)
        k.store(taus, left.scale(b, step), tau)
        k.store(diagonal, row + step, cast(beta, float64))
        with k.if_(step < n - 1):
            first, own = k.let(step + 1), k.let(right.row(b, step))
            for c, count in k.vector_loop(first, n, "c"):
                total = k.var(const(0, d, LANES), name="z")
                with k.loop(step, m, name="i") as i:
                    total.set(fma(splat(k.load(x, column + i)), k.load(y, base + i * n + c, LANES, count), total.value))
                value = k.let(total.value * splat(tau))
                k.store(z, row + c, value, count)
                k.store(v, own + c, k.load(y, base + step * n + c, LANES, count) - value, count)
            beta, more = make_reflector(k, v, own + first, n - first)
            k.store(more_taus, right.scale(b, step), more)
            k.store(beside, row + step, cast(beta, float64))

            def some(i: Expr, rows: int) -> None:
                factors = [k.load(x, column + i + q) for q in range(rows)]
                totals = [k.var(const(0, d, LANES), name="y") for _ in range(rows)]
                for c, count in k.vector_loop(first, n, "c"):
                    beside, along = k.load(z, row + c, LANES, count), k.load(v, own + c, LANES, count)
                    for q, total in enumerate(totals):
                        at = base + (i + q) * n + c
                        value = k.let(fma(-splat(factors[q]), beside, k.load(y, at, LANES, count)))
                        k.store(y, at, value, count)
                        total.set(fma(value, along, total.value))
                products = [k.let(fold("add", total.value) * more) for total in totals]
                for c, count in k.vector_loop(first, n, "c"):
                    along = k.load(v, own + c, LANES, count)
                    for q, product in enumerate(products):
                        at = base + (i + q) * n + c
                        k.store(y, at, fma(-splat(product), along, k.load(y, at, LANES, count)), count)

            in_tiles(k, first, m, rows, some, "i")
    lo.launch(k)


def _rotation(q: Sweeper, f: Expr, g: Expr) -> tuple[Expr, Expr, Expr]:
    """(c, s, r) of the rotation that takes (f, g) to (r, 0); operands that are next to nothing are left alone."""
    k, one = q.k, const(1, float64)
    small = k.let(maximum(abs(f), abs(g)) < TINY)
    r = k.let(hypot(f, g))
    divisor = k.let(select(small, one, r))
    zero_ = const(0, float64)
    return k.let(select(small, one, f / divisor)), k.let(select(small, zero_, g / divisor)), k.let(select(small, f, r))


def _least_singular_value(q: Sweeper, f: Expr, g: Expr, h: Expr) -> Expr:
    """That of [[f, g], [0, h]], as LAPACK's dlas2."""
    k, one = q.k, const(1, float64)
    f, g, h = (k.let(abs(x)) for x in (f, g, h))
    least, most = k.let(minimum(f, h)), k.let(maximum(f, h))
    safe = k.let(select(most > 0.0, most, one))
    ratio = k.let(select(most > 0.0, least / safe, const(0, float64)))
    up, down = k.let(one + ratio), k.let((safe - least) / safe)
    # where g is the smaller one
    au = k.let(g / safe)
    au = k.let(au * au)
    c = k.let(least * 2.0 / (unary("sqrt", fma(up, up, au)) + unary("sqrt", fma(down, down, au))))
    # where it is not
    small = k.let(most / select(g > 0.0, g, one))
    x, y = k.let(up * small), k.let(down * small)
    e = k.let(one / (unary("sqrt", fma(x, x, one)) + unary("sqrt", fma(y, y, one))))
    other = k.let(least * e * small * 2.0)
    return k.let(select(equal(least, 0.0), const(0, float64), select(g < most, c, other)))


def _sweeps(lo: Lowering, of: Band) -> None:
    """Launches sweeps: QR from the first place to the last, with the least singular value of the last two places as shift. Turns 0 are
    of the right vectors, turns 1 of the left ones."""
    q = Sweeper(lo, of, "bidiagonal_sweeps")
    k, eps = q.k, of.eps()
    zero_ = const(0, float64)
    largest = k.var(zero_, name="largest")
    with k.loop(0, of.n, name="i") as i:
        largest.set(maximum(largest.value, maximum(abs(q.d(i)), abs(q.e(i)))))
    absolute = k.let(maximum(largest.value * (eps / 16), const(TINY, float64)))

    def negligible(i: Expr) -> Expr:
        return abs(q.e(i)) <= maximum((abs(q.d(i)) + abs(q.d(i + 1))) * (eps / 2), absolute)

    with q.sweeps(negligible) as (first, last):
        least = k.var(abs(q.d(last)), name="least")
        with k.loop(first, last, name="i") as i:
            least.set(minimum(least.value, abs(q.d(i))))
        start = q.d(first)
        size = k.let(abs(start))
        shift = _least_singular_value(q, q.d(last - 1), q.e(last - 1), q.d(last))
        ratio = k.let(shift / select(size > 0.0, size, const(1, float64)))
        shiftless = k.let((least.value <= absolute) | (ratio * ratio < eps))
        shifted = k.let((size - shift) * (signed(const(1, float64), start) + shift / select(equal(start, 0.0), const(1, float64), start)))
        f, g = k.var(select(shiftless, start, shifted), name="f"), k.var(q.e(first), name="g")
        with k.loop(first, last, name="i") as i:
            c, s, r = _rotation(q, f.value, g.value)
            with k.if_(i > first):
                q.set_e(i - 1, r)
            d, e, following = q.d(i), q.e(i), q.d(i + 1)
            f.set(fma(c, d, s * e))
            e = k.let(fma(c, e, -(s * d)))
            g.set(s * following)
            following = k.let(c * following)
            q.keep(0, i, c, s)
            c, s, r = _rotation(q, f.value, g.value)
            q.set_d(i, r)
            f.set(fma(c, e, s * following))
            q.set_d(i + 1, fma(c, following, -(s * e)))
            q.keep(1, i, c, s)
            with k.if_(i < last - 1):
                beyond = q.e(i + 1)
                g.set(s * beyond)
                q.set_e(i + 1, c * beyond)
        q.set_e(last - 1, f.value)
    lo.launch(k)
