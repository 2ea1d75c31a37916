"""Computed coordinates against NumPy: in both vector directions, over stored and computed sources."""

from __future__ import annotations

import numpy as np
import pytest
from launching import Symbols, array_of, run
from test_reduce import data

from tengen.base.dtype import dtype, float32, int32

from tengen.kernels.indexing.gather import Gather, Iota, OneHot, Pad, SearchSorted, TakeAlong, check_index, concat, pad, take  # isort: skip  # fmt: skip
from tengen.kernels.indexing.taps import TapSum
from tengen.kernels.lowering import Array, Lowering, contiguous_strides
from tengen.kernels.pointwise import pointwise
from tengen.kernels.source import Elementwise, Leaf, broadcast
from tengen.loops.lang import var
from tengen.loops.text import print_kernel

LAYOUTS = ["plain", "fortran"]


def evaluate(make, arrays, want, layout="plain", symbolic=False, strategy=None):
    """What `make(*sources)` gives, stored into an output of the wanted array's shape."""
    named = [array_of(a, i) for i, a in enumerate(arrays)]
    out = np.full(want.shape, 55, want.dtype, order="F" if layout == "fortran" else "C")
    o, omem = array_of(out, "out")
    sym = Symbols()
    views = [sym.array(a) if symbolic else a for a, _ in named]
    o = sym.array(o) if symbolic else o
    lo = Lowering(None, list(sym.values))
    if strategy:
        strategy(lo, [Leaf(a) for a in views], o)
    else:
        pointwise(lo, [make(*map(Leaf, views))], [o])
    run(lo, {**{i: m for i, (_, m) in enumerate(named)}, "out": omem}, sym.values)
    np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("deep", [False, True])
def test_places_and_weights_of_taps_are_loaded_once_for_all_channels(deep):
    r = np.random.default_rng(0)
    x, at, w = r.integers(0, 256, (2, 30, 40), np.uint8), r.integers(-1, 30, (2, 3, 7)), r.normal(size=(2, 3, 7)).astype("f4")
    want = np.zeros((2, 40, 7), "f4")
    for m, t, q in np.ndindex(*at.shape):
        if at[m, t, q] >= 0:
            want[m, :, q] += w[m, t, q] * x[m, at[m, t, q]]
    (image, im), (index, jm), (weight, wm) = (array_of(a, i) for i, a in enumerate((x, at, w)))
    out, om = array_of(np.zeros((2, 7, 40), "f4"), "out")
    lo = Lowering(None, [])
    taps = TapSum(Leaf(image.permute([0, 2, 1])), None, Leaf(index), Leaf(weight), 2)
    pointwise(lo, [twice(taps) if deep else taps], [out.permute([0, 2, 1])])
    run(lo, {0: im, 1: jm, 2: wm, "out": om}, {})
    np.testing.assert_allclose(om.reshape(2, 7, 40).transpose(0, 2, 1), want * (2 if deep else 1), rtol=1e-5, atol=1e-3)
    text = print_kernel(lo.launches[0].kernel)
    inner = text[text.index("for i in") : text.index("store")]
    assert inner.count("load") == 3 and "u8x16" in inner and "i64" not in inner, text  # one for each tap


def twice(s):
    return Elementwise(lambda v: v + v, [s], s.shape, s.dtype)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("symbolic", [False, True])
def test_gather(layout, symbolic):
    x = data((5, 6, 20))
    rng = np.random.default_rng(0)
    one = rng.integers(-5, 5, (18,))
    two = rng.integers(0, 6, (3, 17)).astype(np.int32)
    other = rng.integers(-20, 20, (3, 17))
    evaluate(lambda s, i: take(s, i, 0), [x, one], x[one], layout, symbolic)
    evaluate(lambda s, i: take(twice(s), i, 1), [x, two], 2 * x[:, two], layout, symbolic)
    evaluate(lambda s, i: take(s, i, 2), [x, other], x[:, :, other], layout, symbolic)
    evaluate(lambda s, i, j: Gather(s, {1: i, 2: j}, 1), [x, two, other], x[:, two, other], layout, symbolic)
    five = two % 5
    evaluate(lambda s, i, j: Gather(s, {0: i, 2: j}, 0), [x, five, other], x[five, :, other], layout, symbolic)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_take_along(layout):
    x = data((5, 6, 20))
    for axis in range(3):
        i = np.random.default_rng(1).integers(-x.shape[axis], x.shape[axis], (5, 6, 20))
        want = np.take_along_axis(x, i, axis)
        evaluate(lambda s, j, axis=axis: TakeAlong(s, j, axis), [x, i], want, layout)
        evaluate(lambda s, j, axis=axis: TakeAlong(twice(s), j, axis), [x, i], 2 * want, layout, True)


def test_bad_indices_stay_inside():
    x, i = data((4, 3)), np.array([9, -9, 1, 1 << 62, -(1 << 63)])
    evaluate(lambda s, j: take(s, j, 0), [x, i], x[[3, 0, 1, 3, 0]])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("symbolic", [False, True])
