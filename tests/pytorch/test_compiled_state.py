"""Modules that change what they keep, compiled: results, gradients and what is kept are those of the same module that is not."""

import random as chance
import warnings

import numpy as np
import pytest

import tengen.pytorch as torch
from tengen.pytorch import nn


class Keeps(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("mean", torch.zeros(3))
        self.steps, self.cache, self.seen = 0, None, []
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(torch.from_numpy(np.random.RandomState(1).randn(*p.shape).astype("float32")))

    def kept(self):
        return [self.mean.tolist(), self.steps, None if self.cache is None else self.cache.tolist(), [s.tolist() for s in self.seen]]


class MovingMean(Keeps):
    def forward(self, x):
        h = self.linear(x)
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * h.detach().mean(0)
        return h - self.mean


class MovingMeanInPlace(Keeps):
    def forward(self, x):
        h = self.linear(x)
        if self.training:
            with torch.no_grad():
                self.mean.mul_(0.9).add_(h.mean(0), alpha=0.1)
        return h / (1 + self.mean)


class Cache(Keeps):
    def forward(self, x):
        h = self.linear(x)
        self.cache = h if self.cache is None else torch.cat([self.cache.detach(), h])
        return h + self.cache.mean(0)


class Counter(Keeps):
    def forward(self, x):
        self.steps += 1
        return self.linear(x) * min(1.0, self.steps / 3)


class Recorder(Keeps):
    def forward(self, x):
        h = self.linear(x)
        self.seen.append(h.detach())
        return h


class Chance(Keeps):
    def forward(self, x):
        return self.linear(x) * (2.0 if chance.random() < 0.5 else 1.0)


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("kind", [MovingMean, MovingMeanInPlace, Cache, Counter, Recorder, Chance])
def test_a_module_that_keeps_something(kind, gradient):
    def run(compiled):
        chance.seed(3)
        net, out = kind(), []
        f = torch.compile(net) if compiled else net
        for i in range(4):
            net.train(i < 3)
            x = torch.from_numpy(np.random.RandomState(i).randn(2, 3).astype("float32"))
            if not gradient:
                with torch.no_grad():
                    out.append(f(x).tolist())
                continue
            net.zero_grad()
            y = f(x)
            y.pow(2).sum().backward()
            out.append([y.tolist(), net.linear.weight.grad.tolist(), net.linear.bias.grad.tolist()])
        return out, net.kept()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run(True) == run(False)
