"""Losses. Each takes `reduction`: "mean", "sum" or "none"."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tengen.base.errors import ArgumentError, ShapeError, UsageWarning, warn_once
from tengen.functional.math import cosine_similarity
from tengen.ops.calls import all_with_line
from tengen.ops.define import REGISTRY
from tengen.ops.nn import cross_entropy_each
from tengen.ops.widths import rounded_once
from tengen.tensor import Tensor


def _reduce(each: Tensor, reduction: str) -> Tensor:
    if reduction == "mean":
        return REGISTRY["mean"](each)
    if reduction == "sum":
        return REGISTRY["sum"](each)
    if reduction == "none":
        return each
    raise ArgumentError(f"reduction={reduction!r} must be 'mean', 'sum' or 'none'")


def _same_shape(name: str, pred: Tensor, label: Tensor) -> None:
    """Warns of a label whose shape differs from the prediction's: (N, 1) beside (N,) gives N x N differences."""
    if isinstance(label, Tensor) and isinstance(pred, Tensor) and pred.shape != label.shape:
        warn_once(
            f"{name}(): pred has shape {pred.shape}, label {label.shape}, and they are broadcast; help: reshape one of them so that "
            "the shapes are equal",
            UsageWarning,
        )


def cross_entropy(
    pred: Tensor, label: Tensor, axis: int = 1, with_logits: bool = True, label_smooth: float = 0, reduction: str = "mean", *,
    weight: Tensor | None = None, ignore_index: int | None = None,
) -> Tensor:  # fmt: skip
    """-log of the probability given to the label.

    Shapes: pred (N, C, ...) with the classes along `axis`, label (N, ...) integers, or the probabilities of the classes in pred's shape
    Args:
        with_logits: pred holds scores (softmax is applied), else probabilities. label_smooth: the share spread over all classes.
        weight: a factor for each class (C,). ignore_index: a label whose samples are left out, also one that is no class, as -100. The
            mean of weighted losses, or of those that are left, is divided by the sum of the labels' weights, as in PyTorch.
    Errors: IndexOutOfRange for a label outside the classes (eager mode); ShapeError for weights that are not one for each class;
        ArgumentError for an ignore_index beside labels that are probabilities

    >>> from tengen import Tensor, functional as F
    >>> round(F.loss.cross_entropy(Tensor([[0.0, 0.0]]), Tensor([1])).item(), 4)
    0.6931
    >>> round(F.loss.cross_entropy(F.zeros((2, 2)), Tensor([1, -100]), ignore_index=-100).item(), 4)
    0.6931
    """
    soft = isinstance(label, Tensor) and label.dtype.is_float and label.shape == pred.shape
    if not soft and weight is None and ignore_index is None:
        return _reduce(cross_entropy_each(pred, label, axis, with_logits, label_smooth), reduction)
    if soft and ignore_index is not None:
        raise ArgumentError(f"cross_entropy: ignore_index={ignore_index} goes with labels that are classes, these are {label._layout.type!r}")
    op = REGISTRY
    logs = op["logsoftmax"](pred, axis) if with_logits else op["log"](pred)
    if soft:
        classes = pred.shape[axis]
        if label_smooth:
            label = label * (1.0 - label_smooth) + label_smooth / classes
        each = op["neg"](op["sum"](label * (logs if weight is None else logs * _of_classes(weight, pred, axis)), axis))
        return _reduce(each, reduction)
    if weight is None:
        each = cross_entropy_each(pred, _classes_left(label, ignore_index), axis, with_logits, label_smooth)
        return _reduce_left(each, op["ones_like"](each), label, ignore_index, reduction)
    each, factor = _weighted(logs, label, axis, weight, ignore_index)
    if label_smooth:
        rest = op["mean"](logs * _of_classes(weight, pred, axis), axis)
        each = each * (1.0 - label_smooth) - rest * label_smooth
    return _reduce_left(each, factor, label, ignore_index, reduction)


def _of_classes(weight: Tensor, pred: Tensor, axis: int) -> Tensor:
    """The weights of classes along the classes' axis."""
    if weight.shape != (pred.shape[axis],):
        raise ShapeError(f"weight has shape {weight.shape}; help: ({pred.shape[axis]},) is expected, one for each class")
    return REGISTRY["reshape"](weight, tuple(-1 if i == axis % pred.ndim else 1 for i in range(pred.ndim)))


