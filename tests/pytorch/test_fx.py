"""`torch.fx`: what its tutorials do, and what editing a graph may not break."""

import copy
import functools
import operator
import time

import numpy as np
import pytest

import tengen.pytorch as torch
import tengen.pytorch.fx as fx
import tengen.pytorch.nn.functional as F
from tengen import trace
from tengen.pytorch import nn
from tengen.pytorch.fx.passes.shape_prop import ShapeProp
from tengen.pytorch.nn.functional import relu as relu_of_its_own
from tengen.pytorch.nn.utils.fusion import fuse_conv_bn_eval

X = torch.tensor(np.random.default_rng(0).normal(size=(2, 3, 6, 6)).astype("f4"))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.more = nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4), nn.ReLU())
        self.w, self.act = nn.Parameter(torch.ones(4, 1, 1) * 2), F.gelu

    def forward(self, x, flag=True):
        h = self.more(relu_of_its_own(self.bn(self.conv(x)))) * self.w
        h = torch.flatten(self.act(h), 1)
        n = h.size(0)
        if flag:
            h = h.view(n, -1)[:, 1:9]
        return {"out": torch.cat([h, -h.neg()], dim=1), "extent": h.shape[1] + 1}


@pytest.fixture
def net():
    torch.manual_seed(0)
    made = Net().eval()
    with torch.no_grad():
        for bn in (made.bn, made.more[1]):
            bn.running_mean.copy_(torch.arange(4.0))
            bn.running_var.copy_(torch.arange(4.0) + 1)
    return made


def test_a_traced_module_computes_the_same_and_says_so(net):
    gm = fx.symbolic_trace(net, concrete_args={"flag": True})
    steps = [(n.op, n.name) for n in gm.graph.nodes]
    assert steps[:8] == [
        ("placeholder", "x"), ("call_module", "conv"), ("call_module", "bn"), ("call_function", "relu"), ("call_module", "more_0"),
        ("call_module", "more_1"), ("call_module", "more_2"), ("get_attr", "w"),
    ]  # fmt: skip
    assert [n.target for n in gm.graph.nodes if n.op == "call_function"][:3] == [F.relu, operator.mul, F.gelu]
    want = net(X)
    for made in (gm, copy.deepcopy(gm), fx.symbolic_trace(gm), fx.Transformer(gm).transform()):
        got = made(X)
        assert got["out"].numpy().tobytes() == want["out"].numpy().tobytes() and got["extent"] == 9
        assert made.state_dict().keys() == net.state_dict().keys() and made.get_parameter("w") is not None
    assert gm.w is net.w and copy.deepcopy(gm).w is not net.w
    assert trace(gm)(X)["out"].numpy().tobytes() == want["out"].numpy().tobytes()
    assert 'getattr(self.more, "0")(relu)' in gm.code and "torch.flatten(" in gm.code
    assert gm.print_readable(False).startswith("class Net(torch.nn.Module):\n    def forward(self, x):\n        conv = self.conv(x);")
    gm.graph.lint()
    out = torch.tensor(0.0) + gm(X)["out"].sum()
    out.backward()
    assert net.w.grad is not None


def test_conv_and_batch_norm_are_fused(net):
    gm = fx.symbolic_trace(net, {"flag": True})
    modules = dict(gm.named_modules())
    for node in gm.graph.nodes:
        if node.op == "call_module" and isinstance(modules[node.target], nn.BatchNorm2d):
            before = node.args[0]
            fused = fuse_conv_bn_eval(modules[before.target], modules[node.target])
            gm.add_submodule(before.target, fused)
            node.replace_all_uses_with(before)
            gm.graph.erase_node(node)
    gm.graph.lint()
    gm.recompile()
    gm.delete_all_unused_submodules()
    assert not any(isinstance(m, nn.BatchNorm2d) for m in gm.modules()) and len(list(gm.modules())) == 5
    np.testing.assert_allclose(gm(X)["out"].detach().numpy(), net(X)["out"].detach().numpy(), atol=1e-5)


