"""Formats of other frameworks: `onnx` reads their networks. Each needs a package of its own, which is imported when it is used."""

from tengen.interop import onnx

__all__ = ["onnx"]
