"""Losses with PyTorch's arguments, as functions and as modules. Those whose arguments agree are Tengen's own."""

from __future__ import annotations

from typing import Any

from tengen import functional as F
from tengen import module as M
from tengen.base.errors import ArgumentError, ShapeError, UsageWarning, warn_once
from tengen.functional import loss as _loss
from tengen.ops.calls import all_with_line
from tengen.ops.widths import rounded_once
from tengen.pytorch.nn.module import Module
from tengen.tensor import Tensor


def reduction_of(size_average: bool | None, reduce: bool | None, reduction: str) -> str:
    """The reduction, which older programs say by two bools. Errors: ArgumentError for another word"""
    if size_average is None and reduce is None:
        if reduction not in ("none", "mean", "sum", "batchmean"):  # the last of `kl_div` alone, as `reduced` says
            raise ArgumentError(f"reduction={reduction!r} must be 'none', 'mean' or 'sum'")
        return reduction
    return "none" if reduce is False else "sum" if size_average is False else "mean"


def _same_shape(name: str, input: Tensor, target: Tensor) -> None:
    if input.shape != target.shape:
        warn_once(
            f"{name}: the input has shape {input.shape} and the target {target.shape}, which are broadcast; help: target.reshape(input.shape)",
            UsageWarning,
        )


def reduced(losses: Tensor, reduction: str) -> Tensor:
    """The losses, their sum or their mean."""
    if reduction not in ("mean", "sum", "none"):
        raise ArgumentError(f"reduction={reduction!r} must be 'mean', 'sum' or 'none'")
    return losses if reduction == "none" else F.mean(losses) if reduction == "mean" else F.sum(losses)


def cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None, ignore_index: int = -100,
    reduce: bool | None = None, reduction: str = "mean", label_smoothing: float = 0.0,
) -> Tensor:  # fmt: skip
    """Of scores (N, C, ...) and classes (N, ...), or probabilities of classes (N, C, ...).

    >>> cross_entropy(Tensor([[0.0, 0.0]]), Tensor([1])).item() == cross_entropy(Tensor([[0.0, 0.0]]), Tensor([[0.0, 1.0]])).item()
    True
    """
    how, axis = reduction_of(size_average, reduce, reduction), 1 if input.ndim > 1 else 0
    if not 0 <= label_smoothing <= 1:
        raise ArgumentError(f"cross_entropy: label_smoothing={label_smoothing} must be from 0 to 1")
    if not target.dtype.is_float:
        return _loss.cross_entropy(input, target, axis, True, label_smoothing, how, weight=weight, ignore_index=ignore_index)
    if ignore_index >= 0:
        raise ArgumentError(f"cross_entropy: ignore_index={ignore_index} has no meaning for a target of {target.dtype}; help: target.long()")
    if target.shape != input.shape:
        raise ArgumentError(f"cross_entropy: probabilities of shape {target.shape} for scores of shape {input.shape}; help: target.long()")
    classes = input.shape[axis]
    target = target * (1 - label_smoothing) + label_smoothing / classes if label_smoothing else target
    logs = F.log_softmax(input, axis) * target
    if weight is not None:
        logs = logs * weight.reshape((classes, *(1 for _ in input.shape[axis + 1 :])))
    losses = -F.sum(logs, axis)
    return F.sum(losses) / (losses.size) if how == "mean" else reduced(losses, how)


def nll_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None, ignore_index: int = -100,
    reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Of logarithms of probabilities (N, C, ...) and classes (N, ...)."""
    axis = 1 if input.ndim > 1 else 0
    return _loss.nll_loss(input, target, axis, reduction_of(size_average, reduce, reduction), weight=weight, ignore_index=ignore_index)


def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Of probabilities. Errors: ArgumentError where the target has another shape."""
    if input.shape != target.shape:
        raise ArgumentError(f"binary_cross_entropy: a target of shape {target.shape} for an input of shape {input.shape}")
    return _loss.binary_cross_entropy(input, target, False, reduction_of(size_average, reduce, reduction), weight=weight)


