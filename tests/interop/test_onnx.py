"""ONNX files as models and modules: the standard's own cases, and what they leave open: programs, open extents, training, bad files."""

import contextlib
import io
import os
import subprocess
import sys
from collections import OrderedDict

import numpy as np
import onnx
import onnx_cases
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper, parser

import tengen
from tengen import Tensor, trace
from tengen.autodiff import GradManager
from tengen.base.errors import ArgumentError, DTypeError, FileFormatError, TengenError, TraceError
from tengen.cli.main import main
from tengen.deploy.dump import dump_model
from tengen.interop.onnx import load, to_module
from tengen.interop.onnx.reader import read
from tengen.optimizer import SGD

RNG = np.random.default_rng(0)


def one_of_each():
    """The first case of each op, and of each op's expansion by its definition every fourth. onnx computes all cases' results when it is
    first asked for one, which takes seconds: so they are no parameters, for which each process would ask."""
    found = OrderedDict()
    for i, c in enumerate(onnx_cases.cases()):
        ops = sorted({f"{n.domain}.{n.op_type}" for n in onnx_cases.model_of(c).graph.node})
        if len(ops) == 1 or i % 24 == 0:
            found.setdefault(ops[0] if len(ops) == 1 else c.name, c)
    return list(found.values())


def test_the_standards_cases():
    chosen = one_of_each()
    assert len(chosen) > 200 and not (failed := onnx_cases.failures(chosen)), "\n".join(failed)


def model(text, **arrays):
    """A model in ONNX's text form, with arrays added."""
    m = parser.parse_model(f'<ir_version: 8, opset_import: ["": 18]>\n{text}')
    m.graph.initializer.extend(numpy_helper.from_array(a, name) for name, a in arrays.items())
    return m


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


NET = """
net (float[batch, 3, height, 12] x) => (float[batch, 10] y) {
    c = Conv <pads = [1, 1, 1, 1]> (x, filter, bias)
    r = Relu(c)
    p = GlobalAveragePool(r)
    shape = Shape(p)
    first = Gather <axis = 0> (shape, zero)
    rows = Unsqueeze(first, zeros)
    to = Concat <axis = 0> (rows, rest)
    flat = Reshape(p, to)
    y = Gemm <transB = 1> (flat, weight, shift)
}"""
ARRAYS = {
    "filter": normal(8, 3, 3, 3), "bias": normal(8), "weight": normal(10, 8), "shift": normal(10), "zero": np.array(0),
    "zeros": np.array([0]), "rest": np.array([-1]),
}  # fmt: skip


def expected(x):
    """The network in float64."""
    wide = np.pad(x.astype(np.float64), [(0, 0), (0, 0), (1, 1), (1, 1)])
    h, w = x.shape[2:]
    taps = np.stack([wide[:, :, i : i + h, j : j + w] for i in range(3) for j in range(3)], 2)
    c = np.einsum("nckhw,ock->nohw", taps, ARRAYS["filter"].reshape(8, 3, 9).astype(np.float64)) + ARRAYS["bias"][:, None, None]
    return np.maximum(c, 0).mean((2, 3)) @ ARRAYS["weight"].T.astype(np.float64) + ARRAYS["shift"]


def test_one_program_with_open_extents(tmp_path):
    """Shapes that are computed from shapes stay open; eager, traced, recorded and reloaded bits are equal."""
    m = load(model(NET, **ARRAYS))
    assert [repr(p) for p in (*m.inputs, *m.outputs)] == ["x: f32[batch,3,height,12]", "y: f32[batch,10]"]
    net, file = to_module(model(NET, **ARRAYS)).eval(), tmp_path / "net.tgn"
    dump_model(m, file)
    again, run = tengen.load_graph(file), trace(net)
    for n, h in ((1, 5), (3, 9), (2, 5)):
        x = normal(n, 3, h, 12)
        y = m(x).numpy()
        np.testing.assert_allclose(y, expected(x), rtol=1e-4, atol=1e-5)
        for other in (net, again, run):
            assert other(Tensor(x)).numpy().tobytes() == y.tobytes()
    fixed = load(model(NET, **ARRAYS), shapes={"batch": 2, "x": ("batch", 3, 5, 12)})
    assert fixed.inputs[0].shape == (2, 3, 5, 12) and fixed(x).numpy().tobytes() == y.tobytes()


