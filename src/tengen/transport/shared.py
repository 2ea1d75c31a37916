"""Memory through which the ranks of one machine exchange arrays: each writes into a segment of its own, and reads those of the others.

A segment has two halves. An exchange is done in rounds: each rank writes one half of its segment, all come to a barrier, and each reads what
is for it in that half of the others' segments. The next round uses the other half. So one barrier a round is enough: who writes a half
again has passed the barrier of the round between, to which the others came after they had read that half.

A segment is a file without a name (memfd_create), which the others open through /proc. It ends with the last process that has it open, so
that ranks which are killed leave nothing behind, and it does not count against the size of /dev/shm, which is small in many containers.
"""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Callable, Sequence
from itertools import accumulate

import numpy as np

HALF = 8 << 20  # bytes of half a segment at most; more take fewer rounds, in which ranks wait for one another, and more memory
STEP = 128 << 10  # memory is taken in multiples of so many bytes, when an exchange first needs them
ALIGN = 64  # bytes at whose multiples pieces begin
NAME = 48  # bytes that say where a segment is


def block(parts: int) -> int:
    """The most bytes of each of `parts` pieces that lie in a half."""
    return (HALF - _aligned(8 * parts)) // parts // ALIGN * ALIGN


def _aligned(n: int, to: int = ALIGN) -> int:
    return -(-n // to) * to


def piece_of(half: np.ndarray, i: int, nbytes: int) -> np.ndarray:
    """The i-th of the pieces that a rank has put into a half."""
    start = int(half[8 * i : 8 * i + 8].view("<i8")[0])
    return half[start : start + nbytes]


class Segments:
    """The segments of a group as one rank sees them.

    Args: maps: the memory of each rank's segment, of which this one's own can be written. rank: this one. file: the descriptor of its
        segment, which is closed with this.
    """

    def __init__(self, maps: Sequence[mmap.mmap], rank: int, file: int):
        whole = [np.frombuffer(m, np.uint8) for m in maps]
        self._halves = [[a[at : at + HALF] for a in whole] for at in (0, HALF)]
        weakref.finalize(self, os.close, file)
        self._rank, self._file, self._taken, self._turn = rank, file, [STEP, STEP], 0

    def put(self, pieces: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Writes pieces into this rank's half whose turn it is, each of up to `block(len(pieces))` bytes. Returns: the same half of every
        rank, for `piece_of`, once they all have put theirs.

        Errors: MemoryError where the system has no more memory.
        """
        halves, k = self._halves[self._turn], self._turn
        self._turn = 1 - k
        *starts, end = accumulate((_aligned(p.size) for p in pieces), initial=_aligned(8 * len(pieces)))
        if (more := _aligned(end, STEP) - self._taken[k]) > 0:
            try:  # before it is written: memory that is missing then ends the process
                os.posix_fallocate(self._file, k * HALF + self._taken[k], more)
            except OSError as e:
                raise MemoryError(f"{more} bytes of memory that the processes of this machine share: {e}") from e
            self._taken[k] += more
        own = halves[self._rank]
        own[: 8 * len(pieces)].view("<i8")[:] = starts
        for start, piece in zip(starts, pieces):
            own[start : start + piece.size] = piece
        return halves


def open_segments(rank: int, exchange: Callable[[np.ndarray], np.ndarray]) -> tuple[Segments | None, str]:
    """Opens a segment in each rank of a group, all of them together.

    Args: exchange: bytes of this rank, as many in each -> [rank, byte] those of all.
    Returns: the segments, or None where a rank could not open them all; and what is in this rank's way, "" where nothing is.
    """
    name, where, why = f"tengen-{os.urandom(8).hex()}", b"", ""
    own, maps = -1, list[mmap.mmap]()
    try:
        try:
            own = os.memfd_create(name, os.MFD_CLOEXEC)
            os.truncate(own, 2 * HALF)
            for half in (0, HALF):
                os.posix_fallocate(own, half, STEP)
            where = f"{os.getpid()} {own} {name}".encode()
        except OSError as e:
            why = f"this rank ({e})"
        for r, said in enumerate(exchange(np.frombuffer(where.ljust(NAME, b"\0"), np.uint8))):
            try:
                if not why and said.any():  # else the other rank says why it has none
                    maps.append(mmap.mmap(own, 2 * HALF) if r == rank else _mapped(said.tobytes().rstrip(b"\0").decode()))
            except (OSError, ValueError) as e:
                why = f"this rank and rank {r} of the group ({e})"
        if exchange(np.array([not why], np.uint8)).all():  # until then this rank's segment is there to be opened
            found, own = Segments(maps, rank, own), -1
            return found, why
        return None, why
    finally:
        if own >= 0:
            os.close(own)


def _mapped(said: str) -> mmap.mmap:
    """Another rank's segment, to be read. Errors: OSError, ValueError where its process is not to be seen."""
    pid, fd, name = said.split(" ")
    path = f"/proc/{int(pid)}/fd/{int(fd)}"
    if not (found := os.readlink(path)).startswith(f"/memfd:{name}"):  # in a container of its own, whose processes have other numbers
        raise ValueError(f"{path} is {found}")
    with open(path, "rb", buffering=0) as file:
        return mmap.mmap(file.fileno(), 2 * HALF, access=mmap.ACCESS_READ)
