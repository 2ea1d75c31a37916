"""Factorisations of complex matrices, whose real and imaginary parts are two stacks: LU with partial pivoting, and what Householder's
reflectors give (QR, Hessenberg's form, the bidiagonal form). A piece is a matrix; nothing is blocked.

A reflector is H = I - tau v v^H with v[0] = 1; H^H takes a vector x to (beta, 0, 0, ...) with a real beta (LAPACK's zlarfg). Therefore the
Hessenberg form of a Hermitian matrix is tridiagonal and real, and the bidiagonal form is real: their eigenvalues and singular values
are computed as those of real matrices.
"""

from __future__ import annotations

from collections.abc import Sequence

from tengen.kernels.linalg.reflectors import zero
from tengen.kernels.linalg.stacks import Identity, converted, dense, fill, known, power_of_two, stack
from tengen.kernels.lowering import Array, KernelBuilder, Lowering
from tengen.kernels.pointwise import pointwise
from tengen.loops.builder import as_expr
from tengen.loops.lang import LANES, Expr, Index, const, equal, fma, fold, maximum, minimum, not_equal, select, splat, unary

Number = tuple[Expr, Expr]  # real and imaginary part, or LANES of each
Parts = tuple[Array, Array]


def times(a: Number, b: Number) -> Number:
    """a b."""
    return fma(a[0], b[0], -(a[1] * b[1])), fma(a[0], b[1], a[1] * b[0])


def plus(total: Number, a: Number, b: Number) -> Number:
    """total + a b."""
    return fma(-a[1], b[1], fma(a[0], b[0], total[0])), fma(a[1], b[0], fma(a[0], b[1], total[1]))


def conj(a: Number) -> Number:
    """The conjugate."""
    return a[0], -a[1]


def minus(a: Number) -> Number:
    """-a."""
    return -a[0], -a[1]


def lanes(a: Number) -> Number:
    """LANES times the same number."""
    return splat(a[0]), splat(a[1])


def size(a: Number) -> Expr:
    """|re| + |im|, by which pivots and what is negligible are told."""
    return abs(a[0]) + abs(a[1])


def divided(k: KernelBuilder, a: Number, b: Number) -> Number:
    """a / b for b != 0, scaled by a power of two so that |b|^2 neither overflows nor vanishes."""
    unit = k.let(power_of_two(maximum(abs(b[0]), abs(b[1]))))
    c, d = k.let(b[0] / unit), k.let(b[1] / unit)
    square = k.let(fma(c, c, d * d))
    re, im = times(a, (c, -d))
    return k.let(re / square / unit), k.let(im / square / unit)


def held(k: KernelBuilder, a: Number, name: str = "z"):
    """A number that changes: two variables."""
    return k.var(a[0], name=name), k.var(a[1], name=name)


def value_of(a) -> Number:
    """What such a number is now."""
    return a[0].value, a[1].value


