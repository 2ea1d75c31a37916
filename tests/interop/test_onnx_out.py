"""Models as ONNX files: onnxruntime computes what they compute, and they come back."""

import sys

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from exhaustive import but
from needs import since

import tengen
import tengen.functional as F
import tengen.module as M
from tengen import Graph, Tensor, trace
from tengen.autodiff import grad
from tengen.base.errors import ArgumentError, FileFormatError
from tengen.cli.main import main
from tengen.interop.networks.written import as_model
from tengen.interop.onnx import RUNTIMES, load, save, to_proto

try:
    import onnxruntime as ort
except ImportError:
    ort = None

RNG = np.random.default_rng(0)
IMAGE, TEXT = (3, 32, 32), (9,)
BLOCKS = [(3, 16, 16, False, "relu", 1), (3, 64, 24, False, "relu", 2), (5, 72, 24, True, "relu", 1), (3, 96, 40, True, "hswish", 2)]
NETWORKS = {  # every network of the zoo, small (their full-sized forms are of the same layers): (options, shape of a sample)
    "bert_base": ({"vocabulary": 50, "width": 24, "heads": 3, "depth": 2, "context": 16}, TEXT),
    "convnext_tiny": ({"depths": (1, 2), "channels": (16, 32), "num_classes": 7}, IMAGE),
    "densenet121": ({"growth": 8, "depths": (2, 3), "width": 16, "num_classes": 7}, IMAGE),
    "efficientnet_b0": ({"num_classes": 7, "stages": [(1, 3, 1, 16, 1), (6, 5, 2, 24, 2)], "hidden": 40}, IMAGE),
    "gpt": ({"vocabulary": 50, "width": 24, "heads": 3, "layers": 2, "context": 16}, TEXT), "lenet": ({}, (1, 32, 32)),
    "llama": ({"layers": 2, "width": 24, "heads": 4, "hidden": 40, "vocabulary": 50, "groups": 2, "context": 16}, TEXT),
    "lstm": ({"vocabulary": 50, "num_classes": 3, "embedding": 12}, TEXT), "mlp": ({"sizes": (48, 33, 10)}, (3, 4, 4)),
    "mobilenet_v2": ({"width": 0.25, "num_classes": 7, "stages": [(1, 16, 1, 1), (6, 24, 2, 2)]}, IMAGE),
    "mobilenet_v3_large": ({"num_classes": 5, "hidden": 48, "blocks": BLOCKS}, IMAGE),
    "resnet": ({"depths": (1, 1), "width": 8, "num_classes": 7, "bottleneck": True}, IMAGE),
    "resnet18": ({"num_classes": 5, "width": 8}, IMAGE),
    "shufflenet_v2_x1_0": ({"depths": (2, 1), "channels": (8, 16, 24, 40), "num_classes": 7}, IMAGE),
    "unet": ({"width": 8, "depth": 2}, IMAGE), "vgg16": ({"layers": (8, 0, 16, 16, 0), "hidden": 24, "num_classes": 7}, (3, 64, 64)),
    "vit_tiny": ({"image": 32, "patch": 8, "width": 24, "heads": 3, "depth": 2, "num_classes": 7}, IMAGE),
}  # fmt: skip
ALIKE = {"resnet34", "resnet50", "vit_small", "vit_base"}  # of the layers of resnet18, resnet and vit_tiny


@pytest.mark.skipif(ort is None, reason="onnxruntime is not installed: what it computes is not compared, files are read again instead")
def test_files_are_compared_by_onnxruntime():
    assert "CPUExecutionProvider" in ort.get_available_providers()


def test_every_network_of_the_zoo_is_written():
    assert NETWORKS.keys() | ALIKE == set(tengen.models.list_models())


def theirs(proto, *inputs):
    """onnxruntime's outputs; where it is not installed, those of the file read again."""
    if ort is None:
        made = load(proto)(*inputs)
        return [t.numpy() for t in (made if isinstance(made, tuple) else (made,))]
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {i.name: x for i, x in zip(session.get_inputs(), inputs)})


def close(got, want, tolerance=2e-5):
    for a, b in zip(got, want, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        if a.dtype.kind == "f":
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * max(1.0, np.abs(b).max(initial=0)))
        else:
            assert (a == b).all()


