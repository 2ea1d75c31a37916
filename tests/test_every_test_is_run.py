"""A run that loses tests fails and says how many of how many were run (`conftest.py`)."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

TESTS = """
import os
import pytest

@pytest.mark.parametrize("i", range(40))
def test_some(i):
    DO
"""
KILL = "if i % 4 == 3: os.kill(os.getpid(), 4)  # as an illegal instruction does"


def run(folder: Path, body: str, *args: str) -> tuple[int, str]:
    for name in ("conftest.py", "remembered.py", "which_code.py"):
        shutil.copy(Path(__file__).with_name(name), folder)
    (folder / "test_inner.py").write_text(TESTS.replace("DO", body))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", ".", "test_inner.py", *args]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


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
