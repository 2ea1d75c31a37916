"""The kernel language's text form: printing, parsing back, and what is no kernel."""

import dataclasses
import math

import numpy as np
import pytest
from each import each
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_kernels import kernels, literals

from tengen.base.dtype import ALL, float32, int64
from tengen.base.errors import VerifyError
from tengen.loops.builder import Builder
from tengen.loops.form import form
from tengen.loops.interp import interpret
from tengen.loops.lang import Expr, cast, cdiv, const, expr, maximum, minimum, ramp, splat, var
from tengen.loops.statements import Buffer, Kernel
from tengen.loops.text import parse_expr, parse_kernel, print_expr, print_kernel
from tengen.loops.verify import typed, verify

QUICK = settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))


def alike(a, b) -> bool:
    """Whether two pieces of kernels are the same: expressions as objects, buffers and statements by their fields."""
    if isinstance(a, Expr) or not isinstance(a, (Buffer, Kernel, list)) and not dataclasses.is_dataclass(a):
        return a is b or (not isinstance(a, Expr) and a == b)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(alike, a, b))
    return type(a) is type(b) and all(alike(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a))


SCALE = """\
kernel scale(in x: f32, out y: f32, int n):
    scratch s: f32[64]
    each piece of (n + 1023) // 1024:
        $0 = piece * 1024
        let stop = min(n, $0 + 1024)
        var total = splat(-0.0f32)
        for i in range(piece * 1024, stop, 16):
            load v: f32x16 = x[i] first stop - i else 0.0f32
            set total = total + v
            if i > 0 & fold.add(v) < f32.inf:
                store y[i] = v * 2.0f32 first stop - i
            else:
                pass
        store s[0] = fold.add(total)
"""


def test_a_kernel_written_by_hand():
    k = parse_kernel(SCALE.replace("i > 0 & fold.add(v) < f32.inf", "(i > 0) & (fold.add(v) < f32.inf)"))
    text = print_kernel(k)
    assert print_kernel(parse_kernel(text)) == text
    assert "if (i > 0) & (fold.add(v) < f32.inf):" in text and "store y[i] = v * 2.0f32 first stop - i" in text
    x, y = np.arange(20, dtype=np.float32), np.zeros(20, np.float32)
    interpret(k, [x, y], [20])
    assert y.tolist() == [0.0] * 16 + [32.0, 34.0, 36.0, 38.0]


def test_the_builders_kernel_reads_well():
    k = Builder("relu")
    x, y, n = k.input("x", float32), k.output("y", float32), k.int("n")
    piece = k.split(cdiv(n, 64))
    for i, count in k.vector_loop(piece * 64, minimum(n, piece * 64 + 64)):
        k.store(y, i, maximum(k.load(x, i, 16, count), 0.0), count)
    assert print_kernel(k.build()).splitlines()[:6] == [
        "kernel relu(in x: f32, out y: f32, int n):",
        "    each piece of (n + 63) // 64:",
        "        $0 = piece * 64",
        "        let whole = $0 + (min(n, $0 + 64) - $0) // 16 * 16",
        "        for i in range(piece * 64, whole, 16):",
        "            load v: f32x16 = x[i]",
    ]


@given(kernels())
@QUICK
def test_print_parse_print_is_a_fixed_point(k):
    verify(k)
    text = print_kernel(k)
    again = parse_kernel(text)
    assert alike(k, again), text
    assert print_kernel(again) == text


@given(st.sampled_from(ALL).flatmap(literals))
@QUICK
def test_literals_read_back_exactly(e):
    assert parse_expr(print_expr(e)) is e


@pytest.mark.parametrize("v", [0.0, -0.0, math.inf, -math.inf, math.nan, 5e-324, 1.7976931348623157e308, 0.1, 1e16, 1e-7])
def test_special_floats(v):
    for d in (d for d in ALL if d.is_float):
        for e in (const(v, d), typed("neg", (const(v, d),))):
            assert parse_expr(print_expr(e)) is e


def test_precedence_and_grouping_are_kept():
    a, b, c = var("a"), var("b"), var("c")
    t = typed
    for e, text in [
        (t("sub", (t("sub", (a, b)), c)), "a - b - c"),
        (t("sub", (a, t("sub", (b, c)))), "a - (b - c)"),
        (t("mul", (t("add", (a, b)), c)), "(a + b) * c"),
        (t("add", (a, t("mul", (b, c)))), "a + b * c"),
        (t("neg", (t("add", (a, b)),)), "-(a + b)"),
        (t("not", (t("neg", (const(1),)),)), "~-(1)"),
        (t("shl", (a, t("and", (b, c)))), "a << (b & c)"),
        (t("eq", (t("lt", (a, b)), t("lt", (b, c)))), "(a < b) == (b < c)"),
        (t("floordiv", (a, const(-1))), "floordiv(a, -1)"),
    ]:
        assert print_expr(e) == text and parse_expr(text) is e
    assert parse_expr("a-1") is t("sub", (a, const(1))) and parse_expr("a%b//c") is t("quo", (t("rem", (a, b)), c))


def test_shared_parts_are_written_once_and_deep_ones_cut():
    x = var("x", float32)
    e = x
    for _ in range(200):
        e = typed("mul", (e, e))
    deep = x
    for _ in range(3000):
        deep = typed("neg", (deep,))
    k = Builder("deep")
    buffer = k.input("b", float32)
    k._names["x"] = 1
    v = k.load(buffer, 0, name="x")
    assert v is not x  # the builder named it otherwise
    k._body[-1].var = x
    k.let(e)
    k.let(deep)
    kernel = k.build()
    text = print_kernel(kernel)
    assert len(text) < 20000 and max(map(len, text.splitlines())) < 128
    assert alike(parse_kernel(text), kernel)


