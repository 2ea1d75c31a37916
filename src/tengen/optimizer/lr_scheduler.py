"""Learning-rate schedules: call `step()` once an epoch, or once a step.

In: an optimizer and the number of the epoch. Out: ``group["lr"]``, which the next step reads, traced or not. Each schedule is a
function of the epoch and of the rates that it begins with (`get_lr`), so it resumes from the number of the epoch alone, can jump
to another, and be part of others (`compose.py`). The values are PyTorch's up to rounding, where nothing else is said.
"""

from __future__ import annotations

import html
import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from tengen.base.arguments import Checked
from tengen.base.errors import UnknownName
from tengen.base.lazy import names_of
from tengen.optimizer.optimizer import Optimizer

__getattr__ = names_of(  # in PyTorch they stand here too
    __name__, {"tengen.optimizer.compose": "ChainedScheduler ReduceLROnPlateau SequentialLR", "tengen.optimizer.cycles": "CyclicLR OneCycleLR"}
)


class LRScheduler(Checked):
    """Base class; subclasses give `get_lr()`, a list with one learning rate per group.

    Args:
        current_epoch: the epoch that was the last one; -1 begins. last_epoch: PyTorch's name for it.
    Errors: TypeError for what is no Optimizer; UnknownName (a KeyError) for a group without "initial_lr" to go on from
    """

    def __init__(self, optimizer: Optimizer, current_epoch: int = -1, *, last_epoch: int | None = None):
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"a scheduler needs an Optimizer, got a {type(optimizer).__name__}")
        current_epoch = current_epoch if last_epoch is None else last_epoch
        self.optimizer, self.current_epoch = optimizer, current_epoch
        if current_epoch == -1:
            for g in optimizer.param_groups:
                g.setdefault("initial_lr", float(g["lr"]))
        if not all("initial_lr" in g for g in optimizer.param_groups):
            raise UnknownName(f"{type(self).__name__}: a group has no 'initial_lr' to resume from; help: load the optimizer's state first")
        self.base_lrs = [g["initial_lr"] for g in optimizer.param_groups]
        self.step()

    @property
    def last_epoch(self) -> Any:
        """PyTorch's name for `current_epoch`."""
        return self.current_epoch

    def get_lr(self) -> list[float]:
        """The learning rates of the present epoch."""
        raise NotImplementedError(f"{type(self).__name__} needs get_lr()")

    def get_last_lr(self) -> list[float]:
        """The learning rates that the groups have."""
        return [float(g["lr"]) for g in self.optimizer.param_groups]

    def step(self, epoch: float | None = None) -> None:
        """Goes on to the next epoch (or the given one)."""
        self.current_epoch = self.current_epoch + 1 if epoch is None else epoch
        for g, lr in zip(self.optimizer.param_groups, self.get_lr()):
            g.schedule(lr)

    def state_dict(self) -> dict:
        """Everything but the optimizer and functions, as plain data."""
        return {k: v for k, v in self.__dict__.items() if k != "optimizer" and not _has_functions(v)}

    def load_state_dict(self, state_dict: dict) -> None:
        """Takes back what `state_dict` gave. The rates of now are the optimizer's, and come with its state.

        Errors: ValueError where it is that of another kind of schedule, or for another number of groups.
        """
        mine = self.state_dict()
        if state_dict.keys() != mine.keys():
            missing, more = sorted(mine.keys() - state_dict.keys()), sorted(state_dict.keys() - mine.keys())
            raise ValueError(f"{type(self).__name__}: the state is another schedule's: it lacks {missing}, and has {more} in their place")
        for k in mine.keys() & {"base_lrs", "min_lrs"}:
            if len(state_dict[k]) != len(mine[k]):
                raise ValueError(f"{type(self).__name__}: {k} of {len(state_dict[k])} groups do not fit {len(mine[k])}")
        self.__dict__.update(state_dict)

    def __repr__(self) -> str:
        """Its settings, the epoch, and the learning rates that it has given."""
        plain = (bool, int, float, str, list, tuple)
        shown = {k: v for k, v in self.__dict__.items() if not k.startswith("_") and k not in ("current_epoch", "base_lrs")}
        settings = "".join(f"{k}={v!r}, " for k, v in shown.items() if isinstance(v, plain) and not _has_functions(v))
        rates = ", ".join(f"{lr:.6g}" for lr in self.get_last_lr())
        return f"{type(self).__name__}({settings}{type(self.optimizer).__name__}, epoch {self.current_epoch}, lr {rates})"

    def _repr_html_(self) -> str:
        """The same for notebooks."""
        return f"<code>{html.escape(repr(self))}</code>"


