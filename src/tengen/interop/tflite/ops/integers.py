"""Arithmetic on integers with scales, rounded as TFLite's reference kernels round: equal to the last bit where docs/tflite.md says so."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import tengen.functional as F
from tengen.base.dtype import int16
from tengen.interop.networks.integers import NARROW, factor, in_int32
from tengen.interop.networks.places import product
from tengen.interop.networks.values import as_tensor, ints
from tengen.interop.tflite.fixed import divided, multiplied, multiplied_once, multiplied_wide, multipliers, quantised_multiplier
from tengen.interop.tflite.ops.elementwise import activation_of
from tengen.interop.tflite.ops.images import (
    channels_first,
    channels_last,
    convolved,
    counts,
    depthwise_filters,
    filters,
    groups_of,
    over_windows,
    scale_of,
    sizes_of,
    surrounded,
    transposed,
    windows_of,
)
from tengen.interop.tflite.ops.lookup import limits, looked_up, quant_of, rounded
from tengen.interop.tflite.ops.reductions import axes_of, reduced, rows_of
from tengen.interop.tflite.reader import OpOf, TensorOf
from tengen.interop.tflite.registry import quantised
from tengen.tensor import Tensor

BOUNDS = {"NONE": (-math.inf, math.inf), "RELU": (0.0, math.inf), "RELU6": (0.0, 6.0), "RELU_N1_TO_1": (-1.0, 1.0)}


def finished(n: OpOf, y: Tensor) -> Tensor:
    """Integers around the output's zero point, within the bounds of the function that the operator ends with, in the output's dtype."""
    z = quant_of(n.out())
    low, high = limits(n.out().dtype)
    name = activation_of(n)
    if name not in BOUNDS:
        raise ValueError(f"{n.op} on integers ends with {name}")
    one = lambda v: z.zero + int(rounded(np.array(np.float32(v) / np.float32(z.scale))))
    least, most = BOUNDS[name]
    low = max(low, one(least)) if math.isfinite(least) else low
    high = min(high, one(most)) if math.isfinite(most) else high
    return F.clip(y + z.zero, low, high).astype(n.out().dtype)


def centred(x: Any, t: TensorOf, dtype: str = "int64") -> Tensor:
    """Integers without their zero point."""
    return as_tensor(x).astype(dtype) - quant_of(t).zero


def zero_of(t: TensorOf) -> int:
    """The zero point of weights, which may have a scale for each filter: their zero points are all 0 then."""
    if t.quant is None:
        raise ValueError(f"tensor {t.name!r} of {t.kind} has no scale")
    if t.quant.scales.size > 1 and t.quant.zeros.any():
        raise ValueError(f"tensor {t.name!r} has zero points along its axis {t.quant.axis}")
    return t.quant.zero


def weights_of(w: Any, t: TensorOf, dtype: str) -> Tensor:
    """The same as `centred` for weights."""
    return as_tensor(w).astype(dtype) - zero_of(t)


def operands(n: OpOf, x: Any, w: Any, data: int, weights: int, terms: Any = None) -> tuple[Tensor, Tensor]:
    """Both operands of a product without their zero points: of 8 bits as `matmul_int` and `conv_int` take them, where int32 holds the sums.

    Args: data, weights: the numbers of the inputs. terms: extents that are summed over; default: those of the weights but the first.
    """
    t, k = as_tensor(x), as_tensor(w)
    both = [(t, quant_of(n.of(data)).zero), (k, zero_of(n.of(weights)))]
    if all(v.dtype in NARROW and limits(v.dtype.numpy)[0] <= zero <= limits(v.dtype.numpy)[1] for v, zero in both):
        found = [factor(v, Tensor(np.int16(zero)) if zero else None) for v, zero in both]
        if in_int32(found[0], found[1], k.shape[1:] if terms is None else terms):
            return found[0], found[1]
    dtype = "int64" if n.of(data).kind == "INT16" else "int32"
    return t.astype(dtype) - both[0][1], k.astype(dtype) - both[1][1]


def multiply(x: Tensor, y: Tensor, **turned: bool) -> Tensor:
    """The product of matrices of operands."""
    narrow = x.dtype in (*NARROW, int16)
    if narrow and min(x.ndim, y.ndim) > 1:
        return F.matmul_int(x, y, **turned)
    return F.matmul(x.astype("int32"), y.astype("int32"), **turned) if narrow else F.matmul(x, y, **turned)


def factors(n: OpOf, data: int, weights: int, single: bool) -> tuple[Any, Any]:
    """The factor from sums of products to the output, one or one for each filter. single: products of scales are rounded to float32."""
    s, z, w = quant_of(n.of(data)), quant_of(n.out()), n.of(weights).quant
    assert w is not None
    if single and w.scales.size == 1:
        return quantised_multiplier(float(np.float32(s.scale) * w.scales[0]) / z.scale)
    m, shift = multipliers(s.scale * w.scales.astype(np.float64) / z.scale)
    return (m, shift) if w.scales.size > 1 else (int(m[0]), int(shift[0]))


def requantised(n: OpOf, total: Tensor, m: Any, shift: Any, by: Callable[..., Tensor], axis: int = -1) -> Tensor:
    """Sums of products in the output's scale. by: how they are multiplied by the factors. axis: of the factors."""
    if isinstance(m, np.ndarray):
        shape = [1] * len(total.shape)
        shape[axis] = -1
        m, shift = m.reshape(shape), shift.reshape(shape)
    return finished(n, by(total.astype("int64"), m, shift))


