"""Functions of elements and products, as PyTorch's stand in `torch`. Those that mean the same here are Tengen's own."""

from __future__ import annotations

from typing import Any

from tengen import functional as F
from tengen import linalg as _linalg
from tengen.base.errors import ArgumentError, ShapeError
from tengen.functional import (
    abs,
    acos,
    acosh,
    addcdiv,
    addcmul,
    addmm,
    angle,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    baddbmm,
    bitwise_and,
    bitwise_not,
    bitwise_or,
    bitwise_xor,
    bmm,
    ceil,
    conj,
    copysign,
    cos,
    cosh,
    deg2rad,
    digamma,
    dot,
    erf,
    erfc,
    exp,
    exp2,
    expm1,
    floor,
    fmax,
    fmin,
    fmod,
    frac,
    hypot,
    imag,
    inner,
    isfinite,
    isinf,
    isnan,
    isneginf,
    isposinf,
    kron,
    lerp,
    lgamma,
    log,
    log1p,
    log2,
    log10,
    logaddexp,
    logaddexp2,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    logit,
    matmul,
    maximum,
    minimum,
    mul,
    nan_to_num,
    neg,
    nextafter,
    outer,
    polar,
    pow,
    rad2deg,
    real,
    reciprocal,
    relu,
    rsqrt,
    selu,
    sigmoid,
    sin,
    sinc,
    sinh,
    sqrt,
    tan,
    tanh,
    tensordot,
    threshold,
    trunc,
    view_as_complex,
    view_as_real,
)
from tengen.functional import mod as remainder
from tengen.ops.widths import rounded_once
from tengen.pytorch.functions import in_words
from tengen.pytorch.functions.dtypes import get_default_dtype
from tengen.tensor import Tensor
from tengen.tensor.dialect_views import not_written

absolute, arccos, arccosh, arcsin, arcsinh, arctan, arctan2, arctanh = abs, acos, acosh, asin, asinh, atan, atan2, atanh
multiply, negative, fix, mm, mv, ger = mul, neg, trunc, matmul, matmul, outer


def as_operand(x: Any, like: Any = None) -> Tensor:
    """A number as a tensor of the other operand's dtype where that holds it."""
    if isinstance(x, Tensor):
        return x
    made = Tensor(x)
    return made if not made.dtype.is_float else made.astype(like.dtype if like is not None and like.dtype.is_float else get_default_dtype())


def times(other: Any, alpha: Any) -> Any:
    """alpha * other; unsigned integers wrap, as in PyTorch."""
    wraps = isinstance(other, Tensor) and other.dtype.kind == "u" and isinstance(alpha, int) and alpha < 0
    return other if alpha == 1 else F.neg(other * -alpha) if wraps else other * alpha


