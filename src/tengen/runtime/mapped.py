"""Files as memory: read-only mappings, known while they are in use, whose pages can be given back at any time.

In: the descriptor of an open file. Out: the mapping, which arrays and buffers are made over. Nobody can write it, so its pages
are the file's and no others: who reads one that was given back gets it from the file again. `native.trim` does the same for
the pool.
"""

from __future__ import annotations

import mmap
import weakref

import numpy as np

_live: weakref.WeakValueDictionary[int, mmap.mmap] = weakref.WeakValueDictionary()  # by address


def map_file(fd: int) -> mmap.mmap:
    """The file's bytes, read-only, as memory, which outlives the open file and goes with the last array over it.

    Errors: OSError and ValueError where it cannot be mapped, as an empty file.
    """
    memory = mmap.mmap(fd, 0, access=mmap.ACCESS_READ)
    _live[np.frombuffer(memory, np.uint8).ctypes.data] = memory
    return memory


def is_mapped(a: np.ndarray) -> bool:
    """Whether the array shows a mapped file: memory that stays as it is, for as long as the array lives."""
    at = a.ctypes.data
    return any(start <= at < start + len(memory) for start, memory in list(_live.items()))


def trim(only: object = None) -> None:
    """Gives back the memory that reading mapped files has taken; their pages come again when they are read. only: the memory of one file, if
    it is a mapped one; None: all."""
    if hasattr(mmap, "MADV_DONTNEED"):
        for memory in list(_live.values()):
            if only is None or memory is only:
                memory.madvise(mmap.MADV_DONTNEED)
