"""Open axes of a traced function's arguments: how users name them, and what calls make of them.

In: the option ``dynamic_axes`` of `trace`, and the arguments of a call. Out: types with names in place of these extents, and
the numbers that the names have in the call.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tengen.base.errors import PACKAGE, ArgumentError, ShapeError, TengenError, TraceError, Undecided
from tengen.ir.types import TensorType
from tengen.loops.lang import var
from tengen.passes.extents import check_name

Axes = dict[int, str]


class DynamicAxes:
    """Which axes of which arguments stay open. given: as the user wrote it.

    Errors: ArgumentError or VerifyError for anything but axes and names, or for a parameter that the function does not have.
    """

    def __init__(self, given: Mapping[Any, Any], function: Callable):
        self.given = given
        by_axis = {k: v for k, v in given.items() if isinstance(k, int)}
        self.every = _axes("every argument", by_axis)
        self.of = {k: _axes(k, v) for k, v in given.items() if k not in by_axis}
        self.names = parameters_of(function)
        if self.every and self.of:
            raise ArgumentError(f"dynamic_axes={dict(given)}: either axes of every argument, or axes by the names of arguments")
        self.unknown = [k for k in self.of if self.names is not None and k not in self.names]  # of those that **kwargs takes
        if self.unknown and not takes_any_name(function):
            raise ArgumentError(f"dynamic_axes names {self.unknown[0]!r}, the function has the parameters {', '.join(self.names or ())}")

    def open(self, structure: Any, types: Sequence[TensorType]) -> tuple[list[TensorType], dict[str, int]]:
        """The types with names for open extents, and the number of each name.

        Errors: ShapeError for two numbers under one name, or an axis that an argument has not; ArgumentError for the name of an argument
            that the call does not have.
        """
        leaves = self._by_leaf(structure)
        if missing := [k for k in self.unknown if k not in (given := dict(leaves))]:
            raise ArgumentError(f"dynamic_axes names {missing[0]!r}, the call has the arguments {', '.join(given)}")
        extents: dict[str, int] = {}
        first: dict[str, int] = {}
        found: list[TensorType] = []
        for i, (t, (name, axes)) in enumerate(zip(types, leaves)):
            shape = list(t.shape)
            for axis, e in axes.items():
                if not -t.ndim <= axis < t.ndim:
                    if self.every and not t.ndim:
                        continue  # a number among the arguments
                    raise ShapeError(f"argument {name}: {t!r} has no axis {axis}, which dynamic_axes calls {e!r}")
                n = int(t.shape[axis])
                if extents.setdefault(e, n) != n:
                    raise ShapeError(
                        f"{e!r} is {extents[e]} in tensor {first[e]} of the arguments and {n} in tensor {i} ({name}); "
                        "help: what has one name in dynamic_axes is one number"
                    )
                first.setdefault(e, i)
                shape[axis] = var(e)
            found.append(TensorType(shape, t.dtype))
        return found, extents

    def _by_leaf(self, structure: Any) -> list[tuple[str, Axes]]:
        """(name of the parameter, open axes) for each tensor of a call, in order."""
        return [(name, self.every or self.of.get(name, {})) for name in parameter_of_each_tensor(structure, self.names or ())]


def _axes(name: str, axes: Any) -> Axes:
    if not isinstance(axes, Mapping) or not all(isinstance(a, int) and isinstance(e, str) for a, e in axes.items()):
        raise ArgumentError(
            f'dynamic_axes of {name}: {axes!r} is no table from axes to names, such as {{0: "batch"}}; help: axes of one argument stand '
            'under its name, {"x": {0: "batch"}}'
        )
    for e in axes.values():
        check_name(e)
    return dict(axes)


def parameters_of(function: Callable) -> tuple[str, ...] | None:
    """Names of the parameters, as far as they can be found."""
    try:
        return tuple(inspect.signature(getattr(function, "forward", function)).parameters)
    except (TypeError, ValueError):
        return None


def takes_any_name(function: Callable) -> bool:
    """Whether a function has a parameter such as **kwargs."""
    try:
        parameters = inspect.signature(getattr(function, "forward", function)).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(p.kind is p.VAR_KEYWORD for p in parameters)


def parameter_of_each(structure: Any, parameters: Sequence[str]) -> list[tuple[str, Any]]:
    """(name of the parameter, structure) for each argument of a call, whose structure `structure.flatten` gave."""
    args, kwargs = structure[1]
    last = len(parameters) - 1
    return [*((parameters[min(i, last)] if parameters else f"{i}", k) for i, k in enumerate(args[1])), *kwargs[1]]


def parameter_of_each_tensor(structure: Any, parameters: Sequence[str]) -> list[str]:
    """The name of the parameter that each tensor of a call came in, in order."""
    return [name for name, k in parameter_of_each(structure, parameters) for _ in range(tensors_in(k))]


def tensors_in(key: Any) -> int:
    """How many tensors a structure of `flatten` holds."""
    match key[0]:
        case "T": return 1  # fmt: skip
        case "N": return sum(map(tensors_in, key[2]))  # fmt: skip
        case "tuple" | "list": return sum(map(tensors_in, key[1]))  # fmt: skip
        case "D": return sum(tensors_in(v) for _, v in key[2])  # fmt: skip
        case "dict": return sum(tensors_in(v) for _, v in key[1])  # fmt: skip
    return 0


def undecided(name: str, e: Undecided, extents: Mapping[str, int]) -> TraceError:
    """The error of a recording that asked for the number of an open extent."""
    names = ", ".join(map(repr, extents))
    return TraceError(
        f"{_line_of(e)}{name} is recorded for every {names}: {e}; help: arithmetic with + - * // on extents, shapes made of them and "
        "tensors divided by them stay open, and comparisons choose among recordings; what needs the number itself is a program for each: "
        "leave the axis out of dynamic_axes for that"
    )


def reason(e: Exception) -> str:
    """Why a recording with open extents failed, with the user's line."""
    said = f"{e}" if isinstance(e, TengenError) else f"{type(e).__name__}: {e}"
    line = _line_of(e)
    return f"{'' if line and line.rstrip(': ') in said else line}{said}"


def _line_of(e: Exception) -> str:
    """The user's line at which an error arose, before what is told of it."""
    lines = [f for f in traceback.extract_tb(e.__traceback__) if not f.filename.startswith(PACKAGE)]
    return f"{lines[-1].filename}:{lines[-1].lineno}: " if lines else ""
