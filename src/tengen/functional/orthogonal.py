"""Orthogonal polynomials, with the names of `torch.special`.

The degree n is an int, or a tensor of degrees; of a tensor the largest is read, so that a trace does not hold it.

Numerics: they come from their recurrences in x's dtype, whose error grows with n: below 4 (n + 1) eps of the largest value on [-1, 1]
(Chebyshev, Legendre), and of the sum of the terms' magnitudes elsewhere. All have gradients by x, which PyTorch's have not.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from tengen import functional as F
from tengen.base.errors import ArgumentError
from tengen.ops.calls import all_with_line
from tengen.tensor import Tensor

MOST = 1000  # degrees of a tensor of them: all below are computed


def _degree(name: str, n: Any) -> int:
    try:
        return operator.index(n)
    except TypeError:
        raise ArgumentError(f"{name}: n is an int or a tensor, got {type(n).__name__}") from None


_Following = Callable[[Tensor, int, Tensor, Tensor], Tensor]


def _recurred(name: str, x: Tensor, n: Any, first: Callable[[Tensor], Tensor], following: _Following) -> Tensor:
    """Degree n from degrees 0, which is 1, and 1; zeros for a negative one, as in PyTorch. following(x, k, of k, of k - 1) is degree k + 1.
    n: an int, or a tensor of degrees that broadcasts with x, whose largest decides how many are computed."""
    x = x if x.dtype.is_float else x.astype("float32")
    if isinstance(n, Tensor):
        x, n = F.broadcast_tensors(x, n.astype("int64"))
    most = _degree(name, n) if not isinstance(n, Tensor) else int(F.max(n).item()) if n.size else -1
    if isinstance(n, Tensor) and most > MOST:
        raise ArgumentError(f"{name}: a degree is {most}, and a tensor's are at most {MOST}; help: an int n for one degree")
    before, now = F.zeros_like(x), F.ones_like(x)
    found = F.where(F.equal(n, 0), now, before) if isinstance(n, Tensor) else before if most < 0 else now
    for k in range(most):
        before, now = now, following(x, k, now, before) if k else first(x)
        found = F.where(F.equal(n, k + 1), now, found) if isinstance(n, Tensor) else now
    return found


def _chebyshev(x: Tensor, k: int, now: Tensor, before: Tensor) -> Tensor:
    return 2.0 * x * now - before


def chebyshev_polynomial_t(input: Tensor, n: int | Tensor) -> Tensor:
    """Chebyshev's polynomial of the first kind: T_n(cos t) = cos(n t).

    >>> chebyshev_polynomial_t(Tensor([0.5]), 3).tolist()
    [-1.0]
    """
    return _recurred("chebyshev_polynomial_t", input, n, lambda x: x, _chebyshev)


def chebyshev_polynomial_u(input: Tensor, n: int | Tensor) -> Tensor:
    """Chebyshev's polynomial of the second kind: U_n(cos t) = sin((n + 1) t) / sin(t)."""
    return _recurred("chebyshev_polynomial_u", input, n, lambda x: 2.0 * x, _chebyshev)


def chebyshev_polynomial_v(input: Tensor, n: int | Tensor) -> Tensor:
    """Chebyshev's polynomial of the third kind: V_n(cos t) = cos((n + 1/2) t) / cos(t / 2)."""
    return _recurred("chebyshev_polynomial_v", input, n, lambda x: 2.0 * x - 1.0, _chebyshev)


def chebyshev_polynomial_w(input: Tensor, n: int | Tensor) -> Tensor:
    """Chebyshev's polynomial of the fourth kind: W_n(cos t) = sin((n + 1/2) t) / sin(t / 2)."""
    return _recurred("chebyshev_polynomial_w", input, n, lambda x: 2.0 * x + 1.0, _chebyshev)


def shifted_chebyshev_polynomial_t(input: Tensor, n: int | Tensor) -> Tensor:
    """T_n(2 x - 1)."""
    return chebyshev_polynomial_t(input * 2.0 - 1.0, n)


def shifted_chebyshev_polynomial_u(input: Tensor, n: int | Tensor) -> Tensor:
    """U_n(2 x - 1)."""
    return chebyshev_polynomial_u(input * 2.0 - 1.0, n)


def shifted_chebyshev_polynomial_v(input: Tensor, n: int | Tensor) -> Tensor:
    """V_n(2 x - 1)."""
    return chebyshev_polynomial_v(input * 2.0 - 1.0, n)


def shifted_chebyshev_polynomial_w(input: Tensor, n: int | Tensor) -> Tensor:
    """W_n(2 x - 1)."""
    return chebyshev_polynomial_w(input * 2.0 - 1.0, n)


def hermite_polynomial_h(input: Tensor, n: int | Tensor) -> Tensor:
    """The physicists' Hermite polynomial H_n, orthogonal under e^(-x^2)."""
    return _recurred("hermite_polynomial_h", input, n, lambda x: 2.0 * x, lambda x, k, now, before: 2.0 * x * now - 2.0 * k * before)


def hermite_polynomial_he(input: Tensor, n: int | Tensor) -> Tensor:
    """The probabilists' Hermite polynomial He_n, orthogonal under e^(-x^2 / 2)."""
    return _recurred("hermite_polynomial_he", input, n, lambda x: x, lambda x, k, now, before: x * now - float(k) * before)


def laguerre_polynomial_l(input: Tensor, n: int | Tensor) -> Tensor:
    """Laguerre's polynomial L_n, orthogonal under e^-x on x >= 0."""
    following = lambda x, k, now, before: ((2 * k + 1 - x) * now - float(k) * before) / (k + 1)
    return _recurred("laguerre_polynomial_l", input, n, lambda x: 1.0 - x, following)


def legendre_polynomial_p(input: Tensor, n: int | Tensor) -> Tensor:
    """Legendre's polynomial P_n, orthogonal on [-1, 1]."""
    following = lambda x, k, now, before: ((2 * k + 1) * x * now - float(k) * before) / (k + 1)
    return _recurred("legendre_polynomial_p", input, n, lambda x: x, following)


__all__ = [
    "chebyshev_polynomial_t", "chebyshev_polynomial_u", "chebyshev_polynomial_v", "chebyshev_polynomial_w", "hermite_polynomial_h",
    "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p", "shifted_chebyshev_polynomial_t",
    "shifted_chebyshev_polynomial_u", "shifted_chebyshev_polynomial_v", "shifted_chebyshev_polynomial_w",
]  # fmt: skip
all_with_line(globals(), __all__)