def accumulator(n: OpOf, data: int, bias: int) -> tuple[str, Callable[..., Tensor]]:
    """The dtype of sums, and how they are multiplied by factors: those of 16-bit data with wide biases in another way."""
    wide = n.of(data).kind == "INT16" and not (n.has(bias) and n.of(bias).kind == "INT32")
    return "int64" if n.of(data).kind == "INT16" else "int32", multiplied_wide if wide else multiplied


@quantised("CONV_2D", "DEPTHWISE_CONV_2D")
def conv(n: OpOf, x: Any, w: Any, b: Any = None) -> Tensor:
    """A cross-correlation in integers."""
    dtype, by = accumulator(n, 0, 2)
    t, weight = operands(n, x, w, 0, 1)
    t = channels_first(t)
    deep = n.op == "DEPTHWISE_CONV_2D"
    weight = depthwise_filters(t, weight) if deep else filters(weight)
    total = convolved(n, t, weight, None, int(t.shape[1]) if deep else groups_of(t, weight))
    total = total if b is None else total + as_tensor(b).astype(dtype).reshape(1, -1, 1, 1)
    return channels_last(requantised(n, total, *factors(n, 0, 1, n.of(0).kind == "UINT8"), by, 1))


@quantised("TRANSPOSE_CONV")
def transpose_conv(n: OpOf, shape: Any, w: Any, x: Any, b: Any = None) -> Tensor:
    """The gradient of a convolution by its input, in integers."""
    dtype, by = accumulator(n, 2, 3)
    total = transposed(n, channels_first(centred(x, n.of(2), dtype)), weights_of(w, n.of(1), dtype), ints(shape)[1:3])
    total = total if b is None else total + as_tensor(b).astype(dtype).reshape(1, -1, 1, 1)
    return channels_last(requantised(n, total, *factors(n, 2, 1, n.of(2).kind == "UINT8"), by, 1))


@quantised("FULLY_CONNECTED")
def fully_connected(n: OpOf, x: Any, w: Any, b: Any = None) -> Tensor:
    """x W.T + b in integers."""
    dtype, _ = accumulator(n, 0, 2)
    t, weight = operands(n, x, w, 0, 1)
    total = multiply(rows_of(n, t, weight), weight, transpose_b=True)
    total = total if b is None else total + as_tensor(b).astype(dtype)
    return requantised(n, total, *factors(n, 0, 1, False), multiplied_once)


