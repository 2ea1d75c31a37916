"""Transforms from all real numbers to a constraint: what optimisers and samplers of unconstrained numbers need.

In: a `Constraint`. Out: of `biject_to` a bijective `Transform` whose `log_abs_det_jacobian` is known, of `transform_to` one that need not be
bijective: it may take more numbers than are free, which suits gradient steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tengen.base.errors import ArgumentError
from tengen.distributions import constraints as c
from tengen.distributions.joined_transforms import CatTransform, StackTransform, StickBreakingTransform
from tengen.distributions.matrix_transforms import (
    CorrCholeskyTransform,
    LowerCholeskyTransform,
    PositiveDefiniteTransform,
    SoftmaxTransform,
)
from tengen.distributions.transforms import (
    AffineTransform,
    ComposeTransform,
    ExpTransform,
    IndependentTransform,
    SigmoidTransform,
    Transform,
    identity_transform,
)

_Factory = Callable[[Any], Transform]


class ConstraintRegistry:
    """Constraints and the transforms whose results lie in them.

    >>> from tengen import Tensor
    >>> from tengen.distributions import Normal, transform_to
    >>> transform_to(Normal.arg_constraints["scale"])(Tensor([0.0])).tolist()
    [1.0]
    """

    def __init__(self, name: str = "ConstraintRegistry"):
        self._name = name
        self._factories: dict[type, _Factory] = {}

    def register(self, constraint: Any, factory: _Factory | None = None) -> Any:
        """Gives constraints of a class a transform. Args: constraint: the class, or one of its objects. factory: a function of the constraint;
        without it this is a decorator."""
        if factory is None:
            return lambda f: self.register(constraint, f)
        kind = type(constraint) if isinstance(constraint, c.Constraint) else constraint
        if not (isinstance(kind, type) and issubclass(kind, c.Constraint)):
            raise ArgumentError(f"{self._name}.register: a Constraint or a class of them is needed, got {constraint!r}")
        self._factories[kind] = factory
        return factory

    def __call__(self, constraint: c.Constraint) -> Transform:
        """The transform to a constraint. Errors: NotImplementedError where there is none"""
        for kind in type(constraint).__mro__:
            if kind in self._factories:
                return self._factories[kind](constraint)
        raise NotImplementedError(f"{self._name}: no transform to {constraint!r} is known; help: {self._name}.register(constraint, factory)")


biject_to, transform_to = ConstraintRegistry("biject_to"), ConstraintRegistry("transform_to")


def _is(bound: Any, number: int) -> bool:
    return isinstance(bound, (int, float)) and bound == number


def _of_interval(to: Any) -> Transform:
    low, high = to.lower_bound, to.upper_bound
    if _is(low, 0) and _is(high, 1):
        return SigmoidTransform()
    return ComposeTransform([SigmoidTransform(), AffineTransform(low, high - low)])


def _above(to: Any) -> Transform:
    return ExpTransform() if _is(to.lower_bound, 0) else ComposeTransform([ExpTransform(), AffineTransform(to.lower_bound, 1)])


for _registry in (biject_to, transform_to):
    _registry.register(c.real, lambda to: identity_transform)
    _registry.register(c.greater_than, _above)
    _registry.register(c.less_than, lambda to: ComposeTransform([ExpTransform(), AffineTransform(to.upper_bound, -1)]))
    _registry.register(c.interval, _of_interval)
    _registry.register(c.corr_cholesky, lambda to: CorrCholeskyTransform())
    _registry.register(c.independent, lambda to, of=_registry: IndependentTransform(of(to.base_constraint), to.reinterpreted_batch_ndims))
    _registry.register(c.cat, lambda to, of=_registry: CatTransform([of(part) for part in to.cseq], to.dim, to.lengths))
    _registry.register(c.stack, lambda to, of=_registry: StackTransform([of(part) for part in to.cseq], to.dim))
biject_to.register(c.simplex, lambda to: StickBreakingTransform())
transform_to.register(c.simplex, lambda to: SoftmaxTransform())
transform_to.register(c.lower_cholesky, lambda to: LowerCholeskyTransform())
transform_to.register(c.positive_definite, lambda to: PositiveDefiniteTransform())
transform_to.register(c.positive_semidefinite, lambda to: PositiveDefiniteTransform())

__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]
