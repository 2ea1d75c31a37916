"""Building, checking and rewriting graphs."""

import numpy as np
import pytest

from tengen.base.dtype import float32, int64
from tengen.base.errors import ShapeError, SizeError, VerifyError
from tengen.ir.graph import Graph, Node, State, Value, attr_key
from tengen.ir.rewrite import inline, live_nodes, rebuild, sort_nodes
from tengen.ir.text import print_graph
from tengen.ir.types import TensorType
from tengen.ir.verify import verify
from tengen.loops.lang import ramp, var

T = TensorType((2, 3), float32)


def chain() -> Graph:
    """x -> a -> b, and c that nobody reads."""
    g = Graph("chain")
    x = g.add_input("x", T)
    s = g.add_state("s", T)
    a = g.add_node("f", [x, s], {"k": [1, np.float32(2.0), [np.int64(3)]]}, [T], "here.py:1", ["a"]).outputs[0]
    b = g.add_node("g", [a, a], {}, [T, T], names=["b"]).outputs
    g.add_node("h", [x], {}, [T], names=["c"])
    g.add_output("y", b[0])
    g.set_state("s", b[1])
    return g


def test_users_values_and_results():
    g = chain()
    x, s = g.sources()
    f, second, h = g.nodes
    users = g.users()
    assert users[x] == [f, h] and users[s] == [f] and users[f.outputs[0]] == [second] and users[second.outputs[0]] == []
    assert [v.name for v in g.values()] == ["x", "s", "a", "b", "", "c"]
    assert g.results() == [second.outputs[0], second.outputs[1]]
    assert f.attrs["k"] == (1, 2.0, (3,)) and type(f.attrs["k"][1]) is float
    verify(g)


def test_replace_value_reaches_outputs_and_states():
    g = chain()
    x = g.inputs[0]
    g.replace_value(g.nodes[1].outputs[1], x)
    g.replace_value(g.nodes[1].outputs[0], x)
    g.replace_value(g.nodes[0].outputs[0], x)
    assert g.outputs == [x] and g.states["s"].written is x and g.nodes[1].inputs == [x, x]
    verify(g)


def test_a_copy_shares_nothing_that_may_change():
    g = chain()
    inner = Graph("inner")
    g.nodes[0].attrs["body"] = (inner,)
    mapping = {}
    c = g.copy(mapping)
    assert print_graph(c) == print_graph(g) and set(mapping) == set(g.values())
    assert not set(c.values()) & set(g.values()) and c.nodes[0].attrs["body"][0] is not inner
    assert [x.name for x in g.graphs()] == ["chain", "inner"]
    c.nodes.pop()
    assert len(g.nodes) == 3


def test_names_are_given_once():
    g = chain()
    for add in (lambda: g.add_input("s", T), lambda: g.add_state("x", T), lambda: g.add_constant("x", np.zeros(2, "f"))):
        with pytest.raises(VerifyError, match="given twice"):
            add()
    with pytest.raises(VerifyError, match="named twice"):
        g.add_output("y", g.inputs[0])
    with pytest.raises(VerifyError, match="neither data nor type"):
        g.add_constant("c", None)
    with pytest.raises(VerifyError, match="f: attribute k is .*no plain data"):
        g.add_node("f", [], {"k": object()}, [])


def test_types_of_absurd_extents():
    for shape, why in (((-1,), "negative"), ((1 << 31, 1 << 31), "bytes are more"), ((0, 1 << 40, 1 << 40), "bytes are more")):
        with pytest.raises(SizeError, match=why) as e:
            TensorType(shape, "f32")
        assert isinstance(e.value, (MemoryError, ValueError))
    assert TensorType((0, 1 << 57), "f32").shape == (0, 1 << 57)


def broken(change) -> Graph:
    g = chain()
    change(g)
    return g


def circle(g):
    g.nodes[0].inputs[0] = g.nodes[1].outputs[0]


def inside_itself(g):
    g.nodes[0].attrs["body"] = g


BAD = {
    "order": (lambda g: g.nodes.reverse(), "reads <a: .*, which is not made before it"),
    "circle": (circle, "node 0, f.* at here.py:1: it reads <b"),
    "another graph's value": (lambda g: g.nodes[0].inputs.append(Value(T)), "not made before it"),
    "made twice": (lambda g: g.nodes.append(g.nodes[0]), "its output 0 is made twice"),
    "lost producer": (lambda g: setattr(g.nodes[0].outputs[0], "node", None), "does not know where it comes from"),
    "wrong index": (lambda g: g.nodes[1].outputs.reverse(), "does not know where it comes from"),
    "input with a producer": (lambda g: g.inputs.append(g.nodes[0].outputs[0]), "is made by a node"),
    "input twice": (lambda g: g.inputs.append(g.inputs[0]), "the name 'x' is given twice"),
    "state under another name": (lambda g: g.states.update(t=g.states["s"]), "the state 's' stands under the name 't'"),
    "state type": (lambda g: setattr(g.states["s"], "written", g.add_input("z", TensorType((1,), "f32"))), "its new value f32"),
    "state from nowhere": (lambda g: setattr(g.states["s"], "written", Value(T)), "is not made in the graph"),
    "output from nowhere": (lambda g: g.outputs.append(Value(T)) or g.output_names.append("z"), "'z' is not made in the graph"),
    "outputs without names": (lambda g: g.outputs.append(g.inputs[0]), "2 outputs with the names"),
    "no type": (lambda g: setattr(g.inputs[0], "type", None), "None is not a tensor type"),
    "lane in an extent": (lambda g: g.add_input("z", TensorType((_lane(),), "f32")), "uses lane"),
    "vector attribute": (lambda g: g.nodes[0].attrs.update(k=ramp()), "is not an int64"),
    "float attribute expression": (lambda g: g.nodes[0].attrs.update(k=var("n", float32)), "is not an int64"),
    "list attribute": (lambda g: g.nodes[0].attrs.update(k=[1]), "no plain data"),
    "array attribute": (lambda g: g.nodes[0].attrs.update(k=(np.zeros(2),)), "no plain data"),
    "attribute name": (lambda g: g.nodes[0].attrs.update({"a-b": 1}), "is not a name for an attribute"),
    "huge attribute": (lambda g: g.nodes[0].attrs.update(k=1 << 64), "does not fit 64 bits"),
    "long attribute": (lambda g: g.nodes[0].attrs.update(k="x" * 2001), "has 2001 characters"),
    "many operands": (lambda g: g.nodes[0].inputs.extend([g.inputs[0]] * (1 << 14)), "operands, 16384 are allowed"),
    "no node": (lambda g: g.nodes.append("f"), "this is not a node"),
    "no op": (lambda g: g.nodes.append(Node("", [], {}, [])), "is not a name for an op"),
    "bad name": (lambda g: g.inputs.append(Value(T, "a\nb")), "is not a name"),
    "constant's data": (lambda g: setattr(_const(g), "data", np.zeros(3, "f")), "data that is not f32"),
    "constant's dtype": (lambda g: setattr(_const(g), "data", np.zeros((2, 3))), "data that is not f32"),
    "itself inside": (inside_itself, "is inside itself"),
    "state inside": (lambda g: g.nodes[0].attrs.update(b=_with_state()), "graph inner: a graph inside another has states"),
    "constants of one name": (lambda g: (_const(g), g.nodes[0].attrs.update(b=_with_constant())), "'c' is named twice"),
}  # fmt: skip


