"""A traced function that asks for values is run in parts: what it computes up to a question is recorded, found again by its
structure, and run as one program; then Python goes on, in every call.

In: the calls of ops of one call of the function. Out: tensors that have values when they are asked for them, and when the call
has ended. A part is known by its structure: ops, attributes, types, which results are still there. Python numbers among its
operands are constants of its program; those that are found to differ become operands of another one, which serves all numbers.
What is recorded changes tensors as eager calls do: a tensor that is written takes the new value, and other holders of the old
one keep that.
"""

from __future__ import annotations

import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import ref

import numpy as np

from tengen.base import errors
from tengen.base.device import Device, common_device
from tengen.base.dtype import DType
from tengen.base.errors import TengenError, TraceWarning, user_line
from tengen.compiler.arrays import new_buffer
from tengen.compiler.plans import Layout
from tengen.ir.graph import Constant, Graph, Node, Value, attr_key, graph_key
from tengen.ir.types import TensorType
from tengen.jit.observe import Observer
from tengen.ops.define import lookup
from tengen.tensor import Parameter, Tensor, contiguous, from_numpy
from tengen.tensor.executable import Executable
from tengen.tensor.recorder import Recorder, recording_lock
from tengen.tensor.structure import flatten, unflatten
from tengen.tensor.tensor import computed, number, tensor_over

MANY = 20  # parts of one call that are run without a warning
VARIANTS = 4  # programs of one structure that are kept
STRUCTURES = 256  # that are kept

Source = Tensor | tuple[Any, DType]  # a tensor that a part reads, or a Python number and its dtype


class Cut(BaseException):
    """A function that was being recorded as a whole asked for a value, and was run in parts to its end.

    Attributes:
        result: what it returned.
    """

    def __init__(self, result: Any):
        super().__init__()
        self.result = result


@dataclass(frozen=True)
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


@dataclass
class Program:
    """A compiled part. outputs: positions of the values that it gives. numbers: of the constants, by position; those in `open` are
    operands."""

    run: Executable
    outputs: tuple[int, ...]
    numbers: dict[int, Any]
    open: frozenset[int]


@dataclass
class Part:
    """What is known of one structure."""

    nodes: int
    where: str | None
    calls: int = 0
    made: int = 0
    programs: list[Program] = field(default_factory=list)

    def fitting(self, wanted: Sequence[int], numbers: dict[int, Any]) -> Program | None:
        """A program that gives these values for these numbers."""
        for p in self.programs:
            if all(p.numbers[i] == n for i, n in numbers.items() if i not in p.open) and set(wanted) <= set(p.outputs):
                return p
        return None


class Taken:
    """What was recorded since the last question, as it is run: values have positions, sources first in the order in which they are
    read.

    Attributes:
        key: its structure. sources: what it reads.
    """

    def __init__(self, graph: Graph, given: dict[Value, Source]):
        self.graph = graph
        at: dict[Value | None, int] = {None: -1}
        self.values: list[Value] = []
        self.sources: list[Source] = []
        for n in graph.nodes:
            for v in n.inputs:
                if v not in at and v.node is None:
                    at[v] = len(self.values)
                    self.values.append(v)
                    self.sources.append(given[v])
        self.numbers = {i: _exact(s[0]) for i, s in enumerate(self.sources) if type(s) is tuple}
        nodes: list[tuple] = []
        for n in graph.nodes:
            nodes.append((n.op, tuple([at[v] for v in n.inputs]), _attributes(n)))
            for v in n.outputs:
                at[v] = len(self.values)
                self.values.append(v)
        checks = tuple([(at[c.bad], c.error, c.message, c.where) for c in graph.checks])
        types = tuple([v.type for v in self.values[: len(self.sources)]])
        self.at, self.key = at, (tuple(nodes), types, tuple(self.numbers), checks)

    def family(self) -> Any:
        """The structure but for types and attributes."""
        return tuple((op, ins) for op, ins, _ in self.key[0])

    def compile(self, name: str, wanted: Iterable[int], known: Sequence[Program], device: Device) -> Program:
        """A program that gives these values, and those that other programs of the structure give."""
        open_ = frozenset(i for p in known for i, n in self.numbers.items() if i in p.open or p.numbers[i] != n)
        outputs = tuple(sorted({*wanted, *(i for p in known for i in p.outputs)}))
        g, values = Graph(name), self.values
        g.nodes, g.checks = self.graph.nodes, self.graph.checks
        for i, s in enumerate(self.sources):
            v = values[i]
            v.name = f"x{i}"
            if type(s) is tuple and i not in open_:
                g.constants[v.name] = _constant(v, s)
            else:
                g.inputs.append(v)
        for i in outputs:
            g.add_output(f"y{i}", values[i])
        return Program(Executable(g, name, device=device), outputs, self.numbers, open_)

    def run(self, p: Program) -> dict[int, Tensor]:
        """The values that a program gives for these sources."""
        buffers = []
        for i, s in enumerate(self.sources):
            if type(s) is not tuple:
                buffers.append((s if s._layout.contiguous else contiguous(s))._data)
            elif i in p.open:
                buffers.append(number(*s)._data)
        return dict(zip(p.outputs, p.run(buffers)))

    def one_by_one(self, wanted: Iterable[int]) -> tuple[dict[int, Tensor], int | None]:
        """The same values by eager calls, and which check is violated first, if one is."""
        known: dict[Value, Tensor] = {}
        for v, s in zip(self.values, self.sources):
            known[v] = s if isinstance(s, Tensor) else number(*s)
        for n in self.graph.nodes:
            known.update(zip(n.outputs, computed(lookup(n.op), [None if v is None else known[v] for v in n.inputs], n.attrs)))
        bad = next((i for i, c in enumerate(self.graph.checks) if known[c.bad].item()), None)
        return {i: known[self.values[i]] for i in wanted}, bad


