"""Normalisation modules. A state dict holds their tensors flat, as MegEngine's does."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from tengen import functional as F
from tengen.base.errors import UsageWarning, warn_once
from tengen.module import init
from tengen.module.settings import PARAMETERS, Configured, also, counts, needs
from tengen.tensor import Parameter, Tensor


class _Norm(Configured):
    weights_decay = False
    _fixed: tuple[str, ...] = ("num_channels",)
    _checked = PARAMETERS | counts("num_features", "num_channels", "num_groups") | {"affine": needs("affine", "weight")}

    def _state_shape(self, name: str, t: Tensor) -> tuple[int, ...]:
        return (t.size,)

    def reset_parameters(self) -> None:
        """Ones for the weight and zeros for the bias, as at first."""
        if self.weight is not None:
            init.ones_(self.weight)
            init.zeros_(self.bias)

    def _affine(self, shape: tuple[int, ...], affine: bool) -> None:
        self.weight = Parameter(np.ones(shape, np.float32)) if affine else None
        self.bias = Parameter(np.zeros(shape, np.float32)) if affine else None
        self.affine = affine

    def _weights(self) -> tuple[Tensor | None, Tensor | None]:
        """Weight and bias, if they are wanted."""
        return (self.weight, self.bias) if self.affine else (None, None)


class _BatchNorm(_Norm):
    _fixed = ("num_features",)
    _unused_states = ("num_batches_tracked",)  # only PyTorch's momentum=None reads it
    _checked = _Norm._checked | {"track_running_stats": needs("track_running_stats", "running_mean")}

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float = 0.9, affine: bool = True, track_running_stats: bool = True,
        freeze: bool = False, **kwargs,
    ):  # fmt: skip
        super().__init__(**kwargs)
        if 0 < momentum < 0.5:
            warn_once(
                f"{type(self).__name__}: momentum={momentum} is the share of the running statistics that is kept, as in MegEngine; PyTorch's "
                f"momentum={momentum} is momentum={1 - momentum:g} here",
                UsageWarning,
            )
        self.num_features, self.eps, self.momentum, self.freeze = num_features, eps, momentum, freeze
        shape = (1, num_features, 1, 1)
        self._affine(shape, affine)
        self.register_buffer("running_mean", Tensor(np.zeros(shape, np.float32)) if track_running_stats else None)
        self.register_buffer("running_var", Tensor(np.ones(shape, np.float32)) if track_running_stats else None)
        self.track_running_stats = track_running_stats

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim not in self._axes:
            raise ValueError(
                f"{type(self).__name__} takes a tensor of {' or '.join(map(str, self._axes))} axes, got shape {x.shape}"
            )
        use_batch = (self.training and not self.freeze) or not self.track_running_stats
        w, b = self._weights()
        if self.freeze:
            w, b = (None if p is None else p.detach() for p in (w, b))
        mean, var = (self.running_mean, self.running_var) if self.track_running_stats else (None, None)
        return self._normalised(x, mean, var, w, b, use_batch)

    @property
    def kept(self) -> float:
        """The share of the running statistics that an update keeps."""
        return self.momentum

    @kept.setter
    def kept(self, share: float) -> None:
        self.momentum = share

    def _normalised(self, x: Tensor, mean: Tensor | None, var: Tensor | None, w: Tensor | None, b: Tensor | None, use_batch: bool) -> Tensor:
        return F.batch_norm(x, mean, var, w, b, training=use_batch, momentum=self.kept, eps=self.eps)

    def _module_info_string(self) -> str:
        return f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}"


class BatchNorm1d(_BatchNorm):
    """Batch norm of (N, C) or (N, C, L). `momentum` is the share of the old statistics that is kept."""

    _axes = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Batch norm of (N, C, H, W). `momentum` is the share of the old statistics that is kept."""

    _axes = (4,)


class BatchNorm3d(_BatchNorm):
    """Batch norm of (N, C, D, H, W). `momentum` is the share of the old statistics that is kept."""

    _axes = (5,)


class SyncBatchNorm(_BatchNorm):
    """Batch norm of (N, C), (N, C, L) or (N, C, H, W) over the batches of all processes of a group, as `functional.sync_batch_norm`.

    Args: group: the processes; default: all.
    """

    _axes = (2, 3, 4)
    _fixed = ("num_features", "group")

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float = 0.9, affine: bool = True, track_running_stats: bool = True,
        freeze: bool = False, group=None, **kwargs,
    ):  # fmt: skip
        super().__init__(num_features, eps, momentum, affine, track_running_stats, freeze, **kwargs)
        self.group = group

    def _normalised(self, x: Tensor, mean: Tensor | None, var: Tensor | None, w: Tensor | None, b: Tensor | None, use_batch: bool) -> Tensor:
        return F.nn.sync_batch_norm(x, mean, var, w, b, training=use_batch, momentum=self.kept, eps=self.eps, group=self.group)


