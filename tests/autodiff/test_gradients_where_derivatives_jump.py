"""Gradients where a function has no derivative: norms and deviations of zeros, extrema of which there are several. PyTorch's choices."""

import numpy as np
import pytest

import tengen.functional as F
from tengen import Tensor, autodiff, trace

ZEROS = np.zeros((2, 3), "float32")


def slope(f, *arrays):
    """The gradients with respect to all arguments, eagerly; traced, they have the same bytes."""
    of = lambda *ts: autodiff.grad(lambda *ts: f(*ts).sum(), tuple(range(len(ts))))(*ts)
    ts = [Tensor(a) for a in arrays]
    found, traced = of(*ts), trace(of)(*ts)
    assert [t.numpy().tobytes() for t in found] == [t.numpy().tobytes() for t in traced]
    return [t.numpy() for t in found]


@pytest.mark.parametrize("ord", [None, 2, 1, 3, float("inf")])
def test_a_norm_of_zeros_has_the_gradient_0(ord):
    (g,) = slope(lambda x: F.norm(x, ord, axis=1), ZEROS)
    if ord == float("inf"):
        return np.testing.assert_allclose(np.abs(g), 0)
    assert g.tolist() == ZEROS.tolist()
    x = np.array([[3.0, -4.0, 0.0], [0.0, 0.0, 0.0]], "float32")
    (g,) = slope(lambda x: F.norm(x, ord, axis=1), x)
    p = 2.0 if ord is None else float(ord)
    size = np.abs(x[0].astype("float64"))
    want = np.sign(x[0]) * size ** (p - 1) / (size**p).sum() ** ((p - 1) / p)
    np.testing.assert_allclose(g, [want, np.zeros(3)], rtol=1e-6)


def test_values_of_norms_stay():
    x = np.array([[3.0, -4.0, 0.0], [0.0, -0.0, 0.0], [np.nan, 1, 2], [np.inf, 1, -np.inf], [1e-30, 0, 0]], "float32")
    for ord in (None, 3):
        with np.errstate(invalid="ignore"):
            want = (np.abs(x) ** (ord or 2)).sum(1, dtype="float32") ** (1 / (ord or 2))
        np.testing.assert_allclose(F.norm(Tensor(x), ord, axis=1).numpy(), want, rtol=1e-6)
    assert F.norm(F.zeros((0,))).item() == 0.0
    for ord in (None, 2, 3, 0.5):  # whether a gradient may be asked or not
        recorded = []
        autodiff.grad(lambda t, o=ord, kept=recorded: kept.append(F.norm(t, o, axis=1)) or kept[0].sum())(Tensor(x))
        assert recorded[0].numpy().tobytes() == F.norm(Tensor(x), ord, axis=1).numpy().tobytes()


def test_a_deviation_and_a_direction_of_zeros():
    assert slope(lambda x: F.std(x, axis=1), ZEROS + 2)[0].tolist() == ZEROS.tolist()
    np.testing.assert_allclose(slope(lambda x: F.normalize(x, axis=1, eps=0.5), ZEROS)[0], ZEROS + 2)
    x = np.array([[1.0, 3.0]], "float32")
    np.testing.assert_allclose(slope(lambda x: F.std(x, axis=1), x)[0], [[-0.5, 0.5]], rtol=1e-6)


def test_several_largest_elements_of_a_scatter_share_the_gradient():
    index = Tensor(np.array([0, 0, 2, 2]))
    reduced = lambda own: lambda x, s: F.scatter_reduce(x, 0, index, s, "amax", own) * Tensor(np.array([1.0, 2.0, 4.0], "float32"))
    gx, gs = slope(reduced(True), np.zeros(3, "float32"), np.array([0.0, 0.0, 0.0, 5.0], "float32"))
    np.testing.assert_allclose(gx, [1 / 3, 2, 0], rtol=1e-6)
    np.testing.assert_allclose(gs, [1 / 3, 1 / 3, 0, 4], rtol=1e-6)
    gx, gs = slope(reduced(False), np.zeros(3, "float32"), np.zeros(4, "float32"))
    assert gx.tolist() == [0, 2, 0] and gs.tolist() == [0.5, 0.5, 2, 2]


@pytest.mark.parametrize("size", [(2, 2), (2, 3), (3, 2)])
def test_the_first_of_equal_elements_of_a_part_takes_the_gradient(size):
    """Whether parts are equal or not, and overlap or not."""
    rng = np.random.default_rng(0)
    for a in (np.zeros((1, 1, 3, 3), "float32"), rng.integers(0, 2, (2, 3, 5, 7)).astype("float32")):
        (g,) = slope(lambda x: F.adaptive_max_pool2d(x, size), a)
        want = np.zeros_like(a)
        h, w = a.shape[2:]
        for n, c, i, j in np.ndindex(*a.shape[:2], *size):
            top, left = i * h // size[0], j * w // size[1]
            part = a[n, c, top : -(-(i + 1) * h // size[0]), left : -(-(j + 1) * w // size[1])]
            y, x = np.unravel_index(part.argmax(), part.shape)
            want[n, c, top + y, left + x] += 1
        assert g.tolist() == want.tolist()
