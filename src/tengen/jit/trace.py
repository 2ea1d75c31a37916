"""`trace`: record a function once, run it as one native program ever after.

A call is recorded for its signature: structure, shapes and dtypes of its tensors, and the values of everything else. Tensors
that the function reaches on other ways (parameters, optimizer state, random counters) become states of the program: read anew,
and updated in place, in every run. What else it read (modes, hyperparameters, globals, closure variables, attributes) guards
the recording: where it has changed, another recording is used or made (`guards.py`). What cannot be guarded is warned of.
"""

from __future__ import annotations

import copy
import functools
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import ref

import numpy as np

from tengen.autodiff import GradManager
from tengen.base.changes import WatchedList
from tengen.base.config import config
from tengen.base.device import Device, common_device, default_device
from tengen.base.errors import TraceError, TraceWarning, Undecided, UsageWarning, user_line, warn_once
from tengen.deploy.dump import Dumped, dump
from tengen.ir.graph import Graph
from tengen.ir.types import TensorType
from tengen.jit.direct import DirectCall
from tengen.jit.dynamic import DynamicAxes, undecided
from tengen.jit.guards import Guards, Watch
from tengen.jit.leaks import warn_of_leaks, young_objects
from tengen.jit.naming import tensor_names
from tengen.jit.observe import ObservedRecorder
from tengen.passes.extents import at_extents
from tengen.tensor import Parameter, Tensor, contiguous, from_numpy, tensor_over, tracing
from tengen.tensor.assignment import own
from tengen.tensor.batched import innermost
from tengen.tensor.casting import casting
from tengen.tensor.executable import Executable
from tengen.tensor.nodes import on_tape
from tengen.tensor.recorder import Recorder
from tengen.tensor.tape import cut

MOST = 32  # recordings of one signature that are kept, and after which a trace warns that it is recorded again and again


def flatten(x: Any, leaves: list[Tensor]) -> Any:
    """The structure of nested tuples, lists and dicts with their tensors (and arrays) taken out, as a hashable key."""
    if isinstance(x, Tensor):
        leaves.append(x)
        return ("T",)
    if isinstance(x, np.ndarray):
        leaves.append(from_numpy(x))
        return ("T",)
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return ("N", type(x), tuple(flatten(v, leaves) for v in x))
    if type(x) in (tuple, list, WatchedList):
        return ("tuple" if type(x) is tuple else "list", tuple(flatten(v, leaves) for v in x))
    if type(x) is dict or type(x) is OrderedDict:
        return ("dict", tuple((k, flatten(v, leaves)) for k, v in x.items()))
    if isinstance(x, (int, float, bool, str, bytes, type(None))):
        return ("V", type(x), x, str(x) if isinstance(x, float) else None)  # 0.0 and -0.0 are equal
    return ("O", _Same(x))


class _Same:
    """An object as a key: equal to itself alone, and kept alive."""

    __slots__ = ("object",)

    def __init__(self, object_):
        self.object = object_

    def __hash__(self):
        return id(self.object)

    def __eq__(self, other):
        return isinstance(other, _Same) and self.object is other.object


def unflatten(key: Any, leaves: Sequence[Any]) -> Any:
    """The structure of `flatten` with these leaves."""
    return _unflatten(key, iter(leaves))


def _unflatten(k: Any, leaves: Iterator[Any]) -> Any:
    # Not a closure that calls itself: that would be a cycle, which holds the results of a run until it is collected.
    match k[0]:
        case "T": return next(leaves)  # fmt: skip
        case "V": return k[2]  # fmt: skip
        case "O": return k[1].object  # fmt: skip
        case "N": return k[1](*(_unflatten(v, leaves) for v in k[2]))  # fmt: skip
        case "tuple": return tuple(_unflatten(v, leaves) for v in k[1])  # fmt: skip
        case "list": return [_unflatten(v, leaves) for v in k[1]]  # fmt: skip
        case "dict": return {name: _unflatten(v, leaves) for name, v in k[1]}  # fmt: skip
    raise TraceError(f"a value of kind {k[0]} cannot be an argument or a result of a traced function")


