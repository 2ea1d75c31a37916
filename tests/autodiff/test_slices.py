"""Gradients of slices: those that tile a tensor are joined, others are added with zeros around them."""

import numpy as np
import pytest

import tengen.functional as F
from tengen import Tensor, trace
from tengen.autodiff import grad
from tengen.compiler import plans

x = Tensor(np.random.default_rng(0).normal(size=(6, 8)).astype("float64"))
w = Tensor(np.arange(48.0).reshape(6, 8))


def joined(f, *inputs):
    return [n.op for n in trace(grad(f)).trace(*inputs).graph.nodes].count("slice_grad") == 0


def parts_of(axis, *bounds):
    return lambda t: [F.split(t, list(bounds), axis=axis)[i] * (i + 1.0) for i in range(len(bounds) + 1)]


@pytest.mark.parametrize("axis, bounds", [(0, (2, 3)), (1, (1, 4)), (-1, (4,))])
def test_tiles(axis, bounds):
    f = lambda t: sum((p * p).sum() for p in parts_of(axis, *bounds)(t))
    scale = np.concatenate([np.full(n.shape, (i + 1.0) ** 2) for i, n in enumerate(np.split(x.numpy(), bounds, axis))], axis)
    np.testing.assert_allclose(grad(f)(x).numpy(), 2 * scale * x.numpy())
    assert joined(f, x) and trace(grad(f))(x).numpy().tobytes() == grad(f)(x).numpy().tobytes()
    second = grad(lambda t: (grad(f)(t) * w).sum())
    np.testing.assert_allclose(second(x).numpy(), 2 * scale * w.numpy())


def test_steps_of_a_sequence():
    def f(t):
        total = t[0] * 0.0
        for i in range(6):
            total = total * 0.5 + t[i]
        return (total * w[0]).sum()

    assert joined(f, x)
    np.testing.assert_allclose(grad(f)(x).numpy(), w.numpy()[0] * 0.5 ** np.arange(5, -1, -1)[:, None] + np.zeros((6, 8)))


@pytest.mark.parametrize("cut", [lambda t: (t[1:3], t[3:]), lambda t: (t[:4], t[2:]), lambda t: (t[:3, :4], t[3:, 4:]), lambda t: (t[::2],)])
def test_gaps_overlaps_and_steps(cut):
    f = lambda t: sum((p * p).sum() for p in cut(t)) + t.sum()
    want = np.ones((6, 8))
    for p in cut(np.arange(48).reshape(6, 8)):
        want.reshape(-1)[p] += 2 * x.numpy().reshape(-1)[p]
    np.testing.assert_allclose(grad(f)(x).numpy(), want)
    assert trace(grad(f))(x).numpy().tobytes() == grad(f)(x).numpy().tobytes()


def test_any_steps_share_programs():
    """Assignments to slices and their gradients, with steps that are operands of their programs: NumPy's elements."""
    plans._programs.clear()
    counts = []
    for a, b in ((2, 3), (-2, 3), (2, -3), (-3, -2), (3, 5), (-7, 4), (6, -2), (-5, -4), (2, 2), (-3, -3), (1, 4), (-1, 2)):
        n, m = 23 + abs(a), 29 + abs(b)
        values, key = np.arange(n * m, dtype="float32").reshape(n, m), (slice(None, None, a), slice(None, None, b))
        expected, t = values.copy(), Tensor(values)
        new = expected[key] * 2 + 1
        expected[key] = new
        t[key] = Tensor(np.ascontiguousarray(new))
        assert t.numpy().tobytes() == expected.tobytes()
        hit = np.zeros_like(values)
        hit[key] = expected[key]
        given = grad(lambda x, key=key, new=new: (x[key] * Tensor(np.ascontiguousarray(new))).sum())(Tensor(values))
        assert given.numpy().tobytes() == hit.tobytes()
        counts.append(len(plans._programs))
    assert counts[3] == counts[8], f"{counts}"  # after each pair of signs was met once


def test_the_sign_of_zeros_with_open_extents():
    """Slices tile for some numbers of an open extent and not for others; the open program has the bits of each number's own."""
    f = lambda t: (t[:, 0] * -0.0 + F.sin(t[:, 1]) * -0.0).sum()
    halves = lambda t: (t[: t.shape[0] // 2] * -0.0).sum() + (t[t.shape[0] // 2 : t.shape[0] // 2 * 2] * -0.0).sum()
    for g, axis in ((f, 1), (halves, 0)):
        slope = grad(g)
        opened = trace(slope, dynamic_axes={0: "n", 1: "m"})
        for n in (3, 2, 4, 5):
            t = Tensor(np.full((n, 4) if axis == 0 else (4, n), 0.5))
            assert opened(t).numpy().tobytes() == slope(t).numpy().tobytes() == trace(slope, dynamic_axes=None)(t).numpy().tobytes()


def test_the_sign_of_zeros_in_an_op_of_many():
    """The gradient of a map, whose last axis has as many elements as there are images: eager programs open what is equal by chance."""
    rng = np.random.default_rng(0)
    image, places, scale = (Tensor(rng.normal(size=n).astype("float32") * 3) for n in ((2, 3, 4, 5), (2, 3, 6, 2), (2, 3, 3, 6)))
    slope = grad(lambda p: (F.vision.remap(image, p) * scale).sum())
    assert trace(slope)(places).numpy().tobytes() == slope(places).numpy().tobytes()
