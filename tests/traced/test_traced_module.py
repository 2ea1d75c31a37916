"""`tengen.traced_module`: traced modules compute, train and trace with the bits of their modules; edits, files, and what is refused."""

import copy
import pickle
import random

import numpy as np
import pytest

import tengen
import tengen.functional as F
import tengen.module as M
from tengen import Parameter, Tensor, models, trace
from tengen.autodiff import GradManager, no_grad
from tengen.base.errors import ArgumentError, FileFormatError, TengenError, TraceError
from tengen.optimizer import SGD
from tengen.traced_module import (
    CallFunction,
    CallMethod,
    Constant,
    GetAttr,
    Input,
    ModuleNode,
    TensorNode,
    TracedModule,
    optimize,
    register_as_builtin,
    register_supported_type,
    trace_module,
    tracer,
    wrap,
)
from tengen.traced_module.saving import pack, unpack

TABLE = np.arange(3, dtype=np.float32)


@wrap
def scaled(x, by, *, shift=0.0):
    return (x * by if by > 0 else x) + shift  # a decision that a trace would take for good


class Block(M.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn = M.Conv2d(3, 3, 3, padding=1), M.BatchNorm2d(3)
        self.w = Parameter([1.5])

    def forward(self, x, act=F.relu):
        return F.relu(self.bn(self.conv(x))) * self.w


class Net(M.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()
        self.seq = M.Sequential(M.Linear(192, 8), M.ReLU())
        self.heads = [M.Linear(8, 2), M.Linear(8, 3)]
        self.table = Tensor(TABLE)

    def forward(self, x, gain=1.0):
        y = self.block(self.block(x)) + x
        y = self.seq(y.reshape(y.shape[0], -1))
        with no_grad():
            level = y.mean()
        a, b = (h(y) for h in self.heads)
        return {"a": scaled(a - level, gain, shift=0.5), "b": [b + self.table + Tensor([0.0, 1.0, 2.0]), x.detach().sum()]}


def data(n, seed=0):
    return Tensor(np.random.default_rng(seed).normal(size=(n, 3, 8, 8)).astype("float32"))


@pytest.fixture(scope="module")
def net():
    tengen.random.seed(3)
    return Net()


def results(out):
    return [out["a"], *out["b"]]


def same(one, other):
    for a, b in zip(results(one), results(other), strict=True):
        assert a.shape == b.shape and a.numpy().tobytes() == b.numpy().tobytes()


def step(m, x):
    """A training step: its loss, gradients and running statistics as bytes."""
    gm = GradManager().attach(m.parameters())
    with gm:
        out = m(x)
        loss = (out["a"] ** 2).sum() + (out["b"][0] ** 2).sum()
        gm.backward(loss)
    return [loss.numpy().tobytes(), *(p.grad.numpy().tobytes() for p in m.parameters()), *(b.numpy().tobytes() for b in m.buffers())]


def test_what_is_recorded(net):
    m = trace_module(net, data(2))
    assert type(m.block) is TracedModule and type(m.heads[1]) is M.Linear and m.heads[0] is net.heads[0] and m.block.w is net.block.w
    kinds = [type(e).__name__ for e in m.graph.exprs(recursive=False)]
    assert kinds.count("Input") == 2 and kinds.count("CallMethod") == 5 and kinds.count("Constant") == 1 and kinds.count("Apply") == 2  # detach
    text = str(m.graph)
    assert "block_out_1 = block(block_out, )" in text and 'heads_0 = getattr(self, "heads.0") -> (Linear)' in text
    assert "scaled(sub_out, 1.0, shift=0.5, )" in text and "shape=(batch, -1)" in text and text.count("= stop_gradient(") == 2
    assert "relu_out = relu(bn_out, )" in str(m.block.graph) and list(m.state_dict()) == list(net.state_dict())
    g = m.graph
    assert g.get_function_by_type(F.relu).as_count() == 1 and g.get_function_by_type(scaled, False).as_unique().name.endswith(":scaled")
    assert g.get_module_by_type(M.Conv2d).as_unique().owner is net.block.conv and g.get_method_by_type("mean").as_count() == 1
    assert g.get_method_by_type("__call__", False).as_count() == 5 and g.get_node_by_name("HEADS_?").as_count() == 2
    e = g.get_expr_by_id([g.get_function_by_type(scaled).as_unique().id]).as_unique()
    assert isinstance(e, CallFunction) and e.func is scaled and e.inputs[0].expr in g.get_dep_exprs(e.outputs[0])
    assert g.get_node_by_id(e.outputs[0].id).as_unique() is e.outputs[0] and e.inputs[0].users == [e] and g.name == "Net"
    assert [type(n) for n in g.inputs] == [ModuleNode, TensorNode] and g.inputs[1].name == "x" and isinstance(g.inputs[1].expr, Input)
    assert g.nodes(False).type(M.Linear).as_count() == 2 and m.block.graph.qualname == "Net.block" and g.inputs[0].owner is m
    assert isinstance(g.get_node_by_name("table").as_unique().expr, GetAttr) and "[x]" in g.inputs[1].qualname
    with pytest.raises(ValueError, match="one is wanted"):
        g.exprs().as_unique()


def test_bits_in_evaluation_and_training_eager_and_traced(net):
    m = trace_module(net, data(2))
    for n in (2, 5, 1):
        x = data(n, n)
        net.eval(), m.eval()
        same(net(x), m(x))
        same(net(x), trace(m)(x))
        same(net(x), m.flatten()(x))
        net.train(), m.train()
        one, other, flat = copy.deepcopy(net), copy.deepcopy(m), m.flatten()
        assert step(one, x) == step(other, x) == step(flat, x)
        assert [p.numpy().tobytes() for p in one.parameters()] == [p.numpy().tobytes() for p in net.parameters()]
    one, other = copy.deepcopy(net), copy.deepcopy(m)
    first, second = (trace(lambda x, m=m, o=SGD(m.parameters(), lr=0.1): (step_of(m, o, x))) for m in (one, other))
    assert [first(data(2)).item() for _ in range(3)] == [second(data(2)).item() for _ in range(3)]


def step_of(m, opt, x):
    gm = GradManager().attach(m.parameters())
    with gm:
        loss = (m(x)["a"] ** 2).sum()
        gm.backward(loss)
    opt.step().clear_grad()
    return loss


def test_modules_of_the_zoo():
    x = Tensor(np.random.default_rng(0).normal(size=(1, 3, 32, 32)).astype("float32"))
    ids = Tensor(np.arange(16, dtype=np.int32).reshape(2, 8))
    text = models.gpt(layers=4, width=32, heads=4, context=16, vocabulary=50)
    for net, example in ((models.mobilenet_v2(width=0.25), x), (text, ids), (models.unet(width=8), x)):
        m = trace_module(net.eval(), example)  # which compares what both compute, node by node
        assert "batch" in repr(m.graph.inputs[1]._layout.type) and list(m.state_dict()) == list(net.state_dict())
        assert len(m.graph.exprs().as_list()) > 50 and not any(isinstance(e, Constant) for e in m.flatten().graph.exprs())


def test_edits(net):
    m = trace_module(net.eval(), data(2)).flatten()
    g, x = m.graph, data(3)
    before = m(x)
    relu = g.get_function_by_type(F.relu).as_list()[0]
    with g.insert_exprs(relu):
        y = F.exp(relu.inputs[0]) * 0.5 + m.table.sum()
    g.replace_node({relu.outputs[0]: y})
    assert g.exprs().as_list().index(y.expr) == g.exprs().as_list().index(relu) + 3
    assert not np.array_equal(m(x)["a"].numpy(), before["a"].numpy())
    count = g.exprs().as_count()
    g.compile()
    assert g.exprs().as_count() == count - 1  # the relu
    m.extra = M.Linear(2, 4)
    with g.insert_exprs():
        self, out = g.inputs[0], g.outputs[0]
        more = self.extra(out)
        again = scaled(more, 2.0)
    g.add_output_node(again)
    g.add_output_node(more)
    assert more.shape[1:] == (4,) and isinstance(more.expr, CallMethod) and more.expr.args[0].owner is m.extra
    got = m(x)
    assert len(got) == 3 and np.array_equal(got[1].numpy(), got[2].numpy() * 2) and np.array_equal(got[2].numpy(), m.extra(got[0]["a"]).numpy())
    n = g.add_input_node(("batch", 4), name="bias")
    with g.insert_exprs():
        shifted = more + n
    g.reset_outputs({"y": (shifted, 7)})
    bias = Tensor(np.ones((3, 4), np.float32))
    assert np.array_equal(m(x, bias)["y"][0].numpy(), got[2].numpy() + 1) and m(x, bias)["y"][1] == 7
    assert [t.shape for t in g.eval(x, bias)] == [(3, 4)]
    m.set_watch_points([more])
    m(x, bias)
    assert m.watch_node_value[more].numpy().tobytes() == got[2].numpy().tobytes()
    m.set_end_points(again)
    assert np.array_equal(m(x, bias)[0].numpy(), got[1].numpy())
    m.clear_end_points(), m.clear_watch_points()
    text = str(g)
    for wrong, error, words in [
        (lambda: F.exp(more), TraceError, "outside of its insert_exprs"), (lambda: self.extra(out), TraceError, "outside"),
        (lambda: g.replace_node({more: g.inputs[0]}), ArgumentError, "ModuleNode"), (lambda: m(x), TypeError, "was traced with"),
        (lambda: g.replace_node({net: more}), ArgumentError, "no node of"), (lambda: more.numpy(), TengenError, None),
        (lambda: g.get_module_by_type(3), ArgumentError, "class of modules"), (lambda: g.eval(x), TypeError, "takes 2 tensors"),
        (lambda: m(x, Tensor([1])), (TengenError, TypeError), "bias"),
    ]:  # fmt: skip
        with pytest.raises(error, match=words):
            wrong()
    with pytest.raises(ZeroDivisionError), g.insert_exprs():
        F.exp(more)
        raise ZeroDivisionError
    assert str(g) == text
    g.get_function_by_type(scaled).as_list()[-1].disable_remove()
    g.compile()
    assert again.expr in g.exprs().as_list()


def test_arguments_are_others():
    """MegEngine's `reset_inputs`: calls are nested in another way, and the old nodes are replaced."""

    class Sum(M.Module):
        def forward(self, x, y=1.0):
            return F.relu(x) + y

    m, a, b = trace_module(Sum(), Tensor(np.ones((2, 3), np.float32))), *(Tensor(np.full((2, 3), v, np.float32)) for v in (2.0, 5.0))
    g, old = m.graph, m.graph.inputs[1]
    first, second = g.reset_inputs({"a": a, "b": [b]})
    assert first.shape == old.shape and len(g.inputs) == 3
    with pytest.raises(TraceError, match="reads x, which is no argument any more; help: graph.replace_node"):
        m({"a": a, "b": [b]})
    with g.insert_exprs():
        total = first + second
    g.replace_node({old: total})
    g.compile()
    for n in (2, 5):
        a, b = (Tensor(np.full((n, 3), v, np.float32)) for v in (-2.0, 5.0))
        assert m({"a": a, "b": [b]}).tolist() == [[4.0] * 3] * n
    with pytest.raises(TypeError, match="was traced with the arguments"):
        m(a)


def test_traces_hear_of_edits():
    m = trace_module(module(lambda s, x: s.inner(x) + 1, inner=module(lambda s, x: F.relu(x))), Tensor([1.0]))
    f, x = trace(m), Tensor([-1.0, 2.0])
    assert f(x).tolist() == [1.0, 3.0]
    g = m.inner.graph
    with g.insert_exprs():
        new = F.exp(g.inputs[1])
    g.replace_node({g.outputs[0]: new})
    assert f(x).numpy().tobytes() == m(x).numpy().tobytes() == (F.exp(x) + 1).numpy().tobytes()
    m.graph.reset_outputs((m.graph.outputs[0], 3))
    assert f(x)[1] == 3


def test_files(net, tmp_path):
    m = trace_module(net.eval(), data(2))
    tengen.save({"model": m, "step": 3}, tmp_path / "m.tm")
    again = tengen.load(tmp_path / "m.tm")
    assert again["step"] == 3 and str(again["model"].graph).split("=", 1)[1].count("=") and str(again["model"]) == str(m)
    assert [e.told() for e in again["model"].graph.exprs()] == [e.told() for e in m.graph.exprs()]
    same(net(data(5)), again["model"](data(5)))
    assert type(again["model"].heads[0].weight) is Parameter and again["model"].state_dict().keys() == m.state_dict().keys()
    for other in (pickle.loads(pickle.dumps(m)), pickle.loads(pickle.dumps(M.Sequential(m)))[0]):
        same(net(data(5)), other(data(5)))
    node = m.graph.get_node_by_name("Net_*").as_list()
    assert node == m.graph.get_node_by_name("*").as_list() and m.graph.get_node_by_name(f"Net_{node[-1].name}").as_unique() is node[-1]
    again["model"].train(), net.train()
    assert step(copy.deepcopy(net), data(2)) == step(again["model"], data(2))
    net.eval()
    flat = m.flatten()
    tengen.save(flat, tmp_path / "f.tm")
    same(net(data(2)), tengen.load(tmp_path / "f.tm")(data(2)))
    m.block.conv.register_forward_hook(lambda *a: None)
    with pytest.raises(TypeError, match=r"cannot save Net.block.conv: it has hooks"):
        tengen.save(m, tmp_path / "m.tm")
    net.block.conv._forward_hooks.clear()
    keep = tracer.wrapped.pop(f"{__name__}:scaled")
    with pytest.raises(FileFormatError, match="needs the function .*:scaled.* not registered; help: import"):
        tengen.load(tmp_path / "m.tm")
    tracer.wrapped[f"{__name__}:scaled"] = keep


class Own(M.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.count, self.act = 3, Tensor([0.0]), F.tanh

    def forward(self, x):
        self.count += 1
        return self.act(x * self.scale)


def test_classes_of_users(tmp_path):
    net, x = M.Sequential(Own()), Tensor([1.0, -1.0])
    with pytest.raises(TraceError, match="changes a tensor .* in place.*register_as_builtin"):
        trace_module(net, x)
    assert "forward" not in net[0].__dict__
    register_as_builtin(Own)
    try:
        m = trace_module(net, x)
        assert type(getattr(m, "0")) is Own and m(x).numpy().tobytes() == net(x).numpy().tobytes() and net[0].count.tolist() == [2.0]
        tengen.save(m, tmp_path / "m.tm")
        assert tengen.load(tmp_path / "m.tm")(x).numpy().tobytes() == m(x).numpy().tobytes()
    finally:
        del tracer.registered[tracer.class_name(Own)]
    with pytest.raises(FileFormatError, match=r"needs the module class .*:Own.*register_as_builtin"):
        tengen.load(tmp_path / "m.tm")


class Pair:
    def __init__(self, a, b):
        self.a, self.b = a, b


def test_other_types_of_arguments():
    register_supported_type(Pair, lambda p: ([p.a], p.b), lambda inside, b: Pair(inside[0], b))

    class Swap(M.Module):
        def forward(self, p, q=None):
            return Pair(p.a * p.b, 1), q

    m = trace_module(Swap(), Pair(Tensor([1.0, 2.0]), 3), q=4)
    out, q = m(Pair(Tensor([1.0, 2.0, 3.0]), 3), q=4)
    assert out.a.tolist() == [3.0, 6.0, 9.0] and out.b == 1 and q == 4
    with pytest.raises(ValueError, match="both functions"):
        register_supported_type(int, lambda x: ([], x))


def module(forward, **attributes):
    made = type("Made", (M.Module,), {"forward": forward})()
    for k, v in attributes.items():
        setattr(made, k, v)
    return made


def test_loops_and_branches_stay(tmp_path):
    def forward(s, x):
        inner = lambda i, v: F.cond(v.sum() > 3, lambda v: v * 0.5, lambda v: v * 2.0 + s.w, v)
        return F.fori_loop(0, 3, inner, x)

    net, x = module(forward, w=Parameter([0.25])), Tensor([1.0, -0.5])
    m = trace_module(net, x)
    tengen.save(m, tmp_path / "m.tm")
    assert m(x).numpy().tobytes() == net(x).numpy().tobytes() == tengen.load(tmp_path / "m.tm")(x).numpy().tobytes()
    with pytest.raises(TraceError, match="no value"):
        trace(lambda x: x + m.graph.inputs[1])(x)


P, L = Parameter([1.0]), M.Linear(2, 2)
REFUSED = {
    "a value is asked for": (lambda s, x: x * x.sum().item(), TraceError, "item"),
    "a decision": (lambda s, x: x if x.sum() > 0 else -x, TraceError, None),
    "a parameter of nobody": (lambda s, x: x * P, TraceError, "none of its own"),
    "another each time": (lambda s, x: s.inner(x) + s.inner(x), TraceError, "called twice"),
    "a module of nobody": (lambda s, x: L(x), TraceError, "Parameter"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name):
    forward, error, words = REFUSED[name]
    calls = iter(range(100))
    net = module(forward, inner=module(lambda s, x: x * next(calls)))
    with pytest.raises(error, match=words):
        trace_module(net, Tensor([[1.0, 2.0]]))
    assert "forward" not in net.__dict__ and F.exp(Tensor([0.0])).item() == 1.0
    for wrong in (3, M.Linear(2, 3)):
        with pytest.raises(TypeError):
            trace_module(wrong, Tensor([1.0]))


def test_a_batch_that_cannot_be_open_is_fixed():
    def forward(s, x):
        return x * 2 if x.shape[0] == 2 else x

    m = trace_module(module(forward), Tensor(np.ones((2, 3), np.float32)))
    assert m(Tensor(np.ones((2, 3), np.float32))).tolist() == [[2.0] * 3] * 2 and "batch" not in repr(m.graph.inputs[1]._layout.type)
    with pytest.raises(TengenError, match="the argument x is f32"):
        m(Tensor(np.ones((5, 3), np.float32)))


def test_checkers(monkeypatch):
    monkeypatch.setitem(tracer._checks, "values", False)
    net = module(lambda s, x: x * 2)
    tengen.traced_module.enable_expr_checker()
    assert tracer._checks["values"] and trace_module(net, Tensor([1.0]))(Tensor([2.0])).tolist() == [4.0]
    monkeypatch.setattr(tracer, "graph_key", lambda g: object())
    with pytest.raises(TraceError, match="does not compute what the module does"):
        trace_module(net, Tensor([1.0]))
    monkeypatch.setitem(tracer._checks, "default", True)
    tengen.traced_module.disable_default_checker()
    assert not tracer._checks["default"] and trace_module(net, Tensor([1.0]))


def test_batch_norms_are_fused(net):
    m = trace_module(net.eval(), data(2))
    fused = optimize(m.flatten())  # the block is called twice: its layers stay
    assert fused.graph.get_module_by_type(M.BatchNorm2d).as_count() == 1
    single = module(lambda s, x: s.block(x), block=Block().eval()).eval()
    single.block.bn.running_mean[...] = 0.3
    single.block.bn.running_var[...] = 2.5
    m = trace_module(single, data(2))
    for fused in (optimize(m), optimize(m.flatten(), ["FuseConvBn"])):
        assert not fused.graph.get_module_by_type(M.BatchNorm2d).as_count() and m.graph.get_module_by_type(M.BatchNorm2d).as_count() == 1
        got, want = fused(data(3)).numpy(), single(data(3)).numpy()
        assert np.allclose(got, want, atol=1e-5) and not any("bn" in k for k in fused.state_dict())
    assert optimize(trace_module(single.train(), data(2))).graph.get_module_by_type(M.BatchNorm2d).as_count() == 1
    with pytest.raises(ArgumentError, match="no pass 'Nothing', only FuseConvBn"):
        optimize(m, "Nothing")
    with pytest.raises(TypeError, match="help: trace_module"):
        optimize(single)


def mutated(x, r):
    """A nest with one part changed by chance."""
    if isinstance(x, (list, dict)) and x and r.random() < 0.9:
        key = r.choice(range(len(x)) if isinstance(x, list) else list(x))
        made = copy.copy(x)
        match r.randrange(6):
            case 0 if isinstance(x, list): del made[key]  # fmt: skip
            case 1 if isinstance(x, list): made.insert(key, r.choice(x))  # fmt: skip
            case _: made[key] = mutated(x[key], r)
        return made
    odd = [None, 0, 1, -1, 7, "", "forward", "__class__", "self", "Linear", "relu", "m", "n", "t", "f32[2]", [], {}, 1.5, True, "block.conv"]
    return r.choice(odd)


def test_files_by_chance_give_a_module_or_an_error(net):
    whole, r = pack(trace_module(net.eval(), data(2))), random.Random(0)
    x, refused, ran = data(2), 0, 0
    for _ in range(1500):
        broken = whole
        for _ in range(r.choice([1, 1, 2])):
            broken = mutated(broken, r)
        try:
            m = unpack(copy.copy(broken))
        except FileFormatError:
            refused += 1
            continue
        assert type(m) is TracedModule
        if ran < 60:
            ran += 1
            try:
                m(x)
            except (TengenError, TypeError, ValueError, AttributeError, LookupError, NotImplementedError):
                pass
    assert refused > 500 and ran == 60
