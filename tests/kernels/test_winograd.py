"""Winograd convolutions: against float64, interpreter against machine code as bits, batches, odd extents."""

from __future__ import annotations

import numpy as np
import pytest
from exhaustive import but
from launching import array_of, run
from machine import Compiled

import tengen
import tengen.functional as F
from tengen import Tensor, trace
from tengen.base.dtype import float32, int16, int32
from tengen.codegen.targets import Target
from tengen.kernels.contraction.formats import dot_format
from tengen.kernels.convolution.winograd import pays_in_integers, winograd
from tengen.kernels.convolution.winograd_sizes import Blocks, Winograd
from tengen.kernels.convolution.winograd_transforms import (
    INTEGER_TRANSFORMS,
    MOST_CHANNELS_OF_UINT8,
    MOST_INTEGER_CHANNELS,
    TRANSFORMS,
)
from tengen.kernels.convolution.winograd_weights import winograd_weights
from tengen.kernels.lowering import Lowering
from tengen.loops.interp import evaluate
from tengen.loops.lang import const

TOLERANCE = {2: 2e-6, 4: 6e-6}  # of the largest value


def convolved(x, w, padding, outputs, interpreted=False):
    """x (N, H, W, C), w (O, C, 3, 3) -> (N, P, Q, O), by the kernels."""
    out = np.full((x.shape[0], *(d + 2 * p - 2 for d, p in zip(x.shape[1:3], padding)), w.shape[0]), 7, np.float32)
    arrays, memory = [], {}
    for a, id in ((x.transpose(0, 3, 1, 2), "x"), (w, "w"), (out.transpose(0, 3, 1, 2), "out")):
        array, memory[id] = array_of(a, id)
        arrays.append(array)
    lo = Lowering(Target.host())
    winograd(lo, *arrays, outputs, padding)
    if interpreted:
        run(lo, memory)
    else:
        Compiled(lo, memory, ["out"])()
    return out


def exact(x, w, padding):
    """The same in float64, position by position."""
    x = np.pad(x.astype(np.float64), [(0, 0), *((p, p) for p in padding), (0, 0)])
    rows, columns = x.shape[1] - 2, x.shape[2] - 2
    return sum(x[:, i : i + rows, j : j + columns] @ w[:, :, i, j].astype(np.float64).T for i in range(3) for j in range(3))


def data(n, c, h, w, o, seed=0):
    rng = np.random.default_rng(seed)
    x, f = rng.standard_normal((n, h, w, c)), rng.standard_normal((o, c, 3, 3)) * (9 * c) ** -0.5
    return x.astype(np.float32), f.astype(np.float32)


@pytest.mark.parametrize("outputs", [2, 4])
def test_the_transforms_of_one_axis_make_a_correlation(outputs):

    t = TRANSFORMS[outputs]
    rng = np.random.default_rng(outputs)
    d, g = (rng.integers(-4, 5, n).astype(float) for n in (t.points, 3))
    v, u = ([float(evaluate(e, {})) for e in f([const(x, float32) for x in xs])] for f, xs in ((t.image, d), (t.weight, g)))
    y = [float(evaluate(e, {})) for e in t.result([const(a * b, float32) for a, b in zip(v, u)])]
    # Sums of at most six products of a transformed value (at most 60) and a filter's (at most 12), rounded some eight times.
    np.testing.assert_allclose(y, np.correlate(d, g, "valid"), rtol=0, atol=8 * 2.0**-24 * 60 * 12)


@but(every=3)
@pytest.mark.parametrize("outputs", [2, 4])
@pytest.mark.parametrize(
    ("n", "c", "h", "w", "o", "padding"),
    [
        (1, 1, 1, 1, 1, (1, 1)), (2, 3, 2, 5, 17, (1, 1)), (1, 16, 13, 3, 33, (0, 0)), (1, 17, 3, 13, 16, (2, 1)),
        (3, 33, 5, 5, 3, (2, 2)), (1, 300, 6, 7, 40, (1, 1)), (5, 32, 12, 16, 32, (1, 1)), (1, 4, 9, 9, 4, (-1, 3)),
        (1, 34, 7, 7, 150, (1, 1)),  # five panels for four pieces
    ],
)  # fmt: skip
def test_results_are_near_those_in_float64(n, c, h, w, o, padding, outputs):
    x, f = data(n, c, h, w, o)
    if min(padding) < 0:
        want = exact(x[:, 1:-1], f, (0, padding[1]))
    else:
        want = exact(x, f, padding)
    got = convolved(x, f, padding, outputs)
    assert np.abs(got - want).max() <= TOLERANCE[outputs] * max(np.abs(want).max(), 1)
    each = np.concatenate([convolved(x[i : i + 1], f, padding, outputs) for i in range(n)])
    assert got.tobytes() == each.tobytes()


