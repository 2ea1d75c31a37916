"""Gradients that are on their way to the other processes while the backward walk goes on.

Parameters are put into buckets of one dtype and some megabytes, the last parameters first, since their gradients come first. Once all
gradients of a bucket are there, and the buckets before it have gone, it is sent: by the walk of an eager backward, or by a call of Python
that a trace has recorded there. What is left goes at the end of the micro-batch's body, where the processes agree, and wait.

All processes send the buckets in the same order, whatever they compute, so that no exchange meets another one. Which bucket an element is in
does not change by which additions its sum is made, so buckets change no bit.

What was sent may be out of date: the body of the loop may go on to clip gradients, or to add those of another loss. So what was sent is
compared with what the parameters have at the end, byte by byte; where it differs in any process, all send everything again.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tengen.base.errors import UsageWarning, warn_once
from tengen.functional.distributed import as_row, pieces
from tengen.tensor import Parameter, Tensor, tracing
from tengen.tensor.elsewhere import local
from tengen.tensor.host import can_call, record_call
from tengen.transport.channel import Channel, Gathering, as_bytes
from tengen.transport.group import Group

if TYPE_CHECKING:
    from tengen.distributed.data_parallel import Totals

BUCKET = 4 << 20  # bytes of gradients that are sent together; one that is larger goes alone


def buckets(parameters: Sequence[Parameter]) -> list[list[int]]:
    """The positions of parameters whose gradients are sent together, in the order of sending."""
    found: list[list[int]] = []
    current: dict[str, tuple[list[int], int]] = {}  # by dtype: what may take more, and its bytes
    for i in reversed(range(len(parameters))):
        p = parameters[i]
        some, nbytes = current.get(p.dtype.name, ([], 0))
        more = local(p).size * p.dtype.size
        if not some or nbytes + more > BUCKET:
            found.append(some := [])
            nbytes = 0
        some.append(i)
        current[p.dtype.name] = some, nbytes + more
    return found


def same_bytes(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two contiguous arrays have the same bytes."""
    if a.nbytes != b.nbytes:
        return False
    if a.ctypes.data == b.ctypes.data:  # the same memory
        return True
    x, y, n = as_bytes(a), as_bytes(b), a.nbytes // 8 * 8
    return bool(np.array_equal(x[:n].view(np.int64), y[:n].view(np.int64)) and np.array_equal(x[n:], y[n:]))


class Overlap:
    """What a `DataParallel` knows of its buckets, for all of its steps.

    Attributes: parameters, buckets: of the network when it was made. channel: of the group, whose second way the buckets go. on: False once a
        program has changed gradients that had been sent. now: what sends the buckets of the loop that is running.
    """

    def __init__(self, parameters: Sequence[Parameter], group: Group):
        self.parameters, self.buckets = list(parameters), buckets(parameters)
        self.channel: Channel = group.channel
        self.channel.open_side()
        self.on = True
        self.now: Early | None = None
        self._bucket = {id(self.parameters[i]): k for k, some in enumerate(self.buckets) for i in some}
        self._recording: tuple[Callable[[], object], list[set[int]]] = (lambda: None, [])
        me = weakref.WeakMethod(self._arrived)
        for p in self.parameters:
            p.register_post_accumulate_grad_hook(lambda t: None if (arrived := me()) is None else arrived(t))

    def begins(self, parameters: Sequence[Parameter]) -> bool:
        """Whether the gradients of a loop that begins go early: not beside another loop, whose buckets they could meet."""
        if not self.on or self.channel.side_user is not None or [id(p) for p in parameters] != [id(p) for p in self.parameters]:
            return False
        self.channel.side_user = self
        return True

    def ends(self) -> None:
        """The loop has ended, or goes on without."""
        self.channel.side_user = None

    def due(self) -> list[set[int]]:
        """Of each bucket the parameters that have to get a gradient before it is sent."""
        return [{id(p) for i in some if not (p := self.parameters[i]).frozen} for some in self.buckets]

    def of(self, k: int) -> list[Parameter]:
        """The parameters of a bucket."""
        return [self.parameters[i] for i in self.buckets[k]]

    def _arrived(self, p: Parameter) -> None:
        """A parameter's gradient is there, in an eager walk or in one that is recorded."""
        k = self._bucket.get(id(p))
        if k is None:  # it stands for an argument of a trace
            return
        if tracing.recorder is None:
            if self.now is not None:
                self.now.arrived(k, p)
            return
        if tracing.recorder is not self._recording[0]():
            self._recording = weakref.ref(tracing.recorder), self.due()
        left = self._recording[1][k]
        left.discard(id(p))
        if not left and self.on and not tracing.recorder.of_a_body and can_call():
            left.add(0)  # it is recorded once
            self._record(k)

    def _record(self, k: int) -> None:
        there = [p.grad is not None for p in self.of(k)]

        def send(*grads: Tensor) -> tuple:
            if self.now is not None:
                rest = iter(grads)
                self.now.ready(k, [next(rest) if one else None for one in there])
            return ()

        record_call(send, [p.grad.detach() for p in self.of(k) if p.grad is not None], what=f"gradients {k + 1} of {len(self.buckets)}")


