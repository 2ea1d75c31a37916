"""Values in files: of eager steps (`tensor/eviction.py`) and of programs with a budget (`ops/paging.py`).

In: bytes in memory, and a folder. Out: where they lie in a file without a name, which is gone with its store.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Sequence
from weakref import finalize

from tengen.base.digest import blake2b
from tengen.base.errors import BudgetError
from tengen.base.sizes import in_words

Place = tuple[int, tuple[int, ...]]  # an address, a shape


class Spool:
    """A file without a name. What comes after one that is gone takes its place, if it has its size."""

    def __init__(self, folder: str):
        self._folder, self._end = folder, 0
        self._free: dict[int, list[int]] = {}
        self._fd: int | None = None
        self._lock = threading.RLock()  # a region may be collected at any time

    def write(self, address: int, n: int) -> Region:
        """Writes n bytes of memory. Errors: BudgetError where the disk is full."""
        with self._lock:
            places = self._free.setdefault(n, [])
            if places:
                start = places.pop()
            else:
                start, self._end = self._end, self._end + n
        region = Region(self, start, n)
        finalize(region, places.append, start).atexit = False
        try:
            fd, done, view = self._file(), 0, _memory(address, n)
            while done < n:
                done += os.pwrite(fd, view[done:], start + done)
        except OSError as e:
            raise BudgetError(
                f"a value of {in_words(n)} cannot be written to {self._folder!r}: {os.strerror(e.errno or 0)}; help: offload= another "
                "folder, or none, which computes values again"
            ) from e
        return region

    def _file(self) -> int:
        with self._lock:
            if self._fd is None:
                import tempfile  # here, because few processes write values to disk

                self._fd, name = tempfile.mkstemp(dir=self._folder)
                finalize(self, os.close, self._fd)
                os.unlink(name)
            return self._fd

    def read(self, region: Region, address: int) -> None:
        """Reads a region into memory. Errors: BudgetError where that cannot be, or the file was cut."""
        assert self._fd is not None
        view, at = _memory(address, region.bytes), 0
        while at < region.bytes:
            try:
                n, why = os.preadv(self._fd, [view[at:]], region.start + at), "its file was cut"
            except OSError as e:
                n, why = 0, os.strerror(e.errno or 0)
            if not n:
                raise BudgetError(
                    f"a value of {in_words(region.bytes)} that was written to {self._folder!r} cannot be read again: {why}; help: what this "
                    "run has computed is wrong, and so is what it has written to parameters and other states: load them anew"
                )
            at += n


class Region:
    """Where a value lies in a file: its own as long as this object lives."""

    __slots__ = ("__weakref__", "bytes", "spool", "start")

    def __init__(self, spool: Spool, start: int, bytes: int):
        self.spool, self.start, self.bytes = spool, start, bytes


def _memory(address: int, n: int) -> memoryview:
    return memoryview((ctypes.c_char * n).from_address(address)).cast("B")


WRITE, READ, READ_LAST = range(3)  # what programs ask for; READ_LAST: nobody reads the value again


class Pages:
    """What programs have written, and read again.

    A value is known by the address of its ticket, which is that of no other value as long as it is needed, also where several programs
    run, in threads or one inside of the other. What cannot be written stays in memory, and the error is raised when the run has ended:
    so its states are right all the same. Each call may be made twice: see `callbacks.py`.
    """

    def __init__(self, folder: str):
        self._spool = Spool(folder)
        self._held: dict[int, Region | bytes] = {}  # by the address of the ticket

    def serve(self, places: Sequence[Place]) -> None:
        """Does what a program asks for: (the key and what, the value, the ticket). Errors: BudgetError where the disk is full, or the file
        was cut."""
        (head, _), (value, (n,)), (ticket, _) = places
        what = ctypes.c_int64.from_address(head + 8).value
        if what == WRITE:
            try:
                self._held[ticket] = self._spool.write(value, n)
            except BudgetError:
                self._held[ticket] = ctypes.string_at(value, n)
                raise
            return
        found = self._held[ticket]
        if isinstance(found, bytes):
            ctypes.memmove(value, found, n)
        else:
            self._spool.read(found, value)
        if what == READ_LAST:
            del self._held[ticket]


def folder_of(offload: str | os.PathLike) -> str:
    """The folder that an option `offload` names. Errors: ValueError where it is none."""
    if not isinstance(offload, (str, os.PathLike)):
        raise ValueError(f'offload={offload!r} is no folder; help: a folder that is there, or "disk"')
    if offload == "disk":
        import tempfile

        folder = tempfile.gettempdir()
    else:
        folder = os.path.abspath(os.fspath(offload))
    if not os.path.isdir(folder):
        raise ValueError(f'offload={offload!r} is no folder; help: a folder that is there, or "disk"')
    return folder


def key_of(folder: str) -> int:
    """The key of a folder's store in programs: the same in every process, and no key of `tensor/host.py`."""
    return -1 - (int.from_bytes(blake2b(folder.encode(errors="surrogateescape"), digest_size=8).digest(), "little") >> 2)
