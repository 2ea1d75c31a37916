"""Models as TFLite files: TFLite's interpreter computes what they compute, and they come back."""

import numpy as np
import pytest
from click.testing import CliRunner
from exhaustive import but
from tflite_cases import differ, theirs

pytest.importorskip("tflite", reason="the package tflite is not installed: TFLite files are not written")

import tengen
import tengen.functional as F
import tengen.module as M
from tengen import Tensor, trace
from tengen.base.errors import ArgumentError, FileFormatError
from tengen.cli.main import main
from tengen.interop.tflite import load, save, to_bytes
from tengen.interop.tflite.reader import read

RNG = np.random.default_rng(0)
IMAGE, TEXT = (3, 32, 32), (9,)
BLOCKS = [(3, 16, 16, False, "relu", 1), (3, 64, 24, False, "relu", 2), (5, 72, 24, True, "relu", 1), (3, 96, 40, True, "hswish", 2)]
NETWORKS = {
    "lenet": ({}, (1, 32, 32)), "resnet18": ({"num_classes": 5, "width": 8}, IMAGE),
    "mobilenet_v2": ({"width": 0.25, "num_classes": 5, "stages": [(1, 16, 1, 1), (6, 24, 2, 2)]}, IMAGE),
    "mobilenet_v3_large": ({"num_classes": 5, "hidden": 48, "blocks": BLOCKS}, IMAGE),
    "shufflenet_v2_x1_0": ({"depths": (2, 1), "channels": (8, 16, 24, 40), "num_classes": 5}, IMAGE),
    "convnext_tiny": ({"depths": (1, 2), "channels": (16, 32), "num_classes": 7}, IMAGE), "unet": ({"width": 8}, IMAGE),
    "bert_base": ({"vocabulary": 50, "width": 24, "heads": 3, "depth": 2, "context": 16}, TEXT),
    "gpt": ({"vocabulary": 50, "width": 24, "heads": 3, "layers": 2, "context": 16}, TEXT),
    "lstm": ({"vocabulary": 50, "num_classes": 3, "embedding": 12}, TEXT),
    "vit_tiny": ({"image": 32, "patch": 8, "width": 24, "heads": 3, "depth": 2, "num_classes": 5}, IMAGE),
    "llama": ({"layers": 2, "width": 24, "heads": 4, "groups": 2, "hidden": 40, "vocabulary": 50, "context": 16}, TEXT),
}  # fmt: skip


@but(every=6)
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_of_the_zoo(name):
    options, shape = NETWORKS[name]
    tengen.random.seed(0)
    net = getattr(tengen.models, name)(**options).eval()
    data = (
        RNG.integers(0, 50, (2, *shape)).astype(np.int32)
        if len(shape) == 1
        else RNG.standard_normal((2, *shape)).astype(np.float32)
    )
    run = trace(net)
    want = run(Tensor(data))
    want = [t.numpy() for t in (want if isinstance(want, tuple) else (want,))]
    got = theirs(to_bytes(run), data, reference=False)
    assert not differ(got, want, 0, 2e-5), differ(got, want, 0, 2e-5)


