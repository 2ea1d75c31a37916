"""Programs of a newer kind as people write them for PyTorch, as those of `strangers.py`: each is given the module `torch` and returns
numbers."""

import math
from collections import defaultdict

import numpy as np
from strangers import begin, classes, some


def rotary_cache(torch):
    """A decoder with rotary positions and grouped keys, written token by token into a cache, beside the whole sequence at once."""
    nn, F = torch.nn, torch.nn.functional

    def rotate(x, cos, sin):
        a, b = x.chunk(2, dim=-1)
        return x * cos + torch.cat((-b, a), dim=-1) * sin

    class Attention(nn.Module):
        def __init__(self, dim=16, heads=4, kv_heads=2, length=12):
            super().__init__()
            self.heads, self.kv_heads, self.size = heads, kv_heads, dim // heads
            self.q, self.kv = nn.Linear(dim, dim, bias=False), nn.Linear(dim, 2 * kv_heads * self.size, bias=False)
            self.out = nn.Linear(dim, dim, bias=False)
            inverse = 1.0 / (10000 ** (torch.arange(0, self.size, 2).float() / self.size))
            angles = torch.outer(torch.arange(length).float(), inverse)
            angles = torch.cat((angles, angles), dim=-1)
            self.register_buffer("cos", angles.cos(), persistent=False)
            self.register_buffer("sin", angles.sin(), persistent=False)
            self.register_buffer("k_cache", torch.zeros(2, kv_heads, length, self.size), persistent=False)
            self.register_buffer("v_cache", torch.zeros(2, kv_heads, length, self.size), persistent=False)

        def forward(self, x, pos):
            b, t, _ = x.shape
            q = self.q(x).view(b, t, self.heads, self.size).transpose(1, 2)
            k, v = self.kv(x).view(b, t, 2, self.kv_heads, self.size).permute(2, 0, 3, 1, 4).unbind(0)
            cos, sin = self.cos[pos], self.sin[pos]
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
            with torch.no_grad():
                self.k_cache[:, :, pos] = k
                self.v_cache[:, :, pos] = v
            end = int(pos[-1]) + 1
            if t > 1:
                keys, values, mask = k, v, torch.ones(t, t, dtype=torch.bool).tril()
            else:
                keys, values, mask = self.k_cache[:, :, :end], self.v_cache[:, :, :end], None
            keys = keys.repeat_interleave(self.heads // self.kv_heads, dim=1)
            values = values.repeat_interleave(self.heads // self.kv_heads, dim=1)
            y = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
            return self.out(y.transpose(1, 2).reshape(b, t, -1))

    net = begin(torch, Attention())
    x = some(torch, 2, 7, 16)
    whole = net(x, torch.arange(7))
    whole.pow(2).mean().backward()
    with torch.inference_mode():
        steps = torch.cat([net(x[:, i : i + 1], torch.tensor([i])) for i in range(7)], dim=1)
    return [whole.abs().sum().item(), (steps - whole).abs().max().item(), *(p.grad.norm().item() for p in net.parameters())]


def blockwise_attention(torch):
    """Softmax over blocks of keys with running maxima, as flash attention is explained, with a mask of padding and a bias by distance."""
    q, k, v = (some(torch, 2, 3, 9, 4, seed=s).requires_grad_() for s in (1, 2, 3))
    lengths = torch.tensor([9, 5])
    hidden = torch.arange(9)[None, :] >= lengths[:, None]
    slopes = torch.tensor([2.0 ** -(i + 1) for i in range(3)])
    bias = -slopes[:, None, None] * (torch.arange(9)[:, None] - torch.arange(9)[None, :]).abs()
    bias = bias[None].masked_fill(hidden[:, None, None, :], float("-inf"))
    out, top = torch.zeros_like(q), q.new_full((2, 3, 9, 1), -torch.inf)
    total = torch.zeros_like(top)
    for start in range(0, 9, 4):
        stop = min(start + 4, 9)
        s = torch.einsum("bhid,bhjd->bhij", q, k[:, :, start:stop]) / math.sqrt(4) + bias[..., start:stop]
        new = torch.maximum(top, s.amax(-1, keepdim=True))
        safe = torch.where(torch.isinf(new), torch.zeros_like(new), new)
        p, fade = torch.exp(s - safe), torch.exp(top - safe)
        total = total * fade + p.sum(-1, keepdim=True)
        out = out * fade + p @ v[:, :, start:stop]
        top = new
    out = out / total
    plain = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    grads = torch.autograd.grad(out.square().sum(), (q, k, v))
    return [out.sum().item(), (out - plain).abs().max().item(), *(g.norm().item() for g in grads)]


def stacked_models(torch):
    """An ensemble by stack_module_state and functional_call under vmap, its gradients per model, and the disagreement of its predictions."""
    nn = torch.nn
    from_state, vmap, grad = torch.func.functional_call, torch.func.vmap, torch.func.grad
    models = [begin(torch, nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)), seed=s) for s in range(4)]
    params, buffers = torch.func.stack_module_state(models)
    base = models[0]
    x, y = some(torch, 10, 3), some(torch, 10, 1, seed=4)
    call = lambda p, b, x: from_state(base, (p, b), (x,))
    loss = lambda p, b, x, y: ((call(p, b, x) - y) ** 2).mean()
    losses = []
    for _ in range(3):
        grads = vmap(grad(loss), in_dims=(0, 0, None, None))(params, buffers, x, y)
        with torch.no_grad():
            params = {n: p - 0.1 * grads[n] for n, p in params.items()}
        losses.append(vmap(loss, (0, 0, None, None))(params, buffers, x, y))
    predicted = vmap(call, (0, 0, None))(params, buffers, x)
    jacobian = vmap(torch.func.jacrev(lambda x: call({n: p[1] for n, p in params.items()}, {}, x)))(x)
    return [*losses[-1].tolist(), predicted.std(0).sum().item(), predicted.var(0, correction=0).sum().item(), jacobian.norm().item()]


