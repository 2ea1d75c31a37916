"""Pointwise kernels over pixels: channels that lie beside each other, read and written in any order, have NumPy's values."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from launching import array_of, compile_and_run, run

from tengen.base.dtype import uint8
from tengen.codegen.targets import Target
from tengen.kernels.lowering import Array, Lowering
from tengen.kernels.pixels import channel_axes
from tengen.kernels.pointwise import pointwise
from tengen.kernels.source import Elementwise, Leaf
from tengen.loops.lang import cast, var
from tengen.loops.text import print_kernel

RNG = np.random.default_rng(0)
WIDTHS = (15, 16, 17, 31, 33, 64)


def picture(*shape: int, dtype="u1") -> np.ndarray:
    return RNG.integers(0, 100, shape).astype(dtype)


def copied(x: np.ndarray, out: np.ndarray) -> str:
    """Copies by the interpreter and by machine code, where what is not written shows; the kernel's text."""
    (a, am), (o, om) = array_of(x, "x"), array_of(out, "o")
    lo = Lowering(Target.host())
    pointwise(lo, [Leaf(a)], [o])
    text = print_kernel(lo.launches[0].kernel)
    for how in (run, compile_and_run):
        om[:] = 7
        how(lo, {"x": am, "o": om})
        assert out.tobytes() == x.tobytes(), (how, x.shape, x.strides)
    return text


@pytest.mark.parametrize("dtype", ["u1", "?", "i2", ml_dtypes.bfloat16, "f4", "f8"], ids=str)
def test_channels_and_pixels_in_any_order(dtype):
    for width, channels in ((33, 2), (17, 3), (16, 4), *(((15, 3), (31, 4), (64, 3)) if dtype == "u1" else ())):
        x = picture(2, width, channels, dtype=dtype)
        planes = np.ascontiguousarray(x.transpose(0, 2, 1)).transpose(0, 2, 1)
        for some, pixels in ((x[..., ::-1], 2 * width), (x[:, ::-1], width), (planes, width)):
            assert (f"ramp() * {channels} +" in copied(some, np.zeros(x.shape, dtype))) == (pixels >= 16)
        assert "ramp() * -1 +" in copied(x[:, ::-1, ::-1], np.zeros(x.shape, dtype))  # one axis, backwards


def test_rows_with_gaps_and_pictures_of_one_pixel():
    x = picture(5, 40, 6)
    copied(x[1::2, 3:36, 2:5][..., ::-1], np.zeros((2, 33, 3), "u1"))  # every second row, a crop, three of six channels
    copied(x[:, :1, ::-1], np.zeros((5, 1, 6), "u1"))
    copied(x[:, ::3, :3], np.zeros((5, 14, 3), "u1"))
    out = picture(3, 18, 4)
    copied(picture(3, 18, 2)[..., ::-1], out[..., 1:3])  # which fills half of its pixels, and leaves the rest
    assert (out[..., [0, 3]] == 7).all()


@pytest.mark.parametrize("width", WIDTHS)
def test_numbers_of_a_channel_and_of_a_pixel(width):
    """(x - mean[channel]) * scale[pixel], from bytes in rows backwards, to pixels, by several rows; and its double."""
    x, mean, scale = picture(6, width, 3)[:, ::-1], picture(3, dtype="f4"), picture(width, 1, dtype="f4")
    (a, am), (m, mm), (s, sm) = array_of(x, "x"), array_of(mean, "m"), array_of(scale, "s")
    outs = [np.zeros(x.shape, "f4") for _ in range(2)]
    (o, om), (p, pm) = array_of(outs[0], "o"), array_of(outs[1], "p")
    f32 = o.dtype
    wide = [Leaf(b.expand(x.shape)) for b in (m, s)]
    y = Elementwise(lambda v, u, w: cast(v, f32) - u * w, [Leaf(a), *wide], x.shape, f32)
    double = Elementwise(lambda v: v + v, [y], x.shape, f32)
    lo = Lowering(Target.host())
    pointwise(lo, [y, double], [o, p])
    for how in (run, compile_and_run):
        om[:] = pm[:] = 7
        how(lo, {"x": am, "m": mm, "s": sm, "o": om, "p": pm})
        want = x.astype("f4") - mean * scale
        assert (outs[0] == want).all() and (outs[1] == want + want).all()


