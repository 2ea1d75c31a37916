"""Attention and GELU that a file spells out in several nodes: one kernel where they are such, and the file's numbers in any case.

References are those of onnx's own evaluator, in NumPy."""

import numpy as np
import pytest
from onnx import numpy_helper, parser
from onnx.reference import ReferenceEvaluator

from tengen import Tensor
from tengen.autodiff import GradManager
from tengen.interop.onnx import load, to_module

RNG = np.random.default_rng(3)
Q, K, V = (RNG.standard_normal(s).astype(np.float32) for s in ((2, 3, 5, 8), (2, 3, 8, 7), (2, 3, 7, 4)))
MASK = RNG.standard_normal((5, 7)).astype(np.float32)
HIDING = np.where(RNG.random((2, 1, 5, 7)) < 0.4, -np.inf, 0).astype(np.float32)
HIDING[1, 0, 2] = -np.inf  # a query that sees no key


def of(text, arrays=(), opset=18):
    m = parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]>\n{text}')
    m.graph.initializer.extend(numpy_helper.from_array(a, name) for name, a in dict(arrays).items())
    return m


def attention(lines, more="", arrays=(), kind="float", shapes=("2,3,5,8", "2,3,8,7", "2,3,7,4"), opset=18):
    q, k, v = shapes
    return of(f"g ({kind}[{q}] q, {kind}[{k}] k, {kind}[{v}] v{more}) => ({kind}[a,b,c,d] y) {{\n{lines}\n}}", arrays, opset)


def agree(m, inputs, kernels, op="attention", rtol=2e-5):
    """The evaluator's numbers, by a program and eagerly with equal bits, with so many nodes of one op."""
    with np.errstate(invalid="ignore"):  # of queries that see no key
        want = ReferenceEvaluator(m).run(None, inputs)[0]
    model, net = load(m), to_module(m)
    got = model(*map(Tensor, inputs.values())).numpy()
    scale = np.nanmax(np.abs(np.where(np.isfinite(want), want, 0)), initial=1e-3)
    np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=0, atol=rtol * scale)
    assert net(*map(Tensor, inputs.values())).numpy().tobytes() == got.tobytes()
    assert sum(n.op == op for n in model.graph.nodes) == kernels
    return got


PLAIN = "s = MatMul(q, k)  w = Softmax<axis = -1>(s)  y = MatMul(w, v)"
SCALED = "f = Constant<value = float {0.25}>()  s = MatMul(q, k)  t = Mul(f, s)  w = Softmax<axis = -1>(t)  y = MatMul(w, v)"
DIVIDED = "f = Constant<value = float[1] {4.0}>()  s = MatMul(q, k)  t = Div(s, f)  w = Softmax<axis = 3>(t)  y = MatMul(w, v)"
ADDED = "s = MatMul(q, k)  t = Add(m, s)  w = Softmax<axis = -1>(t)  y = MatMul(w, v)"
GUARDED = """s = MatMul(q, k)  t = Add(s, m)  w = Softmax<axis = -1>(t)  n = IsNaN(w)  zero = Constant<value = float {0.0}>()
    u = Where(n, zero, w)  y = MatMul(u, v)"""


@pytest.mark.parametrize("lines", [PLAIN, SCALED, DIVIDED])
def test_without_a_mask(lines):
    agree(attention(lines), {"q": Q, "k": K, "v": V}, 1)


@pytest.mark.parametrize("mask", [MASK, HIDING[:1, :, :2], HIDING], ids=["numbers", "of each query", "a query without keys"])
def test_masks(mask):
    q = Q[:, :, : mask.shape[-2]]
    shape = ",".join(map(str, mask.shape))
    shapes = (",".join(map(str, q.shape)), "2,3,8,7", "2,3,7,4")
    got = agree(attention(ADDED, f", float[{shape}] m", shapes=shapes), {"q": q, "k": K, "v": V, "m": mask}, 1)
    assert np.isnan(got).any() == (mask is HIDING)


def test_zeros_in_place_of_nan():
    got = agree(attention(GUARDED, ", float[2,1,5,7] m"), {"q": Q, "k": K, "v": V, "m": HIDING}, 1)
    assert (got[1, :, 2] == 0).all() and np.isfinite(got).all()


