"""Programs that most likely do not mean what they do: each is warned of, once, with the cure; and those that do mean it are not."""

import copy
import pickle
import random
import re
import time
import warnings

import numpy as np
import pytest
from each import each

import tengen.functional as F
import tengen.module as M
from tengen import Parameter, Tensor, trace
from tengen.autodiff import GradManager
from tengen.base.errors import UsageWarning, warned
from tengen.optimizer import LBFGS, SGD, Adam
from tengen.pytorch import nn


@pytest.fixture(autouse=True)
def nothing_said():
    warned.clear()


def net():
    return M.Sequential(M.Linear(3, 4), M.ReLU(), M.Linear(4, 1))


def loss_of(n):
    return (n(F.ones((2, 3))) ** 2).sum()


def test_nothing_is_attached():
    n, gm = net(), GradManager()
    with gm, pytest.warns(UsageWarning, match=r"nothing is attached.*attach\(net\.parameters\(\)\)"):
        gm.backward(loss_of(n))


WITHOUT_A_PATH = {
    "made outside": lambda n, gm: loss_of(n),
    "through numpy": lambda n, gm: inside(gm, lambda: Tensor(loss_of(n).numpy()) * 1.0),
    "through item": lambda n, gm: inside(gm, lambda: Tensor(loss_of(n).item())),
    "detached": lambda n, gm: inside(gm, lambda: loss_of(n).detach()),
    "another net's": lambda n, gm: inside(gm, lambda: loss_of(net())),
}


def inside(gm, f):
    gm.record()
    return f()


@pytest.mark.parametrize("how", WITHOUT_A_PATH)
def test_a_loss_that_no_attached_tensor_has_a_part_in(how):
    n = net()
    gm = GradManager().attach(n.parameters())
    y = WITHOUT_A_PATH[how](n, gm)
    if gm.level is None:
        gm.record()
    with pytest.warns(UsageWarning, match=r"backward\(f32\[\]\) added no gradient.*none of the 4 attached.*numpy\(\), item\(\)"):
        gm.backward(y)


def test_a_loss_that_some_have_a_part_in_is_meant():
    n = net()
    gm = GradManager().attach([*n.parameters(), Parameter([1.0])])
    with gm:
        gm.backward(loss_of(n))
    assert n[0].weight.grad is not None


@pytest.mark.parametrize("kind", [SGD, Adam])
@pytest.mark.parametrize("how", ["before any gradient", "another net's"])
def test_a_step_that_updates_nothing(kind, how):
    n, other = net(), net()
    opt = kind((other if how == "another net's" else n).parameters(), lr=0.1)
    if how == "another net's":
        gm = GradManager().attach(n.parameters())
        with gm:
            gm.backward(loss_of(n))
    with pytest.warns(UsageWarning, match=r"step\(\): no parameter.*nothing was updated.*backward\(loss\)"):
        opt.step()
    with pytest.warns(UsageWarning, match="nothing was updated"):
        trace(lambda x: opt.step() and x)(Tensor(1.0))


SOFTMAXES = {
    "softmax": (F.softmax, M.Softmax(), Tensor.softmax, nn.functional.softmax, nn.Softmax()),
    "logsoftmax": (F.logsoftmax, F.log_softmax, M.LogSoftmax(), Tensor.logsoftmax, Tensor.log_softmax, nn.functional.log_softmax,
                   nn.LogSoftmax()),
    "softmin": (F.softmin, M.Softmin(), nn.functional.softmin, nn.Softmin()),
}  # fmt: skip
REFERENCES = {
    "softmax": lambda x, axis: np.exp(x) / np.exp(x).sum(axis, keepdims=True),
    "logsoftmax": lambda x, axis: x - np.log(np.exp(x).sum(axis, keepdims=True)),
    "softmin": lambda x, axis: np.exp(-x) / np.exp(-x).sum(axis, keepdims=True),
}  # fmt: skip


@each("name", SOFTMAXES)
def test_a_softmax_without_an_axis(name):
    """It takes MegEngine's and PyTorch's axis, and says so where that is not the last one, once for a line."""
    rng = np.random.default_rng(0)
    for f in SOFTMAXES[name]:
        for shape, axis in (((), ()), ((3,), 0), ((2, 4), 1), ((2, 3, 4), 0), ((2, 3, 4, 5), 1), ((2, 3, 1, 2, 2), 1), ((2, 0, 3), 0)):
            x, warned_of = rng.standard_normal(shape), []
            for run in (f, trace(lambda x, f=f: f(x))):
                with warnings.catch_warnings(record=True) as seen:
                    warnings.simplefilter("always")
                    got = [run(Tensor(x)).numpy() for _ in range(2)]
                warned_of.append([str(w.message) for w in seen])
                assert {w.filename for w in seen} <= {__file__} and {w.category for w in seen} <= {UsageWarning}
                for y in got:
                    np.testing.assert_allclose(y, REFERENCES[name](x, axis), rtol=1e-12, atol=1e-15)
            warned.clear()
            want = [rf"axis {axis}, as MegEngine and PyTorch do; help:.*axis=-1"] if len(shape) > 2 else []
            for texts in warned_of:
                assert len(texts) == len(want) and all(re.search(w, t) for w, t in zip(want, texts)), (shape, texts)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            if not isinstance(f, M.Module):
                f(Tensor(x), -1)


