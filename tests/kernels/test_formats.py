"""The table of formats of dot products: each row against exact arithmetic, and what is asked for that no row has."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from tengen.base.dtype import bfloat16, bool_, float16, float32, float64, int8, int32, uint32
from tengen.base.errors import VerifyError
from tengen.kernels.contraction.contract import contract
from tengen.kernels.contraction.formats import FORMATS, dot_format
from tengen.kernels.lowering import Array, Lowering
from tengen.loops.interp import evaluate
from tengen.loops.lang import GROUPS, LANES, var

BITS = {float32: 24, float64: 53}  # of a significand


def rounded(x: Fraction, bits: int) -> float:
    """To so many bits, to nearest even, with an exponent of any size; exactly zero stays zero."""
    if not x:
        return 0.0
    e = abs(x.numerator).bit_length() - x.denominator.bit_length()
    e -= abs(x) < Fraction(2) ** e
    unit = Fraction(2) ** (e - bits + 1)
    return float(round(x / unit) * unit)


def one_by_one(f, a, b, total):
    """The terms added in order, each rounded once; integers wrap."""
    for x, y in zip(a, b):
        exact = Fraction(x.item()) * Fraction(y.item()) + Fraction(total.item())
        if f.total.is_float:
            total = f.total.numpy.type(rounded(exact, BITS[f.total]))
        else:
            whole, bits = int(exact), f.total.bits
            total = np.array(whole & ((1 << bits) - 1), f"u{bits // 8}").view(f.total.numpy)[()]
    return total


def drawn(d, rng, n):
    """n elements of the dtype that a format stores them in, as exact numbers of a type that holds them."""
    if d.kind in "iu":
        info = np.iinfo(d.numpy)
        return rng.integers(info.min, info.max, n, d.numpy, endpoint=True)
    return (rng.normal(size=n) * 2.0 ** rng.integers(-9, 9, n)).astype(d.numpy)


def held(f, elements):
    """The elements of a group as one number of the format's operand, the first in the lowest bits."""
    if f.group == 1:
        return elements[0]
    bits = f.storage.bits
    parts = elements.view(f"u{bits // 8}").tolist()
    return f.operand.numpy.type(sum(x << bits * i for i, x in enumerate(parts)))


def in_a_quad(f, e, operands, xs, ys, total, rng):
    """The same of a row and a column that lie anywhere among others, in two groups each: the total in their lane of their quad."""
    values = [drawn(uint32, rng, LANES), drawn(uint32, rng, LANES), drawn(f.total, rng, LANES)]
    quad, row, column = rng.integers(0, (4, 2, 2))
    for value, elements, which in ((values[0], xs, row), (values[1], ys, column)):
        at = 4 * quad + 2 * which
        value[at : at + 2] = elements.view("<u4")
    values[2][lane := 4 * quad + 2 * row + column] = total
    return evaluate(e, dict(zip(operands, values)))[lane]


@pytest.mark.parametrize("f", FORMATS, ids=lambda f: f.name)
def test_a_row_multiplies_as_it_says(f):
    rng = np.random.default_rng(3)
    a, b, t = operands = [var(name, d, LANES if f.quads else 1) for name, d in (("a", f.operand), ("b", f.operand), ("t", f.total))]
    e, same = f.multiply_add(a, b, t), []
    assert e.dtype is f.total
    for _ in range(400):
        terms = f.group if f.matched else f.terms
        xs, ys = drawn(f.storage, rng, terms), drawn(f.second, rng, terms)
        if f.matched:  # pairs that fit
            ys = ys // 2
        total = rng.normal() if f.total.is_float else int(rng.integers(-100 if f.total.kind == "i" else 0, 100))
        total = f.total.numpy.type(total)
        wide = [x.astype(f.total.numpy) for x in (xs, ys)]
        with np.errstate(all="ignore"):
            got = in_a_quad(f, e, operands, xs, ys, total, rng) if f.quads else evaluate(e, {a: held(f, xs), b: held(f, ys), t: total})
        same.append(got == one_by_one(f, *wide, total))
    assert all(same) == f.exact
    assert np.mean(same) > 0.3  # also what rounds elsewhere sums the same products


def test_a_group_fills_an_operand():
    for f in FORMATS:
        assert f.operand.size == f.group * f.storage.size == f.group * f.second.size
        assert f.operand is (f.storage if f.group == 1 else GROUPS[f.storage])


def test_one_row_answers_each_question():
    assert len({(f.total, f.precision, f.op) for f in FORMATS}) == len({f.name for f in FORMATS}) == len(FORMATS)
    for d in (float16, bfloat16, float32):
        assert dot_format(d) is dot_format(float32) and dot_format(d).total is float32
        assert dot_format(d, "bfloat16").storage is bfloat16 and dot_format(d, "bfloat16").operand is uint32
    assert dot_format(int8).total is int8


@pytest.mark.parametrize("dtype, precision", [(float64, "bfloat16"), (int8, "bfloat16"), (bool_, "highest"), (float32, "int4")])
def test_what_no_row_has_is_refused(dtype, precision):
    with pytest.raises(VerifyError, match=f"products of {dtype} do not have the precision '{precision}'"):
        dot_format(dtype, precision)


def test_a_group_that_nothing_packs_is_refused():
    """Not computed as if it were pairs."""
    eight = replace(dot_format(int32), name="eights", storage=int8, group=8, operand=uint32)
    arrays = [Array(id, d, shape, (8, 1)) for id, d, shape in (("a", int8, (8, 8)), ("b", int8, (8, 8)), ("c", int32, (8, 8)))]
    with pytest.raises(VerifyError, match="product: nothing packs groups of 8 terms .eights."):
        contract(Lowering(None), *arrays, 0, 1, 1, 1, name="product", format=eight)
