"""Guards of recordings in use: modes in turns, methods, files, open extents; what a repeated call costs; how many recordings are
kept, and for how long."""

import dataclasses
import gc
import sys
import warnings
import weakref

import numpy as np
import pytest
from user_net import Net

import tengen
from tengen import Parameter, Tensor, amp, random, trace
from tengen import functional as F
from tengen import module as M
from tengen.autodiff import GradManager
from tengen.jit.observe import Observer
from tengen.models import resnet18
from tengen.optimizer import SGD

X = Tensor(np.linspace(-1, 1, 24, dtype="float32").reshape(4, 6))
SCALE = 2.0


@dataclasses.dataclass
class Config:
    k: float = 2.0
    unread: int = 0


class Trainer:
    """An object whose method is traced."""

    def __init__(self):
        self.k, self.net, self.steps = 2.0, M.Dropout(0.5), 0

    @trace
    def step(self, x):
        return self.net(x) * self.k

    def eager(self, x):
        return self.net(x) * self.k


def bytes_of(x):
    if isinstance(x, (list, tuple)):
        return [bytes_of(v) for v in x]
    return x.numpy().tobytes(), x.shape, x.dtype.name


def test_methods_of_objects():
    a, b = Trainer(), Trainer()
    for t in (a, b):
        for k, p in ((2.0, 0.5), (3.0, 0.5), (3.0, 0.25), (2.0, 0.5)):
            t.k, t.net.drop_prob = k, p
            for _ in range(2):
                random.seed(5)
                got = bytes_of(t.step(X))
                random.seed(5)
                assert got == bytes_of(t.eager(X))
                t.steps += 1  # nothing that the method reads
        assert len(t.step.stats()) == 3


def network():
    random.seed(2)
    return M.Sequential(M.Linear(6, 8), M.BatchNorm1d(8), M.ReLU(), M.Dropout(0.3), M.Linear(8, 3))


def test_training_and_evaluation_in_turns():
    def run(on):
        net = network()
        gm, opt = GradManager().attach(net.parameters()), SGD(net.parameters(), lr=0.1, momentum=0.9)
        y = Tensor(np.array([0, 1, 2, 1], "int32"))

        def step(x, y):
            with gm:
                loss = F.loss.cross_entropy(net(x), y)
                gm.backward(loss)
            opt.step().clear_grad()
            return loss

        def score(x):
            return net(x)

        if on:
            step, score = trace(step), trace(score)
        seen = []
        for _ in range(4):
            net.train()
            seen += [bytes_of(step(X, y)) for _ in range(3)]
            seen.append(bytes_of(score(X)))  # one traced function in both modes
            net.eval()
            seen += [bytes_of(score(X)) for _ in range(2)]
        if on:
            assert len(step.stats()) == 1 and len(score.stats()) == 2
        return seen, [bytes_of(t) for t in net.tensors()]

    assert run(True) == run(False)


def test_a_learning_rate_is_no_guard():
    net = M.Linear(6, 6)
    gm, opt = GradManager().attach(net.parameters()), SGD(net.parameters(), lr=0.1)

    @trace
    def step(x):
        with gm:
            gm.backward((net(x) ** 2).mean())
        opt.step().clear_grad()

    step(X)
    now = tengen.base.changes.changes.last
    for lr in (0.2, 0.3):
        opt.param_groups[0]["lr"] = lr
        step(X)
    assert len(step.stats()) == 1 and tengen.base.changes.changes.last is now


def test_what_is_not_read_is_not_looked_at():
    config, net = Config(), Net()
    f = trace(lambda x: net(x) * config.k)
    for i in range(4):
        config.unread = net.other = i
        f(X)
    assert len(f.stats()) == 1


def test_constants_notice_what_is_no_value():
    net = Net()
    f = trace(net, capture_as_const=True)
    for mode in (True, False, True):
        net.train(mode)
        assert bytes_of(f(X)) == bytes_of(net(X))
    assert len(f.stats()) == 2


def test_open_extents():
    net = network()
    f = trace(net, dynamic_axes={0: "n"})
    for _ in range(2):
        for mode in (True, False):
            net.train(mode)
            for n in (2, 3):
                state = net.state_dict()
                random.seed(1)
                got = bytes_of(f(X[:n]))
                net.load_state_dict(state)
                random.seed(1)
                assert got == bytes_of(net(X[:n]))
    assert len(f.stats()) == 2