def _classes_left(label: Tensor, ignore_index: int | None) -> Tensor:
    """The labels, with class 0 in the place of what is left out."""
    return label if ignore_index is None else REGISTRY["where"](REGISTRY["equal"](label, ignore_index), 0, label)


def _weighted(logs: Tensor, label: Tensor, axis: int, weight: Tensor, ignore_index: int | None) -> tuple[Tensor, Tensor]:
    """-weight log(probability) of each label, and the weight."""
    weights = REGISTRY["broadcast_to"](_of_classes(weight, logs, axis), logs.shape)
    there = _classes_left(label, ignore_index)
    factor = REGISTRY["neg"](nll_loss(weights, there, axis, "none"))
    return nll_loss(logs, there, axis, "none") * factor, factor


def _reduce_left(each: Tensor, factor: Tensor, label: Tensor, ignore_index: int | None, reduction: str) -> Tensor:
    """The reduction of weighted losses; the mean is divided by the sum of the weights. What is left out counts nothing."""
    op = REGISTRY
    if ignore_index is not None:
        out = op["equal"](label, ignore_index)
        each, factor = op["where"](out, 0.0, each), op["where"](out, 0.0, factor)
    return op["sum"](each) / op["sum"](factor) if reduction == "mean" else _reduce(each, reduction)


def cross_entropy_with_softmax(pred: Tensor, label: Tensor, axis: int = 1, label_smooth: float = 0) -> Tensor:
    """`cross_entropy` of scores, under its name in MegEngine 1.0."""
    return cross_entropy(pred, label, axis, True, label_smooth)


