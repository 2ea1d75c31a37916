"""Jobs of the tests of collective operations: functions that a launcher calls in each rank, and that return what is compared."""

import time

import numpy as np
from jobs_pipelines import pipelines
from jobs_training import trained, values

import tengen as tg
from tengen import autodiff
from tengen import distributed as dist
from tengen import functional as F
from tengen import module as M
from tengen import optimizer as optim
from tengen.base.config import config
from tengen.transport.group import world


def collectives():
    """Every operation on tensors whose values tell the ranks apart, forward and backward."""
    D, r, n = F.distributed, dist.get_rank(), dist.get_world_size()
    x = values(r)
    found = {name: D.collective_comm(tg.Tensor(x), name).numpy() for name in ("all_reduce_sum", "all_reduce_max", "all_reduce_min")}
    found["integers"] = D.all_reduce_sum(tg.Tensor(np.arange(3) + r)).numpy()
    found["half"] = D.all_reduce_sum(tg.Tensor(x.astype(np.float16))).numpy()
    found["large"] = D.all_reduce_sum(tg.Tensor(values(r, 20_001))).numpy()
    found["empty"] = D.all_reduce_sum(tg.Tensor(np.zeros((0, 3), np.float32))).numpy()
    found["scalar"] = D.all_reduce_sum(tg.Tensor(np.float32(r))).numpy()
    wide = tg.Tensor(values(r, 6 * n).reshape(2 * n, 3))
    found["strided"] = D.all_gather(wide.T, axis=1).numpy()
    found["all_gather"] = D.all_gather(wide, axis=-1).numpy()
    found["reduce_scatter_sum"] = D.reduce_scatter_sum(wide).numpy()
    found["all_to_all"] = D.all_to_all(wide, split_axis=0, concat_axis=1).numpy()
    found["broadcast"] = D.broadcast(tg.Tensor(x) if r == 0 else None).numpy()
    found["scatter"] = D.scatter(wide if r == 0 else None).numpy()
    gathered, reduced = D.gather(wide), D.reduce_sum(tg.Tensor(x))
    assert (gathered is None) == (reduced is None) == (r != 0)
    if r == 0:
        found["gather"], found["reduce_sum"] = gathered.numpy(), reduced.numpy()
    return found


def gradients():
    """The gradient of each operation's input, where rank r's result counts (r + 1) times."""
    D, r, n = F.distributed, dist.get_rank(), dist.get_world_size()
    found = {}
    w = tg.Parameter(values(r, 2 * n))
    gm = autodiff.GradManager().attach([w])

    def run(name, op):
        with gm:
            y = op(w * w)
            gm.backward(None if y is None else (y * (r + 1)).sum())
        found[name], w.grad = w.grad.numpy().copy(), None

    both = (D.all_reduce_sum, D.all_reduce_max, D.all_gather, D.reduce_scatter_sum, D.all_to_all)
    for op in (*both, D.reduce_sum, D.gather, D.broadcast, D.scatter):
        run(op.__name__, op)
    nobody = tg.Parameter(values(9, 3))
    own = autodiff.GradManager().attach([w] if r == 0 else [nobody])
    with own:
        y = D.broadcast(w * 2 if r == 0 else None)
        own.backward((y * (r + 1)).sum())
    found["broadcast of None"] = None if w.grad is None else w.grad.numpy().copy()
    return found


def along_a_line():
    """A tensor goes from rank to rank, each multiplies it, and the gradient comes back."""
    D, r, n = F.distributed, dist.get_rank(), dist.get_world_size()
    w = tg.Parameter(np.full(3, r + 2.0, np.float32))
    gm = autodiff.GradManager().attach([w])
    with gm:
        x = (tg.Tensor(np.ones(3, np.float32)) if r == 0 else D.remote_recv(r - 1)) * w
        if r < n - 1:
            D.remote_send(x, r + 1)
            gm.backward()
        else:
            gm.backward(x.sum())
    return w.grad.numpy().copy()


