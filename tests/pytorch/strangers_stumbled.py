"""Programs as people write them for PyTorch that stumbled when they were first run, as those of `strangers.py`: each is given the module
`torch` and returns numbers."""

import math

import numpy as np
from strangers import begin, some


def double_backward(torch):
    """A penalty on the gradient through a custom Function that saves its output, as gradient-penalty losses have it."""

    class Exp(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            out = x.exp()
            ctx.save_for_backward(out)
            return out

        @staticmethod
        def backward(ctx, grad):
            (out,) = ctx.saved_tensors
            return grad * out

    net = begin(torch, torch.nn.Linear(3, 2))
    x = some(torch, 4, 3).requires_grad_()
    (slope,) = torch.autograd.grad(Exp.apply(net(x)).sum(), x, create_graph=True)
    penalty = ((slope.norm(2, dim=1) - 1) ** 2).mean()
    penalty.backward()
    return [penalty.item(), net.weight.grad.norm().item(), net.bias.grad.sum().item()]


def noise_schedule(torch):
    """DDPM's tables, with NumPy's word for an axis, and a smoothed loss on a timestep's noise."""
    F = torch.nn.functional
    betas = torch.linspace(0.0001, 0.02, 10)
    kept = torch.cumprod(1.0 - betas, axis=0)
    before = F.pad(kept[:-1], (1, 0), value=1.0)
    variance = betas * (1.0 - before) / (1.0 - kept)
    x, noise, t = some(torch, 3, 1, 4, 4), some(torch, 3, 1, 4, 4, seed=5), torch.tensor([0, 4, 9])
    at = lambda a: a.gather(-1, t).reshape(3, *((1,) * (len(x.shape) - 1)))
    noised = at(torch.sqrt(kept)) * x + at(torch.sqrt(1.0 - kept)) * noise
    net = begin(torch, torch.nn.Conv2d(1, 1, 3, padding=1))
    loss = F.smooth_l1_loss(noise, net(noised))
    loss.backward()
    means = torch.mean(noised, axis=(1, 2, 3), keepdims=True)
    return [loss.item(), net.weight.grad.norm().item(), variance.sum().item(), means.abs().sum().item()]


def lion(torch):
    """An optimizer of the program's own, in two groups, under a schedule of the tutorial's spelling."""
    nn = torch.nn

    class Lion(torch.optim.Optimizer):
        def __init__(self, params, lr=1e-2, betas=(0.9, 0.99), wd=0.1):
            super().__init__(params, dict(lr=lr, betas=betas, wd=wd))

        @torch.no_grad()
        def step(self, closure=None):
            loss = None
            if closure is not None:
                with torch.enable_grad():
                    loss = closure()
            for group in self.param_groups:
                for p in filter(lambda p: p.grad is not None, group["params"]):
                    state = self.state[p]
                    if len(state) == 0:
                        state["exp_avg"] = torch.zeros_like(p, memory_format=torch.preserve_format)
                    average, (b1, b2) = state["exp_avg"], group["betas"]
                    p.data.mul_(1 - group["lr"] * group["wd"])
                    p.add_(average.clone().mul_(b1).add(p.grad, alpha=1 - b1).sign_(), alpha=-group["lr"])
                    average.mul_(b2).add_(p.grad, alpha=1 - b2)
            return loss

    net, out = begin(torch, nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 1))), []
    optimizer = Lion([{"params": net[0].parameters()}, {"params": net[2].parameters(), "wd": 0.0}])
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1.0, gamma=0.95)
    x = some(torch, 6, 4)
    for _ in range(3):

        def closure():
            optimizer.zero_grad()
            loss = (net(x) - x.sum(1, keepdim=True)).pow(2).mean()
            loss.backward()
            return loss

        out += [optimizer.step(closure).item(), scheduler.get_last_lr()[0]]
        scheduler.step()
    return [*out, sum(s["exp_avg"].abs().sum().item() for s in optimizer.state.values())]


