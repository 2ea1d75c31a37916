"""What a function has changed in the lists, dicts and dataclasses that it was given, where it ran with copies of them.

A function that is recorded gets its arguments rebuilt, with tensors of the recorder in them. Where it asks for a value, that call was not
recorded but run, so the caller finds what it has changed, as after every later call.
"""

from __future__ import annotations

from typing import Any

from tengen.tensor.structure import fields


def _inside(kind: str, x: Any) -> dict[Any, Any]:
    """What a list, a tuple, a dict or a dataclass holds, by key. kind: as `flatten` has it."""
    return dict(x) if kind == "dict" else fields(x, frozen=False) if kind == "D" else dict(enumerate(x))


def _containers(structure: Any, x: Any) -> list[tuple[str, Any, dict[Any, Any]]]:
    """What `flatten` has taken apart, in order: its kind, the container, what it holds. Others are the caller's own objects everywhere."""
    kind = structure[0]
    if kind not in ("tuple", "list", "dict", "N", "D"):
        return []
    inside, parts = _inside(kind, x), structure[2 if kind in "ND" else 1]
    parts = [p for _, p in parts] if kind in ("dict", "D") else parts
    return [(kind, x, inside), *(found for p, v in zip(parts, inside.values()) for found in _containers(p, v))]


def _differs(before: dict[Any, Any], after: dict[Any, Any]) -> bool:
    return list(after) != list(before) or any(v is not before[k] for k, v in after.items())


class Copies:
    """The arguments that a function is called with, copies of the caller's, as they are before. structure: of `flatten`.

    >>> from tengen.tensor.structure import flatten
    >>> mine, copy = {"rows": [1]}, {"rows": [1]}
    >>> copies = Copies(flatten(mine, []), copy)
    >>> copy["rows"].append(2); copy["n"] = copy["rows"]
    >>> copies.give_back(mine)
    >>> mine, mine["n"] is mine["rows"]
    ({'rows': [1, 2], 'n': [1, 2]}, True)
    """

    def __init__(self, structure: Any, arguments: Any):
        self._structure, self._before = structure, _containers(structure, arguments)
        self._twins: dict[int, Any] = {}

    def changed(self) -> bool:
        """Whether one of them holds other things than before."""
        return any(_differs(before, _inside(kind, copy)) for kind, copy, before in self._before)

    def give_back(self, arguments: Any) -> None:
        """Changes the caller's arguments as the copies were changed. What was in the copies and has gone to another place is the caller's own
        there."""
        pairs = list(zip(self._before, _containers(self._structure, arguments), strict=True))
        for (_, copy, before), (_, own, inside) in pairs:
            self._twins[id(copy)] = own
            self._twins.update((id(v), inside[k]) for k, v in before.items())
        for (kind, copy, before), (_, own, _) in pairs:
            after = _inside(kind, copy)
            if _differs(before, after):
                _set(own, {k: self._own(v) for k, v in after.items()})

    def _own(self, x: Any) -> Any:
        """What stands for a value at the caller."""
        if id(x) in self._twins:
            return self._twins[id(x)]
        if type(x) in (list, tuple):
            return type(x)(map(self._own, x))
        return {k: self._own(v) for k, v in x.items()} if type(x) is dict else x


def _set(x: Any, inside: dict[Any, Any]) -> None:
    """Changes what a list, a dict or a dataclass holds."""
    if isinstance(x, list):
        x[:] = inside.values()
    elif isinstance(x, dict):
        x.clear()
        x.update(inside)
    else:
        for name, v in inside.items():
            object.__setattr__(x, name, v)
