"""The math functions against mpmath, in units of the last place, and their values at the edges of their domains.

Bodies are run by the reference interpreter over whole arrays. `benchmarks/exhaustive_math.py` checks machine code on up to all
2^32 float32 inputs.
"""

import ctypes
import itertools
import math

import mpmath
import numpy as np
import pytest
from each import each
from exhaustive import but

from tengen.base.dtype import float16, float32, float64
from tengen.base.errors import VerifyError
from tengen.codegen.llvm import emit_module
from tengen.codegen.targets import Target
from tengen.loops.builder import Builder
from tengen.loops.calls import expand
from tengen.loops.floats import FORMATS as FORMAT_OF
from tengen.loops.floats import power_of_two, scale, scale_down
from tengen.loops.interp import evaluate
from tengen.loops.lang import LANES, OPS, call, var
from tengen.loops.math import FUNCTIONS
from tengen.runtime.cache import compiled
from tengen.runtime.compile import load_object

INF, NAN = math.inf, math.nan
FORMATS = {float32: (24, -149, 128), float64: (53, -1074, 1024)}  # significand bits, smallest exponent, overflow exponent

REFERENCES = {
    "exp2": lambda x: mpmath.power(2, x),
    "log2": lambda x: mpmath.log(x, 2),
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "cbrt": lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)),
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "softplus": lambda x: mpmath.log1p(mpmath.exp(x)),
    "lgamma": lambda x: mpmath.re(mpmath.loggamma(x)),
}
# Where the result is neither 0, 1 nor infinite in float32 and float64; mpmath is slow or gives up far beyond.
RANGES = {
    "exp": (106, 750), "exp2": (152, 1080), "expm1": (92, 712), "sinh": (92, 712), "cosh": (92, 712), "tanh": (12, 25),
    "erf": (5, 7), "erfc": (11, 28), "normal_cdf": (14, 38), "sigmoid": (106, 750), "softplus": (106, 750),
}  # fmt: skip
POSITIVE = {"lgamma", "digamma"}  # below 0 see the test of reflections
CASES = list(itertools.product(FUNCTIONS, (float32, float64)))


def reference(name):
    return REFERENCES.get(name) or getattr(mpmath, FUNCTIONS[name].reference)


def compute(name, dt, *arrays):
    xs = [var(f"x{i}", dt) for i in range(len(arrays))]
    return np.asarray(evaluate(call(name, *xs), dict(zip(xs, arrays))))


def points(name, dt, rng, n):
    """Inputs of all magnitudes, evenly spread ones, and ones near 0, 1, multiples of pi / 2, and the ends of the range."""
    t = dt.numpy.type
    bits = rng.integers(0, 2**dt.bits, n, dtype=np.uint64 if dt is float64 else np.uint32)
    reach = RANGES.get(name, (100, 100))[dt is float64]
    edges = [np.finfo(t).tiny, np.finfo(t).smallest_subnormal, np.finfo(t).max, 1.0, 0.5, 2.0, 0.70710678, 1.41421356, 27.0]
    with np.errstate(over="ignore", under="ignore"):
        edges = np.outer(edges, [1, -1, 1 - 1e-7, 1e-7 - 1, 1 + 1e-7, 1 - 2e-16, 1 + 3e-16]).ravel()
    xs = [
        bits.view(t),
        rng.uniform(-reach, reach, n),
        rng.uniform(-2, 2, n),
        rng.choice([-1, 1], n) * 10.0 ** rng.uniform(-12, 0, n),
        1 + rng.choice([-1, 1], n) * 10.0 ** rng.uniform(-16, -1, n),
        -1 + rng.choice([-1, 1], n) * 10.0 ** rng.uniform(-16, -1, n),
        rng.integers(-(10**6), 10**6, n) * (math.pi / 2),
        edges,
    ]
    with np.errstate(over="ignore", under="ignore"):
        x = np.concatenate([a.astype(t) for a in xs])
    x = x[np.isfinite(x)]
    x = abs(x) if name in POSITIVE else x
    return np.clip(x, -reach, reach) if name in RANGES else x


