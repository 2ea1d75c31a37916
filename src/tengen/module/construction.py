"""What holds for all layers: constructors that check their arguments and take PyTorch's `device=` and `dtype=`, and names of a first input."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tengen.base.arguments import checked, parameters
from tengen.base.dtype import dtype as dtype_of
from tengen.base.errors import DTypeError

_INPUT = ("inp", "inputs", "input", "x")  # what MegEngine's and PyTorch's layers call their first input


def constructor(init: Callable) -> Callable:
    """A layer's constructor that checks its arguments, and where the class `has_parameters` takes `device` and `dtype` by name.

    Errors: those of `checked`; DTypeError for a dtype that is not of floating-point numbers, DeviceError for a device that is not here
    """
    build, annotations = checked(init), parameters(init)[1]

    @functools.wraps(init)
    def construct(self: Any, *args: Any, **kwargs: Any) -> None:
        place = {
            name: kwargs.pop(name)
            for name in ("device", "dtype")
            if self.has_parameters and name in kwargs and name not in annotations
        }
        build(self, *args, **kwargs)
        if place:
            if place.get("dtype") is not None and not dtype_of(place["dtype"]).is_inexact:
                raise DTypeError(
                    f"{type(self).__name__}: dtype={place['dtype']!r} is not of floating-point numbers, and its parameters are"
                )
            self.to(**place)

    return construct


def first_by_name(m: Any, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """The inputs of a call without positional ones, whose first stands under one of `_INPUT` that is not the name `forward` has for it."""
    forward = type(m).forward
    if not forward.__module__.startswith("tengen.module."):
        return (), kwargs
    names, _ = parameters(forward)
    given = [name for name in _INPUT if name in kwargs]
    if not names or names[0] not in _INPUT or names[0] in kwargs or len(given) != 1 or given[0] in names:
        return (), kwargs
    rest = dict(kwargs)
    return (rest.pop(given[0]),), rest