def averaged_and_calibrated(torch):
    """Exponential averages of weights, whose batch norms get statistics of their own; gradients scaled on their way into a layer."""
    from importlib import import_module

    swa = import_module(f"{torch.__name__}.optim.swa_utils")
    nn = torch.nn
    net, out = begin(torch, nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))), []
    net[3].register_full_backward_pre_hook(lambda m, grads: (grads[0] * 2.0,))
    average = swa.AveragedModel(net, multi_avg_fn=swa.get_ema_multi_avg_fn(0.9))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, dampening=0.1)
    x = some(torch, 12, 6)
    for _ in range(3):
        optimizer.zero_grad()
        loss = net(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        average.update_parameters(net)
        out.append(loss.item())
    swa.update_bn([x[:6], x[6:]], average)
    return [*out, average.module[1].running_var.sum().item(), average.eval()(x).sum().item()]


def small_gpt(torch):
    """minGPT's spellings: `normal_(mean=, std=)` of data, `apply`, a causal mask as a buffer, weights tied, keywords of methods."""
    nn, F = torch.nn, torch.nn.functional

    class Net(nn.Module):
        def __init__(self, v=11, d=8, heads=2, t=8):
            super().__init__()
            self.tok, self.pos, self.ln = nn.Embedding(v, d), nn.Parameter(torch.zeros(1, t, d)), nn.LayerNorm(d)
            self.qkv, self.proj, self.head, self.heads = nn.Linear(d, 3 * d), nn.Linear(d, d), nn.Linear(d, v, bias=False), heads
            self.register_buffer("mask", torch.tril(torch.ones(t, t)).view(1, 1, t, t))
            self.apply(self.init)
            self.tok.weight = self.head.weight

        def init(self, m):
            if isinstance(m, (nn.Linear, nn.Embedding)):
                m.weight.data.normal_(mean=0.0, std=0.02)
            elif isinstance(m, nn.LayerNorm):
                m.weight.data.fill_(1.0)

        def forward(self, ids):
            b, t = ids.size()
            x = self.tok(ids).add(other=self.pos[:, :t])
            q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.ln(x)).split(split_size=x.size(-1), dim=2))
            scores = torch.matmul(input=q, other=k.transpose(-2, -1)) / math.sqrt(k.size(-1))
            weights = F.softmax(scores.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf")), dim=-1)
            return self.head(x + self.proj((weights @ v).transpose(1, 2).reshape(b, t, -1)))

    net = Net()
    spread = net.qkv.weight.std().item()
    begin(torch, net)
    ids = torch.from_numpy(np.random.default_rng(3).integers(0, 11, (2, 6)))
    loss = F.cross_entropy(net(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()
    return [float(0.01 < spread < 0.03), loss.item(), net.head.weight.grad.norm().item(), net.qkv.weight.grad.norm().item()]


def spectral_norms(torch):
    """A GAN whose critic has `nn.utils.spectral_norm`, with given singular vectors, and whose generator has means over all batches."""
    nn, F = torch.nn, torch.nn.functional
    sn, slope = torch.nn.utils.spectral_norm, lambda: nn.LeakyReLU(0.1, True)
    critic = nn.Sequential(sn(nn.Conv2d(1, 4, 3, 2, 1)), slope(), sn(nn.Conv2d(4, 8, 3, 2, 1)), slope(), nn.Flatten(), sn(nn.Linear(32, 1)))
    maker = nn.Sequential(
        nn.Linear(4, 32), nn.Unflatten(1, (8, 2, 2)), nn.Upsample(scale_factor=2), nn.Conv2d(8, 4, 3, 1, 1, bias=False),
        nn.BatchNorm2d(4, momentum=None), nn.ReLU(True), nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False),
        nn.Conv2d(4, 1, 3, 1, 1), nn.Tanh(),
    )  # fmt: skip
    begin(torch, critic)
    begin(torch, maker, 1)
    for m in critic:
        if hasattr(m, "weight_u"):
            with torch.no_grad():
                m.weight_u.copy_(F.normalize(torch.ones_like(m.weight_u) + torch.arange(m.weight_u.numel()) * 0.1, dim=0))
                m.weight_v.copy_(F.normalize(torch.ones_like(m.weight_v), dim=0))
    steps = [torch.optim.Adam(net.parameters(), lr, (0.0, 0.9)) for net, lr in ((critic, 4e-3), (maker, 1e-3))]
    out = []
    for i in range(3):
        real, z = some(torch, 6, 1, 8, 8, seed=i), some(torch, 6, 4, seed=10 + i)
        steps[0].zero_grad()
        loss = F.relu(1 - critic(real)).mean() + F.relu(1 + critic(maker(z).detach())).mean()
        loss.backward()
        steps[0].step()
        steps[1].zero_grad()
        fooled = -critic(maker(z)).mean()
        fooled.backward()
        steps[1].step()
        out += [loss.item(), fooled.item()]
    return [*out, maker.eval()(z).sum().item(), int(maker[4].num_batches_tracked), critic.eval()(real).sum().item()]


def experts(torch):
    """A mixture of experts: gates by topk, the tokens of each expert by `where`, `index_add_`, and a loss for even use."""
    nn, F = torch.nn, torch.nn.functional

    class Experts(nn.Module):
        def __init__(self, d, n, k):
            super().__init__()
            self.gate, self.n, self.k = nn.Linear(d, n, bias=False), n, k
            self.each = nn.ModuleList([nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d)) for _ in range(n)])

        def forward(self, x):
            h = x.view(-1, x.size(-1))
            logits = self.gate(h)
            share, chosen = torch.topk(F.softmax(logits, dim=1, dtype=torch.float), self.k, dim=-1)
            share = share / share.sum(dim=-1, keepdim=True)
            y = torch.zeros(h.shape, dtype=h.dtype, device=h.device)
            mask = F.one_hot(chosen, num_classes=self.n).permute(2, 1, 0)
            for e, net in enumerate(self.each):
                place, token = torch.where(mask[e])
                y.index_add_(0, token, (net(h[None, token].reshape(-1, h.size(1))) * share[token, place, None]).to(h.dtype))
            return y.view_as(x), self.n * (F.softmax(logits, -1).mean(0) * F.one_hot(chosen[:, 0], self.n).float().mean(0)).sum()

    net = begin(torch, Experts(6, 4, 2))
    optimizer, x, out = torch.optim.NAdam(net.parameters(), lr=torch.tensor(0.01)), some(torch, 2, 5, 6), []
    for _ in range(3):
        y, even = net(x)
        loss = ((y - x.roll(1, 1)) ** 2).mean() + 0.01 * even
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        out += [loss.item(), even.item()]
    return out


