"""Where opsets and open extents differ: one node each, in a program whose extents are all open, beside onnxruntime."""

import tracemalloc

import ml_dtypes
import numpy as np
import pytest
from onnx import ValueInfoProto, helper, numpy_helper, parser

from tengen.base.errors import FileFormatError, ShapeError, TraceError
from tengen.interop.onnx import load, to_module

R = np.random.default_rng(0)
X = R.standard_normal((2, 3, 5, 6)).astype(np.float32)


def node(op, inputs, opset, known=(), outputs=1, opened=True, **attributes):
    """A model of one node; inputs in `known` are arrays of the file, the extents of the others have names of their own."""
    at = [(f"x{i}", a) for i, a in enumerate(inputs)]
    extents = lambda n, a: [f"{n}_{k}" for k in range(a.ndim)] if opened else a.shape
    kind = lambda a: helper.np_dtype_to_tensor_dtype(a.dtype)
    ports = [helper.make_tensor_value_info(n, kind(a), extents(n, a)) for i, (n, a) in enumerate(at) if a is not None and i not in known]
    arrays = [numpy_helper.from_array(inputs[i], f"x{i}") for i in known if inputs[i] is not None]
    outs = [f"y{i}" for i in range(outputs)]
    made = helper.make_node(op, [n if a is not None else "" for n, a in at], outs, **attributes)
    graph = helper.make_graph([made], "one", ports, [ValueInfoProto(name=o) for o in outs], arrays)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def beside_onnxruntime(op, inputs, opset, known=(), opened=True, **attributes):
    """Eagerly, and as a program with open extents; without onnxruntime the two are compared alone."""
    inputs = [None if a is None else np.asarray(a) for a in inputs]
    m = node(op, inputs, opset, known, opened=opened, **attributes)
    given = [a for i, a in enumerate(inputs) if a is not None and i not in known]
    eager, program = to_module(m).eval()(*given).numpy(), load(m)(*given).numpy()
    assert program.dtype == eager.dtype and program.tobytes() == eager.tobytes()
    ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: its results are not compared")
    (want,) = ort.InferenceSession(m.SerializeToString()).run(None, {p.name: a for p, a in zip(m.graph.input, given)})
    np.testing.assert_allclose(eager, want, rtol=1e-5, atol=1e-6)
    assert eager.shape == want.shape


@pytest.mark.parametrize("opset, mode, scales", [
    (9, "nearest", (2, 3)), (10, "nearest", (1.5, 2.7)), (10, "nearest", (0.6, 0.5)), (10, "linear", (1.4, 0.5)), (11, "nearest", (1.4, 2.7)),
    (13, "nearest", (0.6, 0.5)), (19, "linear", (1.4, 2.5)),
])  # fmt: skip
def test_sizes_and_positions_are_computed_in_float32(opset, mode, scales):
    """5 x 1.4 is 7 there, and (1 + .5) / .6 - .5 is 2. Before opset 11 nearest pixels were those before when a picture grows, else after."""
    by = np.array([1, 1, *scales], np.float32)
    op, inputs = ("Upsample", [X, by]) if opset < 10 else ("Resize", [X, by] if opset < 11 else [X, np.zeros(0, np.float32), by])
    for nearest in ("round_prefer_floor", "floor") if opset >= 11 and mode == "nearest" else (None,):
        more = {"nearest_mode": nearest} if nearest else {}
        beside_onnxruntime(op, inputs, opset, known=range(1, len(inputs)), opened=False, mode=mode, **more)


