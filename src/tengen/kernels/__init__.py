"""Fast strategies: how ops become kernels. Everything here writes the kernel language and nothing else.

The modules are attributes of this one, imported when they are first named: a process whose kernels are in the cache asks for few
of them, and starts quicker. The definitions of ops say ``kernels.winograd.pays(...)`` for that reason.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # type checkers see the modules that ops name so
    from tengen.kernels import (  # noqa: F401
        attention,
        chunks,
        contraction,
        depthwise,
        halo,
        pixels,
        problem,
        recurrent,
        scan,
        scatter,
        sort,
        strips,
        strips_transposed,
        strips_weights,
        tile,
        winograd,
        winograd_weights,
    )


def __getattr__(name: str) -> Any:
    if name.startswith("__"):  # what others ask of every module
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return importlib.import_module(f"{__name__}.{name}")
    except ModuleNotFoundError as e:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from e
