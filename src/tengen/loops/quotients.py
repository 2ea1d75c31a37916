"""Quotients that are rounded to integers, by a divisor that is known: a product and an fma in place of a division.

    x / divisor   ->   fma(x, high, x * low)        # high + low is 1 / divisor, to about 48 bits

Both round to the same integer wherever they differ by an ULP at most and no half-integer lies between them. For which divisors none does is
found out when a kernel is written, by trying every number near the half-integers; for others there is a division.
"""

from __future__ import annotations

import functools

import numpy as np

from tengen.base.dtype import float32
from tengen.loops.exact import fma32
from tengen.loops.lang import Expr, const, fma

LEAST_DIVISOR, MOST_DIVISOR = 2.0**-100, 2.0**100  # between them no number near a half-integer over- or underflows
NEAR_ULPS = 8  # numbers on each side of divisor * half-integer that are tried; either quotient is off by less than two


@functools.lru_cache(1 << 12)
def reciprocal(divisor: float, most: int) -> tuple[float, float] | None:
    """(high, low) of which fma(x, high, x * low) and x / divisor, rounded to float32, are rounded to the same integer for each float32 x,
    NaN and infinities too, or to two that are both larger than `most` (or both smaller than -most); None where there are no such numbers.

    >>> reciprocal(0.25, 127)
    (4.0, 0.0)
    """
    d = np.float32(divisor)
    if not LEAST_DIVISOR <= d <= MOST_DIVISOR:
        return None
    inverse = 1 / np.float64(d)
    high = np.float32(inverse)
    if high > inverse:  # low is not negative, so that what overflows in both products has one sign
        high = np.nextafter(high, np.float32(0))
    low = np.float32(inverse - high)
    halves = np.arange(most + 1, dtype=np.float64) + 0.5  # below 0 it is the same
    near = (halves * d).astype(np.float32).view(np.int32)[:, None] + np.arange(-NEAR_ULPS, NEAR_ULPS + 1, dtype=np.int32)
    x = near.view(np.float32)
    same = np.rint(x / d) == np.rint(fma32(x, high, x * low))
    return (float(high), float(low)) if same.all() else None


def quotient(x: Expr, divisor: Expr, most: int) -> Expr:
    """x / divisor, to be rounded to an integer: what has the same one as the quotient in float32 has, in -most..most, and lies on the same
    side where that is outside."""
    number = divisor.args[0] if divisor.op == "splat" else divisor
    found = reciprocal(number.attr, most) if number.op == "const" and x.dtype is float32 else None
    if found is None:
        return x / divisor
    high, low = (const(v, float32, x.lanes) for v in found)
    return fma(x, high, x * low) if found[1] else x * high  # infinities times 0 were NaN
