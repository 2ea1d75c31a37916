"""Preprocessing and postprocessing in files and artifacts: raw pictures in, labels or boxes out, with the bits of the eager pipeline."""

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from exhaustive import exhaustive
from needs import needs
from recorded import dumped

import tengen.functional as F
import tengen.module as M
from tengen import Tensor, deploy, load_graph, models, trace
from tengen.base.errors import DTypeError, FileFormatError, ShapeError, TraceError
from tengen.functional import vision

MEAN, STD = Tensor(np.array([0.485, 0.456, 0.406], "f4")), Tensor(np.array([0.229, 0.224, 0.225], "f4"))


def camera(frame):
    """An NV12 frame as what the network takes: (N, 3, 32, 32), normalised."""
    picture = vision.resize(vision.cvt_color(frame, "BT601_YUV2RGB_NV12"), (32, 32), "NHWC")
    return ((picture.astype("float32") / 255.0 - MEAN) / STD).transpose(0, 3, 1, 2)


def label(scores):
    """The best class, and its probability."""
    p = F.softmax(scores, axis=1)
    return {"label": F.argmax(p, axis=1).astype("int32"), "probability": F.max(p, axis=1)}


def frame(seed=0, h=48, w=64):
    return np.random.default_rng(seed).integers(0, 256, (1, h * 3 // 2, w, 1), dtype=np.uint8)


def bits(out):
    return [t.numpy().tobytes() for t in (out.values() if isinstance(out, dict) else out if isinstance(out, tuple) else [out])]


@pytest.fixture(scope="module")
def net():
    return models.mobilenet_v2(7, width=0.25, stages=((1, 16, 1, 1), (2, 24, 1, 2))).eval()


@needs("ziglang")
def test_a_camera_s_frame_goes_in_and_a_label_comes_out(net, tmp_path):
    """By `dump`, and by `compile_model` of a file of the network alone, which its dynamic batch leaves open."""
    f = trace(net, example_input=Tensor(np.zeros((1, 3, 32, 32), "f4")), dynamic_axes={0: "batch"})
    made = f.dump(tmp_path / "camera.tgn", preprocess=camera, postprocess=label, example_input=frame())
    assert repr(made.inputs) == "(frame: u8[1,72,64,1],)" and [p.name for p in made.outputs] == ["label", "probability"]
    want = [bits(label(net(camera(Tensor(frame(seed)))))) for seed in (1, 2)]
    model = load_graph(tmp_path / "camera.tgn")
    assert [bits(model(frame=frame(seed))) for seed in (1, 2)] == want
    f.dump(tmp_path / "net.tgn")
    a = deploy.compile_model(
        tmp_path / "net.tgn", "native", tmp_path, "camera", preprocess=camera, postprocess=label, example_input=frame()
    )
    assert [[x.tobytes() for x in deploy.run_artifact(a, [frame(seed)])] for seed in (1, 2)] == want
    assert deploy.verify_artifact(model, tmp_path, [[frame(3)]]).status == "equal"
    bare = load_graph(tmp_path / "net.tgn")
    assert f"with SHA-256\n * {bare.checksum},\n * and functions before or behind it.\n" in Path(a.files[1]).read_text()
    with pytest.raises(FileFormatError, match="and functions before or behind it; help: verify it with"):
        deploy.verify_artifact(bare, tmp_path)


def test_several_inputs_checks_and_names(tmp_path):
    """Two raw inputs, given on by name; a check of the model's, which is kept; outputs that the caller names."""
    table = Tensor(np.arange(12, dtype="f4").reshape(4, 3))
    dumped(lambda x, i: (x + table[i], i), [Tensor(np.zeros(3, "f4")), Tensor(np.array(0, "i4"))], tmp_path / "m.tgn")
    m = load_graph(tmp_path / "m.tgn")
    names = [p.name for p in m.inputs]
    given = (np.array([1, 2, 3], "u1"), np.array(2, "u1"))
    feed = lambda pixels, number: {names[1]: number.astype("int32"), names[0]: pixels.astype("float32")}
    whole = deploy.with_processing(m, feed, lambda x, i: (x * 2, x, i), given)
    assert [p.name for p in whole.inputs] == ["pixels", "number"] and [p.name for p in whole.outputs] == ["output0", "output1", "output2"]
    x = np.array([1, 2, 3], "f4") + table.numpy()[2]
    assert bits(whole(*given)) == [(x * 2).tobytes(), x.tobytes(), np.array(2, "i4").tobytes()]
    with pytest.raises(IndexError):
        whole(given[0], np.array(4, "u1"))
    assert bits(m(given[0].astype("f4"), np.array(2, "i4")))[0] == x.tobytes()  # the model is as it was
    after = deploy.with_processing(m, postprocess=lambda x, i: x.sum())
    assert [p.name for p in after.inputs] == names and after(given[0].astype("f4"), np.array(2, "i4")).item() == x.sum()


def test_states_go_on(tmp_path):
    total = Tensor(np.zeros(2, "f4"))

    @trace
    def step(x):
        total._reset(total + x)
        return total * 1.0

    step(Tensor(np.zeros(2, "f4")))
    step.dump(tmp_path / "s.tgn", preprocess=lambda raw: raw.astype("float32"), output_names=["sum"], example_input=np.zeros(2, "u1"))
    m = load_graph(tmp_path / "s.tgn")
    assert [m(np.array([1, 2], "u1")).tolist() for _ in range(3)] == [[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]]
    assert m.outputs[0].name == "sum"


def test_refusals(net, tmp_path):
    trace(net, example_input=Tensor(np.zeros((1, 3, 32, 32), "f4"))).dump(tmp_path / "n.tgn", arg_names=["image"])
    m, raw = load_graph(tmp_path / "n.tgn"), np.zeros((1, 32, 32, 3), "u1")
    feed = lambda x: x.astype("float32").transpose(0, 3, 1, 2)
    kept = M.Dropout(0.5)
    for pre, post, error, words in [
        (feed, None, TraceError, "example_input="),
        (lambda x: x.transpose(0, 3, 1, 2), None, DTypeError, r"uint8\[1, 3, 32, 32\] for the input image: f32\[1,3,32,32\]; help: astype"),
        (lambda x: x.astype("float32"), None, ShapeError, r"gives float32\[1, 32, 32, 3\] for the input image"),
        (lambda x: feed(x)[0], None, ShapeError, r"gives float32\[3, 32, 32\]"),
        (lambda x: (feed(x), feed(x)), None, TypeError, "too many"),
        (lambda x: {"picture": feed(x)}, None, TypeError, "unknown: picture"),
        (lambda x: x.numpy(), None, TraceError, "numpy"),
        (lambda x: None, None, TypeError, "preprocess returned NoneType"),
        (feed, lambda y: y.argmax().item(), TraceError, "item"),
        (feed, lambda y: {}, TypeError, "postprocess returned nothing"),
        (lambda x: feed(kept(x.astype("float32"))), None, TraceError, "changed inside a trace .* or in processing"),
    ]:
        with pytest.raises(error, match=words):
            deploy.with_processing(m, pre, post, None if words == "example_input=" else raw)
    assert bits(deploy.with_processing(m, feed, None, raw)(raw)) == bits(net(feed(Tensor(raw))))


@exhaustive
@pytest.mark.skipif(not shutil.which("cc") and not importlib.util.find_spec("ziglang"), reason="no C compiler, nor the wheel ziglang")
def test_the_example_of_a_camera(tmp_path):
    """`examples/camera.py` on a small frame: what its program in C prints has the bits of the eager pipeline."""
    example = Path(__file__).parents[2] / "examples" / "camera.py"
    command = [sys.executable, example, "--size", "320x240", "--quick", "--out", tmp_path]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout.splitlines()[-1])["equal"] and done.stdout.count("the bits of the eager pipeline") == 2
