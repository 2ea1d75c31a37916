"""The interpreter against exact arithmetic on Python's integers and fractions, and on kernels written by hand."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from each import each

from tengen.base.dtype import ALL, bfloat16, bool_, dtype, float16, float32, float64, int8, int16, int32, int64, uint8, uint64
from tengen.base.errors import IndexOutOfRange, VerifyError
from tengen.loops import lang
from tengen.loops.builder import Builder
from tengen.loops.exact import fma32
from tengen.loops.interp import evaluate, interpret
from tengen.loops.lang import (
    binary,
    cast,
    cdiv,
    const,
    fma,
    fold,
    lane,
    maximum,
    minimum,
    ramp,
    select,
    shuffle,
    splat,
    unary,
    var,
)
from tengen.loops.verify import typed

INTS = [d for d in ALL if d.is_int]
FORMATS = {float64: (53, -1074, 1023), float32: (24, -149, 127), float16: (11, -24, 15), bfloat16: (8, -133, 127)}


def nearest(q: Fraction, d) -> float:
    """`q` rounded to nearest even in a float format; infinity beyond its largest."""
    digits, least, most = FORMATS[d]
    if q == 0:
        return 0.0
    e = math.floor(math.log2(abs(q.numerator)) - math.log2(q.denominator))
    e += (abs(q) >= Fraction(2) ** (e + 1)) - (abs(q) < Fraction(2) ** e)
    unit = Fraction(2) ** max(e - digits + 1, least)
    r = round(q / unit) * unit
    return (math.inf if q > 0 else -math.inf) if abs(r) >= Fraction(2) ** (most + 1) else float(r)


def same(got, want) -> bool:
    """Equal as bits, where all NaNs are one."""
    got, want = np.asarray(got), np.asarray(want)
    nan = (got != got) & (want != want)
    return got.dtype == want.dtype and bool(np.all(nan | ((got == want) & (np.signbit(got) == np.signbit(want)))))


def wrap(n: int, d) -> int:
    n &= (1 << d.bits) - 1
    return n - (1 << d.bits) if d.kind == "i" and n >> (d.bits - 1) else n


def edges(d) -> list[int]:
    low, high = (-(1 << (d.bits - 1)), (1 << (d.bits - 1)) - 1) if d.kind == "i" else (0, (1 << d.bits) - 1)
    some = (low, low + 1, -7, -2, -1, 0, 1, 2, 3, 7, d.bits - 1, d.bits, 100, high - 1, high)
    return sorted({n for n in some if low <= n <= high})


def shifted(n: int, s: int, d, left: bool) -> int:
    if not 0 <= s < d.bits:
        return 0 if left or n >= 0 else -1
    return n << s if left else n >> s


INTEGER = {
    "add": lambda a, b, d: a + b, "sub": lambda a, b, d: a - b, "mul": lambda a, b, d: a * b,
    "floordiv": lambda a, b, d: a // b if b else 0, "floormod": lambda a, b, d: a % b if b else 0,
    "min": lambda a, b, d: min(a, b), "max": lambda a, b, d: max(a, b),
    "and": lambda a, b, d: a & b, "or": lambda a, b, d: a | b, "xor": lambda a, b, d: a ^ b,
    "shl": lambda a, b, d: shifted(a, b, d, True), "shr": lambda a, b, d: shifted(a, b, d, False),
    "eq": lambda a, b, d: a == b, "ne": lambda a, b, d: a != b, "lt": lambda a, b, d: a < b,
    "le": lambda a, b, d: a <= b, "gt": lambda a, b, d: a > b, "ge": lambda a, b, d: a >= b,
}  # fmt: skip


@pytest.mark.parametrize("d", INTS, ids=str)
def test_integer_operations_match_python(d):
    pairs = list(itertools.product(edges(d), repeat=2))
    x, y = var("x", d), var("y", d)
    a, b = (np.array(v, d.numpy) for v in zip(*pairs))
    for op, f in INTEGER.items():
        got = evaluate(typed(op, (x, y)), {x: a, y: b})
        if lang.OPS[op][2] == "bool":
            assert got.dtype == np.bool_ and got.tolist() == [f(p, q, d) for p, q in pairs], op
        else:
            assert got.dtype == d.numpy and got.tolist() == [wrap(f(p, q, d), d) for p, q in pairs], op
    ones = np.array(edges(d), d.numpy)
    assert evaluate(unary("not", x), {x: ones}).tolist() == [wrap(~n, d) for n in edges(d)]
    if d.kind == "i":
        assert evaluate(unary("neg", x), {x: ones}).tolist() == [wrap(-n, d) for n in edges(d)]
        assert evaluate(unary("abs", x), {x: ones}).tolist() == [wrap(abs(n), d) for n in edges(d)]


def test_index_division_takes_divisors_above_zero():
    x, y = var("x"), var("y")
    for a, b in itertools.product((-7, -6, -1, 0, 1, 7), (1, 2, 3, 8)):
        assert evaluate(x // y, {x: a, y: b}) == a // b and evaluate(x % y, {x: a, y: b}) == a % b
        assert evaluate(x // b, {x: a}) == a // b and evaluate(const(a) % y, {y: b}) == a % b
    for a, b in ((-1, 0), (1, 0), (1, -2)):
        with pytest.raises(VerifyError, match="quo and rem take"):
            evaluate(x // y, {x: a, y: b})


def test_extents_have_one_form():
    """So that shapes which are equal for all numbers are the same, and quotients without a rest are products again."""
    b, t = var("batch"), var("tokens")
    assert b * 3 * 4 is b * 12 and t * b is b * t and (b * 3) * (t * 4) is b * t * 12
    assert b * 6 // 3 is b * 2 and b * 6 // (b * 3) is const(2) and b * t // t is b and b * 6 % 3 is const(0)
    u = var("u")
    assert b * t * u * 6 // (t * b * 4) is u * 3 // 2 and b * t * 32 // (t * 8) is b * 4 and b * t * u % (u * b) is const(0)
    assert b * t * u // (u * t) is b and b * t * 3 // (b * u * 6) is t // (u * 2)
    forms = [lambda b, t: b * (b + t) * t * 6 // (t * (b + t) * 4), lambda b, t: b * t * t // (b * t * (t + 1))]
    forms += [lambda b, t: b * t * 4 % (t * 8)]
    forms += [lambda b, t: b * 3 * t * 4, lambda b, t: b * t * 6 // 2, lambda b, t: b * 4 // 6 + b * 4 % 6, lambda b, t: t * 8 // (t * 2)]
    for f in forms:
        for x, y in ((1, 1), (2, 5), (17, 3)):
            assert evaluate(f(b, t), {b: x, t: y}) == f(x, y)


FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 3.0, 1e-3, 7e30, -7e30, math.inf, -math.inf, math.nan]


def float_points(d) -> np.ndarray:
    digits, least, most = FORMATS[d]
    rng = np.random.default_rng(1)
    near = 1 + rng.integers(-9, 9, 12) * 2.0 ** (1 - digits)
    spread = rng.standard_normal(40) * 2.0 ** rng.integers(least, most, 40)
    top = (2 - 2.0 ** (1 - digits)) * 2.0**most
    ends = [top, -top, 2.0 ** (least + digits - 1), 2.0**least, -(2.0**least)]
    with np.errstate(all="ignore"):
        return np.concatenate([FLOATS, ends, near, spread]).astype(d.numpy)


def exact(op: str, xs: list[float], d):
    """The op on finite numbers, exactly, then rounded once; None where a zero's sign or an infinity decides."""
    if not all(map(math.isfinite, xs)) or (op == "div" and xs[1] == 0):
        return None
    q = [Fraction(x) for x in xs]
    match op:
        case "add": r = q[0] + q[1]  # fmt: skip
        case "sub": r = q[0] - q[1]  # fmt: skip
        case "mul": r = q[0] * q[1]  # fmt: skip
        case "div": r = q[0] / q[1]  # fmt: skip
        case _: r = q[0] * q[1] + q[2]  # fmt: skip
    return None if r == 0 else nearest(r, d)