def test_functions_traced_inside_of_others():
    net = network()
    inner = trace(lambda x: net(x) * SCALE)
    outer = trace(lambda x: inner(x) + 1)
    for mode in (True, False, True):
        net.train(mode)
        state = net.state_dict()
        random.seed(1)
        got = bytes_of(outer(X))
        net.load_state_dict(state)
        random.seed(1)
        assert got == bytes_of(net(X) * SCALE + 1)
    assert len(outer.stats()) == 2


def test_files_and_graphs_have_what_fits_now(tmp_path):
    net = M.Sequential(M.Linear(6, 6), M.Dropout(0.5))
    f = trace(net, example_input=X)
    assert any("random" in n.op for n in f.graph.nodes)
    net.eval()
    assert not any("random" in n.op for n in f.graph.nodes)
    net.train()
    f(X)
    net.eval()
    f.dump(str(tmp_path / "a.tgn"))
    assert bytes_of(tengen.load_graph(str(tmp_path / "a.tgn"))(X)) == bytes_of(net(X))
    net[0].weight = Parameter(np.eye(6, dtype="float32"))
    f.dump(str(tmp_path / "b.tgn"))  # recorded for it
    assert bytes_of(tengen.load_graph(str(tmp_path / "b.tgn"))(X)) == bytes_of(net(X))
    with amp.autocast(dtype="bfloat16"):
        f(X)
    net[1].drop_prob = 0.25
    net.train()
    with pytest.raises(tengen.base.errors.TraceError, match="call it once more"):
        f.dump(str(tmp_path / "c.tgn"))


# -- the cost when nothing changed ---------------------------------------------------------------------------------------------


def test_a_repeated_step_calls_nothing_for_each_module():
    def calls(net):
        gm, opt = GradManager().attach(net.parameters()), SGD(net.parameters(), lr=0.1, momentum=0.9)

        @trace
        def step(x, y):
            with gm:
                loss = F.loss.cross_entropy(net(x), y)
                gm.backward(loss)
            opt.step().clear_grad()
            return loss

        x, y = Tensor(np.zeros((1, 3, 8, 8), "float32")), Tensor(np.zeros(1, "int32"))
        before = tengen.base.changes.changes.last
        for _ in range(3):
            step(x, y)
            last, before = before, tengen.base.changes.changes.last
        assert last is before, "a step says that something changed"
        [known] = step._direct.values()
        hold = known.recording.read.hold
        return events(hold), called(lambda: step(x, y)), len(known.recording.read.quick.__closure__)

    def events(f):
        seen = []
        sys.setprofile(lambda frame, event, arg: seen.append(event))
        try:
            f()
        finally:
            sys.setprofile(None)
        return {e: seen.count(e) for e in ("call", "c_call")}

    def called(f):
        seen = set()
        sys.setprofile(lambda frame, event, arg: seen.add(frame.f_code.co_filename) if event == "call" else None)
        try:
            f()
        finally:
            sys.setprofile(None)
        return {file.partition("/tengen/")[2] for file in seen} - {""}

    small = M.Sequential(M.Conv2d(3, 4, 3, padding=1), M.BatchNorm2d(4), M.AvgPool2d(8), M.Flatten(), M.Linear(4, 2))
    few, step_of_few, bound = calls(small)
    many, step_of_many, as_many = calls(resnet18(width=8, num_classes=10))
    assert few == many == {"call": 2, "c_call": 1}, "`hold`, the comparison that it keeps, and setprofile"
    assert bound == as_many <= 20
    assert step_of_few == step_of_many and not any(f.startswith(("module", "optimizer", "models")) for f in step_of_many), step_of_many
    assert "jit/direct.py" in step_of_many and not {"jit/reach.py", "jit/recordings.py"} & step_of_many


# -- what is seen of a recording -------------------------------------------------------------------------------------------------


