"""A Program: the kernels of a lowering and a memory plan, compiled for one target.

Its one entry point has the C signature ``void run(ptr* buffers, i64* ints, ptr parallel)``: buffers are the inputs, the outputs
and the arena; ints are the program's parameters followed by what `Program.integers` derives from them (numbers of
pieces, offsets of temporaries); `parallel` shares a kernel's pieces among threads. The same text is compiled here and ahead
of time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from tengen.base.config import config
from tengen.base.device import Device, cpu
from tengen.base.errors import DeviceError, SizeError
from tengen.base.record import record
from tengen.codegen.targets import Target
from tengen.compiler.arena import Temporaries
from tengen.compiler.memory_plan import MemoryPlan
from tengen.ir.graph import Check
from tengen.ir.types import MOST_BYTES
from tengen.kernels.lowering import Array
from tengen.kernels.schedule import Schedule
from tengen.kernels.steps import Leaf
from tengen.loops.extents import Numbers
from tengen.loops.lang import Expr, Index, as_int
from tengen.runtime import compile as compiler
from tengen.runtime import launch_log, native, tiers
from tengen.runtime.provenance import CACHE, provenance


@record
class Program:
    """A compiled program.

    Attributes:
        text: its LLVM IR; "" if it was read from the program cache, which has only its machine code (or, until there is good
            code, its text).
        n_inputs, n_outputs: how many buffers `run` is given of each kind. params: the integer parameters, in order.
        derived: expressions over the parameters, and offsets of temporaries, that follow the parameters in `ints`.
        temps: the temporaries, which lie in the arena. kernels: how many different ones it has.
        device: where it runs, and where its buffers lie.
        constants: its last input buffers: constants of the graph, ("const", name), then the results of `setup`.
        setup: a program that runs once, before this one: it reads constants, and fills buffers that this one reads. None if
            there is nothing to do. output_bytes: sizes of the buffers that a setup fills.
        launches: its launches with their loops, by the number in the launch log, if it was built with `log_launches`; else
            None.
        costs: of the launches, as far as they were asked for.
        schedules: those that are not what the rule says, by key (`Schedules.key`). asked: problem keys of all that were asked for.
        data: values of the constants that it and its `setup` read, by id.
        folded: the program that computed some of these constants, until this one is in the program cache.
        checks: those of the graph, in the order in which the last output buffer has their results.
        asks: whether it may stop early: it has a loop that a signal's handler may end by an exception, or calls Python.
        updates: whether it updates states, as a step of a loop does: it will run again, so good code is made at once.
        memory: what it needs and computes again, if it was made for a budget.
        object: the name of its machine code in the cache. code: the machine code itself, until it is loaded, if it was read with
            the program; origin: where from (`runtime/provenance.py`).
    """

    name: str
    text: str
    target: Target
    n_inputs: int
    n_outputs: int
    params: list[Expr]
    derived: list[Expr]
    temps: Temporaries
    kernels: int
    device: Device = cpu
    constants: list[Hashable] = field(default_factory=list)
    setup: Program | None = None
    output_bytes: list[int] = field(default_factory=list)
    launches: list[Leaf] | None = None
    costs: dict = field(default_factory=dict)
    schedules: dict[str, Schedule] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    data: dict[Hashable, np.ndarray] = field(default_factory=dict)
    folded: Folded | None = None
    checks: list[Check] = field(default_factory=list)
    asks: bool = False
    updates: bool = False
    memory: MemoryPlan | None = None
    object: str = ""
    code: bytes | None = None
    origin: str = ""
    _loaded: Any = None
    _loading: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    @property
    def address(self) -> int:
        """The entry point in this process, compiled or loaded from the cache on first use. Errors: tiers.Postponed where that is
        to be done in the background first."""
        if self._loaded is None:
            self._load()
        return self._loaded.address("run")

    def _load(self) -> None:
        start = time.perf_counter()
        with self._loading:  # threads may load it at once: the first one's code stays, since plans know its address
            if self._loaded is not None:
                return
            if self.code is None:
                self._loaded, how = tiers.load(self.text, self.target, self._receive, again=self.updates)
            else:
                provenance.found(self.origin)
                tiers.statistics.good += not self.text  # else the background has made it
                self._loaded, how = compiler.load_object(self.code, self.target), f"from the {self.origin}"
                self.code = None
        if config.debug >= 1:
            took = f"{self.kernels} kernels ready in {1e3 * (time.perf_counter() - start):.1f} ms, {how}"
            print(f"tengen: {self.name}: {took}; modules so far: {provenance.summary()}")

    def _receive(self, code: bytes) -> None:
        self.code, self.origin = code, CACHE

    def integers(self, values: Sequence[int]) -> list[int]:
        """The `ints` array for these parameter values."""
        placed = {} if self.temps.sizes_known else dict(zip(self.temps.offsets(), self._place(values)[0]))
        number = Numbers(dict(zip(self.params, values)) | placed)
        return [*values, *map(number, self.derived)]

    def arena_bytes(self, values: Sequence[int]) -> int:
        """Bytes of scratch memory for these parameter values; SizeError for more than any machine has."""
        return self._place(values)[1]

    def _place(self, values: Sequence[int]) -> tuple[tuple[int, ...], int]:
        sizes = list(map(Numbers(dict(zip(self.params, values))), self.temps.sizes))
        check_bytes(sum(check_bytes(n, f"a temporary of {self.name}") for n in sizes), f"the temporaries of {self.name}")
        return self.temps.place(sizes)

    def plan(
        self,
        n_inputs: int,
        output_bytes: Sequence[int],
        values: Sequence[int] = (),
        release_gil: bool = False,
        entry: launch_log.Entry | None = None,
    ) -> Callable:
        """A builtin function that runs it for these parameter values (`native.make_plan`). entry: the plan's entry in the
        launch log, for a program with `log_launches`."""
        arena, ints = self.arena_bytes(values), self.integers(values)
        pool: bool | int = True
        if entry is not None:
            ints, pool = [*ints, entry.number], launch_log.logging_parallel()
        call = native.make_plan(self.address, n_inputs, output_bytes, arena, ints, pool, release_gil, self.asks, owner=self)
        return tiers.timed(call, self._loaded)


@record
class Folded:
    """Constants that a program computed from others, when another program was compiled.

    Attributes:
        program, arrays: the program, and the arrays of its outputs. values: of the outputs.
        names: the names of the outputs as constants of the graph; None for one that the graph does not have any more.
    """

    program: Program
    arrays: list[Array]
    names: list[str | None]
    values: list[np.ndarray]


def value_of(e: Index, params: Sequence[Expr], values: Sequence[int]) -> int:
    """An index expression's value for these parameters; SizeError for one that does not fit an int64."""
    known = as_int(e)
    return known if known is not None else Numbers(dict(zip(params, values)))(e)


def check_bytes(n: int, what: str) -> int:
    """n, or a SizeError if no machine has so many bytes (the runtime counts bytes in int64)."""
    if not 0 <= n < MOST_BYTES:
        raise SizeError(f"{what}: {n} bytes are more than any machine has")
    return n


def target_of(device: Device) -> Target:
    """What programs that run on a device of this machine are compiled for. Errors: DeviceError for one that has no programs."""
    if device is not cpu:
        raise DeviceError(f"there are no programs for the device {device}; help: name {cpu}")
    return native.TARGET