class Matrix:
    """The piece's matrix of a stack of complex ones, (count, rows, columns) for each part."""

    def __init__(self, k: KernelBuilder, b: Expr, parts: Parts):
        self.k, self.dtype = k, parts[0].dtype
        self.rows, self.columns = (as_expr(n) for n in parts[0].shape[1:])
        self.memory = [k.write(a) for a in parts]
        self.base = [k.let(b * (self.rows * self.columns) + a.offset) for a in parts]

    def at(self, i: Index, j: Index) -> Number:
        re, im = (self.k.load(m, base + i * self.columns + j) for m, base in zip(self.memory, self.base))
        return re, im

    def put(self, i: Index, j: Index, value: Number) -> None:
        for m, base, v in zip(self.memory, self.base, value):
            self.k.store(m, base + i * self.columns + j, v)

    def some(self, i: Index, j: Index, count: Index | None) -> Number:
        re, im = (self.k.load(m, base + i * self.columns + j, LANES, count) for m, base in zip(self.memory, self.base))
        return re, im

    def put_some(self, i: Index, j: Index, value: Number, count: Index | None) -> None:
        for m, base, v in zip(self.memory, self.base, value):
            self.k.store(m, base + i * self.columns + j, v, count)

    def scale_down(self) -> tuple[Expr, Expr]:
        """Divides the matrix by a power of two so that its largest part is between 1 and 2; (that power, whether all is finite)."""
        k, n = self.k, self.rows * self.columns
        most, not_a_number = k.var(const(0, self.dtype, LANES), name="most"), k.var(const(0, self.dtype, LANES), name="none")
        for m, base in zip(self.memory, self.base):
            for i, count in k.vector_loop(0, n, "i"):
                x = k.let(k.load(m, base + i, LANES, count))
                most.set(maximum(most.value, abs(x)))
                not_a_number.set(fma(x, const(0, self.dtype, LANES), not_a_number.value))
        largest = k.let(fold("max", most.value))
        finite = k.let(equal(fold("add", not_a_number.value), const(0, self.dtype)))
        unit = k.let(select(finite, power_of_two(largest), const(1, self.dtype)))
        for m, base in zip(self.memory, self.base):
            for i, count in k.vector_loop(0, n, "i"):
                k.store(m, base + i, k.load(m, base + i, LANES, count) / splat(unit), count)
        return unit, finite

    def reflect_rows(self, v: Vectors, p: Expr, tau: Number, first: Index, column: Index) -> None:
        """Multiplies by I - tau v v^H from the left: rows from `first` on, in columns from `column` on."""
        k = self.k
        for c, count in k.vector_loop(column, self.columns, "c"):
            total = held(k, (const(0, self.dtype, LANES),) * 2)
            with k.loop(first, self.rows, name="i") as i:
                new = plus(value_of(total), lanes(conj(v.at(p, i))), self.some(i, c, count))
                _set(total, new)
            w = tuple(k.let(x) for x in times(lanes(tau), value_of(total)))
            with k.loop(first, self.rows, name="i") as i:
                self.put_some(i, c, plus(self.some(i, c, count), lanes(minus(v.at(p, i))), w), count)

    def reflect_columns(self, v: Vectors, p: Expr, tau: Number, first: Index, row: Index) -> None:
        """Multiplies by I - tau v v^H from the right: columns from `first` on, in rows from `row` on."""
        k = self.k
        with k.loop(row, self.rows, name="r") as r:
            total = held(k, (const(0, self.dtype, LANES),) * 2)
            for c, count in k.vector_loop(first, self.columns, "c"):
                _set(total, plus(value_of(total), self.some(r, c, count), v.some(p, c, count)))
            w = times(tau, tuple(k.let(fold("add", x)) for x in value_of(total)))
            w = lanes(tuple(k.let(-x) for x in w))
            for c, count in k.vector_loop(first, self.columns, "c"):
                self.put_some(r, c, plus(self.some(r, c, count), w, conj(v.some(p, c, count))), count)


def _set(total, new: Number) -> None:
    for variable, part in zip(total, new):
        variable.set(part)


class Vectors(Matrix):
    """The vectors of reflectors, a row each, and their factors tau."""

    def __init__(self, k: KernelBuilder, b: Expr, parts: Parts, taus: Parts):
        super().__init__(k, b, parts)
        self.of = Matrix(k, b, taus)

    def tau(self, p: Expr) -> Number:
        return self.of.at(0, p)

    def make(self, p: Expr, start: Index) -> tuple[Expr, Number]:
        """Turns the numbers of row p from `start` on into the vector of the reflector that takes them to (beta, 0, 0, ...); (beta,
        tau), where tau is 0 for what has that form."""
        k, d, n = self.k, self.dtype, self.columns
        first, most = self.at(p, start), k.var(const(0, d, LANES), name="most")
        for i, count in k.vector_loop(start + 1, n, "i"):
            most.set(maximum(most.value, maximum(*(abs(x) for x in self.some(p, i, count)))))
        rest = k.let(fold("max", most.value))
        largest = k.let(maximum(maximum(rest, abs(first[1])), abs(first[0])))
        unit = k.let(power_of_two(largest))
        squares = k.var(const(0, d, LANES), name="squares")
        for i, count in k.vector_loop(start + 1, n, "i"):
            re, im = (k.let(x / splat(unit)) for x in self.some(p, i, count))
            squares.set(fma(re, re, fma(im, im, squares.value)))
        a, b = k.let(first[0] / unit), k.let(first[1] / unit)
        norm = k.let(unary("sqrt", fma(a, a, fma(b, b, fold("add", squares.value)))))
        nothing = k.let(equal(maximum(rest, abs(first[1])), const(0, d)))
        one = const(1, d)
        goal = k.let(select(nothing, one, select(a < 0.0, norm, -norm)))
        tau = tuple(k.let(select(nothing, const(0, d), x / goal)) for x in (goal - a, -b))
        below = (k.let(select(nothing, one, a - goal)), k.let(select(nothing, const(0, d), b)))
        by = lanes(divided(k, (one, const(0, d)), below))
        for i, count in k.vector_loop(start + 1, n, "i"):
            x = tuple(k.let(v / splat(unit)) for v in self.some(p, i, count))
            self.put_some(p, i, times(x, by), count)
        self.put(p, start, (one, const(0, d)))
        self.of.put(0, p, tau)
        return k.let(select(nothing, first[0], goal * unit)), tau


