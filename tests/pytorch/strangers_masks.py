"""Programs as people write them for PyTorch whose steps choose elements by masks, indices and distances, and compile: each is given the module
`torch` and returns numbers."""

import math

import numpy as np
from strangers import begin, some


def masked_language(torch):
    """BERT's objective: a few tokens are hidden, and the loss is that of these places alone; the step is one compiled program."""
    nn, F = torch.nn, torch.nn.functional
    vocabulary, pad, hidden = 23, 0, 1

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.places = nn.Embedding(vocabulary, 16, padding_idx=pad), nn.Embedding(12, 16)
            layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True, norm_first=True, activation="gelu")
            self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, vocabulary, bias=False)
            self.head.weight = self.tokens.weight

        def forward(self, ids):
            x = self.tokens(ids) + self.places(torch.arange(ids.size(1)))
            return self.head(self.norm(self.encoder(x, src_key_padding_mask=ids == pad)))

    net = begin(torch, Model())
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2, betas=(0.9, 0.98), weight_decay=0.01)
    rng = np.random.default_rng(3)
    ids = torch.from_numpy(rng.integers(2, vocabulary, (4, 12)))
    ids[1, 9:] = pad
    ids[3, 5:] = pad
    chosen = torch.from_numpy(rng.random((4, 12)) < 0.3) & (ids != pad)
    kind = torch.from_numpy(rng.random((4, 12)))

    def step(ids, chosen, kind):
        given = ids.clone()
        given[chosen & (kind < 0.8)] = hidden
        swapped = chosen & (kind >= 0.9)
        given[swapped] = (ids[swapped] * 7 + 3) % vocabulary
        logits = net(given)
        loss = F.cross_entropy(logits[chosen], ids[chosen])
        right = (logits.argmax(-1)[chosen] == ids[chosen]).float().mean()
        return loss, right

    compiled = torch.compile(step)
    out = []
    for _ in range(4):
        loss, right = compiled(ids, chosen, kind)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        out += [loss.item(), right.item(), norm.item()]
    return out


def skip_grams(torch):
    """word2vec: pairs of words, negatives drawn by frequencies to the power of 3/4, sparse tables of two roles."""
    nn, F = torch.nn, torch.nn.functional
    text = "the quick brown fox jumps over the lazy dog and the dog barks at the fox".split()
    words = sorted(set(text))
    at = {w: i for i, w in enumerate(words)}
    counts = torch.tensor([text.count(w) for w in words], dtype=torch.float)
    ids = [at[w] for w in text]
    pairs = [(ids[i], ids[j]) for i in range(len(ids)) for j in range(max(0, i - 2), min(len(ids), i + 3)) if i != j]
    data = torch.utils.data.TensorDataset(torch.tensor(pairs))
    loader = torch.utils.data.DataLoader(data, batch_size=16, shuffle=False, drop_last=True)

    class SkipGram(nn.Module):
        def __init__(self, n, d):
            super().__init__()
            self.centre, self.context = nn.Embedding(n, d, sparse=True), nn.Embedding(n, d, sparse=True)
            nn.init.uniform_(self.centre.weight, -0.5 / d, 0.5 / d)
            nn.init.zeros_(self.context.weight)

        def forward(self, c, o, negatives):
            v, u, k = self.centre(c), self.context(o), self.context(negatives)
            good = F.logsigmoid((v * u).sum(1))
            bad = F.logsigmoid(-torch.bmm(k, v.unsqueeze(2)).squeeze(2)).sum(1)
            return -(good + bad).mean()

    net = begin(torch, SkipGram(len(words), 8))
    optimizer = torch.optim.SparseAdam(list(net.parameters()), lr=0.02)
    noise = counts.double() ** 0.75
    noise /= noise.sum()
    rng = np.random.default_rng(0)
    losses = []
    for _ in range(3):
        total = 0.0
        for (batch,) in loader:
            negatives = torch.from_numpy(rng.choice(len(words), (len(batch), 4), p=noise.numpy()))
            loss = net(batch[:, 0], batch[:, 1], negatives)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
        losses.append(total / len(data))
    near = F.cosine_similarity(net.centre.weight[at["fox"]].unsqueeze(0), net.centre.weight).topk(3)
    return [*losses, *near.values.tolist(), net.context.weight.norm().item()]


