"""What goes wrong among processes of MPI ends all of them at once, with an error that names the cause."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from exhaustive import but

from tengen import Tensor
from tengen import distributed as dist
from tengen import module as M
from tengen.base.config import config
from tengen.base.errors import DistributedError
from tengen.base.version import VERSION
from tengen.transport import mpiexec

sys.path.insert(0, str(Path(__file__).parent))
import shared_names

PROGRAM = """
import os, signal, sys, time
import numpy as np
from tengen import Tensor, distributed as dist, functional as F, module as M
how, first = sys.argv[1], dist.get_rank() == 0
F.distributed.all_reduce_sum(Tensor([1.0]))
if how == "leaves" and not first:
    os._exit(0)
if how == "ends" and not first:
    sys.exit()
if how == "net":
    dist.DataParallel(M.Sequential(M.Linear(3, 4), M.Linear(4, 5 - first)))
if how == "breaks" and not first:
    from tengen.transport.group import world
    class Broken:
        def test(self):
            raise RuntimeError("MPI_ERR_OTHER: the cable was pulled")
    world().transport.alltoall = world().transport.barrier = lambda *args: Broken()
if how == "breaks":
    if len(sys.argv) > 2:  # by messages, as between machines
        dist.WORLD.channel.segments = None
    F.distributed.all_reduce_sum(Tensor(np.ones(5 << 20, np.float32)))  # more than shared memory takes at once
if how == "stops":
    net = dist.DataParallel(M.Linear(64, 64), micro_batches=2, overlap=True)
    net.requires_grad_()
    for x, in net.micro_batches(Tensor([[1.0] * 64] * 4)):
        net(x).sum().backward()
        if not first:
            os.kill(os.getpid(), signal.SIGSTOP)
if how == "slow" and not first:
    time.sleep(1.5)
if how == "slow":
    sys.stdout.write(f"sum {F.distributed.all_reduce_sum(Tensor([1.0])).item()}\\n")  # in one piece: both ranks write
    sys.stdout.flush()
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


@but(every=2)
@pytest.mark.parametrize("way", [[], ["messages"]])
def test_a_network_that_fails_in_the_middle_of_a_collective_ends_all(job, way):
    done = _ended([sys.executable, "-m", "tengen", "run", "-n", "2", job[0], "breaks", *way])
    assert done.returncode and "rank 1: all_reduce_sum of f32[5242880] failed in the middle" in done.stderr, done.stderr
    assert "MPI_ERR_OTHER: the cable was pulled" in done.stderr and "go on from the last checkpoint" in done.stderr


def test_a_rank_that_is_stopped_is_named_in_time(job):
    """With its gradients on their way: the others do not wait longer than the time-out, and no process is left."""
    begun = time.monotonic()
    done = _ended([sys.executable, "-m", "tengen", "run", "-n", "2", job[0], "stops"], TENGEN_DISTRIBUTED_TIMEOUT="3")
    assert done.returncode and time.monotonic() - begun < 60
    assert "rank 0 waited 3 s in operation" in done.stderr and "rank 1 has not come" in done.stderr, done.stderr


def test_a_rank_that_is_slow_is_waited_for(job):
    done = _ended([sys.executable, "-m", "tengen", "run", "-n", "2", job[0], "slow"], TENGEN_DISTRIBUTED_TIMEOUT="30")
    assert done.returncode == 0 and done.stdout.count("sum 2.0") == 2, done.stderr


def test_ranks_of_other_versions_do_not_work_together(job):
    rank = [sys.executable, "-m", "tengen.distributed.rank", "--program", job[0], "x"]
    older = f"import sys, tengen.transport.group as g; g.VERSION = '0.0.7'; sys.argv = {rank[3:]!r}; "
    older = older.replace("sys.argv = [", "sys.argv = ['rank', ") + "from tengen.distributed.rank import main; main()"
    done = _ended([*job[1], "-n", "1", sys.executable, "-c", older, ":", "-n", "1", *rank])
    assert done.returncode and "rank 0: operation 1, join with Tengen 0.0.7" in done.stderr, done.stderr
    assert f"rank 1: operation 1, join with Tengen {VERSION}" in done.stderr


def test_without_mpi_one_sentence_says_the_cure(tmp_path):
    (tmp_path / "mpi4py").mkdir()
    (tmp_path / "mpi4py" / "__init__.py").write_text("raise ImportError('No module named mpi4py')")
    path = os.pathsep.join([str(tmp_path), *(p for p in sys.path if p)])
    env = {**os.environ, "PYTHONPATH": path, "PMI_SIZE": "2", "PMI_RANK": "0"}
    program = "from tengen import distributed; distributed.get_rank()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=env, timeout=120)
    assert done.returncode and done.stderr.count("several processes need MPI, and it cannot be loaded") == 1, done.stderr
    assert "help: pip install 'tengen[dist]'\n" in done.stderr


