"""Pooling modules."""

from __future__ import annotations

from tengen import functional as F
from tengen.base.errors import ArgumentError
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
    """Args as of `functional.max_pool2d`."""

    pool: str

    def __init__(
        self, kernel_size, stride=None, padding=0, dilation=1, return_indices: bool = False, ceil_mode: bool = False, **kwargs
    ):
        super().__init__(kernel_size, stride, padding, **kwargs)
        self.dilation, self.return_indices, self.ceil_mode = dilation, return_indices, ceil_mode

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        return getattr(F, self.pool)(x, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices)


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

    def __init__(
        self, kernel_size, stride=None, padding=0, mode: str = "average_count_exclude_padding", *, ceil_mode: bool = False,
        count_include_pad: bool | None = None, divisor_override: int | None = None, **kwargs,
    ):  # fmt: skip
        super().__init__(kernel_size, stride, padding, **kwargs)
        self.mode, self.ceil_mode, self.divisor_override = mode, ceil_mode, divisor_override
        self.count_include_pad = count_include_pad

    def forward(self, x: Tensor) -> Tensor:
        how = {"ceil_mode": self.ceil_mode, "count_include_pad": self.count_include_pad, "divisor_override": self.divisor_override}
        return getattr(F, self.pool)(x, self.kernel_size, self.stride, self.padding, self.mode, **how)


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

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
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


class _AdaptiveMaxPool(_AdaptivePool):
    @also(output_size="oshp")
    def __init__(self, oshp, return_indices: bool = False, **kwargs):
        super().__init__(oshp, **kwargs)
        self.return_indices = return_indices

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        return getattr(F, self.pool)(x, self.oshp, self.return_indices)


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """Max pooling of (N, C, L) to a given output size."""

    pool = "adaptive_max_pool1d"


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """Max pooling to a given output size."""

    pool = "adaptive_max_pool2d"


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """Max pooling of (N, C, D, H, W) to a given output size."""

    pool = "adaptive_max_pool3d"


class _MaxUnpool(_Pool):
    pool: str

    def forward(self, x: Tensor, indices: Tensor, output_size=None) -> Tensor:
        return getattr(F, self.pool)(x, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool1d(_MaxUnpool):
    """Elements put where `MaxPool1d(return_indices=True)` found them, zeros elsewhere. See `functional.max_unpool1d`."""

    pool = "max_unpool1d"


class MaxUnpool2d(_MaxUnpool):
    """Elements put where `MaxPool2d(return_indices=True)` found them, zeros elsewhere. See `functional.max_unpool2d`.

    >>> from tengen import functional as F, module as M
    >>> x = F.arange(16).reshape(1, 1, 4, 4)
    >>> M.MaxUnpool2d(2)(*M.MaxPool2d(2, return_indices=True)(x)).sum().item()
    40.0
    """

    pool = "max_unpool2d"


class MaxUnpool3d(_MaxUnpool):
    """Elements put where `MaxPool3d(return_indices=True)` found them, zeros elsewhere. See `functional.max_unpool3d`."""

    pool = "max_unpool3d"


class _FractionalMaxPool(Module):
    rank: int

    def __init__(
        self, kernel_size, output_size=None, output_ratio=None, return_indices: bool = False, _random_samples: Tensor | None = None, **kwargs
    ):
        super().__init__(**kwargs)
        if (output_size is None) == (output_ratio is None):
            raise ArgumentError(f"FractionalMaxPool{self.rank}d takes either output_size or output_ratio")
        self.kernel_size, self.output_size, self.output_ratio = kernel_size, output_size, output_ratio
        self.return_indices, self._random_samples = return_indices, _random_samples

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        pool = F.fractional_max_pool2d if self.rank == 2 else F.fractional_max_pool3d
        return pool(x, self.kernel_size, self.output_size, self.output_ratio, self.return_indices, self._random_samples)


class FractionalMaxPool2d(_FractionalMaxPool):
    """Max pooling of (N, C, H, W) over windows whose steps are drawn in each call, to any output size. Arguments are those of
    `functional.fractional_max_pool2d`.

    Errors: ArgumentError for none or both of output_size and output_ratio
    """

    rank = 2


class FractionalMaxPool3d(_FractionalMaxPool):
    """`FractionalMaxPool2d` of volumes, (N, C, D, H, W). Arguments are those of `functional.fractional_max_pool3d`."""

    rank = 3


class _LPPool(_Pool):
    pool: str

    def __init__(self, norm_type: float, kernel_size, stride=None, ceil_mode: bool = False, **kwargs):
        super().__init__(kernel_size, stride, **kwargs)
        self.norm_type, self.ceil_mode = norm_type, ceil_mode

    def forward(self, x: Tensor) -> Tensor:
        return getattr(F, self.pool)(x, self.norm_type, self.kernel_size, self.stride, self.ceil_mode)


class LPPool1d(_LPPool):
    """(sum of x^p)^(1 / p) over each window of (N, C, L). See `functional.lp_pool1d`."""

    pool = "lp_pool1d"


class LPPool2d(_LPPool):
    """(sum of x^p)^(1 / p) over each window of (N, C, H, W). See `functional.lp_pool2d`."""

    pool = "lp_pool2d"


class LPPool3d(_LPPool):
    """(sum of x^p)^(1 / p) over each window of (N, C, D, H, W). See `functional.lp_pool3d`."""

    pool = "lp_pool3d"
