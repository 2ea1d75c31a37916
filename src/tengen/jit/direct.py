"""Direct calls: a traced function that is called again with tensors of the same layouts runs its program after a few checks.

In: a recording that has run, and the arguments that it ran on. Out: a `DirectCall`, which runs it again for tensors of the same
layouts. Before that it checks what layouts do not show: that what the function read is unchanged (guards), the layouts of
states, which gradients exist, what is on the tape. If a check fails, the call takes the long way, which finds another recording
or makes one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from sys import getrefcount
from typing import TYPE_CHECKING, Any

from tengen.runtime import native
from tengen.tensor import Tensor
from tengen.tensor.assignment import own

if TYPE_CHECKING:
    from tengen.jit.recording import Recording


AT_ONCE = 256  # states that one function reads


@functools.lru_cache(AT_ONCE)
def _reader(n: int) -> Callable:
    """Of n tensors and their layouts a function that gives their memory; None where one has another layout or is on the tape. It is made of
    source text with one term for each, since a loop takes three times the time in each call."""
    tensors, layouts = ([f"{letter}{i}" for i in range(n)] for letter in "tl")
    same = " and ".join(f"{t}._layout is {layout} and {t}._node is None" for t, layout in zip(tensors, layouts))
    memory = ", ".join(f"{t}._data" for t in tensors)
    scope: dict = {}
    source = f"def make({', '.join(tensors + layouts)}): return lambda: [{memory}] if {same} else None"
    exec(compile(source, "<states of a trace>", "exec"), scope)
    return scope["make"]


class DirectCall:
    """A recording, called with arguments of certain layouts, which are all tensors and dense in logical order.

    Attributes:
        recording: what is run. extents: the numbers of its open extents.
        single: whether a call returns the program's only output as it is.
    """

    __slots__ = (
        "recording", "extents", "single", "_call", "_states", "_written", "_guards", "_borrowed", "_hold", "_managers",
    )  # fmt: skip

    def __init__(self, recording: Recording, extents: tuple[int, ...]):
        self.recording, self.extents = recording, extents
        self.single = recording.result == ("T",) and not recording.grads
        states = recording.states
        some = [states[i : i + AT_ONCE] for i in range(0, len(states), AT_ONCE)]
        self._states = [_reader(len(ts))(*ts, *(t._layout for t in ts)) for ts in some]
        assert recording.run is not None
        self._call = recording.run.run  # a bound method: calling it costs half of what calling the object does
        self._written = [states[i] for i in recording.run.written]
        self._guards = recording.guards
        self._borrowed = native.borrowed
        self._managers = [(m, m.version) for m in recording.managers]
        self._hold = recording.read.hold

    @staticmethod
    def serves(r: Recording, leaves: Sequence[Tensor]) -> bool:
        """Whether a recording can be called directly: none of its states or gradients belongs to an argument, and nothing is on
        the tape."""
        named = any(isinstance(t, int) for t, _, _ in (*r.grads, *r.guards))
        named = named or any(a is not None for known in r.attached for a in known[: len(leaves)])
        return not (r.open or named or r.owners or any(r.taped)) and all(x._layout.contiguous for x in leaves)

    def run(self, args: Sequence[Tensor]) -> list[Tensor] | None:
        """The outputs of the program for these arguments; None, without any effect, if the recording may not fit."""
        buffers = [x._data for x in args if x._node is None]
        if len(buffers) != len(args) or not self._hold():
            return None
        for memory in self._states:
            some = memory()
            if some is None:
                return None
            buffers += some
        for t, there, overflow in self._guards:
            if (getattr(t, "_grad", None) is not None) != there or getattr(t, "overflow", None) is not overflow:
                return None
        for m, version in self._managers:
            if m.version != version or any([m.callbacks_of(x) is not None for x in args]):
                return None
        some = None
        for t in self._written:
            if getrefcount(t._data) > 3 or self._borrowed(t._data):  # it is held by the tensor, by `buffers`, and as an argument
                self._take_own(buffers, len(args))
                break
        return self._call(buffers, self.extents)

    def _take_own(self, buffers: list[Any], n: int) -> None:
        """Makes memory of states that a run writes their own; buffers: of a call, whose first n are of arguments."""
        del buffers[n:]
        for t in self._written:
            own(t)
        for memory in self._states:
            buffers += memory()
