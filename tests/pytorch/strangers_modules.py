"""Programs about modules, hooks, parametrizations, functions and optimizers of one's own as people write them for PyTorch,
as those of `strangers.py`: each is given the module `torch` and returns numbers."""

import copy
from collections import OrderedDict

from strangers import begin, classes, some


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


def compressed_activations(torch):
    """Saved tensors are quantised to 8 bits with a scale for each."""
    graph = torch.autograd.graph
    packed_bytes = [0]

    def pack(x):
        if not x.is_floating_point() or x.numel() < 16 or x.dim() < 2:
            return x
        scale = x.abs().max().clamp(min=1e-8) / 127
        q = torch.round(x / scale).to(torch.int8)
        packed_bytes[0] += q.numel()
        return q, scale

    def unpack(p):
        return p if not isinstance(p, tuple) else p[0].float() * p[1]

    def run(hooks):
        net = begin(torch, torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4)))
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        losses = []
        for step in range(4):
            x, y = some(torch, 12, 8, seed=step), classes(torch, 12, 4, seed=step)
            if hooks:
                with graph.saved_tensors_hooks(pack, unpack):
                    loss = torch.nn.functional.cross_entropy(net(x), y)
            else:
                with graph.save_on_cpu(pin_memory=False):
                    loss = torch.nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
        return losses

    exact, rough = run(False), run(True)
    return [*exact, max(abs(a - b) for a, b in zip(exact, rough)) < 0.05, packed_bytes[0] > 0]


def fused_optimizer(torch):
    """The tutorial's optimizer in the backward pass: a step for each parameter as soon as its gradient is there."""
    net = begin(torch, torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)))
    optimizers = {p: torch.optim.Adam([p], lr=0.05, foreach=False) for p in net.parameters()}
    order = []

    def hook(parameter):
        order.append(tuple(parameter.shape))
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    handles = [p.register_post_accumulate_grad_hook(hook) for p in net.parameters()]
    losses = []
    for step in range(5):
        loss = (net(some(torch, 6, 4, seed=step)) ** 2).mean()
        loss.backward()
        losses.append(loss.item())
    for h in handles:
        h.remove()
    (net(some(torch, 6, 4)) ** 2).mean().backward()
    return [*losses, len(order), net[0].weight.grad.abs().sum().item(), all(p.grad is not None for p in net.parameters())]


def gradient_surgery(torch):
    """Hooks on parameters and results: clipped, masked and recorded gradients; PCGrad's projection of two tasks."""
    net = begin(torch, torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh()))
    heads = [begin(torch, torch.nn.Linear(6, 1), seed=s) for s in (3, 4)]
    mask = torch.zeros(6, 4)
    mask[::2] = 1.0
    net[0].weight.register_hook(lambda g: g * mask)
    seen = []
    h = net(some(torch, 5, 4))
    h.register_hook(lambda g: seen.append(g.norm().item()))
    h.retain_grad()
    losses = [(head(h) ** 2).mean() for head in heads]
    grads = [torch.autograd.grad(loss, list(net.parameters()), retain_graph=True) for loss in losses]
    flat = [torch.cat([g.reshape(-1) for g in gs]) for gs in grads]
    dot = torch.dot(*flat)
    if dot < 0:
        flat[0] = flat[0] - dot / flat[1].norm() ** 2 * flat[1]
    sum(losses).backward()
    return [dot.item(), *(f.norm().item() for f in flat), *seen, h.grad.norm().item(), net[0].weight.grad[1].abs().sum().item()]


def positive_weights(torch):
    """Parametrizations: a symmetric matrix, positive weights, weights that sum to 1, a chain of two, and their removal."""
    nn, parametrize = torch.nn, torch.nn.utils.parametrize

    class Symmetric(nn.Module):
        def forward(self, x):
            return x.triu() + x.triu(1).transpose(-1, -2)

    class Exp(nn.Module):
        def forward(self, x):
            return torch.exp(x)

        def right_inverse(self, y):
            return torch.log(y)

    class Scaled(nn.Module):
        def __init__(self, s):
            super().__init__()
            self.s = nn.Parameter(torch.tensor(s))

        def forward(self, x):
            return x * self.s

        def right_inverse(self, y):
            return y / self.s

    net = begin(torch, nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2)))
    parametrize.register_parametrization(net[0], "weight", Symmetric())
    net[2].weight = nn.Parameter(net[2].weight.detach().abs() + 0.1)
    parametrize.register_parametrization(net[2], "weight", Exp())
    parametrize.register_parametrization(net[2], "weight", Scaled(2.0))
    opt = torch.optim.SGD(net.parameters(), lr=0.05)
    losses = []
    for step in range(4):
        loss = (net(some(torch, 8, 4, seed=step)) - 1).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    symmetric = (net[0].weight - net[0].weight.T).abs().max().item()
    positive = bool((net[2].weight / net[2].parametrizations.weight[1].s > 0).all())
    with parametrize.cached():
        again = net[0].weight is net[0].weight
    parametrize.remove_parametrizations(net[0], "weight")
    return [*losses, symmetric, positive, again, len(list(net.parameters())), net[0].weight.sum().item()]


