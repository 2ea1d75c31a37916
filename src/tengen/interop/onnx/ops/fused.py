"""Ops of ``com.microsoft`` with floats: what onnxruntime's optimiser makes of several nodes (activations in products, normalisations of
sums, attention), and products with weights of few bits. Their meaning is onnxruntime's documentation of them, ContribOperators.md."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tengen.functional as F
from tengen.interop.onnx.ops.convolution import conv
from tengen.interop.onnx.ops.elementwise import all_known
from tengen.interop.onnx.ops.normalization import rms_norm
from tengen.interop.onnx.ops.pooling import max_pool
from tengen.interop.onnx.ops.quantization import dequantize
from tengen.interop.onnx.ops.reduction import gemm
from tengen.interop.onnx.ops.shapes import gather
from tengen.interop.onnx.reader import NodeOf
from tengen.interop.onnx.registry import OPS, op
from tengen.interop.onnx.values import Value, as_tensor, known
from tengen.tensor import Tensor

MS = "com.microsoft."

def filled(n: NodeOf, **defaults: Any) -> NodeOf:
    """The node with defaults for attributes: the package onnx knows none of this domain."""
    return dataclasses.replace(n, attributes={**defaults, **n.attributes})


def standard(name: str, **defaults: Any) -> None:
    """Enters the standard's newest op of this name in this domain too."""
    f = OPS[name]
    OPS[MS + name] = lambda n, *inputs: f(dataclasses.replace(filled(n, **defaults), since=23), *inputs)


for _name in ("QuantizeLinear", "DequantizeLinear", "Pad", "Range"):
    standard(_name)
standard("GatherND", batch_dims=0)
standard("Trilu", upper=1)
standard("Unique", sorted=1)


# -- activations -------------------------------------------------------------------------------------------------------------
def activated(t: Tensor, name: str | None, numbers: Sequence[float]) -> Tensor:
    """By the activation that a fused node names, with its numbers."""
    at = lambda i, usual: float(numbers[i]) if i < len(numbers) else usual
    match name or "":
        case "": return t  # fmt: skip
        case "Relu": return F.relu(t)  # fmt: skip
        case "Tanh": return F.tanh(t)  # fmt: skip
        case "Sigmoid": return F.sigmoid(t)  # fmt: skip
        case "LeakyRelu": return F.leaky_relu(t, at(0, 0.01))  # fmt: skip
        case "Clip": return F.clip(t, at(0, -np.inf), at(1, np.inf))  # fmt: skip
        case "HardSigmoid": return F.clip(t * np.float32(at(0, 0.2)) + np.float32(at(1, 0.5)), 0, 1)  # fmt: skip
    raise ValueError(f"the activation {name!r} of a fused node is unknown")


@op(f"{MS}Gelu")
def gelu(n: NodeOf, x: Value) -> Value:
    """By erf."""
    return F.gelu(as_tensor(x))


@op(f"{MS}BiasGelu")
def bias_gelu(n: NodeOf, x: Value, bias: Value) -> Value:
    """Of a sum, by erf."""
    return F.gelu(as_tensor(x) + as_tensor(bias))


@op(f"{MS}FastGelu")
def fast_gelu(n: NodeOf, x: Value, bias: Value = None) -> Value:
    """By tanh, of a sum where there is a bias."""
    return F.gelu(as_tensor(x) if bias is None else as_tensor(x) + as_tensor(bias), approximate="tanh")


@op(f"{MS}QuickGelu")
def quick_gelu(n: NodeOf, x: Value) -> Value:
    """x sigmoid(alpha x)."""
    t = as_tensor(x)
    return t * F.sigmoid(t * np.array(n.get("alpha", 1.702), t.dtype.numpy))


# -- products ----------------------------------------------------------------------------------------------------------------
@op(f"{MS}FusedConv")
def fused_conv(n: NodeOf, x: Value, w: Value, b: Value = None, z: Value = None) -> Value:
    """A convolution, a summand, an activation."""
    made = as_tensor(conv(n, x, w, b))
    return activated(made if z is None else made + as_tensor(z), n.get("activation"), n.get("activation_params") or ())


def channels_last(f: Callable, *others: int) -> Callable:
    """The same op on pictures (N, *space, C): its first input, the `others` and its result."""

    def compute(n: NodeOf, *inputs: Value) -> Value:
        turned = [F.moveaxis(as_tensor(v), -1, 1) if v is not None and i in (0, *others) else v for i, v in enumerate(inputs)]
        return F.moveaxis(as_tensor(f(n, *turned)), 1, -1)

    return compute


