"""The calls that people make first, as a list that is run: what of it gets compiled is in the packs, and in a cache that was warmed.

In: nothing. Out: jobs, each a name and a function that calls ops eagerly. A pattern of calls is what the calls have in common
beside their sizes (`compiler/plans.py`), but extents that are equal, or 1, are part of it: the sizes here differ from one another,
as those of real data do, and networks run on images and batches of the usual sizes.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator

import numpy as np

import tengen.functional as F
import tengen.models as models
from tengen.autodiff.manager import GradManager
from tengen.base.record import NamedTuple
from tengen.deploy import by_nodes, load_graph
from tengen.jit import trace
from tengen.module.module import Module
from tengen.optimizer import SGD, Adam, AdamW
from tengen.tensor import Tensor

FLOATS = ("float32", "float16", "float64")
ARITHMETIC = "add sub mul div pow maximum minimum"
COMPARISONS = "equal not_equal less less_equal greater greater_equal"
POINTWISE = (
    "neg abs sqrt rsqrt square exp log log1p expm1 sin cos tanh sigmoid relu relu6 gelu silu elu leaky_relu softplus hswish hsigmoid erf "
    "floor ceil round sign reciprocal isnan isfinite logsigmoid mish"
)
REDUCTIONS = "sum mean max min prod std var argmax argmin"
VOCABULARY = 8192


class Job(NamedTuple):
    """A few calls. name: what they are."""

    name: str
    run: Callable[[], None]


def _noise(*shape: int, dtype: str = "float32") -> Tensor:
    a = np.random.default_rng(len(shape)).normal(size=shape)
    return Tensor((a * 8).astype(dtype) if dtype.startswith(("int", "uint")) else a.astype(dtype))


def _tokens(shape: tuple[int, ...], below: int) -> Tensor:
    return Tensor(np.random.default_rng(0).integers(0, below, shape).astype("int32"))


def jobs() -> list[Job]:
    """All of them. None depends on another."""
    return [*_ops(), *_networks()]


# ---- ops ---------------------------------------------------------------------------------------------------------------


def _ops() -> Iterator[Job]:
    for d in (*FLOATS, "int32", "int64"):
        yield Job(f"arithmetic of {d}", lambda d=d: _arithmetic(d))
        yield Job(f"reductions of {d}", lambda d=d: _reductions(d))
    for d in FLOATS:
        yield Job(f"functions of {d}", lambda d=d: _functions(d))
    for d in ("float32", "int32", "int64", "bool"):
        yield Job(f"indexing of {d}", lambda d=d: _indexing(d))
    yield Job("dtypes", _casts)
    yield Job("products", _products)
    yield Job("rows", _rows)
    yield Job("gradients", _gradients)


def _arithmetic(d: str) -> None:
    x, row, column, one = _noise(5, 7, dtype=d), _noise(7, dtype=d), _noise(5, 1, dtype=d), _noise(dtype=d)
    others = (x, 2, row, column, one) if d == "float32" else (x, 2, row)
    for name in (ARITHMETIC + " " + COMPARISONS).split():
        if d.startswith("int") and name == "pow":
            continue
        f = getattr(F, name)
        for y in others:
            f(x, y)
    2 + x, 2 - x, 2 * x, 2 / x
    x = F.abs(x) + 1
    x += 1
    x -= row
    x *= 2
    F.where(x > 2, x, x), F.where(x > 2, x, 0), F.clip(x, 1, 3)
    x[1], x[:, 2], x[1:3] = 1, row[:5], x[:2]
    x[x > 2] = 0


def _functions(d: str) -> None:
    x = F.abs(_noise(5, 7, dtype=d)) + 0.5
    for name in POINTWISE.split():
        getattr(F, name)(x)
    F.softmax(x, axis=1), F.log_softmax(x, axis=1), F.softmax(x), F.logsumexp(x, axis=1), F.sqrt(x.T)
    batch = _noise(2, 3, 5, 7, dtype=d)
    F.relu(batch), F.softmax(batch, axis=-1), F.softmax(batch, axis=1)


def _reductions(d: str) -> None:
    x, batch = _noise(5, 7, dtype=d), _noise(2, 3, 5, 7, dtype=d)
    for name in (REDUCTIONS if d == "float32" else "sum mean max min argmax").split():
        f = getattr(F, name)
        f(x), f(x, axis=0), f(x, axis=1)
        if d == "float32" and not name.startswith("arg"):
            f(x, axis=1, keepdims=True)
    F.sum(batch, axis=(2, 3)), F.mean(batch, axis=(2, 3)), F.mean(batch, axis=(0, 2, 3)), F.sum(batch, axis=-1)
    F.cumsum(x, axis=1), F.cumsum(x, axis=0), F.sort(x, axis=1), F.argsort(x, axis=1), F.topk(x, 3)
    (x > 0).any(), (x > 0).all(), (x > 0).sum(), (x > 0).sum(axis=0)


def _indexing(d: str) -> None:
    x = _noise(5, 7, dtype="float32") > 0 if d == "bool" else _noise(5, 7, dtype=d)
    batch, i = F.broadcast_to(x, (3, 5, 7)) if d == "bool" else _noise(3, 5, 7, dtype=d), _tokens((4,), 3)
    F.copy(x), F.copy(x.T), F.copy(batch), F.copy(batch.transpose(0, 2, 1)), F.copy(batch.transpose(2, 0, 1)), F.copy(x[:, 1:4])
    F.concat([x, x]), F.concat([x, x], axis=1), F.concat([batch, batch], axis=1), F.concat([x, x, x]), F.stack([x, x])
    x[i], x[:, i], x[i, i], batch[i], F.flip(x, 0), F.roll(x, 1, 0), F.repeat(x, 2, 0), F.tile(x, (2, 1)), F.broadcast_to(x, (2, 5, 7)) + 0
    F.zeros((5, 7), d), F.ones((5, 7), d), F.zeros_like(x), F.full((5, 7), 3, d)
    if d != "bool":
        F.arange(0, 9, 1, d), F.gather(x, 1, _tokens((5, 2), 3)), F.pad(x, ((1, 1), (2, 2))), F.tril(x), F.triu(x)
        x[i] = 1
        F.where(x > 0, x, -x)


def _casts() -> None:
    some = (*FLOATS, "bfloat16", "int32", "int64", "uint8", "bool")
    for d in some:
        x = _noise(5, 7) > 0 if d == "bool" else _noise(5, 7).astype(d)
        for other in some:
            x.astype(other)
    F.logical_and(x, x), F.logical_or(x, x), F.logical_not(x), F.logical_xor(x, x)


def _products() -> None:
    for d in FLOATS:
        a, b, c, e = (_noise(*s, dtype=d) for s in ((37, 53), (53, 41), (41, 53), (7, 37, 53)))
        F.matmul(a, b), F.matmul(a, c.T), F.matmul(a.T, _noise(37, 41, dtype=d)), F.matmul(a, b[:, 0]), F.matmul(e, b), F.dot(a[0], a[0])
        F.matmul(e, _noise(7, 53, 41, dtype=d)), F.matmul(a[0:1], b), F.linear(a, c, _noise(41, dtype=d)), F.linear(a, c), F.matmul(a, a.T)
    square = _noise(64, 64)
    F.matmul(square, square), F.matmul(square, square.T)
    heads = _noise(2, 3, 29, 64)
    F.matmul(heads, heads.transpose(0, 1, 3, 2)), F.scaled_dot_product_attention(heads, heads, heads)
    F.scaled_dot_product_attention(heads, heads, heads, is_causal=True)


def _rows() -> None:
    x, image, tokens = _noise(6, 10), _noise(2, 8, 14, 14), _noise(2, 11, 24)
    w, b = F.ones((24,)), F.zeros((24,))
    norm = {"affine": True, "weight": w, "bias": b}
    F.layer_norm(tokens, (24,), **norm), F.rms_norm(tokens, (24,), w)
    F.instance_norm(image), F.normalize(x, axis=1), F.norm(x), F.dropout(x, 0.5, True), F.one_hot(_tokens((6,), 10), 10)
    F.embedding(_tokens((2, 11), 10), _noise(10, 24)), F.max_pool2d(image, 2), F.avg_pool2d(image, 2), F.adaptive_avg_pool2d(image, 1)
    F.max_pool2d(image, 3, 2, 1), F.adaptive_avg_pool2d(image, 2)
    loss, label = F.loss, _tokens((6,), 10)
    loss.cross_entropy(x, label), loss.square_loss(x, x), loss.l1_loss(x, x), loss.binary_cross_entropy(x, F.sigmoid(x))


def _gradients() -> None:
    """Of what a training step of one's own is made of, beside those of the networks."""
    x, row, column, w = _noise(6, 10), _noise(10), _noise(6, 1), _noise(8, 10)
    manager = GradManager().attach([x, row, column, w])
    body = [
        lambda: x * row + column, lambda: x / (row * row + 1), lambda: x - column, lambda: F.linear(x, w),
        *(lambda f=f: f(x) for f in (F.exp, F.tanh, F.sigmoid, F.relu, F.gelu, F.silu, F.sqrt, F.log, F.abs, F.square, F.sin, F.cos)),
        lambda: F.softmax(x, axis=1) * x, lambda: F.log_softmax(x, axis=1) * x, lambda: F.logsumexp(x, axis=1),
        lambda: F.mean(x, axis=0), lambda: F.max(x, axis=1), lambda: F.min(x, axis=1), lambda: F.var(x, axis=1), lambda: F.maximum(x, row),
        lambda: F.minimum(x, row), lambda: F.where(x > 0, x, row), lambda: F.clip(x, -1, 1), lambda: x[1:3], lambda: x[_tokens((3,), 6)],
        lambda: F.concat([x, x], axis=1), lambda: F.cumsum(x, axis=1), lambda: x.T * 2, lambda: F.loss.square_loss(x, F.zeros((6, 10))),
        lambda: F.loss.l1_loss(x, F.zeros((6, 10))), lambda: F.layer_norm(x, (10,), affine=True, weight=row, bias=row),
        lambda: F.pow(F.abs(x), 2.5),
    ]  # fmt: skip
    for f in body:
        with manager:
            manager.backward(F.sum(f()))
        for t in (x, row, column, w):
            t.grad = None


