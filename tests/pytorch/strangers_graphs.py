"""Programs as people write them for PyTorch around graphs: passes over fx, exported and saved programs, forward derivatives, what is saved for
gradients, hooks, parametrizations, ensembles. As those of `strangers.py`: each is given the module `torch` and returns numbers."""

import copy
import io
import math
import operator
from collections import OrderedDict, defaultdict

from strangers import begin, classes, some


def conv_net(torch):
    nn = torch.nn
    net = nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(1, 4, 3), bn1=nn.BatchNorm2d(4), act1=nn.ReLU(), conv2=nn.Conv2d(4, 3, 3), bn2=nn.BatchNorm2d(3), act2=nn.ReLU(),
            pool=nn.AdaptiveAvgPool2d(1), flat=nn.Flatten(), fc=nn.Linear(3, 2),
        )
    )  # fmt: skip
    begin(torch, net)
    net.train()
    for seed in range(3):
        net(some(torch, 4, 1, 8, 8, seed=seed))
    return net.eval()


def fx_fusion(torch):
    """The tutorial's fusion of convolutions with batch norms, its helper functions and all."""
    nn, fx = torch.nn, torch.fx

    def parent_name(target):
        *parent, name = target.rsplit(".", 1)
        return parent[0] if parent else "", name

    def matches(pattern, node, modules):
        if len(node.args) == 0:
            return False
        nodes = (node.args[0], node)
        for expected, current in zip(pattern, nodes):
            if not isinstance(current, fx.Node) or current.op != "call_module":
                return False
            if not isinstance(current.target, str) or current.target not in modules or type(modules[current.target]) is not expected:
                return False
        return True

    def fuse_weights(conv_w, conv_b, rm, rv, eps, w, b):
        if conv_b is None:
            conv_b = torch.zeros_like(rm)
        rsqrt = torch.rsqrt(rv + eps)
        conv_w = conv_w * (w * rsqrt).reshape([-1] + [1] * (len(conv_w.shape) - 1))
        return torch.nn.Parameter(conv_w), torch.nn.Parameter((conv_b - rm) * rsqrt * w + b)

    def fuse(model):
        model = copy.deepcopy(model)
        traced = fx.symbolic_trace(model)
        modules = dict(traced.named_modules())
        for node in traced.graph.nodes:
            if matches((nn.Conv2d, nn.BatchNorm2d), node, modules):
                if len(node.args[0].users) > 1:
                    continue
                conv, bn = modules[node.args[0].target], modules[node.target]
                conv.weight, conv.bias = fuse_weights(
                    conv.weight, conv.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
                )
                parent, name = parent_name(node.args[0].target)
                setattr(modules[parent], name, conv)
                node.replace_all_uses_with(node.args[0])
                traced.graph.erase_node(node)
        traced.graph.lint()
        traced.recompile()
        return fx.GraphModule(traced, traced.graph)

    net, x = conv_net(torch), some(torch, 2, 1, 8, 8, seed=9)
    fused = fuse(net)
    y = fused(x)
    kinds = defaultdict(int)
    for node in fused.graph.nodes:
        kinds[node.op] += 1
    return [*y.flatten().tolist(), (y - net(x)).abs().max().item() < 1e-5, kinds["call_module"], len(list(fused.graph.nodes))]


def fx_passes(torch):
    """Replaced activations, a pattern, dead code, counted operations, in a network that mixes functions, methods and attributes."""
    nn, F, fx = torch.nn, torch.nn.functional, torch.fx

    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            self.proj, self.out = nn.Linear(6, 8), nn.Linear(4, 3)
            self.scale = nn.Parameter(torch.ones(1))

        def forward(self, x, mask=None):
            b, t, _ = x.size(0), x.size(1), x.size(2)
            h, gate = self.proj(x).chunk(2, dim=-1)
            h = F.gelu(h) * torch.sigmoid(gate)
            h + 1
            h = h.reshape(b * t, -1) * self.scale
            return F.log_softmax(self.out(h), dim=-1).view(b, t, -1)

    net = begin(torch, Gated())
    gm = fx.symbolic_trace(net)
    before = len(gm.graph.nodes)
    gm.graph.eliminate_dead_code()
    after = len(gm.graph.nodes)
    for node in list(gm.graph.nodes):
        if node.op == "call_function" and node.target == F.gelu:
            with gm.graph.inserting_before(node):
                new = gm.graph.call_function(torch.tanh, args=node.args)
            node.replace_all_uses_with(new)
            gm.graph.erase_node(node)
    gm.recompile()
    x = some(torch, 2, 3, 6)
    first = gm(x)
    fx.replace_pattern(gm, lambda a, b: torch.tanh(a) * torch.sigmoid(b), lambda a, b: torch.relu(a) * torch.sigmoid(b))
    second = gm(x)
    second.sum().backward()
    calls = sum(n.op == "call_function" for n in gm.graph.nodes)
    methods = sorted(n.target for n in gm.graph.nodes if n.op == "call_method")
    return [before - after > 0, first.sum().item(), second.sum().item(), net.scale.grad.item(), calls > 4, methods.index("chunk")]