def binary_cross_entropy_with_logits(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean", pos_weight: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Of scores. Errors: ArgumentError where the target has another shape."""
    if input.shape != target.shape:
        raise ArgumentError(f"binary_cross_entropy_with_logits: a target of shape {target.shape} for an input of shape {input.shape}")
    how = reduction_of(size_average, reduce, reduction)
    return _loss.binary_cross_entropy(input, target, True, how, weight=weight, pos_weight=pos_weight)


@rounded_once
def mse_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The squares of differences."""
    _same_shape("mse_loss", input, target)
    squares = F.square(input - target)
    return reduced(squares if weight is None else squares * weight, reduction_of(size_average, reduce, reduction))


@rounded_once
def l1_loss(input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean") -> Tensor:
    """The absolute values of differences."""
    _same_shape("l1_loss", input, target)
    return reduced(F.abs(input - target), reduction_of(size_average, reduce, reduction))


def smooth_l1_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean", beta: float = 1.0
) -> Tensor:
    """Squares below `beta`, lines above."""
    _same_shape("smooth_l1_loss", input, target)
    return _loss.smooth_l1_loss(input, target, reduction_of(size_average, reduce, reduction), beta)


def huber_loss(input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0) -> Tensor:
    """Squares below `delta`, lines above."""
    _same_shape("huber_loss", input, target)
    return _loss.huber_loss(input, target, reduction, delta)


def kl_div(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:  # fmt: skip
    """Of logarithms of probabilities; reduction may be "batchmean"."""
    return _loss.kl_div(input, target, reduction_of(size_average, reduce, reduction), log_target)


def poisson_nll_loss(
    input: Tensor, target: Tensor, log_input: bool = True, full: bool = False, size_average: bool | None = None, eps: float = 1e-8,
    reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """The negative logarithm of Poisson's probabilities."""
    return _loss.poisson_nll_loss(input, target, log_input, full, eps, reduction_of(size_average, reduce, reduction))


def gaussian_nll_loss(
    input: Tensor, target: Tensor, var: Tensor, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Tensor:
    """The negative logarithm of normal densities. A `var` that lacks the input's last axis has a variance for all elements along it.

    Errors: ShapeError for a var of another shape, unless its last extent is 1, or it is one number
    """
    if isinstance(var, Tensor) and var.shape != input.shape:
        if var.shape == input.shape[:-1]:
            var = F.expand_dims(var, -1)
        elif var.ndim and (var.shape[-1:] != (1,) or var.shape[:-1] != input.shape[:-1]):
            raise ShapeError(f"gaussian_nll_loss: var of shape {var.shape} for an input of shape {input.shape}; help: {input.shape[:-1]}")
    return _loss.gaussian_nll_loss(input, target, var, full, eps, reduction)


def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """max(0, -target (input1 - input2) + margin)."""
    return _loss.margin_ranking_loss(input1, input2, target, margin, reduction_of(size_average, reduce, reduction))


def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """1 - cos of pairs that are alike, max(0, cos - margin) of others."""
    return _loss.cosine_embedding_loss(input1, input2, target, margin, reduction_of(size_average, reduce, reduction))


def _positive(margin: float) -> None:
    if not margin > 0:
        raise ArgumentError(f"triplet_margin_loss: margin={margin} must be positive")


def triplet_margin_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2, eps: float = 1e-6, swap: bool = False,
    size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """max(0, |anchor - positive| - |anchor - negative| + margin); with `swap` the smaller of |anchor - negative| and |positive - negative|."""
    _positive(margin)
    return _loss.triplet_margin_loss(anchor, positive, negative, margin, p, eps, reduction_of(size_average, reduce, reduction), swap=swap)


@rounded_once
def multi_margin_loss(
    input: Tensor, target: Tensor, p: int = 1, margin: float = 1.0, weight: Tensor | None = None, size_average: bool | None = None,
    reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """The mean over the C classes of max(0, margin - input[target] + input[class])^p, times weight[target]; target's own is left out.

    Shapes: input (N, C) or (C,), target (N,) or 0-d, weight (C,)
    """
    rows, classes = (input, target) if input.ndim == 2 else (input.reshape(1, -1), target.reshape(1))
    each = _loss.multi_margin_loss(rows, classes, p, margin, "none")
    each = each if weight is None else each * F.gather(weight, 0, classes)
    return reduced(each if input.ndim == 2 else each.reshape(()), reduction_of(size_average, reduce, reduction))


@rounded_once
def multilabel_soft_margin_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """The mean over classes of the binary cross-entropy of scores, each class times its weight."""
    return _loss.multilabel_soft_margin_loss(input, target, weight, reduction_of(size_average, reduce, reduction))


def triplet_margin_with_distance_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, *, distance_function: Any = None, margin: float = 1.0, swap: bool = False,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """max(0, d(anchor, positive) - d(anchor, negative) + margin), d being `pairwise_distance` unless given."""
    _positive(margin)
    distance = F.pairwise_distance if distance_function is None else distance_function
    return _loss.triplet_margin_with_distance_loss(
        anchor, positive, negative, distance_function=distance, margin=margin, swap=swap, reduction=reduction
    )


@rounded_once
def hinge_embedding_loss(
    input: Tensor, target: Tensor, margin: float = 1.0, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
) -> Tensor:
    """x of pairs that are alike, whose target is 1, max(0, margin - x) of others, whose target is -1; of any other target the sum of both."""
    alike = F.where(F.equal(target, -1), 0.0, input)
    each = alike + F.where(F.equal(target, 1), 0.0, F.relu(margin - input))
    return reduced(each, reduction_of(size_average, reduce, reduction))


def soft_margin_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
) -> Tensor:
    """log(1 + exp(-target input))."""
    return _loss.soft_margin_loss(input, target, reduction_of(size_average, reduce, reduction))


def ctc_loss(
    log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any, blank: int = 0, reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:  # fmt: skip
    """Of logarithms of probabilities (T, N, C), or (T, C) of one sequence.

    Args: targets: numbers of classes; floats, as padded rows often are, count as the integers that they hold. zero_infinity: losses that are
        inf, of labels too long for the scores, count as 0.
    """
    targets = targets.astype("int64") if targets.dtype.kind == "f" else targets
    lengths = [n if isinstance(n, Tensor) else Tensor(list(n), dtype="int64") for n in (input_lengths, target_lengths)]
    if log_probs.ndim == 2:
        of_one = [n.reshape(1) for n in lengths]
        found = ctc_loss(F.expand_dims(log_probs, 1), targets.reshape(1, -1), of_one[0], of_one[1], blank, reduction, zero_infinity)
        return found.reshape(())
    return _loss.ctc_loss(log_probs, lengths[0], targets, lengths[1], blank, reduction, log_probs=True, zero_infinity=zero_infinity)


class Loss(Module):
    """PyTorch's `_Loss`: the base of losses that programs write. Attributes: reduction: "mean", "sum" or "none"."""

    def __init__(self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"):
        super().__init__()
        self.reduction = reduction_of(size_average, reduce, reduction)


class WeightedLoss(Loss):
    """PyTorch's `_WeightedLoss`: losses with a factor for each class or element, given first."""

    def __init__(
        self, weight: Tensor | None = None, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
    ):  # fmt: skip
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)


class CrossEntropyLoss(WeightedLoss):
    """`cross_entropy` as a module: ``CrossEntropyLoss(weight, ignore_index=, label_smoothing=)``.

    >>> CrossEntropyLoss(Tensor([1.0, 2.0])).reduction
    'mean'
    """

    def __init__(
        self, weight: Tensor | None = None, size_average: bool | None = None, ignore_index: int = -100, reduce: bool | None = None,
        reduction: str = "mean", label_smoothing: float = 0.0,
    ):  # fmt: skip
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index, self.label_smoothing = ignore_index, label_smoothing

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return cross_entropy(input, target, self.weight, None, self.ignore_index, None, self.reduction, self.label_smoothing)


class NLLLoss(WeightedLoss):
    """`nll_loss` as a module."""

    def __init__(
        self, weight: Tensor | None = None, size_average: bool | None = None, ignore_index: int = -100, reduce: bool | None = None,
        reduction: str = "mean",
    ):  # fmt: skip
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return nll_loss(input, target, self.weight, None, self.ignore_index, None, self.reduction)


class BCELoss(WeightedLoss):
    """`binary_cross_entropy` as a module."""

    def __init__(
        self, weight: Tensor | None = None, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
    ):
        super().__init__(weight, size_average, reduce, reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return binary_cross_entropy(input, target, self.weight, None, None, self.reduction)


class BCEWithLogitsLoss(WeightedLoss):
    """`binary_cross_entropy_with_logits` as a module."""

    def __init__(
        self, weight: Tensor | None = None, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
        pos_weight: Tensor | None = None,
    ):  # fmt: skip
        super().__init__(weight, size_average, reduce, reduction)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return binary_cross_entropy_with_logits(input, target, self.weight, None, None, self.reduction, self.pos_weight)


class MultiLabelSoftMarginLoss(WeightedLoss):
    """`multilabel_soft_margin_loss` as a module."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return multilabel_soft_margin_loss(input, target, self.weight, None, None, self.reduction)


class CTCLoss(Loss):
    """`ctc_loss` as a module."""

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False):
        super().__init__(reduction=reduction)
        self.blank, self.zero_infinity = blank, zero_infinity

    def forward(self, log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any) -> Tensor:
        return ctc_loss(log_probs, targets, input_lengths, target_lengths, self.blank, self.reduction, self.zero_infinity)


class MSELoss(Module, M.MSELoss):
    """`mse_loss` as a module."""

    def __init__(self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"):
        super().__init__(reduction_of(size_average, reduce, reduction))

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return mse_loss(input, target, None, None, self.reduction)


class L1Loss(Module, M.L1Loss):
    """`l1_loss` as a module."""

    def __init__(self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"):
        super().__init__(reduction_of(size_average, reduce, reduction))

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return l1_loss(input, target, None, None, self.reduction)


class MultiMarginLoss(WeightedLoss):
    """`multi_margin_loss` as a module."""

    def __init__(
        self, p: int = 1, margin: float = 1.0, weight: Tensor | None = None, size_average: bool | None = None, reduce: bool | None = None,
        reduction: str = "mean",
    ):  # fmt: skip
        super().__init__(weight, size_average, reduce, reduction)
        self.p, self.margin = p, margin

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return multi_margin_loss(input, target, self.p, self.margin, self.weight, None, None, self.reduction)

all_with_line(globals(), [name for name in globals() if name[0] != "_"])
