"""A run that loses tests fails and says how many of how many were run (`conftest.py`); and which tests `make test` runs, and which
`make exhaustive` (`exhaustive.py`)."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from exhaustive import but

ROOT = Path(__file__).resolve().parents[1]
TESTS = """
import os
import pytest

@pytest.mark.parametrize("i", range(40))
def test_some(i):
    DO
"""
KILL = "if i % 4 == 3: os.kill(os.getpid(), 4)  # as an illegal instruction does"


def run(folder: Path, body: str, *args: str) -> tuple[int, str]:
    for name in ("conftest.py", "exhaustive.py", "processor_time.py", "remembered.py", "which_code.py"):
        shutil.copy(Path(__file__).with_name(name), folder)
    (folder / "test_inner.py").write_text(TESTS.replace("DO", body))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", ".", "test_inner.py", *args]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


def selected(target: str) -> str:
    """What a target of the Makefile gives pytest to choose tests by."""
    rule = re.search(rf"^{target}: setup.*\n\t\$\(PYTEST\)(.*) \$\(ARGS\)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    return rule[1].strip()


FAMILIES = """
import pytest
from exhaustive import but, exhaustive

@but(first_of="a")
@pytest.mark.parametrize("a, b", [(a, b) for a in "xyz" for b in range(5)])
def test_first(a, b):
    pass

@but(first_of="a, c", every=2)
@pytest.mark.parametrize("a, b, c", [(a, b, c) for a in ([1], [2]) for c in "mn" for b in range(3)])
def test_two(a, b, c):
    pass

@but(every=4)
@pytest.mark.parametrize("n", range(9))
def test_every(n):
    pass

@but(these=("a b", "d"))
@pytest.mark.parametrize("word", ["a b", "b", "c", "d"])
def test_these(word):
    pass

@pytest.mark.parametrize("n", [1, pytest.param(2, marks=exhaustive)])
def test_one(n):
    pass

@exhaustive
def test_all():
    pass

def test_plain():
    pass
"""


def test_what_make_test_leaves_out_is_what_make_exhaustive_runs(tmp_path):
    """In continuous integration, too, which runs both."""
    chosen = {}
    for target in ("tests", "exhaustive", "unit"):
        (tmp_path / "test_families.py").write_text(FAMILIES)
        args = ["--collect-only", "-v", "-c", str(ROOT / "pyproject.toml"), "test_families.py", *shlex.split(selected(target))]
        code, out = run(tmp_path, "pass", *args)
        assert code == 0, out
        chosen[target] = re.findall(r"test_families.py::(.+)", out)
    stay = {f"test_first[{a}-0]" for a in "xyz"} | {"test_two[a0-0-m]", "test_two[a6-0-m]", *(f"test_every[{n}]" for n in (0, 4, 8))}
    assert set(chosen["tests"]) == stay | {"test_these[a b]", "test_these[d]", "test_one[1]", "test_plain"}
    assert sorted(chosen["tests"] + chosen["exhaustive"]) == sorted(chosen["unit"]) and len(chosen["unit"]) == 15 + 12 + 9 + 4 + 4
    commands = (ROOT / ".ci" / "run").read_text().splitlines()
    assert "make test </dev/null" in commands and "make exhaustive </dev/null" in commands
    assert "for step in lint tests;" in (ROOT / "Makefile").read_text()


BUSY = """
import subprocess, sys, time
from exhaustive import exhaustive

SPIN = "import time\\nwhile time.process_time() < 0.4: pass"

@exhaustive
def test_here():
    end = time.process_time() + 0.2
    while time.process_time() < end: pass

def test_child():
    subprocess.run([sys.executable, "-c", SPIN], check=True)

def test_asleep():
    time.sleep(0.3)
"""


@but(these=["2"])
@pytest.mark.parametrize("processes", ["0", "2"])
def test_the_processor_time_of_tests_is_listed(tmp_path, processes):
    (tmp_path / "test_busy.py").write_text(BUSY)
    args = ["test_busy.py", "-n", processes, "--processor-time", "2", "-c", str(ROOT / "pyproject.toml"), "--deselect", "test_inner.py"]
    code, out = run(tmp_path, "pass", *args)
    assert code == 0, out
    stay, left = re.search(r"processor time: ([0-9.]+) s of 2 tests that `make test` runs, ([0-9.]+) s of 1 exhaustive ones", out).groups()
    assert 0.4 <= float(stay) and 0.2 <= float(left)
    listed = re.findall(r"^ +([0-9.]+) s  test_busy.py::(\w+)(.*)$", out, re.MULTILINE)
    assert [(name, more) for _, name, more in listed] == [("test_child", ""), ("test_here", "  (exhaustive)")], out


def whole(path: Path) -> bool:
    """Whether all of a file is exhaustive."""
    return "\npytestmark = exhaustive\n" in path.read_text()


def test_every_folder_keeps_tests_in_make_test():
    folders: dict[Path, list[Path]] = defaultdict(list)
    for path in (ROOT / "tests").rglob("test_*.py"):
        folders[path.parent].append(path)
    assert len(folders) > 30
    assert not (left := [folder.name for folder, files in folders.items() if all(map(whole, files))]), left


def test_no_two_test_files_have_one_name():
    """pytest imports test files by their names alone, and takes the first one of a name for the second."""
    names = Counter(p.name for p in Path(__file__).parent.rglob("*.py") if p.name not in ("conftest.py", "__init__.py"))
    assert not (several := [name for name, n in names.items() if n > 1]), several


def test_workers_that_die(tmp_path):
    code, out = run(tmp_path, KILL, "-n", "2", "--dist", "worksteal", "--max-worker-restart", "1")
    assert code != 0 and " of 40 tests were run; " in out, out
    assert "test_inner.py::test_some[" in out.split("were not: ")[1]


def test_tests_that_are_dropped_in_silence(tmp_path):
    """Nothing failed, and still the run fails: a plugin lets go of what is left."""
    hook = (
        "def pytest_runtestloop(session):\n    for item in session.items[:30]:\n"
        "        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)\n    return True\n"
    )
    (tmp_path / "dropping.py").write_text(hook)
    code, out = run(tmp_path, "pass", "-p", "dropping", "-n", "0")
    assert code == 1 and "only 30 of 40 tests were run; 10 were not: " in out and "30 passed" in out, out


@but(every=3)
@pytest.mark.parametrize("args", [("-n", "2", "-k", "5 or 7"), ("-n", "0"), ("-n", "0", "--collect-only")])
def test_a_whole_run(tmp_path, args):
    code, out = run(tmp_path, "pytest.skip('so') if i == 5 else None", *args)
    assert code == 0 and "tests were run" not in out, out


@pytest.mark.parametrize(
    "body", [
        "import tengen; assert tengen.config.threads != 7; tengen.set_threads(7)",
        "import sys, tengen; x = tengen.random.uniform(size=(3,)).tolist(); assert x == sys.__dict__.setdefault('seen', x)",
    ],
)  # fmt: skip
def test_no_test_knows_what_ran_before(tmp_path, body):
    code, out = run(tmp_path, body, "-n", "0", "-k", "some[1] or some[2]", "-p", "tengen")
    assert code == 0 and "2 passed" in out, out


def test_a_run_that_was_stopped_says_so(tmp_path):
    code, out = run(tmp_path, "assert i != 3", "-n", "0", "-x")
    assert code == 1 and "only 4 of 40 tests were run; 36 were not: " in out, out
