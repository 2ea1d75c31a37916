"""Open extents that no machine can have: an error that names the op, the extents and the size, and never another shape.

The expected values are computed here with Python's integers.
"""

import itertools

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tengen
from tengen import Tensor, trace
from tengen import functional as F
from tengen.base.errors import SizeError, VerifyError
from tengen.deploy.dump import dump
from tengen.ir.text import parse_graph
from tengen.ir.types import MOST_BYTES, parse_type
from tengen.loops.extents import Numbers
from tengen.loops.interp import evaluate
from tengen.loops.lang import const, fits, var
from tengen.loops.parse import parse_expr
from tengen.loops.rewriting import map_expr, rebuild
from tengen.runtime import native

FILLED = """\
graph g(x: f32[N]):
    s: f32[] = sum(x, axes=(0,), keepdims=false)
    y: f32[{e}] = fill(s, shape=({{{e}}},))
    return y = y
"""
SUMMED = FILLED.replace("return y = y", "z: f32[] = sum(y, axes=(0,), keepdims=false)\n    return z = z")
WIDE = """\
graph g(x: f32[N]):
    y: f32[N,{e}] = broadcast_to(x, shape=({{N}}, {{{e}}}))
    return y = y
""".replace("broadcast_to(x,", "broadcast_to(t,").replace("    y:", "    t: f32[N,1] = reshape(x, shape=({{N}}, 1))\n    y:")
ABSURD = [
    ("N * 1152921504606846976", 4, r"4611686018427387904\]: \d+ bytes"),  # 2^62 elements
    ("N * 2305843009213693952", 8, "is 18446744073709551616, which"),  # 2^64: an int64 would say 0
    ("N * 4611686018427387905", 4, "is 18446744073709551620, which"),  # 2^64 + 4: an int64 would say 4
    ("N * 9223372036854775807", 2, "is 18446744073709551614, which"),
    ("N * N * N * N", 1 << 16, "is 18446744073709551616, which"),
    ("N * 2305843009213693952 * 16 // 16", 1, "is 36893488147419103232, which"),
    ("N - 5", 4, "negative"),
    ("0 - N", 4, "negative"),
    ("N // (N - 4)", 4, "divides 4 by 0"),
    ("N % (N - 4)", 4, "divides 4 by 0"),
    ("floordiv(N, N - 4)", 4, "divides 4 by 0"),
    ("(N - 6) // 2", 4, "divides -2 by 2"),
]


def model(text, tmp_path):
    dump(parse_graph(text), {}, tmp_path / "m")
    return tengen.load_graph(tmp_path / "m")


@pytest.mark.parametrize("e, n, why", ABSURD)
@pytest.mark.parametrize("text", [FILLED, SUMMED, WIDE], ids=["a result", "a temporary", "a view"])
def test_extents_that_no_tensor_has(text, e, n, why, tmp_path):
    m = model(text.format(e=e), tmp_path)
    x = np.ones(n, "float32")
    for _ in range(2):  # a failure keeps nothing that the next call would take
        with pytest.raises(SizeError, match=why) as error:
            m(x)
        assert f"with N = {n}: " in str(error.value) and isinstance(error.value, MemoryError)
    with pytest.raises(SizeError, match=why):
        m.at(N=n)


def test_extents_that_fit_are_what_they_are(tmp_path):
    for e, n, wanted in (
        ("2 * N", 4, 8),
        ("max(N - 5, 0)", 4, 0),
        ("select(N < 3, N, N * N)", 3, 9),
        ("N * 1000 // 7 % 5", 3, 3),
    ):
        assert model(FILLED.format(e=e), tmp_path)(np.ones(n, "float32")).shape == (wanted,)


def test_an_extent_is_arithmetic_of_int64(tmp_path):
    for e in ("select(1.0f32 < 2.0f32, N, 1)", "select(1i32 < 2i32, N, 1)", "N << 3", "i64(1.5f32)"):
        with pytest.raises(VerifyError, match="extent"):
            model(FILLED.format(e=e), tmp_path)


