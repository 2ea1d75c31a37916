"""Further programs as people write them for PyTorch, as those of `strangers.py`: each is given the module `torch` and returns numbers."""

import copy
import math
from collections import OrderedDict, deque

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


def translation(torch):
    """A GRU encoder and a decoder with additive attention, step by step, teacher forcing."""
    nn, F = torch.nn, torch.nn.functional

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.gru = nn.Embedding(9, 6), nn.GRU(6, 6, batch_first=True)

        def forward(self, x):
            return self.gru(self.embedding(x))

    class Attention(nn.Module):
        def __init__(self, n):
            super().__init__()
            self.Wa, self.Ua, self.Va = nn.Linear(n, n), nn.Linear(n, n), nn.Linear(n, 1)

        def forward(self, query, keys):
            scores = self.Va(torch.tanh(self.Wa(query) + self.Ua(keys))).squeeze(2).unsqueeze(1)
            weights = F.softmax(scores, dim=-1)
            return torch.bmm(weights, keys), weights

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.attention = nn.Embedding(8, 6), Attention(6)
            self.gru, self.out = nn.GRU(12, 6, batch_first=True), nn.Linear(6, 8)

        def forward(self, outputs, hidden, target):
            token, steps, attentions = torch.empty(target.size(0), 1, dtype=torch.long).fill_(0), [], []
            for i in range(target.shape[1]):
                context, weights = self.attention(hidden.permute(1, 0, 2), outputs)
                o, hidden = self.gru(torch.cat((self.embedding(token), context), dim=2), hidden)
                steps.append(self.out(o))
                attentions.append(weights)
                token = target[:, i].unsqueeze(1)
            return F.log_softmax(torch.cat(steps, dim=1), dim=-1), torch.cat(attentions, dim=1)

    enc, dec = begin(torch, Encoder()), begin(torch, Decoder(), 4)
    opt = torch.optim.Adam([*enc.parameters(), *dec.parameters()], lr=0.01)
    x, y, out = classes(torch, (3, 5), 9), classes(torch, (3, 4), 8, seed=7), []
    for _ in range(3):
        opt.zero_grad()
        outputs, hidden = enc(x)
        logs, attentions = dec(outputs, hidden, y)
        loss = nn.NLLLoss()(logs.view(-1, logs.size(-1)), y.view(-1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(dec.parameters(), 1.0)
        opt.step()
        out.append(loss.item())
    return [*out, *attentions[0, 0].tolist(), *logs.topk(1)[1].squeeze().float().flatten().tolist()]


def transformer_from_scratch(torch):
    """Sinusoidal positions, heads by view and transpose, a causal mask by masked_fill, einsum."""
    nn = torch.nn

    class Head(nn.Module):
        def __init__(self, d, h):
            super().__init__()
            self.h, self.qkv, self.proj = h, nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d)
            self.register_buffer("mask", torch.tril(torch.ones(16, 16)).view(1, 1, 16, 16))

        def forward(self, x):
            B, T, C = x.size()
            q, k, v = self.qkv(x).split(C, dim=2)
            q, k, v = (t.view(B, T, self.h, C // self.h).transpose(1, 2) for t in (q, k, v))
            att = torch.einsum("bhtd,bhsd->bhts", q, k) * (1.0 / math.sqrt(k.size(-1)))
            att = att.masked_fill(self.mask[:, :, :T, :T] == 0, float("-inf")).softmax(dim=-1)
            return self.proj((att @ v).transpose(1, 2).contiguous().view(B, T, C))

    class Block(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.ln1, self.ln2, self.att = nn.LayerNorm(d), nn.LayerNorm(d), Head(d, 2)
            self.mlp = nn.Sequential(OrderedDict([("fc", nn.Linear(d, 4 * d)), ("act", nn.GELU()), ("proj", nn.Linear(4 * d, d))]))

        def forward(self, x):
            x = x + self.att(self.ln1(x))
            return x + self.mlp(self.ln2(x))

    position = torch.arange(7).unsqueeze(1)
    div = torch.exp(torch.arange(0, 8, 2) * (-math.log(10000.0) / 8))
    pe = torch.zeros(7, 8)
    pe[:, 0::2] = torch.sin(position * div)
    pe[:, 1::2] = torch.cos(position * div)
    blocks = nn.ModuleList([Block(8) for _ in range(2)])
    net = begin(torch, nn.ModuleDict({"wte": nn.Embedding(11, 8), "blocks": blocks, "head": nn.Linear(8, 11)}))
    net["head"].weight = net["wte"].weight
    x = classes(torch, (2, 8), 11)
    opt, out = torch.optim.AdamW(net.parameters(), lr=1e-2), []
    for _ in range(3):
        h = net["wte"](x[:, :-1]) + pe
        for block in net["blocks"]:
            h = block(h)
        loss = nn.functional.cross_entropy(net["head"](h).flatten(0, 1), x[:, 1:].flatten())
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        out.append(loss.item())
    return [*out, sum(p.numel() for p in net.parameters())]


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


def siamese(torch):
    """Triplets and a contrastive loss over one shared network, F.normalize, cdist."""
    nn, F = torch.nn, torch.nn.functional
    net = begin(torch, nn.Sequential(nn.Conv1d(2, 4, 3, padding="same"), nn.ReLU(), nn.AdaptiveAvgPool1d(2), nn.Flatten(), nn.Linear(8, 4)))
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    criterion, out = nn.TripletMarginLoss(margin=1.0, p=2), []
    for step in range(3):
        a, p, n = (F.normalize(net(some(torch, 5, 2, 9, seed=step * 3 + i)), dim=1) for i in range(3))
        distance = F.pairwise_distance(a, p)
        label = torch.tensor([1.0, 0, 1, 0, 1])
        contrastive = torch.mean(label * distance.pow(2) + (1 - label) * torch.clamp(1.0 - distance, min=0.0).pow(2))
        loss = criterion(a, p, n) + contrastive + F.cosine_embedding_loss(a, n, torch.tensor([1, -1, 1, -1, 1]))
        opt.zero_grad()
        loss.backward()
        opt.step()
        out.append(loss.item())
    return [*out, *torch.cdist(a, n).diagonal().tolist()]


def unet(torch):
    """Skips by cat, MaxPool2d, ConvTranspose2d, Upsample, a dice loss."""
    nn, F = torch.nn, torch.nn.functional

    def double(i, o):
        return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(inplace=True), nn.Conv2d(o, o, 3, padding=1), nn.ReLU())

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.down1, self.down2, self.pool = double(1, 4), double(4, 8), nn.MaxPool2d(2)
            self.middle, self.up2 = double(8, 8), nn.ConvTranspose2d(8, 8, 2, stride=2)
            self.up = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
            self.conv2, self.conv1, self.out = double(16, 4), double(8, 4), nn.Conv2d(4, 2, 1)

        def forward(self, x):
            a = self.down1(x)
            b = self.down2(self.pool(a))
            c = self.up2(self.middle(self.pool(b)))
            diff = b.size()[2] - c.size()[2]
            c = F.pad(c, [diff // 2, diff - diff // 2, diff // 2, diff - diff // 2])
            c = self.up(self.conv2(torch.cat([b, c], dim=1)))
            return self.out(self.conv1(torch.cat([a, c], dim=1)))

    net = begin(torch, UNet())
    opt = torch.optim.Adam(net.parameters(), lr=5e-3)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, "max", patience=0, factor=0.5)
    x, out = some(torch, 2, 1, 12, 12), []
    mask = (some(torch, 2, 12, 12, seed=8) > 0).long()
    for _ in range(3):
        logits = net(x)
        soft = F.softmax(logits, dim=1).float()
        hot = F.one_hot(mask, 2).permute(0, 3, 1, 2).float()
        dice = 1 - (2 * (soft * hot).sum(dim=(-1, -2)) + 1e-6) / ((soft + hot).sum(dim=(-1, -2)) + 1e-6)
        loss = F.cross_entropy(logits, mask) + dice.mean()
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        scheduler.step(-loss)
        out.append(loss.item())
    return [*out, opt.param_groups[0]["lr"], (logits.argmax(1) == mask).float().mean().item()]


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


def char_rnn(torch):
    """A vocabulary of characters, truncated backpropagation with a detached state, sampling by temperature."""
    nn = torch.nn
    text = "hello tensors, hello gradients"
    chars = sorted(set(text))
    stoi = {c: i for i, c in enumerate(chars)}
    data = torch.tensor([stoi[c] for c in text], dtype=torch.long)

    class Net(nn.Module):
        def __init__(self, v, h=12):
            super().__init__()
            self.encoder, self.rnn, self.decoder = nn.Embedding(v, h), nn.LSTM(h, h, num_layers=2, dropout=0.0), nn.Linear(h, v)

        def forward(self, x, state=None):
            o, state = self.rnn(self.encoder(x), state)
            return self.decoder(o), state

        def init_hidden(self, batch):
            weight = next(self.parameters())
            return weight.new_zeros(2, batch, 12), weight.new_zeros(2, batch, 12)

    net = begin(torch, Net(len(chars)))
    opt, out = torch.optim.Adam(net.parameters(), lr=0.02), []
    state = net.init_hidden(1)
    for i in range(0, 24, 8):
        x, y = data[i : i + 6].unsqueeze(1), data[i + 1 : i + 7]
        state = tuple(s.detach() for s in state)
        logits, state = net(x, state)
        loss = nn.functional.cross_entropy(logits.view(-1, len(chars)), y)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(net.parameters(), 0.5)
        opt.step()
        out.append(loss.item())
    net.eval()
    with torch.inference_mode():
        token, state, written = data[:1].unsqueeze(1), None, ""
        for _ in range(5):
            logits, state = net(token, state)
            token = (logits[-1] / 0.7).softmax(-1).argmax(-1, keepdim=True)
            written += chars[token.item()]
    return [*out, *(stoi[c] for c in written)]


def packed_tagger(torch):
    """pad_sequence, pack_padded_sequence(enforce_sorted=False), a bidirectional LSTM, ignore_index."""
    nn = torch.nn
    rnn = nn.utils.rnn
    seqs = [classes(torch, n, 7, seed=n) for n in (3, 5, 2)]
    tags = [classes(torch, n, 4, seed=n + 20) for n in (3, 5, 2)]
    lengths = torch.tensor([len(s) for s in seqs])
    x, y = rnn.pad_sequence(seqs, batch_first=True), rnn.pad_sequence(tags, batch_first=True, padding_value=-100)
    emb = begin(torch, nn.Embedding(7, 5, padding_idx=0))
    lstm, fc = begin(torch, nn.LSTM(5, 4, batch_first=True, bidirectional=True), 2), begin(torch, nn.Linear(8, 4), 3)
    params = [p for m in (emb, lstm, fc) for p in m.parameters()]
    opt, out = torch.optim.Adam(params, lr=0.02), []
    for _ in range(3):
        packed = rnn.pack_padded_sequence(emb(x), lengths, batch_first=True, enforce_sorted=False)
        o, (h, c) = lstm(packed)
        o, n = rnn.pad_packed_sequence(o, batch_first=True)
        loss = nn.functional.cross_entropy(fc(o).transpose(1, 2), y, ignore_index=-100)
        opt.zero_grad()
        loss.backward()
        opt.step()
        out.append(loss.item())
    return [*out, *n.float().tolist(), h.sum().item(), emb.weight.grad[0].abs().sum().item()]


def crf(torch):
    """The forward algorithm and Viterbi of a linear-chain CRF, with index arithmetic."""
    nn = torch.nn
    transitions = nn.Parameter(some(torch, 4, 4))
    fc = begin(torch, nn.Linear(6, 4))
    x, tags = some(torch, 7, 6), classes(torch, 7, 4)
    opt, out = torch.optim.SGD([transitions, *fc.parameters()], lr=0.1, weight_decay=1e-4), []
    for _ in range(3):
        feats = fc(x)
        alpha = feats[0]
        for t in range(1, 7):
            alpha = torch.logsumexp(alpha.unsqueeze(1) + transitions + feats[t].unsqueeze(0), dim=0)
        score = feats[torch.arange(7), tags].sum() + transitions[tags[:-1], tags[1:]].sum()
        loss = torch.logsumexp(alpha, 0) - score
        opt.zero_grad()
        loss.backward()
        opt.step()
        out.append(loss.item())
    with torch.no_grad():
        best, back = fc(x)[0], []
        for t in range(1, 7):
            best, ids = (best.unsqueeze(1) + transitions).max(0)
            best = best + fc(x)[t]
            back.append(ids)
        path = [best.argmax().item()]
        for ids in reversed(back):
            path.append(ids[path[-1]].item())
    return [*out, *path]


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


def custom_functions(torch):
    """autograd.Function with ctx: a straight-through sign, a clamped exponential with saved tensors, needs_input_grad."""
    nn = torch.nn

    class Sign(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sign()

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * (x.abs() <= 1).float()

    class ScaledExp(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, scale):
            result = torch.exp(x * scale)
            ctx.save_for_backward(result)
            ctx.scale = scale
            return result

        @staticmethod
        def backward(ctx, grad):
            (result,) = ctx.saved_tensors
            return (grad * result * ctx.scale if ctx.needs_input_grad[0] else None), None

    net = begin(torch, nn.Linear(4, 4))
    x = some(torch, 3, 4).requires_grad_()
    out = ScaledExp.apply(Sign.apply(net(x)), 0.5).sum()
    out.backward()
    return [out.item(), *x.grad.flatten().tolist(), net.weight.grad.abs().sum().item()]


def hooks(torch):
    """Forward hooks that collect features, backward hooks on modules and tensors, hooks that change gradients."""
    nn = torch.nn
    net = begin(torch, nn.Sequential(OrderedDict([("conv", nn.Conv2d(1, 2, 3)), ("relu", nn.ReLU()), ("pool", nn.AdaptiveAvgPool2d(1)),
                                                  ("flat", nn.Flatten()), ("fc", nn.Linear(2, 2))])))  # fmt: skip
    features, grads = {}, {}

    def keep(name):
        def hook(module, inputs, output):
            features[name] = output.detach()

        return hook

    handles = [net.conv.register_forward_hook(keep("conv")), net.get_submodule("fc").register_forward_hook(keep("fc"))]
    handles.append(net.conv.register_full_backward_hook(lambda m, gi, go: grads.__setitem__("conv", go[0].detach())))
    x = some(torch, 2, 1, 6, 6).requires_grad_()
    score = net(x)
    score.register_hook(lambda g: g * 2)
    score[:, 1].sum().backward()
    cam = (grads["conv"].mean(dim=(2, 3), keepdim=True) * features["conv"]).sum(1).relu()
    for h in handles:
        h.remove()
    features.clear()
    net(x)
    return [len(features), cam.sum().item(), x.grad.abs().sum().item(), *score.flatten().tolist()]


def state_dict_surgery(torch):
    """Renamed keys, dropped heads, strict=False, a new head, frozen layers, groups of parameters."""
    nn = torch.nn
    old = begin(torch, nn.Sequential(OrderedDict([("backbone", nn.Sequential(nn.Linear(4, 6), nn.ReLU())), ("head", nn.Linear(6, 3))])))
    state = OrderedDict(("module." + k, v) for k, v in old.state_dict().items())
    state = {k.removeprefix("module."): v for k, v in state.items() if not k.startswith("module.head")}
    new = begin(torch, nn.Sequential(OrderedDict([("backbone", nn.Sequential(nn.Linear(4, 6), nn.ReLU())), ("head", nn.Linear(6, 5))])), 6)
    result = new.load_state_dict(state, strict=False)
    for p in new.backbone.parameters():
        p.requires_grad_(False)
    opt = torch.optim.SGD([
        {"params": [p for p in new.backbone.parameters() if p.requires_grad], "lr": 1e-3}, {"params": new.head.parameters()},
    ], lr=0.1, momentum=0.9)  # fmt: skip
    x, y, out = some(torch, 8, 4), classes(torch, 8, 5), []
    for _ in range(3):
        loss = nn.functional.cross_entropy(new(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        out.append(loss.item())
    new.backbone[0].weight.requires_grad = True
    opt.add_param_group({"params": [new.backbone[0].weight], "lr": 0.05})
    return [*out, len(result.missing_keys), len(result.unexpected_keys), len(opt.param_groups),
            (new.backbone[0].weight == old.backbone[0].weight).all().item()]  # fmt: skip


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


def learned_optimizer(torch):
    """An LSTM cell that makes steps: functional parameters, unrolled gradients."""
    nn = torch.nn
    cell, head = begin(torch, nn.LSTMCell(1, 4)), begin(torch, nn.Linear(4, 1), 2)
    opt, out = torch.optim.Adam([*cell.parameters(), *head.parameters()], lr=0.01), []
    target = some(torch, 6)
    for _ in range(3):
        theta = torch.zeros(6, requires_grad=True)
        state, total = None, 0.0
        for _ in range(4):
            loss = ((theta - target) ** 2).sum()
            (g,) = torch.autograd.grad(loss, theta, retain_graph=True)
            state = cell(g.detach().unsqueeze(1), state)
            theta = theta + head(state[0]).squeeze(1) * 0.1
            total = total + ((theta - target) ** 2).sum()
        opt.zero_grad()
        total.backward()
        opt.step()
        out.append(total.item())
    return out


def neural_ode(torch):
    """Runge and Kutta's steps through a network, gradients through time, grid by linspace."""
    nn = torch.nn
    f = begin(torch, nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2)), scale=0.5)
    t = torch.linspace(0.0, 1.0, 6)
    true = torch.stack([torch.cos(2 * t), torch.sin(2 * t)], dim=1)
    opt, out = torch.optim.RMSprop(f.parameters(), lr=1e-2), []
    for _ in range(3):
        y, path = true[0], [true[0]]
        for h in (t[1:] - t[:-1]):
            k1 = f(y)
            k2 = f(y + h * k1 / 2)
            k3 = f(y + h * k2 / 2)
            k4 = f(y + h * k3)
            y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            path.append(y)
        loss = torch.mean(torch.abs(torch.stack(path) - true))
        opt.zero_grad()
        loss.backward()
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


def graph_network(torch):
    """Message passing by index_add_ and scatter_reduce, degrees by bincount, a readout by segment."""
    nn = torch.nn
    src, dst = torch.tensor([0, 1, 2, 3, 4, 0, 2]), torch.tensor([1, 2, 0, 4, 3, 2, 4])
    w, v = begin(torch, nn.Linear(3, 6)), begin(torch, nn.Linear(6, 2), 2)
    x, graph, y = some(torch, 5, 3), torch.tensor([0, 0, 0, 1, 1]), torch.tensor([1, 0])
    degree = torch.bincount(dst, minlength=5).clamp(min=1).float().unsqueeze(1)
    opt, out = torch.optim.Adam([*w.parameters(), *v.parameters()], lr=0.02), []
    for _ in range(3):
        h = w(x)
        messages = torch.zeros_like(h).index_add_(0, dst, h[src]) / degree
        h = torch.relu(h + messages)
        most = torch.zeros(5, 6).scatter_reduce(0, dst.unsqueeze(1).expand(-1, 6), h[src], reduce="amax", include_self=False)
        pooled = torch.zeros(2, 6).index_add(0, graph, h + most)
        loss = nn.functional.cross_entropy(v(pooled), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        out.append(loss.item())
    return [*out, *torch.unique(dst, return_counts=True)[1].tolist()]


def vision_transformer(torch):
    """Patches by Conv2d and unfold, a class token by expand, nn.TransformerEncoder, trunc_normal_ replaced."""
    nn = torch.nn

    class ViT(nn.Module):
        def __init__(self):
            super().__init__()
            self.patch = nn.Conv2d(1, 8, kernel_size=4, stride=4)
            self.cls, self.pos = nn.Parameter(torch.zeros(1, 1, 8)), nn.Parameter(torch.zeros(1, 5, 8))
            layer = nn.TransformerEncoderLayer(
                d_model=8, nhead=2, dim_feedforward=16, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
            )
            self.encoder, self.head = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False), nn.Linear(8, 3)

        def forward(self, x):
            x = self.patch(x).flatten(2).transpose(1, 2)
            x = torch.cat((self.cls.expand(x.shape[0], -1, -1), x), dim=1) + self.pos
            return self.head(self.encoder(x)[:, 0])

    net = begin(torch, ViT())
    x, y, out = some(torch, 4, 1, 8, 8), classes(torch, 4, 3), []
    patches = x.unfold(2, 4, 4).unfold(3, 4, 4).contiguous().view(4, 1, -1, 4, 4)
    columns = nn.functional.unfold(x, 4, stride=4)
    opt = torch.optim.AdamW(net.parameters(), lr=5e-3, weight_decay=0.05)
    for _ in range(3):
        loss = nn.CrossEntropyLoss(label_smoothing=0.1)(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        out.append(loss.item())
    return [*out, patches.sum().item(), (columns.transpose(1, 2).reshape(4, 4, 4, 4) - patches[:, 0]).abs().max().item()]


def contrastive(torch):
    """SimCLR's loss: similarities with a diagonal mask, a queue as a buffer, a momentum encoder (MoCo)."""
    nn, F = torch.nn, torch.nn.functional
    q, k = begin(torch, nn.Linear(6, 4)), begin(torch, nn.Linear(6, 4))
    queue, out = F.normalize(some(torch, 4, 10, seed=3), dim=0), []
    opt = torch.optim.SGD(q.parameters(), lr=0.1)
    for step in range(3):
        a, b = some(torch, 5, 6, seed=step), some(torch, 5, 6, seed=step + 30)
        za, zb = F.normalize(q(a), dim=1), F.normalize(q(b), dim=1)
        z = torch.cat([za, zb])
        sim = torch.matmul(z, z.T) / 0.5
        sim = sim.masked_fill(torch.eye(10, dtype=torch.bool), -9e15)
        nce = F.cross_entropy(sim, torch.cat([torch.arange(5, 10), torch.arange(0, 5)]))
        with torch.no_grad():
            for pq, pk in zip(q.parameters(), k.parameters()):
                pk.data = pk.data * 0.9 + pq.data * 0.1
            keys = F.normalize(k(b), dim=1)
        positive, negative = torch.einsum("nc,nc->n", za, keys).unsqueeze(-1), torch.einsum("nc,ck->nk", za, queue.clone().detach())
        logits = torch.cat([positive, negative], dim=1) / 0.07
        loss = nce + F.cross_entropy(logits, torch.zeros(5, dtype=torch.long))
        opt.zero_grad()
        loss.backward()
        opt.step()
        queue[:, step * 3 : step * 3 + 3] = keys.T[:, :3]
        out.append(loss.item())
    return [*out, queue.sum().item()]


def physics_informed(torch):
    """Second derivatives of a network with respect to its input, as a loss, minimised by LBFGS with a closure."""
    nn = torch.nn
    net = begin(torch, nn.Sequential(nn.Linear(1, 10), nn.Tanh(), nn.Linear(10, 1)))
    t = torch.linspace(0, 1, 9).view(-1, 1).requires_grad_(True)
    opt, out = torch.optim.LBFGS(net.parameters(), lr=0.5, max_iter=4), []

    def closure():
        opt.zero_grad()
        u = net(t)
        du = torch.autograd.grad(u, t, torch.ones_like(u), create_graph=True)[0]
        ddu = torch.autograd.grad(du, t, torch.ones_like(du), create_graph=True)[0]
        loss = torch.mean((ddu + 4 * u) ** 2) + (net(torch.zeros(1, 1)) - 1).pow(2).squeeze()
        loss.backward()
        return loss

    for _ in range(2):
        out.append(opt.step(closure).item())
    return out


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


def attention_masks(torch):
    """nn.MultiheadAttention with a padding and a causal mask, weights returned, scaled_dot_product_attention beside it."""
    nn, F = torch.nn, torch.nn.functional
    mha = begin(torch, nn.MultiheadAttention(8, 2, batch_first=True))
    x, pad = some(torch, 2, 4, 8), torch.tensor([[False, False, False, True], [False] * 4])
    causal = nn.Transformer.generate_square_subsequent_mask(4)
    y, w = mha(x, x, x, key_padding_mask=pad, attn_mask=torch.triu(torch.ones(4, 4, dtype=torch.bool), diagonal=1))
    z, _ = mha(x, x, x, attn_mask=causal, need_weights=False)
    s = F.scaled_dot_product_attention(*(x.view(2, 4, 2, 4).transpose(1, 2),) * 3, is_causal=True)
    (y.sum() + z.pow(2).sum()).backward()
    return [y.sum().item(), *w[0, 2].tolist(), z.sum().item(), s.sum().item(), mha.in_proj_weight.grad.abs().sum().item()]


def jacobians(torch):
    """torch.func: vmap of grad, jacrev, hessian, functional_call, per-sample gradients."""
    nn = torch.nn
    func = torch.func
    net = begin(torch, nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)))
    params = {k: v.detach() for k, v in net.named_parameters()}
    x, y = some(torch, 5, 3), some(torch, 5, 1, seed=2)

    def loss(params, a, b):
        return ((func.functional_call(net, params, (a.unsqueeze(0),)) - b) ** 2).mean()

    each = func.vmap(func.grad(loss), in_dims=(None, 0, 0))(params, x, y)
    j = func.jacrev(lambda a: func.functional_call(net, params, (a,)))(x[0])
    h = func.hessian(lambda a: func.functional_call(net, params, (a,)).sum())(x[0])
    return [each["0.weight"].abs().sum().item(), *j.flatten().tolist(), *h.flatten().tolist()]


def style_transfer(torch):
    """The image is the parameter: Gram matrices, total variation, clamp_ under no_grad."""
    nn = torch.nn
    net = begin(torch, nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(6, 6, 3, padding=1))).eval()

    def gram(f):
        b, c, h, w = f.size()
        f = f.view(b * c, h * w)
        return torch.mm(f, f.t()).div(b * c * h * w)

    target = gram(net(some(torch, 1, 3, 8, 8))).detach()
    image = some(torch, 1, 3, 8, 8, seed=9).sigmoid().clone().requires_grad_(True)
    opt, out = torch.optim.Adam([image], lr=0.05), []
    for _ in range(3):
        tv = (image[:, :, 1:] - image[:, :, :-1]).abs().mean() + (image[..., 1:] - image[..., :-1]).abs().mean()
        loss = 100 * nn.functional.mse_loss(gram(net(image)), target) + 0.1 * tv
        opt.zero_grad()
        loss.backward()
        opt.step()
        with torch.no_grad():
            image.clamp_(0, 1)
        out.append(loss.item())
    return [*out, image.sum().item()]


PROGRAMS = [
    dcgan, translation, transformer_from_scratch, ppo, wgan_gp, siamese, unet, mixture_density, char_rnn, packed_tagger, crf, distillation,
    lora_by_parametrization, pruning, averaged_weights, accumulation_with_amp, custom_functions, hooks, state_dict_surgery, lr_finder,
    learned_optimizer, neural_ode, actor_critic, normalizing_flow, graph_network, vision_transformer, contrastive, physics_informed,
    data_pipeline, attention_masks, jacobians, style_transfer,
]  # fmt: skip