def test_sizes_that_are_open():
    """To the size of another picture, as networks that join scales do; and by whole scales."""
    x, like = X[:, :, :5, :4], np.zeros((1, 1, 7, 4), np.float32)
    head = """<ir_version: 8, opset_import: ["": OPSET]> g (float[n, c, h, w] x, float[a, b, p, q] y) => (float[n, c, k, l] z) {
        s = Shape(x)  t = Shape(y)  i = Constant <value_ints = [0, 1]> ()  j = Constant <value_ints = [2, 3]> ()
        u = Gather(s, i)  v = Gather(t, j)  size = Concat <axis = 0> (u, v)  z = Resize <MORE> (x, , , size) }"""
    cases = [
        f'mode = "{mode}", coordinate_transformation_mode = "{way}"'
        for mode in ("nearest", "linear", "cubic") for way in ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
    ]  # fmt: skip
    cases += ['mode = "cubic", exclude_outside = 1', 'mode = "nearest", nearest_mode = "ceil"']
    ran = []
    for case in cases:
        m = parser.parse_model(head.replace("OPSET", "18").replace("MORE", case))
        module, program = to_module(m), load(m)
        for other in (like, np.zeros((1, 1, 1, 9), np.float32), np.zeros((1, 1, 5, 4), np.float32), X[:, :, :2, :3]):
            have = program(x, other).numpy()
            assert have.tobytes() == module(x, other).numpy().tobytes(), case
            ran.append((case, m, other, have))
    for mode in ("nearest", "linear"):
        beside_onnxruntime("Resize", [X, None, np.array([1, 1, 2, 3], np.float32)], 13, known=[2], mode=mode)
    ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: its results are not compared")
    for case, m, other, have in ran:
        (want,) = ort.InferenceSession(m.SerializeToString()).run(None, {"x": x, "y": other})
        np.testing.assert_allclose(have, want, rtol=1e-5, atol=2e-6, err_msg=case)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_windows_of_open_extents(op):
    """The last window of ceil_mode, and what SAME adds, follow from the extents."""
    for more in ({"ceil_mode": 1, "strides": [2, 3]}, {"ceil_mode": 1, "strides": [3, 2], "pads": [1, 1, 0, 1]}, {"auto_pad": "SAME_LOWER"}):
        beside_onnxruntime(op, [X], 12 if op == "MaxPool" else 19, kernel_shape=[2, 2], **more)
    beside_onnxruntime(op, [X], 11, kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 0])


@pytest.mark.parametrize("auto", ["SAME_UPPER", "SAME_LOWER"])
def test_convolutions_of_open_extents(auto):
    w = R.standard_normal((4, 3, 3, 2)).astype(np.float32)
    for strides in ([1, 1], [2, 3]):
        beside_onnxruntime("Conv", [X, w], 11, known=[1], auto_pad=auto, strides=strides)
        beside_onnxruntime("ConvTranspose", [X, w[:3]], 11, known=[1], auto_pad=auto, strides=[strides[0]] * 2)


def test_parts_of_open_extents():
    whole = lambda lo, hi, step: [np.array(v) for v in ([lo], [hi], [3], [step])]
    for lo, hi in ((-1, -(2**63)), (2**62, -(2**31))):
        beside_onnxruntime("Slice", [X, *whole(lo, hi, -1)], 13, known=range(1, 5))
    beside_onnxruntime("Slice", [X, *whole(3, 1, 1)], 13, known=range(1, 5))
    with pytest.raises(TraceError, match="where a slice from 4 to 0 in steps of -2 begins"):
        load(node("Slice", [X, *whole(4, 0, -2)], 13, known=range(1, 5)))
    for opset, more in ((13, {}), (18, {"num_outputs": 2})):
        m = node("Split", [X], opset, outputs=2, axis=3, **more)
        assert [p.numpy().tolist() for p in load(m)(X)] == [X[..., :3].tolist(), X[..., 3:].tolist()]


