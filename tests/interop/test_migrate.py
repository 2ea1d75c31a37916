"""Out of other frameworks: what `to_safetensors.py` writes in their environments, loaded here, gives equal results.

The frameworks need other environments: MEGENGINE_PYTHON, KERAS_PYTHON, PADDLE_PYTHON, FLAX_PYTHON and MINDSPORE_PYTHON name Pythons
that have them, else those tests are skipped. `traced.*` and `dumped.*` are what MegEngine 1.13 gave;
`python tests/interop/test_migrate.py PYTHON` writes them anew.
"""

import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tengen.functional as F
import tengen.module as M
from tengen import Tensor, models, trace
from tengen.autodiff import GradManager
from tengen.base.errors import FileFormatError
from tengen.deploy.tensorfile import read_tensors, write_tensors
from tengen.interop import migrate, onnx, tflite, weights

HERE = Path(__file__).resolve().parent
TRACED, RESULTS, DUMPED = HERE / "traced.safetensors", HERE / "traced.npz", HERE / "dumped.safetensors"
RTOL = 2e-6


def other(name):
    """The Python that has a framework; the test is skipped where there is none."""
    found = os.environ.get(f"{name}_PYTHON")
    if not found:
        pytest.skip(f"{name}_PYTHON names no Python that has it: what it gave before is compared, where it was kept")
    return found


def run(*words):
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def same_as(net, folder, name="results.npz", rtol=RTOL):
    with np.load(folder / name) as f:
        y = net(Tensor(f["x"])).numpy()
        np.testing.assert_allclose(y, f["y"], rtol=0, atol=rtol * np.abs(f["y"]).max())


def test_a_traced_module_of_megengine():
    net = migrate.load_megengine(TRACED)
    same_as(net, HERE, "traced.npz")
    x = Tensor(np.load(RESULTS)["x"])
    assert trace(net)(x).numpy().tobytes() == net(x).numpy().tobytes()
    gm = GradManager().attach(net.parameters())
    with gm:
        gm.backward(F.sum(net.train()(x)[:, 0]))
    assert all(p.grad is not None for p in net.parameters())


def test_a_graph_that_megengine_dumped():
    net = migrate.load_megengine(DUMPED)
    same_as(net, HERE, "dumped.npz")
    x = Tensor(np.load(RESULTS)["x"])
    assert trace(net)(x).numpy().tobytes() == net(x).numpy().tobytes()


def test_megengine_itself(tmp_path):
    python = other("MEGENGINE")
    run(python, HERE / "in_megengine.py", tmp_path)
    run(python, migrate.script(), "megengine-graph", tmp_path / "net.tm", tmp_path / "net.safetensors")
    same_as(migrate.load_megengine(tmp_path / "net.safetensors"), tmp_path)
    run(python, migrate.script(), "megengine-dump", tmp_path / "net.mge", tmp_path / "dumped.safetensors")
    same_as(migrate.load_megengine(tmp_path / "dumped.safetensors"), tmp_path, "dumped.npz")
    run(python, migrate.script(), "megengine", tmp_path / "net.pkl", tmp_path / "weights.safetensors")
    layers = dict(conv=M.Conv2d(3, 8, 3, 2, 1), bn=M.BatchNorm2d(8), depthwise=M.Conv2d(8, 8, 3, 1, 1, groups=8), fc=M.Linear(32, 5))
    net = M.Module()
    for name, layer in layers.items():
        setattr(net, name, layer)
    weights.load(net, tmp_path / "weights.safetensors", "megengine")
    theirs = {k.split(".", 1)[1] for k in read_tensors(tmp_path / "net.safetensors").arrays if k.startswith("layer")}
    assert theirs <= {k.split(".", 1)[1] for k in net.state_dict()}


KERAS = """
0.weight -> conv.kernel : HWIO
0.bias -> conv.bias
1.weight -> bn.gamma
1.bias -> bn.beta
1.running_mean -> bn.moving_mean
1.running_var -> bn.moving_variance
3.weight -> depthwise.kernel : HWCM
3.bias -> depthwise.bias
6.weight -> fc.kernel : T
6.bias -> fc.bias
"""


def test_keras_itself(tmp_path):
    python = other("KERAS")
    run(python, HERE / "in_keras.py", tmp_path)
    run(python, migrate.script(), "keras", tmp_path / "net.keras", tmp_path / "net.safetensors")
    layers = [M.Conv2d(3, 6, 3), M.BatchNorm2d(6), M.ReLU(), M.Conv2d(6, 6, 3, groups=6), M.AdaptiveAvgPool2d(1), M.Flatten(), M.Linear(6, 4)]
    net = M.Sequential(*layers).eval()
    weights.load(net, tmp_path / "net.safetensors", KERAS)
    same_as(lambda x: net(x.transpose(0, 3, 1, 2)), tmp_path)
    run(python, migrate.script(), "tensorflow", tmp_path / "saved", tmp_path / "variables.safetensors")
    theirs, found = (read_tensors(tmp_path / f"{n}.safetensors").arrays for n in ("net", "variables"))
    assert {a.tobytes() for a in theirs.values()} == {a.tobytes() for a in found.values()}
    pytest.importorskip("tflite", reason="the package tflite is not installed: TensorFlow's TFLite files are not read")
    same_as(tflite.load(tmp_path / "float.tflite"), tmp_path)
    with np.load(tmp_path / "integers.npz") as f:
        assert (tflite.load(tmp_path / "int8.tflite")(f["x"]).numpy() == f["y"]).all()
    pytest.importorskip("onnx", reason="onnx is not installed: tf2onnx's file is not read")
    run(python, "-m", "tf2onnx.convert", "--saved-model", tmp_path / "saved", "--output", tmp_path / "net.onnx")
    same_as(onnx.load(tmp_path / "net.onnx"), tmp_path)


