"""Attributes of a module that are computed each time they are read: what `parametrize` and `prune` make of parameters.

In: a module, the name of an attribute, and how it is computed. Out: the module, of a class derived from its own in which that name is a
property.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tengen.module import Module


def plain_class(module: Module) -> type:
    """The class that the module had before any of its attributes was computed."""
    return getattr(type(module), "_plain_class", type(module))


def names(module: Module) -> list[str]:
    """The attributes that are computed."""
    return list(getattr(type(module), "_computed_properties", {}))


def _become(module: Module, properties: dict[str, property]) -> None:
    cls = plain_class(module)
    if properties:
        members = {**properties, "_computed_properties": properties, "_plain_class": cls, "__module__": cls.__module__}
        cls = type(cls)(cls.__name__, (cls,), members)
    module.__class__ = cls


def put(module: Module, name: str, read: Callable[[Any], Any], write: Callable[[Any, Any], None] | None = None) -> None:
    """Makes an attribute computed; `write` is what setting it does (None: it is an AttributeError)."""
    module.__dict__.pop(name, None)
    _become(module, {**getattr(type(module), "_computed_properties", {}), name: property(read, write)})


def take(module: Module, name: str) -> None:
    """Makes it an attribute again, without a value."""
    _become(module, {n: p for n, p in getattr(type(module), "_computed_properties", {}).items() if n != name})
