"""Operators on one operand of integers with scales: tables of all their values, made as TFLite's reference kernels compute them.

8 bits have 256 values; 16 bits have 65,536. Looking up is exact, so that the results are the reference's to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import tengen.functional as F
from tengen.interop.networks.values import as_tensor
from tengen.interop.tflite.fixed import divided, multiplied, quantised_multiplier, sigmoid_table
from tengen.interop.tflite.reader import OpOf, Quant, TensorOf
from tengen.interop.tflite.registry import quantised
from tengen.tensor import Tensor


def quant_of(t: TensorOf) -> Quant:
    """The one scale of a tensor. Errors: ValueError where it has none, several, or 0."""
    if t.quant is None or t.quant.scales.size != 1 or not t.quant.scale > 0:
        raise ValueError(
            f"tensor {t.name!r} needs one scale above 0, it has {[] if t.quant is None else t.quant.scales[:4].tolist()}"
        )
    return t.quant


def limits(dtype: Any) -> tuple[int, int]:
    """The least and the largest integer of a dtype."""
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def all_values(dtype: Any) -> np.ndarray:
    """Every integer of a dtype, from the least on."""
    low, high = limits(dtype)
    return np.arange(low, high + 1, dtype=np.int64)


def looked_up(n: OpOf, x: Any, table: np.ndarray) -> Tensor:
    """The entries of a table of all values of the input's dtype, within the output's dtype."""
    t, to = as_tensor(x), n.out().dtype
    assert to is not None
    entries = as_tensor(np.clip(table, *limits(to)).astype(to))
    return F.take(entries, t.astype("int32") - limits(t.dtype.numpy)[0], 0)


def rounded(x: np.ndarray) -> np.ndarray:
    """The nearest integer, halves away from zero."""
    wide = x.astype(np.float64)
    return np.trunc(wide + np.copysign(0.5, wide))


def table_16(low: Any, high: Any, f: Callable[[np.ndarray], np.ndarray], inverse: Any) -> np.ndarray:
    """A function from [low, high], times `inverse`, at all 16-bit integers (LUTPopulateInt16): interpolated between 513 samples that
    halve the error between them. Computed in the dtype of the limits."""
    d = type(low)
    step = (high - low) / d(512)
    scaled = lambda at: f(np.asarray(at, d)) * inverse
    at = low + np.arange(513).astype(d) * step
    sample = rounded(scaled(at[:-1])).astype(d)
    between = rounded((scaled(at[1:]) + sample) / d(2))
    bias = rounded((between - rounded(scaled(at[:-1] + step / d(2)))) / 2)
    samples = np.nan_to_num(np.append(sample - bias, rounded(scaled([high]))), nan=-32768.0)
    samples = np.clip(samples, -32768, 32767).astype(np.int64)
    values = all_values(np.int16)
    index, rest = 256 + (values >> 7), values & 0x7F
    return samples[index] + (((samples[index + 1] - samples[index]) * rest + 64) >> 7)


def by_function(n: OpOf, x: Any, f: Callable[[np.ndarray], np.ndarray]) -> Tensor:
    """A function of floats by a table (LUTPopulate): in float32, as the reference."""
    s, z = quant_of(n.of(0)), quant_of(n.out())
    values = all_values(as_tensor(x).dtype.numpy)
    if values.size > 256:
        low, high = (np.float32(s.scale) * np.float32(end - s.zero) for end in (-32768, 32767))
        least, largest = (np.float32(z.scale) * np.float32(end - z.zero) for end in (-32768, 32767))
        with np.errstate(all="ignore"):
            return looked_up(n, x, table_16(low, high, lambda v: f(v).astype(np.float32), np.float32(65536) / (largest - least)))
    with np.errstate(all="ignore"):
        made = f(np.float32(s.scale) * (values - s.zero).astype(np.float32)).astype(np.float32)
        made = rounded(made * (np.float32(1) / np.float32(z.scale))) + z.zero
    return looked_up(n, x, np.nan_to_num(made, nan=0.0, posinf=1e9, neginf=-1e9).astype(np.int64))


def erf(x: np.ndarray) -> np.ndarray:
    """The error function of an array."""
    return np.vectorize(math.erf, otypes=[np.float64])(x)


FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "ELU": lambda x: np.where(x < 0, np.expm1(x.astype(np.float64)), x), "EXP": lambda x: np.exp(x.astype(np.float64)),
}  # fmt: skip


def _by_table(f: Callable[[np.ndarray], np.ndarray]) -> Callable[..., Tensor]:
    return lambda n, x: by_function(n, x, f)


for _name, _f in FUNCTIONS.items():
    quantised(_name)(_by_table(_f))


@quantised("LOG")
def log(n: OpOf, x: Any) -> Tensor:
    """The least number of the output's scale where the argument is not above zero."""
    z = quant_of(n.out())
    least = np.float64(np.float32(z.scale) * np.float32(limits(n.out().dtype)[0] - z.zero))
    return by_function(n, x, lambda v: np.where(v <= 0, least, np.log(np.maximum(v, np.float32(1e-38)).astype(np.float64))))


