"""Two tiers of machine code for what this process compiles to run: quick code at once, good code in its place as soon as it is there.

Only where the knob `quick_compile` asks for it: a loop loses more than its first step gains (docs/architecture.md has figures).

In: a program's text (`load`). Out: its code in this process. Good code that the disk cache has is taken. Else the text is
compiled with little effort (`llvm.QUICK`), and runs; processes in the background (`workers.py`) compile it well, put that into
the cache, and `Loaded.replace` turns every call to it: of the program, of its kernels, and of the next piece of a kernel that runs.
A kernel's bits are the same in both tiers: LLVM may change no rounding at any level. Functions that can be replaced take pointers and
integers, never vectors, so both tiers call them alike. `Postponed` programs, which replace others
that run already, are compiled well in the background at once.

What quick code saves and costs, in seconds of processor time on one thread (AMD EPYC, family 26 model 2; ResNet-18, training,
batch 2): what LLVM takes for the first step, and a later step, the least of some. `misched` and `lsr`: without LLVM's machine scheduler,
loop strength reduction and hoisting of machine instructions.

| LLVM's code generation | compile, traced / eager | a later step, traced / eager |
| --- | --- | --- |
| level 2 and two passes (good code) | 6.2 / 4.6 | .16 / .25 |
| the same, no lsr | 3.8 / | .16 / |
| level 2, no passes, no misched, no lsr | 3.1 / 2.7 | .17 / .27 |
| level 1, no passes, no misched, no lsr | 2.8 / 2.4 | .16 / .25 |
| level 1, no passes, the same and the fast register allocator | 2.8 / 2.5 | .26 / .43 |
| level 1, no passes, FastISel | 4.7 / 3.1 | .16 / .26 |
| level 0, the two passes | 2.0 / 2.2 | .45 / .45 |
| level 0, no passes (quick code) | 1.4 / 1.3 | .32 / .45 |

Switches other than levels are the whole process's, so they would change the code of other users of llvmlite too. Of single
ops quick code takes 1 to 3.6 times as long (add and pow 1.0, conv2d 1.8 to 2.7, softmax 1.8, matmul 3.4, cumsum 3.6) and
compiles 3.2 to 9 times as fast. All kernels have quick code first and no work is counted: the loss is bounded by how long good code
takes, since a long run goes on with good code from its next piece on; on two cores, where workers and the program want the same
ones, that is seconds.
"""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tengen.base.config import config
from tengen.codegen.targets import Target
from tengen.runtime import cache, launch_log, llvm, workers
from tengen.runtime.compile import Loaded, compile_object, load_object
from tengen.runtime.object_loader import join, objects_of
from tengen.runtime.parallel_compile import split
from tengen.runtime.progress import progress
from tengen.runtime.provenance import CACHE, provenance
from tengen.runtime.shared_kernels import apart
from tengen.runtime.workers import Answer, Pool

PART = 1 << 16  # characters of a part of a large module that is compiled in the background
NICENESS = 5  # of workers in the background: a quarter of a processor that programs want as well
DELAY_S = 0.3  # before the first worker is started: a process that ends sooner starts none

background = Pool("background", NICENESS, DELAY_S, inherited=True)
progress.elsewhere = lambda: background.pending


@dataclass
class Statistics:
    """What this process has done, in modules.

    Attributes:
        quick: loaded as quick code. good: loaded as good code at once, from the cache or compiled. replaced: whose good code has
            come into the place of quick code. postponed: that were compiled in the background before they were loaded. failed: of
            which the background could make no good code.
    """

    quick: int = 0
    good: int = 0
    replaced: int = 0
    postponed: int = 0
    failed: int = 0


statistics = Statistics()


def quick_first(target: Target) -> bool:
    """Whether programs for a target have quick code at first: if the knob `quick_compile` says so, where code can be replaced
    and a worker can be started; not in a profile, which shows what good code takes."""
    able = target.architecture.linking is not None and workers.can_start()
    return config.quick_compile and able and launch_log.active is None


def load(text: str, target: Target, receive: Callable[[bytes], None]) -> tuple[Loaded, str]:
    """The code of a program in this process, and in words where it comes from: good code from the cache, else quick code that is
    replaced later.

    Args:
        text: LLVM IR without state: no data but constants. target: this machine. receive: takes good code that is postponed.

    Errors: Postponed where good code has to be made and this thread is `postponing`.
    """
    data, how = cache.found(text, target), "from the cache"
    if data is None and getattr(_here, "postpones", False):
        raise Postponed(text, target, receive)
    if data is None and quick_first(target):
        quick = load_object(cache.compiled(text, target, llvm.QUICK), target, replaceable=True)
        if quick.replaceable:
            statistics.quick += 1
            compile_in_background(text, target, lambda data: _replace(quick, data, text, target))
            return quick, "with quick code"
    if data is None:
        data, how = cache.compiled(text, target), "compiled"
    else:
        provenance.found(CACHE)
    statistics.good += 1
    return load_object(data, target), how


