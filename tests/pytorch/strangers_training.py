"""Programs about how networks are trained: schedules, averages, batches, data and memory, as people write them for PyTorch,
as those of `strangers.py`: each is given the module `torch` and returns numbers."""

import copy
import math

import numpy as np
from strangers import begin, classes, some


def distillation(torch):
    """A teacher without gradients, KLDivLoss of temperatures, state dicts copied by name."""
    nn, F = torch.nn, torch.nn.functional
    teacher = begin(torch, nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 3))).eval()
    student = begin(torch, nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3)), 8)
    for p in teacher.parameters():
        p.requires_grad = False
    x, y = some(torch, 10, 5), classes(torch, 10, 3)
    opt = torch.optim.Adam(filter(lambda p: p.requires_grad, student.parameters()), lr=0.02)
    kl, out, T = nn.KLDivLoss(reduction="batchmean", log_target=True), [], 3.0
    for _ in range(3):
        with torch.no_grad():
            soft = F.log_softmax(teacher(x) / T, dim=1)
        s = student(x)
        loss = 0.7 * T * T * kl(F.log_softmax(s / T, dim=1), soft) + 0.3 * F.cross_entropy(s, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        out.append(loss.item())
    return [*out, sum(p.numel() for p in student.parameters() if p.requires_grad)]


def lora_by_parametrization(torch):
    """torch.nn.utils.parametrize as in the LoRA tutorial, merged at the end."""
    nn = torch.nn
    parametrize = nn.utils.parametrize

    class LoRA(nn.Module):
        def __init__(self, features_in, features_out, rank=1, alpha=2.0):
            super().__init__()
            self.lora_A, self.lora_B = nn.Parameter(torch.zeros(rank, features_out)), nn.Parameter(torch.zeros(features_in, rank))
            nn.init.constant_(self.lora_A, 0.3)
            self.scale, self.enabled = alpha / rank, True

        def forward(self, weights):
            return weights + torch.matmul(self.lora_B, self.lora_A).view(weights.shape) * self.scale if self.enabled else weights

    net = begin(torch, nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2)))
    before = net[0].weight.clone().detach()
    for layer in (net[0], net[2]):
        o, i = layer.weight.shape
        parametrize.register_parametrization(layer, "weight", LoRA(o, i))
    for name, p in net.named_parameters():
        p.requires_grad = "lora" in name
    opt, out = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], lr=0.05), []
    x, y = some(torch, 8, 4), classes(torch, 8, 2)
    for _ in range(4):
        loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        out.append(loss.item())
    assert torch.equal(net[0].parametrizations.weight.original, before)
    net[0].parametrizations["weight"][0].enabled = False
    assert torch.equal(net[0].weight, before)
    net[0].parametrizations["weight"][0].enabled = True
    for layer in (net[0], net[2]):
        parametrize.remove_parametrizations(layer, "weight", leave_parametrized=True)
    return [*out, nn.functional.cross_entropy(net(x), y).item(), len(list(net.parameters()))]


def pruning(torch):
    """torch.nn.utils.prune in a loop of training, then made permanent."""
    nn = torch.nn
    prune = nn.utils.prune
    net = begin(torch, nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 16, 3)))
    x, y, out = some(torch, 6, 1, 6, 6), classes(torch, 6, 3), []
    for _, module in net.named_modules():
        if isinstance(module, nn.Conv2d):
            prune.ln_structured(module, name="weight", amount=1, n=2, dim=0)
        elif isinstance(module, nn.Linear):
            prune.l1_unstructured(module, name="weight", amount=0.4)
    opt = torch.optim.SGD(net.parameters(), lr=0.05)
    for _ in range(3):
        loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        out.append(loss.item())
    sparsity = 100.0 * float(torch.sum(net[3].weight == 0)) / float(net[3].weight.nelement())
    prune.remove(net[3], "weight")
    return [*out, sparsity, float(dict(net.named_buffers())["0.weight_mask"].sum())]


def averaged_weights(torch):
    """EMA by deepcopy and lerp_, swa_utils.AveragedModel beside it."""
    nn = torch.nn
    net = begin(torch, nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 1)))
    ema = copy.deepcopy(net).requires_grad_(False)
    swa = torch.optim.swa_utils.AveragedModel(net)
    opt, x, y = torch.optim.SGD(net.parameters(), lr=0.1), some(torch, 9, 3), some(torch, 9, 1, seed=4)
    for step in range(4):
        loss = nn.functional.smooth_l1_loss(net(x), y, beta=0.5)
        opt.zero_grad()
        loss.backward()
        opt.step()
        with torch.no_grad():
            for e, p in zip(ema.parameters(), net.parameters()):
                e.mul_(0.9).add_(p, alpha=0.1)
            for e, p in zip(ema.buffers(), net.buffers()):
                e.copy_(p)
        if step > 1:
            swa.update_parameters(net)
    net.eval(), ema.eval(), swa.eval()
    with torch.no_grad():
        return [*(m(x).mean().item() for m in (net, ema, swa)), loss.item(), int(swa.n_averaged)]


