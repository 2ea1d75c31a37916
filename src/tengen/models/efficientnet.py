"""EfficientNet-B0. Source: Tan and Le, arXiv 1905.11946."""

from __future__ import annotations

from collections.abc import Sequence

import tengen.functional as F
import tengen.module as M
from tengen.models.build import network
from tengen.models.layers import ConvNorm, DropPath, SqueezeExcite
from tengen.tensor import Tensor


class MBConv(M.Module):
    """Pointwise, depthwise, squeeze-and-excitation, pointwise; a shortcut with stochastic depth where sizes allow."""

    def __init__(self, in_channels: int, out_channels: int, expansion: int, kernel_size: int, stride: int, drop_path: float):
        super().__init__()
        hidden = in_channels * expansion
        layers: list[M.Module] = [] if expansion == 1 else [ConvNorm(in_channels, hidden, activation="silu")]
        layers += [
            ConvNorm(hidden, hidden, kernel_size, stride, hidden, "silu"),
            SqueezeExcite(hidden, max(1, in_channels // 4), "silu", "sigmoid"),
            ConvNorm(hidden, out_channels, activation="none"),
        ]
        self.layers, self.drop_path = M.Sequential(*layers), DropPath(drop_path)
        self.shortcut = stride == 1 and in_channels == out_channels

    def forward(self, x: Tensor) -> Tensor:
        y = self.layers(x)
        return x + self.drop_path(y) if self.shortcut else y


# expansion, kernel, stride, channels, blocks
B0 = [(1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3), (6, 5, 1, 112, 3), (6, 5, 2, 192, 4), (6, 3, 1, 320, 1)]


class EfficientNet(M.Module):
    """EfficientNet: mobile blocks with squeeze-and-excitation.

    Shapes: (N, 3, H, W) -> (N, num_classes)
    Args:
        stages: (expansion, kernel size, stride of the first block, channels, blocks). hidden: channels before the classifier.
        drop_path: of the last block; earlier ones less, in proportion.
    """

    def __init__(
        self, num_classes: int = 1000, stages: Sequence[tuple[int, int, int, int, int]] = B0, hidden: int = 1280,
        drop_prob: float = 0.2, drop_path: float = 0.2,
    ):  # fmt: skip
        super().__init__()
        self.depths = tuple(stage[-1] for stage in stages)
        layers: list[M.Module] = [ConvNorm(3, 32, 3, 2, activation="silu")]
        channels, done, total = 32, 0, sum(s[-1] for s in stages)
        for expansion, kernel, stride, out, depth in stages:
            for j in range(depth):
                layers.append(MBConv(channels, out, expansion, kernel, stride if j == 0 else 1, drop_path * done / total))
                channels, done = out, done + 1
        layers.append(ConvNorm(channels, hidden, activation="silu"))
        self.features, self.dropout = M.Sequential(*layers), M.Dropout(drop_prob)
        self.classifier = M.Linear(hidden, num_classes)
        M.init.uniform_(self.classifier.weight, -(num_classes**-0.5), num_classes**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.dropout(F.mean(self.features(x), (2, 3))))


@network
def efficientnet_b0(num_classes: int = 1000, **options) -> EfficientNet:
    """EfficientNet-B0: 5,288,548 parameters with 1000 classes.

    Shapes: (N, 3, H, W) -> (N, num_classes); published for H = W = 224
    Args:
        num_classes: outputs. options: those of `EfficientNet`: stages, hidden=1280, drop_prob=0.2, drop_path=0.2.
    Source: Tan and Le, arXiv 1905.11946

    >>> import tengen
    >>> net = tengen.models.efficientnet_b0(num_classes=7).eval()
    >>> net(tengen.functional.zeros((2, 3, 64, 64))).shape
    (2, 7)
    """
    return EfficientNet(num_classes, **options)
