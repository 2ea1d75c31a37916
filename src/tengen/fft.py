"""Discrete Fourier transforms along axes, of any length, with NumPy's names.

A length that is a product of 2, 3, 5, 7, 11 and 13 is transformed by stages of these factors (`kernels/fourier.py`); any other one as a
convolution of twice the length or more (Bluestein). Roots of unity are rounded correctly, so errors grow as the logarithm of the length.
Results are complex64, of float64 and complex128 numbers complex128; integers count as float32. Gradients and `vmap` go through. All
functions take `norm`: "backward" divides inverse transforms by their length n, "forward" the others, "ortho" both by the root of n.

Source: Cooley and Tukey, 1965; Bluestein, "A linear filtering approach to the computation of discrete Fourier transform", 1970

>>> from tengen import Tensor, fft
>>> fft.fft(Tensor([1.0, 0.0, 0.0, 0.0])).tolist()
[(1+0j), (1+0j), (1+0j), (1+0j)]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tengen.base.dtype import dtype as named
from tengen.base.dtype import float32, float64
from tengen.base.errors import ArgumentError, AxisError, DTypeError, ShapeError, TraceError, Undecided
from tengen.kernels.fourier import factors
from tengen.kernels.roots import roots_of_unity
from tengen.loops.lang import as_int
from tengen.ops.attributes import Axes, DeviceLike, DTypeLike
from tengen.ops.calls import all_with_line
from tengen.ops.define import REGISTRY, dispatch
from tengen.ops.shape import normalize_axis
from tengen.tensor import Tensor
from tengen.tensor.numpy_functions import FUNCTIONS

Parts = tuple[Tensor, Tensor]  # real, imaginary
EXCHANGED = {"backward": "forward", "forward": "backward", "ortho": "ortho"}  # the norm of the transform in the other direction


# ---- along one axis ----------------------------------------------------------------------------------------------------


def _parts(x: Tensor) -> tuple[Tensor, Tensor | None]:
    """The real and the imaginary parts, as floats; None for the imaginary ones of real numbers."""
    if x.dtype.is_complex:
        return REGISTRY["real_part"](x), REGISTRY["imag_part"](x)
    return (x if x.dtype in (float32, float64) else REGISTRY["astype"](x, float32)), None


def _length(x: Tensor, n: int | None, axis: int) -> int:
    found = as_int(x.shape[axis] if n is None else n)
    if found is None:
        raise Undecided(f"the length {x.shape[axis]} of a Fourier transform must be known when it is compiled")
    if found < 1:
        raise ShapeError(f"a Fourier transform of {found} points along axis {axis} of {x.shape}; help: n must be at least 1")
    return found


def _sized(x: Tensor, n: int, axis: int) -> Tensor:
    """x with n elements along an axis: the first ones, with zeros behind where there are fewer."""
    have = x.shape[axis]
    if have > n:
        return x[(slice(None),) * axis + (slice(0, n),)]
    return x if have == n else REGISTRY["pad"](x, [(0, n - have if a == axis else 0) for a in range(x.ndim)])


def _scale(n: int, norm: str | None, inverse: bool) -> float:
    norm = "backward" if norm is None else norm
    if norm not in EXCHANGED:
        raise ArgumentError(f"norm={norm!r} must be 'backward', 'ortho' or 'forward'")
    return 1 / math.sqrt(n) if norm == "ortho" else 1 / n if (norm == "backward") == inverse else 1.0


def _roots(n: int, like: Tensor) -> Tensor:
    return dispatch.tensor(roots_of_unity(n).astype(like.dtype.numpy))


def _transform(parts: tuple[Tensor, Tensor | None], n: int, axis: int, norm: str | None, inverse: bool) -> Parts:
    """The transform along an axis, of n elements. The inverse one is the other with real and imaginary parts exchanged."""
    real, imag = (None if p is None else REGISTRY["moveaxis"](_sized(p, n, axis), axis, -1) for p in parts)
    assert real is not None
    plain = imag is None
    imag = REGISTRY["zeros_like"](real) if imag is None else imag
    shape, scale = real.shape, _scale(n, norm, inverse)
    count = math.prod(shape[:-1])
    a, b = (REGISTRY["reshape"](p, (count, n)) for p in ((imag, real) if inverse else (real, imag)))
    made = REGISTRY["dft"](a, b, _roots(n, real), scale) if factors(n) is not None else _bluestein(a, b, n, scale)
    if plain:  # of real numbers the elements at 0 and n / 2 are real: sums in floating point leave a rounding error there
        made = [REGISTRY["where"](dispatch.tensor(2 * np.arange(n) % n == 0), 0.0, p) if (i == 0) == inverse else p for i, p in enumerate(made)]
    first, second = (REGISTRY["moveaxis"](REGISTRY["reshape"](p, shape), -1, axis) for p in made)
    return (second, first) if inverse else (first, second)


def _product(a: Parts, b: Parts) -> Parts:
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def _bluestein(real: Tensor, imag: Tensor, n: int, scale: float) -> Parts:
    """Lines of any length: j k = (j^2 + k^2 - (j - k)^2) / 2 makes the transform a convolution with w[k] = exp(-pi i k^2 / n), which is
    computed by transforms of m >= 2 n - 1 points, a power of two."""
    m = 1 << (2 * n - 2).bit_length()
    chirp = roots_of_unity(2 * n)[:, np.arange(n, dtype=np.int64) ** 2 % (2 * n)]
    around = np.zeros((2, m))
    around[0, :n], around[1, :n] = chirp[0], -chirp[1]
    around[:, m - n + 1 :] = around[:, n - 1 : 0 : -1]
    dft, to = REGISTRY["dft"], real.dtype.numpy
    table = _roots(m, real)
    w = tuple(dispatch.tensor(v.astype(to)) for v in chirp)
    filtered = dft(*(dispatch.tensor(v[None].astype(to)) for v in around), table, 1 / m)
    lines = tuple(REGISTRY["pad"](p, [(0, 0), (0, m - n)]) for p in _product((real, imag), w))
    far = _product(dft(*lines, table), filtered)
    b, a = dft(far[1], far[0], table, scale)
    return _product((a[:, :n], b[:, :n]), w)


def _joined(parts: Parts) -> Tensor:
    return REGISTRY["complex"](*parts)


def _along(x: Any, n: int | None, axis: int, norm: str | None, inverse: bool) -> Tensor:
    x = dispatch.tensor(x)
    a = normalize_axis(axis, x.ndim) if x.ndim else _no_axis(x)
    return _joined(_transform(_parts(x), _length(x, n, a), a, norm, inverse))


def _no_axis(x: Tensor) -> int:
    raise AxisError(f"a Fourier transform of a 0-d tensor, {x.dtype}[]; help: it needs an axis")


def fft(x: Tensor, n: int | None = None, axis: int = -1, norm: str | None = None) -> Tensor:
    """The sums over k of x[k] exp(-2 pi i j k / n) along an axis.

    Args: n: the first n elements, with zeros behind where there are fewer; default: all. norm: see the module.
    Returns: complex, with n elements along the axis. Errors: ShapeError for n < 1 or a 0-d tensor.

    >>> from tengen import Tensor
    >>> fft(Tensor([1.0, 2.0])).tolist()
    [(3+0j), (-1+0j)]
    """
    return _along(x, n, axis, norm, False)


def ifft(x: Tensor, n: int | None = None, axis: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of `fft`: the sums over k of x[k] exp(2 pi i j k / n), divided by n.

    >>> from tengen import Tensor
    >>> ifft(fft(Tensor([1.0, 2.0]))).tolist()
    [(1+0j), (2+0j)]
    """
    return _along(x, n, axis, norm, True)


