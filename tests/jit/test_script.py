"""`script`: each small program gives the same bits as plain Python, scripted, scripted inside of a trace, and from a file."""

import copy
import pickle

import numpy as np
import pytest
from exhaustive import but
from scripted_loops import first_row_is_special, sum_of_rows
from scripted_programs import PROGRAMS, A, many_ways_out

import tengen.functional as F
import tengen.module as M
from tengen import Tensor, load_graph, script, trace
from tengen.autodiff import GradManager
from tengen.base.config import config
from tengen.deploy import compile_model, run_artifact
from tengen.deploy.verify import verify
from tengen.jit.script import flow
from tengen.tensor.regions import Region
from tengen.tensor.structure import flatten


def leaves(x):
    """Arrays of all tensors and numbers in a result."""
    if isinstance(x, (tuple, list)):
        return [v for e in x for v in leaves(e)]
    if isinstance(x, dict):
        return [v for e in x.values() for v in leaves(e)]
    return [x.numpy() if isinstance(x, Tensor) else np.asarray(x)]


def told(arrays):
    return [(a.dtype.name, a.shape, a.tobytes()) for a in arrays]


@but(every=4)
@pytest.mark.parametrize("f, calls", PROGRAMS)
def test_bits_are_those_of_plain_python(f, calls, tmp_path):
    scripted = script(f)
    traced = trace(lambda *args: script(f)(*args))
    for call in calls:
        args = [Tensor(a) if isinstance(a, (np.ndarray, np.generic)) else a for a in call]
        wanted = told(leaves(f(*args)))
        made = scripted(*args)
        assert told(leaves(made)) == wanted, "scripted"
        assert told(leaves(traced(*args))) == wanted, "inside of a trace"
        with config.scope(jit=False):
            assert told(leaves(scripted(*args))) == wanted
        tensors = []
        flatten(made, tensors)
        scripted.dump(tmp_path / "f.tgn")
        out = load_graph(tmp_path / "f.tgn")(*[a for a in args if isinstance(a, Tensor)])
        assert told(leaves(out)) == told(leaves(tensors)), "from a file"


def test_there_are_thirty_programs():
    assert len(PROGRAMS) >= 30


def test_what_follows_a_branch_is_recorded_once():
    f = script(many_ways_out, example_input=Tensor(A))
    f(Tensor(A))
    assert sum(n.op == "cond" for g in f.graph.graphs() for n in g.nodes) <= 16


