"""Integers with scales: QuantizeLinear, DequantizeLinear, and the ops that compute with them."""

from __future__ import annotations

import numpy as np

import tengen.functional as F
from tengen.interop.networks import integers
from tengen.interop.networks.integers import NARROW, in_int32
from tengen.interop.onnx.ops.codes import decode, encode
from tengen.interop.onnx.ops.convolution import convolved
from tengen.interop.onnx.pairs import BIAS, CONV
from tengen.interop.onnx.reader import NodeOf
from tengen.interop.onnx.registry import op
from tengen.interop.onnx.values import BITS, Coded, Value, as_tensor, is_coded
from tengen.quantization.qparams import bias_codes
from tengen.tensor import Tensor


def along(v: Tensor, x: Tensor, axis: int, block: int) -> Tensor:
    """A scale or zero point as it meets the elements: for all, for each slice along an axis, or for blocks along it."""
    if not v.shape or v.size == 1 and not block:
        return v.reshape(())
    if block:
        a = axis % len(x.shape)
        wide = F.repeat(v, block, a)
        return wide[(slice(None),) * a + (slice(0, x.shape[a]),)]
    return v.reshape(*[-1 if a == axis % len(x.shape) else 1 for a in range(len(x.shape))])


def numbers(v: Value) -> Tensor:
    """Any value as a tensor of numbers."""
    return decode(v) if isinstance(v, Coded) else as_tensor(v)


RANGES = {"int4": (-8, 7), "uint4": (0, 15), "int2": (-2, 1), "uint2": (0, 3)}


@op("QuantizeLinear")
def quantize(n: NodeOf, x: Value, scale: Value, zero: Value = None) -> Value:
    """round(x / scale) + zero, ties to even, saturated."""
    import onnx

    t, s = as_tensor(x), numbers(scale)
    axis, block = n.get("axis", 1), n.get("block_size", 0)
    code = n.get("output_dtype", 0)
    target = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(code)) if code else None
    if target is None:
        target = (
            np.dtype(np.uint8) if zero is None else zero.dtype if isinstance(zero, (Coded, np.ndarray)) else zero.dtype.numpy
        )
    wide = (t.astype("float32") if t.dtype.is_int or t.dtype.size < 4 else t) / along(s, t, axis, block).astype("float32")
    z = None if zero is None else along(numbers(zero), t, axis, block)
    if is_coded(target) and target.name not in RANGES:
        return encode(wide if z is None else wide + z.astype("float32"), target, bool(n.get("saturate", 1)))
    low, high = RANGES[target.name] if target.name in RANGES else (np.iinfo(target).min, np.iinfo(target).max)
    made = F.round(wide) if z is None else F.round(wide) + z.astype("float32")
    made = F.clip(made, float(low), float(high)).astype("int32")
    return (
        Coded(F.bitwise_and(made, (1 << BITS[target.name]) - 1).astype("uint8"), target)
        if is_coded(target)
        else made.astype(target)
    )


@op("DequantizeLinear")
def dequantize(n: NodeOf, x: Value, scale: Value, zero: Value = None) -> Value:
    """(x - zero) scale."""
    t, s = numbers(x), numbers(scale)
    axis, block = n.get("axis", 1), n.get("block_size", 0)
    wide = t.astype("int32") if t.dtype.is_int and t.dtype.size < 4 else t
    if zero is not None:
        wide = wide - along(numbers(zero), t, axis, block).astype(wide.dtype)
    return (wide.astype("float32") * along(s, t, axis, block).astype("float32")).astype(s.dtype)


@op("DynamicQuantizeLinear")
def dynamic_quantize(n: NodeOf | None, x: Value) -> tuple[Value, ...]:
    """uint8 by the range of the data, with 0 in it."""
    t = as_tensor(x)
    high, low = F.maximum(F.max(t), 0.0), F.minimum(F.min(t), 0.0)
    scale = (high - low) / 255
    safe = F.where(F.equal(scale, 0), F.ones_like(scale), scale)
    zero = F.clip(F.round(-low / safe), 0, 255)
    return F.clip(F.round(t / safe) + zero, 0, 255).astype("uint8"), scale, zero.astype("uint8")


def centred(v: Value, zero: Value, axis: int | None = None) -> Tensor:
    """int32 numbers with their zero point taken off."""
    t = numbers(v).astype("int32")
    return t if is_nothing(zero) else t - met(zero, t, axis).astype("int32")


def factor(v: Value, zero: Value, axis: int | None = None) -> Tensor:
    """The same as what `matmul_int` and `conv_int` multiply, where it has 8 bits."""
    t = numbers(v)
    if t.dtype not in NARROW or zero is not None and numbers(zero).dtype not in NARROW:
        return centred(v, zero, axis)
    return integers.factor(t, None if is_nothing(zero) else met(zero, t, axis))


def is_nothing(zero: Value) -> bool:
    """Whether a zero point is absent, or known to be 0."""
    return zero is None or isinstance(zero, np.ndarray) and not zero.astype(np.int64).any()


def met(zero: Value, t: Tensor, axis: int | None) -> Tensor:
    """A zero point as it meets the elements."""
    z = numbers(zero)
    return z.reshape(()) if z.size == 1 else along(z, t, axis, 0) if axis is not None and len(z.shape) == 1 else z


