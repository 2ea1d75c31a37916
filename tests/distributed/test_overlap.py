"""Gradients that go to the other processes while the backward walk goes on: the bits of those that go behind it, and of one process; what is
sent once more; how often and how much is sent; and the timeline."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from exhaustive import but, exhaustive

from tengen import distributed as dist
from tengen import module as M
from tengen.base.errors import DistributedError
from tengen.distributed.buckets import buckets, same_bytes

sys.path.insert(0, str(Path(__file__).parent))  # the ranks import what they call by its name
import jobs_overlap


def _threads(ranks, job=jobs_overlap.overlapped, **options):
    return dist.launcher(job, n_gpus=ranks, backend="threads")(**options)


CASES = [
    {}, {"traced": True}, {"changes": "branches"}, {"changes": "branches", "traced": True, "steps": 2}, {"samples": 3}, {"samples": 16},
    {"samples": 3, "micro_batches": 8}, {"freezes": True}, {"freezes": True, "traced": True},
]  # fmt: skip


@but(every=3)
@pytest.mark.parametrize("options", CASES, ids=repr)
def test_the_bits_are_those_of_one_process(options):
    want = jobs_overlap.overlapped(**options)[0]
    for ranks in (2, 3):
        found = _threads(ranks, **options)
        assert all(values == want for values, _, _ in found)
        assert max(n for _, gone, _ in found for n in gone) == 5 and not any(said for *_, said in found)  # all buckets had gone before the end


@but(first_of="changes")
@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("changes", ["twice", "scaled", "left"])
def test_gradients_that_change_after_they_were_sent_are_sent_once_more(changes, traced):
    """Where one process alone changes them, too; and a loop that all leave early leaves nothing for the next one to meet."""
    for ranks in (2, 3):
        late, early = (_threads(ranks, changes=changes, traced=traced, overlap=overlap) for overlap in (False, True))
        for (want, _, _), (got, gone, _) in zip(late, early):
            assert got == want
            assert len(gone) == 1 or changes == "left"  # it sends late from then on


@exhaustive
def test_processes_have_those_bits_too():
    from tengen.transport.mpiexec import find_mpiexec

    pytest.importorskip("cloudpickle")
    try:
        find_mpiexec()
    except DistributedError as e:
        pytest.skip(f"no MPI: {e}")
    want = jobs_overlap.overlapped()[0]
    for ranks in (2, 3):
        for found in dist.launcher(jobs_overlap.overlapped_in_processes, n_gpus=ranks)():
            assert all(values == want and gone and not said for values, gone, said in found)


def test_what_it_takes():
    """The bytes are those of late sending. There is a message for each bucket, and an exchange in which the processes agree for each round.
    What is sent late, and the sums, go through shared memory, where that exchange is all it takes."""
    for (late, late_exchanges), (early, early_exchanges), on, many in _threads(2, jobs_overlap.counted_exchanges):
        assert early == late and late_exchanges == {"agree": 6, "data": 0}
        assert early_exchanges == {"agree": 6, "data": 6}  # three buckets in two rounds
        assert not on and many  # by default: not on one machine, but between machines


def test_the_timeline_shows_transfers_beside_kernels():
    for events in _threads(2, jobs_overlap.overlap_timeline)[:1]:
        sent = [e for e in events if e.get("cat") == "transfer" and e["name"].startswith("gradients ")]
        kernels = [e for e in events if e["ph"] == "X" and e.get("cat") != "transfer"]
        assert {e["name"].split(",")[0] for e in sent} == {f"gradients {k} of 3" for k in (1, 2, 3)}
        first = min(sent, key=lambda e: e["ts"])
        assert any(first["ts"] <= k["ts"] <= first["ts"] + first["dur"] for k in kernels), "no kernel began while the first was on its way"
        assert any(e["ph"] == "M" and e["args"]["name"] == "transfers" for e in events)
        json.dumps(events)


def test_buckets():
    net = M.Sequential(M.Linear(1024, 1024), M.Linear(1024, 512), M.Linear(512, 4), M.Linear(3, 3))
    names = [n for n, _ in net.named_parameters()]
    found = [[names[i] for i in some] for some in buckets(list(net.parameters()))]
    assert sorted(sum(found, [])) == sorted(names) and found[0][0].startswith("3.") and found[-1][-1].startswith("0.")
    assert max(sum(dict(net.named_parameters())[n].size * 4 for n in some) for some in found if len(some) > 1) <= 4 << 20
    assert buckets([]) == []


def test_same_bytes():
    for n in (0, 1, 7, 8, 9, 1000):
        a = np.random.default_rng(n).integers(0, 255, n).astype(np.uint8)
        assert same_bytes(a, a.copy()) and same_bytes(a, a)
        for i in {0, n // 2, n - 1} if n else ():
            b = a.copy()
            b[i] ^= 1
            assert not same_bytes(a, b)
    assert not same_bytes(np.zeros(2, np.float32), -np.zeros(2, np.float32)) and not same_bytes(np.zeros(2), np.zeros(3))
    nan = np.full(3, np.nan)
    assert same_bytes(nan, nan.copy())


def test_arguments_that_are_refused():
    with pytest.raises(ValueError, match="overlap='yes' must be True, False, or None"):
        dist.DataParallel(M.Linear(2, 2), overlap="yes")
    for said in _threads(2, jobs_overlap.overlap_refused):
        assert "DataParallel(overlap=True): layers in parts on a mesh" in said["parts"]
        assert "gradients sent early" in said["differ"] and "gradients sent late" in said["differ"]
