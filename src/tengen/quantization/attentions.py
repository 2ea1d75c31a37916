"""Attention of a graph by integers: queries, keys and values become int8, and `attention_int` multiplies them.

In: a graph whose attention is in float32, and histograms of what it reads. Out: the same graph, in which attention reads integers. The
weights of the softmax have 8 bits whatever the data, so three scales are all there is to choose.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

import numpy as np

from tengen import functional as F
from tengen.base.dtype import float32
from tengen.base.record import record
from tengen.deploy.graphs import Graph, Node, Value
from tengen.loops.lang import as_int
from tengen.ops.attention import MOST_KEYS
from tengen.quantization.calibrators import CALIBRATORS, Histogram, scale_and_zero
from tengen.quantization.dtypes import check_scale
from tengen.quantization.layers import INT8, Measured, likeness
from tengen.tensor import Tensor


@record
class Attention(Measured):
    """softmax(factor q k^T) v without a mask.

    Attributes: factor: of the scores. histograms, scales: of queries, keys and values.
    """

    factor: float
    histograms: tuple[Histogram, ...] = field(default_factory=lambda: (Histogram(), Histogram(), Histogram()))
    scales: tuple[float, ...] = ()

    def inputs(self, n: Node) -> list[Value]:
        """Queries, keys and values."""
        return [v for v in n.inputs[:3] if v is not None]

    def in_float(self, *inputs: Tensor) -> Tensor:
        """The result in float32."""
        q, k, v = inputs
        return F.scaled_dot_product_attention(q, k, v, scale=self.factor)

    def by_integers(self) -> Callable[..., Tensor]:
        """A function of queries, keys and values that gives the result by integers."""
        q, k, v = (np.float32(s) for s in self.scales)
        scales, multiplier = [Tensor(s) for s in (q, k, v)], Tensor(q * k * np.float32(self.factor))

        def computed(*inputs: Tensor) -> Tensor:
            a, b, c = (F.quantize_linear(x, s, None, *INT8) for x, s in zip(inputs, scales))
            return F.attention_int(a, b, c, multiplier, scales[2])

        return computed

    def watch(self, *inputs: np.ndarray) -> None:
        """Counts inputs of calibration."""
        for h, x in zip(self.histograms, inputs):
            h.add(x)

    def calibrate(self, calibrator: str, asymmetric: bool) -> None:
        """Chooses the ranges of its inputs: int8 without a zero point, whatever is asked for."""
        least, most, _ = INT8
        scales = []
        for h, what in zip(self.histograms, ("queries", "keys", "values")):
            low, high = CALIBRATORS[calibrator](h, most - least, True)
            scales.append(float(scale_and_zero(low, high, least, most, True)[0]))
            check_scale(scales[-1], f"the scale of the {what} of {self.name}")
        self.scales = tuple(scales)
        self.low, self.high = least * max(scales), most * max(scales)

    def compare(self, correct: bool, *inputs: np.ndarray) -> None:
        """See `Measured.compare`."""
        given = [Tensor(x) for x in inputs]
        want, got = (f(*given).numpy().astype(np.float64) for f in (self.in_float, self.by_integers()))
        self.sqnr, self.cosine = likeness(got, want)
        size = sum(x.size for x in inputs)
        outside = sum(int((np.abs(x) > (INT8[1] + 0.5) * s).sum()) for x, s in zip(inputs, self.scales))
        self.saturation = outside / size if size else 0.0


def find_attentions(graph: Graph) -> list[Attention]:
    """The attention of a graph in float32; `why_float` says what cannot be computed by integers."""
    users, kept = graph.users(), set(graph.results())
    found: list[Attention] = []
    for i, n in enumerate(graph.nodes):
        if n.op != "attention" or n.outputs[0].type.dtype is not float32:
            continue
        made = Attention(f"attention.{len(found)}", n.op, n.where or "", i, n.attrs["scale"], last=i)
        sums = n.outputs[1]
        keys = as_int(n.inputs[1].type.shape[-2]) if n.inputs[1] is not None else None
        if n.inputs[3] is not None or n.attrs["causal"] != "none":
            made.why_float = "it has a mask"
        elif users[sums] or sums in kept:
            made.why_float = "its log-sum-exp is read"
        elif not 0 < made.factor < float("inf"):
            made.why_float = f"its scores are multiplied by {made.factor}"
        elif keys is not None and keys > MOST_KEYS:
            made.why_float = f"sums over {keys} keys may not fit int32"
        elif any(v is None or v.type.dtype is not float32 for v in n.inputs[:3]):
            made.why_float = "its inputs are not all float32"
        found.append(made)
    return found