def test_calls_are_replaced_by_hand_by_a_transformer_and_by_patterns():
    def f(x, y):
        a = torch.relu(x) + y
        return torch.relu(a) * 2 + x.relu()

    x, y = torch.tensor([-1.0, 2.0]), torch.tensor([0.5, -3.0])
    gm = fx.symbolic_trace(f)
    for n in gm.graph.nodes:
        if n.op == "call_function" and n.target == torch.relu:
            with gm.graph.inserting_after(n):
                n.replace_all_uses_with(gm.graph.call_function(torch.sigmoid, n.args, n.kwargs))
            gm.graph.erase_node(n)
    gm.recompile()
    want = torch.sigmoid(torch.sigmoid(x) + y) * 2 + x.relu()
    assert gm(x, y).tolist() == want.tolist()

    class Negative(fx.Transformer):
        def call_function(self, target, args, kwargs):
            return super().call_function(torch.neg if target is torch.sigmoid else target, args, kwargs)

        def call_method(self, target, args, kwargs):
            return super().call_method("sigmoid" if target == "relu" else target, args, kwargs)

    changed = Negative(gm).transform()
    assert changed(x, y).tolist() == (-(-x + y) * 2 + x.sigmoid()).tolist()
    matches = fx.replace_pattern(changed, lambda a, b: torch.neg(a) + b, lambda a, b: torch.add(a, b))
    assert [m.anchor.name for m in matches] == ["add"]
    assert changed(x, y).tolist() == (-(x + y) * 2 + x.sigmoid()).tolist()
    twice = fx.symbolic_trace(lambda a: torch.relu(torch.relu(torch.relu(torch.relu(a)))))
    assert len(fx.replace_pattern(twice, lambda a: torch.relu(torch.relu(a)), torch.neg)) == 2
    assert twice(x).tolist() == x.tolist()
    used = fx.symbolic_trace(lambda a: (torch.exp(torch.relu(a)), torch.relu(a)))
    shared = fx.symbolic_trace(lambda a: (lambda r: torch.exp(r) + r)(torch.relu(a)))
    assert len(fx.replace_pattern(used, lambda a: torch.exp(torch.relu(a)), torch.neg)) == 1
    assert fx.replace_pattern(shared, lambda a: torch.exp(torch.relu(a)), torch.neg) == []  # somebody else uses what is between
    with pytest.raises(RuntimeError, match="pattern returns"):
        fx.replace_pattern(used, lambda a: (a, a), torch.neg)


def test_an_interpreter_sees_every_step(net):
    class Profiler(fx.Interpreter):
        times = {}

        def run_node(self, n):
            begun = time.perf_counter()
            found = super().run_node(n)
            self.times[n.name] = time.perf_counter() - begun
            return found

    gm = fx.symbolic_trace(net, {"flag": True})
    profiler = Profiler(gm)
    assert profiler.run(X)["out"].tolist() == net(X)["out"].tolist() and len(profiler.times) == len(gm.graph.nodes)
    assert not [n for n in profiler.env if n.op == "call_module"]  # let go after their last use
    ShapeProp(gm).propagate(X)
    shapes = {n.name: n.meta["tensor_meta"].shape for n in gm.graph.nodes if n.op == "call_module"}
    assert shapes["conv"] == (2, 4, 4, 4) and gm.graph.output_node().meta["tensor_meta"]["out"].shape == (2, 16)
    with pytest.raises(RuntimeError, match="'x' is missing"):
        fx.Interpreter(gm).run()


