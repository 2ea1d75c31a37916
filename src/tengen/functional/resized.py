"""Images resized by factors, as PyTorch resizes them: where a factor times an extent is no whole number, the factor decides which places are
read, and not the ratio of the extents, which decides in `functional.interpolate`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tengen.base.dtype import float64
from tengen.loops.lang import as_int
from tengen.ops.define import REGISTRY
from tengen.tensor import Tensor


def _sizes(x: Tensor, rank: int, size: Any, factors: Any) -> tuple[list[Any], list[float | None]]:
    """(Extents of the result, and for each axis the factor that decides where it reads, or None for the ratio of the extents)."""
    space = x.shape[2:]
    if size is not None:
        return list(size), [None] * rank
    outs = [math.floor(n * f) if as_int(n) is not None else n * int(f) for n, f in zip(space, factors)]
    whole = [as_int(n) is None or n * f == o for n, o, f in zip(space, outs, factors)]
    return outs, [None if w else float(f) for w, f in zip(whole, factors)]


def _ratio(n: int, out: int, factor: float | None, d: Any = np.float32) -> Any:
    """Pixels of the image for each of the result, in the precision that PyTorch counts in."""
    return d(1 / factor) if factor else d(n) / d(out)


def _middles(x: Tensor, n: int, out: int, factor: float | None) -> np.ndarray:
    """Where the middle of each pixel of the result lies in the image."""
    d = np.float64 if x.dtype is float64 else np.float32
    return (np.arange(out, dtype=d) + d(0.5)) * _ratio(n, out, factor, d) - d(0.5)


def factors_decide(x: Tensor, factors: Any) -> bool:
    """Whether factors, one for each axis of space, decide which places are read: some extent times its factor is no whole number."""
    return any(_sizes(x, x.ndim - 2, None, factors)[1])


def nearest(mode: str) -> Callable[..., Tensor]:
    """The function (x, size, factors) of mode "nearest" or "nearest-exact"."""

    def resize(x: Tensor, size: Any, factors: Any = None) -> Tensor:
        """Each pixel is one of the image's."""
        rank = x.ndim - 2
        outs, odd = _sizes(x, rank, size, factors)
        if not any(odd):
            return REGISTRY["interpolate"](x, tuple(outs), mode=mode)
        for axis, (n, out, f) in enumerate(zip(x.shape[2:], outs, odd)):
            at = np.arange(out, dtype=np.float32) + (np.float32(0.5) if mode == "nearest-exact" else np.float32(0))
            index = np.minimum(np.floor(at * _ratio(n, out, f)), n - 1).astype(np.int64)
            x = REGISTRY["take"](x, Tensor(index), axis + 2)
        return x

    return resize


def linear(x: Tensor, size: Any, align_corners: bool, factors: Any = None) -> Tensor:
    """Pixels between pixels, by straight lines along each axis."""
    rank = x.ndim - 2
    outs, odd = _sizes(x, rank, size, factors)
    if align_corners or not any(odd):
        return REGISTRY["interpolate"](
            x, tuple(outs), mode=("linear", "bilinear", "trilinear")[rank - 1], align_corners=bool(align_corners)
        )
    for axis, (n, out, f) in enumerate(zip(x.shape[2:], outs, odd)):
        at = np.maximum(_middles(x, n, out, f), 0)
        low = np.minimum(at.astype(np.int64), n - 1)
        weight = Tensor((at - low).astype(x.dtype.numpy).reshape(-1, *[1] * (rank - axis - 1)))
        first, second = (REGISTRY["take"](x, Tensor(i), axis + 2) for i in (low, np.minimum(low + 1, n - 1)))
        x = first * (1 - weight) + second * weight
    return x


def cubic(x: Tensor, size: Any, align_corners: bool, factors: Any = None) -> Tensor:
    """Pixels between pixels, by Keys' cubic kernel."""
    rank = x.ndim - 2
    outs, odd = _sizes(x, rank, size, factors)
    if align_corners or not any(odd):
        return REGISTRY["interpolate"](x, tuple(outs), mode="bicubic", align_corners=bool(align_corners))
    for axis, (n, out, f) in enumerate(zip(x.shape[2:], outs, odd)):
        at = _middles(x, n, out, f)
        low = np.floor(at).astype(np.int64)
        total: Any = None
        for tap in range(-1, 3):
            weight = Tensor(_keys((at - low) - tap).astype(x.dtype.numpy).reshape(-1, *[1] * (rank - axis - 1)))
            part = REGISTRY["take"](x, Tensor(np.clip(low + tap, 0, n - 1)), axis + 2) * weight
            total = part if total is None else total + part
        x = total
    return x


def _keys(x: np.ndarray) -> np.ndarray:
    """Keys' cubic kernel with PyTorch's parameter -0.75."""
    x, a = np.abs(x), -0.75
    return np.where(x <= 1, ((a + 2) * x - (a + 3)) * x * x + 1, np.where(x < 2, ((x - 5) * x + 8) * x * a - 4 * a, 0))
