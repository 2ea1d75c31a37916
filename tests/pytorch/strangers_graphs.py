"""Programs around graphs: passes over fx, exported and scripted programs, and operators of one's own, as people write them
for PyTorch, as those of `strangers.py`: each is given the module `torch` and returns numbers."""

import copy
import io
import math
import operator
from collections import OrderedDict, defaultdict

from strangers import begin, some


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


PROGRAMS = [
    fx_fusion, fx_passes, fx_interpreter, fx_quantise, exported, scripted, einops_like, graph_walk, operators,
]  # fmt: skip
