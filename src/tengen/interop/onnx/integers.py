"""What quantised models are in ONNX: QuantizeLinear and DequantizeLinear around integers, and exact products of integers.

A product of codes whose zero points are taken off before (`centre_codes`) is MatMulInteger or ConvInteger, which take them off themselves.
"""

from __future__ import annotations

import numpy as np

from tengen.base.dtype import DType, dtype, float32, int16, int32, uint8
from tengen.base.errors import ArgumentError
from tengen.interop.onnx.writer import Writer, writes
from tengen.ir.graph import Node, Value
from tengen.kernels.contraction.grouped_weights import WORD
from tengen.kernels.numerics import LARGEST_WEIGHT

CODES = ("int8", "uint8")  # what ONNX's integer operators take


def known(w: Writer, v: Value) -> np.ndarray | None:
    """The integers of a constant, also of one that is cast to other integers, reshaped or repeated; None: of no constant."""
    n = v.node
    if n is not None and n.op in ("astype", "reshape", "broadcast_to", "fill") and n.inputs[0] is not None:
        a = known(w, n.inputs[0])
        return a.astype(v.type.dtype.numpy) if a is not None and v.type.dtype.is_int and a.dtype.kind in "iu" else None
    return next((c.data for c in w.graph.constants.values() if c.value is v), None)


def held(w: Writer, v: Value, codes: DType) -> bool:
    """Whether a dtype of few bits is known to hold a tensor's integers, so that a cast to it keeps them."""
    while v.type.dtype is not codes and v.node is not None and v.node.op == "astype" and v.type.dtype in (int16, int32):
        inner = v.node.inputs[0]
        if inner is None or inner.type.dtype not in (codes, int16, int32):
            break
        v = inner
    if v.type.dtype is codes:
        return True
    a, info = known(w, v), np.iinfo(codes.numpy)
    return a is not None and bool(((a >= info.min) & (a <= info.max)).all())


def one_axis(n: Node) -> tuple[bool, int | None]:
    """Whether Quantize- and DequantizeLinear take a node's scale and zero point, and their axis (None: one for all elements).

    They take one for all elements, or one for each slice along an axis.
    """
    x, axes = n.inputs[0].type, set()
    for v in n.inputs[1:]:
        if v is not None:
            wide = [a - v.type.ndim for a, d in enumerate(v.type.shape) if d != 1]
            if v.type.ndim > x.ndim or len(wide) > 1 or any(v.type.shape[a] != x.shape[a] for a in wide):
                return False, None
            axes.update(a + x.ndim for a in wide)
    return len(axes) < 2, next(iter(axes), None)


def flat(w: Writer, v: Value, name: str) -> tuple[str, bool]:
    """A scale or zero point without axes of one element, and whether it is one for all elements."""
    one = all(d == 1 for d in v.type.shape)
    if not v.type.shape:
        return name, one
    return w.emit("Reshape", name, w.array(np.array([] if one else [-1], np.int64))), one


def parameters(w: Writer, n: Node, scale: str, zero: str | None, codes: DType) -> tuple[str, str]:
    """The inputs (scale, zero point) of a Quantize- or DequantizeLinear of a node: of one shape."""
    s, one = flat(w, n.inputs[1], floats(w, n.inputs[1], scale))
    z, same = (w.array(np.zeros((), codes.numpy)), True) if zero is None else flat(w, n.inputs[2], w.cast(zero, codes))
    if one == same:
        return s, z
    wide = w.emit("Expand", s if one else z, w.emit("Shape", z if one else s))
    return (wide, z) if one else (s, wide)


def floats(w: Writer, v: Value, name: str) -> str:
    """A value in float32."""
    return name if v.type.dtype is float32 else w.cast(name, float32)


def clipped(w: Writer, n: Node, made: str, codes: DType) -> str:
    """What QuantizeLinear gives, within fewer integers than the dtype has."""
    low, high, info = n.attrs["low"], n.attrs["high"], np.iinfo(codes.numpy)
    if (low, high) == (info.min, info.max):
        return made
    return w.emit("Clip", made, *(w.array(np.array(v, codes.numpy)) for v in (low, high)))