def operands(name, dt, rng, n):
    x = points(name, dt, rng, n)
    if FUNCTIONS[name].operands == 1:
        return [x]
    if name == "atan2":
        return [x, np.where(rng.random(x.size) < 0.5, rng.permutation(x), x * rng.uniform(0.5, 1, x.size).astype(x.dtype))]
    x = np.abs(x[x != 0])
    reach = 104 if dt is float32 else 745
    with np.errstate(all="ignore"):  # exponents that use the range, and small integers
        y = (rng.uniform(-reach, reach, x.size) / np.log(x.astype(np.float64))).astype(x.dtype)
        y = np.where(rng.random(x.size) < 0.2, rng.integers(-4, 5, x.size).astype(x.dtype), y)
        keep = np.isfinite(y) & (np.abs(y * np.log(x.astype(np.float64))) < 2 * reach)
    return [x[keep], y[keep]]


def ulps(value, exact, dt, absolute=False):
    """The distance in units of the last place of the exact result (absolute: of 1/2 where that is more); a missed overflow is infinite."""
    digits, least, most = FORMATS[dt]
    if abs(exact) >= (2 - mpmath.mpf(2) ** -digits) * mpmath.mpf(2) ** (most - 1):
        return 0.0 if value == (INF if exact > 0 else -INF) else INF
    if not math.isfinite(value):
        return INF
    exponent = max(mpmath.frexp(exact)[1] - digits, -digits if absolute else least)
    return float(abs(mpmath.mpf(float(value)) - exact) / mpmath.mpf(2) ** exponent)


@but(every=3)
@pytest.mark.parametrize("name,dt", CASES, ids=lambda v: str(v))
def test_ulp(name, dt):
    rng = np.random.default_rng(11)
    xs = operands(name, dt, rng, 150)
    got = compute(name, dt, *xs)
    assert got.dtype == dt.numpy
    worst, checked = (0.0, ()), 0
    with mpmath.workprec(1400 if name in ("sin", "cos", "tan") and dt is float64 else 250):
        f = reference(name)
        for value, *x in zip(got, *xs):
            try:
                exact = f(*(mpmath.mpf(float(v)) for v in x))
            except (ValueError, ZeroDivisionError):  # a pole
                continue
            if isinstance(exact, mpmath.mpc) or mpmath.isnan(exact):
                assert np.isnan(value), (x, value)
            elif not mpmath.isinf(exact):
                worst = max(worst, (ulps(value, exact, dt, FUNCTIONS[name].absolute), tuple(map(float, x))))
                checked += 1
    assert checked > 300
    stated = FUNCTIONS[name].ulp[dt is float64]
    assert worst[0] <= stated <= (2 if dt is float32 else 4), worst


@pytest.mark.parametrize("dt", [float32, float64], ids=str)
@pytest.mark.parametrize("name", sorted(POSITIVE))
def test_reflections(name, dt):
    """Below 0 the error is 8 ULP of the largest term of the formula: gamma(x) gamma(-x) = -pi / (x sin(pi x)), and its logarithm's
    derivative."""
    rng = np.random.default_rng(3)
    near_poles = rng.integers(-30, 0, 100) + rng.uniform(-1e-5, 1e-5, 100)
    x = np.concatenate([rng.uniform(-40, 0, 600), -(10.0 ** rng.uniform(-30, 6, 200)), near_poles])
    x = x.astype(dt.numpy)
    x = x[x != np.rint(x)]
    with mpmath.workprec(250):
        for value, a in zip(compute(name, dt, x), x):
            a = mpmath.mpf(float(a))
            exact, other = reference(name)(a), reference(name)(-a)
            largest = max(abs(exact), abs(other), 1 / abs(a) if name == "digamma" else 0, mpmath.mpf(0.5))
            error = abs(mpmath.mpf(float(value)) - exact) / largest * mpmath.mpf(2) ** FORMATS[dt][0]
            assert error <= 8, (a, value, exact)


