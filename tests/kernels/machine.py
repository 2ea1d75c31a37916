"""Runs the launches of a lowering as machine code of this process, for tests and benchmarks of strategies."""

from __future__ import annotations

import ctypes

import numpy as np

from tengen.compiler.building import build
from tengen.kernels.lowering import Lowering
from tengen.loops.lang import Expr
from tengen.runtime import native, tiers
from tengen.runtime.cache import compiled
from tengen.runtime.compile import load_object

ALIGN = 64


class Compiled:
    """A lowering as a function without arguments, over the flat arrays that `memory` names. Temporaries start as NaN."""

    def __init__(self, lo: Lowering, memory: dict, outs: list, values: dict[Expr, int] | None = None, parallel: bool = True):
        ids = [i for i in memory if i not in outs]
        program = build(lo, ids, outs, "test")
        data = compiled(program.text, lo.target, tiers.kept_level(lo.target))
        self.code_bytes, self.program = len(data), program
        self._loaded = load_object(data, lo.target)
        numbers = [(values or {})[v] for v in lo.ints]
        ints = program.integers(numbers)
        self._arena = np.full((program.arena_bytes(numbers) + ALIGN) // 4 + 1, np.nan, np.float32)
        addresses = [memory[i].ctypes.data for i in [*ids, *outs]]
        addresses.append(-(-self._arena.ctypes.data // ALIGN) * ALIGN)
        self._buffers = (ctypes.c_void_p * len(addresses))(*addresses)
        self._ints = (ctypes.c_int64 * max(1, len(ints)))(*ints)
        self._memory = memory
        self._run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(self._loaded.address("run"))
        pool = native.PARALLEL if parallel else native.SERIAL
        self._args = ctypes.addressof(self._buffers), ctypes.addressof(self._ints), pool

    def __call__(self) -> None:
        self._run(*self._args)

