"""Packages whose modules are imported when they are first named, so that a process starts with few of them."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType


def modules_of(package: str) -> Callable[[str], ModuleType]:
    """A ``__getattr__`` for the package of this name: its modules as attributes, each imported when it is first asked for."""

    def find(name: str) -> ModuleType:
        missing = AttributeError(f"module {package!r} has no attribute {name!r}")
        if name.startswith("__"):  # what others ask of every module
            raise missing
        try:
            return importlib.import_module(f"{package}.{name}")
        except ModuleNotFoundError as e:
            if e.name != f"{package}.{name}":  # the module is there, and what it imports is not
                raise
            raise missing from e

    return find
