"""Round trips: what is dumped and loaded computes the same bits, and keeps its names."""

import os
import subprocess
import sys

import models
import numpy as np
import pytest
import safetensors
import safetensors.numpy
from models import same

import tengen
import tengen.functional as F
import tengen.module as M
from tengen import Tensor, load_graph, trace
from tengen.base.config import config
from tengen.base.errors import ConfigError, DTypeError, ShapeError, TraceError
from tengen.tensor import Parameter


def test_same_bits(tmp_path):
    f, x, y = models.mlp()
    done = f.dump(tmp_path / "m.tgn", arg_names=["data"], output_names=["probability"])
    m = tengen.load_graph(tmp_path / "m.tgn")
    assert same(m(x), y) and same(m(x.numpy()), y) and same(m(data=x), y)
    assert same(m(data=x.numpy().tolist()), y)
    assert done.n_nodes == len(m.graph.nodes) and done.bytes == os.path.getsize(tmp_path / "m.tgn") == m.bytes
    assert repr(m.inputs) == "(data: f32[3,7],)" == repr(done.inputs) and repr(m.outputs) == "(probability: f32[3,5],)"
    assert repr(m).splitlines()[1:] == ["  takes data: f32[3,7]", "  gives probability: f32[3,5]"]


def test_in_a_new_process(tmp_path):
    f, x, y = models.mlp()
    f.dump(tmp_path / "m.tgn")
    np.save(tmp_path / "x.npy", x.numpy())
    code = (
        "import sys, numpy, tengen\n"
        "m = tengen.load_graph(sys.argv[1])\n"
        "sys.stdout.buffer.write(m(numpy.load(sys.argv[2])).numpy().tobytes())\n"
    )
    env = {**os.environ, "PATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "m.tgn", tmp_path / "x.npy"], env=env, capture_output=True, check=True
    )
    assert done.stdout == y.numpy().tobytes()


def test_a_program_that_is_kept_is_read_while_the_checksum_is_computed(tmp_path):
    """It is the one that runs, unless what decides it has changed since; of a short file it is read at the first call."""
    x = Tensor(models.images((3, 1024)))
    for width in (1100, 5):
        f = trace(M.Linear(1024, width), example_input=x)
        f.dump(tmp_path / "m.tgn")
        y = load_graph(tmp_path / "m.tgn")(x)
        tengen.jit.wait_for_compilation()
        for turned in (False, True):
            m = load_graph(tmp_path / "m.tgn")
            ahead = m._ahead
            assert (ahead is not None) == (width == 1100)
            with config.scope(winograd=config.winograd ^ turned):
                assert same(m(x), y)
            assert m._ahead is None and (ahead is not None and m._executable.program is ahead.made[0]) == (width == 1100 and not turned)


def test_weights_have_their_names_and_alignment(tmp_path):
    f, _, _ = models.mlp()
    f.dump(tmp_path / "m.tgn")
    m = tengen.load_graph(tmp_path / "m.tgn")
    assert sorted(m.weights) == ["b1", "w1", "w2"]
    for name, a in m.weights.items():
        assert same(a, getattr(f.function, name)) and not a.flags.writeable and a.ctypes.data % 64 == 0
    kept = safetensors.numpy.load_file(tmp_path / "m.tgn")  # another reader sees the same
    assert all(same(kept[name], a) for name, a in m.weights.items())
    with safetensors.safe_open(tmp_path / "m.tgn", "numpy") as file:
        assert file.metadata()["format"] == "tengen-model"


@pytest.mark.parametrize("as_constants", [False, True])
def test_names_through_arguments_and_closures(as_constants, tmp_path):
    net, x = models.MLP(), Tensor(models.images())

    @trace(symbolic=True, capture_as_const=as_constants)
    def by_argument(data, *, net):
        return net(data)

    @trace(capture_as_const=as_constants)
    def by_closure(data):
        return net(data)

    for f, kwargs in ((by_argument, {"net": net}), (by_closure, {})):
        y = f(x, **kwargs)
        f.dump(tmp_path / "m.tgn", arg_names=["data"])
        m = tengen.load_graph(tmp_path / "m.tgn")
        assert sorted(m.weights) == ["b1", "w1", "w2"] and same(m(x), y)


