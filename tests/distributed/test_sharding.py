"""Gradients and parameters shared out (ZeRO 2 and 3): bits of one process, checkpoints for other numbers of processes, memory beside the
paper's formula, and what is said of programs that would be wrong in silence."""

import sys
from pathlib import Path

import numpy as np
import pytest
from exhaustive import but, exhaustive

from tengen import distributed as dist
from tengen import module as M
from tengen import optimizer as optim
from tengen.base.errors import DistributedError
from tengen.runtime import native

sys.path.insert(0, str(Path(__file__).parent))  # the ranks import what they call by its name
import jobs_pipelines
import jobs_sharding
import jobs_training


def _mpi():
    from tengen.transport.mpiexec import find_mpiexec

    pytest.importorskip("cloudpickle")
    try:
        find_mpiexec()
    except DistributedError as e:
        pytest.skip(f"no MPI: {e}")


def _threads(job, ranks):
    return dist.launcher(job, n_gpus=ranks, backend="threads")


@pytest.fixture(scope="module")
def alone():
    return {n: jobs_training.trained(steps=3, samples=n) for n in (11, 3)}


@but(first_of="stage")
@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize("ranks, samples", [(2, 11), (3, 11), (4, 11), (3, 3)])
def test_the_bits_are_those_of_one_process(alone, stage, ranks, samples):
    """Also with a parameter that only some ranks use, and rounds in which some ranks have no micro-batch."""
    for found in _threads(jobs_training.trained, ranks)(steps=3, samples=samples, sharded=stage):
        assert found == alone[samples]


@pytest.mark.parametrize("again", [False, True])
def test_bits_under_autocast(again):
    """Of layers that are called several times, too: they are cast once, and the addends of a gradient are added in the low dtype. At stage 3
    the casts are not held from the forward to the backward."""
    want, whole = jobs_sharding.cast_and_shared_out(0, again)
    assert whole == 2 * (64 * 64 + 64 + 3 * 64 + 3)
    for stage in (1, 2, 3):
        for found, held in _threads(jobs_sharding.cast_and_shared_out, 2)(stage, again):
            assert found == want and held == (0 if stage == 3 else whole), stage


@exhaustive
def test_processes_have_them_too_and_keep_what_the_paper_says():
    _mpi()
    want, scaled, traced = jobs_training.trained(steps=3), jobs_training.trained(scaler=True), jobs_training.trained(traced=True)
    for found in dist.launcher(jobs_sharding.sharded_in_processes, n_gpus=2)():
        assert found[2] == found[3] == want and found["scaled 2"] == found["scaled 3"] == scaled and found["traced"] == traced
        n = 6 * 256 * 256 * 4  # bytes of the parameters
        formula = {1: (n, n, 2 * n / 2), 2: (n, n / 2, 2 * n / 2), 3: (n / 2, n / 2, 2 * n / 2)}
        for stage, (kept, in_forward, after, stepped, most) in found["memory"].items():
            small = 64 * 1024  # steps, learning rates, objects
            assert kept == pytest.approx(formula[stage], abs=1024), stage
            assert after < sum(formula[stage]) + small and stepped < sum(formula[stage]) - formula[stage][1] + n / 2 + small, stage
            if stage == 3:  # two layers of six at once
                assert most == 2 * n / 6 and in_forward < n / 2 + n + 2 * n / 6 + small


@pytest.mark.parametrize("stage", [2, 3])
def test_checkpoints_go_on_with_another_number_and_stage(alone, stage, tmp_path):
    folder = str(tmp_path / "run.tgc")
    _threads(jobs_training.trained, 3)(steps=2, sharded=stage, write=folder)
    others = [(2, 5 - stage), (4, stage), (2, 0)]
    runs = [found for ranks, other in others for found in _threads(jobs_training.trained, ranks)(steps=3, sharded=other, read=folder)]
    for found in [*runs, jobs_training.trained(steps=3, read=folder)]:
        assert found == alone[11]


@pytest.mark.parametrize("ranks", [2, 4])
def test_values_that_the_program_changes_and_batches_that_are_added(ranks):
    want = jobs_sharding.changed_by_the_program(0)
    for stage in (1, 2, 3):
        for found in _threads(jobs_sharding.changed_by_the_program, ranks)(stage):
            assert found == want, stage


def test_what_would_be_wrong_in_silence_is_refused():
    for stage in (2, 3):
        for said in _threads(jobs_sharding.misuse, 2)(stage):
            assert "a whole gradient, which no other process knows" in said["outside"]
            assert "a second backward in one micro-batch" in said["twice"] and "that the network has not" in said["other"]
            if stage == 3:
                assert "as it was before a step, and is not kept" in said["old"] and "no trace does" in said["trace"]
            else:
                assert said["old"] is None and said["trace"] is None


def test_an_overflow_in_one_stage_of_a_pipeline_is_known_to_all():
    for unchanged, scale in _threads(jobs_pipelines.pipeline_scaled, 2)():
        assert unchanged and scale == 2.0


def test_one_process_is_stage_1():
    net = dist.DataParallel(M.Linear(4, 2))
    opt = dist.shard(net, optim.Adam(net.parameters(), lr=0.1), stage=3)
    assert opt.stage == 1 and opt.kept() == (40, 0, 80 + 2 * 4)  # and a count of steps for each parameter
    assert np.array_equal(net.module.weight.numpy().ravel(), opt.shards[1].numpy())


def test_what_was_whole_goes_back_to_the_system():
    def cached():
        net = dist.DataParallel(M.Linear(1024, 1024))
        opt = dist.shard(net, optim.Adam(net.parameters(), lr=0.1), stage=3)
        dist.group_barrier()
        return native.memory_statistics().cached, len(opt.shards)

    assert max(n for n, _ in dist.launcher(cached, n_gpus=2, backend="threads")()) < 6 << 20  # 25 MB before; threads free a copy of 4 later
