"""Small networks: LeNet for 32x32 digits, and a multi-layer perceptron."""

from __future__ import annotations

from collections.abc import Sequence

import tengen.functional as F
import tengen.module as M
from tengen.models.build import network
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


@network
def lenet(num_classes: int = 10) -> LeNet:
    """LeNet: 61,706 parameters with 10 classes.

    Shapes: (N, 1, 32, 32) -> (N, num_classes)
    Args:
        num_classes: outputs.
    Source: LeCun et al., "Gradient-based learning applied to document recognition", 1998

    >>> import tengen
    >>> net = tengen.models.lenet().eval()
    >>> net(tengen.functional.zeros((2, 1, 32, 32))).shape
    (2, 10)
    """
    return LeNet(num_classes)


@network
def mlp(sizes: Sequence[int] = (784, 512, 512, 10)) -> MLP:
    """A perceptron with layers of these sizes: 669,706 parameters by default.

    Shapes: (N, ..., sizes[0]) with all but N flattened -> (N, sizes[-1])
    Args:
        sizes: inputs, hidden layers, outputs.
    Source: Rumelhart, Hinton and Williams, "Learning representations by back-propagating errors", 1986

    >>> import tengen
    >>> net = tengen.models.mlp((48, 33, 10)).eval()
    >>> net(tengen.functional.zeros((2, 3, 4, 4))).shape
    (2, 10)
    """
    return MLP(sizes)
