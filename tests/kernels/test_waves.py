"""Pieces that go through the chunks of a long sum together give the bits of pieces that go through them by themselves."""

from dataclasses import replace

import numpy as np
import pytest
from exhaustive import but
from launching import run
from machine import Compiled

from tengen.base.dtype import float32
from tengen.codegen.targets import Target
from tengen.kernels.contraction import plans
from tengen.kernels.contraction.contract import contract
from tengen.kernels.lowering import Array, Lowering
from tengen.kernels.steps import Loop

CASES = [((3, 20, 28), 20, 32), ((600,), 40, 16), ((2, 300), 40, 16), ((5, 6, 40), 28, 16), ((530,), 24, 40)]  # k, m, n


def gradient(k, m, n, step=1, l2=128 << 10):
    """A sum over pixels, of which `a` has every `step`-th along the last axis, for a target with so small an L2."""
    wide, dense = (*k[:-1], k[-1] * step), lambda d, c: [int(np.prod(d[i + 1 :])) * c for i in range(len(d))]
    sa = dense(wide, m)
    a = Array("a", float32, (m, *k), (1, *sa[:-1], sa[-1] * step))
    b, out = Array("b", float32, (*k, n), (*dense(k, n), 1)), Array("y", float32, (m, n), (n, 1))
    lo = Lowering(replace(Target.host(), l2_bytes=l2))
    contract(lo, a, b, out, 0, 1, len(k), 1)
    rng = np.random.default_rng(0)
    memory = {"a": rng.standard_normal((int(np.prod(wide)), m), np.float32), "b": rng.standard_normal((int(np.prod(k)), n), np.float32)}
    return lo, {x: y.reshape(-1) for x, y in memory.items()} | {"y": np.full(m * n, np.nan, np.float32)}


@but(every=3)
@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_bits(case, step, monkeypatch):
    monkeypatch.setattr(plans, "WAVE_MULTIPLY_ADDS", 1)
    got = []
    for waves in (True, False):
        if not waves:
            monkeypatch.setattr(plans, "in_waves", lambda *args: False)
        lo, memory = gradient(*case, step, l2=case[2] << 12)  # a chunk of b is a quarter of it
        assert any(isinstance(s, Loop) for s in lo.steps) == (waves and case[2] % 16 == 0)
        Compiled(lo, memory, ["y"])()
        got.append(memory["y"].copy())
        if waves:
            memory["y"][:] = np.nan
            run(lo, memory, backwards=True)  # in whatever order pieces are computed
            got.append(memory["y"])
    assert len({x.tobytes() for x in got}) == 1


def test_what_goes_in_waves():
    waves = lambda *case: any(isinstance(s, Loop) for s in gradient(*case)[0].steps)
    assert waves((8, 28, 28), 1024, 32)
    assert not waves((8, 28, 28), 16, 16)  # nothing to do in a chunk
    assert not waves((8, 28, 28), 512, 64)  # a chunk of b is more than a quarter of a cache
