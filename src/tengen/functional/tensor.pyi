"""The names of `tensor.py`, for editors and type checkers. `python docs/generate.py` writes this file again."""

from tengen.functional import astype as astype
from tengen.functional import broadcast_to as broadcast_to
from tengen.functional import copy as copy
from tengen.functional import diag as diag
from tengen.functional import diagonal as diagonal
from tengen.functional import expand_dims as expand_dims
from tengen.functional import flatten as flatten
from tengen.functional import flip as flip
from tengen.functional import moveaxis as moveaxis
from tengen.functional import permute as permute
from tengen.functional import reshape as reshape
from tengen.functional import squeeze as squeeze
from tengen.functional import swapaxes as swapaxes
from tengen.functional import transpose as transpose
from tengen.functional import where as where
from tengen.functional import zeros_like as zeros_like

__all__ = [
    "astype", "broadcast_to", "copy", "diag", "diagonal", "expand_dims", "flatten", "flip", "moveaxis", "permute", "reshape",
    "squeeze", "swapaxes", "transpose", "where", "zeros_like"
]
