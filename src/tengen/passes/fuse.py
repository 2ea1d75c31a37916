"""Fusion: nodes that can be one kernel become one `fused` node with their graph as its body.

A group has an iteration shape and grows upwards from its last node:
  - a pointwise producer joins when all its readers are in the group (or, written as one more output, when that makes no
  circle);
  - a reduction over trailing axes joins a pointwise group of its input's shape as a value computed once per row (softmax,
  norms);
  - a contraction joins the one pointwise group that reads it, which becomes its epilogue;
  - a reduction with pointwise producers takes them as its prologue.
Fusion never changes a bit: the same scalar operations run on the same values.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tengen.ir.graph import Graph, Node, Value
from tengen.ir.rewrite import sort_nodes
from tengen.ir.types import TensorType
from tengen.ops.define import lookup

MAX_INPUTS = 12  # arrays a fused kernel reads; beyond that, registers and compile time suffer


@dataclass(eq=False)
class Group:
    """Nodes that will be one kernel; `shape` is what it iterates over."""

    shape: tuple
    nodes: list[Node] = field(default_factory=list)
    anchor: Node | None = None  # the contraction or reduction inside
    rows: tuple[int, ...] | None = None  # axes of reductions computed once per row
    extra: list[Value] = field(default_factory=list)  # values stored besides the last one


def fuse(graph: Graph) -> Graph:
    """Forms groups and replaces each of more than one node by a `fused` node.

    before: ``%a = exp(%x); %b = add(%a, %y); return %b``
    after:  ``%b = fused(%x, %y) { %a = exp(%x); %b = add(%a, %y); return %b }; return %b``
    """
    g = graph.copy()
    users = g.users()
    results = set(g.results())
    of: dict[int, Group] = {}
    for n in reversed(g.nodes):
        op = lookup(n.op) if n.op != "fused" else None
        if op is None or len(n.outputs) != 1:
            continue
        group = _group_for(n, op, users, results, of, g)
        if group is not None:
            group.nodes.append(n)
            of[id(n)] = group
    return _rewrite(g, of, users, results)


def _group_for(n: Node, op, users, results, of, g) -> Group | None:
    """The group that node `n` joins or starts."""
    out = n.outputs[0]
    readers = users.get(out, [])
    reading = {id(of[id(r)]): of[id(r)] for r in readers if id(r) in of}
    outside = [r for r in readers if id(r) not in of]
    only = next(iter(reading.values())) if len(reading) == 1 else None
    contraction = "epilogue" in op.rules
    if op.fuses:
        if only is not None and (_fits(only, out.type) or _row_value(only, n)) and _room(only, n):
            if not outside and out not in results:
                return only
            if (
                only.anchor is None
                and only.rows is None
                and out.type.shape == only.shape
                and not _reaches(outside, only, users)
            ):
                only.extra.append(out)
                return only
        return Group(tuple(out.type.shape))
    if "reduced" in op.rules:
        axes = tuple(n.attrs["axes"])
        if only is not None and not outside and out not in results and _row_fits(only, n, axes):
            only.rows = axes
            return only
        return Group(tuple(n.inputs[0].type.shape), anchor=n)
    if contraction:
        joins = only is not None and not outside and out not in results and only.anchor is None and only.rows is None
        if joins and not only.extra and tuple(out.type.shape) == only.shape:
            only.anchor = n
            return only
        return Group(tuple(out.type.shape), anchor=n)
    return None


def _fits(group: Group, t: TensorType) -> bool:
    """Whether a producer of type `t` may be computed inside the group: same shape, so nothing is computed twice. A
    contraction's
    group takes no more: what lies above it are its operands."""
    if group.anchor is not None and "epilogue" in lookup(group.anchor.op).rules:
        return False
    return tuple(t.shape) == group.shape


def _row_value(group: Group, n: Node) -> bool:
    """Whether `n` works on the results of reductions along the group's rows (the 1 / sqrt(var + eps) of a norm): then all of it
    can be one kernel."""
    kept = [i for i, (a, b) in enumerate(zip(n.outputs[0].type.shape, group.shape)) if a is b or a == b]
    if group.anchor is not None or n.outputs[0].type.ndim != len(group.shape) or kept != list(range(len(kept))):
        return False
    axes = tuple(range(len(kept), len(group.shape)))
    if any(n.outputs[0].type.shape[i] != 1 for i in axes):
        return False
    for v in n.inputs:
        m = None if v is None else v.node
        if m is None or m.op == "fused" or len(m.outputs) != 1:
            continue
        if "reduced" in lookup(m.op).rules and tuple(m.attrs["axes"]) == axes and _row_fits(group, m, axes):
            return True
        if lookup(m.op).fuses and v.type.shape == n.outputs[0].type.shape and _row_value(group, m):  # type: ignore[union-attr]
            return True
    return False


def _row_fits(group: Group, n: Node, axes: tuple[int, ...]) -> bool:
    """Whether a reduction can be computed once per row inside a pointwise group of its input's shape."""
    if group.anchor is not None or group.extra or tuple(n.inputs[0].type.shape) != group.shape or not n.attrs.get("keepdims"):
        return False
    return (group.rows or axes) == axes and axes == tuple(range(len(group.shape) - len(axes), len(group.shape)))


