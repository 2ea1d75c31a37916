"""Loads and stores: whole, partial, gathered and scattered, of every dtype; nothing outside is touched."""

from __future__ import annotations

import ctypes
import mmap
import re

import numpy as np
import pytest
from exhaustive import but
from running import call, load, same

from tengen.base.dtype import ALL, bool_, float32, int64
from tengen.codegen.llvm import emit_kernel
from tengen.codegen.targets import Target
from tengen.loops.builder import Builder
from tengen.loops.interp import interpret
from tengen.loops.lang import LANES, cast, const, minimum, ramp, select, splat
from tengen.loops.parse import parse_kernel
from tengen.loops.text import print_kernel
from tengen.loops.verify import verify

HOST = Target.host()
TARGETS = [HOST] + ([Target.named("x86-64-v3")] if HOST.arch == "x86_64" else [])
COUNTS = [-(2**40), -1, 0, 1, 2, 7, 8, 15, 16, 17, 2**40]


def values(dt, n: int) -> np.ndarray:
    rng = np.random.default_rng(n)
    return rng.integers(0, 2 if dt is bool_ else 100, n).astype(dt.numpy)


class Fenced:
    """Arrays that end, or begin, where the next page cannot be touched."""

    def __init__(self):
        self.pages, size = [], mmap.PAGESIZE
        libc = ctypes.CDLL(None, use_errno=True)
        for _ in range(2):
            m = mmap.mmap(-1, 3 * size)
            at = ctypes.addressof(ctypes.c_char.from_buffer(m))
            for page in (0, 2):
                assert libc.mprotect(ctypes.c_void_p(at + page * size), size, 0) == 0
            self.pages.append(np.frombuffer(m, np.uint8)[size : 2 * size])

    def end(self, x: np.ndarray, which: int = 0) -> np.ndarray:
        """A copy of x in the last bytes of a page."""
        r = self.pages[which][mmap.PAGESIZE - x.nbytes :].view(x.dtype)
        r[:] = x
        return r

    def begin(self, x: np.ndarray, which: int = 0) -> np.ndarray:
        """A copy of x in the first bytes of a page."""
        r = self.pages[which][: x.nbytes].view(x.dtype)
        r[:] = x
        return r


FENCED = Fenced()


def compare(kernel, loads, arrays, ints, expected=None) -> None:
    """Runs a kernel everywhere and compares every array with the interpreter's, and the last with `expected`."""
    reference = [a.copy() for a in arrays]
    interpret(kernel, reference, ints)
    if expected is not None:
        same(reference[-1], expected)
    for loaded in loads:
        mine = [a.copy() for a in arrays]
        call(loaded, kernel, mine, ints)
        for got, want in zip(mine, reference):
            same(got, want)


@pytest.mark.parametrize("dt", ALL, ids=str)
def test_partial_load_and_store(dt):
    k = Builder("partial")
    x, o, n = k.input("x", dt), k.output("o", dt), k.int("n")
    k.store(o, 0, k.load(x, 0, LANES, n, 1), 20)  # more than 16: all lanes
    k.store(o, LANES, k.load(x, 0, LANES, 16), n)
    kernel = k.build()
    loads = [load([kernel], t) for t in TARGETS]
    a = values(dt, LANES)
    for n in COUNTS:
        m = min(max(n, 0), LANES)
        want = np.full(2 * LANES, 1, dt.numpy)
        want[:m] = a[:m]
        want[LANES : LANES + m] = a[:m]
        compare(kernel, loads, [a, np.full(2 * LANES, 1, dt.numpy)], [n], want)


@pytest.mark.parametrize("dt", ALL, ids=str)
def test_counts_that_are_known_store_no_byte_more(dt):
    k = Builder("known")
    x, o = k.input("x", float32), k.output("o", dt)
    for n in range(LANES):
        k.store(o, n * (LANES + 1), cast(k.load(x, 0, LANES), dt), n)
    kernel = k.build()
    want = np.full((LANES, LANES + 1), 1, dt.numpy)
    for n in range(LANES):
        want[n, :n] = values(dt, LANES)[:n]
    arrays = [values(dt, LANES).astype(np.float32), np.full(want.size, 1, dt.numpy)]
    compare(kernel, [load([kernel], t) for t in TARGETS], arrays, [], want.ravel())


