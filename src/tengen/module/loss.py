"""Losses as modules, under PyTorch's names: `functional.loss` with settings. They have no parameters.

What PyTorch calls `size_average` and `reduce` is a TypeError: it is `reduction`.
"""

from __future__ import annotations

from collections.abc import Callable

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
        if not isinstance(reduction, str) or reduction not in ("mean", "sum", "none"):
            help = "; help: weight=" if isinstance(reduction, Tensor) else ""
            raise ArgumentError(f"{type(self).__name__}: reduction={reduction!r} must be 'mean', 'sum' or 'none'{help}")
        self.reduction = reduction

    def _module_info_string(self) -> str:
        return f"reduction={self.reduction!r}"


class CrossEntropyLoss(Loss):
    """`functional.loss.cross_entropy` of scores (N, C, ...) and labels (N, ...), numbers of classes.

    Args: label_smoothing: the share of the label that goes to all classes alike. reduction: as in `Loss`. weight: a factor for each class.
        ignore_index: a label whose samples are left out.

    >>> from tengen import Tensor, module as M
    >>> round(M.CrossEntropyLoss()(Tensor([[0.0, 0.0]]), Tensor([1])).item(), 4)
    0.6931
    """

    def __init__(
        self, reduction: str = "mean", label_smoothing: float = 0.0, *, weight: Tensor | None = None, ignore_index: int | None = None
    ):
        super().__init__(reduction)
        self.label_smoothing, self.weight, self.ignore_index = label_smoothing, weight, ignore_index

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        axis = 1 if input.ndim > 1 else 0
        more = {"weight": self.weight, "ignore_index": self.ignore_index}
        return _loss.cross_entropy(input, target, axis, True, self.label_smoothing, self.reduction, **more)


class NLLLoss(Loss):
    """`functional.loss.nll_loss` of logarithms of probabilities (N, C, ...) and labels (N, ...).

    Args: weight, ignore_index: as in `CrossEntropyLoss`.
    """

    def __init__(self, reduction: str = "mean", *, weight: Tensor | None = None, ignore_index: int | None = None):
        super().__init__(reduction)
        self.weight, self.ignore_index = weight, ignore_index

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        axis = 1 if input.ndim > 1 else 0
        return _loss.nll_loss(input, target, axis, self.reduction, weight=self.weight, ignore_index=self.ignore_index)


class MSELoss(Loss):
    """`functional.loss.square_loss`."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return _loss.square_loss(input, target, self.reduction)


class L1Loss(Loss):
    """`functional.loss.l1_loss`."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return _loss.l1_loss(input, target, self.reduction)


class BCELoss(Loss):
    """`functional.loss.binary_cross_entropy` of probabilities. Args: weight: factors for the losses."""

    def __init__(self, reduction: str = "mean", *, weight: Tensor | None = None):
        super().__init__(reduction)
        self.weight = weight

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return _loss.binary_cross_entropy(input, target, False, self.reduction, weight=self.weight)


class BCEWithLogitsLoss(Loss):
    """`functional.loss.binary_cross_entropy` of scores. Args: weight: factors for the losses. pos_weight: those for positive labels."""

    def __init__(self, reduction: str = "mean", *, weight: Tensor | None = None, pos_weight: Tensor | None = None):
        super().__init__(reduction)
        self.weight, self.pos_weight = weight, pos_weight

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return _loss.binary_cross_entropy(input, target, True, self.reduction, weight=self.weight, pos_weight=self.pos_weight)


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
    """`functional.loss.triplet_margin_loss`. Args: margin; p, eps: of the distance; swap: of the nearer of two pairs."""

    def __init__(self, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6, swap: bool = False, reduction: str = "mean"):
        super().__init__(reduction)
        self.margin, self.p, self.eps, self.swap = margin, p, eps, swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return _loss.triplet_margin_loss(anchor, positive, negative, self.margin, self.p, self.eps, self.reduction, swap=self.swap)


