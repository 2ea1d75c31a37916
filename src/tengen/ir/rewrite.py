"""Helpers for passes: walk a graph, build another.

A pass takes a graph and gives a new one; the old one stays as it was. `rebuild` is the usual way: it walks the nodes in
order, and a function says what each becomes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tengen.base.errors import VerifyError
from tengen.ir.graph import Graph, Node, Value, attr_key, copy_node

Rule = Callable[[Graph, Node, "list[Value | None]"], "Sequence[Value] | None"]


def rebuild(graph: Graph, rule: Rule) -> Graph:
    """A new graph in which each node is what `rule` makes of it.

    Args:
        rule: (new graph, old node, its inputs in the new graph) -> the values that stand for the node's outputs, from nodes
            that the rule added; or None to take the node over as it is.
    Errors: VerifyError when a rule gives values of other types than the node had.
    """
    g, m = Graph(graph.name), _copy_sources(graph)
    g.inputs = [m[v] for v in graph.inputs]
    for c in graph.constants.values():
        g.constants[c.name] = type(c)(c.name, m[c.value], c.data)
    for s in graph.states.values():
        g.states[s.name] = type(s)(s.name, m[s.read])
    for n in graph.nodes:
        made = rule(g, n, [None if v is None else m[v] for v in n.inputs])
        if made is None:
            made = copy_node(g, n, m).outputs
        if [v.type for v in made] != [v.type for v in n.outputs]:
            raise VerifyError(f"graph {graph.name}: {n.op} was replaced by values of types {[v.type for v in made]}")
        m.update(zip(n.outputs, made))
    g.take_results(graph, m)
    return g


def _copy_sources(graph: Graph) -> dict[Value, Value]:
    return {v: Value(v.type, v.name) for v in graph.sources()}


SMALL = 64  # elements of constants that are compared, at most


def equal_values(graph: Graph) -> dict[Value | None, Value | None]:
    """For each value that is what an earlier one is, that one: results of equal calls on equal inputs, and equal small constants."""
    table: dict[Value | None, Value | None] = {}
    by_data: dict[tuple, Value] = {}
    for c in graph.constants.values():
        if c.data is not None and c.data.size <= SMALL:
            first = by_data.setdefault((c.value.type, c.data.tobytes()), c.value)
            if first is not c.value:
                table[c.value] = first
    seen: dict[tuple, list[Value]] = {}
    for n in graph.nodes:
        inputs = tuple(id(table.get(v, v)) for v in n.inputs)
        earlier = seen.setdefault((n.op, inputs, tuple((k, attr_key(a)) for k, a in n.attrs.items())), n.outputs)
        if earlier is not n.outputs:
            table.update(zip(n.outputs, earlier))
    return table


def inline(graph: Graph, inner: Graph, inputs: Sequence[Value], before: Node | None = None) -> list[Value]:
    """Adds the nodes of `inner`, fed with `inputs`, to `graph`, and returns its outputs there. `inner` has no states; its
    constants become constants of `graph`, under a new name where theirs is taken."""
    if inner.states or [v.type for v in inputs] != [v.type for v in inner.inputs]:
        raise VerifyError(f"graph {inner.name} does not take {[v.type for v in inputs]}, or has states")
    m = dict(zip(inner.inputs, inputs))
    taken = {v.name for v in graph.sources()}
    for c in inner.constants.values():
        name, i = c.name, 0
        while name in taken:
            i += 1
            name = f"{c.name}.{i}"
        taken.add(name)
        m[c.value] = graph.add_constant(name, c.data, c.value.type)
    for n in inner.nodes:
        made = copy_node(graph, n, m)
        if before is not None:
            graph.nodes.remove(made)
            graph.nodes.insert(graph.nodes.index(before), made)
        m.update(zip(n.outputs, made.outputs))
    return [m[v] for v in inner.outputs]


def with_constants_named(graph: Graph, named: Callable[[str], str]) -> Graph:
    """A copy whose constants, at any depth, have the names that `named` gives for theirs."""
    g = graph.copy()
    for inner in g.graphs():
        constants, inner.constants = list(inner.constants.values()), {}
        for c in constants:
            c.name = c.value.name = named(c.name)
            inner.constants[c.name] = c
    return g


def live_nodes(graph: Graph, results: Sequence[Value] | None = None) -> set[Node]:
    """The nodes that some values depend on; default: all results of the graph."""
    live: set[Node] = set()
    stack = [v.node for v in (graph.results() if results is None else results)]
    while stack:
        n = stack.pop()
        if n is not None and n not in live:
            live.add(n)
            stack.extend(v.node for v in n.inputs if v is not None)
    return live


def sort_nodes(graph: Graph) -> None:
    """Brings the nodes into an order in which they can run, with as few moves as that takes: nodes that are ready stay in
    the order they have. VerifyError when they form a circle."""
    made = set(graph.sources())
    waiting: dict[Node, int] = {}
    readers: dict[Value, list[Node]] = {}
    order: list[Node] = []

    def run(n: Node) -> None:
        stack = [n]
        while stack:
            x = stack.pop()
            order.append(x)
            for v in x.outputs:
                made.add(v)
                for r in reversed(readers.pop(v, [])):
                    waiting[r] -= 1
                    if not waiting[r]:
                        stack.append(r)

    for n in graph.nodes:
        missing = {v for v in n.inputs if v is not None and v not in made}
        waiting[n] = len(missing)
        for v in missing:
            readers.setdefault(v, []).append(n)
        if not missing:
            run(n)
    if len(order) != len(graph.nodes):
        rest = len(graph.nodes) - len(order)
        raise VerifyError(f"graph {graph.name}: {rest} nodes form a circle, or read values of another graph")
    graph.nodes[:] = order
