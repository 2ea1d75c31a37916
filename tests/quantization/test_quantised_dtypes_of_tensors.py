"""Tensors of MegEngine's quantised dtypes: what their integers are, and what they stand for."""

import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest
from each import each

import tengen.functional as F
import tengen.module as M
from tengen import Parameter, Tensor, trace
from tengen.base.errors import ArgumentError, DTypeError, TraceError
from tengen.core.tensor import dtype as D
from tengen.quantization import (
    Observer,
    QuantMode,
    create_qparams,
    fake_quant_bias,
    min_max_fakequant_qconfig,
    quantize,
    quantize_qat,
)

RNG = np.random.default_rng(0)
X = (RNG.standard_normal((3, 5)) * 3).astype("f4")
DTYPES = {
    "qint8": D.qint8(0.05), "quint8": D.quint8(0.05, 127), "qint4": D.qint4(0.4), "quint4": D.quint4(0.4, 7), "qint32": D.qint32(0.001),
}  # fmt: skip


@each("name", DTYPES)
def test_conversions_are_those_of_arrays(name):
    d = DTYPES[name]
    want = getattr(D, f"convert_to_{name}")(X, d)
    numbers = getattr(D, f"convert_from_{name}")(want)
    y = Tensor(X).astype(d)
    assert y.dtype == want.dtype and y.numpy().tobytes() == want.tobytes()
    for made in (y, Tensor(want), Tensor(want.tolist(), dtype=d), Parameter(want, dtype=d), Tensor(Tensor(X), dtype=d), Tensor(y)):
        np.testing.assert_allclose(made.astype("float32").numpy(), numbers, rtol=1e-6, atol=1e-6)
        assert made.qparams.scale.item() == np.float32(D.get_scale(d)) and made.astype("int64").tolist() == want.tolist()
    assert y.astype("float64").dtype == "float64"
    other = y.astype(D.qint8(0.1))
    np.testing.assert_allclose(other.astype("float32").numpy(), np.clip(numbers, -12.8, 12.7), atol=0.051)
    traced = trace(lambda x: x.astype(d).astype("float32"))
    assert traced(Tensor(X)).numpy().tobytes() == y.astype("float32").numpy().tobytes()


def test_copies_know_it():
    y = Tensor(X).astype(D.quint8(0.05, 127))
    for made in (copy.copy(y), copy.deepcopy(y), pickle.loads(pickle.dumps(y))):
        assert made.astype("float32").numpy().tobytes() == y.astype("float32").numpy().tobytes() and made.qparams == y.qparams
    assert type(copy.deepcopy(Parameter(y))) is Parameter and copy.deepcopy(Parameter(y)).qparams is y.qparams


@pytest.mark.parametrize("mode", ["identity", "RELU"])
def test_convolutions_take_such_tensors_and_dtypes(mode):
    image, weight, bias = (RNG.standard_normal(s).astype("f4") for s in ((2, 4, 6, 6), (3, 4, 3, 3), (1, 3, 1, 1)))
    i, w, b = Tensor(image).astype(D.qint8(0.05)), Parameter(weight).astype(D.qint8(0.03)), Tensor(bias).astype(D.qint32(0.05 * 0.03))
    made = F.quantized.conv_bias_activation(i, w, b, D.qint8(0.2), padding=1, nonlinear_mode=mode)
    want = F.conv2d(*(t.astype("float64") for t in (i, w, b)), padding=1)
    want = np.clip(np.rint((F.relu(want) if mode == "RELU" else want).numpy() / 0.2), -128, 127)
    assert np.abs(made.numpy() - want).max() <= 1 and (made.numpy() == want).mean() > 0.99
    assert made.qparams.scale.item() == np.float32(0.2) and np.abs(made.astype("float32").numpy() - made.numpy() * 0.2).max() < 1e-5


def test_where_a_scale_would_be_lost():
    d = D.qint8(0.1)
    for call in (
        lambda: F.zeros(3, dtype=d), lambda: F.astype(F.ones(2), d), lambda: F.ones(2).to(d), lambda: F.ones(2) + np.ones(2, d),
        lambda: F.arange(3, dtype=d),
    ):  # fmt: skip
        with pytest.raises((DTypeError, TypeError), match="quantised dtype .*0.1.* is taken by Tensor"):
            call()
    with pytest.raises(ValueError, match="no quantised dtype; help: .*x.qparams.scale"):
        D.get_scale(Tensor(X).astype(d).dtype)


