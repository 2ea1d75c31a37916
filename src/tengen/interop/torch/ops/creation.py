"""New tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tengen.functional as F
from tengen import fft
from tengen.base.dtype import bool_, float32, int64
from tengen.interop.torch.dtypes import named, of, tensor
from tengen.interop.torch.registry import op
from tengen.loops.lang import Expr
from tengen.ops.reduce import extent
from tengen.tensor import Tensor


def _made(size: Sequence[Any], value: Any, dtype: str | None) -> Tensor:
    d = bool_ if isinstance(value, bool) else int64 if isinstance(value, (int, Expr)) else float32
    return F.broadcast_to(tensor(value, named(dtype, value.dtype if isinstance(value, Tensor) else d)), tuple(size))


@op("full")
def full(size: Sequence[Any], value: Any, *, dtype: str | None = None) -> Tensor:
    """One value everywhere."""
    return _made(size, value, dtype)


@op("full_like")
def full_like(x: Tensor, value: Any, *, dtype: str | None = None) -> Tensor:
    """One value in the shape of x."""
    return _made(x.shape, value, dtype or x.dtype.name)


@op("empty.memory_format")
def empty(size: Sequence[Any], *, dtype: str | None = None) -> Tensor:
    """Zeros: what is not yet written has a value."""
    return _made(size, 0.0, dtype)


@op("empty_strided", "empty_permuted")
def empty_strided(size: Sequence[Any], stride: Any, *, dtype: str | None = None) -> Tensor:
    """Zeros; memory is dense here, whatever the strides."""
    return _made(size, 0.0, dtype)


@op("empty_like", "zeros_like")
def zeros_like(x: Tensor, *, dtype: str | None = None) -> Tensor:
    """Zeros in the shape of x."""
    return full_like(x, 0, dtype=dtype)


@op("ones_like")
def ones_like(x: Tensor, *, dtype: str | None = None) -> Tensor:
    """Ones in the shape of x."""
    return full_like(x, 1, dtype=dtype)


op("zeros")(lambda size, *, dtype=None: _made(size, 0.0, dtype))
op("ones")(lambda size, *, dtype=None: _made(size, 1.0, dtype))
op("new_zeros", "new_empty")(lambda x, size, *, dtype=None: _made(size, 0, dtype or x.dtype.name))
op("new_empty_strided")(lambda x, size, stride, *, dtype=None: _made(size, 0, dtype or x.dtype.name))
op("new_ones")(lambda x, size, *, dtype=None: _made(size, 1, dtype or x.dtype.name))
op("new_full")(lambda x, size, value, *, dtype=None: _made(size, value, dtype or x.dtype.name))


@op("scalar_tensor")
def scalar_tensor(value: Any, *, dtype: str | None = None) -> Tensor:
    """A number without axes; float32 by default."""
    return tensor(value, named(dtype))


@op("arange.start_step")
def arange(start: Any, end: Any, step: Any = 1, *, dtype: str | None = None) -> Tensor:
    """start, start + step, ... below end; of integers int64."""
    whole = all(isinstance(v, (int, Expr)) for v in (start, end, step))
    d = named(dtype, int64 if whole else float32)
    if whole and d.is_float:  # counted in integers, as PyTorch does
        return of(F.arange(start, end, step, "int64"), d)
    return F.arange(start, end, step, d)


@op("arange")
def arange_end(end: Any, *, dtype: str | None = None) -> Tensor:
    """0, 1, ... below end."""
    return arange(0, end, 1, dtype=dtype)


@op("arange.start")
def arange_start(start: Any, end: Any, *, dtype: str | None = None) -> Tensor:
    """start, start + 1, ... below end."""
    return arange(start, end, 1, dtype=dtype)


@op("linspace")
def linspace(start: Any, end: Any, steps: int, *, dtype: str | None = None) -> Tensor:
    """Evenly spaced numbers."""
    return F.linspace(start, end, steps, named(dtype))


for _name, _window in {"bartlett": F.bartlett_window, "blackman": F.blackman_window}.items():
    op(f"{_name}_window", f"{_name}_window.periodic")(
        lambda n, periodic=True, *, dtype=None, window=_window: window(n, periodic, dtype=named(dtype))
    )


@op("hamming_window", "hamming_window.periodic", "hamming_window.periodic_alpha", "hamming_window.periodic_alpha_beta")
def hamming_window(n: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, *, dtype: str | None = None) -> Tensor:
    """alpha - beta cos."""
    return F.hamming_window(n, periodic, alpha, beta, named(dtype))


@op("kaiser_window", "kaiser_window.periodic", "kaiser_window.beta")
def kaiser_window(n: int, periodic: bool = True, beta: float = 12.0, *, dtype: str | None = None) -> Tensor:
    """By Bessel functions of order 0."""
    return F.kaiser_window(n, periodic, beta, named(dtype))


op("fft_fftfreq")(lambda n, d=1.0, *, dtype=None: of(fft.fftfreq(n, d=d), named(dtype)))
op("fft_rfftfreq")(lambda n, d=1.0, *, dtype=None: of(fft.rfftfreq(n, d=d), named(dtype)))


@op("eye", "eye.m")
def eye(n: Any, m: Any = None, *, dtype: str | None = None) -> Tensor:
    """Ones on the diagonal."""
    return F.eye(n, m, 0, named(dtype))


@op("tril_indices")
def tril_indices(rows: int, columns: int, offset: int = 0, *, dtype: str | None = None) -> Tensor:
    """The (2, N) indices of a lower triangle."""
    return F.tril_indices(rows, columns, offset).astype(named(dtype, int64))


@op("triu_indices")
def triu_indices(rows: int, columns: int, offset: int = 0, *, dtype: str | None = None) -> Tensor:
    """The (2, N) indices of an upper triangle."""
    return F.triu_indices(rows, columns, offset).astype(named(dtype, int64))


def _count(x: Tensor) -> Any:
    return math.prod(x.shape)


op("sym_numel")(_count)
op("numel")(lambda x: _count(x) if isinstance(_count(x), int) else extent(_count(x), int64))
