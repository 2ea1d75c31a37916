"""A traced function that asks for values is run in parts: what it computes up to a question is recorded, found again by its
structure, and run as one program; then Python goes on, in every call.

In: what was recorded since the last question, and which of its values somebody still holds. Out: these values. A part is known by
its structure: ops, attributes, types. Python numbers among its operands are constants of its program; those that are found to
differ become operands of another one, which serves all numbers. `questions.py` records.
"""

from __future__ import annotations

import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from tengen.base import errors
from tengen.base.device import Device
from tengen.base.errors import TengenError, TraceWarning, user_line
from tengen.base.record import record
from tengen.ir.graph import Constant, Graph, Node, Value, attr_key, graph_key
from tengen.jit.calls import Calls, Source, expanded
from tengen.ops.define import lookup
from tengen.tensor import Tensor, contiguous
from tengen.tensor.eager import computed
from tengen.tensor.executable import Executable
from tengen.tensor.tensor import number

MANY = 20  # parts of one call that are run without a warning
VARIANTS = 4  # programs of one structure that are kept
STRUCTURES = 256  # that are kept


@record(frozen=True)
class PartStats:
    """One part of a traced function that asks for values.

    Attributes:
        nodes: how many operations it has. calls: how often it was run. programs: how many were compiled for it; 0 where it was run
            op by op, because it differs in shapes from another part, and was not met twice. where: the line that cut it off; None: it
            ends with the call.
    """

    nodes: int
    calls: int
    programs: int
    where: str | None

    def __str__(self) -> str:
        end = "the end" if self.where is None else self.where
        return f"part of {self.nodes} ops up to {end}: run {self.calls} times, {self.programs} program{'' if self.programs == 1 else 's'}"


@record
class Program:
    """A compiled part. outputs: positions of the values that it gives. numbers: of the constants, by position; those in `open` are
    operands."""

    run: Executable
    outputs: tuple[int, ...]
    gives: frozenset[int]  # the same
    numbers: dict[int, Any]
    open: frozenset[int]

    def results(self, sources: Sequence[Source]) -> dict[int, Tensor]:
        """The values that it gives for these sources."""
        buffers = []
        for i, s in enumerate(sources):
            if type(s) is not tuple:
                buffers.append((s if s._layout.contiguous else contiguous(s))._data)
            elif i in self.open:
                buffers.append(number(*s)._data)
        return dict(zip(self.outputs, self.run(buffers)))


@record
class Part:
    """What is known of one structure."""

    nodes: int
    where: str | None
    family: Any
    calls: int = 0
    made: int = 0
    programs: list[Program] = field(default_factory=list)

    def fitting(self, wanted: Iterable[int], sources: Sequence[Source]) -> Program | None:
        """A program that gives these values for the numbers among these sources."""
        for p in self.programs:
            same = all(_exact(sources[i][0]) == n for i, n in p.numbers.items() if i not in p.open)
            if same and p.gives.issuperset(wanted):
                return p
        return None


class Taken:
    """What was recorded since the last question, as it is run: values have positions, sources first in the order in which they are
    read.

    Args: given: what sources are. also: sources that are wanted, whether or not they are read.

    Attributes:
        key: its structure. sources: what it reads. at: the position of each value.
    """

    def __init__(self, graph: Graph, given: dict[Value, Source], also: Iterable[Value] = ()):
        self.graph = graph
        at: dict[Value | None, int] = {None: -1}
        self.values: list[Value] = []
        self.sources: list[Source] = []
        for n in graph.nodes:
            for v in n.inputs:
                if v is not None and v not in at and v.node is None:
                    at[v] = len(self.values)
                    self.values.append(v)
                    self.sources.append(given[v])
        for v in also:
            if v not in at:
                at[v] = len(self.values)
                self.values.append(v)
                self.sources.append(given[v])
        nodes: list[tuple] = []
        for n in graph.nodes:
            nodes.append((n.op, tuple([at[v] for v in n.inputs]), _attributes(n)))
            for v in n.outputs:
                at[v] = len(self.values)
                self.values.append(v)
        checks = tuple([(at[c.bad], c.error, c.message, c.where) for c in graph.checks])
        types = tuple([v.type for v in self.values[: len(self.sources)]])
        numbers = tuple([i for i, s in enumerate(self.sources) if type(s) is tuple])
        self.at, self.key = at, (tuple(nodes), types, numbers, checks)

    def family(self) -> Any:
        """The structure but for types and attributes."""
        return tuple((op, ins) for op, ins, _ in self.key[0])

    def compile(self, name: str, wanted: Iterable[int], known: Sequence[Program], device: Device) -> Program:
        """A program that gives these values, and those that other programs of the structure give."""
        numbers = numbers_of(self.sources)
        open_ = frozenset(i for p in known for i, n in numbers.items() if i in p.open or p.numbers[i] != n)
        outputs = tuple(sorted({*wanted, *(i for p in known for i in p.outputs)}))
        g, values = Graph(name), self.values
        g.nodes, g.checks = self.graph.nodes, self.graph.checks
        for i, s in enumerate(self.sources):
            v = values[i]
            v.name = f"x{i}"
            if type(s) is tuple and i not in open_:
                g.constants[v.name] = Constant(v.name, v, np.asarray(s[0], s[1].numpy))
            else:
                g.inputs.append(v)
        for i in outputs:
            g.add_output(f"y{i}", values[i])
        return Program(Executable(g, name, device=device), outputs, frozenset(outputs), numbers, open_)

    def one_by_one(self, wanted: Iterable[int]) -> tuple[dict[int, Tensor], int | None]:
        """The same values by eager calls, and which check is violated first, if one is."""
        known: dict[Value, Tensor] = {}
        for v, s in zip(self.values, self.sources):
            known[v] = s if isinstance(s, Tensor) else number(*s)
        for n in self.graph.nodes:
            known.update(zip(n.outputs, computed(lookup(n.op), [None if v is None else known[v] for v in n.inputs], n.attrs)))
        bad = next((i for i, c in enumerate(self.graph.checks) if known[c.bad].item()), None)
        return {i: known[self.values[i]] for i in wanted}, bad


