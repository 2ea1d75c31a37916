"""Reductions and their like along the axes where they are easily wrong: none, an empty one, the one of a 0-d tensor; and what is no
axis. Values against NumPy, gradients against finite differences of NumPy's, traced the same bytes."""

import warnings

import numpy as np
import pytest
from checking import bits
from exhaustive import but

from tengen import Tensor, trace
from tengen import functional as F
from tengen.autodiff import vjp
from tengen.base.errors import AxisError, ShapeError


def softmax(x, axis):
    e = np.exp(x - x.max(axis, keepdims=True, initial=-1e300))
    return e / e.sum(axis, keepdims=True)


def logsumexp(x, axis, keepdims=False):
    return np.log(np.exp(x).sum(axis, keepdims=keepdims))


def p_norm(p):
    return lambda x, axis, keepdims=False: (np.abs(x) ** p).sum(axis, keepdims=keepdims) ** (1 / p)


def normalized(x, axis):
    return x / np.maximum(p_norm(2)(x, axis, True), 1e-12)


KEEP = {
    "sum": (F.sum, np.sum), "mean": (F.mean, np.mean), "prod": (F.prod, np.prod), "max": (F.max, np.max), "min": (F.min, np.min),
    "all": (F.all, np.all), "any": (F.any, np.any), "var": (F.var, np.var), "std": (F.std, np.std), "logsumexp": (F.logsumexp, logsumexp),
    "norm": (F.norm, p_norm(2)), "norm 1": (lambda x, axis, keepdims=False: F.norm(x, 1, axis, keepdims), p_norm(1)),
    "norm 3": (lambda x, axis, keepdims=False: F.norm(x, 3, axis, keepdims), p_norm(3)),
}  # fmt: skip
SAME = {
    "softmax": (F.softmax, softmax), "logsoftmax": (F.logsoftmax, lambda x, axis: np.log(softmax(x, axis))),
    "normalize": (lambda x, axis: F.normalize(x, axis=axis), normalized),
}  # fmt: skip
ARG = {"argmax": (F.argmax, np.argmax), "argmin": (F.argmin, np.argmin)}
LINES = {
    "cumsum": (F.cumsum, np.cumsum), "cumprod": (F.cumprod, np.cumprod), "sort": (lambda x, axis: F.sort(x, axis=axis)[0], np.sort),
    "places": (lambda x, axis: F.sort(x, axis=axis)[1], np.argsort), "argsort": (lambda x, axis: F.argsort(x, axis=axis), np.argsort),
    "flip": (F.flip, np.flip),
}  # fmt: skip
SHAPES = [((), a) for a in (0, -1, None, ())] + [
    ((2, 3), ()), ((1,), 0), ((1, 1), None), ((2, 1), 1), ((0,), 0), ((0,), ()), ((0,), None), ((3, 0), 1), ((3, 0), 0), ((0, 3), -1),
    ((2, 0, 3), (0, 1)),
]  # fmt: skip


def agrees(f, want, shape):
    """f of a tensor of a shape, eagerly and traced, and its gradient."""
    meaning = want
    want = lambda x: np.asarray(meaning(x)) if x.shape else np.reshape(meaning(x[None]), ())
    x = np.random.default_rng(len(shape)).uniform(0.5, 2, shape)
    t = Tensor(x)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        expected = want(x)
    got = f(t)
    assert got.shape == expected.shape
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-12, atol=1e-14)
    assert bits(trace(f)(t)) == bits(got)
    if not got.dtype.is_float:
        return
    seed = np.random.default_rng(7).uniform(0.5, 2, expected.shape)
    pulled = lambda x, g: vjp(f, x)[1](g)[0]
    g = pulled(t, Tensor(seed))
    assert g.shape == x.shape and bits(trace(pulled)(t, Tensor(seed))) == bits(g)
    if not np.isfinite(g.numpy()).all():
        return  # the root of a variance of zero
    for i in np.ndindex(*shape):
        d = np.zeros(shape)
        d[i] = 1e-5
        v = [float((np.asarray(want(x + k * d)) * seed).sum()) for k in (1, -1, 2, -2)]
        np.testing.assert_allclose(g.numpy()[i], (8 * (v[0] - v[1]) - (v[2] - v[3])) / 12e-5, rtol=1e-7, atol=1e-7)