def _lane():
    from tengen.loops.lang import lane

    return lane(ramp(), 1)


def _const(g):
    g.add_constant("c", np.zeros((2, 3), "f"))
    return g.constants["c"]


def _with_state():
    g = Graph("inner")
    g.states["t"] = State("t", Value(T, "t"))
    return g


def _with_constant():
    g = Graph("inner")
    _const(g)
    return g


@pytest.mark.parametrize("name", BAD)
def test_the_verifier_refuses(name):
    change, message = BAD[name]
    with pytest.raises(VerifyError, match=message):
        verify(broken(change))


def test_check_order():
    chain().check_order()
    with pytest.raises(VerifyError, match="not made before it"):
        broken(lambda g: g.nodes.reverse()).check_order()
    with pytest.raises(VerifyError, match="not made in the graph"):
        broken(lambda g: g.outputs.append(Value(T))).check_order()


def test_types_are_derived_again():
    def infer(op, types, attrs):
        if op == "h":
            raise ShapeError("no such shape")
        return [types[0]] * (2 if op == "g" else 1)

    g = chain()
    with pytest.raises(VerifyError, match="node 2, h.*: its types cannot be derived: no such shape"):
        verify(g, infer)
    g.nodes.pop()
    verify(g, infer)
    g.nodes[0].outputs[0].type = TensorType((2, 3), int64)
    with pytest.raises(VerifyError, match="node 0, f.*the op's rule says"):
        verify(g, infer)


def test_rebuild_and_liveness():
    g = chain()
    assert {n.op for n in live_nodes(g)} == {"f", "g"}
    live = live_nodes(g)
    pruned = rebuild(g, lambda new, n, ins: None if n in live else [ins[0]] * len(n.outputs))
    verify(pruned)
    assert [n.op for n in pruned.nodes] == ["f", "g"] and len(g.nodes) == 3

    def double(new, n, ins):
        return new.add_node("ff", ins, {}, [T]).outputs if n.op == "f" else None

    assert [n.op for n in rebuild(g, double).nodes] == ["ff", "g", "h"]
    with pytest.raises(VerifyError, match="f was replaced by values of types"):
        rebuild(g, lambda new, n, ins: [])


def test_inline_renames_constants():
    inner = Graph("inner")
    x = inner.add_input("x", T)
    c = inner.add_constant("c", np.ones((2, 3), "f"))
    inner.add_output("y", inner.add_node("mul", [x, c], {}, [T]).outputs[0])
    g = chain()
    g.add_constant("c", np.zeros((2, 3), "f"))
    (y,) = inline(g, inner, [g.inputs[0]], before=g.nodes[0])
    assert g.nodes[0].op == "mul" and y is g.nodes[0].outputs[0] and set(g.constants) == {"c", "c.1"}
    verify(g)
    with pytest.raises(VerifyError, match="graph inner does not take"):
        inline(g, inner, [])


def test_sort_nodes():
    g = chain()
    want = [n.op for n in g.nodes]
    g.nodes[0], g.nodes[1] = g.nodes[1], g.nodes[0]
    sort_nodes(g)
    verify(g)
    assert sorted(n.op for n in g.nodes) == sorted(want)
    circle(g)
    with pytest.raises(VerifyError, match="form a circle"):
        sort_nodes(g)


def test_keys_of_attributes_are_exact():
    different = [1, 1.0, True, 0, 0.0, -0.0, False, None, "1", float32, (), (1,), (1.0,), ((1,),), var("N"), float("nan")]
    assert len({attr_key(a) for a in different}) == len(different)
    assert attr_key((float("nan"), 0.0)) == attr_key((float("nan"), 0.0)) and attr_key(var("N")) == attr_key(var("N"))


def test_types_are_interned():
    n = var("N")
    assert TensorType((n, 3), "f32") is TensorType([n, np.int64(3)], float32)
    assert TensorType((2,), "f32") is not TensorType((2,), "f64") and TensorType((), "f32").ndim == 0
    with pytest.raises(VerifyError, match="is not an int64"):
        TensorType((var("x", float32),), "f32")
