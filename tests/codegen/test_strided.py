"""Channels of pixels and rows read backwards: whole vectors and shuffles have the interpreter's bits, and touch nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from exhaustive import but
from running import call, load, same
from test_access import FENCED, HOST, compare, values

from tengen.base.dtype import ALL, float32, uint8
from tengen.codegen.llvm import emit_kernel
from tengen.codegen.targets import Target
from tengen.loops.builder import Builder
from tengen.loops.lang import LANES, ramp

TARGETS = [HOST, *(Target.named(t) for t in ("x86-64-v3", "x86-64") if HOST.arch == "x86_64")]
SCALAR = ("extractelement", "insertelement")


def channels(dt, step: int, order) -> Builder:
    """Reads these channels of pixels `step` elements apart, one vector after the other."""
    k = Builder("channels")
    x, o, first = k.input("x", dt), k.output("o", dt), k.int("first")
    some = [k.load(x, ramp() * step + (first + c)) for c in order]
    for i, v in enumerate(some):
        k.store(o, i * LANES, v)
    return k


@but(every=3)
@pytest.mark.parametrize("dt", ALL, ids=str)
def test_channels_of_pixels_are_read_with_nothing_before_or_behind(dt):
    for step, order in (
        (2, [0, 1]), (3, [2, 0, 1]), (3, [1]), (4, [0, 3]), (6, [1, 0, 2]), (-1, [0]), (-2, [1, 0]), (-3, [0, 1, 2]), (-4, [3]),
        (-8, [2, 3, 5, 7]),
    ):  # fmt: skip
        kernel = channels(dt, step, order).build()
        n = (LANES - 1) * abs(step) + max(order) - min(order) + 1
        first = (LANES - 1) * -step - min(order) if step < 0 else -min(order)
        at = [[first + c + i * step for i in range(LANES)] for c in order]
        a = values(dt, n)
        assert np.min(at) == 0 and np.max(at) == n - 1
        for target in TARGETS:
            for fence in (FENCED.begin, FENCED.end):
                got = np.zeros(len(order) * LANES, dt.numpy)
                call(load([kernel], target), kernel, [fence(a), got], [first])
                same(got, a[np.array(at)].ravel())


@but(every=3)
@pytest.mark.parametrize("dt", ALL, ids=str)
def test_channels_of_pixels_are_written_with_nothing_before_or_behind(dt):
    for order in ([1, 0], [0, 1, 2], [2, 0, 1], [3, 1, 0, 2], [4, 0, 3, 1, 2], [0, 3, 1, 4, 2, 5], [7, 6, 5, 4, 3, 2, 1, 0]):
        k, n = Builder("written"), len(order)
        x, o, first = k.input("x", dt), k.output("o", dt), k.int("first")
        some = [k.load(x, i * LANES, LANES) for i in range(n)]
        for c, v in zip(order, some):
            k.store(o, ramp() * n + (first + c), v)
        kernel, a, want = k.build(), values(dt, n * LANES), np.zeros(n * LANES, dt.numpy)
        for c, part in zip(order, a.reshape(n, LANES)):
            want[c::n] = part
        for target in TARGETS:
            for fence in (FENCED.begin, FENCED.end):
                got = fence(np.zeros(n * LANES, dt.numpy), 1)
                call(load([kernel], target), kernel, [a, got], [0])
                same(got, want)
        text = emit_kernel(kernel, Target.named("x86-64-v3"))
        assert not any(x in text for x in SCALAR) and text.count("  store ") == n


def test_what_leaves_gaps_is_written_one_by_one_in_order():
    """Two of three channels; one of them twice; others' places between; another buffer between."""
    for name, places in {"gap": (0, 1), "twice": (0, 1, 1), "wide": (0, 1, 5), "far": (0, 1, 2 + 3 * LANES)}.items():
        k = Builder(name)
        x, o = k.input("x", uint8), k.output("o", uint8)
        some = [k.load(x, i * LANES, LANES) for i in range(3)]
        for at, v in zip(places, some):
            k.store(o, ramp() * 3 + at, v)
        kernel = k.build()
        assert emit_kernel(kernel, HOST).count("  store ") == len(places) * LANES
        compare(kernel, [load([kernel], t) for t in TARGETS], [values(uint8, 48), np.zeros(120, np.uint8)], [])


def test_loads_are_joined_across_values_and_not_across_stores():
    k = Builder("across")
    x, o = k.input("x", float32), k.output("o", float32)
    a = k.load(x, ramp() * 2)
    b = k.let(a + 1.0)
    c = k.load(x, ramp() * 2 + 1)
    k.store(o, 0, b + c)
    k.store(o, LANES, k.load(o, ramp() * 2))
    k.store(o, 1, a)
    k.store(o, 3 * LANES, k.load(o, ramp() * 2 + 1))
    kernel = k.build()
    assert emit_kernel(kernel, HOST).count(" = load <") == 2 + 2 + 2
    compare(kernel, [load([kernel], t) for t in TARGETS], [values(float32, 32), np.zeros(64, np.float32)], [])


def test_channels_are_turned_where_they_lie():
    """All channels are read before any is written; and what was read before a store is not read again behind it."""
    k = Builder("turned")
    o = k.output("o", uint8)
    r, g, b = (k.load(o, ramp() * 3 + c) for c in range(3))
    for c, v in enumerate((b, g, r)):
        k.store(o, ramp() * 3 + c, v)
    y, z = (k.load(o, ramp() * 2 + (48 + c)) for c in range(2))
    k.store(o, 48, r)
    for c, v in enumerate((z, y)):
        k.store(o, ramp() * 2 + (80 + c), v)
    kernel, a = k.build(), values(uint8, 112)
    want = a.copy()
    want[:48] = a[:48].reshape(16, 3)[:, ::-1].ravel()
    want[48:64], want[80:] = a[:48:3], a[48:80].reshape(16, 2)[:, ::-1].ravel()
    compare(kernel, [load([kernel], t) for t in TARGETS], [a], [], want)
    assert emit_kernel(kernel, HOST).count(" = shufflevector") < 24
