"""MegEngine's names in several processes: a whole training script, helpers, and operation objects."""

import sys
from pathlib import Path

import numpy as np
import pytest
from exhaustive import but

from tengen import Tensor
from tengen import distributed as dist
from tengen import functional as F
from tengen.base.errors import DistributedError, DTypeError, ShapeError
from tengen.distributed import helper

sys.path.insert(0, str(Path(__file__).parent))  # the ranks import it by its name
import megengine_script


@but(these=["1"])
@pytest.mark.parametrize("ranks", [1, 3])
def test_a_training_script(ranks, tmp_path):
    """It learns, traced and eager have the same bits, samples are shared out, and the checkpoint is that of all processes."""
    from tengen.transport.mpiexec import find_mpiexec

    if ranks > 1:
        pytest.importorskip("cloudpickle")
        try:
            find_mpiexec()
        except DistributedError as e:
            pytest.skip(f"no MPI: {e}")
    arguments = ["-o", str(tmp_path / "out"), "-n", str(ranks), "-b", str(12 // ranks), "--epochs", "3"]
    runs = [megengine_script.main([*arguments, *more]) for more in ([], ["--trace"])]
    for found, traced in zip(*(run if ranks > 1 else [run] for run in runs)):
        losses, accuracy, same, seen = found
        assert same and found == traced
        assert len(losses) == 3 * 8 and losses[-1] < 0.7 * losses[0] and accuracy > 0.6, (losses, accuracy)
    if ranks > 1:
        assert len({found[1] for found in runs[0]}) == 1 and runs[0][0][3] != runs[0][1][3]


def test_packing():
    x, y = Tensor(np.arange(6, dtype=np.float32).reshape(2, 3)), Tensor(np.float32(7))
    offsets = helper.get_offsets([x.shape, y.shape])
    packed = helper.param_pack_concat([x, y], Tensor(offsets), offsets)
    assert offsets == [0, 6, 6, 7] and packed.tolist() == [0, 1, 2, 3, 4, 5, 7]
    a, b = helper.param_pack_split(packed, offsets, [(2, 3), ()])
    assert a.tolist() == x.tolist() and b.shape == (1,) and b.item() == 7
    for wrong in ([0, 6, 6, 8], [0, 5, 5, 7], [0, 6], [-1, 5, 6, 7]):
        with pytest.raises(ShapeError, match="do not fit the shapes"):
            helper.param_pack_split(packed, wrong, [(2, 3), ()])
    with pytest.raises(ShapeError, match="are not those of the shapes"):
        helper.param_pack_concat([x], None, [0, 5])
    assert dist.WORLD.comp_node == "cpu0" and helper.get_device_count_by_fork("cpu") == 1

    def mean():
        rank = float(dist.get_rank())
        some = [F.full((2,), rank), F.full((1, 1), 2 * rank)]
        return [t.tolist() for t in helper.pack_allreduce_split(some, [(2,), (1, 1)], reduce_method="mean")]

    assert dist.launcher(mean, n_gpus=3, backend="threads")() == [[[1.0, 1.0], [[2.0]]]] * 3


def test_operation_objects():
    def along():
        if dist.get_rank() == 0:
            for _ in range(3):
                assert F.distributed.RemoteSend(rank_to=1)(Tensor([1.0, 2.0])) is None
            return None
        got = F.distributed.RemoteRecv(rank_from=0, shape=(2,), dtype="float32")().tolist()
        with pytest.raises(ShapeError, match=r"f32\[2\], and shape=\(3,\) was expected"):
            F.distributed.RemoteRecv(rank_from=0, shape=(3,))()
        with pytest.raises(DTypeError, match="dtype=int32 was expected"):
            F.distributed.RemoteRecv(rank_from=0, dtype="int32")()
        return got

    assert dist.launcher(along, n_gpus=2, backend="threads")() == [None, [1.0, 2.0]]
