"""Worker processes that prepare batches.

In: numbered tasks. Out: their results, asked for by number. Each worker has a pipe of its own, so a worker that is killed
can hold no lock that others wait for. An exception travels with the worker's traceback; a dead worker is noticed; closing
leaves no process and no shared memory.
"""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import pickle
import random
import secrets
import select
import signal
import time
import traceback
import warnings
import weakref
from collections.abc import Callable
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from typing import Any

import numpy as np

from tengen.base.errors import TengenError
from tengen.base.record import record
from tengen.data.transport import discard, pack, unpack

_LONGEST = 86400.0  # seconds of one wait; the system's call takes no more than 2^31 milliseconds


class WorkerError(TengenError, RuntimeError):
    """A worker process of a loader died, or raised something that could not travel."""


class WorkerTimeout(WorkerError, TimeoutError):
    """No batch arrived within the loader's `timeout`."""


@record(frozen=True)
class WorkerInfo:
    """What a worker knows of itself.

    Attributes:
        idx: which worker, from 0.
        worker_num: how many there are.
        seed: the loader's seed.
        dataset: the worker's copy of the dataset.
    """

    idx: int
    worker_num: int
    seed: int
    dataset: Any

    @property
    def id(self) -> int:
        """PyTorch's name for idx."""
        return self.idx

    @property
    def num_workers(self) -> int:
        """PyTorch's name for worker_num."""
        return self.worker_num


_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """Inside a loader's worker process, what it is; None elsewhere.

    >>> get_worker_info() is None
    True
    """
    return _info


@record
class _Worker:
    process: Any
    pipe: Any
    busy: int = 0


class Workers:
    """Some processes that run `function(task)` and give the results back under the tasks' numbers.

    Args:
        function: what a worker runs; it travels to a spawned worker by pickle.
        count: how many processes.
        seed, dataset: for `get_worker_info`.
        context: how processes start: "fork", "spawn", "forkserver", a context of `multiprocessing`, or None for Python's default.
        begin: called in each worker with its number, before its first task.
    """

    def __init__(
        self, function: Callable, count: int, seed: int, dataset: Any, context: Any = None, begin: Callable[[int], Any] | None = None
    ):
        self._done: dict[int, tuple] = {}
        self._workers: list[_Worker] = []
        self._pending: dict[int, _Worker] = {}  # who prepares which task
        self._token = f"tengen-{os.getpid()}-{secrets.token_hex(4)}"
        resource_tracker.ensure_running()  # before a fork, so that all of us report to one
        self._close = weakref.finalize(self, _shut, os.getpid(), self._workers, self._pending, self._token)
        start = multiprocessing.get_context(context) if context is None or isinstance(context, str) else context
        try:
            for i in range(count):
                self._start(start, function, WorkerInfo(i, count, seed, dataset), begin)
        except BaseException:
            self.close()
            raise

    def _start(self, context: Any, function: Callable, info: WorkerInfo, begin: Callable[[int], Any] | None) -> None:
        ours, theirs = context.Pipe()
        is_fork = context.get_start_method() == "fork"
        inherited = [w.pipe for w in self._workers] + [ours] if is_fork else []
        process = context.Process(
            target=_work, args=(theirs, function, info, self._token, inherited, begin), daemon=True, name=f"tengen-data-{info.idx}"
        )
        with warnings.catch_warnings():
            # Python warns of forking beside threads; a worker touches none of the parent's threads or locks.
            warnings.filterwarnings("ignore", message=".*fork.*", category=DeprecationWarning)
            process.start()
        theirs.close()
        self._workers.append(_Worker(process, ours))

    def submit(self, number: int, task: Any, timeout: float = 0, what: str = "a task") -> None:
        """Give task `number` to the worker that has least to do. While its pipe is full, results are received: it may wait for
        that itself. Errors: see `result`."""
        worker = min(self._workers, key=lambda w: w.busy)
        self._pending[number] = worker
        worker.busy += 1
        message = number, pack(task, f"{self._token}-t{number}")
        until = _until(timeout)
        full = select.poll()
        full.register(worker.pipe, select.POLLOUT)
        while not full.poll(0):
            if not self._wait(until, worker):
                raise WorkerTimeout(f"{self._waited(timeout, number)} to take {what}")
        try:
            worker.pipe.send(message)
        except OSError:
            self._died(worker)

    def result(self, number: int, timeout: float = 0, what: str = "a task") -> Any:
        """The result of task `number`, which must have been submitted; `what` says in errors what it is.

        Errors:
            what the task raised, with the worker's traceback as a note; WorkerError: a worker died;
            WorkerTimeout: `timeout` seconds went by (0 waits for ever).
        """
        until = _until(timeout)
        while number not in self._done:
            if not self._wait(until):
                raise WorkerTimeout(f"{self._waited(timeout, number)} to prepare {what}")
        ok, message = self._done.pop(number)
        self._pending.pop(number, None)
        if ok:
            return unpack(message)
        raise _rebuild(*message)

    def _wait(self, until: float | None, sending: _Worker | None = None) -> bool:
        """Waits until a worker has said something or died, or `sending` takes a message, and receives what was said; False when
        nothing of it happened in time."""
        events = select.poll()
        for w in self._workers:
            events.register(w.pipe, select.POLLIN | (select.POLLOUT if w is sending else 0))
            events.register(w.process.sentinel, select.POLLIN)
        left = None if until is None else math.ceil(min(max(0.0, until - time.monotonic()), _LONGEST) * 1000)
        ready = dict(events.poll(left))
        for w in self._workers:
            if ready.get(w.process.sentinel) or ready.get(w.pipe.fileno(), 0) & ~select.POLLOUT:
                self._receive(w)
        return bool(ready) or (until is not None and time.monotonic() < until)

    def _waited(self, timeout: float, number: int) -> str:
        worker = self._pending[number]
        who = f"worker {self._workers.index(worker)} of {len(self._workers)} (process {worker.process.pid})"
        return f"DataLoader: waited {timeout} s for {who}"

    def _receive(self, worker: _Worker) -> None:
        try:
            if not worker.pipe.poll():  # only the sentinel is ready: dead, with nothing left to say
                self._died(worker)
            number, ok, message = worker.pipe.recv()
        except (EOFError, OSError):
            self._died(worker)
        worker.busy -= 1
        self._done[number] = (ok, message)

    def _died(self, worker: _Worker) -> None:
        worker.process.join(2)
        code = worker.process.exitcode
        how = f"exit code {code}"
        if code is not None and code < 0:
            with contextlib.suppress(ValueError):
                how = f"signal {signal.Signals(-code).name}"
        raise WorkerError(
            f"DataLoader: worker {self._workers.index(worker)} (process {worker.process.pid}) ended with {how} while it had "
            f"{worker.busy} batches to prepare; help: SIGKILL often means that memory ran out; num_workers=0 shows other causes"
        ) from None

    def close(self) -> None:
        """End the processes, and remove the shared memory of batches that nobody fetched."""
        self._close()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *exc) -> None:
        self.close()