def test_a_file_with_its_arrays_beside_it(tmp_path):
    m = model(NET, **ARRAYS)
    onnx.save(model(NET, **ARRAYS), tmp_path / "net.onnx", save_as_external_data=True, location="net.data", size_threshold=0)
    x = normal(2, 3, 5, 12)
    assert load(tmp_path / "net.onnx")(x).numpy().tobytes() == load(m)(x).numpy().tobytes()
    with pytest.raises(FileFormatError, match="load it by its path"):
        load((tmp_path / "net.onnx").read_bytes())
    secret = tmp_path.parent / "secret.data"
    secret.write_bytes(bytes(10_000))
    broken = onnx.load(tmp_path / "net.onnx", load_external_data=False)

    def say(key, value):
        for t in broken.graph.initializer:
            for e in t.external_data:
                if e.key == key:
                    e.value = value
        (tmp_path / "broken.onnx").write_bytes(broken.SerializeToString())

    for location in ("../secret.data", str(secret), "", "a/../../secret.data"):
        say("location", location)
        with pytest.raises(FileFormatError, match="outside of the model's folder"):
            load(tmp_path / "broken.onnx")
    os.symlink(secret, tmp_path / "link.data")
    say("location", "link.data")
    with pytest.raises(FileFormatError, match="symbolic link"):
        load(tmp_path / "broken.onnx")
    say("location", "net.data")
    say("offset", "4000000")
    with pytest.raises(FileFormatError, match="needs .* bytes"):
        load(tmp_path / "broken.onnx")


def test_training():
    """Parameters are the file's arrays, under their names; a step by their gradients is that of finite differences."""
    net = to_module(model(NET, **ARRAYS))
    assert sorted(net.state_dict()) == [f"weights.{k}" for k in ("bias", "filter", "shift", "weight")]
    x, opt = normal(2, 3, 5, 12), SGD(net.parameters(), lr=0.5)
    gm = GradManager().attach(net.parameters())
    with gm:
        loss = (net(x) ** 2).sum()
        gm.backward(loss)
    assert np.isclose(loss.item(), (expected(x) ** 2).sum(), rtol=1e-4)
    bump, e = np.zeros((10,)), 1e-4
    bump[3] = e
    slope = ((expected(x) + bump) ** 2).sum() - ((expected(x) - bump) ** 2).sum()
    np.testing.assert_allclose(net.weights["shift"].grad.numpy()[3], slope / (2 * e), rtol=1e-3)
    opt.step()
    assert (net(x) ** 2).sum().item() != loss.item()


def test_branches_and_loops_are_recorded():
    m = model("""
    net (float[n] x, int64 count) => (float[n] y, float z) {
        s = ReduceSum <keepdims = 0> (x)
        zero = Constant <value_float = 0.0> ()
        up = Greater(s, zero)
        start = If <
            then_branch = up_ () => (float[n] a) { a = Neg(x) },
            else_branch = down () => (float[n] b) { b = Identity(x) }
        > (up)
        yes = Constant <value = bool {1}> ()
        y, z = Loop <
            body = once (int64 i, bool go, float[n] v, float t) => (bool more, float[n] w, float u) {
                two = Constant <value_float = 2.0> ()
                w = Mul(v, two)
                most = ReduceMax <keepdims = 0> (w)
                u = Add(t, most)
                ten = Constant <value_float = 10.0> ()
                more = Less(u, ten)
            }
        > (count, yes, start, zero)
    }""")
    net, program = to_module(m).eval(), load(m)
    assert {"cond", "while"} <= set(program.ops()) | {"while"} and program.inputs[0].shape[0] is not None

    def plainly(x, count):
        v, t = (-x if x.sum() > 0 else x), np.float32(0)
        for _ in range(count):
            v = v * 2
            t = t + v.max()
            if not t < 10:
                break
        return v, t

    for x, count in (([1, 2], 9), ([-3, 1], 2), ([-1, -2, -4], 5), ([-3, 1], 0)):
        x = np.array(x, np.float32)
        for run in (net, program):
            v, t = run(x, np.array(count))
            assert v.tolist() == plainly(x, count)[0].tolist() and t.item() == plainly(x, count)[1]


