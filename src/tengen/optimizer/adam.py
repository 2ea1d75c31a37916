"""Adam and AdamW, and what came of them: SparseAdam, Adamax, NAdam, RAdam, LAMB."""

from __future__ import annotations

import numpy as np

from tengen.base.dtype import float32
from tengen.ops.adaptive_update import adamax_update, lamb_update, nadam_update, radam_update, sparse_adam_update
from tengen.ops.update import adam_update, amsgrad_update
from tengen.optimizer.optimizer import Optimizer, check_betas, counter, filled, zeros
from tengen.tensor import Tensor
from tengen.tensor.assignment import update


class Adam(Optimizer):
    """Kingma and Ba, arXiv 1412.6980. weight_decay is an L2 penalty in the gradient.

    Args: amsgrad: divides by the root of the largest mean of squares so far (`amsgrad_update`). how: as of `Optimizer`.
    Errors: ValueError for betas outside of [0, 1)
    """

    decoupled = False

    def __init__(
        self, params, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.0,
        amsgrad: bool = False, **how,
    ):  # fmt: skip
        check_betas(self, betas)
        values = {"betas": tuple(betas), "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad}
        super().__init__(params, {"lr": lr, **values}, how)

    def _create_state(self, p, group):
        state = {"exp_avg": zeros(p), "exp_avg_sq": zeros(p), "step": Tensor(np.float32(0.0))}
        return {**state, "max_exp_avg_sq": zeros(p)} if group["amsgrad"] else state

    def _update(self, p, grad, state, group):
        step = state["step"]
        step._reset(step + 1.0)
        attrs = (*group["betas"], group["eps"], group["weight_decay"], self.decoupled)
        if "max_exp_avg_sq" in state:
            tensors = (p, grad, state["exp_avg"], state["exp_avg_sq"], state["max_exp_avg_sq"], step, group.rate(p))
            return update(amsgrad_update, tensors, attrs, (0, 2, 3, 4))
        tensors = (p, grad, state["exp_avg"], state["exp_avg_sq"], step, group.rate(p))
        update(adam_update, tensors, attrs, (0, 2, 3))


class AdamW(Adam):
    """Adam with the weight decay apart from the gradient (Loshchilov and Hutter, arXiv 1711.05101). Arguments are those of `Adam`."""

    decoupled = True

    def __init__(
        self, params, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.01,
        amsgrad: bool = False, **how,
    ):  # fmt: skip
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, **how)


class SparseAdam(Optimizer):
    """Adam for tables of which a step uses few rows, as PyTorch's: rows along axis 0 whose gradient is 0 keep their values and their
    moments, where Adam goes on moving them by their momentum; `sparse_adam_update` has the formula. Steps are counted for the whole table.

    Gradients are dense here, so a step passes over the whole table, and a row that was looked up and got a gradient of 0 is a row that
    was not used. `distributed.EmbeddingTable` holds the used rows of a large table alone.

    Args: how: as of `Optimizer`. Errors: ValueError for betas outside of [0, 1)

    >>> from tengen import Parameter, Tensor
    >>> table = Parameter([[1.0, 1.0], [2.0, 2.0]])
    >>> opt = SparseAdam([table], lr=0.5)
    >>> table.grad = Tensor([[0.0, 0.0], [3.0, -3.0]])
    >>> opt.step() and table.tolist()
    [[1.0, 1.0], [1.5, 2.5]]
    """

    elementwise = False

    def __init__(self, params, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, **how):
        check_betas(self, betas)
        super().__init__(params, {"lr": lr, "betas": tuple(betas), "eps": eps}, how)

    def _create_state(self, p, group):
        return {"exp_avg": zeros(p), "exp_avg_sq": zeros(p), "step": counter()}

    def _update(self, p, grad, state, group):
        tensors = (p, grad, state["exp_avg"], state["exp_avg_sq"], state["step"], group.rate(p))
        update(sparse_adam_update, tensors, (*group["betas"], group["eps"]), (0, 2, 3, 4))


