"""MegEngine's side of the benchmarks of training, in a process of its own: its last release needs Python 3.10.

`first.py` takes networks and `step_of` from here. `bench_training.py` starts it with the interpreter that MEGENGINE_PYTHON names (one
with `pip install 'numpy<2' megengine==1.13.0`), sends one line for each thing to do, and reads one line back: so the rounds of all
contenders take turns in one run.
"""

from __future__ import annotations

import json
import sys

import megengine as mge
import megengine.functional as F
import megengine.module as M
import numpy as np
from megengine.autodiff import GradManager
from megengine.jit import trace
from megengine.optimizer import SGD


class LeNet(M.Module):
    """The network of `examples/lenet.py`."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = M.Conv2d(1, 6, 5), M.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.classifier = M.Linear(400, 120), M.Linear(120, 84), M.Linear(84, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2, 2)
        x = F.flatten(F.max_pool2d(F.relu(self.conv2(x)), 2, 2), 1)
        return self.classifier(F.relu(self.fc2(F.relu(self.fc1(x)))))


class BasicBlock(M.Module):
    """Two 3 x 3 convolutions beside a shortcut."""

    def __init__(self, i: int, o: int, stride: int):
        super().__init__()
        self.conv1, self.norm1 = M.Conv2d(i, o, 3, stride, 1, bias=False), M.BatchNorm2d(o)
        self.conv2, self.norm2 = M.Conv2d(o, o, 3, 1, 1, bias=False), M.BatchNorm2d(o)
        same = stride == 1 and i == o
        self.shortcut = M.Identity() if same else M.Sequential(M.Conv2d(i, o, 1, stride, bias=False), M.BatchNorm2d(o))

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


def resnet18() -> M.Module:
    """The network of this name, for 1000 classes. Source: He et al., 2016."""
    stem = [M.Conv2d(3, 64, 7, 2, 3, bias=False), M.BatchNorm2d(64), M.ReLU(), M.MaxPool2d(3, 2, 1)]
    stages = ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2))
    blocks = [BasicBlock(*block) for i, o, stride in stages for block in ((i, o, stride), (o, o, 1))]

    class ResNet(M.Module):
        def __init__(self):
            super().__init__()
            self.features, self.classifier = M.Sequential(*stem, *blocks), M.Linear(512, 1000)

        def forward(self, x):
            return self.classifier(F.mean(self.features(x), axis=(2, 3)))

    return ResNet()


def trainer(network: str, traced: bool, file: str, rate: float, momentum: float):
    """A training step from the weights, images and labels of an .npz file."""
    arrays = dict(np.load(file))
    images, labels = mge.Tensor(arrays.pop("images")), mge.Tensor(arrays.pop("labels"))
    net = LeNet() if network == "LeNet" else M.Sequential(M.Linear(784, 512), M.ReLU(), M.Linear(512, 512), M.ReLU(), M.Linear(512, 10))
    net.load_state_dict(arrays)
    run = step_of(net, traced, rate, momentum)
    return lambda: run(images, labels)


def step_of(net: M.Module, traced: bool, rate: float, momentum: float):
    """A training step of a network: (data, labels) -> the loss."""
    opt = SGD(net.parameters(), lr=rate, momentum=momentum)
    gm = GradManager().attach(net.parameters())

    def train(data, label):
        with gm:
            loss = F.nn.cross_entropy(net(data), label)
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    return trace(train, symbolic=True) if traced else train


def main() -> None:
    """Answers requests: {"make": arguments of `trainer`} or {"steps": n}, each with the last loss."""
    mge.set_default_device(f"multithread{sys.argv[1]}:0" if sys.argv[1] != "1" else "cpu0")
    step = None
    for line in sys.stdin:
        request = json.loads(line)
        if "make" in request:
            step = trainer(*request["make"])
            answer = 0.0
        else:
            for _ in range(request["steps"]):
                loss = step()
            answer = float(loss.numpy())
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
