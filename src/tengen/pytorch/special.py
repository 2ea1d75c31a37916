"""`torch.special`: functions of probability and physics. Those that Tengen's `functional` has are its own; the others are made of them.

Numerics: the modified Bessel functions are sums of 33 exponentials (the trapezoidal rule, which converges exponentially for periodic
integrands) below 30, and asymptotic series above; zeta is Euler's and Maclaurin's sum of ten terms and twelve corrections. In float64 all are
within 1e-13 of the functions, relatively, where tests look; in float32 they are computed in float32.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

from tengen import functional as F
from tengen.base.errors import ArgumentError
from tengen.base.lazy import NoSuchName
from tengen.functional import digamma, erf, erfc, exp2, expm1, log1p, logit, sinc
from tengen.functional import lgamma as gammaln
from tengen.functional import sigmoid as expit
from tengen.pytorch.functions.elementwise import log_softmax, round, softmax, xlogy
from tengen.pytorch.functions.reductions import logsumexp
from tengen.tensor import Tensor

psi = digamma
_SWITCH, _POINTS = 30.0, 32  # from where on the series is used; parts of [0, pi]
_BERNOULLI = (
    1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330, 854513 / 138, -236364091 / 2730,
)  # fmt: skip


def _float(x: Any) -> Tensor:
    t = x if isinstance(x, Tensor) else Tensor(x, dtype="float32")
    return t if t.dtype.is_inexact else t.astype("float32")


def entr(input: Tensor) -> Tensor:
    """-x log(x); 0 at 0, -inf below.

    >>> entr(Tensor([0.0, 1.0, -1.0])).tolist()
    [0.0, -0.0, -inf]
    """
    x = _float(input)
    inside = -x * F.log(F.where(x > 0, x, 1.0))
    return F.where(x > 0, inside, F.where(F.equal(x, 0), 0.0, F.where(x < 0, -math.inf, x)))


def xlog1py(input: Any, other: Any) -> Tensor:
    """x log(1 + y); 0 where x is 0 and y no NaN."""
    x, y = _float(input), _float(other)
    nothing = F.logical_and(F.equal(x, 0), F.logical_not(F.isnan(y)))
    return F.where(nothing, 0.0, x * F.log1p(F.where(nothing, 0.0, y)))


def ndtr(input: Tensor) -> Tensor:
    """The cumulative function of the normal distribution."""
    return 0.5 * F.erfc(_float(input) * -math.sqrt(0.5))


def multigammaln(input: Tensor, p: int) -> Tensor:
    """The logarithm of the multivariate gamma function of dimension p."""
    x = _float(input)
    total = gammaln(x)
    for i in range(1, p):
        total = total + gammaln(x - 0.5 * i)
    return total + 0.25 * p * (p - 1) * math.log(math.pi)


def zeta(input: Any, other: Any) -> Tensor:
    """Hurwitz's zeta function: the sum of (q + k)^-s over k = 0, 1, ..., for s > 1 and q > 0; inf at s = 1, NaN elsewhere.

    Args: input: s. other: q.
    """
    s, q = _float(input), _float(other)
    total, n = F.pow(q, -s), 10
    for k in range(1, n):
        total = total + F.pow(q + k, -s)
    a = q + n
    power = F.pow(a, -s)
    total = total + power * a / (s - 1.0) + 0.5 * power
    factor = power * s / a
    for i, b in enumerate(_BERNOULLI, 1):
        total = total + factor * (b / math.factorial(2 * i))
        factor = factor * (s + (2 * i - 1)) * (s + 2 * i) / (a * a)
    return F.where(F.logical_and(s > 1, q > 0), total, F.where(F.logical_and(F.equal(s, 1), q > 0), math.inf, math.nan))


def polygamma(n: int, input: Tensor) -> Tensor:
    """The n-th derivative of digamma, for x > 0.

    Errors: ArgumentError for n below 0
    """
    if n < 0:
        raise ArgumentError(f"polygamma: n={n} must not be negative")
    x = _float(input)
    return digamma(x) if n == 0 else (-1) ** (n + 1) * math.factorial(n) * zeta(Tensor(float(n + 1), dtype=x.dtype), x)


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
    x = _float(input)
    return F.where(F.isnan(x), x, _bessel(F.abs(x), 0))


def i0(input: Tensor) -> Tensor:
    """The modified Bessel function of the first kind of order 0."""
    return i0e(input) * F.exp(F.abs(_float(input)))


def i1e(input: Tensor) -> Tensor:
    """exp(-|x|) I_1(x)."""
    x = _float(input)
    return F.where(F.isnan(x), x, F.where(x < 0, -1.0, 1.0) * _bessel(F.abs(x), 1))


def i1(input: Tensor) -> Tensor:
    """The modified Bessel function of the first kind of order 1."""
    return i1e(input) * F.exp(F.abs(_float(input)))


def __getattr__(name: str) -> Any:
    raise NoSuchName("tengen.pytorch.special", name, lambda: dir(sys.modules[__name__]))


__all__ = [
    "digamma", "entr", "erf", "erfc", "exp2", "expit", "expm1", "gammaln", "i0", "i0e", "i1", "i1e", "log1p", "log_softmax", "logit",
    "logsumexp", "multigammaln", "ndtr", "polygamma", "psi", "round", "sinc", "softmax", "xlog1py", "xlogy", "zeta",
]  # fmt: skip
