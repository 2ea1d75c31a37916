"""Quantiles, histograms, distinct values and their like beside NumPy: edges that samples of ops do not show."""

import numpy as np
import pytest

import tengen.functional as F
from tengen import Tensor, trace
from tengen.autodiff import GradManager
from tengen.base.errors import ArgumentError, ShapeError, TraceError

RNG = np.random.default_rng(0)
X = RNG.permutation(60).reshape(3, 4, 5) / 7.0
NAN, INF = float("nan"), float("inf")
SHARES = [0.0, 0.37, 0.5, 1.0]
ODD = np.array([NAN, 2.0, -0.0, INF, 0.0, NAN, -INF, 2.0])


def gradient(call, x, weight):
    t = Tensor(x)
    gm = GradManager().attach(t)
    with gm:
        gm.backward((call(t) * Tensor(weight)).sum())
    return t.grad.numpy()


def by_differences(call, x, weight, step=1e-6):
    out = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        d = np.zeros_like(x)
        d[i] = step
        out[i] = sum(s * (call(Tensor(x + s * d)).numpy() * weight).sum() for s in (1, -1)) / (2 * step)
    return out


# name: (a call, the same in NumPy)
CALLS = {
    **{f"quantile, {m}": (lambda x, m=m: F.quantile(x, SHARES, 1, interpolation=m), lambda x, m=m: np.quantile(x, SHARES, 1, method=m))
       for m in ("linear", "lower", "higher", "midpoint", "nearest")},
    "median of all": (lambda x: F.median(x), lambda x: np.median(x)),
    "median, keepdim": (lambda x: F.median(x, 2, keepdim=True), lambda x: np.median(x, 2, keepdims=True)),
    "median of several axes": (lambda x: F.median(x, (0, 2)), lambda x: np.median(x, (0, 2))),
    "diff": (lambda x: F.diff(x, 2, 1), lambda x: np.diff(x, 2, 1)), "diff, n 0": (lambda x: F.diff(x, 0), lambda x: x),
    "lerp": (lambda x: F.lerp(x, x * 2, 0.3), lambda x: x + 0.3 * x),
    "masked_fill": (lambda x: F.masked_fill(x, x > 4.05, -1.0), lambda x: np.where(x > 4.05, -1.0, x)),
    "scatter_add": (lambda x: F.scatter_add(F.zeros((2, 4, 5), dtype="float64"), 0, Tensor(PLACES), x), lambda x: added(x)),
    "take_along_axis": (lambda x: F.take_along_axis(x, Tensor(PLACES), 0), lambda x: np.take_along_axis(x, PLACES, 0)),
    "nan_to_num": (lambda x: F.nan_to_num(x), lambda x: x),
    "count_nonzero": (lambda x: F.count_nonzero(x - x[0, 0, 0], 0), lambda x: np.count_nonzero(x - x[0, 0, 0], 0)),
}  # fmt: skip
PLACES = RNG.integers(0, 2, (3, 4, 5))


def added(x):
    out = np.zeros((2, 4, 5))
    for i in np.ndindex(x.shape):
        out[(PLACES[i], *i[1:])] += x[i]
    return out


@pytest.mark.parametrize("name", CALLS)
def test_beside_numpy_with_gradients(name):
    call, numpy = CALLS[name]
    want = numpy(X)
    traced = trace(lambda x: call(x))
    with pytest.warns() if name in ("scatter_add", "take_along_axis") else no_warnings():
        made = traced(Tensor(X))
    for got in (call(Tensor(X)), made):
        assert got.shape == want.shape and got.dtype == want.dtype
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-14, atol=1e-14)
    if want.dtype.kind == "f":
        weight = RNG.standard_normal(want.shape)
        np.testing.assert_allclose(gradient(call, X, weight), by_differences(call, X, weight), atol=1e-7)


class no_warnings:
    def __enter__(self):
        pass

    def __exit__(self, *exc):
        pass


def test_nans_and_integers():
    assert np.isnan(F.median(Tensor([1.0, NAN, 2.0])).item()) and np.isnan(F.quantile(Tensor([[1.0, NAN], [1.0, 3.0]]), 0.0, 1).tolist()[0])
    assert F.median(Tensor([[1, 2], [4, 8]]), 0).tolist() == [2.5, 5.0] and F.median(Tensor([3], dtype="int8")).dtype == "float32"
    assert F.median(Tensor(5.0)).item() == 5.0 and F.quantile(Tensor([1.0, INF]), 0.25).item() == INF
    for call, error, words in (
        (lambda: F.quantile(Tensor(X), 1.5), ArgumentError, "from 0 to 1"), (lambda: F.median(F.zeros((3, 0)), 1), ShapeError, "no elements"),
        (lambda: F.quantile(Tensor(X), 0.5, interpolation="cubic"), ArgumentError, "interpolation='cubic'"),
    ):  # fmt: skip
        with pytest.raises(error, match=words):
            call()


