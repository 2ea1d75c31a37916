"""Activation memory of a pipeline's stage as a budget in bytes: what the tape holds of a micro-batch, and what is computed again in its place.

In: layers, the types of what they are given, a schedule, a number of bytes. Out: for each micro-batch the runs of layers that the forward
does not keep, and the backward computes again (`autodiff.checkpoint`).

What a layer's gradient reads is counted by recording the layers as a trace does: nothing is computed. A run of layers that is computed again
keeps what the first of them is given; while it is computed, in the forward and once more in the backward, all that its gradient reads is there.
`choices` finds the ways to keep less of a micro-batch that are worth their operations, `plan` which micro-batches take them.

Source: T. Chen and others, "Training Deep Nets with Sublinear Memory Cost", arXiv 1604.06174
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from tengen.base.dtype import dtype as dtype_named
from tengen.base.errors import BudgetError
from tengen.base.record import NamedTuple
from tengen.ir.graph import Value
from tengen.ir.types import TensorType
from tengen.ops.define import lookup
from tengen.passes.units import bytes_of, flops
from tengen.tensor import Tensor
from tengen.tensor.casting import casting
from tengen.tensor.elsewhere import Placed, local
from tengen.tensor.nodes import Level, TapeNode, new_limit, node_of
from tengen.tensor.recorder import Recorder, traced
from tengen.tensor.writes import Written

if TYPE_CHECKING:
    from tengen.distributed.pipeline import Pipeline

Bytes = dict[int, int]  # of values, by their numbers
MOST = 24  # ways that are kept of a row of layers, where more are worth their operations

Turn = tuple[str, int, int]  # ("f" or "b", a micro-batch's number, a chunk of layers), in the order in which a stage does them


class Passed(NamedTuple):
    """A tensor that one part of the network gives the next. places: where its parts are, on a mesh; "all": nowhere else."""

    type: TensorType
    places: str = "all"


class Counted(NamedTuple):
    """A layer, for one micro-batch.

    Attributes: given, made: what it is called with, and what it returns. held: what its gradient reads. written: bytes of the buffers that
        it changes, whose values before it are needed to compute it again. constant: what is there as long as the micro-batch is, whatever is
        held: what came from another process, and the targets. operations: of its forward.
    """

    given: Bytes
    made: Bytes
    held: Bytes
    written: int
    constant: Bytes
    operations: int


class Choice(NamedTuple):
    """A way to do one micro-batch.

    Attributes: kept: bytes between its forward and its backward. peak: the most bytes in its forward and its backward. operations: that
        are done again. again: (first, end) of the runs of layers that are computed again.
    """

    kept: int
    peak: int
    operations: int
    again: tuple[tuple[int, int], ...]


class Plan(NamedTuple):
    """Activation memory of one process for one batch.

    Attributes: bytes: the most that it holds at once. whole: the most where nothing is computed again. least: the smallest budget that can
        be met. operations: of the forwards that are done again, and forward: of all forwards. again: for each (micro-batch, chunk of layers)
        that is not kept whole, the runs of layers, (first, end), that are computed again.
    """

    bytes: int
    whole: int
    least: int
    operations: int
    forward: int
    again: dict[tuple[int, int], tuple[tuple[int, int], ...]]


# ---- what layers hold ------------------------------------------------------------------------------------------------------


def _base(v: Value) -> Value:
    """The value in whose memory a view lies. A reshape of what may lie in another order of axes (images, which convolutions write with their
    channels last; transposed and cut tensors) is a copy."""
    while (n := v.node) is not None and lookup(n.op).kind == "view":
        below = n.inputs[0]
        by = None if below.node is None else below.node.op
        if n.op == "reshape" and (below.type.ndim > 3 or (by not in (None, "reshape") and lookup(by).kind == "view")):
            break
        v = below
    return v


class _Values:
    """Numbers for the values of a recording that lie in memory of their own."""

    def __init__(self, given: Iterable[Tensor]):
        self._given = {id(local(x)._data) for x in given}
        self._weights: set[int] = set()

    def are_weights(self, data: Iterable[Any]) -> None:
        """Values that all micro-batches share: what autocast has made of parameters."""
        self._weights.update(map(id, data))

    def bytes(self, data: Iterable[Any]) -> Bytes:
        """The bytes of values, but for those that are there before: parameters, buffers, constants."""
        found: Bytes = {}
        for v in data:
            v = v._data if isinstance(v, Tensor) else v  # this process's part of a placed tensor
            if type(v) is Value and id(v := _base(v)) not in self._weights and (v.node is not None or id(v) in self._given):
                found[id(v)] = bytes_of(v)
        return found


def _tensors(value: Any) -> list[Tensor]:
    return list(value) if isinstance(value, (tuple, list)) else [value]


def counted(
    layers: Sequence[Callable[..., Any]], parameters: Iterable[Tensor], given: Sequence[Passed], several: bool, first: bool,
    targets: Sequence[TensorType] = (), mesh: Any = None,
) -> tuple[list[Counted], list[Passed], bool]:  # fmt: skip
    """What each of a row of layers holds for the gradient of one micro-batch.

    Args: given: what the first layer takes; several: whether that is a tuple. first: whether there is no gradient of it. targets: what the
        last layer takes besides. mesh: on which tensors have parts.
    Returns: the counts; what the last layer returns, and whether that is a tuple.
    Errors: TraceError for layers that cannot be recorded.
    """
    with Recorder("activations") as rec, Level() as level:
        for p in parameters:
            level.start(p)
        xs = [_stand_in(rec, f"given{i}", x, mesh) for i, x in enumerate(given)]
        more = [_stand_in(rec, f"target{i}", Passed(t), mesh) for i, t in enumerate(targets)]
        for x in xs if not first else ():
            level.start(x)
        values = _Values([*xs, *more])
        value: Any = tuple(xs) if several else xs[0]
        between, marks, written, nodes = [values.bytes(x._data for x in xs)], [new_limit()], [], [len(rec.graph.nodes)]
        for i, layer in enumerate(layers):
            with Written() as table:
                value = layer(value, *(more if i == len(layers) - 1 else ()))
            written.append(sum(local(t).size * t.dtype.size for t, _ in table.alive()))
            between.append(values.bytes(t._data for t in _tensors(value)))
            marks.append(new_limit())
            nodes.append(len(rec.graph.nodes))
        held = _held(_tensors(value), level, marks)
        values.are_weights(made._data for _, _, made in casting.made.values())
        constant = values.bytes(t._data for t in (*(() if first else xs), *more))
        found = [
            Counted(a, b, values.bytes(h), w, {} if i else constant, sum(map(flops, rec.graph.nodes[m:n])))
            for i, (a, b, h, w, m, n) in enumerate(zip(between, between[1:], held, written, nodes, nodes[1:]))
        ]
        made = [Passed(t._layout.type, mesh.packed(t)[1] if type(t._layout) is Placed else "all") for t in _tensors(value)]
        return found, made, isinstance(value, (tuple, list))


def _stand_in(rec: Recorder, name: str, x: Passed, mesh: Any) -> Tensor:
    """A tensor of the recording that is given."""
    if x.places == "all":
        return traced(rec.graph.add_input(name, x.type))
    part = TensorType(mesh.part_shape(x.type.shape, x.places), x.type.dtype)
    return mesh.unpacked(traced(rec.graph.add_input(name, part)), x.type.shape, x.places)


def _held(outputs: Sequence[Tensor], level: Level, marks: Sequence[int]) -> list[list[Any]]:
    """What the calls hold that lead to the outputs, for each layer: those between two marks."""
    found: list[list[Any]] = [[] for _ in marks[1:]]
    todo: list[TapeNode] = [n for n in (node_of(t)[0] for t in outputs) if n is not None]
    seen: set[int] = set()
    while todo:
        n = todo.pop()
        if id(n) in seen or n.op is None or n.order < level.order:
            continue
        seen.add(id(n))
        layer = found[bisect_right(marks, n.order) - 1]
        layer += [s[0] for s in n.saved if s is not None] + [o._data for o in n.outputs or ()]
        todo += n.parents()
    return found


# ---- ways to keep less of a micro-batch -------------------------------------------------------------------------------------


def _worth(found: Iterable[Choice]) -> list[Choice]:
    """Those beside which no other has less of everything; at most `MOST`, among them the ends."""
    kept: list[Choice] = []
    for c in sorted(set(found), key=lambda c: (c.operations, c.peak, c.kept, len(c.again))):
        if all(k.kept > c.kept or k.peak > c.peak for k in kept):
            kept.append(c)
    if len(kept) <= MOST:
        return kept
    ends = {min(range(len(kept)), key=lambda i: (kept[i][field], kept[i].operations)) for field in (0, 1)}
    some = {round(i * (len(kept) - 1) / (MOST - 3)) for i in range(MOST - 2)}
    return [kept[i] for i in sorted(ends | some)]


def choices(layers: Sequence[Counted]) -> list[Choice]:
    """Ways to do a micro-batch, the one without a second computation first, then by what they compute again: those beside which no other
    has less of everything."""
    constant = {k: n for a in layers for k, n in a.constant.items()}
    # what lies before a layer: the way, by the values there that are kept already
    ways: list[dict[frozenset[int], list[Choice]]] = [{} for _ in range(len(layers) + 1)]
    ways[0][frozenset()] = [Choice(sum(constant.values()), sum(constant.values()), 0, ())]
    for i in range(len(layers)):
        for there, some in ways[i].items():
            some = _worth(some)
            free = there | constant.keys()
            new = {k: n for k, n in layers[i].held.items() if k not in free}
            after = frozenset(k for k in layers[i].made if k in there or k in new)
            kept = sum(new.values())
            ways[i + 1].setdefault(after, []).extend(c._replace(kept=c.kept + kept, peak=max(c.peak, c.kept + kept)) for c in some)
            _again(layers, i, free, some, ways)
    return _worth(c for some in ways[-1].values() for c in some)


def _again(layers: Sequence[Counted], i: int, there: Iterable[int], some: Sequence[Choice], ways: list[dict]) -> None:
    """Ways that go on with a run of layers from the i-th on that is computed again."""
    there = set(there)
    given = {k: n for k, n in layers[i].given.items() if k not in there}
    before, inside, written, operations = there | given.keys(), Bytes(), 0, 0
    for j in range(i, len(layers)):
        inside |= {k: n for k, n in layers[j].held.items() if k not in before}
        written, operations = written + layers[j].written, operations + layers[j].operations
        most = sum(({k: n for k, n in layers[j].made.items() if k not in before} | inside).values())
        after = frozenset(k for k in layers[j].made if k in before)
        kept = sum(given.values()) + written
        ways[j + 1].setdefault(after, []).extend(
            Choice(c.kept + kept, max(c.peak, c.kept + kept + most), c.operations + operations, (*c.again, (i, j + 1))) for c in some
        )


# ---- which micro-batches take them -------------------------------------------------------------------------------------------


class _Timeline:
    """The bytes that a stage holds at each of its works, with a way chosen for each micro-batch.

    Attributes: keys: (micro-batch, chunk), in the order of their forwards. chosen: the way of each. held: the bytes, work by work.
    """

    def __init__(self, works: Sequence[Turn], first: Callable[[int], Choice]):
        self.held = np.zeros(len(works), np.int64)
        self._begin = {(m, c): i for i, (kind, m, c) in enumerate(works) if kind == "f"}
        self._end = {(m, c): i for i, (kind, m, c) in enumerate(works) if kind == "b"}
        self.keys, self.chosen = list(self._begin), dict.fromkeys(self._begin, Choice(0, 0, 0, ()))
        for k in self.keys:
            self.choose(k, first(k[1]))

    @property
    def operations(self) -> int:
        """That are done again, of all micro-batches."""
        return sum(c.operations for c in self.chosen.values())

    @property
    def most(self) -> int:
        """The most bytes at once; 0 without a micro-batch."""
        return int(self.held.max(initial=0))

    def choose(self, k: tuple[int, int], c: Choice) -> None:
        """Another way for a micro-batch."""
        i, j, old = self._begin[k], self._end[k], self.chosen[k]
        self.held[i + 1 : j] += c.kept - old.kept
        self.held[[i, j]] += c.peak - old.peak
        self.chosen[k] = c

    def fits(self, k: tuple[int, int], c: Choice, budget: float) -> bool:
        """Whether a way keeps the budget at the works from the micro-batch's forward to its backward."""
        i, j, old = self._begin[k], self._end[k], self.chosen[k]
        between = self.held[i + 1 : j]
        most = max(self.held[i], self.held[j]) + c.peak - old.peak
        return most <= budget and (not between.size or between.max() + c.kept - old.kept <= budget)

    def relax(self, ways: Sequence[Sequence[Choice]], budget: float, keys: Iterable[tuple[int, int]]) -> _Timeline:
        """Gives one micro-batch after the other the cheapest way that keeps the budget. Returns self."""
        for k in keys:
            cheaper = (c for c in ways[k[1]] if c.operations < self.chosen[k].operations and self.fits(k, c, budget))
            if (best := min(cheaper, key=lambda c: c.operations, default=None)) is not None:
                self.choose(k, best)
        return self


