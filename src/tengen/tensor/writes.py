"""Writes: which tensors a block gives another value, which is what a second run of it has to begin with; and those that are lost."""

from __future__ import annotations

import sys
from opcode import opmap
from threading import get_ident
from types import FrameType
from typing import TYPE_CHECKING, Any
from weakref import ref

if TYPE_CHECKING:
    from tengen.tensor.tensor import Tensor

watching: dict[int, list[Written]] = {}  # thread -> the blocks that it is in


class Written:
    """A block whose writes, by this thread, are noted: each tensor with its value before the first of them."""

    def __init__(self) -> None:
        self._before: dict[int, tuple[ref[Tensor], Tensor]] = {}

    def __enter__(self) -> Written:
        watching.setdefault(get_ident(), []).append(self)
        return self

    def __exit__(self, *exc: object) -> None:
        mine = watching[get_ident()]
        mine.remove(self)
        if not mine:
            del watching[get_ident()]

    def alive(self) -> list[tuple[Tensor, Tensor]]:
        """(tensor, its value before) of the tensors that somebody still holds."""
        return [(t, before) for r, before in self._before.values() if (t := r()) is not None]

    def note(self, t: Tensor) -> None:
        """A tensor is about to be written."""
        known = self._before.get(id(t))
        if known is None or known[0]() is not t:
            self._before[id(t)] = ref(t), t.detach()


def note(t: Tensor) -> None:
    """Tells the blocks that this thread is in of a tensor that is about to be written."""
    for block in watching.get(get_ident(), ()):
        block.note(t)


# ---- writes that are lost: x[i][j] = v ------------------------------------------------------------------------------------


def _nameless() -> int:
    """How many references a `__setitem__` counts of an object that is held by nothing else; 0, which none has, where Python counts as
    many of one that a variable holds (3.14)."""

    class Probe:
        def __setitem__(self, key: Any, value: Any) -> None:
            counts.append(sys.getrefcount(self))

    counts: list[int] = []
    named = Probe()
    named[0] = Probe()[0] = None
    return counts[1] if counts[1] < counts[0] else 0


NAMELESS = _nameless()


def assigns(frame: FrameType) -> bool:
    """Whether a frame is at an assignment ``x[key] = value``, and not at a call of ``x.__setitem__``, which counts references otherwise."""
    return frame.f_code.co_code[frame.f_lasti] == opmap["STORE_SUBSCR"]
