"""MegEngine's side of the training benchmark, in a process of its own: its last release needs Python 3.10.

`bench_training.py` starts it with the interpreter that MEGENGINE_PYTHON names (one with `pip install 'numpy<2' megengine==1.13.0`), sends
one line for each thing to do, and reads one line back: so the rounds of all contenders take turns in one run.
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


def trainer(network: str, traced: bool, file: str, rate: float, momentum: float):
    """A training step from the weights, images and labels of an .npz file."""
    arrays = dict(np.load(file))
    images, labels = mge.Tensor(arrays.pop("images")), mge.Tensor(arrays.pop("labels"))
    net = LeNet() if network == "LeNet" else M.Sequential(M.Linear(784, 512), M.ReLU(), M.Linear(512, 512), M.ReLU(), M.Linear(512, 10))
    net.load_state_dict(arrays)
    opt = SGD(net.parameters(), lr=rate, momentum=momentum)
    gm = GradManager().attach(net.parameters())

    def train(data, label):
        with gm:
            loss = F.nn.cross_entropy(net(data), label)
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    run = trace(train, symbolic=True) if traced else train
    return lambda: run(images, labels)


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
