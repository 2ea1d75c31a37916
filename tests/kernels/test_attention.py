"""Kernels of attention: against float64, interpreter against machine code as bits, symbolic extents, tiles of other targets,
caches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from exhaustive import but
from launching import Symbols, array_of, compile_and_run, run

import tengen.functional as F
from tengen import Tensor, set_threads
from tengen.autodiff import vjp
from tengen.base.dtype import float32
from tengen.codegen.targets import Target
from tengen.kernels import numerics
from tengen.kernels.attention.backward import attention_grad
from tengen.kernels.attention.forward import attention
from tengen.kernels.attention.one_query import _OneQuery
from tengen.kernels.lowering import Array, Lowering
from tengen.loops.lang import const
from tengen.ops.attention import _np_attention, _np_attention_grad


def samples(t, s, d, e, groups=2, dtype=np.float32):
    rng = np.random.default_rng(t * s)
    return [rng.standard_normal((groups, n, w)).astype(dtype) for n, w in ((t, d), (s, d), (s, e), (t, e))]


def launched(q, k, v, g, causal=None, mask=None, target=None, interpreted=False, symbols=False, gradients=True):
    """[result, log-sum-exp, gradients of q, k, v] by the kernels; without `gradients` the first two alone."""
    lo = Lowering(Target.host() if target is None else target)
    results = [np.full((*q.shape[:-1], v.shape[-1]), 7, q.dtype), np.full(q.shape[:-1], 7, q.dtype)]
    results += [np.full(x.shape, 7, q.dtype) for x in (q, k, v)]
    arrays, memory = [], {}
    for i, x in enumerate([q, k, v, g, *results, *([] if mask is None else [mask])]):
        a, memory[i] = array_of(x, i)
        arrays.append(a)
    values = {}
    if symbols:  # positions are symbols, groups and features are known
        extents = Symbols()
        for i, a in enumerate(arrays):
            shape = tuple(d if j == 0 or (j == 2 and i < 9) else extents.extent(d) for j, d in enumerate(a.shape))
            arrays[i] = a.__class__(a.id, a.dtype, shape, tuple(map(extents.stride, a.strides)), a.offset)
        values, lo = extents.values, Lowering(lo.target, list(extents.values))
    a, b, c, grad, out, lse, *grads = arrays[:9]
    m = None if mask is None else arrays[9]
    offset = {None: None, "upper_left": 0, "lower_right": b.shape[1] - a.shape[1]}[causal]
    attention(lo, a, b, c, m, out, lse, 0.3, offset)
    if gradients:
        attention_grad(lo, grad, None, (a, b, c), m, out, lse, grads, 0.3, offset)
    (run if interpreted else compile_and_run)(lo, memory, values)
    return results


CASES = [
    (3, 5, 4, 3, None, None), (33, 70, 9, 17, "lower_right", None), (40, 70, 5, 6, "upper_left", "bool"),
    (70, 40, 16, 8, "lower_right", "float"),
]  # fmt: skip


def mask_of(kind, t, s):
    rng = np.random.default_rng(9)
    if kind is None:
        return None
    return rng.random((2, t, s)) < 0.6 if kind == "bool" else rng.standard_normal((2, t, s)).astype("f")


@but(every=2)
@pytest.mark.parametrize("t, s, d, e, causal, kind", CASES)
def test_values_and_gradients(t, s, d, e, causal, kind):
    q, k, v, g = samples(t, s, d, e)
    mask = mask_of(kind, t, s)
    wide = [x.astype(np.float64) for x in (q, k, v, g)]
    y, lse = _np_attention(*wide[:3], mask, 0.3, causal or "none")
    want = [y, lse, *_np_attention_grad(wide[3], None, *wide[:3], mask, y, lse, 0.3, causal or "none")[:3]]
    got = launched(q, k, v, g, causal, mask)
    for a, b in zip(got, want):
        # Scores, weights and results of size 1 (a gradient: at most 20), each a sum of at most some hundred terms: 32 roundings.
        np.testing.assert_allclose(a, b, rtol=32 * 2.0**-24, atol=32 * 2.0**-24 * np.abs(b[np.isfinite(b)]).max(initial=1))
    small = replace(Target.host(), vector_bytes=32, vector_registers=16)  # tiles of 5 and 6 rows
    for other in (launched(q, k, v, g, causal, mask, symbols=True), launched(q, k, v, g, causal, mask, small)):
        assert [x.tobytes() for x in other] == [x.tobytes() for x in got]


@pytest.mark.parametrize("t, s, d, e, causal, kind", [(3, 5, 4, 3, None, "float"), (5, 3, 3, 2, "lower_right", None)])
def test_machine_code_is_what_the_interpreter_says(t, s, d, e, causal, kind):
    x, mask = samples(t, s, d, e, 1), mask_of(kind, t, s)
    mask = None if mask is None else mask[:1]
    a, b = (launched(*x, causal, mask, interpreted=i) for i in (False, True))
    assert [y.tobytes() for y in a] == [y.tobytes() for y in b]


def test_rows_do_not_know_of_each_other():
    """Batches, threads, a cache: a query's bits are those it has alone."""
    q, k, v, g = (Tensor(x.reshape(3, 2, -1, 8)) for x in samples(150, 150, 8, 8, 6))
    f = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal="lower_right")
    y, pull = vjp(f, q, k, v)
    grads = [x.numpy() for x in pull(g)]
    for i in range(3):
        part, pull = vjp(f, q[i : i + 1], k[i : i + 1], v[i : i + 1])
        assert part.numpy().tobytes() == y[i].numpy().tobytes()
        assert [x.numpy().tobytes() for x in pull(g[i : i + 1])] == [x[i].tobytes() for x in grads]
    set_threads(1)
    assert f(q, k, v).numpy().tobytes() == y.numpy().tobytes()
    set_threads(2)
    for start, stop in ((0, 1), (63, 65), (100, 150)):
        cached = f(q[:, :, start:stop], k[:, :, :stop], v[:, :, :stop])
        assert cached.numpy().tobytes() == np.ascontiguousarray(y.numpy()[:, :, start:stop]).tobytes()


