"""Operators on floats whose weights are integers with scales (dynamic range): the floats of each row become integers, with a scale of
their own; sums are exact, and become floats again."""

from __future__ import annotations

from typing import Any

import numpy as np

import tengen.functional as F
from tengen.interop.networks.integers import in_int32
from tengen.interop.networks.values import as_tensor, ints
from tengen.interop.tflite.ops.elementwise import fused
from tengen.interop.tflite.ops.images import (
    channels_first,
    channels_last,
    convolved,
    depthwise_filters,
    filters,
    groups_of,
    transposed,
)
from tengen.interop.tflite.ops.lookup import nearest
from tengen.interop.tflite.ops.reductions import rows_of
from tengen.interop.tflite.reader import OpOf, Quant
from tengen.interop.tflite.registry import hybrid
from tengen.tensor import Tensor


def quant_for(n: OpOf, i: int) -> Quant:
    """The scales of weights, whose zero points are 0. Errors: ValueError otherwise."""
    q = n.of(i).quant
    if q is None or q.zeros.any():
        raise ValueError(f"weights {n.of(i).name!r} of floats have zero points")
    return q


def symmetric(t: Tensor, axes: list[int]) -> tuple[Tensor, Tensor]:
    """(q, scale) with t about q scale, in -127 to 127; one scale for what lies along these axes."""
    largest = F.max(F.abs(t), axes, keepdims=True)
    none = F.equal(largest, 0)
    scale = F.where(none, F.ones_like(largest), largest / 127.0)
    q = F.clip(nearest(t * (127.0 / F.where(none, F.ones_like(largest), largest))), -127, 127)
    return F.where(none, F.zeros_like(q), q).astype("int32"), scale


def asymmetric(t: Tensor, axes: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    """(q, scale, zero) with t about (q - zero) scale, in -128 to 127 and with 0 exact."""
    low = F.minimum(F.min(t, axes, keepdims=True), 0.0).astype("float64")
    high = F.maximum(F.max(t, axes, keepdims=True), 0.0).astype("float64")
    none = F.equal(low, high)
    scale = F.where(none, F.ones_like(low), (high - low) / 255.0)
    from_low, from_high = -128.0 - low / scale, 127.0 - high / scale
    nearer = F.less(128.0 + F.abs(low / scale), 127.0 + F.abs(high / scale))
    zero = F.clip(nearest(F.where(nearer, from_low, from_high)), -128, 127)
    zero = F.where(none, F.zeros_like(zero), zero)
    single = scale.astype("float32")
    q = F.clip(zero.astype("float32") + nearest(t * (1.0 / single)), -128, 127)  # what is half-way goes away from 0, not from the zero point
    q = F.where(none, F.zeros_like(q), q)
    return q.astype("int32"), single, zero.astype("int32")


def rows(n: OpOf, t: Tensor, axes: list[int]) -> tuple[Tensor, Tensor]:
    """(integers without their zero point, scale)."""
    if n.get("AsymmetricQuantizeInputs", False):
        q, scale, zero = asymmetric(t, axes)
        return q - zero, scale
    return symmetric(t, axes)


def multiply(q: Tensor, weight: Tensor, terms: Any, **turned: bool) -> Tensor:
    """The exact product of what `rows` gave and weights of 8 bits; of wider ones in int32."""
    q = q.astype("int16")
    if q.ndim > 1 and in_int32(q, weight, terms):
        return F.matmul_int(q, weight, **turned)
    return F.matmul(q.astype("int32"), weight.astype("int32"), **turned)


def along(scales: np.ndarray, rank: int, axis: int) -> Tensor:
    """Scales of weights as they meet the result."""
    if scales.size == 1:
        return as_tensor(scales.reshape(()))
    return as_tensor(scales.reshape([-1 if a == axis % rank else 1 for a in range(rank)]))


@hybrid("FULLY_CONNECTED")
def fully_connected(n: OpOf, x: Any, w: Any, b: Any = None) -> Tensor:
    """x W.T + b."""
    weight, scales = as_tensor(w), quant_for(n, 1).scales
    t = rows_of(n, as_tensor(x), weight)
    q, scale = rows(n, t, [len(t.shape) - 1])
    y = multiply(q, weight, weight.shape[1:], transpose_b=True).astype("float32") * (scale * along(scales, len(t.shape), -1))
    return fused(n, y if b is None else y + as_tensor(b))


@hybrid("CONV_2D", "DEPTHWISE_CONV_2D")
def conv(n: OpOf, x: Any, w: Any, b: Any = None) -> Tensor:
    """A cross-correlation, in which the pictures of a batch have a scale each."""
    t, scales = channels_first(as_tensor(x)), quant_for(n, 1).scales
    q, scale, zero = asymmetric(t, [1, 2, 3])
    deep = n.op == "DEPTHWISE_CONV_2D"
    if scales.size == 1 and not deep:
        q, scale = symmetric(t, [1, 2, 3])
    else:
        q = q - zero
    weight = as_tensor(w)
    weight = depthwise_filters(t, weight) if deep else filters(weight)
    q = q.astype("int16")  # 9 bits
    if not in_int32(q, weight, weight.shape[1:]):
        q, weight = q.astype("int32"), weight.astype("int32")
    total = convolved(n, q, weight, None, int(t.shape[1]) if deep else groups_of(t, weight))
    y = total.astype("float32") * (scale * along(scales, 4, 1))
    return channels_last(fused(n, y if b is None else y + as_tensor(b).reshape(1, -1, 1, 1)))


@hybrid("TRANSPOSE_CONV")
def transpose_conv(n: OpOf, shape: Any, w: Any, x: Any, b: Any = None) -> Tensor:
    """The gradient of a convolution by its input, in which the pictures of a batch have a scale each."""
    t, scales = channels_first(as_tensor(x)), quant_for(n, 1).scales
    q, scale, zero = asymmetric(t, [1, 2, 3])
    total = transposed(n, q - zero, as_tensor(w).astype("int32"), ints(shape)[1:3])
    y = total.astype("float32") * (scale * along(scales, 4, 1))
    return channels_last(fused(n, y if b is None else y + as_tensor(b).reshape(1, -1, 1, 1)))


@hybrid("BATCH_MATMUL")
def batch_matmul(n: OpOf, x: Any, y: Any) -> Tensor:
    """Products of matrices, of which the second is integers."""
    t, weight = as_tensor(x), as_tensor(y)
    t = F.transpose(t, [*range(len(t.shape) - 2), len(t.shape) - 1, len(t.shape) - 2]) if n.get("AdjX", False) else t
    q, scale = rows(n, t, [len(t.shape) - 1])
    total = multiply(q, weight, t.shape[-1:], transpose_b=bool(n.get("AdjY", False)))
    return total.astype("float32") * (scale * along(quant_for(n, 1).scales, len(total.shape), -1))


@hybrid("EMBEDDING_LOOKUP")
def embedding_lookup(n: OpOf, index: Any, table: Any) -> Tensor:
    """Rows of a table of integers, as floats."""
    q, at = quant_for(n, 1), as_tensor(index)
    found = F.take(as_tensor(table), at, 0).astype("float32")
    scale = (
        as_tensor(q.scales.reshape(()))
        if q.scales.size == 1
        else F.take(as_tensor(q.scales), at, 0).reshape(-1, *[1] * (len(found.shape) - 1))
    )
    return found * scale
