"""Programs about equations, statistics and networks of nodes as people write them for PyTorch, as those of `strangers.py`:
each is given the module `torch` and returns numbers."""

import math

import numpy as np
from strangers import begin, some


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


def newton(torch):
    """Newton's method by forward derivatives, of a system and of a function of one number."""
    fwAD = torch.autograd.forward_ad

    def f(x):
        return torch.stack([x[0] ** 2 + x[1] ** 2 - 4.0, torch.exp(x[0]) + x[1] - 1.0])

    x = torch.tensor([1.0, -1.5], dtype=torch.float64)
    for _ in range(6):
        columns = []
        for i in range(2):
            with fwAD.dual_level():
                e = torch.zeros(2, dtype=torch.float64)
                e[i] = 1.0
                value, column = fwAD.unpack_dual(f(fwAD.make_dual(x, e)))
            columns.append(column)
        x = x - torch.linalg.solve(torch.stack(columns, dim=1), value)
    net = begin(torch, torch.nn.Sequential(torch.nn.Linear(2, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1)))
    params = {name: p for name, p in net.named_parameters()}
    tangents = {name: torch.ones_like(p) * 0.1 for name, p in params.items()}
    data = some(torch, 3, 2)
    with fwAD.dual_level():
        for name, p in params.items():
            module = net.get_submodule(name.rpartition(".")[0])
            delattr(module, name.rpartition(".")[2])
            setattr(module, name.rpartition(".")[2], fwAD.make_dual(p, tangents[name]))
        jvp = fwAD.unpack_dual(net(data)).tangent
    return [*x.tolist(), *f(x).abs().tolist(), *jvp.flatten().tolist()]


def tangent_kernels(torch):
    """The neural tangent kernel by Jacobians, by products of vectors, and a Hessian's largest eigenvalue by power iteration."""
    func, nn = torch.func, torch.nn
    net = begin(torch, nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)))
    params = {k: v.detach() for k, v in net.named_parameters()}
    a, b = some(torch, 4, 3), some(torch, 2, 3, seed=6)

    def one(p, x):
        return func.functional_call(net, p, (x.unsqueeze(0),)).squeeze(0)

    ja = torch.vmap(func.jacrev(one), (None, 0))(params, a)
    jb = torch.vmap(func.jacrev(one), (None, 0))(params, b)
    kernel = sum(torch.einsum("Naf,Mbf->NMab", ja[k].flatten(2), jb[k].flatten(2)) for k in ja)
    loss = lambda p: func.functional_call(net, p, (a,)).pow(2).sum()
    v = {k: torch.ones_like(p) for k, p in params.items()}
    for _ in range(12):
        _, hv = func.jvp(func.grad(loss), (params,), (v,))
        norm = sum(h.pow(2).sum() for h in hv.values()).sqrt()
        v = {k: h / norm for k, h in hv.items()}
    _, pull = func.vjp(lambda p: func.functional_call(net, p, (a,)), params)
    back = pull(torch.ones(4, 2))[0]
    return [kernel.sum().item(), kernel.norm().item(), norm.item(), *(g.sum().item() for g in back.values())]


def second_order(torch):
    """Gradient penalties, Hessian-vector products by double backward, an implicit gradient, and meta-learning through updates."""
    nn = torch.nn
    net = begin(torch, nn.Sequential(nn.Linear(3, 4), nn.Softplus(), nn.Linear(4, 1)))
    x = some(torch, 6, 3).requires_grad_()
    y = net(x)
    (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    penalty = (slope.norm(dim=1) - 1).pow(2).mean()
    grads = torch.autograd.grad(penalty, list(net.parameters()), create_graph=True, allow_unused=True)
    v = [torch.ones_like(p) for p in net.parameters()]
    flat = sum((g * u).sum() for g, u in zip(grads, v) if g is not None)
    hv = torch.autograd.grad(flat, list(net.parameters()), allow_unused=True)
    log_rate = torch.tensor(-2.0, requires_grad=True)
    w = torch.tensor([1.0, -1.0], requires_grad=True)
    fast = w
    for i in range(3):
        inner = ((fast * some(torch, 2, seed=i)).sum() - 1).pow(2)
        (g,) = torch.autograd.grad(inner, fast, create_graph=True)
        fast = fast - log_rate.exp() * g
    fast.pow(2).sum().backward()
    return [penalty.item(), *(0.0 if h is None else h.norm().item() for h in hv), log_rate.grad.item(), *w.grad.tolist()]


PROGRAMS = [
    neural_ode, physics_informed, jacobians, gaussian_process, clusters, transport, recommender, graph_network,
    graph_attention, integers, learned_optimizer, newton, tangent_kernels, second_order,
]  # fmt: skip
