"""Operators of floats between DequantizeLinear and QuantizeLinear: they become operators of integers, equal to onnxruntime's."""

import collections
import re

import numpy as np
import pytest
from onnx import numpy_helper, parser

import tengen.functional as F
from tengen import Parameter, Tensor
from tengen.autodiff import GradManager
from tengen.base.errors import FileFormatError
from tengen.interop.onnx import load, to_module
from tengen.interop.onnx.pairs import Pairs, within
from tengen.interop.onnx.reader import GraphOf

RNG = np.random.default_rng(0)


def f32(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def model(text, **arrays):
    """A model of opset 17 from its body; `y = pair(x, name)` stands for a pair of QuantizeLinear and DequantizeLinear with the scale
    `name_s` and the zero point `name_z`."""
    body = re.sub(r"(\w+) = pair\((\w+), (\w+)\)", r"\1_q = QuantizeLinear(\2, \3_s, \3_z)  \1 = DequantizeLinear(\1_q, \3_s, \3_z)", text)
    m = parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> net {body}')
    m.graph.initializer.extend(numpy_helper.from_array(np.asarray(a), k) for k, a in arrays.items())
    return m


def session(m, level):
    ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: its results are not compared")
    options = ort.SessionOptions()
    options.graph_optimization_level, options.log_severity_level = getattr(ort.GraphOptimizationLevel, level), 3
    options.add_session_config_entry("session.x64quantprecision", "1")  # AVX2 without VNNI saturates products otherwise
    return ort.InferenceSession(m.SerializeToString(), options, providers=["CPUExecutionProvider"])


def kinds(net):
    return collections.Counter(n.op for n in net.source.graph.nodes)


def compared(m, x):
    """The module; eager and compiled are the same bytes, and onnxruntime's, which puts the same operators there."""
    net = to_module(m).eval()
    have = net(x)
    assert load(m)(x).numpy().tobytes() == have.numpy().tobytes()
    want = session(m, "ORT_ENABLE_EXTENDED").run(None, {m.graph.input[0].name: x})[0]
    assert have.numpy().tobytes() == want.tobytes(), np.abs(have.numpy() - want).max()
    return net


def scales(**each):
    """Arrays of scales and zero points: name=(scale, zero point)."""
    return {f"{k}_{end}": np.asarray(v, np.float32) if end == "s" else np.asarray(v) for k, pair in each.items() for end, v in zip("sz", pair)}


def arrays_of(of):
    """Scales, zero points and integers that the networks below share, for activations of a dtype."""
    z = lambda v: np.array(v if of is np.uint8 else v - 128, of)
    ints = lambda *shape: RNG.integers(-127, 128, shape).astype(np.int8)
    sw = (np.abs(f32(8)) / 100 + 0.004).astype(np.float32)
    return {
        **scales(x=(0.03, z(120)), r=(0.05, z(0)), e=(0.06, z(3)), s=(0.08, z(2)), g=(0.03, z(1)), k=(0.2, z(100)), n=(0.4, z(128))),
        "w1_q": ints(8, 3, 3, 3), "sw": sw, "b1_q": RNG.integers(-900, 900, 8).astype(np.int32), "sb": np.float32(0.03) * sw,
        "w2_q": ints(8, 1, 3, 3), "w3_q": ints(8, 10), "w4_q": ints(5, 10),
        **{f"w{i}_s": np.float32(0.01) for i in ("", 2, 3, 4)}, **{f"w{i}_z": np.int8(0) for i in ("", 2, 3, 4)},
        "b4_q": RNG.integers(-900, 900, 5).astype(np.int32), "b4_s": np.float32(0.2) * np.float32(0.01) * np.float32(0.5),
        "zw": np.zeros(8, np.int8),
    }  # fmt: skip


FIRST = """
    i = pair(x, x)  w1 = DequantizeLinear <axis = 0> (w1_q, sw, zw)  b1 = DequantizeLinear <axis = 0> (b1_q, sb)
    a = Conv <pads = [1, 0, 2, 1], strides = [2, 1]> (i, w1, b1)
"""


@pytest.mark.parametrize("of", [np.uint8, np.int8])
def test_layers_become_operators_of_integers(of):
    """Convolutions with groups, strides and unequal padding, bounds, sums, pools, products: the integers are onnxruntime's."""
    m = model(
        f"""(float[N, 3, 9, 11] x) => (float[N, 5] y) {{
        {FIRST}  r = Relu(a)  c = pair(r, r)
        w2 = DequantizeLinear(w2_q, w2_s, w2_z)  d = Conv <pads = [1, 1, 1, 1], group = 8> (c, w2)  e = pair(d, e)
        s = Add(e, c)  t = pair(s, s)  o = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (t)  p = pair(o, s)
        v = GlobalAveragePool(p)  u = pair(v, g)  f = Flatten(u)  h = pair(f, g)
        w3 = DequantizeLinear(w3_q, w3_s, w3_z)  k = MatMul(h, w3)  l = pair(k, k)
        w4 = DequantizeLinear(w4_q, w4_s, w4_z)  b4 = DequantizeLinear(b4_q, b4_s)
        n = Gemm <transB = 1, alpha = 0.5> (l, w4, b4)  y = pair(n, n)
        }}""",
        **arrays_of(of),
    )
    x = f32(2, 3, 9, 11)
    net = compared(m, x)
    found = kinds(net)
    once = ("QLinearAdd", "QLinearMatMul", "QGemm", "QLinearGlobalAveragePool", "DequantizeLinear", "QuantizeLinear")
    assert found["QLinearConv"] == 2 and all(found[op] == 1 for op in once), found
    assert "Relu" not in found and not net.in_float
    used = collections.Counter(n.op for n in load(m).graph.nodes)
    assert used["conv_int"] == 2 and used["matmul_int"] == 2 and not {"conv", "matmul"} & used.keys()
    off = np.abs(net(x).numpy() - session(m, "ORT_DISABLE_ALL").run(None, {"x": x})[0]) / 0.4  # what the float operators give
    assert off.max() <= 2


def test_bounds_that_the_integers_do_not_have():
    """A Relu before a zero point in the middle, and a Clip: bounds of integers. The result is that of the float operators, or one step off."""
    x = f32(2, 3, 9, 11)
    for ends in ("r = Relu(a)", "r = Clip(a, low, high)", "t = Relu(a)  r = Clip(t, , high)"):
        for out in ("x", "r"):
            body, given = f"{FIRST} {ends}  y = pair(r, {out})", arrays_of(np.uint8)
            m = model(f"(float[N, 3, 9, 11] x) => (float y) {{ {body} }}", low=np.float32(-0.3), high=np.float32(1.25), **given)
            net = to_module(m).eval()
            assert not net.in_float and kinds(net)["QLinearConv"] == 1 and ("Clip" in kinds(net)) == ("Clip" in ends or out == "x")
            have, want = net(x).numpy(), session(m, "ORT_DISABLE_ALL").run(None, {"x": x})[0]
            assert np.abs(have - want).max() < 1.1 * given[f"{out}_s"] and (have != want).mean() < 0.01
            assert load(m)(x).numpy().tobytes() == have.tobytes()


def test_weights_of_floats_and_what_stays_in_floats():
    """Weights that are floats and quantised in the network stay parameters; floats beside pairs say why they are floats."""
    text = f"""(float[N, 3, 9, 11] x) => (float y, float z, float a, float m) {{
        {FIRST}  y = pair(a, r)
        w = pair(w_f, w)  c = Conv(i, w, b)  z = pair(c, k)
        d = Sigmoid(i)  e = pair(d, e)  o = Add(e, one)  f = pair(o, k)  g = Conv(f, w2)  h = pair(g, k)
        m = Conv(h, w3) }}"""
    given = arrays_of(np.uint8) | {"w_f": f32(4, 3, 2, 2) / 5, "b": f32(4), "one": np.float32(1), "w2": f32(2, 3, 1, 1), "w3": f32(2, 2, 1, 1)}
    m = model(text, **given)
    net, x = to_module(m).eval(), f32(2, 3, 9, 11)
    assert {"weights.w_f", "weights.b"} <= set(net.state_dict())
    assert net.in_float == {
        "d": "Sigmoid: it has no form of integers here",
        "o": "Add: its second operand is not made of integers of 8 bits with known scales",
        **{k: "Conv: its filter is not made of integers of 8 bits with known scales" for k in "gm"},
    }  # fmt: skip
    have, want = [t.numpy() for t in net(x)], session(m, "ORT_DISABLE_ALL").run(None, {"x": x})
    for a, b, step in zip(have, want, (0.05, 0.2, 1e-4, 1.0)):
        assert np.abs(a - b).max() <= 1.01 * step and (np.abs(a - b) > 1e-4).mean() < 0.02
    before = have[1]
    net.load_state_dict({"weights.w_f": np.zeros_like(given["w_f"])}, strict=False)
    assert (net(x)[1].numpy() != before).any()  # the parameter is what is quantised


def test_products_of_integers_whose_result_is_floats():
    """MatMul and Gemm without a QuantizeLinear behind; scales along the wrong axis and dtypes that differ stay in floats."""
    base = arrays_of(np.uint8) | {"s10": np.abs(f32(10)) / 50, "z10": np.zeros(10, np.int8), "s8": np.abs(f32(8)) / 50}
    for axis, name in ((1, "s10"), (0, "s8")):
        m = model(
            f"(float[N, 8] x) => (float y) {{ i = pair(x, x)  w = DequantizeLinear <axis = {axis}> (w3_q, {name}, {'z10' if axis else 'zw'})"
            "  y = MatMul(i, w) }", **base,
        )  # fmt: skip
        net = compared(m, f32(3, 8)) if axis else to_module(m)
        assert net.in_float == ({} if axis else {"y": "MatMul: its second matrix has scales along axis 0"})
        assert ("MatMulIntegerToFloat" in kinds(net)) == bool(axis)
    m = model("(float[N, 8] x) => (float y) { i = pair(x, x)  j = pair(x, w)  k = Add(i, j)  y = pair(k, k) }", **base)
    assert to_module(m).in_float == {"k": "Add: its operands and its result are integers of several dtypes"}


def test_floats_beside_integers_train():
    """A head of floats on a body of integers gets its gradient, the body none, and no error."""
    body = f"{FIRST} r = Relu(a)  c = pair(r, r)  f = GlobalAveragePool(c)  g = Flatten(f)  y = MatMul(g, head)"
    m = model(f"(float[N, 3, 9, 11] x) => (float y) {{ {body} }}", head=f32(8, 2), **arrays_of(np.uint8))
    net = to_module(m).train()
    gm = GradManager().attach(net.parameters())
    with gm:
        gm.backward(F.sum(net(f32(2, 3, 9, 11))))
    grads = {n: p.grad for n, p in net.named_parameters() if p.grad is not None}
    assert np.abs(grads["weights.head"].numpy()).max() > 0 and isinstance(net.weights["head"], Parameter | Tensor)


def test_broken_pairs_are_left_to_the_run():
    """Scales that are texts, empty or not finite, bounds that are NaN: nothing is rewritten, and nothing fails. Nodes that lack inputs
    are refused."""
    base = arrays_of(np.uint8)
    for text, wrong in (
        ("i = DequantizeLinear()  y = Conv(i, i)  z = QuantizeLinear(y, x_s)", "DequantizeLinear .* has 0 inputs; the op takes 2 to 3"),
        ("i = pair(x, x)  y = Conv(i)  z = QuantizeLinear(y, x_s, x_z)", "Conv .* has 1 inputs; the op takes 2 to 3"),
        ("i = pair(x, x)  c = Concat <axis = 0> ()  y = QuantizeLinear(c, x_s)", "Concat .* has 0 inputs; the op takes 1 to any number"),
    ):
        with pytest.raises(FileFormatError, match=wrong):
            to_module(model(f"(float[N, 3, 9, 11] x) => (float y) {{ {text} }}", **base))
    for text, more in (
        ("i = pair(x, x)  c = Conv(i, i)  r = Clip(c, low)  y = pair(r, x)", {"low": np.float32(np.nan)}),
        ("i = pair(x, x)  c = Conv(i, i)  r = Clip(c, low)  y = pair(r, x)", {"low": np.zeros(0, np.float32)}),
        ("i = pair(x, x)  c = MatMul(i, i)  y = pair(c, x)", {"x_s": np.float32(np.inf)}),
        ("i = pair(x, x)  c = MatMul(i, i)  y = pair(c, x)", {"x_s": np.zeros(0, np.float32)}),
    ):
        m = model(f"(float[N, 3, 9, 11] x) => (float y) {{ {text} }}", **(base | more))
        assert not {op for op in kinds(to_module(m)) if op.startswith("QLinear")}


BODIES = """(float[2, 8] x, bool c) => (float[2, 10] y, float[2, 8] last, float[n, 2, 10] outs, float[2, 8] end, float[3, 2, 8] all) {
    i_q = QuantizeLinear(x, x_s, x_z)  OUTSIDE
    y = If <then_branch = then_ () => (float[2, 10] p) { INSIDE  a = MatMul(i, w3)  b = Relu(a)  p = pair(b, k) },
            else_branch = else_ () => (float[2, 10] q) { INSIDE  d = Add(i, i)  e = pair(d, n)  f = MatMul(e, w3)  q = pair(f, k) }> (c)
    last, outs = Loop <body = step (int64 at, bool go, float[2, 8] h) => (bool on, float[2, 8] h2, float[2, 10] out) {
        on = Identity(go)  j = pair(h, x)  w5 = DequantizeLinear(w5_q, w5_s, w5_z)  l = MatMul(j, w5)  h2 = pair(l, n)
        out = If <then_branch = deep () => (float[2, 10] r) { INSIDE  t = pair(h2, n)  m = MatMul(t, w3)  r = pair(m, k) },
                  else_branch = flat () => (float[2, 10] u) { INSIDE  v = MatMul(i, w3)  u = pair(v, k) }> (c) }> (count, , x)
    end, all = Scan <num_scan_inputs = 1, body = next (float[2, 8] s, float[2, 8] xs) => (float[2, 8] s2, float[2, 8] o) {
        g = pair(s, x)  z = pair(xs, x)  aa = Add(g, z)  s2 = pair(aa, e)  o = Identity(s2) }> (x, many)
}"""
PARTS = "i = DequantizeLinear(i_q, x_s, x_z)  w3 = DequantizeLinear(w3_q, w3_s, w3_z)"


def bodies_model(text):
    more = {"w5_q": RNG.integers(-127, 128, (8, 8)).astype(np.int8), "w5_s": np.float32(0.004), "w5_z": np.int8(0)}
    arrays = {k: v for k, v in arrays_of(np.uint8).items() if k[0] in "xknew"}
    return model(text, **arrays, **more, many=f32(3, 2, 8), count=np.array(4))


def test_pairs_in_bodies_of_control_flow():
    """If, Loop and Scan compute with integers: onnxruntime's numbers, eager and compiled. They may read integers of the graphs around them,
    where onnxruntime computes in floats: the numbers are those of integers within the body."""
    m, x = bodies_model(BODIES.replace("OUTSIDE", "").replace("INSIDE", PARTS)), f32(2, 8)
    around = model(BODIES.replace("OUTSIDE", PARTS).replace("INSIDE", ""))
    around.graph.initializer.extend(m.graph.initializer)
    there = session(m, "ORT_ENABLE_EXTENDED")
    given = [{"x": x, "c": np.array(c)} for c in (True, False)]
    for read in (m, around):
        net = to_module(read).eval()
        assert net.in_float.keys() == {"o"}  # the copy that Scan stacks
        inside = collections.Counter(n.op for g in within(net.source.graph) for n in g.nodes)
        assert inside["QLinearMatMul"] == 5 and inside["QLinearAdd"] == 2 and not {"MatMul", "Add", "Relu"} & inside.keys()
        for run in (net, load(read)):
            for args in given:
                for a, b in zip(run(**args), there.run(None, args), strict=True):
                    assert a.numpy().tobytes() == b.tobytes(), np.abs(a.numpy() - b).max()


def test_names_that_a_body_uses_again():
    """Where a body gives the name of a scale around it to something else, what it reads from there stays in floats, and is right."""
    text = """(float[2, 8] x, bool c) => (float[2, 10] y) {
        i = pair(x, x)  w3 = DequantizeLinear(w3_q, w3_s, w3_z)
        y = If <then_branch = a () => (float[2, 10] p) {
                    x_s = Constant <value = float {9}> ()  m = MatMul(i, w3)  q = Mul(m, x_s)  p = pair(q, k) },
                else_branch = b () => (float[2, 10] t) { n = MatMul(i, w3)  t = pair(n, k) }> (c) }"""
    m, x = bodies_model(text), f32(2, 8)
    net = to_module(m).eval()
    arrays = net.source.graph.arrays
    assert net.in_float.keys() == {"m"} and "gives a name of the integers of i to" in net.in_float["m"]
    codes = np.clip(np.rint(x / np.float32(0.03)) + 120, 0, 255) - 120
    exact = codes @ arrays["w3_q"].astype(np.float64) * 0.03 * 0.01
    for c, factor in ((True, 9), (False, 1)):
        want = (np.clip(np.rint(exact * factor / 0.2) + 100, 0, 255) - 100) * 0.2
        assert np.abs(net(x, np.array(c)).numpy() - want).max() < 0.201


def test_many_new_names_are_found_in_linear_time():
    """Names that a file has already taken, in the order in which they would be made."""
    p = Pairs(GraphOf("g", (), (), (), {}), None, dict.fromkeys(["a__codes", *(f"a__codes{i}" for i in range(1, 1000))], 0), {})
    assert [p.fresh("a") for _ in range(3)] == ["a__codes1000", "a__codes1001", "a__codes1002"]
    assert p.taken["a__codes"] == 1002 and p.fresh("b") == "b__codes"
