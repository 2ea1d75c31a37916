"""What a traced function reads and what changes between calls: a table of every kind. Each case is a function and a change that it
has to notice; the traced function gives the bytes of the eager one before the change, after it, and when it is taken back, and that
with two recordings."""

import dataclasses
import functools
import gc
import itertools
import sys
import types
import warnings
import weakref
from collections import deque
from enum import Enum

import numpy as np
import pytest

import tengen
from tengen import Parameter, Tensor, amp, random, trace
from tengen import functional as F
from tengen import module as M
from tengen.autodiff import GradManager
from tengen.models import resnet18
from tengen.optimizer import SGD, Adam, Optimizer

X = Tensor(np.linspace(-1, 1, 24, dtype="float32").reshape(4, 6))
SCALE = 2.0
TABLE = {"k": 2.0}
HELPERS = types.ModuleType("helpers_of_test_stale")
HELPERS.__file__ = __file__
HELPERS.k = 2.0


class Mode(Enum):
    PLUS = 1
    MINUS = 2


class Settings:
    k = 2.0

    def __init__(self):
        self.deep = types.SimpleNamespace(k=2.0)


@dataclasses.dataclass
class Config:
    k: float = 2.0
    unread: int = 0


class Slots:
    __slots__ = ("k",)

    def __init__(self):
        self.k = 2.0


class Lazy:
    """Attributes by `__getattr__`."""

    def __init__(self):
        self._content = {"k": 2.0}

    def __getattr__(self, name):
        return self._content[name]


class Net(M.Module):
    """A user's module."""

    width = 2.0

    def __init__(self):
        super().__init__()
        self.fc, self.k, self.parts = M.Linear(6, 6), 2.0, [M.Linear(6, 6), M.Linear(6, 6)]
        self.flags = {"k": 2.0}
        self.other = 0

    def forward(self, x):
        x = self.fc(x) * self.k * self.width * self.flags["k"]
        for p in self.parts:
            x = p(x)
        return x if self.training else -x


def setter(x, name, value):
    def change():
        old = getattr(x, name)
        setattr(x, name, value)
        return lambda: setattr(x, name, old)

    return change


def item(x, key, value):
    def change():
        old = x[key]
        x[key] = value
        return lambda: x.__setitem__(key, old)

    return change


def networks():
    """(name, function, change) for what modules hold."""
    random.seed(1)
    drop = M.Sequential(M.Linear(6, 6), M.Dropout(0.5))
    yield "train/eval of dropout", drop, lambda: (drop.eval(), drop.train)[1]
    part = M.Sequential(M.Linear(6, 6), M.Dropout(0.5))
    yield "drop_prob", part, setter(part[1], "drop_prob", 0.25)
    norm = M.Sequential(M.Linear(6, 6), M.BatchNorm1d(6))
    yield "train/eval of batch norm", norm, lambda: (norm.eval(), norm.train)[1]
    mom = M.BatchNorm1d(6)


    def with_statistics(x):
        return mom(x), mom.running_mean + 0

    with_statistics.reset = lambda: (mom.running_mean._reset(mom.running_mean * 0), mom.running_var._reset(mom.running_var * 0 + 1))
    yield "momentum of batch norm", with_statistics, setter(mom, "momentum", 0.5)
    slope = M.LeakyReLU(0.1)
    yield "negative_slope", slope, setter(slope, "negative_slope", 0.2)
    net = Net()
    yield "a user's attribute", net, setter(net, "k", 3.0)
    signed = Net()
    signed.k = 0.0
    yield "the sign of zero", lambda x: x * signed.k, setter(signed, "k", -0.0)
    flags = Net()
    yield "a dict of a module", flags, item(flags.flags, "k", 3.0)
    replaced = Net()
    yield "a parameter replaced", replaced, setter(replaced.fc, "weight", Parameter(np.eye(6, dtype="float32")))
    child = Net()
    yield "a child replaced", child, setter(child, "fc", M.Linear(6, 6))
    layers = Net()

    def fewer():
        last = layers.parts.pop()
        return lambda: layers.parts.append(last)

    yield "a list of modules", layers, fewer
    other = Net()
    yield "an element of a list of modules", other, item(other.parts, 0, M.Linear(6, 6))
    hooked = Net()

    def hook():
        handle = hooked.fc.register_forward_hook(lambda m, i, o: o * 2)
        return handle.remove

    yield "a hook", hooked, hook
    bias = M.Linear(6, 6)
    bias.bias._reset(Tensor(np.ones(6, "float32")))
    yield "a parameter taken away", bias, setter(bias, "bias", None)
    mode = Net()
    yield "a class attribute of a module", mode, setter(Net, "width", 3.0)
    swapped = Net()
    yield "a method of a module's class", swapped, setter(Net, "forward", lambda self, x: self.fc(x))
    seq = M.Sequential(M.Linear(6, 6), M.ReLU())
    yield "a layer of a Sequential", seq, item(seq, 1, M.Sigmoid())