def test_a_branch_that_the_shapes_rule_out():
    """The program takes the other branch, and a run that would need the first is an error that says why."""
    m = model("""
    net (float[2, n] x, int64 rate) => (float[2, k] y) {
        many = Constant <value = int64 {16}> ()
        wide = Equal(rate, many)
        y = If <
            then_branch = wide_ () => (float[2, 3] a) { a = MatMul(x, w6) },
            else_branch = narrow () => (float[2, 3] b) { b = MatMul(x, w4) }
        > (wide)
    }""", w6=normal(6, 3), w4=normal(4, 3))
    arrays = {t.name: numpy_helper.to_array(t) for t in m.graph.initializer}
    for n, rate in ((6, 16), (4, 8)):
        program, x = load(m, {"n": n}), normal(2, n)
        assert "cond" not in program.ops()
        np.testing.assert_allclose(program(x, np.array(rate)).numpy(), x @ arrays[f"w{n}"], rtol=1e-5, atol=1e-5)
        with pytest.raises(ValueError, match="takes its branch for (True|False), which these shapes rule out: matmul"):
            program(x, np.array(24 - rate))
        assert to_module(m)(x, np.array(rate)).tolist() == program(x, np.array(rate)).tolist()
    with pytest.raises(TengenError, match="matmul"):
        load(m, {"n": 5})
    kept = io.BytesIO()
    dump_model(program, kept)
    kept.seek(0)
    again = tengen.load_graph(kept)
    with pytest.raises(ValueError, match="rule out"):
        again(x, np.array(16))


def test_branches_in_branches_are_not_recorded_without_end():
    inside = "a{i} = If <then_branch = t{i} () => (float[k] p{i}) {{ {then} }}, else_branch = e{i} () => (float[k] q{i}) {{ {orelse} }}> (go)"
    text = "r = MatMul(x, w)"
    for i in range(18):  # the second branch fails: without a bound the first is recorded 2 ** 18 times
        text = inside.format(i=i, then=f"{text} p{i} = Identity({'r' if not i else f'a{i - 1}'})", orelse=f"q{i} = MatMul(w, x)")
    with pytest.raises(TengenError, match="matmul"):
        load(model(f"net (float[2, 3] x, bool go) => (float[k] y) {{ {text}  y = Identity(a17) }}", w=normal(4, 4)))


def test_recurrent_layers_beside_onnxruntime():
    """Both directions, first states, lengths, other activations, and what one op says."""
    ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: its results are not compared")
    steps, batch, width, hidden = 5, 3, 4, 6
    x, plain = normal(steps, batch, width), 0
    for kind, count in (("RNN", 1), ("GRU", 3), ("LSTM", 4)):
        for way in ("forward", "reverse", "bidirectional"):
            d = 2 if way == "bidirectional" else 1
            for more in ({}, {"clip": 0.3}, {"lengths": 1}, {"linear_before_reset": 1}, {"bare": 1}, {"input_forget": 1}):
                if ("linear_before_reset" in more) > (kind == "GRU") or ("input_forget" in more) > (kind == "LSTM"):
                    continue
                given = {"x": x, "w": normal(d, count * hidden, width) / 2, "r": normal(d, count * hidden, hidden) / 2}
                if "bare" not in more:
                    given |= {"b": normal(d, 2 * count * hidden)} | ({"n": np.array([2, 5, 1], np.int32)} if "lengths" in more else {})
                    given |= {"h": normal(d, batch, hidden)} | ({"c": normal(d, batch, hidden)} if kind == "LSTM" else {})
                names = [k if k in given else "" for k in ("x", "w", "r", "b", "n", "h", "c")[: len(given) if "bare" in more else None]]
                names = names if kind == "LSTM" or "bare" in more else names[:6]
                outs = ["y", "last", "cell"][: 3 if kind == "LSTM" else 2]
                attributes = {k: v for k, v in more.items() if k not in ("lengths", "bare")}
                m = helper.make_model(
                    helper.make_graph(
                        [helper.make_node(kind, names, outs, hidden_size=hidden, direction=way, **attributes)], "g",
                        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
                        [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outs],
                        [numpy_helper.from_array(a, k) for k, a in given.items() if k != "x"],
                    ), opset_imports=[helper.make_opsetid("", 14)], ir_version=8,
                )  # fmt: skip
                program = load(m)
                want = ort.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})
                for a, b in zip(program(x), want, strict=True):
                    np.testing.assert_allclose(a.numpy(), b, rtol=1e-4, atol=1e-5, err_msg=f"{kind} {way} {more}")
                plain += program.ops()["lstm"]
    assert plain == 2 * (1 + 1 + 2)


