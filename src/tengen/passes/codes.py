"""Integers that are turned into what they stand for, and back into the same integers, stay integers.

A quantised layer hands on numbers, so that any function may stand behind it. Where the next one takes the same integers from
them, through nothing but views and maxima over windows, which do the same to both, nothing is turned. What clips numbers before they
become integers that are clipped in the same places is left out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tengen.ir.graph import Graph, Node, Value
from tengen.ir.rewrite import rebuild
from tengen.ops.define import lookup

LEAST_SCALE, MOST_SCALE = 2.0**-100, 2.0**100  # between them, integers of 8 bits come back from what they stand for
MAKES_CODES = ("quantize_linear", "requantize_linear")


def keep_codes(graph: Graph) -> Graph:
    """`quantize_linear` of `dequantize_linear`, with the same scale and zero point, is what that was made of, if the scale is
    known.

    before: ``%x = dequantize_linear(%q, %s); %a = relu(%x); %p = max_pool(%x); %r = quantize_linear(%p, %s)``
    after:  ``%x = dequantize_linear(%q, %s); %a = relu(%x); %r = max_pool(%q)``
    """
    if not any(n.op == "quantize_linear" for n in graph.nodes):
        return graph
    scales = {c.name for c in graph.constants.values() if c.data is not None and _is_plain(c.data)}

    def rule(g: Graph, n: Node, ins: list[Value | None]) -> Sequence[Value] | None:
        if (
            n.op != "quantize_linear"
            or not ins[1]
            or not any(g.constants.get(c) and g.constants[c].value is ins[1] for c in scales)
        ):
            return None
        between, v = [], ins[0]
        while v is not None and v.node is not None and does_the_same(v.node):
            between.append(v.node)
            v = v.node.inputs[0]
        made = v.node if v is not None else None
        if made is None or made.op != "dequantize_linear" or made.inputs[1:] != ins[1:]:
            return None
        if between and any(v is not None and v.type.ndim for v in ins[1:]):  # a scale for each channel knows which axis that is
            return None
        q = made.inputs[0]
        if q is None or q.type.dtype is not n.outputs[0].type.dtype or not _holds(q, n.attrs["low"], n.attrs["high"]):
            return None
        for step in reversed(between):
            types = lookup(step.op).infer_types([q.type], step.attrs)
            q = g.add_node(step.op, [q], step.attrs, types, step.where).outputs[0]
        return [q]

    return rebuild(graph, rule)


def drop_clips(graph: Graph) -> Graph:
    """A `relu` or `relu6` that only `quantize_linear` reads is dropped where what it cuts off has the smallest or the largest
    integer anyway, if scale and zero point are known: rounded quotients are in the order of what was divided.

    before: ``%a = relu(%x); %q = quantize_linear(%a, %s, low=0, high=255)``
    after:  ``%q = quantize_linear(%x, %s, low=0, high=255)``
    """
    if not any(n.op == "quantize_linear" for n in graph.nodes):
        return graph
    data = {c.value: c.data for c in graph.constants.values() if c.data is not None}
    kept, users = set(graph.results()), graph.users()

    def rule(g: Graph, n: Node, ins: list[Value | None]) -> Sequence[Value] | None:
        if n.op != "quantize_linear" or not ins[0] or n.inputs[1] not in data or not _is_plain(data[n.inputs[1]]):
            return None
        if n.inputs[2] is not None and n.inputs[2] not in data:
            return None
        zero = np.int64(0) if n.inputs[2] is None else data[n.inputs[2]].astype(np.int64)
        old, new = n.inputs[0], ins[0]
        while old is not None and old.node is not None and new is not None and new.node is not None:
            inner = old.node
            if inner.op not in ("relu", "relu6") or len(users[old]) > 1 or old in kept or (n.attrs["low"] < zero).any():
                break
            if inner.op == "relu6" and (np.rint(np.float32(6) / data[n.inputs[1]]) < (n.attrs["high"] - zero)).any():
                break
            old, new = inner.inputs[0], new.node.inputs[0]
        if new is ins[0]:
            return None
        return g.add_node(n.op, [new, *ins[1:]], n.attrs, [v.type for v in n.outputs], n.where).outputs

    return rebuild(graph, rule)


def _is_plain(scale: np.ndarray) -> bool:
    return scale.dtype == np.float32 and bool(((scale >= LEAST_SCALE) & (scale <= MOST_SCALE)).all())


def does_the_same(n: Node) -> bool:
    """Whether a node does to integers what it does to the numbers that they stand for, by one scale: it moves elements, or
    takes the largest of some."""
    return n.op == "max_pool" or (n.op != "fused" and lookup(n.op).kind == "view" and len(n.inputs) == len(n.outputs) == 1)


def _holds(q: Value, low: int, high: int) -> bool:
    """Whether integers are known to be in low..high."""
    if q.node is not None and q.node.op in MAKES_CODES:
        return low <= q.node.attrs["low"] and q.node.attrs["high"] <= high
    info = np.iinfo(q.type.dtype.numpy)
    return low <= info.min and info.max <= high