@but(every=6)
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_of_the_zoo(name):
    options, shape = NETWORKS[name]
    tengen.random.seed(0)
    net = getattr(tengen.models, name)(**options).eval()
    data = RNG.integers(0, 50, (2, *shape)).astype(np.int32) if len(shape) == 1 else RNG.standard_normal((2, *shape)).astype(np.float32)
    run = trace(net)
    want = run(Tensor(data))
    want = [t.numpy() for t in (want if isinstance(want, tuple) else (want,))]
    proto = to_proto(run)
    close(theirs(proto, data), want)
    large = [t.name for t in proto.graph.initializer if len(t.raw_data) > 4096]
    assert all(k.startswith(("known", *net.state_dict())) for k in large)  # named as in the module, but for what the file needs
    assert to_proto(run).SerializeToString() == proto.SerializeToString()
    if name in ("lenet", "lstm", "mlp", "resnet"):  # of ops that are operators: the way back has the same bits
        assert load(proto)(Tensor(data)).numpy().tobytes() == want[0].tobytes()


def functions():
    """Functions of one or two images (2, 3, 4, 5), by name."""
    yield "arithmetic", lambda x, y: ((x + y) * 2 - x / (F.abs(y) + 1), F.square(x) ** 1.5, x > y, F.maximum(x, y), F.where(x < 0, y, -x))
    yield "functions", lambda x, y: (
        F.exp(x), F.log1p(F.abs(x)), F.expm1(x), F.sin(y), F.atan(x), F.cbrt(x), F.erfc(x), F.hypot(x, y), F.logaddexp(x, y), F.trunc(x * 3),
    )
    yield "activations", lambda x, y: (
        F.gelu(x), F.gelu(x, "tanh"), F.silu(x), F.hswish(x), F.hsigmoid(x), F.mish(x), F.elu(x, 0.7), F.selu(x), F.leaky_relu(x, 0.2),
        F.relu6(x * 9), F.softplus(x), F.logsigmoid(x), F.prelu(x, y),
    )
    yield "shapes", lambda x, y: (
        x.reshape(6, -1), F.transpose(x, (2, 0, 3, 1)), x[:, 1:, ::2, ::-1], F.concat([x, y], 2), F.pad(x, [(0, 0), (0, 0), (1, 2), (0, 3)]),
        F.stack([x, y], 1), F.broadcast_to(x[:, :1], (2, 3, 4, 5)), F.repeat(x, 2, 1), F.tile(x[0, 0], (2, 3)), F.roll(x, 2, 3),
    )
    yield "reductions", lambda x, y: (
        x.sum((1, 3)), x.mean(), F.max(x, 2, keepdims=True), F.prod(x, 3), F.var(x, 1), F.argmax(x, 2), F.any(x > 2, 1), F.logsumexp(x, 1),
        F.softmax(x, 1), F.cumsum(x, 3), F.norm(x, axis=2), (x > 0).sum(0),
    )
    yield "indexing", lambda x, y: (
        F.gather(x, 3, F.argmax(y, 3, keepdims=True)), x[:, :, F.argmax(y[0, 0, :, :4], 1)], F.one_hot(F.argmax(x, 3), 5), F.sort(x, axis=2)[0],
        F.topk(x, 2, axis=3)[1], F.astype(x * 5, "int32"), F.floor_div(F.astype(x * 50, "int32"), 7), F.mod(F.astype(x * 50, "int32"), 7),
    )
    yield "windows", lambda x, y: (
        F.max_pool2d(x, 2), F.avg_pool2d(x, 2, padding=1), F.conv2d(x, y[:, :, :3, :3], padding=1), F.interpolate(x, scale_factor=2),
        F.conv_transpose2d(x, F.permute(y[:, :, :2, :2], (1, 0, 2, 3)), stride=2), F.layer_norm(x, (5,), False),
        F.scaled_dot_product_attention(x, y, y, is_causal=True), F.scaled_dot_product_attention(x, y, y, x[:, :, :, :4] > 0.1),
    )
    yield "loops", lambda x, y: (
        F.scan(lambda s, t: (s * 0.5 + t, s), x[0, 0], F.permute(y[0], (0, 1, 2)), reverse=True)[1],
        F.cond(x.sum() > 0, lambda a: a * 2, lambda a: a - 1, x),
        *F.while_loop(lambda i, v: v.sum() < 50, lambda i, v: (i + 1, v * 1.5 + F.abs(y[0, 0])), 0, F.abs(x[0, 0])),
        *F.scan(lambda s, _: (s * 0.5 + x[0], s.sum()), y[0], length=4),
    )


