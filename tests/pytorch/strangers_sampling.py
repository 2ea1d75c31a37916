"""Programs that draw samples, generators and agents, as people write them for PyTorch, as those of `strangers.py`: each is
given the module `torch` and returns numbers."""

import copy
import math
from collections import deque

import numpy as np
from strangers import begin, classes, some


def dcgan(torch):
    """Transposed convolutions, batch norms, two optimizers, detach."""
    nn = torch.nn
    g = begin(torch, nn.Sequential(
        nn.ConvTranspose2d(4, 8, 4, 1, 0, bias=False), nn.BatchNorm2d(8), nn.ReLU(True),
        nn.ConvTranspose2d(8, 1, 4, 2, 1, bias=False), nn.Tanh(),
    ))  # fmt: skip
    d = begin(torch, nn.Sequential(
        nn.Conv2d(1, 8, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True), nn.Conv2d(8, 1, 4, 1, 0, bias=False), nn.Sigmoid(),
    ), seed=5)  # fmt: skip
    loss = nn.BCELoss()
    og, od = torch.optim.Adam(g.parameters(), lr=2e-3, betas=(0.5, 0.999)), torch.optim.Adam(d.parameters(), lr=2e-3, betas=(0.5, 0.999))
    real, out = some(torch, 6, 1, 8, 8), []
    for step in range(3):
        label = torch.full((6,), 1.0, dtype=torch.float)
        d.zero_grad()
        lr = loss(d(real).view(-1), label)
        lr.backward()
        fake = g(some(torch, 6, 4, 1, 1, seed=step))
        label.fill_(0.0)
        lf = loss(d(fake.detach()).view(-1), label)
        lf.backward()
        od.step()
        g.zero_grad()
        label.fill_(1.0)
        lg = loss(d(fake).view(-1), label)
        lg.backward()
        og.step()
        out += [(lr + lf).item(), lg.item()]
    return out


def wgan_gp(torch):
    """A gradient penalty: gradients of gradients by autograd.grad(create_graph=True)."""
    nn = torch.nn
    d = begin(torch, nn.Sequential(nn.Linear(3, 16), nn.SiLU(), nn.Linear(16, 1)))
    g = begin(torch, nn.Sequential(nn.Linear(2, 16), nn.Softplus(), nn.Linear(16, 3)), 2)
    od, og = torch.optim.RMSprop(d.parameters(), lr=5e-3), torch.optim.RMSprop(g.parameters(), lr=5e-3)
    out = []
    for step in range(3):
        real, fake = some(torch, 8, 3, seed=step), g(some(torch, 8, 2, seed=step + 9))
        alpha = torch.from_numpy(np.random.RandomState(step).rand(8, 1).astype(np.float32)).expand(real.size())
        mixed = (alpha * real + (1 - alpha) * fake.detach()).requires_grad_(True)
        grads = torch.autograd.grad(
            outputs=d(mixed), inputs=mixed, grad_outputs=torch.ones(8, 1), create_graph=True, retain_graph=True, only_inputs=True
        )[0]
        penalty = ((grads.norm(2, dim=1) - 1) ** 2).mean() * 10
        loss = d(fake.detach()).mean() - d(real).mean() + penalty
        od.zero_grad()
        loss.backward()
        od.step()
        og.zero_grad()
        lg = -d(fake).mean()
        lg.backward()
        og.step()
        out += [loss.item(), penalty.item(), lg.item()]
    return out


def mixture_density(torch):
    """logsumexp over Gaussians, MixtureSameFamily beside it."""
    nn, D = torch.nn, torch.distributions
    net = begin(torch, nn.Sequential(nn.Linear(1, 12), nn.Tanh(), nn.Linear(12, 9)))
    x = torch.linspace(-1, 1, 20).unsqueeze(1)
    y = x + 0.3 * torch.sin(2 * math.pi * x)
    opt, out = torch.optim.Adam(net.parameters(), lr=0.02), []
    for _ in range(4):
        pi, mu, sigma = net(y).chunk(3, dim=-1)
        dist = D.Normal(mu, torch.exp(sigma))
        nll = -torch.logsumexp(dist.log_prob(x) + nn.functional.log_softmax(pi, -1), dim=-1).mean()
        other = -D.MixtureSameFamily(D.Categorical(logits=pi), dist).log_prob(x.squeeze(-1)).mean()
        opt.zero_grad()
        nll.backward()
        opt.step()
        out += [nll.item(), other.item()]
    return out


