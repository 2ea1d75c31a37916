"""Runs where MegEngine is (Python 3.10 or older): writes a network's state dict, its traced module, a dumped graph, and results, into a
folder."""

import sys

import megengine as mge
import megengine.functional as F
import megengine.module as M
import numpy as np
from megengine.jit import trace
from megengine.traced_module import trace_module


class Net(M.Module):
    softmax = True

    def __init__(self):
        super().__init__()
        self.conv, self.bn = M.Conv2d(3, 8, 3, 2, 1), M.BatchNorm2d(8)
        self.depthwise = M.Conv2d(8, 8, 3, 1, 1, groups=8)
        self.pool, self.fc = M.AdaptiveAvgPool2d(2), M.Linear(32, 5)

    def forward(self, x):
        y = F.relu(self.bn(self.conv(x)))
        z = self.pool(F.sigmoid(self.depthwise(y) + y * 2))
        z = F.concat([z, F.maximum(z, 0.5)], 1)[:, :8]
        z = self.fc(F.flatten(z, 1).reshape(x.shape[0], -1))
        return F.softmax(z, axis=1) if self.softmax else z


class Dumped(Net):
    """More operators; the dump's reader does not tell a softmax' axis."""

    softmax = False

    def __init__(self):
        super().__init__()
        self.up, self.max, self.mean = M.ConvTranspose2d(3, 3, 2, 2), M.MaxPool2d(3, 2, 1), M.AvgPool2d(2)

    def forward(self, x):
        y = super().forward(self.mean(self.up(F.leaky_relu(x, 0.1))) + F.gelu(x) * F.hswish(x))
        z = self.max(x).transpose(0, 2, 3, 1).reshape(x.shape[0], -1, 3)[:, ::2]
        z = F.matmul(F.sigmoid(F.matmul(z, z, transpose_b=True)), z)
        z = F.expand_dims(z.mean(axis=1), 1) + F.squeeze(F.sum(z, axis=1, keepdims=True), 1).reshape(-1, 1, 3)
        return F.concat([y, F.flatten(z, 1), F.argmax(z, 2).astype("float32")], 1)


def network(kind):
    rng, net = np.random.default_rng(0), kind()
    values = {k: rng.normal(size=a.shape).astype(np.float32) for k, a in net.state_dict().items()}
    net.load_state_dict({k: a**2 if k.endswith("var") else a for k, a in values.items()})
    return net.eval() or net


net, dumped = network(Net), network(Dumped)
rng = np.random.default_rng(1)
x = rng.normal(size=(2, 3, 16, 16)).astype(np.float32)
mge.save(net.state_dict(), sys.argv[1] + "/net.pkl")
mge.save(trace_module(net, mge.tensor(x)), sys.argv[1] + "/net.tm")
run = trace(lambda x: dumped(x), symbolic=True, capture_as_const=True)
y = run(mge.tensor(x))
run.dump(sys.argv[1] + "/net.mge", arg_names=["x"])
np.savez(sys.argv[1] + "/results.npz", x=x, y=net(mge.tensor(x)).numpy())
np.savez(sys.argv[1] + "/dumped.npz", x=x, y=y.numpy())
