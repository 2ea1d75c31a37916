"""Programs as people write them for PyTorch: each is given the module `torch`, PyTorch's own or `tengen.pytorch`, and returns numbers.

Weights and data are NumPy's of fixed seeds, so that both give the same numbers. `python tests/pytorch/save_strangers.py` runs them with
PyTorch.
"""

import copy
import math

import numpy as np


def begin(torch, net, seed=0, scale=1.0):
    """Gives a network values that do not depend on any generator of its own."""
    rng = np.random.RandomState(seed)
    with torch.no_grad():
        for p in net.parameters():
            fan = p.numel() / p.shape[0] if p.dim() > 1 else 4.0
            p.copy_(torch.from_numpy((scale * rng.standard_normal(tuple(p.shape)) / math.sqrt(fan)).astype(np.float32)))
    return net


def some(torch, *shape, seed=1):
    return torch.from_numpy(np.random.RandomState(seed).standard_normal(shape).astype(np.float32))


def classes(torch, n, of, seed=2):
    return torch.from_numpy(np.random.RandomState(seed).randint(0, of, n).astype(np.int64))


def perceptron(torch):
    """Gradient accumulation, clipping, a schedule, evaluation by max(1)."""
    nn, F = torch.nn, torch.nn.functional

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1 = nn.Linear(10, 16)
            self.fc2 = nn.Linear(16, 3)
            self.drop = nn.Dropout(0.0)

        def forward(self, x):
            return self.fc2(self.drop(F.relu(self.fc1(x))))

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    net = begin(torch, Net().to(device))
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2, weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=6)
    x, y, out = some(torch, 24, 10).to(device), classes(torch, 24, 3).to(device), []
    for _ in range(6):
        net.train()
        optimizer.zero_grad()
        for i in range(0, 24, 8):
            loss = criterion(net(x[i : i + 8]), y[i : i + 8]) / 3
            loss.backward()
            out.append(loss.item())
        out.append(float(torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)))
        optimizer.step()
        scheduler.step()
        out.append(scheduler.get_last_lr()[0])
    net.eval()
    with torch.no_grad():
        _, predicted = torch.max(net(x), 1)
    return [*out, (predicted == y).sum().item()]


def convolutions(torch):
    """Batch norm, grouped convolutions, pooling that counts the padding, momentum, a loader."""
    nn = torch.nn
    net = begin(torch, nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.AvgPool2d(3, stride=2, padding=1),
        nn.Conv2d(8, 8, 3, padding=1, groups=4, bias=False), nn.GroupNorm(2, 8), nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(8, 4),
    ))  # fmt: skip
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3, nesterov=True)
    data = torch.utils.data.TensorDataset(some(torch, 16, 1, 9, 9), classes(torch, 16, 4))
    loader, out = torch.utils.data.DataLoader(data, batch_size=8), []
    for _ in range(3):
        for images, labels in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(net(images), labels)
            loss.backward()
            optimizer.step()
            out.append(loss.item())
    net.eval()
    with torch.no_grad():
        out.append(net(some(torch, 2, 1, 9, 9, seed=5)).sum().item())
    return [*out, *net[1].running_mean.tolist(), *net[1].running_var.tolist()]


def autoencoder(torch):
    """A VAE: chunk, exp, a sum of squares and a divergence."""
    nn, F = torch.nn, torch.nn.functional

    class VAE(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 8))
            self.decoder = nn.Sequential(nn.Linear(4, 16), nn.LeakyReLU(0.2), nn.Linear(16, 12), nn.Sigmoid())

        def forward(self, x, noise):
            mu, logvar = torch.chunk(self.encoder(x), 2, dim=1)
            z = mu + torch.exp(0.5 * logvar) * noise
            return self.decoder(z), mu, logvar

    net = begin(torch, VAE())
    optimizer, x, out = torch.optim.Adam(net.parameters(), lr=1e-2), torch.sigmoid(some(torch, 6, 12)), []
    for step in range(5):
        recon, mu, logvar = net(x, some(torch, 6, 4, seed=10 + step))
        bce = F.binary_cross_entropy(recon, x, reduction="sum")
        kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
        loss = bce + kld
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        out += [bce.item(), kld.item()]
    return out


