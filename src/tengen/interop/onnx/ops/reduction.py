"""Sums, products, extremes along axes; arguments of extremes; running sums; products of matrices; softmax and losses."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import tengen.functional as F
from tengen import linalg
from tengen.interop.networks.places import product
from tengen.interop.onnx.ops.elementwise import all_known
from tengen.interop.onnx.ops.shapes import axes_of
from tengen.interop.onnx.reader import NodeOf
from tengen.interop.onnx.registry import op
from tengen.interop.onnx.values import Value, as_tensor, ints
from tengen.tensor import Tensor


def reducing(tensor: Callable, array: Callable | None = None) -> Callable:
    """The op that folds along axes, by default along all, or along none where it says so."""

    def compute(n: NodeOf, x: Value, axes: Value = None) -> Value:
        along, keep = axes_of(n, axes), bool(n["keepdims"])
        if array is not None and all_known(x):
            if along in (None, []) and n.get("noop_with_empty_axes"):
                return x
            return np.asarray(array(x, axis=tuple(along) if along else None, keepdims=keep))
        t = as_tensor(x)
        if not along:
            if n.get("noop_with_empty_axes") and (axes is not None or n.since >= 13):
                along = []
                return tensor(F.expand_dims(t, 0), [0], False)
            along = None
        if not t.shape:
            return tensor(t.reshape(1), [0], False)
        return tensor(t, along, keep)

    return compute


def totals(t: Tensor, axes, keep: bool) -> Tensor:
    """Sums that keep the dtype."""
    return F.sum(t, axes, keep).astype(t.dtype)


def bools(f: Callable, as_bool: Callable) -> Callable:
    """An extreme that is `any` or `all` of bools."""
    return lambda t, axes, keep: as_bool(t, axes, keep) if t.dtype.kind == "b" else extreme(f, t, axes, keep)


def extreme(f: Callable, t: Tensor, axes, keep: bool) -> Tensor:
    """The largest or smallest; of nothing the least or the largest number."""
    along = set(range(len(t.shape)) if axes is None else (a % len(t.shape) for a in axes))
    if not any(isinstance(t.shape[a], int) and t.shape[a] == 0 for a in along):
        return f(t, axes, keep)
    shape = tuple(1 if a in along else e for a, e in enumerate(t.shape) if keep or a not in along)
    if t.dtype.is_inexact:
        return F.full(shape, -np.inf if f is F.max else np.inf, dtype=t.dtype)
    return F.full(shape, getattr(np.iinfo(t.dtype.numpy), "min" if f is F.max else "max"), dtype=t.dtype)


def average(t: Tensor, axes, keep: bool) -> Tensor:
    """The mean, of integers rounded down."""
    if t.dtype.is_inexact:
        return F.mean(t, axes, keep)
    return F.floor_div(F.sum(t, axes, keep), product(t.shape if axes is None else [t.shape[a] for a in axes])).astype(t.dtype)


def real(f: Callable) -> Callable:
    """A reduction by roots or logarithms: of integers in float64, and back."""
    return lambda t, axes, keep: f(t if t.dtype.is_inexact else t.astype("float64"), axes, keep).astype(t.dtype)


op("ReduceSum")(reducing(totals, np.sum))
op("ReduceProd")(reducing(lambda t, a, k: F.prod(t, a, k).astype(t.dtype), np.prod))
op("ReduceMean")(reducing(average))
op("ReduceMax")(reducing(bools(F.max, F.any), np.max))
op("ReduceMin")(reducing(bools(F.min, F.all), np.min))
op("ReduceL1")(reducing(lambda t, a, k: totals(F.abs(t), a, k)))
op("ReduceL2")(reducing(real(lambda t, a, k: F.sqrt(F.sum(F.square(t), a, k)))))
op("ReduceSumSquare")(reducing(lambda t, a, k: totals(t * t, a, k)))
op("ReduceLogSum")(reducing(real(lambda t, a, k: F.log(F.sum(t, a, k)))))
op("ReduceLogSumExp")(reducing(real(F.logsumexp)))


def argument(f: Callable) -> Callable:
    """The op that finds where the extreme is, the first or the last of equal ones."""

    def compute(n: NodeOf, x: Value) -> Value:
        t, axis = as_tensor(x), n["axis"]
        if not n.get("select_last_index", 0):
            return f(t, axis, bool(n["keepdims"])).astype("int64")
        found = f(F.flip(t, axis), axis, bool(n["keepdims"])).astype("int64")
        return t.shape[axis] - 1 - found

    return compute


op("ArgMax")(argument(F.argmax))
op("ArgMin")(argument(F.argmin))


def running(f: Callable) -> Callable:
    """The op that folds up to each element."""
    return lambda n, x, axis: f(as_tensor(x), ints(axis)[0], bool(n["exclusive"]), bool(n["reverse"]))


op("CumSum")(running(lambda t, *a: F.cumsum(t, *a).astype(t.dtype)))
op("CumProd")(running(lambda t, *a: F.cumprod(t, *a).astype(t.dtype)))


@op("TopK")
def top_k(n: NodeOf, x: Value, k: Value = None) -> tuple[Value, Value]:
    """The k largest or smallest, and where they are."""
    t, count = as_tensor(x), n["k"] if n.since < 10 else ints(k)[0]
    axis = n["axis"] % len(t.shape)
    values, places = F.sort(t, descending=bool(n.get("largest", 1)), axis=axis)
    cut = (slice(None),) * axis + (slice(0, count),)
    return values[cut], places[cut].astype("int64")


# -- products of matrices --------------------------------------------------------------------------------------------------
@op("MatMul")
def matmul(n: NodeOf, x: Value, y: Value) -> Value:
    """NumPy's."""
    return product_of(as_tensor(x), as_tensor(y))


