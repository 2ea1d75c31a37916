"""Rows of a contraction that its epilogue reads at one distance are one axis, with no table of coordinates; others keep theirs. And integer
sums of pairs are cut into few chunks: both against NumPy, by the interpreter and as machine code."""

from __future__ import annotations

import numpy as np
import pytest
from launching import array_of, run
from machine import Compiled

from tengen.base.dtype import int8, int32, uint8
from tengen.codegen.targets import Target
from tengen.kernels.contraction.contract import contract
from tengen.kernels.contraction.formats import dot_format
from tengen.kernels.lowering import Lowering
from tengen.kernels.source import Elementwise, Ending, Given, Leaf, Source, moved
from tengen.loops.lang import cast
from tengen.loops.text import print_kernel

HOST, V3 = Target.host(), Target.named("x86-64-v3")
PAIRS = dot_format(uint8, "int32", int8, V3)
H, W, N = 3, 7, 40


def drawn(shape, dtype, seed):
    return np.random.default_rng(seed).integers(0, 100, shape).astype(dtype)


class Row(Source):
    """The number of the row of the image, which no array holds."""

    def __init__(self, shape):
        self.shape, self.dtype = shape, int32

    def value(self, k, at):
        return cast(at.coord(1), int32)


def computed(shape, rest, out, more=None, target=V3, k=20):
    """(the kernel's text, out, what it should be): products and `rest`, and where `more` is given a source of its own."""
    a, b = drawn((*shape, k), "uint8", 1), drawn((k, N), "int8", 2)
    memory, arrays = {}, {}
    for x, id in ((a, "a"), (b, "b"), (out, "out"), (rest, "rest")):
        arrays[id], memory[id] = array_of(x, id)
    given = Given(out.shape, int32)
    parts = [given, Leaf(arrays["rest"]), *([] if more is None else [more])]
    total = Elementwise(lambda x, y, *z: sum(z, x + y), parts, given.shape, int32)
    lo = Lowering(target)
    ending = moved(Ending(total, given), lambda at: at)
    contract(lo, arrays["a"], arrays["b"], arrays["out"], 0, len(shape), 1, 1, epilogue=ending, format=PAIRS)
    want = a.astype("int64") @ b.astype("int64") + rest
    if target is HOST:
        Compiled(lo, memory, ["out"])()
    else:
        run(lo, memory)
    return "\n".join(print_kernel(step.kernel) for step in lo.launches), out, want


def zeros(*shape):
    return np.zeros(shape, "int32")


WIDER = lambda: drawn((2, H, W + 1, N), "int32", 3)[:, :, :W]  # rows of the image are one pixel further apart than they have
CASES = {
    "all at one distance": (lambda: drawn((2, H, W, N), "int32", 3), lambda: zeros(2, H, W, N), 0),
    "one number": (lambda: np.broadcast_to(drawn((1,), "int32", 3), (2, H, W, N)), lambda: zeros(2, H, W, N), 0),
    "rows of an image apart": (WIDER, lambda: zeros(2, H, W, N), 2),  # images lie at the distance of their rows
    "images apart": (lambda: drawn((2, H + 1, W, N), "int32", 3)[:, :H], lambda: zeros(2, H, W, N), 2),
    "one row of an image for all": (lambda: np.broadcast_to(drawn((W, N), "int32", 3), (2, H, W, N)), lambda: zeros(2, H, W, N), 2),
    "results apart": (lambda: drawn((2, H, W, N), "int32", 3), lambda: zeros(2, H, W + 1, N)[:, :, :W], 2),
    "an image of one row": (lambda: drawn((2, 1, W, N), "int32", 3), lambda: zeros(2, 1, W, N), 0),
    "one pixel": (lambda: drawn((1, 1, 1, N), "int32", 3), lambda: zeros(1, 1, 1, N), 0),
    "none": (lambda: drawn((2, 0, W, N), "int32", 3), lambda: zeros(2, 0, W, N), 0),
}


@pytest.mark.parametrize("case", CASES)
def test_rows_that_are_read_at_one_distance_have_no_tables(case):
    rest, out, tables = CASES[case]
    for target in (V3, HOST):
        text, got, want = computed(rest().shape[:3], rest(), out(), target=target)
        assert np.array_equal(got, want), (case, target.name)
        assert text.count("scratch place") == tables, (case, text)


def test_an_epilogue_that_reads_coordinates_keeps_them():
    rest = drawn((2, H, W, N), "int32", 3)
    for target in (V3, HOST):
        text, got, want = computed((2, H, W), rest, zeros(2, H, W, N), Row((2, H, W, N)), target)
        assert np.array_equal(got, want + np.arange(H)[:, None, None])
        assert text.count("scratch place") == 3


@pytest.mark.parametrize("k, chunks", [(1, 1), (255, 1), (257, 1), (768, 1), (769, 2), (1537, 3)])
def test_sums_of_pairs_are_cut_into_few_chunks(k, chunks):
    """Partial sums of 32 bits that are stored and read again take time; with 256 terms to a chunk there were six for 1537."""
    rest = drawn((1, 2, W, N), "int32", 3)
    for target in (V3, HOST):
        text, got, want = computed((1, 2, W), rest, zeros(1, 2, W, N), target=target, k=k)
        assert np.array_equal(got, want), (k, target.name)
    assert (f"for chunk in range(0, {chunks}," in text) == (chunks > 1)
