"""Calls of Python that a program cannot make: `print`, and functions with `jit.ignore`.

While a script is recorded such a call ends the recording (`CallsPython`), and the script then runs as Python, op by op, in every call.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn

from tengen.base.errors import TraceError, user_line
from tengen.jit.script.checks import error
from tengen.tensor import Tensor, tracing


class CallsPython(TraceError):
    """A function that is being recorded calls Python. what: the call."""

    def __init__(self, what: str):
        self.what, self.where = what, user_line()
        super().__init__(
            f"{self.where}: {what} inside of a trace would run when it is recorded, and never again; help: return the tensor, and call it "
            "outside"
        )


def call_python(what: str) -> NoReturn:
    """Ends the recording."""
    raise CallsPython(what)


def formatted(x: Any) -> Any:
    """A value in an f-string: a tensor that is being recorded has no text."""
    return call_python("an f-string of a tensor") if isinstance(x, Tensor) and tracing.recorder is not None else x


def printed(*args: Any, **keywords: Any) -> None:
    """`print`, in every run."""
    if tracing.recorder is not None:
        call_python("print()")
    print(*args, **keywords)


def ignore(function: Callable) -> Callable:
    """A function that `script` does not compile, but calls as Python in every run.

    A script that calls one runs op by op, which a `TraceWarning` says once, and cannot be dumped: files hold no Python. Its bits are those
    of plain Python. As PyTorch's `torch.jit.ignore`.

    >>> from tengen import Tensor, jit
    >>> seen = []
    >>> @jit.ignore
    ... def note(x):
    ...     seen.append(x.item())
    >>> note(Tensor(2.0)), seen
    (None, [2.0])
    """

    @functools.wraps(function, updated=())
    def call(*args: Any, **keywords: Any) -> Any:
        if tracing.recorder is not None:
            call_python(f"{function.__name__}(), a function with jit.ignore,")
        return function(*args, **keywords)

    return call


def unused(function: Callable) -> Callable:
    """A function that scripts have no use for: it is not compiled, and a script that calls it raises a `NotImplementedError`.

    Outside of scripts and traces it is what it was. As PyTorch's `torch.jit.unused`.

    >>> from tengen import jit
    >>> @jit.unused
    ... def report(x):
    ...     return str(x)
    >>> report(1)
    '1'
    """

    @functools.wraps(function, updated=())
    def call(*args: Any, **keywords: Any) -> Any:
        if tracing.recorder is not None:
            raise error(NotImplementedError(f"{function.__name__} has jit.unused, and a script has called it"))
        return function(*args, **keywords)

    return call