def _least(works: Sequence[Turn], ways: Sequence[Sequence[Choice]]) -> list[Choice]:
    """For each chunk the way with which a stage holds least, if all of its micro-batches take it: one chunk's after the other; of one chunk
    that is the least there is."""
    most = lambda picked: _Timeline(works, picked.__getitem__).most
    picked = [min(some, key=lambda c: (c.kept, c.peak)) for some in ways]
    before = inf
    while (now := most(picked)) < before:
        before = now
        for i, some in enumerate(ways):
            picked[i] = min(some, key=lambda c, i=i: (most([*picked[:i], c, *picked[i + 1 :]]), c.operations))
    return picked


def plan(works: Sequence[Turn], layers: Sequence[Sequence[Counted]], budget: float) -> Plan:
    """Which runs of layers are computed again, so that a stage holds at most so many bytes of activations. Where `least` is more than the
    budget, the plan is that of the least.

    All micro-batches take one way first; then one after the other takes the cheapest with which the budget is still kept. The first ways
    that are tried are all that keep it, and both orders; the plan with the fewest operations is taken.

    Args: works: what the stage does, in order. layers: of each chunk, for the largest micro-batch.
    """
    ways = [choices(row) for row in layers]
    picked = _least(works, ways)
    least = _Timeline(works, picked.__getitem__).most
    whole = _Timeline(works, lambda chunk: ways[chunk][0])
    starts = [picked, *([*picked[:i], c, *picked[i + 1 :]] for i, some in enumerate(ways) for c in some)]
    found = []
    for start in starts:
        for order in (1, -1):
            t = _Timeline(works, start.__getitem__)
            if t.most <= max(budget, least):
                found.append(t.relax(ways, max(budget, least), t.keys[::order]))
    best = min(found, key=lambda t: t.operations)
    forward = sum(a.operations for _, chunk in best.keys for a in layers[chunk])
    again = {k: c.again for k, c in best.chosen.items() if c.again}
    return Plan(best.most, whole.most, least, best.operations, forward, again)


