"""MegEngine's side of `bench_memory_budget.py`, in a process of its own: the traced training step of a ResNet-50, or a LeNet, plain, with
its sublinear memory, or eager with DTR.

    python3.10 megengine_budget.py --child MegEngine ResNet-50|LeNet plain|sublinear|DTR

Out: one line of JSON: peak resident bytes above the start, seconds of a step (the least of those measured: one for the ResNet-50, whose
step takes minutes of one processor).
"""

from __future__ import annotations

import json
import os
import sys
import time

import megengine as mge
import megengine.functional as F
import megengine.module as M
import numpy as np
from megengine.autodiff import GradManager
from megengine.jit import SublinearMemoryConfig, trace
from megengine.optimizer import SGD

THREADS = os.environ.get("OMP_NUM_THREADS", "2")
clock = time.process_time if THREADS == "1" else time.perf_counter
STEPS = {"ResNet-50": (1, 1), "LeNet": (2, 5)}  # those that record and compile, and those that are measured
LEAST_MB = 600  # MiB in use above which DTR lets values go


class Bottleneck(M.Module):
    """A 1 x 1, a 3 x 3 and a 1 x 1 convolution beside a shortcut."""

    def __init__(self, i: int, width: int, stride: int):
        super().__init__()
        o = 4 * width
        self.conv1, self.norm1 = M.Conv2d(i, width, 1, bias=False), M.BatchNorm2d(width)
        self.conv2, self.norm2 = M.Conv2d(width, width, 3, stride, 1, bias=False), M.BatchNorm2d(width)
        self.conv3, self.norm3 = M.Conv2d(width, o, 1, bias=False), M.BatchNorm2d(o)
        same = stride == 1 and i == o
        self.shortcut = M.Identity() if same else M.Sequential(M.Conv2d(i, o, 1, stride, bias=False), M.BatchNorm2d(o))

    def forward(self, x):
        y = F.relu(self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x))))))
        return F.relu(self.norm3(self.conv3(y)) + self.shortcut(x))


class ResNet50(M.Module):
    """He et al., 2016, for 1000 classes."""

    def __init__(self):
        super().__init__()
        self.stem = M.Sequential(M.Conv2d(3, 64, 7, 2, 3, bias=False), M.BatchNorm2d(64), M.ReLU(), M.MaxPool2d(3, 2, 1))
        blocks, i = [], 64
        for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for k in range(count):
                blocks.append(Bottleneck(i, width, stride if k == 0 else 1))
                i = 4 * width
        self.blocks, self.classifier = M.Sequential(*blocks), M.Linear(2048, 1000)

    def forward(self, x):
        return self.classifier(F.mean(self.blocks(self.stem(x)), axis=(2, 3)))


class LeNet(M.Module):
    """LeCun et al., 1998, for 10 classes."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = M.Conv2d(1, 6, 5), M.Conv2d(6, 16, 5)
        self.pool = M.MaxPool2d(2, 2)
        self.fc1, self.fc2, self.classifier = M.Linear(400, 120), M.Linear(120, 84), M.Linear(84, 10)

    def forward(self, x):
        x = self.pool(F.relu(self.conv2(self.pool(F.relu(self.conv1(x))))))
        return self.classifier(F.relu(self.fc2(F.relu(self.fc1(F.flatten(x, 1))))))


NETWORKS = {"ResNet-50": (ResNet50, (8, 3, 224, 224), 1000), "LeNet": (LeNet, (64, 1, 32, 32), 10)}


def resident(field: str) -> int:
    """VmRSS or VmHWM (the peak) in bytes."""
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) << 10 for line in f if line.startswith(field))


def main() -> None:
    (network, shape, classes), how = NETWORKS[sys.argv[3]], sys.argv[4]
    mge.set_default_device(f"multithread{THREADS}:0")
    (mge.Tensor(np.ones(3, "float32")) + 1).numpy()
    base = resident("VmRSS")
    if how == "DTR":
        mge.dtr.eviction_threshold = LEAST_MB << 20
        mge.dtr.enable()
    net = network()
    gm, opt = GradManager().attach(net.parameters()), SGD(net.parameters(), lr=0.01, momentum=0.9)

    def train(data, label):
        with gm:
            loss = F.nn.cross_entropy(net(data), label)
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    if how != "DTR":
        options = {"sublinear_memory_config": SublinearMemoryConfig()} if how == "sublinear" else {}
        train = trace(train, symbolic=True, **options)
    rng = np.random.default_rng(0)
    data = mge.Tensor(rng.normal(size=shape).astype("float32"))
    label = mge.Tensor(rng.integers(0, classes, shape[0]).astype("int32"))
    first, measured = STEPS[sys.argv[3]]
    for _ in range(first):
        train(data, label).numpy()
    with open("/proc/self/clear_refs", "w") as f:
        f.write("5")
    times = []
    for _ in range(measured):
        start = clock()
        train(data, label).numpy()
        times.append(clock() - start)
    print(json.dumps({"peak": resident("VmHWM") - base, "seconds": min(times)}), flush=True)


if __name__ == "__main__":
    main()
