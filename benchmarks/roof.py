"""The machine's roofs, measured in moments: how many multiply-adds, and how many bytes copied, a second can have.

Out: operations a second of a kernel of Tengen's own language that does nothing else (as many chains of fused multiply-adds as fit
into the registers, 16 at most), and bytes a second (read and written) of the fastest of three copies of 64 MiB into memory that is
mapped already.
A case asks before and after each of its rounds: on a virtual machine neither cores nor memory are as fast at all times.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from pathlib import Path

import compare
import numpy as np

import tengen
import tengen.functional as F
from tengen.base.dtype import float32
from tengen.codegen.targets import Target
from tengen.kernels.lowering import Array, Lowering
from tengen.loops import lang

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "kernels"))
from machine import Compiled

LANES, MOST_CHAINS, STEPS, PIECES = 16, 16, 4096, 32
BYTES = 64 << 20


def shortest(call: Callable, seconds: float) -> float:
    """The least time of a call, of all that fit into so many seconds."""
    call()
    compare.compiled()
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        best = min(best, compare.batch(call, 1))
    return best


def usual(call: Callable, seconds: float) -> float:
    """The median time of a call: what others on the machine leave in a shared cache makes single copies far too quick."""
    call()
    compare.compiled()
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        times.append(compare.batch(call, 1))
    return float(np.median(times))


def chains(target: Target) -> int:
    """Independent sums of LANES numbers that stay in registers, beside the factor and the term: one that does not would be measured as
    loads and stores."""
    of_a_sum = max(1, LANES * float32.itemsize // target.vector_bytes)
    return min(MOST_CHAINS, (target.vector_registers - 4) // of_a_sum)


def multiply_adds() -> Callable[[], None]:
    """A kernel of PIECES * STEPS * chains * LANES fused multiply-adds on registers."""
    lo = Lowering(Target.host())
    k, count = lo.kernel("peak"), chains(lo.target)
    out = k.write(Array("y", float32, (PIECES * count * LANES,), (1,)))
    piece = k.split(PIECES)
    factor, term = (k.let(lang.const(v, float32, LANES)) for v in (0.999, 0.001))
    sums = [k.var(lang.const(float(i), float32, LANES), float32, "s") for i in range(count)]
    with k.loop(0, STEPS):
        for s in sums:
            s.set(lang.fma(s.value, factor, term))
    for i, s in enumerate(sums):
        k.store(out, (piece * count + i) * LANES, s.value)
    lo.launch(k)
    return Compiled(lo, {"y": np.empty(PIECES * count * LANES, np.float32)}, ["y"], parallel=compare.THREADS > 1)


@functools.cache
def _things() -> tuple[Callable, list[Callable]]:
    """The kernel, and the copies."""
    x = np.zeros(BYTES // 4, np.float32)
    y, t = np.zeros_like(x), tengen.Tensor(x)
    x[:] = y[:] = 1  # or x would be one page of zeros, many times
    copy = tengen.trace(F.copy)
    copies: list[Callable] = [lambda: np.copyto(y, x), lambda: copy(t)]
    if torch := compare.peer("torch"):
        u, v = torch.from_numpy(x), torch.from_numpy(y)
        copies.append(lambda: v.copy_(u))
    return multiply_adds(), copies


def flops(seconds: float) -> float:
    """Float32 operations a second: the most, of all calls in this time, since a busy moment can only lower it."""
    return 2.0 * PIECES * STEPS * chains(Target.host()) * LANES / shortest(_things()[0], seconds)


def bytes_copied(seconds: float) -> float:
    """Bytes a second, read and written, of the fastest copy of 64 MiB."""
    return 2.0 * BYTES / min(usual(copy, seconds) for copy in _things()[1])


@functools.cache
def cached() -> int:
    """Bytes of the largest cache, as far as Linux says: what fits into it may be faster than a copy of memory."""
    sizes = [p.read_text().strip() for p in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
    return max((int(s[:-1]) << {"K": 10, "M": 20}[s[-1]] for s in sizes), default=0)


@functools.cache
def balance() -> float:
    """Operations that the machine can do in the time in which it copies a byte."""
    return flops(0.1) / bytes_copied(0.1)


def limit(work: float, moved: float) -> str:
    """The unit of the higher floor of something that does so many operations and must move so many bytes: "B" where moving them takes
    longer, and they are more than caches hold; else "FLOP"."""
    return "B" if moved > cached() and work / moved < balance() else "FLOP"


def roof(unit: str, seconds: float = 0.01) -> Callable[[], float]:
    """What measures, whenever it is called, how many of this unit ("FLOP" or "B") the machine does in a second."""
    return functools.partial({"FLOP": flops, "B": bytes_copied}[unit], seconds)


if __name__ == "__main__":
    found = flops(0.5), bytes_copied(0.5)
    print(f"{compare.THREADS} threads: {found[0] / 1e9:.0f} GFLOP/s of float32 multiply-adds, {found[1] / 1e9:.1f} GB/s copied")
