"""Distributions of transformed values: y = f(x) of a base distribution's x, by the change of variables. Names and arguments are PyTorch's.

In: a distribution and invertible transforms. Out: `TransformedDistribution`, whose density at y is that of x less log |dy/dx|.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tengen import functional as F
from tengen.base.errors import ArgumentError
from tengen.distributions.composed import Independent
from tengen.distributions.constraints import (
    Constraint,
    dependent_property,
    independent,
    interval,
    nonnegative,
    positive,
    real,
    unit_interval,
)
from tengen.distributions.distribution import Distribution, as_float
from tengen.ops.define import broadcast_shapes
from tengen.tensor import Tensor


class Transform:
    """An invertible function of tensors. A subclass gives `_call`, `_inverse` and `log_abs_det_jacobian`.

    Args:
        cache_size: 1 keeps the last pair: the inverse of the very tensor that was computed is what it was computed of, without a rounding.
    Attributes:
        event_dim: how many of the last axes one value has: 0 for functions of each element, 1 for those of vectors. `log_abs_det_jacobian`
            has so many axes less.
        more_axes: how many more axes a result has than a value: 1 where vectors become matrices.
        domain: the `Constraint` of values. codomain: that of results; inner: a number inside of it.
        bijective: whether the inverse gives back the very value. sign: 1 for an increasing function, -1 for a decreasing one, and 0
            for what is neither.
    Errors: ArgumentError for another cache_size

    >>> from tengen.distributions import ExpTransform
    >>> [round(y, 4) for y in ExpTransform()(Tensor([0.0, 1.0])).tolist()]
    [1.0, 2.7183]
    """

    event_dim = 0
    more_axes = 0
    domain: Constraint = real
    codomain: Constraint = real
    bijective = True
    inner = 0.0
    sign = 0

    def __init__(self, cache_size: int = 0):
        if cache_size not in (0, 1):
            raise ArgumentError(f"{type(self).__name__}: cache_size={cache_size!r} must be 0 or 1")
        self._cache_size = cache_size
        self._last: tuple[Tensor, Tensor] | None = None

    def __call__(self, x: Any) -> Tensor:
        """f(x)."""
        x = as_float(x)
        y = self._call(x)
        if self._cache_size:
            self._last = (x, y)
        return y

    def inverse_of(self, y: Tensor) -> Tensor:
        """The x of y = f(x)."""
        return self._last[0] if self._last is not None and self._last[1] is y else self._inverse(as_float(y))

    @property
    def inv(self) -> Transform:
        """The inverse as a transform."""
        return _Inverse(self)

    def forward_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of f(x) for x of a shape."""
        return tuple(shape)

    def inverse_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of x for f(x) of a shape."""
        return tuple(shape)

    def _call(self, x: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} needs _call()")

    def _inverse(self, y: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no _inverse()")

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """The logarithm of |dy/dx|, of y = f(x)."""
        raise NotImplementedError(f"{type(self).__name__} has no log_abs_det_jacobian()")

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class _Inverse(Transform):
    """f^-1 of a transform f."""

    inner = 0.5  # inside of the domains of all transforms here

    def __init__(self, of: Transform):
        super().__init__()
        self.of, self.sign, self.bijective = of, of.sign, of.bijective
        self.event_dim, self.more_axes = of.event_dim + of.more_axes, -of.more_axes
        self.domain, self.codomain = of.codomain, of.domain

    @property
    def inv(self) -> Transform:
        """The transform whose inverse this is."""
        return self.of

    def _call(self, x: Tensor) -> Tensor:
        return self.of.inverse_of(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.of(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -self.of.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return self.of.inverse_shape(shape)

    def inverse_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return self.of.forward_shape(shape)


class ExpTransform(Transform):
    """e^x."""

    codomain, inner, sign = positive, 1.0, 1

    def _call(self, x: Tensor) -> Tensor:
        return F.exp(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return F.log(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x


class SigmoidTransform(Transform):
    """1 / (1 + e^-x)."""

    codomain, inner, sign = unit_interval, 0.5, 1

    def _call(self, x: Tensor) -> Tensor:
        return F.sigmoid(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return F.log(y) - F.log1p(-y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -F.softplus(-x) - F.softplus(x)


class TanhTransform(Transform):
    """tanh(x), as of policies with bounded actions (Haarnoja et al., arXiv 1801.01290)."""

    codomain, inner, sign = interval(-1.0, 1.0), 0.0, 1

    def _call(self, x: Tensor) -> Tensor:
        return F.tanh(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return F.atanh(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return 2.0 * (math.log(2.0) - x - F.softplus(-2.0 * x))  # log(1 - tanh^2) without cancellation


class SoftplusTransform(Transform):
    """log(1 + e^x)."""

    codomain, inner, sign = positive, 1.0, 1

    def _call(self, x: Tensor) -> Tensor:
        return F.softplus(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return F.log(-F.expm1(-y)) + y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -F.softplus(-x)


class PowerTransform(Transform):
    """x^exponent of positive numbers.

    Args: exponent: a number or a tensor, not 0.
    """

    domain, codomain, inner = positive, positive, 1.0

    def __init__(self, exponent: Any, cache_size: int = 0):
        super().__init__(cache_size)
        self.exponent = exponent
        self.sign = _sign(exponent)

    def _call(self, x: Tensor) -> Tensor:
        return x**self.exponent

    def _inverse(self, y: Tensor) -> Tensor:
        return y ** (1 / self.exponent)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return F.log(abs(self.exponent * y / x))

    def forward_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return broadcast_shapes(tuple(shape), _shape(self.exponent))


class AffineTransform(Transform):
    """loc + scale x.

    Args: loc, scale: numbers or tensors. event_dim: how many of the last axes are one value.
    """

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0, cache_size: int = 0):
        super().__init__(cache_size)
        self.loc, self.scale, self.event_dim = loc, scale, event_dim
        self.sign = _sign(scale)

    def _call(self, x: Tensor) -> Tensor:
        return self.loc + self.scale * x

    def _inverse(self, y: Tensor) -> Tensor:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        scale = self.scale if isinstance(self.scale, Tensor) else x * 0 + self.scale
        return summed(F.log(abs(scale)) + x * 0, self.event_dim)

    def forward_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return broadcast_shapes(tuple(shape), _shape(self.loc), _shape(self.scale))


class ComposeTransform(Transform):
    """Several transforms, the first one first.

    >>> y = ComposeTransform([AffineTransform(1.0, 2.0), ExpTransform()])(Tensor([0.0]))
    >>> round(y.item(), 4)
    2.7183
    """

    def __init__(self, parts: Sequence[Transform], cache_size: int = 0):
        super().__init__(cache_size)
        self.parts = list(parts)
        self.event_dim = 0
        for p in reversed(self.parts):
            self.event_dim = max(self.event_dim - p.more_axes, p.event_dim)
        self.more_axes = sum(p.more_axes for p in self.parts)
        self.sign, self.bijective = math.prod(p.sign for p in self.parts), all(p.bijective for p in self.parts)
        if self.parts:
            self.domain, self.codomain, self.inner = self.parts[0].domain, self.parts[-1].codomain, self.parts[-1].inner

    def _call(self, x: Tensor) -> Tensor:
        for p in self.parts:
            x = p(x)
        return x

    def _inverse(self, y: Tensor) -> Tensor:
        for p in reversed(self.parts):
            y = p.inverse_of(y)
        return y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        if not self.parts:
            return F.zeros_like(x)
        total: Any = 0.0
        events = self.event_dim
        for p in self.parts:
            y = p(x)
            total = total + summed(p.log_abs_det_jacobian(x, y), events - p.event_dim)
            x, events = y, events + p.more_axes
        return total

    def forward_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        for p in self.parts:
            shape = p.forward_shape(shape)
        return tuple(shape)

    def inverse_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        for p in reversed(self.parts):
            shape = p.inverse_shape(shape)
        return tuple(shape)


class IndependentTransform(Transform):
    """Another transform, of whose values the last axes are one value: `log_abs_det_jacobian` is summed over them.

    Args: base_transform; reinterpreted_batch_ndims: how many more axes a value has.
    """

    def __init__(self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0):
        super().__init__(cache_size)
        base, n = base_transform, reinterpreted_batch_ndims
        self.base_transform, self.reinterpreted_batch_ndims = base, n
        self.event_dim, self.more_axes = base.event_dim + n, base.more_axes
        self.sign, self.bijective, self.inner = base.sign, base.bijective, base.inner
        self.domain, self.codomain = (c if c is real else independent(c, n) for c in (base.domain, base.codomain))

    def _call(self, x: Tensor) -> Tensor:
        return self.base_transform(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.base_transform.inverse_of(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return summed(self.base_transform.log_abs_det_jacobian(x, y), self.reinterpreted_batch_ndims)

    def forward_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return self.base_transform.inverse_shape(shape)


class AbsTransform(Transform):
    """|x|, whose inverse gives the positive of two values.

    >>> AbsTransform()(Tensor([-1.0, 2.0])).tolist()
    [1.0, 2.0]
    """

    codomain, inner, bijective = nonnegative, 1.0, False

    def _call(self, x: Tensor) -> Tensor:
        return abs(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return y


identity_transform = ComposeTransform([])


def _sign(x: Any) -> int:
    """1 or -1 for numbers; 0 for tensors, whose elements may differ."""
    return 0 if isinstance(x, Tensor) else 1 if x > 0 else -1


def _shape(x: Any) -> tuple[int, ...]:
    return x.shape if isinstance(x, Tensor) else ()


def summed(x: Tensor, axes: int) -> Tensor:
    """The sum over so many of the last axes."""
    return x.sum(tuple(range(-axes, 0))) if axes else x


class TransformedDistribution(Distribution):
    """The distribution of f(x), for x of a base distribution.

    Args: base_distribution; transforms: one, or several, of which the first one is applied first.
    Errors: ArgumentError for what is no transform

    >>> from tengen.distributions import Normal
    >>> d = TransformedDistribution(Normal(0.0, 1.0), [ExpTransform()])  # LogNormal(0, 1)
    >>> round(d.log_prob(Tensor(1.0)).item(), 4), d.log_prob(Tensor(-1.0)).item()
    (-0.9189, -inf)
    """

    def __init__(self, base_distribution: Distribution, transforms: Transform | Sequence[Transform]):
        self.transforms = [transforms] if isinstance(transforms, Transform) else list(transforms)
        for t in self.transforms:
            if not isinstance(t, Transform):
                raise ArgumentError(f"TransformedDistribution: a {type(t).__name__} is no Transform")
        whole = ComposeTransform(self.transforms)
        base, events = base_distribution, whole.event_dim
        if events > len(base.event_shape):
            base = Independent(base, events - len(base.event_shape))
        self.base_dist, self.has_rsample = base, base.has_rsample
        shape: tuple[int, ...] = (*base.batch_shape, *base.event_shape)
        for t in self.transforms:
            shape = t.forward_shape(shape)
        cut = len(shape) - len(base.event_shape) - whole.more_axes
        super().__init__(shape[:cut], shape[cut:])

    @dependent_property
    def support(self) -> Constraint:
        """The last transform's codomain, of each element of an event."""
        found = self.transforms[-1].codomain if self.transforms else self.base_dist.support
        axes = len(self.event_shape) - found.event_dim
        return independent(found, axes) if axes > 0 else found

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        for t in reversed(self.transforms):
            shape = t.inverse_shape(shape)
        x = self.base_dist._draw(shape)
        for t in self.transforms:
            x = t(x)
        return x

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the density at a value; -inf outside of the support."""
        y, total, events = as_float(value), 0.0, len(self.event_shape)
        inside: Tensor | None = None
        for t in reversed(self.transforms):
            if t.codomain is not real:
                within, axes = t.codomain.check(y), t.codomain.event_dim
                each = F.reshape(within, (*within.shape, *(1,) * axes)) if axes else within
                safe = F.where(F.logical_or(each, F.isnan(y)), y, t.inner)  # elsewhere no NaN comes into gradients
                whole = within.all(tuple(range(axes - events, 0))) if events > axes else within
                inside = whole if inside is None else F.logical_and(inside, whole)
                x = t.inverse_of(y) if t._last is not None and t._last[1] is y else t.inverse_of(safe)
            else:
                x = t.inverse_of(y)
            events -= t.more_axes
            total = total - summed(t.log_abs_det_jacobian(x, y), events - t.event_dim)
            y = x
        total = total + self.base_dist.log_prob(y)
        if inside is None:
            return total
        return F.where(inside, total, F.where(F.isnan(total), math.nan, -math.inf))

    def _sign(self) -> int:
        sign = math.prod(t.sign for t in self.transforms)
        if not sign or self.event_shape:
            self._lacks("cdf")
        return sign

    def cdf(self, value: Any) -> Tensor:
        """The probability of a sample that is at most `value`, of increasing and decreasing transforms with a known sign."""
        sign, y = self._sign(), as_float(value)
        for t in reversed(self.transforms):
            y = t.inverse_of(y)
        below = self.base_dist.cdf(y)
        return below if sign > 0 else 1.0 - below

    def icdf(self, value: Any) -> Tensor:
        """The inverse of `cdf`."""
        sign, p = self._sign(), as_float(value)
        x = self.base_dist.icdf(p if sign > 0 else 1.0 - p)
        for t in self.transforms:
            x = t(x)
        return x

    def __repr__(self) -> str:
        return f"TransformedDistribution({self.base_dist!r}, {self.transforms!r})"
