"""Making, joining and rearranging tensors: the ops of `tengen.ops`' shape families, under MegEngine's names."""

from __future__ import annotations

from tengen.ops.define import REGISTRY
from tengen.tensor.methods import flatten

_NAMES = [
    "arange", "argsort", "astype", "broadcast_to", "concat", "cond_take", "cumprod", "cumsum", "diag", "diagonal", "expand_dims", "eye",
    "flatten", "flip", "full", "full_like", "gather", "linspace", "meshgrid", "moveaxis", "nonzero", "one_hot", "ones", "ones_like", "pad",
    "permute", "repeat", "reshape", "roll", "scatter", "searchsorted", "sort", "split", "squeeze", "stack", "swapaxes", "take", "tile",
    "topk", "transpose", "tril", "triu", "where", "zeros", "zeros_like", "copy", "index_select",
    "sliding_window", "sliding_window_transpose", "unfold",
]  # fmt: skip

__all__ = ["flatten"]
for _n in _NAMES:
    if _n in REGISTRY:
        globals()[_n] = REGISTRY[_n].call
        __all__.append(_n)
