"""Sums, means, extremes, running sums, norms of axes."""

from __future__ import annotations

import math
from typing import Any

import tengen.functional as F
from tengen import linalg
from tengen.base.dtype import bool_, float32, float64, uint8
from tengen.interop.torch.dtypes import alike, named, of
from tengen.interop.torch.registry import op
from tengen.loops.lang import as_int, maximum
from tengen.ops.reduce import extent
from tengen.tensor import Tensor


def axes_of(x: Tensor, dim: Any) -> tuple[int, ...] | None:
    """Axes as Tengen takes them: None for all of them, which an empty list is too, and of a tensor without axes."""
    dim = [dim] if isinstance(dim, int) else dim
    return None if not dim or not x.ndim else tuple(d % x.ndim for d in dim)


def kept(y: Tensor, x: Tensor, keepdim: bool) -> Tensor:
    """A result over all axes, with as many unit axes as x has, where that is asked for."""
    return y.reshape(*[1] * x.ndim) if keepdim and y.ndim != x.ndim else y


def _cast(x: Tensor, dtype: str | None) -> Tensor:
    return x if dtype is None else of(x, named(dtype))


@op("sum.dim_IntList")
def sum_(x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: str | None = None) -> Tensor:
    """Integers and bools give int64."""
    y = F.sum(_cast(x, dtype), axes_of(x, dim), keepdim and x.ndim > 0)
    return y if dtype is None else of(y, named(dtype))


@op("sum")
def sum_all(x: Tensor, *, dtype: str | None = None) -> Tensor:
    """Of all elements."""
    return sum_(x, dtype=dtype)


@op("mean.dim")
def mean(x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: str | None = None) -> Tensor:
    """The sum divided by the number of elements."""
    return F.mean(_cast(x, dtype), axes_of(x, dim), keepdim and x.ndim > 0)


@op("mean")
def mean_all(x: Tensor, *, dtype: str | None = None) -> Tensor:
    """Of all elements."""
    return mean(x, dtype=dtype)


@op("prod", "prod.dim_int")
def prod(x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: str | None = None) -> Tensor:
    """Integers and bools give int64."""
    y = F.prod(_cast(x, dtype), None if dim is None else axes_of(x, dim), keepdim and x.ndim > 0)
    return y if dtype is None else of(y, named(dtype))


@op("amax")
def amax(x: Tensor, dim: Any = (), keepdim: bool = False) -> Tensor:
    """The largest; its gradient is shared by equal ones."""
    return F.max(x, axes_of(x, dim), keepdim and x.ndim > 0)


@op("amin")
def amin(x: Tensor, dim: Any = (), keepdim: bool = False) -> Tensor:
    """The smallest; its gradient is shared by equal ones."""
    return F.min(x, axes_of(x, dim), keepdim and x.ndim > 0)


op("max")(lambda x: F.max(x))
op("min")(lambda x: F.min(x))