def megengine_program():
    """Data parallel training as MegEngine's documents write it."""
    tg.random.seed(1)
    net = M.Linear(3, 2)
    net.weight._reset(values(dist.get_rank(), 6).reshape(2, 3))
    dist.bcast_list_(net.parameters())
    gm = autodiff.GradManager().attach(net.parameters(), callbacks=[dist.make_allreduce_cb("mean")])
    opt = optim.SGD(net.parameters(), lr=0.1)
    with gm:
        loss = F.mean(net(tg.Tensor(values(dist.get_rank(), 12).reshape(4, 3))) ** 2)
        gm.backward(loss)
    opt.step().clear_grad()
    dist.group_barrier()
    return net.weight.numpy().tobytes()


def sync_batch_norm():
    """(Output, gradient of the input, running statistics) of SyncBatchNorm on batches of 3 + rank samples."""
    r = dist.get_rank()
    x = tg.Parameter(np.random.default_rng(r).standard_normal((3 + r, 2, 4)).astype(np.float32))
    norm = M.SyncBatchNorm(2)
    gm = autodiff.GradManager().attach([x])
    with gm:
        y = norm(x)
        gm.backward((y**3).sum())
    again, state, x2 = M.SyncBatchNorm(2), [x.grad, norm.running_mean, norm.running_var], tg.Parameter(x.detach())
    gm2 = autodiff.GradManager().attach([x2])

    @tg.jit.trace(symbolic=True)
    def traced():
        with gm2:
            gm2.backward((again(x2) ** 3).sum())

    traced()
    for want, got in zip(state, (x2.grad, again.running_mean, again.running_var)):
        assert want.numpy().tobytes() == got.numpy().tobytes()
    return y.numpy(), x.grad.numpy(), norm.running_mean.numpy(), norm.running_var.numpy()


def disagreeing():
    """What each rank is told where one adds a tensor of another shape."""
    try:
        F.distributed.all_reduce_sum(tg.Tensor(np.zeros(3 + (dist.get_rank() == 1), np.float32)))
    except dist.DistributedError as e:
        return str(e)
    return "nothing"


def missing():
    """What the others are told where one rank does not come."""
    r = dist.get_rank()
    F.distributed.all_reduce_sum(tg.Tensor(np.zeros(2, np.float32)))
    config.distributed_timeout = 1.0  # from here on: processes may start at different times
    if r == 1:
        time.sleep(3)
        return "came late"
    try:
        F.distributed.all_reduce_max(tg.Tensor(np.zeros(5, np.float32)))
    except dist.DistributedError as e:
        return str(e)
    return "nothing"


def unanswered():
    """What rank 0 is told where rank 1 does not send."""
    config.distributed_timeout = 1.0
    if dist.get_rank() == 1:
        return "sent nothing"
    try:
        F.distributed.remote_recv(1)
    except dist.DistributedError as e:
        return str(e)
    return "nothing"


def samplers():
    """The batches of MegEngine's samplers and of PyTorch's arguments, by default, also in worker processes."""
    from tengen.data import ArrayDataset, DataLoader, RandomSampler, SequentialSampler

    numbers = ArrayDataset(np.arange(8))
    own = [np.concatenate([np.ravel(b) for b in s]).tolist() for s in (SequentialSampler(numbers, 2), RandomSampler(numbers, 2))]
    whole = [b.tolist() for b in DataLoader(numbers, batch_size=4, num_workers=1)]
    return (*own, whole)


def groups():
    """Sums among the even and among the odd ranks at once."""
    r, n = dist.get_rank(), dist.get_world_size()
    group = dist.new_group(range(r % 2, n, 2))
    total = F.distributed.all_reduce_sum(tg.Tensor([float(r)]), group)
    return group.rank, group.size, float(total.numpy()[0])


