"""Fusion: nodes that can be one kernel become one `fused` node with their graph as its body.

A group has an iteration shape and grows upwards from its last node:
  - a pointwise producer joins when all its readers are in the group (or, written as one more output, when that makes no
  circle); where several groups read it, it is computed in each if that moves less memory than storing it would;
  - a reduction over trailing axes joins a pointwise group of its input's shape as a value computed once per row (softmax,
  norms);
  - a contraction joins the one pointwise group that reads it, which becomes its epilogue; what is normalised and activated channel
  by channel for several contractions is computed by each as it reads it, and never stored;
  - a reduction with pointwise producers takes them as its prologue; reductions along the same axes that read the same become
  one kernel.
Fusion never changes a bit: the same scalar operations run on the same values.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tengen.ir.graph import Graph, Node, Value
from tengen.ir.rewrite import sort_nodes
from tengen.kernels.axes import STREAMED_BYTES
from tengen.kernels.lowering import product
from tengen.kernels.source import Elementwise, Literal, costs
from tengen.loops.lang import as_int
from tengen.ops.define import lookup

MAX_INPUTS = 12  # arrays a fused kernel reads; beyond that, registers and compile time suffer
MAX_ROOTS = 3  # values that another is computed from again
MAX_BEFORE = 6  # nodes that are computed as an operand is read, which is more often than it is stored
MAX_NODES = 40  # of a group that computes what others compute too


@dataclass(eq=False)
class Group:
    """Nodes that will be one kernel; `shape` is what it iterates over."""

    shape: tuple
    nodes: list[Node] = field(default_factory=list)
    anchor: Node | None = None  # the contraction or reduction inside
    rows: tuple[int, ...] | None = None  # axes of reductions computed once per row
    extra: list[Value] = field(default_factory=list)  # values stored besides the last one
    before: list[Node] = field(default_factory=list)  # that make an operand of the contraction as it is read

    def reads(self) -> set[Value]:
        """What it takes from outside, and what it has inside."""
        return {v for m in self.nodes for v in (*m.inputs, *m.outputs) if v is not None}


def fuse(graph: Graph) -> Graph:
    """Forms groups and replaces each of more than one node by a `fused` node.

    before: ``%a = exp(%x); %b = add(%a, %y); return %b``
    after:  ``%b = fused(%x, %y) { %a = exp(%x); %b = add(%a, %y); return %b }; return %b``
    """
    g = graph.copy()
    users = g.users()
    results = set(g.results())
    of: dict[int, list[Group]] = {}
    for n in reversed(g.nodes):
        op = lookup(n.op) if n.op != "fused" else None
        if op is None or len(n.outputs) != 1:
            continue
        of[id(n)] = _groups_for(n, op, users, results, of)
        for group in of[id(n)]:
            if _goes_before(group, n, users.get(n.outputs[0], [])):
                group.before.append(n)
            group.nodes.append(n)
    _join_reductions(g, of, users)
    return _rewrite(g, of, users, results)


def _groups_for(n: Node, op, users, results, of: dict[int, list[Group]]) -> list[Group]:
    """The groups that node `n` joins: one, or several that each compute it; none if it is no part of a kernel."""
    out = n.outputs[0]
    readers = users.get(out, [])
    reading = list(dict.fromkeys(group for r in readers for group in of.get(id(r), ())))
    outside = [r for r in readers if not of.get(id(r))]
    if len(reading) > 1 and op.fuses and not outside and out not in results and _recomputes(reading, n, readers, users, results):
        return reading
    group = _group_for(n, op, reading, outside, readers, users, results, of)
    return [] if group is None else [group]


def _recomputes(groups: list[Group], n: Node, readers: list[Node], users, results) -> bool:
    """Whether the groups had better compute `n` each than read it: it is cheap, and they then read less than storing it
    would move."""
    if not all((_fits(g, n, readers) or _goes_before(g, n, readers)) and _room(g, n) and len(g.nodes) < MAX_NODES for g in groups):
        return False
    if not _cheap(n) and not (_hidden(groups, n) and all(_fits(g, n, readers) for g in groups)):
        return False
    known: dict[Value, set[Value]] = {}
    roots = lambda values: {r for v in values if v is not None for r in _roots(v, n.outputs[0].type.shape, users, results, known)}
    mine = roots(n.inputs)
    others = lambda g: [v for m in g.nodes for v in m.inputs if v is not None and v.node is not n and v.node not in g.nodes]
    stored = len(mine) + 1 + len(groups) - 2 * _ends_a_product(n, users, results)  # it takes the place of the product
    return sum(len(mine - roots(others(g))) for g in groups) < stored


def _hidden(groups: list[Group], n: Node) -> bool:
    """Whether computing a value of `n` again takes less than storing it: no cache holds it, and a reduction can spare to read it."""
    size = as_int(product(n.outputs[0].type.shape))
    large = size is not None and size * n.outputs[0].type.dtype.size >= STREAMED_BYTES
    return large and lookup(n.op).kind == "elementwise" and any(g.anchor and "reduced" in lookup(g.anchor.op).rules for g in groups)


def _ends_a_product(n: Node, users, results) -> bool:
    """Whether `n`, where it is stored, is the end of a contraction's epilogue, so that the product itself is neither stored nor
    read."""
    for v in n.inputs:
        m = None if v is None or v in results or len(users[v]) > 1 or v.type.shape != n.outputs[0].type.shape else v.node
        if m is None or m.op == "fused" or len(m.outputs) != 1:
            continue
        if "epilogue" in lookup(m.op).rules or (lookup(m.op).fuses and _ends_a_product(m, users, results)):
            return True
    return False


def _roots(v: Value, shape: tuple, users, results, known: dict[Value, set[Value]]) -> set[Value]:
    """The values of a shape that have to be read for `v`: itself, or what it is made of where that is cheap and no reader
    wants it stored."""
    if v.type.shape != shape:
        return set()
    if v not in known:
        known[v] = {v}
        n = v.node
        read_whole = any("source" not in lookup(r.op).rules and "reduced" not in lookup(r.op).rules for r in users.get(v, ()))
        if n is not None and n.op != "fused" and v not in results and not read_whole and _cheap(n):
            inner = {r for x in n.inputs if x is not None for r in _roots(x, shape, users, results, known)}
            known[v] = inner if len(inner) <= MAX_ROOTS else {v}
    return known[v]


def _cheap(n: Node) -> bool:
    """Whether computing a value of `n` again is nothing beside loading what it is made of."""
    op = lookup(n.op)
    if op.kind != "elementwise":
        return False
    s = op.make_source([None if v is None else Literal(0, v.type.dtype, v.type.shape) for v in n.inputs], n.outputs[0].type, n.attrs)
    return type(s) is Elementwise and not costs(s)


def _group_for(n: Node, op, reading: list[Group], outside: list[Node], readers: list[Node], users, results, of) -> Group | None:
    """The group that node `n` joins or starts."""
    out = n.outputs[0]
    only = reading[0] if len(reading) == 1 else None
    contraction = "epilogue" in op.rules
    if op.fuses:
        if only is not None and (_fits(only, n, readers) or _row_value(only, n)) and _room(only, n):
            if not outside and out not in results:
                return only
            if (
                only.anchor is None
                and only.rows is None
                and out.type.shape == only.shape
                and not _reaches(outside, only, users, of)
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
    if _reads_through(n) is not None:
        return Group(tuple(out.type.shape), anchor=n)
    return None


def _fits(group: Group, n: Node, readers: list[Node]) -> bool:
    """Whether `n` may be computed inside the group: it has its shape, so nothing is computed twice, and is no operand of its
    contraction."""
    a = group.anchor
    if a is not None and a in readers and {"epilogue", "through"} & lookup(a.op).rules.keys():
        return False
    return tuple(n.outputs[0].type.shape) == group.shape


def _goes_before(group: Group, n: Node, readers: list[Node]) -> bool:
    """Whether `n` makes the operand that the group's contraction computes as it reads it, for nobody else in the group: of one value
    of that type, and of others that have one element for each channel."""
    a, v = group.anchor, n.outputs[0]
    where = None if a is None else _reads_through(a)
    if a is None or where is None or a is n or len(group.before) == MAX_BEFORE:
        return False
    operand = a.inputs[where]
    if operand is None or operand.type is not v.type:
        return False
    mine = [r for r in readers if r in group.nodes]
    alone = operand is v and [x for x in a.inputs if x is v] == [v]
    if not mine or not all(alone if r is a else r in group.before for r in mine):
        return False
    whole = list(dict.fromkeys(x for x in n.inputs if x is not None and x.type is v.type))
    return len(whole) == 1 and all(x is None or x is whole[0] or _per_channel(x, v) for x in n.inputs)


def _reads_through(n: Node) -> int | None:
    """Which operand a contraction can compute as it reads it."""
    rule = lookup(n.op).rules.get("through") if n.op != "fused" else None
    return None if rule is None else rule([None if v is None else v.type for v in n.inputs], **n.attrs)


def _per_channel(x: Value, v: Value) -> bool:
    """Whether a value has one element for each channel (axis 1) of another, or one in all."""
    lead = v.type.ndim - x.type.ndim
    return lead >= 0 and all(as_int(d) == 1 or lead + i == 1 for i, d in enumerate(x.type.shape))


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


def _join_reductions(g: Graph, of: dict[int, list[Group]], users) -> None:
    """Reductions along the same axes of the same shape that read something of that shape together become one group."""
    place = {id(n): i for i, n in enumerate(g.nodes)}
    waiting: dict[tuple, list[Group]] = {}
    leads = _leads(g, of, users)
    for n in g.nodes:
        for b in of.get(id(n), ())[:1]:
            if b.anchor is not n or "reduced" not in lookup(n.op).rules or b.rows is not None or b.extra:
                continue
            alike = waiting.setdefault((b.shape, tuple(n.attrs["axes"])), [])
            a = next((a for a in alike if _joins(a, b, leads)), None)
            if a is None:
                alike.append(b)
                continue
            a.nodes = sorted({*a.nodes, *b.nodes}, key=lambda m: -place[id(m)])
            for m in b.nodes:
                of[id(m)] = list(dict.fromkeys(a if x is b else x for x in of[id(m)]))
            (bit_a, to_a), (bit_b, to_b) = leads[id(a)], leads[id(b)]
            for unit, (bit, to) in leads.items():
                if to & (bit_a | bit_b) or unit == id(a):
                    leads[unit] = bit, to | to_a | to_b | (0 if unit == id(a) else bit_a)


def _joins(a: Group, b: Group, leads: dict[int, tuple[int, int]]) -> bool:
    """Whether two reductions read something large together and neither needs the other."""
    outside = lambda group: {v for v in group.reads() if v.type.shape == group.shape and v.node not in group.nodes}
    if not outside(a) & outside(b) or len(a.nodes) + len(b.nodes) > MAX_NODES or len(outside(a) | outside(b)) > MAX_INPUTS:
        return False
    (bit_a, to_a), (bit_b, to_b) = leads[id(a)], leads[id(b)]
    return not to_a & bit_b and not to_b & bit_a


def _leads(g: Graph, of: dict[int, list[Group]], users) -> dict[int, tuple[int, int]]:
    """For each group, and each node of none: a bit of its own, and the bits of all that it leads to. Large graphs have thousands
    of groups, and a walk from each would be long. A value that several groups compute each is stored by none of them."""
    units = lambda n: of.get(id(n)) or [n]
    after: dict[int, set[int]] = {}
    for n in g.nodes:
        mine = units(n)
        for u in mine:
            readers = after.setdefault(id(u), set())
            if len(mine) == 1:
                readers |= {id(w) for v in n.outputs for r in users.get(v, ()) for w in units(r)} - {id(u)}
    bits = {u: 1 << i for i, u in enumerate(after)}
    leads = dict.fromkeys(after, 0)
    changed = True
    while changed:  # nearly in order: a few rounds
        changed = False
        for u in reversed(after):
            to = leads[u]
            for w in after[u]:
                to |= bits[w] | leads[w]
            changed |= to != leads[u]
            leads[u] = to
    return {u: (bits[u], leads[u]) for u in leads}


def _reaches(starts: list[Node], group: Group, users, of: dict[int, list[Group]]) -> bool:
    """Whether a node of `starts` leads to a node of the group: joining would make a circle. What is one kernel leads wherever
    one of its values does; a value that several kernels compute each is stored by none of them, and leads on only inside."""
    members = {id(m) for m in group.nodes}
    seen: set[int] = set()
    stack = list(starts)
    while stack:
        n = stack.pop()
        if id(n) in seen:
            continue
        seen.add(id(n))
        groups = of.get(id(n), ())
        if group in groups or id(n) in members:
            return True
        for m in {n, *(x for other in groups for x in other.nodes)}:
            if len(of.get(id(m), ())) <= 1:
                stack.extend(r for v in m.outputs for r in users.get(v, ()))
    return False


def _rewrite(g: Graph, of: dict[int, list[Group]], users, results) -> Graph:
    done: set[int] = set()
    nodes: list[Node] = []
    scalars = {c.value for c in g.constants.values() if not c.value.type.shape}
    shared = {n.outputs[0] for n in g.nodes if len(of.get(id(n), ())) > 1}
    for n in g.nodes:
        groups = of.get(id(n), [])
        if not groups or (len(groups[0].nodes) == 1 and not scalars.intersection(n.inputs)):  # numbers go into the kernel
            nodes.append(n)
            continue
        for group in groups:
            if id(group) not in done:
                done.add(id(group))
                nodes.append(_fused_node(g, group, users, results, shared, len(nodes)))
    g.nodes = nodes
    sort_nodes(g)
    read = {v for n in g.nodes for v in n.inputs} | set(g.results())
    g.constants = {name: c for name, c in g.constants.items() if c.value in read}
    return g


def _fused_node(g: Graph, group: Group, users, results, shared: set[Value], number: int) -> Node:
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
            if v not in shared and (v in results or any(id(r) not in members for r in users.get(v, []))):
                outs.append(v)
    for v in outs:
        body.add_output(f"y{len(body.outputs)}", table[v])  # type: ignore[arg-type]
    node = Node("fused", list(inputs), {"body": body}, outs, group.nodes[0].where)
    for i, v in enumerate(outs):
        v.node, v.index = node, i
    return node
