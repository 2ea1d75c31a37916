"""Tensors, lists and dicts with several names, behind branches and loops, which give each variable an object of its own.

In: the variables of a region when a branch or an iteration has ended. Out: the places (a variable, an element of a list or a dict, an
attribute) that are one object there; and an error when a tensor is changed in place that may be one with another tensor, as a tensor
decides.
"""

from __future__ import annotations

import collections
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from threading import get_ident
from typing import Any
from weakref import ref

from tengen.base.errors import ScriptError, user_line
from tengen.base.record import NamedTuple
from tengen.jit.script.changes import PLAIN, of_user
from tengen.jit.script.convert import is_made
from tengen.jit.script.lanes import Stacked
from tengen.jit.script.numbers import Number
from tengen.jit.script.rewrite import MADE, RUNTIME
from tengen.tensor import Tensor, tracing

RESULT = "what is returned"
Path = tuple[tuple[str, Any], ...]  # ("at", key) of an element and ("of", name) of an attribute, from the outside to the inside


class Place(NamedTuple):
    """Where an object is found: a variable, and the way to it from there."""

    root: str
    path: Path
    get: Callable[[], Any]  # what the variable is now

    @property
    def name(self) -> str:
        """The place as it is written in Python."""
        if self.root == RESULT:
            return self.root
        *whose, root = self.root.rsplit(" ", 1)
        way = "".join(f".{k}" if how == "of" else f"[{k!r}]" for how, k in self.path)
        return " ".join([*whose, f"`{root}{way}`"])

    def now(self) -> Any:
        """What is there now; None where nothing is. Of a list that a loop has filled, which makes its elements anew, the list itself."""
        x = self.get()
        for how, key in self.path:
            try:
                if isinstance(x, Stacked):
                    return x
                x = getattr(x, key) if how == "of" else x[key]
            except (AttributeError, LookupError, TypeError):
                return None
        return x


def _inside(x: Any) -> Iterator[tuple[str, Any, Any]]:
    """(How to get there, the key, the value) of what a value holds."""
    if isinstance(x, (list, tuple, collections.deque)):
        yield from [("at", i, v) for i, v in enumerate(x) if type(v) not in _SCALARS]
    elif isinstance(x, dict):
        yield from [("at", k, v) for k, v in x.items() if type(v) not in _SCALARS]
    elif not isinstance(x, PLAIN) and (of_user(type(x)) or hasattr(type(x), "named_parameters")):
        yield from [("of", k, v) for k, v in getattr(x, "__dict__", {}).items() if type(v) not in _SCALARS]


_SCALARS = frozenset({int, float, complex, bool, str, bytes, type(None)})


def places_in(name: str, get: Callable[[], Any], kinds: tuple[type, ...], x: Any = None) -> Iterator[tuple[Place, Any]]:
    """The places of a variable at which there is an object of these kinds, with the objects. Numbers of the program are none. x: what the
    variable is; None: what `get` says."""
    todo: list[tuple[Path, Any]] = [((), get() if x is None else x)]
    seen: dict[int, Any] = {}
    while todo:
        path, x = todo.pop()
        if isinstance(x, kinds) and not isinstance(x, Number):
            yield Place(name, path, get), x
        if isinstance(x, PLAIN) or id(x) in seen:
            continue
        seen[id(x)] = x
        todo += [((*path, (how, key)), v) for how, key, v in _inside(x)]


def _variables() -> Iterator[tuple[str, Callable[[], Any], Any]]:
    """The variables of the scripts' functions that are running, and the globals that these use: (name, what gives its value, the value).
    Another function's variable of a name that there was already is the caller's."""
    frame: types.FrameType | None = sys._getframe(1)
    ended: set[str] = set()  # names whose variable is of a function that the walk has left
    while frame is not None:
        code = frame.f_code
        if is_made(code):
            variables = _locals(frame)
            for name in variables:
                if not name.startswith(MADE) and name != RUNTIME:
                    shown = f"the caller's {name}" if name in ended else name
                    yield shown, lambda frame=frame, name=name: _locals(frame).get(name), variables[name]
            ended.update(code.co_cellvars, code.co_varnames)
            for name in code.co_names:
                if type(found := frame.f_globals.get(name)) not in _SCALARS:
                    yield name, lambda frame=frame, name=name: frame.f_globals.get(name), found
        frame = frame.f_back


