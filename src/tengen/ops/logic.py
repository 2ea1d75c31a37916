"""Comparisons, truth, tests of floats, and bits: elementwise ops without gradients.

Operands are promoted as in arithmetic (`base.dtype.promote`); comparisons and logical ops give bool.
"""

from __future__ import annotations

import math

import numpy as np

from tengen.base.dtype import bool_
from tengen.loops import lang
from tengen.loops.lang import cast, const
from tengen.ops.define import elementwise


@elementwise(result="bool", kinds="fiub", functional="elemwise", operator="eq")
def equal(x, y):
    """x == y, a bool tensor; false where either is NaN."""
    return lang.equal(x, y)


equal.reference(np.equal)


@elementwise(result="bool", kinds="fiub", functional="elemwise", operator="ne")
def not_equal(x, y):
    """x != y, a bool tensor; true where either is NaN."""
    return lang.not_equal(x, y)


not_equal.reference(np.not_equal)


@elementwise(result="bool", kinds="fiub", functional="elemwise", operator="lt")
def less(x, y):
    """x < y, a bool tensor; false where either is NaN."""
    return x < y


less.reference(np.less)


@elementwise(result="bool", kinds="fiub", functional="elemwise", operator="le")
def less_equal(x, y):
    """x <= y, a bool tensor; false where either is NaN."""
    return x <= y


less_equal.reference(np.less_equal)


@elementwise(result="bool", kinds="fiub", functional="elemwise", operator="gt")
def greater(x, y):
    """x > y, a bool tensor; false where either is NaN."""
    return x > y


greater.reference(np.greater)


@elementwise(result="bool", kinds="fiub", functional="elemwise", operator="ge")
def greater_equal(x, y):
    """x >= y, a bool tensor; false where either is NaN."""
    return x >= y


greater_equal.reference(np.greater_equal)


@elementwise(result="bool", kinds="fiub", functional="elemwise")
def logical_and(x, y):
    """Whether both are true (not zero; a NaN is true)."""
    return cast(x, bool_) & cast(y, bool_)


logical_and.reference(np.logical_and)


@elementwise(result="bool", kinds="fiub", functional="elemwise")
def logical_or(x, y):
    """Whether either is true (not zero; a NaN is true)."""
    return cast(x, bool_) | cast(y, bool_)


logical_or.reference(np.logical_or)


@elementwise(result="bool", kinds="fiub", functional="elemwise")
def logical_xor(x, y):
    """Whether exactly one is true (not zero; a NaN is true)."""
    return cast(x, bool_) ^ cast(y, bool_)


logical_xor.reference(np.logical_xor)


@elementwise(result="bool", kinds="fiub", functional="elemwise")
def logical_not(x):
    """Whether x is zero (a NaN is not)."""
    return ~cast(x, bool_)


logical_not.reference(np.logical_not)


@elementwise(result="bool", kinds="fiub", functional="elemwise math", aliases={"inp": "x"})
def isnan(x):
    """Whether x is NaN; no integer is."""
    return lang.not_equal(x, x)


isnan.reference(np.isnan)


@elementwise(result="bool", kinds="fiub", functional="elemwise math", aliases={"inp": "x"})
def isinf(x):
    """Whether x is an infinity; no integer is."""
    return lang.equal(lang.unary("abs", x), const(math.inf, x.dtype)) if x.dtype.is_float else const(False, bool_, x.lanes)


isinf.reference(np.isinf)


@elementwise(result="bool", kinds="fiub", functional="elemwise")
def isfinite(x):
    """Whether x is neither an infinity nor NaN; every integer is."""
    return lang.unary("abs", x) < math.inf if x.dtype.is_float else const(True, bool_, x.lanes)


isfinite.reference(np.isfinite)


@elementwise(kinds="iub", functional="elemwise", operator="and")
def bitwise_and(x, y):
    """The bits that are in both x and y."""
    return x & y


bitwise_and.reference(np.bitwise_and)


@elementwise(kinds="iub", functional="elemwise", operator="or")
def bitwise_or(x, y):
    """The bits that are in x or y."""
    return x | y


bitwise_or.reference(np.bitwise_or)


@elementwise(kinds="iub", functional="elemwise", operator="xor")
def bitwise_xor(x, y):
    """The bits that are in exactly one of x and y."""
    return x ^ y


bitwise_xor.reference(np.bitwise_xor)


@elementwise(kinds="iub", functional="elemwise", operator="invert")
def bitwise_not(x):
    """All bits turned over; of a bool, its negation."""
    return ~x


bitwise_not.reference(np.invert)


@elementwise(kinds="iu", domain=(0, 7), functional="elemwise", operator="lshift")
def left_shift(x, y):
    """x shifted left by y bits; by the width or more, or by a negative number: 0."""
    return x << y


left_shift.reference(np.left_shift)


@elementwise(kinds="iu", domain=(0, 7), functional="elemwise", operator="rshift")
def right_shift(x, y):
    """x shifted right by y bits, with its sign; by the width or more, or by a negative number: 0, or -1 for negative x."""
    return x >> y


right_shift.reference(np.right_shift)
