"""What the ranks of the tests do: functions that a launcher calls in each of them, and that return what is compared."""

import gc
import math
import os
import time
import tracemalloc

import numpy as np

import tengen as tg
from tengen import autodiff
from tengen import distributed as dist
from tengen import functional as F
from tengen import module as M
from tengen import optimizer as optim
from tengen.base.config import config
from tengen.tensor.absent import Absent
from tengen.tensor.casting import casting
from tengen.transport.channel import HEADER
from tengen.transport.group import world


def values(rank, n=7, seed=100):
    return np.random.default_rng(seed + rank).standard_normal(n).astype(np.float32)


class Small(M.Module):
    """A convolution with batch norm and dropout, and a parameter that only some batches use."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = M.Conv2d(2, 4, 3), M.BatchNorm2d(4)
        self.drop, self.fc = M.Dropout(0.3), M.Linear(4 * 4 * 4, 3)
        self.sometimes, self.never = tg.Parameter(np.ones(3, np.float32)), tg.Parameter(np.ones(2, np.float32))
        self.scale = tg.Parameter(np.float32(1.5))

    def forward(self, x):
        y = self.scale * self.fc(self.drop(F.relu(self.norm(self.conv(x)))).reshape(x.shape[0], -1))
        return y * self.sometimes if float(x[0, 0, 0, 0].numpy()) > 0 else y


def trained(
    steps=2, samples=11, micro_batches=4, traced=False, scaler=False, sharded=False, read=None, write=None, later=False,
):  # fmt: skip
    """Trains in however many processes there are. Returns: parameters, buffers and gradients after the last step as bytes."""
    tg.random.seed(3)
    net = Small()
    for p in net.parameters():
        p._reset(np.random.default_rng(p.size).standard_normal(p.shape).astype(np.float32) * 0.3)
    net.fc.bias._reset(np.full(3, dist.get_rank(), np.float32))  # which rank 0's replaces
    net = dist.DataParallel(net, micro_batches=micro_batches)
    gm = autodiff.GradManager().attach(net.parameters())
    opt = optim.Adam(net.parameters(), lr=0.01)
    opt = dist.shard(net, opt, stage=int(sharded)) if sharded else opt
    begin = 0
    if read is not None:
        begin = dist.load_checkpoint(read, net=net, opt=opt)["step"]
    amp = tg.amp.GradScaler(init_scale=1024.0) if scaler else None

    def step(x, y):
        with gm:
            loss = F.nn.cross_entropy(net(x), y)
            gm.backward(amp.scale(loss) if scaler else loss)
        return loss

    step = tg.jit.trace(step) if traced else step
    rng = np.random.default_rng(0)
    for i in range(steps):
        x = rng.standard_normal((samples, 2, 6, 6)).astype(np.float32)
        y = rng.integers(0, 3, samples).astype(np.int32)
        if i < begin:
            continue
        for xb, yb in net.micro_batches(tg.Tensor(x), tg.Tensor(y)):
            step(xb, yb)
        if scaler:
            amp.unscale(net.parameters())
            amp.update()
        optim.clip_grad_norm(net.parameters(), 0.5)
        if sharded > 1 and dist.get_world_size() > 1:
            assert all(p.grad is None for p in net.parameters())
            have = [s.grad is not None for s in opt.pieces(list(net.parameters()))]
            found = iter(opt.norms(list(net.parameters()), lambda g: g))
            grads = [next(found).numpy().tobytes() if one else None for one in have]
        else:
            grads = [None if p.grad is None else p.grad.numpy().tobytes() for p in net.parameters()]
        opt.step().clear_grad()
        if write is not None and i == 1:
            if later:
                saving = dist.save_checkpoint_async(write, net=net, opt=opt, step=2)
            else:
                dist.save_checkpoint(write, net=net, opt=opt, step=2)
    if later:
        saving.wait()
    if sharded and dist.get_world_size() > 1:
        kept, whole = sum(t.size for _, t in opt.named_states({})), sum(t.size for t in net.parameters())
        assert kept < 2 * whole / dist.get_world_size() + 4 * len(list(net.parameters())) + 8, (kept, whole)
    return [t.numpy().tobytes() for t in (*net.parameters(), *net.buffers())] + grads


class Repeated(M.Module):
    """A layer that is called several times, one of them inside of `checkpoint` where it is asked for."""

    def __init__(self, again):
        super().__init__()
        self.inner, self.last, self.again = M.Linear(64, 64), M.Linear(64, 3), again

    def forward(self, x):
        x = F.relu(self.inner(x))
        x = autodiff.checkpoint(self.inner, x) if self.again else self.inner(x)
        return self.last(F.relu(self.inner(x)))


def cast_and_shared_out(stage, again=False, dtype="float16"):
    """(Parameters after three steps under autocast as bytes, the most bytes of casts that were held between a forward and its backward.)"""
    net = Repeated(again)
    for i, p in enumerate(net.parameters()):
        p._reset(np.random.default_rng(i).standard_normal(p.shape).astype(np.float32) * 0.2)
    net = dist.DataParallel(net, micro_batches=4)
    opt = optim.Adam(net.parameters(), lr=0.01)
    opt = dist.shard(net, opt, stage=stage) if stage else opt
    gm, held = autodiff.GradManager().attach(net.parameters()), 0
    x, y = values(0, 8 * 64).reshape(8, 64), np.arange(8, dtype=np.int32) % 3
    for _ in range(3):
        for xb, yb in net.micro_batches(tg.Tensor(x), tg.Tensor(y)):
            with gm, tg.amp.autocast(dtype=dtype):
                loss = F.nn.cross_entropy(net(xb), yb)
                held = max(held, sum(made.size * made.dtype.size for _, _, made in casting.made.values() if type(made._layout) is not Absent))
                gm.backward(loss)
        opt.step().clear_grad()
    return [p.numpy().tobytes() for p in net.parameters()], held


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


def left_early():
    """(Gradients, statistics and draws) before and after a loop that an error ends, in a thread or process that is alone."""
    tg.random.seed(3)
    net = dist.DataParallel(Small(), micro_batches=3)
    gm = autodiff.GradManager().attach(net.parameters())
    net.fc.bias.grad = tg.Tensor([1.0, 2.0, 3.0])
    state = lambda: ([None if p.grad is None else p.grad.numpy().tobytes() for p in net.parameters()], net.norm.running_mean.numpy().tolist())
    before = state()
    try:
        for xb, yb in net.micro_batches(tg.Tensor(np.ones((6, 2, 6, 6), np.float32)), tg.Tensor(np.zeros(6, np.int32))):
            with gm:
                gm.backward(F.nn.cross_entropy(net(xb), yb))
            raise KeyError("the user's own")
    except KeyError:
        return before[0], state()[0]


def other_batches():
    """What each rank is told where the whole batches differ."""
    net = dist.DataParallel(M.Linear(2, 2), micro_batches=2)
    try:
        list(net.micro_batches(np.full((4, 2), dist.get_rank(), np.float32)))
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


def unwritable(folder):
    """What each process is told where rank 1 cannot write."""
    net = M.Linear(64, 64)
    dist.save_checkpoint(folder, net=net, step=1)
    if dist.get_rank() == 1:
        from tengen.distributed import checkpoint

        def full(*args):
            raise OSError(28, "No space left on device")

        checkpoint.save = full
    try:
        dist.save_checkpoint(folder, net=net, step=2)
    except OSError as e:
        return str(e)
    return "nothing"


LAYERS = 7


def layers():
    return M.Sequential(
        M.Conv2d(2, 4, 3), M.BatchNorm2d(4), M.Dropout(0.3), M.Sequential(M.ReLU(), M.Flatten()), M.Linear(64, 8),
        M.Dropout(0.2), M.Linear(8, 3),
    )  # fmt: skip


def pipelined(steps=2, samples=11, parallel=False, read=None, write=None, **options):
    """Trains a row of layers as a pipeline, or by `DataParallel`. Returns: the losses, the whole network's values as bytes, and how many
    micro-batches were held at once."""
    tg.random.seed(5)
    net = layers()
    for p in net.parameters():
        p._reset(np.random.default_rng(p.size).standard_normal(p.shape).astype(np.float32) * 0.3 + 0.1 * dist.get_rank())
    loss_of = lambda y, t: F.nn.cross_entropy(y, t)
    net = dist.DataParallel(net, micro_batches=4) if parallel else dist.Pipeline(net, loss_of, micro_batches=4, **options)
    gm = autodiff.GradManager().attach(list(net.parameters())) if parallel else None
    opt = optim.Adam(list(net.parameters()), lr=0.02)
    for p in net.parameters():
        p.register_hook(lambda g: g * 1.5)
    rng, losses, begin = np.random.default_rng(0), [], 0
    if read is not None:
        begin = dist.load_checkpoint(read, net=net, opt=net.states_of(opt))["step"]
    for i in range(steps):
        x, t = rng.standard_normal((samples, 2, 6, 6)).astype(np.float32), rng.integers(0, 3, samples).astype(np.int32)
        if i < begin:
            continue
        if parallel:
            for xb, tb in net.micro_batches(x, t):
                with gm:
                    gm.backward(loss_of(net(xb), tb))
        else:
            losses.append(net.step(x, t))
        clip = optim.clip_grad_norm_ if i else optim.clip_grad_norm
        losses.append(clip((p for p in net.parameters()), 0.5).item())
        opt.step().clear_grad()
    if write is not None:
        dist.save_checkpoint(write, net=net, opt=net.states_of(opt), step=steps)
    drawn = (net.module if parallel else net)(tg.Tensor(x)).numpy()  # with dropout
    state = net.state_dict()
    out = net.eval()(tg.Tensor(x)).numpy() if not parallel else net.module.eval()(tg.Tensor(x)).numpy()
    found = {"values": {k: np.asarray(v).tobytes() for k, v in state.items()}, "norm": losses[-1]}
    found |= {"out": out.tobytes(), "drawn": drawn.tobytes()}
    if parallel:
        return found
    if net.traced:
        found["programs"] = [run.stats().programs for run in net.runs]
    return found | {"loss": losses[:-1:2], "kept": net.kept}


def within_budgets(**options):
    """What `pipelined` gives with half of what this network needs between the least budget of all processes and what it takes without one, and
    with the least. "again": how many micro-batches are not kept whole, for each."""
    samples = options.get("samples", 11)
    x, t = np.zeros((samples, 2, 6, 6), np.float32), np.zeros(samples, np.int32)
    made = {k: v for k, v in options.items() if k != "samples"}
    plans = lambda budget: dist.Pipeline(layers(), F.nn.cross_entropy, 4, memory_budget=budget, **made).memory_plan(x, t)
    mine = plans(None)
    least, whole = (int(F.distributed.all_reduce_max(tg.Tensor(np.array([n], np.int32))).item()) for n in (mine.least, mine.whole))
    budgets = [(least + whole) // 2, least]
    again = [int(F.distributed.all_reduce_max(tg.Tensor(np.array([len(plans(b).again)], np.int32))).item()) for b in budgets]
    return {"again": again} | {b: pipelined(memory_budget=b, **options) for b in budgets}


def wrong_pipelines():
    """What is said of pipelines, and of calls, that would be wrong in silence: in each of two processes."""
    def said(make):
        try:
            make()
        except (ValueError, dist.DistributedError) as e:
            return str(e)

    tied = M.Linear(4, 4)
    pipe = lambda *layers: dist.Pipeline(M.Sequential(*layers), F.nn.cross_entropy, micro_batches=2)
    net = pipe(M.Linear(4, 4), M.Linear(4, 2))
    net.step(np.ones((4, 4), np.float32), np.zeros(4, np.int32))

    def shared(stage):
        traced = dist.Pipeline(M.Sequential(M.Linear(4, 4)), F.nn.cross_entropy, micro_batches=2, data=2, trace=True)
        dist.shard(traced, optim.SGD(traced.parameters(), lr=0.1), stage=stage)

    mesh = dist.Mesh(pipe=1, model=2)

    def placed():
        layers = M.Sequential(M.Linear(4, 4))
        mesh.place_(layers, {"0.weight": {"model": dist.Split(0)}})
        return layers

    return {
        "tied": said(lambda: pipe(tied, M.Linear(4, 4), tied)), "none": said(lambda: pipe(M.ReLU(), M.Linear(4, 4))),
        "sync": said(lambda: pipe(M.Linear(4, 4), M.SyncBatchNorm(4), M.Linear(4, 4))),
        "some": said(lambda: optim.clip_grad_norm(net.parameters()[:1], 1.0)), "traced 3": said(lambda: shared(3)),
        "traced on a mesh": said(lambda: dist.Pipeline(placed(), F.nn.cross_entropy, 2, group=mesh.group("pipe"), trace=True)),
    }  # fmt: skip


def differing(folder):
    """A checkpoint of a network of which each process has other values."""
    net = M.Linear(64, 64)
    net.weight._reset(np.full((64, 64), dist.get_rank(), np.float32))
    try:
        dist.save_checkpoint(folder, net=net)
    except dist.DistributedError as e:
        return str(e)


def half_a_pipeline():
    """The first stage does not come to a step."""
    config.distributed_timeout = 1.0
    net = dist.Pipeline(M.Sequential(M.Linear(4, 4), M.Linear(4, 2)), F.nn.cross_entropy, micro_batches=1)
    if dist.get_rank() == 0:
        net.group.channel.agree = lambda text: time.sleep(2)
    else:
        net.group.channel.agree = lambda text: None
    net.step(np.ones((2, 4), np.float32), np.zeros(2, np.int32))


PIPELINES = {
    "1f1b": {}, "gpipe": {"schedule": "gpipe"}, "chunks": {"chunks": 2, "only": 3}, "cut": {"cuts": [1, 4, 6], "only": 4},
    "copies": {"data": 2, "only": (2, 4)}, "traced": {"trace": True, "only": 2}, "few": {"samples": 3},
    "copies and chunks": {"data": 2, "chunks": 2, "only": (2, 4)},
}  # fmt: skip


def pipelines():
    size, found = dist.get_world_size(), {}
    for name, options in PIPELINES.items():
        options = dict(options)
        only = options.pop("only", size)
        if size in (only if isinstance(only, tuple) else (only,)):
            found[name] = pipelined(**options)
    return found


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


def begin_to_measure():
    """From here on `held` looks at what is made."""
    gc.collect()
    gc.freeze()
    tracemalloc.start()


def held():
    """Bytes of NumPy's arrays and of tensors that there are; 0 before `begin_to_measure`."""
    if not tracemalloc.is_tracing():
        return 0
    gc.collect()
    arrays = sum(t.size for t in tracemalloc.take_snapshot().traces if t.domain == np.lib.tracemalloc_domain)
    return arrays + tg.memory.get_allocated_memory()


