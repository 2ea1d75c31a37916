"""How far a result may be from its reference, and why: the backward error.

A stable algorithm in a format with unit roundoff u gives the exact result of inputs that are off by a few u. So an element's bound is
K u times (the change of that element when every input is moved by a factor of 1 +- 1, to first order, and its own size): for a sum
of products this is K u times about sqrt(n) |terms|, for an elementwise function K u |x f'(x)|, for a step of a discontinuous
function the height of the step. The change is measured on the reference in float64, with random signs; nothing of it is computed by
the code under test.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

MOVED = 2.0**-22  # of an input, relative: far above what float64 rounds, far below what curves a function
TRIES = 4  # of random signs, of which the largest change counts


def roundoff(dt: np.dtype) -> float:
    """Half of the distance from 1 to the next number."""
    return float(np.finfo(dt).eps) / 2


def conditions(f: Callable[..., Sequence[np.ndarray]], inputs: Sequence[np.ndarray], seed: int = 0) -> list[np.ndarray]:
    """For each result of f, how much each of its elements changes when inputs change by all of their size, to first order."""
    rng = np.random.default_rng(seed)
    base = [np.asarray(y, np.float64) for y in f(*inputs)]
    found = [np.zeros(y.shape) for y in base]
    for _ in range(TRIES):
        moved = [
            x * (1 + MOVED * rng.choice([-1.0, 1.0], x.shape)) if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x for x in inputs
        ]
        with np.errstate(all="ignore"):
            for i, (y, b) in enumerate(zip(f(*moved), base)):
                if np.shape(y) != b.shape:  # how many elements there are is decided by a step
                    found[i][...] = np.inf
                    continue
                d = np.abs(np.asarray(y, np.float64) - b) / MOVED
                found[i] = np.fmax(found[i], np.where(np.isfinite(d), d, np.where(np.asarray(y) == b, 0, np.inf)))
    return found


def beyond(got: np.ndarray, want: np.ndarray, condition: np.ndarray, k: float, computed_in=None) -> np.ndarray:
    """Which elements are further from the reference than k roundings explain: True where wrong. NaN is to meet NaN, an infinity the
    same one, or a reference beyond the largest number of the format by no more than the bound. computed_in: the format, where it is
    not the result's."""
    u, limits = roundoff(computed_in or got.dtype), np.finfo(got.dtype)
    a = got.astype(np.float64)
    with np.errstate(all="ignore"):
        bound = k * (u * (condition + np.abs(want)) + float(limits.smallest_subnormal))
        near = np.abs(a - want) <= bound
        most = float(limits.max)
        overflow = np.isinf(a) & (np.sign(a) == np.sign(want)) & (np.abs(want) + bound >= most)
        return ~(near | (a == want) | (np.isnan(a) & np.isnan(want)) | overflow)
