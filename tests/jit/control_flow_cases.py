"""What the tests of control flow share: tensors, comparisons, and a cell with its weights, which Python calls one step after another."""

import numpy as np

from tengen import Tensor
from tengen import functional as F

RNG = np.random.default_rng(5)


def T(*shape, dtype="float32"):
    return Tensor(RNG.standard_normal(shape).astype(dtype))


def equal(a, b):
    assert a.shape == b.shape and a.dtype is b.dtype
    assert a.numpy().tobytes() == b.numpy().tobytes(), np.abs(a.numpy() - b.numpy()).max()


def close(a, b, tol=1e-5):
    np.testing.assert_allclose(a.numpy(), np.asarray(b), rtol=tol, atol=tol)


W, U = T(6, 16), T(4, 16)


def cell(state, x, W=W, U=U):
    h, c = state
    i, f, g, o = F.split(x @ W + h @ U, 4, axis=1)
    c = F.sigmoid(f) * c + F.sigmoid(i) * F.tanh(g)
    h = F.sigmoid(o) * F.tanh(c)
    return (h, c), {"h": h}


def zeros(batch):
    return F.zeros((batch, 4)), F.zeros((batch, 4))


def by_python(xs, reverse=False, **more):
    state, made = zeros(xs.shape[1]), []
    order = range(xs.shape[0])
    for i in reversed(order) if reverse else order:
        state, y = cell(state, xs[i], **more)
        made.append(y["h"])
    return state, F.stack(made[::-1] if reverse else made)
