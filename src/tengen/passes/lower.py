"""The crossing from the graph IR to kernels: each node becomes launches over arrays.

Views become other strides on the same buffer; everything else is computed into an output, a state's buffer, or a temporary. The
passes of `lowering_passes` decide that one after the other: where values lie, in which order of their axes, which share memory,
which nodes are a loop over images; the last one launches kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial

from tengen.base.device import Device, cpu
from tengen.base.dtype import bool_
from tengen.base.errors import VerifyError
from tengen.base.record import record
from tengen.ir.graph import Graph, Node, Value, attrs_key, graph_key
from tengen.ir.text import labels, print_graph
from tengen.kernels.lowering import Array, Lowering, contiguous_strides
from tengen.kernels.pointwise import copy, pointwise
from tengen.kernels.reduction.reduce import joint_reduce
from tengen.kernels.reduction.rows import rowwise
from tengen.kernels.schedule import Schedules
from tengen.kernels.source import Ending, Given, Leaf, Literal, Prologue, Source
from tengen.kernels.steps_text import spelled
from tengen.loops.lang import Expr, Index
from tengen.ops.define import lookup
from tengen.passes.images import Loop, at_images, find_loops
from tengen.passes.inplace import CHECKS, behind_views, destinations, in_logical_order, over_operands
from tengen.passes.layout import assign_layouts, dense
from tengen.passes.lowered import LOWERED, Lowered
from tengen.passes.regions import lower_graph
from tengen.passes.run import Form, Pass, run_passes


@record(frozen=True)
class Placed:
    """A graph, and where its values lie.

    Attributes:
        given: arrays of its inputs, states and constants. wanted: the buffers of values that are computed straight into an
            output, a state, the place of a check, or a temporary that they share. shared: for each of those temporaries the
            value whose type it has, in order. lies: for each value an `Array`; the buffer of those that a node computes is left
            open. loops: nodes that go over images.
    """

    graph: Graph
    given: Mapping[Value, Array]
    wanted: Mapping[Value, Hashable]
    shared: tuple[Value, ...] = ()
    lies: Mapping[Value, Array] = field(default_factory=dict)
    loops: tuple[Loop, ...] = ()

    def text(self) -> str:
        """The graph, and below it one line for each value that is not given, and for each loop."""
        names, lines = labels(self.graph), [print_graph(self.graph).rstrip("\n")]
        for v, name in names.items():
            if v in self.given:
                continue
            strides = f" strides ({', '.join(map(str, self.lies[v].strides))})" if v in self.lies else ""
            place = f" in {spelled(self.wanted[v])}" if v in self.wanted else ""
            lines += [f"# {name}:{strides}{place}"] if strides or place else []
        lines += [f"# loop {x.count} times over {x.some} images: nodes {', '.join(map(str, x.nodes))}" for x in self.loops]
        return "\n".join([*lines, ""])


PLACED = Form(3, Placed.text)


def lowering_passes(
    target,
    ints: Sequence[Expr] = (),
    given: Mapping[str, Array] | None = None,
    schedules: Schedules | None = None,
    row_major: bool = False,
    name: str = "",
    device: Device = cpu,
    log_launches: bool = False,
    frugal: bool = False,
) -> list[Pass]:
    """The passes from a graph to launches.

    Args:
        given: how inputs lie, by name (default: dense). schedules: what tuning found. row_major: every output is dense in
            logical order; otherwise it may lie as suits what computes it. name, device, log_launches: see `Lowered`. frugal: what
            a node prepares of an operand (packed filters) is not kept for later nodes, where it would take memory meanwhile, and
            pointwise nodes compute over operands that nobody reads later. Buffers
            are called ("in", i), ("state", name), ("const", name), ("out", i); CHECKS holds one bool for each check.
    """
    empty = lambda: Lowering(target, ints, schedules)
    return [
        Pass("destinations", partial(_place, given=given or {}), PLACED),
        Pass("layouts", partial(_lay_out, row_major=row_major), PLACED),
        Pass("aliases", partial(_alias, row_major=row_major, frugal=frugal), PLACED),
        Pass("image_loops", partial(_find_loops, open_extents=bool(ints)), PLACED),
        Pass("launches", partial(_launch, empty=empty, name=name, device=device, log_launches=log_launches, frugal=frugal), LOWERED),
    ]


def lower(
    graph: Graph,
    target,
    ints: Sequence[Expr] = (),
    arrays: Mapping[Value, Array] | None = None,
    schedules: Schedules | None = None,
    row_major: bool = False,
) -> tuple[Lowering, dict[int, Array]]:
    """The lowering of a graph by `lowering_passes`, and the `Array` of every output value by output position. `arrays` places
    inputs."""
    given = {v.name: a for v, a in (arrays or {}).items()}
    made = run_passes(graph, lowering_passes(target, ints, given, schedules, row_major))
    return made.lo, dict(enumerate(made.arrays))


# ---- where values lie ------------------------------------------------------------------------------------------------


def _place(graph: Graph, given: Mapping[str, Array]) -> Placed:
    env = {v: given[v.name] if v.name in given else dense(("in", i), v) for i, v in enumerate(graph.inputs)}
    env |= {s.read: dense(("state", s.name), s.read) for s in graph.states.values()}
    env |= {c.value: dense(("const", c.name), c.value) for c in graph.constants.values()}
    return Placed(graph, env, destinations(graph))


def _lay_out(p: Placed, row_major: bool) -> Placed:
    return replace(p, lies=assign_layouts(p.graph, p.given, in_logical_order(p.graph, p.wanted, row_major)))


def _alias(p: Placed, row_major: bool, frugal: bool) -> Placed:
    wanted, shared = dict(p.wanted), []
    behind_views(p.graph, p.lies, wanted, row_major)

    def temp(v: Value) -> Hashable:
        shared.append(v)
        return "temp", len(shared) - 1

    pointwise: set[int] = set()
    if frugal:  # but for nodes of a loop over images, which hold a part of their values
        looped = {i for loop in find_loops(p.graph, p.lies, wanted) for i in loop.nodes}
        pointwise = {id(n) for i, n in enumerate(p.graph.nodes) if i not in looped}
    over_operands(p.graph, p.lies, wanted, temp, pointwise)
    return replace(p, wanted=wanted, shared=tuple(shared))


def _find_loops(p: Placed, open_extents: bool) -> Placed:
    return p if open_extents else replace(p, loops=tuple(find_loops(p.graph, p.lies, p.wanted)))


# ---- launches --------------------------------------------------------------------------------------------------------


def _launch(p: Placed, empty: Callable[[], Lowering], name: str, device: Device, log_launches: bool, frugal: bool) -> Lowered:
    graph, lo, env = p.graph, empty(), dict(p.given)
    for v in p.shared:  # the first temporaries: they have the numbers that `_alias` gave them
        lo.temp(v.type.dtype, v.type.shape)
    lo.lower_graph = partial(lower_graph, lower_node=_lower_node)
    looped = {i for loop in p.loops for i in loop.nodes}
    ends = {loop.nodes[-1]: loop for loop in p.loops}  # views between its nodes come before it
    for i, n in enumerate(graph.nodes):
        lo.where, lo.node = n.where, i
        if frugal:
            lo.forget_prepared()
        if i in ends:
            _lower_loop(lo, graph, ends[i], env, p.wanted, p.lies)
        elif i not in looped:
            _lower_node(lo, n, env, p.wanted, p.lies)
    lo.where = lo.node = None
    outs = [env[v] if env[v].id == ("out", i) else _out_array(lo, env[v], ("out", i)) for i, v in enumerate(graph.outputs)]
    for i, c in enumerate(graph.checks):
        if env[c.bad].id is not CHECKS:
            copy(lo, env[c.bad], _flag(i), "write_check")
    _write_states(lo, graph, env)
    constants = tuple(("const", name) for name in graph.constants)
    inputs = (*(p.given[v].id for v in graph.inputs), *(("state", name) for name in graph.states), *constants)
    results = (*(("out", i) for i in range(len(outs))), *([CHECKS] if graph.checks else []))
    return Lowered(name or graph.name, lo, inputs, results, device, log_launches, graph, tuple(outs), constants)


def _flag(i: int) -> Array:
    return Array(CHECKS, bool_, (), (), i)


def _write_states(lo: Lowering, graph: Graph, env: dict[Value, Array]) -> None:
    """Copies new values into states. A new value that is a view of a state (when two states are exchanged) is copied to a
    temporary before any state is overwritten."""
    moves = []
    for s in graph.states.values():
        if s.written is None:
            continue
        src, own = env[s.written], env[s.read]
        if (src.id, src.strides, src.offset) != (own.id, own.strides, own.offset):
            moves.append((src, own))
    for i, (src, own) in enumerate(moves):
        if src.id[:1] == ("state",):
            saved = lo.temp(src.dtype, src.shape)
            copy(lo, src, saved, "save_state")
            moves[i] = (saved, own)
    for src, own in moves:
        copy(lo, src, own, "write_state")


def _out_array(lo: Lowering, src: Array, id: Hashable) -> Array:
    """The array of an output whose value is in other memory, from which it is copied."""
    out = Array(id, src.dtype, src.shape, contiguous_strides(src.shape))
    copy(lo, src, out, "write_output")
    return out


def _lower_node(
    lo: Lowering, n: Node, env: dict[Value, Array], wanted: Mapping[Value, Hashable], lies: Mapping[Value, Array]
) -> None:
    """Lowers one node, and adds the arrays of its outputs to `env`."""
    op = lookup(n.op) if n.op != "fused" else None
    if op is not None and op.kind == "view":
        src = env[n.inputs[0]]
        a = op.make_view(src, n.outputs[0].type, n.attrs)
        if a is None:
            row_major = lo.temp(src.dtype, src.shape)
            copy(lo, src, row_major)
            a = op.make_view(row_major, n.outputs[0].type, n.attrs)
        env[n.outputs[0]] = a
        return
    ins = [None if v is None else env[v] for v in n.inputs]
    for v in n.outputs:
        env[v] = _destination(lo, v, wanted, lies)
    run = _computing(n, ins, [env[v] for v in n.outputs])
    assert lo.node is not None
    lo.nodes[lo.node] = run
    problem = graph_key(n.attrs["body"]) if n.op == "fused" else (n.op, attrs_key(n.attrs))
    lo.reuse((problem, len(ins)), [*ins, *(env[v] for v in n.outputs)], run)


def _destination(lo: Lowering, v: Value, wanted: Mapping[Value, Hashable], lies: Mapping[Value, Array]) -> Array:
    """Where a value is computed to."""
    id = wanted[v] if v in wanted else lo.temp(v.type.dtype, v.type.shape).id
    return _flag(id[1]) if id[0] == CHECKS else replace(lies[v], id=id)


def _computing(
    n: Node, ins: Sequence[Array | None], outs: Sequence[Array], body: Graph | None = None
) -> Callable[[Lowering], None]:
    """A function that launches a node on these arrays. body: for a fused node, the body to use instead of its own."""
    if n.op == "fused":
        return partial(_lower_fused, body=body or n.attrs["body"], ins=ins, outs=outs)
    return partial(lookup(n.op).lower_to, ins=ins, outs=outs, attrs=n.attrs)


def _lower_loop(
    lo: Lowering, graph: Graph, loop: Loop, env: dict[Value, Array], wanted: Mapping[Value, Hashable], lies: Mapping[Value, Array]
) -> None:
    """Lowers nodes as a loop of the program over images."""
    nodes = [graph.nodes[i] for i in loop.nodes]
    for v in (v for n in nodes for v in n.outputs):
        if v in loop.inner:
            shape = (loop.some, *v.type.shape[1:])
            env[v] = replace(lies[v], id=lo.temp(v.type.dtype, shape).id, shape=shape)
        else:
            env[v] = _destination(lo, v, wanted, lies)
    invariant = [env[v] for n, parts in zip(nodes, loop.parts) for v, p in zip(n.inputs, parts) if v is not None and not p]
    now = lambda v, step: env[v] if v in loop.inner else loop.part(env[v], step)
    runs = {}
    for i, n, parts in zip(loop.nodes, nodes, loop.parts):
        body = at_images(n.attrs["body"], parts, loop.some) if n.op == "fused" else None

        def run(lo: Lowering, step: Index, n=n, parts=parts, body=body) -> None:
            ins = [None if v is None else now(v, step) if p else env[v] for v, p in zip(n.inputs, parts)]
            _computing(n, ins, [now(v, step) for v in n.outputs], body)(lo)

        runs[i] = run
        lo.nodes[i] = partial(_once, run, invariant)
    with lo.loop(loop.count, invariant, independent=True) as step:
        for i, n in zip(loop.nodes, nodes):
            lo.where, lo.node = n.where, i
            runs[i](lo, step)


def _once(run: Callable[[Lowering, Index], None], invariant: Sequence[Array], lo: Lowering) -> None:
    """Launches a node of a loop by itself, in a loop of one iteration (tuning does)."""
    with lo.loop(1, invariant, independent=True) as step:
        run(lo, step)


def _lower_fused(lo: Lowering, body: Graph, ins: Sequence[Array | None], outs: Sequence[Array]) -> None:
    """Launches a fused node: a contraction with a prologue or an epilogue, a reduction of a pointwise expression, several
    reductions of one shape, pointwise work over rows with reductions of them, or a pointwise kernel."""
    env: dict[Value, Source] = {v: Leaf(a) for v, a in zip(body.inputs, ins) if a is not None}
    for c in body.constants.values():
        env[c.value] = Literal(c.data.item(), c.value.type.dtype)
    anchor = next((m for m in body.nodes if lookup(m.op).anchors), None)
    last = body.nodes[-1]
    name = "_".join(dict.fromkeys(m.op.replace(".", "_") for m in body.nodes))[:60]
    if anchor is not None:
        return _lower_epilogue(lo, body, anchor, env, outs)
    several = len(body.outputs) > 1 and all(
        lookup(v.node.op).reduces and v.node.attrs["axes"] for v in body.outputs
    )
    for m in body.nodes:
        op = lookup(m.op)
        sources = [None if v is None else env[v] for v in m.inputs]
        if op.rules.lower_values is not None and m is last and len(body.outputs) == 1:
            return op.lower_from(lo, sources, outs, m.attrs)
        env[m.outputs[0]] = op.make_source(sources, m.outputs[0].type, m.attrs)
    values = [env[v] for v in body.outputs]
    if several:
        return joint_reduce(lo, values, outs, name)
    rows = next((m.attrs["axes"] for m in body.nodes if lookup(m.op).reduces), None)
    if rows is not None:
        return rowwise(lo, values, list(outs), tuple(rows), name)
    pointwise(lo, values, outs, name)


def _lower_epilogue(lo, body: Graph, anchor: Node, env: dict[Value, Source], outs: Sequence[Array]) -> None:
    """Launches a contraction with an epilogue (pointwise nodes that follow it), a prologue (pointwise nodes before one of its
    operands), or both."""
    op = lookup(anchor.op)
    made = _before(body, anchor)
    arrays = []
    for v in anchor.inputs:
        s = None if v is None else env[v] if v not in made else _with_prologue(env, v, made)
        if s is not None and not isinstance(s, Leaf):
            raise VerifyError(f"{anchor.op}: an operand of a contraction must be stored")
        arrays.append(None if s is None else s.array)
    if len(body.nodes) == len(set(made.values())) + 1:
        return op.lower_to(lo, arrays, outs, anchor.attrs)
    result = Given(tuple(anchor.outputs[0].type.shape), anchor.outputs[0].type.dtype)
    env[anchor.outputs[0]] = result
    for m in body.nodes:
        if m is not anchor and m.outputs[0] not in made:
            sources = [None if v is None else env[v] for v in m.inputs]
            env[m.outputs[0]] = lookup(m.op).make_source(sources, m.outputs[0].type, m.attrs)
    op.lower_to(lo, arrays, outs, anchor.attrs, Ending(env[body.outputs[0]], result))


def _before(body: Graph, anchor: Node) -> dict[Value, Node]:
    """The values inside of the body that a contraction's operands are computed from, with the nodes that compute them."""
    made: dict[Value, Node] = {}
    stack = [v for v in anchor.inputs if v is not None]
    while stack:
        v = stack.pop()
        if v.node is not None and v not in made:
            made[v] = v.node
            stack.extend(x for x in v.node.inputs if x is not None)
    return made


def _with_prologue(env: dict[Value, Source], v: Value, made: dict[Value, Node]) -> Leaf:
    """An operand with a prologue: the one array of its shape that it is computed from, and what is computed from an element."""
    chain = [v]
    while chain[-1] in made:
        chain.append(next(x for x in made[chain[-1]].inputs if x is not None and x.type.shape == v.type.shape))
    root = env[chain[-1]]
    assert isinstance(root, Leaf)

    def computed(element: Source) -> Source:
        of = {**env, chain[-1]: element}
        for x in reversed(chain[:-1]):
            m = made[x]
            of[x] = lookup(m.op).make_source([None if y is None else of[y] for y in m.inputs], x.type, m.attrs)
        return of[v]

    given = Given(root.shape, root.dtype)
    return Leaf(replace(root.array, prologue=Prologue(computed(given), given, computed(root))))
