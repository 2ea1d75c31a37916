"""Passes take time in proportion to the graph, and no chain of nodes is too long for them. Work is counted, not timed."""

import pytest

from tengen.base.dtype import float32
from tengen.ir.graph import Graph
from tengen.ir.types import TensorType
from tengen.kernels import source
from tengen.passes import fuse as fusing
from tengen.passes.inplace import destinations
from tengen.passes.pipeline import optimize

ROW, COLUMN, SQUARE = (TensorType(s, float32) for s in ((4,), (4, 1), (4, 4)))


def backward_chain(n):
    """Products x * p, whose gradients read each p and each x again: every value has several readers."""
    g = Graph("chain")
    x = g.add_input("x", ROW)
    ps = [g.add_state(f"p{i}", ROW) for i in range(n)]
    xs = [x]
    for p in ps:
        xs.append(g.add_node("mul", [xs[-1], p], {}, [ROW]).outputs[0])
    grad = xs[-1]
    for i in reversed(range(n)):
        step = g.add_node("mul", [grad, xs[i]], {}, [ROW]).outputs[0]
        g.set_state(f"p{i}", g.add_node("sub", [ps[i], step], {}, [ROW]).outputs[0])
        grad = g.add_node("mul", [grad, ps[i]], {}, [ROW]).outputs[0]
    g.add_output("y", xs[-1])
    return g


def test_a_long_chain_is_fused_without_looking_at_values_again(monkeypatch):
    asked = []
    monkeypatch.setattr(fusing, "costs", lambda s: asked.append(s) or source.costs(s))
    counts = []
    for n in (50, 100, 1500):  # the last is longer than Python's stack is deep
        asked.clear()
        fused = fusing.fuse(backward_chain(n))
        counts.append(len(asked))
        assert len(fused.states) == n
    assert counts[0] == counts[1] == counts[2] <= 2  # once for each op, not for each node


def test_values_of_a_row_are_looked_at_once():
    """Forty doublings of a column: 2^40 ways lead from the last to the first."""
    g = Graph("column")
    x, c = g.add_input("x", SQUARE), g.add_input("c", COLUMN)
    for _ in range(40):
        c = g.add_node("add", [c, c], {}, [COLUMN]).outputs[0]
    g.add_output("y", g.add_node("mul", [x, c], {}, [SQUARE]).outputs[0])
    assert [n.op for n in optimize(g).nodes] == ["fused", "mul"]


@pytest.mark.parametrize("n", [1, 300])
def test_reductions_are_joined_with_those_that_read_the_same(n):
    """Two sums of each of n values: each pair becomes one kernel, and no other."""
    g = Graph("sums")
    for i in range(n):
        x = g.add_input(f"x{i}", SQUARE)
        for j in range(2):
            s = g.add_node("sum", [x], {"axes": (1,), "keepdims": False}, [ROW]).outputs[0]
            g.add_output(f"y{i}_{j}", g.add_node("mul", [s, s], {}, [ROW]).outputs[0] if j else s)
    fused = fusing.fuse(g)
    assert sum(n.op == "fused" and len(n.outputs) == 2 for n in fused.nodes) == n


def test_states_are_written_in_place_unless_a_view_escapes():
    g = Graph("states")
    kept = g.add_state("kept", SQUARE)
    free = g.add_state("free", SQUARE)
    for name, s in (("kept", kept), ("free", free)):
        g.set_state(name, g.add_node("neg", [s], {}, [SQUARE]).outputs[0])
    g.add_output("y", g.add_node("reshape", [kept], {"shape": (16,)}, [TensorType((16,), float32)]).outputs[0])
    where = destinations(g)
    assert where.get(g.states["free"].written) == ("state", "free") and where.get(g.states["kept"].written) is None
