"""Kernels that programs share: what is taken out of a module, by which name, and that nothing is compiled twice."""

import re

import numpy as np
import pytest

import tengen.functional as F
from tengen import Tensor, trace
from tengen.base.config import config
from tengen.codegen.targets import Target
from tengen.compiler.driver import compile_graph
from tengen.ir.text import parse_graph
from tengen.runtime import cache, llvm, module_parts
from tengen.runtime import compile as compiler
from tengen.runtime.object_loader import objects_of

HEAD = Target.host().head
KERNEL = "define void @{}(ptr %buffers, ptr %ints, i64 %begin, i64 %end) noinline nounwind {{\nentry:\n{}  ret void\n}}\n"
RUN = "define void @run(ptr %buffers, ptr %ints, ptr %parallel) {{\nentry:\n{}  ret void\n}}\n"
CALL = "  call void @{}(ptr %buffers, ptr %ints, i64 0, i64 1)\n"


def long_body(n: int) -> str:
    """Enough stores for a module of its own; n tells one from another."""
    lines = [f"  %p.{i} = getelementptr i64, ptr %ints, i64 {i}\n  store i64 {n}, ptr %p.{i}\n" for i in range(400)]
    return "".join(lines)


def module(*kernels: tuple[str, str]) -> str:
    texts = [KERNEL.format(name, body) for name, body in kernels]
    return "\n".join([HEAD, *texts, RUN.format("".join(CALL.format(name) for name, _ in kernels))])


def test_a_kernel_is_known_by_what_it_computes():
    same = module_parts.apart(module(("conv", long_body(1)), ("conv.d0", long_body(2))))
    other = module_parts.apart(module(("matmul_1", long_body(1)), ("add", "")))
    assert len(same[1]) == 2 and len(other[1]) == 1 and other[1][0] == same[1][0] != same[1][1]
    assert "@conv" not in same[0] and same[0].count("call void @kernel_") == same[0].count("declare void @kernel_") == 2
    assert "define void @add(" in other[0] and "@matmul_1" not in other[0]


def test_what_stays_whole():
    for text in (
        module(("small", "")),
        HEAD + "\n" + KERNEL.format("no_run", long_body(1)),
        module(("foreign", long_body(1) + "  call void @abort()\n")),
    ):
        assert module_parts.apart(text) == (text, [])


def test_a_name_that_begins_another_is_not_its_part():
    rest, kernels = module_parts.apart(module(("relu", long_body(1)), ("relu.d0", ""), ("relu_1", "")))
    assert len(kernels) == 1 and all(f"call void @{name}(" in rest for name in ("relu.d0", "relu_1"))


def test_kernels_that_do_little(monkeypatch):
    """Those that are launched for few pieces each time, by the program itself, and not in a loop."""
    names = ["one", "two", "many", "one_and_many", "looped", "open", "one.d0"]
    alone = "  call void @{}(ptr %args, ptr {}, i64 0, i64 1)\n"
    shared = "  call void %parallel(ptr @{}, ptr %args, ptr %ints, i64 {})\n"
    launches = [
        alone.format("one", "%ints"), alone.format("one.d0", "%ints"), shared.format("two", 2), shared.format("many", 3),
        alone.format("one_and_many", "%ints"), shared.format("one_and_many", 9), alone.format("looped", "%own"),
        shared.format("open", "%p1"),
    ]  # fmt: skip
    text = "\n".join([HEAD, *(KERNEL.format(name, "") for name in names), RUN.format("".join(launches))])
    assert module_parts.little_work(text) == (frozenset(), 0.0)  # of a small module everything is good at once
    monkeypatch.setattr(module_parts, "MOST", 0)
    little, share = module_parts.little_work(text)
    assert little == {"one", "two", "one.d0"} and share == 4 / (4 + 3 + 10 + 2 * module_parts.MANY)
    first, last = module_parts.split(text, 4, llvm.GOOD, little)
    defined = [set(re.findall(r"^define void @([\w.]+)\(", part, re.M)) for part in (*first, *last)]
    assert set().union(*defined[len(first) :]) == little and set().union(*defined) == {*names, "run"} and "run" in defined[0]
    assert sum(map(len, defined)) == len(names) + 1 and set(re.findall(r"declare void @([\w.]+)\(", first[0])) == {*names} - defined[0]
    assert module_parts.little_work(text + "define internal void @f() {\n  ret void\n}\n") == (frozenset(), 0.0)  # it may launch, too


def test_a_long_entry_has_a_module_of_its_own(monkeypatch):
    text = module(("add", ""), ("mul", ""))
    assert module_parts.split(text, 1, llvm.GOOD) == ([text], [])
    monkeypatch.setattr(module_parts, "LONG_ENTRY", 100)
    (entry, kernels), _ = module_parts.split(text, 1, llvm.GOOD)
    levels = [module_parts.level_of(part, llvm.GOOD) for part in (entry, kernels, text)]
    assert levels == [llvm.QUICK, llvm.GOOD, llvm.GOOD] and "@run(" not in kernels
    assert module_parts.split(text, 1, llvm.QUICK) == ([text], [])


GRAPH = """\
graph {name}(x: f32[40,70], w: f32[70,50]):
    y: f32[40,50] = matmul(x, w, transpose_a=false, transpose_b=false, precision="highest")
    z: f32[40,50] = {op}(y)
    return r = {result}
"""


@pytest.mark.parametrize("processor", [Target.host(), Target.named("x86-64-v3"), Target.named("aarch64")], ids=str)
def test_two_programs_compile_their_common_kernel_once(tmp_path, processor):
    programs = [
        compile_graph(parse_graph(GRAPH.format(name=n, op=op, result="z, y = y")), None, [], n, target=processor)[0]
        for n, op in (("one", "exp"), ("two", "sqrt"))
    ]
    with config.scope(cache_dir=str(tmp_path / "cache"), cache=True):
        before = compiler.compilations
        objects = [objects_of(cache.compiled(p.text, processor)) for p in programs]
    shared = set(objects[0][1:]) & set(objects[1][1:])
    assert shared, "no kernel of the programs is the same"
    assert compiler.compilations - before == sum(map(len, objects)) - len(shared)


def test_results_of_shared_kernels():
    a, b = (np.random.default_rng(i).normal(size=s).astype("float32") for i, s in enumerate([(37, 53), (53, 29)]))
    product = a.astype("float64") @ b.astype("float64")
    for scale in (1, 2):  # two programs with one product, under their own epilogues
        run = trace(lambda x, w, scale=scale: (F.matmul(x, w) + scale, F.exp(x)))
        np.testing.assert_allclose(run(Tensor(a), Tensor(b))[0].numpy(), product + scale, rtol=0, atol=1e-5)
