"""What a traced function reads and what changes between calls: a table of every kind. Each case is a function and a change that it
has to notice; the traced function gives the bytes of the eager one before the change, after it, and when it is taken back, and that
with two recordings."""

import dataclasses
import functools
import itertools
import sys
import threading
import types
from collections import deque
from enum import Enum

import numpy as np
import pytest
from exhaustive import but
from user_net import Net

from tengen import Parameter, Tensor, random, trace
from tengen import functional as F
from tengen import module as M
from tengen.autodiff import GradManager
from tengen.optimizer import SGD, Adam, Optimizer
from tengen.tensor import eager

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
    part = Config()
    yield "what a partial holds", functools.partial(lambda c, x: x * c.k, part), setter(part, "k", 3.0)
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


def bytes_of(x):
    if isinstance(x, (list, tuple)):
        return [bytes_of(v) for v in x]
    return x.numpy().tobytes(), x.shape, x.dtype.name


CASES = [(name, f, change, *rest) for name, f, change, *rest in itertools.chain(
    networks(), optimizers(), names(), containers(), arguments(), attached()
)]  # fmt: skip


@but(every=3)
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
    assert want != seen[0] and recorded[0] == 2
    if back is not None:
        back()
        assert [traced() for _ in range(3)] == seen[:1] * 3 and recorded[0] <= 2
        back = change()
        assert traced() == want and recorded[0] <= 2, "no third recording"
        back()


def test_threads_that_compute_beside_a_recording_enter_no_plans_into_it():
    """A recording looks calls up in tables that must stay empty: a plan found there computes a call instead of recording it. Those of other
    threads are entered where they were, in whatever moment the tables are exchanged."""
    a, b = Tensor(np.ones(6, "f4")), Tensor(np.ones((), "f4"))

    def compute():
        x = Tensor(np.ones((2, 3), "f4"))
        x[0, 1] = 2.0
        return (a + a * a - a / a), F.exp(a), a.reshape(3, 2)[1:], b[...], x, F.abs(a)

    saved = eager.hide_plans(aside=True)
    try:
        found = [compute()[3].shape for _ in range(3)]
        hidden = eager._plans, eager._slow_plans, eager._add, eager._sub, eager._mul, eager._div
        assert [len(t) for t in hidden] == [0, 0, 1, 1, 1, 1] and found == [()] * 3
        assert all(one is not other for one, other in zip(hidden, saved))
    finally:
        eager.restore_plans(saved, aside=True)
    assert len(saved[0]) > 3 and saved[1] and eager._plans is saved[0] and eager._add is saved[2]


def test_threads_compute_while_others_record():
    """Eager calls of one thread, and recordings of another one that reads a parameter: neither loses an operator's table, nor is a product of
    parameters computed in the place of recording it."""
    w, odd, done = Parameter(np.ones(7, "f4")), [], threading.Event()

    def compute():
        n = 0
        try:
            while not done.is_set():
                n += 1
                x = Tensor(np.ones((n % 5 + 1, n % 7 + 1), "f4"))
                y = (x * x + x) / x - x
                if y[...].shape != x.shape or Tensor(3.0)[...].shape != () or (w * w).shape != (7,):
                    odd.append(y.shape)
        except Exception as e:
            odd.append(e)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=compute)
    thread.start()
    try:
        for _ in range(25):
            w._reset(Tensor(np.full(7, 2, "f4")))
            f = trace(lambda x: w * w * x)
            f(a := Tensor(np.ones(7, "f4")))
            w._reset(Tensor(np.full(7, 3, "f4")))
            assert f(a).tolist() == [9.0] * 7
    finally:
        done.set()
        thread.join()
        sys.setswitchinterval(before)
    assert not odd