def test_equal_weights_keep_their_own_names(tmp_path):
    a, b = Parameter(np.zeros(3, "f4"), name="a"), Parameter(np.zeros(3, "f4"), name="b")
    f = trace(lambda x: (x + a) * b, example_input=Tensor(np.ones(3, "f4")))
    f.dump(tmp_path / "m.tgn")
    assert sorted(tengen.load_graph(tmp_path / "m.tgn").weights) == ["a", "b"]


def test_states_go_on(tmp_path):
    step, total = models.counter()
    x = Tensor(np.array([1, 2, 3], "f4"))
    step(x)
    step.dump(tmp_path / "m.tgn", arg_names=["x"])
    m = tengen.load_graph(tmp_path / "m.tgn")
    (name,) = m.graph.states
    assert same(m.states[name], total) and "keeps" in repr(m)
    for _ in range(3):
        assert same(m(x), step(x)) and same(m.states[name], total)
    fresh = tengen.load_graph(tmp_path / "m.tgn")
    assert same(fresh.states[name], np.array([1, 2, 3], "f4"))


def test_results(tmp_path):
    x = Tensor(np.array([1.5, -2.0], "f4"))
    cases = {
        "dict": (lambda x: {"twice": x + x, "square": x * x}, ["twice", "square"]),
        "tuple": (lambda x: (x + x, [x * x, x]), ["output0", "output1", "output2"]),
        "one": (lambda x: x, ["output0"]),
    }
    for name, (f, names) in cases.items():
        t = trace(f, example_input=x)
        t.dump(tmp_path / name)
        m = tengen.load_graph(tmp_path / name)
        assert [p.name for p in m.outputs] == names
        out = m(x)
        assert same(out[0] if isinstance(out, tuple) else out, x if name == "one" else x + x)


@pytest.mark.parametrize("d", ["float64", "float16", "bfloat16", "int64", "int8", "uint8", "bool"])
@pytest.mark.parametrize("shape", [(), (0, 3), (1,), (5, 7)])
def test_dtypes_and_shapes(d, shape, tmp_path):
    rng = np.random.default_rng(0)
    w = Tensor(rng.integers(0, 2, shape)).astype(d)
    x = Tensor(rng.integers(0, 2, shape)).astype(d)
    f = trace(lambda x: F.where(x.astype("bool"), w, x), example_input=x)
    f.dump(tmp_path / "m.tgn")
    m = tengen.load_graph(tmp_path / "m.tgn")
    assert same(m(x), f(x)) and m.inputs[0].dtype == w.dtype


def test_calls_are_checked(tmp_path):
    f, x, _ = models.mlp()
    f.dump(tmp_path / "m.tgn", arg_names=["data"])
    m = tengen.load_graph(tmp_path / "m.tgn")
    with pytest.raises(ShapeError, match=r"data: f32\[3,7\] was given f32\[2,7\]"):
        m(models.images((2, 7)))
    with pytest.raises(DTypeError, match=r"f64\[3,7\]"):
        m(x.numpy().astype("f8"))
    for args, kwargs in (((), {}), ((x, x), {}), ((x,), {"data": x}), ((), {"date": x})):
        with pytest.raises(TypeError, match="takes data"):
            m(*args, **kwargs)
    with pytest.raises(TraceError):
        trace(m, example_input=x)


def test_arguments_that_look_like_earlier_ones(tmp_path):
    """What is known of arrays by their shape does not let others pass, and a result never shares an array's memory."""
    trace(lambda x, y: (x, x.reshape(-1), x + y), example_input=(Tensor(models.images((3, 4))),) * 2).dump(tmp_path / "m.tgn")
    m = tengen.load_graph(tmp_path / "m.tgn")
    x, y = models.images((3, 4)), models.images((3, 4), 2)
    odd = np.frombuffer(b"." + x.tobytes(), "f4", offset=1).reshape(3, 4)
    lying = [x, np.asfortranarray(x), odd, x[::-1][::-1], Tensor(x), Tensor(x.T.copy()).T]
    for given in (*lying, *lying):
        assert np.array_equal(np.asarray(m(given, y)[2]), x + y) and np.array_equal(np.asarray(m(y, given)[2]), y + x)
    for error, wrong in ((ShapeError, (x.T.copy(), Tensor(x).reshape(-1))), (DTypeError, (x.astype("f8"), x.view("i4")))):
        for w in wrong:
            with pytest.raises(error):
                m(y, w)
    given = x.copy()
    found = m(given, y)
    given[:] = 0
    assert np.array_equal(found[0].numpy(), x) and np.array_equal(found[1].numpy(), x.ravel())
    assert len(m._known) == 3  # two arrays, and an array with a tensor on either side


