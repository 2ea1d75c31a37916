"""A recorded program: values, the nodes that make them, and named state.

    g = Graph("step")
    x = g.add_input("x", TensorType((4, 3), "float32"))
    w = g.add_state("w", TensorType((3, 2), "float32"))
    h = g.add_node("matmul", [x, w], {}, [TensorType((4, 2), "float32")]).outputs[0]
    g.add_output("h", h)

A graph is plain data. It knows no op: rules and meanings are in `ops/`, changes in `passes/`.
Read next: `verify.py` (what a graph must obey), `text.py` (how it is written down).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from tengen.base.dtype import DType
from tengen.base.errors import VerifyError
from tengen.base.record import record
from tengen.ir.types import TensorType
from tengen.loops.lang import Expr


@record(eq=False, slots=True)
class Value:
    """One tensor of a program, made once.

    Attributes:
        type: its shape and dtype.
        name: a hint for people; the names of inputs, constants and states are binding and unique.
        node, index: which output of which node it is; node is None for inputs, constants and states.
    """

    type: TensorType
    name: str = ""
    node: Node | None = None
    index: int = 0

    def __repr__(self) -> str:
        return f"<{self.name or 'value'}: {self.type}>"


@record(eq=False, slots=True)
class Node:
    """One application of an op. An input that an op may do without (a bias) can be None.

    Attributes:
        attrs: plain data: None, bool, int, float, str, DType, an int64 `Expr` (an extent), a Graph, or tuples of these.
        where: the user's "file:line", for messages; no part of what the node is.
    """

    op: str
    inputs: list[Value | None]
    attrs: dict[str, Any]
    outputs: list[Value]
    where: str | None = None

    def __repr__(self) -> str:
        ins = ", ".join("none" if v is None else str(v.type) for v in self.inputs)
        return f"<node {self.op}({ins})>"


@record(eq=False, slots=True)
class State:
    """A named tensor that outlives a run: `read` is its value at the start, `written` (None: unchanged) at the end."""

    name: str
    read: Value
    written: Value | None = None


@record(eq=False, slots=True)
class Constant:
    """A tensor that is known; `data` may be None in a graph whose data is kept apart."""

    name: str
    value: Value
    data: np.ndarray | None


@record(eq=False, slots=True)
class Check:
    """What a run must not meet: it raises `error` (a class of `base/errors.py`) with `message` where `bad`, a bool[], is true.

    Attributes:
        where: the user's "file:line" of the op whose operand is looked at.
    """

    bad: Value
    error: str
    message: str
    where: str | None = None


@record(eq=False, slots=True)
class Graph:
    """A program: nodes in an order in which they can run, between inputs and states on one side, outputs on the other.

    Attributes:
        constants, states: by name. outputs, output_names: side by side. checks: looked at after a run.
    """

    name: str
    inputs: list[Value] = field(default_factory=list)
    constants: dict[str, Constant] = field(default_factory=dict)
    states: dict[str, State] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    output_names: list[str] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"<graph {self.name}: {len(self.inputs)} inputs, {len(self.nodes)} nodes, {len(self.outputs)} outputs>"

    # -- building ------------------------------------------------------------------------------------------------------
    def _new_name(self, name: str) -> None:
        if name in self.constants or name in self.states or any(v.name == name for v in self.inputs):
            raise VerifyError(f"graph {self.name}: the name {name!r} is given twice")

    def add_input(self, name: str, type: TensorType) -> Value:
        """A new input; VerifyError when the name is taken by an input, constant or state."""
        self._new_name(name)
        self.inputs.append(Value(type, name))
        return self.inputs[-1]

    def add_constant(self, name: str, data: np.ndarray | None, type: TensorType | None = None) -> Value:
        """A new constant of the type of `data`; `type` is needed only when the data is kept apart (None)."""
        self._new_name(name)
        if type is None:
            if data is None:
                raise VerifyError(f"graph {self.name}: constant {name!r} has neither data nor type")
            type = TensorType(data.shape, data.dtype)
        self.constants[name] = Constant(name, Value(type, name), data)
        return self.constants[name].value

    def add_state(self, name: str, type: TensorType) -> Value:
        """A new state; returns its value at the start of a run."""
        self._new_name(name)
        self.states[name] = State(name, Value(type, name))
        return self.states[name].read

    def set_state(self, name: str, value: Value | None) -> None:
        """The value that a state has after a run."""
        self.states[name].written = value

    def add_node(
        self, op: str, inputs: Sequence[Value | None], attrs: Mapping[str, Any], out_types: Sequence[TensorType],
        where: str | None = None, names: Sequence[str] = (), before: Node | None = None,
    ) -> Node:  # fmt: skip
        """A new node at the end (or before another one); its values are `.outputs`. Lists in attributes become tuples.

        Errors: VerifyError for an attribute that is not plain data.
        """
        node = Node(op, list(inputs), _plain_attributes(op, attrs), [], where)
        node.outputs = [Value(t, names[i] if i < len(names) else "", node, i) for i, t in enumerate(out_types)]
        if before is None:
            self.nodes.append(node)
        else:
            self.nodes.insert(self.nodes.index(before), node)
        return node

    def add_output(self, name: str, value: Value) -> None:
        """A new output; one value may be given out under several names."""
        if name in self.output_names:
            raise VerifyError(f"graph {self.name}: the output {name!r} is named twice")
        self.outputs.append(value)
        self.output_names.append(name)

    # -- looking -------------------------------------------------------------------------------------------------------
    def sources(self) -> list[Value]:
        """The values that no node makes: inputs, constants, states."""
        return [*self.inputs, *(c.value for c in self.constants.values()), *(s.read for s in self.states.values())]

    def values(self) -> Iterator[Value]:
        """Every value, before its first use."""
        yield from self.sources()
        for n in self.nodes:
            yield from n.outputs

    def output_types(self) -> list[TensorType]:
        """The types of the outputs, in order."""
        return [v.type for v in self.outputs]

    def results(self) -> list[Value]:
        """The values that leave the graph: outputs, what states become, and what checks look at."""
        written = (s.written for s in self.states.values() if s.written is not None)
        return [*self.outputs, *written, *(c.bad for c in self.checks)]

    def users(self) -> dict[Value, list[Node]]:
        """The nodes that read each value, in order, each once. Values that only leave the graph have none: see `results`."""
        table: dict[Value, list[Node]] = {v: [] for v in self.values()}
        for n in self.nodes:
            for v in dict.fromkeys(n.inputs):
                if v is not None:
                    table.setdefault(v, []).append(n)
        return table

    def graphs(self) -> Iterator[Graph]:
        """This graph and those inside its attributes, at any depth."""
        yield self
        for n in self.nodes:
            for g in attr_graphs(n.attrs):
                yield from g.graphs()

    def check_order(self) -> None:
        """VerifyError unless every node comes after what it reads."""
        known = set(self.sources())
        for n in self.nodes:
            for v in n.inputs:
                if v is not None and v not in known:
                    raise VerifyError(f"graph {self.name}: {n.op} reads {v!r}, which is not made before it")
            known.update(n.outputs)
        for v in self.results():
            if v not in known:
                raise VerifyError(f"graph {self.name}: the result {v!r} is not made in the graph")

    # -- changing ------------------------------------------------------------------------------------------------------
    def replace_value(self, old: Value, new: Value) -> None:
        """Every reader of `old`, and every result that it is, reads `new` instead."""
        for n in self.nodes:
            n.inputs = [new if v is old else v for v in n.inputs]
        self.redirect_results({old: new})

    def redirect_results(self, table: Mapping[Value, Value]) -> None:
        """Results are the values that the table has for them; checks of one value become one."""
        self.outputs = [table.get(v, v) for v in self.outputs]
        for s in self.states.values():
            if s.written is not None:
                s.written = table.get(s.written, s.written)
        for c in self.checks:
            c.bad = table.get(c.bad, c.bad)
        self.checks = list({c.bad: c for c in reversed(self.checks)}.values())[::-1]

    def take_results(self, other: Graph, mapping: Mapping[Value, Value]) -> None:
        """The results of another graph, looked up in `mapping`, under their names. This one has no outputs so far."""
        self.outputs = [mapping[v] for v in other.outputs]
        self.output_names = list(other.output_names)
        for s in other.states.values():
            self.states[s.name].written = None if s.written is None else mapping[s.written]
        self.checks += [Check(mapping[c.bad], c.error, c.message, c.where) for c in other.checks]

    def copy(self, mapping: dict[Value, Value] | None = None) -> Graph:
        """An equal graph that shares nothing that may change; constants share their arrays.

        Args:
            mapping: filled with the new value for each old one.
        """
        m: dict[Value, Value] = {} if mapping is None else mapping
        g = Graph(self.name)
        m.update((v, Value(v.type, v.name)) for v in self.sources())
        g.inputs = [m[v] for v in self.inputs]
        g.constants = {c.name: Constant(c.name, m[c.value], c.data) for c in self.constants.values()}
        g.states = {s.name: State(s.name, m[s.read]) for s in self.states.values()}
        for n in self.nodes:
            copied = copy_node(g, n, m)
            m.update(zip(n.outputs, copied.outputs))
        g.take_results(self, m)
        return g


# ---- graphs that are read later ----------------------------------------------------------------------------------------

_reading = threading.RLock()  # two threads may ask for the nodes of a graph at once


class UnreadGraph(Graph):
    """A graph without states and checks, which was found right when it was read before.

    Attributes:
        digest: what `program_cache.digest_of` gives for the graph, as long as its nodes are unread: who has them may change them. None from
            then on.

    Args:
        outputs: names and types. read: gives the graph, with these inputs and constants.
    """

    digest: str | None

    def __init__(
        self, name: str, inputs: list[Value], constants: dict[str, Constant], outputs: list[tuple[str, TensorType]],
        read: Callable[[], Graph], digest: str,
    ):  # fmt: skip
        super().__init__(name, inputs, constants, output_names=[name for name, _ in outputs])
        del self.nodes, self.outputs  # so that `__getattr__` is asked for them
        self._output_types = [t for _, t in outputs]
        self._read: Callable[[], Graph] | None = read
        self.digest = digest

    def __getattr__(self, name: str) -> Any:
        if name not in ("nodes", "outputs"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self.read()
        return getattr(self, name)

    def output_types(self) -> list[TensorType]:
        return self._output_types if self.digest is not None else super().output_types()

    def read(self) -> None:
        """Reads what is not there yet. Errors: those of the function that reads."""
        with _reading:
            if self._read is not None:
                whole = self._read()
                self._read = self.digest = None
                self.outputs, self.nodes = whole.outputs, whole.nodes


def copy_node(g: Graph, n: Node, mapping: Mapping[Value, Value]) -> Node:
    """Adds to `g` a node like `n` whose inputs are looked up in `mapping`; nested graphs are copied."""
    inputs = [None if v is None else mapping[v] for v in n.inputs]
    copied = lambda a: a.copy() if isinstance(a, Graph) else a
    attrs = {k: v if type(v) in _SIMPLE else map_attr(v, copied) for k, v in n.attrs.items()}
    return g.add_node(n.op, inputs, attrs, [v.type for v in n.outputs], n.where, [v.name for v in n.outputs])


# ---- attributes ------------------------------------------------------------------------------------------------------


def plain(value: Any, what: str = "attribute") -> Any:
    """An attribute in its one form: lists become tuples, NumPy's scalars Python's. VerifyError when it is no plain data."""
    if isinstance(value, (list, tuple)):
        return tuple(plain(v, what) for v in value)
    if isinstance(value, (np.bool_, np.integer, np.floating)):
        return value.item()
    if value is None or type(value) in (bool, int, float, str) or isinstance(value, (DType, Graph, Expr)):
        return value
    raise VerifyError(f"{what} is {value!r}, which is no plain data; help: numbers, strings, dtypes, graphs, tuples of these")


_SIMPLE = frozenset({bool, int, float, str, type(None)})  # types of most attributes


def _plain_attributes(op: str, attrs: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v if type(v) in _SIMPLE else plain(v, f"{op}: attribute {k}") for k, v in attrs.items()}


def map_attr(value: Any, f) -> Any:
    """`f` of every leaf of an attribute."""
    return tuple(map_attr(v, f) for v in value) if isinstance(value, tuple) else f(value)


def attr_key(value: Any, of_graph: Callable[[Graph], Hashable] = lambda g: g) -> Any:
    """A key under which exactly equal attributes are equal: 1, 1.0 and True differ, so do 0.0 and -0.0; a NaN equals itself.
    Graphs are equal only to themselves, or as their keys `of_graph` are."""
    if isinstance(value, tuple):
        return tuple(attr_key(v, of_graph) for v in value)
    if isinstance(value, Graph):
        return of_graph(value)
    if isinstance(value, (DType, Expr)):
        return value
    return (type(value).__name__, value.hex() if isinstance(value, float) else value)


def graph_key(g: Graph) -> Hashable:
    """A key under which graphs that compute the same are equal: names and the user's lines do not count, data does."""
    number: dict[Value | None, int] = {None: -1}
    for v in g.sources():
        number[v] = len(number)
    nodes = []
    for n in g.nodes:
        attrs = tuple((k, attr_key(a, graph_key)) for k, a in n.attrs.items())
        nodes.append((n.op, tuple(number[v] for v in n.inputs), attrs, tuple(v.type for v in n.outputs)))
        for v in n.outputs:
            number[v] = len(number)
    constants = tuple((c.value.type, None if c.data is None else c.data.tobytes()) for c in g.constants.values())
    sources = tuple(v.type for v in g.inputs), tuple(s.read.type for s in g.states.values())
    return sources, constants, tuple(nodes), tuple(number[v] for v in g.results())


def attrs_key(attrs: Mapping[str, Any]) -> Hashable:
    """`attr_key` of all attributes of a node."""
    return tuple((k, attr_key(v)) for k, v in attrs.items())


def attr_extents(attrs: Mapping[str, Any]) -> list[Expr]:
    """The extents in attributes that only a run knows."""
    return [a for a in _leaves(attrs) if isinstance(a, Expr) and a.op != "const"]


def attr_graphs(attrs: Mapping[str, Any]) -> list[Graph]:
    """The graphs directly inside attributes, in order."""
    found = _leaves(attrs)
    return [a for a in found if isinstance(a, Graph)] if found else found


def _leaves(attrs: Mapping[str, Any]) -> list[Any]:
    """What attributes consist of, in order, but for most numbers and texts, which stand in nearly all of them."""
    found: list[Any] = []
    left = [v for v in attrs.values() if type(v) not in _SIMPLE]
    if all(type(v) is tuple and _SIMPLE.issuperset(map(type, v)) for v in left):  # as most are
        return found
    left.reverse()
    while left:
        v = left.pop()
        if isinstance(v, tuple):
            left += [x for x in reversed(v) if type(x) not in _SIMPLE]
        else:
            found.append(v)
    return found
