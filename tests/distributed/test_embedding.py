"""Tables of rows that are shared out: bits of one process and of a dense table, checkpoints, and bad input."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from exhaustive import exhaustive

import tengen as tg
from tengen import autodiff
from tengen import distributed as dist
from tengen import functional as F
from tengen import module as M
from tengen import optimizer as optim
from tengen.base.errors import DistributedError, DTypeError

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
import clicks


def small(optimizer="adagrad", read=None, write=None, servers=None, steps=3, samples=11, dense=False):
    """Trains a table and a layer. Returns: the table's state, the layer's parameters, rows here."""
    tg.random.seed(1)
    layer = M.Linear(4, 1)
    for p in layer.parameters():
        p._reset(np.random.default_rng(p.size).standard_normal(p.shape).astype(np.float32))
    table = dist.EmbeddingTable(4, optimizer, lr=0.1, seed=3, servers=servers)
    own = []
    if dense:  # an embedding with all rows, of the same first values
        net = M.Sequential(layer)
        net.rows = M.Embedding(30, 4, initial_weight=table.pull(np.arange(30)))
        own = [optim.Adagrad([net.rows.weight], lr=0.1)]
    net = dist.DataParallel(net if dense else layer, micro_batches=4)
    gm, opt = autodiff.GradManager().attach(net.parameters()), optim.SGD(list(layer.parameters()), lr=0.1)
    begin = dist.load_checkpoint(read, net=net, table=table)["step"] if read else 0
    for i in range(steps):
        rng = np.random.default_rng(i)
        keys, y = rng.integers(0, 30, (samples, 3)), rng.standard_normal((samples, 1)).astype(np.float32)
        if i < begin:
            continue
        for k, t in (net if dense else table).micro_batches(*(() if dense else (net,)), keys, y):
            with gm:
                rows = net.rows(tg.Tensor(k)) if dense else table(k)
                gm.backward((((net.module[0] if dense else net)(rows.sum(1)) - tg.Tensor(t)) ** 2).mean())
        for o in (opt, *own):
            o.step().clear_grad()
        table.step()
    if write:
        dist.save_checkpoint(write, net=net, table=table, step=steps)
    state = {"value": net.rows.weight.numpy()} if dense else table.state_dict()
    return {k: a.tobytes() for k, a in state.items()}, [p.numpy().tobytes() for p in layer.parameters()], table.rows


def _threads(ranks, *args, **kwargs):
    return dist.launcher(small, n_gpus=ranks, backend="threads")(*args, **kwargs)


def test_one_process_has_the_bits_of_a_dense_table():
    """Adagrad leaves a row alone that gets no gradient, so every row of a dense table is that of the sparse one."""
    tg.random.seed(1)
    state, layer, rows = small(steps=6)
    dense, same, _ = small(steps=6, dense=True)
    assert layer == same and rows == 30 and state["value"] == dense["value"]


@pytest.mark.parametrize("optimizer", ["adagrad", "adam", "sgd"])
@pytest.mark.parametrize("ranks, samples, servers", [(2, 11, None), (3, 11, None), (4, 3, None), (3, 11, [1])])
def test_several_processes_have_the_bits_of_one(optimizer, ranks, samples, servers):
    want = small(optimizer, samples=samples)
    found = _threads(ranks, optimizer, samples=samples, servers=servers)
    for state, layer, _ in found:
        assert state == want[0] and layer == want[1]
    rows = [n for _, _, n in found]
    assert sum(rows) == want[2] and (max(rows) < want[2] if servers is None else rows == [0, want[2], 0])


def test_adam_of_rows_is_adam():
    """By its definition in float64; a row counts its own steps."""
    table = dist.EmbeddingTable(2, "adam", lr=0.1, eps=1e-8)
    first = table.pull(np.array([5, 6])).astype(np.float64)
    net, gm = dist.DataParallel(M.Linear(2, 1)), autodiff.GradManager()
    m = v = 0.0
    for step in range(1, 4):
        for (k,) in table.micro_batches(net, np.array([5, 5]) if step != 2 else np.array([6, 5])):
            with gm:
                gm.backward((table(k) * tg.Tensor([[1.0, -2.0], [3.0, 0.5]])).sum())
        table.step()
        g = np.array([4.0, -1.5]) if step != 2 else np.array([3.0, 0.5])
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        first[0] -= 0.1 * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)
    np.testing.assert_allclose(table.pull(np.array([5])), first[:1], rtol=1e-5, atol=1e-6)
    assert table.state_dict()["step"].ravel().tolist() == [3.0, 1.0]


def test_a_checkpoint_goes_on_with_another_number(tmp_path):
    folder = str(tmp_path / "run.tgc")
    want = small("adam", steps=4)
    _threads(3, "adam", steps=2, write=folder)
    for state, layer, _ in [small("adam", steps=4, read=folder), *_threads(2, "adam", steps=4, read=folder)]:
        assert state == want[0] and layer == want[1]


def test_first_values_are_uniform_and_known_by_their_keys():
    table, other = dist.EmbeddingTable(8, scale=0.5, seed=1), dist.EmbeddingTable(8, scale=0.5, seed=2)
    keys = np.array([-(2**63), -1, 0, 1, 2**63 - 1, *range(10, 4000)])
    a = table.pull(keys)
    assert a.tobytes() == table.pull(keys[::-1])[::-1].tobytes() and not np.array_equal(a, other.pull(keys))
    assert a.min() >= -0.5 and a.max() < 0.5 and abs(a.mean()) < 0.01 and abs(a.std() - 0.5 / np.sqrt(3)) < 0.01
    assert len(np.unique(a)) > 0.99 * a.size * (1 - a.size / 2**25)


def test_bad_input():
    table, net = dist.EmbeddingTable(2), dist.DataParallel(M.Linear(2, 1))
    with pytest.raises(DTypeError, match="keys are integers, got float64"):
        table(np.ones(3))
    with pytest.raises(ValueError, match="must be one of sgd, adagrad, adam"):
        dist.EmbeddingTable(2, "lamb")
    with pytest.raises(ValueError, match="places from 0 to 0"):
        dist.EmbeddingTable(2, servers=[1])
    with pytest.raises(DistributedError, match="not in this batch"):
        for _ in table.micro_batches(net, np.array([1, 2])):
            table(np.array([3]))
    with pytest.raises(ValueError, match="does not fit"):
        table.load_state_dict(dist.EmbeddingTable(3).state_dict())
    assert table.pull(np.empty(0, np.int64)).shape == (0, 2) and table(np.empty((0, 3), np.int64)).shape == (0, 3, 2)
    assert F.sum(table(np.array([[1], [1]]))).shape == ()


def test_the_example_has_the_same_bits_and_learns():
    want = clicks.train(3, 64)
    found = dist.launcher(clicks.train, n_gpus=2, backend="threads")(3, 64)
    assert {f[0] for f in found} == {want[0]} and sum(f[2] for f in found) == want[2]
    assert clicks.train(40, 256)[1] < 0.6 < clicks.train(1, 256)[1]


@exhaustive
def test_the_example_in_processes():
    from tengen.transport.mpiexec import find_mpiexec

    try:
        find_mpiexec()
    except DistributedError as e:
        pytest.skip(f"no MPI: {e}")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    found = []
    for ranks in (1, 2):
        options = ["--steps", "2", "--batch", "50", "--optimizer", "adam"]
        command = [sys.executable, "-m", "tengen", "run", "-n", str(ranks), clicks.__file__, *options]
        done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=200)
        assert done.returncode == 0, done.stderr
        found += re.findall(r"trained ([0-9a-f]{16})", done.stdout)
    assert len(found) == 3 and len(set(found)) == 1, found
