"""MegEngine's objects for options of `trace`, and its other ways to trace.

Graphs are always fused: `GraphOptimizationConfig` is checked and kept. Those for memory are in `memory_options.py`.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from tengen.base.arguments import flags
from tengen.base.errors import TraceError
from tengen.base.record import record
from tengen.jit.memory_options import DTRConfig, SublinearMemoryConfig
from tengen.jit.trace import trace
from tengen.tensor import tracing

__all__ = ["DTRConfig", "GraphOptimizationConfig", "SublinearMemoryConfig", "exclude_from_trace", "partial_trace"]


@record
class GraphOptimizationConfig:
    """Which rewrites MegEngine's graph compiler makes: None, False or True of each."""

    jit_fuse_dimshuffle: bool | None = False
    jit_fuse_reduce: bool | None = None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value not in (None, False, True):
                raise ValueError(f"GraphOptimizationConfig: {name}={value!r} must be None, False or True")


@contextlib.contextmanager
def exclude_from_trace() -> Iterator[None]:
    """A block that is not recorded. In a traced function it ends one part of it, is run as it is in every call, and another part
    begins behind it; see `trace`, symbolic. Outside of a trace it runs as it is.

    Errors: TraceError where a function is recorded as a whole: with symbolic=True, for a file, and in the body of a loop.

    >>> from tengen import Tensor
    >>> log = []
    >>> @trace
    ... def f(x):
    ...     y = x * 2
    ...     with exclude_from_trace():
    ...         log.append(y)
    ...     return y + 1
    >>> f(Tensor([1.0])).tolist(), f(Tensor([2.0])).tolist(), [y.tolist() for y in log]
    ([3.0], [5.0], [[2.0], [4.0]])
    """
    recorder = tracing.recorder
    if recorder is None:
        yield
        return
    if not recorder.answers:
        raise TraceError(
            "exclude_from_trace() inside a trace that is recorded as a whole: its program is native and has no place for Python; help: trace "
            "with symbolic=False, or what comes before the block and what comes after it as two functions"
        )
    recorder.asked()
    recorder.pause()
    try:
        yield
    finally:
        recorder.begin()


@flags
def partial_trace(func: Any = None, *, backend: str = "default", without_host: bool = True, **trace_options: Any) -> Any:
    """Traces a part of a program: a function, or a module, whose `forward` is traced then. Also as a decorator with options.

    A gradient that is recorded outside goes through it: a call is then one program, and its gradient a second one, as those of any traced
    function are.

    Args: backend: "default". trace_options: see `trace`.
    Errors: ValueError for another backend.

    >>> from tengen import functional as F, module as M
    >>> net = partial_trace(M.Linear(2, 3))
    >>> type(net).__name__, net(F.ones((1, 2))).shape
    ('Linear', (1, 3))
    """
    if backend != "default":
        raise ValueError(f"partial_trace(backend={backend!r}): only 'default' is here")
    if func is None:
        return functools.partial(partial_trace, backend=backend, without_host=without_host, **trace_options)
    forward: Callable | None = getattr(func, "forward", None)
    if forward is None:
        return trace(func, **trace_options)
    func.forward = trace(forward, **trace_options)
    return func