def by_formula(w: Writer, n: Node, x: str, zero: str | None) -> str:
    """Numbers in units of the scale as integers of any dtype, with any zero points: what `quantize_linear` means, op by op."""
    k = lambda v: w.array(np.array(v, np.float32))
    low, high = n.attrs["low"], n.attrs["high"]
    if not (-(1 << 31) <= np.float32(low) and np.float32(high) < (1 << 31)) or zero is not None and max(-low, high) > 1 << 24:
        raise ArgumentError(f"integers from {low} to {high}, which float32 does not hold")
    r = w.emit("Round", x)
    r = w.emit("Where", w.emit("IsNaN", r), k(0), r)
    if zero is None:
        return w.cast(w.emit("Min", w.emit("Max", r, k(low)), k(high)), dtype(n.attrs["dtype"]))
    z = w.cast(zero, float32)
    r = w.emit("Min", w.emit("Max", r, w.emit("Sub", k(low), z)), w.emit("Sub", k(high), z))
    return w.cast(w.emit("Add", w.cast(r, int32), w.cast(zero, int32)), dtype(n.attrs["dtype"]))


@writes("quantize_linear")
def quantize_linear(w: Writer, n: Node, x: str, scale: str, zero: str | None = None) -> str:
    """Numbers as integers: QuantizeLinear, or what it does op by op where the dtype, the zero points or the axes are not its own."""
    codes, (takes, axis) = dtype(n.attrs["dtype"]), one_axis(n)
    x = floats(w, n.inputs[0], x)
    if codes.name in CODES and takes and (zero is None or held(w, n.inputs[2], codes)):
        return clipped(w, n, w.emit("QuantizeLinear", x, *parameters(w, n, scale, zero, codes), axis=axis), codes)
    return by_formula(w, n, w.emit("Div", x, floats(w, n.inputs[1], scale)), zero)


def _one_zero(w: Writer, n: Node, codes: DType) -> bool:
    """Whether the zero point of a node is one number that the codes hold, and adds no axis to the result."""
    x, scale, zero = (v.type for v in n.inputs)
    return zero.ndim <= max(x.ndim, scale.ndim) and all(d == 1 for d in zero.shape) and held(w, n.inputs[2], codes)


@writes("requantize_linear")
def requantize_linear(w: Writer, n: Node, x: str, multiplier: str, zero: str | None = None) -> str:
    """Sums as integers: the product by the multiplier in units of 1."""
    product = w.emit("Mul", w.cast(x, float32), floats(w, n.inputs[1], multiplier))
    codes = dtype(n.attrs["dtype"])
    if codes.name not in CODES or zero is not None and not _one_zero(w, n, codes):
        return by_formula(w, n, product, zero)
    z = w.array(np.zeros((), codes.numpy)) if zero is None else flat(w, n.inputs[2], w.cast(zero, codes))[0]
    return clipped(w, n, w.emit("QuantizeLinear", product, w.array(np.array(1, np.float32)), z), codes)


@writes("dequantize_linear")
def dequantize_linear(w: Writer, n: Node, x: str, scale: str, zero: str | None = None) -> str:
    """What integers stand for; of other integers than 8-bit ones and int32 by its formula."""
    codes, (takes, axis) = n.inputs[0].type.dtype, one_axis(n)
    if takes and (codes.name in CODES and (zero is None or held(w, n.inputs[2], codes)) or codes is int32 and zero is None):
        return w.emit("DequantizeLinear", x, *parameters(w, n, scale, zero, codes), axis=axis)
    q = w.cast(x, int32)
    q = q if zero is None else w.emit("Sub", q, w.cast(zero, int32))
    return w.emit("Mul", w.cast(q, float32), floats(w, n.inputs[1], scale))


