"""DataLoader: a dataset, a sampler, a transform and a collator in; batches of NumPy arrays out, in the sampler's order.

Batch k of an epoch is a pure function of (seed, epoch, k): the number of workers, the order in which they finish, and an
interruption change nothing. That is also why a loader can be resumed from four integers.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from tengen.base.arguments import Checked, whole_number
from tengen.base.errors import UsageWarning, warn_once
from tengen.base.record import NamedTuple
from tengen.data.collator import Collator
from tengen.data.dataset import is_stream
from tengen.data.draws import Draws, fresh_seed, seed_of
from tengen.data.patience import within
from tengen.data.pytorch_names import BatchSampler
from tengen.data.sampler import MapSampler, Position, RandomSampler, Sampler, SequentialSampler, StreamSampler, fitting
from tengen.data.transform import PseudoTransform
from tengen.data.workers import Workers

_HELP = "; help: a longer timeout, or 0 to wait for ever"


class Task(NamedTuple):
    """A batch to prepare, or a piece of one."""

    seed: int
    epoch: int
    indices: list[int]
    occurrences: list[int] | None
    samples: list | None  # of a stream; the samples of a map dataset are read where the task runs
    collate: bool


class Fetch:
    """Prepares a task: reads the samples, transforms and collates them. Runs in the loader's process or in a worker."""

    def __init__(self, dataset: Any, transform: Any, collator: Any):
        self.dataset, self.transform, self.collator = dataset, transform, collator

    def __call__(self, task: Task) -> Any:
        with Draws(task.seed, task.epoch, task.indices, task.occurrences) as draws:
            samples = task.samples
            if samples is None:
                samples = [self._read(draws, k, i) for k, i in enumerate(task.indices)]
            draws.select(0)
            samples = self.transform.apply_batch(samples)
            return self.collator.apply(samples) if task.collate else list(samples)

    def _read(self, draws: Draws, k: int, index: int) -> Any:
        draws.select(k)
        try:
            return self.dataset[index]
        except Exception as e:
            e.add_note(f"while reading sample {index} of {type(self.dataset).__name__}")
            raise


