"""ONNX files become networks of Tengen's. Needs the package ``onnx`` (``pip install tengen[onnx]``).

`load` gives a `Model`, a program to run and to ship; `to_module` a `Module`, which trains too. Read in this order: `reader.py` (bytes to
a checked description), `values.py` (what flows between nodes), `network.py` (how nodes are run), `ops/` (what each operator means).
"""

from tengen.interop.onnx.load import load, to_module

__all__ = ["load", "to_module"]
