"""Kernels one by one: products, the convolutions of two networks with their gradients, and what memory limits.

Each is a traced function of one operation (one program, one call), so that its kernels are those that traced networks run; the
case's row "eager" is the plain call. Peers: PyTorch eager, its images and filters channels-last; JAX, compiled, except for
convolutions, where it takes several times PyTorch's time here. Weights are as users hold them: nobody may prepare them
beforehand. A rate is beside the roof of `roof.py`, measured in the same rounds: operations of the formula (also where fewer are
done, as by Winograd: such a row may pass its roof), or bytes that must move, every input read and every result written once.
A convolution has the roof that takes it longer (`roof.limit`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import compare
import numpy as np
from compare import Case, Cell, Goal
from roof import limit, roof

import tengen
import tengen.functional as F
from tengen.autodiff import GradManager
from tengen.ops.conv import conv_transposed, conv_weight_grad

torch, jax = compare.peer("torch"), compare.peer("jax")
OFF_THE_TAPE = torch.inference_mode if torch else contextlib.nullcontext
AT_LEAST = 0.9  # of the best peer's speed
ENOUGH = 1e8  # operations from which on a kernel is expected to come close to the roof
SHARE = 0.85  # of the roof


def noise(seed: int, *shape: int) -> np.ndarray:
    """Normal numbers."""
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def goal(unit: str, work: float) -> Goal:
    """What every kernel should reach."""
    return Goal(1 / AT_LEAST, "fastest", SHARE if unit == "B" or work >= ENOUGH else None)


def on_jax(function: Callable, arrays: list[np.ndarray]) -> Callable:
    """JAX's compiled function on its own copies of the arrays."""
    run, operands = jax.jit(function), [jax.device_put(a) for a in arrays]
    return lambda: run(*operands).block_until_ready()


# ---- products --------------------------------------------------------------------------------------------------------------

# name -> shapes of a and b
PRODUCTS: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    **{f"{n} x {n} x {n}": ((n, n), (n, n)) for n in (16, 64, 128, 256, 512, 1024, 2048)},
    "odd, 333 x 777 x 555": ((333, 777), (777, 555)),
    "tall, 8192 x 256 x 256": ((8192, 256), (256, 256)),
    "wide, 256 x 256 x 8192": ((256, 256), (256, 8192)),
    "long sum, 256 x 8192 x 256": ((256, 8192), (8192, 256)),
    "few rows, 8 x 2048 x 2048": ((8, 2048), (2048, 2048)),
    "matrix by vector, 4096 x 4096": ((4096, 4096), (4096,)),
    "vector by matrix, 4096 x 4096": ((4096,), (4096, 4096)),
    "batch of 96, 64 x 64 x 64": ((96, 64, 64), (96, 64, 64)),
    "batch of 48, 256 x 64 x 256": ((48, 256, 64), (48, 64, 256)),
    "ViT's, 1576 x 192 x 768": ((1576, 192), (192, 768)),
    "GPT's, 2048 x 384 x 1536": ((2048, 384), (384, 1536)),
    "GPT's, 2048 x 1536 x 384": ((2048, 1536), (1536, 384)),
}


def product(name: str) -> Case:
    """a @ b."""
    shapes = PRODUCTS[name]
    arrays = [noise(i, *s) for i, s in enumerate(shapes)]
    x, y = (tengen.Tensor(a) for a in arrays)
    run = tengen.trace(lambda x, y: F.matmul(x, y))
    contenders = {"tengen": lambda: run(x, y), "tengen eager": lambda: F.matmul(x, y)}
    if torch:
        u, v = (torch.from_numpy(a) for a in arrays)
        contenders["torch"] = lambda: torch.matmul(u, v)
    if jax:
        contenders |= compare.attempt("jax", lambda: on_jax(jax.numpy.matmul, arrays))
    n = shapes[1][-1] if len(shapes[1]) > 1 else 1
    work, moved = 2.0 * arrays[0].size * n, 4.0 * sum(a.size for a in arrays)
    if min(shapes[0][0], n) == 1 or arrays[0].ndim == 1:  # every element is used once
        aim = goal("B", moved)
        return Case(
            f"matmul {name}", contenders, aim, moved, "B", roof=roof("B"), intensity=work / moved, torch_block=OFF_THE_TAPE
        )
    aim = goal("FLOP", work)
    return Case(
        f"matmul {name}", contenders, aim, work, roof=roof("FLOP"), intensity=work / moved,
        goals={"tengen eager": Goal(1 / AT_LEAST, "fastest")}, torch_block=OFF_THE_TAPE,
    )  # fmt: skip