def accumulation_with_amp(torch):
    """autocast(device_type="cpu", dtype=bfloat16) as it is off, a scaler, no_sync-like accumulation."""
    nn = torch.nn
    net = begin(torch, nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)))
    opt = torch.optim.AdamW(net.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    warm = torch.optim.lr_scheduler.LambdaLR(opt, lambda step: min(1.0, (step + 1) / 3))
    x, y, out, steps = some(torch, 12, 4), classes(torch, 12, 2), [], 3
    for i, (a, b) in enumerate(zip(x.split(2), y.split(2))):
        with torch.autocast(device_type="cpu", enabled=False):
            loss = nn.functional.cross_entropy(net(a), b) / steps
        scaler.scale(loss).backward()
        if (i + 1) % steps == 0:
            scaler.unscale_(opt)
            total = torch.nn.utils.clip_grad_norm_(net.parameters(), max_norm=0.5)
            scaler.step(opt)
            scaler.update()
            opt.zero_grad(set_to_none=True)
            warm.step()
            out += [total.item(), opt.param_groups[0]["lr"]]
        out.append(loss.item())
    return out


def lr_finder(torch):
    """Rates that grow exponentially by hand and by ExponentialLR, the state saved and restored."""
    nn = torch.nn
    net = begin(torch, nn.Sequential(nn.Linear(3, 8), nn.ELU(), nn.Linear(8, 1)))
    opt = torch.optim.SGD(net.parameters(), lr=1e-4)
    saved = copy.deepcopy(net.state_dict()), copy.deepcopy(opt.state_dict())
    schedule = torch.optim.lr_scheduler.ExponentialLR(opt, gamma=(1.0 / 1e-4) ** (1 / 5))
    x, y, out = some(torch, 10, 3), some(torch, 10, 1, seed=3), []
    for _ in range(5):
        loss = nn.functional.mse_loss(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        out += [schedule.get_last_lr()[0], loss.item()]
        schedule.step()
    net.load_state_dict(saved[0])
    opt.load_state_dict(saved[1])
    for group in opt.param_groups:
        group["lr"] = 0.05
    one = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=0.1, total_steps=6, cycle_momentum=False)
    for _ in range(5):
        opt.step()
        one.step()
        out.append(one.get_last_lr()[0])
    return [*out, nn.functional.mse_loss(net(x), y).item()]


def data_pipeline(torch):
    """A Dataset, random_split by a generator, a collate function, samplers, an epoch of sums."""
    data = torch.utils.data

    class Squares(data.Dataset):
        def __init__(self, n):
            self.x = torch.arange(n, dtype=torch.float32)

        def __len__(self):
            return len(self.x)

        def __getitem__(self, i):
            return {"x": self.x[i], "y": self.x[i] ** 2, "name": f"item{i}"}

    whole = Squares(11)
    train, test = data.random_split(whole, [8, 3], generator=torch.Generator().manual_seed(0))
    loader = data.DataLoader(data.Subset(whole, range(8)), batch_size=3, shuffle=False, drop_last=False)
    sums = [batch["y"].sum().item() for batch in loader]
    rows = data.TensorDataset(torch.arange(6), torch.ones(6, 2))
    pairs = data.DataLoader(rows, batch_size=4, collate_fn=lambda b: (torch.stack([x for x, _ in b]), len(b)))
    sums += [float(x.sum()) * n for x, n in pairs]
    both = data.ConcatDataset([whole, Squares(2)])
    seen = [int(b["x"]) for part in (train, test) for b in data.DataLoader(part, batch_size=None)]
    weighted = data.WeightedRandomSampler([0.0, 1.0, 0.0], 5)
    return [*sums, len(both), both[12]["y"].item(), sum(seen), len(loader), *list(weighted), len(next(iter(loader))["name"])]


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


def weight_averages(torch):
    """SWA with its schedule and batch norm statistics, beside an exponential average with its own function."""
    nn, swa = torch.nn, torch.optim.swa_utils
    net = begin(torch, nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1)))
    batches = [(some(torch, 8, 3, seed=s), some(torch, 8, 1, seed=s + 10)) for s in range(3)]
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    averaged = swa.AveragedModel(net)
    ema = swa.AveragedModel(net, multi_avg_fn=swa.get_ema_multi_avg_fn(0.8), use_buffers=True)
    plain, slow = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=4), swa.SWALR(opt, swa_lr=0.02, anneal_epochs=2)
    rates = []
    for epoch in range(6):
        for x, y in batches:
            opt.zero_grad(set_to_none=True)
            nn.functional.mse_loss(net(x), y).backward()
            opt.step()
            ema.update_parameters(net)
        if epoch > 2:
            averaged.update_parameters(net)
            slow.step()
        else:
            plain.step()
        rates.append(opt.param_groups[0]["lr"])
    swa.update_bn((x for x, _ in batches), averaged)
    x = batches[0][0]
    return [*rates, averaged.eval()(x).sum().item(), ema.eval()(x).sum().item(), int(averaged.n_averaged), net.eval()(x).sum().item()]


