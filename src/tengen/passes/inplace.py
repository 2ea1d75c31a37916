"""In place: which values are computed straight into an output, a state, or the place of a check.

In: a graph. Out: a table from values to the buffer they are written to; every other value is a temporary. A state's new value
may lie over the old one when nothing reads that any more, or only the same element of it in the same kernel. An op may compute
a result over an operand that nobody reads later (the rule "over"): both then have one buffer. So `x[i] = v` of a state writes
the elements it names, and no others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping

from tengen.ir.graph import Graph, Node, Value
from tengen.kernels.axes import memory_order
from tengen.kernels.lowering import Array, contiguous_strides, product
from tengen.loops.lang import as_int
from tengen.ops.define import lookup

CHECKS = "checks"  # the buffer of what the checks of a graph found


def destinations(graph: Graph) -> dict[Value, Hashable]:
    """Values that can be computed straight into an output or, when nothing reads the old value later, into a state."""
    where: dict[Value, Hashable] = {}
    for i, v in enumerate(graph.outputs):
        if v.node is not None:
            where.setdefault(v, ("out", i))
    for i, c in enumerate(graph.checks):
        if c.bad.node is not None:
            where.setdefault(c.bad, (CHECKS, i))
    last = {}
    for i, n in enumerate(graph.nodes):
        for v in _reads(n):
            last[v] = i
    position = {id(n): i for i, n in enumerate(graph.nodes)}
    views = _view_sources(graph)
    late_of = dict(last)  # the last read of a value, or of a view of it
    for v, root in views.items():
        late_of[root] = max(late_of.get(root, -1), last.get(v, -1))
    escaping = {views.get(v, v) for v in graph.results()}
    for s in graph.states.values():
        w = s.written
        if w is None or w.node is None or w in where:
            continue
        made = position[id(w.node)]
        late = late_of.get(s.read, -1)
        shown = any(views.get(v) is s.read for v in _reads(w.node))  # at other places than it lies, a transposed state say
        aligned = late < made or (late == made and (not shown and _pointwise_in_place(w.node, s.read) or _over(w, s.read, views)))
        if aligned and s.read not in escaping:
            where[w] = ("state", s.name)
    return where


def in_logical_order(graph: Graph, where: Mapping[Value, Hashable], outputs: bool) -> set[Value]:
    """Values of `where` that a node computes in logical order, whatever order it would choose: those for states, which are
    row-major; and, where the outputs have to be row-major too, results of pointwise nodes that no node reads, which cost no
    more in one order than in another. For other outputs a node's own order and a copy cost less."""
    read = {v for n in graph.nodes for v in n.inputs}
    alone = lambda v: v not in read and len(v.node.outputs) == 1 and _is_pointwise(v.node)
    return {v for v, id in where.items() if id[0] == "state" or (outputs and id[0] == "out" and alone(v))}


def behind_views(graph: Graph, lies: Mapping[Value, Array], where: dict[Value, Hashable], row_major: bool) -> None:
    """Adds to `where` the values of which an output is only another view, with every element of them: they are computed
    straight into the output, which then lies as the view says (a channels-last image, seen with its channels last).

    Args:
        lies: how every value lies. row_major: outputs have to lie in logical order. What `where` would compute into an output
            in another order is then taken out of it, and is a temporary.
    """
    for v in [v for v, id in where.items() if row_major and id[0] == "out" and not lies[v].is_contiguous()]:
        del where[v]
    for i, v in enumerate(graph.outputs):
        root, shown = memory_of(v, lies)
        whole = shown is not None and _all_of(shown, lies[root]) and (shown.is_contiguous() or not row_major)
        if root is not v and root.node is not None and root not in where and whole:
            where[root] = ("out", i)


