"""TFLite files as models and modules: each operator beside TFLite's own interpreter, whole networks, programs, training, bad files."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import tflite_integer_ops
import tflite_ops
from click.testing import CliRunner
from exhaustive import but
from tflite_cases import Case, T, differ, given, k, network, theirs, to_bytes

pytest.importorskip("tflite", reason="the package tflite is not installed: TFLite files are not read")

import tengen
from tengen import Tensor, trace
from tengen.autodiff import GradManager
from tengen.base.errors import ArgumentError, DTypeError, FileFormatError, ShapeError, TraceError
from tengen.cli.main import main
from tengen.deploy.dump import dump_model
from tengen.interop.tflite import load, to_module
from tengen.interop.tflite.ops import HYBRID, OPS, QUANTISED
from tengen.optimizer import SGD

RNG = np.random.default_rng(0)
FLOATS, INTEGERS = list(tflite_ops.floats()), list(tflite_integer_ops.integers())
FILES = Path(__file__).parent / "tflite"
EXPECTED = dict(np.load(FILES / "expected.npz"))


def arrays(made):
    """Outputs as arrays."""
    return [t.numpy() for t in (made if isinstance(made, tuple) else (made,))]


@but(every=6)
@pytest.mark.parametrize("case", FLOATS + INTEGERS, ids=repr)
def test_an_operator(case):
    """Floats within rounding, integers with scales equal, or as near as the case says."""
    want = theirs(to_bytes(case), *given(case), reference=case.reference)
    got = arrays(to_module(to_bytes(case)).eval()(*given(case)))
    assert not differ(got, want, case.steps), differ(got, want, case.steps)


def test_every_operator_has_a_case():
    have = {c.op for c in FLOATS + INTEGERS}
    tried_in_files = {"IF", "WHILE", "CALL_ONCE", "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE", "DENSIFY"}
    not_of_the_interpreter = {"RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL", "CALL", "STABLEHLO_COMPOSITE"}
    names = {n.removeprefix("custom ") for n in (*OPS, *QUANTISED, *HYBRID)}
    assert names - have == tried_in_files | not_of_the_interpreter
    assert len(names) > 140


LOOK_AT_VALUES = ("BROADCAST_ARGS", "RANGE", "WHERE", "UNIQUE", "NON_MAX", "TFLite_Detection", "SEGMENT_SUM")


@but(these=["floats"])
@pytest.mark.parametrize("cases", [FLOATS, INTEGERS], ids=["floats", "integers"])
def test_one_program_of_all_operators(cases, tmp_path):
    """Recorded, written and read back they give the bits that they give one by one."""
    cases = [c for c in cases if not c.op.startswith(LOOK_AT_VALUES)]
    data = network(cases)
    x = [a for c in cases for a in given(c)]
    net, model = to_module(data).eval(), load(data)
    want = arrays(net(*x))
    dump_model(model, tmp_path / "all.tgn")
    again = tengen.load_graph(tmp_path / "all.tgn")
    for made in (model(*x), again(*x)):
        for a, b, name in zip(arrays(made), want, net.source.outputs, strict=True):
            assert a.tobytes() == b.tobytes(), name


@pytest.mark.parametrize("asymmetric", [False, True])
def test_floats_half_way_between_two_integers(asymmetric):
    """Weights of 8 bits with floats: the numbers become integers by a scale of 1, half-way ones away from 0."""
    ends = (-100, 155) if asymmetric else (-127, 127)
    x = np.array([[ends[0], *np.arange(19) - 8.5, ends[1]]], np.float32)
    weight, how = T(np.eye(21, dtype=np.int8), fixed=True, quant=(1.0, 0, 0)), {"AsymmetricQuantizeInputs": asymmetric}
    data = to_bytes(Case("FULLY_CONNECTED", [T(x), weight], ["float32"], "FullyConnectedOptions", how, version=9))
    got = to_module(data)(x).numpy()
    assert got.tolist() == [[ends[0], *range(-9, 0), *range(1, 11), ends[1]]] == theirs(data, x)[0].tolist()


@pytest.mark.parametrize("units, width", [(3, 7), (5, 1001)])  # few stay known; of many two lie in each byte, in the network too
def test_integers_of_four_bits(units, width, tmp_path):
    """A layer of integers has the reference kernel's bytes, one of floats its numbers; and a program of both has the bits of the calls."""
    rng = np.random.default_rng(units)
    q = rng.integers(-8, 8, (units, width)).astype(np.int8)
    scales = rng.uniform(0.01, 0.02, units).astype(np.float32)
    weight = T(q, fixed=True, dtype="int4", quant=(scales, 0, 0))
    codes = rng.integers(-128, 128, (2, width)).astype(np.int8)
    x = rng.standard_normal((2, width)).astype(np.float32)
    how = {"op": "FULLY_CONNECTED", "of": "FullyConnectedOptions", "version": 12}
    integers = Case(inputs=[T(codes, quant=(0.05, 3)), weight, None], outputs=[T(dtype="int8", quant=(width**0.5 / 80, -2))], **how)
    floats = Case(inputs=[T(x), weight, None], outputs=["float32"], **how)
    want = [theirs(to_bytes(c), given)[0] for c, given in ((integers, codes), (floats, x))]
    data = network([integers, floats])
    net, model = to_module(data).eval(), load(data)
    have = arrays(net(codes, x))
    assert have[0].tobytes() == want[0].tobytes() and len(set(have[0].ravel().tolist())) > 3
    np.testing.assert_allclose(have[1], want[1], rtol=2e-6, atol=2e-6 * np.abs(want[1]).max())
    dump_model(model, tmp_path / "net.tgn")
    for made in (model(codes, x), tengen.load_graph(tmp_path / "net.tgn")(codes, x)):
        assert [a.tobytes() for a in arrays(made)] == [a.tobytes() for a in have]


