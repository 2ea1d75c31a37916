"""Hypothesis strategies for graphs, well formed by construction. Their ops mean nothing."""

import numpy as np
from hypothesis import strategies as st

from tengen.base.dtype import ALL, bool_, float32, int64
from tengen.ir.graph import Graph
from tengen.ir.types import TensorType
from tengen.loops.lang import cdiv, var

SYMBOLS = [var("N"), var("batch size"), var("N") * 2 + 1, cdiv(var("N"), 16), var("f32")]
NAMES = ["x", "w", "v0", "", "fc.weight", "0.bias", "é ü", "none", "return", "const", "f32", "x.1", "a`b", "graph", "nan"]
TEXT = st.text(max_size=8)

types = st.builds(
    TensorType, st.lists(st.integers(0, 5) | st.sampled_from(SYMBOLS), max_size=3).map(tuple), st.sampled_from(ALL)
)
known_shapes = st.lists(st.integers(0, 3), max_size=3).map(tuple)
known_types = st.builds(TensorType, known_shapes, st.sampled_from([float32, int64, bool_]))
leaves = (
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.floats() | TEXT | st.sampled_from(ALL)
    | st.sampled_from(SYMBOLS)
)  # fmt: skip


@st.composite
def graphs(draw, depth: int = 0, names=None):
    """A graph with inputs, constants, states, nodes (with graphs inside them), outputs."""
    names = names if names is not None else iter(range(10**6))
    g = Graph(draw(st.sampled_from(["step", "a graph", "graph", "none"])))

    def name():
        return (draw(st.sampled_from(NAMES)) or "n").replace("`", "") + f"{next(names)}"

    for _ in range(draw(st.integers(0, 3))):
        g.add_input(name(), draw(types))
    for _ in range(draw(st.integers(0, 2))):
        t = draw(known_types)
        g.add_constant(name(), np.zeros(t.shape, t.dtype.numpy) if draw(st.booleans()) else None, t)
    for _ in range(0 if depth else draw(st.integers(0, 2))):
        g.add_state(name(), draw(types))
    values = g.sources()
    attributes = st.recursive(
        leaves | graphs(depth + 1, names) if depth < 2 else leaves, lambda a: st.lists(a, max_size=3).map(tuple), max_leaves=4
    )
    for _ in range(draw(st.integers(0, 4))):
        inputs = draw(st.lists(st.none() | st.sampled_from(values) if values else st.none(), max_size=3))
        attrs = draw(st.dictionaries(st.sampled_from(["axis", "eps", "body", "none", "f32"]), attributes, max_size=3))
        made = draw(st.lists(types, max_size=3))
        hints = [draw(st.sampled_from(NAMES)) for _ in made]
        node = g.add_node(draw(st.sampled_from(["add", "mul.d0", "return", "a b"])), inputs, attrs, made,
                          draw(st.none() | TEXT), hints)  # fmt: skip
        values = [*values, *node.outputs]
    for s in g.states.values():
        s.written = draw(st.none() | st.sampled_from([v for v in values if v.type is s.read.type]))
    if values:
        for i in range(draw(st.integers(0, 3))):
            g.add_output(f"{draw(st.sampled_from(['y', 'loss', '0', 'true']))}{i}", draw(st.sampled_from(values)))
    return g
