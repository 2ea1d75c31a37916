"""The few numbers of a processor that tiles are chosen by: registers, caches, threads. None of them changes a bit of a
result."""

from __future__ import annotations

from typing import Protocol

from tengen.loops.lang import LANES

L1_SET_BYTES = 4096  # bytes: cache lines at a multiple of this distance fall into the same set of L1
PAGE_BYTES = 4096  # bytes of a page of memory
THREAD_COUNTS = (2, 4, 8)  # numbers of threads among which pieces should be shared evenly
ENOUGH_PIECES = 6  # pieces of a kernel from which on there are enough to share among threads


class Machine(Protocol):
    """What strategies ask of a target."""

    vector_bytes: int
    vector_registers: int
    l2_bytes: int
    l2_all: int

    def computes(self, op: str, at_once: bool = False) -> bool:
        """Whether it has instructions for an operation of the kernel language that others compute by arithmetic; at_once: that are as
        quick where no operand is the same in all lanes, and for an fma that it is one instruction."""
        ...


def machine(target: Machine | None) -> tuple[int, int, int]:
    """(bytes of a vector register, number of vector registers, bytes of L2 that sizes of tiles count on); those of a small
    machine if there is no target."""
    return (16, 32, 512 << 10) if target is None else (target.vector_bytes, target.vector_registers, target.l2_bytes)


def near_bytes(target: Machine | None) -> int:
    """All bytes of a core's L2, of which `machine` gives the part that sizes of tiles count on."""
    return 512 << 10 if target is None else target.l2_all


def registers_of(size: int, target: Machine | None) -> int:
    """How many registers a vector of LANES numbers of `size` bytes takes."""
    return max(1, LANES * size // machine(target)[0])


def too_large(rows: int, vectors: int, size: int, target: Machine | None, half: bool = False) -> str:
    """Why the registers cannot hold the sums of a tile of this many rows by vectors, of numbers of `size` bytes; empty if they
    can. half: whether two rows share their last vector."""
    width, registers, _ = machine(target)
    sums = rows * vectors - (rows // 2 if half else 0)
    if sums * registers_of(size, target) < registers:
        return ""
    return f"a tile of {rows} rows by {vectors} vectors needs more than the {registers} registers of {width} bytes"
