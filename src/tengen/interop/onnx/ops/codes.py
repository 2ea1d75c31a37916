"""Numbers of at most 8 bits that no kernel knows, float8 and 4-bit ones: their codes and what they mean.

A code becomes a number by a table of all codes. A number becomes a code by a search among the bounds between neighbouring numbers,
which rounds to the nearest, ties to the even code, as the formats' standards say. NaN, infinity and what is too large follow ONNX's
table for Cast.
"""

from __future__ import annotations

import functools

import numpy as np

import tengen.functional as F
from tengen.interop.onnx.values import BITS, Coded
from tengen.tensor import Tensor


@functools.lru_cache(32)
def meanings(dtype: np.dtype) -> np.ndarray:
    """The float32 number of each code, 256 in all: the highest bits of those with fewer say nothing."""
    return (np.arange(256) % (1 << BITS.get(dtype.name, 8))).astype(np.uint8).view(dtype).astype(np.float32)


def decode(v: Coded) -> Tensor:
    """The numbers as float32."""
    return F.take(Tensor(meanings(v.dtype)), v.codes.astype("int32"))


@functools.lru_cache(32)
def bounds(dtype: np.dtype) -> tuple[np.ndarray, np.ndarray, float]:
    """Bounds (float64) between neighbouring finite numbers in rising order; the codes, one more: a number belongs to the code whose
    place is the number of bounds at or below it; and the bound from which on a number is too large. -0 has no place."""
    numbers = meanings(dtype)[: 1 << BITS.get(dtype.name, 8)].astype(np.float64)
    codes = np.flatnonzero(np.isfinite(numbers) & ~((numbers == 0) & np.signbit(numbers)))
    codes = codes[np.argsort(numbers[codes])]
    values = np.append(numbers[codes], 2 * numbers[codes[-1]] - numbers[codes[-2]])
    middle = (values[1:] + values[:-1]) / 2
    odd = codes % 2 == 1  # a tie belongs to the even neighbour, the upper one where the lower is odd
    odd[: np.searchsorted(values, 0)] = codes[1 : 1 + np.searchsorted(values, 0)] % 2 == 0  # codes of negative numbers fall
    middle = np.where(odd, middle, np.nextafter(middle, np.inf))
    return middle[:-1], codes.astype(np.uint8), float(middle[-1])


def encode(x: Tensor, dtype: np.dtype, saturate: bool, round_mode: str = "up") -> Coded:
    """Numbers as codes. saturate: what is too large, and infinity, becomes the largest number; else infinity or NaN."""
    if dtype.name in ("int4", "uint4", "int2", "uint2"):
        whole = (F.round(x) if x.dtype.is_inexact else x).astype("int32")
        return Coded(F.bitwise_and(whole, (1 << BITS[dtype.name]) - 1).astype("uint8"), dtype)
    if dtype.name == "float8_e8m0fnu":
        return Coded(exponents(x, saturate, round_mode), dtype)
    table, codes, most = bounds(dtype)
    wide = x.astype("float64")
    found = F.take(Tensor(codes), F.searchsorted(Tensor(table), wide, right=True).astype("int32")).astype("int32")
    minus_zero, up, down, nan = np.array([-0.0, np.inf, -np.inf, np.nan], np.float32).astype(dtype).view(np.uint8).tolist()
    found = F.where(F.logical_and(F.equal(found, 0), F.signbit(x)), minus_zero, found)
    if not saturate:
        found = F.where(F.greater_equal(wide, most), up, F.where(F.less_equal(wide, -most), down, found))
    return Coded(F.where(F.isnan(x), nan, found).astype("uint8"), dtype)


def exponents(x: Tensor, saturate: bool, round_mode: str) -> Tensor:
    """float8e8m0: the exponent of a power of two alone."""
    size = F.abs(x.astype("float64"))
    powers = 2.0 ** np.arange(-127, 128, dtype=np.float64)
    match round_mode:
        case "up":
            place = F.searchsorted(Tensor(powers), size, right=False)
        case "down":
            place = F.searchsorted(Tensor(powers), size, right=True) - 1
        case _:  # nearest; a tie goes up
            place = F.searchsorted(Tensor(powers[:-1] * 1.5), size, right=True)
    place = F.clip(place.astype("int32"), 0, 254 if saturate else 255)
    return F.where(F.isnan(x), 255, place).astype("uint8")
