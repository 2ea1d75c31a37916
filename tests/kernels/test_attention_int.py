"""Attention of int8 against its definition in NumPy's int64: each way of multiplying, chunks of keys, layouts, any extents."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from launching import Symbols, array_of, compile_and_run, run

from tengen.base.dtype import int8, uint8
from tengen.codegen.targets import Target
from tengen.kernels.attention import integers
from tengen.kernels.contraction.formats import dot_format
from tengen.kernels.lowering import Lowering

HOST = Target.host()
# (target, features beside its own) -> what multiplies keys by queries, and weights by values
WAYS = {
    ("x86-64-v3", ""): ("dot2i", "dot2i"), ("x86-64-v4", ",+avx512vnni"): ("dot4u", "dot4u"),
    ("aarch64", ",+dotprod"): ("dot4i", "dot4i"), ("aarch64", ",+dotprod,+i8mm"): ("dot4i", "dot4u"),
}  # fmt: skip
SIZES = [(1, 1, 1, 1), (3, 5, 7, 4), (17, 9, 16, 33), (33, 21, 5, 16)]


def drawn(shape, seed: int = 0, least: int = -128):
    return np.random.default_rng(seed).integers(least, 127, shape, np.int8, endpoint=True)


def expected(q, k, v, multiplier: float, scale: float):
    """The definition. Weights are rounded from float64, of arguments in float32: tests take numbers of which none is half-way between two."""
    c = q.astype(np.int64) @ np.swapaxes(k, -1, -2).astype(np.int64)
    x = (c - c.max(-1, keepdims=True)).astype(np.float32) * np.float32(multiplier)
    exact = 255 * np.exp(x.astype(np.float64))
    assert (np.abs(exact - np.floor(exact) - 0.5) > 1e-4).all(), "a weight half-way between two integers: another seed"
    p = np.rint(exact).astype(np.int64)
    factor = np.float32(scale) / p.sum(-1, keepdims=True).astype(np.float32)
    return (p @ v.astype(np.int64)).astype(np.float32) * factor


def lowered(target: Target, q, k, v, symbols: Symbols | None = None, multiplier: float = 1e-3, scale: float = 0.02):
    """(the lowering, its memory, where the result is). Features are never open."""
    lo, out = Lowering(target), np.zeros((*q.shape[:-1], v.shape[-1]), np.float32)
    made = [array_of(x, name) for x, name in zip((q, k, v, np.float32(multiplier).reshape(()), np.float32(scale).reshape(()), out), "qkvmso")]
    arrays = [a for a, _ in made]
    if symbols is not None:
        opened = lambda a: symbols.array(a).__class__(a.id, a.dtype, (*map(symbols.extent, a.shape[:-1]), a.shape[-1]), a.strides, a.offset)
        arrays = [opened(a) if a.ndim else a for a in arrays]
        lo.ints = list(symbols.values)
    integers.attention_int(lo, *arrays)
    return lo, {a.id: flat for a, flat in made}, out


@pytest.mark.parametrize("way", WAYS, ids="".join)
def test_every_way_of_multiplying(way):
    """By the interpreter, also of the least and the largest integers."""
    target = Target.named(way[0])
    target = replace(target, features=target.features + way[1])
    assert tuple(dot_format(d, "int32", int8, target).op for d in (int8, uint8)) == WAYS[way]
    for t, s, d, e in SIZES:
        q, k, v = drawn((t, d)), drawn((s, d), 1), drawn((s, e), 2)
        k[: s // 3], q[-1], v[0] = -128, 127, -128
        lo, memory, out = lowered(target, q, k, v)
        run(lo, memory, {})
        assert memory["o"].tobytes() == expected(q, k, v, 1e-3, 0.02).tobytes(), (way, t, s, d, e)


@pytest.mark.parametrize("held", [True, False])
def test_compiled(held, monkeypatch):
    """With all scores at hand, and chunk by chunk."""
    if not held:
        monkeypatch.setattr(integers, "MOST_LANE_BLOCK_BYTES", 0)
        monkeypatch.setattr(integers, "CHUNK_KEYS", 8)
    for t, s, d, e in [*SIZES, (20, 70, 64, 80)]:
        q, k, v = drawn((2, t, d)), drawn((2, s, d), 1), drawn((2, s, e), 2)
        lo, memory, out = lowered(HOST, q, k, v)
        compile_and_run(lo, memory, {})
        assert memory["o"].tobytes() == expected(q, k, v, 1e-3, 0.02).tobytes(), (held, t, s, d, e)


def test_open_extents_and_strides():
    q, k, v = drawn((9, 2, 20)).transpose(1, 0, 2), drawn((2, 20, 11), 1).transpose(0, 2, 1), drawn((2, 22, 7), 2)[:, ::2, ::-1]
    want = expected(q, k, v, 1e-3, 0.02)
    for symbols in (None, Symbols()):
        lo, memory, out = lowered(HOST, q, k, v, symbols)
        compile_and_run(lo, memory, {} if symbols is None else symbols.values)
        assert memory["o"].tobytes() == want.tobytes()


def test_scores_far_below_the_largest_have_no_weight():
    q, k, v = np.full((1, 8), 127, np.int8), np.array([[127] * 8, [-128] * 8], np.int8), np.array([[3], [100]], np.int8)
    lo, memory, out = lowered(HOST, q, k, v, multiplier=1e30, scale=0.5)
    compile_and_run(lo, memory, {})
    assert memory["o"].tobytes() == (np.float32(765) * (np.float32(0.5) / np.float32(255))).tobytes()


@pytest.mark.parametrize("multiplier", [-1e-3, float("inf"), float("nan"), 0.0, 1e-45])
def test_multipliers_that_are_none(multiplier):
    """NaN, and not what weights beyond 8 bits would give; 0 and denormal numbers are as good as others."""
    q, k, v = drawn((2, 4)), drawn((3, 4), 1), drawn((3, 5), 2)
    lo, memory, out = lowered(HOST, q, k, v, multiplier=multiplier)
    compile_and_run(lo, memory, {})
    want = expected(q, k, v, 0.0, 0.02) if 0 <= multiplier < 1 else np.full((2, 5), np.nan)
    assert np.array_equal(memory["o"].reshape(2, 5), want, equal_nan=True)