@pytest.mark.parametrize("lines, scale", [
    ("a = Mul(q, f)  b = Mul(f, k)  s = MatMul(a, b)  t = Mul(s, f)", -0.125),  # PyTorch's exporter multiplies both by the root of the scale
    ("a = Div(q, f)  s = MatMul(a, k)  t = Identity(s)  t1 = Div(s, f)", 4.0),
    ("s = MatMul(q, k)  t = Mul(s, f)", -0.5),
])  # fmt: skip
def test_known_numbers_are_the_scale_of_the_kernel(lines, scale):
    """Of the scores, of the queries and of the keys; those of a file's parameters are multiplied, since they may be trained."""
    number = "-0.5" if scale < 0 else "0.5"
    lines = lines.replace("t = Identity(s)  t1", "t")
    known = f"f = Constant<value = float {{{number}}}>()  {lines}  w = Softmax<axis = -1>(t)  y = MatMul(w, v)"
    inputs = {"q": Q, "k": K, "v": V}
    agree(attention(known), inputs, 1)
    model = load(attention(known))
    assert [n.attrs["scale"] for n in model.graph.nodes if n.op == "attention"] == [scale] and not {"mul", "div"} & set(model.ops())
    m = attention(known.replace(f"f = Constant<value = float {{{number}}}>()", ""), arrays={"f": np.float32(number)})
    agree(m, inputs, 1)
    net = to_module(m)
    with GradManager().attach(net.parameters()) as gm:
        gm.backward(net(*map(Tensor, inputs.values())).sum())
    assert net.weights["f"].grad is not None and float(abs(net.weights["f"].grad)) > 0


def test_products_of_halves_are_rounded_where_the_file_rounds_them():
    lines = "f = Cast<to = 10>(half)  a = Mul(q, f)  s = MatMul(a, k)  w = Softmax<axis = -1>(s)  y = MatMul(w, v)"
    m = attention(f"half = Constant<value = float {{0.3}}>()  {lines}", kind="float16")
    agree(m, {name: a.astype(np.float16) for name, a in (("q", Q), ("k", K), ("v", V))}, 1, rtol=2e-3)
    assert [n.attrs["scale"] for n in load(m).graph.nodes if n.op == "attention"] == [1.0]


def test_operands_that_are_scaled_otherwise():
    """Products of queries by other than a number are computed beside the kernel; what others read too is no part of the group."""
    behind = "s = MatMul(a, k)  w = Softmax<axis = -1>(s)  y = MatMul(w, v)"
    g, inputs = RNG.standard_normal((5, 8)).astype(np.float32), {"q": Q, "k": K, "v": V}
    agree(attention(f"a = Mul(q, g) {behind}", ", float[5,8] g"), {**inputs, "g": g}, 1)
    agree(attention(f"a = Div(q, g) {behind}", ", float[5,8] g"), {**inputs, "g": np.abs(g) + 1}, 1)
    agree(attention(f"f = Constant<value = float {{0.0}}>()  a = Mul(q, f) {behind}"), inputs, 1)
    f = "f = Constant<value = float {0.5}>()"
    twice = f"{f} a = Mul(q, f)  {behind.replace('y =', 'x =')}  r = ReduceSum(a)  y = Add(x, r)"
    agree(attention(twice), inputs, 1)
    square = f"{f} a = Mul(q, f)  b = Transpose<perm = [0, 1, 3, 2]>(a)  s = MatMul(a, b)  w = Softmax<axis = -1>(s)  y = MatMul(w, v)"
    agree(attention(square, shapes=("2,3,7,8", "2,3,8,7", "2,3,7,4")), {**inputs, "q": np.swapaxes(K, -1, -2).copy()}, 1)


def test_two_masks_and_a_factor():
    lines = """f = Constant<value = float {0.5}>()  s = MatMul(q, k)  t = Mul(s, f)  t1 = Add(t, m)  t2 = Add(t1, l)
        w = Softmax<axis = -1>(t2)  y = MatMul(w, v)"""
    agree(attention(lines, ", float[5,7] m, float[3,1,7] l"), {"q": Q, "k": K, "v": V, "m": MASK, "l": MASK[:3, None]}, 1)


@pytest.mark.parametrize("shape", [(6, 6), (5, 7), (7, 5)])
def test_causal_masks(shape):
    """An array, and what PyTorch's exporters write: keys behind a query are left out, so that infinite values there change nothing."""
    t, s = shape
    q, k, v = (RNG.standard_normal(x).astype(np.float32) for x in ((1, 2, t, 8), (1, 2, 8, s), (1, 2, s, 4)))
    inputs, shapes = {"q": q, "k": k, "v": v}, (f"1,2,{t},8", f"1,2,8,{s}", f"1,2,{s},4")
    array = {"m": np.where(np.tri(t, s) == 1, 0, -np.inf).astype(np.float32)}
    made = f"""one = Constant<value = float {{1.0}}>()  zero = Constant<value = float {{0.0}}>()  to = Constant<value = int64[2] {{{t}, {s}}}>()
        o = Expand(one, to)  l = Trilu<upper = 0>(o)  e = Equal(l, zero)  m = Where(e, hidden, zero)  {ADDED}"""
    a = agree(attention(ADDED, arrays=array, shapes=shapes), inputs, 1)
    b = agree(attention(made, arrays={"hidden": np.float32(-np.inf)}, shapes=shapes), inputs, 1)
    assert a.tobytes() == b.tobytes()
    assert [n.attrs["causal"] for n in load(attention(ADDED, arrays=array, shapes=shapes)).graph.nodes if n.op == "attention"] == ["upper_left"]


