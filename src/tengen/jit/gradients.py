"""The gradient of a traced function, where it is asked for outside: ``loss = traced(x)``, then ``loss.backward()`` or
``gm.backward(loss)``.

In: a graph that was recorded from tensors which the caller differentiates by, and its results, which are still on the tape. Out: a
`Gradient`. The function's program then returns the values that its gradient needs, too, and a call is one node of the caller's tape,
whose rule runs a second program. That one is recorded behind the function in the same graph, by the walk that computes gradients
eagerly, and cut out of it, so values and gradients have the bits of the calls one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tengen.base.device import Device
from tengen.base.errors import GradientError
from tengen.base.record import NamedTuple
from tengen.compiler.plans import Layout
from tengen.ir.editing import between
from tengen.ir.graph import Graph, Value
from tengen.ir.rewrite import live_nodes
from tengen.jit.recording import deciding, value_at
from tengen.loops.extents import Numbers
from tengen.loops.lang import Expr, unguarded, var
from tengen.tensor import Tensor, contiguous
from tengen.tensor.executable import Executable
from tengen.tensor.nodes import Level, TapeNode, is_live, is_nested, limits, node_of, on_tape, visible_node
from tengen.tensor.recorder import Recorder, traced
from tengen.tensor.tape import FunctionOp, SliceGrad, gradients
from tengen.tensor.tensor import tensor_on_tape

Key = tuple[int, int]  # a place of the tape: the id of a node, and which of its outputs


def _key(place: Any) -> Key:
    return (id(place[0]), place[1]) if isinstance(place, tuple) else (id(place), 0)


def same_places(tensors: Sequence[Tensor]) -> list[int]:
    """For each tensor that is on the tape the position of the first with its place, whose gradient is its own; -1 for others."""
    first: dict[Key, int] = {}
    return [first.setdefault(_key(t._node), i) if t._node is not None and on_tape(t) else -1 for i, t in enumerate(tensors)]


NESTED = "several gradients are recorded around it, and one may be asked for through another"


class _Walked(NamedTuple):
    """A gradient as it was recorded. seeds: the gradients of the function's results, its inputs. terms: for each place what is added to its
    gradient, in order: Tensors and `SliceGrad`s. captured: (tensor, its value), which rules of the user's own functions read. conditions:
    on open extents, as a recording has them."""

    seeds: list[Value]
    terms: list[list[Any]]
    captured: list[tuple[Tensor, Value]]
    conditions: list[tuple[Expr, bool]]

    def results(self) -> list[Value]:
        return [(g.grad if isinstance(g, SliceGrad) else g)._data for some in self.terms for g in some]


class _Backward(NamedTuple):
    """A compiled gradient. layouts: of its inputs, when it was compiled; it takes them in the order of axes that they have in memory.
    terms: for each place and term None, or (shape of the whole, first elements) of the part that it is of."""

    run: Executable
    layouts: list[Layout]
    terms: list[list[tuple | None]]
    captured: list[Tensor]
    conditions: list[tuple[Expr, bool]]


class Gradient:
    """What differentiates the calls of one recording.

    Attributes:
        graph: the function's own. outs: its results that have gradients, by their positions; the tape that they are on ends at the
            function's arguments and states. aliases: results that are one of these under another position.
        places: the start of that tape that stands for each argument or state, by its position among both. shared: `same_places` of them.
        saved: what a call keeps: (value, position among arguments and states, or -1; position among what the program returns, or -1).
    """

    def __init__(self, name: str, device: Device, graph: Graph, outs: dict[int, Tensor], aliases: dict[int, int], level: Level):
        self.name, self.device, self.graph, self.outs, self.aliases, self._level = name, device, graph, outs, aliases, level
        self.places: dict[int, TapeNode] = {}
        self.shared: list[int] = []
        self.saved: list[tuple[Value, int, int]] = []
        self._made: dict[tuple[int, ...], _Backward] = {}

    def layouts(self) -> set[int]:
        """The ids of the traced layouts that it keeps on purpose."""
        stack = [n for t in self.outs.values() if (n := node_of(t)[0]) is not None]
        seen, found = set(map(id, stack)), {id(t._layout) for t in self.outs.values()}
        while stack:
            n = stack.pop()
            found |= {id(s[1]) for s in n.saved if s is not None} | {id(o._layout) for o in n.outputs or ()}
            for m in n.parents():
                if id(m) not in seen:
                    seen.add(id(m))
                    stack.append(m)
        return found

    # -- recording -------------------------------------------------------------------------------------------------------
    def enclose(self, tensors: Sequence[Tensor]) -> bool:
        """Makes the function's tape end at arguments and states, which `tensors` are. Returns false where it goes on to another place."""
        self.shared = same_places(tensors)
        position = {_key(tensors[i]._node): i for i in self.shared if i >= 0}

        def start(place: Any) -> TapeNode | None:
            i = position.get(_key(place))
            if i is None:
                return None
            if i not in self.places:
                self.places[i] = node = TapeNode(None, (), ())
                node.level = self._level
            return self.places[i]

        def is_outside(place: Any) -> bool:
            node = place[0] if isinstance(place, tuple) else place
            return node.order < self._level.order and is_live(node)

        for t in self.outs.values():
            if is_outside(t._node):
                t._node = start(t._node)
        stack = [node_of(t)[0] for t in self.outs.values()]
        seen = set(map(id, stack))
        while stack:
            n = stack.pop()
            if n is None:
                return False
            for k, s in enumerate(n.saved):
                if s is not None and s[2] is not None and is_outside(s[2]):
                    n.saved[k] = s[0], s[1], start(s[2])
                    if n.saved[k][2] is None:
                        return False
            for m in n.parents():
                if id(m) not in seen and m.order >= self._level.order:
                    seen.add(id(m))
                    stack.append(m)
        return True

    def _walk(self, wanted: Sequence[int], extents: Mapping[str, int]) -> tuple[_Walked, bool]:
        """Records the gradient of the results at these positions behind the function. Also: whether a run of it alone has its effects."""
        outs = [self.outs[i] for i in wanted]
        terms: list[list[Any]] = [[] for _ in self.places]
        rec = Recorder(self.name, device=self.device, graph=self.graph)
        with rec, deciding(extents or None) as conditions:
            seeds = [traced(self.graph.add_input(f"gradient{i}", o._layout.type)) for i, o in enumerate(outs)]
            self._level.resume()
            try:
                gradients(outs, seeds, [(n, 0) for n in self.places.values()], self._level, again=True, terms=terms)
            finally:
                self._level.end()
            captured = [(t, rec.value(t)) for t in rec.captured]
            alone = not (rec.changes() or rec.late or rec.grads or rec.reads or rec.managers or self._level.owed or self._level.awaited)
        return _Walked([x._data for x in seeds], terms, captured, conditions), alone

    def record(self, extents: Mapping[str, int], sources: Sequence[Value], returned: Sequence[Value]) -> list[Value] | None:
        """Decides what a call keeps. Returns the values that the function's program has to return besides; None where the gradient changes
        tensors of the user's, which is to happen in each call. sources: of the arguments and states; returned: what it returns."""
        graph, mark = self.graph, _size(self.graph)
        nodes = set(graph.nodes)
        walked, alone = self._walk(tuple(self.outs), extents)
        place, given = {v: i for i, v in enumerate(sources)}, {v: i for i, v in reversed(list(enumerate(returned)))}
        more: list[Value] = []
        for v in dict.fromkeys(_read_by(graph, nodes, walked.results())):
            if v.node is not None and v not in given:
                given[v] = len(returned) + len(more)
                more.append(v)
            if v in place or v.node is not None:
                self.saved.append((v, place.get(v, -1), given.get(v, -1)))
        _cut_back(graph, mark)
        return more if alone else None

    def _backward(self, wanted: tuple[int, ...], extents: Mapping[str, int], tensors: Sequence[Tensor]) -> _Backward:
        """The program for the results at these positions: recorded and compiled when it is first asked for. tensors: the gradients of these
        results, and what the call has kept."""
        known = self._made.get(wanted)
        if known is not None and all(value_at(c, extents) == answer for c, answer in known.conditions):
            return known
        mark = _size(self.graph)
        walked, _ = self._walk(wanted, extents)
        inputs = [*walked.seeds, *(v for v, _, _ in self.saved), *(v for _, v in walked.captured)]
        outputs = [(f"term{i}", v) for i, v in enumerate(walked.results())]
        part = between(self.graph, inputs, outputs, f"{self.name}.gradient")
        _cut_back(self.graph, mark)
        if part.states:
            raise GradientError(f"{self.name}: the gradient reads {', '.join(part.states)}, which a call does not keep")
        pieces = [[(g.shape, g.starts) if isinstance(g, SliceGrad) else None for g in some] for some in walked.terms]
        captured = [t for t, _ in walked.captured]
        layouts = [t._layout for t in (*tensors, *captured)]
        orders = {v.name: x.order for v, x in zip(part.inputs, layouts) if x.order is not None and not x.contiguous}
        run = Executable(part, part.name, device=self.device, orders=orders)
        found = self._made[wanted] = _Backward(run, layouts, pieces, captured, walked.conditions)
        return found

    # -- running ---------------------------------------------------------------------------------------------------------
    def serves(self, tensors: Sequence[Tensor]) -> bool:
        """Whether a call with these arguments and states can be one node: those are on the tape that were when it was recorded, none shares
        its place with another one than then, and no further gradient is being recorded around."""
        return not is_nested() and same_places(tensors) == self.shared

    def kept(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The arguments and states that a call keeps, as they are before it."""
        return [contiguous(tensors[at].detach()) for _, at, _ in self.saved if at >= 0]

    def attach(self, made: list[Tensor], tensors: Sequence[Tensor], kept: Sequence[Tensor], extents: Mapping[str, int]) -> None:
        """Puts the results of a run on the caller's tape. made: what the program returned; kept: what `kept` gave before the run."""
        left = iter(kept)
        saved = [next(left) if at >= 0 else made[i]._off_tape() for _, at, i in self.saved]
        at_tape = [tensor_on_tape(None, tensors[i]._layout, tensors[i]._node) for i in self.places]
        node = (visible_node if limits else TapeNode)(self._rule(extents), (*at_tape, *saved), ())
        if node is None:
            return
        number = {i: k for k, i in enumerate(self.outs)}
        for i in (*self.outs, *self.aliases):
            made[i]._node = node if len(number) == 1 else (node, number[self.aliases.get(i, i)])

    def _rule(self, extents: Mapping[str, int]) -> Any:
        """What the backward walk asks of an op."""
        n, n_outs = len(self.places), len(self.outs)

        def rule(grads: Any, *inputs: Tensor, **attrs: Any) -> tuple:
            gs = grads if isinstance(grads, tuple) else (grads,)
            if any(x._node is not None and on_tape(x) for x in (*inputs[:n], *gs) if x is not None):
                raise GradientError(
                    f"the gradient of a gradient goes through a call of the traced function {self.name}, which has kept what the first one "
                    "needs; help: trace the function that computes both, or call the function untraced (trace.enabled = False)"
                )
            wanted = tuple(i for i, g in zip(self.outs, gs) if g is not None)
            tensors = [x for x in (*gs, *inputs[n:]) if x is not None]
            b = self._backward(wanted, extents, tensors)
            buffers = [_buffer(x, layout) for x, layout in zip((*tensors, *b.captured), b.layouts)]
            made = iter(b.run(buffers, tuple(extents[e] for e in b.run.extents)))
            known = Numbers({var(name): n for name, n in extents.items()})
            in_numbers = lambda part: (tuple([known(unguarded(d)) for d in dims]) for dims in part)
            return tuple([SliceGrad(g, *in_numbers(p)) if p is not None else g for p, g in zip(some, made)] for some in b.terms)

        return FunctionOp(self.name, rule, n_outs)


def differentiated(
    rec: Recorder, since: int, outs: Sequence[Tensor], n_results: int, arguments: Sequence[Tensor], extents: Mapping[str, int], writes: bool
) -> tuple[Gradient, Graph] | str:  # fmt: skip
    """(The gradient of what was recorded, the function's graph with the values that it needs among the outputs). Where calls have to run op
    by op: why.

    Args: since: the order of the first call on the tape. outs: what the graph returns, of which the first n_results are the function's
        results. arguments: the tensors of the call. extents: the numbers of open extents. writes: whether it gave a concrete
        tensor a value that a gradient may be asked for through.
    """
    if is_nested():
        return NESTED
    if writes or any(on_tape(t) for t in outs[n_results:]):
        return "it sets a tensor to a value that the gradient goes through"
    first: dict[Key, int] = {}
    mine, aliases = {}, {}
    for i, t in enumerate(outs[:n_results]):
        if on_tape(t):
            at = first.setdefault(_key(t._node), i)
            (mine if at == i else aliases)[i] = t if at == i else at
    level = Level(since=since)
    found = Gradient(rec.graph.name, rec.device, rec.graph, mine, aliases, level)
    try:
        if not found.enclose([*arguments, *rec.captured]):
            return "it reaches a value on the tape that is no argument, and that it has not made"
    finally:
        level.end()
    mapping: dict[Value, Value] = {}
    graph = rec.graph.copy(mapping)
    sources = [*rec.graph.inputs, *(s.read for s in rec.graph.states.values())]
    more = found.record(extents, sources, rec.graph.outputs)
    if more is None:
        return "its gradient changes tensors, or reads them when it is computed"
    for i, v in enumerate(more):
        graph.add_output(f"kept{i}", mapping[v])
    return found, graph


def _buffer(x: Tensor, like: Layout) -> Any:
    """A buffer of x's elements, with its axes in the order in memory that they have in `like`; in logical order where that has gaps."""
    x = x.detach()
    if x._layout is like and like.order is not None:
        return x._data
    return contiguous(x if like.contiguous or like.order is None else x.permute(like.order))._data


def _size(g: Graph) -> tuple[int, int, int, int, int]:
    return len(g.nodes), len(g.inputs), len(g.states), len(g.constants), len(g.checks)


def _cut_back(g: Graph, size: tuple[int, int, int, int, int]) -> None:
    """Takes off what was recorded since the graph had this size."""
    nodes, inputs, states, constants, checks = size
    del g.nodes[nodes:], g.inputs[inputs:], g.checks[checks:]
    g.states, g.constants = dict(list(g.states.items())[:states]), dict(list(g.constants.items())[:constants])


def _read_by(graph: Graph, before: set, results: Sequence[Value]) -> Iterable[Value]:
    """The values that some results take from nodes of `before`, from inputs, states and constants."""
    yield from (v for v in results if v.node is None or v.node in before)
    live = live_nodes(graph, results) - before
    for n in graph.nodes:
        if n in live:
            yield from (v for v in n.inputs if v is not None and (v.node is None or v.node in before))
