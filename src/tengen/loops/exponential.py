"""Bodies of exp and log in all their forms.

In and out: expressions of float32 or float64, with one lane or sixteen, without branches or tables. The accuracy of each is
listed in `math.py`. The reductions are the classical ones (W. J. Cody and W. Waite, "Software Manual for the Elementary
Functions", 1980; J.-M. Muller, "Elementary Functions", 2016); coefficients come from `benchmarks/fit_math.py`.
"""

from __future__ import annotations

import math
from fractions import Fraction

from tengen.base.dtype import float32, float64
from tengen.loops.floats import fast_two_sum, format_of, polynomial, power_of_two, scale, two_product
from tengen.loops.lang import Expr, bitcast, cast, const, equal, fma, maximum, minimum, select
from tengen.loops.reals import LN2, LOG2_E, LOG10_2, LOG10_E, split_constant

INF, NAN = math.inf, math.nan

# ---- e to the power x -------------------------------------------------------------------------------------------------


def clamp(x: Expr, low: float, high: float) -> Expr:
    """x within bounds; a NaN stays."""
    return maximum(minimum(x, high), low)


def clamp_exponent(x: Expr) -> Expr:
    """x where exp(x) is neither 0 nor infinite, else a number just outside of that."""
    return clamp(x, -105.0, 89.0) if x.dtype is float32 else clamp(x, -746.0, 710.0)


def clamp_negative(x: Expr) -> Expr:
    """`clamp_exponent` of x <= 0."""
    return maximum(x, -105.0 if x.dtype is float32 else -746.0)


def reduce_exponent(x: Expr) -> tuple[Expr, Expr, Expr]:
    """(n, r, s) with x = n ln 2 + r + s, |r| <= ln 2 / 2, n an integer, of which the low bits are given (`power_of_two`), and s the
    rounding error of r."""
    f = format_of(x)
    high, low = split_constant(LN2, f.dtype)
    t = fma(x, float(LOG2_E), f.magic)
    n = t - f.magic
    exact = fma(n, -high, x)
    r = fma(n, -low, exact)
    return bitcast(t, f.ints), r, fma(n, -low, exact - r)  # less f.magic_bits, whose low bits are zeros


def exp_parts(x: Expr) -> tuple[Expr, Expr]:
    """(p, n) with e^x = p * 2^n, p near 1, good to 1.1 ULP, and the low bits of n; x is within `clamp_exponent`."""
    n, r, _ = reduce_exponent(x)
    return fma(r * r, polynomial("exp", r), r) + 1.0, n


def precise_exp_parts(x: Expr, low: Expr | None = None, table: str | None = None) -> tuple[Expr, Expr, Expr]:
    """(p, p_low, n) with e^(x + low) = (p + p_low) * 2^n, p rounded and p_low what it lacks (to a tenth of p's ULP),
    and the low bits of n; low is at most a rounding error of x."""
    n, r, s = reduce_exponent(x)
    if low is not None:
        r, s = fast_two_sum(r, low + s)
    one, one_low = fast_two_sum(const(1.0, x.dtype), r)
    return *fast_two_sum(one, fma(r * r, polynomial("exp", r, table), one_low + s)), n


def exp(x: Expr) -> Expr:
    """e^x."""
    return scale(*exp_parts(clamp_exponent(x)))


def exp2(x: Expr) -> Expr:
    """2^x."""
    f = format_of(x)
    x = clamp(x, -151.0, 129.0) if f.dtype is float32 else clamp(x, -1076.0, 1025.0)
    t = x + f.magic
    r = x - (t - f.magic)
    return scale(fma(r, polynomial("exp2", r), 1.0), bitcast(t, f.ints))


def expm1(x: Expr) -> Expr:
    """e^x - 1."""
    f = format_of(x)
    n, r, low = reduce_exponent(clamp(x, -40.0, 89.0) if f.dtype is float32 else clamp(x, -60.0, 710.0))
    tail = fma(r * r, polynomial("exp", r), low)
    half = power_of_two(n - 1, f)  # half of 2^n, which itself may overflow
    y = fma(half, tail, fma(half, r, half - 0.5)) * 2.0
    return select(abs(x) < 2.0 ** -(f.bits + 4), x, y)