def _objects(key: Any) -> list[Any]:
    """The objects in a structure of `flatten`."""
    match key[0]:
        case "O": return [key[1].object]  # fmt: skip
        case "N": return [x for v in key[2] for x in _objects(v)]  # fmt: skip
        case "tuple" | "list": return [x for v in key[1] for x in _objects(v)]  # fmt: skip
        case "dict": return [x for _, v in key[1] for x in _objects(v)]  # fmt: skip
    return []


def _ref(t: Tensor, rec: Recorder) -> Tensor | int:
    """A tensor, or the position of the argument that it stands in for."""
    return rec.arguments.get(id(t), t)


def _of(t: Tensor | int, leaves: Sequence[Tensor]) -> Tensor:
    """The tensor that `_ref` named, among the arguments of this call."""
    return leaves[t] if isinstance(t, int) else t


def _attached(managers: Sequence[GradManager], tensors: Sequence[Tensor]) -> list[list]:
    """For each manager and tensor: the callbacks that it was attached with, and the first place where the same tensor stands;
    None where it is not attached."""
    found: list[list] = []
    for m in managers:
        first: dict[int, int] = {}
        calls = [m.callbacks_of(x) for x in tensors]
        found.append([c if c is None else (first.setdefault(id(x), i), c) for i, (x, c) in enumerate(zip(tensors, calls))])
    return found


@dataclass
class Recording:
    """One recorded and compiled signature."""

    graph: Graph  # as recorded
    states: list[Tensor]
    # In the following fields an int in the place of a tensor is the position of an argument.
    owners: dict[int, Tensor | int]  # position of a state -> the tensor whose gradient it is
    grads: list[tuple[Tensor | int, bool, Tensor | None]]  # (tensor, whether a run sets its grad or clears it, its overflow)
    guards: list[tuple[Tensor | int, bool, Tensor | None]]  # (tensor, whether it had a grad when recorded, its overflow)
    taped: list[bool]  # which arguments and states a gradient was being recorded for
    open: bool  # the result depends on those: its gradient belongs to a manager outside
    result: Any  # structure of the result
    n_results: int
    objects: list[Any] = field(default_factory=list)  # arguments that are neither tensors nor plain values
    baked: dict[str, Tensor] = field(default_factory=dict)  # captured as constants, by name
    run: Executable | None = None
    extents: tuple[str, ...] = ()  # names of the open extents, in the executable's order
    managers: list[GradManager] = field(default_factory=list)  # those that recorded inside
    attached: list[list] = field(default_factory=list)  # and what they knew of arguments and states
    ended: GradManager | None = None  # began to record outside
    key: Any = None  # of its signature
    numbers: dict[str, int] = field(default_factory=dict)  # of its open extents when it was recorded
    read: Guards = None  # type: ignore[assignment]  # whether what it read is what it was
    asleep: bool = False  # it holds its tensors weakly, because what it read has changed

    def state(self, i: int, leaves: Sequence[Tensor]) -> Tensor:
        """The tensor that holds state i now."""
        return _of(self.owners[i], leaves)._grad if i in self.owners else self.states[i]  # type: ignore[return-value]

    def fits(self, leaves: Sequence[Tensor]) -> bool:
        """Whether what was recorded still holds: what it read, gradients that are there, types of states, what is on the
        tape."""
        if not self.read.hold() or not self.wake():
            return False
        for t, there, overflow in self.guards:
            x = _of(t, leaves)
            if (getattr(x, "_grad", None) is not None) != there or getattr(x, "overflow", None) is not overflow:
                return False
        states = [self.state(i, leaves) for i in range(len(self.states))]
        if any(s._layout.type is not t.read.type for s, t in zip(states, self.graph.states.values())):
            return False
        if self.managers and _attached(self.managers, (*leaves, *self.states)) != self.attached:
            return False
        if self.ended is None:
            return [x._node is not None and on_tape(x) for x in (*leaves, *states)] == self.taped
        if self.ended.level is None:
            return False
        return [x._node is not None for x in cut([*leaves, *states], self.ended.level)] == self.taped

    # A recording that does not fit now keeps no tensor alive (a parameter that was replaced, say). It may fit again while they
    # live.
    def sleep(self) -> None:
        """Replaces the references to tensors by weak ones, until `wake`."""
        self.read.sleep()
        if not self.asleep:
            self._map(lambda t: ref(t) if isinstance(t, Tensor) else t)
            self.asleep = True

    def wake(self) -> bool:
        """Makes the references strong again. Returns whether all tensors still exist."""
        if self.asleep and not self.lost():
            self._map(lambda t: t() if isinstance(t, ref) else t)
            self.asleep = False
        return not self.asleep

    def lost(self) -> bool:
        """Whether the recording can never be used again, because an object that it needs does not exist any more."""
        gone: list[Any] = []
        if self.asleep:
            self._map(lambda t: gone.append(t) if isinstance(t, ref) and t() is None else t)  # type: ignore[func-returns-value]
        return bool(gone) or self.read.lost()

    def _map(self, f: Callable[[Any], Any]) -> None:
        self.states = [f(t) for t in self.states]
        self.owners = {i: f(t) for i, t in self.owners.items()}
        self.grads = [(f(t), there, f(overflow)) for t, there, overflow in self.grads]
        self.guards = [(f(t), there, f(overflow)) for t, there, overflow in self.guards]
        self.baked = {name: f(t) for name, t in self.baked.items()}


