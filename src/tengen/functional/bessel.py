"""Bessel functions of orders 0 and 1, modified ones, and Airy's function.

Numerics: I_0 and I_1 are sums of 33 exponentials below 30 (the trapezoidal rule, which converges exponentially for periodic integrands), and
asymptotic series above; in float64 within 1e-13 of the functions, relatively. The others are computed in float64 and rounded once. K_0 and
K_1 are within 7e-16 of mpmath's values from 1e-8 to 690, relatively. J, Y and Ai of negative numbers oscillate: their errors are given
beside the larger of the value and the amplitude, sqrt(2 / (pi x)) or |x|^(-1/4) / sqrt(pi). J and Y are within 4e-15 from 1e-8 to 1e6, Ai
within 1.1e-15 from -11 to 1.4, and within 4e-15 up to 8. Beyond, Ai is computed of z = 2/3 |x|^(3/2), and its error is at most 3e-16 z, as
that of rounding x is. All have gradients.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tengen import functional as F
from tengen.ops.calls import all_with_line
from tengen.tensor import Tensor

EULER = 0.57721566490153286061
_SWITCH, _POINTS = 30.0, 32  # from where on the series of I is used; parts of [0, pi]
_SERIES_FROM = 25.0  # where Hankel's expansion takes over
_TERMS = 20  # of the trapezoidal rule for K


def _like(values: Any, x: Tensor) -> Tensor:
    return Tensor(np.asarray(values), dtype=x.dtype)


def _bessel(x: Tensor, order: int) -> Tensor:
    """exp(-x) I_order(x) for x >= 0, of order 0 or 1: the mean of exp(x cos t), or of x exp(x cos t) sin(t)^2, over t in [0, pi]."""
    angles = np.arange(_POINTS + 1) * np.pi / _POINTS
    weights = np.sin(angles) ** (2 * order) / _POINTS
    weights[[0, -1]] /= 2
    small = F.where(x < _SWITCH, x, 1.0)
    below = F.matmul(F.exp(F.expand_dims(small, -1) * _like(np.cos(angles) - 1, x)), _like(weights, x))
    below = below * small if order else below
    large = F.where(x < _SWITCH, _SWITCH, x)
    term = total = 1.0
    for k in range(1, 24):
        term = term * (-(4 * order * order - (2 * k - 1) ** 2) / (8.0 * k)) / large
        total = total + term
    above = total / F.sqrt(2 * math.pi * large)
    return F.where(x < _SWITCH, below, F.where(F.isinf(x), 0.0, above))


def i0e(input: Tensor) -> Tensor:
    """exp(-|x|) I_0(x), of the modified Bessel function of the first kind."""
    return F.where(F.isnan(input), input, _bessel(F.abs(input), 0))


def i0(input: Tensor) -> Tensor:
    """The modified Bessel function of the first kind of order 0."""
    return i0e(input) * F.exp(F.abs(input))


def i1e(input: Tensor) -> Tensor:
    """exp(-|x|) I_1(x)."""
    size = F.where(input < 0, -input, input)  # which has a slope at 0, unlike |x|
    return F.where(F.isnan(input), input, F.where(input < 0, -1.0, 1.0) * _bessel(size, 1))


def i1(input: Tensor) -> Tensor:
    """The modified Bessel function of the first kind of order 1."""
    return i1e(input) * F.exp(F.abs(input))


def _in_float64(input: Tensor, f: Callable[[Tensor], Tensor]) -> Tensor:
    """f of the input in float64, rounded to the input's dtype once; NaN stays."""
    given = input if isinstance(input, Tensor) else Tensor(input, dtype="float32")
    given = given if given.dtype.is_float else given.astype("float32")
    x = given.astype("float64")
    return F.where(F.isnan(x), x, f(x)).astype(given.dtype)


def _sums(values: Tensor, weights: Any) -> Tensor:
    """Weighted sums over the last axis, whose elements are those of nodes."""
    return F.matmul(values, Tensor(np.asarray(weights), dtype=values.dtype))


