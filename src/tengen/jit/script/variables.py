"""The variables of a user's function while its parts are recorded: cells of closures, which are read, set and put back.

Lists and dicts are changed in place by users' code; so they are put back in place too, and whoever else holds one sees what plain
Python would have made of it.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterable, Sequence
from inspect import CO_OPTIMIZED
from threading import get_ident
from typing import Any
from weakref import ref

from tengen.base.errors import ScriptError, user_line
from tengen.base.users import is_users
from tengen.jit.script.changes import Untouched
from tengen.jit.script.merge import UNSET
from tengen.jit.script.numbers import Number
from tengen.jit.script.rewrite import MADE
from tengen.tensor import Tensor, structure, tracing


def cells_of(*functions: Callable) -> dict[str, types.CellType]:
    """The cells of the user's variables that these functions, and those that they call, use."""
    found: dict[str, types.CellType] = {}
    todo = list(functions)
    seen: set[int] = set()
    while todo:
        f = todo.pop()
        if id(f) in seen or not isinstance(f, types.FunctionType):
            continue
        seen.add(id(f))
        for name, cell in zip(f.__code__.co_freevars, f.__closure__ or ()):
            if name.startswith(MADE):
                todo.append(value_in(cell))
            else:
                found[name] = cell
    return found


def tensors_around(functions: Iterable[Callable], known: Iterable[str]) -> dict[str, Tensor]:
    """The variables that are tensors, other than those known, of the function that is running and whose source holds one of these: a
    region that does not use a variable has no cell of it."""
    codes = [f.__code__ for f in functions if isinstance(f, types.FunctionType)]
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and not any(code in frame.f_code.co_consts for code in codes):
        frame = frame.f_back
    if frame is None or not frame.f_code.co_flags & CO_OPTIMIZED:
        return {}
    names, variables = set(known), frame.f_locals
    found = {n: x for n, x in variables.items() if isinstance(x, Tensor) and n not in names and not n.startswith(MADE)}
    if type(variables) is dict:  # a copy that stays with the frame (up to Python 3.12), where it would count as holding each list
        variables.clear()
    return found


def value_in(cell: types.CellType) -> Any:
    """What a variable is; UNSET without a value."""
    try:
        return cell.cell_contents
    except ValueError:
        return UNSET


def set_cell(cell: types.CellType, x: Any) -> None:
    """Gives a variable a value, or takes it away."""
    if x is not UNSET:
        cell.cell_contents = x
    elif value_in(cell) is not UNSET:
        del cell.cell_contents


def copied(x: Any) -> Any:
    """A value with lists and dicts of its own."""
    if type(x) is list:
        return [copied(v) for v in x]
    if type(x) is dict:
        return {k: copied(v) for k, v in x.items()}
    if type(x) is tuple:
        return tuple(copied(v) for v in x)
    return x


def mapped(x: Any, f: Callable[[Tensor], Tensor]) -> Any:
    """A value with f of each of its tensors that may be written to."""
    return structure.mapped(x, lambda t: t if isinstance(t, Number) else f(t))


def refilled(old: Any, new: Any) -> Any:
    """The list or dict `old` with the elements of `new`; what cannot take them is replaced by `new`."""
    if type(old) is list and type(new) is list:
        old[:] = [refilled(a, b) for a, b in zip(old, new)] + new[len(old) :]
        return old
    if type(old) is dict and type(new) is dict:
        made = {k: refilled(old.get(k), v) for k, v in new.items()}
        old.clear()
        old.update(made)
        return old
    return new


class Twins:
    """Tensors that plain Python may have as one, as a tensor decides, and that are two behind a region: neither may be written. The hook of
    `tracing.writes`."""

    def __init__(self) -> None:
        self._pairs: list[tuple[Any, Any, str]] = []

    def note(self, a: Any, b: Any, names: str) -> None:
        """Two values that may be one tensor."""
        if isinstance(a, Tensor) and isinstance(b, Tensor) and a is not b and not isinstance(a, Number):
            self._pairs = [p for p in self._pairs if p[0]() is not None and p[1]() is not None]
            self._pairs.append((ref(a), ref(b), names))

    def __call__(self, target: Tensor) -> None:
        for a, b, names in self._pairs:
            if (target is a() and b() is not None) or (target is b() and a() is not None):
                raise ScriptError(
                    f"{user_line()}: a tensor is changed in place that may be both {names}, as a tensor decides: they were one where a branch "
                    "or a loop set one of them; help: `x = x + ...` makes another tensor, and `x + 0` a copy"
                )