def optimizers():
    """The same for what optimizers hold: the function is a step."""

    def case(make, change):
        random.seed(1)
        net = M.Linear(6, 6)
        gm, opt = GradManager().attach(net.parameters()), make(net.parameters())
        start = [p.numpy().copy() for p in net.parameters()]
        states = [t for s in opt._state.values() for t in s.values()]
        kept = [t.numpy() + np.float32(0.5) for t in states]

        def step(x):
            with gm:
                loss = (net(x) ** 2).mean()
                gm.backward(loss)
            opt.step().clear_grad()
            return loss, [p.detach() for p in net.parameters()]

        def reset():
            for t, v in zip([*net.parameters(), *states], [*start, *kept]):
                t._reset(Tensor(v))
            for p in net.parameters():
                p.grad = None

        step.reset = reset
        return step, functools.partial(change, opt)

    def group(name, value):
        return lambda opt: item(opt.param_groups[0], name, value)()

    def sgd(params):
        return SGD(params, lr=0.1, momentum=0.9, weight_decay=0.01)

    def adam(params):
        return Adam(params, lr=0.1, weight_decay=0.01)

    yield "momentum", *case(sgd, group("momentum", 0.5))
    yield "weight_decay", *case(sgd, group("weight_decay", 0.5))
    yield "nesterov", *case(sgd, group("nesterov", True))
    yield "betas", *case(adam, group("betas", (0.5, 0.5)))
    yield "eps", *case(adam, group("eps", 0.5))

    def updated(opt):
        opt.param_groups[0].update(momentum=0.25)
        return lambda: opt.param_groups[0].update(momentum=0.9)

    yield "momentum by update()", *case(sgd, updated)

    def frozen(opt):
        p = opt.param_groups[0]["params"].pop()
        return lambda: opt.param_groups[0]["params"].append(p)

    yield "a parameter taken out of its group", *case(sgd, frozen)

    def replaced(opt):
        old = opt.param_groups
        opt.param_groups = [dict(old[0], params=old[0]["params"][:1])]
        opt.param_groups[0] = type(old[0])(opt.param_groups[0])
        return lambda: setattr(opt, "param_groups", old)

    yield "groups replaced", *case(sgd, replaced)

    class Plain(Optimizer):
        """A user's optimizer that reads the learning rate as a number."""

        def __init__(self, params):
            super().__init__(params, {"lr": 0.1})
            self.factor = 1.0

        def _create_state(self, p, group):
            return {}

        def _update(self, p, grad, state, group):
            p._reset(p - grad * (group["lr"] * self.factor))

    yield "a learning rate read as a number", *case(Plain, group("lr", 0.5))
    yield "an attribute of an optimizer", *case(Plain, lambda opt: setter(opt, "factor", 2.0)())


def attached():
    """What a GradManager is attached to."""
    a, b = Parameter([1.0, 2.0]), Parameter([3.0, 4.0])
    gm = GradManager().attach(a)

    def f(x):
        with gm:
            gm.backward((a * b).sum())
        found = [a.grad, b.grad]
        a.grad = b.grad = None
        return [x if g is None else g for g in found]

    def change():
        gm.attach(b)
        return None

    yield "tensors attached later", f, change
    c = Parameter([1.0, 2.0])
    other = GradManager().attach(c)

    def g(x):
        with other:
            other.backward((c * c).sum())
        found, c.grad = c.grad, None
        return found

    yield "a callback", g, lambda: (other.attach(c, callbacks=lambda t, grad: grad * 2), None)[1]


