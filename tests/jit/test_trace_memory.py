"""A traced run leaves nothing behind: what it returned goes back to the pool with its last reference, without a collection."""

import gc

import numpy as np
import pytest

import tengen
from tengen import Tensor, trace
from tengen.runtime.native import memory_statistics


@pytest.mark.parametrize("result", [lambda y: y, lambda y: {"y": (y, [y + 1])}])
def test_results_are_freed_at_once(result, tmp_path):
    x = Tensor(np.zeros((300, 1000), "float32"))
    f = trace(lambda x: result(x * 2))
    f(x)
    f.dump(tmp_path / "f.tgn")
    m = tengen.load_graph(tmp_path / "f.tgn")
    m(x)
    gc.collect()
    gc.disable()
    try:
        before = memory_statistics().in_use
        for _ in range(3):
            f(x)
            m(x)
        assert memory_statistics().in_use == before
    finally:
        gc.enable()


def test_gradients_are_freed_at_once():
    from tengen.autodiff import GradManager, grad

    x = tengen.Parameter(np.zeros((300, 1000), "float32"))
    gm = GradManager().attach([x])
    slope = grad(lambda t: (t * t).sum())

    def step():
        with gm:
            gm.backward((x * x).sum())
        x.grad = None
        slope(x)

    step()
    gc.collect()
    gc.disable()
    try:
        before = memory_statistics().in_use
        for _ in range(3):
            step()
        assert memory_statistics().in_use == before
    finally:
        gc.enable()
