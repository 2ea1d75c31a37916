"""The arguments and results of a traced function as a key and a list of tensors.

In: nested tuples, lists, dicts and dataclasses with tensors in them. Out: their structure, which can be hashed, and the tensors in order; and
back again.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from tengen.base.changes import Watched, WatchedList
from tengen.base.errors import TraceError
from tengen.tensor.sizes import Extents, extents_of
from tengen.tensor.tensor import Tensor, from_numpy


def flatten(x: Any, leaves: list[Tensor], frozen: bool = False) -> Any:
    """The structure of nested tuples, lists and dicts with their tensors (and arrays) taken out, as a hashable key.

    Dataclasses with tensors in them are taken apart too. frozen: only those whose attributes cannot be set, others are objects.
    """
    if isinstance(x, Tensor):
        leaves.append(x)
        return ("T",)
    if isinstance(x, np.ndarray):
        leaves.append(from_numpy(x))
        return ("T",)
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return ("N", type(x), tuple(flatten(v, leaves, frozen) for v in x))
    if type(x) is Extents:
        return ("N", extents_of, tuple(flatten(v, leaves, frozen) for v in x))
    if type(x) in (tuple, list, WatchedList):
        return ("tuple" if type(x) is tuple else "list", tuple(flatten(v, leaves, frozen) for v in x))
    if type(x) is dict or type(x) is OrderedDict:
        return ("dict", tuple((k, flatten(v, leaves, frozen)) for k, v in x.items()))
    if isinstance(x, (int, float, bool, str, bytes, type(None))):
        return ("V", type(x), x, str(x) if isinstance(x, float) else None)  # 0.0 and -0.0 are equal
    inside: list[Tensor] = []
    found = tuple((n, flatten(v, inside, frozen)) for n, v in fields(x, frozen).items())
    leaves += inside
    return ("D", type(x), found) if inside else ("O", _Same(x))


@functools.lru_cache(1024)
def _fields(t: type) -> tuple[tuple[str, ...], bool]:
    """(The fields of a dataclass whose objects are nothing but their attributes, and of no other class; whether it is frozen.)"""
    if not dataclasses.is_dataclass(t) or t.__new__ is not object.__new__ or issubclass(t, Watched):
        return (), False
    return tuple(f.name for f in dataclasses.fields(t)), t.__dataclass_params__.frozen


def fields(x: Any, frozen: bool = True) -> dict[str, Any]:
    """The fields of a dataclass with their values; nothing for another object, one with other attributes besides, and one that holds itself.
    frozen: nothing for one whose attributes can be set."""
    names, is_frozen = _fields(type(x))
    if not names or frozen > is_frozen or getattr(x, "__dict__", {}).keys() - set(names):
        return {}
    found = {n: v for n in names if (v := getattr(x, n, _ABSENT)) is not _ABSENT}
    return {} if len(found) < len(names) or _holds(found.values(), x) else found


def _holds(values: Iterable[Any], x: Any) -> bool:
    """Whether x is one of some values, or in their tuples, lists, dicts and dataclasses."""
    todo, seen = [*values], set()
    while todo:
        v = todo.pop()
        if v is x:
            return True
        if id(v) not in seen:
            seen.add(id(v))
            names, _ = _fields(type(v))
            todo += v if isinstance(v, (tuple, list)) else v.values() if isinstance(v, dict) else [getattr(v, n, None) for n in names]
    return False


_ABSENT = object()


def with_fields(t: type, values: Iterable[tuple[str, Any]]) -> Any:
    """A dataclass with these values of its fields, for which none of its code runs."""
    made = object.__new__(t)
    for n, v in values:
        object.__setattr__(made, n, v)
    return made


def over_fields(x: Any, f: Callable[[Any], Any], frozen: bool = True) -> Any:
    """A dataclass with f of the value of each field; any other object, and one for which f changes nothing, as it is."""
    parts = fields(x, frozen)
    made = {n: f(v) for n, v in parts.items()}
    return x if all(made[n] is v for n, v in parts.items()) else with_fields(type(x), made.items())


def has_array(x: Any) -> bool:
    """Whether there are NumPy arrays in nested tuples, lists, dicts and dataclasses."""
    if parts := fields(x, False):
        return any(map(has_array, parts.values()))
    if isinstance(x, (tuple, list, dict)):
        return any(map(has_array, x.values() if isinstance(x, dict) else x))
    return isinstance(x, np.ndarray)


def mapped(x: Any, f: Callable[[Tensor], Any]) -> Any:
    """Nested tuples, lists, dicts and frozen dataclasses with f of each tensor; everything else, arrays too, stays what it is."""
    if isinstance(x, Tensor):
        return f(x)
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*(mapped(v, f) for v in x))
    if type(x) in (tuple, list):
        return type(x)(mapped(v, f) for v in x)
    if type(x) in (dict, OrderedDict):
        return type(x)((k, mapped(v, f)) for k, v in x.items())
    return over_fields(x, lambda v: mapped(v, f))


class _Same:
    """An object as a key: equal to itself alone, and kept alive."""

    __slots__ = ("object",)

    def __init__(self, object_):
        self.object = object_

    def __hash__(self):
        return id(self.object)

    def __eq__(self, other):
        return isinstance(other, _Same) and self.object is other.object


def unflatten(key: Any, leaves: Sequence[Any]) -> Any:
    """The structure of `flatten` with these leaves."""
    return _unflatten(key, iter(leaves))


def _unflatten(k: Any, leaves: Iterator[Any]) -> Any:
    # Not a closure that calls itself: that would be a cycle, which holds the results of a run until it is collected.
    match k[0]:
        case "T": return next(leaves)  # fmt: skip
        case "V": return k[2]  # fmt: skip
        case "O": return k[1].object  # fmt: skip
        case "N": return k[1](*(_unflatten(v, leaves) for v in k[2]))  # fmt: skip
        case "D": return with_fields(k[1], [(n, _unflatten(v, leaves)) for n, v in k[2]])  # fmt: skip
        case "tuple": return tuple(_unflatten(v, leaves) for v in k[1])  # fmt: skip
        case "list": return [_unflatten(v, leaves) for v in k[1]]  # fmt: skip
        case "dict": return {name: _unflatten(v, leaves) for name, v in k[1]}  # fmt: skip
    raise TraceError(f"a value of kind {k[0]} cannot be an argument or a result of a traced function")


def builder(key: Any) -> Callable[[Sequence[Any]], Any]:
    """`unflatten` of one structure, as a function of the leaves that was made for it: it takes a fraction of the time."""
    bound: dict[str, Any] = {}
    number = itertools.count()

    def name_of(x: Any) -> str:
        bound[name := f"c{len(bound)}"] = x
        return name

    def term(k: Any) -> str:
        match k[0]:
            case "T": return f"x[{next(number)}]"  # fmt: skip
            case "V": return name_of(k[2])  # fmt: skip
            case "O": return f"{name_of(k[1])}.object"  # fmt: skip
            case "N": return f"{name_of(k[1])}({', '.join(map(term, k[2]))})"  # fmt: skip
            case "D":
                return f"{name_of(partial(with_fields, k[1]))}(({''.join(f'({n!r}, {term(v)}), ' for n, v in k[2])}))"
            case "tuple": return f"({''.join(f'{term(v)}, ' for v in k[1])})"  # fmt: skip
            case "list": return f"[{', '.join(map(term, k[1]))}]"  # fmt: skip
            case "dict": return f"{{{', '.join(f'{name_of(n)}: {term(v)}' for n, v in k[1])}}}"  # fmt: skip
        raise TraceError(f"a value of kind {k[0]} cannot be an argument or a result of a traced function")

    text = f"lambda x: {term(key)}"
    try:
        return eval(compile(text, "<a structure>", "eval"), bound)
    except (SyntaxError, MemoryError, RecursionError):  # nested too deeply for Python's parser
        return partial(unflatten, key)


def objects_of(key: Any, classes: bool = False) -> list[Any]:
    """The objects in a structure of `flatten`. classes: also the classes of named tuples and dataclasses in it."""
    match key[0]:
        case "O": return [key[1].object]  # fmt: skip
        case "N": found, parts = [key[1]], key[2]  # fmt: skip
        case "D": found, parts = [key[1]], [v for _, v in key[2]]  # fmt: skip
        case "tuple" | "list": found, parts = [], key[1]  # fmt: skip
        case "dict": found, parts = [], [v for _, v in key[1]]  # fmt: skip
        case _: return []  # fmt: skip
    return [*(found if classes else ()), *(x for v in parts for x in objects_of(v, classes))]
