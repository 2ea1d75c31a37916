"""Programs for MegEngine that read pictures, as `megengine_programs.py` has them."""

import math

import numpy as np
from megengine_values import begin, some


def detector(mge, traced=False):
    """RetinaNet: anchors, IoU, a focal loss, smooth L1, nms, roi_align, boxes decoded."""
    F, M, optim, GradManager = mge.functional, mge.module, mge.optimizer, mge.autodiff.GradManager
    trace = mge.jit.trace

    def anchors(h, w, stride):
        sx, sy = F.arange(w) * stride, F.arange(h) * stride
        grid_x = F.broadcast_to(F.expand_dims(sx, 0), (h, w)).flatten()
        grid_y = F.broadcast_to(F.expand_dims(sy, 1), (h, w)).flatten()
        centers = F.stack([grid_x, grid_y, grid_x, grid_y], axis=1)
        base = mge.tensor(np.array([[-4, -4, 4, 4], [-8, -4, 8, 4]], "float32"))
        return F.reshape(F.expand_dims(base, 0) + F.expand_dims(centers, 1), (-1, 4))

    def iou(a, b):
        area = lambda x: F.maximum(x[:, 2] - x[:, 0], 0) * F.maximum(x[:, 3] - x[:, 1], 0)
        n, m = a.shape[0], b.shape[0]
        A, B = F.broadcast_to(F.expand_dims(a, 1), (n, m, 4)), F.broadcast_to(F.expand_dims(b, 0), (n, m, 4))
        iw = F.minimum(A[:, :, 2], B[:, :, 2]) - F.maximum(A[:, :, 0], B[:, :, 0])
        ih = F.minimum(A[:, :, 3], B[:, :, 3]) - F.maximum(A[:, :, 1], B[:, :, 1])
        inter = F.maximum(iw, 0) * F.maximum(ih, 0)
        return inter / (F.expand_dims(area(a), 1) + F.expand_dims(area(b), 0) - inter)

    def encode(a, b):
        aw, ah, ax, ay = a[:, 2] - a[:, 0], a[:, 3] - a[:, 1], (a[:, 0] + a[:, 2]) * 0.5, (a[:, 1] + a[:, 3]) * 0.5
        bw, bh, bx, by = b[:, 2] - b[:, 0], b[:, 3] - b[:, 1], (b[:, 0] + b[:, 2]) * 0.5, (b[:, 1] + b[:, 3]) * 0.5
        return F.stack([(bx - ax) / aw, (by - ay) / ah, F.log(bw / aw), F.log(bh / ah)], axis=1)

    def decode(a, d):
        aw, ah, ax, ay = a[:, 2] - a[:, 0], a[:, 3] - a[:, 1], (a[:, 0] + a[:, 2]) * 0.5, (a[:, 1] + a[:, 3]) * 0.5
        cx, cy, w, h = ax + d[:, 0] * aw, ay + d[:, 1] * ah, aw * F.exp(d[:, 2]), ah * F.exp(d[:, 3])
        return F.stack([cx - 0.5 * w, cy - 0.5 * h, cx + 0.5 * w, cy + 0.5 * h], axis=1)

    def focal(logits, targets, alpha=0.25, gamma=2):
        scores = F.sigmoid(logits)
        ce = -(targets * F.logsigmoid(logits) + (1 - targets) * F.logsigmoid(-logits))
        p = scores * targets + (1 - scores) * (1 - targets)
        return (ce * (1 - p) ** gamma * (alpha * targets + (1 - alpha) * (1 - targets))).sum()

    def smooth_l1(pred, target, beta=0.11):
        x = F.abs(pred - target)
        return F.where(x < beta, 0.5 * x**2 / beta, x - 0.5 * beta).sum()

    class Net(M.Module):
        def __init__(self):
            super().__init__()
            self.backbone = M.Sequential(M.Conv2d(3, 8, 3, 2, 1), M.LeakyReLU(0.1), M.Conv2d(8, 8, 3, 2, 1))
            self.lateral = M.Conv2d(8, 8, 1)
            self.cls, self.box = M.Conv2d(8, 2 * 3, 3, 1, 1), M.Conv2d(8, 2 * 4, 3, 1, 1)

        def forward(self, x):
            f = self.backbone(x)
            f = f + F.vision.interpolate(
                self.lateral(F.max_pool2d(f, 2, 2)), scale_factor=2, mode="bilinear", align_corners=False
            )
            cls = self.cls(f).transpose(0, 2, 3, 1).reshape(x.shape[0], -1, 3)
            box = self.box(f).transpose(0, 2, 3, 1).reshape(x.shape[0], -1, 4)
            return cls, box, f

    net = begin(Net(), scale=0.7)
    boxes, labels = mge.tensor(np.array([[2, 3, 12, 11], [10, 8, 22, 18.0]], "float32")), mge.tensor(np.array([1, 2], "int32"))
    gm, opt = GradManager(), optim.AdamW(net.parameters(), lr=1e-2, weight_decay=1e-2)
    gm.attach(net.parameters())
    x, out = some(mge, 1, 3, 24, 24), []

    def step(x, boxes, labels):
        with gm:
            cls, box, _ = net(x)
            a = anchors(6, 6, 4)
            overlap = iou(a, boxes)
            best, matched = F.max(overlap, axis=1), F.argmax(overlap, axis=1)
            fg = best > 0.3
            onehot = F.nn.one_hot(F.where(fg, labels[matched], F.zeros_like(labels[matched])), 4)[:, 1:].astype("float32")
            num = F.maximum(fg.astype("float32").sum(), 1.0)
            targets = encode(a, boxes[matched])
            loss = (
                focal(cls[0], onehot) / num
                + smooth_l1(F.expand_dims(fg.astype("float32"), 1) * box[0], F.expand_dims(fg.astype("float32"), 1) * targets)
                / num
            )
            gm.backward(loss)
        opt.step()
        opt.clear_grad()
        return loss, num

    run = trace(step, symbolic=False) if traced else step
    for _ in range(4):
        loss, num = run(x, boxes, labels)
        out += [loss.item(), num.item()]
    cls, box, f = net(x)
    decoded, scores = decode(anchors(6, 6, 4), box[0].detach()), F.max(F.sigmoid(cls[0]), axis=1)
    top, index = F.topk(scores, 20, descending=True)
    keep = F.vision.nms(decoded[index], top, iou_thresh=0.5, max_output=6)
    rois = F.concat([F.zeros((3, 1)), mge.tensor([[0.0, 0, 8, 8], [4, 4, 20, 16], [2, 2, 22, 22]])], axis=1)
    pooled = F.vision.roi_align(f, rois, (2, 2), mode="average", spatial_scale=0.25, sample_points=2, aligned=True)
    inds = F.cond_take(scores > 0.2, scores)[1]
    return [*out, *keep.numpy().tolist(), float(pooled.numpy().sum()), float(inds.shape[0]), float(top.numpy()[0])]


