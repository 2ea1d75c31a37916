"""The layers of a graph that can be computed by integers: found, calibrated, and replaced.

In: a graph whose convolutions and products with constant weights are in float32, and histograms of what they read. Out: the
same graph, in which they read integers: x -> quantised -> exact sums in int32 -> float32, in one kernel with what follows.
docs/numerics.md has the steps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np

from tengen import functional as F
from tengen.base.dtype import float32
from tengen.base.record import record
from tengen.deploy.graphs import Graph, Node, Value
from tengen.ir.types import TensorType
from tengen.quantization.calibrators import CALIBRATORS, Histogram, scale_and_zero
from tengen.quantization.dtypes import QuantizationError, check_scale
from tengen.quantization.folding import PRODUCTS, Known, shift_of, weight_channels
from tengen.tensor import Tensor

MOST_TERMS = ((1 << 31) - 1) // (255 * 128)  # of a sum of products of uint8 and int8
INT8, UINT8 = (-128, 127, "int8"), (0, 255, "uint8")


@record
class Measured(ABC):
    """A node that can be computed by integers.

    Attributes:
        name: for people. op: "conv", "matmul" or "attention". where: the user's line. index: of the node in the graph. last: index of the
        node whose first result is the layer's.
        why_float: why it stays in float32; "" where it does not. low, high: the range that its inputs' integers cover. sqnr (dB), cosine,
        saturation: of its result by integers against float32, and the share of inputs outside of the range. float_ms, int8_ms: its time
        in float32 and in int8, where somebody measured it.
    """

    name: str
    op: str
    where: str
    index: int
    last: int = field(default=-1, kw_only=True)
    why_float: str = field(default="", kw_only=True)
    low: float = field(default=0.0, kw_only=True)
    high: float = field(default=0.0, kw_only=True)
    sqnr: float = field(default=float("nan"), kw_only=True)
    cosine: float = field(default=float("nan"), kw_only=True)
    saturation: float = field(default=float("nan"), kw_only=True)
    float_ms: float = field(default=float("nan"), kw_only=True)
    int8_ms: float = field(default=float("nan"), kw_only=True)

    @abstractmethod
    def inputs(self, n: Node) -> list[Value]:
        """What it reads, of its node in a copy of the graph."""

    @abstractmethod
    def in_float(self, *inputs: Tensor) -> Tensor:
        """The result in float32."""

    @abstractmethod
    def by_integers(self) -> Callable[..., Tensor]:
        """A function of the inputs that gives the result by integers."""

    @abstractmethod
    def watch(self, *inputs: np.ndarray) -> None:
        """Counts inputs of calibration."""

    @abstractmethod
    def calibrate(self, calibrator: str, asymmetric: bool) -> None:
        """Chooses the ranges of its inputs."""

    @abstractmethod
    def compare(self, correct: bool, *inputs: np.ndarray) -> None:
        """Notes how far the result by integers is from float32's; `correct`: first takes the mean difference of each output channel off, where
        the layer can."""

    def equalized(self) -> Measured:
        """The same with input channels of about equal ranges; itself where there is nothing to be done."""
        return self


@record
class Layer(Measured):
    """A node that multiplies by a constant weight, of which it has the name.

    Attributes:
        weight, attrs: of the node. histogram: of its input. most: the largest magnitudes of its input's channels. balance: what its input
        is divided by and its weight multiplied by, for each input channel; None: nothing. bias: what is added to each output channel;
        None: nothing. scale, zero, dtype: of its input; zero is None where it is 0. rounded: the weight's integers, where they were learnt;
        None: the nearest. correction: what is added to each output channel, because rounded weights have another mean; None: nothing.
    """

    weight: np.ndarray
    attrs: dict[str, Any]
    bias: np.ndarray | None = None
    histogram: Histogram = field(default_factory=Histogram)
    most: np.ndarray | None = None
    balance: np.ndarray | None = None
    scale: float = 0.0
    zero: int | None = None
    dtype: tuple[int, int, str] = INT8
    rounded: np.ndarray | None = None
    correction: np.ndarray | None = None

    def inputs(self, n: Node) -> list[Value]:
        """See `Measured.inputs`."""
        x = n.inputs[0]
        assert x is not None
        return [x]

    @property
    def channel_axes(self) -> tuple[int, ...]:
        """The axes of the weight that are output channels."""
        return weight_channels(self.op, self.weight.ndim, self.attrs)

    @property
    def of_channels(self) -> tuple[int, ...]:
        """The shape in which one number for each output channel broadcasts with the result."""
        return (-1,) if self.op == "matmul" else (1, -1, *[1] * len(self.attrs["stride"]))

    def in_float(self, *inputs: Tensor) -> Tensor:
        """The result in float32."""
        (x,) = inputs
        y = self.product(x, Tensor(self.weight))
        return y if self.bias is None else y + Tensor(self.bias.reshape(self.of_channels))

    def product(self, x: Tensor, w: Tensor) -> Tensor:
        """The result of another weight, in float32."""
        if self.op == "matmul":
            return F.matmul(x, w, self.attrs["transpose_a"], self.attrs["transpose_b"])
        return _convolved(x, w, self.attrs)

    def outputs(self, shape: tuple[int, ...]) -> int:
        """The number of output channels of a result of this shape."""
        return shape[-1] if self.op == "matmul" else shape[1]

    def rounded_input(self, x: Tensor) -> Tensor:
        """What the integers of an input stand for."""
        zero = None if self.zero is None else Tensor(np.int32(self.zero))
        return F.fake_quantize(x, Tensor(np.float32(self.scale)), zero, *self.dtype[:2])

    def weight_scale(self) -> np.ndarray:
        """The weight's scales, in the shape that broadcasts with it."""
        inner = tuple(i for i in range(self.weight.ndim) if i not in self.channel_axes)
        most = np.abs(self.weight).max(axis=inner, keepdims=True) if self.weight.size else np.zeros([1] * self.weight.ndim)
        return np.where(most >= 2.0**-90, most / 127, 1).astype(np.float32)

    def codes(self) -> tuple[np.ndarray, np.ndarray]:
        """The weight as integers from -127 to 127, and their scales, in the shape that broadcasts with the result."""
        scale = self.weight_scale()
        q = self.rounded
        if q is None:
            q = np.clip(np.rint(self.weight / scale), -127, 127).astype(np.int8)
        return q, scale.reshape(self.of_channels)

    def shift(self) -> np.ndarray | None:
        """What is added to each output channel of the result by integers, the correction too; None: nothing."""
        parts = [a.reshape(self.of_channels).astype(np.float64) for a in (self.bias, self.correction) if a is not None]
        return sum(parts).astype(np.float32) if parts else None

    def watch(self, *inputs: np.ndarray) -> None:
        """Counts an input of calibration."""
        (x,) = inputs
        self.histogram.add(self.balanced(x))
        channel = x.ndim - 1 if self.op == "matmul" else 1
        most = np.abs(x).max(axis=tuple(i for i in range(x.ndim) if i != channel), initial=0.0)
        self.most = most if self.most is None else np.maximum(self.most, most)

    def balanced(self, x: np.ndarray) -> np.ndarray:
        """An input as it is rounded to integers: divided by `balance`, which is exact, as those are powers of two."""
        return x if self.balance is None else x / self.balance

    def equalized(self) -> Layer:
        """The same layer with input channels of about equal ranges: each is divided by the square root of the largest magnitude of its
        inputs over that of its weights, to the nearest power of two, and its weights are multiplied by it. One scale serves
        all channels of the input then.

        Source: Nagel et al., "Data-free quantization through weight equalization and bias correction", 2019; the rule for inputs that are
        measured is SmoothQuant's (Xiao et al., 2023).
        """
        if self.most is None or (self.op == "matmul" and self.attrs["transpose_a"]):
            return self
        w, spatial = self.weight, len(self.attrs.get("stride", ()))
        if self.op == "matmul":
            inputs: tuple[int, ...] = (1 - self.channel_axes[0],)
        else:
            inputs = (0, 2) if w.ndim == spatial + 3 else (1,)
        largest = np.abs(w).max(axis=tuple(i for i in range(w.ndim) if i not in inputs), keepdims=True, initial=0.0)
        both = np.minimum(self.most, largest.reshape(-1)) > 2.0**-60
        ratio = np.where(both, self.most, 1.0) / np.where(both, largest.reshape(-1), 1.0)
        by = np.exp2(np.rint(np.log2(ratio.astype(np.float64)) / 2)).astype(np.float32)
        weight = (w * by.reshape(largest.shape)).astype(np.float32)
        return replace(self, weight=weight, balance=by.reshape(-1, *[1] * spatial), histogram=Histogram())

    def calibrate(self, calibrator: str, asymmetric: bool) -> None:
        """Chooses the range of its input. uint8 where nothing is negative; else int8, with a zero point if `asymmetric`."""
        positive = self.histogram.range()[0] >= 0
        self.dtype = UINT8 if positive or asymmetric else INT8
        symmetric = not positive and not asymmetric
        steps = self.dtype[1] - self.dtype[0]
        low, high = CALIBRATORS[calibrator](self.histogram, steps, symmetric)
        scale, zero = scale_and_zero(low, high, self.dtype[0], self.dtype[1], symmetric)
        check_scale(scale, f"the scale of the input of {self.name}")
        self.scale, self.zero = float(scale), zero if zero else None
        self.low, self.high = ((q - zero) * self.scale for q in self.dtype[:2])

    def by_integers(self) -> Callable[..., Tensor]:
        """A function of the input that gives the result by integers."""
        w, w_scale = self.codes()
        scales = np.float32(self.scale) if self.balance is None else np.float32(self.scale) * self.balance
        q, scale, product = Tensor(w), Tensor(scales), Tensor(np.float32(self.scale) * w_scale)
        zero = None if self.zero is None else Tensor(np.int32(self.zero))
        shift = self.shift()
        more = None if shift is None else Tensor(shift)
        a, (low, high, d) = self.attrs, self.dtype

        def computed(x: Tensor) -> Tensor:
            codes = F.quantize_linear(x, scale, zero, low, high, d)
            codes = codes if zero is None else F.centre_codes(codes, zero)
            if self.op == "matmul":
                total = F.matmul_int(codes, q, a["transpose_a"], a["transpose_b"])
            else:
                total = F.conv_int(codes, q, a["stride"], a["padding"], a["dilation"], a["groups"])
            y = F.dequantize_linear(total, product)
            return y if more is None else y + more

        return computed

    def compare(self, correct: bool, *inputs: np.ndarray) -> None:
        """See `Measured.compare`. The bias is no part of the error, and is left out."""
        (x,) = inputs
        balanced, alone = self.balanced(x), replace(self, bias=None, correction=None)
        want = alone.in_float(Tensor(balanced)).numpy().astype(np.float64)
        if not np.isfinite(want).all():
            raise QuantizationError(f"the result of {self.name} in float32 holds NaN or inf; help: debug.check_finite finds it")
        self.correction = None
        got = alone.by_integers()(Tensor(x)).numpy().astype(np.float64)
        if correct and want.size:
            channel = want.ndim - 1 if self.op == "matmul" else 1
            mean = (want - got).mean(axis=tuple(i for i in range(want.ndim) if i != channel), keepdims=True)
            self.correction, got = mean.astype(np.float32), got + mean
        self.sqnr, self.cosine = likeness(got, want)
        half = self.scale / 2
        outside = (balanced < self.low - half) | (balanced > self.high + half)
        self.saturation = float(outside.mean()) if x.size else 0.0