def _temps(lo: Lowering, d, shape: Sequence[Index]) -> Parts:
    return lo.temp(d, shape), lo.temp(d, shape)


def work_of(lo: Lowering, a: Parts, d) -> Parts:
    """Launches copies of the parts, as stacks."""
    re, im = (stack(converted(lo, x, lo.temp(d, x.shape))) for x in a)
    return re, im


class Reflected:
    """A stack that is reduced by reflectors: a kernel, its piece's matrix, the vectors of so many reflectors of a length."""

    def __init__(self, lo: Lowering, name: str, work: Parts):
        self.lo, self.work, self.d = lo, work, work[0].dtype
        self.k = lo.kernel(name)
        self.count = as_expr(work[0].shape[0])
        self.b = self.k.split(self.count)
        self.a = Matrix(self.k, self.b, work)

    def vectors(self, many: Index, length: Index) -> tuple[Vectors, Parts, Parts]:
        """(vectors in this kernel, cleared; their memory)"""
        shape = (self.count, many, length)
        parts, taus = _temps(self.lo, self.d, shape), _temps(self.lo, self.d, (self.count, 1, many))
        v = Vectors(self.k, self.b, parts, taus)
        for m, base in zip(v.memory, v.base):
            zero(self.k, m, base, base + v.rows * v.columns)
        return v, parts, taus


def formed(lo: Lowering, vectors: Parts, taus: Parts, out: Parts, shift: int) -> None:
    """Launches the product H[0] H[1] ... of reflectors, its first columns. The vector of reflector p begins at place p + shift."""
    zeros = out[1]
    pointwise(lo, [Identity(out[0].shape, out[0].dtype)], [out[0]], "complex_identity")
    fill(lo, zeros, 0, "complex_zeros")
    k = lo.kernel("complex_product")
    b = k.split(as_expr(out[0].shape[0]))
    q, v = Matrix(k, b, out), Vectors(k, b, vectors, taus)
    with k.loop(0, v.rows, name="p") as step:
        p = k.let(v.rows - 1 - step)
        q.reflect_rows(v, p, v.tau(p), p + shift, 0)
    lo.launch(k)


# ---- QR, Hessenberg, bidiagonal ----------------------------------------------------------------------------------------


def _column_reflector(a: Matrix, v: Vectors, p: Expr, row: Index, column: Index) -> None:
    """Makes the reflector p of a column's rows from `row` on, puts beta and zeros there, and multiplies what is right of the column by
    H^H."""
    k = a.k
    with k.loop(row, a.rows, name="i") as i:
        v.put(p, i, a.at(i, column))
    beta, tau = v.make(p, row)
    a.put(row, column, (beta, const(0, a.dtype)))
    with k.loop(row + 1, a.rows, name="i") as i:
        a.put(i, column, (const(0, a.dtype),) * 2)
    a.reflect_rows(v, p, conj(tau), row, column + 1)


