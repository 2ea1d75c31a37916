"""Arithmetic, functions, comparisons, logic and activations, element by element."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tengen.functional as F
from tengen.base.dtype import bool_, float32, int64
from tengen.functional import numbers
from tengen.interop.torch.dtypes import alike, floating, named, of, result_type, tensor
from tengen.interop.torch.registry import op
from tengen.tensor import Tensor


def _unary(f: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """A function of floats: integers and bools become float32."""
    return lambda x: f(floating(x))


for name, function in {
    "acos": F.acos, "acosh": F.acosh, "asin": F.asin, "asinh": F.asinh, "atan": F.atan, "atanh": F.atanh, "cos": F.cos, "cosh": F.cosh,
    "erf": F.erf, "erfc": F.erfc, "exp": F.exp, "exp2": F.exp2, "expm1": F.expm1, "log": F.log, "log10": F.log10, "log1p": F.log1p,
    "log2": F.log2, "reciprocal": F.reciprocal, "rsqrt": F.rsqrt, "sigmoid": F.sigmoid, "sin": F.sin, "sinh": F.sinh, "sqrt": F.sqrt,
    "tan": F.tan, "tanh": F.tanh, "lgamma": F.lgamma, "digamma": F.digamma,
}.items():  # fmt: skip
    op(name)(_unary(function))

for name, function in {
    "silu": F.silu, "mish": F.mish, "relu6": F.relu6, "selu": F.selu, "hardsigmoid": F.hsigmoid, "hardswish": F.hswish, "isinf": F.isinf,
    "isnan": F.isnan, "isfinite": F.isfinite, "bitwise_not": F.bitwise_not, "logical_not": F.logical_not, "square": F.square,
    "signbit": lambda x: F.signbit(x) if x.dtype.is_inexact else F.less(x, 0),
    "log_sigmoid": F.logsigmoid, "relu": F.relu, "conj": F.conj, "real": F.real, "imag": F.imag,
    "view_as_real": F.view_as_real, "view_as_complex": F.view_as_complex,
}.items():  # fmt: skip
    op(name)(lambda x, f=function: f(x))


def _same_for_integers(f: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda x: f(x) if x.dtype.is_inexact else x


for name, function in {"ceil": F.ceil, "floor": F.floor, "trunc": F.trunc, "round": F.round}.items():
    op(name)(_same_for_integers(function))


@op("round.decimals")
def round_decimals(x: Tensor, *, decimals: int) -> Tensor:
    """To as many digits behind the point."""
    scale = 10.0 ** abs(decimals)
    return F.round(x * scale) / scale if decimals >= 0 else F.round(x / scale) * scale


@op("abs")
def absolute(x: Tensor) -> Tensor:
    """Bools stay."""
    return x if x.dtype is bool_ else F.abs(x)


@op("neg")
def neg(x: Tensor) -> Tensor:
    """-x."""
    return F.neg(x)


@op("sign", "sgn")
def sign(x: Tensor) -> Tensor:
    """-1, 0 or 1; of a NaN 0, as PyTorch says. Bools stay."""
    if x.dtype is bool_:
        return x
    return F.where(F.isnan(x), 0.0, F.sign(x)) if x.dtype.is_float else F.sign(x)


@op("add.Tensor", "add.Scalar")
def add(x: Any, y: Any, scale: Any = 1, *, alpha: Any = 1) -> Tensor:
    """x + alpha y."""
    a = alpha if alpha != 1 else scale
    x, y = alike(x, y)
    return F.add(x, y if a == 1 else F.mul(y, of(a, result_type(x, y))))


@op("sub.Tensor", "sub.Scalar")
def sub(x: Any, y: Any, scale: Any = 1, *, alpha: Any = 1) -> Tensor:
    """x - alpha y."""
    a = alpha if alpha != 1 else scale
    x, y = alike(x, y)
    return F.sub(x, y if a == 1 else F.mul(y, of(a, result_type(x, y))))


@op("rsub.Scalar", "rsub.Tensor")
def rsub(x: Any, y: Any, scale: Any = 1, *, alpha: Any = 1) -> Tensor:
    """y - alpha x."""
    return sub(y, x, scale, alpha=alpha)


@op("mul.Tensor", "mul.Scalar")
def mul(x: Any, y: Any) -> Tensor:
    """x y."""
    return F.mul(*alike(x, y))


def _floats(x: Any, y: Any) -> list[Any]:
    d = result_type(x, y)
    d = d if d.is_inexact else float32
    return [tensor(x, d), of(y, d)]


@op("div.Tensor", "div.Scalar", "true_divide.Tensor")
def div(x: Any, y: Any) -> Tensor:
    """x / y; of integers float32."""
    return F.div(*_floats(x, y))


@op("div.Tensor_mode", "div.Scalar_mode")
def div_mode(x: Any, y: Any, *, rounding_mode: str | None = None) -> Tensor:
    """x / y, rounded towards 0 ("trunc") or down ("floor"); such quotients of integers are integers."""
    if rounding_mode is None:
        return div(x, y)
    a, b = alike(x, y)
    if a.dtype is bool_ if isinstance(a, Tensor) else isinstance(a, bool):
        a, b = of(a, int64), of(b, int64)
    if rounding_mode == "floor":
        return F.floor_div(a, b)
    if result_type(a, b).is_inexact:
        return F.trunc(F.div(a, b))
    q = F.floor_div(a, b)
    inexact = F.not_equal(F.mul(q, b), a)
    return F.add(q, F.logical_and(inexact, F.less(q, 0)).astype(q.dtype))


@op("floor_divide")
def floor_divide(x: Any, y: Any) -> Tensor:
    """The quotient, rounded down."""
    return div_mode(x, y, rounding_mode="floor")


@op("remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor")
def remainder(x: Any, y: Any) -> Tensor:
    """With the sign of the divisor, as Python's."""
    return F.mod(*alike(x, y))


