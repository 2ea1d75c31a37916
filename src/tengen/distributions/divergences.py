"""Divergences of a distribution from one of another family, and of families whose own stand nowhere else.

Most are -(entropy of p) - E_p[log q(x)], where the expectation is a moment of p: its mean, variance, E[log x] or E[exp(-x / s)]. Where p
gives a probability to what q does not allow, they are infinite.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tengen import functional as F
from tengen.base.errors import ShapeError
from tengen.distributions.composed import MultivariateNormal
from tengen.distributions.continuous import EULER, HALF_LOG_2PI, Exponential, Gumbel, Laplace, Normal, Uniform
from tengen.distributions.discrete import Bernoulli, Binomial, Poisson
from tengen.distributions.distribution import kl_divergence, register_kl
from tengen.distributions.further import ContinuousBernoulli
from tengen.distributions.gamma_family import Beta, Gamma
from tengen.distributions.matrices import LowRankMultivariateNormal
from tengen.distributions.tails import Pareto
from tengen.distributions.transforms import Transform, TransformedDistribution
from tengen.ops.define import broadcast_shapes
from tengen.tensor import Tensor

log, exp, where = F.log, F.exp, F.where
_UNIT = (Beta, ContinuousBernoulli)  # on numbers of [0, 1]
_ANY = (Normal, Laplace, Gumbel)  # on all numbers


def _of(families: tuple[type, ...], q: type) -> Callable:
    """A decorator: a function of p and q that is the divergence of each of these families from q."""

    def keep(f: Callable) -> Callable:
        for p in families:
            register_kl(p, q)(f)
        return f

    return keep


# ---- E_p[log q(x)] -----------------------------------------------------------------------------------------------------------


def _mean_log(p: Any) -> Tensor:
    """E[log x] of a distribution of positive numbers."""
    if isinstance(p, Beta):
        return F.digamma(p.concentration1) - F.digamma(p.concentration1 + p.concentration0)
    if isinstance(p, Exponential):
        return -log(p.rate) - EULER
    if isinstance(p, Pareto):
        return log(p.scale) + 1.0 / p.alpha
    return _mean_log_between(p.low, p.high)


def _mean_log_between(low: Tensor, high: Tensor) -> Tensor:
    """E[log x] of an even distribution; where it begins below 0, any number, so that no NaN comes into gradients."""
    below = where(low <= 0.0, 0.0, low * log(where(low <= 0.0, 1.0, low)))
    high = where(high <= 0.0, 1.0, high)
    return (high * log(high) - below) / where(high == low, 1.0, high - low) - 1.0


def _mean_falling(p: Any, scale: Tensor) -> Tensor:
    """E[exp(-x / scale)]."""
    if isinstance(p, Exponential):
        return p.rate / (p.rate + 1.0 / scale)
    if isinstance(p, Gamma):
        return (1.0 + 1.0 / (p.rate * scale)) ** -p.concentration
    if isinstance(p, Normal):
        return exp(-p.loc / scale + 0.5 * (p.scale / scale) ** 2)
    return scale * (exp(-p.low / scale) - exp(-p.high / scale)) / (p.high - p.low)


@_of((*_UNIT, Exponential, Gamma, Gumbel, Laplace, Pareto, Uniform), Normal)
def _(p: Any, q: Normal) -> Tensor:
    shift = p.mean - q.loc
    return (p.variance + shift * shift) / (2.0 * q.scale * q.scale) + log(q.scale) + HALF_LOG_2PI - p.entropy()


@_of((*_UNIT, Gamma, Pareto), Exponential)
@_of((Beta, ContinuousBernoulli), ContinuousBernoulli)
def _(p: Any, q: Any) -> Tensor:
    return -p.entropy() - q.log_prob(p.mean)  # the logarithm of q's density is a line


@register_kl(Uniform, Exponential)
def _(p: Uniform, q: Exponential) -> Tensor:
    return where(p.low < 0.0, math.inf, q.rate * p.mean - log(q.rate) - p.entropy())


@register_kl(Uniform, ContinuousBernoulli)
def _(p: Uniform, q: ContinuousBernoulli) -> Tensor:
    outside = F.logical_or(p.low < 0.0, p.high > 1.0)
    return where(outside, math.inf, -p.entropy() - q.log_prob(where(outside, 0.5, p.mean)))


@_of((Beta, Exponential, Pareto, Uniform), Gamma)
def _(p: Any, q: Gamma) -> Tensor:
    a, rate = q.concentration, q.rate
    found = F.lgamma(a) - a * log(rate) - (a - 1.0) * _mean_log(p) + rate * p.mean - p.entropy()
    return where(p.low < 0.0, math.inf, found) if isinstance(p, Uniform) else found


@_of((Exponential, Gamma, Normal, Uniform), Gumbel)
def _(p: Any, q: Gumbel) -> Tensor:
    return log(q.scale) + (p.mean - q.loc) / q.scale + exp(q.loc / q.scale) * _mean_falling(p, q.scale) - p.entropy()


@register_kl(Normal, Laplace)
def _(p: Normal, q: Laplace) -> Tensor:
    far = (p.loc - q.loc) / (p.scale * math.sqrt(2.0))
    distance = p.scale * math.sqrt(2.0 / math.pi) * exp(-far * far) + (p.loc - q.loc) * F.erf(far)
    return log(2.0 * q.scale) + distance / q.scale - p.entropy()


@register_kl(Uniform, Beta)
def _(p: Uniform, q: Beta) -> Tensor:
    a, b = q.concentration1, q.concentration0
    whole = F.lgamma(a) + F.lgamma(b) - F.lgamma(a + b)
    logs = (a - 1.0) * _mean_log(p) + (b - 1.0) * _mean_log_between(1.0 - p.high, 1.0 - p.low)
    return where(F.logical_or(p.low < 0.0, p.high > 1.0), math.inf, whole - logs - p.entropy())


@_of(_UNIT, Uniform)
def _(p: Any, q: Uniform) -> Tensor:
    return where(F.logical_and(q.low <= 0.0, q.high >= 1.0), log(q.high - q.low) - p.entropy(), math.inf)


@register_kl(Pareto, Pareto)
def _(p: Pareto, q: Pareto) -> Tensor:
    ratio = q.alpha / p.alpha
    return where(p.scale < q.scale, math.inf, q.alpha * log(p.scale / q.scale) - log(ratio) + ratio - 1.0)


@register_kl(Uniform, Pareto)
def _(p: Uniform, q: Pareto) -> Tensor:
    found = (q.alpha + 1.0) * _mean_log(p) - log(q.alpha) - q.alpha * log(q.scale) - p.entropy()
    return where(p.low < q.scale, math.inf, found)


@register_kl(Bernoulli, Poisson)
def _(p: Bernoulli, q: Poisson) -> Tensor:
    return q.rate - p.probs * log(q.rate) - p.entropy()


@_of((Exponential, Gamma, *_ANY, Pareto), Beta)
@_of((Exponential, Gamma, *_ANY, Pareto), ContinuousBernoulli)
@_of((Exponential, Gamma, *_ANY, Pareto), Uniform)
@_of((*_UNIT, Exponential, Gamma, *_ANY), Pareto)
@_of(_ANY, Exponential)
@_of(_ANY, Gamma)
@_of((Poisson,), Bernoulli)
@_of((Poisson,), Binomial)
def _(p: Any, q: Any) -> Tensor:
    return F.full(broadcast_shapes(p.batch_shape, q.batch_shape), math.inf)


# ---- of vectors, and of what transforms made ---------------------------------------------------------------------------------


@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
@register_kl(LowRankMultivariateNormal, MultivariateNormal)
@register_kl(MultivariateNormal, LowRankMultivariateNormal)
def _(p: Any, q: Any) -> Tensor:
    whole = (MultivariateNormal(d.loc, covariance_matrix=d.covariance_matrix) for d in (p, q))
    return kl_divergence(*whole)


@register_kl(TransformedDistribution, TransformedDistribution)
def _(p: TransformedDistribution, q: TransformedDistribution) -> Tensor:
    if not _alike(p.transforms, q.transforms):
        raise NotImplementedError(
            f"kl_divergence of distributions by other transforms, {p.transforms} and {q.transforms}, is not known; help: the mean of "
            "p.log_prob(x) - q.log_prob(x) over samples x of p"
        )
    if p.event_shape != q.event_shape:
        raise ShapeError(f"kl_divergence of events of shapes {p.event_shape} and {q.event_shape}")
    found = kl_divergence(p.base_dist, q.base_dist)
    more = len(p.event_shape) - len(p.base_dist.event_shape)
    return found.sum(tuple(range(-more, 0))) if more > 0 else found


def _alike(a: Any, b: Any) -> bool:
    """Whether two transforms, or lists of them, compute the same."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, Tensor):
        return a.shape == b.shape and bool((a == b).all().item())
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(_alike, a, b))
    if isinstance(a, Transform):
        mine, other = ({k: v for k, v in vars(t).items() if not k.startswith("_")} for t in (a, b))
        return mine.keys() == other.keys() and all(_alike(mine[k], other[k]) for k in mine)
    return bool(a == b)


__all__: list[str] = []
