"""Formats of other frameworks: `onnx` reads and writes their networks, `weights` their checkpoints, `migrate` helps out
of those that are not here. What needs a package of its own
imports it when it is used."""

from tengen.interop import migrate, onnx, weights

__all__ = ["migrate", "onnx", "weights"]
