"""PyTorch modules whose Python code runs at each call: values that decide, tensors that are written in place, and a whole detector."""

import sys

import numpy as np
import pytest

from tengen import trace
from tengen.autodiff import GradManager
from tengen.base.errors import ArgumentError
from tengen.interop.torch import from_torch, interpret, to_torch

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn, T = torch.nn, torch.nn.functional


def close(have, want, tolerance=2e-5):
    want = want.detach().numpy()
    assert have.shape == want.shape
    np.testing.assert_allclose(have.numpy(), want, rtol=tolerance, atol=tolerance * max(1.0, float(np.abs(want).max(initial=0))))


class Decides(nn.Module):
    """Masks, loops by values, writes into views of what it makes, and running statistics."""

    def __init__(self):
        super().__init__()
        self.norm, self.linear = nn.BatchNorm1d(4), nn.Linear(4, 4)
        self.tied = self.linear
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.calls += 1
        y = self.linear(self.norm(x))
        while y.abs().max() > 2:
            y = y / 2
        board = torch.zeros(3, 4)
        board[1] = y[0]
        board[:, 1:3].t()[0].add_(y[1, :3])
        first = board[:, 1]
        board[:, 1].mul_(3)
        kept = y[y > 0]
        rows = torch.where(y.sum(1) > y.sum(1).mean())[0]
        return {"board": board, "kept": kept, "rows": y[rows].relu_() + first.sum(), "which": torch.unique(rows % 2)}


def test_code_that_decides_by_values():
    """Outputs, gradients, running statistics, and buffers that the code writes are PyTorch's; a traced call has the eager bits."""
    torch.manual_seed(0)
    module = Decides().train()
    net, x = interpret(module), torch.randn(6, 4) * 3
    assert list(net.state_dict()) == list(module.state_dict()) and net.tied.weight is net.linear.weight
    twin = interpret(module)
    want = module(x)
    loss = want["board"].square().sum() + want["kept"].sum() + want["rows"].sum()
    loss.backward()
    gm = GradManager().attach(net.parameters())
    with gm:
        have = net(from_torch(x))
        gm.backward((have["board"] ** 2).sum() + have["kept"].sum() + have["rows"].sum())
    for key, value in want.items():
        close(have[key], value)
    found = dict(net.named_parameters())
    for name, p in module.named_parameters():
        close(found[name].grad, p.grad, 1e-4)
    for name, b in module.named_buffers():
        close(net.tensor(name), b)
    run = trace(twin)
    for i in range(2):
        y = run(from_torch(x))
        assert all(y[k].numpy().tobytes() == have[k].numpy().tobytes() for k in have) or i
    assert twin.calls.item() == 2
    close(net.eval()(from_torch(x))["board"], module.eval()(x)["board"])
    module.load_state_dict(to_torch(net.state_dict()))


class Assigns(nn.Module):
    """Gives its buffers new tensors, and writes into its argument."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))
        self.inner = nn.Module()
        self.inner.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x, reset=False):
        self.mean = torch.ones(3) if reset else 0.5 * self.mean + 0.5 * x.mean(0)
        self.inner.calls = self.inner.calls + 1
        x[0].mul_(2)
        return x + self.mean


def test_what_the_code_assigns_and_writes_into_arguments():
    """A buffer that the code replaces has its new value at the next call; a tensor that is an argument is written, as PyTorch's is."""
    module = Assigns()
    net = interpret(module)
    for reset in (False, False, True, False):
        x = torch.randn(4, 3)
        mine = from_torch(x.clone())
        close(net(mine, reset=reset), module(x, reset))
        close(mine, x)
        for name, b in module.named_buffers():
            close(net.tensor(name), b)

    class Grows(Assigns):
        def forward(self, x):
            self.mean = torch.cat([self.mean, x])
            return x

    with pytest.raises(ArgumentError, match=r"puts torch.float32\[4\] in the place of mean, which is and stays torch.float32\[3\]"):
        interpret(Grows())(np.ones(1, np.float32))


def test_what_the_code_must_not_do():
    kept = torch.zeros(3)

    class Writes(nn.Module):
        def forward(self, x):
            return kept.add_(x)

    with pytest.raises(ArgumentError, match=r"aten.add_.Tensor writes a tensor that the network does not make; help: register_buffer"):
        interpret(Writes())(np.ones(3, np.float32))
    assert kept.tolist() == [0.0] * 3

    class Foreign(nn.Module):
        def forward(self, x):
            return torch.hash_tensor(x)

    with pytest.raises(ArgumentError, match="aten.hash_tensor has no meaning here"):
        interpret(Foreign())(np.eye(3, dtype=np.float32))
    with pytest.raises(ArgumentError, match="interpret takes an nn.Module, got a int"):
        interpret(3)


class Losses(nn.Module):
    """Losses that PyTorch's programs do not contain, random numbers, and a tensor that fills another."""

    def forward(self, x, target):
        y = x.clone()
        y[0].fill_(x.sum())
        draws = torch.empty(50).uniform_(2, 3), torch.empty(50).normal_(7, 0.01), torch.empty(50).exponential_(), torch.rand(3).bernoulli_(0.5)
        loss = T.binary_cross_entropy_with_logits(y, target) + T.smooth_l1_loss(y, target) + T.huber_loss(x, target) + T.mse_loss(x, target)
        return loss + T.gaussian_nll_loss(x, target, x.square()) + T.kl_div(x.log_softmax(-1), target, reduction="batchmean"), *draws