def constrained(torch):
    """Parametrizations with right inverses: a symmetric weight, a positive one, and a cached block; then removed."""
    nn, P = torch.nn, torch.nn.utils.parametrize

    class Symmetric(nn.Module):
        def forward(self, x):
            return x.triu() + x.triu(1).transpose(-1, -2)

        def right_inverse(self, a):
            return a.triu()

    class Exponential(nn.Module):
        def forward(self, x):
            return torch.exp(x)

        def right_inverse(self, a):
            return torch.log(a)

    net = begin(torch, nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)))
    P.register_parametrization(net[0], "weight", Symmetric())
    with torch.no_grad():
        net[1].weight.copy_(net[1].weight.abs() + 0.1)
    P.register_parametrization(net[1], "weight", Exponential())
    before = net[1].weight.sum().item()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    x, out = some(torch, 6, 4), []
    for _ in range(3):
        with P.cached():
            loss = net(net(x).repeat(1, 2)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        out.append(loss.item())
    asymmetry = (net[0].weight - net[0].weight.T).abs().max().item()
    names = len(dict(net.named_parameters()))
    P.remove_parametrizations(net[0], "weight", leave_parametrized=True)
    positive = (net[1].weight > 0).float().mean().item()
    return [before, *out, asymmetry, names, float(P.is_parametrized(net[0])), positive, net[0].weight.sum().item()]


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


def mixed_labels(torch):
    """Mixup and CutMix with soft targets, label smoothing, a focal loss, and accumulated gradients under a scaler, with clipping."""
    nn, F = torch.nn, torch.nn.functional
    net = begin(torch, nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)))
    opt = torch.optim.AdamW(net.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    rng, out = np.random.default_rng(0), []

    def focal(logits, target, gamma=2.0):
        logp = F.log_softmax(logits, -1)
        pt = logp.gather(1, target.unsqueeze(1)).squeeze(1).exp()
        return (-((1 - pt) ** gamma) * pt.log()).mean()

    for step in range(4):
        x, y = some(torch, 6, 1, 6, 6, seed=step), classes(torch, 6, 3, seed=step)
        lam, order = float(rng.beta(0.4, 0.4)), torch.from_numpy(rng.permutation(6))
        soft = F.one_hot(y, 3).float()
        if step % 2:
            x = x.clone()
            x[:, :, 1:4, 2:5] = x[order][:, :, 1:4, 2:5]
            lam = 1 - 9 / 36
        else:
            x = lam * x + (1 - lam) * x[order]
        soft = soft.lerp(soft[order], 1 - lam)
        with torch.autocast("cpu", enabled=False):
            logits = net(x)
            loss = nn.CrossEntropyLoss(label_smoothing=0.1)(logits, soft) + 0.5 * focal(logits, y)
        scaler.scale(loss / 2).backward()
        if step % 2:
            scaler.unscale_(opt)
            norm = nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            scaler.step(opt)
            scaler.update()
            opt.zero_grad()
            out.append(float(norm))
        out.append(loss.item())
    return out


def two_results(torch):
    """Custom Functions of several results, of which some have no gradient, one that needs no gradient of an input, and gradcheck."""

    class Polar(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y, scale):
            r = torch.sqrt(x * x + y * y)
            octant = (x > y).long()
            ctx.save_for_backward(x, y, r)
            ctx.scale = scale
            ctx.mark_non_differentiable(octant)
            ctx.set_materialize_grads(False)
            return r * scale, torch.atan2(y, x), octant

        @staticmethod
        def backward(ctx, of_r, of_angle, _):
            x, y, r = ctx.saved_tensors
            gx = gy = None
            if of_r is not None:
                gx, gy = of_r * ctx.scale * x / r, of_r * ctx.scale * y / r
            if of_angle is not None:
                gx = -of_angle * y / r**2 + (0 if gx is None else gx)
                gy = of_angle * x / r**2 + (0 if gy is None else gy)
            return gx, (gy if ctx.needs_input_grad[1] else None), None

    x, y = some(torch, 5).double().requires_grad_(), (some(torch, 5, seed=2).double() + 3).requires_grad_()
    r, angle, octant = Polar.apply(x, y, 2.0)
    (r * angle).sum().backward(retain_graph=True)
    first = x.grad.clone()
    x.grad = y.grad = None
    r.sum().backward()
    ok = torch.autograd.gradcheck(lambda x, y: Polar.apply(x, y, 0.5)[:2], (x, y))
    return [first.sum().item(), x.grad.sum().item(), y.grad.sum().item(), octant.sum().item(), float(octant.requires_grad), float(ok)]


def feature_hooks(torch):
    """Features of inner layers by forward hooks, Grad-CAM by hooks of tensors, and a pre-hook that changes the input."""
    nn = torch.nn
    body = nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Conv2d(4, 6, 3), nn.ReLU()
    net = begin(torch, nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3)))
    seen, slopes = {}, []

    def keep(name):
        def hook(module, args, kwargs, output):
            seen[name] = output
            if output.requires_grad:
                output.register_hook(slopes.append)

        return hook

    handles = [net.get_submodule(n).register_forward_hook(keep(n), with_kwargs=True) for n in ("0", "2")]
    handles.append(net.register_forward_pre_hook(lambda module, args: (args[0] - args[0].mean((2, 3), keepdim=True),)))
    x = some(torch, 2, 2, 8, 8)
    scores = net(x)
    scores[torch.arange(2), scores.argmax(1)].sum().backward()
    weights = slopes[0].mean(dim=(2, 3), keepdim=True)
    cam = torch.relu((weights * seen["2"]).sum(1))
    cam = nn.functional.interpolate(cam[:, None], size=(8, 8), mode="bilinear", align_corners=False)
    cam = (cam - cam.amin((1, 2, 3), True)) / (cam.amax((1, 2, 3), True) - cam.amin((1, 2, 3), True) + 1e-8)
    for handle in handles:
        handle.remove()
    again = net(x)
    first = seen["0"].abs().mean().item()
    return [scores.sum().item(), cam.sum().item(), first, len(slopes), slopes[1].norm().item(), again.sum().item(), len(seen)]


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