class Adamax(Optimizer):
    """Adam with a running maximum in place of the mean of squares (Kingma and Ba, arXiv 1412.6980, section 7.1), as in PyTorch:
    `adamax_update` has the formula.

    Args: weight_decay: L2 penalty. maximize: goes up in place of down. foreach, capturable: PyTorch's, accepted; they change no
        number.
    """

    def __init__(
        self, params, lr: float = 2e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.0, **how
    ):
        check_betas(self, betas)
        super().__init__(params, {"lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay}, how)

    def _create_state(self, p, group):
        return {"exp_avg": zeros(p), "exp_inf": zeros(p), "step": counter()}

    def _update(self, p, grad, state, group):
        tensors = (p, grad, state["exp_avg"], state["exp_inf"], state["step"], group.rate(p))
        update(adamax_update, tensors, (*group["betas"], group["eps"], group["weight_decay"]), (0, 2, 3, 4))


class NAdam(Optimizer):
    """Adam with Nesterov's momentum (T. Dozat, 2016), as in PyTorch: `nadam_update` has the formula.

    Args: momentum_decay: of the momentum's schedule. decoupled_weight_decay: the weight decay apart from the gradient, as in
        `AdamW`. maximize, foreach, capturable: as in `Adamax`.
    """

    def __init__(
        self, params, lr: float = 2e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.0,
        momentum_decay: float = 4e-3, decoupled_weight_decay: bool = False, **how,
    ):  # fmt: skip
        check_betas(self, betas)
        values = {"betas": tuple(betas), "eps": eps, "weight_decay": weight_decay, "momentum_decay": momentum_decay}
        super().__init__(params, {"lr": lr, **values, "decoupled_weight_decay": decoupled_weight_decay}, how)

    def _create_state(self, p, group):
        return {"exp_avg": zeros(p), "exp_avg_sq": zeros(p), "mu_product": counter(1.0, p), "step": counter()}

    def _update(self, p, grad, state, group):
        tensors = (p, grad, state["exp_avg"], state["exp_avg_sq"], state["mu_product"], state["step"], group.rate(p))
        args = (group["eps"], group["weight_decay"], group["momentum_decay"], bool(group["decoupled_weight_decay"]))
        update(nadam_update, tensors, (*group["betas"], *args), (0, 2, 3, 4, 5))


class RAdam(Optimizer):
    """Adam that begins without dividing by the root, until there are enough squares for it (L. Liu and others, arXiv
    1908.03265), as in PyTorch: `radam_update` has the formula.

    Args: decoupled_weight_decay: the weight decay apart from the gradient, as in `AdamW`. maximize, foreach, capturable: as in
        `Adamax`.
    """

    def __init__(
        self, params, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.0,
        decoupled_weight_decay: bool = False, **how,
    ):  # fmt: skip
        check_betas(self, betas)
        values = {"betas": tuple(betas), "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, {"lr": lr, **values, "decoupled_weight_decay": decoupled_weight_decay}, how)

    def _create_state(self, p, group):
        return {"exp_avg": zeros(p), "exp_avg_sq": zeros(p), "step": counter()}

    def _update(self, p, grad, state, group):
        tensors = (p, grad, state["exp_avg"], state["exp_avg_sq"], state["step"], group.rate(p))
        args = (*group["betas"], group["eps"], group["weight_decay"], bool(group["decoupled_weight_decay"]))
        update(radam_update, tensors, args, (0, 2, 3, 4))


class LAMB(Optimizer):
    """Adam whose step is as long as the parameter, times the learning rate (Y. You and others, arXiv 1904.00962), as in MegEngine:
    `lamb_update` has the formula.

    Args: bias_correction: of both means. weight_decay: in the step, as in `AdamW`. always_adapt: parameters without weight decay
        too get a step as long as they are.
    """

    elementwise = False

    def __init__(
        self, params, lr: float, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, bias_correction: bool = True,
        weight_decay: float = 0.0, always_adapt: bool = False,
    ):  # fmt: skip
        check_betas(self, betas)
        self.bias_correction, self.always_adapt = bool(bias_correction), bool(always_adapt)
        super().__init__(params, {"lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay})

    def _create_state(self, p, group):
        return {"exp_avg": zeros(p, float32), "exp_avg_sq": zeros(p, float32), "step": counter()}

    def _update(self, p, grad, state, group):
        master = state.get("param_fp32")
        tensors = (p, grad, master, state["exp_avg"], state["exp_avg_sq"], state["step"], group.rate(p))
        args = (*group["betas"], group["eps"], group["weight_decay"], self.bias_correction, self.always_adapt)
        update(lamb_update, tensors, args, (0, 3, 4, 5) if master is None else (0, 3, 4, 5, 2))


class LAMBFp16(LAMB):
    """LAMB for parameters of float16 or bfloat16: the float32 value of each is kept, updated, and rounded."""

    def _create_state(self, p, group):
        return {**super()._create_state(p, group), "param_fp32": filled(p, p.numpy(), float32)}
