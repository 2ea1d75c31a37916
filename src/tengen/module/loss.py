"""Losses as modules, under PyTorch's names: `functional.loss` with settings. They have no parameters.

Arguments that PyTorch has and Tengen has not (`weight`, `ignore_index`, `size_average`) are TypeErrors.
"""

from __future__ import annotations

from tengen.base.errors import ArgumentError
from tengen.functional import loss as _loss
from tengen.module.module import Module
from tengen.tensor import Tensor


class Loss(Module):
    """What the losses share: `reduction`, "mean", "sum" or "none".

    Errors: ArgumentError for another one
    """

    def __init__(self, reduction: str = "mean"):
        super().__init__()
        if reduction not in ("mean", "sum", "none"):
            raise ArgumentError(f"{type(self).__name__}: reduction={reduction!r} must be 'mean', 'sum' or 'none'")
        self.reduction = reduction

    def _module_info_string(self) -> str:
        return f"reduction={self.reduction!r}"


class CrossEntropyLoss(Loss):
    """`functional.loss.cross_entropy` of scores (N, C, ...) and labels (N, ...), numbers of classes.

    Args: label_smoothing: the share of the label that goes to all classes alike. reduction: as in `Loss`.

    >>> from tengen import Tensor, module as M
    >>> round(M.CrossEntropyLoss()(Tensor([[0.0, 0.0]]), Tensor([1])).item(), 4)
    0.6931
    """

    def __init__(self, reduction: str = "mean", label_smoothing: float = 0.0):
        super().__init__(reduction)
        self.label_smoothing = label_smoothing

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        axis = 1 if input.ndim > 1 else 0
        return _loss.cross_entropy(input, target, axis, True, self.label_smoothing, self.reduction)


class NLLLoss(Loss):
    """`functional.loss.nll_loss` of logarithms of probabilities (N, C, ...) and labels (N, ...)."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return _loss.nll_loss(input, target, 1 if input.ndim > 1 else 0, self.reduction)


class MSELoss(Loss):
    """`functional.loss.square_loss`."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return _loss.square_loss(input, target, self.reduction)


class L1Loss(Loss):
    """`functional.loss.l1_loss`."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return _loss.l1_loss(input, target, self.reduction)


class BCELoss(Loss):
    """`functional.loss.binary_cross_entropy` of probabilities."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return _loss.binary_cross_entropy(input, target, False, self.reduction)


class BCEWithLogitsLoss(Loss):
    """`functional.loss.binary_cross_entropy` of scores."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return _loss.binary_cross_entropy(input, target, True, self.reduction)


class SmoothL1Loss(Loss):
    """`functional.loss.smooth_l1_loss`. Args: beta: where the square becomes a line."""

    def __init__(self, reduction: str = "mean", beta: float = 1.0):
        super().__init__(reduction)
        self.beta = beta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return _loss.smooth_l1_loss(input, target, self.reduction, self.beta)


class HuberLoss(Loss):
    """`functional.loss.huber_loss`. Args: delta: where the square becomes a line."""

    def __init__(self, reduction: str = "mean", delta: float = 1.0):
        super().__init__(reduction)
        self.delta = delta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return _loss.huber_loss(input, target, self.reduction, self.delta)


class KLDivLoss(Loss):
    """`functional.loss.kl_div` of logarithms of probabilities. Args: reduction: also "batchmean". log_target: whether targets are logarithms
    too."""

    def __init__(self, reduction: str = "mean", log_target: bool = False):
        super().__init__("mean" if reduction == "batchmean" else reduction)
        self.reduction, self.log_target = reduction, log_target

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return _loss.kl_div(input, target, self.reduction, self.log_target)


class CosineEmbeddingLoss(Loss):
    """`functional.loss.cosine_embedding_loss`. Args: margin: of pairs that are to be unlike."""

    def __init__(self, margin: float = 0.0, reduction: str = "mean"):
        super().__init__(reduction)
        self.margin = margin

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return _loss.cosine_embedding_loss(input1, input2, target, self.margin, self.reduction)


class TripletMarginLoss(Loss):
    """`functional.loss.triplet_margin_loss`. Args: margin; p, eps: of the distance."""

    def __init__(self, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6, reduction: str = "mean"):
        super().__init__(reduction)
        self.margin, self.p, self.eps = margin, p, eps

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return _loss.triplet_margin_loss(anchor, positive, negative, self.margin, self.p, self.eps, self.reduction)


class MarginRankingLoss(Loss):
    """`functional.loss.margin_ranking_loss`. Args: margin: by how much one is to exceed the other."""

    def __init__(self, margin: float = 0.0, reduction: str = "mean"):
        super().__init__(reduction)
        self.margin = margin

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return _loss.margin_ranking_loss(input1, input2, target, self.margin, self.reduction)


__all__ = [
    "BCELoss", "BCEWithLogitsLoss", "CosineEmbeddingLoss", "CrossEntropyLoss", "HuberLoss", "KLDivLoss", "L1Loss", "MSELoss",
    "MarginRankingLoss", "NLLLoss", "SmoothL1Loss", "TripletMarginLoss",
]  # fmt: skip