def calls(name):
    """(inputs, outputs) of the calls of a file, one after the other."""
    c = 0
    while f"{name}/{c}/in0" in EXPECTED:
        yield tuple([v for k, v in sorted(EXPECTED.items()) if k.startswith(f"{name}/{c}/{way}")] for way in ("in", "out"))
        c += 1


@but(every=2)
@pytest.mark.parametrize("name", sorted(p.stem for p in FILES.glob("*.tflite")))
def test_a_file_of_tensorflow(name):
    """Eagerly and as one program; variables keep their values from call to call."""
    file = FILES / f"{name}.tflite"
    net, model = to_module(file).eval(), load(file)
    for x, want in calls(name):
        for made in (net(*x), model(*x)):
            wrong = differ(arrays(made), want, 0, 3e-5)
            assert not wrong, wrong


def test_open_extents_stay_open():
    """A batch that the file leaves open is one of the program."""
    case = Case("TANH", [T(np.ones((1, 3), np.float32))], ["float32"])
    data = to_bytes(case)
    model = load(data, {"TANH_0_in0": ("batch", "width")})
    assert model.extents == ("batch", "width")
    for shape in ((2, 3), (5, 1)):
        x = RNG.standard_normal(shape).astype(np.float32)
        np.testing.assert_allclose(model(x).numpy(), np.tanh(x), rtol=1e-6)


def test_a_batch_that_the_file_leaves_open():
    """One program for all batches, in which every example has the bits that it has alone."""
    (x, _), *_ = calls("attention")
    model = load(FILES / "attention.tflite")
    assert model.extents == ("batch",)
    many = np.concatenate([x[0], x[0][:, ::-1], (x[0] + 1) % 30])
    assert model(many).numpy().tobytes() == b"".join(model(v[None]).numpy().tobytes() for v in many)