def energy_based(torch):
    """An energy model: samples from a buffer walk down the energy by noisy gradients of the input, in place."""
    nn = torch.nn
    net = begin(torch, nn.Sequential(nn.Linear(2, 16), nn.SiLU(), nn.Linear(16, 16), nn.SiLU(), nn.Linear(16, 1)))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, betas=(0.0, 0.999))
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.97)
    buffer = [some(torch, 8, 2, seed=i) for i in range(3)]

    def sample(x, steps, seed):
        training = net.training
        net.eval()
        for p in net.parameters():
            p.requires_grad = False
        x.requires_grad = True
        for i in range(steps):
            noise = some(torch, *x.shape, seed=seed + i) * 0.005
            x.data.add_(noise)
            x.data.clamp_(min=-2.0, max=2.0)
            out = -net(x)
            out.sum().backward()
            x.grad.data.clamp_(-0.03, 0.03)
            x.data.add_(-10 * x.grad.data)
            x.grad.detach_()
            x.grad.zero_()
            x.data.clamp_(min=-2.0, max=2.0)
        for p in net.parameters():
            p.requires_grad = True
        net.train(training)
        return x.detach()

    out = []
    for i in range(3):
        real = some(torch, 8, 2, seed=100 + i) * 0.1 + 1.0
        fake = sample(torch.cat([buffer[i % 3][:6], some(torch, 2, 2, seed=50 + i)], dim=0).clone(), 5, 10 * i)
        buffer = [fake.to(torch.device("cpu")), *buffer][:3]
        real_out, fake_out = net(torch.cat([real, fake], dim=0)).chunk(2, dim=0)
        loss = 0.1 * (real_out**2 + fake_out**2).mean() + (fake_out.mean() - real_out.mean())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), max_norm=0.1)
        optimizer.step()
        schedule.step()
        out += [loss.item(), fake.abs().mean().item(), optimizer.param_groups[0]["lr"]]
    return out


def point_clouds(torch):
    """PointNet++: farthest points, balls around them by masked distances, groups by gathered indices; and Chamfer's distance."""
    nn = torch.nn

    def square_distance(a, b):
        d = -2 * torch.matmul(a, b.permute(0, 2, 1))
        d += torch.sum(a**2, -1).view(a.shape[0], a.shape[1], 1)
        d += torch.sum(b**2, -1).view(b.shape[0], 1, b.shape[1])
        return d

    def index_points(points, idx):
        view = list(idx.shape)
        view[1:] = [1] * (len(view) - 1)
        repeat = list(idx.shape)
        repeat[0] = 1
        batches = torch.arange(points.shape[0], dtype=torch.long).to(points.device).view(view).repeat(repeat)
        return points[batches, idx, :]

    def farthest(xyz, n):
        b, total, _ = xyz.shape
        centroids = torch.zeros(b, n, dtype=torch.long)
        distance = torch.ones(b, total) * 1e10
        last = torch.zeros((b,), dtype=torch.long)
        batches = torch.arange(b, dtype=torch.long)
        for i in range(n):
            centroids[:, i] = last
            centroid = xyz[batches, last, :].view(b, 1, 3)
            dist = torch.sum((xyz - centroid) ** 2, -1)
            mask = dist < distance
            distance[mask] = dist[mask]
            last = torch.max(distance, -1)[1]
        return centroids

    def ball(radius, k, xyz, new):
        b, n, _ = xyz.shape
        s = new.shape[1]
        idx = torch.arange(n, dtype=torch.long).view(1, 1, n).repeat([b, s, 1])
        idx[square_distance(new, xyz) > radius**2] = n
        idx = idx.sort(dim=-1)[0][:, :, :k]
        first = idx[:, :, 0].view(b, s, 1).repeat([1, 1, k])
        mask = idx == n
        idx[mask] = first[mask]
        return idx

    mlp = begin(torch, nn.Sequential(nn.Conv2d(3, 8, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 16, 1)))
    head = begin(torch, nn.Sequential(nn.Linear(16, 24)))
    optimizer = torch.optim.SGD([*mlp.parameters(), *head.parameters()], lr=0.05, momentum=0.9, nesterov=True)
    cloud = some(torch, 2, 32, 3)

    @torch.compile
    def step(cloud):
        at = farthest(cloud, 8)
        new = index_points(cloud, at)
        groups = index_points(cloud, ball(1.2, 6, cloud, new)) - new.view(2, 8, 1, 3)
        features = torch.max(mlp(groups.permute(0, 3, 2, 1)), 2)[0].max(-1).values
        made = head(features).view(2, 8, 3)
        d = square_distance(made, cloud)
        return d.min(dim=2)[0].mean() + d.min(dim=1)[0].mean(), at

    out = []
    for _ in range(3):
        loss, at = step(cloud)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        out += [loss.item(), at.sum().item()]
    return [*out, mlp[1].running_var.sum().item()]