def normalizing_flow(torch):
    """Affine couplings with masks, a log determinant, a base distribution."""
    nn, D = torch.nn, torch.distributions

    class Coupling(nn.Module):
        def __init__(self, mask, seed):
            super().__init__()
            self.register_buffer("mask", mask)
            self.s = begin(torch, nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(), nn.Linear(8, 2), nn.Tanh()), seed)
            self.t = begin(torch, nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(), nn.Linear(8, 2)), seed + 1)

        def forward(self, x):
            kept = x * self.mask
            s, t = self.s(kept) * (1 - self.mask), self.t(kept) * (1 - self.mask)
            return kept + (1 - self.mask) * (x * torch.exp(s) + t), s.sum(dim=1)

    layers = nn.ModuleList([Coupling(torch.tensor([float(i % 2), float((i + 1) % 2)]), 3 * i) for i in range(3)])
    prior = D.MultivariateNormal(torch.zeros(2), torch.eye(2))
    opt, x, out = torch.optim.Adam(layers.parameters(), lr=5e-3), some(torch, 16, 2) * 2 + 1, []
    for _ in range(3):
        z, total = x, 0
        for layer in layers:
            z, ld = layer(z)
            total = total + ld
        loss = -(prior.log_prob(z) + total).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        out.append(loss.item())
    return out


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


def codebook(torch):
    """A vector-quantised autoencoder: straight-through indices, a codebook moved by averages, its perplexity, and gradient reversal."""
    nn, F = torch.nn, torch.nn.functional

    class Reverse(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, factor):
            ctx.factor = factor
            return x.view_as(x)

        @staticmethod
        def backward(ctx, g):
            return g.neg() * ctx.factor, None

    class Quantizer(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("codes", some(torch, 6, 4, seed=9))
            self.register_buffer("size", torch.ones(6))
            self.register_buffer("total", self.codes.clone())

        def forward(self, z):
            flat = z.permute(0, 2, 3, 1).reshape(-1, 4)
            far = flat.pow(2).sum(1, keepdim=True) - 2 * flat @ self.codes.t() + self.codes.pow(2).sum(1)
            index = far.argmin(1)
            hot = F.one_hot(index, 6).type_as(flat)
            q = (hot @ self.codes).view(z.shape[0], *z.shape[2:], 4).permute(0, 3, 1, 2)
            if self.training:
                self.size.mul_(0.9).add_(hot.sum(0), alpha=0.1)
                self.total.mul_(0.9).add_(hot.t() @ flat.detach(), alpha=0.1)
                n = self.size.sum()
                size = (self.size + 1e-5) / (n + 6e-5) * n
                self.codes.copy_(self.total / size.unsqueeze(1))
            used = hot.mean(0)
            return z + (q - z).detach(), 0.25 * F.mse_loss(z, q.detach()), torch.exp(-(used * torch.log(used + 1e-10)).sum())

    down, up = begin(torch, nn.Conv2d(1, 4, 2, stride=2)), begin(torch, nn.ConvTranspose2d(4, 1, 2, stride=2), seed=4)
    domain, quantize = begin(torch, nn.Linear(4, 1), seed=5), Quantizer()
    opt = torch.optim.Adam([*down.parameters(), *up.parameters(), *domain.parameters()], lr=0.01)
    x, out = some(torch, 3, 1, 6, 6), []
    for _ in range(4):
        z = down(x)
        q, commit, perplexity = quantize(z)
        adversary = F.binary_cross_entropy_with_logits(domain(Reverse.apply(z.mean((2, 3)), 0.3)), torch.tensor([[0.0], [1.0], [1.0]]))
        loss = F.mse_loss(up(q), x) + commit + 0.1 * adversary
        opt.zero_grad()
        loss.backward()
        opt.step()
        out += [loss.item(), perplexity.item()]
    return [*out, quantize.codes.sum().item(), quantize.eval()(down(x))[2].item()]


def ppo(torch):
    """Clipped surrogate, Categorical, generalised advantages, entropy bonus, minibatches by randperm of NumPy."""
    nn = torch.nn
    actor = begin(torch, nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3)))
    critic = begin(torch, nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1)), 3)
    opt = torch.optim.Adam(list(actor.parameters()) + list(critic.parameters()), lr=1e-2, eps=1e-5)
    obs, actions, rewards = some(torch, 12, 4), classes(torch, 12, 3), some(torch, 12, seed=4)
    dones = (torch.arange(12) % 5 == 4).float()
    with torch.no_grad():
        old = torch.distributions.Categorical(logits=actor(obs)).log_prob(actions)
        values = critic(obs).flatten()
        advantages, last = torch.zeros_like(rewards), 0
        for t in reversed(range(12)):
            following = values[t + 1] if t < 11 else 0.0
            delta = rewards[t] + 0.99 * following * (1 - dones[t]) - values[t]
            advantages[t] = last = delta + 0.99 * 0.95 * (1 - dones[t]) * last
        returns = advantages + values
    out = []
    for epoch in range(3):
        for start in range(0, 12, 6):
            ids = torch.from_numpy(np.random.RandomState(epoch).permutation(12)[start : start + 6])
            dist = torch.distributions.Categorical(logits=actor(obs[ids]))
            ratio = (dist.log_prob(actions[ids]) - old[ids]).exp()
            adv = advantages[ids]
            adv = (adv - adv.mean()) / (adv.std() + 1e-8)
            policy = torch.max(-adv * ratio, -adv * torch.clamp(ratio, 0.8, 1.2)).mean()
            value = 0.5 * ((critic(obs[ids]).view(-1) - returns[ids]) ** 2).mean()
            loss = policy - 0.01 * dist.entropy().mean() + 0.5 * value
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_([p for g in opt.param_groups for p in g["params"]], 0.5)
            opt.step()
            out.append(loss.item())
    return out