@pytest.mark.parametrize("op", ["add", "sub", "mul", "div", "fma"])
@pytest.mark.parametrize("d", [float32, float64], ids=str)
def test_float_arithmetic_rounds_once(op, d):
    points = float_points(d)
    rng = np.random.default_rng(2)
    n = 1500
    xs = [rng.choice(points, n) for _ in range(3 if op == "fma" else 2)]
    if op == "fma":  # sums that cancel, or that lie close to a tie
        with np.errstate(all="ignore"):
            xs[2][::3] = -(xs[0] * xs[1])[::3]
            xs[2][1::3] = (xs[0] * xs[1] * d.numpy.type(2.0 ** -FORMATS[d][0]))[1::3]
    vs = [var(f"x{i}", d) for i in range(len(xs))]
    got = evaluate(typed(op, tuple(vs)), dict(zip(vs, xs)))
    for i in range(n):
        args = [float(x[i]) for x in xs]
        want = exact(op, args, d)
        if want is not None:
            assert float(got[i]) == want, (op, args)


def test_an_fma_of_float32_alone():
    """One at a time: among others one that needs two roundings to be corrected would have all of them corrected. Products here lie half
    way between two float32 or next to that, and sums may be tiny."""
    rng = np.random.default_rng(4)
    ones = 1 + 2.0**-12 * rng.choice([-3, -1, 1, 3], (2, 400))
    small = rng.choice([1.0, 2.0**-70], 400)
    a, b = (ones * small).astype(np.float32)
    c = (rng.choice([-1, 0, 1], 400) * 2.0 ** rng.integers(-149, -50, 400)).astype(np.float32)
    corrected = 0
    for x, y, z in zip(a, b, c):
        want = exact("fma", [float(x), float(y), float(z)], float32)
        if want is not None:
            got = fma32(x, y, z)
            assert float(got) == want, (x, y, z)
            corrected += float(np.float32(float(x) * float(y) + float(z))) != want
    assert corrected > 9  # two roundings alone would have been wrong


