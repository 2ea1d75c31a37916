"""Composites of networks: softmax, normalisation, losses. Each is plain code over ops and runs as one fused program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tengen.base.dtype import bool_, int64
from tengen.base.errors import DTypeError, IndexOutOfRange, ShapeError, UsageWarning, warn_once
from tengen.ir.types import TensorType
from tengen.kernels.lowering import product
from tengen.kernels.source import At, Source
from tengen.loops.lang import as_int, cast, equal
from tengen.ops.attributes import Count, Groups
from tengen.ops.define import Case, Violation, check_floats, composite, dispatch, lookup, primitive
from tengen.ops.elementwise import add, div, exp, mul, sub
from tengen.ops.indexing import outside
from tengen.ops.reduce import count, logsumexp, max_, mean, no_elements, sum_
from tengen.ops.shape import normalize_axes, normalize_axis, reshape
from tengen.ops.widths import narrowed, rounded_once, to_float, widened

if TYPE_CHECKING:
    from tengen.tensor import Tensor


def _softmax_axis(name: str, inp: Tensor) -> int | tuple[int, ...]:
    """The axis of a softmax for which none was given: MegEngine's and PyTorch's. With a warning where the last axis may be meant."""
    ndim = len(inp.shape)
    axis = 0 if ndim in (1, 3) else 1
    if ndim > 2:
        warn_once(
            f"{name}({inp._layout.type!r}) without an axis takes axis {axis}, as MegEngine and PyTorch do; help: say which one is meant, "
            f"axis=-1 for the last or axis={axis}",
            UsageWarning,
            of=f"{name} of {ndim} axes without an axis",
        )
    return axis if ndim else ()


@composite(functional="nn", methods="softmax", autocast="high", unsaid={"axis": _softmax_axis})
def softmax(inp: Tensor, axis: int | Sequence[int] | None = None) -> Tensor:
    """exp(x) divided by its sum along `axis`, without overflow: the largest element is taken out first.

    Args: axis: one or several. None is axis 1, and axis 0 of a tensor of one axis or three, as in MegEngine and PyTorch; where that is not
        the last one, a warning says so.

    >>> from tengen import Tensor, functional as F
    >>> F.softmax(Tensor([[0.0, 0.0], [1.0, 1.0]])).tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """
    inp = to_float(inp)
    axes = normalize_axes(axis, len(inp.shape))
    if no_elements(inp.shape, axes):
        return exp(inp)
    x = widened(inp)
    e = exp(sub(x, max_(x, axes, True)))
    return narrowed(div(e, sum_(e, axes, True)), inp)


@softmax.vjp
def _(g, inp, *, out, axis):
    return softmax_grad(g, out, axis)


@composite
@rounded_once
def softmax_grad(grad: Tensor, out: Tensor, axis: int | Sequence[int] | None) -> Tensor:
    """The gradient of `softmax`, from its output."""
    axes = normalize_axes(axis, len(out.shape))
    return mul(out, sub(grad, sum_(mul(grad, out), axes, True)))


@composite(functional="nn nn.log_softmax", methods="logsoftmax", autocast="high", unsaid={"axis": _softmax_axis})
def logsoftmax(inp: Tensor, axis: int | Sequence[int] | None = None) -> Tensor:
    """log(softmax(x)), without overflow. Args: axis: as of `softmax`."""
    inp = to_float(inp)
    axes = normalize_axes(axis, len(inp.shape))
    if no_elements(inp.shape, axes):
        return exp(inp)
    x = widened(inp)
    shifted = sub(x, max_(x, axes, True))
    return narrowed(sub(shifted, lookup("log")(sum_(exp(shifted), axes, True))), inp)


@logsoftmax.vjp
def _(g, inp, *, out, axis):
    return logsoftmax_grad(g, out, axis)


@composite
@rounded_once
def logsoftmax_grad(grad: Tensor, out: Tensor, axis: int | Sequence[int] | None) -> Tensor:
    """The gradient of `logsoftmax`, from its output."""
    axes = normalize_axes(axis, len(out.shape))
    return sub(grad, mul(exp(out), sum_(grad, axes, True)))


def _np_softmax(x, axis=None):
    axis = (0 if x.ndim in (1, 3) else 1) if axis is None else axis
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


softmax.reference(_np_softmax)
logsoftmax.reference(lambda x, axis=None: np.log(_np_softmax(x, axis)))
for _op in (softmax, logsoftmax):
    _op.cases(Case(lambda r: (r.uniform(-3, 3, (4, 17)),)), Case(lambda r: (r.uniform(-3, 3, (4, 5, 3)),), {"axis": 1}))

# ---- normalisation ----------------------------------------------------------------------------------------------------


@composite(autocast="high")
def general_norm(
    inp: Tensor, axes: int | Sequence[int] | None, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """(x - mean) / sqrt(var + eps) over `axes`, times weight, plus bias (both broadcast to x)."""
    axes, x = normalize_axes(axes, len(inp.shape)), widened(inp)
    d = sub(x, mean(x, axes, True))
    y = mul(d, lookup("rsqrt")(add(mean(mul(d, d), axes, True), eps)))
    y = y if weight is None else mul(y, weight)
    return narrowed(y if bias is None else add(y, bias), inp, weight, bias)


@composite(autocast="high")
def layer_norm(
    inp: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, n_axes: Count = 1, eps: float = 1e-5
) -> Tensor:
    """`general_norm` over the last `n_axes` axes; weight and bias have their shape.

    Source: Ba et al., arXiv 1607.06450
    """
    return general_norm(inp, tuple(range(-n_axes, 0)), weight, bias, eps)


def _np_norm(x, axes, w, b, eps):
    d = x - x.mean(axes, keepdims=True)
    y = d / np.sqrt((d * d).mean(axes, keepdims=True) + eps)
    return y * (1 if w is None else w) + (0 if b is None else b)


layer_norm.reference(lambda x, w=None, b=None, n_axes=1, eps=1e-5: _np_norm(x, tuple(range(-n_axes, 0)), w, b, eps))
layer_norm.cases(
    Case(lambda r: (r.uniform(-2, 2, (3, 17)), r.uniform(0.5, 2, (17,)), r.uniform(-1, 1, (17,)))),
    Case(lambda r: (r.uniform(-2, 2, (3, 4, 5)), r.uniform(0.5, 2, (4, 5)), r.uniform(-1, 1, (4, 5))), {"n_axes": 2}),
)


@composite(autocast="high")
@rounded_once
def group_norm(
    inp: Tensor, num_groups: Groups, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Normalises the channels of each group of each sample over group and space; weight and bias are per channel.

    Shapes: (N, C, *S), (C,), (C,) -> (N, C, *S)
    Source: Wu and He, arXiv 1803.08494
    """
    n, c = inp.shape[:2]
    x = reshape(inp, (n, num_groups, product((c // num_groups, *inp.shape[2:]))))  # not -1, which says nothing of an empty batch
    y = reshape(general_norm(x, (2,), None, None, eps), inp.shape)
    per_channel = (1, c, *(1 for _ in inp.shape[2:]))
    y = y if weight is None else mul(y, reshape(weight, per_channel))
    return y if bias is None else add(y, reshape(bias, per_channel))


group_norm.named(lambda arrays, **_: ("num_groups",))


@composite(autocast="high")
def batch_norm_train(inp: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float = 1e-5) -> Tensor:
    """Batch norm by the batch's own statistics. Returns (y, mean, var) with the statistics shaped (1, C, 1, ...); var is
    divided by n.

    Source: Ioffe and Szegedy, arXiv 1502.03167
    """
    x = widened(inp)
    m, v = _moments(x)
    scale = lookup("rsqrt")(add(v, eps))
    scale = scale if weight is None else mul(scale, weight)
    y = mul(sub(x, m), scale)
    return narrowed(y if bias is None else add(y, bias), inp, weight, bias), narrowed(m, inp), narrowed(v, inp)


def _moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of each channel, in one pass over the image.

    Both are taken of the distance d from a value s near the mean, m = s + mean(d) and v = mean(d^2) - mean(d)^2: what cancels
    is (m - s)^2 / v, which is about 1 / W where s is the mean of the channel's first row, of W elements (for (N, C) the mean of all).
    """
    axes = (0, *range(2, len(x.shape)))
    row = tuple(d if i in (1, axes[-1]) or as_int(d) == 0 else 1 for i, d in enumerate(x.shape))
    first = lookup("strided_slice")(x, (0,) * len(row), row, (1,) * len(row))
    near = mean(first, axes, True)
    d = sub(x, near)
    along, square = mean(d, axes, True), mean(mul(d, d), axes, True)
    v = lookup("maximum")(sub(square, mul(along, along)), 0.0)
    return add(near, along), v


@batch_norm_train.vjp
def _(g, inp, weight, bias, *, out, eps):
    gy, gm, gv = (*g, None, None)[:3] if isinstance(g, tuple) else (g, None, None)
    x = widened(inp)
    _, m, v = out if x is inp else (None, *_moments(x))  # those of the result are rounded
    dx, dw, db = batch_norm_grad(lookup("zeros_like")(x) if gy is None else widened(gy), x, m, v, weight, eps)
    n = count(product([d for i, d in enumerate(x.shape) if i != 1]), x.dtype)
    if gm is not None:
        dx = add(dx, div(gm, n))
    if gv is not None:
        dx = add(dx, mul(sub(x, m), div(mul(gv, 2.0), n)))
    return narrowed(dx, inp), None if weight is None else narrowed(dw, weight), None if bias is None else narrowed(db, bias)


@composite
def batch_norm_grad(grad: Tensor, inp: Tensor, mean: Tensor, var: Tensor, weight: Tensor | None, eps: float = 1e-5) -> Tensor:
    """The gradients of the result of `batch_norm_train` with respect to image, weight and bias, from its statistics: two passes
    over image and gradient."""
    axes = (0, *range(2, len(inp.shape)))
    n = count(product([inp.shape[i] for i in axes]), inp.dtype)
    d = sub(inp, mean)
    bias_grad, along = sum_(grad, axes, True), sum_(mul(grad, d), axes, True)
    inverse = lookup("rsqrt")(add(var, eps))
    weight_grad = mul(along, inverse)
    scale = inverse if weight is None else mul(inverse, weight)
    slope = div(mul(mul(weight_grad, inverse), scale), n)
    shift = div(mul(bias_grad, scale), n)
    return sub(sub(mul(grad, scale), mul(d, slope)), shift), weight_grad, bias_grad


def _np_batch_norm_grad(g, x, m, v, w=None, eps=1e-5):
    axes = (0, *range(2, x.ndim))
    h = (x - m) / np.sqrt(v + eps)
    s = (1 if w is None else w) / np.sqrt(v + eps)
    mean_of = lambda a: a.mean(axes, keepdims=True)
    return s * (g - mean_of(g) - h * mean_of(g * h)), (g * h).sum(axes, keepdims=True), g.sum(axes, keepdims=True)


@batch_norm_grad.canon
def _(types, eps):
    """The attributes as they are. Errors: DTypeError for integers, which would wrap in the body; ShapeError where statistics and weight
    have not one shape."""
    check_floats(*types)
    shapes = [t.shape for t in types[2:] if t is not None]
    differ = lambda a, b: isinstance(a, int) and isinstance(b, int) and a != b
    if any(len(s) != len(shapes[0]) or any(map(differ, s, shapes[0])) for s in shapes):
        raise ShapeError(f"batch_norm_grad takes mean, variance and weight of one shape, got {', '.join(str(list(s)) for s in shapes)}")
    return {"eps": eps}


batch_norm_grad.reference(_np_batch_norm_grad)


@composite(autocast="high")
@rounded_once
def batch_norm_eval(
    inp: Tensor, running_mean: Tensor, running_var: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float = 1e-5
) -> Tensor:
    """Batch norm by given statistics, as ``fma(x, scale, shift)``: exact as a convolution's epilogue. Statistics, weight and
    bias are shaped (1, C, 1, ...)."""
    scale = lookup("rsqrt")(add(running_var, eps))
    scale = scale if weight is None else mul(scale, weight)
    shift = mul(running_mean, scale)
    shift = lookup("neg")(shift) if bias is None else sub(bias, shift)
    return lookup("fma")(inp, scale, shift)


# ---- losses -----------------------------------------------------------------------------------------------------------


@primitive
def class_mask(label: Tensor, like: Tensor, axis: int) -> Tensor:
    """Where position along `axis` equals the label: a bool tensor of the shape of `like`, whose `axis` holds the classes."""


@class_mask.infer
def _(label, like, axis):
    axis = normalize_axis(axis, like.ndim)
    if label.dtype.kind not in "iu":
        raise DTypeError(f"labels must be integers, got {label.dtype}")
    rest = (*like.shape[:axis], *like.shape[axis + 1 :])
    if label.shape != rest:
        raise ShapeError(f"labels of shape {label.shape} do not fit scores {like}; help: {rest} is expected")
    return TensorType(like.shape, bool_)


class _ClassMask(Source):
    def __init__(self, label: Source, out: TensorType, axis: int):
        self.label, self.axis, self.shape, self.dtype = label, axis, out.shape, out.dtype

    def value(self, k, at):
        a = self.axis
        vec = None if at.vec is None or at.vec == a else at.vec - (at.vec > a)
        where = At((*at.coords[:a], *at.coords[a + 1 :]), vec, at.count)
        where.count = at.count if where.lanes > 1 else None
        position = at.coord(a)
        return equal(cast(self.label.at(k, where), position.dtype), position)


@class_mask.source
def _(ins, out, axis):
    return _ClassMask(ins[0], out, normalize_axis(axis, len(out.shape)))


class_mask.no_vjp("a label is not differentiable")


@composite(autocast="high")
def cross_entropy_each(
    pred: Tensor, label: Tensor, axis: int = 1, with_logits: bool = True, label_smooth: float = 0.0
) -> Tensor:
    """-log(probability of the label), one value per sample; see `functional.loss.cross_entropy`."""
    axis, x = normalize_axis(axis, len(pred.shape)), widened(pred)
    zero = lookup("zeros_like")(x)
    hit = sum_(lookup("where")(class_mask(label, x, axis), x, zero), axis)
    if not with_logits:
        if label_smooth:
            smooth = mul(mean(lookup("log")(x), axis), label_smooth)
            return narrowed(lookup("neg")(add(mul(lookup("log")(hit), 1.0 - label_smooth), smooth)), pred)
        return narrowed(lookup("neg")(lookup("log")(hit)), pred)
    total = logsumexp(x, axis)
    if label_smooth:
        hit = add(mul(hit, 1.0 - label_smooth), mul(mean(x, axis), label_smooth))
    return narrowed(sub(total, hit), pred)


@cross_entropy_each.check
def _(inputs, axis, **_):
    pred, label = inputs
    n = pred.shape[axis]
    if as_int(label.size) == 0:
        return
    where = f"is outside the {n} classes of axis {axis} of scores of shape {pred.shape}"

    def found() -> str:
        values = label.numpy()
        return f"cross_entropy: label {values[(values < 0) | (values >= n)].flat[0]} {where}"

    bad = outside(label, dispatch.scalar(0, int64), dispatch.scalar(n, int64))
    yield Violation(bad, IndexOutOfRange, f"cross_entropy: a label {where}", found)


def _np_cross_entropy(x, t, axis=1, with_logits=True, label_smooth=0.0):
    logp = np.log(_np_softmax(x, axis)) if with_logits else np.log(x)
    picked = np.take_along_axis(logp, np.expand_dims(t, axis), axis).squeeze(axis)
    return -((1 - label_smooth) * picked + label_smooth * logp.mean(axis)) if label_smooth else -picked


cross_entropy_each.reference(_np_cross_entropy)
cross_entropy_each.cases(
    Case(lambda r: (r.uniform(-3, 3, (6, 10)), r.integers(0, 10, 6))),
    Case(lambda r: (r.uniform(-3, 3, (6, 10, 3)), r.integers(0, 10, (6, 3))), {"label_smooth": 0.1}),
)
cross_entropy_each.cases(
    Case(lambda r: (r.uniform(0.1, 1, (6, 10)), r.integers(0, 10, 6)), {"with_logits": False}),
    Case(lambda r: (r.uniform(0.1, 1, (6, 10)), r.integers(0, 10, 6)), {"with_logits": False, "label_smooth": 0.2}),
    Case(lambda r: (r.uniform(-3, 3, (2, 3, 4)), r.integers(0, 4, (2, 3))), {"axis": -1}),
    Case(lambda r: (np.zeros((0, 10)), np.zeros(0, np.int64))),
)
class_mask.reference(
    lambda label, like, axis: (
        np.expand_dims(label, axis) == np.moveaxis(np.arange(like.shape[axis])[(..., *(None,) * (like.ndim - 1))], 0, axis)
    )
)
class_mask.cases(Case(lambda r: (r.integers(0, 5, (3, 2)), r.uniform(-1, 1, (3, 5, 2))), {"axis": 1}, grad=False))
softmax_grad.reference(lambda g, y, axis: y * (g - (g * y).sum(axis, keepdims=True)))
logsoftmax_grad.reference(lambda g, y, axis: g - np.exp(y) * g.sum(axis, keepdims=True))
for _op in (softmax_grad, logsoftmax_grad):
    _op.cases(Case(lambda r: (r.uniform(-1, 1, (4, 17)), r.uniform(0, 1, (4, 17))), {"axis": 1}))
for _op in (softmax, logsoftmax):
    _op.cases(
        Case(lambda r: (r.uniform(-3, 3, (3, 4)),), {"axis": (0, 1)}),
        Case(lambda r: (np.full((1,), 2.5),)),
        Case(lambda r: (np.zeros((0, 3)),)),
    )
general_norm.reference(lambda x, w=None, b=None, axes=(), eps=1e-5: _np_norm(x, axes, w, b, eps))
general_norm.cases(
    Case(lambda r: (r.uniform(-2, 2, (3, 4, 5)), r.uniform(0.5, 2, (4, 1)), r.uniform(-1, 1, (4, 1))), {"axes": (0, 2)}),
    Case(lambda r: (r.uniform(-2, 2, (3, 4, 5)), None, None), {"axes": (1, 2), "eps": 1e-3}),
)


def _channel(v, x):
    return v if v is None else v.reshape(1, -1, *(1,) * (x.ndim - 2))


@group_norm.canon
def _(types, num_groups, eps):
    t = types[0]
    if t.ndim < 2 or (isinstance(t.shape[1], int) and t.shape[1] % num_groups):
        channels = t.shape[1] if t.ndim > 1 else "no"
        raise ShapeError(f"{channels} channels cannot be shared out to {num_groups} groups")
    return {"num_groups": num_groups, "eps": eps}


def _np_group_norm(x, w=None, b=None, num_groups=1, eps=1e-5):
    if not x.size:
        return x
    y = _np_norm(x.reshape(x.shape[0], num_groups, -1), 2, None, None, eps).reshape(x.shape)
    return y * (1 if w is None else _channel(w, x)) + (0 if b is None else _channel(b, x))


def _np_batch_norm(x, w, b, eps=1e-5):
    axes = (0, *range(2, x.ndim))
    return _np_norm(x, axes, w, b, eps), x.mean(axes, keepdims=True), x.var(axes, keepdims=True)


def _per_channel(*more):
    return lambda r: (r.uniform(-2, 2, (3, 4, 5, 2)), *(None if m is None else r.uniform(*m, (1, 4, 1, 1)) for m in more))


group_norm.reference(_np_group_norm)
group_norm.cases(
    Case(lambda r: (r.uniform(-2, 2, (2, 6, 3, 3)), r.uniform(0.5, 2, (6,)), r.uniform(-1, 1, (6,))), {"num_groups": 3}),
    Case(lambda r: (r.uniform(-2, 2, (2, 6, 5)), None, None), {"num_groups": 6}),
    Case(lambda r: (r.uniform(-2, 2, (0, 6, 5)), None, None), {"num_groups": 2}, grad=False),
)
batch_norm_train.reference(_np_batch_norm)
batch_norm_train.cases(
    Case(_per_channel((0.5, 2), (-1, 1))),
    Case(_per_channel(None, None)),
    Case(lambda r: (r.uniform(-2, 2, (33, 4)), r.uniform(0.5, 2, (1, 4)), r.uniform(-1, 1, (1, 4)))),
)
batch_norm_grad.cases(
    Case(lambda r: (*r.uniform(-2, 2, (2, 3, 4, 5, 2)), r.uniform(-1, 1, (1, 4, 1, 1)), *r.uniform(0.5, 2, (2, 1, 4, 1, 1)))),
    Case(lambda r: (*r.uniform(-2, 2, (2, 33, 4)), r.uniform(-1, 1, (1, 4)), r.uniform(0.5, 2, (1, 4)), None)),
)
batch_norm_eval.reference(
    lambda x, m, v, w, b, eps=1e-5: (x - m) / np.sqrt(v + eps) * (1 if w is None else w) + (0 if b is None else b)
)
batch_norm_eval.cases(
    Case(_per_channel((-1, 1), (0.5, 2), (0.5, 2), (-1, 1))), Case(_per_channel((-1, 1), (0.5, 2), None, None))
)
