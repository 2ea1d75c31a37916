"""Exact products of integers as products of floats between DequantizeLinear and QuantizeLinear (QDQ), which is what TensorRT, OpenVINO and
onnxruntime look for.

    requantize_linear(conv_int(x, w) + bias, m)   becomes   QuantizeLinear(Conv(DequantizeLinear(x, 1), DequantizeLinear(w, m), bias), 1)

Integers between two products are in units of the scale 1, and the weights take the whole multiplier: the runtime's own multiplier, the product
of the two scales over the result's, is then this number exactly, and its integers are ours.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tengen.base.dtype import float32
from tengen.base.errors import ArgumentError
from tengen.base.record import record
from tengen.compiler.driver import evaluate
from tengen.interop.onnx.integers import CODES, centred, clipped, held, known, parts, shared_out, softmax_weights, turned
from tengen.interop.onnx.writer import WRITERS, Form, Writer
from tengen.ir.graph import Graph, Node, Value, copy_node
from tengen.ir.rewrite import live_nodes
from tengen.ir.types import Dim

PRODUCTS, ENDS = ("conv_int", "matmul_int"), ("requantize_linear", "dequantize_linear")


def forms(w: Writer, coded: bool) -> dict[Node, Form]:
    """The nodes of a graph that are written as operators of floats between pairs. coded: whether biases are pairs too, of int32."""
    pools = (n for n in w.graph.nodes if n.op == "max_pool" and n.inputs[0].type.dtype.name in CODES)
    attentions = (n for n in w.graph.nodes if n.op == "attention_int")
    return {**products(w, coded), **{n: Pool(w, n) for n in pools}, **{n: Attention(w, n) for n in attentions}}


@record(frozen=True)
class Pool:
    """The largest codes of windows."""

    w: Writer
    node: Node

    def reads(self) -> list[Value | None]:
        return self.node.inputs

    def write(self) -> str:
        made = WRITERS[self.node.op](self.w, self.node, operand(self.w, self.node.inputs[0]))
        return self.w.emit("QuantizeLinear", made, unit(self.w), self.w.array(np.zeros((), self.node.outputs[0].type.dtype.numpy)))


@record(frozen=True)
class Attention:
    """`attention_int`: two products of codes, and between them the weights of the softmax as codes of uint8."""

    w: Writer
    node: Node

    def reads(self) -> list[Value | None]:
        return self.node.inputs

    def write(self) -> str:
        w, n = self.w, self.node
        q, k, v, multiplier, value_scale = n.inputs
        scores = w.emit("MatMul", operand(w, q), operand(w, k, perm=turned(k)))
        weights = softmax_weights(w, n, scores, w.name(multiplier))
        codes = w.emit("QuantizeLinear", weights, unit(w), w.array(np.zeros((), np.uint8)))
        numbers = w.emit("DequantizeLinear", codes, unit(w), w.array(np.zeros((), np.uint8)))
        return shared_out(w, n, w.emit("MatMul", numbers, operand(w, v)), weights, w.name(value_scale))


@record(frozen=True)
class Product:
    """A product of codes, and the node that makes 8-bit integers or floats of its sums.

    Attributes:
        node: `conv_int` or `matmul_int`. end: `requantize_linear` or `dequantize_linear`. scale: the multiplier, in float32. bias: in
            int32, None: none. Each is one number, or one for each channel. coded: whether the bias is written in int32.
    """

    w: Writer
    node: Node
    end: Node
    scale: np.ndarray
    bias: np.ndarray | None
    coded: bool

    def reads(self) -> list[Value | None]:
        return [v for operand in self.node.inputs for v in parts(self.w, operand)] + self.end.inputs[2:]

    def write(self) -> str:
        made = self.convolution() if self.node.op == "conv_int" else self.product()
        made = made if self.end.op == "dequantize_linear" else self.requantised(made)
        shape = self.end.outputs[0].type.shape
        rows = self.node.op == "matmul_int" and self.bias is not None and len(shape) > 2  # Gemm takes matrices
        return self.w.emit("Reshape", made, self.w.shape(shape)) if rows else made

    def convolution(self) -> str:
        """Conv, with its padding of 0."""
        w, a, (x, filters) = self.w, self.node.attrs, self.node.inputs
        codes, zero, shape = *centred(w, filters), filters.type.shape
        if len(shape) != x.type.ndim:
            shape = (shape[0] * shape[1], *shape[2:])
            k = w.arrays.get(codes)
            codes = w.emit("Reshape", codes, w.shape(shape)) if k is None else w.array(k.reshape(shape), f"{codes}_filter")
        inputs = [operand(w, x), self.weights(codes, zero, 0), *self.added(shape[0])]
        pads = [*a["padding"]] * 2
        return w.emit("Conv", *inputs, strides=list(a["stride"]), pads=pads, dilations=list(a["dilation"]), group=a["groups"])

    def product(self) -> str:
        """MatMul, or Gemm where there is a bias."""
        w, (x, y), turn_x, turn_y = self.w, self.node.inputs, self.node.attrs["transpose_a"], self.node.attrs["transpose_b"]
        codes, zero = centred(w, y)
        if self.bias is not None:
            terms, channels = y.type.shape[::-1] if turn_y else y.type.shape
            matrix = self.weights(codes, zero, 0 if turn_y else 1)
            rows = operand(w, x, shape=None if x.type.ndim == 2 else [-1, terms])
            return w.emit("Gemm", rows, matrix, *self.added(channels), transA=int(turn_x) or None, transB=int(turn_y) or None)
        if turn_y and codes in w.arrays and y.type.ndim == 2:
            codes = w.array(np.ascontiguousarray(w.arrays[codes].T), f"{codes}_turned")
        elif turn_y:
            codes = w.emit("Transpose", codes, perm=turned(y))
        return w.emit("MatMul", operand(w, x, perm=turned(x) if turn_x else None), self.weights(codes, zero, y.type.ndim - 1))

    def weights(self, codes: str, zero: str, axis: int) -> str:
        """The numbers of the second operand, which take the multiplier along an axis."""
        w, wide = self.w, self.scale.ndim > 0
        if wide:
            a, shape = w.arrays.get(zero), self.scale.shape
            zero = w.emit("Expand", zero, w.shape(shape)) if a is None else w.array(np.full(shape, a), zero)
        return w.emit("DequantizeLinear", codes, w.array(self.scale), zero, axis=axis if wide else None)

    def added(self, channels: int) -> list[str]:
        """The names of the bias: one, or none."""
        if self.bias is None:
            return []
        if not self.coded:
            return [self.w.array(np.broadcast_to(self.bias * self.scale.astype(np.float64), (channels,)).astype(np.float32))]
        codes = self.w.array(np.ascontiguousarray(np.broadcast_to(self.bias, (channels,))))
        return [self.w.emit("DequantizeLinear", codes, self.w.array(self.scale), axis=0 if self.scale.ndim else None)]

    def requantised(self, sums: str) -> str:
        """Sums in units of the result's scale as its integers."""
        w, codes, zero = self.w, self.end.outputs[0].type.dtype, self.end.inputs[2]
        z = w.array(np.zeros((), codes.numpy))
        if zero is not None:
            a = known(w, zero)
            z = w.array(a.astype(codes.numpy).reshape(())) if a is not None else w.emit("Reshape", w.cast(w.name(zero), codes), w.shape([]))
        return clipped(w, self.end, w.emit("QuantizeLinear", sums, unit(w), z), codes)


