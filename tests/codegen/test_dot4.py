"""`dot4i`, `dot4n`, `dot4u`, `dot4s`, `dot2h`, `quad4i` and `quad4u`, the products of four integers of 8 bits, and `swizzle`, which orders what
is multiplied: every target gives the interpreter's bits, which are exact arithmetic that wraps, or saturates where that is said."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from running import call, load, same

from tengen.base.dtype import int32, uint8, uint32
from tengen.base.errors import VerifyError
from tengen.codegen.llvm import emit_module
from tengen.codegen.targets import Target
from tengen.loops.builder import Builder
from tengen.loops.dots import dot2h, dot4i, dot4n, dot4s, dot4u, quad4i, quad4u
from tengen.loops.interp import evaluate
from tengen.loops.lang import DOTS as TOTALS
from tengen.loops.lang import LANES, QUADS, const, splat, swizzle, var
from tengen.loops.text import parse_kernel, print_kernel

HOST = Target.host()
TARGETS = ["native", "x86-64-v3"] if HOST.arch == "x86_64" else ["native"]
DOTS = {  # name -> the function, the dtype of the first operand
    "dot4i": (dot4i, "int8"), "dot4n": (dot4n, "int8"), "dot4u": (dot4u, "uint8"), "dot4s": (dot4s, "uint8"), "dot2h": (dot2h, "uint8"),
    "quad4i": (quad4i, "int8"), "quad4u": (quad4u, "uint8"),
}  # fmt: skip
WITH = [  # an operation, a target, a feature of LLVM's, the instruction that it has then
    ("dot4u", "x86-64-v4", "avx512vnni", "vpdpbusd.512"),
    ("dot4u", "x86-64-v3", "avxvnni", "vpdpbusd.256"),
    ("dot4i", "aarch64", "dotprod", "neon.sdot"),
    ("dot4u", "aarch64", "i8mm", "neon.usdot"),
    ("quad4i", "aarch64", "i8mm", "neon.smmla"),
    ("quad4u", "aarch64", "i8mm", "neon.usmmla"),
    ("dot4i", "armv7-exact", "neon", "neon.vpadals"),
    ("dot2h", "x86-64", "avx2", "pmadd.ub.sw"),
    ("dot4n", "x86-64", "avx2", "psign.b"),
    ("dot4n", "x86-64-v3", "avx512bw", "pmaddubs.w.512"),
    ("dot4s", "x86-64", "avx2", "pmadd.ub.sw"),
    ("dot2h", "x86-64-v3", "avx512bw", "pmaddubs.w.512"),
]


def operands(name: str, count: int = 1 << 12):
    """Totals and groups: anything, and edges."""
    rng = np.random.default_rng(5)
    anything = lambda: rng.integers(0, 1 << 32, count, dtype="uint32")
    edges = lambda: rng.choice(np.array([0, 1, 127, 128, 255], "uint8"), 4 * count).view("uint32")
    return anything().view(TOTALS[name].numpy), np.where(rng.integers(0, 2, count), anything(), edges()).astype("uint32"), edges()


def kernel(name: str, lanes=LANES, filled=False):
    """filled: the first operand is one number in all lanes."""
    k = Builder(f"bytes_{name}" + "_filled" * filled)
    dt = TOTALS[name]
    total, a, b, out = k.input("total", dt), k.input("a", uint32), k.input("b", uint32), k.output("out", dt)
    with k.loop(0, k.int("n"), lanes) as i:
        first = splat(k.load(a, i)) if filled else k.load(a, i, lanes)
        k.store(out, i, DOTS[name][0](k.load(total, i, lanes), first, k.load(b, i, lanes)))
    return k.build()


def wanted(name, total, a, b):
    x, y = (v.view(d).reshape(-1, 4).astype("int64") for v, d in ((a, DOTS[name][1]), (b, "int8")))
    if name in QUADS:  # [quad, row of a or column of b, term]
        x, y = (v.reshape(-1, 2, 8) for v in (x, y))
        return (total + np.einsum("qik,qjk->qij", x, y).reshape(-1)).astype("int32")
    if name == "dot4s":
        pairs = np.clip((x * y).reshape(-1, 2, 2).sum(-1), -(2**15), 2**15 - 1)
        return (total + pairs.sum(1)).astype("int32")
    if name == "dot2h":
        sums = total.view("int16") + ((x % 128) * y).reshape(-1, 2).sum(1)
        return sums.astype("int16").view("uint32")
    if name == "dot4n":
        y = np.maximum(y, -127)
    return (total + (x * y).sum(1)).astype("int32")


@pytest.mark.parametrize("name", DOTS)
def test_the_meaning(name):
    args = operands(name)
    lanes = LANES if name in QUADS else 1
    t, a, b = (var(n, d, lanes) for n, d in zip("tab", (TOTALS[name], uint32, uint32)))
    e, values = DOTS[name][0](t, a, b), [x.reshape(-1, LANES) if lanes > 1 else x for x in args]
    np.testing.assert_array_equal(evaluate(e, dict(zip((t, a, b), values))).reshape(-1), wanted(name, *args))


@pytest.mark.parametrize("name, lanes", [(name, lanes) for name in DOTS for lanes in (LANES, 1) if lanes > 1 or name not in QUADS])
@pytest.mark.parametrize("target", TARGETS)
def test_every_target(name, target, lanes):
    args = operands(name)
    k, got = kernel(name, lanes), np.zeros_like(args[0])
    assert print_kernel(parse_kernel(print_kernel(k))) == print_kernel(k)
    call(load([k], Target.named(target)), k, [*args, got], [len(got)])
    same(got, wanted(name, *args))


@pytest.mark.parametrize("name, target, feature, instruction", WITH)
def test_the_instruction_is_used_where_there_is_one(name, target, feature, instruction):
    without = Target.named(target)
    assert instruction not in emit_module([kernel(name)], without)
    assert instruction in emit_module([kernel(name)], replace(without, features=f"{without.features},+{feature}"))


def test_what_is_no_group():
    with pytest.raises(VerifyError, match="dot4u takes int32, uint32 and uint32"):
        dot4u(var("t", int32), var("a", int32), var("b", uint32))


def test_a_quad_of_one_number_is_a_vector():
    """What is one number is the same in all lanes: a lane alone is no result."""
    one = const(0x01010101, uint32)
    assert evaluate(quad4i(const(2, int32), one, one), {}).tolist() == [10] * LANES


def test_a_swizzle_takes_lanes_or_zeros():
    rng = np.random.default_rng(0)
    x, index = (np.concatenate([rng.integers(0, 256, 16 * 64, dtype="uint8"), np.arange(256, dtype="uint8")]) for _ in "xi")
    want = np.where(index < 128, np.take_along_axis(x.reshape(-1, 16), index.reshape(-1, 16) % 16, 1).reshape(-1), 0).astype("uint8")
    k = Builder("swizzled")
    buffers = [k.input("x", uint8), k.input("index", uint8)]
    out = k.output("out", uint8)
    with k.loop(0, k.int("n"), LANES) as i:
        k.store(out, i, swizzle(*(k.load(b, i, LANES) for b in buffers)))
    made = k.build()
    assert print_kernel(parse_kernel(print_kernel(made))) == print_kernel(made)
    variables = [var(n, uint8, LANES) for n in "xi"]
    values = dict(zip(variables, (x.reshape(-1, 16), index.reshape(-1, 16))))
    assert np.array_equal(evaluate(swizzle(*variables), values).reshape(-1), want)
    for target in [*TARGETS, *(["x86-64"] if HOST.arch == "x86_64" else [])]:
        got = np.zeros_like(x)
        call(load([made], Target.named(target)), made, [x, index, got], [len(got)])
        same(got, want)
    assert "pshuf.b" in emit_module([made], Target.named("x86-64-v3")) and "pshuf.b" not in emit_module([made], Target.named("x86-64"))


def test_a_swizzle_of_one_number_in_all_lanes_has_zeros_where_the_index_says_so():
    index = const(0x80, uint8)
    assert evaluate(swizzle(splat(const(7, uint8)), splat(index)), {}).tolist() == [0] * LANES
    with pytest.raises(VerifyError, match="swizzle takes vectors of uint8 and uint8"):
        swizzle(splat(index), splat(const(1, int32)))
