"""Outputs of another library, kept so that a machine without it compares too: arrays under names, in a small .npz file.

A large array is kept as `abridged` says: some of its elements, and a weighted sum of all, so that no element may be wrong.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

import numpy as np

FEW = 12  # elements that are kept of a large array


def _weights(n: int) -> np.ndarray:
    """Between -1/2 and 1/2, all apart, and the same with every NumPy."""
    return (np.arange(n) * 40503 % 65521) / 65521 - 0.5


def abridged(a) -> np.ndarray:
    """All elements of a small array; of a large one, `FEW` at even distances and a weighted sum of all, divided by the root of their number."""
    flat = np.asarray(a, np.float64).reshape(-1)
    if flat.size <= 2 * FEW:
        return flat
    at = np.arange(FEW) * (flat.size - 1) // (FEW - 1)
    return np.append(flat[at], flat @ _weights(flat.size) / flat.size**0.5)


def save(file: Path, arrays: Mapping[str, np.ndarray], made_by: str) -> None:
    """Writes all arrays, abridged, as one, with their names and sizes."""
    short = {k: abridged(a) for k, a in sorted(arrays.items())}
    values = np.concatenate(list(short.values()))
    np.savez_compressed(file, names=np.array(list(short)), sizes=[a.size for a in short.values()], values=values, made_by=np.array(made_by))


@functools.cache
def _all(file: Path) -> dict[str, np.ndarray]:
    with np.load(file) as f:
        return dict(zip(f["names"].tolist(), np.split(f["values"], np.cumsum(f["sizes"])[:-1])))


def load(file: Path, prefix: str) -> dict[str, np.ndarray]:
    """The arrays whose names begin with the prefix, without it."""
    return {k[len(prefix) :]: a for k, a in _all(file).items() if k.startswith(prefix)}


def agree(got: Mapping[str, np.ndarray], want: Mapping[str, np.ndarray], rtol: float) -> None:
    """Every kept number within rtol of the largest element of its array: that is the size of the terms of which a gradient is the sum,
    and so of what rounding leaves. Where all terms cancel (the gradient of what a softmax or a batch norm takes away), a thousandth
    of the largest element of all arrays stands for it."""
    most = 1e-3 * max((float(np.max(np.abs(a), initial=0)) for a in got.values()), default=0)
    assert got.keys() == want.keys(), got.keys() ^ want.keys()
    for name, w in want.items():
        g = abridged(got[name])
        assert g.shape == w.shape, name
        scale = max(float(np.max(np.abs(got[name]), initial=0)), most, 1e-300)
        worst = float(np.max(np.abs(g - w), initial=0)) / scale
        assert worst <= rtol, f"{name}: off by {worst:.2g} of its largest element, {rtol:g} is allowed"
