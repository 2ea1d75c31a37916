"""Gamma, Chi2, Beta, Dirichlet and Student's t. Their samples come from a rejection, through which no gradient is known here:
`sample` is there, `rsample` is not."""

from __future__ import annotations

import math
from typing import Any

from tengen import functional as F
from tengen.distributions.constraints import independent, nonnegative, positive, real, simplex, unit_interval
from tengen.distributions.distribution import Distribution, as_float, register_kl, together, within
from tengen.random.state import default_rng
from tengen.tensor import Tensor

log, log1p, lgamma, digamma, where = F.log, F.log1p, F.lgamma, F.digamma, F.where


def power_term(exponent: Tensor, x: Tensor, of: Any = log) -> Tensor:
    """exponent log(x), which is 0 where the exponent is, also at x = 0."""
    return where(exponent == 0.0, 0.0, exponent * of(where(exponent == 0.0, 0.5, x)))


def mode_of_powers(a: Tensor, b: Tensor, between: Tensor) -> Tensor:
    """The mode of a density on [0, 1] that behaves as x^(a - 1) at 0 and as (1 - x)^(b - 1) at 1. between: that of a and b above 1."""
    at_0, at_1 = F.logical_and(a <= 1.0, b >= 1.0), F.logical_and(a >= 1.0, b <= 1.0)
    neither = F.logical_or(F.logical_and(at_0, at_1), F.logical_and(a < 1.0, b < 1.0))
    return where(neither, math.nan, where(at_0, 0.0, where(at_1, 1.0, between)))


class Gamma(Distribution):
    """The density is rate^a x^(a - 1) e^(-rate x) / gamma(a), a being the concentration, for x >= 0."""

    support = nonnegative
    parameters = ("concentration", "rate")
    arg_constraints = {"concentration": positive, "rate": positive}

    def __init__(self, concentration: Any, rate: Any = 1.0):
        given = {"concentration": concentration, "rate": rate}
        self.concentration, self.rate = together(self, given, Gamma.arg_constraints)
        super().__init__(self.rate.shape)

    def _draw(self, shape):
        lead = shape[: len(shape) - len(self.batch_shape)]
        return default_rng.gamma(self.concentration.detach(), 1.0, lead) / self.rate.detach()

    @property
    def mode(self):
        return F.maximum(self.concentration - 1.0, 0.0) / self.rate

    @property
    def mean(self):
        return self.concentration / self.rate

    @property
    def variance(self):
        return self.concentration / (self.rate * self.rate)

    def log_prob(self, value):
        x, a = as_float(value), self.concentration
        constant = a * log(self.rate) - lgamma(a)
        return within(nonnegative.check(x), x, lambda v: constant + power_term(a - 1.0, v) - self.rate * v, 1.0)

    def entropy(self):
        a = self.concentration
        return a - log(self.rate) + lgamma(a) + (1.0 - a) * digamma(a)


class Chi2(Gamma):
    """The sum of the squares of df standard normal variables."""

    parameters = ("df",)
    arg_constraints = {"df": positive}

    def __init__(self, df: Any):
        (self.df,) = together(self, {"df": df})
        super().__init__(self.df * 0.5, 0.5)


class Beta(Distribution):
    """The density is x^(a - 1) (1 - x)^(b - 1) / B(a, b) in [0, 1], a and b being the concentrations."""

    support = unit_interval
    parameters = ("concentration1", "concentration0")
    arg_constraints = {"concentration1": positive, "concentration0": positive}

    def __init__(self, concentration1: Any, concentration0: Any):
        given = {"concentration1": concentration1, "concentration0": concentration0}
        self.concentration1, self.concentration0 = together(self, given)
        super().__init__(self.concentration1.shape)

    def _draw(self, shape):
        lead = shape[: len(shape) - len(self.batch_shape)]
        return default_rng.beta(self.concentration1.detach(), self.concentration0.detach(), lead)

    @property
    def mode(self):
        """NaN where the density is the same everywhere, or has no bound at both ends."""
        a, b = self.concentration1, self.concentration0
        return mode_of_powers(a, b, (a - 1.0) / where(a + b > 2.0, a + b - 2.0, 1.0))

    @property
    def mean(self):
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def variance(self):
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total * total * (total + 1.0))

    def _log_beta(self):
        a, b = self.concentration1, self.concentration0
        return lgamma(a) + lgamma(b) - lgamma(a + b)

    def log_prob(self, value):
        x, a, b = as_float(value), self.concentration1, self.concentration0

        def density(v):
            return power_term(a - 1.0, v) + power_term(b - 1.0, -v, log1p) - self._log_beta()

        return within(unit_interval.check(x), x, density, 0.5)

    def entropy(self):
        a, b = self.concentration1, self.concentration0
        inner = (a - 1.0) * digamma(a) + (b - 1.0) * digamma(b)
        return self._log_beta() - inner + (a + b - 2.0) * digamma(a + b)


