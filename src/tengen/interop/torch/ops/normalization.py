"""Normalisations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import tengen.functional as F
from tengen.interop.torch.ops.reduction import count_of, variance
from tengen.interop.torch.registry import op
from tengen.loops.lang import as_int
from tengen.ops.nn import batch_norm_train
from tengen.tensor import Tensor


def by_channel(v: Tensor | None, x: Tensor) -> Tensor | None:
    """A vector along axis 1."""
    return None if v is None else v.reshape(1, -1, *[1] * (x.ndim - 2))


@op("_native_batch_norm_legit_no_training", wants=True)
def batch_norm_eval(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, var: Tensor, momentum: float, eps: float, *,
    wanted: frozenset[int] = frozenset({0}),
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Batch norm by given statistics; of the batch's there are none: vectors of no elements."""
    none = F.zeros((0,), mean.dtype) if wanted & {1, 2} else None
    return F.batch_norm(x, mean, var, weight, bias, training=False, eps=eps), none, none


@op("_native_batch_norm_legit_functional")
def batch_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor | None, var: Tensor | None, training: bool, momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:  # fmt: skip
    """(Result, the batch's mean, 1 / its deviation, the running mean and variance afterwards). The momentum is the share of the new."""
    if not training:
        assert mean is not None and var is not None
        return *batch_norm_eval(x, weight, bias, mean, var, momentum, eps), mean, var
    y, m, v = batch_norm_train(x, by_channel(weight, x), by_channel(bias, x), eps)
    m, v = m.reshape(-1), v.reshape(-1)
    inverse = F.rsqrt(v + eps)
    if mean is None or var is None:
        return y, m, inverse, mean, var
    n = count_of(x, (0, *range(2, x.ndim)))
    if as_int(n) is not None:
        unbiased = v * (n / max(n - 1, 1))
    else:
        unbiased = variance(x.detach(), (0, *range(2, x.ndim)), 1, False)
    keep = 1 - momentum
    return y, m, inverse, mean * keep + m.detach() * momentum, var * keep + unbiased.detach().astype(var.dtype) * momentum


@op("_batch_norm_with_update_functional")
def batch_norm_update(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, var: Tensor, momentum: float, eps: float
) -> tuple[Tensor, ...]:
    """`batch_norm` in training; what other processors keep beside has no elements."""
    *made, mean, var = batch_norm(x, weight, bias, mean, var, True, momentum, eps)
    return *made, F.zeros((0,), "uint8"), mean, var


@op("_native_batch_norm_legit")
def batch_norm_legit(*args: Any) -> tuple[Tensor, ...]:
    """`batch_norm`; a functional program uses the new running statistics of `_native_batch_norm_legit_functional`."""
    y, m, inverse, mean, var = batch_norm(*args)
    if args[5]:
        args[3]._reset(mean)
        args[4]._reset(var)
    return y, m, inverse


@op("_native_batch_norm_legit.no_stats")
def batch_norm_no_stats(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, training: bool, momentum: float, eps: float
) -> tuple[Tensor, ...]:
    """By the batch's statistics, without running ones."""
    return batch_norm(x, weight, bias, None, None, True, momentum, eps)[:3]


@op("native_layer_norm", wants=True)
def layer_norm(
    x: Tensor,
    shape: Sequence[Any],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    *,
    wanted: frozenset[int] = frozenset({0}),
) -> tuple[Tensor | None, ...]:
    """(Normalised over the last axes, their mean, 1 / their deviation)."""
    y = F.layer_norm(x, tuple(x.shape[x.ndim - len(shape) :]), True, weight, bias, eps)
    if not wanted & {1, 2}:
        return y, None, None
    axes = tuple(range(x.ndim - len(shape), x.ndim))
    return y, F.mean(x, axes, True), F.rsqrt(F.var(x, axes, True) + eps)


@op("native_group_norm", wants=True)
def group_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, batch: Any, channels: Any, space: Any, groups: int, eps: float, *,
    wanted: frozenset[int] = frozenset({0}),
) -> tuple[Tensor, ...]:  # fmt: skip
    """(Channels normalised in groups, the groups' means, 1 / their deviations)."""
    y = F.group_norm(x, groups, True, weight, bias, eps)
    if not wanted & {1, 2}:
        return y, None, None
    parts = x.reshape(x.shape[0], groups, -1)
    return y, F.mean(parts, 2), F.rsqrt(F.var(parts, 2) + eps)


@op("rms_norm")
def rms_norm(x: Tensor, shape: Sequence[Any], weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    """By the root of the mean square over the last axes; eps: by default the dtype's."""
    return F.rms_norm(
        x, tuple(x.shape[x.ndim - len(shape) :]), weight, float(np.finfo(x.dtype.numpy).eps) if eps is None else eps
    )


@op("_weight_norm_interface", wants=True)
def weight_norm(v: Tensor, g: Tensor, dim: int = 0, *, wanted: frozenset[int] = frozenset({0})) -> tuple[Tensor, Tensor]:
    """(v g / |v|, |v|): the norms are over all axes but `dim`."""
    size = F.sqrt(F.sum(F.square(v), tuple(i for i in range(v.ndim) if i != dim % v.ndim), True))
    return v * (g / size), size
