"""Every op, in one place each. `define.py` says how; each other file is a family.

Importing this package registers all ops.
"""

from tengen.ops import elementwise, nn, reduce, rng, shape

__all__ = ["elementwise", "nn", "reduce", "rng", "shape"]
