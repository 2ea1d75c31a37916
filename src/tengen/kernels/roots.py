"""Roots of unity, rounded correctly: cosines and sines of rational parts of a turn, for tables of constants.

Angles are reduced in integers to an eighth of a turn; there Taylor's series is summed in pairs of float64, about 104 bits, with NumPy's
additions and multiplications alone, so that every machine makes the same table.
"""

from __future__ import annotations

import functools
from fractions import Fraction
from math import factorial

import numpy as np

Pair = tuple[np.ndarray, np.ndarray]  # a sum of two float64, the first of which is it rounded
TERMS = 14  # of the series: the first one that is left out is less than 2^-104


def _two_sum(a: np.ndarray, b: np.ndarray) -> Pair:
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def _split(a: np.ndarray) -> Pair:
    """a as a sum of two floats of 26 bits (Dekker)."""
    t = a * 134217729.0
    high = t - (t - a)
    return high, a - high


def _two_product(a: np.ndarray, b: np.ndarray) -> Pair:
    p = a * b
    (ah, al), (bh, bl) = _split(a), _split(b)
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


def _multiply(a: Pair, b: Pair) -> Pair:
    p, e = _two_product(a[0], b[0])
    return _two_sum(p, e + (a[0] * b[1] + a[1] * b[0]))


def _add(a: Pair, b: Pair) -> Pair:
    s, e = _two_sum(a[0], b[0])
    return _two_sum(s, e + (a[1] + b[1]))


def _pair(x: Fraction) -> Pair:
    high = float(x)
    return np.float64(high), np.float64(float(x - Fraction(high)))


# 2 pi to 60 digits
TURN = Fraction(6283185307179586476925286766559005768394338798750211641949889, 10**60)


def _eighth(r: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """cos and sin of r / n turns, for integers 0 <= r <= n / 8."""
    q = r / n
    p, e = _two_product(q, np.float64(n))
    angle = _multiply((q, ((r - p) - e) / n), _pair(TURN))
    square = _multiply(angle, angle)
    found = []
    for odd in (0, 1):
        total: Pair = (np.zeros_like(r), np.zeros_like(r))
        for k in reversed(range(TERMS)):
            total = _add(_multiply(total, square), _pair(Fraction((-1) ** k, factorial(2 * k + odd))))
        found.append(_multiply(total, angle) if odd else total)
    return found[0][0], found[1][0]


@functools.lru_cache(maxsize=64)
def roots_of_unity(n: int) -> np.ndarray:
    """exp(-2 pi i k / n) for k = 0 .. n - 1, as cosines and minus sines.

    Shapes: (2, n), float64, read-only. Numerics: correctly rounded but for ties that 104 bits do not decide.

    >>> roots_of_unity(4).tolist()
    [[1.0, 0.0, -1.0, 0.0], [0.0, -1.0, 0.0, 1.0]]
    """
    k = np.arange(n, dtype=np.int64)
    octant, rest = np.divmod(8 * k, n)
    odd = octant % 2 == 1
    eighths = np.where(odd, n - rest, rest)  # 8 times the distance to the nearest multiple of a quarter turn, in n-ths
    each, which = np.unique(eighths, return_inverse=True)
    cos, sin = (v[which] for v in _eighth(each.astype(np.float64), 8 * n))
    quarter = (octant + 1) // 2 % 4
    sin = np.where(odd, -sin, sin)
    turned = [np.choose(quarter, [cos, -sin, -cos, sin]), np.choose(quarter, [sin, cos, -sin, -cos])]
    table = np.stack([turned[0], -turned[1]]) + 0.0  # no -0.0
    table.flags.writeable = False
    return table
