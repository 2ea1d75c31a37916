"""Functions of probability and physics: the zeta and polygamma functions, the normal distribution's, the incomplete gamma functions.

Numerics: zeta is Euler's and Maclaurin's sum of twenty terms and twelve corrections. In float64 all are within 1e-13 of the functions,
relatively, where tests look; in float32 they are computed in float32, but for the inverses and `erfcx`, which are computed in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tengen import functional as F
from tengen.base.errors import ArgumentError
from tengen.ops.calls import all_with_line
from tengen.ops.widths import narrowed, rounded_once, widened
from tengen.tensor import Tensor

_BERNOULLI = (
    1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330, 854513 / 138, -236364091 / 2730,
)  # fmt: skip


def _float(x: Any) -> Tensor:
    t = x if isinstance(x, Tensor) else Tensor(x, dtype="float32")
    return t if t.dtype.is_inexact else t.astype("float32")


@rounded_once
def entr(input: Tensor) -> Tensor:
    """-x log(x); 0 at 0, -inf below.

    >>> entr(Tensor([0.0, 1.0, -1.0])).tolist()
    [0.0, -0.0, -inf]
    """
    x = _float(input)
    inside = -x * F.log(F.where(x > 0, x, 1.0))
    return F.where(x > 0, inside, F.where(F.equal(x, 0), 0.0, F.where(x < 0, -math.inf, x)))


@rounded_once
def xlog1py(input: Any, other: Any) -> Tensor:
    """x log(1 + y); 0 where x is 0 and y no NaN."""
    x, y = _float(input), _float(other)
    nothing = F.logical_and(F.equal(x, 0), F.logical_not(F.isnan(y)))
    return F.where(nothing, 0.0, x * F.log1p(F.where(nothing, 0.0, y)))


def ndtr(input: Tensor) -> Tensor:
    """The cumulative function of the normal distribution."""
    x = _float(input)
    return narrowed(0.5 * F.erfc(widened(x) * -math.sqrt(0.5)), x)


@rounded_once
def multigammaln(input: Tensor, p: int) -> Tensor:
    """The logarithm of the multivariate gamma function of dimension p."""
    x = _float(input)
    total = F.lgamma(x)
    for i in range(1, p):
        total = total + F.lgamma(x - 0.5 * i)
    return total + 0.25 * p * (p - 1) * math.log(math.pi)


@rounded_once
def zeta(input: Any, other: Any) -> Tensor:
    """Hurwitz's zeta function: the sum of (q + k)^-s over k = 0, 1, ..., for s > 1 and q > 0, and for whole s and q > -10; inf at s = 1 and at
    q = 0, -1, ...; NaN elsewhere.

    Args: input: s. other: q.
    """
    s, q = _float(input), _float(other)
    n = 20
    s, q = F.broadcast_tensors(s, q)
    total = F.pow(q, -s)
    for k in range(1, n):
        total = total + F.pow(q + k, -s)
    a = q + n
    power = F.pow(a, -s)
    total = total + power * a / (s - 1.0) + 0.5 * power
    factor = power * s / a
    for i, b in enumerate(_BERNOULLI, 1):
        total = total + factor * (b / math.factorial(2 * i))
        factor = factor * (s + (2 * i - 1)) * (s + 2 * i) / (a * a)
    there = F.logical_or(q > 0, F.logical_and(q > -10, F.equal(s, F.floor(s))))
    pole = F.logical_or(F.equal(s, 1), F.logical_and(F.equal(q, F.floor(q)), q <= 0))
    return F.where(F.isnan(q), q, F.where(s >= 1, F.where(pole, math.inf, F.where(there, total, math.nan)), math.nan))


@rounded_once
def polygamma(n: int, input: Tensor) -> Tensor:
    """The n-th derivative of digamma, for x > -10; inf at 0 and below at whole numbers.

    Errors: ArgumentError for n below 0
    """
    if n < 0:
        raise ArgumentError(f"polygamma: n={n} must not be negative")
    x = _float(input)
    return F.digamma(x) if n == 0 else (-1) ** (n + 1) * math.factorial(n) * zeta(Tensor(float(n + 1), dtype=x.dtype), x)


def _narrow(x: Any, f: Callable[[Tensor], Tensor]) -> Tensor:
    """f of x in float64, rounded to x's dtype once."""
    t = _float(x)
    return f(t.astype("float64")).astype(t.dtype)


def ndtri(input: Tensor) -> Tensor:
    """The inverse of `ndtr`: NaN outside of [0, 1], infinite at 0 and 1. By a rational estimate (Acklam) and two steps of Halley's.

    >>> f"{ndtri(Tensor([0.975])).item():.5f}"
    '1.95996'
    """

    def found(p: Tensor) -> Tensor:
        small = F.where(p > 0.5, 1.0 - p, p)
        return F.where(p > 0.5, -1.0, 1.0) * _quantile(small, small - 0.5)

    return _narrow(input, found)


