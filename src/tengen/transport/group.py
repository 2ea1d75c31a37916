"""The processes that work together, and groups of them.

A process that was started alone is rank 0 of 1. One that a launcher of MPI has started (`tengen run`, `mpiexec`, `srun`) joins the
job when it is first asked for its rank.
"""

from __future__ import annotations

import os
import platform
import sys
import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

import numpy as np

from tengen.base.config import config
from tengen.base.errors import DistributedError
from tengen.base.version import VERSION
from tengen.transport.base import Transport
from tengen.transport.channel import Channel
from tengen.transport.mpi import MPITransport, remove_shared_names

# variables that launchers of MPI set for each process: the number of processes that they start, and which one this is
LAUNCHERS = {"PMI_SIZE": "PMI_RANK", "OMPI_COMM_WORLD_SIZE": "OMPI_COMM_WORLD_RANK", "SLURM_STEP_NUM_TASKS": "SLURM_PROCID"}
FACTS: list[Callable[[], str]] = []  # what else is to be the same in all processes: files above add theirs
RUNNER = "tengen.distributed"  # the package of `rank`, which runs programs
NAME = 64  # bytes of a machine's name that are compared


class World:
    """All ranks of the job that this process is one of, and the groups that were made of them.

    Attributes: rank: this process's number. size: how many there are. transport: what moves bytes among them; None for one process, and
        for a worker process of a rank, which takes no part. machines: the name of each rank's machine.
    """

    def __init__(self, transport: Transport | None = None, rank: int = 0, size: int = 1):
        self.transport = transport
        self.rank, self.size = (rank, size) if transport is None else (transport.rank, transport.size)
        self._channels: dict[tuple[int, ...], Channel] = {}
        self.machines = [platform.node()] * self.size
        if transport is not None:
            version = f"{sys.version_info.major}.{sys.version_info.minor}"
            everyone = self.channel(range(self.size))
            facts = "".join(f", {one()}" for one in FACTS)
            everyone.agree(f"join with Tengen {VERSION}, Python {version}, {sys.byteorder}-endian, winograd={config.winograd}{facts}")
            name = np.zeros(NAME, np.uint8)
            said = platform.node().encode()[:NAME]
            name[: len(said)] = np.frombuffer(said, np.uint8)
            names = everyone.all_gather(name, [NAME] * self.size, "names of machines").reshape(-1, NAME)
            everyone.open_segments()
            self.machines = [row.tobytes().rstrip(b"\0").decode(errors="replace") for row in names]

    def channel(self, ranks: Iterable[int]) -> Channel:
        """What the ranks of a group do together. Errors: DistributedError where this process is none of them, or alone."""
        key = tuple(ranks)
        if key not in self._channels:
            if self.transport is None and self.size > 1:
                raise DistributedError(f"this is a worker process of rank {self.rank}, and ranks alone talk to one another")
            if self.transport is None:
                raise DistributedError("this process is alone; help: start several with `tengen run -n 2 program.py`")
            if self.rank not in key:
                raise DistributedError(f"rank {self.rank} is none of the group of the ranks {list(key)}, which works without it")
            whole = key == tuple(range(self.size))
            self._channels[key] = found = Channel(self.transport if whole else self.transport.subgroup(key), key)
            if not whole:  # of all ranks: once they know that they have the same version
                found.open_segments()
        return self._channels[key]


_process: World | None = None
_threads = threading.local()  # a thread that is a rank by itself has its own world


def launched() -> tuple[int, int] | None:
    """(rank, number of processes) by the launcher of MPI that has started this process as one of several; None without one."""
    for count, number in LAUNCHERS.items():
        if os.environ.get(count, "").isdigit() and int(os.environ[count]) > 1 and os.environ.get(number, "").isdigit():
            return int(os.environ[number]), int(os.environ[count])
    return None


def started_by_launcher() -> bool:
    """Whether a launcher of MPI has started this process as one of several."""
    return launched() is not None


def world() -> World:
    """The ranks that this process, or this thread, is one of."""
    global _process
    own = getattr(_threads, "world", None)
    if own is not None:
        return own
    if _process is None:
        _process = _join()
    return _process


