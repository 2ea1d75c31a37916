"""`trace`: record a function once, run it as one native program ever after.

A call is recorded for its signature: structure, shapes and dtypes of its tensors, and the values of everything else. Tensors
that the function reaches on other ways (parameters, optimizer state, random counters) become states of the program: read anew,
and updated in place, in every run. What else it read (modes, hyperparameters, globals, closure variables, attributes) guards
the recording: where it has changed, another recording is used or made (`guards.py`). What cannot be guarded is warned of.
"""

from __future__ import annotations

import copy
import functools
import html
import inspect
import sys
import time
import weakref
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, Literal, NamedTuple

from tengen.base.config import config
from tengen.base.device import Device, common_device, default_device
from tengen.base.errors import ArgumentError, TraceError, Undecided, UsageWarning, user_line, warn_once
from tengen.deploy.dump import Dumped, dump
from tengen.ir.graph import Graph
from tengen.ir.types import TensorType
from tengen.jit.direct import DirectCall
from tengen.jit.dynamic import DynamicAxes, parameter_of_each_tensor, parameters_of, reason, undecided
from tengen.jit.guards import Watch
from tengen.jit.leaks import warn_of_leaks, young_objects
from tengen.jit.memory_options import budget_of
from tengen.jit.naming import result_names, tensor_names
from tengen.jit.observe import ObservedRecorder
from tengen.jit.opening import Opening, Pattern, described, family, opened_key, patterns, shapes_of
from tengen.jit.parts import Parts
from tengen.jit.questions import Cut, PartsRecorder, call_in_parts
from tengen.jit.recording import Recording, attached_to, deciding, held, placed
from tengen.jit.room import Room, warn
from tengen.jit.stats import TraceStats, stats_of
from tengen.passes.extents import at_extents, check_other_extents
from tengen.runtime.progress import progress
from tengen.tensor import Parameter, Tensor, contiguous, tensor_over, tracing
from tengen.tensor.assignment import own
from tengen.tensor.batched import innermost
from tengen.tensor.casting import casting
from tengen.tensor.executable import Executable
from tengen.tensor.host import calls_python, for_files
from tengen.tensor.looking import looking
from tengen.tensor.nodes import on_tape
from tengen.tensor.recorder import Recorder
from tengen.tensor.structure import flatten, has_array, objects_of, unflatten
from tengen.tensor.tensor import settled

MOST = 32  # recordings of one signature that are kept


class Used(NamedTuple):
    """A recording, and the numbers of its open extents in a call."""

    recording: Recording
    extents: tuple[int, ...]


_traces: weakref.WeakSet[trace] = weakref.WeakSet()


def forget_recordings(ops: Set[str]) -> None:
    """Drops the recordings of all traces that have a node of one of these ops: they have become other ones."""
    for t in list(_traces):
        t.drop(lambda r: any(n.op in ops for g in r.graph.graphs() for n in g.nodes))


