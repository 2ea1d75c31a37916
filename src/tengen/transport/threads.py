"""Ranks that are threads of one process: for tests, and to try a program without MPI."""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tengen.base.errors import DistributedError
from tengen.transport.base import Request, Transport


class _Post:
    """What the ranks of one group have put down for one another.

    Attributes: meetings: number of a collective -> rank -> its bytes. mail: (source, destination, tag) -> messages. members: the
        groups that were made of this one, by their ranks.
    """

    def __init__(self, size: int, stopped: threading.Event):
        self.size, self.stopped = size, stopped
        self.lock = threading.Lock()
        self.meetings: dict[int, dict[int, Any]] = defaultdict(dict)
        self.left: dict[int, int] = defaultdict(int)
        self.mail: dict[tuple[int, int, int], deque[np.ndarray]] = defaultdict(deque)
        self.members: dict[tuple[int, ...], _Post] = {}


class _When:
    """A request that has ended once a function says so."""

    def __init__(self, attempt: Callable[[], bool], stopped: threading.Event):
        self._attempt, self._stopped, self._done = attempt, stopped, False

    def test(self) -> bool:
        if self._stopped.is_set() and not self._done:
            raise DistributedError("another rank has ended all of them")
        self._done = self._done or self._attempt()
        return self._done


class ThreadTransport(Transport):
    """One thread's end of a group of threads."""

    name = "threads"
    near = True

    def __init__(self, post: _Post, rank: int):
        self._post, self.rank, self.size, self._number = post, rank, post.size, 0

    def _meet(self, given: Any, take: Callable[[dict[int, Any]], None]) -> Request:
        """Puts something down for a collective operation, and takes what is wanted once all ranks have put theirs."""
        number, post = self._number, self._post
        self._number += 1
        with post.lock:
            post.meetings[number][self.rank] = given

        def attempt() -> bool:
            with post.lock:
                meeting = post.meetings[number]
                if len(meeting) < self.size:
                    return False
                take(meeting)
                post.left[number] += 1
                if post.left[number] == self.size:
                    del post.meetings[number], post.left[number]
                return True

        return _When(attempt, post.stopped)

    def barrier(self) -> Request:
        return self._meet(None, lambda meeting: None)

    def broadcast(self, buffer: np.ndarray, root: int) -> Request:
        def take(meeting: dict[int, Any]) -> None:
            if self.rank != root:
                buffer[:] = meeting[root]

        return self._meet(buffer.copy() if self.rank == root else None, take)

    def allgather(self, send: np.ndarray, recv: np.ndarray, counts: Sequence[int]) -> Request:
        def take(meeting: dict[int, Any]) -> None:
            recv[:] = np.concatenate([meeting[r] for r in range(self.size)])

        return self._meet(send.copy(), take)

    def alltoall(self, send: np.ndarray, send_counts: Sequence[int], recv: np.ndarray, recv_counts: Sequence[int]) -> Request:
        ends = np.cumsum([0, *send_counts])
        pieces = [send[a:b].copy() for a, b in zip(ends, ends[1:])]

        def take(meeting: dict[int, Any]) -> None:
            recv[:] = np.concatenate([meeting[r][self.rank] for r in range(self.size)])

        return self._meet(pieces, take)

    def send(self, buffer: np.ndarray, dest: int, tag: int) -> Request:
        with self._post.lock:
            self._post.mail[self.rank, dest, tag].append(buffer.copy())
        return _When(lambda: True, self._post.stopped)

    def recv(self, buffer: np.ndarray, source: int, tag: int) -> Request:
        def attempt() -> bool:
            with self._post.lock:
                if not (waiting := self._post.mail[source, self.rank, tag]):
                    return False
                buffer[:] = waiting.popleft()
                return True

        return _When(attempt, self._post.stopped)

    def probe(self, tag: int, nbytes: int) -> list[tuple[int, np.ndarray]]:
        found = []
        with self._post.lock:
            for source in range(self.size):
                while waiting := self._post.mail[source, self.rank, tag]:
                    found.append((source, waiting.popleft()))
        return found

    def subgroup(self, ranks: Sequence[int]) -> Transport:
        with self._post.lock:
            post = self._post.members.setdefault(tuple(ranks), _Post(len(ranks), self._post.stopped))
        return ThreadTransport(post, list(ranks).index(self.rank))

    def abort(self, code: int) -> None:
        self._post.stopped.set()


def transports(size: int) -> list[ThreadTransport]:
    """The ends of a new group of threads, one for each."""
    post = _Post(size, threading.Event())
    return [ThreadTransport(post, r) for r in range(size)]
