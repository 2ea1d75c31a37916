"""The arguments and results of a traced function as a key and a list of tensors.

In: nested tuples, lists and dicts with tensors in them. Out: their structure, which can be hashed, and the tensors in order; and
back again.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from tengen.base.changes import WatchedList
from tengen.base.errors import TraceError
from tengen.tensor.tensor import Tensor, from_numpy


def flatten(x: Any, leaves: list[Tensor]) -> Any:
    """The structure of nested tuples, lists and dicts with their tensors (and arrays) taken out, as a hashable key."""
    if isinstance(x, Tensor):
        leaves.append(x)
        return ("T",)
    if isinstance(x, np.ndarray):
        leaves.append(from_numpy(x))
        return ("T",)
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return ("N", type(x), tuple(flatten(v, leaves) for v in x))
    if type(x) in (tuple, list, WatchedList):
        return ("tuple" if type(x) is tuple else "list", tuple(flatten(v, leaves) for v in x))
    if type(x) is dict or type(x) is OrderedDict:
        return ("dict", tuple((k, flatten(v, leaves)) for k, v in x.items()))
    if isinstance(x, (int, float, bool, str, bytes, type(None))):
        return ("V", type(x), x, str(x) if isinstance(x, float) else None)  # 0.0 and -0.0 are equal
    return ("O", _Same(x))


def has_array(x: Any) -> bool:
    """Whether there are NumPy arrays in nested tuples, lists and dicts."""
    if isinstance(x, (tuple, list, dict)):
        return any(map(has_array, x.values() if isinstance(x, dict) else x))
    return isinstance(x, np.ndarray)


def mapped(x: Any, f: Callable[[Tensor], Any]) -> Any:
    """Nested tuples, lists and dicts with f of each tensor; everything else, arrays too, stays what it is."""
    if isinstance(x, Tensor):
        return f(x)
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*(mapped(v, f) for v in x))
    if type(x) in (tuple, list):
        return type(x)(mapped(v, f) for v in x)
    return type(x)((k, mapped(v, f)) for k, v in x.items()) if type(x) in (dict, OrderedDict) else x


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
            case "tuple": return f"({''.join(f'{term(v)}, ' for v in k[1])})"  # fmt: skip
            case "list": return f"[{', '.join(map(term, k[1]))}]"  # fmt: skip
            case "dict": return f"{{{', '.join(f'{name_of(n)}: {term(v)}' for n, v in k[1])}}}"  # fmt: skip
        raise TraceError(f"a value of kind {k[0]} cannot be an argument or a result of a traced function")

    text = f"lambda x: {term(key)}"
    try:
        return eval(compile(text, "<a structure>", "eval"), bound)
    except (SyntaxError, MemoryError, RecursionError):  # nested too deeply for Python's parser
        return partial(unflatten, key)


def objects_of(key: Any) -> list[Any]:
    """The objects in a structure of `flatten`."""
    match key[0]:
        case "O": return [key[1].object]  # fmt: skip
        case "N": return [x for v in key[2] for x in objects_of(v)]  # fmt: skip
        case "tuple" | "list": return [x for v in key[1] for x in objects_of(v)]  # fmt: skip
        case "dict": return [x for _, v in key[1] for x in objects_of(v)]  # fmt: skip
    return []
