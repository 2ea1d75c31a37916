"""Formats of other frameworks: `onnx` reads and writes their networks, `weights` their checkpoints. What needs a package of its own
imports it when it is used."""

from tengen.interop import onnx, weights

__all__ = ["onnx", "weights"]
