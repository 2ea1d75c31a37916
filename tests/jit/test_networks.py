"""Whole training steps, eager and traced: every loss, parameter, buffer and optimizer state as bytes."""

import numpy as np
import pytest
from exhaustive import but

from tengen import Tensor, random, trace
from tengen import functional as F
from tengen import module as M
from tengen import optimizer as optim
from tengen.autodiff import GradManager


class CNN(M.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = M.Conv2d(1, 4, 3, padding=1), M.Conv2d(4, 6, 3, stride=2)
        self.pool, self.out = M.MaxPool2d(2), M.Linear(6 * 2 * 2, 5)

    def forward(self, x):
        x = self.pool(F.relu(self.a(x)))
        return self.out(F.flatten(F.relu(self.b(x)), 1))


class Block(M.Module):
    """A residual block with batch norm, and a head."""

    def __init__(self):
        super().__init__()
        self.stem, self.bn0 = M.Conv2d(1, 4, 3, padding=1, bias=False), M.BatchNorm2d(4)
        self.a, self.bn1 = M.Conv2d(4, 4, 3, padding=1, bias=False), M.BatchNorm2d(4)
        self.b, self.bn2 = M.Conv2d(4, 4, 3, padding=1, bias=False), M.BatchNorm2d(4)
        self.pool, self.out = M.AdaptiveAvgPool2d(1), M.Linear(4, 5)

    def forward(self, x):
        x = F.relu(self.bn0(self.stem(x)))
        x = F.relu(self.bn2(self.b(F.relu(self.bn1(self.a(x))))) + x)
        return self.out(F.flatten(self.pool(x), 1))


class Transformer(M.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.norm1, self.norm2 = M.Embedding(11, 8), M.LayerNorm(8), M.LayerNorm(8)
        self.attention = M.MultiHeadAttention(8, 2, out_dropout=0.2)
        self.up, self.down, self.act, self.out = M.Linear(8, 16), M.Linear(16, 8), M.GELU(), M.Linear(8, 5)

    def forward(self, ids):
        x = self.embed(ids)
        x = x + self.attention(self.norm1(x), is_causal=True)
        x = x + self.down(self.act(self.up(self.norm2(x))))
        return self.out(x.mean(1))


class Sequence(M.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.out = M.LSTM(3, 6, num_layers=2, bidirectional=True, batch_first=True), M.Linear(12, 5)

    def forward(self, x):
        y, (h, c) = self.lstm(x)
        return self.out(y.mean(1)) + h.mean() * c.mean()


def mlp():
    return M.Sequential(M.Linear(7, 16), M.ReLU(), M.Dropout(0.3), M.Linear(16, 8), M.PReLU(), M.Linear(8, 5))


def images(r):
    return r.normal(size=(3, 1, 12, 12)).astype(np.float32)


NETWORKS = {
    "cnn": (CNN, images),
    "resnet block": (Block, images),
    "transformer": (Transformer, lambda r: r.integers(0, 11, (3, 6))),
    "lstm": (Sequence, lambda r: r.normal(size=(3, 4, 3)).astype(np.float32)),
    "mlp": (mlp, lambda r: r.normal(size=(6, 7)).astype(np.float32)),
}


def optimizer(name, params):
    if name == "sgd":
        return optim.SGD(params, lr=0.05, momentum=0.9, weight_decay=0.01)
    return optim.Adam(params, lr=0.01, weight_decay=0.01)


def train(make, data, opt_name, traced, steps=4):
    random.seed(5)
    net = make()
    net.train()
    opt = optimizer(opt_name, net.parameters())
    gm = GradManager().attach(net.parameters())

    def step(x, t):
        with gm:
            loss = F.nn.cross_entropy(net(x), t)
            gm.backward(loss)
        optim.clip_grad_norm(net.parameters(), 1.0)
        opt.step().clear_grad()
        return loss

    step = trace(step) if traced else step
    r = np.random.default_rng(8)
    seen = []
    for i in range(steps):
        if i == 2:
            opt.param_groups[0]["lr"] *= 0.5
        x = data(r)
        seen.append(("loss", step(Tensor(x), Tensor(r.integers(0, 5, len(x)))).numpy().tobytes()))
        seen += [(i, k, v.tobytes()) for k, v in net.state_dict().items()]
        seen += [(i, k, n, v.tobytes()) for k, s in opt.state_dict()["state"].items() for n, v in s.items()]
    net.eval()
    seen.append(("eval", (trace(net) if traced else net)(Tensor(x)).numpy().tobytes()))
    assert not traced or len(step.stats()) == 1
    return seen


@but(first_of="name", every=2)
@pytest.mark.parametrize("opt", ["sgd", "adam"])
@pytest.mark.parametrize("name", NETWORKS)
def test_traced_training_is_eager_training(name, opt):
    make, data = NETWORKS[name]
    a, b = train(make, data, opt, False), train(make, data, opt, True)
    different = [x[:-1] for x, y in zip(a, b) if x != y]
    assert not different and len(a) == len(b)
    losses = [np.frombuffer(x[1], np.float32)[0] for x in a if x[0] == "loss"]
    assert np.isfinite(losses).all()
