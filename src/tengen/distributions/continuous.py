"""Distributions of real numbers whose samples are smooth functions of their parameters."""

from __future__ import annotations

import math
from typing import Any

from tengen import functional as F
from tengen.distributions.constraints import dependent_property, greater_than, interval, less_than, nonnegative, positive, real
from tengen.distributions.distribution import Distribution, as_float, register_kl, together, within
from tengen.random.state import default_rng
from tengen.tensor import Tensor

EULER = 0.5772156649015329
HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
log, exp, sqrt, log1p, expm1, where = F.log, F.exp, F.sqrt, F.log1p, F.expm1, F.where


class _LocationScale(Distribution):
    """loc + scale times a standard variable."""

    has_rsample = True
    parameters = ("loc", "scale")
    arg_constraints = {"loc": real, "scale": positive}

    def __init__(self, loc: Any = 0.0, scale: Any = 1.0):
        self.loc, self.scale = together(self, {"loc": loc, "scale": scale})
        super().__init__(self.loc.shape)

    def _standard(self, value: Any) -> Tensor:
        return (as_float(value) - self.loc) / self.scale

    def _uniform(self, shape: tuple[int, ...]) -> Tensor:
        return default_rng.open_uniform(shape)


def _normal(shape: tuple[int, ...], like: Tensor) -> Tensor:
    return default_rng.normal(size=shape).astype(like.dtype)


class Normal(_LocationScale):
    """The normal distribution: mean `loc`, standard deviation `scale`.

    >>> Normal(0.0, 1.0).log_prob(0.0).item()
    -0.9189385175704956
    """

    def _draw(self, shape):
        return self.loc + self.scale * _normal(shape, self.loc)

    @property
    def mode(self):
        return self.loc

    @property
    def mean(self):
        return self.loc

    @property
    def variance(self):
        return self.scale * self.scale

    def log_prob(self, value):
        z = self._standard(value)
        return z * z * -0.5 - log(self.scale) - HALF_LOG_2PI

    def entropy(self):
        return log(self.scale) + (0.5 + HALF_LOG_2PI)

    def cdf(self, value):
        return F.erfc(self._standard(value) * -math.sqrt(0.5)) * 0.5


class LogNormal(_LocationScale):
    """e to a normal variable of mean `loc` and standard deviation `scale`."""

    support = positive

    def _draw(self, shape):
        return exp(self.loc + self.scale * _normal(shape, self.loc))

    @property
    def mode(self):
        return exp(self.loc - self.scale * self.scale)

    @property
    def mean(self):
        return exp(self.loc + self.scale * self.scale * 0.5)

    @property
    def variance(self):
        square = self.scale * self.scale
        return expm1(square) * exp(self.loc * 2.0 + square)

    def log_prob(self, value):
        x = as_float(value)
        normal = Normal(self.loc, self.scale)
        return within(positive.check(x), x, lambda v: normal.log_prob(log(v)) - log(v), 1.0)

    def entropy(self):
        return self.loc + log(self.scale) + (0.5 + HALF_LOG_2PI)

    def cdf(self, value):
        x = as_float(value)
        return where(x > 0.0, Normal(self.loc, self.scale).cdf(log(where(x > 0.0, x, 1.0))), x * 0.0)


class Laplace(_LocationScale):
    """The density is e^-|z| / (2 scale), z = (x - loc) / scale."""

    def _draw(self, shape):
        u = self._uniform(shape)
        z = where(u < 0.5, log(u * 2.0), -log(2.0 - u * 2.0))
        return self.loc + self.scale * z.astype(self.loc.dtype)

    @property
    def mode(self):
        return self.loc

    @property
    def mean(self):
        return self.loc

    @property
    def variance(self):
        return self.scale * self.scale * 2.0

    def log_prob(self, value):
        return -abs(self._standard(value)) - log(self.scale * 2.0)

    def entropy(self):
        return log(self.scale * 2.0) + 1.0

    def cdf(self, value):
        z = self._standard(value)
        tail = exp(-abs(z)) * 0.5
        return where(z < 0.0, tail, 1.0 - tail)

    def icdf(self, value):
        u = as_float(value)
        return self.loc + self.scale * where(u < 0.5, log(u * 2.0), -log(2.0 - u * 2.0))


class Cauchy(_LocationScale):
    """The density is 1 / (pi scale (1 + z^2)), z = (x - loc) / scale. It has no mean, and an infinite variance."""

    def _draw(self, shape):
        angle = (self._uniform(shape) - 0.5) * math.pi
        return self.loc + self.scale * F.tan(angle).astype(self.loc.dtype)

    @property
    def mode(self):
        return self.loc

    @property
    def mean(self):
        return F.full_like(self.loc, math.nan)

    @property
    def variance(self):
        return F.full_like(self.loc, math.inf)

    def log_prob(self, value):
        z = self._standard(value)
        return -log1p(z * z) - log(self.scale * math.pi)

    def entropy(self):
        return log(self.scale * (4 * math.pi))

    def cdf(self, value):
        return F.atan(self._standard(value)) * (1 / math.pi) + 0.5

    def icdf(self, value):
        return self.loc + self.scale * F.tan((as_float(value) - 0.5) * math.pi)


class Gumbel(_LocationScale):
    """The largest of many: the distribution function is e^-e^-z, z = (x - loc) / scale."""

    def _draw(self, shape):
        return self.loc - self.scale * log(-log(self._uniform(shape))).astype(self.loc.dtype)

    @property
    def mode(self):
        return self.loc

    @property
    def mean(self):
        return self.loc + self.scale * EULER

    @property
    def variance(self):
        return self.scale * self.scale * (math.pi**2 / 6)

    def log_prob(self, value):
        z = self._standard(value)
        return -z - exp(-z) - log(self.scale)

    def entropy(self):
        return log(self.scale) + (1.0 + EULER)

    def cdf(self, value):
        return exp(-exp(-self._standard(value)))

    def icdf(self, value):
        return self.loc - self.scale * log(-log(as_float(value)))


