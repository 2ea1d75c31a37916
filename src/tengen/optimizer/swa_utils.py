"""Averages of weights over steps: stochastic weight averaging (SWA) and exponential moving averages (EMA), under PyTorch's names.

Source: Izmailov et al., "Averaging weights leads to wider optima and better generalization", arXiv 1803.05407; Polyak and Juditsky, 1992
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from tengen.base.errors import ArgumentError, ShapeError
from tengen.module.module import Module
from tengen.module.norm import BatchNorm1d, BatchNorm2d, BatchNorm3d
from tengen.ops.define import REGISTRY
from tengen.optimizer.lr_scheduler import LRScheduler, per_group
from tengen.optimizer.optimizer import Optimizer
from tengen.tensor import Tensor

Average = Callable[[Tensor, Tensor, Tensor], Tensor]
Averages = Callable[[Sequence[Tensor], Sequence[Tensor], Tensor], Any]


def get_swa_avg_fn() -> Average:
    """The equal average of all weights so far: a function of (average, weights, how many it is of).

    >>> from tengen import Tensor
    >>> get_swa_avg_fn()(Tensor([1.0]), Tensor([4.0]), Tensor(2)).tolist()
    [2.0]
    """
    return lambda average, weights, n: average + (weights - average) / (n + 1)


def get_ema_avg_fn(decay: float = 0.999) -> Average:
    """decay * average + (1 - decay) * weights.

    Errors: ArgumentError for a decay outside of [0, 1].

    >>> from tengen import Tensor
    >>> get_ema_avg_fn(0.5)(Tensor([1.0]), Tensor([4.0]), Tensor(2)).tolist()
    [2.5]
    """
    if not 0 <= decay <= 1:
        raise ArgumentError(f"get_ema_avg_fn: decay={decay} must be of [0, 1]")
    return lambda average, weights, n: average * decay + weights * (1 - decay)


def _each(f: Average) -> Averages:
    def averaged(averages: Sequence[Tensor], weights: Sequence[Tensor], n: Tensor) -> None:
        for a, w in zip(averages, weights):
            a._reset(f(a.detach(), w, n))

    return averaged


def get_swa_multi_avg_fn() -> Averages:
    """`get_swa_avg_fn` over lists: it gives each average its new value."""
    return _each(get_swa_avg_fn())


def get_ema_multi_avg_fn(decay: float = 0.999) -> Averages:
    """`get_ema_avg_fn` over lists: it gives each average its new value.

    Errors: ArgumentError for a decay outside of [0, 1].
    """
    return _each(get_ema_avg_fn(decay))


class AveragedModel(Module):
    """A copy of a network whose weights are an average of those that it is shown; it is called as the network is.

    Args:
        model: the network, which is copied. device: accepted, as PyTorch's.
        avg_fn: the new average of (average, weights, how many it is of); default: the equal average of all (`get_swa_avg_fn`).
        multi_avg_fn: the same over lists, in place: it gives the averages their new values. Not both.
        use_buffers: whether buffers of floats, such as running statistics, are averaged too; else they are those of the last network.

    Averages and their number are tensors of the module: `state_dict` holds them, and a traced step may update them. The first weights
    are taken as they are.

    Errors: ArgumentError where avg_fn and multi_avg_fn are both given

    >>> from tengen import module as M
    >>> net = M.Linear(1, 1)
    >>> average = AveragedModel(net)
    >>> for value in (1.0, 4.0):
    ...     net.weight[...] = value
    ...     average.update_parameters(net)
    >>> average.module.weight.tolist(), average.n_averaged.item()
    ([[2.5]], 2)
    """

    def __init__(
        self, model: Module, device: Any = None, avg_fn: Average | None = None, multi_avg_fn: Averages | None = None,
        use_buffers: bool = False,
    ):  # fmt: skip
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise ArgumentError("AveragedModel: give avg_fn or multi_avg_fn, not both")
        self.module = copy.deepcopy(model)
        self.n_averaged = Tensor(0)
        self._average = multi_avg_fn or _each(avg_fn or get_swa_avg_fn())
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Module) -> None:
        """Takes a network's weights into the average.

        Errors: ShapeError for a network of other parameters or buffers.
        """
        mine, theirs = dict(self.module.named_tensors()), dict(model.named_tensors())
        if [(k, t.shape) for k, t in mine.items()] != [(k, t.shape) for k, t in theirs.items()]:
            raise ShapeError("AveragedModel.update_parameters: the network has other parameters than the one that was copied")
        weights = {k for k, _ in model.named_parameters()}
        averaged = [k for k in mine if k in weights or self.use_buffers and mine[k].dtype.kind in "fc"]
        first, new = REGISTRY["equal"](self.n_averaged, 0), {k: t.detach() for k, t in theirs.items()}
        self._average([mine[k] for k in averaged], [new[k] for k in averaged], self.n_averaged.detach())
        for k, t in mine.items():
            t._reset(REGISTRY["where"](first, new[k], t.detach()) if k in averaged else new[k])
        self.n_averaged += 1


def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Computes the running statistics of all batch norms anew: the averages of those of the loader's batches.

    Args: loader: gives inputs, or tuples and lists that begin with the input. device: accepted, as PyTorch's.
    Layers that keep no statistics are left alone; the network's mode is afterwards what it was.
    """
    norms = [m for m in model.modules() if isinstance(m, (BatchNorm1d, BatchNorm2d, BatchNorm3d)) and m.track_running_stats]
    if not norms:
        return
    modes, momenta = [(m, m.training) for m in model.modules()], [m.momentum for m in norms]
    states = [t for m in norms for t in (m.running_mean, m.running_var)]
    averages = [REGISTRY["zeros_like"](t) for t in states]
    model.train()
    try:
        for m in norms:
            m.kept = 0.0  # the statistics are then those of the batch alone
        for n, batch in enumerate(loader):
            x = batch[0] if isinstance(batch, (list, tuple)) else batch
            model(x if isinstance(x, Tensor) else Tensor(x))
            averages = [a + (t.detach() - a) / (n + 1) for a, t in zip(averages, states)]
    finally:
        for m, momentum in zip(norms, momenta):
            m.momentum = momentum
        for m, training in modes:
            m.training = training
    for t, a in zip(states, averages):
        t._reset(a)


