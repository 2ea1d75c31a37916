"""The machine's roof: how many operations on float32, and how many bytes of memory, a second can have.

Measured in some tens of milliseconds with kernels of our own, once in a process for a number of threads. The
shortest time of several runs counts: a roof is what the machine does when nothing disturbs it.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence

from tengen.base.config import config
from tengen.base.device import cpu
from tengen.base.dtype import float32
from tengen.base.record import record
from tengen.codegen.targets import Target
from tengen.compiler.building import build
from tengen.compiler.program import Program, target_of
from tengen.kernels.lowering import Array, Lowering
from tengen.kernels.machine import machine, registers_of
from tengen.kernels.pointwise import copy
from tengen.loops.lang import LANES, const, fma
from tengen.runtime import native

STEPS = 16384  # a few milliseconds: waking a thread is nothing beside them
COPIED = 64 << 20  # bytes; more than most caches hold
RUNS = 5
MOST_CHAINS = 12  # of multiply-adds, each of which waits for the one before: as many as processors have under way, and some


@record(frozen=True)
class Roof:
    """flops: float32 operations a second (a fused multiply-add is two). bytes: of memory read and written a second, by a copy."""

    flops: float
    bytes: float


@functools.cache
def roof(threads: int) -> Roof:
    """What this machine can do with so many threads, measured once in a process: another day, or beside other work, it is less.

    The number of threads is set for the length of the measurement.
    """
    return measure(threads)


def measure(threads: int) -> Roof:
    """The same, measured now."""
    before = config.threads
    native.set_threads(threads)
    try:
        target = target_of(cpu)
        program, flops = _multiply_adds(target, 8 * threads)
        moved = _copy(target)
        x = moved.plan(1, moved.output_bytes)(native.new_buffer(COPIED))  # a copy: memory nobody wrote is one page of zeros, cached
        return Roof(flops / _shortest(program, []), 2 * COPIED / _shortest(moved, [x]))
    finally:
        native.set_threads(before)


def _multiply_adds(target: Target, pieces: int) -> tuple[Program, float]:
    """A program that does nothing else, on registers, and how many operations it has."""
    lo = Lowering(target)
    _, registers, _ = machine(lo.target)
    chains = min(MOST_CHAINS, registers // registers_of(float32.size, lo.target) - 2)  # beside the factor and the term
    k = lo.kernel("peak")
    n = pieces * chains * LANES
    out = k.write(Array("y", float32, (n,), (1,)))
    piece = k.split(pieces)
    factor, term = (k.let(const(v, float32, LANES)) for v in (0.999, 0.001))
    sums = [k.var(const(float(i), float32, LANES), float32, "s") for i in range(chains)]
    with k.loop(0, STEPS):
        for s in sums:
            s.set(fma(s.value, factor, term))
    for i, s in enumerate(sums):
        k.store(out, (piece * chains + i) * LANES, s.value)
    lo.launch(k)
    program = build(lo, [], ["y"], "peak")
    program.output_bytes = [4 * n]
    return program, 2.0 * n * STEPS


def _copy(target: Target) -> Program:
    lo = Lowering(target)
    x, y = (Array(id, float32, (COPIED // 4,), (1,)) for id in "xy")
    copy(lo, x, y)
    program = build(lo, ["x"], ["y"], "copy")
    program.output_bytes = [COPIED]
    return program


def _shortest(program: Program, inputs: Sequence[object]) -> float:
    """Seconds of the shortest of several runs; the first, which maps memory, does not count."""
    with config.scope(quick_compile=False):
        run = program.plan(len(inputs), program.output_bytes)
    best = float("inf")
    for _ in range(RUNS + 1):
        start = time.perf_counter()
        kept = run(*inputs)
        best = min(best, time.perf_counter() - start)
        del kept
    return best