def _replace(quick: Loaded, data: bytes, text: str, target: Target) -> None:
    quick.replace(load_object(data, target))
    statistics.replaced += 1
    for module in (text, *apart(text)[1]):
        cache.discard(module, target, llvm.QUICK)


# ---- programs that are wanted when their code is there


class Postponed(Exception):
    """Raised in a block of `postponing` where code that nobody has compiled is wanted. receive: takes the object file."""

    def __init__(self, text: str, target: Target, receive: Callable[[bytes], None]):
        super().__init__("a program is to be compiled in the background")
        self.text, self.target, self.receive = text, target, receive


_here = threading.local()


@contextlib.contextmanager
def postponing(on: bool = True) -> Iterator[None]:
    """In the block, this thread wants code only where it has been compiled (off: as always, for what runs while something is made)."""
    before = getattr(_here, "postpones", False)
    _here.postpones = on
    try:
        yield
    finally:
        _here.postpones = before


def when_compiled(make: Callable[[], None], target: Target) -> None:
    """Calls `make`, which loads programs: now if their code is there, or if the knob `quick_compile` is off; else in another
    thread, each time that code it wanted has been compiled, until it wants no more."""
    if not quick_first(target):
        make()
        return
    try:
        with postponing():
            make()
    except Postponed as p:
        wanted = p

        def go_on(data: bytes) -> None:
            statistics.postponed += 1
            wanted.receive(data)
            when_compiled(make, target)

        compile_in_background(wanted.text, target, go_on)


# ---- good code


class _Parts:
    """A module that is compiled in the background in parts, and kernels that other modules may have too (`shared_kernels.py`). Each is
    in the cache as soon as it is there, so that a process which ends too early leaves less to the next."""

    def __init__(self, text: str, target: Target, then: Callable[[bytes], None]):
        self.text, self.target, self.then = text, target, then
        rest, self.shared = apart(text)
        n = min(workers.MOST, len(rest) // PART)
        self.parts = [*(split(rest, n) if n > 1 else [rest]), *self.shared]
        self.objects: list[bytes | None] = [None] * len(self.parts)
        self.failed = False

    def begin(self) -> None:
        for i, part in enumerate(self.parts):
            then, find = lambda answer, i=i: self.receive(i, answer), lambda i=i: self.find(i)
            background.submit(part, self.target, llvm.GOOD, then, find)

    def find(self, i: int) -> bytes | None:
        """A part that a process, this one or another, has made: alone, or in the whole."""
        data = cache.found(self.parts[i], self.target)
        if data is None and len(self.parts) > 1 and (whole := cache.found(self.text, self.target)) is not None:
            objects = objects_of(whole)
            data = objects[i] if len(objects) == len(self.parts) else None
        return data

    def receive(self, i: int, answer: Answer) -> None:
        part, data = self.parts[i], answer.data
        if data is None and answer.alone and not self.failed:
            data = compile_object(part, self.target, count=i == 0)
        if data is None:
            if not self.failed:
                self.failed = True
                statistics.failed += 1
                _warn(answer.why)
            return
        if answer.data is not None and len(self.parts) > 1:
            cache.put_object(part, self.target, llvm.GOOD, data)
        self.put(i, data)

    def put(self, i: int, data: bytes) -> None:
        self.objects[i] = data
        found = [d for d in self.objects if d is not None]
        if len(found) < len(self.parts):
            return
        whole = found[0] if len(found) == 1 else join([one for data in found for one in objects_of(data)])
        cache.put_object(self.text, self.target, llvm.GOOD, whole)
        if len(self.parts) > 1:
            for part in self.parts[: len(self.parts) - len(self.shared)]:
                cache.discard(part, self.target, llvm.GOOD)
        self.then(whole)


def compile_in_background(text: str, target: Target, then: Callable[[bytes], None]) -> None:
    """Has a module compiled well and put into the cache; `then` gets its object file, in another thread."""
    _Parts(text, target, then).begin()


def _warn(why: str) -> None:
    with contextlib.suppress(RuntimeWarning):  # where warnings are errors: a thread has nobody to raise it to
        warnings.warn(
            f"a program keeps the code it has, since better code could not be compiled in the background: {why}; its results are "
            "right; help: set TENGEN_QUICK_COMPILE=0",
            RuntimeWarning, stacklevel=2,
        )  # fmt: skip


def wait_for_compilation(timeout: float | None = None) -> bool:
    """Waits until every program of this process has good code.

    With the knob `quick_compile`, a program that is met for the first time runs at once with code that LLVM made with little effort,
    while other processes compile it well. Nothing but speed depends on it. Benchmarks call this after their warm-up, and
    then warm up once more, since sizes that have run for long get programs of their own.

    Args:
        timeout: seconds to wait at most; default: as long as it takes.

    Returns: whether nothing is left to be compiled.

    >>> import tengen
    >>> x = tengen.Tensor([1.0, 2.0])
    >>> (x + x).tolist()
    [2.0, 4.0]
    >>> tengen.jit.wait_for_compilation()
    True
    """
    return background.wait(timeout)

