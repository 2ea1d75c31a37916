"""Figures that tell how good a model's results are."""

from __future__ import annotations

from collections.abc import Iterable

from tengen.ops.calls import all_with_line
from tengen.ops.define import REGISTRY
from tengen.tensor import Tensor


def topk_accuracy(logits: Tensor, target: Tensor, topk: int | Iterable[int] = 1) -> Tensor | list[Tensor]:
    """The share of rows whose target is among the k classes with the highest scores.

    Args:
        logits: scores (N, C). target: classes (N,), integers. topk: k, or several.

    Returns: a 0-d float32 tensor, or a list of one for each k.

    >>> from tengen import Tensor, functional as F
    >>> F.topk_accuracy(Tensor([[0.1, 0.7, 0.2], [0.5, 0.2, 0.3]]), Tensor([1, 2]), (1, 2))
    [Tensor(0.5, dtype=float32), Tensor(1., dtype=float32)]
    """
    several = not isinstance(topk, int)
    ks = [topk] if isinstance(topk, int) else list(topk)
    _, best = REGISTRY["topk"](logits, max(ks), True)
    hits = REGISTRY["equal"](best, REGISTRY["expand_dims"](target, 1))
    found = [REGISTRY["mean"](REGISTRY["astype"](REGISTRY["any"](hits[:, :k], 1), "float32")) for k in ks]
    return found if several else found[0]


__all__ = ["topk_accuracy"]
all_with_line(globals(), __all__)