# ---- convolutions ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layer:
    """A convolution: channels in and out, window, stride, extent of the image; depthwise where groups are its channels."""

    ins: int
    outs: int
    window: int
    stride: int
    size: int
    groups: int = 1

    def __str__(self) -> str:
        kind = "depthwise " if self.groups > 1 else ""
        return f"{kind}{self.window}x{self.window}/{self.stride}, {self.ins} to {self.outs} at {self.size}x{self.size}"


def resnet50() -> list[Layer]:
    """ResNet-50's distinct convolutions at 224x224, the stride in the 3x3 of a block."""
    layers, ins, size = [Layer(3, 64, 7, 2, 224)], 64, 56
    for i, (width, blocks) in enumerate([(64, 3), (128, 4), (256, 6), (512, 3)]):
        for block in range(blocks):
            stride = 2 if i and not block else 1
            layers += [Layer(ins, width, 1, 1, size), Layer(width, width, 3, stride, size)]
            if not block:
                layers.append(Layer(ins, 4 * width, 1, stride, size))
            size //= stride
            layers.append(Layer(width, 4 * width, 1, 1, size))
            ins = 4 * width
    return list(dict.fromkeys(layers))


def mobilenet_v2() -> list[Layer]:
    """MobileNetV2's distinct convolutions at 224x224."""
    layers, ins, size = [Layer(3, 32, 3, 2, 224)], 32, 112
    table = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
    for expansion, outs, blocks, first in table:
        for block in range(blocks):
            stride, wide = (first if not block else 1), ins * expansion
            if expansion > 1:
                layers.append(Layer(ins, wide, 1, 1, size))
            layers.append(Layer(wide, wide, 3, stride, size, wide))
            size //= stride
            layers.append(Layer(wide, outs, 1, 1, size))
            ins = outs
    return list(dict.fromkeys([*layers, Layer(ins, 1280, 1, 1, size)]))


KINDS = {"": "output", ", gradient of the image": "image", ", gradient of the weights": "weights"}
IMAGES = 8