def test_what_nobody_said_can_be_said():
    x, w, bias = Tensor(X), Tensor(X), Tensor(X[:1])
    assert x.qparams.scale is None and x.qparams.mode is QuantMode.SYMMERTIC and fake_quant_bias(bias, x, w) is bias
    x.qparams.update(create_qparams(QuantMode.SYMMERTIC, "qint8", Tensor(0.1)))
    w.qparams.update(create_qparams(QuantMode.SYMMERTIC, "qint8", Tensor(0.2)))
    np.testing.assert_allclose(fake_quant_bias(bias, x, w).numpy(), np.rint(X[:1] / 0.02) * 0.02, atol=1e-5)
    assert (x + 1).qparams.scale is None
    with pytest.raises(TypeError, match="the base of observers"):
        Observer("qint8")


def test_quantised_layers_take_what_the_integers_stand_for():
    net = M.Linear(5, 4)
    qat = quantize_qat(M.Sequential(M.QuantStub(), net, M.DequantStub()), qconfig=min_max_fakequant_qconfig)
    qat(Tensor(X))
    made = quantize(qat.eval())
    codes = Tensor(X).astype(made[0].act_rounding.get_quantized_dtype())
    assert made[1](codes).numpy().tobytes() == made[1](made[0](Tensor(X))).numpy().tobytes()
    assert made[2](codes).numpy().tobytes() == made[0](Tensor(X)).numpy().tobytes()


@each("move", [
    lambda x: x.reshape(5, 3), lambda x: x.T, lambda x: x[1:, ::2], lambda x: x[0], lambda x: x[[2, 0]], lambda x: x[x.astype("float32") > 0],
    lambda x: F.concat([x, x], 1), lambda x: F.stack([x, x]), lambda x: F.split(x, [2], axis=1)[1], lambda x: F.flip(x, 0),
    lambda x: F.broadcast_to(x, (2, 3, 5)), lambda x: F.tile(x, (2, 1)), lambda x: F.repeat(x, 2, 0), lambda x: F.roll(x, 1, 0),
    lambda x: F.expand_dims(x, 0), lambda x: F.gather(x, 1, F.zeros((3, 1), dtype="int32")), lambda x: F.copy(x), lambda x: x.flatten(),
    lambda x: x.detach(), lambda x: F.take(x, Tensor([1]), 0),
])  # fmt: skip
def test_what_moves_elements_keeps_what_they_stand_for(move):
    x = Tensor(X).astype(D.quint8(0.05, 127))
    assert move(x).qparams is x.qparams and move(x).astype("float32").tolist() == move(x.astype("float32")).tolist()


def test_integers_of_other_scales_are_not_joined():
    x, same, other = (Tensor(X).astype(D.qint8(s)) for s in (0.05, 0.05, 0.1))
    assert F.concat([x, same]).qparams == x.qparams
    for pair in ([x, other], [x, Tensor(x.numpy())]):
        with pytest.raises(ArgumentError, match="do not stand for the same numbers: QParams.*help: bring them to one dtype"):
            F.concat(pair)
    assert F.concat([x, other.astype(D.qint8(0.05))]).astype("float32").shape == (6, 5) and (x + 1).qparams.scale is None


def test_a_tensor_that_another_process_has_pickled(tmp_path):
    """Here no dtype was asked for its scale before."""
    file = tmp_path / "x.pickle"
    file.write_bytes(pickle.dumps(Tensor(X).astype(D.qint8(0.05))))
    code = f"import pickle; x = pickle.load(open({str(file)!r}, 'rb')); print((x[1:].qparams.scale.item(), x.T.astype('float32')[0, 0].item()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str((np.float32(0.05).item(), Tensor(X).astype(D.qint8(0.05)).astype("float32")[0, 0].item()))


def test_a_program_takes_no_scale():
    """It would compute with the integers, and with those of another scale the next time."""
    x = Tensor(X).astype(D.qint8(0.05))
    with pytest.raises(TraceError, match=r"a quantised dtype, whose scale .*help: give what it stands for, x.astype\('float32'\)"):
        trace(lambda x: x.astype("float32"))(x)
    traced = trace(lambda x: x.astype("float32"))
    for _ in range(3):  # the first is recorded, and the others are called directly
        assert traced(Tensor(x.numpy())).tolist() == x.numpy().tolist()
        with pytest.raises(TraceError, match="a quantised dtype, whose scale"):
            traced(x)
    moved = trace(lambda x: x.astype(D.qint8(0.05)).T[1:].astype("float32"))
    assert moved(Tensor(X)).numpy().tobytes() == x.T[1:].astype("float32").numpy().tobytes()
