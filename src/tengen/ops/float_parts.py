"""Elementwise ops on signs and neighbours of floats, and the length of a vector of two."""

from __future__ import annotations

import math

import numpy as np

from tengen.base.dtype import float32, float64
from tengen.base.errors import DTypeError
from tengen.loops import lang
from tengen.loops.floats import format_of, power_of_two, sign_bit, with_sign_of
from tengen.loops.lang import bitcast, cast, const, equal, maximum, minimum, not_equal, select
from tengen.ops.define import elementwise, lookup
from tengen.ops.elementwise import div, mul, sign, where


@elementwise(result="bool", kinds="f", functional="elemwise")
def signbit(x):
    """Whether the sign bit is set: of negative numbers, and of -0.0 and NaNs that have it.

    >>> from tengen import Tensor, functional as F
    >>> F.signbit(Tensor([-0.0, 0.0])).tolist()
    [True, False]
    """
    return not_equal(sign_bit(x), 0)


signbit.reference(np.signbit)


@elementwise(result="float", functional="elemwise")
def copysign(x, y):
    """|x| with the sign bit of y; integers give float32.

    Gradient: that of |x|, with that sign; none for y
    """
    return with_sign_of(lang.unary("abs", x), y)


@copysign.vjp
def _(g, x, y):
    return (lambda: mul(mul(g, sign(x)), copysign(1.0, y))), None


copysign.reference(np.copysign)


@elementwise(result="float", functional="elemwise")
def hypot(x, y):
    """The square root of x^2 + y^2, without overflow or underflow in between; at most 1 ULP off. Infinite where either is infinite,
    beside a NaN too.

    Gradient: x / hypot(x, y) and y / hypot(x, y); 0 where both are 0

    >>> from tengen import Tensor, functional as F
    >>> F.hypot(Tensor([3.0]), 4.0).tolist()
    [5.0]
    """
    if x.dtype is float32:
        wide = [cast(v, float64) for v in (x, y)]
        length = cast(lang.unary("sqrt", lang.fma(wide[0], wide[0], wide[1] * wide[1])), float32)
    else:
        length = _long_hypot(x, y)
    infinite = equal(lang.unary("abs", x), math.inf) | equal(lang.unary("abs", y), math.inf)
    return select(infinite, const(math.inf, x.dtype), length)


def _long_hypot(x, y):
    """Both divided by a power of two near the larger one, which is exact, so that squares neither overflow nor vanish; the error of the
    sum of squares, and then that of the root, are taken off again (Borges, "An improved algorithm for hypot(a, b)", 2019)."""
    f = format_of(x)
    a, b = lang.unary("abs", x), lang.unary("abs", y)
    most, least = maximum(a, b), minimum(a, b)
    tiny = most < f.tiny  # a denormal has the exponent of the smallest normal number
    exponent = (bitcast(select(tiny, const(f.tiny, x.dtype), most), f.ints) >> f.bits) - f.bias
    exponent = minimum(exponent, 1000)
    down = power_of_two(-(exponent >> 1), f)
    rest = power_of_two((exponent >> 1) - exponent, f)
    p, q = most * down * rest, least * down * rest
    square, other = p * p, q * q
    low = lang.fma(p, p, -square) + lang.fma(q, q, -other)
    total = square + other
    low = low + ((square - total) + other)
    root = lang.unary("sqrt", total)
    fixed = root + (lang.fma(-root, root, total) + low) / (root * 2.0)
    fixed = select(equal(root, 0.0), root, fixed)
    return fixed * power_of_two(exponent >> 1, f) * power_of_two(exponent - (exponent >> 1), f)


@hypot.vjp
def _(g, x, y):
    length = hypot(x, y)
    safe = where(lookup("equal")(length, 0), 1, length)
    return (lambda: mul(g, div(x, safe))), (lambda: mul(g, div(y, safe)))


hypot.reference(np.hypot)


@elementwise(kinds="f", functional="elemwise")
def nextafter(x, y):
    """The next number of the dtype after x on the way to y; y where they are equal, NaN where either is. The
    gradient is that of x alone.

    Errors: DTypeError for float16 and bfloat16, which are computed in float32.

    >>> from tengen import Tensor, functional as F
    >>> F.nextafter(Tensor([1.0]), 2.0).item() == 1 + 2**-23
    True
    """
    f = format_of(x)
    bits = bitcast(x, f.ints)
    away = equal(x < y, x > 0.0)  # from zero
    step = bits + select(away, const(1, f.ints), const(-1, f.ints))
    least = with_sign_of(bitcast(const(1, f.ints, x.lanes), x.dtype), y)
    moved = select(equal(x, 0.0), least, bitcast(step, x.dtype))
    return select(not_equal(x, x) | not_equal(y, y), x + y, select(equal(x, y), y, moved))


_infer_nextafter = nextafter.rules.infer


@nextafter.infer
def _(*types):
    out = _infer_nextafter(*types)
    if out.dtype.compute is not out.dtype:
        raise DTypeError(f"does not take {out.dtype}, whose values are computed in float32; help: cast to float32")
    return out


@nextafter.vjp
def _(g, x, y):
    """The result is x but for one unit in the last place; y decides its direction alone."""
    return (lambda: g), None


nextafter.reference(np.nextafter)
