"""Exchanges of arrays through the memory that the ranks of one machine share: what arrives, in how many rounds, and what happens where there is
no such memory, where a rank leaves, and where one is killed."""

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from exhaustive import but

from tengen import distributed as dist
from tengen.base.errors import DistributedError
from tengen.runtime import report
from tengen.transport import mpiexec, shared
from tengen.transport.group import about
from tengen.transport.threads import ThreadTransport

sys.path.insert(0, str(Path(__file__).parent))
import shared_names

SMALL = 4096  # bytes of a half: a few thousand numbers take several rounds


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(shared, "HALF", SMALL)
    monkeypatch.setattr(shared, "STEP", SMALL // 4)


def _threads(function, ranks=3):
    return dist.launcher(function, n_gpus=ranks, backend="threads")()


def _values(rank, n, dtype):
    """Any bytes, NaNs among them."""
    return np.random.default_rng([rank, n]).integers(0, 256, n * np.dtype(dtype).itemsize, np.uint8).view(dtype)


def _sizes(ranks, dtype):
    """Elements in each piece: none, one, odd numbers, and those around what one and two rounds take."""
    step = shared.block(ranks) // np.dtype(dtype).itemsize
    return [0, 1, 7, step - 1, step, step + 1, 2 * step, 2 * step + 3]


@pytest.mark.parametrize("dtype", ["uint8", "float16", "complex128"])
def test_what_arrives(small, dtype):
    ranks = 3
    pieces = [[_sizes(ranks, dtype)[(3 * i + 5 * r + 2 * to) % 8] for to in range(ranks)] for i, r in np.ndindex(8, ranks)]
    pieces = [pieces[i * ranks : (i + 1) * ranks] for i in range(8)]  # [exchange][from][to]: others for each pair

    def work():
        channel, rank, found = dist.WORLD.channel, dist.get_rank(), []
        before = channel.received
        for i, n in enumerate(pieces):
            a, receives = _values(rank, sum(n[rank]), dtype), [n[r][rank] for r in range(ranks)]
            found.append(channel.all_to_all(a, n[rank], receives, f"pieces {i}"))
            found.append(channel.all_gather(a, [sum(row) for row in n], f"all {i}"))
            found.append(channel.gathered(channel.start_all_gather(a, [sum(row) for row in n], "again")))
            whole = _values(rank, sum(n[0]), dtype)
            parts = [(at, [r.copy() for r in rows]) for at, rows in channel.exchanged(whole, n[0], f"a piece of each {i}")]
            assert [at for at, _ in parts] == list(np.cumsum([0, *(rows[0].size for _, rows in parts)])[:-1])
            found += [np.concatenate(rows) for rows in zip(*(rows for _, rows in parts))]
            channel.broadcast(whole, i % ranks, f"one for all {i}")
            found.append(whole)
        return [a.tobytes() for a in found], channel.received - before

    for rank, (found, received) in enumerate(_threads(work, ranks)):
        expected, bytes_received = [], 0
        for i, n in enumerate(pieces):
            sent = [np.split(_values(r, sum(n[r]), dtype), np.cumsum(n[r])[:-1]) for r in range(ranks)]
            gathered = np.concatenate([np.concatenate(row) for row in sent])
            same = [_values(r, sum(n[0]), dtype) for r in range(ranks)]
            expected += [np.concatenate([row[rank] for row in sent]), gathered, gathered]
            expected += [np.split(a, np.cumsum(n[0])[:-1])[rank] for a in same] + [same[i % ranks]]
            own = sent[rank]
            bytes_received += sum(row[rank].nbytes for row in sent) - own[rank].nbytes + (ranks - 1) * n[0][rank] * gathered.itemsize
            bytes_received += 2 * (gathered.nbytes - sum(part.nbytes for part in own))
        assert found == [a.tobytes() for a in expected] and received == bytes_received


def test_the_bits_of_messages(small, monkeypatch):
    def work():
        a = np.random.default_rng(dist.get_rank()).standard_normal(5000).astype(np.float32)
        x = dist.functional.all_reduce_sum(dist.Tensor(a))
        return about(), x.numpy().tobytes()

    found = _threads(work, 4)
    monkeypatch.setattr(ThreadTransport, "near", False)
    others = _threads(work, 4)
    assert {bits for _, bits in found} == {bits for _, bits in others} and len({bits for _, bits in found}) == 1
    assert found[1][0] == "rank 1 of 4; arrays go among the ranks [0, 1, 2, 3] by shared memory"
    assert others[1][0].endswith("[0, 1, 2, 3] by messages, since not all ranks are on this machine")


def test_memory_is_taken_when_it_is_needed(small, monkeypatch):
    def work():
        channel = dist.WORLD.channel
        before = list(channel.segments._taken)
        channel.all_gather(np.zeros(3 * SMALL // 8, np.uint8), [3 * SMALL // 8] * 2, "some")
        return before, list(channel.segments._taken), os.fstat(channel.segments._file).st_blocks * 512

    for before, after, allocated in _threads(work, 2):
        assert before == [SMALL // 4] * 2 and sorted(after) == [SMALL // 4, SMALL // 2]
        assert allocated <= 2 * SMALL


def test_a_rank_without_it_lets_all_go_by_messages(monkeypatch):
    create, calls = os.memfd_create, threading.Lock()
    refused = []

    def one_fails(*args):
        with calls:
            if not refused:
                refused.append(1)
                raise OSError(errno.ENOSYS, "Function not implemented")
        return create(*args)

    def work():
        x = dist.functional.all_reduce_sum(dist.Tensor(np.full(9000, dist.get_rank() + 1.0, np.float32)))
        assert dist.WORLD.channel.segments is None and report._processes() == about()
        return x.numpy().tobytes(), about()

    monkeypatch.setattr(os, "memfd_create", one_fails)
    with pytest.warns(UserWarning, match=r"rank \d: arrays go to other processes by messages, since this rank .*Function not implemented"):
        found = _threads(work, 3)
    assert {bits for bits, _ in found} == {np.full(9000, 6, np.float32).tobytes()}
    assert sum("since this rank ([Errno 38] Function not implemented) can share no memory" in way for _, way in found) == 1
    assert sum("since another rank can share no memory" in way for _, way in found) == 2


def test_processes_that_cannot_see_one_another():
    """In containers of their own a number may be that of another process, or of none."""
    file = os.memfd_create("something else")
    try:
        with pytest.raises(ValueError, match="memfd:something else"):
            shared._mapped(f"{os.getpid()} {file} tengen-0123")
    finally:
        os.close(file)
    with pytest.raises(OSError, match="No such file"):
        shared._mapped(f"{os.getpid()} 1000000 tengen-0123")


def test_memory_that_is_missing_is_an_error(small, monkeypatch):
    """Not the end of the process by a signal."""
    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    segments, why = shared.open_segments(0, lambda a: a[None])
    assert not why and bytes(shared.piece_of(segments.put([np.full(900, 7, np.uint8)])[0], 0, 900)) == bytes([7] * 900)
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(MemoryError, match="2048 bytes of memory that the processes of this machine share: .*No space left"):
        segments.put([np.zeros(2000, np.uint8)])


def test_who_leaves_an_exchange_halfway_has_left_the_group(small):
    def work():
        channel = dist.WORLD.channel
        parts = channel.exchanged(np.zeros(2 * SMALL, np.uint8), [SMALL] * 2, "gradients")
        next(parts)
        parts.close()
        with pytest.raises(DistributedError, match=r"this group failed before \(rank \d left gradients halfway\)"):
            channel.barrier()

    _threads(work, 2)


PROGRAM = """
import os, signal, sys
import numpy as np
from tengen import Tensor, distributed as dist, functional as F
from tengen.transport.group import world
assert dist.WORLD.channel.way == "shared memory", dist.WORLD.channel.way
if sys.argv[1] == "killed" and dist.get_rank() == 1:
    world().transport.barrier = lambda: os.kill(os.getpid(), signal.SIGKILL)
x = Tensor(np.full(5 << 20, dist.get_rank() + 1.0, np.float32))  # three rounds
total = F.distributed.all_reduce_sum(x)
assert (total.numpy() == 3).all()
os.kill(os.getpid(), signal.SIGKILL)
"""


@but(every=2)
@pytest.mark.parametrize("when", ["killed", "behind"])
def test_ranks_that_are_killed_leave_nothing_behind(tmp_path, when):
    """In the middle of an exchange, or behind one: the others end, and neither /dev/shm nor the folder for temporary files has a new file."""
    try:
        mpiexec.find_mpiexec()
    except DistributedError as e:
        pytest.skip(f"no MPI: {e}")
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    before = shared_names.shared_memory()
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-m", "tengen", "run", "-n", "2", str(program), when], capture_output=True, text=True,
                          timeout=60, env=env)  # fmt: skip
    assert done.returncode and "lost" in done.stderr and "Error" not in done.stderr, done.stderr
    # mpiexec kills rank 0 as rank 1 was: where both are gone when the command looks, it names both
    assert when == "behind" or "rank 1 was lost" in done.stderr or "one of the ranks 0, 1 was lost" in done.stderr, done.stderr
    assert not shared_names.shared_memory() - before and os.listdir(tmp_path) == ["train.py"]
