"""Graphs inside of nodes: the bodies of loops and branches.

A pass brings them through the passes from graph to graph, and takes their constants out, which become operands of the node, so
that the program has one place for constants. `lower_graph` is called by the op's lowering, inside of the loop or the branch: it
launches what the body computes, from arrays to arrays. What a loop carries is for its body a state: the new value is computed
over the old one where nothing reads that any more, and copied where something does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tengen.ir.graph import Graph, Node, State, Value, attr_graphs
from tengen.ir.rewrite import with_constants_named
from tengen.kernels.lowering import Array, Lowering
from tengen.kernels.pointwise import copy
from tengen.passes.inplace import behind_views, destinations, in_logical_order, over_operands
from tengen.passes.layout import assign_layouts

LowerNode = Callable[[Lowering, Node, dict, dict, dict], None]


def optimize_regions(graph: Graph, optimize: Callable[[Graph], Graph]) -> Graph:
    """The bodies of loops and branches, optimised; their constants are the graph's.

    before: ``%y = scan(%h, %x, body={ %c: const; ... add(%h, %c) ... })``
    after:  ``%y = scan(%h, %x, %c, body={ %c: input; ... add(%h, %c) ... })``, with %c a constant of the graph
    """
    g = graph.copy()
    for i, n in enumerate(g.nodes):
        if n.op == "fused" or not attr_graphs(n.attrs):
            continue
        n.attrs = {k: _own(optimize(a), f"{n.op}{i}.{k}") if isinstance(a, Graph) else a for k, a in n.attrs.items()}
        bodies = attr_graphs(n.attrs)
        for body in bodies:
            for name, c in list(body.constants.items()):
                n.inputs.append(g.add_constant(name, c.data, c.value.type))
                del body.constants[c.name]
                body.inputs.append(c.value)
                for other in bodies:
                    if other is not body:
                        other.add_input(name, c.value.type)
    return g


def _own(body: Graph, prefix: str) -> Graph:
    """The body with names for its constants that no other graph around it has."""
    return with_constants_named(body, lambda name: f"{prefix}.{name}")


def lower_graph(lo: Lowering, graph: Graph, carried: int, ins: Sequence[Array], outs: Sequence[Array], lower_node: LowerNode) -> None:
    """Launches what a graph without constants computes.

    Args:
        carried: of the first so many inputs and outputs, the arrays are the same: the values before and after. ins, outs: where
            inputs lie, in any strides, and where outputs go, dense. lower_node: launches a node.
    """
    g = _with_states(graph, carried)
    states = [s.read for s in g.states.values()]
    env: dict[Value, Array] = dict(zip([*states, *g.inputs], ins))
    place = {("out", i): a for i, a in enumerate(outs[carried:])} | {("state", s.name): env[s.read] for s in g.states.values()}
    wanted = destinations(g)
    lies = assign_layouts(g, env, in_logical_order(g, wanted, True))
    behind_views(g, lies, wanted, True)

    def temp(v: Value) -> tuple:
        place["temp", len(place)] = lo.temp(v.type.dtype, v.type.shape)
        return list(place)[-1]

    over_operands(g, lies, wanted, temp)
    for v, id in wanted.items():
        lies[v] = replace(lies[v], offset=place[id].offset)
    ids = {v: place[id].id for v, id in wanted.items()}
    nodes = dict(lo.nodes)
    for n in g.nodes:
        lower_node(lo, n, env, ids, lies)
    lo.nodes = nodes  # the node around it is launched as a whole
    for v, a in zip(g.outputs, outs[carried:]):
        _move(lo, env[v], a, "write_output")
    moves = [(env[s.written], env[s.read]) for s in g.states.values() if s.written is not None]
    for i, (new, own) in enumerate(moves):
        if new.id in {a.id for _, a in moves if a is not own}:  # two states are exchanged
            saved = lo.temp(new.dtype, new.shape)
            copy(lo, new, saved, "save_state")
            moves[i] = saved, own
    for new, own in moves:
        _move(lo, new, own, "write_state")


def _with_states(graph: Graph, carried: int) -> Graph:
    """The graph with its first inputs as states, whose new values are its first outputs."""
    g = graph.copy()
    for v, written in zip(g.inputs[:carried], g.outputs):
        g.states[v.name] = State(v.name, v, None if written is v else written)
    del g.inputs[:carried], g.outputs[:carried], g.output_names[:carried]
    return g


def _move(lo: Lowering, a: Array, to: Array, name: str) -> None:
    if (a.id, a.strides, a.offset) != (to.id, to.strides, to.offset):
        copy(lo, a, to, name)
