"""Chains of operations on bytes for which targets have a few instructions: every target gives the interpreter's bits, and the
instructions are used where they are meant to be."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from running import call, load, same

from tengen.base.dtype import float32, int8, int16, int32, uint8, uint32
from tengen.codegen.llvm import emit_module
from tengen.codegen.targets import Target
from tengen.loops.builder import Builder
from tengen.loops.dots import pair
from tengen.loops.floats import nearest_integer
from tengen.loops.lang import LANES, cast, const, equal, ramp, select, unary
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


WEIGHTS = [(4899, 9617, 1868), (-32768, -32768, 32767), (32767, 1, -1), (1, 0), (3, 5, -7, 11), (12, -12, 9, 1, 100)]


def planes(dtype, weights, step, rest):
    """out = rest + the sum of the weights by vectors of bytes, the i-th of which begins at i, with `step` between its elements (0: they lie
    in planes of their own)."""
    k = Builder("weighed")
    x, out, total = k.input("x", dtype), k.output("y", int32), const(rest, int32, LANES)
    places = [ramp() * step + i if step else const(i * LANES) for i in range(len(weights))]
    for v, w in zip([k.load(x, at, LANES) for at in places], weights):
        total = k.let(total + k.let(cast(v, int32)) * w)
    k.store(out, 0, total)
    return k.build()


@pytest.mark.parametrize("dtype", [uint8, int8], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_weighed_sums_of_bytes(name, dtype):
    """Bytes that lie in turns, with bytes between that are not read, and in planes; totals that wrap."""
    r = np.random.default_rng(7)
    for weights in WEIGHTS:
        for step, rest in ((0, 8192), (len(weights), 8192), (len(weights) + 1, 0), (len(weights), (1 << 31) - 1), (len(weights) + 9, 5)):
            made, n = planes(dtype, weights, step, rest), len(weights)
            x = r.integers(0, 256, (LANES - 1) * step + n if step else n * LANES, "uint8").view(dtype.numpy)  # nothing behind the last element
            x[:n], x[-n:] = np.iinfo(dtype.numpy).min, np.iinfo(dtype.numpy).max
            each = np.stack([x[i::step] for i in range(n)]) if step else x.reshape(n, LANES)
            got = np.zeros(LANES, "int32")
            call(load([made], Target.named(name)), made, [x, got])
            same(got, (rest + (np.array(weights)[:, None] * each.astype("int64")).sum(0)).astype("int32"))


@pytest.mark.skipif(not X86, reason="instructions of x86")
@pytest.mark.parametrize("name", ["x86-64-v3", "x86-64-v4"])
def test_two_products_of_bytes_in_one_instruction(name):
    text = lambda *args: assembly(emit_module([planes(*args)], Target.named(name)), Target.named(name))
    for made in (text(uint8, WEIGHTS[0], 3, 8192), text(uint8, WEIGHTS[0], 0, 8192), text(int8, WEIGHTS[0], 3, 8192)):
        assert "vpmaddwd" in made and "vpmulld" not in made
    assert "vpunpck" not in text(uint8, WEIGHTS[0], 3, 8192)
    assert "pmadd" not in emit_module([planes(uint8, (1 << 15, 3), 0, 0)], Target.named(name))  # no number of 16 bits


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

    makers = [lambda k, v: _codes(v, None, low, high, dtype), by_steps]
    if (low, high) in ((0, 255), (-128, 127)):  # a cast cuts off there
        makers += [lambda k, v: cast(unary("rint", v), dtype), lambda k, v: cast(k.let(unary("rint", v)), dtype)]
    for make in makers:
        same(run(kernel(make, [float32], dtype), [x], Target.named(name)), wanted)


@pytest.mark.skipif(not X86, reason="instructions of x86")
@pytest.mark.parametrize("name, converts, packs", [("x86-64-v3", "vcvtps2dq", "vpack{}swb"), ("x86-64-v4", "vcvtps2dq", "vpmov{}sdb")])
def test_the_conversion_rounds(name, converts, packs):
    target = Target.named(name)
    text = lambda low, high, d: assembly(emit_module([kernel(partial(codes, low, high, d), [float32], d)], target), target)
    assert converts in (unsigned := text(0, 255, uint8)) and packs.format("u") in unsigned
    assert converts in (signed := text(-128, 127, int8)) and packs.format("s" if name == "x86-64-v3" else "") in signed
    rinted = lambda d: assembly(emit_module([kernel(lambda k, v: cast(unary("rint", v), d), [float32], d)], target), target)
    assert all(converts in (made := rinted(d)) and "vround" not in made and "vrndscale" not in made for d in (uint8, int8))
    assert converts not in text(0, 100, uint8) and converts not in text(-127, 127, int8)


def codes(low, high, d, k, v):
    """What `quantize_linear` computes of a quotient."""
    return _codes(v, None, low, high, d)
