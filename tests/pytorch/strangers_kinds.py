"""Programs of further kinds as people write them for PyTorch, as those of `strangers.py`: each is given the module `torch` and returns
numbers."""

import math

import numpy as np
from strangers import begin, classes, some


def flow_vae(torch):
    """A variational autoencoder of `torch.distributions`, whose posterior is transformed by planar flows; its bound by importance weights."""
    nn, D = torch.nn, torch.distributions

    class Planar(D.transforms.Transform):
        domain = codomain = D.constraints.real_vector
        bijective = False

        def __init__(self, w, u, b):
            super().__init__()
            self.w, self.u, self.b = w, u, b

        def _call(self, z):
            return z + self.u * torch.tanh(z @ self.w + self.b).unsqueeze(-1)

        def log_abs_det_jacobian(self, z, y):
            slope = 1 - torch.tanh(z @ self.w + self.b) ** 2
            return torch.log(torch.abs(1 + slope * (self.w @ self.u)) + 1e-6)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.enc = nn.Sequential(nn.Linear(12, 16), nn.ELU(), nn.Linear(16, 6))
            self.dec = nn.Sequential(nn.Linear(3, 16), nn.SELU(), nn.Linear(16, 12))
            self.w, self.u = nn.Parameter(torch.zeros(2, 3)), nn.Parameter(torch.zeros(2, 3))
            self.b = nn.Parameter(torch.zeros(2))

    net = begin(torch, Model())
    prior = D.Independent(D.Normal(torch.zeros(3), torch.ones(3)), 1)
    x = (some(torch, 9, 12) > 0).float()
    optimizer, out = torch.optim.Adamax(net.parameters(), lr=2e-2), []
    for step in range(3):
        loc, raw = net.enc(x).chunk(2, -1)
        base = D.Independent(D.Normal(loc, nn.functional.softplus(raw) + 1e-3), 1)
        z = loc + base.stddev * some(torch, 5, 9, 3, seed=step)
        log_q = base.log_prob(z)
        for k in range(2):
            flow = Planar(net.w[k], net.u[k], net.b[k])
            y = flow(z)
            log_q, z = log_q - flow.log_abs_det_jacobian(z, y), y
        likelihood = D.Independent(D.Bernoulli(logits=net.dec(z)), 1).log_prob(x.expand(5, -1, -1))
        weights = likelihood + prior.log_prob(z) - log_q
        loss = -(torch.logsumexp(weights, 0) - math.log(5)).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        share = torch.softmax(weights.detach(), 0)
        out += [loss.item(), (1 / (share**2).sum(0)).mean().item(), D.kl_divergence(base, prior).sum().item()]
    return [*out, base.entropy().mean().item(), *base.batch_shape, *base.event_shape]


def soft_actor_critic(torch):
    """Two critics, a policy of squashed normals, an entropy weight that is learned, target networks that follow, a replay buffer."""
    nn, F, D = torch.nn, torch.nn.functional, torch.distributions
    rng = np.random.RandomState(3)

    class Buffer:
        def __init__(self, size, dim):
            self.data = {k: np.zeros((size, n), np.float32) for k, n in (("s", dim), ("a", 2), ("r", 1), ("s2", dim), ("d", 1))}
            self.size, self.n = size, 0

        def push(self, **row):
            for k, v in row.items():
                self.data[k][self.n % self.size] = v
            self.n += 1

        def sample(self, batch):
            rows = rng.randint(0, min(self.n, self.size), size=batch)
            return [torch.as_tensor(self.data[k][rows]) for k in ("s", "a", "r", "s2", "d")]

    def mlp(n, m):
        return nn.Sequential(nn.Linear(n, 16), nn.ReLU(inplace=True), nn.Linear(16, m))

    actor, critics = begin(torch, mlp(4, 4), 1), begin(torch, nn.ModuleList([mlp(6, 1) for _ in range(2)]), 2)
    targets = nn.ModuleList([mlp(6, 1) for _ in range(2)]).requires_grad_(False)
    targets.load_state_dict(critics.state_dict())
    log_alpha = torch.zeros(1, requires_grad=True)
    optimizers = [torch.optim.Adam(p, lr=1e-2) for p in (actor.parameters(), critics.parameters(), [log_alpha])]

    def act(s, noise):
        mean, log_std = actor(s).chunk(2, dim=-1)
        normal = D.Normal(mean, log_std.clamp(-5, 2).exp())
        raw = mean + normal.scale * noise
        squashed = D.TransformedDistribution(normal, [D.transforms.TanhTransform(cache_size=1)])
        action = torch.tanh(raw)
        correction = 2 * (math.log(2) - raw - F.softplus(-2 * raw))
        return action, (normal.log_prob(raw) - correction).sum(-1, keepdim=True), squashed.log_prob(action * 0.999).sum(-1)

    buffer, state, out = Buffer(24, 4), rng.standard_normal(4).astype(np.float32), []
    for step in range(40):
        with torch.no_grad():
            action, _, _ = act(torch.from_numpy(state)[None], torch.from_numpy(rng.standard_normal((1, 2)).astype(np.float32)))
        after = (0.9 * state + 0.1 * np.tanh(np.resize(action.squeeze(0).numpy(), 4))).astype(np.float32)
        buffer.push(s=state, a=action[0].cpu().numpy(), r=-np.square(after).sum(), s2=after, d=float(step % 13 == 12))
        state = after
        if step < 30:
            continue
        s, a, r, s2, done = buffer.sample(8)
        noise = torch.from_numpy(rng.standard_normal((2, 8, 2)).astype(np.float32))
        with torch.no_grad():
            a2, logp2, _ = act(s2, noise[0])
            q2 = torch.min(*[q(torch.cat([s2, a2], 1)) for q in targets]) - log_alpha.exp() * logp2
            goal = r + 0.95 * (1 - done) * q2
        loss_q = sum(F.mse_loss(q(torch.cat([s, a], 1)), goal) for q in critics)
        optimizers[1].zero_grad()
        loss_q.backward()
        optimizers[1].step()
        for p in critics.parameters():
            p.requires_grad = False
        new, logp, other = act(s, noise[1])
        loss_pi = (log_alpha.exp().detach() * logp - torch.minimum(*(q(torch.cat([s, new], 1)) for q in critics))).mean()
        optimizers[0].zero_grad()
        loss_pi.backward()
        optimizers[0].step()
        for p in critics.parameters():
            p.requires_grad = True
        loss_alpha = -(log_alpha * (logp.detach() - 2.0)).mean()
        optimizers[2].zero_grad()
        loss_alpha.backward()
        optimizers[2].step()
        with torch.no_grad():
            for p, t in zip(critics.parameters(), targets.parameters()):
                t.data.mul_(0.9).add_(p.data, alpha=0.1)
        out += [loss_q.item(), loss_pi.item(), log_alpha.item(), other.mean().item()]
    return [*out, sum(p.abs().sum().item() for p in targets.parameters())]