@but(every=3)
@pytest.mark.parametrize("f", [f for _, f in functions()], ids=[name for name, _ in functions()])
def test_ops(f):
    x, y = (RNG.standard_normal((2, 3, 4, 5)).astype(np.float32) for _ in range(2))
    run = trace(f, symbolic=True)
    want = [t.numpy() for t in run(Tensor(x), Tensor(y))]
    close(theirs(to_proto(run), x, y), want)


def test_open_extents_and_the_way_back(tmp_path):
    net = M.Sequential(M.Conv2d(3, 4, 3, padding=1), M.BatchNorm2d(4), M.ReLU(), M.AdaptiveAvgPool2d(1), M.Flatten(), M.Linear(4, 2)).eval()
    run = trace(lambda x: (net(x), x.reshape(x.shape[0] * x.shape[1], -1)), dynamic_axes={"x": {0: "batch", 2: "height"}}, symbolic=True)
    run(Tensor(np.zeros((2, 3, 8, 6), np.float32)))
    save(run, tmp_path / "net.onnx", metadata={"author": "us"})
    proto = onnx.load(tmp_path / "net.onnx")
    assert [d.dim_param or d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim] == ["batch", 3, "height", 6]
    assert {p.key: p.value for p in proto.metadata_props} == {"author": "us"}
    assert {"0/Conv", "5/Gemm"} <= {n.name for n in proto.graph.node}  # the module whose weights they read
    back = load(tmp_path / "net.onnx")
    for n, h in ((1, 5), (3, 8)):
        x = RNG.standard_normal((n, 3, h, 6)).astype(np.float32)
        want = [t.numpy() for t in run(Tensor(x))]
        close(theirs(proto, x), want)
        close([t.numpy() for t in back(x)], want)


def test_the_command(tmp_path):
    run = trace(lambda x: F.relu(x) * 2, example_input=Tensor(np.ones((2, 3), np.float32)))
    run.dump(tmp_path / "net.tgn", arg_names=["x"], output_names=["y"])
    made = CliRunner().invoke(main, ["export", str(tmp_path / "net.tgn")])
    assert made.exit_code == 0 and made.output.startswith(f"{tmp_path / 'net.onnx'}: ")
    x = RNG.standard_normal((2, 3)).astype(np.float32)
    close(theirs(onnx.load(tmp_path / "net.onnx"), x), [run(Tensor(x)).numpy()])


def test_the_command_line_tells_everything_that_does_not_fit(tmp_path):
    """All lines of a list, with names and the user's lines; and where a node of a file is that cannot be recorded."""
    trace(lambda x: F.erf(F.sin(x)) + F.cumsum(x, 1), example_input=Tensor(np.ones((2, 3), np.float32))).dump(tmp_path / "net.tgn")
    made = CliRunner().invoke(main, ["export", str(tmp_path / "net.tgn"), "--for", "mace"])
    assert made.exit_code == 1 and made.output.startswith("Error: this does not fit mace:\n")
    for op in ("Sin", "Erf", "CumSum"):
        assert f"it has no operator {op} [at test_onnx_out.py:" in made.output
    text = "net (float[2] x) => (float[2] y) { a = Nonsense(x)  y = Folly(a) }"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}'), str(file := tmp_path / "unknown.onnx"))
    made = CliRunner().invoke(main, ["import", str(file)])
    assert made.exit_code == 1 and "-> a: Nonsense" in made.output and "-> y: Folly" in made.output
    text = "net (float[2] x) => (int64[1, n] y) { y = NonZero(x) }"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}'), str(file))
    made = CliRunner().invoke(main, ["import", str(file)])
    assert made.exit_code == 1 and "in the ONNX node" in made.output and "NonZero(float32[2]) -> y" in made.output


def opset_of(proto):
    return proto.opset_import[0].version


