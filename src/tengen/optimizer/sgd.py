"""Stochastic gradient descent."""

from __future__ import annotations

from tengen.ops.update import sgd_update
from tengen.optimizer.optimizer import Optimizer, zeros
from tengen.tensor.assignment import update


class SGD(Optimizer):
    """p -= lr v, v = momentum v + grad + weight_decay p.

    Args: lr: learning rate. momentum: 0 keeps no velocity. nesterov: looks ahead (Nesterov, 1983). weight_decay: L2 penalty.
    Errors: ValueError for nesterov without a momentum
    """

    def __init__(self, params, lr: float, momentum: float = 0.0, nesterov: bool = False, weight_decay: float = 0.0, **how):
        if nesterov and momentum <= 0:
            raise ValueError("SGD: nesterov needs a momentum")
        super().__init__(params, {"lr": lr, "momentum": momentum, "nesterov": nesterov, "weight_decay": weight_decay}, how)

    def _create_state(self, p, group):
        return {"momentum_buffer": zeros(p)} if group["momentum"] else {}

    def _update(self, p, grad, state, group):
        args = (group["momentum"], group["weight_decay"], group["nesterov"])
        if group["momentum"] and "momentum_buffer" not in state:  # it was 0 until now
            state["momentum_buffer"] = zeros(p)
        velocity = state.get("momentum_buffer")
        update(sgd_update, (p, grad, velocity, group.rate(p)), args, (0,) if velocity is None else (0, 2))