def numbers_of(sources: Sequence[Source]) -> dict[int, Any]:
    """The Python numbers among sources, as keys: 0.0 and -0.0 differ, NaNs do not."""
    return {i: _exact(s[0]) for i, s in enumerate(sources) if type(s) is tuple}


def _exact(x: Any) -> Any:
    return (type(x), x.hex()) if isinstance(x, float) else (type(x), x, str(x)) if isinstance(x, complex) else (type(x), x)


def _attributes(n: Node) -> Any:
    """A node's attributes as a key; graphs that compute the same are equal."""
    return tuple([(k, graph_key(a) if type(a) is Graph else attr_key(a)) for k, a in n.attrs.items()]) if n.attrs else ()


class Whole:
    """What was recorded as a graph before the first question."""

    def __init__(self, graph: Graph, given: dict[Value, Source]):
        self._taken = Taken(graph, given)
        self.checked = bool(graph.checks)

    def linked(self, parts: Parts, where: str | None) -> tuple[Part, list[Source], Callable[[Value], int]]:
        """(its part, the sources in the part's order, the position of a value.)"""
        return parts.part(self._taken, where), self._taken.sources, self._taken.at.__getitem__

    def taken(self) -> Taken:
        """The same as it is compiled."""
        return self._taken


class Link:
    """How a sequence of calls is a part.

    Attributes:
        sources: for each source of the part the number of the calls' source, or what it always is. at: number of a value -> its position.
    """

    def __init__(self, part: Part, sources: list[int | Source], at: dict[int, int]):
        self.part, self.sources, self.at = part, sources, at


class Sequenced:
    """The calls since the last question."""

    def __init__(self, name: str, calls: Calls):
        self._name, self._calls, self.checked = name, calls, calls.checks > 0
        self._taken: Taken | None = None
        self._placed: dict[Value, Value] = {}  # the graph's value for each that a call gives

    def linked(self, parts: Parts, where: str | None) -> tuple[Part, list[Source], Callable[[Value], int]]:
        """(its part, the sources in the part's order, the position of a value.)"""
        key, number_of, given = self._calls.numbered()
        link = parts.links.get(key)
        if link is None:
            taken = self.taken()
            index = {id(s): i for i, s in enumerate(given)}
            sources: list[int | Source] = [index.get(id(s), s) for s in taken.sources]
            at = {number_of[v]: taken.at[w] for v, w in self._placed.items() if v in number_of}
            if len(parts.links) >= STRUCTURES:  # first what was never compiled
                parts.links.pop(next((k for k, x in parts.links.items() if not x.part.programs), next(iter(parts.links))))
            link = parts.links[key] = Link(parts.part(taken, where), sources, at)
        found = [given[s] if type(s) is int else s for s in link.sources]
        return link.part, found, lambda v: link.at[number_of[v]]

    def taken(self) -> Taken:
        """The same as it is compiled."""
        if self._taken is None:
            graph, given, self._placed = expanded(self._name, self._calls)
            self._placed = {v: w for v, w in self._placed.items() if v not in self._calls.sources}
            self._taken = Taken(graph, given, [w for w in self._placed.values() if w.node is None])
        return self._taken