def _same_elements(a: Any, b: Any) -> bool:
    if type(a) in (list, tuple) and type(b) is type(a):
        return len(a) == len(b) and all(map(_same_elements, a, b))
    if type(a) is dict and type(b) is dict:
        return list(a) == list(b) and all(_same_elements(a[k], b[k]) for k in a)
    return a is b


def refuse_aliases(where: str | None, name: str, groups: list[list[str]], in_place: Iterable[str]) -> None:
    """ScriptError for a variable that a region sets, and that is one tensor with another one, if one of them is changed in place: behind the
    region they are two."""
    for group in groups:
        if name in group and not set(group).isdisjoint(in_place):
            one = next(n for n in in_place if n in group)
            raise ScriptError(
                f"{where}: {' and '.join(f'`{n}`' for n in group)} are one tensor, and `{one}` is changed in place, which would change all "
                f"of them, or not, as a tensor decides; help: `{one} = {one} + ...` makes another tensor, and `x + 0` a copy"
            )


def pairs_of(name: str, groups: list[list[str]]) -> list[tuple[str, str]]:
    """A name with each of those that are one tensor with it."""
    return [(name, m) for group in groups if name in group for m in group if m != name]


class Variables:
    """Some variables, as they were when this was made."""

    def __init__(self, functions: Sequence[Callable], names: Iterable[str]):
        cells = self._all = cells_of(*functions)
        self._others = tensors_around(functions, cells)  # which the region neither reads nor sets
        self.cells = {n: cells[n] for n in names if n in cells}
        self.objects = {n: value_in(c) for n, c in self.cells.items()}
        self.values = {n: copied(x) for n, x in self.objects.items()}
        mine = [f for f in functions if isinstance(f, types.FunctionType) and is_users(f.__code__.co_filename)]
        self._others_in_place = Untouched({n: value_in(c) for n, c in cells_of(*mine).items()}, self.cells)

    def check(self, where: str | None) -> None:
        """ScriptError where a body has changed what a region cannot change."""
        self._others_in_place.check(where)

    def restore(self) -> None:
        """Makes them what they were."""
        for n, cell in self.cells.items():
            set_cell(cell, refilled(self.objects[n], copied(self.values[n])))

    def now(self, names: Iterable[str]) -> dict[str, Any]:
        """What some of them are, in lists and dicts of their own."""
        return {n: copied(value_in(self.cells[n])) for n in names if n in self.cells}

    def others_may_see(self, name: str, changed: Iterable[str]) -> bool:
        """Whether a variable is a list or dict that is changed in place, maybe under several names."""
        return name in changed and isinstance(self.objects.get(name), (list, dict))

    def is_shared(self, name: str) -> bool:
        """Whether something else than the variable refers to its list, as far as the number of references tells."""
        alone: Any = []
        cell, objects = types.CellType(alone), {"": alone}
        del alone
        return cell is not None and sys.getrefcount(self.objects[name]) > sys.getrefcount(objects[""])

    def are_same(self, name: str) -> bool:
        """Whether a variable is the object that it was."""
        return value_in(self.cells[name]) is self.objects[name]

    def is_untouched(self, name: str) -> bool:
        """The same, and a list or dict has the elements that it had."""
        return self.are_same(name) and _same_elements(self.objects[name], self.values[name])

    def aliases(self) -> list[list[str]]:
        """The names of tensors that have several."""
        found: dict[int, list[str]] = {}
        for n, x in (*((n, value_in(cell)) for n, cell in self._all.items()), *self._others.items()):
            if isinstance(x, Tensor) and not isinstance(x, Number):
                found.setdefault(id(x), []).append(n)
        return [sorted(some) for some in found.values() if len(some) > 1]

    def note_twins(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Tells the script of variables that may be one tensor: a region has set the first of each pair."""
        twins = tracing.writes.get(get_ident())
        for n, m in pairs:
            other = value_in(self._all[m]) if m in self._all else self._others.get(m)
            if isinstance(twins, Twins):
                twins.note(value_in(self._all[n]), other, f"`{n}` and `{m}`")

    def put(self, name: str, x: Any, in_place: bool = False) -> None:
        """Gives one of them a value; in_place: the list or dict that it was gets the elements."""
        set_cell(self.cells[name], refilled(self.objects[name], x) if in_place else x)
