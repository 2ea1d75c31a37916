"""Bad arguments give an error of Tengen's that names the call, says what to do, and tells the user's line; the process goes on."""

from __future__ import annotations

import linecache
import re

import numpy as np
import pytest

import tengen.functional as F
import tengen.module as M
from tengen import Tensor, trace
from tengen.base.errors import ArgumentError, AxisError, DTypeError, IndexOutOfRange, ShapeError, TengenError, TraceError
from tengen.ops.define import REGISTRY

X = Tensor(np.ones((2, 3), np.float32))
Y = Tensor(np.ones((4, 5), np.float32))
IMAGE = Tensor(np.ones((1, 3, 8, 8), np.float32))
FILTER = Tensor(np.ones((4, 2, 3, 3), np.float32))
BIAS = Tensor(np.ones(4, np.float32))
I = Tensor(np.array([0, 1], np.int32))
B = Tensor(np.array([True, False]))
op = lambda name, *a, **k: REGISTRY[name].call(*a, **k)

# (call, error, what the message says)
CALLS = [
    (lambda: X + Y, ShapeError, r"add\(f32\[2,3\], f32\[4,5\]\).*extents must be equal"),
    (lambda: F.matmul(X, X), ShapeError, r"matmul\(f32\[2,3\], f32\[2,3\].*inner extents 3 and 2"),
    (lambda: F.linear(X, Y), ShapeError, r"linear\(f32\[2,3\], f32\[4,5\]"),
    (lambda: F.linear(X, Tensor(np.ones((4, 3), np.float32)), Tensor([1.0, 2.0])), ShapeError, r"linear\(.*add\(f32\[2,4\], f32\[2\]\)"),
    (lambda: op("conv", IMAGE, FILTER, 1, 0, 1, 1), ShapeError, r"conv\(f32\[1,3,8,8\]"),
    (lambda: F.conv2d(IMAGE, FILTER, BIAS), ShapeError, r"conv_bias\(f32\[1,3,8,8\].*3 channels, the filter takes 2"),
    (lambda: F.conv2d(IMAGE, FILTER[:, :, None], BIAS, groups=4), ShapeError, r"conv_bias\(.*3 channels, the filter takes"),
    (lambda: F.conv2d(IMAGE[:, :2, :2], FILTER, BIAS), ShapeError, r"conv_bias\(.*does not fit an image of extent 2"),
    (lambda: F.conv2d(IMAGE[:, :2], FILTER, padding="same"), ArgumentError, r"padding must be an int >= 0 or a sequence of them, got 'same'"),
    (lambda: F.conv_transpose2d(IMAGE[0], FILTER), ShapeError, r"conv_transpose2d takes an image of 4 axes"),
    (lambda: F.conv_transpose2d(IMAGE, FILTER, conv_mode="convolution"), ShapeError, r"flip the filter"),
    (lambda: F.adaptive_avg_pool2d(IMAGE, 0), ShapeError, r"\(1, 3, 8, 8\) to 0: a positive int"),
    (lambda: F.adaptive_max_pool2d(IMAGE, (1, 2, 3)), ShapeError, r"to \(1, 2, 3\): .* one for each axis"),
    (lambda: F.batch_norm(IMAGE, BIAS, BIAS), ShapeError, r"a mean of shape \(4,\) for the 3 channels of \(1, 3, 8, 8\)"),
    (lambda: F.batch_norm(B, training=True), ShapeError, r"at least 2 axes"),
    (lambda: F.instance_norm(Tensor(1.0)), ShapeError, r"group_norm\(f32\[\]"),
    (lambda: F.pixel_shuffle(IMAGE, 2), ShapeError, r"\(1, 3, 8, 8\) by 2"),
    (lambda: F.unfold(X, 2), ShapeError, r"images \(N, C, H, W\), got shape \(2, 3\)"),
    (lambda: F.loss.cross_entropy(X, Tensor([0, 1, 2])), ShapeError, r"labels of shape \(3,\) do not fit scores f32\[2,3\]"),
    (lambda: op("max_pool", IMAGE, 9, 1, 0), ShapeError, r"max_pool\(f32\[1,3,8,8\]"),
    (lambda: op("max_pool", IMAGE, 2, 0, 0), ShapeError, r"max_pool\(f32\[1,3,8,8\].*positive"),
    (lambda: op("max_pool", X, 2, 2, 0), ShapeError, r"max_pool\(f32\[2,3\].*3 axes"),
    (lambda: F.sum(X, axis=2), AxisError, r"sum\(f32\[2,3\], axis=2.*2 axes"),
    (lambda: F.max(X, axis=-3), AxisError, r"max\(f32\[2,3\], axis=-3"),
    (lambda: F.softmax(X, 5), AxisError, r"softmax\(f32\[2,3\], axis=5"),
    (lambda: F.argmax(X, 4), AxisError, r"argmax\(f32\[2,3\], axis=4"),
    (lambda: F.reshape(X, (4, 5)), ShapeError, r"reshape\(f32\[2,3\], shape=\(4, 5\)\).*6 elements"),
    (lambda: F.broadcast_to(X, (2, 4)), ShapeError, r"broadcast_to\(f32\[2,3\]"),
    (lambda: op("permute", X, (0, 0)), TengenError, r"permute\(f32\[2,3\]"),
    (lambda: F.concat([X, Y], 0), ShapeError, r"concat\(f32\[2,3\], f32\[4,5\]"),
    (lambda: B - B, DTypeError, r"sub\(b1\[2\], b1\[2\]\).*astype"),
    (lambda: F.relu(None), ArgumentError, r"relu\(none\).*needs a tensor for x"),
    (lambda: F.relu("text"), DTypeError, r"relu\(str\).*pass a Tensor"),
    (lambda: F.layer_norm(X, (4,), False), TengenError, r"4"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(CALLS)))
