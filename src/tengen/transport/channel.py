"""Collective operations of one group on NumPy arrays, each checked: before any data moves, the ranks compare what they are about to
do, so that ranks that disagree get an error instead of each other's bytes, and a rank that does not come is named in bounded time.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from itertools import accumulate
from typing import Any

import numpy as np

from tengen.base.config import config
from tengen.base.digest import blake2b
from tengen.base.errors import DistributedError, LostRankError, UsageWarning, warn_once
from tengen.base.record import NamedTuple
from tengen.base.spans import note_span
from tengen.transport.base import Request, Transport
from tengen.transport.shared import Segments, block, open_segments, piece_of

HEADER = 256  # bytes of a header: the number of the operation, then its description in UTF-8, padded with zeros
MARK = 24  # bytes that ranks compare: the number of the operation, and a digest of its description
LOAD = 1024  # bytes of a small array that travel with them
SPIN = 2e-3  # seconds of asking without a pause, since most transfers end by then
ACTIVE = 1.0  # the same for a transfer in which all are known to take part; one that takes longer has a rank that has stopped, perhaps
PAUSE = 2e-5  # seconds between two questions after that: each moves a part of a large message
CROWDED_PAUSE = 2e-4  # the same, from the first question on, where the ranks that work need the processor of one that waits
PRESENT_AFTER = 0.5  # seconds of waiting after which a rank tells the others that it waits, so that those who do not can be named
SAID_AFTER = 30.0  # seconds of waiting after which a line says for whom
END = "the end of the program"
PROPOSAL = "proposes to "  # begins the text of what a rank wants to do, where the others may want something else
PRESENT, DATA, STAGE = 1, 2, 3  # tags of messages between two ranks; STAGE: between stages of a pipeline


def as_bytes(a: np.ndarray) -> np.ndarray:
    """The memory of a contiguous array as uint8."""
    return a.reshape(-1).view(np.uint8) if a.size else np.empty(0, np.uint8)


def _header(number: int, text: str) -> np.ndarray:
    said = text.encode()
    if len(said) > HEADER - 8:  # what does not fit still differs where it differs
        said = said[: HEADER - 8 - 20] + blake2b(said, digest_size=10).hexdigest().encode()
    record = np.zeros(HEADER, np.uint8)
    record[:8] = np.array([number], "<i8").view(np.uint8)
    record[8 : 8 + len(said)] = np.frombuffer(said, np.uint8)
    return record


def read_header(record: np.ndarray) -> tuple[int, str]:
    """The number of the operation, and its description."""
    return int(record[:8].view("<i8")[0]), record[8:].tobytes().rstrip(b"\0").decode(errors="replace")


@functools.lru_cache(1024)
def _digest(text: str) -> np.ndarray:
    return np.frombuffer(blake2b(text.encode(), digest_size=MARK - 8).digest(), np.uint8)


def _cut(a: np.ndarray, counts: Sequence[int]) -> list[np.ndarray]:
    """The pieces of an array, which lie one after another."""
    return [a[end - n : end] for n, end in zip(counts, accumulate(counts))]


class Memory:
    """Where what comes from other ranks is put. The pool of tensors' memory, some floors up, has pages that are there already:
    `functional/distributed.py` installs it once.

    Attributes:
        empty: (elements, dtype) -> an array whose values are not set.
    """

    empty: Callable[[int, Any], np.ndarray] = staticmethod(np.empty)

    def install(self, empty: Callable[[int, Any], np.ndarray]) -> None:
        """Installs what gives memory. Errors: RuntimeError when that was done before."""
        if "empty" in vars(self):
            raise RuntimeError("what gives memory for exchanges is installed already, by functional/distributed.py")
        self.empty = empty


memory = Memory()


class Sending(NamedTuple):
    """An array that is being sent to a rank, with its description."""

    requests: list[Request]
    dest: int
    text: str

    def test(self) -> bool:
        """Whether the rank has it; never blocks."""
        return all([r.test() for r in self.requests])


class Gathering:
    """An exchange that was started. request: None where it has ended already. whole: what comes of it, complete once it has ended. text: for
    messages and the timeline."""

    def __init__(self, request: Request | None, whole: np.ndarray, text: str):
        self.whole, self.text = whole, text
        self._request, self._begin = request, time.monotonic_ns()

    def test(self) -> bool:
        """Whether it has ended; never blocks. MPI moves the next part of a large message only when it is asked."""
        if self._request is not None and self._request.test():
            self._request = None
            note_span(self.text, self._begin, time.monotonic_ns())
        return self._request is None


class Channel:
    """A group of ranks with the count of the operations that it has done.

    Attributes: transport: what moves the bytes. ranks: the members' numbers in the whole job. received: bytes of arrays that other ranks'
        parts of exchanges have brought here. left: exchanges that were started, and whose result nobody wants. abandoned: what was to be
        received, and is not waited for. side_user: who sends by `start_all_to_all` now. segments: the memory through which its ranks exchange
        arrays, where all are on one machine; None: arrays go by messages. way: how they go, for people.
    """

    def __init__(self, transport: Transport, ranks: Sequence[int]):
        self.transport, self.ranks = transport, tuple(ranks)
        self.rank, self.size = transport.rank, transport.size
        self._number, self._last = 0, "none"
        self.received = 0
        self._broken: str | None = None
        self._ending: Request | None = None  # kept, since others may still write what it receives
        self._here: set[int] = set()  # ranks that have told this one that they wait in the operation at hand
        self._mine, self._all = np.zeros(MARK + LOAD, np.uint8), np.zeros((self.size, MARK + LOAD), np.uint8)
        self._counts = [MARK + LOAD] * self.size
        self._side: Transport | None = None
        self.side_user: object = None
        self.left: list[Gathering] = []
        self.abandoned: list[object] = []
        self.segments: Segments | None = None
        self.way = "messages"

    def open_segments(self) -> None:
        """Opens the memory that ranks of one machine share, all of them together; a group of several machines has none."""
        if not self.transport.near:
            self.way = "messages, since not all ranks are on this machine"
            return

        def exchange(mine: np.ndarray) -> np.ndarray:
            every = np.empty((self.size, mine.size), np.uint8)
            self._wait(self.transport.allgather(mine, every.reshape(-1), [mine.size] * self.size), "open shared memory")
            return every

        self.segments, why = open_segments(self.rank, exchange)
        if self.segments is not None:
            self.way = "shared memory"
            return
        self.way = f"messages, since {why or 'another rank'} can share no memory"
        if why:
            warn_once(f"rank {self.ranks[self.rank]}: arrays go to other processes by {self.way}; that takes longer", UsageWarning)

    def agree(self, text: str, load: np.ndarray | None = None) -> np.ndarray:
        """Returns when all ranks have come here with the same text, which says what they do next.

        Args: load: up to `LOAD` bytes for the others. Returns: [rank, byte] what all have given, until the next operation.
        Errors: DistributedError that says what each wants, or who has not come within the time-out.
        """
        if not self._meet(text, text, load):
            raise self._disagreed(self._texts(text))
        self._last = text
        return self._all[:, MARK:]

    def agree_on(self, text: str, parts: Sequence[str]) -> None:
        """The same for an operation on several things, each with a text; an error says which is the first that differs."""
        digest = blake2b(repr(parts).encode(), digest_size=8).hexdigest()
        whole = f"{text}, {len(parts)} tensors, digest {digest}"
        if not self._meet(whole, whole):
            said = self._texts(whole)
            wants = [what.rpartition(", ")[0] for _, what in said]
            if any(n != self._number for n, _ in said) or len(set(wants)) > 1:
                raise self._disagreed(said)
            marks = np.array([blake2b(p.encode(), digest_size=8).digest() for p in parts], "S8").view(np.uint8).reshape(-1, 8)
            every = np.empty((self.size, *marks.shape), np.uint8)
            self._wait(self.transport.allgather(as_bytes(marks), as_bytes(every), [marks.size] * self.size), text)
            first = int((every != every[0]).any((0, 2)).argmax())
            raise self._disagreed(self._texts(f"{text}, of which tensor {first} is {parts[first]}"))
        self._last = text

    def end(self) -> None:
        """Returns when the programs of all ranks have come to their ends, or after the time-out: one may have more to do. Errors:
        DistributedError where another one waits for this rank in an operation."""
        if self._broken is None:
            self._ending, pause, start = self._start(END), PAUSE, time.monotonic()
            while not all(request.test() for request in (self._ending, *self.left)):
                if time.monotonic() - start > config.distributed_timeout:
                    return
                time.sleep(pause := min(2 * pause, 0.01))
            if not self._same():
                raise self._disagreed(self._texts(END))

    def propose(self, text: str) -> list[str]:
        """What each rank wants to do next, where that may differ; all come here, and decide by the same rule what they do together.

        Errors: DistributedError where a rank does something else.
        """
        load = np.zeros(LOAD, np.uint8)
        said = np.frombuffer(text.encode()[:LOAD], np.uint8)
        load[: said.size] = said
        if not self._meet(text, PROPOSAL, load):
            raise self._disagreed(self._texts(PROPOSAL + text))
        self._last = text
        return [row.tobytes().rstrip(b"\0").decode(errors="replace") for row in self._all[:, MARK:]]

    def _meet(self, text: str, same: str, load: np.ndarray | None = None) -> bool:
        """Whether all ranks, once they have come, do the same; one exchange. text: for messages. same: what is to be the same."""
        if self._broken is not None:
            raise DistributedError(f"{text}: this group failed before ({self._broken}); help: start the processes again")
        self._wait(self._start(same, load), text)
        return self._same()

    def _start(self, same: str, load: np.ndarray | None = None) -> Request:
        self._number += 1
        self._here = {self.rank}
        self._mine[:8].view("<i8")[0] = self._number
        self._mine[8:MARK] = _digest(same)
        if load is not None:
            self._mine[MARK : MARK + load.size] = load
        return self.transport.allgather(self._mine, self._all.reshape(-1), self._counts)

    def _same(self) -> bool:
        return self._all[:, :MARK].tobytes() == self._mine[:MARK].tobytes() * self.size

    def _texts(self, text: str) -> list[tuple[int, str]]:
        """(Number of the operation, text) of each rank, where they were found to differ."""
        everyone = np.empty((self.size, HEADER), np.uint8)
        self._wait(self.transport.allgather(_header(self._number, text), as_bytes(everyone), [HEADER] * self.size), text)
        return [read_header(record) for record in everyone]

    def start_all_gather(self, a: np.ndarray, sizes: Sequence[int], text: str) -> Gathering:
        """`all_gather` of what the ranks have agreed upon, which goes on while this one does something else; `gathered` ends it. Through
        shared memory it ends here: nobody else would copy meanwhile."""
        if self.segments is not None:
            return Gathering(None, self._all_gather_shared(a, sizes, text, agreed=True), text)
        whole = memory.empty(sum(sizes), a.dtype)
        counts = [n * a.itemsize for n in sizes]
        self.received += sum(counts) - counts[self.rank]
        return Gathering(self.transport.allgather(as_bytes(a), as_bytes(whole), counts), whole, text)

    def start_all_to_all(self, a: np.ndarray, sizes: Sequence[int], receives: Sequence[int], text: str) -> Gathering:
        """`all_to_all` without agreement, which goes on while the ranks do other things together: it is on a way of its own, which `open_side`
        has opened, where all ranks start the same exchanges in the same order. `gathered` ends it."""
        assert self._side is not None
        whole = memory.empty(sum(receives), a.dtype)
        send_counts, recv_counts = [n * a.itemsize for n in sizes], [n * a.itemsize for n in receives]
        self.received += sum(recv_counts) - recv_counts[self.rank]
        return Gathering(self._side.alltoall(as_bytes(a), send_counts, as_bytes(whole), recv_counts), whole, text)

    def open_side(self) -> None:
        """Opens the way of `start_all_to_all`; all ranks together, once or more often."""
        if self._side is None:
            self.agree("open a way for gradients")
            self._side = self.transport.subgroup(range(self.size))

    def gathered(self, gathering: Gathering) -> np.ndarray:
        """What an exchange that was started has brought."""
        self._wait(gathering, gathering.text, present=True)
        return gathering.whole

    def _disagreed(self, said: Sequence[tuple[int, str]]) -> DistributedError:
        wants = "; ".join(f"rank {self.ranks[r]}: operation {n}, {what}" for r, (n, what) in enumerate(said))
        return self._fail(f"the ranks disagree about what they do together. {wants}")

    def _fail(self, why: str, kind: type[DistributedError] = DistributedError) -> DistributedError:
        self._broken = why
        return kind(why)

    def _wait(self, request: Request, text: str, peer: int | None = None, present: bool = False) -> None:
        """`_until_done`, with a span on the timeline for a transfer that was not started before."""
        begin = time.monotonic_ns()
        self._until_done(request, text, peer, present)
        if (present or peer is not None) and type(request) is not Gathering:
            note_span(text, begin, time.monotonic_ns())

    def _until_done(self, request: Request, text: str, peer: int | None, present: bool) -> None:
        """Waits for a transfer, with all ranks or with one peer. present: whether all are known to take part now: then it asks without
        pauses for longer, since MPI moves the next part of a large message only when it is asked. Where ranks share processors it pauses at
        once. Errors: DistributedError after the time-out, with the ranks that are missing."""
        start, announced, said, crowded = time.monotonic(), False, False, self.transport.crowded
        active, pause = (0.0, CROWDED_PAUSE) if crowded else (ACTIVE if present else SPIN, PAUSE)
        while not self._ended(request, text):
            waited = time.monotonic() - start
            if waited < active:
                os.sched_yield()
                continue
            if waited > PRESENT_AFTER and not announced and peer is None:
                announced = True
                self._announce()
            if waited > SAID_AFTER and not said:
                said = True
                gone = f"rank {self.ranks[peer]}" if peer is not None else f"the ranks {self._gone()}"
                print(f"tengen: rank {self.ranks[self.rank]} waits for {gone} since {SAID_AFTER:g} s: {text}", file=sys.stderr, flush=True)
            if waited > config.distributed_timeout:
                raise self._fail(self._missing(text) if peer is None else self._alone(text, peer), LostRankError)
            time.sleep(pause)

    def _ended(self, request: Request, text: str) -> bool:
        """Whether a transfer has ended. Errors: LostRankError where the network has failed, which ends this group."""
        try:
            return request.test()
        except DistributedError:
            raise
        except (OSError, RuntimeError) as e:  # MPI.Exception is a RuntimeError
            rank = self.ranks[self.rank]
            why = f"rank {rank}: {text} failed in the middle ({type(e).__name__}: {e}), in operation {self._number}"
            cure = "help: look at the network and at the other ranks, and go on from the last checkpoint"
            raise self._fail(f"{why}; {cure}", LostRankError) from e

    def _announce(self) -> None:
        self._sent = [
            self.transport.send(_header(self._number, ""), r, PRESENT) for r in range(self.size) if r != self.rank
        ]  # kept, since a buffer must live until it is sent

    def _alone(self, text: str, peer: int) -> str:
        return (
            f"rank {self.ranks[self.rank]} waited {config.distributed_timeout:g} s to {text}, and rank {self.ranks[peer]} did not do its part; "
            "help: look at what that rank did, or raise TENGEN_DISTRIBUTED_TIMEOUT"
        )

    def _gone(self) -> list[int]:
        """The ranks that have not come to the operation at hand, as far as this one knows."""
        for source, record in self.transport.probe(PRESENT, HEADER):
            if read_header(record)[0] == self._number:
                self._here.add(source)
        return [self.ranks[r] for r in range(self.size) if r not in self._here]

    def _missing(self, text: str) -> str:
        gone = self._gone()
        who = f"rank {gone[0]} has" if len(gone) == 1 else f"the ranks {', '.join(map(str, gone))} have" if gone else "the transfer has"
        end = "come" if gone else "ended"
        return (
            f"rank {self.ranks[self.rank]} waited {config.distributed_timeout:g} s in operation {self._number} ({text}), and {who} not "
            f"{end}; the last operation of all ranks was {self._number - 1} ({self._last}); help: look at what that rank did, or raise "
            "TENGEN_DISTRIBUTED_TIMEOUT"
        )

    def barrier(self) -> None:
        """Returns when all ranks have come."""
        self.agree("barrier")

    def broadcast(self, a: np.ndarray, root: int, text: str) -> None:
        """Fills every rank's array with root's; `text` describes the operation."""
        text, here = f"{text} of rank {root}", as_bytes(a)
        if a.nbytes <= LOAD:
            found = self.agree(text, here if self.rank == root else None)
            if self.rank != root:
                here[:] = found[root, : a.nbytes]
        elif self.segments is None:
            self.agree(text)
            self._wait(self.transport.broadcast(here, root), text, present=True)
        else:
            for part, halves in self._rounds(text, a.nbytes, [here if self.rank == root else here[:0]]):
                if self.rank != root:
                    here[part] = piece_of(halves[root], 0, here[part].size)

    def all_gather(self, a: np.ndarray, sizes: Sequence[int], text: str) -> np.ndarray:
        """All ranks' arrays one after another; sizes: the elements of each."""
        counts = [n * a.itemsize for n in sizes]
        if max(counts) > LOAD and self.segments is not None:
            return self._all_gather_shared(a, sizes, text)
        whole = memory.empty(sum(sizes), a.dtype)
        self.received += sum(counts) - counts[self.rank]
        if max(counts) <= LOAD:
            found = self.agree(text, as_bytes(a))
            as_bytes(whole)[:] = np.concatenate([found[r, :n] for r, n in enumerate(counts)])
            return whole
        self.agree(text)
        self._wait(self.transport.allgather(as_bytes(a), as_bytes(whole), counts), text, present=True)
        return whole

    def _all_gather_shared(self, a: np.ndarray, sizes: Sequence[int], text: str, agreed: bool = False) -> np.ndarray:
        whole, counts, mine = memory.empty(sum(sizes), a.dtype), [n * a.itemsize for n in sizes], as_bytes(a)
        self.received += sum(counts) - mine.size
        rows = _cut(as_bytes(whole), counts)
        rows[self.rank][:] = mine
        for part, halves in self._rounds(text, max(counts), [mine], agreed):
            for r, row in enumerate(rows):
                if r != self.rank:
                    row[part] = piece_of(halves[r], 0, row[part].size)
        return whole

    def library_sum(self, a: np.ndarray, text: str) -> np.ndarray:
        """The sum of all ranks' arrays as the transport's library adds them."""
        self.agree(text)
        whole = np.empty_like(a)
        self.received += a.nbytes
        if a.size:
            self._wait(self.transport.library_sum(a, whole), text, present=True)
        return whole

    def all_to_all(self, a: np.ndarray, sizes: Sequence[int], receives: Sequence[int], text: str) -> np.ndarray:
        """The pieces that all ranks have for this one, one after another; sizes: elements of each piece of `a`, receives: of each piece
        of the result."""
        whole = memory.empty(sum(receives), a.dtype)
        send_counts, recv_counts = [n * a.itemsize for n in sizes], [n * a.itemsize for n in receives]
        if self.segments is not None:
            rows = _cut(as_bytes(whole), recv_counts)
            for at, parts in self._parts(as_bytes(a), send_counts, recv_counts, text):
                for row, part in zip(rows, parts):
                    row[at : at + part.size] = part
            return whole
        self.agree(text)
        self.received += sum(recv_counts) - recv_counts[self.rank]
        self._wait(self.transport.alltoall(as_bytes(a), send_counts, as_bytes(whole), recv_counts), text, present=True)
        return whole

    def exchanged(self, a: np.ndarray, sizes: Sequence[int], text: str) -> Iterator[tuple[int, list[np.ndarray]]]:
        """This rank's piece of every rank's array, part by part; sizes: elements of each rank's piece, the same in all ranks.

        Yields: (where a part begins in the piece, that part of each rank's array): in shared memory, where nothing is copied, they hold
            until the next part is asked for. Whoever does not ask for all has left the exchange, and the group with it.
        """
        mine = sizes[self.rank]
        if self.segments is None:
            whole = self.all_to_all(a, sizes, [mine] * self.size, text)
            yield 0, [whole[r * mine : (r + 1) * mine] for r in range(self.size)]
            return
        counts = [n * a.itemsize for n in sizes]
        # The rounds end with this generator: Python 3.12.3 does not let go of what a generator that is closed goes through.
        with closing(self._parts(as_bytes(a), counts, [counts[self.rank]] * self.size, text)) as every:
            for at, parts in every:
                if parts[0].size or at == 0:
                    yield at // a.itemsize, [part.view(a.dtype) for part in parts]

    def _parts(
        self, send: np.ndarray, send_counts: Sequence[int], recv_counts: Sequence[int], text: str
    ) -> Generator[tuple[int, list[np.ndarray]]]:  # fmt: skip
        """(Where a part begins, that part of what each rank has for this one) of an all-to-all through shared memory, in bytes."""
        self.received += sum(recv_counts) - recv_counts[self.rank]
        pieces = _cut(send, send_counts)
        mine, pieces[self.rank] = pieces[self.rank], send[:0]
        with closing(self._rounds(text, max(*send_counts, *recv_counts), pieces)) as rounds:
            for part, halves in rounds:
                there = [piece_of(half, self.rank, max(0, min(n, part.stop) - part.start)) for half, n in zip(halves, recv_counts)]
                there[self.rank] = mine[part]
                yield part.start, there

    def _rounds(
        self, text: str, nbytes: int, pieces: Sequence[np.ndarray], agreed: bool = False
    ) -> Generator[tuple[slice, list[np.ndarray]]]:  # fmt: skip
        """The rounds of an exchange through shared memory. The first one's barrier is the agreement.

        Args: nbytes: the most that this rank knows of one piece. pieces: what it puts there. agreed: whether the ranks have agreed already,
            and all know the same `nbytes`.
        Yields: (which bytes of each piece are there, the halves of all ranks' segments), which hold until the next round.
        """
        assert self.segments is not None
        at, size, begin, ended = 0, block(len(pieces)), time.monotonic_ns(), False
        try:
            while not ended:
                part = slice(at, at + size)
                halves = self.segments.put([piece[part] for piece in pieces])
                if agreed:
                    self._until_done(self.transport.barrier(), text, None, True)
                else:
                    said = self.agree(text, np.array([nbytes], "<i8").view(np.uint8))
                    nbytes, agreed = int(np.ascontiguousarray(said[:, :8]).view("<i8").max()), True
                at += size
                ended = at >= nbytes
                yield part, halves
        finally:
            if not ended and self._broken is None:
                self._broken = f"rank {self.ranks[self.rank]} left {text} halfway"
            note_span(text, begin, time.monotonic_ns())

    def send(self, a: np.ndarray, dest: int, text: str) -> None:
        """Sends an array with its description to one rank."""
        self.sent(self.start_send(a, dest, text))

    def start_send(self, a: np.ndarray, dest: int, text: str, tag: int = DATA) -> Sending:
        """Begins to send an array, which stays as it is until `sent` has returned."""
        header = _header(0, text)
        return Sending([self.transport.send(header, dest, tag), self.transport.send(as_bytes(a), dest, tag)], dest, text)

    def sent(self, sending: Sending) -> None:
        """Returns when the other rank has what is sent."""
        for request in sending.requests:
            self._wait(request, f"send {sending.text} to rank {self.ranks[sending.dest]}", sending.dest)

    def wait_for(self, request: Request, text: str, source: int, present: bool) -> None:
        """Returns when what one rank sends is here; present: whether it is known to have begun. Errors: LostRankError that names it after the
        time-out."""
        self._until_done(request, text, source, present)

    def recv_text(self, source: int) -> str:
        """The description of the array that one rank sends next."""
        header = np.empty(HEADER, np.uint8)
        self._wait(self.transport.recv(header, source, DATA), f"receive from rank {self.ranks[source]}", source)
        return read_header(header)[1]

    def recv(self, a: np.ndarray, source: int) -> None:
        """Fills an array with what one rank sends."""
        self._wait(self.transport.recv(as_bytes(a), source, DATA), f"receive from rank {self.ranks[source]}", source, present=True)
