"""How a part of a function ends: by going on (None), by break, by return, or by an error of a loop that it ends."""

from __future__ import annotations

from typing import Any, NamedTuple

from tengen.jit.script.merge import UNSET
from tengen.jit.script.numbers import strong
from tengen.ops.define import REGISTRY

GO_ON, LEFT, RETURN, STOP = range(4)  # STOP: an error was raised, and loops with a condition shall not run for ever


class Signal(NamedTuple):
    """An end of a part of a function.

    Attributes:
        code: one of those above, or a tensor that is one of them. value: what is returned where it is RETURN, or UNSET.
    """

    code: Any
    value: Any


BREAK = Signal(LEFT, UNSET)


def returned(value: Any) -> Signal:
    """``return value``"""
    return Signal(RETURN, value)


def consumed(signal: Signal | None, stops: bool) -> Signal | None:
    """What a loop makes of the signal of its body: a break has ended it. stops: whether an error in it ends loops around."""
    if signal is None or signal is BREAK:
        return None
    if isinstance(signal.code, int):
        return signal
    if signal.value is UNSET and not stops:
        return None
    code = strong(signal.code)
    return Signal(REGISTRY["where"].call(code == LEFT, 0, code), signal.value)
