"""`tengen.Graph`: edits verify, run as they should, or change nothing. What a graph means is here evaluated node by node from its text."""

import copy
import pickle
import random
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from each import each

import tengen
import tengen.functional as F
import tengen.module as M
from tengen import Graph, Tensor
from tengen.base.errors import ArgumentError, TengenError, VerifyError
from tengen.ir.drawing import _placed
from tengen.ir.text import constant_data, parse_graph
from tengen.ops.calls import dispatch
from tengen.ops.define import REGISTRY


def data(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def meaning(g, *arrays):
    """The outputs of a graph, of its text alone: every node is an eager call."""
    parsed = parse_graph(str(g), constant_data(g))
    known = dict(zip(parsed.inputs, map(Tensor, arrays)))
    known |= {c.value: Tensor(np.array(c.data)) for c in parsed.constants.values()}
    known |= {s.read: Tensor(g.initial[s.name]) for s in parsed.states.values()}
    for n in parsed.nodes:
        made = dispatch.run(REGISTRY[n.op], tuple(None if v is None else known[v] for v in n.inputs), tuple(n.attrs.values()))
        known |= zip(n.outputs, made if isinstance(made, tuple) else (made,))
    return [known[v].numpy() for v in parsed.outputs]


def run(g, *arrays):
    made = g(*arrays)
    return [t.numpy() for t in (made if isinstance(made, tuple) else (made,))]


def same(g, *arrays):
    for a, b in zip(run(g, *arrays), meaning(g, *arrays), strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def small():
    return Graph.of(lambda x: F.relu(F.exp(x) * 2 + 1), data(2, 3), names=["x"], outputs=["y"], name="small")


X = data(2, 3)
BAD = {
    "a result of another type": (lambda g: g.replace(g.node("exp"), lambda x: F.complex(x, x)), r"node \d, \w+\(c64\[2,3\].*complex"),
    "an op that is not there": (lambda g: g.insert("no_such_op", []), "no op is named 'no_such_op'"),
    "an op of other ops": (lambda g: g.insert("softmax", [g.inputs[0]]), r"help: graph.apply\(functional.softmax, value\)"),
    "an attribute that is missing": (lambda g: g.insert("reshape", [g.inputs[0]]), "reshape needs the attribute 'shape'"),
    "an attribute of another kind": (lambda g: g.insert("reshape", [g.inputs[0]], shape="a"), "shape"),
    "types that do not fit": (lambda g: g.insert("matmul", [g.inputs[0], g.inputs[0]]), r"matmul\(f32\[2,3\], f32\[2,3\]"),
    "an attribute that is not there": (lambda g: g.set(g.node("exp"), axis=1), "exp has no attribute 'axis'"),
    "a circle": (lambda g: g.set(g.node("exp"), inputs=[g.outputs[0]]), "nodes form a circle"),
    "a value of another graph": (lambda g: g.set(g.node("exp"), inputs=[small().inputs[0]]), "of another graph"),
    "a node of another graph": (lambda g: g.delete(small().node("exp")), "is not in it"),
    "a node that is read": (lambda g: g.delete(g.node("exp")), r"read by mul.* help: delete\(node, use=value\)"),
    "a dtype that does not fit": (lambda g: g.set_input("x", dtype="complex64"), r"node 0, exp\(c64\[2,3\]\) at .*test_graph_edits.py:\d+: "),
    "a name that is taken": (lambda g: g.rename("x", next(iter(g.constants))), "given twice"),
    "a name that is none": (lambda g: g.rename("x", "a`b"), "is not a name"),
    "two of one": (lambda g: g.node("*"), "4 nodes with op="), "none": (lambda g: g.node("conv"), "its ops are add, exp, mul, relu"),
    "no value": (lambda g: g.value("z"), "no value is named 'z'"), "no output": (lambda g: g.remove_output("z"), "no output is named"),
    "a part that needs more": (lambda g: g.extract([], ["y"]), "needs the input 'x'"),
    "an input of another graph": (lambda g: g.join(small(), {"z": "y"}), "has no input 'z'"),
    "an output twice": (lambda g: g.join(small(), {}), "given twice|named twice|2 outputs"),
    "too many values": (lambda g: g.replace(g.node("exp"), [g.inputs[0]] * 2), "2 values for 1 results"),
    "an op that is no name": (lambda g: g.insert(3, []), "no op is named 3"),
    "a tensor for a value": (lambda g: g.insert("exp", [Tensor(X)]), r"label, is needed, got a Tensor; help: graph.add_constant"),
    "nothing for a value": (lambda g: g.replace(g.node("exp"), None), "label, is needed, got a NoneType"),
    "a node for a value": (lambda g: g.apply(F.exp, g.node("exp")), "help: node.outputs are its values"),
    "a value for a node": (lambda g: g.delete(g.outputs[0]), "delete.. takes a node"),
    "an op for a function": (lambda g: g.apply("exp", "x"), r"help: insert\(\) takes the name of an op"),
    "a number for a shape": (lambda g: g.set_input("x", 3), "a shape is a tuple"),
    "half an extent": (lambda g: g.set_batch(2.5), "an extent is an int, or the name of one that is open, got 2.5"),
    "a shape for a type": (lambda g: g.add_input("z", (2, 3)), r"a TensorType\(shape, dtype\), got \(2, 3\)"),
    "no state": (lambda g: g.set_state("s", g.inputs[0]), "no state is named 's'; it has none"),
    "a part of nothing": (lambda g: g.extract(["x"], []), "an output at least"),
    "a part of another graph": (lambda g: g.extract(["x"], small().outputs), "is not in it"),
    "no graph": (lambda g: g.join(3), "takes a graph, got 3"),
    "data of another shape": (lambda g: g.set_constant(next(iter(g.constants)), data(5)), "5"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_an_edit_that_fails_changes_nothing(name):
    edit, words = BAD[name]
    g = small()
    text, nodes, values = str(g), list(g.nodes), list(g.values())
    with pytest.raises(VerifyError, match=words):
        edit(g)
    assert str(g) == text and g.nodes == nodes and list(g.values()) == values
    same(g, X)


def test_edits_one_by_one():
    g = small()
    exp = g.node("exp")
    g.replace(exp, F.tanh)
    assert not g.find("exp") and np.allclose(run(g, X)[0], np.maximum(np.tanh(X) * 2 + 1, 0), atol=1e-6)
    n = g.insert("sum", [g.node("tanh").outputs[0]], after=g.node("tanh"), axis=1, names=["total"])
    assert [m.op for m in g.nodes] == ["tanh", "sum", "mul", "add", "relu"] and str(n.outputs[0].type) == "f32[2]" and g.value("total")
    g.add_output("total", n.outputs[0])
    assert np.allclose(run(g, X)[1], np.tanh(X).sum(1), atol=1e-6)
    g.rename("x", "pixels")
    g.rename("y", "scores")
    assert g(pixels=X)[0].shape == (2, 3) and g.output_names == ["scores", "total"]
    g.remove_output("total")
    assert [m.op for m in g.nodes] == ["tanh", "mul", "add", "relu"]
    g.delete(g.node("add"), use=g.node("mul").outputs[0])
    g.set(g.node("relu"), op="exp")
    assert np.allclose(run(g, X)[0], np.exp(np.tanh(X) * 2), atol=1e-5) and len(g.constants) == 1
    g.set_constant(next(iter(g.constants)), np.float32(3.0))
    assert np.allclose(run(g, X)[0], np.exp(np.tanh(X) * 3), atol=1e-4)
    g.set_input("pixels", shape=("N", 3))
    assert run(g, data(7, 3))[0].shape == (7, 3)
    with pytest.raises(VerifyError), g.edits():
        g.insert("exp", [g.inputs[0]])
        g.insert("exp", [])
    assert not g.find("exp", test=lambda m: m.inputs == [g.inputs[0]])
    g.insert("exp", [g.inputs[0]])
    assert g.prune() == 1


def test_labels_stand_for_values_and_a_graph_joins_itself():
    g = small()
    g.insert("exp", ["x"], names=["again"])
    g.add_output("z", g.apply(lambda a, b: a - b, "again", g.node("exp", name="v*").outputs[0]))
    g.replace("again", "x")
    assert np.array_equal(run(g, X)[1], X - np.exp(X).astype("f4")) or np.allclose(run(g, X)[1], X - np.exp(X), atol=1e-6)
    g = small()
    g.join(g)  # its only output is its only input
    assert np.allclose(run(g, X)[0], np.maximum(np.exp(np.exp(X) * 2 + 1) * 2 + 1, 0), rtol=1e-5) and len(g.nodes) == 8


def test_a_loop_gets_another_shape_together_with_its_body():
    g = Graph.of(lambda x: F.fori_loop(0, 5, lambda i, v: v * 2 + 1, x), data(3), names=["x"])
    (body,), text = g.regions(), str(g)
    for edit in (lambda: g.set_input("x", (4,)), lambda: body.set_input(body.inputs[0], (4,))):
        with pytest.raises(VerifyError, match="the body of scan"):
            edit()
        assert str(g) == text
    with g.edits():
        g.set_input("x", (4,))
        body.set_input(body.inputs[0], (4,))
    assert run(g, np.ones(4, "float32"))[0].tolist() == [63.0] * 4


def test_patterns_and_tests_of_find_are_checked():
    g = Graph.of(lambda x: F.exp(x) * 2, X)
    assert g.find(test=lambda n: n.op == "exp") == g.find("exp") == [g.node(test=lambda n: n.op == "exp")]
    for call in (g.find, g.node):
        with pytest.raises(ArgumentError, match=r"op is a pattern of text, got function; help: find\(test=...\) takes a function of a node"):
            call(lambda n: n.op == "exp")
        with pytest.raises(ArgumentError, match="name is a pattern of text, got int$"):
            call(name=3)
        with pytest.raises(ArgumentError, match="where is a pattern of text, got list$"):
            call(where=["a.py:1"])
        with pytest.raises(ArgumentError, match="test is a function of a node, got str$"):
            call(test="exp")


def test_several_edits_verify_together():
    g = Graph.of(lambda x, w: F.matmul(x, w) + 1, data(2, 3), data(3, 4), names=["x", "w"])
    with g.edits():
        g.set_input("x", (5, 6))
        g.set_input("w", (6, 2))
    assert str(g.outputs[0].type) == "f32[5,2]"
    same(g, data(5, 6), data(6, 2))


def test_a_part_and_joining_give_the_whole():
    g = small()
    first, second = g.extract(["x"], [g.node("mul").outputs[0]]), g.extract([g.node("mul").outputs[0]], ["y"])
    assert [n.op for n in first.nodes] == ["exp", "mul"] and [n.op for n in second.nodes] == ["add", "relu"]
    first.join(second)
    assert run(first, X)[0].tobytes() == run(g, X)[0].tobytes() and len(g.nodes) == 4
    twice = small()
    twice.rename("y", "mid")
    twice.join(g, {"x": "mid"})
    assert np.array_equal(run(twice, X)[0], run(g, run(g, X)[0])[0]) and len(twice.constants) == 4
    wide = Graph.of(lambda x: x.reshape(-1), data(9))
    with pytest.raises(VerifyError, match=r"its input 'arg0' is f32\[9\]"):
        twice.join(wide, {"arg0": "y"})


def test_networks_and_batches(tmp_path):
    net = M.Sequential(M.Conv2d(3, 4, 3, padding=1), M.BatchNorm2d(4), M.ReLU(), M.AdaptiveAvgPool2d(1), M.Flatten(), M.Linear(4, 2))
    net.eval()
    x = data(2, 3, 8, 8)
    g = Graph.of(net, x, names=["image"], outputs=["scores"])
    assert {"0.weight", "1.running_mean", "5.bias"} <= g.constants.keys() and run(g, x)[0].tobytes() == net(Tensor(x)).numpy().tobytes()
    for size in (5, "N", 3):
        g.set_batch(size)
        many = data(3, 3, 8, 8) if size == 3 else data(5, 3, 8, 8)
        assert run(g, many)[0].tobytes() == net(Tensor(many)).numpy().tobytes()
    g.save(tmp_path / "g.tgn")
    again = Graph.load(tmp_path / "g.tgn")
    assert str(again) == str(g) and run(again, many)[0].tobytes() == run(g, many)[0].tobytes()
    model = tengen.load_graph(tmp_path / "g.tgn")
    other = Graph.of(model)
    other.replace(other.node("relu"), F.tanh)
    assert model(many).numpy().tobytes() == run(g, many)[0].tobytes() != run(other, many)[0].tobytes()
    with pytest.raises(VerifyError, match="no batch in common"):
        Graph.of(lambda a, b: F.matmul(a, b), data(2, 3), data(3, 3)).set_batch(4)


def class_token(x, n):
    return F.concat([F.broadcast_to(Tensor(np.arange(3, dtype="float32").reshape(1, 1, 3)), (n, 1, 3)), x], axis=1).sum(1)


BATCHES = {  # functions of (n, 4, 3) and n, in which something but the input's type has the n
    "channels in groups": lambda x, n: F.concat([x[:, 2:], x[:, :2]], axis=1).reshape(n, 2, 2, 3)[:, ::-1],
    "slices that take all of it": lambda x, n: x[::-1, 1:3] * 2 + x[:, ::2],
    "every second example": lambda x, n: x[::2] + 1,
    "a loop with a state of zeros": lambda x, n: F.scan(
        lambda h, v: (F.tanh(h + v.reshape(n, 3)), h), F.zeros((n, 3)), x.transpose(1, 0, 2)
    )[1],
    "a loop over examples": lambda x, n: F.scan(lambda s, v: (s + v.sum(), v.mean(0)), Tensor(0.0), x)[1],
    "branches in a loop": lambda x, n: F.while_loop(
        lambda y: F.abs(y).max() > 0.5,
        lambda y: F.cond(y.sum() > 0, lambda a: a * 0.5, lambda a: F.concat([a[:, 1:], a[:, :1]], 1) / 4, y), x,
    ),
    "a token for each example": class_token,
    "zeros for each example": lambda x, n: x.sum(1) + F.zeros((n, 3)) + F.full((n, 1), 2.0),
    "the batch behind another axis": lambda x, n: x.transpose(1, 0, 2).reshape(4, n * 3).reshape(2, 2, n, 3) * 2,
    "the batch in the last axis": lambda x, n: x.sum(2).T.reshape(4, n) * 2,
    "a table of positions": lambda x, n: x + F.broadcast_to(F.arange(4).reshape(1, 4, 1), (n, 4, 3)),
}


@each("f", BATCHES.values(), {f: name for name, f in BATCHES.items()}.get)
def test_what_holds_the_batch_follows_it(f):
    wanted = Graph.of(lambda x: f(x, 2), data(2, 4, 3))
    for size in (6, "N"):
        g = wanted.copy()
        g.set_batch(size)
        x = data(6, 4, 3)
        assert run(g, x)[0].tobytes() == f(Tensor(x), 6).numpy().tobytes(), size
        assert all(r._parent is not None for r in g.regions())


def test_an_open_batch_becomes_a_number(tmp_path):
    """In what has no operand with it too: first states of zeros, which an LSTM takes, and the batch as a number."""
    steps, x = M.LSTM(3, 5, batch_first=True), data(2, 4, 3)
    f = tengen.trace(lambda x: (steps(x)[0][:, -1], x * x.shape[0] / 3), dynamic_axes={"x": {0: "n"}}, symbolic=True)
    f(Tensor(x))
    f.dump(tmp_path / "f.tgn")
    for size, n in ((2, 2), ("m", 3), (3, 3)):
        g = Graph.of(tengen.load_graph(tmp_path / "f.tgn"))
        g.set_batch(size)
        assert g.inputs[0].type.shape[0] == size or str(g.inputs[0].type.shape[0]) == size
        for got, want in zip(run(g, data(n, 4, 3)), f(Tensor(data(n, 4, 3)))):
            assert got.tobytes() == want.numpy().tobytes()
    g = Graph.of(tengen.load_graph(tmp_path / "f.tgn"))
    text = str(g)
    with pytest.raises(TengenError, match="negative extent"):
        g.set_batch(-1)
    assert str(g) == text


def test_a_part_of_an_axis_does_not_follow_another_extent():
    """It may be counted from either end, or be a share; all of an axis, or one element that is not the last, is not in doubt."""
    g = Graph.of(lambda x: x[:, 2:] * 2, data(2, 4, 3))
    with pytest.raises(VerifyError, match="takes 2 of 4 elements of axis 1, from 2, and that axis has 6 of them now: .* from either end"):
        g.set_input(g.inputs[0], (2, 6, 3))
    with g.edits():
        g.set_input(g.inputs[0], (2, 6, 3))
        g.set(g.node("strided_slice"), starts=(0, 4, 0), sizes=(2, 2, 3))
    x = data(2, 6, 3)
    assert run(g, x)[0].tobytes() == (x[:, 4:] * 2).tobytes()
    for f in (lambda x: x[:, :-1], lambda x: x[:, 1:3], lambda x: x[:, -1:], lambda x: F.split(x, 2, 1)[0], lambda x: x[:1] + x[1:]):
        g = Graph.of(lambda x, f=f: f(x) * 2, data(2, 4, 3))
        with pytest.raises(VerifyError, match="counted from either end"):
            g.set_input(g.inputs[0], (3, 6, 3))
    for f in (lambda x: x[:, ::-1] * 2, lambda x: x[:, :1] * 2, lambda x: x[:, 2:3] * 2):
        g = Graph.of(f, data(2, 4, 3))
        g.set_input(g.inputs[0], (2, 6, 3))
        assert run(g, x)[0].tobytes() == f(x).tobytes()


def test_a_pool_over_all_pixels_is_over_all_pixels_of_another_image():
    x = data(2, 3, 6, 5)
    for f in (lambda x: F.adaptive_avg_pool2d(x, 1), lambda x: F.adaptive_max_pool2d(x, 1), lambda x: F.avg_pool2d(x, 2)):
        g = Graph.of(lambda x, f=f: f(x), data(2, 3, 4, 4))
        g.set_input(g.inputs[0], x.shape)
        assert run(g, x)[0].tobytes() == f(Tensor(x)).numpy().tobytes()


def test_copies_and_pickles():
    total = Tensor(np.ones(3, np.float32))

    def count(x):
        total._reset(total + x)
        return total * 2

    g = Graph.of(count, np.ones(3, np.float32))
    for again in (copy.deepcopy(g), pickle.loads(pickle.dumps(g))):
        assert str(again) == str(g) and run(again, np.ones(3, np.float32))[0].tolist() == [4.0] * 3
        again.rename(again.inputs[0], "other")
    assert g.inputs[0].name != "other"


def test_states():
    total = Tensor(np.zeros(3, np.float32))

    def count(x):
        total._reset(total + x)
        return total * 2

    g = Graph.of(count, np.ones(3, np.float32))
    assert [run(g, np.ones(3, np.float32))[0][0] for _ in range(3)] == [2.0, 4.0, 6.0] and total.tolist() == [0.0] * 3
    name = next(iter(g.states))
    g.rename(name, "total")
    assert run(g, np.ones(3, np.float32))[0][0] == 2.0  # states begin anew behind an edit
    s = g.add_state("calls", total._layout.type)
    g.set_state("calls", g.apply(lambda t: t + 1, s))
    g.add_output("calls", s)
    assert [run(g, np.ones(3, np.float32))[1][0] for _ in range(2)] == [0.0, 1.0]
    text = str(g)
    with pytest.raises(VerifyError, match="the state 'calls' is f32"):
        g.set_state("calls", g.apply(F.sum, s))
    assert str(g).count("write") == text.count("write") == 2


def test_regions_are_edited_with_their_node():
    g = Graph.of(lambda x: F.fori_loop(0, 5, lambda i, v: v * 2 + 1, x), np.ones(2, np.float32))
    (body,) = g.regions()
    same(g, np.ones(2, np.float32))
    body.delete(body.node("mul"), use=body.inputs[0])
    assert run(g, np.ones(2, np.float32))[0].tolist() == [6.0, 6.0] and len(g.find("add")) == 1 and not g.find("add", regions=False)
    text = str(g)
    with pytest.raises(VerifyError, match=r"scan\("):
        body.replace(body.node("add"), lambda a, b: F.concat([a, a]))
    assert str(g) == text and run(g, np.ones(2, np.float32))[0].tolist() == [6.0, 6.0]
    body.replace(body.node("add"), lambda a, b: F.tanh(a) * b)  # through the outer graph, with a constant of its own
    g.replace(g.find("tanh")[0], F.sin)
    assert np.allclose(run(g, np.ones(2, np.float32))[0], np.sin(np.sin(np.sin(np.sin(np.sin(1.0))))), atol=1e-6)
    assert Graph.of(g).regions()[0] is not body


def test_drawings_are_well_formed_and_boxes_do_not_overlap():
    net = M.Sequential(M.Conv2d(1, 4, 3), M.BatchNorm2d(4), M.ReLU()).eval()
    g = Graph.of(lambda x: net(x) + F.cond(x.sum() > 0, F.exp, F.sin, x)[:, :, 1:-1, 1:-1], data(1, 1, 6, 6), names=["<x & y>"])
    root = ElementTree.fromstring(g.svg())
    texts = [t.text for t in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"<x & y>", "conv", "cond", "exp", "sin", "output0"} <= set(texts) and g._repr_html_() == g.svg()
    for part in g.graphs():
        boxes, width, height = _placed(part)
        for b in boxes:
            assert b.x - b.width / 2 >= -0.01 and b.x + b.width / 2 <= width + 0.01 and 0 <= b.y <= b.y + b.height <= height + 0.01
            assert all(below.layer == b.layer + 1 for below in b.below)
            for c in boxes:
                apart = abs(b.x - c.x) >= (b.width + c.width) / 2 or b.y + b.height <= c.y or c.y + c.height <= b.y
                assert b is c or apart
    assert g.dot().count("subgraph") == 3 and repr(g).startswith("<graph main(<x & y>: f32[1,1,6,6]) -> (output0")


# ---- edits by chance -------------------------------------------------------------------------------------------------------

UNARY = ["exp", "tanh", "relu", "sigmoid", "neg"]


def one_edit(g, r):
    """An edit by chance, right or wrong."""
    nodes, values = list(g.nodes), list(g.values())
    n, v, w = r.choice(nodes), r.choice(values), r.choice(values)
    match r.randrange(13):
        case 0: g.replace(n, w)
        case 1: g.replace(v, w)
        case 2: g.insert(r.choice(UNARY), [v])
        case 3: g.replace(v, r.choice([F.tanh, F.relu, lambda x: x * 2, lambda x: x.sum(axis=0, keepdims=True)]))
        case 4: g.delete(n)
        case 5: g.delete(n, use=r.choice(n.inputs or values))
        case 6: g.rename(v, r.choice(["a", "b", "x", "y"]))
        case 7: g.set(n, inputs=[r.choice(values) for _ in n.inputs])
        case 8: g.set(n, op=r.choice([*UNARY, "add", "mul", "matmul", "sum"]))
        case 9: g.add_output(f"o{r.randrange(4)}", v) if r.random() < 0.5 else g.remove_output(r.choice([*g.output_names, "none"]))
        case 10: g.insert("matmul", [v, w], transpose_b=r.random() < 0.5)
        case 11: g.join(g.extract([v], [w]), {})
        case 12:
            with g.edits():
                g.replace(v, g.insert("add", [v, w]).outputs[0])  # a circle, most often
    # fmt: skip


@pytest.mark.parametrize("seed", range(3))
def test_edits_by_chance(seed):
    r, done, refused = random.Random(seed), 0, 0
    x, w = data(3, 3), data(3, 3, seed=1)
    start = Graph.of(lambda x, w: F.relu(F.matmul(x, w) + x) * F.exp(w * 0.1), x, w, names=["x", "w"], outputs=["y"])
    g = start.copy()
    for i in range(150):
        text, parts = str(g), [*g.nodes, *g.values()]
        try:
            one_edit(g, r)
            done += 1
            g.verify()
        except TengenError:
            refused += 1
            assert str(g) == text and [*g.nodes, *g.values()] == parts
        assert parse_graph(str(g), constant_data(g))
        if i % 15 == 14:
            with np.errstate(all="ignore"):
                same(g, *[data(*v.type.shape, seed=j) for j, v in enumerate(g.inputs)])
            g = start.copy() if len(g.nodes) > 25 or not g.outputs else g
        if not g.nodes:
            g = start.copy()
    assert done > 30 and refused > 30
