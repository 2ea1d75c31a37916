"""Model: a graph with its weights, ready to run, to look at, and to compile for another machine.

In: a verified graph whose constants and states have data. Out: something to call. It runs through the same passes, lowering and
code as eager and traced execution, so it gives the same bits. The program is compiled at the first call, not before.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from tengen.base.device import common_device, cpu
from tengen.base.dtype import DType
from tengen.base.errors import ConfigError, DTypeError, ShapeError, TraceError
from tengen.base.record import NamedTuple
from tengen.base.tables import keep
from tengen.compiler.arrays import buffer_over
from tengen.compiler.plans import Layout
from tengen.compiler.ready import Ahead
from tengen.compiler.schedules import tuned_schedules
from tengen.deploy import by_nodes, unfinished
from tengen.ir.graph import Graph, UnreadGraph
from tengen.ir.types import Dim, TensorType
from tengen.kernels.schedule import Schedule
from tengen.loops.lang import Expr
from tengen.passes.extents import at_extents, extents_of, open_extents
from tengen.runtime import native
from tengen.tensor import Buffer, Tensor, contiguous, from_numpy, tensor_over, tracing
from tengen.tensor.executable import Executable, look_ahead, room_for
from tengen.tensor.looking import looking

FORMAT, VERSION = "tengen-model", "1"  # what a model file says it is
MOST_HOT = 8  # sizes of a model with open extents that get programs of their own
MOST_KNOWN = 64  # of a model's arguments that have been found right: more are looked at each time


class Port(NamedTuple):
    """An input or output of a model. shape and dtype are exactly what it takes or gives; an extent that is open is an expression
    over names, such as ``batch`` or ``batch * 2``."""

    name: str
    shape: tuple[Dim, ...]
    dtype: DType

    def __repr__(self) -> str:
        return f"{self.name}: {TensorType(self.shape, self.dtype)!r}"


def port(name: str, t: TensorType) -> Port:
    """The port of a value of the graph."""
    return Port(name, tuple(t.shape), t.dtype)


def _looks(x: Any, d: np.dtype) -> tuple[int, ...] | Layout | None:
    """What decides whether an argument fits an input of this dtype, where it can be taken as it is; None for others."""
    if type(x) is np.ndarray:
        return x.shape if x.dtype is d and x.flags.c_contiguous else None
    if type(x) is Tensor and type(x._data) is Buffer and type(x._layout) is Layout and x._layout.contiguous:
        return x._layout
    return None


class Model:
    """A program with its weights; call it with tensors or arrays, in order or by the names of its inputs.

    One output is returned as a Tensor, several as a tuple in the order of `outputs`. Several threads may call it at once
    unless it has states: they are updated in place by every call, which calls then do one after the other.

    Attributes:
        graph: what it computes. name: the graph's. inputs, outputs: what it takes and gives, as `Port`s. checksum, bytes: of
            its file; None and 0 where it comes from none. extents: names of the extents that are open: one program serves all
            numbers for them, and up to 8 sets of numbers that are called often get one of their own, of the same bits, in the background.
            schedules: what `tengen.tune` found for it, by key.

    >>> import tengen, os, tempfile
    >>> f = tengen.trace(lambda x: x * 2 + 1, example_input=tengen.Tensor([1.0, 2.0]))
    >>> with tempfile.TemporaryDirectory() as d:
    ...     _ = f.dump(os.path.join(d, "f.tgn"), arg_names=["x"], output_names=["y"])
    ...     m = tengen.load_graph(os.path.join(d, "f.tgn"))
    >>> m.inputs, m.outputs
    ((x: f32[2],), (y: f32[2],))
    >>> m(x=[1.0, 2.0]).tolist()
    [3.0, 5.0]
    """

    def __init__(
        self,
        graph: Graph,
        states: Mapping[str, np.ndarray],
        checksum: str | None = None,
        n_bytes: int = 0,
        schedules: Mapping[str, Schedule] | None = None,
    ):
        self.kept_graph = graph  # which `graph` reads first, where it is one that is read later
        self.schedules = dict(schedules or {})
        self.name = graph.name
        self.initial = dict(states)  # the states' values before the first call
        self.inputs = tuple(port(v.name, v.type) for v in graph.inputs)
        self.outputs = tuple(map(port, graph.output_names, graph.output_types()))
        self.checksum, self.bytes = checksum, n_bytes
        self.extents = tuple(str(e.attr) for e in open_extents(graph))
        self._lock = threading.Lock()
        self._executable: Executable | None = None
        self._ahead: Ahead | None = None
        self._looked = False
        self._origin: tuple[str, Callable[[str], Model]] | None = None
        self._dtypes = [p.dtype.numpy for p in self.inputs]
        self._known: dict[tuple, tuple[int, ...]] = {}  # how arguments look that fit -> the numbers of the open extents
        self._states: list[Any] = []

    # -- looking ---------------------------------------------------------------------------------------------------------
    @property
    def graph(self) -> Graph:
        """What it computes. Of a file that was loaded before, it is read now."""
        if isinstance(self.kept_graph, UnreadGraph):
            self.kept_graph.read()
        return self.kept_graph

    def __repr__(self) -> str:
        lines = [f"Model {self.name}: {len(self.graph.nodes)} nodes, {self.n_parameters:,} weights"]
        for title, ports in (("takes", self.inputs), ("gives", self.outputs)):
            lines += [f"  {title} {p!r}" for p in ports]
        lines += [f"  keeps {port(s.name, s.read.type)!r}" for s in self.graph.states.values()]
        return "\n".join(lines)

    @property
    def n_parameters(self) -> int:
        """How many numbers its constants and states hold."""
        values = [c.value for c in self.kept_graph.constants.values()] + [s.read for s in self.kept_graph.states.values()]
        return sum(prod(v.type.shape) for v in values)

    def ops(self) -> Counter[str]:
        """How many nodes there are of each op."""
        return Counter(n.op for n in self.graph.nodes)

    @property
    def weights(self) -> dict[str, np.ndarray]:
        """The constants by name, read-only."""
        return {c.name: c.data for c in self.kept_graph.constants.values() if c.data is not None}

    @property
    def states(self) -> dict[str, Tensor]:
        """Copies of the states as they are now, by name."""
        with self._lock:
            self._prepare()
            found = {}
            for s, buffer in zip(self.kept_graph.states.values(), self._states):
                layout = Layout(tuple(s.read.type.shape), s.read.type.dtype)
                found[s.name] = tensor_over(native.copy(buffer, layout.size * layout.dtype.size), layout)
            return found

    def at(self, **extents: int) -> Model:
        """The model for these numbers of its open extents, with the states of its file: a program of its own, as an artifact has.

        Errors: ConfigError for other names than `extents`, ShapeError for numbers that its ops do not fit.
        """
        odd = set(extents) ^ set(self.extents)
        if odd or any(type(n) is not int or n < 0 for n in extents.values()):
            given = ", ".join(f"{k}={v}" for k, v in extents.items()) or "nothing"
            if not self.extents:
                raise ConfigError(f"{self.name} has no open extents, it was given {given}; help: trace it with dynamic_axes")
            name = self.extents[0]
            help = f".at({name}=8), or --extent {name}=8; compile_model(..., extents={{{name!r}: range(1, 65)}}) keeps it open"
            raise ConfigError(f"{self.name} has the open extents {', '.join(self.extents)}, it was given {given}; help: {help}")
        return Model(at_extents(self.graph, extents), self.initial, self.checksum, self.bytes, self.schedules)

    # -- running ---------------------------------------------------------------------------------------------------------
    def __call__(self, *args, **kwargs):
        """Runs the program once.

        Errors: ShapeError, DTypeError or TypeError for arguments that are not what `inputs` says; IndexOutOfRange (NegativePower)
        when the run met an index out of range (an integer to a negative power).
        """
        if tracing.recorder is not None:
            raise TraceError(f"the model {self.name} was called inside a trace; help: trace the function that it came from")
        buffers, extents = self._taken(self.ordered(args, kwargs))
        if self._executable is None or self._states:
            with self._lock:
                if (first := self._first_answer(buffers)) is not None:
                    return first[0] if len(first) == 1 else tuple(first)
                self._prepare()
                if self._states:
                    return self._run(buffers, extents)
        return self._run(buffers, extents)

    def _taken(self, given: list[Any]) -> tuple[list[Any], tuple[int, ...]]:
        """The buffers of arguments, and the numbers of the open extents. Arrays of shapes that have been found right need no other look, and
        the run reads their own memory. Errors: as a call's."""
        known = self._known.get(tuple([_looks(x, d) for x, d in zip(given, self._dtypes)]))
        if known is not None:
            return [x._data if isinstance(x, Tensor) else buffer_over(x) for x in given], known
        tensors = [self.argument(p, x) for p, x in zip(self.inputs, given)]
        extents, looks = tuple(self.extents_of(tensors).values()), tuple(map(_looks, given, self._dtypes))
        if None not in looks:
            keep(self._known, looks, extents, MOST_KNOWN)
        return [t._data for t in tensors], extents

    def prepared(self, *args: Any, **kwargs: Any) -> tuple[Executable, list[Any], tuple[int, ...]]:
        """What a call runs, without running it: the executable, the buffers of the inputs and states, the numbers of the open extents."""
        tensors = [self.argument(p, x) for p, x in zip(self.inputs, self.ordered(args, kwargs))]
        extents = tuple(self.extents_of(tensors).values())
        with self._lock:
            self._prepare()
        assert self._executable is not None
        return self._executable, [*(t._data for t in tensors), *self._states], extents

    def _run(self, given: list[Any], extents: tuple[int, ...]) -> Any:
        assert self._executable is not None
        buffers = [*given, *self._states]
        made = self._executable(buffers, extents)
        if looking.around is not None:
            self._states = buffers[len(given) :]
        return made[0] if len(made) == 1 else tuple(made)

    def extents_of(self, tensors: Sequence[Tensor]) -> dict[str, int]:
        """The numbers of the open extents in these arguments, in the order of `extents`. Errors: ShapeError where they differ."""
        if not self.extents:
            return {}
        found = extents_of([v.type for v in self.kept_graph.inputs], [t.shape for t in tensors], [p.name for p in self.inputs])
        return {e: found[e] for e in self.extents}

    def bytes_of_run(self, extents: Mapping[str, int]) -> int:
        """Bytes of memory that a run takes for scratch and results: with several runs at once each takes as much."""
        with self._lock:
            self._prepare()
        assert self._executable is not None
        return self._executable.bytes_of_run(tuple(extents[e] for e in self.extents))

    def ordered(self, args: tuple, kwargs: dict) -> list:
        """The arguments of a call in the order of `inputs`. Errors: TypeError where some are missing, or too many."""
        if not kwargs and len(args) == len(self.inputs):
            return list(args)
        names = [p.name for p in self.inputs]
        given = dict(zip(names, args))
        twice = [k for k in kwargs if k in given]
        unknown = [k for k in kwargs if k not in names]
        missing = [n for n in names if n not in given and n not in kwargs]
        if len(args) > len(names) or twice or unknown or missing:
            wrong = {"missing": missing, "unknown": unknown, "given twice": twice, "too many": [type(x).__name__ for x in args[len(names) :]]}
            what = "; ".join(f"{k}: {', '.join(map(str, v))}" for k, v in wrong.items() if v)
            raise TypeError(f"{self.name} takes {', '.join(map(repr, self.inputs)) or 'nothing'}; {what}")
        return [kwargs[n] if n in kwargs else given[n] for n in names]

    def argument(self, p: Port, x: Any) -> Tensor:
        """What is given for an input, as a dense tensor. Errors: DTypeError, ShapeError where it is not what the input takes."""
        if isinstance(x, (bool, int, float, list, tuple)):
            x = np.asarray(x, p.dtype.numpy)
        plain = type(x) is np.ndarray and x.dtype is p.dtype.numpy  # as most arrays are: they need none of what a Tensor takes besides
        t = x if isinstance(x, Tensor) else from_numpy(x, device=cpu) if plain else Tensor(x)
        if t.device is not cpu:
            common_device([cpu, t.device])
        if t.dtype is not p.dtype:
            raise DTypeError(f"{self.name}: input {p!r} was given {t._layout.type!r}; help: x.astype('{p.dtype}')")
        if self.extents:
            fits = t.ndim == len(p.shape) and all(isinstance(d, Expr) or d == n for d, n in zip(p.shape, t.shape))
        else:
            fits = t.shape == p.shape
        if not fits:
            only = "only what has a name is open" if self.extents else "it was recorded for this one shape"
            raise ShapeError(f"{self.name}: input {p!r} was given {t._layout.type!r}; {only}")
        return t if plain else contiguous(t.detach())

    def look_ahead(self) -> None:
        """Reads the program that the first call will run, if the cache has it."""
        self._ahead, self._looked = look_ahead(self.kept_graph, self.name, tuned_schedules().also(self.schedules)), True

    def comes_from(self, path: str, read: Callable[[str], Model]) -> None:
        """Says which file it was read from, and what reads that: so its first answer may come before its program is made."""
        self._origin = path, read

    def runs_again(self) -> None:
        """Says that it will run again and again: its program is made before its first answer."""
        self._origin = None

    def prepare(self) -> None:
        """Makes its program, if nobody has yet."""
        with self._lock:
            self._prepare()

    def _first_answer(self, buffers: list[Any]) -> list[Tensor] | None:
        """What the first call gives, where the program is not there yet, but those of its nodes are; None in any other case. The caller
        holds the lock."""
        if self._origin is None or self._executable is not None or not by_nodes.wanted():
            return None
        (path, read), self._origin = self._origin, None
        if not self._looked:
            self.look_ahead()
        if self._ahead is not None or not by_nodes.fits(self.graph):
            return None
        made = by_nodes.answer(self.graph, buffers)
        if made is not None:
            unfinished.add(path, self, read)
        return made

    def _prepare(self) -> None:
        """Compiles the program. The caller holds the lock."""
        if self._executable is None:
            unfinished.discard(self)
            self._states = [from_numpy(self.initial[name])._data for name in self.kept_graph.states]
            schedules = tuned_schedules().also(self.schedules)
            self._executable = Executable(self.kept_graph, self.name, schedules, ahead=self._ahead, room=room_for(MOST_HOT))
            self._ahead = None
