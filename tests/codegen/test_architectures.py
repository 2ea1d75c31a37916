"""Targets: what each named one is, that an architecture is one file and nothing else, and that a process decides once."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tengen.base.dtype import bfloat16, float32, int8, int32, uint8
from tengen.base.errors import CompileError, ConfigError, FileFormatError
from tengen.codegen.llvm import emit_kernel, emit_module
from tengen.codegen.targets import ARCHITECTURES, TARGET_NAMES, Architecture, Target, processor
from tengen.codegen.targets.architecture import Level, Registers, VectorForm
from tengen.deploy.objects import read_object
from tengen.loops.builder import Builder
from tengen.loops.dots import dot2, dot2h, dot2i, dot4i, dot4s, dot4u
from tengen.loops.floats import nearest_integer
from tengen.loops.lang import LANES, cast, const, equal, fma, select, swizzle
from tengen.runtime import llvm
from tengen.runtime.compile import compile_object, load_object
from tengen.runtime.threads import threads_ir

ROOT = Path(__file__).resolve().parents[2] / "src" / "tengen"
HOME = "codegen/targets"

# Names of architectures, of their features and of what only they have.
NAMES = re.compile(r"x86|amd64|aarch64|arm64|armv7|cortex|thumb|riscv|wasm32|avx|neon|f16c|\bsve\b|\bsse|musl|qemu-[a-z]*\d", re.IGNORECASE)

# (file, what it says): why it may.
ALLOWED = {
    ("deploy/compile.py", "x86-64-v3"): "what artifacts are for unless told otherwise: a promise to users",
    ("cli/artifacts.py", "x86-64-v3"): "the same for the command",
    ("deploy/packages.py", "arm64-v8a"): "a folder's name in Android's NDK",
}


def said(source):
    """(line, text) of a source's names and strings: what decides something. Comments and docstrings explain; they are left out."""
    tree = ast.parse(source)
    docs = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                docs.add(first.value)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)) and node not in docs:
            yield node.lineno, node.value if isinstance(node.value, str) else node.value.decode("latin-1")
        for field in ("id", "attr", "name", "arg", "module"):
            if isinstance(text := getattr(node, field, None), str):
                yield getattr(node, "lineno", 0), text


def files():
    """(path in the package, source) of every file outside of the architectures' home."""
    for path in sorted(ROOT.rglob("*.py")):
        if not (where := path.relative_to(ROOT).as_posix()).startswith(HOME):
            yield where, path.read_text()


NAMES_IN_LOWER_CASE, SIDE_BY_SIDE = re.compile(NAMES.pattern), re.compile(r"""["'][\s\\]*[rbf]*["']""")


def may_name(source):
    """Whether a source holds a name at all, also one that is cut into strings side by side. Few do, and to parse all takes seconds."""
    lower = source.lower()  # a search that ignores case takes three times as long
    return any(map(NAMES_IN_LOWER_CASE.search, (lower, SIDE_BY_SIDE.sub("", lower))))


def test_architectures_are_named_at_home_alone():
    found = {(where, text): line for where, source in files() if may_name(source) for line, text in said(source) if NAMES.search(text)}
    scattered = [f"{where}:{line}: {text[:60]!r}" for (where, text), line in found.items() if (where, text) not in ALLOWED]
    assert not scattered, f"belongs to a file of {HOME}:\n" + "\n".join(scattered)
    assert not (stale := ALLOWED.keys() - found.keys()), f"no longer needed in ALLOWED: {stale}"


@pytest.mark.parametrize("source, seen", [
    ("if target.has('avx2'): pass", True),
    ("call = f'call void @llvm.x86.sse2.pause() ; {x}'", True),
    ("from tengen.codegen.targets.aarch64 import AARCH64", True),
    ("import tengen.codegen.targets.x86_64", True),
    ("if t.arch == 'riscv64': pass", True),
    ("_X86_64 = 62", True),
    ("def neon_load(): pass", True),
    ("load(sve=1)", True),
    ("has('av'\n    'x2')", True),
    ("has('av' f'x2')", True),
    ("def f():\n    'As x86 does.'\n    # as neon does\n    return assess('passes')", False),
])  # fmt: skip
def test_the_check_sees(source, seen):
    assert any(NAMES.search(text) for _, text in said(source)) == seen
    assert may_name(source) or not seen


