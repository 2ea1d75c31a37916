"""Chains of operations on bytes for which targets have a few instructions: every target gives the interpreter's bits, and the
instructions are used where they are meant to be."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from running import call, load, same

from tengen.base.dtype import float32, int8, int16, uint8, uint32
from tengen.codegen.llvm import emit_module
from tengen.codegen.targets import Target
from tengen.loops.builder import Builder
from tengen.loops.floats import nearest_integer
from tengen.loops.lang import LANES, cast, equal, pair, select
from tengen.ops.quantized import _codes
from tengen.runtime.compile import assembly

NAMES = ["native", "x86-64-v3"] if Target.host().arch == "x86_64" else ["native"]
X86 = Target.host().arch == "x86_64"


def kernel(make, inputs, out):
    """out = make(one vector of each input), with each step in a variable of its own where `make` takes the builder."""
    k = Builder("of_bytes")
    vectors = [k.load(k.input(f"x{i}", d), 0, LANES) for i, d in enumerate(inputs)]
    k.store(k.output("out", out), 0, make(k, *vectors))
    return k.build()


def run(made, arrays, target):
    """The kernel on each LANES elements of the arrays."""
    loaded, out = load([made], target), []
    for at in range(0, len(arrays[0]), LANES):
        got = np.zeros(LANES, made.buffers[-1].dtype.numpy)
        call(loaded, made, [*(np.ascontiguousarray(a[at : at + LANES]) for a in arrays), got])
        out.append(got)
    return np.concatenate(out)


@pytest.mark.parametrize("dtype", [uint8, int8], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_pairs_of_bytes(name, dtype):
    a, b = (np.random.default_rng(i).permutation(np.arange(256).astype("uint8").view(dtype.numpy)) for i in (0, 1))
    made = kernel(lambda k, x, y: pair(k.let(cast(x, int16)), cast(y, int16)), [dtype, dtype], uint32)
    wanted = np.stack([a, b], 1).astype("int16").reshape(-1).view("uint32")
    same(run(made, [a, b], Target.named(name)), wanted)
    if X86:
        text = assembly(emit_module([made], Target.named("x86-64-v3")), Target.named("x86-64-v3"))
        assert "vpunpcklbw" in text and "vpslld" not in text


def numbers() -> np.ndarray:
    """Numbers near every half-integer that a byte may end at, and what integers of 32 bits do not hold."""
    halves = (np.arange(-600, 600) / 2).astype("float32")
    near = [np.nextafter(halves, np.float32(s)) for s in (-np.inf, np.inf)]
    large = [0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 3e38, -3e38, 2.0**31, -(2.0**31), 2.0**32, 1e-40, -1e-40, 127.6, 255.7, -128.7]
    return np.concatenate([halves, *near, np.array(large, "float32")])


@pytest.mark.parametrize("low, high, dtype", [(0, 255, uint8), (-128, 127, int8), (-127, 127, int8), (0, 127, int8), (0, 100, uint8)], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_rounding_to_bytes(name, low, high, dtype):
    """The definition of `quantize_linear`, as one expression and step by step."""
    x = numbers()[: len(numbers()) // LANES * LANES]
    wanted = np.clip(np.rint(np.where(np.isnan(x), 0, x).astype("float64")), low, high).astype(dtype.numpy)

    def by_steps(k, v):
        bounded = k.let(v > float(low) if low else v > -0.25)
        v, least = v, float(low) if low else -0.25
        raised = k.let(select(bounded, v, least))
        raised = k.let(select(k.let(equal(v, v)), raised, 0.0)) if low else raised
        below = k.let(raised < float(high))
        return cast(k.let(nearest_integer(k.let(select(below, raised, float(high))))), dtype)

    for make in (lambda k, v: _codes(v, None, low, high, dtype), by_steps):
        same(run(kernel(make, [float32], dtype), [x], Target.named(name)), wanted)


@pytest.mark.skipif(not X86, reason="instructions of x86")
@pytest.mark.parametrize("name, converts, packs", [("x86-64-v3", "vcvtps2dq", "vpack{}swb"), ("x86-64-v4", "vcvtps2dq", "vpmov{}sdb")])
def test_the_conversion_rounds(name, converts, packs):
    target = Target.named(name)
    text = lambda low, high, d: assembly(emit_module([kernel(partial(codes, low, high, d), [float32], d)], target), target)
    assert converts in (unsigned := text(0, 255, uint8)) and packs.format("u") in unsigned
    assert converts in (signed := text(-128, 127, int8)) and packs.format("s" if name == "x86-64-v3" else "") in signed
    assert converts not in text(0, 100, uint8) and converts not in text(-127, 127, int8)


def codes(low, high, d, k, v):
    """What `quantize_linear` computes of a quotient."""
    return _codes(v, None, low, high, d)
