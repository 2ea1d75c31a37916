"""The crossing from the graph IR to kernels: each node becomes launches over arrays.

Views become other strides on the same buffer; everything else is computed into an output, a state's buffer, or a temporary.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from tengen.base.dtype import bool_
from tengen.base.errors import VerifyError
from tengen.ir.graph import Graph, Node, Value
from tengen.kernels.axes import memory_order
from tengen.kernels.lowering import Array, Lowering, contiguous_strides
from tengen.kernels.pointwise import copy, pointwise
from tengen.kernels.reduce import reduce_together
from tengen.kernels.rows import rowwise
from tengen.kernels.source import Leaf, Literal, Source
from tengen.loops.lang import Expr, cast
from tengen.ops.define import lookup


def lower(graph: Graph, target, ints: Sequence[Expr] = (), arrays: dict[Value, Array] | None = None) -> tuple[Lowering, dict]:
    """Lowers a graph. `arrays` places inputs (default: dense). Buffer ids: ("in", i), ("state", name), ("const", name),
    ("out", i); CHECKS holds one bool for each check.

    Returns the lowering and the `Array` of every output value, by output position.
    """
    lo = Lowering(target, ints)
    env: dict[Value, Array] = dict(arrays or {})
    for i, v in enumerate(graph.inputs):
        env.setdefault(v, _dense(("in", i), v))
    for s in graph.states.values():
        env.setdefault(s.read, _dense(("state", s.name), s.read))
    for c in graph.constants.values():
        env.setdefault(c.value, _dense(("const", c.name), c.value))
    wanted = _destinations(graph)
    for n in graph.nodes:
        _lower_node(lo, graph, n, env, wanted)
    outs = {}
    for i, v in enumerate(graph.outputs):
        out = env[v] if env[v].id == ("out", i) else _out_array(lo, env[v], ("out", i))
        outs[i] = out
    for i, c in enumerate(graph.checks):
        if env[c.bad].id is not CHECKS:
            copy(lo, env[c.bad], _flag(i), "write_check")
    _write_states(lo, graph, env)
    return lo, outs


CHECKS = "checks"  # the buffer of what the checks found


def _flag(i: int) -> Array:
    return Array(CHECKS, bool_, (), (), i)


def _write_states(lo: Lowering, graph: Graph, env: dict[Value, Array]) -> None:
    """Copies new values into states. One that is a view of a state (two states change places) is saved before any is
    overwritten."""
    moves = []
    for s in graph.states.values():
        if s.written is None:
            continue
        src, own = env[s.written], env[s.read]
        if (src.id, src.strides, src.offset) != (own.id, own.strides, own.offset):
            moves.append((src, own))
    for i, (src, own) in enumerate(moves):
        if src.id[:1] == ("state",):  # type: ignore[index]
            saved = lo.temp(src.dtype, src.shape)
            copy(lo, src, saved, "save_state")
            moves[i] = (saved, own)
    for src, own in moves:
        copy(lo, src, own, "write_state")


def _dense(id: Hashable, v: Value) -> Array:
    return Array(id, v.type.dtype, tuple(v.type.shape), contiguous_strides(v.type.shape))


def _out_array(lo: Lowering, src: Array, id: Hashable) -> Array:
    """An output that is a view of something else, or stored elsewhere, is copied out."""
    out = Array(id, src.dtype, src.shape, contiguous_strides(src.shape))
    copy(lo, src, out, "write_output")
    return out


def _destinations(graph: Graph) -> dict[Value, Hashable]:
    """Values that can be computed straight into an output or, when nothing reads the old value later, into a state."""
    where: dict[Value, Hashable] = {}
    for i, v in enumerate(graph.outputs):
        if v.node is not None:
            where.setdefault(v, ("out", i))
    for i, c in enumerate(graph.checks):
        if c.bad.node is not None:
            where.setdefault(c.bad, (CHECKS, i))
    last = {}
    for i, n in enumerate(graph.nodes):
        for v in _reads(n):
            last[v] = i
    position = {id(n): i for i, n in enumerate(graph.nodes)}
    views = _view_sources(graph)
    for s in graph.states.values():
        w = s.written
        if w is None or w.node is None or w in where:
            continue
        made = position[id(w.node)]
        late = max([last.get(v, -1) for v in [s.read, *(v for v, root in views.items() if root is s.read)]])
        aligned = late < made or (late == made and _pointwise_in_place(w.node, s.read))
        escapes = any(views.get(v, v) is s.read for v in graph.results())
        if aligned and not escapes:
            where[w] = ("state", s.name)
    return where


def _reads(n: Node) -> list[Value]:
    return [v for v in n.inputs if v is not None]


def _view_sources(graph: Graph) -> dict[Value, Value]:
    """For each value that is a view, the value whose memory it shows."""
    root: dict[Value, Value] = {}
    for n in graph.nodes:
        if n.op != "fused" and lookup(n.op).kind == "view":
            root[n.outputs[0]] = root.get(n.inputs[0], n.inputs[0])
    return root


def _pointwise_in_place(n: Node, read: Value) -> bool:
    """Whether the node reads `read` only at the position that it writes: then it may write over it."""
    if n.op != "fused":
        return lookup(n.op).kind == "elementwise" and all(
            v is not read or v.type.shape == n.outputs[0].type.shape for v in n.inputs
        )
    body: Graph = n.attrs["body"]
    if any(lookup(m.op).kind != "elementwise" for m in body.nodes):
        return False
    return read.type.shape == n.outputs[0].type.shape and len({v.type.shape for v in n.outputs}) == 1


def _lower_node(lo: Lowering, graph: Graph, n: Node, env: dict[Value, Array], wanted: dict[Value, Hashable]) -> None:
    op = lookup(n.op) if n.op != "fused" else None
    if op is not None and op.kind == "view":
        a = op.rules["view"](env[n.inputs[0]], n.outputs[0].type, **n.attrs)
        if a is None:
            src = env[n.inputs[0]]
            dense = lo.temp(src.dtype, src.shape)
            copy(lo, src, dense)
            a = op.rules["view"](dense, n.outputs[0].type, **n.attrs)
        env[n.outputs[0]] = a
        return
    ins = [None if v is None else env[v] for v in n.inputs]
    outs = []
    for v in n.outputs:
        order = _order(op, n, ins, v)
        if v in wanted:
            id = wanted[v]
            order = None if id[0] == "state" else order  # type: ignore[index]
            a = Array(id, v.type.dtype, tuple(v.type.shape), contiguous_strides(v.type.shape, order))
            a = _flag(id[1]) if id[0] == CHECKS else a  # type: ignore[index]
        else:
            a = lo.temp(v.type.dtype, v.type.shape, order)
        env[v] = a
        outs.append(a)
    if op is not None:
        op.lower_to(lo, ins, outs, n.attrs)
    else:
        _lower_fused(lo, n, ins, outs)


def _order(op, n: Node, ins: Sequence[Array | None], v: Value) -> list[int] | None:
    """The memory order of an output: by the op's rule; a fused node follows its anchor or its first full-shaped input."""
    if op is not None:
        return op.rules["layout"](ins, v.type, **n.attrs) if "layout" in op.rules else None
    body: Graph = n.attrs["body"]
    for m in body.nodes:
        rule = lookup(m.op).rules.get("layout")
        if rule is not None and lookup(m.op).kind != "elementwise" and m.outputs[0].type.shape == v.type.shape:
            env = dict(zip(body.inputs, ins))
            return rule([env.get(x) for x in m.inputs], m.outputs[0].type, **m.attrs)
    for a in ins:
        if a is not None and a.shape == tuple(v.type.shape):
            return memory_order(a)
    return None