@quantised("GELU")
def gelu(n: OpOf, x: Any) -> Tensor:
    """Exact, or by tanh."""

    def f(v: np.ndarray) -> np.ndarray:
        w = v.astype(np.float64)
        if n.get("Approximate", False):
            return 0.5 * w * (1 + np.tanh(math.sqrt(2 / math.pi) * (w + 0.044715 * w**3)))
        return 0.5 * w * (1 + erf(w / math.sqrt(2)))

    return by_function(n, x, f)


def pieces(n: OpOf, x: Any) -> tuple[int, int]:
    """(multiplier, shift) by which 16-bit sigmoids take their argument: their scale is a power of 2, or any."""
    scale = quant_of(n.of(0)).scale
    exponent = math.log2(scale)
    left = 12 + round(exponent)
    powers = (0, 1) if n.op == "TANH" else (0,)
    if abs(exponent - round(exponent)) < 1e-3 and left in powers:
        return 0, left
    m, left = scale * 4096 * 3, 0
    while m <= 32767 / 2 and left <= 30:
        m, left = m * 2, left + 1
    return int(m), left


@quantised("LOGISTIC")
def logistic(n: OpOf, x: Any) -> Tensor:
    """1 / (1 + e^-x)."""
    if as_tensor(x).dtype.size == 1:
        return by_function(n, x, lambda v: 1 / (1 + np.exp(-v.astype(np.float64))))
    m, shift = pieces(n, x)
    m, shift = (3 << shift, 0) if m == 0 else (m, shift)
    v = (all_values(np.int16) * m + (1 << shift >> 1)) >> shift
    table, at = sigmoid_table(), np.abs(v)
    high = np.minimum(at >> 9, 254)
    made = np.where(at >> 9 >= 255, 0x7FFF << 10, (table[high] << 9) + (at & 0x1FF) * (table[high + 1] - table[high]))
    return looked_up(n, x, np.where(v >= 0, made + (1 << 9), (1 << 25) - made + (1 << 9) - 1) >> 10)


@quantised("TANH")
def tanh(n: OpOf, x: Any) -> Tensor:
    """By 2 sigmoid(2 x) - 1 for 16 bits."""
    if as_tensor(x).dtype.size == 1:
        return by_function(n, x, lambda v: np.tanh(v.astype(np.float64)))
    m, shift = pieces(n, x)
    if m > 0:
        v = (all_values(np.int16) * m + (1 << shift >> 1)) >> shift
        at = np.abs(v)
    else:
        v = all_values(np.int16) << shift
        at = 3 * np.abs(v)
    table, high = sigmoid_table(), np.minimum(at >> 8, 254)
    made = np.where(at >> 8 >= 255, 0xFFFF << 8, (table[high] << 8) + (at & 0xFF) * (table[high + 1] - table[high]))
    return looked_up(n, x, np.where(v >= 0, made - (1 << 23) + (1 << 7), -made + (1 << 23) + (1 << 7) - 1) >> 8)


def scaled(n: OpOf, x: Any, factor: float = 1.0) -> np.ndarray:
    """All values of the input in the output's scale, times a factor, from 0."""
    s, z = quant_of(n.of(0)), quant_of(n.out())
    ratio = (
        np.float32(s.scale) * np.float32(factor) / np.float32(z.scale)
        if factor != 1
        else np.float32(s.scale) / np.float32(z.scale)
    )
    return multiplied(all_values(as_tensor(x).dtype.numpy) - s.zero, *quantised_multiplier(float(ratio)))


def clipped(n: OpOf, table: np.ndarray, low: float, high: float) -> np.ndarray:
    """Within bounds that are floats."""
    z = quant_of(n.out())
    one = lambda v: z.zero + int(rounded(np.array(np.float32(v) / np.float32(z.scale))))
    return np.clip(table, one(low) if math.isfinite(low) else None, one(high) if math.isfinite(high) else None)


BOUNDS = {"RELU": (0.0, math.inf), "RELU6": (0.0, 6.0), "RELU_N1_TO_1": (-1.0, 1.0), "RELU_0_TO_1": (0.0, 1.0)}


@quantised("RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1")
def relu(n: OpOf, x: Any) -> Tensor:
    """In the output's scale, within bounds."""
    low, high = limits(n.out().dtype)
    made = np.clip(scaled(n, x) + quant_of(n.out()).zero, low, high)
    return looked_up(n, x, clipped(n, made, *BOUNDS[n.op]))


@quantised("LEAKY_RELU")
def leaky_relu(n: OpOf, x: Any) -> Tensor:
    """In the output's scale, below 0 with a slope."""
    s, z = quant_of(n.of(0)), quant_of(n.out())
    values = all_values(as_tensor(x).dtype.numpy) - s.zero
    slope = np.float32(s.scale) * np.float32(n["Alpha"]) / np.float32(z.scale)
    below = multiplied(values, *quantised_multiplier(float(slope)))
    return looked_up(n, x, np.where(values >= 0, scaled(n, x), below) + z.zero)


