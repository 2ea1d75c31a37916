"""Sorting against NumPy's stable sort."""

from __future__ import annotations

import numpy as np
import pytest
from exhaustive import but
from launching import Symbols, array_of, run

from tengen.kernels.indexing import radix
from tengen.kernels.indexing.sort import network, sort, topk
from tengen.kernels.lowering import Lowering
from tengen.kernels.source import Leaf


def order(x: np.ndarray, axis: int, descending: bool) -> np.ndarray:
    """Stable positions by (is it NaN, value), equal elements in their order also when descending."""
    x = np.moveaxis(x, axis, -1)
    keys = np.unique(x, return_inverse=True, equal_nan=True)[1].reshape(x.shape)
    return np.moveaxis(np.argsort(-keys if descending else keys, -1, kind="stable"), -1, axis)


def launch(x, axis, descending, symbolic=False, k=None):
    a, mem = array_of(x, "x")
    shape = tuple(k if k is not None and i == axis else d for i, d in enumerate(x.shape))
    values, indices = np.full(shape, 55, x.dtype), np.full(shape, 55, np.int64)
    (v, vm), (i, im) = array_of(values, "v"), array_of(indices, "i")
    sym = Symbols()
    if symbolic:
        a, v, i = sym.array(a), sym.array(v), sym.array(i)
    lo = Lowering(None, list(sym.values))
    (sort if k is None else topk)(lo, Leaf(a), v, i, axis, descending)
    run(lo, {"x": mem, "v": vm, "i": im}, sym.values)
    return values, indices


def check(x, axis, descending, symbolic=False, k=None):
    want = order(x, axis, descending)
    want = want if k is None else np.take(want, range(k), axis)
    values, indices = launch(x, axis, descending, symbolic, k)
    np.testing.assert_array_equal(indices, want)
    np.testing.assert_array_equal(values, np.take_along_axis(x, want, axis))


@but(every=3)
@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("n", [0, 1, 2, 15, 16, 17, 33, 100, 256, 257, 600])
def test_sizes(n, symbolic):
    rng = np.random.default_rng(n)
    x = rng.integers(0, max(n // 2, 2), (3, n)).astype(np.float32)
    for descending in (False, True):
        check(x, 1, descending, symbolic)
        check(x.T, 0, descending, symbolic)
    check(rng.integers(-(2**62), 2**62, (2, n)) // (1 << 61), 1, False, symbolic)


@pytest.mark.parametrize("dt", ["float32", "float16", "int32", "int16", "uint32", "uint8"])
def test_long_rows_are_sorted_digit_by_digit(dt):
    """Of keys of all signs, of extremes, and of few values, so that most digits are equal."""
    rng, n = np.random.default_rng(0), radix.LEAST_ELEMENTS
    if dt.startswith("float"):
        x = (rng.standard_normal((3, n)) * 10.0 ** rng.integers(-6, 4, (3, n))).astype(dt)
        x[0, ::7], x[1] = np.nan, np.rint(x[1])
        x[2, :9] = [0.0, -0.0, np.inf, -np.inf, 0.0, -0.0, np.finfo(dt).tiny, -np.finfo(dt).tiny, np.nan]
    else:
        info = np.iinfo(dt)
        x = rng.integers(info.min, info.max, (3, n), dt, endpoint=True)
        x[1], x[2, :4] = x[1] % 3, [info.max, info.min, info.max, info.min]
    for descending in (False, True):
        check(x, 1, descending)
    check(x[:, 1:].T.copy(), 0, False)  # one less is merged
    check(x, 1, True, k=40)


@pytest.mark.parametrize("dt", ["float32", "float64", "float16", "int64", "int32", "int8", "uint64", "uint32", "uint8", "bool"])
def test_dtypes(dt):
    rng = np.random.default_rng(0)
    if dt == "bool":
        x = rng.random((4, 37)) < 0.5
    elif dt.startswith("float"):
        x = rng.standard_normal((4, 37)).astype(dt)
        x[1, 3:30:5] = np.nan
        x[2, :9] = [0.0, -0.0, np.inf, -np.inf, 0.0, -0.0, np.finfo(dt).tiny, -np.finfo(dt).tiny, np.nan]
    else:
        info = np.iinfo(dt)
        x = rng.integers(info.min, info.max, (4, 37), dt, endpoint=True)
        x[0, :4] = [info.max, info.min, info.max, info.min]
    for descending in (False, True):
        check(x, 1, descending)
        check(x, 0, descending)


@pytest.mark.parametrize("symbolic", [False, True])
def test_topk(symbolic):
    rng = np.random.default_rng(0)
    for n, k in [(5, 2), (40, 1), (100, 5), (333, 32), (333, 40), (40, 40), (7, 0)]:
        x = rng.integers(0, n // 2, (3, n)).astype(np.float32)
        x[1, ::4] = np.nan
        for largest in (False, True):
            check(x, 1, largest, symbolic and k > 32, k)
            check(np.asfortranarray(x.T), 0, largest, False, k)


def test_network_sorts_all_zeros_and_ones():
    """The 0-1 principle: a network that sorts every sequence of zeros and ones sorts everything."""
    x = (np.arange(1 << 16)[:, None] >> np.arange(16)) & 1
    for i, j in network(16):
        x[:, i], x[:, j] = np.minimum(x[:, i], x[:, j]), np.maximum(x[:, i], x[:, j])
    assert (np.diff(x, axis=1) >= 0).all()
