"""How a part of a function ends: by going on (None), by break, by return, or by an error of a loop that it ends."""

from __future__ import annotations

from typing import Any

from tengen.base.record import NamedTuple
from tengen.jit.script.aliases import Names
from tengen.jit.script.merge import UNSET
from tengen.jit.script.numbers import strong
from tengen.ops.define import REGISTRY

# STOP: an error was raised, and loops with a condition shall not run for ever. SKIP: what follows in this iteration is left out.
GO_ON, LEFT, RETURN, STOP, SKIP = range(5)


class Signal(NamedTuple):
    """An end of a part of a function.

    Attributes:
        code: one of those above, or a tensor that is one of them. value: what is returned where it is RETURN, or UNSET. names: what else
            may be one with it.
    """

    code: Any
    value: Any
    names: Names = Names()


BREAK = Signal(LEFT, UNSET)
NEXT = Signal(SKIP, UNSET)


def returned(value: Any) -> Signal:
    """``return value``"""
    return Signal(RETURN, value)


def continued(signal: Signal | None, leaves: bool) -> Signal | None:
    """What the rest of an iteration makes of a signal: behind it a `continue` is as good as having gone on. leaves: whether there may be
    another signal."""
    if signal is None or signal is NEXT:
        return None
    if isinstance(signal.code, int):
        return signal
    if not leaves:
        return None
    code = strong(signal.code)
    return signal._replace(code=REGISTRY["where"].call(code == SKIP, GO_ON, code))


def consumed(signal: Signal | None, stops: bool) -> Signal | None:
    """What a loop makes of the signal of its body: a break has ended it. stops: whether an error in it ends loops around."""
    if signal is None or signal is BREAK:
        return None
    if isinstance(signal.code, int):
        return signal
    if signal.value is UNSET and not stops:
        return None
    code = strong(signal.code)
    return signal._replace(code=REGISTRY["where"].call(code == LEFT, 0, code))
