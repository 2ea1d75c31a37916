"""Fourier transforms, and random numbers."""

from __future__ import annotations

from typing import Any

import tengen.fft as fft
import tengen.functional as F
from tengen import random
from tengen.interop.networks.values import as_tensor, ints
from tengen.interop.tflite.reader import OpOf
from tengen.interop.tflite.registry import op
from tengen.tensor import Tensor


@op("RFFT2D")
def rfft2d(n: OpOf, x: Any, lengths: Any) -> Tensor:
    """The transform of real matrices in the last two axes, cut or filled with zeros to given extents."""
    t, (rows, columns) = as_tensor(x), ints(lengths)
    t = t[(..., slice(0, rows), slice(0, columns))]
    more = [(0, 0)] * (len(t.shape) - 2) + [(0, rows - t.shape[-2]), (0, columns - t.shape[-1])]
    t = F.pad(t, more) if any(b for _, b in more) else t
    return fft.rfft2(t).astype("complex64")


@op("RANDOM_UNIFORM")
def random_uniform(n: OpOf, shape: Any) -> Tensor:
    """In [0, 1), by Tengen's generator; the operator's seeds are not used."""
    return random.uniform(size=tuple(ints(shape)))


@op("RANDOM_STANDARD_NORMAL")
def random_normal(n: OpOf, shape: Any) -> Tensor:
    """Of mean 0 and deviation 1, by Tengen's generator; the operator's seeds are not used."""
    return random.normal(size=tuple(ints(shape)))
