"""Networks of depthwise convolutions between pointwise ones: MobileNetV2 and MobileNetV3.

Sources: Sandler et al., arXiv 1801.04381; Howard et al., arXiv 1905.02244; widths as in torchvision.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import tengen.functional as F
import tengen.module as M
from tengen.models.build import network
from tengen.models.layers import ConvNorm, SqueezeExcite, initialise_linear, rounded
from tengen.tensor import Tensor


class InvertedResidual(M.Module):
    """A wide depthwise layer between two pointwise ones, the last without activation; with a shortcut where sizes allow.

    Args:
        hidden: channels of the depthwise layer. squeeze: channels inside of a squeeze-and-excitation, 0 for none.
    """

    def __init__(
        self, in_channels: int, hidden: int, out_channels: int, kernel_size: int, stride: int, activation: str = "relu6",
        squeeze: int = 0, eps: float = 1e-5, momentum: float = 0.9,
    ):  # fmt: skip
        super().__init__()
        norm = {"eps": eps, "momentum": momentum}
        layers: list[M.Module] = []
        if hidden != in_channels:
            layers.append(ConvNorm(in_channels, hidden, activation=activation, **norm))
        layers.append(ConvNorm(hidden, hidden, kernel_size, stride, hidden, activation, **norm))
        if squeeze:
            layers.append(SqueezeExcite(hidden, squeeze))
        layers.append(ConvNorm(hidden, out_channels, activation="none", **norm))
        self.layers = M.Sequential(*layers)
        self.shortcut = stride == 1 and in_channels == out_channels

    def forward(self, x: Tensor) -> Tensor:
        y = self.layers(x)
        return x + y if self.shortcut else y


V2_STAGES = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]


class MobileNetV2(M.Module):
    """MobileNetV2: inverted residual blocks with linear bottlenecks.

    Shapes: (N, 3, H, W) -> (N, num_classes)
    Args:
        width: factor of all channels. stages: (expansion, channels, blocks, stride of the first block).
        drop_prob: of the dropout before the classifier.
    """

    def __init__(
        self, num_classes: int = 1000, width: float = 1.0, stages: Sequence[tuple[int, int, int, int]] = V2_STAGES,
        drop_prob: float = 0.2,
    ):  # fmt: skip
        super().__init__()
        self.depths = tuple(depth for _, _, depth, _ in stages)
        channels = rounded(32 * width)
        layers: list[M.Module] = [ConvNorm(3, channels, 3, 2, activation="relu6")]
        for expansion, out, depth, stride in stages:
            for j in range(depth):
                n = rounded(out * width)
                layers.append(InvertedResidual(channels, channels * expansion, n, 3, stride if j == 0 else 1))
                channels = n
        last = rounded(1280 * max(1.0, width))
        layers.append(ConvNorm(channels, last, activation="relu6"))
        self.features = M.Sequential(*layers)
        self.dropout = M.Dropout(drop_prob)
        self.classifier = M.Linear(last, num_classes)
        initialise_linear(self)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.dropout(F.mean(self.features(x), (2, 3))))


# kernel, hidden, out, squeeze and excite, activation, stride
V3_LARGE = [
    (3, 16, 16, False, "relu", 1), (3, 64, 24, False, "relu", 2), (3, 72, 24, False, "relu", 1), (5, 72, 40, True, "relu", 2),
    (5, 120, 40, True, "relu", 1), (5, 120, 40, True, "relu", 1), (3, 240, 80, False, "hswish", 2),
    (3, 200, 80, False, "hswish", 1), (3, 184, 80, False, "hswish", 1), (3, 184, 80, False, "hswish", 1),
    (3, 480, 112, True, "hswish", 1), (3, 672, 112, True, "hswish", 1), (5, 672, 160, True, "hswish", 2),
    (5, 960, 160, True, "hswish", 1), (5, 960, 160, True, "hswish", 1),
]  # fmt: skip


class MobileNetV3(M.Module):
    """MobileNetV3: inverted residual blocks, some with squeeze-and-excitation, and hard swish in the later ones.

    Shapes: (N, 3, H, W) -> (N, num_classes)
    Args:
        blocks: (kernel size, hidden channels, channels, squeeze-and-excitation, activation, stride). hidden: outputs of the
            layer before the last. drop_prob: of the dropout between them. eps: of the batch norms; timm's have 1e-5.
    """

    def __init__(
        self, num_classes: int = 1000, blocks: Sequence[tuple] = V3_LARGE, hidden: int = 1280, drop_prob: float = 0.2,
        eps: float = 1e-3,
    ):  # fmt: skip
        super().__init__()
        self.eps, norm = eps, {"eps": eps, "momentum": 0.99}
        self.depths = tuple(len(list(run)) for _, run in groupby(block[2] for block in blocks))  # timm's stages: runs of equal channels
        layers: list[M.Module] = [ConvNorm(3, 16, 3, 2, activation="hswish", **norm)]
        channels = 16
        for kernel, wide, out, squeeze, activation, stride in blocks:
            inner = rounded(wide // 4) if squeeze else 0
            layers.append(InvertedResidual(channels, wide, out, kernel, stride, activation, inner, **norm))
            channels = out
        layers.append(ConvNorm(channels, 6 * channels, activation="hswish", **norm))
        self.features = M.Sequential(*layers)
        self.fc1, self.dropout, self.fc2 = M.Linear(6 * channels, hidden), M.Dropout(drop_prob), M.Linear(hidden, num_classes)
        initialise_linear(self)

    def forward(self, x: Tensor) -> Tensor:
        x = F.hswish(self.fc1(F.mean(self.features(x), (2, 3))))
        return self.fc2(self.dropout(x))


@network
def mobilenet_v2(num_classes: int = 1000, **options) -> MobileNetV2:
    """MobileNetV2: 3,504,872 parameters with 1000 classes.

    Shapes: (N, 3, H, W) -> (N, num_classes); published for H = W = 224
    Args:
        num_classes: outputs. options: those of `MobileNetV2`: width=1.0, stages, drop_prob=0.2.
    Source: Sandler et al., arXiv 1801.04381

    >>> import tengen
    >>> net = tengen.models.mobilenet_v2(num_classes=7, width=0.25).eval()
    >>> net(tengen.functional.zeros((2, 3, 64, 64))).shape
    (2, 7)
    """
    return MobileNetV2(num_classes, **options)


@network
def mobilenet_v3_large(num_classes: int = 1000, **options) -> MobileNetV3:
    """MobileNetV3-Large: 5,483,032 parameters with 1000 classes.

    Shapes: (N, 3, H, W) -> (N, num_classes); published for H = W = 224
    Args:
        num_classes: outputs. options: those of `MobileNetV3`: blocks, hidden=1280, drop_prob=0.2, eps=1e-3.
    Source: Howard et al., arXiv 1905.02244

    >>> import tengen
    >>> net = tengen.models.mobilenet_v3_large(num_classes=7).eval()
    >>> net(tengen.functional.zeros((2, 3, 64, 64))).shape
    (2, 7)
    """
    return MobileNetV3(num_classes, **options)
