"""Layers of floats with a bias as one operator: Conv with its third input, and Gemm.

    conv(x, w) + reshape(b, (1, C, 1, 1))     becomes   Conv(x, w, b)
    matmul(x, w^T) + b, of matrices           becomes   Gemm(x, w, b, transB=1)

Runtimes that fold no constants, as MACE and Tengine, then meet neither a Reshape of a bias nor a Transpose of a weight.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tengen.base.record import record
from tengen.interop.onnx.writer import Form, Writer
from tengen.interop.onnx.writing import conv
from tengen.ir.graph import Graph, Node, Value


def layers(w: Writer) -> dict[Node, Form]:
    """The additions of a graph that are written as the layer whose bias they add."""
    count = readers(w.graph)
    constants = {c.value for c in w.graph.constants.values()}
    found: dict[Node, Form] = {}
    for n in w.graph.nodes:
        if n.op != "add" or not n.outputs[0].type.dtype.is_float:
            continue
        for product, bias in (n.inputs, n.inputs[::-1]):
            made = product.node if product is not None else None
            if made is None or bias is None or count[product] != 1 or product.type != n.outputs[0].type:
                continue
            if made.op == "conv" and (source := channels(made, bias)) in constants:
                alone = count[source] == 1 and (bias is source or count[bias] == 1)
                found[n] = Convolution(w, made, source, alone)
            elif made.op == "matmul" and product.type.ndim == 2 and all(v.type.ndim == 2 for v in made.inputs):
                if bias.type.shape == product.type.shape[1:]:
                    found[n] = Linear(w, made, bias)
    return found


def readers(graph: Graph) -> Counter[Value]:
    """How often each value is read, by nodes and as a result."""
    return Counter(v for vs in ([n.inputs for n in graph.nodes] + [graph.outputs]) for v in vs if v is not None)


def channels(n: Node, bias: Value) -> Value | None:
    """What a number for each channel of a convolution is made of by reshapes alone, if that is what it is."""
    shape = n.outputs[0].type.shape
    if bias.type.shape != (1, shape[1], *[1] * (len(shape) - 2)):
        return None
    while bias.node is not None and bias.node.op == "reshape":
        bias = bias.node.inputs[0]
    return bias


@record(frozen=True)
class Convolution:
    """A convolution with its bias, a constant. alone: whether nothing else reads the constant."""

    w: Writer
    node: Node
    bias: Value
    alone: bool

    def reads(self) -> Iterator[Value | None]:
        yield from (*self.node.inputs, self.bias)

    def write(self) -> str:
        w, name = self.w, self.w.name(self.bias)
        a = w.arrays[name]
        name = w.reshape_array(name, (a.size,)) if self.alone else w.array(a.reshape(-1), name)
        return conv(w, self.node, *(w.name(v) for v in self.node.inputs if v is not None), name)


@record(frozen=True)
class Linear:
    """A product of matrices with its bias, a number for each column."""

    w: Writer
    node: Node
    bias: Value

    def reads(self) -> Iterator[Value | None]:
        yield from (*self.node.inputs, self.bias)

    def write(self) -> str:
        turned = {f"trans{k.upper()}": int(self.node.attrs[f"transpose_{k}"]) or None for k in "ab"}
        return self.w.emit("Gemm", *(self.w.name(v) for v in (*self.node.inputs, self.bias) if v is not None), **turned)
