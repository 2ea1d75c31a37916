"""Graphs as text and as JSON: round trips, and what is refused."""

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_graphs import graphs

from tengen.base.dtype import float32
from tengen.base.errors import FileFormatError, VerifyError
from tengen.ir.graph import Graph
from tengen.ir.text import constant_data, from_json, parse_graph, print_graph, to_json
from tengen.ir.types import TensorType, parse_type
from tengen.ir.verify import verify
from tengen.loops.lang import var

QUICK = settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
N = var("N")


def step() -> Graph:
    g = Graph("step")
    x = g.add_input("x", TensorType((N, 784), float32))
    w = g.add_state("fc.weight", TensorType((784, 10), float32))
    c = g.add_constant("0.scale", np.full((), 2, np.float32))
    t = TensorType((N, 10), float32)
    h = g.add_node("matmul", [x, w, None], {"precision": 'hi"gh'}, [t], "train.py:31", ["h"]).outputs[0]
    body = Graph("body")
    row = body.add_input("row", TensorType((10,), float32))
    body.add_output("s", body.add_node("sum", [row], {"axis": (0,)}, [TensorType((), float32)]).outputs[0])
    out = [TensorType((N,), float32), w.type]
    total, new = g.add_node("map", [h, c], {"body": body, "eps": 1e-5, "shape": (N * 2, -1), "to": float32}, out).outputs
    g.set_state("fc.weight", new)
    g.add_output("logits", h)
    g.add_output("total sum", total)
    return g


TEXT = """\
graph step(x: f32[N,784]):
    const `0.scale`: f32[]
    state fc.weight: f32[784,10]
    h: f32[N,10] = matmul(x, fc.weight, none, precision="hi\\"gh") @ "train.py:31"
    v0: f32[N], v1: f32[784,10] = map(h, `0.scale`, body=$0, eps=1e-05, shape=({N * 2}, -1), to=f32)
        graph body(row: f32[10]):
            v0: f32[] = sum(row, axis=(0,))
            return s = v0
    write fc.weight = v1
    return logits = h, `total sum` = v0
"""


def test_the_text_of_a_graph():
    g = step()
    assert print_graph(g) == TEXT
    again = parse_graph(TEXT, constant_data(g))
    assert print_graph(again) == TEXT and again.constants["0.scale"].data == 2
    assert again.nodes[0].where == "train.py:31" and again.nodes[0].inputs[2] is None
    assert again.states["fc.weight"].written is again.nodes[1].outputs[1]
    assert parse_graph(TEXT).constants["0.scale"].data is None


def test_json_keeps_everything():
    g = step()
    text = to_json(g)
    again = from_json(text, constant_data(g))
    assert to_json(again) == text and print_graph(again) == TEXT
    assert again.nodes[1].attrs["eps"] == 1e-5 and again.nodes[1].attrs["shape"] == (N * 2, -1)
    assert isinstance(json.loads(text), dict)


@given(graphs())
@QUICK
def test_round_trips(g):
    verify(g)
    text = print_graph(g)
    again = parse_graph(text, constant_data(g))
    assert print_graph(again) == text
    form = to_json(g)
    back = from_json(form, constant_data(g))
    assert to_json(back) == form and print_graph(back) == text
    copied = g.copy()
    verify(copied)
    assert to_json(copied) == form


