"""Ops of ``com.microsoft`` on 8-bit numbers, as onnxruntime's quantiser writes them.

Sums of products are exact (`exact_product`). Where onnxruntime computes with the integers themselves, in float32, so do these:
QLinearAdd, QLinearMul, QGemm and means give its numbers. Ops that it computes by tables of 256 results are dequantised, computed and
quantised, which is what the tables hold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tengen.functional as F
from tengen.interop.onnx.ops.attention import of_projected
from tengen.interop.onnx.ops.fused import MS, channels_last, embed_layer_norm, filled
from tengen.interop.onnx.ops.pooling import average_pool, spatial
from tengen.interop.onnx.ops.quantization import (
    centred,
    dynamic_quantize,
    exact_product,
    factor,
    is_nothing,
    qlinear_conv,
    requantised,
    wide_product,
)
from tengen.interop.onnx.ops.recurrent import Layer, lstm_step
from tengen.interop.onnx.ops.shapes import product as product_of_extents
from tengen.interop.onnx.reader import NodeOf
from tengen.interop.onnx.registry import OPS, op
from tengen.interop.onnx.values import Value, as_tensor
from tengen.ops.define import REGISTRY
from tengen.tensor import Tensor


def number(v: Value) -> Tensor:
    """A scale as a scalar."""
    return as_tensor(v).reshape(()).astype("float32")


def real(x: Value, scale: Value, zero: Value) -> Tensor:
    """(x - zero) scale."""
    return centred(x, zero).astype("float32") * number(scale)


def coded(y: Tensor, scale: Value, zero: Value, like: Value) -> Value:
    """round(y / scale) + zero in 8 bits, saturated; like: what gives the dtype where there is no zero point."""
    dtype, z = as_tensor(nothing(zero, like)).dtype, None if is_nothing(zero) else as_tensor(zero).reshape(())
    info = np.iinfo(dtype.numpy)
    return F.quantize_linear(y.detach(), number(scale).detach(), z, int(info.min), int(info.max), dtype)


def nothing(zero: Value, like: Value) -> Value:
    """A zero point, which is 0 where it is absent."""
    return F.zeros((), as_tensor(like).dtype) if zero is None else zero


# -- elementwise -------------------------------------------------------------------------------------------------------------
@op(f"{MS}QLinearAdd")
def add(n: NodeOf, a: Value, sa: Value, za: Value, b: Value, sb: Value, zb: Value, sc: Value, zc: Value = None) -> Value:
    """a ra + b rb + (zc - (ra za + rb zb)), rounded once, r being the scales over the result's."""
    ra, rb, zero = number(sa) / number(sc), number(sb) / number(sc), nothing(zc, a)
    z = [as_tensor(nothing(v, a)).reshape(()).astype("float32") for v in (za, zb, zero)]
    fixed = z[2] - F.fma(ra, z[0], rb * z[1])
    made = F.fma(as_tensor(b).astype("float32"), rb, F.fma(as_tensor(a).astype("float32"), ra, fixed))
    return saturated(F.round(made), as_tensor(a).dtype)


@op(f"{MS}QLinearMul")
def multiply(n: NodeOf, a: Value, sa: Value, za: Value, b: Value, sb: Value, zb: Value, sc: Value, zc: Value = None) -> Value:
    """(a - za) (b - zb) sa sb / sc + zc, rounded once."""
    scaled = (centred(a, za) * centred(b, zb)).astype("float32") * (number(sa) * number(sb) / number(sc))
    return saturated(F.round(scaled + as_tensor(nothing(zc, a)).reshape(()).astype("float32")), as_tensor(a).dtype)


def saturated(t: Tensor, dtype: Any) -> Tensor:
    """In the range of an integer dtype."""
    info = np.iinfo(dtype.numpy)
    return F.clip(t, float(info.min), float(info.max)).astype(dtype)


def by_table(f: Callable[[NodeOf, Tensor], Tensor]) -> Callable:
    """An op that dequantises, computes and quantises each number."""

    def compute(n: NodeOf, x: Value, sx: Value, zx: Value, sy: Value, zy: Value = None) -> Value:
        return coded(f(n, real(x, sx, zx)), sy, zy, x)

    return compute