def streams(torch):
    """An IterableDataset shared out among workers, a batch sampler by lengths, a collate function, and a loader that starts anew."""
    data = torch.utils.data

    class Numbers(data.IterableDataset):
        def __init__(self, n):
            self.n = n

        def __iter__(self):
            info = data.get_worker_info()
            start, step = (0, 1) if info is None else (info.id, info.num_workers)
            for i in range(start, self.n, step):
                yield torch.tensor([i, i * i])

    class ByLength(data.Sampler):
        def __init__(self, lengths, size):
            self.lengths, self.size = lengths, size

        def __iter__(self):
            order = sorted(range(len(self.lengths)), key=self.lengths.__getitem__)
            yield from (order[i : i + self.size] for i in range(0, len(order), self.size))

        def __len__(self):
            return -(-len(self.lengths) // self.size)

    class Words(data.Dataset):
        words = [torch.arange(n) for n in (5, 2, 7, 3, 1)]

        def __len__(self):
            return len(self.words)

        def __getitem__(self, i):
            return {"ids": self.words[i], "label": i}

    def pad(batch):
        ids = torch.nn.utils.rnn.pad_sequence([b["ids"] for b in batch], batch_first=True, padding_value=-1)
        return ids, torch.tensor([b["label"] for b in batch])

    alone = [b.sum().item() for b in data.DataLoader(Numbers(7), batch_size=3)]
    shared = sorted(int(v) for b in data.DataLoader(Numbers(9), batch_size=2, num_workers=2) for v in b[:, 1])
    words = Words()
    loader = data.DataLoader(words, batch_sampler=ByLength([len(w) for w in words.words], 2), collate_fn=pad)
    shapes = [(*ids.shape, ids.sum().item(), labels.sum().item()) for ids, labels in loader]
    weights = data.WeightedRandomSampler([0.0, 0.0, 1.0, 0.0, 0.0], 4, replacement=True)
    drawn = [int(labels) for _, labels in data.DataLoader(words, 1, sampler=weights, collate_fn=pad)]
    pairs = data.StackDataset(a=words.words, b=list(range(5)))
    return [*alone, *shared, *np.ravel(shapes), *drawn, len(loader), pairs[2]["b"], len(data.ChainDataset([Numbers(2), Numbers(3)]).datasets)]


def sharpness(torch):
    """Sharpness-aware steps around an optimizer, with a schedule that warms up, on a network with a state-space layer by a scan."""
    nn = torch.nn

    class Sam(torch.optim.Optimizer):
        def __init__(self, params, base, rho=0.05, **kwargs):
            super().__init__(params, dict(rho=rho, **kwargs))
            self.base = base(self.param_groups, **kwargs)
            self.param_groups = self.base.param_groups

        @torch.no_grad()
        def first_step(self):
            norm = torch.norm(torch.stack([p.grad.norm(p=2) for g in self.param_groups for p in g["params"] if p.grad is not None]), p=2)
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        self.state[p]["old"] = p.data.clone()
                        p.add_(p.grad * group["rho"] / (norm + 1e-12))
            self.zero_grad()

        @torch.no_grad()
        def second_step(self):
            for p in (p for g in self.param_groups for p in g["params"] if p.grad is not None):
                p.data = self.state[p]["old"]
            self.base.step()
            self.zero_grad()

    class StateSpace(nn.Module):
        def __init__(self, d=3, n=4):
            super().__init__()
            self.a, self.b, self.c = nn.Parameter(torch.zeros(d, n)), nn.Linear(d, n), nn.Linear(d, n)
            self.step = nn.Linear(d, d)

        def forward(self, u):
            delta = nn.functional.softplus(self.step(u))
            decay = torch.exp(-delta.unsqueeze(-1) * self.a.exp())
            drive = delta.unsqueeze(-1) * self.b(u).unsqueeze(-2) * u.unsqueeze(-1)
            h, ys = torch.zeros_like(drive[:, 0]), []
            for t in range(u.shape[1]):
                h = decay[:, t] * h + drive[:, t]
                ys.append(torch.einsum("bdn,bn->bd", h, self.c(u[:, t])))
            return torch.stack(ys, 1)

    net = begin(torch, nn.Sequential(StateSpace(), nn.RMSNorm(3), nn.Linear(3, 1)))
    opt = Sam(net.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9)
    warm = torch.optim.lr_scheduler.LinearLR(opt.base, 0.5, total_iters=2)
    rates = torch.optim.lr_scheduler.SequentialLR(opt.base, [warm, torch.optim.lr_scheduler.ExponentialLR(opt.base, 0.8)], [2])
    x, y, out = some(torch, 4, 5, 3), some(torch, 4, 5, 1, seed=6), []
    for _ in range(4):
        loss = nn.functional.huber_loss(net(x), y)
        loss.backward()
        opt.first_step()
        nn.functional.huber_loss(net(x), y).backward()
        opt.second_step()
        rates.step()
        out += [loss.item(), opt.base.param_groups[0]["lr"]]
    return out


def rate_finder(torch):
    """A sweep of rates with states saved and put back, then a one-cycle run, then plateaus."""
    nn = torch.nn
    net = begin(torch, nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1)))
    opt = torch.optim.SGD(net.parameters(), lr=1e-4, momentum=0.9)
    saved = copy.deepcopy(net.state_dict()), copy.deepcopy(opt.state_dict())
    x, y = some(torch, 32, 5), some(torch, 32, 1, seed=5)

    def step():
        loss = nn.functional.mse_loss(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.item()

    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda i: 1.5**i)
    found, best, average = [], math.inf, 0.0
    for i in range(24):
        loss = step()
        average = 0.9 * average + 0.1 * loss
        smooth = average / (1 - 0.9 ** (i + 1))
        if i > 3 and smooth > 4 * best:
            break
        best = min(best, smooth)
        found.append((opt.param_groups[0]["lr"], smooth))
        sched.step()
    net.load_state_dict(saved[0])
    opt.load_state_dict(saved[1])
    back = nn.functional.mse_loss(net(x), y).item()
    cycle = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=0.05, total_steps=10)
    losses = []
    for _ in range(10):
        losses.append(step())
        cycle.step()
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, factor=0.5, patience=1)
    for value in (1.0, 1.0, 1.0, 1.0, 0.5):
        plateau.step(value)
    return [len(found), found[5][1], back, *losses, opt.param_groups[0]["lr"] * 1e6]