BAD_TEXT = [
    ("", "expected a graph"),
    ("graph g()", "expected ':'"),
    ("graph g():", "no `return`"),
    ("graph g():\nreturn", "no `return`"),
    ("graph g():\n  return\n  return", "unexpected text after"),
    ("graph g():\n  a: f32[] = f()\n    return", "unexpected indentation"),
    ("graph g(x: f32[], x: f32[]):\n  return", "line 1, column 19: the name x is given twice"),
    ("graph g(x: f32):\n  return", "expected '\\['"),
    ("graph g(x: f32[1.5f32]):\n  return", "is not an int64"),
    ("graph g(x: f32[true]):\n  return", "is not an int64"),
    ("graph g(x: f32[-1]):\n  return", "negative extent"),
    ("graph g(x: f32[ramp()]):\n  return", "is not an int64"),
    ("graph g(x: f32[4611686018427387904]):\n  return", "bytes are more than any machine has"),
    ("graph g():\n  a: f32[] = f(b)\n  return", "line 2, column 16: b is not defined"),
    ("graph g():\n  a: f32[] = f(a)\n  return", "a is not defined"),
    ("graph g():\n  a: f32[] = f(k=1, k=2)\n  return", "k is given twice"),
    ("graph g(x: f32[]):\n  a: f32[] = f(k=1, x)\n  return", "an input after an attribute"),
    ("graph g():\n  a: f32[] = f(k=$0)\n  return", "1 graphs are named, 0 stand below"),
    ("graph g():\n  = f(k=99999999999999999999999)\n  return", "too large"),
    ("graph g():\n  = f(k=99999999999999999999)\n  return", "does not fit 64 bits"),
    ("graph g():\n  = f(k=" + "(" * 500, "nested deeper than 64"),
    ('graph g():\n  = f(k="\\x")\n  return', "wrong escape"),
    ("graph g():\n  = f(k=1.5f32)\n  return", "is not a number"),
    ("graph g():\n  write s = s\n  return", "s is no state"),
    ("graph g(x: f32[]):\n  state s: f32[2]\n  write s = x\n  return", "the state 's' is f32\\[2\\], its new value f32\\[\\]"),
    ("graph g(x: f32[]):\n  return a = x, a = x", "outputs with the names"),
    ("graph g():\n  const c: f32[N]\n  return", "symbolic extent"),
]


@pytest.mark.parametrize("text, message", BAD_TEXT, ids=range(len(BAD_TEXT)))
def test_bad_text(text, message):
    with pytest.raises(VerifyError, match=message):
        parse_graph(text)


def changed(**graph):
    whole = json.loads(to_json(step()))
    whole["graph"].update(graph)
    return json.dumps(whole)


def node(**changes):
    n = {"op": "f", "inputs": [], "attrs": {}, "outputs": [["", "f32[]"]], "where": None, **changes}
    return changed(nodes=[n], outputs=[], states=[])


BAD_JSON = [
    ("", "line 1, column 1"),
    ("[]", "the whole needs the keys"),
    ("[" * 100000, "nested too deeply"),
    ("[" * 500 + "]" * 500, "nested deeper than 384"),
    ('{"a": 1, "a": 1}', "a key stands twice"),
    ('{"format": NaN}', "NaN is not JSON"),
    ('{"version": ' + "1" * 5000 + "}", "too large"),
    ('{"version": 1e999}', "too large"),
    ('{"format": "x", "version": 1, "graph": {}}', "it is 'x' version 1"),
    ('{"format": "tengen-graph", "version": 2, "graph": {}}', "version 2"),
    ('{"format": "tengen-graph", "version": true, "graph": {}}', "version is bool"),
    (changed(extra=1), "a graph needs the keys"),
    (changed(name=1), "name is int, not str"),
    (changed(inputs=[["x"]]), r"an input is not \[str, str\]"),
    (changed(inputs=[["x", "f32[]"], ["x", "f32[]"]], nodes=[], outputs=[], states=[]), "the name 'x' is given twice"),
    (changed(inputs=[["x", "f33[]"]]), "expected a dtype"),
    (changed(constants=[["c", "f32[]"], ["c", "f32[]"]]), "'c' is named twice"),
    (changed(states=[["s", "f32[]", None], ["s", "f32[]", None]]), "'s' is named twice"),
    (changed(states=[["s", "f32[]", 999]]), "there is no value 999 yet"),
    (changed(outputs=[["y", 1.0]]), "an output is not"),
    (changed(outputs=[["y", -1]]), "there is no value -1 yet"),
    (changed(outputs=[["y\n", 0]]), "is not a name for an output"),
    (node(inputs=[3]), "there is no value 3 yet"),
    (node(inputs=[True]), "there is no value True yet"),
    (node(inputs=["x"]), "there is no value 'x' yet"),
    (node(attrs={"k": [1]}), "neither plain nor tagged"),
    (node(attrs={"k": {"tuple": 1}}), "with the tag 'tuple'"),
    (node(attrs={"k": {"float": "1"}}), "with the tag 'float'"),
    (node(attrs={"k": {"dtype": "f32", "x": 1}}), "neither plain nor tagged"),
    (node(attrs={"k": {"eval": "1"}}), "with the tag 'eval'"),
    (node(attrs={"k": {"dim": "1 +"}}), "expected an expression"),
    (node(attrs={"k": 1 << 64}), "does not fit 64 bits"),
    (node(attrs={"a b": 1}), "is not a name for an attribute"),
    (node(where=1), "where is int"),
    (node(op=""), "is not a name for an op"),
]


