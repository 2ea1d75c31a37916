"""Further distributions of positive numbers: powers and inverses of simpler ones. Names, parameters and their order are PyTorch's."""

from __future__ import annotations

import math
from typing import Any

from tengen import functional as F
from tengen.distributions.constraints import (
    dependent_property,
    greater_than_eq,
    interval,
    nonnegative,
    positive,
    real,
    unit_interval,
)
from tengen.distributions.continuous import EULER
from tengen.distributions.distribution import Distribution, as_float, together, within
from tengen.distributions.gamma_family import mode_of_powers, power_term
from tengen.random.state import default_rng
from tengen.tensor import Tensor

log, exp, log1p, expm1, lgamma, digamma, where, power = F.log, F.exp, F.log1p, F.expm1, F.lgamma, F.digamma, F.where, F.pow


class _ByQuantiles(Distribution):
    """What is drawn by the inverse of its distribution function."""

    has_rsample = True

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        return self.icdf(default_rng.open_uniform(shape).astype(getattr(self, self.parameters[0]).dtype))


class Weibull(_ByQuantiles):
    """The probability of more than x is exp(-(x / scale)^concentration), for x >= 0.

    >>> Weibull(2.0, 1.0).mean.item()
    2.0
    """

    support = nonnegative
    parameters = ("scale", "concentration")
    arg_constraints = {"scale": positive, "concentration": positive}

    def __init__(self, scale: Any, concentration: Any):
        self.scale, self.concentration = together(self, {"scale": scale, "concentration": concentration})
        super().__init__(self.scale.shape)

    def _moment(self, n: int) -> Tensor:
        return exp(lgamma(1.0 + n / self.concentration))

    @property
    def mode(self):
        k = where(self.concentration > 1.0, self.concentration, 2.0)
        return where(self.concentration > 1.0, self.scale * power((k - 1.0) / k, 1.0 / k), 0.0)

    @property
    def mean(self):
        return self.scale * self._moment(1)

    @property
    def variance(self):
        return self.scale * self.scale * (self._moment(2) - self._moment(1) * self._moment(1))

    def log_prob(self, value):
        x, k = as_float(value), self.concentration

        def density(v):
            z = v / self.scale
            return log(k / self.scale) + power_term(k - 1.0, z) - power(z, k)

        return within(nonnegative.check(x), x, density, 1.0)

    def entropy(self):
        return EULER * (1.0 - 1.0 / self.concentration) + log(self.scale / self.concentration) + 1.0

    def cdf(self, value):
        return -expm1(-power(F.maximum(as_float(value), 0.0) / self.scale, self.concentration))

    def icdf(self, value):
        return self.scale * power(-log1p(-as_float(value)), 1.0 / self.concentration)


class Pareto(_ByQuantiles):
    """The density is alpha scale^alpha / x^(alpha + 1), for x >= scale."""

    parameters = ("scale", "alpha")
    arg_constraints = {"alpha": positive, "scale": positive}

    def __init__(self, scale: Any, alpha: Any):
        self.scale, self.alpha = together(self, {"scale": scale, "alpha": alpha})
        super().__init__(self.scale.shape)

    @dependent_property
    def support(self):
        """Finite numbers from the scale on."""
        return greater_than_eq(self.scale, finite=True)

    @property
    def mode(self):
        return self.scale

    @property
    def mean(self):
        a = F.maximum(self.alpha, 1.0)
        return where(a > 1, a * self.scale / where(a > 1, a - 1.0, 1.0), math.inf)

    @property
    def variance(self):
        a = where(self.alpha > 2, self.alpha, 3.0)
        return where(self.alpha > 2, self.scale * self.scale * a / ((a - 1.0) * (a - 1.0) * (a - 2.0)), math.inf)

    def log_prob(self, value):
        x, a = as_float(value), self.alpha
        inside, x = self.support.check(x), x + 0.0 * self.scale
        safe = where(inside, x, self.scale)
        return where(inside, log(a / safe) + a * log(self.scale / safe), where(F.isnan(x), math.nan, -math.inf))

    def entropy(self):
        return log(self.scale / self.alpha) + 1.0 + 1.0 / self.alpha

    def cdf(self, value):
        return 1.0 - power(self.scale / F.maximum(as_float(value), self.scale), self.alpha)

    def icdf(self, value):
        return self.scale * exp(-log1p(-as_float(value)) / self.alpha)


