"""The fixed-point arithmetic of TFLite's reference kernels: multipliers of 31 bits with a shift, and gemmlowp's functions.

Integers are int64 here, in NumPy arrays (tables that are made when a network is recorded) and in Tensors (what a program computes) alike:
only operators that both have are used. Every value fits 32 bits where the reference has 32, so nothing saturates that does not there.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tengen.tensor import Tensor

MOST = (1 << 31) - 1  # the largest integer of 32 bits
Integers = Any  # an int64 array or Tensor


def quantised_multiplier(real: float, most: int = 30) -> tuple[int, int]:
    """A factor as (m, shift): about real = m 2^(shift - 31), with m of 31 bits.

    Errors: ValueError for one that is not finite, or of 2^most and more.
    """
    part, shift = math.frexp(real) if math.isfinite(real) else (0.0, most + 1)
    if shift > most:
        raise ValueError(f"a factor of {real} between scales")
    m = math.floor(abs(part) * (1 << 31) + 0.5)
    if m == 1 << 31:
        m, shift = m // 2, shift + 1
    return (0, 0) if shift < -31 else (m if part >= 0 else -m, shift)


def multipliers(reals: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same for several: two int64 arrays."""
    found = [quantised_multiplier(float(r)) for r in reals]
    return np.array([m for m, _ in found], np.int64), np.array([s for _, s in found], np.int64)


def high_product(a: Integers, b: Any, bits: int = 31) -> Integers:
    """a b / 2^bits, to the nearest integer, halves up (gemmlowp's SaturatingRoundingDoublingHighMul, of 32 or 16 bits)."""
    v = a * b
    v = v + (((v >> 63) & (1 - (1 << bits))) + (1 << (bits - 1)))
    return (v + ((v >> 63) & ((1 << bits) - 1))) >> bits


def divided(x: Integers, exponent: Any) -> Integers:
    """x / 2^exponent, to the nearest integer, halves away from zero (RoundingDivideByPOT)."""
    mask = ((exponent & 0) + 1 << exponent) - 1
    rest = x & mask
    threshold = ((x >> 63) & 1) + (mask >> 1)
    return (x >> exponent) + (rest > threshold).astype("int64")


def multiplied(x: Integers, m: Any, shift: Any) -> Integers:
    """x m 2^(shift - 31), rounded in the product and again in the shift. m, shift: numbers, or arrays that broadcast."""
    if isinstance(shift, np.ndarray):
        left, right = tensor_like(x, np.int64(1) << np.maximum(shift, 0)), tensor_like(x, np.maximum(-shift, 0))
        return divided(high_product(x * left, tensor_like(x, m)), right)
    return divided(high_product(x * (1 << max(shift, 0)), m), max(-shift, 0))


def multiplied_once(x: Integers, m: Any, shift: Any) -> Integers:
    """x m 2^(shift - 31), rounded once, halves up: what products of matrices do."""
    if isinstance(shift, np.ndarray):
        total = 31 - shift
        return (x * tensor_like(x, m) + tensor_like(x, np.int64(1) << (total - 1))) >> tensor_like(x, total)
    return (x * m + (1 << (30 - shift))) >> (31 - shift)


def tensor_like(x: Integers, a: np.ndarray) -> Any:
    """An array as what x is."""
    return Tensor(a) if isinstance(x, Tensor) else a


def multiplied_wide(x: Integers, m: Any, shift: Any) -> Integers:
    """The same for sums of 48 bits: by the upper 16 bits of m, rounded once."""
    m, shift = np.asarray(m, np.int64), np.asarray(shift, np.int64)
    short = np.where(m < 0x7FFF0000, (m + (1 << 15)) >> 16, 0x7FFF)
    total = 15 - shift
    if not short.ndim:
        return (x * int(short) + (1 << (int(total) - 1))) >> int(total)
    return (x * tensor_like(x, short) + tensor_like(x, np.int64(1) << (total - 1))) >> tensor_like(x, total)


