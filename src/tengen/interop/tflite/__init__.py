"""TFLite files become networks of Tengen's, and models TFLite files. Needs the package ``tflite`` (``pip install tengen[tflite]``).

`load` gives a `Model`, a program to run and to ship; `to_module` a `Module`, which trains too; `save` writes such files (`writer.py`,
`writing.py`, `fusing.py`). Read in this order: `schema.py` and `flat.py` (the format), `reader.py` (bytes to a checked description),
`network.py` (how operators are run), `fixed.py` (TFLite's integer arithmetic), `ops/` (what each operator means).
"""

from tengen.interop.tflite.load import load, to_module
from tengen.interop.tflite.save import save, to_bytes

__all__ = ["load", "save", "to_bytes", "to_module"]
