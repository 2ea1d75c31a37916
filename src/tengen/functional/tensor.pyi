"""The ops of `tensor.py`, for editors and type checkers. `python docs/generate.py` writes this file again."""

from tengen.functional import angle as angle
from tengen.functional import arange as arange
from tengen.functional import argsort as argsort
from tengen.functional import as_strided as as_strided
from tengen.functional import astype as astype
from tengen.functional import broadcast_to as broadcast_to
from tengen.functional import complex as complex
from tengen.functional import concat as concat
from tengen.functional import cond_take as cond_take
from tengen.functional import conj as conj
from tengen.functional import copy as copy
from tengen.functional import cumprod as cumprod
from tengen.functional import cumsum as cumsum
from tengen.functional import diag as diag
from tengen.functional import diagonal as diagonal
from tengen.functional import expand_dims as expand_dims
from tengen.functional import eye as eye
from tengen.functional import flatten as flatten
from tengen.functional import flip as flip
from tengen.functional import full as full
from tengen.functional import full_like as full_like
from tengen.functional import gather as gather
from tengen.functional import imag as imag
from tengen.functional import index_select as index_select
from tengen.functional import linspace as linspace
from tengen.functional import masked_fill as masked_fill
from tengen.functional import meshgrid as meshgrid
from tengen.functional import moveaxis as moveaxis
from tengen.functional import non_zero as non_zero
from tengen.functional import nonzero as nonzero
from tengen.functional import one_hot as one_hot
from tengen.functional import ones as ones
from tengen.functional import ones_like as ones_like
from tengen.functional import pad as pad
from tengen.functional import permute as permute
from tengen.functional import polar as polar
from tengen.functional import real as real
from tengen.functional import repeat as repeat
from tengen.functional import reshape as reshape
from tengen.functional import roll as roll
from tengen.functional import scatter as scatter
from tengen.functional import scatter_add as scatter_add
from tengen.functional import searchsorted as searchsorted
from tengen.functional import sliding_window as sliding_window
from tengen.functional import sliding_window_transpose as sliding_window_transpose
from tengen.functional import sort as sort
from tengen.functional import split as split
from tengen.functional import squeeze as squeeze
from tengen.functional import stack as stack
from tengen.functional import swapaxes as swapaxes
from tengen.functional import take as take
from tengen.functional import take_along_axis as take_along_axis
from tengen.functional import tile as tile
from tengen.functional import topk as topk
from tengen.functional import transpose as transpose
from tengen.functional import tril as tril
from tengen.functional import triu as triu
from tengen.functional import unfold as unfold
from tengen.functional import view_as_complex as view_as_complex
from tengen.functional import view_as_real as view_as_real
from tengen.functional import where as where
from tengen.functional import zeros as zeros
from tengen.functional import zeros_like as zeros_like

__all__ = [
    "angle", "arange", "argsort", "as_strided", "astype", "broadcast_to", "complex", "concat", "cond_take", "conj", "copy",
    "cumprod", "cumsum", "diag", "diagonal", "expand_dims", "eye", "flatten", "flip", "full", "full_like", "gather", "imag",
    "index_select", "linspace", "masked_fill", "meshgrid", "moveaxis", "non_zero", "nonzero", "one_hot", "ones", "ones_like",
    "pad", "permute", "polar", "real", "repeat", "reshape", "roll", "scatter", "scatter_add", "searchsorted", "sliding_window",
    "sliding_window_transpose", "sort", "split", "squeeze", "stack", "swapaxes", "take", "take_along_axis", "tile", "topk",
    "transpose", "tril", "triu", "unfold", "view_as_complex", "view_as_real", "where", "zeros", "zeros_like"
]
