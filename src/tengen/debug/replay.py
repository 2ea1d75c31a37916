"""A graph run node by node, by eager calls of its ops, with somebody who sees each one. By the contract on bits every value is the one
that the compiled program has.

In: a graph with numbers for extents, and tensors for its inputs and states. Out: the outputs, and the new values of states. Bodies of
loops and branches are run node by node too, in Python, which is slow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tengen.base.errors import user_line
from tengen.base.record import record
from tengen.compiler.plans import Layout
from tengen.ir.graph import Graph, Node, Value
from tengen.ops.batching import again
from tengen.ops.define import REGISTRY, Op, lookup
from tengen.passes.extents import at_extents
from tengen.tensor import Tensor, tensor_over
from tengen.tensor.executable import Executable


@record(frozen=True)
class Place:
    """Where a node stands. number: its position in the graph. inside: what it is inside of, outermost first: "scan, iteration 3"."""

    node: Node
    number: int
    inside: tuple[str, ...] = ()


See = Callable[[Place, "Sequence[Tensor | None]", "Sequence[Tensor]"], None]  # a node, its operands, its results


def inputs_of(
    exe: Executable, buffers: Sequence[Any], extents: tuple[int, ...], graph: Graph | None = None
) -> tuple[Graph, dict[Value, Tensor]]:
    """(the graph of a run, with numbers for its extents; the tensors of its inputs and states). graph: in place of the one before all
    passes, with the same inputs and states."""
    source = graph or exe.source
    g = at_extents(source, dict(zip(exe.extents, extents))) if extents else source
    values = [*g.inputs, *(s.read for s in g.states.values())]
    return g, {v: tensor_over(b, Layout(v.type.shape, v.type.dtype, None, exe.device)) for v, b in zip(values, buffers)}


def of_a_call(op: Op, inputs: Sequence[Tensor], attrs: tuple) -> tuple[Graph, dict[Value, Tensor]]:
    """(the graph of one eager call; the tensors of its inputs)."""
    g = Graph(op.name)
    given = {g.add_input(f"x{i}", x._layout.type): x._off_tape() for i, x in enumerate(inputs)}
    canonical = op.canonical([x._layout.type for x in inputs], attrs)
    g.add_node(op.name, list(given), canonical, op.infer_types([x._layout.type for x in inputs], canonical), user_line())
    return g, given


def replay(graph: Graph, given: Mapping[Value, Tensor], see: See) -> tuple[list[Tensor], dict[str, Tensor]]:
    """(the outputs of a graph, the new values of its states)."""
    wanted = [*graph.outputs, *(s.written for s in graph.states.values() if s.written is not None)]
    values = _run(graph, dict(given), see, (), wanted)
    return [values[v] for v in graph.outputs], {n: values[s.written] for n, s in graph.states.items() if s.written is not None}


def _run(graph: Graph, env: dict[Value, Tensor], see: See, inside: tuple[str, ...], wanted: Sequence[Value]) -> dict[Value, Tensor]:
    """The values of a graph; those that nobody reads any more are let go."""
    for c in graph.constants.values():
        env[c.value] = Tensor(c.data)
    last = {v: i for i, n in enumerate(graph.nodes) for v in n.inputs if v is not None} | dict.fromkeys(wanted, len(graph.nodes))
    for i, n in enumerate(graph.nodes):
        ins = [None if v is None else env[v] for v in n.inputs]
        outs = _node(n, ins, see, inside)
        see(Place(n, i, inside), ins, outs)
        env.update(zip(n.outputs, outs))
        for v in (*n.inputs, *n.outputs):
            if v is not None and last.get(v, -1) <= i:
                env.pop(v, None)
    return env


def _node(n: Node, ins: list[Any], see: See, inside: tuple[str, ...]) -> list[Tensor]:
    if n.op == "fused":
        return _body(n.attrs["body"], ins, see, inside)
    if (loop := _LOOPS.get(n.op)) is not None:
        return loop(n, ins, see, inside)
    made = again(lookup(n.op), ins, n.attrs)
    return list(made) if isinstance(made, tuple) else [made]


def _body(body: Graph, ins: Sequence[Tensor], see: See, inside: tuple[str, ...]) -> list[Tensor]:
    env = _run(body, dict(zip(body.inputs, ins)), see, inside, body.outputs)
    return [env[v] for v in body.outputs]


def _stacked(some: list[Tensor], v: Value) -> Tensor:
    """The slices of an output of a loop; those that were not computed are zeros."""
    n, shape = v.type.shape[0], v.type.shape[1:]
    rest = [Tensor(np.zeros((n - len(some), *shape), v.type.dtype.numpy))] if len(some) < n else []
    return REGISTRY["concat"]([*(x.reshape(1, *shape) for x in some), *rest], 0) if some else rest[0]


def _scan(n: Node, ins: list[Tensor], see: See, inside: tuple[str, ...]) -> list[Tensor]:
    a = n.attrs
    c, s, length = a["carries"], a["slices"], a["length"]
    state, sliced, same = ins[:c], ins[c : c + s], ins[c + s :]
    made: list[list[Tensor]] = [[] for _ in n.outputs[c:]]
    for i in reversed(range(length)) if a["reverse"] else range(length):
        kept = state if a["keep"] else []
        outs = _body(a["body"], [*state, *(x[i] for x in sliced), *same], see, (*inside, f"scan, iteration {i}"))
        state = outs[:c]
        for some, x in zip(made, [*outs[c:], *kept]):
            some.append(x)
    return [*state, *(_stacked(some[::-1] if a["reverse"] else some, v) for some, v in zip(made, n.outputs[c:]))]


def _while_loop(n: Node, ins: list[Tensor], see: See, inside: tuple[str, ...]) -> list[Tensor]:
    a, i = n.attrs, 0
    state, same = ins[: a["carries"]], ins[a["carries"] :]
    kept: list[list[Tensor]] = [[] for _ in state]
    while state[0].item() and (a["limit"] is None or i < a["limit"]):
        for some, x in zip(kept, state if a["keep"] else ()):
            some.append(x)
        state = _body(a["body"], [*state, *same], see, (*inside, f"while_loop, iteration {i}"))
        i += 1
    return [*state, *(_stacked(some, v) for some, v in zip(kept, n.outputs[len(state) :]))]


def _cond(n: Node, ins: list[Tensor], see: See, inside: tuple[str, ...]) -> list[Tensor]:
    held = bool(ins[0].item())
    return _body(n.attrs["then" if held else "otherwise"], ins[1:], see, (*inside, f"cond, where it is {held}"))


def _own_gradient(n: Node, ins: list[Tensor], see: See, inside: tuple[str, ...]) -> list[Tensor]:
    return _body(n.attrs["forward"], ins, see, inside)


_LOOPS = {"scan": _scan, "while_loop": _while_loop, "cond": _cond, "own_gradient": _own_gradient}