class GeneralizedPareto(_ByQuantiles):
    """What is above a high threshold `loc`: the probability of more than x is (1 + concentration z)^(-1 / concentration) for
    z = (x - loc) / scale, and exp(-z) for a concentration of 0. With a negative concentration x is at most loc - scale / concentration.

    >>> GeneralizedPareto(0.0, 2.0, 0.5).mean.item()
    4.0
    """

    parameters = ("loc", "scale", "concentration")
    arg_constraints = {"loc": real, "scale": positive, "concentration": real}

    def __init__(self, loc: Any, scale: Any, concentration: Any):
        self.loc, self.scale, self.concentration = together(self, {"loc": loc, "scale": scale, "concentration": concentration})
        super().__init__(self.loc.shape)

    @dependent_property
    def support(self):
        """From loc on; to where the density ends, if the concentration is negative."""
        c = where(self.concentration < 0, self.concentration, -1.0)
        return interval(self.loc, where(self.concentration < 0, self.loc - self.scale / c, math.inf))

    @property
    def mode(self):
        return self.loc

    @property
    def mean(self):
        c = where(self.concentration < 1, self.concentration, 0.0)
        return where(self.concentration < 1, self.loc + self.scale / (1.0 - c), math.inf)

    @property
    def variance(self):
        c = where(self.concentration < 0.5, self.concentration, 0.0)
        return where(self.concentration < 0.5, self.scale * self.scale / ((1.0 - c) * (1.0 - c) * (1.0 - 2.0 * c)), math.inf)

    def _exponent(self, x: Tensor) -> Tensor:
        """log1p(c z) / c, which is z for c = 0."""
        z = (x - self.loc) / self.scale
        c = where(self.concentration == 0, 1.0, self.concentration)
        series = z - self.concentration * z * z * 0.5  # with the derivative by c at 0
        return where(self.concentration == 0, series, log1p(c * z) / c)

    def log_prob(self, value):
        x = as_float(value)
        density = lambda v: -log(self.scale) - self._exponent(v) * (1.0 + self.concentration)
        return within(self.support.check(x), x, density, self.loc)

    def entropy(self):
        return log(self.scale) + self.concentration + 1.0

    def cdf(self, value):
        x, limits = as_float(value), self.support
        inside = limits.check(x)
        return where(inside, -expm1(-self._exponent(where(inside, x, self.loc))), where(x > self.loc, 1.0, where(F.isnan(x), math.nan, 0.0)))

    def icdf(self, value):
        t = -log1p(-as_float(value))
        c = where(self.concentration == 0, 1.0, self.concentration)
        return self.loc + self.scale * where(self.concentration == 0, t + self.concentration * t * t * 0.5, expm1(c * t) / c)


class HalfCauchy(_ByQuantiles):
    """The absolute value of a Cauchy variable around 0."""

    support = nonnegative
    parameters = ("scale",)
    arg_constraints = {"scale": positive}

    def __init__(self, scale: Any = 1.0):
        (self.scale,) = together(self, {"scale": scale})
        super().__init__(self.scale.shape)

    @property
    def mode(self):
        return F.zeros_like(self.scale)

    @property
    def mean(self):
        return F.full_like(self.scale, math.inf)

    @property
    def variance(self):
        return F.full_like(self.scale, math.inf)

    def log_prob(self, value):
        x = as_float(value)
        density = lambda v: math.log(2 / math.pi) - log(self.scale) - log1p((v / self.scale) * (v / self.scale))
        return within(nonnegative.check(x), x, density, 0.0)

    def entropy(self):
        return log(2 * math.pi * self.scale)

    def cdf(self, value):
        return 2 / math.pi * F.atan(F.maximum(as_float(value), 0.0) / self.scale)

    def icdf(self, value):
        return self.scale * F.tan(0.5 * math.pi * as_float(value))


class Kumaraswamy(_ByQuantiles):
    """The density is a b x^(a - 1) (1 - x^a)^(b - 1) in [0, 1], a and b being the concentrations."""

    support = unit_interval
    parameters = ("concentration1", "concentration0")
    arg_constraints = {"concentration1": positive, "concentration0": positive}

    def __init__(self, concentration1: Any, concentration0: Any):
        given = {"concentration1": concentration1, "concentration0": concentration0}
        self.concentration1, self.concentration0 = together(self, given)
        super().__init__(self.concentration1.shape)

    def _moment(self, n: int) -> Tensor:
        b, c = self.concentration0, 1.0 + n / self.concentration1
        return exp(log(b) + lgamma(c) + lgamma(b) - lgamma(c + b))

    @property
    def mode(self):
        """NaN where the density is the same everywhere, or has no bound at both ends."""
        a, b = self.concentration1, self.concentration0
        inside = F.logical_and(a > 1.0, b > 1.0)
        k, m = where(inside, a, 2.0), where(inside, b, 2.0)
        return mode_of_powers(a, b, power((k - 1.0) / (k * m - 1.0), 1.0 / k))

    @property
    def mean(self):
        return self._moment(1)

    @property
    def variance(self):
        return self._moment(2) - self._moment(1) * self._moment(1)

    def log_prob(self, value):
        x, a, b = as_float(value), self.concentration1, self.concentration0
        density = lambda v: log(a * b) + power_term(a - 1.0, v) + power_term(b - 1.0, -power(v, a), log1p)
        return within(unit_interval.check(x), x, density, 0.5)

    def entropy(self):
        a, b = self.concentration1, self.concentration0
        return 1.0 - 1.0 / b + (1.0 - 1.0 / a) * (digamma(b + 1.0) + EULER) - log(a * b)

    def cdf(self, value):
        x = F.minimum(F.maximum(as_float(value), 0.0), 1.0)
        return 1.0 - power(1.0 - power(x, self.concentration1), self.concentration0)

    def icdf(self, value):
        return power(-expm1(log1p(-as_float(value)) / self.concentration0), 1.0 / self.concentration1)