def names():
    """Globals, cells, defaults, attributes, containers."""
    here = sys.modules[__name__]
    yield "a global", lambda x: x * SCALE, setter(here, "SCALE", 3.0)
    yield "a dict that is a global", lambda x: x * TABLE["k"], item(TABLE, "k", 3.0)
    yield "an attribute of a module of the user's", lambda x: x * HELPERS.k, setter(HELPERS, "k", 3.0)
    k = 2.0

    def in_a_cell(x):
        return x * k

    def rebind():
        nonlocal k
        k = 3.0

        def back():
            nonlocal k
            k = 2.0

        return back

    yield "a closure variable", in_a_cell, rebind

    def inner(x):
        return x * k

    def calls_another(x):
        return inner(x) + 1

    yield "a closure variable of a function that is called", calls_another, rebind

    def default(x, k=2.0, *, j=1.0):
        return x * k + j

    yield "a default", default, setter(default, "__defaults__", (3.0,))
    yield "a keyword's default", default, setter(default, "__kwdefaults__", {"j": 2.0})
    yield "an element of keywords' defaults", default, item(default.__kwdefaults__, "j", 3.0)

    def swapped(x):
        return x * 2

    yield "a function's code", swapped, setter(swapped, "__code__", (lambda x: x * 3).__code__)

    def with_attribute(x):
        return x * with_attribute.k

    with_attribute.k = 2.0
    yield "a function's attribute", with_attribute, setter(with_attribute, "k", 3.0)
    settings = Settings()
    yield "an attribute two steps away", lambda x: x * settings.deep.k, setter(settings.deep, "k", 3.0)
    yield "an object on the way", lambda x: x * settings.deep.k, setter(settings, "deep", types.SimpleNamespace(k=3.0))
    yield "a class attribute", lambda x: x * Settings.k, setter(Settings, "k", 3.0)
    shadow = Settings()

    def cover():
        shadow.k = 3.0
        return lambda: delattr(shadow, "k")

    yield "an attribute in front of a class's", lambda x: x * shadow.k, cover
    asked = types.SimpleNamespace(other=1)

    def appear():
        asked.k = 3.0
        return lambda: delattr(asked, "k")

    yield "an attribute that appears", lambda x: x * getattr(asked, "k", 2.0), appear
    config = Config()
    yield "a dataclass", lambda x: x * config.k, setter(config, "k", 3.0)
    whole = Config()
    yield "all of a dataclass", lambda x: x * dataclasses.asdict(whole)["k"], setter(whole, "k", 3.0)
    slots = Slots()
    yield "a slot", lambda x: x * slots.k, setter(slots, "k", 3.0)
    lazy = Lazy()
    yield "an attribute by __getattr__", lambda x: x * lazy.k, item(lazy._content, "k", 3.0)
    types_of = Config()
    yield "the type of a number", lambda x: (x.astype("int32") * types_of.k), setter(types_of, "k", 2)
    mode = Config(k=Mode.PLUS)
    yield "an enum", lambda x: x + 1 if mode.k is Mode.PLUS else x - 1, setter(mode, "k", Mode.MINUS)
    text = Config(k="plus")
    yield "a text", lambda x: x + 1 if text.k == "plus" else x - 1, setter(text, "k", "minus")
    act = Config(k=F.relu)
    yield "a function in an attribute", lambda x: act.k(x), setter(act, "k", F.sigmoid)
    pair = Config(k=(1.0, 2.0))
    yield "a tuple", lambda x: x * pair.k[1], setter(pair, "k", (1.0, 3.0))
    held = Config(k=Tensor([2.0]))
    yield "a tensor in an attribute", lambda x: x * held.k, setter(held, "k", Tensor([3.0]))
    yield "partial", functools.partial(lambda c, x: x * c.k, Config()), lambda: None
    array = Config(k=np.float32(2))
    yield "a NumPy number", lambda x: x * array.k, setter(array, "k", np.float32(3))


def containers():
    """Containers that grow, shrink and change."""
    numbers = [1.0, 2.0]

    def grow(x, how, back):
        def change():
            how(x)
            return lambda: back(x)

        return change

    yield "a list that grew", lambda x: x * len(numbers), grow(numbers, lambda x: x.append(3.0), lambda x: x.pop())
    other = [1.0, 2.0]
    yield "an element of a list", lambda x: x * other[1], item(other, 1, 3.0)
    nested = [[1.0], [2.0]]
    yield "a list in a list", lambda x: x * nested[1][0], item(nested[1], 0, 3.0)
    names_ = {"a"}
    yield "a set that grew", lambda x: x * len(names_), grow(names_, lambda x: x.add("b"), lambda x: x.discard("b"))
    keys = {"a": 1.0}
    yield "a dict that grew", lambda x: x * sum(keys.values()), grow(keys, lambda x: x.update(b=2.0), lambda x: x.pop("b"))
    queue = deque([1.0])
    yield "a deque", lambda x: x * len(queue), grow(queue, lambda x: x.append(3.0), lambda x: x.pop())
    weights = [Tensor([2.0]), Tensor([2.0])]
    yield "a list of tensors", lambda x: x * weights[0] + weights[1], item(weights, 1, Tensor([3.0]))
    by = [False, 0.0]
    yield "an equal element of another type", lambda x: x + int(isinstance(by[0], int)), item(by, 0, 0.0)
    objects = [Config(), Config()]
    yield "an attribute of an object in a list", lambda x: x * objects[1].k, setter(objects[1], "k", 3.0)


