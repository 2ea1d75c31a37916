"""A small FCOS in MegEngine's words: a pyramid of features, heads with a scale for each level, focal and IoU losses, and NMS."""

import math

import numpy as np

import tengen as mge
import tengen.functional as F
import tengen.module as M
from tengen.autodiff import GradManager
from tengen.optimizer import Adam

STRIDES, CLASSES = (4, 8), 3


def points_of(feature, stride):
    h, w = feature.shape[-2:]
    x = F.linspace(0.5 * stride, (w - 0.5) * stride, w)
    y = F.linspace(0.5 * stride, (h - 0.5) * stride, h)
    gx, gy = F.broadcast_to(x.reshape(1, -1), (h, w)), F.broadcast_to(y.reshape(-1, 1), (h, w))
    return F.stack([gx.reshape(-1), gy.reshape(-1)], axis=1)


def iou_loss(pred, target):
    """Both are the distances of a point to the left, upper, right and lower side of a box."""
    inner = F.minimum(pred[:, :2], target[:, :2]) + F.minimum(pred[:, 2:], target[:, 2:])
    areas = [(b[:, 0] + b[:, 2]) * (b[:, 1] + b[:, 3]) for b in (pred, target)]
    common = inner[:, 0] * inner[:, 1]
    return -F.log(F.maximum(common / (areas[0] + areas[1] - common + 1e-8), 1e-8))


def focal_loss(logits, target, alpha=0.25, gamma=2.0):
    p = F.sigmoid(logits)
    found = target * -F.logsigmoid(logits) * (1 - p) ** gamma * alpha
    missed = (1 - target) * -F.logsigmoid(-logits) * p**gamma * (1 - alpha)
    return (found + missed).sum()


class Detector(M.Module):
    def __init__(self, c=16):
        super().__init__()
        self.stem = M.ConvBnRelu2d(3, 8, 7, stride=4, padding=3)
        self.deep = M.ConvBnRelu2d(8, 16, 3, stride=2, padding=1)
        self.lateral = [M.Conv2d(8, c, 1), M.Conv2d(16, c, 1)]
        self.tower = M.Sequential(M.Conv2d(c, c, 3, padding=1), M.GroupNorm(4, c), M.ReLU())
        self.score, self.box = M.Conv2d(c, CLASSES, 3, padding=1), M.Conv2d(c, 4, 3, padding=1)
        self.scales = mge.Parameter(np.ones(2, dtype=np.float32))
        M.init.fill_(self.score.bias, -math.log(0.99 / 0.01))

    def heads(self, image):
        low = self.stem(image)
        top = self.lateral[1](self.deep(low))
        features = [self.lateral[0](low) + F.vision.interpolate(top, scale_factor=2, mode="bilinear"), top]
        points, logits, sides = [], [], []
        for i, (f, stride) in enumerate(zip(features, STRIDES)):
            t = self.tower(f)
            points.append(points_of(f, stride))
            logits.append(F.transpose(self.score(t), (0, 2, 3, 1)).reshape(-1, CLASSES))
            sides.append(F.transpose(F.relu(self.box(t) * self.scales[i]), (0, 2, 3, 1)).reshape(-1, 4) * stride)
        return (F.concat(x, axis=0) for x in (points, logits, sides))

    def forward(self, image, box=None, label=None):
        points, logits, sides = self.heads(image)
        if self.training:
            want = F.concat([points - box[:2], box[2:] - points], axis=1)
            inside = want.min(axis=1) > 0
            target = F.zeros_like(logits)
            target[inside, label] = 1
            n = F.maximum(inside.astype("float32").sum(), 1)
            return {"class": focal_loss(logits, target) / n, "box": iou_loss(sides[inside], want[inside]).sum() / n}
        boxes = F.concat([points - sides[:, :2], points + sides[:, 2:]], axis=1)
        scores, order = F.topk(F.sigmoid(logits).reshape(-1), 20, descending=True)
        label, boxes = order % CLASSES, boxes[order // CLASSES]
        keep = F.vision.nms(boxes + F.expand_dims(label, 1).astype("float32") * 1000, scores, 0.5, max_output=5)
        return boxes[keep], scores[keep], label[keep]


mge.random.seed(3)
rng = np.random.RandomState(0)
pixels = rng.randn(1, 3, 64, 64).astype("float32") * 0.1
pixels[:, 1, 12:50, 10:40] += 2  # a green thing
image, box = mge.Tensor(pixels), mge.Tensor([10.0, 12.0, 40.0, 50.0])
net = Detector()
gm, opt = GradManager().attach(net.parameters()), Adam(net.parameters(), lr=1e-2)
losses = []
for _ in range(40):
    with gm:
        parts = net(image, box, 2)
        loss = parts["class"] + parts["box"]
        gm.backward(loss)
    opt.step().clear_grad()
    losses.append(loss.item())
net.eval()
boxes, scores, labels = net(image)
print(f"loss {losses[0]:.2f} -> {losses[-1]:.2f}; the best box is {boxes[0].numpy().round().tolist()} of class {labels[0].item()}")
