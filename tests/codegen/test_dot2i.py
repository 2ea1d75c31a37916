"""`dot2i`, the products of pairs of int16: every target gives the interpreter's bits, which are exact arithmetic that
wraps."""

from __future__ import annotations

import numpy as np
import pytest
from running import call, load, same

from tengen.base.dtype import int32, uint32
from tengen.base.errors import VerifyError
from tengen.codegen.llvm import emit_module
from tengen.codegen.targets import Target
from tengen.loops.builder import Builder
from tengen.loops.dots import dot2i
from tengen.loops.interp import evaluate
from tengen.loops.lang import LANES, var
from tengen.loops.text import parse_kernel, print_kernel

TARGETS = ["native", "x86-64-v3"] if Target.host().arch == "x86_64" else ["native"]
EDGES = np.array([-32768, -32767, -1, 0, 1, 127, 255, 32767], "int16")


def operands(count: int = 1 << 12):
    """Totals and pairs: anything, and edges."""
    rng = np.random.default_rng(5)
    anything = lambda: rng.integers(0, 1 << 32, count, dtype="uint32")
    edges = lambda: rng.choice(EDGES, 2 * count).view("uint32")
    return anything().view("int32"), np.where(rng.integers(0, 2, count), anything(), edges()).astype("uint32"), edges()


def kernel(lanes=LANES):
    k = Builder("integer_dots")
    total, a, b, out = k.input("total", int32), k.input("a", uint32), k.input("b", uint32), k.output("out", int32)
    with k.loop(0, k.int("n"), lanes) as i:
        k.store(out, i, dot2i(k.load(total, i, lanes), k.load(a, i, lanes), k.load(b, i, lanes)))
    return k.build()


def wanted(total, a, b):
    x, y = (v.view("int16").reshape(-1, 2).astype("int64") for v in (a, b))
    return (total + (x * y).sum(1)).astype("int32")


def test_the_meaning():
    args = operands()
    t, a, b = (var(n, d) for n, d in zip("tab", (int32, uint32, uint32)))
    np.testing.assert_array_equal(evaluate(dot2i(t, a, b), dict(zip((t, a, b), args))), wanted(*args))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("lanes", [LANES, 1])
def test_every_target(target, lanes):
    args = operands()
    k, got = kernel(lanes), np.zeros_like(args[0])
    assert print_kernel(parse_kernel(print_kernel(k))) == print_kernel(k)
    call(load([k], Target.named(target)), k, [*args, got], [len(got)])
    same(got, wanted(*args))


def test_the_instruction_is_used_where_there_is_one():
    if Target.host().arch == "x86_64":
        assert "pmaddw.d.512" in emit_module([kernel()], Target.named("x86-64-v4"))
        assert "avx2.pmadd.wd" in emit_module([kernel()], Target.named("x86-64-v3"))
    assert "pmadd" not in emit_module([kernel()], Target.named("aarch64"))


def test_what_is_no_pair():
    with pytest.raises(VerifyError, match="dot2i takes int32, uint32 and uint32"):
        dot2i(var("t", int32), var("a", int32), var("b", uint32))
