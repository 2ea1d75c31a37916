"""ConvNeXt: a convolutional network in the shape of a transformer. Source: Liu et al., arXiv 2201.03545."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import tengen.functional as F
import tengen.module as M
from tengen.models.build import network
from tengen.models.layers import DropPath
from tengen.tensor import Parameter, Tensor


class ChannelNorm(M.Module):
    """Layer norm over the channels of images (N, C, H, W)."""

    def __init__(self, channels: int, eps: float = 1e-6):
        super().__init__()
        self.norm = M.LayerNorm(channels, eps)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)


class ConvNeXtBlock(M.Module):
    """Depthwise 7x7, norm, and a pointwise layer four times as wide; each channel of the branch has a scale."""

    def __init__(self, channels: int, drop_path: float = 0.0, scale: float = 1e-6):
        super().__init__()
        self.depthwise = M.Conv2d(channels, channels, 7, 1, 3, groups=channels)
        self.norm, self.fc1, self.fc2 = M.LayerNorm(channels, 1e-6), M.Linear(channels, 4 * channels), M.Linear(4 * channels, channels)
        self.scale, self.drop_path = Parameter(np.full(channels, scale, np.float32)), DropPath(drop_path)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x).transpose(0, 2, 3, 1))
        y = self.fc2(F.gelu(self.fc1(y))) * self.scale
        return x + self.drop_path(y.transpose(0, 3, 1, 2))


class ConvNeXt(M.Module):
    """ConvNeXt: depthwise 7x7 layers and pointwise perceptrons, with layer norm.

    Shapes: (N, 3, H, W) -> (N, num_classes)
    Args:
        depths, channels: blocks and channels of each stage. drop_path: of the last block; earlier ones less, in proportion.
    """

    def __init__(
        self, num_classes: int = 1000, depths: Sequence[int] = (3, 3, 9, 3), channels: Sequence[int] = (96, 192, 384, 768),
        drop_path: float = 0.1,
    ):  # fmt: skip
        super().__init__()
        self.depths = tuple(depths)
        layers: list[M.Module] = [M.Conv2d(3, channels[0], 4, 4), ChannelNorm(channels[0])]
        done, total = 0, max(1, sum(depths) - 1)
        for i, (depth, n) in enumerate(zip(depths, channels, strict=True)):
            if i:
                layers += [ChannelNorm(channels[i - 1]), M.Conv2d(channels[i - 1], n, 2, 2)]
            for _ in range(depth):
                layers.append(ConvNeXtBlock(n, drop_path * done / total))
                done += 1
        self.features, self.norm, self.head = M.Sequential(*layers), M.LayerNorm(channels[-1], 1e-6), M.Linear(channels[-1], num_classes)
        for m in self.modules():
            if isinstance(m, (M.Conv2d, M.Linear)):
                M.init.normal_(m.weight, 0, 0.02)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(F.mean(self.features(x), (2, 3))))


@network
def convnext_tiny(num_classes: int = 1000, **options) -> ConvNeXt:
    """ConvNeXt-Tiny: 28,589,128 parameters with 1000 classes.

    Shapes: (N, 3, H, W) -> (N, num_classes); published for H = W = 224
    Args:
        num_classes: outputs. options: those of `ConvNeXt`: depths, channels, drop_path=0.1.
    Source: Liu et al., arXiv 2201.03545

    >>> import tengen
    >>> net = tengen.models.convnext_tiny(num_classes=7, depths=(1, 2), channels=(16, 32)).eval()
    >>> net(tengen.functional.zeros((2, 3, 64, 64))).shape
    (2, 7)
    """
    return ConvNeXt(num_classes, **options)
