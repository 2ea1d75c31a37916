"""Weighted sums of taps with rows, or pixels, in the lanes: the bits of `pointwise`'s kernel, which goes pixel by pixel."""

from __future__ import annotations

import numpy as np
import pytest
from launching import array_of, compile_and_run, run

from tengen.base.dtype import float32, uint8
from tengen.codegen.targets import Target
from tengen.kernels.indexing.tap_pixels import BLOCK_PIXELS, PIECE_PIXELS
from tengen.kernels.indexing.taps import MOST_TURNED_BYTES, UNROLLED_TAPS, TapSum
from tengen.kernels.lowering import Lowering
from tengen.kernels.pointwise import pointwise
from tengen.kernels.source import Elementwise, Leaf, argument_of
from tengen.loops.lang import cast
from tengen.loops.text import print_kernel

TURNED, WORDS, FLOATS = "scratch turned", "scratch words", "scratch floats"


def taps(rows: int, channels: int, pixels: int, results: int, n: int, dtype="f4", nans=False):
    """(image, places, weights) whose values are such that the order of a sum shows. Places below 0 are outside."""
    r = np.random.default_rng(rows + channels)
    x = r.integers(0, 256, (rows, pixels, channels)).astype(dtype) if dtype != "f4" else r.normal(size=(rows, pixels, channels)).astype("f4")
    if nans:
        x[::3, ::5], x[1, 2] = np.nan, np.inf
    return x, r.integers(-2, pixels, (1, n, results)), r.uniform(-1, 1, (1, n, results)).astype("f4")


def expected(x, index, weight):
    total = None
    for i, w in zip(index[0], weight[0]):
        v = np.where(i[:, None] < 0, 0, x[:, np.maximum(i, 0)].astype("f4"))
        term = w[:, None].astype("f8") * v  # exact in float64, as is the sum but for its rounding
        total = (term if total is None else term + total).astype("f4")
    return total


def launched(x, index, weight, out, final=None, target=None):
    arrays = {id: array_of(a, id) for id, a in {"x": x, "i": index, "w": weight, "o": out}.items()}
    a, i, w, o = (arrays[id][0] for id in "xiwo")
    s = TapSum(Leaf(a.permute([0, 2, 1])), None, Leaf(i), Leaf(w), x.shape[0])
    lo = Lowering(target or Target.host())
    pointwise(lo, [final(s) if final else s], [o.permute([0, 2, 1])])
    return lo, {id: m for id, (_, m) in arrays.items()}


@pytest.mark.parametrize("rows", [16, 17, 33])
def test_rows_in_the_lanes(rows):
    for channels, pixels, results, n in ((1, 20, 16, 2), (2, 9, 17, 1), (3, 16, 31, 4), (4, 33, 18, 3), (15, 5, 16, UNROLLED_TAPS + 1)):
        x, index, weight = taps(rows, channels, pixels, results, n, nans=rows == 33)
        out = np.zeros((rows, results, channels), "f4")
        lo, memory = launched(x, index, weight, out)
        assert TURNED in print_kernel(lo.launches[0].kernel)
        with np.errstate(invalid="ignore"):
            want = expected(x, index, weight)
        for how in (run, compile_and_run) if channels == 2 else (compile_and_run,):  # the interpreter takes its time
            memory["o"][:] = 7
            how(lo, memory)
            np.testing.assert_array_equal(out, want, err_msg=str((how, rows, channels)))


