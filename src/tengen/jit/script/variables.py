"""The variables of a user's function while its parts are recorded: cells of closures, which are read, set and put back.

Lists and dicts are changed in place by users' code; so they are put back in place too, and whoever else holds one sees what plain
Python would have made of it.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any

from tengen.base.users import is_users
from tengen.jit.script.aliases import Path, Place, places_in
from tengen.jit.script.changes import Untouched, globals_of, reached
from tengen.jit.script.desugar import is_element
from tengen.jit.script.merge import UNSET
from tengen.jit.script.numbers import Number
from tengen.jit.script.rewrite import MADE
from tengen.tensor import Tensor, structure


def cells_of(*functions: Callable) -> dict[str, types.CellType]:
    """The cells of the user's variables that these functions, and the parts that they call, use."""
    return {
        name: cell
        for f in parts_of(*functions)
        for name, cell in zip(f.__code__.co_freevars, f.__closure__ or ())
        if not name.startswith(MADE)
    }


def parts_of(*functions: Callable) -> list[types.FunctionType]:
    """These functions, and those that were made of parts of the user's and that they call."""
    found: dict[int, types.FunctionType] = {}
    todo = list(functions)
    while todo:
        f = todo.pop()
        if id(f) in found or not isinstance(f, types.FunctionType):
            continue
        found[id(f)] = f
        todo += [value_in(c) for name, c in zip(f.__code__.co_freevars, f.__closure__ or ()) if name.startswith(MADE)]
    return list(found.values())


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


def refilled(old: Any, new: Any, moved: Container[Path], path: Path = ()) -> Any:
    """The list or dict `old` with the elements of `new`; what cannot take them, or was moved, is replaced by `new`."""
    if path in moved or type(old) is not type(new) or type(old) not in (list, dict, tuple):
        return new
    if type(old) is dict:
        made = {k: refilled(old.get(k), v, moved, (*path, ("at", k))) for k, v in new.items()}
        old.clear()
        old.update(made)
        return old
    made = [refilled(a, b, moved, (*path, ("at", i))) for i, (a, b) in enumerate(zip(old, new))] + list(new[len(old) :])
    if type(old) is tuple:
        return tuple(made)
    old[:] = made
    return old


def _same_elements(a: Any, b: Any) -> bool:
    if isinstance(a, (list, tuple)) and type(b) is type(a):
        return len(a) == len(b) and all(map(_same_elements, a, b))
    if type(a) is dict and type(b) is dict:
        return list(a) == list(b) and all(_same_elements(a[k], b[k]) for k in a)
    return a is b


class Variables:
    """Some variables, as they were when this was made."""

    def __init__(self, functions: Sequence[Callable], names: Iterable[str]):
        cells = cells_of(*functions)
        self.cells = {n: cells[n] for n in names if n in cells}
        self.objects = {n: value_in(c) for n, c in self.cells.items()}
        self.values = {n: copied(x) for n, x in self.objects.items()}
        self._containers = {(n, p.path): (x, x.copy()) for n in self.cells for p, x in self.containers(n)}
        self._parts = [f for f in parts_of(*functions) if is_users(f.__code__.co_filename)]
        functions_used = {n: x for f in self._parts for n, x in globals_of(f).items() if isinstance(x, types.FunctionType)}
        used = {n: value_in(c) for n, c in cells_of(*self._parts).items()}
        self._others_in_place = Untouched(functions_used | used, self.cells)

    def check(self, where: str | None) -> None:
        """ScriptError where a body has changed what a region cannot change."""
        self._others_in_place.check(where)

    def restore(self) -> None:
        """Makes them what they were."""
        for n, cell in self.cells.items():
            set_cell(cell, self.objects[n])
        for x, elements in self._containers.values():
            x.clear()
            (x.extend if isinstance(x, list) else x.update)(elements)

    def now(self, names: Iterable[str]) -> dict[str, Any]:
        """What some of them are, in lists and dicts of their own."""
        return {n: copied(value_in(self.cells[n])) for n in names if n in self.cells}

    def others_may_see(self, name: str, changed: Iterable[str]) -> bool:
        """Whether a variable is a list or dict that is changed in place, maybe under several names."""
        return name in changed and isinstance(self.objects.get(name), (list, dict))

    def is_shared(self, name: str) -> bool:
        """Whether something else than the variable refers to its list, as far as the number of references tells."""
        alone: Any = []
        cell, objects, containers = types.CellType(alone), {"": alone}, (alone,)
        del alone
        known = sys.getrefcount(objects[""]) + is_element(name)
        return cell is not None and sys.getrefcount(self.objects[name]) > known and bool(containers)

    def other_name(self, name: str, same: Container[str]) -> str | None:
        """What the region uses through which the list of a variable can be read too; None: nothing. same: variables that are left out."""
        used = {n: value_in(c) for n, c in cells_of(*self._parts).items() if n not in same}
        for f in self._parts:
            used |= globals_of(f)
        return reached(used, self.objects[name])

    def are_same(self, name: str) -> bool:
        """Whether a variable is the object that it was."""
        return value_in(self.cells[name]) is self.objects[name]

    def is_untouched(self, name: str) -> bool:
        """The same, and a list or dict has the elements that it had."""
        return self.are_same(name) and _same_elements(self.objects[name], self.values[name])

    def getters(self, names: Iterable[str]) -> dict[str, Callable[[], Any]]:
        """What gives the values of some of them."""
        return {n: lambda cell=self.cells[n]: value_in(cell) for n in names}

    def containers(self, name: str) -> list[tuple[Place, Any]]:
        """The lists and dicts in a variable, other than those of objects, with their places."""
        found = places_in(name, lambda: value_in(self.cells[name]), (list, dict))
        return [(p, x) for p, x in found if type(x) in (list, dict) and all(how == "at" for how, _ in p.path)]

    def moved(self, name: str) -> list[tuple[Place, Any]]:
        """The lists and dicts of a variable that are others than those that were there, with their places."""
        return [(p, x) for p, x in self.containers(name) if self._containers.get((name, p.path), (None,))[0] is not x]

    def put(self, name: str, x: Any, moved: Container[Path]) -> None:
        """Gives one of them a value. moved: paths of lists and dicts that are others than before; the rest gets the new elements."""
        set_cell(self.cells[name], refilled(self.objects[name], x, moved))
