"""The names of `tensor.py`, for editors and type checkers. `python docs/generate.py` writes this file again."""

from tengen.functional import astype as astype
from tengen.functional import broadcast_to as broadcast_to
from tengen.functional import copy as copy
from tengen.functional import flatten as flatten
from tengen.functional import permute as permute
from tengen.functional import reshape as reshape
from tengen.functional import where as where
from tengen.functional import zeros_like as zeros_like

__all__ = [
    "astype", "broadcast_to", "copy", "flatten", "permute", "reshape", "where", "zeros_like"
]
