"""Row fusion: the same bits as separate kernels, in every direction, for several reductions that depend on each other."""

from __future__ import annotations

import numpy as np
import pytest
from exhaustive import but
from launching import Symbols, array_of, run
from test_reduce import data, model, same

import tengen.functional as F
from tengen import Tensor, trace
from tengen.kernels.lowering import Lowering
from tengen.kernels.reduction import rows
from tengen.kernels.reduction.reduce import Reduced, Spread
from tengen.kernels.reduction.rows import rowwise
from tengen.kernels.source import MOST_INPUTS, Elementwise, Leaf, broadcast
from tengen.loops.lang import as_int, call
from tengen.loops.text import print_kernel


def ew(fn, *operands):
    shape = max((s.shape for s in operands), key=lambda s: sum(1 for d in s if as_int(d) != 1))
    return Elementwise(fn, [broadcast(s, shape) for s in operands], shape, operands[0].dtype)


def graph(x, axes):
    """Like softmax, without exp: y = (x - max)^2 / sum((x - max)^2); also the max and the sum, and a norm of the result."""
    top = Reduced("max", x, axes)
    d = ew(lambda a, b: (a - b) * (a - b), x, top)
    total = Reduced("add", d, axes)
    y = ew(lambda a, b: a / b, d, total)
    return y, ew(lambda m, s: m + s, top, total), Reduced("min", y, axes)


def wanted(x, axes):
    keep = lambda op, v: np.expand_dims(model(op, v, axes), axes)
    top = keep("max", x)
    d = (x - top) * (x - top)
    total = keep("add", d)
    with np.errstate(all="ignore"):
        y = d / total
    return y, top + total, keep("min", y)


@but(every=3)
@pytest.mark.parametrize("mode", ["known", "symbolic", "separate"])
@pytest.mark.parametrize("direction", [0, 1, 2, (1, 2), (0, 1), (0, 2), (0, 1, 2)])
def test_fused_rows_have_the_bits_of_separate_kernels(direction, mode, monkeypatch):
    axes = (direction,) if isinstance(direction, int) else direction
    if mode == "separate":
        monkeypatch.setattr(rows, "LONG_ROW_ELEMENTS", 0)
        monkeypatch.setattr(rows, "LEAST_FUSED_ROWS", 1 << 30)
    base = data((7, 18, 35))
    for x in (base, base.transpose(1, 2, 0), base[:, ::2, ::-1], data((2, 3, 4500))):
        if x.size > 20000 and axes[-1] == 1:
            continue
        a, mem = array_of(x, "x")
        unit = [1 if i in axes else d for i, d in enumerate(x.shape)]
        outs = [np.full(x.shape, 55, x.dtype), np.full(unit, 55, x.dtype), np.full(unit, 55, x.dtype)]
        arrays = [array_of(o, i) for i, o in enumerate(outs)]
        sym = Symbols()
        named = [sym.array(v) if mode == "symbolic" else v for v in (a, *(o for o, _ in arrays))]
        lo = Lowering(None, list(sym.values))
        rowwise(lo, graph(Leaf(named[0]), axes), named[1:], axes)
        assert mode == "separate" or len(lo.launches) == 1
        run(lo, {"x": mem, **{i: m for i, (_, m) in enumerate(arrays)}}, sym.values)
        for got, want in zip(outs, wanted(x, axes)):
            assert same(got, want), (x.shape, x.strides, axes)


@pytest.mark.parametrize("length, together", [(35, True), (rows.SHORT_ROW_ELEMENTS + 1, False)])
def test_short_rows_have_each_value_computed_before_the_next_one(length, together, monkeypatch):
    """For 8 rows and then 5, with the bits of one row after another."""
    x, found = data((13, length)), []
    for most in (rows.SHORT_ROW_ELEMENTS, 0):
        monkeypatch.setattr(rows, "SHORT_ROW_ELEMENTS", most)
        a, mem = array_of(x, "x")
        outs = [np.full(shape, 55, x.dtype) for shape in (x.shape, (13, 1), (13, 1))]
        arrays = [array_of(o, i) for i, o in enumerate(outs)]
        lo = Lowering(None)
        rowwise(lo, graph(Leaf(a), (1,)), [o for o, _ in arrays], (1,))
        run(lo, {"x": mem, **{i: m for i, (_, m) in enumerate(arrays)}}, {})
        found.append((print_kernel(lo.launches[0].kernel).count("scratch values"), [o.tobytes() for o in outs]))
    assert [n for n, _ in found] == [3 * together, 0] and found[0][1] == found[1][1]


def test_rows_that_do_not_exist():
    for shape in [(0, 5), (5, 0)]:
        x = np.zeros(shape, np.float32)
        a, mem = array_of(x, "x")
        out, total = np.zeros(shape, np.float32), np.full((shape[0], 1), 9, np.float32)
        (o, om), (t, tm) = array_of(out, "o"), array_of(total, "t")
        lo = Lowering(None)
        s = Reduced("add", Leaf(a), (1,))
        rowwise(lo, [ew(lambda p, q: p - q, Leaf(a), s), s], [o, t], (1,))
        run(lo, {"x": mem, "o": om, "t": tm})
        assert (total == 0).all() and not np.signbit(total).any()


