"""Errors that a script raises: known ones at once, those that depend on tensors as checks of the graph.

A check carries a class and a text. The class is the first of the error's that a file may name: an error of a user's class is raised as
the built-in one that it derives from.
"""

from __future__ import annotations

from typing import Any

from tengen.ir.graph import Check
from tengen.ir.verify import CHECK_ERRORS
from tengen.tensor import Tensor, tracing


class Raised(Exception):
    """An error that the user's function raises inside of a branch or a loop that is being recorded."""

    def __init__(self, error: BaseException):
        super().__init__(str(error))
        self.error = error


def error(e: Any) -> BaseException:
    """What ``raise e`` raises."""
    made = e() if isinstance(e, type) else e
    recorder = tracing.recorder
    return Raised(made) if recorder is not None and recorder.of_a_body else made


def shown(x: Any, source: str) -> Any:
    """What stands for a value in the message of an error: of a tensor its source, as its value comes when the program runs."""
    return _Source(source) if isinstance(x, Tensor) and tracing.recorder is not None else x


class _Source(str):
    def __format__(self, spec: str) -> str:
        return str(self)


def record_check(bad: Tensor, raised: Raised, where: str) -> None:
    """The program raises the error where `bad` is true."""
    e, recorder = raised.error, tracing.recorder
    name = next((c.__name__ for c in type(e).__mro__ if c.__name__ in CHECK_ERRORS), "RuntimeError")
    if recorder is None:
        if bad.item():
            raise e
        return
    text = e.args[0] if len(e.args) == 1 and isinstance(e.args[0], str) else str(e)  # the text of a KeyError has quotes
    recorder.graph.checks.append(Check(recorder.value(bad), name, text or type(e).__name__, where))
