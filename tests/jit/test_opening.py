"""Axes that open by themselves: the second shape opens them, later ones make no program, and the bits are those of eager calls."""

import gc
import itertools
import warnings
import weakref

import numpy as np
import pytest
from exhaustive import but
from test_dynamic import bits, floats, integers

import tengen
import tengen.functional as F
import tengen.module as M
from tengen import Tensor, load_graph, random, trace
from tengen.autodiff import GradManager
from tengen.base.errors import ArgumentError, ShapeError, TraceError, TraceWarning
from tengen.codegen import llvm
from tengen.compiler import building, plans
from tengen.jit.opening import joined, patterns
from tengen.kernels.convolution.winograd import pays, pays_for_any
from tengen.loops.extents import Numbers
from tengen.loops.lang import var
from tengen.optimizer import SGD, Adam
from tengen.runtime.progress import progress
from tengen.tensor import executable


@pytest.fixture
def made(monkeypatch):
    """The programs that were emitted."""
    found = []
    monkeypatch.setattr(building, "emit_module", lambda *a: found.append(a) or llvm.emit_module(*a))
    return found


def test_a_hundred_batches_have_two_programs(made):
    net = M.Sequential(M.Linear(12, 9), M.ReLU(), M.Linear(9, 4)).eval()
    run = trace(net)
    results = {n: run(floats(n, 12)) for n in (64, 17)}
    once = len(made)
    results |= {n: run(floats(n, 12)) for n in range(100, 1, -1)}
    assert len(made) == once and run._last.run.programs == 1
    first, opened = run.stats()
    assert (first.signature, opened.signature) == ("x: f32[64,12]", "x: f32[n0,12]") and run.stats().programs == 2
    assert opened.extents == {"n0": 17} and opened.where.startswith(__file__) and "(64, then 17)" in opened.cause
    assert all(bits(results[n]) == bits(net(floats(n, 12))) for n in (2, 17, 33, 64, 100))


def classifier():
    body = [M.Conv2d(3, 8, 3, padding=1), M.BatchNorm2d(8), M.ReLU(), M.AdaptiveAvgPool2d(1), M.Flatten(), M.Dropout(0.3)]
    return M.Sequential(*body, M.Linear(8, 5))


def language():
    return tengen.models.create("gpt", layers=1, width=16, heads=2, vocabulary=10, context=16)


def recurrent():
    return tengen.models.create("lstm", vocabulary=10, num_classes=5)


NETWORKS = {
    "mlp": (lambda: M.Sequential(M.Linear(20, 33), M.GELU(), M.LayerNorm(33), M.Linear(33, 5)), lambda n: floats(n, 20), SGD),
    "convolutions": (classifier, lambda n: floats(n, 3, 8, 8), Adam),
    "growing sequence": (language, lambda n: Tensor(integers(n, below=9).numpy().reshape(1, n).repeat(2, 0)), SGD),
    "lstm": (recurrent, lambda n: integers(n, 4), SGD),
}


@but(every=2)
@pytest.mark.parametrize("name", NETWORKS)
def test_training_has_the_bits_of_eager_steps(name):
    make, data, optimizer = NETWORKS[name]

    def trained(wrap):
        random.seed(5)
        net = make()
        gm, opt = GradManager().attach(net.parameters()), optimizer(net.parameters(), lr=0.05)

        def step(x, label):
            with gm:
                y = net(x)
                loss = F.loss.cross_entropy(y.reshape(-1, y.shape[-1]), label.reshape(-1))
                gm.backward(loss)
            opt.step().clear_grad()
            return loss

        run, losses = wrap(step), []
        for n in (5, 5, 3, 7, 5, 3):
            x = data(n)
            label = integers(x.shape[0], *x.shape[1:] if name == "growing sequence" else (), below=5)
            losses.append(bits(run(x, label)))
        return losses, bits([*net.parameters(), *net.buffers()]), run

    one, eager = trained(trace), trained(lambda f: f)
    assert one[:2] == eager[:2]
    first, opened = one[2].stats()
    assert "n0" not in first.signature and opened.signature.count("n0") == 2, "batches of 5 keep their own program"


