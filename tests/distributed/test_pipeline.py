"""Pipelines: schedules, cuts, checkpoints and bad input; their bits are compared in `test_collectives`, in real processes."""

import itertools
import sys
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from exhaustive import but, exhaustive

import tengen as tg
from tengen import Tensor, amp, autodiff, trace
from tengen import distributed as dist
from tengen import functional as F
from tengen import module as M
from tengen import optimizer as optim
from tengen.base.config import config
from tengen.base.errors import DistributedError, GradientError, ShapeError, TraceError
from tengen.distributed.schedules import schedule
from tengen.transport.channel import HEADER

sys.path.insert(0, str(Path(__file__).parent))  # the ranks import what they call by its name
import jobs_pipelines
import jobs_training


def _mpi():
    """Skips aloud where several processes cannot be started."""
    from tengen.transport.mpiexec import find_mpiexec

    pytest.importorskip("cloudpickle")
    try:
        find_mpiexec()
    except DistributedError as e:
        pytest.skip(f"no MPI: {e}")


@pytest.mark.parametrize("name", ["1f1b", "gpipe"])
@pytest.mark.parametrize("chunks", [1, 2, 3])
def test_schedules_end_and_keep_what_they_say(name, chunks):
    for stages, rounds in itertools.product(range(1, 6), range(1, 9)):
        work = [schedule(name, s, stages, rounds, chunks) for s in range(stages)]
        last, done, at, most = stages * chunks - 1, set(), [0] * stages, [0] * stages
        for s in range(stages):
            assert Counter(w.kind for w in work[s]) == {"f": rounds * chunks, "b": rounds * chunks} and len(set(work[s])) == 2 * rounds * chunks
            for c in range(chunks):  # gradients are added in the order of the micro-batches
                assert [w.round for w in work[s] if w.kind == "b" and w.chunk == c] == list(range(rounds))
        moved = True
        while moved:  # each process does its next work as soon as what that needs is there
            moved = False
            for s in range(stages):
                while at[s] < len(work[s]):
                    kind, j, c = work[s][at[s]]
                    part = c * stages + s
                    if kind == "f":
                        ready = part == 0 or ("f", j, part - 1) in done
                    else:
                        ready = ("f", j, part) in done and (part == last or ("b", j, part + 1) in done)
                    if not ready:
                        break
                    done.add((kind, j, part))
                    at[s] += 1
                    held = Counter(w.kind for w in work[s][: at[s]])
                    most[s] = max(most[s], held["f"] - held["b"])
                    moved = True
        assert at == [len(w) for w in work], (stages, rounds)
        if name == "1f1b" and chunks == 1:
            assert most == [min(rounds, stages - s) for s in range(stages)]


def test_cuts_are_the_best_ones():
    rng = np.random.default_rng(0)
    for n, parts in ((5, 1), (6, 3), (7, 4), (5, 5)):
        costs = rng.integers(0, 9, n).tolist()
        every = itertools.combinations(range(1, n), parts - 1)
        dearest = {cuts: max(sum(costs[a:b]) for a, b in itertools.pairwise([0, *cuts, n])) for cuts in every}
        assert dearest[tuple(dist.balanced(costs, parts))] == min(dearest.values())
    with pytest.raises(ValueError, match="2 layers cannot be cut into 3"):
        dist.balanced([1, 2], 3)


def test_every_stage_gets_parameters_where_there_are_enough_layers_with_some():
    """The dearest layer is the first one, so that the cheapest cut by size alone leaves a stage with the layers behind it, which have none."""
    layers = M.Sequential(M.Linear(16, 64), M.GELU(), M.Dropout(0.1), M.Linear(64, 8), M.LayerNorm(8), M.Linear(8, 2))
    assert [dist.Pipeline(layers, F.nn.cross_entropy, 1, chunks=n).cuts for n in (1, 2, 3, 4, 5)] == [[], [3], [3, 4], [3, 4, 5], [1, 2, 3, 4]]


@exhaustive
def test_another_number_of_stages_goes_on_with_the_same_bits(tmp_path):
    _mpi()
    whole = jobs_pipelines.pipelined(steps=3)
    folder = str(tmp_path / "run.tgc")
    dist.launcher(jobs_pipelines.pipelined, n_gpus=3)(steps=2, write=folder)
    others = dist.launcher(jobs_pipelines.pipelined, n_gpus=2)(steps=3, read=folder, schedule="gpipe")
    for found in [jobs_pipelines.pipelined(steps=3, read=folder), *others]:
        assert found["values"] == whole["values"]


@exhaustive
def test_two_stages_of_two_copies_have_the_bits_of_one_process():
    _mpi()
    want, few = jobs_pipelines.pipelined(parallel=True), jobs_pipelines.pipelined(parallel=True, samples=3)
    for found in dist.launcher(jobs_pipelines.pipelines, n_gpus=4)():
        assert found.keys() == {"1f1b", "gpipe", "cut", "copies", "few", "copies and chunks"}
        for name, one in found.items():
            expected = few if name == "few" else want
            assert {k: one[k] for k in expected} == expected, name