def likeness(got: np.ndarray, want: np.ndarray) -> tuple[float, float]:
    """(SQNR in dB, cosine) of a result against float32's. Without noise they are inf and 1, where float32 has nothing but zeros
    and the result has not, -inf and 0."""
    noise, signal, size = (float((v**2).sum()) for v in (got - want, want, got))
    if not noise:
        return float("inf"), 1.0
    sqnr = 10 * float(np.log10(signal / noise)) if signal else float("-inf")
    return sqnr, float((got * want).sum() / np.sqrt(signal * size)) if signal and size else 0.0


def _convolved(x: Tensor, w: Tensor, a: dict[str, Any]) -> Tensor:
    f = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[len(a["stride"])]
    return f(x, w, None, a["stride"], a["padding"], a["dilation"], a["groups"])


def find_layers(graph: Graph) -> list[Layer]:
    """The convolutions and products of a graph with constant weights; `why_float` says what cannot be computed by integers."""
    constants = {c.value: c for c in graph.constants.values() if c.data is not None}
    known, places = Known(graph), {n: i for i, n in enumerate(graph.nodes)}
    found = []
    for i, n in enumerate(graph.nodes):
        if n.op not in PRODUCTS or not n.outputs[0].type.dtype.is_float:
            continue
        c = constants.get(n.inputs[1])
        if c is None:
            continue
        made = Layer(c.name, n.op, n.where or "", i, c.data, dict(n.attrs), last=i)
        made.why_float = _why_float(n, made)
        if not made.why_float and (shifted := shift_of(known, n)) is not None:
            made.last, made.bias = places[shifted[0]], shifted[1].astype(np.float32)
        found.append(made)
    return found


