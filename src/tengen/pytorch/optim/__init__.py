"""`torch.optim`: Tengen's optimizers with PyTorch's arguments; `lr_scheduler` and `swa_utils`."""

from __future__ import annotations

import sys
from typing import Any

from tengen import optimizer as O
from tengen.base.errors import ArgumentError
from tengen.base.lazy import NoSuchName
from tengen.ops.define import REGISTRY
from tengen.optimizer import (
    LBFGS,
    Adadelta,
    Adam,
    Adamax,
    AdamW,
    NAdam,
    RAdam,
    RMSprop,
    Rprop,
    SparseAdam,
)
from tengen.optimizer.optimizer import zeros
from tengen.pytorch.optim import lr_scheduler, optimizer, swa_utils
from tengen.pytorch.optim.further import ASGD, Adafactor, Muon
from tengen.pytorch.optim.optimizer import Optimizer
from tengen.tensor import Tensor


class SGD(O.SGD):
    """`tengen.optimizer.SGD` with PyTorch's order of arguments, and lr=1e-3 unless another is given.

    Errors: ArgumentError for a dampening.
    """

    def __init__(
        self, params: Any, lr: float = 1e-3, momentum: float = 0, dampening: float = 0, weight_decay: float = 0,
        nesterov: bool = False, **how: Any,
    ):  # fmt: skip
        if dampening:
            raise ArgumentError(f"SGD: dampening={dampening} is not there; help: lr and momentum alone")
        super().__init__(params, lr, momentum, nesterov, weight_decay, **how)


class Adagrad(O.Optimizer):
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
        lr = group.lr / (1.0 + (state["step"] - 1.0) * group["lr_decay"])
        p._reset(p.detach() - lr * grad / (REGISTRY["sqrt"](state["sum"]) + group["eps"]))


def __getattr__(name: str) -> object:
    raise NoSuchName("tengen.pytorch.optim", name, lambda: dir(sys.modules[__name__]))


__all__ = [
    "ASGD", "LBFGS", "Muon", "SGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "Optimizer", "RAdam", "RMSprop",
    "Rprop", "SparseAdam", "lr_scheduler",
    "optimizer", "swa_utils",
]  # fmt: skip
