"""The sets that values of distributions and their parameters lie in. Names and arguments are those of `torch.distributions.constraints`.

In: tensors. Out: `check(x)`, which says for each value whether it is inside. A value has `event_dim` axes, the last ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tengen import functional as F
from tengen import linalg
from tengen.base.errors import ArgumentError, ShapeError
from tengen.tensor import Tensor


class Constraint:
    """A set of values. One of a name and a function, or a subclass that gives `check`.

    Args: name: what `repr` and errors show. inside: the function that `check` is. event_dim: how many of the last axes one value has: 0 for
        numbers, 1 for vectors (simplices), 2 for matrices. is_discrete: whether the values are isolated, as whole numbers are.

    >>> from tengen import Tensor
    >>> Constraint("even", lambda x: x % 2 == 0, is_discrete=True).check(Tensor([1.0, 2.0])).tolist()
    [False, True]
    """

    name = ""
    event_dim = 0
    is_discrete = False

    def __init__(
        self, name: str = "", inside: Callable[[Tensor], Tensor] | None = None, event_dim: int | None = None, is_discrete: bool | None = None
    ):
        self.name, self._inside = name or self.name, inside
        if event_dim is not None:
            self.event_dim = event_dim
        if is_discrete is not None:
            self.is_discrete = is_discrete

    def check(self, value: Tensor) -> Tensor:
        """Whether each value is inside: booleans of value's shape without its last `event_dim` axes."""
        if self._inside is None:
            raise NotImplementedError(f"{type(self).__name__} needs check()")
        return self._inside(value)

    def __repr__(self) -> str:
        return self.name or type(self).__name__


# ---- sets of numbers ---------------------------------------------------------------------------------------------------------------


def _both(a: Tensor, b: Tensor) -> Tensor:
    return F.logical_and(a, b)


def _shown(bound: Any) -> str:
    return (
        f"a tensor {bound.shape}" if isinstance(bound, Tensor) and bound.ndim else str(bound.tolist() if isinstance(bound, Tensor) else bound)
    )


class GreaterThan(Constraint):
    """Numbers above a bound. finite: infinity is outside.

    >>> from tengen import Tensor
    >>> greater_than(0.5).check(Tensor([0.5, 1.0])).tolist()
    [False, True]
    """

    def __init__(self, lower_bound: Any, *, name: str = "", finite: bool = False):
        super().__init__(name or f"greater_than({_shown(lower_bound)})")
        self.lower_bound, self._most = lower_bound, math.inf if finite else None

    def check(self, value: Tensor) -> Tensor:
        return self._finite(value, value > self.lower_bound)

    def _finite(self, value: Tensor, inside: Tensor) -> Tensor:
        return inside if self._most is None else _both(inside, value < self._most)


class GreaterThanEq(GreaterThan):
    """Numbers from a bound on."""

    def __init__(self, lower_bound: Any, *, name: str = "", finite: bool = False):
        super().__init__(lower_bound, name=name or f"greater_than_eq({_shown(lower_bound)})", finite=finite)

    def check(self, value: Tensor) -> Tensor:
        return self._finite(value, value >= self.lower_bound)


class LessThan(Constraint):
    """Numbers below a bound."""

    def __init__(self, upper_bound: Any):
        super().__init__(f"less_than({_shown(upper_bound)})")
        self.upper_bound = upper_bound

    def check(self, value: Tensor) -> Tensor:
        return value < self.upper_bound


class Interval(Constraint):
    """Numbers from one to another, both included."""

    def __init__(self, lower_bound: Any, upper_bound: Any, *, name: str = ""):
        super().__init__(name or f"{self._word}({_shown(lower_bound)}, {_shown(upper_bound)})")
        self.lower_bound, self.upper_bound = lower_bound, upper_bound

    _word = "interval"

    def check(self, value: Tensor) -> Tensor:
        return _both(value >= self.lower_bound, value <= self.upper_bound)


class HalfOpenInterval(Interval):
    """Numbers from one, which is included, to another, which is not."""

    _word = "half_open_interval"

    def check(self, value: Tensor) -> Tensor:
        return _both(value >= self.lower_bound, value < self.upper_bound)


