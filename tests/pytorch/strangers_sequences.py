"""Programs about text, sound and time as people write them for PyTorch, as those of `strangers.py`: each is given the
module `torch` and returns numbers."""

import math
from collections import OrderedDict, defaultdict

from strangers import begin, classes, some


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


PROGRAMS = [
    translation, transformer_from_scratch, char_rnn, packed_tagger, crf, attention_masks, forecasting, hidden_markov,
    selective_scan, sound, rotary_cache, blockwise_attention, transducer, beams,
]  # fmt: skip
