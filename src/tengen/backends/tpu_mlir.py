"""TPU-MLIR as a back end: parts of a model for the chips of Sophgo, run by the simulators that come with its compiler.

A part goes out as ONNX; TPU-MLIR's own tools make the chip's binary of it (`model_transform`, `model_deploy`), which is what a file keeps,
and `model_runner` runs it. They live in an environment of their own, as they need Python 3.10 and packages of its time; `python -m
tengen.backends.tpu_mlir_environment FOLDER` makes it, and TENGEN_TPU_MLIR=FOLDER says where it is.

For int8 the ranges of all tensors are measured here: the ONNX file is run by Tengen on data like that which the model will get, and the
calibrators of `tengen.quantization` choose the ranges, which TPU-MLIR's compiler reads as its calibration table.
"""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tengen.backends.by_onnx import ByOnnx
from tengen.base.config import config
from tengen.base.errors import ArgumentError, ConfigError
from tengen.deploy.backends import Refused, Run
from tengen.interop import onnx as onnx_files
from tengen.ir.graph import Graph
from tengen.quantization.calibrators import CALIBRATORS, Histogram
from tengen.tensor import Tensor

PATIENCE_S = 300  # of one tool: a network of 0.5 billion multiplications takes seconds
OF_CVITEK = ("cv180x", "cv181x", "cv182x", "cv183x")  # whose binaries have a format of their own
QUANTIZE = ("F32", "BF16", "F16", "INT8")
TENSOR = re.compile(r'loc\("([^"]+)"\)')  # the name of a tensor in a file of MLIR


