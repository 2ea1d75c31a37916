"""The small passes: dead code and common subexpressions.

A pass is a verb; it takes a graph, works on a copy, and returns it.
"""

from __future__ import annotations

from tengen.ir.graph import Graph, Node, Value
from tengen.ir.rewrite import equal_values, live_nodes
from tengen.ops.define import lookup

PARTS = ("real_part", "imag_part")  # the ops that take complex numbers apart


def remove_dead_code(graph: Graph) -> Graph:
    """Nodes and constants that no result needs, and checks that are known to hold.

    before: ``%a = exp(%x); %b = relu(%x); return %b``
    after:  ``%b = relu(%x); return %b``
    """
    g = graph.copy()
    known = {c.value: c.data for c in g.constants.values() if c.data is not None}
    g.checks = [c for c in g.checks if c.bad not in known or known[c.bad]]
    live = live_nodes(g)
    g.nodes = [n for n in g.nodes if n in live]
    read = {v for n in g.nodes for v in n.inputs} | set(g.results())
    g.constants = {name: c for name, c in g.constants.items() if c.value in read}
    return g


def merge_common(graph: Graph) -> Graph:
    """Equal calls on equal inputs are made once; equal constants are one.

    before: ``%a = exp(%x); %b = exp(%x); return add(%a, %b)``
    after:  ``%a = exp(%x); return add(%a, %a)``
    """
    g = graph.copy()
    table = equal_values(g)
    g.constants = {name: c for name, c in g.constants.items() if c.value not in table}
    g.nodes = [n for n in g.nodes if not n.outputs or n.outputs[0] not in table]
    for n in g.nodes:
        n.inputs = [table.get(v, v) for v in n.inputs]
    g.redirect_results(table)
    return g


def remove_identities(graph: Graph) -> Graph:
    """Ops that change nothing, by the rule "identity" (a reshape to the same shape, a cast to the same dtype), and all but the
    last of reshapes in a row: a reshape knows its elements' logical order alone. Parts of a complex number that was made of known ones
    are those.

    before: ``%a = reshape(%x, shape=(2, 3))`` of an f32[2,3]
    after:  ``%x``
    """
    g = graph.copy()
    table: dict[Value | None, Value | None] = {}
    kept = []
    for n in g.nodes:
        n.inputs = [table.get(v, v) for v in n.inputs]
        same = len(n.outputs) == 1 and n.inputs and n.inputs[0] is not None and n.outputs[0].type is n.inputs[0].type
        identity = lookup(n.op).rules.identity if same and n.op != "fused" else None
        if identity is not None and identity(n.inputs[0].type, n.outputs[0].type, **n.attrs):
            table[n.outputs[0]] = n.inputs[0]
        elif (part := _known_part(n)) is not None:
            table[n.outputs[0]] = part
        elif n.op == "reshape" and (inner := n.inputs[0].node) is not None and inner.op == "reshape":
            n.inputs = [inner.inputs[0]]
            kept.append(n)
        else:
            kept.append(n)
    g.nodes = kept
    g.redirect_results(table)
    return g


def _known_part(n: Node) -> Value | None:
    """What was made a part of a complex number that has that part taken again, and a complex number that is made of its own parts."""
    if n.op in PARTS and (made := n.inputs[0].node) is not None and made.op == "complex":
        part = made.inputs[PARTS.index(n.op)]
        return part if part.type is n.outputs[0].type else None
    if n.op == "complex" and [v.node and v.node.op for v in n.inputs] == list(PARTS):
        first, second = (v.node.inputs[0] for v in n.inputs)
        return first if first is second else None
    return None


def remove_examples(graph: Graph) -> Graph:
    """Of some operands only the type is used (a rule "typed" says of which): what is computed element by element for them is
    not needed, if what it is computed of has the same type.

    before: ``%a = relu(%x); %b = conv_transposed(%y, %w, %a); return %b``
    after:  ``%a = relu(%x); %b = conv_transposed(%y, %w, %x); return %b``
    """
    g = graph.copy()
    for n in g.nodes:
        for i in lookup(n.op).rules.typed if n.op != "fused" else ():
            v = n.inputs[i] if i < len(n.inputs) else None
            while v is not None and v.node is not None and v.node.op != "fused" and lookup(v.node.op).kind == "elementwise":
                of = next((x for x in v.node.inputs if x is not None and x.type is v.type), None)
                if of is None:
                    break
                v = n.inputs[i] = of
    return g


def remove_broadcasts(graph: Graph) -> Graph:
    """Elementwise nodes repeat their operands along unit axes by themselves: what is made of a reduction and was repeated for
    them is read as it is, so that it is seen to be one value of a row.

    before: ``%r = sum(%x, axes=(1,), keepdims=true); %a = broadcast_to(%r, shape=(2, 3)); %b = add(%y, %a)`` of f32[2,3]
    after:  ``%r = sum(%x, axes=(1,), keepdims=true); %b = add(%y, %r)``
    """
    g = graph.copy()
    known: dict[Value, bool] = {}
    for n in g.nodes:
        if n.op == "fused" or lookup(n.op).kind != "elementwise":
            continue
        for i, v in enumerate(n.inputs):
            if v is None or v.node is None or v.node.op != "broadcast_to" or not _of_rows(v.node.inputs[0], known):
                continue
            inputs = [*n.inputs[:i], v.node.inputs[0], *n.inputs[i + 1 :]]
            types = lookup(n.op).infer_types([None if x is None else x.type for x in inputs], n.attrs)
            if list(types) == [x.type for x in n.outputs]:
                n.inputs = inputs
    return g


def _of_rows(v: Value | None, known: dict[Value, bool]) -> bool:
    """Whether a value is a reduction with its axes kept, or computed from one of its shape."""
    if v is None or v.node is None or v.node.op == "fused":
        return False
    if v not in known:
        n, op = v.node, lookup(v.node.op)
        same = [x for x in n.inputs if x is not None and x.type.shape == v.type.shape] if op.kind == "elementwise" else []
        known[v] = bool(n.attrs.get("keepdims")) if op.reduces else any(_of_rows(x, known) for x in same)
    return known[v]
