"""Losses. Each takes `reduction`: "mean", "sum" or "none"."""

from __future__ import annotations

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
    op = REGISTRY
    if with_logits:
        return _reduce(op["softplus"](pred) - pred * label, reduction)
    return _reduce(op["neg"](label * op["log"](pred) + (1 - label) * op["log"](1 - pred)), reduction)


def square_loss(pred: Tensor, label: Tensor, reduction: str = "mean") -> Tensor:
    """(pred - label)^2."""
    d = pred - label
    return _reduce(d * d, reduction)


def l1_loss(pred: Tensor, label: Tensor, reduction: str = "mean") -> Tensor:
    """|pred - label|."""
    return _reduce(REGISTRY["abs"](pred - label), reduction)


def hinge_loss(pred: Tensor, label: Tensor, norm: str = "L1", reduction: str = "mean") -> Tensor:
    """max(0, 1 - pred label) summed over axis 1 (its square with norm="L2"); labels are -1 and 1."""
    if norm not in ("L1", "L2"):
        raise ValueError(f"norm={norm!r} must be 'L1' or 'L2'")
    gap = REGISTRY["relu"](1 - pred * label)
    return _reduce(REGISTRY["sum"](gap if norm == "L1" else gap * gap, 1), reduction)


__all__ = ["binary_cross_entropy", "cross_entropy", "cross_entropy_with_softmax", "hinge_loss", "l1_loss", "square_loss"]
all_with_line(globals(), __all__)
