"""Graphs as text that parses back; constants' data stays apart.

    graph step(x: f32[N,784]):
        const scale: f32[]
        state fc.weight: f32[784,10]
        h: f32[N,10] = matmul(x, fc.weight, precision="high") @ "train.py:31"
        v1: f32[N,10] = mul(h, scale)
        v2: f32[N] = map(v1, body=$0)
            graph body(row: f32[10]):
                s: f32[] = sum(row, axis=(0,), keepdims=false)
                return s = s
        return logits = v1, total = v2

Attributes: none, true, 3, 1.5, inf, "text", f32 (a dtype), {N * 2} (an extent), (1, 2) and $0, the first graph below the node.
`write fc.weight = v3` says what a state becomes. The JSON form of the same content is in `jsonform.py`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tengen.base.dtype import BY_SHORT, DType
from tengen.base.errors import VerifyError
from tengen.ir.graph import Check, Constant, Graph, Node, State, Value
from tengen.ir.jsonform import from_json, to_json
from tengen.ir.types import read_dim, read_type
from tengen.ir.verify import verify
from tengen.loops.lang import Expr
from tengen.loops.parse import NESTING, Line, split_lines
from tengen.loops.text import print_expr, quote

__all__ = ["print_graph", "parse_graph", "to_json", "from_json", "constant_data", "labels"]
_WORDS = {"none", "true", "false", "inf", "nan"}
_STATEMENTS = {"check", "const", "state", "write", "return", "graph", "pass"}


# ---- printing --------------------------------------------------------------------------------------------------------


def labels(graph: Graph) -> dict[Value, str]:
    """A unique name for each value of a graph: its own where that is free, else the hint or "v" with a number."""
    table: dict[Value, str] = {}
    taken: set[str] = set()
    for v in graph.sources():
        table[v] = v.name
        taken.add(v.name)
    numbers: dict[str, int] = {}
    for n in graph.nodes:
        for v in n.outputs:
            hint = "".join(c for c in v.name if c.isprintable() and c != "`")
            label = hint
            while not label or label in taken:
                numbers[hint] = i = numbers.get(hint, -1) + 1
                label = f"{hint}.{i}" if hint else f"v{i}"
            table[v] = label
            taken.add(label)
    return table


def _quote(name: str) -> str:
    return f"`{name}`" if name in _WORDS or name in _STATEMENTS or name in BY_SHORT else quote(name)


def _attr(a: Any, graphs: list[Graph]) -> str:
    if isinstance(a, Graph):
        graphs.append(a)
        return f"${len(graphs) - 1}"
    if isinstance(a, tuple):
        inner = ", ".join(_attr(x, graphs) for x in a)
        return f"({inner},)" if len(a) == 1 else f"({inner})"
    if a is None or isinstance(a, bool):
        return "none" if a is None else str(a).lower()
    if isinstance(a, DType):
        return a.short
    if isinstance(a, Expr):
        return f"{{{print_expr(a)}}}"
    return json.dumps(a) if isinstance(a, str) else repr(a)


def _print(graph: Graph, depth: int, lines: list[str]) -> None:
    def line(text: str, more: int = 1) -> None:
        lines.append("    " * (depth + more) + text)

    name = {v: _quote(s) for v, s in labels(graph).items()}
    line(f"graph {_quote(graph.name)}({', '.join(f'{name[v]}: {v.type}' for v in graph.inputs)}):", 0)
    for c in graph.constants.values():
        line(f"const {name[c.value]}: {c.value.type}")
    for s in graph.states.values():
        line(f"state {name[s.read]}: {s.read.type}")
    for n in graph.nodes:
        graphs: list[Graph] = []
        args = ["none" if v is None else name[v] for v in n.inputs]
        args += [f"{k}={_attr(a, graphs)}" for k, a in n.attrs.items()]
        made = ", ".join(f"{name[v]}: {v.type}" for v in n.outputs)
        where = f" @ {json.dumps(n.where)}" if n.where is not None else ""
        line(f"{made}{' ' * bool(made)}= {_quote(n.op)}({', '.join(args)}){where}")
        for g in graphs:
            _print(g, depth + 2, lines)
    for s in graph.states.values():
        if s.written is not None:
            line(f"write {_quote(s.name)} = {name[s.written]}")
    for c in graph.checks:
        where = f" @ {json.dumps(c.where)}" if c.where is not None else ""
        line(f"check {name[c.bad]} = {c.error}({json.dumps(c.message)}){where}")
    line(f"return {', '.join(f'{_quote(k)} = {name[v]}' for k, v in zip(graph.output_names, graph.outputs))}".rstrip())


def print_graph(graph: Graph) -> str:
    """A graph as text. Hints that are not unique get numbers; `parse_graph` gives back an equal graph that prints the same."""
    lines: list[str] = []
    _print(graph, 0, lines)
    return "\n".join(lines) + "\n"


# ---- parsing ---------------------------------------------------------------------------------------------------------


class _Slot:
    """`$n` in an attribute, until the graph below the node is read."""

    def __init__(self, number: int):
        self.number = number


class _Parser:
    def __init__(self, text: object, data: Mapping[str, np.ndarray]):
        self.lines = split_lines(text)
        self.at = 0
        self.data = data

    def peek(self) -> Line | None:
        return self.lines[self.at] if self.at < len(self.lines) else None

    def graph(self, depth: int) -> Graph:
        line = self.lines[self.at]
        self.at += 1
        if depth > NESTING:
            line.fail(f"graphs nested deeper than {NESTING}")
        line.expect("graph")
        g, names = Graph(line.name("the graph's name")), {}
        line.expect("(")
        while not line.accept(")"):
            if g.inputs:
                line.expect(",")
            g.inputs.append(self.value(line, names))
        line.expect(":")
        line.done()
        inner = self.peek()
        while True:
            body = self.peek()
            if body is None or inner is None or body.indent <= line.indent:
                line.fail("the graph has no `return`")
            if body.indent != inner.indent:
                body.fail("unexpected indentation")
            self.at += 1
            if self.statement(g, names, body, depth):
                return g

    def value(self, line: Line, names: dict[str, Value]) -> Value:
        """`name: type`, a new value."""
        t = line.peek()
        name = line.name("a name")
        if name in names:
            line.fail(f"the name {name} is given twice", t)
        line.expect(":")
        names[name] = v = Value(read_type(line), name)
        return v

    def defined(self, line: Line, names: dict[str, Value]) -> Value:
        t = line.peek()
        name = line.name("the name of a value")
        if name not in names:
            line.fail(f"{name} is not defined", t)
        return names[name]

    def statement(self, g: Graph, names: dict[str, Value], line: Line, depth: int) -> bool:
        """One line of a graph (and what is below it); True after `return`."""
        word = line.peek().text if line.peek().kind == "word" else ""
        if word in ("const", "state"):
            line.next()
            v = self.value(line, names)
            if word == "const":
                g.constants[v.name] = Constant(v.name, v, self.data.get(v.name))
            else:
                g.states[v.name] = State(v.name, v)
        elif word == "write":
            line.next()
            name = line.name("the name of a state")
            line.expect("=")
            if name not in g.states or g.states[name].written is not None:
                line.fail(f"{name} is no state, or written before")
            g.states[name].written = self.defined(line, names)
        elif word == "check":
            line.next()
            bad = self.defined(line, names)
            line.expect("=")
            error = line.name("an error")
            line.expect("(")
            message = self.string(line)
            line.expect(")")
            g.checks.append(Check(bad, error, message, self.string(line) if line.accept("@") else None))
        elif word == "return":
            line.next()
            while line.peek().kind != "end":
                if g.outputs:
                    line.expect(",")
                g.output_names.append(line.name("a name"))
                line.expect("=")
                g.outputs.append(self.defined(line, names))
            return True
        else:
            self.node(g, names, line, depth)
        line.done()
        return False

    def node(self, g: Graph, names: dict[str, Value], line: Line, depth: int) -> None:
        made: dict[str, Value] = {}
        while not line.accept("="):
            if made:
                line.expect(",")
            self.value(line, made)
        n = Node(line.name("an op"), [], {}, list(made.values()))
        for i, (name, v) in enumerate(made.items()):
            v.node, v.index = n, i
            if name in names:
                line.fail(f"the name {name} is given twice")
        slots: list[_Slot] = []
        line.expect("(")
        first = True
        while not line.accept(")"):
            if not first:
                line.expect(",")
            first = False
            self.argument(n, names, line, slots)
        if line.accept("@"):
            n.where = self.string(line)
        line.done()
        graphs: list[Graph] = []
        while (below := self.peek()) is not None and below.indent > line.indent and below.peek().text == "graph":
            graphs.append(self.graph(depth + 1))
        if [s.number for s in slots] != list(range(len(graphs))):
            line.fail(f"{len(slots)} graphs are named, {len(graphs)} stand below")
        n.attrs = {k: _fill(a, graphs) for k, a in n.attrs.items()}
        names.update(made)
        g.nodes.append(n)

    def argument(self, n: Node, names: dict[str, Value], line: Line, slots: list[_Slot]) -> None:
        """An input, `none`, or `key=attribute`."""
        t = line.peek()
        after = line.tokens[line.at + 1] if line.at + 1 < len(line.tokens) else line.end
        if t.kind == "word" and after.kind == "sign" and after.text == "=":
            line.next()
            line.next()
            if t.text in n.attrs:
                line.fail(f"{t.text} is given twice", t)
            n.attrs[t.text] = self.attr(line, slots, 0)
        elif n.attrs:
            line.fail("an input after an attribute", t)
        else:
            n.inputs.append(None if line.accept("none") else self.defined(line, names))

    def attr(self, line: Line, slots: list[_Slot], depth: int) -> Any:
        if depth > NESTING:
            line.fail(f"nested deeper than {NESTING}")
        t = line.peek()
        if t.kind == "string":
            return self.string(line)
        line.next()
        if t.kind == "sign" and t.text == "(":
            items: list[Any] = []
            while not line.accept(")"):
                items.append(self.attr(line, slots, depth + 1))
                if not line.accept(","):
                    line.expect(")")
                    break
            return tuple(items)
        if t.kind == "sign" and t.text == "{":
            e = read_dim(line)
            line.expect("}")
            return e
        if t.kind == "temp":
            slots.append(_Slot(int(t.text) if len(t.text) < 6 else -1))
            return slots[-1]
        if t.kind == "word" and t.text in ("none", "true", "false"):
            return {"none": None, "true": True, "false": False}[t.text]
        if t.kind == "word" and t.text in BY_SHORT:
            return BY_SHORT[t.text]
        sign = -1 if t.kind == "sign" and t.text == "-" else 1
        return self.number(line, line.next() if sign < 0 else t, sign)

    def number(self, line: Line, t, sign: int) -> int | float:
        if t.kind == "word" and t.text in ("inf", "nan"):
            return sign * math.inf if t.text == "inf" else math.nan
        if t.kind != "number":
            line.fail("expected an attribute", t)
        if t.text.isdigit():
            if len(t.text) > 20:
                line.fail(f"the integer {t.text[:20]}... is too large", t)
            return sign * int(t.text)
        try:
            return sign * float(t.text)
        except ValueError:
            line.fail(f"{t.text!r} is not a number", t)

    def string(self, line: Line) -> str:
        t = line.next()
        if t.kind != "string":
            line.fail("expected a string", t)
        try:
            return json.loads(f'"{t.text}"')
        except ValueError:
            line.fail("a string with a wrong escape", t)


def _fill(a: Any, graphs: list[Graph]) -> Any:
    if isinstance(a, tuple):
        return tuple(_fill(x, graphs) for x in a)
    return graphs[a.number] if isinstance(a, _Slot) else a


def parse_graph(text: str, data: Mapping[str, np.ndarray] | None = None) -> Graph:
    """The graph that a text of `print_graph`'s form describes, verified.

    Args:
        data: the constants' arrays, by name; one that is missing leaves the constant without data.
    Errors: VerifyError for any text that is not a graph, with line and column where that can be said.
    """
    p = _Parser(text, data or {})
    if not p.lines:
        raise VerifyError("line 1, column 1: expected a graph")
    g = p.graph(0)
    if (rest := p.peek()) is not None:
        rest.fail("unexpected text after the graph")
    verify(g)
    return g


def constant_data(graph: Graph) -> dict[str, np.ndarray]:
    """The arrays of all constants of a graph and of the graphs inside it, by name."""
    return {c.name: c.data for g in graph.graphs() for c in g.constants.values() if c.data is not None}
