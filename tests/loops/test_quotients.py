"""Quotients without a division have the integers of NumPy's float32 division: near every half-integer, at random, at the ends of float32."""

from __future__ import annotations

import numpy as np
import pytest

from tengen.base.dtype import float32, int8
from tengen.loops import quotients
from tengen.loops.exact import fma32
from tengen.loops.lang import const, var
from tengen.loops.quotients import quotient, reciprocal

MOST = 383
ENDS = np.array([0.0, 1e-45, 2.0**-126, 3.4e38, np.inf, np.nan], np.float32)


def integers(quotients: np.ndarray) -> np.ndarray:
    """What is rounded and clipped to the range that is promised; a NaN stays one."""
    return np.clip(np.rint(quotients), -MOST, MOST)


def divisors() -> np.ndarray:
    r = np.random.default_rng(0)
    return np.concatenate([2.0 ** r.uniform(-100, 100, 60), r.uniform(0.001, 1, 100), [1.0, 0.25, 3.0, 1 / 3]]).astype(np.float32)


def numbers(d: np.float32) -> np.ndarray:
    """Numbers within 40 ULP of every half-integer times d, and others."""
    near = ((np.arange(MOST + 2) + 0.5) * d).astype(np.float32).view(np.int32)[:, None] + np.arange(-40, 41, dtype=np.int32)
    others = np.random.default_rng(1).uniform(0, 500, 20_000) * d
    x = np.concatenate([near.ravel().view(np.float32), others.astype(np.float32), ENDS])
    return np.concatenate([x, -x])


def test_the_integers_of_a_division():
    replaced = 0
    with np.errstate(all="ignore"):
        for d in divisors():
            if (found := reciprocal(float(d), MOST)) is None:
                continue
            high, low = np.float32(found)
            x = numbers(d)
            got = fma32(x, high, x * low) if low else x * high
            np.testing.assert_array_equal(integers(got), integers(x / d), err_msg=repr(d))
            replaced += 1
    assert replaced > 0.9 * len(divisors())


def test_what_has_no_such_quotient_is_divided(monkeypatch):
    x, d = var("x", float32), var("d", float32)
    assert quotient(x, d, MOST).op == "div"  # not known
    assert quotient(x, const(2.0**-101, float32), MOST).op == "div"
    assert quotient(x, const(0.3, float32), MOST).op == "fma"
    assert quotient(x, const(0.5, float32), MOST).op == "mul"
    monkeypatch.setattr(quotients, "fma32", lambda x, high, low: x * high)  # a quotient that is off near half-integers is found out
    reciprocal.cache_clear()
    try:
        assert quotient(x, const(0.3, float32), MOST).op == "div"
    finally:
        reciprocal.cache_clear()


@pytest.mark.parametrize("low, high, dtype", [(-128, 127, "int8"), (0, 255, "uint8"), (-127, 127, "int8")])
def test_quantize_linear_of_known_scales(low, high, dtype):
    """Traced, where the scale is a constant, and eagerly, where it is not."""
    import tengen.functional as F
    from tengen import Tensor, trace

    for d in divisors()[::40]:
        x = numbers(d)
        traced = trace(lambda x, d=d: F.quantize_linear(x, Tensor(d), None, low, high, dtype), capture_as_const=True)
        with np.errstate(all="ignore"):
            want = np.clip(np.nan_to_num(np.rint(x / d), nan=0.0), low, high)
        for got in (traced(Tensor(x)), F.quantize_linear(Tensor(x), Tensor(d), None, low, high, dtype)):
            np.testing.assert_array_equal(got.numpy(), want)


TARGETS = [("x86-64-v3", True), ("aarch64", True), ("x86-64", False), ("x86-64-exact", False), ("wasm32", False)]


@pytest.mark.parametrize("name, by_fma", TARGETS)
def test_where_an_fma_is_an_instruction(name, by_fma):
    """Elsewhere it would be written out, in more operations than a division."""
    from tengen.codegen.targets import Target
    from tengen.ir.types import TensorType
    from tengen.kernels.lowering import Array, Lowering
    from tengen.kernels.pointwise import pointwise
    from tengen.kernels.source import Leaf, Literal
    from tengen.loops.text import print_kernel
    from tengen.ops.define import lookup

    x, y = Array("x", float32, (64,), (1,)), Array("y", int8, (64,), (1,))
    op = lookup("quantize_linear")
    source = op.make_source([Leaf(x), Literal(0.3, float32), None], TensorType((64,), int8), {"low": -128, "high": 127, "dtype": int8})
    lo = Lowering(Target.named(name))
    pointwise(lo, [source], [y], "codes")
    text = print_kernel(lo.launches[0].kernel)
    assert ("fma(" in text, " / " in text) == (by_fma, not by_fma), text
