"""Edits of graphs that happen whole or not at all: types derived again, rules verified, everything put back when one fails.

In: a graph, and a block that changes it in place. Out: the changed graph, which verifies, or an error and the graph as it was. The
public class with the edits' names is `tengen.Graph` (`deploy/graphs.py`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from tengen.base.errors import TengenError, VerifyError
from tengen.ir.graph import Check, Graph, Node, Value, attr_graphs, attrs_key, copy_node
from tengen.ir.rewrite import live_nodes, sort_nodes
from tengen.ir.text import labels
from tengen.ir.types import TensorType
from tengen.ir.verify import Infer, describe, verify

Types = Sequence["TensorType | None"]
# (op, input types, attributes as an edit left them, input types before the edit where it left the attributes as they were) -> (attributes in
# canonical form, output types)
Derive = Callable[[str, Types, "dict[str, Any]", "Types | None"], "tuple[dict[str, Any], Sequence[TensorType]]"]
_GRAPH = ("name", "inputs", "constants", "states", "nodes", "outputs", "output_names", "checks")


def _fields(x: Any) -> tuple[str, ...]:
    return _GRAPH if isinstance(x, Graph) else type(x).__slots__


def _shallow(x: Any) -> Any:
    return x.copy() if isinstance(x, (list, dict)) else x


class Snapshot:
    """What a graph, and those in its attributes, were made of at a moment.

    Attributes: nodes: what each node computed then: op, inputs with their types, attributes.
    """

    def __init__(self, graph: Graph):
        self.kept: list[tuple[Any, dict[str, Any]]] = []
        self.nodes: dict[Node, Any] = {}
        for g in graph.graphs():
            parts: Iterable[Any] = (g, *g.values(), *g.constants.values(), *g.states.values(), *g.nodes, *g.checks)
            self.kept += [(x, {f: _shallow(getattr(x, f)) for f in _fields(x)}) for x in parts]
            self.nodes.update((n, _meaning(n)) for n in g.nodes)

    def restore(self) -> None:
        """Puts everything back, so that values and nodes that somebody holds are those of the graph again."""
        for x, fields in self.kept:
            for name, value in fields.items():
                setattr(x, name, _shallow(value))


def _meaning(n: Node) -> Any:
    return n.op, tuple(n.inputs), tuple(v and v.type for v in n.inputs), attrs_key(n.attrs)


@contextlib.contextmanager
def editing(graph: Graph, derive: Derive, infer: Infer) -> Iterator[None]:
    """The block's changes to a graph, as one edit: afterwards nodes are in an order in which they run, the types of what was changed
    and of what follows from it are derived again, and every rule is verified. On any error the graph is as it was before.

    Errors: VerifyError that names the node and the reason; what the block raises.
    """
    before = Snapshot(graph)
    try:
        yield
        settle(graph, derive, before.nodes)
        verify(graph, infer)
    except BaseException:
        before.restore()
        raise


def settle(graph: Graph, derive: Derive, known: dict[Node, Any]) -> bool:
    """Sorts the nodes and derives the types of those that are not as they were; says whether anything changed."""
    changed = len(graph.nodes) != sum(n in known for n in graph.nodes)
    sort_nodes(graph)
    for i, n in enumerate(graph.nodes):
        stale = known.get(n) != _meaning(n)
        for inner in attr_graphs(n.attrs):
            stale |= settle(inner, derive, known)
        if not stale:
            continue
        changed = True
        op, _, before, attrs = known.get(n, (None, (), (), None))
        try:
            n.attrs, types = derive(
                n.op, [None if v is None else v.type for v in n.inputs], n.attrs, before if (op, attrs) == (n.op, attrs_key(n.attrs)) else None
            )
        except TengenError as e:
            raise VerifyError(f"graph {graph.name}, node {i}, {describe(n)}: {e}") from e
        if len(types) != len(n.outputs):
            raise VerifyError(f"graph {graph.name}, node {i}, {describe(n)}: it gives {len(types)} values, and had {len(n.outputs)}")
        for v, t in zip(n.outputs, types):
            v.type = t
    return changed


# ---- parts of graphs -------------------------------------------------------------------------------------------------------


def owner(graph: Graph, x: Node | Value) -> Graph:
    """The graph that a node or value is of: this one, or one in its attributes. VerifyError where it is of neither."""
    for g in graph.graphs():
        if x in (g.nodes if isinstance(x, Node) else list(g.values())):
            return g
    what = describe(x) if isinstance(x, Node) else repr(x)
    raise VerifyError(f"graph {graph.name}: {what} is not in it; help: find() gives its nodes, values() its values")


def readers(graph: Graph, v: Value) -> list[str]:
    """Who reads a value, as messages name them."""
    found = [describe(n) for n in graph.nodes if v in n.inputs]
    found += [f"the output {name!r}" for name, o in zip(graph.output_names, graph.outputs) if o is v]
    found += [f"the state {s.name!r}" for s in graph.states.values() if s.written is v]
    return found + [f"a check ({c.error})" for c in graph.checks if c.bad is v]


def between(graph: Graph, inputs: Sequence[Value], outputs: Sequence[tuple[str, Value]], name: str) -> Graph:
    """A new graph that computes `outputs` from `inputs`, with the nodes, constants and states that lie between.

    Errors: VerifyError where an output needs another input of the graph.
    """
    g, mapping, cut = Graph(name), {}, set(inputs)
    names = labels(graph)
    needed, stack = set(), [v for _, v in outputs]
    while stack:
        v = stack.pop()
        if v not in needed:
            needed.add(v)
            if v not in cut and v.node is not None:
                stack.extend(x for x in v.node.inputs if x is not None)
    for v in inputs:
        mapping[v] = g.add_input(names[v], v.type)
    for c in graph.constants.values():
        if c.value in needed - cut:
            mapping[c.value] = g.add_constant(c.name, c.data, c.value.type)
    for s in graph.states.values():
        if s.read in needed - cut:
            mapping[s.read] = g.add_state(s.name, s.read.type)
    lost = next((v for v in graph.inputs if v in needed - cut), None)
    if lost is not None:
        raise VerifyError(f"graph {graph.name}: the part needs the input {lost.name!r} ({lost.type}) too; help: name it among the inputs")
    made = {v.node for v in needed - cut}
    for n in graph.nodes:
        if n in made:
            copied = copy_node(g, n, mapping)
            mapping.update((a, b) for a, b in zip(n.outputs, copied.outputs) if a not in cut)
    for s in graph.states.values():  # what a state becomes belongs to the part if all that it is made of does
        if s.name in g.states and s.written in mapping:
            g.states[s.name].written = mapping[s.written]
    for name, v in outputs:
        g.add_output(name, mapping[v])
    g.checks = [Check(mapping[c.bad], c.error, c.message, c.where) for c in graph.checks if c.bad in mapping]
    return g


def append(graph: Graph, other: Graph, fed: dict[Value, Value]) -> dict[Value, Value]:
    """Adds all of `other` to `graph`: its inputs are the values that `fed` has for them, else inputs of their names; names that are taken
    get a number. Returns the value here for each value there. Results of `other` other than states and checks are not made outputs."""
    taken = {v.name for v in graph.sources()} | {c for g in graph.graphs() for c in g.constants}
    mapping = dict(fed)
    for v in other.inputs:
        if v not in fed:
            mapping[v] = graph.add_input(free(v.name, taken), v.type)
    for c in other.constants.values():
        mapping[c.value] = graph.add_constant(free(c.name, taken), c.data, c.value.type)
    for s in other.states.values():
        mapping[s.read] = graph.add_state(free(s.name, taken), s.read.type)
    for n in other.nodes:
        copied = copy_node(graph, n, mapping)
        for inner in attr_graphs(copied.attrs):
            for g in inner.graphs():
                constants, g.constants = list(g.constants.values()), {}
                for c in constants:
                    c.name = c.value.name = free(c.name, taken)
                    g.constants[c.name] = c
        mapping.update(zip(n.outputs, copied.outputs))
    for s in other.states.values():
        graph.states[mapping[s.read].name].written = None if s.written is None else mapping[s.written]
    graph.checks += [Check(mapping[c.bad], c.error, c.message, c.where) for c in other.checks]
    return mapping


def free(name: str, taken: set[str]) -> str:
    """A name that is not taken, which now is."""
    found, i = name, 0
    while found in taken:
        i += 1
        found = f"{name}.{i}"
    taken.add(found)
    return found


def dead(graph: Graph) -> set[Any]:
    """The nodes, constants and states that no result needs."""
    live = live_nodes(graph)
    read = {v for n in live for v in n.inputs} | set(graph.results())
    found: set[Any] = {n for n in graph.nodes if n not in live}
    found |= {c for c in graph.constants.values() if c.value not in read}
    return found | {s for s in graph.states.values() if s.read not in read and s.written in (None, s.read)}


def remove(graph: Graph, gone: set[Any]) -> None:
    """Removes nodes, constants and states."""
    graph.nodes = [n for n in graph.nodes if n not in gone]
    graph.constants = {k: c for k, c in graph.constants.items() if c not in gone}
    graph.states = {k: s for k, s in graph.states.items() if s not in gone}


def by_name(parts: Iterable[Any]) -> dict[str, Any]:
    """Constants, or states, by their names. Errors: VerifyError where two have one."""
    found = list(parts)
    if len({p.name for p in found}) != len(found):
        raise VerifyError(f"a name is given twice: {', '.join(sorted(p.name for p in found))}")
    return {p.name: p for p in found}