def add(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """input + alpha * other."""
    return F.add(input, times(other, alpha))


def sub(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """input - alpha * other."""
    return F.sub(input, times(other, alpha))


def rsub(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """other - alpha * input."""
    return sub(other, input, alpha=alpha)


def div(input: Any, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    """input / other; rounded towards minus infinity with rounding_mode="floor", towards 0 with "trunc"."""
    if rounding_mode is None:
        return F.div(input, other)
    if rounding_mode == "floor":
        return F.floor_div(input, other)
    if rounding_mode != "trunc":
        raise ArgumentError(f"div: rounding_mode={rounding_mode!r} must be None, 'trunc' or 'floor'")
    x, y = as_operand(input), as_operand(other)
    if not x.dtype.is_inexact and not y.dtype.is_inexact:
        q, r = F.floor_div(x, y), F.mod(x, y)
        return q + F.logical_and(F.not_equal(r, 0), F.less(q, 0)).astype(q.dtype)
    return rounded_once(lambda x, y: F.trunc(F.div(x, y)))(x, y)  # a rounded quotient may be the next integer


subtract, divide, true_divide = sub, div, div


def floor_divide(input: Any, other: Any) -> Tensor:
    """The quotient, rounded towards minus infinity."""
    return F.floor_div(input, other)


def clamp(input: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """Each element, or the nearer of two limits: numbers or tensors, or None."""
    return F.clip(input, min, max)


clip = clamp


def clamp_min(input: Tensor, min: Any) -> Tensor:
    """`clamp` from below."""
    return F.clip(input, min, None)


def clamp_max(input: Tensor, max: Any) -> Tensor:
    """`clamp` from above."""
    return F.clip(input, None, max)


def round(input: Tensor, *, decimals: int = 0) -> Tensor:
    """Rounded to the nearest, ties to even, at so many decimals."""
    return input.round(decimals)


def where(condition: Tensor, input: Any = None, other: Any = None) -> Any:
    """input where the condition is true, else other; of the condition alone, the indices of what is true, one tensor for each axis."""
    if input is None and other is None:
        return F.non_zero(condition, as_tuple=True)
    return F.where(condition, input, other)


def where_of_value(self: Tensor, condition: Tensor, other: Any) -> Tensor:
    """The method ``x.where(condition, other)``: x where the condition is true."""
    return F.where(condition, self, other)


def svd(input: Tensor, some: bool = True, compute_uv: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """(U, S, V) with input = U diag(S) V^H: the older form, where `torch.linalg.svd` gives V^H. Without `some` all columns of U and V.

    Errors: ArgumentError without compute_uv
    """
    if not compute_uv:
        raise ArgumentError("svd(compute_uv=False) gives zeros for U and V in PyTorch; help: torch.linalg.svdvals(x)")
    u, s, vh = _linalg.svd(input, full_matrices=not some)
    return u, s, F.conj(F.swapaxes(vh, -1, -2))


def softmax(input: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """exp(x) / sum(exp(x)) along an axis."""
    return F.softmax(input if dtype is None else input.astype(dtype), dim)


def log_softmax(input: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """The logarithm of `softmax`."""
    return F.log_softmax(input if dtype is None else input.astype(dtype), dim)


def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """x, or weight * x below 0; one weight, or one for each channel (axis 1). Errors: ShapeError for other weights"""
    if weight.ndim > 1 or (weight.size > 1 and (not input.ndim or weight.size != input.shape[min(input.ndim - 1, 1)])):
        raise ShapeError(f"prelu: a weight of shape {weight.shape} for an input of shape {input.shape}; help: one, or one for each channel")
    if weight.size == 1 and input.ndim < weight.ndim:
        weight = weight.reshape(())
    many = weight.size > 1 and input.ndim > 1
    return F.prelu(input, weight.reshape((1, -1, *(1 for _ in input.shape[2:]))) if many else weight)


def float_power(input: Any, exponent: Any) -> Tensor:
    """`pow` in float64."""
    x, y = (v.astype("float64") if isinstance(v, Tensor) else v for v in (input, exponent))
    return F.pow(x, y)


def xlogy(input: Any, other: Any) -> Tensor:
    """input * log(other), 0 where input is 0."""
    x, y = as_operand(input), as_operand(other)
    return x.xlogy(y)


def eq(input: Tensor, other: Any) -> Tensor:
    """Whether elements are equal, each for itself."""
    return F.equal(input, other)


def equal(input: Tensor, other: Tensor) -> bool:
    """Whether both have one shape and equal elements."""
    return input.shape == other.shape and bool(F.all(F.equal(input, other)).item())


def ne(input: Tensor, other: Any) -> Tensor:
    """Whether elements differ."""
    return F.not_equal(input, other)


def lt(input: Tensor, other: Any) -> Tensor:
    """input < other."""
    return F.less(input, other)


def le(input: Tensor, other: Any) -> Tensor:
    """input <= other."""
    return F.less_equal(input, other)


def gt(input: Tensor, other: Any) -> Tensor:
    """input > other."""
    return F.greater(input, other)


def ge(input: Tensor, other: Any) -> Tensor:
    """input >= other."""
    return F.greater_equal(input, other)


not_equal, less, less_equal, greater, greater_equal = ne, lt, le, gt, ge


def isclose(input: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Tensor:
    """Whether |input - other| <= atol + rtol * |other|, each for itself. Errors: ArgumentError for negative tolerances"""
    _tolerances(rtol, atol)
    return F.isclose(input, other, rtol, atol, equal_nan)


def _tolerances(rtol: float, atol: float) -> None:
    if not (rtol >= 0 and atol >= 0):
        raise ArgumentError(f"isclose: rtol={rtol} and atol={atol} must not be negative")


def allclose(input: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    """Whether all are close, as a bool of Python's. Errors: ArgumentError for negative tolerances"""
    _tolerances(rtol, atol)
    return bool(F.allclose(input, other, rtol, atol, equal_nan).item())


def isreal(input: Tensor) -> Tensor:
    """Whether the imaginary part is 0."""
    return F.equal(F.imag(input), 0) if input.dtype.is_complex else F.ones(input.shape, "bool")


def isin(elements: Tensor, test_elements: Tensor, *, assume_unique: bool = False, invert: bool = False) -> Tensor:
    """Whether each element is among others."""
    return F.isin(as_operand(elements), as_operand(test_elements), invert)


def einsum(equation: Any, *operands: Any) -> Tensor:
    """Products and sums by Einstein's notation; the operands one by one, or as a list.

    PyTorch's other form has each operand before a list of numbers for its axes, and at last those of the result.

    >>> x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> einsum("ij->j", x).tolist(), einsum(x, [0, 1], [1]).tolist()
    ([4.0, 6.0], [4.0, 6.0])
    """
    if isinstance(equation, Tensor):
        parts = (equation, *operands)
        letters = ["".join("..." if i is Ellipsis else chr(65 + i if i < 26 else 71 + i) for i in axes) for axes in parts[1::2]]
        result = [] if len(parts) % 2 == 0 else ["".join("..." if i is Ellipsis else chr(65 + i if i < 26 else 71 + i) for i in parts[-1])]
        return F.einsum("->".join([",".join(letters), *result]), *parts[: 2 * len(letters) : 2])
    given = operands[0] if len(operands) == 1 and isinstance(operands[0], (list, tuple)) else operands
    made = F.einsum(equation, *given)
    made = made.astype("int64") if made.dtype == "uint64" and given[0].dtype != "uint64" else made  # a sum of one tensor's elements
    axes, arrow, result = equation.replace(" ", "").partition("->")
    return not_written(given[0], made, einsum, (), {}) if len(given) == 1 and arrow and set(axes) == set(result) else made


@rounded_once
def addbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta * input + alpha * the sum of the products of matrices."""
    product = F.bmm(batch1, batch2)
    return _plus(input, F.sum(product, 0).astype(product.dtype), beta, alpha)


def _plus(input: Tensor, product: Tensor, beta: float, alpha: float) -> Tensor:
    """beta * input + alpha * product; with beta=0 the input is not read, whatever it holds."""
    product = product if alpha == 1 else product * alpha
    return product if beta == 0 else (input if beta == 1 else input * beta) + product


@rounded_once
def addmv(input: Tensor, mat: Tensor, vec: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta * input + alpha * mat vec."""
    return _plus(input, F.matmul(mat, vec), beta, alpha)


@rounded_once
def addr(input: Tensor, vec1: Tensor, vec2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta * input + alpha * vec1 vec2^T."""
    return _plus(input, F.outer(vec1, vec2), beta, alpha)


def vdot(input: Tensor, other: Tensor) -> Tensor:
    """The dot product, of the conjugate of the first."""
    return F.dot(F.conj(input) if input.dtype.is_complex else input, other)


def chain_matmul(*matrices: Tensor) -> Tensor:
    """The product of matrices, in the cheapest order."""
    return _linalg.multi_dot(list(matrices))


def cross(input: Tensor, other: Tensor, dim: int | None = None) -> Tensor:
    """Products of vectors of three along an axis: the last one here unless another is given; PyTorch's `torch.cross` takes the first axis of
    extent 3."""
    if dim is None:
        dim = next((i for i, n in enumerate(input.shape) if n == 3), -1)
    return F.cross(input, other, axis=dim)


def bitwise_left_shift(input: Tensor, other: Any) -> Tensor:
    """input << other."""
    return F.left_shift(input, other)


def bitwise_right_shift(input: Tensor, other: Any) -> Tensor:
    """input >> other."""
    return F.right_shift(input, other)


def positive(input: Tensor) -> Tensor:
    """The tensor itself."""
    return input


def heaviside(input: Tensor, values: Tensor) -> Tensor:
    """0 below zero and of NaN, 1 above, `values` at zero."""
    return F.where(F.equal(input, 0), values, F.greater(input, 0).astype(input.dtype))


def sgn(input: Tensor) -> Tensor:
    """The sign; of complex numbers the one of length 1."""
    return F.where(F.equal(F.abs(input), 0), 0.0, input / F.abs(input)) if input.dtype.is_complex else sign(input)


def sign(input: Tensor) -> Tensor:
    """-1, 0 or 1, as the elements are below, at or above 0; bools as they are. Of NaN 0, where `functional.sign` has NaN."""
    if input.dtype.kind == "b":
        return input
    return F.where(F.isnan(input), 0.0, F.sign(input)) if input.dtype.is_float else F.sign(input)


def square(input: Tensor) -> Tensor:
    """x times x; of bools int64."""
    return F.square(input.astype("int64") if input.dtype.kind == "b" else input)


def signbit(input: Tensor) -> Tensor:
    """Whether elements have the sign minus, as -0.0 has."""
    return F.signbit(input) if input.dtype.is_float else F.less(input, 0) if input.dtype.kind == "i" else F.zeros(input.shape, "bool")


__all__ = [
    "abs", "absolute", "acos", "acosh", "add", "addbmm", "addcdiv", "addcmul", "addmm", "addmv", "addr", "allclose", "angle", "arccos",
    "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "asin", "asinh", "atan", "atan2", "atanh", "baddbmm", "bitwise_and",
    "bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "bmm", "ceil", "chain_matmul", "clamp",
    "clamp_max", "clamp_min", "clip", "conj", "copysign", "cos", "cosh", "cross", "deg2rad", "digamma", "div", "divide", "dot", "einsum", "eq",
    "equal", "erf", "erfc", "exp", "exp2", "expm1", "fix", "float_power", "floor", "floor_divide", "fmax", "fmin", "fmod", "frac", "ge", "ger",
    "greater", "greater_equal", "gt", "heaviside", "hypot", "imag", "inner", "isclose", "isfinite", "isin", "isinf", "isnan", "isneginf",
    "isposinf", "isreal", "kron", "le", "lerp", "less", "less_equal", "lgamma", "log", "log10", "log1p", "log2", "log_softmax", "logaddexp",
    "logaddexp2", "logical_and", "logical_not", "logical_or", "logical_xor", "logit", "lt", "matmul", "maximum", "minimum", "mm", "mul",
    "multiply", "mv", "nan_to_num", "ne", "neg", "negative", "nextafter", "not_equal", "outer", "polar", "positive", "pow", "prelu", "rad2deg",
    "real", "reciprocal", "relu", "remainder", "round", "rsqrt", "rsub", "selu", "sgn", "sigmoid", "sign", "signbit", "sin", "sinc", "sinh",
    "softmax", "sqrt", "square", "sub", "subtract", "svd", "tan", "tanh", "tensordot",
    "threshold", "true_divide", "trunc", "vdot", "view_as_complex",
    "view_as_real", "where", "xlogy",
]  # fmt: skip
in_words(globals(), __all__)