for _name in ("NhwcConv", "NhwcFusedConv"):
    OPS[MS + _name] = channels_last(fused_conv, 3)
OPS[f"{MS}NhwcMaxPool"] = channels_last(lambda n, x: max_pool(filled(n, storage_order=0), x))


@op(f"{MS}FusedGemm")
def fused_gemm(n: NodeOf, a: Value, b: Value, c: Value = None) -> Value:
    """alpha a b + beta c and an activation."""
    made = as_tensor(gemm(filled(n, alpha=1.0, beta=1.0, transA=0, transB=0), a, b, c))
    return activated(made, n.get("activation"), [n[k] for k in ("activation_alpha", "activation_beta") if k in n.attributes])


@op(f"{MS}FusedMatMul", f"{MS}TransposeMatMul")
def fused_matmul(n: NodeOf, a: Value, b: Value) -> Value:
    """alpha a b with axes exchanged: the last two, or the first and those up to the last but one."""

    def turned(v: Value, side: str) -> Tensor:
        t = as_tensor(v)
        last = len(t.shape) - 1
        if n.get(f"transBatch{side}", 0):
            t = F.transpose(t, [*range(1, last), 0, last])
        return F.swapaxes(t, -1, -2) if n.get(f"trans{side}", 0) and last else t

    made = F.matmul(turned(a, "A"), turned(b, "B"))
    alpha = n.get("alpha", 1.0)
    return made if alpha == 1 else made * np.array(alpha, made.dtype.numpy)


def unpacked(codes: np.ndarray, bits: int) -> np.ndarray:
    """Numbers of 2, 4 or 8 bits from bytes along the last axis; the lowest bits are the first."""
    if bits not in (2, 4, 8):
        raise ValueError(f"weights of {bits} bits; 2, 4 and 8 are known here")
    parts = [codes >> shift & (1 << bits) - 1 for shift in range(0, 8, bits)]
    return np.stack(parts, -1).reshape(*codes.shape[:-1], -1)


def bytes_of(v: Value) -> np.ndarray:
    """The bytes of an array that has to be known."""
    found = known(v if isinstance(v, (np.ndarray, Tensor)) else as_tensor(v))
    return found.view(np.uint8) if found.dtype == np.int8 else found


