"""Discrete Fourier transforms of lines, by Stockham's algorithm with the factors in `FACTORS`.

    for each piece = some lines:
        for stage of factor r, with s the product of the factors before, m of those behind:
            for p in 0 .. m - 1, q in 0 .. s - 1:
                a[k] = line[q + s (p + m k)], k = 0 .. r - 1
                next line[q + s (r p + j)] = exp(-2 pi i p j / (r m)) (the transform of a)[j], j = 0 .. r - 1

Elements are pairs (real, imaginary) in arrays of their own. Vectors run along q where s has LANES, else along q + s p. Every element is
computed alone, in an order that the length alone decides, so bits depend neither on vectors nor on what else is transformed. The inverse
without its factor is the same transform with real and imaginary parts exchanged, before and after.

Source: Swarztrauber, "FFT algorithms for vector computers", 1984
"""

from __future__ import annotations

from collections.abc import Sequence

from tengen.base.errors import Undecided
from tengen.kernels.lowering import Array, KernelBuilder, Lowering
from tengen.kernels.pointwise import pointwise
from tengen.kernels.roots import roots_of_unity
from tengen.kernels.source import At, Elementwise, Leaf
from tengen.loops.lang import LANES, Expr, as_int, cdiv, fma, minimum, ramp, splat

FACTORS = (4, 2, 3, 5, 7, 11, 13)  # lengths with a larger prime factor are transformed by way of a longer line (`tengen.fft`)
ELEMENTS_OF_A_PIECE = 4096

Complex = tuple[Expr, Expr]
Parts = tuple[Array, Array]  # (lines, elements) each


def factors(n: int) -> list[int] | None:
    """The factors of the stages, in order: 4 as often as it goes, then primes; None where one is not in `FACTORS`.

    >>> factors(120), factors(17)
    ([4, 2, 3, 5], None)
    """
    found = []
    for r in FACTORS:
        while n % r == 0:
            found.append(r)
            n //= r
    return found if n == 1 else None


