"""Functions of numbers that PyTorch and NumPy have and MegEngine lacks, put together from ops: they are differentiated, traced, mapped over
examples and written to files as those are. Arguments are in PyTorch's order; `dim` and `keepdim` are understood.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tengen.base.errors import ArgumentError, ShapeError
from tengen.functional.arranged import atleast_2d, axis_of
from tengen.linalg.products import tensordot as _tensordot
from tengen.linalg.products import vector_norm
from tengen.ops.calls import all_with_line
from tengen.ops.contract import matmul as _matmul
from tengen.ops.define import REGISTRY
from tengen.ops.reduce import max_, mean, min_, sum_
from tengen.ops.widths import narrowed, rounded_once, widened
from tengen.tensor import Tensor

op = REGISTRY


# ---- element by element --------------------------------------------------------------------------------------------------------


def fmod(inp: Tensor, other: Tensor) -> Tensor:
    """The remainder of a division that rounds towards zero: it has the sign of `inp`. `mod` has that of `other`.

    >>> from tengen import Tensor, functional as F
    >>> F.fmod(Tensor([-5.0, 5.0]), 3.0).tolist()
    [-2.0, 2.0]
    """
    size = op["mod"](op["abs"](inp), op["abs"](other) if isinstance(other, Tensor) else abs(other))
    return op["where"](op["less"](inp, 0), op["neg"](size), size)


def frac(inp: Tensor) -> Tensor:
    """What is left of a number without its whole part, with its sign."""
    return inp - op["trunc"](inp)


def heaviside(inp: Tensor, values: Tensor) -> Tensor:
    """0 below zero, 1 above, `values` at zero.

    >>> from tengen import Tensor, functional as F
    >>> F.heaviside(Tensor([-1.0, 0.0, 2.0]), Tensor(0.5)).tolist()
    [0.0, 0.5, 1.0]
    """
    step = op["astype"](op["greater"](inp, 0), inp.dtype)
    if inp.dtype.is_float:
        step = op["where"](op["isnan"](inp), inp, step)
    return op["where"](op["equal"](inp, 0), values, step)


def logit(inp: Tensor, eps: float | None = None) -> Tensor:
    """log(x / (1 - x)), the inverse of `sigmoid`. Args: eps: x is taken to lie in [eps, 1 - eps]; None: as it is.

    >>> from tengen import Tensor, functional as F
    >>> F.logit(Tensor([0.5])).tolist()
    [0.0]
    """
    x = widened(inp) if inp.dtype.is_float or inp.dtype.is_complex else op["astype"](inp, "float32")  # -x of an unsigned integer wraps
    x = x if eps is None else op["clip"](x, eps, 1 - eps)
    return narrowed(op["log"](x) - op["log1p"](-x), inp)


@rounded_once
def xlogy(x: Tensor, y: Tensor) -> Tensor:
    """x log(y), and 0 where x is 0, whatever y is but NaN.

    >>> from tengen import Tensor, functional as F
    >>> F.xlogy(Tensor([0.0, 2.0]), Tensor([0.0, 1.0])).tolist()
    [0.0, 0.0]
    """
    undefined = op["logical_or"](op["less_equal"](y, 0), op["equal"](y, math.inf))  # where 0 log(y) is no number
    none = op["logical_and"](op["equal"](x, 0), undefined)
    return op["where"](none, 0.0, x * op["log"](op["where"](none, 1.0, y)))


def sinc(inp: Tensor) -> Tensor:
    """sin(pi x) / (pi x), and 1 at 0.

    >>> from tengen import Tensor, functional as F
    >>> F.sinc(Tensor([0.0])).tolist()
    [1.0]
    """
    given = widened(inp)  # of whose sine a rounded product would be another one's
    zero = op["equal"](given, 0)
    x = op["where"](zero, 1.0, given) * math.pi
    y = op["where"](zero, 1.0 - given * given * (math.pi**2 / 6), op["sin"](x) / x)
    return narrowed(y, inp)


@rounded_once
def deg2rad(inp: Tensor) -> Tensor:
    """Degrees in radians."""
    return inp * (math.pi / 180)


@rounded_once
def rad2deg(inp: Tensor) -> Tensor:
    """Radians in degrees."""
    return inp * (180 / math.pi)


@rounded_once
def logaddexp2(x: Tensor, y: Tensor) -> Tensor:
    """log2(2^x + 2^y), without overflow."""
    return op["logaddexp"](x * math.log(2), y * math.log(2)) / math.log(2)


def isposinf(inp: Tensor) -> Tensor:
    """Whether each element is plus infinity."""
    return op["equal"](inp, math.inf) if inp.dtype.is_float else op["zeros"](inp.shape, "bool")


def isneginf(inp: Tensor) -> Tensor:
    """Whether each element is minus infinity."""
    return op["equal"](inp, -math.inf) if inp.dtype.is_float else op["zeros"](inp.shape, "bool")


def fmax(x: Tensor, y: Tensor) -> Tensor:
    """The larger one; of a number and NaN the number. `maximum` gives NaN.

    >>> from tengen import Tensor, functional as F
    >>> F.fmax(Tensor([1.0, float("nan")]), Tensor([float("nan"), 2.0])).tolist()
    [1.0, 2.0]
    """
    return op["where"](op["isnan"](x), y, op["where"](op["isnan"](y), x, op["maximum"](x, y)))


def fmin(x: Tensor, y: Tensor) -> Tensor:
    """The smaller one; of a number and NaN the number. `minimum` gives NaN."""
    return op["where"](op["isnan"](x), y, op["where"](op["isnan"](y), x, op["minimum"](x, y)))


@rounded_once
def addcmul(inp: Tensor, tensor1: Tensor, tensor2: Tensor, value: float = 1) -> Tensor:
    """inp + value tensor1 tensor2, element by element."""
    return inp + (tensor1 if value == 1 else value * tensor1) * tensor2


@rounded_once
def addcdiv(inp: Tensor, tensor1: Tensor, tensor2: Tensor, value: float = 1) -> Tensor:
    """inp + value tensor1 / tensor2, element by element."""
    return inp + (tensor1 if value == 1 else value * tensor1) / tensor2


def logspace(start: float, end: float, steps: int, base: float = 10.0, dtype: Any = "float32") -> Tensor:
    """base to the power of `steps` numbers from start to end at equal distances.

    >>> from tengen import functional as F
    >>> F.logspace(0, 2, 3).tolist()
    [1.0, 10.0, 100.0]
    """
    return op["pow"](base, op["linspace"](start, end, steps, dtype))


# ---- windows --------------------------------------------------------------------------------------------------------------------


def _cosines(name: str, n: int, periodic: bool, weights: Sequence[float], dtype: Any) -> Tensor:
    """The sum of weights[k] cos(2 pi k i / m) for n points, in float64."""
    if n < 0:
        raise ArgumentError(f"{name}: window_length={n} must not be negative")
    if n == 1:
        return op["ones"]((1,), dtype)
    angle = np.arange(n) * (2 * np.pi / max(n - (not periodic), 1))
    return Tensor(sum((w * np.cos(k * angle) for k, w in enumerate(weights)), np.zeros(n)), dtype)


def hann_window(window_length: int, periodic: bool = True, dtype: Any = "float32") -> Tensor:
    """Hann's window, 0.5 - 0.5 cos(2 pi i / N). Args: periodic: N is window_length, for transforms; else one less, with equal ends.

    Errors: ArgumentError for a negative length

    >>> from tengen import functional as F
    >>> F.hann_window(4).tolist()
    [0.0, 0.5, 1.0, 0.5]
    """
    return _cosines("hann_window", window_length, periodic, (0.5, -0.5), dtype)


def hamming_window(window_length: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, dtype: Any = "float32") -> Tensor:
    """Hamming's window, alpha - beta cos(2 pi i / N). See `hann_window`. Errors: ArgumentError for a negative length."""
    return _cosines("hamming_window", window_length, periodic, (alpha, -beta), dtype)


