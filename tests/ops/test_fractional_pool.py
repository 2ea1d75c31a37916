"""`fractional_max_pool2d` and `3d`: windows, places and gradients beside the definition written out; drawn samples; errors."""

import numpy as np
import pytest
from each import each

import tengen.functional as F
import tengen.module as M
from tengen import Tensor, random, trace
from tengen.autodiff import grad
from tengen.base.errors import ArgumentError, ShapeError


def starts(draw, extent, count, window):
    step = np.float64(extent - window) / max(count - 1, 1)
    return [int((i + draw) * step) - int(draw * step) for i in range(count - 1)] + [extent - window]


def defined(x, kernel, size, draws):
    """(values, places, for a gradient of ones the gradient)."""
    values, places, slopes = np.zeros((*x.shape[:2], *size)), np.zeros((*x.shape[:2], *size), int), np.zeros(x.shape)
    space, order = x.shape[2:], (1, 0) if len(size) == 2 else (0, 1, 2)  # which draw is whose, as in PyTorch
    for n, c in np.ndindex(x.shape[:2]):
        first = [starts(draws[n, c, j], d, o, k) for j, d, o, k in zip(order, space, size, kernel)]
        for to in np.ndindex(*size):
            corner = [f[i] for f, i in zip(first, to)]
            window = x[n, c][tuple(slice(a, a + k) for a, k in zip(corner, kernel))]
            at = np.unravel_index(window.argmax(), window.shape)
            found = tuple(a + i for a, i in zip(corner, at))
            values[n, c][to], places[n, c][to] = window[at], np.ravel_multi_index(found, space)
            slopes[n, c][found] += 1
    return values, places, slopes


SIZES = [
    ((7, 9), (2, 2), (3, 4)), ((7, 9), (3, 2), (1, 8)), ((5, 5), (5, 5), (1, 1)), ((6, 4), (1, 1), (6, 4)),
    ((5, 6, 7), (2, 1, 3), (4, 3, 2)), ((3, 3, 3), (3, 2, 3), (1, 2, 1)),
]  # fmt: skip


@each("space, kernel, size", SIZES)
def test_values_places_and_gradients(space, kernel, size):
    rng = np.random.default_rng(0)
    for x in (rng.standard_normal((2, 3, *space)), rng.integers(0, 3, (2, 3, *space)).astype(float)):
        for draws in (rng.random((2, 3, len(size))), np.zeros((2, 3, len(size)))):
            pool = getattr(F, f"fractional_max_pool{len(size)}d")
            call = lambda t, d=Tensor(draws), pool=pool: pool(t, kernel, size, return_indices=True, _random_samples=d)
            for run in (call, trace(call)):
                got = run(Tensor(x))
                want = defined(x, kernel, size, draws)
                assert [g.numpy().tolist() for g in got] == [w.tolist() for w in want[:2]]
            assert grad(lambda t, f=call: f(t)[0].sum())(Tensor(x)).tolist() == want[2].tolist()


def test_samples_are_drawn_and_what_does_not_fit_is_an_error():
    x = Tensor(np.random.default_rng(0).standard_normal((2, 3, 8, 8)))
    found = []
    for run in (lambda t: F.fractional_max_pool2d(t, 2, 5), M.FractionalMaxPool2d(2, 5), trace(lambda t: F.fractional_max_pool2d(t, 2, 5))):
        random.seed(3)
        found.append(run(x).numpy().tobytes())
    assert len(set(found)) == 1 and F.fractional_max_pool2d(x[0], 2, output_ratio=(0.5, 0.25)).shape == (3, 4, 2)
    hole = np.where(np.arange(64).reshape(8, 8) == 9, np.nan, x.numpy())
    assert np.isnan(F.fractional_max_pool2d(Tensor(hole), 8, 1).numpy()).all()
    for how, error, words in (
        ({"output_size": 8}, ShapeError, "8 x 8 windows of 2 x 2 pixels do not fit an image of 8 x 8"),
        ({}, ArgumentError, "either output_size"),
        ({"output_size": 3, "_random_samples": F.zeros((2, 3, 1))}, ShapeError, r"must have the shape \(2, 3, 2\)"),
        ({"output_ratio": 0.01}, ShapeError, "0 x 0 windows"), ({"output_size": 2, "output_ratio": 0.5}, ArgumentError, "either"),
    ):  # fmt: skip
        with pytest.raises(error, match=words):
            F.fractional_max_pool2d(x, 2, **how)
    with pytest.raises(ArgumentError, match="either output_size or output_ratio"):
        M.FractionalMaxPool2d(2)
    volume = x.reshape(2, 3, 4, 4, 4)
    random.seed(3)
    want = F.fractional_max_pool3d(volume, 2, (3, 2, 1)).numpy().tobytes()
    random.seed(3)
    assert M.FractionalMaxPool3d(2, (3, 2, 1))(volume).numpy().tobytes() == want
    with pytest.raises(ShapeError, match=r"must have the shape \(2, 3, 3\)"):
        F.fractional_max_pool3d(volume, 2, 2, _random_samples=F.zeros((2, 3, 2)))
