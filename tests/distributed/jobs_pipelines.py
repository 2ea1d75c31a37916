"""Jobs of the tests of pipelines: functions that a launcher calls in each rank, and that return what is compared."""

import time

import numpy as np

import tengen as tg
from tengen import autodiff
from tengen import distributed as dist
from tengen import functional as F
from tengen import module as M
from tengen import optimizer as optim
from tengen.base.config import config
from tengen.transport.channel import HEADER

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
