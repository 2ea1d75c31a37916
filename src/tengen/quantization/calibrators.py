"""From what a tensor held during calibration to the range that its integers cover.

In: a `Histogram`, or samples. Out: (low, high). `CALIBRATORS` names them: "minmax", "moving_average", "percentile", "kl",
"mse".
Ranges hold 0, so that it is rounded to itself.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tengen.quantization.dtypes import QuantizationError

BINS = 2048
CANDIDATES = 80  # ranges that are tried between a fiftieth of the whole one and all of it


class Histogram:
    """Counts of a tensor's numbers over several runs, with their extrema and a moving average of those.

    Args: bins: the range is doubled, and bins are joined, where a number lies outside of it.
    """

    def __init__(self, bins: int = BINS):
        self.bins, self.edge = bins, 0.0  # bins from -edge to edge
        self.counts = np.zeros(bins)
        self.low, self.high, self.average = np.inf, -np.inf, None
        self.decay = 0.9

    def add(self, x: np.ndarray) -> None:
        """Counts a tensor.

        Errors: QuantizationError where it holds NaN or inf
        """
        x = np.asarray(x, np.float64).reshape(-1)
        if not x.size:
            return
        low, high = float(x.min()), float(x.max())
        if not (np.isfinite(low) and np.isfinite(high)):
            raise QuantizationError("calibration data makes NaN or inf; help: debug.check_finite finds where it comes from")
        self.low, self.high = min(self.low, low), max(self.high, high)
        a = self.average
        self.average = (
            (low, high) if a is None else tuple(self.decay * o + (1 - self.decay) * n for o, n in zip(a, (low, high)))
        )
        most = max(-low, high)
        if not self.edge:
            self.edge = most
        while 0 < self.edge < most:
            quarter = self.bins // 4
            joined = self.counts.reshape(-1, 2).sum(1)
            self.counts = np.concatenate([np.zeros(quarter), joined, np.zeros(quarter)])
            self.edge *= 2
        if self.edge:
            self.counts += np.histogram(x, self.bins, (-self.edge, self.edge))[0]

    @property
    def edges(self) -> np.ndarray:
        """Where bins begin and end."""
        return np.linspace(-self.edge, self.edge, self.bins + 1)

    def range(self) -> tuple[float, float]:
        """The smallest and the largest number.

        Errors: QuantizationError where nothing was counted
        """
        if self.low > self.high:
            raise QuantizationError("calibration saw no data; help: give ptq at least one batch")
        return self.low, self.high


def minmax(h: Histogram, steps: int, symmetric: bool) -> tuple[float, float]:
    """All that was seen."""
    return h.range()


def moving_average(h: Histogram, steps: int, symmetric: bool) -> tuple[float, float]:
    """Moving averages of the extrema of each run."""
    h.range()
    assert h.average is not None
    return h.average[0], h.average[1]


def percentile(h: Histogram, steps: int, symmetric: bool, share: float = 0.9999) -> tuple[float, float]:
    """What holds all but a ten-thousandth of the numbers."""
    low, high = h.range()
    if not h.edge:
        return low, high
    total = np.cumsum(h.counts) / max(h.counts.sum(), 1)
    middle = 0.5 * (h.edges[1:] + h.edges[:-1])
    tail = (1 - share) / (1 if low >= 0 or high <= 0 else 2)
    first = middle[np.searchsorted(total, tail)] if low < 0 else low
    last = middle[min(np.searchsorted(total, 1 - tail), len(middle) - 1)] if high > 0 else high
    return max(low, min(first, 0.0)), min(high, max(last, 0.0))


def error_of_range(counts: np.ndarray, edges: np.ndarray, steps: int, symmetric: bool) -> tuple[float, float]:
    """The range with the least squared error of rounding and saturation, of those that shrink the whole one."""
    low, high = min(float(edges[0]), 0.0), max(float(edges[-1]), 0.0)
    x = 0.5 * (edges[1:] + edges[:-1])
    if symmetric:
        low, high = -max(-low, high), max(-low, high)
    best = (np.inf, low, high)
    for share in np.linspace(0.02, 1, CANDIDATES):
        a, b = low * share, high * share
        scale = (b - a) / steps
        if scale <= 0:
            break
        rounded = np.clip(np.rint(x / scale), np.rint(a / scale), np.rint(b / scale)) * scale
        inside = (x >= a) & (x <= b)
        error = (counts * np.where(inside, scale * scale / 12, (rounded - x) ** 2)).sum()
        best = min(best, (error, a, b))
    return best[1], best[2]


def mse(h: Histogram, steps: int, symmetric: bool) -> tuple[float, float]:
    """The least squared error of rounding and saturation."""
    low, high = h.range()
    if not h.edge:
        return low, high
    keep = (h.edges[1:] > low) & (h.edges[:-1] < high)
    first, last = np.flatnonzero(keep)[[0, -1]] if keep.any() else (0, h.bins - 1)
    return error_of_range(h.counts[first : last + 1], h.edges[first : last + 2], steps, symmetric)


def kl(h: Histogram, steps: int, symmetric: bool) -> tuple[float, float]:
    """The least Kullback-Leibler divergence between what was seen and what is left of it (Migacz, "8-bit inference with
    TensorRT",
    2017), over magnitudes."""
    low, high = h.range()
    if not h.edge:
        return low, high
    half = h.bins // 2
    p = h.counts[half:] + h.counts[half - 1 :: -1]
    levels = (steps + 1) // 2 if low < 0 else steps + 1
    best = (np.inf, half)
    for size in range(min(levels, half), half + 1, max(1, half // CANDIDATES)):
        kept = p[:size].copy()
        kept[-1] += p[size:].sum()
        groups = np.arange(size) * levels // size
        sums = np.bincount(groups, p[:size], levels)
        filled = np.bincount(groups, p[:size] > 0, levels)
        q = np.where(p[:size] > 0, (sums / np.maximum(filled, 1))[groups], 0)
        if not q.sum() or not kept.sum():
            continue
        a, b = kept / kept.sum(), q / q.sum()
        some = a > 0
        divergence = float((a[some] * np.log(a[some] / np.maximum(b[some], 1e-12))).sum())
        best = min(best, (divergence, size))
    most = h.edge * best[1] / half
    return max(low, -most), min(high, most)


CALIBRATORS: dict[str, Callable[[Histogram, int, bool], tuple[float, float]]] = {
    "minmax": minmax, "moving_average": moving_average, "percentile": percentile, "kl": kl, "mse": mse,
}  # fmt: skip


def scale_and_zero(low: float, high: float, qmin: int, qmax: int, symmetric: bool) -> tuple[np.float32, int]:
    """The scale and zero point of a range. One that holds nothing but 0 has scale 1: every scale is as good."""
    low, high = min(low, 0.0), max(high, 0.0)
    if symmetric:
        most = max(-low, high)
        return np.float32(most / min(-qmin, qmax)) if most >= 2.0**-90 else np.float32(1), 0
    if high - low < 2.0**-90:
        return np.float32(1), 0
    scale = np.float32((high - low) / (qmax - qmin))
    return scale, int(np.clip(np.rint(qmin - low / scale), qmin, qmax))
