"""Executable: a graph as one native call, for traces and for loaded models.

In: a graph whose constants have data. Out: something that takes the buffers of inputs and states and gives tensors. States
are updated in place; where an exception ends a run, they get the values back that they had before it. The checks of the graph are
looked at when the run has ended.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from ctypes import c_uint8, memmove
from math import inf, prod
from time import perf_counter
from typing import TYPE_CHECKING, Any, NoReturn
from weakref import ref

import numpy as np

from tengen import compiler, passes
from tengen.base import errors
from tengen.base.config import config
from tengen.base.device import Device, cpu
from tengen.base.dtype import bool_
from tengen.base.tables import keep
from tengen.compiler.arrays import buffer_over, dense, new_buffer
from tengen.compiler.memory_plan import Budget
from tengen.compiler.plans import MOST_PLANS, Layout
from tengen.compiler.program import Program, check_bytes, target_of
from tengen.compiler.ready import Ahead, may_stop, read_ahead, ready_program
from tengen.compiler.schedules import tuned_schedules
from tengen.ir.graph import Check, Graph, Value
from tengen.kernels.lowering import Array
from tengen.kernels.schedule import Schedules
from tengen.loops.extents import Numbers
from tengen.loops.lang import Expr
from tengen.passes.extents import at_extents, open_extents
from tengen.runtime import launch_log, mapped, native, tiers
from tengen.tensor.looking import looking
from tengen.tensor.tensor import Tensor, tensor_over

if TYPE_CHECKING:
    from tengen.compiler.driver import GraphPasses

ALIGN = 64
HOT_RUNS = 10  # numbers get a program of their own when their runs have taken so many times what making one takes
KERNEL_S = 0.05  # that LLVM takes for a kernel, about: a program that was read from the cache was made faster than another will be


class Executable:
    """A compiled graph. If it has open extents, one program is compiled for all numbers; for each new set of numbers a plan is
    made, which checks the shapes and places the temporaries.

    Attributes:
        program: its kernels; None if a kernel has to know an open extent: then each set of numbers has a program of its own.
        written: positions of the states that a run writes. extents: names of the open extents, in order.
        gradient_of: for nodes of the graph before all passes, by position, that belong to a gradient: the op that it is of,
            and the user's line that called that.
        undecided: why `program` is None. schedules: what tuning had found when it was compiled. device: where it runs, and where its
        results lie.

    Args:
        room: whether one more program may be made, for numbers that are hot: a program for known numbers alone is faster. It is
            asked when the runs for these numbers have taken HOT_RUNS times what making a program takes. So at most about a tenth of
            the time is spent on making them, and sizes that are met a few times make none. It is made in the background
            (`tiers.from_background`); until it is there, runs are what they were. Default: none is.
        budget: what memory a run may need, for a graph without open extents. Errors: BudgetError where that is too little.
        orders: the axes of an input from the outermost in memory to the innermost, by the input's name; others lie in logical order.
        ahead: its program, where `look_ahead` has read it.
        opened: the executable with names in the place of numbers, from which this one has them: what both make of constants they share.
        of_graphs: other passes from graph to graph (`driver.passes`); such a program is not kept on disk.
    """

    def __init__(
        self, graph: Graph, name: str, schedules: Schedules | None = None, device: Device = cpu, room: Callable[[], bool] | None = None,
        budget: Budget | None = None, of_graphs: GraphPasses | None = None, orders: Mapping[str, Sequence[int]] | None = None,
        ahead: Ahead | None = None, opened: Executable | None = None,
    ):  # fmt: skip
        self.name, self.device, self.budget, self.orders = name, device, budget, orders or {}
        self.schedules = schedules or tuned_schedules()
        self._source = graph
        self.gradient_of: Mapping[int, tuple[str, str | None]] = {}
        self._symbols = open_extents(graph)
        self.extents = tuple(str(e.attr) for e in self._symbols)
        self.written = [i for i, s in enumerate(graph.states.values()) if s.written is not None]
        # with the constants: another thread may call while another's kernels are taken
        self._plans: dict[tuple[int, ...], tuple[Any, list[Layout], list[Any]]] = {}
        self._alone: dict[tuple[int, ...], Executable] = {}
        self._recorder: Program | None = None  # the same program built with `log_launches`
        self._recorded: dict[tuple[int, ...], tuple[Any, launch_log.Entry]] = {}
        self.program: Program | None = None
        self.undecided: errors.Undecided | None = None
        self._checks: list[Check] = []
        self._undoes = bool(self.written) and may_stop(graph)
        self._constants: list[tuple[Any, int]] | None = None  # each with its bytes
        self._room, start = room, perf_counter()
        try:
            if of_graphs is None:
                how = (True, self.schedules, device, budget, ahead)
                self.program, self._arrays = ready_program(graph, self._inputs(), self._symbols, name, *how)
            else:
                other = {"fold": True, "schedules": self.schedules, "device": device, "of_graphs": of_graphs, "budget": budget}
                self.program, self._arrays = compiler.driver.compile_graph(graph, self._inputs(), self._symbols, name, **other)
        except errors.Undecided as e:
            if not self.extents:
                raise
            if config.debug >= 1:
                print(f"tengen: {name}: compiled for each {', '.join(self.extents)} by itself: {e}")
            self.undecided = e.with_traceback(None)
            return
        self._made_s = perf_counter() - start
        self._checks = self.program.checks
        if opened is None:
            self.load()

    def load(self, opened: Executable | None = None) -> None:
        """Loads the code, and computes what depends on constants alone. opened: has done the same for the graph with names.

        Errors: tiers.Postponed where code is to be made in the background: it may be called again when that is there.
        """
        assert self.program is not None
        if self._constants is None:
            self._constants = constant_buffers(self.program, () if opened is None else opened._constants or ())
        self.constants = [buffer for buffer, _ in self._constants]
        native.trim()  # what making the network, compiling and the set-up have left in the pool, no run may ever ask for
        mapped.trim()  # nor what the set-up has read
        if not self.extents:
            self._prepare(())

    def _inputs(self) -> dict[Value, Array] | None:
        """How the inputs lie; None where all are dense in logical order."""
        inputs = self._source.inputs
        return (
            {v: passes.layout.dense(("in", i), v, self.orders.get(v.name)) for i, v in enumerate(inputs)}
            if self.orders
            else None
        )

    @property
    def source(self) -> Graph:
        """The graph before all passes."""
        return self._source

    @functools.cached_property
    def graph(self) -> Graph:
        """The graph after all passes: made when it is first asked for, to be looked at."""
        return self._source if self.program is None else passes.pipeline.optimize(self._source, compiler.driver.evaluate)

    def bytes_of_run(self, values: tuple[int, ...]) -> int:
        """Bytes of the arena and of the results of a run for these extents."""
        if self.program is None or values in self._alone or 0 in values:
            return self.alone(values).bytes_of_run(()) if values else 0
        _, layouts, _ = self._plans.get(values) or self._prepare(values)
        results = sum(a.size * a.dtype.size for a in layouts)
        return self.program.arena_bytes(values) + results

    def retuned(self, schedules: Schedules) -> Executable:
        """The same graph with other schedules, compiled anew."""
        return Executable(self._source, self.name, schedules, self.device, budget=self.budget, orders=self.orders)

    def take(self, other: Executable) -> None:
        """Runs another's kernels from now on: one that `retuned` made."""
        assert other._source is self._source
        vars(self).update(vars(other))

    @property
    def kernels(self) -> int:
        """How many kernels have been compiled for it."""
        return (0 if self.program is None else self.program.kernels) + sum(e.kernels for e in self._alone.values())

    @property
    def programs(self) -> int:
        """How many programs have been made for it."""
        return (self.program is not None) + len(self._alone)

    def _prepare(self, values: tuple[int, ...]) -> tuple[Any, list[Layout], list[Any]]:
        """The call for these extents, the layouts of what it returns, and the constants that it takes."""
        at_extents(self._source, dict(zip(self.extents, values)))
        return self._planned(values)

    def _planned(self, values: tuple[int, ...]) -> tuple[Any, list[Layout], list[Any]]:
        assert self.program is not None
        number = Numbers(dict(zip(self._symbols, values)))
        layouts = [Layout(tuple(map(number, a.shape)), a.dtype, tuple(map(number, a.strides)), self.device) for a in self._arrays]
        if self._checks:
            layouts.append(Layout((len(self._checks),), bool_, None, self.device))
        call = self._plan(self.program, layouts, values)
        if self._room is not None and values:
            call = self._until_hot(call, values)
        made = call, layouts, self.constants
        keep(self._plans, values, made, MOST_PLANS)
        return made

    def serves(self, values: tuple[int, ...], least: int) -> bool:
        """Whether shapes fit with these numbers for the open extents, and no extent that depends on them is less than `least`. If
        so, a run for them is prepared."""
        if values in self._plans or values in self._alone:
            return True
        try:
            graph = at_extents(self._source, dict(zip(self.extents, values)))
            for v, w in zip(self._source.values(), graph.values()):
                if any(isinstance(d, Expr) and n < least for d, n in zip(v.type.shape, w.type.shape)):
                    return False
            self._planned(values)
        except errors.ShapeError:
            return False
        return True

    def alone(self, values: tuple[int, ...]) -> Executable:
        """The program for these numbers alone, which runs for them from now on."""
        if values not in self._alone:
            made = self._for(values)
            if made._constants is None:
                made.load(self)
            self._alone.setdefault(values, made)  # another thread may have made one meanwhile
        self._plans.pop(values, None)
        return self._alone[values]

    def _for(self, values: tuple[int, ...]) -> Executable:
        """A program for these numbers alone, lowered and not loaded."""
        graph = at_extents(self._source, dict(zip(self.extents, values)))
        return Executable(graph, self.name, self.schedules, self.device, budget=self.budget, orders=self.orders, opened=self)

    def _until_hot(self, call: Any, values: tuple[int, ...]) -> Any:
        """The call for these numbers, whose runs are timed until they are hot."""
        assert self.program is not None
        left, me = HOT_RUNS * max(self._made_s, KERNEL_S * self.program.kernels), ref(self)

        def timed(*buffers: Any) -> Any:
            nonlocal left, call
            call = tiers.bare(call)
            if type(call) is tiers.Timed:  # it has quick code, whose time says nothing, and may wait
                return call(*buffers)
            start = perf_counter()
            made = call(*buffers)
            left -= perf_counter() - start
            if left < 0 and (exe := me()) is not None:
                left = inf  # for calls of other threads meanwhile
                exe._close(values, call)
            return made

        return timed

    def _close(self, values: tuple[int, ...], call: Any) -> None:
        """Has a program for these numbers made, in the background, if there is room for one. `call` is no longer timed."""
        assert self._room is not None
        if (plan := self._plans.get(values)) is not None:
            self._plans[values] = (call, *plan[1:])
        if not self._room():
            return
        me = ref(self)
        made: Executable | None = None

        def become() -> None:
            nonlocal made
            if (exe := me()) is None or values in exe._alone:
                return
            made = made or exe._for(values)
            made.load(exe)  # where its code is still to be compiled, `become` is called once more
            exe._alone[values] = made
            exe._plans.pop(values, None)

        tiers.from_background(become, target_of(self.device))

    def _plan(self, program: Program, layouts: list[Layout], values: tuple[int, ...], entry: launch_log.Entry | None = None) -> Any:
        sizes = [check_bytes(a.size * a.dtype.size, f"a result of type {a.type!r}") for a in layouts]
        n = len(self._source.inputs) + len(self._source.states) + len(self.constants)
        return program.plan(n, sizes, values, release_gil=True, entry=entry)

    def __call__(self, buffers: Sequence[Any], extents: tuple[int, ...] = ()) -> list[Tensor]:
        """One run.

        Args:
            buffers: of the inputs and of the states, in order; they have the right sizes, and those of `written` states are
                seen by nobody else. extents: the numbers of the open extents.

        Returns: the outputs.

        Errors: what a check of the graph says. States have then been written. What Python that the program calls, or a signal's handler,
        raises; states have then the values that they had before. ShapeError where shapes do not fit with these
        extents.
        """
        if looking.around is not None:
            return looking.around(self, buffers, extents)
        return self.run(buffers, extents)

    def run(self, buffers: Sequence[Any], extents: tuple[int, ...] = ()) -> list[Tensor]:
        """One run into which nobody looks; as a call otherwise."""
        plan = self._plans.get(extents)
        if plan is None:
            if self.program is None or extents in self._alone or 0 in extents:  # kernels for no elements are none at all
                return self.alone(extents).run(buffers)
            plan = self._prepare(extents)
        call, layouts, constants = plan
        if launch_log.active is not None:
            call = self._call_into(launch_log.active, extents)
        if self._undoes:
            out = self._whole_or_not(call, buffers, extents)
        else:
            out = call(*buffers, *constants) if constants else call(*buffers)
        made = [tensor_over(out, layouts[0])] if len(layouts) == 1 else list(map(tensor_over, out, layouts))
        return self._checked(made) if self._checks else made

    def _whole_or_not(self, call: Any, buffers: Sequence[Any], extents: tuple[int, ...]) -> Any:
        """A call that an exception may end. What it would have computed is then undefined, so states get their values back."""
        number, first, before = Numbers(dict(zip(self._symbols, extents))), len(self._source.inputs), []
        states = list(self._source.states.values())
        for i in self.written:
            t = states[i].read.type
            n = prod(map(number, t.shape)) * t.dtype.size
            before.append((buffers[first + i], native.copy(buffers[first + i], n), n))
        try:
            return call(*buffers, *self.constants)
        except BaseException:
            for buffer, old, n in before:
                memmove(native.address(buffer), native.address(old), n)
            raise

    def _checked(self, made: list[Tensor]) -> list[Tensor]:
        """The outputs without the last one, which has the results of the graph's checks. Raises the error of the first check
        that is violated."""
        flags = native.read(made.pop()._data, len(self._checks))  # a byte each; a NumPy array would cost as much as a small run
        if (i := flags.find(1)) >= 0:
            self._raise(self._checks[i])
        return made

    def _raise(self, c: Check) -> NoReturn:
        line = "" if c.where is None else f" [at {c.where}]"
        raise errors.class_of_check(c.error)(f"{self.name}: {c.message}{line}")

    def _call_into(self, log: launch_log.Log, extents: tuple[int, ...]) -> Any:
        """The call of the same program with its launches logged; its kernels and constants are the same."""
        if extents not in self._recorded:
            if self._recorder is None:
                how = {"fold": True, "log_launches": True, "schedules": self.schedules, "device": self.device, "budget": self.budget}
                self._recorder, _ = compiler.driver.compile_graph(self._source, self._inputs(), self._symbols, self.name, **how)
            program = self._recorder
            if self.program is None or program.constants != self.program.constants:
                raise errors.TengenError(
                    f"{self.name}: a knob was turned since it was compiled; help: compile it again to profile it"
                )
            entry = launch_log.new_entry(program, extents)
            _, layouts, _ = self._plans.get(extents) or self._prepare(extents)
            self._recorded[extents] = self._plan(program, layouts, extents, entry), entry
        call, entry = self._recorded[extents]
        launch_log.see(log, entry)
        return call