# ---- logarithms -------------------------------------------------------------------------------------------------------


def split_exponent(x: Expr) -> tuple[Expr, Expr]:
    """(n, m) with x = m * 2^n, sqrt(1/2) <= m < sqrt(2), for positive x; n an integer."""
    f = format_of(x)
    small = x < f.tiny
    i = bitcast(select(small, x * 2.0 ** (f.bits + 1), x), f.ints)
    n = (i - SQRT_HALF[f.dtype]) >> f.bits
    m = bitcast(i - (n << f.bits), f.dtype)
    return n - select(small, const(f.bits + 1, f.ints), const(0, f.ints)), m


SQRT_HALF = {float32: 0x3F3504F3, float64: 0x3FE6A09E667F3BCD}  # its bits


def log_tail(f: Expr, table: str | None = None) -> Expr:
    """log(1 + f) - f for sqrt(1/2) <= 1 + f < sqrt(2)."""
    if f.dtype is float32:
        square = f * f
        return fma(square * f, polynomial("log", f), square * -0.5)
    s = f / (f + 2.0)
    z = s * s
    half = f * f * 0.5
    return fma(s, fma(z * 2.0, polynomial("atanh", z, table), half), -half)


def log_domain(x: Expr, y: Expr) -> Expr:
    """y, a logarithm of x, with the values at 0, at infinity, and left of 0."""
    y = select(x < INF, y, x)
    return select(x > 0.0, y, select(equal(x, 0.0), -INF, const(NAN, x.dtype)))


def log(x: Expr) -> Expr:
    """The natural logarithm."""
    n, m = split_exponent(x)
    n = cast(n, x.dtype)
    f = m - 1.0
    high, low = split_constant(LN2, x.dtype)
    return log_domain(x, fma(n, high, f + fma(n, low, log_tail(f))))


def scaled_log(x: Expr, factor: Fraction, exponent_factor: Fraction) -> Expr:
    """factor * log(x), where exponent_factor is factor * ln 2; the product with the leading term is carried in two parts."""
    n, m = split_exponent(x)
    n = cast(n, x.dtype)
    f = m - 1.0
    high, low = split_constant(factor, x.dtype)
    e_high, e_low = split_constant(exponent_factor, x.dtype)
    p, p_low = two_product(f, high)
    e, carry = two_product(n, e_high)
    s, s_low = fast_two_sum(e, p)
    rest = fma(f, low, fma(log_tail(f), high, p_low)) + fma(n, e_low, carry)
    return log_domain(x, s + (s_low + rest))


def log2(x: Expr) -> Expr:
    """The logarithm to base 2; exact at powers of 2."""
    return scaled_log(x, LOG2_E, Fraction(1))


def log10(x: Expr) -> Expr:
    """The logarithm to base 10."""
    return scaled_log(x, LOG10_E, LOG10_2)


def log1p(x: Expr, table: str | None = None) -> Expr:
    """log(1 + x): the exponent comes from the rounded sum, the significand from x itself by one fma."""
    fmt = format_of(x)
    i = bitcast(maximum(x, -1.0) + 1.0, fmt.ints)
    n = (i - SQRT_HALF[fmt.dtype]) >> fmt.bits
    m = bitcast(i - (n << fmt.bits), fmt.dtype)
    unscale = power_of_two(-n, fmt)
    f = select(n > fmt.bits + 4, m - 1.0, fma(x, unscale, unscale - 1.0))
    n = cast(n, fmt.dtype)
    high, low = split_constant(LN2, fmt.dtype)
    y = fma(n, high, f + fma(n, low, log_tail(f, table)))
    y = select(abs(x) < 2.0 ** -(fmt.bits + 4), x, select(x < INF, y, x))
    return select(x >= -1.0, select(equal(x, -1.0), -INF, y), const(NAN, x.dtype))
