"""Parts of a model by other programs: who takes what, what is refused, files, and how far results are from Tengen's."""

import threading

import models as small
import numpy as np
import pytest
from recorded import dumped, graph_of

import tengen.functional as F
from tengen import Predictor, Tensor, backends, load_graph, models, trace
from tengen.base.errors import ArgumentError, ConfigError, FileFormatError, TengenError
from tengen.deploy import backends as inside
from tengen.deploy.model import Model
from tengen.deploy.partition import parts_of, subgraph

RUNTIMES = ("onnxruntime", "openvino")


def runtime(name):
    pytest.importorskip("onnx")
    pytest.importorskip(name)
    return name


def number(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype("f4")


class Fake(backends.Backend):
    """Runs parts by Tengen itself, so that bits are equal; counts what it is asked for."""

    name = "fake"
    rounding = "Tengen's"

    def __init__(self, *ops, refuses="", shape=False):
        self.ops, self.refuses, self.shape, self.compiled, self.loaded = ops, refuses, shape, 0, 0

    def takes(self, node, graph):
        return node.op in self.ops

    def compile(self, graph):
        if self.refuses in {n.op for n in graph.nodes}:
            raise backends.Refused(f"no {self.refuses} today")
        self.compiled += 1
        return f"{len(graph.nodes)} nodes".encode()

    def load(self, blob, graph):
        assert blob == f"{len(graph.nodes)} nodes".encode()
        self.loaded += 1
        run = inside._own(graph)
        return (lambda arrays: [a[..., None] for a in run(arrays)]) if self.shape else run


def model_of(f, *xs):
    return Model(graph_of(f, *map(Tensor, xs)), {})


def branches(x, y):
    """Two ways from x to the result, one of them through `exp`: the parts must not form a circle."""
    a = x * 2
    b = F.exp(a)
    c = a + y
    return c * b, F.exp(c) - b, b


def bits(made):
    return [t.numpy().tobytes() for t in (made if isinstance(made, tuple) else (made,))]


def test_parts_are_convex_and_computed_in_order():
    m, xs = model_of(branches, number(3, 4), number(3, 4, seed=1)), (number(3, 4, seed=2), number(3, 4, seed=3))
    for ops in ((), ("exp",), ("mul", "add"), ("mul", "add", "exp", "sub"), ("sub",)):
        p = backends.partition(m, Fake(*ops))
        assert bits(p(*xs)) == bits(m(*xs)), ops
        assert sum(part.nodes for part in p.parts()) == len(m.graph.nodes)
        for part in p.parts():
            assert (part.who == "fake") == (set(part.ops) <= set(ops) and bool(ops)), part
    alone = backends.partition(m, Fake("mul", "add", "exp", "sub")).parts()
    assert [(x.who, x.nodes, x.takes, x.gives) for x in alone] == [("fake", len(m.graph.nodes), 96, 144)]


@pytest.mark.parametrize("seed", range(6))
def test_random_owners_make_parts_without_circles(seed):
    """Of a network with branches; each part is taken alone, and the whole is computed by them."""
    net = models.mobilenet_v2(5, width=0.25, stages=((1, 16, 1, 1), (2, 24, 2, 2))).eval()
    x = number(1, 3, 16, 16)
    g = graph_of(lambda x: net(x), Tensor(x))
    rng = np.random.default_rng(seed)
    owners = {n: int(rng.integers(0, 3)) for n in g.nodes}
    made = set(g.sources())
    for owner, nodes in parts_of(g, owners):
        assert all(owners[n] == owner for n in nodes)
        inner, takes, gives = subgraph(g, nodes, "part")
        assert set(takes) <= made and len(inner.inputs) == len(takes) and len(inner.outputs) == len(gives)
        made.update(v for n in nodes for v in n.outputs)
    assert set(g.outputs) <= made


def test_what_is_refused_or_small_is_computed_here():
    m, xs = model_of(branches, number(3, 4), number(3, 4, seed=1)), (number(3, 4, seed=2), number(3, 4, seed=3))
    p = backends.partition(m, Fake("exp", "mul", refuses="exp"))
    assert bits(p(*xs)) == bits(m(*xs))
    assert {part.why for part in p.parts()} == {"", "no exp today"} and "(no exp today)" in p.report()
    p = backends.partition(m, Fake("mul"), least=2)
    assert bits(p(*xs)) == bits(m(*xs)) and {part.who for part in p.parts()} == {"tengen"}
    with pytest.raises(TengenError, match=r"fake gave float32\[3, 4, 1\].*the part has"):
        backends.partition(m, Fake("exp", shape=True))(*xs)
    for wrong, error, words in [
        (lambda: backends.partition(m, "tpu"), ConfigError, "no back end is named 'tpu'; help: one of .*onnxruntime.*openvino"),
        (lambda: backends.partition(m, Fake(), least=0), ArgumentError, "least=0"),
        (lambda: backends.partition(m, Fake())(xs[0]), TypeError, "missing"),
        (lambda: Predictor(m, backend=Fake(), budget="1MB")(*xs), ConfigError, "not known"),
    ]:
        with pytest.raises(error, match=words):
            wrong()


def test_checks_extents_and_edges(tmp_path):
    """Errors of Tengen's stay; open extents make parts for each size; an input that is a result; states are refused."""
    table = Tensor(number(4, 3))
    dumped(lambda x, i: (x * table[i], x), [Tensor(number(3)), Tensor(np.array(0, "i4"))], tmp_path / "checked.tgn")
    m = load_graph(tmp_path / "checked.tgn")
    p = backends.partition(m, Fake("mul", "take", "less", "greater_equal", "logical_or", "any", "add", "where"))
    x = number(3)
    assert bits(p(x, np.array(2, "i4"))) == bits(m(x, np.array(2, "i4")))
    with pytest.raises(IndexError):
        p(x, np.array(4, "i4"))
    assert all("take" not in part.ops for part in p.parts() if part.who == "fake") and any("mul" in part.ops for part in p.parts())
    f = trace(lambda x: F.exp(x * 2).sum(1), dynamic_axes={0: "batch"})
    f(Tensor(number(2, 3)))
    f.dump(tmp_path / "open.tgn", arg_names=["x"])
    m = load_graph(tmp_path / "open.tgn")
    p = backends.partition(m, fake := Fake("exp"))
    with pytest.raises(ConfigError, match="made at the first call"):
        p.parts()
    assert [bits(p(number(n, 3))) == bits(m(number(n, 3))) for n in (1, 5, 1)] == [True] * 3 and fake.compiled == 2
    with pytest.raises(ConfigError, match="open extents batch; help"):
        p.save(tmp_path / "p.tgn")
    step, _ = small.counter()
    step(Tensor(np.ones(3, "f4")))
    step.dump(tmp_path / "step.tgn")
    with pytest.raises(ConfigError, match="has states"):
        backends.partition(tmp_path / "step.tgn", Fake())


def test_files_keep_what_was_compiled(tmp_path):
    m, xs = model_of(branches, number(3, 4), number(3, 4, seed=1)), (number(3, 4, seed=2), number(3, 4, seed=3))
    p = backends.partition(m, Fake("exp"))
    p.save(tmp_path / "p.tgn")
    q = backends.load(tmp_path / "p.tgn", other := Fake())
    assert bits(q(*xs)) == bits(m(*xs)) and other.compiled == 0
    assert other.loaded == [part.who for part in p.parts()].count("fake") > 0
    assert [part.who for part in q.parts()] == [part.who for part in p.parts()]
    with pytest.raises(ConfigError, match="no back end is named 'fake'"):
        backends.load(tmp_path / "p.tgn")
    with pytest.raises(FileFormatError, match="but 'tengen-partitioned'"):
        load_graph(tmp_path / "p.tgn")
    dumped(lambda x: x * 2, [Tensor(number(3))], tmp_path / "m.tgn")
    with pytest.raises(FileFormatError, match="no file of Partitioned.save, but 'tengen-model'"):
        backends.load(tmp_path / "m.tgn")
    for parts in ("[[0]]", "7", "[[true]]", '[["a"]]', "[[0, 0]]", "[[99]]", "[[1], [0], [2], [3], [4], [5]]", "[", "[[]]"):
        whole = inside.read_tensors(tmp_path / "p.tgn")
        keep = ("format", "version", "backend", "parts")
        inside.write_tensors(tmp_path / "bad.tgn", whole.arrays, {k: whole.texts[k] for k in keep} | {"parts": parts})
        with pytest.raises(FileFormatError):
            backends.load(tmp_path / "bad.tgn", Fake())


class Package:
    """An entry point of a package that is installed."""

    name, value = "fake", "fake:Fake"

    def __init__(self, made):
        self.made = made

    def load(self):
        return self.made


def test_packages_bring_back_ends(monkeypatch):
    monkeypatch.setattr(inside, "entry_points", lambda group: [Package(lambda: Fake("exp"))] if group == "tengen.backends" else [])
    assert backends.names() == ["fake", "onnxruntime", "openvino", "tpu-mlir"]
    m, x = model_of(lambda x: F.exp(x) + 1, number(3)), number(3)
    p = backends.partition(m, "fake")
    assert bits(p(x)) == bits(m(x)) and [part.who for part in p.parts()] == ["fake", "tengen"]
    monkeypatch.setattr(inside, "entry_points", lambda group: [Package(lambda: 7)])
    with pytest.raises(ConfigError, match="gives a int, which is no"):
        backends.find("fake")


@pytest.mark.parametrize("name", RUNTIMES)
def test_networks_by_other_runtimes(name, tmp_path):
    """A convolutional network, and a GPT whose table is looked up here, where indices are checked."""
    runtime(name)
    net = models.mobilenet_v2(5, width=0.25, stages=((1, 16, 1, 1), (2, 24, 1, 2))).eval()
    gpt = models.gpt(layers=1, width=16, heads=2, context=8, vocabulary=17).eval()
    ids = np.random.default_rng(0).integers(0, 17, (1, 5)).astype("i4")
    for i, (f, x) in enumerate([(net, number(1, 3, 16, 16)), (gpt, ids)]):
        dumped(f, [Tensor(x)], tmp_path / f"{i}.tgn")
        m = load_graph(tmp_path / f"{i}.tgn")
        p = backends.partition(m, name)
        assert all(share < 1e-4 for _, share in p.compare(x)), p.compare(x)
        who = [part.who for part in p.parts()]
        assert name in who and "".join(part.why for part in p.parts()) == "", p.report()
        assert p.report().endswith("integers are equal") and sum(n.nodes for n in p.parts() if n.who == name) > len(m.graph.nodes) // 2
        p.save(tmp_path / "p.tgn")
        assert bits(backends.load(tmp_path / "p.tgn")(x)) == bits(p(x))


@pytest.mark.parametrize("name", RUNTIMES)
def test_dtypes_and_threads(name):
    runtime(name)
    f = lambda x, y, b: (x.sum(), (y + 3) * 2, F.logical_not(b), b.any(), y[2], y.astype("float64") * 0.5, x.reshape(2, 0), F.sort(x)[0])
    xs = (np.zeros((0, 2), "f4"), np.arange(5, dtype="i8"), np.array([True, False]))
    m = model_of(f, *xs)
    p = backends.partition(m, name)
    assert bits(p(*xs)) == bits(m(*xs)), p.report()
    m = model_of(lambda x: F.relu(x) * 2 - 1, number(64, 8))
    p, wrong = backends.partition(m, name), []

    def work(seed):
        x = number(64, 8, seed=seed)
        wrong.extend(i for i in range(20) if bits(p(x)) != bits(m(x)))

    some = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    [t.start() for t in some], [t.join() for t in some]
    assert not wrong


def test_versions_that_end_the_process_are_given_no_sorting(monkeypatch):
    """onnxruntime before 1.31, where nothing is to be sorted."""
    monkeypatch.setattr(pytest.importorskip("onnxruntime"), "__version__", "1.30.0")
    x = number(5, 3)
    m = model_of(lambda x: F.sort(F.relu(x) * 2)[0], x)
    p = backends.partition(m, backends.onnxruntime.OnnxRuntime())
    assert bits(p(x)) == bits(m(x))
    assert {n.who for n in p.parts()} == {"tengen", "onnxruntime"}, p.report()


@pytest.mark.parametrize("name", RUNTIMES)
def test_predictor_by_another_runtime(name, tmp_path):
    runtime(name)
    f, x, y = small.mlp()
    f.dump(tmp_path / "mlp.tgn", arg_names=["image"])
    with Predictor(tmp_path / "mlp.tgn", backend=name) as p:
        got = p(image=x.numpy())
        assert np.allclose(got, y.numpy(), rtol=1e-5, atol=1e-6) and p.model.backend.name == name
        assert any(part.who == name for part in p.model.parts())
