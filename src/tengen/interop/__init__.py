"""Formats of other frameworks: `onnx` and `tflite` read their networks. Each needs a package of its own, which is imported when it is used."""

from tengen.interop import onnx, tflite

__all__ = ["onnx", "tflite"]
