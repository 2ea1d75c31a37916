"""Programs of modules that leave them: recorded for example arguments, with some extents open, and called without the module's code.

In: a module or a function, examples, and which extents are open. Out: a `Model`; `Exported`, a module that runs one.
"""

from __future__ import annotations

import inspect
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tengen.base.errors import ArgumentError
from tengen.deploy import load_graph
from tengen.deploy.model import Model
from tengen.jit.trace import trace
from tengen.pytorch.nn.module import Module
from tengen.tensor import Tensor
from tengen.tensor.structure import flatten, unflatten

Axes = dict[str, dict[int, str]]  # parameter -> {axis: the name of its open extent}


class Exported(Module):
    """A program as a module: it takes what was recorded, and its weights are constants, which nobody trains.

    Args: model: the program. structure: that of its results (`tensor.structure`); None: a tensor, or a tuple of them.
    """

    def __init__(self, model: Model, structure: Any = None):
        super().__init__()
        self.model, self._structure = model, structure
        vars(self)["training"] = False

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        given: list[Tensor] = []
        flatten(args, given)
        found = self.model(*given, **kwargs)
        if self._structure is None:
            return found
        return unflatten(self._structure, list(found) if isinstance(found, tuple) else [found])

    def train(self, mode: bool = True, recursive: bool = True) -> Any:
        """Returns itself. Errors: ArgumentError for mode=True"""
        if mode:
            raise ArgumentError("an exported program runs as it was recorded and is not trained; help: train the module that it was made of")
        return self

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The weights by name, and the states."""
        return {name: Tensor(a) for name, a in self.model.weights.items()} | self.model.states

    def extra_repr(self) -> str:
        """What `repr` says: inputs and outputs."""
        return repr(self.model)


@contextmanager
def evaluating(module: Any, training: bool = False) -> Iterator[None]:
    """A module in this mode, and in its own afterwards."""
    modes = [(m, m.training) for m in module.modules()] if isinstance(module, Module) else []
    for m, _ in modes:
        m.training = training
    try:
        yield
    finally:
        for m, mode in modes:
            m.training = mode


def names_of_arguments(function: Callable, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[str]:
    """The names of the parameters that a call gives, in their order: of a module's forward, or of a function. Errors: ArgumentError for
    parameters without a name of their own"""
    signature = inspect.signature(function.forward if isinstance(function, Module) else function)
    names = list(signature.bind(*args, **kwargs).arguments)
    if any(signature.parameters[n].kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD) for n in names):
        called = getattr(function, "__name__", type(function).__name__)
        raise ArgumentError(f"the arguments of {called} are *args or **kwargs, and have no names of their own")
    return names


def names_of_inputs(function: Callable, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[str] | None:
    """The names of the parameters that take a tensor; None where one takes several tensors, or has no name of its own."""
    values = [*args, *kwargs.values()]
    try:
        names = names_of_arguments(function, args, kwargs)
    except ArgumentError:
        return None
    several = any(isinstance(v, (tuple, list, dict)) for v in values) or len(names) != len(values)
    by_name = dict(zip(names, args)) | dict(kwargs)
    return None if several else [n for n in names if isinstance(by_name[n], Tensor)]


def recorded(function: Callable, args: Sequence[Any], kwargs: Mapping[str, Any], axes: Axes) -> trace:
    """The function as a trace that has recorded these arguments as one program.

    Errors: TraceError where the function decides by values, and where it needs the number of an open extent
    """
    return trace(function, symbolic=True, dynamic_axes=axes or None).trace(*args, **kwargs)


def model_of(traced: trace, arg_names: Sequence[str] | None = None, output_names: Sequence[str] | None = None) -> Model:
    """The program that a trace has recorded last, with its weights."""
    file = io.BytesIO()
    traced.dump(file, arg_names=arg_names, output_names=output_names)
    file.seek(0)
    return load_graph(file)


def structure_of(traced: trace) -> Any:
    """The structure of the results of what a trace has recorded last."""
    return traced._now().result


def in_tuple(args: Any) -> tuple:
    """Example arguments as a tuple."""
    return tuple(args) if isinstance(args, (tuple, list)) else (args,)