def planned(pipeline: Pipeline, works: Sequence[Turn], given: Sequence[TensorType], targets: Sequence[TensorType]) -> Plan:
    """The plan of a process for its largest micro-batch; all processes of the pipeline call it together. given, targets: what the network's
    first layer and the loss take of it.

    Errors: BudgetError, in every process, where one of them cannot meet the budget.
    """
    last, layers = pipeline.stages * len(pipeline.parts) - 1, list[list[Counted]]()
    samples, several, budget = given[0].shape[0], False, pipeline.memory_budget
    passed = [Passed(t) for t in given]
    for i in range(last + 1):
        told = pipeline.from_owner(i, partial(_told, pipeline, layers, i, passed, several, targets if i == last else ()))
        kinds = zip(told["shapes"], told["dtypes"], told["places"])
        passed = [Passed(TensorType(tuple(map(int, s)), dtype_named(str(d))), str(p)) for s, d, p in kinds]
        several = bool(told["several"])
    found = plan(works, layers, inf if budget is None else budget)
    least, group = np.array([found.least], np.int64), pipeline.group
    if group.size > 1:
        least = group.channel.all_gather(least, [1] * group.size, "bytes of activations")
    if budget is not None and least.max() > budget:
        raise BudgetError(
            f"Pipeline(memory_budget={budget}): stage {int(least.argmax()) // pipeline.data} of {pipeline.stages} needs {least.max()} bytes of "
            f"activations for micro-batches of up to {samples} samples, the smallest that can be; help: a budget of at least {least.max()} "
            "bytes, more micro-batches or more stages"
        )
    return found


def _told(
    pipeline: Pipeline, layers: list, i: int, given: list[Passed], several: bool, targets: Sequence[TensorType], chunk: int
) -> dict[str, Any]:
    """Counts the i-th part of the network, a chunk of this process. Returns what the next one takes."""
    part = pipeline.parts[chunk]
    row = [*part, pipeline.loss] if i == pipeline.stages * len(pipeline.parts) - 1 else [*part]
    found, made, several = counted(row, part.parameters(), given, several, i == 0, targets, pipeline.mesh)
    layers.append(found)
    return {
        "shapes": [list(x.type.shape) for x in made], "dtypes": [x.type.dtype.name for x in made], "places": [x.places for x in made],
        "several": several,
    }  # fmt: skip