def test_the_lowest_opset_that_can_say_it():
    """Forms of older opsets, whose results are the same; a higher one on request; what one cannot say is told with the reason."""
    x = RNG.standard_normal((2, 3, 8, 8)).astype(np.float32)
    net = M.Sequential(M.Conv2d(3, 4, 3), M.ReLU6(), M.MaxPool2d(2), M.Flatten(), M.Linear(36, 5)).eval()
    traced = lambda f: trace(f, example_input=Tensor(x))
    conv = traced(net)
    cases = (
        (conv, 7), (traced(lambda x: F.maximum(x, 0.5)), 8), (traced(lambda x: F.where(x > 0, x, 1.0)), 9),
        (traced(lambda x: x[:, :, ::2].sum(1)), 7), (traced(lambda x: F.cumsum(x, 1)), 11), (traced(lambda x: F.hswish(x)), 7),
        (traced(lambda x: x.mean((1, 2))), 7), (traced(lambda x: F.mish(x)), 7),
        (traced(lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True)), 9),
    )  # fmt: skip
    for run, opset in cases:
        want = [run(Tensor(x)).numpy()]
        assert opset_of(to_proto(run)) == opset
        for version in {opset, 11, 13, 18, 21} - set(range(opset)):
            proto = to_proto(run, opset=version)
            assert opset_of(proto) == version
            close(theirs(proto, x), want)
            close([load(proto)(x).numpy()], want)
    with pytest.raises(ArgumentError, match=r"does not fit opset 13:\n  BitwiseAnd .*: opset 13 has no such operator"):
        to_proto(traced(lambda x: F.bitwise_and(x.astype("int32"), 5)), opset=13)
    with pytest.raises(ArgumentError, match="is an attribute, and here it is computed"):
        to_proto(trace(lambda x: x[:, : x.shape[0]], dynamic_axes={"x": {0: "n"}}, symbolic=True, example_input=Tensor(x)), opset=9)


@since("onnxruntime", "1.31", "it has no kernel for some of these operators")
def test_operators_that_older_opsets_say_by_several():
    """Bits stay, of NaN and infinities, of negative numbers and the ends of integers."""
    x = np.array([[0.0, -0.0, 1.5, -2.0, np.nan, np.inf, -np.inf, 3e38], [0.0, 0.0, np.nan, 2.0, np.nan, np.inf, np.inf, -3e38]], np.float32)
    i = np.array([[-(1 << 31), (1 << 31) - 1, -7, 7, -7, 7, 0, 3], [1, -1, 3, -3, -3, 3, 5, 3]], np.int32)
    small = i.astype(np.int8)
    floats = lambda x: (x[0] >= x[1], x[0] <= x[1], F.equal(x[0], x[1]), F.not_equal(x[0], x[1]), F.isinf(x), x[:, ::-3], x[::-1, 1:7:2])
    ordered = lambda x: (*F.sort(x, axis=1), F.scatter(x, 1, Tensor([[3], [0]]), Tensor([[9.0], [8.0]])), F.max(x, axis=-1))
    whole = lambda i: (i[0] >= i[1], i[0] <= i[1], F.maximum(*i), F.minimum(*i), F.mod(i[0], i[1]), F.bitwise_not(i), i[:, ::-2])
    narrow = lambda s: (s + s, s * s, s - s[::-1], F.bitwise_not(s), F.maximum(s[0], s[1]))
    for f, given, opset in ((floats, x, 9), (ordered, x[:, [0, 2, 3, 5, 6, 7]][[0, 0]], 9), (whole, i, 9), (narrow, small, 9)):
        run = trace(f, example_input=Tensor(given))
        want = [t.numpy() for t in run(Tensor(given))]
        assert opset_of(to_proto(run)) == opset
        for version in (opset, 11, 13, 18):
            proto = to_proto(run, opset=version)
            for a, b in zip(theirs(proto, given), want, strict=True):
                assert a.dtype == b.dtype and a.tobytes() == b.tobytes(), (version, a, b)
            assert [t.numpy().tobytes() for t in load(proto)(given)] == [b.tobytes() for b in want]


def test_who_will_read_it():
    x = RNG.standard_normal((1, 3, 32, 32)).astype(np.float32)
    net = tengen.models.mobilenet_v2(**NETWORKS["mobilenet_v2"][0]).eval()
    run = trace(net, example_input=Tensor(x))
    found = {name: opset_of(to_proto(run, runtime=name)) for name in RUNTIMES}
    assert found == {"mace": 7, "tengine": 7, "tensorrt": 9, "openvino": 7, "coreml": 7}
    close(theirs(to_proto(run, runtime="tensorrt"), x), [run(Tensor(x)).numpy()])
    odd = trace(lambda x: F.cumsum(F.erf(x), 1), example_input=Tensor(x))
    said = r"(?s)does not fit mace:.*opsets 7 to 9, this is 11.*Erf_node: it has no operator Erf \[at .*out.py"
    with pytest.raises(ArgumentError, match=said):
        to_proto(odd, runtime="mace")
    gates = trace(lambda x: F.hswish(x) + F.hsigmoid(x), example_input=Tensor(x))  # of operators that MACE has
    proto = to_proto(gates, runtime="mace")
    assert {n.op_type for n in proto.graph.node} <= {"Mul", "Add", "Clip", "Identity"}
    close(theirs(proto, x), [gates(Tensor(x)).numpy()])
    at = Tensor([0])
    added = trace(lambda x: grad(lambda x: x[at, at].sum())(x), example_input=Tensor(x))  # adds where the elements come from
    with pytest.raises(ArgumentError, match=r"its ScatterND takes no reduction \[at .*out.py"):
        to_proto(added, runtime="tensorrt")
    wide = trace(net, dynamic_axes={"x": {0: "batch"}}, symbolic=True, example_input=Tensor(x))
    wide(Tensor(x))
    with pytest.raises(ArgumentError, match="open extents, .'batch', 3, 32, 32"):
        to_proto(wide, runtime="tengine")
    assert opset_of(to_proto(wide, runtime="openvino")) <= 18
    with pytest.raises(ArgumentError, match="runtime='abacus': there are mace"):
        to_proto(run, runtime="abacus")


