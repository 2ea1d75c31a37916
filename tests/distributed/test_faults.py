"""What goes wrong among processes of MPI ends all of them at once, with an error that names the cause."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tengen.base.errors import DistributedError
from tengen.transport import mpiexec

PROGRAM = """
import os, sys, time
from tengen import Tensor, distributed as dist, functional as F, module as M
how, first = sys.argv[1], dist.get_rank() == 0
F.distributed.all_reduce_sum(Tensor([1.0]))
if how == "leaves" and not first:
    os._exit(0)
if how == "ends" and not first:
    sys.exit()
if how == "net":
    dist.DataParallel(M.Sequential(M.Linear(3, 4), M.Linear(4, 5 - first)))
if how == "hangs":
    sys.stdout.write(f"begun {os.getpid()}\\n")
    sys.stdout.flush()
    time.sleep(60)
dist.group_barrier()
"""


@pytest.fixture
def job(tmp_path):
    """(The program, how `mpiexec` starts one of its processes)."""
    try:
        launch = mpiexec.find_mpiexec()
    except DistributedError as e:
        pytest.skip(f"no MPI: {e}")
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    return str(program), launch


def _ended(command, **env):
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env={**mpiexec.environment(2), **env}, check=False)


@pytest.mark.parametrize("how, words", [
    ("leaves", ["was lost (code 1): it was killed, has crashed, or has left by os._exit"]),
    ("ends", ["rank 0: operation 4, barrier; rank 1: operation 4, the end of the program"]),
    ("net", ["of which tensor 2 is 1.bias: f32[4]; rank 1:", "of which tensor 2 is 1.bias: f32[5]"]),
])  # fmt: skip
def test_a_rank_that_does_something_else(job, how, words):
    done = _ended([sys.executable, "-m", "tengen", "run", "-n", "2", job[0], how])
    assert done.returncode == 1 and all(w in done.stderr for w in words), done.stderr
    assert how != "leaves" or "rank 1 was lost" in done.stderr or "one of the ranks 0, 1" in done.stderr  # on a machine that is busy
    assert "runpy" not in done.stderr and "is none of Tengen's" not in done.stderr


def test_ranks_of_other_environments_do_not_work_together(job):
    """Their bits would differ, or their programs."""
    rank = [sys.executable, "-m", "tengen.distributed.rank", "--program", job[0], "x"]
    done = _ended([*job[1], "-n", "1", sys.executable, "-c", _with("TENGEN_WINOGRAD", "0", rank), ":", "-n", "1", *rank])
    assert done.returncode and "winograd=False" in done.stderr and "winograd=True" in done.stderr, done.stderr


def _with(name, value, command):
    return f"import os; os.environ[{name!r}] = {value!r}; os.execv({command[0]!r}, {command!r})"


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_no_rank_outlives_the_command(job, sent):
    command = [sys.executable, "-m", "tengen", "run", "-n", "2", job[0], "hangs"]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    ranks = [int(run.stdout.readline().split()[1]) for _ in range(2)]
    os.kill(run.pid, sent) if sent == signal.SIGTERM else os.killpg(run.pid, sent)
    run.communicate(timeout=30)
    assert run.returncode != 0
    end = time.monotonic() + 20
    while any(os.path.exists(f"/proc/{pid}") for pid in ranks):
        assert time.monotonic() < end
        time.sleep(0.05)
