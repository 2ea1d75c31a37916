"""Convolutions of few channels and gradients of their filters: the bits of the general contraction, which the same in two groups
runs."""

import numpy as np
import pytest
from exhaustive import but
from launching import array_of, compile_and_run, run

import tengen.functional as F
from tengen import Tensor, set_threads, trace
from tengen.base.dtype import float32
from tengen.base.errors import VerifyError
from tengen.codegen.targets import Target
from tengen.kernels.convolution import few_channels, few_channels_transposed
from tengen.kernels.lowering import Lowering
from tengen.loops.builder import Builder
from tengen.ops.conv import conv, conv_transposed, conv_weight_grad
from tengen.passes.lower import lower
from tengen.passes.pipeline import optimize

CASES = [  # image, outputs, kernel, stride, padding, dilation
    ((2, 3, 29, 37), 32, (3, 3), 2, 1, 1),
    ((1, 3, 23, 31), 64, (7, 7), 2, 3, 1),
    ((2, 1, 12, 17), 6, (5, 5), 1, 2, 1),
    ((1, 6, 9, 10), 16, (5, 5), 1, 0, 1),
    ((1, 3, 5, 700), 20, (3, 5), (1, 3), (2, 0), (2, 1)),  # several strips to a row
    ((3, 2, 7, 3), 50, (2, 3), (3, 1), (4, 9), 1),  # windows of nothing but padding
    ((1, 16, 6, 6), 33, (4, 4), 1, 1, 1),
    ((1, 3, 1, 2), 1, (3, 3), 1, 1, 1),
    ((0, 3, 5, 5), 4, (3, 3), 1, 1, 1),
]
DTYPES = ["float32", "float64", "float16", "int32"]


def operands(shape, outputs, kernel, dtype="float32"):
    r = np.random.default_rng(0)
    some = lambda *s: (r.normal(size=s) * (8 if dtype == "int32" else 1)).astype(dtype)
    return some(*shape), some(outputs, shape[1], *kernel)


def in_groups(x, w, **a):
    """By the general contraction."""
    twice = lambda v, axis: Tensor(np.concatenate([v, v], axis))
    return conv(twice(x, 1), twice(w, 0), groups=2, algorithm="direct", **a).numpy()[:, : len(w)]


@but(every=3)
@pytest.mark.parametrize("shape, outputs, kernel, stride, padding, dilation", CASES)
def test_the_bits_of_a_contraction(shape, outputs, kernel, stride, padding, dilation):
    x, w = operands(shape, outputs, kernel)
    a = {"stride": stride, "padding": padding, "dilation": dilation}
    want = in_groups(x, w, **a)
    f = lambda x, w: conv(x, w, **a, algorithm="direct")
    for image in (Tensor(x), Tensor(np.ascontiguousarray(x.transpose(0, 2, 3, 1))).transpose(0, 3, 1, 2)):  # both layouts
        for way in (f, trace(f)):  # extents known or not
            np.testing.assert_array_equal(way(image, Tensor(w)).numpy(), want)
    set_threads(1)
    np.testing.assert_array_equal(f(Tensor(x), Tensor(w)).numpy(), want)
    set_threads(2)
    for i in range(shape[0]):
        np.testing.assert_array_equal(f(Tensor(x[i : i + 1]), Tensor(w)).numpy(), want[i : i + 1])


def launched(op, ins, out, attrs, way, target):
    """The bytes of `out` after the launches of an op on arrays as they lie, and the names of their scratch memory."""
    out = out.copy(order="K")
    arrays = [array_of(x, f"a{i}") for i, x in enumerate((*ins, out))]
    lo = Lowering(Target.named(target) if isinstance(target, str) else target)
    op.lower_to(lo, [a for a, _ in arrays[:-1]], [arrays[-1][0]], attrs)
    way(lo, {a.id: flat for a, flat in arrays})
    return arrays[-1][1].tobytes(), {b.name for launch in lo.launches for b in launch.kernel.scratch}


def both_ways(op, ins, out, attrs, number):
    """The same in machine code of this machine, and by the interpreter: from kernels for vectors of 64 bytes or of 16, by turns."""
    found = launched(op, ins, out, attrs, compile_and_run, Target.host())
    return [found, launched(op, ins, out, attrs, run, ("x86-64-v4", "aarch64")[number % 2])]


