"""Runs where MindSpore is: writes a network's weights and its ONNX file, and results, into a folder."""

import sys

import mindspore as ms
import numpy as np
from mindspore import nn, ops

folder = sys.argv[1]
rng = np.random.default_rng(0)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3, pad_mode="pad", padding=1, has_bias=True)
        self.bn = nn.BatchNorm2d(6)
        self.depthwise = nn.Conv2d(6, 6, 3, stride=2, pad_mode="valid", group=6, has_bias=True)
        self.relu, self.pool, self.flatten, self.fc = nn.ReLU(), nn.AvgPool2d(5), nn.Flatten(), nn.Dense(6, 4)

    def construct(self, x):
        x = self.depthwise(self.relu(self.bn(self.conv(x))))
        return ops.softmax(self.fc(self.flatten(self.pool(x))))


net = Net()
for p in net.get_parameters():
    terms = np.prod(p.shape[1:]) if len(p.shape) > 1 else 1
    p.set_data(ms.Tensor(rng.uniform(0.1, 1, p.shape).astype(np.float32) / terms**0.5))
net.set_train(False)
x = rng.normal(size=(2, 3, 12, 12)).astype(np.float32)
ms.save_checkpoint(net, folder + "/net.ckpt")
np.savez(folder + "/net.npz", x=x, y=net(ms.Tensor(x)).asnumpy())
ms.export(net, ms.Tensor(x), file_name=folder + "/net", file_format="ONNX")