def _lower_fused(lo: Lowering, n: Node, ins: Sequence[Array | None], outs: Sequence[Array]) -> None:
    body: Graph = n.attrs["body"]
    env: dict[Value, Source] = {v: Leaf(a) for v, a in zip(body.inputs, ins) if a is not None}
    for c in body.constants.values():
        env[c.value] = Literal(c.data.item(), c.value.type.dtype)  # type: ignore[union-attr]
    anchor = next((m for m in body.nodes if "epilogue" in lookup(m.op).rules), None)
    last = body.nodes[-1]
    name = "_".join(dict.fromkeys(m.op.replace(".", "_") for m in body.nodes))[:60]
    if anchor is not None:
        return _lower_epilogue(lo, body, anchor, env, outs, name)
    several = len(body.outputs) > 1 and all("reduced" in lookup(v.node.op).rules for v in body.outputs)  # type: ignore[union-attr]
    for m in body.nodes:
        op = lookup(m.op)
        sources = [None if v is None else env[v] for v in m.inputs]
        if "reduced" in op.rules and m is last and not several:
            return op.rules["lower"](lo, sources, list(outs), **m.attrs)
        rule = op.rules["reduced"] if "reduced" in op.rules else op.rules["source"]
        env[m.outputs[0]] = rule(sources, m.outputs[0].type, **m.attrs)
    values = [env[v] for v in body.outputs]
    if several:
        return reduce_together(lo, values, outs, name)
    rows = next((m.attrs["axes"] for m in body.nodes if "reduced" in lookup(m.op).rules), None)
    if rows is not None:
        return rowwise(lo, values, list(outs), tuple(rows), name)
    pointwise(lo, values, outs, name)


def _lower_epilogue(lo, body: Graph, anchor: Node, env: dict[Value, Source], outs: Sequence[Array], name: str) -> None:
    """A contraction whose result goes through pointwise nodes before it is stored."""
    op = lookup(anchor.op)
    arrays = []
    for v in anchor.inputs:
        s = None if v is None else env[v]
        if s is not None and not isinstance(s, Leaf):
            raise VerifyError(f"{anchor.op}: an operand of a contraction must be stored")
        arrays.append(None if s is None else s.array)
    result = Result(tuple(anchor.outputs[0].type.shape), anchor.outputs[0].type.dtype)
    env[anchor.outputs[0]] = result
    for m in body.nodes:
        if m is not anchor:
            env[m.outputs[0]] = lookup(m.op).rules["source"](
                [None if v is None else env[v] for v in m.inputs], m.outputs[0].type, **m.attrs
            )
    final = env[body.outputs[0]]

    def epilogue(k, value, at):
        at.memo[result] = cast(value, result.dtype)
        return final.at(k, at)

    op.rules["epilogue"](lo, arrays, list(outs), epilogue, **anchor.attrs)


class Result(Source):
    """The value that a contraction hands to its epilogue: already there, at the coordinates being stored."""

    def __init__(self, shape, dtype):
        self.shape, self.dtype = shape, dtype
