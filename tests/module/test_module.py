"""Modules: names, shapes and order of their states, strict loading, modes, hooks, initial values, batch norm's statistics."""

import copy
import pickle

import numpy as np
import pytest

from tengen import Parameter, Tensor, random, trace
from tengen import functional as F
from tengen import module as M
from tengen.autodiff import GradManager
from tengen.ops.define import REGISTRY


def shapes(m):
    return {k: v.shape for k, v in m.state_dict().items()}


def test_names_in_alphabetical_order_of_attributes():
    class Net(M.Module):
        def __init__(self):
            super().__init__()
            self.z, self.l = M.Linear(2, 3), [M.Linear(2, 2, bias=False), Parameter([1.0])]
            self.d = {"b": M.Linear(1, 1), "a": Tensor([2.0])}
            self.again = self.z

    net = Net()
    assert list(net.state_dict()) == ["again.bias", "again.weight", "d.a", "d.b.bias", "d.b.weight", "l.0.weight", "l.1"]
    assert [n for n, _ in net.named_buffers()] == ["d.a"] and len(list(net.parameters())) == 6
    assert [n for n, _ in net.named_modules()] == ["", "again", "d.b", "l.0"]
    assert all(isinstance(v, np.ndarray) for v in net.state_dict().values())
    assert net.state_dict(keep_var=True)["l.1"] is net.l[1]


@pytest.mark.parametrize("make, want", [
    (lambda: M.Conv2d(4, 6, (3, 5)), {"bias": (1, 6, 1, 1), "weight": (6, 4, 3, 5)}),
    (lambda: M.Conv2d(4, 6, 3, groups=2, bias=False), {"weight": (2, 3, 2, 3, 3)}),
    (lambda: M.Conv1d(4, 6, 3), {"bias": (1, 6, 1), "weight": (6, 4, 3)}),
    (lambda: M.ConvTranspose2d(4, 6, 3), {"bias": (1, 6, 1, 1), "weight": (4, 6, 3, 3)}),
    (lambda: M.ConvTranspose2d(4, 6, 3, groups=2), {"bias": (1, 6, 1, 1), "weight": (2, 2, 3, 3, 3)}),
    (lambda: M.Linear(3, 5), {"bias": (5,), "weight": (5, 3)}),
    (lambda: M.BatchNorm2d(3), {"bias": (3,), "running_mean": (3,), "running_var": (3,), "weight": (3,)}),
    (lambda: M.BatchNorm1d(3, affine=False), {"running_mean": (3,), "running_var": (3,)}),
    (lambda: M.LayerNorm((2, 3)), {"bias": (6,), "weight": (6,)}),
    (lambda: M.GroupNorm(2, 4), {"bias": (4,), "weight": (4,)}),
    (lambda: M.Embedding(7, 3), {"weight": (7, 3)}),
])  # fmt: skip
def test_shapes_of_states(make, want):
    m = make()
    assert shapes(m) == want and list(shapes(m)) == sorted(want)
    other = make()
    other.load_state_dict(m.state_dict())
    for (_, a), (_, b) in zip(m.named_tensors(), other.named_tensors()):
        assert a.shape == b.shape and a.numpy().tobytes() == b.numpy().tobytes()


@pytest.mark.parametrize("shape", [(40, 3), (5, 3, 70), (6, 3, 33, 35), (2, 3, 4, 5, 6)])
@pytest.mark.parametrize("far", [0, 1e4])
def test_batch_norm_statistics_in_one_pass(shape, far):
    """The variance keeps its digits where the mean is large, and where the first element lies far from the others."""
    a = np.random.default_rng(0).standard_normal(shape) + far
    a[(0, slice(None), *(0 for _ in shape[2:]))] += 50
    a, axes = a.astype(np.float32), (0, *range(2, len(shape)))
    _, m, v = REGISTRY["batch_norm_train"](Tensor(a), None, None)
    np.testing.assert_allclose(v.numpy(), a.astype(np.float64).var(axes, keepdims=True), rtol=5e-6)
    np.testing.assert_allclose(m.numpy(), a.astype(np.float64).mean(axes, keepdims=True), rtol=2e-7, atol=1e-5)


def test_batch_norm_of_what_does_not_vary():
    for shape in [(4, 2), (4, 2, 3, 3), (1, 2, 1, 1)]:
        y, m, v = REGISTRY["batch_norm_train"](F.full(shape, 1e4 / 3), None, None)
        assert not y.numpy().any() and not v.numpy().any() and (m.numpy() == np.float32(1e4 / 3)).all()
    for shape in [(0, 2), (0, 2, 3, 3), (3, 2, 0, 4)]:
        _, m, v = REGISTRY["batch_norm_train"](F.zeros(shape), None, None)
        assert np.isnan(m.numpy()).all() and np.isnan(v.numpy()).all()


