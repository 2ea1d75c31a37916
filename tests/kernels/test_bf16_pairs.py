"""Contractions in pairs of bfloat16 against a loop of `dot2` that follows the chunk rule, as bits: every layout, odd and even
sums, chunks that begin at odd positions, dtypes of operands, targets, the interpreter, and programs for any extents."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import pytest
from exhaustive import but
from launching import array_of
from machine import Compiled
from test_contraction import HOST, V3, contracted, data, image_windows, same, starts

from tengen.base.dtype import bfloat16
from tengen.kernels.contraction.contract import contract
from tengen.kernels.contraction.formats import dot_format
from tengen.kernels.lowering import Lowering
from tengen.loops.exact import dot2

bf = bfloat16.numpy
PAIRS = dot_format(bfloat16, "bfloat16")


def model(a: np.ndarray, b: np.ndarray, g: int, m: int, k: int, n: int) -> np.ndarray:
    """The contraction in float32, pair by pair."""
    gs, ms, ks, ns = a.shape[:g], a.shape[g : g + m], a.shape[g + m :], b.shape[g + k :]
    bits = lambda x: np.ascontiguousarray(x).astype(bf).view(np.uint16).astype(np.uint32)
    a, b = bits(a).reshape(prod(gs), prod(ms), prod(ks)), bits(b).reshape(prod(gs), prod(ks), prod(ns))
    shape, cuts, total = (prod(gs), prod(ms), prod(ns)), [*starts(ks), prod(ks)], None
    with np.errstate(all="ignore"):
        for start, stop in zip(cuts, cuts[1:]):
            acc = np.zeros(shape, np.float32)
            for i in range(start, stop, 2):
                x, y = a[:, :, i, None], b[:, i, None, :]
                if i + 1 < stop:
                    x, y = x | a[:, :, i + 1, None] << np.uint32(16), y | b[:, i + 1, None, :] << np.uint32(16)
                acc = dot2(acc, x, y)
            total = acc if total is None else total + acc
    return (np.zeros(shape, np.float32) if total is None else total).reshape((*gs, *ms, *ns))


def check(a, b, axes, out=None, modes=(False, True), **kw):
    want = model(a, b, *axes)
    for symbolic in modes:
        z = np.full(want.shape, 7, np.float32 if a.dtype == np.float16 else a.dtype) if out is None else out
        z[...] = 7
        got = np.ascontiguousarray(contracted(a, b, z, axes, symbolic, format=PAIRS, **kw))
        assert same(got, want.astype(got.dtype)), (a.shape, b.shape, axes, symbolic, kw)


@but(every=3)
@pytest.mark.parametrize("k", [1, 2, 3, 255, 256, 257, 601])
def test_sizes(k):
    for m, n in [(1, 1), (1, 33), (15, 17), (33, 16), (130, 5)]:
        check(data((m, k), bf), data((k, n), bf, 1), (0, 1, 1, 1))
    check(data((k, 15), bf).T, data((17, k), bf, 1).T, (0, 1, 1, 1))
    check(data((15, k)), data((17, k), seed=1).T, (0, 1, 1, 1))


def test_panels_packed_one_at_a_time():
    for k in (302, 600):
        check(data((120, k), bf), data((k, 250), bf, 1), (0, 1, 1, 1), modes=(False,))


def test_layouts():
    for dt in (bf, np.float32):
        x, y = data((40, 71), dt), data((71, 50), dt, 1)
        turned = lambda v: np.ascontiguousarray(v.T).T
        layouts_a = [
            x,
            turned(x),
            data((80, 142), dt)[::2, ::2],
            x[::-1, ::-1],
            np.broadcast_to(x[:1], x.shape),
            x[:, :1].repeat(70, 1),
        ]
        layouts_b = [y, turned(y), data((142, 100), dt, 1)[::2, ::2], y[::-1, ::-1], np.broadcast_to(y[:, :1], y.shape), y[:70]]
        for i, a in enumerate(layouts_a):
            for j, b in enumerate(layouts_b):
                if a.shape[1] == b.shape[0] and (i == 0 or j == 0 or i == j):
                    check(a, b, (0, 1, 1, 1), modes=(False,) if i and j else (False, True))
    wide = np.zeros((80, 100), np.float32)
    for out in (np.zeros((50, 40), np.float32).T, wide[::2, ::2], wide[:40, :50][::-1, ::-1]):
        check(x, y, (0, 1, 1, 1), out)


def test_roles_of_axes():
    check(data((2, 3, 5, 7), bf), data((2, 3, 7, 4), bf, 1), (2, 1, 1, 1))
    check(data((2, 3, 5), bf), data((5, 2, 18), bf, 1), (0, 2, 1, 2))
    check(data((4, 3, 5)), data((3, 5, 6), seed=1), (0, 1, 2, 1))
    check(data((4, 3, 301), bf), data((3, 301, 6), bf, 1), (0, 1, 2, 1))
    check(data((7, 20), bf), data((7, 20), bf, 1), (1, 0, 1, 0))
    check(data((301,), bf), data((301,), bf, 1), (0, 0, 1, 0))
    check(data((9,), bf), data((20,), bf, 1), (0, 1, 0, 1))
    check(data((40, 601), bf).T, data((40,), bf, 1), (0, 1, 1, 0))
    check(data((20, 1001), bf), data((1001, 20), bf, 1), (0, 1, 1, 1), np.zeros((20, 20), np.float32))
    for m, k, n in [(0, 3, 4), (3, 0, 4), (3, 4, 0)]:
        check(data((m, k), bf), data((k, n), bf), (0, 1, 1, 1))


@pytest.mark.parametrize("n,h,w,c,o,k,stride,dilation", [
    (2, 8, 9, 1, 6, (5, 5), 1, 1), (1, 7, 7, 70, 20, (3, 3), 2, 1), (2, 9, 20, 3, 40, (3, 2), 1, 2), (1, 6, 6, 257, 5, (2, 2), 1, 1),
    (2, 12, 12, 3, 20, (7, 7), 1, 1),
])  # fmt: skip
def test_convolutions_and_their_weight_gradients(n, h, w, c, o, k, stride, dilation):
    a = image_windows(data((n, h, w, c), bf), k, stride, dilation)
    check(a, data((*k, c, o), bf, 1), (0, 3, 3, 1))
    check(a, data((o, c, *k), bf, 1).transpose(2, 3, 1, 0), (0, 3, 3, 1))
    grad = data((*a.shape[:3], o), bf, 2)
    check(a.transpose(3, 4, 5, 0, 1, 2), grad, (0, 3, 3, 1))
    check(a.transpose(3, 4, 5, 0, 1, 2), grad, (0, 3, 3, 1), np.zeros((o, c, *k), np.float32).transpose(2, 3, 1, 0))


def test_the_interpreter_and_other_targets():
    for m, k, n in [(3, 5, 4), (15, 20, 33), (2, 259, 17)]:
        for more in ({"interpreted": True}, {"target": V3}, {"target": replace(HOST, l2_bytes=1 << 8)}):
            check(data((m, k), bf), data((k, n), bf, 1), (0, 1, 1, 1), **more)
            check(data((k, m), bf).T, data((n, k), bf, 1).T, (0, 1, 1, 1), **more)


def test_values_that_need_care():
    a, b = data((5, 7), bf), data((7, 18), bf, 1)
    a[0, 6], a[1, 0], a[2, 1], b[6, 3], b[2, 2] = np.inf, np.nan, -np.inf, 0, np.inf
    a[3], b[:, 5] = 1e-39, 1e-38
    check(a, b, (0, 1, 1, 1))
    check(np.asarray(a, order="F"), np.asarray(b, order="F"), (0, 1, 1, 1))


def test_a_long_sum_of_few_results_is_shared_out():
    x = image_windows(data((4, 34, 34, 3), bf), (3, 3))
    a, grad = x.transpose(3, 4, 5, 0, 1, 2), data((4, 32, 32, 20), bf, 2)
    out = np.zeros((3, 3, 3, 20), np.float32)
    arrays, memory = [], {}
    for v, id in ((a, "a"), (grad, "b"), (out, "out")):
        array, memory[id] = array_of(v, id)
        arrays.append(array)
    lo = Lowering(HOST)
    contract(lo, *arrays, 0, 3, 3, 1, format=PAIRS)
    assert "chunks" in lo.launches[-1].kernel.name
    Compiled(lo, memory, ["out"])()
    assert same(out, model(a, grad, 0, 3, 3, 1))
