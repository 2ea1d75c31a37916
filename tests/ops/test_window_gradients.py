"""Gradients, and gradients of gradients, of convolutions and pooling against finite differences of their references: strides,
paddings, dilations, output paddings and groups by chance, in one, two and three dimensions."""

import numpy as np
import pytest
from checking import bits, check_gradient_against_finite_differences, check_gradient_of_gradient
from exhaustive import but

import tengen.functional as F
from tengen import Tensor, trace
from tengen.autodiff import vjp
from tengen.base.errors import ShapeError
from tengen.ops.define import REGISTRY, Case


def settings(r, n):
    """(stride, padding, dilation, filter) for n axes of space."""
    some = lambda low, high: tuple(int(v) for v in r.integers(low, high, n))
    return some(1, 4), some(0, 3), some(1, 4), some(1, 4)


def shapes(r, n):
    """(groups, channels of a group, outputs of a group), depthwise ones among them."""
    groups = int(r.integers(1, 4))
    return (groups, 1, 1) if r.random() < 0.3 else (groups, int(r.integers(1, 4)), int(r.integers(1, 4)))


def convolution(seed):
    r = np.random.default_rng(seed)
    n = 1 + seed % 3
    stride, padding, dilation, k = settings(r, n)
    groups, c, o = shapes(r, n)
    least = [max(1, d * (f - 1) + 1 - 2 * p) for d, f, p in zip(dilation, k, padding)]
    space = [int(s + r.integers(0, 4)) for s in least]
    attrs = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    filters = (groups * o, c, *k) if seed % 2 else (groups, o, c, *k)
    return Case(lambda r: (r.uniform(-1, 1, (2, groups * c, *space)), r.uniform(-1, 1, filters)), attrs)


def transposed(seed):
    r = np.random.default_rng(seed)
    n = 1 + seed % 3
    stride, padding, dilation, k = settings(r, n)
    groups, c, o = shapes(r, n)
    more = tuple(int(r.integers(0, max(s, d))) for s, d in zip(stride, dilation))
    if seed % 2:  # as many as there may be, which is more than the stride where the dilation is larger
        more = tuple(max(s, d) - 1 for s, d in zip(stride, dilation))
    space = []
    for s, p, d, f, m in zip(stride, padding, dilation, k, more):
        pixels = int(r.integers(1, 4))
        while (pixels - 1) * s - 2 * p + d * (f - 1) + 1 + m < 1:
            pixels += 1
        space.append(pixels)
    attrs = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups, "output_padding": more}
    filters = (groups * o, c, *k) if seed % 4 < 2 else (groups, o, c, *k)
    return Case(lambda r: (r.uniform(-1, 1, (2, groups * o, *space)), r.uniform(-1, 1, filters), None), attrs)


def pooling(seed, mode=None):
    r = np.random.default_rng(seed)
    n = 1 + seed % 3
    k = tuple(int(v) for v in r.integers(1, 4, n))
    padding = tuple(int(r.integers(0, f // 2 + 1)) for f in k)
    space = [int(max(f - 2 * p, 1) + r.integers(0, 5)) for f, p in zip(k, padding)]
    attrs = {"kernel_size": k, "stride": tuple(int(v) for v in r.integers(1, 4, n)), "padding": padding} | ({"mode": mode} if mode else {})
    size = int(np.prod(space)) * 4  # values that are well apart
    return Case(lambda r: (r.permutation(np.arange(size) * 0.125 - 3).reshape(2, 2, *space),), attrs)


CASES = {
    **{f"conv {s}": ("conv", convolution(s)) for s in range(21)},
    **{f"conv_transposed {s}": ("conv_transposed", transposed(s)) for s in range(36)},
    **{f"max_pool {s}": ("max_pool", pooling(s)) for s in range(12)},
    **{f"avg_pool {s}": ("avg_pool", pooling(s, ("average", "average_count_exclude_padding")[s // 3 % 2])) for s in range(12)},
}


@but(every=4)
@pytest.mark.parametrize("name", CASES)
def test_gradients(name):
    op, case = CASES[name]
    check_gradient_against_finite_differences(REGISTRY[op], case)


@but(every=4)
@pytest.mark.parametrize("name", [n for n in CASES if int(n.split()[1]) % 3 == 1])
def test_gradients_of_gradients(name):
    op, case = CASES[name]
    check_gradient_of_gradient(REGISTRY[op], case)


@pytest.mark.parametrize("stride, dilation, more", [(1, 3, 2), (2, 5, 4), (3, 1, 2), ((1, 2), (3, 1), (2, 1))])
def test_output_padding(stride, dilation, more):
    r = np.random.default_rng(0)
    x, w = Tensor(r.uniform(-1, 1, (2, 3, 4, 3))), Tensor(r.uniform(-1, 1, (3, 2, 3, 2)))
    f = lambda x, w: F.conv_transpose2d(x, w, stride=stride, padding=1, output_padding=more, dilation=dilation)
    y = f(x, w)
    seed = Tensor(r.uniform(-1, 1, y.shape))
    pulled = lambda x, w, g: vjp(f, x, w)[1](g)
    gx, gw = pulled(x, w, seed)
    for i, g in enumerate((gx, gw)):  # it is linear in both
        d = Tensor(r.uniform(-1, 1, g.shape))
        np.testing.assert_allclose((f(*((d, w), (x, d))[i]) * seed).sum().item(), (g * d).sum().item(), rtol=1e-10)
    assert [bits(t) for t in trace(pulled)(x, w, seed)] == [bits(gx), bits(gw)]


@pytest.mark.parametrize("stride, dilation, more", [(1, 1, 1), (2, 1, 2), (1, 3, 3), (2, 2, -1), ((3, 1), 1, (2, 1)), (2, 1, (0, 2))])
def test_output_padding_that_no_convolution_leaves_over(stride, dilation, more):
    x, w = Tensor(np.ones((1, 1, 4, 4))), Tensor(np.ones((1, 1, 3, 3)))
    f = lambda x: F.conv_transpose2d(x, w, stride=stride, output_padding=more, dilation=dilation)
    for run in (f, trace(f)):
        what = "output_padding(=.* must be at least 0, and less than the stride .* or the dilation| must be an int >= 0)"
        with pytest.raises(ShapeError, match=what):
            run(x)
    with pytest.raises(ShapeError, match="output_padding="):
        F.conv_transpose3d(Tensor(np.ones((1, 1, 4, 4, 4))), Tensor(np.ones((1, 1, 3, 3, 3))), output_padding=1)


@pytest.mark.parametrize("f", [F.adaptive_avg_pool2d, F.adaptive_max_pool2d])
def test_adaptive_pooling(f):
    a = np.random.default_rng(1).permutation(np.arange(2 * 3 * 5 * 7) * 0.125).reshape(2, 3, 5, 7)
    for out in (1, (None, 3)):
        y, pull = vjp(lambda x, o=out: f(x, o), Tensor(a))
        seed = np.random.default_rng(2).uniform(0.5, 1, y.shape)
        g = pull(Tensor(seed))[0].numpy()
        d = np.random.default_rng(3).uniform(-0.01, 0.01, a.shape)
        value = lambda k, o=out, s=seed, d=d: float((f(Tensor(a + k * d), o).numpy() * s).sum())
        np.testing.assert_allclose((g * d).sum(), (value(1) - value(-1)) / 2, rtol=1e-9, atol=1e-9)
