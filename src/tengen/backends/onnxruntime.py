"""onnxruntime as a back end: parts of a model as ONNX, on the CPU. ``pip install 'tengen[onnxruntime]'``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tengen.backends.by_onnx import ByOnnx
from tengen.base.config import config
from tengen.deploy.backends import Refused, Run
from tengen.ir.graph import Graph, Node


class OnnxRuntime(ByOnnx):
    """Parts by onnxruntime's CPU provider, with as many threads as Tengen has."""

    name = "onnxruntime"

    def __init__(self) -> None:
        super().__init__()
        import onnx  # noqa: F401  (what parts are written with)
        import onnxruntime

        self.package = onnxruntime
        self.sorts = tuple(map(int, onnxruntime.__version__.split(".")[:2])) >= (1, 31)

    def takes(self, node: Node, graph: Graph) -> bool:
        """As `ByOnnx`'s, without sorting by versions before 1.31, which end the process by a division by zero where nothing is to be sorted."""
        return (node.op not in ("sort", "k_first") or self.sorts) and super().takes(node, graph)

    def load(self, blob: bytes, graph: Graph) -> Run:
        """A session for the part."""
        options = self.package.SessionOptions()
        options.intra_op_num_threads = config.threads
        options.log_severity_level = 4
        try:
            session = self.package.InferenceSession(blob, options, providers=["CPUExecutionProvider"])
        except Exception as e:  # its errors have no common class
            raise Refused(f"{self.name}: {str(e).strip().splitlines()[0][:200]}") from e
        takes = [i.name for i in session.get_inputs()]

        def run(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
            return session.run(None, dict(zip(takes, (np.asarray(a, order="C") for a in arrays))))

        return run
