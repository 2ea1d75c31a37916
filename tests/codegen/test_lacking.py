"""Operations that are written out for processors without an instruction for them, run on this one: the bits of the instruction."""

from __future__ import annotations

import re

import numpy as np
import pytest
from running import call, load, same
from test_values import cast_cases, check, elementwise, op_cases

from tengen.base.dtype import float16, float32, float64, int64
from tengen.codegen.llvm import emit_kernel
from tengen.codegen.targets import Target
from tengen.loops.lang import LANES, cast, fma
from tengen.loops.lang import call as function

EVERY = frozenset({"half", "round", "narrow", "fma"})


@pytest.fixture
def lacking(monkeypatch):
    monkeypatch.setattr(Target, "lacks", EVERY)


@pytest.mark.parametrize("dt", [float32, float64], ids=str)
def test_ops(lacking, dt):
    """By exact arithmetic and by the interpreter, at the edges."""
    kernels, inputs, expected = op_cases(dt)
    wanted = {f"{op}_{dt}" for op in ("fma", "floor", "ceil", "trunc", "rint")}
    some = [i for i, k in enumerate(kernels) if k.name in wanted]
    assert len(some) == 5
    text = "".join(emit_kernel(kernels[i], Target.host()) for i in some)
    assert not re.search(r"llvm\.(floor|ceil|trunc|roundeven)\.", text) and ("llvm.fma.v16f32" not in text)
    check([kernels[i] for i in some], [inputs[i] for i in some], [expected[i] for i in some])


@pytest.mark.parametrize("dt", [float16, float32, float64, int64], ids=str)
def test_casts(lacking, dt):
    kernels, inputs, expected = cast_cases(dt)
    if dt is float32:
        text = "".join(emit_kernel(k, Target.host()) for k in kernels)
        assert " half" not in text and not re.search(r"fpto[su]i\.sat\.v16i(8|16)\.", text)
    check(kernels, inputs, expected)


def test_fma_of_random_bits(monkeypatch):
    """Beside the instruction: any bits, and sums that nearly cancel or lie half way between two floats."""
    rng = np.random.default_rng(0)
    n = 1 << 16
    a, b, c = (rng.integers(0, 1 << 32, n, dtype=np.uint32).view("f4") for _ in range(3))
    x, y = (rng.standard_normal(n).astype("f4") for _ in range(2))
    with np.errstate(all="ignore"):
        near = -(x * y) * (1 + rng.integers(-2, 3, n).astype("f4") * np.float32(2**-23))
        few = rng.integers(1, 1 << 12, n).astype("f4")
        half = few * np.float32(2.0) ** rng.integers(-160, -120, n).astype("f4")
    power = np.float32(2.0) ** rng.integers(-60, 60, n).astype("f4")
    a, b, c = (np.concatenate(v) for v in ((a, x, few, few), (b, y, few, power), (c, near, half, few)))
    outs = []
    for lacks in (frozenset(), EVERY):
        monkeypatch.setattr(Target, "lacks", lacks)
        k = elementwise(f"fma{len(lacks)}", [float32] * 3, float32, fma)
        out = [np.zeros(len(a), "f4") for _ in range(2)]
        call(load([k]), k, [a, b, c, *out], [len(a)])
        outs.append(out)
    for lanes in (0, 1):
        same(outs[0][lanes], outs[1][lanes])


def test_every_half(lacking):
    """All 65,536 float16 there and back, and numbers half way between two of them."""
    every = np.arange(1 << 16, dtype=np.uint16).view("f2")
    k = elementwise("wide", [float16], float32, lambda v: cast(v, float32))
    out = [np.zeros(1 << 16, "f4") for _ in range(2)]
    call(load([k]), k, [every, *out], [1 << 16])
    same(out[0], every.astype("f4"))
    same(out[1], every.astype("f4"))
    ends = np.append(every[:0x7C00].astype("f8"), 65536.0)
    middles = ((ends[1:] + ends[:-1]) / 2).astype("f4")
    x = np.concatenate([middles, np.nextafter(middles, np.float32(0)), np.nextafter(middles, np.float32(1e9)), out[0]])
    x = np.concatenate([x, -x])
    x = x[: len(x) // LANES * LANES].copy()
    k = elementwise("narrow", [float32], float16, lambda v: cast(v, float16))
    out = [np.zeros(len(x), "f2") for _ in range(2)]
    call(load([k]), k, [x, *out], [len(x)])
    with np.errstate(over="ignore"):
        same(out[0], x.astype("f2"))
        same(out[1], x.astype("f2"))


def test_sums_of_products_alone_round_twice(monkeypatch):
    """Without inner fmas a product is rounded before it is added; a math function keeps its fmas, and so its bits."""
    rng = np.random.default_rng(1)
    xs = [rng.standard_normal(4096).astype("f4") for _ in range(3)]
    exponential = elementwise("exponential", [float32], float32, lambda v: function("exp", v))
    monkeypatch.setattr(Target, "lacks", frozenset())
    want = [np.zeros(4096, "f4") for _ in range(2)]
    call(load([exponential]), exponential, [xs[0], *want], [4096])
    monkeypatch.setattr(Target, "lacks", frozenset({"fma", "inner fma"}))
    k = elementwise("twice", [float32] * 3, float32, fma)
    out = [np.zeros(4096, "f4") for _ in range(2)]
    call(load([k]), k, [*xs, *out], [4096])
    same(out[0], xs[0] * xs[1] + xs[2])
    call(load([exponential]), exponential, [xs[0], *out], [4096])
    same(out[0], want[0])