def test_a_table_is_cut_to_an_open_length():
    """Positions of a text, as PyTorch's exporter cuts them; and a shape beside -1, as it writes expand."""
    m = parser.parse_model("""<ir_version: 8, opset_import: ["": 17]> g (float[b, t, d] x) => (float[b, t, d] z)
        <int64[1, 9] positions = {0, 1, 2, 3, 4, 5, 6, 7, 8},
         float[9, 2] table = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17}> {
        s = Shape(x)  one = Constant <value_ints = [1]> ()  zero = Constant <value_ints = [0]> ()  minus = Constant <value_int = -1> ()
        t = Gather(s, one)  p = Slice(positions, zero, t, one, one)  q = Gather(table, p)
        is = Equal(s, minus)  ones = ConstantOfShape <value = int64[1] {1}> (three)  three = Constant <value_ints = [3]> ()
        shape = Where(is, ones, s)  w = Expand(q, shape)  z = Add(x, w) }""")
    program, module = load(m), to_module(m)
    for t in (1, 4, 9):
        x = R.standard_normal((2, t, 2)).astype(np.float32)
        want = x + np.arange(18, dtype=np.float32).reshape(9, 2)[:t]
        assert (program(x).numpy() == want).all() and (module(x).numpy() == want).all()


def test_known_arrays_that_are_spread_over_open_extents():
    """Masks and positions of a text, as PyTorch's exporters write them."""
    m = parser.parse_model("""<ir_version: 8, opset_import: ["": 17]> g (float[b, t, d] x) => (float[b, t] y, int64[k] z, float[b, t] w)
        <bool one = {1}, int64[2] pair = {7, 9}, float[1, 1] half = {0.5}> {
        s = Shape <end = 2> (x)  mask = Expand(one, s)  zero = Constant <value_ints = [0]> ()  b = Gather(s, zero)  z = Tile(pair, b)
        w = Tile(half, s)  y = Cast <to = 1> (mask) }""")
    program, module = load(m), to_module(m)
    for b, t in ((1, 1), (3, 4)):
        x = np.zeros((b, t, 2), np.float32)
        for run in (program, module):
            y, z, w = (v.numpy() for v in run(x))
            assert (y == np.ones((b, t))).all() and y.shape == w.shape == (b, t) and z.tolist() == [7, 9] * b and (w == 0.5).all()


def test_shapes_of_open_extents_are_outputs():
    beside_onnxruntime("Shape", [X], 15, start=-3)
    beside_onnxruntime("Size", [X], 13)
    beside_onnxruntime("Einsum", [X, X[0, 0].T], 12, equation="b c i j, j k -> b c k i")


def test_backwards_slices_of_open_extents():
    """Steps of -1 are the same elements forwards, turned around; an axis without elements has none."""
    most = -(1 << 62)
    for lo, hi, n in ((4, most, 6), (4, 1, 9), (-1, 2, 6), (-1, most, 0)):
        x = np.arange(2 * n, dtype=np.float32).reshape(2, n)
        beside_onnxruntime("Slice", [x, *map(np.array, ([lo], [hi], [1], [-1]))], 13, known=[1, 2, 3, 4])


@pytest.mark.parametrize("mode", ["constant", "edge"])
def test_pads_to_a_length_that_crop_longer_ones(mode):
    """What is to be added is computed from an open extent, and below 0 for some of them, as for sound of 30 seconds in Whisper."""
    m = parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]> g (float[b, n] x) => (float[b, k] y)
        <int64[1] to = {{9}}, int64[2] front = {{0, 1}}, int64[1] zero = {{0}}> {{
        s = Shape<start = 1>(x)  d = Sub(to, s)  p = Concat<axis = 0>(front, zero, d)  y = Pad<mode = "{mode}">(x, p) }}""")
    model, net = load(m), to_module(m)
    for n in (1, 8, 9, 10, 23):
        x = R.standard_normal((2, n)).astype(np.float32)
        want = np.pad(x[:, :9], ((0, 0), (1, max(0, 9 - n))), mode)
        assert model(x).numpy().tobytes() == net(x).numpy().tobytes() == want.tobytes()


def test_the_larger_of_open_extents():
    """At least one window of a short signal, at most four."""
    m = parser.parse_model("""<ir_version: 8, opset_import: ["": 17]> g (float[n] x) => (float[k] y)
        <int64[1] few = {1}, int64[1] many = {4}, int64[1] by = {3}, float one = {1}> {
        s = Shape(x)  d = Div(s, by)  a = Max(d, few)  b = Min(many, a)  y = Expand(one, b) }""")
    model = load(m)
    assert [model(np.zeros(n, np.float32)).shape for n in (2, 6, 11, 30)] == [(1,), (2,), (3,), (4,)]


def test_extents_that_exporters_leave_open_without_a_name():
    """Paddle's write -1 and "?": of such axes none is said to be equal to another."""
    m = node("Relu", [X], 13)
    for d, given in zip(m.graph.input[0].type.tensor_type.shape.dim, (-1, 3, "?", "?")):
        d.dim_param = "" if isinstance(given, int) else given
        if isinstance(given, int):
            d.dim_value = given
    model = load(m)
    assert str(model.inputs[0]) == "x0: f32[x0_0,3,x0_2,x0_3]" and model(X).numpy().tobytes() == np.maximum(X, 0).tobytes()


