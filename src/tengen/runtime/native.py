"""The native runtime, loaded when something of it is first asked for: `process.py` has what is here, and costs as much as
NumPy.

That a process imports Tengen and never computes is common: tools, workers that load data, tests.

In: a name of `process.py`. Out: what it stands for there; from then on it is an attribute of this module like any other.
"""

from __future__ import annotations

import sys
from typing import Any

if not getattr(sys, "_is_gil_enabled", lambda: True)():
    raise ImportError(
        "tengen needs the interpreter's lock (its memory pool relies on it), and this Python runs without; "
        "help: use a Python with the lock, or start this one with PYTHON_GIL=1"
    )


def __getattr__(name: str) -> Any:
    if name.startswith("__"):  # what others ask of every module
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tengen.runtime import process

    globals().update({k: v for k, v in vars(process).items() if not k.startswith("__")})
    return getattr(process, name)