@pytest.mark.parametrize("s, d, e, causal, kind", [
    (3, 5, 3, "lower_right", "float"), (64, 16, 32, None, "bool"), (70, 9, 150, None, None), (150, 16, 16, "upper_left", "float"),
    (0, 4, 4, None, None),
])  # fmt: skip
def test_one_query_has_the_bits_that_it_has_beside_another(s, d, e, causal, kind):
    """The kernel of one query, whose lanes are keys, and that of two, whose lanes are queries: also where keys and values are not finite."""
    q, k, v, g = samples(2, s, d, e)
    mask = mask_of(kind, 2, s)
    alone = mask
    if causal == "lower_right":  # the first of two queries does not see the last key
        alone = np.where(np.arange(s) == s - 1, np.float32(-np.inf), mask)
    alone = None if alone is None else alone[:, :1].copy()
    ways = [{}, {"symbols": True}, {"target": replace(Target.host(), vector_bytes=16, vector_registers=16)}, {"interpreted": True}]
    for extreme in (False, True):
        if extreme and s > 40:
            k[0, 37], v[0, 40, 0], v[1, 33], k[1, 5] = np.inf, np.nan, np.inf, k[1, 5] * 1e20
        two = launched(q, k, v, g, causal, mask, gradients=False)[:2]
        for way in ways[: 4 if s < 10 else 3]:
            one = launched(q[:, :1].copy(), k, v, g[:, :1].copy(), causal, alone, gradients=False, **way)[:2]
            for a, b in zip(one, two):
                a, b = (np.where(np.isnan(x), np.float32(np.nan), x) for x in (a[:, 0], b[:, 0]))
                assert a.tobytes() == b.tobytes(), (extreme, way)


@pytest.mark.parametrize(
    "keys, features, causal", [(1, 16, None), (64, 64, None), (70, 40, None), (150, 16, "upper_left"), (70, 32, "upper_left")]
)
def test_one_query_reads_each_key_and_none_that_nobody_sees(keys, features, causal, monkeypatch):
    """Where a cache has room for more, that would be memory read for nothing."""
    q, k, v, g = samples(1, keys, features, 16)
    room = [np.concatenate([x, np.full((2, 100, x.shape[2]), np.nan, np.float32)], 1) for x in (k, v)]
    seen, copy = np.zeros_like(room[0]), _OneQuery._copy

    def mark(self, to, row, d, count):
        copy(self, to, row, d, count)
        self.k.store(self.k.write(Array("seen", float32, (seen.size,), (1,))), row + d, const(1.0, float32))

    monkeypatch.setattr(_OneQuery, "_copy", mark)
    lo, memory, arrays = Lowering(Target.host()), {"seen": seen.reshape(-1)}, []
    outs = [np.zeros((2, 1, 16), np.float32), np.zeros((2, 1), np.float32)]
    for i, x in enumerate([q, *(x[:, :keys] for x in room), *outs]):
        a, memory[i] = array_of(x, i)
        arrays.append(a)
    attention(lo, *arrays[:3], None, *arrays[3:], 0.3, {None: None, "upper_left": 0}[causal])
    run(lo, memory, {})
    stop = keys if causal is None else min(keys, numerics.GROUP_LANES)
    assert (seen[:, :stop, ::16] == 1).all() and not seen[:, stop:].any() and np.isfinite(outs[0]).all()