def test_a_scalar_under_two_splats_is_shared():
    k = Builder("k")
    x = k.let(k.load(k.input("x", float32), 0))
    e = splat(typed("sqrt", (x,)))
    k.let(typed("mul", (typed("add", (e, ramp_f())), typed("sub", (ramp_f(), e)))))
    text = print_kernel(k.build())
    assert text.count("sqrt") == 1 and alike(parse_kernel(text), k.build())


def ramp_f():
    return cast(ramp(), float32)


BAD = [
    ("", "line 2, column 1: unexpected end"),
    ("kernel k()", "expected ':'"),
    ("kernel k():", "unexpected end"),
    ("kernel k():\n  each p of 1:", "expected an indented block"),
    ("kernel k():\n  each p of 1:\n  pass", "expected an indented block"),
    ("kernel k():\n  each p of 1:\n    pass\n      pass", "unexpected indentation"),
    ("kernel k():\n  each p of 1:\n    pass\nmore", "unexpected text after the kernel"),
    ("kernel k():\n\teach p of 1:\n\t\tpass", r"line 2, column 1: unexpected '\\t'"),
    ("kernel k(in x: f33):", "column 16: expected a dtype"),
    ("kernel k(in x: f32, in x: f32):", "given twice"),
    ("kernel k(inout x: f32):", "expected in or out"),
    ("kernel k():\n  each p of 1:\n    let a = b", "line 3, column 13: b is not defined"),
    ("kernel k():\n  each p of 1:\n    let a = 1.5", "floats end in their dtype"),
    ("kernel k():\n  each p of 1:\n    let a = 300u8", "300 is not a value of uint8"),
    ("kernel k():\n  each p of 1:\n    let a = 1 + 1.0f32", "column 15: add has operands of dtypes int64, float32"),
    ("kernel k():\n  each p of 1:\n    let a = 1 < 2 < 3", "comparisons do not chain"),
    ("kernel k():\n  each p of 1:\n    let a = frobnicate(1)", "no function frobnicate"),
    ("kernel k():\n  each p of 1:\n    let a = lane.16(ramp())", "lane 16 is not one of"),
    ("kernel k():\n  each p of 1:\n    let a = lane.9999999999(ramp())", "is not one of"),
    ("kernel k():\n  each p of 1:\n    let a = $3", r"\$3 is not defined"),
    ("kernel k():\n  each p of 1:\n    $0 = 1\n    $0 = 1", "defined twice"),
    ("kernel k():\n  each p of 1:\n    let a = " + "(" * 5000, "nested deeper than 64"),
    ("kernel k():\n  each p of 1:\n    let a = " + "9" * 5000, "is not a literal"),
    ("kernel k():\n  each p of 1:\n" + "".join("  " * i + "if true:\n" for i in range(2, 200)), "nested deeper than 64"),
    ("kernel k():\n  each p of 1:\n    for i in range(0, 9, 0):\n      pass", "the step 0 is not a positive literal"),
    ("kernel k(in x: f32):\n  each p of 1:\n    store x[0] = 1.0f32", "buffer x is read only"),
    ("kernel k(in x: f32):\n  each p of 1:\n    load v: f32x8 = x[0]", "expected a type"),
    ("kernel k(in x: f32):\n  each p of 1:\n    load v: i32 = x[0]", "the variable v is int32"),
]


@each("text, message", BAD, ids=repr)
def test_what_is_no_kernel_is_named(text, message):
    with pytest.raises(VerifyError, match=message):
        parse_kernel(text)


PIECES = ["", "(", ")", "1", "$0", "x", "\n", "  ", ":", "`", "-", "f32", '"']


@given(st.data())
@QUICK
def test_any_text_gives_a_kernel_or_a_verify_error(data):
    if data.draw(st.booleans()):
        text = data.draw(st.text(max_size=60))
    else:  # a kernel's text with a few characters changed
        text = SCALE if data.draw(st.booleans()) else print_kernel(data.draw(kernels()))
        for _ in range(data.draw(st.integers(1, 4))):
            i = data.draw(st.integers(0, len(text)))
            j = data.draw(st.integers(i, min(len(text), i + 5)))
            text = text[:i] + data.draw(st.sampled_from(PIECES)) + text[j:]
    try:
        k = parse_kernel(text)
    except VerifyError:
        return
    assert print_kernel(parse_kernel(print_kernel(k))) == print_kernel(k)


def test_only_text_is_text():
    with pytest.raises(VerifyError):
        parse_kernel(None)
    assert parse_expr("N * 2") is expr("mul", (var("N"), const(2)), int64)


@QUICK
@given(kernels(), st.randoms(use_true_random=False))
def test_kernels_have_one_form_where_they_have_one_text(k, random):
    again = parse_kernel(print_kernel(k))
    assert form(again) == form(k) == form(dataclasses.replace(k, name="another"))
    lines = print_kernel(k).splitlines(keepends=True)
    random.shuffle(lines)
    try:
        other = parse_kernel("".join(lines))
    except VerifyError:
        return
    assert (form(other) == form(k)) == (print_kernel(other) == print_kernel(k))