# (operands, result): C99, annex F
EDGES = {
    "exp": [(-INF, 0.0), (INF, INF), (0.0, 1.0), (-0.0, 1.0), (1000.0, INF), (-1000.0, 0.0)],
    "exp2": [(-INF, 0.0), (INF, INF), (0.0, 1.0), (10.0, 1024.0), (-3.0, 0.125), (-126.0, 2.0**-126), (127.0, 2.0**127)],
    "expm1": [(-INF, -1.0), (INF, INF), (0.0, 0.0), (-0.0, -0.0), (-100.0, -1.0), (1000.0, INF)],
    "log": [(0.0, -INF), (-0.0, -INF), (1.0, 0.0), (INF, INF), (-1.0, NAN), (-INF, NAN)],
    "log2": [(0.0, -INF), (-0.0, -INF), (1.0, 0.0), (INF, INF), (-1.0, NAN), (8.0, 3.0), (2.0**-149, -149.0)],
    "log10": [(0.0, -INF), (-0.0, -INF), (1.0, 0.0), (INF, INF), (-1.0, NAN), (1000.0, 3.0), (10.0, 1.0)],
    "log1p": [(-1.0, -INF), (0.0, 0.0), (-0.0, -0.0), (INF, INF), (-2.0, NAN), (-INF, NAN)],
    "sin": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN)],
    "cos": [(0.0, 1.0), (-0.0, 1.0), (INF, NAN), (-INF, NAN)],
    "tan": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN)],
    "asin": [(0.0, 0.0), (-0.0, -0.0), (1.5, NAN), (-INF, NAN), (1.0, math.pi / 2), (-1.0, -math.pi / 2)],
    "acos": [(1.0, 0.0), (-1.0, math.pi), (1.5, NAN), (-1.5, NAN), (INF, NAN), (0.0, math.pi / 2)],
    "atan": [(0.0, 0.0), (-0.0, -0.0), (INF, math.pi / 2), (-INF, -math.pi / 2)],
    "atan2": [
        ((0.0, -0.0), math.pi), ((-0.0, -0.0), -math.pi), ((0.0, 0.0), 0.0), ((-0.0, 0.0), -0.0), ((0.0, -2.0), math.pi),
        ((-0.0, -2.0), -math.pi), ((0.0, 2.0), 0.0), ((-0.0, 2.0), -0.0), ((-1.0, 0.0), -math.pi / 2),
        ((1.0, -0.0), math.pi / 2), ((1.0, -INF), math.pi), ((-1.0, -INF), -math.pi), ((1.0, INF), 0.0), ((-1.0, INF), -0.0),
        ((INF, 1.0), math.pi / 2), ((-INF, 1.0), -math.pi / 2), ((INF, -INF), 3 * math.pi / 4), ((INF, INF), math.pi / 4),
        ((-INF, INF), -math.pi / 4), ((-INF, -INF), -3 * math.pi / 4), ((NAN, 1.0), NAN), ((1.0, NAN), NAN), ((INF, NAN), NAN),
    ],
    "sinh": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (1000.0, INF), (-1000.0, -INF)],
    "cosh": [(0.0, 1.0), (INF, INF), (-INF, INF), (-1000.0, INF)],
    "tanh": [(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (50.0, 1.0), (-50.0, -1.0)],
    "asinh": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF)],
    "acosh": [(1.0, 0.0), (0.5, NAN), (INF, INF), (-INF, NAN), (-3.0, NAN), (-1e30, NAN)],
    "atanh": [(0.0, 0.0), (-0.0, -0.0), (1.0, INF), (-1.0, -INF), (1.5, NAN), (-1.5, NAN), (INF, NAN), (-INF, NAN)],
    "normal_cdf": [(0.0, 0.5), (-0.0, 0.5), (INF, 1.0), (-INF, 0.0), (-100.0, 0.0), (NAN, NAN)],
    "erf": [(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0)],
    "erfc": [(0.0, 1.0), (-0.0, 1.0), (INF, 0.0), (-INF, 2.0), (100.0, 0.0)],
    "pow": [
        ((0.0, -3.0), INF), ((-0.0, -3.0), -INF), ((-0.0, -2.0), INF), ((-0.0, -2.5), INF), ((0.0, -INF), INF),
        ((-0.0, 3.0), -0.0), ((-0.0, 2.0), 0.0), ((0.0, 2.5), 0.0), ((-1.0, INF), 1.0), ((-1.0, -INF), 1.0),
        ((1.0, NAN), 1.0), ((NAN, 0.0), 1.0), ((NAN, -0.0), 1.0), ((-8.0, 1 / 3), NAN), ((0.5, -INF), INF),
        ((-0.5, -INF), INF), ((2.0, -INF), 0.0), ((0.5, INF), 0.0), ((-2.0, INF), INF), ((-INF, -3.0), -0.0),
        ((-INF, -2.0), 0.0), ((-INF, 3.0), -INF), ((-INF, 2.0), INF), ((-INF, 0.5), INF), ((INF, -1.0), 0.0),
        ((INF, 0.5), INF), ((NAN, 1.0), NAN), ((2.0, NAN), NAN), ((-2.0, 3.0), -8.0), ((-2.0, 2.0), 4.0),
        ((3.0, 4.0), 81.0), ((2.0, -1e30), 0.0), ((2.0, 1e30), INF), ((-2.0, 1e30), INF), ((0.999, 1e30), 0.0),
        ((2.0, 127.0), 2.0**127), ((2.0, -149.0), 2.0**-149), ((1.0, 1e38), 1.0), ((-1.0, 1e38), 1.0),
    ],
    "rsqrt": [(0.0, INF), (-0.0, -INF), (INF, 0.0), (-1.0, NAN), (-INF, NAN), (4.0, 0.5), (2.0**-148, 2.0**74)],
    "cbrt": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (27.0, 3.0), (-8.0, -2.0), (2.0**-147, 2.0**-49)],
    "sigmoid": [(INF, 1.0), (-INF, 0.0), (0.0, 0.5), (1000.0, 1.0), (-1000.0, 0.0)],
    "softplus": [(INF, INF), (-INF, 0.0), (1e30, 1e30), (-1000.0, 0.0)],
    "lgamma": [(1.0, 0.0), (2.0, 0.0), (3.0, math.log(2.0)), (0.0, INF), (-0.0, INF), (-1.0, INF), (-1e30, INF), (INF, INF), (-INF, INF)],
    "digamma": [(0.0, -INF), (-0.0, INF), (-1.0, NAN), (-1e30, NAN), (INF, INF), (-INF, NAN), (2.0, 1 - 0.5772156649015329)],
}  # fmt: skip


