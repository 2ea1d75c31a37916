"""`LazyLinear` and its like, which become the layers of this package: with PyTorch's shapes of parameters, names and defaults."""

from __future__ import annotations

from typing import Any

from tengen.module.lazy import lazy
from tengen.pytorch.nn import layers, norms

LazyLinear: Any = lazy(layers.Linear, "in_features", -1)
LazyConv1d, LazyConv2d, LazyConv3d = (lazy(c, "in_channels") for c in (layers.Conv1d, layers.Conv2d, layers.Conv3d))
LazyConvTranspose1d, LazyConvTranspose2d, LazyConvTranspose3d = (
    lazy(c, "in_channels") for c in (layers.ConvTranspose1d, layers.ConvTranspose2d, layers.ConvTranspose3d)
)
LazyBatchNorm1d, LazyBatchNorm2d, LazyBatchNorm3d = (
    lazy(c, "num_features") for c in (norms.BatchNorm1d, norms.BatchNorm2d, norms.BatchNorm3d)
)
LazyInstanceNorm1d, LazyInstanceNorm2d, LazyInstanceNorm3d = (
    lazy(c, "num_features") for c in (norms.InstanceNorm1d, norms.InstanceNorm2d, norms.InstanceNorm3d)
)

__all__ = [
    "LazyBatchNorm1d", "LazyBatchNorm2d", "LazyBatchNorm3d", "LazyConv1d", "LazyConv2d", "LazyConv3d", "LazyConvTranspose1d",
    "LazyConvTranspose2d", "LazyConvTranspose3d", "LazyInstanceNorm1d", "LazyInstanceNorm2d", "LazyInstanceNorm3d", "LazyLinear",
]  # fmt: skip
