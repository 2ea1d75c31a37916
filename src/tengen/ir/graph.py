"""The graph IR: a recorded program. Values in SSA form, nodes that name ops, constants, and named state.

State is what a program reads and updates in place: parameters, running statistics, optimizer state, random counters. A state
has a value that is read and, when the program changes it, a value written at the end.

Read next: `verify.py` (the rules), `text.py` (the text and file forms).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tengen.base.errors import VerifyError
from tengen.ir.types import TensorType


@dataclass(eq=False, slots=True)
class Value:
    """One tensor of the program. `node` is None for inputs, constants and states."""

    type: TensorType
    name: str
    node: Node | None = None
    index: int = 0

    def __repr__(self) -> str:
        return f"%{self.name}: {self.type}"


@dataclass(eq=False, slots=True)
class Node:
    """One call of an op. `attrs` holds plain data: None, bool, int, float, str, DType, tuples of these, or a nested Graph.
    `where` is the user's line, for messages; it is not part of what the node means."""

    op: str
    inputs: list[Value]
    attrs: dict[str, Any]
    outputs: list[Value] = field(default_factory=list)
    where: str | None = None

    def __repr__(self) -> str:
        return f"{', '.join(map(repr, self.outputs))} = {self.op}({', '.join('%' + v.name for v in self.inputs)})"


@dataclass(eq=False, slots=True)
class State:
    """A named tensor that outlives a run: `read` is its value at the start, `written` the one at the end (None: unchanged)."""

    name: str
    read: Value
    written: Value | None = None


class Graph:
    """A program: inputs, constants, states, nodes in an order in which they can run, and named outputs."""

    def __init__(self, name: str = "graph"):
        self.name = name
        self.inputs: list[Value] = []
        self.constants: dict[Value, np.ndarray] = {}
        self.states: list[State] = []
        self.nodes: list[Node] = []
        self.outputs: list[tuple[str, Value]] = []
        self._names: dict[str, int] = {}

    def fresh(self, hint: str) -> str:
        """A value name not used so far."""
        n = self._names.get(hint, 0)
        self._names[hint] = n + 1
        name = f"{hint}_{n}" if n else hint
        if n and name in self._names:
            return self.fresh(hint)
        self._names.setdefault(name, 1)
        return name

    def add_input(self, type: TensorType, name: str = "x") -> Value:
        v = Value(type, self.fresh(name))
        self.inputs.append(v)
        return v

    def add_constant(self, data: np.ndarray, type: TensorType, name: str = "c") -> Value:
        v = Value(type, self.fresh(name))
        self.constants[v] = data
        return v

    def add_state(self, type: TensorType, name: str = "state") -> State:
        s = State(name, Value(type, self.fresh(name)))
        self.states.append(s)
        return s

    def add_node(
        self, op: str, inputs: Sequence[Value | None], attrs: dict[str, Any], out_types: Iterable[TensorType], where: str | None = None
    ) -> Node:
        """Appends a call; its outputs are new values."""
        node = Node(op, list(inputs), dict(attrs), where=where)  # type: ignore[arg-type]
        hint = op.rpartition(".")[0] or op
        node.outputs = [Value(t, self.fresh(hint), node, i) for i, t in enumerate(out_types)]
        self.nodes.append(node)
        return node

    def add_output(self, value: Value, name: str | None = None) -> None:
        self.outputs.append((name or f"output{len(self.outputs)}", value))

    # -- questions -------------------------------------------------------------------------------------------------------
    def results(self) -> list[Value]:
        """All values that the program must produce: outputs and written states."""
        return [v for _, v in self.outputs] + [s.written for s in self.states if s.written is not None]

    def users(self) -> dict[Value, list[Node]]:
        """The nodes that read each value."""
        table: dict[Value, list[Node]] = {}
        for n in self.nodes:
            for v in n.inputs:
                if v is not None:
                    table.setdefault(v, []).append(n)
        return table

    def values(self) -> list[Value]:
        """Every value, inputs first."""
        given = [*self.inputs, *self.constants, *(s.read for s in self.states)]
        return given + [v for n in self.nodes for v in n.outputs]

    # -- changes ---------------------------------------------------------------------------------------------------------
    def replace_values(self, table: dict[Value, Value]) -> None:
        """Every reader of a key reads its value instead; chains are followed."""

        def final(v):
            while v in table:
                v = table[v]
            return v

        for n in self.nodes:
            n.inputs = [final(v) for v in n.inputs]
        self.outputs = [(name, final(v)) for name, v in self.outputs]
        for s in self.states:
            s.written = None if s.written is None else final(s.written)

    def copy(self) -> Graph:
        """An equal graph of new values and nodes; constant data is shared."""
        g = Graph(self.name)
        g._names = dict(self._names)
        table: dict[Value | None, Value | None] = {None: None}

        def dup(v: Value, node: Node | None = None) -> Value:
            table[v] = Value(v.type, v.name, node, v.index)
            return table[v]  # type: ignore[return-value]

        g.inputs = [dup(v) for v in self.inputs]
        g.constants = {dup(v): data for v, data in self.constants.items()}
        g.states = [State(s.name, dup(s.read)) for s in self.states]
        for n in self.nodes:
            m = Node(n.op, [table[v] for v in n.inputs], dict(n.attrs), where=n.where)  # type: ignore[misc]
            m.outputs = [dup(v, m) for v in n.outputs]
            g.nodes.append(m)
        g.outputs = [(name, table[v]) for name, v in self.outputs]  # type: ignore[misc]
        for s, t in zip(self.states, g.states):
            t.written = table[s.written]
        return g

    def sort(self) -> None:
        """Puts the nodes in an order in which they can run, keeping the present order where it is possible."""
        done: set[int] = set()
        order: list[Node] = []

        def visit(n: Node) -> None:
            stack = [(n, iter([v.node for v in n.inputs if v is not None and v.node is not None]))]
            open_ = {id(n)}
            while stack:
                node, it = stack[-1]
                nxt = next((m for m in it if id(m) not in done), None)
                if nxt is None:
                    stack.pop()
                    if id(node) not in done:
                        done.add(id(node))
                        order.append(node)
                elif id(nxt) in open_:
                    raise VerifyError(f"graph {self.name}: {nxt.op} depends on itself")
                else:
                    open_.add(id(nxt))
                    stack.append((nxt, iter([v.node for v in nxt.inputs if v is not None and v.node is not None])))

        for n in self.nodes:
            if id(n) not in done:
                visit(n)
        self.nodes = order
