"""Two tiers of machine code for what this process compiles to run: quick code at once, good code in its place when it is there.

In: a program's text (`load`). Out: its code in this process. Good code that the disk cache has is taken. Else the text is
compiled with little effort (`llvm.QUICK`), and runs; processes in the background (`workers.py`) compile it well, put that into
the cache, and `Loaded.replace` turns every call to it: of the program, of its kernels, and of the next piece of a kernel that
runs. A kernel's bits are the same in both tiers: LLVM may change no rounding at any level. Functions that can be replaced take
pointers and integers, never vectors, so both tiers call them alike. `Postponed` programs, which replace others that run
already, are compiled well in the background at once.

What that costs a program that runs on is bounded. Its calls are timed until good code is there. The first one never waits. When
all together have taken `SHARE` of what LLVM needs for the rest of the good code (by characters, `S_PER_CHARACTER`), the next
call waits, and compiles meanwhile what no worker has begun with: every processor compiles, and none runs slow code. So the N-th
call is done at most (Q + SHARE * G) / P, and what a call of quick code loses, later than if all had been compiled well at once,
for every N: Q and G are the processor time that LLVM takes for quick and for good code, P is the number of processors. Where
programs are many and small, as in eager code, it is done earlier for every N, since one process compiles them one after the
other, and the workers beside it. What is smaller than `SMALL` is compiled well at once: that takes no longer than to do it
twice. A traced program that updates states is a step of a loop, so its kernels are compiled well at once, but for those that
do little (`module_parts.little_work`): of an EfficientNet-B0's step these take a third of LLVM's time, and a twenty-fifth of a
run's. A process that ends before good code is there leaves the text behind (`_leave_texts`), and what was made of it: the next
one lowers and emits nothing either, and has good code if another process could make it meanwhile (`finishing.py`).

With the knob `quick_compile` at "only", quick code is all there is: for a process that compiles much and runs each program a few
times, such as a suite of tests. It is kept in the cache apart from good code, under keys of its own.

Seconds of LLVM's processor time on one thread (AMD EPYC, family 25 model 17, AVX-512, a busy machine; every fourth kernel of
the traced training steps of `benchmarks/first.py`, scaled to the whole text):

| program | characters | quick code | good code | good code, no lsr |
| --- | --- | --- | --- | --- |
| LeNet | 1.5 million | .5 | 1.4 | |
| GPT of two layers | 2.4 | .5 | 2.1 | |
| ResNet-18 | 4.5 | 1.1 | 4.2 | 2.9 |
| MobileNetV2 | 8.8 | 1.7 | 7.4 | |

"lsr" is LLVM's loop strength reduction, with the analysis that it asks for: a third of the time for good code; the selection of
instructions is a quarter, the two passes an eighth, all others are below a twentieth each. Without lsr (`-disable-lsr`, which
can be turned between modules of one process) kernels are slower, one thread, sums of the least times of each kernel:
MobileNetV2's training step 4 %, EfficientNet-B0's 4 %, ResNet-18's 1.5 % (gradients of filters 1 to 8 %, those of depthwise
ones 9 to 16 %, elementwise ones 3 to 6 %). So it stays on. No other switch saves more than noise hides (5 %): the machine
scheduler, the one after register allocation, `-regalloc=basic`, CodeGenPrepare, hoisting of constants, placement of blocks,
sinking, common subexpressions, the pre-RA schedulers, limits of lsr.
"""

from __future__ import annotations

import atexit
import contextlib
import threading
import time
import warnings
from collections.abc import Callable, Collection, Iterator
from typing import Any

from tengen.base.config import config
from tengen.base.record import record
from tengen.codegen.targets import Target
from tengen.runtime import cache, launch_log, llvm, workers
from tengen.runtime.compile import Loaded, load_object
from tengen.runtime.module_parts import apart, little_work
from tengen.runtime.parallel_compile import Build, background
from tengen.runtime.progress import progress
from tengen.runtime.provenance import CACHE, provenance
from tengen.runtime.workers import After