@pytest.mark.parametrize("overlap", [False, True])
def test_a_loop_that_one_rank_leaves_is_told(overlap, monkeypatch):
    """Also where gradients are on their way: at once, not at the time-out."""
    monkeypatch.setattr(config, "distributed_timeout", 20.0)

    def leaves():
        net = dist.DataParallel(M.Linear(4, 4), micro_batches=4, overlap=overlap)
        net.requires_grad_()
        for (x,) in net.micro_batches(Tensor(np.ones((4, 4), np.float32))):
            net(x).sum().backward()
            if dist.get_rank() == 1:
                break
        dist.group_barrier()

    begun = time.monotonic()
    with pytest.raises(DistributedError, match=r"the ranks disagree.* rank 0: operation \d, gradients.* rank 1: operation \d, barrier"):
        dist.launcher(leaves, n_gpus=2, backend="threads")()
    assert time.monotonic() - begun < 10


@but(every=3)
@pytest.mark.parametrize("how, words", [
    ("leaves", ["it was killed, has crashed, or has left by os._exit"]),
    ("ends", ["rank 0: operation 4, barrier; rank 1: operation 4, the end of the program"]),
    ("net", ["of which tensor 2 is 1.bias: f32[4]; rank 1:", "of which tensor 2 is 1.bias: f32[5]"]),
])  # fmt: skip
def test_a_rank_that_does_something_else(job, how, words):
    done = _ended([sys.executable, "-m", "tengen", "run", "-n", "2", job[0], how])
    code = 1 if how != "leaves" else done.returncode  # mpiexec's: of the rank that left, or of one that it has ended then
    assert done.returncode == code != 0 and all(w in done.stderr for w in words), done.stderr
    assert how != "leaves" or "rank 1 was lost" in done.stderr or "one of the ranks 0, 1" in done.stderr  # on a machine that is busy
    assert "runpy" not in done.stderr and "is none of Tengen's" not in done.stderr


def test_of_processes_that_end_at_once_the_one_that_left_by_itself_is_lost(tmp_path):
    """mpiexec ends the others when the first one's files are closed, which may be before anyone can see that it has ended."""
    left = subprocess.Popen([sys.executable, "-c", "import os; os._exit(3)"])
    killed = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    killed.kill()
    for rank, process in enumerate((killed, left)):
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it stays, as one whose end nobody has asked for
        (tmp_path / f"pid-{rank}").write_text(str(process.pid))
    (tmp_path / "pid-2").write_text(str(os.getpid()))
    assert [mpiexec._exit_status(tmp_path, rank) for rank in range(3)] == [signal.SIGKILL, 3 << 8, None]
    launcher = subprocess.Popen([sys.executable, "-c", ""])
    (tmp_path / "pid-2").unlink()
    assert mpiexec._first_lost(launcher.pid, tmp_path, 2) == [1]
    for process in (killed, left, launcher):
        process.wait()
    assert mpiexec._exit_status(tmp_path, 1) == mpiexec.UNKNOWN


def test_mpiexec_that_leaves_the_others_waiting_is_told_to_end_them(tmp_path, monkeypatch):
    """It thinks well of a process that leaves with code 0, if it sees its end before its closed connection."""
    monkeypatch.setattr(mpiexec, "GRACE", 0.1)
    sleeps = [sys.executable, "-c", "import time; time.sleep(60)"]
    launcher, waits, left = subprocess.Popen(sleeps), subprocess.Popen(sleeps), subprocess.Popen([sys.executable, "-c", ""])
    for rank, process in enumerate((waits, left)):
        (tmp_path / f"pid-{rank}").write_text(str(process.pid))
    assert mpiexec._first_lost(launcher.pid, tmp_path, 2) == [1]
    assert launcher.wait() == -signal.SIGTERM
    waits.kill()
    for process in (waits, left):
        process.wait()


def test_ranks_of_other_environments_do_not_work_together(job):
    """Their bits would differ, or their programs. MPI's names of shared memory are gone when they end."""
    before = shared_names.shared_memory()
    rank = [sys.executable, "-m", "tengen.distributed.rank", "--program", job[0], "x"]
    done = _ended([*job[1], "-n", "1", sys.executable, "-c", _with("TENGEN_WINOGRAD", "0", rank), ":", "-n", "1", *rank])
    assert done.returncode and "winograd=False" in done.stderr and "winograd=True" in done.stderr, done.stderr
    assert not shared_names.shared_memory() - before


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
