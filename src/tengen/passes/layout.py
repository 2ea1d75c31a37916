"""Layout: in which order of its axes each value of a graph lies in memory.

In: a graph, and how its inputs lie. Out: an `Array` without a place for every value. An op has a rule for it (convolutions give
channels-last images), pointwise ops keep the layout of what they read, a fused node follows its contraction or its first
operand of full shape, and a view is other strides on the same memory. So a network converts its input once. What is written
into a state is row-major, and so are the results of pointwise nodes that only the caller reads, where the caller wants that.
Layout changes no bit.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence

from tengen.ir.graph import Graph, Node, Value
from tengen.kernels.axes import memory_order
from tengen.kernels.lowering import Array, contiguous_strides
from tengen.ops.define import lookup


def assign_layouts(graph: Graph, placed: Mapping[Value, Array], row_major: Collection[Value]) -> dict[Value, Array]:
    """How every value lies.

    Args:
        placed: how inputs, states and constants lie. row_major: values that a node has to compute in logical order.
    """
    lies: dict[Value, Array] = dict(placed)
    for n in graph.nodes:
        if n.op != "fused" and lookup(n.op).kind == "view":
            lies[n.outputs[0]] = view(n, lies[n.inputs[0]])
            continue
        ins = [None if v is None else lies[v] for v in n.inputs]
        for v in n.outputs:
            lies[v] = dense(None, v, None if v in row_major else _order(n, ins, v))
    return lies


def dense(id: Hashable, v: Value, order: Sequence[int] | None = None) -> Array:
    """A dense array of a value's type; `order` lists the axes from the outermost in memory to the innermost."""
    return Array(id, v.type.dtype, tuple(v.type.shape), contiguous_strides(v.type.shape, order))


def view(n: Node, a: Array) -> Array:
    """What a view shows of an array; of a row-major copy of it, where no strides can say it."""
    op, out = lookup(n.op), n.outputs[0].type
    shown = op.make_view(a, out, n.attrs)
    if shown is None:
        shown = op.make_view(dense(None, n.inputs[0]), out, n.attrs)
    return shown


def _order(n: Node, ins: Sequence[Array | None], v: Value) -> Sequence[int] | None:
    if n.op != "fused":
        return lookup(n.op).axis_order(ins, v.type, n.attrs)
    body: Graph = n.attrs["body"]
    for m in body.nodes:
        op = lookup(m.op)
        pointwise = op.kind == "elementwise" or op.rules.lower_values is not None
        if op.rules.layout is not None and not pointwise and m.outputs[0].type.shape == v.type.shape:
            env = dict(zip(body.inputs, ins))
            return op.axis_order([env.get(x) for x in m.inputs], m.outputs[0].type, m.attrs)
    for a in ins:
        if a is not None and a.shape == tuple(v.type.shape):
            return memory_order(a)
    return None
