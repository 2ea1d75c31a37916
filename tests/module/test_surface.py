"""Losses, products and modules that are made of others: each beside its definition written out in NumPy, in float64."""

import warnings

import numpy as np
import pytest

import tengen.functional as F
import tengen.module as M
from tengen import Tensor, load, save, trace
from tengen.autodiff import GradManager
from tengen.base.errors import ShapeError, TraceWarning

rng = np.random.default_rng(0)
P, Q = rng.standard_normal((4, 5)), rng.standard_normal((4, 5))
IMAGE = rng.standard_normal((2, 6, 5, 4))
LABEL, SIGN, BINARY = np.array([0, 3, 4, 1]), np.array([1.0, -1.0, 1.0, -1.0]), (Q > 0).astype("float64")


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def norm(x):
    return np.sqrt((x * x).sum(-1))


def huber(d, delta):
    d = np.abs(d)
    return np.where(d < delta, d * d / 2, delta * (d - delta / 2))


def cosine(x, y):
    return (x * y).sum(-1) / norm(x) / norm(y)


def log_softmax(x):
    return x - np.log(np.exp(x).sum(1, keepdims=True))


SHARE = np.exp(log_softmax(Q))
PT = np.where(BINARY > 0, sigmoid(P), 1 - sigmoid(P))

# name: (a call, what it is by definition)
CALLS = {
    "smooth_l1_loss": (lambda p, q: F.loss.smooth_l1_loss(p, q, beta=0.5), (huber(P - Q, 0.5) / 0.5).mean()),
    "smooth_l1_loss, beta 0": (lambda p, q: F.loss.smooth_l1_loss(p, q, beta=0), np.abs(P - Q).mean()),
    "huber_loss": (lambda p, q: F.loss.huber_loss(p, q, "sum", delta=0.7), huber(P - Q, 0.7).sum()),
    "nll_loss": (lambda p, q: F.loss.nll_loss(F.log_softmax(p, 1), Tensor(LABEL)), -log_softmax(P)[np.arange(4), LABEL].mean()),
    "kl_div": (lambda p, q: F.loss.kl_div(p, Tensor(SHARE)), (SHARE * (np.log(SHARE) - P)).mean()),
    "kl_div, batchmean": (lambda p, q: F.loss.kl_div(p, q, "batchmean", True), (np.exp(Q) * (Q - P)).sum() / 4),
    "focal_loss": (lambda p, q: F.loss.focal_loss(p, Tensor(BINARY)), (-np.where(BINARY > 0, 0.25, 0.75) * (1 - PT) ** 2 * np.log(PT)).mean()),
    "focal_loss, no alpha": (lambda p, q: F.loss.focal_loss(p, Tensor(BINARY), -1, 1.5), (-((1 - PT) ** 1.5) * np.log(PT)).mean()),
    "triplet_margin_loss": (lambda p, q: F.loss.triplet_margin_loss(p, q, q * 0.5),
                            np.maximum(norm(P - Q + 1e-6) - norm(P - Q / 2 + 1e-6) + 1, 0).mean()),
    "cosine_embedding_loss": (lambda p, q: F.loss.cosine_embedding_loss(p, q, Tensor(SIGN), 0.1),
                              np.where(SIGN > 0, 1 - cosine(P, Q), np.maximum(cosine(P, Q) - 0.1, 0)).mean()),
    "margin_ranking_loss": (lambda p, q: F.loss.margin_ranking_loss(p[:, 0], q[:, 0], Tensor(SIGN), 0.2),
                            np.maximum(0.2 - SIGN * (P - Q)[:, 0], 0).mean()),
    "bmm": (lambda p, q: F.bmm(p.reshape(2, 2, 5), q.reshape(2, 5, 2)), P.reshape(2, 2, 5) @ Q.reshape(2, 5, 2)),
    "outer": (lambda p, q: F.outer(p[0], q[:, 1]), np.outer(P[0], Q[:, 1])),
    "cross": (lambda p, q: F.cross(p[:, :3], q[:, 2:]), np.cross(P[:, :3], Q[:, 2:])),
    "cross, axis 0": (lambda p, q: F.cross(p[:3], q[1:], axis=0), np.cross(P[:3], Q[1:], axis=0)),
    "cosine_similarity": (lambda p, q: F.cosine_similarity(p, q), cosine(P, Q)),
    "rms_norm": (lambda p, q: F.rms_norm(p, 5, q[0]), P / np.sqrt((P * P).mean(1, keepdims=True) + 1e-6) * Q[0]),
    "glu": (lambda p, q: F.glu(p, 0), P[:2] * sigmoid(P[2:])),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_beside_the_definition(name):
    call, want = CALLS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TraceWarning)  # of the arrays above, whose contents are recorded
        traced = trace(lambda p, q: call(p, q))(Tensor(P), Tensor(Q))
    for got in (call(Tensor(P), Tensor(Q)), traced):
        assert got.shape == np.shape(want) and got.dtype == "float64"
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-7, atol=1e-10)  # tables in CALLS are float64, eps shifts by 1e-8


