"""The networks that are measured: what they are, and one training step or inference of each in Tengen.

In: a name of `NETWORKS`. Out: Tengen's module (`tengen.models`), the independent PyTorch definition of `tests/models` with the
same weights, inputs, and functions that run or train Tengen's. The peers' sides are in `peers.py`.
"""

from __future__ import annotations

import contextlib
import importlib
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import tengen
import tengen.functional as F
import tengen.module as M
from tengen.autodiff import GradManager
from tengen.optimizer import SGD, AdamW

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "models"))

VOCABULARY = 8192
RATES = {"SGD": {"lr": 0.01, "momentum": 0.9}, "AdamW": {"lr": 1e-4, "weight_decay": 0.01}}


def torch_name(name: str) -> str:
    """PyTorch's name of a weight: its LSTM has no cells."""
    return re.sub(r"cells\.(\d+)\.0\.(\w+)", r"\2_l\1", name)


@dataclass(frozen=True)
class Network:
    """A network and its task: classes of images or sequences, or the next token (`language`).

    Attributes:
        builder: its function in `tengen.models`, and in tests/models/<definitions>.py; options: its arguments.
        shape: of one sample; tokens: samples are token ids. classes: of a result.
        batch: of the training step. forward: GFLOP of one sample, two for each multiply-add; first: those of its first layer,
            whose input needs no gradient. convolutions: peers run it channels-last as well.
    """

    name: str
    builder: str
    shape: tuple[int, ...]
    batch: int
    forward: float
    first: float = 0.0
    classes: int = 1000
    optimizer: str = "SGD"
    definitions: str = "torch_vision"
    options: dict[str, Any] = field(default_factory=dict)
    convolutions: bool = True
    tokens: bool = False
    language: bool = False

    def tengen(self, training: bool = False, **more) -> M.Module:
        """Tengen's network, its weights drawn from a fixed seed; without dropout, so that peers compute the same."""
        tengen.random.seed(1)
        net = getattr(tengen.models, self.builder)(**{**self.options, **more})
        for m in net.modules():
            if isinstance(m, M.Dropout):
                m.drop_prob = 0.0
        return net.train(training) if training else net.eval()

    def torch(self, like: M.Module | None, training: bool = False, **more):
        """PyTorch's network with the weights of Tengen's, or its own."""
        import torch

        net = getattr(importlib.import_module(self.definitions), self.builder)(**{**self.options, **more})
        weights = {torch_name(k): v for k, v in like.state_dict().items()} if like else {}
        with torch.no_grad():
            for name, t in net.state_dict().items() if like else ():
                if not name.endswith("num_batches_tracked"):
                    t.copy_(torch.from_numpy(np.array(weights[torch_name(name)])).reshape(t.shape))
        for m in net.modules():
            if isinstance(m, torch.nn.Dropout):
                m.p = 0.0
        return net.train(training)

    def data(self, batch: int, seed: int = 0, shape: tuple[int, ...] | None = None) -> np.ndarray:
        """A batch of noise, or of tokens."""
        rng = np.random.default_rng(seed)
        shape = (batch, *(shape or self.shape))
        return rng.integers(0, VOCABULARY, shape).astype(np.int32) if self.tokens else rng.standard_normal(shape, np.float32)

    def labels(self, batch: int, seed: int = 1, shape: tuple[int, ...] | None = None) -> np.ndarray:
        """What a batch should give."""
        shape = (batch, *(shape or self.shape)) if self.language else (batch,)
        return np.random.default_rng(seed).integers(0, self.classes, shape).astype(np.int32)

    def step_work(self, batch: int) -> float:
        """Operations of a training step: output, and gradients of weights and input, but not the first input's."""
        return 1e9 * batch * (3 * self.forward - self.first)


NETWORKS = {
    n.name: n
    for n in (
        Network("ResNet-18", "resnet18", (3, 224, 224), 16, 3.63, 0.236),
        Network("ResNet-50", "resnet50", (3, 224, 224), 8, 8.18, 0.236),
        Network("MobileNetV2", "mobilenet_v2", (3, 224, 224), 16, 0.601, 0.0217),
        Network(
            "ViT-Tiny", "vit_tiny", (3, 224, 224), 16, 2.51, 0.058, optimizer="AdamW", definitions="torch_sequence",
            convolutions=False,
        ),
        Network(
            "GPT", "gpt", (256,), 8, 7.65, classes=VOCABULARY, optimizer="AdamW", definitions="torch_sequence",
            options={"layers": 6, "width": 384, "heads": 6, "context": 256, "vocabulary": VOCABULARY},
            convolutions=False, tokens=True, language=True,
        ),
        Network(
            "LSTM", "lstm", (64,), 32, 0.0503, classes=10, definitions="torch_sequence",
            options={"vocabulary": VOCABULARY, "num_classes": 10, "embedding": 128}, convolutions=False, tokens=True,
        ),
        Network("LeNet", "lenet", (1, 32, 32), 64, 0.00083, 0.000235, classes=10),
        Network("MLP", "mlp", (784,), 64, 0.00134, 0.0008, classes=10, convolutions=False),
    )
}  # fmt: skip


class Inference:
    """Tengen's side of inference: `traced()` and `eager()` give the logits. `block`: makes what it runs in (`amp.autocast`)."""

    def __init__(self, network: Network, batch: int, block: Callable = contextlib.nullcontext):
        self.net = network.tengen()
        self.data = network.data(batch)
        x = tengen.Tensor(self.data)

        def predict(x):
            with block():
                return self.net(x)

        run = tengen.trace(self.net if block is contextlib.nullcontext else predict, capture_as_const=True)
        self.traced: Callable = lambda: run(x)
        self.eager: Callable = lambda: predict(x)


class Trainer:
    """Tengen's side of training: `step()` trains once and returns the loss. `traced`: whether the step is; "network": the network alone, and
    the loop is plain Python. `block`: makes what the forward pass runs in. `memory_budget`,
    `offload`: of the trace. Attributes: run, arguments: what a step calls, and with what."""

    def __init__(
        self, network: Network, batch: int, traced: bool | str, shape: tuple[int, ...] | None = None,
        block: Callable = contextlib.nullcontext, memory_budget: int | str | None = None, offload: str | None = None, **options,
    ):  # fmt: skip
        self.net = network.tengen(training=True, **options)
        kind = {"SGD": SGD, "AdamW": AdamW}[network.optimizer]
        opt = kind(self.net.parameters(), **RATES[network.optimizer])
        gm = GradManager().attach(self.net.parameters())

        net = tengen.trace(self.net, symbolic=True) if traced == "network" else self.net

        def train(data, label):
            with gm:
                with block():
                    logits = net(data)
                    loss = F.loss.cross_entropy(F.reshape(logits, (-1, network.classes)), F.flatten(label))
                gm.backward(loss)
            opt.step().clear_grad()
            return loss

        self.run = run = tengen.trace(train, symbolic=True, memory_budget=memory_budget, offload=offload) if traced is True else train
        data, label = (tengen.Tensor(a) for a in (network.data(batch, shape=shape), network.labels(batch, shape=shape)))
        self.arguments = data, label
        self.step: Callable = lambda: run(data, label)

    def weights(self) -> dict[str, np.ndarray]:
        """The parameters' values by name."""
        return {k: np.array(p.numpy()) for k, p in self.net.named_parameters()}
