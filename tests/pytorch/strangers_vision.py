"""Programs about images as people write them for PyTorch, as those of `strangers.py`: each is given the module `torch` and
returns numbers."""

import math

import numpy as np
from strangers import begin, classes, some


def unet(torch):
    """Skips by cat, MaxPool2d, ConvTranspose2d, Upsample, a dice loss."""
    nn, F = torch.nn, torch.nn.functional

    def double(i, o):
        return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(inplace=True), nn.Conv2d(o, o, 3, padding=1), nn.ReLU())

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.down1, self.down2, self.pool = double(1, 4), double(4, 8), nn.MaxPool2d(2)
            self.middle, self.up2 = double(8, 8), nn.ConvTranspose2d(8, 8, 2, stride=2)
            self.up = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
            self.conv2, self.conv1, self.out = double(16, 4), double(8, 4), nn.Conv2d(4, 2, 1)

        def forward(self, x):
            a = self.down1(x)
            b = self.down2(self.pool(a))
            c = self.up2(self.middle(self.pool(b)))
            diff = b.size()[2] - c.size()[2]
            c = F.pad(c, [diff // 2, diff - diff // 2, diff // 2, diff - diff // 2])
            c = self.up(self.conv2(torch.cat([b, c], dim=1)))
            return self.out(self.conv1(torch.cat([a, c], dim=1)))

    net = begin(torch, UNet())
    opt = torch.optim.Adam(net.parameters(), lr=5e-3)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, "max", patience=0, factor=0.5)
    x, out = some(torch, 2, 1, 12, 12), []
    mask = (some(torch, 2, 12, 12, seed=8) > 0).long()
    for _ in range(3):
        logits = net(x)
        soft = F.softmax(logits, dim=1).float()
        hot = F.one_hot(mask, 2).permute(0, 3, 1, 2).float()
        dice = 1 - (2 * (soft * hot).sum(dim=(-1, -2)) + 1e-6) / ((soft + hot).sum(dim=(-1, -2)) + 1e-6)
        loss = F.cross_entropy(logits, mask) + dice.mean()
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        scheduler.step(-loss)
        out.append(loss.item())
    return [*out, opt.param_groups[0]["lr"], (logits.argmax(1) == mask).float().mean().item()]


def siamese(torch):
    """Triplets and a contrastive loss over one shared network, F.normalize, cdist."""
    nn, F = torch.nn, torch.nn.functional
    net = begin(torch, nn.Sequential(nn.Conv1d(2, 4, 3, padding="same"), nn.ReLU(), nn.AdaptiveAvgPool1d(2), nn.Flatten(), nn.Linear(8, 4)))
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    criterion, out = nn.TripletMarginLoss(margin=1.0, p=2), []
    for step in range(3):
        a, p, n = (F.normalize(net(some(torch, 5, 2, 9, seed=step * 3 + i)), dim=1) for i in range(3))
        distance = F.pairwise_distance(a, p)
        label = torch.tensor([1.0, 0, 1, 0, 1])
        contrastive = torch.mean(label * distance.pow(2) + (1 - label) * torch.clamp(1.0 - distance, min=0.0).pow(2))
        loss = criterion(a, p, n) + contrastive + F.cosine_embedding_loss(a, n, torch.tensor([1, -1, 1, -1, 1]))
        opt.zero_grad()
        loss.backward()
        opt.step()
        out.append(loss.item())
    return [*out, *torch.cdist(a, n).diagonal().tolist()]


def vision_transformer(torch):
    """Patches by Conv2d and unfold, a class token by expand, nn.TransformerEncoder, trunc_normal_ replaced."""
    nn = torch.nn

    class ViT(nn.Module):
        def __init__(self):
            super().__init__()
            self.patch = nn.Conv2d(1, 8, kernel_size=4, stride=4)
            self.cls, self.pos = nn.Parameter(torch.zeros(1, 1, 8)), nn.Parameter(torch.zeros(1, 5, 8))
            layer = nn.TransformerEncoderLayer(
                d_model=8, nhead=2, dim_feedforward=16, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
            )
            self.encoder, self.head = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False), nn.Linear(8, 3)

        def forward(self, x):
            x = self.patch(x).flatten(2).transpose(1, 2)
            x = torch.cat((self.cls.expand(x.shape[0], -1, -1), x), dim=1) + self.pos
            return self.head(self.encoder(x)[:, 0])

    net = begin(torch, ViT())
    x, y, out = some(torch, 4, 1, 8, 8), classes(torch, 4, 3), []
    patches = x.unfold(2, 4, 4).unfold(3, 4, 4).contiguous().view(4, 1, -1, 4, 4)
    columns = nn.functional.unfold(x, 4, stride=4)
    opt = torch.optim.AdamW(net.parameters(), lr=5e-3, weight_decay=0.05)
    for _ in range(3):
        loss = nn.CrossEntropyLoss(label_smoothing=0.1)(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        out.append(loss.item())
    return [*out, patches.sum().item(), (columns.transpose(1, 2).reshape(4, 4, 4, 4) - patches[:, 0]).abs().max().item()]


def contrastive(torch):
    """SimCLR's loss: similarities with a diagonal mask, a queue as a buffer, a momentum encoder (MoCo)."""
    nn, F = torch.nn, torch.nn.functional
    q, k = begin(torch, nn.Linear(6, 4)), begin(torch, nn.Linear(6, 4))
    queue, out = F.normalize(some(torch, 4, 10, seed=3), dim=0), []
    opt = torch.optim.SGD(q.parameters(), lr=0.1)
    for step in range(3):
        a, b = some(torch, 5, 6, seed=step), some(torch, 5, 6, seed=step + 30)
        za, zb = F.normalize(q(a), dim=1), F.normalize(q(b), dim=1)
        z = torch.cat([za, zb])
        sim = torch.matmul(z, z.T) / 0.5
        sim = sim.masked_fill(torch.eye(10, dtype=torch.bool), -9e15)
        nce = F.cross_entropy(sim, torch.cat([torch.arange(5, 10), torch.arange(0, 5)]))
        with torch.no_grad():
            for pq, pk in zip(q.parameters(), k.parameters()):
                pk.data = pk.data * 0.9 + pq.data * 0.1
            keys = F.normalize(k(b), dim=1)
        positive, negative = torch.einsum("nc,nc->n", za, keys).unsqueeze(-1), torch.einsum("nc,ck->nk", za, queue.clone().detach())
        logits = torch.cat([positive, negative], dim=1) / 0.07
        loss = nce + F.cross_entropy(logits, torch.zeros(5, dtype=torch.long))
        opt.zero_grad()
        loss.backward()
        opt.step()
        queue[:, step * 3 : step * 3 + 3] = keys.T[:, :3]
        out.append(loss.item())
    return [*out, queue.sum().item()]


def style_transfer(torch):
    """The image is the parameter: Gram matrices, total variation, clamp_ under no_grad."""
    nn = torch.nn
    net = begin(torch, nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(6, 6, 3, padding=1))).eval()

    def gram(f):
        b, c, h, w = f.size()
        f = f.view(b * c, h * w)
        return torch.mm(f, f.t()).div(b * c * h * w)

    target = gram(net(some(torch, 1, 3, 8, 8))).detach()
    image = some(torch, 1, 3, 8, 8, seed=9).sigmoid().clone().requires_grad_(True)
    opt, out = torch.optim.Adam([image], lr=0.05), []
    for _ in range(3):
        tv = (image[:, :, 1:] - image[:, :, :-1]).abs().mean() + (image[..., 1:] - image[..., :-1]).abs().mean()
        loss = 100 * nn.functional.mse_loss(gram(net(image)), target) + 0.1 * tv
        opt.zero_grad()
        loss.backward()
        opt.step()
        with torch.no_grad():
            image.clamp_(0, 1)
        out.append(loss.item())
    return [*out, image.sum().item()]


