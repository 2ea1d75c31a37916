"""Jobs of the tests of overlapped gradients: functions that a launcher calls in each rank, and that return what is compared."""

import numpy as np
from jobs_training import Small

import tengen as tg
from tengen import autodiff
from tengen import distributed as dist
from tengen import functional as F
from tengen import module as M
from tengen import optimizer as optim
from tengen.transport.group import world


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
