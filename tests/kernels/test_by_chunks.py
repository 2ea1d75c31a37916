"""A long sum with few results, shared out by chunks, has the bits of the same sum in one piece."""

import numpy as np
import pytest
from exhaustive import but

import tengen.functional as F
from tengen import Tensor, trace
from tengen.kernels.contraction import contract as contraction
from tengen.ops.define import REGISTRY

CASES = [  # batch, channels, outputs, side, kernel, stride
    (3, 5, 7, 56, 1, 1), (2, 16, 24, 64, 1, 1), (2, 3, 16, 112, 3, 2), (17, 6, 1, 16, 3, 1), (5, 1, 5, 32, 1, 1), (2, 20, 30, 64, 3, 1),
    (1, 48, 24, 64, 1, 1), (1, 32, 144, 64, 1, 1), (2, 33, 48, 128, 1, 2),  # read where they lie, vectors along either side
    (1, 256, 32, 64, 1, 1),  # many rows
    (4, 256, 40, 56, 1, 1), (6, 40, 24, 64, 1, 1), (3, 24, 24, 128, 1, 2),  # in waves
]  # fmt: skip


@but(every=3)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_bits(case, dtype, monkeypatch):
    n, c, o, side, kernel, stride = case
    rng = np.random.default_rng(0)
    pad = kernel // 2
    x, w = (Tensor(rng.normal(size=s).astype(dtype)) for s in ((n, c, side, side), (o, c, kernel, kernel)))
    g = Tensor(rng.normal(size=F.conv2d(x, w, stride=stride, padding=pad).shape).astype(dtype))

    def gradient(x, g, w):
        return REGISTRY["conv_weight_grad"](x, g, w, stride=stride, padding=pad, algorithm="direct")

    def run():
        return trace(gradient)(x, g, w).numpy()

    monkeypatch.setattr(contraction, "LEAST_WAVE_BYTES", 1 << 12)  # in waves where there are several images
    counted = []
    by_chunks = contraction.by_chunks
    monkeypatch.setattr(contraction, "by_chunks", lambda *a: (counted.append(1), by_chunks(*a)))
    mine = run()
    assert counted
    monkeypatch.setattr(contraction, "chunk_axes", lambda *a: None)
    assert run().tobytes() == mine.tobytes() == gradient(x, g, w).numpy().tobytes()


def test_what_is_shared_out():
    axes = contraction.chunk_axes
    assert axes((4, 64, 64), (16,), (24,)) == 4
    assert axes((4, 63, 64), (16,), (24,)) is None  # chunks that end inside of an image
    assert axes((4, 64, 64), (576,), (64,)) is None  # enough results to share out
    assert axes((64, 64), (513,), (64,)) is None and axes((4096,), (16,), (24,)) is None
    assert axes((2, 8, 256), (16,), (24,)) is None and axes((1, 16, 16), (16,), (24,)) is None  # few chunks


def test_waves():
    assert contraction._waves((8, 14), 64 * 256, 4) == 4  # two images have chunks enough to share
    assert contraction._waves((8, 14), 64, 4) == 1  # all partial sums stay in a cache
    assert contraction._waves((7, 14), 64 * 256, 4) == 1 and contraction._waves((7, 16), 64 * 256, 4) == 7