def about() -> str:
    """Which of how many processes this is, and how its groups exchange arrays; for people. It joins no job."""
    here = getattr(_threads, "world", None) or _process
    if here is None or here.size == 1:
        return "one"
    ways = {f"{list(ranks)} by {channel.way}" for ranks, channel in here._channels.items()}
    return f"rank {here.rank} of {here.size}; arrays go among the ranks {'; '.join(sorted(ways)) or '(none)'}"


def _join() -> World:
    """Joins the job that a launcher has started. Errors: DistributedError where MPI's library here knows nothing of it."""
    found = launched()
    if found is None:
        return World()
    rank, size = found
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None and processes.parent_process() is not None:
        return World(None, rank, size)
    transport = MPITransport()
    if transport.size != size:
        raise DistributedError(
            f"the launcher has started {size} processes, and MPI's library here joins {transport.size}: they are of different "
            "implementations; help: `tengen run`, or the mpiexec that came with the library that mpi4py loads "
            "(mpi4py.MPI.Get_library_version())"
        )
    _end_all_on_errors(transport)
    try:
        return World(transport)
    finally:  # also where they do not fit together, and are about to end
        remove_shared_names()


def _end_all_on_errors(transport: Transport) -> None:
    """From now on an error that nobody catches ends all processes, which would wait for this one."""
    before = sys.excepthook

    def ended(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        print(f"rank {transport.rank} of {transport.size} failed:", file=sys.stderr)
        error.__traceback__ = trace = _from_the_program(trace)
        before(kind, error, trace)
        sys.stderr.flush()
        transport.abort(1)

    sys.excepthook = ended


def _from_the_program(trace: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames of what runs the program."""
    at = trace
    while at is not None and (at.tb_frame.f_code.co_filename == "<frozen runpy>" or at.tb_frame.f_globals.get("__package__") == RUNNER):
        at = at.tb_next
    return trace if at is None else at


def _forget_transport() -> None:
    """A forked child is a worker of its rank."""
    global _process
    if _process is not None and _process.transport is not None:
        _process = World(None, _process.rank, _process.size)


os.register_at_fork(after_in_child=_forget_transport)


def run_as_rank(transport: Transport) -> None:
    """Makes the calling thread a rank of its own."""
    _threads.world = None
    _threads.world = World(transport)


class Group:
    """Processes that take part in a collective operation.

    Args: proc_ranks: their ranks, each once.
    Attributes: proc_ranks: their ranks. size: how many they are. rank: this process's place among them. key: a text that tells
        groups apart. is_single_machine: whether all are on this machine.

    Errors: DistributedError for ranks that are not there.
    """

    def __init__(self, proc_ranks: Iterable[int]):
        self._ranks: list[int] | None = list(proc_ranks)
        size = world().size
        if not self._ranks or len(set(self._ranks)) != len(self._ranks) or not all(0 <= r < size for r in self._ranks):
            there = "there is one process, of rank 0" if size == 1 else f"there are {size} processes"
            raise DistributedError(f"a group of the ranks {self._ranks}: {there}; help: different ranks from 0 to {size - 1}")

    @property
    def proc_ranks(self) -> list[int]:
        """Their ranks."""
        return list(range(world().size)) if self._ranks is None else self._ranks

    @property
    def size(self) -> int:
        """How many processes it has."""
        return len(self.proc_ranks)

    @property
    def rank(self) -> int:
        """This process's place in it. Errors: DistributedError where it is none of them."""
        here = world().rank
        if here not in self.proc_ranks:
            raise DistributedError(f"rank {here} is none of {self!r}")
        return self.proc_ranks.index(here)

    @property
    def key(self) -> str:
        """A text that tells groups apart."""
        return ",".join(map(str, self.proc_ranks))

    @property
    def comp_node(self) -> str:
        """The name of the device on which its operations run, as MegEngine has it."""
        return "cpu0"

    @property
    def is_single_machine(self) -> bool:
        """Whether all of its processes are on this machine."""
        return len({world().machines[r] for r in self.proc_ranks}) == 1

    @property
    def channel(self) -> Channel:
        """What its ranks do together."""
        return world().channel(self.proc_ranks)

    def __repr__(self) -> str:
        return f"Group({self.proc_ranks})"


class _Everyone(Group):
    """All processes, however many there are when it is asked."""

    def __init__(self) -> None:
        self._ranks = None


WORLD = _Everyone()