def fourier(lo: Lowering, x: Parts, table: Array, out: Parts, scale: float, name: str = "fourier") -> None:
    """Launches out = the transforms of x's lines, times scale. table: (2, n), the roots of unity of the lines' length n, which must be a
    product of small factors (`factors`)."""
    lines, n = x[0].shape[0], as_int(x[0].shape[1])
    if n is None:
        raise Undecided(f"the length {x[0].shape[1]} of a Fourier transform must be known when it is compiled")
    stages = factors(n)
    assert stages is not None
    d = out[0].dtype
    if not stages:
        sources = [Elementwise(lambda v: v * scale, [Leaf(a)], a.shape, d) for a in x]
        return pointwise(lo, sources, list(out), name)
    k = lo.kernel(name)
    halves = [tuple(lo.temp(d, (lines, n)) for _ in range(2)) for _ in range(min(len(stages) - 1, 2))]
    per = max(1, ELEMENTS_OF_A_PIECE // n)
    piece = k.split(cdiv(lines, per))
    for a in (*out, *(a for half in halves for a in half)):
        k.write(a)
    with k.loop(piece * per, minimum(piece * per + per, lines), name="line") as line:
        s, source = 1, x
        for i, r in enumerate(stages):
            last = i == len(stages) - 1
            target = out if last else halves[i % 2]
            _stage(k, line, source, target, table, (r, s, n // (r * s)), scale if last else 1.0)
            s, source = s * r, target
    lo.launch(k)


def _stage(k: KernelBuilder, line: Expr, x: Parts, out: Parts, table: Array, extents: tuple[int, int, int], scale: float) -> None:
    r, s, m = extents
    if s >= LANES or m == 1:
        with k.loop(0, m, name="p") as p:
            turns = [None if m == 1 else _root(k, table, p * (j * s), None) for j in range(1, r)]
            for q, count in k.vector_loop(0, s, "q"):
                at = [q + (p * s + s * m * i) for i in range(r)]
                y = _finished(k, _butterfly(k, [_load(k, x, line, i, count) for i in at]), turns, scale)
                for j, v in enumerate(y):
                    _store(k, out, line, q + (p * (r * s) + s * j), v, count)
        return
    for i, count in k.vector_loop(0, s * m, "i"):
        place = k.let(ramp() + i)
        p = place if s == 1 else k.let(place >> (s.bit_length() - 1) if s & (s - 1) == 0 else place // s)
        turns = [_root(k, table, k.let(p * (j * s)), count) for j in range(1, r)]
        y = _finished(k, _butterfly(k, [_load(k, x, line, i + s * m * a, count) for a in range(r)]), turns, scale)
        first = k.let(place + p * ((r - 1) * s))  # q + s r p
        for j, v in enumerate(y):
            _store(k, out, line, first + s * j, v, count)


def _root(k: KernelBuilder, table: Array, at: Expr, count: Expr | None) -> Complex:
    found = []
    for row in range(2):
        index = table.index((row, at))
        v = k.load(k.read(table), index, at.lanes, count if at.lanes > 1 else None)
        found.append(splat(v))
    return found[0], found[1]


def _load(k: KernelBuilder, x: Parts, line: Expr, at: Expr, count: Expr | None) -> Complex:
    real, imag = (At((line, at), 1, count).load(k, a) for a in x)
    return real, imag


def _store(k: KernelBuilder, out: Parts, line: Expr, at: Expr, value: Complex, count: Expr | None) -> None:
    for a, v in zip(out, value):
        index = a.index((line, at))
        if at.lanes == 1 and as_int(a.strides[1]) != 1:
            index = ramp() * a.strides[1] + index
        k.store(k.write(a), index, v, count)


def _finished(k: KernelBuilder, y: Sequence[Complex], turns: Sequence[Complex | None], scale: float) -> list[Complex]:
    """All but the first turned, and all scaled."""
    found = [y[0]]
    for v, w in zip(y[1:], turns):
        found.append(v if w is None else (k.let(fma(v[0], w[0], -(v[1] * w[1]))), k.let(fma(v[0], w[1], v[1] * w[0]))))
    if scale == 1.0:
        return found
    return [(k.let(v[0] * scale), k.let(v[1] * scale)) for v in found]


def _butterfly(k: KernelBuilder, a: Sequence[Complex]) -> list[Complex]:
    """The transform of as many numbers as the factor."""

    def plus(x: Complex, y: Complex) -> Complex:
        return k.let(x[0] + y[0]), k.let(x[1] + y[1])

    def minus(x: Complex, y: Complex) -> Complex:
        return k.let(x[0] - y[0]), k.let(x[1] - y[1])

    r = len(a)
    if r == 2:
        return [plus(*a), minus(*a)]
    if r == 4:
        even, far, odd, apart = plus(a[0], a[2]), minus(a[0], a[2]), plus(a[1], a[3]), minus(a[1], a[3])
        turned = (apart[1], -apart[0])  # times -i
        return [plus(even, odd), plus(far, turned), minus(even, odd), minus(far, turned)]
    half = r // 2
    table = roots_of_unity(r)
    sums = [plus(a[i], a[r - i]) for i in range(1, half + 1)]
    apart = [minus(a[i], a[r - i]) for i in range(1, half + 1)]
    first = a[0]
    for v in sums:
        first = plus(first, v)
    y: list[Complex] = [first] * r
    for j in range(1, half + 1):
        near: list[Expr] = []
        off: list[Expr] = []
        for part in range(2):
            total, other = a[0][part], None
            for i in range(half):
                cos, sin = (float(table[row, j * (i + 1) % r]) for row in range(2))
                total = k.let(fma(sums[i][part], cos, total))
                other = apart[i][part] * sin if other is None else fma(apart[i][part], sin, other)
                other = k.let(other)
            near.append(total)
            off.append(other)
        # the sines of the table are negative: y[j] = near + i off
        y[j] = k.let(near[0] - off[1]), k.let(near[1] + off[0])
        y[r - j] = k.let(near[0] + off[1]), k.let(near[1] - off[0])
    return y