@pytest.mark.parametrize("x", [ODD, ODD.astype("f4"), np.array([], "f4"), np.array([[5, 1], [5, 5]]), np.array([True, False, True]),
                               np.array(3.0),
                               np.array([7, 0, 255, 7], "u1")], ids=str)  # fmt: skip
def test_unique(x):
    want = np.unique(x, True, True, True)
    got = F.unique(Tensor(x), return_index=True, return_inverse=True, return_counts=True)
    for g, w in zip(got, want):
        assert g.tolist() == w.tolist() or np.array_equal(g.numpy(), w, equal_nan=True)
    assert got[0].dtype == x.dtype and all(g.dtype == "int64" for g in got[1:]) and got[2].shape == x.shape
    np.testing.assert_array_equal(F.unique(Tensor(x)).numpy(), want[0])
    if x.size:
        with pytest.raises(TraceError, match="selection by a mask inside a trace"):
            trace(lambda t: F.unique(t), symbolic=True)(Tensor(x))


def test_histogram():
    x = RNG.integers(0, 80, 200) / 8.0
    for bins, range in ((10, (0.0, 10.0)), (4, (2.0, 6.0)), (1, (0.0, 1.0)), (7, None)):
        counts, edges = F.histogram(Tensor(x), bins, range)
        want = np.histogram(x, bins, range)
        np.testing.assert_allclose(edges.numpy(), want[1], rtol=1e-14)
        assert counts.dtype == "int64" and counts.tolist() == want[0].tolist()
        density = F.histogram(Tensor(x), bins, range, density=True)[0]
        np.testing.assert_allclose(density.numpy(), np.histogram(x, bins, range, density=True)[0], rtol=1e-12)
    counts, edges = trace(lambda t: F.histogram(t, 5))(Tensor(x))
    assert counts.tolist() == np.histogram(x, 5)[0].tolist()
    assert F.histogram(Tensor([2.0, 2.0]), 2)[0].tolist() == np.histogram([2.0, 2.0], 2)[0].tolist() == [0, 2]
    assert F.histogram(Tensor([NAN, 1.0, 9.0]), 2, (0.0, 2.0))[0].tolist() == [0, 1]
    for f in (F.histogram, trace(F.histogram)):
        counts, edges = f(Tensor([NAN, 1.0, 9.0, NAN, 2.0]), 2)
        assert (counts.tolist(), edges.tolist()) == ([2, 1], [1.0, 5.0, 9.0])
        assert f(Tensor([NAN]), 2)[0].tolist() == [0, 0]
    assert F.histc(Tensor([NAN, 1.0, 9.0]), 2).tolist() == [1.0, 1.0]
    assert F.histogram(F.zeros((0,)), 2)[0].tolist() == [0, 0]
    assert F.histogram(Tensor([1, 2, 3]), 2)[1].dtype == "float32"
    for call in (lambda: F.histogram(Tensor(x), 0), lambda: F.histogram(Tensor(x), 2, (1.0, 1.0)), lambda: F.histogram(Tensor(x), 2, (1.0,))):
        with pytest.raises(ValueError):
            call()


def test_bincount():
    assert F.bincount(Tensor([1, 3, 1])).tolist() == [0, 2, 0, 1] and F.bincount(F.zeros((0,), dtype="int32"), minlength=2).tolist() == [0, 0]
    assert F.bincount(Tensor([0, 1, 1]), Tensor([0.5, 1.0, 2.0])).tolist() == [0.5, 3.0]
    for bad in (Tensor([1.0]), Tensor([[1]]), Tensor([-1])):
        with pytest.raises(ValueError):
            F.bincount(bad)
    with pytest.raises(ShapeError, match=r"a weight for each of 2 integers, got weights of shape \[3\]"):  # and takes no gigabytes first
        F.bincount(Tensor([2**40, 1]), Tensor([1.0, 2.0, 3.0]))


def test_nan_to_num():
    for d in ("float16", "float32", "float64"):
        x = ODD.astype(d)
        assert F.nan_to_num(Tensor(x)).numpy().tobytes() == np.nan_to_num(x).tobytes()
        assert F.nan_to_num(Tensor(x), 1.0, 2.0, 3.0).tolist() == np.nan_to_num(x, nan=1.0, posinf=2.0, neginf=3.0).tolist()
    assert F.nan_to_num(Tensor([1, 2])).tolist() == [1, 2]
    assert gradient(lambda t: F.nan_to_num(t), ODD, np.ones(8)).tolist() == [0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0]


def test_closeness():
    a, b = np.array([1.0, 1.0, INF, INF, NAN, 0.0]), np.array([1.0 + 1e-6, 1.1, INF, -INF, NAN, 1e-9])
    for equal in (False, True):
        assert F.isclose(Tensor(a), Tensor(b), equal_nan=equal).tolist() == np.isclose(a, b, equal_nan=equal).tolist()
        assert bool(F.allclose(Tensor(a[:1]), Tensor(b[:1]))) and not bool(F.allclose(Tensor(a), Tensor(b), equal_nan=equal))
    assert F.isclose(Tensor([1, 2]), Tensor([1, 3])).tolist() == [True, False]
