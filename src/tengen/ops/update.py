"""Parameter updates of optimizers, each one fused program over (parameter, gradient, state ...)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tengen.base.dtype import float64
from tengen.ops.define import Case, check_floats, composite, lookup
from tengen.ops.elementwise import add, div, expm1, mul, neg, sub

if TYPE_CHECKING:
    from tengen.ops.attributes import Decay, NonNegative
    from tengen.tensor import Tensor


def _stored(new: Tensor, old: Tensor) -> Tensor:
    """A new value in the dtype of the one that it replaces: a learning rate is float32, a parameter may be float16."""
    return new if new.dtype is old.dtype else lookup("astype")(new, old.dtype)


def one_minus_power(beta: float, step: Tensor) -> Tensor:
    """1 - beta^step, by which a running mean that began at 0 is divided. In the first steps the power is so close to 1 that the
    difference of rounded numbers would be off by 2^-24 / (1 - beta); here it is off by a few roundings."""
    return neg(expm1(mul(step, math.log(beta) if beta else -math.inf)))


def _corrected(mean: Tensor, beta: float, step: Tensor) -> Tensor:
    step = lookup("astype")(step, float64) if mean.dtype is float64 else step
    return div(mean, one_minus_power(beta, step))


@composite
def sgd_update(
    param: Tensor, grad: Tensor, velocity: Tensor | None, lr: Tensor, momentum: float, weight_decay: float, nesterov: bool
):
    """v' = momentum v + g; p' = p - lr v' (Nesterov: p - lr (g + momentum v')), with g = grad + weight_decay p. Returns (p',
    v')."""
    check_floats(param, grad, velocity, lr)  # type: ignore[arg-type]  # None is let pass
    g = add(grad, mul(param, weight_decay)) if weight_decay else grad
    if velocity is None:
        return _stored(sub(param, mul(g, lr)), param)
    v = _stored(add(mul(velocity, momentum), g), velocity)
    return _stored(sub(param, mul(add(g, mul(v, momentum)) if nesterov else v, lr)), param), v


@composite
def adam_update(
    param: Tensor, grad: Tensor, mean: Tensor, square: Tensor, step: Tensor, lr: Tensor,
    beta1: Decay, beta2: Decay, eps: NonNegative, weight_decay: float, decoupled: bool,
):  # fmt: skip
    """One step of Adam (Kingma and Ba, arXiv 1412.6980), or AdamW (Loshchilov and Hutter, arXiv 1711.05101) when `decoupled`.
    `step` counts from 1. Returns (p', m', v')."""
    check_floats(param, grad, mean, square, step, lr)  # type: ignore[arg-type]  # None is let pass
    g = grad if decoupled or not weight_decay else add(grad, mul(param, weight_decay))
    m = _stored(add(mul(mean, beta1), mul(g, 1 - beta1)), mean)
    v = _stored(add(mul(square, beta2), mul(mul(g, g), 1 - beta2)), square)
    delta = div(_corrected(m, beta1, step), add(lookup("sqrt")(_corrected(v, beta2, step)), eps))
    if decoupled and weight_decay:
        delta = add(delta, mul(param, weight_decay))
    return _stored(sub(param, mul(delta, lr)), param), m, v


@composite
def amsgrad_update(
    param: Tensor, grad: Tensor, mean: Tensor, square: Tensor, largest: Tensor, step: Tensor, lr: Tensor,
    beta1: Decay, beta2: Decay, eps: NonNegative, weight_decay: float, decoupled: bool,
):  # fmt: skip
    """One step of AMSGrad (Reddi, Kale and Kumar, "On the convergence of Adam and beyond", 2018): Adam that divides by the root of the
    largest mean of squares so far. `step` counts from 1. Returns (p', m', v', largest')."""
    check_floats(param, grad, mean, square, largest, step, lr)  # type: ignore[arg-type]  # as above
    g = grad if decoupled or not weight_decay else add(grad, mul(param, weight_decay))
    m = _stored(add(mul(mean, beta1), mul(g, 1 - beta1)), mean)
    v = _stored(add(mul(square, beta2), mul(mul(g, g), 1 - beta2)), square)
    most = lookup("maximum")(largest, v)
    delta = div(_corrected(m, beta1, step), add(lookup("sqrt")(_corrected(most, beta2, step)), eps))
    if decoupled and weight_decay:
        delta = add(delta, mul(param, weight_decay))
    return _stored(sub(param, mul(delta, lr)), param), m, v, most


@composite
def unscale(grad: Tensor, inverse: Tensor):
    """A gradient times `inverse`, in its own dtype, and whether all of that is finite: (grad', a 0-d bool)."""
    g = lookup("astype")(mul(grad, inverse), grad.dtype)
    return g, lookup("all")(lookup("isfinite")(g))


unscale.reference(lambda g, inverse: (g * inverse, np.isfinite(g * inverse).all()))
unscale.cases(
    Case(lambda r: (r.uniform(-1, 1, (3, 17)), np.float64(0.25)), grad=False),
    Case(lambda r: (np.array([1.0, np.inf, 2.0]), np.float64(0.5)), grad=False),
    Case(lambda r: (np.zeros((0, 3)), np.float64(0.5)), grad=False),
)


def _np_sgd(p, g, v, lr, momentum, weight_decay, nesterov):
    g = g + weight_decay * p
    if v is None:
        return p - lr * g
    v = momentum * v + g
    return p - lr * (g + momentum * v if nesterov else v), v


def _np_adam(p, g, m, v, step, lr, beta1, beta2, eps, weight_decay, decoupled):
    g = g if decoupled else g + weight_decay * p
    m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
    delta = (m / (1 - beta1**step)) / (np.sqrt(v / (1 - beta2**step)) + eps)
    return p - lr * (delta + (weight_decay * p if decoupled else 0)), m, v


def _np_amsgrad(p, g, m, v, most, step, lr, beta1, beta2, eps, weight_decay, decoupled):
    g = g if decoupled else g + weight_decay * p
    m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
    most = np.maximum(most, v)
    delta = (m / (1 - beta1**step)) / (np.sqrt(most / (1 - beta2**step)) + eps)
    delta = delta + weight_decay * p if decoupled else delta
    return p - lr * delta, m, v, most


def _state(n_state: int, *scalars: float):
    return lambda r: (*(r.uniform(0.1, 1, (3, 5)) for _ in range(2 + n_state)), *map(np.float64, scalars))


sgd_update.reference(_np_sgd)
sgd_update.cases(
    *(Case(_state(1, 0.1), {"momentum": 0.9, "weight_decay": w, "nesterov": n}) for w, n in ((0.0, False), (0.01, True))),
    Case(
        lambda r: (r.uniform(-1, 1, 7), r.uniform(-1, 1, 7), None, np.float64(0.1)),
        {"momentum": 0.0, "weight_decay": 0.1, "nesterov": False},
    ),
)
adam_update.reference(_np_adam)
adam_update.cases(
    *(Case(_state(2, 3.0, 0.01), {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": w, "decoupled": d})
      for w, d in ((0.0, False), (0.1, False), (0.1, True))),
)  # fmt: skip
amsgrad_update.reference(_np_amsgrad)
amsgrad_update.cases(
    *(Case(_state(3, 3.0, 0.01), {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": w, "decoupled": d})
      for w, d in ((0.0, False), (0.1, True))),
)  # fmt: skip