def test_traced_and_eager_shapes():
    f = trace(lambda x: F.full((x.shape[0] * (1 << 60),), 1.0), dynamic_axes={0: "n"})
    with pytest.raises(SizeError, match=r"f32\[2305843009213693952\]"):
        f(Tensor(np.ones(2, "float32")))
    with pytest.raises(SizeError, match="does not fit 64 bits"):
        trace(lambda x: F.full((x.shape[0] * (1 << 70),), 1.0), dynamic_axes={0: "n"})(Tensor(np.ones(2, "float32")))
    one = F.full((), 1.0)
    calls = [
        lambda: F.zeros((1 << 58,)), lambda: F.broadcast_to(one, (1 << 62,)), lambda: F.arange(1 << 62),
        lambda: F.broadcast_to(one, (1 << 30, 1 << 30)), lambda: F.concat([F.broadcast_to(one, (1 << 57,))] * 4),
        lambda: F.zeros((0, 1 << 40, 1 << 40)),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(SizeError, match="bytes"):
            call()


def test_a_plan_takes_no_integer_that_it_would_cut():
    with pytest.raises(OverflowError):
        native.make_plan(0, 0, [], 0, [1 << 64])


# ---- the arithmetic itself

LEAVES = st.one_of(
    st.sampled_from(["N", "M"]), st.integers(0, 9).map(str),
    st.sampled_from([str(k) for i in (31, 32, 61, 62, 63) for k in ((1 << i) - 1, 1 << i) if k < 1 << 63]),
)  # fmt: skip
TEXTS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*"), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        st.tuples(inner, st.sampled_from(["//", "%"]), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        st.tuples(st.sampled_from(["min", "max"]), inner, inner).map(lambda t: f"{t[0]}({t[1]}, {t[2]})"),
    ),
    max_leaves=6,
)
NUMBERS = st.sampled_from([0, 1, 2, 3, 7, 1 << 31, (1 << 62) + 1, (1 << 63) - 1])


@settings(max_examples=400, deadline=None)
@given(text=TEXTS, n=NUMBERS, m=NUMBERS)
@example(text="(N * 2305843009213693952)", n=8, m=0)
@example(text="((N * 2305843009213693952) * 8)", n=1, m=0)
@example(text="((N + 9223372036854775807) + 9223372036854775807)", n=1, m=0)
def test_values_are_exact_or_errors(text, n, m):
    """Written as it stands, and folded while it is written: the value of Python's integers, or an error."""
    try:
        exact = eval(text.replace("min", "_min").replace("max", "_max"), {"N": n, "M": m, "_min": min, "_max": max})
    except ZeroDivisionError:
        exact = None
    env = {var("N"): n, var("M"): m}
    plain = parse_expr(text)
    folded = map_expr(plain, rebuild, {})
    values = []
    for e in (plain, folded, map_expr(plain, rebuild, {k: const(v) for k, v in env.items()})):
        try:
            values.append(Numbers(env)(e))
        except SizeError:
            continue
    assert exact is None or (all(v == exact for v in values) and all(map(fits, values))), (text, values, exact)


@settings(max_examples=300, deadline=None)
@given(data=st.data(), n=NUMBERS)
def test_folding_keeps_a_kernels_bits(data, n):
    """In a kernel int64 wraps: what is folded while it is written has the bits of what is not."""
    text = data.draw(TEXTS.filter(lambda t: "/" not in t and "%" not in t))
    plain = parse_expr(text)
    env = {var("N"): n, var("M"): 3}
    assert int(evaluate(plain, env)) == int(evaluate(map_expr(plain, rebuild, {}), env))


def test_types_fit_what_is_computed_of_them():
    """Positions, sizes rounded up and numbers of pieces stay below 2^63 for every type that there is."""
    edge = [1, 3, 1 << 20, (1 << 57) - 1, 1 << 58, 1 << 59, 1 << 60]
    for dt, size in (("i8", 1), ("f32", 4), ("f64", 8)):
        for shape in itertools.product(edge, repeat=2):
            n = size * shape[0] * shape[1]
            if n < MOST_BYTES:
                assert parse_type(f"{dt}[{shape[0]},{shape[1]}]").shape == shape and 8 * n <= 1 << 63
            else:
                with pytest.raises(VerifyError, match="more than any machine has"):
                    parse_type(f"{dt}[{shape[0]},{shape[1]}]")
