"""Eigenvalues and vectors of symmetric matrices: Householder's tridiagonal form, then implicit QR sweeps.

    a kernel makes the tridiagonal form: a piece is a matrix
        for row k: v, tau = the reflector of what is right of the diagonal
            for row i below: row i -= v' w'^T + w' v'^T of the step before, and p[i] = tau * row i . v     # one pass over the matrix
            w = p - tau / 2 (p . v) v
    the product of the reflectors, transposed: rows that become eigenvectors           (`reflectors.py`)
    sweeps with Wilkinson's shift, their rotations applied to those rows               (`sweeps.py`)

Matrices are scaled by a power of two first. Errors of eigenvalues are of the order of eps times the largest one.
Source: Bowdler, Martin, Reinsch and Wilkinson, "The QR and QL algorithms for symmetric matrices", 1968.
"""

from __future__ import annotations

import math

from tengen.base.dtype import float64
from tengen.kernels import numerics
from tengen.kernels.linalg.reflectors import Reflectors, dot, form, make_factors, make_reflector, zero
from tengen.kernels.linalg.stacks import Triangle, converted, dense, in_tiles, known, stack, tile_rows, transposed
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
from tengen.kernels.pointwise import pointwise
from tengen.kernels.source import Leaf
from tengen.loops.lang import LANES, Expr, cast, const, fma, fold, maximum, select, splat


def eigh(lo: Lowering, a: Array, values: Array, vectors: Array | None, lower: bool = True) -> None:
    """Launches the eigenvalues of symmetric matrices in ascending order, and orthonormal eigenvectors as columns.

    Shapes: a (..., n, n), of which one triangle is read; values (..., n), vectors (..., n, n) or None
    """
    wanted = [values] if vectors is None else [values, vectors]
    with dense(lo, *wanted) as made:
        d = made[0].dtype
        if not known(*a.shape):
            return
        work = lo.temp(d, a.shape)
        whole = converted(lo, a, lo.temp(d, a.shape)) if a.dtype is not d else a
        pointwise(lo, [Triangle(Leaf(whole), lower, Leaf(transposed(whole)))], [work], "eigh_input")
        s = stack(work)
        count, n, _ = s.shape
        of = band(lo, count, n, d, len(made) - 1)
        r = Reflectors(lo, count, n, n, d)
        _tridiagonal(lo, s, r, of)
        rows = []
        if vectors is not None:
            make_factors(lo, r)
            form(lo, r, s)
            rows = [Panels(lo, s)]
        iterate(lo, of, lambda: _sweeps(lo, of), rows)
        out = Array(made[0].id, d, (count, n), (n, 1), made[0].offset)
        order = finish(lo, of, out, False)
        if vectors is not None:
            order_vectors(lo, of, order, rows, [s])
            converted(lo, transposed(s), stack(made[1]))


