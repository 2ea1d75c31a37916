"""Nested arguments and results: tuples, lists, dicts, named tuples, and types that users register.

In: a nest. Out: its leaves, or a nest of the same form with others in their place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

Leaf = Callable[[Any], Any]
_supported: dict[type, tuple[Callable[[Any], tuple[list, Any]], Callable[[list, Any], Any]]] = {}


def register_supported_type(
    type: type, flatten_fn: Callable[[Any], tuple[list, Any]] | None = None, unflatten_fn: Callable[[list, Any], Any] | None = None
) -> None:  # fmt: skip
    """Lets arguments and results of traced modules be of another type.

    Args:
        flatten_fn: object -> (list of what is inside, plain data that says what else it is). unflatten_fn: (list, data) -> object.
            Without them an object is a constant, which must be the same in every call.

    Errors: ValueError where one of the functions is missing.
    """
    if (flatten_fn is None) != (unflatten_fn is None):
        raise ValueError(f"register_supported_type({type.__name__}): give both functions, or none")
    if flatten_fn is not None and unflatten_fn is not None:
        _supported[type] = flatten_fn, unflatten_fn


def rebuild(x: Any, leaf: Leaf) -> Any:
    """The nest with `leaf` of each of its leaves."""
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*(rebuild(v, leaf) for v in x))
    if isinstance(x, tuple):
        return tuple(rebuild(v, leaf) for v in x)
    if isinstance(x, list):
        return [rebuild(v, leaf) for v in x]
    if isinstance(x, dict):
        return {k: rebuild(v, leaf) for k, v in x.items()}
    if type(x) in _supported:
        flatten, unflatten = _supported[type(x)]
        inside, about = flatten(x)
        return unflatten([rebuild(v, leaf) for v in inside], about)
    return leaf(x)


def leaves(x: Any) -> Iterator[Any]:
    """The leaves of a nest, in order."""
    found: list[Any] = []
    rebuild(x, found.append)
    return iter(found)


def same_form(x: Any, y: Any, is_slot: Leaf) -> bool:
    """Whether two nests have the same form and the same constants, where both have a slot or neither."""
    if type(x) in _supported and type(x) is type(y):
        (some, about), (others, also) = (_supported[type(x)][0](v) for v in (x, y))
        return about == also and same_form(list(some), list(others), is_slot)
    if isinstance(x, (tuple, list)) and isinstance(y, (tuple, list)):
        alike = isinstance(x, list) is isinstance(y, list) and len(x) == len(y)
        return alike and all(same_form(a, b, is_slot) for a, b in zip(x, y))
    if isinstance(x, dict) and isinstance(y, dict):
        return x.keys() == y.keys() and all(same_form(x[k], y[k], is_slot) for k in x)
    if is_slot(x) or is_slot(y):
        return bool(is_slot(x) and is_slot(y))
    return x is y or (type(x) is type(y) and bool(x == y))