def qr(lo: Lowering, a: Parts, q: Parts, r: Parts) -> None:
    """Launches a = q r: orthonormal columns of q, and an upper triangle r whose diagonal is real.

    Shapes: a (..., m, n) -> q (..., m, k), r (..., k, n), where k is min(m, n), or m
    """
    with dense(lo, *q, *r) as made:
        work = work_of(lo, a, made[0].dtype)
        _, m, n = work[0].shape
        if not known(work[0].shape[0], m):
            return
        outs = [stack(x) for x in made]
        if not known(n):
            return _no_columns(lo, outs)
        of = Reflected(lo, "complex_qr", work)
        most = minimum(as_expr(m), as_expr(n))
        v, vectors, taus = of.vectors(most, m)
        with of.k.loop(0, v.rows, name="p") as p:
            _column_reflector(of.a, v, p, p, p)
        lo.launch(of.k)
        formed(lo, vectors, taus, (outs[0], outs[1]), 0)
        if known(*outs[2].shape):
            for x, y in zip(work, outs[2:]):
                rows = y.shape[1]
                lo_rows = Array(x.id, x.dtype, (x.shape[0], rows, x.shape[2]), x.strides, x.offset)
                converted(lo, lo_rows, y)


def geqrf(lo: Lowering, a: Parts, out: Parts, tau: Parts) -> None:
    """Launches the reflectors whose product is q of a = q r, as LAPACK keeps them.

    Shapes: a, out (..., m, n), tau (..., k) with k = min(m, n). out: r, and below the diagonal the reflectors' vectors without their 1
    """
    with dense(lo, *out, *tau) as made:
        if not known(*a[0].shape):
            return
        work = [stack(converted(lo, x, y)) for x, y in zip(a, made)]
        of = Reflected(lo, "complex_geqrf", (work[0], work[1]))
        v, _, taus = of.vectors(minimum(*(as_expr(n) for n in work[0].shape[1:])), work[0].shape[1])
        with of.k.loop(0, v.rows, name="p") as p:
            _column_reflector(of.a, v, p, p, p)
            with of.k.loop(p + 1, of.a.rows, name="i") as i:
                of.a.put(i, p, v.at(p, i))
        lo.launch(of.k)
        for x, y in zip(taus, made[2:]):
            converted(lo, x, stack(y.unsqueeze(y.ndim - 1)))


def _no_columns(lo: Lowering, outs: Sequence[Array]) -> None:
    if known(*outs[0].shape):
        pointwise(lo, [Identity(outs[0].shape, outs[0].dtype)], [outs[0]], "complex_identity")
        fill(lo, outs[1], 0, "complex_zeros")


def hessenberg(lo: Lowering, a: Parts, h: Parts, q: Parts) -> None:
    """Launches a = q h q^H with unitary q, and h = 0 below what is beside the diagonal, where it is real.

    Shapes: (..., n, n), all
    """
    with dense(lo, *h, *q) as made:
        work = work_of(lo, a, made[0].dtype)
        count, n, _ = work[0].shape
        if not known(*work[0].shape):
            return
        of = Reflected(lo, "complex_hessenberg", work)
        v, vectors, taus = of.vectors(n, n)
        with of.k.loop(0, v.rows - 1, name="p") as p:
            _column_reflector(of.a, v, p, p + 1, p)
            of.a.reflect_columns(v, p, v.tau(p), p + 1, 0)
        lo.launch(of.k)
        formed(lo, vectors, taus, (stack(made[2]), stack(made[3])), 1)
        for x, y in zip(work, made):
            converted(lo, x, stack(y))


