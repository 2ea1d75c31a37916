"""The networks give PyTorch's results, gradients and statistics for the same weights, in float64 on both sides.

`saved.npz` has what PyTorch gave, so that a machine without it compares too; where PyTorch is installed it runs as well.
`python tests/models/test_against_torch.py` writes the file anew, and notes PyTorch's version in it.
"""

import sys
from pathlib import Path

import numpy as np
import pytest
from exhaustive import but

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parent.parent)]

import saved_outputs  # noqa: E402  (after the path is set)
from test_models import SHORT, SMALL, first, network, sample  # noqa: E402  (after the path is set)

from tengen import Tensor  # noqa: E402  (after the path is set)
from tengen.autodiff import GradManager  # noqa: E402  (after the path is set)

SAVED = Path(__file__).with_name("saved.npz")
TRAINED = [(name, "short" if name in SHORT else "") for name in SMALL if name not in ("resnet18", "resnet34", "resnet50")]
TRAINED.append(("resnet", "basic"))
# Rounding in float64 is 1e-16, and through sixty layers it grows to about 1e-12. In training, batch norm of a handful of values
# divides by their spread, and gradients are sums that it makes cancel: 1e-8 was seen. A wrong term is 1e-3 and more.
RTOL = {False: 1e-9, True: 1e-7}  # in evaluation, in training


def options(name, kind):
    return {"depths": (1, 1), "bottleneck": False} if kind == "basic" else SHORT.get(name, {}) if kind else {}


def torch_network(name, net, more):
    import torch
    import torch_sequence
    import torch_vision

    theirs = getattr(torch_sequence if hasattr(torch_sequence, name) else torch_vision, name)(**{**SMALL[name][0], **more}).double()
    weights = net.state_dict()
    mine = {k for k in theirs.state_dict() if not k.endswith("num_batches_tracked")}
    assert mine == set(weights)
    with torch.no_grad():
        for k in mine:
            theirs.state_dict()[k].copy_(torch.from_numpy(np.array(weights[k])).reshape(theirs.state_dict()[k].shape))
    for m in theirs.modules():
        if isinstance(m, torch.nn.Dropout):
            m.p = 0.0
    return theirs


def wide(x):
    return x if x.dtype == np.int32 else x.astype(np.float64)


def pair(name, more):
    net = network(name, **more)
    for _, t in net.named_tensors():
        t._reset(t.numpy().astype(np.float64))
    return net


def seed(shape):
    return np.random.default_rng(3).normal(size=shape)


def mine(name, kind, train):
    """The result in evaluation, or in training with gradients and statistics; by name."""
    net = pair(name, options(name, kind))
    if not train:
        return {"y": first(net.eval()(Tensor(wide(sample(name))))).numpy()}
    gm = GradManager().attach(net.train().parameters())
    with gm:
        y = first(net(Tensor(wide(sample(name, 4)))))
        gm.backward((y * Tensor(seed(y.shape))).sum())
    parameters = dict(net.named_parameters())
    found = {f"gradient {k}": p.grad.numpy() for k, p in parameters.items() if p.grad is not None}
    return {"y": y.numpy(), **found, **{k: t.numpy() for k, t in net.named_tensors() if k not in parameters}}


def theirs(name, kind, train):
    """The same from PyTorch."""
    import torch

    more = options(name, kind)
    net = torch_network(name, pair(name, more), more)
    given = lambda x: torch.from_numpy(wide(x).astype(np.int64) if x.dtype == np.int32 else wide(x))
    if not train:
        with torch.no_grad():
            return {"y": first(net.eval()(given(sample(name)))).numpy()}
    y = first(net.train()(given(sample(name, 4))))
    (y * torch.from_numpy(seed(y.shape))).sum().backward()
    parameters = dict(net.named_parameters())
    if name == "lstm":
        import torch_sequence

        parameters = {torch_sequence._tengen_name(k): p for k, p in parameters.items()}
    found = {f"gradient {k}": p.grad.numpy() for k, p in parameters.items() if p.grad is not None}
    buffers = {k: t.numpy() for k, t in net.named_buffers() if not k.endswith("num_batches_tracked")}
    return {"y": y.detach().numpy(), **found, **buffers}


EVERY = [(name, "", False) for name in SMALL] + [(name, kind, True) for name, kind in TRAINED]


def label(name, kind, train):
    return f"{name} {kind} {'train' if train else 'eval'}: "


@pytest.fixture(scope="module", params=["saved", "live"])
def source(request):
    if request.param == "saved":
        return lambda *which: saved_outputs.load(SAVED, label(*which))
    pytest.importorskip("torch", reason="PyTorch is not installed: its saved outputs are compared, it is not run")
    return lambda *which: {k: saved_outputs.abridged(a) for k, a in theirs(*which).items()}


@but(every=8)
@pytest.mark.parametrize("name, kind, train", EVERY)
def test_results_and_gradients_are_those_of_pytorch(name, kind, train, source):
    got, want = mine(name, kind, train), source(name, kind, train)
    saved_outputs.agree(got, want, RTOL[train])
    y = got["y"]
    assert train or np.abs(y[0] - y[1]).max() > 0.05 * np.abs(y).max()  # or everything but the last layers goes untested


@but(every=4)
@pytest.mark.parametrize("name", SMALL)
def test_float32_is_float64_but_for_rounding(name):
    """The error of a result is that of some 50 roundings to 2^-24 of the largest one: layers keep its size, and errors of layers add
    like a random walk. In MobileNetV3 with weights by chance values grow a hundredfold, and gates multiply what is off by themselves."""
    want = mine(name, "", False)["y"]
    got = first(network(name).eval()(Tensor(sample(name)))).numpy()
    worst = np.abs(got - want).max() / np.abs(want).max()
    assert got.dtype == np.float32 and 0 < worst < (500 if name == "mobilenet_v3_large" else 50) * 2.0**-24


def test_one_wrong_number_is_seen():
    want = {"y": 1 + np.arange(1000.0) / 1000}
    kept = {k: saved_outputs.abridged(a) for k, a in want.items()}
    saved_outputs.agree(want, kept, RTOL[True])
    for i in (0, 1, 500, 998):
        off = want["y"].copy()
        off[i] *= 1.001
        with pytest.raises(AssertionError, match="y: off by"):
            saved_outputs.agree({"y": off}, kept, RTOL[True])


if __name__ == "__main__":
    import torch

    found = {label(*which) + k: a for which in EVERY for k, a in theirs(*which).items()}
    saved_outputs.save(SAVED, found, f"PyTorch {torch.__version__}, by {Path(__file__).name}")
    print(f"{len(found)} arrays, {SAVED.stat().st_size} bytes")