def functions():
    """Functions of two images (2, 3, 4, 5), by name."""
    yield (
        "arithmetic",
        lambda x, y: (
            (x + y) * 2 - x / (F.abs(y) + 1),
            F.square(x),
            x > y,
            F.maximum(x, y),
            F.where(x < 0, y, -x),
            F.pow(F.abs(x), y),
        ),
    )
    yield (
        "functions",
        lambda x, y: (
            F.exp(x),
            F.log1p(F.abs(x)),
            F.expm1(x),
            F.sin(y),
            F.sqrt(F.abs(x)),
            F.sign(y),
            F.floor(x * 3),
            F.round(x * 3),
            1 / (x + 9),
        ),
    )
    yield (
        "activations",
        lambda x, y: (
            F.gelu(x),
            F.gelu(x, "tanh"),
            F.silu(x),
            F.hswish(x),
            F.hsigmoid(x),
            F.mish(x),
            F.elu(x),
            F.leaky_relu(x, 0.2),
            F.relu6(x * 9),
            F.softplus(x),
            F.prelu(x, y),
            F.tanh(x),
        ),
    )
    yield (
        "shapes",
        lambda x, y: (
            x.reshape(6, -1),
            F.transpose(x, (2, 0, 3, 1)),
            x[:, 1:, ::2, ::-1],
            F.concat([x, y], 2),
            F.pad(x, [(0, 0), (0, 0), (1, 2), (0, 3)]),
            F.stack([x, y], 1),
            F.broadcast_to(x[:, :1], (2, 3, 4, 5)),
            F.repeat(x, 2, 1),
            F.tile(x[0, 0], (2, 3)),
        ),
    )
    yield (
        "reductions",
        lambda x, y: (
            x.sum((1, 3)),
            x.mean(),
            F.max(x, 2, keepdims=True),
            F.prod(x, 3),
            F.argmax(x, 2),
            F.any(x > 2, 1),
            F.softmax(x, 1),
            F.cumsum(x, 3),
            (x > 0).sum(0),
        ),
    )
    yield "windows", lambda x, y: windows(F.conv2d(x, Tensor(np.ones((3, 3, 3, 3), np.float32)), padding=1), y)
    yield (
        "attention",
        lambda x, y: (
            F.scaled_dot_product_attention(x, y, y, is_causal=True),
            F.scaled_dot_product_attention(x, y, y, x[:, :, :, :4] > -9.0),
            F.matmul(x, F.transpose(y, (0, 1, 3, 2))),
        ),
    )


WEIGHT = Tensor(RNG.standard_normal((3, 3, 2, 2)).astype(np.float32))


def windows(x, y):
    """What keeps channels last between convolutions, and what does not."""
    return (
        F.max_pool2d(x, 2), F.avg_pool2d(x, 2, padding=1), F.avg_pool2d(x, 3, 1, 1, "average"), F.conv2d(F.relu(x) * y, WEIGHT, stride=2),
        F.conv_transpose2d(x, WEIGHT, stride=2, padding=1), x.mean((2, 3)), x.sum(1), x.max(2), F.concat([x, x * 2], 1)[:, 1:5], x + 1,
        F.transpose(x, (0, 2, 3, 1)), x.reshape(2, -1), F.softmax(x, 1), F.pad(x, [(0, 0), (1, 0), (0, 1), (0, 0)]),
    )  # fmt: skip


@but(every=3)
@pytest.mark.parametrize("f", [f for _, f in functions()], ids=[name for name, _ in functions()])
def test_ops(f):
    x, y = (RNG.standard_normal((2, 3, 4, 5)).astype(np.float32) for _ in range(2))
    run = trace(f, symbolic=True)
    want = [t.numpy() for t in run(Tensor(x), Tensor(y))]
    data = to_bytes(run)
    got = theirs(data, x, y, reference=False)
    assert not differ(got, want, 0, 2e-5), differ(got, want, 0, 2e-5)
    back = [t.numpy() for t in load(data)(x, y)]
    assert not differ(back, want, 0, 2e-5), differ(back, want, 0, 2e-5)


def test_pictures_are_turned_at_the_border_alone():
    net = M.Sequential(
        M.Conv2d(3, 4, 3, padding=1), M.BatchNorm2d(4), M.ReLU(), M.MaxPool2d(2), M.Conv2d(4, 4, 3), M.ReLU()
    ).eval()
    ops = [o.op for o in read(to_bytes(trace(net, example_input=Tensor(np.ones((1, 3, 8, 8), np.float32))))).graph.operators]
    assert ops == ["TRANSPOSE", "PADV2", "CONV_2D", "MAX_POOL_2D", "CONV_2D", "TRANSPOSE", "RESHAPE"]


