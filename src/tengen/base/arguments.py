"""Constructors that refuse arguments of another kind than their annotations name: a text for a bool or a number goes unnoticed in Python.

In: a constructor whose annotations are texts. Out: the same, with a look at what is annotated bool, int or float, or one of these or None.
"""

from __future__ import annotations

import functools
import math
import numbers
import operator
from collections.abc import Callable, Collection, Mapping
from itertools import chain
from typing import Any

import numpy as np


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


_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "bool": (_is_flag, "True or False"), "float": (_is_number, "a number"), "int": (_is_whole, "a whole number"),
}  # fmt: skip
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


class Checked:
    """The base of classes that look at numbers themselves, and whose bools are `checked`; constructors of users' subclasses are not."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__module__.startswith("tengen.") and "__init__" in cls.__dict__:
            cls.__init__ = checked(cls.__init__, ("bool", "bool | None"))  # type: ignore[method-assign]  # mypy takes it for a method
