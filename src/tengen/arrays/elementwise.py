"""Functions of each element, of the array API namespace: a table of Tengen's ops and of the dtypes that the standard lets them take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tengen.arrays.rules import array, scalar, two
from tengen.base.errors import DTypeError
from tengen.ops.define import REGISTRY
from tengen.tensor import Tensor

# name -> (category of dtypes, name of the op where it is another, what the docstring says)
UNARY = {
    "abs": ("numeric", "", "|x|."),
    "acos": ("floating-point", "", "The inverse cosine."),
    "acosh": ("floating-point", "", "The inverse hyperbolic cosine."),
    "asin": ("floating-point", "", "The inverse sine."),
    "asinh": ("floating-point", "", "The inverse hyperbolic sine."),
    "atan": ("floating-point", "", "The inverse tangent."),
    "atanh": ("floating-point", "", "The inverse hyperbolic tangent."),
    "bitwise_invert": ("integer or boolean", "bitwise_not", "All bits turned over; of a bool, its negation."),
    "ceil": ("real numeric", "", "The smallest integer that is not below x."),
    "cos": ("floating-point", "", "The cosine."),
    "cosh": ("floating-point", "", "The hyperbolic cosine."),
    "exp": ("floating-point", "", "e to the power x."),
    "expm1": ("floating-point", "", "e^x - 1 without cancellation near 0."),
    "floor": ("real numeric", "", "The largest integer that is not above x."),
    "isfinite": ("numeric", "", "Whether x is neither an infinity nor NaN."),
    "isinf": ("numeric", "", "Whether x is an infinity."),
    "isnan": ("numeric", "", "Whether x is NaN."),
    "log": ("floating-point", "", "The natural logarithm."),
    "log10": ("floating-point", "", "The logarithm to base 10."),
    "log1p": ("floating-point", "", "log(1 + x) without cancellation near 0."),
    "log2": ("floating-point", "", "The logarithm to base 2."),
    "logical_not": ("boolean", "", "Whether x is false."),
    "negative": ("numeric", "neg", "-x; unsigned integers wrap."),
    "positive": ("numeric", "copy", "x, in memory of its own."),
    "reciprocal": ("floating-point", "", "1 / x."),
    "round": ("numeric", "", "The nearest integer, halves to even."),
    "sign": ("numeric", "", "-1, 0 or 1; a NaN stays. Of a complex number x / |x|."),
    "signbit": ("real floating-point", "", "Whether the sign bit is set: of -0.0, too."),
    "sin": ("floating-point", "", "The sine."),
    "sinh": ("floating-point", "", "The hyperbolic sine."),
    "sqrt": ("floating-point", "", "The square root."),
    "square": ("numeric", "", "x * x."),
    "tan": ("floating-point", "", "The tangent."),
    "tanh": ("floating-point", "", "The hyperbolic tangent."),
    "trunc": ("real numeric", "", "x without its fraction."),
}
BINARY = {
    "add": ("numeric", "", "x1 + x2."),
    "atan2": ("real floating-point", "", "The angle of the point (x2, x1)."),
    "bitwise_and": ("integer or boolean", "", "The bits that are in both."),
    "bitwise_left_shift": ("integer", "left_shift", "x1 shifted left by x2 bits."),
    "bitwise_or": ("integer or boolean", "", "The bits that are in either."),
    "bitwise_right_shift": ("integer", "right_shift", "x1 shifted right by x2 bits, with its sign."),
    "bitwise_xor": ("integer or boolean", "", "The bits that are in exactly one."),
    "copysign": ("real floating-point", "", "|x1| with the sign of x2."),
    "divide": ("floating-point", "div", "x1 / x2."),
    "equal": ("all", "", "Whether x1 == x2."),
    "floor_divide": ("real numeric", "floor_div", "floor(x1 / x2)."),
    "greater": ("real numeric", "", "Whether x1 > x2."),
    "greater_equal": ("real numeric", "", "Whether x1 >= x2."),
    "hypot": ("real floating-point", "", "The square root of x1^2 + x2^2, without overflow."),
    "less": ("real numeric", "", "Whether x1 < x2."),
    "less_equal": ("real numeric", "", "Whether x1 <= x2."),
    "logaddexp": ("real floating-point", "", "log(e^x1 + e^x2) without overflow."),
    "logical_and": ("boolean", "", "Whether both are true."),
    "logical_or": ("boolean", "", "Whether either is true."),
    "logical_xor": ("boolean", "", "Whether exactly one is true."),
    "maximum": ("real numeric", "", "The larger one; a NaN wins."),
    "minimum": ("real numeric", "", "The smaller one; a NaN wins."),
    "multiply": ("numeric", "mul", "x1 * x2."),
    "nextafter": ("real floating-point", "", "The next number of the dtype after x1 on the way to x2."),
    "not_equal": ("all", "", "Whether x1 != x2."),
    "pow": ("numeric", "", "x1 to the power x2."),
    "remainder": ("real numeric", "mod", "x1 - floor(x1 / x2) * x2, with the sign of x2."),
    "subtract": ("numeric", "sub", "x1 - x2."),
}


def _unary(name: str, category: str, op: str, doc: str) -> Callable[[Tensor], Tensor]:
    call = REGISTRY[op or name].call

    def f(x: Tensor, /) -> Tensor:
        return call(array(name, x, category))

    f.__name__ = f.__qualname__ = name
    f.__doc__ = f"{doc} Takes arrays of {category} dtypes."
    return f


def _binary(name: str, category: str, op: str, doc: str) -> Callable[[Any, Any], Tensor]:
    call = REGISTRY[op or name].call

    def f(x1: Tensor | complex, x2: Tensor | complex, /) -> Tensor:
        return call(*two(name, x1, x2, category))

    f.__name__ = f.__qualname__ = name
    f.__doc__ = f"{doc} Takes arrays of {category} dtypes, of which one may be a Python number."
    return f


globals().update({name: _unary(name, *row) for name, row in UNARY.items()})
globals().update({name: _binary(name, *row) for name, row in BINARY.items()})


def clip(x: Tensor, /, min: Tensor | float | None = None, max: Tensor | float | None = None) -> Tensor:
    """min where x is below it, max where x is above it; of x's dtype. NaNs stay.

    Errors: DTypeError for bounds of another kind than x.

    >>> import tengen.array_api as xp
    >>> xp.clip(xp.asarray([1, 5, 9]), 2, 6).tolist()
    [2, 5, 6]
    """
    array("clip", x, "real numeric")
    y = x
    for bound, op in ((min, "maximum"), (max, "minimum")):
        if bound is None:
            continue
        if not isinstance(bound, Tensor):
            bound = _bound(x, bound, op)
        elif array("clip", bound, "real numeric").dtype.is_float != x.dtype.is_float:
            raise DTypeError(f"clip: a bound of {bound.dtype} for an array of {x.dtype}; help: array_api.astype")
        y = REGISTRY[op](y, bound)
    return REGISTRY["copy"](x) if y is x else REGISTRY["astype"](y, x.dtype)


def _bound(x: Tensor, value: Any, op: str) -> Tensor:
    """A Python number as a bound; one beyond the least or the largest integer of x's dtype is that."""
    d = x.dtype
    if type(value) is int and d.is_int:
        least = -(1 << (d.bits - 1)) if d.kind == "i" else 0
        most = least + (1 << d.bits) - 1
        value = least if value < least and op == "maximum" else most if value > most and op == "minimum" else value
    return scalar("clip", value, d)


def conj(x: Tensor, /) -> Tensor:
    """The complex conjugate; a real array as it is."""
    return REGISTRY["conj"](x) if array("conj", x, "numeric").dtype.kind == "c" else x


def real(x: Tensor, /) -> Tensor:
    """The real part; a real array as it is."""
    return REGISTRY["real"](x) if array("real", x, "numeric").dtype.kind == "c" else x


def imag(x: Tensor, /) -> Tensor:
    """The imaginary part of a complex array."""
    return REGISTRY["imag"](array("imag", x, "complex floating-point"))


def where(condition: Tensor, x1: Tensor | complex, x2: Tensor | complex, /) -> Tensor:
    """x1 where the bool array `condition` is true, else x2. One of them may be a Python number."""
    return REGISTRY["where"](array("where", condition, "boolean"), *two("where", x1, x2, "all"))


__all__ = sorted([*UNARY, *BINARY, "clip", "conj", "imag", "real", "where"])
