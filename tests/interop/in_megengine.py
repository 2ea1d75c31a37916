"""Runs where MegEngine is (Python 3.10 or older): writes a network's state dict, its traced module, and results, into a folder."""

import sys

import megengine as mge
import megengine.functional as F
import megengine.module as M
import numpy as np
from megengine.traced_module import trace_module


class Net(M.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn = M.Conv2d(3, 8, 3, 2, 1), M.BatchNorm2d(8)
        self.depthwise = M.Conv2d(8, 8, 3, 1, 1, groups=8)
        self.pool, self.fc = M.AdaptiveAvgPool2d(2), M.Linear(32, 5)

    def forward(self, x):
        y = F.relu(self.bn(self.conv(x)))
        z = self.pool(F.sigmoid(self.depthwise(y) + y * 2))
        z = F.concat([z, F.maximum(z, 0.5)], 1)[:, :8]
        return F.softmax(self.fc(F.flatten(z, 1).reshape(x.shape[0], -1)), axis=1)


rng = np.random.default_rng(0)
net = Net()
net.load_state_dict({k: rng.normal(size=a.shape).astype(np.float32) ** (2 if k.endswith("var") else 1) for k, a in net.state_dict().items()})
net.eval()
x = rng.normal(size=(2, 3, 16, 16)).astype(np.float32)
mge.save(net.state_dict(), sys.argv[1] + "/net.pkl")
mge.save(trace_module(net, mge.tensor(x)), sys.argv[1] + "/net.tm")
np.savez(sys.argv[1] + "/results.npz", x=x, y=net(mge.tensor(x)).numpy())