def _exact(x: Any) -> Any:
    """A number as a key: 0.0 and -0.0 differ, NaNs do not."""
    return (type(x), x.hex()) if isinstance(x, float) else (type(x), x, str(x)) if isinstance(x, complex) else (type(x), x)


def _attributes(n: Node) -> Any:
    """A node's attributes as a key; graphs that compute the same are equal."""
    return tuple([(k, graph_key(a) if type(a) is Graph else attr_key(a)) for k, a in n.attrs.items()]) if n.attrs else ()


def _constant(v: Value, s: tuple[Any, DType]) -> Any:
    return Constant(v.name, v, np.asarray(s[0], s[1].numpy))


class PartsRecorder(Recorder):
    """Records a call, and runs what it has recorded when a value is asked for.

    With an observer the call is first recorded as a whole, with stand-ins for the arguments, as `Recorder` does; the first question
    turns it into one that is run in parts, and the call ends with `Cut`.

    Attributes:
        whole: whether nothing was asked for yet in such a call. cuts: the lines that asked, in order.
    """

    answers = True

    def __init__(self, parts: Parts, device: Device, constants: bool = False, observer: Observer | None = None):
        super().__init__(parts.name, constants=constants, device=device)
        self._parts, self._observer, self.whole = parts, observer, observer is not None
        self.cuts: list[str | None] = []
        self._sources: dict[Value, Source] = {}
        self._seen: list[ref[Tensor]] = []  # tensors that may stand for values
        self._arguments: list[tuple[Tensor, Tensor]] = []  # with their stand-ins
        self._changes: list[tuple[int, Callable[[], None]]] = []  # (checks before a change, what undoes it)
        self._changed: dict[tuple[int, str], int] = {}  # what was changed after how many checks
        self._assigned: set[int] = set()
        self._memory: dict[Any, Value] = {}  # of sources

    def __enter__(self) -> PartsRecorder:
        if self.whole:
            super().__enter__()
        else:
            self.begin()
        return self

    def __exit__(self, *exc) -> None:
        if self.whole:
            super().__exit__(*exc)
        else:
            self.pause()

    def called(self, function: Callable, args: tuple, kwargs: dict) -> Any:
        try:
            result = function(*args, **kwargs)
        except BaseException:
            if not self.whole:  # what was called until now has been done, as eager calls are
                self._run(None, compiling=False)
                self._give_back(())
            raise
        if self.whole:
            return result
        self.casts.clear()
        self._run(None)
        self._parts.warn_of_many(self.cuts)
        if not self._arguments:
            return result
        raise Cut(self._give_back(result))

    # -- what the dispatcher calls ---------------------------------------------------------------------------------------
    def argument(self, name: str, like: Tensor, type_: TensorType | None = None) -> Tensor:
        t = super().argument(name, like, type_)
        self._arguments.append((like, t))
        self._see(t)
        return t

    def record(self, op, inputs: tuple, attrs: tuple) -> Any:
        resume = self._observer.pause() if self._observer is not None else None
        try:
            out = super().record(op, inputs, attrs)
        finally:
            if resume is not None:
                resume()
        for t in out if isinstance(out, tuple) else (out,):
            self._see(t)
        return out

    def seen(self, t: Tensor, node: Any = None) -> Tensor:
        if not self.whole and settled_already(t):
            made = tensor_over(t._data, t._layout)
            made._node = node
            return made
        made = super().seen(t, node)
        self._see(made)
        return made

    def _see(self, t: Tensor) -> None:
        self._seen.append(ref(t))

    def value(self, t: Tensor) -> Value:
        if self.whole or (isinstance(t._data, Value) and not (t._layout.graph is not self.graph and t._layout.settle(t))):
            return super().value(t)
        key = id(t._data), t._layout  # as long as the part is recorded, the source keeps the memory
        v = self._memory.get(key)
        if v is None:
            common_device([self.device, t.device])
            v = self._memory[key] = Value(t._layout.type)
            self._sources[v] = tensor_over(t._data, t._layout)
        return v

    def literal(self, value: Any, d: DType) -> Tensor:
        t = super().literal(value, d)
        self._sources[t._data] = (value, d)
        return t

    def constant(self, array: np.ndarray, t: TensorType) -> Tensor:
        if self.whole:
            return super().constant(array, t)
        return tensor_over(new_buffer(array, self.device), Layout(t.shape, t.dtype, None, self.device))

    def assign(self, target: Tensor, value: Tensor) -> bool:
        if self.whole:
            return super().assign(target, value)
        self._note(target, "value", target._data, target._layout, target._node)
        self._assigned.add(id(target))
        self._see(target)
        return False

    def read_grad(self, t: Tensor, g: Tensor | None) -> None:
        if self.whole:
            super().read_grad(t, g)

    def write_grad(self, t: Tensor, before: Tensor | None) -> None:
        if self.whole:
            super().write_grad(t, before)
        else:
            self._note(t, "grad", before, getattr(t, "overflow", None), None)

    def walks(self, manager: Any) -> None:
        if self.whole:
            super().walks(manager)

    # -- questions ---------------------------------------------------------------------------------------------------------
    def asked(self) -> None:
        """A value is asked for: runs what is recorded, and goes on with nothing recorded."""
        resume = self._observer.pause() if self._observer is not None else None
        try:
            self._divide()
            where = user_line()
            self.cuts.append(where)
            self._parts.cuts[where] += 1
            self._run(where)
        finally:
            if resume is not None:
                resume()

    def _divide(self) -> None:
        """What was recorded as a whole so far becomes the first part. Nothing is undone at the end any more."""
        if not self.whole:
            return
        self.whole = False
        for (x, _), v in zip(self._arguments, self.graph.inputs):
            self._sources[v] = tensor_over(x._data, x._layout)
        for t, s in zip(self.captured, self.graph.states.values()):
            _, data, layout, _ = self._written.get(id(t), (t, t._data, t._layout, None))
            self._sources[s.read] = tensor_over(data, layout)
        for target, data, layout, node in self._written.values():
            self._note(target, "value", data, layout, node)
            self._assigned.add(id(target))
            self._see(target)
        for t, before, overflow in self.grads.values():
            self._note(t, "grad", before, overflow, None)
        others = [c for c in self.graph.constants.values() if c.value not in self._sources]
        with self._paused():
            for c in others:
                baked = self.baked.get(c.name)
                self._sources[c.value] = from_numpy(c.data) if baked is None else tensor_over(baked._data, baked._layout)
        self._written, self.grads, self.reads, self.owners = {}, {}, {}, {}
        self.constants = False
        recording_lock.release()

    def _paused(self) -> _Paused:
        return _Paused(self)

    def _note(self, t: Tensor, what: str, *before: Any) -> None:
        """Something of a tensor is about to be changed. Only the first change after a check matters."""
        checks, key = len(self.graph.checks), (id(t), what)
        if self._changed.get(key) != checks:
            self._changed[key] = checks
            self._changes.append((checks, lambda: _undo(t, what, *before)))

    def _run(self, where: str | None, compiling: bool = True) -> None:
        """Gives all tensors that are still there their values."""
        graph, sources, changes = self.graph, self._sources, self._changes
        there = [x for r in self.made if (x := r()) is not None and x.done is None and x.graph is graph]
        self.graph = Graph(self._parts.name)
        self.made, self._sources, self._changes, self._changed = [], {}, [], {}
        self._memory = {}
        self._by_id, self._checked, self._keep, self._states, self.captured = {}, set(), [], {}, []
        with self._paused():
            kept = 0  # changes before what went wrong
            error: BaseException | None = None
            try:
                wanted = {x.value for x in there if x.value not in sources}
                found, bad, error = self._parts.compute(graph, sources, wanted, where, compiling, self.device)
                for x in there:
                    s = sources.get(x.value)
                    x.done = found[x.value] if s is None else s if isinstance(s, Tensor) else number(*s)
                kept = len(changes) if bad is None else sum(checks <= bad for checks, _ in changes)
            finally:
                for _, undo in reversed(changes[kept:]):
                    undo()
                seen, self._seen = self._seen, []
                for r in seen:
                    if (t := r()) is not None:
                        settle(t)
                        self._seen.append(r) if not settled_already(t) else None
            if error is not None:
                raise error

    def _give_back(self, result: Any) -> Any:
        """Arguments take what their stand-ins have become; they take their places in the result."""
        own = {id(s): x for x, s in self._arguments}
        for x, s in self._arguments:
            if id(s) in self._assigned:
                x._data, x._layout, x._node = s._data, s._layout, s._node
            if getattr(s, "_grad", None) is not getattr(x, "_grad", None):
                x._grad = s._grad
        leaves: list[Tensor] = []
        structure = flatten(result, leaves)
        return unflatten(structure, [own.get(id(t), t) for t in leaves]) if any(id(t) in own for t in leaves) else result


