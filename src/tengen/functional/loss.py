"""Losses. Each takes `reduction`: "mean", "sum" or "none"."""

from __future__ import annotations

import numpy as np

from tengen.base.errors import ShapeError, UsageWarning, warn_once
from tengen.functional.math import cosine_similarity
from tengen.ops.calls import all_with_line
from tengen.ops.define import REGISTRY
from tengen.ops.nn import cross_entropy_each
from tengen.tensor import Tensor


def _reduce(each: Tensor, reduction: str) -> Tensor:
    if reduction == "mean":
        return REGISTRY["mean"](each)
    if reduction == "sum":
        return REGISTRY["sum"](each)
    if reduction == "none":
        return each
    raise ValueError(f"reduction={reduction!r} must be 'mean', 'sum' or 'none'")


def _same_shape(name: str, pred: Tensor, label: Tensor) -> None:
    """Warns of a label whose shape differs from the prediction's: (N, 1) beside (N,) gives N x N differences."""
    if isinstance(label, Tensor) and isinstance(pred, Tensor) and pred.shape != label.shape:
        warn_once(
            f"{name}(): pred has shape {pred.shape}, label {label.shape}, and they are broadcast; help: reshape one of them so that "
            "the shapes are equal",
            UsageWarning,
        )


def cross_entropy(
    pred: Tensor, label: Tensor, axis: int = 1, with_logits: bool = True, label_smooth: float = 0, reduction: str = "mean"
) -> Tensor:
    """-log of the probability given to the label.

    Shapes: pred (N, C, ...) with the classes along `axis`, label (N, ...) integers
    Args:   with_logits: pred holds scores (softmax is applied), else probabilities. label_smooth: the share spread over all
    classes.
    Errors: IndexOutOfRange for a label outside the classes (eager mode).

    >>> from tengen import Tensor, functional as F
    >>> round(F.loss.cross_entropy(Tensor([[0.0, 0.0]]), Tensor([1])).item(), 4)
    0.6931
    """
    return _reduce(cross_entropy_each(pred, label, axis, with_logits, label_smooth), reduction)


def cross_entropy_with_softmax(pred: Tensor, label: Tensor, axis: int = 1, label_smooth: float = 0) -> Tensor:
    """`cross_entropy` of scores, under its name in MegEngine 1.0."""
    return cross_entropy(pred, label, axis, True, label_smooth)


def binary_cross_entropy(pred: Tensor, label: Tensor, with_logits: bool = True, reduction: str = "mean") -> Tensor:
    """-label log(p) - (1 - label) log(1 - p), where p is pred, or sigmoid(pred) with logits (computed without overflow)."""
    _same_shape("binary_cross_entropy", pred, label)
    op = REGISTRY
    if with_logits:
        return _reduce(op["softplus"](pred) - pred * label, reduction)
    return _reduce(op["neg"](label * op["log"](pred) + (1 - label) * op["log"](1 - pred)), reduction)


def square_loss(pred: Tensor, label: Tensor, reduction: str = "mean") -> Tensor:
    """(pred - label)^2."""
    _same_shape("square_loss", pred, label)
    d = pred - label
    return _reduce(d * d, reduction)


def l1_loss(pred: Tensor, label: Tensor, reduction: str = "mean") -> Tensor:
    """|pred - label|."""
    _same_shape("l1_loss", pred, label)
    return _reduce(REGISTRY["abs"](pred - label), reduction)


def hinge_loss(pred: Tensor, label: Tensor, norm: str = "L1", reduction: str = "mean") -> Tensor:
    """max(0, 1 - pred label) summed over axis 1 (its square with norm="L2"); labels are -1 and 1.

    Errors: ValueError for another norm than "L1" or "L2"
    """
    if norm not in ("L1", "L2"):
        raise ValueError(f"norm={norm!r} must be 'L1' or 'L2'")
    gap = REGISTRY["relu"](1 - pred * label)
    return _reduce(REGISTRY["sum"](gap if norm == "L1" else gap * gap, 1), reduction)