def private_steps(torch):
    """DP-SGD: gradients of each example by vmap, clipped one by one, with noise; and a privacy budget of one's own."""
    nn, F = torch.nn, torch.nn.functional
    net = begin(torch, nn.Sequential(nn.Conv2d(1, 4, 3, 2), nn.GroupNorm(2, 4), nn.Tanh(), nn.Flatten(), nn.Linear(36, 3)))
    params = {k: v.detach() for k, v in net.named_parameters()}
    buffers = {k: v.detach() for k, v in net.named_buffers()}

    def loss_of(params, buffers, x, y):
        logits = torch.func.functional_call(net, (params, buffers), (x.unsqueeze(0),))
        return F.cross_entropy(logits, y.unsqueeze(0))

    per_sample = torch.func.vmap(torch.func.grad_and_value(loss_of), in_dims=(None, None, 0, 0), randomness="different")
    x, y = some(torch, 6, 1, 8, 8), torch.tensor([0, 1, 2, 2, 1, 0])
    out = []
    for i in range(3):
        grads, losses = per_sample(params, buffers, x, y)
        norms = torch.stack([g.flatten(1).norm(2, dim=1) for g in grads.values()], dim=1).norm(2, dim=1)
        factor = (1.0 / (norms + 1e-6)).clamp(max=1.0)
        with torch.no_grad():
            for j, (k, g) in enumerate(grads.items()):
                total = torch.einsum("i,i...->...", factor, g)
                total += 0.01 * some(torch, *g.shape[1:], seed=31 * i + j)
                params[k] = params[k].sub(total / len(x), alpha=0.5)
        out += [losses.mean().item(), norms.max().item(), (norms > 1.0).sum().item()]
    return out


def knowledge_graph(torch):
    """TransE: relations as translations, corrupted triples, a margin, rows kept on the unit ball; ranks of the true tails by masked scores."""
    nn, F = torch.nn, torch.nn.functional
    n, r, d = 12, 3, 8
    rng = np.random.default_rng(5)
    triples = torch.from_numpy(np.unique(rng.integers(0, [n, r, n], (40, 3)), axis=0))

    class TransE(nn.Module):
        def __init__(self):
            super().__init__()
            self.entities = nn.Embedding(n, d, max_norm=1.0)
            self.relations = nn.Embedding(r, d)
            bound = 6 / math.sqrt(d)
            nn.init.uniform_(self.entities.weight, -bound, bound)
            nn.init.uniform_(self.relations.weight, -bound, bound)
            self.relations.weight.data = F.normalize(self.relations.weight.data, p=1, dim=-1)

        def forward(self, t):
            return torch.norm(self.entities(t[:, 0]) + self.relations(t[:, 1]) - self.entities(t[:, 2]), p=1, dim=-1)

    net = begin(torch, TransE())
    optimizer = torch.optim.Adagrad(net.parameters(), lr=0.1)
    criterion = nn.MarginRankingLoss(margin=1.0, reduction="none")
    out = []
    for i in range(4):
        heads = torch.from_numpy(np.random.default_rng(i).random(len(triples)) < 0.5)
        other = torch.from_numpy(np.random.default_rng(10 + i).integers(0, n, len(triples)))
        broken = triples.clone()
        broken[heads, 0] = other[heads]
        broken[~heads, 2] = other[~heads]
        loss = criterion(net(triples), net(broken), torch.full((len(triples),), -1.0))
        hard = loss > 0
        optimizer.zero_grad()
        loss[hard].mean().backward()
        optimizer.step()
        out += [loss.mean().item(), hard.sum().item()]
    with torch.no_grad():
        heads = F.embedding(triples[:, 0], net.entities.weight)
        scores = torch.cdist(heads + net.relations(triples[:, 1]), net.entities.weight, p=1)
        known = torch.zeros(len(triples), n, dtype=torch.bool)
        for i, (h, rel, _) in enumerate(triples.tolist()):
            known[i, triples[(triples[:, 0] == h) & (triples[:, 1] == rel), 2]] = True
        known.scatter_(1, triples[:, 2:], False)
        scores[known] = float("inf")
        ranks = (scores < scores.gather(1, triples[:, 2:])).sum(1) + 1
    return [*out, ranks.float().mean().item(), (ranks <= 3).float().mean().item(), net.entities.weight.norm(dim=1).max().item()]


PROGRAMS = [masked_language, skip_grams, energy_based, point_clouds, private_steps, knowledge_graph]