def test_graphs_made_by_hand_and_their_edits():
    graph = fx.Graph()
    x = graph.placeholder("x")
    a = graph.call_function(torch.relu, (x,))
    b = graph.call_method("add_", (a, 1))
    dead = graph.call_function(torch.exp, (x,))
    graph.output((b, [a, {"k": x}]))
    assert graph.eliminate_dead_code() and dead not in graph.nodes and not graph.eliminate_dead_code()
    gm = fx.GraphModule({}, graph)
    assert gm(torch.tensor([-1.0]))[0].tolist() == [1.0]
    with pytest.raises(RuntimeError, match="relu is used by"):
        graph.erase_node(a)
    with graph.inserting_before(a):
        first = graph.call_function(operator.neg, (x,))
        second = graph.call_function(operator.neg, (first,))
    assert [n.name for n in graph.nodes][:4] == ["x", "neg", "neg_1", "relu"] and a.prev is second and second.next is a
    a.args = (second,)
    assert list(x.users) == [graph.output_node(), first] and graph.find_nodes(op="call_function", target=operator.neg) == [first, second]
    first.append(a)
    with pytest.raises(ValueError, match="relu uses neg_1, which is not before it"):
        graph.lint()
    second.append(a)
    graph.lint()
    gm.recompile()
    assert gm(torch.tensor([3.0]))[0].tolist() == [4.0]
    copied = fx.Graph()
    copied.output(copied.graph_copy(graph, {}))
    assert str(copied) == str(graph) and "%relu : [num_users=2]" in str(graph)
    with pytest.raises(ValueError, match="no attribute 'fc'"):
        graph.owning_module = gm
        graph.call_module("fc", (x,))
        graph.lint()


def halves(x):
    first, second = x.chunk(2)
    return second - first


def grows(x, n):
    return x * n if n > 1 else x


fx.wrap("grows")
fx.wrap("len")


class Starred(nn.Module):
    def forward(self, x, *args, k=2.0, **named):
        return x * k + args[0] - named["a"]


def test_arguments_without_a_number():
    """*args and **kwargs are an argument each, which is indexed, as in PyTorch 2.13."""
    gm, x = fx.symbolic_trace(Starred()), torch.tensor([1.0, 2.0])
    assert gm.code.splitlines()[0] == "def forward(self, x, k = 2.0, *args, **named):"
    assert gm(x, 3.0, 2 * x, a=x).tolist() == [4.0, 8.0] == Starred()(x, 2 * x, k=3.0, a=x).tolist()
    assert [n.target for n in gm.graph.nodes if n.op == "placeholder"] == ["x", "k", "*args", "**named"]
    pair = fx.symbolic_trace(lambda *args: args[1] - args[0])
    assert pair(x, 3 * x).tolist() == fx.Interpreter(pair).run(x, 3 * x).tolist() == [2.0, 4.0]
    assert fx.symbolic_trace(Starred(), {"k": 5.0})(x, x, a=x).tolist() == [5.0, 10.0]


def test_what_cannot_be_traced_says_what_to_do():
    def decides(x):
        return x if x.sum() > 0 else -x

    for f, words in ((decides, "cannot decide by gt"), (lambda x: [v for v in x], "loop over x"), (lambda *x: torch.cat([*x]), "loop over x"),
                     (functools.partial(lambda *x: x), "no function of Python")):  # fmt: skip
        with pytest.raises(RuntimeError, match=words):
            fx.symbolic_trace(f)
    assert fx.symbolic_trace(halves)(torch.arange(4.0)).tolist() == [2, 2]
    gm = fx.symbolic_trace(lambda x: grows(x, len(x)))
    assert gm(torch.ones(3)).tolist() == [3, 3, 3] and grows(2, 3) == 6 and len([1]) == 1
    assert [n.target for n in gm.graph.nodes if n.op == "call_function"] == [len, grows]

    class Whole(fx.Tracer):
        def is_leaf_module(self, m, name):
            return isinstance(m, nn.Sequential) or super().is_leaf_module(m, name)

    net = nn.Sequential(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), nn.Linear(2, 1))
    tracer = Whole()
    assert tracer.trace(lambda x: x).nodes and [n.name for n in Whole().trace(net).nodes] == ["x", "_0", "_1", "output"]
    assert torch.relu(torch.tensor(-1.0)).item() == 0 and nn.ReLU()(torch.tensor(-1.0)).item() == 0  # what was put elsewhere is back
