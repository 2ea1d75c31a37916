"""Symbolic derivatives against finite differences in float64, and what they do at kinks and with zeros."""

import numpy as np
import pytest
from exhaustive import but

from tengen.base.dtype import float32, float64, int64
from tengen.base.errors import GradientError
from tengen.loops.derive import derive
from tengen.loops.interp import evaluate
from tengen.loops.lang import (
    LANES,
    OPS,
    bitcast,
    call,
    cast,
    const,
    equal,
    fma,
    fold,
    lane,
    maximum,
    minimum,
    select,
    splat,
    unary,
    var,
)
from tengen.loops.math import FUNCTIONS
from tengen.loops.rewriting import map_expr, substitute

X, Y, Z = var("x", float64), var("y", float64), var("z", float64)

# Where a function and its finite differences are well behaved.
DOMAINS = {
    "log": (0.1, 5), "log2": (0.1, 5), "log10": (0.1, 5), "log1p": (-0.8, 5), "asin": (-0.9, 0.9), "acos": (-0.9, 0.9),
    "acosh": (1.2, 5), "atanh": (-0.9, 0.9), "rsqrt": (0.2, 4), "tan": (-1.2, 1.2), "cbrt": (0.3, 4), "pow": (0.3, 3), "lgamma": (0.4, 5),
    "digamma": (0.4, 5),
}  # fmt: skip


def points(low, high, n=2, count=40):
    rng = np.random.default_rng(7)
    return [rng.uniform(low, high, count) for _ in range(n)]


def check(e, variables, values, tolerance=2e-8):
    """Each partial derivative is near the central difference of fourth order."""
    env = dict(zip(variables, values))
    for v in variables:
        h = 1e-3
        f = lambda t, v=v: evaluate(e, {**env, v: env[v] + t})
        expected = (8 * (f(h) - f(-h)) - (f(2 * h) - f(-2 * h))) / (12 * h)
        d = derive(e, v)
        got = 0.0 if d is None else evaluate(d, env)
        np.testing.assert_allclose(got + 0 * expected, expected, rtol=tolerance, atol=tolerance)


@but(every=3)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    f = FUNCTIONS[name]
    low, high = DOMAINS.get(name, (-2, 2))
    variables = [X, Y][: f.operands]
    check(call(name, *variables), variables, points(low, high, f.operands))
    inner = [v * 0.5 + Z * 0.5 for v in variables]
    check(call(name, *inner) * Z, [*variables, Z], points(low, high, f.operands + 1))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_second_derivatives(name):
    f = FUNCTIONS[name]
    low, high = DOMAINS.get(name, (-2, 2))
    if name == "atan2":
        low, high = 0.5, 2
    variables = [X, Y][: f.operands]
    first = derive(call(name, *variables), X)
    check(first, variables, points(low + 0.1, high - 0.1, f.operands), tolerance=1e-6)


EXPRESSIONS = {
    "add": X + Y, "sub": X - Y, "mul": X * Y, "div": X / Y, "fma": fma(X, Y, Z * X), "neg": -X * Y, "abs": abs(X - Y) * X,
    "sqrt": unary("sqrt", X * Y), "min": minimum(X * X, Y), "max": maximum(X * X, Y) * Z, "square": X * X * X,
    "floor": unary("floor", X) * X, "ceil": unary("ceil", X) * Y, "rint": unary("rint", X * 3.0) * Y,
    "trunc": unary("trunc", X) + Y,
    "select": select(X > Y, X * X, Y * Z), "shared": (X * Y + X) * (X * Y + X),
    "gelu": X * 0.5 * (call("erf", X * 0.7071067811865476) + 1.0), "cast": cast(cast(X, int64), float64) * X,
    "constant divided": 2.0 / X, "both": call("pow", X, X),
}  # fmt: skip


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_expressions(name):
    check(EXPRESSIONS[name], [X, Y, Z], points(0.51, 1.49, 3))


def test_every_float_op_has_a_rule():
    from tengen.loops.derive import RULES

    assert {op for op, (_, kinds, result) in OPS.items() if "f" in kinds and result == "same"} <= set(RULES)


