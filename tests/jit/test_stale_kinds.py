"""What a traced function may read, one of each kind, and changes of it in any order between calls: the bytes are always those of a twin
that runs eagerly. `test_stale.py` has each change by itself, with the number of recordings."""

import collections
import contextvars
import functools
import operator
import os
import random as chance
import sys
import threading
import types
import weakref
from array import array
from ctypes import c_double

import numpy as np
import pytest
from exhaustive import exhaustive

from tengen import Parameter, Tensor, random, trace
from tengen import functional as F
from tengen import module as M
from tengen.autodiff import GradManager
from tengen.base.errors import TraceWarning
from tengen.optimizer import SGD

X = np.linspace(-1, 1, 24, dtype="float32").reshape(4, 6)


class Kind:
    """One thing that is read. value: reads it, as a number. change: changes what is read, back and forth."""

    def __init__(self, value, change):
        self.value, self.change = value, change


def attribute(x, name, values=(2.0, 3.0)):
    """A change that sets an attribute to one of two values in turn."""
    return lambda: setattr(x, name, values[1] if getattr(x, name) == values[0] else values[0])


def entry(x, key, values=(2.0, 3.0)):
    """The same for an entry of a container."""
    return lambda: operator.setitem(x, key, values[1] if x[key] == values[0] else values[0])


class Base:
    covered = 2.0


class Derived(Base):
    pass


def of_classes():
    """Attributes of classes, of metaclasses, and those that are not there."""
    base = type("Base", (), {"k": 2.0})
    derived = type("Derived", (base,), {})
    yield "class_of_base", Kind(lambda: derived().k, attribute(base, "k"))

    def cover():
        if "covered" in vars(Derived):
            del Derived.covered
        else:
            Derived.covered = 3.0

    thing = Derived()
    yield "covered_in_a_class", Kind(lambda: thing.covered, cover)
    one, other = type("One", (), {"k": lambda self: 2.0}), type("Other", (), {"k": lambda self: 3.0})
    changing = one()
    yield "class_of_an_object", Kind(lambda: changing.k(), lambda: setattr(changing, "__class__", other if type(changing) is one else one))
    meta = type("Meta", (type,), {"k": 2.0})
    made = meta("Made", (), {})
    yield "metaclass", Kind(lambda: made.k, attribute(meta, "k"))
    empty = type("Empty", (), {})

    def missing(x):
        try:
            return x.k
        except AttributeError:
            return 2.0

    def give_or_take(x):
        return lambda: delattr(x, "k") if hasattr(x, "k") else setattr(x, "k", 3.0)

    yield "missing_in_a_class", Kind(lambda: missing(empty), give_or_take(empty))
    bare = types.SimpleNamespace()
    yield "missing_in_an_object", Kind(lambda: missing(bare), give_or_take(bare))

    class Point:
        __match_args__ = ("first",)

        def __init__(self):
            self.first = 2.0

    point = Point()

    def matched():
        match point:
            case Point(first):
                return first

    yield "match", Kind(matched, attribute(point, "first"))


