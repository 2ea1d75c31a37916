"""Distributions of vectors, and distributions made of others: `MultivariateNormal`, `OneHotCategorical`, `Independent`,
`MixtureSameFamily`. Names and arguments are PyTorch's."""

from __future__ import annotations

import math
from typing import Any

from tengen import functional as F
from tengen import linalg, random
from tengen.base.errors import ArgumentError, ShapeError
from tengen.distributions.constraints import (
    Constraint,
    MixtureSameFamilyConstraint,
    dependent_property,
    independent,
    lower_cholesky,
    one_hot,
    positive_definite,
    real_vector,
    simplex,
)
from tengen.distributions.discrete import Categorical
from tengen.distributions.distribution import Distribution, as_float, kl_divergence, register_kl
from tengen.ops.define import REGISTRY, broadcast_shapes
from tengen.tensor import Tensor


class MultivariateNormal(Distribution):
    """The normal distribution of vectors: mean `loc`, and one of covariance_matrix, precision_matrix and scale_tril.

    Shapes: loc (..., D), matrices (..., D, D); event_shape (D,)
    Args: scale_tril: the lower triangular factor L of the covariance L L^T, with a positive diagonal.
    Errors: ArgumentError for none or several of the matrices, ShapeError for extents that do not fit, LinAlgError for a matrix that is
        not positive definite

    >>> from tengen import functional as F
    >>> round(MultivariateNormal(F.zeros(2), F.eye(2)).log_prob(F.zeros(2)).item(), 4)
    -1.8379
    """

    has_rsample = True
    support = real_vector
    parameters = ("loc", "scale_tril")
    arg_constraints = {
        "loc": real_vector,
        "covariance_matrix": positive_definite,
        "precision_matrix": positive_definite,
        "scale_tril": lower_cholesky,
    }

    def __init__(self, loc: Any, covariance_matrix: Any = None, precision_matrix: Any = None, scale_tril: Any = None):
        given = [m for m in (covariance_matrix, precision_matrix, scale_tril) if m is not None]
        loc = as_float(loc)
        if len(given) != 1:
            raise ArgumentError("MultivariateNormal: one of covariance_matrix, precision_matrix and scale_tril is needed")
        m = as_float(given[0])
        if loc.ndim < 1 or m.ndim < 2 or m.shape[-2:] != (loc.shape[-1],) * 2:
            raise ShapeError(f"MultivariateNormal: loc {loc.shape} needs matrices (..., D, D) of its last extent, got {m.shape}")
        if covariance_matrix is not None:
            m = linalg.cholesky(m)
        elif precision_matrix is not None:
            m = linalg.cholesky(linalg.inv(m))
        batch = broadcast_shapes(loc.shape[:-1], m.shape[:-2])
        n = loc.shape[-1]
        self.loc, self.scale_tril = REGISTRY["broadcast_to"](loc, (*batch, n)), REGISTRY["broadcast_to"](m, (*batch, n, n))
        super().__init__(batch, (n,))

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        noise = random.normal(0.0, 1.0, shape).astype(self.loc.dtype)
        return self.loc + F.squeeze(F.matmul(self.scale_tril, F.expand_dims(noise, -1)), -1)

    @property
    def covariance_matrix(self) -> Tensor:
        """The covariances (..., D, D)."""
        return F.matmul(self.scale_tril, F.swapaxes(self.scale_tril, -1, -2))

    @property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariances."""
        return linalg.inv(self.covariance_matrix)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return (self.scale_tril * self.scale_tril).sum(-1)

    def _half_log_det(self) -> Tensor:
        n = self.event_shape[0]
        return F.log(F.diagonal(self.scale_tril, 0, -2, -1)).sum(-1) if n else F.zeros(self.batch_shape)

    def log_prob(self, value: Any) -> Tensor:
        d = as_float(value) - self.loc
        z = _solved(self.scale_tril, d)
        return (z * z).sum(-1) * -0.5 - self._half_log_det() - 0.5 * math.log(2 * math.pi) * self.event_shape[0]

    def entropy(self) -> Tensor:
        return self._half_log_det() + 0.5 * (1 + math.log(2 * math.pi)) * self.event_shape[0]


def _solved(tril: Tensor, d: Tensor) -> Tensor:
    """L^-1 d for vectors d, whose leading axes may be more than those of L."""
    shape = broadcast_shapes(tril.shape[:-1], d.shape)
    tril = REGISTRY["broadcast_to"](tril, (*shape, shape[-1]))
    return F.squeeze(linalg.solve_triangular(tril, F.expand_dims(REGISTRY["broadcast_to"](d, shape), -1), upper=False), -1)


@register_kl(MultivariateNormal, MultivariateNormal)
def _(p: MultivariateNormal, q: MultivariateNormal) -> Tensor:
    d = _solved(q.scale_tril, p.loc - q.loc)
    batch = broadcast_shapes(p.batch_shape, q.batch_shape)
    n = p.event_shape[0]
    of_p, of_q = (REGISTRY["broadcast_to"](x.scale_tril, (*batch, n, n)) for x in (p, q))
    spread = linalg.solve_triangular(of_q, of_p, upper=False)
    return 0.5 * ((spread * spread).sum((-2, -1)) + (d * d).sum(-1) - n) + q._half_log_det() - p._half_log_det()


class OneHotCategorical(Distribution):
    """One of K classes, as a vector of zeros with a one. Args: probs or logits, as of `Categorical`.

    >>> round(OneHotCategorical(logits=Tensor([0.0, 0.0])).log_prob(Tensor([1.0, 0.0])).item(), 4)
    -0.6931
    """

    support = one_hot
    arg_constraints = {"probs": simplex, "logits": real_vector}

    def __init__(self, probs: Any = None, logits: Any = None):
        self._categorical = Categorical(probs=probs, logits=logits)
        self.probs, self.logits = self._categorical.probs, self._categorical.logits
        super().__init__(self._categorical.batch_shape, (self.probs.shape[-1],))

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        drawn = self._categorical._draw(shape[:-1])
        return F.one_hot(drawn, shape[-1]).astype(self.probs.dtype)

    @property
    def param_shape(self) -> tuple[int, ...]:
        """The shape of `probs`."""
        return self.probs.shape

    def _values(self) -> Tensor:
        return F.eye(self.probs.shape[-1], dtype=self.probs.dtype)

    @property
    def mode(self) -> Tensor:
        return F.one_hot(self._categorical.mode, self.probs.shape[-1]).astype(self.probs.dtype)

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def variance(self) -> Tensor:
        return self.probs * (1.0 - self.probs)

    def log_prob(self, value: Any) -> Tensor:
        return self._categorical.log_prob(F.argmax(as_float(value), -1))

    def entropy(self) -> Tensor:
        return self._categorical.entropy()


@register_kl(OneHotCategorical, OneHotCategorical)
def _(p: OneHotCategorical, q: OneHotCategorical) -> Tensor:
    return kl_divergence(p._categorical, q._categorical)


class Independent(Distribution):
    """Another distribution, of whose copies the last axes are one event: densities are products over them.

    Args: base_distribution; reinterpreted_batch_ndims: how many of the last axes of its copies.
    Errors: ShapeError for more axes than there are

    >>> from tengen.distributions import Normal
    >>> d = Independent(Normal(Tensor([0.0, 0.0]), 1.0), 1)
    >>> d.batch_shape, d.event_shape, round(d.log_prob(Tensor([0.0, 0.0])).item(), 4)
    ((), (2,), -1.8379)
    """

    def __init__(self, base_distribution: Distribution, reinterpreted_batch_ndims: int):
        base, n = base_distribution, reinterpreted_batch_ndims
        if not 0 <= n <= len(base.batch_shape):
            raise ShapeError(f"Independent: reinterpreted_batch_ndims={n} of a distribution of batch_shape {base.batch_shape}")
        self.base_dist, self.reinterpreted_batch_ndims = base, n
        self.has_rsample = base.has_rsample
        cut = len(base.batch_shape) - n
        super().__init__(base.batch_shape[:cut], (*base.batch_shape[cut:], *base.event_shape))

    @dependent_property
    def support(self) -> Constraint:
        """The base's set, of each element of an event."""
        base, n = self.base_dist.support, self.reinterpreted_batch_ndims
        return independent(base, n) if n else base

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        return self.base_dist._draw(shape)

    def _summed(self, x: Tensor) -> Tensor:
        return x.sum(tuple(range(-self.reinterpreted_batch_ndims, 0))) if self.reinterpreted_batch_ndims else x

    @property
    def mode(self) -> Tensor:
        return self.base_dist.mode

    @property
    def mean(self) -> Tensor:
        return self.base_dist.mean

    @property
    def variance(self) -> Tensor:
        return self.base_dist.variance

    def log_prob(self, value: Any) -> Tensor:
        return self._summed(self.base_dist.log_prob(value))

    def entropy(self) -> Tensor:
        return self._summed(self.base_dist.entropy())


