"""Fusion: nodes that can be one kernel become one `fused` node with their graph as its body.

A group has an iteration shape and grows upwards from its last node:
  - A pointwise producer joins if all its readers are in the group (or as one more output, if that makes no cycle). If several
    groups read it, each of them computes it if that moves less memory than storing it would.
  - A reduction over trailing axes joins a pointwise group of its input's shape, as a value that is computed once for each row
    (softmax, norms).
  - A contraction joins the one pointwise group that reads it, which becomes its epilogue. Pointwise nodes before an operand,
    whose other operands have one value for each channel (a norm, an activation), become a prologue of each contraction that
    reads them, and their result is never stored.
  - A reduction takes its pointwise producers as the expression that it folds. Reductions along the same axes that read the same
    values become one kernel.
Fusion never changes a bit: the same scalar operations run on the same values.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

from tengen.base.record import record
from tengen.ir.graph import Graph, Node, Value, attrs_key
from tengen.ir.rewrite import sort_nodes
from tengen.kernels.axes import STREAMED_BYTES
from tengen.kernels.lowering import product
from tengen.kernels.source import Elementwise, Literal, costs
from tengen.loops.lang import as_int
from tengen.ops.define import lookup

MAX_INPUTS = 12  # arrays a fused kernel reads; beyond that, registers and compile time suffer
MAX_ROOTS = 3  # values that have to be read in order to compute another one again
MAX_PROLOGUE_NODES = 6  # nodes of a prologue: it is computed each time that an element is read, which is several times
MAX_NODES = 40  # nodes of a group that computes something that other groups compute, too


@record(eq=False)
class Group:
    """Nodes that will be one kernel; it iterates over `shape`."""

    shape: tuple
    nodes: list[Node] = field(default_factory=list)
    anchor: Node | None = None  # the contraction or reduction inside
    rows: tuple[int, ...] | None = None  # the axes of reductions that are computed once for each row
    extra: list[Value] = field(default_factory=list)  # values that are stored besides the last one
    prologue: list[Node] = field(default_factory=list)  # nodes that compute an operand of the contraction when it is read

    def reads(self) -> set[Value]:
        """The inputs and outputs of its nodes."""
        return {v for m in self.nodes for v in (*m.inputs, *m.outputs) if v is not None}


def fuse(graph: Graph) -> Graph:
    """Forms groups and replaces each of more than one node by a `fused` node.

    before: ``%a = exp(%x); %b = add(%a, %y); return %b``
    after:  ``%b = fused(%x, %y) { %a = exp(%x); %b = add(%a, %y); return %b }; return %b``
    """
    g = graph.copy()
    users = g.users()
    results = set(g.results())
    origins = Origins(g, users, results)
    of: dict[int, list[Group]] = {}
    for n in reversed(g.nodes):
        op = lookup(n.op) if n.op != "fused" else None
        if op is None or len(n.outputs) != 1:
            continue
        of[id(n)] = _groups_for(n, op, users, results, of, origins)
        for group in of[id(n)]:
            if _joins_prologue(group, n, users.get(n.outputs[0], [])):
                group.prologue.append(n)
            group.nodes.append(n)
    _join_reductions(g, of, users)
    return _rewrite(g, of, users, results)


class Origins:
    """Where the values of a graph come from. It is asked of every value that several groups read, so it is found once for all, in the
    order of the nodes.

    Attributes:
        roots: for each value those of its shape that have to be read in order to have it: itself, or what it is computed from if
            that is cheap and no reader needs it stored.
        numbers: constants of one number, which are a part of the kernels that use them.
        end_products: the nodes which, if they are stored, are the last of a contraction's epilogue, so that the product itself is
            neither stored nor read.
    """

    def __init__(self, g: Graph, users, results):
        self.roots: dict[Value, set[Value]] = {v: {v} for v in g.values()}
        self.numbers: set[Value] = {c.value for c in g.constants.values() if not c.value.type.shape}
        self.end_products: set[Node] = set()
        self._cheap: dict[tuple, bool] = {}
        for n in g.nodes:
            if n.op == "fused" or len(n.outputs) != 1:
                continue
            v = n.outputs[0]
            if any(self._is_product(x, v, users, results) for x in n.inputs):
                self.end_products.add(n)
            read_whole = any(not lookup(r.op).fuses and not lookup(r.op).reduces for r in users.get(v, ()))
            if v not in results and not read_whole and self.cheap(n):
                inner = self.of(n.inputs, v.type.shape)
                self.roots[v] = inner if len(inner) <= MAX_ROOTS else {v}

    def of(self, values: Iterable[Value | None], shape: tuple) -> set[Value]:
        """The roots of values that have this shape."""
        return {r for v in values if v is not None and v.type.shape == shape for r in self.roots[v]}

    def cheap(self, n: Node) -> bool:
        """Whether computing `n` costs little compared with loading its operands: it calls no mathematical function."""
        op = lookup(n.op)
        if op.kind != "elementwise":
            return False
        key = (op, tuple(None if v is None else v.type.dtype for v in n.inputs), n.outputs[0].type.dtype, attrs_key(n.attrs))
        if key not in self._cheap:
            zeros = [None if v is None else Literal(0, v.type.dtype, v.type.shape) for v in n.inputs]
            s = op.make_source(zeros, n.outputs[0].type, n.attrs)
            self._cheap[key] = type(s) is Elementwise and not costs(s)
        return self._cheap[key]

    def _is_product(self, x: Value | None, v: Value, users, results) -> bool:
        """Whether an operand of `v` is a contraction's product with its epilogue, which nobody else reads."""
        m = None if x is None or x in results or len(users[x]) > 1 or x.type.shape != v.type.shape else x.node
        if m is None or m.op == "fused" or len(m.outputs) != 1:
            return False
        return lookup(m.op).rules.epilogue is not None or (lookup(m.op).fuses and m in self.end_products)