def last(x):
    """The same numbers, channels-last in memory."""
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)


def settings(stride, padding, dilation):
    both = lambda v: v if isinstance(v, tuple) else (v, v)
    return {"stride": both(stride), "padding": both(padding), "dilation": both(dilation), "groups": 1}


WEIGHTS = [
    ((2, 3, 13, 37), 32, (3, 3), 2, 1, 1),
    ((1, 3, 11, 15), 40, (7, 7), 2, 3, 1),
    ((2, 1, 12, 17), 6, (5, 5), 1, 2, 1),
    ((3, 2, 7, 3), 50, (2, 3), (3, 1), (4, 9), 1),  # windows of nothing but padding
    ((1, 16, 6, 6), 33, (4, 4), 1, 1, 1),
    ((3, 1, 14, 13), 9, (3, 3), 1, 1, 1),  # chunks of rows of two images
    ((5, 3, 4, 5), 40, (2, 2), (2, 1), 1, 1),
    ((1, 3, 9, 40), 17, (3, 3), 1, 1, (2, 3)),
]


@but(every=3)
@pytest.mark.parametrize(
    "case, dtype", [*((c, "float32") for c in WEIGHTS), *((WEIGHTS[5], d) for d in ("float64", "float16", "int32"))]
)
def test_the_bits_of_the_gradient_of_weights(case, dtype, monkeypatch):
    shape, outputs, kernel, stride, padding, dilation = case
    x, w = operands(shape, outputs, kernel, dtype)
    a = settings(stride, padding, dilation)
    g = operands(conv(Tensor(x), Tensor(w), **a).shape, 1, (1, 1), dtype)[0]
    turn = WEIGHTS.index(case)
    found = [each for i, image in enumerate((x, last(x))) for each in both_ways(conv_weight_grad, (image, last(g), w), w, a, turn + i)]
    assert all("strip" in names and "places" in names for _, names in found)
    monkeypatch.setattr(few_channels, "window", lambda *args: None)
    want, names = launched(conv_weight_grad, (last(x), last(g), w), w, a, compile_and_run, Target.host())
    assert "strip" not in names and all(result == want for result, _ in found) and any(want)


TRANSPOSED = [  # image, outputs, kernel, stride, padding, dilation
    ((2, 3, 7, 37), 20, (3, 3), 2, 1, 1),
    ((1, 3, 7, 21), 32, (7, 7), 2, 3, 1),
    ((1, 1, 5, 300), 20, (5, 2), (1, 2), (2, 0), 1),  # several tiles to a row
    ((2, 4, 9, 11), 50, (3, 3), 2, (0, 2), 2),
    ((1, 2, 12, 13), 16, (2, 2), 3, 0, 1),  # phases that nothing reaches
    ((1, 3, 2, 3), 256, (3, 3), 2, 1, 1),
]


@but(every=3)
@pytest.mark.parametrize(
    "case, dtype", [*((c, "float32") for c in TRANSPOSED), *((TRANSPOSED[0], d) for d in ("float64", "float16"))]
)
def test_the_bits_of_a_transpose(case, dtype, monkeypatch):
    shape, outputs, kernel, stride, padding, dilation = case
    x, w = operands(shape, outputs, kernel, dtype)
    a = settings(stride, padding, dilation)
    g = operands(conv(Tensor(x), Tensor(w), **a).shape, 1, (1, 1), dtype)[0]
    w[0, 0, 0, 0] = np.inf  # padding is multiplied, pixels between those of the gradient are none
    a["output_padding"] = (0, 0)
    turn, outs = TRANSPOSED.index(case), (np.zeros_like(x), np.zeros_like(last(x)))
    found = [each for i, out in enumerate(outs) for each in both_ways(conv_transposed, (last(g), w, x), out, a, turn + i)]
    assert all("strip" in names for _, names in found)
    monkeypatch.setattr(few_channels_transposed, "fits", lambda *args: False)
    for out, mine in ((x, found[:2]), (last(x), found[2:])):
        want, names = launched(conv_transposed, (last(g), w, x), np.zeros_like(out), a, compile_and_run, Target.host())
        assert "strip" not in names and all(result == want for result, _ in mine) and any(want)


