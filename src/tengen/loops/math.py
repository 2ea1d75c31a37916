"""The functions that `lang.call` names: what they compute, how exactly, and their derivatives.

Bodies are written with `lang.OPS` alone, and `calls.expand` puts them in place of calls; so interpreter and code generators know
none of these names, and the bits are the same everywhere. Bodies: `exponential.py`, `powers.py`,
`special.py`, `trigonometric.py`. Domain edges follow C99, annex F; denormal operands and results count like all others.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tengen.base.record import record
from tengen.loops import exponential, gamma, powers, special, trigonometric
from tengen.loops.lang import Expr, call, const, equal, select, unary
from tengen.loops.reals import LN2, LOG2_E, LOG10_E

Derivative = Callable[[tuple[Expr, ...], Expr], Expr]


@record(frozen=True)
class Function:
    """A scalar function of float32 or float64 operands.

    Attributes:
        body: the expression for given operands.
        derivatives: for each operand, the partial derivative as a function of (operands, result); it may call functions.
        reference: the name of mpmath's function with the same operands, or of one in the tests.
        ulp: a bound on all errors measured, in units in the last place, for float32 and for float64.
        doc: what it computes, and its values at the edges of the domain.
        absolute: whether `ulp` counts units in the last place of 1/2 where the result is smaller.
    """

    name: str
    body: Callable[..., Expr]
    derivatives: tuple[Derivative, ...]
    reference: str
    ulp: tuple[float, float]
    doc: str
    absolute: bool = False

    @property
    def operands(self) -> int:
        return len(self.derivatives)


FUNCTIONS: dict[str, Function] = {}


def _function(
    name: str, body, derivatives, ulp: tuple[float, float], doc: str, reference: str = "", absolute: bool = False
) -> None:  # fmt: skip
    FUNCTIONS[name] = Function(name, body, tuple(derivatives), reference or name, ulp, doc, absolute)


def _unary(
    name: str, body, derivative, ulp: tuple[float, float], doc: str, reference: str = "", absolute: bool = False
) -> None:  # fmt: skip
    _function(name, body, [lambda xs, y: derivative(xs[0], y)], ulp, doc, reference, absolute)


def _root_of_complement(x: Expr) -> Expr:
    """sqrt(1 - x^2), without cancellation near 1."""
    return unary("sqrt", (1.0 - x) * (x + 1.0))


def _by_base(xs: tuple[Expr, ...], y: Expr) -> Expr:
    a, b = xs
    return select(equal(b, 0.0), const(0.0, a.dtype), b * call("pow", a, b - 1.0))


def _by_exponent(xs: tuple[Expr, ...], y: Expr) -> Expr:
    a, b = xs
    return select(equal(a, 0.0) & (b >= 0.0), const(0.0, a.dtype), y * call("log", a))


def _by_y(xs: tuple[Expr, ...], y: Expr) -> Expr:
    return xs[1] / (xs[0] * xs[0] + xs[1] * xs[1])


def _by_x(xs: tuple[Expr, ...], y: Expr) -> Expr:
    return -xs[0] / (xs[0] * xs[0] + xs[1] * xs[1])


_TWO_BY_ROOT_PI = 2 / math.sqrt(math.pi)

# The two numbers are `ulp`. float32: from sweeps of `benchmarks/exhaustive_math.py`. float64, and pow and atan2 in both: from
# some 40,000 points against mpmath. Rounded up.
# fmt: off
_unary("exp", exponential.exp, lambda x, y: y, (1.1, 1.1), "e^x; exp(-inf) = 0.")
_unary("exp2", exponential.exp2, lambda x, y: y * float(LN2), (0.9, 1.0), "2^x; exact at integers.")
_unary("expm1", exponential.expm1, lambda x, y: y + 1.0, (1.4, 1.4), "e^x - 1; keeps the sign of zero.")
_unary("log", exponential.log, lambda x, y: 1.0 / x, (0.9, 0.9), "ln x; -inf at either zero, NaN below.", "ln")
_unary("log2", exponential.log2, lambda x, y: float(LOG2_E) / x, (1.0, 1.0), "log2 x; exact at powers of 2; edges as log.")
_unary("log10", exponential.log10, lambda x, y: float(LOG10_E) / x, (1.0, 0.9), "log10 x; edges as log.")
_unary("log1p", exponential.log1p, lambda x, y: 1.0 / (x + 1.0), (1.5, 1.4),
        "ln(1 + x); -inf at -1, NaN below; keeps the sign of zero.")
_unary("sin", trigonometric.sin, lambda x, y: call("cos", x), (1.6, 0.9),
        "sin x for every finite x; NaN at infinity; keeps the sign of zero.")
_unary("cos", trigonometric.cos, lambda x, y: -call("sin", x), (1.6, 0.9), "cos x for every finite x; NaN at infinity.")
_unary("tan", trigonometric.tan, lambda x, y: y * y + 1.0, (0.6, 1.4),
        "tan x for every finite x; NaN at infinity; keeps the sign of zero.")
_unary("asin", trigonometric.asin, lambda x, y: 1.0 / _root_of_complement(x), (1.2, 1.2),
        "The inverse sine; NaN beyond -1 and 1.")
_unary("acos", trigonometric.acos, lambda x, y: -1.0 / _root_of_complement(x), (1.2, 1.2),
        "The inverse cosine; NaN beyond -1 and 1.")
_unary("atan", trigonometric.atan, lambda x, y: 1.0 / (x * x + 1.0), (1.2, 1.4), "The inverse tangent; +-pi/2 at infinity.")
_function("atan2", trigonometric.atan2, [_by_y, _by_x], (1.5, 1.5),
          "atan2(y, x), the angle of the point (x, y); zeros and infinities as in C99.")
_unary("sinh", special.sinh, lambda x, y: call("cosh", x), (1.7, 1.7), "The hyperbolic sine.")
_unary("cosh", special.cosh, lambda x, y: call("sinh", x), (1.6, 1.5), "The hyperbolic cosine.")
_unary("tanh", special.tanh, lambda x, y: 1.0 - y * y, (1.4, 1.3), "The hyperbolic tangent; +-1 at infinity.")
_unary("asinh", special.asinh, lambda x, y: 1.0 / unary("sqrt", x * x + 1.0), (0.6, 1.9), "The inverse hyperbolic sine.")
_unary("acosh", special.acosh, lambda x, y: 1.0 / unary("sqrt", (x - 1.0) * (x + 1.0)), (0.6, 1.7),
        "The inverse hyperbolic cosine; NaN below 1.")
_unary("atanh", special.atanh, lambda x, y: 1.0 / ((1.0 - x) * (x + 1.0)), (0.6, 1.6),
        "The inverse hyperbolic tangent; +-inf at +-1, NaN beyond.")
_unary("erf", special.erf, lambda x, y: call("exp", -(x * x)) * _TWO_BY_ROOT_PI, (1.2, 1.0),
        "The error function; +-1 at infinity.")
_unary("erfc", special.erfc, lambda x, y: call("exp", -(x * x)) * -_TWO_BY_ROOT_PI, (0.6, 3.0),
        "1 - erf x without cancellation; 0 at inf, 2 at -inf.")
_unary("normal_cdf", special.normal_cdf, lambda x, y: call("exp", x * x * -0.5) * (_TWO_BY_ROOT_PI * math.sqrt(0.125)),
       (1.6, 1.5), "The share of a normal distribution below x; 0 at -inf, 1 at inf. ULP of 1/2, wherever the result is.",
       "ncdf", True)
_function("pow", powers.pow, [_by_base, _by_exponent], (0.6, 1.0),
          "x^y with C99's special cases: pow(x, 0) = pow(1, y) = 1.", "power")
_unary("rsqrt", powers.rsqrt, lambda x, y: y / x * -0.5, (0.6, 0.6), "1 / sqrt(x); +-inf at +-0, 0 at inf, NaN below.")
_unary("cbrt", powers.cbrt, lambda x, y: 1.0 / (y * y * 3.0), (0.6, 0.6), "The cube root, of negative numbers too.")
_unary("sigmoid", special.sigmoid, lambda x, y: y * (1.0 - y), (1.4, 1.4), "1 / (1 + e^-x); nothing overflows on the way.")
_unary("softplus", special.softplus, lambda x, y: call("sigmoid", x), (1.8, 1.6),
        "log(1 + e^x); x for large x, e^x for very negative x.")
_unary("lgamma", gamma.lgamma, lambda x, y: call("digamma", x), (0.6, 3.0),
       "log|gamma(x)|; inf at 0, negative integers and infinities. ULP of 1/2 where the result is smaller; below 0 8 ULP of the larger "
       "terms that the reflection formula cancels.", absolute=True)
_unary("digamma", gamma.digamma, lambda x, y: gamma.trigamma(x), (0.6, 3.0),
       "The derivative of lgamma; -+inf at +-0, NaN at negative integers and -inf. ULP as for lgamma.", absolute=True)
# fmt: on
