"""Sums of columns: how many of them one piece takes, which the rule says from columns and chunks, shows in no bit."""

from __future__ import annotations

import numpy as np

from tengen import Tensor, trace
from tengen.kernels import numerics
from tengen.kernels.machine import ENOUGH_PIECES
from tengen.kernels.reduction.columns import LANES, columns_width


def test_widths_follow_columns_and_chunks():
    assert columns_width([4], 256) == 256 and columns_width([4, 4], 256) == 128
    assert columns_width([4, 4], 256, chunks=ENOUGH_PIECES) == 256 and columns_width([4, 4], 256, chunks=ENOUGH_PIECES - 1) == 128
    assert columns_width([4, 4], 144) == 80 and columns_width([4, 4], 144, chunks=ENOUGH_PIECES) == 144
    assert columns_width([8] * 100, 7, chunks=ENOUGH_PIECES) == LANES


def test_wide_and_narrow_blocks_of_columns_have_the_same_bits():
    x = np.random.default_rng(0).normal(size=(numerics.CHUNK_ELEMENTS * (ENOUGH_PIECES - 1) + 17, 144)).astype("float32")
    sums = trace(lambda t: (t.sum(0), (t * t).sum(0)))
    many = [s.numpy() for s in sums(Tensor(x))]
    for first in (0, 77, 144 - LANES):
        few = sums(Tensor(np.ascontiguousarray(x[:, first : first + LANES])))
        assert all(np.array_equal(m[first : first + LANES], f.numpy()) for m, f in zip(many, few))
    whole = np.random.default_rng(1).integers(-5, 6, x.shape).astype("float32")  # sums of these need no rounding
    got = sums(Tensor(whole))
    assert (got[0].numpy() == whole.sum(0, dtype="float64")).all() and (got[1].numpy() == (whole * whole).sum(0, dtype="float64")).all()
