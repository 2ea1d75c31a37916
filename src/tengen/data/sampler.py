"""Samplers: which samples form a batch, in which order, on which rank.

In: a dataset's length, an epoch. Out: lists of indices. A sampler is a pure function of (seed, epoch): `batches(epoch,
start)` gives the same lists every time, from any batch on, which is what makes a loader resumable.
"""

from __future__ import annotations

import functools
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from tengen.base.arguments import Checked, whole_number
from tengen.base.errors import UnknownName
from tengen.data.draws import fresh_seed, words
from tengen.transport.group import world


class Position:
    """Where iterations over epochs stand: in which epoch, and how many batches of it were given out. Each iterator begins the next
    epoch; while there are several, the newest counts.

    Attributes:
        epoch, batch: what the newest iterator gives next.
    """

    def __init__(self) -> None:
        self.epoch = self.batch = 0
        self._next = (0, 0)  # where the next iterator begins
        self._newest: object = None

    def follow(self, begin: Callable[[int, int], Iterator[Any]]) -> Iterator[Any]:
        """A new iterator, over `begin(epoch, batch)`; the position moves when an item is taken from it."""
        self.epoch, self.batch = start = self._next
        self._next = (self.epoch + 1, 0)
        self._newest = token = object()
        return self._moving(begin, *start, token)

    def _moving(self, begin: Callable[[int, int], Iterator[Any]], epoch: int, start: int, token: object) -> Iterator[Any]:
        items = begin(epoch, start)
        try:
            for k, item in enumerate(items, start + 1):
                if token is self._newest:
                    self.epoch, self.batch = epoch, k
                yield item
        finally:
            if isinstance(items, Generator):  # Python 3.12.3 does not let go of it when this generator is closed
                items.close()
        if token is self._newest:
            self.epoch, self.batch = epoch + 1, 0

    def resume(self, owner: str, epoch: Any, batch: Any) -> None:
        """Lets the next iterator begin there. Errors: ValueError unless both are whole numbers from 0 on."""
        for name, n in (("epoch", epoch), ("batch", batch)):
            whole_number(f"{owner}: the state's", name, n, 0)
        self.epoch, self.batch = self._next = (epoch, batch)
        self._newest = None


class Sampler(Checked):
    """The base of samplers: iterating over one gives the batches of an epoch, and of the next epoch the next time.

    A sampler of your own may define `__iter__` alone; then resuming replays its batches up to the one that is due.

    Attributes:
        seed: what the choice is keyed with; None when nothing is random.
        repeats: True when an index may come twice in an epoch; each time then draws other random numbers.
    """

    seed: int | None = None
    repeats = False

    @functools.cached_property  # there for a sampler whose __init__ does not call this one's
    def _position(self) -> Position:
        return Position()

    def batches(self, epoch: int, start: int = 0) -> Iterator[list[int]]:
        """The batches of `epoch`, beginning with number `start`."""
        return islice(iter(self), start, None)

    def __iter__(self) -> Iterator[list[int]]:
        if type(self).batches is Sampler.batches:
            raise TypeError(f"{type(self).__name__} defines neither batches() nor __iter__()")
        return self._position.follow(self.batches)

    # -- resuming ----------------------------------------------------------------------------------------------------------
    def identity(self) -> dict[str, int | None]:
        """What has to be the same where a state of it is loaded: numbers that decide how its batches are cut."""
        return {}

    def state_dict(self) -> dict[str, int | None]:
        """Where the newest iteration over it stands, and its seed, as plain integers. A `DataLoader` has a position of its own: save
        the loader's state instead, where a loader asks for the batches.

        Errors: TypeError for a sampler that defines `__iter__`: only that knows where it stands.

        >>> s = RandomSampler(range(10), batch_size=3, seed=1)
        >>> it = iter(s)
        >>> first, state = next(it), s.state_dict()
        >>> again = RandomSampler(range(10), batch_size=3)
        >>> again.load_state_dict(state)
        >>> list(again) == list(it)
        True
        """
        if type(self).__iter__ is not Sampler.__iter__:
            raise TypeError(f"{type(self).__name__} defines __iter__, and so its state; help: define batches(epoch, start) instead")
        return {"epoch": self._position.epoch, "batch": self._position.batch, "seed": self.seed, **self.identity()}

    def load_state_dict(self, state: Mapping[str, int | None]) -> None:
        """Goes on where `state` was taken: the next iteration gives the batches that were left of that epoch.

        Errors: KeyError where an entry is missing, ValueError where it was taken from a sampler with other batches.
        """
        fitting(f"{type(self).__name__}", state, self.state_dict(), self.identity())
        seed = state["seed"]
        if seed is not None:
            seed = whole_number(f"{type(self).__name__}: the state's", "seed", seed)
        self._position.resume(type(self).__name__, state["epoch"], state["batch"])
        if seed is not None:
            self.seed = seed


