"""`torch.signal.windows`: weights of M points, which fall towards both ends.

sym=True (default) gives symmetric windows, for filters; sym=False the first M of M + 1 points, whose repetition is smooth, for spectra. They
are computed in float64 and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from tengen import functional as F
from tengen.base.errors import ArgumentError
from tengen.functional.bessel import i0
from tengen.pytorch.functions.dtypes import get_default_dtype
from tengen.tensor import Tensor


def _window(points: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The window of points(k, n, ...): k are the places 0 .. M - 1, n - 1 is the last place of the symmetric window that has them."""

    @wraps(points)
    def window(
        M: int, *args: Any, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
        **named: Any,
    ) -> Tensor:  # fmt: skip
        if M < 0:
            raise ArgumentError(f"{points.__name__}: M={M} must be 0 or more")
        wanted = get_default_dtype() if dtype is None else dtype
        n = M if sym else M + 1
        made = F.ones((M,), "float64") if n <= 1 or M == 1 else points(F.arange(M, dtype="float64"), n, *args, **named)
        made = made.astype(wanted)
        return made.requires_grad_() if requires_grad else made

    return window


@_window
def general_cosine(k: Tensor, n: int, a: Sequence[float]) -> Tensor:
    """The sum of (-1)^i a[i] cos(2 pi i k / (M - 1)). Args: M: points; a: the weights."""
    if not a:
        raise ArgumentError("general_cosine: a has no weights")
    total = F.zeros(k.shape, "float64")
    for i, weight in enumerate(a):
        total = total + F.cos(k * (2 * math.pi * i / (n - 1))) * (weight if i % 2 == 0 else -weight)
    return total


@_window
def general_hamming(k: Tensor, n: int, alpha: float = 0.54) -> Tensor:
    """alpha - (1 - alpha) cos(2 pi k / (M - 1)). Args: M: points; alpha."""
    return alpha - F.cos(k * (2 * math.pi / (n - 1))) * (1 - alpha)


@_window
def hamming(k: Tensor, n: int) -> Tensor:
    """0.54 - 0.46 cos(2 pi k / (M - 1)). Args: M: points."""
    return 0.54 - F.cos(k * (2 * math.pi / (n - 1))) * 0.46


@_window
def hann(k: Tensor, n: int) -> Tensor:
    """sin(pi k / (M - 1))^2. Args: M: points.

    >>> hann(5).tolist()
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    return 0.5 - F.cos(k * (2 * math.pi / (n - 1))) * 0.5


@_window
def blackman(k: Tensor, n: int) -> Tensor:
    """0.42 - 0.5 cos(2 pi k / (M - 1)) + 0.08 cos(4 pi k / (M - 1)). Args: M: points."""
    step = 2 * math.pi / (n - 1)
    return 0.42 - F.cos(k * step) * 0.5 + F.cos(k * (2 * step)) * 0.08


@_window
def nuttall(k: Tensor, n: int) -> Tensor:
    """A cosine window of four terms, whose side lobes lie 98 dB below. Args: M: points."""
    step = 2 * math.pi / (n - 1)
    return 0.3635819 - F.cos(k * step) * 0.4891775 + F.cos(k * (2 * step)) * 0.1365995 - F.cos(k * (3 * step)) * 0.0106411


@_window
def bartlett(k: Tensor, n: int) -> Tensor:
    """A triangle: 1 - |2 k / (M - 1) - 1|. Args: M: points."""
    return 1 - F.abs(k * (2 / (n - 1)) - 1)


@_window
def cosine(k: Tensor, n: int) -> Tensor:
    """sin(pi (k + 1 / 2) / M). Args: M: points."""
    return F.sin((k + 0.5) * (math.pi / n))


@_window
def exponential(k: Tensor, n: int, *, center: float | None = None, tau: float = 1.0) -> Tensor:
    """exp(-|k - center| / tau). Args: M: points; center: None is the middle; tau: above 0.

    Errors: ArgumentError for a tau that is not above 0
    """
    if tau <= 0:
        raise ArgumentError(f"exponential: tau={tau} must be above 0")
    return F.exp(F.abs(k - ((n - 1) / 2 if center is None else center)) / -tau)


@_window
def gaussian(k: Tensor, n: int, *, std: float = 1.0) -> Tensor:
    """exp(-((k - (M - 1) / 2) / std)^2 / 2). Args: M: points; std: above 0.

    Errors: ArgumentError for an std that is not above 0
    """
    if std <= 0:
        raise ArgumentError(f"gaussian: std={std} must be above 0")
    return F.exp(F.square((k - (n - 1) / 2) / std) * -0.5)


@_window
def kaiser(k: Tensor, n: int, *, beta: float = 12.0) -> Tensor:
    """i0(beta sqrt(1 - (2 k / (M - 1) - 1)^2)) / i0(beta). Args: M: points; beta: 0 or more.

    Errors: ArgumentError for a negative beta
    """
    if beta < 0:
        raise ArgumentError(f"kaiser: beta={beta} must be 0 or more")
    place = k * (2 / (n - 1)) - 1
    return i0(F.sqrt(F.maximum(1 - place * place, 0.0)) * beta) / i0(Tensor(beta, dtype="float64"))


__all__ = [
    "bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine", "general_hamming", "hamming", "hann", "kaiser", "nuttall",
]  # fmt: skip
