"""What quantisation does to each layer, as a table and a picture."""

from __future__ import annotations

import html
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from tengen.jit import trace
from tengen.quantization.layers import Measured
from tengen.quantization.post_training import Road
from tengen.quantization.requantising import requantise
from tengen.tensor import Tensor

RUNS = 5  # of which the least time counts
HEAD = ("layer", "op", "range", "saturated", "SQNR", "cosine", "float32", "int8", "in float because")


class Report:
    """The layers of a network with their errors and times; `print` shows the table, notebooks the picture.

    Attributes: layers: `Layer` or `Attention` each. float_score, score: the metric in float32, and with all layers by integers.
    """

    def __init__(self, layers: list[Measured], float_score: float, score: float):
        self.layers, self.float_score, self.score = layers, float_score, score

    def rows(self) -> list[tuple[str, ...]]:
        """The table's rows, as texts."""
        told = lambda x, text: "" if np.isnan(x) else text.format(x)
        return [
            (
                layer.name, layer.op, "" if layer.why_float else f"{layer.low:.3g}..{layer.high:.3g}", told(100 * layer.saturation, "{:.2f} %"),
                told(layer.sqnr, "{:.1f} dB"), told(layer.cosine, "{:.5f}"), told(layer.float_ms, "{:.3f} ms"),
                told(layer.int8_ms, "{:.3f} ms" + " (slower)" * (layer.int8_ms > layer.float_ms)), layer.why_float,
            )
            for layer in self.layers
        ]  # fmt: skip

    def __str__(self) -> str:
        table = [HEAD, *self.rows()]
        widths = [max(len(row[i]) for row in table) for i in range(len(HEAD))]
        lines = ["  ".join(text.ljust(w) for text, w in zip(row, widths)).rstrip() for row in table]
        return "\n".join([*lines, f"{self.score:.2f} % by integers, {self.float_score:.2f} % in float32"])

    def svg(self) -> str:
        """A bar for each layer's signal to noise ratio, longest 60 dB."""
        parts = []
        for i, layer in enumerate(self.layers):
            y, length = 20 * i, 0.0 if np.isnan(layer.sqnr) else 6 * min(max(layer.sqnr, 0.0), 60.0)
            told = layer.why_float or f"{layer.sqnr:.1f} dB"
            parts.append(f'<text x="0" y="{y + 14}">{html.escape(layer.name)}</text>')
            parts.append(f'<rect x="240" y="{y + 3}" width="{length:.1f}" height="14" fill="#4a7"/>')
            parts.append(f'<text x="{246 + length:.1f}" y="{y + 14}">{html.escape(told)}</text>')
        size = f'width="760" height="{20 * len(self.layers)}" font-family="sans-serif" font-size="12"'
        return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{"".join(parts)}</svg>'

    def _repr_html_(self) -> str:
        return self.svg()


def report(model: Any, data: Any, timed: bool = False, **more: Any) -> Report:
    """What integers of 8 bits do to each layer of a network.

    Args: model, data: as of `ptq`, and so are all others. timed: measures each layer in float32 and in int8, which compiles it
        twice; a layer that int8 makes slower has the word beside its time.

    >>> import numpy as np
    >>> from tengen import module as M
    >>> from tengen.quantization import report
    >>> "0.weight  matmul" in str(report(M.Sequential(M.Linear(8, 4)), np.ones((5, 8), "float32")))
    True
    """
    settings = {
        "labels": None,
        "metric": None,
        "calibrator": "mse",
        "asymmetric": False,
        "bias_correction": True,
        "adaround": 0,
    } | more
    road = Road(model, data, **settings)
    score, _ = road.scored(requantise(road.program(lambda layer: True)))
    if timed:
        able = [layer for layer in road.layers if not layer.why_float]
        for inputs in road.inputs(able):
            for layer, xs in zip(able, inputs):
                layer.float_ms, layer.int8_ms = (_least(f, *map(Tensor, xs)) for f in (layer.in_float, layer.by_integers()))
            break
    return Report(road.layers, road.float_score, score)


def _least(f: Callable[..., Tensor], *xs: Tensor) -> float:
    """The least time of some runs, in milliseconds."""
    traced = trace(f)
    traced(*xs)
    taken = []
    for _ in range(RUNS):
        start = time.perf_counter()
        traced(*xs)
        taken.append(time.perf_counter() - start)
    return 1000 * min(taken)