@register_kl(Independent, Independent)
def _(p: Independent, q: Independent) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise ShapeError(f"kl_divergence of Independents over {p.reinterpreted_batch_ndims} and {q.reinterpreted_batch_ndims} axes")
    return p._summed(kl_divergence(p.base_dist, q.base_dist))


class MixtureSameFamily(Distribution):
    """A mixture: a component is drawn, and a value from it.

    Args: mixture_distribution: a `Categorical` over K components. component_distribution: a distribution whose last axis of copies is K.
    Errors: ShapeError where that axis does not fit

    >>> from tengen.distributions import Categorical, Normal
    >>> d = MixtureSameFamily(Categorical(probs=Tensor([0.5, 0.5])), Normal(Tensor([-1.0, 1.0]), 1.0))
    >>> d.mean.item(), d.variance.item()
    (0.0, 2.0)
    """

    def __init__(self, mixture_distribution: Categorical, component_distribution: Distribution):
        mix, parts = mixture_distribution, component_distribution
        k = mix.probs.shape[-1]
        if not parts.batch_shape or parts.batch_shape[-1] != k:
            raise ShapeError(f"MixtureSameFamily: {k} components are mixed, the last axis of {parts.batch_shape} is of {type(parts).__name__}")
        self.mixture_distribution, self.component_distribution = mix, parts
        super().__init__(parts.batch_shape[:-1], parts.event_shape)

    @dependent_property
    def support(self) -> Constraint:
        """What all components can have."""
        return MixtureSameFamilyConstraint(self.component_distribution.support)

    def _over_events(self, x: Tensor) -> Tensor:
        return F.reshape(x, (*x.shape, *(1,) * len(self.event_shape)))

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        lead = shape[: len(shape) - len(self.event_shape)]
        which = REGISTRY["broadcast_to"](F.expand_dims(self.mixture_distribution._draw(lead), -1), (*lead, 1))
        every = self.component_distribution._draw((*lead, self.mixture_distribution.probs.shape[-1], *self.event_shape))
        numbers = F.arange(every.shape[len(lead)], dtype=which.dtype.name)
        chosen = self._over_events(F.equal(which, numbers))
        return F.where(chosen, every, 0.0).sum(len(lead))

    @property
    def mean(self) -> Tensor:
        p = self._over_events(self.mixture_distribution.probs)
        return (p * self.component_distribution.mean).sum(-1 - len(self.event_shape))

    @property
    def variance(self) -> Tensor:
        axis = -1 - len(self.event_shape)
        p, of_each = self._over_events(self.mixture_distribution.probs), self.component_distribution.mean
        middle = (p * of_each).sum(axis, True)
        return (p * (self.component_distribution.variance + (of_each - middle) ** 2)).sum(axis)

    def log_prob(self, value: Any) -> Tensor:
        x = F.expand_dims(as_float(value), -1 - len(self.event_shape))
        return F.logsumexp(self.component_distribution.log_prob(x) + F.log_softmax(self.mixture_distribution.logits, -1), -1)


__all__ = ["Independent", "MixtureSameFamily", "MultivariateNormal", "OneHotCategorical"]
