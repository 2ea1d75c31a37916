"""Contractions against a NumPy loop that follows the chunk rule with exact fma, as bits: every strategy, layout and dtype."""

from __future__ import annotations

import itertools
from dataclasses import replace
from math import prod

import numpy as np
import pytest
from exhaustive import but
from launching import Symbols, array_of, run
from machine import Compiled
from needs import needs

import tengen.kernels.axes
import tengen.kernels.contraction.packing
from tengen.base.dtype import bfloat16, dtype, float32
from tengen.codegen.targets import Target
from tengen.kernels.contraction import plans, unpacked
from tengen.kernels.contraction.channelwise import fits
from tengen.kernels.contraction.chunks import Chunks
from tengen.kernels.contraction.contract import contract
from tengen.kernels.contraction.plans import rule
from tengen.kernels.contraction.problem import normalise
from tengen.kernels.contraction.sharing import _last
from tengen.kernels.contraction.transposed_operand import fits_transposed_operand
from tengen.kernels.contraction.unpacked import fits_unpacked
from tengen.kernels.lowering import Array, Lowering
from tengen.kernels.machine import machine, registers_of
from tengen.kernels.source import Elementwise, Ending, Given, Leaf, moved
from tengen.loops.exact import fma32, fma64
from tengen.loops.lang import as_int, cast, maximum, var
from tengen.loops.text import print_kernel

HOST = Target.host()
V3, V4 = Target.named("x86-64-v3"), Target.named("x86-64-v4")
BOTH = [pytest.param(t, marks=needs(t.name), id=t.name) for t in (V4, V3)]


