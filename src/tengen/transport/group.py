"""The processes that work together, and groups of them.

A process that was started alone is rank 0 of 1. One that a launcher of MPI has started (`tengen run`, `mpiexec`, `srun`) joins the
job when it is first asked for its rank.
"""

from __future__ import annotations

import os
import platform
import sys
import threading
from collections.abc import Iterable, Sequence

import numpy as np

from tengen.base.errors import DistributedError
from tengen.base.version import VERSION
from tengen.transport.base import Transport
from tengen.transport.channel import Channel
from tengen.transport.mpi import MPITransport

# variables that launchers of MPI set for each process to the number of processes that they start
LAUNCHERS = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "MPI_LOCALNRANKS")


class World:
    """All ranks of the job that this process is one of, and the groups that were made of them.

    Attributes: rank: this process's number. size: how many there are. transport: what moves bytes among them, None for one process.
    """

    def __init__(self, transport: Transport | None = None):
        self.transport = transport
        self.rank, self.size = (0, 1) if transport is None else (transport.rank, transport.size)
        self._channels: dict[tuple[int, ...], Channel] = {}
        if transport is not None:
            version = f"{sys.version_info.major}.{sys.version_info.minor}"
            self.channel(range(self.size)).agree(f"join with Tengen {VERSION}, Python {version}, {sys.byteorder}-endian")

    def channel(self, ranks: Iterable[int]) -> Channel:
        """What the ranks of a group do together. Errors: DistributedError where this process is none of them, or alone."""
        key = tuple(ranks)
        if key not in self._channels:
            if self.transport is None:
                raise DistributedError("this process is alone; help: start several with `tengen run -n 2 program.py`")
            if self.rank not in key:
                raise DistributedError(f"rank {self.rank} is none of the group of the ranks {list(key)}, which works without it")
            whole = key == tuple(range(self.size))
            self._channels[key] = Channel(self.transport if whole else self.transport.subgroup(key), key)
        return self._channels[key]


_process: World | None = None
_threads = threading.local()  # a thread that is a rank by itself has its own world


def started_by_launcher() -> bool:
    """Whether a launcher of MPI has started this process as one of several."""
    return any(os.environ.get(name, "").isdigit() and int(os.environ[name]) > 1 for name in LAUNCHERS)


def world() -> World:
    """The ranks that this process, or this thread, is one of."""
    global _process
    own = getattr(_threads, "world", None)
    if own is not None:
        return own
    if _process is None:
        _process = World(MPITransport() if started_by_launcher() else None)
    return _process




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
    def is_single_machine(self) -> bool:
        """Whether all of its processes are on this machine."""
        return len(set(machines(self.proc_ranks))) == 1

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


def machines(ranks: Sequence[int]) -> list[str]:
    """The name of each rank's machine, which all of them ask for together; of one rank, this machine's."""
    here = platform.node()
    if len(ranks) == 1:
        return [here]
    name = np.zeros(64, np.uint8)
    said = here.encode()[:64]
    name[: len(said)] = np.frombuffer(said, np.uint8)
    names = world().channel(ranks).all_gather(name, [64] * len(ranks), "names of machines")
    return [row.tobytes().rstrip(b"\0").decode(errors="replace") for row in names.reshape(-1, 64)]