def _groups_for(n: Node, op, users, results, of: dict[int, list[Group]], origins: Origins) -> list[Group]:
    """The groups that node `n` joins: one, or several that each compute it; none if it cannot be fused."""
    out = n.outputs[0]
    readers = users.get(out, [])
    reading = list(dict.fromkeys(group for r in readers for group in of.get(id(r), ())))
    outside = [r for r in readers if not of.get(id(r))]
    shared = len(reading) > 1 and op.fuses and not outside and out not in results
    if shared and _recomputes(reading, n, readers, origins):
        return reading
    group = _group_for(n, op, reading, outside, readers, users, results, of, origins)
    return [] if group is None else [group]


def _recomputes(groups: list[Group], n: Node, readers: list[Node], origins: Origins) -> bool:
    """Whether each of the groups should compute `n` instead of reading it: it is cheap, and they then move fewer bytes than
    storing and reading it would."""
    joins = lambda g: _fits(g, n, readers) or _joins_prologue(g, n, readers)
    if not all(joins(g) and _room(g, n, origins) and len(g.nodes) < MAX_NODES for g in groups):
        return False
    if not origins.cheap(n) and not (_hidden(groups, n) and all(_fits(g, n, readers) for g in groups)):
        return False
    shape = n.outputs[0].type.shape
    mine = origins.of(n.inputs, shape)
    others = lambda g: [v for m in g.nodes for v in m.inputs if v is not None and v.node is not n and v.node not in g.nodes]
    stored = len(mine) + 1 + len(groups) - 2 * (n in origins.end_products)  # it is stored instead of the product
    return sum(len(mine - origins.of(others(g), shape)) for g in groups) < stored


def _hidden(groups: list[Group], n: Node) -> bool:
    """Whether computing `n` again costs less than reading it: it is larger than any cache, and one of the groups is a
    reduction, which has time for arithmetic while it waits for memory."""
    size = as_int(product(n.outputs[0].type.shape))
    large = size is not None and size * n.outputs[0].type.dtype.size >= STREAMED_BYTES
    return large and lookup(n.op).kind == "elementwise" and any(g.anchor and lookup(g.anchor.op).reduces for g in groups)