def test_a_process_decides_once_what_it_compiles_for():
    """The runtime does, and its answer is handed on as `native.TARGET`; a report must do without a runtime that works, and a process that
    makes good code for others has none."""
    asking = {where for where, source in files() if re.search(r"Target\.host\(\)|\bnamed\(.native.\)", source)}
    assert asking == {"runtime/process.py", "runtime/report.py", "runtime/finishing.py"}


def test_named_targets():
    assert TARGET_NAMES[0] == "native" and {Target.named(n).arch for n in TARGET_NAMES[1:]} == set(ARCHITECTURES)
    registers = {n: (Target.named(n).vector_bytes, Target.named(n).vector_registers) for n in TARGET_NAMES[1:]}
    assert registers == {
        "x86-64-v3": (32, 16), "x86-64": (16, 16), "x86-64-exact": (16, 16), "x86-64-v4": (64, 32), "aarch64": (16, 32), "armv7": (16, 16),
        "armv7-exact": (4, 32),
        "riscv64": (4, 32), "riscv64-v": (16, 32), "wasm32": (16, 16), "wasm32-exact": (16, 16), "cortex-m4": (4, 32), "cortex-m7": (4, 32),
        "windows-x86-64": (32, 16), "macos-arm64": (16, 32), "android-arm64": (16, 32),
    }  # fmt: skip
    assert Target.named("aarch64").key == "aarch64-unknown-linux-gnu generic +neon"
    with pytest.raises(ConfigError, match="unknown target 'vax'; help: one of native, x86-64-v3, "):
        Target.named("vax")
    for wrong, near in (("arm64", "aarch64"), ("wasm", "wasm32"), ("riscv", "riscv64"), ("x86_64", "x86-64"), ("cortex-m", "cortex-m.")):
        with pytest.raises(ConfigError, match=f"did you mean '{near}'"):
            Target.named(wrong)


@pytest.mark.parametrize("name, least", [("x86-64-v3", 4), ("x86-64-v4", 1), ("aarch64", None), ("riscv64", None)])
def test_parts_of_vectors(name, least):
    t = Target.named(name)
    assert [t.masks(size) for size in (1, 2, 4, 8)] == [least is not None and size >= least for size in (1, 2, 4, 8)]


def products():
    """A kernel of vectors: an fma, dot products of pairs, lanes past the end, a store past the caches."""
    k = Builder("products")
    x, y, b = k.input("x", float32), k.output("y", float32), k.input("b", bfloat16)
    n = k.int("n")
    pairs = k.load_group(b, 0, LANES)
    v = fma(k.load(x, 0, LANES, n), k.load(x, LANES, LANES), k.load(x, 2 * LANES, LANES))
    k.store(y, 0, dot2(v, pairs, pairs), stream=True)
    of_bytes = dot4u(dot4i(dot2i(const(1, int32, LANES), pairs, pairs), pairs, pairs), pairs, dot2h(pairs, pairs, pairs))
    k.store(k.output("z", int32), 0, dot4s(of_bytes, pairs, pairs))
    order = k.load(k.input("u", uint8), 0, LANES)
    k.store(k.output("w", uint8), 0, swizzle(order, order))
    k.store(y, LANES, v, n)
    least = select(v > -0.25, v, -0.25), select(equal(v, v), select(v > -128.0, v, -128.0), 0.0)
    for x, most, d in zip(least, (255.0, 127.0), (uint8, int8)):
        k.store(k.output(d.name, d), 0, cast(nearest_integer(select(x < most, x, most)), d))
    return k.build()