@each("name, dt", CASES)
def test_edges(name, dt):
    n = FUNCTIONS[name].operands
    cases = EDGES[name] + ([(NAN, NAN)] if n == 1 else [])
    xs = [np.array([(x if n > 1 else (x,))[i] for x, _ in cases], dt.numpy) for i in range(n)]
    expected = np.array([r for _, r in cases], dt.numpy)
    got = compute(name, dt, *xs)
    np.testing.assert_allclose(got, expected, rtol=np.finfo(dt.numpy).eps, atol=0)
    np.testing.assert_array_equal(np.signbit(got[got == 0]), np.signbit(expected[expected == 0]))


def test_hard_arguments_of_the_trigonometric_functions():
    """The floats nearest to multiples of pi / 2 (float64: J.-M. Muller's, 2^-61 away), and the largest."""
    hard = {
        float32: [*map(float.fromhex, ("0x1.6ac5b2p+31", "0x1.921fb6p+0", "0x1.fffffep+127", "0x1.3be6c8p+84")), 2.0**126],
        float64: [math.ldexp(6381956970095103, 797), math.ldexp(5.0, 1020), 1.7976931348623157e308, 2.0**1023, 1e22, math.pi],
    }
    for dt, values in hard.items():
        x = np.array(values, dt.numpy)
        for name in ("sin", "cos", "tan"):
            got = compute(name, dt, x)
            with mpmath.workprec(1400):
                worst = max(ulps(v, getattr(mpmath, name)(mpmath.mpf(float(a))), dt) for v, a in zip(got, x))
            assert worst <= FUNCTIONS[name].ulp[dt is float64], (name, dt, worst)


def test_whole_powers_of_two_are_exact():
    for dt, (_, least, most) in FORMATS.items():
        n = np.arange(least, most)
        powers = np.ldexp(1.0, n).astype(dt.numpy)
        np.testing.assert_array_equal(compute("exp2", dt, n.astype(dt.numpy)), powers)
        np.testing.assert_array_equal(compute("log2", dt, powers), n)
        np.testing.assert_array_equal(compute("pow", dt, np.full(n.size, 2.0), n.astype(dt.numpy)), powers)


@pytest.mark.parametrize("dt", [float32, float64])
def test_products_with_powers_of_two_round_once(dt):
    """Down to the last subnormal number and below, and whatever the bits of the exponent above those that count are."""
    f, t = FORMAT_OF[dt], dt.numpy.type
    rng = np.random.default_rng(0)
    n = rng.integers(1 - f.bias - f.bits - 8, 1, 20000)
    p = np.concatenate([rng.uniform(0.35, 1.42, 19996), [0.5, 1.0, np.nan, 1.5]]).astype(t)
    with np.errstate(under="ignore"):
        want = np.ldexp(p, n)
    x, i = var("p", dt), var("n", f.ints)
    for above in (0, f.magic_bits):
        given = {x: p, i: (n + above).astype(f.ints.numpy)}
        for function in (scale, scale_down):
            np.testing.assert_array_equal(evaluate(function(x, i), given), want)
    whole = n > -f.bias
    got = evaluate(power_of_two(i, f), {i: (n[whole] + f.magic_bits).astype(f.ints.numpy)})
    np.testing.assert_array_equal(got, np.ldexp(t(1), n[whole]))