def test_training():
    """Parameters are the file's float arrays; a step along the gradient makes the loss smaller."""
    net = to_module(FILES / "cnn_float.tflite")
    (x, _), *_ = calls("cnn_float")
    assert all(name.startswith("weights.") for name in dict(net.named_parameters()))
    gm, opt = GradManager().attach(net.parameters()), SGD(net.parameters(), lr=0.05)
    losses = []
    for _ in range(4):
        with gm:
            loss = -net(*x)[0, 2].log()
            gm.backward(loss)
        opt.step().clear_grad()
        losses.append(loss.item())
    assert losses == sorted(losses, reverse=True)
    name, weight = next((k, v) for k, v in net.named_parameters() if v.shape == (8,))
    before, e = weight.numpy().copy(), 1e-2
    sides = []
    for sign in (1, -1):
        weight._reset(Tensor(before + sign * e * (np.arange(8) == 3).astype(np.float32)))
        sides.append(-np.log(net(*x).numpy()[0, 2].astype(np.float64)))
    weight._reset(Tensor(before))
    with gm:
        gm.backward(-net(*x)[0, 2].log())
    np.testing.assert_allclose(weight.grad.numpy()[3], (sides[0] - sides[1]) / (2 * e), rtol=2e-2, atol=1e-4), name


def test_what_is_not_known_is_told_at_once():
    cases = [
        Case("Frobnicate", [T(np.ones(3, np.float32))], ["float32"]),
        Case("SKIP_GRAM", [T(np.ones(3, np.float32))], ["float32"]),
    ]
    with pytest.raises(ArgumentError) as e:
        to_module(network(cases))
    assert (
        "2 operators" in str(e.value)
        and "Frobnicate, a custom operator" in str(e.value)
        and "operator 1 -> SKIP_GRAM" in str(e.value)
    )


def test_text_tables_of_hashes_and_lstms_of_other_integers_are_told_at_once():
    """Each with its number, its result and what would help, before anything runs."""
    scaled = lambda dtype, shape=(1, 1, 2): T(np.ones(shape, dtype), quant=(0.1, 0, 0))
    states = [T(np.zeros((1, 2), "int16"), quant=(0.1, 0, 0), variable=True) for _ in range(2)]
    weights = [scaled("int8", (2, 2)) for _ in range(8)] + [None] * 3 + [None] * 4 + [None, None]
    words, hashes = T(dtype="text", shape=(1,)), T(dtype="table", shape=(1,))
    cases = [
        Case("HASHTABLE", [], [hashes], "HashtableOptions", {"TableId": 1}),
        Case("HASHTABLE_FIND", [hashes, words, T(np.zeros(1, np.int64))], ["int64"], "HashtableFindOptions"),
        Case("RESHAPE", [words, k([1, 1])], ["text"], "ReshapeOptions"),
        Case("UNIDIRECTIONAL_SEQUENCE_LSTM", [scaled("int16"), *weights, *states, *[None] * 4], [T(dtype="int16", quant=(0.1, 0, 0))],
             "UnidirectionalSequenceLSTMOptions"),
    ]  # fmt: skip
    with pytest.raises(ArgumentError) as e:
        to_module(network(cases))
    for line in (
        "4 operators of the network have no meaning here", "operator 0 -> HASHTABLE_0_out0: HASHTABLE, a table of hashes",
        "operator 1 -> HASHTABLE_FIND_1_out0: HASHTABLE_FIND, a table of hashes",
        "operator 2 -> RESHAPE_2_out0: RESHAPE, 'RESHAPE_2_in0' is text",
        "operator 3 -> UNIDIRECTIONAL_SEQUENCE_LSTM_3_out0: UNIDIRECTIONAL_SEQUENCE_LSTM, an LSTM of INT16 with 0 intermediate results",
        "help: look words up in the application", "; quantise the activations of the LSTM to int8",
    ):  # fmt: skip
        assert line in str(e.value)


def test_integers_are_never_taken_for_numbers():
    """An operator that is known of floats alone is refused on integers with scales."""
    x = T(np.ones((2, 3), np.int8), quant=(0.5, 1, 0))
    with pytest.raises(ArgumentError, match="DIV, known of floats, not of integers with scales"):
        to_module(to_bytes(Case("DIV", [x, x], [T(dtype="int8", quant=(0.5, 1, 0))], "DivOptions")))