def test_a_closure_that_computes_no_gradient():
    with pytest.warns(UsageWarning, match=r"LBFGS\.step\(\): no parameter.*nothing was updated"):
        LBFGS(net().parameters()).step(lambda: Tensor(1.0))


def test_a_warning_comes_once_for_a_line():
    opt = SGD(net().parameters(), lr=0.1)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(3):
            opt.step()
        opt.step()
    assert [w.category for w in seen] == [UsageWarning] * 2 and {w.filename for w in seen} == {__file__}


def test_a_parameter_replaced_by_an_array():
    class Scale(M.Module):
        def __init__(self):
            super().__init__()
            self.weight = Parameter(np.ones((4, 3), "float32"))
            self.mean = Tensor(np.ones(3))

    n = Scale()
    with pytest.warns(UsageWarning, match=r"Scale\.mean was a Tensor"):
        n.mean = np.zeros(3)
    with pytest.warns(UsageWarning, match=r"Scale\.weight was a Parameter of shape \(4, 3\) and is now a NumPy array.*Parameter\(values\)"):
        n.weight = np.zeros((4, 3), "float32")
    n.weight = Parameter(np.zeros((4, 3), "float32"))
    assert len(list(n.parameters())) == 1
    with pytest.raises(TypeError, match=r"Linear\.weight must be a Parameter, a Tensor or None, got a ndarray of shape \(4, 3\); help:"):
        M.Linear(3, 4).weight = np.zeros((4, 3), "float32")


def test_loading_tells_what_did_not_match():
    n, state = net(), net().state_dict()
    assert n.load_state_dict(state) == ([], [])
    del state["0.bias"]
    state["more"] = np.zeros(1)
    found = n.load_state_dict(state, strict=False)
    assert found.missing_keys == ["0.bias"] and found.unexpected_keys == ["more"]
    with pytest.warns(UsageWarning, match=r"none of the 4 tensors of Sequential was given a value; it has '0\.bias'.*'net\.0\.bias'"):
        found = n.load_state_dict({f"net.{k}": v for k, v in net().state_dict().items()}, strict=False)
    assert len(found.missing_keys) == 4


def test_a_module_without_its_bases_init_works():
    class Net(M.Module):
        def __init__(self, width, scale=2.0):
            self.fc = M.Linear(3, width)
            self.scale = scale

        def forward(self, x):
            return self.fc(x) * self.scale

    n = Net(5)
    assert n(F.ones((2, 3))).shape == (2, 5) and n.training and not n.eval().fc.training
    seen = []
    n.register_forward_hook(lambda *_: seen.append(1))
    trace(n)(F.ones((2, 3)))
    assert seen and len(list(n.parameters())) == 2


def test_float64_data_beside_float32_parameters():
    n = net()
    with pytest.warns(UsageWarning, match=r"f64\[2,3\] meets the float32 parameter.*dtype='float32'"):
        assert n(Tensor(np.ones((2, 3)))).dtype == "float64"
    with pytest.warns(UsageWarning, match="float64"):
        trace(lambda x: n(x))(Tensor(np.ones((2, 3))))


@pytest.mark.parametrize("loss", [F.loss.square_loss, F.loss.l1_loss, F.loss.binary_cross_entropy])
def test_a_loss_of_other_shapes(loss):
    pred, label = Tensor([[0.5], [0.7]]), Tensor([1.0, 0.0])
    with pytest.warns(UsageWarning, match=r"pred has shape \(2, 1\), label \(2,\), and they are broadcast"):
        loss(pred, label)
    loss(pred, label.reshape(2, 1))


class Holder(M.Module):
    """A module with one attribute."""

    def __init__(self, held):
        super().__init__()
        self.held = held


def one_of_two(x):
    n = net()
    gm = GradManager().attach(n.parameters())
    with gm:
        gm.backward([loss_of(n), Tensor(x)])


def frozen(f):
    return lambda: trace(f, symbolic=True)(Tensor([1.0]))