@pytest.mark.parametrize("outputs", [2, 4])
def test_machine_code_gives_the_bits_of_the_interpreter(outputs):
    x, f = data(2, 3, 5, 4, 5)
    assert convolved(x, f, (1, 1), outputs).tobytes() == convolved(x, f, (1, 1), outputs, interpreted=True).tobytes()


@pytest.mark.parametrize("outputs", [2, 4])
def test_who_transforms_the_filter_changes_no_bit(outputs):
    """One image's tiles are one piece's, which transforms the filter; of twenty images it comes transformed. Two chunks of channels,
    the second not whole blocks, and a panel that is not whole."""
    x, f = data(20, 300, 4, 5, 40)
    each = np.concatenate([convolved(x[i : i + 1], f, (1, 1), outputs) for i in range(20)])
    assert convolved(x, f, (1, 1), outputs).tobytes() == each.tobytes()
    sizes = []
    for n in (1, 20):
        lo = Lowering(Target.named("x86-64-v4"))  # panels of 32 channels
        shapes = {"x": (n, 4, 5, 300), "w": f.shape, "y": (n, 4, 5, 40)}
        a, b, c = (array_of(np.zeros(s, np.float32), id)[0] for id, s in shapes.items())
        winograd(lo, a.permute((0, 3, 1, 2)), b, c.permute((0, 3, 1, 2)), outputs, (1, 1))
        sizes.append(lo.temps[lo.launches[0].ids[1]][1])
    assert sizes == [2 * 32 * 300 * 9, 2 * 32 * 301 * (outputs + 2) ** 2]


def test_any_layout_of_the_filter():
    x, f = data(1, 5, 6, 6, 20)
    want = convolved(x, f, (1, 1), 4)
    turned = np.ascontiguousarray(f.transpose(2, 3, 1, 0)).transpose(3, 2, 0, 1)
    assert convolved(x, turned, (1, 1), 4).tobytes() == want.tobytes()


# ---- the filter's gradient


def filter_gradient(x, g, padding, outputs, interpreted=False, order=(2, 3, 1, 0)):
    """x (N, H, W, C), g (N, P, Q, O) -> (O, C, 3, 3), by the kernels; order: of the result's axes in memory."""
    out = np.full([(g.shape[3], x.shape[3], 3, 3)[i] for i in order], 7, np.float32).transpose(np.argsort(order))
    arrays, memory = [], {}
    for a, id in ((x.transpose(0, 3, 1, 2), "x"), (g.transpose(0, 3, 1, 2), "g"), (out, "out")):
        array, memory[id] = array_of(a, id)
        arrays.append(array)
    lo = Lowering(Target.host())
    winograd_weights(lo, *arrays, outputs, padding, "conv_weight_grad")
    if interpreted:
        run(lo, memory)
    else:
        Compiled(lo, memory, ["out"])()
    return out


def exact_gradient(x, g, padding):
    """The same in float64, tap by tap."""
    x, g = np.pad(x.astype(np.float64), [(0, 0), *((p, p) for p in padding), (0, 0)]), g.astype(np.float64)
    rows, columns = g.shape[1:3]
    taps = [[np.einsum("nyxc,nyxo->oc", x[:, i : i + rows, j : j + columns], g) for j in range(3)] for i in range(3)]
    return np.array(taps).transpose(2, 3, 0, 1)


def gradients(n, c, h, w, o, padding):
    rng = np.random.default_rng(n + c)
    x = rng.standard_normal((n, h, w, c)).astype(np.float32)
    return x, rng.standard_normal((n, h + 2 * padding[0] - 2, w + 2 * padding[1] - 2, o)).astype(np.float32)


