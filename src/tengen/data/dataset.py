"""Datasets: where samples come from. A map dataset has a length and an index; a stream dataset can only be iterated.

Samples are NumPy arrays, numbers, strings, or tuples and dicts of them; the collator makes batches of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any


class Dataset(ABC):
    """A dataset with `dataset[i]` and `len(dataset)`. Derive from it, or give anything that has both.

    >>> class Squares(Dataset):
    ...     def __len__(self): return 4
    ...     def __getitem__(self, i): return i * i
    >>> Squares()[3]
    9
    """

    @abstractmethod
    def __getitem__(self, index: int) -> Any:
        """The sample at `index`, 0 <= index < len(self)."""

    @abstractmethod
    def __len__(self) -> int:
        """The number of samples."""


class StreamDataset(Dataset):
    """A dataset that can only be read from the front: `iter(dataset)` gives its samples, as often as it is called.

    The loader's own process reads the stream, and the workers transform what it read: so a stream needs no splitting among
    workers, and its batches do not depend on their number.

    >>> class Lines(StreamDataset):
    ...     def __iter__(self): yield from ["a", "b"]
    >>> list(Lines())
    ['a', 'b']
    """

    @abstractmethod
    def __iter__(self) -> Iterator[Any]:
        """A new iterator over the samples."""

    def __getitem__(self, index: int) -> Any:
        raise TypeError(f"{type(self).__name__} is a stream: it has no sample {index}; help: iterate over it")

    def __len__(self) -> int:
        raise TypeError(f"{type(self).__name__} is a stream: it has no length")


class ArrayDataset(Dataset):
    """The rows of some arrays: sample i is ``(a[i], b[i], ...)``, or ``a[i]`` for a single array.

    Args:
        arrays: anything with a length and an index, all of one length.

    Errors:
        ValueError: no array, or lengths that differ.

    >>> import numpy as np
    >>> ArrayDataset(np.arange(6).reshape(3, 2), [10, 20, 30])[1]
    (array([2, 3]), 20)
    """

    def __init__(self, *arrays: Any):
        if not arrays:
            raise ValueError("ArrayDataset: give at least one array")
        lengths = [len(a) for a in arrays]
        if len(set(lengths)) > 1:
            raise ValueError(f"ArrayDataset: lengths differ: {', '.join(map(str, lengths))}")
        self.arrays = arrays

    def __getitem__(self, index: int) -> Any:
        if len(self.arrays) == 1:
            return self.arrays[0][index]
        return tuple(a[index] for a in self.arrays)

    def __len__(self) -> int:
        return len(self.arrays[0])


class ConcatDataset(Dataset):
    """Map datasets one after the other.

    Errors:
        ValueError: no dataset. TypeError: one of them is a stream. IndexError: an index outside of all.

    >>> both = ConcatDataset([ArrayDataset([1, 2]), ArrayDataset([3])])
    >>> [both[i] for i in range(len(both))], both[-1]
    ([1, 2, 3], 3)
    """

    def __init__(self, datasets: Iterable[Dataset]):
        self.datasets = list(datasets)
        if not self.datasets:
            raise ValueError("ConcatDataset: give at least one dataset")
        for d in self.datasets:
            if is_stream(d):
                raise TypeError(f"ConcatDataset: {type(d).__name__} is a stream and has no length")
        self._ends = list(accumulate(len(d) for d in self.datasets))

    def __getitem__(self, index: int) -> Any:
        n = len(self)
        i = index + n if index < 0 else index
        if not 0 <= i < n:
            raise IndexError(f"ConcatDataset: index {index} is outside of {n} samples")
        k = bisect_right(self._ends, i)
        return self.datasets[k][i - (self._ends[k - 1] if k else 0)]

    def __len__(self) -> int:
        return self._ends[-1]


def is_stream(dataset: Any) -> bool:
    """Whether a dataset is a stream: a `StreamDataset`, or something that iterates and has no index."""
    return isinstance(dataset, StreamDataset) or not hasattr(dataset, "__getitem__")