SMALL = 1 << 13  # characters of a program that is compiled well at once: LLVM takes 10 ms
S_PER_CHARACTER = 1e-6  # of LLVM's processor time for good code
SHARE = 0.125  # of the time that the rest of its good code takes: so long a program may run quick code
QUICK_TIME = 4.0  # times what good code takes: LeNet's step 4.3, EfficientNet-B0's 3.0, ResNet-18's 2.0

progress.elsewhere = lambda: background.pending


@record
class Statistics:
    """What this process has done, in modules.

    Attributes:
        quick: loaded as quick code. good: loaded as good code at once, from the cache or compiled. replaced: whose good code has
            come into the place of quick code. waited: calls that waited for it. postponed: that were compiled in the background
            before they were loaded. failed: of which the background could make no good code.
    """

    quick: int = 0
    good: int = 0
    replaced: int = 0
    waited: int = 0
    postponed: int = 0
    failed: int = 0


statistics = Statistics()


def quick_first(target: Target) -> bool:
    """Whether programs for a target have quick code at first: if the knob `quick_compile` says so, where code can be replaced
    and a worker can be started; not in a profile, which shows what good code takes."""
    wanted = config.quick_compile and config.quick_compile != "only"
    return wanted and target.architecture.linking is not None and workers.can_start() and launch_log.active is None


def kept_level(target: Target) -> int:
    """The effort of LLVM with which code is made that is kept: `llvm.GOOD`, unless the knob says "only" and the target has quick code."""
    return llvm.QUICK if config.quick_compile == "only" and target.architecture.linking is not None else llvm.GOOD


def load(text: str, target: Target, receive: Callable[[bytes], None], again: bool = False) -> tuple[Loaded, str]:
    """The code of a program in this process, and in words where it comes from: from the cache, else quick code that is replaced later,
    else made now at the level that is kept.

    Args:
        text: LLVM IR without state: no data but constants. target: this machine. receive: takes good code that is postponed.
        again: whether it will surely run again and again, so that quick code would cost more than it saves.

    Errors: Postponed where good code has to be made and this thread is `postponing`.
    """
    level = kept_level(target)
    data, how = cache.found(text, target, level), "from the cache"
    if data is None and getattr(_here, "postpones", False):
        raise Postponed(text, target, receive)
    if data is None and len(text) >= SMALL and quick_first(target):
        quick = _partly_quick(text, target) if again else _quick(text, target)
        if quick is not None:
            statistics.quick += 1
            return quick, "with quick code"
    if data is None:
        data, how = cache.compiled(text, target, level), "compiled"
    else:
        provenance.found(CACHE)
    if level == llvm.GOOD:
        statistics.good += 1
    else:
        statistics.quick += 1
    return load_object(data, target), how


def _quick(text: str, target: Target) -> Loaded | None:
    """Quick code, and good code on its way into its place; None where code cannot be replaced."""
    quick = load_object(cache.compiled(text, target, llvm.QUICK), target, replaceable=True)
    if not quick.replaceable:
        return None
    Upgrade(text, target).serve(quick)
    return quick


def _partly_quick(text: str, target: Target) -> Loaded | None:
    """Code of a step of a loop, with quick code for kernels that do little, and good code on its way into its place; None where there are no
    such kernels, or code cannot be replaced."""
    little, share = little_work(text)
    if not little:
        return None
    upgrade = Upgrade(text, target, little, QUICK_TIME * share / (1 + (QUICK_TIME - 1) * share))
    start = time.perf_counter()
    with progress.compiling(text) as part_done:
        quick = load_object(upgrade.build.beginning(part_done), target, replaceable=True)
    provenance.compiled(time.perf_counter() - start, "compiled")
    upgrade.serve(quick)
    return quick if quick.replaceable else None


# ---- programs that are wanted when their code is there


