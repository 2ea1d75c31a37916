"""`torch.jit`: Tengen's `trace` and `script` with PyTorch's arguments."""

from __future__ import annotations

from typing import Any

from tengen.jit import ignore, script, unused
from tengen.jit.trace import trace as _trace


def trace(func: Any, example_inputs: Any = None, **how: Any) -> Any:
    """A function or a module as a program for the shapes of its inputs: `tengen.trace`. check_trace, strict: accepted."""
    for name in ("check_trace", "strict", "check_inputs", "check_tolerance", "optimize"):
        how.pop(name, None)
    traced = _trace(func, **how)
    if example_inputs is not None:
        traced(*(example_inputs if isinstance(example_inputs, (tuple, list)) else (example_inputs,)))
    return traced


def is_tracing() -> bool:
    """False: programs are recorded from what Python runs."""
    return False


def is_scripting() -> bool:
    """False: Python runs the function."""
    return False


def export(fn: Any) -> Any:
    """The function itself."""
    return fn


__all__ = ["export", "ignore", "is_scripting", "is_tracing", "script", "trace", "unused"]
