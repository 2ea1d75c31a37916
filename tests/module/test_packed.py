"""Packed sequences: beside PyTorch, and each with the bits that it has alone."""

import numpy as np
import pytest

from tengen import Tensor, autodiff, data, trace
from tengen import module as M
from tengen.base.errors import ArgumentError, ShapeError, UsageWarning

rnn = M.utils.rnn
R = np.random.default_rng(0)
X, LENGTHS = R.normal(size=(5, 4, 3)), [2, 5, 1, 4]


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_layers_beside_pytorch(kind):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    ours = getattr(M, kind)(3, 6, 2, bidirectional=True).double()
    theirs = getattr(torch.nn, kind)(3, 6, 2, bidirectional=True, dtype=torch.float64)
    for layer, cells in enumerate(ours.cells):
        for d, cell in enumerate(cells):
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                getattr(theirs, f"{name}_l{layer}" + "_reverse" * d).data = torch.tensor(getattr(cell, name).numpy())
    for ordered in (False, True):
        x, lengths = (X, LENGTHS) if not ordered else (X[:, [1, 3, 0, 2]], sorted(LENGTHS, reverse=True))
        h = R.normal(size=(4, 4, 6))
        both = []
        for t, net, pack, pad in (
            (Tensor, ours, rnn.pack_padded_sequence, rnn.pad_packed_sequence),
            (torch.tensor, theirs, torch.nn.utils.rnn.pack_padded_sequence, torch.nn.utils.rnn.pad_packed_sequence),
        ):
            packed = pack(t(x), lengths, enforce_sorted=ordered)
            out, end = net(packed, (t(h), t(h)) if kind == "LSTM" else t(h))
            padded, n = pad(out, batch_first=True, padding_value=7.0, total_length=6)
            ends = list(end) if kind == "LSTM" else [end]
            both.append([packed.data, packed.batch_sizes, out.data, padded, n, *ends])
        for a, b in zip(*both):
            np.testing.assert_allclose(a.numpy(), b.detach().numpy(), rtol=1e-9, atol=1e-12)


def test_a_sequence_has_the_bits_that_it_has_alone():
    net = M.LSTM(3, 6, bidirectional=True)
    some = [Tensor(X[:n, i].astype("f4")) for i, n in enumerate(LENGTHS)]
    out, (h, c) = net(rnn.pack_sequence(some, enforce_sorted=False))
    for i, (x, y) in enumerate(zip(some, rnn.unpack_sequence(out))):
        alone, (h1, c1) = net(x[:, None])
        assert y.numpy().tobytes() == alone[:, 0].numpy().tobytes()
        assert h[:, i].numpy().tobytes() == h1[:, 0].numpy().tobytes() and c[:, i].numpy().tobytes() == c1[:, 0].numpy().tobytes()


def test_gradients_stop_at_the_ends():
    net = M.GRU(3, 4, bidirectional=True)

    def loss(x):
        out, end = net(rnn.pack_padded_sequence(x, LENGTHS, enforce_sorted=False))
        return rnn.pad_packed_sequence(out)[0].sum() + end.sum()

    g = autodiff.grad(loss)(Tensor(X.astype("f4"))).numpy()
    there = np.arange(5)[:, None] < np.array(LENGTHS)
    assert (g[~there] == 0).all() and (np.abs(g[there]) > 0).all()


@pytest.mark.parametrize("call, error, words", [
    (lambda x: rnn.pack_padded_sequence(x, [2, 5, 1, 4]), ArgumentError, "enforce_sorted=False"),
    (lambda x: rnn.pack_padded_sequence(x, [5, 4, 2, 0]), ArgumentError, "at least 1"),
    (lambda x: rnn.pack_padded_sequence(x, [6, 4, 2, 1]), ShapeError, "do not fit"),
    (lambda x: rnn.pack_padded_sequence(x, [5, 4]), ShapeError, "do not fit"),
    (lambda x: rnn.pad_packed_sequence(rnn.pack_padded_sequence(x, [5, 4, 2, 1]), total_length=3), ShapeError, "total_length=3"),
])  # fmt: skip
def test_mistakes(call, error, words):
    with pytest.raises(error, match=words):
        call(Tensor(X))


def test_megengines_names_of_recurrent_layers():
    class Doubled(M.LSTM):
        """Cells of a user's own."""

        def create_cell(self, layer):
            cell = super().create_cell(layer)
            cell.bias_hh[...] = 2.0 * layer
            return cell

    net = Doubled(3, 6, 2, bidirectional=True)
    assert net.cells[1][1].bias_hh.numpy().min() == 2.0 and net.cells[1][0].weight_ih.shape == (24, 12) and net.num_directions == 2
    h, c = hidden = net.init_hidden(4)
    x = Tensor(X.astype("f4"))
    assert h.shape == c.shape == (4, 4, 6) and net.get_output_from_hidden(hidden) is h and M.GRU(3, 6).init_hidden(2).shape == (1, 2, 6)
    assert net(input=x, hx=hidden)[0].numpy().tobytes() == net(x)[0].numpy().tobytes()
    before = net.cells[1][0].weight_hh.numpy().copy()
    net.reset_parameters()
    assert (net.cells[1][0].weight_hh.numpy() != before).any() and net.cells[1][1].bias_hh.numpy().max() <= 6**-0.5
    assert M.RNN(3, 4, nonlinearity="relu").cells[0][0].nonlinearity == "relu"


def test_megengines_names_of_traces_and_loaders(monkeypatch):
    loader = data.DataLoader(data.ArrayDataset(X), batch_size=2, num_workers=3)
    loader.check_memory_rationality()
    monkeypatch.setattr("os.sysconf", lambda name: 4096 if name == "SC_PAGE_SIZE" else 8)
    with pytest.warns(UsageWarning, match="3 workers .* fewer workers"):
        loader.check_memory_rationality()
    assert trace(lambda x: x, without_host=True).without_host and not trace(lambda x: x).without_host
    with pytest.raises(NotImplementedError, match=r"tengen.profile\(\)"):
        trace(lambda x: x).get_profile()
