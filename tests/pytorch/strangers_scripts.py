"""Further programs in the ways of public repositories, as those of `strangers_public.py`: whole training scripts."""

import argparse
import copy
import math
import os
import random as pyrandom
import tempfile
import time
from enum import Enum

import numpy as np
from strangers import begin, some


def imagenet(torch, compiled=False):
    """PyTorch's imagenet example: meters, accuracy of topk, worker seeds, a sampler's epochs, a checkpoint of all parts, a resumed run."""
    nn, optim = torch.nn, torch.optim
    from_numpy = torch.from_numpy
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", default=2, type=int)
    parser.add_argument("-b", "--batch-size", default=4, type=int)
    parser.add_argument("--lr", "--learning-rate", default=0.1, type=float, dest="lr")
    parser.add_argument("--seed", default=None, type=int)
    args = parser.parse_args(["-b", "4", "--seed", "3"])

    class Summary(Enum):
        NONE, AVERAGE = 0, 1

    class AverageMeter:
        def __init__(self, name, fmt=":f", summary_type=Summary.AVERAGE):
            self.name, self.fmt, self.summary_type = name, fmt, summary_type
            self.val = self.avg = self.sum = self.count = 0

        def update(self, val, n=1):
            self.val = val
            self.sum += val * n
            self.count += n
            self.avg = self.sum / self.count

        def all_reduce(self):
            total = torch.tensor([self.sum, self.count], dtype=torch.float32)
            self.sum, self.count = total.tolist()
            self.avg = self.sum / self.count

        def __str__(self):
            fmtstr = "{name} {val" + self.fmt + "} ({avg" + self.fmt + "})"
            return fmtstr.format(**self.__dict__)

    def accuracy(output, target, topk=(1,)):
        with torch.no_grad():
            maxk, batch_size = max(topk), target.size(0)
            _, pred = output.topk(maxk, 1, True, True)
            pred = pred.t()
            correct = pred.eq(target.view(1, -1).expand_as(pred))
            return [correct[:k].reshape(-1).float().sum(0, keepdim=True).mul_(100.0 / batch_size) for k in topk]

    class BasicBlock(nn.Module):
        expansion: int = 1

        def __init__(self, inplanes, planes, stride=1, downsample=None, norm_layer=None):
            super().__init__()
            norm_layer = nn.BatchNorm2d if norm_layer is None else norm_layer
            self.conv1, self.bn1 = nn.Conv2d(inplanes, planes, 3, stride, 1, bias=False), norm_layer(planes)
            self.relu = nn.ReLU(inplace=True)
            self.conv2, self.bn2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False), norm_layer(planes)
            self.downsample, self.stride = downsample, stride

        def forward(self, x):
            identity = x
            out = self.relu(self.bn1(self.conv1(x)))
            out = self.bn2(self.conv2(out))
            if self.downsample is not None:
                identity = self.downsample(x)
            out += identity
            return self.relu(out)

    class ResNet(nn.Module):
        def __init__(self, block, layers, num_classes=6, zero_init_residual=True):
            super().__init__()
            self.inplanes = 4
            self.conv1 = nn.Conv2d(3, self.inplanes, kernel_size=3, stride=1, padding=1, bias=False)
            self.bn1, self.relu = nn.BatchNorm2d(self.inplanes), nn.ReLU(inplace=True)
            self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
            self.layer1 = self._make_layer(block, 4, layers[0])
            self.layer2 = self._make_layer(block, 8, layers[1], stride=2)
            self.avgpool, self.fc = nn.AdaptiveAvgPool2d((1, 1)), nn.Linear(8 * block.expansion, num_classes)
            for m in self.modules():
                if isinstance(m, nn.Conv2d):
                    nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
                elif isinstance(m, (nn.BatchNorm2d, nn.GroupNorm)):
                    nn.init.constant_(m.weight, 1)
                    nn.init.constant_(m.bias, 0)
            if zero_init_residual:
                for m in self.modules():
                    if isinstance(m, BasicBlock) and m.bn2.weight is not None:
                        nn.init.constant_(m.bn2.weight, 0)

        def _make_layer(self, block, planes, blocks, stride=1):
            downsample = None
            if stride != 1 or self.inplanes != planes * block.expansion:
                downsample = nn.Sequential(nn.Conv2d(self.inplanes, planes, 1, stride, bias=False), nn.BatchNorm2d(planes))
            layers = [block(self.inplanes, planes, stride, downsample)]
            self.inplanes = planes
            for _ in range(1, blocks):
                layers.append(block(self.inplanes, planes))
            return nn.Sequential(*layers)

        def forward(self, x):
            x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
            x = self.avgpool(self.layer2(self.layer1(x)))
            return self.fc(torch.flatten(x, 1))

    class Images(torch.utils.data.Dataset):
        def __init__(self, n, seed, transform=None):
            self.images = np.random.RandomState(seed).randint(0, 256, (n, 3, 12, 12)).astype(np.uint8)
            self.targets, self.transform = np.random.RandomState(seed + 1).randint(0, 6, n).tolist(), transform

        def __getitem__(self, index):
            img = from_numpy(self.images[index]).float().div(255)
            return (img if self.transform is None else self.transform(img)), self.targets[index]

        def __len__(self):
            return len(self.targets)

    def seed_worker(worker_id):
        worker_seed = torch.initial_seed() % 2**32
        np.random.seed(worker_seed)
        pyrandom.seed(worker_seed)

    if args.seed is not None:
        pyrandom.seed(args.seed)
        torch.manual_seed(args.seed)
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = False
    mean, std = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1), torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
    normalize = lambda img: img.sub(mean).div(std)
    train_dataset, val_dataset = Images(12, 0, normalize), Images(7, 5, normalize)
    sampler = torch.utils.data.distributed.DistributedSampler(train_dataset, num_replicas=1, rank=0, shuffle=False)
    g = torch.Generator()
    g.manual_seed(0)
    train_loader = torch.utils.data.DataLoader(
        train_dataset,
        batch_size=args.batch_size,
        shuffle=(sampler is None),
        num_workers=0,
        pin_memory=True,
        sampler=sampler,
        worker_init_fn=seed_worker,
        generator=g,
    )
    val_loader = torch.utils.data.DataLoader(
        val_dataset, batch_size=args.batch_size, shuffle=False, num_workers=0, pin_memory=True
    )

    def build():
        model = begin(torch, ResNet(BasicBlock, [1, 1]))
        criterion = nn.CrossEntropyLoss().to("cpu")
        optimizer = optim.SGD(model.parameters(), args.lr, momentum=0.9, weight_decay=1e-4)
        return model, criterion, optimizer, optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.1)

    def train(train_loader, model, criterion, optimizer, epoch):
        batch_time, losses, top1 = AverageMeter("Time", ":6.3f"), AverageMeter("Loss", ":.4e"), AverageMeter("Acc@1", ":6.2f")
        run = torch.compile(model, backend="eager") if compiled else model
        model.train()
        end = time.time()
        for images, target in train_loader:
            images, target = images.to("cpu", non_blocking=True), target.to("cpu", non_blocking=True)
            output = run(images)
            loss = criterion(output, target)
            acc1, acc5 = accuracy(output, target, topk=(1, 5))
            losses.update(loss.item(), images.size(0))
            top1.update(acc1[0], images.size(0))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            batch_time.update(time.time() - end)
            end = time.time()
        assert str(losses).startswith("Loss ") and "(" in str(top1)
        return losses.avg, float(top1.avg)

    def validate(val_loader, model, criterion):
        losses, top5 = AverageMeter("Loss"), AverageMeter("Acc@5")
        model.eval()
        with torch.no_grad():
            for images, target in val_loader:
                output = model(images)
                losses.update(criterion(output, target).item(), images.size(0))
                top5.update(accuracy(output, target, topk=(1, 5))[1][0], images.size(0))
        top5.all_reduce()
        return losses.avg, top5.avg

    file = os.path.join(tempfile.mkdtemp(), "checkpoint.pth.tar")
    model, criterion, optimizer, scheduler = build()
    out, best_acc1 = [], 0
    for epoch in range(2):
        sampler.set_epoch(epoch)
        out += train(train_loader, model, criterion, optimizer, epoch)
        out += validate(val_loader, model, criterion)
        scheduler.step()
        torch.save(
            {
                "epoch": epoch + 1,
                "arch": "resnet",
                "state_dict": model.state_dict(),
                "best_acc1": best_acc1,
                "optimizer": optimizer.state_dict(),
                "scheduler": scheduler.state_dict(),
            },
            file,
        )
    again, criterion, optimizer2, scheduler2 = build()
    checkpoint = torch.load(file, map_location="cpu", weights_only=True)
    again.load_state_dict(checkpoint["state_dict"])
    optimizer2.load_state_dict(checkpoint["optimizer"])
    scheduler2.load_state_dict(checkpoint["scheduler"])
    for a, b, c in ((model, optimizer, scheduler), (again, optimizer2, scheduler2)):
        out += [
            *train(train_loader, a, criterion, b, checkpoint["epoch"]),
            *c.get_last_lr(),
            *validate(val_loader, a, criterion),
        ]
    return out + [float(checkpoint["epoch"]), a.bn1.running_var.sum().item(), float(sum(p.numel() for p in a.parameters()))]


