"""What functions of mathematics mean for complex numbers, in ops on real and imaginary parts, and their complex derivatives.

Branch cuts and values at zeros, infinities and NaNs are C99's (Annex G) but for what `docs/numerics.md` lists. Formulas: W. Kahan,
"Branch cuts for complex elementary functions" (1987), in the form of CPython's cmath; the logarithm of numbers near the unit circle with
compensated sums. What could overflow while the result does not is scaled by powers of two, or of e.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tengen.ops import division
from tengen.ops import elementwise as e
from tengen.ops.complex_numbers import complex_, imag_part, real_part
from tengen.ops.complex_rules import all_parts
from tengen.ops.define import Op, dispatch
from tengen.ops.elementwise import abs, add, atan2, div, fma, log1p, maximum, minimum, mul, neg, sub, where
from tengen.ops.float_parts import copysign, hypot
from tengen.ops.logic import equal, greater, isfinite, isinf, isnan, less, logical_and, logical_not, logical_or

Parts = tuple[Any, Any]
LIMIT = {"float32": 88.0, "float64": 709.0}  # e to this power is nearly the largest number
FLAT = {"float32": 10.0, "float64": 20.0}  # from where on tanh is 1 but for less than a rounding
# beyond LARGE squares overflow, below SMALL they vanish; times DOWN, or times UP, they do not
LARGE, SMALL = {"float32": 2.0**60, "float64": 2.0**500}, {"float32": 2.0**-50, "float64": 2.0**-450}
UP, DOWN = {"float32": 2.0**96, "float64": 2.0**600}, {"float32": 2.0**-68, "float64": 2.0**-524}


def number(value: float, like: Any) -> Any:
    """A number in the dtype of a tensor; two numbers to choose from would be float32."""
    return dispatch.scalar(value, like.dtype)


def _odd(x: Any) -> Any:
    """Where a number is infinite or NaN."""
    return logical_not(isfinite(x))


def _scaled(x: Any, y: Any) -> tuple[Any, Any, Any]:
    """Both times the same power of four, so that their squares neither overflow nor vanish; and that power."""
    d, size = x.dtype.name, maximum(abs(x), abs(y))
    by = where(greater(size, LARGE[d]), DOWN[d], where(less(size, SMALL[d]), UP[d], number(1.0, x)))
    return mul(x, by), mul(y, by), by


def _of_parts(op: Op, slope: Callable[[Any], Any]) -> Callable[[Callable[[Any, Any], Parts]], Callable[[Any, Any], Parts]]:
    """Registers a function of the parts as the rule of an op of one operand; slope: the derivative, a function of the operand."""

    def register(f: Callable[[Any, Any], Parts]) -> Callable[[Any, Any], Parts]:
        op.complex(lambda x: complex_(*f(real_part(x), imag_part(x))))
        op.slope(slope)
        return f

    return register


# ---- exponentials ------------------------------------------------------------------------------------------------------


@_of_parts(e.exp, e.exp)
def exp_parts(x: Any, y: Any) -> Parts:
    limit = LIMIT[x.dtype.name]
    far = greater(x, limit)
    grown = e.exp(where(far, sub(x, limit), x))
    more = where(far, math.exp(limit), number(1.0, x))
    re, im = mul(mul(grown, e.cos(y)), more), mul(mul(grown, e.sin(y)), more)
    odd = logical_and(isinf(x), _odd(y))
    re = where(odd, where(less(x, 0), 0.0, x), re)
    im = where(logical_and(odd, less(x, 0)), copysign(0.0, y), im)
    return re, where(equal(y, 0), y, im)


@_of_parts(e.expm1, e.exp)
def _(x: Any, y: Any) -> Parts:
    re, im = exp_parts(x, y)
    half = e.sin(mul(y, 0.5))
    near = sub(mul(e.expm1(minimum(x, 1.0)), e.cos(y)), mul(mul(half, half), 2.0))
    return where(logical_or(less(x, 1.0), isnan(x)), where(equal(y, 0), e.expm1(minimum(x, 1.0)), near), sub(re, 1.0)), im


# ---- logarithms --------------------------------------------------------------------------------------------------------


def log_length(x: Any, y: Any) -> Any:
    """log |x + iy|, also near the unit circle."""
    ax, ay = abs(x), abs(y)
    most, least = maximum(ax, ay), minimum(ax, ay)
    length = hypot(x, y)
    square, other = mul(most, most), mul(least, least)
    total = add(square, other)
    low = add(sub(other, sub(total, square)), add(fma(most, most, neg(square)), fma(least, least, neg(other))))
    near = mul(log1p(add(sub(total, 1.0), low)), 0.5)
    u, v, by = _scaled(x, y)
    far = sub(e.log(hypot(u, v)), e.log(by))
    return where(logical_and(greater(length, 0.5), less(length, 2.0)), near, far)


@_of_parts(e.log, lambda x: e.reciprocal(x))
def log_parts(x: Any, y: Any) -> Parts:
    return log_length(x, y), atan2(y, x)


for _op, _base in ((e.log2, 2.0), (e.log10, 10.0)):

    @_of_parts(_op, lambda x, base=_base: div(1 / math.log(base), x))
    def _(x: Any, y: Any, op: Op = _op, base: float = _base) -> Parts:
        re, im = log_parts(x, y)
        return where(equal(y, 0), op(abs(x)), mul(re, 1 / math.log(base))), mul(im, 1 / math.log(base))


@_of_parts(e.log1p, lambda x: e.reciprocal(add(x, 1)))
def _(x: Any, y: Any) -> Parts:
    small = logical_and(less(abs(x), 0.5), less(abs(y), 0.5))
    twice, other, square = mul(x, 2.0), mul(y, y), mul(x, x)  # |1 + z|^2 - 1 is the sum of these
    total = add(twice, other)
    by = sub(total, twice)
    low = add(add(sub(twice, sub(total, by)), sub(other, by)), add(fma(y, y, neg(other)), fma(x, x, neg(square))))
    near = mul(log1p(add(add(total, square), low)), 0.5)
    one = add(x, 1.0)
    return where(small, near, log_length(one, y)), atan2(y, one)


# ---- powers ------------------------------------------------------------------------------------------------------------


@_of_parts(e.sqrt, lambda x: div(0.5, e.sqrt(x)))
def sqrt_parts(x: Any, y: Any) -> Parts:
    u, v, by = _scaled(x, y)
    back = div(1.0, e.sqrt(by))
    t = e.sqrt(mul(add(abs(u), hypot(u, v)), 0.5))
    zero = equal(t, 0)
    other = where(zero, 0.0, div(mul(abs(v), 0.5), where(zero, 1.0, t)))
    right = logical_or(greater(x, 0), equal(x, 0))
    re, im = mul(where(right, t, other), back), mul(where(right, other, t), back)
    return where(isinf(y), math.inf, re), copysign(where(isinf(y), math.inf, im), y)


@e.rsqrt.complex
def _(x):
    return e.reciprocal(e.sqrt(x))


@e.rsqrt.slope
def _(x):
    r = e.rsqrt(x)
    return mul(mul(mul(r, r), r), -0.5)


@division.pow.complex
def _(x, y):
    """exp(y log x); x and 1/x for the powers 1 and -1, x x for 2, 1 for 0, so that these are exact."""
    (a, b), (c, d) = all_parts(x, y)
    base, power = complex_(a, b), complex_(c, d)
    general = e.exp(mul(power, e.log(base)))
    zero = logical_and(equal(a, 0), equal(b, 0))
    known = lambda n: logical_and(equal(c, n), equal(d, 0))
    nothing = where(greater(c, 0), 0.0, number(math.nan, c))
    out = where(zero, complex_(nothing, nothing), general)
    for n, value in ((2.0, mul(base, base)), (1.0, base), (-1.0, e.reciprocal(base))):
        out = where(known(n), value, out)
    return where(known(0.0), 1, out)


@division.pow.slope
def _(x, y):
    zero = equal(x, 0)
    return (lambda: mul(y, division.pow(x, sub(y, 1)))), (lambda: mul(division.pow(x, y), e.log(where(zero, 1, x))))


# ---- hyperbolic and trigonometric functions ------------------------------------------------------------------------------


def _grown(x: Any) -> Parts:
    """(x, or the limit of exp where x lies beyond; e to the power of what is missing)"""
    limit = LIMIT[x.dtype.name]
    far = greater(abs(x), limit)
    return where(far, copysign(number(limit, x), x), x), where(far, e.exp(sub(abs(x), limit)), 1.0)


@_of_parts(e.sinh, lambda x: e.cosh(x))
def sinh_parts(x: Any, y: Any) -> Parts:
    u, more = _grown(x)
    re, im = mul(mul(e.sinh(u), e.cos(y)), more), mul(mul(e.cosh(u), e.sin(y)), more)
    re = where(logical_and(logical_or(equal(x, 0), isinf(x)), _odd(y)), x, re)
    re = where(logical_and(isinf(x), equal(y, 0)), x, re)
    return re, where(equal(y, 0), y, im)


@_of_parts(e.cosh, lambda x: e.sinh(x))
def cosh_parts(x: Any, y: Any) -> Parts:
    u, more = _grown(x)
    re, im = mul(mul(e.cosh(u), e.cos(y)), more), mul(mul(e.sinh(u), e.sin(y)), more)
    re = where(logical_and(isinf(x), _odd(y)), math.inf, re)
    im = where(logical_and(equal(x, 0), _odd(y)), x, im)
    return re, where(equal(y, 0), where(isnan(x), y, mul(copysign(1.0, x), y)), im)


@_of_parts(e.tanh, lambda x: sub(1, e.square(e.tanh(x))))
def tanh_parts(x: Any, y: Any) -> Parts:
    flat = FLAT[x.dtype.name]
    far = greater(abs(x), flat)
    t, s = e.tan(y), e.sinh(where(far, 1.0, x))
    beta, square = fma(t, t, number(1.0, x)), mul(s, s)
    under = fma(beta, square, number(1.0, x))
    re = where(far, copysign(1.0, x), div(mul(mul(beta, e.sqrt(add(square, 1.0))), s), under))
    tail = mul(mul(mul(e.sin(y), e.cos(y)), 4.0), e.exp(mul(abs(x), -2.0)))
    im = where(far, where(logical_and(isinf(x), _odd(y)), copysign(0.0, y), tail), div(t, under))
    return where(equal(x, 0), x, re), where(equal(y, 0), y, im)


# f(iz) = i g(z) with f of the left column, so that g has the parts of f at (y, x), in the other order
@_of_parts(e.sin, lambda x: e.cos(x))
def _(x: Any, y: Any) -> Parts:
    return sinh_parts(y, x)[::-1]


@_of_parts(e.cos, lambda x: neg(e.sin(x)))
def _(x: Any, y: Any) -> Parts:
    re, im = cosh_parts(y, x)
    return re, neg(im)


@_of_parts(e.tan, lambda x: add(e.square(e.tan(x)), 1))
def _(x: Any, y: Any) -> Parts:
    return tanh_parts(y, x)[::-1]


# ---- their inverses ------------------------------------------------------------------------------------------------------


def _is_large(x: Any, y: Any) -> Any:
    return greater(hypot(x, y), LARGE[x.dtype.name])


def _log_twice(x: Any, y: Any) -> Any:
    """log(2 |x + iy|) of large numbers."""
    return add(e.log(hypot(mul(x, 0.25), mul(y, 0.25))), math.log(8))


@_of_parts(e.asinh, lambda x: e.reciprocal(mul(e.sqrt(add(1, mul(x, 1j))), e.sqrt(sub(1, mul(x, 1j))))))
def asinh_parts(x: Any, y: Any) -> Parts:
    far = _is_large(x, y)
    u, v = where(far, 0.0, x), where(far, 0.0, y)
    a, b = sqrt_parts(add(v, 1.0), neg(u)), sqrt_parts(sub(1.0, v), u)
    re = e.asinh(sub(mul(a[0], b[1]), mul(b[0], a[1])))
    im = atan2(v, sub(mul(a[0], b[0]), mul(a[1], b[1])))
    im = where(far, atan2(y, abs(x)), im)
    return copysign(where(far, _log_twice(x, y), re), x), where(logical_and(isnan(x), equal(y, 0)), y, im)


@_of_parts(e.asin, lambda x: e.reciprocal(mul(e.sqrt(add(1, x)), e.sqrt(sub(1, x)))))
def _(x: Any, y: Any) -> Parts:
    return asinh_parts(y, x)[::-1]


@_of_parts(e.acos, lambda x: neg(e.reciprocal(mul(e.sqrt(add(1, x)), e.sqrt(sub(1, x))))))
def _(x: Any, y: Any) -> Parts:
    far = _is_large(x, y)
    u, v = where(far, 0.0, x), where(far, 0.0, y)
    a, b = sqrt_parts(sub(1.0, u), neg(v)), sqrt_parts(add(1.0, u), v)
    re, im = mul(atan2(a[0], b[0]), 2.0), e.asinh(sub(mul(b[0], a[1]), mul(b[1], a[0])))
    re = where(logical_and(equal(x, 0), isnan(y)), math.pi / 2, re)
    return where(far, atan2(abs(y), x), re), where(far, copysign(_log_twice(x, y), neg(y)), im)


@_of_parts(e.acosh, lambda x: e.reciprocal(mul(e.sqrt(sub(x, 1)), e.sqrt(add(x, 1)))))
def _(x: Any, y: Any) -> Parts:
    far = _is_large(x, y)
    u, v = where(far, 0.0, x), where(far, 0.0, y)
    a, b = sqrt_parts(sub(u, 1.0), v), sqrt_parts(add(u, 1.0), v)
    re, im = e.asinh(add(mul(a[0], b[0]), mul(a[1], b[1]))), mul(atan2(a[1], b[0]), 2.0)
    im = where(logical_and(equal(x, 0.0), isnan(y)), math.pi / 2, im)
    return where(far, _log_twice(x, y), re), where(far, atan2(y, x), im)


@_of_parts(e.atanh, lambda x: e.reciprocal(mul(sub(1, x), add(1, x))))
def atanh_parts(x: Any, y: Any) -> Parts:
    u, v = abs(x), mul(y, copysign(1.0, x))  # atanh is odd
    far = _is_large(u, v)
    p, q = where(far, 0.0, u), where(far, 0.0, v)
    length = hypot(mul(u, 0.5), mul(v, 0.5))
    away = where(isinf(length), 0.0, div(div(mul(u, 0.25), length), length))
    aq = abs(q)
    tight = logical_and(equal(p, 1), less(aq, SMALL[x.dtype.name]))  # where the square of the distance to 1 vanishes
    near = div(log1p(div(mul(p, 4.0), add(mul(sub(1.0, p), sub(1.0, p)), mul(aq, aq)))), 4.0)
    re = where(far, away, where(tight, neg(e.log(div(e.sqrt(aq), math.sqrt(2)))), near))
    im = mul(atan2(mul(q, 2.0), sub(mul(sub(1.0, p), add(p, 1.0)), mul(aq, aq))), 0.5)
    im = where(logical_and(tight, equal(q, 0)), q, im)
    im = where(far, where(isnan(v), v, copysign(math.pi / 2, v)), im)
    re = where(equal(u, 0), u, re)
    turned = copysign(1.0, x)
    return mul(re, turned), mul(im, turned)


@_of_parts(e.atan, lambda x: e.reciprocal(mul(sub(1, mul(x, 1j)), add(1, mul(x, 1j)))))
def _(x: Any, y: Any) -> Parts:
    return atanh_parts(y, x)[::-1]
