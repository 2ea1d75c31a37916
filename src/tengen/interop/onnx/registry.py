"""The table of operators: name -> the function that computes a node from its inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

OPS: dict[str, Callable[..., Any]] = {}  # "Add", "ai.onnx.ml.Binarizer"


def op(*names: str) -> Callable[[Callable], Callable]:
    """Enters a function under the names of ops. It takes the node and its inputs in order (absent ones at the end are left out), and
    returns the output, or a tuple of several."""

    def enter(f: Callable) -> Callable:
        for name in names:
            OPS[name] = f
        return f

    return enter
