"""What a traced function can read: a walk from it over globals, closures, defaults, attributes and containers.

In: the function, the objects it was called with, the code that ran (`observe.py`). Out: a list of facts, each a path such as
``net.1.drop_prob`` with a plain value, or with an object that has to be the same one; and for everything but modules and
optimizers, which count their own changes (`base/changes.py`), how to read it again quickly.

Of globals, and of the attributes of plain objects and classes, only names that occur in the code that ran are read. Libraries
and Tengen's own functions are assumed not to change.
"""

from __future__ import annotations

import contextvars
import functools
import importlib.util
import operator
import os
import random
import struct
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

import numpy as np

from tengen.autodiff import GradManager
from tengen.base.changes import Watched
from tengen.base.record import NamedTuple
from tengen.base.users import is_users
from tengen.compiler.arrays import BufferMemory
from tengen.jit.classes import (
    CONTAINERS,
    VIEWS,
    about,
    class_attributes,
    has_settings,
    is_a,
    is_users_class,
    is_users_module,
    read_by_tengen,
)
from tengen.jit.observe import Facts, facts
from tengen.jit.script.convert import source_of
from tengen.tensor import Tensor

LARGEST = 1000  # elements of a container that are looked at, one by one, in each call
DEEPEST = 100  # steps from the function

_ASKING = frozenset({"getattr", "hasattr"})
_LACKING = frozenset({"AttributeError", "suppress"})  # code with one of these goes on where an attribute is missing
_OWN = frozenset({"name", "overflow"})  # attributes of a Parameter, which recordings know of
_CACHES = frozenset({"__annotations__", "__annotations_cache__", "__annotate_func__"})  # what Python adds to a class when it is asked


def plain(x: Any) -> tuple | None:
    """A plain value as data that is equal only to the same type and bits; None for an object, which is compared by identity."""
    t = type(x)
    if t in (bool, int, str, bytes, type(None), range, slice, type(...)):
        return (t, str(x) if t is slice else x)
    if t is float:
        return (t, struct.pack("d", x))
    if t is complex:
        return (t, struct.pack("2d", x.real, x.imag))
    if issubclass(t, np.generic):
        return (t, x.dtype.str, x.tobytes())
    return None


class Differs(Exception):
    """Raised by a walk that found something else than was expected, with its path."""


class Look(NamedTuple):
    """What has to be the same object in each call: how is "item" (of a dict), "attribute", "element" (of a container), "variable" (of a
    context), or "length" (of a container, whose one value is a number)."""

    how: str
    holder: Any
    names: Sequence[str]  # of elements: none
    values: Sequence[Any]  # `ABSENT` for what is not there


ABSENT = object()


class Code:
    """The code whose reads count: of what ran, or, where that is not known, of every function that is reached.

    Attributes:
        globals: (module's name, its dict, names read) of each module with code that ran.
        names: of attributes that are read. asked: of those, names that an object may lack.
        pieces: of names that are computed. An attribute whose name has one of them may be read, any one for the piece "".
        modules: names of modules that are imported while code runs.
    """

    def __init__(self, executed: Iterable[tuple[types.CodeType, dict]] | None):
        self.executed = None if executed is None else {id(code): code for code, _ in executed}
        self.names: set[str] = set()
        self.asked: set[str] = set()
        self.pieces: set[str] = set()
        self.modules: set[str] = set()
        self.globals: dict[int, tuple[str, dict, set[str]]] = {}
        self._entered: set[int] = set()
        for code, scope in executed or ():
            if self.executed is not None and (source := source_of(code)) is not None:
                self.executed[id(source)] = source
            self.enter(code, scope)

    def ran(self, code: types.CodeType) -> bool:
        """Whether the reads of a code object count."""
        return is_users(code.co_filename) if self.executed is None else id(code) in self.executed

    def reads(self, name: str) -> bool:
        """Whether an attribute of this name may be read."""
        return name in self.names or any(p in name for p in self.pieces) and not name.startswith("__")

    def adopt(self, f: Any) -> None:
        """The reads of a function count although it did not run: a cache had its result."""
        if is_a(f, types.FunctionType) and self.executed is not None and is_users(f.__code__.co_filename):
            self.executed[id(f.__code__)] = f.__code__
            self.enter(f.__code__, f.__globals__)

    @property
    def size(self) -> int:
        """It grows when something is added."""
        return len(self._entered) + len(self.pieces)

    def enter(self, code: types.CodeType, scope: dict) -> None:
        """Adds what a code object reads."""
        if id(code) in self._entered:
            return
        self._entered.add(id(code))
        found: Facts = facts(code)
        used = {u.name for u in found.uses}
        attributes = {u.name for u in found.uses if u.kind == "attribute"}
        self.names |= attributes | found.strings
        self.pieces |= found.pieces
        if not _ASKING.isdisjoint(used):
            self.asked |= found.strings
        if not _LACKING.isdisjoint(used):
            self.asked |= attributes
        package = scope.get("__package__") or scope.get("__name__", "").rpartition(".")[0]
        for u in found.uses:
            if u.kind == "module" and (package or not u.name.startswith(".")):
                self.modules.add(importlib.util.resolve_name(u.name, package))
        _, _, read = self.globals.setdefault(id(scope), (scope.get("__name__", "?"), scope, set()))
        read.update(u.name for u in found.uses if u.kind == "global")
        if "globals" in used:
            read.update(n for n in scope if n in found.strings or "" in found.pieces)
        if self.executed is None:
            for inner in code.co_consts:
                if is_a(inner, types.CodeType):
                    self.enter(inner, scope)


