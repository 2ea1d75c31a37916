"""Bodies of the hyperbolic functions and their inverses, erf and erfc, sigmoid and softplus.

In and out: expressions of float32 or float64, with one lane or sixteen. Where the result is small a polynomial takes over from
the formula that would cancel. The inverse hyperbolic functions and erfc of float32 are computed in float64 and rounded once.
"""

from __future__ import annotations

import math

from tengen.base.dtype import float32, float64
from tengen.loops.exponential import clamp, clamp_negative, exp, exp_parts, log1p, precise_exp_parts
from tengen.loops.floats import (
    fast_two_sum,
    format_of,
    polynomial,
    power_of_two,
    scale,
    scale_down,
    two_product,
    widened,
    with_sign_of,
)
from tengen.loops.lang import Expr, bitcast, const, fma, maximum, minimum, select, unary
from tengen.loops.reals import LN2

NAN = math.nan


def half_exp(a: Expr) -> Expr:
    """e^a / 2 for a >= 0, without overflow where the result is finite."""
    p, n = exp_parts(minimum(a, 91.0 if a.dtype is float32 else 712.0))
    return scale(p, n - 1)


def odd_polynomial(name: str, x: Expr, table: str | None = None) -> Expr:
    """x + x^3 p(x^2)."""
    z = x * x
    return fma(x * z, polynomial(name, z, table), x)


def sinh(x: Expr) -> Expr:
    """The hyperbolic sine."""
    a = abs(x)
    h = half_exp(a)
    return with_sign_of(select(a < 1.0, odd_polynomial("sinh", a), h - 0.25 / h), x)


def cosh(x: Expr) -> Expr:
    """The hyperbolic cosine."""
    h = half_exp(abs(x))
    return h + 0.25 / h


def tanh(x: Expr) -> Expr:
    """The hyperbolic tangent."""
    a = abs(x)
    p, n = exp_parts(minimum(a * 2.0, 20.0 if x.dtype is float32 else 44.0))
    t = p * power_of_two(n, format_of(x))  # in range, at most 2^64
    return with_sign_of(select(a < 0.65, odd_polynomial("tanh", a), 1.0 - 2.0 / (t + 1.0)), x)


@widened
def asinh(x: Expr, table: str) -> Expr:
    """The inverse of sinh."""
    a = abs(x)
    big = a > 2.0**300
    square = a * a
    t = a + square / (unary("sqrt", square + 1.0) + 1.0)
    return with_sign_of(log1p(select(big, a, t), table) + select(big, const(float(LN2), float64), 0.0), x)


@widened
def acosh(x: Expr, table: str) -> Expr:
    """The inverse of cosh on x >= 1; NaN elsewhere."""
    big = x > 2.0**300
    t = x - 1.0
    y = log1p(select(big, x, t + unary("sqrt", fma(t, t, t * 2.0))), table) + select(big, const(float(LN2), float64), 0.0)
    return select(x < 1.0, const(NAN, float64), y)


@widened
def atanh(x: Expr, table: str) -> Expr:
    """The inverse of tanh on -1 <= x <= 1; NaN elsewhere."""
    a = abs(x)
    far = log1p(a * 2.0 / (1.0 - a), table) * 0.5
    y = select(a < 0.17, odd_polynomial("atanh", a, table), far)
    return select(a <= 1.0, with_sign_of(y, x), const(NAN, float64))


def erfc_positive(a: Expr, table: str) -> Expr:
    """erfc(a) of float64 a >= 0, as e^(-a^2) times a polynomial in (a - c) / (a + c) over 1 + 2 a, after
    M. M. Shepherd and J. G. Laframboise, "Chebyshev approximation of (1 + 2x) exp(x^2) erfc x", 1981."""
    a = minimum(a, 10.2 if table == "wide" else 27.3)
    name, c = ("erfcx", 2.0) if table == "wide" else ("erfcx4", 4.0)
    w = polynomial(name, (a - c) / (a + c), table) / fma(a, 2.0, 1.0)
    square, low = two_product(a, a)
    p, p_low, n = precise_exp_parts(-square, -low, table)
    return scale_down(fma(p, w, p_low * w), n)


@widened
def erfc(x: Expr, table: str) -> Expr:
    """1 - erf(x), without the cancellation."""
    a = abs(x)
    e = erfc_positive(a, table)
    e = select(x < 0.0, 2.0 - e, e)
    return e if table == "wide" else select(a < 0.5, 1.0 - fma(x, polynomial("erf", x * x), x), e)


def erf(x: Expr) -> Expr:
    """The error function."""
    a = abs(x)
    if x.dtype is float32:
        far = 1.0 - exp(polynomial("log_erfc", clamp(a, 1.0, 4.0)))
    else:
        far = 1.0 - erfc_positive(minimum(a, 6.0), "f64")
    return with_sign_of(select(a < 1.0, fma(a, polynomial("erf", a * a), a), far), x)


def normal_cdf(x: Expr) -> Expr:
    """The normal distribution's cumulative function, with an absolute error: for float32 t = Phi(-|x|) is 2 to the power of a
    polynomial, and the other half 1 - t."""
    if x.dtype is not float32:
        return (erf(x * math.sqrt(0.5)) + 1.0) * 0.5
    f, a = format_of(x), abs(x)
    q = maximum(fma(a, polynomial("log_normal", a), -1.0), -127.0)
    m = q + f.magic
    r = q - (m - f.magic)
    t = fma(r, polynomial("exp2", r), 1.0) * power_of_two(bitcast(m, f.ints), f)
    return select(x < 0.0, t, 1.0 - t)


def sigmoid(x: Expr) -> Expr:
    """1 / (1 + e^-x), from t = e^-|x|, so that nothing overflows: u = 1 / (1 + t), or t u where x is negative."""
    p, p_low, n = precise_exp_parts(clamp_negative(-abs(x)))
    t = scale_down(p, n)
    d, d_low = fast_two_sum(const(1.0, x.dtype), t)
    u = 1.0 / d
    u = fma(u, fma(-u, d_low, fma(-u, d, 1.0)), u)
    return select(x < 0.0, scale_down(fma(p, u, p_low * u), n), u)


def softplus(x: Expr) -> Expr:
    """log(1 + e^x), as max(x, 0) + log1p(e^-|x|)."""
    t = scale_down(*exp_parts(clamp_negative(-abs(x))))
    return maximum(x, 0.0) + log1p(t)
