"""Building blocks of the math functions: polynomials, exact sums and products, and the parts of a floating-point number.

In and out: expressions of float32 or float64, with one lane or sixteen. Everything is written with `lang.OPS` alone, so the
bits are the same on every target. Read next: `exponential.py`, `trigonometric.py`, `math.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tengen.base.dtype import DType, float32, float64, int32, int64
from tengen.base.record import record
from tengen.loops.lang import Expr, bitcast, cast, const, equal, fma, not_equal, select
from tengen.loops.polynomials import POLYNOMIALS


@record(frozen=True)
class Format:
    """What a function needs to know of a float dtype: its integer twin, its stored significand bits, its exponent bias."""

    dtype: DType
    ints: DType
    bits: int
    bias: int

    @property
    def magic(self) -> float:
        """Adding it to a small number rounds that to an integer, which the low bits of the sum then hold."""
        return 1.5 * 2.0**self.bits

    @property
    def magic_bits(self) -> int:
        """The bits of `magic`."""
        return (self.bias + self.bits << self.bits) | 1 << (self.bits - 1)

    @property
    def tiny(self) -> float:
        """The smallest normal number."""
        return 2.0 ** (1 - self.bias)

    @property
    def key(self) -> str:
        """The name of its polynomial tables."""
        return self.dtype.short


FORMATS = {float32: Format(float32, int32, 23, 127), float64: Format(float64, int64, 52, 1023)}


def format_of(x: Expr) -> Format:
    """The `Format` of an expression's dtype."""
    return FORMATS[x.dtype]


def nearest_integer(x: Expr) -> Expr:
    """The integer nearest to x, halves to even, as an integer of as many bits: where it is at most 2^22 (float64: 2^51) in size."""
    f = format_of(x)
    return bitcast(x + f.magic, f.ints) - const(f.magic_bits, f.ints)


def polynomial(name: str, x: Expr, table: str | None = None) -> Expr:
    """The polynomial `name` of `POLYNOMIALS` at x, by Horner's rule with fma."""
    coefficients = POLYNOMIALS[name][table or format_of(x).key]
    r: Expr | float = coefficients[-1]
    for c in coefficients[-2::-1]:
        r = fma(r, x, c)
    assert isinstance(r, Expr)
    return r


def two_sum(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """a + b as a rounded sum and its exact error."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def fast_two_sum(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """The same, for |a| >= |b| or a = 0."""
    s = a + b
    return s, b - (s - a)


def two_product(a: Expr, b: Expr | float) -> tuple[Expr, Expr]:
    """a * b as a rounded product and its exact error (where that does not underflow)."""
    p = a * b
    return p, fma(a, b, -p)


def power_of_two(n: Expr, f: Format) -> Expr:
    """2^n for an integer expression n in the range of normal exponents, or for its low bits: those that the exponent has room for decide."""
    return bitcast((n + f.bias) << f.bits, f.dtype)


def scale(p: Expr, n: Expr) -> Expr:
    """p * 2^n for p near 1 and n in about twice the range of exponents; rounds once, overflows and underflows as it should. The low
    bits of n decide, as in `power_of_two`, and one more."""
    f = format_of(p)
    half = n >> 1
    return p * power_of_two(half, f) * power_of_two(n - half, f)


def scale_down(p: Expr, n: Expr) -> Expr:
    """`scale` for n <= 0, in fewer steps: the first product is exact, as p is multiplied by too large a power, and the second rounds."""
    f = format_of(p)
    more = (f.bias + 1) // 2
    return p * power_of_two(n + more, f) * 2.0**-more


def with_sign_of(magnitude: Expr, x: Expr) -> Expr:
    """`magnitude`, which is not negative (or a NaN), with the sign bit of x."""
    f = format_of(x)
    return bitcast(bitcast(magnitude, f.ints) | sign_bit(x), f.dtype)


def sign_bit(x: Expr) -> Expr:
    """The sign bit of x alone, in the integer twin of its dtype."""
    f = format_of(x)
    return bitcast(x, f.ints) & -(1 << (f.ints.bits - 1))


def is_nan(x: Expr) -> Expr:
    """Whether x is a NaN."""
    return not_equal(x, x)


def choose(index: Expr, values: Sequence[float], dt: DType) -> Expr:
    """values[index] in dtype `dt`, as a tree of selects."""
    level = [const(v, dt) for v in values]
    bit = 1
    while len(level) > 1:
        even = equal(index & bit, 0)
        level = [a if a is b else select(even, a, b) for a, b in zip(level[::2], level[1::2] + level[-1:])]
        bit *= 2
    return level[0]


def widened(body: Callable[..., Expr]) -> Callable[..., Expr]:
    """A function of float64 made one of float32 as well: computed in float64 and rounded once."""

    def both(*xs: Expr) -> Expr:
        if xs[0].dtype is float64:
            return body(*xs, "f64")
        return cast(body(*(cast(x, float64) for x in xs), "wide"), float32)

    return both
