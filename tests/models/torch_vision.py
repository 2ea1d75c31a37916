"""PyTorch's side of the vision networks, written from the papers, with the parameter names of `tengen.models`."""

import torch
import torch.nn.functional as F
from torch import nn


class ConvNorm(nn.Module):
    def __init__(self, i, o, k=1, s=1, groups=1, act="relu", eps=1e-5, momentum=0.1):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(i, o, k, s, k // 2, groups=groups, bias=False), nn.BatchNorm2d(o, eps, momentum)
        self.act = {"relu": F.relu, "relu6": F.relu6, "hswish": F.hardswish, "silu": F.silu, "none": lambda x: x}[act]

    def forward(self, x):
        return self.act(self.bn(self.conv(x)))


class SqueezeExcite(nn.Module):
    def __init__(self, channels, squeezed, act=F.relu, gate=F.hardsigmoid):
        super().__init__()
        self.fc1, self.fc2, self.act, self.gate = nn.Conv2d(channels, squeezed, 1), nn.Conv2d(squeezed, channels, 1), act, gate

    def forward(self, x):
        return x * self.gate(self.fc2(self.act(self.fc1(F.adaptive_avg_pool2d(x, 1)))))


# ---- residual networks ---------------------------------------------------------------------------------------------------


class Residual(nn.Module):
    def __init__(self, i, w, stride, wide):
        super().__init__()
        self.wide = wide
        o = 4 * w if wide else w
        if wide:
            self.conv1, self.conv2, self.conv3 = (
                nn.Conv2d(i, w, 1, bias=False), nn.Conv2d(w, w, 3, stride, 1, bias=False), nn.Conv2d(w, o, 1, bias=False)
            )  # fmt: skip
            self.bn3 = nn.BatchNorm2d(o)
        else:
            self.conv1, self.conv2 = nn.Conv2d(i, w, 3, stride, 1, bias=False), nn.Conv2d(w, w, 3, 1, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(w), nn.BatchNorm2d(w)
        self.downsample = nn.Identity()
        if stride != 1 or i != o:
            self.downsample = nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        if self.wide:
            y = self.bn3(self.conv3(F.relu(y)))
        return F.relu(y + self.downsample(x))


class ResNet(nn.Module):
    def __init__(self, wide, depths, num_classes=1000, width=64, in_channels=3):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(in_channels, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width)
        i = width
        self.names = []
        for s, depth in enumerate(depths):
            w = width << s
            o = 4 * w if wide else w
            blocks = [Residual(i if j == 0 else o, w, 2 if s and j == 0 else 1, wide) for j in range(depth)]
            self.names.append(f"layer{s + 1}")
            setattr(self, self.names[-1], nn.Sequential(*blocks))
            i = o
        self.fc = nn.Linear(i, num_classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        for name in self.names:
            x = getattr(self, name)(x)
        return self.fc(x.mean((2, 3)))


def resnet(depths=(2, 2, 2, 2), width=64, num_classes=1000, bottleneck=False, in_channels=3):
    return ResNet(bottleneck, depths, num_classes, width, in_channels)


def resnet18(num_classes=1000, **o):
    return ResNet(False, (2, 2, 2, 2), num_classes, **o)


def resnet34(num_classes=1000, **o):
    return ResNet(False, (3, 4, 6, 3), num_classes, **o)


def resnet50(num_classes=1000, **o):
    return ResNet(True, (3, 4, 6, 3), num_classes, **o)


# ---- mobile networks -----------------------------------------------------------------------------------------------------


class InvertedResidual(nn.Module):
    def __init__(self, i, h, o, k, s, act="relu6", squeeze=0, eps=1e-5, momentum=0.1):
        super().__init__()
        layers = [] if h == i else [ConvNorm(i, h, act=act, eps=eps, momentum=momentum)]
        layers.append(ConvNorm(h, h, k, s, h, act, eps, momentum))
        if squeeze:
            layers.append(SqueezeExcite(h, squeeze))
        layers.append(ConvNorm(h, o, act="none", eps=eps, momentum=momentum))
        self.layers, self.same = nn.Sequential(*layers), s == 1 and i == o

    def forward(self, x):
        return x + self.layers(x) if self.same else self.layers(x)


def eighths(n):
    m = max(8, int(n + 4) // 8 * 8)
    return m + 8 if m < 0.9 * n else m


class MobileNetV2(nn.Module):
    rows = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))

    def __init__(self, num_classes=1000, width=1.0, stages=rows):
        super().__init__()
        c = eighths(32 * width)
        layers = [ConvNorm(3, c, 3, 2, act="relu6")]
        for t, o, n, s in stages:
            for j in range(n):
                layers.append(InvertedResidual(c, c * t, eighths(o * width), 3, s if j == 0 else 1))
                c = eighths(o * width)
        last = eighths(1280 * max(1.0, width))
        self.features = nn.Sequential(*layers, ConvNorm(c, last, act="relu6"))
        self.dropout, self.classifier = nn.Dropout(0.2), nn.Linear(last, num_classes)

    def forward(self, x):
        return self.classifier(self.dropout(self.features(x).mean((2, 3))))


class MobileNetV3(nn.Module):
    text = """3 16 16 0 relu 1, 3 64 24 0 relu 2, 3 72 24 0 relu 1, 5 72 40 1 relu 2, 5 120 40 1 relu 1, 5 120 40 1 relu 1,
    3 240 80 0 hswish 2, 3 200 80 0 hswish 1, 3 184 80 0 hswish 1, 3 184 80 0 hswish 1, 3 480 112 1 hswish 1, 3 672 112 1 hswish 1,
    5 672 160 1 hswish 2, 5 960 160 1 hswish 1, 5 960 160 1 hswish 1"""
    rows = [[v if v in ("relu", "hswish") else int(v) for v in row.split()] for row in text.split(",")]

    def __init__(self, num_classes=1000, blocks=rows, hidden=1280):
        super().__init__()
        norm = {"eps": 1e-3, "momentum": 0.01}
        layers, c = [ConvNorm(3, 16, 3, 2, act="hswish", **norm)], 16
        for k, h, o, se, act, s in blocks:
            layers.append(InvertedResidual(c, h, o, k, s, act, eighths(h // 4) if se else 0, **norm))
            c = o
        self.features = nn.Sequential(*layers, ConvNorm(c, 6 * c, act="hswish", **norm))
        self.fc1, self.dropout, self.fc2 = nn.Linear(6 * c, hidden), nn.Dropout(0.2), nn.Linear(hidden, num_classes)

    def forward(self, x):
        return self.fc2(self.dropout(F.hardswish(self.fc1(self.features(x).mean((2, 3))))))


class MBConv(nn.Module):
    def __init__(self, i, o, t, k, s):
        super().__init__()
        h = i * t
        layers = [] if t == 1 else [ConvNorm(i, h, act="silu")]
        layers += [ConvNorm(h, h, k, s, h, "silu"), SqueezeExcite(h, max(1, i // 4), F.silu, torch.sigmoid), ConvNorm(h, o, act="none")]
        self.layers, self.same = nn.Sequential(*layers), s == 1 and i == o

    def forward(self, x):
        return x + self.layers(x) if self.same else self.layers(x)


class EfficientNet(nn.Module):
    rows = ((1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3), (6, 5, 1, 112, 3), (6, 5, 2, 192, 4), (6, 3, 1, 320, 1))

    def __init__(self, num_classes=1000, stages=rows, hidden=1280):
        super().__init__()
        layers, c = [ConvNorm(3, 32, 3, 2, act="silu")], 32
        for t, k, s, o, n in stages:
            for j in range(n):
                layers.append(MBConv(c, o, t, k, s if j == 0 else 1))
                c = o
        self.features = nn.Sequential(*layers, ConvNorm(c, hidden, act="silu"))
        self.dropout, self.classifier = nn.Dropout(0.2), nn.Linear(hidden, num_classes)

    def forward(self, x):
        return self.classifier(self.dropout(self.features(x).mean((2, 3))))


class ShuffleUnit(nn.Module):
    def __init__(self, i, o, s):
        super().__init__()
        h = o // 2
        self.s = s
        if s > 1:
            self.branch1 = nn.Sequential(ConvNorm(i, i, 3, s, i, "none"), ConvNorm(i, h))
        self.branch2 = nn.Sequential(ConvNorm(i if s > 1 else h, h), ConvNorm(h, h, 3, s, h, "none"), ConvNorm(h, h))

    def forward(self, x):
        a, b = (self.branch1(x), x) if self.s > 1 else x.chunk(2, 1)
        return nn.functional.channel_shuffle(torch.cat([a, self.branch2(b)], 1), 2)


class ShuffleNetV2(nn.Module):
    def __init__(self, num_classes=1000, depths=(4, 8, 4), channels=(24, 116, 232, 464, 1024)):
        super().__init__()
        c, *stages, last = channels
        self.conv1 = ConvNorm(3, c, 3, 2)
        units = []
        for n, o in zip(depths, stages):
            for j in range(n):
                units.append(ShuffleUnit(c, o, 2 if j == 0 else 1))
                c = o
        self.stages, self.conv5, self.fc = nn.Sequential(*units), ConvNorm(c, last), nn.Linear(last, num_classes)

    def forward(self, x):
        return self.fc(self.conv5(self.stages(F.max_pool2d(self.conv1(x), 3, 2, 1))).mean((2, 3)))


def mobilenet_v2(num_classes=1000, **o):
    return MobileNetV2(num_classes, **o)


def mobilenet_v3_large(num_classes=1000, **o):
    return MobileNetV3(num_classes, **o)


def efficientnet_b0(num_classes=1000, **o):
    return EfficientNet(num_classes, **o)


def shufflenet_v2_x1_0(num_classes=1000, **o):
    return ShuffleNetV2(num_classes, **o)


# ---- the others ----------------------------------------------------------------------------------------------------------


class VGG(nn.Module):
    def __init__(self, num_classes, layers, hidden):
        super().__init__()
        features, c = [], 3
        for n in layers:
            features += [nn.MaxPool2d(2)] if n == 0 else [nn.Conv2d(c, n, 3, 1, 1), nn.ReLU()]
            c = n or c
        self.features = nn.Sequential(*features)
        self.classifier = nn.Sequential(nn.Linear(c * 49, hidden), nn.ReLU(), nn.Dropout(), nn.Linear(hidden, hidden), nn.ReLU(),
                                        nn.Dropout(), nn.Linear(hidden, num_classes))  # fmt: skip

    def forward(self, x):
        return self.classifier(F.adaptive_avg_pool2d(self.features(x), 7).flatten(1))


def vgg16(num_classes=1000, layers=(64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0), hidden=4096):
    return VGG(num_classes, layers, hidden)


class DenseLayer(nn.Module):
    def __init__(self, i, g):
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(i), nn.Conv2d(i, 4 * g, 1, bias=False)
        self.norm2, self.conv2 = nn.BatchNorm2d(4 * g), nn.Conv2d(4 * g, g, 3, 1, 1, bias=False)

    def forward(self, x):
        return torch.cat([x, self.conv2(F.relu(self.norm2(self.conv1(F.relu(self.norm1(x))))))], 1)


class Transition(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.norm, self.conv = nn.BatchNorm2d(i), nn.Conv2d(i, o, 1, bias=False)

    def forward(self, x):
        return F.avg_pool2d(self.conv(F.relu(self.norm(x))), 2)


class DenseNet(nn.Module):
    def __init__(self, num_classes, growth, depths, width):
        super().__init__()
        self.conv0, self.norm0 = nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width)
        layers, c = [], width
        for i, n in enumerate(depths):
            for _ in range(n):
                layers.append(DenseLayer(c, growth))
                c += growth
            if i + 1 < len(depths):
                layers.append(Transition(c, c // 2))
                c //= 2
        self.features, self.norm5, self.classifier = nn.Sequential(*layers), nn.BatchNorm2d(c), nn.Linear(c, num_classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm0(self.conv0(x))), 3, 2, 1)
        return self.classifier(F.relu(self.norm5(self.features(x))).mean((2, 3)))


def densenet121(num_classes=1000, growth=32, depths=(6, 12, 24, 16), width=64):
    return DenseNet(num_classes, growth, depths, width)


class ChannelNorm(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.norm = nn.LayerNorm(c, 1e-6)

    def forward(self, x):
        return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNeXtBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.depthwise, self.norm = nn.Conv2d(c, c, 7, 1, 3, groups=c), nn.LayerNorm(c, 1e-6)
        self.fc1, self.fc2, self.scale = nn.Linear(c, 4 * c), nn.Linear(4 * c, c), nn.Parameter(torch.full((c,), 1e-6))

    def forward(self, x):
        y = self.fc2(F.gelu(self.fc1(self.norm(self.depthwise(x).permute(0, 2, 3, 1)))))
        return x + (y * self.scale).permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    def __init__(self, num_classes, depths, channels):
        super().__init__()
        layers = [nn.Conv2d(3, channels[0], 4, 4), ChannelNorm(channels[0])]
        for i, (n, c) in enumerate(zip(depths, channels)):
            layers += [ChannelNorm(channels[i - 1]), nn.Conv2d(channels[i - 1], c, 2, 2)] if i else []
            layers += [ConvNeXtBlock(c) for _ in range(n)]
        self.features, self.norm, self.head = nn.Sequential(*layers), nn.LayerNorm(c, 1e-6), nn.Linear(c, num_classes)

    def forward(self, x):
        return self.head(self.norm(self.features(x).mean((2, 3))))


def convnext_tiny(num_classes=1000, depths=(3, 3, 9, 3), channels=(96, 192, 384, 768)):
    return ConvNeXt(num_classes, depths, channels)


class UNet(nn.Module):
    def __init__(self, num_classes, in_channels, width, depth):
        super().__init__()
        double = lambda i, o: nn.Sequential(ConvNorm(i, o, 3), ConvNorm(o, o, 3))
        n = [width << i for i in range(depth + 1)]
        self.first, self.down = double(in_channels, width), nn.Sequential(*(double(n[i], n[i + 1]) for i in range(depth)))
        self.up = nn.Sequential(*(nn.ConvTranspose2d(n[i + 1], n[i], 2, 2) for i in reversed(range(depth))))
        self.join = nn.Sequential(*(double(2 * n[i], n[i]) for i in reversed(range(depth))))
        self.head = nn.Conv2d(width, num_classes, 1)

    def forward(self, x):
        kept = [self.first(x)]
        for stage in self.down:
            kept.append(stage(F.max_pool2d(kept[-1], 2)))
        x = kept.pop()
        for up, join in zip(self.up, self.join):
            x = join(torch.cat([kept.pop(), up(x)], 1))
        return self.head(x)


def unet(num_classes=2, in_channels=3, width=64, depth=4):
    return UNet(num_classes, in_channels, width, depth)


class LeNet(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.conv0, self.conv1 = nn.Conv2d(1, 6, 5), nn.Conv2d(6, 16, 5)
        self.fc0, self.fc1, self.classifier = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, num_classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(F.max_pool2d(F.relu(self.conv0(x)), 2))), 2).flatten(1)
        return self.classifier(F.relu(self.fc1(F.relu(self.fc0(x)))))


def lenet(num_classes=10):
    return LeNet(num_classes)


class MLP(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        layers = [m for a, b in zip(sizes, sizes[1:]) for m in (nn.Linear(a, b), nn.ReLU())]
        self.layers = nn.Sequential(*layers[:-1])

    def forward(self, x):
        return self.layers(x.flatten(1))


def mlp(sizes=(784, 512, 512, 10)):
    return MLP(sizes)