@quantised("BATCH_MATMUL")
def batch_matmul(n: OpOf, x: Any, y: Any) -> Tensor:
    """Products of matrices in integers."""
    _, by = accumulator(n, 0, 2)
    turned = [bool(n.get(name, False)) for name in ("AdjX", "AdjY")]
    total = multiply(*operands(n, x, y, 0, 1, as_tensor(x).shape[-2 if turned[0] else -1 :][:1]), transpose_a=turned[0], transpose_b=turned[1])
    return requantised(n, total, *factors(n, 0, 1, n.of(0).kind == "UINT8"), by)


# -- two operands ------------------------------------------------------------------------------------------------------------
def power_of_two(scale: float) -> int | None:
    """The exponent of a scale that is a power of 2."""
    part, exponent = math.frexp(scale)
    return exponent - 1 if part == 0.5 else None


@quantised("ADD", "SUB")
def add(n: OpOf, x: Any, y: Any) -> Tensor:
    """x + y or x - y in a scale that both fit, and that has 20 bits more (of 16-bit data 15)."""
    a, b, z = quant_of(n.of(0)), quant_of(n.of(1)), quant_of(n.out())
    first, second = centred(x, n.of(0)), centred(y, n.of(1))
    sign = 1 if n.op == "ADD" else -1
    exponents = [power_of_two(q.scale) for q in (a, b, z)]
    if n.of(0).kind == "INT16" and n.get("PotScaleInt16", True) and None not in exponents:
        i, j, o = (e or 0 for e in exponents)
        if max(i, j) > o or (i != o and j != o):
            raise ValueError(
                f"scales 2^{i}, 2^{j} and 2^{o} of 16-bit data: the output's is that of one operand, the other's is smaller"
            )
        return finished(n, divided(first, o - i) + divided(second, o - j) * sign)
    left = 15 if n.of(0).kind == "INT16" else 20
    twice = 2 * max(a.scale, b.scale)
    out = twice / float(np.float32(1 << left) * np.float32(z.scale))
    one = multiplied(first * (1 << left), *quantised_multiplier(a.scale / twice))
    other = multiplied(second * (1 << left), *quantised_multiplier(b.scale / twice))
    return finished(n, multiplied(one + other * sign, *quantised_multiplier(out)))


@quantised("MUL")
def mul(n: OpOf, x: Any, y: Any) -> Tensor:
    """x y in the output's scale."""
    a, b, z = (np.float32(quant_of(t).scale) for t in (n.of(0), n.of(1), n.out()))
    return finished(n, multiplied(centred(x, n.of(0)) * centred(y, n.of(1)), *quantised_multiplier(float(a * b / z))))


@quantised("SQUARED_DIFFERENCE")
def squared_difference(n: OpOf, x: Any, y: Any) -> Tensor:
    """(x - y)^2 in a scale that both fit, and that has 7 bits more."""
    a, b, z = quant_of(n.of(0)), quant_of(n.of(1)), quant_of(n.out())
    left, twice = (7 if n.of(0).kind != "INT16" else 0), 2 * max(a.scale, b.scale)
    one = multiplied(centred(x, n.of(0)) * (1 << left), *quantised_multiplier(a.scale / twice))
    other = multiplied(centred(y, n.of(1)) * (1 << left), *quantised_multiplier(b.scale / twice))
    return finished(
        n, multiplied((one - other) * (one - other), *quantised_multiplier(twice * twice / ((1 << 2 * left) * z.scale)))
    )


COMPARISONS = {
    "EQUAL": F.equal, "NOT_EQUAL": F.not_equal, "LESS": F.less, "LESS_EQUAL": F.less_equal, "GREATER": F.greater,
    "GREATER_EQUAL": F.greater_equal,
}  # fmt: skip


@quantised(*COMPARISONS)
def compare(n: OpOf, x: Any, y: Any) -> Tensor:
    """Of what the integers stand for, with 8 bits more."""
    one, other = (
        multiplied(centred(v, t) * (1 << 8), *quantised_multiplier(quant_of(t).scale)) for v, t in ((x, n.of(0)), (y, n.of(1)))
    )
    return COMPARISONS[n.op](one, other)


