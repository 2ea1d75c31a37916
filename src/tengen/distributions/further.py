"""Distributions that few programs use, with PyTorch's names and arguments: counts of failures and of many outcomes, angles, and relaxations of
discrete ones, through whose samples gradients flow."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from tengen import functional as F
from tengen.distributions.composed import OneHotCategorical
from tengen.distributions.constraints import (
    dependent_property,
    greater_than_eq,
    half_open_interval,
    multinomial,
    nonnegative_integer,
    positive,
    real,
    real_vector,
    simplex,
    unit_interval,
)
from tengen.distributions.discrete import Categorical, Odds, times_log
from tengen.distributions.distribution import Distribution, as_float, together, within
from tengen.functional import bessel
from tengen.random.state import default_rng
from tengen.tensor import Tensor

log, exp, lgamma, where, softplus = F.log, F.exp, F.lgamma, F.where, F.softplus


class NegativeBinomial(Odds):
    """The number of successes before `total_count` failures. Args: total_count: not negative, also a fraction; probs or logits of a success.

    >>> NegativeBinomial(5.0, probs=Tensor([0.5])).mean.tolist()
    [5.0]
    """

    support = nonnegative_integer
    parameters = ("total_count", "probs")
    arg_constraints = {"total_count": greater_than_eq(0.0), "probs": half_open_interval(0.0, 1.0), "logits": real}

    def __init__(self, total_count: Any, probs: Any = None, logits: Any = None):
        (self.total_count,) = self._take(probs, logits, total_count=total_count)

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        lead = shape[: len(shape) - len(self.batch_shape)]
        n, odds = self.total_count.detach(), exp(self.logits.detach())
        rate = default_rng.gamma(where(n > 0.0, n, 1.0), where(n > 0.0, odds, 0.0), lead)
        return default_rng.poisson(rate).astype(self.probs.dtype)

    @property
    def mode(self) -> Tensor:
        return F.floor(F.maximum(self.total_count - 1.0, 0.0) * exp(self.logits))

    @property
    def mean(self) -> Tensor:
        return self.total_count * exp(self.logits)

    @property
    def variance(self) -> Tensor:
        return self.mean / (1.0 - self.probs)

    def log_prob(self, value: Any) -> Tensor:
        x, n = as_float(value), self.total_count

        def mass(v: Tensor) -> Tensor:
            none = F.equal(n + v, 0.0)  # no failure is waited for: nothing happens with probability 1
            ways = lgamma(where(none, 1.0, n + v)) - lgamma(1.0 + v) - lgamma(where(F.equal(n, 0.0), 1.0, n))
            return where(F.logical_and(F.equal(n, 0.0), v > 0.0), -math.inf, ways + self._log_weights(v, n))

        return within(nonnegative_integer.check(x), x, mass, 0.0)


class Multinomial(Distribution):
    """How often each of K outcomes comes in `total_count` trials: vectors of counts. Args: total_count: a whole number for all copies; probs or
    logits as of `Categorical`.

    Errors: ValueError for a negative number of trials, TypeError for a fraction

    >>> round(Multinomial(2, probs=Tensor([0.5, 0.5])).log_prob(Tensor([1.0, 1.0])).item(), 4)
    -0.6931
    """

    parameters = ("probs",)
    arg_constraints = {"probs": simplex, "logits": real_vector}

    def __init__(self, total_count: int = 1, probs: Any = None, logits: Any = None):
        self.total_count = operator.index(total_count)
        if self.total_count < 0:
            raise ValueError(f"Multinomial: total_count={total_count} must not be negative")
        self._categorical = Categorical(probs=probs, logits=logits)
        self.probs, self.logits = self._categorical.probs, self._categorical.logits
        super().__init__(self._categorical.batch_shape, (self.probs.shape[-1],))

    @dependent_property(is_discrete=True, event_dim=1)
    def support(self):
        """Counts whose sum is the number of trials."""
        return multinomial(float(self.total_count))

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        drawn = self._categorical._draw((self.total_count, *shape[:-1]))
        return F.one_hot(drawn, shape[-1]).astype(self.probs.dtype).sum(0)

    @property
    def mean(self) -> Tensor:
        return self.probs * self.total_count

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1.0 - self.probs)

    def log_prob(self, value: Any) -> Tensor:
        x = as_float(value)
        inside = self.support.check(x)
        safe = where(F.expand_dims(inside, -1), x, 0.0)
        mass = math.lgamma(self.total_count + 1.0) - lgamma(safe + 1.0).sum(-1) + times_log(safe, self.probs).sum(-1)
        return where(inside, mass, where(F.isnan(x).any(-1), math.nan, -math.inf))


def _halves(t: Tensor, derivative: int) -> Tensor:
    """g(t) = log(sinh(t) / t), g'(t) or g''(t): by its series where |t| < 1/2, where the difference of two functions would cancel."""
    near = abs(t) < 0.5
    small, large = where(near, t, 0.25), where(near, 1.0, abs(t))
    series, square = t * 0.0, small * small
    for n in range(len(_SERIES), 0, -1):
        series = series * square + _SERIES[n - 1] * math.perm(2 * n, derivative)
    if derivative == 0:
        return where(near, series * square, large + F.log1p(-exp(-2.0 * large)) - log(2.0 * large))
    if derivative == 1:
        return where(near, series * small, F.sign(t) * (1.0 / F.tanh(large) - 1.0 / large))
    tail = 2.0 * exp(-large) / -F.expm1(-2.0 * large)  # 1 / sinh
    return where(near, series, 1.0 / (large * large) - tail * tail)


