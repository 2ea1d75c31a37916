"""Eigenvalues and vectors of general complex matrices: Schur's form, by implicit QR sweeps over Hessenberg's, and substitution.

    the matrix is divided by a power of two; a = q h q^H                                    (`complex_reflectors.py`)
    until everything beside the diagonal is negligible, in the last block that it does not part:
        a sweep of Givens rotations with the shift of Wilkinson (every tenth one is exceptional), applied to h and q
    for each eigenvalue t[j, j]: the vector x with t x = t[j, j] x, by substitution from row j - 1 upwards
    the vectors q x, of length 1; the first element that is at least half as large as the largest one is real and positive

A matrix with elements that are not finite, or whose sweeps do not converge in 30 for each eigenvalue, gives NaN.
Source: Francis, "The QR transformation", 1961; Golub and Van Loan, "Matrix computations", 7.5 and 7.6
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tengen.base.dtype import float64
from tengen.kernels.linalg.complex_reflectors import (
    Matrix,
    Number,
    Parts,
    conj,
    divided,
    held,
    hessenberg,
    lanes,
    minus,
    plus,
    size,
    times,
    value_of,
)
from tengen.kernels.linalg.stacks import converted, dense, known, power_of_two, stack
from tengen.kernels.lowering import Array, KernelBuilder, Lowering
from tengen.loops.builder import as_expr
from tengen.loops.lang import LANES, Expr, cdiv, const, equal, fma, maximum, minimum, select, unary

SWEEPS = 30  # for each eigenvalue, before the matrix is given up
VECTOR_GROWTH = 2.0**40  # a vector with larger elements is scaled down, so that nothing overflows where eigenvalues are close


def eig(lo: Lowering, a: Parts, values: Parts, vectors: Parts) -> None:
    """Launches the eigenvalues and vectors of square matrices.

    Shapes: a (..., n, n), values (..., n), vectors (..., n, n), as columns
    """
    with dense(lo, *values, *vectors) as made:
        d = made[0].dtype
        if not known(*made[2].shape):
            return
        outs = [stack(x) for x in made[2:]]
        temps = [[lo.temp(d, outs[0].shape) for _ in a] for _ in range(4)]
        work, t, q, x = [(p[0], p[1]) for p in temps]
        for source, y in zip(a, work):
            converted(lo, stack(converted(lo, source, lo.temp(d, source.shape))), y)
        count = as_expr(outs[0].shape[0])
        scale = lo.temp(d, (count, 1, 1))
        k = lo.kernel("schur_scale")
        b = k.split(count)
        unit, finite = Matrix(k, b, work).scale_down()
        k.store(k.write(scale), b, select(finite, unit, const(math.nan, d)))
        lo.launch(k)
        hessenberg(lo, work, t, q)
        _sweeps(lo, (*t, *q), scale)
        for source, y in zip(t, made):
            diagonal = Array(source.id, d, (count, source.shape[1]), (source.strides[0], source.strides[1] + 1), source.offset)
            converted(lo, diagonal, Array(y.id, d, diagonal.shape, (diagonal.shape[1], 1), y.offset))
        _triangle_vectors(lo, t, x)
        _turned_back(lo, q, x, (outs[0], outs[1]))


def _sweeps(lo: Lowering, outs: Sequence[Array], scale: Array) -> None:
    k = lo.kernel("schur_sweeps")
    b = k.split(as_expr(outs[0].shape[0]))
    h, q = Matrix(k, b, (outs[0], outs[1])), Matrix(k, b, (outs[2], outs[3]))
    scales = k.write(scale)
    n, zero = h.rows, const(0, h.dtype)
    eps = const(2.0**-52 if h.dtype is float64 else 2.0**-23, h.dtype)
    unit = k.let(k.load(scales, b))
    last = k.var(select(equal(unit, unit), n - 1, const(0)), name="last")
    tried = k.var(const(0), name="tried")
    with k.loop(0, n * SWEEPS + n, name="trip"), k.if_(last.value > 0):
        first, hi = k.var(const(0), name="first"), k.let(last.value + 0)
        with k.loop(0, hi, name="i") as i:
            beside = size(h.at(i + 1, i))
            small = k.let(beside <= eps * maximum(size(h.at(i, i)) + size(h.at(i + 1, i + 1)), eps))
            first.set(select(small, i + 1, first.value))
            with k.if_(small):
                h.put(i + 1, i, (zero, zero))
        start = k.let(first.value + 0)
        with k.if_(equal(start, hi)):
            last.set(hi - 1)
            tried.set(0)
        with k.else_():
            tried.set(tried.value + 1)
            _sweep(h, q, start, hi, _shift(h, hi, equal(tried.value % 10, const(0))))
    done = k.let(equal(last.value, const(0)) & equal(unit, unit))
    by = k.let(select(done, unit, const(math.nan, h.dtype)))
    with k.loop(0, n, name="i") as i, k.loop(0, n, name="j") as j:
        upper = k.let(j >= i)
        re, im = h.at(i, j)
        h.put(i, j, (select(upper, re * by, zero), select(upper, im * by, zero)))
        re, im = q.at(i, j)
        h_nan = by - by  # NaN where there is no result
        q.put(i, j, (re + h_nan, im + h_nan))
    lo.launch(k)


def _root(k: KernelBuilder, a: Number) -> Number:
    """The square root with a real part >= 0, of numbers that are not too small: those of a matrix whose largest is about 1."""
    re, im = a
    zero = const(0, re.dtype)
    length = k.let(unary("sqrt", fma(re, re, im * im)))
    large = k.let(unary("sqrt", (length + abs(re)) * 0.5))
    other = k.let(select(equal(large, zero), zero, im / select(equal(large, zero), const(1, re.dtype), large) * 0.5))
    sign = select(im < 0.0, const(-1, re.dtype), const(1, re.dtype))
    return k.let(select(re < 0.0, abs(other), large)), k.let(select(re < 0.0, large * sign, other))


def _shift(h: Matrix, hi: Expr, exceptional: Expr) -> Number:
    """The eigenvalue of the last 2 x 2 block that is closer to its last element; or a number near that, where sweeps go in a circle."""
    k = h.k
    a, b, c, d = h.at(hi - 1, hi - 1), h.at(hi - 1, hi), h.at(hi, hi - 1), h.at(hi, hi)
    half = tuple(k.let((x - y) * 0.5) for x, y in zip(a, d))
    product = tuple(k.let(x) for x in times(b, c))
    root = _root(k, tuple(k.let(x) for x in plus(product, half, half)))
    towards = k.let(fma(half[0], root[0], half[1] * root[1]) < 0.0)
    root = tuple(k.let(select(towards, -x, x)) for x in root)
    sum_ = tuple(k.let(x + y) for x, y in zip(half, root))  # d - product / sum: the smaller change of d
    nothing = k.let(equal(size(sum_), const(0, h.dtype)))
    change = divided(k, product, (select(nothing, const(1, h.dtype), sum_[0]), sum_[1]))
    zero, beside = const(0, h.dtype), size(c)
    re = select(exceptional, d[0] + beside * 0.75, d[0] - select(nothing, zero, change[0]))
    im = select(exceptional, d[1], d[1] - select(nothing, zero, change[1]))
    return k.let(re), k.let(im)


def _rotation(k: KernelBuilder, x: Number, y: Number) -> tuple[Expr, Number]:
    """c, real, and s with [c s; -conj(s) c] [x; y] = [r; 0]."""
    unit = k.let(power_of_two(maximum(size(x), size(y))))
    x, y = (tuple(k.let(v / unit) for v in z) for z in (x, y))
    xx, yy = (k.let(fma(z[0], z[0], z[1] * z[1])) for z in (x, y))
    one, zero = const(1, unit.dtype), const(0, unit.dtype)
    none, all_ = k.let(equal(yy, zero)), k.let(equal(xx, zero))
    length = k.let(unary("sqrt", select(none, one, xx + yy)))
    width = k.let(unary("sqrt", select(all_, one, xx)))
    c = k.let(select(none, one, select(all_, zero, width / length)))
    phase = (k.let(select(all_, one, x[0] / width)), k.let(select(all_, zero, x[1] / width)))
    s = tuple(k.let(select(none, zero, v / length)) for v in times(phase, conj(y)))
    return c, s


def _sweep(h: Matrix, q: Matrix, start: Expr, hi: Expr, shift: Number) -> None:
    k = h.k
    with k.loop(start, hi, name="k") as p:
        inside = k.let(p > start)
        column = k.let(maximum(p - 1, 0))
        x, y = h.at(p, column), h.at(p + 1, column)
        u, v = h.at(p, p), h.at(p + 1, p)
        x = tuple(k.let(select(inside, a, b - s)) for a, b, s in zip(x, u, shift))
        y = tuple(k.let(select(inside, a, b)) for a, b in zip(y, v))
        c, s = _rotation(k, x, y)
        cs, ss, back = splat_real(c), lanes(s), lanes(minus(conj(s)))
        for j, count in k.vector_loop(select(inside, column, p), h.columns, "j"):
            upper, lower = h.some(p, j, count), h.some(p + 1, j, count)
            h.put_some(p, j, plus(_by(cs, upper), ss, lower), count)
            h.put_some(p + 1, j, plus(_by(cs, lower), back, upper), count)
        with k.if_(inside):
            h.put(p + 1, column, (const(0, h.dtype),) * 2)
        for m, stop in ((h, minimum(p + 3, hi + 1)), (q, q.rows)):
            with k.loop(0, stop, name="i") as i:
                left, right = m.at(i, p), m.at(i, p + 1)
                m.put(i, p, plus(_by(c, left), conj(s), right))
                m.put(i, p + 1, plus(_by(c, right), minus(s), left))


def _by(c: Expr, a: Number) -> Number:
    return c * a[0], c * a[1]


def splat_real(c: Expr) -> Expr:
    """LANES times a real number."""
    return lanes((c, c))[0]


def _triangle_vectors(lo: Lowering, t: Parts, x: Parts) -> None:
    """Launches the eigenvectors of upper triangles t as columns of upper triangles x, of any length."""
    d = t[0].dtype
    k = lo.kernel("triangle_vectors")
    n = as_expr(t[0].shape[1])
    piece = k.split(as_expr(t[0].shape[0]) * n)
    b, j = k.let(piece // n), k.let(piece % n)
    a, y = Matrix(k, b, t), Matrix(k, b, x)
    zero, one = const(0, d), const(1, d)
    eps = const(2.0**-52 if d is float64 else 2.0**-23, d)
    largest = k.var(zero, name="largest")
    with k.loop(0, j + 1, name="i") as i:
        largest.set(maximum(largest.value, size(a.at(i, j))))
        largest.set(maximum(largest.value, size(a.at(i, i))))
    least = k.let(maximum(largest.value * eps, const(2.0**-900 if d is float64 else 2.0**-100, d)))
    with k.loop(0, n, name="i") as i:
        y.put(i, j, (select(equal(i, j), one, zero), zero))
    own = a.at(j, j)
    with k.loop(0, j, name="s") as s:
        i = k.let(j - 1 - s)
        total = held(k, (zero, zero))
        with k.loop(i + 1, j + 1, name="p") as p:
            for variable, part in zip(total, plus(value_of(total), a.at(i, p), y.at(p, j))):
                variable.set(part)
        gap = tuple(k.let(u - v) for u, v in zip(own, a.at(i, i)))
        close = k.let(size(gap) < least)
        found = divided(k, value_of(total), (k.let(select(close, least, gap[0])), k.let(select(close, zero, gap[1]))))
        y.put(i, j, found)
        unit = k.let(power_of_two(maximum(size(found), one)))
        with k.if_(unit > VECTOR_GROWTH), k.loop(i, j + 1, name="p") as p:
            re, im = y.at(p, j)
            y.put(p, j, (re / unit, im / unit))
    lo.launch(k)


def _turned_back(lo: Lowering, q: Parts, x: Parts, out: Parts) -> None:
    """Launches out = q x, with columns of length 1 and a phase by the rule of this file. x is an upper triangle."""
    d = q[0].dtype
    k = lo.kernel("eig_vectors")
    n = as_expr(q[0].shape[1])
    chunks = cdiv(n, LANES)
    piece = k.split(as_expr(q[0].shape[0]) * chunks)
    b, first = k.let(piece // chunks), k.let(piece % chunks * LANES)
    count = k.let(minimum(n - first, LANES))
    left, right, y = Matrix(k, b, q), Matrix(k, b, x), Matrix(k, b, out)
    zeros, ones = const(0, d, LANES), const(1, d, LANES)
    most = k.var(zeros, name="most")
    with k.loop(0, n, name="i") as i:
        total = held(k, (zeros, zeros))
        with k.loop(0, n, name="p") as p:
            for variable, part in zip(total, plus(value_of(total), lanes(left.at(i, p)), right.some(p, first, count))):
                variable.set(part)
        y.put_some(i, first, value_of(total), count)
        most.set(maximum(most.value, maximum(abs(total[0].value), abs(total[1].value))))
    unit = k.let(select(most.value > zeros, most.value, ones))
    squares, found, leading = k.var(zeros, name="squares"), k.var(zeros, name="found"), held(k, (ones, zeros))
    with k.loop(0, n, name="i") as i:
        z = tuple(k.let(v / unit) for v in y.some(i, first, count))
        square = k.let(fma(z[0], z[0], z[1] * z[1]))
        squares.set(squares.value + square)
        here = k.let(select(square >= const(0.25, d, LANES), ones, zeros) * (ones - found.value))
        for variable, part in zip(leading, z):
            variable.set(select(here > zeros, part, variable.value))
        found.set(found.value + here)
    re, im = (k.let(v) for v in value_of(leading))
    length = k.let(unary("sqrt", fma(re, re, im * im)))
    norm = k.let(unary("sqrt", squares.value))
    turn = (k.let(re / length / norm), k.let(-im / length / norm))
    with k.loop(0, n, name="i") as i:
        z = tuple(k.let(v / unit) for v in y.some(i, first, count))
        y.put_some(i, first, times(z, turn), count)
    lo.launch(k)