def arguments():
    """Objects among the arguments."""
    config = Config()
    yield "an attribute of an argument", lambda x, c: x * c.k, setter(config, "k", 3.0), config
    net = Net()
    yield "a module among the arguments", lambda x, net: net(x), setter(net, "k", 3.0), net
    training = M.Sequential(M.Linear(6, 6), M.Dropout(0.5))
    yield "train/eval of an argument", lambda x, n: n(x), lambda: (training.eval(), training.train)[1], training


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


CASES = [(name, f, change, *rest) for name, f, change, *rest in itertools.chain(
    networks(), optimizers(), names(), containers(), arguments(), attached()
)]  # fmt: skip


@pytest.mark.parametrize("name, f, change, rest", [(n, f, c, r) for n, f, c, *r in CASES], ids=[c[0] for c in CASES])
def test_a_change_is_noticed(name, f, change, rest):
    recorded = [0]
    kept = [(b, b.numpy().copy()) for b in f.buffers()] if isinstance(f, M.Module) else []

    def reset():
        random.seed(3)
        getattr(f, "reset", lambda: None)()
        for b, v in kept:
            b._reset(Tensor(v))

    def eager():
        reset()
        return bytes_of(f(X, *rest))

    run = trace(f)

    def traced():
        reset()
        before = len(run.stats())
        got = bytes_of(run(X, *rest))
        recorded[0] += len(run.stats()) > before
        return got

    seen = [eager(), *(traced() for _ in range(3))]
    assert seen[1:] == seen[:1] * 3 and recorded[0] == 1
    back = change()
    want = eager()
    assert [traced() for _ in range(3)] == [want] * 3
    if name != "partial":
        assert want != seen[0] and recorded[0] == 2
    if back is not None:
        back()
        assert [traced() for _ in range(3)] == seen[:1] * 3 and recorded[0] <= 2
        back = change()
        assert traced() == want and recorded[0] <= 2, "no third recording"
        back()


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
        [known] = step._known.values()
        hold = known.recording.read.hold
        return events(hold), called(lambda: step(x, y)), len(known.recording.read._quick.__closure__)

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
    assert "jit/guards.py" in step_of_many and "jit/reach.py" not in step_of_many


# -- what the function changes by itself -----------------------------------------------------------------------------------------