@op("MatMulInteger")
def matmul_integer(n: NodeOf, a: Value, b: Value, za: Value = None, zb: Value = None) -> Value:
    """An exact product in int32."""
    return exact_product(factor(a, za, -2 if len(as_tensor(a).shape) > 1 else None), factor(b, zb, -1))


def exact_product(x: Tensor, y: Tensor) -> Tensor:
    """Multiplies matrices of integers, which `factor` gave: in int32, or where that may not hold a sum in float64."""
    if not in_int32(x, y, y.shape[-2:-1] or y.shape):
        return wide_product(x, y)
    made = F.matmul_int(x if x.ndim > 1 else x.reshape(1, -1), y if y.ndim > 1 else y.reshape(-1, 1))
    if x.ndim == 1:
        made = F.squeeze(made, -2)
    return made if y.ndim > 1 else F.squeeze(made, -1)


def wide_product(x: Tensor, y: Tensor) -> Tensor:
    """Multiplies matrices of integers of at most 17 bits by float64, in which all sums are exact that int32 holds."""
    return F.matmul(x.astype("float64"), y.astype("float64")).astype("int32")


@op("ConvInteger")
def conv_integer(n: NodeOf, x: Value, w: Value, zx: Value = None, zw: Value = None) -> Value:
    """An exact convolution in int32."""
    return exact_conv(n, factor(x, zx), factor(w, zw, 0))


def exact_conv(n: NodeOf, x: Tensor, w: Tensor) -> Tensor:
    """Convolves integers, which `factor` gave: in int32, or where that may not hold a sum in float64."""
    if in_int32(x, w, w.shape[1:]):
        return convolved(n, x, w, None, F.conv_int)
    return convolved(n, x.astype("float64"), w.astype("float64"), None).astype("int32")


def requantised(total: Tensor, scale: Tensor, zero: Value) -> Value:
    """Sums in the dtype of a zero point: scaled, rounded, moved, saturated."""
    z = numbers(zero)
    target = zero.dtype if isinstance(zero, (Coded, np.ndarray)) else z.dtype.numpy
    if is_coded(target):
        return encode(F.round(total.astype("float32") * scale) + z.astype("float32").reshape(()), target, True)
    info = np.iinfo(target)
    z = None if is_nothing(zero) else z.reshape(())
    return F.requantize_linear(total.astype("int32"), scale.detach(), z, int(info.min), int(info.max), target.name)


@op("QLinearMatMul")
def qlinear_matmul(n: NodeOf, a: Value, sa: Value, za: Value, b: Value, sb: Value, zb: Value, sy: Value, zy: Value) -> Value:
    """A product of quantised matrices, quantised."""
    first, second = numbers(a), numbers(b)
    if isinstance(a, Coded):
        total = F.matmul(first - numbers(za), second - numbers(zb))
        return encode(total * (numbers(sa) * numbers(sb) / numbers(sy)).astype("float32"), zy.dtype, True)
    s = as_tensor(sa).astype("float32"), as_tensor(sb).astype("float32"), as_tensor(sy).astype("float32")
    s = tuple(v.reshape(()) if v.size == 1 else v for v in s)
    rows = s[0] if not s[0].shape else s[0].reshape(-1, 1)
    total = exact_product(factor(a, za, -2), factor(b, zb, -1))
    return requantised(total, rows * s[1] / s[2], zy)


@op("QLinearConv")
def qlinear_conv(
    n: NodeOf, x: Value, sx: Value, zx: Value, w: Value, sw: Value, zw: Value, sy: Value, zy: Value, b: Value = None
) -> Value:
    """A convolution of quantised numbers, quantised."""
    total = exact_conv(n, factor(x, zx), factor(w, zw, 0))
    shape = (1, -1, *[1] * (len(total.shape) - 2))
    total = total if b is None else total + as_tensor(b).reshape(*shape)
    scale = as_tensor(sw).reshape(-1)
    scale = scale.reshape(()) if scale.size == 1 else scale.reshape(*shape)
    return requantised(total, as_tensor(sx).reshape(()) * scale / as_tensor(sy).reshape(()), zy)


@op(CONV)
def conv_to_float(
    n: NodeOf, x: Value, w: Value, sx: Value, sw: Value, zx: Value, zw: Value, coded: Value = None, bias: Value = None
) -> Value:
    """A convolution of quantised numbers, whose exact sums become float32."""
    total = exact_conv(n, factor(x, zx), factor(w, zw, 0))
    shape = (1, -1, *[1] * (len(total.shape) - 2))
    total = total if coded is None else total + as_tensor(coded).reshape(*shape)
    scale = as_tensor(sx).reshape(()) * as_tensor(sw).reshape(-1)
    made = F.dequantize_linear(total.astype("int32"), (scale.reshape(()) if scale.size == 1 else scale.reshape(*shape)).detach())
    return made if bias is None else made + as_tensor(bias).reshape(*shape)


@op(BIAS)
def bias_codes_of(n: NodeOf, bias: Value, data: Value, weights: Value) -> Value:
    """A bias of floats in units of the scale of products, as int32."""
    return bias_codes(as_tensor(bias).detach(), (n["alpha"] * as_tensor(data).reshape(()) * as_tensor(weights)).detach())