def test_names_in_shapes_are_those_of_the_file():
    m = model("net (float[n, 4] x, float[n] k) => (float[n, 4] y) { y = Relu(x) }")
    assert load(m, {"n": 3}).inputs[0].shape == (3, 4)
    with pytest.raises(ArgumentError, match="shapes names m, z; the inputs are k, x, the open extents n"):
        load(m, {"m": 3, "z": (1, 4)})


def test_an_open_axis_is_cut_at_its_end():
    cut = "net (float[n, 3] x) => (float[n, 2] y) { y = Slice(x, starts, ends) }"
    m = model(cut, starts=np.array([0, 1]), ends=np.array([10**9, 2**31 - 1]))
    assert load(m).outputs[0].shape[1] == 2 and load(m)(np.ones((5, 3), np.float32)).shape == (5, 2)


def test_arrays_that_decide_shapes_may_be_parameters():
    """The scales of a resize are a float array of the file."""
    m = model(
        "net (float[1, 1, 2, 2] x) => (float[1, 1, 4, 4] y) { y = Resize <mode = \"nearest\"> (x, none, scales) }",
        scales=np.array([1, 1, 2, 2], np.float32), none=np.zeros(0, np.float32),
    )  # fmt: skip
    x = normal(1, 1, 2, 2)
    assert (load(m)(x).numpy() == x.repeat(2, 2).repeat(2, 3)).all()


def test_what_is_not_known_is_told_at_once():
    m = model("net (float[2] x) => (float[2] y) { a = Relu(x)  y = Identity(a) }")
    for i, (op, domain) in enumerate((("Frobnicate", ""), ("Fused", "com.vendor"))):
        m.graph.node.append(helper.make_node(op, ["a"], [f"z{i}"], name=f"odd{i}", domain=domain))
    with pytest.raises(ArgumentError) as e:
        to_module(m)
    assert "2 nodes" in str(e.value) and "odd0 -> z0: Frobnicate, no op" in str(e.value) and "com.vendor.Fused" in str(e.value)


def test_errors_name_the_node():
    m = model("net (float[n] x) => (float[m] y) { at = NonZero(x)  flat = Reshape(at, ones)  y = Cast <to = 1> (flat) }", ones=np.array([-1]))
    assert to_module(m)(np.array([0, 3, 0, 1], np.float32)).tolist() == [1, 3]
    with pytest.raises(TengenError) as e:
        load(m)
    assert "in the ONNX node" in str(e.value) and "NonZero" in str(e.value) and "help: to_module(file) runs" in str(e.value)
    with pytest.raises(TraceError, match="computed from the inputs"):
        load(model("net (float[4] x, int64[1] to) => (float[m] y) { y = Reshape(x, to) }"))
    with pytest.raises(ArgumentError, match="net takes x, to; got x"):
        to_module(model("net (float[4] x, int64[1] to) => (float[m] y) { y = Reshape(x, to) }"))(normal(4))
    with pytest.raises(FileFormatError, match="reads 'nowhere'"):
        to_module(model("net (float[4] x) => (float[4] y) { y = Relu(nowhere) }"))(normal(4))


