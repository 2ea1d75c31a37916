"""Artifacts whose extents stay open: the bits of eager calls at every size, sizes of memory as functions, extents out of range refused."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import tengen.functional as F
import tengen.module as M
from tengen import Tensor, load_graph, trace
from tengen.base.errors import ConfigError, ShapeError
from tengen.cli.main import main
from tengen.codegen.targets import Target
from tengen.deploy import compile_model, run_artifact, verify_artifact
from tengen.deploy.run import CannotRun
from tengen.runtime.compile import load_object

SIZES = [(1, 4, 5), (2, 16, 16), (3, 30, 41), (8, 64, 20), (5, 7, 64)]
EXTENTS = {"int": range(1, 9), "h": range(4, 65), "w": range(4, 65)}  # a keyword of C among the names
CANARY = 0x5A


def images(n, h, w):
    return Tensor(np.random.default_rng(n * h).standard_normal((n, 3, h, w)).astype(np.float32))


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    """A fully convolutional network whose second convolution is computed by three algorithms, and its file."""
    body = [M.Conv2d(3, 32, 3, padding=1), M.BatchNorm2d(32), M.ReLU(), M.MaxPool2d(2), M.Conv2d(32, 40, 3, padding=1), M.ReLU()]
    net = M.Sequential(*body, M.AdaptiveAvgPool2d(1), M.Flatten(), M.Linear(40, 5)).eval()
    run = trace(lambda image: (net(image), image[:, 0] * image.shape[2]), dynamic_axes={0: "int", 2: "h", 3: "w"}, name="net")
    run(images(2, 16, 16))
    path = tmp_path_factory.mktemp("net") / "net.tgn"
    run.dump(path, arg_names=["image"], output_names=["scores", "plane"])
    return run.function, path


def aligned(n, fill=0):
    raw = np.full(n + 128, fill, np.uint8)
    at = -raw.ctypes.data % 64
    return raw[at : at + n + 64]


def test_bytes_and_codes_at_five_sizes(net, tmp_path):
    f, path = net
    a = compile_model(path, "native", tmp_path, "net", extents=EXTENTS)
    assert a.extents == EXTENTS and repr(a.inputs) == "(image: f32[int,3,h,w],)"
    code = load_object(Path(a.files[0]).read_bytes(), Target.named("native"))

    def call(name, extents, *pointers, result=ctypes.c_int64):
        types = [ctypes.c_int64] * len(extents) + [ctypes.c_void_p] * len(pointers)
        return ctypes.CFUNCTYPE(result, *types)(code.address(f"net_{name}"))(*extents, *pointers)

    weights = aligned(a.weights_bytes)
    weights[: a.weights_bytes] = np.fromfile(a.files[2], np.uint8)
    for size in SIZES:
        x = images(*size)
        need = call("workspace_bytes", size)
        workspace, wanted = aligned(need, CANARY), f(x)
        assert 0 < need <= a.workspace_bytes and call("image_bytes", size) == x.numpy().nbytes
        outs = [aligned(call(f"{name}_bytes", size), CANARY) for name in ("scores", "plane")]
        pointers = [b.ctypes.data for b in (weights, workspace, x.numpy(), *outs)]
        assert call("run", size, *pointers, result=ctypes.c_int) == 0
        assert (workspace[need:] == CANARY).all(), "it writes no more than it asked for"
        for b, t in zip(outs, wanted):
            assert b[:-64].tobytes() == np.asarray(t.numpy(), order="C").tobytes() and (b[-64:] == CANARY).all()
        for bad in ((0, *size[1:]), (9, *size[1:]), (1, 3, 8), (1, 8, 65), (-1, 8, 8), (1 << 62, 8, 8)):
            assert call("run", bad, *pointers, result=ctypes.c_int) == -1 == call("workspace_bytes", bad)
        assert call("run", size, None, *pointers[1:], result=ctypes.c_int) == 1
        assert call("run", size, pointers[0], pointers[1] + 4, *pointers[2:], result=ctypes.c_int) == 2
        fits = lambda size, at, n: call("check_workspace", size, at, n, result=ctypes.c_int)
        assert [fits(size, pointers[1], n) for n in (need, need - 1, 0)] == [0, 1, 1]
        assert [fits(size, at, need) for at in (None, pointers[1] + 4)] == [3, 4] and fits((9, *size[1:]), pointers[1], need) == -1


def test_linked(net, tmp_path):
    f, path = net
    a = compile_model(path, "x86-64-v3", tmp_path, "net", threads=2, extents={**EXTENTS, "int": 3})
    header = Path(a.files[1]).read_text()
    assert '#define NET_EXTENTS "int=3..3:1,h=4..64:1,w=4..64:1"' in header and "int64_t net_workspace_bytes(int64_t int_," in header
    if compiler := shutil.which("gcc"):
        subprocess.run([compiler, "-std=c11", "-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only", a.files[3]], check=True)
    x = images(3, 30, 41)
    for wrong in (images(2, 30, 41), images(3, 65, 41)):
        with pytest.raises(ShapeError, match="is compiled for"):
            run_artifact(a, [x.numpy()[:2] if wrong.shape[0] == 2 else wrong.numpy()])
    try:
        got = run_artifact(a, [x])
    except CannotRun as e:
        pytest.skip(str(e))
    assert [g.tobytes() for g in got] == [np.asarray(t.numpy(), order="C").tobytes() for t in f(x)]
    v = verify_artifact(path, tmp_path, runs=3)
    assert v.status == "equal" and v.runs == 3


def test_ranges_that_do_not_fit(net, tmp_path):
    model = load_graph(net[1])
    for bad, message in (
        ({"h": range(4, 9)}, "has the open extents int, h, w"),
        ({**EXTENTS, "h": range(0, 9)}, "from 1 to"),
        ({**EXTENTS, "h": range(9, 9)}, "from 1 to"),
        ({**EXTENTS, "h": range(9, 3, -1)}, "from 1 to"),
    ):
        with pytest.raises(ConfigError, match=message):
            compile_model(model, "native", tmp_path, extents=bad)
    with pytest.raises(ShapeError, match=r"h = 1.*help: a range of extents that fit|no elements; help"):
        compile_model(model, "native", tmp_path, extents={**EXTENTS, "h": range(1, 9)})

    def skip(x):
        return F.concat([x, F.vision.interpolate(F.max_pool2d(x, 2), scale_factor=2)], 1)

    run = trace(skip, dynamic_axes={2: "h"})
    run(images(1, 8, 8))
    run.dump(tmp_path / "skip.tgn")
    with pytest.raises(ShapeError, match="with h = 9: reshape.*with a step"):
        compile_model(tmp_path / "skip.tgn", "native", tmp_path, extents={"h": range(8, 33)})
    a = compile_model(tmp_path / "skip.tgn", "native", tmp_path, "skip", extents={"h": range(8, 33, 2)})
    assert "#define SKIP_H_STEP 2" in Path(a.files[1]).read_text()


def test_command_line(net, tmp_path):
    extents = ["--extent", "int=1..2", "--extent", "h=8", "--extent", "w=8..16:8"]
    said = CliRunner().invoke(main, ["compile", str(net[1]), "-o", str(tmp_path), *extents])
    assert said.exit_code == 0, said.output
    assert "NET_W_STEP 8" in (tmp_path / "net.h").read_text()
    said = CliRunner().invoke(main, ["compile", str(net[1]), "-o", str(tmp_path), "--extent", "int=1-2"])
    assert said.exit_code and "batch=1..64" in said.output
