"""Activations and rearrangements of channels under PyTorch's names, put together from ops; `functional.nn` has MegEngine's."""

from __future__ import annotations

from typing import Any

from tengen.base.errors import ArgumentError, ShapeError
from tengen.functional.math import matmul
from tengen.functional.nn import embedding, linear
from tengen.ops.calls import all_with_line
from tengen.ops.define import REGISTRY
from tengen.ops.widths import rounded_once
from tengen.random.state import uniform
from tengen.tensor import Tensor

op = REGISTRY


def hardtanh(inp: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """The number, or the nearer of two limits, which integers take without their fractions. Errors: ArgumentError where the limits are in the
    wrong order.

    >>> from tengen import Tensor, functional as F
    >>> F.hardtanh(Tensor([-3.0, 0.5])).tolist()
    [-1.0, 0.5]
    """
    if not min_val <= max_val:
        raise ArgumentError(f"hardtanh: min_val={min_val} must not be above max_val={max_val}")
    return op["clip"](inp, *((int(min_val), int(max_val)) if inp.dtype.is_int else (min_val, max_val)))


def hardshrink(inp: Tensor, lambd: float = 0.5) -> Tensor:
    """x where |x| > lambd, else 0; NaN stays NaN."""
    return op["where"](op["less_equal"](op["abs"](inp), lambd), 0.0, inp)


def softshrink(inp: Tensor, lambd: float = 0.5) -> Tensor:
    """x moved towards 0 by lambd, and 0 where |x| <= lambd. Errors: ArgumentError for a negative lambd.

    >>> from tengen import Tensor, functional as F
    >>> F.softshrink(Tensor([-2.0, 0.25, 1.0])).tolist()
    [-1.5, 0.0, 0.5]
    """
    if lambd < 0:
        raise ArgumentError(f"softshrink: lambd={lambd} must not be negative")
    return op["where"](op["less_equal"](op["abs"](inp), lambd), 0.0, inp - op["clip"](inp, -lambd, lambd))


@rounded_once
def tanhshrink(inp: Tensor) -> Tensor:
    """x - tanh(x)."""
    return inp - op["tanh"](inp)


@rounded_once
def softsign(inp: Tensor) -> Tensor:
    """x / (1 + |x|)."""
    return inp / (1.0 + op["abs"](inp))


def softmin(inp: Tensor, axis: int | None = None) -> Tensor:
    """softmax(-x) along an axis. Args: axis: as of `softmax`."""
    return op["softmax"](op["neg"](inp), axis)


def celu(inp: Tensor, alpha: float = 1.0) -> Tensor:
    """x where it is positive, alpha (exp(x / alpha) - 1) elsewhere. Source: Barron, arXiv 1704.07483.

    Errors: ArgumentError for an alpha of 0
    """
    if alpha == 0:
        raise ArgumentError("celu: alpha=0 divides by zero")
    positive = op["greater"](inp, 0)
    return op["where"](positive, inp, alpha * op["expm1"](op["where"](positive, 0.0, inp) / alpha))


def threshold(inp: Tensor, threshold: float, value: float) -> Tensor:
    """x where x > threshold, else value; NaN stays NaN."""
    return op["where"](op["less_equal"](inp, threshold), value, inp)


def gumbel_softmax(logits: Tensor, tau: float = 1.0, hard: bool = False, axis: int = -1) -> Tensor:
    """A sample of a relaxed categorical distribution: softmax((logits + g) / tau) along an axis, where g are draws of Gumbel's distribution.

    Args: tau: the temperature, above 0. hard: gives the one-hot code of the largest element, with the gradient of the soft sample.
    Errors: ArgumentError for a temperature that is not positive
    Source: Jang et al., arXiv 1611.01144

    >>> from tengen import functional as F, random
    >>> random.seed(0)
    >>> F.gumbel_softmax(F.zeros((2, 3)), hard=True).sum(1).tolist()
    [1.0, 1.0]
    """
    if not tau > 0:
        raise ArgumentError(f"gumbel_softmax: tau={tau} must be positive")
    tiny = 1.2e-7  # draws are multiples of 2^-24 or so, 0 among them
    u = op["clip"](uniform(0.0, 1.0, size=logits.shape), tiny, 1.0 - tiny)
    soft = op["softmax"]((logits - op["log"](-op["log"](u))) / tau, axis)
    if not hard:
        return soft
    code = op["equal"](op["argmax"](soft.detach(), axis, True), _numbers(soft, axis))
    return op["straight_through"](op["astype"](code, soft.dtype), soft)


def _numbers(x: Tensor, axis: int) -> Tensor:
    return op["reshape"](op["arange"](0, x.shape[axis], 1, "int64"), tuple(-1 if i == axis % x.ndim else 1 for i in range(x.ndim)))


def pixel_unshuffle(inp: Tensor, downscale_factor: int) -> Tensor:
    """(N, C, H r, W r) -> (N, C r^2, H, W): the inverse of `pixel_shuffle`.

    Errors: ShapeError where the image's extents are no multiples of the factor

    >>> from tengen import functional as F
    >>> F.pixel_unshuffle(F.arange(4).reshape(1, 1, 2, 2), 2).tolist()
    [[[[0.0]], [[1.0]], [[2.0]], [[3.0]]]]
    """
    r = downscale_factor
    if inp.ndim != 4 or r < 1 or inp.shape[2] % r or inp.shape[3] % r:
        raise ShapeError(f"pixel_unshuffle({inp.shape}, {r}): images (N, C, H, W) are needed whose H and W are multiples of {r}")
    n, c, h, w = inp.shape
    x = op["permute"](op["reshape"](inp, (n, c, h // r, r, w // r, r)), (0, 1, 3, 5, 2, 4))
    return op["reshape"](x, (n, c * r * r, h // r, w // r))


def channel_shuffle(inp: Tensor, groups: int) -> Tensor:
    """The channels of (N, C, ...) in another order: channel k of group g becomes channel k groups + g. Source: ShuffleNet, arXiv 1707.01083.

    Errors: ShapeError where the number of channels is no multiple of the groups
    """
    if inp.ndim < 3 or groups < 1 or inp.shape[1] % groups:
        raise ShapeError(f"channel_shuffle({inp.shape}, {groups}): (N, C, ...) is needed whose C is a multiple of {groups}")
    n, c, *space = inp.shape
    x = op["swapaxes"](op["reshape"](inp, (n, groups, c // groups, *space)), 1, 2)
    return op["reshape"](x, inp.shape)


def fold(inp: Tensor, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Tensor:
    """Columns, as `unfold` gives, added up to images: (N, C KH KW, L) -> (N, C, *output_size).

    Errors: ShapeError for columns of other extents

    >>> from tengen import functional as F
    >>> F.fold(F.unfold(F.ones((1, 1, 3, 3)), 2), 3, 2)[0, 0].tolist()
    [[1.0, 2.0, 1.0], [2.0, 4.0, 2.0], [1.0, 2.0, 1.0]]
    """
    given = output_size, kernel_size, dilation, padding, stride
    size, kernel, steps, pads, strides = ((v, v) if isinstance(v, int) else tuple(v) for v in given)
    places = [(s + 2 * p - d * (k - 1) - 1) // t + 1 for s, p, d, k, t in zip(size, pads, steps, kernel, strides)]
    if inp.ndim != 3 or inp.shape[1] % (kernel[0] * kernel[1]) or inp.shape[2] != places[0] * places[1]:
        raise ShapeError(f"fold({inp.shape}, {size}, {kernel}): (N, C {kernel[0] * kernel[1]}, {places[0] * places[1]}) is expected")
    x = op["reshape"](inp, (inp.shape[0], inp.shape[1] // (kernel[0] * kernel[1]), *kernel, *places))
    return op["sliding_window_transpose"](op["permute"](x, (0, 1, 4, 5, 2, 3)), size, kernel, pads, strides, steps)


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x1 A_k x2 + b_k for each of the matrices A_k in weight: (..., I), (..., J), (K, I, J) -> (..., K).

    >>> from tengen import functional as F
    >>> F.bilinear(F.ones((1, 2)), F.ones((1, 3)), F.ones((1, 2, 3))).tolist()
    [[6.0]]
    """
    k, i, j = weight.shape
    pairs = op["reshape"](op["expand_dims"](input1, -1) * op["expand_dims"](input2, -2), (*input1.shape[:-1], i * j))
    return linear(pairs, op["reshape"](weight, (k, i * j)), bias)


def embedding_bag(
    inp: Tensor, weight: Tensor, offsets: Tensor | None = None, mode: str = "mean", per_sample_weights: Tensor | None = None
) -> Tensor:
    """The sum, mean or maximum of the rows of a table that each bag names: (B, N) -> (B, D), or all bags one after another, (N,), with the
    position where each begins.

    Args: mode: "sum", "mean" or "max". per_sample_weights: factors for the rows, in the shape of inp, for "sum" alone.
    Errors: ArgumentError for another mode; ShapeError for offsets that are missing or not needed

    >>> from tengen import Tensor, functional as F
    >>> F.embedding_bag(Tensor([0, 1, 1]), Tensor([[1.0], [3.0]]), Tensor([0, 1])).tolist()
    [[1.0], [3.0]]
    """
    if mode not in ("sum", "mean", "max"):
        raise ArgumentError(f"embedding_bag: mode={mode!r} must be 'sum', 'mean' or 'max'")
    if per_sample_weights is not None and mode != "sum":
        raise ArgumentError(f"embedding_bag: per_sample_weights go with mode='sum', not {mode!r}")
    if (inp.ndim == 1) is (offsets is None) or inp.ndim not in (1, 2):
        raise ShapeError(f"embedding_bag: inp has shape {inp.shape}; help: (B, N) without offsets, or (N,) with offsets")
    rows = embedding(inp, weight)
    if per_sample_weights is not None:
        rows = rows * op["expand_dims"](per_sample_weights, -1)
    if offsets is None:
        return op[mode](rows, 1)
    bag = op["searchsorted"](offsets, op["arange"](0, inp.shape[0], 1, offsets.dtype.name), True) - 1
    member = op["equal"](op["expand_dims"](op["arange"](0, offsets.shape[0], 1, bag.dtype.name), 1), bag)  # (bags, N)
    counts = op["sum"](op["astype"](member, rows.dtype), 1, True)
    if mode == "max":
        best = op["max"](op["where"](op["expand_dims"](member, -1), rows, -float("inf")), 1)
        return op["where"](op["greater"](counts, 0), best, 0.0)
    total = matmul(op["astype"](member, rows.dtype), rows)
    return total if mode == "sum" else total / op["maximum"](counts, 1.0)


for _f in (hardtanh, celu, threshold):
    _f.aliases = {"inplace": ""}  # PyTorch's word: it changes no number
__all__ = [
    "bilinear", "celu", "channel_shuffle", "embedding_bag", "fold", "gumbel_softmax", "hardshrink", "hardtanh", "pixel_unshuffle", "softmin",
    "softshrink", "softsign", "tanhshrink", "threshold",
]  # fmt: skip
all_with_line(globals(), __all__)
