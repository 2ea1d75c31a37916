"""Norms with PyTorch's arguments, shapes of parameters and momenta; each is the Tengen layer of the same name."""

from __future__ import annotations

from typing import Any

from tengen import functional as F
from tengen import module as M
from tengen.base.errors import ShapeError
from tengen.pytorch.functions.dtypes import finfo
from tengen.pytorch.nn import functional
from tengen.pytorch.nn.module import Module, finished
from tengen.tensor import Tensor


def _reset(layer: Any) -> None:
    """Ones for a layer's weight, zeros for its bias, where it has them."""
    for p, value in ((layer.weight, 1.0), (layer.bias, 0.0)):
        if p is not None:
            M.init.fill_(p, value)


class _BatchNorm(Module):
    """momentum: the share of the batch's statistics that the running ones take, as in PyTorch (Tengen's own is the share that is kept); None:
    they are the means over all batches, whose number is kept as `num_batches_tracked`."""

    num_features: int
    momentum: float | None

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = True, track_running_stats: bool = True,
        device: Any = None, dtype: Any = None, *, bias: bool = True,
    ):  # fmt: skip
        super().__init__(num_features, eps, 0.9, affine, track_running_stats)  # type: ignore[call-arg]  # the layer beside it
        self.momentum = momentum
        if momentum is None and track_running_stats:
            self._unused_states = ()
            self.register_buffer("num_batches_tracked", F.zeros((), "int64"))
        for name in ("weight", "bias", "running_mean", "running_var"):
            t = getattr(self, name)
            if t is not None:
                setattr(self, name, type(t)(t.detach().reshape(-1)))
        if not bias:
            self.bias = None
        finished(self, device, dtype)

    def reset_parameters(self) -> None:
        """Ones for the weight, zeros for the bias."""
        _reset(self)

    def _normalised(self, x: Tensor, mean: Any, var: Any, w: Any, b: Any, use_batch: bool) -> Tensor:
        if use_batch and any(type(n) is int and n == 0 for n in x.shape):  # an empty batch has no statistics; open extents are not asked
            mean = var = None
        if use_batch and not isinstance(self, SyncBatchNorm):  # which has the values of other processes too
            functional.refuse_one_value(x, (0, *range(2, x.ndim)))
        if self.momentum is None and use_batch and mean is not None:
            self.num_batches_tracked._reset(self.num_batches_tracked + 1)
        return super()._normalised(x, mean, var, w, b, use_batch)

    @property
    def kept(self) -> Any:
        """The share of the running statistics that an update keeps: a tensor for means over all batches."""
        if self.momentum is not None:
            return 1 - self.momentum
        return 1.0 - 1.0 / F.maximum(self.num_batches_tracked, 1).astype("float32") if self.track_running_stats else 0.0

    @kept.setter
    def kept(self, share: float) -> None:
        self.momentum = 1 - share


class BatchNorm1d(_BatchNorm, M.BatchNorm1d):
    """Batch norm of (N, C) or (N, C, L)."""


class BatchNorm2d(_BatchNorm, M.BatchNorm2d):
    """Batch norm of (N, C, H, W).

    >>> BatchNorm2d(3).weight.shape, BatchNorm2d(3).momentum
    ((3,), 0.1)
    """


class BatchNorm3d(_BatchNorm, M.BatchNorm3d):
    """Batch norm of (N, C, D, H, W)."""


class SyncBatchNorm(_BatchNorm, M.SyncBatchNorm):
    """Batch norm of (N, C), (N, C, L) or (N, C, H, W) over the batches of all processes, or of those of `process_group`."""

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = True, track_running_stats: bool = True,
        process_group: Any = None, device: Any = None, dtype: Any = None, *, bias: bool = True,
    ):  # fmt: skip
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)
        self.group = process_group

    @classmethod
    def convert_sync_batchnorm(cls, module: Any, process_group: Any = None) -> Any:
        """The module, with a `SyncBatchNorm` in place of each `BatchNorm1d`, `2d` and `3d` in it, which has that one's parameters and
        statistics; where it is such a layer itself, that layer. Volumes (`BatchNorm3d`) are refused when they are computed.

        >>> from tengen.pytorch import nn
        >>> nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)))[1]
        SyncBatchNorm(4, eps=1e-05, momentum=0.1, affine=True)
        """
        if isinstance(module, _BatchNorm) and not isinstance(module, SyncBatchNorm):
            made = cls(module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats, process_group)
            for name, t in [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]:
                setattr(made, name, t)
            if module.bias is None:
                made.bias = None
            return made.train(module.training)
        for name, child in module.named_children():
            if (made := cls.convert_sync_batchnorm(child, process_group)) is not child:
                setattr(module, name, made)
        return module


