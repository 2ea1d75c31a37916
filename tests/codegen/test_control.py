"""Loops, branches and variables; pieces; modules for every target."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from running import call, load, same

from tengen.base.dtype import bool_, float32, int64
from tengen.base.errors import CompileError, ConfigError
from tengen.codegen.llvm import affine, emit_kernel, emit_module
from tengen.codegen.targets import TARGET_NAMES, Target
from tengen.deploy.objects import read_object
from tengen.loops.builder import Builder
from tengen.loops.interp import interpret
from tengen.loops.lang import LANES, cdiv, const, equal, fma, fold, maximum, minimum, ramp, splat, var
from tengen.loops.statements import Let, Store
from tengen.runtime import compile as compiler
from tengen.runtime import llvm


def both(kernel, arrays, ints=(), pieces: int = 1) -> list[np.ndarray]:
    """The arrays after the machine code ran; the interpreter must agree."""
    mine, reference = [a.copy() for a in arrays], [a.copy() for a in arrays]
    call(load([kernel]), kernel, mine, ints, 0, pieces)
    interpret(kernel, reference, ints, range(pieces))
    for a, b in zip(mine, reference):
        same(a, b)
    return mine


@pytest.mark.parametrize("n", [-3, 0, 1, 2, 7, 100])
@pytest.mark.parametrize("step", [1, 3, 16])
def test_loops_carry_variables(n, step):
    k = Builder("sums")
    o, m = k.output("o", int64), k.int("n")
    total, count, last = k.var(0), k.var(0), k.var(-1)
    with k.loop(2, m, step) as i:
        total.set(total.value + i * i)
        before = k.let(count.value * 1)
        count.set(before + 1)
        last.set(i)
    for j, v in enumerate((total, count, last)):
        k.store(o, j, v.value)
    r = range(2, n, step)
    assert both(k.build(), [np.zeros(3, np.int64)], [n])[0].tolist() == [sum(i * i for i in r), len(r), r[-1] if r else -1]


@pytest.mark.parametrize("name", ["end", "then", "else", "loop", "done", "body", "entry", "exit"])
def test_variables_named_as_blocks_are(name):
    """LLVM keeps labels and values in one table."""
    k = Builder("names")
    o, m = k.output("o", int64), k.int("n")
    total = k.var(0, name=name)
    for _ in range(12):
        with k.loop(0, m) as i:
            with k.if_(i < 3):
                total.set(total.value + k.let(total.value + i, name))
    k.store(o, 0, total.value)
    want = 0
    for i in [0, 1, 2] * 12:
        want += want + i
    assert both(k.build(), [np.zeros(1, np.int64)], [5])[0][0] == want


def test_variables_swap():
    """Both new values are computed from the old ones."""
    k = Builder("fibonacci")
    o, n = k.output("o", int64), k.int("n")
    a, b = k.var(0), k.var(1)
    with k.loop(0, n):
        old = a.value
        k.emit(Let(t := var(k.fresh("t")), old + b.value))
        a.set(b.value)
        b.set(t)
    k.store(o, 0, a.value)
    kernel = k.build()
    assert [both(kernel, [np.zeros(1, np.int64)], [n])[0][0] for n in range(8)] == [0, 1, 1, 2, 3, 5, 8, 13]


def test_branches_merge_variables():
    k = Builder("branches")
    o, n = k.output("o", int64), k.int("n")
    a, b, c = k.var(1), k.var(2), k.var(3)
    with k.if_(n < 5):
        a.set(10)
        with k.if_(n < 2):
            b.set(a.value + 1)
            c.set(7)
        with k.else_():
            c.set(b.value + 40)
    with k.else_():
        b.set(const(100) + n)
    with k.if_(n > 100):
        a.set(-1)
    for j, v in enumerate((a, b, c)):
        k.store(o, j, v.value)
    kernel = k.build()
    got = [both(kernel, [np.zeros(3, np.int64)], [n])[0].tolist() for n in (1, 3, 9, 200)]
    assert got == [[10, 11, 7], [10, 2, 42], [1, 109, 3], [-1, 300, 3]]


def test_loops_in_branches_in_loops():
    k = Builder("collatz")
    x, o, n = k.input("x", int64), k.output("o", int64), k.int("n")
    with k.loop(0, n) as i:
        v, steps = k.var(k.load(x, i)), k.var(0)
        with k.loop(0, 200), k.if_(v.value > 1):
            steps.set(steps.value + 1)
            with k.if_(equal(v.value % 2, const(0))):
                v.set(v.value // 2)
            with k.else_():
                v.set(v.value * 3 + 1)
                with k.loop(0, 2) as j:
                    v.set(v.value + j * 0)
        k.store(o, i, steps.value)

    def steps(v: int) -> int:
        return 0 if v <= 1 else 1 + steps(v // 2 if v % 2 == 0 else 3 * v + 1)

    a = np.arange(1, 40)
    assert both(k.build(), [a, np.zeros(39, np.int64)], [39])[1].tolist() == [steps(v) for v in range(1, 40)]


def test_vector_and_predicate_variables():
    k = Builder("vectors")
    x, o, n = k.input("x", float32), k.output("o", float32), k.int("n")
    best, any_ = k.var(const(-np.inf, float32, LANES)), k.var(const(False, bool_, LANES))
    with k.loop(0, n, LANES) as i:
        v = k.load(x, i, LANES)
        best.set(maximum(best.value, v))
        any_.set(any_.value | (v > 2.0))
    k.store(o, 0, fold("max", best.value))
    with k.if_(fold("or", any_.value)):
        k.store(o, 1, const(1.0, float32))
    a = np.random.default_rng(0).standard_normal(160).astype(np.float32)
    got = both(k.build(), [a, np.zeros(2, np.float32)], [160])[1]
    assert got.tolist() == [a.max(), float((a > 2).any())]


def test_an_expression_is_computed_where_it_is_needed():
    """What a branch computed is computed again after it: the branch may not have run."""
    k = Builder("again")
    o, n, d = k.output("o", int64), k.int("n"), k.int("d")
    k.store(o, 0, const(0))
    with k.if_(d > 0):
        k.store(o, 0, n // maximum(d, 1))
    with k.loop(0, d):
        k.store(o, 1, n * 7 + d)
    k.store(o, 2, n * 7 + d)
    k.store(o, 3, n // maximum(d, 1))
    kernel = k.build()
    assert both(kernel, [np.zeros(4, np.int64)], [9, 2])[0].tolist() == [4, 65, 65, 4]
    assert both(kernel, [np.zeros(4, np.int64)], [9, 0])[0].tolist() == [0, 0, 63, 9]


def test_indices_that_a_loop_does_not_change_are_computed_before_it():
    k = Builder("before")
    x, o, n, m = k.input("x", float32), k.output("o", float32), k.int("n"), k.int("m")
    p = k.split(n)
    with k.loop(0, n, name="row") as r, k.if_(r < n - 1), k.loop(0, m, name="inner") as i:
        with k.if_(i > 0):
            k.store(o, (p * n + r) * m + i, k.load(x, (r + 1) * (n * m) + p * m + i))
    kernel = k.build()
    rng = np.random.default_rng(0)
    both(kernel, [rng.standard_normal(3 * 12).astype(np.float32), np.zeros(36, np.float32)], [3, 4], 3)
    text = emit_kernel(kernel, Target.host())
    inner = text[text.index("%inner.") :]
    assert " mul " in text and " mul " not in inner


def test_an_assigned_variable_is_read_anew():
    k = Builder("anew")
    o = k.output("o", int64)
    v = k.var(1)
    e = v.value * 10 + 1
    k.store(o, 0, e)
    v.set(2)
    k.store(o, 1, e)
    assert both(k.build(), [np.zeros(2, np.int64)])[0].tolist() == [11, 21]


def saxpy(name: str = "saxpy"):
    k = Builder(name)
    x, y, o, n = k.input("x", float32), k.input("y", float32), k.output("o", float32), k.int("n")
    p = k.split(cdiv(n, 100))
    start = k.let(p * 100)
    for i, count in k.vector_loop(start, k.let(minimum(n, start + 100))):
        k.store(o, i, fma(splat(const(2.5, float32)), k.load(x, i, LANES, count), k.load(y, i, LANES, count)), count)
    return k.build()


@pytest.mark.parametrize("n", [0, 1, 15, 16, 99, 100, 101, 1000])
def test_pieces(n):
    rng = np.random.default_rng(n)
    x, y = rng.integers(-99, 99, (2, n)).astype(np.float32)
    pieces = -(-n // 100)
    got = both(saxpy(), [x, y, np.zeros(n, np.float32)], [n], pieces)[2]
    same(got, 2.5 * x + y)
    part = np.zeros(n, np.float32)
    kernel, loaded = saxpy(), load([saxpy()])
    call(loaded, kernel, [x, y, part], [n], 1, pieces)  # all but the first
    assert not part[:100].any()
    same(part[100:], got[100:])


@pytest.mark.parametrize("level", [0, 1, 2])
def test_levels_give_the_same_bits(level):
    x, y = np.random.default_rng(1).standard_normal((2, 333)).astype(np.float32)
    out = np.zeros(333, np.float32)
    call(load([saxpy()], level=level), saxpy(), [x, y, out], [333], 0, 4)
    same(out, (np.float64(2.5) * x + y).astype(np.float32))  # the float64 sum is exact here


@pytest.mark.parametrize("name", TARGET_NAMES)
def test_objects_for_every_target(name):
    target = Target.named(name)
    extra = "define void @run(ptr %b, ptr %i, ptr %p) {\n  call void @first(ptr %b, ptr %i, i64 0, i64 1)\n  ret void\n}\n"
    data = compiler.compile_object(emit_module([saxpy("first"), saxpy("second")], target, extra), target)
    made = read_object(data)
    assert made.defined == {"first", "second", "run"} and made.format == target.system.format and made.code_bytes > 50
    if made.format == "elf":
        assert made.machine == target.architecture.elf_machine


def test_targets():
    names = ("x86-64", "x86-64-exact", "x86-64-v3", "x86-64-v4")
    assert Target.named("x86-64-v3") == Target.named("x86-64-v3") and len({Target.named(n) for n in names}) == 4
    assert [Target.named(n).vector_bytes for n in names] == [16, 16, 32, 64]
    assert len({Target.named("x86-64-v3"), Target.named("x86-64-v3"), Target.named("x86-64-v3").key}) == 2
    assert Target.host() is Target.named("native") and Target.host().vector_bytes in (16, 32, 64)
    with pytest.raises(ConfigError, match="vax.*x86-64-v4"):
        Target.named("vax")
    for name in TARGET_NAMES:
        t = Target.named(name)
        assert str(llvm.machine(t.triple, t.cpu, t.features, relocation=t.system.relocation).target_data) == t.data_layout


def test_affine_indices():
    n = var("n")
    assert affine(ramp() * n + 3) == (const(3), n)
    assert affine((ramp() + 2) * 4 - ramp())[1] is const(3)
    assert affine(splat(n)) == (n, const(0))
    assert affine(ramp() * ramp()) is None and affine(ramp() // 2) is None


def test_text_is_deterministic():
    assert emit_kernel(saxpy(), Target.host()) == emit_kernel(saxpy(), Target.host())


def test_a_variable_out_of_scope():
    k = Builder("lost")
    o = k.output("o", int64)
    with k.if_(k.int("n") > 0):
        k.emit(Let(v := var("late"), const(5)))
    k.emit(Store(o, const(0), v))
    with pytest.raises(CompileError, match="lost: the variable late"):
        emit_kernel(k.build(), Target.host())


def test_math_functions_are_expanded():
    pytest.importorskip("tengen.loops.math")
    from tengen.loops.lang import call as function

    k = Builder("logistic")
    x, o = k.input("x", float32), k.output("o", float32)
    k.store(o, 0, function("exp", k.load(x, 0, LANES)) + function("exp", k.load(x, 0, LANES) * -1.0))
    a = np.linspace(-3, 3, 16, dtype=np.float32)
    got = both(k.build(), [a, np.zeros(16, np.float32)])[1]
    assert np.allclose(got, 2 * np.cosh(a.astype(np.float64)), rtol=1e-6)


def test_code_that_this_processor_cannot_run_is_refused():
    """With an error, where its first foreign instruction would end the process: by whoever loads it, and by TENGEN_TARGET."""
    other = Target.named("aarch64" if Target.host().arch == "x86_64" else "x86-64-v3")
    with pytest.raises(CompileError, match=f"code for {other.name} cannot run here: this processor is {Target.host().arch}"):
        load([saxpy("f")], other)
    if Target.host().arch != "x86_64":
        return
    wide = """
