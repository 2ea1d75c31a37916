"""Learning-rate schedules: call `step()` once an epoch."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable

from tengen.optimizer.optimizer import Optimizer


class LRScheduler:
    """Base class; subclasses give `get_lr()`, a list with one learning rate per group."""

    def __init__(self, optimizer: Optimizer, current_epoch: int = -1):
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"a scheduler needs an Optimizer, got a {type(optimizer).__name__}")
        self.optimizer, self.current_epoch = optimizer, current_epoch
        if current_epoch == -1:
            for g in optimizer.param_groups:
                g.setdefault("initial_lr", g["lr"])
        self.base_lrs = [g["initial_lr"] for g in optimizer.param_groups]
        self.step()

    def get_lr(self) -> list[float]:
        """The learning rates of the present epoch."""
        raise NotImplementedError(f"{type(self).__name__} needs get_lr()")

    def step(self, epoch: int | None = None) -> None:
        """Goes on to the next epoch (or the given one)."""
        self.current_epoch = self.current_epoch + 1 if epoch is None else epoch
        for g, lr in zip(self.optimizer.param_groups, self.get_lr()):
            g["lr"] = lr

    def state_dict(self) -> dict:
        """Everything but the optimizer."""
        return {k: v for k, v in self.__dict__.items() if k != "optimizer"}

    def load_state_dict(self, state_dict: dict) -> None:
        """Takes back what `state_dict` gave."""
        self.__dict__.update({k: v for k, v in state_dict.items() if k != "optimizer"})


class MultiStepLR(LRScheduler):
    """The learning rate is multiplied by gamma at each milestone."""

    def __init__(self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, current_epoch: int = -1):
        self.milestones, self.gamma = list(milestones), gamma
        if self.milestones != sorted(self.milestones):
            raise ValueError(f"milestones must ascend, got {self.milestones}")
        super().__init__(optimizer, current_epoch)

    def get_lr(self) -> list[float]:
        return [base * self.gamma ** bisect_right(self.milestones, self.current_epoch) for base in self.base_lrs]


class CosineAnnealingLR(LRScheduler):
    """Half a cosine from the initial learning rate to `min_lr` in `epochs` epochs (Loshchilov and Hutter, arXiv 1608.03983)."""

    def __init__(self, optimizer: Optimizer, epochs: int, min_lr: float = 0.0, current_epoch: int = -1):
        if epochs < 1:
            raise ValueError(f"CosineAnnealingLR: epochs={epochs} must be at least 1")
        self.epochs, self.min_lr = epochs, min_lr
        super().__init__(optimizer, current_epoch)

    def get_lr(self) -> list[float]:
        share = 0.5 * (1 + math.cos(math.pi * min(self.current_epoch / self.epochs, 1)))
        return [self.min_lr + (base - self.min_lr) * share for base in self.base_lrs]
