"""Dot products of pairs of bfloat16: the instruction, its emulation on other targets and the interpreter give the same bits, for
every kind of number; the meaning is compared with exact arithmetic; loads of pairs."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from running import call, load, same

from tengen.base.dtype import bfloat16, float32, uint32
from tengen.base.errors import VerifyError
from tengen.codegen.llvm import emit_module
from tengen.codegen.targets import Target
from tengen.loops.builder import Builder
from tengen.loops.dots import dot2, pair
from tengen.loops.interp import evaluate, interpret
from tengen.loops.lang import LANES, const, var
from tengen.loops.text import parse_kernel, print_kernel
from tengen.loops.verify import verify

TARGETS = ["native", "x86-64-v3"] if Target.host().arch == "x86_64" else ["native"]
COUNT = 1 << 12
SPECIAL = [0, 0x8000, 0x7F80, 0xFF80, 0x7FC0, 0x3F80, 0xBF80, 1, 0x8001, 0x7F7F, 0xFF7F, 0x80, 0x8080, 0x7F]


def bf16(rng, low, high):
    """Bits of bfloat16 with exponents from low to high."""
    return (rng.integers(0, 2, COUNT) << 15 | rng.integers(low, high, COUNT) << 7 | rng.integers(0, 128, COUNT)).astype(
        "uint32"
    )


def f32(rng, low, high):
    bits = rng.integers(0, 2, COUNT) << 31 | rng.integers(low, high, COUNT) << 23 | rng.integers(0, 1 << 23, COUNT)
    return bits.astype("uint32").view("float32")


def operands():
    """Totals and pairs, of every kind that rounds, vanishes, overflows or is no number."""
    rng = np.random.default_rng(5)
    both = lambda low, high: bf16(rng, low, high) | bf16(rng, low, high) << np.uint32(16)
    special = lambda: rng.choice(np.array(SPECIAL, "uint32"), COUNT)
    least = (rng.choice([-1, 1], COUNT) * 2.0**-126 * (1 + rng.integers(-1, 3, COUNT) * 2.0**-23)).astype("float32")
    anything = lambda: rng.integers(0, 1 << 32, COUNT, dtype="uint32")
    parts = [
        (f32(rng, 115, 140), both(120, 134), both(120, 134)),
        (anything().view("float32"), anything(), anything()),
        (f32(rng, 0, 4), both(0, 70), both(0, 80)),  # sums near the least normal number
        (least, both(45, 60), both(45, 60)),  # ... and just below it, where rounding decides
        (f32(rng, 0, 2), both(0, 2), both(120, 254)),  # denormal operands
        (f32(rng, 245, 256), both(180, 200), both(180, 200)),  # overflow
        (
            (special() << np.uint32(16)).view("float32"),
            special() | special() << np.uint32(16),
            special() | special() << np.uint32(16),
        ),
    ]
    return [np.concatenate(x) for x in zip(*parts)]


def kernel(lanes=LANES):
    k = Builder("dots")
    total, a, b, out = k.input("total", float32), k.input("a", uint32), k.input("b", uint32), k.output("out", float32)
    with k.loop(0, k.int("n"), lanes) as i:
        k.store(out, i, dot2(k.load(total, i, lanes), k.load(a, i, lanes), k.load(b, i, lanes)))
    return k.build()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("lanes", [LANES, 1])
def test_every_target_gives_the_interpreters_bits(target, lanes):
    args = operands()
    t, a, b = (var(n, d) for n, d in zip("tab", (float32, uint32, uint32)))
    want = evaluate(dot2(t, a, b), dict(zip((t, a, b), args)))
    assert np.isnan(want).any() and np.isinf(want).any() and (np.signbit(want) & (want == 0)).any()
    k, got = kernel(lanes), np.zeros_like(want)
    call(load([k], Target.named(target)), k, [*args, got], [len(got)])
    same(got, want)


def test_the_instruction_is_used_where_there_is_one():
    has = Target.named("x86-64-v4")
    plain = emit_module([kernel()], has)
    native = emit_module([kernel()], Target("x", has.triple, has.cpu, "+avx512bf16", 64, 32))
    assert "dpbf16ps" not in plain and "dpbf16ps" in native
    assert "dpbf16ps" not in emit_module([kernel(1)], Target.named("aarch64"))


def rounded(x: Fraction) -> float:
    """To 24 bits with an exponent of any size, then zero below 2^-126."""
    if not x:
        return 0.0
    e = abs(x.numerator).bit_length() - x.denominator.bit_length()
    e -= abs(x) < Fraction(2) ** e
    unit = Fraction(2) ** (e - 23)
    r = round(x / unit) * unit
    return float(r) if abs(r) >= Fraction(2) ** -126 else 0.0 * (1 if x > 0 else -1)


def test_the_meaning_in_exact_arithmetic():
    rng = np.random.default_rng(1)
    normal = lambda bits: float(np.uint32(bits << 16).view("float32"))
    t, a, b = operands()
    for i in [*rng.integers(0, COUNT, 200), *rng.integers(2 * COUNT, 4 * COUNT, 400)]:
        small = lambda x: 0.0 if abs(x) < 2.0**-126 else x
        total = Fraction(small(float(t[i])))
        for shift in (16, 0):
            x, y = (small(normal(int(v[i]) >> shift & 0xFFFF)) for v in (a, b))
            total = Fraction(rounded(Fraction(x) * Fraction(y) + total))
        e = dot2(var("t", float32), var("a", uint32), var("b", uint32))
        assert evaluate(e, dict(zip(e.args, (t[i], a[i], b[i])))) == float(total)


def pairs_kernel():
    k = Builder("pairs")
    x, y, one = k.input("x", bfloat16), k.output("y", uint32), k.output("one", uint32)
    made = k.output("made", uint32)
    n = k.int("n")
    k.store(y, 0, k.load_group(x, n, LANES))
    k.store(one, 0, k.load_group(x, n + 2))
    k.store(made, 0, pair(k.load(x, n), k.load(x, n + 1)))
    return k.build()


def test_pairs_are_loaded_from_any_element_on():
    k = pairs_kernel()
    assert print_kernel(parse_kernel(print_kernel(k))) == print_kernel(k)
    x = np.arange(35, dtype="uint16").view(bfloat16.numpy)
    for run in (lambda arrays: interpret(k, arrays, [3]), lambda arrays: call(load([k]), k, arrays, [3])):
        arrays = [x.copy(), np.zeros(16, "uint32"), np.zeros(1, "uint32"), np.zeros(1, "uint32")]
        run(arrays)
        assert arrays[1].tolist() == [(3 + 2 * i) | (4 + 2 * i) << 16 for i in range(16)]
        assert arrays[2].tolist() == [5 | 6 << 16] and arrays[3].tolist() == [3 | 4 << 16]
    with pytest.raises(IndexError, match="35 elements"):
        interpret(k, arrays, [4])


def test_what_is_no_pair():
    k = Builder("bad")
    x, i = k.input("x", bfloat16), k.piece
    k.load_group(x, i, LANES)
    good = k.build()
    verify(good)
    good.body[0].count, good.body[0].other = i, const(0, bfloat16)
    with pytest.raises(VerifyError, match="without a count"):
        verify(good)
    with pytest.raises(VerifyError, match="dot2 takes float32, uint32 and uint32"):
        dot2(var("t", float32), var("a", float32), var("b", uint32))
    text = (
        "kernel k(in a: f32, out y: f32):\n    each p of 1:\n        load v: f32 = a[0]\n        store y[0] = dot2(v, v, v)\n"
    )
    with pytest.raises(VerifyError, match="dot2 takes"):
        parse_kernel(text)