@quantised("ABS")
def absolute(n: OpOf, x: Any) -> Tensor:
    """In the output's scale where that is another."""
    s, z = quant_of(n.of(0)), quant_of(n.out())
    values = np.abs(all_values(as_tensor(x).dtype.numpy) - s.zero)
    same = np.float32(s.scale) == np.float32(z.scale)
    ratio = float(np.float32(s.scale) / np.float32(z.scale))
    return looked_up(n, x, (values if same else multiplied(values, *quantised_multiplier(ratio))) + z.zero)


@quantised("NEG")
def negative(n: OpOf, x: Any) -> Tensor:
    """Around the zero points, in one scale; saturated, where the reference goes round to the least integer."""
    s, z = quant_of(n.of(0)), quant_of(n.out())
    return looked_up(n, x, z.zero + s.zero - all_values(as_tensor(x).dtype.numpy))


@quantised("RSQRT")
def rsqrt(n: OpOf, x: Any) -> Tensor:
    """1 / sqrt(x); at most 1 step from the reference, which iterates in integers. 0 gives the largest."""
    s, z = quant_of(n.of(0)), quant_of(n.out())
    values = all_values(as_tensor(x).dtype.numpy) - s.zero
    with np.errstate(all="ignore"):
        made = rounded(1 / np.sqrt(values * s.scale) / z.scale) + z.zero
    return looked_up(
        n, x, np.where(values > 0, np.nan_to_num(made, nan=0, posinf=1e9), limits(n.out().dtype)[1]).astype(np.int64)
    )


@quantised("HARD_SWISH")
def hard_swish(n: OpOf, x: Any) -> Tensor:
    """x relu6(x + 3) / 6 in 16 bits."""
    s, z = quant_of(n.of(0)), quant_of(n.out())
    fine = np.float32(1 / 128) * np.float32(s.scale)
    m, shift = short_multiplier(float(fine / np.float32(z.scale)))
    slope, slope_shift = short_multiplier(float(fine / np.float32(3 / 32768)))
    if shift > 0:
        raise ValueError(f"HARD_SWISH from scale {s.scale} to {z.scale}: the factor is above 1")
    v = (all_values(as_tensor(x).dtype.numpy) - s.zero) << 7
    out = high_product_16(v, m)
    part = v
    if slope_shift > 0:
        part = saturated_16(part << (slope_shift - 1))
    part = high_product_16(part, slope)
    if slope_shift > 0:
        part = saturated_16(part << 1)
    if slope_shift < 0:
        part = divided(part, -slope_shift)
    part = (part + (1 << 15)) >> 1
    product = part * out
    product = np.sign(product) * (np.abs(product) >> 15)
    return looked_up(n, x, divided(product, -shift) + z.zero)


def short_multiplier(real: float) -> tuple[int, int]:
    """A factor as 15 bits and a shift."""
    m, shift = quantised_multiplier(real)
    return (32767 if m >= (1 << 31) - 1 - (1 << 15) else (m + (1 << 15)) >> 16), shift


def saturated_16(x: np.ndarray) -> np.ndarray:
    """Within 16 bits."""
    return np.clip(x, -(1 << 15), (1 << 15) - 1)


def high_product_16(a: np.ndarray, b: int) -> np.ndarray:
    """a b / 2^15, to the nearest integer, halves away from zero."""
    v = a * b
    v = v + np.where(v >= 0, 1 << 14, 1 - (1 << 14))
    return saturated_16(np.sign(v) * (np.abs(v) >> 15))


@quantised("QUANTIZE")
def quantize(n: OpOf, x: Any) -> Tensor:
    """Floats to integers: the nearest, halves away from zero; integers from one scale to another."""
    t, z = as_tensor(x), n.out().quant
    if z is None:
        return t.astype(n.out().dtype)
    low, high = limits(n.out().dtype)
    if t.dtype.is_inexact:
        shape = () if z.scales.size == 1 else tuple(-1 if a == z.axis else 1 for a in range(len(t.shape)))
        if not (z.scales > 0).all():
            raise ValueError(f"tensor {n.out().name!r} has the scales {z.scales[:4].tolist()}")
        made = t / as_tensor(z.scales.reshape(shape))
        made = nearest(made)
        zeros = as_tensor(z.zeros.astype(np.float32).reshape(shape))
        return F.clip(made + zeros, float(low), float(high)).astype("int32").astype(n.out().dtype)
    s, to = quant_of(n.of(0)), quant_of(n.out())
    m, shift = quantised_multiplier(float(np.float32(s.scale)) / float(np.float32(to.scale)))
    if t.dtype.size <= 2:
        values = all_values(t.dtype.numpy)
        same_zero = np.float32(s.scale) == np.float32(to.scale)
        made = values - s.zero if same_zero else multiplied(values - s.zero, m, shift)
        return looked_up(n, x, made + to.zero)
    made = multiplied(t.astype("int64") - s.zero, m, shift) + to.zero
    return F.clip(made, low, high).astype(n.out().dtype)


def nearest(t: Tensor) -> Tensor:
    """The nearest integer, halves away from zero."""
    whole = F.trunc(t)
    rest = t - whole
    return whole + F.greater_equal(rest, 0.5).astype(t.dtype) - F.less_equal(rest, -0.5).astype(t.dtype)
