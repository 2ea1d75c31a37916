"""Functions of `torch.special` that few programs use: orthogonal polynomials, modified Bessel functions of the second kind,
`spherical_bessel_j0`.

Numerics: polynomials come from their recurrences in x's dtype, whose error grows with n: below 4 (n + 1) eps of the largest value on [-1, 1]
(Chebyshev, Legendre), and of the sum of the terms' magnitudes elsewhere. K_0 and K_1 are computed in float64, within 6e-16 of mpmath
from 1e-8 to 690, and rounded once. All have gradients by x, which PyTorch's have not.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from tengen import functional as F
from tengen.base.errors import ArgumentError
from tengen.functional import bessel
from tengen.ops.calls import all_with_line
from tengen.tensor import Tensor

# ---- orthogonal polynomials ------------------------------------------------------------------------------------------------------


def _degree(name: str, n: Any) -> int:
    try:
        return operator.index(n)
    except TypeError:
        raise ArgumentError(f"{name}: n must be an int, got {type(n).__name__}; help: one call for each degree") from None


_Following = Callable[[Tensor, int, Tensor, Tensor], Tensor]


def _recurred(name: str, x: Tensor, n: Any, first: Callable[[Tensor], Tensor], following: _Following) -> Tensor:
    """Degree n from degrees 0, which is 1, and 1; zeros for a negative one, as in PyTorch. following(x, k, of k, of k - 1) is degree k + 1."""
    x, n = x if x.dtype.is_float else x.astype("float32"), _degree(name, n)
    before, now = F.zeros_like(x), F.ones_like(x) if n >= 0 else F.zeros_like(x)
    for k in range(n):
        before, now = now, following(x, k, now, before) if k else first(x)
    return now


def _chebyshev(x: Tensor, k: int, now: Tensor, before: Tensor) -> Tensor:
    return 2.0 * x * now - before


def chebyshev_polynomial_t(input: Tensor, n: int) -> Tensor:
    """Chebyshev's polynomial of the first kind: T_n(cos t) = cos(n t).

    >>> chebyshev_polynomial_t(Tensor([0.5]), 3).tolist()
    [-1.0]
    """
    return _recurred("chebyshev_polynomial_t", input, n, lambda x: x, _chebyshev)


def chebyshev_polynomial_u(input: Tensor, n: int) -> Tensor:
    """Chebyshev's polynomial of the second kind: U_n(cos t) = sin((n + 1) t) / sin(t)."""
    return _recurred("chebyshev_polynomial_u", input, n, lambda x: 2.0 * x, _chebyshev)


def chebyshev_polynomial_v(input: Tensor, n: int) -> Tensor:
    """Chebyshev's polynomial of the third kind: V_n(cos t) = cos((n + 1/2) t) / cos(t / 2)."""
    return _recurred("chebyshev_polynomial_v", input, n, lambda x: 2.0 * x - 1.0, _chebyshev)


def chebyshev_polynomial_w(input: Tensor, n: int) -> Tensor:
    """Chebyshev's polynomial of the fourth kind: W_n(cos t) = sin((n + 1/2) t) / sin(t / 2)."""
    return _recurred("chebyshev_polynomial_w", input, n, lambda x: 2.0 * x + 1.0, _chebyshev)


def shifted_chebyshev_polynomial_t(input: Tensor, n: int) -> Tensor:
    """T_n(2 x - 1)."""
    return chebyshev_polynomial_t(input * 2.0 - 1.0, n)


def shifted_chebyshev_polynomial_u(input: Tensor, n: int) -> Tensor:
    """U_n(2 x - 1)."""
    return chebyshev_polynomial_u(input * 2.0 - 1.0, n)


def shifted_chebyshev_polynomial_v(input: Tensor, n: int) -> Tensor:
    """V_n(2 x - 1)."""
    return chebyshev_polynomial_v(input * 2.0 - 1.0, n)


def shifted_chebyshev_polynomial_w(input: Tensor, n: int) -> Tensor:
    """W_n(2 x - 1)."""
    return chebyshev_polynomial_w(input * 2.0 - 1.0, n)


def hermite_polynomial_h(input: Tensor, n: int) -> Tensor:
    """The physicists' Hermite polynomial H_n, orthogonal under e^(-x^2)."""
    return _recurred("hermite_polynomial_h", input, n, lambda x: 2.0 * x, lambda x, k, now, before: 2.0 * x * now - 2.0 * k * before)


def hermite_polynomial_he(input: Tensor, n: int) -> Tensor:
    """The probabilists' Hermite polynomial He_n, orthogonal under e^(-x^2 / 2)."""
    return _recurred("hermite_polynomial_he", input, n, lambda x: x, lambda x, k, now, before: x * now - float(k) * before)