@pytest.mark.parametrize("name", CALLS)
def test_gradients_by_differences(name):
    call, _ = CALLS[name]
    weight = Tensor(rng.standard_normal(call(Tensor(P), Tensor(Q)).shape))
    p = Tensor(P)
    gm = GradManager().attach(p)
    with gm:
        gm.backward((call(p, Tensor(Q)) * weight).sum())
    step = 1e-6
    for i in [(0, 0), (1, 2), (3, 4)]:
        d = np.zeros_like(P)
        d[i] = step
        both = [(call(Tensor(P + s * d), Tensor(Q)) * weight).sum().item() for s in (1, -1)]
        got = 0.0 if p.grad is None else p.grad.numpy()[i]
        np.testing.assert_allclose(got, (both[0] - both[1]) / (2 * step), rtol=1e-5, atol=1e-8)


def test_kl_div_of_a_label_of_zero():
    pred, label = Tensor([[0.0, -1.0]], dtype="float64"), Tensor([[0.0, 1.0]], dtype="float64")
    gm = GradManager().attach(label)
    with gm:
        gm.backward(F.loss.kl_div(pred, label, "sum"))
    assert F.loss.kl_div(pred, label, "sum").item() == 1.0 and np.isfinite(label.grad.numpy()).all()


def test_local_response_norm():
    total = np.zeros_like(IMAGE)
    for c in range(6):
        total[:, c] = (IMAGE[:, max(c - 1, 0) : c + 2] ** 2).sum(1)
    want = IMAGE / (2 + 0.3 * total) ** 0.6
    np.testing.assert_allclose(M.LocalResponseNorm(3, 2.0, 0.3, 0.6)(Tensor(IMAGE)).numpy(), want, rtol=1e-12)


def test_topk_accuracy():
    one, three = F.topk_accuracy(Tensor(P), Tensor(LABEL), (1, 3))
    order = np.argsort(-P, axis=1)
    assert one.item() == (order[:, 0] == LABEL).mean() and three.item() == (order[:, :3] == LABEL[:, None]).any(1).mean()
    assert F.metric.topk_accuracy(Tensor(P), Tensor(LABEL)).item() == one.item()


def gru(cell, x, h):
    w, u, b, c = (p.numpy().astype("float64") for p in (cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh))
    (xr, xz, xn), (hr, hz, hn) = np.split(x @ w.T + b, 3, -1), np.split(h @ u.T + c, 3, -1)
    r, z = sigmoid(xr + hr), sigmoid(xz + hz)
    return (1 - z) * np.tanh(xn + r * hn) + z * h


@pytest.mark.parametrize("batch_first", [False, True])
def test_gru(batch_first):
    net = M.GRU(3, 4, num_layers=2, bidirectional=True, batch_first=batch_first)
    x = rng.standard_normal((5, 2, 3)).astype("float32")
    want, last = x.astype("float64"), []
    for cells in net.cells:
        outs = []
        for cell, order in zip(cells, (range(5), range(4, -1, -1))):
            h, steps = np.zeros((2, 4)), {}
            for t in order:
                h = steps[t] = gru(cell, want[t], h)
            outs.append(np.stack([steps[t] for t in range(5)]))
            last.append(h)
        want = np.concatenate(outs, -1)
    given = Tensor(x.transpose(1, 0, 2) if batch_first else x)
    y, h = net(given)
    np.testing.assert_allclose(y.numpy().transpose(1, 0, 2) if batch_first else y.numpy(), want, atol=2e-6)
    np.testing.assert_allclose(h.numpy(), np.stack(last), atol=2e-6)
    assert [t.numpy().tobytes() for t in trace(net)(given)] == [y.numpy().tobytes(), h.numpy().tobytes()]
    np.testing.assert_allclose(M.GRUCell(3, 4)(Tensor(x[0])).shape, (2, 4))