def test_what_would_be_wrong_in_silence_is_refused():
    _mpi()
    for said in dist.launcher(jobs_pipelines.wrong_pipelines, n_gpus=2)():
        assert "of part 1 of the network is in part 0 too" in said["tied"]
        assert "the layers of stage 0 have no parameters" in said["none"] and "SyncBatchNorm waits for all" in said["sync"]
        assert "help: clip_grad_norm(pipeline.parameters(), max_norm)" in said["some"]
        assert "help: Pipeline(trace=False), or stage=2" in said["traced 3"] and "which no traced function takes" in said["traced on a mesh"]


@but(every=2)
@pytest.mark.parametrize("ranks, options", [
    (1, {}), (2, {"schedule": "gpipe"}), (3, {"chunks": 2}), (2, {"data": 2}), (4, {"data": 2, "chunks": 2}), (2, {"samples": 3}),
])  # fmt: skip
def test_stages_as_programs_have_the_bits_of_eager_layers(ranks, options):
    """With dropout, batch norm, hooks of gradients and uneven micro-batches; each chunk is one program from the second size on."""
    run = dist.launcher(jobs_pipelines.pipelined, n_gpus=ranks, backend="threads")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a trace that runs op by op says so
        for want, got in zip(run(**options), run(**options, trace=True)):
            programs = got.pop("programs")
            assert len(programs) == options.get("chunks", 1) and set(programs) <= {1, 2}  # for one size, and for all from the second on
            assert got == want


def test_programs_of_parts_follow_the_mode_and_have_names():
    found = []
    for traced in (False, True):
        tg.random.seed(1)
        net = M.Sequential(M.Linear(4, 8), M.BatchNorm1d(8), M.Dropout(0.5), M.Linear(8, 3))
        for p in net.parameters():
            p._reset(np.random.default_rng(p.size).standard_normal(p.shape).astype(np.float32))
        pipe = dist.Pipeline(net, F.nn.cross_entropy, micro_batches=2, chunks=2, trace=traced)
        losses = []
        for i in range(4):
            x = np.random.default_rng(i).standard_normal((6, 4)).astype(np.float32)
            losses.append(pipe.train(i % 2 == 0).step(x, np.arange(6, dtype=np.int32) % 3))
        with tg.profile() as profile:
            pipe.step(x, np.arange(6, dtype=np.int32) % 3)
        found.append((losses, [p.grad.numpy().tobytes() for p in pipe.parameters()]))
    assert found[0] == found[1]
    assert {"part0", "part1", "part0.gradient", "part1.gradient"} <= {row.program for row in profile.rows}


def test_under_autocast_every_micro_batch_counts():
    """Micro-batches shared autocast's casts of parameters, and the first one's backward let them go: the others' gradients were lost."""
    rng = np.random.default_rng(0)
    x, t = rng.standard_normal((12, 4)).astype(np.float32), rng.integers(0, 2, 12).astype(np.int32)
    whole = dist.DataParallel(_net(), micro_batches=3)
    gm = autodiff.GradManager().attach(whole.parameters())
    with amp.autocast(dtype="bfloat16"):
        for xb, tb in whole.micro_batches(x, t):
            with gm:
                gm.backward(F.nn.cross_entropy(whole(xb), tb))
    want = [p.grad.numpy().tobytes() for p in whole.parameters()]
    for name, traced in itertools.product(("1f1b", "gpipe"), (False, True)):
        layers = _net()
        layers.load_state_dict(whole.module.state_dict())
        net = dist.Pipeline(layers, F.nn.cross_entropy, micro_batches=3, schedule=name, trace=traced)
        with amp.autocast(dtype="bfloat16"):
            net.step(x, t)
        assert [p.grad.numpy().tobytes() for p in net.parameters()] == want, (name, traced)


def test_a_step_is_no_part_of_a_trace():
    net = dist.Pipeline(_net(), F.nn.cross_entropy, micro_batches=2)
    with pytest.raises(TraceError, match="is no part of a trace"):
        trace(lambda x, t: net.step(x, t))(Tensor(np.ones((4, 4), np.float32)), Tensor(np.zeros(4, np.int32)))


def test_checkpoints_of_values_that_differ_are_refused(tmp_path):
    for said in dist.launcher(jobs_training.differing, n_gpus=2, backend="threads")(str(tmp_path / "run.tgc")):
        assert "net.weight has another value in each process" in said


def _net():
    return M.Sequential(M.Linear(4, 8), M.ReLU(), M.Linear(8, 2))


@pytest.mark.parametrize("options, words", [
    ({"schedule": "2f"}, "'1f1b' or 'gpipe'"), ({"data": 2}, "data divides the number of processes, 1"), ({"chunks": 0}, "at least 1 each"),
    ({"chunks": 4}, "3 layers cannot be cut into 4"), ({"chunks": 2, "cuts": [3]}, "1 rising indices from 1 to 2"),
    ({"costs": [1.0]}, "1 costs were given for 3"), ({"micro_batches": 0}, "at least 1"),
])  # fmt: skip
def test_numbers_that_do_not_fit(options, words):
    with pytest.raises(ValueError, match=words):
        dist.Pipeline(_net(), F.nn.cross_entropy, **{"micro_batches": 2} | options)


