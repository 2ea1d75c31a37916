"""Several processes (MPI, where it is installed) and several threads: values and gradients of collective operations against NumPy,
bits of data parallel training against one process, and what is said when ranks disagree, fail or do not come."""

import importlib
import os
import resource
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from exhaustive import exhaustive

from tengen import Parameter, Tensor
from tengen import distributed as dist
from tengen import functional as F
from tengen import module as M
from tengen.base.config import config
from tengen.base.dtype import dtype as dtype_named
from tengen.base.errors import DistributedError, ShapeError
from tengen.transport.channel import Channel

sys.path.insert(0, str(Path(__file__).parent))  # the ranks import what they call by its name

import jobs_collectives
import jobs_pipelines
import jobs_training

SIZES = (2, pytest.param(3, marks=exhaustive))  # four: `test_checkpoints.py`, and below as threads
trained, values = jobs_training.trained, jobs_training.values


def _mpi():
    try:
        from tengen.transport.mpiexec import find_mpiexec

        find_mpiexec()
        importlib.import_module("cloudpickle")
    except (DistributedError, ImportError) as e:
        pytest.skip(f"no MPI: {e}")


@pytest.fixture(scope="module", params=SIZES)
def ranks(request):
    """What every rank of a job of MPI found."""
    _mpi()
    return dist.launcher(jobs_collectives.everything, n_gpus=request.param)()


@pytest.fixture(scope="module")
def alone():
    """The trainings in one process."""
    return {
        "trained": trained(), "traced": trained(traced=True), "scaled": trained(scaler=True),
        "whole": trained(samples=16), "few": trained(samples=3), "fewer": trained(samples=3, micro_batches=8),
        "sharded": trained(steps=3),
    }  # fmt: skip


@pytest.fixture(scope="module")
def layers_alone():
    """A row of layers that one process trains: by DataParallel, the same with few samples, and as a pipeline."""
    return jobs_pipelines.pipelined(parallel=True), jobs_pipelines.pipelined(parallel=True, samples=3), jobs_pipelines.pipelined()


def _fold(rows):
    total = rows[0]
    for row in rows[1:]:
        total = total + row
    return total


