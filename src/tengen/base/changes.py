"""That something changed which a recording of `jit.trace` may have read.

Modules and optimizers say so themselves, whenever an attribute is set or a container that they own is changed: in their place
`changes.last` becomes another object. A recording that remembers it knows by one comparison that none of them changed since.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any


class Changes:
    """`last`: an object made by the last change. An object and no number, so that two threads cannot make the same."""

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last = object()


changes = Changes()


def changed() -> None:
    """Says that something changed."""
    changes.last = object()


def same(a: Any, b: Any) -> bool:
    """Whether two values are one object, or the same number or text: of one type, with the same bits."""
    if a is b:
        return True
    if type(a) is not type(b) or not isinstance(a, (int, float, str, bytes)):
        return False
    return a == b and (a != 0 or str(a) == str(b))  # 0.0 and -0.0 are equal


_ABSENT = object()


class Watched:
    """Says so when an attribute gets another value, or is deleted; or, for a container, when `telling` methods are called."""

    unread: frozenset[str] = frozenset()  # attributes that no program depends on
    _read_by_all: Mapping[str, Any] = {}  # by a name, what all objects of the class read beside their attributes; is watched itself
    in_tensors: frozenset[str] = frozenset()  # keys of a dict whose numbers live in tensors, which a run reads anew

    def __setattr__(self, name: str, value: Any) -> None:
        old = self.__dict__.get(name, _ABSENT)
        super().__setattr__(name, value)
        if not same(old, value):
            changed()

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        changed()


def telling(*names: str) -> Callable[[type], type]:
    """A class decorator: these methods say afterwards that something changed."""

    def told(method: Callable) -> Callable:
        @functools.wraps(method)
        def run(self, *args, **kwargs):
            try:
                return method(self, *args, **kwargs)
            finally:
                changed()

        return run

    def decorate(cls: type) -> type:
        for name in names:
            setattr(cls, name, told(getattr(cls, name)))
        return cls

    return decorate


@telling(
    "__setitem__", "__delitem__", "__iadd__", "__imul__", "append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"
)  # fmt: skip
class WatchedList(Watched, list):
    """A list that says when it is changed."""


@telling("__setitem__", "__delitem__", "__ior__", "clear", "move_to_end", "pop", "popitem", "setdefault", "update")
class WatchedDict(Watched, OrderedDict):
    """A dict that says when it is changed."""