def graph_attention(torch):
    """Attention over the edges of a graph: softmax by scatter_reduce and index_add, pooled by graphs of a batch; edges dropped."""
    nn, F = torch.nn, torch.nn.functional
    rng = np.random.RandomState(4)
    edges = torch.tensor(rng.randint(0, 14, size=(2, 60)))
    graph = torch.tensor([0] * 5 + [1] * 6 + [2] * 3)
    keep = graph[edges[0]] == graph[edges[1]]
    edges = edges[:, keep]
    edges = torch.cat([edges, torch.arange(14).repeat(2, 1)], dim=1)
    edges = torch.unique(edges, dim=1)

    def edge_softmax(score, to, n):
        top = torch.full((n, score.size(1)), float("-inf")).scatter_reduce(0, to[:, None].expand_as(score), score, "amax", include_self=False)
        e = (score - top.detach()[to]).exp()
        total = torch.zeros(n, score.size(1)).index_add(0, to, e)
        return e / total[to].clamp(min=1e-12)

    class Layer(nn.Module):
        def __init__(self, n, m, heads):
            super().__init__()
            self.lin, self.heads, self.m = nn.Linear(n, heads * m, bias=False), heads, m
            self.left, self.right = nn.Parameter(torch.empty(1, heads, m)), nn.Parameter(torch.empty(1, heads, m))
            nn.init.xavier_uniform_(self.left)
            nn.init.xavier_uniform_(self.right)

        def forward(self, x, edges):
            h = self.lin(x).view(-1, self.heads, self.m)
            source, to = edges
            score = F.leaky_relu((h * self.left).sum(-1)[source] + (h * self.right).sum(-1)[to], 0.2)
            alpha = edge_softmax(score, to, len(x))
            y = torch.zeros_like(h)
            y.index_add_(0, to, alpha.unsqueeze(-1) * h[source])
            return y.flatten(1), alpha

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.norm, self.b, self.head = Layer(5, 4, 3), nn.BatchNorm1d(12), Layer(12, 6, 1), nn.Linear(12, 2)

        def forward(self, x, edges, graph):
            x, _ = self.a(x, edges)
            x, alpha = self.b(F.elu(self.norm(x)), edges)
            n = int(graph.max()) + 1
            size = torch.bincount(graph, minlength=n).clamp(min=1).to(x.dtype)
            mean = x.new_zeros(n, x.shape[1]).index_add_(0, graph, x) / size[:, None]
            largest = torch.stack([x[graph == i].amax(0) for i in range(n)])
            return self.head(torch.cat([mean, largest], 1)), alpha

    net, x, y, out = begin(torch, Net()), some(torch, 14, 5), torch.tensor([0, 1, 1]), []
    optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-2, momentum=0.5, centered=True, eps=1e-2)
    for _ in range(4):
        logits, alpha = net(x, edges, graph)
        loss = F.cross_entropy(logits, y, weight=torch.tensor([1.0, 2.0]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        out += [loss.item(), torch.zeros(14).scatter_add_(0, edges[1], alpha[:, 0].detach()).sub(1).abs().max().item() + 1]
    degree = torch.zeros(14, dtype=torch.long).scatter_add_(0, edges[1], torch.ones_like(edges[1]))
    adjacency = torch.zeros(14, 14).index_put_((edges[0], edges[1]), torch.tensor(1.0))
    return [*out, *degree[:5].tolist(), adjacency.sum().item(), torch.linalg.matrix_power(adjacency, 3).trace().item()]


def super_resolution(torch):
    """Sub-pixel convolutions with residual scaling, a Charbonnier loss, PSNR and SSIM, self-ensembling by flips, patches that overlap."""
    nn, F = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self, n):
            super().__init__()
            self.body = nn.Sequential(nn.Conv2d(n, n, 3, padding=1), nn.PReLU(n), nn.Conv2d(n, n, 3, padding=1, padding_mode="reflect"))
            self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(n, 2, 1), nn.ReLU(), nn.Conv2d(2, n, 1), nn.Sigmoid())

        def forward(self, x):
            y = self.body(x)
            return x + 0.1 * y * self.gate(y)

    class Net(nn.Module):
        def __init__(self, n=8, scale=2):
            super().__init__()
            self.register_buffer("mean", torch.tensor([0.45, 0.44, 0.4]).view(1, 3, 1, 1))
            self.head, self.body = nn.Conv2d(3, n, 3, 1, 1), nn.Sequential(*[Block(n) for _ in range(2)])
            self.tail = nn.Sequential(nn.Conv2d(n, 3 * scale**2, 3, padding="same"), nn.PixelShuffle(scale))
            self.scale = scale

        def forward(self, x):
            base = F.interpolate(x, scale_factor=self.scale, mode="bicubic", align_corners=False)
            h = self.head(x - self.mean)
            return base + self.tail(h + self.body(h))

    def ssim(a, b):
        g = torch.exp(-((torch.arange(5.0) - 2) ** 2) / (2 * 1.5**2))
        window = torch.outer(g / g.sum(), g / g.sum())[None, None].repeat(3, 1, 1, 1)
        mean = lambda v: F.conv2d(v, window, groups=3)
        ma, mb = mean(a), mean(b)
        va, vb, ab = mean(a * a) - ma**2, mean(b * b) - mb**2, mean(a * b) - ma * mb
        return (((2 * ma * mb + 1e-4) * (2 * ab + 9e-4)) / ((ma**2 + mb**2 + 1e-4) * (va + vb + 9e-4))).mean()

    net, out = begin(torch, Net()), []
    high = torch.sigmoid(F.avg_pool2d(some(torch, 2, 3, 20, 20), 3, 1, 1) * 2)
    low = F.interpolate(high, scale_factor=0.5, mode="bicubic", antialias=True)
    optimizer = torch.optim.NAdam(net.parameters(), lr=4e-3)
    rates = torch.optim.lr_scheduler
    parts = [rates.LinearLR(optimizer, 0.1, total_iters=2), rates.ExponentialLR(optimizer, 0.8)]
    scheduler = rates.SequentialLR(optimizer, parts, [2])
    for _ in range(4):
        made = net(low)
        loss = torch.sqrt((made - high) ** 2 + 1e-6).mean() + 0.1 * (1 - ssim(made, high))
        loss = loss + 1e-3 * (made[..., 1:] - made[..., :-1]).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        out += [loss.item(), scheduler.get_last_lr()[0]]
    net.eval()
    with torch.no_grad():
        turned = [net(torch.rot90(low, k, (2, 3))) for k in range(4)]
        made = torch.stack([torch.rot90(v, -k, (2, 3)) for k, v in enumerate(turned)]).mean(0).clamp_(0, 1)
        patches = F.unfold(made, 8, stride=4)
        count = F.fold(F.unfold(torch.ones_like(made), 8, stride=4), (20, 20), 8, stride=4)
        whole = F.fold(patches, (20, 20), 8, stride=4) / count
        psnr = 10 * torch.log10(1 / F.mse_loss(made, high))
        picture = (made * 255).round().to(torch.uint8).permute(0, 2, 3, 1).contiguous().numpy()
    return [*out, psnr.item(), ssim(made, high).item(), (whole - made).abs().max().item(), float(picture.mean()), *picture.shape]