def blackman_window(window_length: int, periodic: bool = True, dtype: Any = "float32") -> Tensor:
    """Blackman's window, 0.42 - 0.5 cos(2 pi i / N) + 0.08 cos(4 pi i / N). See `hann_window`. Errors: ArgumentError for a negative length."""
    return _cosines("blackman_window", window_length, periodic, (0.42, -0.5, 0.08), dtype)


def bartlett_window(window_length: int, periodic: bool = True, dtype: Any = "float32") -> Tensor:
    """Bartlett's triangle, 1 - |2 i / N - 1|. See `hann_window`. Errors: ArgumentError for a negative length."""
    if window_length < 0:
        raise ArgumentError(f"bartlett_window: window_length={window_length} must not be negative")
    if window_length == 1:
        return op["ones"]((1,), dtype)
    return Tensor(1 - np.abs(2 * np.arange(window_length) / max(window_length - (not periodic), 1) - 1), dtype)


def kaiser_window(window_length: int, periodic: bool = True, beta: float = 12.0, dtype: Any = "float32") -> Tensor:
    """Kaiser's window, I0(beta sqrt(1 - (2 i / N - 1)^2)) / I0(beta). See `hann_window`. Errors: ArgumentError for a negative length.

    >>> from tengen import functional as F
    >>> F.kaiser_window(3, False).tolist()[1]
    1.0
    """
    if window_length < 0:
        raise ArgumentError(f"kaiser_window: window_length={window_length} must not be negative")
    return Tensor(np.kaiser(window_length + periodic, beta)[:window_length] if window_length > 1 else np.ones(window_length), dtype)