@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "f4"])
def test_taps_outside_of_the_image(dtype):
    """They are 0 with the sign of their weight, in sums along channels, also of so many taps that a loop goes through them, and of rows."""
    for rows, channels, pixels, results, n in ((2, 33, 5, 4, 3), (1, 17, 6, 3, UNROLLED_TAPS + 1), (16, 3, 7, 17, 2), (2, 1, 6, 19, 4)):
        x, index, weight = taps(rows, channels, pixels, results, n, dtype)
        x[:, :, ::2] = 0
        index[..., 1], weight[..., 1:3] = -1, -abs(weight[..., 1:3])
        out = np.zeros((rows, results, channels), "f4")
        lo, memory = launched(x, index, weight, out)
        want = expected(x, index, weight)
        assert np.signbit(want[want == 0]).any()
        for how in (run, compile_and_run):
            memory["o"][:] = 7
            how(lo, memory)
            np.testing.assert_array_equal(out.view("u4"), want.view("u4"), err_msg=str((how, rows, channels)))


def test_bytes_into_rows_with_gaps_rounded():
    """Bytes in a crop of a picture, whose sums become bytes in one of another picture."""
    x, index, weight = taps(20, 3, 40, 21, 5, "u1")
    frame, out = np.zeros((20, 50, 3), "u1"), np.full((20, 30, 3), 7, "u1")
    frame[:, 4:44] = x
    rounded = lambda s: Elementwise(lambda v: cast(v * 0.25 + 100.0, uint8), [s], s.shape, uint8)
    lo, memory = launched(frame[:, 4:44], index, abs(weight), out[:, 6:27], rounded)
    assert TURNED in print_kernel(lo.launches[0].kernel)
    want = np.clip(expected(x, index, abs(weight)) * np.float32(0.25) + np.float32(100), 0, 255).astype("u1")
    for how in (run, compile_and_run):
        memory["o"][:] = 7
        how(lo, memory)
        assert (out[:, 6:27] == want).all() and (out[:, :6] == 7).all() and (out[:, 27:] == 7).all()


@pytest.mark.parametrize("dtype", ["u1", "i1"])
def test_pixels_in_the_lanes(dtype):
    """Bytes in a crop, up to its last pixel, behind which other bytes lie."""
    shapes = (2, 3, 20, 67, 4), (1, 2, 2, 16, 1), (3, 4, 1, 131, 2), (1, 3, 300, 64, 16), (2, 2, 5, PIECE_PIXELS + 17, 1)
    for rows, channels, pixels, results, n in shapes:
        x, index, weight = taps(rows, channels, pixels, results, n, dtype)
        index[..., -1] = pixels - 1
        if pixels == 300:  # more than such an index can tell
            index = index.astype("i1")
        frame, out = np.full((rows, pixels + 7, channels), 99, dtype), np.full((rows, results, channels), 7, "f4")
        frame[:, 4 : 4 + pixels] = x
        lo, memory = launched(frame[:, 4 : 4 + pixels], index, weight, out)
        assert WORDS in print_kernel(lo.launches[0].kernel)
        for how in (run, compile_and_run) if channels == 3 else (compile_and_run,):
            memory["o"][:] = 7
            how(lo, memory)
            np.testing.assert_array_equal(out, expected(x, index, weight), err_msg=str((how, rows, channels)))


