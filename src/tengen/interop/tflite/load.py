"""Files of TFLite as models and modules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tengen.base.errors import ArgumentError, FileFormatError, TengenError
from tengen.deploy.model import Model
from tengen.interop.networks.program import DAMAGED, program, type_of
from tengen.interop.tflite.network import TfliteNetwork, named
from tengen.interop.tflite.reader import TensorOf, read
from tengen.ir.types import TensorType


def to_module(source: Any) -> TfliteNetwork:
    """A TFLite network as a `Module`: it runs eagerly and traced, and trains where its numbers are floats.

    Args:
        source: a path, or the bytes of a file.
    Returns: a module that takes the network's inputs in order or by name. Its parameters are the file's float arrays; variables that the
        network keeps from call to call are buffers.
    Errors: FileFormatError for what is no TFLite model; ArgumentError that lists all operators that have no meaning here.

    >>> import os, tempfile, tengen
    >>> from tengen.interop.tflite import save, to_module
    >>> f = tengen.trace(lambda x: (x * 2).sum(1), example_input=tengen.Tensor([[1.0, 2.0], [3.0, 4.0]]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(f, os.path.join(folder, "f.tflite"))
    ...     net = to_module(os.path.join(folder, "f.tflite"))
    >>> net([[1.0, 2.0], [3.0, 4.0]]).tolist()
    [6.0, 14.0]
    """
    found = read(source)
    try:
        return TfliteNetwork(found)
    except (FileFormatError, ArgumentError):
        raise
    except (TengenError, *DAMAGED) as e:
        raise FileFormatError(
            f"the file's operators have not the inputs and outputs that they need: {type(e).__name__}: {e}"
        ) from e


def load(source: Any, shapes: Mapping[str, Any] | None = None) -> Model:
    """A TFLite network as a `Model`: one program, with its weights, to run, to save and to compile for other machines.

    Args:
        source: a path, or the bytes of a file.
        shapes: numbers for open extents by name, ``{"batch": 8}``, or whole shapes of inputs by name, ``{"x": (1, 224, 224, 3)}``,
            where "text" in place of a number keeps an extent open. Default: what the file says. A first extent that the file leaves open
            is "batch", others have the input's name and the number of the axis.
    Returns: a model whose inputs and outputs have the file's names. One that keeps variables does so from call to call.
    Errors: as `to_module`; FileFormatError for operators that do not fit one another; TraceError for a network whose shapes depend on the
        values of its inputs (`to_module` runs it), or that needs the number of an open extent: give it in `shapes`.

    >>> import os, tempfile, tengen
    >>> from tengen.interop import tflite
    >>> f = tengen.trace(lambda x: (x * 2).sum(1), example_input=tengen.Tensor([[1.0, 2.0], [3.0, 4.0]]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     tflite.save(f, os.path.join(folder, "f.tflite"))
    ...     model = tflite.load(os.path.join(folder, "f.tflite"))
    >>> model([[1.0, 2.0], [3.0, 4.0]]).tolist()
    [6.0, 14.0]
    """
    net = to_module(source).eval()
    graph = net.source.graph
    tensors = zip(net.source.inputs, (graph.tensors[i] for i in graph.inputs))
    types = {name: type_of_input(name, t, shapes or {}) for name, t in tensors}
    return program(net, net.source.name, types, net.source.outputs, named(net), shapes)


def type_of_input(name: str, t: TensorOf, shapes: Mapping[str, Any]) -> TensorType:
    """The type of an input of a program.

    Errors: ArgumentError for one that is no tensor of numbers.
    """
    if t.dtype is None:
        raise ArgumentError(f"the input {name} is a {t.kind.lower()}, which no program takes")
    opened = [d if d >= 0 else "batch" if axis == 0 else None for axis, d in enumerate(t.opened)]
    return type_of(name, shapes.get(name, opened), t.dtype, shapes, f"input {name}")
