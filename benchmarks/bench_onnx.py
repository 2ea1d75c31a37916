"""Networks from ONNX files: PyTorch's exports, loaded here and in onnxruntime, and seconds from the file to a model and to the first answer.

Tengen's rows run the program of `interop.onnx.load`; "zoo" is the same network of `tengen.models`, traced. PyTorch's exporter folds batch norms
into convolutions, which the zoo's program computes beside them. Then the networks that packages ship, one step of each.
"""

from __future__ import annotations

import importlib.util
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import compare
import numpy as np
import peers
from compare import Case, Cell, Goal, Row
from networks import NETWORKS, Inference

import tengen
from tengen.interop import onnx as onnx_files

torch, ort = compare.peer("torch"), compare.peer("onnxruntime")
NAMES = ("ResNet-18", "ResNet-50", "MobileNetV2", "ViT-Tiny", "GPT", "LSTM")


def exported(name: str, folder: str, batch: int = 1):
    """Tengen's network, a file of PyTorch's with its weights, and data."""
    network = NETWORKS[name]
    mine = Inference(network, batch)
    return mine, peers.onnx_file(network.torch(mine.net), mine.data, folder)


def inference(name: str) -> Case:
    """One example, from the same file."""
    with tempfile.TemporaryDirectory() as folder:
        mine, file = exported(name, folder)
        model = onnx_files.load(file)
        x = tengen.Tensor(mine.data)
        found: dict[str, Callable] = {"tengen": lambda: model(x), "tengen zoo": mine.traced}
        if ort:
            found["onnxruntime"] = peers.onnxruntime_call(file, mine.data)
        return Case(f"{name}, batch 1", found, Goal(1.0, "onnxruntime"), tolerance=(5e-4, 1e-5))


def shipped(package: str, file: str, shapes: dict) -> Case:
    """One step of a network that a package ships; zeros as states, 16,000 as a rate."""
    spec = importlib.util.find_spec(package)
    path = str(Path(spec.origin or "").parent / file)
    model, r = onnx_files.load(path, shapes), np.random.default_rng(0)
    made = {
        "input": lambda shape: r.standard_normal(shape).astype(np.float32), "bytes": lambda shape: r.integers(0, 257, shape).astype(np.int32),
        "sr": lambda shape: np.array(16000),
    }  # fmt: skip
    given = {p.name: made.get(p.name, lambda shape: np.zeros(shape, np.float32))(p.shape) for p in model.inputs}
    xs = [tengen.Tensor(given[p.name]) for p in model.inputs]
    first = lambda made: made[0] if isinstance(made, tuple) else made
    found: dict[str, Callable] = {"tengen": lambda: first(model(*xs))}
    if ort:
        session = peers.onnxruntime_session(path)
        found["onnxruntime"] = lambda: session.run(None, given)[0]
    return Case(f"{package}: {Path(file).name}", found, Goal(1.0, "onnxruntime"), tolerance=(5e-4, 1e-5))


VAD = {"input": (1, 576), "state": (2, 1, 128)}
SHIPPED = (
    *(("silero_vad", f"data/silero_vad{kind}.onnx", VAD) for kind in ("", "_op18_ifless", "_half")),
    ("magika", "models/standard_v3_3/model.onnx", {"bytes": (1, 2048)}),
)


def to_the_first_answer() -> list[Row]:
    """Seconds of reading the file, and of the first run with an empty cache, beside onnxruntime's session and first run."""
    rows = []
    for name in NAMES[:3] if torch else ():
        with tempfile.TemporaryDirectory() as folder, tengen.config.scope(cache=False):
            mine, file = exported(name, folder)
            start = time.perf_counter()
            model = onnx_files.load(Path(file))
            read = time.perf_counter() - start
            model(mine.data)
            said = f"{read:.2f} s, first answer after {time.perf_counter() - start:.2f} s"
            if ort:
                start = time.perf_counter()
                peers.onnxruntime_call(file, mine.data)()
                said += f" (onnxruntime: {time.perf_counter() - start:.2f} s)"
            rows.append(Row(f"{name}, from the file", value=said, reached=read <= 0.3))
    return rows


if __name__ == "__main__":
    args = compare.arguments("onnx", 3.0)
    cells = [Cell(name, lambda name=name: inference(name), name == "LSTM") for name in NAMES]
    cells += [
        Cell(Path(what[1]).stem, lambda what=what: shipped(*what), what is SHIPPED[0]) for what in SHIPPED if importlib.util.find_spec(what[0])
    ]
    compare.main("onnx", "Networks from ONNX files", cells, more=to_the_first_answer(), args=args)