def test_open_extents_that_can_have_one_value():
    """Channels beside weights, axes that are squeezed: the program takes those alone, and says so."""
    w = [R.standard_normal(3).astype(np.float32) for _ in range(3)]
    m = load(node("BatchNormalization", [X[:, :, 0], *w, np.ones(3, np.float32)], 15, known=range(1, 5)))
    assert str(m.inputs[0]) == "x0: f32[x0_0,3,x0_2]"
    with pytest.raises(ShapeError):
        m(np.zeros((2, 1, 6), np.float32))
    beside_onnxruntime("BatchNormalization", [X[:, :, 0], *w, np.ones(3, np.float32)], 15, known=range(1, 5))
    m = load(node("Squeeze", [X[:1, :, :1], np.array([-2, 0])], 13, known=[1]))
    assert str(m.inputs[0]) == "x0: f32[1,x0_1,1,x0_3]"
    with pytest.raises(TraceError, match="whether axis 0, of extent x0_0, is squeezed is known when the program runs"):
        load(node("Squeeze", [X[:1]], 13))


def test_masks_and_scalars_have_the_types_of_their_opset():
    for opset, kind in ((7, np.float32), (10, np.bool_), (13, np.bool_)):
        assert to_module(node("Dropout", [X], opset, outputs=2)).eval()(X)[1].dtype == kind
    assert to_module(node("NonZero", [np.float32(3)], 13))(np.float32(3)).shape == (0, 1)  # the standard's, unlike NumPy's


def test_names_that_are_not_there_are_told_at_once():
    """Read too early, computed twice, never computed; in branches too."""
    m = parser.parse_model("""
        <ir_version: 8, opset_import: ["": 18]>
        net (float[2] x, bool c) => (float[2] y, float[2] z) {
            a = Add(x, b)
            b = Relu(a)
            a = Neg(x)
            y = If <then_branch = t () => (float[2] u) { u = Add(b, w) }, else_branch = e () => (float[2] v) { q = Relu(b) }> (c)
        }""")
    with pytest.raises(FileFormatError) as e:
        to_module(m)
    lines = str(e.value).splitlines()[1:]
    assert [line.split(") ")[-1] for line in lines] == [
        "reads 'b', which nothing before it computes", "computes 'a' again", "reads 'w', which nothing before it computes",
        "  the output 'v' of e is computed by no node", "  the output 'z' of net is computed by no node",
    ]  # fmt: skip


def test_versions_that_no_package_knows():
    """Of the model's domains, and of those that a function of the file uses."""
    for version in (1 << 31, -1):
        odd = [helper.make_opsetid("other", version)]
        f = helper.make_function("mine", "f", ["x"], ["y"], [helper.make_node("Foo", ["x"], ["y"], domain="other")], odd)
        own, inside = node("Relu", [X], 13), node("Relu", [X], 13)
        own.opset_import.extend(odd)
        inside.functions.append(f)
        for m in (own, inside):
            with pytest.raises(FileFormatError, match=f"opset {version}, which no package knows"):
                to_module(m)


