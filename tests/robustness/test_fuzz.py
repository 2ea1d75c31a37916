"""Any call of any op, and any file that loads, ends in a result or in an error that it may raise: nothing crashes, hangs, or is
silently wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import every_op
import numpy as np
import pytest
from exhaustive import but

from tengen import load_graph
from tengen.base.config import config

SCRIPT = Path(__file__).resolve().parent / "random_calls.py"
COUNT = 1000  # of a process, whose start takes as long as a third of them


@but(every=2)
@pytest.mark.parametrize("first", range(0, 2 * COUNT, COUNT))
def test_random_calls(first):
    command = [sys.executable, "-W", "ignore", str(SCRIPT), str(first), str(first + COUNT)]
    p = subprocess.run(command, capture_output=True, text=True)
    calls = p.stdout.splitlines()
    assert p.returncode == 0, f"{calls[-1]} ended the process ({p.returncode}): {p.stderr[-2000:]}"
    bad = [f"{call}\n{line}" for call, line in zip(calls, calls[1:]) if line.startswith("  BAD")]
    assert not bad, "\n".join(bad)
    good = sum(line == "  a result" for line in calls)
    assert COUNT / 10 < good < COUNT, "the calls are all right or all wrong: they test nothing"


# ---- files

FILES = Path(__file__).resolve().parent / "file_fuzz.py"
CASES = 240  # a longer hunt: python tests/robustness/test_fuzz.py first last


def fuzz_files(folder, first, last):
    """(case, what became of it) for each; a case that ends the process says how."""
    while first < last:
        here = min(first + CASES, last)
        command = [sys.executable, "-W", "ignore", str(FILES), str(folder), str(first), str(here)]
        p = subprocess.run(command, capture_output=True, text=True)
        lines = p.stdout.splitlines()
        yield from zip(lines[::2], lines[1::2])
        if p.returncode == 0:
            first = here
            continue
        assert p.returncode != 1, f"the fuzzer itself failed: {p.stderr[-2000:]}"
        yield lines[-1], f"  BAD ended the process ({p.returncode}): {p.stderr[-1500:]}"
        first = int(lines[-1].split()[0]) + 1


@pytest.fixture(scope="session")
def seeds(tmp_path_factory):
    """A folder of sound model files, in which every op stands that a graph can hold."""
    folder = tmp_path_factory.mktemp("seeds")
    p = subprocess.run([sys.executable, "-W", "ignore", str(FILES), str(folder), "seeds"], capture_output=True, text=True)
    assert p.returncode == 0, p.stderr
    missing = {line.split(":")[0] for line in p.stdout.splitlines()}
    assert missing == {*every_op.COUNTED}, p.stdout
    return folder


def test_seeds_hold_every_op(seeds):
    held = {n.op for f in seeds.glob("*.tgn") for g in load_graph(f).graph.graphs() for n in g.nodes}
    files = {op.name for op in every_op.ops(where=lambda op: op.rules.infer is not None)}
    assert not files - held, sorted(files - held)
    assert {"lstm_grad", "attention_grad"} <= held
    loaded = [load_graph(f) for f in seeds.glob("net_*.tgn")]
    assert any(m.extents for m in loaded) and any(m.graph.states for m in loaded) and any(m.graph.checks for m in loaded)
    for name in ("images", "words"):
        m = load_graph(seeds / f"net_{name}.tgn")
        with config.scope(cache=False):  # a kept program has no text
            m(*(np.ones(p.shape, p.dtype.numpy) for p in m.inputs))
        assert "%step.p = " in m._executable.program.text, f"{name} has no loop of a program"


def test_random_files(seeds):
    found = list(fuzz_files(seeds, 0, CASES))
    bad = [f"{case}\n{what}" for case, what in found if what.startswith("  BAD")]
    assert not bad, "\n".join(bad)
    ran = sum(what.startswith(("  a result", "  error")) for _, what in found)
    assert len(found) == CASES and CASES / 10 < ran < CASES * 0.9, "the files all run or all do not: they test nothing"


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as d:
        subprocess.run([sys.executable, "-W", "ignore", str(FILES), d, "seeds"], check=True)
        for case, what in fuzz_files(d, *map(int, sys.argv[1:3])):
            if what.startswith("  BAD"):
                print(case, what, sep="\n", flush=True)
