"""Schedules that cycle the momentum against the learning rate: CyclicLR and OneCycleLR (L. N. Smith, arXiv 1506.01186 and
1708.07120), with PyTorch's arguments.

A momentum is a number in a traced step's program, a learning rate is not: with ``cycle_momentum=True`` each momentum that a traced
step meets is recorded and compiled for itself. ``cycle_momentum=False`` leaves it as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tengen.optimizer.lr_scheduler import LRScheduler, at_least_one, per_group
from tengen.optimizer.optimizer import Optimizer, ParamGroup


class _Cycle(LRScheduler):
    """What both share: bounds of the momentum, for each group."""

    def _momenta(self, optimizer: Optimizer, cycle: bool, base: float | Sequence[float], most: float | Sequence[float]) -> None:
        self.cycle_momentum = cycle
        if not cycle:
            return
        owner = type(self).__name__
        if not all("momentum" in g or "betas" in g for g in optimizer.param_groups):
            raise ValueError(f"{owner}: {type(optimizer).__name__} has neither momentum nor betas; help: cycle_momentum=False")
        self.base_momentums = per_group(owner, "base_momentum", optimizer, base)
        self.max_momentums = per_group(owner, "max_momentum", optimizer, most)

    def momenta(self) -> list[float]:
        """The momentums of the present epoch."""
        raise NotImplementedError(f"{type(self).__name__} needs momenta()")

    def step(self, epoch: float | None = None) -> None:
        """Goes on to the next epoch (or the given one)."""
        super().step(epoch)
        if self.cycle_momentum:
            for g, momentum in zip(self.optimizer.param_groups, self.momenta()):
                _set_momentum(g, momentum)


def _set_momentum(group: ParamGroup, momentum: float) -> None:
    if "betas" in group:
        group["betas"] = (momentum, *group["betas"][1:])
    else:
        group["momentum"] = momentum


class CyclicLR(_Cycle):
    """The learning rate goes up from `base_lr` to `max_lr` and down again, over and over; the momentum goes the other way.

    Args:
        base_lr, max_lr: for all groups, or a list. step_size_up: epochs (or batches) of going up; step_size_down: of going down,
            default: the same. mode: "triangular"; "triangular2" halves the height in each cycle; "exp_range" scales it by
            gamma^epoch. scale_fn: in place of a mode, a factor of the height, a function of the number of the cycle from 1 or
            (scale_mode "iterations") of the epoch.
    Errors: ValueError for a mode that is not there
    """

    def __init__(
        self, optimizer: Optimizer, base_lr: float | Sequence[float], max_lr: float | Sequence[float], step_size_up: int = 2000,
        step_size_down: int | None = None, mode: str = "triangular", gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None, scale_mode: str = "cycle", cycle_momentum: bool = True,
        base_momentum: float | Sequence[float] = 0.8, max_momentum: float | Sequence[float] = 0.9, last_epoch: int = -1,
    ):  # fmt: skip
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError(f"CyclicLR: mode={mode!r}; help: 'triangular', 'triangular2' or 'exp_range', or a scale_fn")
        if scale_mode not in ("cycle", "iterations"):
            raise ValueError(f"CyclicLR: scale_mode={scale_mode!r}; help: 'cycle' or 'iterations'")
        step_size_down = step_size_up if step_size_down is None else step_size_down
        at_least_one("CyclicLR", step_size_up=step_size_up, step_size_down=step_size_down)
        self.period, self.turn = step_size_up + step_size_down, step_size_up / (step_size_up + step_size_down)
        self.mode, self.gamma, self.scale_fn = mode, gamma, scale_fn
        self.scale_mode = scale_mode if scale_fn is not None else "iterations" if mode == "exp_range" else "cycle"
        bases = per_group("CyclicLR", "base_lr", optimizer, base_lr)
        self.max_lrs = per_group("CyclicLR", "max_lr", optimizer, max_lr)
        self._momenta(optimizer, cycle_momentum, base_momentum, max_momentum)
        if last_epoch == -1:
            for g, lr in zip(optimizer.param_groups, bases):
                g["initial_lr"] = lr
                g.schedule(lr)
        super().__init__(optimizer, last_epoch)

    def height(self) -> float:
        """How far up the present epoch is: 0 at the base."""
        cycle = math.floor(1 + self.current_epoch / self.period)
        x = 1.0 + self.current_epoch / self.period - cycle
        rise = x / self.turn if x <= self.turn else (x - 1) / (self.turn - 1)
        at = cycle if self.scale_mode == "cycle" else self.current_epoch
        if self.scale_fn is not None:
            return rise * self.scale_fn(at)
        return rise * (1.0 if self.mode == "triangular" else 2.0 ** (1 - at) if self.mode == "triangular2" else self.gamma**at)

    def get_lr(self) -> list[float]:
        """The learning rates of the present epoch."""
        h = self.height()
        return [base + (most - base) * h for base, most in zip(self.base_lrs, self.max_lrs)]

    def momenta(self) -> list[float]:
        """The momentums of the present epoch."""
        h = self.height()
        return [most - (most - base) * h for base, most in zip(self.base_momentums, self.max_momentums)]


class OneCycleLR(_Cycle):
    """One cycle in all of the training: the learning rate goes up from ``max_lr / div_factor`` to `max_lr`, and down to
    ``max_lr / div_factor / final_div_factor``; the momentum goes the other way. Call `step` after each batch.

    Args:
        max_lr: for all groups, or a list. total_steps: batches in all; or epochs and steps_per_epoch. pct_start: the share of them
            that goes up. anneal_strategy: "cos" or "linear". three_phase: down to the first rate in as many batches as up, and
            then to the last one.

    Errors: ValueError from `step`, too, after more than total_steps.
    """

    def __init__(
        self, optimizer: Optimizer, max_lr: float | Sequence[float], total_steps: int | None = None, epochs: int | None = None,
        steps_per_epoch: int | None = None, pct_start: float = 0.3, anneal_strategy: str = "cos", cycle_momentum: bool = True,
        base_momentum: float | Sequence[float] = 0.85, max_momentum: float | Sequence[float] = 0.95, div_factor: float = 25.0,
        final_div_factor: float = 1e4, three_phase: bool = False, last_epoch: int = -1,
    ):  # fmt: skip
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise ValueError("OneCycleLR needs total_steps, or epochs and steps_per_epoch")
            at_least_one("OneCycleLR", epochs=epochs, steps_per_epoch=steps_per_epoch)
            total_steps = epochs * steps_per_epoch
        at_least_one("OneCycleLR", total_steps=total_steps)
        if not 0 <= pct_start <= 1:
            raise ValueError(f"OneCycleLR: pct_start={pct_start} is out of range: 0 <= share <= 1")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"OneCycleLR: anneal_strategy={anneal_strategy!r}; help: 'cos' or 'linear'")
        self.total_steps, self.anneal_strategy = total_steps, anneal_strategy
        up = float(pct_start * total_steps) - 1
        self.turns = [up, 2 * up, total_steps - 1] if three_phase else [up, total_steps - 1]  # where each phase ends
        self.max_lrs = per_group("OneCycleLR", "max_lr", optimizer, max_lr)
        self.final_div_factor = final_div_factor
        self._momenta(optimizer, cycle_momentum, base_momentum, max_momentum)
        if last_epoch == -1:
            for g, most in zip(optimizer.param_groups, self.max_lrs):
                g["initial_lr"] = most / div_factor
        super().__init__(optimizer, last_epoch)

    def _at(self, *corners: float) -> float:
        """The value of the present batch on the way from corner to corner, one for each end of a phase."""
        if self.current_epoch > self.total_steps:
            raise ValueError(f"OneCycleLR: step {self.current_epoch} of {self.total_steps}; help: a larger total_steps")
        start = 0.0
        phases = list(zip(corners, corners[1:], self.turns))
        for i, (first, last, end) in enumerate(phases):
            if self.current_epoch <= end or i == len(phases) - 1:
                share = (self.current_epoch - start) / (end - start) if end != start else 1.0
                if self.anneal_strategy == "cos":
                    return last + (first - last) / 2 * (math.cos(math.pi * share) + 1)
                return (last - first) * share + first
            start = end
        raise AssertionError("there is a last phase")

    def get_lr(self) -> list[float]:
        """The learning rates of the present batch."""
        back = len(self.turns) == 3
        return [
            self._at(first, most, *[first] * back, first / self.final_div_factor) for first, most in zip(self.base_lrs, self.max_lrs)
        ]

    def momenta(self) -> list[float]:
        """The momentums of the present batch."""
        back = len(self.turns) == 3
        return [self._at(most, base, *[most] * back, most) for base, most in zip(self.base_momentums, self.max_momentums)]
