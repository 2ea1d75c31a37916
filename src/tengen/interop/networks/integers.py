"""Numbers of 8 bits with zero points, as operands of the exact products of the house (`matmul_int`, `conv_int`)."""

from __future__ import annotations

from collections.abc import Sequence

import tengen.functional as F
from tengen.base.dtype import int8, int16, uint8
from tengen.interop.networks.places import product
from tengen.loops.lang import as_int
from tengen.tensor import Tensor

NARROW = (int8, uint8)


def factor(t: Tensor, zero: Tensor | None) -> Tensor:
    """int8 or uint8 numbers with their zero point (None: 0) taken off: as they are, or as int16 of 9 bits."""
    return t if zero is None else F.centre_codes(t, zero)


def in_int32(x: Tensor, y: Tensor, terms: Sequence) -> bool:
    """Whether both are what `factor` gives, and int32 is known to hold sums of so many products."""
    if any(t.dtype not in (*NARROW, int16) for t in (x, y)):
        return False
    largest, count = [128 if t.dtype is int8 else 255 for t in (x, y)], as_int(product(terms))
    return count is not None and count * largest[0] * largest[1] < 1 << 31