class TpuMlir(ByOnnx):
    """Parts as binaries of one chip. It takes nodes of float32; a part that the chip's compiler refuses stays Tengen's.

    Args:
        chip: "bm1684x", "bm1688", "cv181x" and others that the compiler names.
        quantize: "F32", "BF16", "F16" or "INT8".
        data: for "INT8": batches like those that the model will get, each an array, or a tuple of one for each input. They are the
            inputs of the part, so the part must be the whole model.
        calibrator: which range a tensor gets, as in `tengen.quantization.ptq`.
        environment: the folder that `tpu_mlir_environment` made; default: TENGEN_TPU_MLIR.
    Errors: ArgumentError for an unknown `quantize` or `calibrator`, and for data where it is not "INT8" or none where it is;
        ConfigError where there is no such environment
    """

    name = "tpu-mlir"
    DTYPES = frozenset(("float32",))
    rounding = "the chip's, by its simulator: floats differ by roundings, and integers of 8 bits by steps of their scales"

    def __init__(
        self, chip: str = "bm1684x", quantize: str = "F32", data: Sequence[Any] = (), calibrator: str = "mse",
        environment: str | os.PathLike | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        import onnx  # noqa: F401  (what parts are written with)

        if quantize not in QUANTIZE:
            raise ArgumentError(f"quantize={quantize!r} must be one of {', '.join(QUANTIZE)}")
        if calibrator not in CALIBRATORS:
            raise ArgumentError(f"calibrator={calibrator!r} must be one of {', '.join(CALIBRATORS)}")
        if bool(len(data)) != (quantize == "INT8"):
            raise ArgumentError(f"quantize={quantize!r} with {len(data)} batches of data; help: INT8 needs some, the others take none")
        self.chip, self.quantize, self.calibrator = chip, quantize, calibrator
        self.binary = f"part.{'cvimodel' if chip in OF_CVITEK else 'bmodel'}"
        self.data = [batch if isinstance(batch, tuple) else (batch,) for batch in data]
        place = environment or config.tpu_mlir
        self.tools = Path(place or "").absolute() / "bin"
        if place is None or not (self.tools / "model_deploy").exists():
            missing = "no environment of TPU-MLIR is named" if place is None else f"TPU-MLIR is not in {self.tools.parent}"
            maker = "python -m tengen.backends.tpu_mlir_environment FOLDER"
            raise ConfigError(f"{missing}; help: {maker} makes one, TENGEN_TPU_MLIR=FOLDER names it")

    def compile(self, graph: Graph) -> bytes:
        """The chip's binary of the part."""
        blob = super().compile(graph)
        sizes = str([list(v.type.shape) for v in graph.inputs]).replace(" ", "")
        with self._folder() as folder:
            (folder / "part.onnx").write_bytes(blob)
            arguments = ["--model_name", "part", "--model_def", "part.onnx", "--input_shapes", sizes, "--mlir", "part.mlir"]
            self._run(folder, "model_transform", *arguments)
            arguments = ["--mlir", "part.mlir", "--quantize", self.quantize, "--chip", self.chip, "--model", self.binary]
            if self.quantize == "INT8":
                known = TENSOR.findall((folder / "part.mlir").read_text())
                (folder / "table").write_text(self._table(blob, dict.fromkeys(known)))
                arguments += ["--calibration_table", "table"]
            self._run(folder, "model_deploy", *arguments)
            return (folder / self.binary).read_bytes()

    def load(self, blob: bytes, graph: Graph) -> Run:
        """A function that runs the binary in the chip's simulator, in a process of its own for each call."""
        takes, gives = self._names(graph)
        types = [v.type for v in graph.outputs]

        def run(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
            with self._folder() as folder:
                (folder / self.binary).write_bytes(blob)
                np.savez(folder / "in.npz", **{n: np.asarray(a) for n, a in zip(takes, arrays)})
                self._run(folder, "model_runner", "--input", "in.npz", "--model", self.binary, "--output", "out.npz")
                with np.load(folder / "out.npz") as found:
                    made = [found[_key(name, list(found))] for name in gives]
            return [a.reshape(t.shape).astype(t.dtype.numpy) for a, t in zip(made, types)]

        return run

    def _names(self, graph: Graph) -> tuple[list[str], list[str]]:
        """What the inputs and the outputs are called in the part's ONNX file."""
        import onnx

        proto = onnx.load_from_string(super().compile(graph)).graph
        return [i.name for i in proto.input], [o.name for o in proto.output]

    def _table(self, blob: bytes, known: Iterable[str]) -> str:
        """The calibration table: a line "tensor threshold least largest" for each tensor of the ONNX file that the compiler knows.

        Errors: Refused where the data does not fit the part
        """
        import onnx

        proto = onnx.load_from_string(blob)
        inputs = [i.name for i in proto.graph.input]
        shapes = [tuple(d.dim_value for d in i.type.tensor_type.shape.dim) for i in proto.graph.input]
        if any([np.shape(x) for x in batch] != shapes for batch in self.data):
            raise Refused(f"the part takes {shapes}, the data has {[np.shape(x) for x in self.data[0]]}; help: a model that is one part")
        made = list(dict.fromkeys(o for n in proto.graph.node for o in n.output if o))
        del proto.graph.output[:]
        proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in made)
        every = onnx_files.to_module(proto).eval()
        counts = {name: Histogram() for name in (*inputs, *made)}
        for batch in self.data:
            results = every(*(Tensor(np.asarray(x, np.float32)) for x in batch))
            results = results if isinstance(results, (tuple, list)) else (results,)
            for name, x in zip(counts, (*batch, *results), strict=True):
                counts[name].add(x.numpy() if isinstance(x, Tensor) else np.asarray(x))
        lines = ["# made by Tengen", "# op_name    threshold    min    max"]
        for name in known:
            base = name if name in counts else name.rpartition("_")[0]  # the compiler adds the operator to a tensor's name
            if base in counts:
                signed = counts[base].range()[0] < 0
                low, high = CALIBRATORS[self.calibrator](counts[base], 254 if signed else 127, signed)  # the chip's integers: -127 .. 127
                lines.append(f"{name} {max(-low, high):.9g} {low:.9g} {high:.9g}")
        return "\n".join([*lines, ""])

    @contextmanager
    def _folder(self) -> Iterator[Path]:
        """A folder for one use of the tools, which nobody else uses meanwhile: they rewrite a library of the environment for each chip."""
        with tempfile.TemporaryDirectory(prefix="tengen-tpu-mlir-") as folder, open(self.tools.parent / "tengen.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield Path(folder)

    def _run(self, folder: Path, tool: str, *arguments: str) -> None:
        """Runs one of TPU-MLIR's tools. Errors: Refused, with the last lines that it said, where it fails."""
        environ = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")} | {"PATH": f"{self.tools}:{os.environ['PATH']}"}
        command = [str(self.tools / tool), *arguments]
        try:
            done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise Refused(f"{self.name}: {tool} took more than {PATIENCE_S} s") from None
        if done.returncode:
            said = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
            raise Refused(f"{self.name}: {tool} for {self.chip} failed with status {done.returncode}: {' / '.join(said[-3:])[:300]}")


def _key(name: str, keys: list[str]) -> str:
    """Which array of a runner's results an output is: that of its name, to which the compiler adds the operator's, and "_f32" where integers
    became numbers again at the end."""
    for form in (f"{re.escape(name)}_[A-Z][A-Za-z0-9]*_f32", f"{re.escape(name)}(_[A-Z][A-Za-z0-9]*)?"):
        if found := [k for k in keys if re.fullmatch(form, k)]:
            break
    if len(found) != 1:
        raise Refused(f"tpu-mlir gave {', '.join(keys)}: none of these alone is the output {name}")
    return found[0]
