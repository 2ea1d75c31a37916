"""The verbs of a transport: what moves bytes among ranks. None of them computes, so that bits never depend on a transport; but for the
library's own sum, which has to be asked for (`reduction="library"`).

Every verb starts a transfer and returns at once with a `Request`; `channel.Channel` waits for it, with a time-out. Buffers are
one-dimensional, contiguous arrays of uint8, which stay as they are until the transfer has ended.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from tengen.base.errors import DistributedError


class Request(Protocol):
    """A transfer that was started."""

    def test(self) -> bool:
        """Whether it has ended; never blocks."""


class Transport(ABC):
    """A group of ranks that can talk to one another.

    Attributes: rank: this one's number, from 0. size: how many there are. name: the transport's, for messages.
        crowded: whether more ranks run on this machine than it has processors for, so that one that waits keeps another from its work.
        near: whether all are on this machine.
    """

    rank: int
    size: int
    name: str
    crowded: bool = False
    near: bool = False

    @abstractmethod
    def barrier(self) -> Request:
        """Ends when all ranks have started it."""

    @abstractmethod
    def broadcast(self, buffer: np.ndarray, root: int) -> Request:
        """Root's bytes, into every rank's buffer."""

    @abstractmethod
    def allgather(self, send: np.ndarray, recv: np.ndarray, counts: Sequence[int]) -> Request:
        """All ranks' bytes one after another, into every rank's `recv`; counts[r] bytes are rank r's."""

    @abstractmethod
    def alltoall(self, send: np.ndarray, send_counts: Sequence[int], recv: np.ndarray, recv_counts: Sequence[int]) -> Request:
        """The r-th piece of `send` for rank r; the r-th piece of `recv` from rank r."""

    def library_sum(self, send: np.ndarray, recv: np.ndarray) -> Request:
        """The sum of all ranks' arrays by the library's own algorithm, in an order that it chooses, into every rank's `recv`. Errors:
        DistributedError where there is none, or none of this dtype."""
        raise DistributedError(f'reduction="library": {self.name} have no sum of their own; help: reduction="ranks"')

    @abstractmethod
    def send(self, buffer: np.ndarray, dest: int, tag: int) -> Request:
        """Bytes for one rank."""

    @abstractmethod
    def recv(self, buffer: np.ndarray, source: int, tag: int) -> Request:
        """Bytes of one rank, as many as the buffer holds."""

    @abstractmethod
    def probe(self, tag: int, nbytes: int) -> list[tuple[int, np.ndarray]]:
        """(rank, bytes) of each message of a tag that has come, without waiting; nbytes: how long one is."""

    @abstractmethod
    def subgroup(self, ranks: Sequence[int]) -> Transport:
        """The group of some of the ranks, of which this must be one; all of them call it."""

    @abstractmethod
    def abort(self, code: int) -> None:
        """Ends all ranks' processes."""
