"""The short way of a traced call: tensors of layouts that were called with before go straight to the program.

In: a recording that has run, and what it ran on. Out: something that runs it again on tensors of the same layouts, after the few
checks that a change of layout does not show: what was read, states, gradients, what is on the tape. Where one of them fails, the call goes the
long way, which finds another recording or makes one.
"""

from __future__ import annotations

from collections.abc import Sequence
from sys import getrefcount
from typing import TYPE_CHECKING

from tengen.runtime import native
from tengen.tensor import Tensor
from tengen.tensor.assignment import own

if TYPE_CHECKING:
    from tengen.jit.trace import Recording


class DirectCall:
    """A recording for arguments of certain layouts: tensors alone, dense in order.

    Attributes:
        recording: what is run. extents: the numbers of its open extents. single: whether its one output is all that a call gives.
    """

    __slots__ = ("recording", "extents", "single", "_call", "_states", "_written", "_plain", "_borrowed", "_hold", "_managers")

    def __init__(self, recording: Recording, extents: tuple[int, ...]):
        self.recording, self.extents = recording, extents
        self.single = recording.result == ("T",) and not recording.grads
        self._states = [(t, t._layout) for t in recording.states]
        assert recording.run is not None
        self._call = recording.run.__call__  # a bound method: calling it costs half of what calling the object does
        self._written = [recording.states[i] for i in recording.run.written]
        self._plain = not (self._states or recording.guards)  # a function of its arguments alone
        self._borrowed = native.borrowed
        self._managers = [(m, m.version) for m in recording.managers]
        self._hold = recording.read.hold

    @staticmethod
    def serves(r: Recording, leaves: Sequence[Tensor]) -> bool:
        """Whether calls of a recording can be repeated: nothing of it stands in for an argument or is on the tape."""
        named = any(isinstance(t, int) for t, _, _ in (*r.grads, *r.guards))
        named = named or any(a is not None for known in r.attached for a in known[: len(leaves)])
        return not (r.open or named or r.owners or any(r.taped)) and all(x._layout.contiguous for x in leaves)

    def run(self, args: Sequence[Tensor]) -> list[Tensor] | None:
        """The outputs of the program for these arguments; None, and nothing has happened, where the recording may not fit."""
        buffers = [x._data for x in args if x._node is None]
        if len(buffers) != len(args) or not self._hold() or not (self._plain or self._ready()):
            return None
        for m, version in self._managers:
            if m.version != version or any([m.callbacks_of(x) is not None for x in args]):
                return None
        if self._states:
            buffers += [t._data for t, _ in self._states]
        return self._call(buffers, self.extents)

    def _ready(self) -> bool:
        """Whether states and gradients are as they were recorded; those that a run writes are then their tensors' own."""
        for t, layout in self._states:
            if t._layout is not layout or t._node is not None:
                return False
        for t, there, overflow in self.recording.guards:
            if (getattr(t, "_grad", None) is not None) != there or getattr(t, "overflow", None) is not overflow:
                return False
        for t in self._written:
            if getrefcount(t._data) > 2 or self._borrowed(t._data):
                own(t)
        return True