def fx_interpreter(torch):
    """Shapes and floating-point operations of each layer, and a network that is split in two by its graph."""
    nn, fx = torch.nn, torch.fx
    net, x = conv_net(torch), some(torch, 2, 1, 8, 8)
    gm = fx.symbolic_trace(net)

    class Counter(fx.Interpreter):
        def __init__(self, module):
            super().__init__(module)
            self.flops, self.shapes = {}, {}

        def run_node(self, n):
            result = super().run_node(n)
            if n.op == "call_module":
                m = self.submodules[n.target]
                if isinstance(m, nn.Conv2d):
                    self.flops[n.target] = 2 * result.numel() * m.weight[0].numel()
                elif isinstance(m, nn.Linear):
                    self.flops[n.target] = 2 * m.weight.numel() * result.shape[0]
            self.shapes[n.name] = tuple(result.shape)
            return result

    counter = Counter(gm)
    out = counter.run(x)
    cut = next(n for n in gm.graph.nodes if n.name == "conv2")
    first, env = fx.Graph(), {}
    for n in gm.graph.nodes:
        if n is cut:
            break
        env[n] = first.node_copy(n, lambda m: env[m])
    first.output(env[cut.args[0]])
    second, env2 = fx.Graph(), {}
    env2[cut.args[0]] = second.placeholder("h")
    for n in list(gm.graph.nodes)[list(gm.graph.nodes).index(cut) :]:
        env2[n] = second.node_copy(n, lambda m: env2[m])
    a, b = fx.GraphModule(gm, first), fx.GraphModule(gm, second)
    a.graph.lint()
    b.graph.lint()
    return [sum(counter.flops.values()), len(counter.flops), *counter.shapes["act1"], (b(a(x)) - out).abs().max().item(), out.sum().item()]


def fx_quantise(torch):
    """Observers are put behind layers by a Transformer, weights rounded to 8 bits, by a tracer with leaves of its own."""
    nn, fx = torch.nn, torch.fx
    ranges = {}

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            return torch.relu(self.a(x)) + self.b(x)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList([Block(), Block()])
            self.head = nn.Linear(4, 2)

        def forward(self, x):
            for block in self.blocks:
                x = block(x)
            return self.head(x)

    class Leaves(fx.Tracer):
        def is_leaf_module(self, m, qualname):
            return isinstance(m, Block) or super().is_leaf_module(m, qualname)

    net = begin(torch, Net())
    coarse = Leaves().trace(net)
    gm = fx.GraphModule(net, coarse)

    def observe(x, name):
        low, high = ranges.get(name, (math.inf, -math.inf))
        ranges[name] = min(low, x.min().item()), max(high, x.max().item())
        return x

    class Observed(fx.Transformer):
        def call_module(self, target, args, kwargs):
            return super().call_function(observe, (super().call_module(target, args, kwargs), target), {})

    observed = Observed(gm).transform()
    x = some(torch, 16, 4)
    y = observed(x)
    fine = fx.symbolic_trace(net)
    for node in fine.graph.nodes:
        if node.op == "call_module":
            layer = fine.get_submodule(node.target)
            if isinstance(layer, nn.Linear):
                scale = layer.weight.detach().abs().max() / 127
                layer.weight.data = torch.round(layer.weight.data / scale) * scale
    kinds = [n.op for n in coarse.nodes].count("call_module"), [n.op for n in fine.graph.nodes].count("call_module")
    close = (fine(x) - y).abs().max().item() < 0.1
    return [y.sum().item(), close, fine(x).sum().item(), *kinds, *(v for k in sorted(ranges) for v in ranges[k])]


def exported(torch):
    """`torch.export` with an open batch, a file, and what comes back from it."""
    import importlib

    export = importlib.import_module(f"{torch.__name__}.export")
    net, x = conv_net(torch), some(torch, 4, 1, 8, 8, seed=3)
    batch = export.Dim("batch", min=1, max=64)
    program = export.export(net, (x,), dynamic_shapes={"input": {0: batch}} if "input" in _names(net) else {"x": {0: batch}})
    file = io.BytesIO()
    export.save(program, file)
    file.seek(0)
    loaded = export.load(file)
    outs = [loaded.module()(some(torch, n, 1, 8, 8, seed=4)) for n in (2, 5)]
    same = (program.module()(x) - net(x)).abs().max().item() < 1e-6
    return [same, *(o.sum().item() for o in outs), outs[1].shape[0], "conv1.weight" in program.state_dict]


def _names(net):
    import inspect

    return inspect.signature(net.forward).parameters


def scripted(torch):
    """A traced network and a scripted function, saved, loaded, frozen, run."""
    net, x = conv_net(torch), some(torch, 2, 1, 8, 8, seed=3)
    traced = torch.jit.trace(net, x)
    file = io.BytesIO()
    torch.jit.save(traced, file)
    file.seek(0)
    loaded = torch.jit.load(file, map_location="cpu")
    loaded.eval()
    with torch.no_grad():
        a, b = loaded(x), torch.jit.freeze(torch.jit.trace(net.eval(), x))(x)
    return [a.sum().item(), b.sum().item(), (a - net(x)).abs().max().item() < 1e-6, len(list(traced.parameters())), traced.training]


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


