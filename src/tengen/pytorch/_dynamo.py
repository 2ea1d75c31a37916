"""`torch._dynamo`: what programs say to PyTorch's compiler beside `torch.compiler`. Its settings may be set; they change nothing.

>>> import tengen.pytorch as torch
>>> torch._dynamo.config.suppress_errors = True
>>> torch._dynamo.reset()
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from tengen.base.lazy import NoSuchName
from tengen.pytorch.compiler import allow_in_graph, disable, is_compiling, reset
from tengen.pytorch.programs import compile
from tengen.tensor import Tensor

config = ModuleType("tengen.pytorch._dynamo.config", "Settings of PyTorch's compiler, which Tengen's does not read.")
config.__dict__.update(suppress_errors=False, verbose=False, cache_size_limit=8, recompile_limit=8, capture_scalar_outputs=False)


def optimize(backend: Any = "inductor", **how: Any) -> Callable:
    """A decorator: `torch.compile`. backend, how: accepted, as there."""
    return lambda model: compile(model, **how)


def mark_dynamic(t: Tensor, index: Any, **how: Any) -> None:
    """Nothing: an axis is open from its second extent on."""


maybe_mark_dynamic = mark_static = mark_dynamic


def __getattr__(name: str) -> Any:
    raise NoSuchName("tengen.pytorch._dynamo", name, lambda: dir(sys.modules[__name__]))


__all__ = [
    "allow_in_graph", "config", "disable", "is_compiling", "mark_dynamic", "mark_static", "maybe_mark_dynamic", "optimize", "reset",
]  # fmt: skip