def test_dump_is_checked(tmp_path):
    f, _, _ = models.mlp()
    for names in (["a", "b"], [], ["`"], [""]):
        with pytest.raises(ValueError, match="names"):
            f.dump(tmp_path / "m", arg_names=names)
    with pytest.raises(TypeError, match="no option"):
        f.dump(tmp_path / "m", argnames=["x"])
    with pytest.raises(TraceError, match="has not been traced"):
        trace(lambda x: x).dump(tmp_path / "m")
    assert not os.listdir(tmp_path)


def test_no_paths_of_this_machine(tmp_path):
    f, _, _ = models.mlp()
    f.dump(tmp_path / "m.tgn")
    data = (tmp_path / "m.tgn").read_bytes()
    assert b"models.py:" in data and os.path.dirname(__file__).encode() not in data


def test_checkpoints(tmp_path):
    import ml_dtypes

    obj = {
        "model": models.MLP().state_dict(), "step": 7, "lr": 1e-3, 3: {}, "empty": np.empty((0, 2)),
        "odd": [float("inf"), -0.0, None, True, "text", b"\0\xff", 1 << 90],
        "pair": (Tensor(np.arange(6, dtype="i4").reshape(2, 3)).transpose(1, 0), np.float32(2.5)),
        "half": np.ones(3, ml_dtypes.bfloat16), "__private": np.ones(1),
    }  # fmt: skip
    tengen.save(obj, tmp_path / "c")
    got = tengen.load(tmp_path / "c")
    assert list(got) == list(obj) and got["odd"] == obj["odd"] and str(got["odd"][1]) == "-0.0"
    assert got["step"] == 7 and got["lr"] == 1e-3 and got[3] == {}
    assert all(same(got["model"][k], v) for k, v in obj["model"].items())
    assert isinstance(got["pair"], tuple) and same(got["pair"][0], obj["pair"][0]) and got["pair"][1] == np.float32(2.5)
    assert isinstance(got["pair"][0], Tensor) and isinstance(got["empty"], np.ndarray) and same(got["half"], obj["half"])
    got["empty"].flags.writeable and got["half"].__setitem__(0, 3)  # arrays are the caller's own


def test_checkpoints_refuse_what_they_cannot_keep(tmp_path):
    inside: list = []
    inside.append(inside)
    cases = [({"a": [object()]}, r"a\.0: it is a object"), ({(1,): 2}, "key"), (inside, "nested"), (np.array(["s"]), "dtype")]
    for obj, message in cases:
        with pytest.raises(TypeError, match=message):
            tengen.save(obj, tmp_path / "c")
    assert not os.listdir(tmp_path)


def test_others_safetensors_load(tmp_path):
    safetensors.numpy.save_file({"b.w": models.images(), "a": np.ones((), "i8")}, tmp_path / "s")
    got = tengen.load(tmp_path / "s")
    assert set(got) == {"b.w", "a"} and same(got["b.w"], models.images())


@pytest.mark.parametrize("options, error, message", [
    ({"append": True}, ConfigError, r"dump\(append=...\): a file holds one model"),
    ({"user_info": {"epoch": 3}}, ConfigError, "a file beside it"), ({"input_data": ["x.npy"]}, ConfigError, "tengen verify"),
    ({"enable_ioc16": True}, ConfigError, "tengen.amp"), ({"enable_nchw5": True}, TypeError, "no option 'enable_nchw5'"),
])  # fmt: skip
def test_options_of_megengine_that_ask_for_something_are_not_passed_over(tmp_path, options, error, message):
    f = trace(lambda x: x + 1, example_input=Tensor([1.0]))
    f.dump(tmp_path / "whole.tgn", optimize_for_inference=True, enable_nchw4=True, enable_ioc16=False, append=False, user_info=None)
    assert load_graph(tmp_path / "whole.tgn")(Tensor([1.0])).tolist() == [2.0]
    with pytest.raises(error, match=message):
        f.dump(tmp_path / "no.tgn", **options)
    assert not (tmp_path / "no.tgn").exists()
