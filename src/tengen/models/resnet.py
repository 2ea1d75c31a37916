"""Residual networks. Source: He et al., arXiv 1512.03385; the stride is in the 3x3 layer, as in torchvision and MegEngine's hub.

State names are those of both: conv1, bn1, layer1.0.conv1, ..., fc.
"""

from __future__ import annotations

from collections.abc import Sequence

import tengen.functional as F
import tengen.module as M
from tengen.models.build import network
from tengen.tensor import Tensor


class BasicBlock(M.Module):
    """Two 3x3 layers and a shortcut."""

    expansion = 1

    def __init__(self, in_channels: int, channels: int, stride: int = 1):
        super().__init__()
        self.conv1, self.bn1 = M.Conv2d(in_channels, channels, 3, stride, 1, bias=False), M.BatchNorm2d(channels)
        self.conv2, self.bn2 = M.Conv2d(channels, channels, 3, 1, 1, bias=False), M.BatchNorm2d(channels)
        self.downsample = _shortcut(in_channels, channels, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.downsample(x))


class Bottleneck(M.Module):
    """1x1, 3x3 and 1x1 layers, the last four times as wide, and a shortcut."""

    expansion = 4

    def __init__(self, in_channels: int, channels: int, stride: int = 1):
        super().__init__()
        wide = channels * self.expansion
        self.conv1, self.bn1 = M.Conv2d(in_channels, channels, 1, bias=False), M.BatchNorm2d(channels)
        self.conv2, self.bn2 = M.Conv2d(channels, channels, 3, stride, 1, bias=False), M.BatchNorm2d(channels)
        self.conv3, self.bn3 = M.Conv2d(channels, wide, 1, bias=False), M.BatchNorm2d(wide)
        self.downsample = _shortcut(in_channels, wide, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        return F.relu(self.bn3(self.conv3(y)) + self.downsample(x))


def _shortcut(in_channels: int, channels: int, stride: int) -> M.Module:
    if stride == 1 and in_channels == channels:
        return M.Identity()
    return M.Sequential(M.Conv2d(in_channels, channels, 1, stride, bias=False), M.BatchNorm2d(channels))


class ResNet(M.Module):
    """A residual network over images.

    Shapes: (N, in_channels, H, W) -> (N, num_classes)
    Args:
        block: `BasicBlock` or `Bottleneck`. depths: blocks of each stage; each halves the image but the first, and doubles the
            channels, from `width` on.
    Initial weights: convolutions He's, normal with variance 2 / fan-out; the others as their layers say.
    """

    def __init__(
        self, block: type, depths: Sequence[int] = (2, 2, 2, 2), num_classes: int = 1000, width: int = 64, in_channels: int = 3
    ):
        super().__init__()
        self.conv1, self.bn1 = M.Conv2d(in_channels, width, 7, 2, 3, bias=False), M.BatchNorm2d(width)
        self.maxpool = M.MaxPool2d(3, 2, 1)
        self.stages = len(depths)
        channels = width
        for i, depth in enumerate(depths):
            blocks = []
            for j in range(depth):
                blocks.append(block(channels, width << i, 2 if i and j == 0 else 1))
                channels = (width << i) * block.expansion
            setattr(self, f"layer{i + 1}", M.Sequential(*blocks))
        self.fc = M.Linear(channels, num_classes)
        for m in self.modules():
            if isinstance(m, M.Conv2d):
                M.init.msra_normal_(m.weight, mode="fan_out", nonlinearity="relu")

    def features(self, x: Tensor) -> list[Tensor]:
        """The results of the stages, largest image first."""
        x = self.maxpool(F.relu(self.bn1(self.conv1(x))))
        found = []
        for i in range(self.stages):
            x = getattr(self, f"layer{i + 1}")(x)
            found.append(x)
        return found

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(F.mean(self.features(x)[-1], (2, 3)))


@network
def resnet(
    depths: Sequence[int] = (2, 2, 2, 2), width: int = 64, num_classes: int = 1000, bottleneck: bool = False, in_channels: int = 3
) -> ResNet:
    """A residual network of any size.

    Shapes: (N, in_channels, H, W) -> (N, num_classes)
    Args:
        depths: blocks of each stage; every stage but the first halves the image. width: channels of the first stage; each
            doubles them. bottleneck: blocks of three layers, as from ResNet-50 on, instead of two.
    Source: He et al., arXiv 1512.03385

    >>> import tengen
    >>> net = tengen.models.resnet((1, 1), width=8, num_classes=7).eval()
    >>> net(tengen.functional.zeros((2, 3, 64, 64))).shape
    (2, 7)
    """
    return ResNet(Bottleneck if bottleneck else BasicBlock, depths, num_classes, width, in_channels)


@network
def resnet18(num_classes: int = 1000, **options) -> ResNet:
    """ResNet-18: 11,689,512 parameters with 1000 classes.

    Shapes: (N, 3, H, W) -> (N, num_classes); published for H = W = 224
    Args:
        num_classes: outputs. options: those of `ResNet`: width=64, in_channels=3.
    Source: He et al., arXiv 1512.03385

    >>> import tengen
    >>> net = tengen.models.resnet18(num_classes=7, width=8).eval()
    >>> net(tengen.functional.zeros((2, 3, 64, 64))).shape
    (2, 7)
    """
    return ResNet(BasicBlock, (2, 2, 2, 2), num_classes, **options)


@network
def resnet34(num_classes: int = 1000, **options) -> ResNet:
    """ResNet-34: 21,797,672 parameters with 1000 classes.

    Shapes: (N, 3, H, W) -> (N, num_classes); published for H = W = 224
    Args:
        num_classes: outputs. options: those of `ResNet`: width=64, in_channels=3.
    Source: He et al., arXiv 1512.03385

    >>> import tengen
    >>> net = tengen.models.resnet34(num_classes=7, width=8).eval()
    >>> net(tengen.functional.zeros((2, 3, 64, 64))).shape
    (2, 7)
    """
    return ResNet(BasicBlock, (3, 4, 6, 3), num_classes, **options)


@network
def resnet50(num_classes: int = 1000, **options) -> ResNet:
    """ResNet-50: 25,557,032 parameters with 1000 classes.

    Shapes: (N, 3, H, W) -> (N, num_classes); published for H = W = 224
    Args:
        num_classes: outputs. options: those of `ResNet`: width=64, in_channels=3.
    Source: He et al., arXiv 1512.03385

    >>> import tengen
    >>> net = tengen.models.resnet50(num_classes=7, width=8).eval()
    >>> net(tengen.functional.zeros((2, 3, 64, 64))).shape
    (2, 7)
    """
    return ResNet(Bottleneck, (3, 4, 6, 3), num_classes, **options)
