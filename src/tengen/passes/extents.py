"""Open extents: what a graph's symbols are, and the graph with numbers in their place.

In: a graph some of whose extents are names (``f32[batch,3,224,224]``), numbers for the names. Out: the graph of these numbers,
whose types are all derived again: where a name hid that shapes do not fit, this finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tengen.base.errors import ShapeError, SizeError, TengenError, VerifyError
from tengen.ir.graph import Constant, Graph, Node, State, Value, attr_extents, map_attr
from tengen.ir.types import TensorType
from tengen.loops.extents import Numbers
from tengen.loops.lang import Expr
from tengen.ops.define import lookup


def infer(name: str, types: list[TensorType | None], attrs: dict[str, Any]) -> Sequence[TensorType]:
    """The types that a node's outputs must have: by the op's rule, or what the body of a fused node gives."""
    if name != "fused":
        return lookup(name).infer_types(types, attrs)
    body: Graph = attrs["body"]
    wants = [v.type for v in body.inputs]
    if wants != types:
        raise VerifyError(f"the body takes {wants}, the node gives {types}")
    return [v.type for v in body.outputs]


KERNELS_OWN = {"piece"}


def open_extents(graph: Graph) -> list[Expr]:
    """The symbols of a graph in order: extents of its inputs that are names.

    >>> from tengen.ir.text import parse_graph
    >>> open_extents(parse_graph("graph g(x: f32[batch,3]):\\n    return y = x\\n"))
    [batch]
    """
    found = {d: None for v in graph.inputs for d in v.type.shape if isinstance(d, Expr) and d.op == "var"}
    return list(found)


def check_name(name: str) -> None:
    """VerifyError unless an open extent can have this name: an identifier that kernels do not use themselves."""
    if not name.isidentifier() or name.startswith("_") or name in KERNELS_OWN:
        raise VerifyError(f"an open extent cannot be called {name[:60]!r}")


def check_symbols(graph: Graph) -> None:
    """VerifyError where extents or attributes hold symbols that are no extents of inputs, or states are not of one size."""
    known = set(open_extents(graph))
    for e in known:
        check_name(str(e.attr))
    for s in graph.states.values():
        if any(isinstance(d, Expr) for d in s.read.type.shape):
            raise VerifyError(f"the state {s.name!r} has an open extent")
    seen: set[Expr] = set()
    for g in graph.graphs():
        dims = [d for v in g.values() for d in v.type.shape if isinstance(d, Expr)]
        stack = dims + [e for n in g.nodes for e in attr_extents(n.attrs)]
        while stack:
            e = stack.pop()
            if e.op == "var" and e not in known:
                raise VerifyError(f"the extent {e!r} is no extent of an input")
            stack += [a for a in e.args if a not in seen]
            seen.update(e.args)


def extents_of(types: Sequence[TensorType], shapes: Sequence[Sequence[int]], names: Sequence[str]) -> dict[str, int]:
    """The numbers of the open extents in tensors of these shapes, which are to have these types.

    Args:
        names: of the tensors, for messages.

    Errors: ShapeError where a shape does not fit its type, or two do not agree on an extent.
    """
    found: dict[str, int] = {}
    first: dict[str, str] = {}
    for t, shape, name in zip(types, shapes, names):
        if len(shape) != t.ndim or any(isinstance(d, int) and d != n for d, n in zip(t.shape, shape)):
            raise ShapeError(f"{name} is {t!r}, it was given the shape {tuple(shape)}")
        for d, n in zip(t.shape, shape):
            if isinstance(d, Expr) and found.setdefault(str(d.attr), n) != n:
                e = str(d.attr)
                raise ShapeError(f"{e} is {found[e]} in {first[e]} and {n} in {name}; help: what has one name is one number")
            if isinstance(d, Expr):
                first.setdefault(str(d.attr), name)
    return found


def at_extents(graph: Graph, extents: Mapping[str, int]) -> Graph:
    """The graph for these numbers.

    Errors: ShapeError, which names the op and the user's line, where shapes do not fit with them; SizeError for an extent that
    does not fit 63 bits, is negative or divides by zero, and for a value of more bytes than any machine has.
    """
    if not open_extents(graph):
        return graph
    number = Numbers({d: extents[str(d.attr)] for d in open_extents(graph)})

    def value(v: Value, n: Node | None = None) -> Value:
        try:
            return Value(TensorType(tuple(map(number, v.type.shape)), v.type.dtype), v.name)
        except SizeError as e:
            what = f"{v.name!r}" if n is None else n.op
            raise SizeError(f"with {_given(extents)}: {what}: {e}{_line(n)}") from None

    def attribute(a: Any) -> Any:
        return number(a) if isinstance(a, Expr) else inside(a) if isinstance(a, Graph) else a

    def attributes(n: Node) -> dict[str, Any]:
        made = {k: map_attr(a, attribute) for k, a in n.attrs.items()}
        for k, a in n.attrs.items():
            if isinstance(a, Expr) and (kind := lookup(n.op).kinds.get(k)) is not None:
                made[k] = kind.decided(made[k], k)
        return made

    def inside(old: Graph) -> Graph:
        m = {v: value(v) for v in old.sources()}
        g = Graph(old.name, [m[v] for v in old.inputs])
        g.constants = {c.name: Constant(c.name, m[c.value], c.data) for c in old.constants.values()}
        g.states = {s.name: State(s.name, m[s.read]) for s in old.states.values()}
        for n in old.nodes:
            try:
                attrs = attributes(n)
            except SizeError as e:
                raise SizeError(f"with {_given(extents)}: {n.op}: {e}{_line(n)}") from None
            inputs = [None if v is None else m[v] for v in n.inputs]
            made = [value(v, n) for v in n.outputs]
            if attrs != n.attrs or any(v.type is not w.type for v, w in zip((*inputs, *made), (*n.inputs, *n.outputs)) if w is not None):
                _check(n, inputs, attrs, made, extents)
            node = g.add_node(n.op, inputs, attrs, [v.type for v in made], n.where, [v.name for v in made])
            m.update(zip(n.outputs, node.outputs))
        g.take_results(old, m)
        return g

    return inside(graph)


def check_other_extents(graph: Graph, extents: Mapping[str, int], serves: Callable[[Mapping[str, int]], bool]) -> None:
    """ShapeError where shapes do not fit with these numbers, or neither with the next ones nor with twice these: what fits by chance is
    found when it is recorded, and what fits only multiples is not refused. serves: whether the graph is for these numbers."""
    at_extents(graph, extents)
    failed: list[ShapeError] = []
    others = [{name: n + 1 for name, n in extents.items()}, {name: 2 * n for name, n in extents.items()}]
    for numbers in filter(serves, others):
        try:
            at_extents(graph, numbers)
            return
        except ShapeError as e:
            failed.append(e)
    if failed:
        raise failed[0] from None


def _given(extents: Mapping[str, int]) -> str:
    return ", ".join(f"{k} = {v}" for k, v in extents.items())


def _line(n: Node | None) -> str:
    return "" if n is None or n.where is None else f" [at {n.where}]"


def _check(n: Node, inputs: Sequence[Value | None], attrs: dict, made: Sequence[Value], extents: Mapping[str, int]) -> None:
    """ShapeError unless the op's own rules say the same of these numbers."""
    types = [None if v is None else v.type for v in inputs]
    given, line = _given(extents), _line(n)
    try:
        if n.op != "fused" and lookup(n.op).canonical(types, tuple(attrs.values())) != attrs:
            raise ShapeError(f"{n.op} has other attributes than {attrs}")
        derived = list(infer(n.op, types, attrs))
    except TengenError as e:
        raise (SizeError if isinstance(e, SizeError) else ShapeError)(f"with {given}: {e}{line}") from None
    wanted = [v.type for v in made]
    if derived != wanted:
        raise ShapeError(f"with {given}: {n.op} gives {derived}, the program was recorded for {wanted}{line}")
