"""Models from the files that a command line names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tengen.deploy.loader import load_graph
from tengen.deploy.model import Model
from tengen.interop import onnx, tflite

IMPORTERS: dict[str, Callable[..., Model]] = {".onnx": onnx.load, ".tflite": tflite.load}  # by the ending of a file


def read_model(file: Path) -> Model:
    """A model from a file of Tengen's, or from one of another format, which its name ends with."""
    return IMPORTERS.get(file.suffix, load_graph)(file)
