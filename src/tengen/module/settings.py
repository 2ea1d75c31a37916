"""`Configured`: a module whose constructor's arguments are attributes that cannot be changed in vain."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

from tengen.module.module import Module
from tengen.tensor import Tensor


def also(**names: str | None) -> Callable:
    """Lets a constructor take arguments under further names, PyTorch's: ``also(dim="axis", inplace=None)``. None: accepted, for it changes
    no number here (a module never writes its input).

    Errors: TypeError where an argument is given under both names.
    """

    def wrapped(init: Callable) -> Callable:
        @functools.wraps(init)
        def construct(self: Module, *args: Any, **kwargs: Any) -> None:
            for other in names.keys() & kwargs.keys():
                own, value = names[other], kwargs.pop(other)
                if own is not None and own in kwargs:
                    raise TypeError(f"{type(self).__name__}: {other} and {own} are two names of one argument")
                if own is not None:
                    kwargs[own] = value
            init(self, *args, **kwargs)

        return construct

    return wrapped


class InPlace(Module):
    """The base of modules that take PyTorch's `inplace`, by position too: a bool is no name."""

    @also(inplace=None)
    def __init__(self, name: str | bool | None = None):
        super().__init__(None if isinstance(name, bool) else name)


class Configured(Module):
    """A module that says which of its attributes may be set after it was built. Those that `forward` reads may; for values that
    need a look, `_checked` has a function (module, value) -> the value to keep. Those in `_fixed` decided what was built: setting
    them to something else is an error, because nothing would change.
    """

    has_parameters = True
    _fixed: tuple[str, ...] = ()
    _checked: dict[str, Callable[[Any, Any], Any]] = {}

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._checked:
            value = self._checked[name](self, value)
        if name in self._fixed and name in self.__dict__ and self.__dict__[name] != value:
            kind = type(self).__name__
            raise AttributeError(
                f"{kind}.{name} is {self.__dict__[name]!r} and cannot be set to {value!r}: it decided what was built; help: build "
                f"another {kind}"
            )
        super().__setattr__(name, value)


def tensor_or_none(name: str) -> Callable[[Any, Any], Any]:
    """A check for a parameter that a module may lack: True and False are words of its constructor alone."""

    def check(m: Module, value: Any) -> Any:
        if value is not None and not isinstance(value, Tensor):
            what = f"a {type(value).__name__}" + (f" of shape {value.shape}" if hasattr(value, "shape") else "")
            help = f"help: m.{name}[...] = values, or m.{name} = Parameter(values)"
            raise TypeError(f"{type(m).__name__}.{name} must be a Parameter, a Tensor or None, got {what}; {help}")
        return value

    return check


def counts(*names: str, least: int = 1) -> dict[str, Callable[[Any, Any], Any]]:
    """Checks for numbers of features, channels, groups: whole, and at least 1, or another number."""

    def check(name: str, m: Module, value: Any) -> int:
        try:
            n = operator.index(value)
        except TypeError:
            raise TypeError(f"{type(m).__name__}: {name}={value!r} must be a whole number") from None
        if n < least:
            raise ValueError(f"{type(m).__name__}: {name}={n} must be at least {least}")
        return n

    return {name: functools.partial(check, name) for name in names}


def one_of(name: str, *known: str) -> Callable[[Any, Any], Any]:
    """A check for a word."""

    def check(m: Module, value: Any) -> Any:
        if value not in known:
            raise ValueError(f"{type(m).__name__}: {name}={value!r} must be {' or '.join(map(repr, known))}")
        return value

    return check


def needs(name: str, tensor: str) -> Callable[[Any, Any], Any]:
    """A check for a switch that cannot be turned on where the tensors for it were not built."""

    def check(m: Module, value: Any) -> Any:
        if value and getattr(m, tensor) is None:
            raise AttributeError(f"{type(m).__name__}.{name} cannot be turned on: it was built without {tensor}; help: build another one")
        return value

    return check


COMPUTE_MODE = {"compute_mode": one_of("compute_mode", "default", "float32", "DEFAULT", "FLOAT32")}
PARAMETERS = {"weight": tensor_or_none("weight"), "bias": tensor_or_none("bias")}