# ---- networks ----------------------------------------------------------------------------------------------------------


def _networks() -> Iterator[Job]:
    images = [
        ("ResNet-18", models.resnet18, (3, 224, 224), (1, 6, 16), 1000),
        ("MobileNetV2", models.mobilenet_v2, (3, 224, 224), (1, 6, 16), 1000),
        ("ResNet-50", models.resnet50, (3, 224, 224), (6,), 1000), ("EfficientNet-B0", models.efficientnet_b0, (3, 224, 224), (6,), 1000),
        ("ViT-Tiny", lambda: models.vit_tiny(depth=2), (3, 224, 224), (6, 16), 1000),
        ("LeNet", models.lenet, (1, 32, 32), (1, 6, 64), 10), ("MLP", models.mlp, (784,), (1, 6, 64), 10),
        ("CIFAR's ResNet-18", lambda: models.resnet18(10), (3, 32, 32), (6, 128), 10),
    ]  # fmt: skip
    for name, build, shape, batches, classes in images:
        for n in batches:
            kinds = (SGD, Adam, AdamW) if name in ("MLP", "LeNet") else (AdamW,) if name.startswith("ViT") else (SGD,)
            yield Job(f"{name} of {n}", lambda *, a=(build, shape, n, classes, kinds): _step_of_images(*a))
        if 1 not in batches:
            yield Job(f"{name} of 1", lambda *, a=(build, shape): _answer(a[0]().eval(), _noise(1, *a[1])))
    for n, length, width in ((6, 129, 384), (8, 256, 384), (4, 80, 192)):  # heads of 64, and of 32
        yield Job(f"GPT of {n} x {length}, {width} wide", lambda *, a=(n, length, width): _step_of_gpt(*a))
    yield Job("LSTM", lambda: _step_of_lstm(32, 64))


