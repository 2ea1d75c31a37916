"""A network of PyTorch's from its module to a product: trained beside PyTorch, back in PyTorch, quantised, and written with its bits."""

import copy

import numpy as np
import pytest

import tengen.functional as F
from tengen import load_graph, trace
from tengen.autodiff import GradManager
from tengen.interop.torch import from_torch, to_module, to_torch
from tengen.optimizer import SGD
from tengen.quantization import ptq

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn = torch.nn


class Sounds(nn.Module):
    """Classes of sounds, by a convolution and a GRU over the frames of a spectrum."""

    def __init__(self):
        super().__init__()
        self.register_buffer("window", torch.hann_window(16))
        self.norm, self.conv, self.gru, self.head = nn.BatchNorm1d(9), nn.Conv1d(9, 8, 3), nn.GRU(8, 6, batch_first=True), nn.Linear(6, 3)

    def forward(self, wave):
        spectrum = torch.stft(wave, 16, 8, window=self.window, return_complex=True)
        x = torch.relu(self.conv(self.norm(torch.log1p(spectrum.abs()))))
        return self.head(self.gru(x.transpose(1, 2))[1][-1])


def test_sound_from_training_to_a_file(tmp_path):
    torch.manual_seed(0)
    module, wave, classes = Sounds(), torch.randn(4, 40), torch.tensor([0, 2, 1, 2])
    net, theirs = to_module(module, (wave,)), copy.deepcopy(module)
    gm, opt = GradManager().attach(net.parameters()), SGD(net.parameters(), lr=0.3, momentum=0.9)
    other = torch.optim.SGD(theirs.parameters(), lr=0.3, momentum=0.9)

    @trace
    def step(x, y):
        with gm:
            loss = F.loss.cross_entropy(net(x), y)
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    losses = []
    for _ in range(4):
        other.zero_grad()
        want = nn.functional.cross_entropy(theirs(wave), classes)
        want.backward()
        other.step()
        losses.append(want.item())
        assert step(from_torch(wave), from_torch(classes)).item() == pytest.approx(losses[-1], rel=1e-5)
    assert losses[-1] < losses[0]
    module.load_state_dict(to_torch(net.state_dict()))  # what was trained here, in PyTorch
    net, x = net.eval(), from_torch(wave)
    np.testing.assert_allclose(net(x).numpy(), module.eval()(wave).detach().numpy(), atol=1e-5)

    made = ptq(net, [x], budget_drop=None)
    assert not made.in_float and np.abs(made(x).numpy() - net(x).numpy()).max() < 0.1 * np.abs(net(x).numpy()).max()
    trace(net, example_input=x).dump(tmp_path / "float.tgn")
    made.save(tmp_path / "int8.tgn")
    for file, f in (("float.tgn", net), ("int8.tgn", made)):
        assert load_graph(tmp_path / file)(x).numpy().tobytes() == f(x).numpy().tobytes()
