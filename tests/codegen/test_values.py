"""Every operation and every cast, in 16 lanes and in one, against NumPy or exact arithmetic, and against the interpreter."""

from __future__ import annotations

import itertools
import math
import re
from fractions import Fraction

import numpy as np
import pytest
from running import call, load, same

from tengen.base.dtype import ALL, DType, bfloat16, bool_, float16, float32, float64, int8, int16, int32, int64, uint8, uint32
from tengen.base.errors import CompileError
from tengen.codegen.llvm import emit_kernel
from tengen.codegen.targets import Target
from tengen.loops.builder import Builder
from tengen.loops.interp import interpret
from tengen.loops.lang import (
    FOLDS,
    LANES,
    OPS,
    binary,
    bitcast,
    cast,
    const,
    fma,
    fold,
    lane,
    maximum,
    minimum,
    ramp,
    select,
    splat,
    unary,
)  # fmt: skip

LIMITS = {float64: (53, -1022, 1023), float32: (24, -126, 127), float16: (11, -14, 15), bfloat16: (8, -126, 127)}
TARGETS = ["native", "x86-64-v3"] if Target.host().arch == "x86_64" else ["native"]


def rounded(x, dt: DType) -> float:
    """A real number rounded once to nearest even in `dt`, in exact arithmetic."""
    bits, least, most = LIMITS[dt]
    if isinstance(x, float) and (not math.isfinite(x) or x == 0):
        return x
    f = Fraction(x)
    if f == 0:
        return 0.0
    e = abs(f.numerator).bit_length() - f.denominator.bit_length()
    e -= abs(f) < Fraction(2) ** e
    unit = Fraction(2) ** (max(e, least) - bits + 1)
    r = round(f / unit) * unit
    if abs(r) >= Fraction(2) ** (most + 1):
        return math.inf if f > 0 else -math.inf
    return float(r) if f > 0 else -float(abs(r))