def adversaries(torch):
    """A GAN: two optimizers, detach, labels of ones and zeros."""
    nn = torch.nn
    g = begin(torch, nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 6)), 1)
    d = begin(torch, nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1)), 2)
    og = torch.optim.Adam(g.parameters(), lr=2e-3, betas=(0.5, 0.999))
    od = torch.optim.Adam(d.parameters(), lr=2e-3, betas=(0.5, 0.999))
    bce, real, out = nn.BCEWithLogitsLoss(), some(torch, 8, 6), []
    for step in range(5):
        fake = g(some(torch, 8, 4, seed=20 + step))
        od.zero_grad()
        loss_d = bce(d(real), torch.ones(8, 1)) + bce(d(fake.detach()), torch.zeros(8, 1))
        loss_d.backward()
        od.step()
        og.zero_grad()
        loss_g = bce(d(fake), torch.ones_like(d(fake)))
        loss_g.backward()
        og.step()
        out += [loss_d.item(), loss_g.item()]
    return out


def sentences(torch):
    """An LSTM over packed sequences."""
    nn = torch.nn
    rnn = torch.nn.utils.rnn

    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(20, 6, padding_idx=0)
            self.lstm = nn.LSTM(6, 5, batch_first=True, bidirectional=True)
            self.out = nn.Linear(10, 3)

        def forward(self, x, lengths):
            packed = rnn.pack_padded_sequence(self.embedding(x), lengths, batch_first=True, enforce_sorted=False)
            _, (h, _) = self.lstm(packed)
            return self.out(torch.cat([h[-2], h[-1]], dim=1))

    net = begin(torch, Classifier())
    lengths = [3, 5, 2, 4]
    x = rnn.pad_sequence([classes(torch, n, 19, seed=n) + 1 for n in lengths], batch_first=True)
    y, optimizer, out = classes(torch, 4, 3), torch.optim.RMSprop(net.parameters(), lr=1e-2), []
    for _ in range(4):
        optimizer.zero_grad()
        loss = nn.CrossEntropyLoss()(net(x, torch.tensor(lengths)), y)
        loss.backward()
        optimizer.step()
        out.append(loss.item())
    return out


def language(torch):
    """A small GPT: causal masks by tril and masked_fill, weights tied, parameters in two groups."""
    nn, F = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self, c, heads):
            super().__init__()
            self.ln1, self.ln2, self.heads = nn.LayerNorm(c), nn.LayerNorm(c), heads
            self.qkv, self.proj = nn.Linear(c, 3 * c), nn.Linear(c, c)
            self.mlp = nn.Sequential(nn.Linear(c, 2 * c), nn.GELU(approximate="tanh"), nn.Linear(2 * c, c))
            self.register_buffer("mask", torch.tril(torch.ones(16, 16)).view(1, 1, 16, 16))

        def forward(self, x):
            b, t, c = x.size()
            q, k, v = self.qkv(self.ln1(x)).split(c, dim=2)
            q, k, v = (a.view(b, t, self.heads, c // self.heads).transpose(1, 2) for a in (q, k, v))
            att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            att = att.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf"))
            y = F.softmax(att, dim=-1) @ v
            x = x + self.proj(y.transpose(1, 2).contiguous().view(b, t, c))
            return x + self.mlp(self.ln2(x))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(11, 8), nn.Embedding(16, 8)
            self.blocks = nn.ModuleList([Block(8, 2) for _ in range(2)])
            self.ln = nn.LayerNorm(8)
            self.head = nn.Linear(8, 11, bias=False)
            self.head.weight = self.wte.weight

        def forward(self, idx, targets):
            x = self.wte(idx) + self.wpe(torch.arange(idx.size(1), dtype=torch.long))
            for block in self.blocks:
                x = block(x)
            logits = self.head(self.ln(x))
            return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.reshape(-1))

    net = begin(torch, GPT(), scale=0.5)
    decay = [p for p in net.parameters() if p.dim() >= 2]
    rest = [p for p in net.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], lr=1e-2)
    tokens, out = classes(torch, (3, 9), 11), []
    for _ in range(4):
        loss = net(tokens[:, :-1], tokens[:, 1:])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        out.append(loss.item())
    return [*out, len(net.state_dict()), len(list(net.parameters()))]


