"""Optimizers of PyTorch's that Tengen's own list does not have: ASGD, Adafactor and Muon."""

from __future__ import annotations

import math
from typing import Any

from tengen.base.errors import ArgumentError, ShapeError
from tengen.ops.define import REGISTRY
from tengen.optimizer.optimizer import counter, zeros
from tengen.pytorch.optim.optimizer import WithTensors
from tengen.tensor import Tensor


def _counted(state: dict[str, Tensor]) -> Tensor:
    state["step"]._reset(state["step"] + 1.0)
    return state["step"]


class ASGD(WithTensors):
    """Gradient descent that keeps the average of its weights, `ax` in the states (Polyak and Juditsky, 1992).

    Args: lambd: decay term. alpha: the power by which the rate falls. t0: the step at which averaging begins.
    """

    def __init__(
        self, params: Any, lr: float = 1e-2, lambd: float = 1e-4, alpha: float = 0.75, t0: float = 1e6, weight_decay: float = 0, **how: Any
    ):
        super().__init__(params, {"lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay}, how)

    def _create_state(self, p: Any, group: Any) -> dict[str, Tensor]:
        return {"step": counter(0.0, p), "eta": counter(float(group["lr"]), p), "mu": counter(1.0, p), "ax": zeros(p)}

    def _update(self, p: Any, grad: Tensor, state: dict[str, Tensor], group: Any) -> None:
        step, maximum = _counted(state), REGISTRY["maximum"]
        x = p.detach()
        grad = grad + x * group["weight_decay"] if group["weight_decay"] else grad
        x = x * (1.0 - group["lambd"] * state["eta"]) - state["eta"] * grad
        state["ax"]._reset(state["ax"] + (x - state["ax"]) * state["mu"])
        rate = group.rate(p)
        state["eta"]._reset(rate / REGISTRY["pow"](1.0 + group["lambd"] * rate * step, group["alpha"]))
        state["mu"]._reset(1.0 / maximum(step - group["t0"], 1.0))
        p._reset(x)


class Adafactor(WithTensors):
    """Adam without a first moment, whose second moments of a matrix are the product of those of its rows and columns.

    Args: beta2_decay: of the second moments, 1 - step^beta2_decay. eps: (least mean square of a gradient, least root mean square of a
        weight that the step is scaled by). d: the most root mean square of an update before the step's size.
    Source: Shazeer and Stern, arXiv 1804.04235
    Errors: ArgumentError for numbers out of range
    """

    elementwise = False

    def __init__(
        self, params: Any, lr: float = 1e-2, beta2_decay: float = -0.8, eps: tuple[float | None, float] = (None, 1e-3), d: float = 1.0,
        weight_decay: float = 0.0, **how: Any,
    ):  # fmt: skip
        if beta2_decay > 0 or d < 1:
            raise ArgumentError(f"Adafactor: beta2_decay={beta2_decay} must not be above 0, d={d} not below 1")
        self._eps = eps
        super().__init__(params, {"lr": lr, "beta2_decay": beta2_decay, "d": d, "weight_decay": weight_decay}, how)

    def _create_state(self, p: Any, group: Any) -> dict[str, Tensor]:
        state = {"step": counter(0.0, p)}
        if p.ndim > 1:
            return state | {"row_var": zeros(p)[..., :1], "col_var": zeros(p)[..., :1, :]}
        return state | {"variance": zeros(p)}

    def _update(self, p: Any, grad: Tensor, state: dict[str, Tensor], group: Any) -> None:
        mean, sqrt, maximum = REGISTRY["mean"], REGISTRY["sqrt"], REGISTRY["maximum"]
        step, x, rate = _counted(state), p.detach(), group.rate(p)
        least = float(_EPS[x.dtype.name]) if self._eps[0] is None else self._eps[0]
        share = REGISTRY["pow"](step, group["beta2_decay"])  # 1 - beta2
        rho = REGISTRY["minimum"](rate, 1.0 / sqrt(step))
        alpha = maximum(sqrt(mean(x * x)), self._eps[1]) * rho
        x = x * (1.0 - rate * group["weight_decay"]) if group["weight_decay"] else x
        g2 = grad * grad
        if x.ndim > 1:
            for name, axis in (("row_var", -1), ("col_var", -2)):
                state[name]._reset(state[name] + (mean(g2, axis, True) - state[name]) * share)
            row, col = state["row_var"], state["col_var"]
            variance = row @ col / maximum(mean(row, -2, True), least)
        else:
            state["variance"]._reset(state["variance"] + (g2 - state["variance"]) * share)
            variance = state["variance"]
        update = grad / sqrt(maximum(variance, least * least))
        update = update / maximum(1.0, sqrt(mean(update * update)) / group["d"])
        p._reset(x - alpha * update)


_EPS = {"float32": 2.0**-23, "float64": 2.0**-52, "float16": 2.0**-10, "bfloat16": 2.0**-7}


def _orthogonal(g: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float) -> Tensor:
    """Nearly U V^T of g = U S V^T, by Newton and Schulz's iteration of a polynomial of degree 5."""
    a, b, c = coefficients
    wide = g.shape[0] > g.shape[1]
    x = g.T if wide else g
    x = x / REGISTRY["maximum"](REGISTRY["sqrt"](REGISTRY["sum"](x * x)), eps)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * (gram @ gram)) @ x
    return x.T if wide else x


class Muon(WithTensors):
    """Momentum whose update is made orthogonal; for matrices alone. Other parameters want another optimizer, such as AdamW.

    Args: ns_coefficients, ns_steps, eps: of the iteration. adjust_lr_fn: "original" scales a matrix (A, B)'s rate by sqrt(max(1, A / B)),
        "match_rms_adamw" by 0.2 sqrt(max(A, B)); None: "original".
    Numerics: in the parameter's dtype; PyTorch's iteration is in bfloat16.
    Source: Jordan, "Muon: an optimizer for hidden layers", 2024
    Errors: ShapeError for a parameter that is no matrix; ArgumentError for another adjust_lr_fn
    """

    elementwise = False

    def __init__(
        self, params: Any, lr: float = 1e-3, weight_decay: float = 0.1, momentum: float = 0.95, nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315), eps: float = 1e-7, ns_steps: int = 5,
        adjust_lr_fn: str | None = None, **how: Any,
    ):  # fmt: skip
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise ArgumentError(f"Muon: adjust_lr_fn={adjust_lr_fn!r}: 'original' or 'match_rms_adamw'")
        self._iteration, self._adjust, self._nesterov = (ns_coefficients, ns_steps, eps), adjust_lr_fn, nesterov
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum}, how)

    def _create_state(self, p: Any, group: Any) -> dict[str, Tensor]:
        if p.ndim != 2:
            raise ShapeError(f"Muon: a parameter of shape {p.shape} is no matrix; help: give it to another optimizer, as AdamW")
        return {"momentum_buffer": zeros(p)}

    def _update(self, p: Any, grad: Tensor, state: dict[str, Tensor], group: Any) -> None:
        m, share = state["momentum_buffer"], group["momentum"]
        m._reset(m + (grad - m) * (1.0 - share))
        update = _orthogonal(grad + (m - grad) * share if self._nesterov else m, *self._iteration)
        rows, columns = p.shape
        factor = 0.2 * math.sqrt(max(rows, columns)) if self._adjust == "match_rms_adamw" else math.sqrt(max(1, rows / columns))
        rate = group.rate(p)
        p._reset(p.detach() * (1.0 - rate * group["weight_decay"]) - rate * factor * update)


__all__ = ["ASGD", "Adafactor", "Muon"]
