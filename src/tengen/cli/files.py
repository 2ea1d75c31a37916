"""Models from the files that a command line names."""

from __future__ import annotations

from pathlib import Path

import tengen.interop as formats  # its modules are imported when they are named
from tengen.deploy.loader import load_graph
from tengen.deploy.model import Model


def read_model(file: Path) -> Model:
    """A model from a file of Tengen's, or from one of another format, which its name ends with."""
    match file.suffix:
        case ".onnx":
            return formats.onnx.load(file)
        case ".tflite":
            return formats.tflite.load(file)
    return load_graph(file)
