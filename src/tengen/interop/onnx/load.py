"""Files of ONNX as models and modules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tengen.base.errors import ArgumentError
from tengen.deploy.model import Model
from tengen.interop.networks.program import named, program, type_of
from tengen.interop.onnx.network import OnnxNetwork
from tengen.interop.onnx.reader import PortOf, read
from tengen.ir.types import TensorType


def to_module(source: Any) -> OnnxNetwork:
    """An ONNX network as a `Module`: it runs eagerly and traced, and trains.

    Args:
        source: a path, the bytes of a file, or an ``onnx.ModelProto``. Arrays in files of their own are read from the folder of the path.
    Returns: a module that takes the network's inputs in order or by name. Its parameters are the file's float arrays.
    Errors: FileFormatError for what is no ONNX model; ArgumentError that lists all nodes whose op has no meaning here.

    >>> import numpy as np, onnx.parser
    >>> from tengen.interop.onnx import to_module
    >>> net = to_module(onnx.parser.parse_model('''
    ...     <ir_version: 8, opset_import: ["": 17]>
    ...     double_relu (float[N, 2] x) => (float[N, 2] y) <float two = {2}> { r = Relu(x)  y = Mul(r, two) }'''))
    >>> net(np.array([[-1, 3]], np.float32)).tolist(), list(net.state_dict())
    ([[0.0, 6.0]], ['weights.two'])
    """
    return OnnxNetwork(read(source))


def load(source: Any, shapes: Mapping[str, Any] | None = None) -> Model:
    """An ONNX network as a `Model`: one program, with its weights, to run, to save and to compile for other machines.

    Args:
        source: a path, the bytes of a file, or an ``onnx.ModelProto``.
        shapes: numbers for open extents by name, ``{"batch": 8}``, or whole shapes of inputs by name, ``{"x": (1, 3, 224, 224)}``, where
            "text" in place of a number keeps an extent open. Default: what the file says; names stay open.
    Returns: a model whose inputs and outputs have the file's names.
    Errors: as `to_module`; TraceError for a network whose shapes depend on the values of its inputs (`to_module` runs it), or that needs the
        number of an open extent: give it in `shapes`; FileFormatError for nodes that do not fit one another.

    >>> import numpy as np, onnx.parser
    >>> from tengen.interop import onnx as onnx_files
    >>> model = onnx_files.load(onnx.parser.parse_model('''
    ...     <ir_version: 8, opset_import: ["": 17]>
    ...     double_relu (float[N, 2] x) => (float[N, 2] y) <float two = {2}> { r = Relu(x)  y = Mul(r, two) }'''))
    >>> model
    Model double_relu: 2 nodes, 1 weights
      takes x: f32[N,2]
      gives y: f32[N,2]
    >>> model(np.array([[-1, 3]], np.float32)).tolist()
    [[0.0, 6.0]]
    """
    net = to_module(source).eval()
    graph = net.source.graph
    shapes = dict(shapes or {})
    names = {p.name for p in graph.inputs}
    opened = {named(p.name, i, d) for p in graph.inputs for i, d in enumerate(shapes.get(p.name, p.shape) or ()) if not isinstance(d, int)}
    if odd := shapes.keys() - names - opened:
        raise ArgumentError(
            f"{graph.name}: shapes names {', '.join(sorted(odd))}; the inputs are {', '.join(sorted(names))}, the open extents "
            f"{', '.join(sorted(opened)) or 'none'}"
        )
    types = {p.name: type_of_port(p, shapes, f"{graph.name}: input {p.name}") for p in graph.inputs}
    return program(net, graph.name or "onnx", types, [p.name for p in graph.outputs], {**net.weights, **net.statistics}, shapes)


def type_of_port(p: PortOf, shapes: Mapping[str, Any], what: str) -> TensorType:
    """The type of an input of a program.

    Errors: ArgumentError for one that is no tensor, or whose shape is not known.
    """
    shape = shapes.get(p.name, p.shape)
    if p.dtype is None or shape is None:
        why = "has no shape in the file" if p.dtype is not None else "is a sequence or an optional value"
        raise ArgumentError(
            f"{what} {why}; help: " + ("shapes gives it one" if p.dtype is not None else "to_module runs the network")
        )
    if np.dtype(p.dtype).kind in "USO":
        raise ArgumentError(f"{what} is text, which no program takes; help: to_module runs the network")
    return type_of(p.name, shape, p.dtype, shapes, what)