def test_openvino_reads_what_is_written_for_it():
    openvino = pytest.importorskip("openvino", reason="openvino is not installed: its results are not compared")
    x = RNG.standard_normal((1, 3, 32, 32)).astype(np.float32)
    for name in ("resnet18", "convnext_tiny"):
        run = trace(getattr(tengen.models, name)(**NETWORKS[name][0]).eval(), example_input=Tensor(x))
        proto = to_proto(run, runtime="openvino")
        model = openvino.Core().compile_model(openvino.Core().read_model(proto.SerializeToString()), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        close([next(iter(model(x).values()))], [run(Tensor(x)).numpy()], 1e-3)


def test_weights_are_read_where_they_lie():
    """Not from a copy in memory, of which files of many gigabytes would need two."""
    net = M.Linear(40, 30).eval()
    run = trace(net, example_input=Tensor(np.ones((2, 40), np.float32)))
    for program in (run, graph := Graph.of(net, np.ones((2, 40), np.float32))):
        arrays = [c.data for c in as_model(program).graph.constants.values()]
        held = net.weight.numpy() if program is run else graph.constants["weight"].data
        assert any(np.shares_memory(a, held) for a in arrays)
    with pytest.raises(ArgumentError, match="a Graph, got a list"):
        as_model([run])


def test_what_cannot_be_said():
    x = Tensor(np.ones((2, 3), np.float32))
    run = trace(lambda x: F.digamma(x) + F.lgamma(x), example_input=x)
    with pytest.raises(ArgumentError, match=r"(?s)digamma\(f32\[2,3\]\): ONNX has no gamma function \[at .*lgamma") as e:
        to_proto(run)
    assert "test_onnx_out.py" in str(e.value)
    counter = Tensor(np.zeros((), np.float32))

    def counting(x):
        counter[...] = counter + 1
        return x * counter

    with pytest.raises(ArgumentError, match="keeps the states"):
        to_proto(trace(counting, example_input=x))
    with pytest.raises(ArgumentError, match="opset=6"):
        to_proto(run, opset=6)
    with pytest.raises(ArgumentError, match="a Graph, got a Linear; help: trace"):
        to_proto(M.Linear(3, 2))


def test_a_comparison_of_open_extents_is_refused():
    """With other extents the file would compute what the function does not."""
    f = trace(lambda x: x * 2 if x.shape[0] > 4 else x + 1, symbolic=True, dynamic_axes={0: "n"})
    f(Tensor(np.ones((6, 3), np.float32)))
    with pytest.raises(ArgumentError, match="was recorded for n > 4 .* which ONNX cannot say"):
        to_proto(f)


def test_weights_that_no_file_holds_are_in_a_second_one(tmp_path, monkeypatch):
    """Above 2 GB (here: 10,000 bytes) large arrays lie beside the model, and both files are replaced together."""
    monkeypatch.setattr(sys.modules["tengen.interop.onnx.save"], "LARGEST", 10_000)
    net = M.Sequential(M.Linear(40, 70), M.ReLU(), M.Linear(70, 5)).eval()
    x = RNG.standard_normal((3, 40)).astype(np.float32)
    run = trace(net, example_input=Tensor(x))
    with pytest.raises(ArgumentError, match="bytes of weights, a message of ONNX less than 10,000; help: save writes two files"):
        to_proto(run)
    for _ in range(2):
        save(run, tmp_path / "net.onnx")
        assert sorted(f.name for f in tmp_path.iterdir()) == ["net.onnx", "net.onnx.data"]
    assert (tmp_path / "net.onnx").stat().st_size < 4000 and (tmp_path / "net.onnx.data").stat().st_size >= 40 * 70 * 4
    onnx.checker.check_model(tmp_path / "net.onnx", full_check=True)
    assert load(tmp_path / "net.onnx")(x).numpy().tobytes() == net(Tensor(x)).numpy().tobytes()
    if ort:
        session = ort.InferenceSession(str(tmp_path / "net.onnx"))
        close(session.run(None, {session.get_inputs()[0].name: x}), [net(Tensor(x)).numpy()])


class Biased(M.Module):
    """Layers with biases, of which two are read by something else too, and two are equal."""

    def __init__(self):
        super().__init__()
        rng = np.random.default_rng(0)
        self.grouped, self.plain, self.twin = M.Conv2d(4, 6, 3, groups=2), M.Conv2d(6, 6, 1), M.Conv2d(6, 6, 1)
        self.line, self.fc, self.rows = M.Conv1d(6, 5, 2), M.Linear(5, 3), M.Linear(3, 3)
        for p in self.parameters():
            p[:] = rng.standard_normal(p.shape).astype(np.float32)
        self.twin.bias[:] = self.plain.bias

    def forward(self, x):
        y = F.relu(self.grouped(x))
        y = self.plain(y) * self.twin(y) + self.grouped.bias.reshape(1, 6, 1, 1)
        y = self.fc(self.line(y.reshape(y.shape[0], 6, -1)).mean(2))
        both = F.matmul(y, self.rows.weight, transpose_b=True)  # is read twice, so that its sum is no layer
        return both + self.rows.bias, both, self.rows(F.stack([y, y]))


def test_layers_have_their_biases(tmp_path):
    """A Conv or Gemm each, with no Reshape of a bias and no Transpose of a weight, for runtimes that fold no constants; the bits are kept."""
    net, x = Biased(), np.random.default_rng(1).standard_normal((2, 4, 5, 5)).astype(np.float32)
    run = trace(net, example_input=Tensor(x))
    path = tmp_path / "net.onnx"
    save(run, path)
    proto = onnx.load(path)
    nodes = [n for n in proto.graph.node if n.op_type in ("Conv", "Gemm")]
    assert [(n.op_type, len(n.input)) for n in nodes] == [("Conv", 3)] * 4 + [("Gemm", 3)]
    shapes = {t.name: tuple(t.dims) for t in proto.graph.initializer}
    assert all(len(shapes[n.input[2]]) == 1 for n in nodes) and "fc.bias" in nodes[-1].input and shapes["fc.bias"] == (3,)
    assert shapes["line.bias"] == (5,)  # a name that was one array's stays its name
    assert sum(n.op_type == "Transpose" for n in proto.graph.node) == 2  # of the weight of the rows, which Gemm does not take
    again = load(path)
    assert [a.numpy().tobytes() for a in again(x)] == [a.numpy().tobytes() for a in run(Tensor(x))]
    with pytest.raises(ArgumentError, match="Conv_node: its Conv has 1 or as many groups as filters, with a channel each; this has 2"):
        to_proto(trace(net.grouped, example_input=Tensor(x)), runtime="mace")
    back = M.ConvTranspose2d(4, 4, 3, stride=2, output_padding=1)
    for runtime, taken in (("mace", False), ("tengine", True)):
        try:
            assert to_proto(trace(back, example_input=Tensor(x)), runtime=runtime) and taken
        except ArgumentError as error:
            assert not taken and "output_padding" in str(error)
    ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: what it computes is not compared")
    have = ort.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {proto.graph.input[0].name: x})
    for a, b in zip(have, run(Tensor(x))):
        np.testing.assert_allclose(a, b.numpy(), rtol=1e-5, atol=1e-5 * np.abs(a).max())


def test_readers_of_other_files_name_what_reads_it(tmp_path):
    file, x = tmp_path / "model", Tensor(np.ones((2, 3), "float32"))
    trace(lambda x: x * 2, example_input=x).dump(tmp_path / "m.tgn", arg_names=["x"])
    save(tengen.load_graph(tmp_path / "m.tgn"), file)
    for read_it in (tengen.load, tengen.load_graph):
        with pytest.raises(FileFormatError, match=r"ONNX file; help: tengen\.interop\.onnx\.load"):
            read_it(file)
