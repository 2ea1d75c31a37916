"""Runs kernels as machine code in this process, for tests: compile, load, call through ctypes."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from tengen.codegen.llvm import emit_module
from tengen.codegen.targets import Target
from tengen.loops.statements import Kernel
from tengen.runtime.cache import compiled
from tengen.runtime.compile import Loaded, load_object

SIGNATURE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


def load(kernels: Sequence[Kernel], target: Target | None = None, level: int = 1) -> Loaded:
    """Kernels compiled for a target that this machine can run."""
    target = target or Target.host()
    return load_object(compiled(emit_module(kernels, target), target, level), target)


def call(loaded: Loaded, kernel: Kernel, arrays: Sequence[np.ndarray], ints: Sequence[int] = (), begin: int = 0, end: int = 1):
    """Runs the pieces begin <= piece < end on flat arrays, in place."""
    buffers = (ctypes.c_void_p * max(1, len(arrays)))(*[a.ctypes.data for a in arrays])
    numbers = (ctypes.c_int64 * max(1, len(ints)))(*ints)
    SIGNATURE(loaded.address(kernel.name))(buffers, numbers, begin, end)


def same(a: np.ndarray, b: np.ndarray) -> None:
    """Asserts equal bits; all NaNs count as one."""
    assert a.dtype == b.dtype and a.shape == b.shape, (a.dtype, b.dtype, a.shape, b.shape)
    if a.dtype.kind == "c":  # part by part, so that one that is NaN says nothing of the other
        parts = f"f{a.dtype.itemsize // 2}"
        a, b = (np.ascontiguousarray(x).reshape(-1).view(parts) for x in (a, b))
    bits = f"u{a.dtype.itemsize}"
    equal = a.view(bits) == b.view(bits)
    if a.dtype.kind not in "iub":  # bfloat16 is of kind V
        with np.errstate(invalid="ignore"):
            equal |= np.isnan(a.astype(np.float64)) & np.isnan(b.astype(np.float64))
    bad = np.flatnonzero(~equal)
    assert not bad.size, f"{bad.size} differ, first at {bad[0]}: {a[bad[0]]!r} and {b[bad[0]]!r}"
