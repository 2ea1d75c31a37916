"""`torch.compiler`: what code says to `torch.compile` about itself."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tengen.jit.options import exclude_from_trace
from tengen.tensor.recording import tracing


def is_compiling() -> bool:
    """Whether a program is being recorded of what Python runs now.

    >>> from tengen.pytorch import compile, ones
    >>> compile(lambda x: x + 1 if is_compiling() else x)(ones(1)).tolist(), is_compiling()
    ([2.0], False)
    """
    return tracing.recorder is not None


def disable(fn: Callable | None = None, recursive: bool = True, *, reason: str | None = None) -> Callable:
    """The function, which compiled functions call as it is, in every call, between two parts of their programs. recursive, reason: accepted."""
    if fn is None:
        return disable

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        with exclude_from_trace():
            return fn(*args, **kwargs)

    return call


def allow_in_graph(fn: Callable) -> Callable:
    """The function itself: all that it calls is recorded."""
    return fn


def reset() -> None:
    """Nothing: programs are kept by the functions that they are of."""


def cudagraph_mark_step_begin() -> None:
    """Nothing: results have memory of their own."""


is_dynamo_compiling = is_compiling

__all__ = ["allow_in_graph", "cudagraph_mark_step_begin", "disable", "is_compiling", "is_dynamo_compiling", "reset"]
