"""Operands that lie across the result: every permutation, alone and beside others, in sizes around a tile."""

import itertools

import numpy as np
import pytest

import tengen.functional as F
from tengen import Tensor, trace
from tengen.base.dtype import float32
from tengen.kernels.lowering import Array, contiguous_strides
from tengen.kernels.source import Leaf
from tengen.kernels.transposing_copy import transposing

SHAPES = [(100, 37), (64, 65), (128, 16), (5, 33, 70), (8, 3, 24, 24), (17, 20, 3, 3), (9, 1, 17, 2, 11), (0, 20, 30)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_permutation(shape):
    a = np.random.default_rng(0).normal(size=shape).astype("float32")
    x = Tensor(a)
    for perm in itertools.permutations(range(len(shape))):
        b = np.ascontiguousarray(a.transpose(perm))
        y, t = Tensor(b), F.transpose(x, perm)
        np.testing.assert_array_equal((t * 3 + y).numpy(), a.transpose(perm) * 3 + b, err_msg=str(perm))
        np.testing.assert_array_equal((y + t * 3).numpy(), a.transpose(perm) * 3 + b, err_msg=str(perm))


@pytest.mark.parametrize("dtype", ["float64", "float16", "int8", "bool"])
def test_dtypes_and_slices(dtype):
    a = (np.random.default_rng(1).normal(size=(2, 70, 90)) * 5).astype(dtype)
    x = Tensor(a)[:, 2:, ::2]
    np.testing.assert_array_equal(F.transpose(x, (2, 0, 1)).reshape(-1).numpy(), a[:, 2:, ::2].transpose(2, 0, 1).reshape(-1))


def test_a_filter_and_its_gradient():
    """An update reads a gradient that is dense along the outputs, and writes a weight that is dense along the filter."""
    w, g = (np.random.default_rng(i).normal(size=s).astype("float32") for i, s in enumerate([(32, 20, 3, 3), (3, 3, 20, 32)]))
    step = trace(lambda w, g: w - F.transpose(g, (3, 2, 0, 1)) * 0.5)
    np.testing.assert_array_equal(step(Tensor(w), Tensor(g)).numpy(), w - g.transpose(3, 2, 0, 1) * np.float32(0.5))


def array(name, shape, order):
    return Array(name, float32, shape, contiguous_strides(shape, order))


def test_what_lies_across():
    out, across = array("out", (64, 32, 48), (0, 1, 2)), array("x", (64, 32, 48), (0, 2, 1))
    c = transposing([Leaf(across)], [out])
    assert c is not None and (c.outer, c.dense, c.last) == ((0,), (1,), (2,))
    assert transposing([Leaf(out)], [out]) is None
    assert transposing([Leaf(array("x", (64, 3, 48), (0, 2, 1)))], [array("out", (64, 3, 48), (0, 1, 2))]) is None  # too few
    row = Array("row", float32, (64, 32, 48), (0, 0, 1))
    assert transposing([Leaf(row)], [out]) is None


def test_few_colours():
    a = np.random.default_rng(2).normal(size=(2, 3, 9, 37)).astype("float32")
    run = trace(lambda x: F.transpose(x, (0, 2, 3, 1)).reshape(2, -1) + 1)
    np.testing.assert_array_equal(run(Tensor(a)).numpy(), a.transpose(0, 2, 3, 1).reshape(2, -1) + 1)