def masked_autoencoder(torch):
    """Patches of which most are hidden by sorted noise, put back by gather, with a normalised loss on the hidden ones alone."""
    nn, F = torch.nn, torch.nn.functional
    x = some(torch, 2, 1, 8, 8)
    patches = F.unfold(x, 2, stride=2).transpose(1, 2)
    n, length, dim = patches.shape
    noise = some(torch, n, length, seed=7)
    order = torch.argsort(noise, dim=1)
    back = torch.argsort(order, dim=1)
    kept = order[:, : length // 4]
    mask = torch.ones(n, length)
    mask[:, : length // 4] = 0
    mask = torch.gather(mask, dim=1, index=back)

    class Auto(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.token = nn.Linear(dim, 8), nn.Parameter(torch.zeros(1, 1, 8))
            self.pos = nn.Parameter(torch.zeros(1, length, 8))
            layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
            self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
            self.head = nn.Linear(8, dim)

        def forward(self, p):
            h = self.embed(p) + self.pos
            h = torch.gather(h, 1, kept.unsqueeze(-1).expand(-1, -1, 8))
            h = self.encoder(h)
            hidden = self.token.expand(n, length - h.shape[1], -1)
            h = torch.gather(torch.cat([h, hidden], 1), 1, back.unsqueeze(-1).repeat(1, 1, 8))
            return self.head(h + self.pos)

    net = begin(torch, Auto())
    target = (patches - patches.mean(-1, keepdim=True)) / (patches.var(-1, keepdim=True) + 1e-6) ** 0.5
    loss = (((net(patches) - target) ** 2).mean(-1) * mask).sum() / mask.sum()
    loss.backward()
    folded = F.fold(patches.transpose(1, 2), (8, 8), 2, stride=2)
    return [loss.item(), mask.sum().item(), net.token.grad.norm().item(), net.pos.grad.norm().item(), (folded - x).abs().max().item()]


def image_and_text(torch):
    """CLIP's symmetric loss with a learned temperature, its accuracy, and a memory of both towers' gradients."""
    nn, F = torch.nn, torch.nn.functional

    class Clip(nn.Module):
        def __init__(self):
            super().__init__()
            self.image = nn.Sequential(nn.Conv2d(1, 4, 3, stride=2), nn.GELU(), nn.Flatten(1), nn.LazyLinear(6))
            self.words, self.text = nn.Embedding(11, 6, padding_idx=0), nn.GRU(6, 6, batch_first=True)
            self.logit_scale = nn.Parameter(torch.ones([]) * np.log(1 / 0.07))

        def forward(self, images, ids):
            a = F.normalize(self.image(images), dim=-1)
            h, _ = self.text(self.words(ids))
            b = F.normalize(h[torch.arange(len(ids)), ids.ne(0).sum(1) - 1], dim=-1)
            scale = self.logit_scale.exp().clamp(max=100)
            return scale * a @ b.t()

    images, ids = some(torch, 4, 1, 7, 7), torch.tensor([[1, 2, 3, 0], [4, 5, 0, 0], [6, 7, 8, 9], [10, 1, 0, 0]])
    net = Clip()
    net(images, ids)
    for tower in (net.image, net.words, net.text):
        begin(torch, tower)
    with torch.no_grad():
        net.words.weight[0].zero_()
    vectors, matrices = [p for p in net.parameters() if p.ndim < 2], [p for p in net.parameters() if p.ndim >= 2]
    groups = [{"params": vectors, "weight_decay": 0.0}, {"params": matrices, "weight_decay": 0.2}]
    opt = torch.optim.AdamW(groups, lr=5e-3, betas=(0.9, 0.98), eps=1e-6)
    out, target = [], torch.arange(4)
    for _ in range(4):
        logits = net(images, ids)
        loss = (F.cross_entropy(logits, target) + F.cross_entropy(logits.t(), target)) / 2
        opt.zero_grad()
        loss.backward()
        opt.step()
        with torch.no_grad():
            net.logit_scale.clamp_(0, math.log(100))
        out.append(loss.item())
    return [*out, (logits.argmax(-1) == target).float().mean().item(), net.logit_scale.item(), net.words.weight.grad[0].abs().sum().item()]


def transducer(torch):
    """The RNN-T loss by its recursion over a lattice in log space, with gradients, as loops write it."""
    joint = some(torch, 2, 4, 3, 5).log_softmax(-1).requires_grad_()
    labels, frames, many = torch.tensor([[1, 2], [3, 0]]), [4, 3], [2, 1]
    total = 0
    for b in range(2):
        alpha = defaultdict(lambda: joint.new_tensor(-1e30))
        alpha[0, 0] = joint.new_zeros(())
        for t in range(frames[b]):
            for u in range(many[b] + 1):
                if t == u == 0:
                    continue
                stay = alpha[t - 1, u] + joint[b, t - 1, u, 0] if t else joint.new_tensor(-1e30)
                emit = alpha[t, u - 1] + joint[b, t, u - 1, labels[b, u - 1]] if u else joint.new_tensor(-1e30)
                alpha[t, u] = torch.logaddexp(stay, emit)
        total = total - (alpha[frames[b] - 1, many[b]] + joint[b, frames[b] - 1, many[b], 0])
    (g,) = torch.autograd.grad(total, joint)
    return [total.item(), g.sum().item(), g.norm().item(), g[1, 3].abs().sum().item()]


def beams(torch):
    """Beam search with a length penalty over an LSTM cell's states, which are reordered, and nucleus and top-k filters."""
    nn, F = torch.nn, torch.nn.functional
    cell, embed, head = nn.LSTMCell(6, 8), nn.Embedding(9, 6), nn.Linear(8, 9)
    begin(torch, nn.ModuleList([cell, embed, head]), scale=2.0)
    width, end = 3, 8
    with torch.no_grad():
        tokens = torch.zeros(1, 1, dtype=torch.long)
        state, scores, done = (torch.zeros(1, 8), torch.zeros(1, 8)), torch.zeros(1), []
        for _ in range(6):
            state = cell(embed(tokens[:, -1]), state)
            logp = F.log_softmax(head(state[0]), -1) + scores[:, None]
            best, flat = logp.view(-1).topk(width + len(done))
            rows, words = torch.div(flat, 9, rounding_mode="floor"), flat % 9
            keep = [i for i in range(len(flat)) if int(words[i]) != end][:width]
            ended = [i for i in range(len(flat)) if int(words[i]) == end]
            done += [(best[i].item() / (tokens.shape[1] + 1) ** 0.6, [*tokens[rows[i]].tolist(), end]) for i in ended]
            rows, words, scores = rows[keep], words[keep], best[keep]
            tokens = torch.cat([tokens[rows], words[:, None]], 1)
            state = tuple(s.index_select(0, rows) for s in state)
        logits = head(state[0])
        ordered, places = torch.sort(logits, descending=True, dim=-1)
        cut = ordered.softmax(-1).cumsum(-1) > 0.8
        cut[..., 1:] = cut[..., :-1].clone()
        cut[..., 0] = False
        nucleus = logits.masked_fill(cut.scatter(1, places, cut), -float("inf")).softmax(-1)
        top = logits.masked_fill(logits < logits.topk(3).values[..., -1, None], float("-inf")).softmax(-1)
    figures = [nucleus.max().item(), (nucleus > 0).sum().item(), top.sum().item(), top.max().item()]
    return [*tokens.flatten().tolist(), *scores.tolist(), len(done), *figures]


def clusters(torch):
    """k-means by cdist and scatter, PCA by svd and by the covariance's eigenvectors, and whitening."""
    x = torch.cat([some(torch, 12, 4, seed=s) * 0.3 + s for s in range(3)])
    centres = x[[0, 12, 24]].clone()
    for _ in range(5):
        label = torch.cdist(x, centres).argmin(1)
        sums = torch.zeros_like(centres).index_add_(0, label, x)
        counts = torch.bincount(label, minlength=3).clamp(min=1)
        new = sums / counts[:, None]
        if torch.allclose(new, centres):
            break
        centres = new
    inertia = ((x - centres[label]) ** 2).sum()
    middle = x - x.mean(0)
    u, s, vh = torch.linalg.svd(middle, full_matrices=False)
    values, vectors = torch.linalg.eigh(torch.cov(x.T))
    white = middle @ vectors @ torch.diag(values.rsqrt()) @ vectors.T
    _, low, _ = torch.pca_lowrank(x, q=2, niter=8)
    differences = [s**2 / 35 - values.flip(0), torch.cov(white.T) - torch.eye(4), u @ torch.diag(s) @ vh - middle]  # roundings
    small = [1e-2 * d.abs().max().item() for d in differences]
    return [inertia.item(), *counts.tolist(), *small, *low.tolist(), torch.linalg.matrix_rank(middle).item()]


def gaussian_process(torch):
    """Hyperparameters of a Gaussian process by the marginal likelihood and LBFGS, in float64, and its predictions."""
    x = torch.linspace(0, 3, 9, dtype=torch.float64)
    y = torch.sin(2 * x) + 0.1 * some(torch, 9).double()
    logs = torch.zeros(3, dtype=torch.float64, requires_grad=True)

    def kernel(a, b):
        length, scale = logs[0].exp(), logs[1].exp()
        return scale * torch.exp(-0.5 * ((a[:, None] - b[None, :]) / length) ** 2)

    def loss():
        k = kernel(x, x) + (logs[2].exp() * 0.1 + 1e-6) * torch.eye(9, dtype=torch.float64)
        low = torch.linalg.cholesky(k)
        solved = torch.cholesky_solve(y[:, None], low)
        return 0.5 * (y @ solved).squeeze() + low.diagonal().log().sum() + 4.5 * math.log(2 * math.pi)

    opt = torch.optim.LBFGS([logs], lr=0.5, max_iter=8, line_search_fn="strong_wolfe")

    def closure():
        opt.zero_grad()
        value = loss()
        value.backward()
        return value

    start = opt.step(closure).item()
    with torch.no_grad():
        at = torch.tensor([0.5, 1.7, 4.0], dtype=torch.float64)
        low = torch.linalg.cholesky(kernel(x, x) + (logs[2].exp() * 0.1 + 1e-6) * torch.eye(9, dtype=torch.float64))
        cross = kernel(x, at)
        mean = cross.T @ torch.cholesky_solve(y[:, None], low).squeeze(1)
        v = torch.linalg.solve_triangular(low, cross, upper=False)
        variance = kernel(at, at).diagonal() - v.square().sum(0)
    return [start, loss().item(), *logs.tolist(), *mean.tolist(), *variance.tolist()]


def radiance(torch):
    """A NeRF's rendering along rays: positional encodings, exclusive products of transmittance, and importance samples by searchsorted."""
    nn, F = torch.nn, torch.nn.functional
    encode = lambda x: torch.cat([x, *(f(x * 2.0**k) for k in range(3) for f in (torch.sin, torch.cos))], -1)
    net = begin(torch, nn.Sequential(nn.Linear(21, 16), nn.ReLU(), nn.Linear(16, 4)))
    origin, direction = some(torch, 5, 3), F.normalize(some(torch, 5, 3, seed=3), dim=-1)
    z = torch.linspace(0.5, 2.5, 8).expand(5, 8)

    def render(z):
        points = origin[:, None] + direction[:, None] * z[..., None]
        raw = net(encode(points))
        colour, density = torch.sigmoid(raw[..., :3]), F.softplus(raw[..., 3] - 1)
        steps = torch.cat([z[:, 1:] - z[:, :-1], torch.full_like(z[:, :1], 1e10)], -1)
        alpha = 1 - torch.exp(-density * steps)
        passed = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], -1), -1)[:, :-1]
        weights = alpha * passed
        return (weights[..., None] * colour).sum(-2), weights

    coarse, weights = render(z)
    bins, pdf = 0.5 * (z[:, 1:] + z[:, :-1]), weights[:, 1:-1].detach() + 1e-5
    cdf = torch.cumsum(pdf / pdf.sum(-1, keepdim=True), -1)
    cdf = torch.cat([torch.zeros_like(cdf[:, :1]), cdf], -1)
    u = torch.linspace(0.05, 0.95, 4).expand(5, 4).contiguous()
    at = torch.searchsorted(cdf, u, right=True)
    below, above = (at - 1).clamp(min=0), at.clamp(max=cdf.shape[-1] - 1)
    c0, c1 = (torch.gather(cdf, 1, i) for i in (below, above))
    b0, b1 = (torch.gather(bins, 1, i) for i in (below, above))
    width = torch.where(c1 - c0 < 1e-5, torch.ones_like(c0), c1 - c0)
    fine, _ = render(torch.sort(torch.cat([z, b0 + (u - c0) / width * (b1 - b0)], -1), -1)[0])
    loss = F.mse_loss(coarse, torch.full_like(coarse, 0.3)) + F.mse_loss(fine, torch.full_like(fine, 0.3))
    loss.backward()
    return [loss.item(), coarse.sum().item(), fine.sum().item(), net[0].weight.grad.norm().item()]


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
    rotary_cache, blockwise_attention, stacked_models, constrained, weight_averages, mixed_labels, two_results, feature_hooks, streams,
    masked_autoencoder, image_and_text, transducer, beams, clusters, gaussian_process, radiance, codebook, sharpness, preferences,
]
