"""ShuffleNetV2. Source: Ma et al., arXiv 1807.11164."""

from __future__ import annotations

from collections.abc import Sequence

import tengen.functional as F
import tengen.module as M
from tengen.models.build import network
from tengen.models.layers import ConvNorm
from tengen.tensor import Tensor


def shuffled(x: Tensor, groups: int = 2) -> Tensor:
    """Channels of the groups one after the other: group 0's first, group 1's first, ..."""
    n, c, h, w = x.shape
    return x.reshape(n, groups, c // groups, h, w).transpose(0, 2, 1, 3, 4).reshape(n, c, h, w)


class ShuffleUnit(M.Module):
    """Half of the channels go through a branch, then both halves are mixed; with stride 2 both go through one."""

    def __init__(self, in_channels: int, out_channels: int, stride: int):
        super().__init__()
        self.stride, half = stride, out_channels // 2
        if stride > 1:
            self.branch1 = M.Sequential(
                ConvNorm(in_channels, in_channels, 3, stride, in_channels, "none"), ConvNorm(in_channels, half)
            )
        self.branch2 = M.Sequential(
            ConvNorm(in_channels if stride > 1 else half, half), ConvNorm(half, half, 3, stride, half, "none"), ConvNorm(half, half)
        )

    def forward(self, x: Tensor) -> Tensor:
        if self.stride > 1:
            return shuffled(F.concat([self.branch1(x), self.branch2(x)], 1))
        half = x.shape[1] // 2
        return shuffled(F.concat([x[:, :half], self.branch2(x[:, half:])], 1))


class ShuffleNetV2(M.Module):
    """ShuffleNetV2: units that split, convolve and shuffle channels.

    Shapes: (N, 3, H, W) -> (N, num_classes)
    Args:
        depths: units of each stage. channels: of the first layer, of each stage, and of the last layer.
    """

    def __init__(
        self, num_classes: int = 1000, depths: Sequence[int] = (4, 8, 4), channels: Sequence[int] = (24, 116, 232, 464, 1024)
    ):
        super().__init__()
        self.depths = tuple(depths)
        first, *stages, last = channels
        self.conv1, self.maxpool = ConvNorm(3, first, 3, 2), M.MaxPool2d(3, 2, 1)
        units, before = [], first
        for depth, out in zip(depths, stages, strict=True):
            units += [ShuffleUnit(before if j == 0 else out, out, 2 if j == 0 else 1) for j in range(depth)]
            before = out
        self.stages, self.conv5, self.fc = M.Sequential(*units), ConvNorm(before, last), M.Linear(last, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(F.mean(self.conv5(self.stages(self.maxpool(self.conv1(x)))), (2, 3)))


@network
def shufflenet_v2_x1_0(num_classes: int = 1000, **options) -> ShuffleNetV2:
    """ShuffleNetV2 of width 1: 2,278,604 parameters with 1000 classes.

    Shapes: (N, 3, H, W) -> (N, num_classes); published for H = W = 224
    Args:
        num_classes: outputs. options: those of `ShuffleNetV2`: depths, channels.
    Source: Ma et al., arXiv 1807.11164

    >>> import tengen
    >>> net = tengen.models.shufflenet_v2_x1_0(num_classes=7).eval()
    >>> net(tengen.functional.zeros((2, 3, 64, 64))).shape
    (2, 7)
    """
    return ShuffleNetV2(num_classes, **options)
