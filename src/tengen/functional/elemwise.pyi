"""The ops of `elemwise.py`, for editors and type checkers. `python docs/generate.py` writes this file again."""

from tengen.functional import abs as abs
from tengen.functional import acos as acos
from tengen.functional import acosh as acosh
from tengen.functional import add as add
from tengen.functional import asin as asin
from tengen.functional import asinh as asinh
from tengen.functional import astype as astype
from tengen.functional import atan as atan
from tengen.functional import atan2 as atan2
from tengen.functional import atanh as atanh
from tengen.functional import bitwise_and as bitwise_and
from tengen.functional import bitwise_not as bitwise_not
from tengen.functional import bitwise_or as bitwise_or
from tengen.functional import bitwise_xor as bitwise_xor
from tengen.functional import cbrt as cbrt
from tengen.functional import ceil as ceil
from tengen.functional import clip as clip
from tengen.functional import copy as copy
from tengen.functional import copysign as copysign
from tengen.functional import cos as cos
from tengen.functional import cosh as cosh
from tengen.functional import digamma as digamma
from tengen.functional import div as div
from tengen.functional import elu as elu
from tengen.functional import equal as equal
from tengen.functional import erf as erf
from tengen.functional import erfc as erfc
from tengen.functional import exp as exp
from tengen.functional import exp2 as exp2
from tengen.functional import expm1 as expm1
from tengen.functional import floor as floor
from tengen.functional import floor_div as floor_div
from tengen.functional import fma as fma
from tengen.functional import gelu as gelu
from tengen.functional import greater as greater
from tengen.functional import greater_equal as greater_equal
from tengen.functional import hsigmoid as hsigmoid
from tengen.functional import hswish as hswish
from tengen.functional import hypot as hypot
from tengen.functional import isfinite as isfinite
from tengen.functional import isinf as isinf
from tengen.functional import isnan as isnan
from tengen.functional import leaky_relu as leaky_relu
from tengen.functional import left_shift as left_shift
from tengen.functional import lerp as lerp
from tengen.functional import less as less
from tengen.functional import less_equal as less_equal
from tengen.functional import lgamma as lgamma
from tengen.functional import log as log
from tengen.functional import log10 as log10
from tengen.functional import log1p as log1p
from tengen.functional import log2 as log2
from tengen.functional import logaddexp as logaddexp
from tengen.functional import logical_and as logical_and
from tengen.functional import logical_not as logical_not
from tengen.functional import logical_or as logical_or
from tengen.functional import logical_xor as logical_xor
from tengen.functional import logsigmoid as logsigmoid
from tengen.functional import maximum as maximum
from tengen.functional import minimum as minimum
from tengen.functional import mish as mish
from tengen.functional import mod as mod
from tengen.functional import mul as mul
from tengen.functional import nan_to_num as nan_to_num
from tengen.functional import neg as neg
from tengen.functional import nextafter as nextafter
from tengen.functional import not_equal as not_equal
from tengen.functional import pow as pow
from tengen.functional import prelu as prelu
from tengen.functional import reciprocal as reciprocal
from tengen.functional import relu as relu
from tengen.functional import relu6 as relu6
from tengen.functional import right_shift as right_shift
from tengen.functional import round as round
from tengen.functional import rsqrt as rsqrt
from tengen.functional import selu as selu
from tengen.functional import sigmoid as sigmoid
from tengen.functional import sign as sign
from tengen.functional import signbit as signbit
from tengen.functional import silu as silu
from tengen.functional import sin as sin
from tengen.functional import sinh as sinh
from tengen.functional import sqrt as sqrt
from tengen.functional import square as square
from tengen.functional import sub as sub
from tengen.functional import tan as tan
from tengen.functional import tanh as tanh
from tengen.functional import trunc as trunc
from tengen.functional import where as where

__all__ = [
    "abs", "acos", "acosh", "add", "asin", "asinh", "astype", "atan", "atan2", "atanh", "bitwise_and", "bitwise_not",
    "bitwise_or", "bitwise_xor", "cbrt", "ceil", "clip", "copy", "copysign", "cos", "cosh", "digamma", "div", "elu", "equal",
    "erf", "erfc", "exp", "exp2", "expm1", "floor", "floor_div", "fma", "gelu", "greater", "greater_equal", "hsigmoid",
    "hswish", "hypot", "isfinite", "isinf", "isnan", "leaky_relu", "left_shift", "lerp", "less", "less_equal", "lgamma", "log",
    "log10", "log1p", "log2", "logaddexp", "logical_and", "logical_not", "logical_or", "logical_xor", "logsigmoid", "maximum",
    "minimum", "mish", "mod", "mul", "nan_to_num", "neg", "nextafter", "not_equal", "pow", "prelu", "reciprocal", "relu",
    "relu6", "right_shift", "round", "rsqrt", "selu", "sigmoid", "sign", "signbit", "silu", "sin", "sinh", "sqrt", "square",
    "sub", "tan", "tanh", "trunc", "where"
]
