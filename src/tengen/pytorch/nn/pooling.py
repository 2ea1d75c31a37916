"""Pooling of `torch.nn.functional`, with PyTorch's arguments."""

from __future__ import annotations

from typing import Any

from tengen import functional as F
from tengen.base.errors import ArgumentError
from tengen.ops.calls import all_with_line
from tengen.pytorch.nn.rare import with_indices
from tengen.tensor import Tensor


def _padded_by_half(n: int, kernel_size: Any, padding: Any, dilation: Any) -> None:
    """ArgumentError for a dilation below 1 and a padding of more than half of a window: some windows would hold nothing but padding."""
    each = [[v] * n if not isinstance(v, (list, tuple)) else [*v] * (n // len(v)) for v in (kernel_size, padding, dilation)]
    if any(d < 1 or p < 0 or 2 * p > (k - 1) * d + 1 for k, p, d in zip(*each)):
        raise ArgumentError(
            f"max_pool{n}d: padding={padding} must be from 0 to half of the window, kernel_size={kernel_size}; dilation={dilation} at least 1"
        )


def max_pool1d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:  # fmt: skip
    """The largest element of each window of (N, C, L)."""
    _padded_by_half(1, kernel_size, padding, dilation)
    return F.max_pool1d(input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool2d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:  # fmt: skip
    """The largest element of each window of (N, C, H, W)."""
    _padded_by_half(2, kernel_size, padding, dilation)
    return F.max_pool2d(input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool3d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:  # fmt: skip
    """The largest element of each window of (N, C, D, H, W)."""
    _padded_by_half(3, kernel_size, padding, dilation)
    return F.max_pool3d(input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def _means(pool: Any, input: Tensor, kernel_size: Any, stride: Any, padding: Any, how: dict[str, Any]) -> Tensor:
    """Means of windows; of integers without their fractions, as in PyTorch."""
    if not input.dtype.is_int:
        return pool(input, kernel_size, stride, padding, **how)
    return F.trunc(pool(input.astype("float64"), kernel_size, stride, padding, **how)).astype(input.dtype)


def avg_pool1d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True
) -> Tensor:
    """The mean of each window of (N, C, L); the padding counts unless count_include_pad=False."""
    how = {"ceil_mode": ceil_mode, "count_include_pad": count_include_pad}
    return _means(F.avg_pool1d, input, kernel_size, stride, padding, how)


def avg_pool2d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """The mean of each window of (N, C, H, W); the padding counts unless count_include_pad=False.

    >>> avg_pool2d(F.ones((1, 1, 2, 2)), 2, padding=1)[0, 0, 0, 0].item()
    0.25
    """
    how = {"ceil_mode": ceil_mode, "count_include_pad": count_include_pad, "divisor_override": divisor_override}
    return _means(F.avg_pool2d, input, kernel_size, stride, padding, how)


def avg_pool3d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """The mean of each window of (N, C, D, H, W); the padding counts unless count_include_pad=False."""
    how = {"ceil_mode": ceil_mode, "count_include_pad": count_include_pad, "divisor_override": divisor_override}
    return _means(F.avg_pool3d, input, kernel_size, stride, padding, how)


def adaptive_avg_pool1d(input: Tensor, output_size: Any) -> Tensor:
    """Means of parts, so many of them."""
    return F.adaptive_avg_pool1d(input, output_size)


def adaptive_avg_pool2d(input: Tensor, output_size: Any) -> Tensor:
    """Means of parts, so many of them."""
    return F.adaptive_avg_pool2d(input, output_size)


def adaptive_avg_pool3d(input: Tensor, output_size: Any) -> Tensor:
    """Means of parts, so many of them."""
    return F.adaptive_avg_pool3d(input, output_size)


def adaptive_max_pool1d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """The largest elements of parts, so many of them."""
    return F.adaptive_max_pool1d(input, output_size, return_indices)


def adaptive_max_pool2d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """The largest elements of parts, so many of them."""
    return F.adaptive_max_pool2d(input, output_size, return_indices)


def adaptive_max_pool3d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """The largest elements of parts, so many of them."""
    return F.adaptive_max_pool3d(input, output_size, return_indices)


all_with_line(globals(), [name for name in globals() if name[0] != "_"])
max_pool1d_with_indices, max_pool2d_with_indices, max_pool3d_with_indices = map(with_indices, (max_pool1d, max_pool2d, max_pool3d))
adaptive_max_pool1d_with_indices, adaptive_max_pool2d_with_indices, adaptive_max_pool3d_with_indices = map(
    with_indices, (adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d)
)
