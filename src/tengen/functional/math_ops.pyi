"""The ops of `math.py`, for editors and type checkers. `python docs/generate.py` writes this file again."""

from tengen.functional import all as all
from tengen.functional import allclose as allclose
from tengen.functional import any as any
from tengen.functional import argmax as argmax
from tengen.functional import argmin as argmin
from tengen.functional import argsort as argsort
from tengen.functional import bincount as bincount
from tengen.functional import count_nonzero as count_nonzero
from tengen.functional import diff as diff
from tengen.functional import histogram as histogram
from tengen.functional import isclose as isclose
from tengen.functional import isinf as isinf
from tengen.functional import isnan as isnan
from tengen.functional import max as max
from tengen.functional import mean as mean
from tengen.functional import median as median
from tengen.functional import min as min
from tengen.functional import prod as prod
from tengen.functional import quantile as quantile
from tengen.functional import sign as sign
from tengen.functional import sort as sort
from tengen.functional import std as std
from tengen.functional import sum as sum
from tengen.functional import topk as topk
from tengen.functional import unique as unique
from tengen.functional import var as var

__all__ = [
    "all", "allclose", "any", "argmax", "argmin", "argsort", "bincount", "count_nonzero", "diff", "histogram", "isclose",
    "isinf", "isnan", "max", "mean", "median", "min", "prod", "quantile", "sign", "sort", "std", "sum", "topk", "unique", "var"
]
