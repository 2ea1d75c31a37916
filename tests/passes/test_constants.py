"""Constant folding: what is folded, what is left alone, and that no bit changes."""

import numpy as np
import pytest

import tengen
from tengen import Tensor
from tengen import functional as F
from tengen.compiler.driver import evaluate
from tengen.passes.constants import fold_constants
from tengen.passes.pipeline import optimize


@pytest.fixture
def scale():
    return Tensor(np.linspace(0.5, 2, 17, dtype=np.float32))


def traced(function, x):
    t = tengen.trace(function, capture_as_const=True)
    return t.trace(x), t


def ops(graph):
    return [n.op for n in graph.nodes]


def test_folds_what_is_known(scale):
    x = Tensor(np.linspace(-1, 1, 17, dtype=np.float32))
    f, t = traced(lambda a: a * F.exp(scale) + 1, x)
    folded = fold_constants(t.graph, evaluate)
    assert ops(folded) == ["mul", "add"] and "exp" in ops(t.graph)
    data = next(c.data for c in folded.constants.values() if c.name.startswith("folded"))
    assert data.tobytes() == F.exp(scale).numpy().tobytes()
    assert f(x).numpy().tobytes() == (x * F.exp(scale) + 1).numpy().tobytes()


def test_a_whole_program_of_constants(scale):
    t = tengen.trace(lambda: (F.exp(scale), F.exp(scale) * 2), capture_as_const=True)
    a, b = t()
    assert a.numpy().tobytes() == F.exp(scale).numpy().tobytes()
    assert b.numpy().tobytes() == (F.exp(scale) * 2).numpy().tobytes()


def test_broadcasts_and_views_are_left_alone(scale):
    x = Tensor(np.ones((200, 17), np.float32))
    _, t = traced(lambda a: a + F.broadcast_to(scale, (200, 17)), x)
    assert ops(fold_constants(t.graph, evaluate)) == ["broadcast_to", "add"]
    _, t = traced(lambda a: a + F.reshape(scale, (1, 17)), x)
    assert ops(fold_constants(t.graph, evaluate)) == ["reshape", "add"]


def test_tables_of_functions_are_folded_and_sums_alone_are_not(scale):
    """A table of sines of all rows by all columns is computed once; what only adds or moves is computed where it is read."""
    x, column = Tensor(np.ones((200, 17), np.float32)), Tensor(np.linspace(0, 3, 200, dtype=np.float32).reshape(200, 1))
    cases = {
        lambda a: a * (F.sin(column * scale) * 2): ["mul"],
        lambda a: a * -(column * scale): ["mul", "neg", "mul"],
        lambda a: a * (F.sin(column) * scale): ["mul", "mul"],
    }
    for function, left in cases.items():
        f, t = traced(function, x)
        assert ops(fold_constants(t.graph, evaluate)) == left
        assert f(x).numpy().tobytes() == function(x).numpy().tobytes()


def test_without_an_evaluator_nothing_is_folded(scale):
    _, t = traced(lambda a: a * F.exp(scale), Tensor(np.ones(17, np.float32)))
    assert any("exp" in ops(n.attrs.get("body", t.graph)) for n in optimize(t.graph).nodes)
