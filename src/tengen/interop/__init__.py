"""Formats of other frameworks: `onnx` reads and writes their networks, `tflite` reads them, `torch` takes those of PyTorch and shares
tensors with it, `weights` reads and writes their checkpoints, `migrate` helps out of frameworks that are not here. What needs a package
of its own imports it when it is used."""

from tengen.interop import migrate, onnx, tflite, torch, weights

__all__ = ["migrate", "onnx", "tflite", "torch", "weights"]
