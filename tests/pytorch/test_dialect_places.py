"""What PyTorch's programs import and find: packages, types of tensors, hooks, collective operations, profiles."""

import functools
import importlib
import json

import numpy as np
import pytest

import tengen.pytorch as torch
import tengen.pytorch.distributed as dist
from tengen import distributed
from tengen.base.errors import DeviceError, DistributedError
from tengen.pytorch import nn
from tengen.pytorch.autograd.gradcheck import GradcheckError
from tengen.pytorch.nn.parallel import DistributedDataParallel
from tengen.pytorch.utils.data import DataLoader, Sampler, TensorDataset
from tengen.pytorch.utils.data.distributed import DistributedSampler

R = np.random.default_rng(0)


@pytest.mark.parametrize("name", [
    "backends.cudnn", "backends.mps", "cuda.amp", "distributed", "multiprocessing", "nn.modules.batchnorm", "nn.modules.utils", "nn.parallel",
    "profiler", "utils.benchmark", "utils.data.dataset", "utils.data.distributed", "utils.data.sampler", "utils.dlpack",
])  # fmt: skip
def test_a_file_of_pytorchs_is_imported(name):
    assert importlib.import_module(f"tengen.pytorch.{name}").__doc__


def test_types_of_tensors_are_constructors_and_classes():
    assert torch.Tensor([1, 2]).dtype is torch.float32 and torch.Tensor(2, 3).shape == (2, 3) and torch.Tensor().shape == (0,)
    assert torch.LongTensor([1.0, 2.0]).dtype is torch.int64 and torch.LongTensor(2).shape == (2,) and torch.ByteTensor([3]).tolist() == [3]
    x = torch.ones(2)
    assert isinstance(x, torch.Tensor) and isinstance(x, torch.FloatTensor) and not isinstance(x, torch.LongTensor)
    assert isinstance(nn.Parameter(x), torch.Tensor) and not isinstance(np.ones(2), torch.Tensor) and torch.Tensor.add is type(x).add
    assert x.type() == "torch.FloatTensor" and x.type(torch.int64).dtype is torch.int64 and x.type("torch.DoubleTensor").dtype is torch.float64
    v = torch.autograd.Variable(x, requires_grad=True)
    assert v.requires_grad and not x.requires_grad and isinstance(x, torch.autograd.Variable)
    assert not x.is_cuda and torch.ones(2, 3).stride() == (3, 1) and torch.float32.is_floating_point and not torch.int64.is_floating_point


def test_methods_of_windows_and_places():
    a = R.normal(size=(4, 5)).astype("f4")
    x = torch.tensor(a)
    want = np.lib.stride_tricks.sliding_window_view(a, 3, 1)
    assert x.unfold(1, 3, 2).numpy().tolist() == want[:, ::2].tolist()
    assert x.unfold(0, 4, 1).shape == (1, 5, 4) and x.unfold(0, 0, 1).shape == (5, 5, 0)
    i, j = np.array([0, 2, 0]), np.array([1, -1, 1])
    for more in (False, True):
        b, y = a.copy(), x.clone()
        np.add.at(b, (i, j), 2.5) if more else b.__setitem__((i, j), 2.5)
        y.index_put_((torch.tensor(i), torch.tensor(j)), torch.tensor(2.5), accumulate=more)
        assert y.tolist() == b.tolist()
    rows = np.array([[1, 2], [0, 5], [1, 2], [1, 0]])
    found = torch.unique(torch.tensor(rows), return_inverse=True, return_counts=True, dim=0)
    for got, w in zip(found, np.unique(rows, return_inverse=True, return_counts=True, axis=0)):
        assert got.tolist() == w.tolist()
    assert torch.unique(torch.tensor(rows), dim=1).tolist() == np.unique(rows, axis=1).tolist()
    assert torch.unique_consecutive(torch.tensor([[1, 1, 0, 1], [2, 2, 2, 2]]), dim=1).tolist() == [[1, 0, 1], [2, 2, 2]]
    torch.manual_seed(0)
    share = torch.full((4000,), 0.25).bernoulli()
    assert set(share.tolist()) == {0.0, 1.0} and abs(share.mean().item() - 0.25) < 0.03  # four deviations of .0068
    drawn = torch.zeros(4000).exponential_(4.0)
    assert abs(drawn.mean().item() - 0.25) < 0.02 and set(torch.zeros(99, dtype=torch.int64).random_(3).tolist()) == {0, 1, 2}


