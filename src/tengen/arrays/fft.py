"""The array API's extension `fft`: the functions of `tengen.fft` for the dtypes that the standard lets them take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import tengen.fft as ours
from tengen.arrays.rules import array
from tengen.base.dtype import DType
from tengen.base.errors import DTypeError
from tengen.tensor import Tensor

Norm = Literal["backward", "ortho", "forward"]
TAKES = {  # function -> category of dtypes
    "fft": "complex floating-point", "ifft": "complex floating-point", "rfft": "real floating-point", "irfft": "complex floating-point",
    "hfft": "complex floating-point", "ihfft": "real floating-point",
}  # fmt: skip
TAKES |= {f"{name}n": TAKES[name] for name in ("fft", "ifft", "rfft", "irfft")}


def _function(name: str) -> Callable:
    call, category = getattr(ours, name), TAKES[name]

    def one(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
        return call(array(name, x, category), n, axis, norm)

    def several(x: Tensor, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: Norm = "backward") -> Tensor:
        return call(array(name, x, category), s, axes, norm)

    f = several if name.endswith("n") else one
    f.__name__ = f.__qualname__ = name
    f.__doc__ = f"`tengen.fft.{name}`. Takes arrays of {category} dtypes."
    return f


globals().update({name: _function(name) for name in TAKES})


def _floats(name: str, dtype: DType | None) -> DType | None:
    if dtype is not None and (not isinstance(dtype, DType) or not dtype.is_float):
        raise DTypeError(f"{name}: dtype={dtype!r} must be a real floating-point dtype")
    return dtype


def fftfreq(n: int, /, *, d: float = 1.0, dtype: DType | None = None, device: Any = None) -> Tensor:
    """The frequencies of `fft`'s results for n samples at a distance d."""
    return ours.fftfreq(n, d, _floats("fftfreq", dtype), device)


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: DType | None = None, device: Any = None) -> Tensor:
    """The frequencies of `rfft`'s results for n samples at a distance d."""
    return ours.rfftfreq(n, d, _floats("rfftfreq", dtype), device)


def fftshift(x: Tensor, /, *, axes: int | Sequence[int] | None = None) -> Tensor:
    """The zero frequency moved to the middle of axes (all by default)."""
    return ours.fftshift(array("fftshift", x, "floating-point"), axes)


def ifftshift(x: Tensor, /, *, axes: int | Sequence[int] | None = None) -> Tensor:
    """The inverse of `fftshift`."""
    return ours.ifftshift(array("ifftshift", x, "floating-point"), axes)


__all__ = [*TAKES, "fftfreq", "fftshift", "ifftshift", "rfftfreq"]


def __dir__() -> list[str]:
    return sorted(__all__)
