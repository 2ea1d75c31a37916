"""Elementwise ops: each is one scalar expression, from which kernel, fusion, gradient and tests follow."""

from __future__ import annotations

import numpy as np

from tengen.base.dtype import bool_, dtype
from tengen.ir.types import TensorType
from tengen.kernels.source import Elementwise
from tengen.loops import lang
from tengen.loops.lang import call, cast, const, equal, not_equal, select
from tengen.ops.define import Case, elementwise, primitive

# ---- arithmetic ------------------------------------------------------------------------------------------------------


@elementwise
def add(x, y):
    """x + y.

    >>> from tengen import Tensor, functional as F
    >>> F.add(Tensor([1.0, 2.0]), 3).tolist()
    [4.0, 5.0]
    """
    return x + y


add.reference(np.add)


@elementwise
def sub(x, y):
    """x - y."""
    return x - y


sub.reference(np.subtract)


@elementwise
def mul(x, y):
    """x * y."""
    return x * y


mul.reference(np.multiply)


@elementwise(result="float", domain=(0.5, 2.0))
def div(x, y):
    """x / y, true division: integers give float32."""
    return x / y


div.reference(np.divide)


@elementwise(kinds="fi")
def neg(x):
    """-x."""
    return -x


neg.reference(np.negative)


@elementwise
def relu(x):
    """max(x, 0); the gradient at 0 is 0; a NaN stays."""
    return lang.maximum(x, const(0, x.dtype))


relu.reference(lambda x: np.maximum(x, 0))


@elementwise(result="float")
def exp(x):
    """e to the power x; at most 1 ULP off in float32."""
    return call("exp", x)


exp.reference(np.exp)


@elementwise(result="bool", kinds="fiub")
def equal_(x, y):
    """x == y, a bool tensor; false where either is NaN."""
    return equal(x, y)


equal_.reference(np.equal)


@elementwise(result="bool", kinds="fiub")
def not_equal_(x, y):
    """x != y, a bool tensor; true where either is NaN."""
    return not_equal(x, y)


not_equal_.reference(np.not_equal)

# ---- casts and copies --------------------------------------------------------------------------------------------------


@primitive
def astype(x: Tensor, dtype) -> Tensor:  # type: ignore[name-defined] # noqa: F821
    """x in another dtype: rounds to nearest even, float to int truncates and saturates (NaN gives 0), anything to bool is x != 0."""


@astype.canon
def _(types, dtype):
    return {"dtype": _dtype(dtype)}


_dtype = dtype


@astype.infer
def _(x, dtype):
    return TensorType(x.shape, dtype)


@astype.source
def _(ins, out, dtype):
    return Elementwise(lambda v: cast(v, dtype), ins, out.shape, dtype)


@astype.vjp
def _(g, x, dtype):
    return astype(g, x.dtype) if dtype.is_float and x.dtype.is_float else None


astype.reference(lambda x, dtype: x.astype(dtype.numpy))
astype.cases(Case(lambda rng: (rng.uniform(-3, 3, (3, 5)),), {"dtype": _dtype("float32")}))


@primitive
def copy(x: Tensor) -> Tensor:  # type: ignore[name-defined] # noqa: F821
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
_ = (select, bool_)


@elementwise(result="float", domain=(0.1, 3.0))
def log(x):
    """ln x."""
    return call("log", x)


log.reference(np.log)


@elementwise(result="float", domain=(0.1, 3.0))
def sqrt(x):
    """sqrt x."""
    return lang.unary("sqrt", x)


sqrt.reference(np.sqrt)


@elementwise(result="float", domain=(0.1, 3.0))
def rsqrt(x):
    """1 / sqrt x."""
    return call("rsqrt", x)


rsqrt.reference(lambda x: 1 / np.sqrt(x))


@elementwise(result="float", domain=(0.1, 3.0))
def pow(x, y):
    """x ** y."""
    return call("pow", x, y)


pow.reference(np.power)


@elementwise
def fma(x, y, z):
    """x * y + z rounded once."""
    return lang.fma(x, y, z)


fma.reference(lambda x, y, z: x * y + z)


@elementwise(kinds="fi")
def abs(x):
    """|x|."""
    return lang.unary("abs", x)


abs.reference(np.abs)


@elementwise(result="bool", kinds="f")
def isfinite(x):
    """finite."""
    return lang.unary("abs", x) < const(float("inf"), x.dtype)


isfinite.reference(np.isfinite)


@elementwise(kinds="fiub", own=1)
def where(mask, x, y):
    """mask ? x : y."""
    return select(cast(mask, bool_), x, y)


where.reference(np.where)


@elementwise(result="bool", kinds="fiub")
def less(x, y):
    """x < y."""
    return x < y


less.reference(np.less)


@elementwise(kinds="fiub")
def zeros_like(x):
    """0."""
    return const(0, x.dtype)


zeros_like.reference(np.zeros_like)
