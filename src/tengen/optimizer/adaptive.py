"""Optimizers that divide gradients by a running norm, and those that look at their signs alone: Adadelta, Adagrad, RMSprop, Rprop,
Lion."""

from __future__ import annotations

from tengen.ops.adaptive_update import adadelta_update, adagrad_update, lion_update, rmsprop_update, rprop_update
from tengen.optimizer.optimizer import Optimizer, check_betas, counter, filled, refuse, zeros
from tengen.tensor.assignment import update


class Adadelta(Optimizer):
    """Steps of the size of those before, over the size of the gradients before (M. D. Zeiler, arXiv 1212.5701):
    `adadelta_update` has the formula.

    Args: rho: how much of the running squares stays in a step. eps: below both roots. weight_decay: L2 penalty.
    """

    def __init__(self, params, lr: float = 1.0, rho: float = 0.9, eps: float = 1e-6, weight_decay: float = 0.0, **how):
        super().__init__(params, {"lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay}, how)

    def _create_state(self, p, group):
        return {"square_avg": zeros(p), "acc_delta": zeros(p)}

    def _update(self, p, grad, state, group):
        tensors = (p, grad, state["square_avg"], state["acc_delta"], group.rate(p))
        update(adadelta_update, tensors, (group["rho"], group["eps"], group["weight_decay"]), (0, 2, 3))


class Adagrad(Optimizer):
    """Gradients over the root of the sum of all their squares (Duchi, Hazan and Singer, JMLR 12, 2011): `adagrad_update` has the
    formula. As in MegEngine, eps is added below the root; PyTorch adds it to the root.

    Args: lr_decay: the learning rate is lr / (1 + n lr_decay) after n steps. weight_decay: L2 penalty.
    """

    def __init__(
        self, params, lr: float = 0.01, lr_decay: float = 0.0, eps: float = 1e-10, weight_decay: float = 0.0, **how
    ):  # fmt: skip
        super().__init__(params, {"lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay}, how)

    def _create_state(self, p, group):
        return {"square_avg": zeros(p), "step": counter()}

    def _update(self, p, grad, state, group):
        tensors = (p, grad, state["square_avg"], state["step"], group.rate(p))
        update(adagrad_update, tensors, (group["lr_decay"], group["eps"], group["weight_decay"]), (0, 2, 3))


class RMSprop(Optimizer):
    """Gradients over the root of a running mean of their squares (T. Tieleman and G. Hinton, 2012), as in PyTorch:
    `rmsprop_update` has the formula.

    Args:
        alpha: how much of the running square stays in a step. eps: added to the root. weight_decay: L2 penalty. momentum: 0 keeps
            no velocity. centered: the variance in place of the square (A. Graves, arXiv 1308.0850). maximize: goes up in place
            of down. foreach, capturable: PyTorch's, accepted; they change no number.
    """

    def __init__(
        self, params, lr: float = 0.01, alpha: float = 0.99, eps: float = 1e-8, weight_decay: float = 0.0, momentum: float = 0.0,
        centered: bool = False, **how,
    ):  # fmt: skip
        values = {"alpha": alpha, "eps": eps, "weight_decay": weight_decay, "momentum": momentum, "centered": centered}
        super().__init__(params, {"lr": lr, **values}, how)

    def _create_state(self, p, group):
        kept = ["square_avg", *["grad_avg"] * bool(group["centered"]), *["momentum_buffer"] * bool(group["momentum"])]
        return {name: zeros(p) for name in kept}

    def _update(self, p, grad, state, group):
        for name, kept in (("grad_avg", group["centered"]), ("momentum_buffer", group["momentum"])):
            if kept and name not in state:  # it was 0 until now
                state[name] = zeros(p)
        mean = state["grad_avg"] if group["centered"] else None
        velocity = state["momentum_buffer"] if group["momentum"] else None
        tensors = (p, grad, state["square_avg"], mean, velocity, group.rate(p))
        over = (0, 2, *[3] * (mean is not None), *[4] * (velocity is not None))
        update(rmsprop_update, tensors, (group["alpha"], group["eps"], group["weight_decay"], group["momentum"]), over)


class Rprop(Optimizer):
    """Steps by the sign of a gradient, of a width that each element has for itself (M. Riedmiller and H. Braun, 1993), as in
    PyTorch: `rprop_update` has the formula. For gradients of all data, not of batches.

    Args: lr: the widths at first. etas: factors of a width where the sign turned, and where it stayed. step_sizes: the least and
        the largest width. maximize, foreach, capturable: as in `RMSprop`.
    """

    def __init__(
        self, params, lr: float = 0.01, etas: tuple[float, float] = (0.5, 1.2), step_sizes: tuple[float, float] = (1e-6, 50.0), **how
    ):
        if not 0 < etas[0] < 1 < etas[1]:
            refuse(self, f"etas={etas} are out of range: 0 < shrink < 1 < grow")
        if not 0 <= step_sizes[0] <= step_sizes[1]:
            refuse(self, f"step_sizes={step_sizes} are out of range: 0 <= least <= most")
        super().__init__(params, {"lr": lr, "etas": tuple(etas), "step_sizes": tuple(step_sizes)}, how)

    def _create_state(self, p, group):
        return {"prev": zeros(p), "step_size": filled(p, float(group["lr"]))}

    def _update(self, p, grad, state, group):
        tensors = (p, grad, state["prev"], state["step_size"])
        update(rprop_update, tensors, (*group["etas"], *group["step_sizes"]), (0, 2, 3))


class Lion(Optimizer):
    """Steps by the sign of a mean of gradients (X. Chen and others, arXiv 2302.06675): `lion_update` has the formula. All steps are
    of one size, so the learning rate is 3 to 10 times smaller than Adam's, and the weight decay as many times larger.

    Args: betas: of the mean whose sign is taken, and of the one that is kept. weight_decay: apart from the gradient.
    """

    def __init__(self, params, lr: float = 1e-4, betas: tuple[float, float] = (0.9, 0.99), weight_decay: float = 0.0, **how):
        check_betas(self, betas)
        super().__init__(params, {"lr": lr, "betas": tuple(betas), "weight_decay": weight_decay}, how)

    def _create_state(self, p, group):
        return {"exp_avg": zeros(p)}

    def _update(self, p, grad, state, group):
        update(lion_update, (p, grad, state["exp_avg"], group.rate(p)), (*group["betas"], group["weight_decay"]), (0, 2))