@op("fmod.Tensor", "fmod.Scalar")
def fmod(x: Any, y: Any) -> Tensor:
    """With the sign of the dividend, as C's."""
    a, b = alike(x, y)
    d = result_type(a, b)
    if d.kind in "ub":
        return F.mod(a, b)
    if d.is_int:  # the least integer has no absolute value
        return F.sub(a, F.mul(div_mode(a, b, rounding_mode="trunc"), b))
    return F.copysign(F.mod(F.abs(a), F.abs(b)), a)


@op("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")
def power(x: Any, y: Any) -> Tensor:
    """x to the power y."""
    a, b = alike(x, y)
    if isinstance(a, Tensor) and a.dtype.is_inexact and not isinstance(b, Tensor):
        if b == 2:
            return F.square(a)
        if b == 3:
            return F.mul(F.square(a), a)
        if b == 0.5:
            return F.sqrt(a)
        if b == -0.5:
            return F.rsqrt(a)
        if b == 1:
            return a
        if b == 0:
            return F.ones_like(a)
    return F.pow(a, b)


@op("atan2")
def atan2(y: Tensor, x: Tensor) -> Tensor:
    """The angle of the point (x, y)."""
    return F.atan2(*_floats(y, x))


@op("atan2.out")
def atan2_out(y: Tensor, x: Tensor, *, out: Tensor) -> Tensor:
    """`atan2`, in the dtype of `out`."""
    return atan2(y, x).astype(out.dtype)


for name, binary in {
    "eq": F.equal, "ne": F.not_equal, "lt": F.less, "le": F.less_equal, "gt": F.greater, "ge": F.greater_equal,
}.items():  # fmt: skip
    op(f"{name}.Tensor", f"{name}.Scalar")(lambda x, y, f=binary: f(*alike(x, y)))

for name, binary in {"and": F.bitwise_and, "or": F.bitwise_or, "xor": F.bitwise_xor}.items():
    op(f"bitwise_{name}.Tensor", f"bitwise_{name}.Scalar", f"bitwise_{name}.Scalar_Tensor")(lambda x, y, f=binary: f(*alike(x, y)))

for name, binary in {"and": F.logical_and, "or": F.logical_or, "xor": F.logical_xor}.items():
    op(f"logical_{name}")(lambda x, y, f=binary: f(x, y))

for name, binary in {"left": F.left_shift, "right": F.right_shift}.items():
    op(
        f"bitwise_{name}_shift.Tensor",
        f"bitwise_{name}_shift.Tensor_Scalar",
        f"__{name[0]}shift__.Scalar",
        f"__{name[0]}shift__.Tensor",
    )(lambda x, y, f=binary: f(*alike(x, y)))

for name, binary in {"maximum": F.maximum, "minimum": F.minimum}.items():
    op(name)(lambda x, y, f=binary: f(*alike(x, y)))

for name, binary in {"fmax": (F.maximum, -math.inf), "fmin": (F.minimum, math.inf)}.items():

    @op(name)
    def _(x: Tensor, y: Tensor, f=binary[0]) -> Tensor:
        a, b = alike(x, y)
        return f(F.where(F.isnan(a), b, a), F.where(F.isnan(b), a, b))


for name, binary in {
    "copysign.Tensor": F.copysign,
    "copysign.Scalar": F.copysign,
    "hypot": F.hypot,
    "logaddexp": F.logaddexp,
    "nextafter": F.nextafter,
}.items():
    op(name)(lambda x, y, f=binary: f(*_floats(x, y)))


