"""PyTorch's names for data: samplers of single samples, `default_collate`.

In PyTorch a sampler gives single indices, and the loader cuts them into batches; here a sampler gives batches. `BatchSampler` is the
way from one to the other.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
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
        sampler: a sampler of here with ``batch_size=1``, or anything that gives indices when it is iterated, once for each epoch.
        batch_size: samples in a batch. drop_last: leave out the last batch when it is short.

    A run that is resumed in mid-epoch asks the sampler for its order once more: samplers of here give the same; one that draws another
    order each time does not go on where it was.

    Errors: ValueError for a batch_size below 1, and for a sampler that gives batches.

    >>> list(BatchSampler([5, 3, 1], 2))
    [[5, 3], [1]]
    """

    def __init__(self, sampler: Iterable[int] | Sampler, batch_size: int, drop_last: bool = False):
        self.sampler, self.batch_size, self.drop_last = sampler, operator.index(batch_size), bool(drop_last)
        self.repeats = getattr(sampler, "repeats", True)
        if self.batch_size < 1:
            raise ValueError(f"BatchSampler: batch_size must be at least 1, got {batch_size}")
        if isinstance(sampler, Sampler) and getattr(sampler, "batch_size", None) != 1:
            raise ValueError(f"BatchSampler: the {type(sampler).__name__} gives batches; help: one with batch_size=1, or itself")

    @property
    def seed(self) -> int | None:  # a plain attribute in the base
        """The seed of the sampler inside."""
        return getattr(self.sampler, "seed", None)

    @seed.setter
    def seed(self, value: int | None) -> None:
        self.sampler.seed = value  # type: ignore[union-attr]  # whoever has a seed can be given one

    def identity(self) -> dict[str, int | None]:
        return {"batch_size": self.batch_size}

    def batches(self, epoch: int, start: int = 0) -> Iterator[list[int]]:
        return islice(self._cut(epoch), start, None)

    def _cut(self, epoch: int) -> Iterator[list[int]]:
        s = self.sampler
        indices: Iterator[int] = chain.from_iterable(s.batches(epoch)) if isinstance(s, Sampler) else iter(s)
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
        super().__init__(indices, indices=indices, seed=seed_of(generator), world_size=1, rank=0)


class WeightedRandomSampler(ReplacementSampler):
    """`num_samples` indices in proportion to weights, with replacement. Args: generator: see `seed_of`.

    Errors: ValueError for replacement=False, and for weights as in `ReplacementSampler`.

    >>> list(WeightedRandomSampler([0.0, 2.0], 3))
    [[1], [1], [1]]
    """

    def __init__(self, weights: Sequence[float], num_samples: int, replacement: bool = True, generator: Any = None):
        if not replacement:
            raise ValueError("WeightedRandomSampler: replacement=False is not there; help: RandomSampler with indices=")
        super().__init__(range(len(weights)), num_samples=num_samples, weights=weights, seed=seed_of(generator), world_size=1, rank=0)
