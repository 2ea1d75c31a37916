"""Every op of the registry on its own sample inputs: eager = interpreted = AArch64, in several dtypes; and its first ones = x86-64-v3.

Eager calls are code for this processor. Where that has AVX-512, x86-64-v4 is no further target here: `test_targets.py` runs whole processes
for it, and `.ci/run` computes the digests of every sample (`test_digests.py`) as a processor of x86-64-v3 does."""

from __future__ import annotations

import os
import random

import numpy as np
import pytest
from exhaustive import but
from needs import needs, on_targets
from programs import apply, special_numbers
from test_targets import run_emulated
from ways import Lowered, agree, arrays, together

from tengen import Tensor
from tengen.base.dtype import dtype
from tengen.base.errors import TengenError, TraceError
from tengen.codegen.targets import Target
from tengen.ir.graph import Graph
from tengen.ops.define import REGISTRY, Case, Op
from tengen.runtime import llvm
from tengen.tensor.recorder import Recorder

FLOOR = "x86-64-v3"
TARGETS = (FLOOR, "aarch64")  # of artifacts
RUNS_FLOOR = not Target.named(FLOOR).why_not_here()
DTYPES = ("float32", "float16", "int32")
OF_ARTIFACTS = ["float32"] * 4 + ["float16", "bfloat16", "float64", "int32"]
SEED = 11
ARM_PARTS = 4


def cases() -> list:
    """(op, case) of every op that has sample inputs, or takes plain numbers."""
    found = []
    for name, op in list(REGISTRY.items()):
        if "." in name:
            continue
        if op.kind == "elementwise" and not (op.attrs and op.samples):
            found.append(pytest.param(op, special_numbers(op), id=f"{name}-numbers"))
        found += [pytest.param(op, c, id=f"{name}-{i}") for i, c in enumerate(op.samples)]
    return found


CASES = cases()
FIRST = {p.values[0].name: p.id for p in reversed(CASES)}
SHIPPED = [max((p for p in CASES if p.values[0].name == name), key=lambda p: random.Random(f"{SEED} {p.id}").random()) for name in FIRST]
SHIPPED_FOR = {p.id: TARGETS if os.environ.get("EVERY_TARGET") else TARGETS[i % 2 :][:1] for i, p in enumerate(SHIPPED)}


def of_artifact(id: str, seed: int = SEED) -> str:
    """The dtype, chosen by chance, in which a case is compiled as an artifact, if the op takes it."""
    return random.Random(f"{seed} {id}").choice(OF_ARTIFACTS)


def shipped(id: str, name: str, target: str) -> bool:
    """Whether `test_artifacts.py` compiles a case in a dtype for a target, as it does one sample of each op, chosen by chance, for the one or
    the other. It is not compiled for this target here once more: its artifact has the same kernels, and is held to the same results."""
    return target in SHIPPED_FOR.get(id, ()) and name == of_artifact(id)


def given(op: Op, case: Case, name: str) -> list | None:
    """The case's inputs in a dtype, and the op's results; None where the op does not take the dtype."""
    found = [a for x in case.inputs(np.random.default_rng(5)) for a in (x if isinstance(x, (list, tuple)) else [x])]
    with np.errstate(all="ignore"):
        ins = [
            None
            if a is None
            else np.asarray(a).astype(dtype(name).numpy)
            if np.asarray(a).dtype == np.float64
            else np.asarray(a)
            for a in found
        ]
    try:
        apply(op, [None if a is None else Tensor(a) for a in ins], case.attrs)
    except TengenError:  # it takes no such numbers
        return None
    return ins


def recorded(op: Op, case: Case, ins: list) -> tuple[Graph, list[np.ndarray], list[np.ndarray]] | None:
    """The graph of the call, which is not compiled here as a trace would be; its tensors; its eager results."""
    there = [a for a in ins if a is not None]
    want = arrays(apply(op, [None if a is None else Tensor(a) for a in ins], case.attrs))
    try:
        with Recorder(op.name, lines=False) as rec:
            out = apply(op, [None if a is None else rec.argument(f"x{i}", Tensor(a)) for i, a in enumerate(ins)], case.attrs)
    except TraceError:  # the shape of its result depends on values
        return None
    return rec.finish([(f"y{i}", t) for i, t in enumerate(out)]), there, want


@but(first_of="op", every=2)
@pytest.mark.parametrize("op, case", CASES)
def test_here(op, case, request):
    id = request.node.callspec.id
    first = id == FIRST[op.name]
    for name in DTYPES:
        if name == "float16" and not first:  # its kernels are those of float32 between casts, which one case of an op shows
            continue
        if (name == "int32" and op.kind != "elementwise") or (ins := given(op, case, name)) is None:
            continue
        if (made := recorded(op, case, ins)) is None:
            pytest.skip("it cannot be traced")
        graph, there, want = made
        lowered = Lowered(graph, there, Target.named(FLOOR) if RUNS_FLOOR else None)
        agree(f"{op.name} {name} interpreted", lowered.interpret(), want)
        if RUNS_FLOOR and first and name != "float16" and not shipped(id, name, FLOOR):
            agree(f"{op.name} {name} {FLOOR}", lowered.compiled(), want)


@pytest.mark.parametrize("name", on_targets(FLOOR))
def test_the_floor_is_among_what_is_compared(name):
    """Skipped, with the reason, where this processor does not run it, so that nobody takes `test_here` for more than it is."""
    assert RUNS_FLOOR


@but(every=5)
@needs("qemu", "ziglang")
@pytest.mark.parametrize("name, part", [*(("float32", part) for part in range(ARM_PARTS)), ("int32", 0)])
def test_on_arm(name, part, tmp_path):
    """Many ops as one program, so that little is linked, but not all, so that no processor waits for the longest test. It is quick code;
    good code for AArch64 is that of artifacts."""
    target = Target.named("aarch64")
    parts, wanted = [], []
    for p in CASES[part::ARM_PARTS] if name == "float32" else CASES:
        op, case = p.values
        if shipped(p.id, name, target.name) or (name == "int32" and op.kind != "elementwise"):
            continue
        if (ins := given(op, case, name)) is not None:
            if (made := recorded(op, case, ins)) is None:
                continue
            graph, there, want = made
            parts.append(Lowered(graph, there, target))
            wanted.append((op, want))
    lo, memory = together(parts, target)
    run_emulated(tmp_path, lo, memory, llvm.QUICK)
    for part, (op, want) in zip(parts, wanted):
        agree(f"aarch64: {op.name} {name}", part.results(), want)