def test_a_list_that_grows_is_stacked_by_the_loop():
    counts = []
    for n in (5, 50):
        x = Tensor(np.tile(A, (n // 5, 1)))
        f = script(first_row_is_special, example_input=x)
        f(x)
        counts.append([node.op for node in f.graph.nodes])
    assert counts[0] == counts[1] and "scan" in counts[0]


# ---- modules ---------------------------------------------------------------------------------------------------------


class Cell(M.Module):
    def __init__(self, n=3):
        super().__init__()
        self.i, self.h = M.Linear(n, n), M.Linear(n, n)

    def forward(self, x, hidden):
        if hidden is None:
            hidden = F.zeros_like(x)
        h = F.tanh(self.i(x) + self.h(hidden))
        return h, h


class Gate(M.Module):
    def forward(self, x):
        return x * 2 if x.sum() > 0 else x


class Net(M.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.layers = Cell(), [M.Linear(3, 3) for _ in range(2)]
        self.gate = M.Sequential(Gate(), M.ReLU())

    def forward(self, x, scaled=True):
        h, outs = None, []
        for row in x.split(1):
            y, h = self.cell(row, h)
            for layer in self.layers:
                y = layer(y)
            outs.append(self.gate(y))
        out = F.concat(outs)
        return self.__scaled(out) if scaled else out

    def __scaled(self, x):
        return x / x.max() if x.max() > 0.1 else x


def test_the_announcement_of_pytorch_1():
    model = Cell()

    @script
    def rnn_loop(x):
        hidden = None
        for x_t in x.split(1):  # noqa: B007  (the announcement goes over x, and gives the model its last output)
            x, hidden = model(x, hidden)
        return x

    x = Tensor(A[:1])
    assert rnn_loop(x).numpy().tobytes() == rnn_loop.plain(x).numpy().tobytes()
    sizes = []
    for n in (5, 50):
        x = Tensor(np.tile(A, (n // 5, 1)))
        assert rnn_loop(x).numpy().tobytes() == rnn_loop.plain(x).numpy().tobytes()
        sizes.append(sum(1 for _ in rnn_loop.graph.nodes))
        assert "scan" in [node.op for node in rnn_loop.graph.nodes]
    assert sizes[0] == sizes[1]  # the loop stays a loop, whatever its length


def test_a_module_with_what_it_calls(tmp_path):
    net, x = Net(), Tensor(A)
    scripted = script(net)
    assert scripted(x).numpy().tobytes() == net(x).numpy().tobytes()
    assert scripted(x, scaled=False).numpy().tobytes() == net(x, scaled=False).numpy().tobytes()
    assert {"scan", "cond"} <= {n.op for n in script(net, example_input=x).graph.nodes}
    scripted(x)
    scripted.dump(tmp_path / "net.tgn", arg_names=["x"])
    assert load_graph(tmp_path / "net.tgn")(x=x).numpy().tobytes() == net(x).numpy().tobytes()
    again = copy.deepcopy(scripted)
    assert type(again) is script and again.plain is not net and again(x).numpy().tobytes() == net(x).numpy().tobytes()
    net.layers[0].weight[...] = 0.0
    assert scripted(x).numpy().tobytes() == net(x).numpy().tobytes() != again(x).numpy().tobytes()


def test_an_artifact(tmp_path):
    f = script(loops_and_branches, capture_as_const=True, example_input=Tensor(A))
    f(Tensor(A))
    f.dump(tmp_path / "f.tgn", arg_names=["x"])
    assert compile_model(load_graph(tmp_path / "f.tgn"), "x86-64-v3", tmp_path / "out").files
    assert verify(tmp_path / "f.tgn", tmp_path / "out").differing == 0


I2H, H2H, EMBED = (
    Tensor((np.random.default_rng(i).standard_normal(s) * 0.7).astype("float32")) for i, s in enumerate([(3, 4), (4, 4), (9, 4)])
)


def recurrent(x, limit):
    h = None
    for row in x:
        if h is None:
            h = F.zeros((row.shape[0], 4))
        h = F.tanh(row @ I2H + h @ H2H)
        if h.sum() > limit:
            h = h * 0.5
    return h


def newton_until_it_stands(a):
    y, n = a, 0
    while F.abs(y * y - a) > 1e-5 * a:
        y, n = (y + a / y) / 2, n + 1
    assert n < 100, "it does not converge"
    return y, n


def said_with_a_cache(first, count):
    """A text of one word after another, each by attention over a cache that is written in place, until a word ends it."""
    keys, out, word = F.zeros((8, 4)), F.full((8,), -1, dtype="int32"), first
    n = 0
    for i in range(count):
        keys[i] = EMBED[word] @ H2H
        weights = F.softmax(F.where(F.arange(8) <= i, keys @ EMBED[word], -1e30))
        word = F.argmax((EMBED @ F.tanh(weights @ keys)) - (F.arange(9) == word) * 9.0).astype("int32")
        out[i] = word
        n += 1
        if word == 8:
            break
    return out, n


def test_artifacts_of_loops(tmp_path):
    """Of open length, until a condition holds, and with a cache that a loop writes: the bits of plain Python, out of C."""
    rng, number = np.random.default_rng(3), lambda x, d="float32": Tensor(np.array(x, d))
    steps = [(Tensor(rng.standard_normal((t, b, 3)).astype("float32")), number(limit)) for t, b, limit in ((6, 2, 0.3), (9, 3, 9))]
    open_ = {"time": range(2, 10), "batch": range(1, 4)}
    words = [(number(w, "int32"), number(n, "int32")) for w, n in ((3, 8), (0, 0))]
    for f, calls, extents in (
        (recurrent, steps, open_), (newton_until_it_stands, [(number(2.0),), (number(1e-3),)], None),
        (said_with_a_cache, words, None),
    ):  # fmt: skip
        s = script(f, dynamic_axes={"x": {0: "time", 1: "batch"}} if extents else "auto")
        for args in calls:
            s(*args)
        assert s.stats().programs == 1
        s.dump(tmp_path / "f.tgn")
        made = compile_model(tmp_path / "f.tgn", "x86-64-v3", tmp_path / f.__name__, extents=extents or {})
        for args in calls:
            wanted, got = f(*args), run_artifact(made, [x.numpy() for x in args])
            for a, b in zip(wanted if isinstance(wanted, tuple) else (wanted,), got, strict=True):
                assert (a.numpy().tobytes() == b.tobytes()) if isinstance(a, Tensor) else a == b.item()


def loops_and_branches(x):
    h, n = x[0], 0
    for row in x:
        h = F.tanh(h + row) if row.sum() > 0 else h * 0.5
        while h.sum() > 1:
            h, n = h / 2, n + 1
    return h, n


class Counter:
    def __init__(self):
        self.k = 3

    @script
    def scaled(self, x):
        """Doc."""
        if x.sum() > 0:
            return x * self.k
        return x - self.__less()

    def __less(self):
        return self.k


def test_methods():
    c = Counter()
    assert c.scaled(Tensor([1.0])).item() == 3.0 and c.scaled(Tensor([-1.0])).item() == -4.0
    c.k = 5
    assert c.scaled(Tensor([1.0])).item() == 5.0
    assert repr(Counter.scaled).startswith("<script of scaled") and Counter.scaled.__doc__ == "Doc."


@script
def at_module_level(x):
    return x if x.sum() > 0 else -x


def test_pickles_and_copies():
    assert pickle.loads(pickle.dumps(at_module_level)) is at_module_level
    assert copy.copy(at_module_level)(Tensor([-1.0])).item() == 1.0


# ---- gradients -------------------------------------------------------------------------------------------------------


def gradients(net, call):
    gm = GradManager().attach(net.parameters())
    with gm:
        gm.backward(call(Tensor(A)).sum())
    found = [p.grad.numpy().copy() for p in net.parameters()]
    for p in net.parameters():
        p.grad = None
    return found


def test_gradients_inside_and_outside():
    net = Net()
    wanted = gradients(net, net)
    outside = gradients(net, script(net))
    assert [g.tobytes() for g in outside] == [g.tobytes() for g in wanted]
    gm = GradManager().attach(net.parameters())

    @script
    def step(x):
        with gm:
            loss = net(x).sum()
            gm.backward(loss)
        return loss

    step(Tensor(A))
    for p, g in zip(net.parameters(), wanted):
        np.testing.assert_allclose(p.grad.numpy(), g, rtol=2e-5, atol=1e-6)


def test_one_program_for_every_length():
    f = script(sum_of_rows, dynamic_axes={0: "n"})
    for n in (5, 2, 3, 4):
        x = Tensor(A[:n])
        assert f(x).numpy().tobytes() == sum_of_rows(x).numpy().tobytes()
    assert len(f.stats()) == 1


def nest(x):
    t = 0
    for a in x:
        if t > 50:
            break
        for b in x:
            if t > 60:
                break
            for c in x:
                if t > 70:
                    break
                for d in x:
                    if t > 80:
                        break
                    t = t + (a + b + c + d).sum()
    return t


def test_a_loop_in_loops_is_recorded_a_few_times(monkeypatch):
    """Each loop is tried in several ways; what was found is known when a loop around it is tried again."""
    x = Tensor(np.ones((3, 2), "float32"))
    wanted, regions = nest(x).numpy().tobytes(), []
    made = Region.__init__
    monkeypatch.setattr(Region, "__init__", lambda self, name: (regions.append(name), made(self, name))[1])
    s = script(nest)
    assert s(x).numpy().tobytes() == wanted
    assert len(regions) < 500  # 1,662 if each were tried anew
    assert sum(len(g.nodes) for g in s.graph.graphs()) < 300


def test_ranges_stay_loops_where_many_iterations_are_unrolled(monkeypatch):
    """What is recorded does not grow with the product of known ranges."""
    monkeypatch.setattr(flow, "UNROLLED", 6)

    def nested(x, n=0):
        for i in range(4):
            for j in range(5, 0, -1):
                if i == j:
                    continue
                x, n = x * 0.5 + j, n + i
            x = x + i
        return x, n

    run = script(nested)
    (x, n), (wanted, count) = run(Tensor(A)), nested(Tensor(A))
    assert x.numpy().tobytes() == wanted.numpy().tobytes() and n.item() == count
    assert len(run.graph.nodes) < 30 and [m.op for m in run.graph.nodes].count("scan") == 1