def _whole(x: Tensor) -> Tensor:
    return F.floor(x) == x


class IntegerInterval(Constraint):
    """Whole numbers from one to another, both included.

    >>> from tengen import Tensor
    >>> integer_interval(1, 3).check(Tensor([0.0, 1.0, 2.5, 3.0])).tolist()
    [False, True, False, True]
    """

    is_discrete = True

    def __init__(self, lower_bound: Any, upper_bound: Any):
        super().__init__(f"integer_interval({_shown(lower_bound)}, {_shown(upper_bound)})")
        self.lower_bound, self.upper_bound = lower_bound, upper_bound

    def check(self, value: Tensor) -> Tensor:
        return _both(_both(value >= self.lower_bound, value <= self.upper_bound), _whole(value))


class IntegerGreaterThan(Constraint):
    """Finite whole numbers from one on."""

    is_discrete = True

    def __init__(self, lower_bound: Any, *, name: str = ""):
        super().__init__(name or f"integer_greater_than({_shown(lower_bound)})")
        self.lower_bound = lower_bound

    def check(self, value: Tensor) -> Tensor:
        return _both(_both(value >= self.lower_bound, value < math.inf), _whole(value))


class Real(Constraint):
    """Finite numbers."""

    name = "real"

    def check(self, value: Tensor) -> Tensor:
        return F.isfinite(value)


class Boolean(Constraint):
    """0 and 1."""

    name, is_discrete = "boolean", True

    def check(self, value: Tensor) -> Tensor:
        return F.logical_or(value == 0, value == 1)


# ---- sets of vectors and matrices ----------------------------------------------------------------------------------------------------


class Simplex(Constraint):
    """Vectors of numbers that are not negative and whose sum is 1 within 1e-5."""

    name, event_dim = "simplex", 1

    def check(self, value: Tensor) -> Tensor:
        return _both((value >= 0).all(-1), abs(value.sum(-1) - 1) < 1e-5)


class OneHot(Constraint):
    """Vectors of zeros with a one."""

    name, event_dim, is_discrete = "one_hot", 1, True

    def check(self, value: Tensor) -> Tensor:
        return _both(boolean.check(value).all(-1), value.sum(-1) == 1)


class Multinomial(Constraint):
    """Vectors of counts whose sum is the bound. PyTorch's takes a smaller sum, and fractions, too."""

    event_dim, is_discrete = 1, True

    def __init__(self, upper_bound: Any):
        super().__init__(f"multinomial({_shown(upper_bound)})")
        self.upper_bound = upper_bound

    def check(self, value: Tensor) -> Tensor:
        return _both(nonnegative_integer.check(value).all(-1), F.equal(value.sum(-1), self.upper_bound))


class _Matrices(Constraint):
    """Square matrices of a property."""

    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        if value.ndim < 2:
            raise ShapeError(f"{self.name}: matrices (..., n, n) are needed, got {value.shape}")
        if value.shape[-1] != value.shape[-2]:
            return F.zeros(value.shape[:-2], "bool")
        return self._of_square(value)

    def _of_square(self, x: Tensor) -> Tensor:
        return F.ones(x.shape[:-2], "bool")


class Square(_Matrices):
    """Matrices with as many rows as columns."""

    name = "square"


class LowerTriangular(_Matrices):
    """Matrices with zeros above the diagonal."""

    name = "lower_triangular"

    def _of_square(self, x: Tensor) -> Tensor:
        return (F.tril(x) == x).all((-2, -1))


class LowerCholesky(LowerTriangular):
    """Lower triangular matrices with a positive diagonal."""

    name = "lower_cholesky"

    def _of_square(self, x: Tensor) -> Tensor:
        return _both(super()._of_square(x), (F.diagonal(x, 0, -2, -1) > 0).all(-1))


