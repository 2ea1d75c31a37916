"""Distributions of whole numbers. Probabilities may be given as they are, or as logits: log-odds of one outcome, or
log-probabilities up to a constant of many."""

from __future__ import annotations

import math
from typing import Any

from tengen import functional as F
from tengen.distributions.constraints import (
    Constraint,
    boolean,
    dependent_property,
    integer_interval,
    nonnegative,
    nonnegative_integer,
    real,
    real_vector,
    simplex,
    unit_interval,
)
from tengen.distributions.distribution import Distribution, as_float, register_kl, together, within
from tengen.random.state import default_rng
from tengen.tensor import Tensor

log, exp, log1p, lgamma, where = F.log, F.exp, F.log1p, F.lgamma, F.where
softplus = F.softplus


def times_log(x: Tensor, p: Tensor) -> Tensor:
    """x log p, which is 0 where x is, also for p = 0."""
    return where(x == 0.0, 0.0, x * log(where(x == 0.0, 1.0, p)))


class Odds(Distribution):
    """What has a probability of success, given as `probs` or as `logits`."""

    parameters = ("probs",)
    arg_constraints: Any = {"probs": unit_interval, "logits": real}

    def _take(self, probs: Any, logits: Any, allowed: Any = None, **more: Any) -> list[Tensor]:
        if (probs is None) == (logits is None):
            raise ValueError(f"{type(self).__name__} takes either probs or logits")
        if probs is not None:
            self.probs, *rest = together(self, {"probs": probs, **more}, allowed)
            self._logits = None
        else:
            self._logits, *rest = together(self, {"logits": logits, **more}, allowed)
            self.probs = F.sigmoid(self._logits)
        super().__init__(self.probs.shape)
        return rest

    @property
    def logits(self) -> Tensor:
        """The log-odds."""
        return log(self.probs) - log1p(-self.probs) if self._logits is None else self._logits

    def _log_weights(self, wins: Tensor, losses: Tensor) -> Tensor:
        """wins log p + losses log(1 - p)."""
        if self._logits is not None:
            return -(wins * softplus(-self._logits) + losses * softplus(self._logits))
        return times_log(wins, self.probs) + times_log(losses, 1.0 - self.probs)

    def _one_entropy(self) -> Tensor:
        """Of a single trial."""
        return -self._log_weights(self.probs, 1.0 - self.probs)


class Bernoulli(Odds):
    """1 with probability p, else 0."""

    support = boolean

    def __init__(self, probs: Any = None, logits: Any = None):
        self._take(probs, logits)

    def _draw(self, shape):
        lead = shape[: len(shape) - len(self.batch_shape)]
        return default_rng.bernoulli(self.probs.detach(), lead)

    def _values(self) -> Tensor:
        return F.arange(2, dtype=self.probs.dtype.name)

    @property
    def mode(self):
        return where(self.probs == 0.5, math.nan, where(self.probs > 0.5, 1.0, 0.0).astype(self.probs.dtype))

    @property
    def mean(self):
        return self.probs

    @property
    def variance(self):
        return self.probs * (1.0 - self.probs)

    def log_prob(self, value):
        x = as_float(value)
        return within(boolean.check(x), x, lambda v: self._log_weights(v, 1.0 - v), 0.0)

    def entropy(self):
        return self._one_entropy()


class Geometric(Odds):
    """The number of failures before the first success: 0, 1, ... with probability p (1 - p)^k."""

    support = nonnegative_integer

    def __init__(self, probs: Any = None, logits: Any = None):
        self._take(probs, logits)

    def _draw(self, shape):
        u = default_rng.open_uniform(shape)
        p = self.probs.detach().astype("float64")
        return F.floor(where(p == 1.0, 0.0, log(u) / log1p(-where(p == 1.0, 0.5, p)))).astype(self.probs.dtype)

    @property
    def mode(self):
        return F.zeros_like(self.probs)

    @property
    def mean(self):
        return 1.0 / self.probs - 1.0

    @property
    def variance(self):
        return (1.0 / self.probs - 1.0) / self.probs

    def log_prob(self, value):
        x = as_float(value)
        return within(nonnegative_integer.check(x), x, lambda v: self._log_weights(v * 0.0 + 1.0, v), 0.0)

    def entropy(self):
        return self._one_entropy() / self.probs

    def cdf(self, value):
        k = F.floor(F.maximum(as_float(value), -1.0))
        return -F.expm1(times_log(k + 1.0, 1.0 - self.probs))


class Binomial(Odds):
    """The number of successes in `total_count` trials."""

    parameters = ("total_count", "probs")
    arg_constraints = {"total_count": nonnegative_integer, "probs": unit_interval, "logits": real}

    def __init__(self, total_count: Any = 1, probs: Any = None, logits: Any = None):
        (self.total_count,) = self._take(probs, logits, total_count=total_count)

    @dependent_property(is_discrete=True)
    def support(self):
        """0 to the number of trials."""
        return integer_interval(0, self.total_count)

    def _draw(self, shape):
        lead = shape[: len(shape) - len(self.batch_shape)]
        return default_rng.binomial(self.total_count, self.probs.detach(), lead)

    def _values(self) -> Tensor:
        most = self.total_count.numpy()
        if most.size and (most != most.flat[0]).any():
            raise NotImplementedError(f"Binomial.enumerate_support: the copies have several numbers of trials, {most.tolist()}")
        return F.arange(int(most.flat[0]) + 1, dtype=self.probs.dtype.name)

    @property
    def mode(self):
        return F.minimum(F.floor((self.total_count + 1.0) * self.probs), self.total_count)

    @property
    def mean(self):
        return self.total_count * self.probs

    @property
    def variance(self):
        return self.total_count * self.probs * (1.0 - self.probs)

    def log_prob(self, value):
        x, n = as_float(value), self.total_count

        def mass(v):
            ways = lgamma(n + 1.0) - lgamma(v + 1.0) - lgamma(n - v + 1.0)
            return ways + self._log_weights(v, n - v)

        return within(self.support.check(x), x, mass, 0.0)


