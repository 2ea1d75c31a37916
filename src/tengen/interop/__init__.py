"""Formats of other frameworks: `onnx` reads and writes their networks, `torch` takes those of PyTorch and shares tensors with it. Each needs a
package of its own, which is imported when it is used."""

from tengen.interop import onnx, torch

__all__ = ["onnx", "torch"]