class MapSampler(Sampler, ABC):
    """A sampler over a map dataset; derive from it and define `sample`, the order of a whole epoch.

    With `world_size` ranks, rank r takes positions r, r + world_size, ... of that order, lengthened from its front so that
    every rank has as many: the ranks' k-th batches together are the k-th stretch of the order.

    Args:
        dataset: what has a length.
        batch_size: samples in a batch, on one rank.
        drop_last: leave out the last batch when it is short.
        num_samples: the length of the order; default: the dataset's.
        world_size, rank: how many processes share the dataset, and which one this is; default: those of this job
            (`distributed`); of a process that was started alone, one.
        seed: key of the choice; default: by `fresh_seed`, or 0 when there are several ranks, which must agree.

    Errors:
        ArgumentError: a size that is no positive whole number. ValueError: a rank outside of the world.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        drop_last: bool = False,
        num_samples: int | None = None,
        world_size: int | None = None,
        rank: int | None = None,
        seed: int | None = None,
    ):
        name = type(self).__name__
        self.dataset, self.drop_last = dataset, bool(drop_last)
        self.batch_size = whole_number(name, "batch_size", batch_size, 1)
        self._num_samples = None if num_samples is None else whole_number(name, "num_samples", num_samples, 1)
        there = world() if world_size is None and rank is None else None
        self.world_size = (there.size if there else 1) if world_size is None else whole_number(name, "world_size", world_size, 1)
        self.rank = (there.rank if there else 0) if rank is None else whole_number(name, "rank", rank, 0)
        if self.rank >= self.world_size:
            raise ValueError(f"{name}: rank {self.rank} is outside of a world of {self.world_size}")
        if seed is None:
            seed = fresh_seed() if self.world_size == 1 else 0
        self.seed: int | None = whole_number(name, "seed", seed)
        self.epoch = 0

    @property
    def num_samples(self) -> int:
        """The length of an epoch's order, over all ranks."""
        return len(self.dataset) if self._num_samples is None else self._num_samples

    @abstractmethod
    def sample(self) -> Sequence[int] | np.ndarray:
        """The order of epoch `self.epoch`: dataset indices, `num_samples` of them."""

    def scatter(self, indices: np.ndarray) -> np.ndarray:
        """This rank's share of an order."""
        if self.world_size == 1 or not len(indices):
            return indices
        share = -(-len(indices) // self.world_size)
        return np.resize(indices, share * self.world_size)[self.rank :: self.world_size]

    def identity(self) -> dict[str, int | None]:
        return {"batch_size": self.batch_size, "world_size": self.world_size, "samples": self.num_samples}

    def batches(self, epoch: int, start: int = 0) -> Iterator[list[int]]:
        self.epoch = epoch
        order = self.scatter(np.asarray(list(self.sample()), np.int64))
        size = self.batch_size
        end = len(order) // size * size if self.drop_last else len(order)
        return (order[i : min(i + size, end)].tolist() for i in range(start * size, end, size))

    def __len__(self) -> int:
        share = -(-self.num_samples // self.world_size)
        return share // self.batch_size if self.drop_last else -(-share // self.batch_size)


class SequentialSampler(MapSampler):
    """The dataset in its own order, or the given indices in theirs.

    >>> list(SequentialSampler(range(5), batch_size=2))
    [[0, 1], [2, 3], [4]]
    >>> list(SequentialSampler(range(5), batch_size=2, world_size=2, rank=1))
    [[1, 3], [0]]
    """

    def __init__(self, dataset, batch_size=1, drop_last=False, indices=None, world_size=None, rank=None):
        super().__init__(dataset, batch_size, drop_last, None, world_size, rank, seed=0)
        self.seed = None
        self.indices = _indices(type(self).__name__, indices)

    @property
    def num_samples(self) -> int:
        """The length of an epoch's order, over all ranks."""
        return len(self.dataset) if self.indices is None else len(self.indices)

    def sample(self) -> Sequence[int] | np.ndarray:
        """The order of an epoch."""
        return range(len(self.dataset)) if self.indices is None else self.indices


class RandomSampler(MapSampler):
    """The dataset, or the given indices, in a new random order every epoch, each sample once.

    The order sorts 64-bit words of Philox keyed by (seed, epoch), so it is the same on every machine and version.

    >>> s = RandomSampler(range(10), batch_size=5, seed=1)
    >>> first, second = list(s), list(s)
    >>> sorted(sum(first, [])) == list(range(10)), first != second, first == list(s.batches(epoch=0))
    (True, True, True)
    """

    def __init__(self, dataset, batch_size=1, drop_last=False, indices=None, world_size=None, rank=None, seed=None):
        super().__init__(dataset, batch_size, drop_last, None, world_size, rank, seed)
        self.indices = _indices(type(self).__name__, indices)

    @property
    def num_samples(self) -> int:
        """The length of an epoch's order, over all ranks."""
        return len(self.dataset) if self.indices is None else len(self.indices)

    def sample(self) -> Sequence[int] | np.ndarray:
        """The order of epoch `self.epoch`."""
        order = np.argsort(words(self.seed or 0, self.epoch, self.num_samples), kind="stable")
        return order if self.indices is None else np.asarray(self.indices)[order]


class ReplacementSampler(MapSampler):
    """Draws with replacement, uniformly or in proportion to `weights`.

    Args:
        num_samples: draws in an epoch, over all ranks; default: the dataset's length.
        weights: one number >= 0 for each sample, not all 0.

    Errors:
        ValueError: weights of the wrong number, negative, not finite, or all zero.

    >>> sum(ReplacementSampler(range(3), 4, weights=[0, 1, 0], num_samples=4), [])
    [1, 1, 1, 1]
    """

    repeats = True

    def __init__(
        self, dataset, batch_size=1, drop_last=False, num_samples=None, weights=None, world_size=None, rank=None, seed=None
    ):
        super().__init__(dataset, batch_size, drop_last, num_samples, world_size, rank, seed)
        self.weights = None
        if weights is not None:
            w = np.asarray(weights, np.float64)
            if w.shape != (len(dataset),):
                raise ValueError(f"ReplacementSampler: {len(dataset)} samples need as many weights, got shape {w.shape}")
            if not np.isfinite(w).all() or (w < 0).any() or not w.any():
                raise ValueError("ReplacementSampler: weights must be finite, >= 0, and not all 0")
            self.weights = w

    def sample(self) -> Sequence[int] | np.ndarray:
        """The draws of epoch `self.epoch`."""
        n = len(self.dataset)
        uniform = (words(self.seed or 0, self.epoch, self.num_samples) >> np.uint64(11)) * 2.0**-53  # in [0, 1)
        if self.weights is None:
            return np.minimum((uniform * n).astype(np.int64), n - 1)
        ends = np.cumsum(self.weights)
        last = np.flatnonzero(self.weights)[-1]  # rounding may put a draw on the very end
        return np.minimum(np.searchsorted(ends, uniform * ends[-1], side="right"), last)


class StreamSampler(Sampler):
    """The batch size of a stream.

    Args:
        batch_size: samples in a batch.
        drop_last: leave out the last batch when the stream ends within it.
    """

    def __init__(self, batch_size: int = 1, drop_last: bool = False):
        self.batch_size = whole_number("StreamSampler", "batch_size", batch_size, 1)
        self.drop_last = bool(drop_last)

    def identity(self) -> dict[str, int | None]:
        return {"batch_size": self.batch_size}

    def batches(self, epoch: int, start: int = 0) -> Iterator[list[int]]:
        size = self.batch_size
        while True:  # positions in the stream; the loader stops when the stream does
            yield list(range(start * size, (start + 1) * size))
            start += 1


class Infinite(Sampler):
    """A sampler without end: epoch after epoch of another one, each with its own order.

    Errors: ValueError where the sampler inside gives no batch

    >>> s = Infinite(SequentialSampler(range(3), batch_size=2))
    >>> list(islice(s, 4))
    [[0, 1], [2], [0, 1], [2]]
    """

    repeats = True

    def __init__(self, sampler: Sampler):
        self.sampler = sampler

    @property
    def batch_size(self) -> int | None:
        """Samples in a batch."""
        return getattr(self.sampler, "batch_size", None)

    @property
    def seed(self) -> int | None:  # a plain attribute in the base
        """The seed of the sampler inside."""
        return getattr(self.sampler, "seed", None)

    @seed.setter
    def seed(self, value: int | None) -> None:
        self.sampler.seed = value

    def identity(self) -> dict[str, int | None]:
        return self.sampler.identity()

    def batches(self, epoch: int, start: int = 0) -> Iterator[list[int]]:
        per_epoch = len(self.sampler)  # type: ignore[arg-type]  # a sampler without length has no epochs to repeat
        if per_epoch == 0:
            raise ValueError("Infinite: the sampler inside gives no batch")
        return self._forever(epoch + start // per_epoch, start % per_epoch)

    def _forever(self, epoch: int, start: int) -> Iterator[list[int]]:
        while True:
            yield from self.sampler.batches(epoch, start)
            epoch, start = epoch + 1, 0

    def __len__(self) -> int:
        return sys.maxsize


def fitting(owner: str, state: Any, wanted: Iterable[str], identity: Mapping[str, Any]) -> None:
    """Errors: ValueError unless `state` is a mapping, and its entries are those of `identity` where that has them; KeyError where one of
    the wanted entries is missing."""
    if not isinstance(state, Mapping):
        raise ValueError(f"{owner}: a state is a dict, got {type(state).__name__}")
    if missing := [key for key in wanted if key not in state]:
        raise UnknownName(f"{owner}: the state has no {missing[0]!r}; it has {', '.join(map(repr, state)) or 'nothing'}")
    for key, mine in identity.items():
        if state[key] != mine:
            raise ValueError(f"{owner}: the state has {key} {state[key]}, this one has {mine}")


def _indices(owner: str, indices: Any) -> list[int] | None:
    if indices is None:
        return None
    try:
        return [whole_number(owner, "an index", i, 0) for i in indices]
    except TypeError:
        raise ValueError(f"{owner}: indices must be a sequence of integers, got {indices!r}") from None
