"""Bodies of sin, cos, tan and their inverses.

In and out: expressions of float32 or float64, with one lane or sixteen. The argument is reduced exactly, for every finite
number, in the manner of M. Payne and R. Hanek ("Radian reduction for trigonometric functions", 1983): the bits of 2 / pi
that only add whole turns are left out, and which these are depends on x's exponent; selects pick the pieces, so there is
no table in memory. float32 is reduced in float64.
"""

from __future__ import annotations

import math
from fractions import Fraction

from tengen.base.dtype import float32, float64, int32, int64
from tengen.loops.floats import (
    choose,
    fast_two_sum,
    format_of,
    is_nan,
    polynomial,
    sign_bit,
    two_product,
    two_sum,
    with_sign_of,
)
from tengen.loops.lang import Expr, bitcast, cast, const, equal, fma, maximum, minimum, select, unary
from tengen.loops.polynomials import TWO_OVER_PI
from tengen.loops.reals import PI, split_constant

MAGIC = 1.5 * 2.0**52  # adding it rounds to an integer, which subtracting it gives

# ---- reduction --------------------------------------------------------------------------------------------------------

# float32: x < 2^26 needs 2 / pi; x in [2^(10 + 16 b), 2^(26 + 16 b)) is a multiple of 2^(16 b - 13), and times that the bits
# from 2^(15 - 16 b) up are multiples of 4. What is left is split into two float64 numbers.
_BANDS = [Fraction(TWO_OVER_PI, 2**1272) % (Fraction(2) ** (15 - 16 * b) if b else 1) for b in range(8)]
_BAND_PARTS = [split_constant(value, float64) for value in _BANDS]


def reduce_float32(x: Expr) -> tuple[Expr, Expr]:
    """(q, r) with |x| = (q + 4 k + r) pi / 2 and |r| <= 0.501: r in float64, q an int32 of which the low two bits count."""
    a = abs(x)
    band = maximum((bitcast(a, int32) >> 23) - (127 + 10), 0) >> 4
    first = choose(band, [p[0] for p in _BAND_PARTS], float64)
    second = choose(band, [p[1] for p in _BAND_PARTS], float64)
    a = cast(a, float64)
    h, h_low = two_product(a, first)  # h < 2^41, so the fraction keeps 11 bits and h_low the rest
    t = h + MAGIC
    s, s_low = two_sum(h - (t - MAGIC), h_low)
    return cast(bitcast(t, int64), int32), s + fma(a, second, s_low)


# float64: 2 / pi in pieces of 53 bits; x in [2^(53 i + 54), 2^(53 i + 107)) needs pieces i to i + 4 (x < 2^107: 0 to 4). The
# pieces are stored times 2^160, and x is taken times 2^-160, so that the last ones do not underflow.
_SHIFT = 160
_PIECES = [math.ldexp(TWO_OVER_PI >> (1272 - 53 * (j + 1)) & (2**53 - 1), _SHIFT - 53 * (j + 1)) for j in range(24)]


def pieces_for(a: Expr) -> list[Expr]:
    """The five pieces that a float64 of this magnitude needs: a shift by 16, 8, 4, 2, 1 pieces, each by selects."""
    e = maximum(cast(bitcast(a, int64) >> 52, int32) - (1023 + 54), 0)
    index = e * 1237 >> 16  # e / 53
    pieces: list[Expr] = [const(p, float64) for p in _PIECES]
    for bit in (16, 8, 4, 2, 1):
        stay = equal(index & bit, 0)
        pieces = [select(stay, p, pieces[j + bit]) if j + bit < len(pieces) else p for j, p in enumerate(pieces)][: bit + 4]
    return pieces


def reduce_float64(x: Expr) -> tuple[Expr, Expr, Expr]:
    """(q, r, s) with |x| = (q + 4 k + r + s) pi / 2, |r| <= 0.501, and s what r lacks, to about 2^-105 of r."""
    a = abs(x)
    small = a * 2.0**-_SHIFT
    (h0, l0), (h1, l1), (h2, l2), (h3, l3), (h4, _) = (two_product(small, p) for p in pieces_for(a))

    def whole_turns_dropped(v: Expr) -> Expr:
        return fma(unary("rint", v * 0.25), -4.0, v)

    terms = [*map(whole_turns_dropped, (h0, l0, h1)), l1, h2, l2, h3, l3 + h4]
    # Two passes of error-free additions; the quadrant is taken out between them, so that what cancels cancels exactly.
    s, errors = terms[0], []
    for v in terms[1:]:
        s, low = two_sum(s, v)
        errors.append(low)
    t = s + MAGIC
    s = s - (t - MAGIC)
    rest: Expr | None = None
    for v in errors:
        s, low = two_sum(s, v)
        rest = low if rest is None else rest + low
    assert rest is not None
    return cast(bitcast(t, int64), int32), s, rest


def angle(x: Expr) -> tuple[Expr, Expr, Expr | None]:
    """(q, y, y_low): quadrant and reduced angle, in float32 one number (rounded once), in float64 two."""
    if x.dtype is float32:
        q, r = reduce_float32(x)
        return q, cast(r * float(PI / 2), float32), None
    q, r, s = reduce_float64(x)
    high, low = split_constant(PI / 2, float64)
    y, y_low = two_product(r, high)
    return q, *fast_two_sum(y, fma(r, low, fma(s, high, y_low)))


# ---- sin, cos, tan ----------------------------------------------------------------------------------------------------


