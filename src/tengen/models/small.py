"""Small networks: LeNet for 32x32 digits, and a multi-layer perceptron."""

from __future__ import annotations

from collections.abc import Sequence

import tengen.functional as F
import tengen.module as M
from tengen.tensor import Tensor


class LeNet(M.Module):
    """The network of MegEngine's first announcement, after LeCun et al., 1998.

    Shapes: (N, 1, 32, 32) -> (N, num_classes)
    """

    def __init__(self, num_classes: int = 10):
        super().__init__()
        self.conv0, self.pool0 = M.Conv2d(1, 6, 5), M.MaxPool2d(2, 2)
        self.conv1, self.pool1 = M.Conv2d(6, 16, 5), M.MaxPool2d(2, 2)
        self.fc0, self.fc1, self.classifier = M.Linear(400, 120), M.Linear(120, 84), M.Linear(84, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool0(F.relu(self.conv0(x)))
        x = self.pool1(F.relu(self.conv1(x)))
        x = F.relu(self.fc0(F.flatten(x, 1)))
        return self.classifier(F.relu(self.fc1(x)))


class MLP(M.Module):
    """Linear layers with ReLU between them.

    Shapes: (N, ..., sizes[0]) with everything but the batch flattened -> (N, sizes[-1])
    """

    def __init__(self, sizes: Sequence[int] = (784, 512, 512, 10)):
        super().__init__()
        layers: list[M.Module] = []
        for a, b in zip(sizes, sizes[1:]):
            layers += [M.Linear(a, b), M.ReLU()]
        self.layers = M.Sequential(*layers[:-1])

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(F.flatten(x, 1))


def lenet(num_classes: int = 10) -> LeNet:
    """LeNet: 61,706 parameters with 10 classes."""
    return LeNet(num_classes)


def mlp(sizes: Sequence[int] = (784, 512, 512, 10)) -> MLP:
    """A perceptron with these sizes of layers: 669,706 parameters by default."""
    return MLP(sizes)