@but(every=3)
@pytest.mark.parametrize("dt", ALL, ids=str)
def test_counts_that_are_known_read_no_byte_more(dt):
    """Neighbours, and elements that are two apart, in both directions; also on processors that mask nothing."""
    targets = TARGETS + ([Target.named("x86-64")] if HOST.arch == "x86_64" else [])
    for n in (1, 3, 6, 8, 15):
        k = Builder(f"known_{n}")
        x, near, far = k.input("x", dt), k.output("near", dt), k.output("far", dt)
        k.store(near, 0, k.load(x, 0, LANES, n, 1), LANES)
        k.store(near, LANES, k.load(x, ramp() * 2, LANES, (n + 1) // 2, 1), LANES)
        k.store(far, 0, k.load(x, 0, LANES, n), n)
        k.store(far, n + ramp() * 2, k.load(x, 0, LANES, n), n)
        kernel = k.build()
        a = values(dt, n)
        wide, every = np.ones(2 * LANES, dt.numpy), np.ones(3 * n - 1, dt.numpy)
        wide[:n], wide[LANES : LANES + (n + 1) // 2], every[:n], every[n::2] = a, a[::2], a, a
        for loaded in [load([kernel], t) for t in targets]:
            got, ends = np.zeros(2 * LANES, dt.numpy), FENCED.end(np.ones(3 * n - 1, dt.numpy), 1)
            call(loaded, kernel, [FENCED.end(a, 0), got, ends])
            same(got, wide)
            same(ends, every)


def test_the_colours_of_a_pixel_are_read_and_written_without_a_mask():
    k = Builder("pixel")
    x, o = k.input("x", float32), k.output("o", float32)
    for first, count in ((0, 3), (16, 5)):
        k.store(o, first, k.load(x, first, LANES, count), count)
    text = emit_kernel(k.build(), Target.named("x86-64-v4"))
    assert text.count("call <16 x float> @llvm.masked.load") == text.count("call void @llvm.masked.store") == 1


@pytest.mark.parametrize("dt", ALL, ids=str)
def test_counts_that_only_the_compiler_finds_out_store_no_byte_more(dt):
    """The last elements of rows of 49, as a copy that transposes a tile writes them, last row first."""
    k = Builder("found")
    x, o = k.input("x", int64 if dt.kind in "iu" else float32), k.output("o", dt)
    with k.loop(0, 49, 64, name="tile") as tile:
        stop = k.let(minimum(const(49), tile + 64))
        with k.loop(0, 4, name="row") as row:
            whole = k.let(tile + (stop - tile) // LANES * LANES)
            with k.if_(whole < stop):
                v = k.load(x, ramp() * 4 + (whole * 4 + row), LANES, stop - whole)
                k.store(o, (3 - row) * 49 + whole, cast(v, dt), stop - whole)
    kernel = k.build()
    given = np.arange(49 * 4).astype(x.dtype.numpy)
    want = np.full((4, 49), 1, dt.numpy)
    want[:, 48] = given[-4:][::-1].astype(dt.numpy)
    arrays = [given, np.full(want.size, 1, dt.numpy)]
    compare(kernel, [load([kernel], t) for t in TARGETS], arrays, [], want.ravel())


@pytest.mark.parametrize("dt", ALL, ids=str)
def test_lanes_past_the_count_are_not_touched(dt):
    k = Builder("fence")
    x, o, n = k.input("x", dt), k.output("o", dt), k.int("n")
    k.store(o, 0, k.load(x, 0, LANES, n), n)
    kernel = k.build()
    for loaded in [load([kernel], t) for t in TARGETS]:
        for n in (0, 1, 3, 9, 15):
            a = FENCED.end(values(dt, n), 0)
            b = FENCED.end(np.zeros(n, dt.numpy), 1)
            call(loaded, kernel, [a, b], [n])
            same(b, a)


@pytest.mark.parametrize("dt", ALL, ids=str)
def test_stores_past_the_caches(dt):
    """The hint changes nothing: at addresses that allow such a store and at others, with what other stores write before and after."""
    k = Builder("stream")
    x, o, at = k.input("x", dt), k.output("o", dt), k.int("at")
    k.store(o, at + 1, k.load(x, 0, LANES), stream=True)
    k.store(o, at, k.load(x, LANES, LANES), stream=True)
    k.store(o, at + 2 * LANES, k.load(x, 3, LANES), 5, stream=True)
    k.store(o, at, k.load(x, 1), stream=True)
    kernel = k.build()
    text = print_kernel(kernel)
    assert text.count(" stream\n") == 4 and print_kernel(parse_kernel(text)) == text
    loads = [load([kernel], t) for t in TARGETS]
    for place in range(LANES + 1):
        compare(kernel, loads, [values(dt, 2 * LANES), np.zeros(4 * LANES, dt.numpy)], [place])


def test_large_outputs_are_written_past_the_caches():
    from tengen import Tensor, trace
    from tengen.kernels.axes import STREAMED_BYTES

    a = np.arange(STREAMED_BYTES // 4 + 7, dtype=np.float32)  # not whole vectors
    x = Tensor(a)
    want = (a + 1).tobytes()
    assert (x + 1).numpy().tobytes() == want and trace(lambda x: x + 1)(x).numpy().tobytes() == want
    square = Tensor(a[: STREAMED_BYTES // 4].reshape(-1, 4096))
    assert trace(lambda x: x.T + 1)(square).numpy().tobytes() == (square.numpy().T + 1).tobytes()


def gather_kernel(dt):
    """Loads and stores by strides, backwards, and by computed indices; whole and partial."""
    k = Builder(f"gather_{dt}")
    x, i, o = k.input("x", dt), k.input("i", int64), k.output("o", dt)
    n, s = k.int("n"), k.int("s")
    where = k.load(i, 0, LANES)
    k.store(o, 0, k.load(x, ramp() * s + 60))
    k.store(o, 16, k.load(x, where))
    k.store(o, 32, k.load(x, const(20) - ramp(), count=n, other=1))
    k.store(o, 48, k.load(x, where, count=n, other=1))
    k.store(o, ramp() * 2 + 64, k.load(x, ramp() + 5))
    k.store(o, where + 100, k.load(x, 3, LANES))
    k.store(o, ramp() * s + 300, k.load(x, 4, LANES), n)
    k.store(o, where + 400, k.load(x, 6, LANES), n)
    k.store(o, ramp() * 0 + 550, k.load(x, 6, LANES))
    return k.build()


INDEX = np.array([3, 3, 90, 0, 127, 5, 6, 7, 7, 7, 50, 51, 52, 1, 2, 3])


@pytest.mark.parametrize("dt", ALL, ids=str)
def test_gather_and_scatter(dt):
    """A scatter's last lane wins."""
    kernel = gather_kernel(dt)
    loads = [load([kernel], t) for t in TARGETS]
    a, index = values(dt, 128), INDEX
    for n, s in [(16, 3), (0, 1), (5, -3), (-4, 0), (99, 2)]:
        out = np.zeros(600, dt.numpy)
        want = out.copy()
        m = min(max(n, 0), LANES)
        lanes = np.arange(LANES)
        want[:16], want[16:32], want[32:64] = a[60 + lanes * s], a[index], 1
        want[32 : 32 + m], want[48 : 48 + m] = a[20 - lanes[:m]], a[index[:m]]
        want[64:96:2] = a[5:21]
        for j in range(LANES):
            want[index[j] + 100] = a[3 + j]
        for j in range(m):
            want[300 + j * s] = a[4 + j]
        for j in range(m):
            want[400 + index[j]] = a[6 + j]
        want[550] = a[21]
        compare(kernel, loads, [a, index, out], [n, s], want)


@but(every=3)
@pytest.mark.parametrize("dt", ALL, ids=str)
def test_every_second_to_fifth_element(dt):
    """Elements that are not far apart are loaded with what lies between them, and with nothing before, behind or past the count."""
    for step in (2, 3, 4, 5):
        k = Builder("every")
        x, o, n = k.input("x", dt), k.output("o", dt), k.int("n")
        with k.if_(n >= LANES):
            k.store(o, 0, k.load(x, ramp() * step))
        with k.else_():
            k.store(o, 0, k.load(x, ramp() * step, count=n, other=1))
        kernel = k.build()
        for loaded in [load([kernel], t) for t in TARGETS]:
            for n in (16, 15, 9, 8, 2, 1, 0, -1):
                a = values(dt, max(n - 1, 0) * step + (n > 0))
                want, got = np.full(LANES, 1, dt.numpy), np.zeros(LANES, dt.numpy)
                want[: max(n, 0)] = a[::step]
                for fence in (FENCED.begin, FENCED.end):
                    call(loaded, kernel, [fence(a), got], [n])
                    same(got, want)


def test_partial_gather_reads_nothing_past_the_count():
    k = Builder("fence")
    x, i, o, n = k.input("x", float32), k.input("i", int64), k.output("o", float32), k.int("n")
    k.store(o, 0, k.load(x, k.load(i, 0, LANES), count=n))
    k.store(o, 16, k.load(x, ramp() * 3, count=n))
    kernel = k.build()
    a, index = FENCED.end(values(float32, 13)), np.full(LANES, 1 << 40)
    index[:5] = [12, 0, 3, 3, 11]
    for loaded in [load([kernel], t) for t in TARGETS]:
        got = np.zeros(32, np.float32)
        call(loaded, kernel, [a, index, got], [5])
        same(got, np.concatenate([a[index[:5]], np.zeros(11), a[::3], np.zeros(11)]).astype(np.float32))


def test_bytes_other_than_one_are_true():
    k = Builder("truth")
    x, o = k.input("x", bool_), k.output("o", bool_)
    k.store(o, 0, k.load(x, 0, LANES))
    k.store(o, 16, k.load(x, 2))
    kernel = k.build()
    raw, got = np.arange(16, dtype=np.uint8) * 17, np.zeros(17, np.uint8)
    call(load([kernel]), kernel, [raw, got])
    assert got.tolist() == [0] + [1] * 16


def test_scratch_is_aligned_and_private():
    k = Builder("scratch")
    x, o, n = k.input("x", float32), k.output("o", float32), k.int("n")
    s, t = k.scratch("s", float32, 48), k.scratch("t", bool_, 5)
    piece = k.split(n)
    k.store(s, 0, k.load(x, piece * LANES, LANES))
    k.store(t, 3, k.load(s, 2) > 50.0)
    with k.loop(0, LANES) as i:
        k.store(s, i + 17, k.load(s, const(15) - i))
    k.store(o, piece * LANES, k.load(s, 17, LANES))
    with k.if_(k.load(t, 3)):
        k.store(o, piece * LANES, const(-1.0, float32))
    kernel = k.build()
    a = values(float32, 64)
    want = a.reshape(4, 16)[:, ::-1].copy()
    want[a[2::16] > 50, 0] = -1
    got = np.zeros(64, np.float32)
    call(load([kernel]), kernel, [a, got], [4], 0, 4)
    same(got, want.ravel())
    reference = np.zeros(64, np.float32)
    interpret(kernel, [a, reference], [4])
    same(reference, got)


def test_a_prefetch_may_be_of_any_place():
    k = Builder("early")
    x, o = k.input("x", float32), k.output("o", float32)
    for at in (0, 12, 13, -1, 1 << 40, -(1 << 50)):
        k.prefetch(x, at)
    k.store(o, 0, k.load(x, 12))
    kernel = parse_kernel(print_kernel(k.build()))
    assert "prefetch x[-1]" in print_kernel(kernel)
    verify(kernel)
    a, reference = FENCED.end(values(float32, 13)), np.zeros(1, np.float32)
    interpret(kernel, [a, reference], [])
    for target in TARGETS:
        got = np.zeros(1, np.float32)
        call(load([kernel], target), kernel, [a, got])
        assert got[0] == reference[0] == a[12]


def test_a_partial_access_is_small():
    """Sixteen branches would be: the code of one partial access stays a short loop."""
    for dt in ALL:
        for target in (Target.named("x86-64-v3"), Target.named("aarch64")):
            k = Builder("tail")
            x, o, n = k.input("x", dt), k.output("o", dt), k.int("n")
            k.store(o, 0, k.load(x, 0, LANES, n), n)
            assert emit_kernel(k.build(), target).count("\n") < 60


def test_the_remainder_of_a_row_is_not_limited_once_more():
    """The number of its lanes is below 16 by itself."""
    for target in TARGETS:
        k = Builder("row")
        x, o, n = k.input("x", float32), k.output("o", float32), k.int("n")
        k.split(1)
        for i, count in k.vector_loop(0, n):
            v = k.load(x, i, LANES, count)
            k.store(o, i, v if count is None else select(ramp() < splat(count), v, 1.0), count)
        text = emit_kernel(k.build(), target)
        assert text.count("@llvm.masked.") == 2 * target.masks(4)
        assert not re.search("icmp s.t i64 .*, (0|16)$", text, re.M)
        assert text.count("icmp slt <16 x i") == 1, "the select has the mask of the load and the store"