def test_layers_take_in_what_follows_them():
    """Batch norms and functions become part of a layer, unless something else reads the result between; what is left over is not written."""
    net = M.Sequential(M.Conv2d(3, 4, 3), M.BatchNorm2d(4), M.ReLU6(), M.Conv2d(4, 4, 3, groups=4), M.ReLU()).eval()
    for p in net.parameters():
        p._reset(Tensor(RNG.standard_normal(p.shape).astype(np.float32)))
    norm = list(net.children())[1]
    norm.running_var._reset(Tensor(np.array([0.5, 2, 1, 3], np.float32).reshape(norm.running_var.shape)))
    x = RNG.standard_normal((2, 3, 8, 8)).astype(np.float32)
    run = trace(net, example_input=Tensor(x))
    data = to_bytes(run)
    graph = read(data).graph
    assert [o.op for o in graph.operators] == ["TRANSPOSE", "CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE", "RESHAPE"]
    assert sum(t.data is not None and t.dtype == np.float32 for t in graph.tensors) == 4
    assert not differ(theirs(data, x, reference=False), [run(Tensor(x)).numpy()], 0, 2e-5)
    weight = Tensor(np.eye(5, 8, dtype=np.float32))
    both = trace(lambda x: [(y := F.matmul(x, weight, transpose_b=True)), F.relu(y + 1)], example_input=Tensor(x))
    got = theirs(to_bytes(both), x, reference=False)
    assert not differ(got, [t.numpy() for t in both(Tensor(x))], 0, 2e-5) and got[0].min() < 0


def test_a_file_and_its_names(tmp_path):
    run = trace(lambda x: F.relu(x) * 2, example_input=Tensor(np.ones((2, 3), np.float32)))
    run.dump(tmp_path / "net.tgn", arg_names=["pixels"], output_names=["scores"])
    save(tengen.load_graph(tmp_path / "net.tgn"), tmp_path / "net.tflite")
    made = CliRunner().invoke(main, ["export", str(tmp_path / "net.tgn"), "-o", str(tmp_path / "again.tflite")])
    assert made.exit_code == 0 and (tmp_path / "again.tflite").read_bytes() == (tmp_path / "net.tflite").read_bytes()
    model = load(tmp_path / "net.tflite")
    assert [p.name for p in (*model.inputs, *model.outputs)] == ["pixels", "scores"]
    assert model(pixels=-np.ones((2, 3), np.float32)).tolist() == [[0.0] * 3] * 2


def test_what_cannot_be_said():
    x = Tensor(np.ones((2, 3), np.float32))
    run = trace(lambda x: F.lgamma(x) + F.elu(x, 0.5) + F.atan(x), example_input=x)
    with pytest.raises(
        ArgumentError, match=r"(?s)lgamma\(f32\[2,3\]\): TFLite has no operator for it \[at .*elu\(.*alpha=0.5.*atan"
    ) as e:
        to_bytes(run)
    assert "test_tflite_out.py" in str(e.value)
    counter = Tensor(np.zeros((), np.float32))

    def counting(x):
        counter[...] = counter + 1
        return x * counter

    with pytest.raises(ArgumentError, match="keeps the states"):
        to_bytes(trace(counting, example_input=x))
    with pytest.raises(ArgumentError, match="got a Linear; help: trace"):
        to_bytes(M.Linear(3, 2))
    opened = trace(lambda x: x + 1, dynamic_axes={"x": {0: "batch"}}, symbolic=True)
    opened(x)
    with pytest.raises(ArgumentError, match=r"open extents batch; help: model.at\(batch=1\)"):
        to_bytes(opened)
    with pytest.raises(ArgumentError, match="TFLite does not compute with float64"):
        to_bytes(trace(lambda x: F.relu(x.astype("float64")), example_input=x))


def test_readers_of_other_files_name_what_reads_it(tmp_path):
    file, x = tmp_path / "model", Tensor(np.ones((2, 3), "float32"))
    trace(lambda x: x * 2, example_input=x).dump(tmp_path / "m.tgn", arg_names=["x"])
    save(tengen.load_graph(tmp_path / "m.tgn"), file)
    for read_it in (tengen.load, tengen.load_graph):
        with pytest.raises(FileFormatError, match=r"TFLite file; help: tengen\.interop\.tflite\.load"):
            read_it(file)
