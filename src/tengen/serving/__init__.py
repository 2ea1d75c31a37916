"""Models behind HTTP: the Open Inference Protocol, version 2, which KServe, Triton and their clients speak. docs/serving.md."""

from tengen.serving.protocol import RequestError
from tengen.serving.server import Server

__all__ = ["RequestError", "Server"]
