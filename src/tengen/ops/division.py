"""Floor division, remainder and power: the elementwise ops that a single expression cannot say.

Remainders of floats are exact, as fmod's are: a long division takes 50 bits of the quotient at a time, in float64, and how many
turns it takes is found out from the operands of each vector (one, nearly always). Powers of integers are made by repeated
squaring.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tengen.base.dtype import float64, int64, uint64
from tengen.base.errors import NegativePower
from tengen.kernels.source import Elementwise, broadcast
from tengen.loops import lang
from tengen.loops.floats import format_of, power_of_two, with_sign_of
from tengen.loops.lang import Expr, as_int, bitcast, call, cast, const, equal, fold, select, splat
from tengen.ops.define import Op, Violation, elementwise, lookup
from tengen.ops.elementwise import mul, neg

DIGIT_BITS = 50  # bits of a quotient found at a time: with the guard bits of float64, every step is exact


class Loop(Elementwise):
    """An elementwise source whose function records statements: fn(kernel builder, *operands)."""

    def value(self, k, at):
        wide = splat if at.lanes > 1 else lambda e: e
        return wide(self.fn(k, *(wide(s.at(k, at)) for s in self.operands)))

    def expand(self, shape, done):
        return Loop(self.fn, [broadcast(broadcast(s, self.shape, done), shape, done) for s in self.operands], shape, self.dtype)

    def rebind(self, arrays):
        if self not in arrays:
            ops = [s.rebind(arrays) for s in self.operands]
            arrays[self] = Loop(self.fn, ops, next((s.shape for s in ops if s.shape), self.shape), self.dtype)
        return arrays[self]


def _loop_source(op: Op, body: Callable, applies: Callable) -> None:
    """Lets `body(k, x, y)` compute the op for the promoted dtypes that `applies` to, instead of the op's expression."""
    plain = op.rules.source
    assert plain is not None

    @op.source
    def _(ins, out):
        if not applies(out.dtype):
            return plain(ins, out)
        d = out.dtype.compute

        def fn(k, x, y):
            return cast(body(k, cast(x, d), cast(y, d)), out.dtype)

        return Loop(fn, [broadcast(s, out.shape) for s in ins], out.shape, out.dtype)


def _largest(e: Expr) -> Expr:
    return fold("max", e) if e.lanes > 1 else e


def _exponent(a: Expr) -> Expr:
    """The biased exponent of a float64 that is not negative."""
    return bitcast(a, int64) >> 52