def test_no_strip_is_larger_than_a_stack():
    """Of a wide dilation, phase by phase as of many channels."""
    x, w = operands((1, 3, 460, 460), 256, (3, 3))
    y = array_of(last(np.zeros((1, 256, 130, 130), "f")), "y")[0]
    arrays = [array_of(v, id)[0] for v, id in ((w, "w"), (x, "x"))]
    assert not few_channels_transposed.fits(y, *arrays, (2, 2), (0, 0), (100, 100))
    assert few_channels_transposed.fits(y, *arrays, (2, 2), (0, 0), (1, 1))
    k = Builder("large")
    k.scratch("some", float32, 1 << 17)
    with pytest.raises(VerifyError, match="kernel large: 1048580 bytes of scratch memory with 'more'"):
        k.scratch("more", float32, (1 << 17) + 1)


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(dtype):
    x, w = operands((2, 3, 11, 13), 18, (3, 3), dtype)
    a = {"stride": 2, "padding": 1}
    y = conv(Tensor(x), Tensor(w), **a)
    assert y.numpy().tobytes() == in_groups(x, w, **a).tobytes()


def test_padding_is_multiplied():
    x, w = operands((1, 3, 6, 6), 17, (3, 3))
    w[3, 1, 0, 0] = np.inf
    y = conv(Tensor(x), Tensor(w), 2, 1).numpy()
    np.testing.assert_array_equal(np.isnan(y), np.isnan(in_groups(x, w, stride=2, padding=1)))
    assert np.isnan(y[0, 3, 0]).all() and not np.isnan(y[0, 3, 1:, 1:]).any() and not np.isnan(y[0, :3]).any()


def test_nothing_outside_is_read():
    """NaN around the image in memory, in both layouts."""
    w = Tensor(np.ones((2, 3, 3, 3), "f"))
    for big, order in ((np.full((1, 3, 9, 9), np.nan, "f"), (0, 1, 2, 3)), (np.full((1, 9, 9, 3), np.nan, "f"), (0, 3, 1, 2))):
        big.transpose(order)[:, :, 2:7, 2:7] = 1
        y = F.conv2d(Tensor(big).transpose(*order)[:, :, 2:7, 2:7], w, stride=2, padding=1)
        assert y.numpy()[0, 0].tolist() == [[12, 18, 12], [18, 27, 18], [12, 18, 12]]


def test_an_epilogue_and_no_copy_of_the_image():
    x, w = operands((2, 3, 30, 30), 40, (7, 7))
    b = Tensor(np.random.default_rng(1).normal(size=(1, 40, 1, 1)).astype("f"))
    f = trace(lambda x, w, b: F.relu(conv(x, w, 2, 3) + b))
    want = F.relu(conv(Tensor(x), Tensor(w), 2, 3) + b)
    assert f(Tensor(x), Tensor(w), b).numpy().tobytes() == want.numpy().tobytes()
    names = [launch.kernel.name for launch in lower(optimize(f.graph), None)[0].launches]
    assert len(names) == 2 and names[0].startswith("conv_pack") and names[1].startswith("conv")


@pytest.mark.parametrize(
    "shape, kernel, dilation, fits",
    [
        ((1, 3, 9, 9), (3, 3), (1, 1), True),
        ((1, 3, 9, 9), (1, 1), (1, 1), False),  # a product of matrices
        ((1, 3, 9, 9), (16, 16), (1, 1), False),  # several chunks
        ((1, 17, 9, 9), (3, 3), (1, 1), False),  # many channels
        ((1, 3, 9, 9), (3, 3), (900, 1), False),  # a strip would be too large
    ],
)
def test_which_windows(shape, kernel, dilation, fits):
    x, _ = array_of(np.zeros(shape, "f"), "x")
    assert (few_channels.window(x, kernel, shape[1], (1, 1), (0, 0), dilation) is not None) == fits


def test_tiles_of_a_row_are_those_that_take_least():
    """With 16 registers four results have too few sums: tiles of six are quicker, though the last one is not full."""
    wide = {(columns, most): few_channels.tile_width(columns, most) for columns, most in [(112, 6), (112, 14), (7, 6), (1, 6), (9, 14)]}
    assert wide == {(112, 6): 6, (112, 14): 14, (7, 6): 4, (1, 6): 1, (9, 14): 9}