def running_statistics(m: Any) -> list[tuple[Tensor, float]]:
    """(Statistic, share of the old value that is kept) of each statistic that a module updates with each batch of this process."""
    own = isinstance(m, _BatchNorm) and not isinstance(m, SyncBatchNorm)
    if not own or not m.training or m.freeze or not m.track_running_stats:
        return []
    return [(m.running_mean, m.kept), (m.running_var, m.kept)]


def _shape(shape) -> tuple[int, ...]:
    return (operator.index(shape),) if hasattr(shape, "__index__") and not hasattr(shape, "__len__") else tuple(map(operator.index, shape))


class LayerNorm(_Norm):
    """Normalises the last axes, of shape `normalized_shape`."""

    _fixed = ("normalized_shape",)
    _checked = _Norm._checked | {"normalized_shape": lambda m, shape: _shape(shape)}

    @also(elementwise_affine="affine")
    def __init__(self, normalized_shape, eps: float = 1e-5, affine: bool = True, **kwargs):
        super().__init__(**kwargs)
        self.normalized_shape, self.eps = normalized_shape, eps
        self._affine(self.normalized_shape, affine)

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.normalized_shape, self.affine, self.weight, self.bias, self.eps)

    def _module_info_string(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, affine={self.affine} ({math.prod(self.normalized_shape)} elements)"


class GroupNorm(_Norm):
    """Normalises groups of channels of each sample.

    Errors: ValueError for channels that groups cannot share evenly
    """

    def __init__(self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, **kwargs):
        super().__init__(**kwargs)
        self.num_groups, self.num_channels, self.eps = num_groups, num_channels, eps
        if num_channels % num_groups:
            raise ValueError(f"{num_channels} channels cannot be shared out to {num_groups} groups")
        self._affine((num_channels,), affine)

    def forward(self, x: Tensor) -> Tensor:
        return F.group_norm(x, self.num_groups, self.affine, self.weight, self.bias, self.eps)


class InstanceNorm(_Norm):
    """Normalises each channel of each sample."""

    def __init__(self, num_channels: int, eps: float = 1e-5, affine: bool = True, **kwargs):
        super().__init__(**kwargs)
        self.num_channels, self.eps = num_channels, eps
        self._affine((num_channels,), affine)

    def forward(self, x: Tensor) -> Tensor:
        return F.instance_norm(x, self.affine, self.weight, self.bias, self.eps)


class GeneralNorm(_Norm):
    """Normalises any axes together. Parameters: weight and bias, of the shape of those axes.

    Args: normalized_shape: extents of the axes; normalized_axis: which they are, one or several.
    Errors: ValueError without a normalized_shape, or with one that does not fit the axes
    """

    _fixed = ("normalized_shape", "normalized_axis")
    _checked = _Norm._checked | {"normalized_shape": lambda m, shape: _shape(shape), "normalized_axis": lambda m, axis: _shape(axis)}

    def __init__(self, normalized_shape=None, normalized_axis=0, eps: float = 1e-5, affine: bool = True, **kwargs):
        super().__init__(**kwargs)
        if normalized_shape is None:
            raise ValueError("GeneralNorm needs normalized_shape, the extents of the axes normalized_axis")
        self.normalized_shape, self.normalized_axis, self.eps = normalized_shape, normalized_axis, eps
        if len(self.normalized_shape) != len(self.normalized_axis):
            raise ValueError(
                f"GeneralNorm: normalized_shape={self.normalized_shape} must have an extent for each axis of {self.normalized_axis}"
            )
        self._affine(self.normalized_shape, affine)

    def forward(self, x: Tensor) -> Tensor:
        return F.general_norm(x, self.normalized_axis, self.affine, self.weight, self.bias, self.eps)


class RMSNorm(_Norm):
    """x / sqrt(mean(x^2) + eps) over the last axes, times a weight (Zhang and Sennrich, arXiv 1910.07467)."""

    _fixed = ("normalized_shape",)
    _checked = _Norm._checked | {"normalized_shape": lambda m, shape: _shape(shape)}

    def __init__(self, normalized_shape, eps: float = 1e-6, affine: bool = True, **kwargs):
        super().__init__(**kwargs)
        self.normalized_shape, self.eps = normalized_shape, eps
        self.weight = Parameter(np.ones(self.normalized_shape, np.float32)) if affine else None
        self.affine = affine

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, self.weight if self.affine else None, self.eps)


class LocalResponseNorm(Configured):
    """`functional.local_response_norm` as a module."""

    def __init__(self, kernel_size: int = 5, k: float = 2.0, alpha: float = 1e-4, beta: float = 0.75, **kwargs):
        super().__init__(**kwargs)
        self.kernel_size, self.k, self.alpha, self.beta = kernel_size, k, alpha, beta

    def forward(self, x: Tensor) -> Tensor:
        return F.local_response_norm(x, self.kernel_size, self.k, self.alpha, self.beta)