def erfinv(input: Tensor) -> Tensor:
    """The inverse of `erf`: NaN outside of [-1, 1], infinite at -1 and 1."""

    def found(x: Tensor) -> Tensor:
        y = math.sqrt(0.5) * _quantile(0.5 * (1.0 - F.abs(x)), -0.5 * F.abs(x))
        return F.where(F.equal(x, 0), x * (math.sqrt(math.pi) / 2), -F.copysign(1.0, x) * y)  # |x| has no slope at 0

    return _narrow(input, found)


_CENTRE = (
    (-3.969683028665376e1, 2.209460984245205e2, -2.759285104469687e2, 1.383577518672690e2, -3.066479806614716e1, 2.506628277459239),
    (-5.447609879822406e1, 1.615858368580409e2, -1.556989798598866e2, 6.680131188771972e1, -1.328068155288572e1, 1.0),
)
_TAIL = (
    (-7.784894002430293e-3, -3.223964580411365e-1, -2.400758277161838, -2.549732539343734, 4.374664141464968, 2.938163982698783),
    (7.784695709041462e-3, 3.224671290700398e-1, 2.445134137142996, 3.754408661907416, 1.0),
)


def _horner(x: Tensor, coefficients: tuple[float, ...]) -> Any:
    total: Any = coefficients[0]
    for c in coefficients[1:]:
        total = total * x + c
    return total


def _quantile(small: Tensor, centred: Tensor) -> Tensor:
    """The normal quantile of a probability of at most 1/2, in float64, which is given beside its difference to 1/2: near 1/2 that has
    the digits."""
    inside = F.logical_and(small > 0, small <= 0.5)
    s = F.where(inside, small, 0.25)
    r = F.sqrt(-2.0 * F.log(F.minimum(s, 0.02425)))
    difference = F.where(inside, centred, -0.25)
    d = F.maximum(difference, 0.02425 - 0.5)
    centre = d * _horner(d * d, _CENTRE[0]) / _horner(d * d, _CENTRE[1])
    z = F.where(s < 0.02425, _horner(r, _TAIL[0]) / _horner(r, _TAIL[1]), centre)  # at most 0
    for _ in range(3):  # the relative error of the tail, so that tiny p have all digits, too
        tail, middle = 0.5 * F.erfc(z * -math.sqrt(0.5)) - s, 0.5 * F.erf(z * math.sqrt(0.5)) - difference
        u = F.where(s < 0.25, tail, middle) * math.sqrt(2 * math.pi) * F.exp(0.5 * z * z)
        z = z - u / (1.0 + 0.5 * z * u)
    edge = F.where(F.equal(small, 0), -math.inf, math.nan)
    return F.where(inside, z, edge)


def erfcx(input: Tensor) -> Tensor:
    """exp(x^2) erfc(x), without underflow: by the product below 5, by a continued fraction of 40 terms above."""

    def found(x: Tensor) -> Tensor:
        near, far = F.minimum(5.0, x), F.maximum(5.0, x)  # in a tie the gradient goes to x
        total: Any = far
        for k in range(60, 0, -1):
            total = far + (0.5 * k) / total
        return F.where(x < 5, F.exp(near * near) * F.erfc(near), 1.0 / (math.sqrt(math.pi) * total))

    return _narrow(input, found)


def log_ndtr(input: Tensor) -> Tensor:
    """The logarithm of `ndtr`, also where that is 0."""

    def found(x: Tensor) -> Tensor:
        low, high = F.minimum(-1.0, x), F.maximum(-1.0, x)
        below = F.log(0.5 * erfcx(low * -math.sqrt(0.5))) - 0.5 * low * low
        return F.where(x < -1, below, F.log1p(-0.5 * F.erfc(high * math.sqrt(0.5))))

    return _narrow(input, found)


_LARGE_SHAPE = 1e4  # of the incomplete gamma function: above it three terms of the expansion for large a are exact to float64
# coefficients of c_0, c_1 and c_2 of DLMF 8.12.7 by powers of eta, by contour integrals in mpmath
_UNIFORM = (
    (-1 / 3, 1 / 12, -2 / 135, 1 / 864, 1 / 2835, -1.787551440329218e-4, 3.919263178522438e-5, -2.185448510679992e-6, -1.85406221071516e-6,
     8.296711340953087e-7, -1.7665952736826078e-7, 6.707853543401498e-9, 1.0261809784240309e-8, -4.382036018453353e-9),
    (-1 / 540, -1 / 288, 1 / 378, -9.902263374485596e-4, 2.0576131687242798e-4, -4.018775720164609e-7, -1.8098550334489977e-5,
     7.64916091608111e-6, -1.6120900894563446e-6),
    (25 / 6048, -2.6813271604938273e-3, 1 / 1296, 2.0093878600823047e-6, -1.073665322636516e-4),
)  # fmt: skip


