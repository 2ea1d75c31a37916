"""Data, tensor and pipeline parallel on one mesh: the bits of one process, with optimizers shared out, checkpoints for other meshes, and what
is said of meshes that do not fit."""

import sys
import warnings
from math import prod
from pathlib import Path

import pytest
from exhaustive import but, exhaustive

from tengen import distributed as dist
from tengen.base.errors import DistributedError

sys.path.insert(0, str(Path(__file__).parent))  # the ranks import what they call by its name
import jobs_meshes


@pytest.fixture(scope="module")
def alone():
    return jobs_meshes.meshed({"data": 1})[:3]


@pytest.fixture(scope="module")
def after_two_steps():
    return jobs_meshes.meshed({"data": 1}, steps=2)[:3]


def _threads(dims, **options):
    return dist.launcher(jobs_meshes.meshed, n_gpus=prod(dims.values()), backend="threads")(dims, **options)


CUBE = {"pipe": 2, "data": 2, "model": 2}
MESHES = [
    ({"data": 2, "model": 2}, {}), ({"data": 3, "model": 1}, {}), ({"model": 2, "data": 4}, {"stage": 2}),  # any order of the dimensions
    ({"data": 2, "model": 2}, {"stage": 1}), ({"data": 2, "model": 2}, {"stage": 2, "scaler": True}), ({"pipe": 1}, {}),
    ({"pipe": 2, "model": 2}, {}), ({"model": 2, "pipe": 2}, {"chunks": 2, "schedule": "gpipe"}), (CUBE, {}), (CUBE, {"stage": 1}),
    (CUBE, {"stage": 2, "chunks": 2}), ({"pipe": 4, "data": 2}, {"stage": 2, "cuts": [3, 5, 8]}),
    ({"data": 2, "model": 2}, {"stage": 3, "scaler": True}), ({"data": 3, "model": 1}, {"stage": 3}), (CUBE, {"stage": 3}),
    ({"model": 2, "data": 2, "pipe": 2}, {"stage": 3, "chunks": 2, "schedule": "gpipe"}), ({"pipe": 2, "data": 3}, {"stage": 3, "chunks": 2}),
    ({"pipe": 2, "model": 2}, {"stage": 3}),
]  # fmt: skip


@but(every=6)
@pytest.mark.parametrize("dims, options", MESHES)
def test_every_mesh_has_the_bits_of_one_process(after_two_steps, dims, options):
    """Norms of gradients, parameters, running statistics and the optimizer's states after two steps of 11 samples in 4 micro-batches."""
    for *found, part in _threads(dims, steps=2, **options):
        assert tuple(found) == after_two_steps
        assert part == (512 // dims.get("model", 1), 16)


@exhaustive
def test_under_autocast_every_mesh_has_the_bits_of_one_process():
    """Contractions of bfloat16, gradients of float32 for each micro-batch; parameters that are away, and layers that are computed again."""
    want, whole = jobs_meshes.meshed({"data": 1}, cast=True, steps=1)[:3], jobs_meshes.meshed({"data": 1}, steps=1)[:3]
    assert want[1] != whole[1]
    for dims, options in (({"pipe": 2, "model": 2}, {}), ({"data": 2, "model": 1}, {"stage": 3}), ({"data": 2, "model": 2}, {"traced": True}),
                          (CUBE, {"stage": 3}),
                          ({"pipe": 2, "data": 2}, {"stage": 2, "memory_budget": "50KB"})):  # fmt: skip
        for *found, _ in _threads(dims, cast=True, steps=1, **options):
            assert tuple(found) == want, (dims, options)


@exhaustive
def test_few_samples_leave_processes_of_a_mesh_without_a_micro_batch():
    want = jobs_meshes.meshed({"data": 1}, samples=3, steps=2)[:3]
    for dims, stage in (({"data": 4, "model": 2}, 0), (CUBE, 0), (CUBE, 3), ({"pipe": 2, "data": 4}, 3), ({"data": 4, "model": 2}, 3)):
        for *found, _ in _threads(dims, samples=3, steps=2, stage=stage):
            assert tuple(found) == want


def test_a_traced_step_of_layers_in_parts_is_one_program_for_all_batches(alone):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for *found, _ in _threads({"data": 2, "model": 2}, traced=True):
            assert tuple(found) == alone


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    """What each of four processes of MPI found: what it holds on meshes, and the bits of trainings on them."""
    from tengen.transport.mpiexec import find_mpiexec

    pytest.importorskip("cloudpickle")
    try:
        find_mpiexec()
    except DistributedError as e:
        pytest.skip(f"no MPI: {e}")
    return dist.launcher(jobs_meshes.memories_and_meshes, n_gpus=4)(str(tmp_path_factory.mktemp("meshes")))


@exhaustive
def test_processes_of_mpi_have_those_bits_too(alone, four):
    """Two pipelines of two stages and two pieces of layers; and checkpoints which another mesh goes on with."""
    for _, found in four:
        for *one, _ in found:
            assert tuple(one) == alone


@exhaustive
def test_parameters_that_are_shared_out_on_a_mesh_are_away(four):
    """Layers in parts and stages keep half of what they have, and of a forward no weights. Two layers are whole at once, also of a
    stage, whose gradients are exchanged behind its backward."""
    for ranks, _ in four:
        for (own, kept, held, most), whole in zip(ranks, (2 / 8, 2 / 4)):
            assert kept.parameters == own / 2 and kept.states < own + 1024 and most == whole * own
            if held is not None:  # shards, states, gradients of an earlier micro-batch, what is whole, a small batch
                assert held < own / 2 + own + own / 2 + whole * own + 256 * 1024


def test_checkpoints_go_on_on_another_mesh(alone, tmp_path):
    def after(found):
        return found[0][2:], found[1], found[2]  # norms of the last step alone

    want = (alone[0][2:], *alone[1:])
    first, second = str(tmp_path / "a.tgc"), str(tmp_path / "b.tgc")
    _threads(CUBE, steps=2, write=first)
    _threads({"data": 2, "model": 2}, steps=2, write=second, stage=2)
    for dims in ({"model": 2, "pipe": 2}, {"pipe": 4}, {"pipe": 1}):
        for found in _threads(dims, read=first):
            assert (found[0], *found[1:3]) == want
    for dims, stage in (({"data": 4, "model": 2}, 3), ({"data": 3}, 2), ({"data": 1}, 0)):
        for found in _threads(dims, read=second, stage=stage):
            assert (found[0], *found[1:3]) == want


def test_meshes_that_do_not_fit():
    for said in dist.launcher(jobs_meshes.wrong_meshes, n_gpus=4, backend="threads")():
        assert "0.weight is cut along 'model' of Mesh(data=2, model=2)" in said["all"] and "group=mesh.group('data')" in said["all"]
        assert "0.weight is cut along 'model'" in said["pipeline"] and said["later"].startswith("DataParallel: parameters were placed on")
        assert "count the same samples several times" in said["norm"] and "has no dimension 'pipe'" in said["name"]
        assert "the ranks disagree" in said["batch"] and "a step of layers in parts on" in said["batch"]
        assert "is cut along 'model'" in said["callback"]
        assert "6 processes are wanted, there are 4" in said["size"]