def test_zeros_and_ones_are_structural():
    assert derive(Y * 2.0, X) is None
    assert derive(X, X) is const(1.0, float64)
    assert derive(X + Y, X) is const(1.0, float64)
    assert derive(X * Y, X) is Y
    assert derive(X * 3.0 + Y, X) is const(3.0, float64)
    assert derive(-X, X) is const(-1.0, float64)
    assert derive(call("exp", X), X) is call("exp", X)
    assert derive(call("exp", -X), X) is -call("exp", -X)
    assert derive(equal(X, Y), X) is None
    assert derive(cast(X, int64), X) is None
    assert derive(unary("floor", X), X) is None
    # a live zero stays: 0 * inf is a NaN
    assert np.isnan(evaluate(derive(X * Y * 0.0, X), {X: 1.0, Y: np.inf}))


def test_kinks():
    relu = derive(maximum(X, 0.0), X)
    np.testing.assert_array_equal(evaluate(relu, {X: [-1.0, -0.0, 0.0, 2.0, np.nan]}), [0, 0, 0, 1, 1])
    np.testing.assert_array_equal(evaluate(derive(abs(X), X), {X: [-2.0, -0.0, 0.0, 3.0]}), [-1, 0, 0, 1])
    env = {X: [1.0, 2.0, 2.0, np.nan, 1.0], Y: [2.0, 1.0, 2.0, 1.0, np.nan]}
    for op in (minimum, maximum):
        e = op(X, Y)
        dx, dy = (np.broadcast_to(evaluate(derive(e, v), env), 5) for v in (X, Y))
        np.testing.assert_array_equal(dx + dy, 1)
        value = evaluate(e, env)
        np.testing.assert_array_equal(np.where(dx == 1, env[X], env[Y]), value)
        assert dx[2] == 0  # a tie goes to the second operand
    assert derive(maximum(X, X), X) is const(1.0, float64)
    at_zero = derive(call("pow", X, Y), X), derive(call("pow", X, Y), Y)
    np.testing.assert_array_equal([evaluate(d, {X: 0.0, Y: 2.0}) for d in at_zero], [0, 0])
    assert evaluate(at_zero[0], {X: 0.0, Y: 0.0}) == 0


def test_casts_between_floats():
    x = var("x", float32)
    d = derive(cast(x, float64) * cast(x, float64), x)
    assert d.dtype is float64 and evaluate(d, {x: 3.0}) == 6.0
    d = derive(cast(cast(x, float64) * cast(x, float64), float32), x)
    assert d.dtype is float32 and evaluate(d, {x: 3.0}) == 6.0


def test_vectors():
    v = var("v", float64, LANES)
    s = var("s", float64)
    e = v * splat(s) + call("exp", v)
    values = np.linspace(-1, 1, LANES)
    np.testing.assert_array_equal(evaluate(derive(e, v), {v: values, s: 3.0}), 3.0 + evaluate(call("exp", v), {v: values}))
    assert derive(e, s) is v and derive(e, v).lanes == LANES
    total = fold("add", v * splat(s))
    assert evaluate(derive(total, s), {v: values, s: 2.0}) == evaluate(fold("add", v), {v: values})
    assert derive(lane(v, 3), v).lanes == 1


def test_deep_expressions():
    e = X
    for _ in range(20000):
        e = e * Y
    assert derive(e, X) is not None


def test_what_has_no_derivative():
    with pytest.raises(GradientError, match="bits of a float"):
        derive(bitcast(bitcast(X, int64) ^ 1, float64), X)
    with pytest.raises(GradientError, match="fold max"):
        derive(fold("max", var("v", float64, LANES)), var("v", float64, LANES))


def test_walks_see_each_shared_expression_once_and_keep_what_does_not_change():
    x, y = var("x", float32), var("y", float32)
    deep = x
    for _ in range(2000):  # 2 ** 2000 paths, and deeper than Python's stack
        deep = deep * deep + y
    seen: list = []
    map_expr(deep, lambda e, _: seen.append(e), {})
    assert len(seen) == len(set(seen)) == 4002
    assert substitute(deep, {}) is deep and substitute(deep, {x: x}) is deep
    assert substitute(substitute(deep, {x: y, y: x}), {x: y, y: x}) is deep  # at once, not one after the other
    assert substitute(x + y, {x + y: y}) is y