@pytest.mark.parametrize("channels", [3, 4])
def test_pixels_of_floats_four_to_a_vector(channels):
    """Up to the last pixel of an image, behind which NaNs lie, with NaNs and infinities among the pixels; results in a crop of a picture."""
    shapes = (1, 2, 16, 1), (2, 20, 67, 4), (3, 300, 2 * BLOCK_PIXELS + 16, 2), (1, 5, PIECE_PIXELS + 17, 1)
    for rows, pixels, results, n in shapes:
        x, index, weight = taps(rows, channels, pixels, results, n)
        x[:, pixels // 2], x[0, 0, 1] = np.nan, np.inf
        index[..., -1] = pixels - 1
        frame, room = np.full((rows, pixels + 1, channels), np.nan, "f4"), np.full((rows, results + 2, channels), 7, "f4")
        frame[:, :pixels] = x
        out = room[:, 1:-1]
        lo, memory = launched(frame[:, :pixels], index, weight, out)
        assert FLOATS in print_kernel(lo.launches[0].kernel)
        with np.errstate(invalid="ignore"):
            want = expected(x, index, weight)
        for how in (run, compile_and_run) if results < PIECE_PIXELS else (compile_and_run,):
            memory["o"][:] = 7
            how(lo, memory)
            np.testing.assert_array_equal(out, want, err_msg=str((how, rows, channels)))
            assert (room[:, [0, -1]] == 7).all()


def test_pixels_of_floats_become_bytes():
    x, index, weight = taps(2, 3, 20, 37, 2)
    out = np.zeros((2, 37, 3), "u1")
    lo, memory = launched(x, index, weight, out, lambda s: Elementwise(lambda v: cast(v * 50.0 + 100.0, uint8), [s], s.shape, uint8))
    assert FLOATS in print_kernel(lo.launches[0].kernel)
    want = np.clip((expected(x, index, weight) * np.float32(50) + np.float32(100)), 0, 255).astype("u1")
    for how in (run, compile_and_run):
        memory["o"][:] = 7
        how(lo, memory)
        np.testing.assert_array_equal(out, want)


def test_where_pixels_are_not_in_the_lanes():
    """Other numbers than bytes, one channel or five, few results, many taps, channels with gaps, pictures below a word, other processors."""
    x, index, weight = taps(2, 3, 20, 16, 2, "u1")
    out = np.zeros((2, 16, 3), "f4")
    text = lambda *a, **kw: print_kernel(launched(*a, **kw)[0].launches[0].kernel)
    assert WORDS in text(x, index, weight, out)
    assert WORDS not in text(x.astype("i2"), index, weight, out)
    assert FLOATS in text(x.astype("f4"), index, weight, out)
    assert FLOATS not in text(x[..., :2].astype("f4"), index, weight, out[..., :2].copy())
    assert FLOATS not in text(x.astype("f4")[:, :1].copy(), np.zeros_like(index), weight, out)
    for channels in (1, 5):
        assert WORDS not in text(np.zeros((2, 20, channels), "u1"), index, weight, np.zeros((2, 16, channels), "f4"))
    assert WORDS not in text(x, index[..., :15], weight[..., :15], out[:, :15].copy())
    assert WORDS not in text(x, index.repeat(9, 1), weight.repeat(9, 1), out)
    assert WORDS not in text(np.zeros((2, 20, 4), "u1")[..., :3], index, weight, out)
    assert WORDS not in text(x[:, :1].copy(), np.zeros_like(index), weight, out)
    assert WORDS not in text(x, index, weight, out, target=Target.named("cortex-m7"))


def test_where_rows_are_not_in_the_lanes():
    """Few rows or results, many channels, rows that no cache holds, pixels with gaps, taps of each row's own, other processors."""
    x, index, weight = taps(16, 3, 20, 16, 2)
    out = np.zeros((16, 16, 3), "f4")
    text = lambda *a, **kw: print_kernel(launched(*a, **kw)[0].launches[0].kernel)
    assert TURNED in text(x, index, weight, out)
    assert TURNED not in text(x[:15], index, weight, out[:15])
    assert TURNED not in text(x, index[..., :15], weight[..., :15], out[:, :15].copy())
    assert TURNED not in text(np.zeros((16, 20, 16), "f4"), index, weight, np.zeros((16, 16, 16), "f4"))
    wide = MOST_TURNED_BYTES // (3 * 16 * 4) + 1
    assert TURNED not in text(np.zeros((16, wide, 3), "f4"), index, weight, out)
    assert TURNED not in text(np.zeros((16, 20, 4), "f4")[..., :3], index, weight, out)
    assert TURNED not in text(x, index.repeat(16, 0), weight.repeat(16, 0), out)
    assert TURNED not in text(x, index, weight, out, target=Target.named("cortex-m7"))
    a, _ = array_of(x, "x")
    assert argument_of(Elementwise(lambda v, w: v + w, [Leaf(a), Leaf(a)], a.shape, float32)) is None
