"""Integers stay integers between quantised layers: what the pass does, where it must not, and that no bit changes."""

from __future__ import annotations

import numpy as np
import pytest

import tengen
import tengen.functional as F
from tengen import Tensor
from tengen.ir.text import print_graph
from tengen.passes.pipeline import optimize

Q = Tensor(np.random.default_rng(0).integers(-128, 128, (2, 3, 4, 4)).astype("int8"))
S = Tensor(0.1)


def turned(f, *examples):
    """How often integers become numbers and numbers integers in the optimised graph of a function, whose result is checked."""
    g = tengen.Graph.of(f, *examples)
    text = print_graph(optimize(g))
    np.testing.assert_array_equal(g(*examples).numpy(), f(*examples).numpy())
    return text.count("= quantize_linear("), text.count("dequantize_linear(")


def test_through_views_and_maxima():
    there = lambda q: F.dequantize_linear(q, S)
    back = lambda x: F.quantize_linear(x, S)
    assert turned(lambda q: back(there(q)), Q) == (0, 0)
    assert turned(lambda q: back(F.max_pool2d(there(q), 2).transpose(0, 2, 3, 1).reshape(2, -1)), Q) == (0, 0)


C = Tensor(np.array([0.1, 0.2, 0.3], "float32").reshape(3, 1, 1))
WIDE = Tensor(np.float32(2.0**-120))


@pytest.mark.parametrize("f", [
    lambda q: F.quantize_linear(F.relu(F.dequantize_linear(q, S)), S),  # not the same integers
    lambda q: F.quantize_linear(F.dequantize_linear(q, S), Tensor(0.2)),
    lambda q: F.quantize_linear(F.dequantize_linear(q, S), S, Tensor(1, "int32")),
    lambda q: F.quantize_linear(F.dequantize_linear(q, S), S, None, -127, 127),  # -128 is another
    lambda q: F.quantize_linear(F.dequantize_linear(q, C).transpose(0, 1, 3, 2), C),  # each channel has a scale
    lambda q: F.quantize_linear(F.dequantize_linear(q, WIDE), WIDE),  # numbers that float32 does not hold
])  # fmt: skip
def test_where_it_must_not(f):
    assert turned(f, Q)[0] == 1


def test_a_scale_that_is_not_known_stays():
    f = lambda q, s: F.quantize_linear(F.dequantize_linear(q, s), s)
    assert turned(f, Q, S)[0] == 1


NUMBERS = Tensor(np.array([-7.0, -0.0, 0.0, 0.01, 2.98, 3.0, 5.99, 6.0, 6.5, 300.0, -np.inf, np.inf, np.nan], "float32"))
SIX = Tensor(np.float32(6 / 255))


def clips(f):
    """How many clips are left in the optimised graph of a function of numbers, whose result is checked."""
    g = tengen.Graph.of(f, NUMBERS)
    text = print_graph(optimize(g))
    for got, want in zip(g(NUMBERS).numpy(), f(NUMBERS).numpy()):
        np.testing.assert_array_equal(got, want)
    return text.count("relu")


@pytest.mark.parametrize("left, f", [
    (0, lambda x: F.quantize_linear(F.relu(x), S, None, 0, 255, "uint8")),
    (0, lambda x: F.quantize_linear(F.relu6(F.relu(x)), SIX, None, 0, 255, "uint8")),
    (0, lambda x: F.quantize_linear(F.relu(x), S, Tensor(-128, "int32"))),
    (0, lambda x: F.quantize_linear(F.relu6(x), SIX, Tensor(-128, "int32"))),
    (0, lambda x: F.quantize_linear(F.relu6(x), Tensor(np.float32(0.02)), None, 0, 255, "uint8")),
    (1, lambda x: F.quantize_linear(F.relu6(x), S, None, 0, 255, "uint8")),  # 6 is 60
    (1, lambda x: F.quantize_linear(F.relu(x), S)),  # -1 is -10
    (1, lambda x: F.quantize_linear(F.relu(x), S, Tensor(3, "int32"), 0, 255, "uint8")),  # -0.1 is 2
    (1, lambda x: F.quantize_linear(F.relu(x), WIDE, None, 0, 255, "uint8")),
    (1, lambda x: F.quantize_linear((y := F.relu(x)), S, None, 0, 255, "uint8") + y),  # somebody else reads it
])  # fmt: skip
def test_clips_that_integers_have_anyway(left, f):
    """... are left out, and no others; for NaN and infinities too."""
    assert clips(f) == left
