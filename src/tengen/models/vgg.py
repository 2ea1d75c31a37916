"""VGG-16: plain 3x3 layers. Source: Simonyan and Zisserman, arXiv 1409.1556 (configuration D)."""

from __future__ import annotations

from collections.abc import Sequence

import tengen.functional as F
import tengen.module as M
from tengen.models.build import network
from tengen.models.layers import initialise_linear
from tengen.tensor import Tensor

D = (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0)  # channels; 0 halves the image


class VGG(M.Module):
    """VGG: 3x3 convolutions, then three linear layers.

    Shapes: (N, 3, H, W) -> (N, num_classes)
    Args:
        layers: channels of each convolution, 0 where the image is halved. hidden: outputs of the first two linear layers.
        drop_prob: of the dropout after each of them.
    """

    def __init__(self, num_classes: int = 1000, layers: Sequence[int] = D, hidden: int = 4096, drop_prob: float = 0.5):
        super().__init__()
        features: list[M.Module] = []
        channels = 3
        for n in layers:
            if n == 0:
                features.append(M.MaxPool2d(2))
                continue
            features += [M.Conv2d(channels, n, 3, 1, 1), M.ReLU()]
            M.init.msra_normal_(features[-2].weight, mode="fan_out", nonlinearity="relu")
            channels = n
        self.features = M.Sequential(*features)
        self.classifier = M.Sequential(
            M.Linear(channels * 49, hidden), M.ReLU(), M.Dropout(drop_prob),
            M.Linear(hidden, hidden), M.ReLU(), M.Dropout(drop_prob), M.Linear(hidden, num_classes),
        )  # fmt: skip
        initialise_linear(self)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(F.flatten(F.adaptive_avg_pool2d(self.features(x), 7), 1))


@network
def vgg16(num_classes: int = 1000, **options) -> VGG:
    """VGG-16: 138,357,544 parameters with 1000 classes.

    Shapes: (N, 3, H, W) -> (N, num_classes); published for H = W = 224
    Args:
        num_classes: outputs. options: those of `VGG`: layers, hidden=4096, drop_prob=0.5.
    Source: Simonyan and Zisserman, arXiv 1409.1556, configuration D

    >>> import tengen
    >>> net = tengen.models.vgg16(num_classes=7, layers=(8, 0, 16, 16, 0), hidden=24).eval()
    >>> net(tengen.functional.zeros((2, 3, 64, 64))).shape
    (2, 7)
    """
    return VGG(num_classes, **options)