def _fmod(k, x: Expr, y: Expr) -> Expr:
    """What is left of |x| after taking |y| off as often as possible, with the sign of x: exact. Float64."""
    a, b = k.let(lang.unary("abs", x)), k.let(lang.unary("abs", y))
    ea, eb = _exponent(a), _exponent(b)
    gap = ea - select(equal(eb, 0), const(-51, int64), eb) + 1  # |x| < 2^gap |y|, also when y is a denormal
    bits = select((a < math.inf) & (b > 0.0), gap, const(0, int64))  # elsewhere the result is NaN at once
    turns = k.let(lang.maximum(_largest(bits), 0) // DIGIT_BITS + 1, "turns")
    rest = k.var(a, name="rest")
    with k.loop(0, turns, name="turn") as t:
        up = (turns - 1 - t) * DIGIT_BITS
        third = up // 3  # 2^up may be beyond the range of exponents
        f = format_of(b)
        unit = k.let(b * power_of_two(third, f) * power_of_two(third, f) * power_of_two(up - third * 2, f))
        r = rest.value
        left = k.let(lang.fma(-lang.unary("floor", r / unit), unit, r))
        left = select(left < 0.0, left + unit, left)  # the quotient was rounded up to the next integer
        rest.set(k.let(select(unit > r, r, left)))
    return with_sign_of(select(equal(b, math.inf) & (a < math.inf), a, rest.value), x)


def _remainder(k, x: Expr, y: Expr) -> tuple[Expr, Expr]:
    """fmod(x, y) in the operands' dtype (float32 or float64), and whether y must be added to it so that it has y's sign."""
    r = cast(_fmod(k, cast(x, float64), cast(y, float64)), x.dtype)
    return r, lang.not_equal(r, 0.0) & ((y < 0.0) ^ (r < 0.0)) & equal(r, r)


def _float_mod(k, x: Expr, y: Expr) -> Expr:
    r, other_side = _remainder(k, x, y)
    zero = with_sign_of(const(0.0, x.dtype, x.lanes), y)
    return select(other_side, r + y, select(equal(r, 0.0), zero, r))


def _float_floor_div(k, x: Expr, y: Expr) -> Expr:
    r, other_side = _remainder(k, x, y)
    q = (x - r) / y
    q = k.let(select(other_side, q - 1.0, q))
    whole = lang.unary("floor", q)
    whole = select(q - whole > 0.5, whole + 1.0, whole)
    zero = with_sign_of(const(0.0, x.dtype, x.lanes), x / y)
    return select(equal(y, 0.0), x / y, select(equal(q, 0.0), zero, whole))


@elementwise(domain=[(-9.0, 9.0), (0.5, 2.0)], functional="elemwise", operator="floordiv")
def floor_div(x, y):
    """floor(x / y), as Python's //: exact even where x / y would round up to the next integer.

    Edges, as in NumPy: integers divided by 0 give 0, floats what x / y gives. The gradient is 0.
    """
    return lang.binary("floordiv", x, y)


@elementwise(domain=[(-9.0, 9.0), (0.5, 2.0)], functional="elemwise", operator="mod")
def mod(x, y):
    """x - floor_div(x, y) * y, as Python's %: it has the sign of y, and is exact but for one rounding where a sign is changed.

    Edges, as in NumPy: integers by 0 give 0, floats NaN; finite by infinite gives x or y's infinity.
    Gradient:  1 for x, -floor_div(x, y) for y
    """
    return lang.binary("floormod", x, y)


_loop_source(floor_div, _float_floor_div, lambda d: d.is_float)
_loop_source(mod, _float_mod, lambda d: d.is_float)
floor_div.vjp(lambda g, x, y: (None, None))
floor_div.reference(np.floor_divide)
mod.vjp(lambda g, x, y: (g, lambda: neg(mul(g, floor_div(x, y)))))
mod.reference(np.mod)


@elementwise(domain=[(0.5, 2.0), (-2.0, 2.0)], functional="elemwise", methods="pow", operator="pow", autocast="high")
def pow(x, y):
    """x to the power y: of floats at most 2 ULP off with C99's special cases; of integers exact, and wrapping.

    Errors: NegativePower (a ValueError) for a negative power of integers; in a recorded program when the run has ended, in which
        it is 1 / x^-y cut off to an integer (0 ^ -1 is 0).

    >>> from tengen import Tensor, functional as F
    >>> F.pow(Tensor([2, -3]), 3).tolist()
    [8, -27]
    """
    return call("pow", x, y)


def _int_pow(k, x: Expr, y: Expr) -> Expr:
    """Repeated squaring; as many turns as the largest power of the vector has bits."""
    signed = x.dtype.kind == "i"
    power = k.let(cast(lang.unary("abs", y) if signed else y, uint64))
    bits = (bitcast(cast(_largest(power), float64), int64) >> 52) - 1022  # of the power as a float, which is one more at most
    result, factor, left = k.var(const(1, x.dtype, x.lanes), name="result"), k.var(x, name="factor"), k.var(power, name="left")
    with k.loop(0, lang.maximum(bits, 0), name="bit"):
        odd = equal(left.value & 1, 1)
        r, f = k.let(select(odd, result.value * factor.value, result.value)), k.let(factor.value * factor.value)
        result.set(r)
        factor.set(f)
        left.set(left.value >> 1)
    if not signed:
        return result.value
    unit = equal(x, 1) | equal(x, -1)
    return select((y < 0) & ~unit, const(0, x.dtype), result.value)


_loop_source(pow, _int_pow, lambda d: d.is_int)
pow.checks(lambda types: all(t.dtype.is_int for t in types))


@pow.check
def _(inputs):
    y = inputs[1]
    if y.dtype.kind == "i" and as_int(y.size) != 0:
        what = (
            f"{pow.signature([t._layout.type for t in inputs])}: integers cannot be raised to negative integers; "
            "help: cast to a float, for example with .astype('float32')"
        )
        yield Violation(lookup("any")(lookup("less")(y, 0)), NegativePower, what)


pow.reference(np.power)
