"""Parameter updates of optimizers, each one fused program over (parameter, gradient, state ...)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tengen.ops.define import composite, lookup
from tengen.ops.elementwise import add, div, mul, sub

if TYPE_CHECKING:
    from tengen.tensor import Tensor


@composite
def sgd_update(param: Tensor, grad: Tensor, velocity: Tensor | None, lr: Tensor, momentum: float, weight_decay: float, nesterov: bool):
    """v' = momentum v + g; p' = p - lr v' (Nesterov: p - lr (g + momentum v')), with g = grad + weight_decay p. Returns (p', v')."""
    g = add(grad, mul(param, weight_decay)) if weight_decay else grad
    if velocity is None:
        return sub(param, mul(g, lr))
    v = add(mul(velocity, momentum), g)
    return sub(param, mul(add(g, mul(v, momentum)) if nesterov else v, lr)), v


@composite
def adam_update(
    param: Tensor, grad: Tensor, mean: Tensor, square: Tensor, step: Tensor, lr: Tensor,
    beta1: float, beta2: float, eps: float, weight_decay: float, decoupled: bool,
):  # fmt: skip
    """One step of Adam (Kingma and Ba, arXiv 1412.6980), or AdamW (Loshchilov and Hutter, arXiv 1711.05101) when `decoupled`.
    `step` counts from 1. Returns (p', m', v')."""
    g = grad if decoupled or not weight_decay else add(grad, mul(param, weight_decay))
    m = add(mul(mean, beta1), mul(g, 1 - beta1))
    v = add(mul(square, beta2), mul(mul(g, g), 1 - beta2))
    one = lookup("pow")
    m_hat = div(m, sub(1.0, one(beta1, step)))
    v_hat = div(v, sub(1.0, one(beta2, step)))
    delta = div(m_hat, add(lookup("sqrt")(v_hat), eps))
    if decoupled and weight_decay:
        delta = add(delta, mul(param, weight_decay))
    return sub(param, mul(delta, lr)), m, v