# ---- over axes ---------------------------------------------------------------------------------------------------------------------


def amax(inp: Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """`max`: the largest element along axes."""
    return max_(inp, axis, keepdims)


def amin(inp: Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """`min`: the smallest element along axes."""
    return min_(inp, axis, keepdims)


def aminmax(inp: Tensor, axis: int | None = None, keepdims: bool = False) -> tuple[Tensor, Tensor]:
    """The smallest and the largest element along an axis, or of all."""
    return min_(inp, axis, keepdims), max_(inp, axis, keepdims)


def var_mean(inp: Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = False, correction: int = 1) -> tuple[Tensor, Tensor]:
    """The variance and the mean along axes. As in PyTorch the sum of squares is divided by the number of elements less `correction`; `var`
    divides by the number, as NumPy does.

    >>> from tengen import Tensor, functional as F
    >>> [x.item() for x in F.var_mean(Tensor([1.0, 2.0, 3.0]))]
    [1.0, 2.0]
    """
    middle = mean(inp, axis, True)
    d = inp - middle
    squares = sum_(op["square"](op["abs"](d)) if inp.dtype.is_complex else d * d, axis, keepdims)
    counted = inp.size // max(middle.size, 1) if middle.size else 0
    over = op["full"]((), max(counted - correction, 0), squares.dtype)
    return squares / over, mean(inp, axis, keepdims)


def std_mean(inp: Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = False, correction: int = 1) -> tuple[Tensor, Tensor]:
    """The standard deviation and the mean along axes. See `var_mean`."""
    v, m = var_mean(inp, axis, keepdims, correction)
    return op["sqrt"](v), m


def nansum(inp: Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """The sum along axes, without the NaNs.

    >>> from tengen import Tensor, functional as F
    >>> F.nansum(Tensor([1.0, float("nan"), 2.0])).item()
    3.0
    """
    return sum_(op["where"](op["isnan"](inp), 0, inp), axis, keepdims)


def nanmean(inp: Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """The mean along axes of what is not NaN; NaN where nothing is."""
    there = op["astype"](op["logical_not"](op["isnan"](inp)), inp.dtype)
    return nansum(inp, axis, keepdims) / sum_(there, axis, keepdims)


def kthvalue(inp: Tensor, k: int, axis: int = -1, keepdims: bool = False) -> tuple[Tensor, Tensor]:
    """The k-th smallest element along an axis, counted from 1, and its index.

    Errors: AxisError for an axis that is not there, ArgumentError for a k that is not in 1 .. N

    >>> from tengen import Tensor, functional as F
    >>> [x.item() for x in F.kthvalue(Tensor([5.0, 1.0, 3.0]), 2)]
    [3.0, 2]
    """
    axis = axis_of("kthvalue", inp, axis)
    if not 1 <= k <= inp.shape[axis]:
        raise ArgumentError(f"kthvalue: k={k} is not in 1 .. {inp.shape[axis]}, the extent of axis {axis} of {inp.shape}")
    key = (*(slice(None),) * axis, slice(k - 1, k))
    values, indices = (t[key] for t in op["sort"](inp, False, axis))
    return (values, indices) if keepdims else (op["squeeze"](values, axis), op["squeeze"](indices, axis))


def msort(inp: Tensor) -> Tensor:
    """The elements sorted along axis 0."""
    return op["sort"](inp, False, axis_of("msort", inp, 0))[0]


def histc(inp: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """How many elements fall into each of equal bins between two numbers, in the dtype of the tensor; others are not counted.

    Args: min, max: where the bins begin and end; both 0: the least and the largest element.
    """
    limits = None if min == max == 0 else (min, max)
    return op["astype"](op["histogram"](inp, bins, limits)[0], inp.dtype)


def bucketize(inp: Tensor, boundaries: Tensor, right: bool = False) -> Tensor:
    """The number of the bucket of each element: buckets lie between sorted boundaries, and hold their upper one (their lower one with
    right=True).

    >>> from tengen import Tensor, functional as F
    >>> F.bucketize(Tensor([0.5, 1.0, 9.0]), Tensor([1.0, 2.0])).tolist()
    [0, 0, 2]
    """
    return op["searchsorted"](boundaries, inp, right)


@rounded_once
def trapezoid(y: Tensor, x: Tensor | None = None, dx: float = 1.0, axis: int = -1) -> Tensor:
    """The integral along an axis by the trapezoidal rule, at places x (default: at distances dx).

    Errors: AxisError for an axis that is not there

    >>> from tengen import Tensor, functional as F
    >>> F.trapezoid(Tensor([1.0, 2.0, 3.0])).item()
    4.0
    """
    axis = axis_of("trapezoid", y, axis)
    key = (slice(None),) * axis
    pairs = y[(*key, slice(1, None))] + y[(*key, slice(None, -1))]
    if x is None:
        return sum_(pairs * (0.5 * dx), axis)
    steps = op["diff"](x, 1, x.ndim - 1 if x.ndim == 1 else axis)
    if x.ndim == 1:
        steps = op["reshape"](steps, tuple(-1 if i == axis else 1 for i in range(y.ndim)))
    return sum_(pairs * steps * 0.5, axis)


@rounded_once
def cov(inp: Tensor, correction: int = 1) -> Tensor:
    """The covariances of variables, a row each, whose columns are observations: (M, N) -> (M, M); (N,) -> a number.

    Errors: ShapeError for more than two axes

    >>> from tengen import Tensor, functional as F
    >>> F.cov(Tensor([[1.0, 3.0], [3.0, 1.0]])).tolist()
    [[2.0, -2.0], [-2.0, 2.0]]
    """
    if inp.ndim > 2:
        raise ShapeError(f"cov of a tensor of shape {inp.shape}: it takes (variables, observations)")
    x = atleast_2d(inp)
    d = x - mean(x, 1, True)
    c = _matmul(d, op["conj"](op["swapaxes"](d, 0, 1))) / float(max(x.shape[1] - correction, 0) or math.nan)
    return c if inp.ndim == 2 else op["reshape"](c, ())


@rounded_once
def corrcoef(inp: Tensor) -> Tensor:
    """Pearson's correlations of variables, a row each: (M, N) -> (M, M). Errors: ShapeError for more than two axes."""
    c = cov(inp)
    if c.ndim == 0:
        return c / c
    size = op["sqrt"](op["real"](op["diagonal"](c)))
    return c / op["expand_dims"](size, 1) / op["expand_dims"](size, 0)


# ---- products and distances -----------------------------------------------------------------------------------------------------


@rounded_once
def addmm(inp: Tensor, mat1: Tensor, mat2: Tensor, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta inp + alpha (mat1 @ mat2).

    Errors: ShapeError for what are no matrices
    """
    if mat1.ndim != 2 or mat2.ndim != 2:
        raise ShapeError(f"addmm({inp.shape}, {mat1.shape}, {mat2.shape}): two matrices are needed; help: baddbmm, or inp + a @ b")
    return _sum_of(inp, _matmul(mat1, mat2), beta, alpha)


@rounded_once
def baddbmm(inp: Tensor, batch1: Tensor, batch2: Tensor, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta inp + alpha (batch1 @ batch2) of batches of matrices (B, M, K) and (B, K, N). Errors: ShapeError for what are none."""
    if batch1.ndim != 3 or batch2.ndim != 3:
        raise ShapeError(f"baddbmm({inp.shape}, {batch1.shape}, {batch2.shape}): two batches of matrices are needed; help: inp + a @ b")
    return _sum_of(inp, _matmul(batch1, batch2), beta, alpha)


def _sum_of(inp: Tensor, product: Tensor, beta: float, alpha: float) -> Tensor:
    product = product if alpha == 1 else product * alpha
    return product if beta == 0 else product + (inp if beta == 1 else inp * beta)


def inner(x: Tensor, y: Tensor) -> Tensor:
    """Sums of products along the last axes of both: (..., N), (..., N) -> (..., ...)."""
    if x.ndim == 0 or y.ndim == 0:
        return x * y
    return tensordot(x, y, ([-1], [-1]))


def tensordot(a: Tensor, b: Tensor, dims: int | Sequence[Sequence[int]] = 2) -> Tensor:
    """Sums of products over several axes.

    Args: dims: how many of the last axes of a go with as many first ones of b; or the axes of a, and those of b.
    >>> from tengen import functional as F
    >>> F.tensordot(F.ones((2, 3, 4)), F.ones((3, 4, 5)), 2).shape
    (2, 5)
    """
    return _tensordot(a, b, axes=dims)


def kron(a: Tensor, b: Tensor) -> Tensor:
    """Kronecker's product: every element of a times the whole of b.

    >>> from tengen import Tensor, functional as F
    >>> F.kron(Tensor([1, 2]), Tensor([1, 10])).tolist()
    [1, 10, 2, 20]
    """
    n = max(a.ndim, b.ndim)
    x, y = ((1,) * (n - t.ndim) + tuple(t.shape) for t in (a, b))
    left = op["reshape"](a, tuple(d for s in x for d in (s, 1)))
    right = op["reshape"](b, tuple(d for s in y for d in (1, s)))
    return op["reshape"](left * right, tuple(s * t for s, t in zip(x, y)))


def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """The powers of the elements of a vector as columns, the highest first unless `increasing`: (M,) -> (M, N).

    Errors: ShapeError for what is no vector

    >>> from tengen import Tensor, functional as F
    >>> F.vander(Tensor([2.0, 3.0]), 3).tolist()
    [[4.0, 2.0, 1.0], [9.0, 3.0, 1.0]]
    """
    if x.ndim != 1:
        raise ShapeError(f"vander of a tensor of shape {x.shape}: it must have one axis")
    n = x.shape[0] if N is None else N
    columns = [op["ones_like"](x)]
    for _ in range(n - 1):
        columns.append(columns[-1] * x)
    return op["stack"](columns if increasing else columns[::-1], 1) if n else op["zeros"]((x.shape[0], 0), x.dtype)


@rounded_once
def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdims: bool = False) -> Tensor:
    """The p-norm of x1 - x2 + eps along the last axis.

    >>> from tengen import Tensor, functional as F
    >>> round(F.pairwise_distance(Tensor([[0.0, 3.0]]), Tensor([[4.0, 0.0]])).item(), 4)
    5.0
    """
    return vector_norm(x1 - x2 + eps, axis=-1, keepdims=keepdims, ord=p)


@rounded_once
def cdist(x1: Tensor, x2: Tensor, p: float = 2.0) -> Tensor:
    """The p-norms of all differences of rows: (..., M, D), (..., N, D) -> (..., M, N).

    Errors: ShapeError for rows of different extents
    Numerics: from the differences themselves, so that equal rows have the distance 0

    >>> from tengen import Tensor, functional as F
    >>> F.cdist(Tensor([[0.0, 0.0]]), Tensor([[3.0, 4.0], [0.0, 1.0]])).tolist()
    [[5.0, 1.0]]
    """
    if x1.ndim < 2 or x2.ndim < 2 or x1.shape[-1] != x2.shape[-1]:
        raise ShapeError(f"cdist({x1.shape}, {x2.shape}): rows along the last axis are needed, of one extent")
    return vector_norm(op["expand_dims"](x1, -2) - op["expand_dims"](x2, -3), axis=-1, ord=p)


__all__ = [
    "bartlett_window", "blackman_window", "hamming_window", "hann_window", "kaiser_window",
    "addcdiv", "addcmul", "addmm", "amax", "amin", "aminmax", "baddbmm", "bucketize", "cdist", "corrcoef", "cov", "deg2rad",
    "fmax", "fmin", "fmod", "frac", "heaviside", "histc", "inner", "isneginf", "isposinf", "kron", "kthvalue", "logaddexp2",
    "logit", "logspace", "msort", "nanmean", "nansum", "pairwise_distance", "rad2deg", "sinc", "std_mean", "tensordot",
    "trapezoid", "vander", "var_mean", "xlogy",
]  # fmt: skip
all_with_line(globals(), __all__)
