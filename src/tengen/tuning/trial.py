"""One node of a lowered graph as a program of its own, to be run with one schedule or another.

In: a graph, after all passes. Out: for each node, native calls on memory of its own, filled with numbers: how long they take,
and what bits they give. What an executable computes once, when it is loaded (packed weights), is computed once here too.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Hashable, Sequence
from functools import partial
from math import prod
from statistics import median
from typing import Any

import numpy as np

from tengen.base.device import Device, cpu
from tengen.base.dtype import DType, bool_
from tengen.compiler import driver
from tengen.ir.graph import Graph
from tengen.kernels.lowering import Lowering
from tengen.kernels.schedule import Schedules
from tengen.loops.lang import as_int
from tengen.passes.hoist import constant_sizes
from tengen.passes.inplace import CHECKS
from tengen.passes.lowered import Lowered
from tengen.passes.run import run_passes
from tengen.runtime import native
from tengen.tensor.executable import run_setup

SAMPLE = 5e-4  # seconds of a measurement, at least
KEPT = 4  # nodes whose memory is kept


def fill(dtype: DType, n: int, seed: int) -> np.ndarray:
    """n elements that disturb no measurement: floats in 1/4..1, integers 0 (an index that exists), bools of both kinds."""
    rng = np.random.default_rng(seed)
    if dtype is bool_:
        return rng.integers(0, 2, n).astype(bool)
    if dtype.is_float:
        return (0.25 + 0.75 * rng.random(n, np.float32)).astype(dtype.numpy)
    return np.zeros(n, dtype.numpy)


class Trial:
    """A compiled node. call: runs it. results: reads what it has written."""

    def __init__(self, call, buffers: Sequence[Any], written: Sequence[tuple[Any, DType, np.ndarray]]):
        self._call, self._buffers, self._written = call, buffers, written

    def bits(self) -> list[bytes]:
        """What one run writes, over memory that is filled as in every trial of the node; all NaNs are alike."""
        for buffer, _, before in self._written:
            native.write(buffer, before)
        self._call(*self._buffers)
        return [
            same_nans(np.frombuffer(native.read(buffer, before.nbytes), before.dtype)) for buffer, _, before in self._written
        ]

    def seconds(self, repeat: int) -> float:
        """The time of a run, of so many."""
        call, buffers = self._call, self._buffers
        start = time.perf_counter()
        for _ in range(repeat):
            call(*buffers)
        return (time.perf_counter() - start) / repeat


def same_nans(a: np.ndarray) -> bytes:
    """The bytes of an array whose NaNs are made one."""
    if a.dtype.kind not in "fV" and a.dtype.name not in ("bfloat16", "float16"):
        return a.tobytes()
    odd = np.isnan(a)
    return np.where(odd, np.array(np.nan, a.dtype), a).tobytes() if odd.any() else a.tobytes()


class Bench:
    """The nodes of a graph.

    Attributes:
        lo: the lowering with the schedules of `known`. hot: positions of nodes that every run launches (not views that had to
            be copied).
    """

    def __init__(self, graph: Graph, known: Schedules, device: Device = cpu):
        whole = driver.lowered(graph, known, device)
        left = run_passes(whole, [driver.hoisting(device)])
        self.graph, self.device, self.lo, self.temps = graph, device, left.lo, whole.lo.temps
        made = set() if left.setup is None else {id for launch in left.setup.lo.launches for id in launch.writes}
        self._constant = {**constant_sizes(graph), **{id: self._elements(id)[1] * self._elements(id)[0].size for id in made}}
        self.hot = {launch.node for launch in self.lo.launches if launch.node in self.lo.nodes}
        self._memory: dict[int, dict[Hashable, tuple[Any, DType, np.ndarray]]] = {}

    def trial(self, node: int, schedules: Schedules) -> Trial:
        """The node, compiled with these schedules.

        Errors: ScheduleError where they are strict and one does not fit.
        """
        mini = Lowering(self.lo.target, (), schedules, first=len(self.temps))
        mini.node = node
        self.lo.nodes[node](mini)
        known = self._of(node)
        held = dict.fromkeys(id for launch in mini.launches for id in launch.ids if id not in mini.temps)
        for id in held:
            if id not in known:
                dtype, n = self._elements(id)
                data = fill(dtype, n, zlib.crc32(repr(id).encode()))  # whatever the order in which launches name them
                known[id] = native.new_buffer(data.nbytes), dtype, data
                native.write(known[id][0], data)
        sizes = {id: self._constant[id] for id in held if id in self._constant}
        varying = [id for id in held if id not in sizes]
        alone = Lowered(f"node{node}", mini, (*varying, *sizes), ("nothing",), self.device, constants=tuple(sizes))
        program = driver.program_of_launches(alone, sizes)
        buffers = {id: known[id][0] for id in held}
        if (setup := program.setup) is not None:
            made = run_setup(setup, [buffers[id] for id in setup.constants])
            prepared = [id for id in program.constants if id not in held]
            buffers |= zip(prepared, (buffer for buffer, _ in made))
        inputs = [buffers[id] for id in (*varying, *program.constants)]
        written = dict.fromkeys(id for launch in mini.launches for id in launch.writes if id in held)
        return Trial(program.plan(len(inputs), [-1]), inputs, [known[id] for id in written])

    def _of(self, node: int) -> dict:
        """The memory of a node's trials; that of others is given back after a while."""
        found = self._memory[node] = self._memory.pop(node, {})
        while len(self._memory) > KEPT:
            del self._memory[next(iter(self._memory))]
        return found

    def _elements(self, id: Hashable) -> tuple[DType, int]:
        """What a buffer of the program holds."""
        if id in self.temps:
            dtype, n = self.temps[id]
            return dtype, as_int(n) or 0
        if id is CHECKS or id == CHECKS:
            return bool_, len(self.graph.checks)
        kind: Any
        which: Any
        kind, which = id
        g = self.graph
        types = {"in": lambda: g.inputs[which], "out": lambda: g.outputs[which]}
        types |= {"state": lambda: g.states[which].read, "const": lambda: g.constants[which].value}
        t = types[kind]().type
        return t.dtype, prod(t.shape)


def faster(old: Trial, new: Trial) -> float:
    """How many times as fast `new` is as `old`, if that was seen again and again; else 0.

    Both run in turn. After three turns a candidate that does not look better is given up. It is taken when the median of the
    ratios says 2 % and the shortest times agree, in two series.
    """
    old.seconds(1)
    first = new.seconds(1)
    repeat = max(1, min(1000, int(SAMPLE / max(first, 1e-7))))
    run = partial(_turns, old, new, repeat)
    a, b = run(3)
    if median(x / y for x, y in zip(a, b)) < 1.02 or min(b) > min(a):
        return 0.0
    gains = []
    for _ in range(2):
        a, b = run(6)
        gains.append(median(x / y for x, y in zip(a, b)))
        if gains[-1] < 1.02 or min(b) > 0.99 * min(a):
            return 0.0
    return min(gains)


def _turns(old: Trial, new: Trial, repeat: int, n: int) -> tuple[list[float], list[float]]:
    """Times of both, in turn; who comes first changes."""
    a, b = [], []
    for i in range(n):
        for t, times in ((old, a), (new, b)) if i % 2 else ((new, b), (old, a)):
            times.append(t.seconds(repeat))
    return a, b
