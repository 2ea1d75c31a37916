"""Runs where Paddle and paddle2onnx are: writes networks as weights and as ONNX files, and results, into a folder."""

import sys

import numpy as np
import paddle
from paddle import nn
from paddle.vision import models

folder = sys.argv[1]
rng = np.random.default_rng(0)


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2D(3, 6, 3, padding=1)
        self.bn = nn.BatchNorm2D(6)
        self.depthwise = nn.Conv2D(6, 6, 3, stride=2, groups=6)
        self.norm = nn.LayerNorm(6)
        self.fc = nn.Linear(6, 4)

    def forward(self, x):
        x = nn.functional.relu(self.bn(self.conv(x)))
        x = nn.functional.gelu(self.depthwise(x)).mean([2, 3])
        return nn.functional.softmax(self.fc(self.norm(x)))


def keep(name, net, shape):
    """Weights, an ONNX file with an open batch, and an answer. Weights and statistics are none that a new network has."""
    net.eval()
    for k, v in net.state_dict().items():
        terms = np.prod(v.shape[1:]) if len(v.shape) == 4 else v.shape[0] if len(v.shape) == 2 else 200
        near_one = len(v.shape) == 1 and not k.endswith(("bias", "_mean"))
        v.set_value((rng.normal(size=v.shape) * (2 / terms) ** 0.5 + near_one).astype(np.float32))
    x = rng.normal(size=shape).astype(np.float32)
    paddle.save(net.state_dict(), f"{folder}/{name}.pdparams")
    np.savez(f"{folder}/{name}.npz", x=x, y=net(paddle.to_tensor(x)).numpy())
    paddle.onnx.export(net, f"{folder}/{name}", [paddle.static.InputSpec([None, *shape[1:]], "float32", "x")], opset_version=13)


keep("net", Net(), (2, 3, 12, 12))
keep("resnet18", models.resnet18(num_classes=7), (2, 3, 64, 64))
keep("mobilenet_v2", models.mobilenet_v2(num_classes=7), (2, 3, 64, 64))