def product_of(x: Tensor, y: Tensor) -> Tensor:
    """A product of matrices; of integers by sums of products in their dtype."""
    if x.dtype.is_inexact:
        return F.matmul(x, y)
    row, column = (F.expand_dims(x, 0) if len(x.shape) == 1 else x), (F.expand_dims(y, 1) if len(y.shape) == 1 else y)
    made = F.sum(F.expand_dims(row, -1) * F.expand_dims(column, -3), -2).astype(x.dtype)
    made = made[..., 0, :] if len(x.shape) == 1 else made
    return made[..., 0] if len(y.shape) == 1 else made


@op("Gemm")
def gemm(n: NodeOf, a: Value, b: Value, c: Value = None) -> Value:
    """alpha a b + beta c."""
    x, y = as_tensor(a), as_tensor(b)
    if (
        n["alpha"] == 1
        and n["beta"] == 1
        and not n["transA"]
        and n["transB"]
        and c is not None
        and len(as_tensor(c).shape) == 1
        and x.dtype.is_inexact
    ):
        if as_tensor(c).shape[0] == y.shape[0]:
            return F.linear(x, y, as_tensor(c))
    x, y = (x.transpose(1, 0) if n["transA"] else x), (y.transpose(1, 0) if n["transB"] else y)
    made = product_of(x, y)
    made = made if n["alpha"] == 1 else made * np.float32(n["alpha"])
    if c is None or n["beta"] == 0:
        return made.astype(x.dtype)
    added = as_tensor(c)
    return (made + (added if n["beta"] == 1 else added * np.float32(n["beta"]))).astype(x.dtype)


@op("Einsum")
def einsum(n: NodeOf, *inputs: Value) -> Value:
    """Einstein's convention."""
    return F.einsum(n["equation"].replace(" ", ""), *map(as_tensor, inputs))


@op("Det")
def determinant(n: NodeOf, x: Value) -> Value:
    """Of each matrix."""
    return linalg.det(as_tensor(x))


# -- softmax -----------------------------------------------------------------------------------------------------------------
def softmax_like(f: Callable) -> Callable:
    """Along one axis; before opset 13 over all axes from it on."""

    def compute(n: NodeOf, x: Value) -> Value:
        t = as_tensor(x)
        if n.since >= 13:
            return f(t, n["axis"])
        s, axis = t.shape, n["axis"] % max(1, len(t.shape))
        return f(t.reshape(product(s[:axis]), product(s[axis:])), 1).reshape(s)

    return compute


op("Softmax")(softmax_like(F.softmax))
op("LogSoftmax")(softmax_like(F.log_softmax))


@op("NegativeLogLikelihoodLoss")
def nll_loss(n: NodeOf, x: Value, target: Value, weight: Value = None) -> Value:
    """Of log-probabilities (N, C, ...) and classes (N, ...)."""
    return likelihood(n, as_tensor(x), as_tensor(target), weight)


def likelihood(n: NodeOf, logs: Tensor, target: Tensor, weight: Value) -> Tensor:
    """The loss, reduced as the node says."""
    ignored, classes = n.get("ignore_index"), logs.shape[1]
    at = target.astype("int64")
    counted = None if ignored is None else F.not_equal(at, ignored)
    safe = at if counted is None else F.where(counted, at, 0)
    each = -F.squeeze(F.gather(logs, 1, F.expand_dims(safe, 1).astype("int32")), [1])
    w = F.take(as_tensor(weight), safe) if weight is not None else F.ones(each.shape, each.dtype)
    w = w if counted is None else F.where(counted, w, 0).astype(each.dtype)
    assert classes is not None
    each = each * w
    match n["reduction"]:
        case "none":
            return each
        case "sum":
            return F.sum(each)
    return F.sum(each) / F.sum(w)


@op("SoftmaxCrossEntropyLoss")
def cross_entropy(n: NodeOf, x: Value, target: Value, weight: Value = None) -> tuple[Value, Value]:
    """The loss, and the log-probabilities."""
    logs = F.log_softmax(as_tensor(x), 1)
    return likelihood(n, logs, as_tensor(target), weight), logs
