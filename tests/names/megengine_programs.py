"""Programs as people write them for MegEngine: each is given the package, MegEngine or Tengen, and whether its step is traced, and returns
numbers. Run in an environment with MegEngine 1.13, `python megengine_programs.py` writes what it gives to `megengine_programs.json`."""

import importlib
import io
import json
import math
import os
import sys
import tempfile
from pathlib import Path

import numpy as np

SAVED = Path(__file__).with_name("megengine_programs.json")


def begin(net, seed=0, scale=1.0):
    rng = np.random.RandomState(seed)
    for name, p in sorted(net.named_parameters()):
        if "_flatten" in name:
            continue
        fan = p.numpy().size / p.shape[0] if len(p.shape) > 1 and p.numpy().size != max(p.shape) else 4.0
        p._reset(type(p)((scale * rng.standard_normal(tuple(p.shape)) / math.sqrt(fan)).astype("float32")))
    return net


def some(mge, *shape, seed=1):
    return mge.Tensor(np.random.RandomState(seed).standard_normal(shape).astype("float32"))


def classes(mge, n, of, seed=2):
    return mge.Tensor(np.random.RandomState(seed).randint(0, of, n).astype("int32"))


def lenet(mge, traced=False):
    """A classifier: DataLoader, transforms, samplers, a traced step, MultiStepLR, accuracy by topk."""
    F, M, optim, T = mge.functional, mge.module, mge.optimizer, importlib.import_module(f"{mge.__name__}.data.transform")
    data, GradManager, trace = importlib.import_module(f"{mge.__name__}.data"), mge.autodiff.GradManager, mge.jit.trace

    class LeNet(M.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.relu1, self.pool1 = M.Conv2d(1, 6, 5), M.ReLU(), M.MaxPool2d(2, 2)
            self.conv2, self.bn = M.Conv2d(6, 8, 3), M.BatchNorm2d(8)
            self.fc1, self.fc2 = M.Linear(8 * 3 * 3, 16), M.Linear(16, 5)
            for m in self.modules():
                if isinstance(m, M.Conv2d):
                    M.init.msra_normal_(m.weight, mode="fan_out", nonlinearity="relu")

        def forward(self, x):
            x = self.pool1(self.relu1(self.conv1(x)))
            x = F.avg_pool2d(F.relu(self.bn(self.conv2(x))), 1, 1)
            x = F.flatten(x, 1)
            return self.fc2(F.relu(self.fc1(x)))

    rng = np.random.RandomState(0)
    images, labels = rng.randint(0, 255, (12, 14, 14, 1)).astype("uint8"), rng.randint(0, 5, 12).astype("int32")
    dataset = data.dataset.ArrayDataset(images, labels)
    sampler = data.SequentialSampler(dataset=dataset, batch_size=4, drop_last=True)
    loader = data.DataLoader(
        dataset, sampler=sampler, transform=T.Compose([T.Normalize(mean=128.0, std=64.0), T.ToMode("CHW")])
    )
    net = begin(LeNet())
    opt = optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    scheduler = optim.MultiStepLR(opt, [1, 2], 0.3)
    gm = GradManager().attach(net.parameters())

    def train_func(data, label):
        with gm:
            logits = net(data)
            loss = F.nn.cross_entropy(logits, label, label_smooth=0.1)
            gm.backward(loss)
            opt.step().clear_grad()
        return loss, F.topk_accuracy(logits, label, (1, 2))

    step = trace(train_func, symbolic=True) if traced else train_func
    out = []
    for _ in range(3):
        net.train()
        for batch_data, batch_label in loader:
            loss, (acc1, acc2) = step(mge.tensor(batch_data), mge.tensor(batch_label))
            out += [loss.item(), acc1.numpy().item(), float(acc2)]
        scheduler.step()
        out += [opt.param_groups[0]["lr"], scheduler.get_lr()[0]]
    net.eval()
    return (
        out
        + net(mge.tensor((images.astype("float32") - 128) / 64).transpose(0, 3, 1, 2)).numpy().sum(0).tolist()
        + [float(len(loader))]
    )


def dumped(mge, traced=False):
    """Inference: a traced network is dumped with constants, read back as a Network, run by name."""
    F, M, trace = mge.functional, mge.module, mge.jit.trace

    class Block(M.Module):
        def __init__(self, cin, cout, stride):
            super().__init__()
            self.conv1, self.bn1 = M.Conv2d(cin, cout, 3, stride, 1, bias=False), M.BatchNorm2d(cout)
            self.conv2, self.bn2 = M.Conv2d(cout, cout, 3, 1, 1, groups=cout, bias=False), M.BatchNorm2d(cout)
            self.down = (
                M.Identity()
                if cin == cout and stride == 1
                else M.Sequential(M.Conv2d(cin, cout, 1, stride, bias=False), M.BatchNorm2d(cout))
            )

        def forward(self, x):
            y = F.relu(self.bn1(self.conv1(x)))
            y = self.bn2(self.conv2(y))
            return F.relu(y + self.down(x))

    net = begin(M.Sequential(M.ConvBnRelu2d(3, 4, 3, 1, 1), Block(4, 8, 2), Block(8, 8, 1), M.AdaptiveAvgPool2d(1)))
    net.eval()

    @trace(symbolic=True, capture_as_const=True)
    def pred_func(data, *, net=net):
        outputs = net(data)
        return F.softmax(F.flatten(outputs, 1), axis=1)

    x = some(mge, 2, 3, 12, 12)
    y = pred_func(x)
    file = os.path.join(tempfile.mkdtemp(), "model.mge")
    pred_func.dump(file, arg_names=["data"], output_names=["prob"], optimize_for_inference=False)
    size = os.path.getsize(file)
    Network = importlib.import_module(f"{mge.__name__}.utils.network").Network
    loaded = Network.load(file)
    names = [v.name for v in loaded.input_vars], [v.name for v in loaded.output_vars]
    again = pred_func(x)
    inference = importlib.import_module(f"{mge.__name__}.utils.comp_graph_tools").GraphInference(file)
    (z,) = inference.run(inp_dict={"data": x.numpy()}).values()
    return [
        *y.numpy()[0].tolist(),
        float(np.abs(again.numpy() - y.numpy()).max()),
        float(np.abs(z - y.numpy()).max() < 1e-5),
        float(size > 100),
        float(len(names[0])),
        float(names[0] == ["data"]),
    ]


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


def callbacks(mge, traced=False):
    """GradManager: callbacks that scale and record, attached tensors, gradients of gradients, released and accumulated gradients."""
    F, M, optim, GradManager = mge.functional, mge.module, mge.optimizer, mge.autodiff.GradManager
    trace = mge.jit.trace
    net, critic = (
        begin(M.Sequential(M.Linear(4, 8), M.Sigmoid(), M.Linear(8, 3))),
        begin(M.Sequential(M.Linear(3, 6), M.Sigmoid(), M.Linear(6, 1)), 2),
    )
    seen = []
    gm = GradManager().attach(net.parameters(), callbacks=[lambda p, g: g * 0.5, lambda p, g: g + 0.01 * p])
    gc = GradManager().attach(critic.parameters(), callbacks=lambda p, g: F.clip(g, -0.1, 0.1))
    og, oc = optim.Adam(net.parameters(), lr=1e-2, betas=(0.5, 0.9)), optim.SGD(critic.parameters(), lr=1e-2)
    z, real, out = some(mge, 6, 4), some(mge, 6, 3, seed=3), []

    def critic_step(z, real):
        fake = net(z).detach()
        mix = 0.5 * fake + 0.5 * real
        with gc:
            penalty = ((F.norm(critic(mix), ord=2, axis=1) - 1) ** 2).mean()
            loss = critic(fake).mean() - critic(real).mean() + 10 * penalty
            gc.backward(loss)
        oc.step().clear_grad()
        return loss, penalty

    def generator_step(z):
        with gm:
            loss = -critic(net(z)).mean()
            gm.backward(loss)
        norm = optim.clip_grad_norm(net.parameters(), max_norm=0.05)
        og.step().clear_grad()
        return loss, norm

    run = trace(generator_step, symbolic=True) if traced else generator_step
    for _ in range(3):
        loss, penalty = critic_step(z, real)
        g, norm = run(z)
        out += [loss.item(), penalty.item(), g.item(), float(norm)]
    x = mge.tensor([1.0, 2.0, 3.0])
    with GradManager().attach(x) as m:
        m.backward(x * x, mge.tensor([1.0, 0.5, 0.0]))
    out += x.grad.numpy().tolist()
    with GradManager().attach(x, callbacks=lambda t, g: (seen.append(g.numpy().sum()), g)[1]) as m:
        m.backward(F.exp(-x).sum())
    return (
        out
        + x.grad.numpy().tolist()
        + [float(seen[0]), float(net[0].weight.grad is None or net[0].weight.grad.numpy().sum() == 0)]
    )


def mixed(mge, traced=False):
    """amp: autocast by decorator and context, a scaler with growth, an update of skipped steps, float32 kept for a loss."""
    F, M, optim, amp, GradManager = mge.functional, mge.module, mge.optimizer, mge.amp, mge.autodiff.GradManager
    net = begin(M.Sequential(M.Linear(6, 16), M.LayerNorm(16), M.ReLU(), M.Linear(16, 3)))
    opt, scaler = (
        optim.SGD(net.parameters(), lr=0.05),
        amp.GradScaler(init_scale=1024.0, growth_factor=2.0, backoff_factor=0.5, growth_interval=2),
    )
    gm, x, y, out = GradManager().attach(net.parameters()), some(mge, 10, 6), classes(mge, 10, 3), []

    @amp.autocast(enabled=False)
    def train_step(x, y):
        with gm:
            loss = F.nn.cross_entropy(net(x), y)
            scaler.backward(gm, loss)
        opt.step().clear_grad()
        return loss

    for _ in range(4):
        out += [train_step(x, y).item(), float(scaler.scale_factor)]
    with amp.autocast(low_prec_dtype="float16", high_prec_dtype="float32", enabled=True):
        h = F.matmul(x, F.transpose(net[0].weight, (1, 0)))
    close = np.abs(h.numpy().astype("float32") - x.numpy() @ net[0].weight.numpy().T).max() < 0.05
    return [*out, float("float16" in str(h.dtype)), float(close)]


def quantised(mge, traced=False):
    """QAT: quantize_qat, observers and fake quantisation switched, fine-tuning, quantize, and a traced int8 network."""
    F, M, optim, GradManager = mge.functional, mge.module, mge.optimizer, mge.autodiff.GradManager
    Q = importlib.import_module(f"{mge.__name__}.quantization")

    class Net(M.Module):
        def __init__(self):
            super().__init__()
            self.quant, self.dequant = M.QuantStub(), M.DequantStub()
            self.conv = M.ConvBnRelu2d(2, 4, 3, 1, 1)
            self.conv2, self.add = M.ConvRelu2d(4, 4, 3, 1, 1), M.Elemwise("ADD")
            self.fc = M.Linear(4, 3)

        def forward(self, x):
            x = self.quant(x)
            x = self.conv(x)
            x = self.add(x, self.conv2(x))
            x = F.flatten(F.avg_pool2d(x, 6, 6), 1)
            return self.fc(self.dequant(x))

    net = begin(Net())
    net.fc.disable_quantize()
    x, y, out = some(mge, 8, 2, 6, 6), classes(mge, 8, 3), []
    qat = Q.quantize_qat(net, qconfig=Q.ema_fakequant_qconfig)
    gm, opt = GradManager().attach(qat.parameters()), optim.SGD(qat.parameters(), lr=0.02, momentum=0.9)
    Q.disable_fake_quant(qat)
    for i in range(4):
        if i == 2:
            Q.enable_fake_quant(qat)
        if i == 3:
            Q.disable_observer(qat)
        with gm:
            loss = F.nn.cross_entropy(qat(x), y)
            gm.backward(loss)
        opt.step().clear_grad()
        out.append(loss.item())
    qat.eval()
    want = qat(x).numpy()
    quantised = Q.quantize(qat, inplace=False)
    quantised.eval()
    have = quantised(x).numpy()
    return [*out, *want[0].tolist(), float(np.abs(want - have).max() < 0.15)]


def sequence(mge, traced=False):
    """An LSTM and attention over words: Embedding with padding, masks, states kept, clipped values, LambdaLR-like schedules by hand."""
    F, M, optim, GradManager = mge.functional, mge.module, mge.optimizer, mge.autodiff.GradManager
    trace = mge.jit.trace

    class Tagger(M.Module):
        def __init__(self):
            super().__init__()
            self.embed = M.Embedding(12, 8)
            self.rnn, self.gru = M.Linear(14, 24), M.Linear(12, 6)
            self.q, self.k, self.out = M.Linear(6, 6), M.Linear(6, 6), M.Linear(12, 4)

        def forward(self, tokens):
            x, states = self.embed(tokens), []
            hn = cn = r = F.zeros((tokens.shape[0], 6))
            for i in range(x.shape[1]):
                i_, f_, g_, o_ = F.split(self.rnn(F.concat([x[:, i], hn], axis=1)), 4, axis=1)
                cn = F.sigmoid(f_) * cn + F.sigmoid(i_) * F.tanh(g_)
                hn = F.sigmoid(o_) * F.tanh(cn)
                r = F.tanh(self.gru(F.concat([hn, r], axis=1)))
                states.append(hn + r)
            h = F.stack(states, axis=1)
            scores = F.matmul(self.q(h), F.transpose(self.k(h), (0, 2, 1))) / math.sqrt(6)
            t = tokens.shape[1]
            causal = F.arange(t).reshape(1, t, 1) >= F.arange(t).reshape(1, 1, t)
            scores = F.where(F.broadcast_to(causal, scores.shape), scores, F.full_like(scores, -1e9))
            return self.out(F.concat([h, F.matmul(F.softmax(scores, axis=-1), h)], axis=-1)), hn, cn

    net = begin(Tagger())
    tokens, tags = classes(mge, 5 * 7, 11).reshape(5, 7) + 1, classes(mge, 35, 4, seed=4)
    gm, opt = GradManager().attach(net.parameters()), optim.Adagrad(net.parameters(), lr=0.05)
    mask = mge.tensor((np.arange(7)[None] < np.array([7, 5, 6, 3, 4])[:, None]).reshape(-1).astype("float32"))

    def step(tokens, tags, mask):
        with gm:
            logits, hn, cn = net(tokens)
            logp = F.logsoftmax(logits.reshape(-1, 4), axis=1)
            loss = -(F.nn.indexing_one_hot(logp, tags, axis=1) * mask).sum() / mask.sum()
            gm.backward(loss)
        optim.clip_grad_value(net.parameters(), lower=-0.05, upper=0.05)
        opt.step()
        opt.clear_grad()
        return loss, hn.sum(), (cn**2).mean()

    run, out = trace(step, symbolic=True) if traced else step, []
    for i in range(4):
        for group in opt.param_groups:
            group["lr"] = 0.05 * 0.9**i
        out += [t.item() for t in run(tokens, tags, mask)]
    logits, _, _ = net(tokens[:2, :3])
    return out + F.argmax(logits, axis=-1).numpy().reshape(-1).tolist() + F.sort(logits[0, 0])[0].numpy().tolist()


def hooked(mge, traced=False):
    """Hooks that collect and change, names of modules and parameters, state dicts by functions, saving, freezing, replaced modules."""
    F, M, optim, GradManager = mge.functional, mge.module, mge.optimizer, mge.autodiff.GradManager

    class Backbone(M.Module):
        def __init__(self):
            super().__init__()
            self.stem, self.blocks = M.Linear(5, 8), [M.Linear(8, 8) for _ in range(2)]
            self.heads = {"a": M.Linear(8, 2), "b": M.Linear(8, 3)}
            self.scale, self.offset = mge.Parameter(np.ones(8, "float32")), mge.Tensor(np.full(8, 0.1, "float32"))

        def forward(self, x):
            x = F.relu(self.stem(x)) * self.scale + self.offset
            for b in self.blocks:
                x = x + F.gelu(b(x))
            return {k: self.heads[k](x) for k in sorted(self.heads)}

    net, features = begin(Backbone()), {}
    handles = [
        m.register_forward_hook(lambda m, i, o, n=n: features.__setitem__(n, o.numpy().mean()))
        for n, m in net.named_modules()
        if isinstance(m, M.Linear)
    ]
    pre = net.stem.register_forward_pre_hook(lambda m, i: (i[0] * 2.0,))
    x = some(mge, 4, 5)
    first = net(x)
    names = [n for n, _ in net.named_parameters()]
    for h in handles:
        h.remove()
    pre.remove()
    second = net(x)
    file = io.BytesIO()
    mge.save({"net": net.state_dict(), "epoch": 3}, file)
    file.seek(0)
    loaded = mge.load(file)
    other = begin(Backbone(), 5)
    other.load_state_dict(loaded["net"])
    same = float(np.abs(other(x)["a"].numpy() - second["a"].numpy()).max())
    other.load_state_dict(
        lambda name, p: np.zeros(p.shape, "float32") if "heads" in name and "bias" in name else None, strict=False
    )
    trainable = [p for n, p in net.named_parameters() if n.startswith("heads")]
    gm, opt = (
        GradManager().attach(trainable),
        optim.SGD([{"params": trainable[:2], "lr": 0.5}, {"params": trainable[2:]}], lr=0.1),
    )
    out = []
    for _ in range(3):
        with gm:
            y = net(x)
            loss = (y["a"] ** 2).mean() + F.loss.l1_loss(y["b"], F.zeros_like(y["b"]))
            gm.backward(loss)
        opt.step().clear_grad()
        out.append(loss.item())
    net.blocks = net.blocks[:1]
    counts = [
        float(len(names)),
        float(sum(p.numpy().size for p in net.parameters())),
        float(len(list(net.modules()))),
        float(len(list(net.buffers()))),
        float(loaded["epoch"]),
    ]
    net.apply(lambda m: setattr(m, "training", False))
    return [
        *out,
        *counts,
        same,
        float(net.stem.training),
        first["a"].numpy().sum(),
        other(x)["b"].numpy().sum(),
        *(features[k] for k in sorted(features)),
        net(x)["b"].numpy().sum(),
    ]


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


def modules_traced(mge, traced=False):
    """traced_module: a module as expressions, edited, flattened, pickled away; dtr and logging switched on as scripts do."""
    F, M = mge.functional, mge.module
    TM = importlib.import_module(f"{mge.__name__}.traced_module")
    dtr = importlib.import_module(f"{mge.__name__}.dtr")
    logger = importlib.import_module(f"{mge.__name__}.logger")
    log = logger.get_logger(__name__)
    log.info("begins")
    dtr.eviction_threshold = "4GB"

    class Inner(M.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = M.Linear(4, 4), M.Linear(4, 4)

        def forward(self, x, y):
            return F.relu(self.a(x)) + self.b(y)

    class Net(M.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.out = Inner(), M.Linear(4, 2)

        def forward(self, x):
            z = self.inner(x, F.exp(x))
            return self.out(z), z.sum()

    net = begin(Net())
    net.eval()
    x = some(mge, 3, 4)
    traced_net = TM.trace_module(net, x)
    want, have = net(x), traced_net(x)
    graph = traced_net.inner.graph
    relu = next(e for e in graph.exprs() if "relu" in str(e))
    with graph.insert_exprs(relu):
        new = F.neg(relu.outputs[0])
    graph.replace_node({relu.outputs[0]: new})
    graph.compile()
    changed = traced_net(x)
    kinds = [type(e).__name__ for e in traced_net.graph.exprs(recursive=True)]
    flat = traced_net.flatten()
    y = flat(x)
    dtr.eviction_threshold = 0
    first, second = want[0].numpy(), changed[0].numpy()
    same = float(np.abs(first - have[0].numpy()).max()), float(np.abs(y[0].numpy() - second).max() < 1e-5)
    return [
        *first.reshape(-1).tolist(),
        *second.reshape(-1).tolist(),
        *same,
        want[1].item(),
        float("CallMethod" in kinds),
        float(len(flat.graph.inputs)),
    ]


PROGRAMS = [lenet, dumped, detector, callbacks, mixed, quantised, sequence, hooked, pictures, modules_traced]


def package(name):
    """MegEngine's package or Tengen, with the parts that programs name."""
    for part in "functional module optimizer autodiff jit data amp quantization".split():
        importlib.import_module(f"{name}.{part}")
    return sys.modules[name]


if __name__ == "__main__":
    megengine = package("megengine")
    found = {p.__name__: [float(v) for v in p(megengine)] for p in PROGRAMS}
    SAVED.write_text(json.dumps({"megengine": megengine.__version__, "programs": found}, indent=1) + "\n")
