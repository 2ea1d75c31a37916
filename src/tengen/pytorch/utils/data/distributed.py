"""`torch.utils.data.distributed`: each process's share of a data set."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tengen import distributed as D
from tengen.pytorch.utils.data import Sampler


class DistributedSampler(Sampler):
    """The indices that are this process's: each num_replicas-th, of an order that is equal in all of them.

    Args: dataset: what has a length. num_replicas, rank: how many processes, and which this is (default: those of
        `tengen.distributed`). shuffle: whether the order is drawn anew for each epoch, from seed and `set_epoch`. drop_last: whether
        indices that do not fill a row of processes are left out; else the first ones come once more.

    Errors: ValueError for a rank that is not there

    >>> list(DistributedSampler(range(5), num_replicas=2, rank=1, shuffle=False))
    [1, 3, 0]
    """

    def __init__(
        self, dataset: Any, num_replicas: int | None = None, rank: int | None = None, shuffle: bool = True, seed: int = 0,
        drop_last: bool = False,
    ):  # fmt: skip
        self.num_replicas = D.get_world_size() if num_replicas is None else num_replicas
        self.rank = D.get_rank() if rank is None else rank
        if not 0 <= self.rank < self.num_replicas:
            raise ValueError(f"DistributedSampler: there is no rank {self.rank} of {self.num_replicas}")
        self.dataset, self.shuffle, self.seed, self.drop_last, self.epoch = dataset, shuffle, seed, drop_last, 0
        n = len(dataset)
        self.num_samples = n // self.num_replicas if drop_last else -(-n // self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator[int]:
        n = len(self.dataset)
        order = np.random.default_rng([self.seed, self.epoch]).permutation(n) if self.shuffle else np.arange(n)
        return iter(np.resize(order, self.total_size)[self.rank :: self.num_replicas].tolist() if n else [])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Says which order is drawn: call it before each epoch, in all processes with the same number."""
        self.epoch = epoch


__all__ = ["DistributedSampler"]