class InverseGamma(Distribution):
    """One over a Gamma variable: the density is rate^a x^(-a - 1) e^(-rate / x) / gamma(a), a being the concentration, for x > 0."""

    support = positive
    parameters = ("concentration", "rate")
    arg_constraints = {"concentration": positive, "rate": positive}

    def __init__(self, concentration: Any, rate: Any = 1.0):
        given = {"concentration": concentration, "rate": rate}
        self.concentration, self.rate = together(self, given)
        super().__init__(self.rate.shape)

    def _draw(self, shape):
        lead = shape[: len(shape) - len(self.batch_shape)]
        return self.rate.detach() / default_rng.gamma(self.concentration.detach(), 1.0, lead)

    @property
    def mode(self):
        return self.rate / (self.concentration + 1.0)

    @property
    def mean(self):
        a = self.concentration
        return where(a > 1, self.rate / where(a > 1, a - 1.0, 1.0), math.inf)

    @property
    def variance(self):
        a = where(self.concentration > 2, self.concentration, 3.0)
        return where(self.concentration > 2, self.rate * self.rate / ((a - 1.0) * (a - 1.0) * (a - 2.0)), math.inf)

    def log_prob(self, value):
        x, a = as_float(value), self.concentration
        constant = a * log(self.rate) - lgamma(a)
        return within(positive.check(x), x, lambda v: constant - (a + 1.0) * log(v) - self.rate / v, 1.0)

    def entropy(self):
        a = self.concentration
        return a + log(self.rate) + lgamma(a) - (1.0 + a) * digamma(a)


class FisherSnedecor(Distribution):
    """The ratio of two Chi2 variables, each over its degrees of freedom: F of df1 and df2."""

    support = nonnegative
    parameters = ("df1", "df2")
    arg_constraints = {"df1": positive, "df2": positive}

    def __init__(self, df1: Any, df2: Any):
        self.df1, self.df2 = together(self, {"df1": df1, "df2": df2})
        super().__init__(self.df1.shape)

    def _draw(self, shape):
        lead = shape[: len(shape) - len(self.batch_shape)]
        one, other = (default_rng.gamma(df.detach() * 0.5, 1.0, lead) / df.detach() for df in (self.df1, self.df2))
        return one / other

    @property
    def mode(self):
        return F.maximum(self.df1 - 2.0, 0.0) / self.df1 * (self.df2 / (self.df2 + 2.0))

    @property
    def mean(self):
        d = where(self.df2 > 2, self.df2, 3.0)
        return where(self.df2 > 2, d / (d - 2.0), math.nan)

    @property
    def variance(self):
        d, e = where(self.df2 > 4, self.df2, 5.0), self.df1
        return where(self.df2 > 4, 2.0 * d * d * (e + d - 2.0) / (e * (d - 2.0) * (d - 2.0) * (d - 4.0)), math.nan)

    def _log_beta(self):
        return lgamma(0.5 * self.df1) + lgamma(0.5 * self.df2) - lgamma(0.5 * (self.df1 + self.df2))

    def log_prob(self, value):
        x, a, b = as_float(value), 0.5 * self.df1, 0.5 * self.df2
        ratio = self.df1 / self.df2
        density = lambda v: a * log(ratio) + power_term(a - 1.0, v) - (a + b) * log1p(ratio * v) - self._log_beta()
        return within(nonnegative.check(x), x, density, 1.0)

    def entropy(self):
        a, b = 0.5 * self.df1, 0.5 * self.df2
        slopes = (1.0 - a) * digamma(a) - (1.0 + b) * digamma(b) + (a + b) * digamma(a + b)
        return log(self.df2 / self.df1) + self._log_beta() + slopes
