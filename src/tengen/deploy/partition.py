"""A graph cut into parts: which nodes go together, and the graph of some nodes alone.

In: a graph, and for each of its nodes who computes it. Out: convex parts in an order in which they can run: no path leaves a part and
comes back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tengen.ir.graph import Check, Graph, Node, Value, copy_node


def parts_of(graph: Graph, owners: Mapping[Node, Any]) -> list[tuple[Any, list[Node]]]:
    """(owner, nodes) of each part, in an order in which they run.

    A node's rank is the number of times that the owner changes on the way to it, on the path with the most changes. Along a path ranks
    never fall, and grow where the owner changes: nodes of one rank and owner are a convex part.
    """
    ranks: dict[Node, int] = {}
    found: dict[tuple[int, Any], list[Node]] = {}
    for n in graph.nodes:
        before = [v.node for v in n.inputs if v is not None and v.node is not None]
        ranks[n] = max((ranks[m] + (owners[m] != owners[n]) for m in before), default=0)
        found.setdefault((ranks[n], owners[n]), []).append(n)
    order = sorted(found, key=lambda key: key[0])  # stable: parts of one rank do not read one another
    return [(owner, found[rank, owner]) for rank, owner in order]


def subgraph(graph: Graph, nodes: Sequence[Node], name: str) -> tuple[Graph, list[Value], list[Value]]:
    """(the graph of these nodes, the values of `graph` that it takes, those that it gives). Constants are its own, as are checks of
    values that it makes; what it gives is read by others, or leaves the graph."""
    inside, g = set(nodes), Graph(name)
    constants = {c.value: c for c in graph.constants.values()}
    made: dict[Value, Value] = {}
    taken: list[Value] = []
    for n in nodes:
        for v in n.inputs:
            if v is None or v in made:
                continue
            if v in constants:
                made[v] = g.add_constant(constants[v].name, constants[v].data, v.type)
            else:
                taken.append(v)
                made[v] = g.add_input(f"in{len(taken) - 1}", v.type)
        made.update(zip(n.outputs, copy_node(g, n, made).outputs))
    own = [c for c in graph.checks if c.bad.node in inside]
    g.checks = [Check(made[c.bad], c.error, c.message, c.where) for c in own]
    leaving = set(graph.outputs)
    for n in graph.nodes:
        if n not in inside:
            leaving.update(v for v in n.inputs if v is not None)
    given = [v for n in nodes for v in n.outputs if v in leaving]
    for i, v in enumerate(given):
        g.add_output(f"out{i}", made[v])
    return g, taken, given
