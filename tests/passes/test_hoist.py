"""Launches that depend on constants alone run once: packed weights are no part of a program for constant weights."""

import numpy as np
import pytest

import tengen.functional as F
from tengen import Tensor, trace
from tengen.base.dtype import int8, int32, uint8
from tengen.codegen.targets import Target
from tengen.kernels.lowering import Array, Lowering
from tengen.kernels.pointwise import pointwise
from tengen.kernels.source import Elementwise, Leaf
from tengen.kernels.steps import Launch
from tengen.ops.conv_strategies import RESULTS, Convolution
from tengen.ops.conv_strategies import lower as convolve
from tengen.passes.hoist import hoist
from tengen.passes.lower import lower
from tengen.passes.pipeline import optimize


def normal(*shape):
    return Tensor(np.random.default_rng(len(shape)).normal(size=shape).astype("float32"))


def run_of(f):
    return next(iter(f._recordings.values()))[0].run


@pytest.mark.parametrize("rows", [3, 200])
def test_packed_weights_are_prepared(rows):
    w, b, x = normal(300, 40), normal(300), normal(rows, 40)
    f = lambda x: F.relu(F.nn.linear(x, w, b))
    once, always = trace(f, capture_as_const=True), trace(f)
    assert once(x).numpy().tobytes() == always(x).numpy().tobytes() == f(x).numpy().tobytes()
    program = run_of(once).program
    if program.setup is not None:
        assert rows == 3 or program.kernels + program.setup.kernels == run_of(always).program.kernels  # few turn them by themselves
        assert ("const", "captured.0") not in program.constants  # the weight itself is not read any more
    assert rows == 3 or program.setup is not None


def test_a_filter_is_prepared():
    w, x = normal(32, 16, 3, 3), normal(2, 16, 20, 20)
    f = lambda x: F.nn.conv2d(x, w, padding=1)
    once = trace(f, capture_as_const=True)
    assert once(x).numpy().tobytes() == f(x).numpy().tobytes()
    assert run_of(once).program.setup is not None


def test_what_moves():
    lo = Lowering(Target.host())
    array = lambda id, n: type(lo.temp(normal(1).dtype, (n,)))(id, normal(1).dtype, (n,), (1,))
    k, x, y = array("k", 8), array("x", 8), array("y", 8)
    made, grown, both = lo.temp(k.dtype, (8,)), lo.temp(k.dtype, (100,)), lo.temp(k.dtype, (8,))
    one = lambda a, out: pointwise(lo, [Elementwise(lambda v: v + 1.0, [Leaf(a)], out.shape, k.dtype)], [out], "one")
    one(k, made)  # known
    one(made, both)  # known, but written again below
    one(x, both)
    one(made, y)
    lo.steps.append(Launch(lo.launches[0].kernel, (k.id, grown.id)))  # too large for what it is made of
    setup, prepared = hoist(lo, {"k": 32})
    assert prepared == [made.id] and len(setup.launches) == 1 and len(lo.launches) == 4
    assert setup.launches[0].writes == {made.id} and not setup.temps


def test_the_same_operand_is_packed_once():
    w, xs = normal(64, 48), [normal(40 + i, 48) for i in range(3)]
    f = lambda *xs: [F.nn.linear(x, w) for x in xs]
    program = trace(f)
    for a, b in zip(program(*xs), f(*xs)):
        assert a.numpy().tobytes() == b.numpy().tobytes()
    lo, _ = lower(optimize(program.graph), Target.host())
    names = [launch.kernel.name for launch in lo.launches]
    assert sum("pack" in name for name in names) <= 1


def test_an_operand_that_was_written_is_packed_again():
    w, x = normal(48, 48), normal(200, 48)

    def f(x):
        y = F.matmul(x, w)
        w._reset(w * 0.5 + 1.0)
        z = F.matmul(x, w)
        w._reset(w * 2.0)
        return y, z, F.matmul(x, w)

    before = w.numpy().copy()
    want = [t.numpy() for t in f(x)]
    w._reset(before)
    for a, b in zip(trace(f)(x), want):
        assert a.numpy().tobytes() == b.tobytes()


def test_filters_of_integers_are_prepared():
    """A filter of 8 bits in Winograd's tiles of 4 x 4 takes 8.2 times its bytes; transforming it in every run took a twentieth of ResNet-18."""
    lo, w = Lowering(Target.named("x86-64-v3")), ("const", "w")
    last = lambda c, h: ((1, c, h, h), (c * h * h, 1, c * h, c))
    image, out = Array("x", uint8, *last(64, 32)), Array("y", int32, *last(64, 32))
    filters = Array(w, int8, (64, 64, 3, 3), (576, 9, 3, 1))
    convolve(RESULTS, Convolution(lo, image, filters, out, (1, 1), (1, 1), (1, 1), 1, "direct", "int32"))
    setup, _ = hoist(lo, {w: 64 * 64 * 9})
    names = lambda some: [launch.kernel.name for launch in some.launches]
    assert "conv_filter" in names(setup) and "conv_filter" not in names(lo)
