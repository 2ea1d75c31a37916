"""Tengen: a deep-learning framework in pure Python; the kernels that trained a model are the ones you ship, bit for bit."""

from tengen import record, tensor
from tengen.base.version import VERSION as __version__
from tengen.tensor import Tensor

__all__ = ["__version__", "Tensor", "record", "tensor"]