def look_ahead(graph: Graph, name: str, schedules: Schedules) -> Ahead | None:
    """What an Executable of this graph on the processor takes as `ahead`: its program, if the cache has it. Nothing is compiled."""
    return read_ahead(graph, open_extents(graph), name, schedules)


def room_for(n: int) -> Callable[[], bool]:
    """Room for n programs, for an Executable: whether one more may be made, each time it is asked."""
    left = iter(range(n))
    return lambda: next(left, None) is not None


def constant_buffers(program: Program, known: Sequence[tuple[Any, int]] = ()) -> list[tuple[Any, int]]:
    """(buffer, bytes) for each of `program.constants`. The program's setup runs now, and constants that only the setup reads
    are freed afterwards. known: such buffers of a program of the same constants; one that has the same bytes is taken, in place of a copy."""
    found = {id: (buffer_of(program.data[id]), program.data[id].nbytes) for id in program.constants if id in program.data}
    if program.setup is not None:
        prepared = [id for id in program.constants if id not in program.data]
        constants = [buffer_of(program.data[id]) for id in program.setup.constants]
        found.update(zip(prepared, run_setup(program.setup, constants) if not known else _shared_setup(program.setup, constants, known)))
    return [found[id] for id in program.constants]


def _shared_setup(setup: Program, constants: Sequence[Any], known: Sequence[tuple[Any, int]]) -> list[tuple[Any, int]]:
    """What `run_setup` gives, in buffers of their own, or in known ones that have the same bytes."""
    alike: dict[int, list[Any]] = {}
    for buffer, n in known:
        alike.setdefault(n, []).append(buffer)
    made = []
    for part, n in run_setup(setup, constants):
        found = next((b for b in alike.get(n, ()) if _same_bytes(b, part, n)), None)
        made.append((found if found is not None else native.copy(part, n), n))
    return made


def _same_bytes(one: Any, other: Any, n: int) -> bool:
    return np.array_equal(*(np.frombuffer((c_uint8 * n).from_address(native.address(b)), np.uint8) for b in (one, other)))


def run_setup(setup: Program, constants: Sequence[Any]) -> list[tuple[Any, int]]:
    """(buffer, bytes) for each result of a program's setup, of the buffers of the constants that it reads. All results are parts of one
    block, as the pool would round up the size of each."""
    offsets = [0]
    for n in setup.output_bytes:
        offsets.append(offsets[-1] + -(-n // ALIGN) * ALIGN)
    block = native.new_buffer(offsets[-1])
    made = [native.view(block, at) for at in offsets[:-1]]
    plan = setup.plan(setup.n_inputs, [], [1] * len(setup.params))  # nothing here depends on open extents
    plan(*constants, *made)
    return list(zip(made, setup.output_bytes))


def buffer_of(a: np.ndarray) -> Any:
    """A buffer with an array's elements in order: over the array's own memory if it is dense and aligned (as a mapped file is),
    else a copy."""
    ready = a.flags.c_contiguous and a.ctypes.data % ALIGN == 0
    return buffer_over(a) if ready else new_buffer(dense(a)[0])
