"""Whole processes: a warm cache compiles nothing, two at once, no cache, no home, no compiler on the machine, debug output."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap

import pytest
from exhaustive import exhaustive

WORK = """
import numpy as np
import tengen
import tengen.functional as F
import tengen.module as M
from tengen import Tensor, optimizer, trace
from tengen.autodiff import GradManager
from tengen.runtime import compile as compiler

net = M.Sequential(M.Linear(5, 7), M.ReLU(), M.Linear(7, 3))
rng = np.random.default_rng(0)
for p in net.parameters():
    p._reset(Tensor(rng.standard_normal(p.shape).astype(np.float32)))
gm = GradManager().attach(net.parameters())
opt = optimizer.SGD(net.parameters(), lr=0.1, momentum=0.9)

@trace
def step(x, y):
    with gm:
        loss = F.cross_entropy(net(x), y)
        gm.backward(loss)
    opt.step()
    return loss

x, y = Tensor(rng.standard_normal((4, 5)).astype(np.float32)), Tensor(np.array([0, 1, 2, 0], np.int32))
for _ in range(2):
    loss = step(x, y)
    opt.clear_grad()
z = F.softmax(net(x) * 2 + 1, 1)
print(loss.numpy().tobytes().hex(), z.numpy().tobytes().hex())
print(compiler.compilations)
"""


def environment(tmp_path, **more) -> dict[str, str]:
    """The environment with a home and a cache of this test's own."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("TENGEN_")}
    return {**env, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), "TENGEN_CACHE_DIR": str(tmp_path / "cache"), **more}


def start(env, code: str = WORK) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(p: subprocess.Popen) -> tuple[str, int, str]:
    """(the bits, compilations, what stderr says) of a process that ended well."""
    out, err = p.communicate(timeout=120)
    assert p.returncode == 0, err
    bits, count = out.strip().splitlines()[-2:]
    return bits, int(count), err


@pytest.fixture(scope="module")
def warm(tmp_path_factory):
    """A home whose cache two processes filled at once, and the bits."""
    home = tmp_path_factory.mktemp("home")
    both = [start(environment(home)) for _ in range(2)]
    (a, n, _), (b, m, _) = map(finish, both)
    assert a == b and n + m > 0
    return home, a


@exhaustive
def test_a_second_process_compiles_nothing(warm):
    home, bits = warm
    assert finish(start(environment(home))) == (bits, 0, "")


def test_without_the_cache(warm, tmp_path):
    bits, count, err = finish(start(environment(tmp_path, TENGEN_CACHE="0")))
    assert bits == warm[1] and count > 0 and not err
    assert not list(tmp_path.iterdir())


@exhaustive
def test_a_home_that_cannot_be_written(warm, tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "temporary").mkdir()
    nowhere = {"HOME": str(tmp_path / "file"), "XDG_CACHE_HOME": str(tmp_path / "file"), "TMPDIR": str(tmp_path / "temporary")}
    env = environment(tmp_path, **nowhere)
    del env["TENGEN_CACHE_DIR"]
    bits, count, _ = finish(start(env))
    assert bits == warm[1] and count > 0


def test_an_empty_path_and_no_compiler(warm, tmp_path):
    bits, count, _ = finish(start(environment(tmp_path, PATH="")))
    assert bits == warm[1] and count > 0


MARKS = ["kernels ready in", "# after fuse", "kernel ", "define void @run", "ret"]  # what each level adds

LEVELS = """
from tengen import Tensor, trace
from tengen.base.config import config
x = Tensor([1.0, 2.0])
for config.debug in range(1, 5):
    print("level", config.debug)
    (trace(lambda x: x * config.debug)(x) + 1).numpy()
"""


@exhaustive
def test_debug_output(warm):
    """At the most, with the bits of a run without; and what each level below it shows."""
    out, err = start(environment(warm[0], TENGEN_DEBUG="5", TENGEN_CHECK="1")).communicate(timeout=120)
    assert warm[1] in out, err
    assert all(mark in out for mark in MARKS)
    out, err = start(environment(warm[0], TENGEN_CHECK="1"), LEVELS).communicate(timeout=120)
    levels = re.split(r"level \d\n", out)[1:]
    assert len(levels) == 4, err
    for level, said in enumerate(levels, 1):
        assert all(mark in said for mark in MARKS[:level]), (level, said)
        assert level >= 2 or MARKS[1] not in said
        assert level >= 4 or MARKS[3] not in said


CYCLES = """
import gc
from tengen.codegen.targets import Target
from tengen.runtime import llvm
t = Target.host()
for text in ["define void @f() { ret void }", "define void @f() { ret void }"]:
    cycle = [llvm.optimised(text, t.triple, t.cpu, t.features, llvm.GOOD)[0]]
    cycle.append(cycle)
    del cycle
    gc.collect()
print(len(llvm._contexts))
"""


def test_a_module_that_dies_in_a_cycle_goes_before_its_context():
    """Else LLVM ends the process. A traceback keeps a module so, of Ctrl-C while it is compiled."""
    done = subprocess.run([sys.executable, "-c", CYCLES], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
