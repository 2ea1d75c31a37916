"""What several networks are made of: a convolution with its norm and activation, squeeze-and-excitation, stochastic depth."""

from __future__ import annotations

from collections.abc import Callable

import tengen.functional as F
import tengen.module as M
from tengen.random import uniform
from tengen.tensor import Tensor

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu, "relu6": F.relu6, "hswish": F.hswish, "silu": F.silu, "none": lambda x: x,
}  # fmt: skip


class ConvNorm(M.Module):
    """Convolution without bias, batch norm, activation; padded so that stride 1 keeps the image's size.

    Initial weights: He's, normal with variance 2 / fan-out, where the fan of grouped layers is that of one group.

    Args:
        activation: "relu", "relu6", "hswish", "silu" or "none".
    Shapes: (N, C, H, W) -> (N, O, H / stride, W / stride), rounded up
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int = 1, stride: int = 1, groups: int = 1,
        activation: str = "relu", eps: float = 1e-5, momentum: float = 0.9,
    ):  # fmt: skip
        super().__init__()
        self.conv = M.Conv2d(in_channels, out_channels, kernel_size, stride, kernel_size // 2, groups=groups, bias=False)
        self.bn = M.BatchNorm2d(out_channels, eps, momentum)
        self.activation = activation
        M.init.msra_normal_(self.conv.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        return ACTIVATIONS[self.activation](self.bn(self.conv(x)))

    def _module_info_string(self) -> str:
        return f"activation={self.activation}"


class SqueezeExcite(M.Module):
    """Scales channels by what their means say. Source: Hu et al., arXiv 1709.01507

    Args:
        squeezed: channels in between. activation: between the two layers; gate: "hsigmoid" or "sigmoid".
    """

    def __init__(self, channels: int, squeezed: int, activation: str = "relu", gate: str = "hsigmoid"):
        super().__init__()
        self.fc1, self.fc2 = M.Conv2d(channels, squeezed, 1), M.Conv2d(squeezed, channels, 1)
        self.activation, self.gate = activation, gate
        for layer in (self.fc1, self.fc2):
            M.init.msra_normal_(layer.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        s = ACTIVATIONS[self.activation](self.fc1(F.mean(x, (2, 3), keepdims=True)))
        return x * (F.hsigmoid if self.gate == "hsigmoid" else F.sigmoid)(self.fc2(s))


class DropPath(M.Module):
    """Stochastic depth: in training, each sample's branch is left out with probability `drop_prob`, the others are scaled up.

    Args:
        drop_prob: 0 <= drop_prob < 1; ValueError otherwise.
    Source: Huang et al., arXiv 1603.09382
    """

    def __init__(self, drop_prob: float = 0.0):
        super().__init__()
        if not 0 <= drop_prob < 1:
            raise ValueError(f"DropPath: drop_prob={drop_prob} is outside 0 <= drop_prob < 1")
        self.drop_prob = drop_prob

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.drop_prob == 0:
            return x
        keep = 1.0 - self.drop_prob
        mask = uniform(0, 1, (x.shape[0], *(1 for _ in x.shape[1:]))) < keep
        return x * mask.astype(x.dtype) * (1.0 / keep)

    def _module_info_string(self) -> str:
        return f"drop_prob={self.drop_prob}"


def rounded(channels: float, divisor: int = 8) -> int:
    """The nearest multiple of `divisor`, not below 0.9 of `channels`: how mobile networks round their widths."""
    n = max(divisor, int(channels + divisor / 2) // divisor * divisor)
    return n + divisor if n < 0.9 * channels else n


def initialise_linear(module: M.Module, std: float = 0.01) -> None:
    """Normal weights and zero biases for every linear layer inside."""
    for m in module.modules():
        if isinstance(m, M.Linear):
            M.init.normal_(m.weight, 0, std)
            if m.bias is not None:
                M.init.zeros_(m.bias)
