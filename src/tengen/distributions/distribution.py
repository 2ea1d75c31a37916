"""The base of distributions.

In: parameters, as numbers or tensors that broadcast. Out: samples, densities and moments as tensors, on the tape and in traces as
all others are. A distribution has ``batch_shape`` independent copies of an event of ``event_shape``.
"""

from __future__ import annotations

import copy
import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from tengen import functional as F
from tengen.base.arguments import check_flag
from tengen.base.dtype import promote
from tengen.base.errors import ShapeError
from tengen.distributions.constraints import Constraint, is_dependent, real
from tengen.ops.define import REGISTRY, broadcast_shapes
from tengen.tensor import Tensor, tracing


def _with_validation(init: Callable) -> Callable:
    """A constructor that takes `validate_args` where it does not name it itself."""
    if "validate_args" in inspect.signature(init).parameters:
        return init

    @functools.wraps(init)
    def construct(self: Any, *args: Any, validate_args: bool | None = None, **kwargs: Any) -> None:
        if validate_args is not None:
            check_flag(type(self).__name__, "validate_args", validate_args)
            self._validates = bool(validate_args)
        init(self, *args, **kwargs)

    return construct


class _Given:
    """An attribute of this name that the constructor sets, as the class has it: so `super().logits` finds it, as in PyTorch."""

    def __init__(self, name: str):
        self.name = name

    def __get__(self, d: Any, owner: type) -> Any:
        if d is None:
            return self
        if self.name not in vars(d):
            raise AttributeError(f"{type(d).__name__!r} object has no attribute {self.name!r}", name=self.name, obj=d)
        return vars(d)[self.name]