def test_functions_of_a_file():
    m = model("net (float[4] x) => (float[4] y) { y = Relu(x) }")
    double = helper.make_function(
        "mine", "Scaled", ["v"], ["w"],
        [helper.make_node("Constant", [], ["k"], value_float=3.0), helper.make_node("Mul", ["v", "k"], ["w"])],
        [helper.make_opsetid("", 18)],
    )  # fmt: skip
    m.functions.append(double)
    m.opset_import.append(helper.make_opsetid("mine", 1))
    m.graph.node.append(helper.make_node("Scaled", ["y"], ["z"], domain="mine"))
    m.graph.output[0].name = "z"
    x = normal(4)
    assert (load(m)(x).numpy() == np.maximum(x, 0) * np.float32(3)).all()


def test_functions_that_have_no_end():
    def with_functions(*bodies):
        m = model("net (float[4] x) => (float[4] y) { y = Relu(x) }")
        m.opset_import.append(helper.make_opsetid("mine", 1))
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid("mine", 1)]
        for name, calls in bodies:
            nodes = [helper.make_node(c, ["v"], ["w"], domain="mine") for c in calls]
            m.functions.append(helper.make_function("mine", name, ["v"], ["w"], nodes, opsets))
        m.graph.node.append(helper.make_node(bodies[0][0], ["x"], ["z"], domain="mine"))
        return m

    with pytest.raises(FileFormatError, match="'A' calls itself"):
        to_module(with_functions(("A", ["B"]), ("B", ["A"])))
    with pytest.raises(FileFormatError, match="1,000,000 nodes"):
        to_module(with_functions(*((f"F{i}", [f"F{i + 1}"] * 10) for i in range(9))))
    with pytest.raises(ArgumentError, match="in the function A -> w: mine.Nowhere"):
        to_module(with_functions(("A", ["Nowhere"])))


def test_arguments():
    net = to_module(model("net (float[n] x, int64[n] k) => (float[n] y) { f = Cast <to = 1> (k)  y = Add(x, f) }"))
    assert net([1, 2], [3, 4]).tolist() == net(k=[3, 4], x=Tensor([1.0, 2.0])).tolist() == [4, 6]
    with pytest.raises(DTypeError, match=r"the input x takes float32, got float64; help: x.astype\('float32'\)"):
        net(np.ones(2), [1, 2])
    with pytest.raises(DTypeError, match="the input k takes int64, got int32"):
        net([1, 2], Tensor([1, 2], dtype="int32"))
    with pytest.raises(ArgumentError, match="takes x, k"):
        net([1, 2], [3, 4], x=[5, 6])


def test_a_loop_that_does_not_run_stacks_nothing_of_its_type():
    m = model("""
    net (int64 count, float[2] x) => (float[2] y, int64[k, 3] z) {
        yes = Constant <value = bool {1}> ()
        y, z = Loop <body = once (int64 i, bool go, float[2] v) => (bool more, float[2] w, int64[3] u) {
            more = Identity(go)  w = Add(v, v)  u = Constant <value_ints = [1, 2, 3]> ()
        }> (count, yes, x)
    }""")
    y, z = to_module(m)(np.array(0), np.ones(2, np.float32))
    assert y.tolist() == [1, 1] and z.shape == (0, 3) and z.dtype == "int64"
    assert to_module(m)(np.array(2), np.ones(2, np.float32))[1].tolist() == [[1, 2, 3]] * 2


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_any_bytes_give_a_network_or_an_error(data):
    good = model(NET, **ARRAYS).SerializeToString()
    kind = data.draw(st.sampled_from(["noise", "cut", "changed"]))
    if kind == "noise":
        text = data.draw(st.binary(max_size=200))
    elif kind == "cut":
        text = good[: data.draw(st.integers(0, len(good)))]
    else:
        text = bytearray(good)
        for _ in range(data.draw(st.integers(1, 8))):
            text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
        text = bytes(text)
    try:
        to_module(text)
    except (FileFormatError, ArgumentError):
        pass


