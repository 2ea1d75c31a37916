"""Networks that packages ship: silero-vad (a recurrent network with a state, in six exports) and magika, beside onnxruntime."""

import glob
import importlib.util
import os

import numpy as np
import pytest

from tengen.base.errors import TraceError
from tengen.interop.onnx import load, to_module

VAD = {  # file -> the rates that it takes
    "silero_vad": (16000, 8000), "silero_vad_op18_ifless": (16000, 8000), "silero_vad_16k_op15": (16000,), "silero_vad_half": (16000,),
    "silero_vad_openvino_16k": (16000,), "silero_vad_16k_sequence": (16000,),
}  # fmt: skip


def shipped(package, *parts):
    """The path of a package's file, where it is installed: its code is not run."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        pytest.skip(f"{package} is not installed: its networks are not run")
    return os.path.join(os.path.dirname(spec.origin), *parts)


def session(file):
    ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: its results are not compared")
    return ort.InferenceSession(file, providers=["CPUExecutionProvider"])


def outputs(run, x):
    """Of a session, a program or a module."""
    return run.run(None, x) if hasattr(run, "get_inputs") else [v.numpy() for v in run(**x)]


@pytest.mark.parametrize("name", VAD)
def test_voice_activity_over_steps(name):
    """Outputs and states over four steps, each program going on with its own state."""
    file = shipped("silero_vad", "data", f"{name}.onnx")
    theirs, r = session(file), np.random.default_rng(0)
    takes = [p.name for p in theirs.get_inputs()]
    state = ["h", "c"] if "h" in takes else ["state"]
    for rate in VAD[name]:
        width = 576 if rate == 16000 else 288
        x = {"input": (5 if "h" in takes else 1, width), "state": (2, 1, 128), "h": (1, 1, 128), "c": (1, 1, 128), "sr": ()}
        x = {k: np.zeros(shape, np.float32) for k, shape in x.items() if k in takes}
        if "sr" in takes:
            x["sr"] = np.array(rate)
        program, module = load(file, {k: v.shape for k, v in x.items()}), to_module(file).eval()
        runs = {"onnxruntime": theirs, "program": program, "module": module}
        kept = dict.fromkeys(runs, x)
        for step in range(4):
            sound, found = (r.standard_normal(x["input"].shape) * 0.1 * (step + 1)).astype(np.float32), {}
            for who, run in runs.items():
                found[who] = outputs(run, {**kept[who], "input": sound})
                kept[who] = {**kept[who], **dict(zip(state, found[who][1:]))}
            for who in ("program", "module"):
                for got, want in zip(found[who], found["onnxruntime"], strict=True):
                    np.testing.assert_allclose(got, want, rtol=1e-4, atol=2e-5)
    assert program.ops()["scan"] == 0 and (program.ops()["lstm"] or program.ops()["cond"] or "ifless" in name)


def test_open_extents_of_a_network_whose_ranks_follow_them():
    """Branches that squeeze an axis where its extent is 1 need that number, which the error says; the batch may stay open."""
    file = shipped("silero_vad", "data", "silero_vad_half.onnx")
    with pytest.raises(TraceError, match=r"an open extent in the ONNX node .*Equal.*help: shapes=\{'batch'"):
        load(file)
    m, theirs = load(file, {"sequence": 576}), session(file)
    assert [repr(p) for p in m.inputs] == ["input: f32[batch,576]", "state: f32[2,batch,128]"]
    for n in (1, 3):
        x = np.random.default_rng(n).standard_normal((n, 576)).astype(np.float32)
        s = np.zeros((2, n, 128), np.float32)
        for got, want in zip(m(x, s), theirs.run(None, {"input": x, "state": s}), strict=True):
            np.testing.assert_allclose(got.numpy(), want, rtol=1e-4, atol=1e-5)


def test_magika():
    """Kinds of files by their bytes; the batch is open."""
    file = shipped("magika", "models", "standard_v3_3", "model.onnx")
    theirs, m = session(file), load(file)
    assert not isinstance(m.inputs[0].shape[0], int) and m.inputs[0].shape[1] == 2048
    for n in (1, 2):
        x = np.random.default_rng(n).integers(0, 257, (n, 2048)).astype(np.int32)
        np.testing.assert_allclose(m(x).numpy(), theirs.run(None, {"bytes": x})[0], rtol=1e-4, atol=1e-6)


def test_every_file_of_the_package_is_known():
    files = glob.glob(shipped("silero_vad", "data", "*.onnx"))
    assert {os.path.basename(f).removesuffix(".onnx") for f in files} == set(VAD)
