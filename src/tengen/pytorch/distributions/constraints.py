"""`torch.distributions.constraints`: the sets that values of distributions and parameters lie in; `check(x)` says which elements do."""

from __future__ import annotations

from tengen.distributions import Constraint
from tengen.distributions.distribution import (
    boolean,
    integers,
    interval,
    nonnegative,
    nonnegative_integer,
    positive,
    real,
    simplex,
    unit_interval,
)
from tengen.distributions.matrices import corr_cholesky, positive_definite


def integer_interval(lower_bound: int, upper_bound: int) -> Constraint:
    """Whole numbers from one to another, both included.

    >>> from tengen import Tensor
    >>> integer_interval(1, 3).check(Tensor([0.0, 1.0, 2.5, 3.0])).tolist()
    [False, True, False, True]
    """
    inside = integers(upper_bound - lower_bound)
    return Constraint("integer_interval", lambda x: inside.check(x - lower_bound))


def greater_than(lower_bound: float) -> Constraint:
    """Numbers above a bound."""
    return Constraint("greater_than", lambda x: x > lower_bound)


def greater_than_eq(lower_bound: float) -> Constraint:
    """Numbers from a bound on."""
    return Constraint("greater_than_eq", lambda x: x >= lower_bound)


def less_than(upper_bound: float) -> Constraint:
    """Numbers below a bound."""
    return Constraint("less_than", lambda x: x < upper_bound)


__all__ = [
    "Constraint", "boolean", "corr_cholesky", "greater_than", "greater_than_eq", "integer_interval", "interval", "less_than", "nonnegative",
    "nonnegative_integer", "positive", "positive_definite", "real", "simplex", "unit_interval",
]  # fmt: skip
