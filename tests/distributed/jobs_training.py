"""Jobs of the tests of data parallel training and checkpoints: functions that a launcher calls in each rank, and that return what is
compared."""

import numpy as np

import tengen as tg
from tengen import autodiff
from tengen import distributed as dist
from tengen import functional as F
from tengen import module as M
from tengen import optimizer as optim


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


def differing(folder):
    """A checkpoint of a network of which each process has other values."""
    net = M.Linear(64, 64)
    net.weight._reset(np.full((64, 64), dist.get_rank(), np.float32))
    try:
        dist.save_checkpoint(folder, net=net)
    except dist.DistributedError as e:
        return str(e)
