"""What quantised models are in ONNX: QuantizeLinear and DequantizeLinear around integers, and exact products of integers.

A product of codes whose zero points are taken off before (`centre_codes`) is MatMulInteger or ConvInteger, which take them off themselves.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tengen.base.dtype import DType, dtype, float32, int32
from tengen.base.errors import ArgumentError
from tengen.interop.onnx.writer import Writer, writes
from tengen.ir.graph import Node, Value

CODES = ("int8", "uint8")  # what ONNX's integer operators take


def along(w: Writer, n: Node, i: int, name: str) -> tuple[str, int | None]:
    """A scale or zero point as QuantizeLinear takes it, and its axis: for all elements, or for the slices along one axis."""
    shape, ndim = n.inputs[i].type.shape, n.inputs[0].type.ndim
    wide = [a for a, d in enumerate(shape) if d != 1]
    if len(wide) > 1:
        raise ArgumentError(f"scales of shape {tuple(shape)}, which differ along several axes")
    if not wide:
        return w.emit("Reshape", name, w.array(np.zeros(0, np.int64))) if shape else name, None
    return w.emit("Reshape", name, w.array(np.array([-1], np.int64))), wide[0] + ndim - len(shape)


def parameters(w: Writer, n: Node, scale: str, zero: str | None, codes: DType) -> tuple[list[str], int | None]:
    """The inputs (scale, zero point) of a Quantize- or DequantizeLinear of a node, and their axis."""
    s, axis = along(w, n, 1, w.cast(scale, float32) if n.inputs[1].type.dtype is not float32 else scale)
    if zero is None:
        z, of = w.array(np.zeros((), codes.numpy)), None
    else:
        z, of = along(w, n, 2, w.cast(zero, codes))
    if axis != of:  # one of them is for all: both get the other's shape
        like, this = (z, s) if axis is None else (s, z)
        wide = w.emit("Expand", this, w.emit("Shape", like))
        s, z = (wide, z) if axis is None else (s, wide)
    return [s, z], axis if of is None else of


def in_codes(w: Writer, n: Node, x: str, scale: str, zero: str | None) -> str:
    """QuantizeLinear, and a Clip where fewer integers are allowed than the dtype has."""
    codes = dtype(n.attrs["dtype"])
    if codes.name not in CODES:
        raise ArgumentError(f"integers of {codes}: ONNX quantises to int8 and uint8")
    given, axis = parameters(w, n, scale, zero, codes)
    made, info = w.emit("QuantizeLinear", x, *given, axis=axis), np.iinfo(codes.numpy)
    low, high = n.attrs["low"], n.attrs["high"]
    if (low, high) == (info.min, info.max):
        return made
    return w.emit("Clip", made, *(w.array(np.array(v, codes.numpy)) for v in (low, high)))


@writes("quantize_linear")
def quantize_linear(w: Writer, n: Node, x: str, scale: str, zero: str | None = None) -> str:
    """Numbers as integers."""
    return in_codes(w, n, x if n.inputs[0].type.dtype is float32 else w.cast(x, float32), scale, zero)


@writes("requantize_linear")
def requantize_linear(w: Writer, n: Node, x: str, multiplier: str, zero: str | None = None) -> str:
    """Sums as integers: the product by the multiplier in units of 1."""
    m = n.inputs[1].type
    product = w.emit("Mul", w.cast(x, float32), multiplier if m.dtype is float32 else w.cast(multiplier, float32))
    codes = dtype(n.attrs["dtype"])
    one = w.array(np.array(1, np.float32))
    if zero is None or all(d == 1 for d in n.inputs[2].type.shape):
        z = w.array(np.zeros((), codes.numpy)) if zero is None else along(w, n, 2, w.cast(zero, codes))[0]
        made, info = w.emit("QuantizeLinear", product, one, z), np.iinfo(codes.numpy)
        low, high = n.attrs["low"], n.attrs["high"]
        both = (low, high) != (info.min, info.max)
        return w.emit("Clip", made, *(w.array(np.array(v, codes.numpy)) for v in (low, high))) if both else made
    raise ArgumentError("sums that are requantised with a zero point for each slice")


@writes("dequantize_linear")
def dequantize_linear(w: Writer, n: Node, x: str, scale: str, zero: str | None = None) -> str:
    """What integers stand for; of other integers than 8-bit ones and int32 by its formula."""
    codes = n.inputs[0].type.dtype
    if codes.name in CODES or (codes is int32 and zero is None):
        given, axis = parameters(w, n, scale, zero, codes)
        return w.emit("DequantizeLinear", x, *given, axis=axis)
    q = w.cast(x, int32)
    q = q if zero is None else w.emit("Sub", q, w.cast(zero, int32))
    return w.emit("Mul", w.cast(q, float32), scale if n.inputs[1].type.dtype is float32 else w.cast(scale, float32))


def centred(w: Writer, v: Value) -> tuple[str, str]:
    """The codes and the zero point of an operand of an integer product."""
    if v.type.dtype.name in CODES:
        return w.name(v), w.array(np.zeros((), v.type.dtype.numpy))
    n = v.node
    if n is not None and n.op == "sub":
        wide, zero = n.inputs
        codes = wide.node.inputs[0] if wide is not None and wide.node is not None and wide.node.op == "astype" else None
        if codes is not None and codes.type.dtype.name in CODES and all(d == 1 for d in zero.type.shape):
            z = w.cast(w.name(zero), codes.type.dtype)
            return w.name(codes), w.emit("Reshape", z, w.array(np.zeros(0, np.int64))) if zero.type.shape else z
    if n is not None and n.op == "astype" and n.inputs[0].type.dtype.name in CODES:
        return centred(w, n.inputs[0])
    raise ArgumentError(f"an integer product of {v.type!r} that is no 8-bit number less one zero point")


@writes("matmul_int")
def matmul_int(w: Writer, n: Node, x: str, y: str) -> str:
    """MatMulInteger, with the last two axes exchanged where it says so."""
    (a, za), (b, zb) = (centred(w, v) for v in n.inputs)

    def turned(name: str, ndim: int, way: Any) -> str:
        return w.emit("Transpose", name, perm=[*range(ndim - 2), ndim - 1, ndim - 2]) if way else name

    a, b = turned(a, n.inputs[0].type.ndim, n.attrs["transpose_a"]), turned(b, n.inputs[1].type.ndim, n.attrs["transpose_b"])
    return w.emit("MatMulInteger", a, b, za, zb)


@writes("conv_int")
def conv_int(w: Writer, n: Node, x: str, weight: str) -> str:
    """ConvInteger: padding is the zero point there."""
    (a, za), (k, zk) = (centred(w, v) for v in n.inputs)
    at, shape = n.attrs, n.inputs[1].type.shape
    if len(shape) != n.inputs[0].type.ndim:
        k = w.emit("Reshape", k, w.shape([shape[0] * shape[1], *shape[2:]]))
    return w.emit(
        "ConvInteger", a, k, za, zk, strides=list(at["stride"]), pads=[*at["padding"]] * 2, dilations=list(at["dilation"]), group=at["groups"]
    )
