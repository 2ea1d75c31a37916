"""Small models for the tests of deploy and of the command line."""

import numpy as np

import tengen.functional as F
import tengen.module as M
from tengen import Tensor, trace
from tengen.tensor import Parameter


class MLP(M.Module):
    """Two layers; its shapes are no multiples of anything."""

    def __init__(self):
        super().__init__()
        rng = np.random.default_rng(5)
        self.w1 = Parameter(rng.standard_normal((7, 19)).astype("f4"))
        self.b1 = Parameter(rng.standard_normal(19).astype("f4"))
        self.w2 = Parameter(rng.standard_normal((19, 5)).astype("f4"))

    def forward(self, x):
        return F.softmax(F.relu(x @ self.w1 + self.b1) @ self.w2, axis=1)


def images(shape=(3, 7), seed=1):
    return np.random.default_rng(seed).standard_normal(shape).astype("f4")


def mlp():
    """(a traced MLP, an input, its output)."""
    net, x = MLP(), Tensor(images())
    f = trace(net, example_input=x)
    return f, x, f(x)


def counter():
    """(a traced function with a state, that state): it adds up what it is given."""
    total = Tensor(np.zeros(3, "f4"))

    @trace
    def step(x):
        total._reset(total + x)
        return total * 2.0

    return step, total


def same(a, b):
    """Whether two tensors or arrays have the same type and bytes."""
    a, b = np.asarray(a.numpy() if isinstance(a, Tensor) else a), np.asarray(b.numpy() if isinstance(b, Tensor) else b)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
