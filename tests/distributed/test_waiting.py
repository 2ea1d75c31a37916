"""What a rank does while it waits, and when a job is started again."""

import subprocess
import sys
import time
from types import SimpleNamespace

import click
import numpy as np
import pytest
from exhaustive import but

from tengen.base.config import config
from tengen.base.errors import DistributedError
from tengen.cli.run import bounds
from tengen.transport import channel, mpiexec


def test_a_transfer_whose_peer_has_stopped_is_waited_for_without_a_core(monkeypatch, capsys):
    """All have agreed, and rank 1 stops in the middle: this one says so, sleeps, and names it at the time-out."""
    never, done, sent = SimpleNamespace(test=lambda: False), SimpleNamespace(test=lambda: True), []

    def meet(send, recv, counts):
        recv.reshape(3, -1)[:] = send
        return done

    transport = SimpleNamespace(rank=0, size=3, crowded=False, send=lambda a, dest, tag: sent.append(dest), allgather=meet,
                                probe=lambda tag, size: [(2, channel._header(1, ""))])  # fmt: skip
    group = channel.Channel(transport, [5, 7, 9])
    group.agree("all-gather of 8")
    monkeypatch.setattr(channel, "ACTIVE", 0.05)
    monkeypatch.setattr(channel, "PRESENT_AFTER", 0.1)
    monkeypatch.setattr(channel, "SAID_AFTER", 0.2)
    monkeypatch.setattr(config, "distributed_timeout", 1.0)
    start = time.thread_time()
    with pytest.raises(DistributedError, match=r"rank 5 waited 1 s .*\(all-gather of 8\), and rank 7 has not come"):
        group.gathered(channel.Gathering(never, np.zeros(8), "all-gather of 8"))
    assert time.thread_time() - start < 0.6 and sent == [1, 2]
    assert "tengen: rank 5 waits for the ranks [7] since 0.2 s: all-gather of 8" in capsys.readouterr().err


@pytest.mark.parametrize("crowded, present", [(False, False), (False, True), (True, False), (True, True)])
def test_who_has_its_processor_alone_asks_without_pauses(crowded, present, monkeypatch):
    """And a rank that shares it with others gives it away between two questions."""
    asked = iter([False] * 5 + [True])
    request, done = SimpleNamespace(test=lambda: next(asked)), []
    monkeypatch.setattr(channel, "os", SimpleNamespace(sched_yield=lambda: done.append("yield")))
    monkeypatch.setattr(channel, "time", SimpleNamespace(monotonic=time.monotonic, sleep=done.append))
    monkeypatch.setattr(channel, "SPIN", 60.0)
    group = channel.Channel(SimpleNamespace(rank=0, size=2, crowded=crowded), [0, 1])
    group._until_done(request, "wait", None, present)
    assert done == [channel.CROWDED_PAUSE if crowded else "yield"] * 5


PROGRAM = """
import os, signal, sys
from tengen import distributed as dist
open(sys.argv[1], "a").write(f"{dist.get_world_size()} ")
dist.group_barrier()  # all have written before one ends
if sys.argv[2] == "error" and dist.get_rank() == 0:
    raise KeyError("no such thing")
if sys.argv[2] == "exit" and dist.get_rank() == 0:
    sys.exit(3)
if sys.argv[2] == "killed" and dist.get_world_size() == 2 and dist.get_rank() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
dist.group_barrier()
"""


@but(every=3)
@pytest.mark.parametrize("how, starts, words", [
    ("error", "2 2 ", "is not started again: the program has ended itself (rank 0: KeyError: 'no such thing')"),
    ("exit", "2 2 ", "(rank 0: sys.exit(3))"), ("killed", "2 2 1 ", "rank 1 was lost (code"),
])  # fmt: skip
def test_what_an_elastic_job_is_started_again_for(tmp_path, how, starts, words):
    try:
        mpiexec.find_mpiexec()
    except DistributedError as e:
        pytest.skip(f"no MPI: {e}")
    program, told = tmp_path / "train.py", tmp_path / "told"
    program.write_text(PROGRAM)
    command = [sys.executable, "-m", "tengen", "run", "--elastic", "1:2", str(program), str(told), how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    said = done.stderr.replace("one of the ranks 0, 1 was", "rank 1 was")  # on a machine that is busy they may end at once
    assert words in said and (done.returncode == 0) == (how == "killed"), done.stderr
    assert sorted(told.read_text().split()) == sorted(starts.split())


def test_bounds():
    assert bounds("2") == (2, None) and bounds("2:4") == (2, 4)
    for wrong in ("0", "4:2", "x", "2:", ":3", "-1"):
        with pytest.raises(click.BadParameter, match="least:most"):
            bounds(wrong)