# of log(sinh(t) / t) in t^2, t^4, ...: 2^2n B_2n / (2n (2n)!), B being Bernoulli's numbers
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330)
_SERIES = [4**n * b / (2 * n * math.factorial(2 * n)) for n, b in enumerate(_BERNOULLI, 1)]


class ContinuousBernoulli(Odds):
    """Numbers of [0, 1] whose density at x is proportional to probs^x (1 - probs)^(1 - x): what a network with pixels between 0 and 1 means by
    its binary cross-entropy. probs is not the mean.

    Args: probs or logits of them. lims: PyTorch's bounds of its approximation near 1/2, accepted; here none is needed.
    Source: Loaiza-Ganem and Cunningham, "The continuous Bernoulli", arXiv 1907.06845

    >>> round(ContinuousBernoulli(probs=Tensor([0.5])).log_prob(Tensor([0.7])).item(), 4)
    0.0
    """

    has_rsample = True
    support = unit_interval

    def __init__(self, probs: Any = None, logits: Any = None, lims: tuple[float, float] = (0.499, 0.501)):
        self._take(probs, logits)
        if self._logits is None:  # at 0 and 1 the density has no bound: as in PyTorch, the nearest numbers that have
            eps = float(np.finfo(self.probs.dtype.compute.numpy).eps)
            self.probs = F.clip(self.probs, eps, 1.0 - eps)

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        return self.icdf(default_rng.open_uniform(shape).astype(self.probs.dtype))

    @property
    def mean(self) -> Tensor:
        return 0.5 + _halves(self.logits * 0.5, 1) * 0.5

    @property
    def variance(self) -> Tensor:
        return _halves(self.logits * 0.5, 2) * 0.25

    def log_prob(self, value: Any) -> Tensor:
        x, half = as_float(value), self.logits * 0.5
        return within(unit_interval.check(x), x, lambda v: half * (2.0 * v - 1.0) - _halves(half, 0), 0.5)

    def entropy(self) -> Tensor:
        half = self.logits * 0.5
        return _halves(half, 0) - half * _halves(half, 1)

    def cdf(self, value: Any) -> Tensor:
        x = F.clip(as_float(value), 0.0, 1.0)
        return self._of_falling(x, lambda v, n: F.expm1(n * v) / F.expm1(n), lambda v, n: v + n * 0.5 * v * (v - 1.0))

    def icdf(self, value: Any) -> Tensor:
        x = as_float(value)
        return self._of_falling(x, lambda v, n: F.log1p(v * F.expm1(n)) / n, lambda v, n: v - n * 0.5 * v * (v - 1.0))

    def _of_falling(self, x: Tensor, f: Any, near: Any) -> Tensor:
        """f of a density that falls, with logits n <= 0, which needs no large numbers; a rising one is that turned round. `near`: for n
        near 0."""
        rises = self.logits > 0.0
        n = where(rises, -self.logits, self.logits)
        flat, v = n > -1e-6, where(rises, 1.0 - x, x)
        found = where(flat, near(v, where(flat, n, 0.0)), f(v, where(flat, -1.0, n)))
        return where(rises, 1.0 - found, found)


