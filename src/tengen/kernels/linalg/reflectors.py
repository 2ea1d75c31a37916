"""Householder reflectors, in blocks of `numerics.REFLECTOR_BLOCK`, and QR.

A reflector is I - tau v v^T. The vectors of all reflectors of a matrix are rows of a temporary: v[k] has zeros in front, then a 1.
The product of a block's reflectors is I - V T V^T with an upper triangle T (Schreiber and Van Loan, "A storage-efficient WY
representation for products of Householder transformations", 1989), which is applied to LANES columns by a piece:

    w = V^T c;  w = T w (T^T w for the transposed product);  c = c - V w

QR of a matrix, for each block of columns:
    a kernel makes the block's reflectors, in a transposed copy of the block's columns, and T: a piece is a matrix
    a kernel applies the transposed product to what is right of the block
"""

from __future__ import annotations

from tengen.kernels import numerics
from tengen.kernels.linalg.stacks import (
    Identity,
    Triangle,
    converted,
    dense,
    in_tiles,
    known,
    power_of_two,
    stack,
    subtract_products,
    tile_rows,
)
from tengen.kernels.lowering import Array, KernelBuilder, Lowering, product
from tengen.kernels.pointwise import pointwise
from tengen.kernels.source import Leaf, View
from tengen.loops.builder import as_expr
from tengen.loops.lang import (
    LANES,
    Expr,
    Index,
    cdiv,
    const,
    equal,
    fma,
    fold,
    maximum,
    minimum,
    ramp,
    select,
    splat,
    unary,
)
from tengen.loops.statements import Buffer


class Reflectors:
    """The reflectors of a stack of matrices: their vectors, factors tau, and the matrices T of their blocks.

    Args: length: of a vector. most: how many reflectors a matrix has. The vectors of a last block that is not full are zeros.
    """

    def __init__(self, lo: Lowering, count: Index, most: Index, length: Index, d):
        block = numerics.REFLECTOR_BLOCK
        self.count, self.most, self.length = as_expr(count), as_expr(most), as_expr(length)
        self.blocks = cdiv(self.most, block)
        self.vectors = lo.temp(d, (count, self.blocks * block, length))
        self.tau = lo.temp(d, (count, self.blocks * block))
        self.factors = lo.temp(d, (count, self.blocks, block, block))

    def row(self, b: Expr, i: Expr) -> Expr:
        """Where the vector of reflector i of matrix b begins."""
        return (b * (self.blocks * numerics.REFLECTOR_BLOCK) + i) * self.length

    def scale(self, b: Expr, i: Expr) -> Expr:
        """Where tau of reflector i of matrix b lies."""
        return b * (self.blocks * numerics.REFLECTOR_BLOCK) + i


def zero(k: KernelBuilder, y: Buffer, start: Expr, stop: Expr) -> None:
    """y[start..stop] = 0."""
    for i, count in k.vector_loop(start, stop, "z"):
        k.store(y, i, const(0, y.dtype, LANES), count)


def dot(k: KernelBuilder, x: Buffer, y: Buffer, of: tuple[Expr, Expr], n: Expr) -> Expr:
    """The inner product of n elements from the places `of` in x and y on, in LANES sums that are folded."""
    total = k.var(const(0, x.dtype, LANES), name="dot")
    for i, count in k.vector_loop(0, n, "i"):
        total.set(fma(k.load(x, of[0] + i, LANES, count), k.load(y, of[1] + i, LANES, count), total.value))
    return k.let(fold("add", total.value))


def make_reflector(k: KernelBuilder, v: Buffer, start: Expr, n: Expr) -> tuple[Expr, Expr]:
    """Turns the n >= 1 numbers x from v[start] on into the vector of the reflector that takes x to (beta, 0, 0, ...); returns (beta, tau).

    beta has the sign that avoids cancellation, as LAPACK's dlarfg; tau is 0 where the numbers behind the first are. Norms are taken of
    numbers scaled by a power of two, so they neither overflow nor underflow.
    """
    d = v.dtype
    first = k.load(v, start)
    most = k.var(const(0, d, LANES), name="most")
    for i, count in k.vector_loop(start + 1, start + n, "i"):
        most.set(maximum(most.value, abs(k.load(v, i, LANES, count))))
    largest = k.let(fold("max", most.value))
    unit = k.let(power_of_two(maximum(largest, abs(first))))
    inverse = k.let(const(1, d) / unit)
    squares = k.var(const(0, d, LANES), name="squares")
    for i, count in k.vector_loop(start + 1, start + n, "i"):
        x = k.let(k.load(v, i, LANES, count) * splat(inverse))
        squares.set(fma(x, x, squares.value))
    alpha = k.let(first * inverse)
    norm = k.let(unary("sqrt", fma(alpha, alpha, fold("add", squares.value))))
    scaled = k.let(select(alpha < 0.0, norm, -norm))
    nothing = k.let(equal(largest, 0.0))
    beta = k.let(select(nothing, first, scaled * unit))
    tau = k.let(select(nothing, const(0, d), (scaled - alpha) / select(nothing, const(1, d), scaled)))
    divisor = k.let(select(nothing, const(1, d), alpha - scaled))
    for i, count in k.vector_loop(start + 1, start + n, "i"):
        k.store(v, i, k.load(v, i, LANES, count) * splat(inverse) / splat(divisor), count)
    k.store(v, start, const(1, d))
    return beta, tau


