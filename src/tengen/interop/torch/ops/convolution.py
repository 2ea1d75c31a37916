"""Convolutions and their windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tengen.functional as F
from tengen.base.errors import ShapeError
from tengen.interop.torch.registry import op
from tengen.tensor import Tensor

CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


def spread(v: Any, rank: int) -> list[Any]:
    """A number for each axis of space: PyTorch's list may have one for all."""
    v = [v] if isinstance(v, int) else list(v)
    return v * rank if len(v) == 1 else v


def one(v: Sequence[Any]) -> Any:
    """A number for one axis, a tuple for several."""
    return v[0] if len(v) == 1 else tuple(v)


@op("convolution")
def convolution(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any, transposed: bool, output_padding: Any,
    groups: int,
) -> Tensor:  # fmt: skip
    """A cross-correlation over 1 to 3 axes, or its transpose. Weights have PyTorch's shape; groups become an axis here."""
    rank = weight.ndim - 2
    if rank not in CONV:
        raise ShapeError(f"a convolution over {rank} axes; 1, 2 and 3 are known here")
    if x.ndim == rank + 1:
        return convolution(
            F.expand_dims(x, 0), weight, bias, stride, padding, dilation, transposed, output_padding, groups
        )[0]  # fmt: skip
    stride, padding, dilation = (one(spread(v, rank)) for v in (stride, padding, dilation))
    if groups > 1:
        weight = weight.reshape(groups, weight.shape[0] // groups, *weight.shape[1:])
    bias = None if bias is None else bias.reshape(1, -1, *[1] * rank)
    if transposed:
        return TRANSPOSED[rank](x, weight, bias, stride, padding, one(spread(output_padding, rank)), dilation, groups)
    return CONV[rank](x, weight, bias, stride, padding, dilation, groups)


@op("im2col")
def im2col(x: Tensor, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Tensor:
    """Windows of images as columns."""
    return F.unfold(x, tuple(kernel), tuple(dilation), tuple(padding), tuple(stride))


@op("col2im")
def col2im(x: Tensor, size: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Tensor:
    """(N, C taps, windows) -> (N, C, H, W): windows added where they lie."""
    if x.ndim == 2:
        return col2im(F.expand_dims(x, 0), size, kernel, dilation, padding, stride)[0]
    (h, w), (p, q), (a, b), (s, t), (e, f) = size, kernel, padding, stride, dilation
    rows, columns = (h + 2 * a - (p - 1) * e - 1) // s + 1, (w + 2 * b - (q - 1) * f - 1) // t + 1
    windows = x.reshape(x.shape[0], -1, p, q, rows, columns).transpose(0, 1, 4, 5, 2, 3)
    return F.sliding_window_transpose(windows, (h, w), (p, q), (a, b), (s, t), (e, f))