class Reach:
    """One walk.

    Args:
        code: the code whose reads count. captured: tensors that are states of the recording.
        numbers: ids of optimizers' groups whose learning rate was read as a number. skip: paths that are left out.
        expected: (position, path, value) -> whether the fact at this position is as expected. If not, the walk ends with
            `Differs`.

    Attributes:
        facts: (path, value) with a plain value as `plain` gives it, or an object.
        values: what was found, by (id of the holder, name). elements: those of each container, by its id.
        looks: what has to be read again before each call, see `Look`.
        opaque: (path, name, what) of values whose contents are not read. sources: random generators.
    """

    def __init__(
        self, code: Code, captured: Sequence[Tensor | None] = (), numbers: Set[int] = frozenset(), skip: Set[str] = frozenset(),
        expected: Callable[[int, str, Any], bool] | None = None,
    ):  # fmt: skip
        self.code, self.captured, self.numbers, self.skip, self.expected = code, captured, numbers, skip, expected
        self._states = {id(t) for t in captured}
        self.facts: list[tuple[str, Any]] = []
        self.paths: dict[tuple[int, str], str] = {}
        self.values: dict[tuple[int, str], Any] = {}
        self.elements: dict[int, tuple[str, str, list, list]] = {}
        self.looks: list[Look] = []
        self.opaque: list[tuple[str, str, str]] = []
        self.sources: list[tuple[str, Any]] = []
        self._seen: dict[int, Any] = {}
        self._taken: dict[str, int] = {}
        self._of_classes: set[tuple[int, str]] = set()
        self._classes: set[int] = set()
        self._deep = 0

    def start(self, function: Any, objects: Iterable[Any]) -> Reach:
        """Walks from a traced function and the objects it was called with."""
        self.visit(getattr(function, "__name__", "self"), "", function)
        for i, x in enumerate(objects):
            self.visit(f"argument {type(x).__name__} {i}", "", x)
        done: set[tuple[int, str]] = set()
        while True:  # until functions that were found bring no more names
            before = len(done)
            for module, scope, names in list(self.code.globals.values()):
                new = sorted(n for n in names if (id(scope), n) not in done)
                done.update((id(scope), n) for n in new)
                self._items(module, scope, new)
            if len(done) == before:
                return self._imported()

    def _imported(self) -> Reach:
        """Goes on to modules that code that ran imports."""
        names = sorted(n for n in self.code.modules if is_users_module(sys.modules.get(n)))
        self._items("sys.modules", sys.modules, names)
        return self

    # -- facts -----------------------------------------------------------------------------------------------------------
    def _items(self, path: str, held: Mapping[str, Any], names: Sequence[str], holder: Any = None) -> None:
        """Names of a module or of a class."""
        names = [n for n in names if f"{path}.{n}" not in self.skip]
        values = [held.get(n, ABSENT) for n in names]
        if names:
            self.looks.append(Look("item", held, names, values))
        for n, v in zip(names, values):
            self.fact(f"{path}.{n}", held if holder is None else holder, n, None if v is ABSENT else v)

    def _note(self, path: str, x: Any) -> None:
        if self.expected is not None and not self.expected(len(self.facts), path, x):
            raise Differs(path)
        self.facts.append((path, x))

    def fact(self, path: str, holder: Any, name: str, x: Any) -> None:
        """A value that was found under a name."""
        self.paths[id(holder), name] = path
        self.values[id(holder), name] = x
        self.visit(path, name, x)

    def _unique(self, path: str, holder: Any, more: str) -> str:
        """A path that no other variable has."""
        return path if self._taken.setdefault(path, id(holder)) == id(holder) else f"{path} of {more}"

    def visit(self, path: str, name: str, x: Any) -> None:
        """Notes a value, and goes on to what is reached through it."""
        if path in self.skip:
            return
        value = plain(x)
        if value is not None:
            self._note(path, value)
            return
        structural = is_a(x, CONTAINERS) and not is_a(x, Watched)
        self._note(path, type(x) if structural else x)
        if id(x) in self._seen or self._deep > DEEPEST:
            return
        self._seen[id(x)] = x
        self._deep += 1
        try:
            self._inside(path, name, x)
        finally:
            self._deep -= 1

    def _inside(self, path: str, name: str, x: Any) -> None:
        t = type(x)
        if not about(t).special:  # most objects
            self._other(path, name, x)
        elif is_a(x, Tensor):
            self._tensor(path, x)
        elif is_a(x, CONTAINERS):
            self._container(path, name, x)
        elif is_a(x, Watched):
            self._watched(path, x)
        elif is_a(x, types.FunctionType):
            self._function(path, x)
        elif is_a(x, types.MethodType):
            self.visit(path, name, x.__func__)
            self.visit(path.rpartition(".")[0] or "self", name, x.__self__)
        elif is_a(x, functools.partial):
            for part in ("func", "args", "keywords"):
                self.visit(f"{path}.{part}", name, getattr(x, part))
        elif is_a(x, functools._lru_cache_wrapper):
            self.code.adopt(x.__wrapped__)
            self.visit(f"{path}.__wrapped__", name, x.__wrapped__)
        elif is_a(x, (types.BuiltinMethodType, types.MethodWrapperType)):
            if not is_a(x.__self__, types.ModuleType):
                self.visit(f"{path}.__self__", name, x.__self__)
        elif is_a(x, (operator.attrgetter, operator.methodcaller)):
            self.code.pieces.add("")
        elif is_a(x, VIEWS):
            self.visit(f"{path}.mapping", name, x.mapping)
        elif is_a(x, contextvars.ContextVar):
            self.looks.append(Look("variable", x, (), (v := x.get(ABSENT),)))
            self.fact(f"{path}.get()", x, "", None if v is ABSENT else v)
        elif is_a(x, GradManager):
            self._manager(path, x)
        elif is_a(x, type):
            self._class(path, x)
            self._class(path, type(x))
        elif is_a(x, types.ModuleType):
            self._module(path, x)
        elif is_a(x, np.ndarray):
            if _can_change(x):
                self.opaque.append((path, name, f"NumPy array of shape {x.shape}"))
        elif is_a(x, (np.random.Generator, np.random.RandomState, np.random.BitGenerator, random.Random)):
            self.sources.append((name or path, x))
        elif is_a(x, Iterator) and any("next" in names for _, _, names in self.code.globals.values()):
            self.opaque.append((path, name, f"{t.__name__}, an iterator"))
        elif is_a(x, weakref.ref):
            self.opaque.append((path, name, "weak reference"))
        elif not is_a(x, (types.CodeType, types.FrameType, np.dtype)):
            self._other(path, name, x)

    # -- kinds of objects ------------------------------------------------------------------------------------------------
    def _tensor(self, path: str, x: Tensor) -> None:
        held = getattr(x, "__dict__", None)
        names = sorted(n for n in held if self.code.reads(n) and n not in _OWN) if held else []
        if names:
            self._attributes(path, x, names, held)

    def _container(self, path: str, name: str, x: Any) -> None:
        told = is_a(x, Watched)
        self._note(f"len({path})", (int, len(x)))
        if len(x) > LARGEST and not told:
            self.opaque.append((path, name, f"{type(x).__name__} of {len(x)} elements"))
            return
        if not told and not is_a(x, (tuple, frozenset)):
            keys, values = (list(x), list(x.values())) if is_a(x, Mapping) else ([], list(x))
            self.elements[id(x)] = path, name, keys, values
            self.looks.append(Look("element", x, (), keys or values))
            if keys:
                self.looks.append(Look("element", x.values(), (), values))
        if is_a(x, Mapping):
            left_out = x.in_tensors if is_a(x, Watched) and id(x) not in self.numbers else ()
            for i, k in enumerate(list(x)):
                if k not in left_out:
                    self.visit(f"{path}: key {i}", name, k)
                    self.visit(f"{path}[{_key(k)}]", name, x[k])
        else:
            for i, e in enumerate(_ordered(x) if is_a(x, (set, frozenset)) else list(x)):
                self.visit(f"{path}[{i}]", name, e)
        if told:
            self._watched(path, x)
        elif type(x) not in CONTAINERS:
            self._object(path, x)

    def _watched(self, path: str, x: Watched) -> None:
        """A module, an optimizer or what belongs to one. It tells of its changes, so there is nothing to look at again."""
        held = vars(x)
        self._note(f"type of {path}", type(x))
        whole, own = is_a(x, CONTAINERS), read_by_tengen(type(x).__mro__)
        for n in sorted(held.keys() - x.unread):
            v = held[n]
            if whole or n in own or self.code.reads(n) or self._has_parts(v):
                self.fact(f"{path}.{n}", x, n, v)
        for n, shared in type(x)._read_by_all.items():
            if shared and id(shared) not in self._seen:
                self.visit(f"{n} of all objects", n, shared)
        self._class(path, type(x))

    def _has_parts(self, v: Any) -> bool:
        """Whether an attribute of a module is a part of it whatever its name is: a module, a parameter, a state."""
        if is_a(v, Tensor):
            return hasattr(v, "__dict__") or id(v) in self._states
        if is_a(v, (list, tuple)):
            return any(map(self._has_parts, v))
        if is_a(v, dict):
            return any(map(self._has_parts, v.values()))
        return is_a(v, Watched)

    def _manager(self, path: str, x: GradManager) -> None:
        """Which of the recording's tensors it is attached to. It tells of its changes."""
        calls = [None if t is None else x.callbacks_of(t) for t in self.captured]
        self._note(f"{path}: attached tensors", (tuple, tuple(c is not None for c in calls)))
        for c in filter(None, calls):
            self.visit(f"{path}: callbacks", "", c)

    def _function(self, path: str, f: types.FunctionType) -> None:
        for inner in ("__wrapped__", "registry"):  # the second: of `functools.singledispatch`
            if (v := vars(f).get(inner)) is not None:
                self.visit(f"{path}.{inner}", "", v)
        counts = self.code.ran(f.__code__)
        if counts:
            self._note(f"code of {path}", f.__code__)
            self.looks.append(Look("attribute", f, ("__code__", "__defaults__"), (f.__code__, f.__defaults__)))
            if self.code.executed is None:
                self.code.enter(f.__code__, f.__globals__)
            if f.__defaults__:
                names = f.__code__.co_varnames[: f.__code__.co_argcount][-len(f.__defaults__) :]
                for n, v in zip(names, f.__defaults__):
                    self.fact(f"{path}({n}=)", f, n, v)
            if f.__kwdefaults__:
                self.looks.append(Look("attribute", f, ("__kwdefaults__",), (f.__kwdefaults__,)))
                self.visit(f"{path}(keywords)", "", f.__kwdefaults__)
            held = vars(f)
            self._attributes(path, f, sorted(filter(self.code.reads, held)), held)
        for n, cell in zip(f.__code__.co_freevars, f.__closure__ or ()):
            try:
                v = cell.cell_contents
            except ValueError:  # not yet assigned
                continue
            if counts:
                at = self._unique(n, cell, f.__qualname__)
                if at not in self.skip:
                    self.looks.append(Look("attribute", cell, ("cell_contents",), (v,)))
                    self.fact(at, cell, n, v)
            elif is_a(v, (types.FunctionType, types.MethodType, functools.partial, Watched)) or has_settings(type(v)):
                self.visit(f"{path}.{n}", n, v)

    def _class(self, path: str, c: type) -> None:
        """What code that ran may read of a class, and of those it derives from: where they are users'."""
        if not about(c).of_users:
            return
        self._names_of_class(c)
        held_names = {n for b in c.__mro__ if is_users_class(b) for n, v in vars(b).items() if self.code.reads(n) or self._method_ran(v)}
        wanted = self.code.asked | held_names
        for base in c.__mro__:
            if not is_users_class(base):
                continue
            held = vars(base)
            names = sorted(n for n in wanted if (id(base), n) not in self._of_classes)  # also those that it lacks: it could cover its bases'
            self._of_classes.update((id(base), n) for n in names)
            self._seen[id(base)] = base
            self._items(base.__qualname__, held, names, base)
            for n in names:
                v = held.get(n)
                for f in (getattr(v, "__func__", None), getattr(v, "fget", None), getattr(v, "func", None)):
                    if is_a(f, types.FunctionType):
                        self.visit(f"{base.__qualname__}.{n}", n, f)

    def _names_of_class(self, c: type) -> None:
        """Which classes one derives from, and which of their names can decide what is found in it: those that code that ran reads, those that
        a library's class among them has too, and special methods, which Python looks up by itself."""
        if (id(c), "") in self._of_classes:
            return
        self._of_classes.add((id(c), ""))
        self._seen[id(c)] = c
        mro = c.__mro__
        self.looks.append(Look("attribute", c, ("__mro__",), (mro,)))
        for i, base in enumerate(mro):
            self._note(f"{c.__qualname__}.__mro__[{i}]", base)
        covered = {n for b in mro if not is_users_class(b) for n in vars(b)}
        for base in filter(is_users_class, mro):
            held = vars(base)
            names = sorted(n for n in held if n in covered or n.startswith("__") and n not in _CACHES or self.code.reads(n))
            self._note(f"names of {base.__qualname__}", (tuple, tuple(names)))
            if id(base) not in self._classes:
                self._classes.add(id(base))
                self._seen[id(base)] = base
                self.looks.append(Look("length", held, (), (len(held),)))

    def _method_ran(self, v: Any) -> bool:
        f = getattr(v, "__func__", None) or getattr(v, "fget", None) or v
        return is_a(f, types.FunctionType) and self.code.ran(f.__code__)

    def _module(self, path: str, m: types.ModuleType) -> None:
        if m is os and not {"environ", "getenv"}.isdisjoint(self.code.names):
            self.visit("os.environ", "environ", os.environ)
        if is_users_module(m):
            held = vars(m)
            self._items(m.__name__, held, sorted(filter(self.code.reads, held)))

    def _other(self, path: str, name: str, x: Any) -> None:
        if _is_memory(x):
            self.opaque.append((path, name, f"{type(x).__name__}, which others can write into"))
        else:
            self._object(path, x)

    def _object(self, path: str, x: Any) -> None:
        """Any other object: the attributes that code that ran mentions."""
        t = type(x)
        self._class(path, t)
        if is_users_class(t):
            self._note(f"type of {path}", t)
            self.looks.append(Look("attribute", x, ("__class__",), (t,)))
        try:
            held = x.__dict__ if is_a(x, threading.local) else object.__getattribute__(x, "__dict__")
        except AttributeError:
            held = types.MappingProxyType({})
        if about(t).closed:
            return
        names = set(self._slots(t))
        if has_settings(t):
            names = {n for n in held if not n.startswith("_")}
        elif hasattr(t, "__getattr__") or is_a(x, (Mapping, Sequence, Set)):
            names |= held.keys()
        else:
            names = {n for n in names | held.keys() if self.code.reads(n)}
        if is_a(held, dict) and not has_settings(t):
            missing = (self.code.asked | (self.code.names & class_attributes(t))) - names
            self.looks.append(Look("item", held, sorted(missing), [ABSENT] * len(missing)))
            if self.code.pieces:
                self._note(f"names of {path}", (tuple, tuple(sorted(names))))
                self.looks.append(Look("element", held, (), list(held)))
        self._attributes(path, x, sorted(map(str, names)), held)

    @staticmethod
    def _slots(t: type) -> Iterator[str]:
        for c in t.__mro__:
            for n, v in vars(c).items():
                if is_a(v, types.MemberDescriptorType):
                    yield n

    def _attributes(self, path: str, x: Any, names: Sequence[str], held: Mapping[str, Any]) -> None:
        found: dict[str, Any] = {}
        for n in names:
            if f"{path}.{n}" in self.skip:
                continue
            if n in held:
                v = held[n]
            else:
                try:
                    v = object.__getattribute__(x, n)  # a slot
                except AttributeError:
                    continue
            static = getattr(type(x), n, None)
            if n not in held or not hasattr(type(static), "__set__"):
                found[n] = v
            self.fact(f"{path}.{n}", x, n, v)
        if found:
            self.looks.append(Look("attribute", x, list(found), list(found.values())))


def _is_memory(x: Any) -> bool:
    """Whether an object is memory that can be written, as a bytearray is, and one of `ctypes`."""
    try:
        return not memoryview(x).readonly
    except (TypeError, ValueError, BufferError):
        return False


def _key(k: Any) -> str:
    return repr(k) if is_a(k, (str, int, float, bytes)) else type(k).__name__


def _ordered(x: Iterable[Any]) -> list:
    """The elements of a set in an order of their own: an equal set may have another."""
    return sorted(x, key=lambda e: (type(e).__name__, str(e)) if plain(e) is not None else ("", str(id(e))))


def _can_change(a: Any) -> bool:
    """Whether somebody can write into an array: it, or what it is a view of, is writeable."""
    while is_a(a, np.ndarray):
        if a.flags.writeable:
            return True
        a = a.base
    return a is not None and not is_a(a, (bytes, BufferMemory))
