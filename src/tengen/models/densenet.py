"""DenseNet-121: every layer reads all before it. Source: Huang et al., arXiv 1608.06993."""

from __future__ import annotations

from collections.abc import Sequence

import tengen.functional as F
import tengen.module as M
from tengen.models.build import network
from tengen.tensor import Tensor


class DenseLayer(M.Module):
    """Norm, 1x1, norm, 3x3: `growth` new channels."""

    def __init__(self, in_channels: int, growth: int, bottleneck: int = 4):
        super().__init__()
        wide = growth * bottleneck
        self.norm1, self.conv1 = M.BatchNorm2d(in_channels), M.Conv2d(in_channels, wide, 1, bias=False)
        self.norm2, self.conv2 = M.BatchNorm2d(wide), M.Conv2d(wide, growth, 3, 1, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv2(F.relu(self.norm2(self.conv1(F.relu(self.norm1(x))))))
        return F.concat([x, y], 1)


class Transition(M.Module):
    """Halves channels and image."""

    def __init__(self, in_channels: int, out_channels: int):
        super().__init__()
        self.norm, self.conv = M.BatchNorm2d(in_channels), M.Conv2d(in_channels, out_channels, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.avg_pool2d(self.conv(F.relu(self.norm(x))), 2, 2)


class DenseNet(M.Module):
    """DenseNet: each layer adds `growth` channels to what it reads.

    Shapes: (N, 3, H, W) -> (N, num_classes)
    Args:
        growth: new channels of a layer. depths: layers of each block. width: channels of the first convolution.
    """

    def __init__(
        self, num_classes: int = 1000, growth: int = 32, depths: Sequence[int] = (6, 12, 24, 16), width: int = 64
    ):
        super().__init__()
        self.conv0, self.norm0, self.pool0 = M.Conv2d(3, width, 7, 2, 3, bias=False), M.BatchNorm2d(width), M.MaxPool2d(3, 2, 1)
        self.depths = tuple(depths)
        layers: list[M.Module] = []
        channels = width
        for i, depth in enumerate(depths):
            for _ in range(depth):
                layers.append(DenseLayer(channels, growth))
                channels += growth
            if i + 1 < len(depths):
                layers.append(Transition(channels, channels // 2))
                channels //= 2
        self.features, self.norm5, self.classifier = M.Sequential(*layers), M.BatchNorm2d(channels), M.Linear(channels, num_classes)
        for m in self.modules():
            if isinstance(m, M.Conv2d):
                M.init.msra_normal_(m.weight, nonlinearity="relu")
        M.init.zeros_(self.classifier.bias)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool0(F.relu(self.norm0(self.conv0(x))))
        return self.classifier(F.mean(F.relu(self.norm5(self.features(x))), (2, 3)))


@network
def densenet121(num_classes: int = 1000, **options) -> DenseNet:
    """DenseNet-121: 7,978,856 parameters with 1000 classes.

    Shapes: (N, 3, H, W) -> (N, num_classes); published for H = W = 224
    Args:
        num_classes: outputs. options: those of `DenseNet`: growth=32, depths, width=64.
    Source: Huang et al., arXiv 1608.06993

    >>> import tengen
    >>> net = tengen.models.densenet121(num_classes=7, growth=8, depths=(2, 3), width=16).eval()
    >>> net(tengen.functional.zeros((2, 3, 64, 64))).shape
    (2, 7)
    """
    return DenseNet(num_classes, **options)
