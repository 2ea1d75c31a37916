"""A recorded program that meets an index out of range says so: traced, loaded from a file, and compiled to an artifact."""

import numpy as np
import pytest

import tengen
from tengen import Tensor, trace
from tengen import functional as F
from tengen.base.errors import IndexOutOfRange, TengenError
from tengen.deploy import compile_model
from tengen.deploy.run import run_artifact
from tengen.ir.jsonform import from_json, to_json
from tengen.ir.text import parse_graph, print_graph
from tengen.passes.pipeline import optimize

x = Tensor(np.arange(12, dtype="float32").reshape(4, 3))
CALLS = {
    "gather": (lambda t, i: F.gather(t, 0, i), (2, 3)),
    "index": (lambda t, i: t[i], (5,)),
    "take": (lambda t, i: F.nn.embedding(i, t), (2, 2)),
    "one_hot": (lambda t, i: F.one_hot(i, 4) @ t, (3,)),
    "cross_entropy": (lambda t, i: F.loss.cross_entropy(t @ t.transpose(1, 0), i), (4,)),
}


def indices(shape, bad=None):
    i = np.arange(int(np.prod(shape)), dtype="int32").reshape(shape) % 4
    if bad is not None:
        i.reshape(-1)[-1] = bad
    return Tensor(i)


@pytest.mark.parametrize("bad", [4, -9, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("name", CALLS)
def test_a_trace_raises_where_an_eager_call_does(name, bad):
    f, shape = CALLS[name]
    t = trace(f)
    good = t(x, indices(shape))
    assert good.numpy().tobytes() == f(x, indices(shape)).numpy().tobytes()
    with pytest.raises(IndexOutOfRange, match="out of range|outside the"):
        f(x, indices(shape, bad))
    with pytest.raises(IndexOutOfRange, match=r"out of range.*\[at .*test_checks.py|outside the.*\[at .*test_checks.py"):
        t(x, indices(shape, bad))
    assert t(x, indices(shape)).numpy().tobytes() == good.numpy().tobytes()


def test_negative_powers():
    f = trace(lambda a, b: a**b)
    two = Tensor(np.array([2, 3], "int32"))
    assert f(two, two).tolist() == [4, 27]
    with pytest.raises(ValueError, match="negative"):
        f(two, Tensor(np.array([1, -1], "int32")))


def test_what_is_checked_twice_is_looked_at_once():
    def step(t, i):
        y = F.gather(t, 0, i)
        return y * y + F.gather(t, 0, i)

    g = trace(step).trace(x, indices((2, 3))).graph
    assert len(g.checks) == 2 and len(optimize(g).checks) == 1


def test_known_indices_cost_nothing():
    table = Tensor(np.array([0, 2, 1], "int32"))
    f = trace(lambda t: t[table] + 1, capture_as_const=True)
    f(x)
    run = next(iter(f._recordings.values()))[0].run
    assert f.graph.checks and not run.graph.checks


def test_forms():
    g = trace(CALLS["index"][0]).trace(x, indices((5,))).graph
    text = print_graph(g)
    assert "check " in text and print_graph(parse_graph(text)) == text
    again = from_json(to_json(g), {c.name: c.data for c in g.constants.values()})
    assert print_graph(again) == text


def test_loaded_and_compiled(tmp_path):
    f = trace(lambda i: F.nn.embedding(i, x) * 2, capture_as_const=True)
    good, bad = indices((2, 2)), indices((2, 2), 7)
    wanted = f(good).numpy()
    f.dump(tmp_path / "m.tgn", arg_names=["i"])
    m = tengen.load_graph(tmp_path / "m.tgn")
    assert m(good).numpy().tobytes() == wanted.tobytes()
    with pytest.raises(IndexOutOfRange, match=r"m?.*out of range.*\[at test_checks.py:\d+\]"):
        m(bad)
    artifact = compile_model(m, "x86-64-v3", tmp_path, "m")
    assert "3: IndexOutOfRange" in (tmp_path / "m.h").read_text()
    pytest.importorskip("ziglang")
    assert run_artifact(artifact, [good])[0].tobytes() == wanted.tobytes()
    with pytest.raises(TengenError, match="m_run returned 3"):
        run_artifact(artifact, [bad])


def test_a_loss_that_is_left_out_of_a_file_needs_no_label(tmp_path):
    net = tengen.module.Linear(3, 4)

    def f(data, label):
        y = net(data)
        return y, F.loss.cross_entropy(y, label)

    t = trace(f)
    t(x, indices((4,)))
    from tengen.deploy.dump import portable

    data = {s.name: np.zeros(s.read.type.shape, "float32") for s in t.graph.states.values()}
    assert len(portable(t.graph, data)[0].checks) == 1
    assert not portable(t.graph, data, n_outputs=1)[0].checks
