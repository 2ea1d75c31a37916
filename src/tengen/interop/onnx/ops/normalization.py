"""Normalisations."""

from __future__ import annotations

import numpy as np

import tengen.functional as F
from tengen.interop.onnx.reader import NodeOf
from tengen.interop.onnx.registry import op
from tengen.interop.onnx.values import Value, as_tensor
from tengen.tensor import Tensor


def by_channel(v: Value, t: Tensor) -> Tensor:
    """A vector along axis 1."""
    return as_tensor(v).reshape(1, -1, *[1] * (len(t.shape) - 2))


@op("BatchNormalization")
def batch_norm(n: NodeOf, x: Value, scale: Value, bias: Value, mean: Value, var: Value) -> Value | tuple[Value, ...]:
    """By given statistics, or with training_mode by the batch's, which move the running ones."""
    t, eps, momentum = as_tensor(x), n["epsilon"], n["momentum"]
    if not n.get("training_mode", 0):
        moved = (
            (t - by_channel(mean, t)) * F.rsqrt(by_channel(var, t) + eps) if t.dtype != "float32" or len(t.shape) != 4 else None
        )
        if moved is None:
            m, v, s, b = (as_tensor(a).reshape(1, -1, 1, 1) for a in (mean, var, scale, bias))
            return F.batch_norm(t, m, v, s, b, training=False, eps=eps)
        return (moved * by_channel(scale, t) + by_channel(bias, t)).astype(t.dtype)
    axes = [0, *range(2, len(t.shape))]
    here, spread = F.mean(t, axes), F.var(t, axes)
    y = (t - by_channel(here, t)) * F.rsqrt(by_channel(spread, t) + eps) * by_channel(scale, t) + by_channel(bias, t)
    old_mean, old_var = as_tensor(mean), as_tensor(var)
    return y.astype(t.dtype), old_mean * momentum + here * (1 - momentum), old_var * momentum + spread * (1 - momentum)


@op("InstanceNormalization")
def instance_norm(n: NodeOf, x: Value, scale: Value, bias: Value) -> Value:
    """Each picture of each channel by its own mean and variance."""
    t = as_tensor(x)
    axes = list(range(2, len(t.shape)))
    mean = F.mean(t, axes, keepdims=True)
    spread = F.mean(F.square(t - mean), axes, keepdims=True)
    return (t - mean) * F.rsqrt(spread + n["epsilon"]) * by_channel(scale, t) + by_channel(bias, t)


@op("LayerNormalization")
def layer_norm(n: NodeOf, x: Value, scale: Value, bias: Value = None) -> Value | tuple[Value, ...]:
    """Over the axes from `axis` on; and the mean and the inverse deviation where they are asked for."""
    t = as_tensor(x)
    axis = n["axis"] % len(t.shape)
    axes = list(range(axis, len(t.shape)))
    w = as_tensor(scale)
    if len(n.outputs) == 1 and w.shape == t.shape[axis:] and (bias is None or as_tensor(bias).shape == w.shape):
        b = as_tensor(bias) if bias is not None else F.zeros_like(w)
        return F.layer_norm(t, t.shape[axis:], True, w, b, n["epsilon"])
    wide = t.astype("float32") if n.get("stash_type", 1) == 1 else t
    mean = F.mean(wide, axes, keepdims=True)
    moved = wide - mean
    inverse = F.rsqrt(F.mean(F.square(moved), axes, keepdims=True) + n["epsilon"])
    y = (moved * inverse).astype(t.dtype) * w
    return (y if bias is None else y + as_tensor(bias)), mean, inverse


@op("RMSNormalization")
def rms_norm(n: NodeOf, x: Value, scale: Value) -> Value:
    """By the root of the mean square over the axes from `axis` on."""
    t = as_tensor(x)
    axes = list(range(n["axis"] % len(t.shape), len(t.shape)))
    wide = t.astype("float32") if n.get("stash_type", 1) == 1 else t
    inverse = F.rsqrt(F.mean(F.square(wide), axes, keepdims=True) + n["epsilon"])
    return (wide * inverse).astype(t.dtype) * as_tensor(scale)


@op("GroupNormalization")
def group_norm(n: NodeOf, x: Value, scale: Value, bias: Value) -> Value:
    """Channels in groups; scale and bias for each channel (since opset 21) or each group."""
    t, groups = as_tensor(x), n["num_groups"]
    parts = t.reshape(t.shape[0], groups, -1)
    mean = F.mean(parts, 2, keepdims=True)
    spread = F.mean(F.square(parts - mean), 2, keepdims=True)
    y = (parts - mean) * F.rsqrt(spread + n["epsilon"])
    w, b = as_tensor(scale), as_tensor(bias)
    if n.since < 21:
        return (y * w.reshape(1, -1, 1) + b.reshape(1, -1, 1)).reshape(t.shape)
    return y.reshape(t.shape) * by_channel(w, t) + by_channel(b, t)


@op("LpNormalization")
def lp_norm(n: NodeOf, x: Value) -> Value:
    """By the norm along an axis; zero where that is zero."""
    t, axis = as_tensor(x), n["axis"]
    size = F.sqrt(F.sum(F.square(t), axis, keepdims=True)) if n["p"] == 2 else F.sum(F.abs(t), axis, keepdims=True)
    return F.where(F.equal(size, 0), F.zeros_like(t), t / F.where(F.equal(size, 0), F.ones_like(size), size))


@op("LRN")
def lrn(n: NodeOf, x: Value) -> Value:
    """Local response normalisation across channels."""
    t, size = as_tensor(x), n["size"]
    before = (size - 1) // 2
    squares = F.pad(F.square(t), [(0, 0), (before, size - 1 - before), *[(0, 0)] * (len(t.shape) - 2)])
    total = squares[:, 0 : t.shape[1]]
    for i in range(1, size):
        total = total + squares[:, i : i + t.shape[1]]
    return t / F.pow(total * (n["alpha"] / size) + n["bias"], n["beta"])


@op("MeanVarianceNormalization")
def mean_variance(n: NodeOf, x: Value) -> Value:
    """(x - mean) / deviation along axes."""
    t, axes = as_tensor(x), n.get("axes") or [0, 2, 3]
    mean = F.mean(t, axes, keepdims=True)
    spread = F.mean(F.square(t), axes, keepdims=True) - F.square(mean)
    return (t - mean) / (F.sqrt(spread) + np.float32(1e-9))
