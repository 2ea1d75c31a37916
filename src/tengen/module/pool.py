"""Pooling modules."""

from __future__ import annotations

from tengen import functional as F
from tengen.module.module import Module
from tengen.tensor import Tensor


class _Pool(Module):
    def __init__(self, kernel_size, stride=None, padding=0, **kwargs):
        super().__init__(**kwargs)
        self.kernel_size, self.stride, self.padding = kernel_size, kernel_size if stride is None else stride, padding

    def _module_info_string(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxPool2d(_Pool):
    """The largest element of each window. See `functional.max_pool2d`."""

    def forward(self, x: Tensor) -> Tensor:
        return F.max_pool2d(x, self.kernel_size, self.stride, self.padding)


class AvgPool2d(_Pool):
    """The mean of each window. See `functional.avg_pool2d`."""

    def __init__(self, kernel_size, stride=None, padding=0, mode: str = "average_count_exclude_padding", **kwargs):
        super().__init__(kernel_size, stride, padding, **kwargs)
        self.mode = mode

    def forward(self, x: Tensor) -> Tensor:
        return F.avg_pool2d(x, self.kernel_size, self.stride, self.padding, self.mode)


class AdaptiveAvgPool2d(Module):
    """Average pooling to a given output size."""

    def __init__(self, oshp, **kwargs):
        super().__init__(**kwargs)
        self.oshp = oshp

    def forward(self, x: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(x, self.oshp)

    def _module_info_string(self) -> str:
        return f"oshp={self.oshp}"


class AdaptiveMaxPool2d(AdaptiveAvgPool2d):
    """Max pooling to a given output size."""

    def forward(self, x: Tensor) -> Tensor:
        return F.adaptive_max_pool2d(x, self.oshp)
