"""The rules of the benchmarks that are the same for all contenders, in a process of its own (they set the number of threads), and the
figures that the README shows."""

import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "benchmarks"

WARM_UP = """
import argparse, collections, contextlib, sys
sys.path.insert(0, sys.argv[1])
import compare
calls, blocks = collections.Counter(), []
@contextlib.contextmanager
def block():
    blocks.append(None)
    yield
who = ["tengen", "tengen eager", "torch", "onnxruntime", "jax"]
case = compare.Case("x", {w: lambda w=w: calls.update([w]) for w in who}, torch_block=block)
compare.WARM_S = 0.0
batch = compare.batch
for seconds in (0.05, 1.0):  # that every call takes
    calls.clear()
    blocks.clear()
    compare.batch = lambda call, n: batch(call, 1) * 0 + seconds
    times, _ = compare.run_rounds(case, argparse.Namespace(batch=compare.BATCH_S, quick=False, rounds=1, seconds=1.0))
    assert set(times) == set(who) and all(len(t) == 1 for t in times.values())
    print(*(calls[w] for w in who), len(blocks))
"""

REST = """
import hashlib, sys, threading, time
sys.path.insert(0, sys.argv[1])
import compare
compare.REST_S = 60.0
worker = threading.Thread(target=hashlib.pbkdf2_hmac, args=("sha256", b"a", b"b", 1_000_000))
worker.start()  # it computes without Python's lock
time.sleep(0.05)
compare.rest()
worker.join(0.05)
assert not worker.is_alive()
"""


BUDGETS = """
import json, sys
sys.path.insert(0, sys.argv[1])
import bench_memory_budget as b
asked = []
def run(who, name, how, patience_s=0):
    asked.append((who, how))
    if how == "0.25":
        return {"error": "no memory"}
    return {"peak": {"tengen": 100, "torch": 90 if how == "0.5" else 300}[who] << 20, "seconds": 2.0 if who == "torch" else 1.0}
b.run = run
b.contenders = lambda name: [("tengen", "0.8"), *(("torch", str(s)) for s in (1.0, 0.5, 0.25))]
for more in (["--minutes", "-1"], [], [], ["--again", "--who", "torch, 1.0"]):
    sys.argv[1:] = ["--quick", "--file", sys.argv[-1]] if not more else ["--quick", *more, "--file", sys.argv[-1]]
    b.main()
print(json.dumps(asked))
"""


def test_budgets_are_measured_piece_by_piece(tmp_path):
    command = [sys.executable, "-c", BUDGETS, str(FOLDER), str(tmp_path / "f.json")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    torch = [["torch", s] for s in ("1.0", "0.5", "0.25")]
    last = [["torch", "0.25"], ["torch", "1.0"]]  # what failed is measured again
    assert json.loads(done.stdout.splitlines()[-1]) == [["tengen", "0.8"]] * 2 + torch + last
    assert "4 left: LeNet: tengen, 0.8; LeNet: torch, 1.0" in done.stdout
    assert "0.8 beside PyTorch at no more memory: 0.5: 0.50 of its time" in done.stdout


def test_plans_of_budgets_are_near_the_optimum():
    pytest.importorskip("scipy")
    command = [sys.executable, str(FOLDER / "memory_optimum.py"), "--only", "chain of 4"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    gaps = [float(g) for g in re.findall(r"([+-]\d+\.\d)%", done.stdout)]
    assert len(gaps) == 5 and all(-0.05 <= g < 5 for g in gaps)  # no plan is better than the best one


def test_the_next_turn_begins_when_no_thread_computes():
    done = subprocess.run([sys.executable, "-c", REST, str(FOLDER)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_contender_warms_up_alike():
    done = subprocess.run([sys.executable, "-c", WARM_UP, str(FOLDER)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    # one call that compiles, 30 that warm up or as many as take two seconds, one that wakes it in the round, and the timed one
    assert [list(map(int, line.split())) for line in done.stdout.splitlines()] == [[33] * 5 + [2], [5] * 5 + [2]]


FRONT = """
import sys
sys.path.insert(0, sys.argv[1])
import report
text = report.ROOT_README.read_text()
assert report.replace(text, "measured", report.front(report.RESULTS)) == text, "run `python benchmarks/report.py --tables`"
"""


def test_the_readmes_figures_are_those_of_the_results():
    done = subprocess.run([sys.executable, "-c", FRONT, str(FOLDER)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


LOWERED = """
import sys
sys.path.insert(0, sys.argv[1])
import compare
from tengen.codegen.targets import Target
assert (Target.host().cpu, Target.host().vector_registers) == ("x86-64-v3", 16), Target.host()
assert compare.kind_of(compare.machine()["processor"]).endswith("lowered to AVX2") and compare.peer("onnxruntime") is None
if compare.peer("torch"):
    import torch
    assert torch.backends.cpu.get_cpu_capability() == "AVX2"
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="AVX2 is of x86-64")
def test_all_can_be_lowered_to_avx2():
    env = {**os.environ, "BENCH_ISA": "AVX2"}
    done = subprocess.run([sys.executable, "-c", LOWERED, str(FOLDER)], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


RESUMED = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import compare
made = []
def case(name):
    made.append(name)
    if name == "b" and len(made) < 3:
        raise ValueError("not yet")
    return compare.Case(name, {"tengen": lambda: 1.0})
def run(*more):
    sys.argv[1:] = [*more, "--quick", "--results", results]
    try:
        compare.main("tried", "Tried", [compare.Cell(n, lambda n=n: case(n), quick=True) for n in "abc"])
    except SystemExit as e:
        return str(e)
results = sys.argv[2]
assert run("--minutes", "0") is None and not made  # no time for any
assert "failed: b" in run("--resume") and made == ["a", "b", "c"]
assert run("--resume") is None and made == ["a", "b", "c", "b"]  # what failed, again
assert run("--only", "c") is None and made[4:] == ["c"]  # the others' rows stay
rows = json.loads(next(Path(results).rglob("tried.*.json")).read_text())["rows"]
assert sorted(r["name"] for r in rows) == ["a", "b", "c"] and not any(r["error"] for r in rows)
"""


def test_a_benchmark_goes_on_where_it_stopped(tmp_path):
    done = subprocess.run([sys.executable, "-c", RESUMED, str(FOLDER), str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


PARTS = """
import sys
from argparse import Namespace
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import bench_first_minute, compare
from compare import Row
names = [f"{t.name}, warm caches" for t in bench_first_minute.TASKS]
args = Namespace(results=Path(sys.argv[2]), resume=False, only="", rounds=1)
compare.write("first_minute", "", [Row(n) for n in names], (0.0,), args)
assert compare.earlier("first_minute", args) == [], "a call that measures all rows keeps none"
before = compare.earlier("first_minute", args, part=True)
assert [r.name for r in before] == names
assert [r.name for r in bench_first_minute.in_order(before[3:] + before[:3])] == names
"""


def test_rows_that_a_call_does_not_measure_stay(tmp_path):
    done = subprocess.run([sys.executable, "-c", PARTS, str(FOLDER), str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