def shared_weights(torch):
    """Tied embeddings, a layer that is used twice, and what state dicts, deep copies and optimizers make of them."""
    nn, F = torch.nn, torch.nn.functional

    class LM(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(11, 6)
            self.mix = nn.Linear(6, 6)
            self.out = nn.Linear(6, 11, bias=False)
            self.out.weight = self.emb.weight

        def forward(self, i):
            h = self.emb(i)
            for _ in range(2):
                h = h + torch.tanh(self.mix(h))
            return self.out(h)

    net = begin(torch, LM())
    other = copy.deepcopy(net)
    opt = torch.optim.AdamW(net.parameters(), lr=0.02)
    losses = []
    for step in range(4):
        i = classes(torch, 12, 11, seed=step).view(3, 4)
        loss = F.cross_entropy(net(i)[:, :-1].reshape(-1, 11), i[:, 1:].reshape(-1))
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        losses.append(loss.item())
    other.load_state_dict(net.state_dict())
    tied = other.out.weight is other.emb.weight and net.out.weight is net.emb.weight
    return [*losses, tied, len(list(net.parameters())), len(net.state_dict()), sum(p.numel() for p in net.parameters()), other(i).sum().item()]


def straight_through(torch):
    """Custom Functions: rounding with a straight-through gradient, needs_input_grad, several results, None, non-tensors, materialised zeros."""

    class Round(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, levels):
            ctx.levels = levels
            ctx.save_for_backward(x)
            return torch.round(x * levels) / levels

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * (x.abs() < 1).float(), None

    class Affine(torch.autograd.Function):
        asked = []

        @staticmethod
        def forward(ctx, x, w, b):
            ctx.save_for_backward(x, w)
            return x @ w.t() + b

        @staticmethod
        def backward(ctx, g):
            x, w = ctx.saved_tensors
            Affine.asked.append(ctx.needs_input_grad)
            gx = g @ w if ctx.needs_input_grad[0] else None
            gw = g.t() @ x if ctx.needs_input_grad[1] else None
            gb = g.sum(0) if ctx.needs_input_grad[2] else None
            return gx, gw, gb

    class Split(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, a, b):
            return (0 if a is None else a * 2) + (0 if b is None else b * 3)

    w, b = some(torch, 3, 4).requires_grad_(), torch.zeros(3)
    x = some(torch, 5, 4, seed=4)
    y = Affine.apply(Round.apply(x, 8), w, b)
    first, _ = Split.apply(y)
    first.sum().backward()
    z = x.clone().requires_grad_()
    Affine.apply(Round.apply(z, 8), w, b.requires_grad_()).pow(2).sum().backward()
    asked = [sum(bool(v) << i for i, v in enumerate(a)) for a in Affine.asked]
    return [y.sum().item(), w.grad.norm().item(), z.grad.norm().item(), b.grad.sum().item(), *asked]


def ensembles(torch):
    """The tutorial's ensemble by stack_module_state and vmap, its gradients per model, and per-sample gradients."""
    nn = torch.nn
    func = torch.func
    nets = [begin(torch, nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)), seed=s) for s in range(4)]
    params, buffers = func.stack_module_state(nets)
    base = copy.deepcopy(nets[0])
    x, y = some(torch, 7, 4), classes(torch, 7, 3)

    def call(p, b, x):
        return func.functional_call(base, (p, b), (x,))

    outs = torch.vmap(call, in_dims=(0, 0, None))(params, buffers, x)
    each = torch.vmap(call)(params, buffers, torch.stack([x + i for i in range(4)]))

    def loss(p, b, x, y):
        return nn.functional.cross_entropy(call(p, b, x), y)

    grads = torch.vmap(func.grad(loss), in_dims=(0, 0, None, None))(params, buffers, x, y)
    one = {k: v[0].detach() for k, v in params.items()}

    def sample_loss(p, x, y):
        return nn.functional.cross_entropy(func.functional_call(base, p, (x.unsqueeze(0),)), y.unsqueeze(0))

    per_sample = torch.vmap(func.grad(sample_loss), in_dims=(None, 0, 0))(one, x, y)
    loss_of_all = torch.vmap(loss, in_dims=(0, 0, None, None))(params, buffers, x, y).sum()
    loss_of_all.backward()
    same = (outs[2] - nets[2](x)).abs().max().item() < 1e-5
    return [same, outs.sum().item(), each.sum().item(), *(g.norm().item() for g in grads.values()),
            *(g.norm().item() for g in per_sample.values()), params["0.weight"].grad.norm().item()]  # fmt: skip