def whole_vectors(x: np.ndarray) -> np.ndarray:
    """x, repeated from its start up to a multiple of 16 elements."""
    return np.resize(x, -(-len(x) // LANES) * LANES)


def samples(dt: DType) -> np.ndarray:
    """Edges and random values of every size, a multiple of 16 of them."""
    rng = np.random.default_rng(7)
    if dt is bool_:
        return np.tile(np.array([0, 1, 1], bool), 32)
    if dt.is_float:
        _, least, most = LIMITS[dt]
        tiny, big = 2.0**least, 2.0**most
        edges = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 3.0, math.inf, -math.inf, math.nan, tiny, big, -big * 1.5]
        edges += [-tiny / 4, 1e-40, 4.7e9, 65519.0, 65520.0]
        edges += [127.5, -128.9, 255.0, 256.0, 2.0**31, -(2.0**31), 2.0**32, 2.0**63, -(2.0**63), 2.0**64]
        random = rng.standard_normal(40) * 2.0 ** rng.integers(-20, 20, 40)
        wild = rng.choice([-1, 1], 26) * (1 + rng.random(26)) * 2.0 ** rng.integers(least, most, 26)
        with np.errstate(over="ignore"):
            return whole_vectors(np.array([*edges, *random, *wild], np.float64).astype(dt.numpy))
    i = np.iinfo(dt.numpy)
    edges = [0, 1, 2, 3, 5, 7, 16, dt.bits - 1, dt.bits, dt.bits + 1, i.max, i.max - 1, i.min, i.min + 1, i.max // 2, 100]
    if dt.kind == "i":
        edges += [-1, -2, -3, -5, -7, -16, -dt.bits, -100]
    sizes = [int(rng.integers(0, 2**63)) >> int(s) for s in rng.integers(0, 63, 96 - len(edges))]
    return whole_vectors(np.array([n & i.max for n in sizes] + edges, dt.numpy))


def pairs(dt: DType) -> tuple[np.ndarray, np.ndarray]:
    """Each sample with many others."""
    x = samples(dt)
    a = np.concatenate([np.roll(x, k) for k in (0, 1, 5, 17, 40, 71)])
    return a, np.tile(x, 6)


def elementwise(name: str, sources: list[DType], result: DType, f):
    """A kernel that stores f of its inputs twice: computed in vectors, and one by one."""
    k = Builder(name)
    inputs = [k.input(f"x{i}", d) for i, d in enumerate(sources)]
    outs, n = (k.output("wide", result), k.output("one", result)), k.int("n")
    for out, lanes in zip(outs, (LANES, 1)):
        with k.loop(0, n, lanes) as i:
            k.store(out, i, f(*[k.load(b, i, lanes) for b in inputs]))
    return k.build()


def check(kernels, inputs, expected) -> None:
    """Runs kernels on every target of this machine; both outputs equal what is expected, and what the interpreter says."""
    loads = [load(kernels, Target.named(t)) for t in TARGETS]
    for k, xs, want in zip(kernels, inputs, expected):
        n = len(xs[0])
        for loaded in loads:
            outs = [np.zeros(n, k.buffers[-1].dtype.numpy) for _ in range(2)]
            call(loaded, k, [*xs, *outs], [n])
            for got, how in zip(outs, ("wide", "one")):
                try:
                    same(got, want)
                except AssertionError as e:
                    raise AssertionError(f"{k.name} {how}: {e}") from None
        m = min(n, 192)
        outs = [np.zeros(m, k.buffers[-1].dtype.numpy) for _ in range(2)]
        interpret(k, [*[x[:m] for x in xs], *outs], [m])
        same(outs[0], want[:m])
        same(outs[1], want[:m])


def exact(op: str, dt: DType, a, b, c):
    """The value of an op on Python numbers, exact before one rounding."""
    if op == "fma":
        if all(map(math.isfinite, (a, b, c))):
            r = Fraction(a) * Fraction(b) + Fraction(c)
            if r == 0:  # +0, but for a product that is -0 and c that is -0
                return a * b + c if 0 in (a, b) else 0.0
            return rounded(r, dt)
        overflow = math.isfinite(a) and math.isfinite(b)  # a finite product must not become inf on the way
        return c if overflow else a * b + c
    if op in ("floordiv", "floormod"):
        return 0 if b == 0 else a // b if op == "floordiv" else a % b
    if op == "shl":
        return a << b if 0 <= b < dt.bits else 0
    if op == "shr":
        return a >> (b if 0 <= b < dt.bits else dt.bits - 1) if dt.kind == "i" else a >> b if b < dt.bits else 0
    raise KeyError(op)


def expectation(op: str, dt: DType, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """What an op gives, by NumPy where NumPy's meaning is the language's."""
    numpy = {
        "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "neg": np.negative, "abs": np.abs,
        "sqrt": np.sqrt, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "rint": np.rint, "and": np.bitwise_and,
        "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert, "eq": np.equal, "ne": np.not_equal, "lt": np.less,
        "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "quo": np.floor_divide, "rem": np.remainder,
        "min": lambda a, b: np.where((a != a) | (a < b), a, b), "max": lambda a, b: np.where((a != a) | (a > b), a, b),
    }  # fmt: skip
    with np.errstate(all="ignore"):
        if op in numpy:
            r = numpy[op](a, b) if OPS[op][0] == 2 else numpy[op](a)
            return r if OPS[op][2] == "bool" else r.astype(dt.numpy)
        values = [exact(op, dt, *xs) for xs in zip(a.tolist(), b.tolist(), c.tolist())]
        if dt.is_float:
            return np.array(values, np.float64).astype(dt.numpy)
        m = 1 << dt.bits
        return np.array([(v + m // 2) % m - m // 2 if dt.kind == "i" else v % m for v in values], dt.numpy)


COMPUTED = [d for d in ALL if d not in (float16, bfloat16)]


def op_cases(dt: DType):
    """(kernels, their inputs, what they give) for every op on a dtype."""
    a, b = pairs(dt)
    c = np.roll(b, 3)
    ops = [op for op, (_, kinds, _) in OPS.items() if dt.kind in kinds]
    kernels, inputs, expected = [], [], []
    for op in ops:
        n = OPS[op][0]
        f = fma if op == "fma" else (lambda *xs, op=op: (unary if len(xs) == 1 else binary)(op, *xs))
        xs = [a, b, c][:n]
        if op in ("quo", "rem"):
            xs = [x[b > 0][: (b > 0).sum() // LANES * LANES].copy() for x in xs]
        kernels.append(elementwise(f"{op}_{dt}", [dt] * n, bool_ if OPS[op][2] == "bool" else dt, f))
        inputs.append(xs)
        expected.append(expectation(op, dt, *xs[:2], *[xs[-1]] * (3 - len(xs[:2]))))
    return kernels, inputs, expected


@pytest.mark.parametrize("dt", COMPUTED, ids=str)
def test_every_op(dt):
    check(*op_cases(dt))


@pytest.mark.parametrize("dt", [int32, int64], ids=str)
def test_index_arithmetic_by_literals(dt):
    """Rounded down whatever the sign, by powers of two and others; unsigned instructions where the sign is known, and nowhere else."""
    a = samples(dt)
    kernels, expected = [], []
    for n in (1, 2, 3, 16, 100, 1 << 20, (1 << 20) + 1):
        for op, f in (("quo", np.floor_divide), ("rem", np.remainder)):
            for where, limited in (("any", lambda x: x), ("known", lambda x: maximum(x, 0)), ("less", lambda x: minimum(x, -1))):
                kernels.append(elementwise(f"{op}{n}{where}", [dt], dt, lambda x, op=op, n=n, limited=limited: binary(op, limited(x), n)))
                with np.errstate(all="ignore"):
                    expected.append(f({"any": a, "known": np.maximum(a, 0), "less": np.minimum(a, -1)}[where], dt.numpy.type(n)))
    check(kernels, [[a]] * len(kernels), expected)
    for k in kernels:
        text = emit_kernel(k, Target.named("x86-64-v3"))
        assert ("udiv" in text or "urem" in text) == k.name.endswith("known"), k.name


@pytest.mark.parametrize("dt", [float16, bfloat16], ids=str)
def test_comparisons_and_choices_of_storage_floats(dt):
    a, b = pairs(dt)
    ops = ["min", "max", "neg", "abs", "lt", "ge", "eq", "ne"]
    f = lambda op: lambda *xs: (unary if len(xs) == 1 else binary)(op, *xs)
    kernels, expected = [], []
    for op in ops:
        n, boolean = OPS[op][0], OPS[op][2] == "bool"
        kernels.append(elementwise(f"k_{op}", [dt] * n, bool_ if boolean else dt, f(op)))
        wide = expectation(op, float32, a.astype(np.float32), b.astype(np.float32), b)
        expected.append(wide if boolean else wide.astype(dt.numpy))
    check(kernels, [[a, b][: OPS[op][0]] for op in ops], expected)
    k = elementwise("k_fma", [dt] * 3, dt, fma)
    with pytest.raises(CompileError, match="k_fma: fma on .*float16"):
        load([k])


def converted(x: np.ndarray, s: DType, t: DType) -> np.ndarray:
    """The cast of lang, by exact arithmetic."""
    values = x.astype(np.float64).tolist() if s.is_float else x.tolist()
    if t is bool_:
        return np.array([v != 0 for v in values])
    if t.is_float:
        with np.errstate(over="ignore"):
            return np.array([rounded(v, t) for v in values], np.float64).astype(t.numpy)
    i = np.iinfo(t.numpy)
    if s.is_float:
        whole = [0 if v != v else i.max if v == math.inf else i.min if v == -math.inf else int(v) for v in values]
        return np.array([min(max(v, i.min), i.max) for v in whole], t.numpy)
    m = 1 << t.bits
    return np.array([(int(v) - i.min) % m + i.min for v in values], t.numpy)


def cast_cases(s: DType):
    """(kernels, their inputs, what they give) for the casts of a dtype to all others."""
    x = samples(s)
    if s.is_int and s.bits == 64:  # values that round twice wrongly when a conversion goes through a narrower one
        hard = [(1 << p) + (1 << p - 8) + d for p in (24, 40, 53, 54, 62) for d in (-1, 0, 1)] + [(1 << 62) + (1 << 38) + 1]
        x = whole_vectors(np.concatenate([x, np.array(hard, s.numpy)]))
    if s is float64:
        x = np.concatenate([x, [1 + 2**-8 + 2**-40, 1 + 2**-8 - 2**-40, 1 + 2**-11 + 2**-45, 2.0**-25 + 2**-60, 2.0**-25]])
        x = whole_vectors(x)
    targets = [t for t in ALL if t is not s]
    kernels = [elementwise(f"{s}_to_{t}", [s], t, lambda v, t=t: cast(v, t)) for t in targets]
    return kernels, [[x]] * len(targets), [converted(x, s, t) for t in targets]


@pytest.mark.parametrize("s", ALL, ids=str)
def test_every_cast(s):
    check(*cast_cases(s))


def test_bitcasts():
    for s, t in itertools.permutations(ALL, 2):
        if s.bits == t.bits and s is not bool_:
            x = samples(s)
            if x.dtype.kind not in "iu":
                x = x[~np.isnan(x.astype(np.float64))][:LANES * 4]
            check([elementwise("bits", [s], t, lambda v, t=t: bitcast(v, t))], [[x]], [x.view(t.numpy)])


@pytest.mark.parametrize("dt", [float32, float64, int64, bool_], ids=str)
def test_select_splat_and_literals(dt):
    x = samples(dt)
    floats = [0.0, -0.0, 0.1, 1e300, math.inf, -math.inf, math.nan, 1e-45]
    values = [0, 1] if dt is bool_ else [0, 1, 3, -7] if dt.is_int else floats
    kernels, expected = [], []
    for n, v in enumerate(values):
        f = lambda e, v=v: select(binary("lt", e, const(1, dt)), const(v, dt, e.lanes), e)
        kernels.append(elementwise(f"k{n}", [dt], dt, f))
        with np.errstate(over="ignore", invalid="ignore"):
            expected.append(np.where(x < 1, np.float64(v).astype(dt.numpy), x))
    check(kernels, [[x]] * len(kernels), expected)


def test_literals_of_storage_floats_round_once():
    values = [0.0, -0.0, 1 / 3, 1 + 2**-8 + 2**-40, 1 + 2**-11 + 2**-45, 65520.0, 3.4e38, 1e300, 1e-45, 6e-8, math.nan]
    for dt in (float16, bfloat16):
        k = Builder("literals")
        o = k.output("o", dt)
        for i, v in enumerate(values):
            k.store(o, i, const(v, dt))
        got = np.zeros(len(values), dt.numpy)
        kernel = k.build()
        call(load([kernel]), kernel, [got])
        with np.errstate(over="ignore"):
            same(got, np.array([rounded(v, dt) for v in values], np.float64).astype(dt.numpy))


@pytest.mark.parametrize("dt", [float32, float64, int32, uint32, int64, bool_, float16], ids=str)
def test_folds_follow_the_fixed_tree(dt):
    x = samples(dt)
    ops = ["min", "max"] if dt is float16 else [op for op in FOLDS if dt.kind in OPS[op][1]]
    k = Builder("folds")
    a, o, n = k.input("a", dt), k.output("o", dt), k.int("n")
    with k.loop(0, n, LANES) as i:
        v = k.load(a, i, LANES)
        for j, op in enumerate(ops):
            k.store(o, i // LANES * len(ops) + j, fold(op, v))
    kernel = k.build()
    got = np.zeros(len(x) // LANES * len(ops), dt.numpy)
    call(load([kernel]), kernel, [x, got], [len(x)])
    want = []
    for row in x.reshape(-1, LANES):
        for op in ops:
            v = row
            while len(v) > 1:
                h = len(v) // 2
                if dt is float16:
                    v = expectation(op, float32, v[:h].astype(np.float32), v[h:].astype(np.float32), v[:h])
                    v = v.astype(np.float16)
                else:
                    v = expectation(op, dt, v[:h], v[h:], v[:h])
            want.append(v[0])
    same(got, np.array(want, dt.numpy))


def test_ramp_lane_and_splat():
    k = Builder("lanes")
    x, o = k.input("x", int64), k.output("o", int64)
    v = k.load(x, 0, LANES)
    k.store(o, 0, ramp() * 3 + v)
    for i in range(LANES):
        k.store(o, LANES + i, lane(v, LANES - 1 - i))
    k.store(o, 2 * LANES, splat(lane(v, 5) + 1))
    kernel = k.build()
    got, a = np.zeros(3 * LANES, np.int64), np.arange(100, 116)
    call(load([kernel]), kernel, [a, got])
    same(got, np.concatenate([np.arange(16) * 3 + a, a[::-1], np.full(16, 106)]))


def test_min_and_max_with_a_literal():
    x = samples(float32)
    kernels, expected = [], []
    for n, (op, v) in enumerate(itertools.product(("min", "max"), (0.0, -0.0, 1.0, math.inf, -math.inf, math.nan))):
        kernels += [elementwise(f"k{n}", [float32], float32, lambda e, op=op, v=v: binary(op, e, v))]
        kernels += [elementwise(f"r{n}", [float32], float32, lambda e, op=op, v=v: binary(op, const(v, float32, e.lanes), e))]
        y = np.full_like(x, v)
        expected += [expectation(op, float32, x, y, y), expectation(op, float32, y, x, x)]
    check(kernels, [[x]] * len(kernels), expected)


def test_shifts_and_divisions_by_literals():
    x = samples(int32)
    kernels, expected = [], []
    for op in ("shl", "shr", "floordiv", "floormod"):
        for v in (0, 1, 3, 7, 31, 32, -1, -(2**31)):
            kernels.append(elementwise(f"{op}{len(kernels)}", [int32], int32, lambda e, op=op, v=v: binary(op, e, v)))
            expected.append(expectation(op, int32, x, np.full_like(x, v), x))
    check(kernels, [[x]] * len(kernels), expected)
    within = elementwise("within", [int32], int32, lambda e: (e << const(3, int32, e.lanes)) >> const(31, int32, e.lanes))
    assert not re.search("icmp u|umin|select", emit_kernel(within, Target.host())), "the width is known to be enough"


def test_indices_take_no_intrinsics():
    """LLVM's FastISel, which makes quick code, hands a block over to a selector that takes longer where it meets one."""
    k = Builder("indices")
    o, n, m = k.output("o", int64), k.int("n"), k.int("m")
    k.split(1)
    for i, e in enumerate((minimum(n, m), maximum(n, m), minimum(n, 16), maximum(1, m))):
        k.store(o, i, e)
    kernel = k.build()
    assert "call" not in emit_kernel(kernel, Target.host())
    for ints in ((3, 5), (-(2**63), 2**63 - 1), (20, -7)):
        got = np.zeros(4, np.int64)
        call(load([kernel]), kernel, [got], ints)
        assert got.tolist() == [min(ints), max(ints), min(ints[0], 16), max(1, ints[1])]


def test_a_deep_expression():
    k = Builder("deep")
    x, o = k.input("x", float32), k.output("o", float32)
    v = k.load(x, 0)
    e = v
    for _ in range(5000):
        e = e * 0.5 + v
    k.store(o, 0, e)
    kernel = k.build()
    got = np.zeros(1, np.float32)
    call(load([kernel]), kernel, [np.ones(1, np.float32), got])
    assert got[0] == 2.0


def test_clipped_floats_become_integers():
    """What is known to be in range is not saturated once more: the bits of the interpreter, for NaN and infinities too."""
    edges = [np.nan, np.inf, -np.inf, -0.0, 0.0, 0.5, -0.5, 1.5, 126.6, 127.5, 128, 255, 255.9, 256, -128, -128.9, -129, 3e9, -3e9]
    data = np.resize(np.array(edges, "float32"), 4 * LANES)
    k, clipped = Builder("clipped"), []
    x = k.input("x", float32)
    rows = [
        (int8, lambda v: minimum(maximum(v, -128.0), 127.0)), (uint8, lambda v: minimum(maximum(v, 0.0), 255.0)),
        (uint8, lambda v: minimum(select(v > 0.0, v, 0.0), 255.0)), (int32, lambda v: minimum(maximum(v, -300.0), 1e9)),
        (int8, lambda v: minimum(maximum(v, -129.0), 127.0)), (uint8, lambda v: maximum(v, 0.0)), (int16, lambda v: v),
        (int32, lambda v: v), (int8, lambda v: minimum(maximum(v, 5.0), -5.0)),
        (uint32, lambda v: minimum(maximum(v, 0.0), 255.0)), (uint32, lambda v: minimum(maximum(v, 0.0), 3e9)), (uint32, lambda v: v),
    ]  # fmt: skip
    outs = [k.output(f"y{i}", d) for i, (d, _) in enumerate(rows)]
    with k.loop(0, len(data), LANES) as i:
        v = k.load(x, i, LANES)
        for out, (d, f) in zip(outs, rows):
            k.store(out, i, cast(f(v), d))
    kernel = k.build()
    for d, _ in rows:
        clipped.append(np.zeros(len(data), d.numpy))
    want = [np.zeros_like(c) for c in clipped]
    interpret(kernel, [data, *want], [])
    call(load([kernel], Target.host()), kernel, [data, *clipped], [])
    for got, w in zip(clipped, want):
        np.testing.assert_array_equal(got, w)