def changed(m, r):
    """A few fields of a model's messages have other values, are gone, or are copies of others; `benchmarks/fuzz` does more of it."""

    def inside(message, depth=0):
        yield message
        for f, v in message.ListFields() if depth < 9 else ():
            if f.type == f.TYPE_MESSAGE:
                for one in v if f.is_repeated else (v,):
                    yield from inside(one, depth + 1)

    numbers, words = [0, 1, -1, 3, 1 << 31, (1 << 63) - 1, -(1 << 63)], ["", "x", "c", "Relu", "If", "Loop", "Reshape", "com.microsoft"]
    for _ in range(r.randint(1, 5)):
        every = list(inside(m))
        target = r.choice(every)
        f = r.choice(list(target.DESCRIPTOR.fields))
        if f.type == f.TYPE_MESSAGE:
            alike = [x.SerializeToString() for x in every if x.DESCRIPTOR is f.message_type and x.ByteSize() < 999]
            made = r.choice(alike) if alike else b""
            (getattr(target, f.name).add() if f.is_repeated else getattr(target, f.name)).ParseFromString(made)
        elif f.is_repeated and len(getattr(target, f.name)) and r.random() < 0.5:
            del getattr(target, f.name)[r.randrange(len(getattr(target, f.name)))]
        else:
            v = r.choice(words) if f.type == f.TYPE_STRING else r.choice(words).encode() if f.type == f.TYPE_BYTES else r.choice(numbers)
            try:
                getattr(target, f.name).append(v) if f.is_repeated else setattr(target, f.name, v)
            except (ValueError, TypeError):  # a number that the field does not hold
                pass
    return m.SerializeToString()


BRANCHES = """net (float[2] x, bool c) => (float[2] y) { y = If <then_branch = a () => (float[2] p) { p = Neg(x) },
    else_branch = b () => (float[2] q) { q = Abs(x) }> (c) }"""


@settings(max_examples=150, deadline=None)
@given(st.randoms(use_true_random=False), st.booleans())
def test_any_fields_give_a_network_or_an_error(r, branches):
    data = changed(model(BRANCHES) if branches else model(NET, **ARRAYS), r)
    try:
        net = to_module(data)
    except (FileFormatError, ArgumentError):
        return
    if len(net.source.graph.nodes) < 20 and not any(n.op in ("Loop", "Scan") for n in net.source.graph.nodes):
        with contextlib.suppress(TengenError, ValueError, TypeError, IndexError, KeyError, ZeroDivisionError, OverflowError):
            load(data)


def test_files_that_are_no_models():
    deep = flat = helper.make_graph([], "g", [], [])
    c = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    for _ in range(30):  # deeper ones protobuf itself refuses
        deep = helper.make_graph([helper.make_node("If", ["c"], ["o"], then_branch=deep, else_branch=flat)], "g", [], [])
    inside = helper.make_graph([helper.make_node("If", ["c"], ["o"], then_branch=deep, else_branch=flat)], "g", [c], [])
    assert to_module(helper.make_model(inside)) is not None
    with pytest.raises(FileFormatError, match="no graph"):
        to_module(b"")
    with pytest.raises(FileFormatError, match="no ONNX model"):
        to_module(b"\xff" * 50)
    with pytest.raises(FileFormatError, match="opset 99"):
        to_module(helper.make_model(inside, opset_imports=[helper.make_opsetid("", 99)]))
    with pytest.raises(FileFormatError, match="the attribute 'then_branch' of If .* has the type STRING, not GRAPH"):
        to_module(helper.make_model(helper.make_graph([helper.make_node("If", ["c"], ["o"], then_branch="g", else_branch=flat)], "g", [], [])))
    with pytest.raises(FileFormatError, match="Cast .* misses the attribute 'to'"):
        to_module(helper.make_model(helper.make_graph([helper.make_node("Cast", ["x"], ["y"])], "g", [], [])))
    with pytest.raises(FileNotFoundError):
        load("not/there.onnx")


MEASURE = """
import resource, sys
from tengen.interop.onnx import load, to_module
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
to_module(sys.argv[1])
before = peak()
load(sys.argv[2])
print(peak() - before)
"""


