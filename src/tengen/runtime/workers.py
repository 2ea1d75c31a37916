"""Processes that compile modules of LLVM IR beside this one: llvmlite works under one lock in each process, so threads cannot.

In: a module's text, a target and a level (`Pool.submit`). Out: a call with the module's object file, in a thread of the pool.

A worker knows nothing of Tengen but `llvm.py`, lives while there is work, and ends after `IDLE_S` without, or when this process
ends in whatever way, since its pipe then does. Where one dies or hangs, the module goes to one more; where none can be started (an
embedded interpreter, a limit of processes), the answer says so and the caller compiles. A forked child has workers of its own.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from typing import Any

from tengen.base.config import config
from tengen.base.record import record
from tengen.codegen.targets import Target
from tengen.runtime import llvm

MOST = 8  # workers of a pool
IDLE_S = 5.0  # without work, after which a worker ends
PATIENCE_S = 300.0  # that an answer is waited for: many times what any network's module takes
MUCH = 1 << 16  # characters of waiting modules, .07 s of LLVM's work, for which a worker is started at once
TRIES = 2  # workers that are given a module before it is given up
_CHUNK = 1 << 20  # bytes that are read at once


class Refused(Exception):
    """LLVM does not accept a module; its words."""


class Worker:
    """A process that compiles one module at a time.

    Args:
        niceness: by how much others go before it.
    Errors: OSError where no process can be started.
    """

    def __init__(self, niceness: int):
        import subprocess  # here, because a process that compiles nothing needs none of this

        import llvmlite

        folder = os.path.dirname(os.path.dirname(llvmlite.__file__))
        command = [sys.executable, "-E", "-S", llvm.__file__, folder, str(niceness)]
        # a group of its own: Ctrl-C on a terminal is for the parent, which closes the pipe when it ends
        self._process = subprocess.Popen(
            command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, process_group=0
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._to, self._from = self._process.stdin, self._process.stdout
        self.pid = self._process.pid
        for pipe in (self._to, self._from):
            os.set_blocking(pipe.fileno(), False)

    def compile(self, text: str, target: Target, level: int) -> bytes:
        """The object file of a module.

        Errors: Refused; OSError where the process has died, or gives no answer in PATIENCE_S.
        """
        until = time.monotonic() + PATIENCE_S
        self._send(llvm.request(text, target.triple, target.cpu, target.features, level), until)
        good, size = llvm.HEAD.unpack(self._receive(llvm.HEAD.size, until))
        data = self._receive(size, until)
        if not good:
            raise Refused(data.decode(errors="replace"))
        return data

    def _send(self, data: bytes, until: float) -> None:
        left = memoryview(data)
        while left:
            _wait(self._to.fileno(), "POLLOUT", until)
            with contextlib.suppress(BlockingIOError):
                left = left[os.write(self._to.fileno(), left) :]

    def _receive(self, n: int, until: float) -> bytes:
        found = bytearray()
        while len(found) < n:
            _wait(self._from.fileno(), "POLLIN", until)
            with contextlib.suppress(BlockingIOError):
                some = os.read(self._from.fileno(), min(n - len(found), _CHUNK))
                if not some:
                    raise ConnectionResetError("a worker process has ended")
                found += some
        return bytes(found)

    def kill(self) -> None:
        """Ends the process, whatever it does; who waits for its answer gets an OSError."""
        self._process.kill()

    def end(self) -> None:
        """The same, and takes notice of it."""
        self.kill()
        self._process.wait()
        self.abandon()

    def abandon(self) -> None:
        """Closes this side of the pipes. In a forked child, whose parent's worker it is, that is all."""
        for pipe in (self._to, self._from):
            pipe.close()
        if self._process.returncode is None:
            self._process.returncode = 0  # it is nobody's here: nothing is to be waited for


def _wait(fd: int, event: str, until: float) -> None:
    import select  # here: who starts no worker needs none of it

    poll = select.poll()
    poll.register(fd, getattr(select, event))
    if not poll.poll(max(until - time.monotonic(), 0) * 1000):
        raise TimeoutError("a worker process gives no answer")


def can_start() -> bool:
    """Whether this process knows an interpreter to start: a program that embeds one names itself."""
    name = os.path.basename(sys.executable or "")
    return name.startswith("python") and not getattr(sys, "frozen", False)


