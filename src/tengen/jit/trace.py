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
from collections.abc import Mapping, Sequence
from operator import is_
from typing import Any, Literal, NoReturn

from tengen.base.arguments import Checked
from tengen.base.config import config
from tengen.base.errors import ArgumentError, TraceError, UsageWarning, warn_once
from tengen.deploy.dump import Dumped, dump, portable
from tengen.deploy.megengine_options import check_dump_options
from tengen.deploy.model import Model
from tengen.deploy.processing import Processing, with_processing
from tengen.ir.graph import Graph
from tengen.jit.direct import DirectCall, is_argument
from tengen.jit.gradients import Gradient
from tengen.jit.memory_options import budget_of
from tengen.jit.naming import result_names, tensor_names
from tengen.jit.questions import Cut
from tengen.jit.recording import Recording, held
from tengen.jit.recordings import Recordings
from tengen.jit.room import Room
from tengen.jit.stats import TraceStats, stats_of
from tengen.tensor import Parameter, Tensor, contiguous, tracing
from tengen.tensor.assignment import own
from tengen.tensor.batched import innermost
from tengen.tensor.casting import casting
from tengen.tensor.executable import Executable
from tengen.tensor.looking import looking
from tengen.tensor.structure import unflatten


class trace(Checked, Recordings):
    """Makes a function a static program.

    Use it as ``@trace``, ``@trace(symbolic=True)`` or ``trace(model, example_input=x)``.

    Args:
        function: a function or a module. Tensors that it takes and returns may be nested in tuples, lists, dicts and dataclasses.
        symbolic: False (default): the function may ask for values (``item()``, ``if loss > 1``, ``len(x[mask])``, ``print``). Then it is run
            in parts: what is computed up to a question is recorded, found again by its structure, and run as one program; Python
            goes on from there, in every call. So is a function that does what a program would not repeat: that changes a variable by
            itself (``self.n += 1``) or what an argument holds, keeps a tensor (``self.mean = 0.9 * self.mean + ...``,
            ``history.append(loss)``), or reads a random number of Python's or NumPy's, or the clock. One that does nothing of this is one
            program, and Python is not run again. True: a question is a `TraceError`, as it is always where a function is recorded for
            `dump`, `graph` or `trace`. `stats()` lists parts and the lines that asked; `exclude_from_trace` cuts on purpose.
        capture_as_const: tensors that the function reaches by itself are baked in as constants; it must not change them.
        example_input: a tensor, or a tuple of arguments, recorded at once.
        dynamic_axes: axes whose extents stay open. "auto" (default): those in which calls differ. The first call is recorded
            for its shapes. The second, if it differs in nothing but extents, is recorded with these open; every later call that
            differs in no others, and has at least 2 in them, makes no program. Comparisons of such extents
            (``if x.shape[0] > 8``) become conditions of the recording; a function that has to know the number
            (``int(x.shape[0])``) is recorded for each, which a `TraceWarning` says once. Numbers whose runs take much of the
            time get a program of their own, made in the background. None: each shape is recorded by itself.
            A table gives axes a name from the first call on: ``{0: "batch"}`` for every tensor argument, or by the names of the
            function's parameters, ``{"data": {0: "batch"}, "mask": {0: "batch", 1: "tokens"}}``. One recording and one compiled
            program then serve all extents from 1 upwards, but for comparisons in Python, which are conditions as above, and for numbers
            whose runs take much of the time; extents of one name must agree. The bits are those of the program for each shape in all cases.
            See `docs/architecture.md`, "Open extents".
        max_programs: how many recordings are expected; numbers whose runs take much of the time get programs up to that.
            on_excess: "warn": one more recording is warned of, once, with the causes of all; "error": it is a
            `TraceError` instead. With ``max_programs=1, on_excess="error"`` the first one stays the only one.
        memory_budget: bytes, an int or a text as "400MB", that a run may need: temporaries, states and results. What does not fit is
            computed again when it is needed, with the same bits; each shape is then recorded by itself. `stats()` says what that costs.
            offload: "disk", or a folder: what is not needed for long may be written to a file there, and read again, where that costs
            less. sublinear_memory_config, dtr_config: MegEngine's ways to ask for the same. See `docs/memory.md`.

    What the function reads besides (`training` flags, hyperparameters, globals, closure variables, defaults, attributes,
    containers) is looked at before each call; where it has changed, the function is recorded again, and both recordings are
    kept. See `docs/architecture.md`, "What a recording depends on".

    Called while a gradient is recorded outside (``loss = traced(x)``, then ``loss.backward()`` or ``gm.backward(loss)``), a call is one node
    of the caller's tape, whose gradient is a second program: values and gradients have the bits of the eager calls. (A trace of the whole
    step, with the gradient inside, is one program and reads its values less often.) It runs op by op, and a `TraceWarning` says so once,
    where several gradients are nested around it. See `docs/architecture.md`, "A gradient outside of a trace".

    Errors: `TraceError` where a value is asked for (``numpy()``, ``bool()``) with symbolic=True, or while the program is recorded
        without being run; where an argument is changed in place before anything was asked for; with a table `dynamic_axes`, where
        a value or the number of an open extent is asked for (``int(x.shape[0])``); for one recording more
        than `max_programs` with ``on_excess="error"``.
        `BudgetError` where `memory_budget` cannot be met; it names the smallest that can.
        `ShapeError` where shapes fit only for some numbers of an open extent. `TraceWarning` (tengen.base.errors) with symbolic=True when a
        value of the recording is kept outside of it, in a list or an attribute, when the function changes other variables by itself, or
        what a list, dict or dataclass among its arguments holds, which runs leave as it is, and when it reads a random number of Python's
        or NumPy's, or the clock; always when it reads what cannot be guarded (a NumPy array that is no argument);
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
        self._given_name = name
        name = name or getattr(function, "__name__", type(function).__name__)
        if isinstance(dynamic_axes, str) and dynamic_axes != "auto":
            raise ArgumentError(f'dynamic_axes={dynamic_axes!r}: "auto", a table such as {{0: "batch"}}, or None')
        if type(max_programs) is not int or max_programs < 1 or on_excess not in ("warn", "error"):
            raise ArgumentError(f'max_programs={max_programs!r}, on_excess={on_excess!r}: at least 1; "warn" or "error"')
        self.without_host = bool(ignored.get("without_host"))  # MegEngine's; here no program runs the Python code again
        self.symbolic, self.max_programs, self.on_excess = symbolic, max_programs, on_excess
        self._memory = {"memory_budget": memory_budget, "sublinear_memory_config": sublinear_memory_config, "dtr_config": dtr_config}
        self._memory["offload"] = offload
        budget = budget_of(memory_budget, sublinear_memory_config, dtr_config, dynamic_axes, offload)
        super().__init__(function, name, capture_as_const, dynamic_axes, budget, Room(name, max_programs, on_excess))
        functools.update_wrapper(self, function, updated=()) if hasattr(function, "__name__") else None
        if example_input is not None:
            self.trace(*(example_input if isinstance(example_input, tuple) else (example_input,)))

    def get_profile(self) -> NoReturn:
        """MegEngine's name. Errors: NotImplementedError, which says what to use."""
        raise NotImplementedError("get_profile(): a trace keeps no profile; help: `with tengen.profile() as p:` around a call")

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
        return type(self)(function, **self._options())

    def __copy__(self):
        return self._again(self.function)

    def __deepcopy__(self, memo):
        return self._again(copy.deepcopy(self.function, memo))  # a copied method belongs to the copied object, which records anew

    def __reduce__(self):
        name = getattr(self.function, "__qualname__", None)
        if name and getattr(sys.modules.get(self.function.__module__), name, None) is self:
            return name  # a decorated function, which is found by its name, as functions are
        return functools.partial(type(self), **self._options()), (self.function,)

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
        direct = buffers = None
        if not (kwargs or config.debug):
            direct = self._used
            try:
                buffers = direct.buffers(args) if type(direct) is DirectCall else None
                if buffers is None and (direct := self._direct.get(self._layouts(args))) is not None:
                    buffers = direct.buffers(args)
            except (AttributeError, KeyError, ValueError, RuntimeError):  # other arguments, or something is gone that a guard looks at
                buffers = None
        if buffers is not None and looking.around is not None and direct.recording.run.written:  # states get new memory then
            buffers = None
        if buffers is not None:
            self._used = direct
            made = direct.run(buffers, direct.extents) if looking.around is None else direct.recording.run(buffers, direct.extents)
            if direct.single:
                return made[0]
            return self._finish(direct.recording, direct.grads, args, made) if direct.build is None else direct.build(made)
        if innermost() is not None:  # inside of vmap the function's ops are those of all examples
            return self._code()(*args, **kwargs)
        ended = None
        try:
            recording, leaves, extents = self._find(args, kwargs, answers=not self.symbolic)
        except Cut as cut:
            ended = cut.with_traceback(None)  # which refers to this frame
        if ended is not None:  # behind the handler, so that an error keeps its cause and its context
            self._used = None
            return ended.ended(args, kwargs)
        if recording.open or is_argument([recording.state(i, leaves) for i in recording.run.written], leaves):
            return self._code()(*args, **kwargs)
        if recording.gradient is not None:
            made = self._run_on_tape(recording, recording.gradient, leaves, extents)
            return self._finish(recording, recording.grads, leaves, made)
        made = self._run(recording, leaves, extents)
        if not kwargs and len(leaves) == len(args) and all(map(is_, leaves, args)) and DirectCall.serves(recording, leaves):
            self._direct[self._layouts(args)] = DirectCall(recording, leaves, extents)
        return self._finish(recording, recording.grads, leaves, made)

    @staticmethod
    def _layouts(args: Sequence[Tensor]) -> tuple[Any, ...]:
        return (casting.key, *[x._layout for x in args])

    def trace(self, *args, **kwargs) -> trace:
        """Records (and compiles) the signature of these arguments without running it."""
        self._find(args, kwargs)
        return self

    def prepared(self, *args, **kwargs) -> tuple[Executable, list[Any], tuple[int, ...]]:
        """(the program of a call, the buffers of its arguments and states, the numbers of its open extents); nothing is run. Errors:
        TraceError where it runs op by op, because of a gradient that is recorded around it."""
        r, leaves, extents = self._find(args, kwargs)
        if r.open or r.run is None:
            raise TraceError(f"{self.name} runs op by op in a gradient that is recorded around it, or calls Python; help: call it without that")
        return r.run, self._buffers(r, leaves), extents

    @property
    def graph(self) -> Graph:
        """The graph of the signature that was used last, for what the function would read now. Axes that opened by themselves
        have the numbers of that call in it."""
        return self._graph_of(self._for_file())

    def stats(self) -> TraceStats:
        """The recordings: for each what it was specialised on, which extents are open, why and for which line it was made, how
        many programs it has. Print it."""
        return stats_of(self.name, self._parameters, [r for some in self._recordings.values() for r in some], self._parts)

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

    def _run_on_tape(self, r: Recording, g: Gradient, leaves: list[Tensor], extents: tuple[int, ...]) -> list[Tensor]:
        """A run that a gradient outside of the trace may be asked for through."""
        tensors = [*leaves, *(r.state(i, leaves) for i in range(len(r.states)))]
        kept = g.kept(tensors)
        made = self._run(r, leaves, extents)
        g.attach(made, tensors, kept, dict(zip(r.extents, extents)))
        return made

    def _finish(self, r: Recording, grads: Sequence[tuple], leaves: Sequence[Tensor], made: list[Tensor]) -> Any:
        """Gives tensors the gradients of a run; returns the function's result."""
        if r.ended is not None:
            r.ended.release()
        if grads:
            extra = iter(made[r.n_results :])
            for t, there, overflow in grads:
                x = held(t, leaves)
                x._grad = next(extra) if there else None
                if isinstance(x, Parameter):
                    x.overflow = overflow
        return made[0] if r.result == ("T",) else unflatten(r.result, made[: r.n_results])

    # -- shipping --------------------------------------------------------------------------------------------------------
    def dump(
        self, file, *, arg_names: Sequence[str] | None = None, output_names: Sequence[str] | None = None,
        preprocess: Processing | None = None, postprocess: Processing | None = None, example_input: Any = None, **megengine_options,
    ) -> Dumped:  # fmt: skip
        """Writes the program of the signature that was used last, with its weights, to one file; `tengen.load_graph` reads it.

        Tensors that the program only reads are its weights, under their dotted names where a module is in reach; those it
        writes stay states, with their values of now. Gradients that it would set are left out.

        Args:
            file: a path, or a file that is open for writing bytes.
            arg_names: a name for each tensor argument, in order (default: arg0, arg1, ...).
            output_names: a name for each tensor of the result (default: a dict's keys, else output0, ...). MegEngine's options for
                names, layouts and fusions are taken and change nothing.
            preprocess, postprocess, example_input: functions that become parts of the program, and what the first is recorded with: raw
                pictures in, labels out. See `deploy.with_processing`.

        Returns: what was written: `n_nodes`, `bytes`, `inputs`, `outputs`.

        Errors: TraceError when nothing was traced yet, ValueError for names that do not fit, OSError when the disk is full or
        the place cannot be written: the file that was there is then unharmed.
        Errors: TypeError for options that there are not, ConfigError for those of MegEngine that ask for what no file keeps (`append`,
        `user_info`, `input_data`), TraceError for a program that reads the gradient of an argument
        """
        check_dump_options("dump()", megengine_options)
        r = self._for_file()
        schedules = r.run.program.schedules if r.run is not None and r.run.program is not None else None
        if preprocess is not None or postprocess is not None:
            whole = with_processing(self.live_model(), preprocess, postprocess, example_input)
            return dump(whole.graph, whole.initial, file, arg_names=arg_names, output_names=output_names, schedules=schedules)
        graph, data, names, own = self._to_write(r)
        given = {"arg_names": arg_names, "output_names": own if output_names is None else output_names, "names": names}
        return dump(graph, data, file, n_outputs=r.n_results, schedules=schedules, **given)

    def live_model(self) -> Model:
        """What `load_graph` gives of a file that `dump` writes now, without the file, for who writes it elsewhere at once: its weights are
        the memory of the tensors, which later training changes.

        Errors: TraceError as of `dump`.
        """
        r = self._for_file()
        graph, data, names, own = self._to_write(r)
        inner, arrays = portable(graph, data, None, own, names, r.n_results)
        return Model(inner, {name: arrays[name] for name in inner.states})

    def _to_write(self, r: Any) -> tuple[Any, dict[str, Any], dict[str, str], Any]:
        """A recording's graph, the values of its states, names of states and constants, and names of its results."""
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
        return graph, data, names, result_names(r.result, r.n_results)


_MEGENGINE_OPTIONS = {  # options of MegEngine's trace that are taken -> why one that is turned on has no effect; "": it is always so
    "record_only": "a function is recorded when it is called; help: run.trace(x) records and does not run",
    "profiling": "help: `with tengen.profile() as p:` around the call",
    "opt_level": "", "graph_opt_config": "", "symbolic_shape": "", "without_host": "",
}  # fmt: skip