@pytest.mark.parametrize("text, message", BAD_JSON, ids=range(len(BAD_JSON)))
def test_bad_json(text, message):
    with pytest.raises(FileFormatError, match=message):
        from_json(text)


def test_a_value_cannot_be_used_before_it_is_made():
    g = step()
    x = json.loads(to_json(g))
    x["graph"]["nodes"][0]["inputs"] = [3]
    with pytest.raises(FileFormatError, match="there is no value 3 yet"):
        from_json(json.dumps(x))


def test_deep_graphs_are_not_written_when_they_could_not_be_read():
    g = Graph("g")
    for _ in range(64):
        outer = Graph("g")
        outer.add_node("f", [], {"body": g}, [])
        g = outer
    assert print_graph(parse_graph(print_graph(g))) == print_graph(g) == print_graph(from_json(to_json(g)))
    outer = Graph("g")
    outer.add_node("f", [], {"body": g}, [])
    with pytest.raises(VerifyError, match="nested deeper than 64"):
        to_json(outer)


def damaged(draw, text: str, pieces: list[str]) -> str:
    for _ in range(draw(st.integers(1, 4))):
        i = draw(st.integers(0, len(text)))
        j = draw(st.integers(i, min(len(text), i + 6)))
        text = text[:i] + draw(st.sampled_from(pieces)) + text[j:]
    return text


@given(st.data())
@QUICK
def test_any_text_gives_a_graph_or_a_verify_error(data):
    kind = data.draw(st.integers(0, 2))
    pieces = ["", "(", ")", "=", ":", "\n", "  ", "f32", "x", "$0", "$1", "{", "}", '"', "`", "1", "-", "return", "none", ","]
    if kind == 0:
        text = data.draw(st.text(max_size=80))
    else:
        text = damaged(data.draw, TEXT if kind == 1 else print_graph(data.draw(graphs())), pieces)
    try:
        g = parse_graph(text)
    except VerifyError:
        return
    assert print_graph(parse_graph(print_graph(g))) == print_graph(g)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda v: st.lists(v, max_size=4) | st.dictionaries(st.sampled_from(["name", "op", "tuple", "graph", "x"]), v, max_size=4),
    max_leaves=8,
)


@given(st.data())
@QUICK
def test_any_json_gives_a_graph_or_a_file_format_error(data):
    kind = data.draw(st.integers(0, 3))
    form = to_json(data.draw(graphs()) if data.draw(st.booleans()) else step())
    if kind == 0:
        text = data.draw(st.text(max_size=80))
    elif kind == 1:
        pieces = ["", "[", "]", "{", "}", ",", ":", "1", "-1", "null", '"', '"x"', "1e9", "true", "f32[N]"]
        text = damaged(data.draw, form, pieces)
    else:  # one place in the tree becomes something else
        whole = json.loads(form)
        at = whole
        while True:
            keys = list(at) if isinstance(at, dict) else list(range(len(at)))
            if not keys:
                break
            k = data.draw(st.sampled_from(keys))
            if not isinstance(at[k], (dict, list)) or data.draw(st.integers(0, 3)) == 0:
                at[k] = data.draw(json_values)
                break
            at = at[k]
        text = json.dumps(whole)
    try:
        g = from_json(text)
    except FileFormatError:
        return
    assert to_json(from_json(to_json(g))) == to_json(g)


def test_types_as_text():
    for t in (TensorType((), "bool"), TensorType((N, 3, N * 2 + 1), "bf16"), TensorType((0,), "f64")):
        assert parse_type(repr(t)) is t
    assert repr(TensorType((N, 3), float32)) == "f32[N,3]"
    for bad in ("", "f32", "f32[", "f32[1,]x", "[1]", "f32[1]\nf32[1]", "f32[1.0f64]"):
        with pytest.raises(VerifyError):
            parse_type(bad)
    assert type(TensorType((1,), float32).shape[0]) is int