def _group_for(
    n: Node, op, reading: list[Group], outside: list[Node], readers: list[Node], users, results, of, origins: Origins
) -> Group | None:
    """The group that node `n` joins or starts."""
    out = n.outputs[0]
    only = reading[0] if len(reading) == 1 else None
    contraction = op.rules.epilogue is not None
    if op.rules.lower_values is not None and not op.reduces:
        shape = op.read_shape([None if v is None else v.type for v in n.inputs], out.type, n.attrs)
        return None if shape is None else Group(shape, anchor=n)
    if op.fuses:
        if only is not None and (_fits(only, n, readers) or _row_value(only, n)) and _room(only, n, origins):
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
    if op.reduces:
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
    if _operand_with_prologue(n) is not None:
        return Group(tuple(out.type.shape), anchor=n)
    return None


def _fits(group: Group, n: Node, readers: list[Node]) -> bool:
    """Whether `n` may be computed in the group: it has the group's shape, so no element is computed twice, and is no operand of
    the group's contraction."""
    a = group.anchor
    if a is not None and a in readers and lookup(a.op).anchors:
        return False
    return tuple(n.outputs[0].type.shape) == group.shape


def _joins_prologue(group: Group, n: Node, readers: list[Node]) -> bool:
    """Whether `n` becomes a part of the prologue of the group's contraction: it computes the operand that may have one, or a
    value for it, for no other node of the group, from one value of the operand's type and others with one element for each
    channel."""
    a, v = group.anchor, n.outputs[0]
    where = None if a is None else _operand_with_prologue(a)
    if a is None or where is None or a is n or len(group.prologue) == MAX_PROLOGUE_NODES:
        return False
    operand = a.inputs[where]
    if operand is None or operand.type is not v.type:
        return False
    mine = [r for r in readers if r in group.nodes]
    alone = operand is v and [x for x in a.inputs if x is v] == [v]
    if not mine or not all(alone if r is a else r in group.prologue for r in mine):
        return False
    whole = list(dict.fromkeys(x for x in n.inputs if x is not None and x.type is v.type))
    return len(whole) == 1 and all(x is None or x is whole[0] or _per_channel(x, v) for x in n.inputs)


def _operand_with_prologue(n: Node) -> int | None:
    """The position of the operand for which a contraction can have a prologue; None if there is none."""
    rule = lookup(n.op).rules.prologue if n.op != "fused" else None
    return None if rule is None else rule([None if v is None else v.type for v in n.inputs], **n.attrs)


def _per_channel(x: Value, v: Value) -> bool:
    """Whether a value has one element for each channel (axis 1) of another, or one in all."""
    lead = v.type.ndim - x.type.ndim
    return lead >= 0 and all(as_int(d) == 1 or lead + i == 1 for i, d in enumerate(x.type.shape))


def _row_value(group: Group, n: Node) -> bool:
    """Whether `n` computes one value for each row from reductions along the group's rows (the 1 / sqrt(var + eps) of a norm).
    Then `n`, the reductions and the group can be one kernel."""
    kept = [i for i, (a, b) in enumerate(zip(n.outputs[0].type.shape, group.shape)) if a is b or a == b]
    if group.anchor is not None or n.outputs[0].type.ndim != len(group.shape) or kept != list(range(len(kept))):
        return False
    axes = tuple(range(len(kept), len(group.shape)))
    shape = n.outputs[0].type.shape
    if any(shape[i] != 1 for i in axes):
        return False
    seen, stack = {n}, [n]
    while stack:
        for v in stack.pop().inputs:
            m = None if v is None else v.node
            if m is None or m in seen or m.op == "fused" or len(m.outputs) != 1:
                continue
            if lookup(m.op).reduces and tuple(m.attrs["axes"]) == axes and _row_fits(group, m, axes):
                return True
            if lookup(m.op).fuses and v.type.shape == shape:
                seen.add(m)
                stack.append(m)
    return False


