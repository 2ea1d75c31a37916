"""How a batch goes from one of our processes to another: large arrays through shared memory, the rest through the pipe.

In: a value and a name for its block. Out: a small message that a pipe takes without blocking. The receiver maps the block,
removes its name at once, and builds the arrays in place, so nothing is left behind when either process dies.
"""

from __future__ import annotations

import os
import pickle
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np

INLINE = 16 << 10  # bytes; a pipe holds several such messages, so a sender never waits for its receiver
ALIGN = 64
_LIVE_BLOCKS = 32  # a mapped block holds two file descriptors: past so many, arrays are copied out


def pack(value: Any, name: str) -> tuple:
    """A message for `unpack`. More than `INLINE` bytes go to a shared block called `name`, unless there is no room for it."""
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    parts = [memoryview(head), *(b.raw() for b in buffers)]
    sizes = [p.nbytes for p in parts]
    if sum(sizes) <= INLINE or not _write(name, parts, _offsets(sizes)):
        return None, [bytearray(p) for p in parts]
    return name, sizes


def unpack(message: tuple) -> Any:
    """The value of a message, once: its arrays are writable and live in the shared block."""
    name, content = message
    if name is None:
        return pickle.loads(content[0], buffers=content[1:])
    block = SharedMemory(name=name)
    block.unlink()
    memory = _Mapped(block)
    array = np.asarray(memory)
    if _Mapped.live > _LIVE_BLOCKS:
        array = array.copy()
    parts = [array[o : o + n] for o, n in zip(_offsets(content), content)]
    return pickle.loads(parts[0].tobytes(), buffers=parts[1:])


def discard(name: str) -> None:
    """Remove the block called `name` if it is there: for messages that nobody will unpack."""
    try:
        block = SharedMemory(name=name)
    except OSError:
        return
    block.unlink()
    block.close()


class _Mapped:
    """Keeps a block mapped for as long as an array looks into it, then unmaps it."""

    live = 0

    def __init__(self, block: SharedMemory):
        self.block = block
        window = np.frombuffer(memoryview(block.buf), np.uint8)  # type: ignore[arg-type]  # None only once it is closed
        self.__array_interface__ = {
            "version": 3, "shape": window.shape, "typestr": "|u1", "data": (window.ctypes.data, False),
        }  # fmt: skip
        _Mapped.live += 1

    def __del__(self):
        _Mapped.live -= 1


def _offsets(sizes: list[int]) -> list[int]:
    """Where each part begins, and the end of the last."""
    offsets = [0]
    for n in sizes:
        offsets.append(offsets[-1] + -(-n // ALIGN) * ALIGN)
    return offsets


def _write(name: str, parts: list[memoryview], offsets: list[int]) -> bool:
    """Makes a shared block called `name` with the parts in it; False when there is no room.

    Where the block is a file, the parts are written to it: faster than through a mapping, whose every page would fault, and a
    full disk is an error, where touching a page that cannot be had would kill the process.
    """
    try:
        block = SharedMemory(name=name, create=True, size=offsets[-1])
    except OSError:
        return False
    try:
        fd = os.open("/dev/shm/" + name, os.O_RDWR)
    except OSError:  # not a file on this system
        for part, offset in zip(parts, offsets):
            block.buf[offset : offset + part.nbytes] = part  # type: ignore[index]  # None only once it is closed
        block.close()
        return True
    try:
        for part, offset in zip(parts, offsets):
            while part.nbytes:
                n = os.pwrite(fd, part, offset)
                part, offset = part[n:], offset + n
        return True
    except OSError:
        block.unlink()
        return False
    finally:
        os.close(fd)
        block.close()