class Dirichlet(Distribution):
    """Vectors of positive numbers whose sum is 1: the density is proportional to the product of x_i^(a_i - 1). The last axis of the
    concentration is the event.

    Errors: ValueError for a concentration of fewer than two numbers
    """

    support = simplex
    parameters = ("concentration",)
    arg_constraints = {"concentration": independent(positive, 1)}

    def __init__(self, concentration: Any):
        (self.concentration,) = together(self, {"concentration": concentration}, {"concentration": positive})
        if not self.concentration.ndim or self.concentration.shape[-1] < 2:
            raise ValueError(f"Dirichlet: concentration of shape {self.concentration.shape}; help: (..., n), n at least 2")
        super().__init__(self.concentration.shape[:-1], self.concentration.shape[-1:])

    def _draw(self, shape):
        lead = shape[: len(shape) - self.concentration.ndim]
        x = default_rng.gamma(self.concentration.detach(), 1.0, lead)
        return x / x.sum(-1, keepdims=True)

    @property
    def mode(self):
        """NaN where no concentration is above 1. One below 1 has no bound to its density at 0, and its number is 0."""
        above = F.maximum(self.concentration - 1.0, 0.0)
        total = above.sum(-1, keepdims=True)
        return where(total > 0.0, above / where(total > 0.0, total, 1.0), math.nan)

    @property
    def mean(self):
        return self.concentration / self.concentration.sum(-1, keepdims=True)

    @property
    def variance(self):
        total = self.concentration.sum(-1, keepdims=True)
        return self.concentration * (total - self.concentration) / (total * total * (total + 1.0))

    def _log_normalizer(self):
        return lgamma(self.concentration).sum(-1) - lgamma(self.concentration.sum(-1))

    def log_prob(self, value):
        x = as_float(value)
        inside = simplex.check(x)
        safe = where(F.expand_dims(inside, -1), x, 0.5)
        density = power_term(self.concentration - 1.0, safe).sum(-1) - self._log_normalizer()
        return where(inside, density, where(F.isnan(x.sum(-1)), math.nan, -math.inf))

    def entropy(self):
        a, total = self.concentration, self.concentration.sum(-1)
        inner = ((a - 1.0) * digamma(a)).sum(-1)
        return self._log_normalizer() + (total - float(a.shape[-1])) * digamma(total) - inner


class StudentT(Distribution):
    """Student's t with `df` degrees of freedom, times scale, plus loc."""

    parameters = ("df", "loc", "scale")
    arg_constraints = {"df": positive, "loc": real, "scale": positive}

    def __init__(self, df: Any, loc: Any = 0.0, scale: Any = 1.0):
        self.df, self.loc, self.scale = together(self, {"df": df, "loc": loc, "scale": scale})
        super().__init__(self.df.shape)

    def _draw(self, shape):
        lead = shape[: len(shape) - len(self.batch_shape)]
        chi = default_rng.gamma(self.df.detach() * 0.5, 2.0, lead)
        z = default_rng.normal(size=shape).astype(chi.dtype)
        return self.loc.detach() + self.scale.detach() * z * F.sqrt(self.df.detach() / chi)

    @property
    def mode(self):
        return self.loc

    @property
    def mean(self):
        return where(self.df > 1.0, self.loc, math.nan)

    @property
    def variance(self):
        finite = self.scale * self.scale * self.df / (where(self.df > 2.0, self.df, 3.0) - 2.0)
        return where(self.df > 2.0, finite, where(self.df > 1.0, math.inf, math.nan))

    def _log_normalizer(self):
        half = self.df * 0.5
        return log(self.scale) + 0.5 * log(self.df * math.pi) + lgamma(half) - lgamma(half + 0.5)

    def log_prob(self, value):
        z = (as_float(value) - self.loc) / self.scale
        return (self.df + 1.0) * -0.5 * log1p(z * z / self.df) - self._log_normalizer()

    def entropy(self):
        half = self.df * 0.5
        return self._log_normalizer() + (half + 0.5) * (digamma(half + 0.5) - digamma(half))


# ---- divergences -------------------------------------------------------------------------------------------------------


@register_kl(Gamma, Gamma)
def _(p, q):
    a, b = p.concentration, q.concentration
    shape = (a - b) * digamma(a) - lgamma(a) + lgamma(b)
    return shape + b * log(p.rate / q.rate) + a * (q.rate - p.rate) / p.rate


@register_kl(Beta, Beta)
def _(p, q):
    a, b, c, d = p.concentration1, p.concentration0, q.concentration1, q.concentration0
    inner = (a - c) * digamma(a) + (b - d) * digamma(b) - (a + b - c - d) * digamma(a + b)
    return q._log_beta() - p._log_beta() + inner


@register_kl(Dirichlet, Dirichlet)
def _(p, q):
    a, b = p.concentration, q.concentration
    inner = ((a - b) * (digamma(a) - digamma(a.sum(-1, keepdims=True)))).sum(-1)
    return q._log_normalizer() - p._log_normalizer() + inner
