"""`torch.utils.data`: data sets and loaders that give tensors."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from tengen import data as D
from tengen.base.arguments import flags_of_functions
from tengen.base.lazy import NoSuchName
from tengen.data import (
    BatchSampler,
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    get_worker_info,
    random_split,
)
from tengen.data.dataloader import to_tensors
from tengen.random.state import default_rng
from tengen.tensor import Tensor

T = TypeVar("T", covariant=True)


class TensorDataset(Dataset):
    """Samples that are rows of tensors of equal length.

    >>> len(TensorDataset(Tensor([1.0, 2.0]), Tensor([3, 4])))
    2
    """

    def __init__(self, *tensors: Tensor):
        if len({t.shape[0] for t in tensors}) != 1:
            raise ValueError(f"TensorDataset: tensors of lengths {[t.shape[0] for t in tensors]} must be equally long")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(t[index] for t in self.tensors)

    def __len__(self) -> int:
        return self.tensors[0].shape[0]


def _array(x: Any) -> Any:
    return x.detach().numpy() if isinstance(x, Tensor) else x


def default_collate(batch: Sequence[Any]) -> Any:
    """A batch of samples as tensors: numbers and tensors are stacked; tuples, lists and dicts item by item; texts stay a list.

    >>> default_collate([(1, 2.0), (3, 4.0)])[0].tolist()
    [1, 3]
    """
    first = batch[0]
    if isinstance(first, Tensor):
        return Tensor(np.stack([_array(x) for x in batch]))
    if isinstance(first, np.ndarray):
        return Tensor(np.stack(batch))
    if isinstance(first, (bool, int, np.number, np.bool_)):
        return Tensor(np.array(batch))
    if isinstance(first, float):
        return Tensor(np.array(batch, np.float64))
    if isinstance(first, (str, bytes)):
        return list(batch)
    if isinstance(first, Mapping):
        return type(first)({k: default_collate([x[k] for x in batch]) for k in first})  # type: ignore[call-arg]  # a dict's constructor
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(default_collate(column) for column in zip(*batch)))
    if isinstance(first, (tuple, list)):
        return [default_collate(column) for column in zip(*batch)]
    raise TypeError(f"default_collate: no batch can be made of {type(first).__name__}; help: collate_fn=")


def default_convert(data: Any) -> Any:
    """Arrays as tensors."""
    return to_tensors(data)


class Sampler(Generic[T]):
    """The base of samplers of one's own, whose `__iter__` gives indices, one by one, or as a `batch_sampler` lists of them."""

    def __init__(self, data_source: Any = None):
        pass

    def __iter__(self) -> Iterator[T]:
        raise NotImplementedError(f"{type(self).__name__} needs __iter__()")


class SequentialSampler(Sampler):
    """The indices in order.

    >>> list(SequentialSampler("abc"))
    [0, 1, 2]
    """

    def __init__(self, data_source: Any):
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler):
    """The indices in a new random order each time; with replacement as often as one likes."""

    def __init__(self, data_source: Any, replacement: bool = False, num_samples: int | None = None, generator: Any = None):
        self.data_source, self.replacement, self.generator = data_source, replacement, generator
        self.num_samples = len(data_source) if num_samples is None else num_samples

    def __iter__(self) -> Iterator[Any]:
        rng, n = default_rng if self.generator is None else self.generator, len(self.data_source)
        if self.replacement:
            return iter(rng.randint(0, n, (self.num_samples,)).tolist())
        order: list[int] = []
        while len(order) < self.num_samples:
            order += rng.permutation(n).tolist()
        return iter(order[: self.num_samples])

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler):
    """The given indices in a new random order each time.

    >>> sorted(SubsetRandomSampler([7, 2, 5]))
    [2, 5, 7]
    """

    def __init__(self, indices: Sequence[int], generator: Any = None):
        self.indices, self.generator = indices, generator

    def __iter__(self) -> Iterator[Any]:
        rng = default_rng if self.generator is None else self.generator
        return (self.indices[i] for i in rng.permutation(len(self.indices)).tolist())

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler):
    """`num_samples` indices in proportion to weights, drawn anew each time.

    Errors: ValueError for weights that are negative, not finite or all 0, and for more samples without replacement than weights that are not 0

    >>> list(WeightedRandomSampler([0.0, 2.0], 3))
    [1, 1, 1]
    """

    def __init__(self, weights: Any, num_samples: int, replacement: bool = True, generator: Any = None):
        self.weights = Tensor(np.asarray(_array(weights), np.float64))
        self.num_samples, self.replacement, self.generator = num_samples, replacement, generator
        w = self.weights.numpy()
        if w.ndim != 1 or not np.isfinite(w).all() or (w < 0).any() or not w.any():
            raise ValueError(f"WeightedRandomSampler: weights of shape {w.shape} must be numbers along one axis, not negative and not all 0")
        if num_samples < 1 or (not replacement and num_samples > np.count_nonzero(w)):
            raise ValueError(f"WeightedRandomSampler: num_samples={num_samples} of {np.count_nonzero(w)} weights that are not 0")

    def __iter__(self) -> Iterator[int]:
        rng = default_rng if self.generator is None else self.generator
        return iter(rng.multinomial(self.weights, self.num_samples, self.replacement).tolist())

    def __len__(self) -> int:
        return self.num_samples