class CorrCholesky(LowerCholesky):
    """Lower triangular matrices with a positive diagonal, whose rows have the length 1, the square within 1e-4: factors of correlations."""

    name = "corr_cholesky"

    def _of_square(self, x: Tensor) -> Tensor:
        return _both(super()._of_square(x), (abs((x * x).sum(-1) - 1) < 1e-4).all(-1))


class Symmetric(_Matrices):
    """Matrices that are their transposes, within 1e-5 of the largest element."""

    name = "symmetric"

    def _of_square(self, x: Tensor) -> Tensor:
        off = F.max(abs(x - F.swapaxes(x, -1, -2)), (-2, -1))
        return off <= 1e-5 * F.max(abs(x), (-2, -1))


class PositiveSemidefinite(Symmetric):
    """Symmetric matrices without a negative eigenvalue; rounding may make one of a singular matrix."""

    name = "positive_semidefinite"

    def _of_square(self, x: Tensor) -> Tensor:
        return _both(super()._of_square(x), F.min(linalg.eigvalsh(x), -1) >= 0)


class PositiveDefinite(Symmetric):
    """Symmetric matrices with positive eigenvalues."""

    name = "positive_definite"

    def _of_square(self, x: Tensor) -> Tensor:
        return _both(super()._of_square(x), F.min(linalg.eigvalsh(x), -1) > 0)


# ---- sets made of others ---------------------------------------------------------------------------------------------------------------


def _reduced(inside: Tensor, axes: int) -> Tensor:
    return inside.all(tuple(range(-axes, 0))) if axes else inside


class Independent(Constraint):
    """Another set, of whose values the last axes are one value, inside where all of them are.

    >>> from tengen import Tensor
    >>> independent(positive, 1).check(Tensor([[1.0, 2.0], [0.0, 1.0]])).tolist()
    [True, False]
    """

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int, *, name: str = ""):
        n = reinterpreted_batch_ndims
        super().__init__(name or f"independent({base_constraint}, {n})", None, base_constraint.event_dim + n, base_constraint.is_discrete)
        self.base_constraint, self.reinterpreted_batch_ndims = base_constraint, n

    def check(self, value: Tensor) -> Tensor:
        if value.ndim < self.event_dim:
            raise ShapeError(f"{self}: values of {self.event_dim} axes are needed, got {value.shape}")
        return _reduced(self.base_constraint.check(value), self.reinterpreted_batch_ndims)


class MixtureSameFamilyConstraint(Constraint):
    """Values that all components of a mixture can have."""

    def __init__(self, base_constraint: Constraint):
        super().__init__(f"mixture of {base_constraint}", None, base_constraint.event_dim, base_constraint.is_discrete)
        self.base_constraint = base_constraint

    def check(self, value: Tensor) -> Tensor:
        return self.base_constraint.check(F.expand_dims(value, -1 - self.event_dim)).all(-1)


class Cat(Constraint):
    """Sets of the parts of an axis, as `concat` joins them. Where the axis is one of a value's own, a value is inside where all parts are.

    Args: cseq: the sets. dim: the axis. lengths: the extent of each part; by default 1.
    """

    _word = "cat"

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0, lengths: Sequence[int] | None = None):
        self.cseq, self.dim = list(cseq), dim
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.cseq) or not self.cseq:
            raise ArgumentError(f"{self._word}: {len(self.cseq)} constraints and {len(self.lengths)} lengths")
        discrete = any(c.is_discrete for c in self.cseq)
        super().__init__(f"{self._word}({self.cseq}, dim={dim})", None, max(c.event_dim for c in self.cseq), discrete)

    def check(self, value: Tensor) -> Tensor:
        axis = self.dim + value.ndim if self.dim < 0 else self.dim
        if not 0 <= axis < value.ndim or value.shape[axis] != sum(self.lengths):
            raise ShapeError(f"{self._word}: axis {self.dim} of {value.shape} must have the extent {sum(self.lengths)}")
        ends = np.cumsum([0, *self.lengths]).tolist()
        lead = (slice(None),) * axis
        parts = [self._part(value[(*lead, slice(a, b))], axis) for a, b in zip(ends, ends[1:])]
        checks = [_reduced(c.check(p), self.event_dim - c.event_dim) for c, p in zip(self.cseq, parts)]
        if axis - value.ndim + self.event_dim < 0:
            return self._join(checks, axis)
        for c in checks[1:]:
            checks[0] = _both(checks[0], c)
        return checks[0]

    def _part(self, x: Tensor, axis: int) -> Tensor:
        return x

    def _join(self, checks: list[Tensor], axis: int) -> Tensor:
        return F.concat(checks, axis)