def test_batch_norm_keeps_ninety_percent():
    bn = M.BatchNorm2d(2)
    assert bn.weight.shape == bn.running_mean.shape == (1, 2, 1, 1)
    bn(F.full((2, 2, 3, 3), 10.0))
    np.testing.assert_allclose(bn.running_mean.numpy().ravel(), [1, 1], rtol=1e-6)
    np.testing.assert_allclose(bn.running_var.numpy().ravel(), [0.9, 0.9], rtol=1e-6)
    x = np.random.default_rng(0).normal(2, 3, (4, 2, 3, 3)).astype(np.float32)
    bn = M.BatchNorm2d(2, momentum=0.5)
    y = bn(Tensor(x)).numpy()
    wide = x.astype(np.float64)
    mean, var = (f((0, 2, 3), keepdims=True) for f in (wide.mean, wide.var))
    close = {"rtol": 0, "atol": 8 * 2.0**-24 * 4}  # some eight roundings of numbers below 4
    np.testing.assert_allclose(y, (wide - mean) / np.sqrt(var + 1e-5), **close)
    want = 0.5 + 0.5 * wide.var((0, 2, 3), ddof=1)
    np.testing.assert_allclose(bn.running_var.numpy().ravel(), want, rtol=8 * 2.0**-24)
    bn.eval()
    before = bn.running_mean.tolist()
    got = bn(Tensor(x)).numpy()
    m, v = (t.numpy().astype(np.float64) for t in (bn.running_mean, bn.running_var))
    np.testing.assert_allclose(got, (wide - m) / np.sqrt(v + 1e-5), **close)
    assert bn.running_mean.tolist() == before
    with pytest.raises(ValueError, match="takes a tensor of 4 axes"):
        bn(Tensor([[1.0, 2.0]]))


def test_what_only_pytorch_counts_is_no_surprise_in_strict_loading():
    """`num_batches_tracked` of batch norms, as in the files of torchvision's networks; anywhere else it is unexpected."""
    net = M.Sequential(M.Conv2d(2, 3, 1), M.BatchNorm2d(3), M.ReLU())
    theirs = net.state_dict() | {"1.num_batches_tracked": np.array(7)}
    assert net.load_state_dict(theirs) == ([], [])
    assert M.BatchNorm1d(4).load_state_dict(M.BatchNorm1d(4).state_dict() | {"num_batches_tracked": np.array(0)}) == ([], [])
    with pytest.raises(KeyError, match="unexpected: 0.num_batches_tracked"):
        net.load_state_dict(theirs | {"0.num_batches_tracked": np.array(7)})
    assert "1.num_batches_tracked" not in net.state_dict()