def memory(stage, layers=6, width=256):
    """(What `kept` says before the step, bytes of arrays and tensors that this process has got since the network was not there: before a
    backward, and after the step, the most whole parameters at once), of Adam and layers of `width` ** 2 numbers."""

    def training():
        base = held()
        net = dist.DataParallel(M.Sequential(*[M.Linear(width, width, bias=False) for _ in range(layers)]))
        opt = dist.shard(net, optim.Adam(net.parameters(), lr=0.01), stage=stage)
        gm = autodiff.GradManager().attach(net.parameters())
        x, found = np.ones((2 * dist.get_world_size(), width), np.float32), []
        for _ in range(2):
            for (xb,) in net.micro_batches(x):
                with gm:
                    loss = (net(xb) ** 2).mean()
                    found.append(held() - base)
                    gm.backward(loss)
            kept, after = opt.kept(), held() - base
            opt.step().clear_grad()
        most = opt._sharing.most if opt._sharing is not None else None
        stepped = held() - base
        tracemalloc.stop()
        return tuple(kept), found[-1], after, stepped, most

    training()  # what is made once, such as programs; unmeasured, since that takes half of the time
    begin_to_measure()
    return training()


def misuse(stage):
    """What is said of calls that would be wrong in silence."""

    def said(make):
        tg.random.seed(1)
        dist.group_barrier()
        try:
            make()
        except (ValueError, dist.DistributedError, tg.base.errors.TraceError) as e:
            return str(e)

    net = dist.DataParallel(M.Sequential(M.Linear(4, 4), M.Linear(4, 4)))
    opt = dist.shard(net, optim.SGD(net.parameters(), lr=0.1), stage=stage)
    gm = autodiff.GradManager().attach(net.parameters())
    x = np.ones((2 * dist.get_world_size(), 4), np.float32)

    def twice():
        for (xb,) in net.micro_batches(x):
            for _ in range(2):
                with gm:
                    gm.backward(net(xb).sum())

    def outside():
        with gm:
            gm.backward(net(x).sum())
        opt.step()

    def old():
        before = next(net.parameters()).detach()
        for (xb,) in net.micro_batches(x):
            with gm:
                gm.backward(net(xb).sum())
        opt.step()
        before.numpy()

    found = {"old": said(old)}
    opt.clear_grad()
    found["outside"] = said(outside)
    opt.clear_grad()
    found["trace"] = said(lambda: tg.trace(lambda x: net(x), symbolic=True)(tg.Tensor(x)))
    found["other"] = said(lambda: dist.shard(dist.DataParallel(M.Linear(2, 2)), optim.SGD(M.Linear(2, 2).parameters(), lr=0.1), stage=stage))
    return found | {"twice": said(twice)}


