"""Dataclasses and named tuples as arguments, results and variables of traces, scripts and loops; and arguments that a function changes."""

import collections
import dataclasses
import pickle
from typing import Any, NamedTuple

import numpy as np
import pytest

import tengen.functional as F
from tengen import Tensor, autodiff, load_graph, script, trace
from tengen.base.errors import ScriptError, TraceWarning
from tengen.tensor.structure import builder, flatten, unflatten

ROWS = Tensor(np.random.default_rng(4).standard_normal((5, 3)).astype("float32"))


@dataclasses.dataclass
class Open:
    h: Any
    n: Any = 0


@dataclasses.dataclass(frozen=True)
class Frozen:
    h: Any
    n: Any = 0

    def doubled(self):
        return self.h * 2


@dataclasses.dataclass(frozen=True, slots=True)
class Slots:
    h: Any
    n: Any = 0


class Named(NamedTuple):
    h: Any
    n: Any = 0


@dataclasses.dataclass
class Node:
    value: Any
    parent: Any = None
    children: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Config:
    scale: float = 2.0


def content(x):
    """Types, numbers and bytes: a script returns numbers as tensors."""
    if isinstance(x, Tensor):
        return x.numpy().tobytes() if x.ndim else x.item()
    if dataclasses.is_dataclass(x):
        return type(x), [content(getattr(x, f.name)) for f in dataclasses.fields(x)]
    return (type(x), [content(v) for v in x]) if isinstance(x, (tuple, list)) else x


@pytest.mark.parametrize("kind", (Open, Frozen, Slots, Named))
def test_arguments_and_results(kind):
    """One program for all objects with tensors of the same types; the tensors are arguments, also for a gradient."""

    def step(s, rows):
        return kind(s.h * rows + s.n, [s.n, Frozen(rows)])

    for compiled in (trace(step), script(step)):
        for i in range(3):
            s = kind(ROWS[i], Tensor(float(i)))
            assert content(compiled(s, ROWS)) == content(step(s, ROWS))
        assert len(compiled.stats()) == 1 and f"s: {kind.__name__}(" in compiled.stats()[0].signature
        found = autodiff.grad(lambda h, f=compiled: f(kind(h, 1.0), ROWS).h.sum())(ROWS)
        assert found.numpy().tobytes() == ROWS.numpy().tobytes()


def test_fields_name_the_outputs_of_a_file(tmp_path):
    f = trace(lambda x: Frozen(x * 2, x + 1), example_input=ROWS)
    f.dump(tmp_path / "f.tgn", arg_names=["x"])
    found = load_graph(tmp_path / "f.tgn")
    assert found.graph.output_names == ["h", "n"]
    for a, b in zip(found(x=ROWS), (ROWS * 2, ROWS + 1)):
        assert a.numpy().tobytes() == b.numpy().tobytes()


def test_what_is_an_object_all_the_same():
    """A dataclass without tensors, one that holds itself, and one with other attributes: they are what they were."""
    config = Config()
    f = trace(lambda c, x: (c, x * c.scale))
    assert f(config, ROWS)[0] is config
    config.scale = 3.0
    assert f(config, ROWS)[1].numpy().tobytes() == (ROWS * 3.0).numpy().tobytes()
    root = Node(ROWS)
    root.children.append(Node(ROWS + 1, root))
    of_a_tree = trace(lambda n: n.children[0].value * n.value)
    assert of_a_tree(root).numpy().tobytes() == ((ROWS + 1) * ROWS).numpy().tobytes()
    asks = trace(lambda n: n.value * (2 if n.value.sum().item() > 0 else 3))
    assert all(asks(root).numpy().tobytes() == asks.function(root).numpy().tobytes() for _ in range(3))
    assert trace(lambda n: n)(root) is root
    more = Open(ROWS)
    more.more = 2.0
    assert trace(lambda s: s.h * s.more)(more).numpy().tobytes() == (ROWS * 2.0).numpy().tobytes()
    leaves: list = []
    key = flatten(("a", Frozen(ROWS, [Open(ROWS, 1)])), leaves)
    assert content(unflatten(key, leaves)) == content(builder(key)(leaves)) == content(("a", Frozen(ROWS, [Open(ROWS, 1)])))
    assert pickle.loads(pickle.dumps(builder(key)(leaves)[1])).n[0].n == 1


def test_a_method_of_an_arguments_class_that_is_replaced(monkeypatch):
    for compiled in (trace(lambda s: s.doubled()), script(lambda_like)):
        assert compiled(Frozen(ROWS)).numpy().tobytes() == (ROWS * 2).numpy().tobytes()
        with monkeypatch.context() as m:
            m.setattr(Frozen, "doubled", lambda self: self.h * 5)
            assert compiled(Frozen(ROWS)).numpy().tobytes() == (ROWS * 5).numpy().tobytes()


def lambda_like(s):
    return s.doubled()


