"""PyTorch's tutorial "neural transfer using PyTorch", with names changed alone: a small network of random weights gives the features."""

import tengen.functional as F
import tengen.module as nn
import tengen.optimizer as optim
from tengen import Parameter, Tensor, random
from tengen.autodiff import GradManager, no_grad


def gram_matrix(x):
    a, b, c, d = x.shape
    features = x.view(a * b, c * d)
    return features.mm(features.t()).div(a * b * c * d)


class ContentLoss(nn.Module):
    def __init__(self, target):
        super().__init__()
        self.target = target.detach()

    def forward(self, x):
        self.loss = F.loss.mse_loss(x, self.target)
        return x


class StyleLoss(nn.Module):
    def __init__(self, target):
        super().__init__()
        self.target = gram_matrix(target).detach()

    def forward(self, x):
        self.loss = F.loss.mse_loss(gram_matrix(x), self.target)
        return x


class Normalization(nn.Module):
    def __init__(self, mean, std):
        super().__init__()
        self.mean, self.std = Tensor(mean).view(-1, 1, 1), Tensor(std).view(-1, 1, 1)

    def forward(self, x):
        return (x - self.mean) / self.std


random.seed(0)
cnn = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(True))
style, content = random.rand(1, 3, 16, 16), random.rand(1, 3, 16, 16)
model = nn.Sequential(Normalization([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
content_losses, style_losses = [], []
for i, layer in enumerate(cnn.children()):
    model.add_module(f"layer_{i}", layer)
    if isinstance(layer, nn.Conv2d):
        style_losses.append(StyleLoss(model(style)))
        model.add_module(f"style_loss_{i}", style_losses[-1])
content_losses.append(ContentLoss(model(content)))
model.add_module("content_loss", content_losses[-1])

image = Parameter(content.clone())
optimizer, gm = optim.LBFGS([image], max_iter=10), GradManager().attach([image])
losses = []


def closure():
    with no_grad():
        image[...] = image.clamp(0, 1)
    optimizer.clear_grad()
    with gm:
        model(image)
        loss = 1e4 * sum(layer.loss for layer in style_losses) + sum(layer.loss for layer in content_losses)
        gm.backward(loss)
    losses.append(loss.item())
    return loss


optimizer.step(closure)
print(f"{losses[0]:.3f} -> {losses[-1]:.3f}")
