"""Pooling where windows reach over the border: what lies outside never wins, whatever the image holds, in any layout."""

import numpy as np
import pytest
from exhaustive import but
from launching import array_of
from machine import Compiled

import tengen.functional as F
from tengen import Tensor, autodiff
from tengen.base.errors import ShapeError
from tengen.codegen.targets import Target
from tengen.kernels.lowering import Lowering
from tengen.kernels.reduction.folding import simple_fold
from tengen.kernels.reduction.windows import Geometry, Windows, fold_windows
from tengen.loops.text import print_kernel
from tengen.ops.pool import _np_avg_grad, _np_max_grad, _np_pool

SHAPES = [(2, 17, 5, 10), (1, 1, 1, 1)]
WINDOWS = [(3, 2, 1), (2, 2, 1), (2, 3, 0), (9, 4, 4), (9, 1, 4), ((3, 1), (1, 2), (1, 0))]


def image(shape, last: bool) -> np.ndarray:
    """Mostly -inf, some NaN and some ones: many windows are equal or hold nothing that is larger than padding."""
    r = np.random.default_rng(0)
    x = np.full(shape, -np.inf, np.float32)
    x[r.random(shape) < 0.2] = 1
    x[r.random(shape) < 0.05] = np.nan
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2) if last else x


@but(every=3)
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size, stride, padding", WINDOWS)
def test_borders(size, stride, padding, shape, last):
    x = image(shape, last)
    try:
        y, pull = autodiff.vjp(lambda t: F.max_pool2d(t, size, stride, padding), Tensor(x))
    except ShapeError:
        pytest.skip("no window fits")
    np.testing.assert_array_equal(y.numpy(), _np_pool(x, size, stride, padding, lambda v, _: v.max(-1)))
    g = np.arange(y.numpy().size, dtype=np.float32).reshape(y.shape) + 1
    np.testing.assert_array_equal(pull(Tensor(g))[0].numpy(), _np_max_grad(g, x, size, stride, padding))
    _, pull = autodiff.vjp(lambda t: F.avg_pool2d(t, size, stride, padding), Tensor(x))
    want = _np_avg_grad(g, x, size, stride, padding, "average_count_exclude_padding")
    np.testing.assert_allclose(pull(Tensor(g))[0].numpy(), want, 1e-6, 1e-6)


def test_whole_vectors_of_bytes_are_read_without_masks():
    """Many targets have no masks for bytes: a masked load is a loop over its lanes there."""
    x = np.random.default_rng(1).integers(0, 256, (2, 7, 6, 32)).astype("uint8").transpose(0, 3, 1, 2)
    for size, stride, padding in WINDOWS[:2]:
        want = _np_pool(x, size, stride, padding, lambda v, _: v.max(-1)).astype("uint8")
        out = np.zeros(np.array(want.shape)[[0, 2, 3, 1]], "uint8").transpose(0, 3, 1, 2)
        (image, memory), (pooled, results), lo = array_of(x, "x"), array_of(out, "y"), Lowering(Target.host())
        sizes = ((n,) * 2 for n in (size, stride, padding))
        windows = Windows(image, Geometry(image.shape[2:], pooled.shape[2:], *sizes), 0)
        fold_windows(lo, simple_fold("max", image.dtype), windows, pooled, lambda k, v, at: v, "pool")
        Compiled(lo, {"x": memory, "y": results}, ["y"])()
        np.testing.assert_array_equal(out, want)
        assert not [line for launch in lo.launches for line in print_kernel(launch.kernel).split("\n") if " first " in line]


def test_large_windows_have_the_bits_of_one_alone():
    """Vectors run along channels, along pixels of a row, or along the window where there is nothing else: sums have one order."""
    r = np.random.default_rng(2)
    cases = ((19, (9, 11), 1, (4, 0)), (3, (9, 11), 1, (3, 5)), (19, (9, 11), 2, (3, 1)), (5, (70,), 3, (32,)), (19, (3, 5, 7), 1, (1, 2, 3)))
    for depth, kernel, step, padding in cases:
        axes = len(kernel)
        pool = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}[axes]
        x = r.standard_normal((2, depth, *(k + 20 for k in kernel))).astype("f4")
        last = np.ascontiguousarray(np.moveaxis(x, 1, -1))
        rows = pool(Tensor(x), kernel, step, padding).numpy()
        channels = pool(Tensor(last).transpose(0, axes + 1, *range(1, axes + 1)), kernel, step, padding).numpy()
        assert rows.tobytes() == np.ascontiguousarray(channels).tobytes()
        place = [(pad + 1) // step for pad in padding]  # of a window that begins at pixel 1 and lies in the image
        inside = [slice(1, 1 + k) for k in kernel]
        alone = pool(Tensor(np.ascontiguousarray(x[:, :, *inside])), kernel, 1, 0).numpy()
        assert alone.tobytes() == np.ascontiguousarray(rows[:, :, *place]).tobytes()


def test_large_windows_of_bytes():
    """Also where strides are larger, and channels fill no vector."""
    x = np.random.default_rng(3).integers(-128, 128, (2, 21, 24, 13)).astype("int8")
    for size, stride, padding in ((9, 1, 4), (9, 2, 3), ((17, 5), (3, 1), (8, 2))):
        want = _np_pool(x, size, stride, padding, lambda v, _: v.max(-1))
        for image in (Tensor(x), Tensor(x.transpose(0, 2, 3, 1).copy()).transpose(0, 3, 1, 2)):
            assert np.array_equal(F.max_pool2d(image, size, stride, padding).numpy(), want)