def yolo(torch, compiled=False):
    """YOLOv5's training: anchors and offsets, targets built by ratios, CIoU, a model's EMA, groups by kind, fused layers, NMS by class."""
    nn = torch.nn

    def autopad(k, p=None):
        if p is None:
            p = k // 2 if isinstance(k, int) else [x // 2 for x in k]
        return p

    class Conv(nn.Module):
        default_act = nn.SiLU()

        def __init__(self, c1, c2, k=1, s=1, p=None, g=1, act=True):
            super().__init__()
            self.conv = nn.Conv2d(c1, c2, k, s, autopad(k, p), groups=g, bias=False)
            self.bn = nn.BatchNorm2d(c2, eps=1e-3, momentum=0.03)
            self.act = self.default_act if act is True else act if isinstance(act, nn.Module) else nn.Identity()

        def forward(self, x):
            return self.act(self.bn(self.conv(x)))

        def forward_fuse(self, x):
            return self.act(self.conv(x))

    class Bottleneck(nn.Module):
        def __init__(self, c1, c2, shortcut=True, e=0.5):
            super().__init__()
            c_ = int(c2 * e)
            self.cv1, self.cv2 = Conv(c1, c_, 1, 1), Conv(c_, c2, 3, 1)
            self.add = shortcut and c1 == c2

        def forward(self, x):
            return x + self.cv2(self.cv1(x)) if self.add else self.cv2(self.cv1(x))

    class SPPF(nn.Module):
        def __init__(self, c1, c2, k=5):
            super().__init__()
            self.cv1, self.cv2 = Conv(c1, c1 // 2, 1, 1), Conv(c1 // 2 * 4, c2, 1, 1)
            self.m = nn.MaxPool2d(kernel_size=k, stride=1, padding=k // 2)

        def forward(self, x):
            x = self.cv1(x)
            y1 = self.m(x)
            y2 = self.m(y1)
            return self.cv2(torch.cat((x, y1, y2, self.m(y2)), 1))

    class Detect(nn.Module):
        stride = None

        def __init__(self, nc=3, anchors=(), ch=()):
            super().__init__()
            self.nc, self.no, self.nl, self.na = nc, nc + 5, len(anchors), len(anchors[0]) // 2
            self.grid = [torch.empty(0) for _ in range(self.nl)]
            self.anchor_grid = [torch.empty(0) for _ in range(self.nl)]
            self.register_buffer("anchors", torch.tensor(anchors).float().view(self.nl, -1, 2))
            self.m = nn.ModuleList(nn.Conv2d(x, self.no * self.na, 1) for x in ch)

        def forward(self, x):
            z = []
            for i in range(self.nl):
                x[i] = self.m[i](x[i])
                bs, _, ny, nx = x[i].shape
                x[i] = x[i].view(bs, self.na, self.no, ny, nx).permute(0, 1, 3, 4, 2).contiguous()
                if not self.training:
                    if self.grid[i].shape[2:4] != x[i].shape[2:4]:
                        self.grid[i], self.anchor_grid[i] = self._make_grid(nx, ny, i)
                    xy, wh, conf = x[i].sigmoid().split((2, 2, self.nc + 1), 4)
                    xy = (xy * 2 + self.grid[i]) * self.stride[i]
                    wh = (wh * 2) ** 2 * self.anchor_grid[i]
                    z.append(torch.cat((xy, wh, conf), 4).view(bs, self.na * nx * ny, self.no))
            return x if self.training else (torch.cat(z, 1), x)

        def _make_grid(self, nx=20, ny=20, i=0):
            d, t = self.anchors[i].device, self.anchors[i].dtype
            shape = 1, self.na, ny, nx, 2
            yv, xv = torch.meshgrid(torch.arange(ny, device=d, dtype=t), torch.arange(nx, device=d, dtype=t), indexing="ij")
            grid = torch.stack((xv, yv), 2).expand(shape) - 0.5
            anchor_grid = (self.anchors[i] * self.stride[i]).view((1, self.na, 1, 1, 2)).expand(shape)
            return grid, anchor_grid

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem, self.c1 = Conv(3, 8, 3, 2), Bottleneck(8, 8)
            self.down, self.spp = Conv(8, 8, 3, 2), SPPF(8, 8)
            self.up = nn.Upsample(None, 2, "nearest")
            self.detect = Detect(3, [[6, 8, 10, 7], [12, 16, 20, 14]], [16, 8])
            m = self.detect
            m.stride = torch.tensor([24 / x.shape[-2] for x in self.forward(torch.zeros(1, 3, 24, 24))])
            m.anchors /= m.stride.view(-1, 1, 1)

        def forward(self, x):
            a = self.c1(self.stem(x))
            b = self.spp(self.down(a))
            return self.detect([torch.cat((self.up(b), a), 1), b])

        def fuse(self):
            for m in self.modules():
                if isinstance(m, Conv) and hasattr(m, "bn"):
                    m.conv = fuse_conv_and_bn(m.conv, m.bn)
                    delattr(m, "bn")
                    m.forward = m.forward_fuse
            return self

    def fuse_conv_and_bn(conv, bn):
        fusedconv = (
            nn.Conv2d(
                conv.in_channels,
                conv.out_channels,
                kernel_size=conv.kernel_size,
                stride=conv.stride,
                padding=conv.padding,
                dilation=conv.dilation,
                groups=conv.groups,
                bias=True,
            )
            .requires_grad_(False)
            .to(conv.weight.device)
        )
        w_conv = conv.weight.clone().view(conv.out_channels, -1)
        w_bn = torch.diag(bn.weight.div(torch.sqrt(bn.eps + bn.running_var)))
        fusedconv.weight.copy_(torch.mm(w_bn, w_conv).view(fusedconv.weight.shape))
        b_conv = torch.zeros(conv.weight.size(0), device=conv.weight.device) if conv.bias is None else conv.bias
        b_bn = bn.bias - bn.weight.mul(bn.running_mean).div(torch.sqrt(bn.running_var + bn.eps))
        fusedconv.bias.copy_(torch.mm(w_bn, b_conv.reshape(-1, 1)).reshape(-1) + b_bn)
        return fusedconv

    def bbox_iou(box1, box2, CIoU=True, eps=1e-7):
        (x1, y1, w1, h1), (x2, y2, w2, h2) = box1.chunk(4, -1), box2.chunk(4, -1)
        w1_, h1_, w2_, h2_ = w1 / 2, h1 / 2, w2 / 2, h2 / 2
        b1_x1, b1_x2, b1_y1, b1_y2 = x1 - w1_, x1 + w1_, y1 - h1_, y1 + h1_
        b2_x1, b2_x2, b2_y1, b2_y2 = x2 - w2_, x2 + w2_, y2 - h2_, y2 + h2_
        inter = (b1_x2.minimum(b2_x2) - b1_x1.maximum(b2_x1)).clamp(0) * (b1_y2.minimum(b2_y2) - b1_y1.maximum(b2_y1)).clamp(0)
        union = w1 * h1 + w2 * h2 - inter + eps
        iou = inter / union
        if CIoU:
            cw = b1_x2.maximum(b2_x2) - b1_x1.minimum(b2_x1)
            ch = b1_y2.maximum(b2_y2) - b1_y1.minimum(b2_y1)
            c2 = cw**2 + ch**2 + eps
            rho2 = ((b2_x1 + b2_x2 - b1_x1 - b1_x2) ** 2 + (b2_y1 + b2_y2 - b1_y1 - b1_y2) ** 2) / 4
            v = (4 / math.pi**2) * (torch.atan(w2 / h2) - torch.atan(w1 / h1)).pow(2)
            with torch.no_grad():
                alpha = v / (v - iou + (1 + eps))
            return iou - (rho2 / c2 + v * alpha)
        return iou

    class ComputeLoss:
        def __init__(self, model):
            self.BCEcls, self.BCEobj = (
                nn.BCEWithLogitsLoss(pos_weight=torch.tensor([1.2])),
                nn.BCEWithLogitsLoss(pos_weight=torch.tensor([1.0])),
            )
            m = model.detect
            self.balance = {3: [4.0, 1.0, 0.4]}.get(m.nl, [4.0, 1.0])
            self.na, self.nc, self.nl, self.anchors, self.device = m.na, m.nc, m.nl, m.anchors, "cpu"

        def __call__(self, p, targets):
            lcls, lbox, lobj = (torch.zeros(1, device=self.device) for _ in range(3))
            tcls, tbox, indices, anchors = self.build_targets(p, targets)
            for i, pi in enumerate(p):
                b, a, gj, gi = indices[i]
                tobj = torch.zeros(pi.shape[:4], dtype=pi.dtype, device=self.device)
                if n := b.shape[0]:
                    pxy, pwh, _, pcls = pi[b, a, gj, gi].split((2, 2, 1, self.nc), 1)
                    pxy = pxy.sigmoid() * 2 - 0.5
                    pwh = (pwh.sigmoid() * 2) ** 2 * anchors[i]
                    iou = bbox_iou(torch.cat((pxy, pwh), 1), tbox[i]).squeeze()
                    lbox += (1.0 - iou).mean()
                    iou = iou.detach().clamp(0).type(tobj.dtype)
                    j = iou.argsort()
                    b, a, gj, gi, iou = b[j], a[j], gj[j], gi[j], iou[j]
                    tobj[b, a, gj, gi] = iou
                    t = torch.full_like(pcls, 0.05, device=self.device)
                    t[range(n), tcls[i]] = 0.95
                    lcls += self.BCEcls(pcls, t)
                lobj += self.BCEobj(pi[..., 4], tobj) * self.balance[i]
            lbox *= 0.05
            lobj *= 1.0
            lcls *= 0.5
            bs = tobj.shape[0]
            return (lbox + lobj + lcls) * bs, torch.cat((lbox, lobj, lcls)).detach()

        def build_targets(self, p, targets):
            na, nt = self.na, targets.shape[0]
            tcls, tbox, indices, anch = [], [], [], []
            gain = torch.ones(7, device=self.device)
            ai = torch.arange(na, device=self.device).float().view(na, 1).repeat(1, nt)
            targets = torch.cat((targets.repeat(na, 1, 1), ai[..., None]), 2)
            g = 0.5
            off = torch.tensor([[0, 0], [1, 0], [0, 1], [-1, 0], [0, -1]], device=self.device).float() * g
            for i in range(self.nl):
                anchors, shape = self.anchors[i], p[i].shape
                gain[2:6] = torch.tensor(shape)[[3, 2, 3, 2]]
                t = targets * gain
                if nt:
                    r = t[..., 4:6] / anchors[:, None]
                    j = torch.max(r, 1 / r).max(2)[0] < 4.0
                    t = t[j]
                    gxy = t[:, 2:4]
                    gxi = gain[[2, 3]] - gxy
                    j, k = ((gxy % 1 < g) & (gxy > 1)).T
                    l, m = ((gxi % 1 < g) & (gxi > 1)).T
                    j = torch.stack((torch.ones_like(j), j, k, l, m))
                    t = t.repeat((5, 1, 1))[j]
                    offsets = (torch.zeros_like(gxy)[None] + off[:, None])[j]
                else:
                    t, offsets = targets[0], 0
                bc, gxy, gwh, a = t.chunk(4, 1)
                a, (b, c) = a.long().view(-1), bc.long().T
                gij = (gxy - offsets).long()
                gi, gj = gij.T
                indices.append((b, a, gj.clamp_(0, shape[2] - 1), gi.clamp_(0, shape[3] - 1)))
                tbox.append(torch.cat((gxy - gij, gwh), 1))
                anch.append(anchors[a])
                tcls.append(c)
            return tcls, tbox, indices, anch

    class ModelEMA:
        def __init__(self, model, decay=0.9, tau=3, updates=0):
            self.ema, self.updates = copy.deepcopy(model).eval(), updates
            self.decay = lambda x: decay * (1 - math.exp(-x / tau))
            for p in self.ema.parameters():
                p.requires_grad_(False)

        def update(self, model):
            self.updates += 1
            d = self.decay(self.updates)
            msd = model.state_dict()
            for k, v in self.ema.state_dict().items():
                if v.dtype.is_floating_point:
                    v *= d
                    v += (1 - d) * msd[k].detach()

    def non_max_suppression(prediction, conf_thres=0.1, iou_thres=0.45, max_det=5):
        xc, output = prediction[..., 4] > conf_thres, [torch.zeros((0, 6))] * prediction.shape[0]
        for xi, x in enumerate(prediction):
            x = x[xc[xi]]
            if not x.shape[0]:
                continue
            x[:, 5:] *= x[:, 4:5]
            box = torch.cat((x[:, :2] - x[:, 2:4] / 2, x[:, :2] + x[:, 2:4] / 2), 1)
            conf, j = x[:, 5:].max(1, keepdim=True)
            x = torch.cat((box, conf, j.float()), 1)[conf.view(-1) > conf_thres / 2]
            x = x[x[:, 4].argsort(descending=True)[:30]]
            boxes, keep = x[:, :4] + x[:, 5:6] * 100, []
            order = list(range(len(x)))
            while order:
                i = order.pop(0)
                keep.append(i)
                if order:
                    a, b = boxes[i], boxes[order]
                    wh = (torch.min(a[2:], b[:, 2:]) - torch.max(a[:2], b[:, :2])).clamp(min=0)
                    inter = wh.prod(1)
                    iou = inter / ((a[2:] - a[:2]).prod() + (b[:, 2:] - b[:, :2]).prod(1) - inter)
                    order = [o for o, keep_it in zip(order, (iou <= iou_thres).tolist()) if keep_it]
            output[xi] = x[keep[:max_det]]
        return output

    model = begin(torch, Model())
    with torch.no_grad():
        for m in model.modules():
            if type(m) is nn.BatchNorm2d:
                m.weight.fill_(1.0)
    g = [], [], []
    bn = tuple(v for k, v in nn.__dict__.items() if "Norm" in k and isinstance(v, type))
    for v in model.modules():
        for p_name, p in v.named_parameters(recurse=0):
            if p_name == "bias":
                g[2].append(p)
            elif p_name == "weight" and isinstance(v, bn):
                g[1].append(p)
            else:
                g[0].append(p)
    optimizer = torch.optim.SGD(g[2], lr=0.02, momentum=0.9, nesterov=True)
    optimizer.add_param_group({"params": g[0], "weight_decay": 5e-4})
    optimizer.add_param_group({"params": g[1], "weight_decay": 0.0})
    lf = lambda x: (1 - x / 5) * (1.0 - 0.1) + 0.1
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lr_lambda=lf)
    ema, compute_loss = ModelEMA(model), ComputeLoss(model)
    imgs = some(torch, 2, 3, 24, 24)
    targets = torch.tensor([[0, 1, 0.5, 0.4, 0.4, 0.3], [0, 2, 0.2, 0.7, 0.3, 0.5], [1, 0, 0.6, 0.6, 0.6, 0.7]])
    run = torch.compile(model, backend="eager") if compiled else model
    out = [float(len(x)) for x in g]
    for ni in range(4):
        model.train()
        if ni < 2:
            for j, x in enumerate(optimizer.param_groups):
                x["lr"] = np.interp(ni, [0, 2], [0.1 if j == 0 else 0.0, x["initial_lr"] * lf(0)])
                if "momentum" in x:
                    x["momentum"] = np.interp(ni, [0, 2], [0.8, 0.9])
        loss, items = compute_loss(run(imgs), targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=10.0)
        optimizer.step()
        optimizer.zero_grad()
        ema.update(model)
        if ni > 1:
            scheduler.step()
        out += [loss.item(), *items.tolist()]
    with torch.no_grad():
        pred = ema.ema(imgs)[0]
        fused = copy.deepcopy(ema.ema).fuse()(imgs)[0]
    found = non_max_suppression(pred.clone(), 0.3)
    return [
        *out,
        pred.mean().item(),
        fused.mean().item(),
        *(float(len(f)) for f in found),
        *(f[:, :4].sum().item() for f in found),
    ]


PROGRAMS = [imagenet, yolo]
