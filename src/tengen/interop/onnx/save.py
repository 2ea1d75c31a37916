"""Models as ONNX files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

from tengen.base.errors import ArgumentError
from tengen.base.files import replacing, replacing_set
from tengen.base.version import VERSION
from tengen.deploy.model import Model
from tengen.interop.networks.written import as_model
from tengen.interop.onnx import integers, writing  # noqa: F401  (enter what each op is in ONNX)
from tengen.interop.onnx.layers import layers
from tengen.interop.onnx.opsets import LIGHT, OLDEST, WRITTEN, any_operator, in_opset, lowest, without_weights
from tengen.interop.onnx.qdq import forms
from tengen.interop.onnx.runtimes import RUNTIMES, Runtime, misfits
from tengen.interop.onnx.values import package
from tengen.interop.onnx.writer import Writer

LARGEST = (1 << 31) - (1 << 26)  # bytes of arrays that a protobuf message of less than 2 GB holds beside its nodes
QUANTIZED = ("qdq", "integers")  # how products of 8-bit integers are written
ALIGNED = 64  # bytes, in a file of arrays


def save(
    model: Any, path: str | os.PathLike, opset: int | None = None, metadata: Mapping[str, str] | None = None, runtime: str | None = None,
    quantized: str = "qdq",
) -> None:  # fmt: skip
    """Writes a model as an ONNX file, which onnxruntime and others run.

    Args:
        model: a `Model` (from `tengen.load_graph`, or `load` here), a traced function or module that has been called, a `Graph`, or a
            quantised network.
        path: the file. It is written beside and renamed. With 2 GB of weights or more, which no file of ONNX holds, they are in a second
            file next to it, of the same name and ".data", and replace older ones together: a save that is cut short leaves no model's file
            beside arrays that are not its own. opset: of the operators, 7 to the newest of the package onnx; None: the lowest that
            can say the model. metadata: texts to keep in the file. runtime: who will read it, "mace", "tengine", "tensorrt",
            "openvino" or "coreml": the opset is one that it reads, and what it does not take is an error. quantized: how products of
            8-bit integers are written: "qdq", as products of floats between DequantizeLinear and QuantizeLinear, which runtimes compute by
            their own kernels of integers; "integers", as MatMulInteger and ConvInteger, whose sums are exact everywhere.
    Errors: ArgumentError that lists every op that cannot be said in ONNX (in this opset, for this runtime), with its line; for a model that
        keeps states. OSError when the file cannot be written (the old one is then as it was).
    Numerics: the meaning is kept, rounding is the runtime's. Values that Tengen checks (indices in range) are not checked.

    >>> import os, tempfile, tengen
    >>> from tengen import Tensor, trace
    >>> from tengen.interop import onnx as onnx_files
    >>> f = trace(lambda x: (x * 2).sum(1), example_input=Tensor([[1.0, 2.0], [3.0, 4.0]]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     onnx_files.save(f, os.path.join(folder, "f.onnx"))
    ...     onnx_files.load(os.path.join(folder, "f.onnx"))(Tensor([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [6.0, 14.0]
    """
    model = as_model(model)
    if weights_of(model) < LARGEST:
        with replacing(path) as f:
            f.write(to_proto(model, opset, metadata, runtime, quantized).SerializeToString())
        return
    name = f"{os.fsdecode(path)}.data"
    with replacing_set(path) as files:
        outside = Outside(os.path.basename(name), files.new(name))
        files.new(path).write(_proto(model, opset, metadata, runtime, quantized, outside).SerializeToString())


class Outside:
    """The file of the arrays of a model that are not in the model's own file."""

    def __init__(self, name: str, file: BinaryIO):
        self.name, self.file = name, file

    def tensor(self, a: np.ndarray, name: str) -> Any:
        """The TensorProto of an array, which large ones are written for."""
        onnx = package()
        if a.nbytes <= LIGHT:
            return onnx.numpy_helper.from_array(a, name)
        self.file.write(bytes(-self.file.tell() % ALIGNED))
        made = onnx.TensorProto(name=name, dims=a.shape, data_type=onnx.helper.np_dtype_to_tensor_dtype(a.dtype))
        made.data_location = onnx.TensorProto.EXTERNAL
        for key, value in {"location": self.name, "offset": self.file.tell(), "length": a.nbytes}.items():
            made.external_data.add(key=key, value=str(value))
        self.file.write(a.reshape(-1).view(np.uint8).data)
        return made


def weights_of(model: Model) -> int:
    """The bytes of a model's arrays."""
    return sum(c.data.nbytes for c in model.graph.constants.values() if c.data is not None)


def to_proto(
    model: Any, opset: int | None = None, metadata: Mapping[str, str] | None = None, runtime: str | None = None, quantized: str = "qdq"
) -> Any:
    """The same as an ``onnx.ModelProto``. Arguments and errors: as of `save`; ArgumentError too for 2 GB of weights or more."""
    model = as_model(model)
    if (size := weights_of(model)) >= LARGEST:
        raise ArgumentError(f"{model.name} has {size:,} bytes of weights, a message of ONNX less than {LARGEST:,}; help: save writes two files")
    return _proto(model, opset, metadata, runtime, quantized, None)


def _proto(
    model: Model, opset: int | None, metadata: Mapping[str, str] | None, runtime: str | None, quantized: str, outside: Outside | None
) -> Any:
    onnx = package()
    if opset is not None and not OLDEST <= opset <= onnx.defs.onnx_opset_version():
        raise ArgumentError(
            f"opset={opset}: from {OLDEST} to {onnx.defs.onnx_opset_version()}, the newest of the onnx package here"
        )
    if runtime is not None and runtime not in RUNTIMES:
        raise ArgumentError(f"runtime={runtime!r}: there are {', '.join(RUNTIMES)}")
    reader = None if runtime is None else RUNTIMES[runtime]
    if quantized not in QUANTIZED:
        raise ArgumentError(f"quantized={quantized!r}: there are {', '.join(QUANTIZED)}")
    graph = model.graph
    if graph.states:
        raise ArgumentError(f"{model.name} keeps the states {', '.join(graph.states)} from run to run, which ONNX cannot say")
    sized = [c for c in graph.checks if c.bad.node is not None and c.bad.node.op == "extent_op"]
    if sized:  # a comparison of open extents chose what was recorded: with other extents the file would compute something else
        raise ArgumentError(f"{sized[0].message}, which ONNX cannot say; help: model.at({model.extents[0]}=...), or F.cond in place of `if`")
    w = Writer(graph)
    for v in graph.inputs:
        w.names[v] = w.fresh(v.name)
    outputs = [w.fresh(name) for name in graph.output_names]
    w.write_nodes({**layers(w), **(forms(w, coded=reader is None or not reader.symmetric) if quantized == "qdq" else {})})
    for name, v in zip(outputs, graph.outputs):
        w.nodes.append(onnx.helper.make_node("Identity", [w.name(v)], [name], name=w.fresh(f"{name}_output")))
    tensor = onnx.numpy_helper.from_array if outside is None else outside.tensor
    proto = onnx.helper.make_model(
        onnx.helper.make_graph(
            w.nodes, model.name, [w.port(w.name(v), v.type) for v in graph.inputs],
            [w.port(name, v.type) for name, v in zip(outputs, graph.outputs)],
            [tensor(np.ascontiguousarray(a).reshape(a.shape), name) for name, a in w.arrays.items()],
        ),
        opset_imports=[onnx.helper.make_opsetid("", WRITTEN)], producer_name="tengen", producer_version=VERSION,
    )  # fmt: skip
    proto.ir_version = 8
    onnx.helper.set_model_props(proto, dict(metadata or {}))
    made = in_opset_for(proto, opset, reader, runtime or "", w.lines)
    onnx.checker.check_model(made if outside is None else without_weights(made), full_check=True)
    return made


def in_opset_for(proto: Any, opset: int | None, runtime: Runtime | None, name: str, lines: Mapping[str, str]) -> Any:
    """The model in an opset, the lowest one by default, for a runtime. lines: of the user, by nodes' names."""
    has = any_operator if runtime is None else runtime.has
    made, problems = (lowest(proto, has), []) if opset is None else in_opset(proto, opset, has)
    wrong = [f"  {p}" for p in problems]
    if runtime is not None:
        have = made.opset_import[0].version
        if opset is None and have < runtime.oldest:
            made, _ = in_opset(proto, have := runtime.oldest, has)
        if not runtime.oldest <= have <= runtime.newest:
            _, late = in_opset(proto, runtime.newest, has)
            wrong += [f"  {name} reads the opsets {runtime.oldest} to {runtime.newest}, this is {have}", *(f"  {p}" for p in late)]
        wrong += [f"  {n}: {why}{line_of(n, lines)}" for n, why in misfits(made, runtime)]
    if wrong:
        more = [f"  and {len(wrong) - 40} more"] if len(wrong) > 40 else []
        raise ArgumentError("\n".join([f"this does not fit {name or f'opset {opset}'}:", *wrong[:40], *more]))
    return made


def line_of(node: str, lines: Mapping[str, str]) -> str:
    """The user's line of a node, or of that of which it is a part, for a message; "" where none is known."""
    while node and node not in lines:
        node = node.rpartition("/")[0]
    return f" [at {lines[node]}]" if node else ""