class Small(M.Module):
    """The network of `in_paddle.py`, `in_flax.py` and `in_mindspore.py`, but for what each puts between its layers."""

    def __init__(self, norm=None, act=None, padding=0, stride=1):
        super().__init__()
        self.conv, self.bn = M.Conv2d(3, 6, 3, padding=padding), M.BatchNorm2d(6)
        self.depthwise, self.norm, self.act, self.fc = M.Conv2d(6, 6, 3, stride=stride, groups=6), norm, act, M.Linear(6, 4)
        self.eval()

    def forward(self, x):
        x = self.depthwise(F.relu(self.bn(self.conv(x))))
        x = (self.act(x) if self.act else x).mean((2, 3))
        return self.fc(self.norm(x) if self.norm else x)


def test_paddle_itself(tmp_path):
    python = other("PADDLE")
    run(python, HERE / "in_paddle.py", tmp_path)
    found = {n: getattr(models, n)(num_classes=7).eval() for n in ("resnet18", "mobilenet_v2")}
    found["net"] = net = Small(M.LayerNorm(6), F.gelu, padding=1, stride=2)
    for name, mine in found.items():
        run(python, migrate.script(), "paddle", tmp_path / f"{name}.pdparams", tmp_path / f"{name}.safetensors")
        weights.load(mine, tmp_path / f"{name}.safetensors", "paddle")
    found["net"] = lambda x: F.softmax(net(x), -1)
    pytest.importorskip("onnx", reason="onnx is not installed: paddle2onnx's files are not read")
    for name, mine in found.items():
        rtol = RTOL if name == "net" else 3e-5  # beside float64 Paddle is 1e-5 off in 50 layers of drawn weights, and we .6e-5
        same_as(mine, tmp_path, f"{name}.npz", rtol)
        m = onnx.load(tmp_path / f"{name}.onnx")
        assert not isinstance(m.inputs[0].shape[0], int), "the batch is open"
        same_as(m, tmp_path, f"{name}.npz", rtol)


FLAX = """
conv.weight -> params.conv.kernel : HWIO
depthwise.weight -> params.depthwise.kernel : HWIO
fc.weight -> params.fc.kernel : T
bn.weight -> params.bn.scale
bn.running_mean -> batch_stats.bn.mean
bn.running_var -> batch_stats.bn.var
norm.weight -> params.norm.scale
conv -> params.conv
depthwise -> params.depthwise
bn -> params.bn
norm -> params.norm
fc -> params.fc
"""


def test_flax_itself(tmp_path):
    """Its older and its newer modules; weights in bfloat16."""
    python = other("FLAX")
    run(python, HERE / "in_flax.py", tmp_path)
    for name in ("linen", "half", "nnx"):
        run(python, migrate.script(), "flax", tmp_path / f"{name}.msgpack", tmp_path / f"{name}.safetensors")
        net = Small(M.LayerNorm(6, eps=1e-6))
        lines = FLAX.replace("params.", "").replace("batch_stats.", "") if name == "nnx" else FLAX
        weights.load(net, tmp_path / f"{name}.safetensors", lines)
        same_as(lambda x, net=net: net(x.transpose(0, 3, 1, 2)), tmp_path, f"{name}.npz")
        kept = read_tensors(tmp_path / f"{name}.safetensors").arrays.values()
        assert {a.dtype.name for a in kept} == {"bfloat16" if name == "half" else "float32"}


MINDSPORE = """
bn.weight -> bn.gamma
bn.bias -> bn.beta
bn.running_mean -> bn.moving_mean
bn.running_var -> bn.moving_variance
"""


def test_mindspore_itself(tmp_path):
    python = other("MINDSPORE")
    run(python, HERE / "in_mindspore.py", tmp_path)
    run(python, migrate.script(), "mindspore", tmp_path / "net.ckpt", tmp_path / "net.safetensors")
    net = Small(padding=1, stride=2)
    weights.load(net, tmp_path / "net.safetensors", MINDSPORE)
    same_as(lambda x: F.softmax(net(x), -1), tmp_path, "net.npz")
    pytest.importorskip("onnx", reason="onnx is not installed: MindSpore's file is not read")
    same_as(onnx.load(tmp_path / "net.onnx"), tmp_path, "net.npz")


