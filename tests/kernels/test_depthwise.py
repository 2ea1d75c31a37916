"""Depthwise convolutions: the bits of the general contraction, for every phase of a stride, at every border."""

import re

import numpy as np
import pytest
from exhaustive import but
from recorded import graph_of

import tengen.functional as F
from tengen import Tensor, set_threads, trace
from tengen.base.dtype import float32
from tengen.codegen.targets import Target
from tengen.compiler.driver import compile_graph
from tengen.kernels.convolution import depthwise
from tengen.kernels.lowering import Array, Lowering
from tengen.loops.text import print_kernel
from tengen.ops.define import REGISTRY
from tengen.runtime.compile import assembly

CASES = [  # image, kernel, stride, padding, dilation
    ((2, 16, 9, 11), (3, 3), 1, 1, 1),
    ((1, 5, 8, 7), (3, 3), 2, 1, 1),
    ((2, 17, 12, 40), (3, 3), (2, 1), (0, 1), 1),
    ((1, 33, 15, 15), (5, 5), 2, 2, 1),
    ((1, 20, 14, 21), (7, 7), 1, 3, 1),
    ((2, 16, 17, 9), (3, 3), 1, 2, 2),
    ((1, 16, 10, 10), (1, 3), 3, (0, 2), (1, 2)),
    ((1, 3, 1, 1), (3, 3), 1, 1, 1),
    ((1, 695, 6, 19), (3, 3), 2, 1, 1),  # several pieces of channels
    ((1, 16, 2, 3), (5, 5), 1, 4, 1),
    ((0, 16, 5, 5), (3, 3), 1, 1, 1),
    ((1, 16, 0, 4), (3, 3), 1, 2, 1),
]


def pair(v):
    return (v, v) if isinstance(v, int) else v


def results(case, traced):
    shape, kernel, stride, padding, dilation = case
    rng = np.random.default_rng(0)
    c = shape[1]
    x, w = (Tensor(rng.normal(size=s).astype("float32")) for s in (shape, (c, 1, 1, *kernel)))
    a = {"stride": pair(stride), "padding": pair(padding), "dilation": pair(dilation), "groups": c}
    run = trace if traced else (lambda f: f)
    y = run(lambda x, w: F.conv2d(x, w, **a))(x, w)
    g = Tensor(rng.normal(size=y.shape).astype("float32"))
    back = run(lambda g, w, x: REGISTRY["conv_transposed"](g, w, x, **a))(g, w, x)
    weights = run(lambda x, g, w: REGISTRY["conv_weight_grad"](x, g, w, **a))(x, g, w)
    return [t.numpy() for t in (y, back, weights)]


@but(every=3)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_bits_of_a_contraction(case, monkeypatch):
    mine = results(case, True)
    assert [a.tobytes() for a in results(case, False)] == [a.tobytes() for a in mine]
    set_threads(1)
    assert [a.tobytes() for a in results(case, True)] == [a.tobytes() for a in mine]
    set_threads(2)
    monkeypatch.setattr(depthwise, "fits", lambda w, groups: False)
    for a, b in zip(results(case, True), mine):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("traced", [False, True])
def test_padding_is_multiplied(traced):
    """Zeros beyond the border times an infinite weight are NaN, as every padding is; the inside is not touched."""
    x, w = np.ones((1, 17, 7, 12), "float32"), np.ones((17, 1, 1, 3, 3), "float32")
    w[:, 0, 0, 0, 0] = np.inf
    f = lambda x, w: F.conv2d(x, w, padding=1, groups=17)
    y = (trace(f) if traced else f)(Tensor(x), Tensor(w)).numpy()
    assert np.isnan(y[:, :, 0]).all() and np.isnan(y[:, :, :, 0]).all() and (y[:, :, 1:, 1:] == np.inf).all()


def test_one_image_is_part_of_a_batch():
    x, w = (Tensor(np.random.default_rng(0).normal(size=s).astype("float32")) for s in ((5, 24, 13, 13), (24, 1, 1, 3, 3)))
    f = lambda x: F.relu(F.conv2d(x, w, padding=1, groups=24) + 1.0)
    whole = f(x).numpy()
    for i in range(5):
        assert trace(f)(x[i : i + 1]).numpy().tobytes() == whole[i : i + 1].tobytes()


def test_both_shapes_of_a_filter():
    x, w = (Tensor(np.random.default_rng(0).normal(size=s).astype("float32")) for s in ((2, 48, 9, 9), (48, 1, 3, 3)))
    f = lambda w: F.conv2d(x, w, padding=1, groups=48)
    assert f(w).numpy().tobytes() == f(w.reshape(48, 1, 1, 3, 3)).numpy().tobytes() == trace(f)(w).numpy().tobytes()


def test_what_fits():
    from tengen.base.dtype import float32
    from tengen.kernels.lowering import Array

    array = lambda *shape: Array("w", float32, shape, (1,) * len(shape))
    assert depthwise.fits(array(8, 1, 1, 3, 3), 8) and depthwise.fits(array(8, 1, 3, 3), 8)
    assert not depthwise.fits(array(8, 2, 1, 3, 3), 8) and not depthwise.fits(array(16, 1, 3, 3), 8)
    assert not depthwise.fits(array(8, 1, 1, 9, 9), 8) and not depthwise.fits(array(1, 1, 3, 3), 1)


def test_a_tile_stays_in_sixteen_registers():
    """A convolution of 5x5 for AVX2: of its multiplications few have an operand that was put aside on the stack."""
    target = Target.named("x86-64-v3")
    graph = graph_of(
        lambda x, w: F.conv2d(x, w, padding=2, groups=96), Tensor(np.zeros((1, 96, 56, 56), "f4")), Tensor(np.zeros((96, 1, 1, 5, 5), "f4"))
    )
    program, _ = compile_graph(graph, None, [], "depthwise", target=target)
    text = assembly(program.text, target).split("\ndepthwise:")[1].split(".Lfunc_end")[0]
    aside = re.findall(r"vmov\w+\s+(?:%ymm\d+, -?\d*\(%rsp\)|-?\d*\(%rsp\), %ymm\d+)", text)
    assert len(aside) <= 0.1 * len(re.findall(r"vfmadd", text))  # 22 of 988; 313 of 974 where all weights of a row are loaded at once


@pytest.mark.parametrize("images, stride, prefetches", [(1, 1, True), (1, 2, False), (3, 2, True)])
def test_strides_do_not_prefetch_an_image_that_is_near(images, stride, prefetches):
    """An image of 112 x 112 x 64 takes 3.2 MB; three of them lie in memory."""
    lo = Lowering(Target.named("x86-64-v3"))
    src = Array("x", float32, (images, 64, 112, 112), (112 * 112 * 64, 1, 112 * 64, 64))
    high = 112 // stride
    out = Array("y", float32, (images, 64, high, high), (high * high * 64, 1, high * 64, 64))
    phases = depthwise.convolution((3, 3), (1, 1), (1, 1), (high, high))
    depthwise.stencil(lo, src, Array("w", float32, (9, 64), (64, 1)), out, phases, (stride, stride), (1, 1))
    assert ("prefetch" in print_kernel(lo.launches[-1].kernel)) == prefetches
