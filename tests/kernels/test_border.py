"""Contractions over an image's border: the bits of the same convolution of an image that was padded before, and no padded copy."""

import numpy as np
import pytest

import tengen.functional as F
from tengen import Tensor, autodiff
from tengen.ops.conv import conv

CASES = [  # batch, channels, outputs, extents, filter, stride, padding, dilation, groups
    (2, 3, 20, (11, 9), (7, 7), (2, 2), (3, 3), (1, 1), 1),
    (1, 20, 5, (6, 7), (3, 3), (2, 1), (1, 2), (1, 1), 1),
    (1, 300, 17, (3, 2), (3, 3), (1, 1), (2, 1), (1, 1), 1),
    (2, 6, 8, (7, 5), (3, 2), (1, 3), (4, 1), (2, 2), 2),
    (1, 1, 1, (4, 5), (3, 3), (1, 1), (1, 1), (1, 1), 1),
    (1, 4, 4, (9,), (3,), (1,), (1,), (1,), 4),
    (1, 2, 3, (1, 1), (1, 1), (1, 1), (2, 2), (1, 1), 1),
]


@pytest.mark.parametrize("n, c, o, space, kernel, stride, padding, dilation, groups", CASES)
def test_same_bits_as_padded(n, c, o, space, kernel, stride, padding, dilation, groups):
    r = np.random.default_rng(0)
    x, w = r.normal(size=(n, c, *space)).astype("f"), Tensor(r.normal(size=(o, c // groups, *kernel)).astype("f"))
    wide = Tensor(np.pad(x, [(0, 0), (0, 0), *((p, p) for p in padding)]))
    inside = (slice(None), slice(None), *(slice(p, p + d) for p, d in zip(padding, space)))
    run = lambda pad: lambda x, w: conv(x, w, stride, pad, dilation, groups, "direct")
    y, pull = autodiff.vjp(run(padding), Tensor(x), w)
    want, pull_wide = autodiff.vjp(run(0), wide, w)
    assert y.numpy().tobytes() == want.numpy().tobytes()
    g = Tensor(r.normal(size=y.shape).astype("f"))
    (dx, dw), (dx_wide, dw_wide) = pull(g), pull_wide(g)
    assert dw.numpy().tobytes() == dw_wide.numpy().tobytes()
    # Sums of at most some hundred terms in another order, of which the largest result tells the size: 16 roundings.
    want = dx_wide.numpy()[inside]
    np.testing.assert_allclose(dx.numpy(), want, rtol=0, atol=16 * 2.0**-24 * np.abs(want).max(initial=0))


def test_nothing_outside_is_read():
    """NaN around the image in memory: a window on it must not see them."""
    big = np.full((1, 9, 9, 4), np.nan, "f")
    big[:, 2:7, 2:7] = 1
    x = Tensor(big).transpose(0, 3, 1, 2)[:, :, 2:7, 2:7]
    y = F.conv2d(x, Tensor(np.ones((2, 4, 3, 3), "f")), stride=2, padding=1)
    assert y.numpy()[0, 0].tolist() == [[16, 24, 16], [24, 36, 24], [16, 24, 16]]