def traced_operations():
    """Collective operations with their gradients, eagerly and as nodes of one program: whether the bits are equal, and the program's parts."""
    rank, size = dist.get_rank(), dist.get_world_size()
    D = F.distributed

    def step(x):
        y = D.all_reduce_sum(x * 1.1) + D.all_reduce_max(x) * D.all_reduce_min(x)
        y = y + D.broadcast(x * 0.7) + D.scatter(D.all_gather(x))
        y = y + D.all_to_all(y, split_axis=0, concat_axis=1).reshape(y.shape)
        z = D.reduce_scatter_sum(y * y, axis=1)
        total = D.reduce_sum(z)
        loss = (z * z).sum() if total is None else (z * z).sum() + total.sum()
        gathered = D.gather(y)
        return loss if gathered is None else loss + (gathered * gathered).sum()

    def with_gradient(x):
        gm = autodiff.GradManager().attach([x])
        with gm:
            loss = step(x)
            gm.backward(loss)
        return loss, x.grad

    def looped(x):
        return F.fori_loop(0, 3, lambda i, h: D.all_reduce_sum(h * 0.3), x)

    traced, traced_loop = tg.jit.trace(with_gradient, symbolic=True), tg.jit.trace(looped, symbolic=True)
    found = []
    for i in range(3):
        a = np.random.default_rng((i, rank)).standard_normal((2 * size, 3 * size)).astype(np.float32)
        want, got = with_gradient(tg.Tensor(a)), traced(tg.Tensor(a))
        found.append(all(w.numpy().tobytes() == g.numpy().tobytes() for w, g in zip(want, got)))
        found.append(looped(tg.Tensor(a)).numpy().tobytes() == traced_loop(tg.Tensor(a)).numpy().tobytes())
    if rank:
        traced(tg.Tensor(a))
        return found, traced.stats().programs, True
    with tg.profile() as p:
        traced(tg.Tensor(a))
    return found, traced.stats().programs, "all_reduce_sum" in str(p)


def everything():
    """What one job can find after another."""
    return {
        "collectives": collectives(), "gradients": gradients(), "line": along_a_line(), "megengine": megengine_program(),
        "norm": sync_batch_norm(), "groups": groups(), "samplers": samplers(), "crowded": world().transport.crowded,
        "operations": traced_operations(), "pipelines": pipelines(),
        "trained": trained(), "traced": trained(traced=True), "scaled": trained(scaler=True), "whole": trained(samples=16),
        "few": trained(samples=3), "fewer": trained(samples=3, micro_batches=8), "sharded": trained(sharded=True, steps=3),
        "library": by_library(),  # whose last operation ends the group
    }  # fmt: skip


def told():
    """What each rank is told by the others through the server."""
    dist.init_process_group("localhost", 0)
    client, r, n = dist.get_client(), dist.get_rank(), dist.get_world_size()
    client.user_set(f"of {r}", {"rank": r, "list": [1.5, "a", None], "bytes": bytes([0, r])})
    found = [client.user_get(f"of {q}") for q in range(n)]
    for _ in range(2):
        client.group_barrier("here", n)
    last = client.user_pop("of 0") if r == 0 else None
    dist.group_barrier()
    return found, last, dist.get_py_server_addr() == dist.get_mm_server_addr()


def by_library():
    """Sums by MPI itself: (each dtype's, one by the callback, what a graph calls it, what is said where ranks choose differently, and of
    dtypes that MPI does not add)."""
    D, r = F.distributed, dist.get_rank()
    types = ("float32", "float64", "complex64")
    found = {t: D.all_reduce_sum(tg.Tensor(values(r, 1000).astype(t)), reduction="library").numpy() for t in types}
    found["integers"] = D.all_reduce_sum(tg.Tensor(np.arange(5) + r), reduction="library").numpy()
    found["empty"] = D.all_reduce_sum(tg.Tensor(np.zeros((0, 2), np.float32)), reduction="library").numpy()
    w = tg.Parameter(values(r, 3))
    gm = autodiff.GradManager().attach([w], callbacks=[dist.make_allreduce_cb("sum", reduction="library")])

    @tg.trace(symbolic=True)
    def traced():
        with gm:
            gm.backward((w * (r + 1)).sum())

    for _ in range(2):
        traced()
        found["gradient"], w.grad = w.grad.numpy().copy(), None
    with tg.profile() as p:
        traced()
    found["named"] = "all_reduce_sum_by_library" in str(p)
    for name, call in {
        "float16": lambda: D.all_reduce_sum(tg.Tensor(values(r, 1000).astype("float16")), reduction="library").numpy(),
        "bfloat16": lambda: D.all_reduce_sum(tg.Tensor([1.0]).astype("bfloat16"), reduction="library"),
        "differ": lambda: D.all_reduce_sum(tg.Tensor(np.zeros(3, np.float32)), reduction=("ranks", "library")[r == 0]),
    }.items():
        try:
            found[name] = call()
        except dist.DistributedError as e:
            found[name] = str(e)
    return found