def super_resolution(torch):
    """Sub-pixel convolutions with residual scaling, a Charbonnier loss, PSNR and SSIM, self-ensembling by flips, patches that overlap."""
    nn, F = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self, n):
            super().__init__()
            self.body = nn.Sequential(nn.Conv2d(n, n, 3, padding=1), nn.PReLU(n), nn.Conv2d(n, n, 3, padding=1, padding_mode="reflect"))
            self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(n, 2, 1), nn.ReLU(), nn.Conv2d(2, n, 1), nn.Sigmoid())

        def forward(self, x):
            y = self.body(x)
            return x + 0.1 * y * self.gate(y)

    class Net(nn.Module):
        def __init__(self, n=8, scale=2):
            super().__init__()
            self.register_buffer("mean", torch.tensor([0.45, 0.44, 0.4]).view(1, 3, 1, 1))
            self.head, self.body = nn.Conv2d(3, n, 3, 1, 1), nn.Sequential(*[Block(n) for _ in range(2)])
            self.tail = nn.Sequential(nn.Conv2d(n, 3 * scale**2, 3, padding="same"), nn.PixelShuffle(scale))
            self.scale = scale

        def forward(self, x):
            base = F.interpolate(x, scale_factor=self.scale, mode="bicubic", align_corners=False)
            h = self.head(x - self.mean)
            return base + self.tail(h + self.body(h))

    def ssim(a, b):
        g = torch.exp(-((torch.arange(5.0) - 2) ** 2) / (2 * 1.5**2))
        window = torch.outer(g / g.sum(), g / g.sum())[None, None].repeat(3, 1, 1, 1)
        mean = lambda v: F.conv2d(v, window, groups=3)
        ma, mb = mean(a), mean(b)
        va, vb, ab = mean(a * a) - ma**2, mean(b * b) - mb**2, mean(a * b) - ma * mb
        return (((2 * ma * mb + 1e-4) * (2 * ab + 9e-4)) / ((ma**2 + mb**2 + 1e-4) * (va + vb + 9e-4))).mean()

    net, out = begin(torch, Net()), []
    high = torch.sigmoid(F.avg_pool2d(some(torch, 2, 3, 20, 20), 3, 1, 1) * 2)
    low = F.interpolate(high, scale_factor=0.5, mode="bicubic", antialias=True)
    optimizer = torch.optim.NAdam(net.parameters(), lr=4e-3)
    rates = torch.optim.lr_scheduler
    parts = [rates.LinearLR(optimizer, 0.1, total_iters=2), rates.ExponentialLR(optimizer, 0.8)]
    scheduler = rates.SequentialLR(optimizer, parts, [2])
    for _ in range(4):
        made = net(low)
        loss = torch.sqrt((made - high) ** 2 + 1e-6).mean() + 0.1 * (1 - ssim(made, high))
        loss = loss + 1e-3 * (made[..., 1:] - made[..., :-1]).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        out += [loss.item(), scheduler.get_last_lr()[0]]
    net.eval()
    with torch.no_grad():
        turned = [net(torch.rot90(low, k, (2, 3))) for k in range(4)]
        made = torch.stack([torch.rot90(v, -k, (2, 3)) for k, v in enumerate(turned)]).mean(0).clamp_(0, 1)
        patches = F.unfold(made, 8, stride=4)
        count = F.fold(F.unfold(torch.ones_like(made), 8, stride=4), (20, 20), 8, stride=4)
        whole = F.fold(patches, (20, 20), 8, stride=4) / count
        psnr = 10 * torch.log10(1 / F.mse_loss(made, high))
        picture = (made * 255).round().to(torch.uint8).permute(0, 2, 3, 1).contiguous().numpy()
    return [*out, psnr.item(), ssim(made, high).item(), (whole - made).abs().max().item(), float(picture.mean()), *picture.shape]


