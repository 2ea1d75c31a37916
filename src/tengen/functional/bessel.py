"""The modified Bessel functions of the first kind of orders 0 and 1.

Numerics: sums of 33 exponentials below 30 (the trapezoidal rule, which converges exponentially for periodic integrands), and asymptotic series
above; in float64 within 1e-13 of the functions, relatively.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tengen import functional as F
from tengen.tensor import Tensor

_SWITCH, _POINTS = 30.0, 32  # from where on the series is used; parts of [0, pi]


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