@pytest.mark.parametrize("start, end, step", [(-9, -9, -1), (-9, -(2**62), -2), (-6, 9, -1), (8, -9, -1), (-9, 3, 2)])
def test_slices_that_begin_outside(start, end, step):
    """A start before the first element is the first one, also backwards."""
    known = [np.array([v], np.int64) for v in (start, end, 2, step)]
    beside_onnxruntime("Slice", [X, *known], 13, known=range(1, 5), opened=False)


@pytest.mark.parametrize("name", [
    "float8_e5m2", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2fnuz", "float4_e2m1fn", "int4", "uint4", "bfloat16", "float16",
])  # fmt: skip
def test_weights_of_every_type_of_few_bits(name):
    """As arrays of the file, which are cast, moved, or scaled where they are read, in graphs inside too."""
    weights = np.array([1, 2, 0.5, 3]).astype(name if name == "float16" else getattr(ml_dtypes, name))
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("Cast", ["w"], ["c"], to=1), helper.make_node("Add", ["x", "c"], ["y"])], "g",
            [helper.make_tensor_value_info("x", 1, [4])], [helper.make_tensor_value_info("y", 1, [4])], [numpy_helper.from_array(weights, "w")],
        ), opset_imports=[helper.make_opsetid("", 23)],
    )  # fmt: skip
    x = np.arange(4, dtype=np.float32)
    for run in (to_module(model), load(model)):
        assert run(x).tolist() == (x + weights.astype(np.float32)).tolist()
    if "16" in name:
        return
    wide, scale = weights.astype(np.float32), numpy_helper.from_array(np.float32(0.5), "s")
    for domain, version in (("", 23), ("com.microsoft", 1)):
        body = lambda of=domain: helper.make_graph(
            [helper.make_node("Reshape", ["w", "t"], ["r"]), helper.make_node("DequantizeLinear", ["r", "s"], ["z"], domain=of)], "b", [],
            [helper.make_tensor_value_info("z", 1, [2, 2])],
            [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(np.array([2, 2]), "t"), scale],
        )  # fmt: skip
        either = helper.make_node("If", ["c"], ["z"], then_branch=body(), else_branch=body())
        for inner in (body(), helper.make_graph([either], "i", [helper.make_tensor_value_info("c", 9, [])], body().output)):
            opsets = [helper.make_opsetid("", 23), helper.make_opsetid(domain, version)]
            model = helper.make_model(inner, opset_imports=opsets[: 2 if domain else 1])
            for run in (to_module(model), load(model)):
                assert run(*[True] * len(inner.input)).tolist() == (wide * 0.5).reshape(2, 2).tolist()


def test_nodes_in_any_order():
    """As onnxruntime takes them; what a branch reads counts, and nodes that wait for each other are told."""
    text = """<ir_version: 8, opset_import: ["": 17]> net (float[3] x, bool c) => (float[3] y) {
        y = Add(b, p)
        b = If (c) <then_branch = t () => (float[3] u) { u = Neg(v)  v = Add(a, a) }, else_branch = e () => (float[3] w) { w = Abs(a) }>
        p = Mul(a, q)  a = Relu(x)  q = Sqrt(a) }"""
    x = np.array([1, -4, 9], np.float32)
    for run in (to_module(parser.parse_model(text)), load(parser.parse_model(text))):
        for c in (True, False):
            a = np.maximum(x, 0)
            np.testing.assert_allclose(run(x, np.array(c)).numpy(), (-2 * a if c else a) + a * np.sqrt(a), rtol=1e-6)
    wait = text.replace("Relu(x)", "Relu(y)")
    with pytest.raises(FileFormatError, match="node .*Add.* reads 'b', which nothing before it computes"):
        load(parser.parse_model(wait))