def test_fused_modules_are_their_parts():
    x = Tensor(IMAGE.astype("float32"))
    relu = lambda t: np.maximum(t.numpy(), 0)
    conv = M.ConvRelu2d(6, 4, 3, padding=1)
    np.testing.assert_array_equal(conv(x).numpy(), relu(F.conv2d(x, conv.weight, conv.bias, padding=1)))
    for cls, plain in ((M.ConvBn2d, lambda t: t.numpy()), (M.ConvBnRelu2d, relu)):
        m = cls(6, 4, 3, 2, 1, bias=False, momentum=0.8)
        m.eval()
        np.testing.assert_array_equal(m(x).numpy(), plain(m.bn(m.conv(x))))
        assert m.bn.momentum == 0.8 and m.conv.bias is None and m.conv.stride == (2, 2)
    for cls, plain in ((M.ConvTransposeBn2d, lambda t: t.numpy()), (M.ConvTransposeBnRelu2d, relu)):
        m = cls(6, 4, 3).eval()
        np.testing.assert_array_equal(m(x).numpy(), plain(m.bn(m.conv(x))))
    t = M.ConvTransposeRelu2d(6, 4, 3)
    np.testing.assert_array_equal(t(x).numpy(), relu(F.conv_transpose2d(x, t.weight, t.bias)))
    flat = Tensor(P.astype("float32"))
    m = M.LinearRelu(5, 3)
    np.testing.assert_array_equal(m(flat).numpy(), relu(F.linear(flat, m.weight, m.bias)))
    for cls, plain in ((M.LinearBn1d, lambda t: t.numpy()), (M.LinearBnRelu1d, relu)):
        m = cls(5, 3).eval()
        np.testing.assert_array_equal(m(flat).numpy(), plain(m.bn(m.linear(flat))))
    b = M.BatchMatMulActivation(2, 5, 3, nonlinear_mode="RELU")
    z = Tensor(rng.standard_normal((2, 5, 4)).astype("float32"))
    want = np.maximum(b.weight.numpy() @ z.numpy() + b.bias.numpy()[:, None], 0)
    np.testing.assert_allclose(b(z).numpy(), want, rtol=1e-5, atol=1e-6)


def test_elemwise():
    a, b = Tensor(P), Tensor(Q)
    for method, want in {
        "ADD": P + Q, "mul": P * Q, "TRUE_DIV": P / Q, "FUSE_ADD_RELU": np.maximum(P + Q, 0), "MAX": np.maximum(P, Q),
        "FUSE_ADD_TANH": np.tanh(P + Q), "SUB": P - Q, "LEQ": P <= Q,
    }.items():  # fmt: skip
        np.testing.assert_allclose(M.Elemwise(method)(a, b).numpy(), want, rtol=1e-12)
    with pytest.raises(ValueError, match="no such elementwise operation"):
        M.Elemwise("CONV")


def test_transposed_convolutions_of_one_and_three_axes():
    for n, kind in ((1, M.ConvTranspose1d), (3, M.ConvTranspose3d)):
        m = kind(2, 3, 2, stride=2)
        x = rng.standard_normal((1, 2, *(3,) * n)).astype("float32")
        want = np.zeros((1, 3, *(6,) * n))
        for at in np.ndindex(*(3,) * n):
            for k in np.ndindex(*(2,) * n):
                place = tuple(2 * i + j for i, j in zip(at, k))
                want[(0, slice(None), *place)] = np.einsum("c,co->o", x[(0, slice(None), *at)], m.weight.numpy()[(..., *k)])
        np.testing.assert_allclose(m(Tensor(x)).numpy(), want + m.bias.numpy(), atol=1e-5)


def test_norms():
    x = Tensor(P, dtype="float32")
    want = (P - P.mean()) / np.sqrt(P.var() + 1e-5)
    np.testing.assert_allclose(M.GeneralNorm((4, 5), (0, 1))(x).numpy(), want, rtol=1e-5, atol=1e-6)
    want = P / np.sqrt((P * P).mean(1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(M.RMSNorm(5)(x).numpy(), want, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="an extent for each axis"):
        M.GeneralNorm((4, 5), 0)


def test_what_moves_elements():
    x = Tensor(IMAGE[:, :4])
    want = IMAGE[:, :4].reshape(2, 1, 2, 2, 5, 4).transpose(0, 1, 4, 2, 5, 3).reshape(2, 1, 10, 8)
    np.testing.assert_array_equal(M.PixelShuffle(2)(x).numpy(), want)
    np.testing.assert_array_equal(M.Pad(((0, 0), (1, 0), (0, 0), (2, 2)))(x).numpy(), np.pad(IMAGE[:, :4], ((0, 0), (1, 0), (0, 0), (2, 2))))
    windows = M.SlidingWindow(2, stride=2)(Tensor(IMAGE[:, :, :4]))
    assert windows.shape == (2, 6, 2, 2, 2, 2)
    np.testing.assert_array_equal(M.SlidingWindowTranspose((4, 4), 2, stride=2)(windows).numpy(), IMAGE[:, :, :4])


ACTIVATIONS = {
    "Tanh": np.tanh, "Hardswish": lambda x: x * np.clip(x + 3, 0, 6) / 6, "Hardsigmoid": lambda x: np.clip(x + 3, 0, 6) / 6,
    "ReLU6": lambda x: np.clip(x, 0, 6), "Mish": lambda x: x * np.tanh(np.log1p(np.exp(x))), "Softplus": lambda x: np.log1p(np.exp(x)),
    "SELU": lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x)), "LogSigmoid": lambda x: np.log(sigmoid(x)),
    "ELU": lambda x: np.where(x > 0, x, np.expm1(x)), "LogSoftmax": log_softmax,
}  # fmt: skip


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name):
    np.testing.assert_allclose(getattr(M, name)()(Tensor(P)).numpy(), ACTIVATIONS[name](P), rtol=1e-6, atol=1e-9)


