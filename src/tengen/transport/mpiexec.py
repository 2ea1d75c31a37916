"""Starts the processes of a job through MPI's own `mpiexec`."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tengen.base.errors import DistributedError

ENDED = "TENGEN_JOB_ENDED"  # the environment's name of a folder in which a rank says that its program has ended itself, and why


def find_mpiexec() -> list[str]:
    """The command of MPI's launcher: the one beside this Python, else the first on the path; with what lets it start more processes
    than cores. Errors: DistributedError where there is none, or no mpi4py."""
    beside = Path(sys.executable).parent / "mpiexec"
    found = str(beside) if beside.is_file() else shutil.which("mpiexec")
    if found is None or importlib.util.find_spec("mpi4py") is None:
        missing = "mpiexec" if found is None else "mpi4py"
        raise DistributedError(f"several processes need MPI, and {missing} is not installed; help: pip install 'tengen[dist]'")
    said = subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout
    if "open mpi" in said.lower() or "prte" in said.lower() or "openrte" in said.lower():
        return [found, "--oversubscribe", *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]
    return [found]


def environment(ranks: int) -> dict[str, str]:
    """The environment of a rank: this process's modules can be imported, and the ranks share the cores."""
    env = dict(os.environ)
    env["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    if "TENGEN_NUM_THREADS" not in env:
        env["TENGEN_NUM_THREADS"] = str(max(1, len(os.sched_getaffinity(0)) // ranks))
    return env


def command(ranks: int, arguments: Sequence[str]) -> list[str]:
    """The command that starts the ranks, each `tengen.distributed.rank` with these arguments."""
    if ranks < 1:
        raise DistributedError(f"{ranks} processes: at least one is needed")
    return [*find_mpiexec(), "-n", str(ranks), sys.executable, "-m", "tengen.distributed.rank", *arguments]


def run_program(program: str, arguments: Sequence[str], ranks: int, least: int | None = None) -> int:
    """Runs a program of Python in several processes. Returns: the exit code, 0 where all ended well.

    Args: least: where it is given, a job of which a process is lost is started again with one process less, down to this number; the
        program goes on from its last checkpoint. A job whose program ends with an error of its own is not started again.
    Errors: DistributedError without MPI, and for a `least` that is no number of processes; FileNotFoundError for a program that is not
        there.
    """
    if not Path(program).is_file():
        raise FileNotFoundError(2, "there is no such program", program)
    if least is not None and not 1 <= least <= ranks:
        raise DistributedError(f"an elastic job of {ranks} processes, at least {least}: a number from 1 to {ranks} is needed")
    while True:
        with tempfile.TemporaryDirectory(prefix="tengen-job-") as ended:
            env = {**environment(ranks), ENDED: ended}
            code = subprocess.run(command(ranks, ["--program", program, *arguments]), env=env, check=False).returncode
            errors = [f"rank {p.name}: {p.read_text()}" for p in sorted(Path(ended).iterdir())]
        if code == 0 or least is None:
            return code
        if errors or ranks == least:
            why = f"the program has ended itself ({errors[0]})" if errors else f"{least} processes are the least"
            print(f"tengen run: the job ended with code {code}, and is not started again: {why}", file=sys.stderr, flush=True)
            return code
        ranks -= 1
        print(f"tengen run: a process was lost (code {code}); the job starts again with {ranks}", file=sys.stderr, flush=True)
