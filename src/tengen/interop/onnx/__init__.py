"""ONNX files become networks of Tengen's, and models ONNX files. Needs the package ``onnx`` (``pip install tengen[onnx]``).

`load` gives a `Model`, a program to run and to ship; `to_module` a `Module`, which trains too; `save` writes such files (`writer.py`,
`writing.py`). Read in this order: `reader.py` (bytes to
a checked description), `values.py` (what flows between nodes), `network.py` (how nodes are run), `ops/` (what each operator means).
"""

from tengen.interop.onnx.load import load, to_module
from tengen.interop.onnx.runtimes import RUNTIMES
from tengen.interop.onnx.save import QUANTIZED, save, to_proto

__all__ = ["QUANTIZED", "RUNTIMES", "load", "save", "to_module", "to_proto"]
