"""What the stages of a pipeline send one another: values forward, gradients back, each with the state of the random numbers behind it.

Nothing here waits for more than it is asked for: what is sent is on its way while the stage computes, and so is what is to come, since a
stage that knows from its schedule who sends to it asks for the next message of each before it needs one.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tengen.base.dtype import dtype as dtype_named
from tengen.base.errors import GradientError
from tengen.base.record import NamedTuple
from tengen.base.spans import note_span
from tengen.compiler.arrays import empty_row
from tengen.functional.distributed import as_row, tensor_over_row
from tengen.random import get_state
from tengen.tensor import Tensor
from tengen.tensor.elsewhere import Placed
from tengen.transport.channel import HEADER, STAGE, Sending, as_bytes, read_header
from tengen.transport.group import Group

if TYPE_CHECKING:
    from tengen.distributed.pipeline import Pipeline


class Message(NamedTuple):
    """What one part of the network gives another: tensors, whether as a tuple, and the state of the random numbers behind it."""

    tensors: list[Tensor]
    several: bool
    draws: tuple[int, int]

    @property
    def value(self) -> Any:
        """A tensor, or a tuple of them."""
        return tuple(self.tensors) if self.several else self.tensors[0]


class _Coming:
    """The next message of a process, of which a part after the other is asked for.

    Attributes: request, text: of what is awaited. started: whether that is a tensor, whose header is here. key: the message's kind, part of
        the network and round.
    """

    def __init__(self, group: Group, mesh: Any, source: int):
        self._group, self._mesh, self._source = group, mesh, source
        self.tensors: list[Tensor] = []
        self.key, self.several, self.draws = ("", 0, 0), False, (0, 0)
        self._left, self._begin = 1, 0
        self._row: np.ndarray | None = None
        self._ask_for_header()

    def _ask_for_header(self) -> None:
        self.text = f"receive from rank {self._group.proc_ranks[self._source]}"
        self._header = np.empty(HEADER, np.uint8)
        self.request = self._group.channel.transport.recv(self._header, self._source, STAGE)

    @property
    def started(self) -> bool:
        return self._row is not None

    def test(self) -> bool:
        """Whether all of it is here; asks for its next part where one has come."""
        while self._left and self.request.test():
            if self._row is None:
                self._read_header()
            else:
                self._keep(self._row)
        return not self._left

    def _read_header(self) -> None:
        kind, part, round, n, several, seed, draw, dtype, self._places, shape = read_header(self._header)[1].split(" ")
        self.key, self.several, self.draws = (kind, int(part), int(round)), several == "1", (int(seed), int(draw))
        self._left = int(n) - len(self.tensors)
        self._shape = tuple(int(k) for k in shape.split(",") if k)
        self._own = self._shape if self._places == "all" else self._mesh.part_shape(self._shape, self._places)
        self._row, self._begin = empty_row(math.prod(self._own), dtype_named(dtype).numpy), time.monotonic_ns()
        self.request = self._group.channel.transport.recv(as_bytes(self._row), self._source, STAGE)

    def _keep(self, row: np.ndarray) -> None:
        note_span(f"{self.text}: {' '.join(map(str, self.key))}", self._begin, time.monotonic_ns())
        own = tensor_over_row(row, self._own)
        self.tensors.append(own if self._places == "all" else self._mesh.unpacked(own, self._shape, self._places))
        self._row, self._left = None, self._left - 1
        if self._left:
            self._ask_for_header()


class Mail:
    """The messages of one step. A process may get them in another order than it asks for them, where it has several chunks of layers: it keeps
    them.

    Args: sources: the parts of the network that will send something, each as often as it does.
    """

    def __init__(self, pipeline: Pipeline, sources: Sequence[int] = ()):
        self._group, self._stages, self._data, self._copy = pipeline.group, pipeline.stages, pipeline.data, pipeline.copy
        self._mesh = pipeline.mesh
        self._here: dict[tuple[str, int, int], Message] = {}
        self._sending: list[Sending] = []
        self._due = Counter(source for part in sources if (source := self._process(part)) != self._group.rank)
        self._coming: dict[int, _Coming] = {}

    def _process(self, part: int) -> int:
        """The place in the group of the process that has a part of the network, in this copy of the pipeline."""
        return part % self._stages * self._data + self._copy

    def put(self, kind: str, part: int, round: int, value: Any) -> None:
        """Gives a part of the network a tensor, or a tuple of them; of placed ones the parts that this process has. kind: "f" of a forward, "b"
        of a backward, "r" a result for all."""
        several = isinstance(value, (tuple, list))
        tensors = list(value) if several else [value]
        for t in tensors:
            if not isinstance(t, Tensor) or not t.dtype.is_inexact:
                what = repr(t._layout.type) if isinstance(t, Tensor) else f"a {type(t).__name__}"
                raise GradientError(f"Pipeline: the layers before part {part} give {what}; help: float tensors, or a tuple of them")
        seed, draw = map(int, get_state())
        if self._process(part) == self._group.rank:
            self._here[kind, part, round] = Message([t.detach() for t in tensors], several, (seed, draw))
            return
        for t in tensors:
            shape = ",".join(map(str, t.shape))
            own, places = self._mesh.packed(t) if type(t._layout) is Placed else (t, "all")
            text = f"{kind} {part} {round} {len(tensors)} {int(several)} {seed} {draw} {t.dtype.name} {places} {shape}"
            self._sending.append(self._group.channel.start_send(as_row(own), self._process(part), text, STAGE))

    def take(self, kind: str, part: int, round: int, source: int) -> Message:
        """What the part `source` has put for this one."""
        while (kind, part, round) not in self._here:
            self._receive(self._process(source))
        self.look()
        return self._here.pop((kind, part, round))

    def look(self) -> None:
        """Asks each process that has something to send for its next message, without waiting: one is on its way while this process computes.
        Forgets what others have received."""
        for source, n in self._due.items():
            if n > 0:
                self._ask(source).test()
        self._sending = [s for s in self._sending if not s.test()]  # what has been received needs no memory here

    def _ask(self, source: int) -> _Coming:
        if source not in self._coming:
            self._coming[source] = _Coming(self._group, self._mesh, source)
        return self._coming[source]

    def _keep(self, source: int) -> None:
        c = self._coming.pop(source)
        self._due[source] -= 1
        self._here[c.key] = Message(c.tensors, c.several, c.draws)

    def _receive(self, source: int) -> None:
        """Receives the next message of a process."""
        coming = self._ask(source)
        while not coming.test():
            self._group.channel.wait_for(coming.request, coming.text, source, coming.started)
        self._keep(source)

    def give_up(self) -> None:
        """The step has ended with an error: what was asked for may still come, and is written into memory that has to be there."""
        if self._coming:
            self._group.channel.abandoned += self._coming.values()

    def sent(self) -> None:
        """Returns when all that was put has been received."""
        for s in self._sending:
            self._group.channel.sent(s)