def convolution(layer: Layer, network: str, kind: str) -> Case:
    """A layer's output, its gradient with respect to the image, or that with respect to the weights; channels-last."""
    pad, groups = layer.window // 2, layer.groups
    after = (layer.size + 2 * pad - layer.window) // layer.stride + 1
    image = noise(0, IMAGES, layer.size, layer.size, layer.ins)
    grad = noise(2, IMAGES, after, after, layer.outs)
    weight = noise(1, layer.outs, layer.ins // groups, layer.window, layer.window)
    options = {"stride": layer.stride, "padding": pad, "groups": groups}
    contenders = {"tengen": _mine(KINDS[kind], image, weight, grad, options)}
    if torch:
        contenders["torch"] = _theirs(KINDS[kind], image, weight, grad, options)
    work, moved = 2.0 * grad.size * weight[0].size, 4.0 * (image.size + grad.size + weight.size)
    unit = "B" if groups > 1 else limit(work, moved)
    amount = moved if unit == "B" else work
    return Case(
        f"{network}: conv {layer}{kind}", contenders, goal(unit, amount), amount, unit, (5e-5, 0.0), roof=roof(unit),
        intensity=work / moved, torch_block=OFF_THE_TAPE,
    )  # fmt: skip


def _mine(kind: str, image: np.ndarray, weight: np.ndarray, grad: np.ndarray, options: dict) -> Callable:
    """Tengen's convolution, or a gradient as its tape runs it; images lie channels-last, as networks lay them."""
    x, w, g = (tengen.Tensor(a) for a in (image, _grouped(weight, options["groups"]), grad))
    first, last = (lambda t: F.transpose(t, (0, 3, 1, 2))), (lambda t: F.transpose(t, (0, 2, 3, 1)))
    if kind == "output":
        run = tengen.trace(lambda x, w: last(F.conv2d(first(x), w, **options)))
        return lambda: run(x, w)
    if kind == "image":
        run = tengen.trace(lambda g, w, x: last(conv_transposed(first(g), w, first(x), **options)))
        return lambda: run(g, w, x)
    run = tengen.trace(lambda x, g, w: F.reshape(conv_weight_grad(first(x), first(g), w, **options), weight.shape))
    return lambda: run(x, g, w)


def _grouped(weight: np.ndarray, groups: int) -> np.ndarray:
    """Filters as MegEngine has them: with an axis for the groups where there are several."""
    return weight if groups == 1 else weight.reshape(groups, -1, *weight.shape[1:])


def _theirs(kind: str, image: np.ndarray, weight: np.ndarray, grad: np.ndarray, o: dict) -> Callable:
    """The same of PyTorch."""
    u, g = (torch.from_numpy(a).permute(0, 3, 1, 2) for a in (image, grad))
    v = torch.from_numpy(weight).contiguous(memory_format=torch.channels_last)
    if kind == "output":
        return lambda: torch.nn.functional.conv2d(u, v, **o).permute(0, 2, 3, 1)
    wanted, two = (kind == "image", kind == "weights", False), [1, 1]
    run = torch.ops.aten.convolution_backward
    settings = (None, [o["stride"]] * 2, [o["padding"]] * 2, two, False, [0, 0], o["groups"], wanted)
    if kind == "image":
        return lambda: run(g, u, v, *settings)[0].permute(0, 2, 3, 1)
    return lambda: run(g, u, v, *settings)[1]


# ---- what memory limits ----------------------------------------------------------------------------------------------------

ROWS = COLUMNS = 4096
ARRAY = ROWS * COLUMNS * 4.0  # bytes: 64 MiB
nn = torch.nn.functional if torch else None
jnp = jax.numpy if jax else None


def _gelu_chain(x, b, gelu, exp):
    return gelu(x * b + x) * 0.5 + exp(-x * x)


def _jax_norm(x):
    mean = x.mean(1, keepdims=True)
    return (x - mean) / jnp.sqrt(x.var(1, keepdims=True) + 1e-5)


# name -> (Tengen's function, PyTorch's, JAX's or None, operands, 64 MiB arrays that move, relative tolerance)
MEMORY: dict[str, tuple] = {
    "copy": (lambda x: F.copy(x), lambda x: x.clone(), None, 1, 2, 0.0),
    "transpose to dense": (lambda x: F.copy(x.T), lambda x: x.T.contiguous(), lambda x: x.T + 0.0, 1, 2, 0.0),
    "relu": (F.relu, lambda x: torch.relu(x), lambda x: jnp.maximum(x, 0), 1, 2, 0.0),
    "exp": (F.exp, lambda x: torch.exp(x), lambda x: jnp.exp(x), 1, 2, 1e-6),
    "chain of 4 adds": (lambda a, b: a + b + a + b + a, lambda a, b: a + b + a + b + a, lambda a, b: a + b + a + b + a, 2, 3, 1e-6),
    "chain with gelu and exp": (
        lambda a, b: _gelu_chain(a, b, F.gelu, F.exp),
        lambda a, b: _gelu_chain(a, b, nn.gelu, torch.exp),
        lambda a, b: _gelu_chain(a, b, partial(jax.nn.gelu, approximate=False), jnp.exp), 2, 3, 1e-5,
    ),
    "softmax of axis 1": (lambda x: F.softmax(x, 1), lambda x: torch.softmax(x, 1), lambda x: jax.nn.softmax(x, 1), 1, 2, 1e-5),
    "softmax of axis 0": (lambda x: F.softmax(x, 0), lambda x: torch.softmax(x, 0), lambda x: jax.nn.softmax(x, 0), 1, 2, 1e-5),
    "layer norm": (
        lambda x: F.layer_norm(x, COLUMNS, affine=False), lambda x: nn.layer_norm(x, (COLUMNS,)), _jax_norm, 1, 2, 1e-5,
    ),
    "sum of everything": (lambda x: F.sum(x), lambda x: torch.sum(x), lambda x: jnp.sum(x), 1, 1, 1e-3),
    "sum of axis 0": (lambda x: F.sum(x, 0), lambda x: torch.sum(x, 0), lambda x: jnp.sum(x, 0), 1, 1, 1e-5),
    "sum of axis 1": (lambda x: F.sum(x, 1), lambda x: torch.sum(x, 1), lambda x: jnp.sum(x, 1), 1, 1, 1e-5),
    "max of axis 0": (lambda x: F.max(x, 0), lambda x: torch.amax(x, 0), lambda x: jnp.max(x, 0), 1, 1, 0.0),
    "max of axis 1": (lambda x: F.max(x, 1), lambda x: torch.amax(x, 1), lambda x: jnp.max(x, 1), 1, 1, 0.0),
    "argmax of axis 1": (lambda x: F.argmax(x, 1), lambda x: torch.argmax(x, 1), lambda x: jnp.argmax(x, 1), 1, 1, 0.0),
    "sum of axis 0 of 3": (
        lambda x: F.sum(F.reshape(x, (64, 256, 1024)), 0), lambda x: x.reshape(64, 256, 1024).sum(0),
        lambda x: x.reshape(64, 256, 1024).sum(0), 1, 1, 1e-5,
    ),
    "sum of axis 1 of 3": (
        lambda x: F.sum(F.reshape(x, (64, 256, 1024)), 1), lambda x: x.reshape(64, 256, 1024).sum(1),
        lambda x: x.reshape(64, 256, 1024).sum(1), 1, 1, 1e-5,
    ),
    "sum of axes 0 and 2 of 3": (
        lambda x: F.sum(F.reshape(x, (64, 256, 1024)), (0, 2)), lambda x: x.reshape(64, 256, 1024).sum((0, 2)),
        lambda x: x.reshape(64, 256, 1024).sum((0, 2)), 1, 1, 1e-4,
    ),
}  # fmt: skip


def memory(name: str) -> Case:
    """One function of arrays of (4096, 4096) float32."""
    mine, theirs, on_xla, count, moved, rtol = MEMORY[name]
    arrays = [noise(i, ROWS, COLUMNS) for i in range(count)]
    return simple(f"64 MiB: {name}", mine, theirs, on_xla, arrays, moved * ARRAY, rtol)


def simple(
    name: str, mine, theirs, on_xla, arrays: list[np.ndarray], moved: float, rtol: float, unit: str = "B", block=OFF_THE_TAPE
) -> Case:
    """A case of a function of arrays, traced and eager, beside PyTorch's and JAX's. block: what PyTorch's turns run in."""
    ours, run = [tengen.Tensor(a) for a in arrays], tengen.trace(lambda *x: mine(*x))
    contenders = {"tengen": lambda: run(*ours), "tengen eager": lambda: mine(*ours)}
    if torch:
        others = [torch.from_numpy(a) for a in arrays]
        contenders["torch"] = lambda: theirs(*others)
    if jax and on_xla:
        contenders |= compare.attempt("jax", lambda: on_jax(on_xla, arrays))
    aim, plain = goal(unit, moved), {"tengen eager": Goal(1 / AT_LEAST, "torch")}
    return Case(name, contenders, aim, moved, unit, (rtol, 0.0), roof=roof(unit), goals=plain, torch_block=block)


# ---- the others ------------------------------------------------------------------------------------------------------------


def gradients(name: str, mine, theirs, arrays: list[np.ndarray], moved: float, rtol: float = 1e-4) -> Case:
    """Forward and backward of a function of arrays, whose first is differentiated, with the last as the result's gradient."""

    def step(x, *more):
        gm = GradManager().attach([x])
        with gm:
            y = mine(x, *more[:-1])
            gm.backward(y, more[-1])
        g, x.grad = x.grad, None
        return g

    def torch_step(x, *more):
        x = x.detach().requires_grad_()
        return torch.autograd.grad(theirs(x, *more[:-1]), x, more[-1])[0]

    return simple(name, step, torch_step, None, arrays, moved, rtol, block=contextlib.nullcontext)


def batch_norm() -> Case:
    """Statistics, normalization and gradient of an activation of ResNet-50; the formula reads it twice, and its gradient."""
    n, c, size = 8, 256, 56
    arrays = [np.ascontiguousarray(noise(0, n, c, size, size)), noise(1, c), noise(2, c), noise(3, n, c, size, size)]

    def mine(x, w, b):
        return F.batch_norm(x, None, None, F.reshape(w, (1, c, 1, 1)), F.reshape(b, (1, c, 1, 1)), training=True)

    def theirs(x, w, b):
        return nn.batch_norm(x, None, None, w, b, training=True)

    return gradients("batch norm in training and its gradient, 8x256x56x56", mine, theirs, arrays, 4.0 * 5 * arrays[0].size)


def layer_norm() -> Case:
    """Forward and gradient of 64 MiB."""
    arrays = [noise(0, ROWS, COLUMNS), noise(1, COLUMNS), noise(2, COLUMNS), noise(3, ROWS, COLUMNS)]
    mine = lambda x, w, b: F.layer_norm(x, (COLUMNS,), True, w, b)
    theirs = lambda x, w, b: nn.layer_norm(x, (COLUMNS,), w, b)
    return gradients("64 MiB: layer norm and its gradient", mine, theirs, arrays, 5 * ARRAY)


def pooling(kind: str) -> Case:
    """A pooling of ResNet's activations."""
    x = noise(0, 8, 64, 112, 112)
    table = {
        "max 3x3/2": (lambda x: F.max_pool2d(x, 3, 2, 1), lambda x: nn.max_pool2d(x, 3, 2, 1), 1.25),
        "average 2x2/2": (lambda x: F.avg_pool2d(x, 2, 2), lambda x: nn.avg_pool2d(x, 2, 2), 1.25),
        "average of everything": (lambda x: F.mean(x, (2, 3)), lambda x: x.mean((2, 3)), 1.0),
    }
    mine, theirs, share = table[kind]
    return simple(f"pooling, {kind}, 8x64x112x112", mine, theirs, None, [x], 4.0 * x.size * share, 1e-5)


def attention(tokens: int, causal: bool) -> Case:
    """Attention of 6 heads of 64."""
    arrays = [noise(i, 1, 6, tokens, 64) for i in range(3)]
    fused = getattr(F, "scaled_dot_product_attention", None)
    mask = np.where(np.tril(np.ones((tokens, tokens), bool)), 0, -np.inf).astype(np.float32)
    bias = tengen.Tensor(mask)

    def mine(q, k, v):
        if fused:
            return fused(q, k, v, None, causal)
        scores = F.matmul(q, k, transpose_b=True) * 0.125
        return F.matmul(F.softmax(scores + bias if causal else scores, -1), v)

    def theirs(q, k, v):
        return nn.scaled_dot_product_attention(q, k, v, is_causal=causal)

    def on_xla(q, k, v):
        scores = q @ k.swapaxes(-1, -2) * 0.125
        return jax.nn.softmax(scores + mask if causal else scores, -1) @ v

    work = 4.0 * 6 * tokens * tokens * 64 / (2 if causal else 1)
    name = f"attention, 6 heads of 64, {tokens} tokens{', causal' if causal else ''}"
    return simple(name, mine, theirs, on_xla, arrays, work, 1e-4, "FLOP")


def gather() -> Case:
    """Rows of a table: an embedding."""
    table, index = noise(0, 50000, 384), np.random.default_rng(1).integers(0, 50000, 8192).astype(np.int32)
    mine, theirs = (lambda t, i: t[i]), (lambda t, i: nn.embedding(i, t))
    return simple("gather 8192 of 50000 rows of 384", mine, theirs, lambda t, i: t[i], [table, index], 8.0 * 8192 * 384, 0.0)


def sort(rows: int, columns: int) -> Case:
    """Values and positions, in order."""
    x = noise(0, rows, columns)
    mine, theirs = (lambda x: F.sort(x)[0]), (lambda x: torch.sort(x)[0])
    return simple(f"sort {rows} rows of {columns}", mine, theirs, lambda x: jnp.sort(x), [x], 8.0 * x.size, 0.0)


def lstm_step() -> Case:
    """One step of an LSTM cell: 32 sequences, 256 numbers in, 256 hidden."""
    n, width = 32, 256
    arrays = [noise(0, n, width), noise(1, n, width), noise(2, n, width)]
    arrays += [noise(3, 4 * width, width) / 16, noise(4, 4 * width, width) / 16, noise(5, 4 * width), noise(6, 4 * width)]

    def mine(x, h, c, wi, wh, bi, bh):
        i, f, g, o = F.split(F.linear(x, wi, bi) + F.linear(h, wh, bh), 4, axis=1)
        c = F.sigmoid(f) * c + F.sigmoid(i) * F.tanh(g)
        return F.sigmoid(o) * F.tanh(c)

    def on_xla(x, h, c, wi, wh, bi, bh):
        i, f, g, o = jnp.split(x @ wi.T + bi + h @ wh.T + bh, 4, axis=1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return jax.nn.sigmoid(o) * jnp.tanh(c)

    theirs = lambda x, h, c, *w: torch.lstm_cell(x, (h, c), *w)[0]
    return simple("LSTM step, 32 x 256", mine, theirs, on_xla, arrays, 2.0 * n * 4 * width * 2 * width, 1e-5, "FLOP")


QUICK = {
    "1024 x 1024 x 1024",
    "batch of 96, 64 x 64 x 64",
    "matrix by vector, 4096 x 4096",
    "softmax of axis 1",
    "sum of axis 0",
}
CELLS = [
    *(Cell(f"matmul {n}", partial(product, n), n in QUICK) for n in PRODUCTS),
    *(
        Cell(f"{network}: conv {layer}{kind}", partial(convolution, layer, network, kind), i == 7)
        for network, layers in (("ResNet-50", resnet50()), ("MobileNetV2", mobilenet_v2()))
        for kind in KINDS
        for i, layer in enumerate(layers)
    ),
    *(Cell(f"64 MiB: {n}", partial(memory, n), n in QUICK) for n in MEMORY),
    Cell("64 MiB: layer norm and its gradient", layer_norm),
    Cell("batch norm in training and its gradient", batch_norm, True),
    *(Cell(f"pooling, {kind}", partial(pooling, kind)) for kind in ("max 3x3/2", "average 2x2/2", "average of everything")),
    *(
        Cell(f"attention, {tokens} tokens{', causal' if causal else ''}", partial(attention, tokens, causal), tokens == 256)
        for causal in (False, True)
        for tokens in (256, 512, 1024, 2048, 4096)
    ),
    Cell("gather 8192 of 50000 rows of 384", gather, True),
    *(Cell(f"sort {r} rows of {c}", partial(sort, r, c)) for r, c in ((1, 1 << 20), (4096, 256))),
    Cell("LSTM step, 32 x 256", lstm_step, True),
]

if __name__ == "__main__":
    compare.main("kernels", f"Kernels, float32; convolutions at batch {IMAGES}", CELLS, args=compare.arguments("kernels", 0.8))