def encoder(torch):
    """nn.TransformerEncoder and nn.MultiheadAttention with masks."""
    nn = torch.nn
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=True)
    net = begin(torch, nn.TransformerEncoder(layer, 2, enable_nested_tensor=False))
    attention = begin(torch, nn.MultiheadAttention(8, 2), 3)
    x, padding = some(torch, 3, 5, 8), torch.tensor([[False] * 5, [False] * 4 + [True], [False] * 3 + [True] * 2])
    y = net(x, src_key_padding_mask=padding)
    z, weights = attention(x.transpose(0, 1), x.transpose(0, 1), x.transpose(0, 1), key_padding_mask=padding)
    (y.square().mean() + z.square().mean()).backward()
    out = [y[0].sum().item(), z[:, 0].abs().sum().item(), weights.max().item()]
    return [*out, *(p.grad.norm().item() for p in [*net.parameters(), *attention.parameters()])]


def diffusion(torch):
    """DDPM: cumprod of a schedule, noise added, gather by time, an average of the weights."""
    nn = torch.nn
    net = begin(torch, nn.Sequential(nn.Linear(5, 32), nn.SiLU(), nn.Linear(32, 4)))
    ema = copy.deepcopy(net)
    betas = torch.linspace(1e-4, 0.02, 50)
    bars = torch.cumprod(1.0 - betas, dim=0)
    optimizer, x0, out = torch.optim.Adam(net.parameters(), lr=1e-3), some(torch, 8, 4), []
    for step in range(4):
        t, noise = classes(torch, 8, 50, seed=step), some(torch, 8, 4, seed=30 + step)
        a = bars.gather(0, t).unsqueeze(1)
        xt = a.sqrt() * x0 + (1 - a).sqrt() * noise
        loss = nn.functional.mse_loss(net(torch.cat([xt, t.float().unsqueeze(1) / 50], dim=1)), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for p, q in zip(ema.parameters(), net.parameters()):
                p.mul_(0.9).add_(q, alpha=0.1)
        out.append(loss.item())
    return [*out, *(p.sum().item() for p in ema.parameters())]


def adapters(torch):
    """LoRA: frozen weights, parameters that are filtered."""
    nn = torch.nn

    class LoRA(nn.Module):
        def __init__(self, base, rank):
            super().__init__()
            self.base = base
            for p in self.base.parameters():
                p.requires_grad = False
            self.a = nn.Parameter(torch.randn(rank, base.in_features))
            self.b = nn.Parameter(torch.zeros(base.out_features, rank))

        def forward(self, x):
            return self.base(x) + x @ self.a.t() @ self.b.t() * 0.5

    net = begin(torch, nn.Sequential(LoRA(nn.Linear(6, 8), 2), nn.ReLU(), LoRA(nn.Linear(8, 2), 2)))
    trained = [p for p in net.parameters() if p.requires_grad]
    optimizer, out = torch.optim.SGD(filter(lambda p: p.requires_grad, net.parameters()), lr=0.1), [len(trained)]
    before = net[0].base.weight.detach().clone()
    for _ in range(4):
        loss = (net(some(torch, 5, 6)) - 1).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        out.append(loss.item())
    return [*out, float(torch.equal(before, net[0].base.weight)), float(net[0].base.weight.grad is None)]


def learning_to_learn(torch):
    """MAML twice: by autograd.grad(create_graph=True), and by torch.func."""
    nn, F = torch.nn, torch.nn.functional
    net = begin(torch, nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1)))
    params = dict(net.named_parameters())
    x, y = some(torch, 10, 2), some(torch, 10, 1, seed=3)
    loss = F.mse_loss(torch.func.functional_call(net, params, (x,)), y)
    grads = torch.autograd.grad(loss, list(params.values()), create_graph=True)
    fast = {n: p - 0.1 * g for (n, p), g in zip(params.items(), grads)}
    outer = F.mse_loss(torch.func.functional_call(net, fast, (x,)), y)
    outer.backward()
    out = [loss.item(), outer.item(), *(p.grad.norm().item() for p in net.parameters())]
    plain = {n: p.detach() for n, p in params.items()}

    def inner(ps, x, y):
        return F.mse_loss(torch.func.functional_call(net, ps, (x,)), y)

    def adapted(ps):
        g = torch.func.grad(inner)(ps, x, y)
        return inner({n: p - 0.1 * g[n] for n, p in ps.items()}, x, y)

    found = torch.func.grad(adapted)(plain)
    each = torch.func.vmap(torch.func.grad(inner), in_dims=(None, 0, 0))(plain, x, y)
    return [*out, *(found[n].norm().item() for n in plain), *(each[n].abs().sum().item() for n in plain)]