# An architecture that Tengen does not know; a port would be a file with this in it.
LOONGARCH = Architecture(
    name="loongarch64", data_layout="e-m:e-p:64:64-i64:64-i128:128-n32:64-S128",
    levels={"la64": Level("la64", "generic-la64", "+f,+d")},
    registers=(Registers("lsx", 16, 32), Registers("", 8, 32)), masked=(),
    forms=(VectorForm("fma", "lsx", lambda emit, args: args[0]),),
    pause="fence seq_cst", fence="fence seq_cst", elf_machine=258, linking=None,
    c_triple="loongarch64-linux-musl", emulators=("qemu-loongarch64",), notable=("lsx",), cpuinfo=("CPU Family",),
)  # fmt: skip


def test_a_new_architecture_is_one_table(monkeypatch):
    """In the registry it is written for and, where LLVM has the back end, compiled for: kernels and the thread pool."""
    monkeypatch.setitem(ARCHITECTURES, "loongarch64", LOONGARCH)
    scalar = Target("la64", "loongarch64-unknown-linux-gnu", "generic-la64", "+f,+d", 8, 32)
    assert scalar.architecture is LOONGARCH and not scalar.masks(8) and not scalar.forms and "la64" in LOONGARCH.levels
    text = emit_kernel(products(), scalar)
    assert "  fence seq_cst\n  ret void" in text and "llvm.fma.v16f32" in text and "masked" not in text
    with pytest.raises(CompileError, match="code for la64 cannot run here: this processor is"):
        load_object(b"", scalar)
    with pytest.raises(FileFormatError, match="x86_64 or aarch64 or .* or loongarch64"):
        read_object(bytes(58))
    vectors = replace(scalar, features="+f,+d,+lsx")
    assert emit_kernel(products(), vectors).count("@llvm.fma") == text.count("@llvm.fma") - 1  # its form was taken
    llvm.initialize("loongarch64")
    try:
        llvm.llvmlite().Target.from_triple(scalar.triple)
    except RuntimeError as e:
        pytest.skip(f"this LLVM has no back end for LoongArch: {e}")
    kernel, pool = emit_module([products()], scalar), scalar.head + threads_ir(scalar)
    assert {read_object(compile_object(text, scalar)).machine for text in (kernel, pool)} == {LOONGARCH.elf_machine}


def test_a_processor_of_no_known_architecture(monkeypatch):
    monkeypatch.setattr(processor.answers, "recall", lambda identity, ask: ["sparc64-unknown-linux-gnu", "niagara", ""])
    with pytest.raises(ConfigError, match="no code generation for sparc64-unknown-linux-gnu; .* x86_64 or aarch64"):
        Target.machine.__wrapped__()


@pytest.mark.parametrize("a", ARCHITECTURES.values(), ids=lambda a: a.name)
def test_what_an_architecture_says_is_whole(a):
    assert ARCHITECTURES[a.name] is a and a.levels and all(level.name in a.levels for level in a.levels.values())
    assert a.registers[-1].feature == "" and all(r.bytes in (4, 16, 32, 64) and r.count >= 16 for r in a.registers)
    for name, level in a.levels.items():
        assert Target.named(name).architecture is a and Target.named(name).cpu == level.cpu
        assert Target.named(name).level is level and level.bits and level.tested
    for form in a.forms:  # it is taken where the feature is there, and changes what is emitted
        least = min(a.levels.values(), key=lambda level: len(Target.named(level.name).needs))
        without = Target("without", f"{a.name}-unknown-linux-gnu", least.cpu, least.features, 16, 16)
        if without.has(form.feature):  # every level has it
            assert without.forms[form.op] is form
            continue
        assert without.forms.get(form.op) is not form
        have = replace(without, features=f"+{form.feature}")
        assert have.forms[form.op] is form and emit_kernel(products(), have) != emit_kernel(products(), without)
    if a.linking:
        assert len({len(a.linking.stub(d)) for d in (8, 1 << 20)}) == 1 and len(a.linking.stub(8)) <= 8
