"""The ways of running a function, which the numerics contract says agree as bits."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from launching import run as interpret_launches
from running import same

from tengen import Tensor, set_threads, trace
from tengen.base.config import config
from tengen.base.errors import TraceWarning
from tengen.codegen.targets import Target
from tengen.compiler.building import build
from tengen.ir.graph import Graph
from tengen.kernels.lowering import Lowering
from tengen.kernels.steps import mapped
from tengen.passes.inplace import CHECKS
from tengen.passes.lower import lower
from tengen.passes.pipeline import optimize
from tengen.runtime import native


def arrays(outs) -> list[np.ndarray]:
    """Results as NumPy arrays of their own."""
    return [np.array(o.numpy()) for o in (outs if isinstance(outs, (tuple, list)) else (outs,))]


def eager(f: Callable, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Op by op."""
    return arrays(f(*map(Tensor, inputs)))


def traced(f: Callable, inputs: Sequence[np.ndarray]) -> tuple[trace, list[np.ndarray]]:
    """As one program; the trace too."""
    t = trace(lambda *a: f(*a))
    with warnings.catch_warnings():  # of arrays in reach of the function: nobody changes them
        warnings.simplefilter("ignore", TraceWarning)
        return t, arrays(t(*map(Tensor, inputs)))


def _flat(a: np.ndarray) -> np.ndarray:
    """A copy of an array's elements as kernels see them: of complex numbers the parts."""
    flat = np.array(a).reshape(-1)
    return flat.view(f"f{flat.itemsize // 2}") if flat.dtype.kind == "c" else flat


class Lowered:
    """A graph without states, lowered for a target, with flat memory for its inputs, constants and outputs."""

    def __init__(self, graph: Graph, inputs: Sequence[np.ndarray], target: Target | None = None):
        g = optimize(graph)
        self.lo, outs = lower(g, target or Target.host())
        self.memory = {("in", i): _flat(a) for i, a in enumerate(inputs)}
        self.memory |= {("const", c.name): _flat(c.data) for c in g.constants.values()}
        self.memory[CHECKS] = np.zeros(len(g.checks), bool)
        self.outs = [outs[i] for i in range(len(outs))]
        for o in self.outs:
            self.memory[o.id] = _flat(np.zeros(o.shape, o.dtype.numpy))

    def forget(self) -> None:
        """Nothing that a run has written is left for the next one."""
        for id in [CHECKS, *(o.id for o in self.outs)]:
            self.memory[id].view(np.uint8)[...] = 0

    def results(self) -> list[np.ndarray]:
        """The outputs in logical order."""
        found = []
        for o in self.outs:
            flat = self.memory[o.id].view(o.dtype.numpy)
            strides = [s * flat.itemsize for s in o.strides]
            whole = (
                flat.reshape(o.shape) if not flat.size else np.lib.stride_tricks.as_strided(flat[o.offset :], o.shape, strides)
            )
            found.append(np.array(whole))
        return found

    def interpret(self, backwards: bool = False) -> list[np.ndarray]:
        """By the interpreter, the pieces of each kernel in either order."""
        self.forget()
        interpret_launches(self.lo, self.memory, backwards=backwards)
        return self.results()

    def compiled(self) -> list[np.ndarray]:
        """As machine code of the target, in this process."""
        self.forget()
        program = build(self.lo, list(self.memory), [], "test")
        arena = np.full(program.arena_bytes([]) + 64, 0x7F, np.uint8)
        aligned = -(-arena.ctypes.data // 64) * 64
        native.call(program.address, [m.ctypes.data for m in self.memory.values()] + [aligned], program.integers([]))
        return self.results()


def together(parts: Sequence[Lowered], target: Target) -> tuple[Lowering, dict]:
    """Several lowerings as one, their kernels and buffers renamed: one object file for many programs."""
    lo = Lowering(target)
    memory = {}
    for i, part in enumerate(parts):
        memory |= {(i, id): a for id, a in part.memory.items()}
        lo.temps |= {(i, id): t for id, t in part.lo.temps.items()}
        named = lambda launch, i=i: replace(launch, kernel=replace(launch.kernel, name=f"p{i}_{launch.kernel.name}"))
        lo.steps += [mapped(step, lambda id, i=i: (i, id), named) for step in part.lo.steps]
    return lo, memory


@contextlib.contextmanager
def threads(n: int):
    """With so many threads."""
    before = config.threads
    set_threads(n)
    try:
        yield
    finally:
        set_threads(before)


def agree(what: str, got: Sequence[np.ndarray], want: Sequence[np.ndarray]) -> None:
    """Equal bytes, all NaNs as one; the message says which way differs."""
    assert len(got) == len(want), what
    for i, (a, b) in enumerate(zip(got, want)):
        try:
            same(a, b)
        except AssertionError as e:
            raise AssertionError(f"{what}, result {i}: {e}") from None
