"""U-Net: a class for each pixel. Source: Ronneberger et al., arXiv 1505.04597; with batch norm, and padded so that sizes stay."""

from __future__ import annotations

import tengen.functional as F
import tengen.module as M
from tengen.models.build import network
from tengen.models.layers import ConvNorm
from tengen.tensor import Tensor


def _double(in_channels: int, out_channels: int) -> M.Module:
    return M.Sequential(ConvNorm(in_channels, out_channels, 3), ConvNorm(out_channels, out_channels, 3))


class UNet(M.Module):
    """U-Net: down to small images with many channels, and up again with what each size had on its way down.

    Shapes: (N, in_channels, H, W) -> (N, num_classes, H, W), H and W multiples of 2 ** depth
    Args:
        depth: how often the image is halved. width: channels of the first stage; each doubles them.
    """

    def __init__(self, num_classes: int = 2, in_channels: int = 3, width: int = 64, depth: int = 4):
        super().__init__()
        sizes = [width << i for i in range(depth + 1)]
        self.first = _double(in_channels, width)
        self.down = M.Sequential(*(_double(a, b) for a, b in zip(sizes, sizes[1:])))
        self.up = M.Sequential(*(M.ConvTranspose2d(b, a, 2, 2) for a, b in zip(sizes[-2::-1], sizes[:0:-1])))
        self.join = M.Sequential(*(_double(2 * a, a) for a in sizes[-2::-1]))
        self.head = M.Conv2d(width, num_classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        kept = []
        for stage in self.down:
            kept.append(x)
            x = stage(F.max_pool2d(x, 2))
        for up, join in zip(self.up, self.join):
            x = join(F.concat([kept.pop(), up(x)], 1))
        return self.head(x)


@network
def unet(num_classes: int = 2, **options) -> UNet:
    """U-Net with four halvings and 64 to 1024 channels: 31,037,698 parameters with 2 classes.

    Shapes: (N, 3, H, W) -> (N, num_classes, H, W); H and W multiples of 16
    Args:
        num_classes: of each pixel. options: those of `UNet`: in_channels=3, width=64, depth=4.
    Source: Ronneberger et al., arXiv 1505.04597

    >>> import tengen
    >>> net = tengen.models.unet(width=8, depth=2).eval()
    >>> net(tengen.functional.zeros((2, 3, 64, 64))).shape
    (2, 2, 64, 64)
    """
    return UNet(num_classes, **options)