def _gamma_by_expansion(a: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """(P, Q) of float64 a above `_LARGE_SHAPE` and x > 0, by Temme's expansion, which holds for all x (DLMF 8.12)."""
    mu = (x - a) / a
    near = F.abs(mu) < 0.5
    m = F.where(near, mu, 0.0)
    w = 1.0 / (2.0 + m)
    r2 = m * w * m * w
    rest = _horner(r2, tuple(1 / (2 * k + 3) for k in reversed(range(18))))
    far = F.where(near, 1.0, mu)
    half = F.maximum(far - F.log1p(far), 0.0)  # eta^2 / 2 = mu - log(1 + mu), which would cancel where mu is small
    eta = F.where(near, m * F.sqrt(2.0 * (w - 2.0 * w * w * w * m * rest)), F.sign(far) * F.sqrt(2.0 * half))
    e, v = F.where(F.abs(eta) < 0.5, eta, 0.0), F.where(F.abs(eta) < 0.5, 1.0, eta)
    i, j = 1.0 / v, 1.0 / F.where(F.abs(eta) < 0.5, 1.0, mu)
    closed = (
        j - i, i**3 - j**3 - j * j - j / 12, -3.0 * i**5 + 3.0 * j**5 + 5.0 * j**4 + 25 / 12 * j**3 + j * j / 12 + j / 288,
    )  # fmt: skip
    c = [F.where(F.abs(eta) < 0.5, _horner(e, k[::-1]), f) for k, f in zip(_UNIFORM, closed)]
    left = F.exp(-0.5 * a * eta * eta) / F.sqrt(2 * math.pi * a) * (c[0] + (c[1] + c[2] / a) / a)
    z = eta * F.sqrt(0.5 * a)
    return 0.5 * F.erfc(-z) - left, 0.5 * F.erfc(z) + left


def _gamma_by_terms(a: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """(P, Q) of float64 a up to `_LARGE_SHAPE` and x > 0: a series where x < a + 1, Lentz's continued fraction elsewhere."""
    front = F.exp(a * F.log(x) - x - F.lgamma(a))
    is_low = x < a + 1.0
    xs = F.where(is_low, x, a)
    largest = float(F.max(a).item()) if a.size else 1.0
    n = 60 + int(12 * math.sqrt(largest))
    term = total = 1.0 / a
    for k in range(1, n):
        term = term * xs / (a + k)
        total = total + term
    xf = F.where(is_low, a + 2.0, x)
    b = xf + 1.0 - a
    c, d = b * 0.0 + 1e300, 1.0 / b
    h = d
    for k in range(1, n):
        step = k * (a - k)
        b = b + 2.0
        d = step * d + b
        c = b + step / c
        d = 1.0 / F.where(F.equal(d, 0), 1e-300, d)
        c = F.where(F.equal(c, 0), 1e-300, c)
        h = h * d * c
    p, q = front * total, front * h
    return F.where(is_low, p, 1.0 - q), F.where(is_low, 1.0 - p, q)


def _regularised_gamma(a: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """(P, Q) of float64 a and x, of all: NaN where one is negative or NaN, and where both are 0 or both infinite."""
    finite = F.logical_and(F.logical_and(a > 0, x > 0), F.logical_and(a < math.inf, x < math.inf))
    large = F.logical_and(finite, a > _LARGE_SHAPE)
    p, q = _gamma_by_terms(*(F.where(F.logical_and(finite, a <= _LARGE_SHAPE), t, 1.0) for t in (a, x)))
    if bool(F.any(large).item()):
        found = _gamma_by_expansion(F.where(large, a, 2 * _LARGE_SHAPE), F.where(large, x, 2 * _LARGE_SHAPE))
        p, q = (F.where(large, f, t) for f, t in zip(found, (p, q)))
    bad = F.logical_or(F.logical_or(a < 0, x < 0), F.logical_or(F.isnan(a), F.isnan(x)))
    bad = F.logical_or(bad, F.logical_and(F.equal(a, x), F.logical_or(F.equal(a, 0), F.equal(a, math.inf))))
    one = F.logical_or(F.equal(x, math.inf), F.logical_and(F.equal(a, 0), x > 0))
    edge = F.where(bad, math.nan, F.where(one, 1.0, 0.0))
    return F.where(finite, p, edge), F.where(finite, q, F.where(bad, math.nan, 1.0 - edge))


def gammainc(input: Any, other: Any) -> Tensor:
    """The regularised lower incomplete gamma function P(a, x), of a > 0 and x >= 0, with gradients of both.

    Errors: TraceError in a recorded function: the number of its terms depends on the largest a
    """
    a, x = F.broadcast_tensors(_float(input), _float(other))
    return _regularised_gamma(a.astype("float64"), x.astype("float64"))[0].astype(x.dtype)


def gammaincc(input: Any, other: Any) -> Tensor:
    """The regularised upper incomplete gamma function Q(a, x) = 1 - P(a, x), without cancellation. Errors: TraceError as of `gammainc`"""
    a, x = F.broadcast_tensors(_float(input), _float(other))
    return _regularised_gamma(a.astype("float64"), x.astype("float64"))[1].astype(x.dtype)


__all__ = [
    "entr", "erfcx", "erfinv", "gammainc", "gammaincc", "log_ndtr", "multigammaln", "ndtr", "ndtri", "polygamma", "xlog1py", "zeta",
]  # fmt: skip
all_with_line(globals(), __all__)
