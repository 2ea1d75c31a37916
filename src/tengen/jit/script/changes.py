"""What a branch or a loop may not change: whatever of Python's can be changed in place, other than the lists and dicts that are its variables.

A body is recorded once, whichever branch runs and however often; so a set that it adds to, an array that it writes, an iterator that it
moves on or a heap that a library's function fills would be changed once, whatever the tensors say. In: the variables of a region. Out: a
`ScriptError` that names what a body has changed.
"""

from __future__ import annotations

import collections
import functools
import itertools
import operator
import sys
import types
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from tengen.base.errors import ScriptError
from tengen.base.users import is_users
from tengen.tensor import Tensor

PLAIN = (str, bytes, int, float, complex, bool, type(None), type, types.ModuleType, types.BuiltinFunctionType, Tensor)


class Untouched:
    """Things as they were when this was made.

    Args:
        variables: by name. own: names of those whose lists and dicts, nested in each other and in tuples, a region may change.
    """

    def __init__(self, variables: Mapping[str, Any], own: Iterable[str]):
        self._found: list[tuple[str, Any, Callable[[Any], Any], Any]] = []  # (name, a thing, what gives its state, its state)
        self._seen: dict[int, Any] = {}
        mine = set(own)
        for name in sorted(variables, key=lambda n: n not in mine):
            self._walk(name, variables[name], name in mine)
        self._seen.clear()

    def check(self, where: str | None) -> None:
        """ScriptError where one of them is not what it was."""
        for name, x, state, before in self._found:
            if not _same(state(x), before):
                raise ScriptError(
                    f"{where}: `{name}` ({type(x).__name__}) is changed where a condition is a tensor, or in a loop over tensors, and the "
                    "program cannot do that; help: tensors, or a list or dict that the function changes by its name (x[i] = ..., x.append(...))"
                )

    def _walk(self, name: str, x: Any, own: bool) -> None:
        if isinstance(x, PLAIN) or id(x) in self._seen:
            return
        self._seen[id(x)] = x  # so that no other object takes its id
        state, parts, mine = _state(x)
        if state is not None and not (own and mine):
            self._found.append((name, x, state, state(x)))
        for part in parts:
            self._walk(name, part, own and mine)


def _same(a: Any, b: Any) -> bool:
    """Whether two states are one: of tuples, whether their elements are the same objects."""
    return len(a) == len(b) and all(map(operator.is_, a, b)) if isinstance(a, tuple) and isinstance(b, tuple) else a == b


def _state(x: Any) -> tuple[Callable[[Any], Any] | None, Iterable[Any], bool]:
    """(What gives the state of a thing; None: it cannot be changed. What is in it. Whether it is a list, a dict or a tuple that a region may
    change.)"""
    if isinstance(x, (list, collections.deque)):
        return tuple, list(x), type(x) is list
    if isinstance(x, dict):
        return lambda d: (*d.keys(), *d.values()), list(x.values()), type(x) is dict
    if isinstance(x, tuple):
        return None, x, type(x) is tuple
    if isinstance(x, (set, frozenset)):
        return frozenset, (), False
    if isinstance(x, (bytearray, np.ndarray)):
        return _digest, (), False
    if isinstance(x, types.FunctionType):
        return None, _contents(x), False
    if isinstance(x, types.MethodType):
        return None, (x.__self__,), False
    if isinstance(x, types.GeneratorType):
        return lambda g: None if g.gi_frame is None else g.gi_frame.f_lasti, (), False
    if isinstance(x, collections.abc.Iterator) and type(x).__module__ in ("builtins", "itertools"):
        return _position, _inside(x), False
    if of_user(type(x)) and hasattr(x, "__dict__"):
        return None, list(vars(x).values()), False
    return None, (), False


def _digest(x: Any) -> Any:
    a = np.asarray(x)
    return tuple(a.ravel()) if a.dtype.hasobject else zlib.crc32(np.ascontiguousarray(a).view(np.uint8).reshape(-1))


def _contents(f: types.FunctionType) -> list[Any]:
    """What a user's function keeps between its calls: the variables of others that it uses, and its defaults."""
    if not is_users(f.__code__.co_filename):
        return []
    found = [*(f.__defaults__ or ()), *(f.__kwdefaults__ or {}).values()]
    for cell in f.__closure__ or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:  # not set yet
            pass
    return found


def reached(variables: Mapping[str, Any], wanted: Any) -> str | None:
    """The variable through which a thing can be read: it holds it, or a function or an object of the user's that does; None: none of them."""
    todo, seen = list(variables.items()), {}
    while todo:
        name, x = todo.pop()
        if x is wanted:
            return name
        if isinstance(x, PLAIN) or id(x) in seen:
            continue
        seen[id(x)] = x
        if isinstance(x, types.FunctionType):
            parts: Iterable[Any] = _read_by(x)
        else:
            parts = (x.func, *x.args, *x.keywords.values()) if isinstance(x, functools.partial) else _state(x)[1]
        todo += [(name, part) for part in parts]
    return None


def _read_by(f: types.FunctionType) -> list[Any]:
    """What a user's function can read besides the arguments of a call."""
    return [*_contents(f), *globals_of(f).values()]


def globals_of(f: types.FunctionType) -> dict[str, Any]:
    """The global variables that a user's function uses, by name."""
    if not is_users(f.__code__.co_filename):
        return {}
    found, todo = {}, [f.__code__]
    while todo:
        code = todo.pop()
        found |= {n: f.__globals__[n] for n in code.co_names if n in f.__globals__}
        todo += [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return found


def _position(x: Any) -> Any:
    """Where an iterator stands: by how much is left, or by its text."""
    return repr(x) if isinstance(x, itertools.count) else operator.length_hint(x, -1)


def _inside(x: Any) -> Iterable[Any]:
    """The iterators that one is made of (`zip`, `map`, `enumerate`)."""
    return x.__reduce__()[1] if isinstance(x, (zip, map, filter, enumerate)) else ()


def of_user(kind: type) -> bool:
    """Whether a class is defined in a user's file."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return file is not None and is_users(file)
