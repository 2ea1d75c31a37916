"""Networks by integers: int8 programs of `quantization.ptq` beside Tengen's float32, and beside int8 models of onnxruntime and OpenVINO; and
one row through linear layers whose weights alone are integers.

Weights are random, and so is the calibration data: figures are times, and results are not compared between libraries, which round at other
places; Tengen's traced and eager results are, as bytes. All layers become integers, as the peers' do: which ones a drop of accuracy on random
data would leave in float32 says nothing. The peers' model is made by onnxruntime's own quantiser (QDQ, uint8 by int8, a scale
for each output channel) of PyTorch's export of the same network; OpenVINO reads that file.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import compare
import numpy as np
import peers
from compare import Case, Cell, Goal
from networks import NETWORKS, Inference

import tengen
import tengen.module as M
from tengen.codegen.targets import Target
from tengen.quantization import ptq, quantize_weights

ort, openvino, torch = compare.peer("onnxruntime"), compare.peer("openvino"), compare.peer("torch")
NAMES = ("ResNet-50", "ResNet-18", "MobileNetV2", "ViT-Tiny")
BATCHES = (1, 8)
QUICK = any(Target.host().computes(op) for op in ("dot4u", "dot4i"))  # four bytes at a time
GOALS = {"MobileNetV2": 0.45 if QUICK else 0.70}
OF_FLOAT32 = 0.30 if QUICK else 0.55  # of other networks
WEIGHTS = ((768, 3072), (2048, 5632), (4096, 4096))  # features in and out: of GPT-2, of a Llama of 1.1 billion parameters, a large one


def quantised_file(file: str, data: np.ndarray, folder: str) -> str:
    """PyTorch's ONNX file, by integers: what onnxruntime's quantiser makes of it for data like `data`."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Once(CalibrationDataReader):
        def __init__(self):
            self.left = [{"data": data}]

        def get_next(self):
            return self.left.pop() if self.left else None

    made = str(Path(folder) / "int8.onnx")
    quantize_static(
        file, made, Once(), quant_format=QuantFormat.QDQ, per_channel=True, activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8
    )
    return made


def inference(name: str, batch: int) -> Case:
    """One network and batch: ours by integers and in float32, and the peers by integers."""
    mine = Inference(NETWORKS[name], batch)
    x = tengen.Tensor(mine.data)
    made = ptq(mine.net, x, budget_drop=None)
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/int8.tgn"
        graph = made.graph.copy()
        graph.set_batch(batch)  # as the float32 program's is known
        graph.save(file)
        run = tengen.load_graph(file)
        found: dict[str, Callable] = {"tengen": lambda: run(x), "float32": mine.traced}
        if torch and ort:
            theirs = quantised_file(peers.onnx_file(NETWORKS[name].torch(mine.net), mine.data, folder), mine.data, folder)
            found["onnxruntime"] = peers.onnxruntime_call(theirs, mine.data)
            if openvino:
                found["openvino"] = peers.openvino_call(theirs, mine.data)

    def check() -> None:
        assert run(x).numpy().tobytes() == made(x).numpy().tobytes(), "the file and the program differ"

    goal = Goal(GOALS.get(name, OF_FLOAT32), "float32")
    return Case(f"{name}, batch {batch}", found, goal, check=check)


def weights_alone(terms: int, outputs: int, bits: int, x: np.ndarray, folder: str) -> Callable:
    """onnxruntime's product by integer weights in groups of 32, of activations that it rounds to int8 as well (accuracy level 4)."""
    import onnx
    from onnx import helper, numpy_helper

    r = np.random.default_rng(0)
    codes = r.integers(0, 256, (outputs, terms // 32, 4 * bits)).astype(np.uint8)
    arrays = {"codes": codes, "scale": r.uniform(0.01, 0.1, outputs * terms // 32).astype(np.float32)}
    options = {"K": terms, "N": outputs, "bits": bits, "block_size": 32, "accuracy_level": 4}
    node = helper.make_node("MatMulNBits", ["data", *arrays], ["y"], domain="com.microsoft", **options)
    given, result = (helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [len(x), m]) for n, m in (("data", terms), ("y", outputs)))
    graph = helper.make_graph([node], "row", [given], [result], [numpy_helper.from_array(a, n) for n, a in arrays.items()])
    versions = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=versions, ir_version=9), file := f"{folder}/row.onnx")
    return peers.onnxruntime_call(file, x)


def one_row(terms: int, outputs: int, bits: int) -> Case:
    """One row, which becomes integers of 8 bits or stays float32, through a linear layer: bytes of its integers and scales are the work."""
    layer = M.Linear(terms, outputs, bias=False)
    made = lambda activations: quantize_weights(M.Sequential(layer), bits=bits, group=32, inplace=False, activations=activations)[0]
    small, floats = made("int8"), made("float32")
    x = tengen.Tensor(np.random.default_rng(0).standard_normal((1, terms)).astype("float32"))
    runs = [tengen.trace(net, capture_as_const=True) for net in (small, layer, floats)]

    def check() -> None:
        assert runs[0](x).numpy().tobytes() == small(x).numpy().tobytes(), "the traced and the eager layer differ"

    contenders: dict[str, Callable] = {
        "tengen": lambda: runs[0](x),
        "float32": lambda: runs[1](x),
        "activations in float32": lambda: runs[2](x),
    }
    if ort and compare.peer("onnx"):
        with tempfile.TemporaryDirectory() as folder:
            contenders["onnxruntime"] = weights_alone(terms, outputs, bits, x.numpy(), folder)
    goal = Goal(0.30 if bits == 8 else 0.20, "float32")
    name = f"1 row by {terms} x {outputs}, weights of {bits} bits"
    return Case(name, contenders, goal, work=small.grouped.bytes, unit="B", check=check)


if __name__ == "__main__":
    args = compare.arguments("int8", 3.0)
    cells = [
        Cell(f"{name}, batch {batch}", lambda name=name, batch=batch: inference(name, batch), (name, batch) == ("MobileNetV2", 1))
        for name in NAMES
        for batch in BATCHES
    ]
    cells += [
        Cell(f"{terms} x {outputs}, {bits} bits", lambda a=(terms, outputs, bits): one_row(*a), (terms, bits) == (4096, 8))
        for terms, outputs in WEIGHTS
        for bits in (8, 4)
    ]
    compare.main("int8", "Networks by integers", cells, args=args)