def test_pad_and_concat(layout, symbolic):
    x, y, z = data((3, 4, 20)), data((3, 2, 20), seed=1), data((3, 17, 20), seed=2)
    widths = ((1, 2), (3, 0), (4, 5))
    for mode, name in [("constant", "constant"), ("edge", "edge"), ("reflect", "reflect"), ("circular", "wrap")]:
        w = widths if mode != "reflect" else ((1, 2), (3, 0), (4, 5))
        want = np.pad(x, w, name, **({"constant_values": 7} if mode == "constant" else {}))
        evaluate(lambda s, w=w, mode=mode: Pad(s, w, mode, 7), [x], want, layout, symbolic)
        evaluate(None, [x], want, layout, symbolic, lambda lo, s, o, w=w, mode=mode: pad(lo, s[0], o, w, mode, 7))
    want = np.concatenate([x, y, z], 1)
    evaluate(None, [x, y, z], want, layout, symbolic, lambda lo, s, o: concat(lo, s, o, 1))
    want = np.concatenate([2 * x, 2 * x[:, :, ::2]], 2)
    evaluate(None, [x, x[:, :, ::2]], want, layout, False, lambda lo, s, o: concat(lo, [twice(a) for a in s], o, 2))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_one_hot_and_iota(layout):
    i = np.random.default_rng(0).integers(-1, 9, (5, 18))
    want = (i[..., None] == np.arange(8)).astype(np.float32)
    evaluate(lambda s: OneHot(s, 8, float32), [i], want, layout)
    ramp = 0.5 + 0.25 * np.arange(20, dtype=np.float32)
    evaluate(lambda: Iota((3, 20), float32, 1, 0.5, 0.25), [], np.tile(ramp, (3, 1)), layout)
    evaluate(lambda: Iota((20, 3), int32, 0, -3, 2), [], np.repeat(np.arange(-3, 37, 2, np.int32)[:, None], 3, 1), layout)
    evaluate(lambda: Iota((5,), dtype("float16"), 0, 1, 2), [], np.arange(1, 11, 2).astype(np.float16))


@pytest.mark.parametrize("symbolic", [False, True])
def test_search_sorted(symbolic):
    rng = np.random.default_rng(0)
    for n in (0, 1, 2, 5, 16, 63, 64, 100):
        table = np.sort(rng.integers(0, 30, n)).astype(np.float32)
        x = rng.integers(-1, 31, (3, 19)).astype(np.float32)
        if n > 5:
            table[-2:] = np.nan
            x[0, 0] = np.nan
        for right in (False, True):
            want = np.searchsorted(table, x, "right" if right else "left")
            evaluate(lambda t, v, right=right: SearchSorted(t, v, right), [table, x], want, symbolic=symbolic)
    tables = np.sort(data((3, 40)), -1)
    x = data((3, 19), seed=3)
    want = np.stack([np.searchsorted(t, v) for t, v in zip(tables, x)])
    for layout in LAYOUTS:
        evaluate(lambda t, v: SearchSorted(t, v), [tables, x], want, layout, symbolic)


def test_check_index():
    for i, extent, bad in [([0, 3, -4], 4, 0), ([0, 4], 4, 1), ([-5], 4, 1), ([], 4, 0), (3, 4, 0), (4, 4, 1)]:
        i = np.array(i, np.int64)
        a, mem = array_of(i, "i")
        flag = np.full(1, 9, np.int32)
        f, fm = array_of(flag, "f")
        lo = Lowering(None)
        check_index(lo, Leaf(a), extent, f)
        run(lo, {"i": mem.reshape(-1), "f": fm})
        assert flag[0] == bad


def test_gathered_rows_fuse_with_arithmetic():
    x, i, b = data((9, 20)), np.random.default_rng(0).integers(0, 9, 7), data((20,))
    make = lambda s, j, c: Elementwise(lambda p, q: p + q, [take(s, j, 0), broadcast(c, (7, 20))], (7, 20), float32)
    evaluate(make, [x, i, b], x[i] + b)


@pytest.mark.parametrize("rows", [9, 1 << 18, None])
def test_rows_of_a_large_table_are_fetched_early(rows):
    n = var("n") if rows is None else rows
    table, index, out = (
        Array(id, d, s, contiguous_strides(s))
        for id, d, s in (("x", float32, (n, 40)), ("i", int32, (30,)), ("o", float32, (30, 40)))
    )
    lo = Lowering(None, [n] if rows is None else [])
    pointwise(lo, [take(Leaf(table), Leaf(index), 0)], [out])
    assert ("prefetch" in print_kernel(lo.launches[0].kernel)) == (rows != 9)


def test_fetching_rows_changes_nothing():
    x, i = data((300, 40)), np.random.default_rng(0).integers(-300, 300, 1000)
    evaluate(lambda s, j: take(s, j, 0), [x, i], x[i], symbolic=True)
