"""`torch.multiprocessing`: Python's own, and `spawn`. Tensors travel by pickle, as copies."""

from __future__ import annotations

import functools
import importlib.util
import multiprocessing
from collections.abc import Callable
from multiprocessing import (
    Event,
    Lock,
    Manager,
    Pipe,
    Pool,
    Process,
    Queue,
    cpu_count,
    get_context,
    get_start_method,
    set_start_method,
)
from typing import Any

from tengen.base.errors import DistributedError
from tengen.distributed import launcher
from tengen.transport.group import started_by_launcher, world
from tengen.transport.mpiexec import find_mpiexec


class ProcessContext:
    """The processes that `spawn` started."""

    def __init__(self, processes: list[Any]):
        self.processes = processes

    def pids(self) -> list[int]:
        """Their numbers."""
        return [p.pid for p in self.processes]

    def join(self, timeout: float | None = None) -> bool:
        """Waits; whether all have ended.

        Errors: RuntimeError for a process that failed: the others are ended then
        """
        for p in self.processes:
            p.join(timeout)
        failed = [(i, p.exitcode) for i, p in enumerate(self.processes) if p.exitcode]
        if failed:
            for p in self.processes:
                p.terminate()
            raise RuntimeError(f"process {failed[0][0]} ended with exit code {failed[0][1]}; its traceback is on stderr")
        return all(p.exitcode == 0 for p in self.processes)


def _has_mpi() -> bool:
    try:
        find_mpiexec()
    except DistributedError:
        return False
    return importlib.util.find_spec("cloudpickle") is not None


def _as_rank(fn: Callable, *args: Any) -> None:
    fn(world().rank, *args)


def spawn(
    fn: Callable, args: tuple = (), nprocs: int = 1, join: bool = True, daemon: bool = False, start_method: str = "spawn"
) -> ProcessContext | None:
    """Calls fn(i, *args) in each of so many new processes.

    With `join` they are the ranks of a job of `tengen.distributed`, where MPI is installed, as `distributed.launcher` starts them. In a program
    that `tengen run -n 4` has started, which has as many processes as are asked for, fn is called in each. Other processes know nothing
    of each other.

    Args: join: whether to wait for them; else what is returned can.
    Errors: RuntimeError for a process that failed; DistributedError, which has its traceback, for a rank; and for another number than that
        of the processes that were started already
    """
    if join and nprocs > 1 and (started_by_launcher() or _has_mpi()):
        launcher(functools.partial(_as_rank, fn), n_gpus=nprocs)(*args)
        return None
    context = multiprocessing.get_context(start_method)
    started = ProcessContext([context.Process(target=fn, args=(i, *args), daemon=daemon) for i in range(nprocs)])
    for p in started.processes:
        p.start()
    if not join:
        return started
    started.join()
    return None


__all__ = [
    "Event", "Lock", "Manager", "Pipe", "Pool", "Process", "ProcessContext", "Queue", "cpu_count", "get_context", "get_start_method",
    "set_start_method", "spawn",
]  # fmt: skip