class Postponed(Exception):
    """Raised in a block of `postponing` where code that nobody has compiled is wanted. receive: takes the object file."""

    def __init__(self, text: str, target: Target, receive: Callable[[bytes], None]):
        super().__init__("a program is to be compiled in the background")
        self.text, self.target, self.receive = text, target, receive


_here = threading.local()


@contextlib.contextmanager
def postponing(on: bool = True) -> Iterator[None]:
    """In the block, this thread wants code only where it has been compiled (off: as always, for what runs while one is made)."""
    before = getattr(_here, "postpones", False)
    _here.postpones = on
    try:
        yield
    finally:
        _here.postpones = before


def when_compiled(make: Callable[[], None], target: Target) -> None:
    """Calls `make`, which loads programs: now if their code is there, or if the knob `quick_compile` is off or "only"; else in another
    thread, each time that code it wanted has been compiled, until it wants no more."""
    if not quick_first(target):
        make()
        return
    try:
        with postponing():
            make()
    except Postponed as p:
        wanted = p

        def received(data: bytes) -> After:
            statistics.postponed += 1
            wanted.receive(data)
            return lambda: when_compiled(make, target)

        compile_in_background(wanted.text, target, received)


def from_background(make: Callable[[], None], target: Target) -> None:
    """Calls `make` as `when_compiled` does, but in another thread from the beginning: what it does before it wants code takes long. If the knob
    `quick_compile` is off or "only", it is called now."""
    if not quick_first(target):
        make()
        return
    background.submit(workers.Job("", target, llvm.GOOD, lambda answer: lambda: when_compiled(make, target), lambda: b""))


# ---- good code


class Upgrade:
    """What brings good code into the place of a program's quick code, and bounds what is lost until it is there.

    Args:
        little: the kernels that have quick code; default: all. weight: of the time of a call, so much is spent in quick code.

    Attributes:
        build: the good code in the making. done: whether nothing is to be waited for: good code is there, or cannot be made.
        spent: seconds of calls in quick code. weight: as above.
    """

    def __init__(self, text: str, target: Target, little: Collection[str] = (), weight: float = 1.0):
        self._text, self._target, self.weight = text, target, weight
        self.done, self.spent = False, 0.0
        self._then: list[Callable[[], None]] = []
        self._turn = [True]  # taken by whoever finds both there, by one operation: a lock might be held while another thread forks
        self._quick: Loaded | None = None
        self._whole: bytes | None = None
        _upgrades.add(self)
        self.build = Build(text, target, llvm.GOOD, cache, self._received, self._failed, begun=True, little=little)

    def serve(self, quick: Loaded) -> None:
        """From now on, good code comes into the place of this."""
        quick.upgrade = self
        self._quick = quick
        self._meet()

    def before_call(self) -> None:
        """Waits for good code if calls of quick code have taken so long that this is worth it."""
        share = SHARE * S_PER_CHARACTER * self.build.left / config.threads
        if self.spent <= share or workers.serving():
            return
        statistics.waited += 1
        with progress.compiling(self._text) as part_done:
            self.build.finish(part_done)
        self.done = True

    def when_done(self, then: Callable[[], None]) -> None:
        """Calls `then` when nothing is to be waited for any more."""
        self._then.append(then)
        if self.done:
            self._end()

    def leave_text(self) -> None:
        """For a later process: the program's text, until there is good code."""
        import zlib

        if config.cache:
            name = cache.text_name(cache.object_name(self._text, self._target))
            cache.put_named(name, zlib.compress(self._text.encode(), 1))

    def _received(self, data: bytes) -> None:
        self._whole = data
        self._meet()

    def _meet(self) -> None:
        """Replaces quick code by good code, when both are there: whichever comes last."""
        quick, whole = self._quick, self._whole
        if quick is None or whole is None:
            return
        try:
            self._turn.pop()
        except IndexError:
            return
        self._whole = None
        self._replace(quick, whole)

    def _replace(self, quick: Loaded, data: bytes) -> None:
        quick.replace(load_object(data, self._target))
        statistics.replaced += 1
        forget(self._text, self._target)
        self._end()

    def _failed(self, why: str) -> None:
        if self._quick is None:  # nothing runs yet: who makes the code to begin with makes this part, too
            return
        if not self.done:
            statistics.failed += 1
            _warn(why)
        self._end()

    def _end(self) -> None:
        self.done = True
        _upgrades.discard(self)
        while self._then:
            self._then.pop()()


