"""Schedules made of others, one after the other or all at once; and the one that looks at a metric."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from tengen.optimizer.lr_scheduler import LRScheduler, per_group
from tengen.optimizer.optimizer import Optimizer


class _Composed(LRScheduler):
    """Schedules of one optimizer; each gives its rates for an epoch that it is told."""

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None, last_epoch: int):
        owner = type(self).__name__
        self._schedulers = list(schedulers)
        if not self._schedulers:
            raise ValueError(f"{owner} needs at least one scheduler")
        for s in self._schedulers:
            if not isinstance(s, LRScheduler):
                raise TypeError(f"{owner}: a {type(s).__name__} is no scheduler")
            if isinstance(s, ReduceLROnPlateau):
                raise ValueError(f"{owner}: ReduceLROnPlateau needs a metric in each step; help: step it by itself")
            if s.optimizer is not (optimizer or self._schedulers[0].optimizer):
                raise ValueError(f"{owner}: the schedulers belong to different optimizers")
        super().__init__(self._schedulers[0].optimizer, last_epoch)

    def state_dict(self) -> dict:
        """The state of each, and where it stands."""
        return {"current_epoch": self.current_epoch, "schedulers": [s.state_dict() for s in self._schedulers]}

    def load_state_dict(self, state_dict: dict) -> None:
        """Takes back what `state_dict` gave."""
        if len(state_dict["schedulers"]) != len(self._schedulers):
            raise ValueError(f"{type(self).__name__}: {len(state_dict['schedulers'])} schedulers do not fit {len(self._schedulers)}")
        for s, saved in zip(self._schedulers, state_dict["schedulers"]):
            s.load_state_dict(saved)
        self.current_epoch = state_dict["current_epoch"]


class SequentialLR(_Composed):
    """Schedules one after the other: at each milestone the next one begins, with its epoch 0.

    Errors: ValueError for milestones that do not ascend, or are not one fewer than schedules

    >>> from tengen import Parameter, optimizer
    >>> opt = optimizer.SGD([Parameter([1.0])], lr=1.0)
    >>> warm, then = optimizer.LinearLR(opt, 0.25, total_iters=3), optimizer.ExponentialLR(opt, 0.5)
    >>> schedule, rates = optimizer.SequentialLR(opt, [warm, then], [3]), []
    >>> for _ in range(6):
    ...     rates.append(opt.param_groups[0]["lr"])
    ...     schedule.step()
    >>> rates
    [0.25, 0.5, 0.75, 1.0, 0.5, 0.25]
    """

    def __init__(self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int], last_epoch: int = -1):
        self.milestones = list(milestones)
        if len(self.milestones) != len(schedulers) - 1 or self.milestones != sorted(self.milestones):
            raise ValueError(f"SequentialLR: {len(schedulers)} schedulers need {len(schedulers) - 1} ascending milestones, got {milestones}")
        super().__init__(schedulers, optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """The learning rates of the present epoch."""
        i = bisect_right(self.milestones, self.current_epoch)
        s = self._schedulers[i]
        s.current_epoch = self.current_epoch - (self.milestones[i - 1] if i else 0)
        return s.get_lr()


class ChainedScheduler(_Composed):
    """Schedules all at once: each begins with the rates that the one before gives for the epoch. For schedules that multiply these
    are PyTorch's rates.

    Errors: ValueError for a `SequentialLR` among them
    """

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None):
        schedulers = list(schedulers)
        if any(isinstance(s, SequentialLR) for s in schedulers):
            raise ValueError("ChainedScheduler: a sequence does not know of a chain around it; help: chains inside of a SequentialLR")
        super().__init__(schedulers, optimizer, schedulers[0].current_epoch - 1 if schedulers else -1)

    def get_lr(self) -> list[float]:
        """The learning rates of the present epoch."""
        rates = list(self.base_lrs)
        for s in self._schedulers:
            own, s.base_lrs, s.current_epoch = s.base_lrs, rates, self.current_epoch
            try:
                rates = s.get_lr()
            finally:
                s.base_lrs = own
        return rates


class ReduceLROnPlateau(LRScheduler):
    """The learning rate is multiplied by `factor` when a metric has not become better for more than `patience` epochs.

    Args:
        mode: whether "min" or "max" is better. threshold: by how much it has to be better, as a share of the best
            (threshold_mode "rel") or as it is ("abs"). cooldown: epochs after that which do not count. min_lr: bound, for all
            groups or a list. eps: a smaller change is not made.
    Errors: TypeError for what is no Optimizer; ValueError for a factor, a mode or a threshold_mode that it cannot have
    """

    def __init__(
        self, optimizer: Optimizer, mode: str = "min", factor: float = 0.1, patience: int = 10, threshold: float = 1e-4,
        threshold_mode: str = "rel", cooldown: int = 0, min_lr: float | Sequence[float] = 0.0, eps: float = 1e-8,
    ):  # fmt: skip
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"a scheduler needs an Optimizer, got a {type(optimizer).__name__}")
        if not 0 <= factor < 1 or mode not in ("min", "max") or threshold_mode not in ("rel", "abs"):
            raise ValueError(
                f"ReduceLROnPlateau: factor={factor}, mode={mode!r}, threshold_mode={threshold_mode!r}; help: 0 <= factor < 1, "
                "'min' or 'max', 'rel' or 'abs'"
            )
        self.optimizer, self.current_epoch = optimizer, 0
        self.mode, self.factor, self.patience, self.cooldown, self.eps = mode, factor, patience, cooldown, eps
        self.threshold, self.threshold_mode = threshold, threshold_mode
        self.min_lrs = per_group("ReduceLROnPlateau", "min_lr", optimizer, min_lr)
        self.best = math.inf if mode == "min" else -math.inf
        self.cooldown_counter = self.num_bad_epochs = 0

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]  # its step takes a metric
        """Looks at the metric of an epoch: a number or a tensor of one element."""
        metric = float(metrics.item() if hasattr(metrics, "item") else metrics)
        self.current_epoch = self.current_epoch + 1 if epoch is None else epoch
        if self._is_better(metric):
            self.best, self.num_bad_epochs = metric, 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            for g, least in zip(self.optimizer.param_groups, self.min_lrs):
                lr = max(float(g["lr"]) * self.factor, least)
                if float(g["lr"]) - lr > self.eps:
                    g.schedule(lr)
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0

    def _is_better(self, metric: float) -> bool:
        sign = 1 if self.mode == "min" else -1
        if self.threshold_mode == "abs":
            return sign * metric < sign * self.best - self.threshold
        return sign * metric < sign * self.best * (1 - sign * self.threshold)
