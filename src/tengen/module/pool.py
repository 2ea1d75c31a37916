"""Pooling modules."""

from __future__ import annotations

from tengen import functional as F
from tengen.module.module import Module
from tengen.module.settings import also
from tengen.tensor import Tensor


class _Pool(Module):
    def __init__(self, kernel_size, stride=None, padding=0, **kwargs):
        super().__init__(**kwargs)
        self.kernel_size, self.stride, self.padding = kernel_size, kernel_size if stride is None else stride, padding

    def _module_info_string(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class _MaxPool(_Pool):
    pool: str

    def forward(self, x: Tensor) -> Tensor:
        return getattr(F, self.pool)(x, self.kernel_size, self.stride, self.padding)


class MaxPool1d(_MaxPool):
    """The largest element of each window of (N, C, L). See `functional.max_pool1d`."""

    pool = "max_pool1d"


class MaxPool2d(_MaxPool):
    """The largest element of each window. See `functional.max_pool2d`."""

    pool = "max_pool2d"


class MaxPool3d(_MaxPool):
    """The largest element of each window of (N, C, D, H, W). See `functional.max_pool3d`."""

    pool = "max_pool3d"


class _AvgPool(_Pool):
    pool: str

    def __init__(self, kernel_size, stride=None, padding=0, mode: str = "average_count_exclude_padding", **kwargs):
        super().__init__(kernel_size, stride, padding, **kwargs)
        self.mode = mode

    def forward(self, x: Tensor) -> Tensor:
        return getattr(F, self.pool)(x, self.kernel_size, self.stride, self.padding, self.mode)


class AvgPool1d(_AvgPool):
    """The mean of each window of (N, C, L). See `functional.avg_pool1d`."""

    pool = "avg_pool1d"


class AvgPool2d(_AvgPool):
    """The mean of each window. See `functional.avg_pool2d`."""

    pool = "avg_pool2d"


class AvgPool3d(_AvgPool):
    """The mean of each window of (N, C, D, H, W). See `functional.avg_pool3d`."""

    pool = "avg_pool3d"


class _AdaptivePool(Module):
    pool: str

    @also(output_size="oshp")
    def __init__(self, oshp, **kwargs):
        super().__init__(**kwargs)
        self.oshp = oshp

    def forward(self, x: Tensor) -> Tensor:
        return getattr(F, self.pool)(x, self.oshp)

    def _module_info_string(self) -> str:
        return f"oshp={self.oshp}"


class AdaptiveAvgPool1d(_AdaptivePool):
    """Average pooling of (N, C, L) to a given output size."""

    pool = "adaptive_avg_pool1d"


class AdaptiveAvgPool2d(_AdaptivePool):
    """Average pooling to a given output size."""

    pool = "adaptive_avg_pool2d"


class AdaptiveAvgPool3d(_AdaptivePool):
    """Average pooling of (N, C, D, H, W) to a given output size."""

    pool = "adaptive_avg_pool3d"


class AdaptiveMaxPool1d(_AdaptivePool):
    """Max pooling of (N, C, L) to a given output size."""

    pool = "adaptive_max_pool1d"


class AdaptiveMaxPool2d(_AdaptivePool):
    """Max pooling to a given output size."""

    pool = "adaptive_max_pool2d"


class AdaptiveMaxPool3d(_AdaptivePool):
    """Max pooling of (N, C, D, H, W) to a given output size."""

    pool = "adaptive_max_pool3d"