def test_operands_of_a_row():
    x, w, b = data((6, 40)), data((40,)), data((6, 1))
    (a, am), (c, cm), (d, dm) = array_of(x, "x"), array_of(w, "w"), array_of(b, "b")
    out = np.zeros_like(x)
    o, om = array_of(out, "o")
    lo = Lowering(None)
    s = Reduced("add", ew(lambda p, q: p * q, Leaf(a), Leaf(c)), (1,))
    rowwise(lo, [ew(lambda p, q, r: p - q * r, Leaf(a), s, Leaf(d))], [o], (1,))
    run(lo, {"x": am, "w": cm, "b": dm, "o": om})
    assert same(out, x - model("add", x * w, (1,))[:, None] * b)


@pytest.mark.parametrize("axis", [0, 1])
def test_exponentials_are_computed_once_also_in_place(axis):
    x = np.clip(data((20, 37)), -5, 5)

    def softmax(s):
        e = ew(lambda a, b: call("exp", a - b), s, Reduced("max", s, (axis,)))
        return ew(lambda a, b: a / b, e, Reduced("add", e, (axis,)))

    def computed(lower, x, shared):
        a, mem = array_of(x.copy(), "x")
        out = mem.reshape(x.shape) if shared else np.full_like(x, 55)
        total = np.zeros([1 if i == axis else d for i, d in enumerate(x.shape)], x.dtype)
        (o, om), (t, tm) = array_of(out, "o"), array_of(total, "t")
        lo = Lowering(None)
        lower(lo, Leaf(a), o, t)
        run(lo, {"x": mem, "o": mem if shared else om, "t": tm})
        return out, lo

    fused = lambda lo, s, o, t: rowwise(lo, [softmax(s)], [o], (axis,))
    count = lambda lo: print_kernel(lo.launches[0].kernel).count("exp(")
    plain, lo = computed(fused, x, False)
    unpacked, _ = computed(fused, x, True)
    assert same(plain, unpacked)
    for shared in (False, True):  # x is read again at the end: the exponentials are computed again
        both = lambda lo, s, o, t: rowwise(lo, [ew(lambda p, q: p + (q - q), softmax(s), s)], [o], (axis,))
        got, again = computed(both, x, shared)
        assert same(got, plain) and count(again) == 2 * count(lo)
    want = np.exp(x.astype(np.float64) - x.max(axis, keepdims=True))
    np.testing.assert_allclose(plain, want / want.sum(axis, keepdims=True), rtol=1e-5)


def test_what_lies_in_memory_once_for_a_row_is_computed_once():
    x, b = data((6, 40)), np.abs(data((6, 1)))
    (a, am), (d, dm) = array_of(x, "x"), array_of(b, "b")
    out = np.zeros_like(x)
    o, om = array_of(out, "o")
    lo = Lowering(None)
    root = ew(lambda q: call("rsqrt", q), Leaf(d))
    s = Reduced("add", ew(lambda p, q: p * q, Leaf(a), root), (1,))
    rowwise(lo, [ew(lambda p, q, r: p * q + r, Leaf(a), root, s)], [o], (1,))
    run(lo, {"x": am, "b": dm, "o": om})
    one = Lowering(None)
    roots = np.zeros_like(b)
    r, rm = array_of(roots, "r")
    rowwise(one, [ew(lambda q: call("rsqrt", q), Leaf(d))], [r], (1,))
    run(one, {"b": dm, "r": rm})
    assert same(out, x * roots + model("add", x * roots, (1,))[:, None])
    text = print_kernel(lo.launches[0].kernel)
    assert text.count("rsqrt(") == 2 and "rsqrt(splat" not in text, "once for the sum and once for the result, of one number each"


def test_operands_that_share_what_they_read_name_it_few_times():
    """Behind each of a chain of softmaxes four times as many ways led to the first operand: ten took ten seconds to lower."""
    x = source = Leaf(array_of(np.zeros((4, 9), np.float32), "x")[0])
    for i in range(16):
        source = ew(lambda a, b: a + b, source, Spread(Reduced("add", source, (1,)), source.shape) if i % 2 else source)
    assert {*source.leaves()} == {x.array} and len(source.leaves()) <= MOST_INPUTS


@pytest.mark.parametrize("length", [9, 40])
def test_a_chain_of_softmaxes_has_the_bits_of_its_calls(length):
    def chain(x):
        for _ in range(12):
            x = F.softmax(x * 3.0, 1)
        return x

    x = Tensor(np.random.default_rng(1).standard_normal((4, length), np.float32))
    assert trace(chain)(x).numpy().tobytes() == chain(x).numpy().tobytes()