def test_memory_of_reading(tmp_path):
    """At most twice the file and 64 MB, as SECURITY.md says; arrays beside the model count as files, and those above 2 GB are mapped."""
    rows = 48 * 1024
    small, large = (np.ones((n, 1024), np.float32) for n in (1, rows))
    text = "net (float[n, {}] x) => (float[n, 1024] y) {{ y = MatMul(x, w) }}"
    onnx.save(model(text.format(1), w=small), tmp_path / "small.onnx")
    onnx.save(model(text.format(rows), w=large), tmp_path / "large.onnx")
    onnx.save(model(text.format(rows), w=large), tmp_path / "beside.onnx", save_as_external_data=True, location="w.data")
    for name in ("large.onnx", "beside.onnx"):
        child = [sys.executable, "-c", MEASURE, str(tmp_path / "small.onnx"), str(tmp_path / name)]
        grown = int(subprocess.run(child, check=True, capture_output=True, text=True).stdout)
        assert grown < 2 * large.nbytes + (64 << 20), f"{name}: {grown / large.nbytes:.2f} times the arrays"
    huge = model("net (float[n, 600000] x) => (float[n, 1024] y) { y = MatMul(x, w) }")
    w = onnx.TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[600_000, 1024], data_location=TensorProto.EXTERNAL)
    w.external_data.add(key="location", value="huge.data")
    huge.graph.initializer.append(w)
    (tmp_path / "huge.onnx").write_bytes(huge.SerializeToString())
    with open(tmp_path / "huge.data", "wb") as f:
        f.truncate(600_000 * 1024 * 4)  # a hole: nothing of it is read
    assert read(tmp_path / "huge.onnx").graph.arrays["w"][599_999, 1023] == 0


def test_a_network_of_onnxruntime():
    ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: its results are not compared")
    m = model(NET, **ARRAYS)
    session = ort.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"])
    x = normal(4, 3, 17, 12)
    np.testing.assert_allclose(load(m)(x).numpy(), session.run(None, {"x": x})[0], rtol=1e-4, atol=1e-5)


def test_the_command_line(tmp_path):
    onnx.save(model(NET, **ARRAYS), tmp_path / "net.onnx")
    run = lambda *args: CliRunner().invoke(main, [str(a) for a in args])
    made = run("import", tmp_path / "net.onnx", "--extent", "height=5")
    assert made.exit_code == 0 and "x: f32[batch,3,5,12]" in made.output
    x = normal(2, 3, 5, 12)
    assert tengen.load_graph(tmp_path / "net.tgn")(x).numpy().tobytes() == load(tmp_path / "net.onnx")(x).numpy().tobytes()
    assert "1 conv, 1 matmul" in run("info", tmp_path / "net.onnx").output
    made = run("compile", tmp_path / "net.onnx", "-o", tmp_path / "out", "--extent", "batch=2", "--extent", "height=5")
    assert made.exit_code == 0 and (tmp_path / "out" / "net.o").exists()
    (tmp_path / "bad.onnx").write_bytes(b"nothing")
    bad = run("info", tmp_path / "bad.onnx")
    assert bad.exit_code == 1 and "no ONNX model" in bad.output


def test_the_codes_of_small_floats_are_those_of_their_formats():
    """Every code's number and the code of every number nearby, as ml_dtypes rounds them."""
    import ml_dtypes

    for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float4_e2m1fn"):
        dtype = np.dtype(getattr(ml_dtypes, name))
        number = helper.np_dtype_to_tensor_dtype(dtype)
        with np.errstate(all="ignore"):
            known = np.arange(256 if "4_e" not in name else 16, dtype=np.uint8).view(dtype).astype(np.float32)
            known = known[np.isfinite(known)]
            x = np.concatenate([known, (np.sort(known)[1:] + np.sort(known)[:-1]) / 2, normal(100) * np.abs(known).max() / 3])
            x = x[np.abs(x) <= np.abs(known).max()]
            want = x.astype(dtype)
        m = helper.make_model(
            helper.make_graph(
                [helper.make_node("Cast", ["x"], ["y"], to=number)], "g",
                [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None])], [helper.make_tensor_value_info("y", number, [None])],
            ), opset_imports=[helper.make_opsetid("", 23)],
        )  # fmt: skip
        (got,) = to_module(m).values([x])
        assert got.dtype == dtype and got.codes.numpy().tobytes() == want.view(np.uint8).tobytes(), name
