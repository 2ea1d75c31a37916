"""Orthogonal polynomials of `torch.special`.

Numerics: they come from their recurrences in x's dtype, whose error grows with n: below 4 (n + 1) eps of the largest value on [-1, 1]
(Chebyshev, Legendre), and of the sum of the terms' magnitudes elsewhere. All have gradients by x, which PyTorch's have not.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from tengen import functional as F
from tengen.base.errors import ArgumentError
from tengen.pytorch.functions import in_words
from tengen.tensor import Tensor


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


__all__ = [
    "chebyshev_polynomial_t", "chebyshev_polynomial_u", "chebyshev_polynomial_v", "chebyshev_polynomial_w", "hermite_polynomial_h",
    "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p", "shifted_chebyshev_polynomial_t",
    "shifted_chebyshev_polynomial_u", "shifted_chebyshev_polynomial_v", "shifted_chebyshev_polynomial_w",
]  # fmt: skip
in_words(globals(), __all__)
