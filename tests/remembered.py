"""What tests compute again in each run, kept beside compiled code: what the interpreter of kernels gives, and the LLVM IR of kernels.

Both are pure functions: the interpreter of the steps with their kernels, of the memory that they run on, of its sources, and of the
versions of Python, NumPy and ml_dtypes; the code generator of the kernel, the target, and its sources. The key of an answer holds
all of these, so whoever changes one of them has it computed anew. Errors are not kept. Nothing is looked up or kept once a test has
patched what the two may use (`conftest.py`), where programs of no test are kept, nor with COMPUTE_ANEW=1 in the environment.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import io
import os
import pickle
import platform
import sys
import zlib
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from types import ModuleType

import ml_dtypes
import numpy as np

import tengen
from tengen.base.config import config
from tengen.base.dtype import DType
from tengen.codegen import llvm
from tengen.codegen.targets import Target
from tengen.compiler import program_cache
from tengen.kernels.lowering import Lowering
from tengen.kernels.steps import Launch
from tengen.loops.form import form
from tengen.loops.lang import Expr
from tengen.loops.statements import External, Kernel
from tengen.loops.verify import verify
from tengen.runtime import cache
from tengen.runtime.environment import compiler, knobs

MOST_BYTES = 1 << 22  # of the memory of a run that is kept
_TESTS, _TENGEN = Path(__file__).parent, Path(tengen.__file__).parent
# What the two import: the floors `loops` and `base`, and `codegen` itself. The steps around interpreted kernels are run by tests.
LANGUAGE = (_TESTS / "remembered.py", *sorted(_TENGEN.glob("base/*.py")), *sorted(_TENGEN.glob("loops/*.py")))
INTERPRETER = (*LANGUAGE, _TENGEN / "kernels/steps.py", *(_TESTS / name for name in ("kernels/launching.py", "ops/mutations.py")))
GENERATOR = (*LANGUAGE, *sorted(_TENGEN.glob("codegen/**/*.py")))
ABOVE = ("ir", "kernels", "ops", "passes", "compiler", "tensor", "jit", "module")
patched = False  # what the two may use
_programs_are_kept = program_cache.in_use  # a test may patch that


class Unsaid(Exception):
    """What a result depends on has no text that says all of it."""


@functools.cache
def made_by(sources: tuple[Path, ...]) -> str:
    """Which interpreter or code generator this is: its sources, and the versions of what it computes with."""
    h = hashlib.blake2b(digest_size=16)
    for file in sources:
        data = file.read_bytes()
        h.update(f"{file.name} {len(data)}\n".encode() + data)
    return f"{h.hexdigest()} Python {platform.python_version()} NumPy {np.__version__} ml_dtypes {ml_dtypes.__version__}"


def asked() -> bool:
    """Whether whoever runs the tests lets them keep what they have computed, and sources can be read that are part of its key."""
    return config.cache and not os.environ.get("COMPUTE_ANEW") and _programs_are_kept()


def _in_use() -> bool:
    return asked() and not patched


def uses(patched: object) -> bool:
    """Whether the two may use what a test patches, which is told by the module that it is or that it comes from: they do not use the floors
    above `loops` and `codegen`, which decide the steps, the kernels and the targets, that is, what a key says."""
    named = patched if isinstance(patched, str) else getattr(patched, "__name__" if isinstance(patched, ModuleType) else "__module__", None)
    top, _, rest = str(named).partition(".")
    return top != "tengen" or rest.partition(".")[0] not in ABOVE or rest.startswith("kernels.steps")


def run(lo: Lowering, memory: Mapping[Hashable, np.ndarray], more: Hashable, compute: Callable[[], str | None]) -> str:
    """Runs the steps of a lowering on flat arrays, which it changes; or puts there what an earlier run has left in them.

    Args:
        more: what else decides the result. compute: runs the steps, and may return a word, which is kept too. It computes with nothing but
            the steps, the arrays in `memory`, and `more`.
    Returns: the word, "" for None.
    """
    key = _key(lo, memory, more)
    if key is None:
        return compute() or ""
    arrays = list(memory.values())
    if (found := cache.get(key, cache.FACTS)) is not None:
        return _put_back(found, arrays)
    before = [a.tobytes() for a in arrays]
    word = compute() or ""
    after = [b"" if a.tobytes() == b else a.tobytes() for a, b in zip(arrays, before)]
    head = "\n".join([word, *(str(len(a)) for a in after)])
    cache.put(key, head.encode() + b"\n\n" + b"".join(after), cache.FACTS)
    return word


def _put_back(kept: bytes, arrays: list[np.ndarray]) -> str:
    """Writes what an entry holds into those arrays that the run changed. Returns the run's word."""
    head, _, rest = kept.partition(b"\n\n")
    word, *sizes = head.decode().split("\n")
    at = 0
    for a, n in zip(arrays, map(int, sizes), strict=True):
        if n:
            a[...] = np.frombuffer(rest, a.dtype, a.size, at)
            at += n
    return word


