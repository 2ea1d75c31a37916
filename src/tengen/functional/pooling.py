"""Pooling over one, two and three axes of space: MegEngine's functions, with PyTorch's further arguments, and PyTorch's functions.

Images are (N, C, *space), or without a batch (C, *space), as in PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tengen.base.errors import ArgumentError, ShapeError
from tengen.functional.windows import adaptive_places, max_of, mean_of
from tengen.loops.lang import as_int
from tengen.ops.calls import all_with_line
from tengen.ops.define import REGISTRY
from tengen.ops.pool import avg_pool as _avg
from tengen.ops.pool import max_pool as _max
from tengen.ops.reduce import mean as _mean
from tengen.ops.widths import rounded_once
from tengen.random.state import uniform
from tengen.tensor import Tensor


def _batched(name: str, inp: Tensor, n: int, pool: Callable[[Tensor], Any]) -> Any:
    """pool(inp), or of an image without a batch, of a batch of it."""
    if inp.ndim == n + 2:
        return pool(inp)
    if inp.ndim != n + 1:
        raise ShapeError(f"{name}{n}d takes a tensor of {n + 2} axes (batch, channels, {n} of space), or without a batch, got {inp.shape}")
    made = pool(REGISTRY["expand_dims"](inp, 0))
    return tuple(t[0] for t in made) if isinstance(made, tuple) else made[0]


def _max_pool(n: int, inp: Tensor, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, return_indices: bool) -> Any:
    def pool(x: Tensor) -> Any:
        if dilation == 1 and not ceil_mode and not return_indices:
            return _max(x, kernel, stride, padding)
        made = max_of(x, n, kernel, stride, padding, dilation, ceil_mode, return_indices)
        return made if return_indices else made[0]

    return _batched("max_pool", inp, n, pool)


def _avg_pool(
    n: int, inp: Tensor, kernel: Any, stride: Any, padding: Any, mode: str, ceil_mode: bool, count_include_pad: bool | None,
    divisor_override: int | None,
) -> Tensor:  # fmt: skip
    if str(mode).lower() not in ("average", "average_count_exclude_padding"):
        raise ArgumentError(f"avg_pool{n}d: mode={mode!r} must be 'average' or 'average_count_exclude_padding'; help: ceil_mode= by its name")
    if divisor_override is not None and divisor_override == 0:
        raise ArgumentError(f"avg_pool{n}d: divisor_override=0 divides by zero")
    counted = mode.lower() == "average" if count_include_pad is None else count_include_pad

    def pool(x: Tensor) -> Tensor:
        if not ceil_mode and divisor_override is None:
            return _avg(x, kernel, stride, padding, "average" if counted else "average_count_exclude_padding")
        x = x if x.dtype.is_float else REGISTRY["astype"](x, "float32")
        return mean_of(x, n, kernel, stride, padding, ceil_mode, counted, divisor_override)

    return _batched("avg_pool", inp, n, pool)


def max_pool1d(
    inp: Tensor, kernel_size, stride=None, padding=0, dilation=1, ceil_mode: bool = False, return_indices: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """The largest element of each window of (N, C, L). See `max_pool2d`.

    >>> from tengen import functional as F
    >>> F.max_pool1d(F.arange(6).reshape(1, 1, 6), 2).tolist()
    [[[1.0, 3.0, 5.0]]]
    """
    return _max_pool(1, inp, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool2d(
    inp: Tensor, kernel_size, stride=None, padding=0, dilation=1, ceil_mode: bool = False, return_indices: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """The largest element of each window of (N, C, H, W), or of (C, H, W).

    Args: dilation: the distance of a window's elements. ceil_mode: the last window may reach behind the image, where it begins before its
        end. return_indices: also where in the flattened (H, W) each element lies, int64, for `max_unpool2d`.
    Errors: ShapeError for another number of axes, and for windows that do not fit

    >>> from tengen import functional as F
    >>> F.max_pool2d(F.arange(16).reshape(1, 1, 4, 4), 2).numpy().ravel().tolist()
    [5.0, 7.0, 13.0, 15.0]
    """
    return _max_pool(2, inp, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool3d(
    inp: Tensor, kernel_size, stride=None, padding=0, dilation=1, ceil_mode: bool = False, return_indices: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """The largest element of each window of (N, C, D, H, W). See `max_pool2d`."""
    return _max_pool(3, inp, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def avg_pool1d(
    inp: Tensor, kernel_size, stride=None, padding=0, mode: str = "average_count_exclude_padding", *, ceil_mode: bool = False,
    count_include_pad: bool | None = None, divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """The mean of each window of (N, C, L); mode="average" counts padding as zeros, as PyTorch does by default. See `avg_pool2d`."""
    return _avg_pool(1, inp, kernel_size, stride, padding, mode, ceil_mode, count_include_pad, divisor_override)


def avg_pool2d(
    inp: Tensor, kernel_size, stride=None, padding=0, mode: str = "average_count_exclude_padding", *, ceil_mode: bool = False,
    count_include_pad: bool | None = None, divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """The mean of each window of (N, C, H, W), or of (C, H, W); mode="average" counts padding as zeros.

    Args: ceil_mode: the last window may reach behind the padding, which never counts. count_include_pad: PyTorch's word for the mode; there
        it is True by default. divisor_override: what sums are divided by, whatever counts.
    Errors: ShapeError for another number of axes, and for windows that do not fit; ArgumentError for another mode, or a divisor of 0

    >>> from tengen import functional as F
    >>> F.avg_pool2d(F.ones((1, 3, 3)), 2, 2, ceil_mode=True, divisor_override=2).tolist()
    [[[2.0, 1.0], [1.0, 0.5]]]
    """
    return _avg_pool(2, inp, kernel_size, stride, padding, mode, ceil_mode, count_include_pad, divisor_override)


def avg_pool3d(
    inp: Tensor, kernel_size, stride=None, padding=0, mode: str = "average_count_exclude_padding", *, ceil_mode: bool = False,
    count_include_pad: bool | None = None, divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """The mean of each window of (N, C, D, H, W). See `avg_pool2d`."""
    return _avg_pool(3, inp, kernel_size, stride, padding, mode, ceil_mode, count_include_pad, divisor_override)


def lp_pool1d(inp: Tensor, norm_type: float, kernel_size, stride=None, ceil_mode: bool = False) -> Tensor:
    """(sum of x^p)^(1 / p) over each window of (N, C, L). See `lp_pool2d`."""
    return _lp_pool(1, inp, norm_type, kernel_size, stride, ceil_mode)


def lp_pool2d(inp: Tensor, norm_type: float, kernel_size, stride=None, ceil_mode: bool = False) -> Tensor:
    """(sum of x^p)^(1 / p) over each window of (N, C, H, W), where p is `norm_type`; NaN where the sum is negative. As in PyTorch, of a window
    that reaches behind the image the sum is scaled to a whole window.

    >>> from tengen import functional as F
    >>> F.lp_pool2d(F.ones((1, 1, 2, 2)), 1, 2).tolist()
    [[[[4.0]]]]
    """
    return _lp_pool(2, inp, norm_type, kernel_size, stride, ceil_mode)


def lp_pool3d(inp: Tensor, norm_type: float, kernel_size, stride=None, ceil_mode: bool = False) -> Tensor:
    """(sum of x^p)^(1 / p) over each window of (N, C, D, H, W). See `lp_pool2d`."""
    return _lp_pool(3, inp, norm_type, kernel_size, stride, ceil_mode)


def _lp_pool(n: int, inp: Tensor, p: float, kernel: Any, stride: Any, ceil_mode: bool) -> Tensor:
    if not p > 0:
        raise ArgumentError(f"lp_pool{n}d: norm_type={p} must be positive")
    pixels = kernel**n if isinstance(kernel, int) else math.prod(kernel)
    sums = _avg_pool(n, REGISTRY["pow"](inp, float(p)), kernel, stride, 0, "average", ceil_mode, None, None) * float(pixels)
    nothing = REGISTRY["equal"](sums, 0)  # where the root has no derivative
    return REGISTRY["where"](nothing, 0.0, REGISTRY["pow"](REGISTRY["where"](nothing, 1.0, sums), 1.0 / p))


def max_unpool1d(inp: Tensor, indices: Tensor, kernel_size, stride=None, padding=0, output_size: Sequence[int] | None = None) -> Tensor:
    """Elements put where `max_pool1d` found them, and zeros elsewhere: (N, C, P) -> (N, C, L). See `max_unpool2d`."""
    return _unpool(1, inp, indices, kernel_size, stride, padding, output_size)


def max_unpool2d(inp: Tensor, indices: Tensor, kernel_size, stride=None, padding=0, output_size: Sequence[int] | None = None) -> Tensor:
    """Elements put where `max_pool2d(return_indices=True)` found them, and zeros elsewhere: (N, C, P, Q) -> (N, C, H, W).

    Args: output_size: H and W, which several sizes before pooling may belong to; default: (P - 1) stride - 2 padding + kernel_size.
    Errors: ShapeError for indices of another shape; IndexOutOfRange for indices outside of the image (eager mode)

    >>> from tengen import Tensor, functional as F
    >>> y, at = F.max_pool2d(Tensor([[[[1.0, 2.0], [4.0, 3.0]]]]), 2, return_indices=True)
    >>> F.max_unpool2d(y, at, 2).tolist()
    [[[[0.0, 0.0], [4.0, 0.0]]]]
    """
    return _unpool(2, inp, indices, kernel_size, stride, padding, output_size)


def max_unpool3d(inp: Tensor, indices: Tensor, kernel_size, stride=None, padding=0, output_size: Sequence[int] | None = None) -> Tensor:
    """Elements put where `max_pool3d` found them, and zeros elsewhere: (N, C, P, Q, R) -> (N, C, D, H, W). See `max_unpool2d`."""
    return _unpool(3, inp, indices, kernel_size, stride, padding, output_size)


def _unpool(n: int, inp: Tensor, indices: Tensor, kernel: Any, stride: Any, padding: Any, output_size: Sequence[int] | None) -> Tensor:
    if indices.shape != inp.shape or inp.ndim not in (n + 1, n + 2):
        raise ShapeError(f"max_unpool{n}d: indices {indices.shape} must have the shape of the elements, {inp.shape}, with {n} axes of space")
    kernels, strides, pads = ((v,) * n if isinstance(v, int) else tuple(v) for v in (kernel, kernel if stride is None else stride, padding))
    lead = inp.shape[:-n]
    made = tuple((d - 1) * s - 2 * p + k for d, s, p, k in zip(inp.shape[-n:], strides, pads, kernels))
    space = made if output_size is None else tuple(output_size)[-n:]
    if len(space) != n or any(abs(a - b) >= s for a, b, s in zip(space, made, strides)):
        raise ShapeError(f"max_unpool{n}d: output_size={output_size!r} must be within a stride of {made}")
    flat = REGISTRY["zeros"]((*lead, math.prod(space)), inp.dtype)
    put = REGISTRY["scatter"](flat, len(lead), REGISTRY["reshape"](indices, (*lead, -1)), REGISTRY["reshape"](inp, (*lead, -1)))
    return REGISTRY["reshape"](put, (*lead, *space))


# ---- windows at random places -----------------------------------------------------------------------------------------------------


def fractional_max_pool2d(
    inp: Tensor, kernel_size: int | Sequence[int], output_size: int | Sequence[int] | None = None,
    output_ratio: float | Sequence[float] | None = None, return_indices: bool = False, _random_samples: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor]:  # fmt: skip
    """The maxima of windows whose steps are drawn for each channel of each image, so that the output may have any size.

    Shapes: (N, C, H, W) -> (N, C, P, Q), or both without N
    Args: output_size: P and Q. output_ratio: or what they are of H and W, above 0 and below 1. return_indices: also where in the flattened
        (H, W) each element lies, int64. _random_samples: PyTorch's word for the draws, (N, C, 2) in [0, 1), for Q and then for P; by
        default from the generator of `tengen.random`.
    Errors: ArgumentError for none or both of output_size and output_ratio; ShapeError for windows that do not fit, and samples of another shape
    Source: Graham, "Fractional max-pooling", arXiv 1412.6071

    >>> from tengen import Tensor, functional as F
    >>> x = F.arange(25).reshape(1, 1, 5, 5)
    >>> F.fractional_max_pool2d(x, 2, (3, 3), _random_samples=F.zeros((1, 1, 2))).tolist()
    [[[[6.0, 7.0, 9.0], [11.0, 12.0, 14.0], [21.0, 22.0, 24.0]]]]
    """
    return _fractional(2, inp, kernel_size, output_size, output_ratio, return_indices, _random_samples)


def fractional_max_pool3d(
    inp: Tensor, kernel_size: int | Sequence[int], output_size: int | Sequence[int] | None = None,
    output_ratio: float | Sequence[float] | None = None, return_indices: bool = False, _random_samples: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor]:  # fmt: skip
    """`fractional_max_pool2d` of volumes: (N, C, D, H, W) -> (N, C, O, P, Q), or both without N.

    Args: _random_samples: (N, C, 3) in [0, 1), for O, P and Q in this order, as in PyTorch.

    >>> from tengen import functional as F
    >>> x = F.arange(64).reshape(1, 1, 4, 4, 4)
    >>> F.fractional_max_pool3d(x, 2, (1, 1, 2), _random_samples=F.zeros((1, 1, 3))).tolist()
    [[[[[61.0, 63.0]]]]]
    """
    return _fractional(3, inp, kernel_size, output_size, output_ratio, return_indices, _random_samples)


def _fractional(
    rank: int, inp: Tensor, kernel_size: Any, output_size: Any, output_ratio: Any, return_indices: bool, samples: Tensor | None
) -> Tensor | tuple[Tensor, Tensor]:
    if (output_size is None) == (output_ratio is None):
        raise ArgumentError(f"fractional_max_pool{rank}d takes either output_size or output_ratio")
    reshape, gather, kernel = REGISTRY["reshape"], REGISTRY["gather"], _each_axis(kernel_size, rank)

    def pool(x: Tensor) -> tuple[Tensor, Tensor]:
        (n, c), space = x.shape[:2], x.shape[2:]
        size = (
            _each_axis(output_size, rank) if output_ratio is None
            else tuple(int(d * r) for d, r in zip(space, _each_axis(output_ratio, rank)))
        )  # fmt: skip
        if not all(0 < o <= d - k + 1 and k > 0 for o, d, k in zip(size, space, kernel)):
            said = [" x ".join(map(str, v)) for v in (size, kernel, space)]
            raise ShapeError(f"fractional_max_pool{rank}d: {said[0]} windows of {said[1]} pixels do not fit an image of {said[2]}")
        draws = uniform(0.0, 1.0, (n, c, rank)) if samples is None else samples
        if tuple(draws.shape) != (n, c, rank):
            raise ShapeError(f"fractional_max_pool{rank}d: _random_samples of shape {draws.shape} must have the shape {(n, c, rank)}")
        draws = REGISTRY["astype"](draws.detach(), x.dtype.compute)
        at: Any = None
        for i in range(rank):
            j = i if rank == 3 else rank - 1 - i  # PyTorch's draws are for (Q, P) of an image, and for (O, P, Q) of a volume
            along = _places(draws[..., j : j + 1], space[i], size[i], kernel[i])
            spread = [1] * i + [size[i]] + [1] * (rank - 1) + [kernel[i]] + [1] * (rank - 1 - i)
            along = reshape(along, (n, c, *spread)) * math.prod(space[i + 1 :])
            at = along if at is None else at + along
        flat, places = reshape(x, (n, c, math.prod(space))), reshape(at, (n, c, -1))
        windows = reshape(gather(flat.detach(), 2, places), (n, c, math.prod(size), -1))
        best = REGISTRY["argmax"](windows, 3, True)
        best = gather(reshape(places, windows.shape), 3, best)
        found = gather(flat, 2, reshape(best, (n, c, -1)))
        return reshape(found, (n, c, *size)), reshape(best, (n, c, *size))

    made = _batched("fractional_max_pool", inp, rank, pool)
    return made if return_indices else made[0]


def _each_axis(v: Any, rank: int) -> tuple:
    return (v,) * rank if isinstance(v, (int, float)) else tuple(v)


def _places(draws: Tensor, extent: int, count: int, window: int) -> Tensor:
    """The places of an axis that each window covers: draws (N, C, 1) -> (N, C, count, window). The last window ends at the last place."""
    arange, floor = REGISTRY["arange"], REGISTRY["floor"]
    i = REGISTRY["astype"](arange(0, count, 1, "int64"), draws.dtype)
    # the quotient of two numbers of x's dtype, rounded as in PyTorch: a place may hang on its last bit
    step = REGISTRY["full"]((), extent - window, draws.dtype) / max(count - 1, 1)
    first = floor((i + draws) * step) - floor(draws * step)
    first = REGISTRY["where"](REGISTRY["equal"](i, count - 1), float(extent - window), first)
    return REGISTRY["expand_dims"](REGISTRY["astype"](first, "int64"), -1) + arange(0, window, 1, "int64")


# ---- to a given size -------------------------------------------------------------------------------------------------------------


def _adaptive(inp: Tensor, oshp: int | Sequence[int | None], kind: str) -> Tensor:
    """Pooling ("avg" or "max") to a given output size, over as many axes of space as there are."""
    pool = _avg if kind == "avg" else _max
    n = inp.ndim - 2
    sizes = (oshp,) * n if isinstance(oshp, int) else oshp
    if len(sizes) != n or any(o is not None and o < 1 for o in sizes):
        raise ShapeError(f"pooling of an image of shape {inp.shape} to {oshp!r}: a positive int is needed, or one for each axis of space")
    sizes = tuple(s if o is None else o for o, s in zip(sizes, inp.shape[2:]))
    if all(s is o or s % o == 0 for s, o in zip(inp.shape[2:], sizes)):  # of an open extent, it is a condition of the recording
        made = pool(inp, tuple(s // o for s, o in zip(inp.shape[2:], sizes)))
        known = all(as_int(d) is not None for d in made.shape[2:])
        return made if known else made.reshape(*inp.shape[:2], *sizes)  # which they are
    for axis, o in reversed([*enumerate(sizes, 2)]):  # the last axis first: of equal elements the first takes the gradient, as in `max_pool2d`
        s = inp.shape[axis]
        if s is o and as_int(s) is None:
            continue
        bounds = [(i * s // o, ((i + 1) * s + o - 1) // o) for i in range(o)]
        key = [slice(None)] * axis
        inp = REGISTRY["concat"]([_over(kind, inp[(*key, slice(a, b))], axis) for a, b in bounds], axis)
    return inp


def _over(kind: str, part: Tensor, axis: int) -> Tensor:
    """The mean or the largest element along an axis of space, which stays."""
    if kind == "avg":
        return _mean(part, axis, True)
    return _max(part, tuple(part.shape[i] if i == axis else 1 for i in range(2, part.ndim)))


def _to_size(n: int, inp: Tensor, oshp: Any, kind: str, return_indices: bool = False) -> Any:
    def pool(x: Tensor) -> Any:
        y = _adaptive(x, oshp, kind)
        return (y, adaptive_places(x, y, n)) if return_indices else y

    return _batched(f"adaptive_{kind}_pool", inp, n, pool)


@rounded_once
def adaptive_avg_pool1d(inp: Tensor, oshp: int | Sequence[int | None]) -> Tensor:
    """Average pooling of (N, C, L) to a given output size. See `adaptive_avg_pool2d`."""
    return _to_size(1, inp, oshp, "avg")


@rounded_once
def adaptive_avg_pool2d(inp: Tensor, oshp: int | Sequence[int | None]) -> Tensor:
    """Average pooling to a given output size; window i of an axis covers [i S // P, ceil((i + 1) S / P))."""
    return _to_size(2, inp, oshp, "avg")


@rounded_once
def adaptive_avg_pool3d(inp: Tensor, oshp: int | Sequence[int | None]) -> Tensor:
    """Average pooling of (N, C, D, H, W) to a given output size. See `adaptive_avg_pool2d`."""
    return _to_size(3, inp, oshp, "avg")


def adaptive_max_pool1d(inp: Tensor, oshp: int | Sequence[int | None], return_indices: bool = False) -> Tensor | tuple[Tensor, Tensor]:
    """Max pooling of (N, C, L) to a given output size. See `adaptive_max_pool2d`."""
    return _to_size(1, inp, oshp, "max", return_indices)


def adaptive_max_pool2d(inp: Tensor, oshp: int | Sequence[int | None], return_indices: bool = False) -> Tensor | tuple[Tensor, Tensor]:
    """Max pooling to a given output size; window i of an axis covers [i S // P, ceil((i + 1) S / P)).

    Args: return_indices: also where in the flattened (H, W) each element lies, int64.
    """
    return _to_size(2, inp, oshp, "max", return_indices)


def adaptive_max_pool3d(inp: Tensor, oshp: int | Sequence[int | None], return_indices: bool = False) -> Tensor | tuple[Tensor, Tensor]:
    """Max pooling of (N, C, D, H, W) to a given output size. See `adaptive_max_pool2d`."""
    return _to_size(3, inp, oshp, "max", return_indices)


for _f in (adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d, adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d):
    _f.aliases = {"output_size": "oshp"}  # PyTorch's name
__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d",
    "avg_pool1d", "avg_pool2d", "avg_pool3d", "fractional_max_pool2d", "fractional_max_pool3d",
    "lp_pool1d", "lp_pool2d", "lp_pool3d", "max_pool1d", "max_pool2d", "max_pool3d",
    "max_unpool1d", "max_unpool2d", "max_unpool3d",
]  # fmt: skip
all_with_line(globals(), __all__)