class _Paused:
    """A block in which nothing is recorded."""

    def __init__(self, recorder: PartsRecorder):
        self._recorder = recorder

    def __enter__(self) -> None:
        self._recorder.pause()

    def __exit__(self, *exc: object) -> None:
        self._recorder.begin()


def _undo(t: Tensor, what: str, first: Any, second: Any, third: Any) -> None:
    if what == "value":
        t._data, t._layout, t._node = first, second, third
        return
    t._grad = first
    if isinstance(t, Parameter):
        t.overflow = second


def settled_already(t: Tensor) -> bool:
    """Whether a tensor has values, without asking for them."""
    return not isinstance(t._data, Value)


def settle(t: Tensor) -> None:
    """Gives a tensor the values that it stands for, where they were computed."""
    if isinstance(t._data, Value) and t._layout.done is not None:
        t._data, t._layout = t._layout.done._data, t._layout.done._layout


class Parts:
    """The parts of a traced function.

    Args:
        name: of the function. limit: how many programs are made for parts that differ in shapes and attributes alone.

    Attributes:
        cuts: how often each line has asked for a value.
    """

    def __init__(self, name: str, limit: int):
        self.name, self.limit = name, limit
        self.cuts: Counter[str | None] = Counter()
        self._known: dict[Any, Part] = {}
        self._families: Counter[Any] = Counter()
        self._lock = threading.Lock()
        self._told = False

    def __bool__(self) -> bool:
        """Whether the function has asked for a value."""
        return bool(self.cuts)

    def said(self) -> str:
        """Which lines ask for values, and what to do where that cannot be."""
        lines = ", ".join(f"{where}" for where, _ in self.cuts.most_common(5))
        return (
            f"asks for values of tensors ({lines}), so that it is run in parts and is no graph; help: return what is asked for, decide by "
            "functional.cond or functional.where, or let jit.script compile the function's ifs and loops"
        )

    def stats(self) -> tuple[PartStats, ...]:
        return tuple(PartStats(p.nodes, p.calls, p.made, p.where) for p in list(self._known.values()))

    def call(self, function: Callable, args: tuple, kwargs: dict, device: Device) -> Any:
        """Calls the function in parts."""
        recorder = PartsRecorder(self, device)
        with recorder:
            return recorder.called(function, args, kwargs)

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

    def compute(
        self, graph: Graph, sources: dict[Value, Source], wanted: set[Value], where: str | None, compiling: bool, device: Device
    ) -> tuple[dict[Value, Tensor], int | None, BaseException | None]:
        """(the wanted values, the first check that is violated, its error)"""
        if not wanted and not graph.checks:
            return {}, None, None
        taken = Taken(graph, sources)
        positions = sorted(taken.at[v] for v in wanted)
        program = self._program(taken, positions, where, device) if compiling else None
        bad, error = None, None
        if program is not None:
            try:
                found = taken.run(program)
            except TengenError as e:
                if not graph.checks:
                    raise
                found, bad = taken.one_by_one(positions)
                if bad is None:
                    raise
                error = e
        else:
            found, bad = taken.one_by_one(positions)
            if bad is not None:
                c = graph.checks[bad]
                error = getattr(errors, c.error)(f"{self.name}: {c.message}" + ("" if c.where is None else f" [at {c.where}]"))
        return {v: found[taken.at[v]] for v in wanted}, bad, error

    def _program(self, taken: Taken, wanted: Sequence[int], where: str | None, device: Device) -> Program | None:
        """The program of a part, made now if it is worth that: if it is the first of its kind, or was met before."""
        with self._lock:
            part = self._known.get(taken.key)
            if part is None:
                if len(self._known) >= STRUCTURES:
                    self._known.pop(next(iter(self._known)))
                part = self._known[taken.key] = Part(len(taken.graph.nodes), where)
            part.calls += 1
            found = part.fitting(wanted, taken.numbers)
            if found is not None:
                return found
            family = taken.family()
            if not part.programs and self._families[family] and (part.calls < 2 or self._families[family] >= self.limit):
                return None
            found = taken.compile(self.name, wanted, part.programs, device)
            self._families[family] += not part.programs
            part.programs.insert(0, found)
            part.made += 1
            del part.programs[VARIANTS:]
            return found
