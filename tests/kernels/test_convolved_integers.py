"""Convolutions of integers of 8 bits on processors with and without products of four bytes: which strategy is taken, and that each
has the exact sums, the largest ones too."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from exhaustive import but
from launching import array_of, run
from machine import Compiled

from tengen.base.dtype import int32
from tengen.codegen.targets import Target
from tengen.kernels.lowering import Lowering
from tengen.kernels.source import Ending, Given
from tengen.ops.conv_strategies import RESULTS, Convolution, lower

V3 = Target.named("x86-64-v3")
NEON = Target.named("aarch64")  # whose products of bytes are no quicker than float32's where both operands differ from lane to lane
QUADS = replace(NEON, features=f"{NEON.features},+dotprod,+i8mm")  # with products of two rows by two columns
TARGETS = [Target.host(), *([] if V3.why_not_here() else [V3])]
RANGES = {"int8": (-128, 128), "uint8": (0, 256)}
CASES = [
    # image (N, C, H, W), filters, stride, padding, the kernel that tells the strategy where there are no products of bytes
    ((1, 3, 33, 31), (24, 3, 3, 3), 2, 1, "conv_pack_groups"),
    ((2, 4, 17, 18), (40, 4, 5, 5), 1, 2, "conv_pack_groups"),
    ((1, 3, 20, 21), (17, 3, 7, 7), 2, 3, "conv_pack_groups"),
    ((1, 1, 12, 300), (33, 1, 1, 5), 1, 2, "conv_pack_groups"),  # several strips to a row
    ((1, 8, 9, 9), (16, 8, 3, 3), 2, 1, None),
    ((1, 32, 30, 31), (48, 32, 3, 3), 1, 1, "conv_filter"),
    ((1, 32, 30, 31), (48, 32, 3, 3), 1, 0, "conv_filter"),
    ((2, 20, 9, 9), (20, 1, 1, 3, 3), 1, 1, "depthwise_groups"),  # one filter for each channel: by rows of it
    ((1, 33, 8, 15), (33, 1, 1, 5, 5), 2, 2, "depthwise_groups"),
]


def exact(x, w, stride, padding):
    """The sums in float64, which holds them."""
    groups = w.shape[0] if w.ndim == 5 else 1
    x = np.pad(x.astype("float64"), [(0, 0), (0, 0), (padding, padding), (padding, padding)])
    w = w.reshape(-1, *w.shape[-3:]).astype("float64")
    high, wide = ((d - k) // stride + 1 for d, k in zip(x.shape[2:], w.shape[2:]))
    out = np.zeros((x.shape[0], w.shape[0], high, wide))
    for i in range(w.shape[2]):
        for j in range(w.shape[3]):
            part = x[:, :, i : i + stride * high : stride, j : j + stride * wide : stride][:, :, :high, :wide]
            out += part * w[None, :, 0, i, j, None, None] if groups > 1 else np.einsum("nchw,oc->nohw", part, w[:, :, i, j])
    return out


def convolved(x, w, stride, padding, target, ending=False, last=True):
    """(int32 (N, O, P, Q), names of the kernels). ending: through an epilogue that is a source. last: x is channels-last in memory."""
    want = exact(x, w, stride, padding)
    out = np.full(want.transpose(0, 2, 3, 1).shape, 7, "int32")
    memory, arrays = {}, []
    x = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2) if last else x
    for a, id in ((x, "x"), (w, ("const", "w")), (out.transpose(0, 3, 1, 2), "out")):
        array, memory[id] = array_of(a, id)
        arrays.append(array)
    lo, given = Lowering(target), Given(want.shape, int32)
    groups, epilogue = w.shape[0] if w.ndim == 5 else 1, Ending(given, given) if ending else None
    lower(RESULTS, Convolution(lo, *arrays, (stride,) * 2, (padding,) * 2, (1, 1), groups, "direct", "int32", epilogue))
    names = [launch.kernel.name for launch in lo.launches]
    if target in (None, NEON, QUADS):
        run(lo, memory)
    else:
        Compiled(lo, memory, ["out"])()
    np.testing.assert_array_equal(out.transpose(0, 3, 1, 2), want)
    return names


@pytest.mark.parametrize("image, filters, stride, padding", [
    ((1, 8, 9, 9), (16, 8, 3, 3), 2, 1), ((2, 5, 6, 7), (18, 5, 3, 2), 1, 1), ((1, 12, 5, 5), (20, 12, 1, 1), 1, 0),
])  # fmt: skip
def test_windows_two_by_two(image, filters, stride, padding):
    """Rows of a border, and of windows whose channels are no whole groups, by the interpreter."""
    rng = np.random.default_rng(0)
    for dtype, (low, high) in RANGES.items():
        x, w = rng.integers(low, high, image).astype(dtype), rng.integers(-128, 128, filters).astype("int8")
        convolved(x, w, stride, padding, QUADS)


@but(every=3)
@pytest.mark.parametrize("image, filters, stride, padding, kernel", CASES)
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_sums_are_exact(image, filters, stride, padding, kernel, target):
    rng, bytes_ = np.random.default_rng(0), target.computes("dot4u") or target.computes("dot4i")
    for dtype, (low, high) in RANGES.items():
        x, w = rng.integers(low, high, image).astype(dtype), rng.integers(-128, 128, filters).astype("int8")
        names = convolved(x, w, stride, padding, target, ending=True)
        if kernel == "conv_pack_groups":
            assert kernel in names and kernel in convolved(x, w, stride, padding, target, last=False)
        elif kernel is not None and target.computes("dot2i") and not bytes_:
            assert kernel in names
        largest = np.full_like(x, high - 1 if low == 0 else low), np.full_like(w, -128)
        convolved(*largest, stride, padding, target)


def test_targets_without_quick_products_multiply_as_float32_what_it_holds():
    rng = np.random.default_rng(2)
    drawn = lambda dtype, *shape: rng.integers(*RANGES[dtype], shape).astype(dtype)
    x, w = drawn("uint8", 1, 3, 9, 8), drawn("int8", 5, 3, 7, 7)
    assert "cast" not in convolved(x, w, 2, 3, NEON)  # sums of uint8 may be larger
    assert "cast" in convolved(drawn("int8", 1, 3, 9, 8), w, 2, 3, NEON)
    assert "cast" in convolved(drawn("uint8", 1, 20, 5, 4), drawn("int8", 20, 1, 1, 3, 3), 1, 1, NEON)
    emulated = Target.named("x86-64-exact")  # an fma takes twenty instructions
    lo, out = Lowering(emulated), np.zeros((1, 5, 9, 8), "int32")
    arrays = [array_of(a, id)[0] for a, id in ((x, "x"), (w[:, :, :3, :3], ("const", "w")), (out, "o"))]
    lower(RESULTS, Convolution(lo, *arrays, (1, 1), (1, 1), (1, 1), 1, "direct", "int32", None))
    assert "cast" not in [launch.kernel.name for launch in lo.launches]


def test_the_interpreter():
    rng = np.random.default_rng(1)
    x, w = rng.integers(-128, 128, (1, 3, 7, 6)).astype("int8"), rng.integers(-128, 128, (5, 3, 3, 3)).astype("int8")
    assert "conv_pack_groups" in convolved(x, w, 2, 1, None)