@quantised("PRELU")
def prelu(n: OpOf, x: Any, slope: Any) -> Tensor:
    """x where it is not below 0, else x slope."""
    a, b, z = (np.float32(quant_of(t).scale) for t in (n.of(0), n.of(1), n.out()))
    t = centred(x, n.of(0))
    above = multiplied(t, *quantised_multiplier(float(a / z)))
    below = multiplied(t * centred(slope, n.of(1)), *quantised_multiplier(float(a * b / z)))
    return finished(n, F.where(F.greater_equal(t, 0), above, below))


@quantised("CONCATENATION")
def concatenation(n: OpOf, *parts: Any) -> Tensor:
    """One after the other; what has another scale than the output is brought to it in float32."""
    z, made = quant_of(n.out()), []
    for i, p in enumerate(parts):
        s, t = quant_of(n.of(i)), as_tensor(p)
        if (s.scale, s.zero) != (z.scale, z.zero):
            from_, to = limits(t.dtype.numpy)
            factor = np.float32(s.scale) * (np.float32(1) / np.float32(z.scale))
            values = np.arange(from_, to + 1).astype(np.float32) * factor + np.float32(-s.zero) * factor
            t = looked_up(n, t, rounded(values).astype(np.int64) + z.zero)
        made.append(t)
    return F.concat(made, n.get("Axis", 0))


# -- reductions and pools ----------------------------------------------------------------------------------------------------
@quantised("MEAN", "SUM")
def mean(n: OpOf, x: Any, axes: Any) -> Tensor:
    """The sum, times a factor that holds the count."""
    s, z = quant_of(n.of(0)), quant_of(n.out())
    t = centred(x, n.of(0))
    over = axes_of(t, axes)
    m, shift = quantised_multiplier(s.scale / z.scale)
    if n.op == "MEAN":
        count = product([t.shape[a] for a in over])
        if not isinstance(count, int):
            raise ValueError("a mean over an extent that is open")
        if count:
            less = min(count.bit_length() - 1, 32, 31 + shift)
            m, shift = (m << less) // count, shift - less
    return finished(n, multiplied(reduced(t, F.sum, over, bool(n.get("KeepDims", False))), m, shift))


@quantised("REDUCE_PROD")
def product_of_elements(n: OpOf, x: Any, axes: Any) -> Tensor:
    """One element after the other; each step is rounded, after a factor whose power of the count is that from the scales to the output's."""
    s, z = quant_of(n.of(0)), quant_of(n.out())
    t = centred(x, n.of(0))
    over, keep = axes_of(t, axes), bool(n.get("KeepDims", False))
    stay = [a for a in range(len(t.shape)) if a not in over]
    shape = [1 if a in over else e for a, e in enumerate(t.shape) if keep or a not in over]
    count = product([t.shape[a] for a in over])
    if not isinstance(count, int) or not count:
        raise ValueError(f"a product over {count} elements")
    if n.of(0).kind == "UINT8":
        raise ValueError("TFLite multiplies elements of UINT8 as plain integers, without their scale")
    rows = F.transpose(t, [*over, *stay]).reshape(count, *shape)
    by = quantised_multiplier(s.scale / z.scale ** (1 / count))
    total = rows[0]
    if count > 1:
        total = F.scan(lambda total, row: (multiplied_wide(total * row, *by), None), total, rows[1:])[0]
    return finished(n, multiplied_wide(total, *by))


@quantised("AVERAGE_POOL_2D")
def average_pool(n: OpOf, x: Any) -> Tensor:
    """The mean of what lies under a window, halves away from zero."""
    t = channels_first(as_tensor(x).astype("int32"))
    kernel, stride, pads = windows_of(n, t)
    extents = [int(e) for e in t.shape[2:]]
    count = as_tensor(counts(extents, kernel, stride, pads, np.int32))
    total = over_windows(surrounded(t, pads), kernel, stride, F.add)
    half = F.floor_div(count, 2)
    size = F.floor_div(F.abs(total) + half, count)
    y = F.where(F.less(total, 0), -size, size)
    return channels_last(finished(n, y.astype("int64") - quant_of(n.out()).zero))


