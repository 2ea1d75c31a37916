"""Weighted sums of windows: the kernel with a row of results in the lanes has the bits of the loop that reads pixel by pixel."""

from __future__ import annotations

import numpy as np
import pytest
from launching import array_of, compile_and_run, run

from tengen.base.dtype import float32, uint8
from tengen.codegen.targets import Target
from tengen.kernels.indexing.window_kernels import BLOCK_WINDOW_PIXELS, MOST_RING_BYTES, PIECE_RESULT_ROWS
from tengen.kernels.indexing.windows import Windows
from tengen.kernels.lowering import Lowering
from tengen.kernels.pointwise import pointwise
from tengen.kernels.source import Elementwise, Leaf, View, broadcast
from tengen.loops.lang import cast, unary
from tengen.loops.text import print_kernel

PLACES, SUMMED = "scratch places", "scratch summed"


def windows(n: int, h: int, w: int, c: int, high: int, wide: int, dtype: str, taps=(2, 2), weights="f4"):
    """(picture, rows, their weights, columns, their weights), in which places lie outside, too, and some weights are 0."""
    r = np.random.default_rng(h * w + c)
    x = r.normal(size=(n, h, w, c)).astype(dtype) if dtype[0] == "f" else r.integers(-9, 120, (n, h, w, c)).astype(dtype)
    made = [x]
    for size, out, t in ((h, high, taps[0]), (w, wide, taps[1])):
        weight = r.uniform(-1, 1, (t, out)).astype(weights)
        weight[0, :: max(out // 3, 1)] = 0
        made += [r.integers(-2, size + 1, out), weight]
    return made


def expected(x, row, row_weight, column, column_weight, joint):
    """Each step in long doubles, in which products of float32 are exact, and rounded to float32."""
    d = row_weight.dtype
    exact = np.longdouble
    weigh = lambda total, w, v: (w * v if total is None else (w.astype(exact) * v + total)).astype(d)

    def pixel(t, s):
        v = x[:, np.clip(row + t, 0, x.shape[1] - 1)][:, :, np.clip(column + s, 0, x.shape[2] - 1)].astype(d)
        nothing = (row_weight[t] == 0)[:, None, None] | (column_weight[s] == 0)[:, None]
        return np.where(nothing, d.type(0), v) if x.dtype.kind == "f" else v

    total, rows, columns = None, range(len(row_weight)), range(len(column_weight))
    if joint:
        for t in rows:
            for s in columns:
                total = weigh(total, row_weight[t][:, None, None] * column_weight[s][:, None], pixel(t, s))
        return total
    for s in columns:
        down = None
        for t in rows:
            down = weigh(down, row_weight[t][:, None, None], pixel(t, s))
        total = weigh(total, column_weight[s][:, None], down)
    return total


def launched(operands, out, joint, final=None, target=None):
    arrays = {f"{i}": array_of(a, f"{i}") for i, a in enumerate([*operands, out])}
    *ins, o = (a for a, _ in arrays.values())
    s = Windows(*map(Leaf, ins), joint)
    lo = Lowering(target or Target.host())
    pointwise(lo, [final(s) if final else s], [o])
    return lo, {id: m for id, (_, m) in arrays.items()}


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("dtype", ["u1", "i1", "i2", "f4"])
def test_a_row_in_the_lanes(dtype, joint):
    """Each number of channels; more rows than a piece has, one row and column, one tap of an axis, and crops of a larger picture."""
    shapes = (2, 5, 9, 3, PIECE_RESULT_ROWS + 3, 11), (1, 3, 1, 4, 5, 8), (1, 1, 7, 2, 2, 17), (2, 4, 6, 1, 3, 33)
    for i, (n, h, w, c, high, wide) in enumerate(shapes):
        x, *others = windows(n, h, w, c, high, wide, dtype, taps=(1, 2) if i == 2 else (2, 2))
        frame = np.full((n, h + 2, w + 3, c), 99, dtype)
        frame[:, 1 : h + 1, 2 : w + 2] = x
        out = np.zeros((n, high, wide, c), "f4")
        for picture in (x, frame[:, 1 : h + 1, 2 : w + 2]):
            lo, memory = launched([picture, *others], out, joint)
            assert PLACES in print_kernel(lo.launches[0].kernel)
            for how in (run, compile_and_run) if c == 3 else (compile_and_run,):
                out[:] = 7
                how(lo, memory)
                np.testing.assert_array_equal(out, expected(x, *others, joint), err_msg=f"{how} {n, h, w, c}")


@pytest.mark.parametrize("dtype", ["u1", "i2"])
def test_sums_down_the_columns_are_spread_out(dtype):
    """Where results of integers have more columns: by rows of less than a block, of some, and of some and a part of one."""
    shapes = (1, 3, 9, 3, 4, 17), (2, 2, 40, 4, 3, 2 * BLOCK_WINDOW_PIXELS), (1, 4, 70, 1, 20, BLOCK_WINDOW_PIXELS + 9), (1, 2, 5, 2, 3, 131)
    for n, h, w, c, high, wide in shapes:
        x, *others = windows(n, h, w, c, high, wide, dtype)
        out = np.zeros((n, high, wide, c), "f4")
        text = lambda x, joint=False, *, o=others, y=out: print_kernel(launched([x, *o], y, joint)[0].launches[0].kernel)
        assert SUMMED in text(x) and SUMMED not in text(x, True) and SUMMED not in text(x.astype("f4"))
        lo, memory = launched([x, *others], out, False)
        for how in (run, compile_and_run):
            out[:] = 7
            how(lo, memory)
            np.testing.assert_array_equal(out, expected(x, *others, False), err_msg=f"{how} {n, h, w, c}")
    x, *others = windows(1, 5, 20, 3, 4, 17, dtype)
    assert SUMMED not in print_kernel(launched([x, *others], np.zeros((1, 4, 17, 3), "f4"), False)[0].launches[0].kernel)


def even(r: np.random.Generator, n: int, out: int) -> np.ndarray:
    """Places that are spread evenly, from before the first of n pixels to behind the last one, or near to these."""
    first = r.integers(-2, 2)
    return np.floor(np.linspace(first, n - 1 + r.integers(-2, 2), out)).astype("i8")


@pytest.mark.parametrize("dtype", ["u1", "i1"])
def test_pictures_that_become_narrower_are_read_two_pixels_at_a_time(dtype):
    """Places apart from each other, at both ends of rows and of pictures, and such that taps do not lie beside each other."""
    r = np.random.default_rng(5)
    for n, h, w, c, high, wide in ((2, 4, 41, 3, PIECE_RESULT_ROWS + 2, 13), (1, 2, 9, 4, 5, 8), (1, 1, 7, 3, 2, 6), (3, 3, 5, 4, 3, 4)):
        for _ in range(4):
            x, row, u, column, v = windows(n, h, w, c, high, wide, dtype)
            operands = [x, even(r, h, high), u, even(r, w, wide), v]
            frame = np.full((n, h + 1, w + 3, c), 99, dtype)
            frame[:, 1:, 3:] = x  # whose last pixel is the last one of the memory
            for picture in (x, frame[:, 1:, 3:]):
                out = np.zeros((n, high, wide, c), "f4")
                lo, memory = launched([picture, *operands[1:]], out, False)
                assert "even_quads" in print_kernel(lo.launches[0].kernel)
                for how in (run, compile_and_run):
                    out[:] = 7
                    how(lo, memory)
                    np.testing.assert_array_equal(out, expected(*operands, False), err_msg=f"{how} {n, h, w, c}")


@pytest.mark.parametrize("dtype", ["u1", "i2"])
def test_sums_that_lie_near_each_other_are_looked_up(dtype):
    """In pictures that become wider, a little or by much; where places are no such, the same kernel spreads the sums out."""
    r = np.random.default_rng(6)
    for n, h, w, c, high, wide in ((2, 5, 13, 3, PIECE_RESULT_ROWS + 2, 14), (1, 3, 6, 4, 4, 40), (1, 2, 40, 2, 3, 43), (1, 2, 9, 1, 2, 150)):
        for taps in (1, 2):
            x, row, u, column, v = windows(n, h, w, c, high, wide, dtype, taps=(2, taps))
            for places in (even(r, w, wide), column):
                operands = [x, even(r, h, high), u, places, v]
                out = np.zeros((n, high, wide, c), "f4")
                lo, memory = launched(operands, out, False)
                assert "lookup" in print_kernel(lo.launches[0].kernel)
                for how in (run, compile_and_run):
                    out[:] = 7
                    how(lo, memory)
                    np.testing.assert_array_equal(out, expected(*operands, False), err_msg=f"{how} {n, h, w, c}")
    if Target.host().arch == "x86_64":  # a target without lookups
        lo, _ = launched(operands, out, False, target=Target.named("x86-64-exact"))
        assert SUMMED in print_kernel(lo.launches[0].kernel) and "lookup" not in print_kernel(lo.launches[0].kernel)


def test_rows_of_results_whose_tables_are_too_large():
    """They are computed pixel by pixel; a kernel that needs more scratch memory than there may be was an error."""
    wide = MOST_RING_BYTES // 4 // 2 - 16
    x, *others = windows(1, 2, 4, 2, 1, wide, "u1")
    out = np.zeros((1, 1, wide, 2), "f4")
    lo, memory = launched([x, *others], out, False)
    assert PLACES not in print_kernel(lo.launches[0].kernel)
    compile_and_run(lo, memory)
    np.testing.assert_array_equal(out, expected(x, *others, False))


def test_pixel_by_pixel():
    """Where no such kernel is: on other processors, with many channels, pixels with gaps, upside down, or three taps."""
    x, *others = windows(1, 5, 9, 3, 6, 11, "f4")
    out = np.zeros((1, 6, 11, 3), "f4")
    many, *_ = windows(1, 5, 9, 5, 6, 11, "f4")
    three = windows(1, 5, 9, 3, 6, 11, "f4", taps=(3, 3))
    cases = [
        ([x, *others], out, Target.named("cortex-m7")), ([many, *others], np.zeros((1, 6, 11, 5), "f4"), None), (three, out, None),
        ([np.repeat(x, 2, -1)[..., ::2], *others], out, None), ([x[:, ::-1], *others], out, None),
    ]  # fmt: skip
    for operands, out, target in cases:
        for joint in (False, True):
            lo, memory = launched(operands, out, joint, target=target)
            assert PLACES not in print_kernel(lo.launches[0].kernel)
            for how in (run,) if target else (run, compile_and_run):
                out[:] = 7
                how(lo, memory)
                np.testing.assert_array_equal(out, expected(*operands, joint))
    wide = MOST_RING_BYTES // 4 // 2
    x, *others = windows(1, 2, 4, 2, 1, wide, "u1")
    assert PLACES not in print_kernel(launched([x, *others], np.zeros((1, 1, wide, 2), "f4"), False)[0].launches[0].kernel)


def test_a_float_without_weight_counts_as_nothing():
    x, *others = windows(1, 4, 6, 3, 5, 9, "f4")
    x[0, 1:, 2:4], x[0, 0] = np.nan, np.inf
    out = np.zeros((1, 5, 9, 3), "f4")
    for joint in (False, True):
        lo, memory = launched([x, *others], out, joint)
        with np.errstate(invalid="ignore"):
            want = expected(x, *others, joint)
        assert np.isnan(want).any() and not np.isnan(want).all()
        for how in (run, compile_and_run):
            how(lo, memory)
            np.testing.assert_array_equal(out, want)


def test_what_becomes_of_the_sums_is_part_of_the_kernel():
    x, *others = windows(2, 5, 9, 3, 6, 11, "u1")
    out = np.zeros((2, 6, 11, 3), "u1")
    rounded = lambda s: Elementwise(lambda v: cast(unary("rint", v) + 100.0, uint8), [s], s.shape, uint8)
    lo, memory = launched([x, *others], out, False, rounded)
    assert len(lo.launches) == 1 and PLACES in print_kernel(lo.launches[0].kernel)
    for how in (run, compile_and_run):
        out[:] = 7
        how(lo, memory)
        np.testing.assert_array_equal(out, np.clip(np.rint(expected(x, *others, False)) + 100, 0, 255).astype("u1"))


def test_as_a_part_of_a_larger_expression_the_bytes_are_stored_apart():
    """Down to what has the fewest bytes; also under a permutation. Where there is no such kernel, nothing is stored."""
    x, *others = windows(2, 5, 9, 3, 6, 11, "u1")
    shift, out = np.array([1.5, -2.0, 3.25], "f4"), np.zeros((2, 3, 6, 11), "f4")

    def normalised(s):
        a, _ = array_of(shift, "shift")
        rounded = Elementwise(lambda v: cast(unary("rint", v), uint8), [s], s.shape, uint8)
        floats = Elementwise(lambda v: cast(v, float32) / 255.0, [rounded], s.shape, float32)
        whole = Elementwise(lambda v, w: v - w, [floats, broadcast(Leaf(a), s.shape)], s.shape, float32)
        return View(whole, (2, 3, 6, 11), (0, 3, 1, 2), (0,) * 4, (1,) * 4)

    want = np.clip(np.rint(expected(x, *others, False)), 0, 255).astype("u1").astype("f4") / np.float32(255) - shift
    for target in (None, Target.named("cortex-m7")):
        lo, memory = launched([x, *others], out, False, normalised, target)
        memory["shift"] = array_of(shift, "shift")[1]
        assert [d for d, _ in lo.temps.values()] == ([] if target else [uint8])
        assert [PLACES in print_kernel(launch.kernel) for launch in lo.launches] == ([False] if target else [True, False])
        for how in (run,) if target else (run, compile_and_run):
            out[:] = 7
            how(lo, memory)
            np.testing.assert_array_equal(out, want.transpose(0, 3, 1, 2))