class _InstanceNorm(Module):
    """Each channel of each sample normalised, also of one sample without an axis of samples. With track_running_stats it keeps running
    statistics, which it normalises by when evaluating. momentum: the share of the batch's statistics that they take."""

    _fixed = ("num_features",)
    _unused_states = ("num_batches_tracked",)
    _axes = 3

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = False, track_running_stats: bool = False,
        device: Any = None, dtype: Any = None, *, bias: bool = True,
    ):  # fmt: skip
        super().__init__(num_features, eps, momentum, affine)  # type: ignore[call-arg]  # the layer beside it
        if not bias:
            self.bias = None
        self.track_running_stats = track_running_stats
        self.register_buffer("running_mean", F.zeros((num_features,)) if track_running_stats else None)
        self.register_buffer("running_var", F.ones((num_features,)) if track_running_stats else None)
        finished(self, device, dtype)

    def reset_parameters(self) -> None:
        """Ones for the weight, zeros for the bias."""
        _reset(self)

    def reset_running_stats(self) -> None:
        """Zeros for the running mean, ones for the running variance."""
        if self.track_running_stats:
            M.init.zeros_(self.running_mean)
            M.init.ones_(self.running_var)

    def forward(self, input: Tensor) -> Tensor:
        n = self._axes
        if input.ndim not in (n - 1, n):
            raise ShapeError(f"{type(self).__name__} takes a tensor of {n - 1} or {n} axes, got shape {input.shape}")
        x = input if input.ndim == n else F.expand_dims(input, 0)
        own = self.training or not self.track_running_stats
        y = functional.instance_norm(x, self.running_mean, self.running_var, self.weight, self.bias, own, self.momentum or 0.0, self.eps)
        return y if input.ndim == n else y[0]


class InstanceNorm1d(_InstanceNorm, M.InstanceNorm1d):
    """Instance norm of (N, C, L) or (C, L).

    >>> InstanceNorm1d(2)(Tensor([[1.0, 3.0], [5.0, 9.0]])).numpy().round(3).tolist()
    [[-1.0, 1.0], [-1.0, 1.0]]
    """


class InstanceNorm2d(_InstanceNorm, M.InstanceNorm2d):
    """Instance norm of (N, C, H, W) or (C, H, W)."""

    _axes = 4


class InstanceNorm3d(_InstanceNorm, M.InstanceNorm3d):
    """Instance norm of (N, C, D, H, W) or (C, D, H, W)."""

    _axes = 5


class LayerNorm(Module, M.LayerNorm):
    """Normalises the last axes, of shape `normalized_shape`. bias=False leaves the weight alone."""

    def __init__(
        self, normalized_shape: Any, eps: float = 1e-5, elementwise_affine: bool = True, bias: bool = True, device: Any = None,
        dtype: Any = None,
    ):  # fmt: skip
        super().__init__(normalized_shape, eps, elementwise_affine)
        self.elementwise_affine = elementwise_affine
        if not bias:
            self.bias = None
        finished(self, device, dtype)

    def _state_shape(self, name: str, t: Tensor) -> tuple[int, ...]:
        return t.shape

    def reset_parameters(self) -> None:
        """Ones for the weight, zeros for the bias."""
        _reset(self)


class GroupNorm(Module, M.GroupNorm):
    """Normalises groups of channels of each sample. bias=False leaves the weight alone."""

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, device: Any = None, dtype: Any = None, *,
        bias: bool = True,
    ):  # fmt: skip
        super().__init__(num_groups, num_channels, eps, affine)
        if not bias:
            self.bias = None
        finished(self, device, dtype)

    def reset_parameters(self) -> None:
        """Ones for the weight, zeros for the bias."""
        _reset(self)


class RMSNorm(Module, M.RMSNorm):
    """x / sqrt(mean(x^2) + eps) over the last axes, times a weight. eps=None: that of the input's dtype."""

    def __init__(
        self, normalized_shape: Any, eps: float | None = None, elementwise_affine: bool = True, device: Any = None, dtype: Any = None
    ):
        super().__init__(normalized_shape, 1e-6, elementwise_affine)
        self.eps = eps  # None is looked up in forward
        finished(self, device, dtype)

    def _state_shape(self, name: str, t: Tensor) -> tuple[int, ...]:
        return t.shape

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, self.weight, finfo(x.dtype).eps if self.eps is None else self.eps)

    def reset_parameters(self) -> None:
        """Ones for the weight."""
        if self.weight is not None:
            M.init.ones_(self.weight)


__all__ = [
    "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "GroupNorm", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "LayerNorm", "RMSNorm",
    "SyncBatchNorm",
]  # fmt: skip
