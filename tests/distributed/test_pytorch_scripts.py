"""What PyTorch's and MegEngine's data-parallel scripts call, beside the collective operations themselves."""

import copy
import pickle
import sys

import numpy as np
import pytest

import tengen
import tengen.pytorch as torch
from tengen import distributed as dist
from tengen.pytorch import nn


def test_batch_norms_of_a_network_become_those_of_all_processes():
    x = np.random.default_rng(0).standard_normal((8, 3, 4, 4)).astype(np.float32)

    def network():
        torch.manual_seed(0)
        inner = nn.Sequential(nn.BatchNorm2d(4, momentum=0.3), nn.ReLU())
        return nn.Sequential(nn.Conv2d(3, 4, 3), inner, nn.Flatten(), nn.BatchNorm1d(16, affine=False), nn.BatchNorm1d(16, bias=False))

    def work(size):
        net = network()
        weight = net[1][0].weight
        made = nn.SyncBatchNorm.convert_sync_batchnorm(net)
        assert made is net and net[1][0].weight is weight and net[1][0].momentum == 0.3 and net[4].bias is None
        assert [type(m).__name__ for m in net.modules()].count("SyncBatchNorm") == 3 and net.eval()[3].training is False
        assert list(net.state_dict()) == list(network().state_dict())
        own = 8 // size
        y = net.train()(torch.tensor(x[dist.get_rank() * own : (dist.get_rank() + 1) * own]))
        return y.detach().numpy().copy(), net[1][0].running_var.numpy().copy()

    ((whole, var),) = dist.launcher(work, n_gpus=1, backend="threads")(1)
    plain = network()
    assert np.allclose(plain(torch.tensor(x)).detach().numpy(), whole, atol=1e-5)
    found = dist.launcher(work, n_gpus=2, backend="threads")(2)
    assert np.allclose(np.concatenate([y for y, _ in found]), whole, atol=1e-5)
    assert all(np.allclose(v, var, rtol=1e-5) for _, v in found) and np.allclose(plain[1][0].running_var.numpy(), var, rtol=1e-5)
    alone = nn.SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm1d(3).eval())
    assert type(alone) is nn.SyncBatchNorm and not alone.training and type(nn.SyncBatchNorm.convert_sync_batchnorm(alone)) is nn.SyncBatchNorm


def test_a_function_that_is_sent_to_processes_may_use_any_module():
    cloudpickle = pytest.importorskip("cloudpickle")
    assert tengen.amp.enabled is False and tengen.dtr.eviction_threshold == 0  # modules with settings, of classes of their own
    for name, module in sorted(sys.modules.items()):
        if name.partition(".")[0] == "tengen" and module is not None:
            assert cloudpickle.loads(cloudpickle.dumps(module)) is module, name
    assert pickle.loads(pickle.dumps(tengen.amp)) is tengen.amp and copy.copy(tengen.dtr) is tengen.dtr
