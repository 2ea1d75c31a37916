"""Jobs of the tests of tensors in parts: functions that a launcher calls in each rank, and that return what is compared."""

import numpy as np

import tengen as tg
from tengen import autodiff
from tengen import distributed as dist
from tengen import functional as F
from tengen import module as M
from tengen import optimizer as optim


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
