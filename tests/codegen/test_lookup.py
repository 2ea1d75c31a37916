"""`lookup`, lanes of a vector by their numbers: every target gives the interpreter's bits, which move and compute nothing."""

from __future__ import annotations

import numpy as np
import pytest
from needs import needs
from running import call, load
from test_aarch64 import run_emulated

from tengen.base.dtype import float32, int32, uint32
from tengen.base.errors import VerifyError
from tengen.codegen.llvm import emit_module
from tengen.codegen.targets import Target
from tengen.loops.builder import Builder
from tengen.loops.interp import interpret
from tengen.loops.lang import LANES, lookup, var
from tengen.loops.rewriting import substitute
from tengen.loops.text import parse_kernel, print_kernel
from tengen.loops.verify import typed

TARGETS = ["native", "x86-64-v3", "x86-64"] if Target.host().arch == "x86_64" else ["native"]
COUNT = 64 * LANES


def operands() -> list[np.ndarray]:
    """Bits of floats, NaN with a payload among them, and numbers of lanes, of which only the lowest three bits count."""
    r = np.random.default_rng(3)
    table = r.integers(0, 1 << 32, COUNT, dtype="uint32")
    table[::9] = 0x7FA12345
    index = np.where(r.integers(0, 2, COUNT), r.integers(0, 8, COUNT), r.integers(-(1 << 31), 1 << 31, COUNT)).astype("int32")
    return [table.view("float32"), index, np.zeros(COUNT, "float32")]


def kernel():
    k = Builder("lookups")
    table, index, out = k.input("table", float32), k.input("index", int32), k.output("out", float32)
    with k.loop(0, k.int("n"), LANES) as i:
        k.store(out, i, lookup(k.load(table, i, LANES), k.load(index, i, LANES)))
    return k.build()


def wanted(table, index) -> np.ndarray:
    halves = np.arange(COUNT) // 8 * 8
    return table.view("uint32")[halves + (index & 7)]


def test_the_meaning():
    made = operands()
    k = kernel()
    interpret(k, made, [COUNT])
    np.testing.assert_array_equal(made[2].view("uint32"), wanted(*made[:2]))
    assert print_kernel(parse_kernel(print_kernel(k))) == print_kernel(k)
    a, b, c = var("a", float32, LANES), var("b", int32, LANES), var("c", int32, LANES)
    assert substitute(lookup(a, b), {b: c}) is lookup(a, c)


@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("target", TARGETS)
def test_every_target(target, level):
    made, k = operands(), kernel()
    call(load([k], Target.named(target), level), k, made, [COUNT])
    np.testing.assert_array_equal(made[2].view("uint32"), wanted(*made[:2]))


@needs("qemu", "ziglang")
def test_on_arm(tmp_path):
    made = operands()
    [(*_, got)] = run_emulated(tmp_path, [kernel()], [made], [[COUNT]])
    np.testing.assert_array_equal(got.view("uint32"), wanted(*made[:2]))


def test_the_instruction_is_used_where_there_is_one():
    for target, name in (("x86-64-v3", "avx2.permps"), ("x86-64-v4", "avx512.permvar.sf"), ("aarch64", "neon.tbl2"), ("x86-64", "")):
        text = emit_module([kernel()], Target.named(target))
        assert name in text and ("extractelement" in text) is not bool(name), target


def test_what_is_no_lookup():
    a, i = var("a", float32, LANES), var("i", int32, LANES)
    for args in ((a, var("i", uint32, LANES)), (i, i), (var("s", float32), i), (a, var("s", int32))):
        with pytest.raises(VerifyError, match="lookup takes vectors of float32 and int32"):
            lookup(*args)
    for args, message in (((i, i), "lookup takes float32 and int32, got int32 and int32"), ((a,), "lookup takes 2 operands, got 1")):
        with pytest.raises(VerifyError, match=message):
            typed("lookup", args)
    with pytest.raises(VerifyError, match="lookup takes a vector"):
        typed("lookup", (a, var("s", int32)))
    with pytest.raises(VerifyError, match="lookup has no attribute"):
        typed("lookup", (a, i), 3)
