"""The network and the steps of MegEngine's pages on quantisation, with the import renamed: a residual network is trained,
quantised, calibrated and dumped; in the dumped program integers stay integers between layers."""

from __future__ import annotations

import numpy as np
from exhaustive import exhaustive

import tengen as mge
import tengen.functional as F
import tengen.module as M
import tengen.quantization as Q
from tengen import jit, optimizer
from tengen.autodiff import GradManager
from tengen.passes.pipeline import optimize


class BasicBlock(M.Module):
    def __init__(self, in_planes, planes, stride=1):
        super().__init__()
        self.conv_bn_relu = M.ConvBnRelu2d(in_planes, planes, kernel_size=3, stride=stride, padding=1, bias=False)
        self.conv_bn = M.ConvBn2d(planes, planes, kernel_size=3, stride=1, padding=1, bias=False)
        self.add_relu = M.Elemwise("FUSE_ADD_RELU")
        self.shortcut = M.Sequential()
        if stride != 1 or in_planes != planes:
            self.shortcut = M.Sequential(M.ConvBn2d(in_planes, planes, kernel_size=1, stride=stride, bias=False))

    def forward(self, x):
        out = self.conv_bn(self.conv_bn_relu(x))
        return self.add_relu(out, self.shortcut(x))


class ResNet(M.Module):
    def __init__(self, num_classes=10):
        super().__init__()
        self.quant, self.dequant = M.QuantStub(), M.DequantStub()
        self.conv_bn_relu = M.ConvBnRelu2d(3, 8, kernel_size=3, padding=1, bias=False)
        self.layers = M.Sequential(BasicBlock(8, 8), BasicBlock(8, 16, 2))
        self.linear = M.Linear(16, num_classes)

    def forward(self, x):
        x = self.quant(x)
        x = self.layers(self.conv_bn_relu(x))
        x = F.avg_pool2d(x, 4)
        x = F.flatten(x, 1)
        return self.dequant(self.linear(x))


@exhaustive
def test_the_page(tmp_path):
    rng = np.random.default_rng(0)
    image, label = rng.standard_normal((8, 3, 8, 8)).astype("float32"), rng.integers(0, 10, 8).astype("int32")
    model = ResNet()
    model.train()

    gm = GradManager().attach(model.parameters())
    opt = optimizer.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)

    @jit.trace(symbolic=True)
    def train_func(image, label, *, gm, model):
        with gm:
            logits = model(image)
            loss = F.loss.cross_entropy(logits, label)
            gm.backward(loss)
        return logits, loss

    Q.quantize_qat(model, qconfig=Q.ema_fakequant_qconfig)
    losses = []
    for _ in range(6):
        _, loss = train_func(mge.tensor(image), mge.tensor(label), gm=gm, model=model)
        opt.step().clear_grad()
        losses.append(loss.item())
    assert losses[-1] < losses[0]

    Q.disable_fake_quant(model)  # calibration in float, as the page of post-training quantisation has it
    Q.enable_observer(model)
    model.eval()
    Q.enable_observer(model)
    model(mge.tensor(image))
    Q.disable_observer(model)
    Q.enable_fake_quant(model)
    want = model(mge.tensor(image)).numpy()

    Q.quantize(model)
    model.eval()

    @jit.trace(symbolic=True, capture_as_const=True)
    def infer_func(processed_img, *, model):
        return model(processed_img)

    got = infer_func(mge.tensor(image), model=model).numpy()
    assert got.tobytes() == want.tobytes()
    infer_func.dump(tmp_path / "resnet.mge", arg_names=["data"])
    loaded = mge.load_graph(tmp_path / "resnet.mge")
    assert loaded(data=image).numpy().tobytes() == want.tobytes()

    kept = optimize(mge.Graph.load(tmp_path / "resnet.mge").copy())
    nodes = [m for n in kept.nodes for m in (n.attrs["body"].nodes if n.op == "fused" else [n])]
    convolutions = [n for n in nodes if n.op == "conv_int"]
    assert len(convolutions) == 6 and {str(n.inputs[0].type.dtype) for n in convolutions} == {"int8"}
    rounded = [n for n in nodes if n.op == "quantize_linear" and n.attrs["dtype"] == "int8"]
    assert len(rounded) == 4  # the picture, two additions, and what is behind the pooling