def test_gradients_are_checked():
    x = torch.tensor([0.5, -2.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: (x.exp(), (x * x).sum()), (x,)) and torch.autograd.gradgradcheck(torch.sin, x)

    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * x

        @staticmethod
        def backward(ctx, g):
            return 3.0 * g

    with pytest.raises(GradcheckError, match="gradient of output 0 by input 0 is 3 .* says -4"):
        torch.autograd.gradcheck(Wrong.apply, (x,))
    assert not torch.autograd.gradcheck(Wrong.apply, (x,), raise_exception=False)


def test_hooks_of_modules_and_optimizers():
    net, seen = nn.Linear(2, 2), []
    net.register_forward_pre_hook(lambda m, args: seen.append("second"))
    nothing = lambda m, args, kwargs: seen.append(sorted(kwargs)) or ((args[0] * 0,), kwargs)
    net.register_forward_pre_hook(nothing, prepend=True, with_kwargs=True)
    net.register_forward_hook(lambda m, args, kwargs, out: out + args[0].sum() + 1, with_kwargs=True)
    assert net(torch.ones(1, 2)).tolist() == (net.bias + 1).reshape(1, 2).tolist() and seen == [[], "second"]
    optimizer, steps = torch.optim.SGD(net.parameters(), lr=0.1), []
    before = optimizer.register_step_pre_hook(lambda o, args, kwargs: steps.append("before"))
    optimizer.register_step_post_hook(lambda o, args, kwargs: steps.append(o is optimizer))
    net(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    before.remove()
    optimizer.step()
    assert steps == ["before", True, True] and set(torch.optim.Adam([net.bias]).state[net.bias]) >= {"exp_avg", "exp_avg_sq"}


def test_a_state_dict_that_does_not_fit_is_a_runtime_error():
    net = nn.Linear(2, 3)
    for wrong, strict in (({"weight": torch.zeros(3, 2)}, True), ({"weight": torch.zeros(2, 2), "bias": torch.zeros(3)}, False)):
        with pytest.raises(RuntimeError, match="does not fit"):
            net.load_state_dict(wrong, strict=strict)


def test_samplers_of_ones_own():
    class Odd(Sampler[int]):
        def __iter__(self):
            return iter([1, 3, 5])

        def __len__(self):
            return 3

    data = TensorDataset(torch.arange(6))
    assert [b[0].tolist() for b in DataLoader(data, batch_size=2, sampler=Odd(data))] == [[1, 3], [5]]
    shares = [list(DistributedSampler(range(7), num_replicas=3, rank=r, seed=1)) for r in range(3)]
    assert sorted(i for s in shares for i in s)[0] == 0 and {i for s in shares for i in s} == set(range(7)) and {len(s) for s in shares} == {3}
    assert len(DistributedSampler(range(7), num_replicas=3, rank=0, drop_last=True)) == 2
    one = DistributedSampler(range(50), num_replicas=1, rank=0)
    first = list(one)
    one.set_epoch(1)
    assert first != list(one) and sorted(first) == list(range(50))


def _together(x, y):
    """What each of the ranks does: gradients of its half of a batch, and every collective operation."""
    dist.init_process_group("gloo", world_size=2)
    rank = dist.get_rank()
    net = nn.Linear(3, 2)
    with torch.no_grad():
        net.weight.copy_(torch.full((2, 3), 0.5 + rank))  # rank 0's are everybody's
        net.bias.zero_()
    ddp = DistributedDataParallel(net)
    nn.functional.mse_loss(ddp(torch.tensor(x[rank::2])), torch.tensor(y[rank::2])).backward()
    t = torch.tensor([1.0 + rank, 3.0 - rank])
    found = []
    for op in dist.ReduceOp:
        one = t.clone()
        dist.all_reduce(one, op)
        found.append(one.tolist())
    parts = [torch.zeros(2), torch.zeros(2)]
    dist.all_gather(parts, t)
    sent = t.clone()
    dist.broadcast(sent, src=1)
    mine = torch.zeros(2)
    dist.scatter(mine, [t, t * 10] if rank == 0 else None, src=0)
    piece = torch.zeros(1)
    dist.reduce_scatter_tensor(piece, t)
    dist.barrier()
    dist.destroy_process_group()
    return net.weight.grad.tolist(), found, [p.tolist() for p in parts], sent.tolist(), mine.tolist(), piece.tolist()


def test_two_ranks_train_as_one():
    x, y = R.normal(size=(6, 3)).astype("f4"), R.normal(size=(6, 2)).astype("f4")
    whole = 2 * (x @ np.full((3, 2), 0.5) - y).T @ x / 12
    for rank, (gradient, found, parts, sent, mine, piece) in enumerate(distributed.launcher(_together, n_gpus=2, backend="threads")(x, y)):
        np.testing.assert_allclose(gradient, whole, atol=1e-5)
        assert found == [[3.0, 5.0], [1.5, 2.5], [2.0, 6.0], [1.0, 2.0], [2.0, 3.0]] and parts == [[1.0, 3.0], [2.0, 2.0]]
        assert sent == [2.0, 2.0] and mine == [[1.0, 3.0], [10.0, 30.0]][rank] and piece == [[3.0], [5.0]][rank]


def _talk():
    """Messages between two ranks, lists and objects."""
    dist.init_process_group("gloo")
    rank, other = dist.get_rank(), 1 - dist.get_rank()
    one, two = torch.zeros(2), torch.zeros(3, dtype=torch.int64)
    later = [dist.irecv(one, src=other), dist.irecv(two, src=other)]
    sends = [dist.isend(torch.tensor([1.0, 2.0]) + rank, dst=other), dist.isend(torch.arange(3) * (rank + 1), dst=other)]
    for work in [later[1], later[0], *sends]:  # the second before the first
        assert work.wait() and work.is_completed()
    if rank == 0:
        dist.send(torch.tensor(7.0), dst=1)
    else:
        scalar = torch.tensor(0.0)
        assert dist.recv(scalar, src=0) == 0 and scalar.item() == 7.0
    swapped, parts = torch.zeros(4), [torch.zeros(1), torch.zeros(3)] if rank else [torch.zeros(2), torch.zeros(1)]
    dist.all_to_all_single(swapped, torch.arange(4.0) + 10 * rank)
    dist.all_to_all(parts, [torch.full((2 - rank,), 1.0 + rank), torch.full((1 + 2 * rank,), 3.0 + rank)] if not rank else
                    [torch.full((1,), 5.0), torch.full((3,), 6.0)])  # fmt: skip
    piece = torch.zeros(2)
    dist.reduce_scatter(piece, [torch.ones(2), torch.ones(2) * (2 + rank)])
    objects, gathered, list_of_one = [None] * 2, [None] * 2 if rank == 1 else None, [{"a": [rank, "é", (1.5, None)]}]
    dist.all_gather_object(objects, {"rank": rank, "of": torch.ones(rank + 1)})
    dist.gather_object(rank, gathered, dst=1)
    dist.broadcast_object_list(list_of_one, src=1)
    with pytest.raises(ValueError, match="tag=3"):
        dist.send(one, dst=other, tag=3)
    with pytest.raises(ValueError, match="rank 5 is none of"):
        dist.broadcast(one, src=5)
    wrong = torch.zeros(9)
    dist.isend(torch.ones(2), dst=other)
    with pytest.raises(DistributedError, match=r"has sent f32\[2\], and the tensor for it is f32\[9\]"):
        dist.recv(wrong, src=other)
    dist.destroy_process_group()
    found = [(o["rank"], o["of"].tolist()) for o in objects]
    return one.tolist(), two.tolist(), swapped.tolist(), [p.tolist() for p in parts], piece.tolist(), found, gathered, list_of_one


def test_two_ranks_send_tensors_and_objects():
    ranks = distributed.launcher(_talk, n_gpus=2, backend="threads")()
    for rank, (one, two, swapped, parts, piece, found, gathered, lists) in enumerate(ranks):
        assert one == [2.0 - rank, 3.0 - rank] and two == [[0, 2, 4], [0, 1, 2]][rank]
        assert swapped == [[0.0, 1.0, 10.0, 11.0], [2.0, 3.0, 12.0, 13.0]][rank] and piece == [[2.0, 2.0], [5.0, 5.0]][rank]
        assert parts == [[[1.0, 1.0], [5.0]], [[3.0], [6.0, 6.0, 6.0]]][rank]
        assert found == [(0, [1.0]), (1, [1.0, 1.0])] and gathered == [None, [0, 1]][rank] and lists == [{"a": [1, "é", (1.5, None)]}]


def test_processes_that_spawn_starts_are_ranks(monkeypatch):
    """As threads here; `launcher` starts processes."""
    monkeypatch.setattr(torch.multiprocessing, "launcher", functools.partial(distributed.launcher, backend="threads"))
    monkeypatch.setattr(torch.multiprocessing, "_has_mpi", lambda: True)
    found = []

    def work(rank, world_size):
        dist.init_process_group("gloo", rank=rank, world_size=world_size)
        t = torch.ones(2) * (rank + 1)
        dist.all_reduce(t)
        found.append((rank, t.tolist()))
        dist.destroy_process_group()

    assert torch.multiprocessing.spawn(work, args=(2,), nprocs=2) is None
    assert sorted(found) == [(0, [3.0, 3.0]), (1, [3.0, 3.0])]


def test_one_process():
    with pytest.raises(DistributedError, match="init_process_group"):
        dist.get_rank()
    dist.init_process_group("gloo", rank=0, world_size=1)
    with pytest.raises(RuntimeError, match="before"):
        dist.init_process_group("gloo")
    ddp = DistributedDataParallel(nn.Linear(2, 1))
    assert dist.is_initialized() and dist.get_world_size() == 1 and list(ddp.state_dict()) == ["module.weight", "module.bias"]
    dist.destroy_process_group()
    with pytest.raises(DistributedError, match=r"rank 0 of 1.*tengen run -n 4"):
        dist.init_process_group("gloo", rank=1, world_size=4)
    with pytest.raises(DeviceError, match="no GPUs"):
        DistributedDataParallel(nn.Linear(2, 1), device_ids=[0])
    assert nn.DataParallel(nn.Linear(2, 1)).module.weight.shape == (1, 2) and not dist.is_initialized()


def test_a_profile_follows_its_schedule(tmp_path):
    x, ready = torch.ones(3), []
    plan = torch.profiler.schedule(wait=1, warmup=0, active=2, repeat=1)
    with torch.profiler.profile(schedule=plan, on_trace_ready=lambda p: ready.append([r.calls for r in p.key_averages()])) as p:
        for _ in range(5):
            x + x
            p.step()
    assert ready == [[2]]
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as p:
        with torch.profiler.record_function("mine"):
            x * x
    p.export_chrome_trace(str(tmp_path / "trace.json"))
    assert "mul" in p.key_averages().table(sort_by="cpu_time_total", row_limit=5)
    assert any(e["name"].startswith("mul") for e in json.loads((tmp_path / "trace.json").read_text())["traceEvents"])
    assert torch.utils.benchmark.Timer("x + 1", globals={"x": x}).timeit(2).mean > 0


# ---- optimizers, by their definitions in float64 ------------------------------------------------------------------------


def _asgd(x, g, s, t, lr=0.05, lambd=1e-4, alpha=0.75, t0=3.0, weight_decay=0.01):
    g = g + weight_decay * x
    eta, mu = s.get("eta", lr), s.get("mu", 1.0)
    x = x * (1 - lambd * eta) - eta * g
    s["ax"] = s.get("ax", 0 * x) + mu * (x - s.get("ax", 0 * x))
    s["eta"], s["mu"] = lr / (1 + lambd * lr * t) ** alpha, 1 / max(1, t - t0)
    return x


def _adafactor(x, g, s, t, lr=0.05, weight_decay=0.1):
    beta, eps, g2 = 1 - t**-0.8, 2.0**-52, g * g
    step = max(1e-3, np.sqrt((x * x).mean())) * min(lr, t**-0.5)
    x = x * (1 - lr * weight_decay)
    if x.ndim == 2:
        s["r"] = beta * s.get("r", 0) + (1 - beta) * g2.mean(1, keepdims=True)
        s["c"] = beta * s.get("c", 0) + (1 - beta) * g2.mean(0, keepdims=True)
        v = s["r"] * s["c"] / s["r"].mean()
    else:
        s["v"] = v = beta * s.get("v", 0) + (1 - beta) * g2
    u = g / np.sqrt(np.maximum(v, eps * eps))
    return x - step * u / max(1.0, np.sqrt((u * u).mean()))


def _muon(x, g, s, t, lr=0.05, momentum=0.95, weight_decay=0.1):
    s["m"] = momentum * s.get("m", 0) + (1 - momentum) * g
    u = (1 - momentum) * g + momentum * s["m"]
    left, values, right = np.linalg.svd(u, full_matrices=False)  # each singular value s goes to p(p(...(s / |s|)))
    values = values / np.sqrt((values**2).sum())
    for _ in range(5):
        values = 3.4445 * values - 4.775 * values**3 + 2.0315 * values**5
    return x * (1 - lr * weight_decay) - lr * max(1, x.shape[0] / x.shape[1]) ** 0.5 * (left * values) @ right


@pytest.mark.parametrize("rule, make, shapes", [
    (_asgd, lambda p: torch.optim.ASGD(p, lr=0.05, t0=3, weight_decay=0.01), [(4, 3), (3,)]),
    (_adafactor, lambda p: torch.optim.Adafactor(p, lr=0.05, weight_decay=0.1), [(4, 3), (3,)]),
    (_muon, lambda p: torch.optim.Muon(p, lr=0.05), [(4, 3), (2, 5)]),
])  # fmt: skip
def test_an_optimizer_follows_its_definition(rule, make, shapes):
    rng = np.random.default_rng(5)
    values, states = [rng.normal(size=s) for s in shapes], [{} for _ in shapes]
    params = [nn.Parameter(torch.tensor(v)) for v in values]
    optimizer = make(params)
    for t in range(1, 7):
        optimizer.zero_grad()
        sum((p.sin() * p).sum() for p in params).backward()
        optimizer.step()
        values = [rule(v, np.cos(v) * v + np.sin(v), s, t) for v, s in zip(values, states)]
    for p, v in zip(params, values):
        np.testing.assert_allclose(p.detach().numpy(), v, rtol=2e-6, atol=1e-6)  # rates and counts are float32
    again = make([nn.Parameter(torch.tensor(v)) for v in values])
    again.load_state_dict(optimizer.state_dict())
    assert [sorted(s) for s in again.state.values()] == [sorted(s) for s in optimizer.state.values()]


def test_what_takes_the_values_of_a_part_is_no_part():
    w = torch.arange(8.0).view(2, 4)
    b, norm, p = torch.zeros(2, 2), torch.nn.BatchNorm1d(2), torch.nn.Parameter(torch.zeros(2, 2))
    b.copy_(w[:, 1:3]).mul_(2).clamp_(max=9)
    norm.running_mean.copy_(w[0, 1:3])
    norm.running_mean.mul_(0.5)
    p.data.copy_(w[:, 1:3].t())
    with torch.no_grad():
        p.mul_(2).add_(1)
    assert b.tolist() == [[2.0, 4.0], [9.0, 9.0]] and norm.running_mean.tolist() == [0.5, 1.0] and p.tolist() == [[3.0, 11.0], [5.0, 13.0]]
    x = torch.ones(2, 4, requires_grad=True)
    y = torch.empty(2, 2).copy_(x[:, 1:3])
    y.tril_()
    (y * torch.tensor([[1.0, 2.0], [3.0, 4.0]])).sum().backward()
    assert x.grad.tolist() == [[0.0, 1.0, 0.0, 0.0], [0.0, 3.0, 4.0, 0.0]] and w.tolist() == torch.arange(8.0).view(2, 4).tolist()