def _answer(net: Module, x: Tensor) -> None:
    F.argmax(net(x), axis=-1).numpy()
    if x.shape[0] == 1:
        _answer_of_a_file(net, x)


def _answer_of_a_file(net: Module, x: Tensor) -> None:
    """The first answer of a model file with this network, which takes its nodes one by one."""
    file = io.BytesIO()
    trace(net, example_input=x).dump(file)
    file.seek(0)
    graph = load_graph(file).graph
    if by_nodes.fits(graph):
        by_nodes.run(graph, [x._data])


def _step_of_images(build: Callable, shape: tuple[int, ...], n: int, classes: int, kinds: tuple) -> None:
    x, labels = _noise(n, *shape), _tokens((n,), classes)
    for kind in kinds:
        net = build().train()
        _train(net, kind, lambda net=net: F.loss.cross_entropy(net(x), labels))
    _answer(net.eval(), x)


def _step_of_gpt(n: int, length: int, width: int) -> None:
    net = models.gpt(2, width, 6, 256, VOCABULARY).train()
    x, labels = _tokens((n, length), VOCABULARY), _tokens((n * length,), VOCABULARY)
    _train(net, AdamW, lambda: F.loss.cross_entropy(net(x).reshape(-1, VOCABULARY), labels))
    for prompt in (x[:1, :5], x[:, :5]):
        net.eval().generate(prompt.numpy(), 3)
    _answer_of_a_file(net, F.copy(x[:1]))


def _step_of_lstm(n: int, length: int) -> None:
    net = models.lstm(VOCABULARY, 10, embedding=128).train()
    x, labels = _tokens((n, length), VOCABULARY), _tokens((n,), 10)
    _train(net, SGD, lambda: F.loss.cross_entropy(net(x), labels))


def _train(net: Module, kind: type, loss_of: Callable[[], Tensor]) -> None:
    """A training step, the update that the second one has, whose states are there, and that of parameters whose memory others share."""
    more = {"momentum": 0.9} if kind is SGD else {}
    manager, optimizer = GradManager().attach(net.parameters()), kind(net.parameters(), lr=1e-4, **more)
    with manager:
        loss = loss_of()
        manager.backward(loss)
    optimizer.step()
    optimizer.step()
    shared = [p.detach() for p in net.parameters()]  # which is not written: the new values lie elsewhere
    optimizer.step().clear_grad()
    shared.clear()
    loss.numpy()