def test_pairs_of_pixels_in_one_kernel_with_three_outputs():
    """A brightness for each pixel and a colour for each two of them, as cameras give them, to three outputs in one array."""
    for width in (16, 18, 40):
        light, colour, out = picture(3, width, 2), picture(3, width, 1), np.zeros((3, width, 2, 3), "u1")
        (a, am), (c, cm), (_, om) = array_of(light, "x"), array_of(colour, "c"), array_of(out, "o")
        wide = Leaf(c.expand(light.shape))
        sums = [Elementwise(lambda v, w, i=i: v + w * i, [Leaf(a), wide], light.shape, uint8) for i in range(3)]
        outs = [array_of(out[..., i], "o")[0] for i in range(3)]
        lo = Lowering(Target.host())
        pointwise(lo, sums, outs)
        assert "ramp() * 6 +" in print_kernel(lo.launches[0].kernel)
        for how in (run, compile_and_run):
            om[:] = 7
            how(lo, {"x": am, "c": cm, "o": om})
            assert (out == light[..., None] + colour[..., None] * np.arange(3, dtype="u1")).all()


@pytest.mark.parametrize(("dtype", "channels"), [("u1", 3), ("u1", 2), ("i1", 4), ("?", 3), ("i2", 3)])
def test_turned_pictures(dtype, channels):
    """Turned by a quarter to the left and to the right, and with rows for columns: around the 16 rows and columns of a square, and where
    the last piece has more rows than the others."""
    sizes = ((17, 20), (15, 16)) if (dtype, channels) != ("u1", 3) else ((16, 16), (17, 33), (16, 15), (130, 18), (2, 30))
    for height, width in sizes:
        x = picture(1 if height == 130 else 2, height, width, channels, dtype=dtype).transpose(0, 2, 1, 3)
        by_squares = min(height, width) >= 16 and dtype != "i2"
        for some in (x, x[:, ::-1], x[:, :, ::-1]) if height != 130 else (x[:, ::-1],):
            assert ("scratch before" in copied(some, np.zeros(x.shape, dtype))) == by_squares, (height, width)


def test_a_turned_picture_is_computed_with():
    """The difference of a turned picture and a crop of another that is turned back, as floats."""
    x, y = picture(33, 20, 3), picture(40, 24, 3)[2:35, 1:21][:, ::-1]
    (a, am), (b, bm) = array_of(x.transpose(1, 0, 2), "x"), array_of(y.transpose(1, 0, 2), "y")
    out = np.zeros((20, 33, 3), "f4")
    (o, om) = array_of(out, "o")
    lo = Lowering(Target.host())
    pointwise(lo, [Elementwise(lambda v, w: cast(v, o.dtype) - cast(w, o.dtype), [Leaf(a), Leaf(b)], out.shape, o.dtype)], [o])
    assert print_kernel(lo.launches[0].kernel).count("scratch before") == 2
    for how in (run, compile_and_run):
        om[:] = 7
        how(lo, {"x": am, "y": bm, "o": om})
        assert (out == x.transpose(1, 0, 2).astype("f4") - y.transpose(1, 0, 2)).all()


def test_which_axes_are_channels():
    n = var("n")
    dense = lambda *shape: Array("o", uint8, shape, tuple(np.cumprod([1, *[d for d in shape[:0:-1]]])[::-1].tolist()))
    assert channel_axes([Array("x", uint8, (4, 32, 3), (96, 3, -1))], [dense(4, 32, 3)]) == 1
    assert channel_axes([Array("x", uint8, (n, 3), (3, -1))], [Array("o", uint8, (n, 3), (3, 1))]) == 1  # an open extent
    assert channel_axes([Array("x", uint8, (32, 3), (6, 1))], [dense(32, 3)]) == 1  # half of what lies there
    assert channel_axes([Array("x", uint8, (32, 2, 2), (2, 0, 1))], [dense(32, 2, 2)]) == 2
    few, many, apart = ((15, 3), (3, -1)), ((32, 9), (9, -1)), [((32, 3), (7, 1)), ((32, 2), (5, 1)), ((32, 3), (n, 1))]
    for x in (few, many, *apart):
        assert channel_axes([Array("x", uint8, *x)], [dense(*x[0])]) == 0, x
    assert channel_axes([Array("x", uint8, (32, 2), (2, -1))], [Array("o", uint8, (32, 2), (3, 1))]) == 0  # gaps between pixels