def laguerre_polynomial_l(input: Tensor, n: int) -> Tensor:
    """Laguerre's polynomial L_n, orthogonal under e^-x on x >= 0."""
    following = lambda x, k, now, before: ((2 * k + 1 - x) * now - float(k) * before) / (k + 1)
    return _recurred("laguerre_polynomial_l", input, n, lambda x: 1.0 - x, following)


def legendre_polynomial_p(input: Tensor, n: int) -> Tensor:
    """Legendre's polynomial P_n, orthogonal on [-1, 1]."""
    following = lambda x, k, now, before: ((2 * k + 1) * x * now - float(k) * before) / (k + 1)
    return _recurred("legendre_polynomial_p", input, n, lambda x: x, following)


# ---- Bessel functions --------------------------------------------------------------------------------------------------------------

_TERMS = 20  # of the trapezoidal rule, and of the power series at most


def _second_kind(x: Tensor, order: int) -> Tensor:
    """exp(x) K_order(x) of float64 x > 0, of order 0 or 1.

    From 1 on the integral of exp(-x (cosh t - 1)) cosh(order t) over t >= 0 by the trapezoidal rule, whose error falls as exp(-2 pi d / h) with
    d, the width of the strip where the integrand is small: a step of 0.68 / sqrt(x + 6.4) leaves 1e-17. All terms are positive. Below 1 K_0's
    power series, and K_1 from the Wronskian I_0 K_1 + I_1 K_0 = 1 / x.
    """
    large = F.where(x < 1.0, 1.0, F.minimum(x, 1e300))
    step = 0.68 / F.sqrt(large + 6.4)
    total: Any = 0.5
    for k in range(1, _TERMS + 1):
        t = step * k
        half = F.sinh(t * 0.5)
        term = F.exp(-2.0 * large * half * half)
        total = total + (term * F.cosh(t) if order else term)
    above = F.where(F.isinf(x), 0.0, total * step)
    small = F.where(x < 1.0, x, 0.5)
    quarter, term, harmonic = small * small * 0.25, F.ones_like(x), 0.0
    series: Any = F.zeros_like(x)
    for k in range(1, 12):
        term, harmonic = term * quarter / (k * k), harmonic + 1.0 / k
        series = series + term * harmonic
    below = series - (F.log(small * 0.5) + 0.57721566490153286061) * bessel.i0(small)
    if order:
        below = (1.0 / small - bessel.i1(small) * below) / bessel.i0(small)
    return F.where(x < 1.0, below * F.exp(small), above)


def _of_positive(input: Tensor, f: Callable[[Tensor], Tensor]) -> Tensor:
    """f in float64, rounded to the input's dtype; inf at 0, NaN below."""
    given = input if input.dtype.is_float else input.astype("float32")
    x = given.astype("float64")
    y = F.where(x > 0.0, f(F.where(x > 0.0, x, 1.0)), F.where(F.equal(x, 0.0), math.inf, math.nan))
    return y.astype(given.dtype)


def scaled_modified_bessel_k0(input: Tensor) -> Tensor:
    """exp(x) K_0(x), of the modified Bessel function of the second kind."""
    return _of_positive(input, lambda x: _second_kind(x, 0))


def scaled_modified_bessel_k1(input: Tensor) -> Tensor:
    """exp(x) K_1(x)."""
    return _of_positive(input, lambda x: _second_kind(x, 1))


def modified_bessel_k0(input: Tensor) -> Tensor:
    """The modified Bessel function of the second kind of order 0: inf at 0, NaN of negative numbers.

    >>> f"{modified_bessel_k0(Tensor([1.0])).item():.5f}"
    '0.42102'
    """
    return _of_positive(input, lambda x: _second_kind(x, 0) * F.exp(-x))


def modified_bessel_k1(input: Tensor) -> Tensor:
    """The modified Bessel function of the second kind of order 1."""
    return _of_positive(input, lambda x: _second_kind(x, 1) * F.exp(-x))


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


__all__ = [
    "chebyshev_polynomial_t", "chebyshev_polynomial_u", "chebyshev_polynomial_v", "chebyshev_polynomial_w", "hermite_polynomial_h",
    "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p", "modified_bessel_k0", "modified_bessel_k1",
    "scaled_modified_bessel_k0", "scaled_modified_bessel_k1", "shifted_chebyshev_polynomial_t", "shifted_chebyshev_polynomial_u",
    "shifted_chebyshev_polynomial_v", "shifted_chebyshev_polynomial_w", "spherical_bessel_j0",
]  # fmt: skip
all_with_line(globals(), __all__)
