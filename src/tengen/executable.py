"""Executable: a graph as one native call, for traces and for loaded models.

In: a graph whose constants have data. Out: something that takes the buffers of inputs and states and gives tensors. States
are updated in place. The checks of the graph are looked at when the run has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tengen.base import errors
from tengen.base.dtype import bool_
from tengen.ir.graph import Graph
from tengen.kernels.schedule import Schedules
from tengen.record import compile_graph
from tengen.runtime import launch_log, native
from tengen.runtime.eager import Layout
from tengen.runtime.program import Program, check_bytes
from tengen.runtime.schedules import known
from tengen.tensor import Tensor, _make, from_numpy

ALIGN = 64


class Executable:
    """A compiled graph.

    Attributes:
        graph: after all passes. program: its kernels. written: positions of the states that a run writes.
        schedules: what tuning had found when it was compiled.
    """

    def __init__(self, graph: Graph, name: str, schedules: Schedules | None = None):
        self.name = name
        self.schedules = schedules or known()
        self.program, arrays = compile_graph(graph, None, [], name, fold=True, schedules=self.schedules)
        g = self.graph = self.program.graph
        self.written = [i for i, s in enumerate(g.states.values()) if s.written is not None]
        self.constants = [buffer for buffer, _ in constant_buffers(self.program)]
        self.layouts = [Layout(a.shape, a.dtype, a.strides) for a in arrays]
        if g.checks:
            self.layouts.append(Layout((len(g.checks),), bool_))
        self._bound = self._plan(self.program), tuple(self.constants)  # together: another thread may call while they change
        self._source = graph
        self._recorded: tuple[Any, launch_log.Entry] | None = None

    def retuned(self, schedules: Schedules) -> Executable:
        """The same graph with other schedules, compiled anew."""
        return Executable(self._source, self.name, schedules)

    def take(self, other: Executable) -> None:
        """Runs another's kernels from now on: one that `retuned` made."""
        assert other._source is self._source
        vars(self).update(vars(other))

    def _plan(self, program: Program, entry: launch_log.Entry | None = None) -> Any:
        sizes = [check_bytes(a.size * a.dtype.size, f"a result of type {a.type!r}") for a in self.layouts]
        n = len(self.graph.inputs) + len(self.graph.states) + len(self.constants)
        return program.plan(n, sizes, release_gil=True, entry=entry)

    def __call__(self, buffers: Sequence[Any]) -> list[Tensor]:
        """One run.

        Args:
            buffers: of the inputs and of the states, in order; they have the right sizes, and those of `written` states are
                seen by nobody else.

        Returns: the outputs.

        Errors: what a check of the graph says. States have then been written.
        """
        log = launch_log.active
        call, constants = self._bound
        if log is not None:
            call = self._call_into(log)
        out = call(*buffers, *constants)
        made = list(map(_make, (out,) if len(self.layouts) == 1 else out, self.layouts))
        if self.graph.checks:
            flags = made.pop().numpy()
            if flags.any():
                c = self.graph.checks[int(flags.argmax())]
                line = "" if c.where is None else f" [at {c.where}]"
                raise getattr(errors, c.error)(f"{self.name}: {c.message}{line}")
        return made

    def _call_into(self, log: launch_log.Log) -> Any:
        """The call of a program whose launches are recorded, with the same kernels and constants."""
        if self._recorded is None:
            program, _ = compile_graph(self._source, None, [], self.name, fold=True, record=True, schedules=self.schedules)
            if program.constants != self.program.constants:
                raise errors.TengenError(f"{self.name}: a knob was turned since it was compiled; help: compile it again to profile it")
            entry = launch_log.new_entry(program, ())
            self._recorded = self._plan(program, entry), entry
        call, entry = self._recorded
        launch_log.see(log, entry)
        return call


def constant_buffers(program: Program) -> list[tuple[Any, int]]:
    """The buffers that a program takes for `program.constants`, and their bytes; what it wants prepared is computed now."""
    known = {("const", c.name): c.data for c in program.graph.constants.values()}
    found = {}
    for id in dict.fromkeys([*program.constants, *(program.setup.constants if program.setup else [])]):
        if id in known:
            found[id] = _buffer(known[id]), known[id].nbytes
    if program.setup is not None:
        setup = program.setup
        prepared, sizes = [id for id in program.constants if id not in known], setup.output_bytes
        plan = setup.plan(setup.n_inputs, sizes)
        made = plan(*(found[id][0] for id in setup.constants))
        found.update(zip(prepared, zip(made if len(sizes) > 1 else (made,), sizes)))
    return [found[id] for id in program.constants]


def _buffer(a: np.ndarray) -> Any:
    """A buffer with an array's elements in order: the array's own memory where that is dense and aligned (a mapped file)."""
    if not a.nbytes:
        return native.new_buffer(0)
    if a.flags.c_contiguous and a.ctypes.data % ALIGN == 0:
        return native.wrap(a.ctypes.data, a)
    return from_numpy(a)._data