def parts(w: Writer, v: Value) -> tuple[Value, Value | None]:
    """The codes of an operand of an integer product, and the zero point that was taken off them (None: 0)."""
    n = v.node
    if v.type.dtype.name in CODES:
        return v, None
    if n is not None and n.op == "sub":
        wide, zero = n.inputs
        codes = wide.node.inputs[0] if wide is not None and wide.node is not None and wide.node.op == "astype" else None
        one = zero.type.ndim <= wide.type.ndim and all(d == 1 for d in zero.type.shape)
        if codes is not None and codes.type.dtype.name in CODES and one and held(w, zero, codes.type.dtype):
            return codes, zero
    if n is not None and n.op == "astype" and n.inputs[0].type.dtype.name in CODES:
        return n.inputs[0], None
    raise ArgumentError(f"an integer product of {v.type!r} that is no 8-bit number less one known zero point of 8 bits")


def centred(w: Writer, v: Value) -> tuple[str, str]:
    """The codes and the zero point of an operand of an integer product. A zero point of 0 is an array of each product's own: onnxruntime makes
    weights and their zero points unsigned where `session.x64quantprecision` is 1, and stops at one that it has made so before."""
    codes, zero = parts(w, v)
    dtype = codes.type.dtype
    if zero is None:
        return w.name(codes), w.array(np.zeros((), dtype.numpy), "zero_point")
    a = known(w, zero)
    if a is not None:
        return w.name(codes), w.array(a.astype(dtype.numpy).reshape(()), "zero_point")
    z = w.cast(w.name(zero), dtype)
    return w.name(codes), w.emit("Reshape", z, w.array(np.zeros(0, np.int64))) if zero.type.shape else z


@writes("linear_grouped")
def linear_grouped(w: Writer, n: Node, x: str, codes: str, scale: str) -> str:
    """The weights in float32, computed from their integers and scales, and a product. Or, of activations that become integers, an exact
    product for each group: float32 holds its sums, which are below 2^24, exactly."""
    terms, groups, outputs = n.inputs[0].type.shape[-1], n.inputs[2].type.shape[1], n.outputs[0].type.shape[-1]
    ints = lambda *numbers: w.array(np.array(numbers, np.int64))
    if n.attrs["features"] is not None:  # in tiles of 64 outputs: (tiles, K / 4, 64, 4)
        flat = lambda name, depth, *perm: w.emit("Reshape", w.emit("Transpose", name, perm=list(perm)), ints(-1, depth))
        rows = lambda name, depth, *perm: w.emit("Slice", flat(name, depth, *perm), ints(0), ints(outputs), ints(0))
        codes, scale = rows(codes, n.inputs[1].type.shape[1] * WORD, 0, 2, 1, 3), rows(scale, groups, 0, 2, 1)
    if n.attrs["bits"] == 8:
        q = w.cast(codes, float32)
    else:  # several in a byte, the first in its lowest bits, each with half of their number added
        number, bits = lambda n: w.array(np.array(n, np.int32)), n.attrs["bits"]
        whole, parts = w.cast(codes, int32), []
        for at in range(0, 8, bits):
            part = w.emit("Div", whole, number(1 << at)) if at else whole
            parts.append(w.emit("Unsqueeze", w.emit("Mod", part, number(1 << bits)) if at + bits < 8 else part, ints(2)))
        q = w.cast(w.emit("Sub", w.emit("Concat", *parts, axis=2), number(1 << bits - 1)), float32)
    q = w.emit("Reshape", q, ints(outputs, groups, n.attrs["group"]))
    if n.attrs["activations"] == "int8":
        return _by_integers(w, n, x, w.emit("Transpose", q, perm=[1, 2, 0]), w.emit("Transpose", scale, perm=[1, 0]))
    weights = w.emit("Mul", q, w.emit("Unsqueeze", scale, ints(2)))
    flat = w.emit("Reshape", weights, ints(outputs, groups * n.attrs["group"]))
    return w.emit("MatMul", x, w.emit("Transpose", w.emit("Slice", flat, ints(0), ints(terms), ints(1)), perm=[1, 0]))


