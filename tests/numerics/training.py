"""Two training steps of a LeNet and of an MLP on made-up data: every loss, parameter and gradient."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import tengen.functional as F
import tengen.module as M
from tengen import Tensor, optimizer, trace
from tengen.autodiff import GradManager

sys.path.append(str(Path(__file__).resolve().parent.parent.parent / "examples"))
from lenet import LeNet


def network(kind: str) -> tuple[M.Module, tuple[int, ...]]:
    """The network with parameters from a fixed seed, and the shape of one input."""
    net = LeNet() if kind == "lenet" else M.Sequential(M.Linear(30, 17), M.ReLU(), M.Linear(17, 17), M.ReLU(), M.Linear(17, 10))
    rng = np.random.default_rng(3)
    for _, p in sorted(net.named_parameters()):
        p._reset(Tensor(rng.uniform(-0.3, 0.3, p.shape).astype(np.float32)))
    return net, (1, 32, 32) if kind == "lenet" else (30,)


def batch(shape: tuple[int, ...], n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, *shape)).astype(np.float32), rng.integers(0, 10, n).astype(np.int32)


def make(kind: str):
    """(step(images, labels) -> loss, the network, the shape of an input)."""
    net, shape = network(kind)
    opt = optimizer.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
    gm = GradManager().attach(net.parameters())

    def step(x, y):
        with gm:
            loss = F.cross_entropy(net(x), y)
            gm.backward(loss)
        opt.step()
        return loss

    return step, net, opt, shape


def steps(kind: str, as_trace: bool, n: int = 5, count: int = 2) -> dict[str, np.ndarray]:
    """Losses, parameters and gradients after each of `count` steps on batches of n."""
    step, net, opt, shape = make(kind)
    run = trace(step) if as_trace else step
    found = {}
    for i in range(count):
        x, y = batch(shape, n, i)
        found[f"loss {i}"] = np.array(run(Tensor(x), Tensor(y)).numpy())
        for name, p in net.named_parameters():
            found[f"{name} {i}"] = np.array(p.numpy())
            found[f"{name} gradient {i}"] = np.array(p.grad.numpy())
        opt.clear_grad()
    return found