def test_messages(number):
    call, error, says = CALLS[number]
    with pytest.raises(error, match=says) as e:
        call()
    where = re.search(r"\[at (.*):(\d+)\]$", str(e.value))
    if where:  # raised by an op; a wrapper's own checks show the line in the traceback alone
        assert where[1] == __file__ and "lambda" in linecache.getline(__file__, int(where[2]))
        assert str(e.value).count("[at ") == 1
    else:
        assert "layer_norm" in str(e.value) or number == len(CALLS) - 1
    assert (X + 1).tolist() == [[2.0] * 3] * 2


def test_values_out_of_range():
    pred = Tensor(np.zeros((2, 3), np.float32))
    for bad in ([0, 3], [-1, 0]):
        with pytest.raises(IndexOutOfRange, match="label|class|index"):
            F.cross_entropy(pred, Tensor(np.array(bad, np.int32)))
    assert np.isfinite(F.cross_entropy(pred, Tensor(np.array([0, 2], np.int32))).item())


def test_arrays_of_another_library():
    """An error says whose they are: they may be called Tensor too."""
    there = type("Tensor", (), {"__module__": "another.library", "__dlpack__": None, "__dlpack_device__": None})()
    for call in (lambda: X + there, lambda: there * X, lambda: X**there, lambda: F.relu(there), lambda: F.add(X, there)):
        with pytest.raises(DTypeError, match=r"a another\.Tensor is not a tensor of Tengen's; help: tengen\.from_dlpack\(x\)"):
            call()


def test_in_a_module():
    net = M.Sequential(M.Linear(5, 7), M.ReLU(), M.Linear(8, 3))
    with pytest.raises(ShapeError, match=r"f32\[2,7\], f32\[3,8\].*test_bad_input.py:\d+"):
        net(Tensor(np.ones((2, 5), np.float32)))


def test_inside_a_trace():
    @trace
    def f(x):
        return F.matmul(x, x)

    with pytest.raises(ShapeError, match=rf"matmul\(f32\[2,3\].*test_bad_input.py:{f.function.__code__.co_firstlineno + 2}"):
        f(X)
    for bad in (lambda x: x.numpy(), lambda x: float(F.sum(x)), lambda x: x if F.sum(x) > 0 else -x):
        with pytest.raises(TraceError, match="inside a trace"):
            trace(bad, symbolic=True)(X)
    assert (X + 1).tolist() == [[2.0] * 3] * 2  # the trace that failed is over


ABSURD = [
    lambda: F.zeros((1 << 40,)),
    lambda: F.zeros((1 << 62,)),
    lambda: F.zeros((1 << 40, 1 << 40)),
    lambda: F.exp(F.broadcast_to(X[0, 0] if hasattr(Tensor, "__getitem__") else F.sum(X), (1 << 41,))),
    lambda: F.exp(F.broadcast_to(F.sum(X), (1 << 41, 1 << 41))),
    lambda: F.softmax(F.broadcast_to(F.sum(X), (1 << 31, 1 << 31)), 1),
    lambda: F.matmul(F.broadcast_to(F.sum(X), (1 << 31, 1)), F.broadcast_to(F.sum(X), (1, 1 << 31))),
    lambda: trace(lambda x: F.exp(F.broadcast_to(F.sum(x), (1 << 31, 1 << 31))))(X),
    lambda: Tensor(1.0).astype("float64") + F.broadcast_to(F.sum(X), (1 << 45,)),
]


@pytest.mark.parametrize("number", range(len(ABSURD)))
def test_no_memory(number):
    with pytest.raises(MemoryError, match="bytes"):
        ABSURD[number]()
    assert F.softmax(X + 1, 1).shape == (2, 3)


def test_an_error_costs_the_fast_road_nothing():
    """The same call right, wrong, and right again."""
    for _ in range(3):
        assert (X + X).shape == (2, 3)
        with pytest.raises(ShapeError):
            X + Y
