"""Eager calls of ops along one axis: one program for any rank, and the results of NumPy along every axis."""

import numpy as np
import pytest

import tengen.functional as F
from tengen import Tensor
from tengen.compiler import plans


def first_two(x, axis):
    return np.take(np.sort(x, axis), range(2), axis), np.take(np.argsort(x, axis, kind="stable"), range(2), axis)


OPS = {
    "sort": (lambda x, a: F.sort(x, axis=a), lambda x, a: (np.sort(x, a), np.argsort(x, a, kind="stable"))),
    "argsort": (lambda x, a: (F.argsort(x, axis=a),), lambda x, a: (np.argsort(x, a, kind="stable"),)),
    "topk": (lambda x, a: F.topk(x, 2, descending=False, axis=a), first_two),
    "cumsum": (lambda x, a: (F.cumsum(x, a),), lambda x, a: (np.cumsum(x, a),)),
    "cumprod": (lambda x, a: (F.cumprod(x, a),), lambda x, a: (np.cumprod(x, a),)),
}


def programs() -> int:
    return len({id(p[0]) for p in plans._programs.values()})


@pytest.mark.parametrize("name", OPS)
def test_one_program_for_any_rank(name):
    ours, numpys = OPS[name]
    counts, rng = [], np.random.default_rng(0)
    for shape in ((6, 7), (2, 4, 9), (3, 2, 5, 11), (2, 3, 2, 2, 13)):
        x = rng.integers(-3, 4, shape)  # with equal elements: the order has to be stable
        t, before = Tensor(x), programs()
        results = ours(t, -1)
        counts.append(programs() - before)
        for got, expected in zip(results, numpys(x, -1), strict=True):
            assert got.shape == expected.shape
            np.testing.assert_array_equal(got.numpy(), expected)
    assert sum(counts[1:]) == 0, f"programs made for each rank: {counts}"


@pytest.mark.parametrize("name", OPS)
def test_every_axis(name):
    ours, numpys = OPS[name]
    x = np.random.default_rng(1).integers(-3, 4, (4, 3, 5, 6))
    across = F.transpose(Tensor(np.ascontiguousarray(x.transpose(2, 1, 3, 0))), (3, 1, 0, 2))  # not contiguous: its rank stays
    assert across.shape == x.shape
    for t in (Tensor(x), across):
        for axis in range(4):
            for got, expected in zip(ours(t, axis), numpys(x, axis), strict=True):
                np.testing.assert_array_equal(got.numpy(), expected, err_msg=str(axis))