class Parts:
    """The parts of a traced function.

    Args:
        name: of the function. limit: how many programs are made for parts that differ in shapes and attributes alone.

    Attributes:
        cuts: how often each line has asked for a value. effects: lines of what the program of a call
            would not repeat. links: sequences of calls whose part is known.
    """

    def __init__(self, name: str, limit: int):
        self.name, self.limit = name, limit
        self.cuts: Counter[str | None] = Counter()
        self.effects: Counter[str] = Counter()
        self._known: dict[Any, Part] = {}
        self.links: dict[Any, Link] = {}  # by the calls
        self._families: Counter[Any] = Counter()
        self._lock = threading.Lock()
        self._told = False

    def __bool__(self) -> bool:
        """Whether calls are run in parts."""
        return bool(self.cuts or self.effects)

    def said(self) -> str:
        """Why calls are run in parts, and what to do where that cannot be."""
        lines = lambda found: ", ".join(f"{where}" for where, _ in found.most_common(5))
        if not self.cuts:
            return (
                f"does what its program would not repeat ({lines(self.effects)}: a variable is changed, a tensor is kept, or a random "
                "number of Python's is read), so that it is run in parts and is no graph; help: keep what changes in a Tensor and change it "
                "in place, return what is kept, and use tengen.random"
            )
        return (
            f"asks for values of tensors ({lines(self.cuts)}), so that it is run in parts and is no graph; help: return what is asked for, "
            "decide by functional.cond or functional.where, or let jit.script compile the function's ifs and loops"
        )

    def stats(self) -> tuple[PartStats, ...]:
        return tuple(PartStats(p.nodes, p.calls, p.made, p.where) for p in list(self._known.values()))

    def warn_of_many(self, cuts: Sequence[str | None]) -> None:
        """Warns, once, of very many questions in a call."""
        if len(cuts) > MANY and not self._told:
            self._told = True
            lines = Counter(cuts).most_common(5)
            file, _, line = (user_line() or "unknown:0").rpartition(":")
            warnings.warn_explicit(
                f"{self.name} asks for values {len(cuts)} times in a call, and is run in as many parts, of which each is a program: "
                + ", ".join(f"{where} ({n} times)" for where, n in lines)
                + "; help: ask less often, or decide by functional.cond, while_loop and where, or jit.script, and trace with symbolic=True",
                TraceWarning, file, int(line),
            )  # fmt: skip

    def part(self, taken: Taken, where: str | None) -> Part:
        """The part of this structure. where: the line that cuts it off."""
        with self._lock:
            part = self._known.get(taken.key)
            if part is None:
                if len(self._known) >= STRUCTURES:
                    old = next((k for k, x in self._known.items() if not x.programs), next(iter(self._known)))
                    gone = self._known.pop(old)
                    self._families[gone.family] -= bool(gone.programs)
                part = self._known[taken.key] = Part(len(taken.graph.nodes), where, taken.family())
            return part

    def compute(
        self, work: Whole | Sequenced, wanted: set[Value], where: str | None, compiling: bool, device: Device
    ) -> tuple[dict[Value, Tensor], int | None, BaseException | None]:
        """(the wanted values, the first check that is violated, its error). compiling: whether it may be compiled."""
        if not wanted and not work.checked:
            return {}, None, None
        part, sources, at = work.linked(self, where)
        place = {v: at(v) for v in wanted}
        part.calls += 1
        program = part.fitting(place.values(), sources)
        if program is None and compiling:
            program = self._compiled(part, work.taken(), place.values(), device)
        bad, error = None, None
        if program is not None:
            try:
                found = program.results(sources)
            except TengenError as e:
                if not work.checked:
                    raise
                error = e
        if program is None or error is not None:
            taken = work.taken()
            found, bad = taken.one_by_one(place.values())
            if error is not None and bad is None:
                raise error
            if bad is not None and error is None:
                c = taken.graph.checks[bad]
                error = getattr(errors, c.error)(f"{self.name}: {c.message}" + ("" if c.where is None else f" [at {c.where}]"))
        return {v: found[i] for v, i in place.items()}, bad, error

    def _compiled(self, part: Part, taken: Taken, wanted: Iterable[int], device: Device) -> Program | None:
        """A program of a part, if it is worth one: if it is the first of its kind, or was met before."""
        with self._lock:
            family = part.family
            if not part.programs and self._families[family] and (part.calls < 2 or self._families[family] >= self.limit):
                return None
            found = taken.compile(self.name, wanted, part.programs, device)
            self._families[family] += not part.programs
            part.programs.insert(0, found)
            part.made += 1
            del part.programs[VARIANTS:]
            return found
