"""Constant folding: what depends on constants alone is computed once, when the program is compiled.

The evaluator is handed in, because running things belongs to a floor above: it is the compiler itself, so folding keeps the
bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from tengen.ir.graph import Graph, Node, Value, attr_extents, copy_node
from tengen.kernels.source import Literal, costs
from tengen.loops.lang import Expr
from tengen.ops.define import lookup

SMALL_ELEMENTS = 1024  # elements; a larger result must not be larger than what it is made of (a broadcast is better left alone),
LARGE_ELEMENTS = 1 << 20  # but for tables that take calls of mathematical functions, such as sines of all positions by all frequencies

Evaluate = Callable[[Graph], Sequence[np.ndarray]]


def fold_constants(graph: Graph, evaluate: Evaluate) -> Graph:
    """Replaces nodes whose inputs are all known by constants.

    before: ``v0 = rsqrt(c0); v1 = mul(x, v0); return v1``
    after:  ``v0 = mul(x, folded0); return v0``
    """
    g = graph.copy()
    known = _known_nodes(g)
    if not known:
        return g
    outside = {v for n in g.nodes if id(n) not in known for v in n.inputs} | set(g.results())
    wanted = [v for n in g.nodes if id(n) in known for v in n.outputs if v in outside]
    table: dict[Value | None, Value | None] = dict(zip(wanted, _replacements(g, known, wanted, evaluate)))
    g.nodes = [n for n in g.nodes if id(n) not in known]
    for n in g.nodes:
        n.inputs = [table.get(v, v) for v in n.inputs]
    g.redirect_results(table)
    return g


def _known_nodes(g: Graph) -> set[int]:
    """Nodes to fold: their inputs are known, their results not larger, or tables; views at the end of such a chain cost nothing and stay."""
    values: set[Value] = {c.value for c in g.constants.values() if c.data is not None}
    nodes: list[Node] = []
    grown: dict[Value, bool] = {}  # values that are larger than what they are made of, or made of such: whether a function is called for them
    for n in g.nodes:
        ins = [v for v in n.inputs if v is not None]
        size, most = max(map(_size, n.outputs), default=0), max(SMALL_ELEMENTS, sum(map(_size, ins)))
        grows = most < size <= LARGE_ELEMENTS and lookup(n.op).kind == "elementwise"
        if all(v in values for v in ins) and not attr_extents(n.attrs) and (size <= most or grows):
            values.update(n.outputs)
            nodes.append(n)
            before = [grown[v] for v in ins if v in grown]
            if grows or before:
                grown.update(dict.fromkeys(n.outputs, any(before) or _calls(n)))
    kept = {id(n) for n in nodes}
    users = g.users()
    for n in reversed(nodes):
        if not grown.get(n.outputs[0], True) and not any(id(u) in kept for u in users[n.outputs[0]]):
            kept.discard(id(n))
        shows = n.inputs and n.inputs[0] is not None and n.inputs[0].type.dtype is n.outputs[0].type.dtype  # not a part of a number
        if shows and lookup(n.op).kind == "view" and not any(id(u) in kept for u in users[n.outputs[0]]):
            kept.discard(id(n))
    return kept


def _calls(n: Node) -> bool:
    """Whether a node computes elements by a mathematical function."""
    op = lookup(n.op)
    if op.kind != "elementwise":
        return False
    zeros = [None if v is None else Literal(0, v.type.dtype, v.type.shape) for v in n.inputs]
    return costs(op.make_source(zeros, n.outputs[0].type, n.attrs))


def _size(v: Value) -> int:
    return 1 << 62 if any(isinstance(d, Expr) for d in v.type.shape) else prod(v.type.shape)


def _replacements(g: Graph, known: set[int], wanted: Sequence[Value], evaluate: Evaluate) -> list[Value]:
    inner = Graph("constants")
    table: dict[Value, Value] = {}
    read = {v for n in g.nodes if id(n) in known for v in n.inputs}
    for c in g.constants.values():
        if c.value in read:
            table[c.value] = inner.add_constant(c.name, c.data, c.value.type)
    for n in g.nodes:
        if id(n) in known:
            table.update(zip(n.outputs, copy_node(inner, n, table).outputs))
    for i, v in enumerate(wanted):
        inner.add_output(f"y{i}", table[v])
    taken = set(g.constants) | set(g.states) | {v.name for v in g.inputs}
    names = [f"folded{i}" for i in range(len(wanted) + len(taken)) if f"folded{i}" not in taken]
    return [g.add_constant(name, data, v.type) for name, data, v in zip(names, evaluate(inner), wanted)]