def _locals(frame: types.FrameType) -> dict[str, Any]:
    variables = frame.f_locals
    found = dict(variables)
    if type(variables) is dict:  # a copy that stays with the frame (up to Python 3.12), where it would count as holding each list
        variables.clear()
    return found


class Pair(NamedTuple):
    """Two places of one object: the first one is set by a region."""

    place: Place
    other: Place

    @property
    def key(self) -> tuple[Any, ...]:
        """The two places, to find the pair again."""
        return self.place.root, self.place.path, self.other.root, self.other.path


class Twins:
    """Tensors that plain Python may have as one, as a tensor decides, and that are two behind a region: neither may be written. The hook of
    `tracing.writes`."""

    def __init__(self) -> None:
        self._with: dict[int, tuple[Any, dict[int, tuple[Any, str, str]]]] = {}  # by id: those that a tensor may be
        self._written: dict[int, tuple[Any, int, str]] = {}  # the tensors that were written, with a number that counts and the line
        self._marks: dict[int, tuple[Any, list[Callable[[str], Any]]]] = {}  # what is told when a tensor is written
        self._results: list[tuple[Any, Place, Any, str]] = []  # lists and dicts that branches returned, and where they may be found besides
        self.count = 0  # writes so far

    def note(self, a: Any, b: Any, names: str, where: str) -> None:
        """A tensor that may be one with another tensor, or with an element of a list that a loop has filled. where: the line of the region."""
        for x, y in ((a, b), (b, a)):
            if isinstance(x, Tensor) and isinstance(y, (Tensor, Stacked)) and x is not y:
                _of(self._with, x, dict)[id(y)] = (ref(y), names, where)

    def mark(self, x: Tensor, told: Callable[[str], Any]) -> None:
        """A tensor of which `told` hears the line when it is written."""
        _of(self._marks, x, list).append(told)

    def ids(self, x: Tensor) -> set[int]:
        """The ids of a tensor and of those that it may be."""
        found = self._with.get(id(x))
        return {id(x), *(k for k, (other, *_) in found[1].items() if other() is not None)} if found and found[0]() is x else {id(x)}

    def note_list(self, x: Any, other: Place, where: str) -> None:
        """A list or dict that a function returns, and that may be one with what is at another place now."""
        if type(x) in (list, dict) and x is not other.now():
            self._results.append((x, other, other.now(), where))

    def changes(self, x: Any) -> None:
        """Hears that a list or a dict is about to be changed in place. Errors: ScriptError for one that may have another name."""
        for made, other, was, region in self._results:
            if other.now() is was and (x is made or x is was):
                raise refusal(user_line() or "?", f"{RESULT} and {other.name}", region, type(x).__name__)

    def line_of_write(self, x: Any, since: int) -> str:
        """Where a tensor was written last; "" if it was not since the count was so."""
        found = self._written.get(id(x))
        return found[2] if found is not None and found[0]() is x and found[1] > since else ""

    def __call__(self, target: Tensor) -> None:
        where = user_line() or "?"
        found = self._with.get(id(target))
        for other, names, region in found[1].values() if found and found[0]() is target else ():
            if other() is not None:
                raise refusal(where, names, region)
        marks = self._marks.get(id(target))
        for told in marks[1] if marks and marks[0]() is target else ():
            told(where)
        self.count += 1
        self._written[id(target)] = (ref(target), self.count, where)


def _of(known: dict[int, tuple[Any, Any]], x: Tensor, kind: Callable[[], Any]) -> Any:
    """What is known of a tensor, which is forgotten with it."""
    key = id(x)
    found = known.get(key)
    if found is None or found[0]() is not x:
        found = known[key] = (ref(x, lambda gone: known.pop(key, None) if known.get(key, (None,))[0] is gone else None), kind())
    return found[1]


