"""The small passes: dead code and common subexpressions.

A pass is a verb; it takes a graph, works on a copy, and returns it.
"""

from __future__ import annotations

from tengen.ir.graph import Graph, Value
from tengen.ops.define import lookup


def remove_dead_code(graph: Graph) -> Graph:
    """Nodes and constants that no output and no written state needs.

    before: ``%a = exp(%x); %b = relu(%x); return %b``
    after:  ``%b = relu(%x); return %b``
    """
    g = graph.copy()
    live: set[Value] = set(g.results())
    kept = []
    for n in reversed(g.nodes):
        if any(v in live for v in n.outputs):
            kept.append(n)
            live.update(v for v in n.inputs if v is not None)
    g.nodes = kept[::-1]
    g.constants = {v: d for v, d in g.constants.items() if v in live}
    return g


def merge_common(graph: Graph) -> Graph:
    """Equal calls on equal inputs are made once; equal constants are one.

    before: ``%a = exp(%x); %b = exp(%x); return add(%a, %b)``
    after:  ``%a = exp(%x); return add(%a, %a)``
    """
    g = graph.copy()
    table: dict[Value, Value] = {}
    by_data: dict[tuple, Value] = {}
    for v, data in list(g.constants.items()):
        if data.size <= 64:
            key = (v.type, data.tobytes())
            if key in by_data:
                table[v] = by_data[key]
                del g.constants[v]
            by_data.setdefault(key, v)
    seen: dict[tuple, list[Value]] = {}
    kept = []
    for n in g.nodes:
        n.inputs = [table.get(v, v) for v in n.inputs]  # type: ignore[arg-type]
        key = (n.op, tuple(id(v) for v in n.inputs), tuple(n.attrs.items()))
        if key in seen:
            table.update(zip(n.outputs, seen[key]))
        else:
            seen[key] = n.outputs
            kept.append(n)
    g.nodes = kept
    g.replace_values(table)
    return g


def remove_identities(graph: Graph) -> Graph:
    """Views that change nothing: reshape and broadcast_to to the same shape, permute by the identity, astype to the same dtype.

    before: ``%a = reshape(%x, shape=(2, 3))`` of an f32[2,3]
    after:  ``%x``
    """
    g = graph.copy()
    table: dict[Value, Value] = {}
    kept = []
    for n in g.nodes:
        n.inputs = [table.get(v, v) for v in n.inputs]  # type: ignore[arg-type]
        same = len(n.outputs) == 1 and n.inputs and n.inputs[0] is not None and n.outputs[0].type is n.inputs[0].type
        if same and n.op in ("reshape", "broadcast_to", "astype"):
            table[n.outputs[0]] = n.inputs[0]
        elif same and n.op == "permute" and n.attrs["axes"] == tuple(range(len(n.attrs["axes"]))):
            table[n.outputs[0]] = n.inputs[0]
        elif n.op == "reshape" and n.inputs[0].node is not None and n.inputs[0].node.op == "reshape":  # reshape of a reshape
            n.inputs = [n.inputs[0].node.inputs[0]]
            kept.append(n)
        else:
            kept.append(n)
    g.nodes = kept
    g.replace_values(table)
    return g


def is_fusible(op_name: str) -> bool:
    """Whether the op is a value at coordinates."""
    return op_name != "fused" and lookup(op_name).fuses