@op(f"{MS}MatMulNBits")
def matmul_nbits(
    n: NodeOf, a: Value, b: Value, scales: Value, zeros: Value = None, groups: Value = None, bias: Value = None
) -> Value:
    """a w.T, w being (N, K) of few bits with a scale and a zero point for each block along K."""
    t, rows, inner, bits, block = as_tensor(a), n["N"], n["K"], n.get("bits", 4), n["block_size"]
    blocks = -(-inner // block)
    codes = unpacked(bytes_of(b).reshape(rows, blocks, -1), bits).reshape(rows, blocks, block).astype(np.float32)
    s = as_tensor(scales).reshape(rows, blocks, 1)
    if zeros is None:
        numbers: Any = as_tensor(codes - np.float32(1 << (bits - 1)))
    elif isinstance(zeros, np.ndarray) and zeros.dtype == np.uint8:
        numbers = as_tensor(codes - unpacked(zeros.reshape(rows, -1), bits)[:, :blocks, None].astype(np.float32))
    else:  # numbers of the scales' dtype, which are not packed
        numbers = as_tensor(codes) - as_tensor(zeros).reshape(rows, blocks, 1).astype("float32")
    if groups is not None and (known(groups).reshape(-1) != np.arange(inner) // block).any():
        raise ValueError("MatMulNBits with groups in another order (g_idx); help: order the weights' columns by group")
    weight = (numbers * s.astype("float32")).astype(t.dtype).reshape(rows, blocks * block)[:, :inner]
    made = F.matmul(t, weight, transpose_b=True)
    return made if bias is None else made + as_tensor(bias)


@op(f"{MS}GatherBlockQuantized")
def gather_block_quantized(n: NodeOf, x: Value, index: Value, scales: Value, zeros: Value = None) -> Value:
    """Rows of a table of few bits, which has a scale and a zero point for each block along an axis."""
    bits, block, axis = n.get("bits", 4), n.get("block_size", 128), n.get("gather_axis", 0)
    packed = isinstance(x, np.ndarray) and x.dtype == np.uint8
    table = as_tensor(unpacked(known(x), bits)) if packed else x
    rank = len(table.shape)
    along = n.get("quantize_axis", 1) % rank
    if axis % rank == along:
        raise ValueError("GatherBlockQuantized along the axis of the blocks")
    at = filled(dataclasses.replace(n, attributes={}), axis=axis % rank)
    rows = as_tensor(index)
    middle: Any = np.array(1 << (bits - 1), np.uint8) if packed else None
    if zeros is not None:
        zeros = as_tensor(unpacked(known(zeros), bits)) if packed else zeros
        middle = gather(at, zeros, rows)
    elif middle is not None:
        middle = F.full(as_tensor(scales).shape, int(middle), "uint8")
        middle = gather(at, middle, rows)
    place = along if along < axis % rank else along + len(rows.shape) - 1
    made = filled(dataclasses.replace(n, attributes={}), axis=place, block_size=block)
    return dequantize(made, gather(at, table, rows), gather(at, scales, rows), middle)


# -- normalisations ------------------------------------------------------------------------------------------------------------
@op("SimplifiedLayerNormalization")
def simplified_layer_norm(n: NodeOf, x: Value, scale: Value) -> Value:
    """By the root of the mean square."""
    return rms_norm(filled(n, axis=-1, epsilon=1e-5, stash_type=1), x, scale)


def normed(t: Tensor, epsilon: float, gamma: Value, beta: Value) -> tuple[Tensor, Tensor, Tensor]:
    """(t - mean) / deviation gamma + beta over the last axis; the mean, and the inverse of the deviation."""
    w = as_tensor(gamma)
    mean = F.mean(t, -1, keepdims=True)
    inverse = F.rsqrt(F.mean(F.square(t - mean), -1, keepdims=True) + np.array(epsilon, t.dtype.numpy))
    return F.layer_norm(t, w.shape, True, w, F.zeros_like(w) if beta is None else as_tensor(beta), epsilon), mean, inverse


@op(f"{MS}SkipLayerNormalization")
def skip_layer_norm(n: NodeOf, x: Value, skip: Value, gamma: Value, beta: Value = None, bias: Value = None) -> tuple[Value, ...]:
    """Of a sum, which is an output too."""
    total = as_tensor(x) + as_tensor(skip)
    total = total if bias is None else total + as_tensor(bias)
    return (*normed(total, n.get("epsilon", 1e-12), gamma, beta), total)


@op(f"{MS}SkipSimplifiedLayerNormalization")
def skip_rms_norm(n: NodeOf, x: Value, skip: Value, gamma: Value, bias: Value = None) -> tuple[Value, ...]:
    """Of a sum, by the root of its mean square."""
    total = as_tensor(x) + as_tensor(skip)
    total = total if bias is None else total + as_tensor(bias)
    return rms_norm(filled(n, axis=-1, epsilon=1e-12), total, gamma), None, None, total


@op(f"{MS}EmbedLayerNormalization")
def embed_layer_norm(
    n: NodeOf, ids: Value, segments: Value, words: Value, places: Value, kinds: Value, gamma: Value, beta: Value,
    mask: Value = None, position: Value = None,
) -> tuple[Value, ...]:  # fmt: skip
    """Rows for words, places and segments, summed and normalised; how many words the mask keeps; the sum."""
    number = as_tensor(ids)
    count = number.shape[1]
    total = F.take(as_tensor(words), number, 0)
    if position is None:
        total = total + as_tensor(places)[:count]
    else:
        total = total + F.take(as_tensor(places), as_tensor(position), 0)
    if segments is not None and kinds is not None:
        total = total + F.take(as_tensor(kinds), as_tensor(segments), 0)
    kept = F.zeros((number.shape[0],), "int32") if mask is None else F.sum(as_tensor(mask), 1).astype("int32")
    return normed(total, n.get("epsilon", 1e-12), gamma, beta)[0], kept, total


# -- others ------------------------------------------------------------------------------------------------------------------
@op(f"{MS}ExpandDims")
def expand_dims(n: NodeOf, x: Value, axis: Value) -> Value:
    """One more axis."""
    at = int(known(axis).reshape(-1)[0])
    return np.expand_dims(x, at) if isinstance(x, np.ndarray) and all_known(x) else F.expand_dims(as_tensor(x), at)


@op(f"{MS}CDist")
def distances(n: NodeOf, a: Value, b: Value) -> Value:
    """Between all rows of two matrices, Euclidean or its square."""
    x, y = as_tensor(a), as_tensor(b)
    square = F.sum(F.square(F.expand_dims(x, 1) - F.expand_dims(y, 0)), -1)
    match n.get("metric", "sqeuclidean"):
        case "sqeuclidean": return square  # fmt: skip
        case "euclidean": return F.sqrt(square)  # fmt: skip
    raise ValueError(f"metric={n['metric']!r}; sqeuclidean and euclidean are known here")