@pytest.mark.parametrize("outputs", [2, 4])
def test_the_gradient_of_one_axis_is_the_transpose(outputs):
    t = TRANSFORMS[outputs]
    for forward, back, n in ((t.result, t.gradient, t.points), (t.weight, t.weight_gradient, 3)):
        columns = [[float(evaluate(e, {})) for e in forward([const(float(i == j), float32) for j in range(n)])] for i in range(n)]
        for i in range(len(columns[0])):
            unit = [const(float(i == j), float32) for j in range(len(columns[0]))]
            np.testing.assert_allclose([float(evaluate(e, {})) for e in back(unit)], [c[i] for c in columns], rtol=1e-6)


@pytest.mark.parametrize("outputs", [2, 4])
@pytest.mark.parametrize(
    ("n", "c", "h", "w", "o", "padding"),
    [
        (1, 1, 1, 1, 1, (1, 1)), (2, 3, 2, 5, 17, (1, 1)), (1, 16, 13, 3, 33, (0, 0)), (3, 17, 3, 13, 16, (2, 1)),
        (2, 130, 5, 5, 70, (1, 1)), (1, 96, 14, 14, 48, (1, 1)), (4, 64, 20, 24, 64, (1, 1)), (0, 4, 5, 5, 4, (1, 1)),
    ],
)  # fmt: skip
def test_gradients_of_filters_are_near_those_in_float64(n, c, h, w, o, padding, outputs):
    x, g = gradients(n, c, h, w, o, padding)
    want, got = exact_gradient(x, g, padding), filter_gradient(x, g, padding, outputs)
    assert np.abs(got - want).max() <= TOLERANCE[outputs] * max(np.abs(want).max(), 1)


@pytest.mark.parametrize("outputs", [2, 4])
def test_machine_code_gives_the_interpreters_bits_of_gradients(outputs):
    x, g = gradients(2, 5, 7, 6, 5, (1, 1))
    want = filter_gradient(x, g, (1, 1), outputs, interpreted=True)
    assert filter_gradient(x, g, (1, 1), outputs).tobytes() == want.tobytes()
    assert filter_gradient(x, g, (1, 1), outputs, order=(0, 1, 2, 3)).tobytes() == np.ascontiguousarray(want).tobytes()


def in_integers(image, filters, padding, outputs, target, interpreted=False):
    """image (N, H, W, C) and filters (O, C, 3, 3) of 8 bits -> int32 (N, P, Q, O), by the kernels."""
    out = np.full((image.shape[0], *(d + 2 * padding - 2 for d in image.shape[1:3]), filters.shape[0]), 7, np.int32)
    arrays, memory = [], {}
    for a, id in ((image.transpose(0, 3, 1, 2), "x"), (filters, "w"), (out.transpose(0, 3, 1, 2), "out")):
        array, memory[id] = array_of(a, id)
        arrays.append(array)
    lo = Lowering(target)
    winograd(lo, *arrays, outputs, (padding, padding), format=dot_format(int16, "int32"))
    if interpreted:
        run(lo, memory)
    else:
        Compiled(lo, memory, ["out"])()
    return out


@pytest.mark.parametrize("outputs", INTEGER_TRANSFORMS)
@pytest.mark.parametrize("n, c, h, w, o, padding", [
    (2, 5, 7, 4, 17, 1), (1, 33, 9, 12, 40, 0), (1, None, 3, 5, 3, 1), (1, 16, 12, 24, 32, 1), (1, MOST_CHANNELS_OF_UINT8, 3, 5, 3, 1),
    (1, MOST_CHANNELS_OF_UINT8 + 1, 3, 5, 3, 1),
])  # fmt: skip
def test_integers_are_exact(n, c, h, w, o, padding, outputs):
    """Random integers, and those with the largest transformed values and sums, against float64, which holds these sums exactly."""
    c = c or MOST_INTEGER_CHANNELS[outputs]
    rng = np.random.default_rng(c)
    for low, high, dtype in ((0, 256, "uint8"), (-128, 128, "int8")):
        x, f = rng.integers(low, high, (n, h, w, c)).astype(dtype), rng.integers(-128, 128, (o, c, 3, 3)).astype("int8")
        edge = rng.choice([low, high - 1], (n, h, w, c)).astype(dtype), rng.choice([-128, 127], (o, c, 3, 3)).astype("int8")
        most = np.full_like(x, high - 1 if low == 0 else low), np.full_like(f, -128)
        for image, filters in ((x, f), edge, most, (most[0], np.full_like(f, 127))):
            got = in_integers(image, filters, padding, outputs, Target.host())
            np.testing.assert_array_equal(got, exact(image, filters, (padding, padding)))