def told(f, *args):
    """What recording warns of: (message, line from the function's first)."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        run = trace(f)
        for _ in range(2):
            run(X, *args)
        run(X[:2], *args)  # another recording
        run(X, *args)
    assert len(run.stats()) == 2, "recorded again and again"
    return [(str(w.message), w.filename, w.lineno - f.__code__.co_firstlineno) for w in found]


def counts_in_a_cell():
    n = 0

    def f(x):
        nonlocal n
        n += 1
        return x + n

    return f, "n is changed", 2


def counts_in_a_global():
    def f(x):
        global COUNT
        COUNT += 1
        return x + COUNT

    return f, "COUNT", 2


def counts_in_an_attribute():
    box = Config(k=0)

    def f(x):
        box.k += 1
        return x + box.k

    return f, "box.k", 1


def counts_in_a_module():
    net = Net()

    def f(x):
        net.k += 1
        return net(x)

    return f, "net.k", 1


def counts_in_a_dict():
    seen = {"n": 0}

    def f(x):
        seen["n"] += 1
        return x

    return f, "seen is changed", 1


def reads_a_list_that_it_appends_to():
    seen = []

    def f(x):
        seen.append(1)
        return x * len(seen)

    return f, "seen is changed", 1


COUNT = 0


@pytest.mark.parametrize("make", [
    counts_in_a_cell, counts_in_a_global, counts_in_an_attribute, counts_in_a_module, counts_in_a_dict,
    reads_a_list_that_it_appends_to,
])  # fmt: skip
def test_what_the_function_changes_is_told(make):
    f, name, line = make()
    [(message, file, at)] = told(f)
    assert name in message and "is changed by the traced function" in message and file == __file__
    assert at == line or make is reads_a_list_that_it_appends_to


def test_what_is_made_once_or_only_written_is_not_told():
    box, log, modes = Config(k=None), [], Net()

    def f(x):
        if box.k is None:
            box.k = Config()
        log.append(x.shape)
        modes.k = 2.0
        return x * box.k.k * modes.k

    assert told(f) == []


# -- what cannot be seen -----------------------------------------------------------------------------------------------------------


def reads_an_array():
    a = np.ones(6, "float32")

    def f(x):
        n = a.shape[0]
        return x * a + n

    return f, "NumPy array of shape (6,)", 2


def reads_an_array_of_an_object():
    box = Config(k=np.ones(6, "float32"))

    def f(x):
        return x * box.k

    return f, "NumPy array of shape (6,)", 1


def reads_a_large_table():
    table = list(range(5000))

    def f(x):
        return x * table[3]

    return f, "list of 5000 elements", 1


def draws_from_random():
    import random as chance

    def f(x):
        return x * chance.random()

    return f, "a random number of Python's", 1


def draws_by_a_function_of_random():
    import random as chance

    def f(x):
        return x * chance.uniform(0, 1)

    return f, "a random number of Python's", 1


def draws_from_a_generator_of_random():
    import random as chance

    own = chance.Random(3)

    def f(x):
        return x * own.random()

    return f, "a random number of Python's", 1


def draws_from_numpy():
    def f(x):
        return x * np.random.rand()

    return f, "a random number of NumPy's", 1


def draws_from_a_generator_of_numpy():
    rng = np.random.default_rng(3)

    def f(x):
        return x * rng.random()

    return f, "a random number of rng", 1


def takes_from_an_iterator():
    numbers = itertools.count()

    def f(x):
        return x * next(numbers)

    return f, "numbers is a count, an iterator", 1


def reads_the_clock():
    import time

    def f(x):
        return x * (time.perf_counter() > 0)

    return f, "the clock (perf_counter)", 1


def reads_the_date():
    import datetime

    def f(x):
        return x * (datetime.datetime.now().year > 0)

    return f, "the clock (now)", 1


@pytest.mark.parametrize("make", [
    reads_an_array, reads_an_array_of_an_object, reads_a_large_table, draws_from_random, draws_by_a_function_of_random,
    draws_from_a_generator_of_random, draws_from_numpy, draws_from_a_generator_of_numpy,
    takes_from_an_iterator, reads_the_clock, reads_the_date,
])  # fmt: skip
def test_what_cannot_be_seen_is_told_once(make):
    f, name, line = make()
    [(message, file, at)] = told(f)
    assert name in message and file == __file__ and at == line


def test_arrays_that_are_made_anew_or_cannot_change_are_not_told():
    frozen = X.numpy()[0]  # read-only, and the tensor copies before it is written
    shape = np.ones((4, 6))

    def f(x):
        return x * np.array([1.0], "float32") + np.arange(6, dtype="float32") + frozen * shape.ndim

    assert told(f) == []


def test_an_array_bound_to_the_name_is_noticed():
    a = np.ones(6, "float32")
    f = trace(lambda x: x * a)
    with pytest.warns(tengen.base.errors.TraceWarning):
        f(X)
    a = np.full(6, 3, "float32")
    assert bytes_of(f(X)) == bytes_of(X * 3)


def test_a_profiler_keeps_its_hook():
    seen = []

    def hook(frame, event, arg):
        seen.append(event)

    k = 2.0
    f = trace(lambda x: x * k)
    sys.setprofile(hook)
    try:
        f(X)
        assert sys.getprofile() is hook
    finally:
        sys.setprofile(None)
    assert "call" in seen
    import cProfile

    with cProfile.Profile():
        g = trace(lambda x: x * k)
        g(X)
    k = 3.0
    assert bytes_of(f(X)) == bytes_of(g(X)) == bytes_of(X * 3)


# -- how many, and for how long --------------------------------------------------------------------------------------------------


def test_what_changes_in_every_call_is_told_once():
    config = Config()
    f = trace(lambda x: x * config.k)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for i in range(40):
            config.k = float(i)
            assert bytes_of(f(X)) == bytes_of(X * float(i))
    [w] = found
    assert "32 times" in str(w.message) and "config.k" in str(w.message) and "Tensor" in str(w.message)
    assert w.filename == __file__ and len(f.stats()) <= 32


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
    assert [s.partition("[")[2][:-1] for s in f.stats()] == ["<arg0: f32[4,6]>", "<arg0: f32[3,6]>"], "the old ones are gone"