@op("any", "any.dim", "any.dims", "_is_any_true")
def any_(x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """Whether one is not 0; of uint8, PyTorch gives uint8."""
    y = F.any(x, axes_of(x, dim), keepdim and x.ndim > 0)
    return y.astype(uint8) if x.dtype is uint8 else y


@op("all", "all.dim", "all.dims", "_is_all_true")
def all_(x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """Whether none is 0; of uint8, PyTorch gives uint8."""
    y = F.all(x, axes_of(x, dim), keepdim and x.ndim > 0)
    return y.astype(uint8) if x.dtype is uint8 else y


def _best(f: Any, x: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    x = x.astype(uint8) if x.dtype is bool_ else x
    if dim is None or not x.ndim:
        return kept(f(x.reshape(-1), 0), x, keepdim)
    return f(x, dim, keepdim)


@op("argmax")
def argmax(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The position of the first largest element."""
    return _best(F.argmax, x, dim, keepdim)


@op("argmin")
def argmin(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The position of the first smallest element."""
    return _best(F.argmin, x, dim, keepdim)


def _with_place(f: Any, x: Tensor, dim: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    if not x.ndim:
        return x, F.zeros((), "int64")
    at = _best(f, x, dim, True)
    y = F.gather(x, dim % x.ndim, at)
    return (y, at) if keepdim else (F.squeeze(y, dim), F.squeeze(at, dim))


@op("max.dim")
def max_dim(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """(The largest, the position of the first one); the gradient goes to that one."""
    return _with_place(F.argmax, x, dim, keepdim)


@op("min.dim")
def min_dim(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """(The smallest, the position of the first one); the gradient goes to that one."""
    return _with_place(F.argmin, x, dim, keepdim)


def count_of(x: Tensor, axes: tuple[int, ...] | None) -> Any:
    """How many elements are reduced."""
    return math.prod(d for i, d in enumerate(x.shape) if axes is None or i in axes)


def variance(x: Tensor, axes: tuple[int, ...] | None, correction: float, keepdim: bool) -> Tensor:
    """The squared distances from the mean, divided by their number less the correction."""
    n = count_of(x, axes)
    v = F.var(x, axes, keepdim)
    if correction == 0:
        return v
    if as_int(n) is not None:
        return v * (float(n) / (n - correction) if n > correction else math.inf)
    whole = int(correction)
    if whole != correction:
        return v * (extent(n, float64) / (extent(n, float64) - correction)).astype(v.dtype)
    return v * (extent(n, float64) / extent(maximum(n - whole, 0), float64)).astype(v.dtype)


@op("var.correction")
def var_correction(x: Tensor, dim: Any = None, *, correction: float | None = None, keepdim: bool = False) -> Tensor:
    """See `variance`; the correction is 1 by default."""
    return variance(x, axes_of(x, dim), 1 if correction is None else correction, keepdim and x.ndim > 0)


@op("var.dim")
def var_dim(x: Tensor, dim: Any = None, unbiased: bool = True, keepdim: bool = False) -> Tensor:
    """See `variance`."""
    return variance(x, axes_of(x, dim), int(unbiased), keepdim and x.ndim > 0)


@op("std.correction")
def std_correction(x: Tensor, dim: Any = None, *, correction: float | None = None, keepdim: bool = False) -> Tensor:
    """The square root of the variance."""
    return F.sqrt(var_correction(x, dim, correction=correction, keepdim=keepdim))


@op("var_mean.correction")
def var_mean(x: Tensor, dim: Any = None, *, correction: float | None = None, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """(Variance, mean)."""
    return var_correction(x, dim, correction=correction, keepdim=keepdim), mean(x, dim, keepdim)


def _running(f: Any, x: Tensor, dim: int, dtype: str | None) -> Tensor:
    x = _cast(x, dtype)
    y = (
        f(x, dim)
        if x.ndim
        else of(f(x.reshape(1), 0).reshape(()), named(None, x.dtype if x.dtype.is_inexact else named("int64")))
    )
    return y if dtype is None else of(y, named(dtype))


@op("cumsum")
def cumsum(x: Tensor, dim: int, *, dtype: str | None = None) -> Tensor:
    """Running sums; integers and bools give int64."""
    return _running(F.cumsum, x, dim, dtype)


@op("cumprod")
def cumprod(x: Tensor, dim: int, *, dtype: str | None = None) -> Tensor:
    """Running products; integers and bools give int64."""
    return _running(F.cumprod, x, dim, dtype)


@op("logcumsumexp", "_logcumsumexp")
def logcumsumexp(x: Tensor, dim: int) -> Tensor:
    """Logarithms of running sums of exponentials."""
    return F.logcumsumexp(x, dim % x.ndim) if x.ndim else x


def _best_so_far(f: Any, x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    if not x.ndim:
        return x, F.zeros((), "int64")
    y, places = f(x.astype(uint8) if x.dtype is bool_ else x, dim % x.ndim)
    return y.astype(x.dtype), places


@op("cummax")
def cummax(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """(The largest so far, the position of the last one that is as large)."""
    return _best_so_far(F.cummax, x, dim)


@op("cummin")
def cummin(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """(The smallest so far, the position of the last one that is as small)."""
    return _best_so_far(F.cummin, x, dim)


@op("bincount")
def bincount(x: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """How often each number from 0 on occurs, or the sums of its weights. How many there are depends on the values."""
    return F.bincount(x, weights if weights is None or weights.dtype is float32 else weights.astype(float64), minlength)


@op("logsumexp")
def logsumexp(x: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    """log(sum(exp(x)))."""
    return F.logsumexp(x, axes_of(x, dim), keepdim)


def _along(f: Any, x: Tensor, dim: int) -> Tensor:
    return f(x, dim) if x.ndim else f(x.reshape(1), 0).reshape(())


@op("_softmax", "_safe_softmax")
def softmax(x: Tensor, dim: int, half_to_float: Any = False) -> Tensor:
    """exp(x) divided by its sum."""
    x = of(x, named("float32")) if half_to_float is True else x
    return _along(F.softmax, x, dim)


@op("_log_softmax")
def log_softmax(x: Tensor, dim: int, half_to_float: bool = False) -> Tensor:
    """log(softmax(x))."""
    x = of(x, named("float32")) if half_to_float else x
    return _along(F.logsoftmax, x, dim)


op("linalg_vector_norm")(
    lambda x, order=2, dim=None, keepdim=False, *, dtype=None: _norm(_cast(x, dtype), order, axes_of(x, dim), keepdim)
)


def _norm(x: Tensor, order: float, axes: tuple[int, ...] | None, keepdim: bool) -> Tensor:
    """The p-norm of vectors."""
    size = F.abs(x)
    match float(order):
        case 1.0: return F.sum(size, axes, keepdim)  # fmt: skip
        case 0.0: return F.sum(F.not_equal(x, 0).astype(x.dtype), axes, keepdim)  # fmt: skip
        case math.inf: return F.max(size, axes, keepdim)  # fmt: skip
        case x_ if x_ == -math.inf: return F.min(size, axes, keepdim)  # fmt: skip
    return rooted(F.sum(F.square(size) if order == 2 else F.pow(size, float(order)), axes, keepdim), float(order))


def rooted(total: Tensor, order: float) -> Tensor:
    """The root of a sum of powers; its gradient at 0 is 0."""
    none = F.equal(total, 0)
    safe = F.where(none, F.ones_like(total), total)
    return F.where(none, 0.0, F.sqrt(safe) if order == 2 else F.pow(safe, 1 / order))


@op("histc")
def histc(x: Tensor, bins: int = 100, min: Any = 0, max: Any = 0) -> Tensor:
    """How many elements lie in each of equal bins between two numbers; both 0: the least and the largest element."""
    return F.histc(x, bins, min, max)


@op("dist")
def dist(x: Tensor, y: Tensor, p: float = 2) -> Tensor:
    """The p-norm of the difference."""
    x, y = alike(x, y)
    return linalg.vector_norm((x - y).reshape(-1), ord=p)


@op("_ctc_loss", "_ctc_loss.Tensor")
def ctc_loss(
    scores: Tensor, targets: Tensor, steps: Any, labels: Any, blank: int = 0, zero_infinity: bool = False
) -> tuple[Tensor, None]:  # fmt: skip
    """(The negative log-likelihood of each sequence, what PyTorch's gradient reads), of logarithms of probabilities (T, N, C)."""
    counts = [n if isinstance(n, Tensor) else Tensor(list(n), dtype="int64") for n in (steps, labels)]
    each = F.loss.ctc_loss(scores, counts[0], targets, counts[1], blank, "none", log_probs=True, zero_infinity=zero_infinity)
    return each, None
