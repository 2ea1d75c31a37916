"""Nodes that are defined by other nodes: functions of a file, and ops whose definition in the standard is a function."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tengen.base.errors import ArgumentError
from tengen.interop.onnx.reader import FunctionOf, GraphOf, NodeOf, PortOf, Reader, normal
from tengen.interop.onnx.values import Value, element_type

if TYPE_CHECKING:
    from tengen.interop.onnx.network import Scope


def has_body(n: NodeOf, opsets: Mapping[str, int]) -> bool:
    """Whether the standard defines an op by a function."""
    import onnx

    try:
        s = onnx.defs.get_schema(n.op, opsets.get(n.domain, 1), n.domain)
    except onnx.defs.SchemaError:
        return False
    return s.has_function or s.has_context_dependent_function


def of_schema(n: NodeOf, inputs: Sequence[Value], opsets: Mapping[str, int]) -> FunctionOf:
    """The function by which the standard defines a node's op, for inputs of these types.

    Errors: ArgumentError where there is none.
    """
    import onnx

    opset = opsets.get(n.domain, 1)
    try:
        s = onnx.defs.get_schema(n.op, opset, n.domain)
    except onnx.defs.SchemaError:
        raise ArgumentError(f"{n.what} is no op of opset {opset}") from None
    body = None
    if s.has_function:
        newest = max((v for v in s.function_opset_versions if v <= opset), default=None)
        made = s.get_function_with_opset_version(newest) if newest is not None else None
        body = made if made is None or not isinstance(made, bytes) else onnx.FunctionProto.FromString(made)
    if body is None and s.has_context_dependent_function:
        newest = max((v for v in s.context_dependent_function_opset_versions if v <= opset), default=None)
        if newest is not None:
            types = [type_of(v).SerializeToString() for v in inputs]
            body = onnx.FunctionProto.FromString(
                s.get_context_dependent_function_with_opset_version(newest, n.proto, types)
            )
    if body is None:
        raise ArgumentError(f"{n.what} has no meaning here for opset {opset}")
    used = {normal(o.domain): int(o.version) for o in body.opset_import}
    return FunctionOf(
        tuple(body.input), tuple(body.output), {**dict.fromkeys(body.attribute, ...)}, tuple(body.node), {**opsets, **used}
    )


def type_of(v: Value):
    """The TypeProto of a value."""
    import onnx

    found = onnx.TypeProto()
    if v is None:
        return found
    if isinstance(v, list):
        found.sequence_type.elem_type.CopyFrom(type_of(v[0]) if v else onnx.TypeProto())
        return found
    found.tensor_type.elem_type = element_type(v)
    for d in v.shape:
        dim = found.tensor_type.shape.dim.add()
        if isinstance(d, (int, np.integer)):
            dim.dim_value = int(d)
    return found


def call(scope: Scope, n: NodeOf, inputs: Sequence[Value], f: FunctionOf) -> tuple[Value, ...]:
    """Runs a function's nodes in place of a node."""

    given = {name: n.attributes.get(name, default) for name, default in f.attributes.items()}
    reader = reader_for(scope.network.source.opsets, f)
    nodes = tuple(reader.node(p, 1, f.opsets, given) for p in f.nodes)
    inner = type(scope)(scope.network, None)
    for name, v in zip(f.inputs, [*inputs, *[None] * (len(f.inputs) - len(inputs))]):
        inner[name] = v
    wanted = [name if i < len(n.outputs) and n.outputs[i] else "" for i, name in enumerate(f.outputs)]
    made = inner.run(GraphOf(n.op, (), tuple(PortOf(name, None, None) for name in wanted if name), nodes, {}))
    values = iter(made)
    return tuple(next(values) if name else None for name in wanted)


def reader_for(opsets: Mapping[str, int], f: FunctionOf) -> Reader:
    """A reader for nodes of a function."""
    import onnx

    return Reader(_empty(onnx, tuple(sorted({**opsets, **f.opsets}.items()))), None)


@functools.lru_cache(64)
def _empty(onnx: Any, opsets: tuple[tuple[str, int], ...]):
    """A model without a graph, for its opsets."""
    return onnx.ModelProto(opset_import=[onnx.OperatorSetIdProto(domain=d, version=v) for d, v in opsets])