def pictures(mge, traced=False):
    """Vision operators: warps by matrices, remap, resize, colours, super-resolution by pixel shuffle, a custom Function, correlation."""
    F, M, optim, GradManager = mge.functional, mge.module, mge.optimizer, mge.autodiff.GradManager
    trace, Function = mge.jit.trace, mge.autodiff.Function

    class Round(Function):
        def forward(self, x):
            self.shape = x.shape
            return F.round(x * 8) / 8

        def backward(self, dy):
            return dy

    class Net(M.Module):
        def __init__(self):
            super().__init__()
            self.head, self.up = M.Conv2d(3, 8, 3, padding=1), M.Conv2d(8, 12, 3, padding=1)
            self.deconv = M.ConvTranspose2d(8, 3, 4, 2, 1)
            self.prelu = M.PReLU(8)
            self.quant = Round()

        def forward(self, x):
            f = self.prelu(self.head(x))
            return (
                F.pixel_shuffle(self.up(f), 2)
                + self.deconv(f)
                + F.vision.interpolate(self.quant(x), scale_factor=2, mode="bilinear", align_corners=False)
            )

    net = begin(Net(), scale=0.5)
    low, high = some(mge, 2, 3, 8, 8), some(mge, 2, 3, 16, 16, seed=5)
    gm, opt, out = GradManager().attach(net.parameters()), optim.Adam(net.parameters(), lr=5e-3), []

    def step(low, high):
        with gm:
            y = net(low)
            loss = F.loss.l1_loss(y, high) + 0.1 * F.loss.square_loss(F.avg_pool2d(y, 2), F.avg_pool2d(high, 2))
            gm.backward(loss)
        opt.step().clear_grad()
        return loss, y

    run = trace(step, symbolic=True) if traced else step
    for _ in range(3):
        loss, y = run(low, high)
        out += [loss.item(), y.numpy().std()]
    angle = 0.3
    matrix = mge.tensor(
        np.array([[[math.cos(angle), -math.sin(angle), 2], [math.sin(angle), math.cos(angle), 1], [0, 0, 1]]] * 2, "float32")
    )
    warped = F.vision.warp_perspective(high, matrix, (10, 12), border_mode="constant", border_val=0.5)
    affine = F.vision.warp_affine(high, matrix[:, :2], (9, 9), border_mode="replicate")
    ys, xs = np.meshgrid(np.linspace(-1, 16, 7), np.linspace(0, 15, 6), indexing="ij")
    grid = mge.tensor(np.stack([xs, ys], -1)[None].repeat(2, 0).astype("float32"))
    mapped = F.vision.remap(high, grid, border_mode="replicate", scalar=0.0, interp_mode="linear")
    resized = F.vision.interpolate(high, size=(5, 7), mode="bilinear", align_corners=True)
    nearest = F.vision.interpolate(high, size=(5, 7), mode="nearest")
    windows = F.nn.sliding_window(low, (3, 3), padding=(1, 1))
    padded = F.nn.pad(low, ((0, 0), (0, 0), (1, 2), (2, 1)), mode="reflect")
    gray = F.vision.cvt_color(mge.tensor((np.random.RandomState(0).rand(1, 6, 6, 3) * 255).astype("float32")), mode="RGB2GRAY")
    return [
        *out,
        *(float(t.numpy().astype("float64").mean()) for t in (warped, affine, mapped, resized, nearest, windows, padded, gray)),
    ]