def test_arguments_and_errors():
    net = to_module(
        to_bytes(Case("ADD", [T(np.ones((2, 3), np.float32)), T(np.ones(3, np.float32))], ["float32"], "AddOptions"))
    )
    x, y = np.ones((2, 3), np.float32), np.ones(3, np.float32)
    assert net(x, ADD_0_in1=y).tolist() == net([[1, 1, 1], [1, 1, 1]], [1, 1, 1]).tolist() == [[2, 2, 2]] * 2
    with pytest.raises(DTypeError, match=r"takes float32, got float64; help: x.astype\('float32'\)"):
        net(np.ones((2, 3)), y)
    with pytest.raises(ShapeError, match=r"has the shape \(2, 3\), got \(3,\)"):
        net(y, y)
    with pytest.raises(ArgumentError, match="takes ADD_0_in0, ADD_0_in1; got ADD_0_in0"):
        net(x)
    reshape = to_bytes(
        Case("RESHAPE", [T(np.ones((2, 3), np.float32)), T(np.array([3, 2], np.int32))], ["float32"], "ReshapeOptions")
    )
    assert to_module(reshape)(x, np.array([6], np.int32)).shape == (6,)
    with pytest.raises(TraceError, match="computed from the inputs") as e:
        load(reshape)
    assert "in the TFLite operator 0: RESHAPE" in str(e.value)
    broken = to_bytes(
        Case(
            "CONV_2D",
            [T(np.ones((1, 4, 4, 3), np.float32)), k(np.ones((2, 3, 3, 2)), np.float32)],
            ["float32"],
            "Conv2DOptions",
            {"StrideH": 1, "StrideW": 1},
        )
    )
    with pytest.raises(FileFormatError, match=r"for 3 channels in the TFLite operator 0: CONV_2D"):
        load(broken)


def test_the_command_line(tmp_path):
    run = lambda *args: CliRunner().invoke(main, [str(a) for a in args])
    file = tmp_path / "net.tflite"
    file.write_bytes((FILES / "cnn_int8.tflite").read_bytes())
    made = run("import", file)
    assert made.exit_code == 0 and "i8[1,16,16,3]" in made.output
    (x, want), *_ = calls("cnn_int8")
    assert tengen.load_graph(tmp_path / "net.tgn")(*x).numpy().tobytes() == want[0].tobytes()
    assert "conv" in run("info", file).output
    made = run("compile", file, "-o", tmp_path / "out")
    assert made.exit_code == 0 and (tmp_path / "out" / "net.o").exists(), made.output
    file.write_bytes(b"nothing")
    bad = run("info", file)
    assert bad.exit_code == 1 and "no TFLite model" in bad.output


def test_traced_modules_give_the_same_bits():
    net = to_module(FILES / "cnn_int8.tflite").eval()
    (x, want), *_ = calls("cnn_int8")
    assert trace(net)(Tensor(x[0])).numpy().tobytes() == want[0].tobytes()


def test_files_that_packages_ship():
    """MediaPipe's networks of faces, hands and poses: weights in float16, some of them sparse. One mask of pose_landmark_full grows what
    rounding there is of noise: TFLite's own kernels differ by 2e-4 of the largest result there."""
    spec = importlib.util.find_spec("mediapipe")
    folder = Path(spec.submodule_search_locations[0]) / "modules" if spec and spec.submodule_search_locations else None
    files = sorted(folder.rglob("*.tflite")) if folder else []
    if not files:
        pytest.skip("no package with TFLite files is installed (mediapipe 0.10.14 has some): its networks are not compared")
    tried = 0
    for file in files:
        try:
            model = load(file)
        except ArgumentError as e:
            assert "a custom operator" in str(e), file
            continue
        x = [RNG.random(p.shape).astype(np.float32) for p in model.inputs]
        tolerance = 2e-3 if file.stem == "pose_landmark_full" else 1e-4
        wrong = differ(arrays(model(*x)), theirs(file.read_bytes(), *x, reference=False), 0, tolerance)
        assert not wrong, (file.name, wrong)
        tried += 1
    assert tried > 0