def of_names():
    """Attributes whose names are computed, and names that are looked up at run time."""
    numbered = types.SimpleNamespace(layer0=2.0, layer1=1.0)
    yield "name_of_pieces", Kind(lambda: sum(getattr(numbered, f"layer{i}") for i in range(2)), attribute(numbered, "layer1", (1.0, 4.0)))
    added = types.SimpleNamespace(part1=2.0)
    yield "name_of_a_sum", Kind(lambda: getattr(added, "part" + str(1)), attribute(added, "part1"))
    listed, names = types.SimpleNamespace(alpha=2.0), ["alpha"]
    yield "name_from_a_list", Kind(lambda: getattr(listed, names[0]), attribute(listed, "alpha"))

    def with_a_default():
        name, default = names[0], 3.0
        return getattr(listed, name, default)  # Python 3.13 loads both by one instruction

    yield "name_beside_a_default", Kind(with_a_default, attribute(listed, "alpha"))
    got, getter = types.SimpleNamespace(beta=2.0), operator.attrgetter("beta")
    yield "attrgetter", Kind(lambda: getter(got), attribute(got, "beta"))

    class Net(M.Module):
        def __init__(self):
            super().__init__()
            self.gain0 = 2.0

        def forward(self):
            return getattr(self, f"gain{0}")

    net = Net()
    yield "computed_name_in_a_module", Kind(net, attribute(net, "gain0"))
    scope = types.ModuleType("scope_of_test_stale_kinds")
    exec("K = 2.0\ndef read(): return globals()['K']", vars(scope))
    yield "globals", Kind(scope.read, attribute(scope, "K"))
    imported = types.ModuleType("imported_by_test_stale_kinds")
    imported.K = 2.0
    sys.modules[imported.__name__] = imported

    def read():
        import imported_by_test_stale_kinds

        return imported_by_test_stale_kinds.K

    yield "import", Kind(read, attribute(imported, "K"))

    def read_from():
        from imported_by_test_stale_kinds import L

        return L

    imported.L = 2.0
    yield "import_from", Kind(read_from, attribute(imported, "L"))
    os.environ["TEST_STALE_KINDS"] = "2"
    yield "environment", Kind(lambda: float(os.environ["TEST_STALE_KINDS"]), entry(os.environ, "TEST_STALE_KINDS", ("2", "3")))
    local = threading.local()
    local.k = 2.0
    yield "thread_local", Kind(lambda: local.k, attribute(local, "k"))
    variable = contextvars.ContextVar("variable", default=2.0)
    yield "context_variable", Kind(variable.get, lambda: variable.set(5.0 - variable.get()))


def of_callables():
    """What functions hold that are no plain functions."""
    table = {"k": 2.0}
    get = table.get
    yield "method_of_a_dict", Kind(lambda: get("k"), entry(table, "k"))
    seen = {"k": 2.0}
    values = seen.values()
    yield "view", Kind(lambda: sum(values), entry(seen, "k"))
    box = [2.0]

    @functools.lru_cache
    def cached():
        return box[0]

    cached()  # while it is recorded, the function itself does not run
    yield "cache", Kind(cached, lambda: (entry(box, 0)(), cached.cache_clear()))
    held = [2.0]

    @functools.singledispatch
    def dispatched(x):
        raise TypeError

    dispatched.register(int)(lambda x: held[0])
    yield "singledispatch", Kind(lambda: dispatched(1), entry(held, 0))

    class Table(dict):
        default = 2.0

        def __missing__(self, key):
            return self.default

    lacking = Table()
    yield "attribute_of_a_dict", Kind(lambda: lacking["k"], attribute(lacking, "default"))
    few = type("Few", (tuple,), {})((1.0,))
    few.k = 2.0
    yield "attribute_of_a_tuple", Kind(lambda: few.k, attribute(few, "k"))


def of_containers():
    """Lengths, orders and contents."""
    numbers = [1.0, 1.0]
    yield "length", Kind(lambda: len(numbers), lambda: numbers.pop() if len(numbers) > 2 else numbers.append(1.0))
    ordered = {"a": 1.0, "b": 2.0}
    yield "order", Kind(lambda: [*ordered.values()][0], lambda: ordered.update({(k := next(iter(ordered))): ordered.pop(k)}))
    turning = collections.deque([1.0, 2.0])
    yield "deque", Kind(lambda: turning[0], turning.rotate)
    deep = {"a": [1, {"b": 2.0}]}
    yield "deep", Kind(lambda: deep["a"][1]["b"], entry(deep["a"][1], "b"))

    def default(k=(2.0,)):
        return k[0]

    yield "default", Kind(lambda: default(), attribute(default, "__defaults__", (((2.0,),), ((3.0,),))))


NAMES = [name for kinds in (of_classes, of_names, of_callables, of_containers) for name, _ in kinds()]


