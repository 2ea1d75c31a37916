"""Adam and AdamW."""

from __future__ import annotations

import numpy as np

from tengen.ops.update import adam_update
from tengen.optimizer.optimizer import Optimizer, zeros
from tengen.tensor import Tensor
from tengen.tensor.assignment import update


class Adam(Optimizer):
    """Kingma and Ba, arXiv 1412.6980. weight_decay is an L2 penalty in the gradient."""

    decoupled = False

    def __init__(
        self, params, lr: float, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.0
    ):
        if not all(0 <= b < 1 for b in betas):
            raise ValueError(f"{type(self).__name__}: betas={betas} are out of range: 0 <= beta < 1")
        super().__init__(params, {"lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay})

    def _create_state(self, p, group):
        return {"exp_avg": zeros(p), "exp_avg_sq": zeros(p), "step": Tensor(np.float32(0.0))}

    def _update(self, p, grad, state, group):
        step = state["step"]
        step._reset(step + 1.0)
        tensors = (p, grad, state["exp_avg"], state["exp_avg_sq"], step, group.lr)
        update(adam_update, tensors, (*group["betas"], group["eps"], group["weight_decay"], self.decoupled), (0, 2, 3))


class AdamW(Adam):
    """Adam with the weight decay apart from the gradient (Loshchilov and Hutter, arXiv 1711.05101)."""

    decoupled = True

    def __init__(
        self, params, lr: float, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.01
    ):
        super().__init__(params, lr, betas, eps, weight_decay)