def _write_factor(k: KernelBuilder, r: Reflectors, b: Expr, block: Expr, x: Buffer, taus: Buffer, y: Buffer) -> None:
    """Writes T of a block: T[c, c] = tau[c], T[:c, c] = -tau[c] T[:c, :c] V[:c]^T v[c]."""
    size = numerics.REFLECTOR_BLOCK
    at = k.let((b * r.blocks + block) * (size * size))
    first = k.let(block * size)
    products = k.scratch("products", x.dtype, size)
    zero(k, y, at, at + size * size)
    with k.loop(0, size, name="c") as c:
        tau = k.load(taus, r.scale(b, first + c))
        with k.loop(0, c, name="p") as p:
            k.store(products, p, dot(k, x, x, (r.row(b, first + p), r.row(b, first + c)), r.length))
        with k.loop(0, c, name="p") as p:
            total = k.var(const(0, x.dtype), name="sum")
            with k.loop(p, c, name="q") as q:
                total.set(fma(k.load(y, at + p * size + q), k.load(products, q), total.value))
            k.store(y, at + p * size + c, -tau * total.value)
        k.store(y, at + c * size + c, tau)


def make_factors(lo: Lowering, r: Reflectors) -> None:
    """Launches the matrices T of all blocks."""
    k = lo.kernel("reflector_factors")
    piece = k.split(r.count * r.blocks)
    x, taus, y = k.read(r.vectors), k.read(r.tau), k.write(r.factors)
    _write_factor(k, r, k.let(piece // r.blocks), k.let(piece % r.blocks), x, taus, y)
    lo.launch(k)


def apply_block(lo: Lowering, r: Reflectors, block: Index, c: Array, back: bool, beside: Expr | None = None) -> None:
    """Launches c = (I - V T V^T) c for a block of reflectors; with `back` the transposed product.

    Shapes: c (count, length, columns) dense
    Args:
        beside: the first column that is changed; by default all are.
    """
    size, columns, d = numerics.REFLECTOR_BLOCK, as_expr(c.shape[2]), c.dtype
    k = lo.kernel("reflect")
    chunks = cdiv(columns, LANES)
    piece = k.split(r.count * chunks)
    b, first = k.let(piece // chunks), k.let(piece % chunks * LANES)
    end = k.let(minimum(first + LANES, columns))
    first = k.let(first if beside is None else maximum(first, beside))
    count, start = k.let(end - first), k.let(as_expr(block) * size)
    x, t, y = k.read(r.vectors), k.read(r.factors), k.write(c)
    w, turned = k.scratch("w", d, size * LANES), k.scratch("turned", d, size * LANES)
    base, vectors = k.let(b * r.length * columns + first + c.offset), k.let(r.row(b, start))
    factor = k.let((b * r.blocks + as_expr(block)) * (size * size))
    rows = tile_rows(d, lo.target)
    zeros = const(0, d, LANES)
    with k.if_(count > 0):
        for group in range(0, size, 2 * rows):
            sums = [k.var(zeros, name="w") for _ in range(2 * rows)]
            with k.loop(start, r.length, name="i") as i:
                v = k.load(y, base + i * columns, LANES, count)
                for q, total in enumerate(sums):
                    total.set(fma(splat(k.load(x, vectors + (group + q) * r.length + i)), v, total.value))
            for q, total in enumerate(sums):
                k.store(w, (group + q) * LANES, total.value)
        with k.loop(0, size, name="p") as p:
            total = k.var(zeros, name="t")
            with k.loop(0 if back else p, p + 1 if back else size, name="q") as q:
                element = k.load(t, factor + (q * size + p if back else p * size + q))
                total.set(fma(splat(element), k.load(w, q * LANES, LANES), total.value))
            k.store(turned, p * LANES, total.value)

        def some(i: Expr, rows: int) -> None:
            sums = [k.var(k.load(y, base + (i + q) * columns, LANES, count), name="c") for q in range(rows)]
            subtract_products(
                k, sums, (0, size), lambda s: [k.load(x, vectors + s * r.length + i + q) for q in range(rows)],
                lambda s: k.load(turned, s * LANES, LANES),
            )  # fmt: skip
            for q, total in enumerate(sums):
                k.store(y, base + (i + q) * columns, total.value, count)

        in_tiles(k, start, r.length, rows, some)
    lo.launch(k)


def form(lo: Lowering, r: Reflectors, out: Array) -> None:
    """Launches the first columns of the product of all reflectors, H[0] H[1] ...: out (count, length, columns), dense."""
    pointwise(lo, [Identity(out.shape, out.dtype)], [out], "reflector_identity")
    with lo.loop(r.blocks) as step:
        apply_block(lo, r, r.blocks - 1 - step, out, False)


# ---- QR --------------------------------------------------------------------------------------------------------------


def qr(lo: Lowering, a: Array, q: Array, r: Array) -> None:
    """Launches a = q r, with orthonormal columns of q and an upper triangle r.

    Shapes: a (..., m, n) -> q (..., m, k), r (..., k, n), where k is min(m, n), or m
    """
    with dense(lo, q, r) as (q_made, r_made):
        work = stack(converted(lo, a, lo.temp(q_made.dtype, a.shape)))
        if not known(*work.shape[:2]):
            return
        of = _reduced(lo, work)
        form(lo, of, stack(q_made))
        if known(*r_made.shape):
            upper = stack(r_made)
            source = View(Leaf(work), upper.shape, (0, 1, 2), (0, 0, 0), (1, 1, 1))
            pointwise(lo, [Triangle(source, False)], [upper], "qr_triangle")


def geqrf(lo: Lowering, a: Array, out: Array, tau: Array) -> None:
    """Launches the reflectors whose product is q of a = q r, as LAPACK keeps them.

    Shapes: a, out (..., m, n), tau (..., k) with k = min(m, n). out: r, and below the diagonal the reflectors' vectors without their 1
    """
    with dense(lo, out, tau) as (made, factors):
        if not known(*a.shape):
            return
        work = stack(converted(lo, a, made))
        of = _reduced(lo, work, True)
        many, k = factors.shape[:-1], factors.shape[-1]
        taus = stack(factors.unsqueeze(factors.ndim))
        source = View(Leaf(of.tau), taus.shape[:2], (0, 1), (0, 0), (1, 1))
        pointwise(lo, [source], [Array(taus.id, taus.dtype, (product(many), k), (k, 1), taus.offset)], "reflector_scales")


def _reduced(lo: Lowering, work: Array, kept: bool = False) -> Reflectors:
    """Launches R in the upper triangle of a stack (count, m, n), and the reflectors that make it; `kept`: their vectors below the
    diagonal, too, where numbers without meaning stand otherwise."""
    count, m, n = work.shape
    most = n if m is n else minimum(as_expr(m), as_expr(n))
    of = Reflectors(lo, count, most, m, work.dtype)
    if known(n):
        with lo.loop(of.blocks) as step:
            _qr_panel(lo, work, of, step, kept)
            apply_block(lo, of, step, work, True, minimum(step * numerics.REFLECTOR_BLOCK + numerics.REFLECTOR_BLOCK, of.most))
    return of


def _qr_panel(lo: Lowering, a: Array, r: Reflectors, step: Expr, kept: bool) -> None:
    """Launches the reflectors of a block of columns, its T, and its columns of R; `kept`: its vectors below the diagonal."""
    size = numerics.REFLECTOR_BLOCK
    k = lo.kernel("qr_panel")
    b = k.split(r.count)
    m, n = r.length, as_expr(a.shape[2])
    y, v, taus, factors = k.write(a), k.write(r.vectors), k.write(r.tau), k.write(r.factors)
    base, first = k.let(b * m * n + a.offset), k.let(step * size)
    held = k.let(minimum(first + size, r.most) - first)
    with k.loop(0, size, name="c") as c:
        at = k.let(r.row(b, first + c))
        k.store(taus, r.scale(b, first + c), const(0, v.dtype))
        zero(k, v, at, at + m)
        with k.if_(c < held):
            for i, count in k.vector_loop(first, m, "i"):
                column = k.load(y, (ramp() + i) * n + (base + first + c), LANES, count)
                k.store(v, at + i, column, count)
    with k.loop(0, held, name="c") as c:
        place, at = k.let(first + c), k.let(r.row(b, first + c))
        beta, tau = make_reflector(k, v, at + place, m - place)
        k.store(taus, r.scale(b, place), tau)
        k.store(y, base + place * n + place, beta)
        with k.loop(first, place, name="i") as i:
            k.store(y, base + i * n + place, k.load(v, at + i))
            k.store(v, at + i, const(0, v.dtype))
        if kept:
            with k.loop(place + 1, m, name="i") as i:
                k.store(y, base + i * n + place, k.load(v, at + i))
        with k.loop(c + 1, held, name="d") as other:
            beside = k.let(r.row(b, first + other) + place)
            w = k.let(dot(k, v, v, (at + place, beside), m - place) * tau)
            for i, count in k.vector_loop(0, m - place, "i"):
                old, x = k.load(v, beside + i, LANES, count), k.load(v, at + place + i, LANES, count)
                k.store(v, beside + i, fma(-splat(w), x, old), count)
    _write_factor(k, r, b, k.let(step + 0), v, taus, factors)
    lo.launch(k)