def test_strict_loading_of_pytorchs_own_state_dict():
    torch = pytest.importorskip("torch")
    theirs = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 1), torch.nn.BatchNorm2d(3), torch.nn.Flatten(), torch.nn.Linear(12, 5))
    theirs(torch.randn(4, 2, 2, 2))  # moves the statistics
    ours = M.Sequential(M.Conv2d(2, 3, 1), M.BatchNorm2d(3), M.Flatten(), M.Linear(12, 5))
    ours.load_state_dict(theirs.state_dict())
    x = np.random.default_rng(0).normal(size=(2, 2, 2, 2)).astype(np.float32)
    with torch.no_grad():
        wanted = theirs.eval()(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(ours.eval()(Tensor(x)).numpy(), wanted, rtol=1e-5, atol=1e-6)


def test_strict_loading_names_everything_that_is_wrong():
    net = M.Sequential(M.Linear(2, 3), M.Linear(3, 1))
    good = net.state_dict()
    before = {k: v.tobytes() for k, v in good.items()}
    bad = {("0.wieght" if k == "0.weight" else k): v for k, v in good.items()}
    with pytest.raises(KeyError, match=r"(?s)missing: 0.weight.*is it 0.wieght.*unexpected: 0.wieght"):
        net.load_state_dict(bad)
    with pytest.raises(ValueError, match=r"1.weight: \(1, 4\) does not fit \(1, 3\)"):
        net.load_state_dict({**good, "0.weight": good["0.weight"] + 1, "1.weight": np.zeros((1, 4), np.float32)})
    assert {k: v.tobytes() for k, v in net.state_dict().items()} == before, "nothing was taken"
    net.load_state_dict({"0.bias": np.ones(3, np.float32), "x": 1}, strict=False)
    assert net[0].bias.tolist() == [1, 1, 1]
    net.load_state_dict(lambda k, t: np.zeros(t.shape, np.float32) if k == "1.weight" else None)
    assert not net[1].weight.numpy().any() and net[0].bias.tolist() == [1, 1, 1]


def test_the_dtype_of_the_loaded_array_wins():
    net = M.Linear(2, 1)
    net.load_state_dict({"weight": np.ones((1, 2)), "bias": np.ones(1)})
    assert net.weight.dtype == "float64"


def test_modes_hooks_and_walks():
    net = M.Sequential(M.Linear(2, 2), M.Sequential(M.Dropout(0.5), M.BatchNorm1d(2)))
    assert net.eval() is net and not any(m.training for m in net.modules())
    net.train()
    assert all(m.training for m in net.modules()) and len(net) == 2 and net[1][0].drop_prob == 0.5
    seen = []
    a = net[0].register_forward_pre_hook(lambda m, x: (x[0] * 0,))
    b = net[0].register_forward_hook(lambda m, x, y: seen.append(y.shape))
    net.eval()
    assert net[0](F.ones((3, 2))).tolist() == [net[0].bias.tolist()] * 3 and seen == [(3, 2)]
    a.remove()
    b.remove()
    net[0](F.ones((3, 2)))
    assert len(seen) == 1
    for p in net.parameters():
        p.grad = F.ones(p.shape)
    net.zero_grad()
    assert all(p.grad is None for p in net.parameters())
    with pytest.raises(NotImplementedError, match="needs a forward"):
        M.Module()(1)
    assert "(0): Linear(in_features=2, out_features=2, bias=True)" in repr(net)


@pytest.mark.parametrize("again", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["deepcopy", "pickle"])
def test_copies(again):
    net = M.Sequential(M.Conv2d(1, 2, 3), M.BatchNorm2d(2))
    other = again(net)
    x = F.ones((2, 1, 5, 5))
    assert other(x).tolist() == net(x).tolist()
    net[0].weight += 1
    assert other[0].weight.tolist() != net[0].weight.tolist() and isinstance(other[0].weight, Parameter)


def test_initial_values():
    random.seed(1)
    w = M.Linear(400, 300).weight.numpy()
    assert abs(w.mean()) < 2e-3 and abs(w).max() <= 1 / 20 and abs(w.std() - 1 / 20 / 3**0.5) < 5e-4
    conv = M.Conv2d(64, 128, 3)
    assert abs(conv.weight.numpy().std() - 1 / np.sqrt(64 * 9)) < 5e-4 and not conv.bias.numpy().any()
    t = Parameter(np.zeros((200, 300), np.float32))
    for fill, std in [
        (M.init.xavier_uniform_, np.sqrt(2 / 500)), (M.init.xavier_normal_, np.sqrt(2 / 500)),
        (lambda t: M.init.msra_normal_(t, mode="fan_out", nonlinearity="relu"), np.sqrt(2 / 200)),
        (lambda t: M.init.msra_uniform_(t), np.sqrt(2 / 300)), (lambda t: M.init.normal_(t, 3.0, 2.0), 2.0),
    ]:  # fmt: skip
        fill(t)
        assert abs(t.numpy().std() / std - 1) < 0.02 and t.dtype == "float32"
    M.init.fill_(t, 2.5)
    assert (t.numpy() == 2.5).all()
    assert M.init.calculate_fan_in_and_fan_out(M.Conv2d(4, 6, 3, groups=2).weight) == (18, 27)
    a, b = (random.seed(7), M.Linear(3, 3))[1], (random.seed(7), M.Linear(3, 3))[1]
    assert a.weight.tolist() == b.weight.tolist()


def test_lstm_and_rnn_against_numpy():
    random.seed(3)
    x = np.random.default_rng(0).normal(size=(5, 2, 3)).astype(np.float32)
    m = M.LSTM(3, 4)
    s = {k: v.astype(np.float64) for k, v in m.state_dict().items()}
    assert set(s) == {f"cells.0.0.{n}" for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
    w, u, b = s["cells.0.0.weight_ih"], s["cells.0.0.weight_hh"], s["cells.0.0.bias_ih"] + s["cells.0.0.bias_hh"]
    h = c = np.zeros((2, 4))
    want, sig = [], lambda v: 1 / (1 + np.exp(-v))
    for step in x:
        i, f, g, o = np.split(step @ w.T + h @ u.T + b, 4, 1)
        c = sig(f) * c + sig(i) * np.tanh(g)
        h = sig(o) * np.tanh(c)
        want.append(h)
    y, (hn, cn) = m(Tensor(x))
    np.testing.assert_allclose(y.numpy(), want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(cn.numpy()[0], c, rtol=1e-5, atol=1e-6)
    both = M.RNN(3, 4, num_layers=2, bidirectional=True, batch_first=True)
    y, hn = both(Tensor(x.transpose(1, 0, 2)))
    assert y.shape == (2, 5, 8) and hn.shape == (4, 2, 4)


def test_lstm_is_its_cell_step_by_step():
    random.seed(3)
    x = Tensor(np.random.default_rng(0).normal(size=(4, 2, 3)).astype(np.float32))
    m = M.LSTM(3, 5, bidirectional=True)
    start = tuple(Tensor(np.random.default_rng(i).normal(size=(2, 2, 5)).astype(np.float32)) for i in (1, 2))
    y, (h, c) = m(x, start)
    for d, order in enumerate((range(4), range(4)[::-1])):
        state = tuple(s[d] for s in start)
        for t in order:
            state = m.cells[0][d](x[t], state)
            assert state[0].numpy().tobytes() == np.ascontiguousarray(y[t, :, 5 * d : 5 * d + 5].numpy()).tobytes()
        assert state[0].tolist() == h[d].tolist() and state[1].tolist() == c[d].tolist()
    longer, _ = m.cells[0][0].run(m.cells[0][0].project(F.concat([x, x], 0)), tuple(s[0] for s in start), False)
    assert longer[:4].tolist() == y[:, :, :5].tolist()  # what comes later changes nothing
    for n in (1, 2, 5, 17):  # nor do others in the batch
        many = F.concat([x[:, :1]] * n, 1)
        assert m(many)[0][:, n - 1].tolist() == m(x)[0][:, 0].tolist()
        assert trace(m)(many)[0].numpy().tobytes() == m(many)[0].numpy().tobytes()


def test_gradients_of_an_lstms_gradients():
    rng = np.random.default_rng(0)
    xs = [Tensor(rng.uniform(-1, 1, s)) for s in ((3, 2, 8), (8, 2), (2, 2), (2, 2))]
    along = [Tensor(rng.uniform(-1, 1, x.shape)) for x in xs]

    def slope(p, w, h, c):
        """The derivative along `along` of a function of all three results."""
        gm = GradManager().attach([p, w, h, c])
        with gm:
            hs, cs, gates = REGISTRY["lstm"](p, w, h, c)
            gm.backward((hs * hs).sum() + (cs * hs).sum() + (gates * gates).sum())
        return sum((x.grad * d).sum() for x, d in zip((p, w, h, c), along))

    gm = GradManager().attach(xs)
    with gm:
        gm.backward(slope(*(x * 1 for x in xs)))
    for x, d in zip(xs, along):
        moved = [[Tensor(y.numpy() + (s * d.numpy() if y is x else 0)) for y in xs] for s in (1e-6, -1e-6)]
        want = (slope(*moved[0]).item() - slope(*moved[1]).item()) / 2e-6
        np.testing.assert_allclose((x.grad * d).sum().item(), want, rtol=1e-6)


def test_attention_drops_weights_in_training_alone():
    random.seed(1)
    layer, x = M.MultiHeadAttention(16, 4, attn_dropout=0.5), Tensor(np.random.default_rng(0).standard_normal((2, 5, 16)))
    x = x.astype("float32")
    assert layer(x).tolist() != layer(x).tolist()
    layer.eval()
    assert layer(x).tolist() == layer(x).tolist()


def test_flatten():
    x = Tensor(np.zeros((2, 3, 4, 5), np.float32))
    assert M.Flatten()(x).shape == (2, 60) and M.Flatten(0)(x).shape == (120,) and M.Flatten(1, 2)(x).shape == (2, 12, 5)
    assert "start_axis=1, end_axis=-1" in repr(M.Sequential(M.Flatten()))
    assert repr(M.LSTMCell(2, 3, bias=False)) == "LSTMCell(2, 3, bias=False)"
    assert repr(M.GRU(2, 3, 2, bidirectional=True)).startswith("GRU(2, 3, num_layers=2, bidirectional=True\n  (cells.0.0): GRUCell(2, 3)\n")


def test_a_class_is_asked_to_train():
    asked = []

    class Frozen(M.Linear):
        def train(self, mode=True, recursive=True):
            asked.append((mode, recursive))
            return super().train(False, recursive)

    net = M.Sequential(Frozen(2, 2), M.Dropout(0.5))
    assert net.train() is net and net.training and net[1].training and not net[0].training
    net.eval()
    assert asked == [(True, False), (False, False)] and not net[1].training
