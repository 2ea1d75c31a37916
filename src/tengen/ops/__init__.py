"""Every op, in one place each. `define.py` says how; each other file is a family.

Importing this package registers all ops.
"""

from tengen.ops import elementwise, shape

__all__ = ["elementwise", "shape"]