def rfft(x: Tensor, n: int | None = None, axis: int = -1, norm: str | None = None) -> Tensor:
    """`fft` of real numbers: its first n // 2 + 1 elements, of which the others are the conjugates. Errors: DTypeError for complex ones.

    >>> from tengen import Tensor
    >>> rfft(Tensor([1.0, 2.0, 3.0])).shape
    (2,)
    """
    x = dispatch.tensor(x)
    if x.dtype.is_complex:
        raise DTypeError(f"rfft takes real numbers, got {x.dtype}; help: fft takes complex ones")
    a = normalize_axis(axis, x.ndim) if x.ndim else _no_axis(x)
    length = _length(x, n, a)
    made = _transform(_parts(x), length, a, norm, False)
    return _joined(tuple(_sized(p, length // 2 + 1, a) for p in made))


def irfft(x: Tensor, n: int | None = None, axis: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of `rfft`: n real numbers, by default 2 (m - 1) of m. The imaginary parts of the first element, and for an even n of the
    last one, are not read.

    >>> from tengen import Tensor
    >>> irfft(rfft(Tensor([1.0, 2.0, 3.0])), 3).tolist()
    [1.0, 2.0, 3.0]
    """
    x = dispatch.tensor(x)
    a = normalize_axis(axis, x.ndim) if x.ndim else _no_axis(x)
    length = _length(x, 2 * (as_int(x.shape[a]) or 1) - 2 if n is None else n, a)
    real, imag = _parts(x)
    imag = REGISTRY["zeros_like"](real) if imag is None else imag
    front = (slice(None),) * a
    whole = []
    for p, sign in ((real, 1), (imag, -1)):
        p = _sized(p, length // 2 + 1, a)
        rest = REGISTRY["flip"](p[(*front, slice(1, (length + 1) // 2))], a)
        whole.append(REGISTRY["concat"]([p, rest if sign > 0 else -rest], a))
    return _transform((whole[0], whole[1]), length, a, norm, True)[0]


def hfft(x: Tensor, n: int | None = None, axis: int = -1, norm: str | None = None) -> Tensor:
    """The transform of a sequence whose second half is the conjugate of its first, which is given: n real numbers."""
    x = dispatch.tensor(x)
    return irfft(REGISTRY["conj"](x) if x.dtype.is_complex else x, n, axis, EXCHANGED.get(norm or "backward", norm))


def ihfft(x: Tensor, n: int | None = None, axis: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of `hfft`: n // 2 + 1 complex numbers."""
    return REGISTRY["conj"](rfft(x, n, axis, EXCHANGED.get(norm or "backward", norm)))


# ---- along several axes ------------------------------------------------------------------------------------------------


def _sizes(x: Tensor, s: Sequence[int] | None, axes: Sequence[int] | None) -> list[tuple[int, int | None]]:
    """(axis, length or None) for each axis of a transform."""
    if axes is None:
        axes = range(x.ndim) if s is None else range(x.ndim - len(s), x.ndim)
    lengths: Sequence[int | None] = [None] * len(axes) if s is None else list(s)
    if len(lengths) != len(axes) or not axes:
        raise ShapeError(f"a Fourier transform of {x.shape} along axes {tuple(axes)} with lengths s={s}: a length for each axis is needed")
    return [(normalize_axis(a, x.ndim) if x.ndim else _no_axis(x), n) for a, n in zip(axes, lengths)]


def _over(x: Any, s: Sequence[int] | None, axes: Sequence[int] | None, norm: str | None, inverse: bool) -> Tensor:
    x = dispatch.tensor(x)
    parts: tuple[Tensor, Tensor | None] = _parts(x)
    for a, n in reversed(_sizes(x, s, axes)):
        parts = _transform(parts, _length(x, n, a), a, norm, inverse)
    return _joined(parts)


def fftn(x: Tensor, s: Sequence[int] | None = None, axes: Axes | None = None, norm: str | None = None) -> Tensor:
    """`fft` along several axes, all by default. s: the length along each, as `n` of `fft`; without axes those of the last ones."""
    return _over(x, s, axes, norm, False)


def ifftn(x: Tensor, s: Sequence[int] | None = None, axes: Axes | None = None, norm: str | None = None) -> Tensor:
    """`ifft` along several axes: the inverse of `fftn`."""
    return _over(x, s, axes, norm, True)


def rfftn(x: Tensor, s: Sequence[int] | None = None, axes: Axes | None = None, norm: str | None = None) -> Tensor:
    """`fftn` of real numbers: `rfft` along the last of the axes, then `fft` along the others."""
    x = dispatch.tensor(x)
    *others, (last, n) = _sizes(x, s, axes)
    y = rfft(x, n, last, norm)
    return y if not others else _over(y, [y.shape[a] if k is None else k for a, k in others], [a for a, _ in others], norm, False)


def irfftn(x: Tensor, s: Sequence[int] | None = None, axes: Axes | None = None, norm: str | None = None) -> Tensor:
    """The inverse of `rfftn`: `ifft` along all axes but the last one, then `irfft` along that."""
    x = dispatch.tensor(x)
    *others, (last, n) = _sizes(x, s, axes)
    if others:
        x = _over(x, [x.shape[a] if k is None else k for a, k in others], [a for a, _ in others], norm, True)
    return irfft(x, n, last, norm)


def fft2(x: Tensor, s: Sequence[int] | None = None, axes: Axes = (-2, -1), norm: str | None = None) -> Tensor:
    """`fftn` along two axes, the last ones by default."""
    return fftn(x, s, axes, norm)


def ifft2(x: Tensor, s: Sequence[int] | None = None, axes: Axes = (-2, -1), norm: str | None = None) -> Tensor:
    """`ifftn` along two axes, the last ones by default."""
    return ifftn(x, s, axes, norm)


def rfft2(x: Tensor, s: Sequence[int] | None = None, axes: Axes = (-2, -1), norm: str | None = None) -> Tensor:
    """`rfftn` along two axes, the last ones by default."""
    return rfftn(x, s, axes, norm)


def irfft2(x: Tensor, s: Sequence[int] | None = None, axes: Axes = (-2, -1), norm: str | None = None) -> Tensor:
    """`irfftn` along two axes, the last ones by default."""
    return irfftn(x, s, axes, norm)


# ---- frequencies -------------------------------------------------------------------------------------------------------


def _frequencies(k: np.ndarray, n: int, d: float, dtype: DTypeLike | None, device: DeviceLike | None) -> Tensor:
    kind = float32 if dtype is None else named(dtype)
    if not kind.is_float:
        raise DTypeError(f"frequencies are floats, not {kind}")
    return Tensor((k / (n * d)).astype(kind.numpy), device=device)


def fftfreq(n: int, d: float = 1.0, dtype: DTypeLike | None = None, device: DeviceLike | None = None) -> Tensor:
    """The frequencies of `fft`'s results for n samples at a distance d: 0, 1, ... and then the negative ones, divided by n d.

    Errors: ShapeError for n below 1

    >>> fftfreq(4, d=0.25).tolist()
    [0.0, 1.0, -2.0, -1.0]
    """
    if n < 1:
        raise ShapeError(f"fftfreq({n}): n must be at least 1")
    return _frequencies((np.arange(n) + n // 2) % n - n // 2, n, d, dtype, device)


def rfftfreq(n: int, d: float = 1.0, dtype: DTypeLike | None = None, device: DeviceLike | None = None) -> Tensor:
    """The frequencies of `rfft`'s results for n samples at a distance d.

    Errors: ShapeError for n below 1

    >>> rfftfreq(4, d=0.25).tolist()
    [0.0, 1.0, 2.0]
    """
    if n < 1:
        raise ShapeError(f"rfftfreq({n}): n must be at least 1")
    return _frequencies(np.arange(n // 2 + 1), n, d, dtype, device)


def _shifted(x: Any, axes: int | Sequence[int] | None, towards: int) -> Tensor:
    x = dispatch.tensor(x)
    found = range(x.ndim) if axes is None else (axes,) if isinstance(axes, int) else tuple(axes)
    shifts = [n // 2 if towards > 0 else -(n // 2) for n in (x.shape[normalize_axis(a, x.ndim)] for a in found)]
    return REGISTRY["roll"](x, shifts, tuple(found)) if shifts else x


def fftshift(x: Tensor, axes: int | Sequence[int] | None = None) -> Tensor:
    """The zero frequency moved to the middle of axes (all by default).

    >>> fftshift(fftfreq(4)).tolist()
    [-0.5, -0.25, 0.0, 0.25]
    """
    return _shifted(x, axes, 1)


def ifftshift(x: Tensor, axes: int | Sequence[int] | None = None) -> Tensor:
    """The inverse of `fftshift`."""
    return _shifted(x, axes, -1)


# ---- over time ---------------------------------------------------------------------------------------------------------------


def _window(name: str, window: Tensor | None, win_length: int | None, n_fft: int) -> Tensor | None:
    """The window with zeros on both sides, n_fft numbers; None: ones."""
    length = n_fft if win_length is None else win_length
    if not 0 < length <= n_fft or (window is not None and window.shape != (length,)):
        given = "no window" if window is None else f"a window of shape {window.shape}"
        raise ShapeError(f"{name}: win_length={length} and {given} do not fit n_fft={n_fft}; help: a vector of win_length numbers")
    if window is None and length == n_fft:
        return None
    w = REGISTRY["ones"]((length,), float32) if window is None else window
    left = (n_fft - length) // 2
    return REGISTRY["pad"](w, ((left, n_fft - length - left),)) if length < n_fft else w


def stft(
    x: Tensor, n_fft: int, hop_length: int | None = None, win_length: int | None = None, window: Tensor | None = None, center: bool = True,
    pad_mode: str = "reflect", normalized: bool = False, onesided: bool | None = None, return_complex: bool = True,
) -> Tensor:  # fmt: skip
    """The short-time Fourier transform, as PyTorch's: `fft` of windows of a signal. (L,) -> (F, T), or (B, L) -> (B, F, T), complex.

    Args:
        n_fft: the points of each transform. hop_length: between windows; default: n_fft // 4. win_length, window: the factors of each window's
            points, in its middle; default: ones. center: window t is around t hop_length, the signal is padded by `pad_mode`; else it begins
            there. normalized: divided by the root of n_fft. onesided: F = n_fft // 2 + 1, else n_fft; default: for real signals.
        return_complex: False gives (..., 2), the real and imaginary parts.
    Errors: ShapeError for other numbers of axes, for signals that are too short, and for windows that do not fit; DTypeError for a one-sided
        transform of complex numbers; SizeError of a traced function for signals of an open length that are too short

    >>> from tengen import functional as F, fft
    >>> fft.stft(F.ones(16), 8, window=F.hann_window(8)).shape
    (5, 9)
    """
    if x.ndim not in (1, 2):
        raise ShapeError(f"stft takes (L,) or (B, L), got {x.shape}")
    hop = n_fft // 4 if hop_length is None else hop_length
    w = _window("stft", window, win_length, n_fft)
    if center:
        side = n_fft // 2
        x = REGISTRY["pad"](x, (*((0, 0),) * (x.ndim - 1), (side, side)), pad_mode)
    length = x.shape[-1]
    if n_fft < 1 or hop < 1 or ((known := as_int(length)) is not None and known < n_fft):
        raise ShapeError(f"stft: a signal of {length} points (with padding) has no windows of n_fft={n_fft} at a distance of {hop}")
    numbers = lambda count: REGISTRY["arange"](count, dtype="int64")  # positions are computed: of long signals they are more than the signal
    at = numbers(1 + (length - n_fft) // hop).reshape(-1, 1) * hop + numbers(n_fft)
    parts = REGISTRY["take"](x, at, x.ndim - 1)
    parts = parts if w is None else parts * w
    norm = "ortho" if normalized else None
    onesided = not x.dtype.is_complex if onesided is None else onesided
    y = REGISTRY["swapaxes"](rfft(parts, None, -1, norm) if onesided else fft(parts, None, -1, norm), -1, -2)
    return y if return_complex else REGISTRY["view_as_real"](y)


def istft(
    x: Tensor, n_fft: int, hop_length: int | None = None, win_length: int | None = None, window: Tensor | None = None, center: bool = True,
    normalized: bool = False, onesided: bool | None = None, length: int | None = None, return_complex: bool = False,
) -> Tensor:  # fmt: skip
    """The signal of which `stft` has these transforms, by least squares: windows are added up and divided by the sum of their squares.

    Shapes: (F, T) -> (L,), (B, F, T) -> (B, L), complex -> real. Args: length: of the signal; default: as far as windows reach.
    return_complex: the signal was complex, and so its transforms are of all frequencies. The others as of `stft`.
    Errors: ShapeError for other shapes; ArgumentError where windows leave a point out, and for a complex signal of half its frequencies

    >>> from tengen import functional as F, fft
    >>> x = F.arange(16)
    >>> F.round(fft.istft(fft.stft(x, 8, 2), 8, 2)).tolist() == x.tolist()
    True
    """
    if x.ndim not in (2, 3) or not x.dtype.is_complex:
        raise ShapeError(f"istft takes complex transforms (F, T) or (B, F, T), got {x._layout.type!r}")
    onesided = x.shape[-2] != n_fft if onesided is None else onesided
    if x.shape[-2] != (n_fft // 2 + 1 if onesided else n_fft):
        raise ShapeError(f"istft: transforms of {x.shape[-2]} frequencies are not of n_fft={n_fft}, onesided={onesided}")
    if return_complex and onesided:
        raise ArgumentError("istft: return_complex=True needs the transforms of all frequencies; help: onesided=False")
    hop = n_fft // 4 if hop_length is None else hop_length
    w = _window("istft", window, win_length, n_fft)
    norm = "ortho" if normalized else None
    parts = REGISTRY["swapaxes"](x, -1, -2)
    parts = irfft(parts, n_fft, -1, norm) if onesided else ifft(parts, None, -1, norm)
    parts = parts if return_complex or onesided else REGISTRY["real_part"](parts)
    weights = REGISTRY["ones"]((n_fft,), parts.dtype.part if parts.dtype.is_complex else parts.dtype) if w is None else w
    count = parts.shape[-2]
    whole = n_fft + hop * (count - 1)
    at = Tensor((np.arange(count)[:, None] * hop + np.arange(n_fft)).reshape(-1))

    def added(v: Tensor) -> Tensor:
        """Windows (..., T, n_fft) added up where they lie."""
        flat = REGISTRY["reshape"](v, (*v.shape[:-2], -1))
        index = REGISTRY["broadcast_to"](at, flat.shape)
        return REGISTRY["scatter"](REGISTRY["zeros"]((*v.shape[:-2], whole), v.dtype), v.ndim - 2, index, flat, "add")

    y = added(parts * weights)
    over = added(REGISTRY["broadcast_to"](weights * weights, (count, n_fft)))
    first = n_fft // 2 if center else 0
    last = whole - n_fft // 2 if center and length is None else whole if length is None else min(first + length, whole)
    over = over[first:last]
    if abs(_values(over)).min(initial=1.0) < 1e-11:
        raise ArgumentError(f"istft: the windows leave points of the signal out; help: a hop_length below {hop}, or center=True")
    y = y[..., first:last] / over
    short = 0 if length is None else length - (last - first)
    return REGISTRY["pad"](y, (*((0, 0),) * (y.ndim - 1), (0, short))) if short > 0 else y


def _values(x: Tensor) -> np.ndarray:
    """The values of a tensor that depends on no input; of a window that only a run knows, ones."""
    try:
        return dispatch.known(x)
    except TraceError:
        return np.ones(1)


__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifft2", "ifftn", "ifftshift", "ihfft", "irfft", "irfft2", "irfftn",
    "istft", "rfft", "rfft2", "rfftfreq", "rfftn", "stft",
]  # fmt: skip
all_with_line(globals(), __all__)


def _numpy(name: str) -> Any:
    f = globals()[name]

    def call(a: Any, *args: Any, **kwargs: Any) -> Tensor:
        return f(a, *args, **kwargs)

    return call


FUNCTIONS.update({getattr(np.fft, name): _numpy(name) for name in __all__ if not name.endswith(("freq", "stft"))})