def starts(extents: tuple[int, ...]) -> list[int]:
    """Where chunks begin, as the contract says it."""
    c = extents[-1] if extents else 1
    p = prod(extents[:-1])
    if c >= 256:
        return [i * c + j for i in range(p) for j in range(0, c, 256)]
    return list(range(0, p * c, max(1, 256 // max(c, 1)) * c)) if c else []


def model(a: np.ndarray, b: np.ndarray, g: int, m: int, k: int, n: int) -> np.ndarray:
    """The contraction, position by position."""
    gs, ms, ks, ns = a.shape[:g], a.shape[g : g + m], a.shape[g + m :], b.shape[g + k :]
    out_dtype = a.dtype
    if out_dtype in (np.float16, bfloat16.numpy):
        a, b = a.astype(np.float32), b.astype(np.float32)
    a, b = a.reshape(prod(gs), prod(ms), prod(ks)), b.reshape(prod(gs), prod(ks), prod(ns))
    shape = (prod(gs), prod(ms), prod(ns))
    positions = prod(ks)
    cuts = [*starts(ks), positions]
    total = None
    with np.errstate(all="ignore"):
        for start, stop in zip(cuts, cuts[1:]):
            acc = np.zeros(shape, a.dtype)
            for i in range(start, stop):
                x, y = (np.broadcast_to(v, shape).copy() for v in (a[:, :, i, None], b[:, i, None, :]))
                acc = (fma32 if a.dtype == np.float32 else fma64)(x, y, acc) if a.dtype.kind == "f" else x * y + acc
            total = acc if total is None else total + acc
        total = np.zeros(shape, a.dtype) if total is None else total
        return total.reshape((*gs, *ms, *ns)).astype(out_dtype)


def same(x: np.ndarray, y: np.ndarray) -> bool:
    if x.dtype.kind not in "iu":
        nan = np.isnan(x)
        if (nan != np.isnan(y)).any():
            return False
        x, y = np.where(nan, x.dtype.type(0), x), np.where(nan, y.dtype.type(0), y)
    return x.shape == y.shape and x.tobytes() == y.tobytes()


def data(shape, dt="float32", seed=0):
    rng = np.random.default_rng(seed)
    if np.dtype(dt).kind in "iu":
        info = np.iinfo(dt)
        return rng.integers(info.min, info.max, shape, dtype=dt, endpoint=True)
    x = rng.standard_normal(shape)
    return (x * 10.0 ** rng.integers(-2, 3, shape)).astype(dt) if np.dtype(dt).itemsize > 2 else x.astype(dt)


def contracted(a, b, out, axes, symbolic=False, target=HOST, interpreted=False, **kw):
    """`out`, filled by the kernels."""
    arrays, memory = [], {}
    for x, id in ((a, "a"), (b, "b"), (out, "out")):
        array, memory[id] = array_of(x, id)
        arrays.append(array)
    sym = Symbols()
    if symbolic:
        arrays = [sym.array(x) for x in arrays]
    lo = Lowering(target, list(sym.values))
    contract(lo, *arrays, *axes, **kw)
    if interpreted:
        run(lo, memory, sym.values, backwards=True)
    else:
        Compiled(lo, memory, ["out"], sym.values)()
    return out


def check(a, b, axes, out=None, modes=(False, True), **kw):
    g, m, k, n = axes
    want = model(a, b, *axes)
    for symbolic in modes:
        z = np.full(want.shape, 7, want.dtype) if out is None else out
        z[...] = 7
        got = np.ascontiguousarray(contracted(a, b, z, axes, symbolic, **kw))
        assert same(got, want), (a.shape, b.shape, axes, symbolic, kw)


def test_the_chunk_rule():
    flat = [(), (1,), (255,), (256,), (257,), (600,)]
    for extents in [*flat, (5, 5, 1), (3, 3, 64), (3, 3, 100), (2, 300), (3, 256), (2, 3, 257), (4, 56), (7, 0), (0, 7)]:
        c = Chunks(extents)
        got = [tuple(as_int(x) for x in c.bounds(i)) for i in range(as_int(c.count))]
        cuts = [*starts(extents), prod(extents)]
        want = list(zip(cuts, cuts[1:])) or [(0, 0)]
        assert got == want, extents


@pytest.mark.parametrize("k", [1, 255, 256, 257, 600])
def test_sizes(k):
    rows = rule(normalise(*(array_of(data((100, 100)), i)[0] for i in "abc"), 0, 1, 1, 1, None, None, ""), HOST).rows
    for m in (1, rows - 1, rows, rows + 1, 33):
        for n in (1, 15, 16, 17, 33) if m in (1, rows + 1) else (17,):
            check(data((m, k)), data((k, n), seed=1), (0, 1, 1, 1))


@pytest.mark.parametrize("n", [1, 16, 31, 32, 33, 64, 100])
def test_columns(n):
    for m in (2, 5, 130):
        check(data((m, 20)), data((20, n), seed=1), (0, 1, 1, 1))


@pytest.mark.parametrize("dt", "float32 float64 float16 bfloat16 int8 uint8 int16 int32 int64 uint64".split())
def test_dtypes(dt):
    dt = dtype(dt).numpy
    for shape in [(5, 20, 17), (20, 300, 9), (15, 257, 33)]:
        m, k, n = shape
        check(data((m, k), dt), data((k, n), dt, 1), (0, 1, 1, 1))
        check(data((k, m), dt).T, data((n, k), dt, 1).T, (0, 1, 1, 1))


def test_the_interpreter_agrees():
    for m, k, n in [(3, 5, 4), (15, 20, 33), (2, 258, 17), (1, 3, 1), (30, 4, 40)]:
        check(data((m, k)), data((k, n), seed=1), (0, 1, 1, 1), interpreted=True)
        check(data((k, m)).T, data((n, k), seed=1).T, (0, 1, 1, 1), interpreted=True)


def test_layouts():
    x, y = data((40, 70)), data((70, 50), seed=1)
    layouts_a = [x, np.asfortranarray(x), data((80, 140))[::2, ::2], x[::-1, ::-1], np.broadcast_to(x[:1], x.shape)]
    layouts_b = [y, np.asfortranarray(y), data((140, 100), seed=1)[::2, ::2], y[::-1, ::-1], np.broadcast_to(y[:, :1], y.shape)]
    for i, a in enumerate(layouts_a):
        for j, b in enumerate(layouts_b):
            if i == 0 or j == 0 or i == j:
                check(a, b, (0, 1, 1, 1))
    wide = np.zeros((80, 100), np.float32)
    for out in (np.zeros((50, 40), np.float32).T, wide[::2, ::2], wide[:40, 50:], wide[:40, :50][::-1, ::-1]):
        check(x, y, (0, 1, 1, 1), out)


def test_roles_of_axes():
    check(data((2, 3, 5, 7)), data((2, 3, 7, 4), seed=1), (2, 1, 1, 1))
    check(data((2, 3, 5)), data((5, 2, 18), seed=1), (0, 2, 1, 2))
    check(data((4, 3, 5)), data((3, 5, 6), seed=1), (0, 1, 2, 1))
    check(data((4, 3, 300)), data((3, 300, 6), seed=1), (0, 1, 2, 1))
    check(data((7, 20)), data((7, 20), seed=1), (1, 0, 1, 0))
    check(data((300,)), data((300,), seed=1), (0, 0, 1, 0))
    check(data((9,)), data((20,), seed=1), (0, 1, 0, 1))
    check(data((3, 9)), data((3,), seed=1), (1, 1, 0, 0))
    check(data(()), data((), seed=1), (0, 0, 0, 0))
    check(data((6, 40)), data((40,), seed=1), (0, 1, 1, 0))
    check(data((40, 600)).T, data((40,), seed=1), (0, 1, 1, 0))
    check(data((40,)), data((40, 6), seed=1), (0, 0, 1, 1))
    check(np.broadcast_to(data((5, 7)), (3, 5, 7)), data((3, 7, 4), seed=1), (1, 1, 1, 1))
    out = np.zeros((3, 2, 6), np.float32)
    check(data((2, 3, 5)), data((5, 6), seed=1), (0, 2, 1, 1), out.transpose(1, 0, 2))


def test_empty():
    for m, k, n in [(0, 3, 4), (3, 0, 4), (3, 4, 0), (3, 0, 1), (0, 0, 0)]:
        check(data((m, k)), data((k, n)), (0, 1, 1, 1))
    check(data((3, 2, 0)), data((2, 0, 4)), (0, 1, 2, 1))
    check(data((3, 0, 2)), data((0, 2, 4)), (0, 1, 2, 1))
    check(data((2, 3, 0)).transpose(2, 1, 0)[:, :, :0], data((0, 3))[:0, :0].reshape(0, 0), (1, 1, 1, 0))


def test_empty_sums_at_run_time():
    """A program for any k is run with k = 0."""
    channels = np.zeros((3, 0, 18), np.float32).transpose(2, 0, 1)
    for a, b, axes in [
        (data((3, 0)), data((0, 4)), (0, 1, 1, 1)), (data((30, 2, 0)), data((2, 0, 20)), (0, 1, 2, 1)),
        (channels, data((18, 0)), (1, 1, 1, 0)), (data((1, 0)), data((0, 4)), (0, 1, 1, 1)),
        (data((9, 0)), data((0,)), (0, 1, 1, 0)),
    ]:  # fmt: skip
        arrays, memory = [], {}
        out = np.full(model(a, b, *axes).shape, 7, np.float32)
        sym = Symbols()
        zero = var("zero")
        sym.values[zero] = 0
        for x, id in ((a, "a"), (b, "b"), (out, "out")):
            array, memory[id] = array_of(x, id)
            array = sym.array(array)
            shape = tuple(zero if as_int(d) == 0 else d for d in array.shape)
            arrays.append(type(array)(array.id, array.dtype, shape, array.strides, array.offset))
        lo = Lowering(HOST, list(sym.values))
        contract(lo, *arrays, *axes)
        memory = {i: m if m.size else np.zeros(1, np.float32) for i, m in memory.items()}
        Compiled(lo, memory, ["out"], sym.values)()
        assert (out == 0).all()


def image_windows(x: np.ndarray, k, stride=1, dilation=1):
    """(N, H, W, C) as (N, OH, OW, R, S, C)."""
    span = [(r - 1) * dilation + 1 for r in k]
    w = np.lib.stride_tricks.sliding_window_view(x, span, (1, 2))[:, ::stride, ::stride, :, ::dilation, ::dilation]
    return w.transpose(0, 1, 2, 4, 5, 3)


@pytest.mark.parametrize("n,h,w,c,o,k,stride,dilation", [
    (2, 8, 9, 1, 6, (5, 5), 1, 1), (2, 8, 9, 6, 16, (5, 5), 1, 1), (1, 7, 7, 70, 20, (3, 3), 2, 1),
    (2, 9, 20, 3, 40, (3, 2), 1, 2), (1, 6, 6, 257, 5, (2, 2), 1, 1), (3, 5, 5, 33, 34, (1, 1), 1, 1),
])  # fmt: skip
def test_convolutions_and_their_weight_gradients(n, h, w, c, o, k, stride, dilation):
    a = image_windows(data((n, h, w, c)), k, stride, dilation)
    check(a, data((*k, c, o), seed=1), (0, 3, 3, 1))
    check(a, data((o, c, *k), seed=1).transpose(2, 3, 1, 0), (0, 3, 3, 1))
    grad = data((*a.shape[:3], o), seed=2)
    check(a.transpose(3, 4, 5, 0, 1, 2), grad, (0, 3, 3, 1))
    out = np.zeros((o, c, *k), np.float32).transpose(2, 3, 1, 0)
    check(a.transpose(3, 4, 5, 0, 1, 2), grad, (0, 3, 3, 1), out)


def test_grouped_convolution():
    g, c, o = 3, 5, 18
    x = data((2, 6, 7, g * c))
    a = image_windows(x, (3, 3))  # n oh ow r s gc
    a = a.reshape(*a.shape[:-1], g, c) if a.flags.c_contiguous else np.lib.stride_tricks.as_strided(
        a, (*a.shape[:-1], g, c), (*a.strides[:-1], c * a.strides[-1], a.strides[-1]))  # fmt: skip
    b = data((g, 3, 3, c, o), seed=1)
    check(np.moveaxis(a, -2, 0), b, (1, 3, 3, 1), np.moveaxis(np.zeros((2, 4, 5, g, o), np.float32), -2, 0))


@pytest.mark.parametrize("c", [2, 15, 16, 33, 100])
def test_depthwise_and_its_gradient(c):
    x = data((2, 7, 9, c))
    a = np.moveaxis(image_windows(x, (3, 3)), -1, 0)  # c n oh ow r s
    array, _ = array_of(a, "a")
    out = np.moveaxis(np.zeros((2, 5, 7, c), np.float32), -1, 0)
    for w in (data((c, 3, 3), seed=1), np.moveaxis(data((3, 3, c), seed=1), -1, 0)):
        check(a, w, (1, 3, 2, 0), out)
    o, wa = array_of(out, "o")[0], array_of(w, "w")[0]
    assert fits(normalise(array, wa, o, 1, 3, 2, 0, None, None, ""))
    grad = np.moveaxis(data((2, 5, 7, c), seed=2), -1, 0)
    check(a.transpose(0, 4, 5, 1, 2, 3), grad, (1, 2, 3, 0))
    big = np.moveaxis(image_windows(data((2, 20, 21, c)), (3, 3)), -1, 0).transpose(0, 4, 5, 1, 2, 3)
    check(big, np.moveaxis(data((2, 18, 19, c), seed=2), -1, 0), (1, 2, 3, 0))


def test_epilogues_see_the_coordinates_of_out():
    for m, k, n in [(5, 20, 17), (40, 300, 33), (20, 7, 1)]:
        for transposed, order in itertools.product((False, True), "CF"):
            a, b, bias, rest = data((2, m, k)), np.asarray(data((k, n), seed=1), order=order), data((n,), seed=2), data((2, m, n), seed=3)
            bias_array, bias_memory = array_of(bias, "bias")
            rest_array, rest_memory = array_of(rest, "rest")

            def epilogue(kb, v, at, bias=bias_array.expand((2, m, n)), rest=rest_array):
                return maximum(v + at.load(kb, bias) + at.load(kb, rest), 0.0)

            want = model(a, b, 0, 2, 1, 1) + bias + rest
            want = np.maximum(want, np.float32(0))
            out = np.zeros((2, n, m), np.float32).transpose(0, 2, 1) if transposed else np.zeros((2, m, n), np.float32)
            memory = {"bias": bias_memory, "rest": rest_memory}
            arrays = []
            for x, id in ((a, "a"), (b, "b"), (out, "out")):
                array, memory[id] = array_of(x, id)
                arrays.append(array)
            lo = Lowering(HOST)
            contract(lo, *arrays, 0, 2, 1, 1, epilogue=epilogue)
            Compiled(lo, memory, ["out"])()
            assert same(np.ascontiguousarray(out), want), (m, k, n, transposed, order)


def test_pieces_are_even():
    """113 tiles are 8 times 14 and one: as last piece it would be alone."""
    assert _last(8, 113, 1, 6, 1, 2) == 57 * 6 and _last(8, 113, 1, 6, 1, 4) == 29 * 6
    assert _last(72, 144, 1, 1, 1, 2) == 72 and _last(73, 146, 1, 1, 1, 2) == 74


def test_what_an_epilogue_of_sources_reads_is_fetched_early():
    m, k, n = 45, 600, 96  # more than one chunk, tiles of two heights
    a, b, rest, bias = data((2, m, k)), data((k, n), seed=1), data((2, m, n), seed=2), data((n,), seed=3)
    out = np.zeros((2, m, n), np.float32)
    memory, arrays = {}, {}
    for x, id in ((a, "a"), (b, "b"), (out, "out"), (rest, "rest"), (bias, "bias")):
        arrays[id], memory[id] = array_of(x, id)
    given = Given((2, m, n), arrays["out"].dtype)
    parts = [given, Leaf(arrays["rest"]), Leaf(arrays["bias"].expand((2, m, n)))]
    total = Elementwise(lambda x, y, z: x + y + z, parts, given.shape, given.dtype)
    lo = Lowering(HOST)
    contract(lo, arrays["a"], arrays["b"], arrays["out"], 0, 2, 1, 1, epilogue=moved(Ending(total, given), lambda at: at))
    kernel = lo.launches[-1].kernel
    names = {id: buffer.name for id, buffer in zip(lo.launches[-1].ids, kernel.buffers)}
    text = print_kernel(kernel)
    assert f"prefetch {names['rest']}[" in text and f"prefetch {names['bias']}[" not in text
    Compiled(lo, memory, ["out"])()
    assert same(out, model(a, b, 0, 2, 1, 1) + rest + bias)


def test_epilogue_of_a_depthwise_convolution_and_another_dtype():
    c = 20
    a = np.moveaxis(image_windows(data((2, 7, 9, c), "float16"), (3, 3)), -1, 0)
    w = data((c, 3, 3), "float16", 1)
    scale, scale_memory = array_of(data((c,), seed=4), "scale")

    def epilogue(kb, v, at):
        s = at.load(kb, type(scale)(scale.id, scale.dtype, (c, 2, 5, 7), (1, 0, 0, 0), 0))
        return cast(v * s, dtype("float64"))

    out = np.moveaxis(np.zeros((2, 5, 7, c), np.float64), -1, 0)
    arrays, memory = [], {"scale": scale_memory}
    for x, id in ((a, "a"), (w, "b"), (out, "out")):
        array, memory[id] = array_of(x, id)
        arrays.append(array)
    lo = Lowering(HOST)
    contract(lo, *arrays, 1, 3, 2, 0, epilogue=epilogue)
    Compiled(lo, memory, ["out"])()
    sums = model(a.astype("f"), w.astype("f"), 1, 3, 2, 0)
    assert same(np.ascontiguousarray(out), (sums * scale_memory.reshape(c, 1, 1, 1)).astype(np.float64))


def test_pieces_of_several_blocks():
    small = replace(HOST, l2_bytes=1 << 8)
    a, b, rest = data((4, 150, 3)), data((3, 100), seed=1), data((4, 150, 100), seed=2)
    rest_array, rest_memory = array_of(rest, "rest")
    memory, arrays, out = {"rest": rest_memory}, [], np.zeros((4, 150, 100), np.float32)
    for x, id in ((a, "a"), (b, "b"), (out, "out")):
        array, memory[id] = array_of(x, id)
        arrays.append(array)
    lo = Lowering(small)
    contract(lo, *arrays, 0, 2, 1, 1, epilogue=lambda kb, v, at: v + at.load(kb, rest_array))
    run(lo, memory, backwards=True)
    assert same(out, model(a, b, 0, 2, 1, 1) + rest)
    check(data((600, 300)), data((300, 100), seed=1), (0, 1, 1, 1), target=small)


def test_one_extent_open():
    """Rows are known and columns are not, and the other way round; the last tiles have fewer of both."""
    a, b = data((45, 20)), data((20, 50), seed=1)
    for open_, rows, columns in (("m", var("m"), 50), ("n", 45, var("n"))):
        out = np.full((46, 50), 7, np.float32)
        value = {"m": 45, "n": 50}[open_]
        arrays = [Array("a", float32, (rows, 20), (20, 1)), Array("b", float32, (20, columns), (columns, 1))]
        lo = Lowering(HOST, [var(open_)])
        contract(lo, *arrays, Array("out", float32, (rows, columns), (columns, 1)), 0, 1, 1, 1)
        Compiled(lo, {"a": a.ravel(), "b": b.ravel(), "out": out.ravel()}, ["out"], {var(open_): value})()
        assert same(out[:45], model(a, b, 0, 1, 1, 1)) and (out[45] == 7).all()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("columns", [16, 24, 32, 36, 80, 96, 144, 150])
def test_tiles_stored_from_registers(columns, stream, monkeypatch):
    """Sums of one chunk: tiles of one to three vectors, narrow ones, parts of vectors; past the caches, where results are large."""
    if stream:
        monkeypatch.setattr(tengen.kernels.axes, "STREAMED_BYTES", 0)
    a, b = data((61, 20)), data((20, columns), seed=1)
    check(a, b, (0, 1, 1, 1), modes=(False,))
    wide = np.full((61, columns + 5), 7, np.float32)  # rows that begin anywhere in a line
    check(a, b, (0, 1, 1, 1), wide[:, 3 : columns + 3], modes=(False,))
    assert (wide[:, :3] == 7).all() and (wide[:, columns + 3 :] == 7).all()


@pytest.mark.parametrize("target", BOTH)
@pytest.mark.parametrize("n", [3, 8, 17, 24, 37, 40])
def test_columns_of_half_a_vector(n, target):
    """Two rows share the vector of the last columns, alone or behind other panels, where half of it is whole registers: those of an odd
    row, of tiles of two heights, of sums of several chunks, of windows, and where the number of rows is open."""
    for m in (15, 61, 130):
        check(data((m, 300)), data((300, n), seed=1), (0, 1, 1, 1), target=target)
    check(data((61, 20)), data((20, n), seed=1), (0, 1, 1, 1), np.full((61, 56), 7, np.float32)[:, 3 : n + 3], modes=(False,), target=target)
    check(np.asfortranarray(data((61, 300))), data((n, 300), seed=1).T, (0, 1, 1, 1), modes=(False,), target=target)
    check(data((2, 61, 40), "float64"), data((2, 40, n), "float64", 1), (1, 1, 1, 1), modes=(False,), target=target)
    check(data((61, 40), "int32"), data((40, n), "int32", 1), (0, 1, 1, 1), modes=(False,), target=target)
    check(data((61, 40), "float16"), data((40, n), "float16", 1), (0, 1, 1, 1), modes=(False,), target=target)
    check(data((29, 40)), data((40, n), seed=1), (0, 1, 1, 1), modes=(False,), target=target, interpreted=True)


def test_few_rows_and_one_column():
    for m in (1, 4, 5):
        for n in (1, 16, 300):
            check(data((m, 300)), data((300, n), seed=1), (0, 1, 1, 1))
            check(data((m, 300)), data((n, 300), seed=1).T, (0, 1, 1, 1))
    check(data((3, 1, 300)), data((3, 300, 20), seed=1), (1, 1, 1, 1), interpreted=True)
    check(data((2, 13, 20)), data((2, 20), seed=1), (1, 1, 1, 0), interpreted=True)
    check(data((13, 20), "float16"), data((20,), "float16", 1), (0, 1, 1, 0))
    check(data((13, 300), "float64"), data((300,), "float64", 1), (0, 1, 1, 0))
    a = image_windows(data((2, 7, 8, 5)), (3, 2))
    check(a, data((3, 2, 5), seed=1), (0, 3, 3, 0))
    check(a[:1, :1, :3], data((3, 2, 5, 40), seed=1), (0, 3, 3, 1))


def test_tiles_are_longer_where_each_row_of_b_begins_on_a_page_of_its_own():
    """Of one or two rows; the bits are the same."""
    wide = [(1, 1024, "float32", 8), (2, 1040, "float32", 8)]
    for m, n, dt, vectors in [*wide, (3, 1024, "float32", 4), (1, 1008, "float32", 4), (1, 1024, "float16", 4)]:
        a, b = data((m, 20), dt), data((20, n), dt, 1)
        p = normalise(*(array_of(x, i)[0] for i, x in enumerate((a, b, np.zeros((m, n), dt)))), 0, 1, 1, 1, None, None, "p")
        assert unpacked.rule(p, V4).vectors == vectors
        check(a, b, (0, 1, 1, 1), modes=(False,))


@but(every=2)
@pytest.mark.parametrize("target", BOTH)
@pytest.mark.parametrize("m", [5, 6, 8, 14, 15])
def test_more_rows_of_plain_matrices(m, target):
    """Rows that have a register each are read in place; where registers do not suffice, by a register tile."""
    _, registers, _ = machine(target)
    for k, n, dt in [(300, 100, "float32"), (20, 16, "float32"), (33, 40, "float64"), (300, 48, "float16"), (270, 33, "int32")]:
        a, b = data((m, k), dt), data((k, n), dt, 1)
        check(a, b, (0, 1, 1, 1), modes=(False,), target=target)
        p = normalise(*(array_of(x, i)[0] for i, x in enumerate((a, b, np.zeros((m, n), dt)))), 0, 1, 1, 1, None, None, "p")
        each = registers_of(p.compute.size, target)
        assert fits_unpacked(p, target) == (m <= 14 and (m + 2) * each <= registers)
        assert not fits_unpacked(p, target, invariant=True)
    check(np.asfortranarray(data((m, 300))), data((300, 100), seed=1), (0, 1, 1, 1), modes=(False,), target=target)
    check(data((3, m, 64)), data((3, 64, 64), seed=1), (1, 1, 1, 1), modes=(False,), target=target)
    check(data((m, 40)), data((40, 20), seed=1), (0, 1, 1, 1), modes=(False,), target=target, interpreted=True)


@pytest.mark.parametrize("target", BOTH)
def test_a_matrix_whose_squares_are_turned(target):
    """Rows and positions that fill vectors, and that do not; several chunks; where registers hold a square, and where not."""
    for m, k in [(16, 16), (17, 300), (64, 256), (33, 515), (20, 5), (40, 0)]:
        check(data((m, k)), data((k,), seed=1), (0, 1, 1, 0), target=target)
    check(data((2, 19, 40)), data((2, 40), seed=1), (1, 1, 1, 0), target=target, interpreted=True)
    check(data((35, 270), "float16"), data((270,), "float16", 1), (0, 1, 1, 0), target=target)
    check(data((35, 20), "int32"), data((20,), "int32", 1), (0, 1, 1, 0), target=target)
    check(data((18, 300))[:, ::-1], data((300, 3), seed=1)[:, 1], (0, 1, 1, 0), target=target)
    check(data((18, 30)), data((30, 3), seed=1)[:, 1], (0, 1, 1, 0), np.zeros((18, 2), np.float32)[:, 1], target=target)
    special = np.array([[np.inf, -0.0, 1e-39, np.nan, 3e38] * 4] * 18, np.float32)
    check(special, data((20,), seed=1), (0, 1, 1, 0), target=target)


@but(every=2)
@pytest.mark.parametrize("target", BOTH)
@pytest.mark.parametrize("m", [2, 12, 13, 40])
def test_few_rows_times_a_matrix_that_is_dense_along_the_sum(m, target):
    """Squares are turned in registers, or by the piece that uses them: full vectors and not, several chunks, axes of rows."""
    for k, n, dt in [(300, 100, "float32"), (16, 16, "float32"), (33, 40, "float16"), (515, 35, "float32"), (270, 48, "int32")]:
        check(data((m, k), dt), data((n, k), dt, 1).T, (0, 1, 1, 1), modes=(False,), target=target)
    check(data((2, m, 40)), data((2, 19, 40), seed=1).transpose(0, 2, 1), (1, 1, 1, 1), modes=(False,), target=target)
    check(data((m, 40)), data((20, 40), seed=1).T, (0, 1, 1, 1), modes=(False,), target=target, interpreted=True)
    a, b, out = (array_of(x, i)[0] for i, x in enumerate((data((m, 300)), data((64, 300)).T, data((m, 64)))))
    p = normalise(a, b, out, 0, 1, 1, 1, None, None, "p")
    assert fits_transposed_operand(p, V4) == (m <= 12) and not fits_transposed_operand(p, V4, invariant=True)
    assert not rule(p, V4).packed and rule(p, V4, invariant=True).packed
    p = normalise(a, replace(b, id=("const", 0)), out, 0, 1, 1, 1, None, None, "p")
    assert not fits_transposed_operand(p, V4) and rule(p, V4).packed, "a constant is turned once"


def test_values_that_need_care():
    x = np.array([[0.0, -0.0, 1.0, np.inf, np.nan], [1e-30, 1e-30, -1e-38, 3e38, 1.0], [-1e-30, 0, 0, 0, 0]], np.float32)
    y = np.array([[1.0, -0.0, 1e-30], [0, 0, 0], [1, 1e-10, 0], [0, 1, 2], [0, 0, 1]], np.float32)
    check(x, y, (0, 1, 1, 1))
    tiny = np.full((3, 600), 1e-38, np.float32)
    check(tiny, -np.full((600, 3), 1e-38, np.float32), (0, 1, 1, 1))


@pytest.mark.parametrize("target", BOTH)
def test_instruction_sets_agree(target):
    for dt in ("float32", "float64", "float16", "int32"):
        a, b = data((45, 300), dt), data((300, 50), dt, 1)
        want = model(a, b, 0, 1, 1, 1)
        for symbolic in (False, True):
            out = np.zeros(want.shape, dt)
            assert same(contracted(a, b, out, (0, 1, 1, 1), symbolic, target), want)


def test_a_row_alone_has_the_bits_of_many():
    a, b = data((100, 700)), data((700, 40), seed=1)
    all_rows = contracted(a, b, np.zeros((100, 40), np.float32), (0, 1, 1, 1))
    for i in (0, 17, 99):
        one = contracted(a[i : i + 1], b, np.zeros((1, 40), np.float32), (0, 1, 1, 1))
        assert same(one, all_rows[i : i + 1])


def test_tiles_share_the_rows_evenly():
    """Heights that differ by one row give every row once: in one block, in several, and along m."""
    for m in (15, 29, 49, 113, 197, 403):
        a, b = data((m, 300)), data((300, 40), seed=1)
        check(a, b, (0, 1, 1, 1), modes=(False,))
        check(np.asfortranarray(a), b, (0, 1, 1, 1), modes=(False,))


def test_zeros_beside_results():
    """Every other row, or column: whole vectors, parts of them, scattered ones."""
    for columns, step in ((48, 1), (50, 1), (20, 2)):
        a, b = data((30, 300)), data((300, columns), seed=1)
        wide = np.full((60, columns * step), 7, np.float32)
        out = wide[::2, ::step]
        contracted(a, b, out, (0, 1, 1, 1), zeros=(wide.shape[1],) if step == 1 else (1, wide.shape[1], wide.shape[1] + 1))
        assert same(np.ascontiguousarray(out), model(a, b, 0, 1, 1, 1))
        out[...] = 0
        assert not wide.any()


def test_long_sums_whose_operands_are_read_where_they_lie():
    """Both dense across the result, in several chunks and in a batch, for registers of either number; positions at one distance
    or at several."""
    for m, n in ((24, 16), (64, 48), (136, 64)):
        a, b = data((600, m)), data((600, n), seed=1)
        for target in (HOST, V3):
            check(a.T, b, (0, 1, 1, 1), modes=(False,), target=target)
        check(
            a.reshape(3, 10, 20, m)[:, ::2].transpose(3, 0, 1, 2),
            b.reshape(3, 10, 20, n)[:, 1::2],
            (0, 1, 3, 1),
            modes=(False,),
        )
        check(a.reshape(3, 200, m).transpose(0, 2, 1), b.reshape(3, 200, n), (1, 1, 1, 1), modes=(False,))


@pytest.mark.parametrize("target", BOTH)
def test_rows_that_are_packed_tile_by_tile(target, monkeypatch):
    """Of tiles that fill half a vector and more than that, the last of them at the end of memory; of dtypes that are cast on the way."""
    monkeypatch.setattr(plans, "PLANS", [x for x in plans.PLANS if x.name == "both packed"])
    monkeypatch.setattr(plans.BothPacked, "pays", lambda self, f: "")
    for m, kind in ((5, "float32"), (8, "float32"), (13, "float32"), (61, "float32"), (30, "float16"), (17, "float64")):
        a, b = data((300, m), kind), data((300, 48), kind, 1)
        check(a.T, b, (0, 1, 1, 1), modes=(False,), target=target)
    for m in (2, 3, 5):  # fewer than a vector holds: the interpreter refuses what reads past them
        check(data((4, 3, m)).transpose(0, 2, 1), data((4, 3, 5), seed=1), (1, 1, 1, 1), modes=(False,), target=target, interpreted=True)


@pytest.mark.parametrize("kind", ["float16", "float32", "int64"])
def test_filters_whose_channels_lie_outside_of_their_window(kind, monkeypatch):
    """Are packed in the order of memory: whole squares of positions and columns, and what is left of both."""
    transposed, transpose = [], tengen.kernels.contraction.packing._transpose_as_stored
    monkeypatch.setattr(tengen.kernels.contraction.packing, "_transpose_as_stored", lambda *x: transposed.append(1) or transpose(*x))
    shapes = [(32, 16, 3, 3), (50, 37, 3, 3), (17, 5, 1, 2), (100, 70, 2, 3), (3, 1, 3, 2)]
    for number, shape in enumerate(shapes):
        w = data(shape, kind, number).transpose(2, 3, 1, 0)
        check(data((120, *w.shape[:3]), kind, 9), w, (0, 1, 3, 1), modes=(False,))
    assert len(transposed) == 4  # one channel: its window is dense in logical order


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_pieces_that_pack_their_columns(kind, monkeypatch):
    """Have the bits of a launch that packs them: `a` dense along the sum and across it, b both ways, pixels of a strided image."""
    a, b = data((300, 136), kind), data((300, 1024), kind, 1)
    image, grad = data((3, 20, 20, 48), kind), data((3, 10, 10, 1024), kind, 1)
    rows, pixels = np.ascontiguousarray(a.T), image[:, ::2, ::2].transpose(3, 0, 1, 2)
    odd = np.ascontiguousarray(b[:, :999])
    windows = image_windows(data((1, 8, 9, 16), kind), (3, 3)).transpose(3, 4, 5, 0, 1, 2)
    ones = data((1, 6, 7, 96), kind, 2)
    cases = [(rows, b, 1), (rows, odd, 1), (rows, np.ascontiguousarray(b.T).T, 1), (a.T, b, 1), (pixels, grad, 3), (windows, ones, 3)]
    taken, rule_of = [], plans.plan

    def results():
        outs = [np.zeros((*x.shape[: x.ndim - k], y.shape[-1]), kind) for x, y, k in cases]
        return [contracted(x, y, out, (0, x.ndim - k, k, 1)) for (x, y, k), out in zip(cases, outs)]

    monkeypatch.setattr(plans, "plan", lambda f: taken.append(rule_of(f)) or taken[-1])
    mine, by_piece = results(), ("panel by panel", "rows side by side", "columns by piece")
    assert len(taken) == len(cases) and {x.name for x in taken} == set(by_piece)
    monkeypatch.setattr(plans, "PLANS", [x for x in plans.PLANS if x.name not in by_piece])
    assert all(same(x, y) for x, y in zip(mine, results()))