def refusal(where: str, names: str, region: str, kind: str = "tensor") -> ScriptError:
    """The error for a tensor, list or dict with two names that is written. region: the line of the branch or the loop."""
    line = region.rsplit(":", 1)[-1]
    instead = "`x = x + ...` makes another tensor, and `x + 0` a copy" if kind == "tensor" else f"`{kind}(x)` is a copy"
    return ScriptError(
        f"{where}: a {kind} is changed in place that may be both {names}, as a tensor decides: they were one where a branch or a loop (line "
        f"{line}) set one of them; help: {instead}"
    )


def twins() -> Twins:
    """Those of the script that is being recorded."""
    found = tracing.writes.get(get_ident())
    return found if isinstance(found, Twins) else Twins()


def pairs(mine: Mapping[str, Callable[[], Any]]) -> list[Pair]:
    """The tensors of some variables, which a region sets, that have another place too, or may have one."""
    known, places = twins(), [p for name, get in mine.items() for p in places_in(name, get, (Tensor,))]
    wanted: dict[int, list[Place]] = {}
    for place, x in places:
        for key in known.ids(x):
            wanted.setdefault(key, []).append(place)
    if not wanted:
        return []
    others = [found for name, get, value in _variables() for found in places_in(name, get, (Tensor,), value)]
    return [Pair(p, other) for other, x in (*places, *others) for p in wanted.get(id(x), ()) if p[:2] != other[:2] or x is not p.now()]


def note(found: Iterable[Pair], where: str) -> None:
    """Tells the script of places that may be one tensor, from now on. where: the line of the region."""
    known = twins()
    for p in found:
        known.note(p.place.now(), p.other.now(), f"{p.place.name} and {p.other.name}", where)


def shared(mine: Sequence[tuple[Place, Any]]) -> list[tuple[Place, Place, type]]:
    """Of lists and dicts of a region's variables, or its result, those that have a name besides: (place, the other one, list or dict)."""
    wanted = {id(x): p for p, x in mine}
    if not wanted:
        return []
    others = [found for name, get, value in _variables() for found in places_in(name, get, (list, dict), value)]
    return [(p, other, type(x)) for other, x in others if (p := wanted.get(id(x))) is not None and p.root != other.root]


class Names(NamedTuple):
    """Places of what a function returns, as far as the line `where`, that are one with others: of tensors, and of lists and dicts."""

    tensors: tuple[Pair, ...] = ()
    lists: tuple[tuple[Place, Place, type], ...] = ()
    where: str = "?"

    def joined(self, other: Names) -> Names:
        """These and others, of what is returned elsewhere."""
        return Names((*self.tensors, *other.tensors), (*self.lists, *other.lists), user_line() or "?")

    def with_those_of(self, value: Any) -> Names:
        """These and those of a value."""
        found = pairs({RESULT: lambda: value})
        lists = shared(list(places_in(RESULT, lambda: value, (list, dict))))
        return self.joined(Names(tuple(found), tuple(lists)))

    def note(self, value: Any) -> None:
        """Tells the script, when the function has returned a value: until then, what it writes is not what it returns."""
        here = lambda p: Place(RESULT, p.path, lambda: value)
        note([Pair(here(p.place), p.other) for p in self.tensors], self.where)
        for place, other, _ in self.lists:
            twins().note_list(here(place).now(), other, self.where)


def refuse_shared(where: str, found: Iterable[tuple[Place, Place, type]], changed: Iterable[str]) -> None:
    """ScriptError for a list or a dict with two names, one of which a region sets, if it is changed: behind the region they are two. changed:
    names of what the function changes in place."""
    names = set(changed)
    for p, other, kind in found:
        if names & {p.root, other.root}:
            raise ScriptError(
                f"{where}: {p.name} and {other.name} are one {kind.__name__}, which is changed in place, and a branch or a loop sets one of "
                "them: whether both change is for a tensor to decide; help: `list(x)` and `dict(x)` are copies"
            )