def _why_float(n: Node, layer: Layer) -> str:
    x = n.inputs[0]
    assert x is not None
    for what, d in (("its input", x.type.dtype), ("its result", n.outputs[0].type.dtype)):
        if d is not float32:
            return f"{what} is {d}, not float32"
    if n.op == "matmul" and (layer.weight.ndim != 2 or x.type.ndim < 2):
        return "it is no product with a matrix"
    terms = layer.weight.size // max(1, int(np.prod([layer.weight.shape[a] for a in layer.channel_axes])))
    if terms > MOST_TERMS:
        return f"sums of {terms} terms may not fit int32"
    if not np.isfinite(layer.weight).all():
        raise QuantizationError(f"the weight {layer.name} holds NaN or inf")
    return ""


def replaced(graph: Graph, layers: Sequence[Measured], chosen: Callable[[Measured], bool]) -> Graph:
    """A copy of the graph in which the chosen layers are computed by integers."""
    g = graph.copy()
    nodes = [(layer, g.nodes[layer.index], g.nodes[layer.last]) for layer in layers if not layer.why_float and chosen(layer)]
    with g.edits():
        for layer, n, last in nodes:
            g.replace(last.outputs[0], g.apply(layer.by_integers(), *layer.inputs(n), before=n))
    return g


def switched(graph: Graph, layers: Sequence[Measured]) -> Graph:
    """A copy of the graph that computes each layer both ways. Behind its inputs is a bool[] for each layer that can be by
    integers: whether it is in this run. So one program measures every choice."""
    g = graph.copy()
    nodes = [(layer, g.nodes[layer.index], g.nodes[layer.last]) for layer in layers if not layer.why_float]
    with g.edits():
        for i, (layer, n, last) in enumerate(nodes):
            on = g.add_input(f"layer {i} is by integers", TensorType((), "bool"))
            both = lambda on, *xs, layer=layer: F.where(on, layer.by_integers()(*xs), layer.in_float(*xs))
            g.replace(last.outputs[0], g.apply(both, on, *layer.inputs(n), before=n))
    return g