def _has_functions(value: Any) -> bool:
    return callable(value) or (isinstance(value, (list, tuple)) and any(map(callable, value)))


class _Factor(LRScheduler):
    """Schedules that multiply each group's first rate by one number."""

    def factor(self) -> float:
        """The number of the present epoch."""
        raise NotImplementedError(f"{type(self).__name__} needs factor()")

    def get_lr(self) -> list[float]:
        """The learning rates of the present epoch."""
        f = self.factor()
        return [base * f for base in self.base_lrs]


class MultiStepLR(_Factor):
    """The learning rate is multiplied by gamma at each milestone.

    Errors: ValueError for milestones that do not ascend
    """

    def __init__(
        self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, current_epoch: int = -1, *, last_epoch: int | None = None
    ):
        self.milestones, self.gamma = list(milestones), gamma
        if self.milestones != sorted(self.milestones):
            raise ValueError(f"milestones must ascend, got {self.milestones}")
        super().__init__(optimizer, current_epoch, last_epoch=last_epoch)

    def factor(self) -> float:
        """gamma to the power of the milestones that are past."""
        return self.gamma ** bisect_right(self.milestones, self.current_epoch)


class StepLR(_Factor):
    """The learning rate is multiplied by gamma every `step_size` epochs."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1):
        at_least_one("StepLR", step_size=step_size)
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def factor(self) -> float:
        """gamma ^ floor(epoch / step_size)."""
        return self.gamma ** (self.current_epoch // self.step_size)


class ExponentialLR(_Factor):
    """The learning rate is multiplied by gamma every epoch."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1):
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def factor(self) -> float:
        """gamma ^ epoch."""
        return self.gamma**self.current_epoch


class ConstantLR(_Factor):
    """`factor` times the learning rate for `total_iters` epochs, then all of it."""

    def __init__(self, optimizer: Optimizer, factor: float = 1 / 3, total_iters: int = 5, last_epoch: int = -1):
        self.reduction, self.total_iters = _share("ConstantLR", "factor", factor), total_iters
        super().__init__(optimizer, last_epoch)

    def factor(self) -> float:
        """The reduction, or 1."""
        return self.reduction if self.current_epoch < self.total_iters else 1.0


class LinearLR(_Factor):
    """A straight line from `start_factor` to `end_factor` times the learning rate in `total_iters` epochs: a warm-up.

    Errors: ValueError for a start_factor outside of (0, 1]
    """

    def __init__(
        self, optimizer: Optimizer, start_factor: float = 1 / 3, end_factor: float = 1.0, total_iters: int = 5, last_epoch: int = -1
    ):
        if not 0 < start_factor <= 1:
            raise ValueError(f"LinearLR: start_factor={start_factor} is out of range: 0 < factor <= 1")
        at_least_one("LinearLR", total_iters=total_iters)
        self.start_factor, self.end_factor = start_factor, _share("LinearLR", "end_factor", end_factor)
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def factor(self) -> float:
        """start + (end - start) min(epoch, total) / total."""
        return self.start_factor + (self.end_factor - self.start_factor) * min(self.current_epoch, self.total_iters) / self.total_iters


class PolynomialLR(_Factor):
    """(1 - epoch / total_iters)^power of the learning rate, 0 from then on."""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1):
        at_least_one("PolynomialLR", total_iters=total_iters)
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def factor(self) -> float:
        """(1 - min(epoch, total) / total)^power."""
        return (1 - min(self.current_epoch, self.total_iters) / self.total_iters) ** self.power


class LambdaLR(LRScheduler):
    """The learning rate times a function of the epoch.

    Args: lr_lambda: a function, or one for each group.
    """

    def __init__(self, optimizer: Optimizer, lr_lambda: Callable | Sequence[Callable], last_epoch: int = -1):
        self.lr_lambdas = per_group("LambdaLR", "lr_lambda", optimizer, lr_lambda)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """The learning rates of the present epoch."""
        return [base * float(f(self.current_epoch)) for base, f in zip(self.base_lrs, self.lr_lambdas)]