def changed_by_the_program(stage):
    """Training in which the program gives a parameter another value between two steps, clips values, and evaluates. Returns: the outputs, and
    the parameters."""
    tg.random.seed(2)
    net = M.Sequential(M.Linear(3, 8), M.ReLU(), M.Linear(8, 2))
    for p in net.parameters():
        p._reset(np.random.default_rng(p.size).standard_normal(p.shape).astype(np.float32))
    net = dist.DataParallel(net, micro_batches=4)
    opt = optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    opt = dist.shard(net, opt, stage=stage) if stage else opt
    gm, found = autodiff.GradManager().attach(net.parameters()), []
    for i in range(3):
        x = np.random.default_rng(i).standard_normal((8, 3)).astype(np.float32)
        for _ in range(2):  # two batches are added
            for (xb,) in net.micro_batches(x):
                with gm:
                    gm.backward((net(xb) ** 2).mean())
        optim.clip_grad_value(net.parameters(), -0.4, 0.3)
        opt.step().clear_grad()
        net.module[0].weight[0] = float(i)
        net.module[2].bias.numpy()
        net.module[2].bias._reset(tg.Tensor(np.arange(10, dtype=np.float32) + i)[3:9:3])  # a view
        found.append(net(tg.Tensor(x)).numpy().tobytes())
    return found, [p.numpy().tobytes() for p in net.parameters()]


