"""Rows times integers in groups: sums are exact by each way of multiplying, also of the largest integers; how rows are shared."""

from __future__ import annotations

import numpy as np
import pytest
from exhaustive import but
from launching import compile_and_run, run
from needs import needs

from tengen.base.dtype import float32, int8, uint8
from tengen.codegen.llvm import emit_module
from tengen.codegen.targets import Target
from tengen.kernels.contraction.grouped_integers import grouped_integers
from tengen.kernels.lowering import Array, Lowering, contiguous_strides
from tengen.loops.lang import as_int
from tengen.loops.statements import For, Load

COLUMNS = 64
HOST = Target.host()
# target -> what multiplies weights of 4 and 2 bits, and of 8, as LLVM names it
WAYS = {"x86-64": ("pmadd.wd", "pmadd.wd"), "x86-64-v3": ("pmadd.ub.sw", "psign.b"), "x86-64-v4": ("pmaddubs.w.512", "pmaddubs.w.512")}

RUN = ["native", *(["x86-64", "x86-64-v3", pytest.param("x86-64-v4", marks=needs("x86-64-v4"))] if HOST.arch == "x86_64" else [])]


def lowered(target: Target, rows: int, terms: int, bits: int, group: int) -> Lowering:
    """The product of rows (rows, terms) by one tile of columns. Arrays: x, codes, scale, out."""
    lo, groups = Lowering(target), terms // group
    shapes = [(rows, terms), (1, terms * bits // 32, COLUMNS, 4), (1, groups, COLUMNS), (rows, COLUMNS)]
    dtypes = [float32, uint8 if bits < 8 else int8, float32, float32]
    arrays = [Array(n, d, s, contiguous_strides(s)) for n, d, s in zip(("x", "codes", "scale", "out"), dtypes, shapes)]
    grouped_integers(lo, *arrays, bits, group)
    return lo


@but(every=3)
@pytest.mark.parametrize("target", RUN)
@pytest.mark.parametrize("bits, group", [(8, 32), (4, 16), (4, 64), (2, 32), (2, 256)])
def test_sums_of_the_largest_integers(target, bits, group):
    """Where all are as large as they can be, and have one sign in the first half of the columns, two in the second."""
    low, high = {8: (-128, 127), 4: (-8, 7), 2: (-2, 1)}[bits]
    terms = 256
    q = np.where(np.arange(COLUMNS) % 2, low, high)[:, None] * np.ones(terms, int)
    q[COLUMNS // 2 :, ::3] = high
    x = np.where(np.arange(terms) % 5 < 4, np.float32(1), np.float32(-1))[None].repeat(3, 0)
    x[1], x[2] = 1, -1
    packed = q if bits == 8 else sum((q[:, i :: 8 // bits] - low) << bits * i for i in range(8 // bits))
    codes = packed.astype("int8" if bits == 8 else "uint8").view(np.uint32).T[..., None].copy().view(np.int8 if bits == 8 else np.uint8)
    memory = {"codes": codes.reshape(-1), "scale": np.ones(terms // group * COLUMNS, np.float32)}
    want = np.zeros((3, COLUMNS), np.float32)
    for at in range(0, terms, group):  # the step of a row that is rounded is 1 / 127
        sums = np.rint(x[:, at : at + group] * 127).astype(int) @ q[:, at : at + group].T
        want += sums.astype(np.float32) * (np.float32(1) / np.float32(127))
    for rows in (3, 1):
        lo = lowered(HOST if target == "native" else Target.named(target), rows, terms, bits, group)
        mine = memory | {"x": x[:rows].reshape(-1), "out": np.zeros(rows * COLUMNS, np.float32)}
        compile_and_run(lo, mine, {})
        np.testing.assert_array_equal(mine["out"].reshape(rows, COLUMNS), want[:rows])
        if group <= 32:
            interpreted = mine | {"out": np.zeros(rows * COLUMNS, np.float32)}
            run(lo, interpreted, {})
            np.testing.assert_array_equal(interpreted["out"], mine["out"])


@pytest.mark.parametrize("bits, group", [(8, 32), (8, 256), (4, 32), (4, 256), (2, 32), (2, 256)])
def test_words_of_one_row_are_read_in_their_order(bits, group):
    """But for those of an iteration, which LLVM orders as it likes: they lie within 512 bytes, and are less than a group's."""
    *_, launch = lowered(HOST, 1, group, bits, group).launches

    def iterations(body):
        """(bytes, number) of iterations of the loops that load words of the matrix."""
        for s in body:
            if isinstance(s, For):
                words = [w.var for w in s.body if isinstance(w, Load) and w.group > 1 and w.var.lanes > 1]
                if words:
                    yield sum(w.lanes * w.dtype.size for w in words), as_int(s.stop - s.start) // s.step
                yield from iterations(s.body)

    [(each, number)] = iterations(launch.kernel.body)
    assert each <= 512 and number > 1


@pytest.mark.parametrize("target", WAYS)
@pytest.mark.parametrize("bits", [8, 4, 2])
def test_what_multiplies(target, bits):
    text = emit_module([launch.kernel for launch in lowered(Target.named(target), 1, 64, bits, 32).launches], Target.named(target))
    assert WAYS[target][bits == 8] in text
    assert ("pmadd.ub.sw" in text or "pmaddubs" in text) == (target != "x86-64")


@pytest.mark.parametrize("rows, pieces", [(1, 1), (40, 8)])
def test_rounding_a_row_is_one_piece(rows, pieces):
    """Which no other thread is woken for: sharing it would take longer than it does."""
    launches = lowered(HOST, rows, 3072, 4, 32).launches
    assert [as_int(launch.kernel.pieces) for launch in launches if launch.kernel.name == "quantise_rows"] == [pieces]
