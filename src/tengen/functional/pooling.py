"""Pooling over one and three axes of space, under PyTorch's names; `functional.nn` has MegEngine's, for images."""

from __future__ import annotations

from collections.abc import Sequence

from tengen.base.errors import ShapeError
from tengen.functional.nn import adaptive_pool
from tengen.ops.calls import all_with_line
from tengen.ops.pool import avg_pool as _avg
from tengen.ops.pool import max_pool as _max
from tengen.tensor import Tensor


def _check(name: str, inp: Tensor, n: int) -> None:
    if inp.ndim != n + 2:
        raise ShapeError(f"{name}{n}d takes a tensor of {n + 2} axes (batch, channels, {n} of space), got {inp.shape}")


def max_pool1d(inp: Tensor, kernel_size, stride=None, padding=0) -> Tensor:
    """The largest element of each window of (N, C, L). See `max_pool2d`.

    >>> from tengen import functional as F
    >>> F.max_pool1d(F.arange(6).reshape(1, 1, 6), 2).tolist()
    [[[1.0, 3.0, 5.0]]]
    """
    _check("max_pool", inp, 1)
    return _max(inp, kernel_size, stride, padding)


def max_pool3d(inp: Tensor, kernel_size, stride=None, padding=0) -> Tensor:
    """The largest element of each window of (N, C, D, H, W). See `max_pool2d`."""
    _check("max_pool", inp, 3)
    return _max(inp, kernel_size, stride, padding)


def avg_pool1d(inp: Tensor, kernel_size, stride=None, padding=0, mode: str = "average_count_exclude_padding") -> Tensor:
    """The mean of each window of (N, C, L); mode="average" counts padding as zeros, as PyTorch does by default."""
    _check("avg_pool", inp, 1)
    return _avg(inp, kernel_size, stride, padding, mode)


def avg_pool3d(inp: Tensor, kernel_size, stride=None, padding=0, mode: str = "average_count_exclude_padding") -> Tensor:
    """The mean of each window of (N, C, D, H, W). See `avg_pool1d`."""
    _check("avg_pool", inp, 3)
    return _avg(inp, kernel_size, stride, padding, mode)


def adaptive_avg_pool1d(inp: Tensor, oshp: int | Sequence[int | None]) -> Tensor:
    """Average pooling of (N, C, L) to a given output size. See `adaptive_avg_pool2d`."""
    _check("adaptive_avg_pool", inp, 1)
    return adaptive_pool(inp, oshp, "avg")


def adaptive_avg_pool3d(inp: Tensor, oshp: int | Sequence[int | None]) -> Tensor:
    """Average pooling of (N, C, D, H, W) to a given output size. See `adaptive_avg_pool2d`."""
    _check("adaptive_avg_pool", inp, 3)
    return adaptive_pool(inp, oshp, "avg")


def adaptive_max_pool1d(inp: Tensor, oshp: int | Sequence[int | None]) -> Tensor:
    """Max pooling of (N, C, L) to a given output size. See `adaptive_max_pool2d`."""
    _check("adaptive_max_pool", inp, 1)
    return adaptive_pool(inp, oshp, "max")


def adaptive_max_pool3d(inp: Tensor, oshp: int | Sequence[int | None]) -> Tensor:
    """Max pooling of (N, C, D, H, W) to a given output size. See `adaptive_max_pool2d`."""
    _check("adaptive_max_pool", inp, 3)
    return adaptive_pool(inp, oshp, "max")


__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool3d", "avg_pool1d", "avg_pool3d", "max_pool1d",
    "max_pool3d",
]  # fmt: skip
all_with_line(globals(), __all__)
