"""Graphs as JSON, the form that files keep. Reading is strict: what is not exactly a graph is a FileFormatError.

Values have numbers: inputs, constants, states, then each node's outputs; a node can name only smaller numbers, so no cycle can
be written. Attributes that JSON cannot tell apart are tagged: ``{"tuple": [..]}``, ``{"dtype": "f32"}``, ``{"float": "nan"}``,
``{"dim": "N * 2"}``, ``{"graph": {..}}``. Types are texts like ``"f32[N,3]"``. Constants' data stays apart.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np

from tengen.base.dtype import BY_SHORT, DType
from tengen.base.errors import FileFormatError, VerifyError
from tengen.ir.graph import Check, Constant, Graph, Node, State, UnreadGraph, Value
from tengen.ir.plain_json import depth, load_json
from tengen.ir.types import TensorType, parse_type
from tengen.ir.verify import NESTING, verify
from tengen.loops.lang import Expr
from tengen.loops.parse import parse_expr
from tengen.loops.text import print_expr

FORMAT, VERSION = "tengen-graph", 1
DEPTH = 6 * NESTING  # of objects and lists in one another: a graph in a graph is five of them, and a tuple in a tuple one
LONGEST_TYPE = 2000  # characters of a type or an extent


# ---- writing ---------------------------------------------------------------------------------------------------------


def to_json(graph: Graph) -> str:
    """A graph as JSON text. The data of constants is not in it: see `constant_data`.

    Errors: VerifyError when the graph breaks the IR's rules, or is nested too deeply to be read back.
    """
    verify(graph)
    whole = {"format": FORMAT, "version": VERSION, "graph": _graph(graph)}
    if depth(whole) > DEPTH:
        raise VerifyError(f"graph {graph.name}: its JSON is nested deeper than {DEPTH}")
    return json.dumps(whole, allow_nan=False, separators=(",", ":"))


def _graph(g: Graph) -> dict[str, Any]:
    number = {v: i for i, v in enumerate(g.values())}
    return {
        "name": g.name,
        "inputs": [[v.name, _type(v.type)] for v in g.inputs],
        "constants": [[c.name, _type(c.value.type)] for c in g.constants.values()],
        "states": [[s.name, _type(s.read.type), None if s.written is None else number[s.written]] for s in g.states.values()],
        "nodes": [
            {
                "op": n.op,
                "inputs": [None if v is None else number[v] for v in n.inputs],
                "attrs": {k: _attr(a) for k, a in n.attrs.items()},
                "outputs": [[v.name, _type(v.type)] for v in n.outputs],
                "where": n.where,
            }
            for n in g.nodes
        ],
        "outputs": [[name, number[v]] for name, v in zip(g.output_names, g.outputs)],
        "checks": [[number[c.bad], c.error, c.message, c.where] for c in g.checks],
    }


def _type(t: TensorType) -> str:
    text = repr(t)
    if len(text) > LONGEST_TYPE:
        raise VerifyError(f"a type is too long to be written down: {text[:60]}...")
    return text


def _attr(a: Any) -> Any:
    if isinstance(a, tuple):
        return {"tuple": [_attr(x) for x in a]}
    if isinstance(a, DType):
        return {"dtype": a.short}
    if isinstance(a, Graph):
        return {"graph": _graph(a)}
    if isinstance(a, Expr):
        text = print_expr(a)
        if len(text) > LONGEST_TYPE:
            raise VerifyError(f"an extent is too long to be written down: {text[:60]}...")
        return {"dim": text}
    if isinstance(a, float) and not math.isfinite(a):
        return {"float": repr(a)}
    return a


# ---- reading ---------------------------------------------------------------------------------------------------------


def _fail(message: str) -> NoReturn:
    raise FileFormatError(f"the graph's JSON: {message}")


def _record(x: Any, what: str, **fields: type) -> list[Any]:
    """The entries of an object that has exactly these keys with these types."""
    if not isinstance(x, dict) or set(x) != set(fields):
        got = ", ".join(repr(k[:60]) for k in list(x)[:8]) if isinstance(x, dict) else type(x).__name__
        _fail(f"{what} needs the keys {', '.join(fields)}, got {got}")
    for k, t in fields.items():
        if t is not object and type(x[k]) is not t:
            _fail(f"{what}: {k} is {type(x[k]).__name__}, not {t.__name__}")
    return [x[k] for k in fields]


def _row(x: Any, what: str, *types: type) -> list[Any]:
    """A list of exactly these types."""
    if not isinstance(x, list) or len(x) != len(types) or any(t is not object and type(y) is not t for y, t in zip(x, types)):
        _fail(f"{what} is not [{', '.join(t.__name__ for t in types)}]")
    return x


def _short(text: str, what: str) -> str:
    if len(text) > LONGEST_TYPE:
        _fail(f"{what} has {len(text)} characters, {LONGEST_TYPE} are allowed")
    return text


class _Reader:
    def __init__(self, data: Mapping[str, np.ndarray]):
        self.data = data
        self.types: dict[str, TensorType] = {}

    def graph(self, x: Any) -> Graph:
        g = Graph("")
        self.rest(g, self.sources(g, x))
        return g

    def sources(self, g: Graph, x: Any) -> dict[str, Any]:
        """Reads the name, the inputs, the constants and the states of a graph into `g`. Returns x with all keys."""
        if isinstance(x, dict):
            x = {"checks": [], **x}  # files of the first release have none
        g.name, inputs, constants, states, *_ = _record(
            x, "a graph", name=str, inputs=list, constants=list, states=list, nodes=list, outputs=list, checks=list
        )
        for row in inputs:
            name, t = _row(row, "an input", str, str)
            g.inputs.append(Value(self.type(t), name))
        for row in constants:
            name, t = _row(row, "a constant", str, str)
            if name in g.constants:
                _fail(f"the constant {name[:60]!r} is named twice")
            g.constants[name] = Constant(name, Value(self.type(t), name), self.data.get(name))
        for row in states:
            name, t, _ = _row(row, "a state", str, str, object)
            if name in g.states:
                _fail(f"the state {name[:60]!r} is named twice")
            g.states[name] = State(name, Value(self.type(t), name))
        return x

    def rest(self, g: Graph, x: Mapping[str, Any]) -> None:
        """Reads the nodes of a graph into `g`, which has its sources, and what leaves it."""
        values = g.sources()
        for i, n in enumerate(x["nodes"]):
            g.nodes.append(self.node(n, f"node {i}", values))
        for name, _, number in x["states"]:
            g.states[name].written = None if number is None else self.value(number, values)
        for row in x["outputs"]:
            name, number = _row(row, "an output", str, int)
            g.output_names.append(name)
            g.outputs.append(self.value(number, values))
        for row in x["checks"]:
            number, error, message, where = _row(row, "a check", int, str, str, object)
            if where is not None and type(where) is not str:
                _fail(f"a check: where is {type(where).__name__}")
            g.checks.append(Check(self.value(number, values), error, message, where))

    def type(self, text: str) -> TensorType:
        """A type, which in most graphs is written many times."""
        if (t := self.types.get(text)) is None:
            t = self.types[text] = parse_type(_short(text, "a type"))
        return t

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
            n.outputs.append(Value(self.type(t), name, n, i))
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
        if tag == "dtype" and isinstance(x, str) and x in BY_SHORT:
            return BY_SHORT[x]
        if tag == "float" and x in ("nan", "inf", "-inf"):
            return float(x)
        if tag == "dim" and isinstance(x, str):
            return parse_expr(_short(x, "an extent"))
        if tag == "graph":
            return self.graph(x)
        _fail(f"an attribute with the tag {tag[:40]!r}")


def from_json(
    text: str, data: Mapping[str, np.ndarray] | None = None, size: int | None = None, check: Callable[[Graph], None] = verify
) -> Graph:
    """The graph that `to_json` wrote, verified. Nothing is executed, and ops are not looked up, but by a `check` of the caller's.

    Args:
        data: the constants' arrays, by name; one that is missing leaves the constant without data. size: bytes of the file that
            the text is in, to which time and memory are proportional; default: of the text. check: verifies the graph, in place of
            `verify`, which it has to do as well; its VerifyError becomes the FileFormatError.
    Errors: FileFormatError for everything else: other keys or types, names given twice, values used before they
        are made, graphs nested deeper than 64, integers beyond 64 bits.
    """
    x = _whole(text, size, DEPTH)
    return _checked(lambda: _Reader(data or {}).graph(x), check)


def _whole(text: str, size: int | None, deepest: int | None = None) -> Any:
    """The object of the graph in a JSON text of the right kind and version. deepest: how deeply it may be nested, where nobody knows that."""
    x = load_json(text, size, "the graph's JSON")
    if deepest is not None and depth(x) > deepest:
        _fail(f"nested deeper than {deepest}")
    kind, version, graph = _record(x, "the whole", format=str, version=int, graph=dict)
    if kind != FORMAT or version != VERSION:
        _fail(f"it is {kind[:40]!r} version {version}, this Tengen reads {FORMAT!r} version {VERSION}")
    return graph


def _checked(read: Callable[[], Graph], check: Callable[[Graph], None]) -> Graph:
    """What `read` gives, verified."""
    try:
        g = read()
        check(g)
    except RecursionError:  # of a caller that is deep in calls itself
        _fail("nested too deeply")
    except VerifyError as e:
        raise FileFormatError(f"the graph's JSON: {e}") from e
    return g


def unread_from_json(
    text: str, data: Mapping[str, np.ndarray], size: int, check: Callable[[Graph], None], digest: str
) -> UnreadGraph | None:
    """The graph of a text for which `from_json` has given one before, with the same arguments, in this process or another: its nodes are read
    and verified when somebody asks for them. None where it has states or checks.

    Args: digest: see `UnreadGraph`; the others as those of `from_json`.
    """
    x = _whole(text, size)
    if x["states"] or x.get("checks"):
        return None
    reader, known = _Reader(data), Graph("")
    x = reader.sources(known, x)
    types = [v.type for v in known.sources()]
    types += [reader.type(t) for n in x["nodes"] for _, t in n["outputs"]]

    def read() -> Graph:
        g = Graph(known.name, known.inputs, known.constants)
        reader.rest(g, x)
        return g

    outputs = [(name, types[number]) for name, number in x["outputs"]]
    return UnreadGraph(known.name, known.inputs, known.constants, outputs, lambda: _checked(read, check), digest)