def actor_critic(torch):
    """REINFORCE with a baseline, a squashed Gaussian policy, a replay deque, soft updates of a target."""
    nn, D = torch.nn, torch.distributions
    actor, q = begin(torch, nn.Linear(3, 4)), begin(torch, nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1)), 2)
    target = copy.deepcopy(q)
    memory, out = deque(maxlen=20), []
    oa, oq = torch.optim.Adam(actor.parameters(), lr=0.01), torch.optim.Adam(q.parameters(), lr=0.01)
    for i in range(12):
        memory.append((some(torch, 3, seed=i), some(torch, 2, seed=i + 50), float(i % 3), some(torch, 3, seed=i + 1)))
    s, a, r, n = (torch.stack(c) if isinstance(c[0], torch.Tensor) else torch.as_tensor(c).unsqueeze(1) for c in zip(*memory))
    for step in range(3):
        with torch.no_grad():
            mean, _ = actor(n).chunk(2, -1)
            backup = r + 0.99 * target(torch.cat([n, torch.tanh(mean)], -1))
        lq = nn.functional.huber_loss(q(torch.cat([s, a], -1)), backup)
        oq.zero_grad()
        lq.backward()
        oq.step()
        mean, log_std = actor(s).chunk(2, -1)
        dist = D.Independent(D.Normal(mean, log_std.clamp(-5, 2).exp()), 1)
        u = mean + log_std.exp() * some(torch, 12, 2, seed=step)
        logp = dist.log_prob(u) - (2 * (math.log(2) - u - nn.functional.softplus(-2 * u))).sum(-1)
        la = (0.2 * logp - q(torch.cat([s, torch.tanh(u)], -1)).squeeze(-1)).mean()
        oa.zero_grad()
        la.backward()
        oa.step()
        with torch.no_grad():
            for p, t in zip(q.parameters(), target.parameters()):
                t.data.mul_(0.995)
                t.data.add_(0.005 * p.data)
        out += [lq.item(), la.item()]
    return out


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


def preferences(torch):
    """Direct preference optimisation: log-probabilities of chosen and rejected answers by a policy and a frozen copy of it, with low-rank
    adapters merged at the end."""
    import copy

    nn, F = torch.nn, torch.nn.functional

    class Adapted(nn.Module):
        def __init__(self, linear, rank=2, alpha=4):
            super().__init__()
            self.linear, self.scale = linear.requires_grad_(False), alpha / rank
            self.a = nn.Parameter(some(torch, rank, linear.in_features, seed=3) * 0.1)
            self.b = nn.Parameter(torch.zeros(linear.out_features, rank))

        def forward(self, x):
            return self.linear(x) + F.linear(F.linear(x, self.a), self.b) * self.scale

        @torch.no_grad()
        def merged(self):
            self.linear.weight += self.b @ self.a * self.scale
            return self.linear

    class Policy(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.mix, self.head = nn.Embedding(7, 8), nn.Linear(8, 8), nn.Linear(8, 7, bias=False)

        def forward(self, ids):
            h = self.embed(ids).cumsum(1) / torch.arange(1, ids.shape[1] + 1)[None, :, None]
            return self.head(F.silu(self.mix(h)))

    policy = begin(torch, Policy())
    frozen = copy.deepcopy(policy).eval().requires_grad_(False)
    for name, module in list(policy.named_children()):
        if isinstance(module, nn.Linear):
            setattr(policy, name, Adapted(module))
    policy.embed.requires_grad_(False)
    good, bad = torch.tensor([[1, 2, 3, 4], [2, 2, 5, 0]]), torch.tensor([[1, 2, 6, 6], [2, 2, 0, 1]])

    def logps(net, ids, prompt=2):
        logits = net(ids)[:, :-1]
        each = torch.gather(logits.log_softmax(-1), 2, ids[:, 1:, None]).squeeze(2)
        return (each * (torch.arange(ids.shape[1] - 1) >= prompt - 1)).sum(-1)

    opt = torch.optim.AdamW([p for p in policy.parameters() if p.requires_grad], lr=0.05, foreach=False)
    out = []
    for _ in range(4):
        with torch.no_grad():
            old = logps(frozen, good) - logps(frozen, bad)
        margin = logps(policy, good) - logps(policy, bad) - old
        loss = -F.logsigmoid(0.5 * margin).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        out.append(loss.item())
    before = policy(good).sum().item()
    for name, module in list(policy.named_children()):
        if isinstance(module, Adapted):
            setattr(policy, name, module.merged())
    trained = sum(p.requires_grad for p in policy.parameters())
    return [*out, before, policy(good).sum().item() - before, trained, (margin > 0).float().mean().item()]


PROGRAMS = [
    dcgan, wgan_gp, mixture_density, normalizing_flow, flow_vae, codebook, ppo, actor_critic, soft_actor_critic, preferences,
]  # fmt: skip