def test_fma_specials():
    for d in (float32, float64):
        a, b, c = (var(n, d) for n in "abc")
        f = lambda x, y, z: evaluate(fma(a, b, c), {a: x, b: y, c: z})  # noqa: B023  (called at once)
        big = np.finfo(d.numpy).max
        assert f(big, 2.0, -math.inf) == -math.inf and f(big, 2.0, 0.0) == math.inf and f(big, 2.0, -big) == big
        for args in ((math.inf, 0.0, 1.0), (math.inf, 1.0, -math.inf), (1.0, 1.0, math.nan)):
            assert math.isnan(f(*args))
        assert math.copysign(1, f(-0.0, 1.0, -0.0)) == -1 and math.copysign(1, f(1.0, 1.0, -1.0)) == 1
        tiny = np.finfo(d.numpy).smallest_subnormal
        assert same(f(-tiny, 0.25, 0.0), d.numpy.type(-0.0))
        assert evaluate(fma(a, b, c), {a: [[1.0], [2.0]], b: [3.0, 4.0], c: 1.0}).tolist() == [[4.0, 5.0], [7.0, 9.0]]


@pytest.mark.parametrize("d", list(FORMATS), ids=str)
def test_float_rounding_to_integers_and_choice(d):
    x, y = var("x", d), var("y", d)
    points = float_points(d)
    wide = points.astype(np.float64)
    for op in ("floor", "ceil", "trunc", "rint", "neg", "abs"):
        f = {"neg": np.negative, "abs": np.abs}.get(op) or getattr(np, op)
        assert same(evaluate(unary(op, x), {x: points}), f(wide).astype(d.numpy)), op
    a, b = (np.array(v, d.numpy) for v in zip(*itertools.product(points[:20], repeat=2)))
    for op in ("min", "max"):
        want = [p if math.isnan(p) or (p < q if op == "min" else p > q) else q for p, q in zip(a.tolist(), b.tolist())]
        assert same(evaluate(binary(op, x, y), {x: a, y: b}), np.array(want).astype(d.numpy)), op
    for op in ("eq", "ne", "lt", "le", "gt", "ge"):
        want = [getattr(p, f"__{op}__")(q) for p, q in zip(a.astype(float).tolist(), b.astype(float).tolist())]
        assert evaluate(binary(op, x, y), {x: a, y: b}).tolist() == want, op


def test_min_max_ties_take_the_second():
    x, y = var("x", float32), var("y", float32)
    for op in (minimum, maximum):
        assert np.signbit(evaluate(op(x, y), {x: 0.0, y: -0.0})) and not np.signbit(evaluate(op(x, y), {x: -0.0, y: 0.0}))
        assert np.isnan(evaluate(op(x, y), {x: np.nan, y: 1.0})) and np.isnan(evaluate(op(x, y), {x: 1.0, y: np.nan}))


def test_bool_operations():
    p, q = var("p", bool_), var("q", bool_)
    env = {p: [False, False, True, True], q: [False, True, False, True]}
    table = {"and": "0001", "or": "0111", "xor": "0110", "min": "0001", "max": "0111", "eq": "1001", "lt": "0100", "ge": "1011"}
    for op, want in table.items():
        assert "".join(map(str, evaluate(binary(op, p, q), env).astype(int))) == want
    assert evaluate(~p, env).tolist() == [True, True, False, False]


