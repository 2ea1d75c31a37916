"""In which order the cache lines of an operand are prefetched, and that each of them is once."""

import re

import numpy as np
import pytest
from launching import run

from tengen.base.dtype import float32, int8, int64, uint8
from tengen.codegen.targets import Target
from tengen.kernels.contraction.chunks import Walk
from tengen.kernels.contraction.contract import contract
from tengen.kernels.contraction.formats import dot_format
from tengen.kernels.contraction.prefetch import Prefetch
from tengen.kernels.lowering import Array, KernelBuilder, Lowering
from tengen.loops.lang import cast, const
from tengen.loops.text import print_kernel

ROWS, PITCH, START = 5, 992, 2  # positions of k, elements from one to the next, the first one


@pytest.mark.parametrize("first, stop, whole, times, lines", [
    (32, 112, 16, 100, 5),  # more times than lines
    (32, 112, 16, 7, 5),  # several lines at a time, also of two positions
    (32, 112, 16, 1, 5),
    (33, 112, 1, 9, 6),  # may begin within a line: one more
    (32, 33, 16, 3, 1),
    (32, 32, 16, 3, 0),
])  # fmt: skip
def test_lines_of_a_position_follow_each_other(first, stop, whole, times, lines, monkeypatch):
    memory = {"x": np.zeros((ROWS + START) * PITCH, np.float32), "order": np.zeros(200, np.int64), "count": np.zeros(1, np.int64)}

    def note(k, buffer, index):
        order, count = (k.write(Array(name, int64, memory[name].shape, (1,))) for name in ("order", "count"))
        at = k.let(k.load(count, 0))
        k.store(order, at, index)
        k.store(count, 0, k.let(at + 1))

    monkeypatch.setattr(KernelBuilder, "prefetch", note)
    lo = Lowering(Target.host())
    k, x = lo.kernel("prefetches"), Array("x", float32, (ROWS + START, PITCH), (PITCH, 1))
    k.split(1)
    across, down = Walk((PITCH,), (1,)), Walk((ROWS + START,), (PITCH,))
    p = Prefetch.of(k, x, const(0), across, (const(first), const(stop)), down, START, ROWS, whole, const(times))
    with k.loop(0, times):
        p.issue(k)
    lo.launch(k)
    run(lo, memory)
    want = [(START + row) * PITCH + first + line * 16 for row in range(ROWS) for line in range(lines)]
    made = memory["order"][: memory["count"][0]].tolist()
    assert made[: len(want)] == want and len(made) < len(want) + max(1, -(-len(want) // times))


def test_the_tiles_of_a_block_share_the_lines_of_the_next_panel(monkeypatch):
    """Each line of the panel behind the one that a block of tiles multiplies, once: 3 panels of 16 columns, 32 positions."""
    m, k, n = 96, 32, 48
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((m, k), np.float32), rng.standard_normal((n, k), np.float32)
    memory = {"a": a.ravel(), "b": b.ravel(), "y": np.zeros(m * n, np.float32)}
    memory |= {"order": np.zeros(4000, np.int64), "count": np.zeros(1, np.int64)}

    def note(kernel, buffer, index, *more):
        if buffer.name == "x1":  # of the packed operand
            order, count = (kernel.write(Array(name, int64, memory[name].shape, (1,))) for name in ("order", "count"))
            at = kernel.let(kernel.load(count, 0))
            kernel.store(order, at, index)
            kernel.store(count, 0, kernel.let(at + 1))

    monkeypatch.setattr(KernelBuilder, "prefetch", note)
    lo = Lowering(Target.named("x86-64-v3"))
    contract(lo, Array("a", float32, (m, k), (k, 1)), Array("b", float32, (k, n), (1, k)), Array("y", float32, (m, n), (n, 1)), 0, 1, 1, 1)
    run(lo, memory)
    lines, times = np.unique(memory["order"][: memory["count"][0]] // 16, return_counts=True)
    assert lines.tolist() == [*range(k, 3 * k)] and set(times[k:]) == {8}, (lines, times)  # of the last panel, by blocks of 2 of 16 tiles


@pytest.mark.parametrize("out, lines", [(uint8, 1), (float32, 2)], ids=str)
def test_a_line_of_results_is_prefetched_once(out, lines):
    """A tile's two vectors of bytes lie in one cache line, those of float32 in two."""
    target = Target.named("x86-64-v4")
    lo, a, b = Lowering(target), Array("a", int8, (64, 256), (256, 1)), Array("b", int8, (256, 64), (64, 1))
    y, ending = Array("y", out, (64, 64), (64, 1)), lambda k, v, at: cast(v, out)
    contract(lo, a, b, y, 0, 1, 1, 1, epilogue=ending, format=dot_format(int8, "int32", int8, target))
    text = print_kernel(lo.launches[-1].kernel)
    first = text[: text.index("set acc")].splitlines()
    found = [line for line in first if "prefetch y[" in line]
    beside = [line for line in found if re.search(r"column\d* \+ 16", line)]
    assert found and len(found) == lines * (len(found) - len(beside)), text