class SWALR(LRScheduler):
    """The learning rate goes from the one that a group has to `swa_lr` within `anneal_epochs`, and stays there.

    Args: swa_lr: one for all groups, or a list. anneal_strategy: "cos" or "linear". last_epoch: as in `LRScheduler`.
    Another schedule may set the rates before its first step.

    Errors: ArgumentError for another strategy, and for anneal_epochs that are negative or no integer
    """

    def __init__(
        self, optimizer: Optimizer, swa_lr: float | Sequence[float], anneal_epochs: int = 10,
        anneal_strategy: Literal["cos", "linear"] = "cos", last_epoch: int = -1,
    ):  # fmt: skip
        if anneal_strategy not in ("cos", "linear"):
            raise ArgumentError(f"SWALR: anneal_strategy={anneal_strategy!r} must be 'cos' or 'linear'")
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ArgumentError(f"SWALR: anneal_epochs={anneal_epochs!r} must be an integer, and not negative")
        self.swa_lrs = list(per_group("SWALR", "swa_lr", optimizer, swa_lr))
        self.anneal_epochs, self.anneal_strategy = anneal_epochs, anneal_strategy
        super().__init__(optimizer, last_epoch)

    def _share(self, epoch: float) -> float:
        """How much of the way is done."""
        t = max(0.0, min(1.0, epoch / max(1, self.anneal_epochs)))
        return t if self.anneal_strategy == "linear" else (1 - math.cos(math.pi * t)) / 2

    def get_lr(self) -> list[float]:
        """The learning rates of the present epoch, from those of the one before."""
        epoch = self.current_epoch if self.anneal_epochs else max(1, self.current_epoch)
        before, now = self._share(epoch - 1), self._share(epoch)
        first = lambda lr, goal: goal if before == 1 else (lr - before * goal) / (1 - before)
        return [goal * now + first(float(g["lr"]), goal) * (1 - now) for g, goal in zip(self.optimizer.param_groups, self.swa_lrs)]


__all__ = [
    "AveragedModel", "SWALR", "get_ema_avg_fn", "get_ema_multi_avg_fn", "get_swa_avg_fn", "get_swa_multi_avg_fn", "update_bn",
]  # fmt: skip
