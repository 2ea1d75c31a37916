"""The rules of the graph IR: what a well-formed graph is, whatever its ops mean.

In: a `Graph`. Out: nothing, or a `VerifyError` that names the graph and the node. With `infer`, types are derived again too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tengen.base.dtype import DType, bool_, int64
from tengen.base.errors import TengenError, VerifyError
from tengen.ir.graph import Graph, Node, Value, attr_graphs
from tengen.ir.types import TensorType
from tengen.loops.extents import EXTENT_OPS, TERMS, terms
from tengen.loops.lang import Expr
from tengen.loops.verify import brief, check_expr

NESTING = 64  # of graphs in graphs, and of tuples in tuples
OPERANDS = 1 << 14  # of one node
LONGEST_TEXT = 2000  # characters of an attribute
OP_ERRORS = ("IndexOutOfRange", "NegativePower", "LinAlgError", "CustomOpError", "ShapeError")  # what checks of operands raise
CHECK_ERRORS = (  # what a check may raise: these, and Python's own, which users raise in scripts
    *OP_ERRORS, "NonFiniteError", "AssertionError", "ValueError", "IndexError", "KeyError", "LookupError",
    "OverflowError", "ZeroDivisionError", "FloatingPointError", "ArithmeticError", "TypeError", "StopIteration", "NotImplementedError",
    "RuntimeError",
)  # fmt: skip
Infer = Callable[[str, list["TensorType | None"], dict[str, Any]], Sequence[TensorType]]


def check_name(name: object, what: str) -> None:
    """Names are printable and hold no backquote, so that they can be written down."""
    if not isinstance(name, str) or not name or not name.isprintable() or "`" in name or len(name) > 1000:
        told = f"{name[:60]!r}" if isinstance(name, str) else repr(name)
        raise VerifyError(f"{told} is not a name for {what}")


@functools.lru_cache(4096)  # types are interned, and most values of a graph share a few
def check_type(t: object) -> None:
    """At most 64 axes; extents that are not numbers are integer arithmetic over symbols. What numbers may be, `TensorType` says."""
    if not isinstance(t, TensorType) or not isinstance(t.dtype, DType):
        raise VerifyError(f"{t!r} is not a tensor type")
    if t.ndim > 64:
        raise VerifyError(f"a tensor of {t.ndim} axes; at most 64")
    for d in t.shape:
        if isinstance(d, Expr):
            _check_dim(d)


def _check_dim(d: Expr) -> None:
    if terms(d) > TERMS:
        raise VerifyError(f"the extent {brief(d)} has more than {TERMS} terms")
    check_expr(d, set())
    if d.dtype is not int64 or d.lanes != 1:
        raise VerifyError(f"the extent {brief(d)} is not an int64")
    stack, seen = [d], {d}
    while stack:
        x = stack.pop()
        if x.op not in EXTENT_OPS or x.dtype not in (int64, bool_):
            raise VerifyError(f"the extent {brief(d)} uses {x.op} of {x.dtype}")
        for a in x.args:
            if a not in seen:
                seen.add(a)
                stack.append(a)


def check_attr(a: object, depth: int = 0) -> None:
    """Attributes are plain data of bounded depth; integers fit 64 bits."""
    if depth > NESTING:
        raise VerifyError(f"an attribute nested deeper than {NESTING}")
    if isinstance(a, tuple):
        for x in a:
            check_attr(x, depth + 1)
    elif type(a) is int:
        if not -(1 << 63) <= a < 1 << 64:
            raise VerifyError(f"an attribute of {a.bit_length()} bits does not fit 64 bits")
    elif isinstance(a, str):
        if len(a) > LONGEST_TEXT:
            raise VerifyError(f"the attribute {a[:60]!r}... has {len(a)} characters, {LONGEST_TEXT} are allowed")
    elif isinstance(a, Expr):
        _check_dim(a)
    elif a is not None and type(a) not in (bool, float) and not isinstance(a, (DType, Graph)):
        raise VerifyError(f"the attribute {a!r} is no plain data")


def verify(graph: Graph, infer: Infer | None = None) -> None:
    """Checks every rule of the graph IR.

    Each value is made once and before it is read; names of inputs, constants and states are unique, and of
    outputs; a state's new value has the state's type; a constant's data has its type; attributes are plain; graphs inside
    attributes obey the same rules and have no state, and constants' names are unique over all of them.

    Args:
        infer: (op, input types, attributes) -> output types; types are then derived again and compared.
    Errors: VerifyError.
    """
    _verify(graph, infer, 0, set(), set())


def _verify(graph: Graph, infer: Infer | None, depth: int, constants: set[str], parents: set[int]) -> None:
    if id(graph) in parents:
        raise VerifyError(f"graph {graph.name} is inside itself")
    if depth > NESTING:
        raise VerifyError(f"graphs nested deeper than {NESTING}")
    check_name(graph.name, "a graph")
    try:
        made = _check_sources(graph, constants)
        if depth and (graph.states or graph.checks):
            raise VerifyError("a graph inside another has states or checks")
    except VerifyError as e:
        raise VerifyError(f"graph {graph.name}: {e}") from None
    for i, n in enumerate(graph.nodes):
        try:
            _check_node(n, made, infer)
        except VerifyError as e:
            raise VerifyError(f"graph {graph.name}, node {i}, {describe(n)}: {e}") from None
        for inner in attr_graphs(n.attrs):
            _verify(inner, infer, depth + 1, constants, parents | {id(graph)})
    try:
        _check_results(graph, made)
    except VerifyError as e:
        raise VerifyError(f"graph {graph.name}: {e}") from None


def describe(n: object) -> str:
    """A node as messages name it, with the user's line where it is known."""
    if not isinstance(n, Node):
        return repr(n)
    types = ["none" if v is None else str(getattr(v, "type", v)) for v in n.inputs[:9]]
    op, where = str(n.op)[:200], str(n.where or "")[:200]
    return f"{op}({', '.join(types[:8])}{', ...' * (len(types) > 8)})" + (f" at {where}" if where else "")