def einops_like(torch):
    """Patches, heads and windows by view, permute, unfold, as_strided and einsum, and what is written into them."""
    x = some(torch, 2, 3, 8, 8)
    patches = x.unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 1, 4, 5).reshape(2, 4, 48)
    back = patches.view(2, 2, 2, 3, 4, 4).permute(0, 3, 1, 4, 2, 5).contiguous().view(2, 3, 8, 8)
    windows = x.view(2, 3, 2, 4, 2, 4)
    windows[:, :, 0, :, 1] = 0
    x.transpose(1, 2)[:, 5].mul_(2)
    q = torch.einsum("bchw,cd->bhwd", x, some(torch, 3, 4))
    heads = q.flatten(1, 2).unflatten(-1, (2, 2)).movedim(2, 1)
    attention = torch.softmax(heads @ heads.mT / math.sqrt(2), dim=-1)
    out = torch.einsum("bhij,bhjd->bihd", attention, heads).flatten(2)
    toeplitz = torch.arange(7.0).as_strided((4, 4), (1, 1))
    diagonal = torch.zeros(4, 4)
    diagonal.diagonal(1).copy_(torch.arange(3.0))
    diagonal.view(-1)[::5] = 9
    return [(back - some(torch, 2, 3, 8, 8)).abs().max().item(), x.sum().item(), out.sum().item(), out.square().sum().item(),
            toeplitz.sum().item(), diagonal.sum().item(), diagonal[0, 1].item()]  # fmt: skip


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


def graph_walk(torch):
    """The recorded calls: their names, leaves found by next_functions, gradients by edges of the graph, hooks of several tensors."""
    w, b = torch.ones(3, 2, requires_grad=True), torch.zeros(3, requires_grad=True)
    x = some(torch, 4, 2)
    h = torch.tanh(x @ w.t() + b)
    loss = h.pow(2).mean()
    leaves, stack, seen = [], [loss.grad_fn], set()
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if node.name().endswith("AccumulateGrad"):
            leaves.append(node.variable)
        stack += [n for n, _ in node.next_functions]
    found = sorted(tuple(v.shape) for v in leaves)
    seen_grads = []
    handle = torch.autograd.graph.register_multi_grad_hook([w, b], lambda grads: seen_grads.append(sum(g.sum().item() for g in grads)))
    loss.backward()
    handle.remove()
    state = [loss.requires_grad, loss.is_leaf, w.is_leaf, h.grad_fn is None, x.requires_grad, w.grad.requires_grad]
    return [len(found), *found[0], *found[1], *seen_grads, *map(float, state), h.grad_fn.name() == "TanhBackward0"]


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


def operators(torch):
    """Functions with `out=`, functions that write, and arithmetic of slices, as numerical programs have them."""
    n = 6
    a, buffer, rows = some(torch, n, n), torch.empty(n, n), torch.zeros(3, n)
    torch.matmul(a, a.t(), out=buffer)
    torch.add(buffer, torch.eye(n), alpha=2.0, out=buffer)
    torch.sum(buffer, dim=0, out=rows[1])
    torch.mul(rows[1], 2, out=rows[2])
    values, order = torch.empty(n), torch.empty(n, dtype=torch.long)
    torch.sort(rows[2], descending=True, out=(values, order))
    grid = torch.zeros(5, 5)
    grid[2, 2] = 100.0
    for _ in range(4):
        inner = grid[1:-1, 1:-1]
        inner += 0.25 * (grid[:-2, 1:-1] + grid[2:, 1:-1] + grid[1:-1, :-2] + grid[1:-1, 2:] - 4 * inner)
        grid[0], grid[-1] = grid[1], grid[-2]
        grid[:, 0].copy_(grid[:, 1])
    torch.clamp_(grid, max=20.0)
    torch.sqrt_(grid.abs_())
    low = torch.zeros(4, 4)
    for i in range(4):
        low[i, : i + 1] = torch.arange(i + 1, dtype=torch.float32)
        low[i, i].add_(1)
    acc = torch.zeros(3)
    acc.index_add_(0, torch.tensor([0, 2, 2]), torch.tensor([1.0, 2.0, 3.0])).mul_(2)
    z = torch.zeros(3, dtype=torch.complex64)
    z.real[1:] = 2
    torch.view_as_real(z)[0, 1] = -1
    total = operator.iadd(torch.ones(2), 1)
    return [buffer.sum().item(), rows[2].sum().item(), values[0].item(), order[0].item(), grid.sum().item(), low.sum().item(),
            *acc.tolist(), z.abs().sum().item(), total.sum().item()]  # fmt: skip


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
    fx_fusion, fx_passes, fx_interpreter, fx_quantise, exported, scripted, newton, compressed_activations, fused_optimizer, gradient_surgery,
    positive_weights, shared_weights, einops_like, checkpointed, loaders, rate_finder, averages, straight_through, ensembles, tangent_kernels,
    truncated_backprop, memory_bank, graph_walk, second_order, operators, padded_ensembles,
]  # fmt: skip