import sys
sys.path.insert(0, FOLDER)
from test_control import saxpy
from running import load
from tengen.base.errors import CompileError
from tengen.codegen.targets import Target
assert Target.machine() == Target.host() and not Target.host().has("avx512f") and Target.host().vector_bytes == 32
try:
    load([saxpy("f")], Target.named("x86-64-v4"))
except CompileError as e:
    print(e)
load([saxpy("f")], Target.named("x86-64-v3"))
"""
    here = repr(str(Path(__file__).parent))

    def run(text, **env):
        command = [sys.executable, "-c", text.replace("FOLDER", here)]
        return subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True)

    env = {"TENGEN_PROCESSOR": "x86-64-v3", "TENGEN_TARGET": "native"}
    done = run(wide, **env)
    assert done.returncode == 0 and "code for x86-64-v4 cannot run here: this processor has no avx512f, avx512bw" in done.stdout, done
    host = "from tengen.codegen.targets import Target; Target.host()"
    for more, told in (
        ({"TENGEN_TARGET": "x86-64-v4"}, "TENGEN_TARGET=x86-64-v4: this processor has no avx512f"),
        ({"TENGEN_TARGET": "x86-64"}, "TENGEN_TARGET=x86-64: artifacts alone are compiled for it"),
        ({"TENGEN_PROCESSOR": "x86-64"}, "TENGEN_PROCESSOR=x86-64: artifacts alone are compiled for it"),
        ({"TENGEN_PROCESSOR": "aarch64"}, "this processor has less than TENGEN_PROCESSOR=aarch64"),
        ({"TENGEN_PROCESSOR": "vax"}, "unknown TENGEN_PROCESSOR=vax"),
    ):
        done = run(host, **env | more)
        assert done.returncode == 1 and told in done.stderr


@pytest.mark.skipif(platform.machine() != "x86_64", reason="SSE2 is of x86-64")
def test_a_processor_without_fma_has_the_bits_of_all():
    """What it has no instruction for is written out: fused multiply-adds, roundings, halves."""
    text = """
import hashlib
import numpy as np
import tengen, tengen.functional as F
x = tengen.Tensor(np.random.default_rng(0).standard_normal((19, 19)).astype("float32"))
out = [x @ x, F.exp(x), F.floor(x), x.astype("float16") * 3, x.astype("float64") @ x.astype("float64")]
print(hashlib.sha256(b"".join(y.numpy().tobytes() for y in out)).hexdigest())
"""
    found = []
    for processor in ("x86-64-exact", "native"):
        env = {**os.environ, "TENGEN_PROCESSOR": processor, "TENGEN_TARGET": "native"}
        found.append(subprocess.run([sys.executable, "-c", text], env=env, capture_output=True, text=True, check=True).stdout)
    assert found[0] == found[1] != ""