@pytest.mark.parametrize("outputs", INTEGER_TRANSFORMS)
def test_transformed_integers_fit(outputs):
    """Of one axis, sums of magnitudes: products of two axes' are what pixels and taps may become at most, and int16 holds them."""
    t = INTEGER_TRANSFORMS[outputs]
    for axis, n, (low, high) in ((t.image, t.points, (0, 255)), (t.image, t.points, (-128, 127)), (t.weight, 3, (-128, 127))):
        columns = [[int(evaluate(e, {})) for e in axis([const(int(i == j), int32) for j in range(n)])] for i in range(n)]
        m = np.array(columns).T
        both = np.einsum("ai,bj->abij", m, m).reshape(-1, n * n)
        up, down = np.maximum(both, 0).sum(1), np.minimum(both, 0).sum(1)
        assert (up * high + down * low).max() < 2**15 and (down * high + up * low).min() >= -(2**15)


@pytest.mark.parametrize("c, h, outputs", [(64, 56, 4), (128, 28, 4), (256, 14, 3), (512, 7, 0), (1, 3, 0)])
def test_the_rule_of_integers(c, h, outputs):
    """The layers of a ResNet-18, where four bytes are multiplied at a time."""
    assert pays_in_integers(c, c, h, h, 4) == outputs
    assert pays_in_integers(c, c, 0, h, 4) == 0


@pytest.mark.parametrize("target", [None, Target.named("x86-64-v4")], ids=["short registers", "long registers"])
@pytest.mark.parametrize("outputs", INTEGER_TRANSFORMS)
def test_integers_of_the_interpreter(outputs, target):
    """Where registers hold all results of a tile, and where they do not; tiles at the border are cut off."""
    rng = np.random.default_rng(1)
    x, f = rng.integers(0, 256, (1, 4, 5, 3)).astype("uint8"), rng.integers(-128, 128, (3, 3, 3, 3)).astype("int8")
    np.testing.assert_array_equal(in_integers(x, f, 1, outputs, target, interpreted=True), exact(x, f, (1, 1)))


@pytest.mark.parametrize("image", [(1, 64, 56, 56), (2, 72, 42, 33)])
def test_a_constant_filter_of_integers_is_multiplied_in_tiles(image):
    """... where the rule says so; what `conv_int` fuses with it sees the same sums."""
    x, f = (np.random.default_rng(2).integers(0, 100, s) for s in (image, (64, image[1], 3, 3)))
    q, scale = Tensor(f.astype("int8")), Tensor(np.float32(0.001))
    layer = trace(lambda x: F.requantize_linear(F.conv_int(x, q, 1, 1), scale, None, 0, 255, "uint8"), capture_as_const=True)
    want = exact(x.transpose(0, 2, 3, 1), f, (1, 1)).transpose(0, 3, 1, 2)
    want = np.clip(np.rint(want.astype("float32") * np.float32(0.001)), 0, 255)
    with tengen.profile() as p:
        np.testing.assert_array_equal(layer(Tensor(x.astype("uint8"))).numpy(), want)
    assert "conv_filter" not in [row.kernel for row in p.rows]  # it was transformed once, before
    setup = next(iter(layer._recordings.values()))[0].run.program.setup
    transformed = setup is not None and max(setup.output_bytes) > 8 * f.size  # 36 points of 2 bytes for 9 taps; packed ones are smaller
    assert Target.host().computes("dot2i") == transformed


def test_register_tiles_have_exactly_the_tiles_there_are():
    """Whatever their number, pieces and register tiles have one of two heights, and no rows past the last tile."""
    for tiles in range(1, 260):
        for rows, high in ((7, 2), (10, 1), (5, 3), (1, 1), (12, 2)):
            tall, low, parts = Blocks(Winograd(rows, 2, high), 80, 0).heights(tiles)
            blocks = -(-tiles // (rows * high))
            counts = [(i + 1) * tiles // blocks - i * tiles // blocks for i in range(blocks)]
            heights = [(j + 1) * n // parts - j * n // parts for n in counts for j in range(parts)]
            assert set(heights) <= {tall, low} and tall <= rows and sum(heights) == tiles and low >= tall - 1
