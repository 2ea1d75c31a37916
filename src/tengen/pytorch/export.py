"""`torch.export`: a module as one program for example arguments, with extents that stay open, and files of it.

>>> from tengen.pytorch import nn, ones
>>> net = nn.Linear(2, 1)
>>> program = export(net, (ones(4, 2),), dynamic_shapes=({0: Dim("batch")},))
>>> [program.module()(ones(n, 2)).shape for n in (1, 7)]
[(1, 1), (7, 1)]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tengen.base.errors import ArgumentError
from tengen.base.files import File
from tengen.deploy import load_graph
from tengen.deploy.model import Model
from tengen.jit.trace import trace
from tengen.pytorch.exporting import (
    Axes,
    Exported,
    in_tuple,
    model_of,
    names_of_arguments,
    names_of_inputs,
    recorded,
    structure_of,
)
from tengen.tensor import Tensor


class Dim:
    """An extent that stays open, by its name: those of one name are equal. ``Dim.AUTO`` and ``Dim.DYNAMIC`` are extents of their own,
    ``Dim.STATIC`` and None are closed.

    Args: min, max: accepted; the program takes every number from 1 on for which its operations fit.
    """

    AUTO: Dim
    DYNAMIC: Dim
    STATIC: Dim

    def __init__(self, name: str, *, min: int | None = None, max: int | None = None):
        self.__name__, self.min, self.max = name, min, max

    def __repr__(self) -> str:
        return f"Dim({self.__name__!r})"


Dim.AUTO, Dim.DYNAMIC, Dim.STATIC = Dim("AUTO"), Dim("DYNAMIC"), Dim("STATIC")


def dims(*names: str, min: int | None = None, max: int | None = None) -> tuple[Dim, ...]:
    """A `Dim` for each name."""
    return tuple(Dim(name, min=min, max=max) for name in names)


def _open(parameter: str, axis: int, said: Any) -> str | None:
    """The name of an extent; None for one that is closed."""
    if said is None or said is Dim.STATIC or isinstance(said, int):
        return None
    if isinstance(said, Dim):
        return f"{parameter}_{axis}" if said in (Dim.AUTO, Dim.DYNAMIC) else said.__name__
    raise ArgumentError(f"dynamic_shapes: {said!r} for axis {axis} of {parameter!r}; help: a Dim, None, or a number")


def open_axes(dynamic_shapes: Any, names: Sequence[str]) -> Axes:
    """The extents that `dynamic_shapes` opens: for each argument, by name or by position, what is said of its axes, by number or in turn.

    Errors: ArgumentError for an argument that there is not and for what is no extent
    """
    by_name = dynamic_shapes if isinstance(dynamic_shapes, Mapping) else dict(zip(names, dynamic_shapes or ()))
    if odd := set(by_name) - set(names):
        raise ArgumentError(f"dynamic_shapes: there is no argument {min(odd)!r}; help: one of {', '.join(names)}")
    axes: Axes = {}
    for parameter, said in by_name.items():
        pairs = said.items() if isinstance(said, Mapping) else enumerate(said or ())
        if found := {axis: name for axis, extent in pairs if (name := _open(parameter, axis, extent)) is not None}:
            axes[parameter] = found
    return axes


class ExportedProgram:
    """A program with its weights, and the way to call it.

    Attributes: graph: what it computes (`tengen.Graph`'s text, printed).
    """

    def __init__(self, model: Model, structure: Any = None, traced: trace | None = None):
        self._model, self._structure, self._traced = model, structure, traced

    def module(self, check_guards: bool = True) -> Exported:
        """The program as a module."""
        return Exported(self._model, self._structure)

    @property
    def graph(self) -> Any:
        """The graph."""
        return self._model.graph

    graph_module = property(module)

    @property
    def state_dict(self) -> dict[str, Tensor]:
        """The weights by name."""
        return self.module().state_dict()

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """The weights with their names."""
        return iter(self.state_dict.items())

    def parameters(self) -> Iterator[Tensor]:
        """The weights."""
        return iter(self.state_dict.values())

    def run_decompositions(self, decomp_table: Any = None) -> ExportedProgram:
        """The program itself, whose operations are Tengen's."""
        return self

    def __repr__(self) -> str:
        return f"ExportedProgram of {self._model!r}"


def export(
    mod: Callable, args: Any, kwargs: Mapping[str, Any] | None = None, *, dynamic_shapes: Any = None, strict: bool = False, **how: Any
) -> ExportedProgram:
    """A module, in the mode in which it is, or a function as one program.

    Args: args, kwargs: example arguments. dynamic_shapes: which extents are open: for each argument, in a dict by name or a tuple by
        position, ``{axis: Dim}`` or a tuple with a Dim or None for each axis. strict and others of PyTorch's: accepted.
    Errors: TraceError where the module decides by values, or by the number of an open extent; ArgumentError for wrong `dynamic_shapes`
    """
    given, named = in_tuple(args), dict(kwargs or {})
    axes: Axes = {}
    if dynamic_shapes is not None:
        axes = open_axes(dynamic_shapes, names_of_arguments(mod, given, named))
    traced = recorded(mod, given, named, axes)
    return ExportedProgram(model_of(traced, names_of_inputs(mod, given, named)), structure_of(traced), traced)


def save(ep: ExportedProgram, f: File, **how: Any) -> None:
    """Writes a program to a path or an open file, as `tengen.trace.dump` does. Errors: ArgumentError for one that came from a file"""
    if ep._traced is None:
        raise ArgumentError("export.save: the program came from a file; help: copy that file")
    ep._traced.dump(f, arg_names=[p.name for p in ep._model.inputs])


def load(f: File, **how: Any) -> ExportedProgram:
    """What `save` has written; several results are a tuple. Errors: FileFormatError for another file"""
    return ExportedProgram(load_graph(f))


__all__ = ["Dim", "ExportedProgram", "dims", "export", "load", "open_axes", "save"]