def _tridiagonal(lo: Lowering, s: Array, r: Reflectors, of: Band) -> None:
    """Launches the tridiagonal form: reflectors, and the band. What is left in `s` means nothing."""
    n, d = of.n, s.dtype
    p = lo.temp(d, (of.count, n))
    w = lo.temp(d, (of.count, n))
    k = lo.kernel("tridiagonal")
    b = k.split(of.count)
    y, v, taus, product, kept = k.write(s), k.write(r.vectors), k.write(r.tau), k.write(p), k.write(w)
    diagonal, beside, scale, state = k.write(of.d), k.write(of.e), k.write(of.scale), k.write(of.state)
    base, row = k.let(b * n * n), k.let(b * n)
    unit, finite = scale_down(k, y, base, k.let(n * n))
    k.store(scale, b, select(finite, cast(unit, float64), const(math.nan, float64)))
    k.store(state, b * 2 + UNFINISHED, select(finite, n - 1, const(0)))
    zero(k, kept, row, row + n)
    padded = k.let(r.blocks * numerics.REFLECTOR_BLOCK)
    zero(k, v, r.row(b, const(0)), r.row(b, const(0)) + padded * n)
    zero(k, taus, r.scale(b, const(0)), r.scale(b, const(0)) + padded)
    for memory in (diagonal, beside):
        zero(k, memory, row, row + n)
    rows = tile_rows(d, lo.target)

    def updated(i: Expr, c: Expr, count, before: Expr, factors: tuple[Expr, Expr]) -> Expr:
        """Elements of row i with the products of the step before subtracted. factors: v'[i], w'[i]."""
        x = k.load(y, base + i * n + c, LANES, count)
        x = fma(-splat(factors[0]), k.load(kept, row + c, LANES, count), x)
        return k.let(fma(-splat(factors[1]), k.load(v, before + c, LANES, count), x))

    with k.if_(finite), k.loop(0, n, name="step") as step:
        before = k.let(r.row(b, maximum(step - 1, 0)))
        own = k.let(r.row(b, step))
        pair = lambda i: (k.load(v, before + i), k.load(kept, row + i))
        factors = pair(step)
        for c, count in k.vector_loop(step, n, "c"):
            k.store(y, base + step * n + c, updated(step, c, count, before, factors), count)
        k.store(diagonal, row + step, cast(k.load(y, base + step * n + step), float64))
        with k.if_(step < n - 1):
            first = k.let(step + 1)
            for c, count in k.vector_loop(first, n, "c"):
                k.store(v, own + c, k.load(y, base + step * n + c, LANES, count), count)
            beta, tau = make_reflector(k, v, own + first, n - first)
            k.store(taus, r.scale(b, step), tau)
            k.store(beside, row + step, cast(beta, float64))

            def some(i: Expr, rows: int) -> None:
                pairs = [pair(i + q) for q in range(rows)]
                sums = [k.var(const(0, d, LANES), name="p") for _ in range(rows)]
                for c, count in k.vector_loop(first, n, "c"):
                    x = k.load(v, own + c, LANES, count)
                    for q, total in enumerate(sums):
                        value = updated(i + q, c, count, before, pairs[q])
                        k.store(y, base + (i + q) * n + c, value, count)
                        total.set(fma(value, x, total.value))
                for q, total in enumerate(sums):
                    k.store(product, row + i + q, fold("add", total.value) * tau)

            in_tiles(k, first, n, rows, some, "i")
            half = k.let(dot(k, product, v, (row + first, own + first), n - first) * tau * -0.5)
            for c, count in k.vector_loop(first, n, "c"):
                x = k.load(v, own + c, LANES, count)
                k.store(kept, row + c, fma(splat(half), x, k.load(product, row + c, LANES, count)), count)
    lo.launch(k)


def _sweeps(lo: Lowering, of: Band) -> None:
    """Launches sweeps: QR from the first place to the last, which converges to an eigenvalue."""
    q = Sweeper(lo, of, "tridiagonal_sweeps")
    k, eps = q.k, of.eps()
    zero_, one = const(0, float64), const(1, float64)

    def negligible(i: Expr) -> Expr:
        return abs(q.e(i)) <= maximum((abs(q.d(i)) + abs(q.d(i + 1))) * eps, const(TINY, float64))

    with q.sweeps(negligible) as (first, last):
        beside, end = q.e(last - 1), q.d(last)
        g = k.let((q.d(last - 1) - end) / (beside * 2.0))
        root = k.let(hypot(g, one))
        g = k.var(k.let(q.d(first) - end + beside / (g + signed(root, g))), name="g")
        s, c, p = k.var(one, name="s"), k.var(one, name="c"), k.var(zero_, name="p")
        with k.loop(first, last, name="i") as i:
            e = q.e(i)
            f, h = k.let(s.value * e), k.let(c.value * e)
            small = k.let(maximum(abs(f), abs(g.value)) < TINY)
            r = k.let(select(small, zero_, hypot(f, g.value)))
            with k.if_(i > first):
                q.set_e(i - 1, r)
            divisor = k.let(select(small, one, r))
            s.set(select(small, zero_, f / divisor))
            c.set(select(small, one, g.value / divisor))
            g.set(q.d(i) - p.value)
            r = k.let((q.d(i + 1) - g.value) * s.value + c.value * h * 2.0)
            p.set(s.value * r)
            q.set_d(i, g.value + p.value)
            g.set(c.value * r - h)
            q.keep(0, i, c.value, s.value)
        q.set_d(last, q.d(last) - p.value)
        q.set_e(last - 1, g.value)
    lo.launch(k)