@pytest.mark.parametrize("kind, rtol", [("float16", 2e-3), ("double", 1e-12)])
def test_other_floats(kind, rtol):
    inputs = {name: a.astype({"double": "float64"}.get(kind, kind)) for name, a in (("q", Q), ("k", K), ("v", V))}
    agree(attention(PLAIN, kind=kind), inputs, 1, rtol=rtol)


def test_casts_to_float32_and_back():
    """Softmax of a half network in float32, as PyTorch writes softmax(dtype=float32)."""
    lines = "s = MatMul(q, k)  c = Cast<to = 1>(s)  w = Softmax<axis = -1>(c)  b = Cast<to = 10>(w)  y = MatMul(b, v)"
    inputs = {name: a.astype(np.float16) for name, a in (("q", Q), ("k", K), ("v", V))}
    agree(attention(lines, kind="float16"), inputs, 1, rtol=3e-3)


def test_open_extents():
    m = attention(ADDED, ", float[t, s] m", shapes=("n,3,t,8", "n,3,8,s", "n,3,s,4"))
    model = load(m)
    for n, t, s in ((1, 1, 7), (2, 5, 7), (2, 4, 1)):
        inputs = {"q": Q[:n, :, :t], "k": K[:n, :, :, :s], "v": V[:n, :, :s], "m": MASK[:t, :s]}
        want = ReferenceEvaluator(m).run(None, inputs)[0]
        np.testing.assert_allclose(model(*[Tensor(np.ascontiguousarray(a)) for a in inputs.values()]).numpy(), want, rtol=0, atol=2e-5)


@pytest.mark.parametrize("case", [
    ("s = MatMul(q, k)  w = Softmax<axis = 2>(s)  y = MatMul(w, v)", "", {}),  # another axis
    ("s = MatMul(q, k)  t = Mul(s, m)  w = Softmax<axis = -1>(t)  y = MatMul(w, v)", ", float[5,7] m", {"m": MASK}),  # no number
    ("s = MatMul(q, k)  t = Add(s, m)  w = Softmax<axis = -1>(t)  y = MatMul(w, v)", ", float[2,2,3,5,7] m",
     {"m": np.broadcast_to(MASK, (2, 2, 3, 5, 7)).copy()}),  # more scores than products
    ("s = MatMul(q, k)  w = Softmax<axis = -1>(s)  e = Mul(w, s)  x = MatMul(w, v)  r = ReduceSum(e)  y = Add(x, r)", "", {}),  # read twice
    ("s = MatMul(q, k)  t = Add(s, m)  w = Softmax<axis = -1>(t)  y = MatMul(w, v)", ", float m", {"m": np.float32(0.5)}),  # a number
    ("s = MatMul(q, k)  t = Add(s, m)  f = Mul(t, t)  w = Softmax<axis = -1>(f)  y = MatMul(w, v)", ", float[5,7] m", {"m": MASK}),
])  # fmt: skip
def test_what_is_no_attention(case):
    lines, more, inputs = case
    m = attention(lines, more) if "[2,2,3" not in more else of(
        f"g (float[2,3,5,8] q, float[2,3,8,7] k, float[2,3,7,4] v{more}) => (float[a,b,c,d,e] y) {{ {lines} }}"
    )  # fmt: skip
    agree(m, {"q": Q, "k": K, "v": V, **inputs}, 0, rtol=1e-4)


def test_matrices_and_shared_keys():
    """Without a batch it stays two products; a batch of keys for several of queries is one kernel."""
    agree(of(f"g (float[5,8] q, float[8,7] k, float[7,4] v) => (float[a,b] y) {{ {PLAIN} }}"), {"q": Q[0, 0], "k": K[0, 0], "v": V[0, 0]}, 0)
    agree(attention(PLAIN, shapes=("2,3,5,8", "1,1,8,7", "2,1,7,4")), {"q": Q, "k": K[:1, :1], "v": V[:, :1]}, 1)


