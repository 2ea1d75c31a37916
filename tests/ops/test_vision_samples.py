"""Samples between pixels: the kernels that compute where taps lie have the bits of sums of taps whose places and weights are tables."""

from __future__ import annotations

import numpy as np
import pytest

from tengen import Tensor, trace
from tengen import functional as F
from tengen.base.errors import DTypeError, IndexOutOfRange, ShapeError
from tengen.ops.vision_samples import linear_samples, linear_samples_of_taps

NAN, INF = float("nan"), float("inf")


def picture(shape: tuple[int, ...], dtype: str, r: np.random.Generator) -> Tensor:
    """(N, H, W, C) as (N, C, H * W), whose channels lie beside each other."""
    x = r.normal(size=shape) if dtype.startswith("f") else r.integers(0, 120, shape)
    n, h, w, c = shape
    return Tensor(x.astype(dtype)).reshape(n, h * w, c).transpose(0, 2, 1)


def coordinates(n: int, size: tuple[int, ...], h: int, w: int, dtype: str, r: np.random.Generator) -> list[Tensor]:
    """Rows and columns, also far outside, on edges, infinite and NaN; the last is an image's last pixel."""
    made = []
    for extent in (h, w):
        c = r.uniform(-4, extent + 4, (n, 1, *size)).astype(dtype)
        flat = c.reshape(-1)
        flat[::7] = np.round(flat[::7])
        some = np.array([NAN, INF, -INF, 6e4, -6e4, -1.0, -0.0, extent - 1, extent, extent - 0.5], dtype)
        flat[3 : 3 + len(some)] = r.permutation(some)[: max(flat.size - 3, 0)]
        flat[-1:] = extent - 1
        made.append(Tensor(c))
    return made


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "float32", "float64", "float16"])
def test_bits_of_tables(dtype, zeros):
    """Of each number of channels, by rows that are shorter and longer than vectors and blocks, eagerly and traced."""
    r = np.random.default_rng(1)
    d = dtype if dtype.startswith("float") else "float32"
    for c, h, w, size in ((1, 5, 7, (3, 17)), (2, 3, 4, (70,)), (3, 1, 1, (2, 16)), (3, 6, 5, (2, 131)), (4, 2, 9, (33,)), (5, 4, 4, (2, 16))):
        x, at = picture((2, h, w, c), dtype, r), coordinates(2, size, h, w, d, r)
        for operands in ((x, None, *at), (x, Tensor([1, 0, 1]), *(t[:1] for t in at))):
            want = trace(linear_samples_of_taps)(*operands, (h, w), zeros)
            for got in (f(*operands, (h, w), zeros) for f in (trace(linear_samples), linear_samples)):
                assert got.dtype == want.dtype == d
                np.testing.assert_array_equal(got.numpy(), want.numpy(), err_msg=str((c, size)))


def test_a_pixel_that_is_no_number():
    """A NaN beside a place counts, with a weight of 0 too, as in the tables; nothing behind the image does."""
    x = np.full((1, 4, 5, 3), 2, "f4")
    x[0, 1, 2], x[0, 3, 4] = NAN, INF
    image = Tensor(x).reshape(1, 20, 3).transpose(0, 2, 1)
    at = [Tensor(a.astype("f4")[:, None]) for a in np.meshgrid(np.arange(-1, 5, 0.25), np.arange(-1, 6, 0.25), indexing="ij")]
    at = [t.reshape(1, 1, *t.shape[::2]) for t in at]
    for zeros in (False, True):
        got, want = (trace(f)(image, None, *at, (4, 5), zeros).numpy() for f in (linear_samples, linear_samples_of_taps))
        assert np.isnan(got).any() and not np.isnan(got).all()
        np.testing.assert_array_equal(got, want)


def test_warps_compute_places_in_their_kernel():
    """For few channels, where what lies outside is 0 or the nearest pixel; else the tables are made once for all channels."""
    from recorded import graph_of

    x, at = Tensor(np.zeros((1, 3, 4, 5), "f4")), Tensor(np.zeros((1, 2, 3, 2), "f4"))
    ops = lambda x, *args: {n.op for n in graph_of(lambda x, at: F.vision.remap(x, at, *args), x, at).nodes}
    for args in (("replicate",), ("constant",)):
        assert "linear_samples" in ops(x, *args) and "tap_sum" not in ops(x, *args)
    for args in (("constant", 1.0), ("reflect",), ("replicate", 0.0, "cubic")):
        assert "tap_sum" in ops(x, *args) and "linear_samples" not in ops(x, *args)
    assert "tap_sum" in ops(Tensor(np.zeros((1, 5, 4, 5), "f4")), "replicate")


def test_errors():
    x, c = Tensor(np.zeros((1, 3, 20), "f4")), Tensor(np.zeros((1, 1, 4), "f4"))
    with pytest.raises(ShapeError, match=r"size=\(4, 6\) must be the extents"):
        linear_samples(x, None, c, c, (4, 6), False)
    with pytest.raises(ShapeError, match="rows and columns"):
        linear_samples(x, None, c, Tensor(np.zeros((1, 1, 5), "f4")), (4, 5), False)
    with pytest.raises(DTypeError, match="numbers of images must be integers"):
        linear_samples(x, Tensor([0.0]), c, c, (4, 5), False)
    with pytest.raises(ShapeError, match="no pixels"):
        linear_samples(Tensor(np.zeros((1, 3, 0), "f4")), None, c, c, (0, 5), False)
    with pytest.raises(IndexOutOfRange):
        linear_samples(x, Tensor([1]), c, c, (4, 5), False)
