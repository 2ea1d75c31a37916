"""What a process keeps for calls of other shapes and numbers has a bound: a program that meets new ones for ever does not grow."""

import gc

import numpy as np
import pytest

from tengen import Tensor, trace
from tengen import functional as F
from tengen.base.dtype import float32
from tengen.base.tables import intern, keep
from tengen.compiler import plans
from tengen.compiler.plans import Layout
from tengen.ir.types import TensorType
from tengen.tensor import eager, executable

KEEPS_PROGRAMS = True  # how much is kept decides no program


@pytest.fixture
def small(monkeypatch):
    """Bounds that a test can reach."""
    eager.forget_plans()
    for module in (eager, executable):
        monkeypatch.setattr(module, "MOST_PLANS", 60)
    yield 60
    eager.forget_plans()


def test_eager_calls_of_many_shapes(small):
    r = np.random.default_rng(0)
    seen, objects = set(), []
    for i in range(240):
        n, m = map(int, r.integers(1, 60, 2))
        a = r.standard_normal((n, m)).astype("f4")
        x = Tensor(a)
        got = ((x + x) * x - x)[n // 2].numpy()
        assert got.tobytes() == ((a + a) * a - a)[n // 2].tobytes()
        x[n // 2] = 3.0
        assert x[n // 2, m // 2].item() == 3.0
        seen.add((n, m))
        if i in (119, 239):
            gc.collect()
            objects.append(len(gc.get_objects()))
    of_operators = [eager._add, eager._sub, eager._mul, eager._div]
    assert len(seen) > 200 and all(len(t) <= small + 1 for t in (eager._plans, eager._slow_plans, *of_operators))
    assert all(next(iter(t)) == "op" for t in of_operators)
    assert objects[1] < objects[0] + 2000  # a plan and what it holds are more than 30 objects


def test_indices_and_attributes(small):
    x = Tensor(np.arange(500.0, dtype="f4"))
    for i in range(200):
        assert x[i].item() == i
    assert len(eager._plans) <= small


def test_programs(small, monkeypatch):
    monkeypatch.setattr(plans, "MOST_PROGRAMS", 3)
    x = Tensor([0.5, 2.0])
    for op in (F.exp, F.log, F.sqrt, F.sin, F.cos, F.tanh, F.exp, F.abs):
        first, again = op(x).numpy(), op(Tensor([0.5, 2.0, 1.0])).numpy()
        assert first.tobytes() == again[:2].tobytes()
        assert len(plans._programs) <= 3


def test_runs_of_a_trace(small):
    f = trace(lambda x: F.relu(x) @ x.T, dynamic_axes={"x": {0: "n", 1: "m"}})
    for n in range(2, 12):
        for m in range(2, 12):
            x = np.full((n, m), 2.0, "f4")
            assert (f(Tensor(x)).numpy() == 4 * m).all()
    (program,) = [e for e in gc.get_objects() if isinstance(e, executable.Executable) and e.name == f.name]
    assert len(program._plans) <= small


def test_layouts_and_types_are_kept_as_long_as_somebody_holds_them():
    shape = (3, 1009)
    made = Layout(shape, float32)
    assert made is Layout(shape, float32) and made.type is TensorType(shape, float32)
    assert any(key[0] == shape for key in Layout._table)
    del made
    gc.collect()
    assert not any(key[0] == shape for table in (Layout._table, TensorType._table) for key in table)


def test_an_entry_whose_place_is_taken_is_not_the_new_one():
    class Thing:
        pass

    table, first, second = {}, Thing(), Thing()
    intern(table, "a", first)
    intern(table, "a", second)
    del first
    gc.collect()
    assert table["a"]() is second
    del second
    gc.collect()
    assert not table


def test_keep():
    table = {"fixed": 0}
    for i in range(100):
        keep(table, i, i, most=10, fixed=1)
        assert len(table) <= 10 and next(iter(table)) == "fixed" and list(table)[-1] == i