def test_in_a_branch_and_gradients():
    branch = "then_ () => (float[a,b,c,d] z) { s = MatMul(q, k)  w = Softmax<axis = -1>(s)  z = MatMul(w, v) }"
    other = "else_ () => (float[a,b,c,d] z) { z = Identity(o) }"
    m = attention(f"y = If (c) <then_branch = {branch}, else_branch = {other}>", ", bool c, float[2,3,5,4] o")
    for c in (True, False):
        inputs = {"q": Q, "k": K, "v": V, "c": np.array(c), "o": np.ones((2, 3, 5, 4), np.float32)}
        want = ReferenceEvaluator(m).run(None, inputs)[0]
        np.testing.assert_allclose(load(m)(*map(Tensor, inputs.values())).numpy(), want, rtol=0, atol=2e-5)
    found = []
    for lines in (PLAIN, PLAIN.replace("y = MatMul", "w2 = Relu(w)  y = MatMul").replace("(w, v)", "(w2, v)")):  # Relu changes no weight
        net, x = to_module(attention(lines)), [Tensor(a) for a in (Q, K, V)]
        with GradManager().attach(x) as gm:
            gm.backward((net(*x) ** 2).sum())
        found.append([t.grad.numpy() for t in x])
    for a, b in zip(*found):
        np.testing.assert_allclose(a, b, rtol=0, atol=2e-5 * np.abs(b).max())


ROOT, HALF = "root = Constant<value = float {1.41421354}>()", "half = Constant<value = float {0.5}>()  one = Constant<value = float {1.0}>()"
GELUS = {
    "PyTorch's": f"{ROOT} {HALF} d = Div(x, root)  e = Erf(d)  p = Add(e, one)  m = Mul(x, p)  y = Mul(m, half)",
    "halved first": f"{ROOT} {HALF} h = Mul(half, x)  d = Div(x, root)  e = Erf(d)  p = Add(one, e)  y = Mul(p, h)",
    "multiplied": f"""r = Constant<value = float {{0.70710677}}>() {HALF}
        d = Mul(x, r)  e = Erf(d)  p = Add(e, one)  m = Mul(p, x)  y = Mul(half, m)""",
}
OTHERS = {
    "another number": GELUS["PyTorch's"].replace("1.41421354", "1.5"),
    "another half": GELUS["PyTorch's"].replace("{0.5}", "{0.25}"),
    "read twice": GELUS["PyTorch's"].replace("y = Mul(m, half)", "z = Mul(m, half)  y = Add(z, e)"),
    "of another": GELUS["PyTorch's"].replace("Mul(x, p)", "Mul(d, p)"),
}


@pytest.mark.parametrize("name", [*GELUS, *OTHERS])
def test_gelu(name):
    m = of(f"g (float[3,7] x) => (float[3,7] y) {{ {(GELUS | OTHERS)[name]} }}")
    x = np.float32([[-9, -3, -0.7, -0.0, 0, 0.7, 3], *RNG.standard_normal((2, 7))])
    model = load(m)
    np.testing.assert_allclose(model(Tensor(x)).numpy(), ReferenceEvaluator(m).run(None, {"x": x})[0], rtol=2e-5, atol=2e-7)
    assert any("erf" == n.op for n in model.graph.nodes) == (name in OTHERS)


@pytest.mark.parametrize("kind, to", [("float", 1), ("double", 11)])
@pytest.mark.parametrize("more", ["y = Add(r, half)", "t = Add(r, half)  y = Add(t, f)"], ids=["read once", "the cast is read too"])
def test_positions_up_to_an_open_extent(kind, to, more):
    """Places of pixels, as YOLO's exporters write them: of any picture by one program; of other numbers the file's Range."""
    m = of(f"""g (float[n] x) => ({kind}[k] y) {{ zero = Constant<value = {kind} {{0.0}}>()  one = Constant<value = {kind} {{1.0}}>()
        half = Constant<value = {kind} {{0.5}}>()  at = Constant<value = int64 {{0}}>()  s = Shape(x)  d = Gather(s, at)
        f = Cast<to = {to}>(d)  r = Range(zero, f, one)  {more} }}""")
    model, net = load(m), to_module(m)
    for n in (5, 1, 0):
        want = ReferenceEvaluator(m).run(None, {"x": np.zeros(n, np.float32)})[0]
        got = [run(np.zeros(n, np.float32)).numpy() for run in (model, net)]
        assert all(g.dtype == want.dtype and g.tobytes() == want.tobytes() for g in got)
    halves = of("""g (float[n] x) => (float[k] y) { zero = Constant<value = float {0.0}>()  by = Constant<value = float {0.5}>()
        at = Constant<value = int64 {0}>()  s = Shape(x)  d = Gather(s, at)  f = Cast<to = 1>(d)  y = Range(zero, f, by) }""")
    assert to_module(halves)(np.zeros(2, np.float32)).numpy().tolist() == [0, 0.5, 1, 1.5]