def test_what_tengen_does_for_a_call_of_an_op_is_not_seen(monkeypatch):
    """A profiler's hook takes longer than most of the calls that it sees. Of a call of an op it sees some 50, which were 140."""
    seen, see = [], Observer._see

    def counted(self, frame, event, arg):
        seen.append(event)
        return see(self, frame, event, arg)

    def recorded(n):
        def f(x):
            for _ in range(n):
                x = F.flip(F.exp(x), 1)
            return x * SCALE

        trace(f)(X)  # what the first call of all does is not counted
        seen.clear()
        trace(f)(X)
        return len(seen)

    monkeypatch.setattr(Observer, "_see", counted)
    few, many = recorded(2), recorded(6)
    assert many - few < 8 * 75, f"{(many - few) / 8} events for a call of an op"


ROWS = 2


class Rows:
    def __index__(self):
        return ROWS


CALLS = {
    "alone": lambda x: F.repeat(x, Rows()), "in a tuple": lambda x: F.reshape(x, (Rows(), -1)),
    "in a tuple of tuples": lambda x: F.pad(x, ((Rows(), 0), (0, Rows()))),
}  # fmt: skip


@pytest.mark.parametrize("where", CALLS)
def test_a_global_that_a_users_number_reads_is_seen(monkeypatch, where):
    """An op converts it, by the user's `__index__`."""
    traced = trace(CALLS[where])
    for n in (2, 3, 2):
        monkeypatch.setattr(sys.modules[__name__], "ROWS", n)
        assert bytes_of(traced(X)) == bytes_of(CALLS[where](X))


# -- how many, and for how long --------------------------------------------------------------------------------------------------


def test_a_library_in_a_folder_of_any_name_is_not_walked_through(tmp_path, monkeypatch):
    """`pip install --target` puts libraries into a folder that may hold modules of the user's own, too."""
    for name, text in {
        "library_of_test_guards/__init__.py": "counts = [0]", "single_of_test_guards.py": "counts = [0]",
        "own_of_test_guards.py": "import library_of_test_guards, single_of_test_guards\nscale = 2.0",
        "library-1.0.dist-info/RECORD": "library_of_test_guards/__init__.py,sha256=x,12\n./single_of_test_guards.py,,\n",
    }.items():  # fmt: skip
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    import own_of_test_guards as own

    single, library = own.single_of_test_guards, own.library_of_test_guards  # modules that are read, and not guarded
    f = trace(lambda x: x * own.scale if single.counts and library.counts else x)
    for single.counts[0], library.counts[0], own.scale in ((1, 2, 2.0), (3, 4, 3.0), (5, 6, 3.0)):
        assert f(X).numpy().tobytes() == (X * own.scale).numpy().tobytes()
    assert len(f.stats()) == 2, "the user's own module decides, a library's state does not"


def test_what_changes_in_every_call_is_told_once():
    config = Config()
    f = trace(lambda x: x * config.k)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for i in range(40):
            config.k = float(i)
            assert bytes_of(f(X)) == bytes_of(X * float(i))
    [w] = found
    assert "max_programs=8" in str(w.message) and "config.k changed (8 times)" in str(w.message) and "Tensor" in str(w.message)
    assert w.filename == __file__ and len(f.stats()) <= 32


def test_a_parameter_that_is_replaced_in_every_call_is_told_once():
    net = M.Linear(6, 6)
    f = trace(net)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for i in range(40):
            net.weight = Parameter(np.full((6, 6), i, "float32"))
            assert bytes_of(f(X)) == bytes_of(net(X))
    [w] = found
    assert "max_programs=8" in str(w.message) and "weight" in str(w.message) and len(f.stats()) <= 2


def test_a_parameter_that_was_replaced_is_let_go():
    net = M.Sequential(M.Linear(6, 6), M.ReLU())
    f = trace(net)
    f(X), f(X[:2])
    old = weakref.ref(net[0].weight)
    layer = weakref.ref(net[1])
    net[0].weight = Parameter(np.eye(6, dtype="float32"))
    net[1] = M.Sigmoid()
    assert bytes_of(f(X)) == bytes_of(net(X))
    gc.collect()
    assert old() is None and layer() is None
    f(X[:3])
    assert [s.signature for s in f.stats()] == ["x: f32[4,6]", "x: f32[n0,6]"], "the old ones are gone"
