"""Bodies of pow, rsqrt and cbrt.

In and out: expressions of float32 or float64, with one lane or sixteen. pow and cbrt of float32 are computed in float64 with
short polynomials and rounded once. Special cases are those of C99, annex F.
"""

from __future__ import annotations

import math
from fractions import Fraction

from tengen.base.dtype import float64, int32
from tengen.loops.exponential import clamp, precise_exp_parts, split_exponent
from tengen.loops.floats import (
    fast_two_sum,
    format_of,
    is_nan,
    polynomial,
    power_of_two,
    scale,
    two_product,
    two_sum,
    widened,
    with_sign_of,
)
from tengen.loops.lang import Expr, bitcast, cast, const, equal, fma, not_equal, select, unary
from tengen.loops.reals import LN2, split_constant

INF, NAN = math.inf, math.nan


def log_parts(x: Expr, table: str) -> tuple[Expr, Expr]:
    """log(x) of positive finite float64 x as a sum of two parts, good to about 2^-66 ("f64") or 2^-42 ("wide")."""
    n, m = split_exponent(x)
    n = cast(n, float64)
    f = m - 1.0
    high, low = split_constant(LN2, float64)
    if table == "wide":
        s = f / (f + 2.0)
        z = s * s
        twice = s * 2.0
        return n * high, fma(n, low, fma(twice, z * polynomial("atanh", z, "wide"), twice))
    # s = f / (2 + f), then log(1 + f) / 2 = s + s (z / 3 + z^2 (...)) with z = s^2; all but the last part in two parts
    d, d_low = fast_two_sum(const(2.0, float64), f)
    s = f / d
    s_low = fma(-s, d_low, fma(-s, d, f)) / d
    z, z_low = two_product(s, s)
    z_low = fma(s * 2.0, s_low, z_low)
    third, third_low = split_constant(Fraction(1, 3), float64)
    c, c_low = two_product(z, third)
    c_low = fma(z_low, third, fma(z, third_low, c_low))
    c, c_low = fast_two_sum(c, fma(z * z, polynomial("atanh5", z), c_low))
    t, t_low = two_product(s, c)
    t_low = fma(s, c_low, fma(s_low, c, t_low))
    e, e_low = two_product(n, high / 2)
    e_low = fma(n, low / 2, e_low)
    a, a_low = two_sum(e, s)
    b, b_low = two_sum(a, t)
    r, r_low = fast_two_sum(b, (a_low + b_low) + ((e_low + s_low) + t_low))
    return r * 2.0, r_low * 2.0


def magnitude_of_power(a: Expr, y: Expr, table: str) -> Expr:
    """a^y of float64 a > 0, finite."""
    y = clamp(y, -(2.0**80), 2.0**80)  # beyond that only a = 1 does not overflow or vanish
    high, low = log_parts(a, table)
    p, p_low = two_product(y, high)
    p, p_low = fast_two_sum(p, fma(y, low, p_low))
    inside = clamp(p, -800.0, 800.0)
    r, _, n = precise_exp_parts(inside, select(equal(inside, p), p_low, 0.0), table)
    return scale(r, n)


@widened
def pow(x: Expr, y: Expr, table: str) -> Expr:
    """x to the power y."""
    a = abs(x)
    r = magnitude_of_power(a, y, table)
    grows = equal(a < 1.0, y < 0.0)
    edge = equal(a, 0.0) | equal(a, INF) | equal(abs(y), INF)
    r = select(edge, select(grows, const(INF, float64), 0.0), r)
    half = y * 0.5
    whole = equal(y, unary("rint", y))
    odd = whole & not_equal(half, unary("rint", half)) & (abs(y) < INF)
    negative = bitcast(x, format_of(x).ints) < 0
    r = select(negative & odd, -r, r)
    r = select((x < 0.0) & ~whole & (a < INF), const(NAN, float64), r)
    r = select(is_nan(x) | is_nan(y), x + y, r)
    one = equal(x, 1.0) | equal(y, 0.0) | (equal(x, -1.0) & equal(abs(y), INF))
    return select(one, 1.0, r)


def rsqrt(x: Expr) -> Expr:
    """1 / sqrt(x): the rounding errors of root and quotient are taken back by one step with fma."""
    f = format_of(x)
    small = x < 2.0 ** (f.bits + 4) * f.tiny  # where the error of the root would underflow
    up = 2.0 ** (2 * f.bits)
    v = select(small, x * up, x)
    s = unary("sqrt", v)
    y = 1.0 / s
    root_error = fma(-s, s, v)
    y_error = fma(-y, s, 1.0)
    better = fma(y, fma(root_error * y, y * -0.5, y_error), y)
    y = select((v > 0.0) & (v < INF), better, y)
    return select(small, y * 2.0**f.bits, y)


@widened
def cbrt(x: Expr, table: str) -> Expr:
    """The cube root: a polynomial, one or two steps of Halley's iteration, and in float64 one of Newton's with fma."""
    a = abs(x)
    n, m = split_exponent(a)
    n = cast(n, int32)
    k = ((n + 3072) * 43691 >> 17) - 1024  # floor(n / 3)
    y = m * cast(power_of_two(cast(n - k * 3, format_of(x).ints), format_of(x)), float64)
    t = polynomial("cbrt", y, table)
    for _ in range(1 if table == "wide" else 2):
        cube = t * t * t
        t = t * (fma(y, 2.0, cube) / fma(cube, 2.0, y))
    if table != "wide":
        square, low = two_product(t, t)
        t = t - fma(low, t, fma(square, t, -y)) / (square * 3.0)
    r = with_sign_of(t * power_of_two(cast(k, format_of(x).ints), format_of(x)), x)
    return select((a > 0.0) & (a < INF), r, x)