@record(eq=False)
class Answer:
    """What became of a job. data: the object file; None if there is none. why: then, in words. alone: no worker could be started,
    so that the module is the caller's to compile."""

    data: bytes | None
    why: str = ""
    alone: bool = False


After = Callable[[], Any] | None


@record(eq=False)
class Job:
    """A module to be compiled.

    Attributes:
        text, target, level: as for `compile_object`.
        then: is called with the answer, once, in a thread of the pool or, where none can be started, in that of who submits. What it
            returns, if anything, is called afterwards, one at a time: what takes long and may take locks.
        find: gives the object file if somebody has made it by the time when it would be compiled.
    """

    text: str
    target: Target
    level: int
    then: Callable[[Answer], After]
    find: Callable[[], bytes | None] = lambda: None


_here = threading.local()


def serving() -> bool:
    """Whether this thread is one of a pool."""
    return getattr(_here, "serves", False)


def follow(after: After) -> None:
    """Does what follows from an answer, if anything does."""
    if after is not None:
        after()


class Pool:
    """Threads with a worker each, which take jobs in order. Threads and workers come with jobs, and go when there are none.

    Args:
        niceness: of the workers. delay_s: that jobs wait before the first worker is started, unless they are `MUCH` together or
            somebody waits. inherited: whether a forked child does its parent's jobs too, when it gets one itself or waits.
    """

    def __init__(self, name: str, niceness: int = 0, delay_s: float = 0.0, inherited: bool = False):
        self._name, self._niceness, self._delay_s, self._inherited = name, niceness, delay_s, inherited
        self.started = 0  # workers, ever
        self._forking: list[threading.Lock] = []
        self._forget()
        self._swap = threading.Lock()  # held by a thread that tells what came of a job, and around a fork
        self._after = threading.Lock()  # held by a thread that does what follows from it, and around a fork
        _pools.append(self)

    def _forget(self) -> None:
        self._changed = threading.Condition()
        self._queue: deque[Job] = deque()
        self._busy: list[Job] = []
        self._threads: list[threading.Thread] = []
        self._workers: list[Worker] = []
        self._hurried = self._closed = False

    @property
    def pending(self) -> int:
        """Jobs that are waiting or in work."""
        return len(self._queue) + len(self._busy)

    def submit(self, *jobs: Job) -> None:
        """Has modules compiled."""
        with self._changed:
            self._queue.extend(jobs)
            if self._start():
                return
            for job in jobs:
                self._queue.remove(job)
        for job in jobs:
            follow(job.then(Answer(None, "no thread can be started", alone=True)))

    def prefer(self, jobs: Collection[Job]) -> None:
        """From now on, those of these jobs that wait go before all others: somebody waits for them."""
        with self._changed:
            waiting = list(self._queue)
            self._queue = deque(sorted(waiting, key=lambda job: job not in jobs))

    def claim(self, jobs: Collection[Job]) -> Job | None:
        """One of these jobs that no thread has begun with: it is the caller's, until `released`. If there is none, waits for those
        that are in work; None when all are done."""
        with self._changed:
            while True:
                for job in self._queue:
                    if job in jobs:
                        self._queue.remove(job)
                        self._busy.append(job)
                        return job
                if not any(job in jobs for job in self._busy):
                    return None
                self._changed.wait()

    @contextlib.contextmanager
    def released(self, job: Job) -> Iterator[None]:
        """Around the work on a job that was claimed. If it fails, the job waits again."""
        done = False
        try:
            yield
            done = True
        finally:
            with self._changed:
                if job in self._busy:
                    self._busy.remove(job)
                if not done:
                    self._queue.appendleft(job)
                self._changed.notify_all()

    def _start(self) -> bool:
        """A further thread if one is wanted; whether there is any. The lock is held."""
        most = min(max(config.threads - 1, 1), MOST)  # one processor is this process's
        while len(self._threads) < min(most, len(self._queue) + len(self._busy)):
            thread = threading.Thread(target=self._serve, name=f"tengen-{self._name}", daemon=True)
            self._threads.append(thread)
            try:
                thread.start()
            except RuntimeError:  # a limit of this process
                self._threads.remove(thread)
                break
        self._changed.notify_all()
        return bool(self._threads)

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until there are no jobs; whether that is so. timeout: in seconds."""
        with self._changed:
            self._hurried = True
            if self._queue:
                self._start()
            self._changed.notify_all()
            try:
                return self._changed.wait_for(lambda: not self.pending or self._closed, timeout)
            finally:
                self._hurried = False

    # -- the threads ---------------------------------------------------------------------------------------------------------
    def _serve(self) -> None:
        me, worker = threading.current_thread(), None
        _here.serves = True
        with self._changed:
            self._changed.wait_for(self._worth_a_worker, self._delay_s)
        try:
            while (job := self._next(me)) is not None:
                try:
                    worker, answer = self._compiled(worker, job)
                except Exception as e:  # such as no memory: whoever waits is told
                    answer = Answer(None, f"{type(e).__name__}: {e}")
                self._tell(job, answer)
        finally:
            with self._changed:
                if me in self._threads:
                    self._threads.remove(me)
            if worker is not None:
                self._end(worker)

    def _worth_a_worker(self) -> bool:
        return self._hurried or self._closed or bool(self._workers) or sum(len(job.text) for job in self._queue) >= MUCH

    def _tell(self, job: Job, answer: Answer) -> None:
        try:
            after = None
            with self._swap:
                if not self._closed:
                    after = job.then(answer)
            if after is not None:
                with self._changed:
                    self._changed.notify_all()
                with self._after:
                    after()
        except Exception:  # a defect: it is shown, and the thread goes on
            threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
        finally:
            with self._changed:
                if job in self._busy:
                    self._busy.remove(job)
                self._changed.notify_all()

    def _next(self, me: threading.Thread) -> Job | None:
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closed, IDLE_S)
            if self._closed or not self._queue:
                self._threads.remove(me)  # under the lock: who submits next starts another
                return None
            job = self._queue.popleft()
            self._busy.append(job)
            return job

    def _compiled(self, worker: Worker | None, job: Job) -> tuple[Worker | None, Answer]:
        if (found := job.find()) is not None:
            return worker, Answer(found)
        why = ""
        for _ in range(TRIES):
            try:
                worker = worker or self._new_worker()
            except OSError as e:
                return None, Answer(None, f"no process can be started: {e}", alone=True)
            if worker is None:
                return None, Answer(None, "no interpreter is known that could be started", alone=True)
            try:
                return worker, Answer(worker.compile(job.text, job.target, job.level))
            except Refused as e:
                return worker, Answer(None, f"LLVM refused it: {e}")
            except (OSError, ValueError) as e:  # a ValueError: its pipes are closed
                why = str(e)
                self._end(worker)
                worker = None
        return None, Answer(None, f"{why}, {TRIES} times")

    def _new_worker(self) -> Worker | None:
        if not can_start():
            return None
        with self._swap:  # no fork in between: a child would keep the pipe open
            if self._closed:
                raise ProcessLookupError("this process ends")
            worker = Worker(self._niceness)
            with self._changed:
                self.started += 1
                self._workers.append(worker)
        return worker

    def _end(self, worker: Worker) -> None:
        with self._changed:
            mine = worker in self._workers
            if mine:
                self._workers.remove(worker)
        if mine:
            worker.end()

    def pids(self) -> list[int]:
        """The processes of the workers."""
        with self._changed:
            return [w.pid for w in self._workers]

    # -- the end, and forks --------------------------------------------------------------------------------------------------
    def close(self) -> None:
        """Ends the workers and the threads, when the process ends. Jobs are dropped, and only the one is waited for that a thread
        compiles by itself, which LLVM does not interrupt."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            there = list(self._workers)  # one that is being started is not among them: its thread sees that the pool is closed
        for w in there:
            w.kill()
        for t in list(self._threads):
            t.join()

    def before_fork(self) -> None:
        """No thread takes an answer or starts a worker while the process forks, unless that takes very long."""
        self._forking = [lock for lock in (self._after, self._swap) if lock.acquire(timeout=5)]

    def after_fork(self) -> None:
        """In the parent."""
        for lock in self._forking:
            lock.release()

    def after_fork_in_child(self) -> None:
        """The parent's workers stay the parent's."""
        workers, jobs = self._workers, [*self._busy, *self._queue]
        self._forget()
        if self._inherited:
            self._queue.extend(jobs)
        self._swap, self._after = threading.Lock(), threading.Lock()
        _here.serves = False
        for w in workers:
            w.abandon()


_pools: list[Pool] = []


def _all(method: str) -> Callable[[], Any]:
    return lambda: [getattr(pool, method)() for pool in _pools]


atexit.register(_all("close"))
os.register_at_fork(
    before=_all("before_fork"), after_in_parent=_all("after_fork"), after_in_child=_all("after_fork_in_child")
)
