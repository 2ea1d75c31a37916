"""OpenVINO as a back end: parts of a model as ONNX, on the CPU. ``pip install 'tengen[openvino]'``."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np

from tengen.backends.by_onnx import ByOnnx
from tengen.base.config import config
from tengen.deploy.backends import Refused, Run
from tengen.ir.graph import Graph


class OpenVINO(ByOnnx):
    """Parts by OpenVINO's CPU plugin, in float32 (not in bfloat16, which it takes by itself on some processors), with as many threads as
    Tengen has."""

    name = "openvino"

    def __init__(self) -> None:
        super().__init__()
        import onnx  # noqa: F401  (what parts are written with)
        import openvino

        self.package, self.core = openvino, openvino.Core()

    def load(self, blob: bytes, graph: Graph) -> Run:
        """A compiled model for the part; each thread has a request of its own."""
        settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": config.threads, "PERFORMANCE_HINT": "LATENCY"}
        try:
            compiled = self.core.compile_model(self.core.read_model(blob), "CPU", settings)
        except Exception as e:  # its errors have no common class
            raise Refused(f"{self.name}: {str(e).strip().splitlines()[-1][:200]}") from e
        own = threading.local()
        dtypes = [v.type.dtype.numpy for v in graph.outputs]

        def run(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
            if not hasattr(own, "request"):
                own.request = compiled.create_infer_request()
            own.request.infer([np.asarray(a, order="C") for a in arrays])
            made = [own.request.get_output_tensor(i).data for i in range(len(dtypes))]
            return [np.array(a, d) if np.dtype(d) == np.bool_ else np.array(a) for a, d in zip(made, dtypes)]

        return run
