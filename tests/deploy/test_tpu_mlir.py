"""Parts of a model for the chips of Sophgo: with TPU-MLIR's compiler and simulators where TENGEN_TPU_MLIR names them, and with programs
in their place, which show what they are given."""

import sys

import numpy as np
import pytest
from recorded import graph_of

import tengen.functional as F
from tengen import Tensor, backends, load_graph, trace
from tengen.backends.tpu_mlir import TpuMlir, _key
from tengen.base.config import config
from tengen.base.errors import ArgumentError, ConfigError
from tengen.deploy.model import Model

pytest.importorskip("onnx")

# In place of the tools: the binary is what the compiler was given, and the runner gives 2 x.
TOOL = f"""#!{sys.executable}
import sys
from pathlib import Path
import numpy as np
tool, given = Path(sys.argv[0]).name, dict(zip(sys.argv[1::2], sys.argv[2::2]))
if tool == "model_transform":
    assert Path(given["--model_def"]).exists() and given["--input_shapes"] == "[[2,3]]"
    Path(given["--mlir"]).write_text('loc("in0") loc("mul_Mul") loc("relu_Relu") loc("out0_Sqrt") loc("weight")')
elif tool == "model_deploy":
    if given["--chip"] == "none":
        print("there is no such chip", file=sys.stderr)
        sys.exit(3)
    table = Path(given["--calibration_table"]).read_text() if "--calibration_table" in given else ""
    Path(given["--model"]).write_text(" ".join(sys.argv[1:]) + "|" + table)
else:
    x = np.load(given["--input"])["in0"]
    np.savez(given["--output"], in0=x, out0_Sqrt=-x, out0_Sqrt_f32=2 * x)
"""


@pytest.fixture
def place(tmp_path):
    (tmp_path / "bin").mkdir()
    for name in ("model_transform", "model_deploy", "model_runner"):
        (tmp_path / "bin" / name).write_text(TOOL)
        (tmp_path / "bin" / name).chmod(0o755)
    return tmp_path


def number(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype("f4")


def model():
    return Model(graph_of(lambda x: F.sqrt(F.relu(x * 3)), Tensor(number(2, 3))), {})


def test_what_the_tools_are_given(place):
    m, data = model(), [number(2, 3, seed=i) for i in range(5)]
    p = backends.partition(m, TpuMlir("cv181x", "INT8", data, "minmax", place))
    x = number(2, 3, seed=9)
    assert np.array_equal(p(Tensor(x)).numpy(), 2 * x)  # the numbers, not the integers that are there too
    [piece] = p._parts_for(())[1]
    command, _, table = piece.blob.decode().partition("|")
    assert "--quantize INT8 --chip cv181x --model part.cvimodel --calibration_table table" in command
    rows = {line.split()[0]: [float(v) for v in line.split()[1:]] for line in table.splitlines() if line[0] != "#"}
    every = np.stack(data) * np.float32(3)
    want = {"in0": np.stack(data), "mul_Mul": every, "relu_Relu": np.maximum(every, 0), "out0_Sqrt": np.sqrt(np.maximum(every, 0))}
    assert set(rows) == set(want)  # not the weight
    for name, a in want.items():
        assert np.allclose(rows[name], [np.abs(a).max(), a.min(), a.max()], rtol=1e-6), name
    plain = backends.partition(m, TpuMlir("bm1684x", environment=place))
    plain(Tensor(x))
    assert plain._parts_for(())[1][0].blob.decode().endswith("--quantize F32 --chip bm1684x --model part.bmodel|")


def test_what_the_compiler_refuses_is_computed_here(place):
    m, x = model(), Tensor(number(2, 3))
    p = backends.partition(m, TpuMlir("none", environment=place))
    assert p(x).numpy().tobytes() == m(x).numpy().tobytes()
    assert "model_deploy for none failed with status 3: there is no such chip" in p.report()
    other = backends.partition(m, TpuMlir("cv181x", "INT8", [number(4, 4)], environment=place))
    assert other(x).numpy().tobytes() == m(x).numpy().tobytes() and "the part takes [(2, 3)], the data has [(4, 4)]" in other.report()


def test_wrong_arguments(place, monkeypatch):
    monkeypatch.setattr(config, "tpu_mlir", None)
    for call, error, words in [
        (lambda: backends.find("tpu-mlir"), ConfigError, "tpu_mlir_environment FOLDER"),
        (lambda: TpuMlir(quantize="INT9", environment=place), ArgumentError, "one of F32, BF16, F16, INT8"),
        (lambda: TpuMlir(quantize="INT8", environment=place), ArgumentError, "INT8 needs some"),
        (lambda: TpuMlir(data=[number(1)], environment=place), ArgumentError, "the others take none"),
        (lambda: TpuMlir("x", "INT8", [number(1)], "best", place), ArgumentError, "calibrator='best' must be one of minmax"),
        (lambda: _key("out0", ["out0_a", "out1"]), backends.Refused, "none of these alone is the output out0"),
    ]:
        with pytest.raises(error, match=words):
            call()
    assert _key("out1", ["out0_Add", "out1_Relu", "out10_Add", "out1_0_Add"]) == "out1_Relu" and _key("a", ["a", "b"]) == "a"


@pytest.mark.skipif(not config.tpu_mlir, reason="TENGEN_TPU_MLIR names no environment of TPU-MLIR (tengen.backends.tpu_mlir_environment)")
def test_a_network_on_the_simulators(tmp_path):
    w = [Tensor(number(8, 1, 3, 3)), Tensor(number(16, 8, 3, 3) / 9), Tensor(number(10, 16 * 49) / 28)]

    def net(x):
        for filter in w[:2]:
            x = F.max_pool2d(F.relu(F.conv2d(x, filter, padding=1)), 2)
        return F.linear(F.flatten(x, 1), w[2])

    data = [number(1, 1, 28, 28, seed=i) for i in range(8)]
    trace(net, capture_as_const=True, example_input=Tensor(data[0])).dump(tmp_path / "f.tgn")
    m = load_graph(tmp_path / "f.tgn")
    p = backends.partition(m, "tpu-mlir")
    assert [x.who for x in p.parts()] == ["tpu-mlir"] and p.compare(data[0])[0][1] < 1e-5
    p.save(tmp_path / "f.parts")
    assert backends.load(tmp_path / "f.parts")(data[1]).numpy().tobytes() == p(data[1]).numpy().tobytes()
    for chip in ("cv181x", "bm1684x"):
        p = backends.partition(m, TpuMlir(chip, "INT8", data))
        assert [x.who for x in p.parts()] == ["tpu-mlir"] and 0 < p.compare(data[0])[0][1] < 0.05