def _nodes(x: Tensor, factors: Any) -> Tensor:
    """x times each factor, along a new last axis."""
    return F.expand_dims(x, -1) * Tensor(np.asarray(factors), dtype=x.dtype)


# ---- of the first and second kind --------------------------------------------------------------------------------------------------


def _expansion(x: Tensor, square: float) -> tuple[Tensor, Tensor]:
    """P and Q of Hankel's expansion for large x, by the square of the order n: with u = x - (2 n + 1) pi / 4, J_n(x) is sqrt(2 / (pi x))
    (P cos u - Q sin u), and Y_n(x) that of P sin u + Q cos u."""
    p: Any = 1.0
    q: Any = 0.0
    term: Any = 1.0
    for k in range(1, 24):
        term = term * ((4 * square - (2 * k - 1) ** 2) / (8.0 * k)) / x
        if k % 2 == 0:
            p = p + (-1) ** (k // 2) * term
        else:
            q = q + (-1) ** (k // 2) * term
    return p, q


def _far(x: Tensor, order: int) -> tuple[Tensor, Tensor]:
    """J and Y of order 0 or 1 from 25 on; 0 at infinity. cos and sin of x - pi / 4 are sums of those of x, whose argument is not rounded."""
    far = F.where(x < _SERIES_FROM, _SERIES_FROM, F.minimum(x, 1e300))
    p, q = _expansion(far, order)
    cos, sin = F.cos(far), F.sin(far)
    plus, minus = (cos + sin, sin - cos) if order == 0 else (sin - cos, -sin - cos)
    scale = F.where(F.isinf(x), 0.0, 1.0 / F.sqrt(math.pi * far))
    return scale * (p * plus - q * minus), scale * (p * minus + q * plus)


def _first_kind(x: Tensor, order: int) -> Tensor:
    """J_order(x) of float64 x >= 0: Bessel's integral by the trapezoidal rule below 25, Hankel's expansion above."""
    n = 64
    t = np.arange(n) * (2 * np.pi / n)
    angles = order * Tensor(t, dtype=x.dtype) - _nodes(F.where(x < _SERIES_FROM, x, 1.0), np.sin(t))
    return F.where(x < _SERIES_FROM, F.mean(F.cos(angles), -1), _far(x, order)[0])


def bessel_j0(input: Tensor) -> Tensor:
    """The Bessel function of the first kind of order 0.

    >>> f"{bessel_j0(Tensor([1.0])).item():.5f}"
    '0.76520'
    """
    return _in_float64(input, lambda x: _first_kind(F.abs(x), 0))


def bessel_j1(input: Tensor) -> Tensor:
    """The Bessel function of the first kind of order 1."""
    return _in_float64(input, lambda x: F.copysign(1.0, x) * _first_kind(F.abs(x), 1))


def _neumann() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of Bessel's integral over a quarter of the circle: the sines of its nodes, their weights, and the weights of Neumann's series
    -4 / pi (sum of (-1)^k J_2k(x) / k), whose terms are the same integral's with cos(2 k t). J_72(25) is below 1e-19."""
    parts, k = 40, np.arange(1, 37)
    t = np.arange(parts + 1) * (np.pi / 2 / parts)
    weights = np.full(parts + 1, 1 / parts)
    weights[[0, -1]] /= 2
    return np.sin(t), weights, weights * (-4 / np.pi) * ((-1.0) ** k * np.cos(2 * np.outer(t, k)) / k).sum(1)


def _second_kind(x: Tensor, order: int) -> Tensor:
    """Y_order(x) of float64 x > 0, of order 0 or 1: below 25 Y_0 = 2 / pi (log(x / 2) + gamma) J_0 + Neumann's series, and Y_1 = -Y_0';
    Hankel's expansion above."""
    sines, weights, series = _neumann()
    near = F.where(x < _SERIES_FROM, x, 1.0)
    angles = _nodes(near, sines)
    cos, logs = F.cos(angles), 2 / math.pi * (F.log(near * 0.5) + EULER)
    if order == 0:
        below = logs * _sums(cos, weights) + _sums(cos, series)
    else:
        sin = F.sin(angles)
        below = logs * _sums(sin, sines * weights) + _sums(sin, sines * series) - 2 / math.pi / near * _sums(cos, weights)
    return F.where(x < _SERIES_FROM, below, _far(x, order)[1])


def _of_positive(input: Tensor, f: Callable[[Tensor], Tensor], at_0: float = math.inf) -> Tensor:
    """f in float64, rounded to the input's dtype; infinite at 0, NaN below."""
    edge = lambda x: F.where(F.equal(x, 0.0), at_0, math.nan)
    return _in_float64(input, lambda x: F.where(x > 0.0, f(F.where(x > 0.0, x, 1.0)), edge(x)))


def bessel_y0(input: Tensor) -> Tensor:
    """The Bessel function of the second kind of order 0: -inf at 0, NaN of negative numbers, 0 at infinity.

    >>> f"{bessel_y0(Tensor([1.0])).item():.5f}"
    '0.08826'
    """
    return _of_positive(input, lambda x: _second_kind(x, 0), -math.inf)


def bessel_y1(input: Tensor) -> Tensor:
    """The Bessel function of the second kind of order 1: -inf at 0, NaN of negative numbers, 0 at infinity.

    >>> f"{bessel_y1(Tensor([1.0])).item():.5f}"
    '-0.78121'
    """
    return _of_positive(input, lambda x: _second_kind(x, 1), -math.inf)


# ---- modified ones of the second kind ------------------------------------------------------------------------------------------------


def _integral(x: Tensor, order: float) -> Tensor:
    """exp(x) K_order(x) of float64 x >= 1, of order 0 to 1: the integral of exp(-x (cosh t - 1)) cosh(order t) over t >= 0 by the trapezoidal
    rule, whose error falls as exp(-2 pi d / h) with d, the width of the strip where the integrand is small: a step of 0.68 / sqrt(x + 6.4)
    leaves 1e-17. All terms are positive."""
    step = 0.68 / F.sqrt(x + 6.4)
    total: Any = 0.5
    for k in range(1, _TERMS + 1):
        t = step * k
        half = F.sinh(t * 0.5)
        term = F.exp(-2.0 * x * half * half)
        total = total + (term * F.cosh(t * order) if order else term)
    return total * step


def _decaying(x: Tensor, order: int) -> Tensor:
    """exp(x) K_order(x) of float64 x > 0, of order 0 or 1: the integral from 1 on, below K_0's power series, and K_1 from the Wronskian
    I_0 K_1 + I_1 K_0 = 1 / x."""
    above = F.where(F.isinf(x), 0.0, _integral(F.where(x < 1.0, 1.0, F.minimum(x, 1e300)), order))
    small = F.where(x < 1.0, x, 0.5)
    quarter, term, harmonic = small * small * 0.25, F.ones_like(x), 0.0
    series: Any = F.zeros_like(x)
    for k in range(1, 12):
        term, harmonic = term * quarter / (k * k), harmonic + 1.0 / k
        series = series + term * harmonic
    below = series - (F.log(small * 0.5) + EULER) * i0(small)
    if order:
        below = (1.0 / small - i1(small) * below) / i0(small)
    return F.where(x < 1.0, below * F.exp(small), above)


def scaled_modified_bessel_k0(input: Tensor) -> Tensor:
    """exp(x) K_0(x), of the modified Bessel function of the second kind."""
    return _of_positive(input, lambda x: _decaying(x, 0))


def scaled_modified_bessel_k1(input: Tensor) -> Tensor:
    """exp(x) K_1(x)."""
    return _of_positive(input, lambda x: _decaying(x, 1))


def modified_bessel_k0(input: Tensor) -> Tensor:
    """The modified Bessel function of the second kind of order 0: inf at 0, NaN of negative numbers.

    >>> f"{modified_bessel_k0(Tensor([1.0])).item():.5f}"
    '0.42102'
    """
    return _of_positive(input, lambda x: _decaying(x, 0) * F.exp(-x))


def modified_bessel_k1(input: Tensor) -> Tensor:
    """The modified Bessel function of the second kind of order 1."""
    return _of_positive(input, lambda x: _decaying(x, 1) * F.exp(-x))


# ---- spherical ones ---------------------------------------------------------------------------------------------------------------


def spherical_bessel_j0(input: Tensor) -> Tensor:
    """sin(x) / x, which is 1 at 0."""
    x = input if input.dtype.is_float else input.astype("float32")
    near = abs(x) < 0.5
    square = F.where(near, x, 0.0) ** 2
    series: Any = F.zeros_like(x)
    for k in range(7, 0, -1):  # for its gradient, where the quotient's would cancel
        series = (1.0 + series) * square * (-1.0 / (2 * k * (2 * k + 1)))
    far = F.where(near, 1.0, x)
    return F.where(near, 1.0 + series, F.where(F.isinf(x), 0.0, F.sin(F.where(F.isinf(x), 1.0, far)) / far))


# ---- Airy's function -------------------------------------------------------------------------------------------------------------------


def _between(x: Tensor) -> Tensor:
    """Ai(x) of float64 x from -11.3 to 1.5: the integral of exp(i (w^3 / 3 + x w)) / (2 pi) along w = u + i h(u), by the trapezoidal rule.
    h has the sign of u^2 + x, with which the integrand's magnitude is at most 1 and falls on both sides of the saddle points."""
    parts, step = 48, 0.125
    u = np.arange(parts + 1) * step
    weights = np.full(parts + 1, step / math.pi)
    weights[0] /= 2
    distance = 1.0 / np.sqrt(u * u + 6.0)
    slope = F.expand_dims(x, -1) + Tensor(u * u, dtype=x.dtype)
    h = slope * Tensor(0.5 * distance, dtype=x.dtype)
    turned = Tensor(u * distance, dtype=x.dtype) - h * Tensor(u * distance**2, dtype=x.dtype)  # h'
    angle = Tensor(u, dtype=x.dtype) * (slope - Tensor(u * u * 2 / 3, dtype=x.dtype) - h * h)
    return _sums(F.exp(h * (h * h * (1 / 3) - slope)) * (F.cos(angle) - turned * F.sin(angle)), weights)


def airy_ai(input: Tensor) -> Tensor:
    """Airy's function Ai, of real numbers: 0 at both infinities.

    >>> f"{airy_ai(Tensor([1.0])).item():.5f}"
    '0.13529'
    """
    return _in_float64(input, _airy)


def _airy(x: Tensor) -> Tensor:
    """Ai in float64: by K_(1/3) above 1.4, by the expansion of Bessel functions of order 1/3 below -11, and between them by an integral."""
    right, left = x > 1.4, x < -11.0
    zeta = lambda v: 2 / 3 * v * F.sqrt(v)
    above = F.where(right, F.minimum(x, 200.0), 1.4)  # e^-zeta is 0 from 107 on
    falling = F.sqrt(above / 3.0) / math.pi * _integral(zeta(above), 1 / 3) * F.exp(-zeta(above))
    below = F.where(left, F.minimum(-x, 1e150), 11.0)
    p, q = _expansion(zeta(below), 1 / 9)
    cos, sin = F.cos(zeta(below)), F.sin(zeta(below))
    waves = (p * (cos + sin) - q * (sin - cos)) / F.sqrt(2 * math.pi * F.sqrt(below))
    found = F.where(right, falling, F.where(left, waves, _between(F.where(F.logical_or(right, left), 0.0, x))))
    return F.where(F.isinf(x), 0.0, found)


__all__ = [
    "airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "modified_bessel_k0", "modified_bessel_k1", "scaled_modified_bessel_k0",
    "scaled_modified_bessel_k1", "spherical_bessel_j0",
]  # fmt: skip
all_with_line(globals(), __all__)