op("angle")(lambda x: F.angle(floating(x)))


@op("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def where(mask: Tensor, x: Any, y: Any) -> Tensor:
    """x where the mask is true, else y."""
    return F.where(mask, *alike(x, y))


@op("clamp", "clamp.Tensor", "clip", "clip.Tensor")
def clamp(x: Tensor, low: Any = None, high: Any = None) -> Tensor:
    """min(max(x, low), high). The gradient at a bound goes to x."""
    d = result_type(*(v for v in (x, low, high) if v is not None))
    x = of(x, d)
    x = x if low is None else F.maximum(tensor(low, d), x)
    return x if high is None else F.minimum(tensor(high, d), x)


@op("clamp_min", "clamp_min.Tensor")
def clamp_min(x: Tensor, low: Any) -> Tensor:
    """max(x, low)."""
    return clamp(x, low)


@op("clamp_max", "clamp_max.Tensor")
def clamp_max(x: Tensor, high: Any) -> Tensor:
    """min(x, high)."""
    return clamp(x, None, high)


@op("hardtanh")
def hardtanh(x: Tensor, low: Any = -1, high: Any = 1) -> Tensor:
    """x between two bounds, where its gradient is 0."""
    return F.minimum(F.maximum(x, tensor(low, x.dtype)), tensor(high, x.dtype))


@op("elu")
def elu(x: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Tensor:
    """scale x where x > 0, else scale alpha (e^(input_scale x) - 1)."""
    if scale == 1 and input_scale == 1:
        return F.elu(x, float(alpha))
    below = F.expm1(F.minimum(x, 0) * float(input_scale)) * float(alpha * scale)
    return F.where(F.greater(x, 0), x * float(scale), below)


@op("leaky_relu")
def leaky_relu(x: Tensor, slope: float = 0.01) -> Tensor:
    """x where x > 0, else slope x."""
    return F.leaky_relu(x, float(slope))


@op("gelu")
def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    """x P(X <= x) for a standard normal X."""
    return F.gelu(x, approximate)


@op("softplus")
def softplus(x: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    """log(1 + e^(beta x)) / beta; x where beta x is above the threshold."""
    y = F.softplus(x * float(beta)) / float(beta) if beta != 1 else F.softplus(x)
    return F.where(F.greater(x * float(beta), float(threshold)), x, y)


@op("prelu", "_prelu_kernel")
def prelu(x: Tensor, weight: Tensor) -> Tensor:
    """x where x > 0, else weight x, by channel."""
    return F.prelu(x, weight if weight.ndim == x.ndim or weight.size == 1 else weight.reshape(-1, *[1] * (x.ndim - 2)))


@op("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(x: Tensor, mask: Tensor, value: Any) -> Tensor:
    """The value where the mask is true."""
    return F.where(mask, tensor(value, x.dtype), x)


@op("lerp.Scalar", "lerp.Tensor")
def lerp(start: Tensor, end: Tensor, weight: Any) -> Tensor:
    """start + weight (end - start)."""
    return F.lerp(start, end, weight)


@op("addcmul")
def addcmul(x: Tensor, a: Tensor, b: Tensor, *, value: Any = 1) -> Tensor:
    """x + value a b."""
    return x + a * b * value


@op("addcdiv")
def addcdiv(x: Tensor, a: Tensor, b: Tensor, *, value: Any = 1) -> Tensor:
    """x + value a / b."""
    return x + a / b * value


@op("nan_to_num")
def nan_to_num(x: Tensor, nan: float | None = None, above: float | None = None, below: float | None = None) -> Tensor:
    """Numbers in place of what is none."""
    return F.nan_to_num(x, 0.0 if nan is None else nan, above, below) if x.dtype.is_inexact else x


@op("_to_copy")
def to_copy(x: Tensor, *, dtype: str | None = None) -> Tensor:
    """x in another dtype."""
    return of(x, named(dtype, x.dtype))


op("_conj", "resolve_conj", "resolve_neg", "_conj_physical")(lambda x: F.conj(x) if x.dtype.is_complex else x)
op("complex")(lambda x, y: F.complex(x, y))
op("polar")(lambda x, y: F.polar(x, y))


@op("frexp.Tensor")
def frexp(x: Tensor) -> tuple[Tensor, Tensor]:
    """(A part of 0.5 to 1 in magnitude, the power of 2 that it is to be multiplied by)."""
    return tuple(numbers.frexp(x))


op("ldexp.Tensor")(lambda x, y: numbers.ldexp(floating(x), y))
op("gcd")(lambda x, y: numbers.gcd(*alike(x, y)))
op("lcm")(lambda x, y: numbers.lcm(*alike(x, y)))