class DataLoader(Checked):
    """Iterates over a dataset in batches of NumPy arrays.

    Args:
        dataset: a `Dataset` or `StreamDataset`, or anything with an index and a length, or anything that iterates.
        sampler: decides the batches; default: one sample after the other.
        transform: changes the samples of a batch (`apply_batch`); default: nothing.
        collator: makes a batch of samples (`apply`); default: `Collator()`.
        num_workers: processes that prepare batches ahead; 0 prepares them here, when they are asked for. A stream is read
            here and transformed by the workers.
        timeout: seconds that reading a batch of a stream may take, and seconds to wait for a batch that is prepared, before
            `WorkerTimeout`, which says what was waited for; 0 waits for ever. What is read here is then read by a thread, which
            is given up when it hangs.
        preload: give Tensors in place of arrays, and prepare one batch ahead.
        parallel_stream: taken for MegEngine's sake; the workers always share a stream.
        divide: split every batch among the workers, in place of giving each worker whole batches: a lower delay, the same
            batches.
        seed: key of the transforms' random numbers; default: the sampler's seed, or that of `fresh_seed`.
        prefetch: batches prepared ahead, per worker.
        context: how workers start: "fork", "spawn", "forkserver"; default: Python's. "spawn" and "forkserver" need the main
            module's guard ``if __name__ == "__main__":``.

        batch_size, shuffle, drop_last: PyTorch's way to say which sampler: a `RandomSampler` (keyed by `seed`) or a
            `SequentialSampler`; the number may also stand in the sampler's place. collate_fn: PyTorch's way to give a collator, a
            function of a list of samples. batch_sampler: what gives lists of indices. sampler may also give single indices, where
            batch_size says how many make a batch. generator: stands for a seed (a number, or a generator of NumPy's, Tengen's or
            PyTorch's). worker_init_fn: called with its number in each worker, before its first batch. prefetch_factor,
            multiprocessing_context: PyTorch's names for prefetch and context. pin_memory, persistent_workers, in_order: accepted; they
            change no batch.

    Errors:
        ArgumentError (a ValueError and a TypeError): a number out of range, or no number. TypeError: two ways to say the same, no dataset,
        no transform. ValueError: a sampler that is not for the dataset. In iterating: what the dataset,
        transform or collator raised, with the worker's traceback as a note; WorkerError when a worker died; WorkerTimeout.

    >>> from tengen.data import ArrayDataset, RandomSampler
    >>> numbers = ArrayDataset(np.arange(6))
    >>> loader = DataLoader(numbers, RandomSampler(numbers, batch_size=4, seed=0))
    >>> [len(batch) for batch in loader], len(loader)
    ([4, 2], 2)
    >>> [len(batch) for batch in DataLoader(numbers, batch_size=4, shuffle=True, drop_last=True)]
    [4]
    """

    def __init__(
        self,
        dataset: Any,
        sampler: Any = None,
        transform: Any = None,
        collator: Any = None,
        num_workers: int = 0,
        timeout: float = 0,
        preload: bool = False,
        parallel_stream: bool = False,
        divide: bool = False,
        *,
        seed: int | None = None,
        prefetch: int = 2,
        context: str | None = None,
        batch_size: int | None = None,
        shuffle: bool = False,
        drop_last: bool = False,
        collate_fn: Callable[[list], Any] | None = None,
        prefetch_factor: int | None = None,
        batch_sampler: Any = None,
        generator: Any = None,
        worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: Any = None,
        pin_memory: bool = False,
        pin_memory_device: str = "",
        persistent_workers: bool = False,
        in_order: bool = True,
    ):
        seed = _either("seed", seed, "generator", None if generator is None else seed_of(generator))
        context = _either("context", context, "multiprocessing_context", multiprocessing_context)
        sampler = _either("sampler", sampler, "batch_sampler", batch_sampler)
        if isinstance(transform, bool):  # PyTorch's third argument
            transform, shuffle = None, transform
        prefetch = prefetch if prefetch_factor is None else prefetch_factor
        num_workers = whole_number("DataLoader", "num_workers", num_workers, 0)
        prefetch = whole_number("DataLoader", "prefetch", prefetch, 1)
        if not isinstance(timeout, (int, float, np.number)) or not 0 <= timeout < threading.TIMEOUT_MAX:
            raise ValueError(f"DataLoader: timeout must be a number of seconds, or 0 to wait for ever, got {timeout!r}")
        if not hasattr(dataset, "__getitem__") and not hasattr(dataset, "__iter__"):
            raise TypeError(f"DataLoader: a {type(dataset).__name__} is no dataset; help: what has an index and a length, or iterates")
        self.is_stream = is_stream(dataset)
        sampler = self._chosen_sampler(dataset, sampler, batch_size, shuffle, drop_last, seed, batch_sampler is not None)
        if collate_fn is not None:
            collator = _either("collator", collator, "collate_fn", _Collating(collate_fn))
        transform = PseudoTransform() if transform is None else transform
        if not hasattr(transform, "apply_batch"):
            raise TypeError(f"DataLoader: {type(transform).__name__} is no transform: it has no apply_batch method")
        self.dataset, self._of_batches, self.transform = dataset, sampler, transform
        self.collator = Collator() if collator is None else collator
        self.num_workers, self.timeout, self.preload, self.divide = num_workers, timeout, preload, divide
        self.prefetch, self.context, self.worker_init_fn = prefetch, context, worker_init_fn
        inherited = getattr(sampler, "seed", None)
        self.seed = int(seed) if seed is not None else inherited if inherited is not None else fresh_seed()
        self._position = Position()

    def check_memory_rationality(self) -> None:
        """Warns where the workers would need more memory than there is, if each came to copy what this process has: MegEngine's."""
        pages = int(Path("/proc/self/statm").read_text().split()[1])  # resident ones
        if (self.num_workers + 1) * pages > os.sysconf("SC_PHYS_PAGES"):
            size = pages * os.sysconf("SC_PAGE_SIZE") >> 20
            warn_once(
                f"DataLoader: {self.num_workers} workers and this process of {size} MiB may need more memory than there is; help: fewer "
                "workers, or arrays in place of lists of Python objects, which workers copy as they read them",
                UsageWarning,
            )

    def _chosen_sampler(
        self, dataset: Any, sampler: Any, batch_size: int | None, shuffle: bool, drop_last: bool, seed: int | None, gives_batches: bool
    ) -> Any:
        """What gives the positions of each batch: the sampler that was given, or one that these arguments describe."""
        if isinstance(sampler, (int, np.integer)) and batch_size is None:  # PyTorch's second argument
            sampler, batch_size = None, int(sampler)
        if sampler is None:
            sampler = self._sampler(dataset, 1 if batch_size is None else batch_size, shuffle, drop_last, seed)
        elif batch_size is not None or shuffle or drop_last:
            sampler = self._cut(sampler, batch_size, shuffle, drop_last, gives_batches)
        if self.is_stream != isinstance(sampler, StreamSampler):
            kind = "stream" if self.is_stream else "map"
            raise ValueError(f"DataLoader: a {kind} dataset does not go with {type(sampler).__name__}")
        return sampler

    def _sampler(self, dataset: Any, batch_size: int, shuffle: bool, drop_last: bool, seed: int | None) -> Any:
        """The sampler that PyTorch's arguments describe: of all samples, in every process of a job."""
        if self.is_stream:
            if shuffle:
                raise ValueError(f"DataLoader: {type(dataset).__name__} is a stream, which cannot be shuffled")
            return StreamSampler(batch_size, drop_last)
        if shuffle:
            return RandomSampler(dataset, batch_size, drop_last, seed=seed, world_size=1, rank=0)
        return SequentialSampler(dataset, batch_size, drop_last, world_size=1, rank=0)

    @staticmethod
    def _cut(sampler: Any, batch_size: int | None, shuffle: bool, drop_last: bool, gives_batches: bool) -> Any:
        """A sampler that gives single samples, as PyTorch's do, with these arguments."""
        single = not isinstance(sampler, Sampler) or (isinstance(sampler, MapSampler) and sampler.batch_size == 1)
        if shuffle or gives_batches or not single or batch_size is None:
            raise TypeError("DataLoader: batch_size, shuffle and drop_last belong to the sampler, where one is given")
        return BatchSampler(sampler, batch_size, drop_last)

    @property
    def sampler(self) -> Any:
        """What gives the positions of each batch."""
        return self._of_batches

    @sampler.setter
    def sampler(self, sampler: Any) -> None:
        self._of_batches = sampler

    @property
    def batch_size(self) -> int | None:
        """Samples in a batch; None where the sampler does not say."""
        return getattr(self._of_batches, "batch_size", None)

    @property
    def drop_last(self) -> bool:
        """Whether the last batch is left out when it is short."""
        return getattr(self._of_batches, "drop_last", False)

    def __len__(self) -> int:
        """The number of batches in an epoch; TypeError for a stream."""
        return len(self._of_batches)

    def __iter__(self) -> Iterator[Any]:
        return self._position.follow(self._ahead if self.preload else self._batches)

    def _ahead(self, epoch: int, start: int) -> Generator[Any]:
        """The batches as Tensors, one prepared ahead."""
        with closing(self._batches(epoch, start)) as batches:
            for batch in _one_ahead(batches):
                yield to_tensors(batch)

    # -- resuming ----------------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, int | None]:
        """Where the newest iteration stands, as plain integers: everything that is needed to go on from there."""
        at = self._position
        seeds = {"seed": self.seed, "sampler_seed": getattr(self._of_batches, "seed", None)}
        return {"epoch": at.epoch, "batch": at.batch, **seeds, **self._identity()}

    def load_state_dict(self, state: Mapping[str, int | None]) -> None:
        """Go on where `state` was taken: the next iterator gives the batches that were left of that epoch.

        A loader on the same data gives the same batches, with any number of workers. A stream is read again from its front up
        to that place.

        Errors:
            KeyError: an entry is missing. ValueError: it was taken from a loader with other batches.
        """
        fitting("DataLoader", state, self.state_dict(), self._identity())
        for key in ("seed", "sampler_seed"):
            if not isinstance(state[key], int) and not (key == "sampler_seed" and state[key] is None):
                raise ValueError(f"DataLoader: the state's {key} must be an integer, got {state[key]!r}")
        self._position.resume("DataLoader", state["epoch"], state["batch"])
        if state["sampler_seed"] is not None:
            self._of_batches.seed = state["sampler_seed"]
        self.seed = state["seed"]

    def _identity(self) -> dict[str, int | None]:
        inner = getattr(self._of_batches, "sampler", self._of_batches)
        return {
            "batch_size": getattr(self._of_batches, "batch_size", None),
            "world_size": getattr(inner, "world_size", 1),
            "samples": None if self.is_stream else len(self.dataset),
        }

    # -- making batches ----------------------------------------------------------------------------------------------------
    def _batches(self, epoch: int, start: int) -> Generator[Any]:
        fetch = Fetch(self.dataset, self.transform, self.collator)
        tasks = self._tasks(epoch, start)
        name = type(self.dataset).__name__
        if self.num_workers == 0:
            batches = (fetch(task) for task in tasks)  # not `map`, for which a StopIteration of the dataset would be the end
            yield from within(batches, self.timeout, f"a batch of {name}, which is read and prepared in this process{_HELP}")
            return
        if self.is_stream:
            many = f"{self._of_batches.batch_size} samples" if self._of_batches.batch_size > 1 else "a sample"
            tasks = within(tasks, self.timeout, f"{many} of the stream {name}, which is read in this process{_HELP}")
        # Workers never read a stream, and it need not survive the way to them.
        remote = Fetch(None, self.transform, self.collator) if self.is_stream else fetch
        with Workers(remote, self.num_workers, self.seed, remote.dataset, self.context, self.worker_init_fn) as workers:
            flying: deque[list[int]] = deque()  # the numbers of each batch's pieces
            numbers = iter(range(1 << 62))
            batch = start
            while True:
                for task in islice(tasks, max(0, self.num_workers * self.prefetch - len(flying))):
                    pieces = [(next(numbers), piece) for piece in self._pieces(task)]
                    for number, piece in pieces:
                        workers.submit(number, piece, self.timeout, f"batch {batch + len(flying)} of {name}{_HELP}")
                    flying.append([number for number, _ in pieces])
                if not flying:
                    return
                what = f"batch {batch} of {name}{_HELP}"
                parts = [workers.result(number, self.timeout, what) for number in flying.popleft()]
                batch += 1
                yield self.collator.apply([s for part in parts for s in part]) if self.divide else parts[0]

    def _tasks(self, epoch: int, start: int) -> Iterator[Task]:
        if self.is_stream:
            yield from self._stream_tasks(epoch, start)
            return
        if hasattr(self._of_batches, "batches"):
            batches = self._of_batches.batches(epoch, start)
        else:
            batches = islice(iter(self._of_batches), start, None)
        repeats = getattr(self._of_batches, "repeats", True)
        for k, batch in enumerate(batches, start):
            indices = [int(i) for i in batch]
            occurrences = [(k << 32) + j for j in range(len(indices))] if repeats else None
            yield Task(self.seed, epoch, indices, occurrences, None, True)

    def _stream_tasks(self, epoch: int, start: int) -> Iterator[Task]:
        samples = iter(self.dataset)
        size = self._of_batches.batch_size
        next(islice(samples, start * size, start * size), None)  # leave out what was given before
        for positions in self._of_batches.batches(epoch, start):
            with Draws(self.seed, epoch, positions[:1], [1]):  # what the stream itself draws while it is read
                chunk = list(islice(samples, size))
            if not chunk or (len(chunk) < size and self._of_batches.drop_last):
                return
            yield Task(self.seed, epoch, positions[: len(chunk)], None, chunk, True)

    def _pieces(self, task: Task) -> list[Task]:
        """The parts of a task that go to different workers; one unless `divide`."""
        n = len(task.indices)
        if not self.divide:
            return [task]
        cuts = sorted({n * k // self.num_workers for k in range(self.num_workers + 1)})
        return [
            task._replace(
                indices=task.indices[a:b],
                occurrences=task.occurrences and task.occurrences[a:b],
                samples=task.samples and task.samples[a:b],
                collate=False,
            )
            for a, b in zip(cuts, cuts[1:])
        ]


class _Collating:
    """A function of a list of samples as a collator."""

    def __init__(self, function: Callable[[list], Any]):
        self.function = function

    def apply(self, inputs: Any) -> Any:
        return self.function(list(inputs))


def _either(name: str, value: Any, other_name: str, other: Any) -> Any:
    """The one that was given of two names of an argument."""
    if value is not None and other is not None:
        raise TypeError(f"DataLoader takes either {name} or {other_name}")
    return other if value is None else value


def _one_ahead(batches: Iterator[Any]) -> Iterator[Any]:
    """The same batches, each given out when the next one has been asked for. An error of the next one comes when that is due."""
    waiting = list(islice(batches, 1))
    while waiting:
        try:
            waiting += islice(batches, 1)
        except Exception:
            yield waiting.pop(0)
            raise
        yield waiting.pop(0)


def to_tensors(batch: Any) -> Any:
    """A batch with Tensors in place of its numeric arrays."""
    from tengen.tensor import Tensor  # only here: workers and NumPy users need no runtime

    if isinstance(batch, np.ndarray):
        return Tensor(batch) if batch.dtype.kind in "fiub" or batch.dtype.name == "bfloat16" else batch
    if isinstance(batch, Mapping):
        return {key: to_tensors(value) for key, value in batch.items()}
    if isinstance(batch, tuple):
        items = [to_tensors(value) for value in batch]
        return type(batch)(*items) if hasattr(batch, "_fields") else tuple(items)
    return batch