def operand(w: Writer, v: Value, perm: list[int] | None = None, shape: Sequence[Dim] | None = None) -> str:
    """The numbers of an operand in units of 1. perm, shape: another order of its axes, another shape."""
    codes, zero = centred(w, v)
    codes = codes if perm is None else w.emit("Transpose", codes, perm=perm)
    codes = codes if shape is None else w.emit("Reshape", codes, w.shape(shape))
    return w.emit("DequantizeLinear", codes, unit(w), zero)


def unit(w: Writer) -> str:
    """The scale of integers between products."""
    return w.array(np.array(1, np.float32))


# -- what is written so ------------------------------------------------------------------------------------------------------
def products(w: Writer, coded: bool) -> dict[Node, Form]:
    """The products of a graph that are written as pairs, by their ends. Others stay exact products of integers: those whose sums are read
    by several nodes, and whose multipliers or zero points are not known."""
    fixed, users, results = known_before(w.graph), w.graph.users(), set(w.graph.results())
    alone = lambda v: v.node is not None and len(users[v]) == 1 and v not in results
    found: list[tuple[Node, Node, Value | None]] = []
    for end in w.graph.nodes:
        v, bias = end.inputs[0] if end.op in ENDS else None, None
        if v is not None and alone(v) and v.node.op == "add":
            total, bias = sorted(v.node.inputs, key=lambda i: i in fixed)
            v = total if bias in fixed and total.type == v.type else None
        if v is not None and alone(v) and v.node.op in PRODUCTS and end.inputs[1] in fixed and plain(w, v.node, end):
            found.append((v.node, end, bias))
    data = values(w.graph, [v for _, end, bias in found for v in (end.inputs[1], bias) if v is not None])
    made: dict[Node, Form] = {}
    for n, end, bias in found:
        sums = n.outputs[0]
        axis = 1 if n.op == "conv_int" else sums.type.ndim - 1
        scale, added = by_channel(data[end.inputs[1]], sums, axis), None if bias is None else by_channel(data[bias], sums, axis)
        if scale is not None and (bias is None or added is not None) and takes(n, scale, bias is not None):
            made[end] = Product(w, n, end, scale, added, coded)
    return made