class trace:
    """Makes a function a static program.

    Use it as ``@trace``, ``@trace(symbolic=True)`` or ``trace(model, example_input=x)``.

    Args:
        function: a function or a module. Its tensors may be nested in tuples, lists and dicts.
        symbolic: False (default): the function may ask for values (``item()``, ``if loss > 1``, ``x[mask]``, ``print``). Then it is run
            in parts: what is computed up to a question is recorded, found again by its structure, and run as one program; Python
            goes on from there, in every call. A function that asks for nothing is one program, and Python is not run again. True: a
            question is a `TraceError`, as it is always where a function is recorded for `dump`, `graph` or `trace`. `stats()` lists parts
            and the lines that asked; `exclude_from_trace` cuts on purpose.
        capture_as_const: tensors that the function reaches by itself are baked in as constants; it must not change them.
        example_input: a tensor, or a tuple of arguments, recorded at once.
        dynamic_axes: axes whose extents stay open. "auto" (default): those in which calls differ. The first call is recorded
            for its shapes. The second, if it differs in nothing but extents, is recorded with these open; every later call that
            differs in no others, and has at least 2 in them, makes no program. Comparisons of such extents
            (``if x.shape[0] > 8``) become conditions of the recording; a function that has to know the number
            (``int(x.shape[0])``) is recorded for each, which a `TraceWarning` says once. Numbers whose runs take much of the
            time get a program of their own. None: each shape is recorded by itself.
            A table gives axes a name from the first call on: ``{0: "batch"}`` for every tensor argument, or by the names of the
            function's parameters, ``{"data": {0: "batch"}, "mask": {0: "batch", 1: "tokens"}}``. One recording and one compiled
            program then serve all extents from 1 upwards; extents of one name must agree. The bits are those of the program
            for each shape in all cases. See `docs/architecture.md`, "Open extents".
        max_programs: how many recordings are expected. on_excess: "warn": one more is warned of, once, with the causes of all;
            "error": it is a `TraceError` instead. With ``max_programs=1, on_excess="error"`` the first one stays the only one.
        memory_budget: bytes, an int or a text as "400MB", that a run may need: temporaries, states and results. What does not fit is
            computed again when it is needed, with the same bits; each shape is then recorded by itself. `stats()` says what that costs.
            offload: "disk", or a folder: what is not needed for long may be written to a file there, and read again, where that costs
            less. sublinear_memory_config, dtr_config: MegEngine's ways to ask for the same. See `docs/memory.md`.

    What the function reads besides (`training` flags, hyperparameters, globals, closure variables, defaults, attributes,
    containers) is looked at before each call; where it has changed, the function is recorded again, and both recordings are
    kept. See `docs/architecture.md`, "What a recording depends on".

    Called while a `GradManager` outside records a gradient through it, the function runs eagerly, so that the gradient is whole
    (trace the whole step to have it fast).

    Errors: `TraceError` where a value is asked for (``numpy()``, ``bool()``) with symbolic=True, or while the program is recorded
        without being run; where an argument is changed in place before anything was asked for; with a table `dynamic_axes`, where
        a value or the number of an open extent is asked for (``int(x.shape[0])``, ``if x.shape[0] > 1``); for one recording more
        than `max_programs` with ``on_excess="error"``.
        `BudgetError` where `memory_budget` cannot be met; it names the smallest that can.
        `ShapeError` where shapes fit only for some numbers of an open extent. `TraceWarning` (tengen.base.errors) when a value
        of the recording is kept outside of it, in a list or an attribute; when the function changes other variables by itself;
        when it reads what cannot be guarded (a NumPy array that is no argument, Python's or NumPy's random numbers, the clock);
        when it is recorded more than `max_programs` times; when an axis in which calls differ cannot be opened.
    Errors: TypeError for what cannot be called and for options that there are not, ArgumentError for values that an option
        cannot have

    >>> import tengen
    >>> from tengen import Tensor
    >>> @trace
    ... def f(x):
    ...     return x * 2 + 1
    >>> f(Tensor([1.0, 2.0])).tolist()
    [3.0, 5.0]
    >>> scale = trace(lambda x: x / x.shape[0], dynamic_axes={0: "n"})
    >>> scale(Tensor([2.0, 4.0])).tolist(), scale(Tensor([3.0, 6.0, 9.0])).tolist(), len(scale.stats())
    ([1.0, 2.0], [1.0, 2.0, 3.0], 1)
    >>> f.stats()[0].signature, f(Tensor([1.0, 2.0, 3.0])).tolist(), f(Tensor([1.0] * 4)).tolist(), f.stats()[1].signature
    ('x: f32[2]', [3.0, 5.0, 7.0], [3.0, 3.0, 3.0, 3.0], 'x: f32[n0]')
    """

    calls_python = ""  # what a script calls in every run, which no program can; set while it is recorded
    enabled = True  # trace.enabled = False runs every traced function eagerly

    def __new__(cls, function=None, **options):
        if function is None:
            return functools.partial(cls, **options)
        return super().__new__(cls)

    def __init__(
        self, function, *, symbolic: bool = False, capture_as_const: bool = False, example_input=None, name=None,
        dynamic_axes: Mapping | Literal["auto"] | None = "auto", max_programs: int = 8, on_excess: Literal["warn", "error"] = "warn",
        memory_budget: int | str | None = None, offload: str | None = None, sublinear_memory_config=None, dtr_config=None, **ignored,
    ):  # fmt: skip
        for k in ignored:
            if k not in _MEGENGINE_OPTIONS:
                raise TypeError(f"trace() has no option {k!r}")
            if ignored[k] and (why := _MEGENGINE_OPTIONS[k]):
                warn_once(f"trace({k}=...) changes nothing: {why}", UsageWarning)
        if not callable(function):
            raise TypeError(f"trace() takes a function or a module, got a {type(function).__name__}")
        self.function = function
        self.symbolic, self.capture_as_const = symbolic, capture_as_const
        self._given_name = name
        self.name = name or getattr(function, "__name__", type(function).__name__)
        if isinstance(dynamic_axes, str) and dynamic_axes != "auto":
            raise ArgumentError(f'dynamic_axes={dynamic_axes!r}: "auto", a table such as {{0: "batch"}}, or None')
        if type(max_programs) is not int or max_programs < 1 or on_excess not in ("warn", "error"):
            raise ArgumentError(f'max_programs={max_programs!r}, on_excess={on_excess!r}: at least 1; "warn" or "error"')
        self.max_programs, self.on_excess = max_programs, on_excess
        self._memory = {"memory_budget": memory_budget, "sublinear_memory_config": sublinear_memory_config, "dtr_config": dtr_config}
        self._memory["offload"] = offload
        self.budget = budget_of(memory_budget, sublinear_memory_config, dtr_config, dynamic_axes, offload)
        self._opening = Opening() if dynamic_axes == "auto" and self.budget is None else None
        self.dynamic_axes = DynamicAxes(dynamic_axes, function) if isinstance(dynamic_axes, Mapping) and dynamic_axes else None
        self._recordings: dict[Any, list[Recording]] = {}
        self._direct: dict[Any, DirectCall] = {}  # by the layouts of arguments
        self._used: Used | DirectCall | None = None  # by the last call
        self._room = Room(self.name, max_programs, on_excess)
        self._parts = Parts(self.name, max_programs)
        self._told: set[str] = set()  # what was warned of
        _traces.add(self)
        functools.update_wrapper(self, function, updated=()) if hasattr(function, "__name__") else None
        if example_input is not None:
            self.trace(*(example_input if isinstance(example_input, tuple) else (example_input,)))

    def __get__(self, instance, owner=None):
        """A traced method: one set of recordings for each instance."""
        if instance is None:
            return self
        bound = self._again(self.function.__get__(instance, owner))
        setattr(instance, self.function.__name__, bound)
        return bound

    def _options(self) -> dict[str, Any]:
        """What it was made with, besides the function."""
        axes = self.dynamic_axes.given if self.dynamic_axes else None if self._opening is self.budget is None else "auto"
        return {
            "symbolic": self.symbolic, "capture_as_const": self.capture_as_const, "name": self._given_name, "dynamic_axes": axes,
            "max_programs": self.max_programs, "on_excess": self.on_excess, **self._memory,
        }  # fmt: skip

    def _again(self, function) -> trace:
        return trace(function, **self._options())

    def __copy__(self):
        return self._again(self.function)

    def __deepcopy__(self, memo):
        return self._again(copy.deepcopy(self.function, memo))  # a copied method belongs to the copied object, which records anew

    def __reduce__(self):
        name = getattr(self.function, "__qualname__", None)
        if name and getattr(sys.modules.get(self.function.__module__), name, None) is self:
            return name  # a decorated function, which is found by its name, as functions are
        return functools.partial(trace, **self._options()), (self.function,)

    def __repr__(self) -> str:
        """The function, the options that differ from the defaults, and what was recorded so far."""
        names = inspect.signature(trace.__init__).parameters
        options = ", ".join(f"{k}={v!r}" for k, v in self._options().items() if v != names[k].default)
        made = self.stats()
        programs = sum(s.programs for s in made)
        count = f"{len(made)} {'recording' if len(made) == 1 else 'recordings'}, {programs} {'program' if programs == 1 else 'programs'}"
        count = ", ".join([count] * bool(made) + [f"run in {len(made.parts)} parts"] * bool(made.parts))
        return f"<trace of {self.name}{f'({options})' if options else ''}: {count or 'nothing recorded yet'}>"

    def _repr_html_(self) -> str:
        """The same for notebooks, with a line for each recording."""
        rows = "".join(f"<li><code>{html.escape(s.signature)}</code>: {html.escape(s.cause)}</li>" for s in self.stats())
        return f"<code>{html.escape(repr(self))}</code>" + (f"<ul>{rows}</ul>" if rows else "")

    def __call__(self, *args, **kwargs):
        if not (trace.enabled and config.jit) or (tracing.active is not None and tracing.recorder is not None):
            return self.function(*args, **kwargs)
        try:
            layouts = None if kwargs else (casting.key, *[x._layout for x in args])
            direct = self._direct.get(layouts)
        except AttributeError:  # an argument is no tensor
            layouts = direct = None
        if direct is not None and not config.debug and looking.around is None and (made := direct.run(args)) is not None:
            self._used = direct
            return made[0] if direct.single else self._finish(direct.recording, args, made)
        if innermost() is not None:  # inside of vmap the function's ops are those of all examples
            return self.function(*args, **kwargs)
        try:
            recording, leaves, extents = self._find(args, kwargs, answers=not self.symbolic)
        except Cut as cut:
            self._used = None
            return cut.result
        if recording.open:
            return self.function(*args, **kwargs)
        made = self._run(recording, leaves, extents)
        if layouts is not None and DirectCall.serves(recording, leaves):
            self._direct[layouts] = DirectCall(recording, extents)
        return self._finish(recording, leaves, made)

    def trace(self, *args, **kwargs) -> trace:
        """Records (and compiles) the signature of these arguments without running it."""
        self._find(args, kwargs)
        return self

    def prepared(self, *args, **kwargs) -> tuple[Executable, list[Any], tuple[int, ...]]:
        """(the program of a call, the buffers of its arguments and states, the numbers of its open extents); nothing is run. Errors:
        TraceError where a gradient outside of the trace is being recorded through it."""
        r, leaves, extents = self._find(args, kwargs)
        if r.open or r.run is None:
            raise TraceError(f"{self.name} is part of a gradient that is recorded outside, and runs eagerly; help: call it without that")
        return r.run, self._buffers(r, leaves), extents

    def drop(self, which: Callable[[Recording], bool]) -> None:
        """Forgets some of its recordings: the next call for which one of them was used is recorded anew."""
        found = {id(r) for some in self._recordings.values() for r in some if which(r)}
        if not found:
            return
        for key, some in list(self._recordings.items()):
            self._recordings[key] = [r for r in some if id(r) not in found]
        self._direct.clear()
        self._used = None

    @property
    def graph(self) -> Graph:
        """The graph of the signature that was used last, for what the function would read now. Axes that opened by themselves
        have the numbers of that call in it."""
        return self._graph_of(self._for_file())

    def stats(self) -> TraceStats:
        """The recordings: for each what it was specialised on, which extents are open, why and for which line it was made, how
        many programs it has. Print it."""
        return stats_of(self.name, self._parameters, [r for some in self._recordings.values() for r in some], self._parts)

    @property
    def _last(self) -> Recording | None:
        return None if self._used is None else self._used.recording

    @functools.cached_property
    def _parameters(self) -> Sequence[str]:
        return parameters_of(self.function) or ()

    # -- recording -------------------------------------------------------------------------------------------------------
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
        found = self._fitting(key, leaves)
        if found is None and answers and self._parts:
            if has_array((args, kwargs)):  # as when it is recorded as a whole, the function gets tensors
                args, kwargs = unflatten(structure, leaves)
            raise Cut(call_in_parts(self._parts, self.function, args, kwargs, device))
        if found is None and self._opening is not None:
            found, extents = self._opened(self._opening, key, leaves, answers)
        elif found is None:
            found = self._record(key, leaves, extents, answers=answers and self.dynamic_axes is None)
        self._used = Used(found, tuple(extents[e] for e in found.extents))
        return found, leaves, self._used.extents

    def _fitting(self, key: Any, leaves: list[Tensor], numbers: dict[str, int] | None = None) -> Recording | None:
        """The recording of a signature that fits now; numbers: of extents that opened by themselves."""
        known = self._recordings.get(key, [])
        found = next((r for r in known if r.fits(leaves) and (numbers is None or r.serves(numbers))), None)
        if found is not None and found is not known[0]:
            known.remove(found)
            known.insert(0, found)  # the one used last first
        return found

    def graph_of_call(self, *args, **kwargs) -> tuple[Graph, Device]:
        """(the graph of a call, with numbers for its extents; the device that it runs on). It is recorded for this, and neither compiled
        nor run."""
        leaves: list[Tensor] = []
        structure = flatten((args, kwargs), leaves)
        device = common_device(x._layout.device for x in leaves) if leaves else default_device()
        watch = Watch(self.function, objects_of(structure), set(self._told))
        with young_objects(), watch:
            return self._recorded(structure, leaves, [x._layout.type for x in leaves], device, watch, None, False)[0].graph, device

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
            "are recorded, a Python decision or number is not; dynamic_axes=None records each shape without this warning"
        )
        return r, {}

    def _record(
        self, key: Any, leaves: list[Tensor], extents: dict[str, int], pattern: Pattern | None = None, cause: str = "", fixed: str = "",
        answers: bool = False,
    ) -> Recording:  # fmt: skip
        """A new recording of a signature. extents: the numbers of its names in the call. pattern: by which it was opened. answers: as
        `_find` has it."""
        structure, types, _, device = key
        cause = self._cause(key, cause)
        self._room.check(cause)
        watch = Watch(self.function, objects_of(structure), self._told)
        with young_objects():
            try:
                with watch:
                    r, made, numbers = self._recorded(structure, leaves, types, device, watch, None if pattern is None else extents, answers)
            except Undecided as e:
                if pattern is not None:
                    raise
                raise undecided(self.name, e, extents) from e
            if not r.open:
                warn_of_leaks(made)
            r.read = watch.guards([*r.states, *r.baked.values()], numbers)
            if not r.open:
                if extents and pattern is None:
                    check_other_extents(r.graph, extents)
                room = None if pattern is None else self._room.take
                r.run = Executable(r.graph, self.name, device=device, room=room, budget=self.budget)
                if pattern is not None and r.run.undecided is not None:
                    raise r.run.undecided
                r.extents, r.run.gradient_of = r.run.extents, r.gradient_of
        r.key, r.numbers, r.pattern, r.cause, r.where, r.fixed = key, extents, pattern, cause, user_line(), fixed
        self._keep(r)
        return r

    def _cause(self, key: Any, differs: str) -> str:
        """Why a recording is about to be made. differs: in which extents a call differs from others."""
        if not self._room.causes:
            return "the first call"
        if differs:
            return f"another number in {differs}"
        known = self._recordings.get(key)
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
        found = next((x for x in self._recordings.get(r.key, ()) if x.read.hold() and x.wake()), None)
        if found is None:
            if r.key[2] != casting.key:
                raise TraceError(f"{self.name} reads other values than when it was recorded under autocast; help: call it once more")
            leaves = [tensor_over(None, None) for _ in r.key[1]]
            found = self._record(r.key, leaves, r.numbers, r.pattern)
        self._used = Used(found, self._used.extents)
        return found

    def _for_file(self) -> Recording:
        """The recording that `_now` gives. One that calls Python is recorded anew as a file has it: errors with values in them are checks.
        Errors: TraceError where it does more than to raise errors."""
        r = self._now()
        if not calls_python(r.graph):
            return r
        structure, types, _, device = r.key
        watch = Watch(self.function, objects_of(structure), set(self._told))
        leaves = [tensor_over(None, None) for _ in types]
        with young_objects(), watch, for_files():
            found = self._recorded(structure, leaves, types, device, watch, None if r.pattern is None else r.numbers, False)[0]
        found.key, found.numbers, found.pattern, found.extents = r.key, r.numbers, r.pattern, r.extents
        return found

    def _graph_of(self, r: Recording) -> Graph:
        """The graph of a recording that was used last, with numbers for extents that opened by themselves."""
        assert self._used is not None
        return r.graph if r.pattern is None else at_extents(r.graph, dict(zip(r.extents, self._used.extents)))

    def _recorded(
        self, structure, leaves: list[Tensor], types: Sequence[TensorType], device: Device, watch: Watch, decided: dict[str, int] | None,
        answers: bool,
    ) -> tuple[Recording, list, set[int]]:
        """A recording that is not compiled yet, `Recorder.made` and `numbers`; every other reference to what the recorder made is
        gone."""
        rec: Recorder
        if answers:
            rec = PartsRecorder(self._parts, device, self.capture_as_const, watch.observer)
        else:
            rec = ObservedRecorder(self.name, self.capture_as_const, watch.observer, device)
        with rec:
            stand_ins = [rec.argument(f"arg{i}", x, t) for i, (x, t) in enumerate(zip(leaves, types))]
            args, kwargs = unflatten(structure, stand_ins)
            with deciding(decided) as conditions:
                result = rec.called(lambda *args, **kwargs: self._called(args, kwargs), args, kwargs)
            outs: list[Tensor] = []
            result_key = flatten(result, outs)
            grads = []
            guards = {id(t): (placed(t, rec), there, overflow) for t, there, overflow in rec.reads.values()}
            for t, old, overflow in rec.grads.values():
                guards.setdefault(id(t), (placed(t, rec), old is not None, overflow))
                g = getattr(t, "_grad", None)
                grads.append((placed(t, rec), g is not None, getattr(t, "overflow", None)))
                if g is not None:
                    outs.append(g)
            open_ = rec.open(outs) or bool(self.calls_python)
            n_results = len(outs) - sum(there for _, there, _ in grads)
            graph = rec.finish([(f"output{i}", o) for i, o in enumerate(outs)])
        owners = {i: placed(rec.owners[id(t)], rec) for i, t in enumerate(rec.captured) if id(t) in rec.owners}
        taped = [on_tape(x) for x in (*leaves, *rec.captured)]
        managers = list(rec.managers.values())
        r = Recording(
            graph, rec.captured, owners, grads, list(guards.values()), taped, open_, result_key, n_results,
            objects_of(structure), rec.baked, managers=managers, attached=attached_to(managers, (*leaves, *rec.captured)), ended=rec.ended,
            conditions=conditions, gradient_of=rec.gradient_of,
        )  # fmt: skip
        return r, rec.made, rec.numbers

    def _called(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The function's result, while it is recorded."""
        return self.function(*args, **kwargs)

    # -- running ---------------------------------------------------------------------------------------------------------
    def _buffers(self, r: Recording, leaves: list[Tensor]) -> list[Any]:
        """The buffers that a run takes: of arguments, and of states, of which it may write those that it writes."""
        states = []
        for i in range(len(r.states)):
            t = r.state(i, leaves)
            if not t._layout.contiguous:
                dense = contiguous(t.detach())
                t._data, t._layout = dense._data, dense._layout
            states.append(t)
        assert r.run is not None
        for i in r.run.written:
            own(states[i])
        data = [contiguous(x.detach() if x._node is not None else x)._data for x in leaves]
        return [*data, *(t._data for t in states)]

    def _run(self, r: Recording, leaves: list[Tensor], extents: tuple[int, ...]) -> list[Tensor]:
        assert r.run is not None
        buffers = self._buffers(r, leaves)
        start = time.perf_counter()
        made = r.run(buffers, extents)
        if looking.around is not None:
            for i in r.run.written:
                r.state(i, leaves)._data = buffers[len(leaves) + i]
        if config.debug >= 1:
            print(f"tengen: {self.name}: ran {r.run.kernels} kernels in {1e3 * (time.perf_counter() - start):.3f} ms")
        return made

    def _finish(self, r: Recording, leaves: Sequence[Tensor], made: list[Tensor]) -> Any:
        """Gives tensors the gradients of a run; returns the function's result."""
        if r.ended is not None:
            r.ended.release()
        if r.grads:
            extra = iter(made[r.n_results :])
            for t, there, overflow in r.grads:
                x = held(t, leaves)
                x._grad = next(extra) if there else None
                if isinstance(x, Parameter):
                    x.overflow = overflow
        return made[0] if r.result == ("T",) else unflatten(r.result, made[: r.n_results])

    # -- shipping --------------------------------------------------------------------------------------------------------
    def dump(
        self, file, *, arg_names: Sequence[str] | None = None, output_names: Sequence[str] | None = None, **ignored
    ) -> Dumped:
        """Writes the program of the signature that was used last, with its weights, to one file; `tengen.load_graph` reads it.

        Tensors that the program only reads are its weights, under their dotted names where a module is in reach; those it
        writes stay states, with their values of now. Gradients that it would set are left out.

        Args:
            file: a path, or a file that is open for writing bytes.
            arg_names: a name for each tensor argument, in order (default: arg0, arg1, ...).
            output_names: a name for each tensor of the result (default: a dict's keys, else output0, ...). MegEngine's other
                options are accepted and ignored.

        Returns: what was written: `n_nodes`, `bytes`, `inputs`, `outputs`.

        Errors: TraceError when nothing was traced yet, ValueError for names that do not fit, OSError when the disk is full or
        the place cannot be written: the file that was there is then unharmed.
        Errors: TypeError for options that there are not, TraceError for a program that reads the gradient of an argument
        """
        for k in ignored:
            if k not in _MEGENGINE_DUMP_OPTIONS:
                raise TypeError(f"dump() has no option {k!r}")
        r = self._for_file()
        graph = self._graph_of(r)
        found = tensor_names(self.function, r.objects)
        data, names = {}, {}
        for i, (name, t) in enumerate(zip(graph.states, r.states)):
            if isinstance(r.owners.get(i), int):
                raise TraceError(
                    f"{self.name} reads the gradient of an argument, which a file has not; help: pass it as an argument"
                )
            t = r.state(i, ())
            data[name] = contiguous(t.detach()).numpy()
            names[name] = found.get(id(t)) or name
        names.update({name: found[id(t)] for name, t in r.baked.items() if id(t) in found})
        if output_names is None:
            output_names = result_names(r.result, r.n_results)
        schedules = r.run.program.schedules if r.run is not None and r.run.program is not None else None
        given = {"arg_names": arg_names, "output_names": output_names, "names": names}
        return dump(graph, data, file, n_outputs=r.n_results, schedules=schedules, **given)



_MEGENGINE_DUMP_OPTIONS = {
    "append", "keep_var_name", "keep_opr_name", "keep_param_name", "keep_opr_priority", "no_change_graph",
    "optimize_for_inference", "user_info", "enable_metadata", "dump_format", "model_version", "strip_info_file", "append_json",
}  # fmt: skip

_MEGENGINE_OPTIONS = {  # options of MegEngine's trace that are taken -> why one that is turned on has no effect; "": it is always so
    "record_only": "a function is recorded when it is called; help: run.trace(x) records and does not run",
    "profiling": "help: `with tengen.profile() as p:` around the call",
    "opt_level": "", "graph_opt_config": "", "symbolic_shape": "", "without_host": "",
}  # fmt: skip
