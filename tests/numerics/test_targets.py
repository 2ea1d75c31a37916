"""The same bits whatever the instruction set: whole processes under TENGEN_TARGET, and programs on an emulated ARM
processor."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from child import results
from exhaustive import but
from needs import QEMU, needs, on_targets
from programs import draw
from ways import Lowered, agree, eager, together, traced

from tengen.codegen.targets import Target
from tengen.compiler.building import build
from tengen.compiler.program_ir import ASK_DECLARED, ASK_NOBODY
from tengen.deploy import CannotRun, compile_model, run_artifact
from tengen.runtime import llvm
from tengen.runtime.cache import compiled

HERE = Path(__file__).resolve().parent
SEEDS = range(40, 60)


@pytest.fixture(scope="module")
def mine():
    return results(SEEDS)


@but(these=["x86-64-v3"])
@pytest.mark.parametrize("name", on_targets())
def test_whole_processes(name, mine, tmp_path):
    out = tmp_path / "out.npz"
    env = {**os.environ, "TENGEN_TARGET": name}
    subprocess.run([sys.executable, str(HERE / "child.py"), str(out), *map(str, SEEDS)], env=env, check=True)
    with np.load(out) as found:
        assert set(found) == set(mine)
        for key in mine:
            agree(f"{name}: {key}", [_plain(found[key], mine[key])], [mine[key]])


def _plain(a: np.ndarray, like: np.ndarray) -> np.ndarray:
    return a.view(like.dtype)  # NumPy's files do not know bfloat16


# Without a C library: it reads the memory of all buffers, runs the program in place, and writes the memory.
MAIN = """
typedef long i64;
void run(void **, i64 *, void (*)(void (*)(void *, i64 *, i64, i64), void *, i64 *, i64));
static void parallel(void (*f)(void *, i64 *, i64, i64), void *buffers, i64 *ints, i64 n) { f(buffers, ints, 0, n); }
static i64 ints[] = { INTS 0 };
static const i64 offsets[] = { OFFSETS };
static char memory[BYTES + 64] __attribute__((aligned(64)));
static char arena[ARENA + 64] __attribute__((aligned(64)));
static void *buffers[sizeof offsets / sizeof *offsets + 1];
static i64 call(i64 number, i64 a, i64 b, i64 c) {
  register i64 x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
  return x0;
}
void _start(void) {
  i64 size = 0, done = 0, got, n = sizeof offsets / sizeof *offsets;
  while ((got = call(63, 0, (i64)memory + size, BYTES - size)) > 0) size += got;
  for (i64 i = 0; i < n; i++) buffers[i] = memory + offsets[i];
  buffers[n] = arena;
  run(buffers, ints, parallel);
  while (done < size && (got = call(64, 1, (i64)memory + done, size - done)) > 0) done += got;
  call(93, size != BYTES || done != size, 0, 0);
  for (;;) {}
}
"""


def run_emulated(folder: Path, lo, memory: dict, level: int = llvm.GOOD) -> None:
    """Runs all launches under qemu, on the flat arrays in `memory`, in place. level: LLVM's effort."""
    program = build(lo, list(memory), [], "test")
    (folder / "kernels.o").write_bytes(compiled(program.text.replace(ASK_DECLARED, ASK_NOBODY), lo.target, level, parts=False))
    data, offsets = b"", []
    for a in memory.values():
        offsets.append(len(data))
        data += a.tobytes() + bytes(-a.nbytes % 64)
    main = MAIN.replace("INTS", "".join(f"{n}, " for n in program.integers([]))).replace(
        "OFFSETS", ", ".join(map(str, offsets))
    )
    main = main.replace("BYTES", str(len(data))).replace("ARENA", str(program.arena_bytes([])))
    (folder / "main.c").write_text(main)
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-linux-none", "-nostdlib", "-static", "-ffreestanding"]
    subprocess.run([*zig, "-O1", "main.c", "kernels.o", "-o", "main"], cwd=folder, check=True, capture_output=True)
    out = subprocess.run([QEMU, str(folder / "main")], input=data, check=True, capture_output=True).stdout
    assert len(out) == len(data)
    for a, at in zip(memory.values(), offsets):
        a[...] = np.frombuffer(out, a.dtype, a.size, at)


@needs("ziglang")
@pytest.mark.parametrize("target", ["x86-64-v3", "aarch64"])
def test_compiled_artifacts(target, tmp_path):
    """A dumped model as an object file and a C program gives the bits of the eager run."""
    for seed in (41, 46):
        p = draw(random.Random(seed))
        t, want = traced(p.call, p.inputs)
        t.dump(tmp_path / "model.tengen")
        artifact = compile_model(tmp_path / "model.tengen", target, tmp_path, name=f"model{seed}")
        try:
            got = run_artifact(artifact, p.inputs)
        except CannotRun as e:
            pytest.skip(str(e))
        agree(f"{target} artifact of {p}", got, want)


@needs("qemu", "ziglang")
def test_programs_on_arm(tmp_path):
    target = Target.named("aarch64")
    parts, wanted = [], []
    for seed in SEEDS:
        p = draw(random.Random(seed))
        t, _ = traced(p.call, p.inputs)
        parts.append(Lowered(t.graph, p.inputs, target))
        wanted.append((p, eager(p.call, p.inputs)))
    lo, memory = together(parts, target)
    run_emulated(tmp_path, lo, memory)
    for part, (p, want) in zip(parts, wanted):
        agree(f"aarch64: {p}", part.results(), want)