def known_before(graph: Graph) -> set[Value]:
    """The values that depend on constants alone."""
    fixed = {c.value for c in graph.constants.values() if c.data is not None}
    for n in graph.nodes:
        if n.inputs and all(v in fixed for v in n.inputs if v is not None):
            fixed.update(n.outputs)
    return fixed


def values(graph: Graph, wanted: list[Value]) -> dict[Value, np.ndarray]:
    """What values are that depend on constants alone."""
    inner, inside = Graph("constants"), live_nodes(graph, wanted)
    read = {*wanted, *(v for n in inside for v in n.inputs)}
    table = {c.value: inner.add_constant(c.name, c.data, c.value.type) for c in graph.constants.values() if c.value in read}
    data = {c.value: c.data for c in graph.constants.values() if c.value in read and c.data is not None}
    for n in graph.nodes:
        if n in inside:
            table.update(zip(n.outputs, copy_node(inner, n, table).outputs))
    computed = [v for v in dict.fromkeys(wanted) if v not in data]
    for i, v in enumerate(computed):
        inner.add_output(f"y{i}", table[v])
    return {**data, **dict(zip(computed, evaluate(inner) if computed else ()))}


def plain(w: Writer, n: Node, end: Node) -> bool:
    """Whether a product is of codes with known zero points, and a node makes 8-bit integers with one zero point, or floats of its sums."""
    zero = end.inputs[2]
    try:
        for v in n.inputs:
            parts(w, v)
    except ArgumentError:  # which is told where the product is written
        return False
    if end.op == "dequantize_linear":
        return zero is None and end.outputs[0].type.dtype is float32 and end.inputs[1].type.dtype is float32
    codes = end.outputs[0].type.dtype
    one = zero is None or all(d == 1 for d in zero.type.shape) and zero.type.ndim <= end.inputs[0].type.ndim and held(w, zero, codes)
    return codes.name in CODES and one and end.inputs[1].type.dtype is float32


def takes(n: Node, scale: np.ndarray, biased: bool) -> bool:
    """Whether the second operand of a product can take the multipliers as its scales, and Gemm computes a product with a bias: of matrices."""
    if not (np.isfinite(scale) & (scale > 0)).all():
        return False
    x, y = (v.type.ndim for v in n.inputs)
    if n.op == "conv_int" or scale.ndim == 0 and not biased:
        return True
    return y == 2 and not (biased and x > 2 and n.attrs["transpose_a"])


def by_channel(a: np.ndarray, v: Value, axis: int) -> np.ndarray | None:
    """What meets a value as one number, or as a vector along an axis; None: what is neither."""
    wide = [i + v.type.ndim - a.ndim for i, d in enumerate(a.shape) if d != 1]
    if a.ndim > v.type.ndim or any(i != axis for i in wide):
        return None
    return a.reshape(-1) if wide else a.reshape(())