class VonMises(Distribution):
    """Angles around `loc`, ever nearer to it with a larger `concentration`: exp(concentration cos(x - loc)) / (2 pi I_0(concentration)).

    Samples lie in [-pi, pi). Each is the first of 48 proposals that is accepted, by Best's and Fisher's rejection, which accepts two of three.
    Source: Best and Fisher, 1979
    """

    support = real
    parameters = ("loc", "concentration")
    arg_constraints = {"loc": real, "concentration": positive}

    def __init__(self, loc: Any, concentration: Any):
        self.loc, self.concentration = together(self, {"loc": loc, "concentration": concentration})
        super().__init__(self.loc.shape)

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        k = self.concentration.detach().astype("float64")
        tau = 1.0 + F.sqrt(1.0 + 4.0 * k * k)
        rho = (tau - F.sqrt(2.0 * tau)) / (2.0 * k)
        r = where(k < 1e-5, 1.0 / where(k < 1e-5, k, 1.0) + k, (1.0 + rho * rho) / (2.0 * where(k < 1e-5, 1.0, rho)))
        u1, u2, u3 = (default_rng.open_uniform((48, *shape)) for _ in range(3))
        z = F.cos(math.pi * u1)
        f = (1.0 + r * z) / (r + z)
        c = k * (r - f)
        accepted = F.logical_or(c * (2.0 - c) > u2, log(c / u2) + 1.0 >= c)
        first = F.expand_dims(F.argmax(accepted.astype("int32"), 0), 0)
        angle = F.squeeze(F.gather(F.sign(u3 - 0.5) * F.acos(F.clip(f, -1.0, 1.0)), 0, first), 0)
        return (F.mod(angle + self.loc.detach() + math.pi, 2 * math.pi) - math.pi).astype(self.loc.dtype)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def mean(self) -> Tensor:
        """The mean direction."""
        return self.loc

    @property
    def variance(self) -> Tensor:
        """The circular variance, 1 - I_1 / I_0."""
        return 1.0 - bessel.i1e(self.concentration) / bessel.i0e(self.concentration)

    def log_prob(self, value: Any) -> Tensor:
        k = self.concentration
        return k * (F.cos(as_float(value) - self.loc) - 1.0) - log(2 * math.pi * bessel.i0e(k))


class RelaxedBernoulli(Odds):
    """Numbers in (0, 1) that come near to 0 and 1 for a low temperature, as a smooth function of the parameters.

    Args: temperature: positive. Source: Maddison et al., arXiv 1611.00712; Jang et al., arXiv 1611.01144
    """

    has_rsample = True
    support = unit_interval
    parameters = ("temperature", "probs")

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None):
        (self.temperature,) = self._take(probs, logits, {**self.arg_constraints, "temperature": positive}, temperature=temperature)

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        u = default_rng.open_uniform(shape)
        noise = (log(u) - F.log1p(-u)).astype(self.probs.dtype)
        return F.sigmoid((self.logits + noise) / self.temperature)

    def log_prob(self, value: Any) -> Tensor:
        x = as_float(value)
        inside = F.logical_and(x > 0.0, x < 1.0)

        def density(v: Tensor) -> Tensor:
            near, far = log(v), F.log1p(-v)
            difference = self.logits - (near - far) * self.temperature
            return log(self.temperature) + difference - 2.0 * softplus(difference) - near - far

        return within(inside, x, density, 0.5)


class RelaxedOneHotCategorical(Distribution):
    """Vectors of the simplex that come near to one-hot ones for a low temperature (Gumbel-softmax), as a smooth function of the parameters.

    Args: temperature: positive, for all copies. probs or logits as of `Categorical`. Source: as of `RelaxedBernoulli`
    """

    shared = ("temperature",)
    has_rsample = True
    support = simplex
    parameters = ("temperature", "probs")
    arg_constraints = {"probs": simplex, "logits": real_vector}

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None):
        (self.temperature,) = together(self, {"temperature": temperature}, {"temperature": positive})
        self._categorical = Categorical(probs=probs, logits=logits)
        self.probs, self.logits = self._categorical.probs, self._categorical.logits
        super().__init__(self._categorical.batch_shape, (self.probs.shape[-1],))

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        noise = -log(-log(default_rng.open_uniform(shape)))
        return F.softmax((self.logits + noise.astype(self.probs.dtype)) / self.temperature, -1)

    def log_prob(self, value: Any) -> Tensor:
        x = as_float(value)
        inside = F.logical_and((x > 0.0).all(-1), abs(x.sum(-1) - 1.0) < 1e-5)
        n = self.probs.shape[-1]
        logs = log(where(F.expand_dims(inside, -1), x, 1.0 / n))
        score = self.logits - logs * self.temperature
        score = F.logsoftmax(score, -1).sum(-1)
        found = score + math.lgamma(n) + (n - 1) * log(self.temperature) - logs.sum(-1)
        return where(inside, found, where(F.isnan(x).any(-1), math.nan, -math.inf))


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """`OneHotCategorical` whose samples pass gradients on as if they were the probabilities. Source: Bengio et al., arXiv 1308.3432"""

    has_rsample = True

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        return super()._draw(shape).detach() + (self.probs - self.probs.detach())


__all__ = [
    "Multinomial", "NegativeBinomial", "OneHotCategoricalStraightThrough", "RelaxedBernoulli", "RelaxedOneHotCategorical", "VonMises",
]  # fmt: skip
