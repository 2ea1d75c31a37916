"""VGG-16: plain 3x3 layers. Source: Simonyan and Zisserman, arXiv 1409.1556 (configuration D)."""

from __future__ import annotations

from collections.abc import Sequence

import tengen.functional as F
import tengen.module as M
from tengen.models.layers import initialise_linear
from tengen.tensor import Tensor

D = (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0)  # channels; 0 halves the image


class VGG(M.Module):
    """Shapes: (N, 3, H, W) -> (N, num_classes). `hidden`: of the two layers before the last."""

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


def vgg16(num_classes: int = 1000, **options) -> VGG:
    """VGG-16: 138.4 million parameters with 1000 classes."""
    return VGG(num_classes, **options)