def test_weights_of_lstms_have_their_sizes():
    """Extents of a file are compared before anything is made for each of them: one of 2^31 took all memory."""
    w, r = np.ones((1, 8, 3), np.float32), np.ones((1, 8, 2), np.float32)
    model = node("LSTM", [np.ones((4, 1, 3), np.float32), w, r, np.ones((1, 16), np.float32)], 14, known=(1, 2), opened=False, hidden_size=2)
    model.graph.input[1].type.tensor_type.shape.dim[1].dim_value = (1 << 31) - 1
    with pytest.raises(FileFormatError, match="8 gates of 2 numbers along axis 1 are needed, the shape is"):
        load(model)


@pytest.mark.parametrize("made, more", [("y, at", ""), ("y", ", dilations = [2, 1]")])
def test_tables_of_positions_are_not_made_for_large_extents(made, more):
    """A few bytes do not ask for an array of 16 GB while they are recorded: positions are computed when the program runs."""
    text = f"net (int8[1, 2, 2147483647, 5] x) => (int8[1, 2, k, l] y) {{ {made} = MaxPool <kernel_shape = [2, 2]{more}> (x) }}"
    tracemalloc.start()
    try:
        made = load(parser.parse_model(f'<ir_version: 8, opset_import: ["": 19]> {text}'))
        assert tracemalloc.get_traced_memory()[1] < 1 << 24
    finally:
        tracemalloc.stop()
    assert made.outputs[0].shape[2] == 2**31 - 2 - bool("dilations" in more)


@pytest.mark.parametrize("kind, to", [("int64", 7), ("float", 1), ("double", 11)])
def test_positions_are_not_made_for_large_extents(kind, to):
    """A Range up to an extent of 2^30 takes no memory when the file is read; one above what is kept as an array has the same elements."""
    text = f"""<ir_version: 8, opset_import: ["": 18]> net (float[%d] x) => ({kind}[k] y) {{ zero = Constant<value = {kind} {{0}}>()
        one = Constant<value = {kind} {{1}}>()  at = Constant<value = int64 {{0}}>()  s = Shape(x)  d = Gather(s, at)  f = Cast<to = {to}>(d)
        y = Range(zero, f, one) }}"""
    tracemalloc.start()
    model = load(parser.parse_model(text % (2**30)))
    assert tracemalloc.get_traced_memory()[1] < 1 << 25 and model.outputs[0].shape == (2**30,)
    tracemalloc.stop()
    small = load(parser.parse_model(text % 70001))(np.zeros(70001, np.float32)).numpy()
    assert small.tobytes() == np.arange(70001, dtype=small.dtype).tobytes() and small.dtype.kind == kind[0].replace("d", "f")


def test_windows_wider_than_a_known_array_may_be():
    text = "net (float[1, 1, n] x) => (float[1, 1, k] y) { y = MaxPool <kernel_shape = [4194305], strides = [1], dilations = [2]> (x) }"
    with pytest.raises(FileFormatError, match="4,194,305 elements that have to be known; 4,194,304 may be"):
        load(parser.parse_model(f'<ir_version: 8, opset_import: ["": 19]> {text}'), shapes={"n": 1 << 24})


def test_transforms_of_windows_of_a_signal_without_an_axis_of_parts():
    """As PyTorch exports torch.stft; positions of long signals are computed when the program runs."""
    x, w = R.standard_normal((2, 40)).astype(np.float32), np.hanning(8).astype(np.float32)
    beside_onnxruntime("STFT", [x, np.array(3), w], 17, known=[1, 2], onesided=1)  # of open lengths
    beside_onnxruntime("STFT", [x, np.array(3), w], 17, known=[1, 2], opened=False, onesided=1)
    beside_onnxruntime("STFT", [x[..., None], np.array(4), None, np.array(8)], 17, known=[1, 3], opened=False, onesided=0)
    text = "net (float[1, 100000000] x, float[64] w) => (float[1, k, 33, 2] y) <int64 step = {1}> { y = STFT(x, step, w) }"
    tracemalloc.start()
    try:
        made = load(parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}'))
        assert tracemalloc.get_traced_memory()[1] < 1 << 24
    finally:
        tracemalloc.stop()
    assert made.outputs[0].shape == (1, 99_999_937, 33, 2)