def memory_bank(torch):
    """MoCo's queue and key encoder, a prototype memory, and masks that are written through views under no_grad."""
    nn, F = torch.nn, torch.nn.functional
    query, key = (begin(torch, nn.Linear(6, 4)) for _ in range(2))
    for p in key.parameters():
        p.requires_grad = False
    queue = F.normalize(some(torch, 4, 8, seed=7), dim=0)
    pointer = torch.zeros(1, dtype=torch.long)
    opt = torch.optim.SGD(query.parameters(), lr=0.2)
    losses = []
    for step in range(5):
        x = some(torch, 2, 6, seed=step)
        q = F.normalize(query(x), dim=1)
        with torch.no_grad():
            for pq, pk in zip(query.parameters(), key.parameters()):
                pk.data = pk.data * 0.9 + pq.data * 0.1
            k = F.normalize(key(x + 0.1), dim=1)
        positive = torch.einsum("nc,nc->n", [q, k]).unsqueeze(-1)
        negative = torch.einsum("nc,ck->nk", [q, queue.clone().detach()])
        logits = torch.cat([positive, negative], dim=1) / 0.2
        loss = F.cross_entropy(logits, torch.zeros(2, dtype=torch.long))
        opt.zero_grad()
        loss.backward()
        opt.step()
        at = int(pointer)
        queue[:, at : at + 2] = k.T
        pointer[0] = (at + 2) % 8
        losses.append(loss.item())
    memory = torch.zeros(3, 4)
    with torch.no_grad():
        for row, c in zip(q.detach(), (0, 2)):
            memory[c].lerp_(row, 0.5)
        memory[1:].clamp_(min=0.1)
        memory.t()[0] *= 2
        memory.view(-1)[torch.tensor([5])] = 7
        for m in memory.unbind(1):
            m.sub_(m.mean())
    return [*losses, queue.sum().item(), pointer.item(), memory.sum().item(), memory.abs().sum().item()]


def padded_ensembles(torch):
    """Positional losses over packed and padded batches with masks that are views, and statistics gathered by forward hooks with keywords."""
    nn = torch.nn

    class Scorer(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.out = nn.GRU(4, 6, batch_first=True, bidirectional=True), nn.Linear(12, 1)

        def forward(self, x, *, lengths):
            packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            out, _ = nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
            return self.out(out).squeeze(-1)

    net, seen = begin(torch, Scorer()), []
    net.register_forward_pre_hook(lambda m, args, kwargs: (args, {"lengths": kwargs["lengths"].clamp(min=1)}), with_kwargs=True)
    net.register_forward_hook(lambda m, args, kwargs, out: seen.append(int(kwargs["lengths"].sum())), with_kwargs=True, always_call=True)
    net.out.register_full_backward_hook(lambda m, gi, go: seen.append(round(go[0].abs().sum().item(), 4)))
    lengths = torch.tensor([5, 0, 3])
    scores = net(some(torch, 3, 5, 4), lengths=lengths)
    mask = torch.zeros_like(scores, dtype=torch.bool)
    for row, n in zip(mask, lengths.tolist()):
        row[:n] = True
    scores = scores.masked_fill(~mask, 0.0)
    loss = scores.pow(2).sum() / mask.sum()
    loss.backward()
    try:
        net(some(torch, 3, 5, 4), lengths=torch.tensor([9, 9, 9]))
    except Exception:
        seen.append(-1)
    return [loss.item(), mask.sum().item(), *seen, net.rnn.weight_ih_l0_reverse.grad.norm().item()]


PROGRAMS = [
    custom_functions, hooks, state_dict_surgery, stacked_models, constrained, two_results, feature_hooks,
    compressed_activations, fused_optimizer, gradient_surgery, positive_weights, shared_weights, straight_through, ensembles,
    memory_bank, padded_ensembles,
]  # fmt: skip