STATE = np.random.default_rng(0)
SILENT = {  # what was silent once -> (the mistake, what the warning says)
    "a parameter replaced by a tensor": (
        lambda: setattr(M.Linear(3, 4), "weight", F.zeros((4, 3))), r"Linear\.weight was a Parameter.*a buffer",
    ),
    "modules in a set": (lambda: Holder({M.Linear(2, 2)}), r"Holder\.held holds a Linear in a set.*neither trained nor saved; help: a list"),
    "modules under numbers": (lambda: Holder({1: M.Linear(2, 2)}), r"Holder\.held holds a Linear under a key that is no text"),
    "a parameter under a number": (lambda: Holder({1: Parameter([1.0])}), r"Holder\.held holds a Parameter under a key"),
    "a hyperparameter of another name": (
        lambda: SGD(net().parameters(), lr=0.1).param_groups[0].update(learning_rate=1.0),
        r"group\['learning_rate'\] = 1\.0 is read by nothing.*it has lr",
    ),
    "one of two losses": (lambda: one_of_two(1.0), r"of 2 results, that at position 1 \(f32\[\]\) was not computed from attached tensors"),
    "Python's random numbers": (frozen(lambda x: x * random.random()), "a random number of Python's is read inside a trace"),
    "NumPy's random numbers": (frozen(lambda x: x * np.random.rand()), "a random number of NumPy's is read inside a trace"),
    "a generator's random numbers": (frozen(lambda x: x * STATE.random()), "a random number of STATE is read inside a trace"),
    "the clock": (frozen(lambda x: x * time.time()), "clock"),
    "a dict that no name fits": (lambda: net().load_state_dict({}, strict=False), "none of the 4 tensors.*has nothing"),
    "huber's shapes": (lambda: F.loss.huber_loss(F.zeros(2), F.zeros((2, 1))), r"pred has shape \(2,\), label \(2, 1\), and they are"),
    "NumPy's float64": (lambda: net()(np.ones((2, 3))), r"f64\[2,3\] meets the float32 parameter"),
}  # fmt: skip


@pytest.mark.parametrize("name", SILENT)
def test_what_was_silent(name):
    mistake, words = SILENT[name]
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(2):
            mistake()
    assert len(seen) == (1 if seen[0].category is UsageWarning else 2), [str(w.message) for w in seen]  # a trace warns for each recording
    assert re.search(words, str(seen[0].message)) and "help: " in str(seen[0].message), seen[0].message


REFUSED = {  # what was taken in silence once -> (the mistake, its error)
    "a rate of the optimizer": (
        lambda: setattr(SGD(net().parameters(), lr=0.1), "lr", 1.0), AttributeError, r"SGD\.lr cannot be set.*group\['lr'\] = 1\.0",
    ),
    "an attribute of a group": (
        lambda: setattr(SGD(net().parameters(), lr=0.1).param_groups[0], "momentum", 1.0), AttributeError,
        r"help: group\['momentum'\] = 1\.0",
    ),
    "a group's key": (
        lambda: SGD([{"params": net().parameters(), "learning_rate": 1.0}], lr=0.1), ValueError, "a group has no 'learning_rate'",
    ),
    "axis={} of std": (lambda: F.std(F.zeros(2), axis={}), TypeError, r"axis must be an int.*got \{\}"),
    "axis={} of std, traced": (frozen(lambda x: F.std(x, axis={})), TypeError, r"axis must be an int.*got \{\}"),
    "output_padding": (
        lambda: F.conv_transpose2d(F.ones((1, 1, 3, 3)), F.ones((1, 1, 2, 2)), stride=2, output_padding=2), ValueError, "less than the stride",
    ),
    "backward of a tensor": (lambda: Tensor([1.0]).backward(), RuntimeError, r"not computed from .*help: net.requires_grad_\(\)"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_was_taken_in_silence(name):
    mistake, error, words = REFUSED[name]
    with pytest.raises(error, match=words):
        mistake()


def test_names_that_begin_like_the_hooks_are_found():
    n = Holder(None)
    n._forward_net = M.Linear(2, 2)
    n.register_forward_hook(lambda *_: None)
    assert [name for name, _ in n.named_parameters()] == ["_forward_net.bias", "_forward_net.weight"]


def test_a_group_is_copied_in_silence():
    opt = SGD([{"params": net().parameters(), "name": "all"}], lr=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        group = copy.copy(opt.param_groups[0])
        pickle.loads(pickle.dumps(copy.deepcopy(group)))
        opt.load_state_dict(opt.state_dict())
        group["name"], group["momentum"] = "some", 0.5
    assert group["name"] == "some" and opt.param_groups[0]["name"] == "all"


def test_integers_take_the_floats_dtype():
    x, n, mask = Tensor([1.0, 2.0]), Tensor([3, 4]), Tensor([True, False])
    for y in (x * n, n * x, x + Tensor(3), x * mask, (x * mask).sum() / mask.sum(), F.where(mask, x, n), F.concat([x, n]), x @ n,
              F.maximum(x, n), x * np.array([1, 2]), np.array([1, 2]) * x, x.astype("float16") * n):  # fmt: skip
        assert y.dtype == ("float16" if y.dtype == "float16" else "float32")
    assert (x.astype("float16") * n).dtype == "float16" and (x.astype("float64") * n).dtype == "float64"