def detector(torch):
    """A detector of one stage by hand: anchors by meshgrid, matching by IoU, hard negatives, boxes coded and decoded, NMS per class."""
    nn, F = torch.nn, torch.nn.functional

    def anchors(size, stride, sizes):
        ys, xs = torch.meshgrid(*[(torch.arange(size) + 0.5) * stride] * 2, indexing="ij")
        centres = torch.stack((xs, ys), -1).reshape(-1, 1, 2).repeat(1, len(sizes), 1)
        extents = torch.tensor(sizes, dtype=torch.float32).expand(size * size, -1, -1)
        return torch.cat((centres, extents), -1).view(-1, 4)

    def corners(b):
        return torch.cat([b[..., :2] - b[..., 2:] / 2, b[..., :2] + b[..., 2:] / 2], dim=-1)

    def iou(a, b):
        low, high = torch.max(a[:, None, :2], b[None, :, :2]), torch.min(a[:, None, 2:], b[None, :, 2:])
        inter = (high - low).clamp(min=0).prod(2)
        area = lambda x: (x[:, 2] - x[:, 0]) * (x[:, 3] - x[:, 1])
        return inter / (area(a)[:, None] + area(b) - inter)

    def nms(boxes, scores, threshold):
        order, keep = scores.sort(descending=True)[1], []
        while order.numel() > 0:
            i = order[0]
            keep.append(i)
            if order.numel() == 1:
                break
            order = order[1:][iou(boxes[i].unsqueeze(0), boxes[order[1:]]).squeeze(0) <= threshold]
        return torch.stack(keep) if keep else torch.empty(0, dtype=torch.long)

    class Net(nn.Module):
        def __init__(self, kinds=3, per=2):
            super().__init__()
            self.body = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.GroupNorm(2, 8), nn.SiLU(), nn.Conv2d(8, 8, 3, 2, 1), nn.Hardswish())
            self.kind, self.box, self.kinds = nn.Conv2d(8, per * kinds, 3, padding=1), nn.Conv2d(8, per * 4, 3, padding=1), kinds

        def forward(self, x):
            h = self.body(x)
            shape = lambda y, n: y.permute(0, 2, 3, 1).contiguous().view(y.size(0), -1, n)
            return shape(self.kind(h), self.kinds), shape(self.box(h), 4)

    net, prior = begin(torch, Net()), anchors(6, 4, [(6.0, 6.0), (10.0, 5.0)])
    targets = [
        (torch.tensor([[2.0, 3.0, 9.0, 9.0], [12.0, 10.0, 22.0, 15.0]]), torch.tensor([1, 2])),
        (torch.tensor([[5.0, 5.0, 12.0, 11.0]]), torch.tensor([1])),
    ]
    optimizer, images, out = torch.optim.Adagrad(net.parameters(), lr=5e-2), some(torch, 2, 3, 24, 24), []
    for _ in range(4):
        kinds, boxes = net(images)
        wanted, labels = torch.zeros_like(boxes), torch.zeros(kinds.shape[:2], dtype=torch.int64)
        for b, (found, of) in enumerate(targets):
            overlap = iou(corners(prior), found)
            best, which = overlap.max(1)
            first = overlap.argmax(0)
            best.index_fill_(0, first, 2.0)
            which[first] = torch.arange(len(found))
            c = found[which]
            size, centre = c[:, 2:] - c[:, :2], (c[:, 2:] + c[:, :2]) / 2
            wanted[b] = torch.cat([(centre - prior[:, :2]) / prior[:, 2:] / 0.1, torch.log(size / prior[:, 2:]) / 0.2], 1)
            labels[b] = torch.where(best < 0.4, torch.zeros_like(which), of[which])
        positive = labels > 0
        loss_box = F.smooth_l1_loss(boxes[positive], wanted[positive], reduction="sum")
        every = F.cross_entropy(kinds.transpose(1, 2), labels, reduction="none")
        hard = every.detach().masked_fill(positive, 0).sort(1, descending=True)[1].argsort(1)
        negative = hard < (3 * positive.sum(1, keepdim=True)).clamp(max=hard.size(1) - 1)
        loss = (loss_box + every[positive | negative].sum()) / positive.sum().clamp(min=1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        out += [loss.item(), positive.sum().item(), negative.sum().item()]
    with torch.no_grad():
        kinds, boxes = net(images)
        scores, found = F.softmax(kinds, -1)[0], boxes[0]
        decoded = torch.cat((prior[:, :2] + found[:, :2] * 0.1 * prior[:, 2:], prior[:, 2:] * torch.exp(found[:, 2:] * 0.2)), 1)
        decoded = corners(decoded).clamp_(0, 24)
        for k in range(1, 3):
            mask = scores[:, k] > 0.1
            kept = nms(decoded[mask], scores[mask, k], 0.45)
            out += [len(kept), scores[mask][kept, k].sum().item(), decoded[mask][kept].sum().item() if len(kept) else 0.0]
    return out


def momentum_contrast(torch):
    """MoCo: a queue of keys, a key encoder that follows, batches that are shuffled for its norms."""
    nn, F = torch.nn, torch.nn.functional

    class MoCo(nn.Module):
        def __init__(self, dim=8, size=24, m=0.9, t=0.2):
            super().__init__()
            body = lambda: [nn.Conv2d(3, 6, 3, 2, 1, bias=False), nn.BatchNorm2d(6), nn.ReLU(True), nn.Flatten()]
            make = lambda: nn.Sequential(*body(), nn.Linear(96, dim))
            self.q, self.k, self.m, self.t, self.size = make(), make(), m, t, size
            self.register_buffer("queue", F.normalize(torch.from_numpy(np.random.RandomState(5).randn(dim, size).astype(np.float32)), dim=0))
            self.register_buffer("pointer", torch.zeros(1, dtype=torch.long))

        def start(self):
            for a, b in zip(self.q.parameters(), self.k.parameters()):
                b.data.copy_(a.data)
                b.requires_grad = False

        @torch.no_grad()
        def follow(self):
            for a, b in zip(self.q.parameters(), self.k.parameters()):
                b.data = b.data * self.m + a.data * (1.0 - self.m)

        @torch.no_grad()
        def push(self, keys):
            at = int(self.pointer)
            self.queue[:, at : at + keys.shape[0]] = keys.T
            self.pointer[0] = (at + keys.shape[0]) % self.size

        def forward(self, a, b, order):
            q = F.normalize(self.q(a), dim=1)
            with torch.no_grad():
                self.follow()
                back = torch.argsort(order)
                k = F.normalize(self.k(b[order]), dim=1)[back]
            positive = torch.einsum("nc,nc->n", [q, k]).unsqueeze(-1)
            negative = torch.einsum("nc,ck->nk", [q, self.queue.clone().detach()])
            logits = torch.cat([positive, negative], dim=1) / self.t
            labels = torch.zeros(logits.shape[0], dtype=torch.long)
            self.push(k)
            return logits, labels

    net, out = begin(torch, MoCo()), []
    net.start()
    optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], 0.05, momentum=0.9, weight_decay=1e-4)
    for step in range(5):
        a, b = some(torch, 8, 3, 8, 8, seed=step), some(torch, 8, 3, 8, 8, seed=step) + 0.1 * some(torch, 8, 3, 8, 8, seed=90 + step)
        logits, labels = net(a, b, torch.from_numpy(np.random.RandomState(step).permutation(8)))
        loss = F.cross_entropy(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        top = logits.topk(5, 1, True, True)[1].t().eq(labels.view(1, -1).expand(5, -1))
        out += [loss.item(), top[:1].reshape(-1).float().sum(0).item(), top.any(0).sum().item()]
    state = [v for k, v in net.state_dict().items() if not k.endswith("num_batches_tracked")]
    return [*out, int(net.pointer), net.queue.norm(dim=0).sum().item(), sum(v.float().abs().sum().item() for v in state), len(state)]


def masked_autoencoder(torch):
    """Patches of which most are hidden by sorted noise, put back by gather, with a normalised loss on the hidden ones alone."""
    nn, F = torch.nn, torch.nn.functional
    x = some(torch, 2, 1, 8, 8)
    patches = F.unfold(x, 2, stride=2).transpose(1, 2)
    n, length, dim = patches.shape
    noise = some(torch, n, length, seed=7)
    order = torch.argsort(noise, dim=1)
    back = torch.argsort(order, dim=1)
    kept = order[:, : length // 4]
    mask = torch.ones(n, length)
    mask[:, : length // 4] = 0
    mask = torch.gather(mask, dim=1, index=back)

    class Auto(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.token = nn.Linear(dim, 8), nn.Parameter(torch.zeros(1, 1, 8))
            self.pos = nn.Parameter(torch.zeros(1, length, 8))
            layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
            self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
            self.head = nn.Linear(8, dim)

        def forward(self, p):
            h = self.embed(p) + self.pos
            h = torch.gather(h, 1, kept.unsqueeze(-1).expand(-1, -1, 8))
            h = self.encoder(h)
            hidden = self.token.expand(n, length - h.shape[1], -1)
            h = torch.gather(torch.cat([h, hidden], 1), 1, back.unsqueeze(-1).repeat(1, 1, 8))
            return self.head(h + self.pos)

    net = begin(torch, Auto())
    target = (patches - patches.mean(-1, keepdim=True)) / (patches.var(-1, keepdim=True) + 1e-6) ** 0.5
    loss = (((net(patches) - target) ** 2).mean(-1) * mask).sum() / mask.sum()
    loss.backward()
    folded = F.fold(patches.transpose(1, 2), (8, 8), 2, stride=2)
    return [loss.item(), mask.sum().item(), net.token.grad.norm().item(), net.pos.grad.norm().item(), (folded - x).abs().max().item()]


def image_and_text(torch):
    """CLIP's symmetric loss with a learned temperature, its accuracy, and a memory of both towers' gradients."""
    nn, F = torch.nn, torch.nn.functional

    class Clip(nn.Module):
        def __init__(self):
            super().__init__()
            self.image = nn.Sequential(nn.Conv2d(1, 4, 3, stride=2), nn.GELU(), nn.Flatten(1), nn.LazyLinear(6))
            self.words, self.text = nn.Embedding(11, 6, padding_idx=0), nn.GRU(6, 6, batch_first=True)
            self.logit_scale = nn.Parameter(torch.ones([]) * np.log(1 / 0.07))

        def forward(self, images, ids):
            a = F.normalize(self.image(images), dim=-1)
            h, _ = self.text(self.words(ids))
            b = F.normalize(h[torch.arange(len(ids)), ids.ne(0).sum(1) - 1], dim=-1)
            scale = self.logit_scale.exp().clamp(max=100)
            return scale * a @ b.t()

    images, ids = some(torch, 4, 1, 7, 7), torch.tensor([[1, 2, 3, 0], [4, 5, 0, 0], [6, 7, 8, 9], [10, 1, 0, 0]])
    net = Clip()
    net(images, ids)
    for tower in (net.image, net.words, net.text):
        begin(torch, tower)
    with torch.no_grad():
        net.words.weight[0].zero_()
    vectors, matrices = [p for p in net.parameters() if p.ndim < 2], [p for p in net.parameters() if p.ndim >= 2]
    groups = [{"params": vectors, "weight_decay": 0.0}, {"params": matrices, "weight_decay": 0.2}]
    opt = torch.optim.AdamW(groups, lr=5e-3, betas=(0.9, 0.98), eps=1e-6)
    out, target = [], torch.arange(4)
    for _ in range(4):
        logits = net(images, ids)
        loss = (F.cross_entropy(logits, target) + F.cross_entropy(logits.t(), target)) / 2
        opt.zero_grad()
        loss.backward()
        opt.step()
        with torch.no_grad():
            net.logit_scale.clamp_(0, math.log(100))
        out.append(loss.item())
    return [*out, (logits.argmax(-1) == target).float().mean().item(), net.logit_scale.item(), net.words.weight.grad[0].abs().sum().item()]


def radiance(torch):
    """A NeRF's rendering along rays: positional encodings, exclusive products of transmittance, and importance samples by searchsorted."""
    nn, F = torch.nn, torch.nn.functional
    encode = lambda x: torch.cat([x, *(f(x * 2.0**k) for k in range(3) for f in (torch.sin, torch.cos))], -1)
    net = begin(torch, nn.Sequential(nn.Linear(21, 16), nn.ReLU(), nn.Linear(16, 4)))
    origin, direction = some(torch, 5, 3), F.normalize(some(torch, 5, 3, seed=3), dim=-1)
    z = torch.linspace(0.5, 2.5, 8).expand(5, 8)

    def render(z):
        points = origin[:, None] + direction[:, None] * z[..., None]
        raw = net(encode(points))
        colour, density = torch.sigmoid(raw[..., :3]), F.softplus(raw[..., 3] - 1)
        steps = torch.cat([z[:, 1:] - z[:, :-1], torch.full_like(z[:, :1], 1e10)], -1)
        alpha = 1 - torch.exp(-density * steps)
        passed = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], -1), -1)[:, :-1]
        weights = alpha * passed
        return (weights[..., None] * colour).sum(-2), weights

    coarse, weights = render(z)
    bins, pdf = 0.5 * (z[:, 1:] + z[:, :-1]), weights[:, 1:-1].detach() + 1e-5
    cdf = torch.cumsum(pdf / pdf.sum(-1, keepdim=True), -1)
    cdf = torch.cat([torch.zeros_like(cdf[:, :1]), cdf], -1)
    u = torch.linspace(0.05, 0.95, 4).expand(5, 4).contiguous()
    at = torch.searchsorted(cdf, u, right=True)
    below, above = (at - 1).clamp(min=0), at.clamp(max=cdf.shape[-1] - 1)
    c0, c1 = (torch.gather(cdf, 1, i) for i in (below, above))
    b0, b1 = (torch.gather(bins, 1, i) for i in (below, above))
    width = torch.where(c1 - c0 < 1e-5, torch.ones_like(c0), c1 - c0)
    fine, _ = render(torch.sort(torch.cat([z, b0 + (u - c0) / width * (b1 - b0)], -1), -1)[0])
    loss = F.mse_loss(coarse, torch.full_like(coarse, 0.3)) + F.mse_loss(fine, torch.full_like(fine, 0.3))
    loss.backward()
    return [loss.item(), coarse.sum().item(), fine.sum().item(), net[0].weight.grad.norm().item()]


def few_shots(torch):
    """MAML with functional_call and gradients through the inner steps; prototypes by index means; a Hessian-vector product."""
    nn, F = torch.nn, torch.nn.functional
    from_names = torch.func.functional_call
    net = begin(torch, nn.Sequential(nn.Linear(2, 12), nn.Tanh(), nn.Linear(12, 3)))
    optimizer, out = torch.optim.Adam(net.parameters(), 1e-2), []
    for step in range(3):
        optimizer.zero_grad()
        total = 0.0
        for task in range(2):
            x, y = some(torch, 18, 2, seed=10 * step + task), classes(torch, 18, 3, seed=step + task)
            fast = {k: v.clone() for k, v in net.named_parameters()}
            for _ in range(2):
                loss = F.cross_entropy(from_names(net, fast, (x[:9],)), y[:9])
                grads = torch.autograd.grad(loss, list(fast.values()), create_graph=True)
                fast = {k: v - 0.3 * g for (k, v), g in zip(fast.items(), grads)}
            outer = F.cross_entropy(from_names(net, fast, (x[9:],)), y[9:])
            outer.backward()
            total += outer.item()
        optimizer.step()
        out += [total, net[0].weight.grad.norm().item()]
    x, y = some(torch, 18, 2, seed=77), classes(torch, 18, 3, seed=78)
    h = net[:2](x)
    count = torch.zeros(3).index_add_(0, y, torch.ones(18))
    prototypes = torch.zeros(3, 12).index_add(0, y, h) / count.clamp(min=1).unsqueeze(1)
    logits = -torch.cdist(h, prototypes) ** 2
    out += [F.cross_entropy(logits, y).item(), (logits.argmax(1) == y).float().mean().item()]
    params = [p.detach().requires_grad_() for p in net.parameters()]
    value = lambda *p: F.cross_entropy(F.linear(torch.tanh(F.linear(x, p[0], p[1])), p[2], p[3]), y)
    _, product = torch.autograd.functional.hvp(value, tuple(params), tuple(torch.ones_like(p) for p in params))
    return [*out, *(v.sum().item() for v in product)]


def mixed_labels(torch):
    """Mixup and CutMix with soft targets, label smoothing, a focal loss, and accumulated gradients under a scaler, with clipping."""
    nn, F = torch.nn, torch.nn.functional
    net = begin(torch, nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)))
    opt = torch.optim.AdamW(net.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    rng, out = np.random.default_rng(0), []

    def focal(logits, target, gamma=2.0):
        logp = F.log_softmax(logits, -1)
        pt = logp.gather(1, target.unsqueeze(1)).squeeze(1).exp()
        return (-((1 - pt) ** gamma) * pt.log()).mean()

    for step in range(4):
        x, y = some(torch, 6, 1, 6, 6, seed=step), classes(torch, 6, 3, seed=step)
        lam, order = float(rng.beta(0.4, 0.4)), torch.from_numpy(rng.permutation(6))
        soft = F.one_hot(y, 3).float()
        if step % 2:
            x = x.clone()
            x[:, :, 1:4, 2:5] = x[order][:, :, 1:4, 2:5]
            lam = 1 - 9 / 36
        else:
            x = lam * x + (1 - lam) * x[order]
        soft = soft.lerp(soft[order], 1 - lam)
        with torch.autocast("cpu", enabled=False):
            logits = net(x)
            loss = nn.CrossEntropyLoss(label_smoothing=0.1)(logits, soft) + 0.5 * focal(logits, y)
        scaler.scale(loss / 2).backward()
        if step % 2:
            scaler.unscale_(opt)
            norm = nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            scaler.step(opt)
            scaler.update()
            opt.zero_grad()
            out.append(float(norm))
        out.append(loss.item())
    return out


PROGRAMS = [
    unet, siamese, vision_transformer, contrastive, style_transfer, super_resolution, detector, momentum_contrast,
    masked_autoencoder, image_and_text, radiance, few_shots, mixed_labels,
]  # fmt: skip
