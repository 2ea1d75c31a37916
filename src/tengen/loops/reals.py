"""Real numbers that no float holds, and how a kernel gets them: as a sum of floats.

Apart from `floats.py`, since fractions are slow to load and only kernels with math functions need them.
"""

from __future__ import annotations

import math
from fractions import Fraction

from tengen.base.dtype import DType, float32

# To more digits than any use here needs.
LN2 = Fraction("0.6931471805599453094172321214581765680755001343602552541206800094933936")
LOG2_E = Fraction("1.4426950408889634073599246810018921374266459541529859341354494069311092")
LOG10_E = Fraction("0.4342944819032518276511289189166050822943970058036665661144537831658646")
LOG10_2 = Fraction("0.3010299956639811952137388947244930267681898814621085413104274611271081")
PI = Fraction("3.1415926535897932384626433832795028841971693993751058209749445923078164")


def split_constant(value: Fraction, dt: DType, parts: int = 2) -> tuple[float, ...]:
    """A real number as an unevaluated sum of numbers of `dt`, the largest first."""
    out = []
    for _ in range(parts):
        digits = 24 if dt is float32 else 53
        if not value:
            out.append(0.0)
            continue
        e = math.frexp(float(value))[1]
        head = Fraction(round(value * Fraction(2) ** (digits - e))) / Fraction(2) ** (digits - e)
        out.append(float(head))
        value -= head
    return tuple(out)
