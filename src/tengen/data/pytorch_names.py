"""PyTorch's names for data: samplers of single samples, `default_collate`.

In PyTorch a sampler gives single indices, and the loader cuts them into batches; here a sampler gives batches. `BatchSampler` is the
way from one to the other.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from tengen.data.collator import Collator
from tengen.data.draws import seed_of
from tengen.data.sampler import RandomSampler, ReplacementSampler, Sampler


def default_collate(batch: Sequence[Any]) -> Any:
    """A batch of samples, as `Collator` makes it.

    >>> default_collate([(1, "a"), (2, "b")])
    (array([1, 2]), ['a', 'b'])
    """
    return Collator().apply(batch)


class BatchSampler(Sampler):
    """Batches of the single indices that something gives.

    Args:
        sampler: what gives indices when it is iterated, once for each epoch. batch_size: samples in a batch. drop_last: leave out the
            last batch when it is short.

    A random order of its own repeats in a resumed run only if the sampler gives the same one again: `RandomSampler` does.

    >>> list(BatchSampler([5, 3, 1], 2))
    [[5, 3], [1]]
    """

    repeats = True

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool = False):
        self.sampler, self.batch_size, self.drop_last = sampler, operator.index(batch_size), bool(drop_last)
        if self.batch_size < 1:
            raise ValueError(f"BatchSampler: batch_size must be at least 1, got {batch_size}")

    def identity(self) -> dict[str, int | None]:
        return {"batch_size": self.batch_size}

    def batches(self, epoch: int, start: int = 0) -> Iterator[list[int]]:
        return islice(self._cut(), start, None)

    def _cut(self) -> Iterator[list[int]]:
        indices = iter(self.sampler)
        while batch := [operator.index(i) for i in islice(indices, self.batch_size)]:
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self) -> int:
        n = len(self.sampler)  # type: ignore[arg-type]  # TypeError for a sampler that has no length
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)


class SubsetRandomSampler(RandomSampler):
    """The given indices in a new random order every epoch. Args: generator: see `seed_of`.

    >>> sorted(sum(SubsetRandomSampler([7, 2, 5]), []))
    [2, 5, 7]
    """

    def __init__(self, indices: Sequence[int], generator: Any = None):
        super().__init__(indices, indices=indices, seed=seed_of(generator))


class WeightedRandomSampler(ReplacementSampler):
    """`num_samples` indices in proportion to weights, with replacement. Args: generator: see `seed_of`.

    Errors: ValueError for replacement=False, and for weights as in `ReplacementSampler`.

    >>> list(WeightedRandomSampler([0.0, 2.0], 3))
    [[1], [1], [1]]
    """

    def __init__(self, weights: Sequence[float], num_samples: int, replacement: bool = True, generator: Any = None):
        if not replacement:
            raise ValueError("WeightedRandomSampler: replacement=False is not there; help: RandomSampler with indices=")
        super().__init__(range(len(weights)), num_samples=num_samples, weights=weights, seed=seed_of(generator))
