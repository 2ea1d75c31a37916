"""What programs for MegEngine begin with: parameters, data and classes that NumPy draws, so that both packages have the same."""

import math

import numpy as np


def begin(net, seed=0, scale=1.0):
    rng = np.random.RandomState(seed)
    for name, p in sorted(net.named_parameters()):
        if "_flatten" in name:
            continue
        fan = p.numpy().size / p.shape[0] if len(p.shape) > 1 and p.numpy().size != max(p.shape) else 4.0
        p._reset(type(p)((scale * rng.standard_normal(tuple(p.shape)) / math.sqrt(fan)).astype("float32")))
    return net


def some(mge, *shape, seed=1):
    return mge.Tensor(np.random.RandomState(seed).standard_normal(shape).astype("float32"))


def classes(mge, n, of, seed=2):
    return mge.Tensor(np.random.RandomState(seed).randint(0, of, n).astype("int32"))