OPS[f"{MS}QLinearSigmoid"] = by_table(lambda n, t: F.sigmoid(t))
OPS[f"{MS}QLinearLeakyRelu"] = by_table(lambda n, t: F.leaky_relu(t, n.get("alpha", 0.01)))
OPS[f"{MS}QLinearReduceMean"] = by_table(lambda n, t: F.mean(t, n["axes"], keepdims=bool(n["keepdims"])))


@by_table
def softmax(n: NodeOf, t: Tensor) -> Tensor:
    """Along an axis; of operators before opset 13, over all axes from it on."""
    axis = n.get("axis", -1) % len(t.shape)
    if n["opset"] >= 13:
        return F.softmax(t, axis)
    return F.softmax(t.reshape(*t.shape[:axis], -1), axis).reshape(t.shape)


OPS[f"{MS}QLinearSoftmax"] = softmax


@op(f"{MS}QLinearConcat")
def concat(n: NodeOf, sy: Value, zy: Value, *parts: Value) -> Value:
    """Of numbers with scales of their own."""
    each = [coded(real(*parts[i : i + 3]), sy, zy, zy) for i in range(0, len(parts), 3)]
    return F.concat([as_tensor(v) for v in each], n["axis"])


@op(f"{MS}QLinearWhere")
def where(n: NodeOf, c: Value, x: Value, sx: Value, zx: Value, y: Value, sy: Value, zy: Value, sz: Value, zz: Value) -> Value:
    """One or the other, in the scale of the result."""
    return F.where(as_tensor(c), *(as_tensor(coded(real(*v), sz, zz, x)) for v in ((x, sx, zx), (y, sy, zy))))


# -- pools -------------------------------------------------------------------------------------------------------------------
def in_layout(f: Callable) -> Callable:
    """An op whose node says whether channels are the last axis."""
    turned = channels_last(f)
    return lambda n, x, *more: (turned if n.get("channels_last", 0) else f)(n, x, *more)


def global_average(n: NodeOf, x: Value, sx: Value, zx: Value, sy: Value, zy: Value) -> Value:
    """The exact sum of each picture, times one scale."""
    t = centred(x, zx)
    count = REGISTRY["extent_op"](product_of_extents(t.shape[2:]), "float32")
    total = F.sum(t.astype("float64"), spatial(t), keepdims=True)
    return requantised(total, number(sx) / (number(sy) * count), zy)


OPS[f"{MS}QLinearGlobalAveragePool"] = in_layout(global_average)
OPS[f"{MS}QLinearAveragePool"] = in_layout(by_table(lambda n, t: as_tensor(average_pool(n, t))))
OPS[f"{MS}QLinearConv"] = in_layout(qlinear_conv)


# -- products ----------------------------------------------------------------------------------------------------------------
@op(f"{MS}QGemm")
def gemm(
    n: NodeOf, a: Value, sa: Value, za: Value, b: Value, sb: Value, zb: Value = None, c: Value = None, sy: Value = None, zy: Value = None
) -> Value:
    """alpha a b + c in int32, as float32 or quantised again."""
    x, y = factor(a, za), factor(b, zb, 0 if n.get("transB", 0) else 1)
    total = exact_product(F.swapaxes(x, 0, 1) if n.get("transA", 0) else x, F.swapaxes(y, 0, 1) if n.get("transB", 0) else y)
    total = total if c is None else total + as_tensor(c)
    scale = as_tensor(sb).astype("float32")
    scale = number(sa) * np.float32(n.get("alpha", 1.0)) * (scale.reshape(()) if scale.size == 1 else scale)
    return total.astype("float32") * scale if sy is None else requantised(total, scale / number(sy), zy)


def product(a: Value, b: Value, sa: Value, sb: Value, za: Value, zb: Value, bias: Value) -> Tensor:
    """a b in float32, from exact sums."""
    scales = [as_tensor(v).astype("float32") for v in (sa, sb)]
    first, second = (v.reshape(()) if v.size == 1 else v for v in scales)
    total = exact_product(factor(a, za), factor(b, zb, -1)).astype("float32")
    made = total * (F.expand_dims(first, -1) * second if first.shape else first * second)
    return made if bias is None else made + as_tensor(bias)


