"""The names of `elemwise.py`, for editors and type checkers. `python docs/generate.py` writes this file again."""

from tengen.functional import abs as abs
from tengen.functional import add as add
from tengen.functional import astype as astype
from tengen.functional import copy as copy
from tengen.functional import div as div
from tengen.functional import equal as equal
from tengen.functional import exp as exp
from tengen.functional import fma as fma
from tengen.functional import isfinite as isfinite
from tengen.functional import less as less
from tengen.functional import log as log
from tengen.functional import mul as mul
from tengen.functional import neg as neg
from tengen.functional import not_equal as not_equal
from tengen.functional import pow as pow
from tengen.functional import relu as relu
from tengen.functional import relu_grad as relu_grad
from tengen.functional import rsqrt as rsqrt
from tengen.functional import sqrt as sqrt
from tengen.functional import sub as sub
from tengen.functional import where as where
from tengen.functional import zeros_like as zeros_like

__all__ = [
    "abs", "add", "astype", "copy", "div", "equal", "exp", "fma", "isfinite", "less", "log", "mul", "neg", "not_equal", "pow",
    "relu", "relu_grad", "rsqrt", "sqrt", "sub", "where", "zeros_like"
]