class MultiplicativeLR(LRScheduler):
    """The learning rate is multiplied by a function of the epoch in every epoch from 1 on.

    Args: lr_lambda: a function, or one for each group.
    """

    def __init__(self, optimizer: Optimizer, lr_lambda: Callable | Sequence[Callable], last_epoch: int = -1):
        self.lr_lambdas = per_group("MultiplicativeLR", "lr_lambda", optimizer, lr_lambda)
        self.products, self.products_until = [1.0] * len(self.lr_lambdas), 0
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """The learning rates of the present epoch."""
        if self.current_epoch < self.products_until:
            self.products, self.products_until = [1.0] * len(self.lr_lambdas), 0
        while self.products_until < self.current_epoch:
            self.products_until += 1
            self.products = [p * float(f(self.products_until)) for p, f in zip(self.products, self.lr_lambdas)]
        return [base * p for base, p in zip(self.base_lrs, self.products)]


class CosineAnnealingLR(LRScheduler):
    """Half a cosine from the initial learning rate to `min_lr` in `epochs` epochs (Loshchilov and Hutter, arXiv 1608.03983), and
    `min_lr` from then on; PyTorch's goes up again there.

    Args: T_max, eta_min, last_epoch: PyTorch's names for epochs, min_lr and current_epoch.
    Errors: TypeError where the number of epochs is not given
    """

    def __init__(
        self, optimizer: Optimizer, epochs: int | None = None, min_lr: float = 0.0, current_epoch: int = -1, *,
        T_max: int | None = None, eta_min: float | None = None, last_epoch: int | None = None,
    ):  # fmt: skip
        epochs = T_max if epochs is None else epochs
        if epochs is None:
            raise TypeError("CosineAnnealingLR needs the number of epochs; help: epochs=, or PyTorch's T_max=")
        at_least_one("CosineAnnealingLR", epochs=epochs)
        self.epochs, self.min_lr = epochs, min_lr if eta_min is None else eta_min
        super().__init__(optimizer, current_epoch, last_epoch=last_epoch)

    def get_lr(self) -> list[float]:
        """The learning rates of the present epoch."""
        share = 0.5 * (1 + math.cos(math.pi * min(self.current_epoch / self.epochs, 1)))
        return [self.min_lr + (base - self.min_lr) * share for base in self.base_lrs]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half cosines from the initial learning rate to `eta_min`, one after the other (Loshchilov and Hutter, arXiv 1608.03983).
    `step` takes fractions of an epoch, too.

    Args: T_0: epochs of the first one. T_mult: how many times longer each is than the one before.
    """

    def __init__(self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1):
        at_least_one("CosineAnnealingWarmRestarts", T_0=T_0, T_mult=T_mult)
        self.T_0, self.T_mult, self.eta_min = T_0, T_mult, eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """The learning rates of the present epoch.

        Errors: ValueError for an epoch below 0
        """
        at, length = self.current_epoch, self.T_0
        if at < 0:
            raise ValueError(f"CosineAnnealingWarmRestarts: epoch {at} is negative")
        if self.T_mult == 1:
            at = at % length
        else:
            while at >= length:
                at, length = at - length, length * self.T_mult
        share = (1 + math.cos(math.pi * at / length)) / 2
        return [self.eta_min + (base - self.eta_min) * share for base in self.base_lrs]


def at_least_one(owner: str, **numbers: float) -> None:
    """ValueError unless all are whole numbers from 1 on, of whatever type: PyTorch's tutorials write ``StepLR(optimizer, 1.0)``."""
    for name, n in numbers.items():
        if not isinstance(n, (int, float, np.integer, np.floating)) or n < 1 or n % 1:
            raise ValueError(f"{owner}: {name}={n!r} must be at least 1, and whole")


def _share(owner: str, name: str, value: float) -> float:
    if not 0 <= value <= 1:
        raise ValueError(f"{owner}: {name}={value} is out of range: 0 <= factor <= 1")
    return value


def per_group(owner: str, name: str, optimizer: Optimizer, value: Any) -> list:
    """One value for each group, of one for all or a list."""
    groups = len(getattr(optimizer, "param_groups", ()))
    if not isinstance(value, (list, tuple)):
        return [value] * groups
    if len(value) != groups:
        raise ValueError(f"{owner}: {len(value)} values of {name} for {groups} groups")
    return list(value)

