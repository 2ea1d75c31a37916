"""The recordings of a traced function: the one of a call is found, or made and kept.

In: a function, and the arguments of a call. Out: a `Recording` with its compiled program, and the numbers of its open extents. What a
trace does with them (`trace.py`: options, runs, files) is not known here.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, Literal

from tengen.base.collector import young_objects
from tengen.base.device import Device, common_device, default_device
from tengen.base.errors import TraceError, Undecided, user_line
from tengen.base.record import NamedTuple
from tengen.compiler.memory_plan import Budget
from tengen.ir.graph import Graph
from tengen.ir.types import TensorType
from tengen.jit.arguments import Copies
from tengen.jit.direct import DirectCall
from tengen.jit.dynamic import DynamicAxes, parameter_of_each_tensor, parameters_of, reason, undecided
from tengen.jit.gradients import NESTED, differentiated
from tengen.jit.guards import Watch
from tengen.jit.leaks import warn_of_changed_arguments, warn_of_leaks
from tengen.jit.observe import ObservedRecorder
from tengen.jit.opening import Opening, Pattern, described, family, opened_key, patterns, shapes_of
from tengen.jit.parts import Parts
from tengen.jit.questions import Cut, PartsRecorder, call_in_parts
from tengen.jit.recording import Recording, attached_to, deciding, placed, with_checks
from tengen.jit.room import Room, warn
from tengen.passes.extents import at_extents, check_other_extents
from tengen.runtime.progress import progress
from tengen.tensor import Tensor, tensor_over
from tengen.tensor.casting import casting
from tengen.tensor.executable import Executable
from tengen.tensor.host import calls_python, for_files
from tengen.tensor.nodes import new_limit, on_tape
from tengen.tensor.quantised import holds_codes, meaning
from tengen.tensor.recorder import Recorder
from tengen.tensor.structure import flatten, has_array, objects_of, unflatten
from tengen.tensor.tensor import settled

MOST = 32  # recordings of one signature that are kept

_all: weakref.WeakSet[Recordings] = weakref.WeakSet()


class Used(NamedTuple):
    """A recording, and the numbers of its open extents in a call."""

    recording: Recording
    extents: tuple[int, ...]


def forget_recordings(ops: Set[str]) -> None:
    """Drops the recordings of all traces that have a node of one of these ops: they have become other ones."""
    for t in list(_all):
        t.drop(lambda r: any(n.op in ops for g in r.graph.graphs() for n in g.nodes))


class Recordings:
    """A function with its recordings.

    Attributes:
        function, name: what is recorded, and what it is called in messages. capture_as_const, dynamic_axes, budget: as `trace` has
            them; the axes of a table, None where axes open by themselves or not at all.
        calls_python: what a script calls in every run, which no program can; set while it is recorded. repeats_appends: whether the
            function is run in parts where it only appends to a list that outlives the call, so that each call does it.
    """

    calls_python = ""
    repeats_appends = False

    def __init__(
        self, function: Any, name: str, capture_as_const: bool, dynamic_axes: Mapping | Literal["auto"] | None, budget: Budget | None,
        room: Room,
    ):  # fmt: skip
        self.function, self.name, self.capture_as_const, self.budget = function, name, capture_as_const, budget
        self._opening = Opening() if dynamic_axes == "auto" and budget is None else None
        self.dynamic_axes = DynamicAxes(dynamic_axes, function) if isinstance(dynamic_axes, Mapping) and dynamic_axes else None
        self._recordings: dict[Any, list[Recording]] = {}
        self._direct: dict[Any, DirectCall] = {}  # by the layouts of arguments
        self._used: Used | DirectCall | None = None  # by the last call
        self._room = room
        self._parts = Parts(name, room.most)
        self._told: set[str] = set()  # what was warned of
        _all.add(self)

    @property
    def _last(self) -> Recording | None:
        return None if self._used is None else self._used.recording

    @functools.cached_property
    def _parameters(self) -> Sequence[str]:
        return parameters_of(self.function) or ()

    def _called(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The function's result, while it is recorded."""
        return self._code()(*args, **kwargs)

    def _code(self) -> Callable:
        """What is recorded, or runs op by op, in place of the function as it is now."""
        return self.function

    def drop(self, which: Callable[[Recording], bool]) -> None:
        """Forgets some of its recordings: the next call for which one of them was used is recorded anew."""
        found = {id(r) for some in self._recordings.values() for r in some if which(r)}
        if not found:
            return
        for key, some in list(self._recordings.items()):
            self._recordings[key] = [r for r in some if id(r) not in found]
        self._direct.clear()
        self._used = None

    def _now(self) -> Recording:
        """The recording for the signature that was used last that fits what the function would read now; made if there is
        none."""
        r = self._last
        if r is None and self._parts:
            raise TraceError(f"{self.name} {self._parts.said()}")
        if r is None:
            raise TraceError(f"{self.name} has not been traced; help: call it, or .trace(...), with example arguments first")
        if r.read.hold() and r.wake():
            return r
        numbers = r.numbers | dict(zip(r.extents, self._used.extents))
        known = self._recordings.get(r.key, ())
        found = next((x for x in known if x.read.hold() and x.wake() and x.decides(numbers)), None)
        if found is None:
            if r.key[2] != casting.key:
                raise TraceError(f"{self.name} reads other values than when it was recorded under autocast; help: call it once more")
            leaves = [tensor_over(None, None) for _ in r.key[1]]
            found = self._record(r.key, leaves, numbers, r.pattern)
        self._used = Used(found, self._used.extents)
        return found

    def _for_file(self) -> Recording:
        """The recording that `_now` gives. One that calls Python is recorded anew as a file has it: errors with values in them are checks.
        Errors: TraceError where it does more than to raise errors."""
        r = self._now()
        if not calls_python(r.graph):
            return r
        structure, types, _, device = r.key
        watch = Watch(self.function, objects_of(structure, classes=True), set(self._told))
        leaves = [tensor_over(None, None) for _ in types]
        with young_objects(), watch, for_files():
            found = self._recorded(structure, leaves, types, device, watch, r.numbers or None, False)[0]
        found.key, found.numbers, found.pattern, found.extents = r.key, r.numbers, r.pattern, r.extents
        return found

    def _graph_of(self, r: Recording) -> Graph:
        """The graph of a recording that was used last, with numbers for extents that opened by themselves. Where the recording serves some
        numbers of named ones alone, each run of the graph checks them."""
        assert self._used is not None
        if r.pattern is not None:
            return at_extents(r.graph, dict(zip(r.extents, self._used.extents)))
        return with_checks(r.graph, r.conditions) if r.conditions else r.graph

    def graph_of_call(self, *args, **kwargs) -> tuple[Graph, Device]:
        """(the graph of a call, with numbers for its extents; the device that it runs on). It is recorded for this, and neither compiled
        nor run."""
        leaves: list[Tensor] = []
        structure = flatten((args, kwargs), leaves)
        device = common_device(x._layout.device for x in leaves) if leaves else default_device()
        watch = Watch(self.function, objects_of(structure, classes=True), set(self._told))
        with young_objects(), watch:
            return self._recorded(structure, leaves, [x._layout.type for x in leaves], device, watch, None, False)[0].graph, device

    # -- finding one ---------------------------------------------------------------------------------------------------------
    def _find(self, args, kwargs, answers: bool = False) -> tuple[Recording, list[Tensor], tuple[int, ...]]:
        """The recording of a call. answers: whether the function may ask for values; if it does, `Cut` has its result."""
        leaves: list[Tensor] = []
        structure = flatten((args, kwargs), leaves)
        for x in leaves:
            settled(x)
        types = [x._layout.type for x in leaves]
        extents: dict[str, int] = {}
        if self.dynamic_axes is not None:
            types, extents = self.dynamic_axes.open(structure, types)
        device = leaves[0]._layout.device if leaves else default_device()
        for x in leaves:
            if x._layout.device is not device:
                device = common_device(x._layout.device for x in leaves)
                break
        key = (structure, tuple(types), casting.key, device)
        if meaning.begun and any(map(holds_codes, leaves)):
            self._record(key, leaves, extents)  # an error, also where plain integers were recorded before
        found = self._fitting(key, leaves, extents or None)
        if found is None and answers and self._parts:
            copies = None
            if has_array((args, kwargs)):  # as when it is recorded as a whole, the function gets tensors
                args, kwargs = unflatten(structure, leaves)
                copies = Copies(structure, (args, kwargs))
            try:
                call_in_parts(self._parts, self.function, args, kwargs, device)
            except Cut as cut:
                cut.arguments = copies
                raise
        if found is None and self._opening is not None:
            found, extents = self._opened(self._opening, key, leaves, answers)
        elif found is None:
            found = self._record(key, leaves, extents, answers=answers and self.dynamic_axes is None)
        self._used = Used(found, tuple(extents[e] for e in found.extents))
        return found, leaves, self._used.extents

    def _fitting(self, key: Any, leaves: list[Tensor], numbers: dict[str, int] | None = None) -> Recording | None:
        """The recording of a signature that fits now; numbers: of its open extents."""
        known = self._recordings.get(key, [])
        found = next((r for r in known if r.fits(leaves) and (numbers is None or r.serves(numbers))), None)
        if found is not None and found is not known[0]:
            known.remove(found)
            known.insert(0, found)  # the one used last first
        return found

    def _opened(
        self, opening: Opening, key: Any, leaves: list[Tensor], answers: bool = False
    ) -> tuple[Recording, dict[str, int]]:  # fmt: skip
        """The recording of a call for whose numbers there is none that fits, and the numbers of its open extents: one with open
        extents; made now, if a recording fits but for the shapes. Where that cannot be, one for the call's shapes."""
        for opened, numbers in opening.matching(key):
            r = self._fitting(opened, leaves, numbers)
            if r is not None:
                return r, numbers
            if any(r.fits(leaves) and r.decides(numbers) for r in self._recordings.get(opened, ())):
                return self._record(key, leaves, {}, answers=answers), {}  # shapes do not fit with these numbers
        alike = [r for some in self._recordings.values() for r in some if family(r.key) == family(key) and r.fits(leaves)]
        wanted = patterns([r.examples() for r in alike], shapes_of(key))
        pattern = next((p for p in wanted if p.names and not opening.refused(key, p)), None)
        numbers = pattern and pattern.numbers(shapes_of(key))
        if pattern is None or numbers is None:
            return self._record(key, leaves, {}, answers=answers), {}
        axes, table = described(pattern, parameter_of_each_tensor(key[0], self._parameters))
        try:
            r = self._record(opened_key(key, pattern), leaves, numbers, pattern, axes)
        except Exception as e:  # also what a user's function makes of a shape that is no number
            why = reason(e)
        else:
            if opening.add(key, pattern) and not r.open:
                how = f"; dynamic_axes={table} opens it in the first call" if table else ""
                progress.say(f"{self.name}: {axes} is open from now on, one program serves every size{how}")
            return (r, numbers) if r.serves(numbers) else (self._record(key, leaves, {}, answers=answers), {})
        r = self._record(key, leaves, {}, cause=axes, fixed=why, answers=answers)
        opening.refuse(key, pattern)
        if "open" in self._told:
            return r, {}
        self._told.add("open")
        warn(
            f"{self.name} was called with another number in {axes}, and cannot be recorded with that open: {why}; so each number is "
            "recorded and compiled by itself; help: arithmetic with + - * // on extents, shapes made of them and tensors divided by them "
            "stay open, and comparisons choose among recordings; what needs the number itself is a program for each; dynamic_axes=None "
            "records each shape without this warning"
        )
        return r, {}

    # -- making one ----------------------------------------------------------------------------------------------------------
    def _record(
        self, key: Any, leaves: list[Tensor], extents: dict[str, int], pattern: Pattern | None = None, cause: str = "", fixed: str = "",
        answers: bool = False,
    ) -> Recording:  # fmt: skip
        """A new recording of a signature. extents: the numbers of its names in the call. pattern: by which it was opened. answers: as
        `_find` has it."""
        structure, types, _, device = key
        cause = self._cause(key, cause, extents)
        self._room.check(cause)
        watch = Watch(self.function, objects_of(structure, classes=True), self._told, self.repeats_appends)
        with young_objects():
            try:
                with watch:
                    r, made, numbers = self._recorded(structure, leaves, types, device, watch, extents or None, answers, True)
            except Undecided as e:
                if pattern is not None:
                    raise
                raise undecided(self.name, e, extents) from e
            if not r.open:
                warn_of_leaks(made, r.gradient.layouts() if r.gradient is not None else frozenset())
            r.read = watch.guards([*r.states, *r.baked.values()], numbers)
            if not r.open:
                if extents and pattern is None:
                    check_other_extents(r.graph, extents, r.decides)
                r.run = Executable(r.graph, self.name, device=device, room=self._room.take, budget=self.budget)
                if pattern is not None and r.run.undecided is not None:
                    raise r.run.undecided
                r.extents, r.run.gradient_of = r.run.extents, r.gradient_of
        r.key, r.numbers, r.pattern, r.cause, r.where, r.fixed = key, extents, pattern, cause, user_line(), fixed
        self._keep(r)
        return r

    def _cause(self, key: Any, differs: str, extents: dict[str, int]) -> str:
        """Why a recording is about to be made. differs: in which extents a call differs from others. extents: the numbers of named ones."""
        if not self._room.causes:
            return "the first call"
        if differs:
            return f"another number in {differs}"
        known = self._recordings.get(key)
        unlike = next((r for r in known or () if not r.decides(extents)), None)
        if unlike is not None:
            return f"numbers for which {' and '.join(unlike.told_conditions())} does not hold"
        before = known[0] if known else self._last
        if before is not None and before.key == key:
            return f"{before.read.difference() or 'a gradient, or the type of a state,'} changed"
        alike = any(family(r.key) == family(key) for some in self._recordings.values() for r in some)
        return "another shape" if alike else "arguments of another kind"

    def _keep(self, r: Recording) -> None:
        """Adds a recording, and lets go of what others hold that do not fit now, and of those that never will again."""
        self._room.enter(r.cause)
        known = self._recordings.setdefault(r.key, [])
        known.insert(0, r)
        del known[MOST:]
        for some in list(self._recordings.values()):
            for old in some:
                if old is not r and not old.read.hold():
                    old.sleep()
            some[:] = [x for x in some if not x.lost()]
        kept = {id(x) for some in self._recordings.values() for x in some if not x.asleep}
        self._direct = {k: x for k, x in self._direct.items() if id(x.recording) in kept}

    def _recorded(
        self, structure, leaves: list[Tensor], types: Sequence[TensorType], device: Device, watch: Watch, decided: dict[str, int] | None,
        answers: bool, runs: bool = False,
    ) -> tuple[Recording, list, set[int]]:  # fmt: skip
        """A recording that is not compiled yet, `Recorder.made` and `numbers`; every other reference to what the recorder made is
        gone. runs: whether calls will run it, so that what differentiates them is recorded too."""
        rec: Recorder
        since = new_limit()
        if answers:
            rec = PartsRecorder(self._parts, device, self.capture_as_const, watch)
        else:
            rec = ObservedRecorder(self.name, self.capture_as_const, watch.observer, device)
        with rec:
            stand_ins = [rec.argument(f"arg{i}", x, t) for i, (x, t) in enumerate(zip(leaves, types))]
            args, kwargs = unflatten(structure, stand_ins)
            copies = Copies(structure, (args, kwargs)) if answers else None
            if isinstance(rec, PartsRecorder):
                rec.copies = copies
            try:
                with deciding(decided) as conditions:
                    result = rec.called(lambda *args, **kwargs: self._called(args, kwargs), args, kwargs)
            except Cut as cut:
                cut.arguments = copies
                raise
            if runs:
                warn_of_changed_arguments(self.name, (structure, stand_ins), (args, kwargs), self._parameters, self._told)
            outs: list[Tensor] = []
            result_key = flatten(result, outs)
            grads = []
            guards: dict[int, tuple] = {id(t): (placed(t, rec), there, overflow) for t, there, overflow in rec.reads.values()}
            for t, _, overflow in rec.grads.values():  # a gradient that is set before it is read may be there or not
                guards.setdefault(id(t), (placed(t, rec), None, overflow))
                g = getattr(t, "_grad", None)
                grads.append((placed(t, rec), g is not None, getattr(t, "overflow", None)))
                if g is not None:
                    outs.append(g)
            open_ = rec.open(outs) or bool(self.calls_python)
            one_node, writes = open_ and runs and not self.calls_python, rec.writes_on_tape()
            n_results = len(outs) - sum(there for _, there, _ in grads)
            graph = rec.finish([(f"output{i}", o) for i, o in enumerate(outs)])
        found = differentiated(rec, since, outs, n_results, leaves, decided or {}, writes) if one_node else ""
        gradient, graph = (None, graph) if isinstance(found, str) else found
        owners = {i: placed(rec.owners[id(t)], rec) for i, t in enumerate(rec.captured) if id(t) in rec.owners}
        taped = [on_tape(x) for x in (*leaves, *rec.captured)]
        managers, read = list(rec.managers.values()), objects_of(structure, classes=True)
        r = Recording(
            graph, rec.captured, owners, grads, list(guards.values()), taped, open_ and gradient is None, result_key, n_results,
            read, rec.baked, managers=managers, attached=attached_to(managers, (*leaves, *rec.captured)), ended=rec.ended,
            conditions=conditions, gradient_of=rec.gradient_of, gradient=gradient, nested=found is NESTED,
        )  # fmt: skip
        if isinstance(found, str) and found and "gradient" not in self._told:
            self._told.add("gradient")
            warn(
                f"{self.name} runs op by op while a gradient is recorded through it: {found}; help: trace the function that computes the "
                "gradient, too"
            )
        return r, rec.made, rec.numbers
