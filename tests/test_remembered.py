"""What tests keep of the interpreter and the code generator is what these give, and whatever may change it has it computed anew."""

import re
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import remembered

import tengen
from tengen.base.config import config
from tengen.base.dtype import float32, int64
from tengen.base.errors import IndexOutOfRange
from tengen.codegen import llvm
from tengen.codegen.targets import Target
from tengen.compiler import plans, program_cache
from tengen.kernels import steps
from tengen.kernels.contraction import contract
from tengen.kernels.lowering import Lowering
from tengen.kernels.steps import Launch
from tengen.loops.interp import interpret
from tengen.loops.lang import const, expr, var
from tengen.loops.text import parse_kernel
from tengen.runtime import cache

KERNEL = """\
kernel scale(in x: f32, out y: f32, int n):
    each piece of n:
        load v: f32 = x[piece]
        store y[piece] = v * 2.0f32
"""
EXTERN = """\
kernel called(in x: f32, out y: f32, int n):
    each piece of 1:
        extern code = f(x[0], y[0]) () ()
"""


@pytest.fixture(autouse=True)
def a_cache_of_its_own(tmp_path):
    folder = tmp_path / "cache"
    with config.scope(cache_dir=str(folder)):
        yield


def ran(text=KERNEL, x=(1.0, 2.0, np.nan), n=3, more=()):
    """What the output holds after a run, and whether it was interpreted."""
    kernel, done = parse_kernel(text), []
    lo = Lowering(Target.host())
    lo.steps, lo.ints = [Launch(kernel, ("x", "y"))], list(kernel.ints)
    memory = {"x": np.array(x, np.float32), "y": np.full(3, 7, np.float32)}

    def compute():
        done.append(True)
        interpret(kernel, list(memory.values()), [n])
        return "a word"

    assert remembered.run(lo, memory, (n, *more), compute) == "a word"
    return memory["y"].tobytes(), bool(done)


def test_the_second_time_it_is_not_interpreted():
    want = np.array([2.0, 4.0, np.nan], "f4").tobytes()
    assert [ran() for _ in range(3)] == [(want, True), (want, False), (want, False)]
    assert ran(n=2) == (np.array([2.0, 4.0, 7.0], "f4").tobytes(), True)
    assert ran() == (want, False)


def test_what_may_change_the_answer_is_in_the_key():
    ran()
    for changed in (
        {"text": KERNEL.replace("2.0f32", "3.0f32")}, {"text": KERNEL.replace("v * 2", "v - v * 2")},
        {"text": KERNEL.replace("x[piece]", "x[0]")},
        {"x": (1.0, 2.0, 3.0)}, {"x": (-1.0, 2.0, np.nan)}, {"n": 1}, {"more": (True,)}, {"more": (1,)}, {"more": ("1",)},
    ):  # fmt: skip
        assert ran(**changed)[1], changed
        assert not ran(**changed)[1], changed


def test_which_object_a_text_is_shows_in_no_key():
    """Names of operations are other objects where a program was read from the cache before."""
    one, other = "add", "".join(["a", "dd"])
    assert one is not other and remembered._said((one, (one,))) == remembered._said((one, (other,))) != remembered._said((one, ("sub",)))
    made = [expr(op, (var("n"), const(n)), int64) for n, op in ((918_273, one), (918_274, other))]
    written = [remembered._said(((e.op, e.args[0], e.dtype), one)) for e in made]
    assert made[1].op is other and written[0] == written[1]


def test_other_sources_have_other_answers(tmp_path):
    files = [tmp_path / name for name in ("interp.py", "exact.py")]
    for f in files:
        f.write_text("one = 1\n")
    of = lambda *some: remembered.made_by.__wrapped__(some)
    first = of(*files)
    assert of(*files) == first and np.__version__ in first
    files[1].write_text("one = 2\n")
    assert of(*files) != first and of(files[0]) != first


def test_the_sources_are_all_that_is_imported():
    root = Path(tengen.__file__).parent
    module = lambda f: ".".join(("tengen", *f.relative_to(root).with_suffix("").parts)).removesuffix(".__init__")
    for sources, start in ((remembered.INTERPRETER, "loops/interp.py"), (remembered.GENERATOR, "codegen/llvm.py")):
        of_tengen = [f for f in sources if f.is_relative_to(root)]
        assert root / start in of_tengen
        known = {module(f) for f in of_tengen} | {"tengen.base", "tengen.kernels"}
        for f in of_tengen:
            for name in re.findall(r"^ *(?:from|import) (tengen[\w.]*)", f.read_text(), re.M):
                assert name in known, f"{f} imports {name}"


def test_generated_code_is_that_of_the_code_generator():
    kernel, target = parse_kernel(KERNEL), Target.host()
    others = [
        (parse_kernel(KERNEL.replace("2.0", "3.0")), target), (parse_kernel(KERNEL.replace("scale", "other")), target),
        (kernel, Target.named("aarch64")), (kernel, replace(target, vector_bytes=target.vector_bytes // 2)),
    ]  # fmt: skip
    text = llvm.emit_kernel(kernel, target)
    assert text == llvm.emit_kernel.__wrapped__(kernel, target)
    with mock.patch.object(llvm, "_OpenFunction", None):  # it generates nothing
        assert llvm.emit_kernel(kernel, target) == llvm.emit_kernel(parse_kernel(KERNEL), target) == text
        for other in others:
            with pytest.raises(TypeError):
                llvm.emit_kernel(*other)
    for other in others:
        assert llvm.emit_kernel(*other) == llvm.emit_kernel(*other) == llvm.emit_kernel.__wrapped__(*other)


def test_errors_are_raised_each_time():
    for _ in range(2):
        with pytest.raises(IndexOutOfRange, match="index 3 is outside"):
            ran(n=4)


def test_what_no_key_says_is_interpreted(monkeypatch):
    x = np.zeros(6, np.float32)
    kernel = parse_kernel(KERNEL)
    lo = Lowering(Target.host())
    lo.steps, lo.ints = [Launch(kernel, ("x", "y"))], list(kernel.ints)
    key = lambda **memory: remembered._key(lo, memory, 3)
    assert key(x=x[:3], y=x[3:]) and key(x=x[:3], y=x[3:]) != key(y=x[3:], x=x[:3])
    assert key(x=x[:4], y=x[3:]) is None and key(x=x, y=x) is None  # one is written where the other is read
    assert key(x=x[::2], y=x[:0]) is None
    assert remembered._key(lo, {object(): x}, 3) is None and remembered._key(lo, {"x": x}, float32.numpy) is None
    lo.steps = [Launch(parse_kernel(EXTERN), ("x", "y"))]
    assert key(x=x[:3], y=x[3:]) is None
    ran()
    monkeypatch.setenv("COMPUTE_ANEW", "1")
    assert ran()[1]


def test_after_a_patch_of_what_they_may_use_they_run(monkeypatch):
    ran()
    monkeypatch.setattr(Lowering, "patched", True, raising=False)  # it is not asked when its steps are there
    assert not ran()[1] and not program_cache.in_use()
    monkeypatch.setattr(llvm, "patched", True, raising=False)
    assert ran()[1]
    monkeypatch.undo()
    assert not ran()[1] and program_cache.in_use()


def test_what_they_may_use():
    above = (plans, plans.Plan, Lowering(Target.host()), contract.contract, "tengen.ops.conv.X")
    assert not any(map(remembered.uses, above))
    may = (steps, Launch, llvm, interpret, config, float32, cache, np, {}, "os.environ", "tengen.loops.lang.X", "tengen.kernels.steps.If", None)
    assert all(map(remembered.uses, may))