def _room(group: Group, n: Node) -> bool:
    inside = {id(v) for m in group.nodes for v in m.outputs}
    reads = {id(v) for m in [*group.nodes, n] for v in m.inputs if v is not None and id(v) not in inside}
    return len(reads) <= MAX_INPUTS


def _reaches(starts: list[Node], group: Group, users) -> bool:
    """Whether a node of `starts` leads to a node of the group: joining would make a circle."""
    members = {id(m) for m in group.nodes}
    seen: set[int] = set()
    stack = list(starts)
    while stack:
        n = stack.pop()
        if id(n) in members:
            return True
        if id(n) in seen:
            continue
        seen.add(id(n))
        for v in n.outputs:
            stack.extend(users.get(v, []))
    return False


def _rewrite(g: Graph, of: dict[int, Group], users, results) -> Graph:
    done: set[int] = set()
    nodes: list[Node] = []
    scalars = {c.value for c in g.constants.values() if not c.value.type.shape}
    for n in g.nodes:
        group = of.get(id(n))
        alone = group is None or (len(group.nodes) == 1 and not scalars.intersection(n.inputs))  # numbers go into the kernel
        if alone or group is None:
            nodes.append(n)
        elif id(group) not in done:
            done.add(id(group))
            nodes.append(_fused_node(g, group, users, results, len(nodes)))
    g.nodes = nodes
    sort_nodes(g)
    read = {v for n in g.nodes for v in n.inputs} | set(g.results())
    g.constants = {name: c for name, c in g.constants.items() if c.value in read}
    return g


def _fused_node(g: Graph, group: Group, users, results, number: int) -> Node:
    members = {id(n) for n in group.nodes}
    scalars = {c.value: c for c in g.constants.values() if not c.value.type.shape}
    body = Graph("fused")
    table: dict[Value | None, Value | None] = {None: None}
    inputs: list[Value] = []
    outs: list[Value] = []
    for n in reversed(group.nodes):  # they were collected from the last to the first
        for v in n.inputs:
            if v in table:
                continue
            if v in scalars:
                table[v] = body.add_constant(f"k{number}_{len(body.constants)}", scalars[v].data, v.type)
            else:
                table[v] = body.add_input(f"x{len(inputs)}", v.type)  # type: ignore[union-attr]
                inputs.append(v)  # type: ignore[arg-type]
        m = body.add_node(n.op, [table[v] for v in n.inputs], n.attrs, [v.type for v in n.outputs], n.where)
        for v, w in zip(n.outputs, m.outputs):
            table[v] = w
            if v in results or any(id(r) not in members for r in users.get(v, [])):
                outs.append(v)
    for v in outs:
        body.add_output(f"y{len(body.outputs)}", table[v])  # type: ignore[arg-type]
    node = Node("fused", list(inputs), {"body": body}, outs, group.nodes[0].where)
    for i, v in enumerate(outs):
        v.node, v.index = node, i
    return node
