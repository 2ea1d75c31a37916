"""Opening by itself: which axes of a traced function's arguments get a name, because calls differed in them.

In: the shapes of calls that one recording would have served but for the shapes. Out: patterns, which are these shapes with
names in the place of the extents in which they differ. The trace records the function once more with such a pattern, and
the program of that serves all calls that match it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from tengen.base.record import record
from tengen.ir.types import TensorType
from tengen.loops.lang import var

LEAST = 2  # of an extent that has a name: extents of 0 and 1 are calculated otherwise (broadcasting, `squeeze`, no elements)

Shapes = tuple[tuple[int, ...], ...]  # of the tensors of a call
Place = tuple[int, int]  # (tensor, axis)


@record
class Pattern:
    """Shapes with names for some extents.

    Attributes:
        examples: the shapes that it was made of; the last are those of the call that it was made for. names: of the extents
            that are open, by (tensor, axis).
    """

    examples: list[Shapes]
    names: dict[Place, str] = field(default_factory=dict)

    def numbers(self, shapes: Shapes) -> dict[str, int] | None:
        """The numbers of the names in a call with tensors of these shapes; None where it does not match."""
        found: dict[str, int] = {}
        for i, (shape, like) in enumerate(zip(shapes, self.examples[-1])):
            for axis, (n, m) in enumerate(zip(shape, like)):
                name = self.names.get((i, axis))
                if name is None:
                    if n != m:
                        return None
                elif n < LEAST or found.setdefault(name, n) != n:
                    return None
        return found

    def types(self, types: Sequence[TensorType]) -> tuple[TensorType, ...]:
        """The types of a call that matches, with the names."""
        return tuple(
            TensorType([var(self.names[i, a]) if (i, a) in self.names else d for a, d in enumerate(t.shape)], t.dtype)
            for i, t in enumerate(types)
        )

    def is_at_least(self, other: Pattern) -> bool:
        """Whether everything that another pattern leaves open is open here too: its axes, each with a name of its own where the
        other's have."""
        if not other.names.keys() <= self.names.keys():
            return False
        pairs = {(self.names[p], name) for p, name in other.names.items()}
        return len(pairs) == len({mine for mine, _ in pairs})


def joined(examples: Sequence[Shapes]) -> Pattern:
    """The most special pattern that all examples match: where they differ, the extent has a name, and two extents that were
    equal in each example have one. An extent that is 0 or 1 in the last one stays that number.

    >>> joined([((64, 20), (64,)), ((17, 20), (17,))]).names
    {(0, 0): 'n0', (1, 0): 'n0'}
    """
    last = examples[-1]
    some = [*(e for e in dict.fromkeys(examples) if e != last), last]
    found: dict[tuple[int, ...], str] = {}
    pattern = Pattern(some)
    for i, shape in enumerate(last):
        for axis, n in enumerate(shape):
            met = tuple(e[i][axis] for e in some)
            if n >= LEAST and any(m != n for m in met):
                pattern.names[i, axis] = found.setdefault(met, f"n{len(found)}")
    return pattern


def patterns(known: Sequence[Sequence[Shapes]], shapes: Shapes) -> Iterator[Pattern]:
    """What may be opened for a call, the best first: what serves all that is known too, then what serves one of them.

    Args:
        known: for each recording that would serve the call but for its shapes, the examples that it was made of.
    """
    if not known:
        return
    yield joined([*(e for some in known for e in some), shapes])
    if len(known) > 1:
        yield from sorted((joined([*some, shapes]) for some in known), key=lambda p: len(p.names))


class Opening:
    """What was opened of a function, and what could not be; calls of the same structure, ranks and dtypes are looked at together."""

    def __init__(self) -> None:
        self._opened: dict[Any, list[Pattern]] = {}
        self._refused: dict[Any, list[Pattern]] = {}

    def matching(self, key: Any) -> Iterator[tuple[Any, dict[str, int]]]:
        """(signature with names, numbers) for all patterns that a call matches, the most special first."""
        for p in self._opened.get(family(key), ()):
            numbers = p.numbers(shapes_of(key))
            if numbers is not None:
                yield opened_key(key, p), numbers

    def add(self, key: Any, pattern: Pattern) -> bool:
        """The function has been recorded for a pattern. Returns whether it is a new one."""
        some = self._opened.setdefault(family(key), [])
        if any(opened_key(key, p) == opened_key(key, pattern) for p in some):
            return False
        some.append(pattern)
        some.sort(key=lambda p: len(p.names))
        return True

    def refuse(self, key: Any, pattern: Pattern) -> None:
        """The function cannot be recorded for a pattern."""
        self._refused.setdefault(family(key), []).append(pattern)

    def refused(self, key: Any, pattern: Pattern) -> bool:
        """Whether the function cannot be recorded with all this open, as it could not be with less."""
        return any(map(pattern.is_at_least, self._refused.get(family(key), ())))


def family(key: Any) -> Any:
    """What signatures have in common that differ in nothing but shapes."""
    structure, types, casts, device = key
    return structure, tuple((t.ndim, t.dtype) for t in types), casts, device


def shapes_of(key: Any) -> Shapes:
    """The shapes of the tensors of a signature without names."""
    return tuple(t.shape for t in key[1])


def opened_key(key: Any, pattern: Pattern) -> Any:
    """The signature with names in the place of extents."""
    structure, types, casts, device = key
    return structure, pattern.types(types), casts, device


def described(pattern: Pattern, parameters: Sequence[str]) -> tuple[str, str]:
    """What is open, in words, and the `dynamic_axes` that say the same, or "".

    Args:
        parameters: for each tensor, the name of the parameter that it came in.

    >>> described(joined([((64, 20), (64,)), ((17, 20), (17,))]), ["x", "y"])
    ('axis 0 of x and axis 0 of y (64, then 17)', '{"x": {0: "n0"}, "y": {0: "n0"}}')
    """
    said = []
    for name in dict.fromkeys(pattern.names.values()):
        places = [p for p, n in pattern.names.items() if n == name]
        where = list(dict.fromkeys(f"axis {axis} of {parameters[i]}" for i, axis in places))
        first = pattern.examples[0][places[0][0]][places[0][1]]
        now = pattern.examples[-1][places[0][0]][places[0][1]]
        numbers = f"{first}, then {now}" if first != now else f"{now}"
        said.append(f"{', '.join(where[:-1])}{' and ' if len(where) > 1 else ''}{where[-1]} ({numbers})")
    if not all(p.isidentifier() for p in parameters):
        return "; ".join(said), ""
    axes: dict[str, dict[int, str]] = {}
    for i, parameter in enumerate(parameters):
        mine = {axis: n for (j, axis), n in pattern.names.items() if j == i}
        if axes.setdefault(parameter, mine) != mine:
            return "; ".join(said), ""  # tensors of one parameter differ, which `dynamic_axes` cannot say
    return "; ".join(said), told(axes)


def told(axes: Mapping[str, Mapping[int, str]]) -> str:
    """A table of axes by parameters as one writes it."""
    each = (f'"{k}": {{{", ".join(f"{a}: {chr(34)}{n}{chr(34)}" for a, n in v.items())}}}' for k, v in axes.items() if v)
    return f"{{{', '.join(each)}}}"