class TripletMarginWithDistanceLoss(Loss):
    """`functional.loss.triplet_margin_with_distance_loss`.

    Args: distance_function: of two tensors; by default that of `TripletMarginLoss`. margin; swap: of the nearer of two pairs.
    """

    def __init__(
        self, *, distance_function: Callable[[Tensor, Tensor], Tensor] | None = None, margin: float = 1.0, swap: bool = False,
        reduction: str = "mean",
    ):  # fmt: skip
        super().__init__(reduction)
        self.distance_function, self.margin, self.swap = distance_function, margin, swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        if self.distance_function is None:
            return _loss.triplet_margin_loss(anchor, positive, negative, self.margin, reduction=self.reduction, swap=self.swap)
        return _loss.triplet_margin_with_distance_loss(
            anchor, positive, negative, self.distance_function, self.margin, self.reduction, swap=self.swap
        )


class MarginRankingLoss(Loss):
    """`functional.loss.margin_ranking_loss`. Args: margin: by how much one is to exceed the other."""

    def __init__(self, margin: float = 0.0, reduction: str = "mean"):
        super().__init__(reduction)
        self.margin = margin

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return _loss.margin_ranking_loss(input1, input2, target, self.margin, self.reduction)


class HingeEmbeddingLoss(Loss):
    """`functional.loss.hinge_embedding_loss`. Args: margin: of pairs that are to be unlike."""

    def __init__(self, margin: float = 1.0, reduction: str = "mean"):
        super().__init__(reduction)
        self.margin = margin

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return _loss.hinge_embedding_loss(input, target, self.margin, self.reduction)


class SoftMarginLoss(Loss):
    """`functional.loss.soft_margin_loss`."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return _loss.soft_margin_loss(input, target, self.reduction)


class MultiMarginLoss(Loss):
    """`functional.loss.multi_margin_loss`. Args: p: the power, margin: by how much the label's score is to exceed the others."""

    def __init__(self, p: int = 1, margin: float = 1.0, reduction: str = "mean"):
        super().__init__(reduction)
        self.p, self.margin = p, margin

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return _loss.multi_margin_loss(input, target, self.p, self.margin, self.reduction)


class MultiLabelSoftMarginLoss(Loss):
    """`functional.loss.multilabel_soft_margin_loss`."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return _loss.multilabel_soft_margin_loss(input, target, None, self.reduction)


class PoissonNLLLoss(Loss):
    """`functional.loss.poisson_nll_loss`. Args: log_input, full, eps: as there."""

    def __init__(self, log_input: bool = True, full: bool = False, eps: float = 1e-8, reduction: str = "mean"):
        super().__init__(reduction)
        self.log_input, self.full, self.eps = log_input, full, eps

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return _loss.poisson_nll_loss(input, target, self.log_input, self.full, self.eps, self.reduction)


class GaussianNLLLoss(Loss):
    """`functional.loss.gaussian_nll_loss`. Args: full, eps: as there."""

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean"):
        super().__init__(reduction)
        self.full, self.eps = full, eps

    def forward(self, input: Tensor, target: Tensor, var: Tensor) -> Tensor:
        return _loss.gaussian_nll_loss(input, target, var, self.full, self.eps, self.reduction)


class CTCLoss(Loss):
    """`functional.loss.ctc_loss` of logarithms of probabilities (T, N, C), as PyTorch's.

    Args: blank: the class between labels. zero_infinity: losses that are inf, of labels too long for the scores, count as 0.
    """

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False):
        super().__init__(reduction)
        self.blank, self.zero_infinity = blank, zero_infinity

    def forward(self, log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor) -> Tensor:
        given = (log_probs, input_lengths, targets, target_lengths, self.blank, self.reduction)
        return _loss.ctc_loss(*given, log_probs=True, zero_infinity=self.zero_infinity)


__all__ = [
    "BCELoss", "BCEWithLogitsLoss", "CTCLoss", "GaussianNLLLoss", "HingeEmbeddingLoss", "MultiLabelSoftMarginLoss", "MultiMarginLoss",
    "PoissonNLLLoss", "SoftMarginLoss", "CosineEmbeddingLoss", "CrossEntropyLoss", "HuberLoss", "KLDivLoss", "L1Loss", "MSELoss",
    "MarginRankingLoss", "NLLLoss", "SmoothL1Loss", "TripletMarginLoss",
    "TripletMarginWithDistanceLoss",
]  # fmt: skip
