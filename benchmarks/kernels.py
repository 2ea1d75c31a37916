"""Kernels of the contraction generator beside PyTorch: speed, ratio and its spread.

    python benchmarks/kernels.py [contraction ...] [--threads 2] [--only NAME]

Each row is one product, once specialised to its extents and once shape-generic (as eager mode compiles it), on the same
data as PyTorch in the same process. Rounds alternate; a ratio above 1 means that Tengen is faster. With one thread
the processor time of the thread is taken, which other programs on the machine disturb least; otherwise the wall clock.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "kernels"))

from machine import Compiled

from tengen.base.dtype import float32
from tengen.codegen.targets import Target
from tengen.kernels.contraction.contract import contract
from tengen.kernels.lowering import Array, Lowering, contiguous_strides
from tengen.loops.lang import Expr, Index, var
from tengen.runtime import native

ROUNDS = 15
ROUND_S = 0.02


class Extents:
    """Extents as numbers, or as parameters of a shape-generic program."""

    def __init__(self, generic: bool):
        self.generic = generic
        self.values: dict[Expr, int] = {}
        self._known: dict[int, Expr] = {}

    def __call__(self, n: int) -> Index:
        if not self.generic or n <= 1:
            return n
        if n not in self._known:
            self._known[n] = var(f"n{len(self.values)}")
            self.values[self._known[n]] = n
        return self._known[n]


@dataclass
class Case:
    """A product: its name, operations, operands in memory, what Tengen runs, what PyTorch runs, and how to compare them."""

    name: str
    operations: int
    memory: dict[str, np.ndarray]
    arrays: Callable[[Extents], tuple[list[Array], tuple[int, int, int, int]]]
    peer: Callable[[], torch.Tensor]
    result: Callable[[torch.Tensor], np.ndarray]


def aligned(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Random float32 numbers on a cache line."""
    n = int(np.prod(shape))
    raw = np.empty(n + 16, np.float32)
    start = -raw.ctypes.data % 64 // 4
    x = raw[start : start + n].reshape(shape)
    x[...] = np.random.default_rng(seed).standard_normal(shape)
    return x


def dense(id: str, shape: tuple[Index, ...]) -> Array:
    """A dense array."""
    return Array(id, float32, shape, contiguous_strides(shape))


def matmul(m: int, k: int, n: int, form: str = "NN") -> Case:
    """A product of matrices; T: the operand is stored transposed."""
    x, y, z = aligned((k, m) if form[0] == "T" else (m, k)), aligned((n, k) if form[1] == "T" else (k, n), 1), aligned((m, n))

    def arrays(e: Extents):
        a, b = dense("a", tuple(map(e, x.shape))), dense("b", tuple(map(e, y.shape)))
        a, b = (a.permute((1, 0)) if form[0] == "T" else a), (b.permute((1, 0)) if form[1] == "T" else b)
        return [a, b, dense("out", (e(m), e(n)))], (0, 1, 1, 1)

    tx, ty = (torch.from_numpy(v.T if t == "T" else v) for v, t in zip((x, y), form))
    name = f"matmul {m}x{k}x{n} {form}"
    return Case(name, 2 * m * k * n, {"a": x, "b": y, "out": z}, arrays, lambda: tx @ ty, lambda t: t.numpy())


def _image(n: int, c: int, h: int, pad: int) -> tuple[np.ndarray, torch.Tensor]:
    """A padded channels-last image, and the image itself as PyTorch sees it."""
    x = aligned((n, h + 2 * pad, h + 2 * pad, c))
    inside = np.zeros_like(x)
    inside[:, pad : pad + h, pad : pad + h] = x[:, pad : pad + h, pad : pad + h]
    x[...] = inside
    return x, torch.from_numpy(x[:, pad : pad + h, pad : pad + h].copy()).permute(0, 3, 1, 2)


def _channels_last(t: torch.Tensor) -> np.ndarray:
    return t.permute(0, 2, 3, 1).numpy()


def _windows(e: Extents, n: int, c: int, size: int, r: int) -> Array:
    """Windows of the padded image: (N, OH, OW, R, S, C)."""
    nn, cc, s, k = e(n), e(c), e(size), e(r)
    out = s - k + 1
    st = contiguous_strides((nn, s, s, cc))
    return Array("a", float32, (nn, out, out, k, k, cc), (*st[:3], st[1], st[2], st[3]))


def conv(n: int, c: int, h: int, o: int, r: int = 3, pad: int = 1) -> Case:
    """A convolution, channels-last, filters as (R, S, C, O)."""
    x, image = _image(n, c, h, pad)
    oh = h + 2 * pad - r + 1
    w, z = aligned((r, r, c, o), 1), aligned((n, oh, oh, o))

    def arrays(e: Extents):
        a = _windows(e, n, c, h + 2 * pad, r)
        return [a, dense("b", tuple(map(e, w.shape))), dense("out", (*a.shape[:3], e(o)))], (0, 3, 3, 1)

    tw = torch.from_numpy(w).permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last)
    name = f"conv {n}x{h}x{h}x{c} -> {o}, {r}x{r}"
    peer = lambda: torch.nn.functional.conv2d(image, tw, padding=pad)
    return Case(name, 2 * n * oh * oh * o * c * r * r, {"a": x, "b": w, "out": z}, arrays, peer, _channels_last)


