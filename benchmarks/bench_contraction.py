"""Matrix products, and ResNet-50's convolutions with both their gradients, eager, in float32.

PyTorch's convolutions run channels-last, its faster layout here; Tengen's get images as `layout` lays them out. Weights are as
users hold them: neither side may prepare them beforehand.
"""

from __future__ import annotations

from functools import partial

import compare
import numpy as np
from compare import Case, Goal

import tengen
import tengen.functional as F
from tengen.ops.conv import conv_transposed, conv_weight_grad

torch = compare.peer("torch")


def noise(seed: int, *shape: int) -> np.ndarray:
    """Normal numbers."""
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


# name -> shapes of a and b
PRODUCTS: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    **{f"{n} x {n} x {n}": ((n, n), (n, n)) for n in (64, 128, 256, 512, 1024, 2048)},
    "tall, 8192 x 256 x 256": ((8192, 256), (256, 256)),
    "wide, 256 x 256 x 8192": ((256, 256), (256, 8192)),
    "long sum, 256 x 8192 x 256": ((256, 8192), (8192, 256)),
    "matrix by vector, 4096 x 4096": ((4096, 4096), (4096,)),
    "vector by matrix, 4096 x 4096": ((4096,), (4096, 4096)),
    "batch of 96, 64 x 64 x 64": ((96, 64, 64), (96, 64, 64)),
    "batch of 48, 256 x 64 x 256": ((48, 256, 64), (48, 64, 256)),
}

# (channels in, channels out, window, stride, extent of the image): ResNet-50's distinct layers but its first
LAYERS = [
    (64, 64, 1, 1, 56), (64, 64, 3, 1, 56), (64, 256, 1, 1, 56), (256, 128, 1, 1, 56), (128, 128, 3, 2, 56),
    (128, 512, 1, 1, 28), (128, 128, 3, 1, 28), (512, 256, 1, 1, 28), (256, 256, 3, 2, 28), (256, 1024, 1, 1, 14),
    (256, 256, 3, 1, 14), (1024, 512, 1, 1, 14), (512, 512, 3, 2, 14), (512, 2048, 1, 1, 7), (512, 512, 3, 1, 7),
]  # fmt: skip
IMAGES = 8


def product(name: str) -> Case:
    """a @ b."""
    shapes = PRODUCTS[name]
    a, b = (noise(i, *s) for i, s in enumerate(shapes))
    x, y = tengen.Tensor(a), tengen.Tensor(b)
    contenders = {"tengen": lambda: F.matmul(x, y)}
    if torch:
        u, v = torch.from_numpy(a), torch.from_numpy(b)
        contenders["torch"] = lambda: torch.matmul(u, v)
    n = b.shape[-1] if b.ndim > 1 else 1
    goal = Goal(1.25) if name.startswith("1024") else None
    return Case(f"matmul {name}", contenders, goal, 2.0 * a.size * n, tolerance=(1e-5, 0.0))


def convolution(layer: tuple, kind: str) -> Case:
    """A layer's output, its gradient with respect to the image, or that with respect to the weights."""
    c, o, k, stride, size = layer
    pad = k // 2
    after = (size + 2 * pad - k) // stride + 1
    image, weight = noise(0, IMAGES, c, size, size), noise(1, o, c, k, k)
    last = np.ascontiguousarray(image.transpose(0, 2, 3, 1))
    x, w = tengen.Tensor(last).transpose(0, 3, 1, 2), tengen.Tensor(weight)
    g = tengen.Tensor(np.ascontiguousarray(noise(2, IMAGES, o, after, after).transpose(0, 2, 3, 1))).transpose(0, 3, 1, 2)
    contenders = {"tengen": _mine(kind, x, w, g, stride, pad)}
    if torch:
        contenders["torch"] = _theirs(kind, image, weight, noise(2, IMAGES, o, after, after), stride, pad)
    what = {"output": "", "image": ", gradient of the image", "weights": ", gradient of the weights"}[kind]
    goal = Goal(1.25) if kind == "output" and (k, stride) == (3, 1) else None
    name = f"conv {k}x{k}/{stride}, {c} to {o} at {size}x{size}{what}"
    return Case(name, contenders, goal, 2.0 * IMAGES * after * after * o * c * k * k, tolerance=(2e-5, 0.0))


def _mine(kind: str, x, w, g, stride: int, pad: int):
    """A call of Tengen's convolution, or of the gradient as its tape runs it (the forward pass is not in the time)."""
    if kind == "output":
        return lambda: F.conv2d(x, w, stride=stride, padding=pad)
    if kind == "image":
        return lambda: conv_transposed(g, w, x, stride=stride, padding=pad)
    return lambda: conv_weight_grad(x, g, w, stride=stride, padding=pad)


def _theirs(kind: str, image: np.ndarray, weight: np.ndarray, grad: np.ndarray, stride: int, pad: int):
    """The same of PyTorch, channels-last."""
    u, v, g = (torch.from_numpy(a).contiguous(memory_format=torch.channels_last) for a in (image, weight, grad))
    if kind == "output":
        return lambda: torch.nn.functional.conv2d(u, v, stride=stride, padding=pad)
    wanted = (kind == "image", kind == "weights", False)
    run = partial(torch.ops.aten.convolution_backward, g, u, v, None, [stride] * 2, [pad] * 2, [1, 1], False, [0, 0], 1, wanted)
    return lambda: run()[0 if kind == "image" else 1]


CASES = [partial(product, name) for name in PRODUCTS] + [
    partial(convolution, layer, kind) for kind in ("output", "image", "weights") for layer in LAYERS
]

if __name__ == "__main__":
    compare.main("contraction", f"Matrix products, and ResNet-50's convolutions at batch {IMAGES}", CASES)