def smooth_l1_loss(pred: Tensor, label: Tensor, reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """d^2 / (2 beta) where d = |pred - label| is below beta, else d - beta / 2; `l1_loss` where beta is 0.

    Source: Girshick, arXiv 1504.08083; arguments as in PyTorch. Errors: ValueError for a negative beta.

    >>> from tengen import Tensor, functional as F
    >>> F.loss.smooth_l1_loss(Tensor([0.5, 3.0]), Tensor([0.0, 0.0]), "none").tolist()
    [0.125, 2.5]
    """
    if beta < 0:
        raise ValueError(f"smooth_l1_loss: beta={beta} must not be negative")
    if beta == 0:
        return l1_loss(pred, label, reduction)
    return huber_loss(pred, label, reduction, beta) / beta


def huber_loss(pred: Tensor, label: Tensor, reduction: str = "mean", delta: float = 1.0) -> Tensor:
    """d^2 / 2 where d = |pred - label| is below delta, else delta (d - delta / 2).

    Source: Huber, 1964. Errors: ValueError for a delta that is not positive.

    >>> from tengen import Tensor, functional as F
    >>> F.loss.huber_loss(Tensor([0.5, 3.0]), Tensor([0.0, 0.0]), "none").tolist()
    [0.125, 2.5]
    """
    if not delta > 0:
        raise ValueError(f"huber_loss: delta={delta} must be positive")
    _same_shape("huber_loss", pred, label)
    op = REGISTRY
    d = op["abs"](pred - label)
    near = op["minimum"](d, delta)  # the slope is min(d, delta), and so is the gradient at the seam
    return _reduce(near * (d - 0.5 * near), reduction)


def nll_loss(pred: Tensor, label: Tensor, axis: int = 1, reduction: str = "mean") -> Tensor:
    """-pred at the label's class: the negative log-likelihood of log-probabilities, such as `log_softmax` gives.

    Shapes: pred (N, C, ...) with the classes along `axis`, label (N, ...) integers
    Errors: ShapeError where labels do not fit the scores
    """
    op = REGISTRY
    at = axis % pred.ndim if pred.ndim else 0
    wanted = (*pred.shape[:at], *pred.shape[at + 1 :])
    if label.shape != wanted:
        raise ShapeError(f"nll_loss: labels of shape {label.shape} do not fit pred {pred._layout.type!r}; help: {wanted} is expected")
    picked = op["gather"](pred, axis, op["expand_dims"](label, axis))
    return _reduce(op["neg"](op["squeeze"](picked, axis)), reduction)


def kl_div(pred: Tensor, label: Tensor, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """label (log(label) - pred), where pred holds log-probabilities: the Kullback-Leibler divergence, element by element.

    Args: reduction: also "batchmean", the sum divided by the batch's extent, which is the divergence itself. log_target: label holds
        log-probabilities too. A label of 0 contributes 0.

    >>> from tengen import Tensor, functional as F
    >>> F.loss.kl_div(F.log(Tensor([[0.5, 0.5]])), Tensor([[0.5, 0.5]]), "batchmean").item()
    0.0
    """
    _same_shape("kl_div", pred, label)
    op = REGISTRY
    if log_target:
        each = op["exp"](label) * (label - pred)
    else:
        some = label > 0
        each = op["where"](some, label * (op["log"](op["where"](some, label, 1.0)) - pred), 0.0)
    if reduction == "batchmean":
        return op["sum"](each) / pred.shape[0]
    return _reduce(each, reduction)


def focal_loss(
    pred: Tensor, label: Tensor, alpha: float = 0.25, gamma: float = 2.0, with_logits: bool = True, reduction: str = "mean"
) -> Tensor:
    """alpha_t (1 - p_t)^gamma times the binary cross entropy, where p_t is the probability given to the label, 0 or 1, and alpha_t is
    alpha for 1 and 1 - alpha for 0 (1 for both where alpha is negative).

    Source: Lin et al., arXiv 1708.02002.
    """
    op = REGISTRY
    label = op["astype"](label, pred.dtype)
    p = op["sigmoid"](pred) if with_logits else pred
    each = binary_cross_entropy(pred, label, with_logits, "none") * op["pow"](p + label - 2 * p * label, gamma)
    if alpha >= 0:
        each = each * (alpha * label + (1 - alpha) * (1 - label))
    return _reduce(each, reduction)


def triplet_margin_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6, reduction: str = "mean"
) -> Tensor:
    """max(0, |anchor - positive| - |anchor - negative| + margin) with p-norms over the last axis; eps is added to each difference.

    Shapes: (..., D) three times -> (...). Source: Schroff et al., arXiv 1503.03832; arguments as in PyTorch.
    """
    op = REGISTRY

    def distance(x: Tensor, y: Tensor) -> Tensor:
        d = op["abs"](x - y + eps)
        return op["sqrt"](op["sum"](d * d, -1)) if p == 2 else op["pow"](op["sum"](op["pow"](d, p), -1), 1 / p)

    return _reduce(op["relu"](distance(anchor, positive) - distance(anchor, negative) + margin), reduction)


def cosine_embedding_loss(x: Tensor, y: Tensor, label: Tensor, margin: float = 0.0, reduction: str = "mean") -> Tensor:
    """1 - cos(x, y) where the label is 1, max(0, cos(x, y) - margin) where it is -1; over the last axis.

    Shapes: x and y (N, D) or (D,), label (N,) or 0-d
    """
    op = REGISTRY
    c = cosine_similarity(x, y, -1)
    return _reduce(op["where"](label > 0, 1 - c, op["relu"](c - margin)), reduction)


def margin_ranking_loss(x: Tensor, y: Tensor, label: Tensor, margin: float = 0.0, reduction: str = "mean") -> Tensor:
    """max(0, -label (x - y) + margin): a label of 1 asks that x be larger, -1 that y be."""
    return _reduce(REGISTRY["relu"](margin - label * (x - y)), reduction)


def ctc_loss(
    pred: Tensor, pred_lengths: Tensor, label: Tensor, label_lengths: Tensor, blank: int = 0, reduction: str = "mean", *,
    log_probs: bool = False,
) -> Tensor:  # fmt: skip
    """Connectionist temporal classification: the negative log-likelihood of labels whose alignment with the scores is not known.

    Shapes:   pred (T, N, C); pred_lengths and label_lengths (N); label (N, S), or all labels one after another, (sum of lengths)
    Args:
        pred: probabilities of the C classes at each step; with log_probs=True their logarithms, as PyTorch takes them. blank: the class
            between labels. reduction: "mean" (each loss divided by its number of labels, at least 1), "sum" or "none".
    Returns:  inf where labels cannot be aligned with so few steps, where the gradient is 0. Probabilities are taken to be at least the
        least normal number of their dtype, as in MegEngine
    Errors:   IndexOutOfRange for labels that are no class and lengths that are out of range. There are no second derivatives
    Source:   Graves et al., ICML 2006
    Errors: ShapeError for scores and labels of other numbers of axes

    >>> from tengen import Tensor, functional as F
    >>> pred = Tensor([[[0.1, 0.9]], [[0.5, 0.5]]])
    >>> round(F.loss.ctc_loss(pred, Tensor([2]), Tensor([[1]]), Tensor([1])).item(), 4)
    0.0513
    """
    op = REGISTRY
    if pred.ndim != 3 or label.ndim not in (1, 2):
        raise ShapeError(f"ctc_loss takes scores (T, N, C) and labels (N, S) or (sum of lengths), got {pred.shape} and {label.shape}")
    if label.ndim == 1:  # of each sample as many as there may be, of which the first are read
        ends = op["cumsum"](op["astype"](label_lengths, "int64"), 0)
        place = op["expand_dims"](ends - label_lengths, 1) + op["arange"](0, label.shape[0], 1, "int64")
        label = op["take"](label, op["minimum"](place, label.shape[0] - 1)) if label.size else op["zeros"]((pred.shape[1], 0), "int64")
    if not log_probs:
        pred = op["log"](op["maximum"](pred, float(np.finfo(pred.dtype.compute.numpy).tiny)))
    losses, _ = op["ctc"](pred, label, pred_lengths, label_lengths, blank)
    if reduction == "mean":
        losses = losses / op["astype"](op["maximum"](label_lengths, 1), losses.dtype)
    return _reduce(losses, reduction)


mse_loss = square_loss  # PyTorch's name
__all__ = [
    "mse_loss",
    "binary_cross_entropy", "cosine_embedding_loss", "cross_entropy", "cross_entropy_with_softmax", "ctc_loss", "focal_loss", "hinge_loss",
    "huber_loss", "kl_div", "l1_loss", "margin_ranking_loss", "nll_loss", "smooth_l1_loss", "square_loss", "triplet_margin_loss",
]  # fmt: skip
all_with_line(globals(), __all__)
