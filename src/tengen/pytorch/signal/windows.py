"""`torch.signal.windows`: windows of M points, symmetric unless `sym=False` makes them periodic: the first M points of M + 1."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from typing import Any

from tengen import functional as F
from tengen.base.dtype import dtype as named
from tengen.base.errors import ArgumentError
from tengen.base.lazy import NoSuchName
from tengen.functional import bessel
from tengen.ops.calls import all_with_line
from tengen.pytorch.functions.dtypes import get_default_dtype
from tengen.tensor import Tensor
from tengen.tensor.leaves import set_requires_grad


def _checked(name: str, M: int, dtype: Any) -> Any:
    found = get_default_dtype() if dtype is None else named(dtype)
    if M < 0:
        raise ArgumentError(f"{name}: M={M} must not be negative")
    if found.name not in ("float32", "float64"):
        raise ArgumentError(f"{name}: dtype={found} must be float32 or float64")
    return found


def _finished(x: Tensor, dtype: Any, requires_grad: bool) -> Tensor:
    x = x.astype(dtype)
    if requires_grad:
        set_requires_grad(x, True)
    return x


def _points(M: int, start: float, step: float) -> Tensor:
    return F.arange(M, dtype="float64") * step + start


def _length(M: int, sym: bool) -> int:
    """How many steps lie between the first point and the last one of the symmetric window that it is cut from."""
    return M - 1 if sym or M <= 1 else M


def general_cosine(
    M: int, *, a: Iterable[float], sym: bool = True, dtype: Any = None, layout: Any = "strided", device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """The sum of (-1)^i a[i] cos(2 pi i n / (M - 1)). Args: a: at least one weight. Errors: TypeError, ValueError for no weights

    >>> general_cosine(3, a=[0.5, 0.5]).tolist()
    [0.0, 1.0, 0.0]
    """
    kind = _checked("general_cosine", M, dtype)
    if not isinstance(a, Iterable):
        raise TypeError("general_cosine: a must be a list of numbers")
    weights = list(a)
    if not weights:
        raise ArgumentError("general_cosine: a must hold at least one number")
    if M <= 1:
        return _finished(F.ones((M,), "float64"), kind, requires_grad)
    k = _points(M, 0.0, 2 * math.pi / _length(M, sym))
    total = F.full((M,), weights[0], "float64")
    for i, w in enumerate(weights[1:], 1):
        total = total + F.cos(k * i) * ((-1) ** i * w)
    return _finished(total, kind, requires_grad)


def general_hamming(
    M: int, *, alpha: float = 0.54, sym: bool = True, dtype: Any = None, layout: Any = "strided", device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """`general_cosine` of [alpha, 1 - alpha]."""
    return general_cosine(M, a=[alpha, 1.0 - alpha], sym=sym, dtype=dtype, requires_grad=requires_grad)


def hamming(
    M: int, *, sym: bool = True, dtype: Any = None, layout: Any = "strided", device: Any = None, requires_grad: bool = False
) -> Tensor:
    """Hamming's window: `general_hamming` with alpha=0.54."""
    return general_hamming(M, sym=sym, dtype=dtype, requires_grad=requires_grad)


def hann(M: int, *, sym: bool = True, dtype: Any = None, layout: Any = "strided", device: Any = None, requires_grad: bool = False) -> Tensor:
    """Hann's window: `general_hamming` with alpha=0.5.

    >>> hann(3).tolist(), hann(2, sym=False).tolist()
    ([0.0, 1.0, 0.0], [0.0, 1.0])
    """
    return general_hamming(M, alpha=0.5, sym=sym, dtype=dtype, requires_grad=requires_grad)


def blackman(
    M: int, *, sym: bool = True, dtype: Any = None, layout: Any = "strided", device: Any = None, requires_grad: bool = False
) -> Tensor:
    """Blackman's window: `general_cosine` of three weights."""
    return general_cosine(M, a=[0.42, 0.5, 0.08], sym=sym, dtype=dtype, requires_grad=requires_grad)


