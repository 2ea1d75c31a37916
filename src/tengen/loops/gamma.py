"""Bodies of lgamma and digamma, and the derivative of digamma.

In and out: expressions of float32 or float64, with one lane or sixteen; those of float32 are computed in float64 and rounded
once. Between 1.5 and 2.5 a polynomial is taken, which the recurrences reach from everywhere below 8; beyond, Stirling's series
(M. Abramowitz and I. Stegun, "Handbook of mathematical functions", 6.1 to 6.4). Below -1/2 the reflection formulas hold, whose
terms cancel near the zeros there.
"""

from __future__ import annotations

import math

from tengen.base.dtype import float64
from tengen.loops.exponential import clamp, log
from tengen.loops.floats import polynomial, widened
from tengen.loops.lang import Expr, call, const, equal, maximum, select, unary

INF, NAN, PI = math.inf, math.nan, math.pi
EDGE = 8.0  # Stirling's series from here on
STIRLING = 0.5 * math.log(2 * PI) - 0.5


def _real(value: float) -> Expr:
    return const(value, float64)


def _lowered(u: Expr) -> tuple[Expr, Expr, Expr, Expr, list[tuple[Expr, Expr]]]:
    """Of u > -1/2, up to 8: whether it is below 1.5, and below 0.5; u itself; the number of [1.5, 2.5] at a whole distance, and on
    the way down to it for each step whether it was taken and where it led."""
    s = clamp(u, -0.5, EDGE)
    below, low = s < 1.5, s < 0.5
    z = select(below, s + select(low, _real(2.0), _real(1.0)), s)
    steps = []
    for _ in range(6):
        taken, down = z > 2.5, z - 1.0
        steps.append((taken, down))
        z = select(taken, down, z)
    return below, low, s, z, steps


def _reflected(x: Expr, table: str) -> tuple[Expr, Expr, Expr, Expr, Expr]:
    """(whether x < -1/2, then -x, else x, the distance r of that from a whole number, sin(pi r), cos(pi r))."""
    left = x < -0.5
    u = select(left, -x, x)
    r = u - unary("rint", u)
    return left, u, r, r * polynomial("sinpi", r * r, table), polynomial("cospi", r * r, table)


def _tail(name: str, u: Expr, table: str) -> tuple[Expr, Expr, Expr]:
    """u where it is 8 or more, 1 / u^2, and the polynomial of the series' rest there."""
    y = maximum(u, EDGE)
    w = 1.0 / (y * y)
    return y, w, polynomial(name, w, table)


@widened
def lgamma(x: Expr, table: str) -> Expr:
    """log|gamma(x)|."""
    left, u, _, sine, _ = _reflected(x, table)
    below, low, s, z, steps = _lowered(u)
    product = select(below, abs(select(low, s * (s + 1.0), s)), _real(1.0))
    for taken, down in steps:
        product = select(taken, product * down, product)
    t, far = z - 2.0, u >= EDGE
    logarithm = log(select(far, u, product))
    near = t * polynomial("lgamma", t, table) + select(below, -logarithm, logarithm)
    y, _, rest = _tail("lgamma_tail", u, table)
    stirling = (y - 0.5) * (logarithm - 1.0) + (rest / y + STIRLING)
    right = select(far, stirling, near)
    pole = equal(sine, 0.0) | equal(x, -INF)
    return select(left, select(pole, _real(INF), -log(abs(u * sine) * (1 / PI)) - right), right)


@widened
def digamma(x: Expr, table: str) -> Expr:
    """The derivative of lgamma."""
    left, u, r, sine, cosine = _reflected(x, table)
    below, low, s, z, steps = _lowered(u)
    shift = _real(0.0)
    for i, (taken, down) in enumerate(steps):
        part = select(taken, down, _real(INF))
        if i < 2:
            part = select(low if i else below, -(s + 1.0) if i else -s, part)
        shift = shift + 1.0 / part
    near = polynomial("digamma", z - 2.0, table) + shift
    y, w, rest = _tail("digamma_tail", u, table)
    right = select(u >= EDGE, log(y) - (0.5 / y + w * rest), near)
    reflected = select(equal(r, 0.0), _real(NAN), right + (1.0 / u + cosine / sine * PI))
    return select(left, reflected, right)


BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730)  # of the series of trigamma
SHIFT = 12


def trigamma(x: Expr) -> Expr:
    """The derivative of digamma, in plain operations, which can be differentiated further."""
    left = x < 0.0
    u = select(left, 1.0 - x, x)
    total = 1.0 / (u * u)
    for k in range(1, SHIFT):
        total = total + 1.0 / ((u + float(k)) * (u + float(k)))
    v = 1.0 / (u + float(SHIFT))
    w = v * v
    series = w * 0.0
    for b in reversed(BERNOULLI):
        series = series * w + b
    right = total + (v + w * 0.5 + v * w * series)
    sine = call("sin", (x - unary("rint", x)) * PI)
    return select(left, PI * PI / (sine * sine) - right, right)