def _row_fits(group: Group, n: Node, axes: tuple[int, ...]) -> bool:
    """Whether a reduction can be computed once for each row in a pointwise group of its input's shape."""
    if group.anchor is not None or group.extra or tuple(n.inputs[0].type.shape) != group.shape or not n.attrs.get("keepdims"):
        return False
    return (group.rows or axes) == axes and axes == tuple(range(len(group.shape) - len(axes), len(group.shape)))


def _room(group: Group, n: Node, origins: Origins) -> bool:
    """Whether the group reads at most MAX_INPUTS arrays if `n` joins it."""
    inside = {id(v) for m in group.nodes for v in m.outputs}
    reads = {id(v) for m in [*group.nodes, n] for v in m.inputs if v is not None and id(v) not in inside and v not in origins.numbers}
    return len(reads) <= MAX_INPUTS


def _join_reductions(g: Graph, of: dict[int, list[Group]], users) -> None:
    """Makes one group of reductions along the same axes of the same shape that read the same value of that shape."""
    place = {id(n): i for i, n in enumerate(g.nodes)}
    waiting: dict[tuple, dict[Group, set[Value]]] = {}  # those that others may join, with what they read
    leads = _leads(g, of, users)
    for n in g.nodes:
        for b in of.get(id(n), ())[:1]:
            if b.anchor is not n or not lookup(n.op).reduces or b.rows is not None or b.extra:
                continue
            same_axes, read = waiting.setdefault((b.shape, tuple(n.attrs["axes"])), {}), _reads_whole(b)
            near = (a for a, theirs in same_axes.items() if not read.isdisjoint(theirs) and _can_join(a, b, theirs | read, leads))
            a = next(near, None)
            if a is None:
                same_axes[b] = read
                continue
            a.nodes = sorted({*a.nodes, *b.nodes}, key=lambda m: -place[id(m)])
            same_axes[a] = _reads_whole(a)
            for m in b.nodes:
                of[id(m)] = list(dict.fromkeys(a if x is b else x for x in of[id(m)]))
            (bit_a, to_a), (bit_b, to_b) = leads[id(a)], leads[id(b)]
            for unit, (bit, to) in leads.items():
                if to & (bit_a | bit_b) or unit == id(a):
                    leads[unit] = bit, to | to_a | to_b | (0 if unit == id(a) else bit_a)


def _reads_whole(group: Group) -> set[Value]:
    """The values of its shape that a group reads."""
    return {v for v in group.reads() if v.type.shape == group.shape and v.node not in group.nodes}


def _can_join(a: Group, b: Group, read: set[Value], leads: dict[int, tuple[int, int]]) -> bool:
    """Whether two reductions that together read these values can be one group: neither depends on the other."""
    if len(a.nodes) + len(b.nodes) > MAX_NODES or len(read) > MAX_INPUTS:
        return False
    (bit_a, to_a), (bit_b, to_b) = leads[id(a)], leads[id(b)]
    return not to_a & bit_b and not to_b & bit_a


def _leads(g: Graph, of: dict[int, list[Group]], users) -> dict[int, tuple[int, int]]:
    """For each group, and each node that is in no group: a bit of its own, and the bits of all groups and nodes that depend on
    it. Large graphs have thousands of groups, and a walk from each would be long. A value that several groups compute is stored
    by none of them."""
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
    """Whether a node of the group depends on a node of `starts`, so that joining would make a cycle. What depends on one value
    of a kernel depends on all of it. A value that several kernels compute is stored by none of them, so only these depend on
    it."""
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
                table[v] = body.add_input(f"x{len(inputs)}", v.type)
                inputs.append(v)
        m = body.add_node(n.op, [table[v] for v in n.inputs], n.attrs, [v.type for v in n.outputs], n.where)
        for v, w in zip(n.outputs, m.outputs):
            table[v] = w
            if v not in shared and (v in results or any(id(r) not in members for r in users.get(v, []))):
                outs.append(v)
    for v in outs:
        body.add_output(f"y{len(body.outputs)}", table[v])
    node = Node("fused", list(inputs), {"body": body}, outs, group.nodes[0].where)
    for i, v in enumerate(outs):
        v.node, v.index = node, i
    return node
