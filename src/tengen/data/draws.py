"""Randomness for data: every sample has random numbers of its own, whoever computes it.

In: a seed, an epoch, a sample's index. Out: a `numpy.random.Generator` over Philox, whose key is (seed, epoch) and whose
counter starts at the index. So an augmented batch does not depend on the number of workers, on the order in which they
finish, or on whether the run was interrupted and resumed. `rng()` is what a transform or a dataset draws from.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from tengen.random.state import default_rng

_WORD = (1 << 64) - 1
_state = threading.local()


def generator(seed: int, epoch: int, index: int, occurrence: int = 0) -> np.random.Generator:
    """The generator of one sample: Philox with key (seed, epoch) and counter (0, 0, index, occurrence).

    Args:
        seed, epoch: any integers; 64 bits of each count.
        index: the sample's index in its dataset.
        occurrence: tells apart the times that a sampler may draw one index within one epoch.

    >>> generator(7, 0, 3).integers(100).item() == generator(7, 0, 3).integers(100).item()
    True
    """
    key = np.array([seed & _WORD, epoch & _WORD], np.uint64)
    counter = np.array([0, 0, index & _WORD, occurrence & _WORD], np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def words(seed: int, epoch: int, n: int) -> np.ndarray:
    """`n` raw 64-bit words for a sampler's choice in one epoch, from a counter at which no sample draws.

    Raw words, because NumPy promises that a bit generator's stream never changes, which it does not for `permutation`.
    """
    return generator(seed, epoch, _WORD, _WORD).bit_generator.random_raw(n).astype(np.uint64, copy=False)


def fresh_seed() -> int:
    """A seed for those who gave none: it follows from `tengen.random.seed` where that was called in this process, else it is drawn from
    NumPy's global state, so that `np.random.seed` decides."""
    seed = default_rng.another_seed()
    return int(np.random.randint(0, 1 << 62, dtype=np.int64)) if seed is None else seed


def seed_of(generator: Any) -> int | None:
    """The seed that an argument `generator` stands for: a number itself, a draw from a generator of NumPy or `tengen.random.RNG`, the
    seed of a `torch.Generator`; None for None.

    Errors: TypeError for what is no generator and no number

    >>> seed_of(3), seed_of(None), seed_of(np.random.default_rng(1)) == seed_of(np.random.default_rng(1))
    (3, None, True)
    """
    if generator is None:
        return None
    if hasattr(generator, "integers"):
        return int(generator.integers(1 << 62))
    if hasattr(generator, "initial_seed"):
        return int(generator.initial_seed())
    if hasattr(generator, "randint"):
        drawn = generator.randint(0, 1 << 31)
        return int(drawn.item() if hasattr(drawn, "item") else drawn)
    try:
        return operator.index(generator)
    except TypeError:
        raise TypeError(f"generator must be a seed or a generator of random numbers, got a {type(generator).__name__}") from None


class Draws:
    """The generators of one batch. Inside `with draws:`, `draws.select(i)` makes sample i the one that `rng()` serves.

    A sample's generator goes on where it stopped when it is selected again, so a batch may go through several transforms
    one after the other.
    """

    def __init__(self, seed: int, epoch: int, indices: Sequence[int], occurrences: Sequence[int] | None = None):
        self._keys = [(seed, epoch, i, o) for i, o in zip(indices, occurrences or [0] * len(indices))]
        self._made: dict[int, np.random.Generator] = {}
        self._i = 0
        self._outer: Draws | None = None

    def select(self, i: int) -> None:
        """Serve sample i of the batch from now on."""
        self._i = i

    def generator(self) -> np.random.Generator:
        """The generator of the selected sample."""
        if self._i not in self._made:
            self._made[self._i] = generator(*self._keys[self._i])
        return self._made[self._i]

    def __enter__(self) -> Draws:
        self._outer, _state.draws = getattr(_state, "draws", None), self
        return self

    def __exit__(self, *exc) -> None:
        _state.draws = self._outer


def select(i: int) -> None:
    """Select sample i of the batch that is being made in this thread; nothing outside of a loader."""
    draws = getattr(_state, "draws", None)
    if draws is not None:
        draws.select(i)


def rng() -> np.random.Generator:
    """The generator to draw from in a dataset's `__getitem__` or in a transform.

    Inside a `DataLoader` it belongs to the sample at hand and gives the same numbers with any number of workers. Elsewhere
    it is seeded by `tengen.random.seed`, or else from NumPy's global state (`fresh_seed`).

    >>> import tengen, tengen.data as data
    >>> tengen.random.seed(0)
    >>> 0 <= data.rng().uniform() < 1
    True
    """
    draws = getattr(_state, "draws", None)
    return draws.generator() if draws is not None else generator(fresh_seed(), 0, 0)
