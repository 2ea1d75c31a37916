"""Pointwise kernels: several vectors side by side, and what is one value for a row, have the bits of one vector after another."""

from __future__ import annotations

import numpy as np
import pytest
from launching import array_of, run
from test_reduce import data, same

from tengen.base.dtype import float32
from tengen.codegen.targets import Target
from tengen.kernels.lowering import Array, Lowering, contiguous_strides
from tengen.kernels.pointwise import pointwise
from tengen.kernels.source import Elementwise, Leaf, Literal, Source, broadcast
from tengen.loops.lang import LANES, call, var
from tengen.loops.text import print_kernel
from tengen.ops.division import Loop


def computed(x, b, target):
    """exp(x - b) * exp(b), and the kernel's text."""
    (a, am), (c, cm) = array_of(x, "x"), array_of(b, "b")
    o, om = array_of(np.full_like(x, 7), "o")
    row = Leaf(c)
    scale = broadcast(Elementwise(lambda v: call("exp", v), [row], c.shape, c.dtype), x.shape)
    y = Elementwise(lambda v, w, s: call("exp", v - w) * s, [Leaf(a), broadcast(row, x.shape), scale], x.shape, a.dtype)
    lo = Lowering(target)
    pointwise(lo, [y], [o])
    run(lo, {"x": am, "b": cm, "o": om})
    return om.reshape(x.shape), print_kernel(lo.launches[0].kernel)


@pytest.mark.parametrize("columns", [16, 63, 64, 150])
def test_vectors_side_by_side_have_the_bits_of_one(columns):
    x, b = np.clip(data((3, columns)), -5, 5), np.clip(data((3, 1)), -5, 5)
    alone, text = computed(x, b, Target.named("x86-64"))
    assert f", {LANES})" in text or columns < 2 * LANES
    for target, vectors in (("x86-64-v3", 2), ("x86-64-v4", 4)):
        wide, text = computed(x, b, Target.named(target))
        assert same(wide, alone)
        side_by_side = any(f"for i in range(0, {stop}, {vectors * LANES}):" in text for stop in range(LANES, columns + 1, LANES))
        assert side_by_side == (columns >= vectors * LANES), f"{vectors} vectors for {target}"


def test_what_is_one_value_for_a_row_is_computed_once():
    x, b = np.clip(data((3, 24)), -5, 5), np.clip(data((3, 1)), -5, 5)
    text = computed(x, b, Target.named("x86-64-v3"))[1]
    row = text[text.index("for row") : text.index("for i")]
    assert text.count("exp(") == 3 and row.count("exp(") == 1, "of the row, of whole vectors, and of the last one"


def test_loops_that_run_once_are_not_written():
    """Of open extents: dense arrays are one row, which is one loop over vectors; rows of a broadcast operand are one plane."""
    n, m = var("n"), var("m")
    for shape, strides, loops in (((n,), (1,), 1), ((n, m), (m, 1), 1), ((n, m), (0, 1), 2), ((3, n, m), (m, 0, 1), 3)):
        lo = Lowering(Target.named("x86-64-v3"), [n, m])
        a, o = Array("a", float32, shape, strides), Array("o", float32, shape, contiguous_strides(shape))
        pointwise(lo, [Leaf(a)], [o])
        assert print_kernel(lo.launches[0].kernel).count("for ") == loops, (shape, strides)


@pytest.mark.parametrize("kind", [Elementwise, Loop])
def test_a_part_that_several_are_made_of_stays_one_when_it_is_broadcast(kind):
    """Each of 60 values reads the one before twice: as a tree they would be 2^60."""
    s: Source = Literal(1.0, float32, ())
    for _ in range(60):
        s = kind(lambda *operands: operands[-1], [s, s], (), float32)
    s, depth = broadcast(s, (3, 4)), 0
    while isinstance(s, Elementwise):
        assert s.shape == (3, 4) and s.operands[0] is s.operands[1]
        s, depth = s.operands[0], depth + 1
    assert depth == 60
