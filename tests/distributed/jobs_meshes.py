"""Jobs of the tests of meshes of several dimensions: functions that a launcher calls in each rank, and that return what is compared."""

import math
import tracemalloc

import numpy as np
from jobs_sharding import begin_to_measure, held

import tengen as tg
from tengen import autodiff
from tengen import distributed as dist
from tengen import functional as F
from tengen import module as M
from tengen import optimizer as optim


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