def averages(torch):
    """An EMA that swaps weights in and out, by hand and by AveragedModel, and SWA with its schedule."""
    nn, swa = torch.nn, torch.optim.swa_utils

    class EMA:
        def __init__(self, model, decay):
            self.model, self.decay = model, decay
            self.shadow = {n: p.data.clone() for n, p in model.named_parameters() if p.requires_grad}
            self.backup = {}

        def update(self):
            for n, p in self.model.named_parameters():
                self.shadow[n] = (1.0 - self.decay) * p.data + self.decay * self.shadow[n]

        def apply_shadow(self):
            for n, p in self.model.named_parameters():
                self.backup[n] = p.data
                p.data = self.shadow[n]

        def restore(self):
            for n, p in self.model.named_parameters():
                p.data = self.backup[n]
            self.backup = {}

    net = begin(torch, nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1)))
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    ema = EMA(net, 0.8)
    averaged = swa.AveragedModel(net, multi_avg_fn=swa.get_ema_multi_avg_fn(0.8))
    swa_model, swa_rate = swa.AveragedModel(net), swa.SWALR(opt, swa_lr=0.02, anneal_epochs=2)
    x, y = some(torch, 16, 4), some(torch, 16, 1, seed=3)
    for i in range(6):
        loss = nn.functional.mse_loss(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        ema.update()
        averaged.update_parameters(net)
        if i > 2:
            swa_model.update_parameters(net)
            swa_rate.step()
    now = net(x).sum().item()
    ema.apply_shadow()
    shadow = net(x).sum().item()
    ema.restore()
    return [loss.item(), now, shadow, net(x).sum().item() - now, averaged(x).sum().item(), swa_model(x).sum().item(), opt.param_groups[0]["lr"]]


def loaders(torch):
    """Samplers, batches by length, a collate function, an iterable dataset, splits, workers' seeds."""
    data = torch.utils.data

    class Rows(data.Dataset):
        def __init__(self, n):
            self.x = some(torch, n, 3)
            self.length = [(i * 7) % 5 + 1 for i in range(n)]

        def __len__(self):
            return len(self.x)

        def __getitem__(self, i):
            return {"x": self.x[i], "n": self.length[i], "name": f"row{i}", "seq": torch.arange(self.length[i]).float()}

    class ByLength(data.Sampler):
        def __init__(self, source, size):
            self.order = sorted(range(len(source)), key=lambda i: source.length[i])
            self.size = size

        def __iter__(self):
            for i in range(0, len(self.order), self.size):
                yield self.order[i : i + self.size]

        def __len__(self):
            return -(-len(self.order) // self.size)

    def collate(rows):
        seqs = torch.nn.utils.rnn.pad_sequence([r["seq"] for r in rows], batch_first=True, padding_value=-1.0)
        return torch.stack([r["x"] for r in rows]), torch.tensor([r["n"] for r in rows]), seqs, [r["name"] for r in rows]

    class Stream(data.IterableDataset):
        def __iter__(self):
            return iter(range(7))

    rows, numbers = Rows(10), []
    for x, n, seqs, names in data.DataLoader(rows, batch_sampler=ByLength(rows, 4), collate_fn=collate):
        numbers += [x.sum().item(), n.sum().item(), seqs.sum().item(), len(names)]
    parts = data.random_split(rows, [7, 3], generator=torch.Generator().manual_seed(0))
    numbers += [len(parts[0]), len(parts[1]), len({r["name"] for p in parts for r in p})]
    numbers += [b.sum().item() for b in data.DataLoader(Stream(), batch_size=3)]
    weighted = data.WeightedRandomSampler([0.0, 0.0, 1.0], 5, replacement=True)
    numbers += list(weighted)
    subset = data.Subset(rows, [1, 3, 5])
    joined = data.ConcatDataset([subset, parts[1]])
    tensors = data.TensorDataset(some(torch, 6, 2), torch.arange(6))
    first = next(iter(data.DataLoader(tensors, batch_size=4, sampler=data.SequentialSampler(tensors), drop_last=True, num_workers=0)))
    return [*numbers, len(joined), joined[1]["n"], first[0].sum().item(), first[1].sum().item()]


def truncated_backprop(torch):
    """A recurrent network over segments, whose state is detached, in place and not; and what the mistake of not doing it says."""
    nn = torch.nn
    net = begin(torch, nn.GRUCell(3, 5))
    head = begin(torch, nn.Linear(5, 1))
    opt = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.1)
    h, losses = torch.zeros(2, 5), []
    for segment in range(3):
        total = 0.0
        for t in range(4):
            h = net(some(torch, 2, 3, seed=4 * segment + t), h)
            total = total + (head(h) - 1).pow(2).mean()
        opt.zero_grad()
        total.backward()
        opt.step()
        losses.append(total.item())
        h = h.detach_() if segment else h.detach()
    h2 = net(some(torch, 2, 3), torch.zeros(2, 5))
    head(h2).sum().backward()
    try:
        head(net(some(torch, 2, 3), h2)).sum().backward()
        told = 0
    except RuntimeError:
        told = 1
    running = 0
    for i in range(3):
        loss = (head(torch.ones(1, 5)) * i).sum()
        loss.backward()
        running += loss
    return [*losses, told, float(running), h.sum().item()]


def checkpointed(torch):
    """`checkpoint` of blocks, with and without reentrance, and `checkpoint_sequential`: the gradients are those without."""
    from importlib import import_module

    utils = import_module(f"{torch.__name__}.utils.checkpoint")
    nn = torch.nn

    def run(how):
        blocks = begin(torch, nn.Sequential(*[nn.Sequential(nn.Linear(6, 6), nn.GELU(), nn.LayerNorm(6)) for _ in range(4)]))
        x = some(torch, 5, 6).requires_grad_()
        if how == "sequential":
            y = utils.checkpoint_sequential(blocks, 2, x, use_reentrant=False)
        else:
            y = x
            for block in blocks:
                y = block(y) if how is None else utils.checkpoint(block, y, use_reentrant=how)
        (y * some(torch, 5, 6, seed=2)).sum().backward()
        return [x.grad.norm().item(), *(p.grad.norm().item() for p in list(blocks.parameters())[:3])]

    return [v for how in (None, False, True, "sequential") for v in run(how)]


PROGRAMS = [
    distillation, lora_by_parametrization, pruning, averaged_weights, accumulation_with_amp, lr_finder, data_pipeline,
    large_batches, weight_averages, streams, sharpness, rate_finder, averages, loaders, truncated_backprop, checkpointed,
]  # fmt: skip
