"""A function in a forked process: memory that it has needed is not there for the next one."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any


def apart(f: Callable[..., Any], *args: Any) -> None:
    """Calls f(*args) in a process of its own. AssertionError if that raises an exception or dies."""
    pid = os.fork()
    if not pid:
        status = 1
        try:
            f(*args)
            status = 0
        finally:
            os._exit(status)
    status = os.waitpid(pid, 0)[1]
    assert not status, (f.__name__, *args, status)
