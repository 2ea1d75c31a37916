"""Formats of other frameworks: `onnx` reads and writes their networks, `tflite` reads them, `torch` takes those of PyTorch and shares
tensors with it, `weights` reads and writes their checkpoints, `migrate` helps out of frameworks that are not here. Each is imported when
it is first named, and what needs a package of its own imports that when it is used."""

from typing import TYPE_CHECKING

from tengen.base.lazy import modules_of

if TYPE_CHECKING:
    from tengen.interop import migrate, onnx, tflite, torch, weights

__getattr__ = modules_of(__name__)
__all__ = ["migrate", "onnx", "tflite", "torch", "weights"]


def __dir__() -> list[str]:
    return sorted(__all__)