def test_what_is_hidden_does_not_matter():
    q, k, v, _ = samples(4, 90, 8, 8)
    mask = np.zeros((4, 90), bool)
    mask[1:, 5:] = True
    y = F.scaled_dot_product_attention(Tensor(q), Tensor(k), Tensor(v), Tensor(mask, dtype="bool")).numpy()
    assert (y[:, 0] == 0).all() and np.isfinite(y).all()
    added = np.where(mask, 0, -np.inf).astype("f")
    assert F.scaled_dot_product_attention(Tensor(q), Tensor(k), Tensor(v), Tensor(added)).numpy().tobytes() == y.tobytes()
    pull = vjp(lambda *x: F.scaled_dot_product_attention(*x, Tensor(mask, dtype="bool")), Tensor(q), Tensor(k), Tensor(v))[1]
    grads = [x.numpy() for x in pull(Tensor(q))]
    assert all(np.isfinite(x).all() for x in grads) and (grads[0][:, 0] == 0).all() and (grads[1][:, :5] == 0).all()
    huge = F.scaled_dot_product_attention(Tensor(q * 1e18), Tensor(k * 1e18), Tensor(v)).numpy()
    assert np.isfinite(huge).all()
    q[0, 1, 2] = np.nan
    y = F.scaled_dot_product_attention(Tensor(q), Tensor(k), Tensor(v)).numpy()
    assert np.isnan(y[0, 1]).all() and np.isfinite(y[0, [0, 2, 3]]).all()


def test_dropout_and_many_features():
    q, k, v, _ = samples(6, 40, 8, 600)
    q, k = (np.repeat(x, 64, -1) for x in (q, k))  # 512 + 600 features
    y = F.scaled_dot_product_attention(Tensor(q), Tensor(k), Tensor(v), None, True, 0.05).numpy()
    want = _np_attention(*(x.astype(np.float64) for x in (q, k, v)), None, 0.05, "upper_left")[0]
    # A score is a sum of 512 terms, 64 equal ones in a row, and of size 25: off by some 4 * 25 roundings, which the exponential
    # makes the relative error of a weight.
    np.testing.assert_allclose(y, want, rtol=0, atol=100 * 2.0**-24 * np.abs(want).max())
    kept = F.scaled_dot_product_attention(Tensor(q), Tensor(k), F.ones((2, 40, 3)), dropout=0.5).numpy()
    assert 0 < kept.std() and abs(kept.mean() - 1) < 0.3


def test_tiles_do_not_decide_what_values_that_are_not_finite_reach():
    q, k, v, g = samples(100, 100, 8, 8, 8)
    v[:, 70], k[:, 90] = np.inf, np.nan
    same = lambda xs: [np.where(np.isnan(x), np.float32(np.nan), x).tobytes() for x in xs]
    sizes = ((64, 32), (16, 32), (32, 16))  # tiles of 8 rows, of 5 and 6, of one vector and 5 and 6
    wide, *others = (launched(q, k, v, g, "upper_left", target=replace(Target.host(), vector_bytes=b, vector_registers=n)) for b, n in sizes)
    few = launched(*(x[:2].copy() for x in (q, k, v, g)), "upper_left")
    assert np.isfinite(wide[0][:, :64]).all() and same(few) == same([x[:2] for x in wide])
    assert all(same(x) == same(wide) for x in others)


@but(every=3)
@pytest.mark.parametrize("t, s, d, e, causal, kind", [*CASES, (300, 90, 40, 20, "upper_left", None), (90, 300, 5, 40, None, "float")])
def test_one_kernel_of_many_groups_gives_the_bits_of_two_of_few(t, s, d, e, causal, kind):
    x = samples(t, s, d, e, 8)
    mask = None if kind is None else np.concatenate([mask_of(kind, t, s)] * 4)
    small = replace(Target.host(), vector_bytes=32, vector_registers=16)
    whole = launched(*x, causal, mask)
    for got in (launched(*x, causal, mask, small), launched(*x, causal, mask, symbols=True)):
        assert [y.tobytes() for y in got] == [y.tobytes() for y in whole]
    for i in range(0, 8, 2):
        part = launched(*(a[i : i + 2].copy() for a in x), causal, None if mask is None else mask[i : i + 2].copy())
        assert [y.tobytes() for y in part] == [y[i : i + 2].tobytes() for y in whole]
