"""`torch.optim`: Tengen's optimizers with PyTorch's arguments; `lr_scheduler` and `swa_utils`."""

from __future__ import annotations

import sys
from typing import Any

from tengen import optimizer as O
from tengen.base.lazy import NoSuchName
from tengen.ops.define import REGISTRY
from tengen.optimizer.optimizer import zeros
from tengen.pytorch.optim import lr_scheduler, optimizer, swa_utils
from tengen.pytorch.optim.further import ASGD, Adafactor, Muon
from tengen.pytorch.optim.optimizer import Optimizer, WithTensors
from tengen.tensor import Tensor


class SGD(WithTensors, O.SGD):
    """`tengen.optimizer.SGD` with PyTorch's order of arguments, lr=1e-3 unless another is given, and `dampening`.

    Args: dampening: after the first step the velocity takes 1 - dampening times the gradient.
    Errors: ValueError for nesterov without a momentum, or with a dampening

    >>> w = Tensor([0.0]).requires_grad_()
    >>> opt = SGD([w], lr=1.0, momentum=0.5, dampening=0.5)
    >>> for _ in range(2):
    ...     opt.zero_grad()
    ...     (w * 4.0).sum().backward()
    ...     _ = opt.step()
    >>> w.tolist()
    [-8.0]
    """

    def __init__(
        self, params: Any, lr: float = 1e-3, momentum: float = 0, dampening: float = 0, weight_decay: float = 0,
        nesterov: bool = False, **how: Any,
    ):  # fmt: skip
        if nesterov and (momentum <= 0 or dampening):
            raise ValueError(f"SGD: nesterov needs a momentum and no dampening, got momentum={momentum} and dampening={dampening}")
        defaults = {"lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay, "nesterov": nesterov}
        O.Optimizer.__init__(self, params, defaults, how)

    def _create_state(self, p: Any, group: Any) -> dict[str, Tensor]:
        state = super()._create_state(p, group)
        return {**state, "step": Tensor(0.0)} if state and group["dampening"] else state

    def _update(self, p: Any, grad: Tensor, state: dict[str, Tensor], group: Any) -> None:
        if not group["momentum"] or not group["dampening"]:
            super()._update(p, grad, state, group)
            return
        for name, value in self._create_state(p, group).items():  # what was 0 until now
            state.setdefault(name, value)
        grad = grad + p.detach() * group["weight_decay"] if group["weight_decay"] else grad
        damped = state["momentum_buffer"] * group["momentum"] + grad * (1 - group["dampening"])
        state["momentum_buffer"]._reset(REGISTRY["where"](state["step"] == 0, grad, damped))
        state["step"]._reset(state["step"] + 1.0)
        p._reset(p.detach() - group.rate(p) * state["momentum_buffer"])


class Adagrad(WithTensors):
    """Duchi, Hazan and Singer, 2011, with eps beside the root, as PyTorch's; Tengen's own has it under the root.

    Args: lr_decay: of the learning rate, lr / (1 + (step - 1) lr_decay). initial_accumulator_value: of the sum of squares.
    """

    def __init__(
        self, params: Any, lr: float = 1e-2, lr_decay: float = 0, weight_decay: float = 0, initial_accumulator_value: float = 0,
        eps: float = 1e-10, **how: Any,
    ):  # fmt: skip
        self._first = initial_accumulator_value
        super().__init__(params, {"lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay}, how)

    def _create_state(self, p: Any, group: Any) -> dict[str, Tensor]:
        return {"sum": zeros(p) + self._first, "step": Tensor(0.0)}

    def _update(self, p: Any, grad: Tensor, state: dict[str, Tensor], group: Any) -> None:
        state["step"]._reset(state["step"] + 1.0)
        grad = grad + p.detach() * group["weight_decay"] if group["weight_decay"] else grad
        state["sum"]._reset(state["sum"] + grad * grad)
        rate = group.rate(p)
        lr = rate / (1.0 + (state["step"].astype(rate.dtype) - 1.0) * group["lr_decay"])
        p._reset(p.detach() - lr * grad / (REGISTRY["sqrt"](state["sum"]) + group["eps"]))


class LBFGS(WithTensors, O.LBFGS):
    """`tengen.optimizer.LBFGS`."""


class Adadelta(WithTensors, O.Adadelta):
    """`tengen.optimizer.Adadelta`."""


class Adam(WithTensors, O.Adam):
    """`tengen.optimizer.Adam`."""


class Adamax(WithTensors, O.Adamax):
    """`tengen.optimizer.Adamax`."""


class AdamW(WithTensors, O.AdamW):
    """`tengen.optimizer.AdamW`."""


class NAdam(WithTensors, O.NAdam):
    """`tengen.optimizer.NAdam`."""


class RAdam(WithTensors, O.RAdam):
    """`tengen.optimizer.RAdam`."""


class RMSprop(WithTensors, O.RMSprop):
    """`tengen.optimizer.RMSprop`."""


class Rprop(WithTensors, O.Rprop):
    """`tengen.optimizer.Rprop`."""


class SparseAdam(WithTensors, O.SparseAdam):
    """`tengen.optimizer.SparseAdam`."""


def __getattr__(name: str) -> object:
    raise NoSuchName("tengen.pytorch.optim", name, lambda: dir(sys.modules[__name__]))


__all__ = [
    "ASGD", "LBFGS", "Muon", "SGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "Optimizer", "RAdam", "RMSprop",
    "Rprop", "SparseAdam", "lr_scheduler",
    "optimizer", "swa_utils",
]  # fmt: skip
