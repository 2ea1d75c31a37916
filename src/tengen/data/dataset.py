"""Datasets: where samples come from. A map dataset has a length and an index; a stream dataset can only be iterated.

Samples are NumPy arrays, numbers, strings, or tuples and dicts of them; the collator makes batches of them. The readers of published
datasets (`MNIST`, `COCO`, ...) have files of their own, which load when they are named.
"""

from __future__ import annotations

import importlib
import math
import operator
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from tengen.data.draws import fresh_seed, seed_of, words

_READERS = {  # name -> the module that defines it
    "CIFAR10": "digits", "CIFAR100": "digits", "COCO": "scenes", "Cityscapes": "scenes", "ImageFolder": "folders", "ImageNet": "folders",
    "MNIST": "digits", "Objects365": "scenes", "PascalVOC": "scenes", "VisionDataset": "images",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _READERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    return getattr(importlib.import_module(f"tengen.data.{_READERS[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_READERS})


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

    def __add__(self, other: Any) -> Dataset:
        """Both, one after the other."""
        return ConcatDataset([self, other])


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

    def __add__(self, other: Any) -> Dataset:
        """Both, one after the other: a stream."""
        return ChainDataset([self, other])


class ArrayDataset(Dataset):
    """The rows of some arrays: sample i is ``(a[i], b[i], ...)``, or ``a[i]`` for a single array.

    Args:
        arrays: anything with a length and an index, all of one length. Tensors are read as arrays, which share their memory.

    Errors:
        ValueError: no array, or lengths that differ.

    >>> import numpy as np
    >>> ArrayDataset(np.arange(6).reshape(3, 2), [10, 20, 30])[1]
    (array([2, 3]), 20)
    """

    def __init__(self, *arrays: Any):
        if not arrays:
            raise ValueError("ArrayDataset: give at least one array")
        for a in arrays:
            if not hasattr(a, "__len__") or getattr(a, "ndim", 1) == 0:
                raise ValueError(f"ArrayDataset: a {type(a).__name__} without a length has no rows; help: arrays of one length")
        lengths = [len(a) for a in arrays]
        if len(set(lengths)) > 1:
            raise ValueError(f"ArrayDataset: lengths differ: {', '.join(map(str, lengths))}")
        self.arrays = tuple(a.numpy() if callable(getattr(a, "numpy", None)) else a for a in arrays)

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


class ChainDataset(StreamDataset):
    """Streams one after the other: PyTorch's name. A map dataset counts as the stream of its samples.

    Errors:
        ValueError: no dataset.

    >>> class Lines(StreamDataset):
    ...     def __iter__(self): yield from ["a", "b"]
    >>> list(ChainDataset([Lines(), Lines()]))
    ['a', 'b', 'a', 'b']
    """

    def __init__(self, datasets: Iterable[Any]):
        self.datasets = list(datasets)
        if not self.datasets:
            raise ValueError("ChainDataset: give at least one dataset")

    def __iter__(self) -> Iterator[Any]:
        for d in self.datasets:
            yield from d if is_stream(d) else (d[i] for i in range(len(d)))

    def __len__(self) -> int:
        """The sum of the lengths; TypeError where one of them is a stream that has none."""
        return sum(len(d) for d in self.datasets)


class StackDataset(Dataset):
    """Map datasets side by side: sample i is the tuple of their samples i, or the dict, where they were given by name. PyTorch's name.

    Errors:
        ValueError: no dataset, lengths that differ, or some by name and some not. TypeError: one of them is a stream.

    >>> StackDataset([1, 2], [3, 4])[1], StackDataset(x=[1, 2], y=[3, 4])[0]
    ((2, 4), {'x': 1, 'y': 3})
    """

    def __init__(self, *args: Any, **kwargs: Any):
        if bool(args) == bool(kwargs):
            raise ValueError("StackDataset: give datasets, all of them by position or all by name")
        self.datasets: Any = kwargs or args
        every = [*args, *kwargs.values()]
        for d in every:
            if is_stream(d):
                raise TypeError(f"StackDataset: {type(d).__name__} is a stream and has no index")
        if len({len(d) for d in every}) > 1:
            raise ValueError(f"StackDataset: lengths differ: {', '.join(str(len(d)) for d in every)}")
        self._length = len(every[0])

    def __getitem__(self, index: int) -> Any:
        if isinstance(self.datasets, dict):
            return {k: d[index] for k, d in self.datasets.items()}
        return tuple(d[index] for d in self.datasets)

    def __len__(self) -> int:
        return self._length


class Subset(Dataset):
    """Some samples of a map dataset, in the given order.

    Errors:
        TypeError: the dataset is a stream. IndexError: an index outside of it.

    >>> list(Subset([10, 20, 30], [2, 0]))
    [30, 10]
    """

    def __init__(self, dataset: Any, indices: Iterable[int]):
        if is_stream(dataset):
            raise TypeError(f"Subset: {type(dataset).__name__} is a stream and has no length")
        self.dataset, self.indices = dataset, [operator.index(i) for i in indices]
        n = len(dataset)
        for i in self.indices:
            if not 0 <= i < n:
                raise IndexError(f"Subset: index {i} is outside of {n} samples")

    def __getitem__(self, index: int) -> Any:
        return self.dataset[self.indices[index]]

    def __len__(self) -> int:
        return len(self.indices)


def random_split(dataset: Any, lengths: Sequence[float], seed: int | None = None, *, generator: Any = None) -> list[Subset]:
    """Parts of a map dataset in random order, of these lengths: numbers of samples, whose sum is the dataset's length, or shares,
    whose sum is 1. Of shares each part has the whole number below, and the samples left over go to the first parts, one each, as
    in PyTorch. `seed`: the same parts each time; default: from NumPy's global state. `generator`: PyTorch's way to give one
    (`seed_of`).

    Errors: TypeError for a stream; ValueError for lengths that do not fit the dataset

    >>> [len(part) for part in random_split(range(10), [0.75, 0.25], seed=0)]
    [8, 2]
    """
    if is_stream(dataset):
        raise TypeError(f"random_split: {type(dataset).__name__} is a stream and has no length")
    n, sizes, seed = len(dataset), list(lengths), seed_of(generator) if seed is None else seed
    if not all(s >= 0 for s in sizes):
        raise ValueError(f"random_split: lengths must not be negative, got {sizes}")
    if math.isclose(sum(sizes), 1) and sum(sizes) <= 1 + 1e-9 and all(s <= 1 for s in sizes) and not (n == 1 and 1 in sizes):
        sizes = [math.floor(n * s) for s in sizes]
        for i in range(n - int(sum(sizes))):
            sizes[i % len(sizes)] += 1
    if sum(sizes) != n or any(s != int(s) for s in sizes):
        raise ValueError(f"random_split: {list(lengths)} are neither lengths whose sum is {n} nor shares whose sum is 1")
    order = np.argsort(words(fresh_seed() if seed is None else seed, 0, n), kind="stable").tolist()
    ends = list(accumulate(int(s) for s in sizes))
    return [Subset(dataset, order[end - int(s) : end]) for s, end in zip(sizes, ends)]


def is_stream(dataset: Any) -> bool:
    """Whether a dataset is a stream: a `StreamDataset`, or something that iterates and has no index."""
    return isinstance(dataset, StreamDataset) or not hasattr(dataset, "__getitem__")