def nuttall(
    M: int, *, sym: bool = True, dtype: Any = None, layout: Any = "strided", device: Any = None, requires_grad: bool = False
) -> Tensor:
    """Nuttall's window: `general_cosine` of four weights."""
    return general_cosine(M, a=[0.3635819, 0.4891775, 0.1365995, 0.0106411], sym=sym, dtype=dtype, requires_grad=requires_grad)


def bartlett(
    M: int, *, sym: bool = True, dtype: Any = None, layout: Any = "strided", device: Any = None, requires_grad: bool = False
) -> Tensor:
    """Bartlett's window, a triangle."""
    kind = _checked("bartlett", M, dtype)
    if M <= 1:
        return _finished(F.ones((M,), "float64"), kind, requires_grad)
    return _finished(1.0 - F.abs(_points(M, -1.0, 2.0 / _length(M, sym))), kind, requires_grad)


def cosine(
    M: int, *, sym: bool = True, dtype: Any = None, layout: Any = "strided", device: Any = None, requires_grad: bool = False
) -> Tensor:
    """Half a wave of a sine, at the middles of its parts."""
    kind = _checked("cosine", M, dtype)
    step = math.pi / (max(_length(M, sym), 0) + 1)
    return _finished(F.sin(_points(M, 0.5 * step, step)), kind, requires_grad)


def gaussian(
    M: int, *, std: float = 1.0, sym: bool = True, dtype: Any = None, layout: Any = "strided", device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """exp(-n^2 / (2 std^2)) around the middle. Errors: ValueError for a std that is not positive"""
    kind = _checked("gaussian", M, dtype)
    if std <= 0:
        raise ArgumentError(f"gaussian: std={std} must be positive")
    step = 1.0 / (std * math.sqrt(2.0))
    k = _points(M, -0.5 * _length(M, sym) * step, step)
    return _finished(F.exp(-k * k), kind, requires_grad)


def exponential(
    M: int, *, center: float | None = None, tau: float = 1.0, sym: bool = True, dtype: Any = None, layout: Any = "strided",
    device: Any = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """exp(-|n - center| / tau). Args: center: None for the middle, which symmetric windows need.

    Errors: ValueError for a tau that is not positive, and for a center of a symmetric window
    """
    kind = _checked("exponential", M, dtype)
    if tau <= 0:
        raise ArgumentError(f"exponential: tau={tau} must be positive")
    if sym and center is not None:
        raise ArgumentError(f"exponential: center={center} must be None with sym=True")
    middle = 0.5 * _length(M, sym) if center is None else center
    return _finished(F.exp(-F.abs(_points(M, -middle / tau, 1.0 / tau))), kind, requires_grad)


def kaiser(
    M: int, *, beta: float = 12.0, sym: bool = True, dtype: Any = None, layout: Any = "strided", device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Kaiser's window: I_0(beta sqrt(1 - x^2)) / I_0(beta) for x from -1 to 1. Errors: ValueError for a negative beta"""
    kind = _checked("kaiser", M, dtype)
    if beta < 0:
        raise ArgumentError(f"kaiser: beta={beta} must not be negative")
    if M <= 1:
        return _finished(F.ones((M,), "float64"), kind, requires_grad)
    x = _points(M, -1.0, 2.0 / _length(M, sym))
    root = F.sqrt(F.maximum(1.0 - x * x, 0.0))
    return _finished(bessel.i0(root * beta) / bessel.i0(Tensor(float(beta), dtype="float64")), kind, requires_grad)


def __getattr__(name: str) -> Any:
    raise NoSuchName("tengen.pytorch.signal.windows", name, lambda: dir(sys.modules[__name__]))


__all__ = [
    "bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine", "general_hamming", "hamming", "hann", "kaiser", "nuttall",
]  # fmt: skip
all_with_line(globals(), __all__)
