"""Convolutions by Winograd's algorithm, and of each channel alone: one eager program serves all numbers of channels, with the bits of
the programs for each number, which traces have."""

import numpy as np
import pytest
from exhaustive import but

from tengen import Tensor, trace
from tengen.compiler import plans
from tengen.ops.define import REGISTRY
from tengen.tensor import hide_plans, restore_plans

CONV, TRANSPOSED, GRADIENT = (REGISTRY[name] for name in ("conv", "conv_transposed", "conv_weight_grad"))
WINOGRAD = [  # batch, channels, outputs, height, width
    (1, 48, 80, 9, 10),
    (2, 64, 64, 7, 7),
    (1, 300, 40, 8, 5),  # two chunks of a sum
    (1, 1200, 33, 4, 5),  # scratch memory has room for fewer tiles than the register tile has rows
]
EACH = [(2, 64, 9, 8, 1, 3), (1, 41, 8, 9, 2, 3), (1, 100, 7, 7, 1, 5)]  # batch, channels, height, width, stride, window


@pytest.fixture
def programs(monkeypatch):
    """The programs that are made of eager calls; none is known before, and none is for numbers because it is hot."""
    made: dict = {}
    monkeypatch.setattr(plans, "HOT_AFTER_S", float("inf"))
    monkeypatch.setattr(plans, "_programs", made)
    known = hide_plans()
    yield made
    restore_plans(known)


def numbers(*shape):
    return Tensor(np.random.default_rng(len(shape)).standard_normal(shape).astype("float32"))


def equal(f, *args) -> bool:
    return f(*args).numpy().tobytes() == trace(f)(*args).numpy().tobytes()


def all_three(x, w, **how) -> list[bool]:
    """Whether the convolution and both gradients have the bits of the programs for their numbers."""
    g = CONV(x, w, **how)
    return [
        equal(lambda x, w: CONV(x, w, **how), x, w),
        equal(lambda g, w, x: TRANSPOSED(g, w, x, **how), g, w, x),
        equal(lambda x, g, w: GRADIENT(x, g, w, **how), x, g, w),
    ]


@but(every=2)
@pytest.mark.parametrize("algorithm", ["winograd2", "winograd4"])
def test_winograd(programs, algorithm):
    for n, c, o, h, w in WINOGRAD:
        assert all_three(numbers(n, c, h, w), numbers(o, c, 3, 3), padding=1, algorithm=algorithm) == [True] * 3, (n, c, o, h, w)
        if c == o:
            equal_channels = len(programs)
    assert len(programs) == equal_channels <= 9  # three ops, in three patterns at most


def test_a_filter_of_each_channel(programs):
    for n, c, h, w, stride, k in EACH:
        how = {"stride": stride, "padding": k // 2, "groups": c}
        assert all_three(numbers(n, c, h, w), numbers(c, 1, k, k), **how) == [True] * 3, (n, c, h, w, stride, k)
    before = len(programs)
    for c in (50, 77, 96):
        CONV(numbers(2, c, 11, 8), numbers(c, 1, 3, 3), padding=1, groups=c)
    assert len(programs) == before


def test_double_precision_is_compiled_for_its_channels(programs):
    """Scratch memory of a piece has no room for tiles of any number of channels of eight bytes."""
    for c in (40, 48):
        x, w = (Tensor(a.numpy().astype("float64")) for a in (numbers(1, c, 6, 6), numbers(c, c, 3, 3)))
        assert equal(lambda x, w: CONV(x, w, padding=1, algorithm="winograd2"), x, w)
    assert len(programs) == 2