def volumes(torch):
    """A spatial transformer of volumes (`affine_grid`, `grid_sample`), transposed convolutions, and Dice's loss."""
    nn, F = torch.nn, torch.nn.functional

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.where = nn.Sequential(nn.Conv3d(1, 3, 3), nn.MaxPool3d(2), nn.PReLU(3), nn.Flatten(), nn.Linear(24, 12))
            self.down, self.up, self.out = nn.Conv3d(1, 4, 3, padding=1), nn.ConvTranspose3d(4, 2, 2, 2), nn.Conv3d(3, 1, 1)

        def forward(self, x):
            theta = self.where(x).view(-1, 3, 4) * 0.1 + torch.eye(3, 4)
            x = F.grid_sample(x, F.affine_grid(theta, x.size(), align_corners=False), align_corners=False)
            return torch.sigmoid(self.out(torch.cat([x, self.up(F.max_pool3d(F.instance_norm(self.down(x)), 2))], dim=1)))

    net = begin(torch, Net())
    optimizer, out = torch.optim.RAdam(net.parameters(), lr=0.02), []
    x, y = some(torch, 2, 1, 6, 6, 6), (some(torch, 2, 1, 6, 6, 6, seed=7) > 0).float()
    for _ in range(3):
        p = net(x)
        both = (p * y).sum(dim=(2, 3, 4))
        loss = 1 - ((2 * both + 1) / (p.sum((2, 3, 4)) + y.sum((2, 3, 4)) + 1)).mean() + F.binary_cross_entropy(p, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        out.append(loss.item())
    return out


PROGRAMS = [averaged_and_calibrated, double_backward, experts, lion, noise_schedule, small_gpt, spectral_norms, volumes]