def bidiagonal(lo: Lowering, a: Parts, b: Array, q: Parts, p: Parts) -> None:
    """Launches a = q b p^H for m >= n: unitary q and p, and a real b with a diagonal and what is right of it, else 0.

    Shapes: a (..., m, n) -> b (..., n, n), q (..., m, n) or (..., m, m), p (..., n, n)
    """
    with dense(lo, b, *q, *p) as made:
        work = work_of(lo, a, made[0].dtype)
        count, m, n = work[0].shape
        if not known(count, m):
            return
        outs = [stack(x) for x in made]
        if not known(n):
            return _no_columns(lo, outs[1:3])
        of = Reflected(lo, "complex_bidiagonal", work)
        k, x = of.k, of.a
        left, vectors, taus = of.vectors(n, m)
        right, others, other_taus = of.vectors(n, n)
        with k.loop(0, left.rows, name="s") as s:
            _column_reflector(x, left, s, s, s)
            with k.if_(s + 1 < left.rows):
                with k.loop(s + 1, left.rows, name="j") as j:
                    right.put(s, j, conj(x.at(s, j)))
                beta, tau = right.make(s, s + 1)
                x.put(s, s + 1, (beta, const(0, x.dtype)))
                with k.loop(s + 2, left.rows, name="j") as j:
                    x.put(s, j, (const(0, x.dtype),) * 2)
                x.reflect_columns(right, s, tau, s + 1, s + 1)
        lo.launch(k)
        formed(lo, vectors, taus, (outs[1], outs[2]), 0)
        formed(lo, others, other_taus, (outs[3], outs[4]), 1)
        w = work[0]
        converted(lo, Array(w.id, w.dtype, outs[0].shape, w.strides, w.offset), outs[0])


# ---- LU --------------------------------------------------------------------------------------------------------------


def lu(lo: Lowering, a: Parts, out: Parts, order: Array, sign: Array, info: Array) -> None:
    """Launches the factors of a[order] = L U, as `factor.lu` does for real matrices. The pivot of a column is the first element of the
    largest |re| + |im|."""
    with dense(lo, *out, order, sign, info) as (re, im, rows, parity, failed):
        for x, y in zip(a, (re, im)):
            converted(lo, x, y)
        fill(lo, failed, 0, "lu_info")
        fill(lo, parity, 1, "lu_sign")
        if not known(*rows.shape):
            return
        k = lo.kernel("complex_lu")
        parts = (stack(re), stack(im))
        b = k.split(as_expr(parts[0].shape[0]))
        x = Matrix(k, b, parts)
        places, parities, fails = k.write(rows), k.write(parity), k.write(failed)
        ordered = k.let(b * x.rows + rows.offset)
        with k.loop(0, x.rows, name="i") as i:
            k.store(places, ordered + i, i)
        with k.loop(0, minimum(x.rows, x.columns), name="j") as j:
            p = _pivot(x, j)
            with k.if_(not_equal(p, j)):
                _swap(x, p, j)
                first, second = k.load(places, ordered + p), k.load(places, ordered + j)
                k.store(places, ordered + p, second)
                k.store(places, ordered + j, first)
                k.store(parities, b + parity.offset, -k.load(parities, b + parity.offset))
            nothing = k.let(equal(size(x.at(j, j)), const(0, x.dtype)))
            with k.if_(nothing):
                found = k.load(fails, b + failed.offset)
                k.store(fails, b + failed.offset, select(equal(found, 0), j + 1, found))
            pivot = tuple(k.let(v) for v in x.at(j, j))
            one = (k.let(select(nothing, const(1, x.dtype), pivot[0])), pivot[1])
            with k.loop(j + 1, x.rows, name="i") as i:
                quotient = divided(k, x.at(i, j), one)
                f = tuple(k.let(select(nothing, const(0, x.dtype), v)) for v in quotient)
                x.put(i, j, f)
                by = lanes(minus(f))
                for c, count in k.vector_loop(j + 1, x.columns, "c"):
                    x.put_some(i, c, plus(x.some(i, c, count), by, x.some(j, c, count)), count)
        lo.launch(k)


def _pivot(x: Matrix, j: Expr) -> Expr:
    k = x.k
    best, where = k.var(size(x.at(j, j)), name="best"), k.var(j, name="where")
    with k.loop(j + 1, x.rows, name="i") as i:
        large = k.let(size(x.at(i, j)))
        better = k.let(large > best.value)
        best.set(select(better, large, best.value))
        where.set(select(better, i, where.value))
    return k.let(where.value + 0)


def _swap(x: Matrix, p: Expr, q: Expr) -> None:
    for c, count in x.k.vector_loop(0, x.columns, "c"):
        first, second = (tuple(x.k.let(v) for v in x.some(i, c, count)) for i in (p, q))
        x.put_some(p, c, second, count)
        x.put_some(q, c, first, count)