class World:
    """A training step that reads one thing of each kind, and what changes them."""

    def __init__(self):
        random.seed(1)
        kinds = dict(kind for kinds in (of_classes, of_names, of_callables, of_containers) for kind in kinds())
        net = M.Sequential(M.Linear(6, 6), M.BatchNorm1d(6), M.Dropout(0.3))
        gm, opt = GradManager().attach(net.parameters()), SGD(net.parameters(), lr=0.1, momentum=0.5)
        self.net = net
        self.extra = extra = Parameter(np.ones(6, "float32"))
        hooks = []

        def step(x):
            factor = sum(i * kind.value() for i, kind in enumerate(kinds.values(), 1))  # a change of one changes it by 1 at least
            with gm:
                loss = ((net(x) * extra) ** 2).mean() * (factor * 1e-4)
                gm.backward(loss)
            opt.step().clear_grad()
            return loss

        def hook():
            if hooks:
                hooks.pop().remove()
            else:
                hooks.append(net[0].register_forward_hook(lambda m, args, out: out * 2))

        def add_group():
            if len(opt.param_groups) == 1:
                gm.attach([extra])
                opt.add_param_group({"params": [extra], "lr": 0.2})

        group = opt.param_groups[0]
        self.step = step
        self.changes = {name: kind.change for name, kind in kinds.items()} | {
            "training": lambda: net.train(not net.training), "learning_rate": entry(group, "lr", (0.1, 0.05)),
            "momentum": entry(group, "momentum", (0.5, 0.25)), "hook": hook, "drop_prob": attribute(net[2], "drop_prob", (0.3, 0.6)),
            "parameter_values": lambda: net[0].weight._reset(net[0].weight * 0.5), "seed": lambda: random.seed(5),
            "group": add_group,
            "layer": lambda: setattr(net[1], "eps", 0.5 if net[1].eps < 0.1 else 1e-5),
        }  # fmt: skip

    def run(self, order, traced):
        run = trace(self.step, max_programs=1000) if traced else self.step
        random.seed(2)
        x, seen = Tensor(X), []
        for name in order:
            seen.append((name, run(x).item(), [t.numpy().tobytes() for t in (*self.net.parameters(), *self.net.buffers(), self.extra)]))
            self.changes[name]()
        return seen


def test_there_are_enough_kinds():
    assert len(World().changes) >= 30 and len(set(NAMES)) == len(NAMES)


@pytest.fixture(autouse=True)
def _left_as_it_was():
    yield
    os.environ.pop("TEST_STALE_KINDS", None)
    sys.modules.pop("imported_by_test_stale_kinds", None)


@exhaustive
def test_any_order_of_changes():
    """Each change is made twice, in an order that no list has. A program that is stale shows in the loss, or in what is trained."""
    order = 2 * list(World().changes)
    chance.Random(0).shuffle(order)
    eager = World().run(order, traced=False)
    traced = World().run(order, traced=True)
    assert len({loss for _, loss, _ in eager}) == len(eager), "a change that shows nowhere tests nothing"
    changed = "nothing"
    for (name, *want), (_, *got) in zip(eager, traced):
        assert got == want, f"after the change of {changed}"
        changed = name


@pytest.mark.parametrize("make, what", [
    (lambda: bytearray(b"2"), "a bytearray"), (lambda: memoryview(bytearray(b"2")), "a memoryview"),
    (lambda: array("d", [2.0]), "a array"),
])  # fmt: skip
def test_memory_that_others_write_is_told(make, what):
    held = make()
    with pytest.warns(TraceWarning, match=f"held is {what}"):
        trace(lambda x: x * held[0])(Tensor(X))


def test_what_cannot_be_guarded_is_told():
    number = c_double(2.0)
    with pytest.warns(TraceWarning, match="number is a c_double"):
        trace(lambda x: x * number.value)(Tensor(X))
    owner = Derived()
    weak = weakref.ref(owner)
    with pytest.warns(TraceWarning, match="weak is a weak reference"):
        trace(lambda x: x * weak().covered)(Tensor(X))


def test_a_computed_name_reads_what_has_its_pieces_alone():
    """Attributes with other names may change as they like."""
    seen = types.SimpleNamespace(layer0=2.0, count=0)
    f = trace(lambda x: F.relu(x) * getattr(seen, f"layer{0}"))
    for seen.count in range(3):
        assert f(Tensor(X)).numpy().tobytes() == (F.relu(Tensor(X)) * 2.0).numpy().tobytes()
    assert len(f.stats()) == 1
