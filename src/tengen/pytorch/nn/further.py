"""Layers of `torch.nn` that few programs use: random slopes, margins of several labels, a softmax of clusters."""

from __future__ import annotations

from collections.abc import Sequence

from tengen import functional as F
from tengen import module as M
from tengen.base.errors import ArgumentError, ShapeError
from tengen.base.record import NamedTuple
from tengen.pytorch.nn.layers import Linear
from tengen.pytorch.nn.losses import reduction_of
from tengen.pytorch.nn.module import Module, ModuleList, Sequential
from tengen.pytorch.nn.rare import feature_alpha_dropout, multilabel_margin_loss, rrelu
from tengen.tensor import Tensor


class RReLU(Module):
    """`rrelu`. Args: lower, upper: between which the slopes below 0 are; inplace: changes nothing."""

    def __init__(self, lower: float = 1 / 8, upper: float = 1 / 3, inplace: bool = False):
        super().__init__()
        self.lower, self.upper, self.inplace = lower, upper, inplace

    def extra_repr(self) -> str:
        """What `repr` says of the slopes."""
        return f"lower={self.lower}, upper={self.upper}"

    def forward(self, input: Tensor) -> Tensor:
        return rrelu(input, self.lower, self.upper, self.training)


class FeatureAlphaDropout(Module, M.AlphaDropout):
    """`feature_alpha_dropout`. Args: p: the share of channels; inplace: changes nothing."""

    def __init__(self, p: float = 0.5, inplace: bool = False):
        super().__init__(p)

    def forward(self, x: Tensor) -> Tensor:
        return feature_alpha_dropout(x, self.drop_prob, self.training)


class MultiLabelMarginLoss(Module):
    """`multilabel_margin_loss`."""

    def __init__(self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"):
        super().__init__()
        self.reduction = reduction_of(size_average, reduce, reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return multilabel_margin_loss(input, target, reduction=self.reduction)


class _Output(NamedTuple):
    """output: log-probabilities of the targets, (N,). loss: minus their mean."""

    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """A softmax of many classes, of which the frequent ones come first: those below the first cutoff have scores of their own, the others
    lie in clusters with ever narrower projections.

    Args: in_features; n_classes. cutoffs: where clusters begin, rising, below n_classes. div_value: by which each cluster is narrower.
        head_bias: whether the head has a bias.
    Errors: ValueError for cutoffs that are not so; ShapeError for inputs that do not fit; ArgumentError for targets out of range
    Source: Grave et al., arXiv 1609.04309
    """

    def __init__(self, in_features: int, n_classes: int, cutoffs: Sequence[int], div_value: float = 4.0, head_bias: bool = False):
        super().__init__()
        cuts = list(cutoffs)
        if not cuts or cuts != sorted(set(cuts)) or cuts[0] <= 0 or cuts[-1] > n_classes - 1 or any(int(c) != c for c in cuts):
            raise ValueError(f"AdaptiveLogSoftmaxWithLoss: cutoffs={cuts} must be rising whole numbers from 1 to {n_classes - 1}")
        self.in_features, self.n_classes, self.div_value, self.head_bias = in_features, n_classes, div_value, head_bias
        self.cutoffs = [*cuts, n_classes]
        self.shortlist_size, self.n_clusters = cuts[0], len(cuts)
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, bias=head_bias)
        sizes = [(int(in_features // div_value ** (i + 1)), self.cutoffs[i + 1] - self.cutoffs[i]) for i in range(self.n_clusters)]
        self.tail = ModuleList(
            [Sequential(Linear(in_features, h, bias=False), Linear(h, n, bias=False)) for h, n in sizes]
        )

    def reset_parameters(self) -> None:
        """Draws all weights anew."""
        self.head.reset_parameters()
        for cluster in self.tail:
            for layer in cluster:
                layer.reset_parameters()

    def log_prob(self, input: Tensor) -> Tensor:
        """The log-probabilities of all classes: (N, in_features) -> (N, n_classes)."""
        head = F.logsoftmax(self.head(input), 1)
        parts = [head[:, : self.shortlist_size]]
        for i, cluster in enumerate(self.tail):
            at = self.shortlist_size + i
            parts.append(F.logsoftmax(cluster(input), 1) + head[:, at : at + 1])
        return F.concat(parts, 1)

    def predict(self, input: Tensor) -> Tensor:
        """The likeliest class of each row."""
        return F.argmax(self.log_prob(input), 1)

    def forward(self, input_: Tensor, target_: Tensor) -> _Output:
        if input_.ndim != target_.ndim + 1 or target_.ndim > 1 or input_.shape[-1] != self.in_features:
            raise ShapeError(f"AdaptiveLogSoftmaxWithLoss takes (N, {self.in_features}) and (N,), got {input_.shape} and {target_.shape}")
        alone = target_.ndim == 0
        x, t = (input_.reshape(1, -1), target_.reshape(1)) if alone else (input_, target_)
        if t.size and not (0 <= int(t.min().item()) and int(t.max().item()) < self.n_classes):
            raise ArgumentError(f"AdaptiveLogSoftmaxWithLoss: targets must lie in [0, {self.n_classes - 1}]")
        output = F.gather(self.log_prob(x), 1, t.reshape(-1, 1)).reshape(-1)
        return _Output(output[0] if alone else output, -output.mean())


__all__ = [
    "AdaptiveLogSoftmaxWithLoss", "FeatureAlphaDropout", "MultiLabelMarginLoss", "RReLU",
]  # fmt: skip