def _check_sources(graph: Graph, constants: set[str]) -> set[Value]:
    made: set[Value] = set()
    names: set[str] = set()
    for name, c in graph.constants.items():
        if name != c.name or name in constants:
            raise VerifyError(f"the constant {name!r} is named twice")
        constants.add(name)
    for name, s in graph.states.items():
        if name != s.name:
            raise VerifyError(f"the state {s.name!r} stands under the name {name!r}")
    for v in graph.sources():
        if not isinstance(v, Value) or v.node is not None:
            raise VerifyError(f"{v!r} is made by a node")
        check_name(v.name, "an input, constant or state")
        if v.name in names or v in made:
            raise VerifyError(f"the name {v.name!r} is given twice")
        names.add(v.name)
        made.add(v)
        check_type(v.type)
    for c in graph.constants.values():
        _check_data(c.name, c.value, c.data)
    named = {**graph.constants, **graph.states}
    for name, x in named.items():
        if (x.read if name in graph.states else x.value).name != name:
            raise VerifyError(f"the value of {name!r} has another name")
    return made


def _check_data(name: str, value: Value, data: object) -> None:
    if any(isinstance(d, Expr) for d in value.type.shape):
        raise VerifyError(f"the constant {name!r} has a symbolic extent")
    if data is None:
        return
    if not isinstance(data, np.ndarray) or data.shape != value.type.shape or data.dtype != value.type.dtype.numpy:
        raise VerifyError(f"the constant {name!r} has data that is not {value.type}")


def _check_node(n: object, made: set[Value], infer: Infer | None) -> None:
    if not isinstance(n, Node):
        raise VerifyError("this is not a node")
    check_name(n.op, "an op")
    if n.where is not None and not isinstance(n.where, str):
        raise VerifyError(f"`where` is {n.where!r}")
    if len(n.inputs) > OPERANDS:
        raise VerifyError(f"it has {len(n.inputs)} operands, {OPERANDS} are allowed")
    for v in n.inputs:
        if v is not None and v not in made:
            raise VerifyError(f"it reads {v!r}, which is not made before it")
    for k, a in n.attrs.items():
        if not isinstance(k, str) or not k.isidentifier() or not k.isascii():
            raise VerifyError(f"{k[:60] if isinstance(k, str) else k!r} is not a name for an attribute")
        check_attr(a)
    for i, v in enumerate(n.outputs):
        if not isinstance(v, Value) or v.node is not n or v.index != i:
            raise VerifyError(f"its output {i} does not know where it comes from")
        if not isinstance(v.name, str):
            raise VerifyError(f"its output {i} has the name {v.name!r}")
        if v in made:
            raise VerifyError(f"its output {i} is made twice")
        made.add(v)
        check_type(v.type)
    if infer is not None:
        _check_types(n, infer)


def _check_types(n: Node, infer: Infer) -> None:
    try:
        derived = list(infer(n.op, [None if v is None else v.type for v in n.inputs], n.attrs))
    except TengenError as e:
        raise VerifyError(f"its types cannot be derived: {e}") from e
    have = [v.type for v in n.outputs]
    if derived != have:
        raise VerifyError(f"its outputs are {have}, the op's rule says {derived}")


def _check_results(graph: Graph, made: set[Value]) -> None:
    if len(graph.outputs) != len(graph.output_names) or len(set(graph.output_names)) != len(graph.output_names):
        raise VerifyError(f"{len(graph.outputs)} outputs with the names {graph.output_names}")
    for name, v in zip(graph.output_names, graph.outputs):
        check_name(name, "an output")
        if v not in made:
            raise VerifyError(f"the output {name!r} is not made in the graph")
    for c in graph.checks:
        if c.bad not in made or c.bad.type is not TensorType((), bool_):
            raise VerifyError(f"a check looks at {c.bad!r}, which is no bool[] of the graph")
        if c.error not in CHECK_ERRORS:
            raise VerifyError(f"a check raises {c.error!r}; it may be one of {', '.join(CHECK_ERRORS)}")
    for s in graph.states.values():
        if s.written is None:
            continue
        if s.written not in made:
            raise VerifyError(f"the new value of the state {s.name!r} is not made in the graph")
        if s.written.type is not s.read.type:
            raise VerifyError(f"the state {s.name!r} is {s.read.type}, its new value {s.written.type}")