def momentum_contrast(torch):
    """MoCo: a queue of keys, a key encoder that follows, batches that are shuffled for its norms."""
    nn, F = torch.nn, torch.nn.functional

    class MoCo(nn.Module):
        def __init__(self, dim=8, size=24, m=0.9, t=0.2):
            super().__init__()
            body = lambda: [nn.Conv2d(3, 6, 3, 2, 1, bias=False), nn.BatchNorm2d(6), nn.ReLU(True), nn.Flatten()]
            make = lambda: nn.Sequential(*body(), nn.Linear(96, dim))
            self.q, self.k, self.m, self.t, self.size = make(), make(), m, t, size
            self.register_buffer("queue", F.normalize(torch.from_numpy(np.random.RandomState(5).randn(dim, size).astype(np.float32)), dim=0))
            self.register_buffer("pointer", torch.zeros(1, dtype=torch.long))

        def start(self):
            for a, b in zip(self.q.parameters(), self.k.parameters()):
                b.data.copy_(a.data)
                b.requires_grad = False

        @torch.no_grad()
        def follow(self):
            for a, b in zip(self.q.parameters(), self.k.parameters()):
                b.data = b.data * self.m + a.data * (1.0 - self.m)

        @torch.no_grad()
        def push(self, keys):
            at = int(self.pointer)
            self.queue[:, at : at + keys.shape[0]] = keys.T
            self.pointer[0] = (at + keys.shape[0]) % self.size

        def forward(self, a, b, order):
            q = F.normalize(self.q(a), dim=1)
            with torch.no_grad():
                self.follow()
                back = torch.argsort(order)
                k = F.normalize(self.k(b[order]), dim=1)[back]
            positive = torch.einsum("nc,nc->n", [q, k]).unsqueeze(-1)
            negative = torch.einsum("nc,ck->nk", [q, self.queue.clone().detach()])
            logits = torch.cat([positive, negative], dim=1) / self.t
            labels = torch.zeros(logits.shape[0], dtype=torch.long)
            self.push(k)
            return logits, labels

    net, out = begin(torch, MoCo()), []
    net.start()
    optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], 0.05, momentum=0.9, weight_decay=1e-4)
    for step in range(5):
        a, b = some(torch, 8, 3, 8, 8, seed=step), some(torch, 8, 3, 8, 8, seed=step) + 0.1 * some(torch, 8, 3, 8, 8, seed=90 + step)
        logits, labels = net(a, b, torch.from_numpy(np.random.RandomState(step).permutation(8)))
        loss = F.cross_entropy(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        top = logits.topk(5, 1, True, True)[1].t().eq(labels.view(1, -1).expand(5, -1))
        out += [loss.item(), top[:1].reshape(-1).float().sum(0).item(), top.any(0).sum().item()]
    state = [v for k, v in net.state_dict().items() if not k.endswith("num_batches_tracked")]
    return [*out, int(net.pointer), net.queue.norm(dim=0).sum().item(), sum(v.float().abs().sum().item() for v in state), len(state)]


def large_batches(torch):
    """SimCLR's loss over two views, with LARS written as an optimizer of one's own, whose state is saved and loaded."""
    nn, F = torch.nn, torch.nn.functional

    class LARS(torch.optim.Optimizer):
        def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust=0.001, exclude=lambda p: p.ndim == 1):
            if lr < 0.0:
                raise ValueError(f"Invalid learning rate: {lr}")
            super().__init__(params, dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust=trust))
            self.exclude = exclude

        @torch.no_grad()
        def step(self, closure=None):
            loss = None
            if closure is not None:
                with torch.enable_grad():
                    loss = closure()
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is None:
                        continue
                    d, state = p.grad, self.state[p]
                    if not self.exclude(p):
                        d = d.add(p, alpha=group["weight_decay"])
                        w, g = torch.norm(p), torch.norm(d)
                        d = d.mul(torch.where(w > 0, torch.where(g > 0, group["trust"] * w / g, torch.ones_like(w)), torch.ones_like(w)))
                    if "mu" not in state:
                        state["mu"] = torch.zeros_like(p, memory_format=torch.preserve_format)
                        state["step"] = 0
                    state["step"] += 1
                    state["mu"].mul_(group["momentum"]).add_(d)
                    p.add_(state["mu"], alpha=-group["lr"])
            return loss

    net = begin(torch, nn.Sequential(nn.Linear(10, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8, bias=False)))
    optimizer = LARS(net.parameters(), lr=2.0, weight_decay=1e-3, trust=0.02)
    x, out = some(torch, 12, 10), []

    def nt_xent(za, zb, t=0.5):
        z = F.normalize(torch.cat([za, zb]), dim=-1)
        n = za.size(0)
        sim = torch.mm(z, z.t().contiguous()) / t
        sim.fill_diagonal_(float("-inf"))
        return F.cross_entropy(sim, torch.cat([torch.arange(n, 2 * n), torch.arange(n)]))

    for step in range(6):
        def closure(optimizer=optimizer, step=step):
            optimizer.zero_grad()
            loss = nt_xent(net(x + 0.1 * some(torch, 12, 10, seed=step)), net(x - 0.1 * some(torch, 12, 10, seed=50 + step)))
            loss.backward()
            return loss

        out.append(optimizer.step(closure).item())
        if step == 2:
            saved = optimizer.state_dict()
            again = LARS(net.parameters(), lr=7.0)
            again.load_state_dict(saved)
            out += [again.param_groups[0]["lr"], len(saved["state"]), sum(s["step"] for s in saved["state"].values())]
            optimizer = again
    return [*out, sum(s["mu"].abs().sum().item() for s in optimizer.state.values()), net[0].weight.norm().item()]


