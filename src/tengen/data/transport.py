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
    block = _block(name, _offsets(sizes)[-1]) if sum(sizes) > INLINE else None
    if block is None:
        return None, [bytearray(p) for p in parts]
    room = memoryview(block.buf)  # type: ignore[arg-type]  # None only once it is closed
    for part, offset in zip(parts, _offsets(sizes)):
        room[offset : offset + part.nbytes] = part
    room.release()
    block.close()
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
        window = np.frombuffer(memoryview(block.buf), np.uint8)  # type: ignore[arg-type]  # as above
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


def _block(name: str, size: int) -> SharedMemory | None:
    """A new shared block, or None when there is no room: writing to a block without pages would kill the process."""
    try:
        block = SharedMemory(name=name, create=True, size=size)
    except OSError:
        return None
    path = "/dev/shm/" + name
    if os.path.exists(path):
        fd = os.open(path, os.O_RDWR)
        try:
            os.posix_fallocate(fd, 0, size)
        except OSError:
            block.unlink()
            block.close()
            return None
        finally:
            os.close(fd)
    return block
