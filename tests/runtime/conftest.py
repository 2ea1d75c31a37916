"""Programs of a few lines of LLVM IR, which the tests of the runtime call."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tengen.codegen.targets import Target
from tengen.runtime.cache import compiled
from tengen.runtime.compile import load_object

IR = (Path(__file__).parent / "programs.ll").read_text()


@pytest.fixture(scope="session")
def programs():
    """The loaded programs of programs.ll: `.address(name)`."""
    return load_object(compiled(IR, Target.host()), Target.host())


PRELUDE = f"""
import ctypes, gc, os, sys, time, threading
from pathlib import Path
from tengen.codegen.targets import Target
from tengen.runtime.cache import compiled
from tengen.runtime.compile import load_object
from tengen.runtime import native
programs = load_object(compiled(Path({str(Path(__file__).parent / "programs.ll")!r}).read_text(), Target.host()), Target.host())
def sums(pieces, parallel=True):
    "Whether every piece of program `squares` ran once."
    slots = native.new_buffer(8 * pieces)
    native.call(programs.address("squares"), [native.address(slots)], [pieces], parallel)
    got = (ctypes.c_int64 * pieces).from_address(native.address(slots))
    return all(got[i] == i * i + 1 for i in range(pieces))
"""


@pytest.fixture
def run_python():
    """Runs a script in a fresh interpreter; returns its output, or fails with its errors."""

    def run(script: str, timeout: float = 60, **environ: str) -> str:
        command = [sys.executable, "-c", PRELUDE + script]
        r = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env={**os.environ, **environ})
        assert r.returncode == 0, f"exit status {r.returncode}\n{r.stdout}\n{r.stderr}"
        assert r.stderr == "", r.stderr
        return r.stdout

    return run