ROW = floats(1, 4)
FUNCTIONS = {  # what is taken for larger than 1, or not clipped, where an extent has a name
    "squeeze of what is left": (lambda x: (x[1:] * 2).squeeze(), 2),
    "broadcasting of what is left": (lambda x: x[2:] + ROW, 2),
    "a longer slice": (lambda x: x[:9], 2),
    "a half": (lambda x: x[: x.shape[0] // 2].squeeze(), 2),
    "count": (lambda x: F.arange(1, x.shape[0]) + F.arange(0.0, x.shape[0])[1:] * F.arange(0, x.shape[0] * 2, 2).sum(), 2),
    "count from behind": (lambda x: F.arange(2, x.shape[0], 3).sum() + F.arange(4, x.shape[0]).sum(), 2),
    "identity": (lambda x: F.eye(x.shape[0]) @ x, 2),
    "whole": (lambda x: x.reshape(x.shape[0], -1)[:, ::2] / x.shape[0], 2),
    "ways": (lambda x: x * 2 if x.shape[0] > 5 and x.shape[0] != 7 else x - min(x.shape[0], 3), 5),
    "in a list": (lambda x: x if x.shape[0] in [3, 8] else -x, 4),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_size_gives_what_an_eager_call_gives(name):
    f, opened = FUNCTIONS[name]
    run = trace(f, max_programs=20)
    for n in (12, 11, 1, 2, 3, 4, 5, 7, 8, 10, 20, 12):
        assert bits(run(floats(n, 4))) == bits(f(floats(n, 4))), n
    assert [s.signature for s in run.stats()].count("x: f32[n0,4]") == opened - 1


OF_ANY_SIZE = {
    "rolled": lambda x: F.roll(x, -1, 0) + F.roll(x, 2, 0),
    "from behind": lambda x: x[::-1] * F.cumsum(x[::-1], 0)[::-1],
    "every third from behind": lambda x: x[::-3] + 0,
    "the last row": lambda x: F.concat([x[-1:], x[x.shape[0] - 1 :], x[:-1]]),
    "filled up to a multiple": lambda x: F.nn.pad(x, ((0, -x.shape[0] % 4), (0, 0))).reshape(-(-x.shape[0] // 4), 16),
    "as many as strides reach": lambda x: F.zeros((-(-(x.shape[0] + 2) // 3), -((-2 * x.shape[0]) // 5), (-x.shape[0]) % x.shape[0] + 1)),
}


@pytest.mark.parametrize("name", OF_ANY_SIZE)
def test_one_program_serves_all_sizes(name):
    f = OF_ANY_SIZE[name]
    run, named = trace(f), trace(f, dynamic_axes={0: "n"})
    for n in (12, 11, 20, 5, 6, 9, 16, 21, 8):
        x = floats(n, 4)
        assert bits(run(x)) == bits(named(x)) == bits(f(x)), n
    assert len(run.stats()) == 2 and len(named.stats()) == 1


def test_axes_open_together_and_further():
    run = trace(lambda x, y: (x.sum(1) + y.sum(), x.shape[0] * y))
    sizes = [(8, 8, 5), (6, 6, 5), (6, 7, 5), (6, 6, 4), (9, 3, 2), (1, 3, 2), (9, 4, 1)]
    for n, m, k in sizes:
        x, y = floats(n, m), floats(k, 2)
        assert bits(run(x, y)) == bits(run.function(x, y))
    assert [s.signature for s in run.stats()] == [
        "x: f32[8,8], y: f32[5,2]", "x: f32[n0,n0], y: f32[5,2]", "x: f32[n0,n1], y: f32[5,2]", "x: f32[n0,n1], y: f32[n2,2]",
        "x: f32[1,n0], y: f32[n1,2]", "x: f32[n0,n1], y: f32[1,2]",
    ]  # fmt: skip
    assert joined([((8, 8),), ((6, 7),)]).names == {(0, 0): "n0", (0, 1): "n1"} and not joined([((8, 8),), ((1, 8),)]).names
    assert [len(p.names) for p in patterns([[((8, 16),)], [((8, 24),)]], ((4, 24),))] == [2, 1, 2]


def test_what_cannot_be_opened_is_told_once():
    def f(x):
        return x.reshape(int(x.shape[0]), 2, 2)

    run = trace(f)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for n in (3, 4, 5, 6, 3):
            assert run(floats(n, 4)).shape == (n, 2, 2)
    [w] = found
    line = f.__code__.co_firstlineno + 1
    assert w.category is TraceWarning and w.filename == __file__ and "axis 0 of x (3, then 4)" in str(w.message)
    assert f"{__file__}:{line}: the extent n0 has no value" in str(w.message)
    closed = run.stats()
    assert len(closed) == closed.programs == 4 and "has no value" in closed[1].fixed and f":{line}" in repr(closed)


def test_a_program_holds_every_algorithm_of_a_convolution(made, tmp_path):
    """How a convolution is computed depends on the size of its images, and its bits on that: a program branches by it."""
    w = floats(32, 32, 3, 3)
    run = trace(lambda x: F.conv2d(x, w, padding=1), capture_as_const=True)
    sizes, algorithms = [(12, 12), (4, 5), (5, 9), (14, 2), (2, 40), (3, 3), (40, 30)], set()
    for h, v in sizes:
        x = floats(1, 32, h, v)
        assert bits(run(x)) == bits(run.function(x))
        algorithms.add(trace(run.function, example_input=x, dynamic_axes=None).graph.nodes[0].attrs["algorithm"])
    first, opened = run.stats()
    assert algorithms == {"direct", "winograd2", "winograd4"} and opened.conditions == () and run.stats().programs == 2
    named = trace(run.function, dynamic_axes={2: "h", 3: "w"}, capture_as_const=True, example_input=floats(1, 32, 6, 7))
    named.dump(tmp_path / "m.tgn")
    model = load_graph(tmp_path / "m.tgn")
    for h, v in sizes:
        x = floats(1, 32, h, v)
        assert bits(named(x)) == bits(model(x)) == bits(model.at(h=h, w=v)(x)) == bits(run.function(x))
    channels = (3, 16, 32, 40, 200)
    for c, o, h, v in itertools.product(channels, channels, (1, 2, 4, 5, 9, 30), (1, 3, 4, 7, 18, 41)):
        chosen = pays_for_any(c, o, var("h"), var("w"), values=(0, 2, 4))
        assert Numbers({var("h"): h, var("w"): v})(chosen) == pays(c, o, h, v)
    assert model.at(h=40, w=30).graph.nodes[0].attrs["algorithm"] == "winograd4"
    assert len(named.stats()) == 1 and set_up(named) >= 3, "filters are packed and transformed once"


def set_up(run):
    """How many kernels of a traced function run once, when it is compiled."""
    program = run._last.run.program
    return 0 if program.setup is None else program.setup.kernels


def test_an_attempt_that_failed_leaves_nothing():
    """A step that cannot be recorded open is recorded twice: before and after it records its gradient, and updates."""

    def trained(early, wrap):
        random.seed(1)
        net = M.Linear(4, 3)
        gm, opt = GradManager().attach(net.parameters()), Adam(net.parameters(), lr=0.1)

        def step(x):
            gm.record()
            k = 1 / x.shape[0] if early else 1
            loss = (net(x) ** 2).sum() * k
            gm.backward(loss)
            opt.step()
            k = 1 / x.shape[0]
            opt.clear_grad()
            return loss * k

        run = wrap(step)
        return [bits(run(floats(n, 4))) for n in (3, 4, 5, 3)], bits(list(net.parameters()))

    for early in (True, False):
        with pytest.warns(TraceWarning, match="the quotient 1 / n0 has no value"):
            traced = trained(early, trace)
        assert traced == trained(early, lambda f: f)


def test_one_axis_opens_where_another_cannot():
    run = trace(lambda x: sum(x[:, i] for i in range(x.shape[1])))
    with pytest.warns(TraceWarning, match="axis 1 of x .3, then 4."):
        run(floats(8, 3)), run(floats(8, 4))
    for n in (5, 6, 7):
        assert bits(run(floats(n, 4))) == bits(run.function(floats(n, 4)))
    assert [s.signature for s in run.stats()] == ["x: f32[8,3]", "x: f32[8,4]", "x: f32[n0,4]"]


def test_a_call_that_is_wrong_closes_nothing():
    run = trace(lambda x: x @ Tensor(np.ones((4, 2), "float32")))
    run(floats(3, 4))
    with pytest.raises(ShapeError, match="the inner extents 5 and 4 differ"):
        run(floats(3, 5))
    for n in (5, 6):
        assert run(floats(n, 4)).shape == (n, 2)
    assert [s.signature for s in run.stats()] == ["x: f32[3,4]", "x: f32[n0,4]"]


def test_modes_have_programs_of_their_own():
    net = M.Sequential(M.Linear(4, 6), M.Dropout(0.5)).eval()
    run = trace(net)
    for n in (3, 5, 6):
        run(floats(n, 4))
    net.train()
    for n in (5, 6, 7):
        random.seed(n)
        got = bits(run(floats(n, 4)))
        random.seed(n)
        assert got == bits(net(floats(n, 4)))
    net.eval()
    assert bits(run(floats(8, 4))) == bits(net(floats(8, 4)))
    assert sorted(s.signature for s in run.stats()) == ["x: f32[3,4]", "x: f32[5,4]", "x: f32[n0,4]", "x: f32[n0,4]"]


def test_options():
    run = trace(lambda x: x + 1, dynamic_axes=None)
    for n in (2, 3, 4):
        run(floats(n, 2))
    assert [s.signature for s in run.stats()] == [f"x: f32[{n},2]" for n in (2, 3, 4)]
    for wrong in ({"dynamic_axes": "all"}, {"max_programs": 0}, {"max_programs": 2.0}, {"on_excess": "raise"}):
        with pytest.raises(ArgumentError, match=next(iter(wrong))):
            trace(lambda x: x, **wrong)


def test_more_recordings_than_expected():
    one = trace(lambda x, k=1: x * k, max_programs=1, on_excess="error")
    one(floats(3))
    with pytest.raises(TraceError, match=r"more often than max_programs=1 times; .* another number in axis 0 of x \(3, then 4\)"):
        one(floats(4))
    with pytest.raises(TraceError, match="arguments of another kind"):
        one(floats(3), 2)
    assert one(floats(3)).shape == (3,) and len(one.stats()) == 1
    two = trace(lambda x, k=1: x * k, max_programs=2)
    two(floats(3)), two(floats(4)), two(floats(5))
    with pytest.warns(TraceWarning, match="more often than max_programs=2 times") as found:
        for k in (2, 3, 4):
            two(floats(3), k)
    assert len(found) == 1 and found[0].filename == __file__ and len(two.stats()) == 5


def test_hot_numbers_get_a_program_of_their_own(monkeypatch, made):
    monkeypatch.setattr(executable, "HOT_RUNS", 0)
    run = trace(lambda x: F.softmax(x, 1) * 2, max_programs=3)
    run(floats(3, 5)), run(floats(4, 5))
    wanted = {n: bits(run.function(floats(n, 5))) for n in (4, 6, 7)}
    once = len(made)
    for n in (6, 7, 6, 7, 4):  # the first run of 6, or of 4 above, was hot at once
        assert bits(run(floats(n, 5))) == wanted[n]
    assert run.stats()[1].programs == 2 and run.stats().programs == 3 and len(made) == once, "max_programs bounds them"
    held = weakref.ref(run._last.run)
    del run
    gc.collect()
    assert held() is None


def test_text_of_any_length(made, monkeypatch):
    """After the prompt, the first token (a cache of known length) and the second, no token and no length makes a program."""
    monkeypatch.setattr(plans, "HOT_AFTER_S", float("inf"))
    net, counts = tengen.models.gpt(layers=1, width=24, heads=2, context=64, vocabulary=11).eval(), []
    net.generate(np.array([[1, 2, 3]]), 40, callback=lambda tokens: counts.append(len(made)))
    assert len(counts) == 40 and counts[3:] == [counts[3]] * 37
    run, ids = trace(net), integers(1, 40)
    for t in range(3, 40):
        assert bits(run(ids[:, :t])) == bits(net(ids[:, :t]))
    assert [s.signature for s in run.stats()] == ["tokens: i32[1,3]", "tokens: i32[1,n0]"] and not run.stats()[1].conditions
    with pytest.raises(ValueError, match="65 tokens do not fit a context of 64"):
        run(integers(1, 65))


def test_files_and_graphs_have_the_numbers_of_the_last_call(tmp_path):
    net = M.Linear(4, 3).eval()
    run = trace(net)
    for n in (2, 3, 5):
        x = floats(n, 4)
        run(x)
        assert run.graph.inputs[0].type.shape == (n, 4)
        run.dump(tmp_path / "m.tgn")
        model = load_graph(tmp_path / "m.tgn")
        assert not model.extents and bits(model(x)) == bits(net(x))
    report = tengen.tune(run, seconds=0.05)
    assert report.after <= report.before and bits(run(x)) == bits(net(x))


def test_profiles_of_opened_programs():
    run = trace(lambda x: F.exp(x).sum(1))
    for n in (3, 5):
        run(floats(n, 4))
    with tengen.profile() as p:
        assert bits(run(floats(7, 4))) == bits(run.function(floats(7, 4)))
    assert sum(row.calls for row in p.rows) >= 1


def test_a_line_on_a_terminal(monkeypatch):
    lines = []
    monkeypatch.setattr(type(progress), "_wanted", lambda self: True)
    monkeypatch.setattr(type(progress), "_write", lambda self, text: lines.append(text))
    monkeypatch.setattr(type(progress), "_begin", lambda self, names: setattr(self, "_active", self._active + 1))
    run = trace(lambda x, y: x.sum(0) + y.sum(), name="score")
    for n in (3, 5, 6, 9):
        run(floats(n, 4), floats(n))
    [line] = [x for x in lines if "score" in x]
    assert line == (
        "tengen: score: axis 0 of x and axis 0 of y (3, then 5) is open from now on, one program serves every size; "
        'dynamic_axes={"x": {0: "n0"}, "y": {0: "n0"}} opens it in the first call\n'
    )


def skip(x):
    """A skip connection, past a pooling and what makes images as large as they were."""
    return F.concat([x, F.vision.interpolate(F.max_pool2d(x, 2), scale_factor=2)], 1) * F.adaptive_avg_pool2d(x, 1).mean(1, True)


@pytest.mark.parametrize("axes", ["auto", {2: "h", 3: "w"}])
def test_what_must_be_equal_is_looked_at_in_every_run(made, axes, tmp_path):
    """2 (h // 2) is h where h is even, and a run with another h is refused as an eager call is."""
    run, sizes = trace(skip, dynamic_axes=axes), [(8, 12), (6, 6), (10, 4), (14, 40)]
    for h, w in sizes:
        x = floats(2, 3, h, w)
        assert bits(run(x)) == bits(skip(x))
    assert len(run.stats()) == (2 if axes == "auto" else 1) and run.stats()[-1].conditions == ()
    with pytest.raises(ShapeError, match="[(]2, 3, 8, 4[)].*[(]2, 3, 9, 4[)]|with h = 9, w = 4: reshape"):
        run(floats(2, 3, 9, 4))
    if axes != "auto":
        run.dump(tmp_path / "m.tgn")
        model = load_graph(tmp_path / "m.tgn")
        assert bits(model(floats(2, 3, 18, 20))) == bits(skip(floats(2, 3, 18, 20)))
        with pytest.raises(ShapeError, match="with h = 9, w = 4: reshape"):
            model(floats(2, 3, 9, 4))


def test_adaptive_pools(made):
    """How an extent is shared out to windows is a condition of the recording; a window that is the whole axis is open."""
    run = trace(lambda x: (F.adaptive_avg_pool2d(x, (3, None)), F.adaptive_max_pool2d(x, 1)))
    for h, w in ((12, 8), (9, 20), (6, 6), (33, 32), (10, 9), (11, 7)):
        x = floats(2, 5, h, w)
        assert bits(run(x)) == bits(run.function(x))
    assert {s.conditions for s in run.stats()} == {(), ("rem(n0, 3) == 0",), ("rem(n0, 3) != 0",)}


def trained(wrap, sizes, make, sample, classes=4):
    """Losses and accuracies of a training with a metric, one step at each size; and the step."""
    random.seed(1)
    net = make()
    gm, opt = GradManager().attach(net.parameters()), Adam(net.parameters(), lr=0.01)

    def step(x, label):
        with gm:
            scores = net(x)
            loss = F.loss.cross_entropy(scores, label)
            gm.backward(loss)
        opt.step().clear_grad()
        return loss, F.metric.topk_accuracy(scores, label, 1), (F.argmax(scores, 1) == label).sum() / label.shape[0]

    run = wrap(step)
    results = [bits(run(*sample(size, classes))) for size in sizes]
    return results, run


def rows(n, classes):
    return floats(n, 12), integers(n, below=classes)


def pictures(size, classes):
    n, h, w = size
    return floats(n, 3, h, w), integers(n, below=classes)


def dense():
    return M.Sequential(M.Linear(12, 9), M.ReLU(), M.Dropout(0.2), M.Linear(9, 4))


def convolutional():
    body = [M.Conv2d(3, 16, 3, padding=1), M.BatchNorm2d(16), M.ReLU(), M.MaxPool2d(2), M.Conv2d(16, 32, 3, padding=1, stride=2), M.ReLU()]
    return M.Sequential(*body, M.Conv2d(32, 32, 3, padding=1), M.AdaptiveAvgPool2d(1), M.Flatten(), M.Linear(32, 4))


HUNDRED = [64, 17, *range(100, 1, -1)]
THIRTY = [(3, 20, 24), (2, 16, 40), *((2 + i % 3, 12 + 5 * i % 37, 60 - 7 * i % 41) for i in range(28))]


@but(every=2)
@pytest.mark.parametrize("make, sample, sizes", [(dense, rows, HUNDRED), (convolutional, pictures, THIRTY)])
def test_training_at_every_size_compiles_nothing_after_two(make, sample, sizes, monkeypatch):
    counts = []

    def wrap(step):
        made, run = [], trace(step)
        monkeypatch.setattr(building, "emit_module", lambda *a: made.append(a) or llvm.emit_module(*a))

        def counted(*args):
            result = run(*args)
            counts.append(len(made))
            return result

        counted.stats = run.stats
        return counted

    got = trained(wrap, sizes, make, sample)
    monkeypatch.undo()
    few = 8 if make is convolutional else len(sizes)  # eager programs of so many sizes take their time
    assert got[0][:few] == trained(lambda step: step, sizes[:few], make, sample)[0]
    assert counts[1] == counts[-1] and len(set(sizes)) >= 29
    stats = got[1].stats()
    assert stats.programs == 2 and not any(s.conditions or s.fixed for s in stats)