def _until(timeout: float) -> float | None:
    return time.monotonic() + timeout if timeout > 0 else None


def _shut(owner: int, workers: list[_Worker], pending: dict[int, _Worker], token: str) -> None:
    if os.getpid() != owner:  # a fork's copy of the loader owns no worker
        return
    for w in workers:
        with contextlib.suppress(OSError, ValueError):
            if w.busy:
                w.process.terminate()
            else:
                w.pipe.send(None)
    for w in workers:
        w.process.join(2)
        if w.process.exitcode is None:
            w.process.kill()
            w.process.join()
        w.pipe.close()
        w.process.close()
    for number in pending:
        discard(f"{token}-t{number}")
        discard(f"{token}-r{number}")
    workers.clear()
    pending.clear()


def _work(pipe: Any, function: Callable, info: WorkerInfo, token: str, inherited: list, begin: Callable[[int], Any] | None) -> None:
    """What a worker process does until it is told to stop or its parent is gone."""
    global _info
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    for other in inherited:  # while we held the parent's ends, nobody would see them close
        other.close()
    _info = info
    random.seed(f"{info.seed}/{info.idx}")
    np.random.seed([info.seed & 0xFFFFFFFF, info.seed >> 32 & 0xFFFFFFFF, info.idx])
    parent = multiprocessing.parent_process()
    assert parent is not None  # we are a child
    broken = None
    try:
        if begin is not None:
            begin(info.idx)
    except Exception as e:
        broken = _describe(e, info.idx)
    with contextlib.suppress(EOFError, OSError):
        while pipe in wait([pipe, parent.sentinel]):
            message = pipe.recv()
            if message is None:
                return
            number, task = message
            if broken is not None:
                pipe.send((number, False, broken))
                continue
            try:
                pipe.send((number, True, pack(function(unpack(task)), f"{token}-r{number}")))
            except Exception as e:
                pipe.send((number, False, _describe(e, info.idx)))


def _describe(error: Exception, idx: int) -> tuple:
    """An exception as data: pickled if it survives that, and its traceback as text."""
    text = f"Caught {type(error).__name__} in DataLoader worker process {idx} (pid {os.getpid()}):\n{traceback.format_exc()}"
    try:
        data = pickle.dumps(error)
        pickle.loads(data)
    except Exception:
        data = None
    return data, type(error).__name__, str(error), text


def _rebuild(data: bytes | None, name: str, message: str, text: str) -> Exception:
    error = pickle.loads(data) if data is not None else WorkerError(f"{name}: {message}")
    error.add_note(text)
    return error