def forecasting(torch):
    """Windows of series by unfold, reversible normalisation, an encoder of patches, quantile losses, a schedule per step, early stopping."""
    nn, F = torch.nn, torch.nn.functional

    class Reversible(nn.Module):
        def __init__(self, n):
            super().__init__()
            self.weight, self.bias = nn.Parameter(torch.ones(n)), nn.Parameter(torch.zeros(n))

        def forward(self, x, mode):
            if mode == "norm":
                self.mean = x.mean(dim=1, keepdim=True).detach()
                self.std = torch.sqrt(torch.var(x, dim=1, keepdim=True, unbiased=False) + 1e-5).detach()
                return (x - self.mean) / self.std * self.weight + self.bias
            return (x - self.bias[None, None, :, None]) / (self.weight[:, None] + 1e-5) * self.std.unsqueeze(-1) + self.mean.unsqueeze(-1)

    class Net(nn.Module):
        def __init__(self, channels=3, patch=4, dim=16, horizon=4, quantiles=3):
            super().__init__()
            self.rev, self.patch, self.horizon, self.quantiles = Reversible(channels), patch, horizon, quantiles
            self.embed, self.place = nn.Linear(patch, dim), nn.Parameter(torch.zeros(1, 7, dim))
            layer = nn.TransformerEncoderLayer(dim, 2, 32, dropout=0.0, activation=F.gelu, batch_first=True, norm_first=True)
            self.encoder = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(dim), enable_nested_tensor=False)
            self.head = nn.Sequential(nn.Flatten(-2), nn.Linear(7 * dim, horizon * quantiles))

        def forward(self, x):
            x = self.rev(x, "norm")
            b, _, c = x.shape
            patches = x.transpose(1, 2).unfold(-1, self.patch, 2)
            h = self.embed(patches.reshape(b * c, -1, self.patch)) + self.place
            y = self.head(self.encoder(h)).view(b, c, self.horizon, self.quantiles)
            return self.rev(y.permute(0, 2, 1, 3), "denorm")

    t = torch.arange(60, dtype=torch.float32)
    series = torch.stack([torch.sin(t / 3), torch.cos(t / 5) * 2 + 1, t / 30 + torch.sin(t)], 1)
    windows = series.unfold(0, 20, 2).permute(0, 2, 1)
    data = torch.utils.data.TensorDataset(windows[:, :16], windows[:, 16:])
    loader = torch.utils.data.DataLoader(data, batch_size=7, drop_last=False)
    taus = torch.tensor([0.1, 0.5, 0.9])
    net, out, best, patience = begin(torch, Net(), scale=0.5), [], float("inf"), 0
    others = [p for n, p in net.named_parameters() if not n.startswith("encoder")]
    groups = [{"params": net.encoder.parameters()}, {"params": others, "lr": 6e-3, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=[3e-3, 6e-3], steps_per_epoch=len(loader), epochs=3)
    for _ in range(3):
        total = 0.0
        for x, y in loader:
            error = y.unsqueeze(-1) - net(x)
            loss = torch.maximum(taus * error, (taus - 1) * error).sum(-1).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_value_(net.parameters(), 0.1)
            optimizer.step()
            schedule.step()
            total += loss.item() * len(x)
        out += [total / len(data), *schedule.get_last_lr()]
        best, patience = (total, 0) if total < best else (best, patience + 1)
    with torch.no_grad():
        low, middle, high = net(windows[-2:, :16]).sort(dim=-1)[0].unbind(-1)
    return [*out, best, patience, (high - low).mean().item(), middle.sum().item()]


def detector(torch):
    """A detector of one stage by hand: anchors by meshgrid, matching by IoU, hard negatives, boxes coded and decoded, NMS per class."""
    nn, F = torch.nn, torch.nn.functional

    def anchors(size, stride, sizes):
        ys, xs = torch.meshgrid(*[(torch.arange(size) + 0.5) * stride] * 2, indexing="ij")
        centres = torch.stack((xs, ys), -1).reshape(-1, 1, 2).repeat(1, len(sizes), 1)
        extents = torch.tensor(sizes, dtype=torch.float32).expand(size * size, -1, -1)
        return torch.cat((centres, extents), -1).view(-1, 4)

    def corners(b):
        return torch.cat([b[..., :2] - b[..., 2:] / 2, b[..., :2] + b[..., 2:] / 2], dim=-1)

    def iou(a, b):
        low, high = torch.max(a[:, None, :2], b[None, :, :2]), torch.min(a[:, None, 2:], b[None, :, 2:])
        inter = (high - low).clamp(min=0).prod(2)
        area = lambda x: (x[:, 2] - x[:, 0]) * (x[:, 3] - x[:, 1])
        return inter / (area(a)[:, None] + area(b) - inter)

    def nms(boxes, scores, threshold):
        order, keep = scores.sort(descending=True)[1], []
        while order.numel() > 0:
            i = order[0]
            keep.append(i)
            if order.numel() == 1:
                break
            order = order[1:][iou(boxes[i].unsqueeze(0), boxes[order[1:]]).squeeze(0) <= threshold]
        return torch.stack(keep) if keep else torch.empty(0, dtype=torch.long)

    class Net(nn.Module):
        def __init__(self, kinds=3, per=2):
            super().__init__()
            self.body = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.GroupNorm(2, 8), nn.SiLU(), nn.Conv2d(8, 8, 3, 2, 1), nn.Hardswish())
            self.kind, self.box, self.kinds = nn.Conv2d(8, per * kinds, 3, padding=1), nn.Conv2d(8, per * 4, 3, padding=1), kinds

        def forward(self, x):
            h = self.body(x)
            shape = lambda y, n: y.permute(0, 2, 3, 1).contiguous().view(y.size(0), -1, n)
            return shape(self.kind(h), self.kinds), shape(self.box(h), 4)

    net, prior = begin(torch, Net()), anchors(6, 4, [(6.0, 6.0), (10.0, 5.0)])
    targets = [
        (torch.tensor([[2.0, 3.0, 9.0, 9.0], [12.0, 10.0, 22.0, 15.0]]), torch.tensor([1, 2])),
        (torch.tensor([[5.0, 5.0, 12.0, 11.0]]), torch.tensor([1])),
    ]
    optimizer, images, out = torch.optim.Adagrad(net.parameters(), lr=5e-2), some(torch, 2, 3, 24, 24), []
    for _ in range(4):
        kinds, boxes = net(images)
        wanted, labels = torch.zeros_like(boxes), torch.zeros(kinds.shape[:2], dtype=torch.int64)
        for b, (found, of) in enumerate(targets):
            overlap = iou(corners(prior), found)
            best, which = overlap.max(1)
            first = overlap.argmax(0)
            best.index_fill_(0, first, 2.0)
            which[first] = torch.arange(len(found))
            c = found[which]
            size, centre = c[:, 2:] - c[:, :2], (c[:, 2:] + c[:, :2]) / 2
            wanted[b] = torch.cat([(centre - prior[:, :2]) / prior[:, 2:] / 0.1, torch.log(size / prior[:, 2:]) / 0.2], 1)
            labels[b] = torch.where(best < 0.4, torch.zeros_like(which), of[which])
        positive = labels > 0
        loss_box = F.smooth_l1_loss(boxes[positive], wanted[positive], reduction="sum")
        every = F.cross_entropy(kinds.transpose(1, 2), labels, reduction="none")
        hard = every.detach().masked_fill(positive, 0).sort(1, descending=True)[1].argsort(1)
        negative = hard < (3 * positive.sum(1, keepdim=True)).clamp(max=hard.size(1) - 1)
        loss = (loss_box + every[positive | negative].sum()) / positive.sum().clamp(min=1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        out += [loss.item(), positive.sum().item(), negative.sum().item()]
    with torch.no_grad():
        kinds, boxes = net(images)
        scores, found = F.softmax(kinds, -1)[0], boxes[0]
        decoded = torch.cat((prior[:, :2] + found[:, :2] * 0.1 * prior[:, 2:], prior[:, 2:] * torch.exp(found[:, 2:] * 0.2)), 1)
        decoded = corners(decoded).clamp_(0, 24)
        for k in range(1, 3):
            mask = scores[:, k] > 0.1
            kept = nms(decoded[mask], scores[mask, k], 0.45)
            out += [len(kept), scores[mask][kept, k].sum().item(), decoded[mask][kept].sum().item() if len(kept) else 0.0]
    return out


def hidden_markov(torch):
    """The forward algorithm and Viterbi's in logarithms, trained by gradients; a Kalman filter of stacks of matrices."""
    nn = torch.nn

    class HMM(nn.Module):
        def __init__(self, n=4, m=6):
            super().__init__()
            self.start, self.move, self.emit = nn.Parameter(torch.zeros(n)), nn.Parameter(torch.zeros(n, n)), nn.Parameter(torch.zeros(n, m))

        def forward(self, x, lengths):
            move, emit = self.move.log_softmax(-1), self.emit.log_softmax(-1)
            alpha = emit[:, x[:, 0]].T + self.start.log_softmax(0)
            every = [alpha]
            for t in range(1, x.shape[1]):
                alpha = torch.logsumexp(alpha[:, :, None] + move, dim=1) + emit[:, x[:, t]].T
                every.append(alpha)
            last = torch.stack(every, 1).gather(1, (lengths - 1).view(-1, 1, 1).expand(-1, 1, alpha.size(1))).squeeze(1)
            return last.logsumexp(-1)

        @torch.no_grad()
        def viterbi(self, x):
            move, emit = self.move.log_softmax(-1), self.emit.log_softmax(-1)
            delta, back = emit[:, x[0]] + self.start.log_softmax(0), []
            for t in range(1, len(x)):
                delta, arg = torch.max(delta[:, None] + move, 0)
                delta = delta + emit[:, x[t]]
                back.append(arg)
            path = [int(delta.argmax())]
            for arg in reversed(back):
                path.append(arg[path[-1]].item())
            return path[::-1], delta.max().item()

    net, out = begin(torch, HMM()), []
    x, lengths = classes(torch, (5, 9), 6), torch.tensor([9, 4, 7, 9, 1])
    optimizer = torch.optim.Rprop(net.parameters(), lr=0.05)
    for _ in range(5):
        loss = -net(x, lengths).sum() / lengths.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        out.append(loss.item())
    path, best = net.viterbi(x[0])

    F_, H = torch.tensor([[1.0, 0.1], [0.0, 1.0]]), torch.tensor([[1.0, 0.0]])
    Q, R = 0.01 * torch.eye(2), torch.tensor([[0.1]], requires_grad=True)
    mean, cov, score = torch.zeros(3, 2, 1), torch.eye(2).expand(3, 2, 2), 0.0
    for z in some(torch, 6, 3, 1, 1):
        mean, cov = F_ @ mean, F_ @ cov @ F_.mT + Q
        S = H @ cov @ H.mT + R
        L = torch.linalg.cholesky(S)
        gain = torch.cholesky_solve(H @ cov, L).mT
        score = score + torch.distributions.MultivariateNormal((H @ mean).squeeze(-1), scale_tril=L).log_prob(z.squeeze(-1)).sum()
        mean = mean + gain @ (z - H @ mean)
        cov = (torch.eye(2) - gain @ H) @ cov
    score.backward()
    return [*out, best, *path, score.item(), R.grad.item(), mean.sum().item(), torch.linalg.slogdet(cov)[1].sum().item()]


def few_shots(torch):
    """MAML with functional_call and gradients through the inner steps; prototypes by index means; a Hessian-vector product."""
    nn, F = torch.nn, torch.nn.functional
    from_names = torch.func.functional_call
    net = begin(torch, nn.Sequential(nn.Linear(2, 12), nn.Tanh(), nn.Linear(12, 3)))
    optimizer, out = torch.optim.Adam(net.parameters(), 1e-2), []
    for step in range(3):
        optimizer.zero_grad()
        total = 0.0
        for task in range(2):
            x, y = some(torch, 18, 2, seed=10 * step + task), classes(torch, 18, 3, seed=step + task)
            fast = {k: v.clone() for k, v in net.named_parameters()}
            for _ in range(2):
                loss = F.cross_entropy(from_names(net, fast, (x[:9],)), y[:9])
                grads = torch.autograd.grad(loss, list(fast.values()), create_graph=True)
                fast = {k: v - 0.3 * g for (k, v), g in zip(fast.items(), grads)}
            outer = F.cross_entropy(from_names(net, fast, (x[9:],)), y[9:])
            outer.backward()
            total += outer.item()
        optimizer.step()
        out += [total, net[0].weight.grad.norm().item()]
    x, y = some(torch, 18, 2, seed=77), classes(torch, 18, 3, seed=78)
    h = net[:2](x)
    count = torch.zeros(3).index_add_(0, y, torch.ones(18))
    prototypes = torch.zeros(3, 12).index_add(0, y, h) / count.clamp(min=1).unsqueeze(1)
    logits = -torch.cdist(h, prototypes) ** 2
    out += [F.cross_entropy(logits, y).item(), (logits.argmax(1) == y).float().mean().item()]
    params = [p.detach().requires_grad_() for p in net.parameters()]
    value = lambda *p: F.cross_entropy(F.linear(torch.tanh(F.linear(x, p[0], p[1])), p[2], p[3]), y)
    _, product = torch.autograd.functional.hvp(value, tuple(params), tuple(torch.ones_like(p) for p in params))
    return [*out, *(v.sum().item() for v in product)]


def selective_scan(torch):
    """A state-space layer as in Mamba: a causal depthwise convolution, steps by softplus, a scan over time, one step at a time afterwards."""
    nn, F = torch.nn, torch.nn.functional

    class Mixer(nn.Module):
        def __init__(self, dim=8, state=4, inner=12, rank=2, width=3):
            super().__init__()
            self.inner, self.state, self.rank, self.width = inner, state, rank, width
            self.into, self.conv = nn.Linear(dim, 2 * inner, bias=False), nn.Conv1d(inner, inner, width, groups=inner, padding=width - 1)
            self.select, self.dt = nn.Linear(inner, rank + 2 * state, bias=False), nn.Linear(rank, inner)
            self.A_log = nn.Parameter(torch.log(torch.arange(1, state + 1, dtype=torch.float32).repeat(inner, 1)))
            self.D, self.out = nn.Parameter(torch.ones(inner)), nn.Linear(inner, dim, bias=False)

        def scan(self, x):
            delta, B, C = self.select(x).split([self.rank, self.state, self.state], dim=-1)
            delta = F.softplus(self.dt(delta))
            A = -torch.exp(self.A_log.float())
            return torch.exp(torch.einsum("bld,dn->bldn", delta, A)), torch.einsum("bld,bln,bld->bldn", delta, B, x), C

        def forward(self, u):
            x, gate = self.into(u).chunk(2, dim=-1)
            x = F.silu(self.conv(x.transpose(1, 2))[..., : u.size(1)].transpose(1, 2))
            decay, driven, C = self.scan(x)
            h, ys = torch.zeros_like(decay[:, 0]), []
            for t in range(u.size(1)):
                h = decay[:, t] * h + driven[:, t]
                ys.append(torch.einsum("bdn,bn->bd", h, C[:, t]))
            return self.out((torch.stack(ys, 1) + x * self.D) * F.silu(gate))

        def step(self, u, past, h):
            x, gate = self.into(u).chunk(2, dim=-1)
            past = torch.roll(past, shifts=-1, dims=-1)
            past[:, :, -1] = x
            x = F.silu((past * self.conv.weight.squeeze(1)).sum(-1) + self.conv.bias)
            decay, driven, C = (v.squeeze(1) for v in self.scan(x.unsqueeze(1)))
            h.copy_(decay * h + driven)
            return self.out(((h * C.unsqueeze(1)).sum(-1) + self.D * x) * F.silu(gate)), past

    net, u = begin(torch, Mixer()), some(torch, 2, 10, 8)
    with torch.no_grad():
        net.A_log.copy_(torch.log(torch.arange(1, 5).float()).expand(12, 4))
    y = net(u)
    loss = F.huber_loss(y[:, :-1], u[:, 1:], delta=0.5)
    loss.backward()
    past, h, parts = torch.zeros(2, 12, 3), torch.zeros(2, 12, 4), []
    with torch.no_grad():
        for t in range(10):
            one, past = net.step(u[:, t], past, h)
            parts.append(one)
    apart = (torch.stack(parts, 1) - y).abs().max().item()
    return [loss.item(), float(apart < 1e-5), y.abs().sum().item(), *(p.grad.norm().item() for p in net.parameters())]


def recommender(torch):
    """Factors of users and items with sparse gradients, BPR with sampled negatives, an EmbeddingBag of tags, ranks by topk, NDCG."""
    nn, F = torch.nn, torch.nn.functional

    class Net(nn.Module):
        def __init__(self, users=7, items=11, tags=9, dim=6):
            super().__init__()
            self.user, self.item = nn.Embedding(users, dim, sparse=True), nn.Embedding(items, dim, sparse=True, padding_idx=0)
            self.tags, self.bias = nn.EmbeddingBag(tags, dim, mode="mean", sparse=True, include_last_offset=True), nn.Embedding(items, 1)

        def forward(self, user, item, tags, offsets):
            u, i = self.user(user), self.item(item) + self.tags(tags, offsets)[item]
            return (u * i).sum(-1) + self.bias(item).squeeze(-1)

    rng, net, out = np.random.RandomState(6), begin(torch, Net()), []
    with torch.no_grad():
        net.item.weight[0].fill_(0)
    counts = rng.randint(0, 4, 11)
    tags, offsets = torch.from_numpy(rng.randint(0, 9, counts.sum())), torch.from_numpy(np.concatenate([[0], np.cumsum(counts)]))
    sparse = [net.user.weight, net.item.weight, net.tags.weight]
    optimizers = [torch.optim.SparseAdam(sparse, lr=2e-2), torch.optim.SGD(net.bias.parameters(), lr=0.1)]
    for _ in range(4):
        user, good, bad = (torch.from_numpy(rng.randint(lo, hi, 16)) for lo, hi in ((0, 7), (1, 6), (6, 11)))
        difference = net(user, good, tags, offsets) - net(user, bad, tags, offsets)
        loss = -F.logsigmoid(difference).mean()
        for o in optimizers:
            o.zero_grad()
        loss.backward()
        for o in optimizers:
            o.step()
        out += [loss.item(), (difference > 0).sum().item()]
    with torch.no_grad():
        grid = torch.cartesian_prod(torch.arange(7), torch.arange(1, 11))
        scores = net(grid[:, 0], grid[:, 1], tags, offsets).view(7, 10)
        seen = torch.from_numpy(rng.rand(7, 10) < 0.3)
        relevant = torch.from_numpy(rng.rand(7, 10) < 0.4)
        top = scores.masked_fill(seen, -torch.inf).topk(3).indices
        gain = relevant.gather(1, top).float()
        discount = 1 / torch.log2(torch.arange(3).float() + 2)
        ideal = torch.sort(relevant.float(), 1, descending=True)[0][:, :3]
        ndcg = (gain * discount).sum(1) / (ideal * discount).sum(1).clamp(min=1e-9)
        below = torch.searchsorted(scores.sort(1)[0], torch.zeros(7, 1)).squeeze(1)
    return [*out, ndcg.mean().item(), *below.tolist(), net.item.weight[0].abs().sum().item(), net.tags.weight.norm().item()]


def sound(torch):
    """Losses of spectrograms at several resolutions, a mel filterbank, a step of Griffin and Lim, dilated causal convolutions, mu-law."""
    nn, F = torch.nn, torch.nn.functional

    class Wave(nn.Module):
        def __init__(self, n=6):
            super().__init__()
            self.first = nn.Conv1d(1, n, 1)
            self.layers = nn.ModuleList([nn.utils.parametrizations.weight_norm(nn.Conv1d(n, 2 * n, 2, dilation=2**k)) for k in range(3)])
            self.skips = nn.ModuleList([nn.Conv1d(n, n, 1) for _ in range(3)])
            self.last = nn.Conv1d(n, 1, 1)

        def forward(self, x):
            h, total = self.first(x), 0
            for k, (layer, skip) in enumerate(zip(self.layers, self.skips)):
                y = F.glu(layer(F.pad(h, (2**k, 0))), dim=1)
                total = total + skip(y)
                h = (h + y) * math.sqrt(0.5)
            return torch.tanh(self.last(F.leaky_relu(total, 0.1)))

    def spectrum(x, n):
        window = torch.hann_window(n)
        made = torch.stft(x, n, hop_length=n // 4, win_length=n, window=window, return_complex=True, pad_mode="reflect")
        return made.abs().clamp(min=1e-5)

    def filterbank(n, mels, rate):
        to_mel, to_hz = lambda f: 2595 * math.log10(1 + f / 700), lambda m: 700 * (10 ** (m / 2595) - 1)
        points = to_hz(torch.linspace(to_mel(0), to_mel(rate / 2), mels + 2))
        slopes = points[None] - torch.linspace(0, rate / 2, n // 2 + 1)[:, None]
        width = points[1:] - points[:-1]
        return torch.clamp(torch.min(-slopes[:, :-2] / width[:-1], slopes[:, 2:] / width[1:]), min=0.0)

    t = torch.arange(256) / 64.0
    clean = (0.5 * torch.sin(2 * math.pi * 5 * t) + 0.2 * torch.sin(2 * math.pi * 11 * t)).view(1, 1, -1)
    noisy, net, out = clean + 0.1 * some(torch, 1, 1, 256), Wave(), []
    begin(torch, net, scale=0.7)
    bank, optimizer = filterbank(64, 10, 64), torch.optim.Adam(net.parameters(), lr=5e-3, amsgrad=True)
    for _ in range(3):
        made = net(noisy)
        loss = F.l1_loss(made, clean)
        for n in (16, 64):
            a, b = spectrum(made.squeeze(1), n), spectrum(clean.squeeze(1), n)
            loss = loss + torch.norm(b - a, p="fro") / torch.norm(b, p="fro") + F.l1_loss(a.log(), b.log()) * 0.1
        mel = torch.matmul(spectrum(made.squeeze(1), 64).transpose(1, 2), bank)
        loss = loss + 1e-2 * mel.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        out.append(loss.item())
    size = spectrum(clean.squeeze(1), 64)
    angles = torch.exp(1j * torch.linspace(0, 6, size.numel()).view_as(size))
    wave = torch.istft(size * angles, 64, hop_length=16, window=torch.hann_window(64), length=256)
    again = torch.stft(wave, 64, hop_length=16, window=torch.hann_window(64), return_complex=True)
    mu = torch.sign(clean) * torch.log1p(255 * clean.abs()) / math.log1p(255)
    codes = ((mu + 1) / 2 * 255 + 0.5).to(torch.int64)
    most = F.one_hot(codes.flatten(), 256).sum(0).max().item()
    return [*out, (again.abs() - size).norm().item(), wave.abs().sum().item(), codes.sum().item(), most]


def transport(torch):
    """Sinkhorn's iterations with gradients, Gumbel's softmax, matching by soft ranks, a Hamiltonian Monte Carlo chain, a mixture by EM."""
    D = torch.distributions
    a, b = some(torch, 6, 2).requires_grad_(), some(torch, 5, 2, seed=2)
    cost = torch.cdist(a, b, p=2).pow(2)
    u, v = torch.zeros(6), torch.zeros(5)
    log_a, log_b = torch.full((6,), -math.log(6)), torch.full((5,), -math.log(5))
    for _ in range(20):
        u = 0.5 * (log_a - torch.logsumexp((v[None] - cost) / 0.5, 1))
        v = 0.5 * (log_b - torch.logsumexp((u[:, None] - cost) / 0.5, 0))
    plan = torch.exp((u[:, None] + v[None] - cost) / 0.5)
    value = (plan * cost).sum()
    value.backward()
    out = [value.item(), *a.grad.norm(dim=1).tolist()]

    logits = some(torch, 4, 6, seed=3).requires_grad_()
    uniform = torch.from_numpy(np.random.RandomState(7).rand(4, 6).astype(np.float32)).clamp(1e-6, 1 - 1e-6)
    soft = ((logits - torch.log(-torch.log(uniform))) / 0.7).softmax(-1)
    hard = torch.zeros_like(soft).scatter_(-1, soft.argmax(-1, keepdim=True), 1.0) - soft.detach() + soft
    (hard * some(torch, 4, 6, seed=4)).sum().backward()
    relaxed = D.RelaxedOneHotCategorical(torch.tensor(0.7), logits=logits.detach())
    out += [logits.grad.abs().sum().item(), hard.sum().item(), relaxed.log_prob(soft.detach()).sum().item()]
    ranks = 0.5 + torch.sigmoid((logits.detach()[:, :, None] - logits.detach()[:, None]) / 0.1).sum(-1)
    out.append(ranks.sum().item())

    target = D.MixtureSameFamily(D.Categorical(torch.tensor([0.3, 0.7])), D.MultivariateNormal(
        torch.tensor([[-1.0, 0.0], [1.0, 1.0]]), torch.tensor([[[0.5, 0.1], [0.1, 0.4]], [[0.3, 0.0], [0.0, 0.6]]])))  # fmt: skip
    position, accepted = torch.zeros(2), 0
    noise = some(torch, 8, 2, seed=8)
    for k in range(8):
        def slope(x):
            x = x.detach().requires_grad_(True)
            return torch.autograd.grad(target.log_prob(x), x)[0]

        x, p = position.clone(), noise[k].clone()
        p += 0.1 * slope(x) / 2
        for i in range(4):
            x += 0.1 * p
            p += 0.1 * slope(x) * (1 if i < 3 else 0.5)
        change = target.log_prob(x) - 0.5 * p.dot(p) - target.log_prob(position) + 0.5 * noise[k].dot(noise[k])
        if torch.rand(()).log() < change + 10:
            position, accepted = x, accepted + 1
        out.append(change.item())
    points = torch.cat([some(torch, 20, 2, seed=9) * 0.3 + 1, some(torch, 15, 2, seed=10) * 0.5 - 1])
    mean, weight = points[[0, -1]].clone(), torch.full((2,), 0.5)
    covariance = torch.eye(2).repeat(2, 1, 1)
    for _ in range(5):
        scores = D.MultivariateNormal(mean, covariance).log_prob(points.unsqueeze(1)) + weight.log()
        share = (scores - scores.logsumexp(1, keepdim=True)).exp()
        total = share.sum(0)
        mean, weight = share.T @ points / total[:, None], total / len(points)
        away = points[None] - mean[:, None]
        covariance = torch.einsum("nk,kni,knj->kij", share, away, away) / total[:, None, None] + 1e-4 * torch.eye(2)
    return [*out, accepted, scores.logsumexp(1).sum().item(), *weight.tolist(), torch.logdet(covariance).sum().item()]


def integers(torch):
    """Inference by integers by hand: observers in hooks, scales per channel, products in int32, shifts for requantisation, tables."""
    nn = torch.nn
    net = begin(torch, nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 5)))
    x, ranges, handles = some(torch, 20, 12), {}, []

    def observe(name):
        def hook(module, args, result):
            low, high = torch.aminmax(result.detach())
            old = ranges.get(name, (low, high))
            ranges[name] = (torch.minimum(old[0], low), torch.maximum(old[1], high))
        return hook

    for name, module in net.named_modules():
        if isinstance(module, (nn.Linear, nn.ReLU)):
            handles.append(module.register_forward_hook(observe(name)))
    with torch.no_grad():
        for part in x.split(6):
            net(part)
    for h in handles:
        h.remove()

    def affine(low, high):
        low, high = min(low.item(), 0.0), max(high.item(), 0.0)
        scale = (high - low) / 255
        return scale, int(round(-low / scale))

    def layer(q, scale, zero, linear, out_scale, out_zero):
        s = linear.weight.detach().abs().amax(1) / 127
        w = torch.clamp(torch.round(linear.weight.detach() / s[:, None]), -128, 127).to(torch.int8)
        bias = torch.round(linear.bias.detach() / (scale * s)).to(torch.int32)
        sums = (q.to(torch.int32) - zero) @ w.to(torch.int32).t() + bias
        mantissa, exponent = torch.frexp(scale * s / out_scale)
        factor = torch.round(mantissa * (1 << 15)).to(torch.int64)
        shift = 15 - exponent.to(torch.int64)
        rounded = (sums.to(torch.int64) * factor + (1 << (shift - 1))) >> shift
        return torch.clamp(rounded + out_zero, 0, 255).to(torch.uint8), s

    first = affine(x.min(), x.max())
    middle, last = affine(*ranges["1"]), affine(*ranges["2"])
    q = torch.clamp(torch.round(x / first[0]) + first[1], 0, 255).to(torch.uint8)
    h, s1 = layer(q, *first, net[0], *middle)
    y, s2 = layer(torch.maximum(h, torch.tensor(middle[1], dtype=torch.uint8)), *middle, net[2], *last)
    floats = (y.to(torch.float32) - last[1]) * last[0]
    table = torch.round(torch.sigmoid((torch.arange(256) - last[1]).float() * last[0]) * 255).to(torch.uint8)
    shares = table[y.long()]
    fake = torch.fake_quantize_per_tensor_affine(x, first[0], first[1], 0, 255)
    channels = torch.fake_quantize_per_channel_affine(net[0].weight.detach(), s1, torch.zeros(16, dtype=torch.int32), 0, -128, 127)
    same = (floats.argmax(1) == net(x).argmax(1)).float().mean().item()
    packed = (y[:, :4] & 15) | ((y[:, 1:] & 15) << 4)
    sums = [v.long().sum().item() for v in (y, h, shares, packed)]
    apart = (floats - net(x)).abs().max().item()
    return [same, *sums, apart, fake.sum().item(), channels.abs().sum().item(), (packed >> 4).max().item(), s2.sum().item()]


PROGRAMS = [
    flow_vae, soft_actor_critic, graph_attention, super_resolution, momentum_contrast, large_batches, forecasting, detector, hidden_markov,
    few_shots, selective_scan, recommender, sound, transport, integers,
]
