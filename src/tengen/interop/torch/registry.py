"""The table of operators: PyTorch's name -> the function that computes a node from its arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

OPS: dict[str, Callable[..., Any]] = {}  # "aten.add.Tensor", "aten.relu" (the overload "default")
SCOPED: set[Callable[..., Any]] = set()  # ops with graphs of their own, which are also given `run(graph, inputs)`


def op(*names: str, domain: str = "aten", wants: bool = False) -> Callable[[Callable], Callable]:
    """Enters a function under the names of ops.

    It takes what the op's schema takes by position, in its order and with its defaults, then by name what the schema takes by name alone
    (devices, layouts and memory formats are left out). It returns the output, or a tuple of several.

    Args:
        names: without the domain. domain: PyTorch's namespace; "" for functions of Python.
        wants: the function is also given `wanted`, the numbers of the outputs that are used; None may stand for the others.
    """

    def enter(f: Callable) -> Callable:
        for name in names:
            OPS[f"{domain}.{name}" if domain else name] = f
        f.wants = wants
        return f

    return enter
