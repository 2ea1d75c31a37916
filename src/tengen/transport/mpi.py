"""Ranks that are processes of an MPI job, through mpi4py's calls on buffers. Nothing that a peer sends is unpickled."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate
from types import ModuleType
from typing import Any

import numpy as np

from tengen.base.errors import DistributedError
from tengen.transport.base import Request, Transport


def load() -> ModuleType:
    """mpi4py's module MPI, which joins the job when it is imported. Errors: DistributedError where it is not installed."""
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as e:  # RuntimeError: mpi4py found no library of MPI
        raise DistributedError(f"several processes need MPI, and it cannot be loaded ({e}); help: pip install 'tengen[dist]'") from e
    return MPI


class _Transfer:
    """A request of MPI with the buffers that it uses, which must live as long."""

    __slots__ = ("_request", "_buffers")

    def __init__(self, request: Any, *buffers: np.ndarray):
        self._request, self._buffers = request, buffers

    def test(self) -> bool:
        return self._request.Test()


def _starts(counts: Sequence[int]) -> list[int]:
    """Where each of several pieces begins."""
    return [0, *accumulate(counts)][:-1]


class MPITransport(Transport):
    """The ranks of a communicator; without one, a copy of the job's own, so that a user's messages and ours never meet."""

    name = "mpi"

    def __init__(self, comm: Any = None):
        self._mpi = load()
        self._comm = self._mpi.COMM_WORLD.Dup() if comm is None else comm
        here, mine = _group_here(), self._comm.Get_group()
        self.crowded = here.Get_size() > (os.cpu_count() or 1)
        self.rank, self.size = mine.Get_rank(), mine.Get_size()
        self.near = self._mpi.Group.Intersection(mine, here).Get_size() == self.size

    def barrier(self) -> Request:
        return _Transfer(self._comm.Ibarrier())

    def broadcast(self, buffer: np.ndarray, root: int) -> Request:
        return _Transfer(self._comm.Ibcast([buffer, self._mpi.BYTE], root), buffer)

    def allgather(self, send: np.ndarray, recv: np.ndarray, counts: Sequence[int]) -> Request:
        byte = self._mpi.BYTE
        return _Transfer(self._comm.Iallgatherv([send, byte], [recv, list(counts), _starts(counts), byte]), send, recv)

    def alltoall(self, send: np.ndarray, send_counts: Sequence[int], recv: np.ndarray, recv_counts: Sequence[int]) -> Request:
        byte = self._mpi.BYTE
        outgoing = [send, list(send_counts), _starts(send_counts), byte]
        incoming = [recv, list(recv_counts), _starts(recv_counts), byte]
        return _Transfer(self._comm.Ialltoallv(outgoing, incoming), send, recv)

    def library_sum(self, send: np.ndarray, recv: np.ndarray) -> Request:
        try:
            return _Transfer(self._comm.Iallreduce(send, recv, self._mpi.SUM), send, recv)
        except (KeyError, ValueError, TypeError, BufferError, self._mpi.Exception) as e:  # it has no type for it, or no sum
            raise DistributedError(f'reduction="library": MPI has no sum of {send.dtype}; help: reduction="ranks"') from e

    def send(self, buffer: np.ndarray, dest: int, tag: int) -> Request:
        return _Transfer(self._comm.Isend([buffer, self._mpi.BYTE], dest, tag), buffer)

    def recv(self, buffer: np.ndarray, source: int, tag: int) -> Request:
        return _Transfer(self._comm.Irecv([buffer, self._mpi.BYTE], source, tag), buffer)

    def probe(self, tag: int, nbytes: int) -> list[tuple[int, np.ndarray]]:
        found, status = [], self._mpi.Status()
        while self._comm.Iprobe(self._mpi.ANY_SOURCE, tag, status):
            buffer = np.zeros(nbytes, np.uint8)
            source = status.Get_source()
            self._comm.Recv([buffer, self._mpi.BYTE], source, tag)
            found.append((source, buffer))
        return found

    def subgroup(self, ranks: Sequence[int]) -> Transport:
        group = self._comm.Get_group().Incl(list(ranks))
        return MPITransport(self._comm.Create_group(group, tag=_tag_of(ranks)))

    def abort(self, code: int) -> None:
        self._comm.Abort(code)


@functools.cache
def _group_here() -> Any:
    """The ranks of the whole job that run on this machine. All ranks of the job call it together the first time."""
    mpi = load()
    near = mpi.COMM_WORLD.Split_type(mpi.COMM_TYPE_SHARED)
    try:
        return near.Get_group()
    finally:
        near.Free()


def remove_shared_names() -> None:
    """Removes the names of MPICH's own files in /dev/shm, which it would leave behind where ranks are killed; once all ranks have opened them.
    Its memory there ends with the processes."""
    with suppress(OSError), open("/proc/self/maps") as maps:
        for path in {line.split(maxsplit=5)[-1].rstrip("\n") for line in maps if " /dev/shm/mpich_shm_" in line}:
            with suppress(FileNotFoundError):  # another rank was here before
                os.unlink(path)


def _tag_of(ranks: Sequence[int]) -> int:
    """A number for a group's creation, so that two groups that are made at once do not meet."""
    tag = 0
    for r in ranks:
        tag = (tag * 31 + r + 1) % 30_011  # every MPI allows tags up to 32,767
    return tag