def truncated(v: float, d) -> int:
    low = -(1 << (d.bits - 1)) if d.kind == "i" else 0
    high = low + (1 << d.bits) - 1
    if math.isnan(v):
        return 0
    return (high if v > 0 else low) if math.isinf(v) else min(max(math.trunc(v), low), high)


@each("src, dst", itertools.product(ALL, ALL))
def test_every_cast(src, dst):
    x = var("x", src)
    if src.is_float:
        powers = [s * 2.0**n + o for n in (7, 8, 15, 16, 31, 32, 63, 64) for s in (-1, 1) for o in (-1, -0.5, 0, 0.5, 1)]
        with np.errstate(all="ignore"):
            points = np.concatenate([float_points(src), np.array(powers).astype(src.numpy)])
    elif src is bool_:
        points = np.array([False, True])
    else:
        ties = [n for n in (2**62 + 2**54 + 1, 2**62 + 2**38 + 1, 2**60 + 2**52 - 1, 2**24 + 1, 257) if n < 2 ** (src.bits - 1)]
        points = np.array(edges(src) + ties, src.numpy)
    got = evaluate(cast(x, dst), {x: points})
    assert got.dtype == dst.numpy
    for p, g in zip(points.tolist(), got.tolist()):
        p = float(p) if src.is_float else p
        if dst is bool_:
            assert g == (p != 0)
        elif dst.is_int:
            assert g == (truncated(p, dst) if src.is_float else wrap(int(p), dst)), p
        elif not math.isfinite(p) or p == 0:
            assert same(np.float64(g), np.float64(p))
        else:
            assert float(g) == nearest(Fraction(p), dst), p


def test_bfloat16_is_rounded_once_from_float64():
    v = 1 + 2.0**-8 + 2.0**-40  # through float32 it would become a tie and fall to 1.0
    x = var("x", float64)
    assert float(evaluate(cast(x, bfloat16), {x: v})) == 1 + 2.0**-7
    assert float(evaluate(const(v, bfloat16))) == 1 + 2.0**-7


def test_bitcast_select_and_literals():
    x = var("x", float32)
    assert evaluate(lang.bitcast(x, "int32"), {x: [1.0, -0.0]}).tolist() == [0x3F800000, -(2**31)]
    p = var("p", bool_)
    assert evaluate(select(p, x, 0.0), {p: [True, False], x: [3.0, math.nan]}).tolist() == [3.0, 0.0]
    assert evaluate(const(0.1, float32)) == np.float32(0.1) and evaluate(const(300, uint8)) == 44
    assert evaluate(const(2**64 - 1, uint64)) == 2**64 - 1
    with pytest.raises(VerifyError, match="the variable x has no value"):
        evaluate(x)


def test_lanes_ramp_and_the_fold_tree():
    rng = np.random.default_rng(3)
    v = var("v", float32, 16)
    values = (rng.standard_normal(16) * 10.0 ** rng.integers(-6, 6, 16)).astype(np.float32)
    tree = list(values)
    for half in (8, 4, 2, 1):
        tree = [tree[i] + tree[i + half] for i in range(half)]
    assert same(evaluate(fold("add", v), {v: values}), tree[0])
    assert evaluate(fold("max", ramp())) == 15 and evaluate(fold("add", splat(const(1.5, float32)))) == 24.0
    assert evaluate(lane(ramp() * 3, 5)) == 15
    x = var("x", float32)  # a batch of scalars becomes a batch of vectors
    assert evaluate(fold("add", splat(x) + cast(ramp(), float32)), {x: [0.0, 1.0]}).tolist() == [120.0, 136.0]


def test_functions_are_expanded():
    x = var("x", float32)
    got = evaluate(lang.call("exp", x), {x: [0.0, 1.0, -math.inf]})
    assert got.tolist() == [1.0, float(np.float32(math.e)), 0.0]


def test_a_deep_expression_does_not_exhaust_the_stack():
    x = e = var("x", float64)
    for _ in range(5000):
        e = e + 1.0
    assert evaluate(e, {x: 0.0}) == 5000.0


# ---- kernels ---------------------------------------------------------------------------------------------------------