class trace:
    """Makes a function a static program.

    Use it as ``@trace``, ``@trace(symbolic=True)`` or ``trace(model, example_input=x)``.

    Args:
        function: a function or a module. Its tensors may be nested in tuples, lists and dicts.
        symbolic: accepted for MegEngine's sake; recording never computes, and the program always runs.
        capture_as_const: tensors that the function reaches by itself are baked in as constants; it must not change them.
        example_input: a tensor, or a tuple of arguments, recorded at once.
        dynamic_axes: axes whose extents stay open, and a name for each: ``{0: "batch"}`` for every tensor argument, or by the
            names of the function's parameters, ``{"data": {0: "batch"}, "mask": {0: "batch", 1: "tokens"}}``. One recording and
            one compiled program then serve all extents from 1 upwards, with the bits of the program for each; extents of one
            name must agree. See `docs/architecture.md`, "Open extents".

    What the function reads besides (`training` flags, hyperparameters, globals, closure variables, defaults, attributes,
    containers) is looked at before each call; where it has changed, the function is recorded again, and both recordings are
    kept. See `docs/architecture.md`, "What a recording depends on".

    Called while a `GradManager` outside records a gradient through it, the function runs eagerly, so that the gradient is whole
    (trace the whole step to have it fast).

    Errors: `TraceError` where a value is asked for while the program is recorded (``numpy()``, ``bool()``), or an argument is
        changed in place; where the number of an open extent is asked for (``int(x.shape[0])``, ``if x.shape[0] > 1``).
        `ShapeError` where shapes fit only for some numbers of an open extent. `TraceWarning` (tengen.base.errors) when a value
        of the recording is kept outside of it, in a list or an attribute; when the function changes other variables by itself;
        when it reads what cannot be guarded (a NumPy array that is no argument, Python's or NumPy's random numbers, the clock);
        when it is recorded 32 times because something keeps changing.

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
    """

    enabled = True  # trace.enabled = False runs every traced function eagerly

    def __new__(cls, function=None, **options):
        if function is None:
            return functools.partial(cls, **options)
        return super().__new__(cls)

    def __init__(
        self, function, *, symbolic: bool = True, capture_as_const: bool = False, example_input=None, name=None,
        dynamic_axes: Mapping | None = None, **ignored,
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
        self.name = name or getattr(function, "__name__", type(function).__name__)
        self.dynamic_axes = DynamicAxes(dynamic_axes, function) if dynamic_axes else None
        self._recordings: dict[Any, list[Recording]] = {}
        self._direct: dict[Any, DirectCall] = {}  # by the layouts of arguments
        self._last: Recording | None = None
        self._made: dict[Any, int] = {}  # how many recordings of a signature
        self._told: set[str] = set()  # what was warned of
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

    def _again(self, function) -> trace:
        axes = self.dynamic_axes.given if self.dynamic_axes else None
        return trace(function, symbolic=self.symbolic, capture_as_const=self.capture_as_const, dynamic_axes=axes)

    def __deepcopy__(self, memo):
        return self._again(
            copy.deepcopy(self.function, memo)
        )  # a copied method belongs to the copied object, which records anew

    def __reduce__(self):
        return (trace, (self.function,))

    def __call__(self, *args, **kwargs):
        if not trace.enabled or (tracing.active is not None and tracing.recorder is not None):
            return self.function(*args, **kwargs)
        try:
            layouts = None if kwargs else (casting.key, *[x._layout for x in args])
            direct = self._direct.get(layouts)
        except AttributeError:  # an argument is no tensor
            layouts = direct = None
        if direct is not None and not config.debug and (made := direct.run(args)) is not None:
            self._last = direct.recording
            return made[0] if direct.single else self._finish(direct.recording, args, made)
        if innermost() is not None:  # inside of vmap the function's ops are those of all examples
            return self.function(*args, **kwargs)
        recording, leaves, extents = self._find(args, kwargs)
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

    @property
    def graph(self) -> Graph:
        """The graph of the signature that was used last, for what the function would read now."""
        return self._now().graph

    def stats(self) -> list[str]:
        """One line for each recorded signature."""
        return [f"{self.name}: {r.graph.inputs}" for rs in self._recordings.values() for r in rs]

    # -- recording -------------------------------------------------------------------------------------------------------
    def _find(self, args, kwargs) -> tuple[Recording, list[Tensor], tuple[int, ...]]:
        leaves: list[Tensor] = []
        structure = flatten((args, kwargs), leaves)
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
        found = self._fitting(key, leaves) or self._record(key, leaves, extents)
        self._last = found
        return found, leaves, tuple(extents[e] for e in found.extents)

    def _fitting(self, key: Any, leaves: list[Tensor]) -> Recording | None:
        """The recording of a signature that fits now."""
        known = self._recordings.get(key, [])
        found = next((r for r in known if r.fits(leaves)), None)
        if found is not None and found is not known[0]:
            known.remove(found)
            known.insert(0, found)  # the one used last first
        return found

    def _record(self, key: Any, leaves: list[Tensor], extents: dict[str, int]) -> Recording:
        structure, types, _, device = key
        watch = Watch(self.function, _objects(structure), self._told)
        with young_objects():
            try:
                with watch:
                    r, made, numbers = self._recorded(structure, leaves, types, device, watch)
            except Undecided as e:
                raise undecided(self.name, e, extents) from e
            if not r.open:
                warn_of_leaks(made)
            r.read = watch.guards([*r.states, *r.baked.values()], numbers)
            if not r.open:
                for more in range(2 if extents else 0):  # those of the example, and others: what fits by chance is found now
                    at_extents(r.graph, {name: n + more for name, n in extents.items()})
                r.run = Executable(r.graph, self.name, device=device)
                r.extents = r.run.extents
        r.key, r.numbers = key, extents
        self._keep(r)
        return r

    def _keep(self, r: Recording) -> None:
        """Adds a recording, and lets go of what others hold that do not fit now, and of those that never will again."""
        known = self._recordings.setdefault(r.key, [])
        self._made[r.key] = self._made.get(r.key, 0) + 1
        if self._made[r.key] == MOST:
            before = known[0] if known else self._last
            changing = (before and before.read.difference()) or "a gradient, or the type of a state"
            text = (
                f"{self.name} was recorded and compiled {MOST} times for arguments of the same types, because {changing} keeps changing; "
                f"the {MOST} programs used last are kept; help: make it a Tensor, which every run reads anew, or pass it as a Tensor"
            )
            file, _, line = (user_line() or "unknown:0").rpartition(":")
            warnings.warn_explicit(text, TraceWarning, file, int(line))
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
        if r is None:
            raise TraceError(f"{self.name} has not been traced; help: call it, or .trace(...), with example arguments first")
        if r.read.hold() and r.wake():
            return r
        found = next((x for x in self._recordings.get(r.key, ()) if x.read.hold() and x.wake()), None)
        if found is None:
            if r.key[2] != casting.key:
                raise TraceError(f"{self.name} reads other values than when it was recorded under autocast; help: call it once more")
            found = self._record(r.key, [tensor_over(None, None) for _ in r.key[1]], r.numbers)  # type: ignore[arg-type]  # types do
        self._last = found
        return found

    def _recorded(
        self, structure, leaves: list[Tensor], types: Sequence[TensorType], device: Device, watch: Watch
    ) -> tuple[Recording, list, set[int]]:
        """A recording that is not compiled yet, `Recorder.made` and `numbers`; every other reference to what the recorder made is
        gone."""
        rec = ObservedRecorder(self.name, self.capture_as_const, watch.observer, device)
        with rec:
            stand_ins = [rec.argument(f"arg{i}", x, t) for i, (x, t) in enumerate(zip(leaves, types))]
            args, kwargs = unflatten(structure, stand_ins)
            result = self.function(*args, **kwargs)
            outs: list[Tensor] = []
            result_key = flatten(result, outs)
            grads = []
            guards = {id(t): (_ref(t, rec), there, overflow) for t, there, overflow in rec.reads.values()}
            for t, old, overflow in rec.grads.values():
                guards.setdefault(id(t), (_ref(t, rec), old is not None, overflow))
                g = getattr(t, "_grad", None)
                grads.append((_ref(t, rec), g is not None, getattr(t, "overflow", None)))
                if g is not None:
                    outs.append(g)
            open_ = rec.open(outs)
            n_results = len(outs) - sum(there for _, there, _ in grads)
            graph = rec.finish([(f"output{i}", o) for i, o in enumerate(outs)])
        owners = {i: _ref(rec.owners[id(t)], rec) for i, t in enumerate(rec.captured) if id(t) in rec.owners}
        taped = [on_tape(x) for x in (*leaves, *rec.captured)]
        managers = list(rec.managers.values())
        r = Recording(
            graph, rec.captured, owners, grads, list(guards.values()), taped, open_, result_key, n_results,
            _objects(structure), rec.baked, managers=managers, attached=_attached(managers, (*leaves, *rec.captured)), ended=rec.ended,
        )  # fmt: skip
        return r, rec.made, rec.numbers

    # -- running ---------------------------------------------------------------------------------------------------------
    def _run(self, r: Recording, leaves: list[Tensor], extents: tuple[int, ...]) -> list[Tensor]:
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
        start = time.perf_counter()
        made = r.run([*data, *(t._data for t in states)], extents)
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
                x = _of(t, leaves)
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
        """
        for k in ignored:
            if k not in _MEGENGINE_DUMP_OPTIONS:
                raise TypeError(f"dump() has no option {k!r}")
        r = self._now()
        graph = r.graph
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
            output_names = _result_names(r.result, r.n_results)
        schedules = r.run.program.schedules if r.run is not None and r.run.program is not None else None
        given = {"arg_names": arg_names, "output_names": output_names, "names": names}
        return dump(graph, data, file, n_outputs=r.n_results, schedules=schedules, **given)


def _result_names(structure: Any, n: int) -> list[str]:
    """The keys of a dict of tensors; numbered names for any other result."""
    if structure[0] == "dict" and len(structure[1]) == n and all(v == ("T",) for _, v in structure[1]):
        keys = [str(k) for k, _ in structure[1]]
        if len(set(keys)) == n and all(k and k.isprintable() and "`" not in k for k in keys):
            return keys
    return [f"output{i}" for i in range(n)]


_MEGENGINE_DUMP_OPTIONS = {
    "append", "keep_var_name", "keep_opr_name", "keep_param_name", "keep_opr_priority", "no_change_graph",
    "optimize_for_inference", "user_info", "enable_metadata", "dump_format", "model_version", "strip_info_file", "append_json",
}  # fmt: skip

_RECOMPUTING = "values are not computed again in place of being kept; a traced program's memory is planned"
_MEGENGINE_OPTIONS = {  # options of MegEngine's trace that are taken -> why one that is turned on has no effect; "": it is always so
    "record_only": "a function is recorded when it is called; help: run.trace(x) records and does not run",
    "sublinear_memory_config": _RECOMPUTING, "dtr_config": _RECOMPUTING,
    "profiling": "help: `with tengen.profile() as p:` around the call",
    "opt_level": "", "graph_opt_config": "", "symbolic_shape": "", "without_host": "",
}  # fmt: skip
