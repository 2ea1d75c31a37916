"""`torch.onnx`: modules as files of ONNX (`tengen.interop.onnx`)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from tengen.base.errors import ArgumentError
from tengen.deploy.model import Model
from tengen.interop import onnx as _onnx
from tengen.pytorch.export import ExportedProgram, open_axes
from tengen.pytorch.exporting import Axes, evaluating, in_tuple, model_of, names_of_arguments, names_of_inputs, recorded


class TrainingMode(Enum):
    """The mode in which a module is exported."""

    EVAL = 0
    PRESERVE = 1
    TRAINING = 2


class ONNXProgram:
    """A program that can be said in ONNX. Attributes: model: the `Model`; model_proto: what the package onnx has for it."""

    def __init__(self, model: Model, opset: int | None):
        self.model, self._opset = model, opset

    @property
    def model_proto(self) -> Any:
        """The ModelProto."""
        return _onnx.to_proto(self.model, self._opset)

    def save(self, destination: str | os.PathLike, **how: Any) -> None:
        """Writes the file."""
        _onnx.save(self.model, destination, self._opset)

    def __call__(self, *args: Any, **kwargs: Any) -> tuple:
        """The program's results for these arguments, as a tuple."""
        found = self.model(*args, **kwargs)
        return found if isinstance(found, tuple) else (found,)


def _open_by_name(dynamic_axes: Mapping[str, Any], names: Sequence[str], inputs: Sequence[str], outputs: Sequence[str]) -> Axes:
    """What `dynamic_axes` says of inputs, by the function's parameters; what it says of outputs follows from that."""
    axes: Axes = {}
    for name, said in dynamic_axes.items():
        if name in outputs:
            continue
        if name not in inputs:
            raise ArgumentError(f"dynamic_axes: there is no input or output {name!r}; help: one of {', '.join([*inputs, *outputs])}")
        pairs = said.items() if isinstance(said, Mapping) else ((axis, f"{name}_{axis}") for axis in said)
        axes[names[inputs.index(name)]] = {axis: str(extent).replace(" ", "_") for axis, extent in pairs}
    return axes


def export(
    model: Any, args: Any = (), f: Any = None, *, kwargs: Mapping[str, Any] | None = None, input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None, opset_version: int | None = None, dynamic_axes: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None, training: TrainingMode = TrainingMode.EVAL, **how: Any,
) -> ONNXProgram:  # fmt: skip
    """Writes a module, in evaluation mode unless `training` says otherwise, or a function as a file of ONNX; the module keeps its mode.

    Args: args, kwargs: example arguments. f: a path, or a file that is open for writing bytes; None: nothing is written. input_names,
        output_names: of the file; default: the parameters of `forward`, and output0 and so on. opset_version: as `interop.onnx.save`.
        dynamic_axes: {name: {axis: name of the extent}, or axes} of inputs whose extents are open; what it says of outputs follows from
        those. dynamic_shapes: as `torch.export.export`. export_params, do_constant_folding, verbose, dynamo and others of PyTorch's:
        accepted; they change nothing.
    Returns: the program, which has `save`.
    Errors: TraceError where the module decides by values; ArgumentError for names that there are not and for what ONNX cannot say
    """
    given, named = in_tuple(args), dict(kwargs or {})
    if given and isinstance(given[-1], dict):  # the last of the arguments may be those by name
        given, named = given[:-1], {**given[-1], **named}
    if isinstance(model, ExportedProgram):
        program = ONNXProgram(model._model, opset_version)
    else:
        tensors = names_of_inputs(model, given, named)
        inputs = list(input_names or ()) or tensors
        axes = open_axes(dynamic_shapes, names_of_arguments(model, given, named)) if dynamic_shapes is not None else {}
        if dynamic_axes:
            axes |= _open_by_name(dynamic_axes, tensors or names_of_arguments(model, given, named), inputs or (), output_names or ())
        mode = {TrainingMode.EVAL: False, TrainingMode.TRAINING: True}.get(training)
        with evaluating(model, getattr(model, "training", False) if mode is None else mode):
            made = model_of(recorded(model, given, named, axes), inputs, output_names)
        program = ONNXProgram(made, opset_version)
    if hasattr(f, "write"):
        f.write(program.model_proto.SerializeToString())
    elif f is not None:
        program.save(f)
    return program


def is_in_onnx_export() -> bool:
    """False: programs are recorded from what Python runs."""
    return False


__all__ = ["ONNXProgram", "TrainingMode", "export", "is_in_onnx_export"]