def _check_collectives(found):
    n = len(found)
    xs = [values(r) for r in range(n)]
    wide = [values(r, 6 * n).reshape(2 * n, 3) for r in range(n)]
    cut = [np.split(w, n) for w in wide]
    for r, f in enumerate(found):
        expected = {
            "all_reduce_sum": _fold(xs), "all_reduce_max": np.max(xs, 0), "all_reduce_min": np.min(xs, 0), "broadcast": xs[0],
            "integers": np.arange(3) * n + n * (n - 1) // 2, "half": _fold([x.astype(np.float16) for x in xs]),
            "large": _fold([values(q, 20_001) for q in range(n)]), "empty": np.zeros((0, 3), np.float32),
            "scalar": np.float32(n * (n - 1) // 2), "strided": np.concatenate([w.T for w in wide], 1),
            "all_gather": np.concatenate(wide, -1), "reduce_scatter_sum": _fold([c[r] for c in cut]),
            "all_to_all": np.concatenate([c[r] for c in cut], 1), "scatter": cut[0][r],
        }  # fmt: skip
        if r == 0:
            expected |= {"gather": np.concatenate(wide), "reduce_sum": _fold(xs)}
        assert f.keys() == expected.keys()
        for name, e in expected.items():
            assert f[name].dtype == np.asarray(e).dtype and f[name].tobytes() == np.ascontiguousarray(e).tobytes(), (name, r)


def test_collectives(ranks):
    _check_collectives([r["collectives"] for r in ranks])


def test_ranks_know_whether_they_share_processors(ranks):
    assert {r["crowded"] for r in ranks} == {len(ranks) > os.cpu_count()}


def test_collectives_of_threads():
    _check_collectives(dist.launcher(jobs_collectives.collectives, n_gpus=4, backend="threads")())


def test_gradients(ranks):
    """By definition: sum over ranks s of (s + 1) * d(result of s) / d(w of r)."""
    n = len(ranks)
    w = [values(r, 2 * n) for r in range(n)]
    everyone = n * (n + 1) / 2
    counts = np.repeat(np.arange(1, n + 1), 2)  # a piece of rank s's result counts s + 1 times
    best = np.max([x * x for x in w], 0)
    for r, found in enumerate(ranks):
        g = found["gradients"]
        expected = {
            "all_reduce_sum": everyone * 2 * w[r], "all_reduce_max": np.where(w[r] * w[r] == best, everyone * 2 * w[r], 0),
            "reduce_sum": 2 * w[r], "all_gather": everyone * 2 * w[r], "gather": 2 * w[r], "reduce_scatter_sum": counts * 2 * w[r],
            "all_to_all": counts * 2 * w[r], "broadcast": everyone * 2 * w[r] * (r == 0), "scatter": counts * 2 * w[r] * (r == 0),
        }  # fmt: skip
        for name, e in expected.items():
            np.testing.assert_allclose(g[name], e, rtol=1e-5, atol=1e-6, err_msg=f"{name} of rank {r}")
        if r == 0:
            np.testing.assert_allclose(g["broadcast of None"], np.full(2 * n, everyone * 2))
        else:
            assert g["broadcast of None"] is None


def test_a_tensor_goes_along_the_ranks_and_its_gradient_back(ranks):
    factors = [r + 2.0 for r in range(len(ranks))]
    for r, found in enumerate(ranks):
        np.testing.assert_array_equal(found["line"], np.prod(factors) / factors[r])


def test_training_has_the_bits_of_one_process(ranks, alone):
    for r, found in enumerate(ranks):
        for name, bits in alone.items():
            assert found[name] == bits, (name, r)


def test_one_process_accumulates_as_a_plain_loop_does():
    """Without dropout: the sum of the micro-batches' gradients, added in their order, divided by their number."""
    import tengen as tg
    from tengen import autodiff
    from tengen import functional as F
    from tengen import module as M

    x, y = values(0, 24).reshape(8, 3), np.array([0, 1, 1, 0, 1, 0, 0, 1], np.int32)
    plain, parallel = M.Linear(3, 2), M.Linear(3, 2)
    parallel.load_state_dict(plain.state_dict())
    net = dist.DataParallel(parallel, micro_batches=4)
    gm = autodiff.GradManager().attach(plain.parameters()).attach(net.parameters())
    for i in range(4):
        with gm:
            gm.backward(F.nn.cross_entropy(plain(tg.Tensor(x[2 * i : 2 * i + 2])), tg.Tensor(y[2 * i : 2 * i + 2])))
    for xb, yb in net.micro_batches(tg.Tensor(x), tg.Tensor(y)):
        with gm:
            gm.backward(F.nn.cross_entropy(net(xb), yb))
    for p, q in zip(plain.parameters(), net.parameters()):
        assert (p.grad / 4).numpy().tobytes() == q.grad.numpy().tobytes()


def test_a_program_of_megengine(ranks):
    assert len({r["megengine"] for r in ranks}) == 1
    n = len(ranks)
    w = values(0, 6).reshape(2, 3).astype(np.float64)
    xs = [values(r, 12).reshape(4, 3).astype(np.float64) for r in range(n)]
    grad = sum(2 * (x @ w.T).T @ x / 8 for x in xs) / n
    np.testing.assert_allclose(np.frombuffer(ranks[0]["megengine"], np.float32).reshape(2, 3), w - 0.1 * grad, rtol=1e-4, atol=1e-5)


def test_sync_batch_norm_is_that_of_the_whole_batch(ranks):
    xs = [np.random.default_rng(r).standard_normal((3 + r, 2, 4)).astype(np.float32).astype(np.float64) for r in range(len(ranks))]
    x = np.concatenate(xs)

    def normalised(x):
        mean, var = x.mean((0, 2), keepdims=True), x.var((0, 2), keepdims=True)
        return (x - mean) / np.sqrt(var + 1e-5)

    np.testing.assert_allclose(np.concatenate([r["norm"][0] for r in ranks]), normalised(x), atol=2e-6)
    grad, h = np.concatenate([r["norm"][1] for r in ranks]), 1e-5
    for i in [(0, 0, 0), (2, 1, 3), (x.shape[0] - 1, 1, 1)]:  # finite differences of sum(y ** 3)
        up, down = x.copy(), x.copy()
        up[i] += h
        down[i] -= h
        assert grad[i] == pytest.approx(((normalised(up) ** 3).sum() - (normalised(down) ** 3).sum()) / (2 * h), abs=2e-4)
    for r in ranks:
        np.testing.assert_allclose(r["norm"][2].ravel(), 0.1 * x.mean((0, 2)), rtol=1e-5)
        np.testing.assert_allclose(r["norm"][3].ravel(), 0.9 + 0.1 * x.var((0, 2), ddof=0) * (x.size / 2) / (x.size / 2 - 1), rtol=1e-5)


def test_samplers_share_out_and_loaders_of_pytorch_do_not(ranks):
    n = len(ranks)
    for r, found in enumerate(ranks):
        assert found["samplers"][0] == np.resize(np.arange(8), -(-8 // n) * n)[r::n].tolist()
        assert found["samplers"][2] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert {i for found in ranks for i in found["samplers"][1]} == set(range(8))


def test_a_loop_that_is_left_early_adds_nothing():
    before, after = jobs_training.left_early()
    assert before == after


def test_whole_batches_that_differ_are_refused():
    for said in dist.launcher(jobs_training.other_batches, n_gpus=2, backend="threads")():
        assert said.count("a step on the batch") == 2


def test_a_batch_without_samples():
    with pytest.raises(ShapeError, match="no samples"):
        list(dist.DataParallel(M.Linear(2, 2)).micro_batches(np.zeros((0, 2), np.float32)))


def test_complex_parameters_keep_the_signs_of_their_zeros():
    from tengen.distributed.data_parallel import nothing

    x = Parameter(np.array([complex(-0.0, -0.0), 1j]))
    assert (nothing(x) + x).numpy().tobytes() == x.numpy().tobytes()


def test_a_launcher_of_another_mpi_is_told():
    _mpi()
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"}
    program = "from tengen import distributed; distributed.get_rank()"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=env, timeout=120)
    assert ended.returncode and "has started 2 processes, and MPI's library here joins 1" in ended.stderr


def test_an_error_in_a_program_that_mpiexec_has_started_ends_all(tmp_path):
    _mpi()
    from tengen.transport.mpiexec import find_mpiexec

    program = tmp_path / "program.py"
    program.write_text("from tengen import distributed as d\nif d.get_rank() == 1: raise ValueError('of rank 1')\nd.group_barrier()\n")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [*find_mpiexec(), "-n", "2", sys.executable, str(program)]
    ended = subprocess.run(command, capture_output=True, text=True, env=env, timeout=120)
    assert ended.returncode and "rank 1 of 2 failed:" in ended.stderr and "ValueError: of rank 1" in ended.stderr


def test_groups(ranks):
    n = len(ranks)
    for r, found in enumerate(ranks):
        members = list(range(r % 2, n, 2))
        assert found["groups"] == (members.index(r), len(members), float(sum(members)))


def test_pipelines_have_the_bits_of_one_process(ranks, layers_alone):
    """Parameters, running statistics, norms and results; whatever the schedule, the cuts, and the number of copies."""
    all_samples, few, pipeline = layers_alone
    for r, found in enumerate(ranks):
        assert {"1f1b", "gpipe", "few"} < found["pipelines"].keys()
        for name, one in found["pipelines"].items():
            want = few if name == "few" else all_samples
            assert {k: one[k] for k in want} == want, (name, r)
            assert name == "few" or one["loss"] == pipeline["loss"]
        assert found["pipelines"]["1f1b"]["kept"] == min(4, len(ranks) - r) and found["pipelines"]["gpipe"]["kept"] == 4


def test_operations_in_a_trace_are_nodes_of_one_program(ranks):
    for r in ranks:
        assert r["operations"] == ([True] * 6, 1, True)


def test_sums_of_the_library_are_a_choice_that_is_recorded(ranks):
    n = len(ranks)
    for found in [r["library"] for r in ranks]:
        for t in ("float32", "float64", "complex64", "float16"):
            if t == "float16" and "MPI has no sum of float16" in str(found[t]):  # MPICH has one, Open MPI has none
                continue
            want = sum(values(r, 1000).astype(t).astype(np.complex128) for r in range(n))
            eps = np.finfo(np.dtype(t)).eps * sum(np.abs(values(r, 1000)) for r in range(n))
            assert found[t].dtype == t and (np.abs(found[t] - want) <= n * eps).all()
        assert found["integers"].tolist() == (np.arange(5) * n + n * (n - 1) // 2).tolist() and found["empty"].shape == (0, 2)
        assert found["gradient"].tolist() == [n * (n + 1) / 2] * 3 and found["named"]
        assert "MPI has no sum of bfloat16" in found["bfloat16"]
        assert "all_reduce_sum_by_library of f32[3]" in found["differ"] and "rank 1: operation" in found["differ"]


def test_sums_of_the_library_are_refused_where_bits_are_promised():
    with pytest.raises(ValueError, match="which are what DataParallel and Pipeline promise"):
        dist.DataParallel(M.Linear(2, 2), reduction="library")
    with pytest.raises(ValueError, match="which are what DataParallel and Pipeline promise"):
        dist.Pipeline(M.Sequential(M.Linear(2, 2)), lambda y: y.sum(), micro_batches=1, reduction="library")
    with pytest.raises(ValueError, match="must be 'ranks'"):
        dist.make_allreduce_cb("sum", reduction="mpi")

    def threads():
        F.distributed.all_reduce_sum(Tensor([1.0]), reduction="library")

    with pytest.raises(DistributedError, match="threads have no sum of their own"):
        dist.launcher(threads, n_gpus=2, backend="threads")()


def test_ranks_that_disagree_are_told_what_each_wants():
    for said in dist.launcher(jobs_collectives.disagreeing, n_gpus=3, backend="threads")():
        assert "rank 0: operation 3, all_reduce_sum of f32[3]" in said and "rank 1: operation 3, all_reduce_sum of f32[4]" in said


@pytest.mark.parametrize("backend", ["threads", "mpi"])
def test_a_rank_that_does_not_come_is_named(backend, monkeypatch):
    if backend == "mpi":
        _mpi()
    monkeypatch.setattr(config, "distributed_timeout", config.distributed_timeout)  # put back after threads have set it
    found = dist.launcher(jobs_collectives.missing, n_gpus=3, backend=backend)()
    for said in (found[0], found[2]):
        assert "all_reduce_max of f32[5]" in said and "rank 1 has not come" in said and "the last operation" in said
        assert "all_reduce_sum of f32[2]" in said


def test_a_rank_that_does_not_send_is_named(monkeypatch):
    monkeypatch.setattr(config, "distributed_timeout", config.distributed_timeout)  # put back after threads have set it
    said = dist.launcher(jobs_collectives.unanswered, n_gpus=2, backend="threads")()[0]
    assert "rank 0 waited 1 s to receive from rank 1, and rank 1 did not do its part" in said


def test_an_error_in_one_rank_ends_all():
    _mpi()

    def fails():
        if dist.get_rank() == 1:
            raise ValueError("the data of rank 1 are gone")
        dist.group_barrier()

    with pytest.raises(DistributedError, match="(?s)rank 1 of 2 failed.*the data of rank 1 are gone"):
        dist.launcher(fails, n_gpus=2)()


def test_run_starts_a_program(tmp_path):
    _mpi()
    program = tmp_path / "program.py"
    program.write_text(
        "import sys\nfrom tengen import distributed as dist\nfrom tengen import functional as F, Tensor\n"
        "total = F.distributed.all_reduce_sum(Tensor([dist.get_rank() + 1.0])).item()\n"
        "print(f'rank {dist.get_rank()} of {dist.get_world_size()}: {total} {sys.argv[1:]}', flush=True)\n"
        "sys.exit(int(sys.argv[2]) if dist.get_rank() == 1 else 0)\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-m", "tengen", "run", "-n", "2", str(program), "--lr"]
    ended = subprocess.run([*command, "0"], capture_output=True, text=True, env=env, timeout=120)
    assert ended.returncode == 0, ended.stderr
    for r in range(2):
        assert f"rank {r} of 2: 3.0 ['--lr', '0']" in ended.stdout
    assert subprocess.run([*command, "5"], capture_output=True, env=env, timeout=120).returncode != 0


def test_several_processes_without_their_launcher_are_refused():
    with pytest.raises(DistributedError, match="tengen run -n 4"):
        dist.init_process_group("localhost", 1234, world_size=4, rank=0)
    with pytest.raises(DistributedError, match="there is one process"):
        dist.Group([0, 1])
    with pytest.raises(DistributedError, match="processes of one machine"):
        dist.launcher(lambda: None, n_gpus=2, world_size=4)


# ---- memory of what is moved ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "complex64", "bool", "int8"])
@pytest.mark.parametrize("sizes", [[], [0], [1], [3, 0, 5], [17, 64]])
def test_rows_are_packed_in_memory_of_their_own(dtype, sizes):
    d = dtype_named(dtype).numpy
    rows = [np.arange(n).astype(d) for n in [*sizes, 0]]
    kept = [F.distributed.packed(rows) for _ in range(3)]  # none of which gets the memory of another one
    for a in kept:
        assert a.dtype == d and a.flags.writeable and a.tobytes() == b"".join(r.tobytes() for r in rows)
        a[...] = 0
    views = F.distributed.packed(rows)[1:]
    F.distributed.packed([np.ones_like(r) for r in rows])
    assert views.tobytes() == np.concatenate(rows)[1:].tobytes()  # a view keeps the memory


def test_memory_of_what_is_moved_is_taken_from_the_pool():
    """The system fills the pages of fresh memory with zeros, one by one: that took three times as long as the exchange of the gradients."""
    row = np.ones(9 << 20, np.float32)  # more than the allocator of C keeps

    class Copies:
        rank, size, name, crowded = 0, 2, "copies", False

        def allgather(self, send, recv, counts):
            recv[:] = np.tile(send, 2)[: recv.size]
            return SimpleNamespace(test=lambda: True)

        def alltoall(self, send, send_counts, recv, recv_counts):
            recv[:] = send
            return SimpleNamespace(test=lambda: True)

    channel = Channel(Copies(), [0, 1])
    half = row.size // 2

    def exchange():
        sent = F.distributed.packed([row])
        return channel.all_to_all(sent, [half, half], [half, half], "gradients")

    exchange()
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    assert exchange().size == row.size
    assert resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before < 1000  # of 18,432 pages of 4 KiB
