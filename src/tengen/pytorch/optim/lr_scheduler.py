"""`torch.optim.lr_scheduler`: Tengen's schedulers, which take PyTorch's arguments.

Those that multiply go on from the rates that the groups have, as PyTorch's do: several schedulers of one optimizer multiply each other, and
a rate that was set by hand stays.
"""

from __future__ import annotations

import math

from tengen import optimizer as own
from tengen.optimizer import (
    ChainedScheduler,
    CosineAnnealingWarmRestarts,
    CyclicLR,
    LambdaLR,
    LRScheduler,
    OneCycleLR,
    ReduceLROnPlateau,
    SequentialLR,
)

_LRScheduler = LRScheduler  # older programs derive from this name

__all__ = [
    "ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "CyclicLR", "ExponentialLR", "LRScheduler",
    "LambdaLR", "LinearLR", "MultiStepLR", "MultiplicativeLR", "OneCycleLR", "PolynomialLR", "ReduceLROnPlateau", "SequentialLR", "StepLR",
]  # fmt: skip


class _Onward(LRScheduler):
    """A schedule whose step multiplies the rates of now by what its own change by from one epoch to the next."""

    floor = 0.0  # what is above it is multiplied

    def step(self, epoch: float | None = None) -> None:
        """Goes on to the next epoch, from the rates that the groups have (or to the given one, with its own rates)."""
        before = self.base_lrs if self.current_epoch < 0 else self.get_lr()
        now = self.get_last_lr()
        super().step(epoch)
        if epoch is not None or now == before:
            return
        floor = self.floor
        for g, rate, old, new in zip(self.optimizer.param_groups, now, before, self.get_last_lr()):
            g.schedule(new if old == floor else floor + (rate - floor) * (new - floor) / (old - floor))


class StepLR(_Onward, own.StepLR):
    """The learning rate is multiplied by gamma every `step_size` epochs.

    >>> import tengen.pytorch as torch
    >>> opt = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=1.0)
    >>> one, other = StepLR(opt, 2, gamma=0.5), ExponentialLR(opt, 0.25)
    >>> for _ in range(2):
    ...     one.step()
    ...     other.step()
    >>> opt.param_groups[0]["lr"]
    0.03125
    """


class MultiStepLR(_Onward, own.MultiStepLR):
    """The learning rate is multiplied by gamma at each milestone."""


class ExponentialLR(_Onward, own.ExponentialLR):
    """The learning rate is multiplied by gamma every epoch."""


class MultiplicativeLR(_Onward, own.MultiplicativeLR):
    """The learning rate is multiplied by a function of the epoch in every epoch from 1 on."""


class ConstantLR(_Onward, own.ConstantLR):
    """`factor` times the learning rate for `total_iters` epochs, then all of it."""


class LinearLR(_Onward, own.LinearLR):
    """A straight line from `start_factor` to `end_factor` times the learning rate in `total_iters` epochs."""


class PolynomialLR(_Onward, own.PolynomialLR):
    """(1 - epoch / total_iters)^power of the learning rate, 0 from then on."""


class CosineAnnealingLR(_Onward, own.CosineAnnealingLR):
    """Half a cosine from the initial learning rate to `eta_min` in `T_max` epochs, up again in the next `T_max`, and so on.

    >>> import tengen.pytorch as torch
    >>> opt = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=1.0)
    >>> schedule, rates = CosineAnnealingLR(opt, T_max=2), []
    >>> for _ in range(4):
    ...     schedule.step()
    ...     rates.append(round(opt.param_groups[0]["lr"], 3))
    >>> rates
    [0.5, 0.0, 0.5, 1.0]
    """

    @property
    def floor(self) -> float:  # type: ignore[override]  # a number for each schedule
        """The least rate."""
        return self.min_lr

    def get_lr(self) -> list[float]:
        """The learning rates of the present epoch."""
        share = 0.5 * (1 + math.cos(math.pi * self.current_epoch / self.epochs))
        return [self.min_lr + (base - self.min_lr) * share for base in self.base_lrs]