class _Collated:
    """The arrays of a batch that a worker sends: what a collate function gives, with arrays in place of tensors."""

    def __init__(self, function: Callable[[list], Any]):
        self.function = function

    def __call__(self, samples: list) -> Any:
        return _mapped(_Sent, self.function(samples))


class _Sent:
    """A tensor on its way out of the loader, which passes arrays on as arrays."""

    def __init__(self, t: Tensor):
        self.array = t.detach().numpy()


def _mapped(f: Any, x: Any) -> Any:
    """x with f of its tensors (or of what they were sent as), in lists, tuples and dicts."""
    if isinstance(x, (Tensor, _Sent)):
        return f(x)
    if isinstance(x, Mapping):
        return {k: _mapped(f, v) for k, v in x.items()}
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*(_mapped(f, v) for v in x))
    return type(x)(_mapped(f, v) for v in x) if type(x) in (list, tuple) else x


class DataLoader(D.DataLoader):
    """Batches of a data set as tensors, with PyTorch's arguments: one sample a batch unless batch_size says more, shuffled anew each epoch
    from the default generator (`torch.manual_seed`) or `generator`.

    Args: as PyTorch's; batch_size=None gives the samples one by one. pin_memory, persistent_workers: accepted; they change nothing.

    >>> loader = DataLoader(TensorDataset(Tensor([1.0, 2.0, 3.0])), batch_size=2)
    >>> [x.tolist() for (x,) in loader]
    [[1.0, 2.0], [3.0]]
    """

    def __init__(
        self, dataset: Any, batch_size: int | None = 1, shuffle: bool | None = None, sampler: Any = None, batch_sampler: Any = None,
        num_workers: int = 0, collate_fn: Callable[[list], Any] | None = None, pin_memory: bool = False, drop_last: bool = False,
        timeout: float = 0, worker_init_fn: Callable[[int], Any] | None = None, multiprocessing_context: Any = None, generator: Any = None,
        *, prefetch_factor: int | None = None, persistent_workers: bool = False, pin_memory_device: str = "", in_order: bool = True,
    ):  # fmt: skip
        self._single, self._size = batch_size is None and batch_sampler is None, batch_size if batch_sampler is None else None
        collate = collate_fn or (_first if self._single else default_collate)
        more: dict[str, Any] = {"collate_fn": _Collated(collate), "num_workers": num_workers, "timeout": timeout}
        more |= {"worker_init_fn": worker_init_fn, "prefetch_factor": prefetch_factor, "multiprocessing_context": multiprocessing_context}
        more["seed"] = default_rng.randint(0, 2**31, ()).item() if generator is None else None
        if generator is not None:
            more["generator"] = generator
        size, indexed = 1 if self._single else batch_size, hasattr(dataset, "__getitem__")
        if shuffle and sampler is not None:
            raise ValueError("DataLoader: shuffle=True and sampler= exclude each other")
        plain = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
        self._of_samples = (plain if sampler is None else sampler) if indexed else None
        if batch_sampler is not None:
            super().__init__(dataset, batch_sampler=batch_sampler, **more)
        elif indexed and (shuffle or sampler is not None):
            super().__init__(dataset, sampler=BatchSampler(self._of_samples, size, drop_last), **more)
        else:
            super().__init__(dataset, batch_size=size, shuffle=bool(shuffle), drop_last=drop_last, **more)
        self.collate_fn, self.pin_memory, self.persistent_workers = collate, pin_memory, persistent_workers
        self.prefetch_factor, self.in_order = prefetch_factor, in_order
        self.generator, self.multiprocessing_context, self.pin_memory_device = generator, multiprocessing_context, pin_memory_device

    @property
    def sampler(self) -> Any:
        """What gives the positions of samples, one by one: the sampler that was given, or one in order or at random; None of a stream."""
        return self._of_samples

    @property
    def batch_sampler(self) -> Any:
        """What gives the positions of each batch; None where samples come one by one."""
        return None if self._single else self._of_batches

    @property
    def batch_size(self) -> int | None:
        """Samples in a batch; None where samples come one by one, or a `batch_sampler` says."""
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return (_mapped(lambda s: Tensor(s.array), batch) for batch in super().__iter__())


def _first(samples: list) -> Any:
    """The sample of a batch of one, arrays and numbers as tensors where they are arrays."""
    return to_tensors(samples[0])


_LATER = ("dataset", "distributed", "sampler")  # modules that are imported when they are first named


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return importlib.import_module(f"tengen.pytorch.utils.data.{name}")
    raise NoSuchName("tengen.pytorch.utils.data", name, lambda: dir(sys.modules[__name__]))


__all__ = [
    "BatchSampler", "ChainDataset", "ConcatDataset", "DataLoader", "Dataset", "IterableDataset", "RandomSampler", "Sampler",
    "SequentialSampler", "StackDataset", "Subset", "SubsetRandomSampler", "TensorDataset", "WeightedRandomSampler", "default_collate",
    "default_convert", "get_worker_info", "random_split",
]  # fmt: skip
flags_of_functions(globals(), __all__)
__all__ += _LATER


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
