"""`debug.compare` finds a difference that is planted, and none otherwise; `debug.watch` sees values eagerly, in programs and in loops."""

import numpy as np
import pytest

from tengen import Tensor, custom_ops, debug, load_graph, random, trace
from tengen import functional as F
from tengen import module as M
from tengen.autodiff import GradManager
from tengen.base.errors import ArgumentError, UsageWarning
from tengen.optimizer import SGD

X = Tensor(np.random.default_rng(1).normal(size=(4, 6)).astype("f4"))


def training():
    random.seed(5)
    net = M.Sequential(M.Linear(6, 8), M.BatchNorm1d(8), M.ReLU(), M.Dropout(0.3), M.Linear(8, 2))
    gm, opt = GradManager().attach(net.parameters()), SGD(net.parameters(), lr=0.1, momentum=0.9)

    @trace
    def step(x):
        with gm:
            loss = (net(x) ** 2).mean()
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    return net, step


def states(net):
    return [t.numpy().tobytes() for t in (*net.parameters(), *net.buffers())]


def test_nothing_differs_and_nothing_is_changed():
    net, step = training()
    before = states(net)
    found = debug.compare(step, X)
    assert found and found.equal and found.values > 10 and str(found) == f"equal bits in {found.values} values of the program"
    assert states(net) == before
    losses = [step(X).item() for _ in range(2)]
    again, other = training()
    assert losses == [other(X).item() for _ in range(2)] and states(net) == states(again)  # random numbers too


def test_loops_branches_and_nan_compare():
    def f(x):
        last, kept = F.scan(lambda c, v: (F.tanh(c * v), c.sum()), x[0], x, reverse=True)
        y = F.while_loop(lambda a: a.sum() < 50, lambda a: a * 2 + 1, F.abs(x))
        return last + F.cond(x.sum() > 0, lambda a: F.log(a), lambda a: a, x[1]), kept, y

    assert debug.compare(f, X).equal and debug.compare(trace(f, dynamic_axes={0: "n"}), X).equal


class Added(M.Module):
    def forward(self, x, y):
        return x * 2 + y


@pytest.mark.parametrize("function", [lambda x, y: x * 2 + y, Added(), trace(lambda x, y: x * 2 + y)], ids=["function", "module", "trace"])
@pytest.mark.parametrize("kind", [tuple, list])
def test_arguments_in_one_sequence(function, kind):
    with pytest.raises(ArgumentError, match=rf"a {kind.__name__} of 2 is one argument, .* takes 2; help: compare\(function, \*args\)"):
        debug.compare(function, kind([X, X]))
    assert debug.compare(function, X, X).equal


def test_a_function_of_one_sequence_takes_it():
    assert debug.compare(lambda xs: xs[0] + xs[1], (X, X)).equal and debug.compare(lambda *xs: xs[0][1] + 1, [X, X]).equal
    with pytest.raises(TypeError, match="missing 1 required"):  # neither the sequence nor its items
        debug.compare(lambda x, y: x + y, (X, X, X))


def test_a_planted_difference_is_found():
    bias = ["0.0f32"]

    @custom_ops.kernel("test::planted", "x: f32[n, m] -> y: f32[n, m]")
    def planted(x: Tensor):
        return f"""
        kernel planted(in x: f32, out y: f32, int n, int m):
            each i of n * m:
                load v: f32 = x[i]
                store y[i] = select(i == 7, v + {bias[0]}, v)
        """

    f = lambda x: F.relu(planted(F.exp(x)) + 1).sum(1)
    assert debug.compare(f, X).equal  # the eager plan of the op is made here
    bias[0] = "1.0f32"
    found = debug.compare(f, X)
    assert not found and "node" in found.first and "test::planted at" in found.first and "test_compare_and_watch.py" in found.first
    assert "1 of 24 elements, the first at [1, 1]" in found.first and "output0" in found.results
    assert str(found).startswith("the first value that differs: node 1, test::planted at ")


def test_values_are_watched_by_op_and_by_line():
    f = lambda x: F.exp(x * 2) + F.sqrt(x * x)
    line = f"test_compare_and_watch.py:{test_values_are_watched_by_op_and_by_line.__code__.co_firstlineno + 1}"
    wanted = np.exp(X.numpy() * 2)
    for run in (f, trace(f)):
        out = run(X).numpy().tobytes()
        told = []
        with debug.watch("exp", lambda *one, told=told: told.append(one)) as seen:
            assert run(X).numpy().tobytes() == out
        assert len(seen) == len(told) == 1 and told[0][0].startswith("exp at ") and told[0][0].endswith(line)
        np.testing.assert_allclose(seen[0][1].numpy(), wanted, rtol=1e-5)
        with debug.watch(line, lambda *_: None) as seen:
            run(X)
        assert sorted(label.split()[0] for label, _ in seen) == ["add", "exp", "mul", "mul", "sqrt"]
    run(X)
    assert len(seen) == 5


def test_values_in_loops_are_watched_and_states_go_on(capsys):
    def f(xs):
        return F.scan(lambda c, v: (c + F.exp(v), c), Tensor(0.0), xs)[0]

    run, xs = trace(f), Tensor([0.0, 0.0, 0.0])
    run(xs)
    with debug.watch("exp"):
        assert run(xs).item() == 3
    assert [s.split(" at ")[0] for s in capsys.readouterr().out.splitlines()] == [f"exp inside of scan, iteration {i}" for i in range(3)]
    net, step = training()
    with debug.watch("matmul", lambda *_: None) as seen:
        losses = [step(X).item() for _ in range(3)]
    other, plain = training()
    assert losses == [plain(X).item() for _ in range(3)] and states(net) == states(other) and len(seen) % 3 == 0 and seen
    for wrong in ("", None, 3):
        with pytest.raises(ArgumentError, match="the name of an op, or a line"), debug.watch(wrong):
            pass


def test_an_eager_loop_is_watched_as_a_traced_one_is():
    loop = lambda x: F.while_loop(lambda s, i: i < 4, lambda s, i: (F.sqrt(s) + i, i + 1), x, Tensor(0))[0]
    found = []
    for run in (loop, trace(loop)):
        with debug.watch("sqrt", lambda *_: None) as seen:
            run(Tensor([16.0]))
        found.append([(label, value.tolist()) for label, value in seen])
    assert found[0] == found[1] and len(found[0]) == 4 and found[0][0][1] == [4.0]
    assert "sqrt inside of while_loop, iteration 3 at" in found[0][3][0]


def test_a_name_that_nothing_has_is_told():
    with pytest.warns(UsageWarning, match=r"watch\('squareroot'\) saw nothing.*help: print\(f.graph\)"), debug.watch("squareroot"):
        F.sqrt(Tensor(4.0))


def test_a_loaded_model_is_compared(tmp_path):
    f = trace(lambda x: F.softmax(x @ F.ones((6, 3))).sum(0), example_input=X)
    f.dump(tmp_path / "f.tgn")
    assert debug.compare(load_graph(tmp_path / "f.tgn"), X).values >= 1
    assert debug.compare(load_graph(tmp_path / "f.tgn"), X)


def test_a_callback_may_end_the_run():
    def stop(label, value):
        raise KeyError(label)

    run = trace(lambda x: F.exp(x))
    with pytest.raises(KeyError, match="exp at"), debug.watch("exp", stop):
        run(X)
    assert run(X).shape == X.shape
