"""Hooks: functions of the user's that a backward walk, or a module's call, gives what it has computed.

In: a tensor and a function (gradient) -> another gradient, or None. Out: a handle that takes it off again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

from tengen.base.changes import changed
from tengen.base.errors import GradientError
from tengen.tensor.nodes import leaf_of

_keys = itertools.count()


class Hooked:
    """How often hooks were put on or taken off, or parameters frozen or trained again: `times`."""

    times = 0

    def again(self) -> None:
        """They were once more."""
        self.times += 1
        changed()


hooked = Hooked()


class HookHandle:
    """Takes a hook off what it was put on, by `remove()` or at the end of a ``with`` block."""

    def __init__(self, hooks: dict, key: int):
        self._hooks, self._key = hooks, key

    def remove(self) -> None:
        """The hook is not called any more."""
        if self._hooks.pop(self._key, None) is not None:
            hooked.again()

    def __enter__(self) -> HookHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


def put(hooks: dict[int, Any], hook: Any) -> HookHandle:
    """Adds a hook behind those that are there."""
    key = next(_keys)
    hooks[key] = hook
    hooked.again()
    return HookHandle(hooks, key)


def called(hook: Callable, g: Any) -> Any:
    """The gradient that a hook makes of one; itself where it gives none. Errors: GradientError for one of another type."""
    new = hook(g)
    if new is None:
        return g
    if getattr(new, "_layout", None) is None or new.dtype is not g.dtype or new.shape != g.shape:
        found = repr(new._layout.type) if hasattr(new, "_layout") else f"a {type(new).__name__}"
        raise GradientError(f"a hook made {found} of the gradient {g._layout.type!r}; help: the same shape and dtype, or None")
    return new


def after_of(t: Any) -> Mapping[int, Callable]:
    """The hooks of a leaf that are called once a gradient was added to its `grad`: a Parameter has them, of another leaf its start node."""
    found = getattr(t, "_after_hooks", None)
    if found is None and (node := leaf_of(t)) is not None:
        found = {key: hook for key, (index, hook) in getattr(node, "hooks", {}).items() if index is None}
    return found or {}


def hooks_of(t: Any) -> Mapping[int, Callable]:
    """The hooks of a Parameter, which outlast a tape."""
    return getattr(t, "_hooks", None) or {}