def test_operators_that_programs_do_not_contain():
    x, target = torch.randn(4, 3), torch.rand(4, 3)
    mine, theirs = from_torch(x.clone()), x.clone().requires_grad_()
    want = Losses()(theirs, target)[0]
    want.backward()
    gm = GradManager().attach([mine])
    with gm:
        have, uniform, normal, exponential, bernoulli = interpret(Losses())(mine, from_torch(target))
        gm.backward(have)
    close(have, want)
    close(mine.grad, theirs.grad)
    assert 2 <= uniform.numpy().min() < 2.2 and 2.8 < uniform.numpy().max() < 3 and (abs(normal.numpy() - 7) < 0.1).all()
    assert (exponential.numpy() > 0).all() and set(bernoulli.tolist()) <= {0.0, 1.0}


def kernels(lib):
    """torchvision's operators by their definitions, where it was built without them."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    if not has("torchvision::roi_align", "CPU"):
        definition = sys.modules["torchvision.ops.roi_align"]._roi_align
        lib.impl("roi_align", lambda x, rois, scale, h, w, n, aligned: definition(x, rois, scale, h, w, n, aligned), "CPU")
    return has("torchvision::nms", "CPU")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torchvision's, of its own definitions
def test_a_whole_detector():
    """Faster R-CNN with torchvision's own code: proposals, regions, boxes, scores and labels."""
    detection = pytest.importorskip("torchvision.models.detection", reason="torchvision is not installed")
    lib = torch.library.Library("torchvision", "IMPL")
    if not kernels(lib):
        pytest.skip("torchvision has no nms for this processor: there is nothing to compare with")
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Conv2d(3, 8, 3, 4, 1), nn.ReLU(), nn.Conv2d(8, 8, 3, 4, 1), nn.ReLU())
    backbone.out_channels = 8
    anchors = detection.rpn.AnchorGenerator(((16, 32),), ((0.5, 1.0),))
    module = detection.FasterRCNN(
        backbone, 4, 64, 96, rpn_anchor_generator=anchors, rpn_pre_nms_top_n_test=20, rpn_post_nms_top_n_test=8, box_score_thresh=0.01,
        box_roi_pool=__import__("torchvision").ops.MultiScaleRoIAlign(["0"], 3, 2),
    ).eval()  # fmt: skip
    net, images = interpret(module), [torch.rand(3, 50, 70), torch.rand(3, 64, 64)]
    with torch.no_grad():
        want = module(images)
    have = net([from_torch(x) for x in images])
    assert len(have) == 2 and len(want[0]["boxes"]) > 1
    for h, w in zip(have, want):
        assert h["labels"].tolist() == w["labels"].tolist()
        close(h["boxes"], w["boxes"], 1e-4)
        close(h["scores"], w["scores"], 1e-4)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_training_a_detector():
    """FCOS, which draws nothing: its losses of two images, and their gradients, are PyTorch's."""
    detection = pytest.importorskip("torchvision.models.detection", reason="torchvision is not installed")
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Conv2d(3, 8, 3, 4, 1), nn.ReLU(), nn.Conv2d(8, 8, 3, 4, 1), nn.ReLU())
    backbone.out_channels = 8
    anchors = detection.anchor_utils.AnchorGenerator(((16,),), ((1.0,),))
    head = detection.fcos.FCOSHead(8, 1, 4, num_convs=0)
    module = detection.FCOS(backbone, 4, 64, 64, anchor_generator=anchors, head=head).train()
    images = [torch.rand(3, 50, 64), torch.rand(3, 64, 64)]
    boxes = [{"boxes": torch.tensor([[2.0, 3, 30, 40], [8, 8, 60, 44]]), "labels": torch.tensor([1, 2])}]
    boxes.append({"boxes": torch.tensor([[20.0, 10, 50, 60]]), "labels": torch.tensor([3])})
    net = interpret(module)
    want = module(images, boxes)
    sum(want.values()).backward()
    gm = GradManager().attach(net.parameters())
    with gm:
        have = net([from_torch(x) for x in images], [{k: from_torch(v) for k, v in b.items()} for b in boxes])
        gm.backward(sum(have.values()))
    assert have.keys() == want.keys()
    for key in want:
        close(have[key], want[key], 1e-5)
    found = dict(net.named_parameters())
    for name, p in module.named_parameters():
        close(found[name].grad, p.grad, 1e-4)


def test_recurrent_layers():
    """Which PyTorch would compute by one operator of oneDNN's."""
    torch.manual_seed(0)
    x = torch.randn(5, 2, 4)
    for module in (torch.nn.LSTM(4, 3, 2, bidirectional=True), torch.nn.GRU(4, 3), torch.nn.RNN(4, 3)):
        for a, b in zip(interpret(module)(from_torch(x)), module(x)):
            for have, want in zip(a, b) if isinstance(b, tuple) else [(a, b)]:
                np.testing.assert_allclose(have.numpy(), want.detach().numpy(), rtol=1e-5, atol=1e-6)
    assert torch.backends.mkldnn.enabled