@op(f"{MS}MatMulIntegerToFloat")
def matmul_to_float(n: NodeOf, a: Value, b: Value, sa: Value, sb: Value, za: Value = None, zb: Value = None, c: Value = None) -> Value:
    """A product of quantised matrices, as float32."""
    return product(a, b, sa, sb, za, zb, c)


@op(f"{MS}DynamicQuantizeMatMul")
def dynamic_matmul(n: NodeOf, a: Value, b: Value, sb: Value, zb: Value = None, bias: Value = None) -> Value:
    """A product whose first matrix is quantised by its own range."""
    q, scale, zero = dynamic_quantize(n, a)
    return product(q, b, scale, sb, zero, zb, bias)


@op(f"{MS}MatMulInteger16")
def matmul_integer16(n: NodeOf, a: Value, b: Value) -> Value:
    """Of 16-bit numbers, exact in 32 bits."""
    return wide_product(as_tensor(a), as_tensor(b))


@op(f"{MS}MulInteger")
def multiply_integer(n: NodeOf, a: Value, za: Value, b: Value, zb: Value = None) -> Value:
    """(a - za) (b - zb) in int32."""
    return centred(a, za) * centred(b, zb)


@op(f"{MS}ReduceSumInteger")
def sum_integer(n: NodeOf, x: Value) -> Value:
    """Sums in int32."""
    return F.sum(as_tensor(x).astype("int32"), n["axes"], keepdims=bool(n["keepdims"])).astype("int32")


@op(f"{MS}DynamicQuantizeLSTM")
def dynamic_lstm(
    n: NodeOf, x: Value, w: Value, r: Value, b: Value, lengths: Value, h: Value, c: Value, p: Value, sw: Value, zw: Value, sr: Value, zr: Value
) -> tuple[Value, ...]:
    """An LSTM whose products take 8-bit weights (directions, inputs, gates) and inputs quantised by their range: all steps' at once, and
    the state's in each step, of all examples together."""
    layer = Layer(filled(n, direction="forward"), ["Sigmoid", "Tanh", "Tanh"], 4)
    bias = layer.biases(b)
    one = lambda v, d: None if v is None else as_tensor(v)[d]
    through = lambda t, d, m, s, z, add: product_dynamic(t, one(m, d), one(s, d), one(z, d), add)
    step = lstm_step(layer, lambda d, h: through(h, d, r, sr, zr, None), p)
    return layer.run(x, lambda d, t: through(t, d, w, sw, zw, bias(d)), [h, c], layer.by_steps(step, lengths))


def product_dynamic(t: Tensor, m: Value, scale: Value, zero: Value, bias: Tensor | None) -> Tensor:
    """A product by 8-bit weights, of numbers that are quantised by their range."""
    q, s, z = dynamic_quantize(None, t)
    return product(q, m, s, scale, z, zero, bias)


# -- networks on text --------------------------------------------------------------------------------------------------------
@op(f"{MS}QAttention")
def attention(
    n: NodeOf, x: Value, w: Value, b: Value, sx: Value, sw: Value, mask: Value = None, zx: Value = None, zw: Value = None, past: Value = None
) -> tuple[Value, ...]:
    """Attention whose projection is a product of 8-bit numbers."""
    made = product(x, w, sx, sw, zx, zw, b)
    return of_projected(n, made, [made.shape[2] // 3] * 3, mask, past, None)


@op(f"{MS}QEmbedLayerNormalization")
def embed(
    n: NodeOf, ids: Value, segments: Value, words: Value, places: Value, kinds: Value, gamma: Value, beta: Value, mask: Value, *more: Value
) -> tuple[Value, ...]:
    """EmbedLayerNormalization of 8-bit tables: the scales of the five, then their zero points."""
    tables = (words, places, kinds, gamma, beta)
    found = [None if t is None else real(t, s, z) for t, s, z in zip(tables, more[:5], more[5:])]
    return embed_layer_norm(n, ids, segments, *found, mask)[:2]
