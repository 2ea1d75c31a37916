"""Jobs of the tests of sharded optimizers: functions that a launcher calls in each rank, and that return what is compared."""

import gc
import tracemalloc

import numpy as np
from jobs_training import trained, values

import tengen as tg
from tengen import autodiff
from tengen import distributed as dist
from tengen import functional as F
from tengen import module as M
from tengen import optimizer as optim
from tengen.tensor.absent import Absent
from tengen.tensor.casting import casting


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


def sharded_in_processes():
    """Trainings with dropout, at stages 2 and 3, and the memory of stages 1, 2 and 3."""
    found = {stage: trained(steps=3, sharded=stage) for stage in (2, 3)}
    found |= {f"scaled {stage}": trained(scaler=True, sharded=stage) for stage in (2, 3)}
    return found | {"traced": trained(traced=True, sharded=2), "memory": {stage: memory(stage) for stage in (1, 2, 3)}}


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