def test_bad_batches_and_losses():
    x, t = np.ones((4, 4), np.float32), np.zeros(4, np.int32)
    net = dist.Pipeline(_net(), lambda y, t: y, micro_batches=2)
    with pytest.raises(GradientError, match=r"the loss of a micro-batch is f32\[2,2\]"):
        net.step(x, t)
    assert all(p.grad is None for p in net.parameters())
    with pytest.raises(ShapeError, match="lengths"):
        net.step(x, t[:2])
    layers = [M.Linear(4, 8), lambda y: (y > 0).astype("int32"), M.Linear(8, 2)]
    net = dist.Pipeline(layers, F.nn.cross_entropy, micro_batches=2, chunks=2, cuts=[2])
    with pytest.raises(GradientError, match=r"before part 1 give i32\[2,8\]"):
        net.step(x, t)


def test_states_of_another_optimizer_and_missing_names():
    net = dist.Pipeline(_net(), F.nn.cross_entropy, micro_batches=2)
    with pytest.raises(ValueError, match="one group"):
        net.states_of(optim.SGD(_net().parameters(), lr=0.1))
    with pytest.raises(KeyError, match="missing.*0.bias"):
        net.load_state_dict({})
    with pytest.raises(KeyError, match="unknown.*other"):
        net.load_state_dict(net.state_dict() | {"other": np.zeros(1)})


@pytest.mark.parametrize("trace", [False, True])
def test_parts_that_pass_tuples_and_what_has_no_gradient(trace):
    class Two(M.Module):
        def forward(self, x):
            return x * 2, x.detach() + 1

    class Joined(M.Module):
        def __init__(self):
            super().__init__()
            self.fc = M.Linear(4, 2)

        def forward(self, both):
            return self.fc(both[0] + both[1])

    first = M.Linear(4, 4)
    net = dist.Pipeline([first, Two(), Joined()], F.nn.cross_entropy, micro_batches=1, chunks=2, cuts=[2], trace=trace)
    x, t = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32), np.array([0, 1, 1], np.int32)
    net.step(x, t)
    got = {id(p): p.grad.numpy().tobytes() for p in net.parameters()}
    for p in net.parameters():
        p.grad = None
    gm = autodiff.GradManager().attach(list(net.parameters()))
    with gm:
        y = Tensor(x)
        for part in net.parts:
            y = part(y)
        gm.backward(F.nn.cross_entropy(y, Tensor(t)))
    assert got == {id(p): p.grad.numpy().tobytes() for p in net.parameters()}


def test_a_stage_that_is_alone_is_told(monkeypatch):
    monkeypatch.setattr(config, "distributed_timeout", config.distributed_timeout)
    with pytest.raises(DistributedError, match="rank 0 did not do its part"):
        dist.launcher(jobs_pipelines.half_a_pipeline, n_gpus=2, backend="threads")()


@pytest.mark.parametrize("name", ["1f1b", "gpipe"])
def test_the_next_message_is_on_its_way_while_a_stage_computes(name):
    """One from each process, as long as it has one to send: no more are kept, and none is asked for that does not come."""
    def work():
        pipe = dist.Pipeline(M.Sequential(M.Linear(4, 4), M.Linear(4, 3)), F.nn.cross_entropy, micro_batches=4, schedule=name)
        transport, asked, before = pipe.group.channel.transport, [], []
        recv, run = transport.recv, pipe.runs[0]

        def counted(buffer, source, tag):
            asked.append(source) if buffer.size == HEADER else None
            return recv(buffer, source, tag)

        transport.recv = counted
        pipe.runs[0] = lambda *args: (before.append(len(asked)), run(*args))[1]
        for _ in range(2):
            pipe.step(np.ones((8, 4), np.float32), np.zeros(8, np.int32))
        return before, len(asked)

    (first, of_first), (last, of_last) = dist.launcher(work, n_gpus=2, backend="threads")()
    assert of_first == of_last == 8 and last == [2, 3, 4, 4, 6, 7, 8, 8]
    assert first[0] == 1 and first[4] == 5  # it asks for the first gradient before it has computed anything


def test_the_timeline_shows_what_stages_receive():
    def work():
        pipe = dist.Pipeline(M.Sequential(M.Linear(4, 4), M.Linear(4, 3)), F.nn.cross_entropy, micro_batches=2)
        x, t = np.ones((8, 4), np.float32), np.zeros(8, np.int32)
        pipe.step(x, t)
        dist.group_barrier()
        if dist.get_rank():  # a profile is one for all threads
            pipe.step(x, t)
            return None
        with tg.profile() as p:
            pipe.step(x, t)
        return [e["name"] for e in p._events() if e.get("cat") == "transfer"]

    names = dist.launcher(work, n_gpus=2, backend="threads")()[0]
    assert {"receive from rank 1: b 0 0", "receive from rank 1: b 0 1"} <= set(names)