class Distribution:
    """Base class.

    Args:
        batch_shape: of the parameters. event_shape: of one event, () for numbers. validate_args: whether the parameters of a program's own
            class, attributes that `arg_constraints` names, are looked at; by default they are.

    Errors: ValueError for a parameter outside of its set; not in a trace, which does not know the values

    Attributes:
        has_rsample: whether `rsample` is there: samples through which gradients reach the parameters.
        support: the `Constraint` of the values.
        arg_constraints: the `Constraint` of each parameter, by its name; also of those that may be given instead, such as logits.
    """

    has_rsample = False
    support: Any = real
    arg_constraints: Any = {}
    parameters: tuple[str, ...] = ()  # what `repr` shows and `expand` broadcasts

    shared: tuple[str, ...] = ()  # attributes that are one tensor for all copies
    _validates = True  # whether parameters are looked at

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Every constructor takes PyTorch's `validate_args`: False leaves the look at the parameters out."""
        super().__init_subclass__(**kwargs)
        if "__init__" in cls.__dict__:
            cls.__init__ = _with_validation(cls.__init__)
        for name in cls.arg_constraints if isinstance(cls.arg_constraints, Mapping) else ():
            if not hasattr(cls, name):
                setattr(cls, name, _Given(name))

    def __init__(self, batch_shape: Sequence[int] = (), event_shape: Sequence[int] = (), validate_args: bool | None = None):
        self.batch_shape, self.event_shape = tuple(batch_shape), tuple(event_shape)
        if validate_args is not None:
            check_flag(type(self).__name__, "validate_args", validate_args)
            self._validates = bool(validate_args)
        if not type(self).__module__.startswith("tengen."):  # classes of this package look at theirs before
            for name, allowed in self.arg_constraints.items():
                if isinstance(value := vars(self).get(name), Tensor) and not is_dependent(allowed):
                    _look(self, name, value, allowed)

    @property
    def _validate_args(self) -> bool:
        """PyTorch's name, which programs with classes of their own ask for."""
        return self._validates

    def _validate_sample(self, value: Tensor) -> None:
        """Errors: ValueError for a value outside of the support, if values are looked at; for `log_prob` of programs' own classes."""
        _look(self, "a value", value, self.support)

    # -- what subclasses give ----------------------------------------------------------------------------------------------
    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        """Samples of an extended shape; through them gradients flow where `has_rsample` is true."""
        raise NotImplementedError(f"{type(self).__name__} needs _draw()")

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the density (or probability) at a value; -inf outside of the support. Values broadcast with the
        parameters."""
        self._lacks("log_prob")

    @property
    def mean(self) -> Tensor:
        """The expectation; NaN where there is none."""
        self._lacks("mean")

    @property
    def mode(self) -> Tensor:
        """A value whose density (or probability) is the largest; NaN where several are as large."""
        self._lacks("mode")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All values of a distribution of finitely many, along a first axis. Args: expand: for each copy; else once for all of them, with
        axes of extent 1.

        >>> from tengen.distributions import Bernoulli
        >>> Bernoulli(Tensor([0.2, 0.7])).enumerate_support().tolist()
        [[0.0, 0.0], [1.0, 1.0]]
        """
        values = self._values()
        values = values.reshape(values.shape[0], *(1,) * len(self.batch_shape), *self.event_shape)
        return REGISTRY["broadcast_to"](values, (values.shape[0], *self.batch_shape, *self.event_shape)) if expand else values

    def _values(self) -> Tensor:
        """All values along a first axis, of one copy."""
        raise NotImplementedError(f"{type(self).__name__} has no finite number of values to enumerate")

    @property
    def variance(self) -> Tensor:
        """The variance; NaN or inf where there is none."""
        self._lacks("variance")

    def entropy(self) -> Tensor:
        """The entropy in nats, of each copy."""
        self._lacks("entropy")

    def cdf(self, value: Any) -> Tensor:
        """The probability of a sample that is at most `value`."""
        self._lacks("cdf")

    def icdf(self, value: Any) -> Tensor:
        """The inverse of `cdf`."""
        self._lacks("icdf")

    # -- what follows from it ------------------------------------------------------------------------------------------------
    def sample(self, sample_shape: int | Sequence[int] = ()) -> Tensor:
        """Samples of the shape sample_shape + batch_shape + event_shape, from the generator of `tengen.random`; no gradient flows
        through them."""
        return self._draw(self._extended_shape(sample_shape)).detach()

    def rsample(self, sample_shape: int | Sequence[int] = ()) -> Tensor:
        """The same samples as a smooth function of the parameters, for gradients of expectations (the reparameterisation trick)."""
        if not self.has_rsample:
            raise NotImplementedError(
                f"{type(self).__name__} has no reparameterised samples; help: sample() and log_prob() give the score-function gradient"
            )
        return self._draw(self._extended_shape(sample_shape))

    @property
    def stddev(self) -> Tensor:
        """The root of the variance."""
        return F.sqrt(self.variance)

    def prob(self, value: Any) -> Tensor:
        """The density (or probability) at a value."""
        return F.exp(self.log_prob(value))

    def perplexity(self) -> Tensor:
        """e to the entropy."""
        return F.exp(self.entropy())

    def expand(self, batch_shape: Sequence[int]) -> Any:
        """The same distribution with a larger batch_shape, to which its parameters are broadcast. Errors: ShapeError for another shape

        >>> from tengen.distributions import Normal
        >>> Normal(0.0, 1.0).expand((2, 3)).sample((4,)).shape
        (4, 2, 3)
        """
        old, new = self.batch_shape, tuple(batch_shape)
        fits = len(old) <= len(new) and all(a in (1, b) for a, b in zip(reversed(old), reversed(new)))
        if not fits:
            raise ShapeError(f"{type(self).__name__}.expand({new}): the batch_shape {old} does not broadcast to it")
        made = copy.copy(self)
        for name, value in vars(self).items():  # parameters, what was computed of them, and distributions that this one is made of
            if name in self.shared:
                continue
            if isinstance(value, Tensor) and value.shape[: len(old)] == old:
                setattr(made, name, REGISTRY["broadcast_to"](_behind(value, old, new), (*new, *value.shape[len(old) :])))
            elif isinstance(value, Distribution) and value.batch_shape[: len(old)] == old:
                setattr(made, name, value.expand((*new, *value.batch_shape[len(old) :])))
        made.batch_shape = new
        return made

    def _extended_shape(self, sample_shape: int | Sequence[int]) -> tuple[int, ...]:
        lead = (sample_shape,) if isinstance(sample_shape, (int, np.integer)) else tuple(sample_shape)
        return (*lead, *self.batch_shape, *self.event_shape)

    def _lacks(self, what: str) -> NoReturn:
        raise NotImplementedError(f"{type(self).__name__} has no {what} in closed form here")

    def __repr__(self) -> str:
        shown = ", ".join(f"{n}: {_shown(getattr(self, n))}" for n in self.parameters)
        return f"{type(self).__name__}({shown})"


