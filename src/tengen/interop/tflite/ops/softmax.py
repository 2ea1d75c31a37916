"""Softmax of integers with scales: tables of exponentials, and reciprocals of sums by Newton's method in integers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import tengen.functional as F
from tengen.interop.networks.values import as_tensor
from tengen.interop.tflite.fixed import (
    divided,
    exp_of_negative,
    high_product,
    leading_zeros,
    multiplied,
    quantised_multiplier,
    reciprocal_of_one_plus,
)
from tengen.interop.tflite.ops.lookup import limits, quant_of, table_16
from tengen.interop.tflite.reader import OpOf
from tengen.interop.tflite.registry import quantised
from tengen.tensor import Tensor

UNIT = 65536 / (2.0 / 65535 * 65535)  # of a table whose results are from -1 to 1


@quantised("SOFTMAX")
def softmax(n: OpOf, x: Any) -> Tensor:
    """e^x / sum e^x along the last axis."""
    t = as_tensor(x)
    return softmax_16(n, t) if t.dtype.size == 2 else softmax_8(n, t)


def below_largest(t: Tensor) -> Tensor:
    """How far each element is below the largest of its row."""
    wide = t.astype("int32")
    return F.max(wide, -1, keepdims=True) - wide


def softmax_8(n: OpOf, t: Tensor) -> Tensor:
    """Exponentials in 31 bits, sums in 19."""
    real = min(float(n.get("Beta", 1.0)) * quant_of(n.of(0)).scale * (1 << 26), (1 << 31) - 1.0)
    m, left = quantised_multiplier(real, 31)  # so large where masks of attention were quantised: only the largest count
    reach = math.floor(31 * (1 << 26) / (1 << left)) if left >= 0 else 255
    far = np.minimum(np.arange(256, dtype=np.int64), reach)
    table = np.where(np.arange(256) <= reach, exp_of_negative(multiplied(-far, m, left), 5), 0)
    powers = F.take(as_tensor(table), below_largest(t), 0)
    total = F.sum(divided(powers, 12), -1, keepdims=True)
    room = leading_zeros(total)
    inverse = reciprocal_of_one_plus((total << room) - (1 << 31))
    low, high = limits(n.out().dtype)
    bits = 8 * n.out().dtype.itemsize
    y = divided(high_product(powers, inverse), (12 + 31 - bits) - room) + low
    return F.clip(y, low, high).astype(n.out().dtype)


def softmax_16(n: OpOf, t: Tensor) -> Tensor:
    """Exponentials and reciprocals by tables of 513 samples."""
    scale = np.float32(quant_of(n.of(0)).scale) * np.float32(n.get("Beta", 1.0))
    m, shift = quantised_multiplier(float(scale) / (10.0 / 65535.0))
    far = np.clip(multiplied(-np.arange(65536, dtype=np.int64), m, shift) + 32767, -32768, 32767)
    powers = F.take(as_tensor(table_16(-10.0, 0.0, np.exp, UNIT)[far + 32768]), below_largest(t), 0)
    total = F.sum(powers, -1, keepdims=True)
    room = leading_zeros(total)
    short = ((total << (room - 1)) + (1 << 13)) >> 14
    place = F.clip(short - ((1 << 15) + (1 << 16)), -32768, 32767) + 32768
    inverse = F.take(as_tensor(table_16(0.0, 1.0, lambda v: 1 / (1 + v), UNIT)), place.astype("int32"), 0)
    right = 31 - room
    y = (powers * inverse + ((right & 0) + 1 << (right - 1))) >> right
    return F.clip(y, 0, 32767).astype(n.out().dtype)


@quantised("LOG_SOFTMAX")
def log_softmax(n: OpOf, x: Any) -> Tensor:
    """x - log sum e^x along the last axis, in float32: at most 1 step from the reference, whose logarithm is of integers."""
    t, z = as_tensor(x), quant_of(n.out())
    y = F.log_softmax(t.astype("float32") * quant_of(n.of(0)).scale, -1) / z.scale
    return F.clip(F.round(y) + float(z.zero), *map(float, limits(n.out().dtype))).astype("int32").astype(n.out().dtype)