def shifted(x: Integers, amount: int) -> Integers:
    """x 2^amount within 32 bits (SaturatingRoundingMultiplyByPOT)."""
    if amount <= 0:
        return divided(x, -amount)
    made = x << amount
    return made.clip(-(1 << 31), MOST)


def constant(v: int, bits: int) -> int:
    """A constant of 31 bits after the point, in so many."""
    return (v + (1 << (30 - bits))) >> (31 - bits) if bits < 31 else v


def exp_of_negative(a: Integers, integer_bits: int, bits: int = 31) -> Integers:
    """e^a of numbers up to 0 with so many bits before the point; the result has none (exp_on_negative_values, of 32 or 16 bits)."""
    fraction, one = bits - integer_bits, (1 << bits) - 1
    quarter = 1 << (fraction - 2)
    rest = (a & (quarter - 1)) - quarter
    x = shifted(rest, integer_bits) + (1 << (bits - 3))
    x2 = high_product(x, x, bits)
    x3, x4 = high_product(x2, x, bits), high_product(x2, x2, bits)
    series = divided(high_product(divided(x4, 2) + x3, constant(715827883, bits), bits) + x2, 1)
    y = high_product(x + series, constant(1895147668, bits), bits) + constant(1895147668, bits)
    left = rest - a
    for exponent, factor in zip(range(-2, 5), (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)):
        if integer_bits > exponent:
            has = (left >> (fraction + exponent)) & 1
            y = y + has * (high_product(y, constant(factor, bits), bits) - y)
    return y + (1 - ((a >> 63) & 1)) * (one - y)


def _reciprocal_of_half(a: Integers, bits: int) -> Integers:
    """2 / (1 + a) of numbers from 0 to 1 without integer bits, with two before the point, by Newton's method."""
    half = (a + (1 << bits)) >> 1  # the sum is not below 0
    x = high_product(half, constant(-1010580540, bits), bits) + constant(1515870810, bits)
    for _ in range(3):
        x = x + shifted(high_product(x, (1 << (bits - 2)) - high_product(half, x, bits), bits), 2)
    return x


def reciprocal_of_one_plus(a: Integers, bits: int = 31) -> Integers:
    """1 / (1 + a) of numbers from 0 to 1 without integer bits (one_over_one_plus_x_for_x_in_0_1)."""
    return shifted(_reciprocal_of_half(a, bits), 1)


def sigmoid_16(a: np.ndarray, integer_bits: int) -> np.ndarray:
    """1 / (1 + e^-a) of 16-bit numbers with so many bits before the point, in 15 bits after it (gemmlowp's logistic)."""
    above = np.minimum(reciprocal_of_one_plus(exp_of_negative(-np.abs(a), integer_bits, 15), 15), 32767)
    return np.select([a > 0, a == 0], [above, np.int64(1 << 14)], 32767 - above)


def tanh_16(a: np.ndarray, integer_bits: int) -> np.ndarray:
    """tanh a of 16-bit numbers with so many bits before the point, in 15 bits after it (gemmlowp's tanh)."""
    below = np.minimum(shifted(_reciprocal_of_half(exp_of_negative(-np.abs(a), integer_bits + 1, 15), 15) - (1 << 13), 2), 32767)
    return np.sign(a) * below


def leading_zeros(x: Integers) -> Integers:
    """How many of 32 bits come before the first that is set."""
    total: Any = 32
    for bit in range(32):
        total = total - (x >= (1 << bit)).astype("int64")
    return total


def sigmoid_table() -> np.ndarray:
    """sigmoid(i / 24) in 16 bits, for i from 0 to 255, less half of the error that interpolating makes half-way to the next."""
    at = np.arange(256)
    s = lambda x: 65536 / (1 + np.exp(-x / 24))
    made = np.floor(s(at) - ((s(at) + s(at + 1)) / 2 - s(at + 0.5)) / 2 + 0.5).astype(np.int64)
    made[-1] = 65535
    return made
