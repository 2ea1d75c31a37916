"""The logistic normal distribution, of points of a simplex."""

from __future__ import annotations

from typing import Any

from tengen.distributions.constraints import positive, real, simplex
from tengen.distributions.continuous import Normal
from tengen.distributions.joined_transforms import StickBreakingTransform
from tengen.distributions.transforms import TransformedDistribution
from tengen.ops.define import REGISTRY
from tengen.tensor import Tensor


class LogisticNormal(TransformedDistribution):
    """D + 1 positive numbers whose sum is 1, which `StickBreakingTransform` makes of D normal variables.

    Shapes: loc, scale (..., D), or numbers for D = 1; event_shape (D + 1,)

    >>> LogisticNormal(Tensor([0.0, 0.0]), Tensor([1.0, 1.0])).event_shape
    (3,)
    """

    arg_constraints = {"loc": real, "scale": positive}
    support = simplex

    def __init__(self, loc: Any, scale: Any):
        base = Normal(loc, scale)
        if not base.batch_shape:
            base = Normal(REGISTRY["reshape"](base.loc, (1,)), REGISTRY["reshape"](base.scale, (1,)))
        super().__init__(base, StickBreakingTransform())

    @property
    def loc(self) -> Tensor:
        """The means of the normal variables."""
        return self.base_dist.base_dist.loc

    @property
    def scale(self) -> Tensor:
        """Their standard deviations."""
        return self.base_dist.base_dist.scale
