"""Every op, in one place each. `define.py` says how; each other file is a family.

Importing this package registers all ops.
"""

from tengen.ops import contract, conv, elementwise, nn, pool, reduce, rng, shape, update

__all__ = ["contract", "conv", "elementwise", "nn", "pool", "reduce", "rng", "shape", "update"]
