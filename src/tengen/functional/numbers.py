"""Parts of floats, and common divisors of integers.

Numerics: exact, but for `ldexp`, whose product is rounded once.
"""

from __future__ import annotations

import math

from tengen import functional as F
from tengen.base.errors import DTypeError
from tengen.base.record import NamedTuple
from tengen.ops.calls import all_with_line
from tengen.tensor import Tensor


class Frexp(NamedTuple):
    """mantissa: in [0.5, 1) in magnitude, or 0. exponent: int32."""

    mantissa: Tensor
    exponent: Tensor


def frexp(input: Tensor) -> Frexp:
    """mantissa 2^exponent of floats; a NaN and an infinity stay, with exponent 0. Gradients flow through the mantissa.

    Errors: DTypeError for integers

    >>> [t.tolist() for t in frexp(Tensor([8.0, -0.75, 0.0]))]
    [[0.5, -0.75, 0.0], [4, 0, 0]]
    """
    if not input.dtype.is_float:
        raise DTypeError(f"frexp takes floats, got {input.dtype}")
    x = input.detach()
    if x.dtype != "float64" and x.dtype != "float32":
        m, e = frexp(x.astype("float32"))
        return Frexp(m.astype(x.dtype), e)
    steps = [2**i for i in range(9 if x.dtype == "float64" else 6, -1, -1)]
    special = F.logical_or(F.equal(x, 0), F.logical_not(F.isfinite(x)))
    m = F.where(special, 1.0, F.abs(x))
    exponent = F.ones(x.shape, dtype="int32")
    for k in steps:  # until it is below 2: products with powers of two are exact
        far = m >= 2.0**k
        m, exponent = F.where(far, m * 2.0**-k, m), exponent + F.where(far, k, 0).astype("int32")
    for k in [steps[0], *steps]:  # until it is at least 1; subnormal numbers need the largest step twice
        far = m < 2.0 ** (1 - k)
        m, exponent = F.where(far, m * 2.0**k, m), exponent - F.where(far, k, 0).astype("int32")
    exponent = F.where(special, 0, exponent).astype("int32")
    found = F.where(special, x, F.copysign(m * 0.5, x))
    if not input.requires_grad:
        return Frexp(found, exponent)
    half = F.pow(Tensor(2.0, dtype=x.dtype), -(exponent // 2).astype(x.dtype))  # of two parts, none of which overflows
    rest = F.pow(Tensor(2.0, dtype=x.dtype), -(exponent - exponent // 2).astype(x.dtype))
    return Frexp(F.straight_through(found, input * half * rest), exponent)


def ldexp(input: Tensor, other: Tensor) -> Tensor:
    """input 2^other, in the dtype of the input; integers become float32."""
    x = input if input.dtype.is_float else input.astype("float32")
    return x * F.pow(Tensor(2.0, dtype=x.dtype), other.astype(x.dtype))


def gcd(input: Tensor, other: Tensor) -> Tensor:
    """The greatest common divisor of integers, not negative; of 0 and 0 it is 0.

    Errors: DTypeError for floats

    >>> gcd(Tensor([12, -18, 0]), Tensor([8, 27, 5])).tolist()
    [4, 9, 5]
    """
    x, y = _integers("gcd", input, other)
    a, b = F.abs(x), F.abs(y)
    bits = {"int8": 8, "uint8": 8, "int16": 16, "uint16": 16, "int32": 32, "uint32": 32}.get(str(a.dtype), 64)
    for _ in range(math.ceil(bits * 1.4405) + 2):  # Euclid's steps are the most for neighbours among Fibonacci's numbers
        safe = F.where(F.equal(b, 0), 1, b).astype(a.dtype)
        a, b = F.where(F.equal(b, 0), a, b), F.where(F.equal(b, 0), b, F.mod(a, safe))
    return a


def lcm(input: Tensor, other: Tensor) -> Tensor:
    """The least common multiple of integers, not negative; 0 where one is 0. Errors: DTypeError for floats"""
    x, y = _integers("lcm", input, other)
    divisor = gcd(x, y)
    return F.abs(F.floor_div(x, F.where(F.equal(divisor, 0), 1, divisor).astype(x.dtype)) * y)


def _integers(what: str, input: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    x, y = input, other
    if any(t.dtype.is_inexact or t.dtype == "bool" for t in (x, y)):
        raise DTypeError(f"{what} takes integers, got {x.dtype} and {y.dtype}")
    if x.dtype != y.dtype:
        wide = F.add(x, y).dtype
        x, y = x.astype(wide), y.astype(wide)
    return F.broadcast_tensors(x, y)


__all__ = ["frexp", "gcd", "lcm", "ldexp"]
all_with_line(globals(), __all__)
