"""Models as TFLite files."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from tengen.base.dtype import uint8
from tengen.base.errors import ArgumentError
from tengen.base.files import replacing
from tengen.base.version import VERSION
from tengen.compiler.driver import evaluate
from tengen.interop.networks.written import as_model
from tengen.interop.tflite import quantized, writing  # noqa: F401  (enter what each op is in TFLite)
from tengen.interop.tflite.flat import write
from tengen.interop.tflite.fusing import fuse, prune
from tengen.interop.tflite.quantized import Planner, scales_of, settled
from tengen.interop.tflite.reader import IDENTIFIER
from tengen.interop.tflite.schema import numbers_of, package
from tengen.interop.tflite.writer import Writer
from tengen.passes.constants import fold_constants

LARGEST = 1 << 31  # bytes of a flatbuffer
VERSIONS = {  # of operators, where what is written came later than the first
    "FULLY_CONNECTED": 6, "BROADCAST_TO": 2, "BATCH_MATMUL": 2, "SELECT_V2": 1, "CONV_2D": 1, "TRANSPOSE_CONV": 1, "DEPTHWISE_CONV_2D": 2,
}  # fmt: skip


def save(model: Any, path: str | os.PathLike) -> None:
    """Writes a model as a TFLite file, which TFLite's interpreter runs.

    Args:
        model: a `Model` (from `tengen.load_graph`, or `load` here), a traced function or module that has been called, a `tengen.Graph`, or
            what `quantization.ptq` made. Networks of int8 keep their integers: docs/tflite.md says which.
        path: the file. It is written beside and renamed.
    Errors: ArgumentError that lists every op that cannot be said in TFLite, with its line; for a model that keeps states, that has open
        extents, and for one of more than 2 GB. OSError when the file cannot be written (the old one is then as it was).
    Numerics: the meaning is kept, rounding is the runtime's. Values that Tengen checks (indices in range) are not checked. Inputs and outputs
        keep Tengen's order of axes; pictures are turned around behind the border.

    >>> import os, tempfile, tengen
    >>> from tengen.interop import tflite
    >>> f = tengen.trace(lambda x: (x * 2).sum(1), example_input=tengen.Tensor([[1.0, 2.0], [3.0, 4.0]]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     tflite.save(f, os.path.join(folder, "f.tflite"))
    ...     tflite.load(os.path.join(folder, "f.tflite"))([[1.0, 2.0], [3.0, 4.0]]).tolist()
    [6.0, 14.0]
    """
    data = to_bytes(model)
    with replacing(path) as f:
        f.write(data)


def to_bytes(model: Any) -> bytes:
    """The same as bytes. Arguments and errors: as of `save`."""
    package()
    model = as_model(model)
    if model.graph.states:
        raise ArgumentError(
            f"{model.name} keeps the states {', '.join(model.graph.states)} from run to run, which is not written"
        )
    if model.extents:
        raise ArgumentError(
            f"{model.name} has the open extents {', '.join(model.extents)}; help: model.at({model.extents[0]}=1), "
            "or set_batch(1) of a tengen.Graph"
        )
    graph = settled(fold_constants(model.graph, evaluate))
    if sum(c.data.nbytes for c in graph.constants.values() if c.data is not None) >= LARGEST:
        raise ArgumentError(f"{model.name} has more than {LARGEST:,} bytes of weights")
    w = Writer(graph, Planner(graph).plans(), scales_of(graph))
    for v in graph.inputs:
        w.plain[v] = w.tensor(v.name, v.type.shape, v.type.dtype)
    w.write_nodes()
    fuse(w, {w.get(v).index for v in graph.outputs})
    outputs = []
    for name, v in zip(graph.output_names, graph.outputs):
        made = w.get(v)
        if made.codes is not None and v.type.dtype is uint8:
            made = w.emit("QUANTIZE", [made], made.shape, np.uint8, ("QuantizeOptions", {}), False, (made.codes[0], made.codes[1] + 128))
        fresh = w.tensor(name, made.shape, made.dtype, codes=made.codes)
        w.add("RESHAPE", [made, w.ints(made.shape)], [fresh], ("ReshapeOptions", {"NewShape": np.array(made.shape, np.int32)}))
        outputs.append(fresh.index)
    inputs = [w.plain[v].index for v in graph.inputs]
    number = prune(w, [*inputs, *outputs])
    inputs, outputs = ([number[i] for i in of] for of in (inputs, outputs))
    codes = [
        {"DeprecatedBuiltinCode": min(number, 127), "BuiltinCode": number, "Version": VERSIONS.get(op, 1)}
        for op, number in ((op, numbers_of("BuiltinOperator")[op]) for op in w.codes)
    ]
    body = {
        "Tensors": w.tensors, "Inputs": np.array(inputs, np.int32), "Outputs": np.array(outputs, np.int32), "Operators": w.operators,
        "Name": model.name,
    }  # fmt: skip
    signature = {
        "SignatureKey": "serving_default", "SubgraphIndex": 0,
        "Inputs": [{"Name": v.name, "TensorIndex": i} for v, i in zip(graph.inputs, inputs)],
        "Outputs": [{"Name": name, "TensorIndex": i} for name, i in zip(graph.output_names, outputs)],
    }  # fmt: skip
    return write("Model", {
        "Version": 3, "OperatorCodes": codes, "Subgraphs": [body], "Buffers": w.buffers, "Description": f"tengen {VERSION}",
        "SignatureDefs": [signature],
    }, IDENTIFIER)  # fmt: skip