class HalfNormal(Distribution):
    """The absolute value of a normal variable of mean 0 and standard deviation `scale`."""

    has_rsample = True
    support = nonnegative
    parameters = ("scale",)
    arg_constraints = {"scale": positive}

    def __init__(self, scale: Any = 1.0):
        (self.scale,) = together(self, {"scale": scale})
        super().__init__(self.scale.shape)

    def _draw(self, shape):
        return self.scale * abs(_normal(shape, self.scale))

    @property
    def mode(self):
        return F.zeros_like(self.scale)

    @property
    def mean(self):
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def variance(self):
        return self.scale * self.scale * (1 - 2 / math.pi)

    def log_prob(self, value):
        x = as_float(value)
        normal = Normal(0.0, self.scale)
        return within(nonnegative.check(x), x, lambda v: normal.log_prob(v) + math.log(2), 0.0)

    def entropy(self):
        return log(self.scale) + (0.5 + HALF_LOG_2PI - math.log(2))

    def cdf(self, value):
        return F.maximum(F.erf(as_float(value) / self.scale * math.sqrt(0.5)), 0.0)


class Exponential(Distribution):
    """The density is rate e^(-rate x) for x >= 0."""

    has_rsample = True
    support = nonnegative
    parameters = ("rate",)
    arg_constraints = {"rate": positive}

    def __init__(self, rate: Any):
        (self.rate,) = together(self, {"rate": rate})
        super().__init__(self.rate.shape)

    def _draw(self, shape):
        return -log(default_rng.open_uniform(shape)).astype(self.rate.dtype) / self.rate

    @property
    def mode(self):
        return F.zeros_like(self.rate)

    @property
    def mean(self):
        return 1.0 / self.rate

    @property
    def variance(self):
        return 1.0 / (self.rate * self.rate)

    def log_prob(self, value):
        x = as_float(value)
        return within(nonnegative.check(x), x, lambda v: log(self.rate) - self.rate * v, 0.0)

    def entropy(self):
        return 1.0 - log(self.rate)

    def cdf(self, value):
        return -expm1(-self.rate * F.maximum(as_float(value), 0.0))

    def icdf(self, value):
        return -log1p(-as_float(value)) / self.rate


class Uniform(Distribution):
    """Equally likely everywhere in [low, high)."""

    has_rsample = True
    parameters = ("low", "high")

    def __init__(self, low: Any = 0.0, high: Any = 1.0):
        self.low, self.high = together(self, {"low": low, "high": high}, {"low": real, "high": real})
        together(self, {"high - low": self.high - self.low}, {"high - low": positive})
        super().__init__(self.low.shape)

    @dependent_property
    def support(self):
        """The interval."""
        return interval(self.low, self.high)

    @property
    def arg_constraints(self):
        """Either bound's set, by the other one."""
        return {"low": less_than(self.high), "high": greater_than(self.low)}

    def _draw(self, shape):
        return self.low + (self.high - self.low) * default_rng.uniform(size=shape).astype(self.low.dtype)

    @property
    def mode(self):
        return (self.low + self.high) * math.nan

    @property
    def mean(self):
        return (self.low + self.high) * 0.5

    @property
    def variance(self):
        width = self.high - self.low
        return width * width * (1 / 12)

    def log_prob(self, value):
        x = as_float(value)
        inside = F.logical_and(x >= self.low, x < self.high)
        return within(inside, x, lambda v: v * 0.0 - log(self.high - self.low), 0.0)

    def entropy(self):
        return log(self.high - self.low)

    def cdf(self, value):
        return F.clip((as_float(value) - self.low) / (self.high - self.low), 0.0, 1.0)

    def icdf(self, value):
        return self.low + (self.high - self.low) * as_float(value)


# ---- divergences -------------------------------------------------------------------------------------------------------


@register_kl(Normal, Normal)
@register_kl(LogNormal, LogNormal)
def _(p, q):
    ratio, shift = p.scale / q.scale, (p.loc - q.loc) / q.scale
    return (ratio * ratio + shift * shift - 1.0) * 0.5 - log(ratio)


@register_kl(HalfNormal, HalfNormal)
def _(p, q):
    ratio = p.scale / q.scale
    return (ratio * ratio - 1.0) * 0.5 - log(ratio)


@register_kl(Laplace, Laplace)
def _(p, q):
    distance = abs(p.loc - q.loc)
    return log(q.scale / p.scale) + (distance + p.scale * exp(-distance / p.scale)) / q.scale - 1.0


@register_kl(Cauchy, Cauchy)
def _(p, q):
    scales, shift = p.scale + q.scale, p.loc - q.loc
    return log((scales * scales + shift * shift) / (p.scale * q.scale * 4.0))


@register_kl(Gumbel, Gumbel)
def _(p, q):
    ratio, shift = p.scale / q.scale, (p.loc - q.loc) / q.scale
    return -log(ratio) + EULER * (ratio - 1.0) + exp(-shift + F.lgamma(ratio + 1.0)) - 1.0 + shift


@register_kl(Exponential, Exponential)
def _(p, q):
    ratio = q.rate / p.rate
    return ratio - 1.0 - log(ratio)


@register_kl(Uniform, Uniform)
def _(p, q):
    inside = F.logical_and(q.low <= p.low, p.high <= q.high)
    return where(inside, log((q.high - q.low) / (p.high - p.low)), math.inf)
