"""A training step is the same bits eagerly, traced, with any number of threads, and by the interpreter's account."""

from __future__ import annotations

import numpy as np
import pytest
from training import batch, make, steps
from ways import agree, threads

from tengen import Tensor, trace


@pytest.mark.parametrize("kind", ["lenet", "mlp"])
def test_eager_traced_threads(kind):
    want = steps(kind, as_trace=False)
    assert len(want) > 10 and all(np.isfinite(a).all() for a in want.values())
    assert any(not np.array_equal(want[k], want[k[:-1] + "1"]) for k in want if k.endswith(" 0")), "nothing was learnt"
    for n in (1, 2, 3, 8):
        with threads(n):
            for as_trace in (False, True):
                got = steps(kind, as_trace)
                assert set(got) == set(want)
                for key in want:
                    agree(f"{kind}, {n} threads, traced={as_trace}: {key}", [got[key]], [want[key]])


@pytest.mark.parametrize("kind", ["lenet", "mlp"])
def test_evaluation_of_one_image(kind):
    """The logits of one image do not depend on the batch that it is in."""
    _, net, _, shape = make(kind)
    f = trace(lambda x: net(x))
    for n in (1, 3, 8):
        x, _ = batch(shape, n, n)
        whole = np.array(net(Tensor(x)).numpy())
        agree(f"{kind}, {n} traced", [np.array(f(Tensor(x)).numpy())], [whole])
        for i in range(n):
            agree(f"{kind}, image {i} of {n}", [np.array(net(Tensor(x[i : i + 1])).numpy())], [whole[i : i + 1]])