def test_dropout2d_drops_whole_channels():
    x = F.ones((8, 16, 3, 3))
    y = M.Dropout2d(0.5)(x).numpy()
    assert set(np.unique(y)) == {0.0, 2.0} and ((y == 0).all((2, 3)) | (y == 2).all((2, 3))).all()
    assert M.Dropout2d(0.5).eval()(x) is x


def test_module_list():
    net = M.ModuleList(M.Linear(2, 2) for _ in range(11))
    assert [n for n, _ in net.named_children()] == [str(i) for i in range(11)] and len(net) == 11
    last = net.pop()
    net.append(last).extend([M.ReLU()])
    net.insert(0, M.Identity())
    del net[1]
    assert isinstance(net[0], M.Identity) and net[10] is net[-2] and isinstance(net[-1], M.ReLU) and len(net[3:5]) == 2
    net[0] = M.Linear(2, 2)
    assert len(list(net.parameters())) == 22 and "(10): Linear" in repr(net)
    with pytest.raises(IndexError, match="index 12 of a ModuleList of 12"):
        net[12]
    with pytest.raises(TypeError, match="holds modules, got a int"):
        net.append(3)


def test_module_dict(tmp_path):
    net = M.ModuleDict({"b": M.Linear(2, 2), "a": M.Linear(2, 3)})
    net["c"] = M.ReLU()
    assert list(net) == ["b", "a", "c"] and "a" in net and len(net) == 3 and [n for n, _ in net.named_parameters()][0] == "a.bias"
    save(net.state_dict(), tmp_path / "net")
    assert net.load_state_dict(load(tmp_path / "net")) == ([], [])
    assert net.pop("c") is not None and list(net.keys()) == ["b", "a"] and len(list(net.items())) == len(net.values()) == 2
    with pytest.raises(KeyError):
        del net["c"]
    with pytest.raises(KeyError, match="without dots"):
        net["a.b"] = M.ReLU()


def test_a_list_that_grows_is_seen_by_a_trace():
    class Net(M.Module):
        def __init__(self):
            super().__init__()
            self.layers, self.heads = M.ModuleList([M.Linear(2, 2)]), M.ModuleDict({"a": M.Linear(2, 2)})

        def forward(self, x):
            for m in self.layers:
                x = m(x)
            return sum((m(x) for m in self.heads.values()), x)

    net, x = Net(), F.ones((1, 2))
    run = trace(net)
    assert run(x).tolist() == net(x).tolist()
    net.layers.append(M.Linear(2, 2))
    assert run(x).tolist() == net(x).tolist()
    net.heads["b"] = M.Linear(2, 2)
    assert run(x).tolist() == net(x).tolist()
    assert [n for n, _ in net.named_parameters()][:2] == ["heads.a.bias", "heads.a.weight"]


def test_shapes_that_do_not_fit():
    x = F.ones((2, 3))
    for message, call in {
        "batches of matrices": lambda: F.bmm(x, x), "one axis": lambda: F.outer(x, x), "3 elements": lambda: F.cross(F.ones(2), F.ones(3)),
        "even extent": lambda: F.glu(x), "last axes": lambda: F.rms_norm(x, 4), "N, C, H, W": lambda: F.local_response_norm(x),
    }.items():  # fmt: skip
        with pytest.raises(ShapeError, match=message):
            call()
    with pytest.raises(ValueError, match="delta=0 must be positive"):
        F.loss.huber_loss(F.ones(2), F.ones(2), delta=0)