def _key(lo: Lowering, memory: Mapping[Hashable, np.ndarray], more: Hashable) -> str | None:
    """The key of a run. None for one that is not kept: that is large, whose arrays overlap, or that no text says."""
    if not _in_use():
        return None
    arrays = list(memory.values())
    if sum(a.nbytes for a in arrays) > MOST_BYTES or not all(a.ndim == 1 and a.flags.c_contiguous for a in arrays):
        return None
    places = sorted((a.ctypes.data, a.nbytes) for a in arrays if a.nbytes)
    if any(start + n > following for (start, n), (following, _) in zip(places, places[1:])):
        return None
    try:
        said = _said((made_by(INTERPRETER), lo.steps, lo.ints, list(lo.temps.items()), list(memory), more))
    except Unsaid:
        return None
    h = hashlib.blake2b(said, digest_size=32)
    for a in arrays:
        h.update(f"\n{a.dtype.name} {a.size}\n".encode() + a.tobytes())
    return f"interpreted {h.hexdigest()}"


def keep_generated_code() -> None:
    """From now on the LLVM IR of each kernel of a program is looked up, or generated and kept."""
    generate = llvm.emit_kernel

    @functools.cache
    def known(target: Target, knobs: tuple) -> str:
        return f"generated {made_by(GENERATOR)} {target!r} {knobs} {compiler()}"

    @functools.wraps(generate)
    def emit_kernel(kernel: Kernel, target: Target) -> str:
        if not _in_use():
            return generate(kernel, target)
        try:
            said = _said((kernel.name, form(kernel)))
        except Unsaid:
            return generate(kernel, target)
        key = f"{known(target, knobs())} {hashlib.blake2b(said, digest_size=32).hexdigest()}"
        if (found := cache.get(key, cache.FACTS)) is not None:
            return zlib.decompress(found).decode()
        text = generate(kernel, target)
        cache.put(key, zlib.compress(text.encode(), 1), cache.FACTS)
        return text

    llvm.emit_kernel = emit_kernel


def _said(x: object) -> bytes:
    """All of a value: of steps, kernels and expressions their parts. Errors: Unsaid."""
    file = io.BytesIO()
    try:
        _Writer(file, 5).dump(x)
    except RecursionError:
        raise Unsaid from None
    return file.getvalue()


def _of(*parts: object) -> None:
    """Stands in what is written for a value that has parts."""


class _Writer(pickle.Pickler):
    """Writes plain values, and what has parts as its parts: each once, which a recursive function of C does quickly. Kernels are verified, as
    the interpreter does."""

    def persistent_id(self, x: object) -> str | None:
        """Pickle tells texts apart by identity, and equal texts of an expression are one object or several, by whether the process has read
        a program from the cache or made it: here they are one."""
        return sys.intern(x) if type(x) is str else None

    def reducer_override(self, x: object) -> tuple:
        kind = type(x)
        if kind is Expr:
            return _of, (x.op, x.args, x.dtype.name, x.lanes, x.attr)
        if kind is DType:
            return _of, (x.name,)
        if kind is type and x is not External:  # a kind of statement; what a function of C computes, nothing here says
            return _of, (x.__name__,)
        if kind is Kernel:
            verify(x)
            return _of, (form(x),)
        if dataclasses.is_dataclass(kind) and kind.__module__ == Launch.__module__:  # a step
            left_out = ("where", "node") if kind is Launch else ()
            values = [getattr(x, f.name) for f in dataclasses.fields(kind) if f.name not in left_out]
            return _of, (kind.__name__, *(sorted(map(repr, v)) if type(v) is frozenset else v for v in values))
        if x is _of:
            return NotImplemented
        raise Unsaid
