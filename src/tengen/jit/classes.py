"""What a walk over what a function can read (`reach.py`) asks of classes: whose they are, and of which kind their objects."""

from __future__ import annotations

import contextvars
import functools
import operator
import random
import sys
import types
import weakref
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np

from tengen.autodiff import GradManager
from tengen.base.changes import Watched
from tengen.base.record import NamedTuple
from tengen.base.users import is_users
from tengen.jit.observe import facts
from tengen.tensor import Tensor

VIEWS = (type({}.keys()), type({}.values()), type({}.items()))
CONTAINERS = (list, tuple, dict, set, frozenset, deque, types.MappingProxyType)
_SETTINGS = ("tengen.amp.", "tengen.autodiff.", "tengen.jit.", "tengen.optimizer.", "tengen.random.")


def is_a(x: Any, kinds: Any) -> bool:
    """As `isinstance`, which asks an object what it claims to be: that runs code of its own."""
    return issubclass(type(x), kinds)


class About(NamedTuple):
    """What a walk asks of an object's class, and which is the same each time.

    Attributes:
        special: its objects are of a kind that a walk goes into in a way of its own (`Reach._inside`). of_users: it or one that it derives
            from is the users'. closed: it is Tengen's, and its objects have no settings. bases: of a class of users', those that it
            derived from.
    """

    of: weakref.ref
    bases: tuple[weakref.ref, ...]
    special: bool
    of_users: bool
    closed: bool


_SPECIAL = (
    Tensor, *CONTAINERS, Watched, types.FunctionType, types.MethodType, functools.partial, functools._lru_cache_wrapper,
    types.BuiltinMethodType, types.MethodWrapperType, operator.attrgetter, operator.methodcaller, *VIEWS, contextvars.ContextVar,
    GradManager, type, types.ModuleType, np.ndarray, np.random.Generator, np.random.RandomState, np.random.BitGenerator, random.Random,
    Iterator, weakref.ref, types.CodeType, types.FrameType, np.dtype,
)  # fmt: skip
_classes: dict[int, About] = {}  # by identity: to ask a class for its hash may run code of its own


def about(t: type) -> About:
    """What is known of a class, which is found once; of a users' class again when it has other bases."""
    found = _classes.get(id(t))
    if found is None or found.of() is not t or found.of_users and [b() for b in found.bases] != list(t.__mro__):
        forget = functools.partial(_forget, id(t))
        closed, of_users = is_tengens(t) and not has_settings(t), any(map(is_users_class, t.__mro__))
        bases = tuple(map(weakref.ref, t.__mro__)) if of_users else ()
        found = _classes[id(t)] = About(weakref.ref(t, forget), bases, issubclass(t, _SPECIAL), of_users, closed)
    return found


def _forget(at: int, of: weakref.ref) -> None:
    if (found := _classes.get(at)) is not None and found.of is of:
        del _classes[at]


def class_attributes(t: type) -> set[str]:
    """Attributes of users' classes, which one of an object can cover."""
    return {n for c in t.__mro__ if is_users_class(c) for n, v in vars(c).items() if not hasattr(type(v), "__set__")}


@functools.lru_cache(4096)
def read_by_tengen(mro: tuple[type, ...]) -> frozenset[str]:
    """The attributes that Tengen's own methods of a class, which derives from these, read."""
    found: set[str] = set()
    for c in filter(is_tengens, mro):
        for v in vars(c).values():
            f = getattr(v, "__func__", None) or getattr(v, "fget", None) or v
            codes = [f.__code__] if is_a(f, types.FunctionType) else []
            while codes:
                code = codes.pop()
                found.update(u.name for u in facts(code).uses if u.kind == "attribute" and not u.stored)
                codes += [x for x in code.co_consts if is_a(x, types.CodeType)]
    return frozenset(found)


def is_tengens(t: type) -> bool:
    return t.__module__.partition(".")[0] == "tengen"


def has_settings(t: type) -> bool:
    """Whether the public attributes of an object of Tengen's are settings that its code reads."""
    return any(c.__module__.startswith(_SETTINGS) for c in t.__mro__)


@functools.lru_cache(4096)
def _users_module(name: str) -> bool:
    if name.partition(".")[0] in ("builtins", "tengen"):
        return False
    m = sys.modules.get(name)
    return m is None or is_users_module(m)


def is_users_module(m: Any) -> bool:
    """Whether a module is neither Tengen's nor a library's. One without a file that nothing has imported was made by hand."""
    if not is_a(m, types.ModuleType):
        return False
    file = getattr(m, "__file__", None)
    return m.__name__ == "__main__" or (getattr(m, "__spec__", None) is None if file is None else is_users(file))


def is_users_class(c: type) -> bool:
    return _users_module(c.__module__)