@quantised("MAX_POOL_2D")
def max_pool(n: OpOf, x: Any) -> Tensor:
    """The largest under a window."""
    t = channels_first(as_tensor(x))
    kernel, stride, pads = windows_of(n, t)
    y = over_windows(surrounded(t, pads, limits(t.dtype.numpy)[0]), kernel, stride, F.maximum)
    return channels_last(finished(n, y.astype("int64") - quant_of(n.out()).zero))


@quantised("RESIZE_BILINEAR")
def resize_bilinear(n: OpOf, x: Any, size: Any) -> Tensor:
    """By two neighbours along each axis, whose weights have 10 bits; of unsigned data in float32, cut off."""
    t = as_tensor(x).astype("int64")
    sizes = sizes_of(n, t, size)
    if n.of(0).kind == "UINT8":
        return resize_unsigned(n, as_tensor(x), sizes)
    for axis, extent, out in sizes:
        aligned = bool(n.get("AlignCorners", False)) and out > 1
        have, want = (extent - 1, out - 1) if aligned else (extent, out)
        scale = ((1 << 10) * have + want // 2) // want
        at = np.arange(out, dtype=np.int64) * scale
        at = at + scale // 2 - (1 << 9) if n.get("HalfPixelCenters", False) else at
        low = np.maximum(np.sign(at) * (np.abs(at) >> 10), 0)
        high = np.minimum(np.trunc((at + (1 << 10) - 1) / (1 << 10)).astype(np.int64), extent - 1)
        part = (at - (low << 10)).reshape([-1 if a == axis else 1 for a in range(4)])
        t = F.take(t, as_tensor(low), axis) * as_tensor((1 << 10) - part) + F.take(t, as_tensor(high), axis) * as_tensor(part)
    half = F.where(F.greater(t, 0), t + (1 << 19), t - (1 << 19))
    y = (half + ((half >> 63) & ((1 << 20) - 1))) >> 20
    return y.astype(n.out().dtype)


def resize_unsigned(n: OpOf, x: Tensor, sizes: list[tuple[int, int, int]]) -> Tensor:
    """The float kernel of the reference, whose results are cut off."""
    lows, highs, parts = [], [], []
    for axis, extent, out in sizes:
        at, scale = np.arange(out, dtype=np.float32), scale_of(n, extent, out)
        at = (at + np.float32(0.5)) * scale - np.float32(0.5) if n.get("HalfPixelCenters", False) else at * scale
        low = np.maximum(np.floor(at), 0)
        lows.append(as_tensor(low.astype(np.int64)))
        highs.append(as_tensor(np.minimum(np.ceil(at), extent - 1).astype(np.int64)))
        parts.append((at - low).astype(np.float32).reshape([-1 if a == axis else 1 for a in range(4)]))
    t = x.astype("float32")
    total: Any = None
    for ys, wy in ((lows[0], 1 - parts[0]), (highs[0], parts[0])):
        for xs, wx in ((lows[1], 1 - parts[1]), (highs[1], parts[1])):
            part = F.take(F.take(t, ys, 1), xs, 2) * as_tensor(wy) * as_tensor(wx)
            total = part if total is None else total + part
    return total.astype(n.out().dtype)


@quantised("L2_NORMALIZATION")
def l2_normalization(n: OpOf, x: Any) -> Tensor:
    """In float32; at most 1 step from the reference, whose inverse root is of integers."""
    t, z = centred(x, n.of(0)).astype("float32"), quant_of(n.out())
    norm = F.maximum(F.sqrt(F.sum(t * t, -1, keepdims=True)), 1.0)
    return (
        F.clip(F.round(t / norm / z.scale) + float(z.zero), *map(float, limits(n.out().dtype)))
        .astype("int32")
        .astype(n.out().dtype)
    )