def pipeline_scaled():
    """Whether each process sees the overflow of one stage's gradients."""
    net = dist.Pipeline(M.Sequential(M.Linear(4, 4), M.Linear(4, 2)), F.nn.cross_entropy, micro_batches=2)
    opt, scaler = optim.SGD(net.parameters(), lr=0.1), tg.amp.GradScaler(init_scale=4.0)
    before = [p.numpy().tobytes() for p in net.parameters()]
    net.step(np.ones((4, 4), np.float32), np.zeros(4, np.int32))
    if dist.get_rank() == 0:
        net.parameters()[0].grad[0] = float("inf")
    scaler.unscale(net.parameters())
    opt.step()
    scaler.update()
    return [p.numpy().tobytes() for p in net.parameters()] == before, scaler.scale_factor


def sharded_in_processes():
    """Trainings with dropout, at stages 2 and 3, and the memory of stages 1, 2 and 3."""
    found = {stage: trained(steps=3, sharded=stage) for stage in (2, 3)}
    found |= {f"scaled {stage}": trained(scaler=True, sharded=stage) for stage in (2, 3)}
    return found | {"traced": trained(traced=True, sharded=2), "memory": {stage: memory(stage) for stage in (1, 2, 3)}}


class Block(M.Module):
    """A layer of a transformer."""

    def __init__(self, width=512, heads=4):
        super().__init__()
        self.heads = heads
        self.norm, self.query, self.key, self.value = M.LayerNorm(width), *[M.Linear(width, width) for _ in range(3)]
        self.out, self.norm2 = M.Linear(width, width), M.LayerNorm(width)
        self.up, self.down = M.Linear(width, 2 * width), M.Linear(2 * width, width)

    def forward(self, x):
        n, t, d = x.shape
        y = self.norm(x)
        q, k, v = (f(y).reshape(n, t, self.heads, d // self.heads).transpose(0, 2, 1, 3) for f in (self.query, self.key, self.value))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(0, 2, 1, 3).reshape(n, t, d)
        x = x + self.out(y)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


MEGATRON = {
    f"*{name}.weight": {"model": dist.Split(0)} for name in ("query", "key", "value", "up")
} | {f"*{name}.bias": {"model": dist.Split(0)} for name in ("query", "key", "value", "up")} | {
    "*out.weight": {"model": dist.Split(1)}, "*down.weight": {"model": dist.Split(1)},
}  # fmt: skip


def tensor_parallel(traced=False, data=1, steps=2, layouts=MEGATRON):
    """Trains a block, in parts where there are several processes. Returns: losses, parameters, and the placements of some results."""
    tg.random.seed(1)
    net = M.Sequential(Block())
    for p in net.parameters():
        p._reset(np.random.default_rng(p.size).standard_normal(p.shape).astype(np.float32) * 0.05)
    mesh = None
    if dist.get_world_size() > 1:
        mesh = dist.Mesh(data=data, model=dist.get_world_size() // data)
        mesh.place_(net, layouts)
    gm, opt = autodiff.GradManager().attach(net.parameters()), optim.Adam(net.parameters(), lr=0.01)

    def step(x, y):
        x = mesh.place(x, data=dist.Split(0)) if data > 1 and mesh is not None else x
        with gm:
            out = net(x)
            loss = ((out - y) ** 2).mean()
            gm.backward(loss)
        norm = optim.clip_grad_norm(net.parameters(), 1.0)
        opt.step().clear_grad()
        return loss, norm

    run = tg.trace(step, symbolic=True) if traced else step
    losses = []
    for i in range(steps):
        rng = np.random.default_rng(i)
        x, y = (tg.Tensor(rng.standard_normal((4, 6, 512)).astype(np.float32)) for _ in range(2))
        losses += [t.numpy().tobytes() for t in run(x, y)]
    where = {} if mesh is None else {k: mesh.local(p).shape for k, p in net.named_parameters()}
    return losses, {k: p.numpy().tobytes() for k, p in net.named_parameters()}, where, None if mesh is None else mesh.moved


def megatron_forward():
    """(Placements of the middle and of the end of an MLP, bytes that conversions have moved, whether the result is that of one process)."""
    n = dist.get_world_size()
    mesh, r = dist.Mesh(model=n), np.random.default_rng(0)
    a = lambda *shape: tg.Tensor(r.standard_normal(shape).astype(np.float32))
    x, up, down, bias = a(8, 256), a(256 * n, 256), a(256, 256 * n), a(256)
    want = F.linear(F.relu(F.linear(x, up)), down, bias)
    h = F.relu(F.linear(x, mesh.place(up, model=dist.Split(0))))
    y = F.linear(h, mesh.place(down, model=dist.Split(1)), bias)
    where = mesh.placements(h), mesh.placements(y)
    summed = mesh.moved
    whole = y.numpy().tobytes() == want.numpy().tobytes()
    return where, summed, mesh.moved, whole


def conversions():
    """Whether a tensor survives every change of its places on a mesh of 2 x 2."""
    mesh = dist.Mesh(a=2, b=2)
    x = np.arange(64, dtype=np.float32).reshape(4, 4, 4)
    places = [dist.Broadcast(), *map(dist.Split, range(3))]
    pairs = [(p, q) for p in places for q in places if p == dist.Broadcast() or p != q]
    first = {w: mesh.place(tg.Tensor(x), a=w[0], b=w[1]) for w in pairs}
    return all(mesh._to(first[w], v).numpy().tobytes() == x.tobytes() for w in pairs for v in pairs)


def placed_values():
    """Reductions, maxima, views and what cannot be cut, of a tensor in parts: the pairs of bytes that should be equal, and errors."""
    mesh, r = dist.Mesh(model=dist.get_world_size()), np.random.default_rng(0)
    x = r.standard_normal((8, 6, 12)).astype(np.float32)
    x[0, 0, 0], x[7, 5, 11] = np.nan, np.inf
    found = []
    for axis in (0, 1, 2):
        if x.shape[axis] % dist.get_world_size():
            continue
        for f in (
            lambda t: t.sum(), lambda t: t.max(0), lambda t: t.min(2), lambda t: t.sum(1), lambda t: F.softmax(t, 0),
            lambda t: t.reshape(48, 12), lambda t: t.reshape(8, 6, 3, 4).transpose(0, 2, 1, 3), lambda t: t[1:, :, 2:],
            lambda t: F.concat([t, t * 2], 1),
            lambda t: F.cumsum(t, 0), lambda t: F.sort(t)[0], lambda t: t[:, None] + tg.Tensor(x[:, :1]),
            lambda t: t.astype("float64").mean(), lambda t: F.argmax(t, 2),
            lambda t: F.flatten(t, 0, 1),
        ):  # fmt: skip
            want = f(tg.Tensor(x))
            got = f(mesh.place(tg.Tensor(x), model=dist.Split(axis)))
            found.append((axis, want.numpy().tobytes(), got.numpy().tobytes()))
    p = mesh.place(tg.Tensor(x), model=dist.Split(0 if x.shape[0] % dist.get_world_size() == 0 else 1))
    for q in (w := tg.Parameter(x), mesh.place(tg.Tensor(x), **{"model": p._layout.placements[0]})):
        gm = autodiff.GradManager().attach([q])
        with gm:
            gm.backward((q[:, 1:, 2:5] * 3).sum())
    found.append(("gradient of a slice", w.grad.numpy().tobytes(), q.grad.numpy().tobytes()))
    before = p.detach()
    p._reset(p * 2)
    found.append(("detached", np.ascontiguousarray(x).tobytes(), before.numpy().tobytes()))
    said = []
    for make in (lambda: mesh.place(tg.Tensor(x), other=dist.Split(0)), lambda: mesh.place(tg.Tensor(x), model=dist.Split(3)),
                 lambda: mesh.place(tg.Tensor(x[:7]), model=dist.Split(0)), lambda: mesh.place_(M.Linear(2, 2), {"wight": {}}),
                 lambda: dist.Mesh(model=3, data=7), lambda: p + tg.Tensor(np.ones((5,), np.float32))):  # fmt: skip
        try:
            make()
            said.append("nothing")
        except (KeyError, ValueError, dist.DistributedError) as e:
            said.append(str(e))
    return found, said


def moved(stage, micro_batches=4):
    """Bytes that a step of `DataParallel`, or of `shard` at a stage, brings to this process."""
    net = dist.DataParallel(M.Sequential(M.Linear(64, 128), M.ReLU(), M.Linear(128, 32)), micro_batches=micro_batches)
    opt = optim.Adam(net.parameters(), lr=0.01)
    opt = dist.shard(net, opt, stage=stage) if stage else opt
    gm, channel = autodiff.GradManager().attach(net.parameters()), dist.WORLD.channel
    for _ in range(2):
        before = channel.received
        for (xb,) in net.micro_batches(np.ones((8, 64), np.float32)):
            with gm:
                gm.backward(net(xb).sum())
        opt.step().clear_grad()
    return channel.received - before


def piped():
    """The same of `Pipeline`, of tensors between stages, and the most micro-batches that were held."""
    layers = [M.Linear(64, 64, bias=False) for _ in range(4)]
    net = dist.Pipeline(M.Sequential(*layers), lambda y: y.sum(), micro_batches=4)
    sent = []
    transport = net.group.channel.transport
    mail = transport.recv
    transport.recv = lambda a, *args: (sent.append(a.nbytes) if a.nbytes != HEADER else None, mail(a, *args))[1]
    net.step(np.ones((8, 64), np.float32))
    return sum(sent), net.kept


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


def mlp_layers():
    """Blocks of layers for a mesh: products that are cut by columns, then by rows, with batch norm and dropout between them."""
    blocks = [[M.Linear(16, 512), M.BatchNorm1d(512), M.Sequential(M.ReLU(), M.Dropout(0.2)), M.Linear(512, 16)] for _ in range(2)]
    net = M.Sequential(*blocks[0], M.LayerNorm(16), *blocks[1], M.Linear(16, 3))
    for p in net.parameters():
        p._reset(np.random.default_rng(p.size).standard_normal(p.shape).astype(np.float32) * 0.1 + 0.1 * dist.get_rank())
    return net


MLP_LAYOUTS = {f"{i}.{name}": {"model": dist.Split(0)} for i in (0, 5) for name in ("weight", "bias")} | {
    f"{i}.weight": {"model": dist.Split(1)} for i in (3, 8)
}  # fmt: skip


def meshed(dims, steps=3, samples=11, stage=0, traced=False, scaler=False, cast=False, read=None, write=None, **options):
    """Trains layers on a mesh of data, model and pipe, whichever of them there are. Returns: norms of gradients, parameters and buffers, and
    the optimizer's states as bytes, and the shape of this process's part of the first weight."""
    tg.random.seed(5)
    net = mlp_layers()
    mesh = dist.Mesh(**dims)
    mesh.place_(net, MLP_LAYOUTS if "model" in dims else {})
    part = mesh.local(net[0].weight).shape
    loss_of = lambda y, t: F.nn.cross_entropy(y, t)
    if "pipe" in dims:
        group = mesh.group("pipe", "data") if "data" in dims else mesh.group("pipe")
        net = dist.Pipeline(net, loss_of, micro_batches=4, group=group, data=dims.get("data", 1), **options)
    else:
        net = dist.DataParallel(net, mesh.group("data"), micro_batches=4)
        gm = autodiff.GradManager().attach(net.parameters())
    opt = optim.Adam(net.parameters(), lr=0.02)
    opt = dist.shard(net, opt, stage=stage) if stage else opt
    copies = dims.get("data", 1)
    if stage == 3 and copies > 1:  # what this process has of its parts, or stages, is a piece
        own = [math.prod(mesh.local(p).shape) for p in net.parameters()]
        assert opt.stage == 3 and opt.kept().parameters <= 4 * (sum(own) / copies + len(own))
    saved = net.states_of(opt) if "pipe" in dims else opt
    amp = tg.amp.GradScaler(init_scale=1024.0) if scaler else None
    begin = dist.load_checkpoint(read, net=net, opt=saved)["step"] if read is not None else 0

    def step(x, t):
        with gm:
            with tg.amp.autocast(cast, "bfloat16"):
                loss = loss_of(net(x), t)
            gm.backward(amp.scale(loss) if scaler else loss)

    step = tg.jit.trace(step) if traced else step
    rng, norms = np.random.default_rng(0), []
    for i in range(steps):
        x, t = rng.standard_normal((samples, 16)).astype(np.float32), rng.integers(0, 3, samples).astype(np.int32)
        if i < begin:
            continue
        if "pipe" in dims:
            with tg.amp.autocast(cast, "bfloat16"):
                net.step(x, t)
        else:
            for xb, tb in net.micro_batches(tg.Tensor(x), tg.Tensor(t)):
                step(xb, tb)
        if scaler:
            amp.unscale(net.parameters())
            amp.update()
        norms.append(optim.clip_grad_norm(net.parameters(), 0.5).numpy().tobytes())
        opt.step().clear_grad()
    if write is not None:
        dist.save_checkpoint(write, net=net, opt=saved, step=steps)
    values = {k: np.asarray(v).tobytes() for k, v in net.state_dict().items()}
    states = [{k: np.asarray(v).tobytes() for k, v in one.items()} for _, one in sorted(saved.state_dict()["state"].items())]
    return norms, values, states, part


def meshes(folder):
    """What `meshed` gives on several meshes of four processes."""
    meshed({"pipe": 2, "model": 2}, steps=2, write=f"{folder}/run.tgc")
    found = [meshed(dims, stage=stage) for dims, stage in (({"data": 2, "model": 2}, 2), ({"pipe": 2, "model": 2}, 0))]
    for dims, stage in (({"pipe": 2, "data": 2}, 1), ({"data": 2, "model": 2}, 3), ({"pipe": 2, "data": 2}, 3)):
        on = meshed(dims, read=f"{folder}/run.tgc", stage=stage)
        found.append((found[0][0][:2] + on[0], *on[1:]))
    return found


def memory_on_mesh(kind, width=256, pairs=4):
    """Stage 3 on a mesh of four processes, layers in parts or a pipeline: (bytes of this process's parts of all parameters that it would keep
    without, what it keeps, bytes that it holds when a micro-batch is at its loss, the most whole parameters at once). None where no loss is."""

    def training():
        found, base = [], held()
        layers = [M.Linear(*((width, 2 * width) if i % 2 == 0 else (2 * width, width)), bias=False) for i in range(2 * pairs)]
        net = M.Sequential(*layers)

        def loss_of(y):
            found.append(held() - base)
            return (y**2).mean()

        if kind == "parts":
            mesh = dist.Mesh(data=2, model=2)
            mesh.place_(net, {f"{i}.weight": {"model": dist.Split(i % 2)} for i in range(2 * pairs)})
            net = dist.DataParallel(net, mesh.group("data"), micro_batches=4)
        else:
            mesh = dist.Mesh(pipe=2, data=2)
            net = dist.Pipeline(net, loss_of, micro_batches=4, data=2)
        del layers
        own = sum(math.prod(mesh.local(p).shape) * 4 for p in net.parameters())
        opt = dist.shard(net, optim.Adam(list(net.parameters()), lr=0.01), stage=3)
        gm, x = autodiff.GradManager().attach(net.parameters()), np.ones((8, width), np.float32)
        for _ in range(2):
            if kind == "parts":
                for (xb,) in net.micro_batches(x):
                    with gm:
                        gm.backward(loss_of(net(xb)))
            else:
                net.step(x)
            opt.step().clear_grad()
        tracemalloc.stop()
        return own, opt.kept(), max(found, default=None), opt._sharing.most

    training()  # what is made once, such as programs; unmeasured, since that takes half of the time
    begin_to_measure()
    return training()


def memories_on_meshes():
    return memory_on_mesh("parts"), memory_on_mesh("stages")


def memories_and_meshes(folder):
    """What `memories_on_meshes` and `meshes` give, one after the other."""
    memories = memories_on_meshes()
    tracemalloc.stop()
    return memories, meshes(folder)


def wrong_meshes():
    """What is said of meshes that do not fit what they are used for, in each of four processes."""

    def said(make):
        try:
            make()
        except (KeyError, ValueError, dist.DistributedError) as e:
            return str(e)

    mesh = dist.Mesh(data=2, model=2)
    parts = {"0.weight": {"model": dist.Split(0)}}

    def placed(*more):
        net = M.Sequential(M.Linear(4, 8), M.ReLU(), M.Linear(8, 2), *more)
        mesh.place_(net, parts)
        return net

    def later():
        net = M.Sequential(M.Linear(4, 8))
        parallel = dist.DataParallel(net, mesh.group("data"))
        mesh.place_(net, parts)
        next(parallel.micro_batches(np.ones((4, 4), np.float32)))

    def batch():
        net = dist.DataParallel(placed(), mesh.group("data"))
        next(net.micro_batches(np.full((4, 4), mesh.at[1], np.float32)))

    def callback():
        net = placed()
        gm = autodiff.GradManager().attach(net.parameters(), callbacks=[dist.make_allreduce_cb("sum")])
        with gm:
            gm.backward(net(tg.Tensor(np.ones((2, 4), np.float32))).sum())

    group = mesh.group("data")
    return {
        "all": said(lambda: dist.DataParallel(placed())), "name": said(lambda: mesh.group("pipe")), "later": said(later),
        "pipeline": said(lambda: dist.Pipeline(placed(), F.nn.cross_entropy, micro_batches=2, data=2)),
        "size": said(lambda: dist.Mesh(a=3, b=2)),
        "norm": said(lambda: dist.DataParallel(placed(M.SyncBatchNorm(2)), group)),
        "callback": said(callback), "batch": said(batch),  # which ends the group
    }  # fmt: skip


def moved_on_mesh(stage=0, pairs=4, hidden=1024, micro_batches=4):
    """Bytes that a step on a mesh of two copies of layers in two parts brings to this process: by conversions, and of gradients and pieces."""
    net = M.Sequential(*[layer for _ in range(pairs) for layer in (M.Linear(64, hidden), M.ReLU(), M.Linear(hidden, 64))])
    mesh = dist.Mesh(data=2, model=2)
    columns = {f"{3 * i}.*": {"model": dist.Split(0)} for i in range(pairs)}
    mesh.place_(net, columns | {f"{3 * i + 2}.weight": {"model": dist.Split(1)} for i in range(pairs)})
    net = dist.DataParallel(net, mesh.group("data"), micro_batches=micro_batches)
    if stage:
        dist.shard(net, optim.Adam(net.parameters(), lr=0.01), stage=stage)
    gm, channel = autodiff.GradManager().attach(net.parameters()), mesh.group("data").channel
    before = channel.received
    for (xb,) in net.micro_batches(np.ones((16, 64), np.float32)):
        with gm:
            gm.backward(net(xb).sum())
    return mesh.moved, channel.received - before


def overlapped(traced=False, micro_batches=4, samples=11, changes="", overlap=True, steps=3, freezes=False):
    """Trains with gradients that go while the backward walk goes on, in buckets of 64 bytes. Returns: parameters and buffers as bytes; how many
    buckets had gone before the end of each backward; warnings; and what the timeline says of the last step's transfers."""
    import warnings

    from tengen.distributed import buckets

    buckets.BUCKET = 64
    tg.random.seed(3)
    net = Small()
    for p in net.parameters():
        p._reset(np.random.default_rng(p.size).standard_normal(p.shape).astype(np.float32) * 0.3)
    for p in (net.never, *(net.fc.parameters() if freezes else ())):  # buckets of nothing else, in front of others
        p.frozen = True
    net = dist.DataParallel(net, micro_batches=micro_batches, overlap=overlap)
    gm = autodiff.GradManager().attach(p for p in net.parameters() if not p.frozen)
    opt = optim.Adam([p for p in net.parameters() if not p.frozen], lr=0.01)
    rng, gone, said = np.random.default_rng(0), [], []

    def step(x, y):
        with gm:
            loss = F.nn.cross_entropy(net(x), y)
            gm.backward(loss)
        return loss

    step = tg.jit.trace(step) if traced else step
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for i in range(steps):
            x = np.abs(rng.standard_normal((samples, 2, 6, 6))).astype(np.float32)
            if changes == "branches":
                x[::3, 0, 0, 0] *= -1  # a parameter without a gradient, in some ranks
            y = rng.integers(0, 3, samples).astype(np.int32)
            for xb, yb in net.micro_batches(tg.Tensor(x), tg.Tensor(y)):
                step(xb, yb)
                if net._overlap is not None and net._overlap.now is not None:
                    gone.append(len(net._overlap.now._sent))
                if changes == "scaled" and dist.get_rank() == 0:
                    net.fc.weight.grad = net.fc.weight.grad * 2
                if changes == "twice":
                    step(xb, yb)
                if changes == "left" and i == 1:
                    break
            if changes == "left":
                tg.random.seed(i)
            opt.step().clear_grad()
        said = [str(w.message) for w in caught if "overlap" in str(w.message)]
    return [t.numpy().tobytes() for t in (*net.parameters(), *net.buffers())], gone, said


def overlapped_in_processes():
    return [overlapped(), overlapped(traced=True)]


def _counting(net, exchanges):
    """Counts what a group does together from now on."""
    channel = net.group.channel
    sides = [channel.transport] + ([channel._side] if channel._side is not None else [])
    for transport in sides:
        for verb, kind in (("allgather", None), ("alltoall", "data"), ("broadcast", "data")):
            old = getattr(transport, verb)

            def counted(*args, old=old, kind=kind):
                exchanges[kind or ("agree" if args[0] is channel._mine else "data")] += 1
                return old(*args)

            setattr(transport, verb, counted)


def counted_exchanges():
    """(Bytes, exchanges) of a step whose gradients go late, and of one whose gradients go early; whether they go early by default on one
    machine, and on several."""
    from tengen.distributed import buckets

    buckets.BUCKET = 64 * 64 * 4
    found = []
    for overlap in (False, True):
        tg.random.seed(1)
        net = dist.DataParallel(M.Sequential(*[M.Linear(64, 64, bias=False) for _ in range(3)]), micro_batches=4, overlap=overlap)
        gm, exchanges = autodiff.GradManager().attach(net.parameters()), {"agree": 0, "data": 0}
        _counting(net, exchanges)
        before = net.group.channel.received
        for (xb,) in net.micro_batches(np.ones((8, 64), np.float32)):
            with gm:
                gm.backward(net(xb).sum())
        found.append((net.group.channel.received - before, exchanges))
        for transport in (net.group.channel.transport, net.group.channel._side):
            for verb in ("allgather", "alltoall", "broadcast"):
                vars(transport or net).pop(verb, None)
    on = dist.DataParallel(M.Linear(2, 2))._overlap is not None
    from tengen.transport.group import world

    world().machines = [f"machine {r}" for r in range(dist.get_world_size())]
    return (*found, on, dist.DataParallel(M.Linear(2, 2))._overlap is not None)


def overlap_timeline():
    """The events of the timeline of a traced step."""
    from tengen.distributed import buckets

    buckets.BUCKET = 64 * 64 * 4
    tg.random.seed(1)
    net = dist.DataParallel(M.Sequential(*[M.Linear(64, 64, bias=False) for _ in range(3)]), overlap=True)
    gm = autodiff.GradManager().attach(net.parameters())

    def step(x):
        with gm:
            loss = (net(x) ** 2).sum()
            gm.backward(loss)
        return loss

    def steps():
        for (xb,) in net.micro_batches(np.ones((8, 64), np.float32)):
            step(tg.Tensor(xb))

    steps()
    dist.group_barrier()
    if dist.get_rank():  # a profile is one for all threads
        steps()
        dist.group_barrier()
        return None
    with tg.profile() as p:
        steps()
        dist.group_barrier()
    return p._events()


def overlap_refused():
    """What is said of layers in parts, and of processes that differ."""

    def said(make):
        try:
            make()
        except dist.DistributedError as e:
            return str(e)

    mesh, net = dist.Mesh(data=1, model=2), M.Linear(4, 4)
    mesh.place_(net, {"weight": {"model": dist.Split(0)}})
    found = {"parts": said(lambda: dist.DataParallel(net, mesh.group("data"), overlap=True))}
    return found | {"differ": said(lambda: dist.DataParallel(M.Linear(4, 4), overlap=dist.get_rank() == 0))}


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


def shared_memory():
    """Names of this user's shared memory but for that of Open MPI, which leaves its own behind when its processes are ended."""
    names = [name for name in os.listdir("/dev/shm") if not name.startswith("vader_segment")]
    return {name for name in names if os.stat(f"/dev/shm/{name}").st_uid == os.getuid()}
