"""Dot products of the kernel language: of groups of two or four terms, each group in 32 bits, added to a total.

They were defined by instructions that processors have; elsewhere they are written out, with the same bits.
"""

from __future__ import annotations

from tengen.base.dtype import uint32
from tengen.base.errors import VerifyError
from tengen.loops.lang import DOTS, LANES, QUADS, Expr, bitcast, cast, const, expr, splat


def dot2(total: Expr, a: Expr, b: Expr) -> Expr:
    """The float32 `total` plus a dot product of two terms; `a` and `b` are uint32s that hold two bfloat16 each, the first in the
    low half (what a load of groups gives).

    With flush(x) a zero of x's sign where |x| < 2^-126, else x: every operand is flushed; then the product of the second
    elements is added by an fma, flushed, and then that of the first, flushed. A result counts as small if it is when rounded
    with an exponent of any size. This is x86's VDPBF16PS, to the bit.
    """
    return dot("dot2", total, a, b)


def dot2i(total: Expr, a: Expr, b: Expr) -> Expr:
    """The int32 `total` plus a dot product of two terms; `a` and `b` are uint32s that hold two int16 each, the first in the low
    half (what a load of groups gives). All in int32, which wraps: this is x86's VPDPWSSD, and VPMADDWD with an addition.
    """
    return dot("dot2i", total, a, b)


def dot4i(total: Expr, a: Expr, b: Expr) -> Expr:
    """The int32 `total` plus a dot product of four terms; `a` and `b` are uint32s that hold four int8 each, the first in the lowest
    byte (what a load of groups gives). All in int32, which wraps: this is Arm's SDOT.
    """
    return dot("dot4i", total, a, b)


def dot4n(total: Expr, a: Expr, b: Expr) -> Expr:
    """`dot4i`, where the elements of `b` have a narrow range, -127 to 127: one of -128 counts as -127. A sum of two products then fits
    in an int16 as |a| by b with the sign of a: this is x86's VPABSB, VPSIGNB, VPMADDUBSW and VPMADDWD by ones, and an addition."""
    return dot("dot4n", total, a, b)


def dot4u(total: Expr, a: Expr, b: Expr) -> Expr:
    """`dot4i`, where `a` holds four uint8, and `b` four int8: x86's VPDPBUSD, and Arm's USDOT."""
    return dot("dot4u", total, a, b)


def dot4s(total: Expr, a: Expr, b: Expr) -> Expr:
    """`dot4u`, where the sum of the first two products saturates to an int16, and that of the last two: x86's VPMADDUBSW, whose results
    VPMADDWD by ones adds. It is `dot4u` of any uint8 where two weights of one sign add up to at most 128."""
    return dot("dot4s", total, a, b)


def dot2h(total: Expr, a: Expr, b: Expr) -> Expr:
    """Two dot products of two terms, each added to an int16 half of the uint32 `total`, the first to the low one. `a` holds four uint8, of
    which the lowest 7 bits count, and `b` four int8. All in int16, which wraps: of 7 bits two products have a sum that fits, so this is x86's
    VPMADDUBSW, which would saturate, and VPADDW. `dot2i` by two ones adds the halves to an int32.
    """
    return dot("dot2h", total, a, b)


def quad4i(total: Expr, a: Expr, b: Expr) -> Expr:
    """Four dot products of eight terms in each quad: of two rows by two columns. The int32 lane 2 i + j of a quad of `total` gets row i of `a`
    by column j of `b`. Row i is the uint32 lanes 2 i and 2 i + 1 of the quad of `a`, which hold four int8 each, the first in the lowest byte;
    column j those of the quad of `b`. All in int32, which wraps: this is Arm's SMMLA.
    """
    return dot("quad4i", total, a, b)


def quad4u(total: Expr, a: Expr, b: Expr) -> Expr:
    """`quad4i`, where `a` holds uint8, and `b` int8: Arm's USMMLA."""
    return dot("quad4u", total, a, b)


def dot(op: str, total: Expr, a: Expr, b: Expr) -> Expr:
    xs, wanted = (total, a, b), DOTS[op]
    lanes = LANES if op in QUADS else max(x.lanes for x in xs)
    if tuple(x.dtype for x in xs) != (wanted, uint32, uint32):
        raise VerifyError(f"{op} takes {wanted}, uint32 and uint32, got {', '.join(str(x.dtype) for x in xs)}")
    return expr(op, tuple(splat(x) if lanes > 1 else x for x in xs), wanted, lanes)


def pair(first: Expr, second: Expr) -> Expr:
    """Two bfloat16, or two int16, as the uint32 that `dot2` or `dot2i` takes."""
    low, high = (cast(bitcast(x, "uint16"), uint32) for x in (first, second))
    return low | (high << const(16, uint32))