class Poisson(Distribution):
    """Counts of independent events: rate^k e^-rate / k!."""

    support = nonnegative_integer
    parameters = ("rate",)
    arg_constraints = {"rate": nonnegative}

    def __init__(self, rate: Any):
        (self.rate,) = together(self, {"rate": rate})
        super().__init__(self.rate.shape)

    def _draw(self, shape):
        return default_rng.poisson(self.rate.detach(), shape[: len(shape) - len(self.batch_shape)])

    @property
    def mode(self):
        return F.floor(self.rate)

    @property
    def mean(self):
        return self.rate

    @property
    def variance(self):
        return self.rate

    def log_prob(self, value):
        x = as_float(value)
        return within(nonnegative_integer.check(x), x, lambda v: times_log(v, self.rate) - self.rate - lgamma(v + 1.0), 0.0)


class Categorical(Distribution):
    """One of n outcomes, 0 to n - 1, by the last axis of `probs` (weights, which need not sum to 1) or `logits`. Samples are
    int64.

    Errors: ValueError unless exactly one of probs and logits is given
    """

    parameters = ("probs",)
    arg_constraints = {"probs": simplex, "logits": real_vector}

    def __init__(self, probs: Any = None, logits: Any = None):
        if (probs is None) == (logits is None):
            raise ValueError("Categorical takes either probs or logits")
        if probs is not None:
            (weights,) = together(self, {"probs": probs}, {"probs": nonnegative_weights})
            self.probs = weights / weights.sum(-1, keepdims=True)
            self.logits = log(self.probs)
        else:
            (raw,) = together(self, {"logits": logits})
            self.logits = F.logsoftmax(raw, -1)
            self.probs = exp(self.logits)
        super().__init__(self.probs.shape[:-1])

    @dependent_property(is_discrete=True)
    def support(self):
        """The numbers of the outcomes."""
        return integer_interval(0, self.probs.shape[-1] - 1)

    def _draw(self, shape):
        noise = -log(-log(default_rng.open_uniform((*shape, self.probs.shape[-1]))))
        return F.argmax(self.logits.detach().astype("float64") + noise, -1).astype("int64")

    @property
    def param_shape(self) -> tuple[int, ...]:
        """The shape of `probs`."""
        return self.probs.shape

    def _values(self) -> Tensor:
        return F.arange(self.probs.shape[-1], dtype="int64")

    @property
    def mode(self):
        return F.argmax(self.probs, -1).astype("int64")

    @property
    def mean(self):
        return self.probs.sum(-1) * math.nan

    @property
    def variance(self):
        return self.probs.sum(-1) * math.nan

    def log_prob(self, value):
        x = as_float(value)
        inside = self.support.check(x)
        chosen = F.one_hot(where(inside, x, 0.0).astype("int64"), self.probs.shape[-1])
        found = where(chosen != 0, self.logits, 0.0).sum(-1)
        return where(inside, found, where(F.isnan(x), math.nan, -math.inf))

    def entropy(self):
        return -times_log(self.probs, self.probs).sum(-1)


def _weights(x: Tensor) -> Tensor:
    some = F.expand_dims(x.sum(-1) > 0.0, -1)
    return F.logical_and(F.logical_and(x >= 0.0, x < math.inf), some)


nonnegative_weights = Constraint("weights along the last axis, not negative and not all 0", _weights)


# ---- divergences -------------------------------------------------------------------------------------------------------


def _one_trial(p: Odds, q: Odds) -> Tensor:
    return p._log_weights(p.probs, 1.0 - p.probs) - q._log_weights(p.probs, 1.0 - p.probs)


@register_kl(Bernoulli, Bernoulli)
def _(p, q):
    return _one_trial(p, q)


@register_kl(Geometric, Geometric)
def _(p, q):
    return _one_trial(p, q) / p.probs


@register_kl(Binomial, Binomial)
def _(p, q):
    """Of equal numbers of trials; inf where p has more, NaN where q has."""
    other = where(p.total_count > q.total_count, math.inf, math.nan)
    return where(p.total_count == q.total_count, _one_trial(p, q) * p.total_count, other)


@register_kl(Poisson, Poisson)
def _(p, q):
    return p.rate * log(p.rate / q.rate) - p.rate + q.rate


@register_kl(Categorical, Categorical)
def _(p, q):
    return (times_log(p.probs, p.probs) - where(p.probs == 0.0, 0.0, p.probs * where(p.probs == 0.0, 0.0, q.logits))).sum(-1)