def quality(torch):
    """DQN: a target network, gather, max(1)[0] under no_grad, load_state_dict."""
    nn = torch.nn
    q = begin(torch, nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2)))
    target = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
    target.load_state_dict(q.state_dict())
    optimizer, out = torch.optim.Adam(q.parameters(), lr=1e-2), []
    s, s2, a = some(torch, 12, 4), some(torch, 12, 4, seed=7), classes(torch, 12, 2)
    r, done = some(torch, 12, seed=8), classes(torch, 12, 2, seed=9).float()
    for step in range(5):
        chosen = q(s).gather(1, a.unsqueeze(1)).squeeze(1)
        with torch.no_grad():
            best = torch.max(target(s2), dim=1)[0]
        loss = nn.SmoothL1Loss()(chosen, r + 0.99 * best * (1 - done))
        optimizer.zero_grad()
        loss.backward()
        for p in q.parameters():
            p.grad.data.clamp_(-1, 1)
        optimizer.step()
        if step % 2:
            target.load_state_dict(q.state_dict())
        out.append(loss.item())
    return out


def surrogate(torch):
    """A custom autograd.Function with needs_input_grad, inside of a network."""

    class Step(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, slope):
            ctx.save_for_backward(x)
            ctx.slope = slope
            return (x > 0).float()

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return grad_output / (1 + ctx.slope * x.abs()) ** 2 if ctx.needs_input_grad[0] else None, None

    net = begin(torch, torch.nn.Linear(3, 4))
    x = some(torch, 5, 3).requires_grad_()
    loss = (Step.apply(net(x), 5.0) * some(torch, 5, 4, seed=4)).sum()
    loss.backward()
    return [loss.item(), x.grad.abs().sum().item(), net.weight.grad.norm().item(), net.bias.grad.norm().item()]


def scaled(torch):
    """GradScaler and autocast, both switched off where there is no GPU to speak of, as programs write it."""
    net = begin(torch, torch.nn.Linear(4, 2))
    optimizer, out = torch.optim.SGD(net.parameters(), lr=0.1), []
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for _ in range(3):
        optimizer.zero_grad()
        with torch.autocast("cpu", enabled=False):
            loss = net(some(torch, 6, 4)).square().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_value_(net.parameters(), 0.05)
        scaler.step(optimizer)
        scaler.update()
        out.append(loss.item())
    return [*out, scaler.get_scale()]


PROGRAMS = [
    perceptron, convolutions, autoencoder, adversaries, sentences, language, encoder, diffusion, adapters, learning_to_learn, quality,
    surrogate, scaled,
]  # fmt: skip
