"""Vectors of bytes: chains of operations that a processor has a few instructions for, and LLVM finds more.

    pair(int16(a), int16(b))                                bytes of a and of b side by side, then widened
    int32(a) * 4899 + int32(b) * 9617 + ...                 bytes of a and of b side by side as int16, then `dot2i`
    uint8(nearest_integer(a number, cut off at 0 and 255))  `ROUNDS`: rounded as it becomes an integer, cut off as it becomes a byte
    uint8(rint(a number))                                   the same
    int8(nearest_integer(a number, cut off at -128 and 127))

In: an expression of 16 lanes. Out: the name of its value, or None where it is no such chain. Operands may be variables: what these
stand for is looked up (`Values.meanings`). The bits are those of the operations one by one.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tengen.base.dtype import float32, int16, int32, uint8, uint16, uint32
from tengen.codegen.targets.architecture import ROUNDS, VectorForm
from tengen.codegen.types import literal, taken, type_of
from tengen.loops.floats import FORMATS
from tengen.loops.lang import LANES, Expr, const

if TYPE_CHECKING:
    from tengen.codegen.values import Values

_TO_ZERO = -0.25  # what `ops/quantized.py` cuts off at in place of 0: it is rounded to it
_MAGIC = FORMATS[float32]


def emit(values: Values, e: Expr, forms: Mapping[str, VectorForm]) -> str | None:
    """The name of the value of an "or", a sum or a cast, where it ends such a chain."""
    if e.op == "cast":
        form = forms.get(ROUNDS.get(e.dtype.name, ""))
        x = None if form is None else _rounded(values, e)
        return None if form is None or x is None else form.emit(values, [values.value(x)])
    if e.op == "add":
        return _weighed(values, e, forms) if e.dtype is int32 and "dot2i" in forms else None
    found = _paired(values, e)
    return None if found is None else _side_by_side(values, *found)


def _seen(values: Values, e: Expr) -> Expr:
    """What a variable stands for."""
    while e.op == "var" and e in values.meanings:
        e = values.meanings[e]
    return e


def _number(e: Expr) -> float | int | None:
    """The number in all lanes of an expression, if it is one."""
    e = e.args[0] if e.op == "splat" else e
    return e.attr if e.op == "const" and isinstance(e.attr, (int, float)) else None


# ---- pairs


def _paired(values: Values, e: Expr) -> tuple[Expr, Expr] | None:
    """The two vectors of 8 bits that `dots.pair` of them, as int16, was made of."""
    if e.dtype is not uint32:
        return None
    low, high = (_seen(values, x) for x in e.args)
    if high.op != "shl" or _number(high.args[1]) != 16:
        return None
    first, second = _byte(values, low), _byte(values, _seen(values, high.args[0]))
    return None if first is None or second is None or first.dtype is not second.dtype else (first, second)


def _byte(values: Values, e: Expr) -> Expr | None:
    """The integers of 8 bits that a uint32 has as int16 in its low half."""
    for op, dtype in (("cast", uint32), ("bitcast", uint16), ("cast", int16)):
        if e.op != op or e.dtype is not dtype:
            return None
        e = _seen(values, e.args[0]) if dtype is not int16 else e.args[0]
    return e if e.dtype.is_int and e.dtype.size == 1 else None


def _side_by_side(values: Values, first: Expr, second: Expr) -> str:
    """Bytes of two vectors in turns, and then widened, eight lanes at a time: zipped and widened they are in a few instructions."""
    a, b, ty = values.value(first), values.value(second), type_of(first.dtype, LANES)
    how, half, halves = "sext" if first.dtype.kind == "i" else "zext", LANES // 2, []
    for start in (0, half):
        turns = [start + i // 2 + LANES * (i % 2) for i in range(LANES)]
        zipped = values.pure(f"shufflevector {ty} {a}, {ty} {b}, {taken(turns)}")
        wide = values.convert(how, zipped, ty, type_of(int16, LANES))
        halves.append(values.convert("bitcast", wide, type_of(int16, LANES), type_of(int32, half)))
    each = type_of(int32, half)
    return values.pure(f"shufflevector {each} {halves[0]}, {each} {halves[1]}, {taken(range(LANES))}")


# ---- weighed sums


def _weighed(values: Values, e: Expr, forms: Mapping[str, VectorForm]) -> str | None:
    """A sum of bytes times numbers of 16 bits, and of numbers, two products at a time. int32 wraps, so the terms may stand in any order."""
    terms, rest, left = list[tuple[Expr, int]](), 0, [e]
    while left:
        x = _seen(values, left.pop())
        if x.op == "add":
            left += x.args[::-1]
        elif (n := _number(x)) is not None:
            rest += int(n)
        elif (term := _times(values, x)) is not None:
            terms.append(term)
        else:
            return None
    if len(terms) < 2 or len({x.dtype for x, _ in terms}) > 1:
        return None
    total = literal(int32, const(rest, int32).attr, LANES)
    for (first, n), (second, m) in itertools.zip_longest(terms[::2], terms[1::2], fillvalue=(terms[-1][0], 0)):
        together = values.beside(values.value(first), values.value(second)) if first.dtype is uint8 and "lookup" in forms else None
        weights = literal(uint32, m % (1 << 16) << 16 | n % (1 << 16), LANES)
        total = forms["dot2i"].emit(values, [total, together or _side_by_side(values, first, second), weights])
    return total


def _times(values: Values, e: Expr) -> tuple[Expr, int] | None:
    """(integers of 8 bits, a number of 16 bits) that an int32 is the product of, if it is one."""
    n = 1
    if e.op == "mul":
        numbers = [_number(x) for x in e.args]
        which = 0 if numbers[0] is None else 1
        n, e = int(numbers[1 - which] or 0), _seen(values, e.args[which])
    if e.op != "cast" or not -(1 << 15) <= n < 1 << 15:
        return None
    x = e.args[0]
    return (x, n) if x.dtype.is_int and x.dtype.size == 1 else None


# ---- rounding


def _rounded(values: Values, e: Expr) -> Expr | None:
    """The number that a cast to uint8 or int8 is the nearest integer of, cut off where these end, and 0 of a NaN: a cast saturates."""
    whole = _seen(values, e.args[0])
    if whole.op == "rint" and whole.dtype is float32:
        return whole.args[0]
    # bitcast(x + magic) - its bits
    if whole.op != "sub" or whole.dtype is not int32 or _number(whole.args[1]) != _MAGIC.magic_bits:
        return None
    bits = _seen(values, whole.args[0])
    total = _seen(values, bits.args[0])
    if bits.op != "bitcast" or total.op != "add" or total.dtype is not float32 or _number(total.args[1]) != _MAGIC.magic:
        return None
    if e.dtype is uint8:
        below = _cut_off(values, total.args[0], "lt", 255.0)
        return None if below is None else _cut_off(values, below, "gt", _TO_ZERO)
    below = _cut_off(values, total.args[0], "lt", 127.0)
    number = None if below is None else _seen(values, below)
    if number is None or number.op != "select" or _number(number.args[2]) != 0:  # where it is not equal to itself
        return None
    flag, x = _seen(values, number.args[0]), _cut_off(values, number.args[1], "gt", -128.0)
    return x if flag.op == "eq" and flag.args == (x, x) else None


def _cut_off(values: Values, e: Expr, op: str, bound: float) -> Expr | None:
    """x, where `e` is x where x is less (greater) than a bound, and elsewhere, as for NaN, that."""
    e = _seen(values, e)
    if e.op != "select" or _number(e.args[2]) != bound:
        return None
    flag, x = _seen(values, e.args[0]), e.args[1]
    return x if flag.op == op and flag.args == (x, e.args[2]) else None