class Timed:
    """A call of a program that has quick code.

    Attributes:
        call: the call alone. upgrade: of the program.
    """

    __slots__ = ("call", "upgrade")

    def __init__(self, call: Callable, upgrade: Upgrade):
        self.call, self.upgrade = call, upgrade

    def __call__(self, *buffers: Any) -> Any:
        upgrade = self.upgrade
        if upgrade.done:
            return self.call(*buffers)
        upgrade.before_call()
        start = time.perf_counter()
        try:
            return self.call(*buffers)
        finally:
            upgrade.spent += upgrade.weight * (time.perf_counter() - start)


def timed(call: Callable, code: Loaded) -> Callable:
    """A call of a program's code; as long as that is quick code, its calls are timed and may wait."""
    upgrade = code.upgrade
    return call if upgrade is None or upgrade.done else Timed(call, upgrade)


def bare(call: Callable) -> Callable:
    """The call without a clock, where that is no longer needed."""
    return call.call if type(call) is Timed and call.upgrade.done else call


def when_bare(call: Callable, then: Callable[[Callable], None]) -> None:
    """Calls `then` with the call without a clock, when that is no longer needed; never for one without."""
    if type(call) is Timed:
        call.upgrade.when_done(lambda: then(call.call))


_upgrades: set[Upgrade] = set()  # that are not done


def text_of(object_name: str) -> str:
    """The text of a program whose good code is to have this name in the cache, which a process has left; "" if none has."""
    import zlib

    data = cache.get_named(cache.text_name(object_name)) if object_name else None
    return "" if data is None else zlib.decompress(data).decode()


def forget(text: str, target: Target) -> None:
    """Removes what stood for a program's good code in the cache until that was there: quick code, and the text."""
    for module in (text, *apart(text)[1]):
        cache.discard(module, target, llvm.QUICK)
    cache.discard_named(cache.text_name(cache.object_name(text, target)))


@record(frozen=True)
class Outstanding:
    """Programs that will be made later. make: makes them now. leave: leaves a later process what it needs to make them; returns about how
    many characters it will compile."""

    make: Callable[[], None]
    leave: Callable[[], int]


outstanding: list[Outstanding] = []  # of floors above


def _leave_texts() -> None:
    characters, left = sum(programs.leave() for programs in outstanding), list(_upgrades)
    if characters or left:
        from tengen.runtime import finishing

        for upgrade in left:
            upgrade.leave_text()
        finishing.start(characters + sum(upgrade.build.left for upgrade in left))


atexit.register(_leave_texts)


def compile_in_background(text: str, target: Target, then: Callable[[bytes], After]) -> None:
    """Has a module compiled well and put into the cache; `then` gets its object file, in another thread."""

    def failed(why: str) -> None:
        statistics.failed += 1
        _warn(why)

    Build(text, target, llvm.GOOD, cache, then, failed, begun=True)


def _warn(why: str) -> None:
    with contextlib.suppress(RuntimeWarning):  # where warnings are errors: a thread has nobody to raise it to
        warnings.warn(
            f"a program keeps the code it has, since better code could not be compiled in the background: {why}; its results are "
            "right; help: set TENGEN_QUICK_COMPILE=0",
            RuntimeWarning, stacklevel=2,
        )  # fmt: skip


def wait_for_compilation(timeout: float | None = None) -> bool:
    """Waits until every program of this process has good code.

    Unless the knob `quick_compile` is off, a program that is met for the first time runs at once with code that LLVM made with little
    effort, while other processes compile it well. Nothing but speed depends on it. Benchmarks call this after their warm-up, and
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
    for programs in outstanding:
        programs.make()
    return background.wait(timeout)