def _behind(t: Tensor, old: tuple[int, ...], new: tuple[int, ...]) -> Tensor:
    """The tensor with unit axes, behind which its batch's axes stand as the last ones of the new batch."""
    return F.reshape(t, (*(1,) * (len(new) - len(old)), *t.shape))


def _shown(t: Any) -> str:
    return str(t.tolist()) if isinstance(t, Tensor) and t.size < 8 and tracing.recorder is None else f"{getattr(t, 'shape', t)}"


def _look(owner: Distribution, name: str, value: Tensor, allowed: Constraint) -> None:
    """Errors: ValueError where values are not in their set, which a trace does not know."""
    if owner._validates and tracing.recorder is None and not np.all(allowed.check(value.detach()).numpy()):
        raise ValueError(f"{type(owner).__name__}: {name} must be {allowed}, got {_shown(value)}")


def together(owner: Distribution, given: dict[str, Any], allowed: Mapping[str, Constraint] | None = None) -> list[Tensor]:
    """Parameters as tensors of floats in their common shape and dtype. allowed: the set of each; by default `arg_constraints`.

    Errors: ValueError where one is outside of its set; not in a trace, which does not know the values.
    """
    allowed = owner.arg_constraints if allowed is None else allowed
    tensors = [as_float(v) for v in given.values()]
    d = functools.reduce(promote, (t.dtype for t in tensors))
    shape = broadcast_shapes(*(t.shape for t in tensors))
    for t, name in zip(tensors, given):
        _look(owner, name, t, allowed[name])
    tensors = [t if t.dtype is d else t.astype(d) for t in tensors]
    return [t if t.shape == shape else REGISTRY["broadcast_to"](t, shape) for t in tensors]


def as_float(value: Any) -> Tensor:
    """A tensor of floats; numbers and integers are float32."""
    t = value if isinstance(value, Tensor) else Tensor(np.float32(value) if isinstance(value, (int, float)) else value)
    return t if t.dtype.is_float else t.astype("float32")


def within(inside: Tensor, x: Tensor, formula: Callable[[Tensor], Tensor], harmless: float) -> Tensor:
    """formula(x) where x is inside, -inf elsewhere; NaN stays. Elsewhere the formula sees a harmless number, so that no NaN of
    it comes into gradients."""
    safe = F.where(inside, x, harmless)
    return F.where(inside, formula(safe), F.where(F.isnan(x), math.nan, -math.inf))


# ---- divergences -------------------------------------------------------------------------------------------------------

_DIVERGENCES: dict[tuple[type, type], Callable[[Any, Any], Tensor]] = {}


def register_kl(p: type, q: type) -> Callable:
    """A decorator: this function of two distributions is `kl_divergence` for these classes and those derived from them."""

    def keep(f: Callable) -> Callable:
        _DIVERGENCES[p, q] = f
        return f

    return keep


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """The Kullback-Leibler divergence E_p[log p(x) - log q(x)], of each copy.

    >>> from tengen.distributions import Normal, kl_divergence
    >>> kl_divergence(Normal(0.0, 1.0), Normal(1.0, 1.0)).item()
    0.5
    """
    for a in type(p).__mro__:
        for b in type(q).__mro__:
            if (a, b) in _DIVERGENCES:
                return _DIVERGENCES[a, b](p, q)
    raise NotImplementedError(
        f"no divergence of {type(p).__name__} from {type(q).__name__} is known; help: register_kl, or the mean of "
        "p.log_prob(x) - q.log_prob(x) over samples x of p"
    )
