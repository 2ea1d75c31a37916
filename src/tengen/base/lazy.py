"""Packages whose modules are imported when they are first named, so that a process starts with few of them; and names that are not
there, which a message answers with the nearest one."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType


class PickledByName(ModuleType):
    """A module of a class of its own, which may stand in a function that goes to another process: of modules cloudpickle pickles plain ones
    alone by their names, as this one is."""

    def __reduce__(self) -> tuple:
        return importlib.import_module, (self.__name__,)


class NoSuchName(AttributeError):
    """A name that an object or a module does not have. What is near is looked for when somebody reads the message: `hasattr` and
    `getattr` with a default, which throw it away, take no time for it."""

    def __init__(self, module: str, name: str, known: Callable[[], Iterable[str]]):
        super().__init__(f"module {module!r} has no attribute {name!r}")
        self._missing = module, name, known
        self._text: str | None = None

    def __str__(self) -> str:
        if self._text is None:
            from tengen.base.other_names import NAMES

            module, name, known = self._missing
            others = NAMES.get(module, {})
            place = None if name in others or name in known() else _same_name(module, name)
            self._text = f"{self.args[0]}" + (f"; help: here it is {place}" if place else nearest(name, known(), others))
        return self._text

    def __reduce__(self):
        return AttributeError, (str(self),)


_HOMES = ("functional", "functional.loss", "functional.vision", "module", "module.init", "optimizer", "data", "random", "autodiff", "utils")


def _same_name(module: str, name: str) -> str | None:
    """Another of Tengen's modules that has a name; None where none has."""
    for home in _HOMES:
        full = f"tengen.{home}"
        if full != module and not name.startswith("_"):
            found = importlib.import_module(full)
            if name in getattr(found, "__all__", ()):
                return f"{full}.{name}"
    return None


def nearest(name: str, known: Iterable[str], others: Mapping[str, str]) -> str:
    """``; help: ...`` for a name that is not there: what `others` says of it, as of what another library calls it, or those of the known
    names that are written most alike; "" where nothing is near.

    >>> nearest("sofmax", ["softmax", "softplus", "exp"], {}), nearest("cat", ["concat"], {"cat": "concat"}), nearest("zzz", ["exp"], {})
    ('; help: is it softmax?', '; help: here it is concat', '')
    """
    import difflib  # here, because it is slow to import

    if name in others:
        return f"; help: here it is {others[name]}"
    alike = lambda k: k[:1].isupper() == name[:1].isupper()  # of two names that differ in case alone the one that begins as this
    lower = {k.lower(): k for k in sorted(known, key=alike) if not k.startswith("_")}
    near = [lower[n] for n in difflib.get_close_matches(name.lower().replace("_", ""), lower, 2, 0.75)]
    near += [lower[n] for n in difflib.get_close_matches(name.lower(), lower, 2, 0.7) if lower[n] not in near]
    return f"; help: is it {' or '.join(near[:2])}?" if near else ""


class Absent:
    """A finder of modules, the last that is asked: an import of one that is not there says what stands for it, where that is known.

    Args: package: inside of which it looks.
    """

    def __init__(self, package: str):
        self.package = package

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """None. Errors: ModuleNotFoundError for a module that another name stands for"""
        home, _, last = name.rpartition(".")
        if f"{home}.".startswith(f"{self.package}."):
            from tengen.base.other_names import NAMES

            if last in NAMES.get(home, {}):
                raise ModuleNotFoundError(f"No module named {name!r}; help: here it is {NAMES[home][last]}", name=name)


def modules_of(package: str) -> Callable[[str], ModuleType]:
    """A ``__getattr__`` for the package of this name: its modules as attributes, each imported when it is first asked for."""

    def find(name: str) -> ModuleType:
        if name.startswith("_"):  # what others ask of every module
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            return importlib.import_module(f"{package}.{name}")
        except ModuleNotFoundError as e:
            if e.name != f"{package}.{name}":  # the module is there, and what it imports is not
                raise
        raise NoSuchName(package, name, lambda: dir(sys.modules[package]))

    return find


def names_of(module: str, elsewhere: Mapping[str, str]) -> Callable[[str], object]:
    """A ``__getattr__`` for a module whose names stand in other modules too: {module: names}; ``here=there`` is a name that is
    another one there. Each is imported when it is first asked for; so are the modules of a package."""
    both = [(home, *name.split("=")) for home, names in elsewhere.items() for name in names.split()]
    homes = {here: (home, there[-1] if there else here) for home, here, *there in both}

    def find(name: str) -> object:
        if name in homes:
            home, there = homes[name]
            return getattr(importlib.import_module(home), there)
        if "__path__" in vars(sys.modules[module]):
            return modules_of(module)(name)
        if name.startswith("_"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        raise NoSuchName(module, name, lambda: dir(sys.modules[module]))

    return find


COMPUTE_NOTHING = ("run", "completion", "--version", "--help", "-h")  # what the command `tengen` begins with where it needs no tensors


def computes_nothing() -> bool:
    """Whether this process is the command `tengen` (or ``python -m tengen``) with one of the words above behind it: `tengen run` starts other
    processes, and they import the rest. It is asked while `tengen` is being imported, when `sys.argv` of ``python -m`` still begins with
    "-m"."""
    if not sys.argv[1:] or sys.argv[1] not in COMPUTE_NOTHING:
        return False
    if sys.argv[0] == "-m":
        n = len(sys.argv) - 1
        return sys.orig_argv[-n - 2 : -n] == ["-m", "tengen"]
    return sys.argv[0] == os.path.join(os.path.dirname(sys.executable), "tengen")
