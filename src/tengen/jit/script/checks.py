"""Errors that a script raises: known ones at once, those that depend on tensors as checks of the graph.

A check carries a class and a text. The class is the first of the error's that a file may name, and a tensor in the text stands by its
source. Where the error is of a user's class, or has tensors in it, the program calls Python to raise it as it is, with their values;
files have the check alone.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

from tengen.base import errors
from tengen.base.errors import user_line
from tengen.base.record import NamedTuple
from tengen.ir.verify import CHECK_ERRORS
from tengen.jit.script.texts import Text, given, static, taken
from tengen.tensor import Tensor, tracing
from tengen.tensor.control import in_any_example
from tengen.tensor.host import can_call, record_call


class Raised(Exception):
    """An error that the user's function raises inside of a branch or a loop that is being recorded."""

    def __init__(self, error: BaseException):
        super().__init__(type(error).__name__)
        self.error = error


class _Call(NamedTuple):
    """How an error of a user's class is made: when the program runs, since its `__init__` may ask for values."""

    args: tuple
    keywords: dict[str, Any]


def exception(kind: Any, source: str) -> Callable[..., Any]:
    """What is called in place of the class in ``raise kind(...)``. source: the text of the call, which stands for the error's where that
    is not known."""

    @functools.wraps(kind, updated=())
    def make(*args: Any, **keywords: Any) -> BaseException:
        tensors: list[Tensor] = []
        taken((args, keywords), tensors)
        recorder = tracing.recorder
        if not tensors or recorder is None or recorder.answers or not isinstance(kind.__init__, types.FunctionType):
            return kind(*args, **keywords)
        made = kind.__new__(kind, *args, **keywords)
        told = args[:1] if args and isinstance(args[0], (str, Text)) else (source,)
        made.args, made.__script_call__ = told, _Call(args, keywords)
        return made

    return make


def error(e: Any) -> BaseException:
    """What ``raise e`` raises."""
    made = e() if isinstance(e, type) else e
    recorder = tracing.recorder
    if recorder is not None and recorder.of_a_body:
        _raise_in_run(made)
        return Raised(made)
    if recorder is not None:
        made.args = tuple(map(static, made.args))
    return made


def _named(e: BaseException) -> str:
    """The class that a check has for an error: the narrowest; every error of Tengen is a RuntimeError, too."""
    return next((c.__name__ for c in type(e).__mro__ if c.__name__ in CHECK_ERRORS and c is not RuntimeError), "RuntimeError")


def _raise_in_run(e: BaseException) -> None:
    """The program raises the error itself, where it has tensors in it or is of a class that a check cannot have."""
    tensors: list[Tensor] = []
    called = vars(e).pop("__script_call__", None)
    inside = taken((e.args, vars(e)) if called is None else tuple(called), tensors)
    if not can_call() or not (tensors or type(e) is not errors.class_of_check(_named(e))):
        return
    kind, cause, where = type(e), e.__cause__, user_line()

    def tell(*values: Tensor) -> None:
        args, named = given(inside, values)
        if called is not None:
            made = kind(*args, **named)
        else:
            made = kind.__new__(kind, *args)
            made.args = args
            vars(made).update(named)
        made.__cause__ = cause
        if hasattr(made, "add_note"):
            made.add_note(f"[at {where}]")
        raise made

    record_call(tell, tensors, what="raise")


def record_check(bad: Tensor, raised: Raised, where: str) -> None:
    """The program raises the error where `bad` is true."""
    e, recorder, bad = raised.error, tracing.recorder, in_any_example(bad)
    if recorder is None:
        if bad.item():
            raise e
        return
    told = tuple(map(static, e.args))
    text = told[0] if len(told) == 1 and isinstance(told[0], str) else ", ".join(map(str, told))  # the text of a KeyError has quotes
    recorder.check(bad, _named(e), text or type(e).__name__, where)
