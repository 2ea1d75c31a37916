"""Numbers that are the same on every machine and with every version of NumPy: a counter, integers, and scaling by powers of two.

`Exact` has the methods of `numpy.random.Generator` that sample inputs use. All floats that it draws are multiples of 2^-20, and what
it computes of them is rounded by single IEEE operations, so nothing depends on how NumPy was built.
"""

from __future__ import annotations

import math

import numpy as np

BITS = 20


class Exact:
    """Steele, Lea and Flood's SplitMix64 (OOPSLA 2014) over a counter."""

    def __init__(self, seed: int):
        self._state = np.uint64(seed)

    def bits(self, n: int) -> np.ndarray:
        """The next n numbers of 64 bits."""
        with np.errstate(over="ignore"):
            z = self._state + np.uint64(0x9E3779B97F4A7C15) * np.arange(1, n + 1, dtype=np.uint64)
            if n:
                self._state = z[-1]
            z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))

    def random(self, size=None) -> np.ndarray:
        """In [0, 1)."""
        u = (self.bits(_count(size)) >> np.uint64(64 - BITS)).astype(np.float64) * 2.0**-BITS
        return u.reshape(_shape(size))[()]

    def uniform(self, low=0.0, high=1.0, size=None) -> np.ndarray:
        return low + (high - low) * self.random(size)

    def standard_normal(self, size=None) -> np.ndarray:
        """A sum of twelve uniform numbers, less its mean: exact, and near enough to a normal distribution."""
        total = self.random(size)
        for _ in range(11):
            total = total + self.random(size)
        return total - 6.0

    def normal(self, loc=0.0, scale=1.0, size=None) -> np.ndarray:
        return loc + scale * self.standard_normal(size)

    def integers(self, low, high=None, size=None, dtype=np.int64, endpoint=False) -> np.ndarray:
        low, high = (0, low) if high is None else (low, high)
        spread = np.uint64(high - low + endpoint)
        return ((self.bits(_count(size)) % spread).astype(np.int64) + low).astype(dtype).reshape(_shape(size))[()]

    def permutation(self, x) -> np.ndarray:
        a = np.arange(x) if isinstance(x, (int, np.integer)) else np.asarray(x)
        return a[np.argsort(self.bits(len(a)), kind="stable")]

    def choice(self, a, size=None, replace=True) -> np.ndarray:
        a = np.arange(a) if isinstance(a, (int, np.integer)) else np.asarray(a)
        return a[self.integers(0, len(a), size)] if replace else self.permutation(a)[: _count(size)].reshape(_shape(size))


def _shape(size) -> tuple[int, ...]:
    return () if size is None else (size,) if isinstance(size, (int, np.integer)) else tuple(size)


def _count(size) -> int:
    return math.prod(_shape(size))


def coarse(a: np.ndarray) -> np.ndarray:
    """The same rounded to 20 bits: where a sample computed something of what was drawn (an exponential, say), the last bits of that
    are NumPy's, and differ between its builds."""
    if a.dtype.kind != "f":
        return a
    with np.errstate(invalid="ignore"):
        m, e = np.frexp(a)
        return np.where(np.isfinite(a), np.ldexp(np.round(np.ldexp(m, BITS)), e - BITS), a).astype(a.dtype)