@but(every=8)
@pytest.mark.parametrize("name", [*KEEP, *SAME])
def test_axes_with_few_elements(name):
    for shape, axis in SHAPES:
        reduced = range(len(shape)) if axis is None else [axis] if isinstance(axis, int) else axis
        none = any(shape[a] == 0 for a in reduced if shape)
        if name in SAME:
            agrees(lambda x, a=axis: SAME[name][0](x, axis=a), lambda x, a=axis: SAME[name][1](x, a), shape)
            continue
        f, want = KEEP[name]
        for keep in (False, True):
            expected = lambda x, a=axis, k=keep, want=want: want(x, axis=a, keepdims=k)
            if none and name in ("max", "min"):
                for run in (f, trace(f)):
                    with pytest.raises(ShapeError, match=f"the {name} of no elements is not defined"):
                        run(Tensor(np.zeros(shape)), axis=axis, keepdims=keep)
            else:
                agrees(lambda x, a=axis, k=keep, f=f: f(x, axis=a, keepdims=k), expected, shape)


def test_several_reductions_over_nothing_become_one_kernel():
    f = lambda p, q: (F.any(p > 3.0), F.any(q > 3.0), F.sum(p), F.max(q, axis=0, keepdims=True))
    run = trace(f)
    for p, q in ((1.0, 2.0), (1.0, 4.0), (5.0, 2.0), (5.0, 6.0)):
        assert [y.item() for y in run(Tensor(p), Tensor(q))] == [p > 3, q > 3, p, q]


@pytest.mark.parametrize("name", ARG)
def test_positions(name):
    f, want = ARG[name]
    for shape, axis in [((), 0), ((), -1), ((), None), ((1,), 0), ((0, 3), 1), ((2, 1), None)]:
        agrees(lambda x, a=axis: f(x, a), lambda x, a=axis: want(x, a), shape)
    for run in (f, trace(f)):
        with pytest.raises(ShapeError, match="no elements"):
            run(Tensor(np.zeros((3, 0))), 1)
        with pytest.raises(AxisError, match="needs an axis, or None"):
            run(Tensor(np.zeros((3, 2))), ())


@pytest.mark.parametrize("name", LINES)
def test_lines(name):
    f, want = LINES[name]
    for shape, axis in [((), 0), ((), -1), ((1,), 0), ((0,), 0), ((3, 0), 1), ((3, 0), 0), ((1, 2), 0)]:
        agrees(lambda x, a=axis: f(x, axis=a), lambda x, a=axis: want(x, axis=a), shape)


@pytest.mark.parametrize("exclusive", [False, True])
def test_more_of_lines_of_one_element(exclusive):
    agrees(lambda x: F.cumsum(x, 0, exclusive=exclusive), lambda x: x * (not exclusive), ())
    agrees(lambda x: F.cumprod(x, -1, exclusive=exclusive, reverse=True), lambda x: np.ones_like(x) if exclusive else x, ())
    agrees(lambda x: F.topk(x, 1, descending=exclusive)[0], lambda x: x, ())
    agrees(lambda x: F.topk(x, 1, kth_only=True)[0], lambda x: x, ())
    for k in (0, 2):
        with pytest.raises(ShapeError, match=f"extent 1 has no {k} elements"):
            F.topk(Tensor(1.0), k)


@pytest.mark.parametrize("axis", [{}, {0: 1}, {0}, "0", 1.0, True, 2, -3, (0, 0), (0, -2), [1.5], [None], object()])
def test_what_is_no_axis(axis):
    x = Tensor(np.ones((2, 3)))
    for f in (*(f for f, _ in KEEP.values()), *(f for f, _ in SAME.values()), F.argmax, F.cumsum, F.sort, F.flip):
        for run in (f, trace(f)):
            with pytest.raises((AxisError, TypeError)):
                run(x, axis=axis)
    for axis in (1, -2, (0, -1)):
        with pytest.raises(AxisError):
            F.sum(Tensor(1.0), axis=axis)