def near_zero(x: Expr) -> Expr:
    """Where sin x and tan x are x, rounded."""
    return abs(x) < 2.0 ** -(format_of(x).bits // 2 + 2)


def sine_or_cosine(q: Expr, y: Expr, y_low: Expr | None) -> Expr:
    """sin(q pi / 2 + y + y_low), of which the sign is still to be flipped where q has its second bit."""
    z = y * y
    sine = y * z * polynomial("sin", z)
    cosine = z * z * polynomial("cos", z)
    if y_low is not None:
        sine = fma(y_low, fma(z, -0.5, 1.0), sine)
        cosine = fma(y, -y_low, cosine)
    big = fma(z, -0.5, 1.0)
    error = fma(z, -0.5, 1.0 - big)
    return select(equal(q & 1, 0), y + sine, big + (error + cosine))


def flip(y: Expr, signs: Expr) -> Expr:
    """y with its sign bit xored with that of the integer `signs`."""
    ints = format_of(y).ints
    return bitcast(bitcast(y, ints) ^ (signs & -(1 << (ints.bits - 1))), y.dtype)


def quadrant_sign(q: Expr, ints) -> Expr:
    """An integer whose sign bit is the second bit of q."""
    return cast(q, ints) << (ints.bits - 2)


def sin(x: Expr) -> Expr:
    """The sine, of every finite number."""
    q, y, y_low = angle(x)
    r = flip(sine_or_cosine(q, y, y_low), quadrant_sign(q, format_of(x).ints) ^ sign_bit(x))
    return select(near_zero(x), x, r) if x.dtype is float64 else r


def cos(x: Expr) -> Expr:
    """The cosine, of every finite number."""
    q, y, y_low = angle(x)
    q = q + 1
    return flip(sine_or_cosine(q, y, y_low), quadrant_sign(q, format_of(x).ints))


def tan(x: Expr) -> Expr:
    """The tangent, of every finite number."""
    if x.dtype is float32:
        q, r = reduce_float32(x)
        y = r * float(PI / 2)
        z = y * y
        t = fma(y * z, polynomial("tan", z, "wide"), y)
        t = cast(select(equal(q & 1, 0), t, -1.0 / t), float32)
        return flip(t, sign_bit(x))
    q, y, y_low = angle(x)
    assert y_low is not None
    z = y * y
    t = y * z * polynomial("tan", z)
    t, t_low = fast_two_sum(y, fma(y_low, fma(t, t, 1.0), t))
    inverse = 1.0 / t
    inverse = fma(inverse, fma(-inverse, t_low, fma(-inverse, t, 1.0)), inverse)
    return select(near_zero(x), x, flip(select(equal(q & 1, 0), t, -inverse), sign_bit(x)))


# ---- inverses ---------------------------------------------------------------------------------------------------------


def arctangent(t: Expr) -> Expr:
    """atan(t) for 0 <= t <= 1."""
    z = t * t
    return fma(t * z, polynomial("atan", z), t)


def atan(x: Expr) -> Expr:
    """The inverse tangent."""
    high, low = split_constant(PI / 2, x.dtype)
    a = abs(x)
    big = a > 1.0
    y = arctangent(select(big, 1.0 / a, a))
    return with_sign_of(select(big, high - (y - low), y), x)


def atan2(y: Expr, x: Expr) -> Expr:
    """The angle of the point (x, y), in [-pi, pi]."""
    high, low = split_constant(PI / 2, x.dtype)
    a, b = abs(x), abs(y)
    steep, left = b > a, bitcast(x, format_of(x).ints) < 0
    big, small = maximum(a, b), minimum(a, b)
    t = select(equal(small, big), select(equal(big, 0.0), const(0.0, x.dtype), 1.0), small / big)
    r = arctangent(t)
    quarters = select(steep, const(1.0, x.dtype), select(left, const(2.0, x.dtype), 0.0))
    turned = fma(quarters, high, fma(quarters, low, select(equal(steep, left), r, -r)))
    r = with_sign_of(select(steep | left, turned, r), y)
    return select(is_nan(x) | is_nan(y), x + y, r)


def arcsine(x: Expr) -> tuple[Expr, Expr, Expr]:
    """(big, s, t): s + t is asin(|x|), or where |x| > 1/2 (big) it is acos(|x|) / 2. NaN for |x| > 1."""
    a = abs(x)
    big = a > 0.5
    z = select(big, fma(a, -0.5, 0.5), a * a)
    s = select(big, unary("sqrt", z), a)
    return big, s, s * z * polynomial("asin", z)


def asin(x: Expr) -> Expr:
    """The inverse sine on -1 <= x <= 1; NaN elsewhere."""
    high, low = split_constant(PI / 2, x.dtype)
    big, s, t = arcsine(x)
    h = fma(s, -2.0, high)
    h_low = fma(s, -2.0, high - h)
    return with_sign_of(select(big, h + (h_low - fma(t, 2.0, -low)), s + t), x)


def acos(x: Expr) -> Expr:
    """The inverse cosine on -1 <= x <= 1; NaN elsewhere."""
    high, low = split_constant(PI / 2, x.dtype)
    big, s, t = arcsine(x)
    y = s + t
    left = x < 0.0
    middle = select(left, high + (y + low), high - (y - low))
    return select(big, select(left, fma(s, -2.0, 2.0 * high) - fma(t, 2.0, -2.0 * low), y * 2.0), middle)
