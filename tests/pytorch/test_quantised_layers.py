"""Convolutions, linear layers and embeddings of the dialect in quantisation: what a network evaluates in training for integers is what its
integers compute, as bytes, eagerly, compiled and from a file; integer tables give the rows that their integers stand for."""

import numpy as np
import pytest

import tengen.module as M
import tengen.pytorch as torch
import tengen.quantization as Q
from tengen import load_graph, trace
from tengen.base.errors import UsageWarning
from tengen.module import qat
from tengen.module.quantized.weights import WeightOnlyEmbedding

nn = torch.nn


class Network(nn.Module):
    """A grouped convolution, one with a border that is no zeros, a transposed one, a depthwise one, and a linear layer."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(8, 12, 3, padding=1, groups=4, padding_mode="reflect"), nn.ReLU(),
            nn.ConvTranspose2d(12, 6, 3, stride=2, padding=1, output_padding=1, groups=2), nn.ReLU(),
            nn.Conv2d(6, 6, 3, padding="same", groups=6, bias=False), nn.MaxPool2d(2),
        )  # fmt: skip
        self.head = nn.Linear(6 * 16, 5)

    def forward(self, x):
        return self.head(torch.flatten(self.body(x), 1))


def trained(net, x, y, steps=8):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_what_is_evaluated_is_what_integers_compute(tmp_path):
    torch.manual_seed(0)
    plain, x, y = Network(), torch.randn(8, 3, 8, 8), torch.randint(0, 5, (8,))
    shapes = {n: tuple(t.shape) for n, t in plain.state_dict().items()}
    net = Q.quantize_qat(plain, inplace=False)
    assert [type(net.body[i]) for i in (0, 2, 4, 6)] == [qat.Conv2d, qat.Conv2d, qat.ConvTranspose2d, qat.Conv2d]
    assert type(net.head) is qat.Linear
    assert {n: tuple(t.shape) for n, t in net.state_dict().items() if n in shapes} == shapes  # parameters keep PyTorch's shapes
    losses = trained(net.train(), x, y)
    assert losses[-1] < losses[0]
    net.eval()
    Q.enable_observer(net)  # with the ranges of evaluation
    for _ in range(40):
        net(x)
    Q.disable_observer(net)
    want = net(x).detach().numpy()
    plain.load_state_dict({n: t for n, t in net.state_dict().items() if n in shapes})
    in_float = plain.eval()(x).detach().numpy()
    assert 0 < np.abs(want - in_float).max() <= 0.1 * np.abs(in_float).max()
    made = Q.quantize(net, inplace=False)
    assert [made.body[i].weight.dtype for i in (0, 2, 4, 6)] == ["int8"] * 4
    assert made(x).numpy().tobytes() == torch.compile(made)(x).numpy().tobytes() == want.tobytes()
    traced = trace(made, example_input=x)
    traced.dump(tmp_path / "net.tgn", arg_names=["x"], output_names=["y"])
    assert load_graph(tmp_path / "net.tgn")(x=x).numpy().tobytes() == want.tobytes()


def test_the_layers_of_both_dialects_have_the_same_bits():
    """Of equal numbers in the shapes of either; what a grouped transposed convolution means is so held against Tengen's own."""
    rng = np.random.default_rng(1)
    for theirs, mine in (
        (nn.Conv2d(4, 6, 3, groups=2), M.Conv2d(4, 6, 3, groups=2)),
        (nn.ConvTranspose2d(4, 6, 3, stride=2, groups=2), M.ConvTranspose2d(4, 6, 3, stride=2, groups=2)),
        (nn.ConvTranspose2d(3, 5, 2), M.ConvTranspose2d(3, 5, 2)),
    ):
        results, x = [], torch.from_numpy(rng.standard_normal((2, mine.in_channels, 6, 5)).astype("float32"))
        w, b = (rng.standard_normal(t.shape).astype("float32") for t in (theirs.weight, theirs.bias))
        for layer in (theirs, mine):
            layer.weight._reset(torch.from_numpy(w.reshape(layer.weight.shape)))
            layer.bias._reset(torch.from_numpy(b.reshape(layer.bias.shape)))
            net = Q.quantize_qat(layer)
            for _ in range(2):
                net(x)
            results += [net(x).detach().numpy().tobytes(), net.eval()(x).detach().numpy().tobytes(), Q.quantize(net)(x).numpy().tobytes()]
        assert results[:3] == results[3:] and results[1] == results[2]


class Standardised(nn.Conv2d):
    def forward(self, x):
        w = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        return nn.functional.conv2d(x, w, self.bias)


class StandardisedByName(M.Conv2d):
    """MegEngine's way to change a weight first."""

    def calc_conv(self, inp, weight, bias):
        return super().calc_conv(inp, weight - weight.mean((1, 2, 3), keepdims=True), bias)


class Scaled(M.Linear):
    def calc_linear(self, inp, weight, bias):
        return super().calc_linear(inp, weight * 2, bias)


@pytest.mark.parametrize(
    "layer",
    [
        Standardised(2, 3, 3), StandardisedByName(2, 3, 3), Scaled(4, 2), nn.utils.weight_norm(nn.Conv2d(2, 3, 3)),
        nn.utils.parametrizations.spectral_norm(nn.Linear(4, 2)), nn.ConvTranspose1d(2, 3, 3), nn.Conv1d(2, 3, 3),
    ],
    ids=lambda m: type(m).__name__,
)  # fmt: skip
def test_a_layer_that_computes_in_its_own_way_stays_and_is_told(layer):
    with pytest.warns(UsageWarning, match=f"{type(layer).__name__} stay float"):
        net = Q.quantize_qat(nn.Sequential(layer), inplace=False)
    assert isinstance(net[0], type(layer).__mro__[0]) and not isinstance(net[0], qat.QATModule)


def test_one_way_is_as_good_as_the_other_for_weights_alone():
    layer = Scaled(16, 2)
    assert Q.quantize_weights(M.Sequential(layer))[0] is layer


class Text(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(70, 32, padding_idx=0), nn.Embedding(9, 32, max_norm=1.0)
        self.head = nn.Linear(32, 70, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids):
        return self.head(self.words(ids) + self.places(torch.arange(ids.shape[1])))


@pytest.mark.parametrize("bits", [8, 4])
def test_tables(bits):
    torch.manual_seed(0)
    net, ids = Text().eval(), torch.randint(0, 70, (3, 9))
    small = Q.quantize_weights(net, bits=bits, group=32, inplace=False)
    assert isinstance(small.words, WeightOnlyEmbedding) and type(small.places) is nn.Embedding  # which writes its table
    table = net.words.weight.detach().numpy()
    most = {8: 127, 4: 7}[bits]
    scale = (np.abs(table).max(1, keepdims=True) / np.float32(most)).astype("float32")
    scale[scale == 0] = 1
    rows = small.words(ids).numpy()
    np.testing.assert_array_equal(rows, (np.rint(table / scale).clip(-128, most) * scale)[ids.numpy()].astype("float32"))
    net(ids), small(ids)  # long rows of the other table are short from here on
    got, want = small(ids).detach().numpy(), net(ids).detach().numpy()
    assert torch.compile(small)(ids).numpy().tobytes() == got.tobytes()
    assert 0 < np.abs(got - want).max() < {8: 0.03, 4: 0.4}[bits] * np.abs(want).max()