def test_the_script_alone_with_numpy_and_pytorch(tmp_path):
    """It runs in an isolated Python, and its file is one of ours; nested states have names with dots."""
    np.savez(tmp_path / "a.npz", **{"layer/W": np.ones((2, 3), np.float32), "layer/b": np.arange(3)})
    shutil.copy(migrate.script(), tmp_path / "convert.py")
    run(sys.executable, "-I", tmp_path / "convert.py", "chainer", tmp_path / "a.npz", tmp_path / "a.safetensors")
    found = read_tensors(tmp_path / "a.safetensors").arrays
    assert found.keys() == {"layer.W", "layer.b"} and (found["layer.b"] == [0, 1, 2]).all()
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: its files are not tried")
    torch.save({"state_dict": {"w": torch.ones(2).bfloat16(), "n": torch.tensor(3)}, "epoch": 3}, tmp_path / "b.pt")
    run(sys.executable, tmp_path / "convert.py", "torch", tmp_path / "b.pt", tmp_path / "b.safetensors")
    found = read_tensors(tmp_path / "b.safetensors").arrays
    assert found.keys() == {"w", "n"} and found["w"].dtype.name == "bfloat16" and (found["w"] == 1).all()


class Evil:
    def __reduce__(self):
        return os.system, ("touch harm",)


def altered(tmp_path, change, source=TRACED):
    found = read_tensors(source)
    graph = json.loads(found.texts["megengine"])
    change(graph)
    path = tmp_path / "altered.safetensors"
    write_tensors(path, found.arrays, {"megengine": json.dumps(graph)})
    return path


def test_graphs_that_are_none(tmp_path):
    def first(key):
        return lambda graph: next(c for c in graph["calls"] if key in c)

    cases = {
        "the function 'system'": lambda g: first("function")(g).update(function="system"),
        "the function '__import__'": lambda g: first("function")(g).update(function="__import__"),
        "the method '__class__'": lambda g: next(c for c in g["calls"] if c.get("method", "__call__") != "__call__").update(method="__class__"),
        "the layer 'Module'": lambda g: g["layers"]["layer0"].update({"class": "Module"}),
        "has more than the .* numbers": lambda g: next(r for r in g["layers"].values() if r["class"] == "Linear")["settings"].update(
            in_features=1 << 40
        ),
        "no layer": lambda g: first("layer")(g).update(layer="layer99"),
        "before it is made": lambda g: first("function")(g).update(args=[{"node": 9999}]),
        "is not known": lambda g: first("function")(g).update(args=[{"evil": 1}]),
        "damaged": lambda g: g.pop("inputs"),
        "an output is not made": lambda g: g.update(outputs=[12345]),
    }
    for message, change in cases.items():
        with pytest.raises(FileFormatError, match=message):
            migrate.load_megengine(altered(tmp_path, change))
    operator = lambda name: lambda g: next(c for c in g["calls"] if c.get("operator") == name)
    for message, change in {
        "the operator 'SVD', the operator Elemwise of 'X', the operator Pooling with format='NHWC'": lambda g: (
            operator("Concat")(g).update(operator="SVD"),
            operator("Elemwise")(g)["settings"].update(mode="X"),
            operator("Pooling")(g)["settings"].update(format="NHWC"),
        ),
        "more than 64": lambda g: next(c for c in g["calls"] if "ints" in str(c.get("constant"))).update(constant={"ints": [1] * 65}),
    }.items():
        with pytest.raises(FileFormatError, match=message):
            migrate.load_megengine(altered(tmp_path, change, DUMPED))
    with pytest.raises(FileFormatError, match="holds no graph of MegEngine; help: .*to_safetensors.py megengine-graph"):
        write_tensors(tmp_path / "x", {"a": np.ones(2, np.float32)}, {})
        migrate.load_megengine(tmp_path / "x")
    (tmp_path / "evil.pkl").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(FileFormatError):
        migrate.load_megengine(tmp_path / "evil.pkl")


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_graph_is_a_module_or_one_error(tmp_path_factory, data):
    """One value somewhere in the graph is another one."""

    def change(graph):
        at = graph
        for _ in range(12):
            keys = list(at) if isinstance(at, dict) else list(range(len(at)))
            key = data.draw(st.sampled_from(keys))
            if not isinstance(at[key], dict | list) or not at[key] or data.draw(st.integers(0, 4)) == 0:
                at[key] = data.draw(st.sampled_from([None, -1, 0, 3, "x", "conv2d", [], {}, {"node": 1}, 1 << 40, 0.5, [[[1]]], "ReLU"]))
                return
            at = at[key]

    path = altered(tmp_path_factory.mktemp("fuzz"), change, data.draw(st.sampled_from([TRACED, DUMPED])))
    try:
        net = migrate.load_megengine(path)
    except FileFormatError:
        return
    assert isinstance(net, M.Module)


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        run(sys.argv[1], HERE / "in_megengine.py", folder)
        run(sys.argv[1], migrate.script(), "megengine-graph", folder + "/net.tm", TRACED)
        run(sys.argv[1], migrate.script(), "megengine-dump", folder + "/net.mge", DUMPED)
        shutil.copy(folder + "/results.npz", RESULTS)
        shutil.copy(folder + "/dumped.npz", HERE / "dumped.npz")
