"""Functions and constructors that refuse arguments of another kind than their annotations name: a text for a bool or a number goes
unnoticed in Python.

In: a function whose annotations are texts. Out: the same, with a look at what is annotated bool, int or float, or one of these or None.
Functions that work on tensors get the look at their bools from `ops.calls.with_line`; the others from here.
"""

from __future__ import annotations

import functools
import math
import numbers
import operator
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import chain
from types import FunctionType
from typing import Any

import numpy as np

from tengen.base.errors import ArgumentError


def _is_flag(value: Any) -> bool:
    return isinstance(value, (bool, np.bool_)) or (type(value) is int and value in (0, 1))


def _is_number(value: Any) -> bool:
    return isinstance(value, (numbers.Real, np.number)) or getattr(value, "ndim", None) == 0


def _is_whole(value: Any) -> bool:
    try:
        operator.index(value)
    except TypeError:
        return False
    return True


def whole_number(owner: str, name: str, value: Any, least: int | None = None) -> int:
    """A number of things, as an int; NumPy's integers and tensors of one are taken.

    Errors: ArgumentError for what is no whole number, True and False among it, and for one that is less than `least`

    >>> whole_number("DataLoader", "batch_size", np.int32(4), 1)
    4
    """
    try:
        n = operator.index(value)
    except TypeError:
        n = None
    if n is None or isinstance(value, (bool, np.bool_)):
        raise ArgumentError(f"{owner}: {name} must be a whole number, got {value!r}")
    if least is not None and n < least:
        raise ArgumentError(f"{owner}: {name} must be at least {least}, got {value}")
    return n


_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "bool": (_is_flag, "True or False"), "float": (_is_number, "a number"), "int": (_is_whole, "a whole number"),
}  # fmt: skip
FLAGS = ("bool", "bool | None")
_ALLOWED = {f"{kind}{none}": (*_KINDS[kind], bool(none)) for kind in _KINDS for none in ("", " | None")}


def parameters(function: Callable) -> tuple[tuple[str, ...], Mapping[str, Any]]:
    """The names of a method's parameters by position, without self, and the annotations of all."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function.__code__.co_varnames[1 : function.__code__.co_argcount], function.__annotations__


def _check(owner: str, name: str, value: Any, annotation: str) -> None:
    fits, what, optional = _ALLOWED[annotation]
    if optional and value is None:
        return
    if not fits(value):
        raise TypeError(f"{owner}: {name}={value!r} must be {what}{' or None' if optional else ''}")
    if name in ("eps", "layer_norm_eps") and not 0 <= float(value) < math.inf:
        raise ValueError(f"{owner}: {name}={value!r} must be a finite number that is not negative")


def check_flag(owner: str, name: str, value: Any) -> None:
    """Refuses what is neither a bool, 0, 1 nor a scalar tensor: a text like "False" counts as true in Python.

    Errors: TypeError with the parameter and the value
    """
    if not _is_flag(value) and (isinstance(value, (float, np.floating)) or getattr(value, "ndim", None) != 0):
        raise TypeError(f"{owner}: {name}={value!r} must be True or False")


def checked(init: Callable, kinds: Collection[str] = _ALLOWED) -> Callable:
    """A constructor that looks at its arguments first: at those with one of these annotations.

    Errors: TypeError for an argument annotated bool, int or float that is something else (0 and 1 are bools too); ValueError for an eps
        that is negative, NaN or infinite
    """
    names, annotations = parameters(init)
    declared = {name: text for name, text in annotations.items() if text in kinds}
    if not declared:
        return init

    @functools.wraps(init)
    def construct(self: Any, *args: Any, **kwargs: Any) -> None:
        for name, value in chain(zip(names, args), kwargs.items()):
            if name in declared:
                _check(type(self).__name__, name, value, declared[name])
        init(self, *args, **kwargs)

    return construct


def flags(f: Callable) -> Callable:
    """A function that looks at its bools first. Errors: TypeError for a value that is no bool, 0 or 1, nor a scalar tensor."""
    first, annotations = f.__code__.co_varnames[: f.__code__.co_argcount], f.__annotations__
    declared = {name: text != "bool" for name, text in annotations.items() if text in FLAGS and name != "return"}
    if not declared:
        return f
    owner = f.__qualname__.removesuffix(".__init__")

    @functools.wraps(f)
    def call(*args: Any, **kwargs: Any) -> Any:
        for name, value in chain(zip(first, args), kwargs.items()):
            if value.__class__ is not bool and name in declared and not (value is None and declared[name]):
                check_flag(owner, name, value)
        return f(*args, **kwargs)

    return call


def flags_of_methods(cls: type) -> None:
    """`flags` for a class's public methods but `forward`, whose source traces read, and what is wrapped already."""
    for name, f in list(vars(cls).items()):
        public = name[0] != "_" or name in ("__init__", "__call__")
        if isinstance(f, FunctionType) and not hasattr(f, "__wrapped__") and public and name != "forward":
            setattr(cls, name, flags(f))


def flags_of_functions(scope: dict[str, Any], names: Iterable[str]) -> None:
    """`flags` for the functions among a module's names that are written in it, and for the methods of its classes."""
    for name in names:
        f = scope[name]
        if getattr(f, "__module__", None) != scope["__name__"]:
            continue
        if isinstance(f, FunctionType):
            scope[name] = flags(f)
        elif isinstance(f, type) and not issubclass(f, Checked):
            flags_of_methods(f)


class Checked:
    """The base of classes whose methods, constructors among them, look at their bools; users' subclasses are left alone."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__module__.startswith("tengen."):
            flags_of_methods(cls)