def test_sixteen_lanes_are_sixteen_scalars():
    rng = np.random.default_rng(3)
    for name, dt in CASES:
        n = FUNCTIONS[name].operands
        values = [rng.uniform(-3, 3, LANES).astype(dt.numpy) for _ in range(n)]
        vectors = [var(f"v{i}", dt, LANES) for i in range(n)]
        e = expand(call(name, *vectors))
        assert e.lanes == LANES and e.dtype is dt
        np.testing.assert_array_equal(evaluate(e, dict(zip(vectors, values))), compute(name, dt, *values))


def test_bodies_are_plain_operations():
    """Only ops, selects, casts and bitcasts of types that every target has."""
    for name, dt in CASES:
        stack, seen = [expand(call(name, *(var(f"x{i}", dt) for i in range(FUNCTIONS[name].operands))))], set()
        while stack:
            e = stack.pop()
            if e in seen:
                continue
            seen.add(e)
            stack.extend(e.args)
            assert e.op in OPS or e.op in ("select", "cast", "bitcast", "const", "var"), e.op
            assert e.dtype.name in ("float32", "float64", "int32", "int64", "bool")
            assert dt is float32 or e.dtype is not float32
        assert len(seen) < 400


def test_expand():
    x = var("x", float32)
    assert expand(x * 2.0 + x) is x * 2.0 + x
    assert expand(call("exp", call("log", x))) is FUNCTIONS["exp"].body(FUNCTIONS["log"].body(x))
    deep = x
    for _ in range(5000):
        deep = deep + call("sigmoid", x)
    memo: dict = {}
    assert expand(deep, memo) is memo[deep]


def test_bad_calls():
    x = var("x", float32)
    with pytest.raises(VerifyError, match="no function; help: one of acos"):
        expand(call("gamma", x))
    with pytest.raises(VerifyError, match="2 operands instead of 1"):
        expand(call("exp", x, x))
    with pytest.raises(VerifyError, match="float16; help: compute in float32"):
        expand(call("exp", var("h", float16)))


def test_every_function_is_described():
    for f in FUNCTIONS.values():
        assert f.doc.endswith(".") and f.name in EDGES and (f.name in REFERENCES or hasattr(mpmath, f.reference))


def test_machine_code_gives_the_bits_of_the_interpreter():
    rng = np.random.default_rng(5)
    for dt in FORMATS:
        ints = np.dtype(f"u{dt.size}")
        special = np.array([0.0, -0.0, INF, -INF, NAN, 1.0, -1.0, 2.0, -3.0], dt.numpy)
        anything = rng.integers(0, 2**dt.bits, 200, dtype=np.uint64).astype(ints).view(dt.numpy)
        x = np.concatenate([np.repeat(special, special.size), anything, rng.uniform(-20, 20, 200).astype(dt.numpy)])
        y = np.concatenate([np.tile(special, special.size), rng.permutation(x[special.size**2 :])])
        kernels = []
        for name, f in FUNCTIONS.items():
            k = Builder(name)
            n, a, b, out = k.int("n"), k.input("a", dt), k.input("b", dt), k.output("out", dt)
            for i, count in k.vector_loop(0, n):
                xs = [k.load(v, i, lanes=LANES, count=count) for v in (a, b)][: f.operands]
                k.store(out, i, call(name, *xs), count=count)
            kernels.append(k.build())
        code = load_object(compiled(emit_module(kernels, Target.host()), Target.host()), Target.host())
        for name, f in FUNCTIONS.items():
            got = np.empty_like(x)
            buffers = (ctypes.c_void_p * 3)(x.ctypes.data, y.ctypes.data, got.ctypes.data)
            run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(code.address(name))
            run(ctypes.addressof(buffers), ctypes.addressof(ctypes.c_int64(x.size)), 0, 1)
            expected = compute(name, dt, *(x, y)[: f.operands])
            same = (got.view(ints) == expected.view(ints)) | (np.isnan(got) & np.isnan(expected))
            assert same.all(), (name, dt, x[~same][:3], got[~same][:3], expected[~same][:3])
