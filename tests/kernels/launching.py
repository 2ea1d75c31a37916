"""Runs the launches of a lowering through the interpreter, for tests of strategies."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np
import remembered

from tengen.base.dtype import dtype
from tengen.kernels.lowering import Array, Lowering
from tengen.kernels.steps import Call, If, Launch, Loop, Step, While
from tengen.loops.interp import evaluate, interpreter
from tengen.loops.lang import Expr, as_int, var


def array_of(x: np.ndarray, id) -> tuple[Array, np.ndarray]:
    """A NumPy view as an `Array`, with the flat memory under it."""
    base = x
    while base.base is not None:
        base = base.base if isinstance(base.base, np.ndarray) else base.base.base  # as_strided puts an object between
    flat = base.reshape(-1) if base.flags.c_contiguous else base.ravel(order="K")
    offset = (x.__array_interface__["data"][0] - base.__array_interface__["data"][0]) // x.itemsize
    strides = tuple(s // x.itemsize for s in x.strides)
    return Array(id, dtype(x.dtype), x.shape, strides, offset), flat


class Symbols:
    """Turns the numbers of arrays into integer parameters, so that a symbolic program is compared with a specialised one."""

    def __init__(self):
        self.values: dict[Expr, int] = {}
        self.extents: dict[int, Expr] = {}

    def extent(self, d: int):
        if d <= 1:
            return d
        if d not in self.extents:
            self.extents[d] = var(f"n{len(self.values)}")
            self.values[self.extents[d]] = d
        return self.extents[d]

    def stride(self, s: int):
        if s in (0, 1):
            return s
        e = var(f"s{len(self.values)}")
        self.values[e] = s
        return e

    def array(self, a: Array) -> Array:
        return Array(a.id, a.dtype, tuple(map(self.extent, a.shape)), tuple(map(self.stride, a.strides)), a.offset)


def run(lo: Lowering, memory: dict, values: dict[Expr, int] | None = None, backwards: bool = False) -> None:
    """Runs all launches on the flat arrays in `memory`; temporaries are made here, filled with what shows when it is used."""
    values = values or {}

    def interpret() -> None:
        whole = dict(memory)
        for id, (dt, size) in lo.temps.items():
            n = as_int(size)
            n = int(evaluate(size, values)) if n is None else n
            whole[id] = np.full(n, 77, dt.numpy)
        _run_steps(lo.steps, whole, functools.cache(interpreter), lo.ints, values, (), backwards)

    remembered.run(lo, memory, ([(v.attr, values[v]) for v in lo.ints], backwards), interpret)


def _run_steps(
    steps: Sequence[Step], memory: dict, kernels: Callable, ints: list, values: dict[Expr, int], iterations: tuple, backwards: bool
) -> None:
    """What each kind of step means. kernels: from a kernel to what runs it. iterations: the numbers of those that the steps are inside of."""
    number = lambda e: as_int(e) if as_int(e) is not None else int(evaluate(e, values))
    again = lambda some, *more: _run_steps(some, memory, kernels, ints, values, (*iterations, *more), backwards)
    holds = lambda flag: bool(number(flag) if isinstance(flag, Expr) else memory[flag.id][flag.offset])
    for s in steps:
        match s:
            case Launch():
                k = s.kernel
                items = int(evaluate(k.pieces, values))
                order = range(items)[::-1] if backwards else range(items)
                known = dict(zip([v.attr for v in k.ints], [*(values[v] for v in ints), *iterations]))
                kernels(k)([memory[i] for i in s.ids], known, order)
            case Loop():
                for i in range(number(s.count)):
                    again(s.body, i)
            case If():
                again(s.then if holds(s.flag) else s.otherwise)
            case While():
                i = 0
                while s.limit is None or i < number(s.limit):
                    again(s.condition, i)
                    if not holds(s.flag):
                        break
                    again(s.body, i)
                    i += 1
            case Call():
                inner = memory | {p: memory[id] for p, id in zip(s.function.parameters, s.ids)}
                inner |= {id: np.full_like(memory[id], 77) for id in s.function.temps}
                _run_steps(s.function.body, inner, kernels, ints, values, (), backwards)


def compile_and_run(lo: Lowering, memory: dict, values: dict[Expr, int] | None = None) -> None:
    """The same through machine code and the thread pool. The lowering must be made for `Target.host()`."""
    from tengen.compiler.building import build
    from tengen.runtime import native

    values = values or {}
    program = build(lo, list(memory), [], "test")
    numbers = [values[v] for v in program.params]
    arena = np.empty(program.arena_bytes(numbers) + 64, np.uint8)
    aligned = (arena.ctypes.data + 63) // 64 * 64
    native.call(program.address, [m.ctypes.data for m in memory.values()] + [aligned], program.integers(numbers))