class Stack(Cat):
    """Sets of the parts of an axis with one element each, as `stack` joins them."""

    _word = "stack"

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0):
        super().__init__(cseq, dim)

    def _part(self, x: Tensor, axis: int) -> Tensor:
        return F.squeeze(x, axis)

    def _join(self, checks: list[Tensor], axis: int) -> Tensor:
        return F.stack(checks, axis)


class Dependent(Constraint):
    """A set that depends on other values, which are not known here."""

    name = "dependent"

    def __init__(self, *, is_discrete: bool = False, event_dim: int = 0):
        super().__init__("", None, event_dim, is_discrete)

    def __call__(self, *, is_discrete: bool = False, event_dim: int = 0) -> Dependent:
        return Dependent(is_discrete=is_discrete, event_dim=event_dim)

    def check(self, value: Tensor) -> Tensor:
        raise ValueError("a dependent constraint is known of a distribution, not of its class; help: take it from the object")


class dependent_property(property, Dependent):
    """A decorator for a property that gives a set for each object, while the class's attribute is a dependent one.

    >>> from tengen.distributions import Uniform
    >>> is_dependent(Uniform.support), is_dependent(Uniform(0.0, 1.0).support)
    (True, False)
    """

    def __init__(self, fn: Callable | None = None, *, is_discrete: bool = False, event_dim: int = 0):
        property.__init__(self, fn)
        Dependent.__init__(self, is_discrete=is_discrete, event_dim=event_dim)

    def __call__(self, fn: Callable) -> Any:  # type: ignore[override]  # a decorator with arguments
        return dependent_property(fn, is_discrete=self.is_discrete, event_dim=self.event_dim)


def is_dependent(constraint: Any) -> bool:
    """Whether a set depends on values that it does not know."""
    return isinstance(constraint, Dependent)


# ---- the names of PyTorch --------------------------------------------------------------------------------------------------------------

dependent = Dependent()
independent, cat, stack = Independent, Cat, Stack
greater_than, greater_than_eq, less_than = GreaterThan, GreaterThanEq, LessThan
interval, half_open_interval, integer_interval, multinomial = Interval, HalfOpenInterval, IntegerInterval, Multinomial
real, boolean, simplex, one_hot = Real(), Boolean(), Simplex(), OneHot()
real_vector = Independent(real, 1, name="real_vector")
positive, nonnegative = GreaterThan(0.0, name="positive", finite=True), GreaterThanEq(0.0, name="nonnegative", finite=True)
unit_interval = Interval(0.0, 1.0, name="unit_interval")
nonnegative_integer, positive_integer = (IntegerGreaterThan(0, name="nonnegative_integer"), IntegerGreaterThan(1, name="positive_integer"))
square, symmetric, lower_triangular, lower_cholesky = Square(), Symmetric(), LowerTriangular(), LowerCholesky()
corr_cholesky, positive_semidefinite, positive_definite = CorrCholesky(), PositiveSemidefinite(), PositiveDefinite()

__all__ = [
    "Constraint", "MixtureSameFamilyConstraint", "boolean", "cat", "corr_cholesky", "dependent", "dependent_property", "greater_than",
    "greater_than_eq", "half_open_interval", "independent", "integer_interval", "interval", "is_dependent", "less_than", "lower_cholesky",
    "lower_triangular", "multinomial", "nonnegative", "nonnegative_integer", "one_hot", "positive", "positive_definite",
    "positive_integer", "positive_semidefinite", "real", "real_vector", "simplex", "square", "stack", "symmetric", "unit_interval",
]  # fmt: skip