def weight_gradient(n: int, c: int, h: int, o: int, r: int = 3, pad: int = 1) -> Case:
    """The gradient of a convolution with respect to its filters."""
    x, image = _image(n, c, h, pad)
    oh = h + 2 * pad - r + 1
    g, z = aligned((n, oh, oh, o), 1), aligned((r, r, c, o))

    def arrays(e: Extents):
        a = _windows(e, n, c, h + 2 * pad, r)
        b = dense("b", (*a.shape[:3], e(o)))
        return [a.permute((3, 4, 5, 0, 1, 2)), b, dense("out", tuple(map(e, z.shape)))], (0, 3, 3, 1)

    tg = torch.from_numpy(g).permute(0, 3, 1, 2)
    name = f"weight gradient {n}x{h}x{h}x{c} -> {o}, {r}x{r}"
    peer = lambda: torch.nn.grad.conv2d_weight(image, (o, c, r, r), tg, padding=pad)
    result = lambda t: t.permute(2, 3, 1, 0).numpy()
    return Case(name, 2 * n * oh * oh * o * c * r * r, {"a": x, "b": g, "out": z}, arrays, peer, result)


def depthwise(n: int, c: int, h: int, r: int = 3, pad: int = 1) -> Case:
    """A depthwise convolution, filters as (R, S, C)."""
    x, image = _image(n, c, h, pad)
    oh = h + 2 * pad - r + 1
    w, z = aligned((r, r, c), 1), aligned((n, oh, oh, c))

    def arrays(e: Extents):
        a = _windows(e, n, c, h + 2 * pad, r).permute((5, 0, 1, 2, 3, 4))
        out = dense("out", (*a.shape[1:4], e(c))).permute((3, 0, 1, 2))
        return [a, dense("b", tuple(map(e, w.shape))).permute((2, 0, 1)), out], (1, 3, 2, 0)

    tw = torch.from_numpy(w).permute(2, 0, 1)[:, None].contiguous(memory_format=torch.channels_last)
    peer = lambda: torch.nn.functional.conv2d(image, tw, padding=pad, groups=c)
    name = f"depthwise {n}x{h}x{h}x{c}, {r}x{r}"
    return Case(name, 2 * n * oh * oh * c * r * r, {"a": x, "b": w, "out": z}, arrays, peer, _channels_last)


def contraction() -> Iterator[Case]:
    """The products of the networks in the repository's targets."""
    yield matmul(1024, 1024, 1024)
    for c, h in ((64, 56), (128, 28), (256, 14), (512, 7)):
        yield conv(8, c, h, c)
    for c, h in ((64, 56), (128, 28), (256, 14), (512, 7)):
        yield weight_gradient(8, c, h, c)
    yield conv(8, 64, 56, 256, 1, 0)
    yield from (matmul(64, 784, 512, "NT"), matmul(64, 512, 512, "NT"), matmul(64, 512, 10, "NT"))
    yield from (matmul(64, 512, 512), matmul(784, 64, 512, "TN"), matmul(512, 64, 512, "TN"), matmul(512, 64, 10, "TN"))
    yield from (matmul(1, 1024, 1000, "NT"), matmul(1, 1024, 1000), matmul(1000, 1024, 1))
    yield from (conv(64, 1, 32, 6, 5, 0), conv(64, 6, 14, 16, 5, 0))
    yield from (weight_gradient(64, 1, 32, 6, 5, 0), weight_gradient(64, 6, 14, 16, 5, 0), conv(64, 16, 14, 6, 5, 2))
    yield from (depthwise(8, 32, 112), depthwise(8, 384, 14))


GROUPS = {"contraction": contraction}


def timed(f: Callable[[], object], clock: Callable[[], float], repeat: int) -> float:
    """Seconds of one call."""
    start = clock()
    for _ in range(repeat):
        f()
    return (clock() - start) / repeat


def measure(case: Case, generic: bool, threads: int) -> None:
    """Checks and times one case, and prints its row."""
    e = Extents(generic)
    arrays, roles = case.arrays(e)
    lo = Lowering(Target.host(), list(e.values))
    contract(lo, *arrays, *roles)
    start = time.thread_time()
    run = Compiled(lo, {i: x.reshape(-1) for i, x in case.memory.items()}, ["out"], e.values)
    compile_ms = 1e3 * (time.thread_time() - start)
    run()
    want = case.result(case.peer())
    error = float(np.abs(want - case.memory["out"]).max() / np.abs(want).max())
    if not error < 1e-4:
        raise SystemExit(f"{case.name}: differs from PyTorch by {error:.1e} of the largest element")
    clock = time.thread_time if threads == 1 else time.perf_counter
    repeat = max(1, int(ROUND_S / max(timed(run, clock, 3), 1e-6)))
    ours, theirs = [], []
    for _ in range(ROUNDS):
        ours.append(timed(run, clock, repeat))
        theirs.append(timed(case.peer, clock, repeat))
    a, b = statistics.median(ours), statistics.median(theirs)
    ratios = [y / x for x, y in zip(ours, theirs)]
    kind = "generic" if generic else "special"
    print(f"{case.name:38s} {kind} {1e6 * a:9.1f} us {case.operations / a / 1e9:7.1f} GFLOP/s   torch {1e6 * b:9.1f} us "
          f"{case.operations / b / 1e9:7.1f}   ratio {statistics.median(ratios):5.2f} [{min(ratios):.2f}, {max(ratios):.2f}]   "
          f"compiled in {compile_ms:3.0f} ms", flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("groups", nargs="*", default=list(GROUPS), help=f"of {', '.join(GROUPS)}")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", default="", help="part of a name")
    args = parser.parse_args()
    native.set_threads(args.threads)
    torch.set_num_threads(args.threads)
    for group in args.groups:
        for case in GROUPS[group]():
            if args.only in case.name:
                for generic in (False, True):
                    measure(case, generic, args.threads)


if __name__ == "__main__":
    main()