def relu(n_per_piece: int = 40):
    k = Builder("relu")
    x, y, n = k.input("x", float32), k.output("y", float32), k.int("n")
    piece = k.split(cdiv(n, n_per_piece))
    for i, count in k.vector_loop(piece * n_per_piece, minimum(n, piece * n_per_piece + n_per_piece)):
        k.store(y, i, maximum(k.load(x, i, 16, count), 0.0), count)
    return k.build()


@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 39, 40, 41, 100])
def test_relu_with_masked_tails(n):
    x = np.random.default_rng(n).standard_normal(n).astype(np.float32)
    y = np.full(n, 7, np.float32)
    pieces = range(-(-n // 40))
    interpret(relu(), [x, y], [n], pieces=reversed(pieces))
    assert same(y, np.maximum(x, 0))
    z = np.full(n, 7, np.float32)
    interpret(relu(), {"y": z, "x": x}, {"n": n})
    assert same(z, y)


def test_only_the_asked_pieces_run():
    y = np.zeros(100, np.float32)
    interpret(relu(), [np.ones(100, np.float32), y], [100], pieces=[1])
    assert y.tolist() == [0.0] * 40 + [1.0] * 40 + [0.0] * 20
    with pytest.raises(VerifyError, match="piece 3 of 3"):
        interpret(relu(), [y, y], [100], pieces=[3])


def test_sum_with_a_vector_variable_and_a_fold():
    k = Builder("total")
    x, y, n = k.input("x", float32), k.output("y", float32), k.int("n")
    acc = k.var(splat(const(-0.0, float32)))
    for i, count in k.vector_loop(0, n):
        acc.set(acc.value + k.load(x, i, 16, count, other=-0.0))
    k.store(y, 0, fold("add", acc.value))
    x = np.random.default_rng(0).standard_normal(53).astype(np.float32)
    y = np.zeros(1, np.float32)
    interpret(k.build(), [x, y], [53])
    lanes = np.full(16, -0.0, np.float32)
    for i, v in enumerate(x):
        lanes[i % 16] += v
    for half in (8, 4, 2, 1):
        lanes = lanes[:half] + lanes[half:]
    assert same(y[0], lanes[0])


def test_shuffled_quads_and_a_transposed_square():
    a, b = var("a", float32, 16), var("b", float32, 16)
    x, y = np.arange(16, dtype=np.float32), np.arange(100, 116, dtype=np.float32)
    pairs = np.stack((x, y), -1).reshape(4, 4, 2)  # [quad, lane of the quad, vector]
    quads = np.stack((x, y)).reshape(2, 4, 4)  # [vector, quad, lane]
    shuffled = {
        "low_of_quads": pairs[:, :2], "high_of_quads": pairs[:, 2:], "even_quads": quads[:, ::2], "odd_quads": quads[:, 1::2],
        "low_halves": quads[..., :2], "high_halves": quads[..., 2:],
        "first_halves": np.stack((x[:8], y[:8])), "second_halves": np.stack((x[8:], y[8:])),
    }  # fmt: skip
    for name, want in shuffled.items():
        assert same(evaluate(shuffle(name, a, b), {a: x, b: y}), want.reshape(-1)), name
    assert evaluate(shuffle("odd_quads", ramp(), splat(const(-1)))).tolist() == [4, 5, 6, 7, 12, 13, 14, 15] + [-1] * 8
    k = Builder("square")
    source, dest = k.input("x", float32), k.output("y", float32)
    for i, column in enumerate(k.transpose([k.load(source, i * 16, 16) for i in range(16)])):
        k.store(dest, i * 16, column)
    square, out = np.random.default_rng(5).standard_normal(256).astype(np.float32), np.zeros(256, np.float32)
    interpret(k.build(), [square, out])
    assert same(out.reshape(16, 16), square.reshape(16, 16).T)
    with pytest.raises(VerifyError, match="shuffle left needs"):
        shuffle("left", a, b)


def test_gather_and_scatter_in_lane_order():
    k = Builder("gather")
    x, at, y, z = k.input("x", int32), k.input("at", int64), k.output("y", int32), k.output("z", int32)
    i = k.load(at, 0, 16)
    v = k.load(x, i, count=10, other=-5)
    k.store(y, 0, v)
    k.store(z, i, cast(ramp(), int32), count=10)
    at = np.array([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 999, -999, 0, 0, 0, 0])
    x, y, z = np.arange(10, dtype=np.int32) * 10, np.zeros(16, np.int32), np.full(10, -1, np.int32)
    interpret(k.build(), [x, at, y, z])
    assert y.tolist() == [30, 10, 40, 10, 50, 90, 20, 60, 50, 30] + [-5] * 6  # lanes beyond count are not read
    assert z.tolist() == [-1, 3, 6, 9, 2, 8, 7, -1, -1, 5]  # the last of equal indices stays


def test_nested_loops_variables_and_branches():
    k = Builder("collatz")
    x, y, n = k.input("x", int64), k.output("y", int64), k.int("n")
    with k.loop(0, n) as i:
        v, steps = k.var(k.load(x, i)), k.var(0)
        with k.loop(0, 200, 3):
            with k.if_(v.value > 1):
                with k.if_(lang.equal(v.value % 2, 0)):
                    v.set(v.value // 2)
                with k.else_():
                    v.set(v.value * 3 + 1)
                steps.set(steps.value + 1)
        k.store(y, i, steps.value)
    x = np.arange(1, 20)
    y = np.zeros_like(x)
    interpret(k.build(), [x, y], [19])

    def steps(n):
        c = 0
        while n > 1 and c < 67:
            n, c = (n // 2 if n % 2 == 0 else 3 * n + 1), c + 1
        return c

    assert y.tolist() == [steps(n) for n in range(1, 20)]


def test_bool_buffers_are_bytes_and_scratch_is_private():
    k = Builder("flags")
    x, y, s = k.input("x", bool_), k.output("y", bool_), k.scratch("s", float32, 32)
    k.store(s, 0, select(k.load(x, 0, 16), splat(const(1.0, float32)), 0.0))
    k.store(y, 0, lang.equal(k.load(s, 0, 16), 0.0))
    k.store(y, 16, lang.equal(k.load(s, 16), k.load(s, 16)))  # never written: not equal to itself
    x = np.arange(17, dtype=np.uint8) % 2
    for y in (np.full(17, 9, np.uint8), np.ones(17, np.bool_)):
        interpret(k.build(), [x, y])
        assert y.tolist() == [1 - v for v in x[:16]] + [0]


def test_storage_floats():
    for d in (float16, bfloat16):
        k = Builder("halves")
        x, y = k.input("x", d), k.output("y", d)
        k.store(y, 0, cast(cast(k.load(x, 0, 16), float32) * 3.0, d))
        x = np.linspace(-2, 2, 16).astype(d.numpy)
        y = np.zeros(16, d.numpy)
        interpret(k.build(), [x, y])
        assert same(y, (x.astype(np.float32) * 3).astype(d.numpy))


@pytest.mark.parametrize("index, lanes, bad", [(8, 1, "8"), (-1, 1, "-1"), (0, 16, "8"), (-3, 16, "-3")])
def test_access_outside_a_buffer_names_everything(index, lanes, bad):
    k = Builder("reach")
    k.load(k.input("x", float32), const(index), lanes)
    where = rf"kernel reach, piece 0: load v = x\[{index}\]"
    with pytest.raises(IndexOutOfRange, match=f"{where}: index {bad} is outside buffer x of 8"):
        interpret(k.build(), [np.zeros(8, np.float32)])
    k = Builder("reach")
    k.store(k.output("y", float32), const(index), splat(const(0.0, float32)) if lanes > 1 else const(0.0, float32))
    with pytest.raises(IndexOutOfRange, match=f"index {bad} is outside buffer y of 8"):
        interpret(k.build(), [np.zeros(8, np.float32)])


def test_count_is_clamped_and_nothing_is_touched_beyond_it():
    for n in (-3, 0, 5, 16, 40):
        k = Builder("tail")
        x, y, c = k.input("x", int16), k.output("y", int16), k.int("c")
        k.store(y, 0, k.load(x, 0, 16, c, other=-1), 16)
        size = min(max(n, 0), 16)
        y = np.zeros(16, np.int16)
        interpret(k.build(), [np.arange(size, dtype=np.int16), y], [n])
        assert y.tolist() == list(range(size)) + [-1] * (16 - size)


def test_wrong_arrays_are_refused():
    good = np.zeros(4, np.float32)
    for arrays in ([good, np.zeros(4)], [good, good.reshape(2, 2)], {"x": good}, {"x": good, "y": good, "z": good}):
        with pytest.raises(VerifyError):
            interpret(relu(), arrays, [4])
    for ints in ({}, {"m": 4}):
        with pytest.raises(VerifyError):
            interpret(relu(), [good, good], ints)
    with pytest.raises(VerifyError):
        interpret(relu(), [good, np.zeros(4, dtype("int8").numpy)], [4])
    assert int8.size == 1
