"""Graphs as JSON, the form that files keep. Reading is strict: what is not exactly a graph is a FileFormatError.

Values have numbers: inputs, constants, states, then each node's outputs; a node can name only smaller numbers, so no cycle can
be written. Attributes that JSON cannot tell apart are tagged: ``{"tuple": [..]}``, ``{"dtype": "f32"}``, ``{"float": "nan"}``,
``{"dim": "N * 2"}``, ``{"graph": {..}}``. Types are texts like ``"f32[N,3]"``. Constants' data stays apart.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from tengen.base.dtype import DType
from tengen.base.errors import FileFormatError, VerifyError
from tengen.ir.graph import Check, Constant, Graph, Node, State, Value
from tengen.ir.types import parse_type
from tengen.ir.verify import verify
from tengen.loops.lang import Expr
from tengen.loops.parse import DTYPES, parse_expr
from tengen.loops.text import print_expr

FORMAT, VERSION = "tengen-graph", 1
DEPTH = 64  # of objects and lists in one another
DIGITS = 20  # of an integer


# ---- writing ---------------------------------------------------------------------------------------------------------


def to_json(graph: Graph) -> str:
    """A graph as JSON text. The data of constants is not in it: see `constant_data`.

    Errors: VerifyError when the graph breaks the IR's rules, or is nested too deeply to be read back.
    """
    verify(graph)
    whole = {"format": FORMAT, "version": VERSION, "graph": _graph(graph)}
    if _depth(whole) > DEPTH:
        raise VerifyError(f"graph {graph.name}: its JSON is nested deeper than {DEPTH}")
    return json.dumps(whole, allow_nan=False, separators=(",", ":"))


def _graph(g: Graph) -> dict[str, Any]:
    number = {v: i for i, v in enumerate(g.values())}
    return {
        "name": g.name,
        "inputs": [[v.name, repr(v.type)] for v in g.inputs],
        "constants": [[c.name, repr(c.value.type)] for c in g.constants.values()],
        "states": [[s.name, repr(s.read.type), None if s.written is None else number[s.written]] for s in g.states.values()],
        "nodes": [
            {
                "op": n.op,
                "inputs": [None if v is None else number[v] for v in n.inputs],
                "attrs": {k: _attr(a) for k, a in n.attrs.items()},
                "outputs": [[v.name, repr(v.type)] for v in n.outputs],
                "where": n.where,
            }
            for n in g.nodes
        ],
        "outputs": [[name, number[v]] for name, v in zip(g.output_names, g.outputs)],
        "checks": [[number[c.bad], c.error, c.message, c.where] for c in g.checks],
    }


def _attr(a: Any) -> Any:
    if isinstance(a, tuple):
        return {"tuple": [_attr(x) for x in a]}
    if isinstance(a, DType):
        return {"dtype": a.short}
    if isinstance(a, Graph):
        return {"graph": _graph(a)}
    if isinstance(a, Expr):
        return {"dim": print_expr(a)}
    if isinstance(a, float) and not math.isfinite(a):
        return {"float": repr(a)}
    return a


# ---- reading ---------------------------------------------------------------------------------------------------------


def _fail(message: str) -> NoReturn:
    raise FileFormatError(f"the graph's JSON: {message}")


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    d = dict(pairs)
    if len(d) != len(pairs):
        _fail("a key stands twice in one object")
    return d


def _integer(text: str) -> int:
    if len(text) > DIGITS:
        _fail(f"the integer {text[:DIGITS]}... is too large")
    return int(text)


def _float(text: str) -> float:
    x = float(text)
    if not math.isfinite(x):
        _fail(f"the number {text[:DIGITS]} is too large")
    return x


def load_json(text: object) -> Any:
    """JSON without duplicate keys, NaN, huge numbers, or nesting that endangers the stack. FileFormatError otherwise."""
    if not isinstance(text, str):
        _fail(f"expected text, got {type(text).__name__}")
    try:
        return json.loads(
            text, object_pairs_hook=_pairs, parse_int=_integer, parse_float=_float,
            parse_constant=lambda name: _fail(f"{name} is not JSON"),
        )  # fmt: skip
    except RecursionError:
        _fail("nested too deeply")
    except json.JSONDecodeError as e:
        _fail(f"line {e.lineno}, column {e.colno}: {e.msg}")


def _depth(data: Any) -> int:
    deepest, stack = 0, [(data, 1)]
    while stack:
        x, d = stack.pop()
        deepest = max(deepest, d)
        inner = x.values() if isinstance(x, dict) else x if isinstance(x, list) else ()
        stack.extend((y, d + 1) for y in inner)
    return deepest


def _record(x: Any, what: str, **fields: type) -> list[Any]:
    """The entries of an object that has exactly these keys with these types."""
    if not isinstance(x, dict) or set(x) != set(fields):
        got = ", ".join(sorted(map(repr, x))) if isinstance(x, dict) else type(x).__name__
        _fail(f"{what} needs the keys {', '.join(fields)}, got {got[:200]}")
    for k, t in fields.items():
        if t is not object and type(x[k]) is not t:
            _fail(f"{what}: {k} is {type(x[k]).__name__}, not {t.__name__}")
    return [x[k] for k in fields]


def _row(x: Any, what: str, *types: type) -> list[Any]:
    """A list of exactly these types."""
    if not isinstance(x, list) or len(x) != len(types) or any(t is not object and type(y) is not t for y, t in zip(x, types)):
        _fail(f"{what} is not [{', '.join(t.__name__ for t in types)}]")
    return x


class _Reader:
    def __init__(self, data: Mapping[str, np.ndarray]):
        self.data = data

    def graph(self, x: Any) -> Graph:
        if isinstance(x, dict):
            x = {"checks": [], **x}  # files of the first release have none
        name, inputs, constants, states, nodes, outputs, checks = _record(
            x, "a graph", name=str, inputs=list, constants=list, states=list, nodes=list, outputs=list, checks=list
        )
        g = Graph(name)
        values: list[Value] = []
        for row in inputs:
            name, t = _row(row, "an input", str, str)
            g.inputs.append(Value(parse_type(t), name))
        for row in constants:
            name, t = _row(row, "a constant", str, str)
            if name in g.constants:
                _fail(f"the constant {name!r} is named twice")
            g.constants[name] = Constant(name, Value(parse_type(t), name), self.data.get(name))
        for row in states:
            name, t, _ = _row(row, "a state", str, str, object)
            if name in g.states:
                _fail(f"the state {name!r} is named twice")
            g.states[name] = State(name, Value(parse_type(t), name))
        values += g.sources()
        for i, n in enumerate(nodes):
            g.nodes.append(self.node(n, f"node {i}", values))
        for name, _, number in states:
            g.states[name].written = None if number is None else self.value(number, values)
        for row in outputs:
            name, number = _row(row, "an output", str, int)
            g.output_names.append(name)
            g.outputs.append(self.value(number, values))
        for row in checks:
            number, error, message, where = _row(row, "a check", int, str, str, object)
            if where is not None and type(where) is not str:
                _fail(f"a check: where is {type(where).__name__}")
            g.checks.append(Check(self.value(number, values), error, message, where))
        return g

    def value(self, number: Any, values: list[Value]) -> Value:
        if type(number) is not int or not 0 <= number < len(values):
            _fail(f"there is no value {number!r} yet")
        return values[number]

    def node(self, x: Any, what: str, values: list[Value]) -> Node:
        op, inputs, attrs, outputs, where = _record(x, what, op=str, inputs=list, attrs=dict, outputs=list, where=object)
        if where is not None and type(where) is not str:
            _fail(f"{what}: where is {type(where).__name__}")
        n = Node(op, [None if i is None else self.value(i, values) for i in inputs], {}, [], where)
        n.attrs = {k: self.attr(a) for k, a in attrs.items()}
        for i, row in enumerate(outputs):
            name, t = _row(row, f"{what}: an output", str, str)
            n.outputs.append(Value(parse_type(t), name, n, i))
        values += n.outputs
        return n

    def attr(self, a: Any) -> Any:
        if not isinstance(a, (dict, list)):
            return a
        if isinstance(a, list) or len(a) != 1:
            _fail("an attribute is neither plain nor tagged")
        ((tag, x),) = a.items()
        if tag == "tuple" and isinstance(x, list):
            return tuple(self.attr(y) for y in x)
        if tag == "dtype" and isinstance(x, str) and x in DTYPES:
            return DTYPES[x]
        if tag == "float" and x in ("nan", "inf", "-inf"):
            return float(x)
        if tag == "dim" and isinstance(x, str):
            return parse_expr(x)
        if tag == "graph":
            return self.graph(x)
        _fail(f"an attribute with the tag {tag[:40]!r}")


def from_json(text: str, data: Mapping[str, np.ndarray] | None = None) -> Graph:
    """The graph that `to_json` wrote, verified. Nothing is executed, and ops are not looked up.

    Args:
        data: the constants' arrays, by name; one that is missing leaves the constant without data.
    Errors: FileFormatError for everything else: other keys or types, names given twice, values used before they
        are made, nesting beyond 64, integers beyond 64 bits.
    """
    x = load_json(text)
    if _depth(x) > DEPTH:
        _fail(f"nested deeper than {DEPTH}")
    kind, version, graph = _record(x, "the whole", format=str, version=int, graph=dict)
    if kind != FORMAT or version != VERSION:
        _fail(f"it is {kind[:40]!r} version {version}, this Tengen reads {FORMAT!r} version {VERSION}")
    try:
        g = _Reader(data or {}).graph(graph)
        verify(g)
    except VerifyError as e:
        raise FileFormatError(f"the graph's JSON: {e}") from e
    return g
