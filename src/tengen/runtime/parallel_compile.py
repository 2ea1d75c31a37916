"""A module's object file in the making, in parts: LLVM takes most of a cold start, and llvmlite uses one thread of a process.

In: a module's text, a target, a level, and a store of object files. Out: the object files of the parts in one entry of bytes, which
`compile.load_object` takes like a single one. Parts that the store has are taken from it. The others are done by workers
(`workers.py`), and by whoever waits for the whole, one after the other, so that no processor is idle and no worker is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Protocol

from tengen.base.config import config
from tengen.base.errors import CompileError
from tengen.codegen.targets import Target
from tengen.runtime import llvm, workers
from tengen.runtime.compile import compile_object
from tengen.runtime.module_parts import apart, level_of, split
from tengen.runtime.object_loader import join, objects_of
from tengen.runtime.workers import After, Answer, Job, Pool, follow

# Characters. LLVM takes about 1 s for a million of them, .25 s for quick code; a worker's start takes .15 s of another processor.
PART = {llvm.QUICK: 1 << 18, llvm.GOOD: 1 << 16}  # of a part, which one process compiles at a time
LARGE = {llvm.QUICK: 1 << 19, llvm.GOOD: 1 << 18}  # of a module for which workers are started
SOME = {llvm.QUICK: 1 << 18, llvm.GOOD: 1 << 17}  # of one for which workers are asked that are there
NICENESS = 5  # of workers: a program has most of a processor that it wants as well
DELAY_S = 0.3  # that little work waits before a worker is started: a process that ends sooner starts none

background = Pool("compile", NICENESS, DELAY_S, inherited=True)


class Store(Protocol):
    """Where object files are kept: `cache.py`."""

    def object_name(self, ir_text: str, target: Target, level: int = ...) -> str: ...
    def get_named(self, name: str) -> bytes | None: ...
    def put_object(self, ir_text: str, target: Target, level: int, data: bytes) -> None: ...
    def discard(self, ir_text: str, target: Target, level: int) -> None: ...


class Build:
    """The object file of a module, in the making.

    Args:
        text, target, level: as for `compile_object`. store: keeps the whole, and kernels that other modules may have.
        then: is called with the whole, once, by the thread that makes its last part, as `Job.then` is.
        failed: is called with a reason where a worker could not make a part. Who waits makes it; if nobody does, it is never there.
        begun: whether workers begin at once; else they help where a module is so large that it is worth it.
        little: kernels that do little (`module_parts.little_work`), for `beginning`.

    Attributes:
        parts: the modules; `run` is in the first. Those that workers make are in the store as soon as they are there, so a
            process that ends too early leaves less to the next. little: the modules of them that `little` is in, where it has some of its
            own. left: characters of those that are not made.
    """

    def __init__(
        self, text: str, target: Target, level: int, store: Store,
        then: Callable[[bytes], After] = lambda data: None, failed: Callable[[str], None] = lambda why: None, begun: bool = False,
        little: Collection[str] = (),
    ):  # fmt: skip
        self.text, self.target, self.level, self._store, self._then, self._failed = text, target, level, store, then, failed
        rest, self.shared = apart(text) if level in PART else (text, [])
        self._by_workers = begun or _worth_helpers(len(rest), level)
        first, last = split(rest, len(rest) // PART[level] if self._by_workers else 1, level, little)
        self.parts = [*first, *last, *self.shared]
        self.little = range(len(first), len(first) + len(last))
        self.left = sum(map(len, self.parts))
        self._levels = [level_of(part, level) if len(self.parts) > 1 else level for part in self.parts]
        self._objects: list[bytes | None] = [None] * len(self.parts)
        self._name = store.object_name(text, target, level)
        self._jobs: dict[Job, int] = {}
        self._last = [True]  # taken by who makes the last part
        self._watcher: Callable[[str], None] = lambda part: None
        if self._by_workers:
            self._submit()

    def _submit(self) -> None:
        for i in sorted(range(len(self.parts)), key=lambda i: i in self.little):
            then, find = lambda answer, i=i: self._receive(i, answer), lambda i=i: self._find(i)
            self._jobs[Job(self.parts[i], self.target, self._levels[i], then, find)] = i
        background.submit(*self._jobs)

    def finish(self, watcher: Callable[[str], None] = lambda part: None) -> bytes:
        """The object file. Parts that no worker has begun with are made here. watcher: is called with the text of each part that is
        there, by the thread that made it.

        Errors: CompileError for text that LLVM does not accept.
        """
        self._finish(range(len(self.parts)), watcher)
        return self._joined(self._objects)

    def beginning(self, watcher: Callable[[str], None] = lambda part: None) -> bytes:
        """An object file to begin with, before the whole is there: kernels that do little have quick code. Errors: as those of `finish`."""
        quick = lambda i: compile_object(self.parts[i], self.target, llvm.QUICK, count=False)
        objects = {i: self._objects[i] or self._find(i) or quick(i) for i in self.little}
        self._finish([i for i in range(len(self.parts)) if i not in self.little], watcher)
        return self._joined(data or objects[i] for i, data in enumerate(self._objects))

    def _finish(self, wanted: Collection[int], watcher: Callable[[str], None]) -> None:
        self._watcher = watcher
        jobs = {job: i for job, i in self._jobs.items() if i in wanted}
        background.prefer(jobs)
        for i in wanted:
            if self._objects[i] is not None:
                watcher(self.parts[i])
        while (job := background.claim(jobs)) is not None:
            with background.released(job):
                self._make(jobs[job])
        for i in wanted:  # what no job stands for, and what workers could not do
            self._make(i)

    def _make(self, i: int) -> None:
        if self._objects[i] is None:
            data = self._find(i)
            follow(self._put(i, data or self._compiled(i), made=data is None))

    def _compiled(self, i: int) -> bytes:
        return compile_object(self.parts[i], self.target, self._levels[i], count=i == 0 or self._is_shared(i))

    def _is_shared(self, i: int) -> bool:
        return i >= len(self.parts) - len(self.shared)

    def _find(self, i: int) -> bytes | None:
        """A part that a process, this one or another, has made: alone, well, or in the whole."""
        if len(self.parts) == 1:
            return self._store.get_named(self._name)
        levels = (llvm.GOOD, self.level) if self._is_shared(i) else (self._levels[i],)
        for level in dict.fromkeys(levels):
            if (data := self._store.get_named(self._store.object_name(self.parts[i], self.target, level))) is not None:
                return data
        whole = self._store.get_named(self._name)
        objects = [] if whole is None else objects_of(whole)
        return objects[i] if len(objects) == len(self.parts) else None

    def _receive(self, i: int, answer: Answer) -> After:
        """In a thread of the pool."""
        data, why = answer.data, answer.why
        if self._objects[i] is not None:  # a forked child does the parent's jobs again
            return None
        if data is None and answer.alone:
            try:
                data = self._compiled(i)
            except CompileError as e:  # who waits is told
                why = str(e)
        if data is None:
            self._failed(why)
            return None
        return self._put(i, data, made=True)

    def _put(self, i: int, data: bytes, made: bool) -> After:
        if made and len(self.parts) > 1 and (self._by_workers or self._is_shared(i)):
            self._store.put_object(self.parts[i], self.target, self._levels[i], data)
        self._objects[i] = data
        self.left -= len(self.parts[i])
        self._watcher(self.parts[i])
        if None in self._objects:
            return None
        try:
            self._last.pop()
        except IndexError:  # another thread has
            return None
        whole = self._joined(self._objects)
        self._store.put_object(self.text, self.target, self.level, whole)
        if len(self.parts) > 1 and self._by_workers:
            for i in range(len(self.parts) - len(self.shared)):
                self._store.discard(self.parts[i], self.target, self._levels[i])
        return self._then(whole)

    @staticmethod
    def _joined(objects: Iterable[bytes | None]) -> bytes:
        every = [one for data in objects if data is not None for one in objects_of(data)]
        return every[0] if len(every) == 1 else join(every)


def _worth_helpers(characters: int, level: int) -> bool:
    """Whether workers should help with a module: not a thread of the pool, which would wait for its own kind."""
    least = SOME if background.pids() else LARGE
    able = config.threads > 1 and workers.can_start() and not workers.serving()
    return able and level in PART and characters >= least[level]
