"""What `torch.ao.quantization.quantize_dynamic` is for: linear layers of the dialect with integer weights, whose inputs are rounded to integers
when they run."""

import numpy as np
import pytest

import tengen.pytorch as torch
from tengen.module.quantized.weights import WeightOnlyLinear
from tengen.quantization import quantize_weights

nn = torch.nn


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.attention = nn.LSTM(8, 32, batch_first=True), nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.0)
        self.head = nn.Sequential(nn.Linear(32, 48), nn.GELU(), nn.Linear(48, 5, bias=False))

    def forward(self, x):
        return self.head(self.attention(self.lstm(x)[0])[:, -1])


class Scaled(nn.Linear):
    """A layer with a forward of its own, which stays."""

    def forward(self, x):
        return super().forward(x) * 2


def by_definition(x, w, b, group):
    """float64, but for the integers: docs/numerics.md, weights in groups, activations in int8."""
    y = np.zeros((len(x), len(w)))
    for k in range(0, x.shape[1], group):
        xs, ws = x[:, k : k + group].astype(np.float64), w[:, k : k + group].astype(np.float64)
        step = np.maximum(np.abs(xs).max(1, keepdims=True), 2.0**-100) / 127
        scale = np.abs(ws).max(1, keepdims=True) / 127
        y += np.rint(xs / step) @ np.rint(ws / scale).T * step * scale.T
    return y + b


def test_linear_layers_become_integers():
    torch.manual_seed(0)
    net, x = Network().eval(), torch.randn(3, 4, 8)
    want = net(x).detach().numpy()
    small = quantize_weights(net, activations="int8", group=16, inplace=False)
    assert isinstance(small.head[0], WeightOnlyLinear) and isinstance(small.head[2], WeightOnlyLinear) and type(net.head[0]) is nn.Linear
    assert isinstance(small.attention.linear1, WeightOnlyLinear) and small.training is False
    got = small(x)
    assert 0 < np.abs(got.numpy() - want).max() < 0.05 * np.abs(want).max()
    assert torch.compile(small)(x).numpy().tobytes() == got.numpy().tobytes()
    assert small(x[1:2]).numpy().tobytes() == got[1:2].numpy().tobytes()  # which PyTorch's does not promise


def test_the_numbers():
    torch.manual_seed(1)
    layer, x = nn.Linear(48, 7), torch.randn(5, 48)
    w, b = layer.weight.detach().numpy(), layer.bias.detach().numpy()
    made = quantize_weights(nn.Sequential(layer), activations="int8", group=16)(x).detach().numpy()
    # a few products lie within a rounding of float32 of a half-integer, and so may be one step apart
    np.testing.assert_allclose(made, by_definition(x.numpy(), w, b, 16), atol=2e-5)


def test_a_forward_of_ones_own_stays():
    net = quantize_weights(nn.Sequential(Scaled(16, 4), nn.Linear(16, 4)), activations="int8", group=16)
    assert type(net[0]) is Scaled and isinstance(net[1], WeightOnlyLinear)


def test_the_error_says_so():
    for name in ("ao", "quantization"):
        with pytest.raises(AttributeError, match=r"quantize_weights\(net, activations='int8'\) in the place of quantize_dynamic"):
            getattr(torch, name)