def over_operands(
    graph: Graph, lies: Mapping[Value, Array], where: dict[Value, Hashable], temp: Callable[[Value], Hashable],
    pointwise: Collection[int] = (),
) -> None:  # fmt: skip
    """Adds to `where` the operands over which an op computes a result, and those results: they have one buffer, a new `temp` or
    an output. The operand is made by a node, for nobody who reads it later, and lies as the result does. pointwise: the ids of nodes that
    may do so for being pointwise."""
    last = {v: i for i, n in enumerate(graph.nodes) for v in _reads(n)}
    last.update(dict.fromkeys(graph.results(), len(graph.nodes)))
    views = _view_sources(graph)
    late: dict[Value, int] = {}  # when the memory of a value is read for the last time
    for v, i in last.items():
        root = views.get(v, v)
        late[root] = max(late.get(root, -1), i)
    for i, n in reversed(list(enumerate(graph.nodes))):  # what is over a result of an earlier node is over that one's operand
        pairs = over_in(n, lies) if id(n) in pointwise else _by_rule(n)
        for result, operand in pairs:
            root, a = (None, None) if operand is None else memory_of(operand, lies)
            if root is None or root.node is None or root in where or late[root] > i:
                continue
            alone = _reads_once(n, root, views)
            whole = a == lies[result] and product(result.type.shape) == product(root.type.shape)
            if alone and whole and where.get(result, ("temp",))[0] in ("temp", "out"):
                if result not in where:
                    where[result] = temp(result)
                where[root] = where[result]
                if id(n) in pointwise:
                    break


def _by_rule(n: Node) -> list[tuple[Value, Value | None]]:
    return [(n.outputs[r], n.inputs[o]) for r, o in _by_op(n).items()]


def _by_op(n: Node) -> Mapping[int, int]:
    """{result: operand}, by the rule "over" of a node's op."""
    return {} if n.op == "fused" else lookup(n.op).computed_over(n.attrs)


def over_in(n: Node, lies: Mapping[Value, Array]) -> list[tuple[Value, Value | None]]:
    """(its result, an operand) of a pointwise node that may compute the one over the other: they lie alike."""
    if len(n.outputs) != 1 or (n.op != "fused" and lookup(n.op).kind == "view") or not _is_pointwise(n):
        return []
    out = n.outputs[0]
    found = [v for v in _reads(n) if v.type == out.type and _pointwise_in_place(n, v)]
    return [(out, v) for v in found if memory_of(v, lies)[1] == lies[out] and not out.type.dtype.is_complex]


def _over(result: Value, read: Value, views: Mapping[Value, Value]) -> bool:
    """Whether the op that makes a value may compute it over `read`, which is its operand."""
    n = result.node
    assert n is not None
    return any(n.outputs[r] is result and n.inputs[o] is read for r, o in _by_op(n).items()) and _reads_once(n, read, views)


def _reads_once(n: Node, root: Value, views: Mapping[Value, Value]) -> bool:
    return [views.get(v, v) for v in _reads(n)].count(root) == 1


def memory_of(v: Value, lies: Mapping[Value, Array]) -> tuple[Value, Array | None]:
    """The value whose memory `v` shows, and how; None where a view takes a copy."""
    n = v.node
    if n is None or n.op == "fused" or lookup(n.op).kind != "view":
        return v, lies[v]
    root, a = memory_of(n.inputs[0], lies)
    return root, None if a is None else lookup(n.op).make_view(a, n.outputs[0].type, n.attrs)


def _all_of(a: Array, root: Array) -> bool:
    """Whether a view is known to have every element of a dense array once, as it is."""
    if a.dtype is not root.dtype:  # a part of complex numbers
        return False
    a = a.permute([i for i in range(a.ndim) if as_int(a.shape[i]) != 1])
    if as_int(a.offset) != 0 or any(as_int(s) is None for s in a.strides) or product(a.shape) != product(root.shape):
        return False
    return a.strides == contiguous_strides(a.shape, memory_order(a))


def _reads(n: Node) -> list[Value]:
    return [v for v in n.inputs if v is not None]


def _view_sources(graph: Graph) -> dict[Value, Value]:
    """For each value that is a view, the value whose memory it shows."""
    root: dict[Value, Value] = {}
    for n in graph.nodes:
        if n.op != "fused" and lookup(n.op).kind == "view":
            root[n.outputs[0]] = root.get(n.inputs[0], n.inputs[0])
    return root


def _pointwise_in_place(n: Node, read: Value) -> bool:
    """Whether the node reads `read` only at the position that it writes: then it may write over it."""
    if n.op != "fused":
        return lookup(n.op).kind == "elementwise" and all(
            v is not read or v.type.shape == n.outputs[0].type.shape for v in n.inputs
        )
    same = read.type.shape == n.outputs[0].type.shape and len({v.type.shape for v in n.outputs}) == 1
    return same and _is_pointwise(n)


def _is_pointwise(n: Node) -> bool:
    """Whether each element of the node's results is made of the elements of its operands at that position."""
    return all(lookup(m.op).kind == "elementwise" for m in (n.attrs["body"].nodes if n.op == "fused" else [n]))