def _by_integers(w: Writer, n: Node, x: str, q: str, scale: str) -> str:
    """`linear_grouped` of activations in int8. q: (groups, group, outputs), scale: (groups, outputs), float32."""
    ints = lambda *numbers: w.array(np.array(numbers, np.int64))
    number = lambda value: w.array(np.array(value, np.float32))
    shape, group = n.inputs[0].type.shape, n.attrs["group"]
    groups = n.inputs[2].type.shape[1]
    if missing := groups * group - shape[-1]:
        x = w.emit("Pad", x, ints(*[0] * (2 * len(shape) - 1), missing))
    x = w.emit("Reshape", x, w.shape([*shape[:-1], groups, 1, group]))
    most = w.emit("Max", w.emit("ReduceMax", w.emit("Abs", x), ints(-1)), number(2.0**-100))
    step = w.emit("Div", most, number(127))
    sums = w.emit("MatMul", w.emit("Round", w.emit("Div", x, step)), q)  # (..., groups, 1, outputs)
    terms = w.emit("Mul", sums, w.emit("Mul", step, w.emit("Unsqueeze", scale, ints(1))))
    return w.emit("ReduceSum", terms, ints(-3, -2), keepdims=0)


@writes("matmul_int")
def matmul_int(w: Writer, n: Node, x: str, y: str) -> str:
    """MatMulInteger, with the last two axes exchanged where it says so."""
    (a, za), (b, zb) = (centred(w, v) for v in n.inputs)

    a = w.emit("Transpose", a, perm=turned(n.inputs[0])) if n.attrs["transpose_a"] else a
    b = w.emit("Transpose", b, perm=turned(n.inputs[1])) if n.attrs["transpose_b"] else b
    return w.emit("MatMulInteger", a, b, za, zb)


@writes("attention_int")
def attention_int(w: Writer, n: Node, q: str, k: str, v: str, multiplier: str, value_scale: str) -> str:
    """MatMulInteger, the exponentials of the softmax as uint8, MatMulInteger, and a division by their sums."""
    zero = lambda d: w.array(np.zeros((), d), "zero_point")
    scores = w.emit("MatMulInteger", q, w.emit("Transpose", k, perm=turned(n.inputs[1])), zero(np.int8), zero(np.int8))
    weights = softmax_weights(w, n, w.cast(scores, float32), multiplier)
    sums = w.emit("MatMulInteger", w.cast(weights, uint8), v, zero(np.uint8), zero(np.int8))
    return shared_out(w, n, w.cast(sums, float32), weights, value_scale)


def turned(v: Value) -> list[int]:
    """The axes of a value, the last two exchanged."""
    n = v.type.ndim
    return [*range(n - 2), n - 1, n - 2]


def softmax_weights(w: Writer, n: Node, scores: str, multiplier: str) -> str:
    """The weights of `attention_int` as whole numbers in float32, which holds the scores exactly."""
    number = lambda value: w.array(np.array(value, np.float32))
    below = w.emit("Sub", scores, w.emit("ReduceMax", scores, w.array(np.array([-1], np.int64)), keepdims=1))
    factor = w.cast(multiplier, float32) if n.inputs[3].type.dtype is not float32 else multiplier
    return w.emit("Round", w.emit("Mul", w.emit("Exp", w.emit("Mul", below, factor)), number(LARGEST_WEIGHT)))


def shared_out(w: Writer, n: Node, sums: str, weights: str, value_scale: str) -> str:
    """The result of `attention_int` from its sums and its weights, whose sums float32 holds exactly."""
    total = w.emit("ReduceSum", weights, w.array(np.array([-1], np.int64)), keepdims=1)
    factor = w.cast(value_scale, float32) if n.inputs[4].type.dtype is not float32 else value_scale
    return w.emit("Mul", sums, w.emit("Div", factor, total))


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
