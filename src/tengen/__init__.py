"""Tengen: a deep-learning framework in pure Python; the kernels that trained a model are the ones you ship, bit for bit."""

from tengen import record  # noqa: F401  (composites run through the recorder)
from tengen import methods  # noqa: F401  (operators and methods of Tensor)
from tengen import autodiff, data, functional, jit, module, optimizer, random
from tengen.base.version import VERSION as __version__
from tengen.deploy import load, load_graph, save
from tengen.jit import trace
from tengen.parameter import Parameter
from tengen.runtime.report import show_config
from tengen.runtime.native import set_threads
from tengen.tensor import Tensor

tensor = Tensor

__all__ = [
    "__version__", "Parameter", "Tensor", "autodiff", "data", "functional", "jit", "load", "load_graph", "module", "optimizer",
    "random", "save", "show_config", "set_threads", "tensor", "trace",
]  # fmt: skip
