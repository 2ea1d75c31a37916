"""The first answer of a model whose program nobody has made yet: its nodes as eager calls, whose programs are there.

In: the graph of a model, and the buffers of its inputs. Out: its outputs, with the bits that its own program gives. The programs of eager
calls have names for extents and are in the pack, as far as common networks need them; a model is one program, which no pack has,
and which takes seconds to make. `answer` makes nothing: where a call needs a program that is not there, it gives no answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tengen.base.config import config
from tengen.compiler import pattern_cache, program_cache
from tengen.compiler.plans import Layout
from tengen.ir.graph import Graph, Node, Value
from tengen.loops.lang import Expr
from tengen.ops.define import lookup
from tengen.runtime import native, tiers
from tengen.tensor import Tensor, tensor_over
from tengen.tensor.eager import computed
from tengen.tensor.executable import buffer_of
from tengen.tensor.looking import looking


def fits(graph: Graph) -> bool:
    """Whether a graph can be run so: its extents are numbers, it has no states, checks, loops and branches, and no output that shares the
    memory of an input or of a constant."""
    if graph.states or graph.checks or any(isinstance(d, Expr) for v in graph.inputs for d in v.type.shape):
        return False
    if any(n.op == "fused" or lookup(n.op).has_bodies for n in graph.nodes):
        return False
    shared = {*graph.inputs, *(c.value for c in graph.constants.values())}
    for n in graph.nodes:
        if lookup(n.op).kind == "view" and n.inputs[0] in shared:
            shared.update(n.outputs)
    return shared.isdisjoint(graph.outputs)


def wanted() -> bool:
    """Whether this process answers so at all: where it would begin with quick code, and may leave programs to be made later."""
    later = config.cache and config.finish and program_cache.in_use()
    return later and looking.around is None and tiers.quick_first(native.TARGET)


def answer(graph: Graph, buffers: Sequence[Any]) -> list[Tensor] | None:
    """The outputs of a graph that `fits`; None where a program is not there."""
    try:
        with pattern_cache.as_found():
            return run(graph, buffers)
    except (pattern_cache.NotThere, tiers.Postponed):
        return None


def run(graph: Graph, buffers: Sequence[Any]) -> list[Tensor]:
    """The outputs of a graph that `fits`, node by node. buffers: of its inputs, dense in logical order. A value is let go as soon as nobody
    reads it any more."""
    over = lambda v, buffer: tensor_over(buffer, Layout(tuple(v.type.shape), v.type.dtype))
    values: dict[Value, Tensor] = {v: over(v, buffer) for v, buffer in zip(graph.inputs, buffers)}
    data = {c.value: c.data for c in graph.constants.values()}
    last: dict[Value, Node | None] = {v: n for n in graph.nodes for v in n.inputs if v is not None}
    last.update(dict.fromkeys(graph.outputs))

    def value(v: Value | None) -> Tensor | None:
        if v is None:
            return None
        if v not in values:
            values[v] = over(v, buffer_of(data[v]))
        return values[v]

    for n in graph.nodes:
        values.update(zip(n.outputs, computed(lookup(n.op), [value(v) for v in n.inputs], n.attrs)))
        _let_go(values, n, last)
    return [values[v] for v in graph.outputs]


def _let_go(values: dict[Value, Tensor], n: Node, last: dict[Value, Node | None]) -> None:
    for v in n.inputs:
        if v is not None and last[v] is n:
            values.pop(v, None)
    for v in n.outputs:
        if v not in last:
            del values[v]