def in_a_loop(kind):
    def f(rows):
        s = kind(F.zeros((3,)), 0)
        for r in rows:
            s = kind(F.tanh(s.h + r), s.n + 1)
        return s, s.h * s.n

    return f


def in_a_branch(kind):
    def f(rows):
        s = kind(rows[0], 1.0)
        if rows.sum() > 0:
            s = kind(rows[1], 2.0)
        return s, s.h * s.n

    return f


def replaced(rows):
    s = Frozen(F.zeros((3,)), 0)
    for r in rows:
        s = dataclasses.replace(s, h=s.h + r) if r.sum() > 0 else dataclasses.replace(s, n=s.n + 1)
    return s


def until(rows):
    s = Slots(rows, 0)
    while F.abs(s.h).max() > 0.1:
        s = Slots(s.h * 0.5, s.n + 1)
    return s


def left_early(rows):
    for i, r in enumerate(rows):
        if r.sum() > 0:
            return Named(r, i)
    return Named(rows[0], -1)


@pytest.mark.parametrize(
    "f", [*(make(k) for make in (in_a_loop, in_a_branch) for k in (Frozen, Slots, Named)), replaced, until, left_early]
)  # fmt: skip
def test_variables_of_a_script(f):
    s = script(f)
    for rows in (ROWS, -ROWS, ROWS * 0):
        assert content(s(rows)) == content(f(rows))
    assert len(s.stats()) == 1


def test_objects_whose_attributes_can_be_set_are_not_carried():
    for make in (in_a_loop, in_a_branch):
        with pytest.raises(ScriptError, match="a NamedTuple, or a dataclass with frozen=True, may be another one"):
            script(make(Open))(ROWS)


def test_states_of_loops():
    state, seen = F.scan(lambda s, x: (Open(s.h + x, s.n + 1), s.h), Open(F.zeros((3,)), 0), ROWS)
    assert type(state) is Open and state.n.item() == 5 and seen.shape == (5, 3)
    np.testing.assert_allclose(state.h.numpy(), ROWS.numpy().astype("float64").sum(0), atol=1e-5)


def changes_a_dict(d, x):
    d["y"] = x * 2
    return x + 1


def changes_a_list(d, x):
    d["rows"].append(x)
    return x + 1


def takes_out(d, x):
    return x + d.pop("one")


def changes_an_attribute(d, x):
    d["state"].h = x * 2
    return x + 1


@pytest.mark.parametrize("f", (changes_a_dict, changes_a_list, takes_out, changes_an_attribute))
def test_an_argument_that_is_changed_is_told(f):
    """Runs of a program change none, and a warning says so, once. By default a trace then runs in parts, and changes it."""
    d = {"one": Tensor(1.0), "rows": [], "state": Open(Tensor(2.0))}
    before = content(d["state"])
    for run in (trace(f, symbolic=True), script(f)):
        with pytest.warns(TraceWarning, match="changes what its argument d holds.*help: return what is new") as told:
            for _ in range(2):
                run(d, ROWS)
        assert len(told) == 1
        assert list(d) == ["one", "rows", "state"] and d["rows"] == [] and content(d["state"]) == before

    def changed(f):
        d = {"one": Tensor(1.0), "rows": [], "state": Open(Tensor(2.0))}
        for _ in range(3):
            f(d, ROWS)
            d.setdefault("one", Tensor(1.0))
        return sorted(d), [r is ROWS for r in d["rows"]], content(d["state"])

    assert changed(trace(f)) == changed(f)


@dataclasses.dataclass
class Counted:
    value: Tensor | None
    n: int = 0


def test_what_a_function_that_asks_changes_in_its_arguments_is_changed_at_the_caller_by_every_call():
    """The first call runs with copies of them, later ones with the caller's."""

    def changes(d, rows, counted, x, *, settings, shared, seen):
        d["twice"], d["x"], d["new"] = x * 2, x, [x, d["a"]]
        rows[0].append(x)
        rows.insert(0, d)
        counted.value, counted.n = counted.value + 1, counted.n + 1
        del settings["z"]
        shared.value, shared.n = x, shared.n + 1
        seen["n"] += seen.pop("gone")
        return x + 1 if x.sum() > 0 else x - 1

    def changed(f):
        a, x = Tensor([1.0]), Tensor([1.0, 2.0])
        d, rows, counted, settings = {"a": a}, [[1]], Counted(Tensor([1.0])), {"z": 1, "y": np.ones(2)}
        shared, seen = Counted(None), collections.Counter(gone=3)  # the caller's own objects in every call: nothing in them is a tensor
        f(d, rows, counted, x, settings=settings, shared=shared, seen=seen)
        assert d["x"] is x and d["new"][0] is x and d["new"][1] is a and rows[0] is d and rows[1][1] is x
        return list(d), d["twice"].tolist(), rows[1][:1], counted.value.tolist(), counted.n, list(settings), shared.n, seen

    wanted, traced = changed(changes), trace(changes)
    assert [changed(traced) for _ in range(3)] == [wanted] * 3