@rounded_once
def binary_cross_entropy(
    pred: Tensor, label: Tensor, with_logits: bool = True, reduction: str = "mean", *, weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """-label log(p) - (1 - label) log(1 - p), where p is pred, or sigmoid(pred) with logits (computed without overflow). PyTorch's function
    of this name takes probabilities, which is with_logits=False here.

    Args: weight: factors for the losses. pos_weight: factors for their first parts, of positive labels; with logits alone.
    Errors: ArgumentError for pos_weight without logits
    Numerics: logarithms of probabilities are taken to be at least -100, as in PyTorch, so that 0 and 1 give no NaN; the
        logarithm of 0 has the gradient 0

    >>> from tengen import Tensor, functional as F
    >>> F.loss.binary_cross_entropy(Tensor([1.0]), Tensor([0.0]), with_logits=False).item()
    100.0
    """
    _same_shape("binary_cross_entropy", pred, label)
    op = REGISTRY
    if pos_weight is not None:
        if not with_logits:
            raise ArgumentError("binary_cross_entropy: pos_weight goes with logits; help: weight=")
        each = (1.0 - label) * pred + (1.0 + (pos_weight - 1.0) * label) * op["softplus"](-pred)
    elif with_logits:
        each = op["softplus"](pred) - pred * label
    else:
        there, not_there = _log_at_least(pred), _log_at_least(1 - pred)
        each = op["neg"](label * there + (1 - label) * not_there)
    return _reduce(each if weight is None else each * weight, reduction)


def _log_at_least(p: Tensor) -> Tensor:
    """log(p), or -100 where that is more: of 0, where the logarithm has no gradient."""
    op = REGISTRY
    nothing = op["equal"](p, 0)
    return op["where"](nothing, -100.0, op["maximum"](op["log"](op["where"](nothing, 1.0, p)), -100.0))


@rounded_once
def binary_cross_entropy_with_logits(
    pred: Tensor, label: Tensor, weight: Tensor | None = None, pos_weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """`binary_cross_entropy` of scores, under PyTorch's name."""
    return binary_cross_entropy(pred, label, True, reduction, weight=weight, pos_weight=pos_weight)


@rounded_once
def square_loss(pred: Tensor, label: Tensor, reduction: str = "mean") -> Tensor:
    """(pred - label)^2."""
    _same_shape("square_loss", pred, label)
    d = pred - label
    return _reduce(d * d, reduction)


@rounded_once
def l1_loss(pred: Tensor, label: Tensor, reduction: str = "mean") -> Tensor:
    """|pred - label|."""
    _same_shape("l1_loss", pred, label)
    return _reduce(REGISTRY["abs"](pred - label), reduction)


@rounded_once
def hinge_loss(pred: Tensor, label: Tensor, norm: str = "L1", reduction: str = "mean") -> Tensor:
    """max(0, 1 - pred label) summed over axis 1 (its square with norm="L2"); labels are -1 and 1.

    Errors: ArgumentError for another norm than "L1" or "L2"
    """
    if str(norm).upper() not in ("L1", "L2"):
        raise ArgumentError(f"norm={norm!r} must be 'L1' or 'L2'")
    gap = REGISTRY["relu"](1 - pred * label)
    return _reduce(REGISTRY["sum"](gap if norm.upper() == "L1" else gap * gap, 1), reduction)


@rounded_once
def smooth_l1_loss(pred: Tensor, label: Tensor, reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """d^2 / (2 beta) where d = |pred - label| is below beta, else d - beta / 2; `l1_loss` where beta is 0.

    Source: Girshick, arXiv 1504.08083; arguments as in PyTorch. Errors: ArgumentError for a negative beta.

    >>> from tengen import Tensor, functional as F
    >>> F.loss.smooth_l1_loss(Tensor([0.5, 3.0]), Tensor([0.0, 0.0]), "none").tolist()
    [0.125, 2.5]
    """
    if beta < 0:
        raise ArgumentError(f"smooth_l1_loss: beta={beta} must not be negative")
    if beta == 0:
        return l1_loss(pred, label, reduction)
    return huber_loss(pred, label, reduction, beta) / beta


@rounded_once
def huber_loss(pred: Tensor, label: Tensor, reduction: str = "mean", delta: float = 1.0) -> Tensor:
    """d^2 / 2 where d = |pred - label| is below delta, else delta (d - delta / 2).

    Source: Huber, 1964. Errors: ArgumentError for a delta that is not positive.

    >>> from tengen import Tensor, functional as F
    >>> F.loss.huber_loss(Tensor([0.5, 3.0]), Tensor([0.0, 0.0]), "none").tolist()
    [0.125, 2.5]
    """
    if not delta > 0:
        raise ArgumentError(f"huber_loss: delta={delta} must be positive")
    _same_shape("huber_loss", pred, label)
    op = REGISTRY
    d = op["abs"](pred - label)
    near = op["minimum"](d, delta)  # the slope is min(d, delta), and so is the gradient at the seam
    return _reduce(near * (d - 0.5 * near), reduction)


def nll_loss(
    pred: Tensor, label: Tensor, axis: int = 1, reduction: str = "mean", *, weight: Tensor | None = None, ignore_index: int | None = None
) -> Tensor:
    """-pred at the label's class: the negative log-likelihood of log-probabilities, such as `log_softmax` gives.

    Shapes: pred (N, C, ...) with the classes along `axis`, label (N, ...) integers
    Args: weight, ignore_index: as in `cross_entropy`
    Errors: ShapeError where labels do not fit the scores, or weights the classes
    """
    op = REGISTRY
    at = axis % pred.ndim if pred.ndim else 0
    wanted = (*pred.shape[:at], *pred.shape[at + 1 :])
    if label.shape != wanted:
        raise ShapeError(f"nll_loss: labels of shape {label.shape} do not fit pred {pred._layout.type!r}; help: {wanted} is expected")
    if weight is not None:
        each, factor = _weighted(pred, label, axis, weight, ignore_index)
        return _reduce_left(each, factor, label, ignore_index, reduction)
    picked = op["gather"](pred, axis, op["expand_dims"](_classes_left(label, ignore_index), axis))
    each = op["neg"](op["squeeze"](picked, axis))
    return _reduce(each, reduction) if ignore_index is None else _reduce_left(each, op["ones_like"](each), label, ignore_index, reduction)


@rounded_once
def kl_div(pred: Tensor, label: Tensor, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """label (log(label) - pred), where pred holds log-probabilities: the Kullback-Leibler divergence, element by element.

    Args: reduction: also "batchmean", the sum divided by the batch's extent, which is the divergence itself. log_target: label holds
        log-probabilities too. A label of 0 contributes 0, a negative one NaN.

    >>> from tengen import Tensor, functional as F
    >>> F.loss.kl_div(F.log(Tensor([[0.5, 0.5]])), Tensor([[0.5, 0.5]]), "batchmean").item()
    0.0
    """
    _same_shape("kl_div", pred, label)
    op = REGISTRY
    if log_target:
        each = op["exp"](label) * (label - pred)
    else:
        none = op["equal"](label, 0)
        each = op["where"](none, 0.0, label * (op["log"](op["where"](none, 1.0, label)) - pred))
    if reduction == "batchmean":
        return op["sum"](each) / pred.shape[0] if pred.ndim else each
    return _reduce(each, reduction)


@rounded_once
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


@rounded_once
def triplet_margin_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6, reduction: str = "mean",
    *, swap: bool = False,
) -> Tensor:  # fmt: skip
    """max(0, |anchor - positive| - |anchor - negative| + margin) with p-norms over the last axis; eps is added to each difference.

    Shapes: (..., D) three times -> (...)
    Args:   swap: the smaller of |anchor - negative| and |positive - negative| is taken (Balntas et al., BMVC 2016).
    Source: Schroff et al., arXiv 1503.03832; arguments as in PyTorch
    """
    op = REGISTRY

    def distance(x: Tensor, y: Tensor) -> Tensor:
        d = op["abs"](x - y + eps)
        return op["sqrt"](op["sum"](d * d, -1)) if p == 2 else op["pow"](op["sum"](op["pow"](d, p), -1), 1 / p)

    return _triplet(distance, anchor, positive, negative, margin, swap, reduction)


def _triplet(distance: Callable, anchor: Tensor, positive: Tensor, negative: Tensor, margin: float, swap: bool, reduction: str) -> Tensor:
    """The mean, sum or each of max(0, d(anchor, positive) - d(anchor, negative) + margin)."""
    far = distance(anchor, negative)
    far = REGISTRY["minimum"](far, distance(positive, negative)) if swap else far
    return _reduce(REGISTRY["relu"](distance(anchor, positive) - far + margin), reduction)


@rounded_once
def cosine_embedding_loss(x: Tensor, y: Tensor, label: Tensor, margin: float = 0.0, reduction: str = "mean") -> Tensor:
    """1 - cos(x, y) where the label is 1, max(0, cos(x, y) - margin) where it is -1; over the last axis.

    Shapes: x and y (N, D) or (D,), label (N,) or 0-d
    """
    op = REGISTRY
    c = cosine_similarity(x, y, -1)
    return _reduce(op["where"](label > 0, 1 - c, op["relu"](c - margin)), reduction)


@rounded_once
def margin_ranking_loss(x: Tensor, y: Tensor, label: Tensor, margin: float = 0.0, reduction: str = "mean") -> Tensor:
    """max(0, -label (x - y) + margin): a label of 1 asks that x be larger, -1 that y be."""
    return _reduce(REGISTRY["relu"](margin - label * (x - y)), reduction)


@rounded_once
def hinge_embedding_loss(pred: Tensor, label: Tensor, margin: float = 1.0, reduction: str = "mean") -> Tensor:
    """pred where the label is 1, max(0, margin - pred) where it is -1: of distances of pairs that are alike, or unlike."""
    op = REGISTRY
    return _reduce(op["where"](label > 0, pred, op["relu"](margin - pred)), reduction)


@rounded_once
def soft_margin_loss(pred: Tensor, label: Tensor, reduction: str = "mean") -> Tensor:
    """log(1 + exp(-label pred)), for labels 1 and -1."""
    return _reduce(REGISTRY["softplus"](-(label * pred)), reduction)


@rounded_once
def multi_margin_loss(pred: Tensor, label: Tensor, p: int = 1, margin: float = 1.0, reduction: str = "mean") -> Tensor:
    """The mean over the C classes of max(0, margin - pred[label] + pred[class])^p, that of the label left out.

    Shapes: pred (N, C), label (N,) integers
    """
    op = REGISTRY
    at = op["expand_dims"](label, 1)
    gaps = op["relu"](margin - op["gather"](pred, 1, at) + pred)
    gaps = op["where"](op["equal"](at, op["arange"](0, pred.shape[1], 1, "int64")), 0.0, gaps if p == 1 else op["pow"](gaps, float(p)))
    return _reduce(op["sum"](gaps, 1) / pred.shape[1], reduction)


@rounded_once
def multilabel_soft_margin_loss(pred: Tensor, label: Tensor, weight: Tensor | None = None, reduction: str = "mean") -> Tensor:
    """The mean over the last axis of `binary_cross_entropy` of scores: several classes may hold at once."""
    each = binary_cross_entropy(pred, label, True, "none", weight=weight)
    return _reduce(REGISTRY["mean"](each, -1), reduction)


@rounded_once
def poisson_nll_loss(
    pred: Tensor, label: Tensor, log_input: bool = True, full: bool = False, eps: float = 1e-8, reduction: str = "mean"
) -> Tensor:
    """exp(pred) - label pred: the negative log-likelihood of counts under a Poisson distribution of rate exp(pred).

    Args: log_input: without it, pred is the rate itself, and eps is added to it in its logarithm. full: adds Stirling's approximation of
        log(label!), for labels above 1.
    """
    op = REGISTRY
    each = op["exp"](pred) - label * pred if log_input else pred - label * op["log"](pred + eps)
    if full:
        many = op["maximum"](label, 1.0)
        rest = many * op["log"](many) - many + 0.5 * op["log"](6.283185307179586 * many)
        each = each + op["where"](label > 1, rest, 0.0)
    return _reduce(each, reduction)


@rounded_once
def gaussian_nll_loss(
    pred: Tensor, label: Tensor, var: Tensor, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Tensor:
    """(log(var) + (pred - label)^2 / var) / 2: the negative log-likelihood under a normal distribution.

    Args: var: variances, which are taken to be at least eps, without a gradient where they are less. full: adds log(2 pi) / 2.
    """
    op = REGISTRY
    var = op["maximum"](var, eps)
    each = 0.5 * (op["log"](var) + op["square"](pred - label) / var) + (0.9189385332046727 if full else 0.0)
    return _reduce(each, reduction)


@rounded_once
def triplet_margin_with_distance_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, distance_function: Callable[[Tensor, Tensor], Tensor], margin: float = 1.0,
    reduction: str = "mean", *, swap: bool = False,
) -> Tensor:  # fmt: skip
    """max(0, d(anchor, positive) - d(anchor, negative) + margin) with a distance of one's own. swap: as of `triplet_margin_loss`."""
    return _triplet(distance_function, anchor, positive, negative, margin, swap, reduction)


def ctc_loss(
    pred: Tensor, pred_lengths: Tensor, label: Tensor, label_lengths: Tensor, blank: int = 0, reduction: str = "mean", *,
    log_probs: bool = False, zero_infinity: bool = False,
) -> Tensor:  # fmt: skip
    """Connectionist temporal classification: the negative log-likelihood of labels whose alignment with the scores is not known.

    Shapes:   pred (T, N, C); pred_lengths and label_lengths (N); label (N, S), or all labels one after another, (sum of lengths)
    Args:
        pred: probabilities of the C classes at each step; with log_probs=True their logarithms, as PyTorch takes them. blank: the class
            between labels. reduction: "mean" (each loss divided by its number of labels, at least 1), "sum" or "none".
        zero_infinity: losses that are inf count as 0, before they are reduced.
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
    if zero_infinity:
        losses = op["where"](op["isinf"](losses), 0.0, losses)
    if reduction == "mean":
        losses = losses / op["astype"](op["maximum"](label_lengths, 1), losses.dtype)
    return _reduce(losses, reduction)


mse_loss = square_loss  # PyTorch's name
_SPELLED = {"input": "pred", "target": "label"}  # PyTorch's names of parameters
for _f in (
    binary_cross_entropy, binary_cross_entropy_with_logits, gaussian_nll_loss, hinge_embedding_loss, huber_loss, kl_div, l1_loss,
    multi_margin_loss, multilabel_soft_margin_loss, nll_loss, poisson_nll_loss, smooth_l1_loss, soft_margin_loss, square_loss,
):  # fmt: skip
    _f.aliases = _SPELLED
cosine_embedding_loss.aliases = margin_ranking_loss.aliases = {"input1": "x", "input2": "y", "target": "label"}
cross_entropy.aliases = {**_SPELLED, "label_smoothing": "label_smooth"}
__all__ = [
    "binary_cross_entropy_with_logits", "gaussian_nll_loss", "hinge_embedding_loss", "mse_loss", "multi_margin_loss",
    "multilabel_soft_margin_loss", "poisson_nll_loss", "soft_margin_loss", "triplet_margin_with_distance_loss",
    "binary_cross_entropy", "cosine_embedding_loss", "cross_entropy", "cross_entropy_with_softmax", "ctc_loss", "focal_loss", "hinge_loss",
    "huber_loss", "kl_div", "l1_loss", "margin_ranking_loss", "nll_loss", "smooth_l1_loss", "square_loss", "triplet_margin_loss",
]  # fmt: skip
all_with_line(globals(), __all__)
