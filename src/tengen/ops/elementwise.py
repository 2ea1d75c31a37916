"""Elementwise arithmetic, functions of mathematics, `where`, casts and copies.

Each op is one scalar expression over its operands, from which kernel, fusion, gradient and tests follow. float16 and bfloat16
are computed in float32 and rounded once; integers wrap. Comparisons and bits: `logic.py`; floor division, remainder and powers:
`division.py`; activations: `activation.py`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tengen.base.dtype import bool_, dtype
from tengen.ir.types import TensorType
from tengen.kernels.source import Elementwise
from tengen.loops import lang
from tengen.loops.lang import Expr, call, cast, const, equal, select
from tengen.ops.attributes import DTypeLike
from tengen.ops.define import Case, composite, elementwise, lookup, primitive

if TYPE_CHECKING:
    from tengen.tensor import Tensor

POSITIVE = (0.1, 3.0)  # where the tests sample functions of positive numbers

# ---- arithmetic ------------------------------------------------------------------------------------------------------


@elementwise(kinds="fiub", functional="elemwise", operator="add")
def add(x, y):
    """x + y; of bools, whether either is true.

    >>> from tengen import Tensor, functional as F
    >>> F.add(Tensor([1.0, 2.0]), 3).tolist()
    [4.0, 5.0]
    """
    return x | y if x.dtype is bool_ else x + y


add.reference(np.add)


@elementwise(functional="elemwise", operator="sub")
def sub(x, y):
    """x - y."""
    return x - y


sub.reference(np.subtract)


@elementwise(kinds="fiub", functional="elemwise", operator="mul")
def mul(x, y):
    """x * y; of bools, whether both are true."""
    return x & y if x.dtype is bool_ else x * y


mul.reference(np.multiply)


@elementwise(result="float", domain=[(-2.0, 2.0), (0.5, 2.0)], functional="elemwise", operator="truediv")
def div(x, y):
    """x / y, true division: integers give float32."""
    return x / y


div.reference(np.true_divide)


@elementwise(functional="elemwise")
def fma(x, y, z):
    """x * y + z, rounded once (integers wrap)."""
    return lang.fma(x, y, z) if x.dtype.is_float else x * y + z


fma.reference(lambda x, y, z: x * y + z)


@elementwise(functional="elemwise", operator="neg")
def neg(x):
    """-x; unsigned integers wrap, as in NumPy."""
    return const(0, x.dtype) - x if x.dtype.kind == "u" else -x


neg.reference(np.negative)


@elementwise(kinds="fiub", functional="elemwise", methods="abs", operator="abs")
def abs(x):
    """|x|; the gradient at 0 is 0. The least integer of a dtype stays, as in NumPy."""
    return x if x.dtype.kind in "ub" else lang.unary("abs", x)


abs.reference(np.abs)


@elementwise(functional="elemwise math", methods="sign")
def sign(x):
    """-1, 0 or 1; a NaN stays. The gradient is 0."""
    one, zero = const(1, x.dtype), const(0, x.dtype)
    if x.dtype.kind == "u":
        return select(x > 0, one, zero)
    return select(x > 0, one, select(x < 0, const(-1, x.dtype), select(equal(x, 0), zero, x)))


sign.reference(np.sign)


@elementwise(functional="elemwise", methods="square", autocast="high")
def square(x):
    """x * x."""
    return x * x


square.reference(np.square)


@elementwise(result="float", domain=POSITIVE, functional="elemwise", methods="sqrt", autocast="high")
def sqrt(x):
    """The square root, correctly rounded; NaN below 0, -0.0 stays."""
    return lang.unary("sqrt", x)


sqrt.reference(np.sqrt)


@elementwise(result="float", domain=POSITIVE, functional="elemwise", methods="rsqrt", autocast="high")
def rsqrt(x):
    """1 / sqrt(x), at most 1 ULP off; infinite at 0, NaN below."""
    return call("rsqrt", x)


rsqrt.reference(lambda x: 1 / np.sqrt(x))


@elementwise(result="float", domain=POSITIVE, functional="elemwise", autocast="high")
def reciprocal(x):
    """1 / x; integers give float32."""
    return 1.0 / x


reciprocal.reference(np.reciprocal)


@elementwise(kinds="fiub", functional="elemwise", methods="minimum")
def minimum(x, y):
    """The smaller of x and y; a NaN in either wins. In a tie the gradient goes to y."""
    return lang.minimum(x, y)


minimum.reference(np.minimum)


@elementwise(kinds="fiub", functional="elemwise", methods="maximum")
def maximum(x, y):
    """The larger of x and y; a NaN in either wins. In a tie the gradient goes to y."""
    return lang.maximum(x, y)


maximum.reference(np.maximum)


@composite(functional="elemwise", methods="clip", aliases={"min": "lower", "max": "upper"})
def clip(x: Tensor, lower: Tensor | None = None, upper: Tensor | None = None) -> Tensor:
    """min(max(x, lower), upper), promoted to one dtype; a NaN stays. Where x is a bound the gradient goes to x.

    Args: lower, upper: numbers or tensors that broadcast with x; None for no bound.

    >>> from tengen import Tensor, functional as F
    >>> F.clip(Tensor([-1.0, 0.5, 3.0]), 0, 1).tolist()
    [0.0, 0.5, 1.0]
    """
    y = x if lower is None else maximum(lower, x)  # in a tie the gradient goes to the second
    y = y if upper is None else minimum(upper, y)
    return copy(x) if y is x else y


clip.reference(lambda x, lower=None, upper=None: x if lower is None and upper is None else np.clip(x, lower, upper))
clip.cases(
    Case(lambda r: (r.uniform(-2, 2, (3, 17)), np.float64(-1), np.float64(0.5))),
    Case(lambda r: (r.uniform(-2, 2, (3, 17)), r.uniform(-1, 0, 17), None)),
    Case(lambda r: (r.uniform(-2, 2, (3, 17)), None, r.uniform(0, 1, (3, 1)))),
    Case(lambda r: (r.uniform(-2, 2, (3, 17)), None, None)),
)

# ---- rounding --------------------------------------------------------------------------------------------------------


def _rounding(op: str, x: Expr) -> Expr:
    return lang.unary(op, x) if x.dtype.is_float else x


@elementwise(functional="elemwise")
def round(x):
    """The nearest integer, halves to even; integers stay. The gradient is 0.

    >>> from tengen import Tensor, functional as F
    >>> F.round(Tensor([0.5, 1.5, -0.7])).tolist()
    [0.0, 2.0, -1.0]
    """
    return _rounding("rint", x)


round.reference(np.round)


@elementwise(functional="elemwise", methods="floor")
def floor(x):
    """The largest integer that is not above x. The gradient is 0."""
    return _rounding("floor", x)


floor.reference(np.floor)


@elementwise(functional="elemwise", methods="ceil")
def ceil(x):
    """The smallest integer that is not below x. The gradient is 0."""
    return _rounding("ceil", x)


ceil.reference(np.ceil)


@elementwise(functional="elemwise")
def trunc(x):
    """x without its fraction. The gradient is 0."""
    return _rounding("trunc", x)


trunc.reference(np.trunc)

# ---- exponentials and logarithms -------------------------------------------------------------------------------------


@elementwise(result="float", functional="elemwise", methods="exp", autocast="high")
def exp(x):
    """e to the power x; at most 2 ULP off."""
    return call("exp", x)


exp.reference(np.exp)


@elementwise(result="float", functional="elemwise", autocast="high")
def exp2(x):
    """2 to the power x; exact at integers, at most 2 ULP off elsewhere."""
    return call("exp2", x)


exp2.reference(np.exp2)


@elementwise(result="float", functional="elemwise", autocast="high")
def expm1(x):
    """e^x - 1 without cancellation near 0; at most 2 ULP off."""
    return call("expm1", x)


expm1.reference(np.expm1)


@elementwise(result="float", domain=POSITIVE, functional="elemwise", methods="log", autocast="high")
def log(x):
    """The natural logarithm, at most 2 ULP off; -inf at 0, NaN below."""
    return call("log", x)


log.reference(np.log)


@elementwise(result="float", domain=POSITIVE, functional="elemwise", autocast="high")
def log2(x):
    """The logarithm to base 2; exact at powers of 2, at most 2 ULP off elsewhere; -inf at 0, NaN below."""
    return call("log2", x)


log2.reference(np.log2)


@elementwise(result="float", domain=POSITIVE, functional="elemwise", autocast="high")
def log10(x):
    """The logarithm to base 10, at most 2 ULP off; -inf at 0, NaN below."""
    return call("log10", x)


log10.reference(np.log10)


@elementwise(result="float", domain=(-0.8, 3.0), functional="elemwise", methods="log1p", autocast="high")
def log1p(x):
    """log(1 + x) without cancellation near 0, at most 2 ULP off; -inf at -1, NaN below."""
    return call("log1p", x)


log1p.reference(np.log1p)


@elementwise(result="float", functional="elemwise", autocast="high")
def logaddexp(x, y):
    """log(e^x + e^y) without overflow: the larger of the two, plus log1p(e^-|x - y|).

    Gradient:  sigmoid(x - y) and sigmoid(y - x)
    """
    far = lang.maximum(x, y) + call("log1p", call("exp", -lang.unary("abs", x - y)))
    return select(equal(x, y), x + math.log(2.0), far)  # equal infinities have no difference


@logaddexp.vjp
def _(g, x, y):
    sigmoid = lookup("sigmoid")
    return (lambda: mul(g, sigmoid(sub(x, y)))), (lambda: mul(g, sigmoid(sub(y, x))))


logaddexp.reference(np.logaddexp)

# ---- trigonometry ----------------------------------------------------------------------------------------------------


@elementwise(result="float", functional="elemwise", methods="sin", autocast="high")
def sin(x):
    """The sine of x in radians, at most 2 ULP off for every finite x; NaN at infinity."""
    return call("sin", x)


sin.reference(np.sin)


@elementwise(result="float", functional="elemwise", methods="cos", autocast="high")
def cos(x):
    """The cosine of x in radians, at most 2 ULP off for every finite x; NaN at infinity."""
    return call("cos", x)


cos.reference(np.cos)


@elementwise(result="float", domain=(-1.2, 1.2), functional="elemwise", autocast="high")
def tan(x):
    """The tangent of x in radians, at most 2 ULP off for every finite x; NaN at infinity."""
    return call("tan", x)


tan.reference(np.tan)


@elementwise(result="float", domain=(-0.9, 0.9), functional="elemwise", autocast="high")
def asin(x):
    """The inverse sine in [-pi/2, pi/2], at most 2 ULP off; NaN outside [-1, 1]."""
    return call("asin", x)


asin.reference(np.arcsin)


@elementwise(result="float", domain=(-0.9, 0.9), functional="elemwise", autocast="high")
def acos(x):
    """The inverse cosine in [0, pi], at most 2 ULP off; NaN outside [-1, 1]."""
    return call("acos", x)


acos.reference(np.arccos)


@elementwise(result="float", functional="elemwise")
def atan(x):
    """The inverse tangent in [-pi/2, pi/2], at most 2 ULP off."""
    return call("atan", x)


atan.reference(np.arctan)


@elementwise(result="float", domain=POSITIVE, functional="elemwise", autocast="high")
def atan2(y, x):
    """The angle of the point (x, y) in [-pi, pi], at most 2 ULP off; zeros and infinities as in C99."""
    return call("atan2", y, x)


atan2.reference(np.arctan2)


@elementwise(result="float", functional="elemwise", autocast="high")
def sinh(x):
    """The hyperbolic sine, at most 2 ULP off."""
    return call("sinh", x)


sinh.reference(np.sinh)


@elementwise(result="float", functional="elemwise", autocast="high")
def cosh(x):
    """The hyperbolic cosine, at most 2 ULP off."""
    return call("cosh", x)


cosh.reference(np.cosh)


@elementwise(result="float", functional="elemwise", methods="tanh")
def tanh(x):
    """The hyperbolic tangent, at most 2 ULP off."""
    return call("tanh", x)


tanh.reference(np.tanh)


@elementwise(result="float", functional="elemwise", autocast="high")
def asinh(x):
    """The inverse hyperbolic sine, at most 2 ULP off (float64: 4)."""
    return call("asinh", x)


asinh.reference(np.arcsinh)


@elementwise(result="float", domain=(1.1, 3.0), functional="elemwise", autocast="high")
def acosh(x):
    """The inverse hyperbolic cosine, at most 2 ULP off (float64: 4); NaN below 1."""
    return call("acosh", x)


acosh.reference(np.arccosh)


@elementwise(result="float", domain=(-0.9, 0.9), functional="elemwise", autocast="high")
def atanh(x):
    """The inverse hyperbolic tangent, at most 2 ULP off (float64: 4); infinite at -1 and 1, NaN beyond."""
    return call("atanh", x)


atanh.reference(np.arctanh)

# ---- others ----------------------------------------------------------------------------------------------------------


@elementwise(result="float", functional="elemwise")
def erf(x):
    """The error function, at most 2 ULP off."""
    return call("erf", x)


erf.reference(np.vectorize(math.erf, otypes=[np.float64]))


@elementwise(result="float", functional="elemwise")
def erfc(x):
    """1 - erf(x) without cancellation, at most 2 ULP off (float64: 4)."""
    return call("erfc", x)


erfc.reference(np.vectorize(math.erfc, otypes=[np.float64]))


@elementwise(result="float", domain=POSITIVE, functional="elemwise", autocast="high")
def lgamma(x):
    """log|gamma(x)|, at most 3 ULP off (float32: 1) of the result, or of 1/2 where that is more; infinite at 0 and negative
    integers. Below 0 the error is relative to the larger terms of the reflection formula.

    Gradient:  digamma(x)
    """
    return call("lgamma", x)


def _np_lgamma(x):
    try:
        return math.lgamma(x)
    except (ValueError, OverflowError):  # at a pole, or too large
        return math.inf


lgamma.reference(np.vectorize(_np_lgamma, otypes=[np.float64]))


@elementwise(result="float", domain=(0.5, 3.0), functional="elemwise", autocast="high")
def digamma(x):
    """The derivative of `lgamma`, as exact as that; NaN at negative integers. Its own derivatives are those of the series of
    trigamma.
    """
    return call("digamma", x)


@digamma.reference
def _(x):
    """By reflection from below 0, the recurrence up to 40, and four terms of the series there (Abramowitz and Stegun, 6.3)."""
    x = np.asarray(x, np.float64)
    right = np.where(x < 0, 1 - x, x)
    y = right + 40
    far = np.log(y) - 1 / (2 * y) - 1 / (12 * y**2) + 1 / (120 * y**4) - 1 / (252 * y**6)
    far = far - 1 / right - sum(1 / (right + k) for k in range(1, 40))
    found = np.where(x < 0, far - np.pi / np.tan(np.pi * (x - np.rint(x))), far)
    return np.where((x < 0) & (x == np.rint(x)), np.nan, found)


@elementwise(result="float", domain=POSITIVE, functional="elemwise", autocast="high")
def cbrt(x):
    """The cube root, of negative numbers too; at most 2 ULP off."""
    return call("cbrt", x)


cbrt.reference(np.cbrt)


@elementwise(kinds="fiub", own=1, functional="elemwise tensor", methods="where")
def where(mask, x, y):
    """x where the mask is true (not zero), else y. The dtype is what x and y promote to.

    >>> from tengen import Tensor, functional as F
    >>> F.where(Tensor([True, False]), Tensor([1.0, 2.0]), 0).tolist()
    [1.0, 0.0]
    """
    return select(cast(mask, bool_), x, y)


@where.vjp
def _(g, mask, x, y):
    return None, (lambda: where(mask, g, 0)), (lambda: where(mask, 0, g))


where.reference(np.where)

# ---- casts and copies ------------------------------------------------------------------------------------------------


@primitive(functional="elemwise tensor", methods="astype")
def astype(x: Tensor, dtype: DTypeLike) -> Tensor:
    """x in another dtype: rounds to nearest even, float to int truncates and saturates (NaN gives 0), integers wrap, anything
    to bool is x != 0.

    >>> from tengen import Tensor, functional as F
    >>> F.astype(Tensor([1.7, -1.7, 300.0]), "int8").tolist()
    [1, -1, 127]
    """


_dtype = dtype


@astype.infer
def _(x, dtype):
    return TensorType(x.shape, dtype)


@astype.source
def _(ins, out, dtype):
    return Elementwise(lambda v: cast(v, dtype), ins, out.shape, dtype)


astype.identity(lambda x, out, **attrs: True)  # of equal types


@astype.vjp
def _(g, x, dtype):
    return astype(g, x.dtype) if dtype.is_float and x.dtype.is_float else None


astype.reference(lambda x, dtype: x.astype(dtype.numpy))
astype.cases(
    Case(lambda rng: (rng.uniform(-3, 3, (3, 5)),), {"dtype": _dtype("float64")}),
    Case(lambda rng: (rng.uniform(-3, 3, (3, 5)),), {"dtype": _dtype("float32")}, grad=False),
    Case(lambda rng: (rng.uniform(-300, 300, (3, 17)).astype(np.int64),), {"dtype": _dtype("uint8")}, grad=False),
)


@primitive(functional="elemwise tensor", aliases={"inp": "x", "device": ""})
def copy(x: Tensor) -> Tensor:
    """x, dense in logical order, in memory of its own."""


@copy.infer
def _(x):
    return x


@copy.source
def _(ins, out):
    return ins[0]


@copy.vjp
def _(g, x):
    return g


copy.reference(lambda x: x)
copy.cases(Case(lambda rng: (rng.uniform(-3, 3, (3, 5)),)))
