"""What the interpreter of kernels has computed, kept beside compiled code: a run of the same steps on the same memory is looked up.

The interpreter is a pure function of the steps with their kernels, of the memory that they run on, of its own sources, and of the versions
of Python, NumPy and ml_dtypes. The key of an answer holds all of these, so whoever changes one of them has it computed anew.
Errors are not kept. Nothing is looked up or kept where programs are not either (`conftest.py`: in a test that patches something),
where there is no cache, nor with INTERPRET_ANEW=1 in the environment.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
import platform
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path

import ml_dtypes
import numpy as np

import tengen
from tengen.base.config import config
from tengen.base.dtype import DType
from tengen.compiler import program_cache
from tengen.kernels.lowering import Lowering
from tengen.kernels.steps import Launch
from tengen.loops.form import form
from tengen.loops.lang import Expr
from tengen.loops.statements import External, Kernel
from tengen.loops.verify import verify
from tengen.runtime import cache

MOST_BYTES = 1 << 22  # of the memory of a run that is kept
_TESTS, _TENGEN = Path(__file__).parent, Path(tengen.__file__).parent
# The interpreter imports from the floors `loops` and `base` alone; the steps around its kernels are run by tests.
SOURCES = (
    *sorted(_TENGEN.glob("base/*.py")), *sorted(_TENGEN.glob("loops/*.py")), _TENGEN / "kernels/steps.py",
    *(_TESTS / name for name in ("remembered.py", "kernels/launching.py", "ops/mutations.py")),
)  # fmt: skip


class Unsaid(Exception):
    """What a run depends on has no text that says all of it."""


@functools.cache
def interpreter(sources: tuple[Path, ...] = SOURCES) -> str:
    """Which interpreter this is: its sources, and the versions of what it computes with."""
    h = hashlib.blake2b(digest_size=16)
    for file in sources:
        data = file.read_bytes()
        h.update(f"{file.name} {len(data)}\n".encode() + data)
    return f"{h.hexdigest()} Python {platform.python_version()} NumPy {np.__version__} ml_dtypes {ml_dtypes.__version__}"


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
    if os.environ.get("INTERPRET_ANEW") or not config.cache or not program_cache.in_use():
        return None
    arrays = list(memory.values())
    if sum(a.nbytes for a in arrays) > MOST_BYTES or not all(a.ndim == 1 and a.flags.c_contiguous for a in arrays):
        return None
    places = sorted((a.ctypes.data, a.nbytes) for a in arrays if a.nbytes)
    if any(start + n > following for (start, n), (following, _) in zip(places, places[1:])):
        return None
    try:
        facts = _Facts()
        said = facts.of((lo.steps, lo.ints, list(lo.temps.items()), list(memory), more))
    except Unsaid:
        return None
    h = hashlib.blake2b(repr((interpreter(), facts.expressions, said)).encode(), digest_size=32)
    for a in arrays:
        h.update(f"\n{a.dtype.name} {a.size}\n".encode() + a.tobytes())
    return f"interpreted {h.hexdigest()}"


class _Facts:
    """Steps, kernels and expressions as plain values, whose `repr` says all of them. Kernels are verified, as the interpreter does.

    Attributes:
        expressions: each once, its operands by their numbers.
    """

    def __init__(self) -> None:
        self.expressions: list[tuple] = []
        self._numbers: dict[Expr, int] = {}
        self._kernels: dict[int, object] = {}  # by `id`

    def of(self, x: object) -> object:
        kind = type(x)
        if kind is Expr:
            return "e", self._number(x)
        if kind in (tuple, list):
            return [self.of(y) for y in x]
        if kind is frozenset:
            return sorted(repr(self.of(y)) for y in x)
        if kind is Kernel:
            return self._kernel(x)
        if kind is type and x is not External:  # a kind of statement; what a function of C computes, nothing here says
            return x.__name__
        if dataclasses.is_dataclass(kind):  # a step
            left_out = ("where", "node") if kind is Launch else ()
            return kind.__name__, [self.of(getattr(x, f.name)) for f in dataclasses.fields(x) if f.name not in left_out]
        if x is None or kind in (int, str, bool):
            return x
        if kind is DType:
            return x.name
        raise Unsaid

    def _kernel(self, k: Kernel) -> object:
        if id(k) not in self._kernels:
            verify(k)
            self._kernels[id(k)] = self.of(form(k))
        return self._kernels[id(k)]

    def _number(self, e: Expr) -> int:
        stack, numbers = [e], self._numbers
        while stack:
            x = stack[-1]
            missing = [a for a in x.args if a not in numbers]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            if x not in numbers:
                attr = x.attr.name if type(x.attr) is DType else x.attr
                if attr is not None and type(attr) not in (int, float, bool, str):
                    raise Unsaid
                numbers[x] = len(numbers)
                self.expressions.append((x.op, x.dtype.name, x.lanes, attr, [numbers[a] for a in x.args]))
        return numbers[e]