class Early:
    """Sends the buckets of one step's rounds."""

    def __init__(self, overlap: Overlap, totals: Totals):
        self.overlap, self.totals = overlap, totals
        self._sent: list[tuple[list[np.ndarray | None], Gathering]] = []  # of each bucket that is on its way: the rows that were sent
        self._left: list[set[int]] = []
        self._weight = 1
        self._waiting: dict[int, list[Tensor | None]] = {}

    def begin(self, weight: int, sends: bool) -> None:
        """A round begins. weight: how often this process's gradients count. sends: whether it has any."""
        for gathering in self.overlap.channel.left:  # of a loop that was left: the other processes have sent theirs too
            self.overlap.channel.gathered(gathering)
        self.overlap.channel.left.clear()
        self._sent, self._left, self._weight = [], self.overlap.due(), weight
        self._waiting = {k: [None] * len(self.overlap.buckets[k]) for k, due in enumerate(self._left) if not due}  # all of it is frozen
        self.overlap.now = self if sends else None

    def arrived(self, k: int, p: Parameter) -> None:
        """An eager walk has a parameter's gradient."""
        self._left[k].discard(id(p))
        if not self._left[k] and k not in self._waiting and k >= len(self._sent):
            self.ready(k, [q.grad for q in self.overlap.of(k)])

    def ready(self, k: int, grads: list[Tensor | None]) -> None:
        """All gradients of a bucket are there: it is sent, and those behind it that had to wait for it."""
        if k >= len(self._sent):
            self._waiting.setdefault(k, grads)
        for _, gathering in self._sent:
            gathering.test()
        while (grads_of_next := self._waiting.pop(len(self._sent), None)) is not None:
            self._send(grads_of_next)

    def _send(self, grads: Sequence[Tensor | None]) -> None:
        k, group = len(self._sent), self.totals.group
        rows = [None if g is None else as_row(g) for g in grads]
        row = self.totals.row(self.overlap.buckets[k], grads, self._weight)
        parts = pieces(row.size, group.size)
        text = f"gradients {k + 1} of {len(self.overlap.buckets)}, {row.size} elements of {row.dtype}"
        mine = [parts[group.rank]] * group.size
        self._sent.append((rows, self.overlap.channel.start_all_to_all(row, parts, mine, text)))

    def end(self, present: list[bool]) -> list[list[np.ndarray]] | None:
        """Sends what is left, and waits: for each bucket this process's piece of every process's gradients, of those that have a micro-batch.

        Returns: None where what was sent is out of date in some process.
        """
        self.overlap.now = None
        old = any(not self._is_current(k, rows) for k, (rows, _) in enumerate(self._sent))
        while len(self._sent) < len(self.overlap.buckets):
            self._send([p.grad for p in self.overlap.of(len(self._sent))])
        channel, size = self.overlap.channel, self.totals.group.size
        said = channel.agree(f"gradients of a micro-batch, {len(self._sent)} buckets", np.array([old], np.uint8))
        found = []
        for _, gathering in self._sent:
            whole = channel.gathered(gathering)
            found.append([part for part, there in zip(np.split(whole, size), present) if there])
        self._sent = []
        if not said[:, 0].any():
            return found
        self.overlap.on = False
        warn_once(
            "DataParallel(overlap=True): gradients were changed, or more were added, after a backward had sent them; they are sent once "
            "more, from now on behind the body of the loop; help: one backward for each micro-batch, gradients clipped behind the loop",
            UsageWarning,
        )
        return None

    def _is_current(self, k: int, rows: Sequence[np.ndarray | None]) -> bool:
        for p, row in zip(self.overlap.of(k), rows):
            if (p.grad is None) != (row is None) or (row is not None and not same_bytes(row, as_row(p.grad))):
                return False
        return True

    def give_up(self) -> None:
        """The loop was left, in all processes or with an error: the exchanges of the round are completed, with numbers that nobody reads, so
        that those of the next loop meet one another."""
        if self._left and self.overlap.now is self:
            self.overlap.now = None
            while len(self._sent) < len(self.overlap.buckets):
                self._send([None] * len(self.overlap.buckets[len(self._sent)]))
            self.overlap.channel.left += [gathering for _, gathering in self._sent]

