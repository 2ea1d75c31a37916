"""Symbolic differentiation of kernel expressions.

In: an expression and the variable to differentiate by. Out: the derivative as an expression over the same variables, or None
where it is zero whatever the values. Only structural zeros and ones are dropped, never an operation whose result a NaN or an
infinity could change. Elementwise ops get their gradients from here.
"""

from __future__ import annotations

from collections.abc import Callable

from tengen.base.errors import GradientError
from tengen.loops.calls import function
from tengen.loops.lang import Expr, cast, const, fold, is_const, lane, not_equal, select, splat
from tengen.loops.rewriting import map_expr

Operands = tuple["Expr | None", ...]  # the derivatives of an expression's operands: None = zero
# The derivative of an expression, given those of its operands (at least one is not zero).
Rule = Callable[[Expr, Operands], "Expr | None"]


def derive(e: Expr, wrt: Expr) -> Expr | None:
    """The derivative of `e` with respect to `wrt`.

    Args:
        e: an expression; calls are differentiated through `math.FUNCTIONS` and stay calls.
        wrt: a variable of `e` (or any sub-expression, which is then taken as a variable). With 16 lanes each lane is a
            variable of its own and the result is lanewise.
    Returns: an expression of `e`'s dtype and lanes, or None if `e` does not change with `wrt` (integers, predicates and
        rounded numbers are constant almost everywhere, and count as constant).
    Errors: GradientError where a float depends on `wrt` through its bits, or through a fold that is not a sum.
    Numerics: at a kink, the side that the value is taken from: relu, max(x, 0), gives 0 at 0, where max yields its second
        operand. |x| gives 0 at 0.

    >>> from tengen.base.dtype import float32
    >>> from tengen.loops.lang import call, var
    >>> x = var("x", float32)
    >>> derive(x * call("exp", x), x)
    add(call.exp(x), mul(call.exp(x), x))
    """
    memo: dict[Expr, Expr | None] = {wrt: const(1.0, wrt.dtype, wrt.lanes)}
    return map_expr(e, _step, memo)


def _step(e: Expr, ds: Operands) -> Expr | None:
    if e.op == "bitcast" and ds[0] is not None:
        raise GradientError(f"no derivative through the bits of a float: {e!r}; help: give the gradient of the op")
    if not e.dtype.is_float or all(d is None for d in ds):
        return None
    rule = RULES.get(e.op)
    if rule is None:
        raise GradientError(f"no derivative of {e.op}: {e!r}; help: give the gradient of the op")
    return rule(e, ds)


# ---- sums and products in which None is zero --------------------------------------------------------------------------


def _bare(x: Expr) -> Expr:
    """The scalar that all lanes hold, if that can be seen."""
    return x.args[0] if x.op == "splat" else x


def _neg(x: Expr | None) -> Expr | None:
    if x is None:
        return None
    if is_const(_bare(x)):
        return const(-_bare(x).attr, x.dtype, x.lanes)
    return x.args[0] if x.op == "neg" else -x


def _add(a: Expr | None, b: Expr | None) -> Expr | None:
    if a is None or b is None:
        return a if b is None else b
    if b.op == "neg":
        return a - b.args[0]
    return b - a.args[0] if a.op == "neg" else a + b


def _times(d: Expr | None, factor: Expr) -> Expr | None:
    """d * factor."""
    if d is None or is_const(_bare(factor), 1.0):
        return d
    if is_const(_bare(factor), -1.0):
        return _neg(d)
    if is_const(_bare(d), 1.0):
        return splat(factor) if d.lanes > factor.lanes else factor
    if is_const(_bare(d), -1.0):
        return _neg(splat(factor) if d.lanes > factor.lanes else factor)
    return d * factor


def _pick(cond: Expr, a: Expr | None, b: Expr | None) -> Expr | None:
    """select(cond, a, b)."""
    if a is b:
        return a
    like = a if a is not None else b
    assert like is not None
    zero = const(0.0, like.dtype, like.lanes)
    return select(cond, zero if a is None else a, zero if b is None else b)


# ---- rules ------------------------------------------------------------------------------------------------------------


def _mul(e: Expr, ds: Operands) -> Expr | None:
    a, b = e.args
    return _add(_times(ds[0], b), _times(ds[1], a))


def _div(e: Expr, ds: Operands) -> Expr | None:
    top = _add(ds[0], _neg(_times(ds[1], e)))
    return None if top is None else top / e.args[1]


def _fma(e: Expr, ds: Operands) -> Expr | None:
    a, b, _ = e.args
    return _add(_add(_times(ds[0], b), _times(ds[1], a)), ds[2])


def _abs(e: Expr, ds: Operands) -> Expr | None:
    (a,), (d,) = e.args, ds
    return _pick(a > 0.0, d, _pick(a < 0.0, _neg(d), None))


def _sqrt(e: Expr, ds: Operands) -> Expr | None:
    assert ds[0] is not None
    return ds[0] * 0.5 / e


def _winner(e: Expr, ds: Operands) -> Expr | None:
    """min and max: the operand that the value is, which is the second one in a tie, and the first if it is a NaN."""
    a, b = e.args
    if a is b:
        return ds[0]
    literal = _bare(b)
    if is_const(literal) and literal.attr == literal.attr:
        return _pick(~(a <= b if e.op == "max" else a >= b), ds[0], ds[1])
    return _pick(not_equal(a, a) | (a > b if e.op == "max" else a < b), ds[0], ds[1])


def _call(e: Expr, ds: Operands) -> Expr | None:
    total = None
    for d, partial in zip(ds, function(str(e.attr), len(e.args)).derivatives):
        if d is not None:
            total = _add(total, _times(d, partial(e.args, e)))
    return total


def _cast(e: Expr, ds: Operands) -> Expr | None:
    (d,) = ds
    assert d is not None
    return const(1.0, e.dtype, e.lanes) if is_const(_bare(d), 1.0) else cast(d, e.dtype)


def _fold(e: Expr, ds: Operands) -> Expr | None:
    if e.attr != "add":
        raise GradientError(f"no derivative of fold {e.attr}: {e!r}; help: give the gradient of the op")
    return None if ds[0] is None else fold("add", ds[0])


def _zero(e: Expr, ds: Operands) -> Expr | None:
    return None


RULES: dict[str, Rule] = {
    "add": lambda e, ds: _add(*ds),
    "sub": lambda e, ds: _add(ds[0], _neg(ds[1])),
    "mul": _mul,
    "div": _div,
    "fma": _fma,
    "neg": lambda e, ds: _neg(ds[0]),
    "abs": _abs,
    "sqrt": _sqrt,
    "min": _winner,
    "max": _winner,
    "floor": _zero,
    "ceil": _zero,
    "trunc": _zero,
    "rint": _zero,
    "select": lambda e, ds: _pick(e.args[0], ds[1], ds[2]),
    "cast": _cast,
    "call": _call,
    "splat": lambda e, ds: None if ds[0] is None else splat(ds[0]),
    "lane": lambda e, ds: None if ds[0] is None else lane(ds[0], e.attr),
    "fold": _fold,
}
